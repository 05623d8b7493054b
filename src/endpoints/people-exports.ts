import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { flag, pathId, search } from '../http/schemas.ts';
import { columns, isDay, type People } from './imports.ts';
import { type ExportColumn, exported, exportFormat } from './parts/exports.ts';
import { source } from './parts/import-options.ts';

const toExport = (people: People, names: string): ExportColumn[] =>
  names.split(' ').map((header) => {
    const field = columns[people].get(header);
    if (!field) throw new Error(`The import has no column ${header}.`);
    return { header, type: isDay(field) ? 'date' : 'text' };
  });

/** The cells in the order of `api.students_export` and `api.teachers_export`. */
const exportColumns = {
  students: toExport(
    'students',
    'admission_number external_id first_name last_name roll_number date_of_birth gender email phone class grade ' +
      'religion parent_name parent_phone parent_email address is_active left_on leaving_reason',
  ),
  teachers: toExport(
    'teachers',
    'employee_number external_id first_name last_name email phone qualification specialization joined_on ' +
      'date_of_birth gender address is_active left_on leaving_reason',
  ),
};

const description =
  'A file with the columns of the import. Sent back with `mode=update`, it changes only what was edited in it. ' +
  'It has the external ids of `source`.';

export const peopleExports = resource('', 'Exports', 'Exports of students or teachers to a file.', {
  'GET /students/export': {
    operation: 'students_export',
    summary: 'Export students to a file',
    description,
    query: z.strictObject({
      ...exportFormat,
      source,
      search,
      class_id: pathId.optional(),
      academic_year_id: pathId.optional(),
      grade_id: pathId.optional(),
      is_active: flag.optional(),
    }),
    response: exported('students_export', { name: 'students', columns: exportColumns.students }),
  },
  'GET /teachers/export': {
    operation: 'teachers_export',
    summary: 'Export teachers to a file',
    description,
    query: z.strictObject({ ...exportFormat, source, search, is_active: flag.optional() }),
    response: exported('teachers_export', { name: 'teachers', columns: exportColumns.teachers }),
  },
});
