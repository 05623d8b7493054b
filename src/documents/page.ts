import PDFDocument from 'pdfkit';
import { drawable } from './picture.ts';
import { cut, type Document, fonts, lineHeight, type TextStyle, writeLine, writeLines } from './text.ts';

/** What stands at the head of a page: what `api.letterhead` answers. */
export interface Letterhead {
  name: string;
  address: string | null;
  phone: string | null;
  email: string | null;
  website: string | null;
  /** A PNG or JPEG in base64. */
  logo: string | null;
}

/** What the head and foot of a page say besides. */
export interface Heading {
  title: string;
  subtitle: string;
  /** `YYYY-MM-DD`, at the school. */
  printed_on: string;
}

export const margin = 28;
export const colours = { text: '#1f2933', quiet: '#5f6b7a', line: '#c3cad3', shade: '#eef1f5' };

/** Stands for a character that the fonts don't have; the foot of the page says so. */
const unknown = '\u25a1';

/** A document of A4 pages, with its first one. */
export function openDocument(
  { title, printed_on }: Heading,
  letterhead: Letterhead,
  layout: 'portrait' | 'landscape',
): Document {
  return new PDFDocument({
    ...{ size: 'A4', layout, font: fonts.regular },
    // pdfkit begins a new page for whatever touches the margin; documents keep theirs themselves.
    margin: 0,
    info: { Title: title, Author: letterhead.name, CreationDate: new Date(`${printed_on}T00:00:00Z`) },
  });
}

/** The bytes of a document, when it is complete. */
export async function closeDocument(doc: Document): Promise<Buffer> {
  const parts: Buffer[] = [];
  doc.on('data', (part: Buffer) => parts.push(part));
  const { promise, resolve, reject } = Promise.withResolvers<undefined>();
  doc.on('end', () => resolve(undefined)).on('error', reject);
  doc.end();
  await promise;
  return Buffer.concat(parts);
}

const missing = new WeakSet<Document>();

const tifinagh = /\p{Script=Tifinagh}/u;
/** Signs that join or part letters: fontkit fails at them where a text has Tifinagh. */
const joiners = /[\u034f\u200c\u200d]/g;

/** Text as the fonts can show it, on one line, with a box for each character that they can't. Both fonts have the same ones. */
export function printable(doc: Document, text: string): string {
  // Not in pdfkit's types: the fontkit font behind the present one.
  const { font: glyphs } = (
    doc.font(fonts.regular) as unknown as { _font: { font: { hasGlyphForCodePoint: (code: number) => boolean } } }
  )._font;
  const shown = (tifinagh.test(text) ? text.replace(joiners, '') : text)
    .replace(/\s+/g, ' ')
    .trim()
    .normalize('NFC')
    .replace(/[^]/gu, (character) =>
      glyphs.hasGlyphForCodePoint(character.codePointAt(0) ?? 0) ? character : unknown,
    );
  if (shown.includes(unknown)) missing.add(doc);
  return shown;
}

/** Draws the logo into a box, and answers the width that it took: 0 where there is none, or none that can be read. */
function drawLogo(doc: Document, logo: string | null, x: number, y: number, width: number, height: number): number {
  if (logo === null) return 0;
  try {
    // openImage is not in pdfkit's types.
    const image = (doc as unknown as { openImage: (bytes: Buffer) => { width: number; height: number } }).openImage(
      drawable(Buffer.from(logo, 'base64')),
    );
    const scale = Math.min(width / image.width, height / image.height);
    doc.image(image as unknown as Buffer, x, y, { width: image.width * scale, height: image.height * scale });
    return image.width * scale;
  } catch {
    return 0;
  }
}

const headHeight = 40;

/** Writes the school to the left and what the document is to the right; answers where the page goes on. */
export function writeHead(doc: Document, letterhead: Letterhead, { title, subtitle }: Heading): number {
  const width = doc.page.width - 2 * margin;
  const logo = drawLogo(doc, letterhead.logo, margin, margin, 90, headHeight);
  const left = margin + (logo && logo + 10);
  const half = width * 0.56 - (left - margin);
  const contact = [letterhead.address, letterhead.phone, letterhead.email, letterhead.website]
    .filter((part) => part !== null && part !== '')
    .join('  ·  ');
  const small: TextStyle = { font: 'regular', size: 7.5, colour: colours.quiet };
  const second = margin + 22;
  writeLine(doc, printable(doc, letterhead.name), { font: 'bold', size: 15 }, { x: left, y: margin, width: half }, 9);
  writeLines(doc, cut(doc, printable(doc, contact), small, half, 2), small, { x: left, y: second, width: half });
  const right = { x: margin + width * 0.58, width: width * 0.42 };
  writeLine(doc, printable(doc, title), { font: 'bold', size: 15, align: 'right' }, { ...right, y: margin }, 9);
  writeLine(
    doc,
    printable(doc, subtitle),
    { font: 'regular', size: 9, colour: colours.quiet, align: 'right' },
    { ...right, y: second },
  );
  return margin + headHeight + 10;
}

const footHeight = 12;

/** Where the content of a page ends. */
export const bottom = (doc: Document): number => doc.page.height - margin - footHeight;

/** Writes when it was printed, and what the fonts could not show. */
export function writeFoot(doc: Document, { printed_on }: Heading): void {
  const note = missing.has(doc) ? `${unknown} stands for a character of a script that can not be printed here.` : '';
  const style: TextStyle = { font: 'regular', size: 7, colour: colours.quiet };
  const box = { x: margin, y: doc.page.height - margin - lineHeight(style.size), width: doc.page.width - 2 * margin };
  writeLine(doc, `Printed on ${printed_on}`, style, box);
  writeLine(doc, note, { ...style, align: 'right' }, box);
}
