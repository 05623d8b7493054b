import { randomUUID } from 'node:crypto';
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createTransport } from 'nodemailer';

/** An email to one person. */
export interface Email {
  to: { name: string; address: string };
  subject: string;
  text: string;
  html: string;
  /** Name of the sender. The address is always that of EMAIL_FROM. */
  fromName?: string;
  /** The same for each attempt, so that mailboxes show a message only once if it arrives twice. */
  messageId?: string;
  attachments?: { filename: string; content: Buffer; contentType: string }[];
}

/**
 * Removes links and addresses from a line, so that mail programs show it as text only. People type the names of others
 * into forms, and a stranger who gets an email would take a link in a name for one of the sender.
 */
export const withoutLinks = (line: string): string =>
  line
    .replace(/\p{Cc}/gu, ' ')
    .replace(/[a-z][a-z\d+.-]*:\/\/\S*|www\.\S*|\S*@\S*/giu, ' ')
    // "evil.example" would be a link, "Dr.Smith" and "St. Mary" are not.
    .replace(/(?<=[\p{L}\d])\.(?=\p{L})/gu, '. ')
    .replace(/\s+/g, ' ')
    .trim();

/** A name for a header, where the address follows it in angle brackets. */
export const plainName = (name: string): string => withoutLinks(name.replace(/[<>]/g, ' '));

/** Sends an email; rejects if it was not accepted. */
export type SendEmail = (email: Email) => Promise<void>;

/**
 * An email was not sent. The message has only codes, because it is stored in the queue and the log, and the text of a
 * mail server often contains the address of the recipient.
 */
export class EmailRefused extends Error {
  readonly reason: string;
  /** The server rejects this message or its recipient permanently. */
  readonly isPermanent: boolean;
  /** The server did not answer, or rejected our credentials, so that other messages would fail too. */
  readonly isServiceDown: boolean;

  constructor(error: unknown) {
    const { code, command, responseCode } = error as { code?: string; command?: string; responseCode?: number };
    super(`The email was not sent: ${[code, command, responseCode].filter((part) => part !== undefined).join(', ')}`);
    this.reason = `smtp_${String(responseCode ?? code ?? 'error')}`;
    // An error of another command is about this service, for example its credentials, which an operator can correct.
    this.isPermanent = (responseCode ?? 0) >= 500 && (command === 'RCPT TO' || command === 'DATA');
    this.isServiceDown = responseCode === undefined || code === 'EAUTH';
  }
}

/**
 * A part of a message without transfer encoding. The default encoding breaks lines, and therefore links, at 76
 * characters.
 */
const verbatim = (contentType: string, content: string) => ({
  contentType,
  raw: [
    `Content-Type: ${contentType}; charset=utf-8`,
    'Content-Transfer-Encoding: 8bit',
    '',
    content.replaceAll('\n', '\r\n'),
  ].join('\r\n'),
});

/**
 * Creates the function that sends email: by SMTP if `smtpUrl` is set. Otherwise it writes `.eml` files into `outbox`,
 * which mail programs can open.
 */
export function emailSender(options: { smtpUrl: string | undefined; from: string; outbox: string }): SendEmail {
  const { smtpUrl, from: defaultFrom, outbox } = options;
  const address = /<([^<>]*)>\s*$/.exec(defaultFrom)?.[1] ?? defaultFrom.trim();
  const messageIdHeader = ({ messageId }: Email) =>
    messageId !== undefined && { messageId: `<${messageId}@${address.replace(/^.*@/, '')}>` };
  const from = ({ fromName }: Email) => (fromName === undefined ? defaultFrom : { name: plainName(fromName), address });
  const headers = (email: Email) => ({
    from: from(email),
    to: { ...email.to, name: plainName(email.to.name) },
    subject: withoutLinks(email.subject),
    ...messageIdHeader(email),
  });
  if (smtpUrl) {
    // A server may scan a message for a while before it accepts it, so socketTimeout is longer.
    const transport = createTransport({
      url: smtpUrl,
      connectionTimeout: 10_000,
      greetingTimeout: 10_000,
      socketTimeout: 60_000,
    });
    return async (email) => {
      const { text, html, attachments = [] } = email;
      await transport.sendMail({ ...headers(email), text, html, attachments }).catch((error: unknown) => {
        throw new EmailRefused(error);
      });
    };
  }
  const transport = createTransport({ streamTransport: true, buffer: true });
  return async (email) => {
    const { text, html, attachments = [] } = email;
    const alternatives = [verbatim('text/plain', text), verbatim('text/html', html)];
    const { message } = await transport.sendMail({ ...headers(email), alternatives, attachments });
    await mkdir(outbox, { recursive: true, mode: 0o700 });
    const name = `${new Date().toISOString().replaceAll(':', '-')}-${randomUUID().slice(0, 8)}`;
    await writeFile(join(outbox, `.${name}`), message as Buffer, { mode: 0o600 });
    await rename(join(outbox, `.${name}`), join(outbox, `${name}.eml`));
  };
}
