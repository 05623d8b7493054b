import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { attendanceRate, date, Deleted, id, page, pathId, text, timestamps } from '../http/schemas.ts';

const fields = {
  name: text(100).meta({ examples: ['2026/2027'] }),
  start_date: date,
  end_date: date.meta({ description: 'Less than two years after start_date.', examples: ['2027-07-31'] }),
  is_current: z
    .boolean()
    .optional()
    .meta({ description: 'One year is always the current one; true takes it from the other.' }),
};

interface Period {
  start_date?: string | undefined;
  end_date?: string | undefined;
}

/** Refuses a period that ends before it began; what a change leaves out is for the database to compare. ISO days compare as text. */
export const endsAfterStart: [(period: Period) => boolean, { path: string[]; message: string }] = [
  ({ start_date, end_date }) => !start_date || !end_date || end_date > start_date,
  { path: ['end_date'], message: 'must be after start_date' },
];

const YearInput = z
  .strictObject(fields)
  .refine(...endsAfterStart)
  .meta({ id: 'AcademicYearInput' });
const YearChange = z
  .strictObject(fields)
  .partial()
  .refine(...endsAfterStart)
  .meta({ id: 'AcademicYearChange', description: 'Any of the fields of a year; those that are not named stay.' });

export const AcademicYear = z
  .object({
    id,
    name: z.string(),
    start_date: date,
    end_date: date.meta({ examples: ['2027-07-31'] }),
    is_current: z.boolean(),
    ...timestamps,
  })
  .meta({ id: 'AcademicYear' });

const Overview = z
  .object({
    academic_year: AcademicYear.omit({ created_at: true, updated_at: true }),
    term_count: z.int(),
    terms: z
      .array(z.object({ id, name: z.string(), start_date: date, end_date: date }))
      .meta({ description: 'The earliest first.' }),
    classes: z.int(),
    students: z.int().meta({ description: 'Students enrolled in that year.' }),
    teachers: z.int().meta({ description: 'Teachers who teach a class of that year.' }),
    active_teachers: z.int().meta({ description: 'All active teachers.' }),
    attendance_rate: attendanceRate,
    fees: z.object({ billed: z.number(), collected: z.number() }).nullable().meta({
      description:
        'The student fees of that year and the invoices issued in it; of a waived fee what was paid. Null for who may not see the fees of the whole school, and without the feature fees_management.',
    }),
  })
  .meta({ id: 'AcademicOverview' });

export const academics = resource(
  '/academics',
  'Academics',
  'School years: they do not overlap, and one is the current one.',
  {
    'GET /years': {
      operation: 'academics_years_list',
      summary: 'List academic years',
      description: 'The latest first. Searches the name.',
      query: page({}, ['name', 'start_date', 'created_at']),
      answer: AcademicYear,
      isPage: true,
    },
    'POST /years': {
      operation: 'academics_years_create',
      summary: 'Add an academic year',
      description: 'The first year of a school is the current one. 409 conflict when it overlaps another.',
      body: YearInput,
      answer: AcademicYear,
      isCreate: true,
    },
    'GET /years/:id': { operation: 'academics_years_get', summary: 'Read an academic year', answer: AcademicYear },
    'PUT /years/:id': {
      operation: 'academics_years_update',
      summary: 'Change an academic year',
      description:
        'is_current true takes that from the other year; false on the current one is a 409 conflict. Its terms must stay inside its dates.',
      body: YearChange,
      answer: AcademicYear,
    },
    'DELETE /years/:id': {
      operation: 'academics_years_delete',
      summary: 'Remove an academic year',
      description:
        '409 in_use while terms, classes or fee structures belong to it; 409 conflict for the current one while there are others.',
      answer: Deleted,
    },
    'GET /overview': {
      operation: 'academics_overview',
      summary: 'What an academic year comes to',
      description:
        'The current year unless academic_year_id names another. A teacher sees the figures of the classes they teach.',
      query: z.strictObject({ academic_year_id: pathId.optional() }),
      answer: Overview,
    },
  },
);
