import { setPriority } from 'node:os';
import { queryRunner, type AnalyticsQuery } from './run-query.ts';
import { analyticsPool } from './database.ts';
import type { ParentMessage, ChildMessage } from './process.ts';
import { analyticsSchema } from './schema.ts';

/**
 * The process that runs the queries of analysts, started by `analyticsProcess`: what PostGraphile does at a query, and the memory that it takes,
 * is not the API's. It gives way to others on its machine.
 */
const send = (message: ChildMessage) => void process.send?.(message);

function begin({ url, isOwnLogIn, connections }: Extract<ParentMessage, { kind: 'begin' }>) {
  try {
    setPriority(10);
  } catch {
    // It is only polite.
  }
  const pool = analyticsPool(url, isOwnLogIn, connections);
  const ready = analyticsSchema(pool).then((made) => queryRunner(made, pool));
  ready.then(
    () => send({ kind: 'ready' }),
    (error: unknown) => {
      send({ kind: 'failed', message: error instanceof Error ? error.message : String(error) });
      process.disconnect();
    },
  );
  return async (id: number, query: AnalyticsQuery) => {
    const { body, ...rest } = await (await ready)(query);
    send({ kind: 'answer', id, body: Buffer.from(body), ...rest });
  };
}

let ask: ReturnType<typeof begin> | undefined;
process.on('message', (message: ParentMessage) => {
  if (message.kind === 'begin') ask = begin(message);
  else void ask?.(message.id, message.query);
});
// Without the API there is nobody to work for. Ctrl-C is for the API to hear of: it asks us to end when nobody waits any more.
process.on('disconnect', () => process.exit());
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => undefined);
