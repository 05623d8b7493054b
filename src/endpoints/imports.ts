import { setImmediate as nextTurn } from 'node:timers/promises';
import { z } from 'zod';
import { type Handler, resource } from '../http/endpoint.ts';
import { flag, id, optionalText } from '../http/schemas.ts';
import { csvType, readSheet, sheetFile, type SheetRow, xlsxType } from '../documents/spreadsheets.ts';
import { details } from '../http/validate.ts';
import { StudentInput } from './students.ts';
import { TeacherInput } from './teachers.ts';

const maxRows = 5000;
const maxBytes = 10 * 1024 * 1024;

const name = (what: string) => optionalText(200).meta({ description: what });

/** What a row of a file may say: the fields of the single create, and names where that takes ids. */
const rows = {
  students: StudentInput.safeExtend({
    class: name('Name and section of a class of the current academic year, as `class_name` shows them.'),
    grade: name('Name of a grade; not needed beside a class.'),
    religion: name('Name of a religion.'),
  }),
  teachers: TeacherInput,
};

type People = keyof typeof rows;

/** The columns that a file may have; a password is no matter for a file. */
const fields = (people: People) =>
  new Map<string, z.ZodType>(Object.entries(rows[people].shape).filter(([column]) => column !== 'password'));
const columns = { students: fields('students'), teachers: fields('teachers') };
const listed = (people: People) => [...columns[people].keys()].join(', ');

/** A column without which there is no row. */
const isRequired = (field: z.ZodType) => !field.safeParse(undefined).success;

interface Fault {
  /** The line in the file; null for the file as a whole. */
  row: number | null;
  column: string | null;
  message: string;
}

export const Report = z
  .object({
    dry_run: z.boolean(),
    rows: z.int().meta({ description: 'Rows below the header that hold something.' }),
    valid: z.int().meta({ description: 'Rows that nothing is wrong with.' }),
    created: z.int(),
    errors: z.array(
      z.object({
        row: z.int().nullable().meta({ description: 'The line in the file, from 1; null for the file as a whole.' }),
        column: z.string().nullable().meta({ description: 'The column; null for the row as a whole.' }),
        message: z.string(),
      }),
    ),
    ids: z.array(id).meta({ description: 'The identifiers of what was made, in the order of the rows.' }),
  })
  .meta({ id: 'ImportReport' });

/** The schema of a value, without what lets it be absent. */
function plain(schema: z.ZodType): z.ZodType {
  return schema instanceof z.ZodOptional || schema instanceof z.ZodNullable
    ? plain(schema.unwrap() as z.ZodType)
    : schema;
}

const words: Record<string, boolean> = { true: true, yes: true, '1': true, false: false, no: false, '0': false };

/** The value of a cell, for a field that is no text. */
function fromCell(field: z.ZodType, cell: string): { value: unknown } | { message: string } {
  const type = plain(field);
  if (type instanceof z.ZodBoolean) {
    const value = words[cell.toLowerCase()];
    return value === undefined ? { message: 'must be true or false' } : { value };
  }
  if (type instanceof z.ZodNumber)
    return /^\d{1,15}$/.test(cell) ? { value: Number(cell) } : { message: 'must be a whole number' };
  return { value: cell };
}

/** «First name», first_name and FIRSTNAME are one. */
const plainName = (header: string) => header.toLowerCase().replace(/[\s_-]+/g, '');

/** Which column stands where, which ones are missing, and what is wrong with the header. */
function readHeader(people: People, { line, cells }: SheetRow) {
  const known = new Map([...columns[people].keys()].map((column) => [plainName(column), column]));
  const places = cells.map((header) => known.get(plainName(header)));
  const required = [...columns[people]].filter(([, field]) => isRequired(field)).map(([column]) => column);
  const missing = required.filter((column) => !places.includes(column));
  const faults: Fault[] = [];
  for (const [place, header] of cells.entries()) {
    const column = places[place];
    if (header === '') continue;
    if (!column)
      faults.push({
        row: line,
        column: header.slice(0, 100),
        message: `is not a known column; known are ${listed(people)}`,
      });
    else if (places.indexOf(column) < place) faults.push({ row: line, column, message: 'stands twice in the header' });
  }
  for (const column of missing)
    faults.push({ row: line, column, message: `is missing in the header; required are ${required.join(' and ')}` });
  return { places, missing, faults };
}

