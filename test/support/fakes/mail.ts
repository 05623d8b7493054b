import type { TestService } from '../server/service.ts';
import { until } from '../client/until.ts';

/** A sent email, decoded. */
export interface Mail {
  to: string;
  subject: string;
  text: string;
  /** The one-time token in the link. */
  token: string;
}

/** The plain text of a message. */
function plainText(eml: string): string {
  const boundary = /boundary="([^"]+)"/.exec(eml)?.[1];
  const part = boundary ? (eml.split(`--${boundary}`).find((each) => each.includes('text/plain')) ?? '') : eml;
  const [head = '', ...body] = part.split('\n\n');
  const text = body.join('\n\n');
  const encoding = /content-transfer-encoding: *(\S+)/i.exec(head)?.[1]?.toLowerCase();
  if (encoding === 'base64') return Buffer.from(text, 'base64').toString('utf8');
  if (encoding !== 'quoted-printable') return text;
  const bytes = text
    .replace(/=\n/g, '')
    .replace(/=([0-9A-F]{2})/g, (_all, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return Buffer.from(bytes, 'latin1').toString('utf8');
}

function read(eml: string): Mail {
  const message = eml.replaceAll('\r\n', '\n');
  const head = (message.split('\n\n')[0] ?? '').replace(/\n[ \t]+/g, ' ');
  const text = plainText(message);
  return {
    to: /^To:.*?([^\s<>"]+@[^\s<>"]+)/m.exec(head)?.[1] ?? '',
    subject: /^Subject: (.*)$/m.exec(head)?.[1] ?? '',
    text,
    token: /token=([\w.-]*[\w-])/.exec(text)?.[1] ?? '',
  };
}

/** The emails sent to an address so far. */
export async function mailsTo(service: TestService, address: string): Promise<Mail[]> {
  return (await service.outbox(0)).map(read).filter(({ to }) => to === address);
}

/** Waits for the `count`-th email to an address whose subject ends with `subject`. */
export async function mailTo(service: TestService, address: string, subject: string, count = 1): Promise<Mail> {
  return until(
    async () => (await mailsTo(service, address)).filter((each) => each.subject.endsWith(subject))[count - 1],
  );
}

/**
 * Waits until the worker has run all queued jobs except `deliver` and emails that wait for the pause of their address, and
 * has written what they, and all requests, have notified of.
 */
export async function queueIsEmpty(service: TestService): Promise<void> {
  // Does not wait for `deliver` jobs (push and email of notifications), which other test files cover.
  const jobs =
    "select from graphile_worker.jobs where task_identifier <> 'deliver' and coalesce(key, '') not like 'later:%' limit 1";
  await until(async () => {
    const found = await Promise.all(service.database.all().map((database) => database.query(jobs)));
    return found.flat().length === 0 || undefined;
  });
  await service.settled();
}
