import type { Request, RequestHandler } from 'express';
import { ipKeyGenerator, rateLimit } from 'express-rate-limit';
import { ApiError } from '../domain/errors.ts';
import type { HttpSettings } from './services.ts';

/** In a minute: a calendar program asks every quarter of an hour, and one address may be with a hundred families. */
const readsOfAFeed = 60;

/**
 * Requests per minute: by session where somebody is logged in, since a whole school shares one address, else by address.
 * A limit of 0 is none. The address of a feed has a limit of its own, which goes by its token. Each process counts by itself.
 */
export function rateLimits(settings: Pick<HttpSettings, 'RATE_LIMIT_PER_MINUTE' | 'PUBLIC_RATE_LIMIT_PER_MINUTE'>): {
  session: RequestHandler;
  anonymous: RequestHandler;
  feed: RequestHandler;
} {
  const limiter = (limit: number, keyOf: (req: Request) => string): RequestHandler =>
    limit === 0
      ? (_req, _res, next) => next()
      : rateLimit({
          windowMs: 60_000,
          limit,
          standardHeaders: 'draft-8',
          legacyHeaders: false,
          keyGenerator: keyOf,
          handler: (_req, res) => {
            throw new ApiError('rate_limited', 'Too many requests. Try again in a moment.', {
              retryAfter: Number(res.get('Retry-After') ?? 60),
            });
          },
        });
  const who = (req: Request) => (req.claims ? String(req.claims.sid) : ipKeyGenerator(req.ip ?? ''));
  return {
    session: limiter(settings.RATE_LIMIT_PER_MINUTE, who),
    anonymous: limiter(settings.PUBLIC_RATE_LIMIT_PER_MINUTE, who),
    feed: limiter(readsOfAFeed, (req) => String(req.params['token'])),
  };
}
