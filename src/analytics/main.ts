import { flushCompileCache } from 'node:module';
import { setPriority } from 'node:os';
import { queryRunner, type AnalyticsQuery } from './run-query.ts';
import { analyticsPool, limitError } from './database.ts';
import type { ParentMessage, ChildMessage } from './process.ts';
import { analyticsSchema } from './schema.ts';

// The process that runs analytics queries, started by `analyticsProcess`. PostGraphile's work and memory are kept out of
// the API process, and this process runs queries at a low priority.

const send = (message: ChildMessage) => void process.send?.(message);

function begin({ url, isOwnLogIn, connections, timeouts }: Extract<ParentMessage, { kind: 'begin' }>) {
  const pool = analyticsPool(url, isOwnLogIn, connections);
  const ready = analyticsSchema(pool).then((schema) => queryRunner(schema, pool, timeouts));
  ready.then(
    () => {
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
    const { body, ...rest } = await (await ready)(query, signal);
    send({ kind: 'answer', id, body: Buffer.from(body), ...rest });
  };
}

let run: ReturnType<typeof begin> | undefined;
const inProgress = new Map<number, AbortController>();
process.on('message', (message: ParentMessage) => {
  if (message.kind === 'begin') run = begin(message);
  else if (message.kind === 'cancel') inProgress.get(message.id)?.abort(limitError('CANCELED', 'The client is gone.'));
  else {
    const { id, query } = message;
    const controller = new AbortController();
    inProgress.set(id, controller);
    void run?.(id, query, controller.signal).finally(() => inProgress.delete(id));
  }
});
// Exit with the API process. Ignore Ctrl-C, which the terminal also sends to this process: the API disconnects when all
// queries are finished.
process.on('disconnect', () => process.exit());
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => undefined);
