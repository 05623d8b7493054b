import { z } from 'zod';
import { choice } from '../../http/coercion.ts';
import { date, dateOf } from '../../http/schemas.ts';

export const relationship = choice(
  [
    'mother',
    'father',
    'parent',
    'stepparent',
    'grandparent',
    'sibling',
    'relative',
    'foster_parent',
    'guardian',
    'other',
  ],
  {
    synonyms: {
      mother: ['mum', 'mom', 'mama'],
      father: ['dad', 'papa'],
      stepparent: ['stepmother', 'stepfather'],
      grandparent: ['grandmother', 'grandfather', 'grandma', 'grandpa'],
      sibling: ['brother', 'sister'],
      relative: ['aunt', 'uncle', 'cousin'],
      foster_parent: ['foster mother', 'foster father', 'carer'],
      guardian: ['legal guardian'],
    },
  },
).meta({ examples: ['mother'] });

/** What a link between a guardian and a student says. */
export const link = {
  relationship: relationship.nullish(),
  is_primary: z
    .boolean()
    .optional()
    .meta({
      description:
        'The contact of the student: `parent_name`, `parent_phone` and `parent_email` are copies of this guardian. ' +
        'Default: true for the first guardian of a student without another contact.',
    }),
  priority: z.int().min(1).max(100).optional().meta({
    description: 'The order in which the school calls and writes, from 1. Default: after the others.',
  }),
  can_see_records: z
    .boolean()
    .optional()
    .meta({
      description:
        'Whether the guardian sees the student in the service. Default: true; false for a guardian who was removed ' +
        'from the student before.',
    }),
  can_see_contacts: z
    .boolean()
    .optional()
    .meta({
      description:
        'Whether the guardian also sees the other guardians and the address of the student, and the notes and ' +
        'reference numbers of payments. Default: false.',
    }),
  receives_messages: z.boolean().optional().meta({ description: 'Default: true.' }),
  can_pick_up: z
    .boolean()
    .optional()
    .meta({ description: 'Whether the student may leave with the guardian. Default: true.' }),
  starts_on: dateOf('school', 'The first day of the link. Null: no first day.').nullish(),
  ends_on: dateOf('school', 'The last day of the link.').nullish(),
};

interface Days {
  starts_on?: string | null | undefined;
  ends_on?: string | null | undefined;
}
export const endsAfterStart: [(days: Days) => boolean, { path: string[]; message: string }] = [
  ({ starts_on, ends_on }) => !starts_on || !ends_on || ends_on >= starts_on,
  { path: ['ends_on'], message: 'must not be before starts_on' },
];

/** Null where another guardian of the student reads them. */
export const linkOutput = {
  relationship: z.enum(relationship.options).nullable(),
  is_primary: z.boolean(),
  priority: z.int(),
  can_see_records: z.boolean().nullable(),
  can_see_contacts: z.boolean().nullable(),
  receives_messages: z.boolean().nullable(),
  can_pick_up: z.boolean(),
  starts_on: date.nullable(),
  ends_on: date.nullable(),
};
