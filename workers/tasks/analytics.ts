import type { TaskContext } from '../task-context.ts';

/** Looks which schools have changed since their facts were read, and queues jobs that read them again. */
export async function analytics(_payload: unknown, { pool, logger }: TaskContext): Promise<void> {
  const { rows } = await pool.query<{ looked: object }>('select core.analytics_queue() as looked');
  logger.info({ task: 'analytics', ...rows[0]?.looked });
}
