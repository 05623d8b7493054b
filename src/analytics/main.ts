import { setPriority } from 'node:os';
import { analyst, type Question } from './ask.ts';
import { analyticsPool } from './database.ts';
import type { Asked, Told } from './process.ts';
import { analyticsSchema } from './schema.ts';

/**
 * The process that runs the queries of analysts, started by `analyticsProcess`: what PostGraphile does at a query, and the memory that it takes,
 * is not the API's. It gives way to others on its machine.
 */
const tell = (message: Told) => void process.send?.(message);

function begin({ url, isOwnLogIn, connections }: Extract<Asked, { kind: 'begin' }>) {
  try {
    setPriority(10);
  } catch {
    // It is only polite.
  }
  const pool = analyticsPool(url, isOwnLogIn, connections);
  const ready = analyticsSchema(pool).then((made) => analyst(made, pool));
  ready.then(
    () => tell({ kind: 'ready' }),
    (error: unknown) => {
      tell({ kind: 'failed', message: error instanceof Error ? error.message : String(error) });
      process.disconnect();
    },
  );
  return async (id: number, question: Question) => {
    const { body, ...rest } = await (await ready)(question);
    tell({ kind: 'answer', id, body: Buffer.from(body), ...rest });
  };
}

let ask: ReturnType<typeof begin> | undefined;
process.on('message', (message: Asked) => {
  if (message.kind === 'begin') ask = begin(message);
  else void ask?.(message.id, message.question);
});
// Without the API there is nobody to work for. Ctrl-C is for the API to hear of: it asks us to end when nobody waits any more.
process.on('disconnect', () => process.exit());
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => undefined);
