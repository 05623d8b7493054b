import { z } from 'zod';
import {
  createDocument,
  type ZodOpenApiOperationObject,
  type ZodOpenApiPathsObject,
  type ZodOpenApiResponsesObject,
} from 'zod-openapi';
import { type Endpoint, pathParameters, type Resource, takesDryRun } from './endpoint.ts';
import { type ErrorName, errors } from '../domain/errors.ts';
import { about } from './health.ts';
import { isAnonymous, type Operation } from './router.ts';
import { readOnlyFields } from './validate.ts';

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
            .meta({ description: 'Of a schedule_conflict: what conflicts.', examples: ['teacher'] }),
          slot_id: z.int().optional().meta({ description: 'Of a schedule_conflict: the slot in the way.' }),
        }),
      )
      .optional()
      .meta({ description: 'Each field at fault.' }),
    request_id: z.string(),
  })
  .meta({
    id: 'Failure',
    description: Object.entries(errors)
      .map(([name, { status, meaning }]) => `* ${String(status)} \`${name}\`: ${meaning}`)
      .join('\n'),
  });

const Pagination = z
  .object({ page: z.int(), pageSize: z.int(), totalItems: z.int(), totalPages: z.int() })
  .meta({ id: 'Pagination' });

const Health = z.object({ status: z.literal('ok'), service: z.string(), version: z.string() }).meta({ id: 'Health' });
const Ready = z
  .object({
    status: z.enum(['ready', 'not_ready']),
    service: z.string(),
    version: z.string(),
    database: z.boolean(),
    migrations: z.boolean(),
    worker: z.boolean(),
    tenants_behind: z.int().nullable().meta({
      description: 'Schools whose schema is older than the functions; each answers 503 until it is migrated.',
    }),
  })
  .meta({ id: 'Ready' });

const content = (schema: z.ZodType) => ({ 'application/json': { schema } });
const success = (data: z.ZodType) => z.object({ success: z.literal(true), data });
/** The headers of an answer, by name what each is. */
const headersOf = (about: Record<string, string>) =>
  Object.keys(about).length > 0
    ? {
        headers: z.object(
          Object.fromEntries(
            Object.entries(about).map(([name, description]) => [name, z.string().optional().meta({ description })]),
          ),
        ),
      }
    : {};
const failureHeaders: Partial<Record<ErrorName, Record<string, string>>> = {
  rate_limited: { 'Retry-After': 'Seconds until it makes sense to try again.' },
  unavailable: { 'Retry-After': 'Seconds until it makes sense to try again.' },
  range_not_satisfiable: { 'Content-Range': 'How long the file is: `bytes */size`.' },
};
const failure = (...names: ErrorName[]) => ({
  description: names.map((name) => `\`${name}\`: ${errors[name].meaning}`).join(' '),
  'x-errors': names,
  content: content(Failure),
  ...headersOf(Object.assign({}, ...names.map((name) => failureHeaders[name])) as Record<string, string>),
});

/** Operations on the way of which a handler gives out a refresh token. */
const opensSession = ['auth_credentials', 'auth_refresh'];

/** What whoever shows a feed's token hears of nothing: its handler says that there is none. */
const ofFeeds: ErrorName[] = [
  'unavailable',
  'rate_limited',
  'not_acceptable',
  'not_found',
  'validation_error',
  'internal_error',
];

/**
 * The errors that an operation can answer: those of the way to it, those that its functions raise (`core.operation.errors`), those that follow from what it
 * does to tables, and those that the endpoint names.
 */
