import { Router } from 'express';
import packageJson from '../../package.json' with { type: 'json' };
import { ApiError } from '../domain/errors.ts';
import type { Services } from './services.ts';

/** What this process is. */
export const serviceInfo = { service: packageJson.name, version: packageJson.version };

/** /api/health answers as long as the process does; /api/health/ready only when it can serve. */
export function healthRouter(services: Services): Router {
  const router = Router();
  router.get('/', (_req, res) => {
    res.json({ success: true, data: { status: 'ok', ...serviceInfo } });
  });
  router.get('/ready', async (_req, res) => {
    const checks = await services.readiness();
    // Requests are served without a worker as well; it is said, for whoever watches.
    const isReady = checks.database && checks.migrations;
    if (!isReady) res.set('Retry-After', '1');
    res.status(isReady ? 200 : 503).json({
      success: isReady,
      data: { status: isReady ? 'ready' : 'not_ready', ...serviceInfo, ...checks },
      ...(isReady ? {} : { error: 'unavailable', message: 'A part of the service is not fit.' }),
    });
  });
  router.all(['/', '/ready'], (_req, res) => {
    res.set('Allow', 'GET, HEAD');
    throw new ApiError('method_not_allowed', 'This path takes GET.');
  });
  return router;
}
