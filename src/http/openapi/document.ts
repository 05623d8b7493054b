import { z } from 'zod';
import { createDocument, type ZodOpenApiOperationObject, type ZodOpenApiPathsObject } from 'zod-openapi';
import { type Endpoint, pathParameters, queryOf, type Resource } from '../endpoint.ts';
import { serviceInfo } from '../health.ts';
import { honorsIfMatch } from './errors.ts';
import { compactDocument } from './compact.ts';
import { addExamples, type JsonSchema } from './examples.ts';
import { requestBody, requestHeaders } from './requests.ts';
import { answersOnlyId, failureResponse, jsonContent, responses, successEnvelope } from './responses.ts';
import { isAnonymous, type Operation, takesApiKey } from '../operation.ts';
import { accessTokenSeconds } from '../credentials/tokens.ts';

const Health = z.object({ status: z.literal('ok'), service: z.string(), version: z.string() }).meta({ id: 'Health' });
const Ready = z
  .object({
    status: z.enum(['ready', 'degraded', 'not_ready']),
    reasons: z.array(z.enum(['database', 'migrations', 'worker', 'tenants_behind', 'writes'])).meta({
      description: 'What fails: `database` and `migrations` are not ready, the others degraded.',
    }),
    service: z.string(),
    version: z.string(),
    database: z.boolean(),
    migrations: z.boolean(),
    worker: z.boolean(),
    tenants_behind: z.int().nullable().meta({
      description: 'Schools whose tables are not migrated yet. Their requests get 503 until they are.',
    }),
    writes: z.boolean().meta({
      description:
        'false for a minute after the database could not write, for example because its disk is full, and while ' +
        'writes wait for a synchronous replica.',
    }),
  })
  .meta({ id: 'Ready' });

const Root = z
  .object({
    name: z.string(),
    version: z.string(),
    docs: z.string().meta({ description: 'The path of the documentation page.', examples: ['/api/docs/'] }),
    guide: z.string().meta({ description: 'The path of the guide.', examples: ['/api/guide/'] }),
    openapi: z.string().meta({ description: 'The path of this document.', examples: ['/api/openapi.json'] }),
  })
  .meta({ id: 'Root' });

