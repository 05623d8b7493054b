import type pg from 'pg';
import { correctEstimate, estimatedMb } from './backend-memory.ts';
import { measureEveryMs, type PooledConnection } from './connections.ts';

/** A backend is kept if it is smaller than this part of the limit, so that it is not measured at each request. */
const keepBelowRatio = 0.95;

export interface ReplacementOptions {
  /** A connection is replaced when its backend has probably reached this size. */
  maxConnectionMb: number;
  connectionTimeoutMs: number;
  now?: () => number;
}

/** Connections replaced because of the memory of their backend, and because of their age. */
export interface ReplacementCounts {
  replacedForMemory: number;
  replacedForAge: number;
}

/**
 * Replaces connections that are too old or whose backend is too large, one at a time.
 * @returns a function to call for a connection in use: it returns undefined if the connection stays, and otherwise
 *   releases its client, and reports when the next client may be connected
 */
export function replacement(
  { maxConnectionMb, connectionTimeoutMs, now = Date.now }: ReplacementOptions,
  counts: ReplacementCounts,
) {
  let isReplacing = false;

  /** Why a connection may have to be replaced. For its memory, `replace` asks the backend first. */
  function reasonFor({ backend, replaceAt, measureAt }: PooledConnection): keyof ReplacementCounts | undefined {
    if (isReplacing) return undefined;
    if (estimatedMb(backend) >= maxConnectionMb) return 'replacedForMemory';
    if (now() >= replaceAt) return 'replacedForAge';
    return now() >= measureAt ? 'replacedForMemory' : undefined;
  }

  /** Whether the backend is clearly below the limit, unlike its estimate. Without an answer the estimate counts. */
  async function isBelowLimit(connection: PooledConnection, client: pg.PoolClient): Promise<boolean> {
    const { backend } = connection;
    connection.measureAt = now() + measureEveryMs;
    // The types of pg lack query_timeout.
    const statement: pg.QueryConfig & { query_timeout: number } = {
      text: 'select core.backend_memory_mb() as mb',
      query_timeout: connectionTimeoutMs,
    };
    const reported = await client
      .query<{ mb: number | null }>(statement)
      .then(({ rows }) => rows[0]?.mb ?? null)
      .catch(() => null);
    if (reported === null) return estimatedMb(backend) < maxConnectionMb;
    correctEstimate(backend, reported);
    return estimatedMb(backend) < keepBelowRatio * maxConnectionMb;
  }

  /**
   * Closes a connection and opens the next one, unless its backend is smaller than estimated. No other one is replaced
   * meanwhile.
   */
  async function replace(
    connection: PooledConnection,
    client: pg.PoolClient,
    reason: keyof ReplacementCounts,
  ): Promise<void> {
    isReplacing = true;
    if (reason === 'replacedForMemory' && (await isBelowLimit(connection, client))) {
      isReplacing = false;
      client.release();
      return;
    }
    counts[reason]++;
    client.release(true);
    try {
      (await connection.pool.connect()).release();
    } catch {
      // The next request reports it, if the database is still not available.
    }
    isReplacing = false;
  }

  return (connection: PooledConnection, client: pg.PoolClient): Promise<void> | undefined => {
    const reason = reasonFor(connection);
    return reason && replace(connection, client, reason);
  };
}
