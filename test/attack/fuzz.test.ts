import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import fc from 'fast-check';
import jwt from 'jsonwebtoken';
import { answersJson } from '../../src/http/endpoint.ts';
import { analystOf } from '../support/fixtures/analysts.ts';
import { populate } from '../support/fixtures/populate.ts';
import {
  findErrors,
  isAnonymous,
  multipart,
  plain,
  type Registered,
  isForOperators,
  registry,
  sampleBody,
  sampleFile,
  samplePath,
  sampleRequest,
  type Schema,
  takesList,
  rowsOf,
} from '../support/server/registry.ts';
import { operatorEmail, type School, testPassword, testService } from '../support/server/service.ts';
import { traceRequests } from '../support/database/traces.ts';
import { isFull, numbered, share } from '../support/client/share.ts';
import { type Answered, envelopeError, errorMismatch, send, type Sent } from '../support/client/wire.ts';

const { resources } = shared;

/**
 * Random requests to each endpoint: 3, or 20 with FULL=1. For a long search: `npm run test:fuzz -- --requests 100000`. A
 * failure names the seed and the path that repeat it.
 */
const seed = Number(process.env['FUZZ_SEED'] ?? 20260901);
const runs = Number(process.env['FUZZ_RUNS'] ?? (isFull ? 20 : 3));
/** The file for the figures of a run. */
const report = process.env['FUZZ_REPORT'];

const service = await testService();
afterAll(async () => {
  await service.close();
  if (report !== undefined) await writeFile(report, JSON.stringify(figures));
});
const { endpoints, document } = await registry(service);

/** The id of the existing records: one in every table that the API fills. */
const known = 500_001;
let school: School;
/** A school for platform endpoints to change. */
let decoy: School;
let changedBy: (requestIds: string[]) => Promise<Record<string, string[]>>;
let revive: () => Promise<void>;
/** Whether a request has succeeded since the sessions were last restored. */
let isChanged = true;

beforeAll(async () => {
  decoy = await service.school();
  await service.database.query("select setval('platform.tenant_id_seq', $1)", [schoolId - 1]);
  // Features as feature flags, since a random request may change the plan.
  const features = await service.database.query<{ name: string }>(
    'select distinct unnest(features) as name from platform.plan',
  );
  school = await service.school({ feature_flags: Object.fromEntries(features.map(({ name }) => [name, true])) });
  await populate(service, school, { endpoints, document }, known - 1, 'Sample');
  changedBy = await traceRequests(
    service.database,
    [school.schema, decoy.schema, 'platform', 'graphile_worker'],
    'with bookkeeping',
  );
  const [teacher, student] = [await school.user(['teacher']), await school.user(['student'])];
  await school.insert('teacher', { first_name: 'Tea', last_name: 'Cher', user_id: teacher.id });
  await school.insert('student', { first_name: 'Stu', last_name: 'Dent', admission_number: 'F', user_id: student.id });
  const { data: impersonation } = await service.operator.post<{ access_token: string }>(
    `/api/platform/tenants/${school.id}/impersonate`,
    { reason: 'Random requests' },
  );
  tokens = {
    admin: school.admin.token,
    operator: service.operator.token,
    impersonator: impersonation.access_token,
    teacher: teacher.token,
    accountant: (await school.user(['accountant'])).token,
    transport_manager: (await school.user(['transport_manager'])).token,
    student: student.token,
    unprivileged: (await school.user([await school.role()])).token,
    analyst: (await analystOf(service, null)).token,
    nobody: undefined,
  };
  const sessions = Object.values(tokens).flatMap((token) =>
    token === undefined ? [] : [(jwt.decode(token) as { sid: number }).sid],
  );
  await service.database.everywhere(
    'create table public.living as select * from platform.session where id = any ($1)',
    [sessions],
  );
  const columns = await service.database.query<{ list: string }>(
    "select string_agg(quote_ident(attname), ', ') as list from pg_attribute where attrelid = 'platform.session'::regclass and attnum > 0 and not attisdropped and attname <> 'updated_at'",
  );
  const list = columns[0]?.list ?? '';
  // A random logout or a lost permission must not end the test. A refused request changes nothing.
  revive = async () => {
    if (!isChanged) return;
    isChanged = false;
    await service.database.everywhere(
      `update platform.session s set (${list}) = (select ${list} from public.living l where l.id = s.id)
       where exists (select from public.living l where l.id = s.id and (l.revoked_at, l.permissions, l.roles) is distinct from (s.revoked_at, s.permissions, s.roles))`,
    );
  };
});

const ajv = new Ajv2020({ strict: false, allErrors: true });
addFormats.default(ajv);
ajv.addSchema({ $id: 'openapi', components: document.components });
/** Compiled schemas. Nearly all error responses share one. */
const compiled = new Map<string, ValidateFunction>();
/** Checks a response against the envelope, the document and the operation. */
function answerFault(endpoint: Registered, answer: Answered): string | undefined {
  const fault = envelopeError(answer);
  if (fault) return fault;
  const summary = `${answer.status} ${answer.text.slice(0, 300)}`;
  const documented = endpoint.documented.responses[String(answer.status)];
  if (!documented) return `answered a status that the document does not list: ${summary}`;
  const error = answer.json?.error;
  if (error !== undefined && !documented['x-errors']?.includes(error))
    return `answered an error that the document does not list: ${summary}`;
  if (!documented.content)
    return answer.text === '' ? undefined : `has a body that the document does not list: ${summary}`;
  const type = answer.headers['content-type']?.split(';')[0] ?? '';
  if (!(type in documented.content)) return `has the type ${type}, which the document does not list: ${summary}`;
  const schema = documented.content['application/json']?.schema;
  if (!schema || answer.json === undefined) return undefined;
  const text = JSON.stringify(schema).replaceAll('"#/components/', '"openapi#/components/');
  const validate = compiled.get(text) ?? ajv.compile(JSON.parse(text) as object);
  compiled.set(text, validate);
  return validate(answer.json)
    ? undefined
    : `does not fit its schema: ${ajv.errorsText(validate.errors)} ${answer.text.slice(0, 300)}`;
}

