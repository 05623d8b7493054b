import type { Job } from 'graphile-worker';
import { z } from 'zod';
import { sendJobEmail } from '../job-email.ts';
import type { TaskContext } from '../task-context.ts';
import { escapeHtml } from './send_email.ts';

const Payload = z.object({
  /** The school that the notice is about, if any. */
  tenant_id: z.int().nullable(),
  user_id: z.int(),
  subject: z.string(),
  text: z.string(),
});

/** The result of `core.operator_notice_prepare`. */
interface Recipient {
  email: string;
  name: string;
}

/** Sends an operator an email, with a link to the operator console: to the school that it is about, if any. */
export async function send_operator_notice(payload: unknown, context: TaskContext, job: Job): Promise<void> {
  const { tenant_id, user_id, subject, text } = Payload.parse(payload);
  const { rows } = await context.pool.query<{ recipient: Recipient | null }>(
    'select core.operator_notice_prepare($1) as recipient',
    [user_id],
  );
  const recipient = rows[0]?.recipient;
  if (!recipient) return;
  const link = `${context.links.publicUrl}/console/${tenant_id === null ? '' : `schools/${String(tenant_id)}`}`;
  await sendJobEmail(context, job, {
    to: { name: recipient.name, address: recipient.email },
    subject,
    text: `Hello ${recipient.name},\n\n${text}\n\n${link}\n`,
    html: [
      `<p>Hello ${escapeHtml(recipient.name)},</p>`,
      `<p>${escapeHtml(text)}</p>`,
      `<p><a href="${link}">${tenant_id === null ? 'Open the console' : 'Open the school in the console'}</a></p>`,
    ].join(''),
  });
}
