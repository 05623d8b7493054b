import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { mailTo } from '../support/fakes/mail.ts';
import { ids, plain, walk } from '../support/client/pages.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Student as StudentSchema } from '../../src/endpoints/students.ts';

const { service, school } = await serviceWithSchool({}, 7);

type Student = OutputOf<typeof StudentSchema>;

interface Enrollment extends Record<string, unknown> {
  class_id: number;
  academic_year_id: number;
  status: string;
  ended: boolean;
}

async function createStudent(fields: Record<string, unknown> = {}, at = school): Promise<Student> {
  return (await at.admin.post<Student>('/api/students', { first_name: 'Sam', last_name: 'Student', ...fields }, 201))
    .data;
}

const getStudent = async (id: number) => (await school.admin.get<Student>(`/api/students/${id}`)).data;

const enrollments = (id: number, at = school) =>
  service.database.query<Enrollment>(
    `select class_id::integer, academic_year_id::integer, status, ends_on is not null as ended
     from ${at.schema}.enrollment where student_id = $1 order by id`,
    [id],
  );

/** Creates a class in an academic year before the current one. */
async function createClassOfEarlierYear(): Promise<{ classId: number; gradeId: number; yearId: number }> {
  const name = unique('Old');
  const [row] = await service.database.query<{ class_id: number; grade_id: number; year_id: number }>(
    `with year as (
       insert into ${school.schema}.academic_year (name, start_date, end_date)
       select $1, make_date(1900 + count(*)::integer, 1, 1), make_date(1900 + count(*)::integer, 12, 31)
       from ${school.schema}.academic_year
       returning id
     ),
     grade as (insert into ${school.schema}.grade (name) values ($1) returning id)
     insert into ${school.schema}.class (name, section, grade_id, academic_year_id)
     select $1, 'B', grade.id, year.id from grade, year
     returning id::integer as class_id, grade_id::integer, academic_year_id::integer as year_id`,
    [name],
  );
  if (!row) throw new Error('No class was created.');
  return { classId: row.class_id, gradeId: row.grade_id, yearId: row.year_id };
}

describe('students', () => {
  test('a created student is returned with the fields that were sent', async () => {
    const { classId, gradeId, yearId } = await school.classroom(unique('Read back'));
    const sent = {
      first_name: 'Amina',
      last_name: 'Okafor',
      roll_number: '17',
      admission_number: 'A-17',
      date_of_birth: '2015-02-28',
      gender: 'female',
      email: 'amina@example.org',
      phone: '+234 1',
      class_id: classId,
      grade_id: gradeId,
      parent_name: 'Ngozi Okafor',
      parent_phone: '+234 2',
      parent_email: 'ngozi@example.org',
      address: '1 Long Street',
    };
    const added = await school.admin.post<Student>('/api/students', sent, 201);
    expect(added.headers.get('location')).toBe(`/api/students/${added.data.id}`);
    const { data } = await school.admin.get<Student>(`/api/students/${added.data.id}`);
    expect(data).toEqual({
      ...added.data,
      ...sent,
      academic_year_id: yearId,
      is_active: true,
      user_id: null,
      deleted_at: null,
    });
    expect(data.class_name).toMatch(/^Read back/);
    expect(data.grade_name).toBe(`${data.class_name ?? ''} grade`);
  });

  test('a religion is returned with its name and can be cleared; an unknown one is a 422 that names the field', async () => {
    const [one, two] = await service.database.query<{ id: number }>(
      `insert into ${school.schema}.religion (name) values ('Sikhism'), ('Islam') returning id::integer`,
    );
    const student = await createStudent({ religion_id: one?.id });
    expect(student).toMatchObject({ religion_id: one?.id, religion_name: 'Sikhism' });
    expect(
      (await school.admin.put<Student>(`/api/students/${student.id}`, { religion_id: two?.id })).data,
    ).toMatchObject({ religion_name: 'Islam' });
    const same = await getStudent(student.id);
    expect((await school.admin.put<Student>(`/api/students/${student.id}`, same)).data).toMatchObject({
      religion_id: two?.id,
      religion_name: 'Islam',
    });
    const unknown = { first_name: 'No', last_name: 'Such', religion_id: 999_999 };
    for (const refused of [
      await school.admin.put(`/api/students/${student.id}`, unknown, 422),
      await school.admin.post('/api/students', unknown, 422),
    ]) {
      expect(refused).toMatchObject({ error: 'invalid_reference', details: [{ path: 'religion_id' }] });
    }
    expect((await school.admin.put<Student>(`/api/students/${student.id}`, { religion_id: null })).data).toMatchObject({
      religion_id: null,
      religion_name: null,
    });
    expect(await createStudent()).toMatchObject({ religion_id: null, religion_name: null });
  });

  test('names are trimmed and may use any script', async () => {
    const student = await createStudent({ first_name: '  Zoë 🌻 ', last_name: 'Ōe 大江' });
    expect(await getStudent(student.id)).toMatchObject({ first_name: 'Zoë 🌻', last_name: 'Ōe 大江' });
  });
});

