import { z } from 'zod';
import { currencies, maxDecimals } from '../domain/money.ts';
import { isSettable, preparePassword } from '../domain/passwords.ts';
import { isBlank, withoutInvisible } from '../domain/text.ts';
import { type DayOrder, type Range, withCheck } from './checks.ts';
import { booleanOf, isScalar, withCoercion } from './coercion.ts';
import { didYouMean } from './did-you-mean.ts';
import { keepForm } from './received-text.ts';

/** Whether a text has no control characters except tab and line feed. Postgres cannot store NUL. */
const isStorable = (text: string) => text.isWellFormed() && !/[\0-\x08\x0b-\x1f\x7f]/.test(text);

/** The id of a record. */
export const id = z
  .int()
  .positive()
  .meta({ examples: [42] });

/** A number in a path or a query: only digits. `1e3`, `0x10`, `+5` and ` 5` are rejected. */
export const digits = z
  .string()
  .regex(/^(0|[1-9][0-9]*)$/, 'must be a whole number')
  .transform(Number);

/** An id in a path or a query. */
export const pathId = digits
  .pipe(z.int().positive())
  .meta({ examples: [42], override: { type: 'integer', minimum: 1 } });

/** A boolean in a query. */
export const flag = withCoercion(z.enum(['true', 'false']).meta({ description: 'true or false.' }), (value) =>
  typeof value === 'string' ? (booleanOf(value)?.toString() ?? value) : value,
);

/** A field of an entry in a body that the service computes: accepted as it was read, and ignored. */
export const ignored = z
  .unknown()
  .optional()
  .overwrite(() => undefined)
  .meta({ readOnly: true, description: 'Ignored, so that an entry can be sent back as it was read.' });

const bounded = (schema: z.ZodString, max: number, min: number) =>
  schema.min(min).max(max).refine(isStorable, 'must not contain control characters');

/** Text that may be absent or null. Empty text becomes null, because forms send it for empty inputs. */
const optional = (schema: z.ZodString) =>
  schema
    .nullish()
    // Not a transform, whose examples the OpenAPI document would not show.
    .overwrite((value) => (value === '' ? null : value));

/** Trimmed text of at most `max` characters; not empty unless `min` is 0. A text that shows nothing is empty. */
export const text = (max: number, min = 1) =>
  bounded(
    z.string().overwrite((value) => (isBlank(value) ? '' : value.trim())),
    max,
    min,
  );

/** As `text`, but may be absent, null or empty. */
export const optionalText = (max: number) => optional(text(max, 0));

/**
 * A name, number or code: text on one line without invisible characters, in which white space of any kind and length is
 * one space. Otherwise two names that look the same would be different, and could not be found by what people type.
 */
export const nameText = (max: number, min = 1) =>
  bounded(
    z.string().overwrite((value) => {
      const visible = withoutInvisible(value);
      return isBlank(visible) ? '' : visible.replace(/\s+/g, ' ').trim();
    }),
    max,
    min,
  );

/** The last name of a person. It is empty, but not missing, for a person with a single name. */
export const lastName = nameText(100, 0).meta({ description: 'Empty for a person with a single name.' });

/** As `nameText`, but may be absent, null or empty. */
export const optionalNameText = (max: number) => optional(nameText(max, 0));

/** A phone number. Phones add invisible marks of direction to a number that is copied. */
export const phone = optionalNameText(50).meta({ examples: ['+44 20 7946 0123'] });

/** A new password of 8 to 200 characters, prepared but not trimmed. */
export const password = z
  .string()
  .overwrite(preparePassword)
  .min(8)
  .max(200)
  .refine(isSettable, 'must not contain control, invisible or unassigned characters')
  .meta({ description: '8 to 200 characters.', examples: ['correct horse battery'] });

/** A password to verify. Any that was ever set is valid, in the form in which it was typed then. */
export const currentPassword = keepForm(z.string().min(1).max(200));

/** An email address, converted to lower case, without invisible characters and the spaces around it. */
export const email = z
  .string()
  .overwrite((value) => withoutInvisible(value).trim())
  .check(z.email())
  .max(254)
  .transform((address) => address.toLowerCase())
  .meta({
    description: 'Email address.',
    examples: ['amina@example.org'],
    override: { type: 'string', format: 'email', maxLength: 254 },
  });

