import { beforeAll, describe, expect, test } from '@jest/globals';
import { populate } from '../support/fixtures/populate.ts';
import { fileForm } from '../support/fixtures/pictures.ts';
import { send } from '../support/client/wire.ts';
import {
  isForOperators,
  isForSchools,
  plain,
  type Registered,
  registry,
  samplePath,
  sampleRequest,
  type Schema,
} from '../support/server/registry.ts';
import { serviceWithSchool } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { endpoints, document } = await registry(service);
const base = 7000;
const sample = { id: base + 1 };

/** 9 hours ahead of UTC, without daylight saving time. */
const zone = 'Asia/Tokyo';
const today = new Intl.DateTimeFormat('en-CA', { timeZone: zone }).format(new Date());

/** A day that is some years and days from another one. 29 February becomes the 28th, as in Postgres. */
function shifted(day: string, years: number, days = 0): string {
  const [year = 0, month = 1, date = 1] = day.split('-').map(Number);
  const moved = new Date(Date.UTC(year + years, month - 1, date));
  if (moved.getUTCDate() !== date) moved.setUTCDate(0);
  return new Date(moved.getTime() + days * 86_400_000).toISOString().slice(0, 10);
}
const next = (day: string) => shifted(day, 0, 1);
const previous = (day: string) => shifted(day, 0, -1);

/** The plausible years before and after today of each date in a body. */
const ranges: Record<string, [before: number, after: number]> = {
  date_of_birth: [120, 0],
  joined_on: [80, 1],
  payment_date: [10, 0],
  due_date: [2, 10],
  insurance_expires_on: [20, 50],
  fitness_expires_on: [20, 50],
  license_expires_on: [20, 50],
  left_on: [80, 2],
  // Years, terms, leaves, absences, holidays, exceptions, lessons, assignments of buses.
  start_date: [20, 10],
  end_date: [20, 10],
  date: [20, 10],
  starts_on: [20, 10],
  ends_on: [20, 10],
  from_date: [20, 10],
  to_date: [20, 10],
};

const isDate = (schema: Schema) => plain(document, schema).format === 'date';

const inBodies = endpoints.flatMap((endpoint) =>
  Object.entries(endpoint.body ? (plain(document, endpoint.body).properties ?? {}) : {})
    .filter(([, schema]) => isDate(schema) && schema.readOnly !== true)
    .map(([field]) => ({ name: `${field} of ${endpoint.name}`, endpoint, field })),
);
const inQueries = endpoints
  // Only for students, with the parameters of GET /api/attendance/student/{student_id}.
  .filter(({ path }) => path !== '/api/attendance/me')
  .flatMap((endpoint) =>
    endpoint.query
      .filter(({ schema }) => isDate(schema))
      .map(({ name: field }) => ({ name: `${field} of ${endpoint.name}`, endpoint, field })),
  );

const tokenFor = (endpoint: Registered) => (isForOperators(endpoint) ? service.operator.token : school.admin.token);

/** The messages about one field in the answer to a request with this value. */
async function messages(endpoint: Registered, field: string, value: string): Promise<string[]> {
  const request = sampleRequest(document, endpoint, sample, { body: { [field]: value } });
  const { status, json, text } = await send(service.url, { ...request, token: tokenFor(endpoint) });
  if (![200, 201, 400, 409].includes(status)) throw new Error(`${endpoint.name}: ${text}`);
  const details = (json?.details ?? []) as { path: string; message: string }[];
  return details.filter(({ path }) => path === field).map(({ message }) => message);
}

beforeAll(async () => {
  await populate(
    service,
    school,
    { document, endpoints: endpoints.filter((endpoint) => isForSchools(endpoint)) },
    base,
    'days',
  );
  await school.database.query('update platform.tenant set time_zone = $2 where id = $1', [school.id, zone]);
});

