import type { TaskContext } from '../task-context.ts';

/** Queues the emails of the saved questions that are due. */
export async function saved_questions(_payload: unknown, { pool }: TaskContext): Promise<void> {
  await pool.query('select core.saved_questions_queue()');
}
