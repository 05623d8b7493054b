import { beforeAll, describe, expect, test } from '@jest/globals';
import { ids } from '../support/client/pages.ts';
import { race } from '../support/client/race.ts';
import { type School, serviceOfFile } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { AcademicYear as AcademicYearSchema } from '../../src/endpoints/academics.ts';

const service = await serviceOfFile({}, 11);

type Year = OutputOf<typeof AcademicYearSchema>;

const year = (from: number, fields: Record<string, unknown> = {}) => ({
  name: `${from}/${from + 1}`,
  start_date: `${from}-08-01`,
  end_date: `${from + 1}-07-31`,
  ...fields,
});

const add = async (at: School, from: number, fields: Record<string, unknown> = {}) =>
  (await at.admin.post<Year>('/api/academics/years', year(from, fields), 201)).data;

const years = async (at: School) => (await at.admin.get<Year[]>('/api/academics/years')).data;
const current = async (at: School) => (await years(at)).filter(({ is_current }) => is_current).map(({ name }) => name);
const sql = (at: School, text: string, values: unknown[] = []) =>
  service.database.query<{ id: string }>(text.replaceAll('@', `${at.schema}.`), values);

describe('an academic year', () => {
  let school: School;
  beforeAll(async () => {
    school = await service.school();
    await add(school, 2020);
  });

  test('is created, returned with the fields that were sent, updated, and deleted', async () => {
    const created = await school.admin.post<Year>('/api/academics/years', year(2021), 201);
    const path = `/api/academics/years/${created.data.id}`;
    expect(created.headers.get('location')).toBe(path);
    expect(created.data).toMatchObject({ ...year(2021), is_current: false });
    expect((await school.admin.get<Year>(path)).data).toEqual(created.data);
    const changed = await school.admin.put<Year>(path, { name: '  Autumn ', end_date: '2022-07-30' });
    expect(changed.data).toEqual({
      ...created.data,
      name: 'Autumn',
      end_date: '2022-07-30',
      updated_at: changed.data.updated_at,
    });
    expect((await school.admin.get<Year>(path)).data).toEqual(changed.data);
    expect((await school.admin.delete(path)).data).toEqual({ id: created.data.id });
    expect((await school.admin.get(path, 404)).error).toBe('not_found');
    expect((await school.admin.put(path, { name: 'X' }, 404)).error).toBe('not_found');
    expect((await school.admin.delete(path, 404)).error).toBe('not_found');
  });

  test.each<[Record<string, unknown>, string[]]>([
    [{ name: undefined, start_date: undefined, end_date: undefined }, ['end_date', 'name', 'start_date']],
    [{ name: '' }, ['name']],
    [{ name: 'x'.repeat(101) }, ['name']],
    [{ start_date: '2033-02-30' }, ['start_date']],
    [{ end_date: '2034-08-01' }, ['end_date']],
    [{ end_date: '9999-12-31' }, ['end_date']],
    [{ end_date: '2032-08-01' }, ['end_date']],
    [{ end_date: '2031-08-01' }, ['end_date']],
    [{ is_current: 'yes' }, ['is_current']],
    [{ id: 5 }, ['id']],
  ])('with %j is a 400 that names the fields, and nothing is created', async (fields, paths) => {
    const before = await years(school);
    const refused = await school.admin.post('/api/academics/years', year(2032, fields), 400);
    expect(refused.error).toBe('validation_error');
    expect(refused.details.map(({ path }) => path).sort()).toEqual(paths);
    expect(await years(school)).toEqual(before);
  });

  test('cannot end on or before its start, even if an update sends only one of the dates', async () => {
    const created = await add(school, 2030);
    for (const [fields, path] of [
      [{ end_date: '2030-08-01' }, 'end_date'],
      [{ start_date: '2031-07-31' }, 'end_date'],
    ] as const) {
      expect((await school.admin.put(`/api/academics/years/${created.id}`, fields, 400)).details).toMatchObject([
        { path },
      ]);
    }
    expect((await school.admin.get<Year>(`/api/academics/years/${created.id}`)).data).toEqual(created);
  });

  test('cannot overlap another by even one day, on create or update, but may begin on the day after its end', async () => {
    const overlapping = year(2019, { end_date: '2020-08-01', is_current: true });
    expect(await school.admin.post('/api/academics/years', overlapping, 409)).toMatchObject({
      error: 'conflict',
      details: [{ path: 'start_date' }],
    });
    expect(await current(school)).toEqual(['2020/2021']);
    const before = await add(school, 2019);
    const refused = await school.admin.put(`/api/academics/years/${before.id}`, { end_date: '2020-08-01' }, 409);
    expect(refused).toMatchObject({ error: 'conflict', details: [{ path: 'start_date' }] });
    expect((await school.admin.get<Year>(`/api/academics/years/${before.id}`)).data).toEqual(before);
  });

  test('cannot have the name of another one, ignoring case', async () => {
    await add(school, 2025, { name: 'Jubilee' });
    expect(await school.admin.post('/api/academics/years', year(2026, { name: 'JUBILEE' }), 409)).toMatchObject({
      error: 'conflict',
      details: [{ path: 'name' }],
    });
  });

  test('cannot be shortened so that a term lies outside it: a 400 names the date', async () => {
    const created = await add(school, 2028);
    await school.admin.post(
      '/api/academic-terms',
      { name: 'T', academic_year_id: created.id, start_date: '2028-08-01', end_date: '2029-07-31' },
      201,
    );
    for (const [fields, path] of [
      [{ start_date: '2028-08-02' }, 'start_date'],
      [{ end_date: '2029-07-30' }, 'end_date'],
    ] as const) {
      const refused = await school.admin.put(`/api/academics/years/${created.id}`, fields, 400);
      expect(refused).toMatchObject({
        error: 'validation_error',
        details: [{ path, message: 'A term of this academic year lies outside these dates.' }],
      });
    }
    await school.admin.put(`/api/academics/years/${created.id}`, { start_date: '2028-07-01', end_date: '2029-07-31' });
  });

  test('cannot be deleted while it has a term, a class or a fee structure (409 in_use)', async () => {
    const created = await add(school, 2023);
    const path = `/api/academics/years/${created.id}`;
    const rows = [
      [
        'term',
        "insert into @term (name, academic_year_id, start_date, end_date) values ('T', $1, '2023-08-01', '2023-09-01')",
      ],
      [
        'class',
        "with g as (insert into @grade (name) values ('In use') returning id) insert into @class (name, grade_id, academic_year_id) select 'C', id, $1 from g",
      ],
      ['fee_structure', "insert into @fee_structure (name, academic_year_id) values ('F', $1)"],
    ];
    for (const [table, insert = ''] of rows) {
      await sql(school, insert, [created.id]);
      expect((await school.admin.delete(path, 409)).error).toBe('in_use');
      await sql(school, `delete from @${table} where academic_year_id = $1`, [created.id]);
    }
    await school.admin.delete(path);
  });

  test('is created once if the create is repeated with the same Idempotency-Key', async () => {
    const send = () =>
      school.admin.with({ 'Idempotency-Key': 'year' }).post<Year>('/api/academics/years', year(2034), 201);
    expect((await send()).data).toEqual((await send()).data);
    expect((await school.admin.get<Year[]>('/api/academics/years?search=2034')).data).toHaveLength(1);
  });
});

