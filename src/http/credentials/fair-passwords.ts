import { availableParallelism } from 'node:os';
import type { Request, Response } from 'express';
import { fairQueue } from '../../concurrency/fair-queue.ts';
import { ApiError } from '../../domain/errors.ts';
import type { PasswordMatch, Passwords } from '../../domain/passwords.ts';
import { disconnectSignal } from '../disconnect.ts';
import { requestOwner } from '../request-owner.ts';

/** Hashing and verifying passwords for requests, which share the threads. */
export interface FairPasswords {
  /** As `Passwords.hash`. @throws ApiError `unavailable` if too many wait; the reason of the signal of the client */
  hash(exchange: { req: Request; res: Response }, password: string): Promise<string>;
  /** As `Passwords.verify`. @throws as `hash` */
  verify(
    exchange: { req: Request; res: Response },
    passwordHash: string | null,
    password: string,
  ): Promise<PasswordMatch | null>;
}

/** The threads of libuv, unless `UV_THREADPOOL_SIZE` sets another number. One hash takes one thread for 20 to 60 ms. */
const maxRunning = Math.max(2, availableParallelism());
/** At 40 ms each, the last one waits for about three seconds. */
const maxWaitingPerThread = 75;

/** Shares the threads that hash passwords between schools, operators and strangers. */
export function fairPasswords(passwords: Passwords): FairPasswords {
  const queue = fairQueue({
    name: 'passwords',
    maxRunning: { total: maxRunning },
    maxInProgress: { total: maxRunning * (1 + maxWaitingPerThread) },
    refusal: () =>
      new ApiError('unavailable', 'Too many passwords are being checked. Try again in a moment.', { retryAfter: 3 }),
  });
  return {
    hash: ({ req, res }, password) =>
      queue.run(requestOwner(req), () => passwords.hash(password), disconnectSignal(res)),
    verify: ({ req, res }, passwordHash, password) =>
      queue.run(requestOwner(req), () => passwords.verify(passwordHash, password), disconnectSignal(res)),
  };
}
