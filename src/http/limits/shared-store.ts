import type { Store } from 'express-rate-limit';
import type { AnonymousCallers } from '../../database/anonymous-callers.ts';

/** A key in the current window. `hits` are those of this process. */
interface Entry {
  hits: number;
  isBlocked: boolean;
  endsAt: number;
}

/** A store of express-rate-limit whose counters all API processes share. */
export interface SharedStore extends Store {
  /** Whether a key is over its limit, as far as this process knows. Asks nobody. */
  isBlocked(key: string): boolean;
}

/**
 * Once a key is over its limit, the process remembers it until the window ends and does not ask the database. If the
 * database does not answer, the requests of this process alone count.
 */
export function sharedStore(
  callers: Pick<AnonymousCallers, 'count'>,
  { name, limit, windowMs }: { name: string; limit: number; windowMs: number },
): SharedStore {
  const entries = new Map<string, Entry>();
  const current = (key: string) => {
    const entry = entries.get(key);
    return entry && entry.endsAt > Date.now() ? entry : undefined;
  };
  function begin(key: string): Entry {
    const now = Date.now();
    // The oldest come first, and each lasts for at most a window.
    for (const [old, { endsAt }] of entries) {
      if (endsAt > now) break;
      entries.delete(old);
    }
    const entry = { hits: 0, isBlocked: false, endsAt: now + windowMs };
    entries.delete(key);
    entries.set(key, entry);
    return entry;
  }
  const nameOf = (key: string) => `${name} ${key}`;
  return {
    prefix: nameOf(''),
    localKeys: false,
    isBlocked: (key) => current(key)?.isBlocked === true,
    async increment(key) {
      const entry = current(key) ?? begin(key);
      if (!entry.isBlocked && entry.hits < limit) {
        entry.hits++;
        try {
          const { hits, msLeft } = await callers.count(nameOf(key), 1);
          entry.endsAt = Date.now() + msLeft;
          entry.isBlocked ||= hits > limit;
          return { totalHits: hits, resetTime: new Date(entry.endsAt) };
        } catch {
          return { totalHits: Math.max(entry.hits, 1), resetTime: new Date(entry.endsAt) };
        }
      }
      return { totalHits: limit + 1, resetTime: new Date(entry.endsAt) };
    },
    async decrement(key) {
      const entry = current(key);
      if (entry) entry.hits = Math.max(entry.hits - 1, 0);
      const count = await callers.count(nameOf(key), -1).catch(() => undefined);
      if (entry && count && count.hits <= limit) entry.isBlocked = false;
    },
    // express-rate-limit calls it only for the service, which does not.
    resetKey: () => undefined,
  };
}
