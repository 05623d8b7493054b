import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { exporter, exportFormat, exportTypes, studentColumns } from '../http/exports.ts';
import { paymentReceipt, pdfType } from '../http/pdf-downloads.ts';
import { amount, date, days, id, money, optionalText, page, pathId, text, timestamps } from '../http/schemas.ts';

/** How something was paid, in the words of the school. */
export const paymentMethod = text(50).meta({ description: 'How it was paid.', examples: ['cash'] });

/** What every payment may say beside its amount. */
export const paymentNotes = {
  payment_date: date
    .optional()
    .meta({ description: 'The day of the payment, today or before; today unless it is given.' }),
  reference_number: optionalText(100).meta({ description: 'The number of a cheque or a transfer, for example.' }),
  notes: optionalText(1000),
};

const PaymentInput = z
  .strictObject({ student_fee_id: id, amount: money, payment_method: paymentMethod, ...paymentNotes })
  .meta({ id: 'PaymentInput' });

const InvoicePaymentInput = z
  .strictObject({ invoice_id: id, amount: money, method: paymentMethod, ...paymentNotes })
  .meta({ id: 'InvoicePaymentInput' });

/** A payment, of a student fee or of an invoice. */
export const Payment = z
  .object({
    id,
    receipt_number: z
      .string()
      .nullable()
      .meta({ description: 'Without gaps in a year, reversals included.', examples: ['RCT-2026-000042'] }),
    kind: z.enum(['student_fee', 'invoice']).meta({ description: 'What it pays.' }),
    student_id: id,
    student_name: z.string(),
    admission_number: z.string(),
    class_id: id.nullable().meta({ description: 'The class that it was billed for.' }),
    class_name: z.string().nullable(),
    student_fee_id: id.nullable(),
    fee_structure_name: z.string().nullable(),
    invoice_id: id.nullable(),
    invoice_number: z.string().nullable(),
    amount: amount.meta({ description: 'Less than 0 for a reversal.' }),
    payment_date: date,
    payment_method: z.string(),
    method: z.string().meta({ description: 'The same as payment_method.' }),
    reference_number: z.string().nullable(),
    notes: z.string().nullable().meta({ description: 'The reason, for a reversal.' }),
    reversal_of: id.nullable().meta({ description: 'The payment that this one takes back.' }),
    is_reversed: z.boolean().meta({ description: 'Whether it was taken back.' }),
    recorded_by: id.nullable(),
    recorded_by_name: z.string().nullable(),
    ...timestamps,
  })
  .meta({ id: 'Payment' });

export const financePayments = resource(
  '/finance/payments',
  'Finance payments',
  'What was paid of student fees. A payment is never changed: a reversal is one more.',
  {
    'POST /': {
      operation: 'payments_create',
      summary: 'Record a payment of a student fee',
      description:
        '409 `conflict` above the balance, which the message names; 409 `invalid_state` for a fee that was waived.',
      body: PaymentInput,
      answer: Payment,
      isCreate: true,
    },
    'GET /:id/receipt': {
      operation: 'payments_receipt',
      summary: 'The receipt of a payment',
      description: 'A PDF, of a payment of either kind. A student reads their own.',
      bytes: [pdfType],
      isTagged: true,
      handler: paymentReceipt,
    },
    'GET /:id': {
      operation: 'payments_get',
      summary: 'Read a payment',
      description: 'Of either kind. A student reads their own.',
      answer: Payment,
    },
    'POST /:id/reverse': {
      operation: 'payments_reverse',
      summary: 'Take a payment back',
      description:
        'Of either kind, once, and all of it: answers the new payment of today with the amount below 0. The fee or invoice owes it again; what was waived stays waived, by so much more.',
      body: z
        .strictObject({
          reason: text(500).meta({
            description: 'Kept as the notes of the reversal.',
            examples: ['The cheque bounced'],
          }),
        })
        .meta({ id: 'PaymentReversal' }),
      answer: Payment,
    },
  },
);

const filters = {
  student_id: pathId.optional(),
  student_fee_id: pathId.optional(),
  invoice_id: pathId.optional(),
  class_id: pathId.optional().meta({ description: 'The class that it was billed for.' }),
  from_date: date.optional(),
  to_date: date.optional(),
  kind: z.enum(['student_fee', 'invoice']).optional(),
  payment_method: paymentMethod.optional(),
};
const listed = days(page(filters, ['payment_date', 'amount', 'receipt_number', 'student_name']));

export const feePayments = resource(
  '/fees/payments',
  'Fee payments',
  'What was paid, of student fees and of invoices.',
  {
    'GET /': {
      operation: 'payments_list',
      summary: 'List payments',
      description:
        'Of student fees and invoices, the latest first, reversals among them. Searches receipt, reference and invoice number, and the student. A student sees their own.',
      query: listed,
      answer: Payment,
      isPage: true,
    },
    'GET /export': {
      operation: 'payments_export',
      summary: 'Export payments',
      description:
        'A .csv or .xlsx of all that the filters of the list let through, the earliest first, reversals among them. For who may see the fees of the whole school.',
      query: days(z.strictObject({ ...exportFormat, search: listed.shape.search, ...filters })),
      bytes: exportTypes,
      handler: exporter('payments_export', {
        name: 'payments',
        columns: [
          { header: 'Receipt', type: 'text', width: 18 },
          { header: 'Date', type: 'date' },
          studentColumns.admissionNumber,
          studentColumns.student,
          studentColumns.class,
          { header: 'For', type: 'text', width: 30 },
          { header: 'Amount', type: 'money' },
          { header: 'Method', type: 'text', width: 14 },
          { header: 'Reference', type: 'text', width: 20 },
          { header: 'Notes', type: 'text', width: 40 },
          { header: 'Reversal of', type: 'text', width: 18 },
          { header: 'Reversed by', type: 'text', width: 18 },
          { header: 'Recorded by', type: 'text', width: 24 },
        ],
      }),
    },
    'POST /': {
      operation: 'payments_create_for_invoice',
      summary: 'Record a payment of an invoice',
      description:
        '409 `conflict` above the balance, which the message names; 409 `invalid_state` for a draft or what is void.',
      body: InvoicePaymentInput,
      answer: Payment,
      isCreate: true,
      locationBase: '/api/finance/payments',
    },
  },
);
