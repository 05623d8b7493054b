import { isDeepStrictEqual } from 'node:util';
import { beforeAll, describe, expect, test } from '@jest/globals';
import type { z } from 'zod';
import { platformKind, platformRecords } from '../support/fixtures/platform-records.ts';
import { populate } from '../support/fixtures/populate.ts';
import {
  findErrors,
  isForOperators,
  isForSchools,
  pixel,
  plain,
  type Registered,
  registry,
  rowsOf,
  sampleBody,
  samplePath,
  sampleRequest,
  type Schema,
} from '../support/server/registry.ts';
import { serviceWithSchool } from '../support/server/service.ts';
import { type Answered, errorMismatch, send, type Sent } from '../support/client/wire.ts';

const { service, school } = await serviceWithSchool();
const { endpoints, document } = await registry(service);
const known = 500_001;
const unknown = 987_654_321;

type Body = Record<string, unknown>;

/** A value as a JavaScript client sends it back: it reads timestamps as `Date`, which has no microseconds. */
const throughDates = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value), (_key, part: unknown) =>
    typeof part === 'string' && /^\d{4}-\d\d-\d\dT/.test(part) ? new Date(part).toISOString() : part,
  );

const raise = (message: string): never => {
  throw new Error(message);
};

let ofPlatform: Record<string, number>;
beforeAll(async () => {
  ofPlatform = await platformRecords(service, school);
  expect(await populate(service, school, { endpoints, document }, known - 1, 'stored')).toEqual([]);
});

const isOwn = (endpoint: Registered) =>
  (isForSchools(endpoint) || isForOperators(endpoint)) && endpoint.operation.role === null;
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
const named = (answer: Answered) => (answer.json?.details ?? []).map(({ path }) => path).toSorted();
const record = (answer: Answered) => answer.json?.data as Body;

const allowsNull = (schema: Schema): boolean =>
  [schema.type].flat().includes('null') || (schema.anyOf ?? schema.oneOf ?? []).some(allowsNull);

/** The fields that a body may set. */
function fieldsOf({ body, route }: Registered): [string, Schema][] {
  const writable = route.body && 'shape' in route.body ? Object.keys(route.body.shape) : [];
  const schemas = Object.entries((body && plain(document, body).properties) ?? {});
  return schemas.filter(([name]) => writable.includes(name));
}

/** A body that changes one field of a record, the only one that does not need another one. */
function changeOf(update: Registered, stored: Body): Body {
  const over = changes[update.operation.name];
  if (over) return over;
  for (const [name, given] of fieldsOf(update)) {
    const schema = plain(document, given);
    const value = stored[name];
    if (typeof value === 'string' && !schema.enum && !schema.format && !schema.pattern && schema.const === undefined)
      return { [name]: `${value} changed` };
  }
  return {};
}
const changes: Record<string, Body> = {
  platform_operators_update: { role: 'admin' },
  class_subjects_update: { periods_per_week: 7 },
  invoices_update: { notes: 'Changed' },
  student_fees_update: { due_date: '2034-12-31' },
  timetable_config_update: { break_duration: 25 },
  timetable_slots_update: { is_pinned: false },
  transport_assignments_update: { ends_on: '2034-12-31' },
  holidays_update: { is_recurring: true },
  notifications_events_update: { is_enabled: false },
  students_guardians_update: { priority: 9 },
  guardians_preferences_update: {
    events: [
      ...['attendance.absent', 'attendance.late', 'fee.generated', 'holiday.added', 'invoice.reminder'],
      ...['payment.received', 'timetable.published'],
    ].map((key) => ({ key, is_enabled: key !== 'fee.generated' })),
  },
  platform_settings_update: { currency: 'EUR' },
  platform_notification_settings_update: { sender_name: 'Changed' },
  platform_notification_templates_update: { subject: 'Changed' },
  webhooks_update: { description: 'Changed' },
  platform_webhooks_update: { description: 'Changed' },
};

/** Describes how a record differs from the one before, apart from a change, and from names made of the changed text. */
function difference(before: Body, after: Body, change: Body = {}): string | undefined {
  const [[field, value] = ['', '']] = Object.entries(change);
  const differing = Object.keys({ ...before, ...after }).filter((name) => {
    const [old, now] = [before[name], after[name]];
    if (name === 'updated_at' || name === 'recent_audit_logs' || (name === field && isDeepStrictEqual(now, value)))
      return false;
    return (
      !isDeepStrictEqual(typeof old === 'string' ? old.replace(String(before[field]), String(value)) : old, now) &&
      !isDeepStrictEqual(old, now)
    );
  });
  return differing.length === 0 ? undefined : `changed ${differing.join()} ${JSON.stringify([before, after])}`;
}

