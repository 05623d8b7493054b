import { type Document, fonts } from './text.ts';

/** Says whether the fonts have a character. Both fonts have the same characters. */
export function glyphsOf(doc: Document): (character: string) => boolean {
  // The fontkit font of the current pdfkit font, which pdfkit's types lack.
  const { font } = (
    doc.font(fonts.regular) as unknown as { _font: { font: { hasGlyphForCodePoint: (code: number) => boolean } } }
  )._font;
  return (character) => font.hasGlyphForCodePoint(character.codePointAt(0) ?? 0);
}