const timestampFormat = z.iso.datetime({ offset: true, local: true });

/**
 * The day of a timestamp if it is exactly 00:00 in its own offset, or has none. Otherwise the timestamp in UTC: only
 * the database knows its day in the time zone of the school. Any other value stays.
 */
function toDayOrMoment(value: unknown): unknown {
  // zod needs seconds in a timestamp with an offset.
  const full = typeof value === 'string' ? value.replace(/(T\d\d:\d\d)(?=Z$|[+-]\d\d:\d\d$)/, '$1:00') : value;
  const timestamp = timestampFormat.safeParse(full).data;
  if (timestamp === undefined) return value;
  const [, day = '', time = '', offset] = /^(.*)T(.*?)(Z|[+-]\d\d:\d\d)?$/.exec(timestamp) ?? [];
  if (offset === undefined || /^[0:.]*$/.test(time)) return day;
  const moment = new Date(timestamp);
  return Number.isNaN(moment.getTime()) ? value : moment.toISOString();
}

/** A day, or a timestamp of `toDayOrMoment`. */
const dayOrMoment = /^(\d{4}-\d\d-\d\d)(T\d\d:\d\d:\d\d\.\d{3}Z)?$/;

/** A calendar date, `YYYY-MM-DD`. */
const isDate = (text: string) => z.regexes.date.test(text);

/**
 * A date, `YYYY-MM-DD`, in the years 1000 to 9999. A request may have a timestamp, which becomes its day at the school
 * before the operation runs; until then it is a text in UTC, so compare dates with `withDayOrder`.
 */
export const date = withCheck(
  withCoercion(
    z
      .string()
      .refine((text) => isDate(dayOrMoment.exec(text)?.[1] ?? ''), 'must be a date, YYYY-MM-DD')
      .refine(
        (text) =>
          !dayOrMoment.test(text) || (isDate(text) ? text >= '1000' : text > '1000-01-02' && text < '9999-12-31'),
        'must be between 1000-01-01 and 9999-12-31',
      )
      .meta({ examples: ['2026-09-01'], override: { type: 'string', format: 'date' } }),
    toDayOrMoment,
  ),
  { check: 'day' },
);

/** Durations from the first to the last day of a range, relative to today at the school. */
const around = (before: string, after: string): Range => ({ before, after });

/** The plausible days of each kind of date, and how OpenAPI describes them. */
const dayRanges = {
  birth: [around('P120Y', 'P0D'), 'From 120 years ago to today.'],
  joining: [around('P80Y', 'P1Y'), 'From 80 years ago to a year ahead.'],
  /** Days on which something happens at the school: years, terms, holidays, leaves, lessons, exceptions. */
  school: [around('P20Y', 'P10Y'), 'From 20 years ago to 10 years ahead.'],
  payment: [around('P10Y', 'P0D'), 'From 10 years ago to today.'],
  due: [around('P2Y', 'P10Y'), 'From 2 years ago to 10 years ahead.'],
  leaving: [around('P80Y', 'P2Y'), 'From 80 years ago to 2 years ahead.'],
  /** The last day on which a document is valid. */
  validity: [around('P20Y', 'P50Y'), 'From 20 years ago to 50 years ahead.'],
} as const;

/**
 * A date of a request that must be plausible for its kind. A value that does not change is exempt.
 * @param description  of the field
 */
export function dateOf(kind: keyof typeof dayRanges, description = '') {
  const [range, text] = dayRanges[kind];
  return withCheck(date.meta({ description: [description, text].filter(Boolean).join(' ') }), { check: 'day', range });
}

/** The day and the time zone of the school in a response, so that clients need not guess them. */
export const schoolDay = {
  today: date.meta({ description: 'The day it is now in the time zone of the school (of an operator: in UTC).' }),
  time_zone: z.string().meta({
    description: 'The time zone of the school, an IANA name. `UTC` for an operator.',
    examples: ['Europe/Berlin'],
  }),
};