describe('a date in a body', () => {
  test('is found in many endpoints', () => {
    expect(inBodies.length).toBeGreaterThan(25);
    expect(inQueries.length).toBeGreaterThan(20);
  });

  test.each(inBodies)('has a plausible range that its message names: $name', async ({ endpoint, field }) => {
    const [before, after] = ranges[field] ?? [NaN, NaN];
    const [from, to] = [shifted(today, -before), shifted(today, after)];
    const message = `must be between ${from} and ${to}`;
    for (const implausible of ['1000-01-01', previous(from), next(to), '9999-12-31'])
      expect([implausible, await messages(endpoint, field, implausible)]).toEqual([implausible, [message]]);
    for (const plausible of [from, to]) expect(await messages(endpoint, field, plausible)).not.toContain(message);
  });

  test.each(inBodies)(
    'may be a timestamp, which is its date at 00:00, and else its day at the school: $name',
    async ({ endpoint, field }) => {
      const [before, after] = ranges[field] ?? [NaN, NaN];
      const [from, to] = [shifted(today, -before), shifted(today, after)];
      const message = `must be between ${from} and ${to}`;
      const first = [
        `${from}T00:00:00+14:00`,
        `${from}T00:00:00.000Z`,
        `${from}T23:00:00`,
        `${previous(from)}T15:00:00Z`,
      ];
      const last = [`${to}T00:00:00-11:00`, `${to}T14:59:59.999Z`, `${next(to)}T03:59:00+14:00`];
      for (const plausible of [...first, ...last])
        expect([plausible, await messages(endpoint, field, plausible)]).not.toEqual([plausible, [message]]);
      for (const implausible of [`${previous(from)}T14:59:59.999Z`, `${to}T15:00:00.000Z`, `${to}T10:00:00-05:00`])
        expect([implausible, await messages(endpoint, field, implausible)]).toEqual([implausible, [message]]);
    },
  );
});

