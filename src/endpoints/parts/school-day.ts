import { z } from 'zod';
import { withCoercion } from '../../http/coercion.ts';
import { id } from '../../http/schemas.ts';

const dayOfWeekMeta = {
  description: '1 for Monday to 7 for Sunday. Requests also accept 0 for Sunday.',
  examples: [1],
};

/** Many languages number Sunday 0. A body has the number, a query its text. */
const sundayTo7 = (value: unknown) => (value === 0 ? 7 : value === '0' ? '7' : value);

/** A day of the week, 1 for Monday. */
export const dayOfWeek = withCoercion(z.int().min(1).max(7).meta(dayOfWeekMeta), sundayTo7);

/** A day of the week in a query. */
export const dayOfWeekParameter = withCoercion(
  z
    .string()
    .regex(/^[1-7]$/, 'must be a day of the week, 1 to 7')
    .transform(Number)
    .meta({ ...dayOfWeekMeta, override: { type: 'integer', minimum: 1, maximum: 7 } }),
  sundayTo7,
);

/** Maximum number of periods of a school day. */
export const maxPeriods = 24;

/** The number of a period of the school day. */
export const period = z
  .int()
  .min(1)
  .max(maxPeriods)
  .meta({ description: 'Number of the period, from 1; lunch counts as a period.', examples: [1] });

/** The holiday on a day. */
export const dayHoliday = z
  .object({ id, name: z.string() })
  .nullable()
  .meta({ description: 'The holiday. If several fall on the day: the id of the first and all names, joined.' });
