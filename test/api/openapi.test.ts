import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { createConfig, lintFromString } from '@redocly/openapi-core';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { lintRules } from '../../src/cli/openapi.ts';
import { errors } from '../../src/domain/errors.ts';
import { exampleOf } from '../../src/http/openapi/examples.ts';
import { answersJson } from '../../src/http/endpoint.ts';
import { isAnonymous, type OpenApi, plain, registry, type Schema } from '../support/server/registry.ts';
import { serviceOfFile } from '../support/server/service.ts';
import { send } from '../support/client/wire.ts';

const service = await serviceOfFile();
const { endpoints, document, operations } = await registry(service);
const { text } = await send(service.url, { path: '/api/openapi.json' });

/** Operations without a route: handlers and /graphql call them. */
const internal = [
  'analytics_admit',
  'auth_own_credentials',
  'auth_reset_credentials',
  'auth_second_factor_open',
  'auth_session_open',
  'auth_two_factor_attempt',
  'platform_audit_logs_export_page',
  'platform_tenants_export_page',
  'schedule_feeds_create_own',
  'timetable_generate_end',
  'timetable_generate_renew',
  'timetable_generate_save',
];

/** Every function of the schema `api` that looks like an operation: (jsonb) → json. */
const functions = await service.database.query<{ name: string; volatility: 'i' | 's' | 'v'; definer: boolean }>(
  `select proname as name, provolatile as volatility, prosecdef as definer from pg_proc
   where pronamespace = 'api'::regnamespace and proargtypes::text = 'jsonb'::regtype::oid::text and prorettype = 'json'::regtype and not proretset order by 1`,
);

/** Every operation of the document. */
const documented = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ name: `${method.toUpperCase()} ${path}`, operation })),
);

const names = (rows: { name: string }[]) => rows.map(({ name }) => name).sort();

