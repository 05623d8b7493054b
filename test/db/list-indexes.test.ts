import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type pg from 'pg';
import { isFull } from '../support/client/share.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { type BareTenant, provision } from '../support/database/tenants.ts';

const markedDays = isFull ? 10 : 3;

let database: TestDatabase;
let school: BareTenant;
let classId: number;

beforeAll(async () => {
  database = await testDatabase(3);
  school = await provision(database);
  const { schema } = school;
  await database.query(
    `insert into ${schema}.academic_year (name, start_date, end_date, is_current) values ('2026', '2026-01-01', '2026-12-31', true)`,
  );
  await database.query(`insert into ${schema}.grade (name) values ('One')`);
  await database.query(
    `insert into ${schema}.class (name, grade_id, academic_year_id) select 'Class ' || n, 1, 1 from generate_series(1, 400) n`,
  );
  // Without triggers, which would take most of the time.
  await database.query(
    `set session_replication_role = replica;
     insert into ${schema}.student (first_name, last_name, admission_number, class_id, grade_id)
       select 'Given' || n % 199, case when n = 777 then 'Łukaszewicz' else 'Family' || n % 997 end, lpad(n::text, 6, '0'), 1 + n % 400, 1
       from generate_series(1, 20000) n;
     insert into ${schema}.enrollment (student_id, class_id, academic_year_id, starts_on) select id, class_id, 1, '2026-01-01' from ${schema}.student;
     reset session_replication_role`,
  );
  // Days of attendance marks for all students, without the slow triggers.
  await database.query(
    `set session_replication_role = replica;
     insert into ${schema}.attendance (student_id, class_id, date, status)
       select s.id, s.class_id, date '2026-03-01' + n, 'present' from generate_series(1, ${markedDays}) n, ${schema}.student s;
     insert into ${schema}.attendance_day (date, class_id, present, absent, late) select date, class_id, count(*), 0, 0 from ${schema}.attendance group by date, class_id;
     insert into ${schema}.attendance_correction (attendance_id, student_id, class_id, status, marked_at, corrected_at)
       select id, student_id, class_id, 'late', now(), now() from ${schema}.attendance where id % 20 = 0;
     reset session_replication_role`,
  );
  await database.query(
    `set session_replication_role = replica;
     insert into ${schema}.invoice (student_id, class_id, due_date, created_at, issued_at, invoice_number, amount, status)
       select n, 1 + n % 400, '2026-01-10'::date + n % 300, at, at, 'INV-2026-' || lpad(n::text, 6, '0'), 10, 'sent'
       from generate_series(1, 20000) n, lateral (select timestamptz '2026-01-01' + n * interval '10 minutes') moment (at);
     insert into ${schema}.invoice_item (invoice_id, student_id, description, amount, line_total) select id, student_id, 'Trip', 10, 10 from ${schema}.invoice;
     insert into ${schema}.fee_structure (name, academic_year_id) values ('Fees', 1);
     insert into ${schema}.student_fee (student_id, fee_structure_id, class_id, amount, due_date) select n, 1, 1 + n % 400, 100, '2026-01-10'::date + n % 300 from generate_series(1, 20000) n;
     insert into ${schema}.payment (student_id, student_fee_id, amount, payment_date, payment_method, reference_number, receipt_number)
       select n, n, 10, '2026-01-10'::date + n % 300, 'cash', 'Cheque ' || n * 31, 'RCT-2026-' || lpad(n::text, 6, '0') from generate_series(1, 20000) n;
     insert into ${schema}.counter (name, value) values ('RCT-2026', 20000);
     insert into ${schema}.payment (student_id, invoice_id, amount, payment_date, payment_method) select n, n, 10, '2025-01-10', 'card' from generate_series(1, 10000) n;
     reset session_replication_role`,
  );
  // One of 200 users has 10,000 of 30,000 notifications, most of them read.
  await database.query(
    `insert into ${schema}.user_account (email, first_name, last_name) select 'u' || n || '@test.example', 'U', 'U' from generate_series(1, 200) n;
     insert into ${schema}.notification (user_id, title, message, read_at)
       select case when n % 3 = 0 then 1 else 2 + n % 199 end, 'Title ' || n, 'M', case when n > 300 then now() end from generate_series(1, 30000) n`,
  );
  // Every student has a login.
  await database.query(
    `insert into ${schema}.user_account (email, first_name, last_name) select 's' || n || '@test.example', 'S', 'S' from generate_series(201, 20000) n;
     set session_replication_role = replica; update ${schema}.student set user_id = id, parent_email = 'p@test.example' where id > 200; reset session_replication_role`,
  );
  classId = 17;
  await database.query(
    `set session_replication_role = replica;
     insert into ${schema}.subject (name, code) values ('Maths', 'MAT');
     insert into ${schema}.timetable_slot (class_id, academic_year_id, subject_id, day_of_week, period)
       select c.id, c.academic_year_id, 1, d, p from ${schema}.class c, generate_series(1, 5) d, generate_series(1, 8) p;
     reset session_replication_role`,
  );
  await database.query(
    `set session_replication_role = replica;
     insert into ${schema}.route (name) select 'Route ' || n from generate_series(1, 400) n;
     insert into ${schema}.stop (route_id, name, sequence) select r, 'Stop ' || s, s from generate_series(1, 400) r, generate_series(1, 8) s order by r, s;
     insert into ${schema}.transport_enrollment (student_id, route_id, stop_id, enrollment_type, created_at)
       select n, 1 + n % 400, 1 + n % 400 * 8 + n / 400 % 8, 'both', timestamptz '2026-01-01' + n * interval '1 minute' from generate_series(1, 20000) n;
     reset session_replication_role`,
  );
  // Like autovacuum. It also flushes the pending list of the trigram index.
  await database.query(
    `vacuum analyze ${schema}.student, ${schema}.enrollment, ${schema}.class, ${schema}.grade, ${schema}.attendance, ${schema}.attendance_day,
       ${schema}.attendance_correction, ${schema}.timetable_slot, ${schema}.invoice, ${schema}.invoice_item, ${schema}.student_fee, ${schema}.payment,
       ${schema}.user_account, ${schema}.notification, ${schema}.route, ${schema}.stop, ${schema}.transport_enrollment`,
  );
}, 240_000);
afterAll(() => database.drop());

