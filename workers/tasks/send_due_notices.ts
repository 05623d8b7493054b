import { callForEachSchool } from '../for-each-school.ts';
import type { TaskContext } from '../task-context.ts';

/**
 * Ends subscriptions, and sends the notifications that no request causes: a subscription ends, documents of buses and
 * drivers expire. Each school records what was sent in the same transaction.
 */
export async function send_due_notices(_payload: unknown, { pool }: TaskContext): Promise<void> {
  const results = await Promise.allSettled([
    callForEachSchool(pool, 'core.schools_with_subscription_ending()', 'core.subscription_daily'),
    callForEachSchool(pool, 'core.schools_due_for_document_check()', 'core.notify_documents_expiring'),
  ]);
  for (const result of results) if (result.status === 'rejected') throw result.reason;
}
