import { setImmediate as yieldToEventLoop } from 'node:timers/promises';
import { z } from 'zod';
import { requestOwner } from '../http/request-owner.ts';
import { disconnectSignal } from '../http/disconnect.ts';
import { created, download, type FileHandler, type Handler, resource } from '../http/endpoint.ts';
import { checkOf, type PlacedCheck } from '../http/checks.ts';
import { coerce } from '../http/coercion.ts';
import { fileFormat } from './parts/exports.ts';
import { flag, id, optionalNameText } from '../http/schemas.ts';
import { csvType, readSheet, sheetFile, type SheetRow, xlsxType } from '../documents/spreadsheets.ts';
import { details } from '../http/body/validate.ts';
import { StudentInput } from './students.ts';
import { TeacherInput } from './teachers.ts';

const maxRows = 5000;
const maxBytes = 10 * 1024 * 1024;

const name = (description: string) => optionalNameText(200).meta({ description });

/** The fields of a row: those of a single create, and names as an alternative to ids. */
const rows = {
  students: StudentInput.safeExtend({
    class: name('Name and section of a class of the current academic year, as in `class_name`.'),
    grade: name('Name of a grade. Not needed if the row has a class.'),
    religion: name('Name of a religion.'),
  }),
  teachers: TeacherInput,
};

type People = keyof typeof rows;

/** The columns that a file may have. Passwords are never imported. */
const fields = (people: People) =>
  new Map<string, z.ZodType>(Object.entries(rows[people].shape).filter(([column]) => column !== 'password'));
const columns = { students: fields('students'), teachers: fields('teachers') };
const listed = (people: People) => [...columns[people].keys()].join(', ');

/** What the database checks of the values of each column. */
const columnChecks = (people: People): PlacedCheck[] =>
  [...columns[people]].flatMap(([column, field]) => {
    const check = checkOf(field);
    return check ? [{ ...check, path: [column] }] : [];
  });
const checks = { students: columnChecks('students'), teachers: columnChecks('teachers') };

/** Whether the values of a column are days. */
const isDay = (field: z.ZodType) => checkOf(field)?.check === 'day';

/** Whether every row needs a value in the column. */
const isRequired = (field: z.ZodType) => !field.safeParse(undefined).success;

interface RowError {
  /** Line number in the file, from 1; null for the whole file. */
  row: number | null;
  column: string | null;
  message: string;
}

const Finding = z
  .object({
    row: z.int().nullable().meta({ description: 'The line number in the file, from 1; null for the whole file.' }),
    column: z.string().nullable().meta({ description: 'The column; null for the whole row.' }),
    message: z.string(),
  })
  .meta({ id: 'ImportFinding' });

export const Report = z
  .object({
    dry_run: z.boolean(),
    rows: z.int().meta({ description: 'The number of rows below the header that are not empty.' }),
    valid: z.int().meta({ description: 'The number of rows without errors.' }),
    created: z.int(),
    errors: z.array(Finding),
    warnings: z.array(Finding).meta({
      description:
        'The rows that repeat an earlier row or a person of the school: the same name, and the same date of birth, ' +
        'email or phone number.',
    }),
    ids: z.array(id).meta({ description: 'The ids of the created records, in the order of the rows.' }),
  })
  .meta({ id: 'ImportReport' });

/** The schema without optional and nullable wrappers. */
function unwrap(schema: z.ZodType): z.ZodType {
  return schema instanceof z.ZodOptional || schema instanceof z.ZodNullable
    ? unwrap(schema.unwrap() as z.ZodType)
    : schema;
}

