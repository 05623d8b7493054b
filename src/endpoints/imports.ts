import { setImmediate as yieldToEventLoop } from 'node:timers/promises';
import { z } from 'zod';
import { requestOwner } from '../http/request-owner.ts';
import { disconnectSignal } from '../http/disconnect.ts';
import { created, download, type FileHandler, type Handler, resource } from '../http/endpoint.ts';
import { checkOf, type PlacedCheck } from '../http/checks.ts';
import { coerce } from '../http/coercion.ts';
import { fileFormat } from './parts/exports.ts';
import { columnFaults, type FileFields, readHeader, synonyms } from './parts/import-columns.ts';
import { dateReader, type EitherDay, readDate } from './parts/import-dates.ts';
import { form } from './parts/import-options.ts';
import { ApiError } from '../domain/errors.ts';
import { id, optionalNameText } from '../http/schemas.ts';
import { csvType, readSheet, sheetFile, type SheetRow, xlsxType } from '../documents/spreadsheets.ts';
import { details } from '../http/body/validate.ts';
import { StudentInput } from './students.ts';
import { TeacherInput } from './teachers.ts';

const maxRows = 5000;
const maxBytes = 10 * 1024 * 1024;

const name = (description: string) => optionalNameText(200).meta({ description });

const external_id = name('The id of the person in the system that the file comes from. It is kept for its `source`.');
const role = name(
  'The role of the person. Rows with a role of other people are skipped, because files of users have all people.',
);

/** The fields of a row: those of a single create, and names as an alternative to ids. Passwords are never imported. */
const rows = {
  students: z
    .strictObject(StudentInput.shape)
    .omit({ password: true })
    .extend({
      class: name('Name and section of a class of the current academic year, as in `class_name`.'),
      grade: name('Name, number or sequence of a grade. Not needed if the row has a class.'),
      religion: name('Name of a religion.'),
      external_id,
      role,
    }),
  teachers: z.strictObject(TeacherInput.shape).omit({ password: true }).extend({ external_id, role }),
};
/** A row that may change a person: an empty cell keeps what is there. The database knows which rows are new. */
const changes = { students: rows.students.partial(), teachers: rows.teachers.partial() };

export type People = keyof typeof rows;

/** The columns that a file may have. */
const fields = (people: People) => new Map<string, z.ZodType>(Object.entries(rows[people].shape));
export const columns = { students: fields('students'), teachers: fields('teachers') };
const listed = (people: People) => [...columns[people].keys()].join(', ');

/** Whether every row needs a value in the column. */
const isRequired = (field: z.ZodType) => !field.safeParse(undefined).success;

const fileFields = (people: People): FileFields => ({
  fields: [...columns[people].keys()],
  required: [...columns[people]].filter(([, field]) => isRequired(field)).map(([column]) => column),
  synonyms: synonyms[people],
  combined: ['is_active'],
});
const headers = { students: fileFields('students'), teachers: fileFields('teachers') };

/** The roles of people in files of users, in lower case. */
const roles = {
  students: new Set(['student', 'pupil', 'learner']),
  teachers: new Set(['teacher', 'faculty', 'instructor', 'professor', 'staff']),
};

/** What the database checks of the values of each column. */
const columnChecks = (people: People): PlacedCheck[] =>
  [...columns[people]].flatMap(([column, field]) => {
    const check = checkOf(field);
    return check ? [{ ...check, path: [column] }] : [];
  });
const checks = { students: columnChecks('students'), teachers: columnChecks('teachers') };

/** Whether the values of a column are days. */
export const isDay = (field: z.ZodType) => checkOf(field)?.check === 'day';

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

const personName = z.string().meta({ examples: ['Amina Okafor'] });
const row = z.int().meta({ description: 'The line number in the file, from 1.' });

