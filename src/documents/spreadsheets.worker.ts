import { CsvError, parse } from 'csv-parse/sync';
import { unzipSync, zipSync } from 'fflate';
import { readSheet } from 'read-excel-file/universal';
import { answerWith } from '../concurrency/thread-worker.ts';
import type { Cell, Read, Reading, SheetRow } from './spreadsheets.ts';

// The thread in which spreadsheets.ts has a file read, and which it ends when the file asks for too much memory or time.

/** What an .xlsx may have when unpacked, and all the text of a file: several times what 5,000 full rows need. */
const maxUnpackedBytes = 30 * 1024 * 1024;
const maxCharacters = 10_000_000;
const maxColumns = 200;
const maxCellCharacters = 10_000;

/** Says why a file can't be read. */
class Refusal extends Error {}

/** A cell as text; a formula is what it came to. The quote that neutralises text in our own files is taken off. */
function cellText(value: Cell): string {
  if (value === null) return '';
  if (value instanceof Date) return value.toISOString().replace(/T00:00:00\.000Z$/, '');
  return String(value)
    .replace(/\r\n?/g, '\n')
    .trim()
    .replace(/^'(?='*[=+\-@\t\n＝＋－＠])/, '');
}

/** The rows that hold something, within the limits. */
function filledRows(rows: Iterable<{ line: number; cells: Cell[] }>, maxRows: number): SheetRow[] {
  const filled: SheetRow[] = [];
  let characters = 0;
  for (const { line, cells: values } of rows) {
    const cells = values.map(cellText);
    const length = cells.findLastIndex((cell) => cell !== '') + 1;
    if (length === 0) continue;
    if (length > maxColumns) throw new Refusal(`Line ${String(line)} has more than ${String(maxColumns)} columns.`);
    if (filled.length === maxRows)
      throw new Refusal(`The file has more than ${String(maxRows - 1)} rows below the header. Split it.`);
    for (const cell of cells) {
      characters += cell.length;
      if (cell.length > maxCellCharacters)
        throw new Refusal(`Line ${String(line)} has a cell of more than ${String(maxCellCharacters)} characters.`);
      if (characters > maxCharacters) throw new Refusal(`The file has more than ${String(maxCharacters)} characters.`);
    }
    filled.push({ line, cells: cells.slice(0, length) });
  }
  return filled;
}

const lineBreaks = (text: string) => text.split('\n').length - 1;

/** The delimiter that the header has most of, outside quotes. */
function delimiterOf(text: string): string {
  const [header = ''] = text
    .trimStart()
    .slice(0, 10_000)
    .replace(/"[^"]*"/g, '')
    .split('\n', 1);
  const count = (delimiter: string) => header.split(delimiter).length;
  return [';', '\t'].reduce((most, next) => (count(next) > count(most) ? next : most), ',');
}

const csvFaults: Record<string, string> = {
  CSV_QUOTE_NOT_CLOSED: 'a quote (") is opened and never closed.',
  INVALID_OPENING_QUOTE: 'a quote (") stands inside a cell that does not begin with one.',
  CSV_INVALID_CLOSING_QUOTE: 'something follows the quote (") that closes a cell.',
};

function* csvRows(content: Uint8Array, maxRows: number) {
  // One kind of line break, since csv-parse counts two lines for \r\n within quotes. The decoder takes the mark off.
  const text = new TextDecoder().decode(content).replace(/\r\n?/g, '\n');
  const options = {
    delimiter: delimiterOf(text),
    info: true,
    relax_column_count: true,
    skip_records_with_empty_values: true,
    to: maxRows + 1,
  } as const;
  try {
    for (const { record, info } of parse(text, options) as unknown as { record: string[]; info: { lines: number } }[]) {
      // It tells the line on which a record ends.
      yield { line: info.lines - record.reduce((sum, cell) => sum + lineBreaks(cell), 0), cells: record };
    }
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    const line = lineBreaks(Buffer.from(text).toString('utf8', 0, Number(error['bytes']) - 1)) + 1;
    throw new Refusal(`Line ${String(line)}: ${csvFaults[error.code] ?? 'this can not be read as cells.'}`);
  }
}

/**
 * The first sheet. Only the XML parts are unpacked, each to the size that the central directory says, which is looked at first;
 * the library gets them in an archive of our own making, so that it meets no other sizes.
 */
async function xlsxRows(content: Uint8Array) {
  let unpacked = 0;
  const parts = unzipSync(content, {
    filter({ name, originalSize }) {
      if (!/\.(xml|rels)$/.test(name)) return false;
      unpacked += originalSize;
      if (unpacked > maxUnpackedBytes) throw new Refusal('The file is too large when unpacked.');
      return true;
    },
  });
  const rows = (await readSheet(zipSync(parts, { level: 0 }).buffer, { trim: false })) as Cell[][];
  return rows.map((cells, index) => ({ line: index + 1, cells }));
}

async function read({ content, contentType, maxRows }: Reading): Promise<Read> {
  try {
    return {
      rows: filledRows(contentType === 'text/csv' ? csvRows(content, maxRows) : await xlsxRows(content), maxRows),
    };
  } catch (error) {
    return { refusal: error instanceof Refusal ? error.message : 'The file is damaged, or not what its name says.' };
  }
}

answerWith(read);
