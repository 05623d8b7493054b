import { addressBlock, type Column, gap, paginate, paidStamp, paragraph, type Stamp, table, totals } from './blocks.ts';
import { localFormats } from './local-formats.ts';
import { type Heading, type Letterhead, openDocument } from './page.ts';

interface Payment {
  id: number;
  receipt_number: string | null;
  amount: number;
  payment_date: string;
  payment_method: string;
  reference_number: string | null;
  reversal_of: number | null;
  is_reversed: boolean;
}

/** The answer of `api.invoice_document`. */
export interface InvoiceData {
  kind: 'invoice' | 'receipt';
  letterhead: Letterhead;
  printed_on: string;
  currency: string;
  /** The decimals of the currency. */
  currency_decimals: number;
  issued_on: string | null;
  voided_on: string | null;
  parent_name: string | null;
  /** How to pay the school. */
  payment_details: string | null;
  invoice: {
    id: number;
    invoice_number: string | null;
    student_name: string;
    admission_number: string;
    class_name: string | null;
    due_date: string;
    items: { description: string; amount: number; quantity: number; line_total: number }[];
    total: number;
    paid_amount: number;
    balance: number;
    status: 'draft' | 'sent' | 'partially_paid' | 'paid' | 'overdue' | 'void';
    notes: string | null;
    void_reason: string | null;
    payments: Payment[];
  };
}

/** The answer of the operation `payments_receipt`. */
export interface PaymentData {
  letterhead: Letterhead;
  printed_on: string;
  currency: string;
  /** The decimals of the currency. */
  currency_decimals: number;
  payment: Payment & {
    student_name: string;
    admission_number: string;
    fee_structure_name: string | null;
    invoice_number: string | null;
    notes: string | null;
    recorded_by_name: string | null;
  };
  class_name: string | null;
  parent_name: string | null;
  /** The student fee that is paid. Functions of an earlier release do not answer it. */
  fee?: { amount: number; discount_amount: number; net_amount: number } | null;
  /** The receipt number of the payment that this one reverses. */
  reverses: string | null;
  reversed_by: string | null;
}

/** The file name of an invoice, or of the receipt for the amount paid so far. */
export const invoiceFileName = ({ kind, invoice: { invoice_number: number, id } }: InvoiceData): string =>
  `${number ?? `Draft ${String(id)}`}${kind === 'receipt' ? ' receipt' : ''}.pdf`;

/** The file name of the receipt of one payment. */
export const receiptFileName = ({ payment: { receipt_number: number, id } }: PaymentData): string =>
  `${number ?? `Payment ${String(id)}`}.pdf`;

const stateNames = {
  draft: 'Draft',
  sent: 'To be paid',
  partially_paid: 'Partially paid',
  paid: 'Paid',
  overdue: 'Overdue',
  void: 'Void',
};

const studentLines = (
  student: { student_name: string; admission_number: string },
  className: string | null,
  parent: string | null,
): string[] => [
  student.student_name,
  ...(parent ? [`c/o ${parent}`] : []),
  `Admission number ${student.admission_number}`,
  ...(className ? [`Class ${className}`] : []),
];