test('an id that does not exist is a 404 at every endpoint with an id', async () => {
  const withId = endpoints.filter((each) => isOwn(each) && each.parameters.some((name) => name !== 'key'));
  const lines = await findErrors(withId, async (endpoint) => {
    const parameters = Object.fromEntries(endpoint.parameters.map((name) => [name, unknown]));
    const sent = sampleRequest(document, endpoint, { id: idOf(endpoint) }, { parameters });
    return errorMismatch(await request(endpoint, sent), 404, 'not_found');
  });
  expect(withId.length).toBeGreaterThan(150);
  expect(lines).toEqual([]);
});

describe('a record', () => {
  const at = (endpoint: Registered, method: string) =>
    endpoints.find((each) => each.path === endpoint.path && each.method === method);
  const readingOf = (update: Registered) => at(update, 'GET') ?? update;
  const updates = endpoints.filter(
    (each) => isOwn(each) && each.method === 'PUT' && fieldsOf(each).length > 0 && at(each, 'GET') !== undefined,
  );

  /** What a write leaves behind besides the record. */
  const traces = async () =>
    service.database.query<{ count: string }>(
      `select (select count(*) from platform.audit_log) as audit_entries,
        (select count(*) from platform.webhook_event) as platform_events,
        (select count(*) from ${school.schema}.webhook_event) as school_events`,
    );

  test('that is sent back as it was read stays the same, and leaves no trace', async () => {
    expect(updates.length).toBeGreaterThan(35);
    const lines = await findErrors(updates, async (update) => {
      const read = await request(readingOf(update));
      const before = await traces();
      const same = await request(update, { body: record(read) });
      if (same.status !== 200) return same.text;
      if (!isDeepStrictEqual(await traces(), before)) return 'leaves a trace';
      if (!isDeepStrictEqual(record(same), record(read))) return difference(record(read), record(same)) ?? same.text;
      const again = await request(readingOf(update));
      return again.headers.etag === read.headers.etag ? undefined : 'has a new ETag';
    });
    expect(lines).toEqual([]);
  });

  test('whose timestamps are sent back without microseconds stays the same, and leaves no trace', async () => {
    let count = 0;
    const lines = await findErrors(updates, async (update) => {
      const read = await request(readingOf(update));
      const body = throughDates(record(read));
      count += isDeepStrictEqual(body, record(read)) ? 0 : 1;
      const before = await traces();
      const same = await request(update, { body });
      if (same.status !== 200) return same.text;
      if (!isDeepStrictEqual(await traces(), before)) return 'leaves a trace';
      return isDeepStrictEqual(record(same), record(read)) ? undefined : same.text;
    });
    expect(count).toBeGreaterThan(25);
    expect(lines).toEqual([]);
  });

  /** Whether only the service sets a field, by the record of the update; without a record, unless it is a list or an object. */
  const fixedFields = async () => {
    const rows = await service.database.query<{ name: string; fixed: string[] | null }>(
      `select o.name, r.fixed_fields as fixed from core.operation o left join core.record r on r.name = o.present_record`,
    );
    const byUpdate = new Map(rows.map(({ name, fixed }) => [name, fixed]));
    return ({ operation }: Registered, name: string, value: unknown) =>
      /^(id|key|email|status)$|_(id|at)$/.test(name) ||
      (byUpdate.get(operation.name)?.includes(name) ?? (typeof value !== 'object' || value === null));
  };
  const readOnlyOf = ({ route }: Registered, stored: Body) =>
    Object.keys(stored).filter((name) => !(route.body && 'shape' in route.body && name in route.body.shape));

  test('is accepted with any values of derived fields, which may have changed since it was read', async () => {
    const fixed = await fixedFields();
    let count = 0;
    const lines = await findErrors(updates, async (update) => {
      const stored = record(await request(readingOf(update)));
      const derived = readOnlyOf(update, stored).filter((name) => !fixed(update, name, stored[name]));
      count += derived.length;
      const stale = Object.fromEntries(derived.map((name) => [name, 'what it was']));
      const same = await request(update, { body: { ...stored, ...stale } });
      return same.status === 200 ? difference(stored, record(same)) : same.text;
    });
    expect(count).toBeGreaterThan(60);
    expect(lines).toEqual([]);
  });

  /** They change without an edit, so an update ignores them. */
  const moving = ['last_login_at', 'last_used_at', 'next_run_at', 'last_run_at', 'failing_since', 'disabled_at'];

  test('is refused with a change of a field that only the service sets; the 400 names it', async () => {
    const fixed = await fixedFields();
    let count = 0;
    const lines = await findErrors(updates, async (update) => {
      const stored = record(await request(readingOf(update)));
      const names = readOnlyOf(update, stored).filter(
        (name) => fixed(update, name, stored[name]) && !moving.includes(name),
      );
      for (const name of [...names, ...(names.includes('id') ? [] : ['created_at'])]) {
        if (!(name in stored) || name === 'last_reminded_at') continue;
        count += 1;
        const value = typeof stored[name] === 'number' ? stored[name] + 1 : 'other';
        const changed = await request(update, { body: { ...stored, [name]: value } });
        if (changed.status !== 400 || named(changed).join() !== name) return `${name}: ${changed.text}`;
      }
      return undefined;
    });
    expect(count).toBeGreaterThan(100);
    expect(lines).toEqual([]);
  });

  test('is changed in one field, and never with an outdated If-Match', async () => {
    let count = 0;
    const lines = await findErrors(updates, async (update) => {
      const reading = readingOf(update);
      const first = await request(reading);
      const stored = record(first);
      const change = changeOf(update, stored);
      const changed = await request(update, { body: change });
      if (changed.status !== 200) return changed.text;
      const last = await request(reading);
      const fault = difference(stored, record(changed), change) ?? difference(record(changed), record(last));
      if (fault) return fault;
      const { etag } = first.headers;
      if (etag === undefined) return 'has no ETag';
      count += 1;
      const headers = { 'if-match': etag };
      for (const each of [update, at(update, 'DELETE')]) {
        if (!each) continue;
        const stale = await request(each, each === update ? { body: stored, headers } : { headers });
        const accepted = errorMismatch(stale, 412, 'precondition_failed');
        if (accepted) return accepted;
      }
      const { text } = await request(reading);
      if (text !== last.text) return `was changed: ${text}`;
      const current = String(last.headers.etag);
      const unmodified = await request(reading, { headers: { 'if-none-match': current } });
      if (unmodified.status !== 304) return `answered ${unmodified.status} to If-None-Match`;
      const again = await request(update, { body: record(last), headers: { 'if-match': current } });
      return again.status === 200 ? undefined : again.text;
    });
    expect(lines).toEqual([]);
    expect(count).toBeGreaterThan(35);
  });

  test('keeps every field that cannot be null: null is as if the field were absent', async () => {
    const lines = await findErrors(updates, async (update) => {
      const stored = record(await request(readingOf(update)));
      const required = fieldsOf(update).flatMap(([name, schema]) => (allowsNull(schema) ? [] : [name]));
      const same = await request(update, { body: Object.fromEntries(required.map((name) => [name, null])) });
      return same.status === 200 ? difference(stored, record(same)) : same.text;
    });
    expect(lines).toEqual([]);
  });
});