/** The values of a row that fit, and what is wrong with the others. */
function readRow(people: People, { line, cells }: SheetRow, places: (string | undefined)[], header: string[]) {
  const faults: Fault[] = [];
  const given: Record<string, unknown> = {};
  for (const [place, cell] of cells.entries()) {
    if (cell === '') continue;
    if (!header[place])
      faults.push({
        row: line,
        column: null,
        message: `has a value in column ${String(place + 1)}, which has no header`,
      });
    const column = places[place] ?? '';
    const field = columns[people].get(column);
    if (!field) continue;
    const read = fromCell(field, cell);
    if ('message' in read) faults.push({ row: line, column, message: read.message });
    else given[column] = read.value;
  }
  const parsed = rows[people].safeParse(given);
  if (parsed.success) return { row: { row: line, ...parsed.data }, faults };
  faults.push(...details(parsed.error).map(({ path, message }) => ({ row: line, column: path, message })));
  const fitting = Object.entries(given).flatMap(([column, value]) => {
    const alone = columns[people].get(column)?.safeParse(value);
    return alone?.success ? [[column, alone.data] as const] : [];
  });
  return { row: { row: line, ...Object.fromEntries(fitting) }, faults };
}

/** Reads and validates a file, some rows at a time so that other requests have their turn, and hands it to the operation. */
function importer(people: People): Handler {
  return async ({ req, params, call }) => {
    if (!req.upload) throw new Error('The route takes a file.');
    const [header = { line: 1, cells: [] }, ...lines] = await readSheet(req.upload, maxRows + 1);
    const { places, missing, faults } = readHeader(people, header);
    if (lines.length === 0) faults.push({ row: null, column: null, message: 'The file has no rows below its header.' });
    const values: object[] = [];
    for (const [index, line] of lines.entries()) {
      if (index % 100 === 99) await nextTurn();
      const read = readRow(people, line, places, header.cells);
      values.push(read.row);
      faults.push(...read.faults.filter(({ column }) => column === null || !missing.includes(column)));
    }
    return call(`imports_${people}`, {
      dry_run: params['dry_run'] === 'true',
      columns: [...columns[people].keys()],
      header: header.line,
      count: lines.length,
      rows: values,
      errors: faults,
    });
  };
}

/** What a column takes, for who fills it in. */
function explain(field: z.ZodType): string {
  const type = plain(field);
  return (
    field.meta()?.description ?? type.meta()?.description ?? (type instanceof z.ZodBoolean ? 'true or false' : 'text')
  );
}

/** What a spreadsheet program may take for something else than was typed. */
const isText = (field: z.ZodType) =>
  ![z.ZodBoolean, z.ZodNumber, z.ZodISODate].some((type) => plain(field) instanceof type);

/** A file to fill in: names rather than ids, and in an .xlsx beside it what each column takes. */
function template(people: People): Handler {
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
        columns: [{ header: 'column', width: 24 }, { header: 'required' }, { header: 'what it takes', width: 100 }],
        rows: offered.map(([column, field]) => [column, isRequired(field) ? 'required' : '', explain(field)]),
      },
      ...(longest === 0 ? [] : [namesSheet]),
    ]);
  };
}

const dryRun = flag.optional().meta({ description: 'Only tries: answers 200 with the report and changes nothing.' });

const about =
  `A .csv (UTF-8; comma, semicolon or tab) or .xlsx (its first sheet) of at most ${String(maxRows)} rows and ${String(maxBytes / 1024 / 1024)} MB, whose
first line names the columns. All rows or none: when anything is wrong the answer is a 400 whose details name every fault by
\`rows.<line>.<column>\`.`.replaceAll('\n', ' ');

const upload = { fields: ['file'], maxBytes, types: [csvType, xlsxType] };
const form = z.strictObject({ dry_run: dryRun });
const format = z.strictObject({ format: z.enum(['csv', 'xlsx']).default('csv') });

export const imports = resource('', 'Imports', 'Many students or teachers from one file.', {
  'POST /students/import': {
    operation: 'imports_students',
    summary: 'Add many students from a file',
    description: `${about} Columns: ${listed('students')}. Admission numbers that are not given are the school's next ones.`,
    query: form,
    body: form,
    upload,
    answer: Report,
    isCreate: true,
    handler: importer('students'),
  },
  'GET /students/import/template': {
    operation: 'imports_students_template',
    summary: 'A file of students to fill in',
    query: format,
    bytes: [csvType, xlsxType],
    handler: template('students'),
  },
  'POST /teachers/import': {
    operation: 'imports_teachers',
    summary: 'Add many teachers from a file',
    description: `${about} Columns: ${listed('teachers')}.`,
    query: form,
    body: form,
    upload,
    answer: Report,
    isCreate: true,
    handler: importer('teachers'),
  },
  'GET /teachers/import/template': {
    operation: 'imports_teachers_template',
    summary: 'A file of teachers to fill in',
    query: format,
    bytes: [csvType, xlsxType],
    handler: template('teachers'),
  },
});
