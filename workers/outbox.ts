import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { TaskContext } from './task-context.ts';

/** How often the worker looks whether something has happened. A look takes 0.3 ms. */
const intervalMs = 50;
/** How many events of a school are written in one transaction. */
const maxEvents = 100;
/** How long it waits after an error, such as that of a lost connection. */
const pauseMs = 1_000;

/**
 * Writes the notifications of what has happened in each school (platform.outbox): at most a hundred events, or those of a
 * thousand recipients.
 * @returns how many events were written
 */
export async function writeOutbox(
  pool: Pick<pg.Pool, 'query'>,
  isStopping: () => boolean = () => false,
): Promise<number> {
  const { rows: schools } = await pool.query<{ id: number }>('select core.outbox_schools() as id');
  let count = 0;
  for (const { id } of schools) {
    if (isStopping()) break;
    const write = async (limit: number) => {
      const { rows } = await pool.query<{ count: number | null }>(
        "select (core.outbox_write($1, $2) ->> 'rows')::integer as count",
        [id, limit],
      );
      return rows[0]?.count ?? 0;
    };
    // If one event fails, it is found, and postponed, by writing one by one.
    count += await write(maxEvents).catch(() => write(1));
  }
  return count;
}

/**
 * Runs `writeOutbox` again and again, as long as the worker runs. Several workers do not disturb each other, because each
 * transaction locks its school.
 * @returns a function that stops it after the school at which it is
 */
export function startOutbox({ pool, logger }: Pick<TaskContext, 'pool' | 'logger'>): () => Promise<void> {
  const stopping = new AbortController();
  const { signal } = stopping;
  const isStopping = () => signal.aborted;
  let wasUp = true;
  const run = async () => {
    while (!isStopping())
      try {
        const count = await writeOutbox(pool, isStopping);
        wasUp = true;
        if (count === 0) await sleep(intervalMs, undefined, { signal });
      } catch (error) {
        if (isStopping()) return;
        if (wasUp) logger.warn({ worker: 'Notifications could not be written.', cause: String(error) });
        wasUp = false;
        await sleep(pauseMs, undefined, { signal }).catch(() => undefined);
      }
  };
  const running = run();
  return async () => {
    stopping.abort();
    await running;
  };
}
