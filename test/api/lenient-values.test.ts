import { describe, expect, test } from '@jest/globals';
import { feeSchool } from '../support/fixtures/fees.ts';
import {
  findErrors,
  isForOperators,
  plain,
  type Registered,
  registry,
  samplePath,
} from '../support/server/registry.ts';
import { serviceOfFile, unique } from '../support/server/service.ts';
import { transportSchool } from '../support/fixtures/transport.ts';
import { send } from '../support/client/wire.ts';

const service = await serviceOfFile();
const world = await feeSchool(service);
const { admin } = world.school;
const classId = await world.addClass();

type Row = Record<string, unknown>;
const name = { first_name: 'Ada', last_name: 'Byron' };
const create = async (path: string, body: object) => (await admin.post<Row>(path, body, 201)).data;
const fieldsOf = ({ details }: { details: { path: string; message: string }[] }) =>
  details.map(({ path, message }) => `${path} ${message}`);

describe('a word from a list', () => {
  const component = async (frequency: string) =>
    (
      await create('/api/finance/fee-structures', {
        name: unique('Fees'),
        academic_year_id: world.yearId,
        components: [{ name: 'Tuition', amount: 1, frequency }],
      })
    )['components'];

  test.each([
    ['annual', ['Annual', 'yearly', 'ANNUALLY', ' per year ']],
    ['one_time', ['One-Time', 'once', 'onetime', 'one time']],
    ['term', ['termly', 'Per Term', 'per_term']],
    ['half_yearly', ['half-yearly', 'Half Yearly', 'semi-annually']],
    ['monthly', ['Monthly', 'per month']],
    ['quarterly', ['QUARTERLY', 'every quarter']],
  ])('as the frequency %s may be spelled %j', async (canonical, spellings) => {
    for (const spelling of spellings)
      expect(await component(spelling)).toMatchObject([{ name: 'Tuition', frequency: canonical }]);
  });

  test('that matches nothing is a 400 that lists the accepted values', async () => {
    const refused = await admin.post(
      '/api/finance/fee-structures',
      { name: 'X', academic_year_id: world.yearId, components: [{ name: 'A', amount: 1, frequency: 'weekly' }] },
      400,
    );
    expect(fieldsOf(refused)).toEqual([
      'components.0.frequency must be one of one_time, monthly, quarterly, half_yearly, term, annual',
    ]);
    expect(fieldsOf(await admin.post('/api/students', { ...name, gender: 'robot' }, 400))).toEqual([
      'gender must be one of female, male, non_binary, other, undisclosed',
    ]);
    expect(fieldsOf(await admin.get('/api/fees/payments?payment_method=barter', 400))).toEqual([
      'payment_method must be one of cash, check, card, bank_transfer, mobile_money, online, other',
    ]);
  });

  test.each([
    ['F', 'female'],
    ['Man', 'male'],
    ['Non-binary', 'non_binary'],
    ['prefer not to say', 'undisclosed'],
  ])('as the gender %s of a student or teacher is %s', async (given, gender) => {
    expect(await create('/api/students', { ...name, gender: given })).toMatchObject({ gender });
    expect(await create('/api/teachers', { ...name, gender: given })).toMatchObject({ gender });
  });

  test.each([
    ['iOS', 'ios'],
    ['Android', 'android'],
    ['Web', 'web'],
  ])('as the platform %s of a device is %s', async (given, platform) => {
    const { data } = await admin.post<Row>('/api/devices/register', { token: unique('token'), platform: given });
    expect(data['platform']).toBe(platform);
  });

  test('is recognized in the filters of lists, and in the columns of imported files', async () => {
    expect((await admin.get('/api/finance/student-fees?status=Partially%20Paid')).data).toEqual([]);
    const form = new FormData();
    const file = 'first_name,last_name,gender,date_of_birth\nImported,Girl,Girl,2015-01-02T00:00:00.000Z\n';
    form.set('file', new Blob([file], { type: 'text/csv' }), 'students.csv');
    const { data } = await admin.post<{ ids: number[] }>('/api/students/import', form, 201);
    expect((await admin.get<Row>(`/api/students/${String(data.ids[0])}`)).data).toMatchObject({
      gender: 'female',
      date_of_birth: '2015-01-02',
    });
  });

  test('as an enrollment type may be a synonym, and an ambiguous type is a 400 that asks to choose a trip', async () => {
    const fleet = await transportSchool(service);
    const { routeId } = await fleet.ridden(0);
    const stop_id = await fleet.addStop(routeId, {});
    const body = { student_id: await fleet.addStudent({}), route_id: routeId, stop_id };
    expect(
      fieldsOf(await fleet.admin.post('/api/transport/enroll', { ...body, enrollment_type: 'One-Way' }, 400)),
    ).toEqual([
      'enrollment_type must be pickup (to school) or drop (home): choose one, because one way could be either',
    ]);
    const { data } = await fleet.admin.post<Row>('/api/transport/enroll', { ...body, enrollment_type: 'Two Way' }, 201);
    expect(data['enrollment_type']).toBe('both');
    const listed = await fleet.admin.get<Row[]>('/api/transport/enrollments?enrollment_type=round%20trip');
    expect(listed.data.map(({ id }) => id)).toEqual([data['id']]);
  });
});

