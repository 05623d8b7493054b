import { join } from 'node:path';
import { Router } from 'express';
import type { Logger } from 'pino';
import { builtPages } from './built-pages.ts';
import { requireTrailingSlash } from './trailing-slash.ts';

/**
 * Serves the documents of docs/ at /api/guide/.
 * @param folder  contains the files that docs/site/build.ts writes
 */
export function guideRouter(
  logger: Pick<Logger, 'warn'>,
  folder = join(import.meta.dirname, '../../dist/guide'),
): Router {
  const router = Router();
  router.use(requireTrailingSlash);
  router.use(
    builtPages(logger, {
      ...{ name: 'guide', address: '/api/guide', folder },
      fileOf: (path) => `${path === '' ? 'index' : path}.html`,
    }),
  );
  return router;
}
