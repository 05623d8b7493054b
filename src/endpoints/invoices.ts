import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { choice } from '../http/coercion.ts';
import { invoiceFileName } from '../documents/invoice.ts';
import { paymentMethod } from './payments.ts';
import { pdfDownload } from './parts/pdf-download.ts';
import {
  amount,
  date,
  dateOf,
  Deleted,
  flag,
  id,
  ignored,
  includeEnded,
  maxAmount,
  money,
  optionalText,
  pathId,
  text,
  timestamp,
  timestamps,
  withDefault,
} from '../http/schemas.ts';

const status = choice(['draft', 'sent', 'partially_paid', 'paid', 'overdue', 'void']);

/**
 * An amount in ten-thousandths, for exact sums. Also runs on amounts that the schema rejects: 10,000 times as much may
 * be Infinity.
 */
const toUnits = (value: number) =>
  Math.abs(value) < 1e15 ? BigInt(Math.round(value * 10_000)) : BigInt(Math.trunc(value)) * 10_000n;

const ItemInput = z
  .strictObject({
    description: text(500).meta({ examples: ['School trip to the museum'] }),
    amount: money.meta({ description: 'Unit price.' }),
    quantity: withDefault(z.int().min(1).max(1_000_000), 1),
    id: id.optional().meta({ description: 'The item that this is in an update. A new item gets an id.' }),
    line_total: ignored,
  })
  .meta({ id: 'InvoiceItemInput' });

const items = z
  .array(ItemInput)
  .min(1)
  .max(500)
  .refine(
    (all) => all.reduce((sum, item) => sum + toUnits(item.amount) * BigInt(item.quantity), 0n) <= toUnits(maxAmount),
    {
      message: `must add up to at most ${String(maxAmount)}`,
    },
  );

const fields = {
  due_date: dateOf('due'),
  items,
  notes: optionalText(2000).meta({ description: 'Printed on the PDF.' }),
};

const InvoiceInput = z
  .strictObject({
    student_id: id,
    ...fields,
    status: z
      .enum(['draft', 'sent'])
      .optional()
      .meta({ description: '`draft`: create without a number and issue later. Default: issue at once.' }),
  })
  .meta({ id: 'InvoiceInput' });

const InvoiceChange = z.strictObject(fields).partial().meta({
  id: 'InvoiceChange',
  description:
    'Any subset of the fields of an invoice. `items` replace all existing items; an item with an `id` keeps it.',
});

const Invoice = z
  .object({
    id,
    invoice_number: z
      .string()
      .nullable()
      .meta({ description: 'Consecutive within a year. Null for a draft.', examples: ['INV-2026-000042'] }),
    student_id: id,
    student_name: z.string(),
    admission_number: z.string(),
    class_id: id.nullable().meta({ description: 'The class of the student when the invoice was created.' }),
    class_name: z.string().nullable(),
    due_date: date,
    items: z.array(
      z
        .object({
          id,
          description: z.string(),
          amount: amount.meta({ description: 'Unit price.' }),
          quantity: z.int(),
          line_total: amount,
        })
        .meta({ id: 'InvoiceItem' }),
    ),
    total: amount,
    paid_amount: amount,
    balance: amount.meta({ description: 'The amount still to be paid, 0 if the invoice is void.' }),
    status: status.meta({ description: '`overdue`: not paid in full and past its due date.' }),
    issued_at: timestamp.nullable(),
    notes: z.string().nullable(),
    voided_at: timestamp.nullable(),
    void_reason: z.string().nullable(),
    last_reminded_at: timestamp
      .nullable()
      .meta({ description: 'When the last reminder was requested. Null when a student reads it.' }),
    ...timestamps,
  })
  .meta({ id: 'Invoice' });