describe('the current academic year', () => {
  test('is the first year of a school, even with is_current false, until another year is made current', async () => {
    const school = await service.school();
    expect(await add(school, 2020, { is_current: false })).toMatchObject({ is_current: true });
    const second = await add(school, 2021);
    expect(second.is_current).toBe(false);
    expect(await current(school)).toEqual(['2020/2021']);
    expect(
      (await school.admin.put<Year>(`/api/academics/years/${second.id}`, { is_current: true })).data.is_current,
    ).toBe(true);
    expect(await current(school)).toEqual(['2021/2022']);
    expect(await add(school, 2022, { is_current: true })).toMatchObject({ is_current: true });
    expect(await current(school)).toEqual(['2022/2023']);
  });

  test('cannot be unset, or deleted while there are others: the 409 says to make another year current', async () => {
    const school = await service.school();
    const [first, second] = [await add(school, 2020), await add(school, 2021)];
    const path = `/api/academics/years/${first.id}`;
    const stopped = await school.admin.put(path, { name: 'Stopped', is_current: false }, 409);
    expect(stopped).toMatchObject({ error: 'conflict', details: [{ path: 'is_current' }] });
    expect(stopped.message).toMatch(/Make another year current/);
    const removed = await school.admin.delete(path, 409);
    expect([removed.error, removed.message]).toEqual([
      'conflict',
      'The current academic year cannot be deleted. Make another year current first.',
    ]);
    expect(await years(school)).toEqual([second, first]);
    await school.admin.put(`/api/academics/years/${second.id}`, { is_current: true });
    await school.admin.delete(path);
    await school.admin.delete(`/api/academics/years/${second.id}`);
    expect(await years(school)).toEqual([]);
    expect(await add(school, 2025)).toMatchObject({ is_current: true });
  });

  const lock = (at: School) => `select pg_advisory_xact_lock('${at.schema}.academic_year'::regclass::bigint)`;

  test('is one year after two concurrent requests create the first years of a school', async () => {
    const school = await service.school();
    const answers = await race(service.database, lock(school), 2, () =>
      [2020, 2021].map((from) =>
        school.admin.send<Year>('POST', '/api/academics/years', { body: year(from, { is_current: true }) }),
      ),
    );
    expect(answers.map(({ status }) => status)).toEqual([201, 201]);
    expect(await current(school)).toHaveLength(1);
  });

  test('is one year after two concurrent requests make different years current', async () => {
    const school = await service.school();
    await add(school, 2019);
    const created = [await add(school, 2020), await add(school, 2021)];
    const answers = await race(service.database, lock(school), 2, () =>
      created.map(({ id }) =>
        school.admin.send<Year>('PUT', `/api/academics/years/${id}`, { body: { is_current: true } }),
      ),
    );
    expect(answers.map(({ status, data }) => [status, data.is_current])).toEqual([
      [200, true],
      [200, true],
    ]);
    expect(await current(school)).toHaveLength(1);
  });

  test('still exists after the only year is deleted while another one is created', async () => {
    const school = await service.school();
    const only = await add(school, 2020);
    const answers = await race(service.database, lock(school), 2, () => [
      school.admin.send('DELETE', `/api/academics/years/${only.id}`),
      school.admin.send('POST', '/api/academics/years', { body: year(2021) }),
    ]);
    expect(answers[1]?.status).toBe(201);
    expect([200, 409]).toContain(answers[0]?.status);
    expect(await current(school)).toEqual([answers[0]?.status === 200 ? '2021/2022' : '2020/2021']);
  });

  test('is created by only one of two concurrent requests for overlapping years', async () => {
    const school = await service.school();
    const answers = await race(service.database, lock(school), 2, () =>
      ['One', 'Two'].map((name) => school.admin.send('POST', '/api/academics/years', { body: year(2020, { name }) })),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409]);
    expect(await years(school)).toHaveLength(1);
  });
});

