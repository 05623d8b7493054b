import { posix } from 'node:path';
import { strToU8, unzipSync, zipSync } from 'fflate';
import { FileRefusal, tooManyColumns, tooManyRows } from './file-refusal.ts';
import { type AttributeReader, decodeXml, escapeXml, isXmlPart, readXml, xmlBoolean } from './xml.ts';

/** Merged cells. Rows and columns count from 0; `bottom` is included. */
export interface MergedCells {
  top: number;
  bottom: number;
  left: number;
  right: number;
}

/** The sheet to read, in a form that read-excel-file reads without mistakes. */
export interface PreparedSheet {
  archive: Uint8Array;
  /** The merged cells of several rows. */
  merged: MergedCells[];
}

const lastRow = 1_048_576;
/** The number of 10000-01-01, the day after the last that a spreadsheet program knows, if days count from 1900. */
const endOfDays = 2_958_466;
const maxMergedCells = 10_000;
/** Names of parts differ in case, and some programs write `xl\workbook.xml`. */
const normalizePath = (path: string) => path.replaceAll('\\', '/').replace(/^\//, '').toLowerCase();

/** The parts of the archive with these paths, as text. The library never gets another one. */
function readParts(archive: Uint8Array, paths: string[]): (string | undefined)[] {
  const parts = unzipSync(archive, { filter: ({ name }) => isXmlPart(name) && paths.includes(normalizePath(name)) });
  const byPath = new Map(Object.entries(parts).map(([name, content]) => [normalizePath(name), content]));
  return paths.map((path) => {
    const content = byPath.get(path);
    return content && decodeXml(content);
  });
}

interface Relationship {
  id: string;
  /** The last part of its URI, which is the same in the strict and the transitional standard. */
  type: string;
  path: string;
}

/** @param source  the path of the part that has the relationships; empty for the archive */
function relationshipsOf(archive: Uint8Array, source: string): Relationship[] {
  const folder = posix.dirname(source);
  const [xml] = readParts(archive, [
    normalizePath(`${folder}/_rels/${posix.basename(source)}.rels`.replace(/^\.\//, '')),
  ]);
  const found: Relationship[] = [];
  readXml(xml ?? '', {
    open(name, attribute) {
      if (name !== 'Relationship') return;
      const target = normalizePath(posix.resolve('/', folder, attribute('Target') ?? ''));
      found.push({ id: attribute('Id') ?? '', type: posix.basename(attribute('Type') ?? ''), path: target });
    },
  });
  return found;
}

/** The paths of the parts that are read, and whether day 0 is in 1904. @throws Error if there is no sheet */
function readWorkbook(archive: Uint8Array) {
  const path = relationshipsOf(archive, '').find(({ type }) => type === 'officeDocument')?.path ?? 'xl/workbook.xml';
  const [xml] = readParts(archive, [path]);
  const relationships = relationshipsOf(archive, path);
  const sheets: { path: string; isVisible: boolean }[] = [];
  let is1904 = false;
  readXml(xml ?? '', {
    open(name, attribute) {
      if (name === 'workbookPr') is1904 = xmlBoolean(attribute('date1904')) ?? false;
      if (name !== 'sheet') return;
      // A chart can have a sheet too.
      const relationship = relationships.find(({ id, type }) => type === 'worksheet' && id === attribute('id'));
      if (relationship)
        sheets.push({ path: relationship.path, isVisible: (attribute('state') ?? 'visible') === 'visible' });
    },
  });
  const sheet = sheets.find(({ isVisible }) => isVisible) ?? sheets[0];
  if (!sheet) throw new Error('There is no sheet.');
  const pathOf = (type: string) =>
    relationships.find((relationship) => relationship.type === type)?.path ??
    normalizePath(`${posix.dirname(path)}/${type}.xml`);
  return { is1904, sheet: sheet.path, sharedStrings: pathOf('sharedStrings'), styles: pathOf('styles') };
}

type DigitFormat = (digits: string) => string;

/**
 * How a format such as `000000` or `"ADM-"0000` shows a whole number. Undefined for formats of another kind, with
 * decimals, a currency or a date, of which the value is read.
 */
function digitFormat(code: string): DigitFormat | undefined {
  const [section = ''] = /^(?:"[^"]*"|\\.|[^;"\\])*/s.exec(code) ?? [];
  const parts = [...section.matchAll(/"([^"]*)"|\\(.)|([0#])|([-+()/: ])|(.)/gs)].map(
    ([, quoted, escaped, placeholder, literal, other]) => ({
      placeholder,
      literal: quoted ?? escaped ?? literal ?? '',
      other,
    }),
  );
  const first = parts.findIndex(({ placeholder }) => placeholder);
  const isPlain = parts.length === 1;
  if (first === -1 || isPlain || parts.some(({ other }) => other !== undefined)) return undefined;
  return (digits) => {
    let left = digits;
    let shown = '';
    for (const [at, { placeholder, literal }] of [...parts.entries()].reverse()) {
      // The first placeholder takes all digits that are left.
      const taken = at === first ? left : left.slice(-1);
      if (placeholder) left = left.slice(0, left.length - taken.length);
      shown = (placeholder ? taken || (placeholder === '0' ? '0' : '') : literal) + shown;
    }
    return shown;
  };
}

