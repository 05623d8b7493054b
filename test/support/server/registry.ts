import type { Endpoint } from '../../../src/http/endpoint.ts';
import type { JsonSchema } from '../../../src/http/openapi/examples.ts';
import type { Operation } from '../../../src/http/operation.ts';
import { type Sent, send } from '../client/wire.ts';
import type { TestService } from './service.ts';

const { resources } = shared;

/** A JSON schema of the OpenAPI document. */
export type Schema = JsonSchema;

interface Parameter {
  in: 'path' | 'query' | 'header';
  name: string;
  required?: boolean;
  schema: Schema;
}

/** An operation of the OpenAPI document. */
export interface Documented {
  operationId: string;
  summary?: string;
  description?: string;
  security: unknown[];
  parameters?: Parameter[];
  requestBody?: { required?: boolean; content: Record<string, { schema: Schema }> };
  responses: Record<string, { 'x-errors'?: string[]; content?: Record<string, { schema: Schema }> }>;
  'x-operation'?: string;
  'x-permission'?: string;
}

/** An OpenAPI document. */
export interface OpenApi {
  paths: Record<string, Record<string, Documented>>;
  components: { schemas: Record<string, Schema> };
}

/** One endpoint: its route, its row in `core.operation` and its part of the OpenAPI document. */
export interface Registered {
  /** `GET /api/students/{id}` */
  name: string;
  method: string;
  path: string;
  route: Endpoint;
  operation: Operation;
  documented: Documented;
  /** The schema of its JSON body. */
  body: Schema | undefined;
  /** The names of its path parameters. */
  parameters: string[];
  /** The query parameters. */
  query: Parameter[];
}

/** The document with the responses and parameters that operations share copied into each of them. */
function withoutSharedParts(text: string): OpenApi {
  const { components } = JSON.parse(text) as { components: Record<string, Record<string, unknown>> };
  return JSON.parse(text, (_key, value: { $ref?: string } | null) => {
    const [, kind, name] = /^#\/components\/(responses|parameters)\/(.+)$/.exec(value?.$ref ?? '') ?? [];
    return kind && name ? components[kind]?.[name] : value;
  }) as OpenApi;
}

/** Every endpoint of a running service, and its document. @throws when route table, document and registry disagree */
export async function registry(
  service: TestService,
): Promise<{ endpoints: Registered[]; document: OpenApi; operations: Operation[] }> {
  const document = withoutSharedParts((await send(service.url, { path: '/api/openapi.json' })).text);
  const operations = await service.database.query<Operation & Record<string, unknown>>(
    'select * from core.operation order by name',
  );
  const endpoints = resources.flatMap(({ path: base, endpoints: routes }) =>
    routes.map(({ method, path: below, endpoint: route }): Registered => {
      const path = `/api${base}${below === '/' ? '' : below}`.replace(/:(\w+)/g, '{$1}');
      const documented = document.paths[path]?.[method.toLowerCase()];
      const operation = operations.find(({ name }) => name === route.operation);
      if (!documented || !operation)
        throw new Error(`${method} ${path} is not in the document, or has no row in core.operation`);
      return {
        name: `${method} ${path}`,
        method,
        path,
        route,
        operation,
        documented,
        body: documented.requestBody?.content['application/json']?.schema,
        parameters: [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name),
        query: (documented.parameters ?? []).filter((parameter) => parameter.in === 'query'),
      };
    }),
  );
  return { endpoints, document, operations };
}

/** Endpoints that work without an access token. */
export const isAnonymous = ({ operation }: Registered) =>
  ['public', 'token', 'feed', 'picture', 'refresh'].includes(operation.access);

/** Endpoints for users of schools. */
export const isForOperators = ({ operation }: Pick<Registered, 'operation'>) =>
  ['platform', 'analyst'].includes(operation.access);
export const isForSchools = ({ operation }: Registered) => ['tenant', 'any'].includes(operation.access);

const thisYear = new Date().getUTCFullYear();
const today = new Date().toISOString().slice(0, 10);

/**
 * Body fields that a schema cannot express, by operation: rules between fields, or values that depend on the date. They
 * override the sample.
 */
