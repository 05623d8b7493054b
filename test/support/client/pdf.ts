import { getDocumentProxy } from 'unpdf';

/** An element of the structure of a PDF: its tag, and its text or the elements in it. */
export type PdfElement = [tag: string, content: string | PdfElement[]];

interface StructNode {
  role?: string;
  type?: string;
  id?: string;
  alt?: string;
  children?: StructNode[];
}

interface TextItem {
  type?: string;
  tag?: string;
  id?: string;
  str?: string;
}

/** What a screen reader learns from a PDF. */
export interface PdfStructure {
  title: unknown;
  language: unknown;
  /** Whether the document says that it is tagged, and that viewers show its title. */
  isTagged: boolean;
  showsTitle: boolean;
  /** The part of PDF/UA that the document claims to conform to. */
  uaPart: unknown;
  /** The elements of each page. */
  pages: PdfElement[][];
  /** Texts that are decoration, and texts that are neither an element nor decoration. */
  decoration: string[];
  untagged: string[];
}

/** Reads the structure of a PDF with pdf.js. */
export async function pdfStructure(pdf: Buffer): Promise<PdfStructure> {
  const document = await getDocumentProxy(new Uint8Array(pdf));
  const [{ info, metadata }, marks, preferences] = await Promise.all([
    document.getMetadata(),
    document.getMarkInfo() as Promise<{ Marked: boolean } | null>,
    document.getViewerPreferences() as Promise<{ DisplayDocTitle?: boolean } | null>,
  ]);
  const found: PdfStructure = {
    title: (info as { Title?: string }).Title,
    language: (info as { Language?: string }).Language,
    isTagged: marks?.Marked === true,
    showsTitle: preferences?.DisplayDocTitle === true,
    uaPart: (metadata as { get: (name: string) => unknown } | null)?.get('pdfuaid:part'),
    ...{ pages: [], decoration: [], untagged: [] },
  };
  for (let n = 1; n <= document.numPages; n++) {
    const page = await document.getPage(n);
    const texts = new Map<string, string>();
    const open: TextItem[] = [];
    for (const item of (await page.getTextContent({ includeMarkedContent: true })).items as TextItem[]) {
      if (item.type === 'endMarkedContent') open.pop();
      else if (item.type) open.push(item);
      else if (item.str?.trim()) {
        const mark = open.at(-1);
        if (mark?.tag === 'Artifact') found.decoration.push(item.str);
        else if (mark?.id) texts.set(mark.id, [texts.get(mark.id), item.str].filter(Boolean).join(' '));
        else found.untagged.push(item.str);
      }
    }
    const read = ({ role = '', alt, children = [] }: StructNode): PdfElement => {
      const elements = children.filter((child) => child.type === undefined).map(read);
      const text = children.map((child) => texts.get(child.id ?? '')).filter(Boolean);
      return [role, elements.length > 0 ? elements : (alt ?? text.join(' '))];
    };
    const tree = (await page.getStructTree()) as StructNode | null;
    found.pages.push((tree?.children ?? []).flatMap((child) => (read(child)[1] || []) as PdfElement[]));
  }
  return found;
}
