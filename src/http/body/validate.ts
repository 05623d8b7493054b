import { z } from 'zod';
import { type Endpoint, pathParameters, queryOf } from '../endpoint.ts';
import { ApiError, type ErrorDetail } from '../../domain/errors.ts';
import { type PlacedCheck, checkFinder } from '../checks.ts';
import { coerce, isRecord } from '../coercion.ts';
import { didYouMean } from '../did-you-mean.ts';
import { receivedText } from '../received-text.ts';

/** Maximum number of errors per response, so that a small request cannot produce a large response. */
const maxDetails = 20;

const maxMessageLength = 300;

/** Shortens a long message at the end of a word. */
const shorten = (message: string) =>
  message.length <= maxMessageLength ? message : `${message.slice(0, maxMessageLength - 1).replace(/\W+\w*$/, '')}…`;

const types: Record<string, string> = {
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
  record: 'an object',
};

const formats: Record<string, string> = {
  date: 'must be a date, YYYY-MM-DD',
  datetime: 'must be a date and time in ISO 8601 format with a time zone',
  email: 'must be an email address',
  url: 'must be a URL',
};

const units: Record<string, [one: string, many: string]> = {
  string: ['character', 'characters'],
  array: ['entry', 'entries'],
};

function limit(
  { origin, inclusive, exact }: { origin: string; inclusive?: boolean; exact?: boolean },
  value: number | bigint,
  side: 'least' | 'most',
): string {
  const unit = units[origin];
  const bound = exact ? '' : inclusive === false ? (side === 'least' ? 'more than ' : 'less than ') : `at ${side} `;
  if (!unit) return `must be ${bound}${String(value)}`;
  if (side === 'least' && value === 1 && !exact) return 'must not be empty';
  return `must have ${bound}${String(value)} ${unit[Number(value) === 1 ? 0 : 1]}`;
}

/** The message for an invalid field. Messages defined in a schema take precedence. */
function messageFor(issue: z.core.$ZodRawIssue): string {
  if (issue.input === undefined && (issue.code === 'invalid_type' || issue.code === 'invalid_value'))
    return 'is required';
  switch (issue.code) {
    case 'invalid_type':
      return issue.input === null ? 'must not be null' : `must be ${types[issue.expected] ?? `a ${issue.expected}`}`;
    case 'invalid_value':
      return `must be ${issue.values.length > 1 ? 'one of ' : ''}${issue.values.map(String).join(', ')}`;
    case 'too_small':
      return limit(issue, issue.minimum, 'least');
    case 'too_big':
      return limit(issue, issue.maximum, 'most');
    case 'not_multiple_of':
      return `must be a multiple of ${String(issue.divisor)}`;
    case 'invalid_format':
      return formats[issue.format] ?? 'is malformed';
    case 'invalid_union':
      return issue.errors[0]?.[0]?.message ?? 'is not valid';
    case 'unrecognized_keys':
      return 'has unknown fields';
    default:
      return 'is not valid';
  }
}

z.config({ customError: messageFor });

/** Converts the issues of zod to the details of the error envelope: one per field, with a dotted path. */
export function details(
  error: z.ZodError,
  maxCount = Infinity,
  unknownMessage: (key: string) => string = () => 'is not a known field',
): ErrorDetail[] {
  const first = new Map<string, string>();
  for (const issue of error.issues) {
    const isUnknown = issue.code === 'unrecognized_keys';
    const paths = isUnknown ? issue.keys.slice(0, maxCount).map((key) => [...issue.path, key]) : [issue.path];
    for (const path of paths) {
      if (first.size >= maxCount) break;
      const dotted = path.map(String).join('.');
      if (!first.has(dotted)) first.set(dotted, isUnknown ? unknownMessage(String(path.at(-1))) : issue.message);
    }
    if (first.size >= maxCount) break;
  }
  return [...first].map(([path, message]) => ({ path: path.slice(0, 100), message: shorten(message) }));
}

/**
 * Validates one part of a request.
 * @param isUpdate  the part is the body of an update
 * @param unknownMessage  the message about an unknown field
 * @throws ApiError validation_error with one detail per invalid field
 */
function parse<T>(
  schema: z.ZodType<T>,
  value: unknown,
  { isUpdate = false, unknownMessage }: { isUpdate?: boolean; unknownMessage?: (key: string) => string } = {},
): T {
  const parsed = schema.safeParse(coerce(schema, value, isUpdate));
  if (parsed.success) return parsed.data;
  refuse(details(parsed.error, maxDetails, unknownMessage));
}

function refuse(faults: ErrorDetail[]): never {
  const [first] = faults;
  const rest = faults.length > 1 ? ` (and ${String(faults.length - 1)} more)` : '';
  throw new ApiError(
    'validation_error',
    first?.path ? `${first.path}: ${first.message}${rest}` : `The body ${first?.message ?? 'is not valid'}${rest}`,
    { details: faults },
  );
}