describe('the list', () => {
  let listSchool: School;
  let allStudents: Student[];
  let first: { classId: number; yearId: number };

  beforeAll(async () => {
    listSchool = await service.school();
    first = await listSchool.classroom('First');
    const second = await listSchool.classroom('Second');
    const names: [string, string][] = [
      ['Ana', 'Alvarez'],
      ['Bo', 'Alvarez'],
      ['Émile', 'Zola'],
      ['emile', 'Zidane'],
      ['Zoé', 'Ångström'],
      ['Yan', 'Adams'],
    ];
    for (let n = 0; n < 24; n++) {
      const [first_name = '', last_name = ''] = names[n % names.length] ?? [];
      await createStudent(
        {
          first_name,
          last_name,
          roll_number: n % 5 === 0 ? null : String(((n * 7) % 4) * 9 + 1),
          admission_number: `N${String((n * 11) % 24).padStart(3, '0')}`,
          class_id: n % 3 === 0 ? first.classId : n % 3 === 1 ? second.classId : null,
          is_active: n % 4 !== 0,
          parent_name: n === 7 ? 'Parent Quixote' : null,
          email: n === 8 ? 'rare.address@example.org' : null,
        },
        listSchool,
      );
    }
    await createStudent({ first_name: 'Percy', last_name: '100% Cotton', admission_number: 'N100' }, listSchool);
    await createStudent({ first_name: 'Una', last_name: 'Under_Score', admission_number: 'N101' }, listSchool);
    await createStudent({ first_name: 'Bea', last_name: 'Back\\Slash', admission_number: 'N102' }, listSchool);
    const deleted = await createStudent(
      { first_name: 'Gone', last_name: 'Away', admission_number: 'N103' },
      listSchool,
    );
    await listSchool.admin.delete(`/api/students/${deleted.id}`);
    // Only three distinct timestamps, so that sorting by created_at has ties.
    await service.database.query(
      `update ${listSchool.schema}.student set created_at = timestamptz '2026-01-01Z' + (id % 3) * interval '1 day'`,
    );
    allStudents = await walk<Student>(listSchool.admin, '/api/students', 100);
  });

  const find = async (query: string) =>
    (await listSchool.admin.get<Student[]>(`/api/students?pageSize=100&${query}`)).data;

  test('contains all students who are not deleted, sorted by last and first name by default', async () => {
    expect(allStudents).toHaveLength(27);
    const list = await listSchool.admin.get<Student[]>('/api/students');
    expect(list.pagination).toEqual({ page: 1, pageSize: 20, totalItems: 27, totalPages: 2 });
    expect(ids(list.data)).toEqual(ids(allStudents).slice(0, 20));
    expect(allStudents.map(({ last_name }) => last_name)).not.toContain('Away');
  });

  test('filters by class_id, academic_year_id and is_active, also combined', async () => {
    // A student who has left is in no class.
    const inClass = allStudents.filter(({ class_id, is_active }) => class_id !== null && is_active);
    const inFirst = inClass.filter(({ class_id }) => class_id === first.classId);
    expect(inFirst).toHaveLength(6);
    expect(ids(await find(`class_id=${first.classId}`))).toEqual(ids(inFirst));
    expect(ids(await find(`academic_year_id=${first.yearId}`))).toEqual(ids(inClass));
    expect(ids(await find('is_active=false'))).toEqual(ids(allStudents.filter(({ is_active }) => !is_active)));
    expect(ids(await find('is_active=true'))).toEqual(ids(allStudents.filter(({ is_active }) => is_active)));
    const both = allStudents.filter(
      ({ class_id, is_active, last_name }) => class_id === first.classId && is_active && last_name === 'Alvarez',
    );
    expect(both.length).toBeGreaterThan(0);
    expect(
      ids(await find(`class_id=${first.classId}&is_active=true&academic_year_id=${first.yearId}&search=alvarez`)),
    ).toEqual(ids(both));
    expect(await find('class_id=999999')).toEqual([]);
    expect(await find('academic_year_id=999999')).toEqual([]);
  });

  test.each([
    ['a name in any case', 'ALVAREZ', (s: Student) => s.last_name === 'Alvarez'],
    ['a name typed without its accents', 'emile', (s: Student) => plain(s.first_name) === 'emile'],
    ['a name typed with accents that it does not have', 'álvárez', (s: Student) => s.last_name === 'Alvarez'],
    ['part of a word', 'ngstr', (s: Student) => s.last_name === 'Ångström'],
    ['several words in any order', 'zidane emi', (s: Student) => s.last_name === 'Zidane'],
    ['words separated by several spaces', '%20%20zidane%20%20%20emi%20', (s: Student) => s.last_name === 'Zidane'],
    ['only students who match every word', 'zidane ana', () => false],
    ['% as itself', '100%25', (s: Student) => s.last_name.includes('%')],
    ['a single % as itself', '%25', (s: Student) => s.last_name.includes('%')],
    ['_ as itself', 'r_s', (s: Student) => s.last_name.includes('_')],
    ['a single _ as itself', '_', (s: Student) => s.last_name.includes('_')],
    ['\\ as itself', 'k\\s', (s: Student) => s.last_name.includes('\\')],
    ["' as itself", "o'", () => false],
    ['the admission number', 'n013', (s: Student) => s.admission_number === 'N013'],
    ['the name of the parent', 'quixote', (s: Student) => s.parent_name === 'Parent Quixote'],
    ['the email', 'rare.address', (s: Student) => s.email !== null],
    ['no deleted students', 'gone', () => false],
    ['everyone if it is empty', '', () => true],
  ])('search matches %s', async (_case, search, matches) => {
    expect(ids(await find(`search=${search}`))).toEqual(ids(allStudents.filter(matches)));
  });

  test('search uses its first eight words', async () => {
    const own = await service.school();
    const words = ['one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight'];
    await own.insert('student', { first_name: words.join(' '), last_name: 'Words', admission_number: 'W1' });
    const count = async (...search: string[]) =>
      (await own.admin.get(`/api/students?search=${search.join('%20')}`)).pagination.totalItems;
    expect([
      await count(...words),
      await count(...words, 'unknown'),
      await count(...words.slice(0, 7), 'unknown'),
    ]).toEqual([1, 1, 0]);
  });
});

