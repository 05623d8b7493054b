import type { Request, RequestHandler } from 'express';
import { ipKeyGenerator, rateLimit } from 'express-rate-limit';
import { ApiError } from '../domain/errors.ts';
import type { HttpSettings } from './services.ts';

/** Calendar programs poll every 15 minutes, and many families may share one address. */
const maxFeedReadsPerMinute = 60;

/** A page may show a hundred pictures, and a whole school may share one IP address. */
const picturesPerRequest = 20;

/**
 * Limits requests per minute: per session for logged-in users, because a whole school may share one IP address;
 * otherwise per IP address; for calendar feeds per token. Pictures have a higher limit per IP address. A limit of 0
 * means no limit. Each process counts separately.
 */
export function rateLimits(settings: Pick<HttpSettings, 'RATE_LIMIT_PER_MINUTE' | 'PUBLIC_RATE_LIMIT_PER_MINUTE'>): {
  session: RequestHandler;
  anonymous: RequestHandler;
  feed: RequestHandler;
  picture: RequestHandler;
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
  const sessionOrAddress = (req: Request) => (req.claims ? String(req.claims.sid) : ipKeyGenerator(req.ip ?? ''));
  return {
    session: limiter(settings.RATE_LIMIT_PER_MINUTE, sessionOrAddress),
    anonymous: limiter(settings.PUBLIC_RATE_LIMIT_PER_MINUTE, sessionOrAddress),
    picture: limiter(settings.RATE_LIMIT_PER_MINUTE * picturesPerRequest, sessionOrAddress),
    feed: limiter(maxFeedReadsPerMinute, (req) => String(req.params['token'])),
  };
}