/**
 * Validates a query. Empty parameters count as absent, because forms send them for empty inputs. `_` is ignored:
 * clients send it to bypass caches.
 */
function parseQuery(schema: z.ZodObject, value: unknown): Record<string, unknown> {
  const given = Object.entries(value as object).filter(([name, text]) => name !== '_' && text !== '');
  const repeated = given.filter(([name, text]) => Array.isArray(text) && Object.hasOwn(schema.shape, name));
  if (repeated.length > 0)
    refuse(repeated.slice(0, maxDetails).map(([path]) => ({ path, message: 'must be given only once' })));
  return parse(schema, Object.fromEntries(given), {
    unknownMessage: (name) => `is not a known parameter${didYouMean(name, Object.keys(schema.shape))}`,
  });
}

/** Whether a request changes a record, and may send it back as it was read. */
export const isUpdate = (endpoint: Endpoint, method: string): boolean =>
  method === 'PUT' || method === 'PATCH' || endpoint.isUpdate === true;

/** The fields that the answer has but the body has not. */
function fieldsOfAnswer({ body, response, asRead }: Endpoint): string[] {
  if (!(body instanceof z.ZodObject && 'data' in response && response.data instanceof z.ZodObject)) return [];
  return Object.keys({ ...response.data.shape, ...asRead?.shape }).filter((key) => !(key in body.shape));
}

/** Whether a field of the answer can be null. */
const mayBeNull = ({ response, asRead }: Endpoint, name: string): boolean =>
  'data' in response &&
  response.data instanceof z.ZodObject &&
  ((asRead?.shape[name] ?? response.data.shape[name]) as z.ZodType).safeParse(null).success;

/** The fields that a record has but the body that creates or updates it has not. */
export function readOnlyFields(endpoint: Endpoint, method: string): string[] {
  const { response } = endpoint;
  const changes = isUpdate(endpoint, method);
  if (response.kind !== (changes ? 'json' : 'created')) return [];
  // What an import or another action returns is no record.
  if (!changes && response.data instanceof z.ZodObject && !('id' in response.data.shape)) return [];
  return fieldsOfAnswer(endpoint);
}

const partOf = (object: object, isIn: (field: [string, unknown]) => boolean) =>
  Object.fromEntries(Object.entries(object).filter(isIn));

/** A valid request. */
interface Validated {
  params: Record<string, unknown>;
  /** What the database has to check of the parameters. */
  checks: PlacedCheck[];
}

/**
 * Creates the validator of an endpoint's path, query and body. A client may send a record back as it was read. Fields
 * that only the response has are passed on as `read_only`: `core.run_write` compares them with the stored record, or
 * with the new one. Null in such a field is as if it were absent, because programs fill the fields of a new record so;
 * but in an update of a field that can be null, it may be meant.
 */
export function validator(endpoint: Endpoint, method: string, path: string) {
  const params = z.object(pathParameters(path, endpoint));
  const query = queryOf(endpoint) ?? z.strictObject({});
  const { body } = endpoint;
  const fields = body instanceof z.ZodObject ? body.shape : {};
  const readOnly = readOnlyFields(endpoint, method);
  const ofAnswer = fieldsOfAnswer(endpoint);
  const ignoredNulls = ofAnswer.filter((name) => !isUpdate(endpoint, method) || !mayBeNull(endpoint, name));
  const findInQuery = checkFinder(query);
  const findInBody = body && checkFinder(body);
  for (const name of Object.keys(params.shape)) {
    if (name in query.shape || name in fields) throw new Error(`${method} ${path}: ${name} is declared twice`);
  }
  const parseBody = (input: unknown): Record<string, unknown> => {
    if (!body) return {};
    return body instanceof z.ZodObject
      ? parse(body, input, { isUpdate: isUpdate(endpoint, method) })
      : { items: parse(body, input) };
  };
  return (request: { params: unknown; query: unknown; body: unknown }): Validated => {
    let input: unknown = request.body === undefined ? {} : receivedText(body ?? z.unknown(), request.body);
    let given = {};
    if (ofAnswer.length > 0 && isRecord(input)) {
      input = partOf(input, ([name, value]) => value !== null || !ignoredNulls.includes(name));
      const own = partOf(input as object, ([name]) => readOnly.includes(name));
      if (Object.keys(own).length > 0) {
        given = { read_only: own };
        input = partOf(input as object, ([name]) => !readOnly.includes(name));
      }
    }
    const ofQuery = parseQuery(query, receivedText(query, request.query));
    const ofBody = parseBody(input);
    const checks: PlacedCheck[] = [];
    findInQuery?.(ofQuery, [], checks);
    if (body instanceof z.ZodArray) findInBody?.(ofBody['items'], ['items'], checks);
    else findInBody?.(ofBody, [], checks);
    const ofPath = parse(params, receivedText(params, request.params));
    return { params: { ...ofQuery, ...ofBody, ...given, ...ofPath }, checks };
  };
}
