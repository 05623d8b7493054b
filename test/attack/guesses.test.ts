import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { populate } from '../support/fixtures/populate.ts';
import { type Answered, send } from '../support/client/wire.ts';
import { type Registered, registry, sampleRequest } from '../support/server/registry.ts';
import { type School, testService, unique } from '../support/server/service.ts';

const service = await testService();
afterAll(() => service.close());
const { endpoints, document, operations } = await registry(service);

/** The id of the one record in every table of the school. */
const id = 500_001;
const readerOf = ({ operation }: Registered) => operations.find(({ name }) => name === operation.reader);
/** What another permission reads than the one that changes it, and staff cannot read without it. */
const answering = endpoints.filter((endpoint) => {
  const reader = readerOf(endpoint);
  return reader !== undefined && reader.open_to !== 'everyone_staff_all' && endpoint.method !== 'DELETE';
});

let school: School;
let allPermissions: { id: number; name: string }[];
beforeAll(async () => {
  school = await service.school();
  await populate(service, school, { endpoints, document }, id - 1, 'School');
  allPermissions = (await school.admin.get<typeof allPermissions>('/api/rbac/permissions')).data;
}, 180_000);

describe('a user who may change records and not read them learns nothing by guessing:', () => {
  const updates = answering.filter(
    ({ method, route, path }) =>
      method === 'PUT' && route.body && 'shape' in route.body && endpoints.some((one) => one.name === `GET ${path}`),
  );
  const withoutReading = async (endpoint: Registered) =>
    school.user([
      await school.role(
        ...allPermissions.map(({ name }) => name).filter((name) => name !== readerOf(endpoint)?.permission),
      ),
    ]);
  const path = (endpoint: Registered) => sampleRequest(document, endpoint, { id }).path;
  /** The record as an admin reads it, and its ETag. */
  const stored = async (endpoint: Registered) => {
    const { json, headers } = await send(service.url, { path: path(endpoint), token: school.admin.token });
    return { fields: json?.data as Record<string, unknown>, etag: String(headers.etag) };
  };
  const said = ({ json }: Answered) => JSON.stringify({ ...json, request_id: undefined });
  /** What a right and a wrong guess are answered; a line if the answers differ. */
  const difference = async (endpoint: Registered, token: string, name: string, right: object, wrong: object) => {
    const [first, second] = [
      await send(service.url, { method: 'PUT', path: path(endpoint), token, ...right }),
      await send(service.url, { method: 'PUT', path: path(endpoint), token, ...wrong }),
    ];
    return first.status !== second.status || said(first) !== said(second)
      ? [`${endpoint.name} ${name}: ${first.text} ${second.text}`]
      : [];
  };

  test('guesses of the fields and the version of a record get the same answer, right or wrong', async () => {
    const lines: string[] = [];
    let count = 0;
    for (const endpoint of updates) {
      const { token } = await withoutReading(endpoint);
      const { fields, etag } = await stored(endpoint);
      const shape = endpoint.route.body && 'shape' in endpoint.route.body ? endpoint.route.body.shape : {};
      // The path has the id, so it is no guess.
      for (const [name, value] of Object.entries(fields).filter(([field]) => !(field in shape) && field !== 'id')) {
        count += 1;
        const guesses = [value, typeof value === 'number' ? value + 1 : 'other'];
        const [right, wrong] = guesses.map((guess) => ({ body: { [name]: guess } }));
        lines.push(...(await difference(endpoint, token, name, right ?? {}, wrong ?? {})));
      }
      const [right, wrong] = [etag, '"other"'].map((tag) => ({ body: {}, headers: { 'if-match': tag } }));
      lines.push(...(await difference(endpoint, token, 'If-Match', right ?? {}, wrong ?? {})));
    }
    expect(lines).toEqual([]);
    expect(updates.length).toBeGreaterThan(15);
    expect(count).toBeGreaterThan(100);
  });

  test('an implausible date is refused, also if the record has it', async () => {
    const lines: string[] = [];
    const tried: string[] = [];
    const tables = await service.database.query<{ name: string; table: string }>(
      'select name, table_name as table from core.record',
    );
    for (const endpoint of updates) {
      const table = tables.find(({ name }) => name === endpoint.operation.record)?.table;
      const { fields } = await stored(endpoint);
      const days = Object.keys(fields).filter((name) => /^\d{4}-\d\d-\d\d$/.test(String(fields[name])));
      const { token } = await withoutReading(endpoint);
      for (const name of table === undefined ? [] : days) {
        const set = async (day: string) =>
          service.database.query(`update ${school.schema}.${String(table)} set ${name} = $1 where id = $2`, [day, id]);
        const body = { [name]: '1500-01-01' };
        const refusal = await send(service.url, {
          ...{ method: 'PUT', path: path(endpoint), token: school.admin.token, body },
        });
        // The columns of some records have other names or rules.
        if (!refusal.text.includes('must be between') || !(await set('1500-01-01').catch(() => undefined))) continue;
        tried.push(name);
        const same = await send(service.url, {
          ...{ method: 'PUT', path: path(endpoint), token: school.admin.token, body },
        });
        if (same.status !== 200) lines.push(`${endpoint.name} ${name} ${same.text}`);
        lines.push(...(await difference(endpoint, token, name, { body }, { body: { [name]: '1500-01-02' } })));
        await set(String(fields[name]));
      }
    }
    expect(lines).toEqual([]);
    expect(tried.length).toBeGreaterThan(2);
  });

  test('a paid invoice refuses items to a user who may not read it, also those that it has', async () => {
    const invoice = endpoints.find(({ operation }) => operation.name === 'invoices_update');
    if (!invoice) throw new Error('There are no invoices.');
    const { token } = await withoutReading(invoice);
    const { fields } = await stored(invoice);
    const items = fields['items'] as Record<string, unknown>[];
    const [right, wrong] = [items, items.map((item) => ({ ...item, amount: 1 }))].map((each) => ({
      body: { items: each },
    }));
    expect(await difference(invoice, token, 'items', right ?? {}, wrong ?? {})).toEqual([]);
  });

  test('a create by a user who may not read does not check read-only fields', async () => {
    const lines: string[] = [];
    const creates = answering.filter(({ route }) => route.response.kind === 'created' && !route.upload);
    for (const endpoint of creates) {
      const { token } = await withoutReading(endpoint);
      const { data } = endpoint.route.response as { data: { shape?: object } };
      const shape = endpoint.route.body && 'shape' in endpoint.route.body ? endpoint.route.body.shape : {};
      const computed = Object.keys(data.shape ?? {}).filter((name) => !(name in shape));
      const create = async (guesses: object) => {
        const sample = sampleRequest(document, endpoint, { id, marker: unique('g') });
        return send(service.url, { ...sample, token, body: { ...(sample.body as object), ...guesses } });
      };
      const guessed = await create(Object.fromEntries(computed.map((name) => [name, 'other'])));
      if (guessed.status === 400) lines.push(`${endpoint.name} ${guessed.text}`);
    }
    expect(lines).toEqual([]);
    expect(creates.length).toBeGreaterThan(10);
  });
});
