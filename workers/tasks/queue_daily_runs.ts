import type { TaskContext } from '../task-context.ts';

/** Queues a job `daily_school` for each school whose daily run is due and not done. */
export async function queue_daily_runs(_payload: unknown, { pool, logger }: TaskContext): Promise<void> {
  const { rows } = await pool.query<{ schools: number }>('select core.daily_queue() as schools');
  if (rows[0]?.schools) logger.info({ task: 'queue_daily_runs', schools: rows[0].schools });
}
