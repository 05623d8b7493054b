import { z } from 'zod';
import { isBlank } from '../domain/text.ts';

/** Converts other forms of a value to the one that OpenAPI documents. Returns any other value unchanged. */
type Coercion = (value: unknown) => unknown;

/** Kept beside the schemas, so that OpenAPI and responses show only the canonical values. */
const coercions = z.registry<{ coercion: Coercion }>();

/** Adds a coercion to the schema. Requests apply it before they validate the value. */
export function withCoercion<S extends z.ZodType>(schema: S, coercion: Coercion): S {
  coercions.add(schema, { coercion });
  return schema;
}

/** Spellings that differ only in case, spaces, `-` and `_` are equal. */
const normalizeSpelling = (spelling: string) => spelling.toLowerCase().replace(/[\s_-]+/g, '');

interface ChoiceOptions<V extends string> {
  description?: string;
  /** Other words for a value. Their spelling is as lenient as that of the values. */
  synonyms?: Partial<Record<V, string[]>>;
  /** Words that could mean several values, with the message that tells the client what to choose. */
  ambiguous?: Record<string, string>;
}

/** One of the values. Requests ignore case, spaces, `-` and `_`, and accept the synonyms; responses have the value. */
export function choice<const V extends string>(
  values: readonly [V, ...V[]],
  { description, synonyms = {}, ambiguous = {} }: ChoiceOptions<V> = {},
) {
  const words = values.map((value) => ({ value, others: (synonyms as Record<string, string[]>)[value] ?? [] }));
  const valueOf = new Map(
    words.flatMap(({ value, others }) => [value, ...others].map((word) => [normalizeSpelling(word), value] as const)),
  );
  const hints = new Map(Object.entries(ambiguous).map(([word, hint]) => [normalizeSpelling(word), hint]));
  const note = words
    .filter(({ others }) => others.length > 0)
    .map(({ value, others }) => `\`${value}\` (${others.join(', ')})`)
    .join(', ');
  const schema = z
    .enum(values, {
      error: ({ input }) => (typeof input === 'string' ? hints.get(normalizeSpelling(input)) : undefined),
    })
    .meta({
      description: [
        description,
        'Requests ignore case, spaces, `-` and `_`.',
        note && `Requests also accept the synonyms in parentheses: ${note}.`,
      ]
        .filter(Boolean)
        .join(' '),
    });
  return withCoercion(schema, (value) =>
    typeof value === 'string' ? (valueOf.get(normalizeSpelling(value)) ?? value) : value,
  );
}

export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * Accepts `alias` as another name of the field `name`. Both may be given if they are equal. The schema must have both
 * fields, `alias` as an optional one.
 */
export function withAlias<S extends z.ZodObject>(schema: S, alias: string, name: string): S {
  const checked = schema.superRefine((given: Record<string, unknown>, context) => {
    if (given[alias] !== undefined && given[alias] !== given[name])
      context.addIssue({ code: 'custom', path: [alias], message: `must be the same as ${name}` });
  });
  return withCoercion(checked, (value) => {
    if (!isRecord(value) || !(alias in value) || !hasNoValue(value[name])) return value;
    const { [alias]: given, ...others } = value;
    return { ...others, [name]: given };
  });
}

/** Whether a field has no value. Forms send empty text for empty inputs. */
const hasNoValue = (value: unknown) =>
  value === undefined || value === null || (typeof value === 'string' && isBlank(value));

/** The schema inside a wrapper or before a transformation; undefined if there is none. */
export function inner(schema: z.ZodType): z.ZodType | undefined {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable || schema instanceof z.ZodDefault)
    return schema.unwrap() as z.ZodType;
  return schema instanceof z.ZodPipe ? (schema.in as z.ZodType) : undefined;
}

/** Whether a value of the schema is a single one: no list and no object. */
export function isScalar(schema: z.ZodType): boolean {
  const wrapped = inner(schema);
  if (wrapped) return isScalar(wrapped);
  return ![z.ZodArray, z.ZodObject, z.ZodRecord].some((kind) => schema instanceof kind);
}

/**
 * Null or absent (undefined) for an optional field without a value. Other values, and those of required fields, stay.
 * In an update, where every field is optional, empty text for a field that cannot be null stays too: to ignore it would
 * look like success.
 */
function coerceBlank(field: z.ZodType, value: unknown, isUpdate: boolean): unknown {
  if (field.safeParse(value).success) return value;
  if (isScalar(field) && field.safeParse(null).success) return null;
  const isOptional = field instanceof z.ZodOptional || field instanceof z.ZodDefault;
  return isOptional && (value === null || (isScalar(field) && !isUpdate)) ? undefined : value;
}

function coerceFields(shape: Record<string, z.ZodType>, input: Record<string, unknown>, isUpdate: boolean) {
  return Object.fromEntries(
    Object.entries(input).flatMap(([name, value]) => {
      const field = Object.hasOwn(shape, name) ? shape[name] : undefined;
      if (!field) return [[name, value]];
      const coerced = hasNoValue(value) ? coerceBlank(field, value, isUpdate) : coerce(field, value);
      return coerced === undefined ? [] : [[name, coerced]];
    }),
  );
}

/** The words for true and false in forms and queries. */
const booleans: Record<string, boolean> = { true: true, on: true, '1': true, false: false, off: false, '0': false };

/** The boolean that a word stands for, in any case; undefined for other words. */
export const booleanOf = (word: string): boolean | undefined =>
  Object.hasOwn(booleans, word.toLowerCase()) ? booleans[word.toLowerCase()] : undefined;

/** Numbers and booleans as a form that sends every field as text writes them. */
function coerceText(schema: z.ZodType, value: unknown): unknown {
  if (typeof value !== 'string') return value;
  const text = value.trim().toLowerCase();
  if (schema instanceof z.ZodNumber && /^-?\d{1,15}(\.\d{1,10})?$/.test(text)) return Number(text);
  return schema instanceof z.ZodBoolean ? (booleanOf(text) ?? value) : value;
}

/**
 * Converts other spellings to the values of the schema, and empty text to null or an absent field. Returns all else
 * unchanged, so that the validation reports it.
 * @param isUpdate  the schema is the body of an update, where every field is optional
 */
export function coerce(schema: z.ZodType, input: unknown, isUpdate = false): unknown {
  const registered = coercions.get(schema);
  const typed = coerceText(schema, input);
  const value = registered ? registered.coercion(typed) : typed;
  const wrapped = inner(schema);
  if (wrapped) return coerce(wrapped, value, isUpdate);
  if (schema instanceof z.ZodObject && isRecord(value)) return coerceFields(schema.shape, value, isUpdate);
  if (schema instanceof z.ZodArray && Array.isArray(value))
    return value.map((item) => coerce(schema.element as z.ZodType, item));
  return value;
}
