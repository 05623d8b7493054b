import { setTimeout as sleep } from 'node:timers/promises';

/** The lock was not available within `lock_timeout` (55P03), or the wait was a deadlock (40P01). */
const lockConflict = /^(55P03|40P01)$/;
const maxAttempts = 20;
const retryDelayMs = 500;

/** Whether an error, or the error that caused it, is a lock conflict. */
export function isLockConflict(error: unknown): boolean {
  if (!Error.isError(error)) return false;
  return ('code' in error && lockConflict.test(String(error.code))) || isLockConflict(error.cause);
}

/**
 * Repeats a transaction that lost a conflict over a lock, up to 20 times. Use it with a short `lock_timeout`: while an
 * attempt waits, new requests wait behind it.
 */
export async function retryLockConflicts<T>(work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (attempt === maxAttempts || !isLockConflict(error)) throw error;
      await sleep(retryDelayMs);
    }
  }
}
