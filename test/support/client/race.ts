import type { Queries } from '../server/database.ts';
import { until } from './until.ts';

/**
 * Makes requests compete for a lock in every run, not only on a fast machine: takes the lock, sends the requests,
 * releases the lock when `count` of them wait for it, and returns their results.
 * @param lock  a statement that takes the lock until its transaction ends
 */
export async function race<T>(database: Queries, lock: string, count: number, send: () => Promise<T>[]): Promise<T[]> {
  const connectionString = await database.addressFor(lock);
  const client = new shared.pg.Client({ connectionString });
  const observer = new shared.pg.Client({ connectionString });
  await Promise.all([client.connect(), observer.connect()]);
  try {
    await client.query('begin');
    await client.query(lock);
    const state = { isOver: false };
    const answers = Promise.all(send()).finally(() => (state.isOver = true));
    answers.catch(() => undefined);
    await until(async () => {
      // The worker may wait for the same lock.
      const { rowCount } = await observer.query(
        "select from pg_stat_activity where datname = current_database() and application_name similar to 'school_(api|forwarder)%' and wait_event_type = 'Lock'",
      );
      if (state.isOver) throw new Error(`The requests did not wait for: ${lock}`);
      return Number(rowCount) >= count || undefined;
    });
    await client.query('commit');
    return await answers;
  } finally {
    await Promise.all([client.end(), observer.end()]);
  }
}