describe('a date in a query', () => {
  test.each(inQueries)('may be a timestamp: $name', async ({ endpoint, field }) => {
    const token = tokenFor(endpoint);
    // Operators have no school; their days are in UTC.
    const hour = isForOperators(endpoint) ? 'T00:00:00.001Z' : 'T15:00:00.000Z';
    const day = today;
    const moment = isForOperators(endpoint) ? `${day}${hour}` : `${previous(day)}${hour}`;
    const ask = async (value: string) => {
      const [path = ''] = samplePath(document, endpoint, sample).split('?');
      const query = new URLSearchParams({ [field]: value }).toString();
      const { status, text } = await send(service.url, {
        path: `${path}?${query}`,
        token,
      });
      // Each export of the audit log adds an entry to it.
      const lines = text.split('\n').filter((line) => !line.includes('audit_log.export'));
      return { status, text: lines.join('\n').replace(/"request_id":"[^"]*"/, '') };
    };
    const asDay = await ask(day);
    expect(asDay.status).toBe(200);
    expect(await ask(`${day}T00:00:00-10:00`)).toEqual(asDay);
    if (!asDay.text.startsWith('PK')) expect(await ask(moment)).toEqual(asDay);
    for (const wrong of ['2026-02-30', '0999-12-31', `${day}T25:00:00Z`, '9999-12-31T23:00:00-05:00'])
      expect([wrong, (await ask(wrong)).status]).toEqual([wrong, 400]);
  });

  const pairs = inQueries.flatMap(({ endpoint, field }) => {
    const last = { from_date: 'to_date', due_from: 'due_to' }[field];
    return last === undefined || isForOperators(endpoint)
      ? []
      : [{ name: `${field} of ${endpoint.name}`, endpoint, first: field, last }];
  });

  test.each(pairs)('is compared with the other end of its range as a day of the school: $name', async (pair) => {
    const { endpoint, first, last } = pair;
    const ask = async (to: string) => {
      const [path = ''] = samplePath(document, endpoint, sample).split('?');
      const query = new URLSearchParams({ [first]: today, [last]: to }).toString();
      const { status, json } = await send(service.url, {
        path: `${path}?${query}`,
        token: school.admin.token,
      });
      return status === 200 ? [] : json?.details;
    };
    const fault = [{ path: last, message: `must not be before ${first}` }];
    expect(await ask(`${previous(today)}T00:00:00.000Z`)).toEqual(fault);
    expect(await ask(`${today}T00:00:00.000Z`)).toEqual([]);
    expect(await ask(`${previous(today)}T14:59:59Z`)).toEqual(fault);
    expect(await ask(`${previous(today)}T15:00Z`)).toEqual([]);
  });
});

describe('a value that does not change', () => {
  const long = '1850-01-01';
  const stored: [table: string, path: string, field: string, stored: string][] = [
    ['student', '/api/students', 'date_of_birth', long],
    ['teacher', '/api/teachers', 'joined_on', long],
    ['holiday', '/api/holidays', 'date', long],
    ['bus', '/api/transport/buses', 'insurance_expires_on', long],
    ['driver', '/api/transport/drivers', 'license_expires_on', long],
    ['fee_structure', '/api/finance/fee-structures', 'due_date', long],
    ['invoice', '/api/fees/invoices', 'due_date', '2999-12-31'],
  ];

  test.each(stored)('is exempt from the range: %s', async (table, path, field, value) => {
    const invoice = { student_id: sample.id, due_date: today, items: [{ description: 'Book', amount: 5 }] };
    const id =
      table === 'invoice'
        ? (await school.admin.post<{ id: number }>(path, { ...invoice, status: 'draft' }, 201)).data.id
        : sample.id;
    await school.database.query(`update ${school.schema}.${table} set ${field} = $2 where id = $1`, [id, value]);
    const record = `${path}/${id}`;
    const { data } = await school.admin.get<Record<string, unknown>>(record);
    expect(data[field]).toBe(value);
    expect((await school.admin.put<Record<string, unknown>>(record, data)).data[field]).toBe(value);
    const other = shifted(value, 0, 1);
    const refused = await school.admin.put(record, { [field]: other }, 400);
    expect(refused.details).toEqual([{ path: field, message: expect.stringMatching(/^must be between/) }]);
    // The value of another record does not count, and a null is no value.
    await school.admin.send('POST', path, { body: { [field]: value } }, 400);
  });

  test('is exempt from the range of moments too, with any offset', async () => {
    const key = { name: 'Stored key', permissions: ['student.read'] };
    const { data } = await school.admin.post<{ id: number }>('/api/api-keys', key, 201);
    const path = `/api/api-keys/${data.id}`;
    await school.database.query(`update ${school.schema}.api_key set expires_at = $2 where id = $1`, [
      data.id,
      '2999-12-31T22:30:00Z',
    ]);
    for (const [name, expires_at] of [
      ['Same text', (await school.admin.get<{ expires_at: string }>(path)).data.expires_at],
      ['Same moment', '3000-01-01T07:30:00+09:00'],
    ]) {
      const changed = await school.admin.put<{ expires_at: string }>(path, { name, expires_at });
      expect(changed.data).toMatchObject({ name, expires_at: expect.stringContaining('2999-12-31T22:30:00') });
    }
    const refused = await school.admin.put(path, { expires_at: '2999-12-31T22:30:00+09:00' }, 400);
    expect(refused.details).toMatchObject([{ path: 'expires_at' }]);
  });
});

test('a leave may be a year long, and not longer', async () => {
  const leave = { leave_type: 'study', start_date: '2031-01-01', end_date: '2032-01-01' };
  const teacher_id = sample.id;
  const refused = await school.admin.post(
    '/api/teachers/leaves',
    { ...leave, teacher_id, end_date: '2032-01-02' },
    400,
  );
  expect(refused.details).toEqual([{ path: 'end_date', message: 'must be less than 366 days after start_date' }]);
  await school.admin.post('/api/teachers/leaves', { ...leave, teacher_id }, 201);
});

test('an API key that expires in more than a hundred years is refused', async () => {
  const body = {
    name: 'Key',
    permissions: ['student.read'],
    expires_at: `${Number(today.slice(0, 4)) + 101}-01-01T00:00:00Z`,
  };
  const refused = await school.admin.post('/api/api-keys', body, 400);
  expect(refused.details).toMatchObject([
    { path: 'expires_at', message: expect.stringContaining(shifted(today, 100)) },
  ]);
});

test('an imported file has the days of its timestamps at the school, and an error for each implausible date by row', async () => {
  const csv = [
    'first_name,last_name,date_of_birth,joined_on',
    `Ada,Byron,1990-05-05T22:00:00.000Z,2015-09-01T00:00:00.000Z`,
    `Ben,Byron,${next(today)},1900-01-01`,
    `Cem,Byron,1890-01-01,${shifted(today, 1, 1)}`,
  ].join('\n');
  const upload = async (text: string, query: string, status: number) => {
    const body = fileForm(Buffer.from(text), 'people.csv', 'text/csv', 'file');
    const path = `/api/teachers/import${query}`;
    return school.admin.send<{ valid: number; errors: object[]; ids: number[] }>('POST', path, { body }, status);
  };
  const births = `must be between ${shifted(today, -120)} and ${today}`;
  const joinings = `must be between ${shifted(today, -80)} and ${shifted(today, 1)}`;
  const { data } = await upload(csv, '?dry_run=true', 200);
  expect(data.valid).toBe(1);
  expect(data.errors).toEqual([
    { row: 3, column: 'joined_on', message: joinings },
    { row: 3, column: 'date_of_birth', message: births },
    { row: 4, column: 'joined_on', message: joinings },
    { row: 4, column: 'date_of_birth', message: births },
  ]);
  expect((await upload(csv, '', 400)).details).toHaveLength(4);
  const imported = await upload(csv.split('\n').slice(0, 2).join('\n'), '', 201);
  const { data: ada } = await school.admin.get(`/api/teachers/${imported.data.ids[0] ?? 0}`);
  expect(ada).toMatchObject({ date_of_birth: '1990-05-06', joined_on: '2015-09-01' });
});
