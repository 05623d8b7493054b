import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { mailTo } from '../support/fakes/mail.ts';
import { ids, inOrder, plain, walk } from '../support/client/pages.ts';
import { raw } from '../support/client/raw.ts';
import { steadyDay } from '../support/fixtures/days.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type {
  AvailabilitySlot as AvailabilitySlotSchema,
  Leave as LeaveSchema,
  TaughtClass as TaughtClassSchema,
  Teacher as TeacherSchema,
  Workload as WorkloadSchema,
} from '../../src/endpoints/teachers.ts';

await steadyDay();
const { service, school } = await serviceWithSchool();
const other = await service.school();

type Teacher = OutputOf<typeof TeacherSchema>;
type Leave = OutputOf<typeof LeaveSchema>;
type Cell = OutputOf<typeof AvailabilitySlotSchema>;
type Workload = OutputOf<typeof WorkloadSchema>;

interface Slot {
  slot_id: number;
  period: number;
  start_time: string;
  end_time: string;
  class_id: number;
  class_name: string | null;
  subject_id: number;
  subject_name: string;
  teacher_id: number;
  teacher_name: string;
  is_teacher_on_leave: boolean;
  room: string | null;
}

interface Schedule {
  date: string;
  day_of_week: number;
  holiday: { id: number; name: string } | null;
  on_leave: boolean;
  slots: Slot[];
}

async function add(fields: Record<string, unknown> = {}, at = school): Promise<Teacher> {
  return (await at.admin.post<Teacher>('/api/teachers', { first_name: 'Tess', last_name: 'Teacher', ...fields }, 201))
    .data;
}

const read = async (id: number) => (await school.admin.get<Teacher>(`/api/teachers/${id}`)).data;

/** A teacher with a log-in of the teacher role. */
async function withLogin(
  fields: Record<string, unknown> = {},
  at = school,
): Promise<{ teacher: Teacher; client: Client }> {
  const email = `${unique('teacher')}@${at.subdomain}.example`;
  const teacher = await add({ email, create_user_account: true, password: 'teacher password', ...fields }, at);
  return { teacher, client: await service.anonymous.login({ tenant_id: at.id, email, password: 'teacher password' }) };
}

/** A user whose role of the school's own has these permissions. */
const staff = async (...permissions: string[]) => school.user([await school.role(...permissions)]);

/** Runs a statement for its rows. */
const rows = <R extends Record<string, unknown>>(text: string, values: unknown[] = []) =>
  service.database.query<R>(text, values);

/** A class of a year of its own, `years` from the current one. */
async function classOfYear(years: number, at = school): Promise<{ classId: number; yearId: number; name: string }> {
  const name = unique('Class');
  await at.classroom(unique('Current'));
  const [row] = await rows<{ class_id: number; year_id: number }>(
    `with year as (
       insert into ${at.schema}.academic_year (name, start_date, end_date)
       select $1, start_date + make_interval(years => $2), end_date + make_interval(years => $2) from ${at.schema}.academic_year where is_current
         and not exists (select from ${at.schema}.academic_year y where y.start_date = academic_year.start_date + make_interval(years => $2)) returning id),
     the_year as (select id from year union all select y.id from ${at.schema}.academic_year c join ${at.schema}.academic_year y on y.start_date = c.start_date + make_interval(years => $2) where c.is_current),
     grade as (insert into ${at.schema}.grade (name) values ($1) returning id)
     insert into ${at.schema}.class (name, grade_id, academic_year_id) select $1, grade.id, the_year.id from grade, the_year
     returning id::integer as class_id, academic_year_id::integer as year_id`,
    [name, years],
  );
  if (!row) throw new Error('no class was made');
  return { classId: row.class_id, yearId: row.year_id, name };
}

const lead = (classId: number, teacherId: number, at = school) =>
  rows(`update ${at.schema}.class set class_teacher_id = $2 where id = $1`, [classId, teacherId]);

async function subject(name = unique('Subject'), at = school): Promise<number> {
  const [row] = await rows<{ id: number }>(
    `insert into ${at.schema}.subject (name, code) values ($1, $1) returning id::integer`,
    [name],
  );
  return row?.id ?? 0;
}

const teach = (classId: number, subjectId: number, teacherId: number, periods = 1, at = school) =>
  rows(
    `insert into ${at.schema}.class_subject (class_id, subject_id, teacher_id, periods_per_week) values ($1, $2, $3, $4)`,
    [classId, subjectId, teacherId, periods],
  );

/** A slot of the timetable; answers its id. */
async function slot(
  at: School,
  classId: number,
  subjectId: number,
  teacherId: number,
  day: number,
  period: number,
  room: string | null = null,
) {
  const [row] = await rows<{ id: number }>(
    `insert into ${at.schema}.timetable_slot (class_id, academic_year_id, subject_id, teacher_id, day_of_week, period, room)
     select id, academic_year_id, $2, $3, $4, $5, $6 from ${at.schema}.class where id = $1 returning id::integer`,
    [classId, subjectId, teacherId, day, period, room],
  );
  return row?.id ?? 0;
}

