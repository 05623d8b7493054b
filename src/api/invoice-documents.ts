import { type InvoiceDocument, invoicePdf, type PaymentDocument } from '../documents/invoice.ts';
import type { Handler } from './endpoint.ts';

export const pdfType = 'application/pdf';

/** Answers an invoice, or the receipt of what is paid of it, as a PDF. */
export const invoiceDownload: Handler = async ({ params, call }) => {
  const document = JSON.parse(await call('invoices_download', params)) as InvoiceDocument;
  const { invoice_number: number, id } = document.invoice;
  const name = `${number ?? `Draft ${String(id)}`}${document.kind === 'receipt' ? ' receipt' : ''}.pdf`;
  return { name, contentType: pdfType, content: await invoicePdf(document) };
};

/** Answers the receipt of one payment as a PDF. */
export const paymentReceipt: Handler = async ({ params, call }) => {
  const document = JSON.parse(await call('payments_receipt', params)) as PaymentDocument;
  return {
    name: `${document.payment.receipt_number ?? `Payment ${String(document.payment.id)}`}.pdf`,
    contentType: pdfType,
    content: await invoicePdf(document),
  };
};