describe('routes, operations and functions', () => {
  test('every operation has a route, except for those that only handlers call', () => {
    const routed = new Set(endpoints.map(({ operation }) => operation.name));
    expect(names(operations.filter(({ name }) => !routed.has(name)))).toEqual(internal);
  });

  test('every operation has its function api.<operation>(jsonb) returns json; every such function is an operation, or what one compares', async () => {
    expect(operations.length).toBeGreaterThan(40);
    const compared = await service.database.query<{ name: string }>(
      "select distinct present as name from core.operation where present not in ('none', 'record', 'itself')",
    );
    const all = new Set([...names(operations), ...names(compared)]);
    expect(names(functions)).toEqual([...all].sort());
  });

  test('an operation has one route, except for email verification, which has a link and a form', () => {
    const routes = Map.groupBy(endpoints, ({ operation }) => operation.name);
    const several = [...routes]
      .filter(([, same]) => same.length > 1)
      .map(([operation, same]) => [operation, same.map(({ name }) => name)]);
    expect(several).toEqual([['auth_email_verify', ['GET /api/auth/email/verify', 'POST /api/auth/email/verify']]]);
  });

  test('an operation writes if its function is volatile, and reads if it is stable', () => {
    const volatilities = new Map(functions.map(({ name, volatility }) => [name, volatility]));
    expect(names(operations.filter(({ name, writes }) => volatilities.get(name) !== (writes ? 'v' : 's')))).toEqual([]);
  });

  test('a POST, PUT, PATCH or DELETE writes, except for checks, previews and stream tokens', () => {
    const reads = endpoints.filter(({ method, operation }) => method !== 'GET' && !operation.writes);
    expect(names(reads.map(({ operation }) => operation))).toEqual([
      'notifications_stream_token',
      'platform_notification_templates_preview',
      'students_promotion_preview',
      'timetable_check_conflicts',
    ]);
  });

  /** Errors of functions that an operation calls with parameters with which they cannot raise them. */
  const unreachable = [
    'students_delete plan_limit_reached',
    'teachers_delete plan_limit_reached',
    'classes_delete plan_limit_reached',
    'fee_structures_create in_use',
    'transport_fee_plans_create in_use',
    // Its handler answers not_found.
    'calendar_get invalid_state',
  ];

  test('every error that an operation can raise, itself or in a function of api that it calls, is documented', async () => {
    const raised = await service.database.query<{ name: string; error: string }>(
      `with recursive body as materialized (
         select proname::text as name, coalesce(pg_get_function_sqlbody(oid), prosrc) as text from pg_proc where pronamespace = 'api'::regnamespace
       ), call as (
         select distinct b.name, found[1] collate "C" as callee from body b, regexp_matches(b.text, '\\mapi\\.(\\w+)\\(', 'g') found
       ), reached as (
         select name as operation, name collate "C" as name from core.operation
         union
         -- A record reader raises not_found for an unknown id; here the id is that of a row just written, or in the path.
         select r.operation, c.callee from reached r join call c on c.name = r.name where c.callee not like '%\\_record'
       )
       select distinct r.operation as name, found[1] as error
       from reached r
       join body b on b.name = r.name, regexp_matches(b.text, 'core\\.(?:fail|refuse_field)\\(''(\\w+)''', 'g') found
       order by 1, 2`,
    );
    const undocumented = endpoints.flatMap(({ name, operation, documented }) => {
      const known = Object.values(documented.responses).flatMap((response) => response['x-errors'] ?? []);
      return raised
        .filter((one) => one.name === operation.name && !known.includes(one.error))
        .filter((one) => !unreachable.includes(`${one.name} ${one.error}`))
        .map(({ error }) => `${name} ${error}`);
    });
    expect(raised.length).toBeGreaterThan(200);
    expect(undocumented).toEqual([]);
  });

  test('an operation declares only errors that the registry has, each once', async () => {
    expect(names(operations.filter(({ errors: declared }) => new Set(declared).size < declared.length))).toEqual([]);
    await expect(
      service.database.query("select core.define_operation('probe', p_errors => '{conflict,no_such_error}')"),
    ).rejects.toThrow(/^The operation probe declares errors that .* does not define: no_such_error\.$/);
  });

  test('an operation cannot need a permission or a role that does not exist', async () => {
    for (const [parameter, name] of [
      ['p_permission', 'student.raed'],
      ['p_role', 'studnet'],
    ] as const)
      await expect(
        service.database.query(`select core.define_operation('probe', ${parameter} => '${name}')`),
      ).rejects.toThrow(
        `The operation probe needs the ${parameter.slice(2)} ${name}, which db/seed/permissions.sql does not define.`,
      );
  });

  test('no function of the schema api is security definer, so each runs with the rights of the request role', async () => {
    const definers = await service.database.query(
      "select proname from pg_proc where pronamespace = 'api'::regnamespace and prosecdef",
    );
    expect(definers).toEqual([]);
  });

  test('a GET only reads, except for the email verification link and the audited exports', () => {
    const odd = endpoints.filter(({ method, operation }) => method === 'GET' && operation.writes);
    expect(odd.map(({ name }) => name)).toEqual([
      'GET /api/auth/email/verify',
      'GET /api/platform/tenants/export',
      'GET /api/platform/audit-logs/export',
    ]);
  });

  test('every permission, role and feature that an operation needs exists', async () => {
    const [known] = await service.database.query<{ permissions: string[]; roles: string[]; features: string[] }>(
      `select (select array_agg(name) from core.permission) as permissions, (select array_agg(name) from core.default_role) as roles,
              (select array_agg(distinct f) from platform.plan, unnest(features) f) as features`,
    );
    const { permissions, roles, features } = known ?? { permissions: [], roles: [], features: [] };
    const missing = operations.filter(
      ({ permission, role, feature }) =>
        (permission !== null && !permissions.includes(permission)) ||
        (role !== null && !roles.includes(role)) ||
        (feature !== null && !features.includes(feature)),
    );
    expect([permissions.length, roles.length, features.length].every((count) => count > 4)).toBe(true);
    expect(names(missing)).toEqual([]);
  });

  test('the default roles give only existing permissions', async () => {
    const unknown = await service.database.query(
      'select d.name, p from core.default_role d, unnest(d.permissions) p where not exists (select from core.permission c where c.name = p)',
    );
    expect(unknown).toEqual([]);
  });

  test('only operations of schools and feeds have permissions, roles, features and preconditions, which are checked only there', () => {
    const elsewhere = operations.filter(({ access }) => access !== 'tenant' && access !== 'feed');
    const odd = elsewhere.filter(
      (one) =>
        one.permission !== null ||
        one.role !== null ||
        one.feature !== null ||
        one.needs_setup ||
        one.needs_subscription,
    );
    expect(names(odd)).toEqual([]);
  });

  test('an operation has a version (ETag, If-Match) only if its path has the id of a record, or the record is single', async () => {
    const records = await service.database.query<{ name: string; is_single: boolean }>(
      'select name, is_single from core.record',
    );
    const withRecord = endpoints.filter(({ operation }) => operation.record !== null);
    const odd = withRecord.filter(({ operation, parameters, route }) => {
      const record = records.find(({ name }) => name === operation.record);
      return (
        !record ||
        (record.is_single
          ? parameters.includes('id') || route.response.kind === 'created'
          : !parameters.includes('id') && route.response.kind !== 'created')
      );
    });
    expect(withRecord.length).toBeGreaterThan(5);
    expect(odd.map(({ name }) => name)).toEqual([]);
  });

  test('Idempotency-Key is honored by every create, and by no read or anonymous operation', () => {
    const creates = endpoints
      .filter(({ route }) => route.response.kind === 'created')
      .map(({ operation }) => operation);
    expect(names(creates.filter(({ idempotent }) => !idempotent))).toEqual([]);
    expect(
      names(
        operations.filter(
          ({ idempotent, writes, access }) =>
            idempotent && !(writes && ['tenant', 'platform', 'analyst', 'any'].includes(access)),
        ),
      ),
    ).toEqual([]);
  });

  test('each resource has one name in db/api, src/endpoints and test/api', async () => {
    const root = join(import.meta.dirname, '../..');
    const resources = async (folder: string, ending: string) =>
      (await readdir(join(root, folder)))
        .filter((name) => name.endsWith(ending))
        .map((name) => name.slice(0, -ending.length));
    // /graphql is not a resource.
    // The files import-… are parts of imports.
    const inSql = (await resources('db/api', '.sql')).filter((name) => !/^(analytics$|import-)/.test(name));
    const inEndpoints = (await resources('src/endpoints', '.ts')).filter((name) => name !== 'index');
    const inTests = await resources('test/api', '.test.ts');
    expect(inSql.sort()).toEqual(inEndpoints.sort());
    expect(inSql.filter((name) => !inTests.includes(name))).toEqual([]);
  });
});

