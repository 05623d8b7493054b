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

/**
 * The pieces of a word that is too wide. To shape each beginning of a long name took seconds: letters are added up, which is about
 * what they take together, and of each piece only that is shaped.
 */
function* pieces(doc: Document, word: string, style: TextStyle, width: number): Generator<string> {
  const letters = Array.from(graphemes.segment(word), ({ segment }) => segment);
  for (let from = 0; from < letters.length;) {
    let to = from;
    for (let taken = 0; to < letters.length; to++) {
      taken += widthOf(doc, letters[to] ?? '', style);
      if (taken > width) break;
    }
    while (to > from + 1 && widthOf(doc, letters.slice(from, to).join(''), style) > width) to -= 1;
    to = Math.max(to, from + 1);
    yield letters.slice(from, to).join('');
    from = to;
  }
}

/** A word of more letters is taken for too wide: to shape all of it, and write the beginning, is for nothing. */
const longestMeasured = 60;

/** The lines of a text in this width, one after the other; breaks at spaces, after hyphens, and words where they are too wide. Null in the place of a word that must not be broken. */
function* linesOf(
  doc: Document,
  text: string,
  style: TextStyle,
  width: number,
  breaksWords: boolean,
): Generator<string | null> {
  for (const paragraph of text.split('\n')) {
    let line = '';
    let taken = 0;
    for (const [part] of paragraph.matchAll(/ ?[^ -]*(?:-+|(?= |$))/g)) {
      if (part === '') continue;
      const added = part.length > longestMeasured ? Infinity : widthOf(doc, part, style);
      if (line && taken + added <= width) {
        line += part;
        taken += added;
        continue;
      }
      if (line) yield line;
      line = part.trimStart();
      taken = part.length > longestMeasured ? Infinity : widthOf(doc, line, style);
      if (taken <= width) continue;
      if (!breaksWords) {
        yield null;
        return;
      }
      let last: string | undefined;
      for (const piece of pieces(doc, line, style, width)) {
        if (last !== undefined) yield last;
        last = piece;
      }
      line = last ?? '';
      taken = widthOf(doc, line, style);
    }
    yield line;
  }
}

/** The lines of a text in this width, which breaks at spaces and after hyphens; undefined where a word had to be broken and must not. */
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

/** At most so many lines of a text, the last of which tells by an ellipsis that there was more; what comes after them is not measured. */
export function cut(doc: Document, text: string, style: TextStyle, width: number, most: number): string[] {
  const lines: string[] = [];
  for (const line of linesOf(doc, text, style, width, true)) {
    if (lines.length === most) {
      const room = width - widthOf(doc, '…', style);
      const [last = ''] = pieces(doc, lines[most - 1] ?? '', style, room);
      return [...lines.slice(0, most - 1), `${widthOf(doc, last, style) > room ? '' : last.trimEnd()}…`];
    }
    lines.push(line ?? '');
  }
  return lines;
}

/** Writes one line in the largest size, from that of the style down to `smallest`, in which it fits; then it is cut. */
export function writeLine(doc: Document, text: string, style: TextStyle, box: Box, smallest = 6): void {
  const size = Math.max(
    Math.min(smallest, style.size),
    Math.min(style.size, (style.size * box.width) / Math.max(1, widthOf(doc, text, style))),
  );
  const fitted = { ...style, size };
  writeLines(doc, cut(doc, text, fitted, box.width, 1), fitted, {
    ...box,
    y: box.y + (lineHeight(style.size) - lineHeight(size)) / 2,
  });
}