describe('admission numbers', () => {
  test('are assigned in sequence, with six digits, skipping numbers entered by hand', async () => {
    const fresh = await service.school();
    expect((await createStudent({}, fresh)).admission_number).toBe('000001');
    await createStudent({ admission_number: '000002' }, fresh);
    await createStudent({ admission_number: '000007' }, fresh);
    const next = [(await createStudent({}, fresh)).admission_number, (await createStudent({}, fresh)).admission_number];
    expect(new Set([...next, '000001', '000002', '000007']).size).toBe(5);
    expect(next.every((number) => /^\d{6}$/.test(number))).toBe(true);
  });

  test('can always be assigned, even after long numbers entered by hand', async () => {
    const fresh = await service.school();
    await createStudent({ admission_number: '000001' }, fresh);
    await createStudent({ admission_number: '2000000' }, fresh);
    expect((await createStudent({}, fresh)).admission_number).toBe('2000001');
    await createStudent({ admission_number: '2000002' }, fresh);
    expect((await createStudent({}, fresh)).admission_number).toBe('2000003');
  });

  test('have no gap after a rejected request', async () => {
    const fresh = await service.school();
    await createStudent({}, fresh);
    await fresh.admin.post('/api/students', { first_name: 'No', last_name: 'Class', class_id: 999_999 }, 422);
    expect((await createStudent({}, fresh)).admission_number).toBe('000002');
  });

  test('are unique within the school; a duplicate is a 409 that names the field', async () => {
    await createStudent({ admission_number: 'ONCE-1' });
    const refused = await school.admin.post(
      '/api/students',
      { first_name: 'A', last_name: 'B', admission_number: 'ONCE-1' },
      409,
    );
    expect(refused).toMatchObject({ error: 'conflict', details: [{ path: 'admission_number' }] });
    const other = await createStudent({ admission_number: 'ONCE-2' });
    expect(
      (await school.admin.put(`/api/students/${other.id}`, { admission_number: 'ONCE-1' }, 409)).details,
    ).toMatchObject([{ path: 'admission_number' }]);
    expect((await getStudent(other.id)).admission_number).toBe('ONCE-2');
  });

  test('can be used again after the student is deleted', async () => {
    const student = await createStudent({ admission_number: 'AGAIN' });
    await school.admin.delete(`/api/students/${student.id}`);
    const next = await createStudent({ admission_number: 'AGAIN' });
    expect(next.id).not.toBe(student.id);
  });
});

