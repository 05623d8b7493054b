import { type RequestHandler, Router } from 'express';
import packageJson from '../../package.json' with { type: 'json' };
import { ApiError } from '../domain/errors.ts';
import type { Services } from './services.ts';

/** The name and version of the service. */
export const serviceInfo = { service: packageJson.name, version: packageJson.version };

/** Refuses every method of a path that supports only GET. */
export const refuseAllButGet: RequestHandler = (_req, res) => {
  res.set('Allow', 'GET, HEAD');
  throw new ApiError('method_not_allowed', 'This path supports GET.');
};

/** Liveness and readiness; docs/operations.md describes what they check. */
export function healthRouter(services: Services): Router {
  const router = Router();
  router.get('/', (_req, res) => {
    res.json({ success: true, data: { status: 'ok', ...serviceInfo } });
  });
  router.get('/ready', async (_req, res) => {
    const checks = await services.readiness();
    // A missing worker is reported, but does not prevent the API from serving requests.
    const isReady = checks.database && checks.migrations;
    if (!isReady) res.set('Retry-After', '1');
    res.status(isReady ? 200 : 503).json({
      success: isReady,
      data: { status: isReady ? 'ready' : 'not_ready', ...serviceInfo, ...checks },
      ...(isReady ? {} : { error: 'unavailable', message: 'The service is not ready. The failed check is in data.' }),
    });
  });
  router.all(['/', '/ready'], refuseAllButGet);
  return router;
}