const Result = z
  .object({
    created: z.array(z.object({ row, name: personName })),
    changed: z.array(
      z.object({
        row,
        id,
        name: personName,
        changes: z.array(
          z.object({ field: z.string().meta({ examples: ['phone'] }), old: z.unknown(), new: z.unknown() }),
        ),
        creates_login: z.boolean(),
        note: z
          .string()
          .nullable()
          .meta({ examples: ['The email of the login does not change.'] }),
      }),
    ),
    unchanged: z.array(z.object({ row, id, name: personName })),
    refused: z.array(
      z.object({ row, messages: z.array(z.string().meta({ examples: ['date_of_birth must be a date, YYYY-MM-DD'] })) }),
    ),
  })
  .meta({
    id: 'ImportResult',
    description: 'What becomes of each row, in a dry run what would. Old and new values are those of the fields.',
  });

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
    updated: z.int().meta({ description: 'The number of changed records.' }),
    unchanged: z.int().meta({ description: 'The number of rows that change nothing.' }),
    result: Result,
    skipped: z.int().meta({ description: 'The number of rows with a role of other people. They count nowhere else.' }),
    mapping: z
      .array(
        z.object({
          column: z.string().meta({ description: 'The header in the file.', examples: ['givenName'] }),
          field: z.string().meta({ examples: ['first_name'] }),
          matched_by: z.enum(['name', 'synonym', 'columns']).meta({
            description: 'How the field was found: its own name, another usual header, or the parameter `columns`.',
          }),
        }),
      )
      .meta({ description: 'The field that each column was read as.' }),
    unknown_columns: z
      .array(
        z.object({
          column: z.string().meta({ description: 'The header in the file.', examples: ['Home_language'] }),
          nearest_field: z
            .string()
            .nullable()
            .meta({ description: 'The field that it may be; null if none is similar.', examples: ['roll_number'] }),
        }),
      )
      .meta({ description: 'The columns that were not read.' }),
    sample: z
      .object({ row: z.int(), values: z.record(z.string(), z.unknown()) })
      .nullable()
      .meta({
        description: 'The first row without errors as it is read, to compare with the file. Only in a dry run.',
        examples: [{ row: 2, values: { first_name: 'Amina', last_name: 'Okafor', date_of_birth: '2015-09-30' } }],
      }),
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

const booleans = new Map([
  ...['true', 'yes', 'y', '1', 'active', 'enabled', 'enrolled', 'current'].map((word) => [word, true] as const),
  ...['false', 'no', 'n', '0', 'inactive', 'disabled', 'withdrawn', 'left', 'tobedeleted', 'deleted'].map(
    (word) => [word, false] as const,
  ),
]);

/** How a file is read. */
interface Reading {
  people: People;
  /** A row without a last name is a person with a single name. */
  allowsSingleNames: boolean;
  schema: z.ZodObject;
  /** The field of each column. */
  columnAt: (string | undefined)[];
  header: string[];
  readDate: typeof readDate;
}

/** A date that the school has to read. */
interface OpenDate extends EitherDay {
  row: number;
  column: string;
}

const isoDate = /^\d{4}-\d\d-\d\d(?!\d)/;

/** The value of a cell, converted to the type of its field; both days if it may be either. */
function fromCell(
  field: z.ZodType,
  cell: string,
  read: typeof readDate,
): { value: unknown } | { message: string } | { either: EitherDay } {
  const type = unwrap(field);
  if (formulaError.test(cell)) return { message: `is ${cell}, the error of a formula` };
  if (isDay(field)) {
    if (isoDate.test(cell)) return { value: localTime.exec(cell)?.[1] ?? cell };
    const reading = read(cell);
    return 'day' in reading ? { value: reading.day } : reading;
  }
  if (type instanceof z.ZodBoolean) {
    const value = booleans.get(cell.toLowerCase());
    return value === undefined ? { message: 'must be true or false' } : { value };
  }
  if (type instanceof z.ZodNumber)
    return /^\d{1,15}$/.test(cell) ? { value: Number(cell) } : { message: 'must be a whole number' };
  return { value: cell };
}

/** The valid values of a row, the errors of the others, and the dates that the school has to read. */
function readRow(
  { line, cells }: SheetRow,
  { people, schema, allowsSingleNames, columnAt, header, readDate: read }: Reading,
) {
  const errors: RowError[] = [];
  const dates: OpenDate[] = [];
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
    const value = fromCell(field, cell, read);
    if ('message' in value) errors.push({ row: line, column, message: value.message });
    else if ('either' in value) dates.push({ row: line, column, ...value.either });
    // Of several columns for a boolean, all must be true.
    else if (given[column] !== false) given[column] = value.value;
  }
  if (allowsSingleNames && columnAt.includes('last_name')) given['last_name'] ??= '';
  const values = coerce(schema, given) as Record<string, unknown>;
  const parsed = schema.safeParse(values);
  if (parsed.success) return { row: { row: line, ...parsed.data }, errors, dates };
  errors.push(...details(parsed.error).map(({ path, message }) => ({ row: line, column: path, message })));
  const valid = Object.entries(values).flatMap(([column, value]) => {
    const alone = columns[people].get(column)?.safeParse(value);
    return alone?.success ? [[column, alone.data] as const] : [];
  });
  return { row: { row: line, ...Object.fromEntries(valid) }, errors, dates };
}

