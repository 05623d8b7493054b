import { z } from 'zod';
import { date, dateOf, optionalText } from '../../http/schemas.ts';

/** The fields with which a student, a teacher or a driver leaves. */
export const leaving = {
  /** Of a request. */
  input: {
    is_active: z
      .boolean()
      .optional()
      .meta({
        description:
          'False sets `left_on` to today, unless it is given. True returns a person who has left. If both fields are ' +
          'sent, the one that differs from the present value counts.',
      }),
    left_on: dateOf(
      'leaving',
      'The first day on which the person is no longer here. Null: the person stays or returns.',
    ).nullish(),
    leaving_reason: optionalText(500).meta({
      description: 'Only with `left_on`.',
      examples: ['Moved to another town'],
    }),
  },
  /** Of a response. */
  output: {
    is_active: z.boolean().meta({ description: 'False from the day `left_on`.' }),
    left_on: date.nullable().meta({
      description:
        'The first day on which the person is no longer here. It may be ahead; `is_active` is true until then.',
    }),
    leaving_reason: z
      .string()
      .nullable()
      .meta({ examples: ['Moved to another town'] }),
  },
};