describe('what is read at another path than it is changed', () => {
  const find = (name: string) => endpoints.find((each) => each.name === name) ?? raise(`There is no ${name}.`);
  const part = (name: string) => (data: unknown) => (data as Body)[name];
  const asGrades = (grades: unknown) => ({ grades });
  const whole = (data: unknown) => data;

  beforeAll(async () => {
    const logo = `data:image/png;base64,${pixel.toString('base64')}`;
    await school.admin.post('/api/school-setup/school-info', { logo });
  });

  /** The change, what reads it, the part of that which is sent back, and a field of it that only the service sets. */
  const counterparts: [string, string, (data: unknown) => unknown, string | undefined][] = [
    ['POST /api/school-setup/school-info', '/api/school-setup/status', part('school'), 'logo_url'],
    ['POST /api/school-setup/academic-year', '/api/school-setup/status', part('academic_year'), 'id'],
    ['POST /api/school-setup/academic-year', `/api/academics/years/${known}`, whole, 'created_at'],
    ['POST /api/school-setup/grades', '/api/grades', asGrades, 'grades.0.id'],
    ['PUT /api/platform/tenants/{id}/subscription', '/api/platform/tenants/{id}', part('subscription'), 'started_at'],
    ['PUT /api/platform/tenants/{id}/subscription', '/api/platform/tenants/{id}', whole, 'created_at'],
    ['PUT /api/teachers/{id}/workload-rule', `/api/teachers/${known}/workload`, whole, 'teacher_id'],
    ['PUT /api/teachers/{id}/availability', `/api/teachers/${known}/availability`, whole, undefined],
    ['PUT /api/grades/{id}/subjects', `/api/grades/${known}/subjects`, whole, undefined],
  ];

  test.each(counterparts)('%s accepts what %s has, and changes nothing', async (name, path, sentBack, fixed) => {
    const write = find(name);
    const read = async () => request(write, { method: 'GET', path: path.replace('{id}', String(idOf(write))) });
    const first = await read();
    const body = sentBack(first.json?.data);
    expect(body).toBeInstanceOf(Object);
    for (const each of [body, throughDates(body)]) {
      const { status, text } = await request(write, { body: each as Body });
      expect([status, text]).toEqual([200, expect.anything()]);
    }
    expect((await read()).json?.data).toEqual(first.json?.data);
    if (fixed === undefined) return;
    const wrong = structuredClone(body) as Body;
    const field = fixed.split('.').at(-1) ?? '';
    const inner = fixed.startsWith('grades') ? ((wrong['grades'] as Body[])[0] ?? {}) : wrong;
    inner[field] = typeof inner[field] === 'number' ? unknown : 'other';
    const refused = await request(write, { body: wrong });
    expect([refused.status, named(refused)]).toEqual([400, [fixed]]);
  });
});

