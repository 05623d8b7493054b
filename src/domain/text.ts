/**
 * The joiners that Indic and Persian words are written with. RFC 5892, appendix A, allows them by the classes of their
 * neighbors, which Node does not know: a mark before, or letters of Arabic script on both sides.
 */
const joiners = String.raw`(?<=(?!\p{DI})\p{M})[\u200c\u200d]|(?<=(?!\p{DI})\p{sc=Arab})\u200c(?=(?!\p{DI})\p{sc=Arab})`;

/** The invisible characters that change how those beside them look. */
const shaping = [
  joiners,
  // Between a Bengali or Kannada letter and its mark, and after the last Arabic letter of an abbreviation.
  String.raw`(?<=(?!\p{sc=Latn})\p{L})\u200d(?=(?!\p{DI})\p{M})`,
  String.raw`(?<=(?!\p{DI})\p{sc=Arab})\u200d`,
  // Emoji of several parts, variants of symbols, keys and flags. A flag is one match: a lookbehind over its tags would
  // take quadratic time for a text of tags.
  String.raw`(?<=\p{ExtPict}\ufe0f?|\p{EMod})\u200d(?=\p{ExtPict})`,
  String.raw`(?<=\p{ExtPict})[\ufe0e\ufe0f]`,
  String.raw`[\ufe0e\ufe0f](?=\u20e3)`,
  String.raw`\u{1f3f4}[\u{e0020}-\u{e007e}]+\u{e007f}`,
  // Variants of Han and Mongolian letters, and the separator of a Mongolian vowel.
  String.raw`(?<=\p{sc=Han})[\ufe00-\ufe0f\u{e0100}-\u{e01ef}]`,
  String.raw`(?<=\p{sc=Mong})[\u180b-\u180d\u180f]`,
  String.raw`(?<=\p{sc=Mong})\u180e(?=\p{sc=Mong})`,
].join('|');

/** All text below U+00AD is visible. */
const mayBeInvisible = /[\u00ad-\uffff]/;
const joiner = new RegExp(joiners, 'gu');
const shaperOrInvisible = new RegExp(String.raw`(${shaping})|\p{DI}`, 'gu');

/** A text without the joiners that its words need. */
export const withoutJoiners = (text: string): string => text.replace(joiner, '');

/**
 * A text in NFC without the characters that nobody sees, such as a zero-width space, a byte order mark or a mark of
 * direction, which programs add when text is copied. Characters that change how their neighbors look stay.
 */
export const withoutInvisible = (text: string): string =>
  mayBeInvisible.test(text) ? text.replace(shaperOrInvisible, (_, shaper?: string) => shaper ?? '').normalize() : text;

/** Whether a text shows nothing. U+2800 is the Braille pattern without dots. */
export const isBlank = (text: string): boolean => /^[\s\p{DI}\u2800]*$/u.test(text);
