import type { TaskContext } from '../task-context.ts';

/** Queues jobs that refresh the analytics tables of the schools that have changed since their last refresh. */
export async function analytics(_payload: unknown, { pool, logger }: TaskContext): Promise<void> {
  const { rows } = await pool.query<{ counts: object }>('select core.analytics_queue() as counts');
  logger.info({ task: 'analytics', ...rows[0]?.counts });
}
