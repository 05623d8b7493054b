import {
  closeDocument,
  colors,
  contentBottom,
  type Heading,
  type Letterhead,
  margin,
  printable,
  writeFooter,
  writeHeader,
} from './page.ts';
import { addElement, contentsOf, drawDecoration, drawElement, drawInto, type Element, english } from './tags.ts';
import { type Document, fonts, lineHeight, type TextStyle, truncate, wrap, writeLine, writeLines } from './text.ts';

/** A part of a document that is not split between pages. */
export interface Block {
  height: number;
  draw: (y: number) => void;
  /** Drawn again if a page starts with this block. */
  header?: Block;
}

export interface Column {
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

const pageWidth = (doc: Document) => doc.page.width - 2 * margin;

export const gap = (height: number): Block => ({ height, draw: () => undefined });

/** The rows of a table as blocks. The header precedes the first row and is repeated on every page. */
export function table(doc: Document, columns: Column[], rows: string[][]): Block[] {
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
export function addressBlock(doc: Document, title: string, addressee: string[], facts: [string, string][]): Block {
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
export function totals(doc: Document, lines: [string, string][], stamp: Stamp | undefined): Block {
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

export interface Stamp {
  text: string;
  color: string;
}

export const paidStamp: Stamp = { text: 'PAID', color: '#1c7c4a' };

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
export function paragraph(doc: Document, title: string, text: string): Block[] {
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
export async function paginate(
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