describe('the payment method', () => {
  const createFee = async () => {
    const studentId = await world.addStudent(classId);
    const structureId = await world.addStructure([{ name: 'Tuition', amount: 100, frequency: 'annual' }], [classId]);
    await world.generate(structureId, { student_ids: [studentId] });
    const [fee] = await world.feesOf(studentId);
    return fee?.id ?? 0;
  };
  const createInvoice = async () =>
    (
      await create('/api/fees/invoices', {
        student_id: await world.addStudent(classId),
        due_date: '2034-01-01',
        items: [{ description: 'Trip', amount: 20 }],
      })
    )['id'];

  test('has two names, which both payment endpoints and both lists accept and return', async () => {
    const student_fee_id = await createFee();
    const invoice_id = await createInvoice();
    for (const [path, body] of [
      ['/api/finance/payments', { student_fee_id, amount: 0.07 }],
      ['/api/fees/payments', { invoice_id, amount: 0.07 }],
    ] as const) {
      for (const field of ['method', 'payment_method'])
        expect(await create(path, { ...body, [field]: 'Wire Transfer' })).toMatchObject({
          method: 'bank_transfer',
          payment_method: 'bank_transfer',
        });
      expect(await create(path, { ...body, method: 'Cheque', payment_method: 'check' })).toMatchObject({
        method: 'check',
      });
      await admin.post(path, { ...body, method: 'cash', payment_method: 'card' }, 400);
      await admin.post(path, body, 400);
      await admin.post(path, { ...body, method: 'bitcoin' }, 400);
    }
    for (const field of ['method', 'payment_method'])
      expect((await admin.get<Row[]>(`/api/fees/payments?${field}=Bank-Transfer`)).data).toHaveLength(4);
  });
});