describe('class and grade', () => {
  test('creating a student in a class sets the grade and creates an enrollment', async () => {
    const { classId, gradeId, yearId } = await school.classroom(unique('Class'));
    const student = await createStudent({ class_id: classId });
    expect(student).toMatchObject({ grade_id: gradeId, academic_year_id: yearId });
    expect(await enrollments(student.id)).toEqual([
      { class_id: classId, academic_year_id: yearId, status: 'active', ended: false },
    ]);
  });

  test('a grade can be set without a class and creates no enrollment', async () => {
    const { gradeId } = await school.classroom(unique('Class'));
    const student = await createStudent({ grade_id: gradeId });
    expect(student).toMatchObject({ class_id: null, grade_id: gradeId });
    expect(await enrollments(student.id)).toEqual([]);
  });

  test('a grade other than that of the class is a 400 that names grade_id', async () => {
    const one = await school.classroom(unique('Class'));
    const two = await school.classroom(unique('Class'));
    const refused = await school.admin.post(
      '/api/students',
      { first_name: 'A', last_name: 'B', class_id: one.classId, grade_id: two.gradeId },
      400,
    );
    expect(refused).toMatchObject({ error: 'validation_error', details: [{ path: 'grade_id' }] });
    const student = await createStudent({ class_id: one.classId });
    expect(
      (await school.admin.put(`/api/students/${student.id}`, { grade_id: two.gradeId }, 400)).details,
    ).toMatchObject([{ path: 'grade_id' }]);
    const third = await school.classroom(unique('Class'));
    await school.admin.put(`/api/students/${student.id}`, { class_id: third.classId, grade_id: two.gradeId }, 400);
    expect(await getStudent(student.id)).toMatchObject({ class_id: one.classId, grade_id: one.gradeId });
  });

  test('an unknown class or grade is a 422 that names the field', async () => {
    for (const [field, id] of Object.entries({ class_id: 999_999, grade_id: 999_999 })) {
      const refused = await school.admin.post('/api/students', { first_name: 'A', last_name: 'B', [field]: id }, 422);
      expect(refused).toMatchObject({ error: 'invalid_reference', details: [{ path: field }] });
    }
  });

  test('moving to another class of the year changes the grade, ends the enrollment and creates a new one', async () => {
    const one = await school.classroom(unique('Class'));
    const two = await school.classroom(unique('Class'));
    const student = await createStudent({ class_id: one.classId });
    const moved = await school.admin.put<Student>(`/api/students/${student.id}`, { class_id: two.classId });
    expect(moved.data).toMatchObject({ class_id: two.classId, grade_id: two.gradeId });
    expect(await enrollments(student.id)).toMatchObject([
      { class_id: one.classId, status: 'transferred', ended: true },
      { class_id: two.classId, status: 'active', ended: false },
    ]);
    const inClass = async (classId: number) =>
      (await school.admin.get<Student[]>(`/api/students?class_id=${classId}`)).data.map(({ id }) => id);
    expect(await inClass(one.classId)).toEqual([]);
    expect(await inClass(two.classId)).toEqual([student.id]);
  });

  test('an update with the same class does not change the enrollment', async () => {
    const { classId } = await school.classroom(unique('Class'));
    const student = await createStudent({ class_id: classId });
    await school.admin.put(`/api/students/${student.id}`, { class_id: classId, first_name: 'Same' });
    expect(await enrollments(student.id)).toMatchObject([{ status: 'active', ended: false }]);
  });

  test('removing the class withdraws the enrollment and keeps the grade', async () => {
    const { classId, gradeId } = await school.classroom(unique('Class'));
    const student = await createStudent({ class_id: classId });
    const out = await school.admin.put<Student>(`/api/students/${student.id}`, { class_id: null });
    expect(out.data).toMatchObject({ class_id: null, class_name: null, grade_id: gradeId });
    expect(await enrollments(student.id)).toMatchObject([{ status: 'withdrawn', ended: true }]);
  });

  test('an enrollment that has not begun ends on its first day if the class changes', async () => {
    const from = await school.classroom(unique('Ahead'));
    const to = await school.classroom(unique('Ahead'));
    const { id } = await createStudent({ class_id: from.classId });
    await service.database.query(
      `update ${school.schema}.enrollment set starts_on = current_date + 10 where student_id = $1`,
      [id],
    );
    await school.admin.put(`/api/students/${id}`, { class_id: to.classId });
    const rows = await service.database.query(
      `select status, ends_on = starts_on as same_day from ${school.schema}.enrollment where student_id = $1 order by id`,
      [id],
    );
    expect(rows).toEqual([
      { status: 'transferred', same_day: true },
      { status: 'active', same_day: null },
    ]);
  });

  test('academic years cannot overlap, but one can begin the day after another', async () => {
    const fresh = await service.school();
    const year = (name: string, from: string, to: string) =>
      service.database.query(
        `insert into ${fresh.schema}.academic_year (name, start_date, end_date) values ($1, $2, $3)`,
        [name, from, to],
      );
    await year('First', '2030-09-01', '2031-06-30');
    await expect(year('Shares a day', '2031-06-30', '2032-06-30')).rejects.toMatchObject({ code: '23P01' });
    await year('Next', '2031-07-01', '2032-06-30');
  });

  test('moving to a class of another year completes the enrollment, and both years list the student', async () => {
    const old = await createClassOfEarlierYear();
    const now = await school.classroom(unique('Class'));
    const student = await createStudent({ class_id: old.classId });
    expect(student).toMatchObject({ academic_year_id: old.yearId, grade_id: old.gradeId });
    expect(student.class_name).toMatch(/^Old-\d+ B$/);
    await school.admin.put(`/api/students/${student.id}`, { class_id: now.classId });
    expect(await enrollments(student.id)).toEqual([
      { class_id: old.classId, academic_year_id: old.yearId, status: 'completed', ended: true },
      { class_id: now.classId, academic_year_id: now.yearId, status: 'active', ended: false },
    ]);
    for (const query of [`class_id=${old.classId}`, `academic_year_id=${old.yearId}`, `class_id=${now.classId}`]) {
      const list = await school.admin.get<Student[]>(`/api/students?${query}`);
      expect(list.data.map(({ id, class_id }) => [id, class_id])).toEqual([[student.id, now.classId]]);
    }
  });
});

