import { localFormats } from './local-formats.ts';
import {
  closeDocument,
  colors,
  contentBottom,
  type Heading,
  type Letterhead,
  margin,
  openDocument,
  printable,
  writeFooter,
  writeHeader,
} from './page.ts';
import { addElement, contentsOf, drawDecoration, drawElement, drawInto, type Element, english } from './tags.ts';
import { type Document, fonts, lineHeight, type TextStyle, truncate, wrap, writeLine, writeLines } from './text.ts';

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

/** A part of a document that is not split between pages. */
interface Block {
  height: number;
  draw: (y: number) => void;
  /** Drawn again if a page starts with this block. */
  header?: Block;
}

interface Column {
  title: string;
  /** Fraction of the width of the page. */
  share: number;
  align: 'left' | 'right';
  /** Whether the text is reduced to fit on one line instead of being wrapped. */
  isSingleLine: boolean;
}

const body: TextStyle = { font: 'regular', size: 9 };
const quiet: TextStyle = { font: 'regular', size: 8, color: colors.quiet };
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

/** The rows of a table as blocks. The header precedes the first row and is repeated on every page. */
function table(doc: Document, columns: Column[], rows: string[][]): Block[] {
  const width = pageWidth(doc);
  const boxes = columns.map(({ share }, n) => ({
    x: margin + width * columns.slice(0, n).reduce((sum, column) => sum + column.share, 0) + padding,
    width: width * share - 2 * padding,
  }));
  // Created when the first row is drawn, so that elements are in the order of the page.
  let element: Element | undefined;
  const drawTitles = (y: number) => {
    drawDecoration(doc, () => doc.rect(margin, y, width, line + 2 * padding).fill(colors.shade));
    element ??= addElement(doc, contentsOf(doc), 'Table');
    const titles = addElement(doc, element, 'TR');
    for (const [n, { title, align }] of columns.entries())
      drawElement(
        doc,
        titles,
        'TH',
        () => writeLine(doc, title, { ...bold, align }, { x: 0, width: 0, ...boxes[n], y: y + padding }),
        { scope: 'Column', ...english },
      );
  };
  const header: Block = {
    height: line + 2 * padding,
    draw: (y) => drawDecoration(doc, () => drawTitles(y), 'Pagination'),
  };
  return rows.map((row, position) => {
    const cells = row.map((text, n) => {
      const { align = 'left', isSingleLine = true } = columns[n] ?? {};
      const box = { x: 0, width: 0, ...boxes[n] };
      const shown = printable(doc, text);
      return {
        style: { ...body, align },
        box,
        text: shown,
        lines: isSingleLine ? undefined : (wrap(doc, shown, body, box.width, true) ?? []),
      };
    });
    const height = Math.max(1, ...cells.map(({ lines }) => lines?.length ?? 1)) * line + 2 * padding;
    const draw = (y: number) => {
      element ??= addElement(doc, contentsOf(doc), 'Table');
      const tableRow = addElement(doc, element, 'TR');
      for (const { style, box, text, lines } of cells) {
        const cell = addElement(doc, tableRow, 'TD');
        if (text === '') continue;
        drawInto(doc, cell, 'TD', () => {
          if (lines) writeLines(doc, lines, style, { ...box, y: y + padding });
          else writeLine(doc, text, style, { ...box, y: y + padding }, 4);
        });
      }
      drawRule(doc, y + height, 0.5);
    };
    if (position > 0) return { height, header, draw };
    return {
      height: header.height + height,
      draw(y) {
        drawTitles(y);
        draw(y + header.height);
      },
    };
  });
}

/** Draws a horizontal line across the page. */
function drawRule(doc: Document, y: number, thickness: number): void {
  drawDecoration(doc, () => {
    doc.lineWidth(thickness).strokeColor(colors.line);
    doc
      .moveTo(margin, y)
      .lineTo(margin + pageWidth(doc), y)
      .stroke();
  });
}

/** Adds an entry of a list: a label and a value, drawn apart. */
function drawEntry(doc: Document, list: Element, drawLabel: () => void, drawValue: () => void): void {
  const entry = addElement(doc, list, 'LI');
  drawElement(doc, entry, 'Lbl', drawLabel, english);
  drawElement(doc, entry, 'LBody', drawValue);
}

