import { z } from 'zod';
import { pathParameters, type Endpoint } from './endpoint.ts';
import { ApiError, type ErrorDetail } from './errors.ts';

/** As many faults as help; more would only let a small request fetch a large answer. */
const mostDetails = 20;

/** Zod's issues as the envelope's details: one per field, the path dotted. */
export function details(error: z.ZodError): ErrorDetail[] {
  const all = error.issues.flatMap((issue) => {
    const path = issue.path.map(String);
    if (issue.code === 'unrecognized_keys') return issue.keys.map((key) => ({ path: [...path, key].join('.'), message: 'is not a known field' }));
    const isMissing = issue.code === 'invalid_type' && issue.input === undefined && issue.message.endsWith('received undefined');
    return [{ path: path.join('.'), message: isMissing ? 'is required' : issue.message }];
  });
  const first = all.filter(({ path }, index) => all.findIndex((other) => other.path === path) === index);
  return first.map(({ path, message }) => ({ path: path.slice(0, 100), message: message.slice(0, 300) }));
}

/** Validates one part of a request. @throws ApiError validation_error with one detail per fault */
function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const faults = details(parsed.error).slice(0, mostDetails);
  const first = faults[0];
  const rest = faults.length > 1 ? ` (and ${String(faults.length - 1)} more)` : '';
  throw new ApiError('validation_error', first?.path ? `${first.path}: ${first.message}${rest}` : `${first?.message ?? 'Invalid'}${rest}`, { details: faults });
}

/**
 * The validator of an endpoint's path, query and body, made once.
 * A record that was read may be sent back as it came: fields that the answer has and the body has not go on as `read_only`,
 * for the operation to compare with what they are.
 */
export function validator(endpoint: Endpoint, method: string, path: string) {
  const params = z.object(pathParameters(path, endpoint));
  const query = endpoint.query ?? z.strictObject({});
  const { body, answer } = endpoint;
  const fields = body instanceof z.ZodObject ? body.shape : {};
  const readOnly =
    method === 'PUT' && body instanceof z.ZodObject && answer instanceof z.ZodObject ? Object.keys(answer.shape).filter((key) => !(key in fields)) : [];
  for (const name of Object.keys(params.shape)) {
    if (name in query.shape || name in fields) throw new Error(`${method} ${path}: ${name} is named twice`);
  }
  const parseBody = (input: unknown): Record<string, unknown> => {
    if (!body) return {};
    return body instanceof z.ZodObject ? parse(body, input) : { items: parse(body, input) };
  };
  return (request: { params: unknown; query: unknown; body: unknown }): Record<string, unknown> => {
    let input: unknown = request.body === undefined ? {} : request.body;
    let given = {};
    if (readOnly.length > 0 && input !== null && typeof input === 'object' && !Array.isArray(input)) {
      const [own, other] = [true, false].map((isReadOnly) =>
        Object.fromEntries(Object.entries(input as object).filter(([key]) => readOnly.includes(key) === isReadOnly)),
      );
      if (own && Object.keys(own).length > 0) given = { read_only: own };
      input = other;
    }
    return { ...parse(query, request.query), ...parseBody(input), ...given, ...parse(params, request.params) };
  };
}
