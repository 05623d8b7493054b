import { z } from 'zod';
import { alsoReads } from '../../http/leniency.ts';
import { id } from '../../http/schemas.ts';

/** A day of the week, 1 for Monday. */
export const dayOfWeek = alsoReads(
  z
    .int()
    .min(1)
    .max(7)
    .meta({ description: '1 for Monday to 7 for Sunday. Requests also accept 0 for Sunday.', examples: [1] }),
  (value) => (value === 0 ? 7 : value),
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
