import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { invoiceDownload, pdfType } from '../http/pdf-downloads.ts';
import {
  amount,
  date,
  days,
  Deleted,
  flag,
  id,
  money,
  optionalText,
  page,
  pathId,
  text,
  timestamp,
  timestamps,
} from '../http/schemas.ts';

const status = z.enum(['draft', 'sent', 'partially_paid', 'paid', 'overdue', 'void']);

/** An amount in hundredths, so that sums are exact. This is also asked of what its own schema refuses: a hundred times as much may be no number. */
const cents = (of: number) => (Math.abs(of) < 1e15 ? BigInt(Math.round(of * 100)) : BigInt(of) * 100n);

const ItemInput = z
  .strictObject({
    description: text(500).meta({ examples: ['School trip to the museum'] }),
    amount: money.meta({ description: 'The price of one.' }),
    quantity: z.int().min(1).max(1_000_000).default(1),
    id: id.optional().meta({ description: 'Ignored: an item may be sent back as it was read.' }),
    line_total: amount.optional().meta({ description: 'May be sent, and is then amount × quantity.' }),
  })
  .refine(
    (item) => item.line_total === undefined || cents(item.line_total) === cents(item.amount) * BigInt(item.quantity),
    {
      path: ['line_total'],
      message: 'must be amount × quantity',
    },
  )
  .meta({ id: 'InvoiceItemInput' });

const maxTotal = 9_999_999_999.99;

const items = z
  .array(ItemInput)
  .min(1)
  .max(500)
  .refine((all) => all.reduce((sum, item) => sum + cents(item.amount) * BigInt(item.quantity), 0n) <= cents(maxTotal), {
    message: `must come to at most ${String(maxTotal)}`,
  });

const fields = {
  due_date: date,
  items,
  notes: optionalText(2000).meta({ description: 'Stands on the document.' }),
};

const InvoiceInput = z
  .strictObject({
    student_id: id,
    ...fields,
    status: z
      .enum(['draft', 'sent'])
      .optional()
      .meta({ description: 'A draft gets its number when it is issued; without it the invoice is issued at once.' }),
  })
  .meta({ id: 'InvoiceInput' });

const InvoiceChange = z
  .strictObject(fields)
  .partial()
  .meta({ id: 'InvoiceChange', description: 'Any of the fields; `items` replace those before.' });

const Invoice = z
  .object({
    id,
    invoice_number: z
      .string()
      .nullable()
      .meta({ description: 'Without gaps in a year; null for a draft.', examples: ['INV-2026-000042'] }),
    student_id: id,
    student_name: z.string(),
    admission_number: z.string(),
    class_id: id.nullable().meta({ description: 'The class of the student when it was made.' }),
    class_name: z.string().nullable(),
    due_date: date,
    items: z.array(
      z.object({
        id,
        description: z.string(),
        amount: amount.meta({ description: 'The price of one.' }),
        quantity: z.int(),
        line_total: amount,
      }),
    ),
    total: amount,
    paid_amount: amount,
    balance: amount.meta({ description: 'What is left to pay; 0 when it is void.' }),
    status: status.meta({ description: '`overdue`: not paid in full and its day has passed.' }),
    issued_at: timestamp.nullable(),
    notes: z.string().nullable(),
    voided_at: timestamp.nullable(),
    void_reason: z.string().nullable(),
    last_reminded_at: timestamp
      .nullable()
      .meta({ description: 'When the last reminder was asked for; null for a student.' }),
    ...timestamps,
  })
  .meta({ id: 'Invoice' });

export const InvoiceWithPayments = Invoice.extend({
  payments: z
    .array(
      z.object({
        id,
        receipt_number: z.string().nullable(),
        amount: amount.meta({ description: 'Less than 0 for a reversal.' }),
        payment_date: date,
        payment_method: z.string(),
        reference_number: z.string().nullable(),
        reversal_of: id.nullable(),
        is_reversed: z.boolean(),
      }),
    )
    .meta({ description: 'In their order, reversals among them.' }),
}).meta({ id: 'InvoiceWithPayments' });

export const invoices = resource(
  '/fees/invoices',
  'Invoices',
  'Bills to students. A draft has no number; an issued one has, and is voided at most, so that the numbers of a year have no gaps.',
  {
    'GET /': {
      operation: 'invoices_list',
      summary: 'List invoices',
      description: 'The last made first. Searches number and student. A student sees their own, and no drafts.',
      query: days(
        page(
          {
            student_id: pathId.optional(),
            class_id: pathId.optional().meta({ description: 'The class of the student when it was made.' }),
            status: status.optional(),
            only_open: flag.optional().meta({ description: 'true: only what is still to be paid.' }),
            from_date: date.optional().meta({ description: 'Issued on this day or after.' }),
            to_date: date.optional().meta({ description: 'Issued on this day or before.' }),
            due_from: date.optional(),
            due_to: date.optional(),
          },
          ['created_at', 'issued_at', 'invoice_number', 'due_date', 'total', 'balance', 'student_name'],
        ),
      ),
      answer: Invoice,
      isPage: true,
    },
    'POST /': {
      operation: 'invoices_create',
      summary: 'Make an invoice',
      description: 'Issued at once, with its number, unless `status` is `draft`.',
      body: InvoiceInput,
      answer: InvoiceWithPayments,
      isCreate: true,
    },
    'GET /:id': { operation: 'invoices_get', summary: 'Read an invoice', answer: InvoiceWithPayments },
    'PUT /:id': {
      operation: 'invoices_update',
      summary: 'Change an invoice',
      description: '409 `invalid_state` once something is paid of it or it is void.',
      body: InvoiceChange,
      answer: InvoiceWithPayments,
    },
    'DELETE /:id': {
      operation: 'invoices_delete',
      summary: 'Remove an invoice',
      description:
        'A draft goes. An issued one becomes void, since its number is used; 409 `invalid_state` once something is paid of it.',
      answer: Deleted,
    },
    'POST /:id/issue': {
      operation: 'invoices_issue',
      summary: 'Issue a draft',
      description: 'Gives it its number.',
      answer: InvoiceWithPayments,
    },
    'POST /:id/void': {
      operation: 'invoices_void',
      summary: 'Void an invoice',
      description: 'Only one that is issued and of which nothing is paid.',
      body: z
        .strictObject({ reason: text(500).meta({ examples: ['Billed to the wrong student'] }) })
        .meta({ id: 'InvoiceVoid' }),
      answer: InvoiceWithPayments,
    },
    'GET /:id/download': {
      operation: 'invoices_download',
      summary: 'An invoice as a PDF',
      description: 'The bill, or the receipt of what is paid of it.',
      query: z.strictObject({
        kind: z.enum(['invoice', 'receipt']).optional().meta({
          description: 'The receipt once all is paid, else the invoice. 404 for a receipt when nothing is paid.',
        }),
      }),
      bytes: [pdfType],
      isTagged: true,
      handler: invoiceDownload,
    },
    'POST /:id/send-reminder': {
      operation: 'invoices_send_reminder',
      summary: 'Remind of an invoice by e-mail',
      description:
        `Sends the invoice to the parent, else to the student, once a day at most: a second request on a day answers the same and sends nothing.
409 \`invalid_state\` for a draft, a paid or a void one, and when nobody has an address.`.replaceAll('\n', ' '),
      answer: InvoiceWithPayments,
    },
  },
);
