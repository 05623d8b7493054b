import type { Request, RequestHandler } from 'express';
import { type AnonymousLimit, anonymousLimit } from './anonymous-limit.ts';
import { refreshTokenOf } from '../credentials/cookies.ts';
import { limiter } from './limiter.ts';
import type { Services } from '../services.ts';
import { addressOf, requestOwner } from '../request-owner.ts';

/** Calendar programs poll every 15 minutes, and many families may share one address. */
const maxFeedReadsPerMinute = 60;

/** A page may show a hundred pictures, and a whole school may share one IP address. */
const picturesPerRequest = 20;

/**
 * Pages of the service and requests that are refused cost little, and a whole school may share one IP address. So an
 * address may send this many times the requests of a session.
 */
const sessionsPerAddress = 5;

/** The limits of the facade. All of them are per minute; docs/operations/running.md lists them. */
export interface RateLimits {
  /** For requests with an access token or an API key: per session, per user (or key) and per school. */
  session: RequestHandler[];
  /** For an operation without a login. With `countsSuccesses`, successful requests count too. */
  anonymous: (operation: string, countsSuccesses: boolean) => AnonymousLimit;
  refresh: RequestHandler;
  feed: RequestHandler[];
  picture: RequestHandler;
  /** For requests without a valid token, and for unknown routes. */
  refused: RequestHandler;
  /** For pages of the service. */
  page: RequestHandler;
  openapi: RequestHandler;
}

/** Makes the limits of a process; once, because each has its own counters. */
export function rateLimits(services: Services): RateLimits {
  const {
    RATE_LIMIT_PER_MINUTE: perSession,
    USER_RATE_LIMIT_PER_MINUTE: perUser,
    SCHOOL_RATE_LIMIT_PER_MINUTE: perSchool,
    PUBLIC_RATE_LIMIT_PER_MINUTE: perAddress,
  } = services.config;
  const ownerOf = (req: Request) => {
    const { tenantId, userId } = requestOwner(req);
    return `${String(tenantId ?? 'platform')} ${String(userId)}`;
  };
  const schoolOf = (req: Request) => requestOwner(req).tenantId;
  const anonymous = new Map<string, AnonymousLimit>();
  const perSchoolOnly = limiter({
    limit: perSchool,
    keyOf: (req) => String(schoolOf(req)),
    headers: 'refusals',
  });
  const refreshOfSession = (req: Request) =>
    services.refreshTokens.read(refreshTokenOf({ req, services }).token ?? '').owner;
  const validRefresh = limiter({ limit: perAddress, keyOf: (req) => `session ${String(refreshOfSession(req))}` });
  const otherRefresh = anonymousLimit(services, 'auth_refresh', false).check;
  return {
    session: [
      limiter({ limit: perSession, keyOf: (req) => (req.claims ? String(req.claims.sid) : ownerOf(req)) }),
      limiter({
        limit: perUser,
        keyOf: ownerOf,
        headers: 'refusals',
      }),
      (req, res, next) => (typeof schoolOf(req) === 'number' ? perSchoolOnly(req, res, next) : next()),
    ],
    anonymous(operation, countsSuccesses) {
      const limit = anonymous.get(operation) ?? anonymousLimit(services, operation, countsSuccesses);
      anonymous.set(operation, limit);
      return limit;
    },
    refresh: (req, res, next) =>
      refreshOfSession(req) === undefined ? otherRefresh(req, res, next) : validRefresh(req, res, next),
    picture: limiter({ limit: perSession * picturesPerRequest, keyOf: addressOf }),
    feed: [
      limiter({ limit: perAddress, keyOf: addressOf, isForFailures: true }),
      limiter({ limit: maxFeedReadsPerMinute, keyOf: (req) => String(req.params['token']) }),
    ],
    refused: limiter({
      limit: perSession * sessionsPerAddress,
      keyOf(req) {
        const session = services.tokens.sessionOf(req.headers.authorization);
        return session === undefined ? addressOf(req) : `session ${String(session)}`;
      },
      headers: 'refusals',
    }),
    page: limiter({ limit: perSession * sessionsPerAddress, keyOf: addressOf, headers: 'refusals' }),
    openapi: limiter({ limit: perAddress, keyOf: addressOf, headers: 'refusals' }),
  };
}
