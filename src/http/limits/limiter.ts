import type { NextFunction, Request, RequestHandler, Response } from 'express';
import { type AugmentedRequest, rateLimit, type Store } from 'express-rate-limit';
import { ApiError } from '../../domain/errors.ts';

/** The window of every limit. */
export const rateLimitWindowMs = 60_000;

interface Limit {
  limit: number;
  keyOf: (req: Request) => string;
  /** Default: the memory of this process. */
  store?: Store;
  /** Only requests that fail count. While they are in progress, all do. */
  isForFailures?: boolean;
  /** Whether a response counts as failed. Default: `isFailure`. */
  hasFailed?: (res: Response) => boolean;
  /** Which responses have the headers RateLimit and RateLimit-Policy. Default: all. */
  headers?: 'all' | 'refusals' | 'none';
  /** Takes over a request that exceeds the limit, and answers it or lets it pass. Default: answers with the refusal. */
  onExceeded?: (req: Request, res: Response, next: NextFunction, refusal: ApiError) => Promise<void>;
}

/** Whether the client, and not the service or a limit, made the request fail. */
export const isFailure = ({ statusCode }: Response): boolean =>
  statusCode >= 400 && statusCode < 500 && statusCode !== 429;

/** Counts requests per minute. A limit of 0 means no limit. */
export function limiter(options: Limit): RequestHandler {
  const { limit, keyOf, store, isForFailures = false, hasFailed = isFailure, headers = 'all', onExceeded } = options;
  if (limit === 0) return (_req, _res, next) => next();
  const refused = new WeakSet<Response>();
  return rateLimit({
    windowMs: rateLimitWindowMs,
    limit,
    standardHeaders: headers === 'all' ? 'draft-8' : false,
    legacyHeaders: false,
    keyGenerator: keyOf,
    ...(store ? { store } : {}),
    skipSuccessfulRequests: isForFailures,
    // "Successful" requests are taken back. One that exceeded the limit must not be.
    requestWasSuccessful: (_req, res) => !refused.has(res) && !hasFailed(res),
    handler(req, res, next) {
      refused.add(res);
      const resetTime = (req as AugmentedRequest)['rateLimit']?.resetTime?.getTime() ?? Date.now() + rateLimitWindowMs;
      const seconds = Math.max(Math.ceil((resetTime - Date.now()) / 1000), 1);
      if (headers === 'refusals') {
        res.set('RateLimit', `"${String(limit)}-in-1min"; r=0; t=${String(seconds)}`);
        res.set('RateLimit-Policy', `"${String(limit)}-in-1min"; q=${String(limit)}; w=60`);
      }
      const refusal = new ApiError('rate_limited', 'Too many requests. Try again in a moment.', {
        retryAfter: seconds,
      });
      if (onExceeded) onExceeded(req, res, next, refusal).catch(next);
      else next(refusal);
    },
  });
}
