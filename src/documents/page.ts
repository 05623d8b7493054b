import PDFDocument from 'pdfkit';
import { glyphsOf } from './glyphs.ts';
import { localFormats } from './local-formats.ts';
import { contentsOf, drawDecoration, drawElement, english } from './tags.ts';
import {
  type Document,
  fonts,
  joinParts,
  lineHeight,
  type TextStyle,
  truncate,
  writeLine,
  writeLines,
} from './text.ts';

/** The answer of `api.letterhead`. */
export interface Letterhead {
  name: string;
  address: string | null;
  phone: string | null;
  email: string | null;
  website: string | null;
  /** BCP 47, of dates and numbers. */
  locale: string;
  /** A picture in base64. print.worker.ts converts it to a PNG that pdfkit can draw. */
  logo: string | null;
}

/** The texts in the header and footer of a page. */
export interface Heading {
  title: string;
  /** The language of the title, if it is not that of the school. */
  titleLanguage?: 'en';
  subtitle: string;
  /** `YYYY-MM-DD` in the time zone of the school. */
  printed_on: string;
}

export const margin = 28;
export const colors = { text: '#1f2933', quiet: '#5f6b7a', line: '#c3cad3', shade: '#eef1f5' };

/** Replaces a character that the fonts do not have. The footer of the page explains it. */
const placeholder = '\u25a1';

/** A tagged document (PDF/UA-1) of A4 pages with an empty first page. */
export function openDocument(
  { title, printed_on }: Heading,
  letterhead: Letterhead,
  layout: 'portrait' | 'landscape',
): Document {
  return new PDFDocument({
    size: 'A4',
    layout,
    font: fonts.regular,
    // pdfkit starts a new page when something touches its margin, so the layout keeps its own margins instead.
    margin: 0,
    pdfVersion: '1.7',
    // pdfkit's types lack this subset.
    subset: 'PDF/UA' as PDFKit.Mixins.PDFSubsets,
    tagged: true,
    lang: letterhead.locale,
    displayTitle: true,
    info: { Title: title, Author: letterhead.name, CreationDate: new Date(`${printed_on}T00:00:00Z`) },
  });
}

/** Completes a document and returns its bytes. */
export async function closeDocument(doc: Document): Promise<Buffer> {
  const parts: Buffer[] = [];
  doc.on('data', (part: Buffer) => parts.push(part));
  const { promise, resolve, reject } = Promise.withResolvers<undefined>();
  doc.on('end', () => resolve(undefined)).on('error', reject);
  doc.end();
  await promise;
  return Buffer.concat(parts);
}

const withPlaceholders = new WeakSet<Document>();

const tifinagh = /\p{Script=Tifinagh}/u;
/** Characters that join or separate letters. fontkit throws on them in texts with Tifinagh. */
const joiners = /[\u034f\u200c\u200d]/g;

/** A text on one line, with placeholders for characters that the fonts lack. */
export function printable(doc: Document, text: string): string {
  const hasGlyph = glyphsOf(doc);
  const shown = (tifinagh.test(text) ? text.replace(joiners, '') : text)
    .replace(/\s+/g, ' ')
    .trim()
    .normalize('NFC')
    .replace(/[^]/gu, (character) => (hasGlyph(character) ? character : placeholder));
  if (shown.includes(placeholder)) withPlaceholders.add(doc);
  return shown;
}

/** Draws the logo into a box and returns its width, or 0 if there is no readable logo. */
function drawLogo(doc: Document, { logo, name }: Letterhead, x: number, y: number, width: number, height: number) {
  if (logo === null) return 0;
  try {
    // openImage is not in pdfkit's types.
    const image = (doc as unknown as { openImage: (bytes: Buffer) => { width: number; height: number } }).openImage(
      Buffer.from(logo, 'base64'),
    );
    const scale = Math.min(width / image.width, height / image.height);
    const size = { width: image.width * scale, height: image.height * scale };
    drawElement(doc, contentsOf(doc), 'Figure', () => doc.image(image as unknown as Buffer, x, y, size), {
      alt: `Logo of ${name}`,
      bbox: [x, y, x + size.width, y + size.height],
    });
    return size.width;
  } catch {
    return 0;
  }
}

const headerHeight = 40;

/** Writes the school on the left and the title on the right. Returns the y position where the content starts. */
export function writeHeader(
  doc: Document,
  letterhead: Letterhead,
  { title, titleLanguage, subtitle }: Heading,
): number {
  const contents = contentsOf(doc);
  const width = doc.page.width - 2 * margin;
  const logo = drawLogo(doc, letterhead, margin, margin, 90, headerHeight);
  const left = margin + (logo && logo + 10);
  const leftWidth = width * 0.56 - (left - margin);
  const small: TextStyle = { font: 'regular', size: 7.5, color: colors.quiet };
  const [first = '', ...others] = joinParts(
    doc,
    [letterhead.address, letterhead.phone, letterhead.email, letterhead.website].map((part) =>
      printable(doc, part ?? ''),
    ),
    small,
    leftWidth,
  );
  // A long address gets both lines, unless something follows it.
  const contact =
    others.length === 0
      ? truncate(doc, first, small, leftWidth, 2)
      : [first, others.join(' · ')].flatMap((line) => truncate(doc, line, small, leftWidth, 1));
  const secondLine = margin + 22;
  const name: TextStyle = { font: 'bold', size: 15 };
  const right = { x: margin + width * 0.58, width: width * 0.42 };
  drawElement(doc, contents, 'P', () =>
    writeLine(doc, printable(doc, letterhead.name), name, { x: left, y: margin, width: leftWidth }, 9),
  );
  if (first !== '')
    drawElement(doc, contents, 'P', () =>
      writeLines(doc, contact, small, { x: left, y: secondLine, width: leftWidth }),
    );
  drawElement(
    doc,
    contents,
    'H1',
    () => writeLine(doc, printable(doc, title), { ...name, align: 'right' }, { ...right, y: margin }, 9),
    titleLanguage && { lang: titleLanguage },
  );
  if (subtitle !== '')
    drawElement(doc, contents, 'P', () =>
      writeLine(
        doc,
        printable(doc, subtitle),
        { font: 'regular', size: 9, color: colors.quiet, align: 'right' },
        { ...right, y: secondLine },
      ),
    );
  return margin + headerHeight + 10;
}

const footerHeight = 12;

/** The y position where the content of a page ends. */
export const contentBottom = (doc: Document): number => doc.page.height - margin - footerHeight;

/** Writes the date of printing, and explains the placeholder if the document contains any. */
export function writeFooter(doc: Document, { locale }: Letterhead, { printed_on }: Heading): void {
  const note = `${placeholder} replaces a character that cannot be printed.`;
  const style: TextStyle = { font: 'regular', size: 7, color: colors.quiet };
  const box = { x: margin, y: doc.page.height - margin - lineHeight(style.size), width: doc.page.width - 2 * margin };
  const day = localFormats(doc, locale).day(printed_on);
  drawDecoration(doc, () => writeLine(doc, `Printed on ${printable(doc, day)}`, style, box), 'Pagination');
  if (withPlaceholders.has(doc))
    drawElement(doc, contentsOf(doc), 'P', () => writeLine(doc, note, { ...style, align: 'right' }, box), english);
}
