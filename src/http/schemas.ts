import { z } from 'zod';
import type { ZodRawShape } from 'zod';

/** Text without control characters but tab and line feed: Postgres stores no NUL, and the others are in no name or address. */
const storable = (text: string) => text.isWellFormed() && !/[\0-\x08\x0b-\x1f\x7f]/.test(text);

/** An identifier of a record. */
export const id = z
  .int()
  .positive()
  .meta({ description: 'Identifier of a record.', examples: [42] });

/** A number as a path or a query writes it: digits and nothing else, so that `1e3`, `0x10`, `+5` or ` 5` is malformed. */
const digits = z
  .string()
  .regex(/^(0|[1-9][0-9]*)$/, 'must be a whole number')
  .transform(Number);

/** An identifier in a path or a query. */
export const pathId = digits
  .pipe(z.int().positive())
  .meta({ description: 'Identifier of a record.', examples: [42], override: { type: 'integer', minimum: 1 } });

/** A yes or no in a query. */
export const flag = z.enum(['true', 'false']).meta({ description: 'true or false' });

/** Text of at most `max` characters, trimmed; not empty unless `min` is 0. */
export const text = (max: number, min = 1) =>
  z.string().trim().min(min).max(max).refine(storable, 'has characters that text can not have');

/** Text that may be absent or null; what is empty is none, as forms send it. */
export const optionalText = (max: number) =>
  text(max, 0)
    .transform((value) => (value === '' ? null : value))
    .nullish();

/** A password as the user types it: 8 to 200 characters, not trimmed. */
export const password = z
  .string()
  .min(8)
  .max(200)
  .refine(storable, 'has characters that text can not have')
  .meta({ description: '8 to 200 characters.', examples: ['correct horse battery'] });

/** An e-mail address, in lower case. */
export const email = z
  .email()
  .max(254)
  .transform((address) => address.toLowerCase())
  .meta({
    description: 'E-mail address.',
    examples: ['amina@example.org'],
    override: { type: 'string', format: 'email', maxLength: 254 },
  });

interface Login {
  email?: string | null | undefined;
  create_user_account?: boolean | undefined;
  password?: string | undefined;
}
type Rule = [(person: Login) => boolean, { path: string[]; message: string }];

/** A log-in that comes with a person of the school. */
export const login = {
  /** Its fields; `role` is the one that the person gets. */
  fields: (role: string) => ({
    create_user_account: z
      .boolean()
      .optional()
      .meta({
        description: `Also provisions a log-in with the ${role} role; needs email. Without password an invitation goes out.`,
      }),
    password: password.optional().meta({ description: 'Only with create_user_account.' }),
  }),
  /** For a new person; a change may rely on the address that is there. */
  emailRule: [
    (person) => !person.create_user_account || Boolean(person.email),
    { path: ['email'], message: 'is required when create_user_account is true' },
  ] as Rule,
  /** A password goes nowhere else. */
  passwordRule: [
    (person) => !person.password || person.create_user_account === true,
    { path: ['password'], message: 'goes with create_user_account' },
  ] as Rule,
};

/** A day, `YYYY-MM-DD`, years 1000 to 9999. */
export const date = z.iso
  .date()
  .refine((day) => !/^\d{4}-\d\d-\d\d$/.test(day) || day >= '1000', 'must be between 1000-01-01 and 9999-12-31')
  .meta({ description: 'A day, `YYYY-MM-DD`.', examples: ['2026-09-01'] });

/** A day of the week. */
export const dayOfWeek = z
  .int()
  .min(1)
  .max(7)
  .meta({ description: '1 is Monday.', examples: [1] });

/** The most periods that a school day has. */
export const maxPeriods = 24;

/** A period of a school day. */
export const period = z
  .int()
  .min(1)
  .max(maxPeriods)
  .meta({ description: 'Counted from 1; lunch counts.', examples: [1] });

/** A time of day, to the minute. */
export const clock = z
  .string()
  .regex(/^([01]\d|2[0-3]):[0-5]\d$/, 'must be a time, HH:MM')
  .meta({ description: 'A time of day, `HH:MM`.', examples: ['08:45'] });

/** Why there is no school on a day. */
export const dayHoliday = z
  .object({ id, name: z.string() })
  .nullable()
  .meta({ description: 'The holiday; of several on one day the names together, under the id of the first.' });

