import { fairQueue } from '../../concurrency/fair-queue.ts';
import { ApiError } from '../../domain/errors.ts';
import { type Cell, csvType, sheetFile, xlsxType } from '../../documents/spreadsheets.ts';
import { choice } from '../../http/coercion.ts';
import { disconnectSignal } from '../../http/disconnect.ts';
import { download, type DownloadResponse } from '../../http/endpoint.ts';
import { requestOwner } from '../../http/request-owner.ts';

/** A column of an export. */
export interface ExportColumn {
  header: string;
  /** In an .xlsx, numbers, amounts and dates get a cell of that type. A `date` is `YYYY-MM-DD`. */
  type: 'text' | 'number' | 'money' | 'date';
  /** In characters. By default as wide as the header, an amount or a date. */
  width?: number;
}

/** How many characters a cell of each type needs. */
const minWidths = { text: 0, number: 0, money: 14, date: 12 };

/** A page of an export. Each row has one cell for each column. */
interface ExportPage {
  rows: (string | number | boolean | null)[][];
  /** `after` of the next page; null after the last page. */
  next: unknown;
  /** Today at the school. */
  date: string;
  /** The decimals of its currency, if there are amounts. */
  currency_decimals?: number;
}

/** The limit of the format, below the header. */
const maxRowsOfXlsx = 1_048_575;

/** The format of a file in a request. */
export const fileFormat = (description?: string) =>
  choice(['csv', 'xlsx'], { synonyms: { xlsx: ['excel'] }, ...(description ? { description } : {}) });

/** The parameters of an export besides its filters. */
export const exportFormat = {
  format: fileFormat(
    'Default: the type that `Accept` prefers, else csv. ' +
      `An .xlsx has at most ${String(maxRowsOfXlsx)} rows. Use csv for more.`,
  ).optional(),
};
const exportTypes = [csvType, xlsxType];

/**
 * Thirty concurrent exports of one user once took all database connections, and other schools waited for a second. How
 * long an export takes depends on its client, so that one school never uses all slots.
 */
const exportQueue = fairQueue({
  name: 'exports',
  maxRunning: { total: 8, school: 6 },
  maxInProgress: { total: 64, school: 16, user: 2 },
  refusal: (scope) =>
    scope === 'total'
      ? new ApiError('unavailable', 'Too many exports are in progress. Try again in a moment.', { retryAfter: 3 })
      : new ApiError(
          'rate_limited',
          'You or your school have other exports in progress. Try again when they are done.',
          {
            retryAfter: 3,
          },
        ),
});

function toCell(value: string | number | boolean | null, { type }: ExportColumn): Cell {
  return type === 'date' && typeof value === 'string' ? new Date(value) : value;
}

/**
 * Reads an export page by page: the next page when all rows of the last one were consumed, and none after the client
 * has disconnected. Each page is read with the session of the request, so that an export ends when the session does.
 */
async function* readRows(
  first: ExportPage,
  columns: ExportColumn[],
  maxRows: number,
  readPage: (after: unknown) => Promise<ExportPage>,
): AsyncGenerator<Cell[]> {
  let count = 0;
  let page = first;
  for (;;) {
    count += page.rows.length;
    if (count > maxRows) throw new Error(`An export has more than ${String(maxRows)} rows.`);
    for (const row of page.rows) yield columns.map((column, index) => toCell(row[index] ?? null, column));
    if (page.next === null) return;
    page = await readPage(page.next);
  }
}

/**
 * Answers rows as a file, while they are read.
 *
 * The operation gets the filters of the query, `limit` and, after the first page, `after`. It answers
 * `{rows: [[cell, …], …], next, date}` in an order that no update of a row can change (`core.record_export_page` does
 * it for a record). The first page is read before the response starts, so that errors are answered as usual. When a
 * later page fails, the connection is closed, so that no client considers the file complete.
 * @param name  of the file; the date is appended
 * @param begin  an operation that runs before the first page, with the filters, for example to log the export
 */
export function exported(
  operation: string,
  {
    name,
    columns,
    pageRows = 1000,
    begin,
  }: { name: string; columns: ExportColumn[]; pageRows?: number; begin?: string },
): DownloadResponse {
  const sheetColumns = (decimals: number) =>
    columns.map(({ header, type, width = Math.max(header.length + 4, minWidths[type]) }) => ({
      header,
      width,
      isText: type === 'text',
      ...(type === 'money' ? { decimals } : {}),
    }));
  return download(exportTypes, async ({ req, res, params: { format, ...filters }, call }) => {
    const isXlsx = format === undefined ? req.accepts(exportTypes) === xlsxType : format === 'xlsx';
    if (format === undefined) res.vary('Accept');
    const readPage = async (after?: unknown) => {
      const page = { ...filters, limit: pageRows, ...(after === undefined ? {} : { after }) };
      return JSON.parse(await call(operation, page)) as ExportPage;
    };
    const release = await exportQueue.enter(requestOwner(req), disconnectSignal(res));
    try {
      if (begin !== undefined) await call(begin, filters);
      const first = await readPage();
      const rows = readRows(first, columns, isXlsx ? maxRowsOfXlsx : Infinity, readPage);
      const sheet = { name, columns: sheetColumns(first.currency_decimals ?? 2), rows };
      const file = sheetFile(isXlsx ? 'xlsx' : 'csv', `${name}-${first.date}`, [sheet]);
      file.content.once('close', release);
      return file;
    } catch (error) {
      release();
      throw error;
    }
  });
}
