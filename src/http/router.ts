import { type ErrorRequestHandler, type RequestHandler, Router } from 'express';
import { z } from 'zod';
import { AuditedRefusal, type CallContext } from '../database/call.ts';
import { ApiError } from '../domain/errors.ts';
import { authentication } from './credentials/authenticate.ts';
import { bodyReader } from './body/json.ts';
import { clientContext, requestContext } from './call-context.ts';
import { answersJson, pathParameters, type Resource } from './endpoint.ts';
import { toApiError } from './errors.ts';
import type { Operation } from './operation.ts';
import type { RateLimits } from './limits/rate-limits.ts';
import { bodyReceiver, readInTime } from './body/receive.ts';
import { type Route, serve } from './serve.ts';
import type { Services } from './services.ts';
import { receiveUpload } from './body/uploads.ts';

const readBody = bodyReader('1mb');
/** Anonymous clients may send only small bodies. */
const readSmallBody = bodyReader('16kb');

/** Checks the caller's rights before an uploaded file is read. */
function admitFirst(services: Services, { endpoint, operation, path }: Route): RequestHandler {
  const params = z.object(pathParameters(path, endpoint));
  return async (req, res, next) => {
    const { success, data } = params.safeParse(req.params);
    const context: CallContext = { ...requestContext(req, res, services.config), check_only: true };
    if (success) await services.call(operation.name, req.claims ? String(req.claims.sid) : null, data, context);
    next();
  };
}

/**
 * Every request of an operator who acts for a user leaves an audit entry. The dispatcher writes it for the calls that
 * it receives. This writes it for requests that failed before the dispatcher, or with an internal error.
 */
function auditFailures(services: Services): ErrorRequestHandler {
  return async (error: unknown, req, _res, next) => {
    if (req.claims?.impersonated_by && req.operation && !(error instanceof AuditedRefusal)) {
      const context: CallContext = { ...clientContext(req), refused: toApiError(error).error };
      await services.call(req.operation, String(req.claims.sid), {}, context);
    }
    next(error);
  };
}

/** Express runs the handler of GET for HEAD too. A HEAD must not write. */
const refuseHead: RequestHandler = (req, _res, next) => {
  if (req.method === 'HEAD') next('route');
  else next();
};

/** Refuses a client that does not accept JSON. */
const acceptJson: RequestHandler = (req, _res, next) => {
  if (req.headers.accept !== undefined && !req.accepts('json'))
    next(new ApiError('not_acceptable', 'This endpoint returns application/json. Add it to the Accept header.'));
  else next();
};

/** Sets the operation and the route pattern of the request, for the log and the metrics. */
const setRoute =
  (pattern: string, operation?: string): RequestHandler =>
  (req, _res, next) => {
    if (operation !== undefined) req.operation = operation;
    req.pattern = pattern;
    next();
  };

/** Answers the methods that a path does not have, and OPTIONS. */
const refuseMethod =
  (allow: string): RequestHandler =>
  (req, res, next) => {
    res.set('Allow', allow);
    if (req.method === 'OPTIONS') res.status(204).end();
    else next(new ApiError('method_not_allowed', `This path supports ${allow}.`));
  };

/** Reads a body, and applies a limit that depends on it. A request whose body is refused counts too. */
const limitAfter =
  (readBody: RequestHandler, limit: RequestHandler): RequestHandler =>
  (req, res, next) =>
    readBody(req, res, (bodyError?: unknown) => void limit(req, res, (error?: unknown) => next(error ?? bodyError)));