describe('the login of a student', () => {
  const getProfile = (client: Client) =>
    client.get<{ id: number; roles: string[]; permissions: string[]; first_name: string }>('/api/auth/profile');

  test('is created with the student role by create_user_account and a password', async () => {
    const email = `${unique('pupil')}@${school.subdomain}.example`;
    const student = await createStudent({
      first_name: 'Pupil',
      email,
      create_user_account: true,
      password: 'pupil password',
    });
    const pupil = await service.anonymous.login({ tenant_id: school.id, email, password: 'pupil password' });
    expect((await getProfile(pupil)).data).toMatchObject({
      id: student.user_id,
      roles: ['student'],
      first_name: 'Pupil',
    });
    expect((await pupil.get('/api/students', 403)).error).toBe('forbidden');
  });

  test('is created by invitation if there is no password', async () => {
    const email = `${unique('pupil')}@${school.subdomain}.example`;
    const student = await createStudent({ email, create_user_account: true });
    const { token } = await mailTo(service, email, 'Your account');
    await service.anonymous.post('/api/auth/password/reset', { token, password: 'my own password' });
    const pupil = await service.anonymous.login({ tenant_id: school.id, email, password: 'my own password' });
    expect((await getProfile(pupil)).data.id).toBe(student.user_id);
  });

  test('requires an email, and a password requires create_user_account', async () => {
    const names = { first_name: 'A', last_name: 'B' };
    expect(
      (await school.admin.post('/api/students', { ...names, create_user_account: true }, 400)).details,
    ).toMatchObject([{ path: 'email' }]);
    expect(
      (await school.admin.post('/api/students', { ...names, email: null, create_user_account: true }, 400)).details,
    ).toMatchObject([{ path: 'email' }]);
    expect(
      (await school.admin.post('/api/students', { ...names, password: 'pupil password' }, 400)).details,
    ).toMatchObject([{ path: 'password' }]);
    const student = await createStudent();
    expect(
      (await school.admin.put(`/api/students/${student.id}`, { create_user_account: true }, 400)).details,
    ).toMatchObject([{ path: 'email' }]);
    expect(
      (await school.admin.put(`/api/students/${student.id}`, { password: 'pupil password' }, 400)).details,
    ).toMatchObject([{ path: 'password' }]);
  });

  test('with the email of another login is a 409, and neither student nor login is created', async () => {
    const last_name = unique('Unwritten');
    const refused = await school.admin.post(
      '/api/students',
      { first_name: 'A', last_name, email: school.adminEmail, create_user_account: true },
      409,
    );
    expect(refused).toMatchObject({ error: 'conflict', details: [{ path: 'email' }] });
    const rows = await service.database.query(
      `select id from ${school.schema}.student where last_name = $1
       union all
       select id from ${school.schema}.user_account where last_name = $1`,
      [last_name],
    );
    expect(rows).toEqual([]);
    const student = await createStudent({ email: school.adminEmail });
    expect(student).toMatchObject({ email: school.adminEmail, user_id: null });
  });

  test('can be created later, with the email of the request or the stored one', async () => {
    const [one, two] = [
      `${unique('pupil')}@${school.subdomain}.example`,
      `${unique('pupil')}@${school.subdomain}.example`,
    ];
    const known = await createStudent({ email: one });
    const later = await school.admin.put<Student>(`/api/students/${known.id}`, {
      create_user_account: true,
      password: 'pupil password',
    });
    expect(later.data.user_id).not.toBeNull();
    await service.anonymous.login({ tenant_id: school.id, email: one, password: 'pupil password' });
    const unknown = await createStudent();
    await school.admin.put<Student>(`/api/students/${unknown.id}`, {
      create_user_account: true,
      email: two,
      password: 'pupil password',
    });
    await service.anonymous.login({ tenant_id: school.id, email: two, password: 'pupil password' });
    // A form may send the field again.
    await school.admin.put(`/api/students/${known.id}`, { create_user_account: true });
    const again = { create_user_account: true, password: 'another password' };
    expect((await school.admin.put(`/api/students/${known.id}`, again, 409)).error).toBe('conflict');
    expect((await getStudent(known.id)).user_id).toBe(later.data.user_id);
    await service.anonymous.login({ tenant_id: school.id, email: one, password: 'pupil password' });
  });
});

describe('an update of a student', () => {
  test('clears optional fields with null, and keeps others', async () => {
    const clearable = {
      roll_number: '5',
      date_of_birth: '2015-01-01',
      gender: 'female',
      email: 'clear@example.org',
      phone: '1',
      parent_name: 'P',
      parent_phone: '2',
      parent_email: 'p@example.org',
      address: 'A',
    };
    const student = await createStudent(clearable);
    const nulls = Object.fromEntries(Object.keys(clearable).map((key) => [key, null]));
    expect((await school.admin.put<Student>(`/api/students/${student.id}`, nulls)).data).toMatchObject(nulls);
    const required = { first_name: null, last_name: null, admission_number: null, is_active: null };
    const { first_name, last_name, admission_number, is_active } = student;
    expect((await school.admin.put<Student>(`/api/students/${student.id}`, required)).data).toMatchObject({
      ...nulls,
      ...{ first_name, last_name, admission_number, is_active },
    });
  });

  test('changes nothing by a form that repeats the record and asks for no login with false or null', async () => {
    const student = await createStudent({ address: 'A' });
    for (const create_user_account of [false, 'false', '', null]) {
      const form = { ...student, create_user_account, password: '' };
      expect((await school.admin.put<Student>(`/api/students/${student.id}`, form)).data).toEqual(student);
    }
  });

  test('accepts the whole record as returned by GET, with one field changed, even the class', async () => {
    const one = await school.classroom(unique('Class'));
    const two = await school.classroom(unique('Class'));
    const email = `${unique('pupil')}@${school.subdomain}.example`;
    const student = await createStudent({ class_id: one.classId, roll_number: '3', email, create_user_account: true });
    const same = await school.admin.put<Student>(`/api/students/${student.id}`, student);
    expect(same.data).toEqual({ ...student, updated_at: same.data.updated_at });
    const moved = await school.admin.put<Student>(`/api/students/${student.id}`, {
      ...same.data,
      class_id: two.classId,
    });
    expect(moved.data).toMatchObject({
      class_id: two.classId,
      grade_id: two.gradeId,
      roll_number: '3',
      user_id: student.user_id,
    });
  });

  test('needs no new version after changes to computed fields, and accepts the weak ETag of a proxy', async () => {
    const role = await school.admin.post<{ id: number }>('/api/rbac/roles', { name: unique('Role') }, 201);
    const path = `/api/rbac/roles/${role.data.id}`;
    const etag = role.headers.get('etag') ?? '';
    const user = await school.user(['teacher']);
    await school.admin.post(`/api/rbac/users/${user.id}/roles`, { role_id: role.data.id });
    const read = await school.admin.get<{ user_count: number }>(path);
    expect(read.data.user_count).toBe(1);
    expect(read.headers.get('etag')).not.toBe(etag);
    await school.admin.send(
      'PUT',
      path,
      { body: { description: 'edited' }, headers: { 'If-Match': `W/${etag}` } },
      200,
    );
    await school.admin.send('PUT', path, { body: { description: 'again' }, headers: { 'If-Match': etag } }, 412);
  });

  test('the ETag works with fetch too, which adds Cache-Control: no-cache to If-None-Match', async () => {
    const student = await createStudent();
    const { headers } = await school.admin.get(`/api/students/${student.id}`);
    const again = await fetch(`${service.url}/api/students/${student.id}`, {
      headers: { Authorization: `Bearer ${school.admin.token}`, 'If-None-Match': headers.get('etag') ?? '' },
    });
    expect(again.status).toBe(304);
  });
});

