import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import express, {
  type ErrorRequestHandler,
  type NextFunction,
  type Request,
  type RequestHandler,
  type Response,
  Router,
} from 'express';
import { AuditedRefusal, type CallAnswer, type CallContext } from '../database/call.ts';
import { z } from 'zod';
import type { Download } from '../domain/files.ts';
import { type Endpoint, disconnectSignal, pathParameters, type Resource } from './endpoint.ts';
import { ApiError, type ErrorName } from '../domain/errors.ts';
import { toApiError } from './errors.ts';
import { serviceInfo } from './health.ts';
import { rateLimits } from './rate-limits.ts';
import type { Services } from './services.ts';
import { receiveUpload } from './uploads.ts';
import { validator } from './validate.ts';

/** Who may call an operation, from `core.operation`; the rest of that row is the dispatcher's business. */
export interface Operation {
  name: string;
  access: 'public' | 'token' | 'feed' | 'refresh' | 'any' | 'tenant' | 'platform' | 'analyst';
  permission: string | null;
  allows_own_rows: boolean;
  role: string | null;
  feature: string | null;
  needs_setup: boolean;
  needs_subscription: boolean;
  writes: boolean;
  idempotent: boolean;
  record: string | null;
  /** What its functions raise by name. */
  errors: ErrorName[];
  content: 'takes' | 'gives' | null;
}

/** Whether an operation is for somebody who has not logged in. */
export const isAnonymous = ({ access }: Operation): boolean =>
  access === 'public' || access === 'token' || access === 'feed' || access === 'refresh';

/** Where a request comes from, for the audit trail. */
function origin(req: Request): CallContext {
  const agent = req.get('user-agent');
  return {
    request_id: req.id,
    ...(req.ip ? { ip: req.ip } : {}),
    ...(agent ? { user_agent: agent.slice(0, 300) } : {}),
    ...(req.claims?.impersonated_by ? { is_impersonated: true } : {}),
  };
}

/** The header X-Tenant-ID or the left-most label of the host below BASE_DOMAIN, as the dispatcher wants them. */
export function requestContext(req: Request, baseDomain: string | undefined): CallContext {
  const context = origin(req);
  const tenant = req.get('x-tenant-id');
  if (tenant !== undefined) {
    if (!/^[1-9]\d{0,14}$/.test(tenant))
      throw new ApiError('validation_error', 'X-Tenant-ID must be the number of a school.', {
        details: [{ path: 'X-Tenant-ID', message: 'must be a number' }],
      });
    context.tenant_id = Number(tenant);
  }
  const host = baseDomain ? req.hostname.toLowerCase() : '';
  if (baseDomain && host.endsWith(`.${baseDomain}`))
    context.subdomain = host.slice(0, -baseDomain.length - 1).split('.')[0] ?? '';
  return context;
}

/** The part of the context that only a write has: preconditions and the key that makes it safe to repeat. */
function writeContext(req: Request, operation: Operation, params: object, context: CallContext): void {
  const ifMatch = req.get('if-match');
  if (ifMatch !== undefined && operation.record) context.if_match = ifMatch;
  const key = req.get('idempotency-key');
  if (key !== undefined && operation.idempotent) {
    if (!/^[\x21-\x7e]{1,255}$/.test(key))
      throw new ApiError('validation_error', 'Idempotency-Key takes 1 to 255 visible characters.', {
        details: [{ path: 'Idempotency-Key', message: 'is malformed' }],
      });
    context.idempotency_key = key;
    const hash = createHash('sha256').update(JSON.stringify(params));
    context.request_hash = (req.upload ? hash.update(req.upload.content) : hash).digest('hex');
  }
}

/** Answers the envelope around JSON that comes from the database and is never parsed here. */
function sendJson(
  req: Request,
  res: Response,
  endpoint: Endpoint,
  { answer, version, id }: Pick<CallAnswer, 'answer' | 'version' | 'id'>,
  isTrial: boolean,
): void {
  res.set('Content-Type', 'application/json; charset=utf-8');
  if (endpoint.isCreate && !isTrial) {
    const path = endpoint.locationBase ?? req.originalUrl.split('?')[0]?.replace(/\/$/, '') ?? '';
    if (id !== null) res.set('Location', `${path}/${id}`);
    res.status(201);
  }
  // The part before the dot is what If-Match asks for, all of it what a cache does.
  if (version && req.method !== 'DELETE' && sendIfUnchanged(req, res, `${version}.${md5(answer)}`)) return;
  res.end(
    endpoint.isPage ? `{"success":true,${answer.slice(answer.indexOf('{') + 1)}` : `{"success":true,"data":${answer}}`,
  );
}