describe('the list of academic years', () => {
  let school: School;
  let all: Year[];
  beforeAll(async () => {
    school = await service.school();
    const names = ['Émile', 'Zoé', 'anna', 'Berta', 'émile 2', '100% año', 'Under_score'];
    for (const [n, name] of names.entries()) await add(school, 2010 + ((n * 3) % names.length), { name });
    // Only two values, so that created_at has ties.
    await sql(school, "update @academic_year set created_at = timestamptz '2026-01-01Z' + (id % 2) * interval '1 day'");
    all = await years(school);
  });
  const names = (found: Year[]) => found.map(({ name }) => name);

  test('is sorted latest first by default', () => {
    expect(all.map(({ start_date }) => start_date.slice(0, 4))).toEqual([
      '2016',
      '2015',
      '2014',
      '2013',
      '2012',
      '2011',
      '2010',
    ]);
  });

  test.each([
    ['EMILE', ['Émile', 'émile 2']],
    ['zoe', ['Zoé']],
    ['ano', ['100% año']],
    ['%25', ['100% año']],
    ['_', ['Under_score']],
    ['2 emi', ['émile 2']],
    ['nobody', []],
  ])('search=%s finds %j', async (search, expected) => {
    const { data, pagination } = await school.admin.get<Year[]>(`/api/academics/years?sort=name&search=${search}`);
    expect(names(data)).toEqual(expected);
    expect(pagination.totalItems).toBe(expected.length);
  });
});