/** More than programs allow. */
const maxFormats = 5000;
const maxFormatCharacters = 1000;
/** Ids from 100 on are not built in. */
const customFormat = (id: string) => String(Number(id) + 1000);

/**
 * The formats of cells: the XML for the library, which has what it needs to find dates, and by number of the style the
 * formats that show digits.
 */
function readStyles(xml = '') {
  const codes = new Map<string, string>();
  const base: string[] = [];
  const styles: string[] = [];
  let list = '';
  readXml(xml, {
    open(name, attribute) {
      if (['numFmts', 'cellStyleXfs', 'cellXfs', 'dxfs'].includes(name)) list = name;
      if (name === 'numFmt' && list === 'numFmts') {
        const code = attribute('formatCode') ?? '';
        if (code.length > maxFormatCharacters || codes.size >= maxFormats)
          throw new FileRefusal(
            `The file has more than ${String(maxFormats)} number formats, or one of more than ` +
              `${String(maxFormatCharacters)} characters.`,
          );
        codes.set(attribute('numFmtId') ?? '', code);
      } else if (name === 'xf' && list === 'cellStyleXfs') base.push(attribute('numFmtId') ?? '0');
      else if (name === 'xf' && list === 'cellXfs') {
        styles.push(attribute('numFmtId') ?? base[Number(attribute('xfId') ?? 0)] ?? '0');
      }
    },
  });
  const numFmts = [...codes].map(
    ([id, code]) => `<numFmt numFmtId="${customFormat(id)}" formatCode="${escapeXml(code)}"/>`,
  );
  const xfs = styles.map((id) => `<xf numFmtId="${escapeXml(codes.has(id) ? customFormat(id) : id)}"/>`);
  const digitFormats = new Map([...codes].map(([id, code]) => [id, digitFormat(code)]));
  return {
    xml: `<styleSheet><numFmts>${numFmts.join('')}</numFmts><cellXfs>${xfs.join('')}</cellXfs></styleSheet>`,
    digits: styles.map((id) => digitFormats.get(id)),
  };
}

const letters = (column: number): string =>
  (column > 26 ? letters(Math.floor((column - 1) / 26)) : '') + String.fromCharCode(65 + ((column - 1) % 26));
const columnOf = (text: string) => Array.from(text).reduce((sum, letter) => sum * 26 + letter.charCodeAt(0) - 64, 0);

/** The row and the column from 1 that `B7`, `$B$7` or `7` names; undefined for a part that is not there. */
function readReference(reference: string | undefined): { row?: number; column?: number } {
  if (reference === undefined) return {};
  const [match, column = '', row = ''] = /^\$?([A-Z]{1,3})?\$?(\d{1,7})$/.exec(reference.trim().toUpperCase()) ?? [];
  if (match === undefined || Number(row) > lastRow || Number(row) < 1)
    throw new FileRefusal('The file has a cell beyond column XFD or row 1048576.');
  return { row: Number(row), ...(column === '' ? {} : { column: columnOf(column) }) };
}

