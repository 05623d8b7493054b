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

/**
 * What fails. Without the first two, no request succeeds, and a load balancer should choose another process. The others
 * concern all processes, and requests that read succeed: without a process, these would fail too.
 */
const checks = ['database', 'migrations', 'worker', 'tenants_behind', 'writes'] as const;
const required: readonly string[] = ['database', 'migrations'];

function failedChecks(state: Readiness): string[] {
  // Nothing is known about the others.
  if (!state.database) return ['database'];
  return checks.filter((check) => (check === 'tenants_behind' ? state.tenants_behind !== 0 : !state[check]));
}

const isReady = (state: Readiness) => !failedChecks(state).some((check) => required.includes(check));

/** Liveness and readiness; docs/operations/running.md describes what they check. */
export function healthRouter(services: Services): Router {
  const router = Router();
  let latest: { state: Promise<Readiness>; until: number } | undefined;
  const readiness = () => {
    if (latest && performance.now() < latest.until) return latest.state;
    const asked = { state: services.readiness(), until: Infinity };
    latest = asked;
    void asked.state.then((state) => {
      asked.until = isReady(state) ? performance.now() + readyAgeMs : 0;
    });
    return asked.state;
  };
  router.get('/', (_req, res) => {
    res.json({ success: true, data: { status: 'ok', ...serviceInfo } });
  });
  router.get('/ready', async (_req, res) => {
    const state = await readiness();
    const success = isReady(state);
    const reasons = failedChecks(state);
    if (!success) res.set('Retry-After', '1');
    res.status(success ? 200 : 503).json({
      success,
      data: {
        status: !success ? 'not_ready' : reasons.length > 0 ? 'degraded' : 'ready',
        reasons,
        ...serviceInfo,
        ...state,
      },
      ...(success ? {} : { error: 'unavailable', message: 'The service is not ready. The failed check is in data.' }),
    });
  });
  router.all(['/', '/ready'], refuseAllButGet);
  return router;
}