describe('texts of earlier versions', () => {
  test('become values of the lists when the school is migrated, and a payment keeps an unlisted one in its notes', async () => {
    const { schema, id } = world.school;
    const studentId = await world.addStudent(classId);
    const structureId = await world.addStructure([{ name: 'Tuition', amount: 100, frequency: 'annual' }], [classId]);
    await world.generate(structureId, { student_ids: [studentId] });
    const [fee] = await world.feesOf(studentId);
    const genders = [' F ', 'Boy', 'Non-Binary', 'prefer not to say', 'robot', ' ', null, 'female'];
    const methods = [
      ['Cheque', null],
      ['Mobile Money', 'From the aunt'],
      ['Direct Debit', null],
      ['Visa card 1234', null],
      ['barter', 'Ten eggs'],
      ['cash', null],
    ];
    await service.database.query(`alter table ${schema}.student drop constraint student_gender_check`);
    await service.database.query(`alter table ${schema}.teacher drop constraint teacher_gender_check`);
    await service.database.query(`alter table ${schema}.payment drop constraint payment_payment_method_check`);
    const [students, teachers] = await Promise.all(
      ['student (admission_number, first_name, last_name, gender)', 'teacher (first_name, last_name, gender)'].map(
        (table) =>
          service.database.query<{ id: number }>(
            `insert into ${schema}.${table}
             select ${table.startsWith('student') ? "'Old ' || n," : ''} 'Old', 'Text', gender
             from unnest($1::text[]) with ordinality g (gender, n) order by n returning id::integer`,
            [genders],
          ),
      ),
    );
    for (const [method, notes] of methods)
      await service.database.query(
        `insert into ${schema}.payment (student_id, student_fee_id, amount, payment_date, payment_method, notes)
         values ($1, $2, 1, '2020-01-01', $3, $4)`,
        [studentId, fee?.id, method, notes],
      );
    await world.school.database.query('update platform.tenant set schema_version = 11 where id = $1', [id]);
    await world.school.database.query('select core.tenant_migrate($1, 12)', [id]);
    // The later migrations have run already.
    await world.school.database.query(
      'update platform.tenant set schema_version = (select max(version) from platform.tenant_migration) where id = $1',
      [id],
    );

    for (const [path, people = []] of [
      ['/api/students', students],
      ['/api/teachers', teachers],
    ] as const) {
      const found: unknown[] = [];
      for (const person of people) {
        const { data } = await admin.get<Row>(`${path}/${String(person.id)}`);
        expect((await admin.put<Row>(`${path}/${String(person.id)}`, data)).data['gender']).toBe(data['gender']);
        found.push(data['gender']);
      }
      expect(found).toEqual(['female', 'male', 'non_binary', 'undisclosed', 'other', null, null, 'female']);
    }
    const payments = `/api/fees/payments?student_id=${String(studentId)}&sort=id`;
    expect((await admin.get<Row[]>(payments)).data.map((row) => [row['payment_method'], row['notes']])).toEqual([
      ['check', null],
      ['mobile_money', 'From the aunt'],
      ['bank_transfer', null],
      ['card', 'Payment method: Visa card 1234'],
      ['other', 'Ten eggs\nPayment method: barter'],
      ['cash', null],
    ]);
    for (const field of ['method', 'payment_method'])
      expect((await admin.get<Row[]>(`${payments}&${field}=cheque`)).data).toMatchObject([{ payment_method: 'check' }]);
  });
});

describe('empty text', () => {
  test('is null for optional fields of a record, also in an update', async () => {
    const optional = ['roll_number', 'date_of_birth', 'gender', 'email', 'phone', 'class_id', 'grade_id', 'address'];
    const empty = Object.fromEntries(optional.map((field) => [field, '']));
    const nothing = Object.fromEntries(optional.map((field) => [field, null]));
    const student = await create('/api/students', { ...name, ...empty });
    expect(student).toMatchObject(nothing);
    const path = `/api/students/${String(student['id'])}`;
    await admin.put(path, { gender: 'female', date_of_birth: '2015-01-02', email: 'ada@test.example' });
    expect((await admin.put<Row>(path, empty)).data).toMatchObject(nothing);
  });

  test('as the admission number of a new student is the next number, and null does not create a login', async () => {
    const first = await create('/api/students', { ...name, admission_number: '' });
    const second = await create('/api/students', { ...name, admission_number: '  ', create_user_account: null });
    expect(Number(second['admission_number'])).toBe(Number(first['admission_number']) + 1);
    expect(second['user_id']).toBeNull();
    expect(
      (await admin.put<Row>(`/api/students/${String(second['id'])}`, { create_user_account: null, password: '' })).data,
    ).toMatchObject({ user_id: null });
  });

  test('in a required field, or one that an update cannot clear, is a 400', async () => {
    expect(fieldsOf(await admin.post('/api/students', { ...name, first_name: '' }, 400))).toEqual([
      'first_name must not be empty',
    ]);
    const { id } = await create('/api/students', name);
    for (const field of ['first_name', 'admission_number', 'is_active'])
      await admin.put(`/api/students/${String(id)}`, { [field]: '' }, 400);
  });

  test('as a filter counts as absent', async () => {
    const all = await admin.get<Row[]>('/api/students');
    const filtered = await admin.get<Row[]>('/api/students?class_id=&is_active=&search=&sort=&page=');
    expect(filtered.data).toEqual(all.data);
  });
});

