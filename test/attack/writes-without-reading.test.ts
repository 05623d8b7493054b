import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { populate } from '../support/fixtures/populate.ts';
import { send } from '../support/client/wire.ts';
import { type Registered, registry, sampleRequest } from '../support/server/registry.ts';
import { type School, testPassword, testService, unique } from '../support/server/service.ts';

const service = await testService();
afterAll(() => service.close());
const { endpoints, document, operations } = await registry(service);

/** The id of the one record in every table of the school. */
const id = 500_001;
const readerOf = ({ operation }: Registered) => operations.find(({ name }) => name === operation.reader);
/** What answers with a record or a list that another permission reads. Others answer only the id anyway. */
const answering = endpoints.filter(({ documented }) => JSON.stringify(documented.responses).includes('/OnlyId"'));

let school: School;
let allPermissions: { id: number; name: string }[];
beforeAll(async () => {
  school = await service.school();
  await populate(service, school, { endpoints, document }, id - 1, 'School');
  allPermissions = (await school.admin.get<typeof allPermissions>('/api/rbac/permissions')).data;
}, 180_000);

/** Their samples conflict with the records of the filled school, whose invoice is paid. */
const refused = new Set([
  ...['academics_years_create', 'academic_terms_create', 'class_subjects_create', 'timetable_slots_create'],
  ...['transport_exceptions_create', 'transport_assignments_create', 'transport_enroll_create'],
  ...['teachers_availability_set', 'students_guardians_create'],
  ...['invoices_update', 'invoices_issue', 'invoices_void', 'invoices_send_reminder', 'payments_create_for_invoice'],
]);

/** What ends a record comes last. */
const ends = ({ method, operation }: Registered) => method === 'DELETE' || operation.name === 'student_fees_waive';
const ordered = answering.toSorted((a, b) => Number(ends(a)) - Number(ends(b)));
/** The reader is open to staff without its permission, so the answer shows nothing that they could not read. */
const isOpenToStaff = (endpoint: Registered) => readerOf(endpoint)?.open_to === 'everyone_staff_all';
const permissions = [...new Set(answering.map((endpoint) => readerOf(endpoint)?.permission ?? ''))].sort();

