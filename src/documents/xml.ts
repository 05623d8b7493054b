import { SaxesParser } from 'saxes';
import { FileRefusal } from './file-refusal.ts';

/** An attribute of a tag by its local name: `id` for `r:id`. */
export type AttributeReader = (name: string) => string | undefined;

/** What is read of an XML document. Comments, instructions and declarations are left out. */
export interface XmlHandlers {
  /** @param name  without its prefix. `<a/>` is opened and closed. */
  open: (name: string, attribute: AttributeReader) => void;
  close?: (name: string) => void;
  /** A text with a comment or CDATA in it comes in several parts. */
  text?: (text: string) => void;
}

/** Whether a part of an archive is XML. No other part is unpacked, so only these count toward the size of a file. */
export const isXmlPart = (name: string): boolean => /\.(xml|rels)$/i.test(name);

/** Longer than any text of a cell, tag or comment of a spreadsheet program. */
const maxTokenCharacters = 1_500_000;
/** Programs write at most 30 attributes, 40 characters and 15 levels. */
const maxAttributes = 100;
const maxNameCharacters = 200;
const maxDepth = 100;
/** The parser gets the document in parts, so that a text that is too long ends before all of it is read. */
const partCharacters = 65_536;

/** The name without its prefix: `x:row` is `row`. */
const localName = (name: string) => name.slice(name.indexOf(':') + 1);

/** Collects nothing: a sheet has a million tags. */
function findAttribute(written: Record<string, string>, name: string): string | undefined {
  if (name in written) return written[name];
  for (const key in written) if (localName(key) === name && !key.startsWith('xmlns')) return written[key];
  return undefined;
}

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
 * Reads an XML document with bounds.
 * @throws FileRefusal  when a bound is exceeded
 * @throws Error  when the document is not well-formed
 */
export function readXml(xml: string, { open, close, text }: XmlHandlers): void {
  if (xml === '') return;
  const refuse = (what: string): never => {
    throw new FileRefusal(`The file has ${what}.`);
  };
  const checkName = (name: string) => {
    if (name.length > maxNameCharacters) refuse(`a name of more than ${String(maxNameCharacters)} characters`);
  };
  const parser = new SaxesParser({ position: false, xmlns: false });
  let depth = 0;
  let attributes = 0;
  /** The number of characters since the last event. */
  let unread = 0;
  // Not all events: with more than about eight, the parser takes four times as long, because the engine stores the
  // handlers as dynamic properties of the parser.
  parser.on('attribute', ({ name }) => {
    unread = 0;
    checkName(name);
    if (++attributes > maxAttributes) refuse(`a tag with more than ${String(maxAttributes)} attributes`);
  });
  parser.on('opentag', ({ name, attributes: written }) => {
    unread = 0;
    attributes = 0;
    checkName(name);
    if (++depth > maxDepth) refuse(`more than ${String(maxDepth)} nested tags`);
    open(localName(name), (wanted) => findAttribute(written, wanted));
  });
  parser.on('closetag', ({ name }) => {
    unread = 0;
    depth--;
    close?.(localName(name));
  });
  const read = (part: string) => {
    unread = 0;
    text?.(part);
  };
  parser.on('text', read);
  parser.on('cdata', read);
  parser.on('error', (error) => {
    // Such a reference stays text: the entities that a document declares are never expanded.
    if (!error.message.endsWith('undefined entity.')) throw error;
  });
  for (let at = 0; at < xml.length; at += partCharacters) {
    unread += partCharacters;
    parser.write(xml.slice(at, at + partCharacters));
    if (unread > maxTokenCharacters) refuse(`a text of more than ${String(maxTokenCharacters)} characters`);
  }
  parser.close();
}