describe('teachers', () => {
  test('a teacher that was added is read back as it was sent', async () => {
    const sent = {
      first_name: 'Ngozi',
      last_name: 'Bello',
      email: 'ngozi@example.org',
      phone: '+234 1',
      employee_number: 'E-1',
      qualification: 'M.Sc.',
      specialization: 'Mathematics',
      joined_on: '2020-08-01',
      date_of_birth: '1990-02-28',
      gender: 'female',
      address: '1 Long Street',
    };
    const added = await school.admin.post<Teacher>('/api/teachers', sent, 201);
    expect(added.headers.get('location')).toBe(`/api/teachers/${added.data.id}`);
    expect(await read(added.data.id)).toEqual({
      ...added.data,
      ...sent,
      is_active: true,
      user_id: null,
      max_periods_per_day: null,
      max_periods_per_week: null,
      deleted_at: null,
    });
  });

  test('first and last name are enough: no employee number is given to anybody', async () => {
    const teacher = await add({ first_name: ' Only ', last_name: 'Ōe 大江' });
    expect(await read(teacher.id)).toMatchObject({
      first_name: 'Only',
      last_name: 'Ōe 大江',
      employee_number: null,
      email: null,
      is_active: true,
    });
    expect((await school.admin.post('/api/teachers', { first_name: 'Only' }, 400)).details).toMatchObject([
      { path: 'last_name' },
    ]);
  });

  test('what does not fit is a 400 that names each field, and nothing is written', async () => {
    const count = async () => (await school.admin.get('/api/teachers?pageSize=1')).pagination.totalItems;
    const before = await count();
    const refused = await school.admin.post(
      '/api/teachers',
      {
        first_name: '',
        last_name: 'x'.repeat(101),
        joined_on: '2015-02-30',
        email: 'nobody',
        is_active: 'yes',
        max_periods_per_day: 3,
        user_id: 1,
        colour: 'red',
      },
      400,
    );
    expect(refused.error).toBe('validation_error');
    expect(refused.details.map(({ path }) => path).sort()).toEqual(
      ['colour', 'email', 'first_name', 'is_active', 'joined_on', 'last_name', 'max_periods_per_day', 'user_id'].sort(),
    );
    expect(await count()).toBe(before);
  });

  test('an employee number is unique among those who are there: the second is a 409 that names the field', async () => {
    const one = await add({ employee_number: 'ONCE' });
    const two = await add({ employee_number: 'TWICE' });
    const refused = await school.admin.post(
      '/api/teachers',
      { first_name: 'A', last_name: 'B', employee_number: 'ONCE' },
      409,
    );
    expect(refused).toMatchObject({ error: 'conflict', details: [{ path: 'employee_number' }] });
    expect((await school.admin.put(`/api/teachers/${two.id}`, { employee_number: 'ONCE' }, 409)).details).toMatchObject(
      [{ path: 'employee_number' }],
    );
    expect((await read(two.id)).employee_number).toBe('TWICE');
    await school.admin.delete(`/api/teachers/${one.id}`);
    expect((await add({ employee_number: 'ONCE' })).id).not.toBe(one.id);
    expect(
      [await add({ employee_number: '' }), await add({ employee_number: null })].map(
        ({ employee_number }) => employee_number,
      ),
    ).toEqual([null, null]);
  });

  test('a change takes any subset and leaves the rest; null clears what may be empty', async () => {
    const teacher = await add({
      phone: '1',
      specialization: 'Art',
      joined_on: '2020-01-01',
      employee_number: unique('E'),
    });
    const changed = await school.admin.put<Teacher>(`/api/teachers/${teacher.id}`, { phone: null, address: 'There' });
    expect(changed.data).toEqual({ ...teacher, phone: null, address: 'There', updated_at: changed.data.updated_at });
    expect(await read(teacher.id)).toEqual(changed.data);
    for (const field of ['first_name', 'last_name', 'is_active']) {
      expect((await school.admin.put(`/api/teachers/${teacher.id}`, { [field]: null }, 400)).details).toMatchObject([
        { path: field },
      ]);
    }
  });

  test('a record may be sent back as it was read, and what only the service sets is refused by its name', async () => {
    const { teacher } = await withLogin();
    await school.admin.put(`/api/teachers/${teacher.id}/workload-rule`, { max_periods_per_day: 4 });
    const current = await read(teacher.id);
    expect(current.max_periods_per_day).toBe(4);
    const same = await school.admin.put<Teacher>(`/api/teachers/${teacher.id}`, { ...current, last_name: 'Back' });
    expect(same.data).toEqual({ ...current, last_name: 'Back', updated_at: same.data.updated_at });
    for (const [field, value] of Object.entries({
      id: 1,
      user_id: 1,
      max_periods_per_day: 5,
      max_periods_per_week: 5,
      deleted_at: '2026-01-01T00:00:00Z',
    })) {
      const refused = await school.admin.put(
        `/api/teachers/${teacher.id}`,
        { first_name: 'Other', [field]: value },
        400,
      );
      expect(refused.details).toEqual([
        { path: field, message: expect.stringMatching(/^This field can't be set here\./) },
      ]);
    }
    expect((await read(teacher.id)).first_name).toBe('Tess');
  });

  test('a change goes through with a fresh If-Match and is a 412 with a stale one', async () => {
    const teacher = await add();
    const path = `/api/teachers/${teacher.id}`;
    const etag = (await school.admin.get(path)).headers.get('etag') ?? '';
    const change = (first_name: string, status: number) =>
      school.admin.send('PUT', path, { body: { first_name }, headers: { 'If-Match': etag } }, status);
    await change('Fresh', 200);
    expect((await change('Stale', 412)).error).toBe('precondition_failed');
    expect((await read(teacher.id)).first_name).toBe('Fresh');
  });

  test('an Idempotency-Key adds one teacher, also when the requests arrive together', async () => {
    const body = { first_name: 'Once', last_name: unique('Once') };
    const post = () =>
      school.admin.send<Teacher>(
        'POST',
        '/api/teachers',
        { body, headers: { 'Idempotency-Key': 'teacher-once' } },
        201,
      );
    const answers = [...(await Promise.all([post(), post(), post()])), await post()];
    expect(new Set(ids(answers.map(({ data }) => data))).size).toBe(1);
    expect((await school.admin.get(`/api/teachers?search=${body.last_name}`)).pagination.totalItems).toBe(1);
  });

  test('one that does not exist, is deleted or of another school is a 404 for every verb, and what is no id a 400', async () => {
    const gone = await add();
    await school.admin.delete(`/api/teachers/${gone.id}`);
    for (const id of [999_999, gone.id]) {
      expect((await school.admin.get(`/api/teachers/${id}`, 404)).error).toBe('not_found');
      await school.admin.put(`/api/teachers/${id}`, { first_name: 'X' }, 404);
      await school.admin.delete(`/api/teachers/${id}`, 404);
      for (const below of ['leaves', 'availability', 'workload'])
        await school.admin.get(`/api/teachers/${id}/${below}`, 404);
      await school.admin.put(`/api/teachers/${id}/availability`, [], 404);
      await school.admin.put(`/api/teachers/${id}/workload-rule`, { max_periods_per_day: 1 }, 404);
    }
    await rows(`select setval('${other.schema}.teacher_id_seq', 777000)`);
    const far = await add({}, other);
    await school.admin.get(`/api/teachers/${far.id}`, 404);
    await school.admin.delete(`/api/teachers/${far.id}`, 404);
    expect((await other.admin.get<Teacher>(`/api/teachers/${far.id}`)).data).toEqual(far);
    expect((await school.admin.get('/api/teachers/abc', 400)).details).toMatchObject([{ path: 'id' }]);
  });

  test('/me and /leaves are no ids: other methods there are a 405', async () => {
    const refused = async (method: string, path: string) =>
      (await raw(service.url, { method, path, token: school.admin.token })).headers.allow;
    expect(await refused('PUT', '/api/teachers/me')).toBe('GET, HEAD, OPTIONS');
    expect(await refused('DELETE', '/api/teachers/leaves')).toBe('GET, POST, HEAD, OPTIONS');
    expect(await refused('GET', '/api/teachers/leaves/1')).toBe('PUT, DELETE, OPTIONS');
  });
});

describe('the list', () => {
  let lists: School;
  let everybody: Teacher[];

  beforeAll(async () => {
    lists = await service.school();
    const names: [string, string][] = [
      ['Ana', 'Alvarez'],
      ['Bo', 'Alvarez'],
      ['Émile', 'Zola'],
      ['emile', 'Zidane'],
      ['Zoé', 'Ångström'],
    ];
    for (let n = 0; n < 13; n++) {
      const [first_name = '', last_name = ''] = names[n % names.length] ?? [];
      await add(
        {
          first_name,
          last_name,
          employee_number: n % 4 === 0 ? null : `N${String((n * 7) % 13).padStart(2, '0')}`,
          joined_on: n % 5 === 0 ? null : `20${10 + (n % 3)}-01-01`,
          specialization: n % 3 === 0 ? 'Français' : n % 3 === 1 ? 'Art' : null,
          is_active: n % 4 !== 1,
          email: n === 6 ? 'rare.address@example.org' : null,
          phone: n === 7 ? '+44 777' : null,
        },
        lists,
      );
    }
    await add({ first_name: 'Percy', last_name: 'Cotton 100%' }, lists);
    const gone = await add({ first_name: 'Gone', last_name: 'Away' }, lists);
    await lists.admin.delete(`/api/teachers/${gone.id}`);
    await rows(
      `update ${lists.schema}.teacher set created_at = timestamptz '2026-01-01Z' + (id % 3) * interval '1 day'`,
    );
    everybody = await walk<Teacher>(lists.admin, '/api/teachers', 100);
  });

  const found = async (query: string) => (await lists.admin.get<Teacher[]>(`/api/teachers?pageSize=100&${query}`)).data;
  const keys: Record<string, (teacher: Teacher) => (string | number | null)[]> = {
    last_name: ({ last_name, first_name }) => [plain(last_name), plain(first_name)],
    first_name: ({ last_name, first_name }) => [plain(first_name), plain(last_name)],
    employee_number: ({ employee_number }) => [employee_number],
    joined_on: ({ joined_on }) => [joined_on],
    created_at: ({ created_at }) => [created_at],
  };

  test.each(Object.keys(keys).flatMap((sort) => (['asc', 'desc'] as const).map((order) => [sort, order] as const)))(
    'sorted by %s %s, its pages together are everybody once, in order, ties by id',
    async (sort, order) => {
      const walked = await walk<Teacher>(lists.admin, `/api/teachers?sort=${sort}&order=${order}`, 4);
      expect(ids(walked)).toEqual(ids(inOrder(everybody, keys[sort] ?? (() => []), order)));
    },
  );

  test('has everybody but the deleted, by name when nothing is said', () => {
    expect(everybody).toHaveLength(14);
    expect(ids(everybody)).toEqual(ids(inOrder(everybody, keys['last_name'] ?? (() => []), 'asc')));
    expect(everybody.map(({ last_name }) => last_name)).not.toContain('Away');
  });

  test('is_active and specialization narrow it, alone and together, specialization in any case and without accents', async () => {
    expect(ids(await found('is_active=false'))).toEqual(ids(everybody.filter(({ is_active }) => !is_active)));
    const french = everybody.filter(({ specialization }) => specialization === 'Français');
    expect(french.length).toBeGreaterThan(2);
    for (const name of ['Fran%C3%A7ais', 'FRANCAIS'])
      expect(ids(await found(`specialization=${name}`))).toEqual(ids(french));
    expect(ids(await found('specialization=francais&is_active=true&search=zola'))).toEqual(
      ids(french.filter(({ is_active, last_name }) => is_active && last_name === 'Zola')),
    );
    expect(await found('specialization=Fran')).toEqual([]);
  });

  test.each([
    ['any case', 'ALVAREZ', (t: Teacher) => t.last_name === 'Alvarez'],
    ['without accents', 'emile', (t: Teacher) => plain(t.first_name) === 'emile'],
    ['with accents that the record has not', 'álvárez', (t: Teacher) => t.last_name === 'Alvarez'],
    ['several words in any order', 'zidane emi', (t: Teacher) => t.last_name === 'Zidane'],
    ['% as itself', '100%25', (t: Teacher) => t.last_name.includes('%')],
    ['the employee number', 'n08', (t: Teacher) => t.employee_number === 'N08'],
    ['the e-mail', 'rare.address', (t: Teacher) => t.email !== null],
    ['the phone', '777', (t: Teacher) => t.phone !== null],
    ['the deleted', 'gone', () => false],
  ])('search takes %s', async (_what, search, fits) => {
    expect(ids(await found(`search=${search}`))).toEqual(ids(everybody.filter(fits)));
  });

  test('class_id finds who teaches a class: its class teacher, teachers of its subjects, its other teachers', async () => {
    const { classId } = await lists.classroom(unique('Class'));
    const [one, two, three] = everybody.map(({ id }) => id);
    await lead(classId, one ?? 0, lists);
    await teach(classId, await subject('Physics', lists), two ?? 0, 1, lists);
    await rows(
      `insert into ${lists.schema}.teaching_assignment (class_id, teacher_id, subject) values ($1, $2, 'Choir'), ($1, $3, 'Choir')`,
      [classId, three, two],
    );
    expect(ids(await found(`class_id=${classId}`))).toEqual([one, two, three]);
    expect(await found('class_id=999999')).toEqual([]);
  });

  test.each([
    ['sort=password', 'sort'],
    ['order=up', 'order'],
    ['page=0', 'page'],
    ['class_id=first', 'class_id'],
    ['is_active=maybe', 'is_active'],
    ['specialization=', 'specialization'],
    ['colour=red', 'colour'],
  ])('%s is a 400 that names the parameter', async (query, path) => {
    expect((await lists.admin.get(`/api/teachers?${query}`, 400)).details.map((detail) => detail.path)).toEqual([path]);
  });
});

describe("a teacher's log-in", () => {
  test('comes with create_user_account and a password, with the teacher role', async () => {
    const { teacher, client } = await withLogin({ first_name: 'Logan' });
    const { data } = await client.get<{ id: number; roles: string[]; first_name: string }>('/api/auth/profile');
    expect(data).toMatchObject({ id: teacher.user_id, roles: ['teacher'], first_name: 'Logan' });
  });

  test('comes by invitation without a password', async () => {
    const email = `${unique('invited')}@${school.subdomain}.example`;
    const teacher = await add({ email, create_user_account: true });
    const { token } = await mailTo(service, email, 'Your log-in');
    await service.anonymous.post('/api/auth/password/reset', { token, password: 'my own password' });
    const client = await service.anonymous.login({ tenant_id: school.id, email, password: 'my own password' });
    expect((await client.get<Teacher>('/api/teachers/me')).data.id).toBe(teacher.id);
  });

  test('needs an e-mail, and a password needs create_user_account; the e-mail of somebody else is a 409 and writes nothing', async () => {
    const names = { first_name: 'A', last_name: unique('Unwritten') };
    expect(
      (await school.admin.post('/api/teachers', { ...names, create_user_account: true }, 400)).details,
    ).toMatchObject([{ path: 'email' }]);
    expect(
      (await school.admin.post('/api/teachers', { ...names, password: 'teacher password' }, 400)).details,
    ).toMatchObject([{ path: 'password' }]);
    const refused = await school.admin.post(
      '/api/teachers',
      { ...names, email: school.adminEmail, create_user_account: true },
      409,
    );
    expect(refused).toMatchObject({ error: 'conflict', details: [{ path: 'email' }] });
    expect(
      await rows(
        `select from ${school.schema}.teacher where last_name = $1 union all select from ${school.schema}.user_account where last_name = $1`,
        [names.last_name],
      ),
    ).toEqual([]);
  });

  test('may come later, once', async () => {
    const email = `${unique('later')}@${school.subdomain}.example`;
    const teacher = await add({ email });
    const bare = await add();
    expect(
      (await school.admin.put(`/api/teachers/${bare.id}`, { create_user_account: true }, 400)).details,
    ).toMatchObject([{ path: 'email' }]);
    const later = await school.admin.put<Teacher>(`/api/teachers/${teacher.id}`, {
      create_user_account: true,
      password: 'teacher password',
    });
    expect(later.data.user_id).not.toBeNull();
    await service.anonymous.login({ tenant_id: school.id, email, password: 'teacher password' });
    expect((await school.admin.put(`/api/teachers/${teacher.id}`, { create_user_account: true }, 409)).message).toBe(
      'This teacher has a log-in already.',
    );
  });

  test('is not for somebody to make who may do less than the teacher role, and neither teacher nor log-in is written', async () => {
    const clerk = await staff('teacher.read', 'teacher.create');
    const last_name = unique('Escalated');
    const email = `${unique('escalated')}@${school.subdomain}.example`;
    const refused = await clerk.post(
      '/api/teachers',
      { first_name: 'A', last_name, email, create_user_account: true, password: 'teacher password' },
      403,
    );
    expect(refused.message).toContain('attendance.mark');
    expect((await clerk.get<Teacher[]>(`/api/teachers?search=${encodeURIComponent(last_name)}`)).data).toEqual([]);
    await clerk.post('/api/teachers', { first_name: 'A', last_name, email }, 201);
  });
});

describe('a teacher that is deleted', () => {
  test('leaves every list and loses the log-in at once; the row stays with deleted_at; number and e-mail are free', async () => {
    const employee_number = unique('E');
    const { teacher, client } = await withLogin({ employee_number });
    expect((await school.admin.delete<{ id: number }>(`/api/teachers/${teacher.id}`)).data).toEqual({ id: teacher.id });
    expect((await client.get('/api/teachers/me', 401)).error).toBe('invalid_token');
    expect(
      (await school.admin.get<Teacher[]>(`/api/teachers?search=${encodeURIComponent(employee_number)}`)).data,
    ).toEqual([]);
    expect(
      await rows(`select deleted_at is not null as deleted, user_id from ${school.schema}.teacher where id = $1`, [
        teacher.id,
      ]),
    ).toEqual([{ deleted: true, user_id: null }]);
    expect((await add({ employee_number, email: teacher.email, create_user_account: true })).user_id).not.toBeNull();
  });

  test('takes their leaves out of the lists', async () => {
    const teacher = await add();
    const { data: leave } = await school.admin.post<Leave>(
      '/api/teachers/leaves',
      { leave_type: 'sick', start_date: '2026-03-02', end_date: '2026-03-02', teacher_id: teacher.id },
      201,
    );
    await school.admin.delete(`/api/teachers/${teacher.id}`);
    expect((await school.admin.get<Leave[]>(`/api/teachers/leaves?teacher_id=${teacher.id}`)).data).toEqual([]);
    await school.admin.put(`/api/teachers/leaves/${leave.id}`, { status: 'approved' }, 404);
  });

  test.each<[string, (classId: number, teacherId: number) => Promise<unknown>]>([
    ['leads', (classId, teacherId) => lead(classId, teacherId)],
    ['has a subject of', async (classId, teacherId) => await teach(classId, await subject(), teacherId)],
    [
      'is another teacher of',
      (classId, teacherId) =>
        rows(`insert into ${school.schema}.teaching_assignment (class_id, teacher_id) values ($1, $2)`, [
          classId,
          teacherId,
        ]),
    ],
    ['has a slot in', async (classId, teacherId) => await slot(school, classId, await subject(), teacherId, 1, 1)],
  ])('must not be one who %s a class of this year: 409 in_use, and they stay', async (_how, assign) => {
    const name = unique('Needed');
    const { classId } = await school.classroom(name);
    const { teacher, client } = await withLogin();
    await assign(classId, teacher.id);
    const refused = await school.admin.delete(`/api/teachers/${teacher.id}`, 409);
    expect(refused).toMatchObject({ error: 'in_use', message: `This teacher still teaches ${name}.` });
    expect((await client.get<Teacher>('/api/teachers/me')).data.id).toBe(teacher.id);
  });

  test('may have taught in years before, and not in one to come; three classes are named and the others counted', async () => {
    const past = await classOfYear(-1);
    const next = await classOfYear(1);
    const teacher = await add();
    await lead(past.classId, teacher.id);
    await lead(next.classId, teacher.id);
    expect((await school.admin.delete(`/api/teachers/${teacher.id}`, 409)).message).toBe(
      `This teacher still teaches ${next.name}.`,
    );
    const art = await subject(unique('Art'));
    const names = ['A1', 'A2', 'A3', 'A4'].map(unique);
    for (const name of names) await teach((await school.classroom(name)).classId, art, teacher.id);
    expect((await school.admin.delete(`/api/teachers/${teacher.id}`, 409)).message).toBe(
      `This teacher still teaches ${names.slice(0, 3).join(', ')} and 2 more.`,
    );
    await rows(`update ${school.schema}.class set class_teacher_id = null where class_teacher_id = $1 and id <> $2`, [
      teacher.id,
      past.classId,
    ]);
    await rows(`delete from ${school.schema}.class_subject where teacher_id = $1`, [teacher.id]);
    await school.admin.delete(`/api/teachers/${teacher.id}`);
  });

  test('is not oneself: nobody removes their own log-in this way', async () => {
    const boss = await service.school();
    const teacher = await add({}, boss);
    await rows(
      `update ${boss.schema}.teacher set user_id = (select id from ${boss.schema}.user_account where email = $2) where id = $1`,
      [teacher.id, boss.adminEmail],
    );
    expect((await boss.admin.delete(`/api/teachers/${teacher.id}`, 409)).error).toBe('conflict');
    expect((await boss.admin.get<Teacher>('/api/teachers/me')).data.id).toBe(teacher.id);
  });
});

describe('who may', () => {
  const hidden = [
    ...['phone', 'employee_number', 'qualification', 'joined_on', 'date_of_birth', 'gender', 'address', 'user_id'],
    ...['max_periods_per_day', 'max_periods_per_week'],
  ] as const;
  const full = () => ({
    phone: unique('+1 555'),
    employee_number: unique('E'),
    qualification: 'Ph.D.',
    specialization: 'Latin',
    joined_on: '2001-01-01',
    date_of_birth: '1970-01-01',
    gender: 'male',
    address: 'Secret Street',
  });

  test('a teacher sees colleagues as a directory and themself whole, by id and in the list', async () => {
    const colleague = await add({ ...full(), last_name: unique('Colleague'), email: 'colleague@school.example' });
    const { teacher, client } = await withLogin({ ...full(), last_name: unique('Myself') });
    const directory = { ...colleague, ...Object.fromEntries(hidden.map((field) => [field, null])) };
    expect((await client.get<Teacher>(`/api/teachers/${colleague.id}`)).data).toEqual(directory);
    expect((await client.get<Teacher[]>(`/api/teachers?search=${colleague.last_name}`)).data).toEqual([directory]);
    expect((await client.get<Teacher>(`/api/teachers/${teacher.id}`)).data).toEqual(await read(teacher.id));
    expect(
      (await client.get<Teacher[]>('/api/teachers?pageSize=100&sort=created_at&order=desc')).data.find(
        ({ id }) => id === teacher.id,
      ),
    ).toEqual(await read(teacher.id));
    const accountant = await school.user(['accountant']);
    expect((await accountant.get('/api/teachers', 403)).error).toBe('forbidden');
    const headOfYear = await staff('teacher.read');
    expect((await headOfYear.get<Teacher>(`/api/teachers/${colleague.id}`)).data).toEqual(colleague);
  });

  test('a teacher learns nothing private of a colleague by search, nor by the order of a list', async () => {
    const colleague = await add({
      ...full(),
      last_name: unique('Searched'),
      email: 'searched@school.example',
      phone: '+1 999 000 111',
      employee_number: unique('Hidden'),
    });
    const { client } = await withLogin();
    const finds = async (who: Client, search: string) =>
      ids((await who.get<Teacher[]>(`/api/teachers?search=${encodeURIComponent(search)}`)).data).includes(colleague.id);
    for (const secret of [
      colleague.phone ?? '',
      colleague.employee_number ?? '',
      '999 000',
      `${colleague.last_name} 999`,
    ]) {
      expect([secret, await finds(school.admin, secret), await finds(client, secret)]).toEqual([secret, true, false]);
    }
    for (const open of [
      colleague.last_name,
      colleague.email ?? '',
      `${colleague.first_name} ${colleague.last_name.toUpperCase()}`,
      `  ${colleague.last_name} `,
    ]) {
      expect([open, await finds(client, open)]).toEqual([open, true]);
    }
    for (const sort of ['employee_number', 'joined_on']) {
      for (const order of ['asc', 'desc'] as const) {
        const listed = (await walk<Teacher>(client, `/api/teachers?sort=${sort}&order=${order}`, 100)).slice(0, 100);
        const byId = [...ids(listed)].sort((a, b) => (order === 'asc' ? a - b : b - a));
        expect(ids(listed).filter((id) => id !== colleague.id)).toEqual(byId.filter((id) => id !== colleague.id));
      }
    }
  });

  test('a teacher filters by a class they teach, and finds nobody by one that they do not', async () => {
    const { teacher, client } = await withLogin();
    const colleague = await add();
    const mine = await school.classroom(unique('Mine'));
    const theirs = await school.classroom(unique('Theirs'));
    await lead(mine.classId, teacher.id);
    await lead(theirs.classId, colleague.id);
    expect(ids((await client.get<Teacher[]>(`/api/teachers?class_id=${mine.classId}`)).data)).toEqual([teacher.id]);
    expect((await client.get<Teacher[]>(`/api/teachers?class_id=${theirs.classId}`)).data).toEqual([]);
    expect(ids((await school.admin.get<Teacher[]>(`/api/teachers?class_id=${theirs.classId}`)).data)).toEqual([
      colleague.id,
    ]);
  });

  test('teachers, accountants and students change no teacher, themselves included; each verb asks for its own permission', async () => {
    const { teacher, client } = await withLogin();
    const pupil = await school.user(['student']);
    for (const who of [client, await school.user(['accountant']), pupil]) {
      await who.post('/api/teachers', { first_name: 'A', last_name: 'B' }, 403);
      await who.put(`/api/teachers/${teacher.id}`, { first_name: 'A' }, 403);
      await who.delete(`/api/teachers/${teacher.id}`, 403);
      await who.put(`/api/teachers/${teacher.id}/availability`, [], 403);
      await who.put(`/api/teachers/${teacher.id}/workload-rule`, { max_periods_per_day: 1 }, 403);
    }
    await pupil.get('/api/teachers', 403);
    await pupil.get(`/api/teachers/${teacher.id}`, 403);
    expect(await read(teacher.id)).toEqual(teacher);
    const clerk = await staff('teacher.update');
    await clerk.get('/api/teachers', 403);
    await clerk.delete(`/api/teachers/${teacher.id}`, 403);
    expect((await clerk.put<Teacher>(`/api/teachers/${teacher.id}`, { address: 'By a clerk' })).data.address).toBe(
      'By a clerk',
    );
    await service.anonymous.get('/api/teachers', 401);
  });

  test('a teacher role that was given more still changes no colleague', async () => {
    const own = await service.school();
    const colleague = await add({}, own);
    await rows(
      `insert into ${own.schema}.role_permission (role_id, permission_id)
       select r.id, p.id from ${own.schema}.role r, core.permission p where r.is_system and r.name = 'teacher' on conflict do nothing`,
    );
    const { teacher, client } = await withLogin({}, own);
    await client.put(`/api/teachers/${colleague.id}`, { first_name: 'Mine' }, 404);
    await client.delete(`/api/teachers/${colleague.id}`, 404);
    await client.put(`/api/teachers/${colleague.id}/availability`, [], 404);
    await client.put(`/api/teachers/${colleague.id}/workload-rule`, { max_periods_per_day: 1 }, 404);
    await client.post(
      '/api/teachers/leaves',
      { leave_type: 'x', start_date: '2026-01-01', end_date: '2026-01-01', teacher_id: colleague.id },
      403,
    );
    expect((await client.put<Teacher>(`/api/teachers/${teacher.id}`, { first_name: 'Own' })).data.first_name).toBe(
      'Own',
    );
    expect((await own.admin.get<Teacher>(`/api/teachers/${colleague.id}`)).data).toEqual(colleague);
  });
});

describe('/me', () => {
  test('is the teacher behind the log-in, whole, and a 404 for whoever is none', async () => {
    const { teacher, client } = await withLogin({ address: 'Home', date_of_birth: '1980-01-01' });
    expect((await client.get<Teacher>('/api/teachers/me')).data).toEqual(await read(teacher.id));
    expect((await client.get<Teacher>('/api/teachers/me')).data.address).toBe('Home');
    for (const who of [
      school.admin,
      await school.user(['accountant']),
      await school.user(['student']),
      await school.user(['teacher']),
    ]) {
      expect((await who.get('/api/teachers/me', 404)).message).toBe('You are no teacher of this school.');
      await who.get('/api/teachers/me/classes', 404);
    }
    await service.anonymous.get('/api/teachers/me', 401);
  });

  test('is there for an admin who teaches too', async () => {
    const admin = await school.user(['admin']);
    const teacher = await add();
    await rows(`update ${school.schema}.teacher set user_id = $2 where id = $1`, [teacher.id, admin.id]);
    expect((await admin.get<Teacher>('/api/teachers/me')).data.id).toBe(teacher.id);
    expect((await admin.get<Schedule>('/api/teachers/me/today-schedule')).data.slots).toEqual([]);
  });
});

type TaughtClass = OutputOf<typeof TaughtClassSchema>;

describe('/me/classes', () => {
  test('are the classes of this year with what one teaches there, who is in them, and no other class', async () => {
    const { teacher, client } = await withLogin();
    const colleague = await add();
    const led = await school.classroom('B led');
    const taught = await school.classroom('A taught');
    const foreign = await school.classroom(unique('Not mine'));
    await lead(led.classId, teacher.id);
    await lead(taught.classId, colleague.id);
    await lead(foreign.classId, (await add()).id);
    const called = { art: unique('Art'), zoology: unique('Zoology') };
    const [art, zoology] = [await subject(called.art), await subject(called.zoology)];
    await teach(taught.classId, zoology, teacher.id);
    await teach(taught.classId, art, teacher.id);
    await rows(
      `insert into ${school.schema}.teaching_assignment (class_id, teacher_id, subject) values ($1, $2, 'Choir')`,
      [taught.classId, teacher.id],
    );
    for (const is_active of [true, false]) {
      await school.admin.post(
        '/api/students',
        { first_name: 'A', last_name: 'Pupil', class_id: taught.classId, is_active },
        201,
      );
    }
    const left = await school.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'A', last_name: 'Pupil', class_id: taught.classId },
      201,
    );
    await school.admin.delete(`/api/students/${left.data.id}`);
    const { data, pagination } = await client.get<TaughtClass[]>('/api/teachers/me/classes');
    expect(data).toEqual([
      {
        class_id: taught.classId,
        class_name: 'A taught',
        grade_id: taught.gradeId,
        grade_name: 'A taught grade',
        academic_year_id: taught.yearId,
        is_class_teacher: false,
        subjects: [called.art, 'Choir', called.zoology],
        student_count: 2,
      },
      {
        class_id: led.classId,
        class_name: 'B led',
        grade_id: led.gradeId,
        grade_name: 'B led grade',
        academic_year_id: led.yearId,
        is_class_teacher: true,
        subjects: [],
        student_count: 0,
      },
    ]);
    expect(pagination).toEqual({ page: 1, pageSize: 20, totalItems: 2, totalPages: 1 });
    const names = async (query: string) =>
      (await client.get<TaughtClass[]>(`/api/teachers/me/classes?${query}`)).data.map(({ class_name }) => class_name);
    expect(await names('sort=class_name&order=desc')).toEqual(['B led', 'A taught']);
    expect(await names('sort=grade_name&order=asc')).toEqual(['A taught', 'B led']);
    expect(await names('search=LED')).toEqual(['B led']);
    expect(await names('pageSize=1&page=2')).toEqual(['B led']);
  });

  test('of another year are there by academic_year_id, with who was in them then', async () => {
    const { teacher, client } = await withLogin();
    const past = await classOfYear(-1);
    const now = await school.classroom(unique('Now'));
    await lead(past.classId, teacher.id);
    const { data: pupil } = await school.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'A', last_name: 'Pupil', class_id: past.classId },
      201,
    );
    await school.admin.put(`/api/students/${pupil.id}`, { class_id: now.classId });
    expect((await client.get<TaughtClass[]>('/api/teachers/me/classes')).data).toEqual([]);
    const { data } = await client.get<TaughtClass[]>(`/api/teachers/me/classes?academic_year_id=${past.yearId}`);
    expect(data).toMatchObject([{ class_id: past.classId, student_count: 1, is_class_teacher: true }]);
    expect((await client.get<TaughtClass[]>('/api/teachers/me/classes?academic_year_id=999999')).data).toEqual([]);
  });

  test('are none in a school without a current year', async () => {
    const fresh = await service.school();
    const { client } = await withLogin({}, fresh);
    expect((await client.get<TaughtClass[]>('/api/teachers/me/classes')).data).toEqual([]);
    expect((await client.get<Schedule>('/api/teachers/me/today-schedule')).data.slots).toEqual([]);
  });
});

