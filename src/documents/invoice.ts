import { moneyFormat, writtenDay } from '../domain/money.ts';
import {
  bottom,
  closeDocument,
  colours,
  type Heading,
  type Letterhead,
  margin,
  openDocument,
  printable,
  writeFoot,
  writeHead,
} from './page.ts';
import { cut, type Document, fonts, lineHeight, type TextStyle, wrap, writeLine, writeLines } from './text.ts';

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

/** What `api.invoice_document` answers. */
export interface InvoiceData {
  kind: 'invoice' | 'receipt';
  letterhead: Letterhead;
  printed_on: string;
  currency: string;
  issued_on: string | null;
  voided_on: string | null;
  parent_name: string | null;
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

/** What the operation `payments_receipt` answers. */
export interface PaymentData {
  letterhead: Letterhead;
  printed_on: string;
  currency: string;
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
  /** The receipt of the payment that this one takes back. */
  reverses: string | null;
  reversed_by: string | null;
}

/** The file name of an invoice, or of the receipt for the amount paid so far. */
export const invoiceFileName = ({ kind, invoice: { invoice_number: number, id } }: InvoiceData): string =>
  `${number ?? `Draft ${String(id)}`}${kind === 'receipt' ? ' receipt' : ''}.pdf`;

/** The file name of the receipt of one payment. */
export const receiptFileName = ({ payment: { receipt_number: number, id } }: PaymentData): string =>
  `${number ?? `Payment ${String(id)}`}.pdf`;

/** A piece of a document that stays together on a page. */
interface Block {
  height: number;
  draw: (y: number) => void;
  /** Drawn again where a page begins with this block. */
  header?: Block;
}

interface Column {
  title: string;
  /** Of the width of the page. */
  share: number;
  align: 'left' | 'right';
  /** On one line, in a smaller size where it has to be; else over several. */
  isLine: boolean;
}

const body: TextStyle = { font: 'regular', size: 9 };
const quiet: TextStyle = { font: 'regular', size: 8, colour: colours.quiet };
const bold: TextStyle = { font: 'bold', size: 9 };
const padding = 4;
const line = lineHeight(body.size);

const stateNames = {
  draft: 'Draft',
  sent: 'To be paid',
  partially_paid: 'Partially paid',
  paid: 'Paid',
  overdue: 'Overdue',
  void: 'Void',
};

const pageWidth = (doc: Document) => doc.page.width - 2 * margin;

const gap = (height: number): Block => ({ height, draw: () => undefined });

/** The rows of a table as blocks, its header before the first of them and on top of every page. */
function table(doc: Document, columns: Column[], rows: string[][]): Block[] {
  const width = pageWidth(doc);
  const boxes = columns.map(({ share }, n) => ({
    x: margin + width * columns.slice(0, n).reduce((sum, column) => sum + column.share, 0) + padding,
    width: width * share - 2 * padding,
  }));
  const header: Block = {
    height: line + 2 * padding,
    draw(y) {
      doc.rect(margin, y, width, line + 2 * padding).fill(colours.shade);
      for (const [n, { title, align }] of columns.entries())
        writeLine(doc, title, { ...bold, align }, { x: 0, width: 0, ...boxes[n], y: y + padding });
    },
  };
  return rows.map((given, position) => {
    const cells = given.map((text, n) => {
      const { align = 'left', isLine = true } = columns[n] ?? {};
      const box = { x: 0, width: 0, ...boxes[n] };
      const shown = printable(doc, text);
      return {
        style: { ...body, align },
        box,
        text: shown,
        lines: isLine ? undefined : (wrap(doc, shown, body, box.width, true) ?? []),
      };
    });
    const height = Math.max(1, ...cells.map(({ lines }) => lines?.length ?? 1)) * line + 2 * padding;
    const draw = (y: number) => {
      for (const { style, box, text, lines } of cells) {
        if (lines) writeLines(doc, lines, style, { ...box, y: y + padding });
        else writeLine(doc, text, style, { ...box, y: y + padding }, 4);
      }
      doc
        .lineWidth(0.5)
        .strokeColor(colours.line)
        .moveTo(margin, y + height)
        .lineTo(margin + width, y + height)
        .stroke();
    };
    if (position > 0) return { height, header, draw };
    return {
      height: header.height + height,
      draw(y) {
        header.draw(y);
        draw(y + header.height);
      },
    };
  });
}

/** Whom it is for to the left, what it is about to the right. */
function particulars(doc: Document, title: string, who: string[], facts: [string, string][]): Block {
  const half = pageWidth(doc) / 2 - 10;
  const labels = 92;
  const nameStyle: TextStyle = { font: 'bold', size: 11 };
  const [name = '', ...rest] = who.map((one) => printable(doc, one));
  const names = cut(doc, name, nameStyle, half, 3);
  const others = rest.map((one) => cut(doc, one, body, half, 2));
  const shown = facts.map(([what, value]) => ({
    what,
    lines: cut(doc, printable(doc, value), body, half - labels, 5),
  }));
  const leftHeight =
    14 +
    names.length * lineHeight(nameStyle.size) +
    3 +
    others.reduce((sum, lines) => sum + lines.length * line + 2, 0);
  return {
    height:
      Math.max(
        leftHeight,
        shown.reduce((sum, { lines }) => sum + lines.length * line + 3, 0),
      ) + 16,
    draw(top) {
      writeLine(doc, title, quiet, { x: margin, y: top, width: half });
      let y = writeLines(doc, names, nameStyle, { x: margin, y: top + 14, width: half }) + 3;
      for (const lines of others) y = writeLines(doc, lines, body, { x: margin, y, width: half }) + 2;
      y = top;
      const right = margin + half + 20;
      for (const { what, lines } of shown) {
        writeLine(doc, what, quiet, { x: right, y: y + 0.6, width: labels });
        y = writeLines(doc, lines, body, { x: right + labels, y, width: half - labels }) + 3;
      }
    },
  };
}

/** Sums to the right, the last of them the largest; the stamp has the room to the left. */
function sums(doc: Document, lines: [string, string][], stamp: Stamp | undefined): Block {
  const width = pageWidth(doc) * 0.45;
  const left = margin + pageWidth(doc) - width;
  return {
    height: Math.max(lines.length * 16 + 14, stamp ? 74 : 0),
    draw(top) {
      for (const [n, [what, value]] of lines.entries()) {
        const style: TextStyle = n === lines.length - 1 ? { font: 'bold', size: 11 } : body;
        const y = top + 8 + n * 16;
        writeLine(doc, what, style, { x: left + padding, y, width: width * 0.4 });
        writeLine(doc, value, { ...style, align: 'right' }, { x: left + width * 0.4, y, width: width * 0.6 - padding });
      }
      if (stamp) drawStamp(doc, stamp, margin + 20, top + 22);
    },
  };
}

interface Stamp {
  text: string;
  colour: string;
}

/** As a rubber stamp leaves it: in a frame, a little askew. */
function drawStamp(doc: Document, { text, colour }: Stamp, x: number, y: number): void {
  doc.save().font(fonts.bold).fontSize(24);
  const width = doc.widthOfString(text) + 24;
  doc.rotate(-8, { origin: [x + width / 2, y + 18] }).opacity(0.75);
  doc.lineWidth(2.5).strokeColor(colour).roundedRect(x, y, width, 38, 5).stroke();
  doc.fillColor(colour).text(text, x + 12, y + 5, { lineBreak: false });
  doc.restore().opacity(1);
}

/** Across a page that nobody is to pay or to keep by mistake. */
function drawWatermark(doc: Document, { text, colour }: Stamp): void {
  doc.save().font(fonts.bold).fontSize(110);
  const width = doc.widthOfString(text);
  const [x, y] = [doc.page.width / 2, doc.page.height / 2];
  doc
    .rotate(-45, { origin: [x, y] })
    .opacity(0.09)
    .fillColor(colour);
  doc.text(text, x - width / 2, y - 64, { lineBreak: false });
  doc.restore().opacity(1);
}

/** Lines of text under a title, each a block of its own, so that they go over pages. */
function paragraph(doc: Document, title: string, text: string): Block[] {
  const width = pageWidth(doc);
  const lines = text
    .replace(/\n{3,}/g, '\n\n')
    .split('\n')
    .flatMap((one) => wrap(doc, printable(doc, one), body, width, true) ?? []);
  const above = line + 4;
  return [
    gap(10),
    ...lines.map((one, n): Block => ({
      height: line + (n === 0 ? above : 0),
      draw(y) {
        if (n === 0) writeLine(doc, title, bold, { x: margin, y, width });
        writeLines(doc, [one], body, { x: margin, y: n === 0 ? y + above : y, width });
      },
    })),
  ];
}

/** Puts blocks on as many pages as they need, each with its head, its foot and its number. */
async function onPages(
  doc: Document,
  heading: Heading,
  letterhead: Letterhead,
  blocks: Block[],
  watermark?: Stamp,
): Promise<Buffer> {
  const top = margin + 60;
  const end = bottom(doc) - 4;
  const pages: { block: Block; y: number }[][] = [[]];
  let y = top;
  for (const block of blocks) {
    if (y + block.height > end && y > top) {
      pages.push([]);
      y = top;
      if (block.header) {
        pages.at(-1)?.push({ block: block.header, y });
        y += block.header.height;
      }
    }
    pages.at(-1)?.push({ block, y });
    y += block.height;
  }
  for (const [n, page] of pages.entries()) {
    if (n > 0) doc.addPage();
    if (watermark) drawWatermark(doc, watermark);
    // On every page anew the logo would be in the file as often.
    writeHead(doc, n === 0 ? letterhead : { ...letterhead, logo: null }, heading);
    doc
      .lineWidth(0.8)
      .strokeColor(colours.line)
      .moveTo(margin, top - 10)
      .lineTo(margin + pageWidth(doc), top - 10)
      .stroke();
    for (const { block, y: at } of page) block.draw(at);
    writeFoot(doc, heading);
    const number = `Page ${String(n + 1)} of ${String(pages.length)}`;
    const style: TextStyle = { font: 'regular', size: 7, colour: colours.quiet, align: 'center' };
    writeLine(doc, number, style, {
      x: margin,
      y: doc.page.height - margin - lineHeight(style.size),
      width: pageWidth(doc),
    });
  }
  return closeDocument(doc);
}

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

/** An invoice, or the receipt of what is paid of it. */
export async function invoicePdf(data: InvoiceData): Promise<Buffer> {
  const { invoice, letterhead, kind } = data;
  const { status } = invoice;
  const money = moneyFormat(data.currency);
  const number = invoice.invoice_number ?? 'Draft';
  const isReceipt = kind === 'receipt';
  const heading = { title: isReceipt ? 'Receipt' : 'Invoice', subtitle: number, printed_on: data.printed_on };
  const doc = openDocument({ ...heading, title: `${heading.title} ${number}` }, letterhead, 'portrait');
  const facts: [string, string][] = [
    ['Number', number],
    ...(data.issued_on ? ([['Issued on', writtenDay(data.issued_on)]] as [string, string][]) : []),
    ['Due on', writtenDay(invoice.due_date)],
    ['Status', stateNames[status]],
    ...(data.voided_on ? ([['Voided on', writtenDay(data.voided_on)]] as [string, string][]) : []),
    ...(invoice.void_reason ? ([['Reason', invoice.void_reason]] as [string, string][]) : []),
  ];
  const stamps: Partial<Record<typeof status, Stamp>> = {
    paid: { text: 'PAID', colour: '#1c7c4a' },
    void: { text: 'VOID', colour: '#b3261e' },
    draft: { text: 'DRAFT', colour: '#5f6b7a' },
  };
  const items = table(
    doc,
    [
      { title: 'Description', share: 0.49, align: 'left', isLine: false },
      { title: 'Quantity', share: 0.11, align: 'right', isLine: true },
      { title: 'Price', share: 0.2, align: 'right', isLine: true },
      { title: 'Total', share: 0.2, align: 'right', isLine: true },
    ],
    invoice.items.map((item) => [
      item.description,
      item.quantity.toLocaleString('en'),
      money(item.amount),
      money(item.line_total),
    ]),
  );
  const payments = table(
    doc,
    [
      { title: 'Receipt', share: 0.21, align: 'left', isLine: true },
      { title: 'Paid on', share: 0.18, align: 'left', isLine: true },
      { title: 'Method', share: 0.17, align: 'left', isLine: false },
      { title: 'Reference', share: 0.24, align: 'left', isLine: false },
      { title: 'Amount', share: 0.2, align: 'right', isLine: true },
    ],
    invoice.payments.map((payment) => [
      payment.receipt_number ?? '',
      writtenDay(payment.payment_date),
      payment.reversal_of === null ? payment.payment_method : 'Taken back',
      payment.reference_number ?? '',
      money(payment.amount),
    ]),
  );
  const paid =
    status === 'draft' || status === 'void' ? [] : ([['Paid', money(invoice.paid_amount)]] as [string, string][]);
  const blocks = [
    particulars(
      doc,
      isReceipt ? 'Received for' : 'Bill to',
      studentLines(invoice, invoice.class_name, data.parent_name),
      facts,
    ),
    ...items,
    sums(doc, [['Total', money(invoice.total)], ...paid, ['Balance', money(invoice.balance)]], stamps[status]),
    ...(payments.length > 0 ? [gap(6), ...payments] : []),
    ...(invoice.notes ? paragraph(doc, 'Notes', invoice.notes) : []),
  ];
  return onPages(doc, heading, letterhead, blocks, status === 'paid' ? undefined : stamps[status]);
}

/** The receipt of one payment, or of one that was taken back. */
export async function paymentPdf(data: PaymentData): Promise<Buffer> {
  const { payment, letterhead } = data;
  const money = moneyFormat(data.currency);
  const number = payment.receipt_number ?? '';
  const isReversal = payment.reversal_of !== null;
  const heading = { title: isReversal ? 'Reversal' : 'Receipt', subtitle: number, printed_on: data.printed_on };
  const doc = openDocument({ ...heading, title: `${heading.title} ${number}` }, letterhead, 'portrait');
  const purpose = payment.invoice_number ? `Invoice ${payment.invoice_number}` : (payment.fee_structure_name ?? '');
  const facts = (
    [
      ['Number', number],
      ['Date', writtenDay(payment.payment_date)],
      ['Method', payment.payment_method],
      ['Reference', payment.reference_number],
      ['Takes back', data.reverses],
      ['Taken back by', data.reversed_by],
      ['Recorded by', payment.recorded_by_name],
    ] as [string, string | null][]
  ).filter((fact): fact is [string, string] => fact[1] !== null && fact[1] !== '');
  const stamp = payment.is_reversed
    ? { text: 'REVERSED', colour: '#b3261e' }
    : isReversal
      ? undefined
      : { text: 'PAID', colour: '#1c7c4a' };
  const columns: Column[] = [
    { title: isReversal ? 'Taken back from' : 'Paid for', share: 0.7, align: 'left', isLine: false },
    { title: 'Amount', share: 0.3, align: 'right', isLine: true },
  ];
  const blocks = [
    particulars(
      doc,
      isReversal ? 'Given back to' : 'Received from',
      studentLines(payment, data.class_name, data.parent_name),
      facts,
    ),
    ...table(doc, columns, [[purpose, money(payment.amount)]]),
    sums(doc, [[isReversal ? 'Taken back' : 'Received', money(payment.amount)]], stamp),
    ...(payment.notes ? paragraph(doc, isReversal ? 'Reason' : 'Notes', payment.notes) : []),
  ];
  return onPages(doc, heading, letterhead, blocks, payment.is_reversed ? stamp : undefined);
}
