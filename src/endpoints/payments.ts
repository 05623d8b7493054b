import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { choice, withAlias } from '../http/coercion.ts';
import { exported, exportFormat } from './parts/exports.ts';
import { receiptFileName } from '../documents/invoice.ts';
import { pdfDownload } from './parts/pdf-download.ts';
import {
  amount,
  date,
  dateOf,
  dateRange,
  id,
  optionalNameText,
  optionalText,
  pathId,
  payableMoney,
  search,
  text,
  timestamps,
} from '../http/schemas.ts';
import { studentColumns } from './parts/student-columns.ts';

export const paymentMethod = choice(['cash', 'check', 'card', 'bank_transfer', 'mobile_money', 'online', 'other'], {
  synonyms: {
    check: ['cheque'],
    card: ['credit card', 'debit card', 'bank card', 'credit', 'debit', 'visa', 'mastercard', 'pos'],
    bank_transfer: ['bank', 'transfer', 'wire', 'wire transfer', 'bank deposit', 'direct debit', 'eft', 'ach', 'sepa'],
    mobile_money: ['mobile', 'mobile payment', 'mobile wallet', 'momo', 'mpesa'],
    online: ['online payment', 'internet', 'web', 'wallet', 'upi', 'paypal', 'stripe'],
  },
}).meta({ examples: ['cash'] });

/** The optional fields of a payment. */
export const optionalPaymentFields = {
  payment_date: dateOf('payment', 'Default: today.').optional(),
  reference_number: optionalNameText(100).meta({
    description: 'For example the number of a check or a bank transfer.',
  }),
  notes: optionalText(1000),
};

const otherName = (name: string) => paymentMethod.optional().meta({ description: `Another name of \`${name}\`.` });

const PaymentInput = withAlias(
  z.strictObject({
    student_fee_id: id,
    amount: payableMoney,
    payment_method: paymentMethod,
    method: otherName('payment_method'),
    ...optionalPaymentFields,
  }),
  'method',
  'payment_method',
).meta({ id: 'PaymentInput' });

const InvoicePaymentInput = withAlias(
  z.strictObject({
    invoice_id: id,
    amount: payableMoney,
    method: paymentMethod,
    payment_method: otherName('method'),
    ...optionalPaymentFields,
  }),
  'payment_method',
  'method',
).meta({ id: 'InvoicePaymentInput' });

/** A payment, of a student fee or of an invoice. */
export const Payment = z
  .object({
    id,
    receipt_number: z
      .string()
      .nullable()
      .meta({ description: 'Consecutive within a year, including reversals.', examples: ['RCT-2026-000042'] }),
    kind: z
      .enum(['student_fee', 'invoice'])
      .meta({ description: 'Whether the payment is for a student fee or an invoice.' }),
    student_id: id,
    student_name: z.string(),
    admission_number: z.string(),
    class_id: id.nullable().meta({ description: 'The class of the student at billing.' }),
    class_name: z.string().nullable(),
    student_fee_id: id.nullable(),
    fee_structure_name: z.string().nullable(),
    invoice_id: id.nullable(),
    invoice_number: z.string().nullable(),
    amount: amount.meta({ description: 'Negative for a reversal.' }),
    payment_date: date,
    payment_method: z.enum(paymentMethod.options),
    method: z.enum(paymentMethod.options).meta({ description: 'Same as `payment_method`.' }),
    reference_number: z.string().nullable(),
    notes: z.string().nullable().meta({ description: 'For a reversal: the reason.' }),
    reversal_of: id.nullable().meta({ description: 'The payment that this one reverses.' }),
    is_reversed: z.boolean().meta({ description: 'Whether the payment has been reversed.' }),
    recorded_by: id.nullable(),
    recorded_by_name: z.string().nullable(),
    ...timestamps,
  })
  .meta({ id: 'Payment' });

export const financePayments = resource(
  '/finance/payments',
  'Finance payments',
  'Payments of student fees, and reversals and receipts of all payments. A payment never changes: a reversal is a ' +
    'new payment with a negative amount.',
  {
    'POST /': {
      operation: 'payments_create',
      summary: 'Create a payment of a student fee',
      description:
        '409 `conflict` if the amount exceeds the balance; the message names the balance. 409 `invalid_state` if ' +
        'the fee is waived.',
      body: PaymentInput,
      response: created(Payment),
    },
    'GET /:id/receipt': {
      ...pdfDownload('payments_receipt', 'payment', receiptFileName),
      summary: 'Download the receipt of a payment',
      description: 'A PDF. For payments of student fees and of invoices. A student can get only their own.',
    },
    'GET /:id': {
      operation: 'payments_get',
      summary: 'Get a payment',
      description: 'For payments of student fees and of invoices. A student can get only their own.',
      response: json(Payment),
    },
    'POST /:id/reverse': {
      operation: 'payments_reverse',
      summary: 'Reverse a payment',
      description:
        'Reverses a payment of a student fee or an invoice in full. Returns a new payment of today with the ' +
        'negative amount. The amount is owed again, unless the fee is waived. 409 `conflict` for a reversal or a ' +
        'payment that is already reversed.',
      body: z
        .strictObject({
          reason: text(500).meta({
            description: 'Kept as the notes of the reversal.',
            examples: ['The check bounced'],
          }),
        })
        .meta({ id: 'PaymentReversal' }),
      response: json(Payment),
    },
  },
);

const filters = {
  student_id: pathId.optional(),
  student_fee_id: pathId.optional(),
  invoice_id: pathId.optional(),
  class_id: pathId.optional().meta({ description: 'The class of the student at billing.' }),
  from_date: date.optional(),
  to_date: date.optional(),
  kind: choice(['student_fee', 'invoice']).optional(),
  payment_method: paymentMethod.optional(),
  method: otherName('payment_method'),
};

export const feePayments = resource('/fees/payments', 'Fee payments', 'Payments of student fees and of invoices.', {
  'GET /': {
    operation: 'payments_list',
    summary: 'List payments',
    description:
      'Payments of student fees and invoices, including reversals, latest first. `search` matches receipt, ' +
      'reference and invoice number, and the student. A student sees only their own.',
    response: page(Payment, filters, { maxDays: Infinity }),
  },
  'GET /export': {
    operation: 'payments_export',
    summary: 'Export payments',
    description:
      'A .csv or .xlsx file with all payments that match the filters, including reversals, oldest first. 403 ' +
      '`forbidden` for users who may not see the whole school.',
    query: dateRange(z.strictObject({ ...exportFormat, search, ...filters })),
    response: exported('payments_export', {
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
    summary: 'Create a payment of an invoice',
    description:
      '409 `conflict` if the amount exceeds the balance; the message names the balance. 409 `invalid_state` if the ' +
      'invoice is a draft or void.',
    body: InvoicePaymentInput,
    response: created(Payment, { location: '/api/finance/payments' }),
  },
});