describe('a create', () => {
  const creates = endpoints.filter(
    (each) => isOwn(each) && each.route.response.kind === 'created' && fieldsOf(each).length > 0,
  );

  test('without a body names the required fields, and with wrong or long values every field', async () => {
    const lines = await findErrors(creates, async (create) => {
      const required = plain(document, create.body ?? {}).required ?? [];
      const empty = await request(create, { body: {} });
      const missing = [...required, ...(create.operation.name === 'platform_tenants_create' ? ['plan_id'] : [])];
      if (named(empty).join() !== missing.toSorted().join()) return `needs ${missing.join()}: ${empty.text}`;
      // Any object fits the variables of a query.
      const names = fieldsOf(create).flatMap(([name]) => (name === 'variables' && isForOperators(create) ? [] : name));
      const wrong = await request(create, { body: Object.fromEntries(names.map((name) => [name, { wrong: [] }])) });
      const long = fieldsOf(create).flatMap(([name, given]) => {
        const { maxLength } = plain(document, given);
        return maxLength === undefined ? [] : [[name, 'x'.repeat(maxLength + 1)] as const];
      });
      const tooLong = named(await request(create, { body: Object.fromEntries(long) }));
      const accepted = long.filter(([name]) => !tooLong.includes(name));
      if (accepted.length > 0) return `accepts long texts as ${accepted.map(([name]) => name).join()}`;
      const found = new Set(named(wrong).map((path) => path.split('.')[0]));
      return [...found].join() === names.toSorted().join() ? undefined : `has ${names.join()}: ${wrong.text}`;
    });
    expect(creates.length).toBeGreaterThan(35);
    expect(lines).toEqual([]);
  });

  test('accepts a field that the service sets if the new record has this value, and refuses other values', async () => {
    let count = 0;
    const lines = await findErrors(creates, async (create) => {
      const sample = (marker: string) => sampleBody(document, create, { id: known, marker }) as Body;
      const first = await request(create, { body: sample('set') });
      if (first.status !== 201) return undefined;
      const made = record(first);
      const readOnly = Object.keys(made).filter((name) => !fieldsOf(create).some(([field]) => field === name));
      // Texts, ids and moments differ from one record to the next.
      const constant = readOnly.filter((name) => typeof made[name] === 'boolean' || name.endsWith('status'));
      const same = Object.fromEntries(constant.map((name) => [name, made[name]]));
      const second = await request(create, { body: { ...sample('again'), ...same } });
      if (second.status === 400) return second.text;
      for (const name of readOnly.filter((each) => /^(id|status|created_at)$/.test(each))) {
        count += 1;
        const wrong = await request(create, { body: { ...sample('wrong'), [name]: 'other' } });
        if (wrong.status !== 409 && named(wrong).join() !== name) return `${name}: ${wrong.text}`;
      }
      return undefined;
    });
    expect(count).toBeGreaterThan(40);
    expect(lines).toEqual([]);
  });

  test('has a Location exactly if a GET answers there', async () => {
    let count = 0;
    const lines = await findErrors(creates, async (create) => {
      const isRead = endpoints.some(
        ({ method, path }) =>
          method === 'GET' && path.replace(/\/\{\w+\}$/, '') === create.path && path !== create.path,
      );
      const made = await request(create, { body: sampleBody(document, create, { id: known, marker: 'at' }) });
      const { location } = made.headers;
      if (location === undefined) return isRead && made.status === 201 ? 'has no Location' : undefined;
      count += 1;
      const read = await request(create, { method: 'GET', path: location });
      return read.status === 200 && record(read)['id'] === record(made)['id'] ? undefined : `${location} ${read.text}`;
    });
    expect(count).toBeGreaterThan(30);
    expect(lines).toEqual([]);
  });

  const notRepeated = [
    // The school has one with the same references.
    ...['class-subjects', 'academics/years', 'academic-terms', 'fees/payments', 'timetable/slots', 'transport/enroll'],
    ...['transport/schedules/exceptions', 'transport/bus-assignments', 'platform/notification-templates'],
    'students/{student_id}/guardians',
    // Another test has created one for the same days.
    'students/{student_id}/absences',
    // Only the first response has the secret.
    ...['schedule/feeds', 'webhooks', 'platform/webhooks', 'api-keys', 'platform/api-keys'],
  ].map((path) => `POST /api/${path}`);

  test('with the required fields creates one record, also if it is repeated with its Idempotency-Key', async () => {
    const repeated = creates.filter(({ name }) => !notRepeated.includes(name));
    const lines = await findErrors(repeated, async (create) => {
      const sent = {
        body: sampleBody(document, create, { id: known, marker: 'once' }),
        headers: { 'idempotency-key': create.operation.name },
      };
      const [first, second, third] = [
        await request(create, sent),
        ...(await Promise.all([request(create, sent), request(create, sent)])),
      ];
      if (first.status !== 201) return first.text;
      if (second.text !== first.text || third.text !== first.text) return `${first.text} ${second.text} ${third.text}`;
      const { location } = first.headers;
      if (location === undefined) return undefined;
      const read = await request(create, { method: 'GET', path: location });
      return read.status === 200 ? difference(record(first), record(read)) : read.text;
    });
    expect(repeated.length).toBeGreaterThan(25);
    expect(lines).toEqual([]);
  });
});