describe('/me/today-schedule', () => {
  let days: School;
  let today: { date: string; day: number };
  let teacher: Teacher;
  let client: Client;
  let expected: Slot[];

  beforeAll(async () => {
    days = await service.school();
    const [row] = await rows<{ date: string; day: number }>(
      `select (now() at time zone time_zone)::date::text as date, extract(isodow from now() at time zone time_zone)::integer as day from platform.tenant where id = $1`,
      [days.id],
    );
    today = row ?? { date: '', day: 0 };
    await rows(
      `update ${days.schema}.timetable_config set working_days = '{1,2,3,4,5,6,7}', start_time = '08:30', period_duration = 50, lunch_start_period = 2`,
    );
    ({ teacher, client } = await withLogin({}, days));
    const colleague = await add({}, days);
    const one = await days.classroom('One');
    const two = await days.classroom('Two');
    await rows(`update ${days.schema}.class set section = 'B', room = 'R2' where id = $1`, [two.classId]);
    const physics = await subject('Physics', days);
    await teach(one.classId, physics, teacher.id, 1, days);
    await lead(two.classId, teacher.id, days);
    const third = await slot(days, two.classId, physics, teacher.id, today.day, 3);
    const first = await slot(days, one.classId, physics, teacher.id, today.day, 1, 'Lab');
    await slot(days, one.classId, physics, teacher.id, (today.day % 7) + 1, 1);
    await slot(days, one.classId, physics, colleague.id, today.day, 3);
    const common = {
      subject_id: physics,
      subject_name: 'Physics',
      teacher_id: teacher.id,
      teacher_name: 'Tess Teacher',
    };
    expected = [
      {
        slot_id: first,
        period: 1,
        start_time: '08:30',
        end_time: '09:20',
        class_id: one.classId,
        class_name: 'One',
        ...common,
        is_teacher_on_leave: false,
        room: 'Lab',
      },
      {
        slot_id: third,
        period: 3,
        start_time: '10:10',
        end_time: '11:00',
        class_id: two.classId,
        class_name: 'Two B',
        ...common,
        is_teacher_on_leave: false,
        room: 'R2',
      },
    ];
  });

  const schedule = async () => (await client.get<Schedule>('/api/teachers/me/today-schedule')).data;
  const nothing = () => ({ date: today.date, day_of_week: today.day, holiday: null, on_leave: false, slots: [] });

  test("has one's own slots of today's weekday in order, with their times, classes and rooms", async () => {
    expect(await schedule()).toMatchObject({ ...nothing(), slots: expected });
  });

  test('is empty on a holiday, which it names; a recurring one counts every year', async () => {
    const [row] = await rows<{ id: string }>(
      `insert into ${days.schema}.holiday (name, date) values ('Founders', $1) returning id`,
      [today.date],
    );
    expect(await schedule()).toMatchObject({ ...nothing(), holiday: { name: 'Founders' } });
    await rows(`update ${days.schema}.holiday set date = date - interval '4 years' where id = $1`, [row?.id]);
    expect((await schedule()).slots).toEqual(expected);
    await rows(`update ${days.schema}.holiday set is_recurring = true where id = $1`, [row?.id]);
    expect(await schedule()).toMatchObject({ ...nothing(), holiday: { name: 'Founders' } });
    await rows(`delete from ${days.schema}.holiday`);
    expect((await schedule()).slots).toEqual(expected);
  });

  test('is empty on an approved leave, and not on one that is pending or rejected', async () => {
    const leave = async () =>
      (
        await client.post<Leave>(
          '/api/teachers/leaves',
          { leave_type: 'sick', start_date: today.date, end_date: today.date },
          201,
        )
      ).data.id;
    const [approved, rejected] = [await leave(), await leave()];
    await days.admin.put(`/api/teachers/leaves/${rejected}`, { status: 'rejected' });
    expect((await schedule()).slots).toEqual(expected);
    await days.admin.put(`/api/teachers/leaves/${approved}`, { status: 'approved' });
    expect(await schedule()).toMatchObject({ ...nothing(), on_leave: true });
    await days.admin.delete(`/api/teachers/leaves/${approved}`);
    expect((await schedule()).slots).toEqual(expected);
  });

  test('is empty on a day without school, and outside the academic year', async () => {
    await rows(`update ${days.schema}.timetable_config set working_days = array[$1::integer]`, [(today.day % 7) + 1]);
    expect(await schedule()).toMatchObject(nothing());
    await rows(`update ${days.schema}.timetable_config set working_days = '{1,2,3,4,5,6,7}'`);
    await rows(`update ${days.schema}.academic_year set start_date = start_date - 400, end_date = $1::date - 1`, [
      today.date,
    ]);
    expect(await schedule()).toMatchObject(nothing());
    // The year that the day lies in counts, whichever the school calls current.
    await rows(`update ${days.schema}.academic_year set end_date = $1, is_current = false`, [today.date]);
    expect((await schedule()).slots).toEqual(expected);
  });

  test("is of today in the school's time zone", async () => {
    for (const zone of ['Pacific/Kiritimati', 'Pacific/Pago_Pago']) {
      await rows('update platform.tenant set time_zone = $2 where id = $1', [days.id, zone]);
      const [row] = await rows<{ before: string }>('select (now() at time zone $1)::date::text as before', [zone]);
      const { date } = await schedule();
      const [after] = await rows<{ after: string }>('select (now() at time zone $1)::date::text as after', [zone]);
      expect([row?.before, after?.after]).toContain(date);
    }
    await rows("update platform.tenant set time_zone = 'UTC' where id = $1", [days.id]);
  });

  test('needs timetable.read, and a teacher: 403 and 404', async () => {
    expect((await (await days.user(['accountant'])).get('/api/teachers/me/today-schedule', 403)).error).toBe(
      'forbidden',
    );
    expect((await (await days.user(['student'])).get('/api/teachers/me/today-schedule', 404)).error).toBe('not_found');
    await days.admin.get('/api/teachers/me/today-schedule', 404);
  });
});

