import type { RequestHandler } from 'express';
import helmet from 'helmet';

/**
 * The Content-Security-Policy of a page: scripts, styles and requests of this service only, no inline code, no forms
 * without a script, no frames.
 * @param directives  replace or add to the policy
 */
export const contentPolicy = (directives: Record<string, string[]> = {}): RequestHandler =>
  helmet.contentSecurityPolicy({
    useDefaults: false,
    directives: {
      defaultSrc: ["'none'"],
      scriptSrc: ["'self'"],
      styleSrc: ["'self'"],
      connectSrc: ["'self'"],
      baseUri: ["'none'"],
      formAction: ["'none'"],
      frameAncestors: ["'none'"],
      ...directives,
    },
  });
