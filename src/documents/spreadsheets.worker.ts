import { isUtf8 } from 'node:buffer';
import type { Cell, ReadResult, ReadTask, SheetRow } from './spreadsheets.ts';

/** Limits of the text of a file: several times what 5,000 full rows need. */
const maxCharacters = 10_000_000;
const maxColumns = 200;
const maxCellCharacters = 10_000;

/** The message says why the file is refused. */
class FileRefusal extends Error {}

/** A cell as text, without the quote that our own files put before text that looks like a formula. */
function cellText(value: Cell): string {
  if (value === null) return '';
  if (value instanceof Date) return value.toISOString().replace(/T00:00:00\.000Z$/, '');
  return String(value)
    .normalize()
    .replace(/\r\n?/g, '\n')
    .trim()
    .replace(/^'(?='*[=+\-@\t\n＝＋－＠])/, '');
}

/** The rows that are not empty. @throws FileRefusal when a limit is exceeded */
function filledRows(rows: Iterable<{ line: number; cells: Cell[] }>, maxRows: number): SheetRow[] {
  const filled: SheetRow[] = [];
  let characters = 0;
  for (const { line, cells: values } of rows) {
    const cells = values.map(cellText);
    const length = cells.findLastIndex((cell) => cell !== '') + 1;
    if (length === 0) continue;
    if (length > maxColumns) throw new FileRefusal(`Line ${String(line)} has more than ${String(maxColumns)} columns.`);
    if (filled.length === maxRows)
      throw new FileRefusal(`The file has more than ${String(maxRows - 1)} rows below the header. Split it.`);
    for (const cell of cells) {
      characters += cell.length;
      if (cell.length > maxCellCharacters)
        throw new FileRefusal(`Line ${String(line)} has a cell of more than ${String(maxCellCharacters)} characters.`);
      if (characters > maxCharacters)
        throw new FileRefusal(`The file has more than ${String(maxCharacters)} characters.`);
    }
    filled.push({ line, cells: cells.slice(0, length) });
  }
  return filled;
}

const lineBreaks = (text: string) => text.split('\n').length - 1;

/** The most frequent delimiter of the header, outside quotes. */
function delimiterOf(text: string): string {
  const [header = ''] = text
    .trimStart()
    .slice(0, 10_000)
    .replace(/"[^"]*"/g, '')
    .split('\n', 1);
  const count = (delimiter: string) => header.split(delimiter).length;
  return [';', '\t'].reduce((best, next) => (count(next) > count(best) ? next : best), ',');
}

const csvFaults: Record<string, string> = {
  CSV_QUOTE_NOT_CLOSED: 'a quote (") is not closed.',
  INVALID_OPENING_QUOTE: 'a quote (") is inside a cell that does not start with one.',
  CSV_INVALID_CLOSING_QUOTE: 'a closing quote (") is not followed by a delimiter.',
};

// The libraries are imported where they are used, since each thread reads one file and loads them anew.

async function csvRows(content: Uint8Array, maxRows: number) {
  const { CsvError, parse } = await import('csv-parse/sync');
  // csv-parse counts \r\n within quotes as two lines. The decoder removes the byte order mark.
  const text = new TextDecoder().decode(content).replace(/\r\n?/g, '\n');
  const options = {
    delimiter: delimiterOf(text),
    info: true,
    relax_column_count: true,
    skip_records_with_empty_values: true,
    to: maxRows + 1,
  } as const;
  try {
    const records = parse(text, options) as unknown as { record: string[]; info: { lines: number } }[];
    return records.map(({ record, info }) => ({
      // csv-parse reports the line on which a record ends.
      line: info.lines - record.reduce((sum, cell) => sum + lineBreaks(cell), 0),
      cells: record,
    }));
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    const line = lineBreaks(Buffer.from(text).toString('utf8', 0, Number(error['bytes']) - 1)) + 1;
    throw new FileRefusal(`Line ${String(line)}: ${csvFaults[error.code] ?? 'the cells cannot be read.'}`);
  }
}

