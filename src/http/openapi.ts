import { z } from 'zod';
import {
  createDocument,
  type ZodOpenApiOperationObject,
  type ZodOpenApiPathsObject,
  type ZodOpenApiResponsesObject,
} from 'zod-openapi';
import { type Endpoint, pathParameters, type Resource, takesDryRun } from './endpoint.ts';
import { type ErrorName, errors } from '../domain/errors.ts';
import { serviceInfo } from './health.ts';
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
            .meta({ description: 'For schedule_conflict: what conflicts.', examples: ['teacher'] }),
          slot_id: z.int().optional().meta({ description: 'For schedule_conflict: the existing slot that conflicts.' }),
        }),
      )
      .optional()
      .meta({ description: 'The invalid fields.' }),
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
      description: 'Schools whose tables are not migrated yet. Their requests get 503 until they are.',
    }),
  })
  .meta({ id: 'Ready' });

const content = (schema: z.ZodType) => ({ 'application/json': { schema } });
const success = (data: z.ZodType) => z.object({ success: z.literal(true), data });
/** Response headers, from their descriptions by name. */
const headersOf = (descriptions: Record<string, string>) =>
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
const failure = (...names: ErrorName[]) => ({
  description: names.map((name) => `\`${name}\`: ${errors[name].meaning}`).join(' '),
  'x-errors': names,
  content: content(Failure),
  ...headersOf(Object.assign({}, ...names.map((name) => failureHeaders[name])) as Record<string, string>),
});

/** Operations whose handler issues a refresh token. */
const opensSession = ['auth_credentials', 'auth_refresh'];

/** All errors of a calendar feed: its handler answers 404 to an invalid token, whatever the reason. */
const feedErrors: ErrorName[] = [
  'unavailable',
  'rate_limited',
  'not_acceptable',
  'not_found',
  'validation_error',
  'internal_error',
];

/**
 * The errors that an endpoint can answer: those that the operation declares (`core.operation.errors`), and those that
 * follow from the route and from the other columns of `core.operation`.
 */
function failures(endpoint: Endpoint, operation: Operation, path: string, method: string): ErrorName[] {
  const { access } = operation;
  const anonymous = isAnonymous(operation);
  const isForSchools = access === 'tenant' || anonymous || access === 'any';
  const derived: Partial<Record<ErrorName, boolean>> = {
    validation_error: true,
    malformed_json: method !== 'GET',
    unauthenticated: !anonymous || access === 'refresh',
    invalid_token: true,
    forbidden: access === 'platform' || access === 'tenant',
    tenant_suspended: isForSchools,
    tenant_mismatch: isForSchools,
    tenant_not_found: access === 'public',
    feature_disabled: operation.feature !== null,
    subscription_inactive: operation.needs_subscription,
    setup_incomplete: operation.needs_setup,
    not_found: path.includes(':'),
    idempotency_key_reused: operation.idempotent,
    precondition_failed: honorsIfMatch(endpoint, operation),
    not_acceptable: !endpoint.bytes && !endpoint.isStream,
    payload_too_large: method !== 'GET',
    unsupported_media_type: method !== 'GET',
    range_not_satisfiable: operation.content === 'gives',
    rate_limited: true,
    internal_error: true,
    unavailable: true,
  };
  const names = (Object.keys(errors) as ErrorName[]).filter(
    (name) => derived[name] === true || operation.errors.includes(name),
  );
  return access === 'feed' ? names.filter((name) => feedErrors.includes(name)) : names;
}

const honorsIfMatch = (endpoint: Endpoint, operation: Operation) =>
  operation.record !== null && operation.writes && !endpoint.isCreate;

/** Who may call the endpoint, in words. */
function access(endpoint: Endpoint, operation: Operation): string {
  const parts = {
    public: 'Public.',
    token: 'Public, with a one-time token.',
    feed: 'Public, with the token of a calendar feed.',
    refresh: 'Needs a refresh token, in X-Refresh-Token or as a cookie.',
    any: 'Needs a login, of a school user or an operator.',
    tenant: operation.permission
      ? `Needs the permission \`${operation.permission}\`${operation.allows_own_rows ? ', except for own data of students and teachers' : ''}.`
      : 'Needs a login of a school user.',
    platform: 'Needs an operator with the admin role.',
    analyst: 'Needs an operator, with any role.',
  };
  return [
    parts[operation.access],
    operation.role && `Needs the role \`${operation.role}\`.`,
    operation.feature && `Needs the feature \`${operation.feature}\`.`,
    operation.needs_setup && 'Needs a complete school setup.',
    operation.needs_subscription && 'Needs an active subscription.',
    honorsIfMatch(endpoint, operation) && 'Honors `If-Match`.',
    operation.idempotent && 'Honors `Idempotency-Key`.',
  ]
    .filter(Boolean)
    .join(' ');
}

