import { createHash } from 'node:crypto';

/** The weight of a connection for a school. Sorting by it is rendezvous hashing: each school has an order of its own. */
const weight = (school: string, connection: number) =>
  createHash('md5')
    .update(`${school} ${String(connection)}`)
    .digest()
    .readUInt32LE();

/** The orders of this many schools are kept. */
const maxOrders = 5_000;

/**
 * The order in which each school prefers some connections. Without one of them, the order of the others stays, and each
 * is the first of as many schools.
 * @returns the order of a school, by its name
 */
export function preferenceOrder<Connection extends { number: number }>(
  connections: readonly Connection[],
): (school: string) => readonly Connection[] {
  const orders = new Map<string, readonly Connection[]>();
  return (school) => {
    const known = orders.get(school);
    if (known) return known;
    if (orders.size >= maxOrders) orders.clear();
    const order = connections
      .map((connection) => ({ connection, weight: weight(school, connection.number) }))
      .sort((a, b) => b.weight - a.weight)
      .map(({ connection }) => connection);
    orders.set(school, order);
    return order;
  };
}

/** Counts the keys that were added in the current or the previous period of `periodMs`. At least 1. */
export function recentlyUsed(periodMs: number) {
  let current = new Set<string>();
  let previous = current;
  let since = Date.now();
  return {
    add: (key: string) => current.add(key),
    count() {
      const now = Date.now();
      if (now - since >= periodMs) {
        previous = now - since < 2 * periodMs ? current : new Set();
        current = new Set();
        since = now;
      }
      return Math.max(1, current.size, previous.size);
    },
  };
}