/** The one part of a file that a GET asks for; null where all of it is, or what RFC 9110 lets or makes us ignore: several parts, another unit, nonsense. */
function requestedRange(req: Request): CallContext['range'] {
  const [, start = '', end = ''] = /^bytes=(\d*)-(\d*)$/i.exec(req.get('range') ?? '') ?? [];
  if (req.method !== 'GET' || (start === '' && end === '')) return undefined;
  const byte = (digits: string) => (digits === '' ? null : Math.min(Number(digits), Number.MAX_SAFE_INTEGER));
  const range = { start: byte(start), end: byte(end) };
  if (range.start !== null && range.end !== null && range.end < range.start) return undefined;
  const ifRange = req.get('if-range');
  // A weak tag or a date can't say that the bytes are the same: it names no digest.
  return ifRange === undefined ? range : { ...range, of: /^"([^"]*)"$/.exec(ifRange)?.[1] ?? '' };
}

/** Answers a file of the database, or the part of it that was asked for. */
function sendFile(req: Request, res: Response, { answer, content }: CallAnswer, range: CallContext['range']): void {
  const { content_type, name, size, digest } = JSON.parse(answer) as {
    content_type: string;
    name: string;
    size: number;
    digest: string;
  };
  if (sendIfUnchanged(req, res, digest)) return;
  if (!content && req.method !== 'HEAD') throw new ApiError('not_found', 'There is no such file.');
  res.set('Accept-Ranges', 'bytes');
  if (content && range && (range.of ?? digest) === digest) {
    if (content.length === 0) {
      res.removeHeader('ETag');
      res.set('Content-Range', `bytes */${String(size)}`);
      throw new ApiError('range_not_satisfiable', `The file has ${String(size)} bytes.`);
    }
    const start = range.start ?? size - content.length;
    res
      .status(206)
      .set('Content-Range', `bytes ${String(start)}-${String(start + content.length - 1)}/${String(size)}`);
  }
  fileHeaders(res, content_type, name);
  res.set('Content-Length', String(content?.length ?? size));
  res.end(content ?? undefined);
}

/** How long the reader of a file that is made while it is sent may take none of it. */
const stalledAfter = 60_000;