/** The senders of requests: each default role, a role without permissions, operators, and a client without a login. */
const callers = [
  'admin',
  'operator',
  'impersonator',
  'teacher',
  'accountant',
  'transport_manager',
  'student',
  'unprivileged',
  'analyst',
  'nobody',
] as const;
type Caller = (typeof callers)[number];
let tokens: Record<Caller, string | undefined>;

/** The caller whose requests pass the most checks of an endpoint. */
function managerOf({ operation }: Registered): Caller {
  if (isForOperators({ operation })) return 'operator';
  return operation.role === 'student' || operation.role === 'teacher' ? operation.role : 'admin';
}

/** The number of responses by kind of request, caller and status, and by endpoint the successes of valid requests. */
const figures = {
  requests: {} as Record<string, number>,
  successes: Object.fromEntries(endpoints.map(({ name }) => [name, 0])),
};

function count({ name }: Registered, kind: Kind, caller: Caller, status: number) {
  const key = `${kind} ${caller} ${status}`;
  figures.requests[key] = (figures.requests[key] ?? 0) + 1;
  if (kind === 'valid' && status < 400) figures.successes[name] = (figures.successes[name] ?? 0) + 1;
}

/** Sends a request with an id that can be found in the data that it changes. */
async function attack(
  endpoint: Registered,
  request: Sent,
  caller = managerOf(endpoint),
): Promise<{ answer: Answered; requestId: string }> {
  const requestId = randomUUID();
  const token = tokens[caller];
  const answer = await send(service.url, {
    ...request,
    ...(isAnonymous(endpoint) || token === undefined ? {} : { token }),
    headers: { ...request.headers, 'x-request-id': requestId },
  });
  if (answer.status < 400 && endpoint.method !== 'GET') isChanged = true;
  return { answer, requestId };
}

/** The operations that count wrong passwords and codes, so that they can be limited. */
const countsAttempts = new Set([
  ...['auth_credentials', 'auth_password_change', 'auth_totp_begin', 'auth_totp_confirm', 'auth_two_factor_delete'],
  ...['auth_recovery_codes_create', 'auth_passkeys_begin'],
]);
/** Other refusals count no attempt. */
const countedErrors = ['invalid_credentials', 'invalid_code', 'rate_limited'];
const countedAttempt = ['INSERT platform.login_throttle', 'UPDATE platform.login_throttle'];

/** Describes the error in the response to a random request, or in the data that it stored. */
async function attackFault(
  endpoint: Registered,
  { kind, ...request }: Attack,
  caller: Caller,
): Promise<string | undefined> {
  await revive();
  const { answer, requestId } = await attack(endpoint, request, caller);
  count(endpoint, kind, caller, answer.status);
  const fault = answerFault(endpoint, answer);
  if (fault) return fault;
  if (answer.headers['x-request-id'] !== requestId) return 'lost the id of the request';
  if (answer.status < 400 && endpoint.operation.writes) return undefined;
  const expected = [
    ...(countedErrors.includes(answer.json?.error ?? '') && countsAttempts.has(endpoint.operation.name)
      ? countedAttempt
      : []),
    // Every request of an impersonation is audited.
    ...(caller === 'impersonator' ? ['INSERT platform.audit_log'] : []),
  ];
  const changed = (await changedBy([requestId]))[requestId]?.filter((change) => !expected.includes(change));
  return changed?.length
    ? `answered ${answer.status} ${answer.text.slice(0, 200)} and changed ${changed.join(', ')}`
    : undefined;
}

const nastyTexts = [
  ...[
    '',
    ' ',
    '\0',
    'a\0b',
    '\ud800',
    'x\udfff',
    '\ufeff',
    '\u202e',
    '\r\n',
    '\t',
    '%',
    '%_%',
    '\\',
    '\\\\',
    "'",
    "''",
    '"',
    '`',
    '--',
    ';',
    '$1',
    '$$',
    ':value',
  ],
  ...[
    "'; drop table student; --",
    "' or '1'='1",
    '{}',
    '[]',
    '{a,b}',
    '{"a":1}',
    'null',
    'true',
    'NaN',
    'Infinity',
    '-0',
    '1e400',
    '0x10',
    '1_000',
    '٣',
  ],
  ...[
    '0000-00-00',
    '9999-99-99',
    '9999-12-31',
    '2026-02-30',
    '0001-01-01',
    '10000-01-01',
    '-0001-01-01',
    '2026-09-01T24:00:00Z',
    '9999-12-31T23:59:59-23:59',
    'infinity',
    'now',
    'epoch',
  ],
  ...[
    '__proto__',
    'constructor',
    'prototype',
    'toString',
    'hasOwnProperty',
    '../../etc/passwd',
    '${1}',
    '{{first_name}}',
    '<script>',
    '=1+1',
    '%s',
    '%I',
  ],
  ...[
    'é',
    'e\u0301',
    '名前',
    '👩‍👩‍👧‍👦',
    '🏳️‍🌈',
    'ı',
    'İ',
    'ß',
    'ﬃ',
    '\u0000\uffff',
    'a'.repeat(101),
    'a'.repeat(10_000),
    '👍'.repeat(100),
    '\u0300'.repeat(300),
  ],
];
const nastyNumbers = [
  ...[
    0,
    -0,
    -1,
    1,
    0.1,
    0.005,
    1.005,
    1e-7,
    2 ** 15,
    2 ** 31 - 1,
    2 ** 31,
    -(2 ** 31) - 1,
    2 ** 32,
    2 ** 53 - 1,
    2 ** 53,
    1e18,
    9.3e18,
    1e21,
    1e308,
    -1e308,
    9_999_999_999.99,
    1e10,
  ],
];
const nested = (depth: number): unknown => JSON.parse('['.repeat(depth) + ']'.repeat(depth));
const nestedObject = (depth: number): unknown => JSON.parse('{"a":'.repeat(depth) + '1' + '}'.repeat(depth));
/** Any code point but a surrogate. The unit `binary` of fast-check first builds a table of all of them, for a second. */
const codePoint = fc
  .nat({ max: 0x10ffff - 0x800 })
  .map((code) => String.fromCodePoint(code < 0xd800 ? code : code + 0x800));
