import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import express, { Router } from 'express';
import helmet from 'helmet';

const require = createRequire(import.meta.url);
const swaggerUi = dirname(require.resolve('swagger-ui-dist/package.json'));
const assets = join(import.meta.dirname, 'docs');

/** /api/docs: the OpenAPI document to browse and try, all of it from our own origin. */
export function docsRouter(): Router {
  const router = Router();
  router.use(
    helmet.contentSecurityPolicy({
      useDefaults: false,
      // The page writes style attributes; nothing else inline runs.
      directives: {
        defaultSrc: ["'none'"],
        scriptSrc: ["'self'"],
        styleSrc: ["'self'", "'unsafe-inline'"],
        imgSrc: ["'self'", 'data:'],
        connectSrc: ["'self'"],
        frameAncestors: ["'none'"],
      },
    }),
  );
  // Relative addresses in the page need the slash.
  router.use((req, res, next) => {
    if (req.originalUrl.split('?')[0] === req.baseUrl) res.redirect(308, `${req.baseUrl}/`);
    else next();
  });
  router.use(express.static(assets));
  router.use(express.static(swaggerUi, { index: false, maxAge: '1d' }));
  return router;
}