const fixedBodies: Record<string, Record<string, unknown> | ((id: number) => Record<string, unknown>)> = {
  // In the academic year of School.classroom.
  teachers_leaves_create: { start_date: `${thisYear}-09-01`, end_date: `${thisYear}-09-01` },
  // Today may be marked, unless it is a holiday.
  attendance_mark: { date: today },
  holidays_create: { date: `${thisYear}-${today.endsWith('-12-31') ? '01-01' : '12-31'}` },
  // A term within the year of School.classroom, and other years outside it.
  academic_terms_create: { start_date: `${thisYear}-03-01`, end_date: `${thisYear}-06-30` },
  academics_years_create: { start_date: '2030-08-01', end_date: '2031-07-31' },
  school_setup_academic_year: { start_date: '2032-08-01', end_date: '2033-07-31' },
  // Needed for billing.
  fee_structures_create: { components: [{ name: 'Tuition', amount: 100, frequency: 'annual' }] },
  // Either an amount or a percentage.
  student_fees_discounts_create: { percent: 10 },
  // The plan of the test schools, so that no feature is lost.
  subscription_upgrade: { plan_id: 3 },
  // Required unless `plan` is given.
  platform_tenants_create: { plan_id: 3 },
  // Short, for a fast test.
  timetable_generate: { time_limit_seconds: 1 },
  schedule_feeds_create: (id) => ({ kind: 'class', class_id: id, teacher_id: null }),
  notifications_send: { all: true, title: 'Sample', message: 'Of a test' },
  // An event of the catalog; the texts use no placeholders.
  platform_notification_templates_create: { key: 'holiday.added' },
  platform_notification_templates_preview: { key: 'holiday.added' },
  // Needs a bus and a driver that are not used by another route. A plan is by route or by distance.
  transport_exceptions_create: (id) => ({ kind: 'replaced', bus_id: id, driver_id: id }),
  transport_fee_plans_create: { min_km: null, max_km: null },
  // In the academic year of School.classroom, and in the year of the plan that `populate` creates.
  transport_fee_plans_generate: { date: `${thisYear}-09-01` },
  // The worker sends nothing to a disabled webhook, and so changes no table in the background.
  webhooks_create: { is_active: false },
  webhooks_update: { is_active: false },
  platform_webhooks_create: { is_active: false },
  platform_webhooks_update: { is_active: false },
  api_keys_create: { permissions: ['student.read'] },
  api_keys_update: { permissions: ['student.read'] },
};

/** Query parameters that a schema cannot express, by operation. */
const fixedQueries: Record<string, (id: number) => Record<string, number | string>> = {
  timetable_print: (id) => ({ class_id: id }),
  transport_schedules_list: () => ({ from_date: `${thisYear}-06-01`, to_date: `${thisYear}-06-30` }),
};

/** Fields to change together with a reference field, by operation and field. */
const companionFields: Record<string, Record<string, Record<string, unknown>>> = {
  schedule_feeds_create: { teacher_id: { kind: 'teacher', class_id: null } },
  notifications_send: {
    user_ids: { all: undefined },
    role_ids: { all: undefined },
    template_id: { title: undefined, message: undefined },
  },
};

let serial = 0;

/** How to create samples. */
export interface SampleOptions {
  /** The value of every record id. */
  id: number;
  /** Part of every text, so that it can be found. */
  marker?: string;
  /** Include optional id fields. */
  withReferences?: boolean;
}

const isReference = (name: string) => /_ids?$/.test(name);

/** Resolves references, and takes the first alternative that is not null. */
export function plain(document: OpenApi, schema: Schema): Schema {
  if (schema.$ref) return plain(document, document.components.schemas[schema.$ref.split('/').at(-1) ?? ''] ?? {});
  const alternative = (schema.anyOf ?? schema.oneOf)?.find(({ type }) => type !== 'null');
  if (alternative && !schema.properties) return plain(document, alternative);
  if (schema.allOf) {
    const parts = schema.allOf.map((part) => plain(document, part));
    return parts.reduce(
      (all, part) => ({ ...all, ...part, properties: { ...all.properties, ...part.properties } }),
      {},
    );
  }
  return schema;
}

