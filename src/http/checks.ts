import { z } from 'zod';
import { inner } from './coercion.ts';

/** A range of days around today at the school, or of moments around now: ISO 8601 durations before and after it. */
export interface Range {
  before: string;
  after: string;
}

/** Two days of an object, of which the second must not be before the first. */
export interface DayOrder {
  first: string;
  last: string;
  /** They must not be equal. */
  is_strict?: boolean;
  /** The largest number of days from the first to the last, both included. */
  max_days?: number;
}

/**
 * What the database checks of a value, because it depends on the day, the time zone or the currency of the school. A
 * `day` may be a timestamp, which the database replaces by its day at the school. See `core.check_values`.
 */
export type Check =
  | { check: 'day'; range?: Range }
  | { check: 'moment'; range: Range }
  | { check: 'amount' }
  | { check: 'order'; pairs: DayOrder[] };

/** A check of the value at a path of the parameters. */
export type PlacedCheck = Check & { path: (string | number)[] };

/** Kept beside the schemas, because OpenAPI cannot express these checks. */
const checks = z.registry<{ of: Check }>();

/** Adds a check by the database to the schema. */
export function withCheck<S extends z.ZodType>(schema: S, check: Check): S {
  checks.add(schema, { of: check });
  return schema;
}

/** The check by the database that a schema has, also inside a wrapper. */
export function checkOf(schema: z.ZodType): Check | undefined {
  const wrapped = inner(schema);
  return checks.get(schema)?.of ?? (wrapped ? checkOf(wrapped) : undefined);
}

/** Adds the checks of a value to `found`. */
type Finder = (value: unknown, path: PlacedCheck['path'], found: PlacedCheck[]) => void;

function finderOfParts(schema: z.ZodType): Finder | undefined {
  if (schema instanceof z.ZodObject) {
    const fields = Object.entries(schema.shape as Record<string, z.ZodType>).flatMap(([name, field]) => {
      const find = checkFinder(field);
      return find ? [{ name, find }] : [];
    });
    if (fields.length === 0) return undefined;
    return (value, path, found) => {
      for (const { name, find } of fields) find((value as Record<string, unknown>)[name], [...path, name], found);
    };
  }
  if (schema instanceof z.ZodArray) {
    const find = checkFinder(schema.element as z.ZodType);
    if (!find) return undefined;
    return (value, path, found) => {
      for (const [index, item] of (value as unknown[]).entries()) find(item, [...path, index], found);
    };
  }
  const wrapped = inner(schema);
  return wrapped && checkFinder(wrapped);
}

/** What finds the checks in valid values of a schema; undefined if it has none. */
export function checkFinder(schema: z.ZodType): Finder | undefined {
  const own = checks.get(schema)?.of;
  const ofParts = finderOfParts(schema);
  if (!own && !ofParts) return undefined;
  return (value, path, found) => {
    if (value === undefined || value === null) return;
    ofParts?.(value, path, found);
    if (own) found.push({ ...own, path });
  };
}
