import type { Request, RequestHandler, Response } from 'express';
import type { CallAnswer, CallContext } from '../database/call.ts';
import { validator } from './body/validate.ts';
import type { PlacedCheck } from './checks.ts';
import { fileContext, requestContext, writeContext } from './call-context.ts';
import type { Endpoint, Exchange, FileResponse, HandledResponse, JsonKind } from './endpoint.ts';
import { isHandled } from './endpoint.ts';
import type { Operation } from './operation.ts';
import { allowEmbedding, sendDownload, sendFile, sendJson } from './responses.ts';
import type { Services } from './services.ts';

/** An endpoint with its route and its operation. */
export interface Route {
  endpoint: Endpoint;
  operation: Operation;
  method: string;
  path: string;
}

/** A validated request: the call of its operation. */
interface Prepared {
  sessionId: string | null;
  params: Record<string, unknown>;
  context: CallContext;
  isDryRun: boolean;
}

type Responder = (req: Request, res: Response, prepared: Prepared) => Promise<void>;

/** Prepares the call of the operation with these parameters. */
function prepare(
  services: Services,
  operation: Operation,
  req: Request,
  res: Response,
  { params, checks }: { params: Prepared['params']; checks: PlacedCheck[] },
) {
  const context = requestContext(req, res, services.config);
  if (checks.length > 0) context.checks = checks;
  // For the ETag. A deleted record has none.
  if (req.method !== 'DELETE') context.needs_version = true;
  if (req.claims || req.apiKey)
    context.picture_key = services.pictures.signingKey(req.apiKey?.tenantId ?? req.claims?.tenant_id ?? 0);
  const isDryRun = params['dry_run'] === 'true' || params['dry_run'] === true;
  if (operation.writes && !isDryRun) Object.assign(context, writeContext(req, operation, params));
  return { sessionId: req.claims ? String(req.claims.sid) : null, params, context, isDryRun };
}

/** Checks the caller's rights to the operation, without running it. */
async function admit(services: Services, operation: Operation, { sessionId, params, context }: Prepared) {
  await services.call(operation.name, sessionId, params, { ...context, check_only: true });
}

/** Runs the handler of the endpoint. */
function handled(services: Services, operation: Operation, response: HandledResponse): Responder {
  return async (req, res, prepared) => {
    const { sessionId, params, context, isDryRun } = prepared;
    let last: Pick<CallAnswer, 'version' | 'id'> = { version: null, id: null };
    const { if_match: ifMatch, ...withoutMatch } = context;
    const callWith =
      (callContext: CallContext): Exchange['call'] =>
      async (name, p) => {
        // If-Match names the version of what the endpoint changes.
        const own = ifMatch !== undefined && name === operation.name ? { if_match: ifMatch } : {};
        const result = await services.call(name, sessionId, p, { ...callContext, ...own });
        last = result;
        return result.answer;
      };
    const exchange: Exchange = {
      req,
      res,
      params,
      call: callWith(withoutMatch),
      callAfterDisconnect: callWith({ ...withoutMatch, signal: undefined }),
      admit: () => admit(services, operation, prepared),
      services,
    };
    if (response.kind === 'stream') await response.handler(exchange);
    else if (response.kind === 'download') await sendDownload(req, res, await response.handler(exchange));
    else {
      const answer = await response.handler(exchange);
      sendJson(req, res, response, { ...last, answer }, isDryRun);
    }
  };
}

/** Sends a file of the database. */
function stored(services: Services, operation: Operation, { isEmbeddable }: FileResponse): Responder {
  return async (req, res, { sessionId, params, context }) => {
    Object.assign(context, fileContext(req));
    const result = await services.call(operation.name, sessionId, params, context);
    if (isEmbeddable) allowEmbedding(res);
    sendFile(req, res, result, context.range);
  };
}

/** Sends the JSON of the operation. */
function called(services: Services, operation: Operation, response: JsonKind): Responder {
  return async (req, res, { sessionId, params, context, isDryRun }) => {
    const { upload } = req;
    const all = upload ? { ...params, content_type: upload.contentType, file_name: upload.name } : params;
    const result = await services.call(operation.name, sessionId, all, context, upload?.content);
    sendJson(req, res, response, result, isDryRun);
  };
}

function responder(services: Services, { endpoint: { response }, operation }: Route): Responder {
  if ((response.kind === 'file') !== (operation.content === 'gives'))
    throw new Error(`${operation.name}: content is ${String(operation.content)}, but the response is ${response.kind}`);
  if (response.kind === 'file') return stored(services, operation, response);
  return isHandled(response) ? handled(services, operation, response) : called(services, operation, response);
}

/** Serves one endpoint: validates the request, calls the operation or the handler, and sends the response. */
export function serve(services: Services, route: Route): RequestHandler {
  const { endpoint, operation, method, path } = route;
  const { resolve, passwordField } = endpoint;
  const validate = validator(endpoint, method, path);
  const respond = responder(services, route);
  const read = (req: Request) => {
    const { params, checks } = validate(req);
    return { params: resolve ? resolve(params, services) : params, checks };
  };
  if (passwordField === undefined)
    return async (req, res) => respond(req, res, prepare(services, operation, req, res, read(req)));
  return async (req, res) => {
    const {
      params: { [passwordField]: password, ...params },
      checks,
    } = read(req);
    // Without the password, because the hash of the request is stored and would help to guess it.
    const prepared = prepare(services, operation, req, res, { params, checks });
    if (typeof password === 'string') {
      // Hashing is expensive. Check the caller's rights before.
      await admit(services, operation, prepared);
      params['password_hash'] = await services.passwords.hash({ req, res }, password);
    }
    await respond(req, res, prepared);
  };
}
