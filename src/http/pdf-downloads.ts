import type { Request } from 'express';
import { requestOwner } from '../concurrency/concurrency-limit.ts';
import { type InvoiceData, invoiceFileName, type PaymentData, receiptFileName } from '../documents/invoice.ts';
import { print, type PrintRequest } from '../documents/print.ts';
import type { Handler } from './endpoint.ts';

export const pdfType = 'application/pdf';

export const printRequest = (req: Pick<Request, 'claims'>, signal: AbortSignal): PrintRequest => ({
  ...requestOwner(req),
  signal,
});

/** Answers an invoice, or the receipt for the amount paid so far, as a PDF. */
export const invoiceDownload: Handler = async ({ req, params, call }) => {
  const answer = await call('invoices_download', params);
  const data = JSON.parse(answer) as InvoiceData;
  return {
    name: invoiceFileName(data),
    contentType: pdfType,
    etagSource: answer,
    content: (signal) => print({ kind: 'invoice', data }, printRequest(req, signal)),
  };
};

/** Answers the receipt of one payment as a PDF. */
export const paymentReceipt: Handler = async ({ req, params, call }) => {
  const answer = await call('payments_receipt', params);
  const data = JSON.parse(answer) as PaymentData;
  return {
    name: receiptFileName(data),
    contentType: pdfType,
    etagSource: answer,
    content: (signal) => print({ kind: 'payment', data }, printRequest(req, signal)),
  };
};
