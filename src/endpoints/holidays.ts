import { z } from 'zod';
import { created, json, page, resource } from '../http/endpoint.ts';
import { date, dateOf, Deleted, id, nameText, pathId, timestamps } from '../http/schemas.ts';

/** Longest range of days of a request: ten years. */
const maxDays = 3660;

const fields = {
  name: nameText(100).meta({ examples: ["Founders' Day"] }),
  date: dateOf('school'),
  is_recurring: z
    .boolean()
    .optional()
    .meta({
      description:
        'Whether the holiday falls on the same day every year from `date` on. 29 February falls on the 28th if the ' +
        'year has no 29th.',
    }),
};

const HolidayInput = z.strictObject(fields).meta({ id: 'HolidayInput' });
const HolidayChange = z
  .strictObject(fields)
  .partial()
  .meta({ id: 'HolidayChange', description: 'Any subset of the fields of a holiday.' });

export const Holiday = z
  .object({
    id,
    name: z.string(),
    date: date.meta({ description: 'The day on which the holiday falls, or first fell if it is recurring.' }),
    is_recurring: z.boolean(),
    occurs_on: date.meta({
      description: 'In a list of days, the day of them on which the holiday falls; otherwise its `date`.',
    }),
    ...timestamps,
  })
  .meta({ id: 'Holiday' });

export const holidays = resource(
  '/holidays',
  'Holidays',
  'Days without school. Every user of the school may read them.',
  {
    'GET /': {
      operation: 'holidays_list',
      summary: 'List holidays',
      description:
        'With `from_date`, `to_date` or `academic_year_id`, the holidays of those days: a recurring holiday is ' +
        'listed once for each year from its first date on, and `occurs_on` is its day in that year. One of the two ' +
        'dates alone means a year from it or up to it. Without any of them, each holiday is listed once with its ' +
        'original date. `search` matches the name.',
      response: page(
        Holiday,
        { academic_year_id: pathId.optional(), from_date: date.optional(), to_date: date.optional() },
        { maxDays },
      ),
    },
    'POST /': {
      operation: 'holidays_create',
      summary: 'Create a holiday',
      description:
        'Existing attendance marks of the day stay. 409 `conflict` if the day already has a holiday with this name.',
      body: HolidayInput,
      response: created(Holiday),
    },
    'GET /:id': {
      operation: 'holidays_get',
      summary: 'Get a holiday',
      description: 'A recurring holiday has its original date.',
      response: json(Holiday),
    },
    'PUT /:id': {
      operation: 'holidays_update',
      summary: 'Update a holiday',
      description: '409 `conflict` if the day already has another holiday with this name.',
      body: HolidayChange,
      response: json(Holiday),
    },
    'DELETE /:id': {
      operation: 'holidays_delete',
      summary: 'Delete a holiday',
      description: 'Deletes a recurring holiday in every year.',
      response: json(Deleted),
    },
  },
);