describe('a deleted student', () => {
  test('is not found by any request; the row stays with deleted_at, and the enrollment is withdrawn', async () => {
    const { classId } = await school.classroom(unique('Class'));
    const last_name = unique('Deleted');
    const student = await createStudent({ last_name, class_id: classId });
    const { data: deleted } = await school.admin.delete<Student>(`/api/students/${student.id}`);
    expect(deleted).toEqual({
      ...student,
      deleted_at: expect.any(String) as unknown,
      updated_at: expect.any(String) as unknown,
    });
    await school.admin.get(`/api/students/${student.id}`, 404);
    await school.admin.put(`/api/students/${student.id}`, { first_name: 'Back' }, 404);
    await school.admin.delete(`/api/students/${student.id}`, 404);
    for (const query of [`search=${last_name}`, `class_id=${classId}`]) {
      expect((await school.admin.get<Student[]>(`/api/students?${query}`)).data).toEqual([]);
    }
    const rows = await service.database.query<{ deleted: boolean; first_name: string }>(
      `select deleted_at is not null as deleted, first_name from ${school.schema}.student where id = $1`,
      [student.id],
    );
    expect(rows).toEqual([{ deleted: true, first_name: 'Sam' }]);
    expect(await enrollments(student.id)).toMatchObject([{ class_id: classId, status: 'withdrawn', ended: true }]);
  });

  test('is listed with is_deleted, only for users with student.delete', async () => {
    const last_name = unique('Listed');
    const [student] = [await createStudent({ last_name }), await createStudent({ last_name })];
    await school.admin.delete(`/api/students/${student.id}`);
    const query = `/api/students?search=${last_name}&is_deleted`;
    expect((await school.admin.get<Student[]>(`${query}=true&sort=-id`)).data.map(({ id }) => id)).toEqual([
      student.id,
    ]);
    expect((await school.admin.get<Student[]>(`${query}=false`)).data).toHaveLength(1);
    const teacher = await school.user(['teacher']);
    expect((await teacher.get(`${query}=true`, 403)).message).toBe('This also needs the permission student.delete.');
  });

  test('is answered unchanged if it is sent back as it was listed, to users who may see it; other changes are a 404', async () => {
    const last_name = unique('Repeated');
    const { classId: class_id } = await school.classroom(unique('Class'));
    const student = await createStudent({ last_name, class_id });
    const path = `/api/students/${student.id}`;
    await school.admin.delete(path);
    const list = `/api/students?is_deleted=true&search=${last_name}`;
    const [listed] = (await school.admin.get<Student[]>(list)).data;
    const deleted_at = new Date(listed?.deleted_at ?? '').toISOString();
    for (const body of [listed, { ...listed, deleted_at }, { deleted_at }, { ...listed, class_name: 'What it was' }])
      expect((await school.admin.put<Student>(path, body)).data).toEqual(listed);
    expect((await school.admin.get<Student[]>(list)).data).toEqual([listed]);
    await school.admin.put(path, { ...listed, phone: '1' }, 404);
    expect(
      (await school.admin.put(path, { ...listed, deleted_at: '2026-01-01T00:00:00Z' }, 400)).details,
    ).toMatchObject([{ path: 'deleted_at' }]);
    expect((await school.admin.put(path, { ...listed, user_id: 1 }, 400)).details).toMatchObject([{ path: 'user_id' }]);
    const other = await createStudent();
    await school.admin.put(`/api/students/${other.id}`, { deleted_at }, 400);
    for (const permissions of [
      ['student.read', 'student.update'],
      ['student.update', 'student.delete'],
    ]) {
      const editor = await school.user([await school.role(...permissions)]);
      expect((await editor.put(path, listed, 404)).message).toBe(`There is no student ${student.id}.`);
      expect((await editor.put(path, { ...listed, deleted_at: '2026-01-01T00:00:00Z' }, 404)).message).toBe(
        `There is no student ${student.id}.`,
      );
    }
  });

  test('is restored by deleted_at null, in their class, if the admission number is free and the user has student.delete', async () => {
    const { classId } = await school.classroom(unique('Class'));
    const student = await createStudent({ class_id: classId });
    const path = `/api/students/${student.id}`;
    // A client may send a student back as read.
    expect((await school.admin.put<Student>(path, { deleted_at: null, phone: '1' })).data.phone).toBe('1');
    await school.admin.delete(path);
    const editor = await school.user([await school.role('student.read', 'student.update')]);
    expect((await editor.put(path, { deleted_at: null }, 403)).error).toBe('forbidden');
    const other = await createStudent({ admission_number: student.admission_number });
    expect((await school.admin.put(path, { deleted_at: null }, 409)).details).toMatchObject([
      { path: 'admission_number' },
    ]);
    await school.admin.get(path, 404);
    await school.admin.put(path, { deleted_at: '2026-01-01T00:00:00Z' }, 400);
    const admission_number = unique('Again');
    const { data: restored } = await school.admin.put<Student>(path, { deleted_at: null, admission_number });
    expect(restored).toMatchObject({ id: student.id, admission_number, class_id: classId, deleted_at: null });
    expect((await school.admin.get<Student>(path)).data).toEqual(restored);
    expect((await enrollments(student.id)).map(({ status }) => status).sort()).toEqual(['active', 'withdrawn']);
    expect(other.admission_number).toBe(student.admission_number);
  });

  test('is not restored by a client that sends the record back as it read it before', async () => {
    const student = await createStudent();
    const path = `/api/students/${student.id}`;
    const { data: read } = await school.admin.get<Student>(path);
    await school.admin.delete(path);
    for (const body of [
      read,
      { deleted_at: null, phone: '1' },
      { deleted_at: null, id: student.id },
      { deleted_at: null, first_name: student.first_name, admission_number: student.admission_number },
      { phone: '1' },
      {},
    ])
      expect((await school.admin.put(path, body, 404)).error).toBe('not_found');
    const editor = await school.user([await school.role('student.read', 'student.update')]);
    await editor.put(path, read, 404);
    await editor.put(path, { deleted_at: null }, 403);
    await editor.put(path, { deleted_at: null, admission_number: unique('No') }, 403);
    await school.admin.get(path, 404);
  });

  test('is restored with If-Match * or the version of the deleted record, and not with that of an earlier version', async () => {
    const student = await createStudent();
    const path = `/api/students/${student.id}`;
    const before = (await school.admin.get(path)).headers.get('etag') ?? '';
    const restore = (match: string, status: number) =>
      school.admin.send('PUT', path, { body: { deleted_at: null }, headers: { 'If-Match': match } }, status);
    await school.admin.delete(path);
    expect((await restore(before, 412)).error).toBe('precondition_failed');
    const restored = await restore('*', 200);
    expect(restored.data).toMatchObject({ id: student.id, deleted_at: null });
    // The same body does not change a student who is not deleted.
    await restore(restored.headers.get('etag') ?? '', 200);
    await school.admin.delete(path);
    const [deleted] = await school.database.query<{ version: string }>(
      `with entered as materialized (select core.enter_tenant($2), set_config('timezone', 'UTC', true))
       select core.version_of('student', core.deleted_record('student', $1)) as version from entered`,
      [student.id, school.id],
    );
    await restore(`"${deleted?.version ?? ''}.any"`, 200);
  });

  test('is restored only within the limit of the plan', async () => {
    const full = await service.school();
    const one = { first_name: 'A', last_name: 'B' };
    const { data: gone } = await full.admin.post<Student>('/api/students', one, 201);
    await full.admin.delete(`/api/students/${gone.id}`);
    await full.database.query(
      `with small as (insert into platform.plan (name, price_monthly, max_students, max_teachers)
         values ($2, 0, 1, 1) returning id)
       update platform.tenant set plan_id = small.id from small where tenant.id = $1`,
      [full.id, unique('Small')],
    );
    await full.admin.post('/api/students', one, 201);
    expect((await full.admin.put(`/api/students/${gone.id}`, { deleted_at: null }, 403)).error).toBe(
      'plan_limit_reached',
    );
    expect((await full.admin.get<Student[]>('/api/students?is_deleted=true')).data.map(({ id }) => id)).toEqual([
      gone.id,
    ]);
  });

  test('cannot log in, ends their sessions at once, and frees the email', async () => {
    const email = `${unique('pupil')}@${school.subdomain}.example`;
    const student = await createStudent({ email, create_user_account: true, password: 'pupil password' });
    const pupil = await service.anonymous.login({ tenant_id: school.id, email, password: 'pupil password' });
    await school.admin.delete(`/api/students/${student.id}`);
    expect((await pupil.get('/api/auth/profile', 401)).error).toBe('invalid_token');
    await service.anonymous.post('/api/auth/login', { tenant_id: school.id, email, password: 'pupil password' }, 401);
    expect((await createStudent({ email, create_user_account: true })).user_id).not.toBeNull();
  });
});