/** A valid value for a schema, unique if possible. */
function sample(document: OpenApi, given: Schema, name: string, options: SampleOptions): unknown {
  const schema = plain(document, given);
  const type = Array.isArray(schema.type) ? schema.type.find((one) => one !== 'null') : schema.type;
  const example = schema.examples?.[0];
  if (schema.const !== undefined) return schema.const;
  if (schema.enum) return schema.enum[0];
  if (schema.properties) {
    const wanted = Object.entries(schema.properties).filter(
      ([key]) => schema.required?.includes(key) === true || (options.withReferences === true && isReference(key)),
    );
    return Object.fromEntries(wanted.map(([key, value]) => [key, sample(document, value, key, options)]));
  }
  switch (type) {
    case 'integer':
    case 'number':
      // Permissions and plans are the same for every school.
      if (/^(permission_ids?|plan_id)$/.test(name)) return 1;
      if (isReference(name)) return options.id;
      return typeof example === 'number' ? example : (schema.minimum ?? 1);
    case 'boolean':
      return example ?? false;
    case 'array':
      return schema.items ? [sample(document, schema.items, name, options)] : [];
    case 'string': {
      const n = ++serial;
      if (schema.format === 'email') return `${options.marker ?? 'sample'}${n}@school.example`;
      if (schema.format !== undefined && typeof example === 'string') return example;
      const text = `${typeof example === 'string' ? example : name}${options.marker ?? ''}${n}`;
      const fits =
        text.length <= (schema.maxLength ?? Infinity) && (!schema.pattern || new RegExp(schema.pattern).test(text));
      return fits || typeof example !== 'string' ? text : example;
    }
    default:
      return {};
  }
}

/** Whether the JSON body of an endpoint is a list. */
export const takesList = (document: OpenApi, { body }: Registered) =>
  body !== undefined && plain(document, body).type === 'array';

/** A JSON body. */
type Body = Record<string, unknown> | unknown[];

/** A valid body for an endpoint. */
export function sampleBody(
  document: OpenApi,
  { body, operation }: Registered,
  options: SampleOptions,
): Body | undefined {
  const sampled = body && (sample(document, body, '', options) as Body);
  const over = fixedBodies[operation.name];
  return sampled && !Array.isArray(sampled)
    ? { ...sampled, ...(typeof over === 'function' ? over(options.id) : over) }
    : sampled;
}

/** The path of an endpoint with its ids, and the required query parameters. */
export function samplePath(
  document: OpenApi,
  { path, query, operation }: Registered,
  options: SampleOptions,
  parameters: Record<string, number | string> = {},
): string {
  const required = query
    .filter((parameter) => parameter.required)
    .map(({ name, schema }): [string, string] => [name, String(sample(document, schema, name, options))]);
  const fixedParameters = Object.entries(fixedQueries[operation.name]?.(options.id) ?? {}).map(
    ([name, value]): [string, string] => [name, String(value)],
  );
  const search = new URLSearchParams([...required, ...fixedParameters]).toString();
  return (
    path.replace(/\{(\w+)\}/g, (_, name: string) =>
      String(parameters[name] ?? (name === 'key' ? 'attendance.absent' : options.id)),
    ) + (search && `?${search}`)
  );
}

/** The smallest picture. */
export const pixel = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);

/** A small valid file for an endpoint: content and name. */
export const sampleFile = (types: readonly string[]): [Buffer, string] =>
  types.includes('text/csv') ? [Buffer.from('first_name,last_name\nSample,Person\n'), 'file.csv'] : [pixel, 'file.png'];

/** A multipart body with one file and other fields, and its type. */
export function multipart(
  field: string,
  content: Buffer,
  name = 'file.png',
  fields: Record<string, string> = {},
): { body: Buffer; headers: Record<string, string> } {
  const boundary = 'boundary-of-the-tests';
  const texts = Object.entries(fields).map(
    ([key, value]) => `--${boundary}\r\nContent-Disposition: form-data; name="${key}"\r\n\r\n${value}\r\n`,
  );
  const head = `--${boundary}\r\nContent-Disposition: form-data; name="${field}"; filename="${name}"\r\nContent-Type: image/png\r\n\r\n`;
  return {
    body: Buffer.concat([Buffer.from(texts.join('') + head), content, Buffer.from(`\r\n--${boundary}--\r\n`)]),
    headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
  };
}

