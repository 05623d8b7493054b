import { z } from 'zod';
import type { ZodOpenApiResponseObject, ZodOpenApiResponsesObject } from 'zod-openapi';
import { type ErrorName, errors } from '../../domain/errors.ts';
import { type Endpoint, type JsonKind, takesDryRun } from '../endpoint.ts';
import { endpointErrors } from './errors.ts';
import type { Operation } from '../operation.ts';
import { Deleted, id, timestamp } from '../schemas.ts';

/** What a login still needs: the field `challenge` of second_factor_required. */
const LoginChallenge = z
  .object({
    token: z.string().meta({ description: 'Proves the password for ten minutes. For `POST /api/auth/login/verify`.' }),
    expires_at: timestamp,
    is_enrollment: z.boolean().meta({
      description:
        'True: the account needs a second factor but has none. Set one up: `POST /api/auth/login/enroll`, then verify.',
    }),
    methods: z
      .array(z.enum(['totp', 'recovery_code', 'passkey']))
      .meta({ description: 'What the user can send. Empty for an enrollment.' }),
    passkey: z
      .looseObject({})
      .nullable()
      .meta({ description: 'The options of `navigator.credentials.get` (WebAuthn); null without passkeys.' }),
  })
  .meta({ id: 'LoginChallenge' });

const Failure = z
  .object({
    success: z.literal(false),
    error: z.enum(Object.keys(errors) as [ErrorName, ...ErrorName[]]),
    message: z.string(),
    details: z
      .array(
        z.object({
          path: z.string(),
          message: z.string(),
          kind: z
            .string()
            .optional()
            .meta({ description: 'For schedule_conflict: what conflicts.', examples: ['teacher'] }),
          slot_id: z.int().optional().meta({ description: 'For schedule_conflict: the existing slot that conflicts.' }),
        }),
      )
      .optional()
      .meta({ description: 'The invalid fields.' }),
    challenge: LoginChallenge.optional().meta({ description: 'Only for second_factor_required.' }),
    request_id: z.string(),
  })
  .meta({
    id: 'Failure',
    examples: [
      {
        success: false,
        error: 'validation_error',
        message: 'first_name: must not be empty',
        details: [{ path: 'first_name', message: 'must not be empty' }],
        request_id: '0b6f1c9e-6d2c-4f0e-9a53-5d6b0c1f7e11',
      },
    ],
    description: Object.entries(errors)
      .map(([name, { status, meaning }]) => `* ${String(status)} \`${name}\`: ${meaning}`)
      .join('\n'),
  });

const Pagination = z
  .object({ page: z.int(), pageSize: z.int(), totalItems: z.int(), totalPages: z.int() })
  .meta({ id: 'Pagination', examples: [{ page: 1, pageSize: 20, totalItems: 601, totalPages: 31 }] });

/** A JSON body with this schema. */
export const jsonContent = (schema: z.ZodType) => ({ 'application/json': { schema } });
/** The envelope of a success. */
export const successEnvelope = (data: z.ZodType) => z.object({ success: z.literal(true), data });
/** Response headers, from their descriptions by name. */
const responseHeaders = (descriptions: Record<string, string>) =>
  Object.keys(descriptions).length > 0
    ? {
        headers: z.object(
          Object.fromEntries(
            Object.entries(descriptions).map(([name, description]) => [
              name,
              z.string().optional().meta({ description }),
            ]),
          ),
        ),
      }
    : {};
const failureHeaders: Partial<Record<ErrorName, Record<string, string>>> = {
  rate_limited: { 'Retry-After': 'Seconds to wait before trying again.' },
  unavailable: { 'Retry-After': 'Seconds to wait before trying again.' },
  range_not_satisfiable: { 'Content-Range': 'The size of the file: `bytes */size`.' },
};
const describeFailure = (names: readonly ErrorName[]) => ({
  description: names.map((name) => `\`${name}\`: ${errors[name].meaning}`).join(' '),
  'x-errors': names,
  content: jsonContent(Failure),
  ...responseHeaders(Object.assign({}, ...names.map((name) => failureHeaders[name])) as Record<string, string>),
});

/** The responses in `components`, by their id. */
const sharedFailures = new Map<string, ZodOpenApiResponseObject>();

/** The response to one or several errors of the same status. Operations with the same errors share it. */
export function failureResponse(...names: ErrorName[]): ZodOpenApiResponseObject {
  const id = names.join('.');
  const known = sharedFailures.get(id) ?? { id, ...describeFailure(names) };
  sharedFailures.set(id, known);
  return known;
}

