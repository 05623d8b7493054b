import { randomUUID } from 'node:crypto';
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createTransport } from 'nodemailer';

/** One message to one person. */
export interface Email {
  to: { name: string; address: string };
  subject: string;
  text: string;
  html: string;
  /** Who it comes from, by name; the address is that of the settings. */
  fromName?: string;
  /** The same each time that the message is tried: where it came twice, mailboxes show one. */
  messageId?: string;
  attachments?: { filename: string; content: Buffer; contentType: string }[];
}

/** Sends one message; rejects when it was not accepted. */
export type SendEmail = (email: Email) => Promise<void>;

/** A message was not sent. It says why in codes: a server's own words name the recipient, and the queue and the log keep the error. */
export class EmailRefused extends Error {
  readonly reason: string;
  /** It won't have this message, or its recipient, at any time. */
  readonly isFinal: boolean;
  /** Nobody answered, or would have us. */
  readonly isDown: boolean;

  constructor(error: unknown) {
    const { code, command, responseCode } = error as { code?: string; command?: string; responseCode?: number };
    super(`The e-mail was not sent: ${[code, command, responseCode].filter((part) => part !== undefined).join(', ')}`);
    this.reason = `smtp_${String(responseCode ?? code ?? 'error')}`;
    // Another command that is refused is about us, our log-in for example, and will be mended.
    this.isFinal = (responseCode ?? 0) >= 500 && (command === 'RCPT TO' || command === 'DATA');
    this.isDown = responseCode === undefined || code === 'EAUTH';
  }
}

/** A part of a message as it is: the usual encoding breaks lines at 76 characters, and links with them. */
const verbatim = (contentType: string, content: string) => ({
  contentType,
  raw: `Content-Type: ${contentType}; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n${content.replaceAll('\n', '\r\n')}`,
});

/**
 * A way to send e-mail: SMTP where an address is given, else `.eml` files in `outbox`, which mail programs open, and from
 * which people copy links.
 */
export function emailSender(options: { smtpUrl: string | undefined; from: string; outbox: string }): SendEmail {
  const { smtpUrl, from: defaultFrom, outbox } = options;
  const address = /<([^<>]*)>\s*$/.exec(defaultFrom)?.[1] ?? defaultFrom.trim();
  const identity = ({ messageId }: Email) =>
    messageId !== undefined && { messageId: `<${messageId}@${address.replace(/^.*@/, '')}>` };
  const from = ({ fromName }: Email) => (fromName === undefined ? defaultFrom : { name: fromName, address });
  if (smtpUrl) {
    // Who has taken a message may look at it for a while before they say so.
    const transport = createTransport({
      url: smtpUrl,
      connectionTimeout: 10_000,
      greetingTimeout: 10_000,
      socketTimeout: 60_000,
    });
    return async (email) => {
      const { to, subject, text, html, attachments = [] } = email;
      await transport
        .sendMail({ from: from(email), to, subject, text, html, attachments, ...identity(email) })
        .catch((error: unknown) => {
          throw new EmailRefused(error);
        });
    };
  }
  const transport = createTransport({ streamTransport: true, buffer: true });
  return async (email) => {
    const { to, subject, text, html, attachments = [] } = email;
    const alternatives = [verbatim('text/plain', text), verbatim('text/html', html)];
    const { message } = await transport.sendMail({
      from: from(email),
      to,
      subject,
      alternatives,
      attachments,
      ...identity(email),
    });
    await mkdir(outbox, { recursive: true, mode: 0o700 });
    const name = `${new Date().toISOString().replaceAll(':', '-')}-${randomUUID().slice(0, 8)}`;
    await writeFile(join(outbox, `.${name}`), message as Buffer, { mode: 0o600 });
    await rename(join(outbox, `.${name}`), join(outbox, `${name}.eml`));
  };
}