describe('a form that sends every field as text', () => {
  test('creates a student: numbers and booleans may be text', async () => {
    const fields = { first_name: 'Form', last_name: 'Student', is_active: 'on', create_user_account: 'false' };
    const { data } = await admin.post<{ class_id: number; is_active: boolean; user_id: number | null }>(
      '/api/students',
      { ...fields, class_id: String(classId), roll_number: '', email: '' },
      201,
    );
    expect(data).toMatchObject({ class_id: classId, is_active: true, user_id: null });
    for (const [field, text] of [
      ['class_id', '1e1'],
      ['class_id', '0x1'],
      ['class_id', 'one'],
      ['is_active', 'perhaps'],
    ] as const) {
      const { details } = await admin.post('/api/students', { ...fields, [field]: text }, 400);
      expect(details.map(({ path }) => path)).toEqual([field]);
    }
  });

  test('sends a notification: an empty list of recipients is the same as none', async () => {
    const user = await world.school.user(['teacher']);
    const sent = { title: 'Form', message: 'By form', user_ids: [], role_ids: [] };
    await admin.post('/api/notifications/send', { ...sent, all: 'false', user_ids: [String(user.id)] });
    await service.settled();
    expect((await user.get<{ title: string }[]>('/api/notifications?search=Form')).data).toHaveLength(1);
    await admin.post('/api/notifications/send', { ...sent, all: 'false' }, 400);
    const chosen = { ...sent, title: 'Null', all: null, user_ids: [user.id], role_ids: null, action_url: null };
    await admin.post('/api/notifications/send', chosen);
    await service.settled();
    expect((await user.get<{ title: string }[]>('/api/notifications?search=Null')).data).toHaveLength(1);
  });
});

test('a flag in the query of any list is true, false, 1 or 0, in any case', async () => {
  const { endpoints, document } = await registry(service);
  const flagsOf = ({ query, method }: Registered) =>
    method === 'GET' ? query.filter(({ schema }) => plain(document, schema).enum?.join() === 'true,false') : [];
  const lists = endpoints.filter((endpoint) => flagsOf(endpoint).length > 0);
  expect(lists.length).toBeGreaterThan(15);
  const lines = await findErrors(lists, async (endpoint) => {
    const answer = (query: string) =>
      send(service.url, {
        path: `${samplePath(document, endpoint, { id: classId })}?${query}`,
        token: isForOperators(endpoint) ? service.operator.token : admin.token,
      });
    for (const { name: flag } of flagsOf(endpoint)) {
      for (const [canonical, ...others] of [
        ['true', 'TRUE', 'True', '1'],
        ['false', 'FALSE', 'False', '0'],
      ] as const) {
        const { status, text } = await answer(`${flag}=${canonical}`);
        if (status !== 200) return text;
        for (const other of others)
          if ((await answer(`${flag}=${other}`)).text !== text) return `${flag}=${other} differs`;
      }
      const refused = await answer(`${flag}=maybe`);
      if (refused.json?.details?.[0]?.path !== flag) return refused.text;
    }
    return undefined;
  });
  expect(lines).toEqual([]);
});