/** The paths that have no operation. */
const fixedPaths: ZodOpenApiPathsObject = {
  '/api': {
    get: {
      operationId: 'root',
      tags: ['Health'],
      summary: 'Get name, version and the addresses of the documentation',
      description: 'A client that prefers HTML is redirected to the documentation page.',
      security: [],
      responses: {
        '200': { description: 'The service.', content: jsonContent(successEnvelope(Root)) },
        '302': { description: 'For browsers: the documentation page.' },
        '405': failureResponse('method_not_allowed'),
      },
    },
  },
  '/api/health': {
    get: {
      operationId: 'health',
      tags: ['Health'],
      summary: 'Whether the process is alive',
      description: 'Does not use the database. For liveness probes.',
      security: [],
      responses: {
        '200': { description: 'Alive.', content: jsonContent(successEnvelope(Health)) },
        '405': failureResponse('method_not_allowed'),
      },
    },
  },
  '/api/health/ready': {
    get: {
      operationId: 'health_ready',
      tags: ['Health'],
      summary: 'Whether the service is ready',
      description:
        'For readiness probes: 503 if the database cannot be read or its functions do not serve this release. ' +
        '200 with the status `degraded` and the reasons if no worker runs, schools wait for a migration or ' +
        'writes fail.',
      security: [],
      responses: {
        '200': { description: 'Ready.', content: jsonContent(successEnvelope(Ready)) },
        '405': failureResponse('method_not_allowed'),
        '503': {
          description: 'Not ready.',
          content: jsonContent(
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

/** The users whom an operation admits without its permission, and what they see. API keys need the permission. */
const openTo = {
  staff: (permission: string) =>
    `Needs a login of a school user with any role but student, or the permission \`${permission}\`.`,
  everyone: (permission: string) =>
    `Needs a login of a school user. Without the permission \`${permission}\`, it returns only the user's own rows.`,
  everyone_staff_all: (permission: string) =>
    `Needs a login of a school user. Students without the permission \`${permission}\` get only their own rows.`,
};

/** The callers that the endpoint admits, in words. */
function describeAccess(endpoint: Endpoint, operation: Operation, reader: Operation | undefined): string {
  const ownRows = operation.allows_own_rows ? ', except for own data of students and teachers' : '';
  const parts = {
    public: 'Public.',
    token: 'Public, with a one-time token.',
    feed: 'Public, with the token of a calendar feed.',
    picture: 'Public, with a signed address.',
    refresh: 'Needs a refresh token, in X-Refresh-Token or as a cookie.',
    any: 'Needs a login, of a school user or an operator.',
    tenant: operation.permission
      ? operation.open_to
        ? openTo[operation.open_to](operation.permission)
        : `Needs the permission \`${operation.permission}\`${ownRows}.`
      : 'Needs a login of a school user.',
    platform: 'Needs an operator with the admin role.',
    analyst: 'Needs an operator, with any role.',
  };
  return [
    parts[operation.access],
    reader?.permission &&
      !answersOnlyId(endpoint) &&
      `The answer is only the \`id\` without the permission \`${reader.permission}\` to read the record.`,
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

/** One operation of the document. */
function describe(
  endpoint: Endpoint,
  operation: Operation,
  reader: Operation | undefined,
  section: string,
  path: string,
  method: string,
): ZodOpenApiOperationObject {
  const query = queryOf(endpoint);
  return {
    operationId: endpoint.operationId ?? operation.name,
    tags: [section],
    summary: endpoint.summary,
    description: [endpoint.description, describeAccess(endpoint, operation, reader)].filter(Boolean).join('\n\n'),
    security: isAnonymous(operation) ? [] : [{ bearer: [] }, ...(takesApiKey(operation) ? [{ apiKey: [] }] : [])],
    requestParams: {
      ...(path.includes(':') ? { path: z.object(pathParameters(path, endpoint)) } : {}),
      ...(query ? { query } : {}),
      ...requestHeaders(endpoint, operation),
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
    ...(endpoint.operationId ? { 'x-operation': operation.name } : {}),
    ...(operation.permission ? { 'x-permission': operation.permission } : {}),
  };
}

/**
 * Removes keywords that say nothing new. `format` says the same as the pattern of a date, which has 300 characters,
 * the bounds of every integer are those of a JavaScript number, and every text has at least no character.
 */
function withoutRedundantKeywords({
  jsonSchema,
}: {
  jsonSchema: Pick<JsonSchema, 'format' | 'pattern' | 'minimum' | 'maximum' | 'minLength'>;
}): void {
  if (['date', 'date-time', 'email'].includes(jsonSchema.format ?? '')) delete jsonSchema.pattern;
  if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
  if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
  if (jsonSchema.minLength === 0) delete jsonSchema.minLength;
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
  const paths: ZodOpenApiPathsObject = { ...fixedPaths };
  for (const { path: base, section, endpoints } of resources) {
    for (const { method, path, endpoint } of endpoints) {
      const operation = operations.get(endpoint.operation);
      if (!operation) throw new Error(`There is no operation ${endpoint.operation}`);
      const full = `/api${base}${path === '/' ? '' : path}`.replace(/:(\w+)/g, '{$1}');
      const reader = operations.get(operation.reader ?? '');
      paths[full] = {
        ...paths[full],
        [method.toLowerCase()]: describe(endpoint, operation, reader, section, path, method),
      };
    }
  }
  const document = createDocument(
    {
      openapi: '3.1.1',
      info: {
        title: 'School management service',
        version: serviceInfo.version,
        description:
          'Every answer is `{success: true, data}` or `{success: false, error, message, details?, request_id}`; ' +
          'lists add `pagination`. Log in at `POST /api/auth/login`, send `Authorization: Bearer <access_token>`, ' +
          `and refresh the token within ${String(accessTokenSeconds / 60)} minutes.\n\n` +
          'Requests may be less strict than the schemas. Numbers and booleans may be text (`"12"`, `"true"`). In an ' +
          'optional field, an empty string means null. If the field cannot be null, null means that the field is ' +
          'absent, and so does an empty string, except in updates, where that is a 400. ' +
          'The values of a list of words (`enum`) are recognized regardless of case, spaces, `-` and `_`. ' +
          'A timestamp is accepted as a date: at exactly 00:00 in its own offset, or without one, its date part ' +
          'is used. Any other moment is its day in the time zone of the school. A time of day may have seconds, ' +
          'which are dropped. A `day_of_week` of 0 is Sunday, like 7. Flags in a query are `true`, `false`, `1` or ' +
          '`0`. An update may send the whole record as it was read. Of fields that are `readOnly`, ids, timestamps, ' +
          'statuses and other values that only the service sets must be unchanged, and derived values such as names ' +
          'and counts are ignored. An update that changes nothing answers 200 in every state and leaves no trace. A ' +
          'create may have the fields that the service sets, with the values that the new record will have. ' +
          'Responses always follow the schemas, with timestamps in UTC.',
        // The address of the operator is not known.
        contact: { name: 'The operator of this service' },
        license: { name: 'MIT', url: 'https://opensource.org/license/mit' },
      },
      servers: [{ url: publicUrl }],
      tags: [
        ...resources.map(({ section, about }) => ({ name: section, description: about })),
        { name: 'Health', description: 'Whether the service is alive and ready.' },
      ],
      components: {
        securitySchemes: {
          bearer: {
            type: 'http',
            scheme: 'bearer',
            bearerFormat: 'JWT',
            description: 'The access token of `POST /api/auth/login`.',
          },
          apiKey: {
            type: 'http',
            scheme: 'bearer',
            bearerFormat: 'sk_<school>_<random>',
            description:
              'An API key of `POST /api/api-keys`, for programs. It needs the permission of the operation. Operators ' +
              'have keys of `POST /api/platform/api-keys`. Operations without this scheme refuse keys.',
          },
        },
      },
      paths,
    },
    { override: withoutRedundantKeywords },
  );
  addExamples(document);
  return compactDocument(document);
}

/** The latest document. Building one takes hundreds of milliseconds, and tests start many services in a process. */
let latest: { resources: readonly Resource[]; operations: string; document: object } | undefined;

/** The document, without the address of the service. */
export function latestDocument(resources: readonly Resource[], operations: ReadonlyMap<string, Operation>): object {
  const key = JSON.stringify([...operations.values()]);
  if (latest?.resources !== resources || latest.operations !== key)
    latest = { resources, operations: key, document: openapiDocument(resources, operations) };
  return latest.document;
}

/** The document as JSON. */
export function openapiText(
  resources: readonly Resource[],
  operations: ReadonlyMap<string, Operation>,
  publicUrl = '/',
): string {
  // Only the address differs between services with the same operations.
  return JSON.stringify({ ...latestDocument(resources, operations), servers: [{ url: publicUrl }] });
}
