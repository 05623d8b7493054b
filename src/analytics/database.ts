import type { Socket } from 'node:net';
import pg from 'pg';
import { GraphQLError } from 'postgraphile/graphql';
import { cancelOnAbort } from '../database/pool/cancel.ts';
import { switchToRole } from '../domain/role-settings.ts';
import type { TenantScope } from './scope.ts';

/** The role of every analytics query. It can only read the views of the schema `analytics`. */
export const analystRole = 'school_analyst';
/** The login role that can switch to it and has no other privileges. */
export const loginRole = 'school_graphql';

/** Time limits of a query in the database, in milliseconds. */
export interface QueryTimeouts {
  statementTimeoutMs: number;
  /** For all statements of one request together. */
  requestTimeoutMs: number;
}

/** The error for a query that exceeds a limit; the message tells the analyst how to change it. */
export const limitError = (code: string, message: string) => new GraphQLError(message, { extensions: { code } });

/** Why a connection is closed: its next statement might be canceled. */
const cancelError = new Error('A cancel request may still be on its way to this connection.');

/** @param isOwnLogIn  whether the URL logs in as a role that can switch to the analyst role */
export function analyticsPool(url: string, isOwnLogIn: boolean, size: number): pg.Pool {
  const pool = new pg.Pool({
    connectionString: url,
    max: size,
    connectionTimeoutMillis: 40_000,
    idleTimeoutMillis: 60_000,
    maxLifetimeSeconds: 900,
    application_name: loginRole,
    ...(isOwnLogIn ? {} : { options: switchToRole(loginRole) }),
  });
  pool.on('error', () => undefined);
  pool.on('connect', (client) => client.on('error', () => undefined));
  return pool;
}

/** The interface that PostGraphile expects of a connection. */
interface Statement {
  text: string;
  values?: readonly unknown[];
  arrayMode?: boolean;
}
interface Client {
  query(statement: Statement): Promise<{ rows: unknown[]; rowCount: number | null; notices: readonly object[] }>;
  withTransaction(): never;
}

/** The connection of one request. */
export interface RequestClient {
  /** The callback for PostGraphile. Its settings are ignored. */
  withPgClient: <T>(settings: object | null, work: (client: Client) => T | Promise<T>) => Promise<T>;
  /** Returns the connection to the pool. */
  end(): Promise<void>;
}

/**
 * The connection of one request. All statements run one after the other in one read-only transaction, so they see the
 * same data. The role and the settings are set only here, so that no configuration can omit them.
 * @param timeouts  limits for each statement and for all of them
 * @param maxBytes  limit for the results of all statements together; the number of groups has no other limit
 * @param signal  cancels the running statement and prevents others
 */
export function requestClient(
  pool: pg.Pool,
  scope: TenantScope,
  { statementTimeoutMs, requestTimeoutMs }: QueryTimeouts,
  maxBytes: number,
  signal: AbortSignal,
): RequestClient {
  if (!/^(all|,(\d+,)+|)$/.test(scope)) throw new Error('Invalid analyst scope.');
  const begin = [
    'begin isolation level repeatable read read only',
    `set local role ${analystRole}`,
    `set local app.analytics_tenants = '${scope}'`,
    `set local statement_timeout = ${String(statementTimeoutMs)}`,
    // At most one processor per query, so that the API stays responsive.
    'set local max_parallel_workers_per_gather = 0',
    'set local jit = off',
    "set local timezone = 'UTC'",
    'set local search_path = analytics',
  ].join('; ');
  let client: pg.PoolClient | undefined;
  let hasBegun = false;
  let spent = 0;
  let bytes = 0;
  let last: Promise<unknown> = Promise.resolve();

  const sizeError = () =>
    limitError(
      'ANSWER_TOO_LARGE',
      `The database returned more than ${(maxBytes / 1024 / 1024).toFixed(1)} MB. ` +
        'Filter, group by fewer columns, or select fewer rows or aliases.',
    );

  async function run({ text, values, arrayMode }: Statement) {
    signal.throwIfAborted();
    if (bytes > maxBytes) throw sizeError();
    if (spent > requestTimeoutMs) {
      throw limitError(
        'REQUEST_TIMEOUT',
        `The statements of this request took more than ${String(requestTimeoutMs / 1000)} seconds in total. ` +
          'Split the query into smaller ones.',
      );
    }
    client ??= await pool.connect();
    const { stream } = (client as unknown as { connection: { stream: Socket } }).connection;
    const count = (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > maxBytes) stream.destroy();
    };
    const start = performance.now();
    const stopCanceling = cancelOnAbort(client, signal);
    stream.on('data', count);
    try {
      if (!hasBegun) await client.query(begin);
      hasBegun = true;
      const { rows, rowCount } = await client.query({
        text,
        values: [...(values ?? [])],
        ...(arrayMode ? { rowMode: 'array' } : {}),
      });
      return { rows, rowCount, notices: [] };
    } catch (error) {
      await release((await stopCanceling()) ? error : cancelError);
      signal.throwIfAborted();
      if (bytes > maxBytes) throw sizeError();
      if (error instanceof pg.DatabaseError && error.code === '57014') {
        throw limitError(
          'STATEMENT_TIMEOUT',
          `A statement took more than ${String(statementTimeoutMs / 1000)} seconds and was canceled. ` +
            'Filter by time or school, or group by fewer columns.',
        );
      }
      throw error;
    } finally {
      stream.off('data', count);
      if (!(await stopCanceling())) await release(cancelError);
      spent += performance.now() - start;
    }
  }

  /** Ends the transaction. A later statement would start a new one. */
  async function release(error?: unknown) {
    const held = client;
    client = undefined;
    hasBegun = false;
    if (!held) return;
    const isRefused = error === undefined || error instanceof pg.DatabaseError;
    const isFit =
      isRefused &&
      (await held.query('rollback').then(
        () => true,
        () => false,
      ));
    held.release(!isFit);
  }

  return {
    async withPgClient(_settings, work) {
      const query = (statement: Statement) => {
        const answer = last.then(() => run(statement));
        last = answer.catch(() => undefined);
        return answer;
      };
      return work({
        query,
        withTransaction() {
          throw new Error('Nested transactions are not supported.');
        },
      });
    },
    async end() {
      await last;
      await release();
    },
  };
}