const nasty: fc.Arbitrary<unknown> = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom<unknown>(...nastyTexts) },
  { weight: 4, arbitrary: fc.constantFrom<unknown>(...nastyNumbers) },
  {
    weight: 3,
    arbitrary: fc.constantFrom<unknown>(
      null,
      true,
      false,
      [],
      {},
      [[]],
      [null],
      { length: 1 },
      { id: 1 },
      nested(500),
      nestedObject(500),
    ),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom<unknown>(
      JSON.parse('{"__proto__":{"x":1}}'),
      JSON.parse('{"constructor":{"prototype":{}}}'),
      Array(5000).fill(1),
    ),
  },
  { weight: 2, arbitrary: fc.string({ unit: codePoint, maxLength: 50 }) },
  {
    weight: 1,
    arbitrary: fc
      .anything({ maxDepth: 3, withNullPrototype: false })
      .map((value): unknown => JSON.parse(JSON.stringify(value) || 'null')),
  },
);

/** The id is large, so that random small ids do not suspend this school. */
const schoolId = 700_001;
const identifiers = fc.constantFrom(known, 1, 2, 3, known + 1, 999_999_999, 2 ** 31, 2 ** 53 - 1);

/** Values that a schema allows, and values on its edges. */
function fitting(given: Schema, name: string): fc.Arbitrary<unknown> {
  const alternatives = given.anyOf ?? given.oneOf;
  if (alternatives && !given.properties) return fc.oneof(...alternatives.map((one) => fitting(one, name)));
  const schema = plain(document, given);
  const types = Array.isArray(schema.type) ? schema.type : [schema.type];
  if (types.length > 1)
    return fc.oneof(...types.map((type) => fitting({ ...schema, ...(type ? { type } : {}) }, name)));
  if (schema.const !== undefined) return fc.constant(schema.const);
  if (schema.enum) return fc.constantFrom(...schema.enum);
  if (schema.properties) return record(schema);
  switch (schema.type) {
    case 'null':
      return fc.constant(null);
    case 'boolean':
      return fc.boolean();
    case 'integer':
      if (name === 'tenant_id')
        return fc.oneof({ weight: 3, arbitrary: fc.constant(schoolId) }, { weight: 1, arbitrary: identifiers });
      if (/(^|_)ids?$/.test(name)) return identifiers;
      return fc.oneof(
        fc.integer({ min: Math.max(schema.minimum ?? 0, (schema.exclusiveMinimum ?? -1) + 1), max: 1000 }),
        fc.constantFrom(schema.minimum ?? 1, schema.maximum ?? 2 ** 53 - 1, 2 ** 31),
      );
    case 'number':
      return fc.oneof(
        fc.integer({ min: schema.minimum ?? 0, max: 100_000 }),
        fc.constantFrom(0.01, 0.1, 19.99, 0.3, 1.1, schema.maximum ?? 1e6),
      );
    case 'array':
      return fc.array(fitting(schema.items ?? {}, name), { maxLength: 4 });
    case 'string': {
      const examples = (schema.examples ?? []).filter((example) => typeof example === 'string');
      if (schema.format === 'date')
        return fc.constantFrom('2026-09-01', '2024-02-29', '1000-01-01', '9999-12-31', ...examples);
      if (schema.format === 'date-time')
        return fc.constantFrom(
          '2026-12-31T00:00:00Z',
          '9999-12-31T23:59:59Z',
          '2026-01-01T00:00:00.123456789+14:00',
          ...examples,
        );
      if (schema.format === 'email') return fc.nat({ max: 9999 }).map((n) => `Fuzz${n}@School.example`);
      const pattern = schema.pattern ? new RegExp(schema.pattern) : undefined;
      const numbered = fc.nat({ max: 999 }).map((n) => `${examples[0] ?? 'x'}${n}`);
      if (pattern) return numbered.map((text) => (pattern.test(text) ? text : (examples[0] ?? text)));
      const texts = fc.string({
        unit: 'grapheme',
        minLength: Math.min(schema.minLength ?? 0, 300),
        maxLength: Math.min(schema.maxLength ?? 60, 60),
      });
      return examples.length > 0 ? fc.oneof(fc.constantFrom(...examples), numbered, texts) : texts;
    }
    default:
      return nasty;
  }
}

/** An object of the schema, with any of its optional properties. */
function record(schema: Schema): fc.Arbitrary<Record<string, unknown>> {
  const entries = Object.entries(schema.properties ?? {});
  return fc.record(Object.fromEntries(entries.map(([name, one]) => [name, fitting(one, name)])), {
    requiredKeys: (schema.required ?? []).filter((key) => entries.some(([name]) => name === key)),
  });
}

/** Sets a field as JSON.parse does, so that `__proto__` becomes an ordinary field. */
const withField = (object: Record<string, unknown>, field: string, value: unknown) =>
  JSON.parse(
    JSON.stringify({ ...object, '\u0001': value }).replace('"\\u0001":', `${JSON.stringify(field)}:`),
  ) as Record<string, unknown>;