/** The merged cells of a range such as `A2:A5`; undefined if they are all in one row. */
function readMerged(range: string): MergedCells | undefined {
  const [from, to] = range.split(':').map(readReference);
  if (!from?.row || !from.column || !to?.row || !to.column || to.row <= from.row) return undefined;
  return { top: from.row - 1, bottom: to.row - 1, left: from.column - 1, right: to.column - 1 };
}

/** More rows or columns with values are refused. The rows include the header. */
interface Limits {
  maxRows: number;
  maxColumns: number;
}

interface SheetReader extends Limits {
  /** Whether days count from 1904. */
  is1904: boolean;
  styles: ReturnType<typeof readStyles>;
  /** Whether a shared string has no text, by its number. */
  isBlankString: boolean[];
}

interface OpenCell {
  /** The tag without its end. */
  tag: string;
  /** The attribute of the style, if the library needs it. */
  style: string;
  type: string;
  format: DigitFormat | undefined;
  hasFormula: boolean;
  /** Undefined without a value. */
  text: string | undefined;
}

/**
 * Writes the cells that are not empty again: each with its reference, without comments, CDATA, rich text and formulas;
 * booleans as 1 or 0, dates of the type `d` as text, and numbers as their format shows them if it adds zeros or text.
 */
function readCells(xml: string, { is1904, styles, isBlankString, maxRows, maxColumns }: SheetReader) {
  const out: string[] = [];
  const merged: MergedCells[] = [];
  let isData = false;
  let rows = 0;
  let row = 0;
  let column = 0;
  let rowOut = '';
  let cell: OpenCell | undefined;
  /** The element within a cell whose content is left out. */
  let leftOut: string | undefined;
  let isText = false;

  const openCell = (attribute: AttributeReader): OpenCell => {
    column = readReference(attribute('r')).column ?? column + 1;
    const style = Number(attribute('s') ?? NaN);
    const type = attribute('t') ?? 'n';
    const format = type === 'n' ? styles.digits[style] : undefined;
    const writtenType = type === 'd' || type === 'e' || format ? 'str' : type;
    const isKnown = Number.isInteger(style) && style >= 0 && style < styles.digits.length;
    return {
      tag: `<c r="${letters(column)}${String(row)}" t="${escapeXml(writtenType)}"`,
      style: isKnown && !format ? ` s="${String(style)}"` : '',
      type,
      format,
      hasFormula: false,
      text: undefined,
    };
  };
  const shown = (text: string, { type, format }: OpenCell): string => {
    if (type === 'b') return xmlBoolean(text) === undefined ? text : xmlBoolean(text) ? '1' : '0';
    const number = Number(text);
    if (!format || Number.isNaN(number)) return text;
    return Number.isSafeInteger(number) && number >= 0 ? format(String(number)) : String(number);
  };
  const closeCell = (closed: OpenCell) => {
    const { tag, type, text } = closed;
    if (text === undefined && closed.hasFormula)
      throw new FileRefusal(
        `Line ${String(row)} has a formula without a result in column ${letters(column)}. ` +
          'Open the file in a spreadsheet program and save it again.',
      );
    if (!text?.trim() || (type === 's' && isBlankString[Number(text)])) return;
    if (column > maxColumns) throw tooManyColumns(row, maxColumns);
    const content = escapeXml(shown(text, closed));
    // A number after the last day is no date, also in a cell that is formatted as one.
    const style = type === 'n' && Number(text) >= endOfDays - (is1904 ? 1462 : 0) ? '' : closed.style;
    rowOut += `${tag}${style}>${type === 'inlineStr' ? `<is><t>${content}</t></is>` : `<v>${content}</v>`}</c>`;
  };
  const closeRow = () => {
    if (rowOut === '') return;
    if (++rows > maxRows) throw tooManyRows(maxRows);
    out.push(`<row r="${String(row)}">${rowOut}</row>`);
  };

  readXml(xml, {
    open(name, attribute) {
      if (leftOut !== undefined) return;
      if (name === 'sheetData') isData = true;
      else if (name === 'mergeCell') {
        const range = readMerged(attribute('ref') ?? '');
        if (range && merged.push(range) > maxMergedCells)
          throw new FileRefusal(`The file has more than ${String(maxMergedCells)} merged cells.`);
      } else if (name === 'row' && isData) {
        row = readReference(attribute('r')).row ?? row + 1;
        column = 0;
        rowOut = '';
      } else if (name === 'c' && isData) cell = openCell(attribute);
      else if (!cell) return;
      else if (name === 'v' || name === 't') {
        isText = true;
        cell.text ??= '';
      } else if (name !== 'is' && name !== 'r') {
        leftOut = name;
        cell.hasFormula ||= name === 'f';
      }
    },
    text(text) {
      if (cell && isText && leftOut === undefined) cell.text = (cell.text ?? '') + text;
    },
    close(name) {
      if (leftOut !== undefined) {
        if (name === leftOut) leftOut = undefined;
      } else if (name === 'v' || name === 't') isText = false;
      else if (name === 'c' && cell) {
        closeCell(cell);
        cell = undefined;
      } else if (name === 'row' && isData) closeRow();
      else if (name === 'sheetData') isData = false;
    },
  });
  return { xml: `<worksheet><sheetData>${out.join('')}</sheetData></worksheet>`, merged };
}

