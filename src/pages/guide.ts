import { join } from 'node:path';
import { Router } from 'express';
import type { Logger } from 'pino';
import { builtPages } from './built-pages.ts';

/**
 * Serves the documents of docs/ at /api/guide/.
 * @param folder  contains the files that docs/site/build.ts writes
 */
export function guideRouter(
  logger: Pick<Logger, 'warn'>,
  folder = join(import.meta.dirname, '../../dist/guide'),
): Router {
  const router = Router();
  // The relative URLs in the pages require the trailing slash.
  router.use((req, res, next) => {
    if (req.originalUrl.split('?')[0] === req.baseUrl) res.redirect(308, `${req.baseUrl}/`);
    else next();
  });
  router.use(
    builtPages(logger, {
      ...{ name: 'guide', address: '/api/guide', folder },
      fileOf: (path) => `${path === '' ? 'index' : path}.html`,
    }),
  );
  return router;
}