/** The fields that a hostile client may add to a body of this schema. */
const fieldsOf = (schema: Schema) => [
  ...Object.keys(schema.properties ?? {}),
  'id',
  '__proto__',
  'constructor',
  'tenant_id',
  'is_admin',
  'unknown',
  '',
];

/** Bodies that the schema allows. */
function validBodies(given: Schema): fc.Arbitrary<unknown> {
  const schema = plain(document, given);
  if (schema.type === 'array') return fc.array(validBodies(schema.items ?? {}), { minLength: 1, maxLength: 4 });
  if (!schema.properties) return fitting(schema, '');
  const required = Object.entries(schema.properties).filter(([name]) => schema.required?.includes(name));
  return fc.oneof(record(schema), record({ ...schema, properties: Object.fromEntries(required) }));
}

/** Valid bodies with one invalid, unknown or missing field. */
function nearlyValidBodies(given: Schema): fc.Arbitrary<unknown> {
  const schema = plain(document, given);
  if (schema.type === 'array')
    return fc
      .tuple(nearlyValidBodies(schema.items ?? {}), fc.boolean())
      .map(([item, isFirst]) => (isFirst ? [item] : [item, item]));
  const valid = validBodies(schema) as fc.Arbitrary<Record<string, unknown>>;
  const changed = fc
    .tuple(valid, fc.constantFrom(...fieldsOf(schema)), nasty)
    .map(([body, name, value]) => withField(body, name, value));
  const required = schema.required ?? [];
  return required.length === 0
    ? changed
    : fc.oneof(
        { weight: 5, arbitrary: changed },
        {
          weight: 1,
          arbitrary: fc
            .tuple(valid, fc.constantFrom(...required))
            .map(([body, name]) => Object.fromEntries(Object.entries(body).filter(([key]) => key !== name))),
        },
      );
}

/** Bodies with several invalid fields, and arbitrary values. */
function hostileBodies(given: Schema): fc.Arbitrary<unknown> {
  const schema = plain(document, given);
  if (schema.type === 'array')
    return fc.oneof(nasty, fc.array(fc.oneof(hostileBodies(schema.items ?? {}), nasty), { maxLength: 4 }));
  const field = fc.tuple(fc.constantFrom(...fieldsOf(schema)), nasty);
  return fc.oneof(
    { weight: 1, arbitrary: nasty },
    {
      weight: 3,
      arbitrary: fc
        .tuple(record(schema), fc.array(field, { minLength: 1, maxLength: 4 }))
        .map(([body, fields]) => fields.reduce((all, [name, value]) => withField(all, name, value), body)),
    },
  );
}