/** The required form fields besides the file. */
function sampleFields(
  document: OpenApi,
  { documented, route }: Registered,
  options: SampleOptions,
): Record<string, string> {
  const form = documented.requestBody?.content['multipart/form-data']?.schema;
  const fields = form ? (sample(document, form, '', options) as Record<string, unknown>) : {};
  return Object.fromEntries(
    Object.entries(fields).flatMap(([name, value]) =>
      route.upload?.fields.includes(name) ? [] : [[name, String(value)] as [string, string]],
    ),
  );
}

/** A valid request for an endpoint: path, query and body. */
export function sampleRequest(
  document: OpenApi,
  endpoint: Registered,
  options: SampleOptions,
  over: { parameters?: Record<string, number | string>; body?: Body } = {},
): Sent {
  const { upload } = endpoint.route;
  const sentBody = sampleBody(document, endpoint, options);
  const body =
    sentBody &&
    (Array.isArray(over.body) ? over.body : Array.isArray(sentBody) ? sentBody : { ...sentBody, ...over.body });
  return {
    method: endpoint.method,
    path: samplePath(document, endpoint, options, over.parameters),
    ...(upload
      ? multipart(upload.fields[0] ?? 'file', ...sampleFile(upload.types), sampleFields(document, endpoint, options))
      : body
        ? { body }
        : {}),
  };
}

/** The body fields with ids of records of the school, each with a function that sets another id. */
export function references(
  document: OpenApi,
  { body, operation }: Registered,
): { field: string; put: (id: number) => Body }[] {
  if (!body) return [];
  const found: { field: string; put: (id: number) => Body }[] = [];
  const { items: each } = plain(document, body);
  for (const field of Object.keys(each ? (plain(document, each).properties ?? {}) : {}).filter(isReference)) {
    found.push({
      field: `0.${field}`,
      put: (id) => [{ ...(sample(document, each ?? {}, '', { id }) as object), [field]: id }],
    });
  }
  for (const [field, given] of Object.entries(plain(document, body).properties ?? {})) {
    const schema = plain(document, given);
    const items = schema.type === 'array' && schema.items ? plain(document, schema.items) : undefined;
    const isInteger = (one: Schema | undefined) => one?.type === 'integer' || one?.type === 'number';
    if (/^(permission_ids?|plan_id)$/.test(field)) continue;
    if (isReference(field) && isInteger(schema))
      found.push({ field, put: (id) => ({ [field]: id, ...companionFields[operation.name]?.[field] }) });
    else if (isReference(field) && isInteger(items))
      found.push({ field, put: (id) => ({ [field]: [id], ...companionFields[operation.name]?.[field] }) });
    else if (items?.properties) {
      for (const [inner, innerSchema] of Object.entries(items.properties)) {
        if (isReference(inner) && isInteger(plain(document, innerSchema))) {
          found.push({
            field: `${field}.0.${inner}`,
            put: (id) => ({
              [field]: [{ ...(sample(document, items, field, { id, withReferences: false }) as object), [inner]: id }],
            }),
          });
        }
      }
    }
  }
  return found;
}

/** Checks endpoints one by one. Returns a line for each error that `check` reports. */
export async function findErrors(
  endpoints: readonly Registered[],
  check: (endpoint: Registered) => Promise<string | undefined>,
): Promise<string[]> {
  const lines: string[] = [];
  for (const endpoint of endpoints) {
    const fault = await check(endpoint);
    if (fault) lines.push(`${endpoint.name} ${fault}`);
  }
  return lines;
}

/** The rows of a page. */
export function rowsOf({ route: { response } }: Registered, data: unknown): Record<string, unknown>[] | undefined {
  const field = response.kind === 'page' ? response.field : undefined;
  return (field === undefined ? data : (data as Record<string, unknown> | undefined)?.[field]) as
    Record<string, unknown>[] | undefined;
}
