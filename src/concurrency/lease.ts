import { setTimeout as sleep } from 'node:timers/promises';
import { ApiError } from '../domain/errors.ts';

/** A lock with a time limit that the database grants, since several processes share it. */
export interface Lease<Grant> {
  /** Asks for the lease. Returns the grant, or the time since when another process has held it. */
  acquire: () => Promise<{ granted: Grant } | { busy_since: string }>;
  /** Extends the lease. Returns whether it is still held. */
  renew: (grant: Grant) => Promise<boolean>;
  release: (grant: Grant) => Promise<void>;
}

export interface LeaseOptions {
  /** How often the lease is renewed: several times before the database expires it. */
  renewIntervalMs: number;
  /** Ends the wait and the work, with its reason. */
  signal: AbortSignal;
  /** Ends only the wait. */
  waitSignal: AbortSignal;
  /** Message of the error when the wait ends because another process still holds the lease. */
  busyMessage: (since: string) => string;
  /** Message of the error when the lease is lost while the work runs. */
  lostMessage: string;
}

/**
 * Runs work while holding a lease. It is renewed as long as the work runs and released in any case.
 * @param work  its signal aborts with `signal`, and when the lease is lost
 * @throws ApiError `conflict` when the wait ends or the lease is lost; the reason of `signal`
 */
export async function withLease<Grant, Result>(
  lease: Lease<Grant>,
  options: LeaseOptions,
  work: (grant: Grant, signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const grant = await acquire(lease, options);
  const lost = new AbortController();
  const timer = setInterval(() => {
    lease.renew(grant).then(
      (isHeld) => {
        if (!isHeld) lost.abort(new ApiError('conflict', options.lostMessage));
      },
      // The next attempt comes before the lease expires.
      () => undefined,
    );
  }, options.renewIntervalMs);
  try {
    return await work(grant, AbortSignal.any([options.signal, lost.signal]));
  } finally {
    clearInterval(timer);
    await lease.release(grant);
  }
}

async function acquire<Grant>(lease: Lease<Grant>, { signal, waitSignal, busyMessage }: LeaseOptions): Promise<Grant> {
  for (let delayMs = 200; ; delayMs = Math.min(delayMs * 1.5, 3_000)) {
    signal.throwIfAborted();
    const answer = await lease.acquire();
    if ('granted' in answer) return answer.granted;
    if (waitSignal.aborted) throw new ApiError('conflict', busyMessage(answer.busy_since));
    // Random, so that processes do not ask at the same moment. An abort ends the sleep and is handled above.
    await sleep(delayMs * (0.5 + Math.random()), undefined, { signal: AbortSignal.any([signal, waitSignal]) }).catch(
      () => undefined,
    );
  }
}
