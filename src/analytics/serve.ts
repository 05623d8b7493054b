import { flushCompileCache } from 'node:module';
import { setPriority } from 'node:os';
import type pg from 'pg';
import type { GraphQLSchema } from 'postgraphile/graphql';
import { queryRunner, type AnalyticsQuery } from './run-query.ts';
import { analyticsPool, limitError } from './database.ts';
import type { ParentMessage, ChildMessage } from './process.ts';

const send = (message: ChildMessage) => void process.send?.(message);

type SchemaOf = (pool: pg.Pool) => Promise<GraphQLSchema | undefined>;

function begin(
  { url, isOwnLogIn, connections, timeouts }: Extract<ParentMessage, { kind: 'begin' }>,
  schemaOf: SchemaOf,
) {
  const pool = analyticsPool(url, isOwnLogIn, connections);
  const ready = schemaOf(pool).then((schema) => schema && queryRunner(schema, pool, timeouts));
  ready.then(
    (run) => {
      if (!run) {
        send({ kind: 'outdated' });
        process.disconnect();
        return;
      }
      // Not earlier: an analyst waits for the start, which takes less than a second of processor time.
      try {
        setPriority(10);
      } catch {
        // Not permitted everywhere, and not essential.
      }
      send({ kind: 'ready' });
      // Otherwise written at the exit, which a kill skips. Node 20 has no such cache.
      (flushCompileCache as (() => void) | undefined)?.();
    },
    (error: unknown) => {
      send({ kind: 'failed', message: error instanceof Error ? error.message : String(error) });
      process.disconnect();
    },
  );
  return async (id: number, query: AnalyticsQuery, signal: AbortSignal) => {
    const run = await ready;
    if (!run) return;
    const { body, ...rest } = await run(query, signal);
    send({ kind: 'answer', id, body: Buffer.from(body), ...rest });
  };
}

/**
 * Runs the queries that `analyticsProcess` sends to this process. PostGraphile's work and memory are kept out of the API
 * process, and this process runs queries at a low priority.
 * @param schemaOf  the schema of a database; undefined if another program has to build it
 */
export function serveQueries(schemaOf: SchemaOf): void {
  let run: ReturnType<typeof begin> | undefined;
  const inProgress = new Map<number, AbortController>();
  process.on('message', (message: ParentMessage) => {
    if (message.kind === 'begin') run = begin(message, schemaOf);
    else if (message.kind === 'cancel')
      inProgress.get(message.id)?.abort(limitError('CANCELED', 'The client is gone.'));
    else {
      const { id, query } = message;
      const controller = new AbortController();
      inProgress.set(id, controller);
      void run?.(id, query, controller.signal).finally(() => inProgress.delete(id));
    }
  });
  // Exit with the API process. Ignore Ctrl-C, which the terminal also sends to this process: the API disconnects when
  // all queries are finished.
  process.on('disconnect', () => process.exit());
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => undefined);
}