function responses(endpoint: Endpoint, operation: Operation, path: string, method: string): ZodOpenApiResponsesObject {
  const byStatus = Map.groupBy(failures(endpoint, operation, path, method), (name) => String(errors[name].status));
  const answer = endpoint.answer ?? z.null();
  const givesFile = operation.content === 'gives';
  const about: Record<string, string> = {
    ...(endpoint.isCreate ? { Location: 'The path of the new record.' } : {}),
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
            'The same token as the cookie `refresh_token` (`__Host-refresh_token` with https), if the client asks for a cookie.',
        }
      : {}),
  };
  const headers = headersOf(about);
  const ok = endpoint.isStream
    ? {
        ...headers,
        description: 'Server-sent events, until the client disconnects.',
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
          description: endpoint.isCreate ? 'Created.' : 'Success.',
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
      ? { '200': { description: 'Dry run: nothing was created.', content: content(success(answer)) } }
      : {}),
    ...(givesFile
      ? {
          '206': {
            ...ok,
            ...headersOf({ ...about, 'Content-Range': '`bytes start-end/size`' }),
            description: 'The requested range of the file.',
          },
        }
      : {}),
    ...(method === 'GET' && (operation.record || givesFile || endpoint.isTagged)
      ? { '304': { description: 'The client already has this version (If-None-Match).' } }
      : {}),
    ...Object.fromEntries([...byStatus].map(([status, names]) => [status, failure(...names)])),
  };
}

/** The body, plus the read-only fields of the record: a client may send a record back as it read it. */
function withReadOnly(body: NonNullable<Endpoint['body']>, endpoint: Endpoint, method: string): z.ZodType {
  const names = readOnlyFields(endpoint, method);
  if (names.length === 0 || !(body instanceof z.ZodObject)) return body;
  const asRead = z.unknown().optional().meta({ readOnly: true, description: 'Leave out, or send back unchanged.' });
  return z
    .strictObject({ ...body.shape, ...Object.fromEntries(names.map((name) => [name, asRead])) })
    .meta({ ...body.meta() });
}

/** A JSON body, a form with a file, or either. */
function requestBody(endpoint: Endpoint, method: string): Pick<ZodOpenApiOperationObject, 'requestBody'> {
  const { body, upload } = endpoint;
  // A missing body is treated as an empty one.
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
      ? { 'X-Refresh-Token': z.string().optional().meta({ description: 'The refresh token, if there is no cookie.' }) }
      : {}),
    ...(operation.access === 'tenant'
      ? {
          'X-Tenant-ID': z
            .string()
            .regex(/^[1-9][0-9]*$/)
            .optional()
            .meta({ description: 'The school. Optional: the token names the school too, and both must match.' }),
        }
      : {}),
    ...(operation.content === 'gives'
      ? {
          Range: z
            .string()
            .optional()
            .meta({ description: 'One byte range of the file.', examples: ['bytes=0-1023'] }),
          'If-Range': z.string().optional().meta({
            description: 'The ETag that Range refers to. If the file has changed, the whole file is returned.',
          }),
        }
      : {}),
    ...(endpoint.isStream
      ? {
          'Last-Event-ID': z
            .string()
            .regex(/^[0-9]{1,15}$/)
            .optional()
            .meta({ description: 'The id of the last event that you received. The stream continues after it.' }),
        }
      : {}),
    ...(honorsIfMatch(endpoint, operation)
      ? {
          'If-Match': z.string().optional().meta({
            description: 'The ETag of the version that you read. If the record has changed since, the answer is 412.',
          }),
        }
      : {}),
    ...(operation.idempotent
      ? {
          'Idempotency-Key': z.string().max(255).optional().meta({
            description: 'Makes it safe to repeat the request: for 24 hours, a repeat gets the first answer.',
          }),
        }
      : {}),
  };
  return {
    operationId: endpoint.operationId ?? operation.name,
    tags: [section],
    summary: endpoint.summary,
    description: [endpoint.description, access(endpoint, operation)].filter(Boolean).join('\n\n'),
    security: isAnonymous(operation) ? [] : [{ bearer: [] }],
    requestParams: {
      ...(path.includes(':') ? { path: z.object(pathParameters(path, endpoint)) } : {}),
      ...(endpoint.query ? { query: endpoint.query } : {}),
      ...(Object.keys(headers).length > 0 ? { header: z.object(headers) } : {}),
      ...(operation.access === 'refresh'
        ? {
            cookie: z.object({
              refresh_token: z.string().optional().meta({
                description: 'Set by a login with refresh_cookie. With https its name is `__Host-refresh_token`.',
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
 * The OpenAPI 3.1 document, built from the route table, its schemas and `core.operation`.
 * @param publicUrl  the public address of the service
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
        summary: 'Whether the service is ready: database, migrations, worker',
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
      version: serviceInfo.version,
      description:
        'Every answer is `{success: true, data}` or `{success: false, error, message, details?, request_id}`; ' +
        'lists add `pagination`. Log in at `POST /api/auth/login`, send `Authorization: Bearer <access_token>`, ' +
        'and refresh the token within 15 minutes.',
      license: { name: 'MIT', url: 'https://opensource.org/license/mit' },
    },
    servers: [{ url: publicUrl }],
    tags: [
      { name: 'Health', description: 'Whether the service is alive and ready.' },
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