/** Percent-encodes characters that a path or query cannot contain, and an unpaired surrogate as three bytes. */
const encode = (text: string) =>
  Array.from(text)
    .map((character) => {
      const point = character.codePointAt(0) ?? 0;
      if (/[A-Za-z0-9._~-]/.test(character)) return character;
      if (point >= 0xd800 && point <= 0xdfff)
        return `%ED%${(0x80 | ((point >> 6) & 0x3f)).toString(16)}%${(0x80 | (point & 0x3f)).toString(16)}`;
      return [...Buffer.from(character)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('');
    })
    .join('');

/** Limits the length of a query or path: Node refuses more than 16 kB of headers before the service sees them. */
const inUrl = (value: unknown) =>
  encode(typeof value === 'string' ? value.slice(0, 300) : JSON.stringify(value).slice(0, 300));

/** Queries that the document allows. */
function validQueries(endpoint: Registered): fc.Arbitrary<string[]> {
  const parts = endpoint.query.map(({ name, schema, required }) =>
    (required ? fc.constant(true) : fc.integer({ min: 0, max: 3 }).map((n) => n === 0)).chain((given) =>
      given ? fitting(schema, name).map((value) => [`${name}=${inUrl(value)}`]) : fc.constant<string[]>([]),
    ),
  );
  return fc.tuple(...parts).map((each) => each.flat());
}

/** Invalid, duplicate, bracketed and unknown query parameters. */
function badQueries(endpoint: Registered): fc.Arbitrary<string> {
  const names = [...endpoint.query.map(({ name }) => name), 'unknown', '__proto__', 'constructor', 'id', ''];
  const bad = fc
    .tuple(
      fc.constantFrom(...names),
      fc.oneof(nasty.map(inUrl), fc.constantFrom('%', '%ff', '%00', '%ED%A0%80', '1&page=2', '1&1', '%2525')),
    )
    .map(([name, value]) => `${encode(name)}=${value}`);
  const odd = fc.constantFrom(
    'page=1&page=2',
    'page[]=1',
    'page[a]=1',
    'page=-1',
    'page=0',
    'page=1e9',
    'page=99999999999999999999',
    'pageSize=0',
    'pageSize=1000000',
    'order=asc;',
    'sort=id',
    'sort=--id',
    'sort=-',
    'order=DESC',
    '_=1&search=',
    'sort=__proto__',
    '&&=&',
    '?',
    'search=%25%5f%5c',
    // Placeholders of the search statement.
    'search=:pattern+:patterns+:value+%251$L+%252$L',
    'search=' + 'a+'.repeat(90),
  );
  return fc.oneof(bad, odd);
}

const oddIdentifiers = [
  '0',
  '-1',
  '1.5',
  '1e3',
  '0x1',
  '01',
  '+1',
  '%201',
  'NaN',
  'null',
  'undefined',
  "1'",
  '1%3Bdrop',
  '1,2',
  '2147483648',
  '9007199254740993',
  '9223372036854775808',
  '1'.repeat(400),
  '%00',
  '%F0%9F%91%8D',
  '..',
  '%2e%2e',
  '%2F',
  '*',
  '__proto__',
];

/** A path of an endpoint with these ids. */
const paths = (endpoint: Registered, id: fc.Arbitrary<string>) =>
  fc.tuple(...endpoint.parameters.map(() => id)).map((values) => {
    // For operators, the existing school is the decoy.
    const of = (value: string) => (value === 'known' ? String(isForOperators(endpoint) ? decoy.id : known) : value);
    return endpoint.parameters.reduce((path, name, i) => path.replace(`{${name}}`, of(values[i] ?? '')), endpoint.path);
  });
/** The id of an existing record; sometimes that of a missing one. */
const validIdentifiers = fc.oneof(
  { weight: 5, arbitrary: fc.constant('known') },
  { weight: 1, arbitrary: identifiers.map(String) },
);

/** Headers that a client may get wrong. */
const headers: fc.Arbitrary<Record<string, string>> = fc
  .record(
    {
      'if-match': fc.constantFrom('*', '"x"', 'W/"x"', '', ',', '"', '"a", "b"', "'", 'x'.repeat(3000), '\u00ff'),
      'if-none-match': fc.constantFrom('*', '"x"', 'x'),
      'idempotency-key': fc.oneof(
        fc.uuid(),
        fc.constantFrom('same', '', ' ', 'a b', '\u00e9', 'x'.repeat(255), 'x'.repeat(256), "';--"),
      ),
      'x-tenant-id': fc.constantFrom(...['1', '0', 'abc', '-1', "1'", '', '\u00ff']),
      'user-agent': fc.constantFrom('', "'; --", '\u00ff\u00fe', 'x'.repeat(5000), '{"a":1}'),
      'x-forwarded-for': fc.constantFrom('1.2.3.4', "'", 'x'.repeat(1000)),
      'x-refresh-token': fc.constantFrom('x', "'", '\u00ff', 'x'.repeat(5000)),
      accept: fc.constantFrom('*/*', 'application/json', 'application/*;q=0.1', 'text/html, */*;q=0.1', ';'),
      cookie: fc.constantFrom('a=b', 'a'),
    },
    { requiredKeys: [] },
  )
  .map((record) =>
    Object.fromEntries(Object.entries(record).filter(([name]) => name !== 'x-tenant-id' || record[name] !== '')),
  );

/** How far a request is from what the document allows. A nearly valid request has one defect. */
type Kind = 'valid' | 'nearly valid' | 'hostile';

/** A random request. */
type Attack = Sent & { kind: Kind };

/** A part of a request: its body, and the headers that describe it. */
type Content = Pick<Sent, 'body' | 'headers'>;

/** Bodies of one endpoint: JSON, a file, or nothing. */
function contents(endpoint: Registered, kind: Kind): fc.Arbitrary<Content> {
  const { body: schema } = endpoint;
  const { upload } = endpoint.route;
  const kinds: fc.Arbitrary<Content>[] = [];
  if (schema) {
    const bodies = { valid: validBodies, 'nearly valid': nearlyValidBodies, hostile: hostileBodies }[kind](schema);
    const json = bodies.map((value) => ({ body: typeof value === 'string' ? JSON.stringify(value) : value }));
    const ofSample = (changes: unknown) => {
      const body = sampleBody(document, endpoint, { id: isForOperators(endpoint) ? decoy.id : known });
      return { body: Array.isArray(body) ? body : { ...body, ...(changes as object) } };
    };
    // Few random bodies meet rules that span fields, for example that a period ends after its start.
    kinds.push(kind === 'valid' ? fc.oneof(json, fc.constant({}).map(ofSample)) : json);
  }
  if (upload) {
    const name = fc.constantFrom('a.png', '../../x', '', 'é"');
    const nothing = fc.constantFrom(
      Buffer.alloc(0),
      Buffer.from('no picture'),
      Buffer.from('89504e470d0a1a0a', 'hex'),
      Buffer.from('ffd8ffe000104a464946', 'hex'),
      Buffer.from('<svg onload="x"/>'),
    );
    const field = fc.constantFrom(...upload.fields, 'other', '__proto__', '');
    const [good, file] = sampleFile(upload.types);
    const form = endpoint.documented.requestBody?.content['multipart/form-data']?.schema;
    const texts = (form ? (kind === 'hostile' ? hostileBodies : validBodies)(form) : fc.constant({})).map((fields) =>
      Object.fromEntries(
        Object.entries(Object(fields) as object).flatMap(([key, value]) =>
          upload.fields.includes(key) || /["\r\n]/.test(key) ? [] : [[key, inForm(value)] as [string, string]],
        ),
      ),
    );
    kinds.push(
      kind === 'valid'
        ? fc.tuple(fc.constantFrom(...upload.fields), texts).map(([of, fields]) => multipart(of, good, file, fields))
        : fc.tuple(field, nothing, name, texts).map((parts) => multipart(...parts)),
    );
  }
  return kinds.length > 0 ? fc.oneof(...kinds) : fc.constant({});
}

/** A value in a form, where everything is text. */
const inForm = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value)).slice(0, 20_000);

const asRequest = (
  { method }: Registered,
  kind: Kind,
  path: string,
  query: string[],
  content: Content,
  more: Record<string, string>,
): Attack => ({
  kind,
  method,
  path: path + (query.length > 0 ? `?${query.join('&')}` : ''),
  ...content,
  headers: { ...more, ...content.headers },
});