/** The address of a picture in a response. */
export const pictureUrl = z
  .string()
  .nullable()
  .meta({
    description:
      'The address of the picture; null without a picture. An `<img>` can show it: it is signed, needs no token, and ' +
      'expires within a day. Read the record again for a new one.',
    examples: ['https://api.school.example/api/pictures/3-17-1790899200-5f2c...'],
  });

/** A time of day with minutes. Requests may add seconds, which are dropped. */
export const clock = withCoercion(
  z
    .string()
    .regex(/^([01]\d|2[0-3]):[0-5]\d$/, 'must be a time, HH:MM')
    .meta({ description: 'A time of day, `HH:MM`.', examples: ['08:45'] }),
  (value) => (typeof value === 'string' ? value.replace(/^(\d\d:\d\d):[0-5]\d(\.\d+)?$/, '$1') : value),
);

/** Adds pairs of days of which the second must not be before the first, if a request has both. */
export const withDayOrder = <S extends z.ZodObject>(schema: S, ...pairs: DayOrder[]): S =>
  withCheck(schema, { check: 'order', pairs });

/** Checks the date ranges of a query: the end is not before the start, and they have at most `maxDays` days. */
export function dateRange<Q extends z.ZodObject>(query: Q, maxDays = Infinity): Q {
  const pairs = [
    ['from_date', 'to_date'],
    ['due_from', 'due_to'],
  ].flatMap(([first = '', last = '']) =>
    first in query.shape ? [{ first, last, ...(maxDays === Infinity ? {} : { max_days: maxDays }) }] : [],
  );
  return withDayOrder(query, ...pairs);
}

/** The largest amount of money. */
export const maxAmount = 9_999_999_999.99;

const writtenAmount = new RegExp(`^\\d+(\\.\\d{1,${String(maxDecimals)}})?$`);
/** Whether an amount has no more decimals as written than any currency has. */
export const hasCurrencyDecimals = (amount: number) => writtenAmount.test(String(amount));

/** An amount of money: more than 0. How many decimals it may have depends on what is paid (`api.record_payment`). */
export const payableMoney = z
  .number()
  .positive()
  .max(maxAmount)
  .refine(hasCurrencyDecimals, 'must have at most 4 decimals')
  // Only for requests: validators of responses that compute with binary fractions reject 0.07 as a multiple of 0.0001.
  .meta({
    description: 'An amount of money, with at most as many decimals as the currency or the balance has.',
    examples: [250.5],
    multipleOf: 0.0001,
  });

/** An amount of money: more than 0, with at most the decimals of the currency, so that nothing is rounded. */
export const money = withCheck(
  payableMoney.meta({
    description:
      'An amount of money, with at most as many decimals as the currency of the school has (ISO 4217): two in euros, ' +
      'none in yen, three in Kuwaiti dinars.',
    examples: [250.5],
    multipleOf: 0.0001,
  }),
  { check: 'amount' },
);

/** An amount of money in a response; 0 or negative (a reversal) is possible. */
export const amount = z.number().meta({
  description: 'An amount of money in the currency of the school.',
  examples: [250.5],
});

/** The decimals of a currency in a response. */
export const currencyDecimals = z.int().meta({
  description: 'How many decimals amounts in this currency have (ISO 4217): 2 in euros, 0 in yen.',
  examples: [2],
});

/** What a change of a currency leaves behind. */
export const currencyWarnings = z
  .array(z.object({ path: z.string().meta({ examples: ['currency'] }), message: z.string() }))
  .optional()
  .meta({
    description:
      'Only after a change of the currency: how many stored amounts have more decimals than the new one. They stay ' +
      'as they are.',
  });

/** A date and time in a request, ISO 8601. It is at most 20 years ago or 100 years ahead, unless it does not change. */
export const moment = withCheck(
  z.iso
    .datetime({ offset: true })
    .refine(
      (m) => Number.isNaN(Date.parse(m)) || /^[1-9]\d{3}-/.test(new Date(m).toISOString()),
      'must be between the years 1000 and 9999 in UTC',
    )
    .meta({ examples: ['2026-12-31T00:00:00Z'] }),
  { check: 'moment', range: around('P20Y', 'P100Y') },
);

