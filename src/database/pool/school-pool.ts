import type pg from 'pg';
import { remember } from './backend-memory.ts';
import { cancelOnAbort } from './cancel.ts';
import { destroySocket } from './client-socket.ts';
import { type ConnectionOptions, openConnections } from './connections.ts';
import { classify } from '../errors.ts';
import { replacement, type ReplacementCounts, type ReplacementOptions } from './replacement.ts';
import type { RequestSource } from './request-source.ts';
import { type WaitCounts, waitingRequests, type WaitOptions } from './waiting-requests.ts';

/** The default of DATABASE_CONNECTION_MB. docs/operations/running.md has the measurements. */
export const defaultConnectionMb = 250;

/** The request for which a connection is needed. It only decides which connection is used, when, and how long. */
export interface ConnectionRequest extends RequestSource {
  /** What the memory estimate counts as one plan: the operation, and for lists what their statement depends on. */
  planKey: string;
  /** Ends the wait, with its reason. A running statement is cancelled only if it `isRead`. */
  signal?: AbortSignal | undefined;
  /** The statement changes nothing. */
  isRead?: boolean;
}

export interface SchoolPoolOptions extends ConnectionOptions, WaitOptions, ReplacementOptions {
  /** Whether statements may have a name, by which their backend keeps them; true by default. Some poolers allow none. */
  canPrepare?: boolean;
}

/** The actions of a pool since it was opened. */
export interface SchoolPoolCounts extends WaitCounts, ReplacementCounts {
  /** Requests whose client was gone while their statement ran. */
  cancelledRunning: number;
}

/**
 * The connections of the API process. A school gets the same connections as long as they are free, so that each backend
 * knows a few schools well: its plans and its copy of the catalog fit most of its requests.
 */
export interface SchoolPool {
  /**
   * Runs a statement. Unlike pg.Pool, it keeps the connection when only the statement failed: after each 404 a request
   * had to wait for a new connection without cached plans, which is ten times the work for the database.
   * @throws pg.DatabaseError; ApiError `unavailable` if the queue is too long, and an error that means 503 if no
   *   connection is free or can be opened in time; the reason of the signal
   */
  query<R extends pg.QueryResultRow>(
    statement: string | pg.QueryConfig,
    request?: ConnectionRequest,
  ): Promise<pg.QueryResult<R>>;
  /** Refuses a request that `query` would refuse now. @throws ApiError `unavailable` */
  refuseOverload(source: RequestSource): void;
  /**
   * Gives up the connections that have been used by requests of these schools for longer than `ms`: the server of the
   * schools does not answer, and the database cannot cancel them. The requests fail as if the connection had ended.
   */
  abandon(schools: ReadonlySet<string>, ms: number): void;
  /** Closes all connections; those in use when they are released. */
  end(): Promise<void>;
  readonly options: { max: number };
  readonly totalCount: number;
  readonly idleCount: number;
  readonly waitingCount: number;
  readonly counts: Readonly<SchoolPoolCounts>;
}

/** A statement that runs. */
interface Run {
  school: string;
  client: pg.PoolClient;
  since: number;
  isAbandoned: boolean;
}

/**
 * Whether the backend has probably loaded nothing for a failed request. An unauthenticated client can invent numbers of
 * schools, and each would count as a school in the estimate: a few hundred would replace the connection.
 */
const isUnknownSchool = ({ isVerified }: ConnectionRequest, error: string | undefined) =>
  error === 'tenant_not_found' || (!isVerified && error === 'invalid_token');

/** The statement without its name. */
const unnamed = (statement: string | pg.QueryConfig): string | pg.QueryConfig =>
  typeof statement === 'string' ? statement : { ...statement, name: undefined };

/** Opens a pool. It connects when it is used. */
export function schoolPool(options: SchoolPoolOptions): SchoolPool {
  const { canPrepare = true } = options;
  const counts: SchoolPoolCounts = {
    preferred: 0,
    fallback: 0,
    replacedForMemory: 0,
    replacedForAge: 0,
    cancelledWaiting: 0,
    cancelledRunning: 0,
  };
  const connections = openConnections(options);
  const waiting = waitingRequests(connections, options, counts);
  const replaceIfNeeded = replacement(options, counts);
  /** The requests whose statement runs. */
  const running = new Set<Run>();
  let isEnded = false;
  const isOpen = () => !isEnded;

  async function query<R extends pg.QueryResultRow>(
    statement: string | pg.QueryConfig,
    request: ConnectionRequest = { school: 'service', isVerified: true, planKey: '' },
  ): Promise<pg.QueryResult<R>> {
    if (!isOpen()) throw new Error('Cannot use a pool after calling end on the pool');
    const { signal, isRead } = request;
    signal?.throwIfAborted();
    const requester = waiting.requesterOf(request);
    // Operators count as one school.
    const countsAsActive = request.isVerified && request.school !== 'service' && request.school !== 'rate limits';
    if (countsAsActive) connections.noteActive(String(request.school));
    const connection = await waiting.acquire(requester, signal);
    const usedSince = performance.now();
    let pending: Promise<void> | undefined;
    let run: Run | undefined;
    try {
      const client = await connection.pool.connect();
      let broken: Error | undefined;
      let finishCancellation: (() => Promise<boolean>) | undefined;
      try {
        signal?.throwIfAborted();
        if (signal && isRead) finishCancellation = cancelOnAbort(client, signal, () => counts.cancelledRunning++);
        const started: Run = { school: String(request.school ?? ''), client, since: usedSince, isAbandoned: false };
        run = started;
        running.add(started);
        const result = await client
          .query<R>(canPrepare ? statement : unnamed(statement))
          .finally(() => running.delete(started));
        remember(connection.backend, request);
        return result;
      } catch (error) {
        if (error === signal?.reason) throw error;
        const { isConnectionUsable, apiError } = classify(error);
        if (!isConnectionUsable) broken = error instanceof Error ? error : new Error(String(error));
        else if (!isUnknownSchool(request, apiError?.error)) remember(connection.backend, request);
        if (isRead) signal?.throwIfAborted();
        throw error;
      } finally {
        if (finishCancellation && !(await finishCancellation()))
          broken ??= new Error('A cancel request may still be on its way to this connection.');
        if (!broken && isOpen()) pending = replaceIfNeeded(connection, client);
        if (!pending) client.release(broken);
      }
    } finally {
      // Again, because the request may have taken long.
      if (countsAsActive) connections.noteActive(String(request.school));
      // An abandoned request says nothing about how long the next one takes.
      const usedMs = run?.isAbandoned ? undefined : performance.now() - usedSince;
      // The answer does not wait for the next connection.
      if (pending)
        void pending.then(() => {
          waiting.release(connection, requester, usedMs);
        });
      else waiting.release(connection, requester, usedMs);
    }
  }

  return {
    query,
    refuseOverload: (source) => waiting.refuseOverload(waiting.requesterOf(source)),
    abandon(schools, ms) {
      const before = performance.now() - ms;
      for (const run of running) {
        if (run.since > before || !schools.has(run.school)) continue;
        run.isAbandoned = true;
        destroySocket(run.client);
      }
    },
    async end() {
      isEnded = true;
      await Promise.all(connections.all.map(({ pool }) => pool.end()));
    },
    options: { max: connections.all.length },
    get totalCount() {
      return connections.all.reduce((sum, { pool }) => sum + pool.totalCount, 0);
    },
    get idleCount() {
      return connections.all.reduce((sum, { pool }) => sum + pool.idleCount, 0);
    },
    get waitingCount() {
      return waiting.count;
    },
    counts,
  };
}
