import type { PooledConnection } from './connections.ts';
import type { RequestSource, ServerOf } from './request-source.ts';

/** How many connections the requests to each server use. */
export interface ServerShares {
  /** Whether a request may use a free connection now. */
  mayTake: (connection: PooledConnection, source: RequestSource) => boolean;
  start: (connection: PooledConnection, source: RequestSource) => void;
  end: (connection: PooledConnection) => void;
}

/**
 * Limits the connections that may wait for one server, so that schools of other servers get the rest while it is silent.
 * Requests that may wait for any server count for each of them. They use at most half of the limit, so that the schools of
 * each server get the other half. The reserved connection is not for schools, and does not count.
 * @param serverOf  undefined if there is only one server: nothing is limited
 */
export function serverShares(maxPerServer: number, serverOf: ServerOf | undefined): ServerShares {
  if (!serverOf) return { mayTake: () => true, start: () => undefined, end: () => undefined };
  const maxOfAny = Math.max(1, Math.floor(maxPerServer / 2));
  /** The server of each connection in use. */
  const servers = new Map<PooledConnection, string | undefined>();
  /** The number of these connections by server. */
  const running = new Map<string | undefined, number>();
  const countOf = (server: string | undefined) => running.get(server) ?? 0;

  function busiest(): number {
    let most = 0;
    for (const [server, count] of running) if (server !== undefined) most = Math.max(most, count);
    return most;
  }

  return {
    mayTake({ isReserved }, source) {
      if (isReserved) return true;
      const ofAny = countOf(undefined);
      const server = serverOf(source);
      if (server !== undefined) return countOf(server) + ofAny < maxPerServer;
      return ofAny < maxOfAny && busiest() + ofAny < maxPerServer;
    },
    start(connection, source) {
      if (connection.isReserved) return;
      const server = serverOf(source);
      servers.set(connection, server);
      running.set(server, countOf(server) + 1);
    },
    end(connection) {
      if (!servers.has(connection)) return;
      const server = servers.get(connection);
      servers.delete(connection);
      if (countOf(server) > 1) running.set(server, countOf(server) - 1);
      else running.delete(server);
    },
  };
}
