import { join } from 'node:path';
import express, { Router } from 'express';
import helmet from 'helmet';

/** The page that password emails link to, for schools without their own app. */
export function passwordPage(): Router {
  const router = Router();
  router.use(
    helmet.contentSecurityPolicy({
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        scriptSrc: ["'self'"],
        styleSrc: ["'self'"],
        connectSrc: ["'self'"],
        frameAncestors: ["'none'"],
      },
    }),
  );
  router.use(express.static(join(import.meta.dirname, 'password-page'), { extensions: ['html'] }));
  return router;
}
