import type { TaskContext } from '../worker.ts';

/** Removes expired sessions, tokens, throttles and old answers to idempotency keys; each school in a transaction of its own. */
export async function clean_up(_payload: unknown, context: TaskContext): Promise<void> {
  const { rows } = await context.pool.query<{ removed: object }>('select core.clean_up() as removed');
  const schools = await context.pool.query<{ id: string }>('select id from core.schools() id');
  for (const { id } of schools.rows) await context.pool.query('select core.clean_up_school($1)', [id]);
  context.logger.info({ task: 'clean_up', removed: rows[0]?.removed });
}