describe('dates and times', () => {
  test.each(['2016-09-01T00:00:00.000Z', '2016-09-01T00:00+14:00', '2016-09-01T08:00', '2016-08-31T23:59:59-11:00'])(
    'the timestamp %s is accepted as the date 2016-09-01, its own at 00:00 or without an offset, else that of the school',
    async (date_of_birth) => {
      expect(await create('/api/students', { ...name, date_of_birth })).toMatchObject({ date_of_birth: '2016-09-01' });
    },
  );

  test.each(['2026-02-30T00:00:00Z', '2026-09-01T', '2026-09-01 noon', '2026-09-01T25:00:00Z'])(
    'the text %s is not accepted as a date',
    async (date_of_birth) => {
      expect(fieldsOf(await admin.post('/api/students', { ...name, date_of_birth }, 400))).toEqual([
        'date_of_birth must be a date, YYYY-MM-DD',
      ]);
    },
  );

  test('a timestamp is accepted as a filter by date', async () => {
    await admin.get('/api/fees/payments?from_date=2026-09-01T00:00:00.000Z&to_date=2026-09-02');
  });

  test('a time of day may have seconds', async () => {
    const fleet = await transportSchool(service);
    const { routeId } = await fleet.ridden(0);
    const body = { route_id: routeId, name: 'Elm Street', pickup_time: '07:10:00', drop_time: '' };
    expect((await fleet.admin.post<Row>('/api/transport/stops', body, 201)).data).toMatchObject({
      pickup_time: '07:10',
      drop_time: null,
    });
    await fleet.admin.post('/api/transport/stops', { ...body, pickup_time: '07:10:60' }, 400);
  });

  test('day_of_week 0 is Sunday, like 7, in a body and in a filter', async () => {
    const { id } = await create('/api/teachers', name);
    const slot = { day_of_week: 0, period: 1, is_available: false };
    const path = `/api/teachers/${String(id)}/availability`;
    const [zero, seven] = [
      await admin.put<Row[]>(path, [slot]),
      await admin.put<Row[]>(path, [{ ...slot, day_of_week: 7 }]),
    ];
    expect(zero.data).toEqual(seven.data);
    expect((await admin.get('/api/timetable/slots?day_of_week=0')).data).toEqual([]);
    await admin.get('/api/timetable/slots?day_of_week=8', 400);
  });
});

describe('an id that is too large', () => {
  test.each(['9007199254740992', '99999999999999999999', '9'.repeat(400)])(
    '%s is a validation error with details, in path, query and body',
    async (id) => {
      const answers = [
        await admin.get(`/api/students/${id}`, 400),
        await admin.get(`/api/students?class_id=${id}`, 400),
        await admin.send('POST', '/api/students', {
          body: `{"first_name":"A","last_name":"B","class_id":${id}}`,
        }),
      ];
      expect(answers.map(({ error, details }) => [error, details.map(({ path }) => path)])).toEqual([
        ['validation_error', ['id']],
        ['validation_error', ['class_id']],
        ['validation_error', ['class_id']],
      ]);
    },
  );
});

describe('the OpenAPI document', () => {
  interface Schema {
    properties: Record<string, Row>;
    required?: string[];
  }
  const schemas = async () =>
    (
      (await (await fetch(`${service.url}/api/openapi.json`)).json()) as {
        components: { schemas: Record<string, Schema> };
      }
    ).components.schemas;

  test('shows the canonical words, and describes the synonyms', async () => {
    const { FeeComponentInput } = await schemas();
    expect(FeeComponentInput?.properties['frequency']).toMatchObject({
      enum: ['one_time', 'monthly', 'quarterly', 'half_yearly', 'term', 'annual'],
      description: expect.stringContaining('`annual` (annually, yearly'),
    });
  });

  test('says how many decimals amounts can have, and does not require a field that has a default', async () => {
    const { FeeComponentInput, InvoiceItemInput } = await schemas();
    expect(FeeComponentInput?.properties['amount']).toMatchObject({ multipleOf: 0.0001 });
    expect(InvoiceItemInput?.required).toEqual(['description', 'amount']);
    // Generators of types would make a field with the keyword `default` required.
    expect(InvoiceItemInput?.properties['quantity']).not.toHaveProperty('default');
    expect(InvoiceItemInput?.properties['quantity']).toMatchObject({ description: 'Default: 1.' });
  });
});