/** Whether a row is about somebody else, by its role. */
const isSkipped = ({ cells }: SheetRow, { people, columnAt }: Reading): boolean => {
  const role = cells[columnAt.indexOf('role')] ?? '';
  return role !== '' && !roles[people].has(role.toLowerCase());
};

/** The options of an import. */
type Options = z.output<typeof form>;

/**
 * Reads and validates a file and passes the rows to the operation. Yields to the event loop every 100 rows, so that
 * other requests are not delayed.
 */
function importer(people: People): Handler {
  return async ({ req, res, params, call }) => {
    if (!req.upload) throw new Error('The route requires an upload.');
    const options = params as Options;
    const signal = disconnectSignal(res);
    const [header = { line: 1, cells: [] }, ...all] = await readSheet(req.upload, maxRows + 1, {
      owner: requestOwner(req),
      signal,
    });
    const choice = { columns: options.columns ?? {}, ignoreUnknown: options.ignore_unknown === 'true' };
    const isCreate = options.mode === undefined || options.mode === 'create';
    const known = isCreate ? headers[people] : { ...headers[people], required: [] };
    const faults = columnFaults(choice, known, header.cells);
    if (faults.length > 0)
      throw new ApiError('validation_error', `columns: ${faults[0]?.[1] ?? ''}`, {
        details: faults.map(([column, message]) => ({ path: `columns.${column}`.slice(0, 100), message })),
      });
    const { columnAt, missing, mapping, unknown, errors: headerErrors } = readHeader(known, choice, header);
    const reading: Reading = {
      people,
      allowsSingleNames: isCreate && options.allow_single_names === 'true',
      schema: isCreate ? rows[people] : changes[people],
      columnAt,
      header: header.cells,
      readDate: options.date_format === undefined ? readDate : dateReader(options.date_format),
    };
    const lines = all.filter((line) => !isSkipped(line, reading));
    const errors: RowError[] = [...headerErrors];
    if (lines.length === 0)
      errors.push({
        row: null,
        column: null,
        message:
          all.length === 0
            ? 'The file has no rows below its header.'
            : `The file has no rows with the role ${people === 'students' ? 'student' : 'teacher'}.`,
      });
    const values: object[] = [];
    const dates: OpenDate[] = [];
    for (const [index, line] of lines.entries()) {
      if (index % 100 === 99) await yieldToEventLoop();
      signal.throwIfAborted();
      const read = readRow(line, reading);
      values.push(read.row);
      dates.push(...read.dates);
      errors.push(...read.errors.filter(({ column }) => column === null || !missing.includes(column)));
    }
    return call(`imports_${people}`, {
      dry_run: options.dry_run === 'true',
      allow_duplicates: options.allow_duplicates === 'true',
      allow_single_names: options.allow_single_names === 'true',
      mode: options.mode ?? 'create',
      source: options.source ?? 'import',
      columns: [...columns[people].keys()],
      checks: checks[people],
      header: header.line,
      count: lines.length,
      skipped: all.length - lines.length,
      mapping,
      unknown_columns: unknown,
      rows: values,
      dates,
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
      ([column]) =>
        !['external_id', 'role'].includes(column) && !(column.endsWith('_id') && column.slice(0, -3) in names),
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

const fileDescription =
  'A .csv (UTF-8; comma, semicolon, tab or `|`) or .xlsx (its first visible sheet, with its hidden rows) of at most ' +
  `${String(maxRows)} rows and ${String(maxBytes / 1024 / 1024)} MB, whose first line has the column names. ` +
  'The usual headers of other systems are known, such as `DOB`, `givenName`, `Roll No` and `Guardian`. ' +
  'All rows are imported or none: if there are errors, the response is a 400 whose details list each error by ' +
  '`rows.<line>.<column>`. Rows that repeat a person are warnings in a dry run; otherwise they are a 409, whose ' +
  'details list each by `rows.<line>`, unless `allow_duplicates` is true.';

const upload = { fields: ['file'], maxBytes, types: [csvType, xlsxType] };
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