function failures(endpoint: Endpoint, operation: Operation, path: string, method: string): ErrorName[] {
  const { access } = operation;
  const isStranger = isAnonymous(operation);
  const isOfSchool = access === 'tenant' || isStranger || access === 'any';
  const names: [ErrorName, boolean][] = [
    ['validation_error', true],
    ['malformed_json', method !== 'GET'],
    ['unauthenticated', !isStranger || access === 'refresh'],
    ['invalid_token', access !== 'public'],
    // A school that is closed.
    ['invalid_token', isOfSchool],
    ['forbidden', access === 'platform' || access === 'tenant'],
    ['tenant_suspended', isOfSchool],
    ['tenant_mismatch', isOfSchool],
    ['feature_disabled', operation.feature !== null],
    ['subscription_inactive', operation.needs_subscription],
    ['setup_incomplete', operation.needs_setup],
    ['tenant_not_found', access === 'public'],
    // What is one's own may not be there.
    [
      'not_found',
      /\/(:|me(\/|$))/.test(path) || endpoint.bytes !== undefined || operation.role !== null || namesRecord(endpoint),
    ],
    ['conflict', operation.writes],
    ['in_use', method === 'DELETE'],
    ['idempotency_key_reused', operation.idempotent],
    ['precondition_failed', honoursIfMatch(endpoint, operation)],
    ['not_acceptable', !endpoint.bytes && !endpoint.isStream],
    ['payload_too_large', method !== 'GET'],
    ['unsupported_media_type', method !== 'GET'],
    ['invalid_reference', operation.writes && endpoint.body !== undefined],
    ['range_not_satisfiable', endpoint.bytes !== undefined && operation.content === 'gives'],
    ['rate_limited', true],
    ['internal_error', true],
    ['unavailable', true],
  ];
  const all = new Set([
    ...names.flatMap(([name, can]) => (can ? [name] : [])),
    ...operation.errors,
    ...(endpoint.errors ?? []),
  ]);
  const order = Object.keys(errors) as ErrorName[];
  return order.filter((name) => all.has(name) && (access !== 'feed' || ofFeeds.includes(name)));
}

/** A record that the query of a list names narrows it; one that another query names has to be there. */
const namesRecord = ({ query, isPage }: Endpoint) =>
  isPage !== true && Object.keys(query?.shape ?? {}).some((name) => name.endsWith('_id'));

const honoursIfMatch = (endpoint: Endpoint, operation: Operation) =>
  operation.record !== null && operation.writes && !endpoint.isCreate;

/** Who may call it, in a sentence. */
function access(endpoint: Endpoint, operation: Operation): string {
  const parts = {
    public: 'Public.',
    token: 'Public, with a one-time token.',
    feed: 'Public, with the token of a feed.',
    refresh: 'Needs a refresh token, in X-Refresh-Token or as a cookie.',
    any: 'Needs a log-in, of a school or of an operator.',
    tenant: operation.permission
      ? `Needs the permission \`${operation.permission}\`${operation.allows_own_rows ? ", but for a student's or a teacher's own" : ''}.`
      : 'Needs a log-in of a school.',
    platform: 'Needs an operator.',
    analyst: 'Needs an operator, whatever their role.',
  };
  return [
    parts[operation.access],
    operation.role && `Needs the role \`${operation.role}\`.`,
    operation.feature && `Needs the feature \`${operation.feature}\`.`,
    operation.needs_setup && 'Needs a complete setup.',
    operation.needs_subscription && 'Needs an active subscription.',
    honoursIfMatch(endpoint, operation) && 'Honours `If-Match`.',
    operation.idempotent && 'Honours `Idempotency-Key`.',
  ]
    .filter(Boolean)
    .join(' ');
}

