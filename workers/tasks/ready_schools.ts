import type { TaskContext } from '../task-context.ts';

/** Creates the tables of schools in advance, so that an operator does not wait for them. */
export async function ready_schools(
  _payload: unknown,
  { pool, stopping }: Pick<TaskContext, 'pool' | 'stopping'>,
): Promise<void> {
  for (let hasMore = true; hasMore && !stopping.aborted;) {
    const { rows } = await pool.query<{ has_more: boolean }>('select core.ready_school_make() as has_more');
    hasMore = rows[0]?.has_more ?? false;
  }
}
