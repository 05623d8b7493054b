import { randomUUID } from 'node:crypto';
import cors from 'cors';
import express, { type ErrorRequestHandler, type Express, type RequestHandler, type Response } from 'express';
import helmet from 'helmet';
import { consoleRouter } from '../pages/console.ts';
import { docsRouter } from '../pages/docs.ts';
import { resources } from '../endpoints/index.ts';
import { ApiError } from '../domain/errors.ts';
import { traceIdOf, validTraceparent } from '../domain/tracing.ts';
import { toApiError } from '../http/errors.ts';
import { graphqlRouter } from '../pages/graphql.ts';
import { guideRouter } from '../pages/guide.ts';
import { healthRouter, refuseAllButGet } from '../http/health.ts';
import { latestDocument, openapiText } from '../http/openapi/document.ts';
import { describeRoot } from '../pages/root.ts';
import { passwordPage } from '../pages/password-page.ts';
import type { Operation } from '../http/operation.ts';
import { refuseInvalidText } from '../http/received-text.ts';
import { rateLimits } from '../http/limits/rate-limits.ts';
import { apiRouter } from '../http/router.ts';
import type { Services } from '../http/services.ts';
import { compressedFile, sendStaticFile, type StaticFile } from '../pages/static-files.ts';

const requestIdPattern = /^[\w.-]{1,128}$/;

/** Sets the route pattern (for metrics) of requests that no operation handles. */
const setPattern =
  (pattern: string): RequestHandler =>
  (req, _res, next) => {
    req.pattern = pattern;
    next();
  };

const isStream = (res: Response) => String(res.getHeader('content-type')).startsWith('text/event-stream');

/** Assigns the request id, and writes the log line when the response is finished. */
function requestLog(services: Services): RequestHandler {
  return (req, res, next) => {
    const clientId = req.get('x-request-id');
    req.id = clientId && requestIdPattern.test(clientId) ? clientId : randomUUID();
    res.set('X-Request-Id', req.id);
    const clientTrace = validTraceparent(req.get('traceparent'));
    const span = services.tracing?.start(req.method, 'SERVER', clientTrace, { 'http.request.method': req.method });
    const traceparent = span?.traceparent ?? clientTrace;
    if (traceparent) req.traceparent = traceparent;
    const start = performance.now();
    res.on('close', () => {
      const milliseconds = performance.now() - start;
      const status = res.writableFinished ? res.statusCode : 499;
      // Streams stay open for hours and would distort the latency histogram.
      if (!isStream(res)) services.observeRequest?.(req.method, req.pattern ?? 'none', status, milliseconds / 1000);
      const tenant = req.apiKey?.isAdmitted ? req.apiKey.tenantId : req.claims?.tenant_id;
      if (tenant) services.countRequest(tenant);
      if (span) {
        if (req.pattern) span.rename(`${req.method} ${req.pattern}`);
        span.set({
          'http.route': req.pattern,
          'http.response.status_code': status,
          'school.operation': req.operation,
          'school.id': tenant,
        });
        span.end(status >= 500 ? String(status) : undefined);
      }
      services.logger.info({
        request_id: req.id,
        trace_id: traceIdOf(traceparent),
        method: req.method,
        operation: req.operation,
        tenant,
        api_key: req.apiKey?.prefix,
        impersonated_by: req.claims?.impersonated_by?.id,
        status,
        ms: Math.round(milliseconds * 10) / 10,
      });
    });
    next();
  };
}

/** Turns every thrown error into the error envelope. */
function errorHandler(services: Services): ErrorRequestHandler {
  return (thrown: unknown, req, res, _next) => {
    const error = toApiError(thrown);
    if (error.status >= 500)
      services.logger.error({ request_id: req.id, error: error.error, cause: safeCause(error.cause) });
    if (res.headersSent) {
      res.destroy();
      return;
    }
    if (error.status === 401) res.set('WWW-Authenticate', 'Bearer');
    if (error.retryAfter !== undefined) res.set('Retry-After', String(error.retryAfter));
    res.status(error.status).json({
      success: false,
      error: error.error,
      message: error.message,
      ...(error.details ? { details: error.details } : {}),
      ...(error.challenge ? { challenge: error.challenge } : {}),
      request_id: req.id,
    });
  };
}

/** The cause of an error for the log, without Postgres messages that quote row values. */
function safeCause(cause: unknown): object {
  if (!(cause instanceof Error)) return {};
  const { code, constraint, table, where } = cause as {
    code?: string;
    constraint?: string;
    table?: string;
    where?: string;
  };
  return {
    name: cause.name,
    code,
    constraint,
    table,
    where,
    message: code?.startsWith('2') ? undefined : cause.message,
    stack: code ? undefined : cause.stack,
  };
}

/** Serves the OpenAPI document. The first request builds and compresses it: at the start that would take a third of it. */
function sendOpenapi(build: () => string): RequestHandler {
  let file: Promise<StaticFile> | undefined;
  return async (req, res) => {
    file ??= compressedFile('application/json; charset=utf-8', build());
    sendStaticFile(req, res, await file, 'no-cache');
  };
}

/**
 * The HTTP side of the service.
 * @param operations  the rows of `core.operation`
 */
export function createApp(services: Services, operations: readonly Operation[]): Express {
  const { config } = services;
  const byName = new Map(operations.map((operation) => [operation.name, operation]));
  const limits = rateLimits(services);
  const app = express();
  app.disable('x-powered-by');
  app.set('etag', false);
  app.set('trust proxy', config.TRUST_PROXY);
  app.set('query parser', 'simple');
  app.use(requestLog(services));
  app.use(
    helmet({
      contentSecurityPolicy: { directives: { defaultSrc: ["'none'"], frameAncestors: ["'none'"] }, useDefaults: false },
    }),
  );
  if (config.CORS_ORIGINS) {
    app.use(
      cors({
        origin: config.CORS_ORIGINS,
        exposedHeaders: [
          'X-Refresh-Token',
          'X-Known-Device',
          'X-Request-Id',
          'Location',
          'ETag',
          'Retry-After',
          'RateLimit',
          'RateLimit-Policy',
          'Accept-Ranges',
          'Content-Range',
          'Content-Disposition',
        ],
        maxAge: 600,
      }),
    );
  }
  app.use(['/api', '/graphql'], refuseInvalidText);
  app.use('/api/health', setPattern('/api/health'), healthRouter(services));
  app.use(
    '/api/docs',
    setPattern('/api/docs'),
    limits.page,
    docsRouter(() => latestDocument(resources, byName)),
  );
  app.use('/api/guide', setPattern('/api/guide'), limits.page, guideRouter(services.logger));
  app.get(
    '/api/openapi.json',
    setPattern('/api/openapi.json'),
    limits.openapi,
    sendOpenapi(() => openapiText(resources, byName, config.PUBLIC_URL)),
  );
  app.use('/graphql', graphqlRouter(services, limits));
  app.use('/password', setPattern('/password'), limits.page, passwordPage());
  app.use('/console', setPattern('/console'), limits.page, consoleRouter(services.logger));
  app.get('/', setPattern('/'), limits.page, describeRoot);
  app.get('/api', setPattern('/api'), limits.page, describeRoot);
  app.all('/api', setPattern('/api'), refuseAllButGet);
  app.use('/api', (_req, res, next) => {
    res.set('Cache-Control', 'private, no-cache');
    next();
  });
  app.use('/api', apiRouter(services, resources, byName, limits));
  app.use(limits.refused, (req, _res, next) => {
    next(new ApiError('not_found', `There is no route ${req.method} ${req.path}.`));
  });
  app.use(errorHandler(services));
  return app;
}
