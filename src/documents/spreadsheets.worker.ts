import { isBlank, withoutInvisible } from '../domain/text.ts';
import { FileRefusal, tooManyColumns, tooManyRows } from './file-refusal.ts';
import type { Cell, ReadResult, ReadTask, SheetRow } from './spreadsheets.ts';
import type { MergedCells } from './xlsx.ts';

/** Limits of the text of a file: several times what 5,000 full rows need. */
const maxCharacters = 10_000_000;
const maxColumns = 200;
const maxCellCharacters = 10_000;

const secondMs = 1000;
const dayMs = 24 * 60 * 60 * secondMs;
/** The library counts back from March 1900. Spreadsheets have a 29 February 1900, which did not exist. */
const dayZero = Date.UTC(1899, 11, 30);
const leapDay = Date.UTC(1900, 1, 28);

/** The day or the local time that a cell shows: `2026-09-01`, `2026-09-01T08:30:00` or, without a day, `08:30:00`. */
function dateText(date: Date): string {
  const shown = Math.round(date.getTime() / secondMs) * secondMs;
  const isEarly = shown >= dayZero + dayMs && shown < leapDay;
  const text = new Date(isEarly ? shown + dayMs : shown).toISOString().slice(0, 19);
  return shown >= dayZero && shown < dayZero + dayMs ? text.slice(11) : text.replace(/T00:00:00$/, '');
}

/** A cell as text, without the quote that our own files put before text that looks like a formula. */
function cellText(value: Cell): string {
  if (value === null) return '';
  if (value instanceof Date) return dateText(value);
  // Programs show 15 digits: 0.1 + 0.2 is 0.3.
  if (typeof value === 'number' && !Number.isSafeInteger(value)) return String(Number(value.toPrecision(15)));
  const text = withoutInvisible(String(value));
  if (isBlank(text)) return '';
  return text
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
    if (length > maxColumns) throw tooManyColumns(line, maxColumns);
    if (filled.length === maxRows) throw tooManyRows(maxRows);
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
  return [';', '\t', '|'].reduce((best, next) => (count(next) > count(best) ? next : best), ',');
}

const csvFaults: Record<string, string> = {
  CSV_QUOTE_NOT_CLOSED: 'a quote (") is not closed.',
  INVALID_OPENING_QUOTE: 'a quote (") is inside a cell that does not start with one.',
  CSV_INVALID_CLOSING_QUOTE: 'a closing quote (") is not followed by a delimiter.',
};

// The libraries are imported where they are used, since each thread reads one file and loads them anew.

/** `sep=;` names the delimiter in Excel. Other programs keep the line as a cell, and add empty cells. */
const namedDelimiter = /^"?sep=([^\p{L}\p{N}\s"]|\t)"?[,;\t|]*(?=\n|$)/iu;
/** Programs of DOS end a text with this character. */
const endOfFile = /\x1a\s*$/;

async function csvRows(content: Uint8Array, maxRows: number) {
  const { CsvError, parse } = await import('csv-parse/sync');
  // csv-parse counts \r\n within quotes as two lines. The decoder removes the byte order mark.
  const written = new TextDecoder().decode(content).replace(/\r\n?/g, '\n').replace(endOfFile, '');
  const [delimiterLine = '', delimiter] = namedDelimiter.exec(written) ?? [];
  const text = written.slice(delimiterLine.length);
  const options = {
    delimiter: delimiter ?? delimiterOf(text),
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

/** Copies the value of merged cells, which a reader sees beside each of their rows, into the rows below the header. */
function fillMerged(rows: Cell[][], merged: MergedCells[], maxRows: number): void {
  const [header = 0, ...filled] = [...rows.keys()]
    .filter((at) => rows[at]?.some((cell) => cellText(cell) !== ''))
    .slice(0, maxRows);
  for (const { top, bottom, left, right } of merged) {
    const value = rows[top]?.[left] ?? null;
    if (top <= header || value === null) continue;
    for (const at of filled) if (at >= top && at <= bottom) rows[at]?.fill(value, left, right + 1);
  }
}

/** The rows of the first visible sheet. */
async function xlsxRows(content: Uint8Array, maxRows: number) {
  const { prepareSheet } = await import('./xlsx.ts');
  const { archive, merged } = prepareSheet(content, { maxRows, maxColumns });
  const { readSheet } = await import('read-excel-file/universal');
  const rows = (await readSheet(archive.buffer as ArrayBuffer, { trim: false })) as Cell[][];
  if (merged.length > 0) fillMerged(rows, merged, maxRows);
  return rows.map((cells, index) => ({ line: index + 1, cells }));
}

/** Runs in the threads of spreadsheets.ts. */
export default async function read({ content, contentType, maxRows }: ReadTask): Promise<ReadResult> {
  try {
    const rows = await (contentType === 'text/csv' ? csvRows(content, maxRows) : xlsxRows(content, maxRows));
    return { rows: filledRows(rows, maxRows) };
  } catch (error) {
    return { refusal: error instanceof FileRefusal ? error.message : null };
  }
}
