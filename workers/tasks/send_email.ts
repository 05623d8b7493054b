import { z } from 'zod';
import type { Email } from '../email.ts';
import type { TaskContext } from '../task-context.ts';

const Payload = z.object({
  tenant_id: z.int().nullable(),
  user_id: z.int().nullable(),
  kind: z.enum(['password_reset', 'invitation', 'email_verification']),
});

/** The result of `core.email_prepare`. */
interface Prepared {
  email: string;
  first_name: string;
  last_name: string;
  school: string;
  subdomain: string | null;
  token: string;
  valid_hours: number;
}

/** Escapes text for HTML. */
export const escapeHtml = (text: string) => text.replace(/[&<>"']/g, (c) => `&#${String(c.charCodeAt(0))};`);

const period = (hours: number) =>
  hours === 1 ? '1 hour' : hours <= 48 ? `${String(hours)} hours` : `${String(hours / 24)} days`;

/** The text of each kind of message. */
const texts = {
  password_reset: {
    subject: 'Reset your password',
    lead: 'We received a request to reset your password. Choose a new one here:',
    tail: 'If you did not ask for this, ignore this message. Your password has not changed.',
  },
  invitation: {
    subject: 'Your account',
    lead: 'An account was created for you. Choose your password here:',
    tail: 'If you did not expect this, ignore this message.',
  },
  email_verification: {
    subject: 'Verify your email address',
    lead: 'Please confirm that this is your email address:',
    tail: 'If you did not expect this, ignore this message.',
  },
};

/** The message as text and HTML. */
function compose(
  prepared: Prepared,
  kind: keyof typeof texts,
  { publicUrl, passwordPageUrl }: TaskContext['links'],
): Email {
  const { subject, lead, tail } = texts[kind];
  const link =
    kind === 'email_verification'
      ? `${publicUrl}/api/auth/email/verify?token=${prepared.token}`
      : `${passwordPageUrl ?? `${publicUrl}/password/choose`}#token=${prepared.token}`;
  const name = `${prepared.first_name} ${prepared.last_name}`;
  const validity = `The link works once, for ${period(prepared.valid_hours)}.`;
  return {
    to: { name, address: prepared.email },
    subject: `${prepared.school}: ${subject}`,
    text: `Hello ${name},\n\n${lead}\n\n${link}\n\n${validity}\n${tail}\n\n${prepared.school}\n`,
    html: [
      `<p>Hello ${escapeHtml(name)},</p>`,
      `<p>${lead}</p>`,
      `<p><a href="${link}">${subject}</a></p>`,
      `<p>${validity}<br>${tail}</p>`,
      `<p>${escapeHtml(prepared.school)}</p>`,
    ].join(''),
  };
}

/**
 * Sends a user a link with a one-time token. The payload has only the user's id. The token is created here, so that the
 * queue holds no secret; a retry creates a new one.
 */
export async function send_email(payload: unknown, context: TaskContext): Promise<void> {
  const { tenant_id, user_id, kind } = Payload.parse(payload);
  const { rows } = await context.pool.query<{ prepared: Prepared | null }>(
    'select core.email_prepare($1, $2, $3) as prepared',
    [tenant_id, user_id, kind],
  );
  const prepared = rows[0]?.prepared;
  if (prepared) await context.sendEmail(compose(prepared, kind, context.links));
}