describe('the document', () => {
  test('is served without a token as OpenAPI 3.1', async () => {
    const answer = await send(service.url, { path: '/api/openapi.json' });
    expect(answer.headers['content-type']).toBe('application/json; charset=utf-8');
    expect(JSON.parse(answer.text)).toMatchObject({ openapi: '3.1.1', servers: [{ url: service.url }] });
  });

  test('has less than 3,200 bytes per operation, 260 compressed, and is not sent again to a client that has it', async () => {
    const get = (headers: Record<string, string>) => fetch(`${service.url}/api/openapi.json`, { headers });
    const length = (answer: Response) => Number(answer.headers.get('content-length'));
    const full = await get({ 'Accept-Encoding': 'identity' });
    const text = await full.text();
    expect(length(full) / documented.length).toBeLessThan(3_200);
    for (const encoding of ['br', 'gzip']) {
      const compressed = await get({ 'Accept-Encoding': encoding });
      expect(compressed.headers.get('content-encoding')).toBe(encoding);
      expect(length(compressed) / documented.length).toBeLessThan(260);
      expect(await compressed.text()).toBe(text);
      const again = await get({ 'Accept-Encoding': encoding, 'If-None-Match': compressed.headers.get('etag') ?? '' });
      expect([again.status, await again.text()]).toEqual([304, '']);
    }
  });

  test('describes every route and no other, besides health', () => {
    const known = [...endpoints.map(({ name }) => name), 'GET /api', 'GET /api/health', 'GET /api/health/ready'];
    expect(documented.map(({ name }) => name).sort()).toEqual(known.sort());
  });

  test('passes the strict rules of Redocly without an error or a warning', async () => {
    const config = await createConfig(lintRules);
    const problems = await lintFromString({ source: text, config });
    expect(
      problems.map(
        ({ ruleId, severity, message, location }) => `${severity} ${ruleId} ${location[0]?.pointer ?? ''} ${message}`,
      ),
    ).toEqual([]);
  });

  test('the linter finds a path parameter without a description', async () => {
    const config = await createConfig(lintRules);
    const broken = JSON.parse(text) as OpenApi;
    const operation = broken.paths['/api/students/{id}']?.['get'];
    if (operation) operation.parameters = [];
    const problems = await lintFromString({ source: JSON.stringify(broken), config });
    expect(problems.map(({ ruleId, severity }) => `${severity} ${ruleId}`)).toEqual(['error path-parameters-defined']);
  });

  test('names the data of every answer, and every object of four or more fields that occurs twice', () => {
    const odd = documented.flatMap(({ name, operation }) =>
      Object.entries(operation.responses).flatMap(([status, { content }]) => {
        const data = content?.['application/json']?.schema.properties?.['data'];
        return (data?.items ?? data)?.properties ? [`${name} ${status}`] : [];
      }),
    );
    expect(odd).toEqual([]);
    const anonymous = new Map<string, string[]>();
    const collect = (value: unknown, place: string, isNamed = false): void => {
      if (typeof value !== 'object' || value === null) return;
      const { type, properties } = value as Schema;
      if (!isNamed && type === 'object' && properties && Object.keys(properties).length >= 4) {
        const text = JSON.stringify(value);
        anonymous.set(text, [...(anonymous.get(text) ?? []), place]);
      }
      for (const [key, inner] of Object.entries(value)) collect(inner, `${place}.${key}`);
    };
    for (const [name, schema] of Object.entries(document.components.schemas)) collect(schema, name, true);
    expect([...anonymous.values()].filter((places) => places.length > 1)).toEqual([]);
  });

  test('describes every operation in more words than its summary, and has a contact', () => {
    const odd = documented.filter(({ operation: { summary, description } }) => !summary || !description);
    expect(odd.map(({ name }) => name)).toEqual([]);
    expect(JSON.parse(text)).toMatchObject({ info: { contact: { name: 'The operator of this service' } } });
  });

  test('gives every operation a unique id', () => {
    const ids = documented.map(({ operation }) => operation.operationId);
    expect(ids.filter((id, i) => ids.indexOf(id) !== i)).toEqual([]);
    expect(ids.every((id) => /^[a-z][a-z0-9_]*$/.test(id))).toBe(true);
  });

  test('has the operation and the permission of each route from core.operation', () => {
    const odd = endpoints.filter(
      ({ documented: one, operation }) =>
        (one['x-operation'] ?? one.operationId) !== operation.name ||
        (one['x-permission'] ?? null) !== operation.permission,
    );
    expect(odd.map(({ name }) => name)).toEqual([]);
  });

  test('requires an access token, or takes an API key instead, exactly where the service does', () => {
    const odd = endpoints.filter((endpoint) => {
      const { access, needs_session } = endpoint.operation;
      const takesKey = !needs_session && ['any', 'tenant', 'platform', 'analyst'].includes(access);
      const schemes = isAnonymous(endpoint) ? [] : takesKey ? ['bearer', 'apiKey'] : ['bearer'];
      return JSON.stringify(endpoint.documented.security) !== JSON.stringify(schemes.map((name) => ({ [name]: [] })));
    });
    expect(odd.map(({ name }) => name)).toEqual([]);
  });

  test('describes the response of every endpoint, with the same envelope for all errors', () => {
    const odd = endpoints.filter(({ documented: one, route }) => {
      const success = one.responses[route.response.kind === 'created' ? '201' : '200'];
      const failures = Object.entries(one.responses).filter(([status]) => Number(status) >= 400);
      const inEnvelope = failures.every(
        ([, response]) => response.content?.['application/json']?.schema.$ref === '#/components/schemas/Failure',
      );
      return !success?.content || failures.length < 4 || !inEnvelope;
    });
    expect(odd.map(({ name }) => name)).toEqual([]);
  });

  test('lists every error that an operation can return, by status', () => {
    const namesOf = (name: string, status: number) =>
      endpoints.find((endpoint) => endpoint.name === name)?.documented.responses[String(status)]?.['x-errors'];
    expect(namesOf('POST /api/timetable/generate', 409)).toEqual(['conflict', 'setup_incomplete', 'schedule_conflict']);
    expect(namesOf('POST /api/timetable/generate', 403)).toEqual([
      'forbidden',
      'tenant_suspended',
      'feature_disabled',
      'tenant_mismatch',
    ]);
    expect(namesOf('POST /api/timetable/slots', 422)).toEqual(['idempotency_key_reused', 'invalid_reference']);
    expect(namesOf('POST /api/timetable/slots', 400)).toEqual(['validation_error', 'malformed_json']);
    expect(namesOf('GET /api/timetable/slots/{id}', 401)).toEqual(['unauthenticated', 'invalid_token']);
    expect(namesOf('POST /api/students', 403)).toContain('plan_limit_reached');
    expect(namesOf('POST /api/auth/login', 401)).toContain('invalid_credentials');
    expect(namesOf('GET /api/students', 403)).not.toContain('plan_limit_reached');
    const odd = endpoints.flatMap(({ name, documented: one }) =>
      Object.entries(one.responses).flatMap(([status, response]) =>
        (response['x-errors'] ?? [])
          .filter((error) => errors[error as keyof typeof errors].status !== Number(status))
          .map((error) => `${name} ${error}`),
      ),
    );
    expect(odd).toEqual([]);
  });

  test('a body is required exactly where an empty one is refused', () => {
    const odd = endpoints.filter(({ body, documented: one }) => {
      if (!body || one.requestBody?.content['multipart/form-data']) return false;
      const schema = plain(document, body);
      return (one.requestBody?.required ?? false) !== (schema.type === 'array' || (schema.required ?? []).length > 0);
    });
    // Needs one of three recipient fields, which `required` cannot express.
    expect(odd.map(({ name }) => name)).toEqual(['POST /api/notifications/send']);
    expect(
      endpoints.find(({ name }) => name === 'POST /api/timetable/generate')?.documented.requestBody?.required ?? false,
    ).toBe(false);
  });

  test('documents exactly the errors of the registry', () => {
    const failure = document.components.schemas['Failure'];
    expect(failure?.properties?.['error']?.enum).toEqual(Object.keys(errors));
  });

  test('every endpoint has a response schema that is not null or empty', () => {
    const odd = endpoints.filter(({ documented: one, route }) => {
      if (!answersJson(route)) return false;
      const schema =
        one.responses[route.response.kind === 'created' ? '201' : '200']?.content?.['application/json']?.schema
          .properties?.['data'];
      return !schema || schema.type === 'null' || Object.keys(schema).length === 0;
    });
    expect(odd.map(({ name }) => name)).toEqual([]);
  });

  test('documents the headers that a client needs', () => {
    const headers = (name: string, status: number) => {
      const found = endpoints.find((endpoint) => endpoint.name === name)?.documented.responses[String(status)];
      return Object.keys((found as { headers?: object } | undefined)?.headers ?? {}).sort();
    };
    expect(headers('POST /api/auth/login', 200)).toEqual(['Set-Cookie', 'X-Known-Device', 'X-Refresh-Token']);
    expect(headers('POST /api/auth/refresh', 200)).toEqual(['Set-Cookie', 'X-Refresh-Token']);
    expect(headers('POST /api/students', 201)).toEqual(['ETag', 'Location']);
    expect(headers('GET /api/students/{id}', 200)).toEqual(['ETag']);
    const files = endpoints.filter(({ operation }) => operation.content === 'gives');
    expect(files.length).toBeGreaterThan(1);
    for (const { name, documented: one } of files) {
      expect([headers(name, 200), headers(name, 206), headers(name, 416)]).toEqual([
        ['Accept-Ranges', 'ETag'],
        ['Accept-Ranges', 'Content-Range', 'ETag'],
        ['Content-Range'],
      ]);
      expect(one.parameters?.map((parameter) => parameter.name)).toEqual(expect.arrayContaining(['Range', 'If-Range']));
    }
    const odd = endpoints.filter(({ name }) =>
      [429, 503].some((status) => !headers(name, status).includes('Retry-After')),
    );
    expect(odd.map(({ name }) => name)).toEqual([]);
  });

  test('has every response field of a PUT as a body field, so that clients can send a record back unchanged', () => {
    const fieldsOf = (schema: Schema | undefined) => (schema ? (plain(document, schema).properties ?? {}) : {});
    const odd = endpoints.flatMap(({ name, method, route, body, documented: one }) => {
      if (method !== 'PUT' || !body || route.response.kind === 'page' || plain(document, body).type !== 'object')
        return [];
      const answer = one.responses['200']?.content?.['application/json']?.schema.properties?.['data'];
      return Object.keys(fieldsOf(answer)).flatMap((field) => (field in fieldsOf(body) ? [] : [`${name} ${field}`]));
    });
    expect(odd).toEqual([]);
    const student = fieldsOf(endpoints.find(({ name }) => name === 'PUT /api/students/{id}')?.body);
    expect([student['id'], student['first_name']]).toMatchObject([{ readOnly: true }, { type: 'string' }]);
  });
});

