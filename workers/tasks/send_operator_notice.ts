import { z } from 'zod';
import type { TaskContext } from '../task-context.ts';
import { escapeHtml } from './send_email.ts';

const Payload = z.object({ tenant_id: z.int(), user_id: z.int(), subject: z.string(), text: z.string() });

/** The result of `core.operator_notice_prepare`. */
interface Recipient {
  email: string;
  name: string;
}

/** Sends an operator an email about a school, with a link to the school in the operator console. */
export async function send_operator_notice(payload: unknown, context: TaskContext): Promise<void> {
  const { tenant_id, user_id, subject, text } = Payload.parse(payload);
  const { rows } = await context.pool.query<{ recipient: Recipient | null }>(
    'select core.operator_notice_prepare($1) as recipient',
    [user_id],
  );
  const recipient = rows[0]?.recipient;
  if (!recipient) return;
  const link = `${context.links.publicUrl}/console/schools/${String(tenant_id)}`;
  await context.sendEmail({
    to: { name: recipient.name, address: recipient.email },
    subject,
    text: `Hello ${recipient.name},\n\n${text}\n\n${link}\n`,
    html: [
      `<p>Hello ${escapeHtml(recipient.name)},</p>`,
      `<p>${escapeHtml(text)}</p>`,
      `<p><a href="${link}">Open the school in the console</a></p>`,
    ].join(''),
  });
}