describe('an Idempotency-Key', () => {
  const post = (key: string, body: Record<string, unknown>, status: number, client = school.admin) =>
    client.send<Student>('POST', '/api/students', { body, headers: { 'Idempotency-Key': key } }, status);

  test('creates one student if the request is repeated, and returns the same response', async () => {
    const body = { first_name: 'Once', last_name: unique('Once') };
    const first = await post('key-1', body, 201);
    const second = await post('key-1', body, 201);
    // Also in the order of the fields.
    expect(JSON.stringify(second.data)).toBe(JSON.stringify(first.data));
    expect(second.headers.get('location')).toBe(first.headers.get('location'));
    expect((await school.admin.get(`/api/students?search=${body.last_name}`)).pagination.totalItems).toBe(1);
  });

  test('creates one student for concurrent requests', async () => {
    const body = { first_name: 'Twin', last_name: unique('Twin') };
    const responses = await Promise.all([1, 2, 3, 4].map(() => post('key-2', body, 201)));
    expect(new Set(responses.map(({ data }) => data.id)).size).toBe(1);
    expect((await school.admin.get(`/api/students?search=${body.last_name}`)).pagination.totalItems).toBe(1);
  });

  test('is a 422 if it is reused with another body', async () => {
    await post('key-3', { first_name: 'A', last_name: 'B' }, 201);
    expect((await post('key-3', { first_name: 'A', last_name: 'C' }, 422)).error).toBe('idempotency_key_reused');
  });

  test('is a 422 if it is reused for another operation with the same body', async () => {
    const body = { first_name: 'Other', last_name: 'Operation' };
    await post('other-operation', body, 201);
    await service.database.query(
      `update ${school.schema}.idempotency_key set operation = 'users_create' where key = 'other-operation'`,
    );
    expect((await post('other-operation', body, 422)).error).toBe('idempotency_key_reused');
  });

  test('can be used again after a failed request', async () => {
    await post('key-4', { first_name: 'A', last_name: 'B', class_id: 999_999 }, 422);
    expect((await post('key-4', { first_name: 'A', last_name: 'B' }, 201)).data.last_name).toBe('B');
  });

  test('is separate for each user', async () => {
    const second = await school.user(['admin']);
    const body = { first_name: 'Mine', last_name: 'Yours' };
    const mine = await post('key-5', body, 201);
    expect((await post('key-5', body, 201, second)).data.id).not.toBe(mine.data.id);
  });

  test('expires after 24 hours', async () => {
    const body = { first_name: 'Day', last_name: 'After' };
    const first = await post('key-6', body, 201);
    await service.database.query(
      `update ${school.schema}.idempotency_key set created_at = now() - interval '25 hours' where key = 'key-6'`,
    );
    const other = { ...body, last_name: 'Another' };
    const second = await post('key-6', other, 201);
    expect(second.data.id).not.toBe(first.data.id);
    expect((await post('key-6', other, 201)).data).toEqual(second.data);
  });

  test('is a 400 if it is malformed', async () => {
    expect((await post('two words', { first_name: 'A', last_name: 'B' }, 400)).details).toMatchObject([
      { path: 'Idempotency-Key' },
    ]);
  });
});