/** The headers of a successful response, with their descriptions. */
function successHeaders({ response }: Endpoint, operation: Operation, method: string): Record<string, string> {
  return {
    ...(response.kind === 'created' && response.location !== null ? { Location: 'The path of the new record.' } : {}),
    ...(operation.unversioned_fields && method !== 'DELETE'
      ? { ETag: 'The version of the record, for If-Match and If-None-Match.' }
      : {}),
    ...(isTagged(response) ? { ETag: 'The digest of the file, for If-None-Match.' } : {}),
    ...(response.kind === 'file'
      ? { ETag: 'The digest of the file, for If-None-Match and If-Range.', 'Accept-Ranges': '`bytes`' }
      : {}),
    ...(response.kind === 'json' && response.issuesRefreshToken
      ? {
          'X-Refresh-Token': 'The refresh token of the session, for the next refresh.',
          'Set-Cookie':
            'The same token as the cookie `refresh_token` (`__Host-refresh_token` with https), ' +
            'if the client asks for a cookie.',
        }
      : {}),
    ...(response.kind === 'json' && response.knowsDevices
      ? { 'X-Known-Device': 'The token of the device, for the next login. With a cookie: `known_device`.' }
      : {}),
  };
}

const isTagged = (response: Endpoint['response']) => response.kind === 'download' && response.isTagged === true;

/** What a write answers to a user who may not read the record. */
const OnlyId = z
  .object({ id })
  .meta({ id: 'OnlyId', description: 'The answer of a change, for a user who may not read the record.' });

/** Whether every response is `{id}`. */
export const answersOnlyId = ({ response }: Pick<Endpoint, 'response'>): boolean =>
  'data' in response && response.data === Deleted;

/** The data of a successful response. */
const dataOf = (response: JsonKind, { reader }: Operation) =>
  reader === null || answersOnlyId({ response }) ? response.data : z.union([response.data, OnlyId]);

/** The description of a successful response and its content. */
function successContent(
  response: Endpoint['response'],
  operation: Operation,
): Pick<ZodOpenApiResponseObject, 'description' | 'content'> {
  switch (response.kind) {
    case 'stream':
      return {
        description: 'Server-sent events, until the client disconnects.',
        content: { 'text/event-stream': { schema: { type: 'string' } } },
      };
    case 'file':
    case 'download':
      return {
        description: 'The file.',
        content: Object.fromEntries(
          response.types.map((type) => [type, { schema: { type: 'string' as const, format: 'binary' } }]),
        ),
      };
    case 'page': {
      const { data, extraFields } = response;
      const envelope = z.object({ success: z.literal(true), data, pagination: Pagination, ...extraFields });
      return { description: 'Success.', content: jsonContent(envelope) };
    }
    case 'created':
      return { description: 'Created.', content: jsonContent(successEnvelope(dataOf(response, operation))) };
    case 'json':
      return { description: 'Success.', content: jsonContent(successEnvelope(dataOf(response, operation))) };
  }
}

/** All responses of an endpoint, by status. */
export function responses(
  endpoint: Endpoint,
  operation: Operation,
  path: string,
  method: string,
): ZodOpenApiResponsesObject {
  const failuresByStatus = Map.groupBy(endpointErrors(endpoint, operation, path, method), (name) =>
    String(errors[name].status),
  );
  const { response } = endpoint;
  const isFile = response.kind === 'file';
  const headers = successHeaders(endpoint, operation, method);
  const ok = { ...successContent(response, operation), ...responseHeaders(headers) };
  return {
    [response.kind === 'created' ? '201' : '200']: ok,
    ...(response.kind === 'created' && takesDryRun(endpoint)
      ? {
          '200': {
            description: 'Dry run: nothing was created.',
            content: jsonContent(successEnvelope(response.data)),
          },
        }
      : {}),
    ...(isFile
      ? {
          '206': {
            ...ok,
            ...responseHeaders({ ...headers, 'Content-Range': '`bytes start-end/size`' }),
            description: 'The requested range of the file.',
          },
        }
      : {}),
    ...(method === 'GET' && (operation.unversioned_fields || isFile || isTagged(response))
      ? { '304': { description: 'The client already has this version (If-None-Match).' } }
      : {}),
    ...Object.fromEntries([...failuresByStatus].map(([status, names]) => [status, failureResponse(...names)])),
  };
}
