import { callForEachSchool } from '../for-each-school.ts';
import type { TaskContext } from '../task-context.ts';

/**
 * Sends the notifications that no request causes: a trial ends, documents of buses and drivers expire. Runs every hour,
 * because it is morning at another hour in each time zone. Each school records what was sent in the same transaction.
 */
export async function notify_daily(_payload: unknown, { pool }: TaskContext): Promise<void> {
  const results = await Promise.allSettled([
    callForEachSchool(pool, 'core.schools_with_trial_ending()', 'core.notify_trial_ending'),
    callForEachSchool(pool, 'core.schools_due_for_document_check()', 'core.notify_documents_expiring'),
  ]);
  for (const result of results) if (result.status === 'rejected') throw result.reason;
}
