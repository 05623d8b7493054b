import { eachSchool } from '../each-school.ts';
import type { TaskContext } from '../task-context.ts';

/** Removes expired sessions, tokens, throttles and old answers to idempotency keys; each school in a transaction of its own. */
export async function clean_up(_payload: unknown, context: TaskContext): Promise<void> {
  const { rows } = await context.pool.query<{ removed: object }>('select core.clean_up() as removed');
  await eachSchool(context.pool, 'core.schools()', 'core.clean_up_school');
  context.logger.info({ task: 'clean_up', removed: rows[0]?.removed });
}
