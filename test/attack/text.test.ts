import { beforeAll, describe, expect, test } from '@jest/globals';
import { platformKind, platformRecords } from '../support/fixtures/platform-records.ts';
import { populate } from '../support/fixtures/populate.ts';
import {
  findErrors,
  isForOperators,
  isForSchools,
  plain,
  type Registered,
  registry,
  samplePath,
  sampleRequest,
  type Schema,
} from '../support/server/registry.ts';
import { serviceWithSchool, testPassword } from '../support/server/service.ts';
import { type Answered, send, type Sent } from '../support/client/wire.ts';

const { service, school } = await serviceWithSchool();
const { endpoints, document } = await registry(service);
const known = 500_001;
/** The same text in two forms. */
const decomposed = 'Cafe\u0301 A\u030ake';
const composed = decomposed.normalize();

let ofPlatform: Record<string, number>;
beforeAll(async () => {
  ofPlatform = await platformRecords(service, school);
  expect(await populate(service, school, { endpoints, document }, known - 1, 'stored')).toEqual([]);
});

const isOwn = (endpoint: Registered) =>
  (isForSchools(endpoint) || isForOperators(endpoint)) && endpoint.operation.role === null;
const own = endpoints.filter(isOwn);
const idOf = (endpoint: Registered) =>
  isForOperators(endpoint) ? (ofPlatform[platformKind(endpoint.path)] ?? known) : known;
const pathOf = (endpoint: Registered) => samplePath(document, endpoint, { id: idOf(endpoint) });
const request = (endpoint: Registered, sent: Partial<Sent> = {}) =>
  send(service.url, {
    method: endpoint.method,
    path: pathOf(endpoint),
    token: isForOperators(endpoint) ? service.operator.token : school.admin.token,
    ...sent,
  });
const withBody = own.filter(({ body, documented }) => body && documented.requestBody?.content['application/json']);

/** Where an answer does not refuse the request with 400 and name the place of the fault. */
const refusalMismatch = ({ status, text, json }: Answered, path: string, error = 'validation_error') =>
  status === 400 && json?.error === error && (json.details?.[0]?.path ?? '') === path
    ? undefined
    : `${String(status)} ${text.slice(0, 200)}`;

/** The fields of a body that are free text: no list of values, format or pattern. */
function textFields({ body }: Registered): string[] {
  const isText = (given: Schema): boolean => {
    const schema = plain(document, given);
    if (schema.anyOf) return schema.anyOf.some(isText);
    return [schema.type].flat().includes('string') && !schema.enum && !schema.format && !schema.pattern;
  };
  const fields = Object.entries((body && plain(document, body).properties) ?? {});
  return fields.filter(([, schema]) => isText(schema)).map(([name]) => name);
}

