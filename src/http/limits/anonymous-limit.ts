import { createHash } from 'node:crypto';
import { isIP } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import type { ErrorRequestHandler, Request, RequestHandler, Response } from 'express';
import type { ApiError } from '../../domain/errors.ts';
import { deviceTokenOf } from '../credentials/cookies.ts';
import { toApiError } from '../errors.ts';
import { isFailure, limiter, rateLimitWindowMs } from './limiter.ts';
import { addressOf } from '../request-owner.ts';
import type { Services } from '../services.ts';
import { sharedStore } from './shared-store.ts';

/** The most logins from the known devices of one account, and for one account from one address. */
const maxLoginsPerAccount = 30;
/** The same for forgotten passwords. An account gets one email in two minutes. */
const maxForgottenPerAccount = 3;
/** How long a refusal takes that must not show whether the account is known. Longer than checking a password. */
const concealedRefusalMs = 1000;

/** The limit of an operation without a login. */
export interface AnonymousLimit {
  /** Comes before the operation and, if it has one, after the body. */
  check: RequestHandler;
  /** Comes after the operation. */
  concealFailure: ErrorRequestHandler;
}

/** The email that a login or a forgotten password is for, as the database has it. */
function emailOf(req: Request): string | undefined {
  const { email } = (req.body ?? {}) as { email?: unknown };
  return typeof email === 'string' ? email.trim().toLowerCase().slice(0, 254) : undefined;
}

const sha256 = (text: string) => createHash('sha256').update(text).digest('base64');

/**
 * The accounts that have used the service at an address, from the database at most once per address and minute. None if
 * it does not answer.
 */
function accountsOfAddresses({ anonymousCallers }: Services): (address: string) => Promise<ReadonlySet<string>> {
  const known = new Map<string, { accounts: Promise<ReadonlySet<string>>; until: number }>();
  return (address) => {
    const now = Date.now();
    for (const [old, { until }] of known) {
      if (until > now) break;
      known.delete(old);
    }
    const found = known.get(address);
    if (found) return found.accounts;
    // A trusted proxy may pass on anything that a client has written into X-Forwarded-For.
    const isAddress = isIP(address.replace(/\/\d+$/, '')) > 0;
    const accounts = isAddress
      ? anonymousCallers.accountsAt(address).catch(() => new Set<string>())
      : Promise.resolve(new Set<string>());
    known.set(address, { accounts, until: now + rateLimitWindowMs });
    return accounts;
  };
}

/**
 * Makes the limit of an operation without a login. It tells apart the callers behind one address, which a whole school
 * may share. docs/decisions/0031-rate-limits.md has the reasons.
 * 1. A known device counts for its account, and for nothing else.
 * 2. Requests for one account count for this account, and for the address only as far as this allows.
 * 3. All others count for the address. 1 and 3 are shared by all API processes.
 * 4. If the address is over its limit, logins of accounts that were last used there have a budget of the same size.
 * @param countsSuccesses  successful requests count too; there is no 4
 */
export function anonymousLimit(services: Services, operation: string, countsSuccesses: boolean): AnonymousLimit {
  const limit = services.config.PUBLIC_RATE_LIMIT_PER_MINUTE;
  if (limit === 0)
    return { check: (_req, _res, next) => next(), concealFailure: (error, _req, _res, next) => next(error) };
  const perAccount = Math.min(limit, countsSuccesses ? maxForgottenPerAccount : maxLoginsPerAccount);
  const perDevice = Math.min(limit, maxLoginsPerAccount);
  const isForFailures = !countsSuccesses;
  const shared = (name: string, max: number) =>
    sharedStore(services.anonymousCallers, { name: `${operation} ${name}`, limit: max, windowMs: rateLimitWindowMs });
  const deviceOf = (req: Request) => services.deviceTokens.read(deviceTokenOf({ req, services }) ?? '').owner;
  const accountOf = (req: Request) => `${addressOf(req)} ${String(emailOf(req))}`;
  const accountsAt = accountsOfAddresses(services);

  /** Requests that pass as 4, and the answer that they get instead of an error. */
  const concealed = new WeakMap<Request, { since: number; refusal: ApiError }>();
  /** Responses to such requests that have failed. */
  const failed = new WeakSet<Response>();
  /** Errors that answer a right password. */
  const succeeded = new WeakSet<Response>();
  const knownAccount = limiter({ limit: perAccount, keyOf: accountOf, headers: 'none' });
  const knownAccounts = limiter({
    limit,
    keyOf: addressOf,
    isForFailures,
    hasFailed: (res) => failed.has(res) || (!succeeded.has(res) && isFailure(res)),
    headers: 'none',
  });

  const device = limiter({
    limit: perDevice,
    keyOf: (req) => String(deviceOf(req)),
    store: shared('device', perDevice),
  });
  const account = limiter({ limit: perAccount, keyOf: accountOf, headers: 'refusals' });
  const addresses = shared('address', limit);
  const address = limiter({
    limit,
    keyOf: addressOf,
    store: addresses,
    isForFailures,
    hasFailed: (res) => !succeeded.has(res) && isFailure(res),
    async onExceeded(req, res, next, refusal) {
      const since = performance.now();
      const email = emailOf(req);
      const known = email === undefined || countsSuccesses ? new Set() : await accountsAt(addressOf(req));
      if (known.size === 0 || email === undefined) {
        next(refusal);
      } else if (known.has(sha256(email))) {
        concealed.set(req, { since, refusal });
        res.removeHeader('Retry-After');
        await knownAccount(req, res, (error?: unknown) => {
          if (error === undefined) void knownAccounts(req, res, next);
          else next(error);
        });
      } else {
        await setTimeout(concealedRefusalMs);
        next(refusal);
      }
    },
  });
  return {
    check(req, res, next) {
      if (deviceOf(req) !== undefined) return device(req, res, next);
      // The many emails of a flood must not take memory: behind a blocked address, only those known there are counted.
      if (emailOf(req) === undefined || addresses.isBlocked(addressOf(req))) return address(req, res, next);
      return account(req, res, (error?: unknown) => {
        if (error === undefined) void address(req, res, next);
        else next(error);
      });
    },
    // Otherwise a wrong password would tell the known accounts from others, which are refused.
    async concealFailure(thrown: unknown, req, res, next) {
      const request = concealed.get(req);
      const { error, status } = toApiError(thrown);
      if (error === 'second_factor_required') succeeded.add(res);
      // `forbidden` is the answer to the right password of an inactive teacher or student.
      if (!request || status >= 500 || error === 'forbidden' || error === 'second_factor_required') {
        next(thrown);
        return;
      }
      if (error !== 'rate_limited') failed.add(res);
      await setTimeout(Math.max(request.since + concealedRefusalMs - performance.now(), 0));
      next(request.refusal);
    },
  };
}
