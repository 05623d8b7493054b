import type { Socket } from 'node:net';
import pg from 'pg';
import { GraphQLError } from 'postgraphile/graphql';
import type { TenantScope } from './scope.ts';

/** What every query of an analyst runs as: it may read the views of the schema `analytics`, and nothing else. */
export const analystRole = 'school_analyst';
/** The log-in that may become it, and has no right of its own. */
export const loginRole = 'school_graphql';

/** Milliseconds that one statement may take, and all statements of one request together. */
const statementLimit = 5_000;
const requestLimit = 10_000;

/** A statement took too long, or answered too much: what an analyst can do something about. */
export const limitError = (code: string, message: string) => new GraphQLError(message, { extensions: { code } });

/** @param isOwnLogIn  the address logs in as a role that may become the analysts'; else its user becomes one that may */
export function analyticsPool(url: string, isOwnLogIn: boolean, size: number): pg.Pool {
  const pool = new pg.Pool({
    connectionString: url,
    max: size,
    connectionTimeoutMillis: 40_000,
    idleTimeoutMillis: 60_000,
    maxLifetimeSeconds: 900,
    application_name: loginRole,
    ...(isOwnLogIn ? {} : { options: `-c role=${loginRole}` }),
  });
  pool.on('error', () => undefined);
  pool.on('connect', (client) => client.on('error', () => undefined));
  return pool;
}

/** What PostGraphile asks of a connection. */
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
  /** For PostGraphile; whatever settings it was given elsewhere count for nothing here. */
  withPgClient: <T>(settings: object | null, work: (client: Client) => T | Promise<T>) => Promise<T>;
  /** Gives the connection back. */
  end(): Promise<void>;
}

/**
 * The connection of one request: all its statements run one after the other in one read-only transaction, and see the same data. What they run
 * as is set here and nowhere else, so that no configuration can forget it.
 * @param maxBytes  what all statements together may answer: of groups there is no other limit
 */
export function requestClient(pool: pg.Pool, scope: TenantScope, maxBytes: number): RequestClient {
  if (!/^(all|,(\d+,)+|)$/.test(scope)) throw new Error('This is no scope of an analyst.');
  const begin = [
    'begin isolation level repeatable read read only',
    `set local role ${analystRole}`,
    `set local app.analytics_tenants = '${scope}'`,
    `set local statement_timeout = ${String(statementLimit)}`,
    // One processor for one analyst: the others are for the schools.
    "set local max_parallel_workers_per_gather = 0; set local jit = off; set local timezone = 'UTC'; set local search_path = analytics",
  ].join('; ');
  let client: pg.PoolClient | undefined;
  let hasBegun = false;
  let spent = 0;
  let bytes = 0;
  let last: Promise<unknown> = Promise.resolve();

  const tooMuch = () =>
    limitError(
      'ANSWER_TOO_LARGE',
      `The database answered more than ${(maxBytes / 1024 / 1024).toFixed(1)} MB. Group by less, filter, or ask for fewer rows or aliases.`,
    );

  async function run({ text, values, arrayMode }: Statement) {
    if (bytes > maxBytes) throw tooMuch();
    if (spent > requestLimit) {
      throw limitError(
        'REQUEST_TIMEOUT',
        `The statements of this request took more than ${String(requestLimit / 1000)} seconds together. Ask for less at a time.`,
      );
    }
    client ??= await pool.connect();
    const { stream } = (client as unknown as { connection: { stream: Socket } }).connection;
    const count = (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > maxBytes) stream.destroy();
    };
    const start = performance.now();
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
      await release(error);
      if (bytes > maxBytes) throw tooMuch();
      if (error instanceof pg.DatabaseError && error.code === '57014') {
        const message = `The database took more than ${String(statementLimit / 1000)} seconds, and was stopped. Filter by time or school, or group by less.`;
        throw limitError('STATEMENT_TIMEOUT', message);
      }
      throw error;
    } finally {
      stream.off('data', count);
      spent += performance.now() - start;
    }
  }

  /** Ends the transaction; the next statement, if there is one, begins another. */
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
          throw new Error('There are no transactions of their own here.');
        },
      });
    },
    async end() {
      await last;
      await release();
    },
  };
}
