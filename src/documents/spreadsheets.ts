import { Readable } from 'node:stream';
import { setImmediate as yieldToEventLoop } from 'node:timers/promises';
import { stringify } from 'csv-stringify/sync';
import { strToU8, unzipSync, Zip, ZipDeflate } from 'fflate';
import type { RequestOwner } from '../concurrency/fair-queue.ts';
import { createThreadPool, ThreadLimitError } from '../concurrency/thread-pool.ts';
import type { Download, Upload } from '../domain/files.ts';
import { ApiError } from '../domain/errors.ts';
import { maxDecimals } from '../domain/money.ts';
import { isXmlPart } from './xml.ts';

export const csvType = 'text/csv';
export const xlsxType = 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet';

/** A row of a file that is not empty. The cells are trimmed text, without empty cells at the end. */
export interface SheetRow {
  /** The line in the file, from 1. */
  line: number;
  cells: string[];
}

/** A file to read in a thread. */
export interface ReadTask {
  content: Uint8Array;
  contentType: string;
  maxRows: number;
}
/** The refusal is null for a damaged file. */
export type ReadResult = { rows: SheetRow[] } | { refusal: string | null };

/**
 * A malicious file may exhaust memory or time, or affect later code in the same thread. Each file is therefore read in
 * a thread of its own.
 */
const readInThread = createThreadPool<ReadTask, ReadResult>({
  name: 'spreadsheet_threads',
  script: new URL('spreadsheets.worker.ts', import.meta.url),
  resourceLimits: { maxOldGenerationSizeMb: 256, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 },
  maxThreads: 2,
  maxQueue: 16,
  idleTimeoutMs: 0,
  queueFullMessage: 'Too many files are being read. Try again in a moment.',
});
/** The time limit for one file. Tests on a busy machine raise it. */
export const readOptions = { timeoutMs: 10_000 };
const tooLarge = 'The file is too large when unpacked.';
const damaged = 'The file is damaged, or its content does not match its name.';
const limitMessages = { time: 'The file takes too long to read. Make it smaller.', memory: tooLarge };

/** Several times what 5,000 full rows need. A spreadsheet has a dozen parts, and one for each sheet and picture. */
const maxUnpackedBytes = 30 * 1024 * 1024;
const maxParts = 5_000;

/**
 * Reads only the directory of an .xlsx, so that a zip bomb costs no thread. The thread unpacks each part into a buffer
 * of the size in the directory, so a false size gains nothing.
 * @returns the reason to refuse the file, if there is one
 */
function directoryFault(content: Uint8Array): string | undefined {
  let parts = 0;
  let unpackedBytes = 0;
  const isOver = () => parts > maxParts || unpackedBytes > maxUnpackedBytes;
  try {
    unzipSync(content, {
      filter({ name, originalSize }) {
        parts++;
        if (isXmlPart(name)) unpackedBytes += originalSize;
        // Ends a directory that has, or only claims to have, billions of parts.
        if (isOver()) throw new Error(tooLarge);
        return false;
      },
    });
    return undefined;
  } catch {
    return isOver() ? tooLarge : damaged;
  }
}

export interface ReadRequest {
  /** The user and the school that the threads are shared out to. */
  owner?: RequestOwner;
  /** Ends the wait for a thread, or the reading, with its reason: for a client that has disconnected. */
  signal?: AbortSignal;
}

/**
 * Reads the rows of a .csv (UTF-8; comma, semicolon, tab, `|` or what `sep=` names) or of the first visible sheet of an
 * .xlsx in a thread. A date becomes `YYYY-MM-DD`, with a time `YYYY-MM-DDTHH:MM:SS`, a boolean `true` or `false`, and a
 * formula its last result. Hidden rows are read too.
 * @param maxRows  including the header
 * @throws ApiError `validation_error` when the file is damaged or too large, `unavailable` when too many files wait;
 *   the reason of the signal
 */
export async function readSheet(
  { content, contentType }: Pick<Upload, 'content' | 'contentType'>,
  maxRows: number,
  request: ReadRequest = {},
): Promise<SheetRow[]> {
  const fault = contentType === csvType ? undefined : directoryFault(content);
  if (fault !== undefined) throw refused(fault);
  const result = await readInThread({ content, contentType, maxRows }, { ...readOptions, ...request }).catch(
    (error: unknown): ReadResult => {
      if (error instanceof ThreadLimitError) return { refusal: limitMessages[error.limit] };
      throw error;
    },
  );
  if ('rows' in result) return result.rows;
  throw refused(result.refusal ?? damaged);
}

const refused = (message: string) =>
  new ApiError('validation_error', message, { details: [{ path: 'file', message }] });

/** The value of a cell. A Date stands for a day, without a time. */
export type Cell = string | number | boolean | Date | null;

/** A table to write. Its rows may be read while the file is sent. The header is made from the columns. */
export interface Sheet {
  name: string;
  /**
   * `isText` formats an .xlsx column as text, so that 007 and +234 stay as typed. `decimals` formats one of amounts: each
   * with these decimals, or with all of its own. The width is in characters.
   */
  columns: { header: string; width?: number; isText?: boolean; decimals?: number }[];
  rows: Iterable<Cell[]> | AsyncIterable<Cell[]>;
}