/** The attributes `r` and `ref` of a sheet: a row, a cell, or a range. */
const references = /\s(?:r|ref)\s*=\s*["']([^"'<]*)/g;
const reference = /^(?:\$?[A-Z]{1,3})?\$?(\d{0,7})(?::\$?[A-Z]{1,3}\$?(\d{0,7}))?$/i;
const maxSheetRows = 1_048_576;

/**
 * Refuses a sheet with a cell where no spreadsheet has one. The library allocates an array up to that cell, and an array
 * of gigabytes ends the whole process, not only the thread.
 * @throws FileRefusal
 */
function refuseFarCells(part: Uint8Array): void {
  const xml = Buffer.from(part.buffer, part.byteOffset, part.byteLength).toString('latin1');
  if (!xml.includes('sheetData')) return;
  for (const [, value = ''] of xml.matchAll(references)) {
    const match = reference.exec(value);
    if (!match || match.slice(1).some((row) => Number(row) > maxSheetRows))
      throw new FileRefusal('The file has a cell beyond column XFD or row 1048576.');
  }
}

/** Longer than any text of a cell, tag or comment of a spreadsheet program. */
const maxTokenCharacters = 1_500_000;
const tokenEnds: [start: string, end: string][] = [
  ['<!--', '-->'],
  ['<![CDATA[', ']]>'],
  ['<?', '?>'],
];

/** The position after the tag that starts at `start`. Its quoted values may contain `>`. */
function endOfTag(xml: string, start: number): number {
  let quote = '';
  for (let at = start; at < xml.length; at++) {
    const character = xml.charAt(at);
    if (quote !== '') {
      if (character === quote) quote = '';
    } else if (character === '>') return at + 1;
    else if (character === '"' || character === "'") quote = character;
  }
  return xml.length;
}

/**
 * Refuses a sheet with a very long text, tag or comment, such as 28 MB of spaces. The library reads a sheet in chunks,
 * starts each token again with each chunk, and makes the chunks smaller when that takes long: it would never end.
 * @throws FileRefusal
 */
function refuseLongTokens(part: Uint8Array): void {
  const xml = Buffer.from(part.buffer, part.byteOffset, part.byteLength).toString('latin1');
  for (let at = 0; at < xml.length;) {
    const start = at;
    if (xml.charAt(at) !== '<') at = xml.indexOf('<', at);
    else {
      const [, end] = tokenEnds.find(([begin]) => xml.startsWith(begin, start)) ?? [];
      if (end === undefined) at = endOfTag(xml, start);
      else {
        at = xml.indexOf(end, start);
        if (at !== -1) at += end.length;
      }
    }
    if (at === -1) at = xml.length;
    if (at - start > maxTokenCharacters)
      throw new FileRefusal(`The file has a text of more than ${String(maxTokenCharacters)} characters.`);
  }
}

/**
 * The rows of the first sheet. The library gets only the XML parts, in a new archive, since the local headers of the
 * upload may give other sizes than its directory, which spreadsheets.ts has checked.
 */
async function xlsxRows(content: Uint8Array) {
  const { unzipSync, zipSync } = await import('fflate');
  const parts = unzipSync(content, { filter: ({ name }) => /\.(xml|rels)$/.test(name) });
  for (const part of Object.values(parts)) {
    if (!isUtf8(part)) throw new FileRefusal('The file has text that is not valid UTF-8.');
    refuseFarCells(part);
    refuseLongTokens(part);
  }
  const { readSheet } = await import('read-excel-file/universal');
  const rows = (await readSheet(zipSync(parts, { level: 0 }).buffer, { trim: false })) as Cell[][];
  return rows.map((cells, index) => ({ line: index + 1, cells }));
}

/** Runs in the threads of spreadsheets.ts. */
export default async function read({ content, contentType, maxRows }: ReadTask): Promise<ReadResult> {
  try {
    const rows = await (contentType === 'text/csv' ? csvRows(content, maxRows) : xlsxRows(content));
    return { rows: filledRows(rows, maxRows) };
  } catch (error) {
    return { refusal: error instanceof FileRefusal ? error.message : null };
  }
}