/** Answers what a handler made, or makes now that the client turns out not to have it. */
async function sendDownload(
  req: Request,
  res: Response,
  { contentType, name, content: given, etagSource }: Download,
): Promise<void> {
  if (etagSource !== undefined && sendIfUnchanged(req, res, md5(`${serviceInfo.version} ${etagSource}`))) return;
  if (req.method === 'HEAD') {
    fileHeaders(res, contentType, name);
    if (given instanceof Readable) given.destroy();
    res.end();
    return;
  }
  const content = typeof given === 'function' ? await given(disconnectSignal(res)) : given;
  fileHeaders(res, contentType, name);
  if (Buffer.isBuffer(content)) res.end(content);
  else if (res.destroyed) {
    // What nobody takes any more: a pipeline to a client that has gone already would leave it as it is.
    content.destroy();
    res.end();
  } else {
    // Who takes nothing any more holds a connection, and a page of rows, for nothing.
    res.setTimeout(stalledAfter, () => res.destroy());
    await pipeline(content, res).catch((error: unknown) => {
      // A client that goes away is no fault of the service.
      if ((error as NodeJS.ErrnoException).code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
    });
  }
}

/** What a browser may show; the rest it saves. */
const shown = /^(image\/(jpeg|png|gif|webp|avif)|application\/pdf)$/;

/** No browser takes a file for anything else than it is: its sniffed type, nosniff, no script, no other origin. */
function fileHeaders(res: Response, contentType: string, name: string): void {
  res.set({
    'Content-Type': contentType,
    'Content-Disposition': contentDisposition(shown.test(contentType) ? 'inline' : 'attachment', name),
    'Content-Security-Policy': "default-src 'none'; sandbox",
  });
}

/** A file name that holds in any header: ASCII, and the real one beside it (RFC 6266). */
const contentDisposition = (kind: 'inline' | 'attachment', name: string) =>
  `${kind}; filename="${name.replace(/[^\w.-]/g, '_')}"; filename*=UTF-8''${encodeURIComponent(name).replace(/['()*]/g, (c) => `%${c.charCodeAt(0).toString(16)}`)}`;

const md5 = (body: string | Buffer) => createHash('md5').update(body).digest('hex');

/** The ETags of what a client has already, as If-None-Match names them. */
// Not req.fresh: fetch says no-cache beside an If-None-Match of its caller, which is a word to caches and not to us.
const knownTags = (req: Request): string[] =>
  req.headers['if-none-match']?.split(',').map((each) => each.trim().replace(/^W\//, '')) ?? [];

/** Sets the ETag, and answers 304 when the client has this version already; says whether it did. */
function sendIfUnchanged(req: Request, res: Response, version: string): boolean {
  const etag = `"${version}"`;
  res.set('ETag', etag);
  const known = knownTags(req);
  if ((req.method !== 'GET' && req.method !== 'HEAD') || !(known.includes(etag) || known.includes('*'))) return false;
  res.removeHeader('Content-Type');
  res.status(304).end();
  return true;
}

/** One endpoint: who asks, what they ask, one statement, the envelope. */
function serve(
  services: Services,
  operation: Operation,
  endpoint: Endpoint,
  method: string,
  path: string,
): RequestHandler {
  const validate = validator(endpoint, method, path);
  const { config, passwords } = services;
  return async (req, res) => {
    let params = validate(req);
    const context = requestContext(req, config.BASE_DOMAIN);
    const sessionId = req.claims ? String(req.claims.sid) : null;
    const password = endpoint.hashes ? params[endpoint.hashes] : undefined;
    if (endpoint.hashes)
      params = Object.fromEntries(Object.entries(params).filter(([name]) => name !== endpoint.hashes));
    // What is only tried makes nothing that could be made twice.
    const isTrial = params['dry_run'] === 'true' || params['dry_run'] === true;
    // After the password was taken out: what is kept of a request must not help to guess one.
    if (operation.writes && !isTrial) writeContext(req, operation, params, context);
    if (typeof password === 'string') {
      // Hashing is the dearest thing that this service does; nobody has it done for nothing.
      await services.call(operation.name, sessionId, params, { ...context, admit_only: true });
      params['password_hash'] = await passwords.hash(password);
    }
    if (endpoint.handler) {
      let last: Pick<CallAnswer, 'version' | 'id'> = { version: null, id: null };
      const call = async (name: string, p: object) => {
        const result = await services.call(name, sessionId, p, context);
        last = result;
        return result.answer;
      };
      const admit = async () => {
        await services.call(operation.name, sessionId, params, { ...context, admit_only: true });
      };
      const answer = await endpoint.handler({ req, res, params, call, admit, services });
      if (typeof answer === 'string') sendJson(req, res, endpoint, { ...last, answer }, isTrial);
      else if (answer) await sendDownload(req, res, answer);
      return;
    }
    const range = operation.content === 'gives' ? requestedRange(req) : undefined;
    if (range) context.range = range;
    if (operation.content === 'gives') context.known = req.method === 'HEAD' ? ['*'] : knownTags(req);
    const { upload } = req;
    const result = upload
      ? await services.call(
          operation.name,
          sessionId,
          { ...params, content_type: upload.contentType, file_name: upload.name },
          context,
          upload.content,
        )
      : await services.call(operation.name, sessionId, params, context);
    if (operation.content === 'gives') sendFile(req, res, result, range);
    else sendJson(req, res, endpoint, result, isTrial);
  };
}

/** No body of ours is nested half as deep; much deeper ones overflow whoever goes down into them. */
const deepest = 50;

/** Whether lists and objects stand in one another more than `most` times: level by level, so that it overflows nowhere itself. */
function isDeeper(value: unknown, most: number): boolean {
  const containers = (values: unknown[]) => values.filter((one) => typeof one === 'object' && one !== null);
  let level = containers([value]);
  for (let depth = 0; depth < most && level.length > 0; depth++)
    level = level.flatMap((one) => containers(Object.values(one)));
  return level.length > 0;
}

/** Reads a JSON body of at most `limit`; another type is refused rather than taken for an empty one. */
export function bodyReader(limit: string) {
  const json = express.json({ limit, strict: false });
  return (req: Request, res: Response, next: NextFunction): void => {
    const hasBody = req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0;
    if (hasBody && !req.is('application/json')) next(new ApiError('unsupported_media_type', 'Send application/json.'));
    else {
      json(req, res, (error?: unknown) => {
        if (error === undefined && isDeeper(req.body, deepest)) {
          const message = 'is nested too deeply';
          next(new ApiError('validation_error', `The body ${message}.`, { details: [{ path: '', message }] }));
        } else next(error);
      });
    }
  };
}

const readBody = bodyReader('1mb');
/** What strangers may send is small. */
const readSmallBody = bodyReader('16kb');

/** Whoever may not do it hears so before a file of theirs is taken in. */
function admitFirst(services: Services, operation: Operation, endpoint: Endpoint, path: string): RequestHandler {
  const params = z.object(pathParameters(path, endpoint));
  return async (req, _res, next) => {
    const { success, data } = params.safeParse(req.params);
    const context: CallContext = { ...requestContext(req, services.config.BASE_DOMAIN), admit_only: true };
    if (success) await services.call(operation.name, req.claims ? String(req.claims.sid) : null, data, context);
    next();
  };
}

/**
 * Every request of an operator who acts for a user leaves an entry in the audit trail. What the database is asked leaves it there; this is for what
 * failed before, or by a fault.
 */
function auditFailures(services: Services): ErrorRequestHandler {
  return async (error: unknown, req, _res, next) => {
    if (req.claims?.impersonated_by && req.operation && !(error instanceof AuditedRefusal)) {
      const context: CallContext = { ...origin(req), refused: toApiError(error).error };
      await services.call(req.operation, String(req.claims.sid), {}, context);
    }
    next(error);
  };
}

/** Express answers HEAD by the handler of GET; where that writes, it must not. */
const refuseHead: RequestHandler = (req, _res, next) => {
  if (req.method === 'HEAD') next('route');
  else next();
};

/** Refuses a client that takes no JSON, where the answer is JSON. */
const acceptJson: RequestHandler = (req, _res, next) => {
  if (req.headers.accept !== undefined && !req.accepts('json'))
    next(new ApiError('not_acceptable', 'The answer is application/json.'));
  else next();
};

/**
 * The routes of every resource, each of them from its declaration.
 * @param operations  the rows of `core.operation`, by name
 * @throws when an endpoint names an operation that does not exist
 */
export function apiRouter(
  services: Services,
  resources: readonly Resource[],
  operations: ReadonlyMap<string, Operation>,
): Router {
  const root = Router();
  const limits = rateLimits(services.config);
  const authenticate: RequestHandler = (req, _res, next) => {
    req.claims = services.tokens.verify(req.headers.authorization);
    next();
  };
  for (const { path: base, endpoints } of resources) {
    const router = Router({ strict: false });
    for (const [path, routes] of Map.groupBy(endpoints, (one) => one.path)) {
      let hasHead = false;
      const pattern = `/api${base}${path === '/' ? '' : path}`;
      for (const { method, endpoint } of routes) {
        const operation = operations.get(endpoint.operation);
        if (!operation) throw new Error(`${method} ${base}${path}: there is no operation ${endpoint.operation}`);
        const isStranger = isAnonymous(operation);
        const steps: RequestHandler[] = [
          // First of all, so that the log line of a request that is refused has it too.
          (req, _res, next) => {
            req.operation = operation.name;
            req.pattern = pattern;
            next();
          },
          // A scanner that looks at a link in an e-mail must not use it up.
          ...(method === 'GET' && operation.writes ? [refuseHead] : []),
          ...(isStranger ? [limits.anonymous] : [authenticate, limits.session]),
          ...(operation.access === 'feed' ? [limits.feed] : []),
          ...(endpoint.bytes || endpoint.isStream ? [] : [acceptJson]),
          ...(endpoint.upload
            ? [admitFirst(services, operation, endpoint, path), receiveUpload(endpoint.upload, readBody)]
            : method === 'GET'
              ? []
              : [isStranger ? readSmallBody : readBody]),
          serve(services, operation, endpoint, method, path),
        ];
        router[method.toLowerCase() as 'get' | 'post' | 'put' | 'patch' | 'delete'](path, ...steps);
        hasHead ||= method === 'GET' && !operation.writes;
      }
      // Before the next path: else PUT /me would be one of /:id.
      const allow = [...routes.map(({ method }) => method), ...(hasHead ? ['HEAD'] : []), 'OPTIONS'].join(', ');
      router.all(path, (req, res, next) => {
        req.pattern = pattern;
        res.set('Allow', allow);
        if (req.method === 'OPTIONS') res.status(204).end();
        else next(new ApiError('method_not_allowed', `This path takes ${allow}.`));
      });
    }
    root.use(base, router);
  }
  root.use(auditFailures(services));
  return root;
}