describe('leaves', () => {
  const day = (n: number) => `2026-05-${String(n).padStart(2, '0')}`;
  const body = (from = 4, to = from, more: Record<string, unknown> = {}) => ({
    leave_type: 'sick',
    start_date: day(from),
    end_date: day(to),
    ...more,
  });
  const ask = async (who: Client, given: object = body()) =>
    (await who.post<Leave>('/api/teachers/leaves', given, 201)).data;
  const decide = (id: number, status: string, expectedStatus = 200, more: object = {}) =>
    school.admin.put<Leave>(`/api/teachers/leaves/${id}`, { status, ...more }, expectedStatus);
  const readLeave = async (leave: Leave) =>
    (await school.admin.get<Leave[]>(`/api/teachers/${leave.teacher_id}/leaves?pageSize=100`)).data.find(
      ({ id }) => id === leave.id,
    );

  test('a teacher asks for their own, which is pending', async () => {
    const { teacher, client } = await withLogin({ first_name: 'Lea', last_name: 'Ve' });
    const asked = await client.post<Leave>('/api/teachers/leaves', body(4, 6, { reason: 'Flu' }), 201);
    expect(asked.headers.get('location')).toBe(`/api/teachers/leaves/${asked.data.id}`);
    expect(asked.data).toEqual({
      ...asked.data,
      teacher_id: teacher.id,
      teacher_name: 'Lea Ve',
      leave_type: 'sick',
      start_date: day(4),
      end_date: day(6),
      days: 3,
      reason: 'Flu',
      status: 'pending',
      decided_by: null,
      decided_by_name: null,
      decided_at: null,
      decision_note: null,
    });
    expect((await client.get<Leave[]>(`/api/teachers/${teacher.id}/leaves`)).data).toEqual([asked.data]);
    expect((await ask(client, body(8, 8, { teacher_id: teacher.id }))).teacher_id).toBe(teacher.id);
  });

  test('whoever may decide on leaves names the teacher; without one they are asked for it, and an unknown one is a 422', async () => {
    const teacher = await add();
    expect((await ask(school.admin, body(4, 4, { teacher_id: teacher.id }))).teacher_id).toBe(teacher.id);
    const gone = await add();
    await school.admin.delete(`/api/teachers/${gone.id}`);
    for (const teacher_id of [undefined, null, 999_999, gone.id]) {
      const refused = await school.admin.post('/api/teachers/leaves', body(4, 4, { teacher_id }), 422);
      expect(refused).toMatchObject({ error: 'invalid_reference', details: [{ path: 'teacher_id' }] });
    }
    const manager = await staff('leave.manage');
    expect((await ask(manager, body(5, 5, { teacher_id: teacher.id }))).teacher_id).toBe(teacher.id);
  });

  test('nobody else asks for one: a teacher for a colleague, a student, an accountant', async () => {
    const { client } = await withLogin();
    const colleague = await add();
    for (const teacher_id of [colleague.id, 999_999]) {
      expect((await client.post('/api/teachers/leaves', body(4, 4, { teacher_id }), 403)).error).toBe('forbidden');
    }
    const pupil = await school.user(['student']);
    const { classId } = await school.classroom(unique('Class'));
    const { data: student } = await school.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'A', last_name: 'Pupil', class_id: classId },
      201,
    );
    await rows(`update ${school.schema}.student set user_id = $2 where id = $1`, [student.id, pupil.id]);
    const pupilAgain = await service.anonymous.login({
      tenant_id: school.id,
      email: pupil.email,
      password: 'test-password',
    });
    for (const who of [pupil, pupilAgain, await school.user(['accountant']), await school.user([])]) {
      await who.post('/api/teachers/leaves', body(), 403);
      await who.post('/api/teachers/leaves', body(4, 4, { teacher_id: colleague.id }), 403);
    }
    expect((await school.admin.get<Leave[]>(`/api/teachers/${colleague.id}/leaves`)).data).toEqual([]);
  });

  test('one that ends before it begins, or lacks what it needs, is a 400 that names the field', async () => {
    const teacher = await add();
    const refused = await school.admin.post('/api/teachers/leaves', body(5, 4, { teacher_id: teacher.id }), 400);
    expect(refused.details).toEqual([{ path: 'end_date', message: 'must not be before start_date' }]);
    expect(
      (await school.admin.post('/api/teachers/leaves', { status: 'approved' }, 400)).details
        .map(({ path }) => path)
        .sort(),
    ).toEqual(['end_date', 'leave_type', 'start_date', 'status'].sort());
  });

  test('an Idempotency-Key asks once', async () => {
    const { teacher, client } = await withLogin();
    const post = () =>
      client.send<Leave>(
        'POST',
        '/api/teachers/leaves',
        { body: body(), headers: { 'Idempotency-Key': 'leave' } },
        201,
      );
    const answers = await Promise.all([post(), post()]);
    expect(answers[0].data).toEqual(answers[1].data);
    expect((await client.get(`/api/teachers/${teacher.id}/leaves`)).pagination.totalItems).toBe(1);
  });

  test('approving or rejecting one says who did, when and why, to the teacher too', async () => {
    const { teacher, client } = await withLogin();
    const admin = await school.user(['admin'], { first_name: 'Dee', last_name: 'Cider' });
    const [one, two] = [await ask(client, body(4)), await ask(client, body(5))];
    const approved = await admin.put<Leave>(`/api/teachers/leaves/${one.id}`, {
      status: 'approved',
      decision_note: 'Get well',
    });
    expect(approved.data).toEqual({
      ...one,
      status: 'approved',
      decided_by: admin.id,
      decided_by_name: 'Dee Cider',
      decided_at: approved.data.decided_at,
      decision_note: 'Get well',
      updated_at: approved.data.updated_at,
    });
    expect(Math.abs(Date.parse(approved.data.decided_at ?? '') - Date.parse(approved.data.updated_at))).toBeLessThan(
      1000,
    );
    const rejected = await admin.put<Leave>(`/api/teachers/leaves/${two.id}`, { ...two, status: 'rejected' });
    expect(rejected.data).toMatchObject({ status: 'rejected', decided_by: admin.id, decision_note: null });
    expect((await client.get<Leave[]>(`/api/teachers/${teacher.id}/leaves?sort=start_date&order=asc`)).data).toEqual([
      approved.data,
      rejected.data,
    ]);
  });

  test.each([
    ['approved', 'approved'],
    ['approved', 'rejected'],
    ['rejected', 'approved'],
    ['rejected', 'rejected'],
  ])('one that was %s can not be %s: 409 invalid_state that names both', async (from, to) => {
    const teacher = await add();
    const leave = await ask(school.admin, body(4, 4, { teacher_id: teacher.id }));
    const before = (await decide(leave.id, from)).data;
    expect(await decide(leave.id, to, 409)).toMatchObject({
      error: 'invalid_state',
      message: `A leave cannot go from ${from} to ${to}.`,
    });
    expect(await readLeave(leave)).toEqual(before);
  });

  test('no other state can be asked for', async () => {
    const teacher = await add();
    const leave = await ask(school.admin, body(4, 4, { teacher_id: teacher.id }));
    for (const status of ['pending', 'cancelled', null, undefined]) {
      expect((await school.admin.put(`/api/teachers/leaves/${leave.id}`, { status }, 400)).details).toMatchObject([
        { path: 'status' },
      ]);
    }
    expect(
      (await school.admin.put(`/api/teachers/leaves/${leave.id}`, { status: 'approved', start_date: day(9) }, 400))
        .details,
    ).toMatchObject([{ path: 'start_date' }]);
    expect(await readLeave(leave)).toEqual(leave);
  });

  test('an approved one must not overlap another approved one of the teacher: 409 conflict; of another teacher it may', async () => {
    const [one, two] = [await add(), await add()];
    const leave = async (teacher: Teacher, from: number, to: number) =>
      (await ask(school.admin, body(from, to, { teacher_id: teacher.id }))).id;
    await decide(await leave(one, 4, 8), 'approved');
    const overlapping = await leave(one, 8, 9);
    expect((await decide(overlapping, 'approved', 409)).error).toBe('conflict');
    await decide(overlapping, 'rejected');
    await decide(await leave(one, 9, 9), 'approved');
    await decide(await leave(two, 4, 8), 'approved');
  });

  test('of overlapping approvals that race one wins, and the others are a 409 conflict', async () => {
    for (let round = 0; round < 3; round++) {
      const teacher = await add();
      const asked = await Promise.all(
        [1, 2, 3, 4].map((n) => ask(school.admin, body(n, 10, { teacher_id: teacher.id }))),
      );
      const answers = await Promise.all(
        asked.map(({ id }) =>
          school.admin.send<Leave>('PUT', `/api/teachers/leaves/${id}`, { body: { status: 'approved' } }),
        ),
      );
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409, 409]);
      expect(answers.filter(({ status }) => status === 409).map(({ error }) => error)).toEqual(
        Array(3).fill('conflict'),
      );
      expect((await school.admin.get(`/api/teachers/${teacher.id}/leaves?status=approved`)).pagination.totalItems).toBe(
        1,
      );
    }
  });

  test('of two decisions on one leave that race one wins', async () => {
    const teacher = await add();
    const leave = await ask(school.admin, body(4, 4, { teacher_id: teacher.id }));
    const answers = await Promise.all(
      ['approved', 'rejected'].map((status) =>
        school.admin.send<Leave>('PUT', `/api/teachers/leaves/${leave.id}`, { body: { status } }),
      ),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    expect(await readLeave(leave)).toEqual(answers.find(({ status }) => status === 200)?.data);
  });

  test('a decision goes through with a fresh If-Match and is a 412 with a stale one', async () => {
    const teacher = await add();
    const leave = await school.admin.post<Leave>('/api/teachers/leaves', body(4, 4, { teacher_id: teacher.id }), 201);
    const put = (match: string, status: number) =>
      school.admin.send(
        'PUT',
        `/api/teachers/leaves/${leave.data.id}`,
        { body: { status: 'approved' }, headers: { 'If-Match': match } },
        status,
      );
    await put('"stale"', 412);
    await put(leave.headers.get('etag') ?? '', 200);
  });

  test('a teacher takes back what is pending, and nothing else; who decides on leaves removes any', async () => {
    const { client } = await withLogin();
    const [pending, approved, rejected] = [
      await ask(client, body(4)),
      await ask(client, body(5)),
      await ask(client, body(6)),
    ];
    await decide(approved.id, 'approved');
    await decide(rejected.id, 'rejected');
    expect((await client.delete<{ id: number }>(`/api/teachers/leaves/${pending.id}`)).data).toEqual({
      id: pending.id,
    });
    for (const [leave, status] of [
      [approved, 'approved'],
      [rejected, 'rejected'],
    ] as const) {
      const refused = await client.delete(`/api/teachers/leaves/${leave.id}`, 409);
      expect(refused).toMatchObject({
        error: 'invalid_state',
        message: `This leave is ${status}; only a pending one can be taken back.`,
      });
      await school.admin.delete(`/api/teachers/leaves/${leave.id}`);
      expect(await readLeave(leave)).toBeUndefined();
    }
    await school.admin.delete(`/api/teachers/leaves/${pending.id}`, 404);
  });

  test('are out of reach for colleagues, students and accountants: 404 or 403, and they stay', async () => {
    const { teacher, client } = await withLogin();
    const leave = await ask(client);
    const colleague = (await withLogin()).client;
    expect((await colleague.get(`/api/teachers/${teacher.id}/leaves`, 404)).error).toBe('not_found');
    await colleague.delete(`/api/teachers/leaves/${leave.id}`, 404);
    await colleague.put(`/api/teachers/leaves/${leave.id}`, { status: 'approved' }, 403);
    await client.put(`/api/teachers/leaves/${leave.id}`, { status: 'approved' }, 403);
    await colleague.get('/api/teachers/leaves', 403);
    for (const who of [await school.user(['accountant']), await school.user(['student'])]) {
      await who.get(`/api/teachers/${teacher.id}/leaves`, 403);
      await who.get('/api/teachers/leaves', 403);
      await who.put(`/api/teachers/leaves/${leave.id}`, { status: 'approved' }, 403);
      await who.delete(`/api/teachers/leaves/${leave.id}`, 403);
    }
    await other.admin.delete(`/api/teachers/leaves/${leave.id}`, 404);
    expect(await readLeave(leave)).toEqual(leave);
    const reader = await staff('teacher.read');
    expect((await reader.get<Leave[]>(`/api/teachers/${teacher.id}/leaves`)).data).toEqual([leave]);
    await reader.get('/api/teachers/leaves', 403);
  });

  test('a teacher whose log-in has no role still reads their own leaves, availability and workload', async () => {
    const { teacher, client } = await withLogin();
    await school.admin.put(`/api/users/${teacher.user_id ?? 0}`, { role_ids: [] });
    const colleague = await add();
    for (const below of ['leaves', 'availability', 'workload']) {
      await client.get(`/api/teachers/${teacher.id}/${below}`);
      await client.get(`/api/teachers/${colleague.id}/${below}`, 404);
    }
    await client.get('/api/teachers', 403);
    const leave = await ask(client);
    await client.delete(`/api/teachers/leaves/${leave.id}`);
  });

  describe('listed', () => {
    let lists: School;
    let all: Leave[];
    let one: Teacher;
    let years: { past: number; current: number };

    beforeAll(async () => {
      lists = await service.school();
      const past = await classOfYear(-1, lists);
      const [row] = await rows<{ id: number; year: number }>(
        `select id::integer, extract(year from start_date)::integer as year from ${lists.schema}.academic_year where is_current`,
      );
      years = { past: past.yearId, current: row?.id ?? 0 };
      const year = row?.year ?? 0;
      one = await add({ first_name: 'Émile', last_name: 'One' }, lists);
      const two = await add({ first_name: 'Two', last_name: 'Two' }, lists);
      for (const [teacher, type, from, to] of [
        [one, 'sick', `${year}-03-01`, `${year}-03-02`],
        [one, 'annual', `${year - 1}-12-30`, `${year}-01-02`],
        [two, 'sick', `${year - 1}-05-01`, `${year - 1}-05-01`],
        [two, 'study', `${year}-03-01`, `${year}-03-09`],
        [one, 'study', `${year}-06-01`, `${year}-06-09`],
      ] as const) {
        await lists.admin.post(
          '/api/teachers/leaves',
          { leave_type: type, start_date: from, end_date: to, teacher_id: teacher.id, reason: `Réason ${type}` },
          201,
        );
      }
      all = await walk<Leave>(lists.admin, '/api/teachers/leaves', 100);
      await lists.admin.put(`/api/teachers/leaves/${all.find(({ leave_type }) => leave_type === 'annual')?.id ?? 0}`, {
        status: 'approved',
      });
      await rows(
        `update ${lists.schema}.teacher_leave set created_at = timestamptz '2026-01-01Z' + (id % 2) * interval '1 day'`,
      );
      all = await walk<Leave>(lists.admin, '/api/teachers/leaves', 100);
    });

    const found = async (query: string, path = '/api/teachers/leaves') =>
      ids((await lists.admin.get<Leave[]>(`${path}?${query}`)).data);

    test('begin with the latest, and sort by start_date and created_at both ways, page by page', async () => {
      expect(all).toHaveLength(5);
      expect(ids(all)).toEqual(ids(inOrder(all, ({ start_date }) => [start_date], 'desc')));
      for (const [sort, key] of [
        ['start_date', (leave: Leave) => [leave.start_date]],
        ['created_at', (leave: Leave) => [leave.created_at]],
      ] as const) {
        for (const order of ['asc', 'desc'] as const) {
          expect(ids(await walk<Leave>(lists.admin, `/api/teachers/leaves?sort=${sort}&order=${order}`, 2))).toEqual(
            ids(inOrder(all, key, order)),
          );
        }
      }
      const own = all.filter(({ teacher_id }) => teacher_id === one.id);
      expect(await found('', `/api/teachers/${one.id}/leaves`)).toEqual(ids(own));
      expect(await found('sort=start_date&order=asc', `/api/teachers/${one.id}/leaves`)).toEqual(ids(own).reverse());
    });

    test('narrow by teacher, status, and an academic year that a day of them lies in', async () => {
      const fitting = (fits: (leave: Leave) => boolean) => ids(all.filter(fits));
      expect(await found(`teacher_id=${one.id}`)).toEqual(fitting(({ teacher_id }) => teacher_id === one.id));
      expect(await found('status=approved')).toEqual(fitting(({ status }) => status === 'approved'));
      expect(await found('status=rejected')).toEqual([]);
      const inYear = (leave: Leave, which: 'past' | 'current') =>
        leave.leave_type === 'annual' ||
        leave.start_date < (all.find(({ leave_type }) => leave_type === 'annual')?.end_date ?? '') ===
          (which === 'past');
      expect(await found(`academic_year_id=${years.past}`)).toEqual(fitting((leave) => inYear(leave, 'past')));
      expect(await found(`academic_year_id=${years.current}`)).toEqual(fitting((leave) => inYear(leave, 'current')));
      expect(
        await found(`academic_year_id=${years.past}&status=approved`, `/api/teachers/${one.id}/leaves`),
      ).toHaveLength(1);
      expect(await found('academic_year_id=999999')).toEqual([]);
    });

    test('search teacher, type and reason', async () => {
      expect(await found('search=emile')).toEqual(ids(all.filter(({ teacher_id }) => teacher_id === one.id)));
      expect(await found('search=reason%20STUDY')).toEqual(ids(all.filter(({ leave_type }) => leave_type === 'study')));
      expect(await found('search=study', `/api/teachers/${one.id}/leaves`)).toHaveLength(1);
    });

    test.each([
      ['status=open', 'status'],
      ['sort=reason', 'sort'],
      ['academic_year_id=x', 'academic_year_id'],
      ['colour=red', 'colour'],
    ])('%s is a 400 that names the parameter', async (query, path) => {
      for (const list of ['/api/teachers/leaves', `/api/teachers/${one.id}/leaves`]) {
        expect((await lists.admin.get(`${list}?${query}`, 400)).details.map((detail) => detail.path)).toEqual([path]);
      }
      expect((await lists.admin.get(`/api/teachers/${one.id}/leaves?teacher_id=1`, 400)).details).toMatchObject([
        { path: 'teacher_id' },
      ]);
    });
  });
});