describe('a write does not read:', () => {
  test('every change of a record that another permission reads has the get of the record as its reader', () => {
    const gets = operations.filter(({ name, writes }) => name.endsWith('_get') && !writes);
    const missing = operations.filter(
      ({ access, writes, record, permission, reader }) =>
        access === 'tenant' &&
        writes &&
        record !== null &&
        reader === null &&
        gets.some(
          (get) => get.access === 'tenant' && get.record === record && (get.permission ?? permission) !== permission,
        ),
    );
    expect(missing.map(({ name }) => name)).toEqual([]);
    expect(endpoints.filter((endpoint) => readerOf(endpoint) && endpoint.method !== 'DELETE')).toEqual(
      answering.filter(({ method }) => method !== 'DELETE'),
    );
    expect(answering.length).toBeGreaterThan(40);
  });

  test.each(permissions)(
    'without %s, a change of its records answers only the id, and has no ETag',
    async (permission) => {
      const user = await school.user([
        await school.role(...allPermissions.map(({ name }) => name).filter((name) => name !== permission)),
      ]);
      const lines: string[] = [];
      for (const endpoint of ordered.filter((one) => readerOf(one)?.permission === permission)) {
        const { status, text, json, headers } = await send(service.url, {
          ...sampleRequest(document, endpoint, { id, marker: unique('x') }),
          token: user.token,
        });
        const data = json?.data as Record<string, unknown> | undefined;
        if (status >= 300) {
          if (!refused.has(endpoint.operation.name)) lines.push(`${endpoint.name} ${text.slice(0, 200)}`);
        } else if (isOpenToStaff(endpoint)) {
          if (headers['etag'] === undefined && endpoint.method !== 'DELETE') lines.push(`${endpoint.name} has no ETag`);
        } else if (JSON.stringify(Object.keys(data ?? {})) !== '["id"]' || !Number.isInteger(data?.['id']))
          lines.push(`${endpoint.name} reveals ${text.slice(0, 200)}`);
        else if (headers['etag'] !== undefined) lines.push(`${endpoint.name} has an ETag`);
        else if (
          status === 201 &&
          (endpoint.route.response as { location?: string | null }).location !== null &&
          headers['location']?.endsWith(`/${String(data?.['id'])}`) !== true
        )
          lines.push(`${endpoint.name} has no Location`);
      }
      expect(lines).toEqual([]);
    },
  );

  test('a user who may read only some records gets those after a change, and only the id of the others', async () => {
    const { classId: taught } = await school.classroom(unique('Taught'));
    const { classId: other } = await school.classroom(unique('Other'));
    const changes = await school.role('student.update', 'student.create');
    const teacher = await school.user(['teacher', changes]);
    const me = await school.insert('teacher', { first_name: 'Ada', last_name: 'Byron', user_id: teacher.id });
    await service.database.query(`update ${school.schema}.class set class_teacher_id = $1 where id = $2`, [me, taught]);
    const name = { first_name: 'Amina', last_name: unique('Okafor') };
    const add = (class_id: number) => teacher.post<{ id: number }>('/api/students', { ...name, class_id }, 201);
    const [near, far] = [await add(taught), await add(other)];
    expect(near.data).toMatchObject(name);
    expect(far.data).toEqual({ id: far.data.id });
    for (const [{ data }, isSeen] of [
      [near, true],
      [far, false],
    ] as const) {
      const path = `/api/students/${data.id}`;
      await teacher.get(path, isSeen ? 200 : 404);
      const { data: changed } = await teacher.put<object>(path, { first_name: 'Ama' });
      expect('first_name' in changed).toBe(isSeen);
    }
  });

  test('a repeated Idempotency-Key answers only the id to a user who may no longer read the record', async () => {
    const role = await school.role('student.create', 'student.read');
    const user = await school.user([role]);
    const request = {
      body: { first_name: 'Amina', last_name: 'Okafor' },
      headers: { 'Idempotency-Key': unique('key') },
    };
    const { data } = await user.send<{ id: number; first_name: string }>('POST', '/api/students', request, 201);
    expect(data.first_name).toBe('Amina');
    const [stored] = await service.database.query<{ id: number }>(
      `select id::integer from ${school.schema}.role where name = $1`,
      [role],
    );
    const permission_ids = allPermissions.filter((one) => one.name === 'student.create').map((one) => one.id);
    await school.admin.put(`/api/rbac/roles/${stored?.id}`, { permission_ids });
    expect((await user.send('POST', '/api/students', request, 201)).data).toEqual({ id: data.id });
  });

  test('the answer for fewer rows is the record of the answer, not the one that the path names', async () => {
    const cashier = await school.user(['student', await school.role('payment.create')]);
    const addStudent = (user_id?: number) =>
      school.insert('student', {
        first_name: 'Amina',
        last_name: 'Okafor',
        admission_number: unique('A'),
        ...(user_id === undefined ? {} : { user_id }),
      });
    const students = [await addStudent(cashier.id), await addStudent()] as const;
    // A log-in reads which student the user is.
    const credentials = { tenant_id: school.id, email: cashier.email, password: testPassword };
    const user = await service.anonymous.login(credentials);
    const pay = async (of: number) => {
      const items = [{ description: 'Book', amount: 20 }];
      const invoice = { student_id: of, due_date: '2034-01-01', items };
      const { data } = await school.admin.post<{ id: number }>('/api/fees/invoices', invoice, 201);
      const payment = { invoice_id: data.id, amount: 20, payment_method: 'cash' };
      return (await school.admin.post<{ id: number }>('/api/fees/payments', payment, 201)).data.id;
    };
    const reverse = async (payment: number) =>
      (await user.post<{ id: number }>(`/api/finance/payments/${payment}/reverse`, { reason: 'Bounced' })).data;
    const [own, other] = [await pay(students[0]), await pay(students[1])];
    expect(await reverse(own)).toMatchObject({ amount: -20, reversal_of: own });
    const ofOther = await reverse(other);
    expect(ofOther).toEqual({ id: ofOther.id });
    expect((await school.admin.get(`/api/finance/payments/${ofOther.id}`)).data).toMatchObject({ reversal_of: other });
  });

  test('an API key without the permission to read gets only the id, also if its user may read', async () => {
    const { data } = await school.admin.post<{ key: string }>(
      '/api/api-keys',
      { name: unique('Key'), permissions: ['class.create'] },
      201,
    );
    const key = service.anonymous.with({ Authorization: `Bearer ${data.key}` });
    const { gradeId: grade_id, yearId: academic_year_id } = await school.classroom(unique('Class'));
    const created = await key.post<{ id: number }>(
      '/api/classes',
      { name: unique('Class'), grade_id, academic_year_id },
      201,
    );
    expect(created.data).toEqual({ id: created.data.id });
  });

  test('an API key without the permission to read gets only the id, also if every member of staff may read', async () => {
    const { data } = await school.admin.post<{ key: string }>(
      '/api/api-keys',
      { name: unique('Key'), permissions: ['notification.manage'] },
      201,
    );
    const key = service.anonymous.with({ Authorization: `Bearer ${data.key}` });
    const template = { name: unique('Trip'), title: 'Trip', message: 'We leave at nine.' };
    const created = await key.post<{ id: number }>('/api/notifications/templates', template, 201);
    expect(created.data).toEqual({ id: created.data.id });
    const changed = await key.put<object>(`/api/notifications/templates/${created.data.id}`, { title: 'Journey' });
    expect(changed.data).toEqual(created.data);
    await key.get(`/api/notifications/templates/${created.data.id}`, 403);
  });
});
