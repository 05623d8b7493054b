import { join } from 'node:path';
import express, { type RequestHandler, Router } from 'express';
import helmet from 'helmet';
import { z } from 'zod';
import { tenantScope } from '../analytics/scope.ts';
import { ApiError } from '../domain/errors.ts';
import { rateLimits } from '../http/rate-limits.ts';
import { concurrencyLimit, requestOwner } from '../concurrency/concurrency-limit.ts';
import { bodyReader } from '../http/body.ts';
import { requestContext } from '../http/call-context.ts';
import type { Services } from '../http/services.ts';

/** Maximum concurrent analytics queries per process: in total, and per operator. */
const maxQueries = { school: 4, user: 2 };

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
  const parsed = Body.safeParse(body);
  if (parsed.success) return parsed.data;
  const details = parsed.error.issues.map(({ path, message }) => ({ path: path.join('.'), message }));
  throw new ApiError('validation_error', 'Send {"query": "…"}, with optional variables and operationName.', {
    details,
  });
}

/** Serves the analytics API at /graphql, and an editor for it at /graphql/ide. */
export function graphqlRouter(services: Services): Router {
  const router = Router();
  const limits = rateLimits(services.config);
  const take = concurrencyLimit(maxQueries, 'Too many queries are in progress. Try again in a moment.');
  const named: RequestHandler = (req, _res, next) => {
    req.operation = 'analytics_admit';
    req.pattern = '/graphql';
    next();
  };
  const authenticate: RequestHandler = (req, res, next) => {
    res.set('Cache-Control', 'private, no-store');
    req.claims = services.tokens.verify(req.headers.authorization);
    next();
  };
  /** Checks the permission in the database on every request, so that a revoked permission takes effect immediately. */
  const admit: RequestHandler = async (req, res, next) => {
    const { answer } = await services.call(
      'analytics_admit',
      String(req.claims?.sid),
      {},
      requestContext(req, services.config.BASE_DOMAIN),
    );
    res.locals['scope'] = tenantScope(Admitted.parse(JSON.parse(answer)).tenant_ids);
    next();
  };
  const answer: RequestHandler = async (req, res) => {
    const { query, variables, operationName } = parseBody(req.body);
    const free = take(requestOwner(req));
    try {
      const scope = res.locals['scope'] as ReturnType<typeof tenantScope>;
      const { body, isRefused, faults } = await services.analytics.run({
        query,
        variables: variables ?? {},
        operationName: operationName ?? undefined,
        scope,
      });
      for (const fault of faults) services.logger.error({ request_id: req.id, error: 'graphql', cause: fault });
      const isGraphql = req.accepts(['application/json', graphqlType]) === graphqlType;
      res
        .status(isGraphql && isRefused ? 400 : 200)
        .set('Content-Type', `${isGraphql ? graphqlType : 'application/json'}; charset=utf-8`);
      res.end(body);
    } finally {
      free();
    }
  };
  router.post('/', named, authenticate, limits.session, admit, bodyReader('64kb'), answer);
  router.all('/', named, (req, res) => {
    res.set('Allow', 'POST, OPTIONS').vary('Accept');
    if (req.method === 'OPTIONS') res.status(204).end();
    else if (req.method === 'GET' && req.accepts(['json', 'html']) === 'html') res.redirect('/graphql/ide/');
    else throw new ApiError('method_not_allowed', 'This path supports POST, OPTIONS.');
  });
  router.use('/ide', ideRouter());
  return router;
}

/** The query editor: Ruru from its package, and our script that gets an access token. */
function ideRouter(): Router {
  const router = Router();
  router.use((req, _res, next) => {
    req.pattern = '/graphql/ide';
    next();
  });
  router.use(
    helmet.contentSecurityPolicy({
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        scriptSrc: ["'self'"],
        // The editor adds inline styles at run time.
        styleSrc: ["'self'", "'unsafe-inline'"],
        fontSrc: ["'self'", 'data:'],
        imgSrc: ["'self'", 'data:'],
        connectSrc: ["'self'"],
        workerSrc: ["'self'"],
        baseUri: ["'none'"],
        formAction: ["'none'"],
        frameAncestors: ["'none'"],
      },
    }),
  );
  router.use((req, res, next) => {
    if (req.originalUrl.split('?')[0] === req.baseUrl) res.redirect(308, `${req.baseUrl}/`);
    else next();
  });
  router.use(express.static(join(import.meta.dirname, 'ide')));
  router.get('/ruru/:file', async (req, res, next) => {
    // Load it only when the page is opened: it keeps 4 MB of compressed files in memory.
    const { getStaticFile } = await import('ruru/static');
    const file = await getStaticFile({
      staticPath: '/',
      urlPath: `/${req.params.file}`,
      acceptEncoding: req.get('accept-encoding') ?? '',
      disallowDevAssets: true,
    });
    if (!file) next();
    else
      res.set({ ...file.headers, 'Cache-Control': 'public, max-age=86400', Vary: 'Accept-Encoding' }).end(file.content);
  });
  return router;
}
