import { join } from 'node:path';
import express, { Router } from 'express';
import helmet from 'helmet';

/** The page behind the links of the password e-mails, for schools without an app of their own. */
export function passwordPage(): Router {
  const router = Router();
  router.use(
    helmet.contentSecurityPolicy({
      useDefaults: false,
      directives: { defaultSrc: ["'none'"], scriptSrc: ["'self'"], styleSrc: ["'self'"], connectSrc: ["'self'"], frameAncestors: ["'none'"] },
    }),
  );
  router.use(express.static(join(import.meta.dirname, 'pages'), { extensions: ['html'] }));
  return router;
}