describe('an example', () => {
  const schemas = document.components.schemas;
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  addFormats.default(ajv);
  ajv.addSchema({ $id: 'openapi', components: document.components });
  /** What is wrong with the example of a schema. */
  const faultsOf = (schema: Schema, isRequest: boolean): string[] => {
    const text = JSON.stringify(schema).replaceAll('"#/components/', '"openapi#/components/');
    const validate = ajv.compile(JSON.parse(text) as object);
    validate(exampleOf(schema, schemas, isRequest));
    return (validate.errors ?? []).map(({ instancePath, message = '' }) => `${instancePath} ${message}`);
  };
  const bodies = documented.flatMap(({ name, operation }) => [
    ...Object.entries(operation.requestBody?.content ?? {}).map(([type, { schema }]) => ({
      name: `${name} ${type}`,
      schema,
      isRequest: true,
    })),
    ...Object.entries(operation.responses).flatMap(([status, { content }]) =>
      Object.entries(content ?? {})
        .filter(([type]) => type === 'application/json')
        .map(([, { schema }]) => ({ name: `${name} ${status}`, schema, isRequest: false })),
    ),
  ]);

  test('of each JSON body and each JSON response matches its schema', () => {
    const faults = new Map<string, string[]>();
    for (const { name, schema, isRequest } of bodies) {
      const key = `${String(isRequest)} ${JSON.stringify(schema)}`;
      const found = faults.get(key) ?? faultsOf(schema, isRequest);
      faults.set(key, found);
      if (found.length > 0) faults.set(key, [name, ...found]);
    }
    expect(bodies.length).toBeGreaterThan(3000);
    expect([...faults.values()].filter((found) => found.length > 0)).toEqual([]);
  });

  test('has a value for each text field, so that no tool shows a made-up word', () => {
    const missing: string[] = [];
    const isText = ({ type, anyOf }: Schema): boolean =>
      [type].flat().includes('string') || (anyOf?.some((one) => isText(one)) ?? false);
    const hasValue = ({ examples, enum: values, const: fixed, format, anyOf }: Schema): boolean =>
      (examples ?? values) !== undefined ||
      fixed !== undefined ||
      format !== undefined ||
      (anyOf?.some((one) => isText(one) && hasValue(one)) ?? false);
    const walk = (schema: Schema, place: string): void => {
      if ('examples' in schema) return;
      if (isText(schema) && !hasValue(schema)) missing.push(place);
      for (const [field, property] of Object.entries(schema.properties ?? {})) walk(property, `${place}.${field}`);
      if (schema.items) walk(schema.items, `${place}[]`);
      if (typeof schema.additionalProperties === 'object') walk(schema.additionalProperties, `${place}.*`);
      for (const one of schema.anyOf ?? []) if (!isText(one)) walk(one, place);
    };
    for (const [name, schema] of Object.entries(document.components.schemas)) walk(schema, name);
    for (const { name, schema } of bodies) if (!('$ref' in schema)) walk(schema, name);
    // Add the value in src/http/openapi/examples.ts, or to the schema: .meta({ examples: ['…'] }).
    expect(missing).toEqual([]);
  });
});

