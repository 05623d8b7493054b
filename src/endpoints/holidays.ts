import { z } from 'zod';
import { resource } from '../http/endpoint.ts';
import { date, days, Deleted, id, page, pathId, text, timestamps } from '../http/schemas.ts';

const fields = {
  name: text(100).meta({ examples: ["Founders' Day"] }),
  date,
  is_recurring: z
    .boolean()
    .optional()
    .meta({ description: 'Comes every year on the same day; one of 29 February on the 28th where there is no 29th.' }),
};

const HolidayInput = z.strictObject(fields).meta({ id: 'HolidayInput' });
const HolidayChange = z
  .strictObject(fields)
  .partial()
  .meta({ id: 'HolidayChange', description: 'Any of the fields of a holiday; those that are not named stay.' });

export const Holiday = z
  .object({
    id,
    name: z.string(),
    date: date.meta({ description: 'The day it falls on.' }),
    is_recurring: z.boolean(),
    ...timestamps,
  })
  .meta({ id: 'Holiday' });

export const holidays = resource(
  '/holidays',
  'Holidays',
  'Days without school. Everybody of the school may read them.',
  {
    'GET /': {
      operation: 'holidays_list',
      summary: 'List holidays',
      description:
        'With from_date, to_date or academic_year_id those days: a recurring holiday comes once for each year of them, with the day it then falls on. One of the two dates alone means a year. Without any of them each holiday comes once, with the date that it was given.',
      query: days(
        page({ academic_year_id: pathId.optional(), from_date: date.optional(), to_date: date.optional() }, [
          'date',
          'name',
        ]),
        3660,
      ),
      answer: Holiday,
      isPage: true,
    },
    'POST /': {
      operation: 'holidays_create',
      summary: 'Add a holiday',
      description: '409 when the day has one of this name. Attendance that was marked on the day stays.',
      body: HolidayInput,
      answer: Holiday,
      isCreate: true,
    },
    'GET /:id': {
      operation: 'holidays_get',
      summary: 'Read a holiday',
      description: 'With the date that it was given.',
      answer: Holiday,
    },
    'PUT /:id': {
      operation: 'holidays_update',
      summary: 'Change a holiday',
      description: '409 when the day has another one of this name.',
      body: HolidayChange,
      answer: Holiday,
    },
    'DELETE /:id': {
      operation: 'holidays_delete',
      summary: 'Remove a holiday',
      description: 'A recurring one goes from every year.',
      answer: Deleted,
    },
  },
);
