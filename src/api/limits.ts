import type { RequestHandler } from 'express';
import { ipKeyGenerator, rateLimit } from 'express-rate-limit';
import type { Config } from '../config.ts';
import { ApiError } from './errors.ts';

/**
 * Requests per minute: by session where somebody is logged in, since a whole school shares one address, else by address.
 * A limit of 0 is none. Each process counts by itself.
 */
export function rateLimits(config: Config): { session: RequestHandler; anonymous: RequestHandler } {
  const limiter = (limit: number): RequestHandler =>
    limit === 0
      ? (_req, _res, next) => next()
      : rateLimit({
          windowMs: 60_000,
          limit,
          standardHeaders: 'draft-8',
          legacyHeaders: false,
          keyGenerator: (req) => (req.claims ? String(req.claims.sid) : ipKeyGenerator(req.ip ?? '')),
          handler: (_req, res) => {
            throw new ApiError('rate_limited', 'Too many requests. Try again in a moment.', { retryAfter: Number(res.get('Retry-After') ?? 60) });
          },
        });
  return {
    session: limiter(config.RATE_LIMIT_PER_MINUTE),
    anonymous: limiter(config.PUBLIC_RATE_LIMIT_PER_MINUTE),
  };
}