/** A date and time as spreadsheet programs and databases write them. Without a time zone, its day is what it shows. */
const localTime = /^(\d{4}-\d\d-\d\d)[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?$/;
const formulaError = /^#(?:N\/A|DIV\/0!|VALUE!|REF!|NAME\?|NUM!|NULL!|SPILL!|CALC!|GETTING_DATA)$/;

const booleans: Record<string, boolean> = { true: true, yes: true, '1': true, false: false, no: false, '0': false };

/** The value of a cell, converted to the type of its field. */
function fromCell(field: z.ZodType, cell: string): { value: unknown } | { message: string } {
  const type = unwrap(field);
  if (formulaError.test(cell)) return { message: `is ${cell}, the error of a formula` };
  if (isDay(field)) return { value: localTime.exec(cell)?.[1] ?? cell };
  if (type instanceof z.ZodBoolean) {
    const value = booleans[cell.toLowerCase()];
    return value === undefined ? { message: 'must be true or false' } : { value };
  }
  if (type instanceof z.ZodNumber)
    return /^\d{1,15}$/.test(cell) ? { value: Number(cell) } : { message: 'must be a whole number' };
  return { value: cell };
}

/** Normalizes a column name: "First name", first_name and FIRSTNAME are the same. */
const normalizeHeader = (header: string) => header.toLowerCase().replace(/[\s_-]+/g, '');

/** Maps the positions of the header to columns; returns missing columns and the errors of the header. */
function readHeader(people: People, { line, cells }: SheetRow) {
  const known = new Map([...columns[people].keys()].map((column) => [normalizeHeader(column), column]));
  const columnAt = cells.map((header) => known.get(normalizeHeader(header)));
  const required = [...columns[people]].filter(([, field]) => isRequired(field)).map(([column]) => column);
  const missing = required.filter((column) => !columnAt.includes(column));
  const errors: RowError[] = [];
  for (const [position, header] of cells.entries()) {
    const column = columnAt[position];
    if (header === '') continue;
    if (!column)
      errors.push({
        row: line,
        column: header.slice(0, 100),
        message: `is not a known column. Available: ${listed(people)}`,
      });
    else if (columnAt.indexOf(column) < position)
      errors.push({ row: line, column, message: 'appears twice in the header' });
  }
  for (const column of missing)
    errors.push({ row: line, column, message: `is missing in the header. Required: ${required.join(' and ')}` });
  return { columnAt, missing, errors };
}

/** The valid values of a row, and the errors of the others. */
function readRow(people: People, { line, cells }: SheetRow, columnAt: (string | undefined)[], header: string[]) {
  const errors: RowError[] = [];
  const given: Record<string, unknown> = {};
  for (const [position, cell] of cells.entries()) {
    if (cell === '') continue;
    if (!header[position])
      errors.push({
        row: line,
        column: null,
        message: `has a value in column ${String(position + 1)}, which has no header`,
      });
    const column = columnAt[position] ?? '';
    const field = columns[people].get(column);
    if (!field) continue;
    const read = fromCell(field, cell);
    if ('message' in read) errors.push({ row: line, column, message: read.message });
    else given[column] = read.value;
  }
  const values = coerce(rows[people], given) as Record<string, unknown>;
  const parsed = rows[people].safeParse(values);
  if (parsed.success) return { row: { row: line, ...parsed.data }, errors };
  errors.push(...details(parsed.error).map(({ path, message }) => ({ row: line, column: path, message })));
  const valid = Object.entries(values).flatMap(([column, value]) => {
    const alone = columns[people].get(column)?.safeParse(value);
    return alone?.success ? [[column, alone.data] as const] : [];
  });
  return { row: { row: line, ...Object.fromEntries(valid) }, errors };
}

/**
 * Reads and validates a file and passes the rows to the operation. Yields to the event loop every 100 rows, so that
 * other requests are not delayed.
 */
function importer(people: People): Handler {
  return async ({ req, res, params, call }) => {
    if (!req.upload) throw new Error('The route requires an upload.');
    const signal = disconnectSignal(res);
    const [header = { line: 1, cells: [] }, ...lines] = await readSheet(req.upload, maxRows + 1, {
      owner: requestOwner(req),
      signal,
    });
    const { columnAt, missing, errors } = readHeader(people, header);
    if (lines.length === 0) errors.push({ row: null, column: null, message: 'The file has no rows below its header.' });
    const values: object[] = [];
    for (const [index, line] of lines.entries()) {
      if (index % 100 === 99) await yieldToEventLoop();
      signal.throwIfAborted();
      const read = readRow(people, line, columnAt, header.cells);
      values.push(read.row);
      errors.push(...read.errors.filter(({ column }) => column === null || !missing.includes(column)));
    }
    return call(`imports_${people}`, {
      dry_run: params['dry_run'] === 'true',
      allow_duplicates: params['allow_duplicates'] === 'true',
      columns: [...columns[people].keys()],
      checks: checks[people],
      header: header.line,
      count: lines.length,
      rows: values,
      errors,
    });
  };
}

/** The description of a column in the template file. */
function explain(field: z.ZodType): string {
  const type = unwrap(field);
  return (
    field.meta()?.description ?? type.meta()?.description ?? (type instanceof z.ZodBoolean ? 'true or false' : 'text')
  );
}

/** Whether a column is formatted as text, so that spreadsheet programs do not convert what is typed. */
const isText = (field: z.ZodType) =>
  !isDay(field) && ![z.ZodBoolean, z.ZodNumber].some((type) => unwrap(field) instanceof type);

/** A template file: with columns for names rather than ids; an .xlsx also has a sheet that describes the columns. */
function template(people: People): FileHandler {
  return async ({ params, call }) => {
    const names = JSON.parse(await call(`imports_${people}_template`, {})) as Record<string, string[]>;
    const offered = [...columns[people]].filter(
      ([column]) => !(column.endsWith('_id') && column.slice(0, -3) in names),
    );
    const longest = Math.max(0, ...Object.values(names).map((list) => list.length));
    const namesSheet = {
      name: 'names',
      columns: Object.keys(names).map((header) => ({ header, width: 30 })),
      rows: Array.from({ length: longest }, (_, row) => Object.values(names).map((list) => list[row] ?? null)),
    };
    return sheetFile(params['format'] as 'csv' | 'xlsx', people, [
      { name: people, columns: offered.map(([header, field]) => ({ header, isText: isText(field) })), rows: [] },
      {
        name: 'columns',
        columns: [{ header: 'column', width: 24 }, { header: 'required' }, { header: 'description', width: 100 }],
        rows: offered.map(([column, field]) => [column, isRequired(field) ? 'required' : '', explain(field)]),
      },
      ...(longest === 0 ? [] : [namesSheet]),
    ]);
  };
}

const dryRun = flag
  .optional()
  .meta({ description: 'Only validates the file: returns 200 with the report and changes nothing.' });

const allowDuplicates = flag.optional().meta({
  description: 'Also imports rows that repeat an earlier row or a person of the school. Otherwise they are a 409.',
});

const fileDescription =
  'A .csv (UTF-8; comma, semicolon, tab or `|`) or .xlsx (its first visible sheet, with its hidden rows) of at most ' +
  `${String(maxRows)} rows and ${String(maxBytes / 1024 / 1024)} MB, whose first line has the column names. ` +
  'All rows are imported or none: if there are errors, the response is a 400 whose details list each error by ' +
  '`rows.<line>.<column>`. Rows that repeat a person are warnings in a dry run; otherwise they are a 409, whose ' +
  'details list each by `rows.<line>`, unless `allow_duplicates` is true.';

const upload = { fields: ['file'], maxBytes, types: [csvType, xlsxType] };
const form = z.strictObject({ dry_run: dryRun, allow_duplicates: allowDuplicates });
const format = z.strictObject({ format: fileFormat().default('csv') });

export const imports = resource('', 'Imports', 'Imports of students or teachers from a file.', {
  'POST /students/import': {
    operation: 'imports_students',
    summary: 'Import students from a file',
    description:
      `${fileDescription} Columns: ${listed('students')}. ` +
      'Rows without an admission number get the next ones of the school.',
    query: form,
    body: form,
    upload,
    response: created(Report, { handler: importer('students') }),
  },
  'GET /students/import/template': {
    operation: 'imports_students_template',
    summary: 'Get a template file for students',
    query: format,
    response: download([csvType, xlsxType], template('students')),
  },
  'POST /teachers/import': {
    operation: 'imports_teachers',
    summary: 'Import teachers from a file',
    description: `${fileDescription} Columns: ${listed('teachers')}.`,
    query: form,
    body: form,
    upload,
    response: created(Report, { handler: importer('teachers') }),
  },
  'GET /teachers/import/template': {
    operation: 'imports_teachers_template',
    summary: 'Get a template file for teachers',
    query: format,
    response: download([csvType, xlsxType], template('teachers')),
  },
});