/** Requests to one endpoint. */
function requests(endpoint: Registered): fc.Arbitrary<Attack> {
  const [path, query, content] = [
    paths(endpoint, validIdentifiers),
    validQueries(endpoint),
    contents(endpoint, 'valid'),
  ];
  const badPath = paths(endpoint, fc.constantFrom(...oddIdentifiers));
  const badQuery = fc.tuple(query, badQueries(endpoint)).map(([parts, bad]) => [...parts, bad]);
  const none = fc.constant({});
  const of = (kind: Kind, ...parts: [typeof path, typeof query, typeof content, typeof headers]) =>
    fc.tuple(...parts).map((values) => asRequest(endpoint, kind, ...values));
  const oneDefect = [
    of('nearly valid', path, badQuery, content, none),
    of('nearly valid', path, query, content, headers),
    ...(endpoint.parameters.length > 0 ? [of('nearly valid', badPath, query, content, none)] : []),
  ];
  if (endpoint.body ?? endpoint.route.upload) {
    const badContent = of('nearly valid', path, query, contents(endpoint, 'nearly valid'), none);
    oneDefect.push(badContent, badContent, badContent);
  }
  return fc.oneof(
    { weight: 4, arbitrary: of('valid', path, query, content, none) },
    { weight: 4, arbitrary: fc.oneof(...oneDefect) },
    {
      weight: 3,
      arbitrary: of(
        'hostile',
        fc.oneof({ weight: 3, arbitrary: path }, badPath),
        fc.oneof({ weight: 3, arbitrary: query }, badQuery),
        contents(endpoint, 'hostile'),
        fc.oneof({ weight: 3, arbitrary: none }, headers),
      ),
    },
  );
}

/** Mostly the caller with the most rights, because those requests pass more checks. */
const callerOf = (endpoint: Registered) =>
  fc.oneof(fc.constant<Caller>(managerOf(endpoint)), fc.constantFrom(...callers));

/** Deletes come last, because other requests need what they delete. */
const methodOrder = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];
const inOrder = [...endpoints].sort((a, b) => methodOrder.indexOf(a.method) - methodOrder.indexOf(b.method));

describe(`random requests (FUZZ_SEED=${seed} FUZZ_RUNS=${runs})`, () => {
  test.each(inOrder.map((endpoint): [string, Registered] => [endpoint.name, endpoint]))(
    '%s returns documented envelopes and no 500, and refused requests store nothing',
    async (_name, endpoint) => {
      await fc.assert(
        fc.asyncProperty(requests(endpoint), callerOf(endpoint), async (request, caller) => {
          expect(await attackFault(endpoint, request, caller)).toBeUndefined();
        }),
        { seed, numRuns: runs },
      );
    },
    60_000 + runs * 500,
  );

  test('the check for stored data reports a valid create', async () => {
    const endpoint = endpoints.find(({ operation }) => operation.name === 'students_create');
    if (!endpoint) throw new Error('There is no endpoint students_create.');
    const { answer, requestId } = await attack(endpoint, sampleRequest(document, endpoint, { id: known }));
    expect(answer.status).toBe(201);
    expect((await changedBy([requestId]))[requestId]).toContain(`INSERT ${school.schema}.student`);
  });

  test('login, lists and creates still work after the random requests', async () => {
    const operator = await service.anonymous.login({ is_platform: true, email: operatorEmail, password: testPassword });
    expect((await operator.get<unknown[]>('/api/platform/tenants')).pagination.totalItems).toBeGreaterThan(0);
    const fresh = await service.school();
    const { data } = await fresh.admin.post<{ id: number; first_name: string }>(
      '/api/students',
      { first_name: 'After', last_name: 'Attack' },
      201,
    );
    expect((await fresh.admin.get<{ first_name: string }>(`/api/students/${data.id}`)).data.first_name).toBe('After');
  });
});

