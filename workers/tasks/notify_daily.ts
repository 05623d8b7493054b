import { eachSchool } from '../each-school.ts';
import type { TaskContext } from '../task-context.ts';

/**
 * Tells schools what nobody's request tells them: that their trial ends, that papers of their buses and drivers expire. Runs every hour,
 * since it is morning at another time in each; what was told is noted in the school, in the same transaction.
 */
export async function notify_daily(_payload: unknown, { pool }: TaskContext): Promise<void> {
  const results = await Promise.allSettled([
    eachSchool(pool, 'core.trials_ending()', 'core.notify_trial_ending'),
    eachSchool(pool, 'core.papers_due()', 'core.notify_papers_expiring'),
  ]);
  for (const result of results) if (result.status === 'rejected') throw result.reason;
}
