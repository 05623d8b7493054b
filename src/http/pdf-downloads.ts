import type { InvoiceData, PaymentData } from '../documents/invoice.ts';
import { print, type Printer } from '../documents/print.ts';
import type { Request } from 'express';
import type { Handler } from './endpoint.ts';
import { asker } from '../concurrency/concurrency-limit.ts';

export const pdfType = 'application/pdf';

/** Who asks for something printed. */
export const printer = (req: Pick<Request, 'claims'>, signal: AbortSignal): Printer => ({ ...asker(req), signal });

/** Answers an invoice, or the receipt of what is paid of it, as a PDF. */
export const invoiceDownload: Handler = async ({ req, params, call }) => {
  const answer = await call('invoices_download', params);
  const data = JSON.parse(answer) as InvoiceData;
  const { invoice_number: number, id } = data.invoice;
  const name = `${number ?? `Draft ${String(id)}`}${data.kind === 'receipt' ? ' receipt' : ''}.pdf`;
  return {
    name,
    contentType: pdfType,
    etagSource: answer,
    content: (signal) => print({ kind: 'invoice', data }, printer(req, signal)),
  };
};

/** Answers the receipt of one payment as a PDF. */
export const paymentReceipt: Handler = async ({ req, params, call }) => {
  const answer = await call('payments_receipt', params);
  const data = JSON.parse(answer) as PaymentData;
  const name = `${data.payment.receipt_number ?? `Payment ${String(data.payment.id)}`}.pdf`;
  return {
    name,
    contentType: pdfType,
    etagSource: answer,
    content: (signal) => print({ kind: 'payment', data }, printer(req, signal)),
  };
};
