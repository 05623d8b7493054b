import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { date, dateOf, Deleted, id, nameText, pathId, timestamps, withDayOrder } from '../http/schemas.ts';
import { attendanceRate } from './parts/attendance-rate.ts';

const fields = {
  name: nameText(100).meta({ examples: ['2026/2027'] }),
  start_date: dateOf('school'),
  end_date: dateOf('school', 'Less than two years after `start_date`.').meta({ examples: ['2027-07-31'] }),
  is_current: z
    .boolean()
    .optional()
    .meta({ description: 'True makes this the current year instead of the previous one. One year is always current.' }),
};

/**
 * Refuses an end date that is not after the start date. If an update sends only one of them, the database compares it
 * with the stored one.
 */
export const endsAfterStart = <S extends z.ZodObject>(schema: S): S =>
  withDayOrder(schema, { first: 'start_date', last: 'end_date', is_strict: true });

const YearInput = endsAfterStart(z.strictObject(fields)).meta({ id: 'AcademicYearInput' });
const YearChange = endsAfterStart(z.strictObject(fields).partial()).meta({
  id: 'AcademicYearChange',
  description: 'Any subset of the fields of an academic year.',
});

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
    academic_year: AcademicYear.omit({ created_at: true, updated_at: true })
      .nullable()
      .meta({ description: 'Null if the school has no current academic year; all figures are then 0.' }),
    term_count: z.int(),
    terms: z
      .array(z.object({ id, name: z.string(), start_date: date, end_date: date }).meta({ id: 'AcademicTermDates' }))
      .meta({ description: 'Earliest first.' }),
    classes: z.int(),
    students: z
      .int()
      .meta({ description: 'Students who are enrolled in a class of this year or completed the year in it.' }),
    teachers: z.int().meta({ description: 'Teachers who teach a class of this year.' }),
    active_teachers: z.int().meta({ description: 'All active teachers of the school.' }),
    attendance_rate: attendanceRate,
    fees: z
      .object({ billed: z.number(), collected: z.number() })
      .nullable()
      .meta({
        description:
          'Student fees of this year, less their discounts, and invoices issued in it. A waived fee counts with the ' +
          'amount paid before the waiver. Null without `fee.read` for the whole school, and without the feature ' +
          '`fees_management`.',
      }),
  })
  .meta({ id: 'AcademicOverview' });

export const academics = resource(
  '/academics',
  'Academics',
  'Academic years. They do not overlap, and one is current.',
  {
    'GET /years': {
      operation: 'academics_years_list',
      summary: 'List academic years',
      description: 'Latest first. `search` matches the name.',
      response: page(AcademicYear),
    },
    'POST /years': {
      operation: 'academics_years_create',
      summary: 'Create an academic year',
      description:
        'The first year of a school becomes the current one. 409 `conflict` if the year overlaps another year or ' +
        'has the same name.',
      body: YearInput,
      response: created(AcademicYear),
    },
    'GET /years/:id': {
      operation: 'academics_years_get',
      summary: 'Get an academic year',
      response: json(AcademicYear),
    },
    'PUT /years/:id': {
      operation: 'academics_years_update',
      summary: 'Update an academic year',
      description:
        '`is_current: true` makes this the current year; `false` on the current year is a 409 `conflict`. 400 if a ' +
        'term would lie outside the new dates.',
      body: YearChange,
      response: json(AcademicYear),
    },
    'DELETE /years/:id': {
      operation: 'academics_years_delete',
      summary: 'Delete an academic year',
      description:
        '409 `in_use` while the year has terms, classes or fee structures. 409 `conflict` for the current year ' +
        'while there are other years.',
      response: json(Deleted),
    },
    'GET /overview': {
      operation: 'academics_overview',
      summary: 'Get an overview of an academic year',
      description: 'Defaults to the current year. A teacher gets the figures of the classes that they teach.',
      query: z.strictObject({ academic_year_id: pathId.optional() }),
      response: json(Overview),
    },
  },
);
