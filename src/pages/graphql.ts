import { join } from 'node:path';
import { type RequestHandler, Router } from 'express';
import { z } from 'zod';
import { tenantScope } from '../analytics/scope.ts';
import { ApiError } from '../domain/errors.ts';
import type { RateLimits } from '../http/limits/rate-limits.ts';
import { readInTime } from '../http/body/receive.ts';
import { requestOwner } from '../http/request-owner.ts';
import { authentication } from '../http/credentials/authenticate.ts';
import { bodyReader } from '../http/body/json.ts';
import { disconnectSignal } from '../http/disconnect.ts';
import { requestContext } from '../http/call-context.ts';
import { receivedText } from '../http/received-text.ts';
import type { Services } from '../http/services.ts';
import { builtFiles } from './built-pages.ts';
import { contentPolicy } from './content-policy.ts';
import { requireTrailingSlash } from './trailing-slash.ts';

/** A GraphQL over HTTP request. Batches are not supported. */
const Body = z.object({
  query: z.string().min(1),
  variables: z.record(z.string(), z.unknown()).nullish(),
  operationName: z.string().max(200).nullish(),
  extensions: z.record(z.string(), z.unknown()).nullish(),
});

const Admitted = z.object({ tenant_ids: z.array(z.int()).nullable() });

/**
 * With this content type, a rejected query returns 400. With application/json it returns 200, as the GraphQL over HTTP
 * specification requires.
 */
const graphqlType = 'application/graphql-response+json';

function parseBody(body: unknown): z.output<typeof Body> {
  const parsed = Body.safeParse(receivedText(Body, body));
  if (parsed.success) return parsed.data;
  const details = parsed.error.issues.map(({ path, message }) => ({ path: path.join('.'), message }));
  throw new ApiError('validation_error', 'Send {"query": "…"}, with optional variables and operationName.', {
    details,
  });
}

/** Serves the analytics API at /graphql, and an editor for it at /graphql/ide. */
export function graphqlRouter(services: Services, limits: RateLimits): Router {
  const router = Router();
  const named: RequestHandler = (req, _res, next) => {
    req.operation = 'analytics_admit';
    req.pattern = '/graphql';
    next();
  };
  const preventCaching: RequestHandler = (_req, res, next) => {
    res.set('Cache-Control', 'private, no-store');
    next();
  };
  const authenticate = authentication(services, limits);
  /** Checks the permission in the database on every request, so that a revoked permission takes effect immediately. */
  const admit: RequestHandler = async (req, res, next) => {
    const { answer } = await services.call(
      'analytics_admit',
      req.claims ? String(req.claims.sid) : null,
      {},
      requestContext(req, res, services.config),
    );
    res.locals['scope'] = tenantScope(Admitted.parse(JSON.parse(answer)).tenant_ids);
    next();
  };
  const answer: RequestHandler = async (req, res) => {
    const { query, variables, operationName } = parseBody(req.body);
    const { body, isRefused, faults } = await services.analytics.run(
      requestOwner(req),
      {
        query,
        variables: variables ?? {},
        operationName: operationName ?? undefined,
        scope: res.locals['scope'] as ReturnType<typeof tenantScope>,
      },
      disconnectSignal(res),
    );
    for (const fault of faults) services.logger.error({ request_id: req.id, error: 'graphql', cause: fault });
    const isGraphql = req.accepts(['application/json', graphqlType]) === graphqlType;
    res
      .status(isGraphql && isRefused ? 400 : 200)
      .set('Content-Type', `${isGraphql ? graphqlType : 'application/json'}; charset=utf-8`);
    res.end(body);
  };
  const readBody = readInTime(bodyReader('64kb'), services.config);
  router.post('/', named, preventCaching, authenticate.header, ...limits.session, admit, readBody, answer);
  router.all('/', named, (req, res) => {
    res.set('Allow', 'POST, OPTIONS').vary('Accept');
    if (req.method === 'OPTIONS') res.status(204).end();
    else if (req.method === 'GET' && req.accepts(['json', 'html']) === 'html') res.redirect('/graphql/ide/');
    else throw new ApiError('method_not_allowed', 'This path supports POST, OPTIONS.');
  });
  router.use('/ide', limits.page, ideRouter(services));
  return router;
}

/** The page of analysts, which is part of the console, and Ruru, its query editor, from its package. */
function ideRouter({ logger }: Services): Router {
  const router = Router();
  router.use((req, _res, next) => {
    req.pattern = '/graphql/ide';
    next();
  });
  router.use(
    contentPolicy({
      // The editor adds inline styles at run time.
      styleSrc: ["'self'", "'unsafe-inline'"],
      fontSrc: ["'self'", 'data:'],
      imgSrc: ["'self'", 'data:'],
      workerSrc: ["'self'"],
    }),
  );
  router.use(requireTrailingSlash);
  router.get('/ruru/:file', async (req, res, next) => {
    // Load it only when the page is opened: it keeps 4 MB of compressed files in memory.
    const { getStaticFile } = await import('ruru/static');
    const file = await getStaticFile({
      staticPath: '/',
      urlPath: `/${req.params.file}`,
      acceptEncoding: req.get('accept-encoding') ?? '',
      disallowDevAssets: true,
    });
    if (!file) next(new ApiError('not_found', `There is no file ${req.originalUrl}.`));
    else
      res.set({ ...file.headers, 'Cache-Control': 'public, max-age=86400', Vary: 'Accept-Encoding' }).end(file.content);
  });
  router.use(
    builtFiles(logger, {
      name: 'page of analysts',
      address: '/graphql/ide',
      folder: join(import.meta.dirname, '../../dist/console'),
      fileOf: (path) => (path === '' ? 'ide.html' : ''),
    }),
  );
  return router;
}