/**
 * Spreadsheet programs run such text as a formula. A leading quote prevents it, and reading a file removes the quote.
 */
const escapeFormula = (text: string) => (/^'*[=+\-@\t\r＝＋－＠]/.test(text) ? `'${text}` : text);

const day = (date: Date) => date.toISOString().slice(0, 10);

/** A .csv (UTF-8 with the byte order mark that spreadsheet programs need) or an .xlsx, written while it is sent. */
export function sheetFile(
  format: 'csv' | 'xlsx',
  name: string,
  [first, ...others]: [Sheet, ...Sheet[]],
): Download & { content: Readable } {
  return {
    name: `${name}.${format}`,
    contentType: format === 'csv' ? `${csvType}; charset=utf-8` : xlsxType,
    content: Readable.from(format === 'csv' ? csv(first) : xlsx([first, ...others]), { objectMode: false }),
  };
}

/** Rows are written in chunks, and other requests run between two chunks. */
const chunkRows = 200;

async function* inChunks(rows: Sheet['rows']): AsyncGenerator<Cell[][]> {
  let chunk: Cell[][] = [];
  for await (const row of rows) {
    if (chunk.push(row) < chunkRows) continue;
    yield chunk;
    chunk = [];
    await yieldToEventLoop();
  }
  yield chunk;
}

async function* csv({ columns, rows }: Sheet): AsyncGenerator<string> {
  const cast = { string: escapeFormula, boolean: String, date: day };
  const text = (some: Cell[][]) => stringify(some, { record_delimiter: 'windows', quoted_match: /[\r\n]/, cast });
  yield `\ufeff${text([columns.map(({ header }) => header)])}`;
  for await (const chunk of inChunks(rows)) yield text(chunk);
}

const office = 'http://schemas.openxmlformats.org/officeDocument/2006/relationships';
const main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"';
const packageNamespace = (name: string) => `xmlns="http://schemas.openxmlformats.org/package/2006/${name}"`;
const packageContentType = (name: string) => `application/vnd.openxmlformats-package.${name}+xml`;
const sheetContentType = (name: string) => `application/vnd.openxmlformats-officedocument.spreadsheetml.${name}+xml`;

const amountDecimals = Array.from({ length: maxDecimals + 1 }, (_, decimals) => decimals);
const amountFormat = (decimals: number) => `#,##0${decimals > 0 ? `.${'0'.repeat(decimals)}` : ''}`;
const firstAmountFormat = 165;
/** The positions of the cell formats in cellXfs of `styles`. From `amount` on, one for each number of decimals. */
const formats = { header: 1, text: 2, date: 3, amount: 4 };
const numberFormats = [
  '<numFmt numFmtId="164" formatCode="yyyy-mm-dd"/>',
  ...amountDecimals.map((n) => `<numFmt numFmtId="${String(firstAmountFormat + n)}" formatCode="${amountFormat(n)}"/>`),
];
const cellFormats = [
  '<xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>',
  '<xf numFmtId="0" fontId="1" fillId="0" borderId="0" xfId="0" applyFont="1"/>',
  ...[49, 164, ...amountDecimals.map((n) => firstAmountFormat + n)].map(
    (id) => `<xf numFmtId="${String(id)}" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/>`,
  ),
];
const styles = `<styleSheet ${main}>\
<numFmts count="${String(numberFormats.length)}">${numberFormats.join('')}</numFmts>\
<fonts count="2"><font><sz val="11"/><name val="Calibri"/></font>\
<font><b/><sz val="11"/><name val="Calibri"/></font></fonts>\
<fills count="2"><fill><patternFill patternType="none"/></fill>\
<fill><patternFill patternType="gray125"/></fill></fills>\
<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>\
<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>\
<cellXfs count="${String(cellFormats.length)}">${cellFormats.join('')}</cellXfs>\
<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>`;

/**
 * Escapes text for XML. Drops characters that XML does not allow, cuts at the maximum length of a cell, and keeps
 * `_x0041_` from being read as A.
 */
const xml = (text: string) =>
  text
    .slice(0, 32_767)
    .toWellFormed()
    .replace(/[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g, '')
    .replace(/_(?=x[\dA-Fa-f]{4}_)/g, '_x005F_')
    .replace(/[&<>"\r]/g, (character) => `&#${String(character.charCodeAt(0))};`);

/** A, B, … Z, AA, … */
const letters = (column: number): string =>
  (column < 26 ? '' : letters(Math.floor(column / 26) - 1)) + String.fromCharCode(65 + (column % 26));

const dayMs = 24 * 60 * 60 * 1000;

/** Days since 1899-12-31. Spreadsheets count a 1900-02-29 that did not exist, so earlier dates are written as text. */
const dateSerial = (date: Date) => Math.floor(date.getTime() / dayMs) + 25_569;

function cellXml(value: Cell, at: string, format?: number): string {
  const style = format === undefined ? '' : ` s="${String(format)}"`;
  if (value === null || value === '') return '';
  if (typeof value === 'number') return `<c r="${at}"${style}><v>${String(value)}</v></c>`;
  if (typeof value === 'boolean') return `<c r="${at}"${style} t="b"><v>${value ? '1' : '0'}</v></c>`;
  if (value instanceof Date)
    return dateSerial(value) > 60 ? cellXml(dateSerial(value), at, formats.date) : cellXml(day(value), at);
  return `<c r="${at}"${style} t="inlineStr"><is><t xml:space="preserve">${xml(escapeFormula(value))}</t></is></c>`;
}

/** The cell format of a value in a column of amounts. */
function amountStyle(decimals: number, value: Cell): number {
  const own = typeof value === 'number' ? (/\.(\d+)$/.exec(String(value))?.[1]?.length ?? 0) : 0;
  return formats.amount + Math.min(Math.max(decimals, own), maxDecimals);
}

const rowXml = (cells: Cell[], row: number, format: (column: number, value: Cell) => number | undefined) =>
  `<row r="${String(row)}">` +
  cells.map((cell, column) => cellXml(cell, letters(column) + String(row), format(column, cell))).join('') +
  '</row>';

async function* sheetXml({ columns, rows }: Sheet): AsyncGenerator<string> {
  const column = ({ header, width, isText, decimals }: Sheet['columns'][number], n: number) => {
    const style = isText ? formats.text : decimals === undefined ? undefined : amountStyle(decimals, null);
    const position = String(n + 1);
    const styleAttribute = style === undefined ? '' : ` style="${String(style)}"`;
    const widthAttribute = `width="${String(width ?? header.length + 4)}" customWidth="1"`;
    return `<col min="${position}" max="${position}" ${widthAttribute}${styleAttribute}/>`;
  };
  yield `<worksheet ${main}><sheetViews><sheetView workbookViewId="0">\
<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews>\
<cols>${columns.map(column).join('')}</cols><sheetData>`;
  const headers = columns.map(({ header }) => header);
  yield rowXml(headers, 1, () => formats.header);
  const format = (index: number, value: Cell) => {
    const decimals = columns[index]?.decimals;
    return decimals === undefined ? undefined : amountStyle(decimals, value);
  };
  let row = 1;
  for await (const chunk of inChunks(rows)) yield chunk.map((cells) => rowXml(cells, ++row, format)).join('');
  yield '</sheetData></worksheet>';
}

async function* xlsx(sheets: Sheet[]): AsyncGenerator<Uint8Array> {
  let done: Uint8Array[] = [];
  const zip = new Zip((error, data) => {
    if (error) throw error;
    done.push(data);
  });
  async function* part(name: string, content: Iterable<string> | AsyncIterable<string>) {
    const file = new ZipDeflate(name, { level: 1 });
    zip.add(file);
    for await (const text of content) {
      file.push(strToU8(text));
      yield* done;
      done = [];
    }
    file.push(new Uint8Array(), true);
  }
  const forEachSheet = (toXml: (sheet: Sheet, n: string) => string) =>
    sheets.map((sheet, index) => toXml(sheet, String(index + 1))).join('');
  const override = (path: string, type: string) =>
    `<Override PartName="/xl/${path}" ContentType="${sheetContentType(type)}"/>`;
  const relation = (id: string, type: string, target: string) =>
    `<Relationship Id="${id}" Type="${office}/${type}" Target="${target}"/>`;
  const parts: [string, string][] = [
    [
      '[Content_Types].xml',
      `<Types ${packageNamespace('content-types')}>` +
        `<Default Extension="rels" ContentType="${packageContentType('relationships')}"/>` +
        override('workbook.xml', 'sheet.main') +
        override('styles.xml', 'styles') +
        forEachSheet((_, n) => override(`worksheets/sheet${n}.xml`, 'worksheet')) +
        '</Types>',
    ],
    [
      '_rels/.rels',
      `<Relationships ${packageNamespace('relationships')}>` +
        relation('rId1', 'officeDocument', 'xl/workbook.xml') +
        '</Relationships>',
    ],
    [
      'xl/workbook.xml',
      `<workbook ${main} xmlns:r="${office}"><sheets>` +
        forEachSheet(({ name }, n) => `<sheet name="${xml(name)}" sheetId="${n}" r:id="rId${n}"/>`) +
        '</sheets></workbook>',
    ],
    [
      'xl/_rels/workbook.xml.rels',
      `<Relationships ${packageNamespace('relationships')}>` +
        forEachSheet((_, n) => relation(`rId${n}`, 'worksheet', `worksheets/sheet${n}.xml`)) +
        relation('rIdStyles', 'styles', 'styles.xml') +
        '</Relationships>',
    ],
    ['xl/styles.xml', styles],
  ];
  const head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n';
  for (const [name, text] of parts) yield* part(name, [head + text]);
  for (const [index, sheet] of sheets.entries())
    yield* part(`xl/worksheets/sheet${String(index + 1)}.xml`, sheetXml(sheet));
  zip.end();
  yield* done;
}
