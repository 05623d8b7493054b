import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import express, { Router } from 'express';
import helmet from 'helmet';

const require = createRequire(import.meta.url);
const swaggerUi = dirname(require.resolve('swagger-ui-dist/package.json'));
const assets = join(import.meta.dirname, 'docs');

/** Serves Swagger UI at /api/docs, entirely from this origin. */
export function docsRouter(): Router {
  const router = Router();
  router.use(
    helmet.contentSecurityPolicy({
      useDefaults: false,
      // Swagger UI sets style attributes. Inline scripts stay forbidden.
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
  // The relative URLs in the page require the trailing slash.
  router.use((req, res, next) => {
    if (req.originalUrl.split('?')[0] === req.baseUrl) res.redirect(308, `${req.baseUrl}/`);
    else next();
  });
  router.use(express.static(assets));
  router.use(express.static(swaggerUi, { index: false, maxAge: '1d' }));
  return router;
}
