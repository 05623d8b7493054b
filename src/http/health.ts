import { type RequestHandler, Router } from 'express';
import packageJson from '../../package.json' with { type: 'json' };
import { ApiError } from '../domain/errors.ts';
import type { Readiness, Services } from './services.ts';

/** The name and version of the service. */
export const serviceInfo = { service: packageJson.name, version: packageJson.version };

/** Refuses every method of a path that supports only GET. */
export const refuseAllButGet: RequestHandler = (_req, res) => {
  res.set('Allow', 'GET, HEAD');
  throw new ApiError('method_not_allowed', 'This path supports GET.');
};

/** The endpoint has no rate limit, so the answer "ready" is cached for this time. */
const readyAgeMs = 1000;

/** A missing worker is reported, but does not prevent the API from serving requests. */
const isReady = ({ database, migrations }: Readiness) => database && migrations;

/** Liveness and readiness; docs/operations/running.md describes what they check. */
export function healthRouter(services: Services): Router {
  const router = Router();
  let latest: { checks: Promise<Readiness>; until: number } | undefined;
  const readiness = () => {
    if (latest && performance.now() < latest.until) return latest.checks;
    const asked = { checks: services.readiness(), until: Infinity };
    latest = asked;
    void asked.checks.then((checks) => {
      asked.until = isReady(checks) ? performance.now() + readyAgeMs : 0;
    });
    return asked.checks;
  };
  router.get('/', (_req, res) => {
    res.json({ success: true, data: { status: 'ok', ...serviceInfo } });
  });
  router.get('/ready', async (_req, res) => {
    const checks = await readiness();
    const success = isReady(checks);
    if (!success) res.set('Retry-After', '1');
    res.status(success ? 200 : 503).json({
      success,
      data: { status: success ? 'ready' : 'not_ready', ...serviceInfo, ...checks },
      ...(success ? {} : { error: 'unavailable', message: 'The service is not ready. The failed check is in data.' }),
    });
  });
  router.all(['/', '/ready'], refuseAllButGet);
  return router;
}
