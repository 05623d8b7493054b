import type { Document } from './text.ts';

/**
 * The structure of a document, which screen readers read instead of the positions on the page. PDF/UA wants every
 * drawing operation to belong to an element of the structure, or to be marked as decoration.
 */
export type Element = PDFKit.PDFStructureElement;

/** The standard structure types (ISO 32000-1, 14.8.4) that the documents use. */
type Tag = 'Document' | 'Figure' | 'H1' | 'H2' | 'L' | 'LBody' | 'LI' | 'Lbl' | 'P' | 'TD' | 'TH' | 'TR' | 'Table';

interface ElementOptions {
  /** Replaces a picture. */
  alt?: string;
  /** Left, top, right and bottom of a picture. */
  bbox?: [number, number, number, number];
  /** Whose header a TH is. */
  scope?: 'Column' | 'Row';
  /** The number of columns of a table that a cell spans. */
  columns?: number;
  /** The language (BCP 47), if it is not that of the document. */
  lang?: string;
}

/** For the texts of the service, which are not translated. The language of a document is that of the school. */
export const english: ElementOptions = { lang: 'en' };

const roots = new WeakMap<Document, Element>();
/** Documents whose present content is decoration. */
const decorating = new WeakSet<Document>();

/** The element that contains all others. */
export function contentsOf(doc: Document): Element {
  let root = roots.get(doc);
  if (!root) {
    root = doc.struct('Document');
    doc.addStructure(root);
    roots.set(doc, root);
  }
  return root;
}

/** Adds an element without content of its own, such as a table or an empty cell. */
export function addElement(
  doc: Document,
  parent: Element,
  tag: Tag,
  { columns, ...options }: ElementOptions = {},
): Element {
  if (decorating.has(doc)) return parent;
  const element = doc.struct(tag, options);
  if (columns !== undefined) {
    const { data } = (element as unknown as { dictionary: { data: Record<string, unknown> } }).dictionary;
    data['A'] = { O: 'Table', ColSpan: columns };
  }
  parent.add(element);
  return element;
}

/** Draws content of an element. An element may get content several times, also on different pages. */
export function drawInto(doc: Document, element: Element, tag: Tag, draw: () => void): void {
  if (decorating.has(doc)) {
    draw();
    return;
  }
  const content = doc.markStructureContent(tag);
  draw();
  doc.endMarkedContent();
  element.add(content);
}

/** Adds an element with this content. */
export function drawElement(
  doc: Document,
  parent: Element,
  tag: Tag,
  draw: () => void,
  options?: ElementOptions,
): Element {
  const element = addElement(doc, parent, tag, options);
  drawInto(doc, element, tag, draw);
  return element;
}

/** Draws what screen readers leave out: lines and backgrounds, or what each page repeats (`Pagination`). */
export function drawDecoration(doc: Document, draw: () => void, type: 'Layout' | 'Pagination' = 'Layout'): void {
  if (decorating.has(doc)) {
    draw();
    return;
  }
  decorating.add(doc);
  doc.markContent('Artifact', { type });
  draw();
  doc.endMarkedContent();
  decorating.delete(doc);
}
