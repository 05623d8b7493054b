import type { TaskContext } from '../task-context.ts';

/** Queues the daily work of each school for which it is time, and that has not had it. */
export async function daily(_payload: unknown, { pool, logger }: TaskContext): Promise<void> {
  const { rows } = await pool.query<{ schools: number }>('select core.daily_queue() as schools');
  if (rows[0]?.schools) logger.info({ task: 'daily', schools: rows[0].schools });
}