function responses(endpoint: Endpoint, operation: Operation, path: string, method: string): ZodOpenApiResponsesObject {
  const byStatus = Map.groupBy(failures(endpoint, operation, path, method), (name) => String(errors[name].status));
  const answer = endpoint.answer ?? z.null();
  const givesFile = operation.content === 'gives';
  const about: Record<string, string> = {
    ...(endpoint.isCreate ? { Location: 'The path of what was made.' } : {}),
    ...(operation.record && method !== 'DELETE'
      ? { ETag: 'The version of the record, for If-Match and If-None-Match.' }
      : {}),
    ...(endpoint.isTagged ? { ETag: 'The digest of the file, for If-None-Match.' } : {}),
    ...(givesFile
      ? { ETag: 'The digest of the file, for If-None-Match and If-Range.', 'Accept-Ranges': '`bytes`' }
      : {}),
    ...(opensSession.includes(operation.name)
      ? {
          'X-Refresh-Token': 'The refresh token of the session, for the next refresh.',
          'Set-Cookie':
            'The same as the cookie `refresh_token` (`__Host-refresh_token` with https), where a cookie is asked for.',
        }
      : {}),
  };
  const headers = headersOf(about);
  const ok = endpoint.isStream
    ? {
        ...headers,
        description: 'Server-sent events, for as long as the client wants.',
        content: { 'text/event-stream': { schema: { type: 'string' as const } } },
      }
    : endpoint.bytes
      ? {
          ...headers,
          description: 'The file.',
          content: Object.fromEntries(
            endpoint.bytes.map((type) => [type, { schema: { type: 'string' as const, format: 'binary' } }]),
          ),
        }
      : {
          description: endpoint.isCreate ? 'Made.' : 'Done.',
          content: content(
            endpoint.isPage
              ? z.object({
                  success: z.literal(true),
                  data: z.array(answer),
                  pagination: Pagination,
                  ...endpoint.extraFields,
                })
              : success(answer),
          ),
          ...headers,
        };
  return {
    [endpoint.isCreate ? '201' : '200']: ok,
    ...(endpoint.isCreate && takesDryRun(endpoint)
      ? { '200': { description: 'Tried.', content: content(success(answer)) } }
      : {}),
    ...(givesFile
      ? {
          '206': {
            ...ok,
            ...headersOf({ ...about, 'Content-Range': '`bytes start-end/size`' }),
            description: 'The part of the file that Range names.',
          },
        }
      : {}),
    ...(method === 'GET' && (operation.record || givesFile || endpoint.isTagged)
      ? { '304': { description: 'You have this version already (If-None-Match).' } }
      : {}),
    ...Object.fromEntries([...byStatus].map(([status, names]) => [status, failure(...names)])),
  };
}

/** A body with the fields that a record which is sent back as it was read has beside its own. */
function withReadOnly(body: NonNullable<Endpoint['body']>, endpoint: Endpoint, method: string): z.ZodType {
  const names = readOnlyFields(endpoint, method);
  if (names.length === 0 || !(body instanceof z.ZodObject)) return body;
  const asRead = z.unknown().optional().meta({ readOnly: true, description: 'As it was read, or not at all.' });
  return z
    .strictObject({ ...body.shape, ...Object.fromEntries(names.map((name) => [name, asRead])) })
    .meta({ ...body.meta() });
}

/** The body as JSON, as a form with a file, or as either. */
function requestBody(endpoint: Endpoint, method: string): Pick<ZodOpenApiOperationObject, 'requestBody'> {
  const { body, upload } = endpoint;
  // Without a body it is as with an empty one.
  const required = (upload !== undefined && upload.isOptional !== true) || body?.safeParse({}).success !== true;
  if (!upload) return body ? { requestBody: { required, content: content(withReadOnly(body, endpoint, method)) } } : {};
  const [field = 'file'] = upload.fields;
  const file = z.any().meta({ override: { type: 'string', format: 'binary' }, description: upload.types.join(', ') });
  const form = z.object({
    ...(body instanceof z.ZodObject ? body.shape : {}),
    [field]: upload.isOptional ? file.optional() : file,
  });
  return {
    requestBody: {
      required,
      content: { 'multipart/form-data': { schema: form }, ...(upload.isOptional && body ? content(body) : {}) },
    },
  };
}

function describe(
  endpoint: Endpoint,
  operation: Operation,
  section: string,
  path: string,
  method: string,
): ZodOpenApiOperationObject {
  const headers = {
    ...(operation.access === 'refresh'
      ? { 'X-Refresh-Token': z.string().optional().meta({ description: 'Where there is no cookie.' }) }
      : {}),
    ...(operation.access === 'tenant'
      ? {
          'X-Tenant-ID': z
            .string()
            .regex(/^[1-9][0-9]*$/)
            .optional()
            .meta({ description: 'The school; the token names it already, and both must agree.' }),
        }
      : {}),
    ...(operation.content === 'gives'
      ? {
          Range: z
            .string()
            .optional()
            .meta({ description: 'One part of the file.', examples: ['bytes=0-1023'] }),
          'If-Range': z
            .string()
            .optional()
            .meta({ description: 'The ETag of the file that Range is meant for; all of another one comes.' }),
        }
      : {}),
    ...(endpoint.isStream
      ? {
          'Last-Event-ID': z
            .string()
            .regex(/^[0-9]{1,15}$/)
            .optional()
            .meta({ description: 'The id of the last event that you have got: the stream goes on after it.' }),
        }
      : {}),
    ...(honoursIfMatch(endpoint, operation)
      ? { 'If-Match': z.string().optional().meta({ description: 'The ETag of the version that you read.' }) }
      : {}),
    ...(operation.idempotent
      ? {
          'Idempotency-Key': z.string().max(255).optional().meta({
            description: 'Makes it safe to send the request again: the first answer comes again for 24 hours.',
          }),
        }
      : {}),
  };
  const isStranger = isAnonymous(operation);
  return {
    operationId: endpoint.operationId ?? operation.name,
    tags: [section],
    summary: endpoint.summary,
    description: [endpoint.description, access(endpoint, operation)].filter(Boolean).join('\n\n'),
    security: isStranger ? [] : [{ bearer: [] }],
    requestParams: {
      ...(path.includes(':') ? { path: z.object(pathParameters(path, endpoint)) } : {}),
      ...(endpoint.query ? { query: endpoint.query } : {}),
      ...(Object.keys(headers).length > 0 ? { header: z.object(headers) } : {}),
      ...(operation.access === 'refresh'
        ? {
            cookie: z.object({
              refresh_token: z.string().optional().meta({
                description: 'Of a log-in with refresh_cookie; with https it is called `__Host-refresh_token`.',
              }),
            }),
          }
        : {}),
    },
    ...requestBody(endpoint, method),
    responses: responses(endpoint, operation, path, method),
    'x-operation': operation.name,
    ...(operation.permission ? { 'x-permission': operation.permission } : {}),
  };
}

