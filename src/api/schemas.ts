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
export const text = (max: number, min = 1) => z.string().trim().min(min).max(max).refine(storable, 'has characters that text can not have');

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
  .meta({ description: 'E-mail address.', examples: ['amina@example.org'], override: { type: 'string', format: 'email', maxLength: 254 } });

/** A day, `YYYY-MM-DD`, years 1000 to 9999. */
export const date = z.iso
  .date()
  .refine((day) => !/^\d{4}-\d\d-\d\d$/.test(day) || day >= '1000', 'must be between 1000-01-01 and 9999-12-31')
  .meta({ description: 'A day, `YYYY-MM-DD`.', examples: ['2026-09-01'] });

/** An amount of money: more than 0, at most 2 decimals as they are written, so that nothing is rounded. */
export const money = z
  .number()
  .positive()
  .max(9_999_999_999.99)
  .refine((amount) => /^\d+(\.\d{1,2})?$/.test(String(amount)), 'must have at most 2 decimals')
  .meta({ description: 'An amount of money, at most 2 decimals.', examples: [250.5] });

/** An amount of money as it goes out; it may be 0, or less than 0 for what is taken back. */
export const amount = z.number().meta({ description: 'An amount of money in the currency of the school, at most 2 decimals.', examples: [250.5] });

/** A moment, ISO 8601, as it comes in. */
export const moment = z.iso
  .datetime({ offset: true })
  .refine((m) => Number.isNaN(Date.parse(m)) || /^[1-9]\d{3}-/.test(new Date(m).toISOString()), 'must lie between the years 1000 and 9999, in UTC')
  .meta({ description: 'A moment, ISO 8601.', examples: ['2026-12-31T00:00:00Z'] });

/** A moment as it goes out, in UTC. */
export const timestamp = z.iso.datetime({ offset: true }).meta({ description: 'A moment, ISO 8601, in UTC.', examples: ['2026-09-01T08:00:00.000000+00:00'] });

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
      .meta({ description: 'At most 100; more is taken as 100.', examples: [20], override: { type: 'integer', minimum: 1, default: 20 } }),
    search: text(200, 0).optional().meta({ description: 'Words that must all occur, in any case and without regard to accents.' }),
    sort: z.enum(sorts).optional().meta({ description: 'Column to sort by; ties are broken by id.' }),
    order: z.enum(['asc', 'desc']).optional().meta({ description: 'Direction.' }),
    ...filters,
  });
}