describe('every text of a body', () => {
  test('is refused with invalid UTF-8', async () => {
    expect(withBody.length).toBeGreaterThan(90);
    const lines = await findErrors(withBody, async (endpoint) => {
      for (const field of ['x', ...textFields(endpoint)]) {
        const body = Buffer.from(`{"${field}":"M\xfcller"}`, 'latin1');
        const mismatch = refusalMismatch(await request(endpoint, { body }), '', 'malformed_json');
        if (mismatch) return `${field}: ${mismatch}`;
      }
      return undefined;
    });
    expect(lines).toEqual([]);
  });

  test('is refused with half of a surrogate pair, and the field is named', async () => {
    let count = 0;
    const lines = await findErrors(withBody, async (endpoint) => {
      for (const field of textFields(endpoint)) {
        count += 1;
        const answer = await request(endpoint, { body: `{"${field}":"M\\ud800ller"}` });
        const mismatch = refusalMismatch(answer, field);
        if (mismatch) return `${field}: ${mismatch}`;
      }
      return undefined;
    });
    expect(count).toBeGreaterThan(150);
    expect(lines).toEqual([]);
  });

  test('that must not be empty is refused if it shows nothing, and the field is named', async () => {
    let count = 0;
    const lines = await findErrors(withBody, async (endpoint) => {
      const { properties = {}, required = [] } = endpoint.body ? plain(document, endpoint.body) : {};
      const isUpdate = endpoint.method !== 'POST';
      // As empty text, it leaves an optional field out, or makes it null. A password to verify may be any.
      const filled = textFields(endpoint).filter(
        (field) =>
          (plain(document, properties[field] ?? {}).minLength ?? 0) > 0 &&
          (isUpdate ? !JSON.stringify(properties[field]).includes('"null"') : required.includes(field)) &&
          !field.endsWith('password'),
      );
      for (const field of filled)
        for (const text of ['\u200b', '\u3164 \u00ad', '\u2800', '\u180e\u2060\ufeff']) {
          count += 1;
          const answer = await request(endpoint, { body: { [field]: text } });
          if (answer.status !== 400 || !answer.json?.details?.some(({ path }) => path === field))
            return `${field}: ${String(answer.status)} ${answer.text.slice(0, 200)}`;
        }
      return undefined;
    });
    expect(count).toBeGreaterThan(150);
    expect(lines).toEqual([]);
  });

  test('is stored in NFC', async () => {
    await findErrors(withBody, async (endpoint) => {
      const sample = sampleRequest(document, endpoint, { id: idOf(endpoint), marker: decomposed });
      await request(endpoint, { body: sample.body });
      // A partial update of each text alone, because the whole body may be refused for another reason.
      if (endpoint.method !== 'POST')
        for (const field of textFields(endpoint)) await request(endpoint, { body: { [field]: decomposed } });
      return undefined;
    });
    const columns = await school.database.query<{ schema: string; table: string; column: string }>(
      `select c.table_schema as schema, c.table_name as table, c.column_name as column
       from information_schema.columns c join information_schema.tables t using (table_schema, table_name)
       where c.table_schema in ('platform', $1) and t.table_type = 'BASE TABLE' and c.is_generated = 'NEVER'
         and c.data_type in ('text', 'ARRAY', 'json', 'jsonb')`,
      [school.schema],
    );
    const found = await Promise.all(
      columns.map(async ({ schema, table, column }) => {
        const [row] = await school.database.query<{ other: string; normal: string }>(
          `select count(*) filter (where "${column}"::text is not normalized) as other,
             count(*) filter (where position($1 in "${column}"::text) > 0) as normal from ${schema}."${table}"`,
          [composed],
        );
        return { name: `${table}.${column}`, other: Number(row?.other), normal: Number(row?.normal) };
      }),
    );
    expect(found.filter(({ other }) => other > 0)).toEqual([]);
    expect(found.filter(({ normal }) => normal > 0).length).toBeGreaterThan(60);
  });

  test('is stored in NFC also where no schema describes it, at any depth and in keys', async () => {
    const variables = { [decomposed]: [{ [decomposed]: decomposed }] };
    const body = { name: 'Forms', query: '{ tenants { totalCount } }', variables };
    const { token } = service.operator;
    const { json } = await send(service.url, { method: 'POST', path: '/api/platform/questions', token, body });
    expect(json?.data).toMatchObject({ variables: { [composed]: [{ [composed]: composed }] } });
  });
});

test('every parameter of a query is refused with invalid UTF-8 in percent-encoding, and is named', async () => {
  const asked = own.filter(({ method, query }) => method === 'GET' && query.length > 0);
  expect(asked.length).toBeGreaterThan(60);
  const lines = await findErrors(asked, async (endpoint) => {
    for (const { name } of endpoint.query)
      for (const value of ['%FC', 'M%fcller', '100%', '%ED%A0%80', '%C0%80']) {
        const mismatch = refusalMismatch(
          await request(endpoint, { path: `${pathOf(endpoint).split('?')[0] ?? ''}?${name}=${value}` }),
          name,
        );
        if (mismatch) return `${name}=${value}: ${mismatch}`;
      }
    return undefined;
  });
  expect(lines).toEqual([]);
});

test('every parameter of a path is refused with invalid UTF-8 in percent-encoding', async () => {
  const withParameters = own.filter(({ parameters }) => parameters.length > 0);
  expect(withParameters.length).toBeGreaterThan(150);
  const lines = await findErrors(withParameters, async (endpoint) => {
    for (const parameter of endpoint.parameters) {
      const path = samplePath(document, endpoint, { id: idOf(endpoint) }, { [parameter]: 'XX' });
      const mismatch = refusalMismatch(await request(endpoint, { path: path.replace('XX', '%FC') }), '');
      if (mismatch) return `${parameter}: ${mismatch}`;
    }
    return undefined;
  });
  expect(lines).toEqual([]);
});

test('a search is the same in every form', async () => {
  const { data } = await school.admin.post<{ id: number }>(
    '/api/students',
    { first_name: 'Ünal', last_name: 'Åke' },
    201,
  );
  for (const search of ['%C3%9Cnal', 'U%CC%88nal', 'A%CC%8Ake+%C3%BCnal']) {
    const answer = await send(service.url, { path: `/api/students?search=${search}`, token: school.admin.token });
    expect(answer.json?.data).toMatchObject([{ id: data.id }]);
  }
});