describe('the protocol', () => {
  const withoutUpload = endpoints.filter(({ route }) => route.upload === undefined);
  const writing = withoutUpload.filter(({ method }) => method !== 'GET');
  const sample = (endpoint: Registered) => sampleRequest(document, endpoint, { id: 999_999_999 });

  /** Sends the same invalid input to many endpoints. Each must return the same error and change nothing. */
  async function allRefuse(
    among: Registered[],
    status: number,
    error: Parameters<typeof errorMismatch>[2],
    over: (endpoint: Registered) => Partial<Sent>,
  ): Promise<string[]> {
    return findErrors(among, async (endpoint) => {
      await revive();
      const request = sample(endpoint);
      const more = over(endpoint);
      const { answer, requestId } = await attack(endpoint, {
        ...request,
        ...more,
        headers: { ...request.headers, ...more.headers },
      });
      const { [requestId]: changed } = await changedBy([requestId]);
      return errorMismatch(answer, status, error) ?? (changed ? `changed ${changed.join(', ')}` : undefined);
    });
  }

  const malformed = [
    '{',
    '{"a":1',
    'null x',
    "{'a':1}",
    '{"a":1,}',
    '{a:1}',
    '\u0000',
    '"\\ud800',
    '[1,2',
    'undefined',
    'NaN',
    '{"a":"\t"}',
    '\ufeff\ufeff{}',
  ];
  test.each(numbered(malformed))(
    'the malformed JSON %p returns 400 malformed_json at every endpoint with a body',
    async (body, n) => {
      expect(await allRefuse(share(writing, n, 4), 400, 'malformed_json', () => ({ body }))).toEqual([]);
    },
  );

  test('a JSON body that is not an object (or not an expected list) returns 400 at every endpoint with a body', async () => {
    for (const [body, n] of numbered(['[]', '"x"', '1', 'true', '[{}]', '{}'])) {
      const wrongFor = writing.filter(
        (endpoint) => endpoint.body && (takesList(document, endpoint) ? body !== '[]' : body !== '{}'),
      );
      expect(await allRefuse(share(wrongFor, n, 2), 400, 'validation_error', () => ({ body }))).toEqual([]);
    }
  });

  test('an unknown body field returns 400 and names the field, at every endpoint with a body', async () => {
    const lines = await findErrors(
      writing.filter((endpoint) => endpoint.body),
      async (endpoint) => {
        const request = sample(endpoint);
        const isList = takesList(document, endpoint);
        const body = isList
          ? [{ ...(request.body as object[])[0], no_such_field: 1 }]
          : { ...(request.body as object), no_such_field: 1 };
        const { answer } = await attack(endpoint, { ...request, body });
        const paths = answer.json?.details?.map(({ path }) => (isList ? path.replace(/^0\./, '') : path)) ?? [];
        return (
          errorMismatch(answer, 400, 'validation_error') ??
          (paths.includes('no_such_field') ? undefined : `names ${paths.join(', ')}`)
        );
      },
    );
    expect(lines).toEqual([]);
  });

  test('an unknown query parameter returns 400 and names the parameter, at every endpoint', async () => {
    const lines = await findErrors(endpoints, async (endpoint) => {
      const request = sample(endpoint);
      const { answer } = await attack(endpoint, {
        ...request,
        path: `${request.path}${request.path.includes('?') ? '&' : '?'}no_such_parameter=1`,
      });
      return (
        errorMismatch(answer, 400, 'validation_error') ??
        (answer.json?.details?.some(({ path }) => path === 'no_such_parameter') ? undefined : answer.text)
      );
    });
    expect(lines).toEqual([]);
  });

  const tooLarge = JSON.stringify({ first_name: 'a'.repeat(1_100_000) });
  test('a body of more than 1 MB returns 413 at every endpoint with a body, with and without Content-Length', async () => {
    expect(await allRefuse(writing, 413, 'payload_too_large', () => ({ body: tooLarge }))).toEqual([]);
    expect(
      await allRefuse(writing.slice(0, 5), 413, 'payload_too_large', () => ({
        body: tooLarge,
        headers: { 'transfer-encoding': 'chunked' },
      })),
    ).toEqual([]);
  });

  test('a file that is too large returns 413 at every upload endpoint', async () => {
    const uploads = endpoints.filter(({ route }) => route.upload !== undefined);
    expect(uploads.length).toBeGreaterThan(0);
    const lines = await allRefuse(uploads, 413, 'payload_too_large', ({ route }) =>
      multipart(
        route.upload?.fields[0] ?? 'file',
        Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), Buffer.alloc(route.upload?.maxBytes ?? 0)]),
      ),
    );
    expect(lines).toEqual([]);
  });

  const types = [
    'text/plain',
    'application/x-www-form-urlencoded',
    'application/xml',
    'multipart/form-data',
    'application/jsonp',
    'json',
    'application/json; charset=nope',
  ];
  test.each(numbered(types))('a body of type %s returns 415 at every endpoint that reads JSON', async (type, n) => {
    expect(
      await allRefuse(share(writing, n, 3), 415, 'unsupported_media_type', () => ({
        body: '{}',
        headers: { 'content-type': type },
      })),
    ).toEqual([]);
  });

  test('a body without a content type returns 415, and so does JSON where a file is required', async () => {
    expect(
      await allRefuse(writing, 415, 'unsupported_media_type', () => ({ body: '{}', headers: { 'content-type': '' } })),
    ).toEqual([]);
    const uploads = endpoints.filter(({ route }) => route.upload !== undefined && route.upload.isOptional !== true);
    expect(
      await allRefuse(uploads, 415, 'unsupported_media_type', () => ({
        body: '{}',
        headers: { 'content-type': 'application/json' },
      })),
    ).toEqual([]);
  });

  test.each(numbered(['gzip', 'br', 'nope']))(
    'a body with the wrong Content-Encoding %s returns 400 or 415, not a 500',
    async (encoding, n) => {
      const lines = await findErrors(share(writing, n, 3), async (endpoint) => {
        const { answer } = await attack(endpoint, {
          ...sample(endpoint),
          body: 'not compressed',
          headers: { 'content-encoding': encoding },
        });
        return [400, 415].includes(answer.status) ? envelopeError(answer) : `answered ${answer.status} ${answer.text}`;
      });
      expect(lines).toEqual([]);
    },
  );

  const withJson = endpoints.filter(({ route }) => answersJson(route));
  test.each(numbered(['text/html', 'image/png', 'application/xml', 'application/json;q=0', 'text/*']))(
    'Accept: %s returns 406 at every endpoint that returns JSON',
    async (accept, n) => {
      expect(await allRefuse(share(withJson, n, 3), 406, 'not_acceptable', () => ({ headers: { accept } }))).toEqual(
        [],
      );
    },
  );

  /** The methods of each path of the route table. */
  const methods = new Map<string, Set<string>>();
  for (const { path: base, endpoints: routes } of resources) {
    for (const { method, path } of routes) {
      const full = `/api${base}${path === '/' ? '' : path}`.replace(/:\w+/g, '1');
      methods.set(full, (methods.get(full) ?? new Set()).add(method));
    }
  }

  test('an unsupported method returns 405, and Allow lists the supported ones', async () => {
    const lines: string[] = [];
    const asked = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'PROPFIND', 'TRACE'];
    for (const [[path, known], n] of numbered([...methods])) {
      const others = asked.filter((method) => !known.has(method));
      for (const method of share(others, n, 3)) {
        const answer = await send(service.url, { method, path, token: school.admin.token });
        const allow = new Set(answer.headers.allow?.split(', '));
        const fault = errorMismatch(answer, 405, 'method_not_allowed');
        if (fault) lines.push(`${method} ${path} ${fault}`);
        else if (![...known, 'OPTIONS'].every((one) => allow.has(one)) || allow.has(method))
          lines.push(`${method} ${path} allows ${[...allow].join()}`);
      }
    }
    expect(methods.size).toBeGreaterThan(20);
    expect(lines).toEqual([]);
  });

  test('OPTIONS returns the methods of a path, and HEAD the response of GET without its body', async () => {
    const lines: string[] = [];
    for (const [path, known] of methods) {
      const options = await send(service.url, { method: 'OPTIONS', path });
      if (options.status !== 204 || ![...known].every((one) => options.headers.allow?.split(', ').includes(one)))
        lines.push(`OPTIONS ${path} ${options.status}`);
      // A GET that writes (the link of an email) has no HEAD, and OPTIONS does not list it.
      if (!options.headers.allow?.includes('HEAD')) continue;
      await revive();
      const head = await send(service.url, { method: 'HEAD', path, token: school.admin.token });
      const get = await send(service.url, { path, token: school.admin.token });
      if (
        head.status !== get.status ||
        head.text !== '' ||
        head.headers['content-type'] !== get.headers['content-type']
      )
        lines.push(`HEAD ${path} ${head.status} ${get.status}`);
    }
    expect(lines).toEqual([]);
  });

  const withIdentifier = endpoints.filter(({ parameters }) => parameters.length > 0);
  test.each(numbered(['%', '%E0%A4%A', '%ff', '%zz', '%u0041', '%c0%ae', '%00', '%ED%A0%80']))(
    'the malformed escape %s in a path returns 400 or 404 at every endpoint with an id',
    async (escape, n) => {
      const lines = await findErrors(share(withIdentifier, n, 4), async (endpoint) => {
        const { answer } = await attack(endpoint, {
          ...sample(endpoint),
          path: endpoint.path.replace(/\{\w+\}/g, escape),
        });
        return [400, 404].includes(answer.status) ? envelopeError(answer) : `answered ${answer.status} ${answer.text}`;
      });
      expect(lines).toEqual([]);
    },
  );

  const noIdentifiers = ['1e0', '1.0', '0x1', '+1', '01', '%201', '1%20', '1%0A', '0', '-1', '9007199254740993', '١'];
  test.each(numbered(noIdentifiers.map((value) => encodeURI(decodeURI(value)))))(
    '%s as an id in a path returns 400 at every endpoint',
    async (value, n) => {
      const among = endpoints.filter(({ parameters, route }) =>
        parameters.some((name) => !(name in (route.params ?? {}))),
      );
      expect(
        await allRefuse(share(among, n, 4), 400, 'validation_error', ({ path }) => ({
          path: path.replace(/\{\w+\}/g, value),
        })),
      ).toEqual([]);
    },
  );

  /** The path of a list, below an existing record. */
  const listPath = (endpoint: Registered) => samplePath(document, endpoint, { id: known }).split('?')[0] ?? '';

  test.each(numbered(['1e0', '1.0', '0x1', '+1', '%201', '0', '-1', '1&page=1', 'one']))(
    'page=%s returns 400 in every list',
    async (value, n) => {
      const lists = endpoints.filter(({ route }) => route.response.kind === 'page');
      expect(lists.length).toBeGreaterThan(5);
      expect(
        await allRefuse(share(lists, n, 5), 400, 'validation_error', (list) => ({
          path: `${listPath(list)}?page=${value}`,
        })),
      ).toEqual([]);
    },
  );

  test('a list returns the requested page and size, and a page beyond the last one is empty', async () => {
    // Random requests may have deleted the parent record in the other school.
    const whole = await service.school();
    await populate(service, whole, { endpoints, document }, known - 1, 'Whole');
    const { data: webhook } = await service.operator.post<{ id: number }>(
      '/api/platform/webhooks',
      { url: 'https://hooks.example/platform', events: ['tenant.created'] },
      201,
    );
    const platformId = ({ path }: Registered) => (path.startsWith('/api/platform/webhooks') ? webhook.id : decoy.id);
    const lines = await findErrors(
      // The admin is not a student.
      endpoints.filter(({ route, operation }) => route.response.kind === 'page' && operation.role === null),
      async (endpoint) => {
        const isPlatform = isForOperators(endpoint);
        const path = samplePath(document, endpoint, { id: isPlatform ? platformId(endpoint) : known });
        const request = (query: string) =>
          send(service.url, {
            path: `${path}${path.includes('?') ? '&' : '?'}${query}`,
            token: isPlatform ? service.operator.token : whole.admin.token,
          });
        const [huge, one, far] = [
          await request('pageSize=1000'),
          await request('pageSize=1&page=1'),
          await request('page=1000000000&pageSize=100'),
        ];
        const length = (answer: Answered) => rowsOf(endpoint, answer.json?.data)?.length;
        const total = one.json?.pagination?.totalItems ?? -1;
        const right =
          huge.json?.pagination?.pageSize === 100 &&
          length(one) === Math.min(1, total) &&
          one.json?.pagination?.totalPages === total &&
          length(far) === 0 &&
          far.json?.pagination?.totalItems === total;
        return right ? undefined : `${huge.text.slice(-100)} ${one.text.slice(-100)} ${far.text.slice(-100)}`;
      },
    );
    expect(lines).toEqual([]);
  });

  test.each(['', 'a b', '\u00e9', 'x'.repeat(129), '<script>', '{"a":1}', "';--"])(
    'the request id %p is invalid and replaced',
    async (given) => {
      const answer = await send(service.url, { path: '/api/students', headers: { 'x-request-id': given } });
      expect(answer.headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
      expect(answer.json?.request_id).toBe(answer.headers['x-request-id']);
    },
  );

  test('an unknown path returns 404 in the envelope, even with unusual characters', async () => {
    for (const path of [
      '/api/nothing',
      '/api//students',
      '/api/students/1/nothing',
      '/nothing',
      '/api/../etc/passwd',
      '/api/__proto__',
      '/.env',
      '/api/students%2F1',
      '//students',
    ]) {
      const answer = await send(service.url, { path, token: school.admin.token });
      expect([path, errorMismatch(answer, 404, 'not_found')]).toEqual([path, undefined]);
    }
  });
});
