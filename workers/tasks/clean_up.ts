import { callForEachSchool } from '../for-each-school.ts';
import type { TaskContext } from '../task-context.ts';

/**
 * Deletes expired rows: sessions, tokens, login throttles, answers to idempotency keys, old deliveries and
 * notifications. Each school has a transaction of its own.
 */
export async function clean_up(_payload: unknown, context: TaskContext): Promise<void> {
  const { rows } = await context.pool.query<{ removed: object }>('select core.clean_up() as removed');
  await callForEachSchool(context.pool, 'core.schools_to_clean_up()', 'core.clean_up_school');
  context.logger.info({ task: 'clean_up', removed: rows[0]?.removed });
}