describe('availability', () => {
  const grid = (but: Record<string, boolean> = {}, working = [1, 2, 3, 4, 5], periods = 8): Cell[] =>
    working.flatMap((day_of_week) =>
      Array.from({ length: periods }, (_, n) => ({
        day_of_week,
        period: n + 1,
        is_available: but[`${day_of_week} ${n + 1}`] ?? true,
      })),
    );
  const get = async (id: number, who = school.admin) =>
    (await who.get<Cell[]>(`/api/teachers/${id}/availability`)).data;
  const put = (id: number, slots: unknown, status = 200) =>
    school.admin.put<Cell[]>(`/api/teachers/${id}/availability`, slots, status);

  test('is the whole week of the timetable, all of it when nothing was said', async () => {
    const teacher = await add();
    expect(await get(teacher.id)).toEqual(grid());
  });

  test('is replaced as a whole: what is not named any more is available', async () => {
    const teacher = await add();
    const first = await put(teacher.id, [
      { day_of_week: 1, period: 1, is_available: false },
      { day_of_week: 5, period: 8, is_available: false },
      { day_of_week: 2, period: 2, is_available: true },
    ]);
    expect(first.data).toEqual(grid({ '1 1': false, '5 8': false }));
    expect(await get(teacher.id)).toEqual(first.data);
    expect((await put(teacher.id, [{ day_of_week: 3, period: 3, is_available: false }])).data).toEqual(
      grid({ '3 3': false }),
    );
    expect((await put(teacher.id, await get(teacher.id))).data).toEqual(grid({ '3 3': false }));
    expect((await put(teacher.id, [])).data).toEqual(grid());
  });

  test('follows the timetable: its working days and periods', async () => {
    const week = await service.school();
    const teacher = await add({}, week);
    await rows(`update ${week.schema}.timetable_config set working_days = '{7,6}', total_periods = 2`);
    const saturday = [{ day_of_week: 6, period: 2, is_available: false }];
    const { data } = await week.admin.put<Cell[]>(`/api/teachers/${teacher.id}/availability`, saturday);
    expect(data).toEqual(grid({ '6 2': false }, [6, 7], 2));
  });

  test('names the cell at fault by its path: twice, outside the day or the week, incomplete; nothing changes', async () => {
    const teacher = await add();
    await put(teacher.id, [{ day_of_week: 1, period: 1, is_available: false }]);
    const good = { day_of_week: 2, period: 2, is_available: false };
    for (const [slots, path] of [
      [[good, { day_of_week: 1, period: 2, is_available: true }, { ...good, is_available: true }], '2'],
      [[good, { ...good, day_of_week: 1, period: 9 }], '1.period'],
      [[good, { ...good, period: 0 }], '1.period'],
      [[good, { ...good, period: 25 }], '1.period'],
      [[{ ...good, day_of_week: 8 }], '0.day_of_week'],
      [[{ ...good, day_of_week: 0 }], '0.day_of_week'],
      [[{ day_of_week: 1, period: 1 }], '0.is_available'],
      [[{ ...good, colour: 'red' }], '0.colour'],
      [{}, ''],
    ] as [unknown, string][]) {
      expect((await put(teacher.id, slots, 400)).details.map((detail) => detail.path)).toEqual([path]);
    }
    expect(await get(teacher.id)).toEqual(grid({ '1 1': false }));
  });

  test('of two that are sent at once one stands as a whole', async () => {
    const teacher = await add();
    const all = (period: number) =>
      [1, 2, 3, 4, 5].map((day_of_week) => ({ day_of_week, period, is_available: false }));
    const answers = await Promise.all([1, 2, 3, 4].map((period) => put(teacher.id, all(period))));
    expect(answers.map(({ data }) => data)).toContainEqual(await get(teacher.id));
    expect((await get(teacher.id)).filter(({ is_available }) => !is_available)).toHaveLength(5);
  });

  test("a teacher reads their own and no colleague's", async () => {
    const { teacher, client } = await withLogin();
    const colleague = await add();
    await put(teacher.id, [{ day_of_week: 1, period: 1, is_available: false }]);
    expect(await get(teacher.id, client)).toEqual(grid({ '1 1': false }));
    expect((await client.get(`/api/teachers/${colleague.id}/availability`, 404)).error).toBe('not_found');
    await (await school.user(['accountant'])).get(`/api/teachers/${teacher.id}/availability`, 403);
    await (await school.user(['student'])).get(`/api/teachers/${teacher.id}/availability`, 403);
  });
});