interface Plan {
  'Node Type': string;
  'Relation Name'?: string;
  'Index Name'?: string;
  Plans?: Plan[];
}

const nodes = (plan: Plan): Plan[] => [plan, ...(plan.Plans ?? []).flatMap(nodes)];

/**
 * The plans of every statement that an operation runs inside the database, in the school's own role and settings, as
 * far as they scan one of these tables: auto_explain sees the statements of functions too.
 */
const plans = (operation: string, params: object, ...tables: string[]) => plansOf({}, operation, params, ...tables);

/** The same, with these settings of a request besides those of a user who sees the whole school. */
const plansOf = (settings: Record<string, string>, operation: string, params: object, ...tables: string[]) =>
  plansOfStatement(
    settings,
    `set local role school_tenant; select api.${operation}('${JSON.stringify(params)}') as answer`,
    ...tables,
  );

/** The same for any statements, of which the last one has an answer. They run as the owner. */
async function plansOfStatement(
  settings: Record<string, string>,
  statements: string,
  ...tables: string[]
): Promise<{ answer: { data?: { last_name: string }[]; pagination?: { totalItems: number } }; scans: string[] }> {
  const client = new shared.pg.Client({ connectionString: database.url });
  await client.connect();
  try {
    await client.query("load 'auto_explain'");
    await client.query(
      `set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on; set auto_explain.log_format = json; set client_min_messages = log; set jit = off; set random_page_cost = 1.1`,
    );
    const found: Plan[] = [];
    client.on('notice', (notice) => {
      const text = /plan:\s*(\{[\s\S]*\})/.exec(notice.message ?? '')?.[1];
      if (text) found.push(...nodes((JSON.parse(text) as { Plan: Plan }).Plan));
    });
    await client.query('begin');
    await client.query(
      `select set_config('app.tenant_id', $1, true), set_config('app.scope', 'all', true), set_config('app.user_id', '1', true), set_config('app.permissions', '{class.read,attendance.mark}', true),
         set_config('app.whole_school_permissions', '{class.read,attendance.read,attendance.manage}', true), set_config('search_path', $2, true)`,
      [String(school.id), `${school.schema}, public`],
    );
    for (const [name, value] of Object.entries(settings))
      await client.query('select set_config($1, $2, true)', [name, value]);
    const results: unknown = await client.query(statements);
    const { rows } = (Array.isArray(results) ? results.at(-1) : results) as pg.QueryResult<{
      answer: { data?: { last_name: string }[] };
    }>;
    await client.query('rollback');
    const scans = found
      .filter((node) =>
        (tables.length > 0 ? tables : ['student']).some(
          (table) => node['Relation Name'] === table || node['Index Name']?.startsWith(`${table}_`),
        ),
      )
      .map((node) => `${node['Node Type']}${node['Index Name'] ? ` ${node['Index Name']}` : ''}`);
    return { answer: rows[0]?.answer ?? {}, scans };
  } finally {
    await client.end();
  }
}