export const InvoiceWithPayments = Invoice.extend({
  payments: z
    .array(
      z.object({
        id,
        receipt_number: z.string().nullable(),
        amount: amount.meta({ description: 'Negative for a reversal.' }),
        payment_date: date,
        payment_method: z.enum(paymentMethod.options),
        reference_number: z.string().nullable(),
        reversal_of: id.nullable(),
        is_reversed: z.boolean(),
      }),
    )
    .meta({ description: 'Oldest first, including reversals.' }),
}).meta({ id: 'InvoiceWithPayments' });

export const invoices = resource(
  '/fees/invoices',
  'Invoices',
  'Invoices to students. A draft gets its number when it is issued. An issued invoice cannot be deleted, only ' +
    'voided, so that the numbers of a year have no gaps.',
  {
    'GET /': {
      operation: 'invoices_list',
      summary: 'List invoices',
      description:
        'Latest first, without void invoices. `status=void` lists those, `include_ended=true` all. `search` matches ' +
        'the invoice number and the student. A student sees only their own, and no drafts.',
      response: page(
        Invoice,
        {
          student_id: pathId.optional(),
          class_id: pathId.optional().meta({ description: 'The class of the student when the invoice was created.' }),
          status: status.optional(),
          include_ended: includeEnded,
          only_open: flag.optional().meta({ description: '`true`: only invoices that are not paid in full.' }),
          from_date: date.optional().meta({ description: 'Issued on or after this day.' }),
          to_date: date.optional().meta({ description: 'Issued on or before this day.' }),
          due_from: date.optional(),
          due_to: date.optional(),
        },
        { maxDays: Infinity },
      ),
    },
    'POST /': {
      operation: 'invoices_create',
      summary: 'Create an invoice',
      description: 'Issues the invoice at once, with the next number of the year, unless `status` is `draft`.',
      body: InvoiceInput,
      response: created(InvoiceWithPayments),
    },
    'GET /:id': { operation: 'invoices_get', summary: 'Get an invoice', response: json(InvoiceWithPayments) },
    'PUT /:id': {
      operation: 'invoices_update',
      summary: 'Update an invoice',
      description: '409 `invalid_state` if the invoice is void, and for new items if it has payments.',
      body: InvoiceChange,
      response: json(InvoiceWithPayments),
    },
    'DELETE /:id': {
      operation: 'invoices_delete',
      summary: 'Delete an invoice',
      description:
        'Deletes a draft. Voids an issued invoice instead, because its number is in use. 404 if the invoice is ' +
        'void. 409 `invalid_state` if it has payments.',
      response: json(Deleted),
    },
    'POST /:id/issue': {
      operation: 'invoices_issue',
      summary: 'Issue an invoice',
      description: 'Gives a draft the next number of the year. 409 `invalid_state` if the invoice is not a draft.',
      response: json(InvoiceWithPayments),
    },
    'POST /:id/void': {
      operation: 'invoices_void',
      summary: 'Void an invoice',
      description: '409 `invalid_state` if the invoice is a draft, void or has payments.',
      body: z
        .strictObject({ reason: text(500).meta({ examples: ['Billed to the wrong student'] }) })
        .meta({ id: 'InvoiceVoid' }),
      response: json(InvoiceWithPayments),
    },
    'GET /:id/download': {
      ...pdfDownload('invoices_download', 'invoice', invoiceFileName),
      summary: 'Download an invoice as a PDF',
      description: 'Returns the invoice or the receipt for its payments.',
      query: z.strictObject({
        kind: choice(['invoice', 'receipt'])
          .optional()
          .meta({
            description:
              'Default: the receipt if the invoice is paid, else the invoice. 404 `not_found` for a receipt if ' +
              'nothing has been paid.',
          }),
      }),
    },
    'POST /:id/send-reminder': {
      operation: 'invoices_send_reminder',
      summary: 'Send a reminder for an invoice',
      description:
        'Emails the invoice to the parent or, without an address of the parent, to the student, at most once a day. ' +
        'A second request on the same day returns the invoice and sends nothing. 409 `invalid_state` for a draft, a ' +
        'paid or void invoice, and if there is no email address.',
      response: json(InvoiceWithPayments),
    },
  },
);
