import { z } from 'zod';
import type { Handler } from './endpoint.ts';
import { asker, places } from '../concurrency/concurrency-limit.ts';
import { type Cell, csvType, sheetFile, xlsxType } from '../documents/spreadsheets.ts';

/** A column of an export, for a cell of each row that the operation answers. */
export interface ExportColumn {
  header: string;
  /** `date` for `YYYY-MM-DD`. Numbers, amounts and dates are such in an .xlsx; text stays as it is. */
  type: 'text' | 'number' | 'money' | 'date';
  /** In characters; without it as wide as its header, and an amount or a day. */
  width?: number;
}

/** What is in such a column needs so many characters. */
const widths = { text: 0, number: 0, money: 14, date: 12 };

/** Whom a row is about. */
export const studentColumns = {
  admissionNumber: { header: 'Admission number', type: 'text' },
  student: { header: 'Student', type: 'text', width: 30 },
  class: { header: 'Class', type: 'text', width: 20 },
} satisfies Record<string, ExportColumn>;

/** A page of an export: rows of as many cells as there are columns. */
interface ExportPage {
  rows: (string | number | boolean | null)[][];
  /** Goes back as `after`; null after the last page. */
  next: unknown;
  /** Today at the school. */
  date: string;
}

/** What an .xlsx can hold below its header. */
const maxRowsOfXlsx = 1_048_575;

/** What an endpoint that exports takes besides its filters, and the types that it answers. */
export const exportFormat = {
  format: z
    .enum(['csv', 'xlsx'])
    .default('csv')
    .meta({ description: `An .xlsx holds ${String(maxRowsOfXlsx)} rows: take csv for more.` }),
};
export const exportTypes = [csvType, xlsxType];

/** Each reads page after page: thirty of one user took all connections to the database, and other schools waited for a second. */
const takePlaces = places(
  { school: 4, user: 2 },
  'Other exports of yours are still under way. Try again when they are done.',
);

/** A cell as it is written. */
function asCell(value: string | number | boolean | null, { type }: ExportColumn): Cell {
  return type === 'date' && typeof value === 'string' ? new Date(value) : value;
}

/**
 * The rows of an export, page by page: the next page is read when all rows of the last one were taken, and none after whoever takes
 * them has gone. Each page is read anew in the name of the request, so that a session that ends ends the export too.
 */
async function* rowsOf(
  first: ExportPage,
  columns: ExportColumn[],
  most: number,
  readPage: (after: unknown) => Promise<ExportPage>,
): AsyncGenerator<Cell[]> {
  let count = 0;
  for (
    let page: ExportPage | undefined = first;
    page;
    page = page.next === null ? undefined : await readPage(page.next)
  ) {
    count += page.rows.length;
    if (count > most) throw new Error(`An export has more than ${String(most)} rows.`);
    for (const row of page.rows) yield columns.map((column, place) => asCell(row[place] ?? null, column));
  }
}

/**
 * Makes the handler of an endpoint that answers rows as a file, while they are read.
 *
 * The operation gets the filters of the query, `limit` and, but for the first page, `after`; it answers
 * `{rows: [[cell, …], …], next, date}` in an order that no change of a row can alter (`core.record_export_page` does it for a record). The
 * first page is read before the answer begins, so that what is wrong is told as everywhere; when a later one fails the
 * connection is cut, and no client takes the file for complete. One may have a few under way at a time.
 * @param name  of the file, before the day
 * @param begin  an operation that is run before the first page, with the filters: one that notes who takes what
 */
export function exporter(
  operation: string,
  {
    name,
    columns,
    pageRows = 1000,
    begin,
  }: { name: string; columns: ExportColumn[]; pageRows?: number; begin?: string },
): Handler {
  return async ({ req, params: { format, ...filters }, call }) => {
    const isXlsx = format === 'xlsx';
    const readPage = async (after?: unknown) =>
      JSON.parse(
        await call(operation, { ...filters, limit: pageRows, ...(after === undefined ? {} : { after }) }),
      ) as ExportPage;
    const giveBack = takePlaces(asker(req));
    try {
      if (begin !== undefined) await call(begin, filters);
      const first = await readPage();
      const file = sheetFile(isXlsx ? 'xlsx' : 'csv', `${name}-${first.date}`, [
        {
          name,
          columns: columns.map(({ header, type, width = Math.max(header.length + 4, widths[type]) }) => ({
            header,
            width,
            isText: type === 'text',
            isMoney: type === 'money',
          })),
          rows: rowsOf(first, columns, isXlsx ? maxRowsOfXlsx : Infinity, readPage),
        },
      ]);
      file.content.once('close', giveBack);
      return file;
    } catch (error) {
      giveBack();
      throw error;
    }
  };
}