/** The shared strings without comments, CDATA, formats and phonetic readings, and whether each has no text. */
function readStrings(xml = '<sst/>') {
  const out: string[] = [];
  const isBlank: boolean[] = [];
  let isPhonetic = false;
  let isText = false;
  let text = '';
  readXml(xml, {
    open(name) {
      if (name === 'si') text = '';
      else if (name === 'rPh') isPhonetic = true;
      else if (name === 't') isText = !isPhonetic;
    },
    text(part) {
      if (isText) text += part;
    },
    close(name) {
      if (name === 't') isText = false;
      else if (name === 'rPh') isPhonetic = false;
      else if (name === 'si') {
        isBlank.push(text.trim() === '');
        out.push(`<si><t>${escapeXml(text)}</t></si>`);
      }
    },
  });
  return { xml: `<sst>${out.join('')}</sst>`, isBlank };
}

const office = 'http://schemas.openxmlformats.org/officeDocument/2006/relationships';

/**
 * Takes the first visible sheet out of an .xlsx and writes it in the plain form that the library reads. The library
 * takes `date1904="true"` and `<v>true</v>` for false and damaged, reads hidden sheets, needs the reference of each
 * cell, and takes quadratic time for the attributes of a tag.
 * @throws FileRefusal  when a bound is exceeded
 * @throws Error  when the file is damaged
 */
export function prepareSheet(content: Uint8Array, limits: Limits): PreparedSheet {
  const workbook = readWorkbook(content);
  const [stylesXml, stringsXml, sheetXml] = readParts(content, [
    workbook.styles,
    workbook.sharedStrings,
    workbook.sheet,
  ]);
  if (sheetXml === undefined) throw new Error('The sheet is missing.');
  const styles = readStyles(stylesXml);
  const strings = readStrings(stringsXml);
  const sheet = readCells(sheetXml, { ...limits, is1904: workbook.is1904, styles, isBlankString: strings.isBlank });
  const relation = (type: string, target: string) =>
    `<Relationship Id="${type}" Type="${office}/${type}" Target="${target}"/>`;
  const parts: Record<string, string> = {
    'xl/workbook.xml':
      `<workbook xmlns:r="${office}"><workbookPr date1904="${workbook.is1904 ? '1' : '0'}"/>` +
      '<sheets><sheet name="S" sheetId="1" r:id="worksheet"/></sheets></workbook>',
    'xl/_rels/workbook.xml.rels': `<Relationships>${relation('worksheet', 'sheet.xml')}</Relationships>`,
    'xl/sheet.xml': sheet.xml,
    'xl/styles.xml': styles.xml,
    'xl/sharedStrings.xml': strings.xml,
  };
  const files = Object.fromEntries(Object.entries(parts).map(([path, xml]) => [path, strToU8(xml)]));
  return { archive: zipSync(files, { level: 0 }), merged: sheet.merged };
}
