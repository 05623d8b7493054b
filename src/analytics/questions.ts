import { ApiError } from '../domain/errors.ts';
import { columnPath } from './column-path.ts';
import { tenantScope } from './scope.ts';
import type { AnalyticsQuery } from './run-query.ts';

/** A saved question with the schools that it may read; null for all. */
export interface StoredQuestion {
  name: string;
  query: string;
  variables: Record<string, unknown>;
  tenant_ids: number[] | null;
}

export const questionQuery = ({ query, variables, tenant_ids }: StoredQuestion): AnalyticsQuery => ({
  query,
  variables,
  operationName: undefined,
  scope: tenantScope(tenant_ids),
});

type Row = Map<string, string | number | boolean | null>;
type Json = string | number | boolean | null | Json[] | { [name: string]: Json };

/**
 * The most cells of a table. Each list repeats the fields above it in each of its rows, so a table may be many times
 * larger than its answer, and would not fit in the memory of the process.
 */
const maxCells = 500_000;

class TooManyCells extends Error {}

/**
 * The rows of a value. Lists below a row repeat it for each of their rows; several lists come one after the other.
 * @throws TooManyCells
 */
function rowsOf(value: Json, name: string): Row[] {
  if (typeof value !== 'object' || value === null) return [new Map([[name, value]])];
  if (Array.isArray(value)) {
    if (value.every((item) => typeof item !== 'object' || item === null))
      return [new Map(value.map((item, index) => [columnPath(name, String(index + 1)), item as string | null]))];
    return limited(value.map((item) => rowsOf(item, name)));
  }
  const row: Row = new Map();
  const lists: Row[][] = [];
  for (const [field, inner] of Object.entries(value)) {
    const rows = rowsOf(inner, columnPath(name, field));
    const [first] = rows;
    if (rows.length === 1 && first && !hasList(inner)) for (const cell of first) row.set(...cell);
    else lists.push(rows);
  }
  return lists.length === 0 ? [row] : limited(lists, row);
}

/** The rows of several lists, each with the cells of the row above them. @throws TooManyCells */
function limited(lists: Row[][], above: Row = new Map()): Row[] {
  let cells = 0;
  return lists.flatMap((rows) =>
    rows.map((row) => {
      cells += above.size + row.size;
      if (cells > maxCells) throw new TooManyCells();
      return above.size === 0 ? row : new Map([...above, ...row]);
    }),
  );
}

/** Whether a value has a list of rows below it, also one with a single row. */
const hasList = (value: Json): boolean =>
  Array.isArray(value)
    ? value.some((item) => typeof item === 'object' && item !== null) || value.length === 0
    : typeof value === 'object' && value !== null && Object.values(value).some(hasList);

/** The rows and columns of an answer. */
export interface AnswerTable {
  columns: { header: string }[];
  rows: (string | number | boolean | null)[][];
}

/**
 * The answer to a question as a table, or the reason why there is none.
 * @throws ApiError unavailable if the query may be answered later
 */
export async function answerOf(
  { query, variables }: StoredQuestion,
  body: string,
): Promise<AnswerTable | { refusal: string }> {
  const { data, errors } = JSON.parse(body) as {
    data?: Record<string, Json> | null;
    errors?: { message: string; extensions?: { code?: string } }[];
  };
  const unavailable = errors?.find(({ extensions }) => extensions?.code === 'UNAVAILABLE');
  if (unavailable) throw new ApiError('unavailable', unavailable.message, { retryAfter: 5 });
  if (errors || !data) return { refusal: (errors ?? []).map(({ message }) => message).join(' ') };
  const [only, ...others] = Object.values(data);
  const isOneField = others.length === 0 && only !== undefined;
  try {
    const rows = rowsOf(isOneField ? only : data, '');
    const headers = [...new Set(rows.flatMap((row) => [...row.keys()]))];
    // Rows of different lists have different columns.
    if (rows.length * headers.length > maxCells) throw new TooManyCells();
    // Imported here, because the API needs the parser for nothing else.
    const names = (await import('./key-names.ts')).keyNames(query, variables, isOneField);
    const named = headers.map((header) => names.get(header) ?? (header === '' ? 'value' : header));
    return {
      // A readable name that is not unique is no help.
      columns: headers.map((header, n) => {
        const name = named[n] ?? header;
        return { header: named.indexOf(name) === named.lastIndexOf(name) ? name : header };
      }),
      rows: rows.map((row) => headers.map((header) => row.get(header) ?? null)),
    };
  } catch (error) {
    if (!(error instanceof TooManyCells)) throw error;
    return {
      refusal:
        `The table would have more than ${String(maxCells)} cells. ` +
        'Filter, group by fewer columns, or select fewer rows or fields.',
    };
  }
}