/** Which part of the marks says present or late. */
export const attendanceRate = z
  .number()
  .nullable()
  .meta({
    description: 'Present or late, of all marks, in percent with at most two decimals; null without marks.',
    examples: [95.31],
  });

/** The days from one to another, both included. */
const dayCount = (from: string, to: string) => (Date.parse(to) - Date.parse(from)) / 86_400_000 + 1;

/** The names of days from one to another. */
const ranges = [
  ['from_date', 'to_date'],
  ['due_from', 'due_to'],
] as const;

/** A query with from_date and to_date, or due_from and due_to: in this order, and at most so many days. */
export const days = <Q extends z.ZodObject>(query: Q, most = Infinity): Q =>
  query.superRefine((given, context) => {
    for (const [first, last] of ranges) {
      const { [first]: from, [last]: to } = given as Record<string, string | undefined>;
      if (from === undefined || to === undefined) continue;
      const count = dayCount(from, to);
      if (count < 1) context.addIssue({ code: 'custom', path: [last], message: `must not be before ${first}` });
      if (count > most)
        context.addIssue({
          code: 'custom',
          path: [last],
          message: `must be at most ${String(most)} days from ${first}`,
        });
    }
  });

/** An amount of money: more than 0, at most 2 decimals as they are written, so that nothing is rounded. */
export const money = z
  .number()
  .positive()
  .max(9_999_999_999.99)
  .refine((amount) => /^\d+(\.\d{1,2})?$/.test(String(amount)), 'must have at most 2 decimals')
  .meta({ description: 'An amount of money, at most 2 decimals.', examples: [250.5] });

/** An amount of money as it goes out; it may be 0, or less than 0 for what is taken back. */
export const amount = z
  .number()
  .meta({ description: 'An amount of money in the currency of the school, at most 2 decimals.', examples: [250.5] });

/** A moment, ISO 8601, as it comes in. */
export const moment = z.iso
  .datetime({ offset: true })
  .refine(
    (m) => Number.isNaN(Date.parse(m)) || /^[1-9]\d{3}-/.test(new Date(m).toISOString()),
    'must lie between the years 1000 and 9999, in UTC',
  )
  .meta({ description: 'A moment, ISO 8601.', examples: ['2026-12-31T00:00:00Z'] });

/** A moment as it goes out, in UTC. */
export const timestamp = z.iso
  .datetime({ offset: true })
  .meta({ description: 'A moment, ISO 8601, in UTC.', examples: ['2026-09-01T08:00:00.000000+00:00'] });

/** Refuses a list that names something again: an equal entry or, when there are fields, one that is equal in all of them. */
export const uniqueBy =
  <T>(...fields: (keyof T & string)[]) =>
  (items: T[], context: z.RefinementCtx) => {
    const seen = new Set<string>();
    for (const [index, item] of items.entries()) {
      const key = JSON.stringify(fields.length > 0 ? fields.map((field) => item[field]) : item);
      if (seen.has(key))
        context.addIssue({
          code: 'custom',
          path: fields.length === 1 ? [index, ...fields] : [index],
          message: 'is named twice',
        });
      seen.add(key);
    }
  };

/** What every record has. */
export const timestamps = { created_at: timestamp, updated_at: timestamp };

/** The answer to a delete. */
export const Deleted = z.object({ id }).meta({ id: 'Deleted', description: 'The record that is gone.' });

/** The query of a list: page, pageSize, sort and order, search, and the filters of the resource. */
export function page<F extends ZodRawShape>(filters: F, sorts: [string, ...string[]]) {
  return z.strictObject({
    page: digits
      .pipe(z.int().min(1).max(1_000_000_000))
      .optional()
      .meta({ description: 'From 1.', examples: [1], override: { type: 'integer', minimum: 1, default: 1 } }),
    pageSize: digits
      .pipe(z.int().min(1))
      .transform((size) => Math.min(size, 100))
      .optional()
      .meta({
        description: 'At most 100; more is taken as 100.',
        examples: [20],
        override: { type: 'integer', minimum: 1, default: 20 },
      }),
    search: text(200, 0)
      .optional()
      .meta({ description: 'Words that must all occur, in any case and without regard to accents.' }),
    sort: z.enum(sorts).optional().meta({ description: 'Column to sort by; ties are broken by id.' }),
    order: z.enum(['asc', 'desc']).optional().meta({ description: 'Direction.' }),
    ...filters,
  });
}
