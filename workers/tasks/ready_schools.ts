import type { TaskContext } from '../task-context.ts';

/** Creates the tables of schools in advance, so that an operator does not wait for them. */
export async function ready_schools(
  _payload: unknown,
  { pool, stopping }: Pick<TaskContext, 'pool' | 'stopping'>,
): Promise<void> {
  const client = await pool.connect();
  let hasChanged = false;
  try {
    while (!stopping.aborted) {
      const { rows } = await client.query<{ has_more: boolean }>('select core.ready_schools_step() as has_more');
      if (!rows[0]?.has_more) break;
      hasChanged = true;
    }
  } finally {
    // With 2,000 schools the connection has then loaded 90 MB of the catalog.
    client.release(hasChanged);
  }
}