describe('permissions', () => {
  test('teachers and accountants can read academic years but not write them; students cannot read them', async () => {
    const school = await service.school();
    const created = await add(school, 2020);
    for (const role of ['teacher', 'accountant']) {
      const user = await school.user([role]);
      expect((await user.get<Year[]>('/api/academics/years')).data).toEqual([created]);
      expect((await user.get<Year>(`/api/academics/years/${created.id}`)).data).toEqual(created);
      expect((await user.post('/api/academics/years', year(2021), 403)).error).toBe('forbidden');
      expect((await user.put(`/api/academics/years/${created.id}`, { name: 'Mine' }, 403)).error).toBe('forbidden');
      expect((await user.delete(`/api/academics/years/${created.id}`, 403)).error).toBe('forbidden');
    }
    const student = await school.user(['student']);
    for (const path of ['years', `years/${created.id}`, 'overview'])
      expect((await student.get(`/api/academics/${path}`, 403)).error).toBe('forbidden');
    expect(await years(school)).toEqual([created]);
  });
});

describe('the overview of an academic year', () => {
  interface Overview {
    academic_year: Omit<Year, 'created_at' | 'updated_at'>;
    term_count: number;
    terms: { id: number; name: string }[];
    classes: number;
    students: number;
    teachers: number;
    active_teachers: number;
    attendance_rate: number | null;
    fees: { billed: number; collected: number } | null;
  }

  let school: School;
  let last: Year;
  let now: Year;
  /** Two classes of the current year and one of the previous year. */
  let classes: [number, number, number];
  let teachers: number[];
  let students: number[];
  const overview = async (query = '', client = school.admin) =>
    (await client.get<Overview>(`/api/academics/overview${query}`)).data;
  const enrolled = async (class_id: number) =>
    (
      await school.admin.post<{ id: number }>(
        '/api/students',
        { first_name: 'Sam', last_name: 'Student', class_id },
        201,
      )
    ).data.id;
  const idOf = async (text: string, values: unknown[] = []) => Number((await sql(school, text, values))[0]?.id);

  beforeAll(async () => {
    school = await service.school();
    [last, now] = [await add(school, 2024), await add(school, 2025, { is_current: true })];
    for (const [name, start, end] of [
      ['Second', '2026-01-10', '2026-07-01'],
      ['First', '2025-08-01', '2025-12-20'],
    ])
      await school.admin.post(
        '/api/academic-terms',
        { name, academic_year_id: now.id, start_date: start, end_date: end },
        201,
      );
    const grade = await idOf("insert into @grade (name) values ('One') returning id");
    const insertClass = (name: string, yearId: number) =>
      idOf('insert into @class (name, grade_id, academic_year_id) values ($1, $2, $3) returning id', [
        name,
        grade,
        yearId,
      ]);
    classes = [await insertClass('A', now.id), await insertClass('B', now.id), await insertClass('Old', last.id)];
    teachers = [];
    for (const last_name of ['Class', 'Subject', 'Other', 'Old', 'Idle', 'Away', 'Gone']) {
      teachers.push(
        await idOf("insert into @teacher (first_name, last_name) values ('T', $1) returning id", [last_name]),
      );
    }
    const [ofClass, ofSubject, other, old, , away, gone] = teachers;
    await sql(school, 'update @teacher set is_active = false where id = $1', [away]);
    await sql(school, 'update @teacher set deleted_at = now() where id = $1', [gone]);
    await sql(school, 'update @class set class_teacher_id = $1 where id = $2', [ofClass, classes[0]]);
    await sql(school, 'update @class set class_teacher_id = $1 where id = $2', [old, classes[2]]);
    const subject = await idOf("insert into @subject (name, code) values ('Art', 'ART') returning id");
    await sql(
      school,
      'insert into @class_subject (class_id, subject_id, teacher_id, periods_per_week) values ($1, $3, $4, 2), ($2, $3, $4, 2)',
      [classes[0], classes[1], subject, ofSubject],
    );
    await sql(school, 'insert into @teaching_assignment (class_id, teacher_id) values ($1, $2), ($1, $3), ($1, $4)', [
      classes[1],
      other,
      away,
      gone,
    ]);
    // Three students are enrolled this year: one completed last year, one has changed class. A fourth was withdrawn.
    students = [
      await enrolled(classes[2]),
      await enrolled(classes[0]),
      await enrolled(classes[0]),
      await enrolled(classes[0]),
    ];
    await school.admin.put(`/api/students/${students[0] ?? 0}`, { class_id: classes[1] });
    await school.admin.put(`/api/students/${students[1] ?? 0}`, { class_id: classes[1] });
    await school.admin.put(`/api/students/${students[3] ?? 0}`, { class_id: null });
  });

  test('is empty for a school without academic years, and a 404 for an unknown year', async () => {
    const empty = await service.school();
    expect((await empty.admin.get<Overview>('/api/academics/overview')).data).toEqual({
      academic_year: null,
      term_count: 0,
      terms: [],
      classes: 0,
      students: 0,
      teachers: 0,
      active_teachers: 0,
      attendance_rate: null,
      fees: { billed: 0, collected: 0 },
    });
    expect((await school.admin.get('/api/academics/overview?academic_year_id=999999', 404)).error).toBe('not_found');
    expect((await school.admin.get('/api/academics/overview?academic_year_id=x', 400)).details).toMatchObject([
      { path: 'academic_year_id' },
    ]);
  });

  test('counts the terms, classes, enrolled students and teachers of the current year', async () => {
    const found = await overview();
    expect(found).toMatchObject({
      academic_year: {
        id: now.id,
        name: '2025/2026',
        start_date: '2025-08-01',
        end_date: '2026-07-31',
        is_current: true,
      },
      term_count: 2,
      classes: 2,
      students: 3,
      teachers: 4,
      active_teachers: 5,
    });
    expect(found.terms.map(({ name }) => name)).toEqual(['First', 'Second']);
    expect(await overview(`?academic_year_id=${now.id}`)).toEqual(found);
  });

  test('of last year counts the students who completed it and nothing of the current year', async () => {
    expect(await overview(`?academic_year_id=${last.id}`)).toMatchObject({
      academic_year: { id: last.id, is_current: false },
      term_count: 0,
      terms: [],
      classes: 1,
      students: 1,
      teachers: 1,
      active_teachers: 5,
      attendance_rate: null,
    });
  });

  test('has an attendance rate that reflects marks as they are added, changed, moved to another class, and deleted', async () => {
    const mark = (marks: [student: number, classId: number, date: string, status: string][]) =>
      sql(
        school,
        `insert into @attendance (student_id, class_id, date, status) select (m ->> 0)::bigint, (m ->> 1)::bigint, (m ->> 2)::date, m ->> 3 from jsonb_array_elements($1) m
         on conflict (student_id, date) do update set status = excluded.status, class_id = excluded.class_id`,
        [JSON.stringify(marks)],
      );
    const [one = 0, two = 0, three = 0] = students;
    const [a, b, old] = classes;
    await sql(school, 'delete from @attendance_correction; delete from @attendance');
    expect((await overview()).attendance_rate).toBeNull();
    await mark([
      [one, old, '2025-05-05', 'absent'],
      [one, b, '2025-09-01', 'present'],
      [two, b, '2025-09-01', 'late'],
      [three, a, '2025-09-01', 'absent'],
    ]);
    expect((await overview()).attendance_rate).toBe(66.67);
    expect((await overview(`?academic_year_id=${last.id}`)).attendance_rate).toBe(0);
    // The first mark is new, the second changes its status, the third its class.
    await mark([
      [one, b, '2025-09-02', 'present'],
      [one, old, '2025-05-05', 'late'],
      [three, b, '2025-09-01', 'absent'],
    ]);
    expect((await overview()).attendance_rate).toBe(75);
    expect((await overview(`?academic_year_id=${last.id}`)).attendance_rate).toBe(100);
    await sql(school, 'delete from @attendance_correction');
    await sql(school, "delete from @attendance where status = 'absent' or class_id = $1", [old]);
    expect((await overview()).attendance_rate).toBe(100);
    expect((await overview(`?academic_year_id=${last.id}`)).attendance_rate).toBeNull();
  });

  test('has the billed and collected amounts for users who may read fees; a waived fee counts with the amount paid', async () => {
    const structure = (yearId: number) =>
      idOf("insert into @fee_structure (name, academic_year_id) values ('Fee', $1) returning id", [yearId]);
    expect((await overview()).fees).toEqual({ billed: 0, collected: 0 });
    const [ofNow, ofLast] = [await structure(now.id), await structure(last.id)];
    await sql(
      school,
      `insert into @student_fee (student_id, fee_structure_id, amount, paid_amount, due_date, waived_at) values
         ($1, $2, 100.10, 50.05, '2026-01-01', null), ($1, $2, 200, 0, '2026-01-01', null), ($1, $2, 80, 20, '2026-01-01', now()),
         ($1, $3, 7, 7, '2025-01-01', null)`,
      [students[0], ofNow, ofLast],
    );
    expect((await overview()).fees).toEqual({ billed: 320.1, collected: 70.05 });
    expect((await overview(`?academic_year_id=${last.id}`)).fees).toEqual({ billed: 7, collected: 7 });
    expect((await overview('', await school.user(['accountant']))).fees).toEqual({ billed: 320.1, collected: 70.05 });
    expect((await overview('', await school.user(['transport_manager']))).fees).toBeNull();
    await service.operator.put(`/api/platform/tenants/${school.id}`, { feature_flags: { fees_management: false } });
    expect((await overview()).fees).toBeNull();
    await service.operator.put(`/api/platform/tenants/${school.id}`, { feature_flags: {} });
  });

  test('has no fees for a user whose fee.read comes from the student role, which covers only their own fees', async () => {
    const { data: roles } =
      await school.admin.get<{ id: number; name: string; permission_ids: number[] }[]>('/api/rbac/roles');
    const { data: permissions } = await school.admin.get<{ id: number; name: string }[]>('/api/rbac/permissions');
    const student = roles.find(({ name }) => name === 'student');
    await school.admin.put(`/api/rbac/roles/${student?.id ?? 0}`, {
      permission_ids: ids(permissions.filter(({ name }) => ['timetable.read', 'fee.read'].includes(name))),
    });
    expect(await overview('', await school.user(['student', await school.role('academic.read')]))).toMatchObject({
      classes: 2,
      students: 3,
      fees: null,
    });
  });

  test('has only the classes that a teacher teaches and no fees, even if the teacher has a second role with fee.read', async () => {
    await sql(school, 'delete from @attendance_correction; delete from @attendance');
    await sql(
      school,
      "insert into @attendance (student_id, class_id, date, status) values ($1, $2, '2025-10-01', 'absent'), ($3, $4, '2025-10-01', 'present')",
      [students[0], classes[1], students[2], classes[0]],
    );
    for (const roles of [['teacher'], ['teacher', await school.role('fee.read')]]) {
      const teacher = await school.user(roles);
      await sql(school, 'update @teacher set user_id = $1 where id = $2', [teacher.id, teachers[0]]);
      expect(await overview('', teacher)).toMatchObject({
        classes: 1,
        students: 1,
        teachers: 2,
        active_teachers: 5,
        attendance_rate: 100,
        fees: null,
      });
      expect(await overview(`?academic_year_id=${last.id}`, teacher)).toMatchObject({
        classes: 0,
        students: 0,
        teachers: 0,
        attendance_rate: null,
      });
    }
  });
});
