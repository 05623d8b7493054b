import { fileURLToPath } from 'node:url';

const file = (name: string) => fileURLToPath(import.meta.resolve(`dejavu-fonts-ttf/ttf/${name}.ttf`));

/**
 * The files of the fonts, embedded in every document. pdfkit is given the same paths each time: by a registered name it reads and
 * parses the font of the document anew at every change.
 */
export const fonts = { regular: file('DejaVuSansCondensed'), bold: file('DejaVuSansCondensed-Bold') };

/** A PDF that is being written. */
export type Document = PDFKit.PDFDocument;

export interface TextStyle {
  font: keyof typeof fonts;
  size: number;
  colour?: string;
  align?: 'left' | 'center' | 'right';
}

/** Where a text is to be; it never leaves the width. */
export interface Box {
  x: number;
  y: number;
  width: number;
}

// pdfkit's own wrapping measures each piece of text anew for every size that is tried: a page of long names took it two seconds.
const measured = new WeakMap<Document, Map<string, number>>();

/** How wide a text is in points; of each piece it is measured once, since that grows with the size. */
function widthOf(doc: Document, text: string, { font, size }: TextStyle): number {
  let widths = measured.get(doc);
  if (!widths) measured.set(doc, (widths = new Map<string, number>()));
  const key = `${font} ${text}`;
  let width = widths.get(key);
  if (width === undefined) widths.set(key, (width = doc.font(fonts[font]).fontSize(1000).widthOfString(text) / 1000));
  return width * size;
}

/** From one line to the next. */
export const lineHeight = (size: number): number => size * 1.17;

const graphemes = new Intl.Segmenter('en', { granularity: 'grapheme' });

/** The pieces of a word that is too wide, as long as they may be. */
function pieces(doc: Document, word: string, style: TextStyle, width: number): string[] {
  const parts = [''];
  for (const { segment } of graphemes.segment(word)) {
    const last = parts.at(-1) ?? '';
    if (last && widthOf(doc, last + segment, style) > width) parts.push(segment);
    else parts[parts.length - 1] = last + segment;
  }
  return parts;
}

/** The lines of a text in this width, which breaks at spaces and after hyphens; undefined where a word had to be broken and must not. */
export function wrap(doc: Document, text: string, style: TextStyle, width: number, breaksWords = false): string[] | undefined {
  const lines: string[] = [];
  for (const paragraph of text.split('\n')) {
    let line = '';
    let taken = 0;
    for (const [part] of paragraph.matchAll(/ ?[^ -]*(?:-+|(?= |$))/g)) {
      if (part === '') continue;
      const added = widthOf(doc, part, style);
      if (line && taken + added <= width) {
        line += part;
        taken += added;
        continue;
      }
      if (line) lines.push(line);
      line = part.trimStart();
      taken = widthOf(doc, line, style);
      if (taken <= width) continue;
      if (!breaksWords) return undefined;
      const broken = pieces(doc, line, style, width);
      lines.push(...broken.slice(0, -1));
      line = broken.at(-1) ?? '';
      taken = widthOf(doc, line, style);
    }
    lines.push(line);
  }
  return lines;
}

const rightToLeft = /[\p{Script=Hebrew}\p{Script=Arabic}]/u;
const otherLetters = /(?![\p{Script=Hebrew}\p{Script=Arabic}])[\p{L}\p{N}]/u;

/** A line of Arabic or Hebrew alone is laid out as a whole, from right to left; pdfkit sets words from left to right otherwise. */
const features = (line: string): { features?: PDFKit.Mixins.OpenTypeFeatures[] } =>
  rightToLeft.test(line) && !otherLetters.test(line) ? { features: ['rtla'] } : {};

/** Writes lines, one below the other; answers where the next one would begin. */
export function writeLines(doc: Document, lines: readonly string[], style: TextStyle, { x, y, width }: Box): number {
  for (const [n, line] of lines.entries()) {
    const left = { left: 0, center: 0.5, right: 1 }[style.align ?? 'left'] * (width - widthOf(doc, line, style));
    doc
      .font(fonts[style.font])
      .fontSize(style.size)
      .fillColor(style.colour ?? '#1f2933')
      .text(line, x + left, y + n * lineHeight(style.size), { lineBreak: false, ...features(line) });
  }
  return y + lines.length * lineHeight(style.size);
}

/** At most so many lines of a text, the last of which tells by an ellipsis that there was more. */
export function cut(doc: Document, text: string, style: TextStyle, width: number, most: number): string[] {
  const lines = wrap(doc, text, style, width, true) ?? [];
  if (lines.length <= most) return lines;
  let last = lines[most - 1] ?? '';
  while (last && widthOf(doc, `${last}…`, style) > width) last = last.slice(0, -1).trimEnd();
  return [...lines.slice(0, most - 1), `${last.toWellFormed()}…`];
}

/** Writes one line in the largest size, from that of the style down to `smallest`, in which it fits; then it is cut. */
export function writeLine(doc: Document, text: string, style: TextStyle, box: Box, smallest = 6): void {
  const size = Math.max(Math.min(smallest, style.size), Math.min(style.size, (style.size * box.width) / Math.max(1, widthOf(doc, text, style))));
  const fitted = { ...style, size };
  writeLines(doc, cut(doc, text, fitted, box.width, 1), fitted, { ...box, y: box.y + (lineHeight(style.size) - lineHeight(size)) / 2 });
}
