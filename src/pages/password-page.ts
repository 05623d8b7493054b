import { join } from 'node:path';
import express, { type RequestHandler, Router } from 'express';
import helmet from 'helmet';
import { ApiError } from '../domain/errors.ts';

/** The addresses that people try first: a browser is led to the documentation, everybody else is told where it is. */
export const redirectToDocs: RequestHandler = (req, res) => {
  res.vary('Accept');
  if (req.accepts(['json', 'html']) !== 'html') {
    throw new ApiError(
      'not_found',
      `There is no route GET ${req.path}. The API is described in /api/openapi.json and, to browse, at /api/docs/.`,
    );
  }
  res.redirect('/api/docs/');
};

/** The page behind the links of the password e-mails, for schools without an app of their own. */
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
