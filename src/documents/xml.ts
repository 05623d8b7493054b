import { FileRefusal } from './file-refusal.ts';

/** What is read of an XML document. Comments, instructions and declarations are left out. */
export interface XmlHandlers {
  /**
   * @param name  without its prefix
   * @param tag  as written, with its brackets. `<a/>` is opened and closed.
   */
  open: (name: string, tag: string) => void;
  close?: (name: string) => void;
  /** @param text  escaped, as between tags. A text with a comment or CDATA in it comes in several parts. */
  text?: (text: string) => void;
}

/** Whether a part of an archive is XML. No other part is unpacked, so only these count toward the size of a file. */
export const isXmlPart = (name: string): boolean => /\.(xml|rels)$/i.test(name);

/** Longer than any text of a cell, tag or comment of a spreadsheet program. */
const maxTokenCharacters = 1_500_000;
/** Programs write at most 30 attributes, 40 characters and 15 levels. Parsers take quadratic time for attributes. */
const maxAttributes = 100;
const maxNameCharacters = 200;
const maxDepth = 100;

const tokenEnds: [start: string, end: string][] = [
  ['<!--', '-->'],
  ['<![CDATA[', ']]>'],
  ['<?', '?>'],
];

const refuse = (what: string): never => {
  throw new FileRefusal(`The file has ${what}.`);
};

const codes = { doubleQuote: 0x22, singleQuote: 0x27, greater: 0x3e, slash: 0x2f, equals: 0x3d, space: 0x20 };

/**
 * The position after the tag that starts at `start`. Its quoted values may contain `>`.
 * @throws FileRefusal if the tag has too many attributes, or a name that is too long
 */
function endOfTag(xml: string, start: number): number {
  let attributes = 0;
  let nameStart = start + 1;
  for (let at = nameStart; at < xml.length; at++) {
    const code = xml.charCodeAt(at);
    if (code === codes.greater) return at + 1;
    if (code === codes.doubleQuote || code === codes.singleQuote) {
      if (++attributes > maxAttributes) refuse(`a tag with more than ${String(maxAttributes)} attributes`);
      const end = xml.indexOf(xml.charAt(at), at + 1);
      if (end === -1) return xml.length;
      at = end;
      nameStart = at + 1;
    } else if (code <= codes.space || code === codes.slash || code === codes.equals) nameStart = at + 1;
    else if (at - nameStart >= maxNameCharacters) refuse(`a name of more than ${String(maxNameCharacters)} characters`);
  }
  return xml.length;
}

/** The name without its prefix: `x:row` is `row`. */
const localName = (name: string) => name.slice(name.indexOf(':') + 1);

/** The attributes of a tag by their local names, without entities. */
export function attributesOf(tag: string): Map<string, string> {
  const attributes = new Map<string, string>();
  for (const [, name = '', double, single] of tag.matchAll(/\s([^\s=/"'<>]+)\s*=\s*(?:"([^"]*)"|'([^']*)')/g))
    if (!name.startsWith('xmlns')) attributes.set(localName(name), unescapeXml(double ?? single ?? ''));
  return attributes;
}

const entities: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };

/** Text without the predefined entities and character references. Others stay as they are. */
const unescapeXml = (text: string) =>
  text.replace(
    /&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|([a-z]{2,4}));/g,
    (written: string, decimal?: string, hex?: string, name?: string) => {
      if (name !== undefined) return entities[name] ?? written;
      const code = decimal === undefined ? parseInt(hex ?? '', 16) : Number(decimal);
      return code <= 0x10ffff ? String.fromCodePoint(code) : written;
    },
  );

/** Text for an element or an attribute. */
export const escapeXml = (text: string): string =>
  text.replace(/[&<>"]/g, (character) => `&#${String(character.charCodeAt(0))};`);

/** The value of an xsd:boolean. Undefined if it is none. */
export function xmlBoolean(text: string | undefined): boolean | undefined {
  const value = text?.trim().toLowerCase();
  if (value === '1' || value === 'true') return true;
  return value === '0' || value === 'false' ? false : undefined;
}

/** The text of an XML part, which is UTF-8 or UTF-16. @throws TypeError if it is neither */
export function decodeXml(part: Uint8Array): string {
  const [first, second] = part;
  const encoding =
    (first === 0xff && second === 0xfe) || (first === 0x3c && second === 0)
      ? 'utf-16le'
      : (first === 0xfe && second === 0xff) || (first === 0 && second === 0x3c)
        ? 'utf-16be'
        : 'utf-8';
  return new TextDecoder(encoding, { fatal: true }).decode(part);
}

/**
 * Reads an XML document with bounds, before any parser gets it.
 * @throws FileRefusal  when a bound is exceeded
 * @throws Error  when tags do not match
 */
export function readXml(xml: string, { open, close, text }: XmlHandlers): void {
  const path: string[] = [];
  const closeTag = (name: string) => {
    if (path.pop() !== name) throw new Error(`</${name}> closes another element`);
    close?.(localName(name));
  };
  for (let at = 0; at < xml.length;) {
    const start = at;
    const isTag = xml.charAt(at) === '<';
    const isSpecial = isTag && (xml.charAt(at + 1) === '!' || xml.charAt(at + 1) === '?');
    const special = isSpecial ? tokenEnds.find(([begin]) => xml.startsWith(begin, start)) : undefined;
    if (!isTag) at = xml.indexOf('<', at);
    else if (!special) at = endOfTag(xml, start);
    else {
      at = xml.indexOf(special[1], start + special[0].length);
      if (at !== -1) at += special[1].length;
    }
    const isComplete = at !== -1;
    if (at === -1) at = xml.length;
    if (at - start > maxTokenCharacters) refuse(`a text of more than ${String(maxTokenCharacters)} characters`);
    const token = xml.slice(start, at);
    if (!isTag) text?.(token);
    else if (special?.[0] === '<![CDATA[') text?.(escapeXml(token.slice(9, isComplete ? -3 : undefined)));
    else if (!isSpecial) {
      const [, slashes = '', name = ''] = /^<(\/?)([^\s/>]+)/.exec(token) ?? [];
      if (slashes) closeTag(name);
      else {
        if (path.push(name) > maxDepth) refuse(`more than ${String(maxDepth)} nested tags`);
        open(localName(name), token);
        if (token.endsWith('/>')) closeTag(name);
      }
    }
  }
  if (path.length > 0) throw new Error(`<${path.at(-1) ?? ''}> is not closed`);
}
