import { fileURLToPath } from 'node:url';
import { isRightToLeft } from './scripts.ts';

const file = (name: string) => fileURLToPath(import.meta.resolve(`dejavu-fonts-ttf/ttf/${name}.ttf`));

/**
 * The paths of the fonts, which are embedded in every document. Always pass the same path to pdfkit: with a registered
 * name, it reads and parses the font again at every font change.
 */
export const fonts = { regular: file('DejaVuSansCondensed'), bold: file('DejaVuSansCondensed-Bold') };

/** A PDF document that is being written. */
export type Document = PDFKit.PDFDocument;

export interface TextStyle {
  font: keyof typeof fonts;
  size: number;
  color?: string;
  align?: 'left' | 'center' | 'right';
}

/** The position of a text and its maximum width, in points. */
export interface Box {
  x: number;
  y: number;
  width: number;
}

// Widths per document and text, at font size 1. pdfkit's own wrapping measures every text again for each size, which
// takes two seconds for a page of long names.
const widthCache = new WeakMap<Document, Map<string, number>>();

/** The width of a text in points. Each text is measured once, because its width is proportional to the size. */
function widthOf(doc: Document, text: string, { font, size }: TextStyle): number {
  let widths = widthCache.get(doc);
  if (!widths) widthCache.set(doc, (widths = new Map<string, number>()));
  const key = `${font} ${text}`;
  let width = widths.get(key);
  if (width === undefined) widths.set(key, (width = doc.font(fonts[font]).fontSize(1000).widthOfString(text) / 1000));
  return width * size;
}

/** The distance from one line to the next. */
export const lineHeight = (size: number): number => size * 1.17;

const graphemes = new Intl.Segmenter('en', { granularity: 'grapheme' });

/**
 * Breaks a word that is too wide into pieces. The sum of the letter widths estimates where to break, and only the
 * resulting piece is measured: measuring every prefix of a long name takes seconds.
 */
function* wordPieces(doc: Document, word: string, style: TextStyle, width: number): Generator<string> {
  const letters = Array.from(graphemes.segment(word), ({ segment }) => segment);
  for (let start = 0; start < letters.length;) {
    let end = start;
    for (let estimate = 0; end < letters.length; end++) {
      estimate += widthOf(doc, letters[end] ?? '', style);
      if (estimate > width) break;
    }
    while (end > start + 1 && widthOf(doc, letters.slice(start, end).join(''), style) > width) end -= 1;
    end = Math.max(end, start + 1);
    yield letters.slice(start, end).join('');
    start = end;
  }
}

/** Longer words count as too wide without being measured, because only their beginning is shown anyway. */
const maxMeasuredLength = 60;

/**
 * Breaks a text into lines of this width, at spaces and after hyphens. If a word is too wide, breaks it as well, or
 * yields null and ends if `breaksWords` is false.
 */
function* linesOf(
  doc: Document,
  text: string,
  style: TextStyle,
  width: number,
  breaksWords: boolean,
): Generator<string | null> {
  for (const paragraph of text.split('\n')) {
    let line = '';
    let lineWidth = 0;
    for (const [part] of paragraph.matchAll(/ ?[^ -]*(?:-+|(?= |$))/g)) {
      if (part === '') continue;
      const partWidth = part.length > maxMeasuredLength ? Infinity : widthOf(doc, part, style);
      if (line && lineWidth + partWidth <= width) {
        line += part;
        lineWidth += partWidth;
        continue;
      }
      if (line) yield line;
      line = part.trimStart();
      lineWidth = part.length > maxMeasuredLength ? Infinity : widthOf(doc, line, style);
      if (lineWidth <= width) continue;
      if (!breaksWords) {
        yield null;
        return;
      }
      let last: string | undefined;
      for (const piece of wordPieces(doc, line, style, width)) {
        if (last !== undefined) yield last;
        last = piece;
      }
      line = last ?? '';
      lineWidth = widthOf(doc, line, style);
    }
    yield line;
  }
}

/** The lines of a text in this width. Undefined if a word is too wide and `breaksWords` is false. */
export function wrap(
  doc: Document,
  text: string,
  style: TextStyle,
  width: number,
  breaksWords = false,
): string[] | undefined {
  const lines: string[] = [];
  for (const line of linesOf(doc, text, style, width, breaksWords)) {
    if (line === null) return undefined;
    lines.push(line);
  }
  return lines;
}

/**
 * Joins texts with dots, as many as fit on each line, so that no line begins or ends with a dot. Leaves out empty ones.
 */
export function joinParts(doc: Document, parts: readonly string[], style: TextStyle, width: number): string[] {
  const lines: string[] = [];
  for (const part of parts.filter((text) => text !== '')) {
    const joined = lines.length === 0 ? undefined : `${lines.at(-1) ?? ''} · ${part}`;
    if (joined !== undefined && part.length <= maxMeasuredLength && widthOf(doc, joined, style) <= width)
      lines[lines.length - 1] = joined;
    else lines.push(part);
  }
  return lines;
}

const leftToRight = /(?![\p{Script=Hebrew}\p{Script=Arabic}])[\p{L}\p{N}]/u;

/** Lays out a purely Arabic or Hebrew line from right to left. By default pdfkit orders words from left to right. */
const features = (line: string): { features?: PDFKit.Mixins.OpenTypeFeatures[] } =>
  isRightToLeft(line) && !leftToRight.test(line) ? { features: ['rtla'] } : {};

/** Writes lines below each other. Returns the y position of the next line. */
export function writeLines(doc: Document, lines: readonly string[], style: TextStyle, { x, y, width }: Box): number {
  for (const [n, line] of lines.entries()) {
    const left = { left: 0, center: 0.5, right: 1 }[style.align ?? 'left'] * (width - widthOf(doc, line, style));
    doc
      .font(fonts[style.font])
      .fontSize(style.size)
      .fillColor(style.color ?? '#1f2933')
      .text(line, x + left, y + n * lineHeight(style.size), { lineBreak: false, ...features(line) });
  }
  return y + lines.length * lineHeight(style.size);
}

/** The first lines of a text, with an ellipsis if there are more. Does not measure the rest of the text. */
export function truncate(doc: Document, text: string, style: TextStyle, width: number, maxLines: number): string[] {
  const lines: string[] = [];
  for (const line of linesOf(doc, text, style, width, true)) {
    if (lines.length === maxLines) {
      const remainingWidth = width - widthOf(doc, '…', style);
      const [last = ''] = wordPieces(doc, lines[maxLines - 1] ?? '', style, remainingWidth);
      const shown = widthOf(doc, last, style) > remainingWidth ? '' : last.trimEnd();
      return [...lines.slice(0, maxLines - 1), `${shown}…`];
    }
    lines.push(line ?? '');
  }
  return lines;
}

/** Writes one line, reduced to fit the width. At `minSize` it is truncated instead. */
export function writeLine(doc: Document, text: string, style: TextStyle, box: Box, minSize = 6): void {
  const size = Math.max(
    Math.min(minSize, style.size),
    Math.min(style.size, (style.size * box.width) / Math.max(1, widthOf(doc, text, style))),
  );
  const fitted = { ...style, size };
  writeLines(doc, truncate(doc, text, fitted, box.width, 1), fitted, {
    ...box,
    y: box.y + (lineHeight(style.size) - lineHeight(size)) / 2,
  });
}
