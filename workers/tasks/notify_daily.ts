import type { TaskContext } from '../worker.ts';

/**
 * Tells schools what nobody's request tells them: that their trial ends, that papers of their buses and drivers expire. Runs every hour,
 * since it is morning at another time in each; what was told is noted in the school, in the same transaction.
 */
export async function notify_daily(_payload: unknown, { pool }: TaskContext): Promise<void> {
  const trials = await pool.query<{ id: string }>('select id from core.trials_ending() id');
  for (const { id } of trials.rows) await pool.query('select core.notify_trial_ending($1)', [id]);
  const papers = await pool.query<{ id: string }>('select id from core.papers_due() id');
  for (const { id } of papers.rows) await pool.query('select core.notify_papers_expiring($1)', [id]);
}
