import type { PooledConnection } from './connections.ts';
import type { RequestSource, ServerOf } from './request-source.ts';

/** How many connections the requests to each server use. */
export interface ServerShares {
  /** Whether a request may use a free connection now. */
  mayTake: (connection: PooledConnection, source: RequestSource) => boolean;
  start: (connection: PooledConnection, source: RequestSource) => void;
  end: (connection: PooledConnection) => void;
}

/** Counts by server; undefined for requests that may wait for any server. */
function counter() {
  const counts = new Map<string | undefined, number>();
  const of = (server: string | undefined) => counts.get(server) ?? 0;
  return {
    of,
    add(server: string | undefined, change: 1 | -1) {
      const count = of(server) + change;
      if (count === 0) counts.delete(server);
      else counts.set(server, count);
    },
    most: () => Math.max(0, ...[...counts].map(([server, count]) => (server === undefined ? 0 : count))),
  };
}

/**
 * Limits the connections that may wait for one server, so that schools of other servers get the rest while it is silent.
 * Requests that may wait for any server count for each of them. They use at most half of the limit, so that the schools of
 * each server get the other half. So do those of one server without a session, because all requests without a session have
 * the share of one school. The reserved connection is not for schools, and does not count.
 * @param serverOf  undefined if there is only one server: nothing is limited
 */
export function serverShares(maxPerServer: number, serverOf: ServerOf | undefined): ServerShares {
  if (!serverOf) return { mayTake: () => true, start: () => undefined, end: () => undefined };
  const half = Math.max(1, Math.floor(maxPerServer / 2));
  const running = counter();
  const withoutSession = counter();
  const used = new Map<PooledConnection, { server: string | undefined; isVerified: boolean }>();

  function count(server: string | undefined, isVerified: boolean, change: 1 | -1): void {
    running.add(server, change);
    if (!isVerified) withoutSession.add(server, change);
  }

  return {
    mayTake({ isReserved }, source) {
      if (isReserved) return true;
      const server = serverOf(source);
      if (!source.isVerified && withoutSession.of(server) >= half) return false;
      const ofAny = running.of(undefined);
      if (server !== undefined) return running.of(server) + ofAny < maxPerServer;
      return ofAny < half && running.most() + ofAny < maxPerServer;
    },
    start(connection, source) {
      if (connection.isReserved) return;
      const { isVerified } = source;
      const server = serverOf(source);
      used.set(connection, { server, isVerified });
      count(server, isVerified, 1);
    },
    end(connection) {
      const ended = used.get(connection);
      if (!ended) return;
      used.delete(connection);
      count(ended.server, ended.isVerified, -1);
    },
  };
}