describe('permissions', () => {
  /** Makes a user the class teacher of a class. */
  const makeClassTeacher = (userId: number, classId: number) =>
    service.database.query(
      `with t as (
         insert into ${school.schema}.teacher (user_id, first_name, last_name) values ($1, 'Te', 'Acher') returning id
       )
       update ${school.schema}.class set class_teacher_id = t.id from t where class.id = $2`,
      [userId, classId],
    );

  test('a teacher reads the students of their classes, an accountant reads all students, and neither writes', async () => {
    const { classId } = await school.classroom(unique('Taught'));
    const student = await createStudent({ class_id: classId });
    const other = await createStudent();
    const teacher = await school.user(['teacher']);
    await makeClassTeacher(teacher.id, classId);
    await teacher.get(`/api/students/${other.id}`, 404);
    expect((await teacher.get<Student[]>('/api/students')).data).toEqual([student]);
    expect((await teacher.get<Student[]>(`/api/students?class_id=${classId}`)).data).toEqual([student]);
    for (const client of [teacher, await school.user(['accountant'])]) {
      expect((await client.get<Student>(`/api/students/${student.id}`)).data).toEqual(student);
      expect((await client.post('/api/students', { first_name: 'A', last_name: 'B' }, 403)).error).toBe('forbidden');
      await client.put(`/api/students/${student.id}`, { first_name: 'A' }, 403);
      await client.delete(`/api/students/${student.id}`, 403);
    }
    await service.anonymous.get('/api/students', 401);
    expect((await service.operator.get('/api/students', 403)).error).toBe('forbidden');
    expect(await getStudent(student.id)).toEqual(student);
  });

  test('a teacher cannot find students by a previous class that another teacher taught', async () => {
    const before = await createClassOfEarlierYear();
    const { classId, yearId } = await school.classroom(unique('Taught'));
    const student = await createStudent({ class_id: before.classId });
    await school.admin.put(`/api/students/${student.id}`, { class_id: classId });
    const teacher = await school.user(['teacher']);
    await makeClassTeacher(teacher.id, classId);
    const findAs = async (client: Client, query: string) =>
      (await client.get<Student[]>(`/api/students?${query}`)).data.map(({ id }) => id);
    for (const [query, byTeacher] of [
      [`class_id=${classId}`, [student.id]],
      [`academic_year_id=${yearId}&class_id=${classId}`, [student.id]],
      [`class_id=${before.classId}`, []],
      [`academic_year_id=${before.yearId}`, []],
    ] as const) {
      expect([query, await findAs(school.admin, query), await findAs(teacher, query)]).toEqual([
        query,
        [student.id],
        byTeacher,
      ]);
    }
  });
});