test('a path with bytes that are not percent-encoded is refused', async () => {
  const path = `/api/students?search=${Buffer.from('Ünal').toString('latin1')}`;
  expect((await send(service.url, { path, token: school.admin.token })).status).toBe(400);
});

describe('a header that is stored', () => {
  const asBytes = (text: string) => Buffer.from(text).toString('latin1');
  const create = (agent: string) =>
    send(service.url, {
      method: 'POST',
      path: '/api/auth/login',
      headers: { 'user-agent': agent },
      // With text, Node would send the headers in UTF-8 too.
      body: Buffer.from(JSON.stringify({ tenant_id: school.id, email: school.adminEmail, password: testPassword })),
    });

  test('is refused with invalid UTF-8, and is named', async () => {
    const answer = await create('M\xfcller/1.0');
    expect(refusalMismatch(answer, 'user-agent')).toBe(undefined);
  });

  test('is stored in NFC', async () => {
    const answer = await create(asBytes('App of Mu\u0308ller 😀'));
    expect(answer.status).toBe(200);
    const { access_token } = answer.json?.data as { access_token: string };
    const sessions = await send(service.url, { path: '/api/auth/sessions', token: access_token });
    expect(sessions.text).toContain('App of Müller 😀');
  });
});

describe('a multipart body', () => {
  const boundary = 'limit';
  /** A part with these bytes, written as Latin-1. */
  const part = (head: string, content: string) =>
    `--${boundary}\r\nContent-Disposition: form-data; ${head}\r\n\r\n${content}\r\n`;
  const upload = (path: string, ...parts: string[]) =>
    send(service.url, {
      method: 'POST',
      path,
      token: school.admin.token,
      headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
      body: Buffer.from(`${parts.join('')}--${boundary}--\r\n`, 'latin1'),
    });
  const documents = `/api/students/${String(known)}/documents`;
  const pdf = (name: string) => part(`name="file"; ${name}\r\nContent-Type: application/pdf`, '%PDF-1.4\n%%EOF\n');
  const bytes = (text: string) => Buffer.from(text).toString('latin1');

  test.each([
    ['a field', 'description', [part('name="description"', 'M\xfcller'), pdf('filename="a.pdf"')]],
    [
      'a field with a charset',
      'description',
      [part('name="description"\r\nContent-Type: text/plain; charset=utf-8', 'M\xfcller'), pdf('filename="a.pdf"')],
    ],
    ['the name of a file', 'file', [pdf('filename="M\xfcller.pdf"')]],
    ['the encoded name of a file', 'file', [pdf("filename*=UTF-8''M%FCller.pdf")]],
  ])('is refused with invalid UTF-8 in %s, which is named', async (_what, path, parts) => {
    expect(refusalMismatch(await upload(documents, ...parts), path)).toBe(undefined);
  });

  test('stores its fields and the name of its file in NFC', async () => {
    const answer = await upload(
      documents,
      part('name="description"', bytes(decomposed)),
      pdf(`filename="${bytes(decomposed)}.pdf"`),
    );
    expect(answer.json?.data).toMatchObject({ name: `${composed}.pdf`, description: composed });
  });

  test('of an import is refused with invalid UTF-8, and stores its cells in NFC', async () => {
    const csv = (text: string) =>
      part('name="file"; filename="a.csv"\r\nContent-Type: text/csv', `first_name,last_name\nEve,${text}\n`);
    expect((await upload('/api/students/import', csv('M\xfcller'))).status).toBe(415);
    const { json } = await upload('/api/students/import', csv(bytes(decomposed)));
    const [id] = (json?.data as { ids: number[] }).ids;
    expect((await school.admin.get<{ last_name: string }>(`/api/students/${String(id)}`)).data.last_name).toBe(
      composed,
    );
  });
});

test('two codes of subjects that differ only in their form are the same code', async () => {
  const post = (code: string) =>
    send(service.url, {
      method: 'POST',
      path: '/api/subjects',
      token: school.admin.token,
      body: { name: 'Economics', code },
    });
  expect((await post('\u00c9CO')).status).toBe(201);
  const again = await post('E\u0301CO');
  expect([again.status, again.json?.details?.[0]?.path]).toEqual([409, 'code']);
});