/** An invoice, or the receipt for the amount paid so far. */
export async function invoicePdf(data: InvoiceData): Promise<Buffer> {
  const { invoice, letterhead, kind } = data;
  const { status } = invoice;
  const number = invoice.invoice_number ?? 'Draft';
  const isReceipt = kind === 'receipt';
  const heading: Heading = {
    title: isReceipt ? 'Receipt' : 'Invoice',
    titleLanguage: 'en',
    subtitle: number,
    printed_on: data.printed_on,
  };
  const doc = openDocument({ ...heading, title: `${heading.title} ${number}` }, letterhead, 'portrait');
  const formats = localFormats(doc, letterhead.locale);
  const { day } = formats;
  const money = formats.money(data.currency, data.currency_decimals);
  const facts: [string, string][] = [
    ['Number', number],
    ...(data.issued_on ? ([['Issued on', day(data.issued_on)]] as [string, string][]) : []),
    ['Due on', day(invoice.due_date)],
    ['Status', stateNames[status]],
    ...(data.voided_on ? ([['Voided on', day(data.voided_on)]] as [string, string][]) : []),
    ...(invoice.void_reason ? ([['Reason', invoice.void_reason]] as [string, string][]) : []),
  ];
  const watermarks: Partial<Record<typeof status, Stamp>> = {
    void: { text: 'VOID', color: '#b3261e' },
    draft: { text: 'DRAFT', color: '#5f6b7a' },
  };
  const isOwed = status === 'sent' || status === 'partially_paid' || status === 'overdue';
  const items = table(
    doc,
    [
      { title: 'Description', share: 0.49, align: 'left', isSingleLine: false },
      { title: 'Quantity', share: 0.11, align: 'right', isSingleLine: true },
      { title: 'Price', share: 0.2, align: 'right', isSingleLine: true },
      { title: 'Total', share: 0.2, align: 'right', isSingleLine: true },
    ],
    invoice.items.map((item) => [
      item.description,
      formats.number(item.quantity),
      money(item.amount),
      money(item.line_total),
    ]),
  );
  const payments = table(
    doc,
    [
      { title: 'Receipt', share: 0.21, align: 'left', isSingleLine: true },
      { title: 'Paid on', share: 0.18, align: 'left', isSingleLine: true },
      { title: 'Method', share: 0.17, align: 'left', isSingleLine: false },
      { title: 'Reference', share: 0.24, align: 'left', isSingleLine: false },
      { title: 'Amount', share: 0.2, align: 'right', isSingleLine: true },
    ],
    invoice.payments.map((payment) => [
      payment.receipt_number ?? '',
      day(payment.payment_date),
      payment.reversal_of === null ? payment.payment_method : 'Reversal',
      payment.reference_number ?? '',
      money(payment.amount),
    ]),
  );
  const paid =
    status === 'draft' || status === 'void' ? [] : ([['Paid', money(invoice.paid_amount)]] as [string, string][]);
  const blocks = [
    addressBlock(
      doc,
      isReceipt ? 'Received from' : 'Bill to',
      studentLines(invoice, invoice.class_name, data.parent_name),
      facts,
    ),
    ...items,
    totals(
      doc,
      [['Total', money(invoice.total)], ...paid, ['Balance', money(invoice.balance)]],
      status === 'paid' ? paidStamp : undefined,
    ),
    ...(payments.length > 0 ? [gap(6), ...payments] : []),
    ...(isOwed && !isReceipt && data.payment_details
      ? paragraph(doc, 'How to pay', `${data.payment_details}\nReference: ${number}`)
      : []),
    ...(invoice.notes ? paragraph(doc, 'Notes', invoice.notes) : []),
  ];
  return paginate(doc, heading, letterhead, blocks, watermarks[status]);
}

/** The receipt of a payment or of a reversal. */
export async function paymentPdf(data: PaymentData): Promise<Buffer> {
  const { payment, letterhead } = data;
  const number = payment.receipt_number ?? '';
  const isReversal = payment.reversal_of !== null;
  const heading: Heading = {
    title: isReversal ? 'Reversal' : 'Receipt',
    titleLanguage: 'en',
    subtitle: number,
    printed_on: data.printed_on,
  };
  const title = [heading.title, number].filter(Boolean).join(' ');
  const doc = openDocument({ ...heading, title }, letterhead, 'portrait');
  const formats = localFormats(doc, letterhead.locale);
  const { day } = formats;
  const money = formats.money(data.currency, data.currency_decimals);
  const purpose = payment.invoice_number ? `Invoice ${payment.invoice_number}` : (payment.fee_structure_name ?? '');
  const facts = (
    [
      ['Number', number],
      ['Date', day(payment.payment_date)],
      ['Method', payment.payment_method],
      ['Reference', payment.reference_number],
      ['Reverses', data.reverses],
      ['Reversed by', data.reversed_by],
      ['Recorded by', payment.recorded_by_name],
    ] as [string, string | null][]
  ).filter((fact): fact is [string, string] => fact[1] !== null && fact[1] !== '');
  if (data.fee && data.fee.discount_amount > 0)
    facts.push(
      ['Fee', money(data.fee.amount)],
      ['Discount', money(-data.fee.discount_amount)],
      ['Net fee', money(data.fee.net_amount)],
    );
  const stamp = payment.is_reversed || isReversal ? undefined : paidStamp;
  const watermark = payment.is_reversed ? { text: 'REVERSED', color: '#b3261e' } : undefined;
  const columns: Column[] = [
    { title: isReversal ? 'Reversal of payment for' : 'Paid for', share: 0.7, align: 'left', isSingleLine: false },
    { title: 'Amount', share: 0.3, align: 'right', isSingleLine: true },
  ];
  const blocks = [
    addressBlock(
      doc,
      isReversal ? 'Reversed for' : 'Received from',
      studentLines(payment, data.class_name, data.parent_name),
      facts,
    ),
    ...table(doc, columns, [[purpose, money(payment.amount)]]),
    totals(doc, [[isReversal ? 'Reversed' : 'Received', money(payment.amount)]], stamp),
    ...(payment.notes ? paragraph(doc, isReversal ? 'Reason' : 'Notes', payment.notes) : []),
  ];
  return paginate(doc, heading, letterhead, blocks, watermark);
}
