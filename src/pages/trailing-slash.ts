import type { RequestHandler } from 'express';

/** Redirects the address of a site to itself with a slash at its end, which the relative URLs of its pages require. */
export const requireTrailingSlash: RequestHandler = (req, res, next) => {
  if (req.originalUrl.split('?')[0] === req.baseUrl) res.redirect(308, `${req.baseUrl}/`);
  else next();
};
