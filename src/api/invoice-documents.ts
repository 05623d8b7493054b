import type { InvoiceData, PaymentData } from '../documents/invoice.ts';
import { print } from '../documents/print.ts';
import type { Handler } from './endpoint.ts';

export const pdfType = 'application/pdf';

/** Answers an invoice, or the receipt of what is paid of it, as a PDF. */
export const invoiceDownload: Handler = async ({ params, call }) => {
  const answer = await call('invoices_download', params);
  const data = JSON.parse(answer) as InvoiceData;
  const { invoice_number: number, id } = data.invoice;
  const name = `${number ?? `Draft ${String(id)}`}${data.kind === 'receipt' ? ' receipt' : ''}.pdf`;
  return { name, contentType: pdfType, madeOf: answer, content: () => print({ kind: 'invoice', data }) };
};

/** Answers the receipt of one payment as a PDF. */
export const paymentReceipt: Handler = async ({ params, call }) => {
  const answer = await call('payments_receipt', params);
  const data = JSON.parse(answer) as PaymentData;
  const name = `${data.payment.receipt_number ?? `Payment ${String(data.payment.id)}`}.pdf`;
  return { name, contentType: pdfType, madeOf: answer, content: () => print({ kind: 'payment', data }) };
};
