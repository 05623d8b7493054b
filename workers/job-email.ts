import type { Job } from 'graphile-worker';
import { type Email, EmailRefused } from './email.ts';
import type { TaskContext } from './task-context.ts';

/**
 * Sends the email of a job that the queue repeats if it fails, and counts the attempt. If the mail server refuses the
 * message or its recipient permanently (5xx), the job has no further attempt.
 */
export async function sendJobEmail(
  { sendEmail, observeDelivery, pool }: TaskContext,
  job: Pick<Job, 'id' | 'attempts' | 'max_attempts'>,
  email: Email,
): Promise<void> {
  try {
    await sendEmail(email);
  } catch (error) {
    if (error instanceof EmailRefused && error.isPermanent && job.attempts < job.max_attempts) {
      await pool.query('select core.job_give_up($1)', [job.id]);
      // For the metrics, which read it after the failure.
      job.max_attempts = job.attempts;
    }
    observeDelivery?.('email', job.attempts < job.max_attempts ? 'retry' : 'failed');
    throw error;
  }
  observeDelivery?.('email', 'sent');
}