describe('workload', () => {
  let work: School;
  let teacher: Teacher;
  const get = async (who = work.admin, id = teacher.id) =>
    (await who.get<Workload>(`/api/teachers/${id}/workload`)).data;
  const rule = (body: unknown, status = 200, id = teacher.id) =>
    work.admin.put<Workload>(`/api/teachers/${id}/workload-rule`, body, status);
  const week = (periods: Record<number, number>) =>
    [1, 2, 3, 4, 5, ...(6 in periods ? [6] : [])].map((day_of_week) => ({
      day_of_week,
      periods: periods[day_of_week] ?? 0,
    }));

  beforeAll(async () => {
    work = await service.school();
    teacher = await add({}, work);
    const colleague = await add({}, work);
    const now = await work.classroom('Now');
    const past = await classOfYear(-1, work);
    const [maths, art] = [await subject('Maths', work), await subject('Art', work)];
    await teach(now.classId, maths, teacher.id, 4, work);
    await teach(now.classId, art, colleague.id, 9, work);
    await teach(past.classId, maths, teacher.id, 7, work);
    // The slot on a Saturday is from when there was school on Saturdays.
    await rows(`update ${work.schema}.timetable_config set working_days = '{1,2,3,4,5,6}'`);
    for (const [day, period] of [
      [1, 1],
      [1, 2],
      [3, 1],
      [6, 1],
    ] as const)
      await slot(work, now.classId, maths, teacher.id, day, period);
    await rows(`update ${work.schema}.timetable_config set working_days = '{1,2,3,4,5}'`);
    await slot(work, now.classId, art, colleague.id, 2, 1);
    await slot(work, past.classId, maths, teacher.id, 2, 1);
  });

  test('counts the slots and the planned periods of the current year, its own alone, day by day', async () => {
    expect(await get()).toEqual({
      teacher_id: teacher.id,
      max_periods_per_day: null,
      max_periods_per_week: null,
      assigned_periods: 4,
      planned_periods: 4,
      per_day: week({ 1: 2, 3: 1, 6: 1 }),
      is_over_limit: false,
    });
    const idle = await add({}, work);
    expect(await get(work.admin, idle.id)).toMatchObject({
      assigned_periods: 0,
      planned_periods: 0,
      per_day: week({}),
      is_over_limit: false,
    });
  });

  test.each([
    [{ max_periods_per_day: 2, max_periods_per_week: 4 }, false],
    [{ max_periods_per_day: 1, max_periods_per_week: 4 }, true],
    [{ max_periods_per_day: null, max_periods_per_week: 3 }, true],
    [{ max_periods_per_day: 2, max_periods_per_week: null }, false],
    [{ max_periods_per_day: null, max_periods_per_week: null }, false],
  ])('with the rule %j is over the limit: %s', async (given, isOver) => {
    const { data } = await rule(given);
    expect(data).toMatchObject({ ...given, is_over_limit: isOver });
    expect(await get()).toEqual(data);
    expect((await work.admin.get<Teacher>(`/api/teachers/${teacher.id}`)).data).toMatchObject(given);
  });

  test('is over the limit when more is planned than the week allows, before there is a timetable', async () => {
    const planned = await add({}, work);
    const { classId } = await work.classroom(unique('Planned'));
    await teach(classId, await subject(unique('Subject'), work), planned.id, 6, work);
    expect((await rule({ max_periods_per_week: 5 }, 200, planned.id)).data).toMatchObject({
      assigned_periods: 0,
      planned_periods: 6,
      is_over_limit: true,
    });
  });

  test('takes a part of the rule, and the whole of what was read', async () => {
    await rule({ max_periods_per_day: 3, max_periods_per_week: 10 });
    expect((await rule({ max_periods_per_week: 12 })).data).toMatchObject({
      max_periods_per_day: 3,
      max_periods_per_week: 12,
    });
    expect((await rule({ ...(await get()), max_periods_per_day: 5 })).data).toMatchObject({
      max_periods_per_day: 5,
      max_periods_per_week: 12,
    });
    expect((await rule({ teacher_id: 999 }, 400)).details).toMatchObject([{ path: 'teacher_id' }]);
  });

  test('refuses more in a day than in the week, in one request and in two, and numbers out of range', async () => {
    await rule({ max_periods_per_day: 3, max_periods_per_week: 10 });
    for (const body of [
      { max_periods_per_day: 6, max_periods_per_week: 5 },
      { max_periods_per_day: 11 },
      { max_periods_per_week: 2 },
    ]) {
      const refused = await rule(body, 400);
      expect(refused).toMatchObject({ error: 'validation_error', details: [{ path: 'max_periods_per_day' }] });
    }
    for (const value of [0, -1, 1.5, 25, '3'])
      expect((await rule({ max_periods_per_day: value }, 400)).details).toMatchObject([
        { path: 'max_periods_per_day' },
      ]);
    expect((await rule({ max_periods_per_week: 169 }, 400)).details).toMatchObject([{ path: 'max_periods_per_week' }]);
    expect(await get()).toMatchObject({ max_periods_per_day: 3, max_periods_per_week: 10 });
  });

  test('has a version that a change of the rule ends and a new slot does not', async () => {
    const one = await add({}, work);
    const path = `/api/teachers/${one.id}/workload`;
    const etag = (await work.admin.get(path)).headers.get('etag') ?? '';
    const { classId } = await work.classroom(unique('Class'));
    await slot(work, classId, await subject(unique('Subject'), work), one.id, 4, 4);
    const put = (status: number) =>
      work.admin.send(
        'PUT',
        `${path}-rule`,
        { body: { max_periods_per_day: 2 }, headers: { 'If-Match': etag } },
        status,
      );
    await put(200);
    await put(412);
  });

  test("a teacher reads their own and no colleague's", async () => {
    const { teacher: me, client } = await withLogin({}, work);
    expect(await get(client, me.id)).toEqual(await get(work.admin, me.id));
    expect((await client.get(`/api/teachers/${teacher.id}/workload`, 404)).error).toBe('not_found');
    await (await work.user(['accountant'])).get(`/api/teachers/${me.id}/workload`, 403);
    await (await work.user(['student'])).get(`/api/teachers/${me.id}/workload`, 403);
  });
});
