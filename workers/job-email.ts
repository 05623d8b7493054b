import type { Job } from 'graphile-worker';
import type { Email } from './email.ts';
import type { TaskContext } from './task-context.ts';

/** Sends the email of a job that the queue repeats if it fails, and counts the attempt. */
export async function sendJobEmail(
  { sendEmail, observeDelivery }: TaskContext,
  { attempts, max_attempts }: Pick<Job, 'attempts' | 'max_attempts'>,
  email: Email,
): Promise<void> {
  try {
    await sendEmail(email);
  } catch (error) {
    observeDelivery?.('email', attempts < max_attempts ? 'retry' : 'failed');
    throw error;
  }
  observeDelivery?.('email', 'sent');
}