/** The addressee on the left, labeled facts about the document on the right. */
function addressBlock(doc: Document, title: string, addressee: string[], facts: [string, string][]): Block {
  const half = pageWidth(doc) / 2 - 10;
  const labelWidth = 92;
  const nameStyle: TextStyle = { font: 'bold', size: 11 };
  const [name = '', ...rest] = addressee.map((part) => printable(doc, part));
  const names = truncate(doc, name, nameStyle, half, 3);
  const others = rest.map((part) => truncate(doc, part, body, half, 2));
  const shown = facts.map(([label, value]) => ({
    label,
    lines: truncate(doc, printable(doc, value), body, half - labelWidth, 5),
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
      const contents = contentsOf(doc);
      drawElement(doc, contents, 'P', () => writeLine(doc, title, quiet, { x: margin, y: top, width: half }), english);
      let y = top + 14;
      drawElement(doc, contents, 'P', () => {
        y = writeLines(doc, names, nameStyle, { x: margin, y, width: half }) + 3;
      });
      for (const lines of others)
        drawElement(doc, contents, 'P', () => {
          y = writeLines(doc, lines, body, { x: margin, y, width: half }) + 2;
        });
      y = top;
      const right = margin + half + 20;
      const list = addElement(doc, contents, 'L');
      for (const { label, lines } of shown)
        drawEntry(
          doc,
          list,
          () => writeLine(doc, label, quiet, { x: right, y: y + 0.6, width: labelWidth }),
          () => {
            y = writeLines(doc, lines, body, { x: right + labelWidth, y, width: half - labelWidth }) + 3;
          },
        );
    },
  };
}

/** The totals on the right, the last one in a larger size, and a stamp on the left. */
function totals(doc: Document, lines: [string, string][], stamp: Stamp | undefined): Block {
  const width = pageWidth(doc) * 0.45;
  const left = margin + pageWidth(doc) - width;
  return {
    height: Math.max(lines.length * 16 + 14, stamp ? 74 : 0),
    draw(top) {
      const contents = contentsOf(doc);
      const list = addElement(doc, contents, 'L');
      for (const [n, [label, value]] of lines.entries()) {
        const style: TextStyle = n === lines.length - 1 ? { font: 'bold', size: 11 } : body;
        const y = top + 8 + n * 16;
        const right: TextStyle = { ...style, align: 'right' };
        drawEntry(
          doc,
          list,
          () => writeLine(doc, label, style, { x: left + padding, y, width: width * 0.4 }),
          () =>
            writeLine(doc, printable(doc, value), right, {
              x: left + width * 0.4,
              y,
              width: width * 0.6 - padding,
            }),
        );
      }
      if (stamp) drawElement(doc, contents, 'P', () => drawStamp(doc, stamp, margin + 20, top + 22), english);
    },
  };
}

interface Stamp {
  text: string;
  color: string;
}

const paidStamp: Stamp = { text: 'PAID', color: '#1c7c4a' };

/** Draws a text like a rubber stamp: framed and slightly rotated. */
function drawStamp(doc: Document, { text, color }: Stamp, x: number, y: number): void {
  doc.save().font(fonts.bold).fontSize(24);
  const width = doc.widthOfString(text) + 24;
  doc.rotate(-8, { origin: [x + width / 2, y + 18] }).opacity(0.75);
  doc.lineWidth(2.5).strokeColor(color).roundedRect(x, y, width, 38, 5).stroke();
  doc.fillColor(color).text(text, x + 12, y + 5, { lineBreak: false });
  doc.restore().opacity(1);
}

/** Draws a text across the page, so that nobody pays or files the document by mistake. */
function drawWatermark(doc: Document, { text, color }: Stamp): void {
  doc.save().font(fonts.bold).fontSize(110);
  const width = doc.widthOfString(text);
  const [x, y] = [doc.page.width / 2, doc.page.height / 2];
  doc
    .rotate(-45, { origin: [x, y] })
    .opacity(0.09)
    .fillColor(color);
  doc.text(text, x - width / 2, y - 64, { lineBreak: false });
  doc.restore().opacity(1);
}

/** A title and a text. Each line is a block, so that the text can continue on the next page. */
function paragraph(doc: Document, title: string, text: string): Block[] {
  const width = pageWidth(doc);
  const lines = text
    .replace(/\n{3,}/g, '\n\n')
    .split('\n')
    .flatMap((part) => wrap(doc, printable(doc, part), body, width, true) ?? []);
  const titleHeight = line + 4;
  let element: Element | undefined;
  return [
    gap(10),
    ...lines.map((textLine, n): Block => ({
      height: line + (n === 0 ? titleHeight : 0),
      draw(y) {
        const contents = contentsOf(doc);
        if (n === 0)
          drawElement(doc, contents, 'H2', () => writeLine(doc, title, bold, { x: margin, y, width }), english);
        if (textLine === '') return;
        element ??= addElement(doc, contents, 'P');
        drawInto(doc, element, 'P', () =>
          writeLines(doc, [textLine], body, { x: margin, y: n === 0 ? y + titleHeight : y, width }),
        );
      },
    })),
  ];
}

/** Distributes blocks over as many pages as they need, each with header, footer and page number. */
async function paginate(
  doc: Document,
  heading: Heading,
  letterhead: Letterhead,
  blocks: Block[],
  watermark?: Stamp,
): Promise<Buffer> {
  const top = margin + 60;
  const end = contentBottom(doc) - 4;
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
    if (watermark) drawDecoration(doc, () => drawWatermark(doc, watermark), 'Pagination');
    if (n === 0) writeHeader(doc, letterhead, heading);
    // Without the logo: pdfkit would embed it once per page.
    else drawDecoration(doc, () => writeHeader(doc, { ...letterhead, logo: null }, heading), 'Pagination');
    drawRule(doc, top - 10, 0.8);
    for (const { block, y: at } of page) block.draw(at);
    writeFooter(doc, letterhead, heading);
    const number = `Page ${String(n + 1)} of ${String(pages.length)}`;
    const style: TextStyle = { font: 'regular', size: 7, color: colors.quiet, align: 'center' };
    const box = { x: margin, y: doc.page.height - margin - lineHeight(style.size), width: pageWidth(doc) };
    drawDecoration(doc, () => writeLine(doc, number, style, box), 'Pagination');
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
  const money = formats.money(data.currency);
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
  const money = formats.money(data.currency);
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
