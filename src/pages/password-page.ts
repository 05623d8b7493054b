import { join } from 'node:path';
import express, { type RequestHandler, Router } from 'express';
import helmet from 'helmet';
import { ApiError } from '../domain/errors.ts';

/** Handles the root URLs: redirects browsers to the documentation, and tells other clients where it is. */
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
