import type { Job } from 'graphile-worker';
import { z } from 'zod';
import { type Email, withoutLinks } from '../email.ts';
import { sendJobEmail } from '../job-email.ts';
import type { TaskContext } from '../task-context.ts';

const Payload = z.object({
  tenant_id: z.int().nullable(),
  user_id: z.int().nullable(),
  kind: z.enum([
    'password_reset',
    'invitation',
    'email_verification',
    'new_device',
    'second_factor_on',
    'second_factor_off',
    'second_factor_reset',
    'recovery_codes_new',
    'passkey_added',
  ]),
  /** For `new_device`: the session that the login opened. */
  session_id: z.int().optional(),
});

/** What `core.email_prepare` returns for every kind. */
interface Recipient {
  email: string;
  first_name: string;
  last_name: string;
  school: string;
  subdomain: string | null;
}

const fullName = ({ first_name, last_name }: Recipient) => `${first_name} ${last_name}`.trimEnd();

interface WithLink extends Recipient {
  token: string;
  valid_hours: number;
}
interface WithLogin extends Recipient {
  login: { time: string; ip: string | null; user_agent: string | null };
}

/** Escapes text for HTML. */
export const escapeHtml = (text: string) => text.replace(/[&<>"']/g, (c) => `&#${String(c.charCodeAt(0))};`);

const period = (hours: number) =>
  hours === 1 ? '1 hour' : hours <= 48 ? `${String(hours)} hours` : `${String(hours / 24)} days`;

/** The text of each kind of message with a link. */
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

/** The message with a link, as text and HTML. */
function composeLink(
  prepared: WithLink,
  kind: keyof typeof texts,
  { publicUrl, passwordPageUrl }: TaskContext['links'],
): Email {
  const { subject, lead, tail } = texts[kind];
  const link =
    kind === 'email_verification'
      ? `${publicUrl}/api/auth/email/verify?token=${prepared.token}`
      : `${passwordPageUrl ?? `${publicUrl}/password/choose`}#token=${prepared.token}`;
  const name = withoutLinks(fullName(prepared));
  const school = withoutLinks(prepared.school);
  const validity = `The link works once, for ${period(prepared.valid_hours)}.`;
  // Operators have no school whose address they know.
  const consoleUrl = kind === 'invitation' && prepared.subdomain === null ? `${publicUrl}/console/` : undefined;
  return {
    to: { name, address: prepared.email },
    subject: `${school}: ${subject}`,
    text: [
      `Hello ${name},\n\n${lead}\n\n${link}\n\n`,
      ...(consoleUrl ? [`Then log in at ${consoleUrl}\n\n`] : []),
      `${validity}\n${tail}\n\n${school}\n`,
    ].join(''),
    html: [
      `<p>Hello ${escapeHtml(name)},</p>`,
      `<p>${lead}</p>`,
      `<p><a href="${link}">${subject}</a></p>`,
      ...(consoleUrl ? [`<p>Then log in at <a href="${consoleUrl}">${consoleUrl}</a></p>`] : []),
      `<p>${validity}<br>${tail}</p>`,
      `<p>${escapeHtml(school)}</p>`,
    ].join(''),
  };
}

/** A message about the security of an account, as text and HTML. */
function composeNotice(prepared: Recipient, subject: string, lead: string, facts: string[], tail: string): Email {
  const name = withoutLinks(fullName(prepared));
  const paragraphs = [lead, ...(facts.length > 0 ? [facts.join('\n')] : []), tail, prepared.school];
  return {
    to: { name, address: prepared.email },
    subject: `${prepared.school}: ${subject}`,
    text: `Hello ${name},\n\n${paragraphs.join('\n\n')}\n`,
    html: [`Hello ${name},`, ...paragraphs]
      .map((paragraph) => `<p>${escapeHtml(paragraph).replaceAll('\n', '<br>')}</p>`)
      .join(''),
  };
}

/** The message about a login from a new device. */
function composeLogin({ login, ...prepared }: WithLogin): Email {
  const lead = 'Your password was used to log in from a device that we do not know:';
  const facts = [
    `Time: ${login.time}`,
    `Address: ${login.ip ?? 'unknown'}`,
    `Program: ${login.user_agent ?? 'unknown'}`,
  ];
  const tail =
    'If this was you, ignore this message. If not, change your password now. The change ends all other sessions.';
  return composeNotice(prepared, 'New login to your account', lead, facts, tail);
}

/** The messages about a second factor. */
const secondFactorNotices = {
  second_factor_on: {
    subject: 'Two-factor login is on',
    lead: 'An authenticator app was set up for your account. Logins from new devices need a code of this app.',
    tail: 'If this was not you, change your password now, and ask an administrator to reset your second factor.',
  },
  second_factor_off: {
    subject: 'Two-factor login is off',
    lead: 'Your second factor was removed. Logins need only your password now.',
    tail: 'If this was not you, change your password now. The change ends all other sessions.',
  },
  second_factor_reset: {
    subject: 'Your second factor was reset',
    lead: 'An administrator removed the second factor of your account.',
    tail: 'If you did not ask for this, change your password now and tell an administrator.',
  },
  recovery_codes_new: {
    subject: 'New recovery codes',
    lead: 'New recovery codes were created for your account. The old ones no longer work.',
    tail: 'If this was not you, change your password now, and ask an administrator to reset your second factor.',
  },
  passkey_added: {
    subject: 'A passkey was added',
    lead: 'A passkey was added to your account. It can be used at the login instead of a code.',
    tail: 'If this was not you, change your password now, and ask an administrator to reset your second factor.',
  },
};

/**
 * Sends a user a link with a one-time token, or tells them about a login or a change of their second factor. The
 * payload has only ids. The token is created here, so that the queue holds no secret; a retry creates a new one.
 */
export async function send_email(payload: unknown, context: TaskContext, job: Job): Promise<void> {
  const { tenant_id, user_id, kind, session_id } = Payload.parse(payload);
  const prepare = async <Prepared>() => {
    const { rows } = await context.pool.query<{ prepared: Prepared | null }>(
      'select core.email_prepare($1, $2, $3, $4, $5) as prepared',
      [tenant_id, user_id, kind, session_id ?? null, job.attempts],
    );
    return rows[0]?.prepared ?? undefined;
  };
  if (kind === 'new_device') {
    const prepared = await prepare<WithLogin>();
    if (prepared) await sendJobEmail(context, job, composeLogin(prepared));
  } else if (kind === 'password_reset' || kind === 'invitation' || kind === 'email_verification') {
    const prepared = await prepare<WithLink>();
    if (prepared) await sendJobEmail(context, job, composeLink(prepared, kind, context.links));
  } else {
    const { subject, lead, tail } = secondFactorNotices[kind];
    const prepared = await prepare<Recipient>();
    if (prepared) await sendJobEmail(context, job, composeNotice(prepared, subject, lead, [], tail));
  }
}