describe('a unique field', () => {
  const fields: [string, string, 'case-insensitive' | 'case-sensitive'][] = [
    ...['grades', 'school-units', 'programmes', 'mediums', 'religions', 'subject-contexts', 'document-types'].map(
      (list): [string, string, 'case-insensitive'] => [`/api/${list}`, 'name', 'case-insensitive'],
    ),
    ['/api/subjects', 'code', 'case-insensitive'],
    ['/api/rbac/roles', 'name', 'case-insensitive'],
    ['/api/users', 'email', 'case-insensitive'],
    ['/api/students', 'admission_number', 'case-sensitive'],
    ['/api/teachers', 'employee_number', 'case-sensitive'],
    ['/api/classes', 'name', 'case-insensitive'],
    ['/api/transport/buses', 'registration_number', 'case-insensitive'],
    ['/api/transport/drivers', 'license_number', 'case-insensitive'],
    ['/api/transport/routes', 'code', 'case-insensitive'],
    ['/api/finance/fee-structures', 'name', 'case-insensitive'],
    ['/api/notifications/templates', 'name', 'case-insensitive'],
    ['/api/transport/fee-plans', 'name', 'case-insensitive'],
    ['/api/platform/plans', 'name', 'case-insensitive'],
  ];

  test.each(fields)(
    '%s: %s is unique (%s); a second use gets a 409 that names the field',
    async (path, field, rule) => {
      const create = endpoints.find((each) => each.name === `POST ${path}`);
      const update = endpoints.find((each) => each.name === `PUT ${path}/{id}`);
      if (!create || !update) throw new Error(`There is no ${path}.`);
      const add = (value: string) =>
        request(create, {
          body: { ...(sampleBody(document, create, { id: known, marker: 'unique' }) as Body), [field]: value },
        });
      const kind = path.split('/').at(-1) ?? '';
      const taken = field === 'email' ? `taken-${kind}@school.example` : `taken ${kind}`;
      const first = await add(taken);
      expect(first.status).toBe(201);
      const other = rule === 'case-insensitive' ? taken.toUpperCase() : taken;
      // White space and invisible characters do not make another value (decision 0060).
      const alike = `\u200b${taken.replace(' ', '\u00a0 ')}\ufeff `;
      for (const answer of [
        await add(taken),
        await add(other),
        await add(alike),
        await request(update, { body: { [field]: other } }),
      ]) {
        expect(errorMismatch(answer, 409, 'conflict')).toBeUndefined();
        expect(named(answer)).toEqual([field]);
      }
      const race = await Promise.all(['both', 'both'].map((each) => add(taken.replace('taken', each))));
      expect(race.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([201, 409]);
      const id = record(first)['id'];
      const own = await request(update, { path: `${path}/${String(id)}`, body: { [field]: other } });
      expect(own.status).toBe(200);
    },
  );
});

// The last one, because it ends some records.
test('null in a field that only the service sets is as if it were absent, in every POST, PUT and PATCH', async () => {
  let count = 0;
  const writes = endpoints.filter((each) => isOwn(each) && each.method !== 'GET' && each.body && !each.route.upload);
  const lines = await findErrors(writes, async (write) => {
    const { response } = write.route;
    const shape = ('data' in response && 'shape' in response.data ? response.data.shape : {}) as Record<
      string,
      z.ZodType
    >;
    const body = write.route.body && 'shape' in write.route.body ? write.route.body.shape : shape;
    const isIgnored = (name: string) =>
      !(name in body) && (write.method === 'POST' || !shape[name]?.safeParse(null).success);
    const nulls = Object.fromEntries(Object.keys(shape).flatMap((name) => (isIgnored(name) ? [[name, null]] : [])));
    if (Object.keys(nulls).length === 0) return undefined;
    count += 1;
    const sample = sampleBody(document, write, { id: known, marker: 'null' }) as Body;
    const answer = await request(write, { body: { ...sample, ...nulls } });
    return answer.status >= 500 || named(answer).some((name) => name in nulls) ? answer.text : undefined;
  });
  expect(count).toBeGreaterThan(90);
  expect(lines).toEqual([]);
});

test('every entry of a list can be sent back as it was listed, also an ended or a deleted one', async () => {
  const path = (endpoint: Registered, listed: Body) => endpoint.path.replace(/\{\w+\}$/, String(listed['id']));
  const items = [{ description: 'Sent twice', amount: 1 }];
  const invoice = { student_id: known, due_date: `${new Date().getUTCFullYear()}-12-31`, items };
  const { data } = await school.admin.post<{ id: number }>('/api/fees/invoices', invoice, 201);
  await school.admin.post(`/api/fees/invoices/${data.id}/void`, { reason: 'Sent twice' });
  await school.admin.delete(`/api/students/${known}`);
  await service.operator.delete(`/api/platform/tenants/${(await service.school()).id}`);
  const lists = endpoints.filter((each) => isOwn(each) && each.route.response.kind === 'page');
  let count = 0;
  const lines = await findErrors(lists, async (list) => {
    const update = endpoints.find(({ method, path: at }) => method === 'PUT' && at === `${list.path}/{id}`);
    if (!update) return undefined;
    const flags = ['is_deleted', 'include_ended'].filter((name) => list.query.some((one) => one.name === name));
    for (const flag of ['', ...flags]) {
      const rows = rowsOf(
        list,
        (await request(list, { path: `${pathOf(list)}?${flag && `${flag}=true`}` })).json?.data,
      );
      for (const listed of rows ?? []) {
        count += flag === '' ? 0 : 1;
        const same = await request(update, { path: path(update, listed), body: listed });
        if (same.status !== 200) return `${flag} ${same.text}`;
        const shown = Object.fromEntries(Object.keys(listed).map((name) => [name, record(same)[name]]));
        if (!isDeepStrictEqual(shown, listed)) return difference(listed, shown);
      }
    }
    return undefined;
  });
  expect(count).toBeGreaterThan(5);
  expect(lines).toEqual([]);
});