describe('with 20,000 students and row security', () => {
  test('one student is read by primary key', async () => {
    const { answer, scans } = await plans('students_get', { id: 777 });
    expect(answer).toMatchObject({ last_name: 'Łukaszewicz' });
    expect(scans).toEqual(['Index Scan student_pkey']);
  });

  test('the first page by name uses the order of an index; only the count reads all rows', async () => {
    const { answer, scans } = await plans('students_list', {});
    expect(answer.data).toHaveLength(20);
    expect(answer.pagination?.totalItems).toBe(20000);
    expect(scans).toContain('Index Scan student_name_idx');
  });

  test('the students of a class are found by the enrollments of the class, not by reading all students', async () => {
    const { answer, scans } = await plans('students_list', { class_id: classId });
    expect(answer.pagination?.totalItems).toBe(50);
    expect(answer.data).toHaveLength(20);
    expect(scans).not.toContain('Seq Scan');
    expect(scans.some((scan) => scan.startsWith('Index'))).toBe(true);
  });

  test('lists with filters that leave about one page have the same rows, order and count as the query for other filters', async () => {
    const client = new shared.pg.Client({ connectionString: database.url });
    await client.connect();
    try {
      await client.query('begin');
      await client.query('select core.enter_tenant($1)', [school.id]);
      const { rows: lists } = await client.query<{ record: string; params: object }>(`
        select r.name as record, json_strip_nulls(json_build_object(
          filter, 17, 'sort', sort, 'order', "order", 'page', page, 'pageSize', 7)) as params
        from core.record r
        cross join unnest(r.single_page_filters) filter
        cross join lateral (select jsonb_object_keys(r.sorts) union all select null) sorts (sort)
        cross join unnest('{asc,desc}'::text[]) "order"
        cross join generate_series(1, 2) page
        where to_regclass(r.table_name) is not null`);
      const answers = async () => {
        const all: string[] = [];
        for (const { record, params } of lists) {
          const { rows } = await client.query<{ page: string }>('select core.record_page($1, $2)::text as page', [
            record,
            params,
          ]);
          all.push(`${record} ${JSON.stringify(params)} ${rows[0]?.page ?? ''}`);
        }
        return all;
      };
      const read = await answers();
      expect(read.filter((answer) => answer.includes('"totalItems":0')).length).toBeLessThan(read.length / 3);
      await client.query("update core.record set single_page_filters = '{}'");
      expect(await answers()).toEqual(read);
    } finally {
      await client.end();
    }
  });

  test.each(['łukaszew', 'LUKASZEW', 'ukaszewic'])(
    'the search for part of a name (%s) uses the trigram index',
    async (search) => {
      const { answer, scans } = await plans('students_list', { search });
      expect(answer.data).toMatchObject([{ last_name: 'Łukaszewicz' }]);
      expect(scans).toContain('Bitmap Index Scan student_search_text_idx');
      expect(scans).not.toContain('Seq Scan');
    },
  );

  test.each([
    ['invoices_list', 1],
    ['payments_list', 2],
    ['student_fees_list', 1],
    ['transport_enrollments_list', 1],
  ])(
    'the search for a student in %s uses the trigram index, and no sequential scan of students',
    async (operation, count) => {
      const { answer, scans } = await plans(operation, { search: 'łukaszew' });
      expect(answer.pagination?.totalItems).toBe(count);
      expect(scans).toContain('Bitmap Index Scan student_search_name_idx');
      expect(scans).not.toContain('Seq Scan');
    },
  );

  test('the students of a teacher, and the user who is a student, are found by indexes', async () => {
    const taught = { 'app.scope': 'taught', 'app.class_ids': ',17,18,', 'app.student_id': '' };
    const { answer, scans } = await plansOf(taught, 'students_list', {});
    expect(answer.pagination?.totalItems).toBe(100);
    expect(scans).toContain('Bitmap Index Scan student_class_id_idx');
    expect(scans.join()).not.toMatch(/Seq Scan|student_name_idx/);
    const own = { 'app.scope': 'own', 'app.class_ids': ',17,', 'app.student_id': '777' };
    const alone = await plansOf(own, 'students_list', {});
    expect(alone.answer.data).toMatchObject([{ id: 777 }]);
    expect(alone.scans.join()).not.toMatch(/Seq Scan|student_name_idx/);
  });

  test('the dashboard adds up open invoices and fees in their indexes', async () => {
    const settings = { 'app.permissions': '{dashboard.read,fee.read}', 'app.whole_school_permissions': '{fee.read}' };
    const { scans } = await plansOf(settings, 'dashboard_get', {}, 'invoice', 'student_fee');
    expect(scans).toEqual(
      expect.arrayContaining(['Index Only Scan invoice_open_idx', 'Index Only Scan student_fee_open_balance_idx']),
    );
  });

  test('a search within a class uses an index', async () => {
    const { answer, scans } = await plans('students_list', { search: 'family', class_id: classId });
    expect(answer.pagination?.totalItems).toBe(50);
    expect(scans).not.toContain('Seq Scan');
  });

  test.each([{}, { sort: 'student_count' }])(
    'the list of classes counts the students of each class with an index (%p)',
    async (params) => {
      const { answer, scans } = await plans('classes_list', params, 'enrollment');
      expect(answer.data).toHaveLength(20);
      expect(answer.data).toMatchObject(Array(20).fill({ student_count: 50 }));
      expect(scans).not.toContain('Seq Scan');
      expect(scans.some((scan) => scan.endsWith('Index Scan enrollment_class_id_idx'))).toBe(true);
    },
  );

  test('the first page of 20,000 invoices uses the order of an index; filters by student, class and due date use indexes', async () => {
    const { answer, scans } = await plans('invoices_list', {}, 'invoice');
    expect(answer.pagination?.totalItems).toBe(20000);
    expect(scans).toContain('Index Scan invoice_created_at_idx');
    for (const params of [
      { student_id: 777 },
      { class_id: classId },
      { due_from: '2026-03-01', due_to: '2026-03-01' },
    ]) {
      const narrowed = await plans('invoices_list', params, 'invoice');
      expect(narrowed.answer.pagination?.totalItems).toBeGreaterThan(0);
      expect(narrowed.scans).not.toContain('Seq Scan');
    }
  });

  test.each(['inv-2026-012345', '012345', 'łukaszew', 'łukaszew 000777'])(
    'the search of invoices for %s uses the trigram and key indexes, and no sequential scan',
    async (search) => {
      const { answer, scans } = await plans('invoices_list', { search }, 'invoice');
      expect(answer.pagination?.totalItems).toBe(1);
      expect(scans).toContain('Bitmap Index Scan invoice_number_search_idx');
      expect(scans).not.toContain('Seq Scan');
    },
  );

  test('the first page of fees and of payments uses the order of an index; filters by student, class and date use indexes', async () => {
    const days = { from_date: '2026-03-01', to_date: '2026-03-02' };
    const lists: [string, string, string, number, object[]][] = [
      [
        'student_fees_list',
        'student_fee',
        'due_date',
        20000,
        [{ student_id: 777 }, { class_id: classId }, { due_from: '2026-03-01', due_to: '2026-03-02' }],
      ],
      [
        'payments_list',
        'payment',
        'payment_date',
        30000,
        [{ student_id: 777 }, { student_fee_id: 777 }, { invoice_id: 777 }, { class_id: classId }, days],
      ],
    ];
    for (const [operation, table, column, count, filters] of lists) {
      const { answer, scans } = await plans(operation, {}, table);
      expect(answer.pagination?.totalItems).toBe(count);
      expect(scans.join()).toMatch(new RegExp(`Index Scan ${table}_${column}_idx`));
      for (const params of filters) {
        const narrowed = await plans(operation, params, table);
        expect(narrowed.answer.pagination?.totalItems).toBeGreaterThan(0);
        expect({ params, scans: narrowed.scans }).not.toEqual({ params, scans: expect.arrayContaining(['Seq Scan']) });
      }
    }
  });

  test.each([
    ['student_fees_list', 'student_fee', 1, ['own', 'taught']],
    ['payments_list', 'payment', 2, ['own', 'taught']],
    ['invoices_list', 'invoice', 1, ['own', 'taught']],
    ['transport_enrollments_list', 'transport_enrollment', 1, ['own']],
  ])('%s of a student reads the rows of this student by an index', async (operation, table, count, scopes) => {
    for (const scope of scopes) {
      const settings = { 'app.scope': scope, 'app.student_id': '777' };
      const { answer, scans } = await plansOf(settings, operation, {}, table);
      expect(answer.data).toMatchObject(Array(count).fill({ student_id: 777 }));
      expect(answer.pagination?.totalItems).toBe(count);
      expect(scans).not.toContain('Seq Scan');
      // Another student is not in sight, and a user who is no student sees nobody.
      const other = await plansOf(settings, operation, { student_id: 778 }, table);
      expect(other.answer.data).toEqual([]);
      const nobody = await plansOf({ 'app.scope': scope, 'app.student_id': '' }, operation, {}, table);
      expect(nobody.answer.data).toEqual([]);
    }
  });

  test('a payment finds the student, and the worker those who are notified of it, by keys', async () => {
    const params = { student_fee_id: 777, amount: 1, payment_method: 'cash' };
    const { answer, scans } = await plans('payments_create', params, 'student', 'user_account');
    expect(answer).toMatchObject({ student_id: 777 });
    expect(scans).not.toContain('Seq Scan');
    const written = await plansOfStatement(
      {},
      `insert into payment (student_id, student_fee_id, amount, payment_date, payment_method, receipt_number)
         select student_id, id, 1, current_date, 'cash', 'RCT-1' from student_fee where id = 777;
       select core.notify('payment.received', jsonb_build_object('payment_id', max(id), 'balance', 1)) from payment;
       select core.outbox_write(${String(school.id)}) as answer`,
      ...['student', 'user_account', 'payment', 'student_fee', 'notification', 'notification_delivery', 'device'],
    );
    expect(written.answer).toBe(1);
    expect(written.scans.join()).toMatch(/student_pkey.*user_account_pkey/);
    expect(written.scans).not.toContain('Seq Scan');
  });

  test('a late page of fees is found without reading students, for every sort', async () => {
    for (const params of [{ page: 900 }, { sort: 'balance' }, { sort: 'amount', page: 3 }]) {
      const { answer, scans } = await plans('student_fees_list', params);
      expect(answer.data).toHaveLength(20);
      expect({ params, scans }).not.toEqual({ params, scans: expect.arrayContaining(['Seq Scan']) });
    }
  });

  test.each(['amount', 'balance'])('fees come in the order of their %s by an index, from either end', async (sort) => {
    for (const order of ['asc', 'desc']) {
      const { answer, scans } = await plans('student_fees_list', { sort, order }, 'student_fee');
      expect(answer.data).toHaveLength(20);
      expect(scans.join()).toContain(`student_fee_${sort === 'balance' ? 'net_balance' : sort}_idx`);
    }
  });

  test.each([
    ['rct-2026-012345', 1],
    ['cheque 381300', 1],
    ['inv-2026-001234', 1],
    ['łukaszew', 2],
    ['łukaszew rct-2026', 1],
    ['łukaszew 000776', 0],
  ])(
    'the search of payments for %s uses indexes, and no sequential scan of payments or invoices',
    async (search, count) => {
      const { answer, scans } = await plans('payments_list', { search }, 'payment', 'invoice');
      expect(answer.pagination?.totalItems).toBe(count);
      expect(scans).not.toContain('Seq Scan');
    },
  );

  test('the students of a class by its roll are found by the enrollments of the class', async () => {
    const { answer, scans } = await plans('classes_students_list', { id: classId });
    expect(answer.pagination?.totalItems).toBe(50);
    expect(scans).not.toContain('Seq Scan');
  });

  test.each([{}, { is_read: 'false' }, { is_read: 'true', page: 400 }])(
    'the notifications of a user with 10,000 use an index (%j)',
    async (params) => {
      const { answer, scans } = await plans('notifications_list', params, 'notification');
      expect(answer).toMatchObject({
        unread_count: 100,
        pagination: { totalItems: { undefined: 10_000, false: 100, true: 9900 }[String(params.is_read)] },
      });
      expect(answer.data).toHaveLength(20);
      expect(scans).not.toContain('Seq Scan');
      if (!params.is_read)
        expect(scans).toContainEqual(expect.stringMatching(/^Index (Only )?Scan notification_user_id_idx$/));
    },
  );

  const march = { from_date: '2026-03-01', to_date: '2026-03-31' };
  const records = Array.from({ length: 40 }, (_, n) => ({ student_id: 16 + 400 * n, status: 'late' }));
  const ofClass17: [string, string, object][] = [
    ['of a day', 'attendance_class', { class_id: 17, date: '2026-03-02', pageSize: 100 }],
    ['of a month', 'attendance_class', { class_id: 17, ...march }],
    ['as a register', 'attendance_class_summary', { class_id: 17, ...march }],
    ['when added', 'attendance_mark', { class_id: 17, date: '2026-04-01', records }],
    ['when corrected', 'attendance_mark', { class_id: 17, date: '2026-03-02', records }],
  ];
  test.each(ofClass17)(
    'the marks and the students of a class are found by index, %s',
    async (_case, operation, params) => {
      const tables = ['attendance', 'student', 'enrollment', 'attendance_correction'];
      const { scans } = await plans(operation, params, ...tables);
      expect(scans).not.toContain('Seq Scan');
    },
  );

  test('the marks of a class are counted without their students, who are read only for the page', async () => {
    for (const params of [march, { date: '2026-03-02' }]) {
      const { answer, scans } = await plans('attendance_class', { class_id: 17, ...params }, 'student');
      expect(answer.pagination?.totalItems).toBeGreaterThanOrEqual(50);
      // The students, the announced absences, and the policy of these, which reads a student only for a teacher.
      expect(scans).toEqual([
        'Index Scan student_pkey',
        'Index Scan student_absence_student_id_idx',
        'Index Scan student_pkey',
      ]);
    }
  });

  test('the marks of a student are found by student and day', async () => {
    const { answer, scans } = await plans('attendance_student', { student_id: 777, ...march }, 'attendance');
    expect(answer).toMatchObject({ data: { summary: { present: markedDays, total: markedDays } } });
    expect(scans).toEqual(expect.arrayContaining([expect.stringMatching(/Index Scan (on )?attendance_date_key/)]));
    expect(scans).not.toContain('Seq Scan');
  });

  test('the classes that can be marked count their students and marks by index', async () => {
    for (const table of ['enrollment', 'attendance_day']) {
      const { answer, scans } = await plans('attendance_my_classes', {}, table);
      expect(answer.data).toHaveLength(20);
      expect(scans.length).toBeGreaterThan(0);
      expect(scans).not.toContain('Seq Scan');
    }
  });

  test('the calendar reads daily totals, and no marks', async () => {
    const { answer, scans } = await plans(
      'attendance_calendar_holidays',
      { from_date: '2026-01-01', to_date: '2026-12-31', pageSize: 366 },
      'attendance',
    );
    const { data } = answer as unknown as { data: { date: string; counts: object }[] };
    expect(data.find(({ date }) => date === '2026-03-02')).toMatchObject({
      counts: { present: 20000, absent: 0, late: 0 },
    });
    expect(scans).not.toContain('Seq Scan');
  });

  test('the first slots of the year use the order of an index, those of a class the class index', async () => {
    const year = await plans('timetable_slots_list', {}, 'timetable_slot');
    expect(year.answer).toMatchObject({
      data: Array(20).fill({ day_of_week: 1, period: 1 }),
      pagination: { totalItems: 16000 },
    });
    expect(year.scans).toContain('Index Scan timetable_slot_academic_year_id_idx');
    const { answer, scans } = await plans('timetable_slots_list', { class_id: classId }, 'timetable_slot');
    expect(answer.pagination?.totalItems).toBe(40);
    expect(scans).not.toContain('Seq Scan');
  });

  test('a search of slots reads each table once, and joins only the rows of the page', async () => {
    const { answer, scans } = await plans('timetable_slots_list', { search: 'maths 17' }, 'subject');
    expect(answer.pagination?.totalItems).toBeGreaterThan(0);
    // Two words, once for the count and the page, and the names of the page.
    expect(scans).toHaveLength(3);
    expect((await plans('timetable_slots_list', {}, 'subject')).scans).toHaveLength(1);
  });

  test('the first page of 20,000 transport enrollments uses the order of an index; filters by route, stop, student and class use indexes', async () => {
    const { answer, scans } = await plans('transport_enrollments_list', {}, 'transport_enrollment');
    expect(answer.pagination?.totalItems).toBe(20000);
    expect(scans.some((scan) => /Index Scan (Backward )?transport_enrollment_created_at_idx/.test(scan))).toBe(true);
    for (const params of [
      { route_id: 17 },
      { stop_id: 17 },
      { student_id: 777 },
      { class_id: classId },
      { search: 'łukaszew' },
    ]) {
      const narrowed = await plans('transport_enrollments_list', params, 'transport_enrollment');
      expect(narrowed.answer.pagination?.totalItems).toBeGreaterThan(0);
      expect([params, narrowed.scans]).not.toEqual([params, expect.arrayContaining(['Seq Scan'])]);
    }
  });

  test('the list of routes counts riders by route, and a contact sheet reads only the enrollments of its route', async () => {
    for (const [operation, params] of [
      ['transport_routes_list', {}],
      ['transport_contact_sheet', { route_id: 17, limit: 1000 }],
    ] as const) {
      const { scans } = await plans(operation, params, 'transport_enrollment');
      expect(scans.length).toBeGreaterThan(0);
      expect(scans).not.toContain('Seq Scan');
    }
  });
});