/** A date and time in a response, in UTC. */
export const timestamp = z.iso.datetime({ offset: true }).meta({ examples: ['2026-09-01T08:00:00.000000+00:00'] });

/**
 * Rejects lists with duplicates: equal entries or, if fields are given, entries that are equal in all of these
 * fields.
 */
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
          message: 'is a duplicate',
        });
      seen.add(key);
    }
  };

/**
 * A body field with a default. OpenAPI describes it in words, because generators of types treat a field with the
 * keyword `default` as one that is always there.
 */
export const withDefault = (schema: z.ZodNumber, value: number) =>
  schema.default(value).meta({
    description: [schema.meta()?.description, `Default: ${String(value)}.`].filter(Boolean).join(' '),
    override: ({ jsonSchema }: { jsonSchema: { default?: unknown } }) => {
      delete jsonSchema.default;
    },
  });

const currencySet = new Set(currencies);

/** A currency in a body. */
export const currencyCode = z
  .string()
  .refine((code) => currencySet.has(code), 'must be an ISO 4217 currency code in capital letters');

/** The timestamps of every record. */
export const timestamps = { created_at: timestamp, updated_at: timestamp };

/** The response to a delete. */
export const Deleted = z.object({ id }).meta({ id: 'Deleted', description: 'The deleted record.' });

/** The search of a list. */
export const search = text(200, 0)
  .optional()
  .meta({ description: 'Words that must all occur. Case and accents are ignored.' });

/** Whether a list without the filter `status` includes records that have ended. */
export const includeEnded = flag
  .optional()
  .meta({ description: '`true` includes records that are hidden by default.' });

/** The fields of a record whose values can be sorted: not lists and objects. */
const scalarFields = (record: z.ZodObject): string[] =>
  Object.keys(record.shape).filter((name) => isScalar(record.shape[name] as z.ZodType));

/** Messages name only this many fields, because some lists have dozens. */
const maxSortsInMessage = 15;

const listSorts = (names: string[]) =>
  names.length > maxSortsInMessage
    ? `Some of the fields are ${names.slice(0, maxSortsInMessage).join(', ')}.`
    : `The fields are ${names.join(', ')}.`;

/** How a list differs from others. */
export interface ListOptions {
  /** Sorts besides the fields of the record. */
  sorts?: string[];
  /** Records per page without `pageSize`. Short lists that clients read as a whole have the maximum, 100. */
  defaultSize?: number;
}

/**
 * The query parameters of a list: page, pageSize, sort, order, search, and the filters of the resource.
 * @param record  the schema of one entry; its scalar fields are the sorts
 */
export function pageQuery(
  record: z.ZodObject,
  filters: z.ZodRawShape,
  { sorts = [], defaultSize = 20 }: ListOptions = {},
) {
  const names = [...new Set(['id', ...scalarFields(record), ...sorts])];
  return z.strictObject({
    page: digits
      .pipe(z.int().min(1).max(1_000_000_000))
      .optional()
      .meta({
        description: 'Page number, from 1.',
        examples: [1],
        override: { type: 'integer', minimum: 1, default: 1 },
      }),
    pageSize: digits
      .prefault(String(defaultSize))
      .pipe(z.int().min(1))
      .transform((size) => Math.min(size, 100))
      .meta({
        description: 'Records per page, at most 100; larger values are treated as 100.',
        examples: [20],
        override: { type: 'integer', minimum: 1, default: defaultSize },
      }),
    search,
    sort: z
      .enum(
        names.flatMap((name) => [name, `-${name}`]),
        {
          error: ({ input }) =>
            `is not a field to sort by${didYouMean(String(input), names) || '.'} ${listSorts(names)}`,
        },
      )
      .optional()
      .meta({ description: 'Field to sort by; `-` before it means descending. Ties are sorted by id.' }),
    order: z
      .string()
      .toLowerCase()
      .pipe(z.enum(['asc', 'desc']))
      .optional()
      .meta({
        description: 'Sort direction, in upper or lower case. Ignored if `sort` begins with `-`.',
        override: { type: 'string', enum: ['asc', 'desc'] },
      }),
    ...filters,
  });
}
