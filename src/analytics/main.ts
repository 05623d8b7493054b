import { setPriority } from 'node:os';
import { queryRunner, type AnalyticsQuery } from './run-query.ts';
import { analyticsPool } from './database.ts';
import type { ParentMessage, ChildMessage } from './process.ts';
import { analyticsSchema } from './schema.ts';

// The process that runs analytics queries, started by `analyticsProcess`. PostGraphile's work and memory are kept out of
// the API process, and this process runs at a low priority.

const send = (message: ChildMessage) => void process.send?.(message);

function begin({ url, isOwnLogIn, connections, timeouts }: Extract<ParentMessage, { kind: 'begin' }>) {
  try {
    setPriority(10);
  } catch {
    // Not permitted everywhere, and not essential.
  }
  const pool = analyticsPool(url, isOwnLogIn, connections);
  const ready = analyticsSchema(pool).then((schema) => queryRunner(schema, pool, timeouts));
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

let run: ReturnType<typeof begin> | undefined;
process.on('message', (message: ParentMessage) => {
  if (message.kind === 'begin') run = begin(message);
  else void run?.(message.id, message.query);
});
// Exit with the API process. Ignore Ctrl-C, which the terminal also sends to this process: the API disconnects when all
// queries are finished.
process.on('disconnect', () => process.exit());
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => undefined);