describe('a field of a body', () => {
  test('the address of a webhook is documented as a URI, since the service refuses anything else', () => {
    for (const name of ['WebhookInput', 'WebhookChange'])
      expect(document.components.schemas[name]?.properties?.['url']).toMatchObject({ type: 'string', format: 'uri' });
  });

  /** Fields that no SQL function reads, and why. */
  const readElsewhere: Record<string, string> = {
    'POST /api/auth/login password': 'The handler compares it with the hash.',
    'POST /api/auth/login refresh_cookie': 'The handler sets the cookie.',
    'DELETE /api/auth/two-factor code': 'The handler checks it, or passes it on by another name.',
    'DELETE /api/auth/two-factor password': 'The handler compares it with the hash.',
    'POST /api/auth/login/enroll challenge': 'The handler checks it, or passes it on by another name.',
    'POST /api/auth/login/verify challenge': 'The handler checks it, or passes it on by another name.',
    'POST /api/auth/login/verify code': 'The handler checks it, or passes it on by another name.',
    'POST /api/auth/login/verify passkey': 'The handler checks it, or passes it on by another name.',
    'POST /api/auth/login/verify passkey.id': 'The handler checks it, or passes it on by another name.',
    'POST /api/auth/login/verify recovery_code': 'The handler checks it, or passes it on by another name.',
    'POST /api/auth/login/verify refresh_cookie': 'The handler sets the cookie.',
    'POST /api/auth/login/verify remember_device': 'The handler checks it, or passes it on by another name.',
    'POST /api/auth/two-factor/passkeys response': 'The handler checks it, or passes it on by another name.',
    'POST /api/auth/two-factor/passkeys response.id': 'The handler checks it, or passes it on by another name.',
    'POST /api/auth/two-factor/passkeys/options password': 'The handler compares it with the hash.',
    'POST /api/auth/two-factor/recovery-codes password': 'The handler compares it with the hash.',
    'POST /api/auth/two-factor/totp password': 'The handler compares it with the hash.',
    'POST /api/auth/two-factor/totp/confirm code': 'The handler checks it, or passes it on by another name.',
    'POST /api/auth/password/change current_password': 'The handler compares it with the hash.',
    'POST /api/auth/password/change password': 'The handler hashes it.',
    'POST /api/auth/password/reset password': 'The handler hashes it.',
    'POST /api/timetable/generate effort': 'The handler passes it to the generator.',
    'POST /api/timetable/generate time_limit_seconds': 'The handler passes it to the generator.',
    'POST /api/timetable/generate seed': 'The handler passes it to the generator.',
    'POST /api/timetable/generate allow_partial': 'The handler stores no partial timetable without it.',
    'POST /api/students/import date_format': 'The handler reads the file with it.',
    'POST /api/students/import ignore_unknown': 'The handler reads the file with it.',
    'POST /api/teachers/import date_format': 'The handler reads the file with it.',
    'POST /api/teachers/import ignore_unknown': 'The handler reads the file with it.',
    'POST /api/timetable/generate dry_run': 'The handler stores nothing with it.',
    'POST /api/platform/tenants plan.name': 'Documented as ignored.',
    'PUT /api/platform/tenants/{id} plan.name': 'Documented as ignored.',
    'POST /api/notifications/send all': 'The schema requires it unless recipients are named.',
    'POST /api/platform/notification-templates/preview channel': 'A preview is the same on every channel.',
  };

  /** The paths of the fields of a schema. The fields inside a column are part of its value. */
  const pathsOf = (schema: Schema, columns: readonly string[], parent = ''): string[] => {
    const { items, properties = {} } = plain(document, schema);
    if (items) return pathsOf(items, columns, parent);
    return Object.entries(properties)
      .filter(([, property]) => !('readOnly' in property))
      .filter(([name]) => parent !== '' || !columns.includes(name))
      .flatMap(([name, property]) => [parent + name, ...pathsOf(property, columns, `${parent}${name}.`)]);
  };

  /**
   * Whether SQL reads a field: `p -> 'name'`, `p ? 'name'`, `p #>> '{name,…}'`, a column of jsonb_to_recordset, or
   * `n.name` of a row n from jsonb_populate_record.
   */
  const isRead = (source: string, name: string) =>
    new RegExp(
      String.raw`(->>?|\?)\s*'${name}'|#>>?\s*'\{(\w+,)?${name}[,}]|[(,]\s*${name} [a-z]+[,)]|\b(n|v_after)\.${name}\b`,
    ).test(source);

  test('is a writable column of the record, or a function reads it', async () => {
    // Follows calls of functions of api, and of those of core that get the parameters of the request.
    const sources = new Map(
      (
        await service.database.query<{ name: string; source: string }>(
          `with recursive body as materialized (
             select proname::text as name, coalesce(pg_get_function_sqlbody(oid), prosrc) as text from pg_proc
             where pronamespace in ('api'::regnamespace, 'core'::regnamespace) and proname not in ('record_insert', 'record_update')
           ), call as (
             select distinct b.name, found[1] collate "C" as callee
             from body b, regexp_matches(b.text, '\\m(?:api\\.|core\\.(?=\\w+\\([^;]*?\\mp\\M))(\\w+)\\(', 'g') found
           ), reached as (
             select name as operation, name collate "C" as name from core.operation
             union
             -- Reads the school of a request without a login.
             select name, 'admit' from core.operation where access = 'public'
             union
             select r.operation, c.callee from reached r join call c on c.name = r.name where c.callee not like '%\\_record'
           )
           select r.operation as name, string_agg(b.text, E'\n') as source from reached r join body b on b.name = r.name group by 1`,
        )
      ).map(({ name, source }) => [name, source]),
    );
    const writable = new Map(
      (
        await service.database.query<{ name: string; writable: string[] }>('select name, writable from core.record')
      ).map((record) => [record.name, record.writable]),
    );
    let count = 0;
    const unread = endpoints.flatMap(({ name, route, operation, documented }) => {
      const source = sources.get(operation.name) ?? '';
      // A function that writes several records gets the name as a parameter, p_….
      const written = [...source.matchAll(/core\.record_(?:insert|update)\((?:'(\w+)'|p_)/g)].map(
        ([, record]) => record ?? operation.record ?? '',
      );
      // For example a login is written with a student, but only the columns of the student count.
      const main = written.filter((record) => record === operation.record);
      const columns = (main.length > 0 ? main : written).flatMap((record) => writable.get(record) ?? []);
      const body = Object.values(documented.requestBody?.content ?? {}).at(-1)?.schema ?? {};
      const paths = pathsOf(body, [...columns, ...(route.upload?.fields ?? []), route.passwordField ?? '']);
      count += paths.length + columns.length;
      return paths.filter((path) => !isRead(source, path.split('.').at(-1) ?? '')).map((path) => `${name} ${path}`);
    });
    expect(count).toBeGreaterThan(300);
    expect(unread.sort()).toEqual(Object.keys(readElsewhere).sort());
  });
});

describe('a list and its record', () => {
  /** The record of each list, from the source of its function. */
  const sources = service.database.query<{ name: string; source: string; record: string | null }>(
    `select proname as name, source, substring(source from 'core\\.record_page\\(''(\\w+)''') as record
     from pg_proc cross join coalesce(pg_get_function_sqlbody(oid), prosrc) source
     where pronamespace = 'api'::regnamespace`,
  );
  interface Defined {
    name: string;
    sorts: string[];
    filters: string[];
    search: string | null;
    isNarrowed: boolean;
  }
  const records = service.database.query<Defined>(
    `select own_student_scopes <> '{}' as "isNarrowed", name, array(select jsonb_object_keys(sorts)) as sorts, search,
       array(select jsonb_object_keys(filters) union all select 'is_deleted' where deleted_condition is not null
         union all select 'include_ended' where ended is not null) as filters
     from core.record order by name`,
  );
  const common = ['page', 'pageSize', 'search', 'sort', 'order'];
  const lists = endpoints.filter(({ route }) => route.response.kind === 'page');

  test('have the same filters and search, and the list takes every sort that the record defines', async () => {
    /** Whether an operation computes its list instead of reading a record, itself or in the function that it calls. */
    const isComputed = async (name: string) => {
      const source = (await sources).find((one) => one.name === name)?.source ?? '';
      const called = [...source.matchAll(/api\.(\w+)\(/g)].map(([, callee]) => callee);
      return (await sources).some((one) => [name, ...called].includes(one.name) && one.source.includes('json_page('));
    };
    const faults: string[] = [];
    for (const { operation, query } of lists) {
      const name = (await sources).find((one) => one.name === operation.name)?.record;
      const record = (await records).find((one) => one.name === name);
      const names = query.map((parameter) => parameter.name);
      for (const parameter of common.filter((one) => !names.includes(one)))
        faults.push(`${operation.name} does not take ${parameter}`);
      if (!record) {
        if (!(await isComputed(operation.name))) faults.push(`${operation.name} has no record`);
        continue;
      }
      if (record.search === null) faults.push(`${operation.name} cannot search`);
      const sorts = query.find((parameter) => parameter.name === 'sort')?.schema.enum ?? [];
      for (const sort of record.sorts.filter((one) => !sorts.includes(one)))
        faults.push(`${operation.name} does not take the sort ${sort}`);
      for (const filter of names.filter((one) => !common.includes(one) && !record.filters.includes(one)))
        faults.push(`${operation.name} does not use the filter ${filter}`);
    }
    expect(lists.length).toBeGreaterThan(40);
    expect(faults).toEqual([]);
  });

  test('every filter of a record is used by a query or a function', async () => {
    const unused: string[] = [];
    for (const { name, filters, isNarrowed } of await records) {
      const functionsOfRecord = (await sources).filter(({ record }) => record === name);
      const queries = lists
        .filter(({ operation }) => functionsOfRecord.some((one) => one.name === operation.name))
        .flatMap(({ query }) => query);
      const isUsed = (filter: string) =>
        // core.narrow_to_scope passes it.
        (filter === 'is_in_scope' && isNarrowed) ||
        filter === 'matches_shown' ||
        queries.some((parameter) => parameter.name === filter) ||
        functionsOfRecord.some(({ source }) => new RegExp(`['"]${filter}['"]`).test(source));
      unused.push(...filters.filter((filter) => !isUsed(filter)).map((filter) => `${name}.${filter}`));
    }
    expect(unused).toEqual([]);
  });
});

describe('the error registry', () => {
  test('is the same in the database as in the code', async () => {
    const rows = await service.database.query<{ name: string; sqlstate: string; status: number }>(
      'select name, sqlstate, status from core.error order by sqlstate',
    );
    const inCode = Object.entries(errors)
      .map(([name, { sqlstate, status }]) => ({ name, sqlstate, status }))
      .sort((a, b) => (a.sqlstate < b.sqlstate ? -1 : 1));
    expect(rows).toEqual(inCode);
  });
});