/**
 * The OpenAPI 3.1 document, from the route table and the schemas that run, and the operation registry.
 * @param publicUrl  where the service is reached from outside
 */
export function openapiDocument(
  resources: readonly Resource[],
  operations: ReadonlyMap<string, Operation>,
  publicUrl = '/',
) {
  const paths: ZodOpenApiPathsObject = {
    '/api/health': {
      get: {
        operationId: 'health',
        tags: ['Health'],
        summary: 'Whether the process is alive',
        security: [],
        responses: {
          '200': { description: 'Alive.', content: content(success(Health)) },
          '405': failure('method_not_allowed'),
        },
      },
    },
    '/api/health/ready': {
      get: {
        operationId: 'health_ready',
        tags: ['Health'],
        summary: 'Whether the service is fit: database, migrations, worker',
        security: [],
        responses: {
          '200': { description: 'Ready.', content: content(success(Ready)) },
          '405': failure('method_not_allowed'),
          '503': {
            description: 'Not ready.',
            content: content(
              z.object({
                success: z.literal(false),
                error: z.literal('unavailable'),
                message: z.string(),
                data: Ready,
              }),
            ),
          },
        },
      },
    },
  };
  for (const { path: base, section, endpoints } of resources) {
    for (const { method, path, endpoint } of endpoints) {
      const operation = operations.get(endpoint.operation);
      if (!operation) throw new Error(`There is no operation ${endpoint.operation}`);
      const full = `/api${base}${path === '/' ? '' : path}`.replace(/:(\w+)/g, '{$1}');
      paths[full] = { ...paths[full], [method.toLowerCase()]: describe(endpoint, operation, section, path, method) };
    }
  }
  return createDocument({
    openapi: '3.1.1',
    info: {
      title: 'School management service',
      version: about.version,
      description:
        'Every answer is `{success: true, data}` or `{success: false, error, message, details?, request_id}`; lists add `pagination`. Log in at `POST /api/auth/login`, send `Authorization: Bearer <access_token>`, and refresh the token before its 15 minutes are over.',
      license: { name: 'MIT', url: 'https://opensource.org/license/mit' },
    },
    servers: [{ url: publicUrl }],
    tags: [
      { name: 'Health', description: 'Whether the service is alive and fit.' },
      ...resources.map(({ section, about }) => ({ name: section, description: about })),
    ],
    components: { securitySchemes: { bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' } } },
    paths,
  });
}

const documents = new Map<string, ReturnType<typeof openapiDocument>>();

/** The document as JSON. Services of one process that have the same operations share it, whatever their addresses are. */
export function openapiText(
  resources: readonly Resource[],
  operations: ReadonlyMap<string, Operation>,
  publicUrl = '/',
): string {
  const key = JSON.stringify([...operations.values()]);
  const document = documents.get(key) ?? openapiDocument(resources, operations);
  documents.set(key, document);
  return JSON.stringify({ ...document, servers: [{ url: publicUrl }] });
}
