import type { Job } from 'graphile-worker';
import { z } from 'zod';
import type { InvoiceData } from '../../src/documents/invoice.ts';
import { print } from '../../src/documents/print.ts';
import { dayFormat, moneyFormat } from '../../src/domain/money.ts';
import { type Email, withoutLinks } from '../email.ts';
import { sendJobEmail } from '../job-email.ts';
import type { TaskContext } from '../task-context.ts';
import { escapeHtml } from './send_email.ts';

const Payload = z.object({ tenant_id: z.int(), invoice_id: z.int(), sent_on: z.iso.date() });

/** The result of `core.invoice_reminder_prepare`. */
interface Prepared {
  school: string;
  recipient: { email: string; name: string };
  document: InvoiceData;
}

/** The message as text and HTML, with the invoice attached. */
function compose({ school, recipient, document }: Prepared, pdf: Buffer): Email {
  const { invoice, currency, currency_decimals, letterhead } = document;
  const money = moneyFormat(currency, currency_decimals, letterhead.locale);
  const name = withoutLinks(recipient.name);
  const number = invoice.invoice_number ?? '';
  const due = dayFormat(letterhead.locale)(invoice.due_date);
  const details = [
    ['Invoice', number],
    ['Student', invoice.student_name],
    ['Total', money(invoice.total)],
    ...(invoice.paid_amount > 0 ? [['Paid', money(invoice.paid_amount)]] : []),
    ['Open balance', money(invoice.balance)],
    ['Due', due],
  ] as [string, string][];
  const lead =
    invoice.status === 'overdue'
      ? `This invoice was due on ${due} and is not fully paid.`
      : `This invoice is due on ${due}.`;
  const tail = 'The invoice is attached. If you have already paid it, please ignore this message.';
  const rows = details.map(([label, value]) => `<tr><td>${label}</td><td>${escapeHtml(value)}</td></tr>`);
  const signature = [school, letterhead.phone, letterhead.email].filter((line) => line !== null);
  return {
    fromName: school,
    to: { name, address: recipient.email },
    subject: `${school}: Reminder of invoice ${number}`,
    text:
      [
        `Hello ${name},`,
        lead,
        details.map(([label, value]) => `${label}: ${value}`).join('\n'),
        tail,
        signature.join('\n'),
      ].join('\n\n') + '\n',
    html: [
      `<p>Hello ${escapeHtml(name)},</p><p>${escapeHtml(lead)}</p>`,
      `<table>${rows.join('')}</table>`,
      `<p>${tail}</p><p>${signature.map(escapeHtml).join('<br>')}</p>`,
    ].join(''),
    attachments: [{ filename: `${number}.pdf`, content: pdf, contentType: 'application/pdf' }],
  };
}

/**
 * Sends a reminder of an invoice. The payload has only its id: recipient and content are read now, and nothing is sent
 * if the invoice was paid or voided meanwhile.
 */
export async function send_invoice_reminder(payload: unknown, context: TaskContext, job: Job): Promise<void> {
  const { tenant_id, invoice_id, sent_on } = Payload.parse(payload);
  const { rows } = await context.pool.query<{ prepared: Prepared | null }>(
    'select core.invoice_reminder_prepare($1, $2, $3) as prepared',
    [tenant_id, invoice_id, sent_on],
  );
  const prepared = rows[0]?.prepared;
  if (!prepared) return;
  const pdf = await print({ kind: 'invoice', data: prepared.document });
  await sendJobEmail(context, job, compose(prepared, pdf));
}
