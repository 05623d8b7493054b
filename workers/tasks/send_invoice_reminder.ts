import { z } from 'zod';
import type { InvoiceData } from '../../src/documents/invoice.ts';
import { print } from '../../src/documents/print.ts';
import { moneyFormat, writtenDay } from '../../src/domain/money.ts';
import type { Email } from '../email.ts';
import type { TaskContext } from '../task-context.ts';
import { escape } from './send_email.ts';

const Payload = z.object({ tenant_id: z.int(), invoice_id: z.int(), sent_on: z.iso.date() });

/** What `core.invoice_reminder_prepare` answers. */
interface Prepared {
  school: string;
  recipient: { email: string; name: string };
  document: InvoiceData;
}

/** The message in text and HTML, with the invoice beside it. */
function compose({ school, recipient, document }: Prepared, pdf: Buffer): Email {
  const { invoice, currency, letterhead } = document;
  const money = moneyFormat(currency);
  const number = invoice.invoice_number ?? '';
  const due = writtenDay(invoice.due_date);
  const facts = [
    ['Invoice', number],
    ['Student', invoice.student_name],
    ['Total', money(invoice.total)],
    ...(invoice.paid_amount > 0 ? [['Paid', money(invoice.paid_amount)]] : []),
    ['To pay', money(invoice.balance)],
    ['Due', due],
  ] as [string, string][];
  const lead =
    invoice.status === 'overdue'
      ? `this invoice was due on ${due} and is not paid in full.`
      : `this invoice is due on ${due}.`;
  const tail = 'You find it in the attachment. If you have paid it meanwhile, please ignore this message.';
  const signature = [school, letterhead.phone, letterhead.email].filter((line) => line !== null);
  return {
    fromName: school,
    to: { name: recipient.name, address: recipient.email },
    subject: `${school}: Reminder of invoice ${number}`,
    text: `Hello ${recipient.name},\n\n${lead}\n\n${facts.map(([what, value]) => `${what}: ${value}`).join('\n')}\n\n${tail}\n\n${signature.join('\n')}\n`,
    html: `<p>Hello ${escape(recipient.name)},</p><p>${escape(lead)}</p>\
<table>${facts.map(([what, value]) => `<tr><td>${what}</td><td>${escape(value)}</td></tr>`).join('')}</table>\
<p>${tail}</p><p>${signature.map(escape).join('<br>')}</p>`,
    attachments: [{ filename: `${number}.pdf`, content: pdf, contentType: 'application/pdf' }],
  };
}

/**
 * Reminds of an invoice. The payload names it only: who gets what is read when it is sent, and nothing is sent when it was paid or voided
 * meanwhile.
 */
export async function send_invoice_reminder(payload: unknown, context: TaskContext): Promise<void> {
  const { tenant_id, invoice_id, sent_on } = Payload.parse(payload);
  const { rows } = await context.pool.query<{ prepared: Prepared | null }>(
    'select core.invoice_reminder_prepare($1, $2, $3) as prepared',
    [tenant_id, invoice_id, sent_on],
  );
  const prepared = rows[0]?.prepared;
  if (prepared) await context.sendEmail(compose(prepared, await print({ kind: 'invoice', data: prepared.document })));
}