/** Makes the middleware of a route: limits and authentication, the body, then `serve`. */
function routeSteps(
  services: Services,
  limits: RateLimits,
): (route: Route) => (RequestHandler | ErrorRequestHandler)[] {
  const authenticate = authentication(services, limits);
  const receive = bodyReceiver(services.config);
  const readAnonymousBody = readInTime(readSmallBody, services.config);
  /** Before the body is read, so that a refused request costs little. */
  const refuseOverload: RequestHandler = (req, _res, next) => {
    services.refuseOverload(req);
    next();
  };
  return (route) => {
    const { endpoint, operation, method } = route;
    const hasBody = method !== 'GET';
    const bodySteps = endpoint.upload
      ? [refuseOverload, admitFirst(services, route), receive(receiveUpload(endpoint.upload, readBody))]
      : hasBody
        ? [refuseOverload, receive(readBody)]
        : [];
    const serveRoute = serve(services, route);
    const steps = (): (RequestHandler | ErrorRequestHandler)[] => {
      switch (operation.access) {
        case 'picture':
          return [limits.picture, serveRoute];
        case 'feed':
          return [...limits.feed, serveRoute];
        case 'refresh':
          return [limits.refresh, acceptJson, refuseOverload, readAnonymousBody, serveRoute];
        case 'public':
        case 'token': {
          const { check, concealFailure } = limits.anonymous(operation.name, endpoint.countsSuccesses === true);
          const limit = hasBody ? [refuseOverload, limitAfter(readAnonymousBody, check)] : [check];
          return [...limit, acceptJson, serveRoute, concealFailure];
        }
        default:
          return [
            endpoint.response.kind === 'stream' ? authenticate.stream : authenticate.header,
            ...limits.session,
            ...(answersJson(endpoint) ? [acceptJson] : []),
            ...bodySteps,
            serveRoute,
          ];
      }
    };
    // Email scanners send HEAD to the links of an email, which must not use up a one-time link.
    return method === 'GET' && operation.writes ? [refuseHead, ...steps()] : steps();
  };
}

/** Of `/students/17`, `students`. Express ignores the case of paths. */
const firstSegment = (path: string): string => {
  const end = path.indexOf('/', 1);
  return path.slice(1, end === -1 ? undefined : end).toLowerCase();
};

/**
 * Creates the routes of all resources from their declarations.
 * @param operations  the rows of `core.operation`, by name
 * @throws when an endpoint names an operation that does not exist
 */
export function apiRouter(
  services: Services,
  resources: readonly Resource[],
  operations: ReadonlyMap<string, Operation>,
  limits: RateLimits,
): Router {
  const root = Router();
  // Express tries one route after the other. This finds those of the first segment of the path at once.
  const routers = new Map<string, Router>();
  root.use((req, res, next) => {
    const router = routers.get(firstSegment(req.path));
    if (router) router(req, res, next);
    else next();
  });
  const stepsOf = routeSteps(services, limits);
  for (const { path: base, endpoints } of resources) {
    const router = Router({ strict: false });
    for (const [path, routes] of Map.groupBy(endpoints, (endpoint) => endpoint.path)) {
      const pattern = `/api${base}${path === '/' ? '' : path}`;
      let hasHead = false;
      for (const { method, endpoint } of routes) {
        const operation = operations.get(endpoint.operation);
        if (!operation) throw new Error(`${method} ${base}${path}: there is no operation ${endpoint.operation}`);
        // setRoute comes first, so that the log line of a refused request has the operation too.
        const steps = [setRoute(pattern, operation.name), ...stepsOf({ endpoint, operation, method, path })];
        router[method.toLowerCase() as 'get' | 'post' | 'put' | 'patch' | 'delete'](path, ...steps);
        hasHead ||= method === 'GET' && !operation.writes;
      }
      // Registered before the next path. Otherwise an unsupported PUT /me would match PUT /:id.
      const allow = [...routes.map(({ method }) => method), ...(hasHead ? ['HEAD'] : []), 'OPTIONS'].join(', ');
      router.all(path, setRoute(pattern), refuseMethod(allow));
    }
    for (const segment of new Set(endpoints.map((endpoint) => firstSegment(`${base}${endpoint.path}`))))
      routers.set(segment, (routers.get(segment) ?? Router()).use(base, router));
  }
  root.use(auditFailures(services));
  return root;
}
