import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { type School, serviceWithSchool, testPassword, unique } from '../support/server/service.ts';
import { checksums } from '../support/database/traces.ts';
import type { OutputOf } from '../support/client/output.ts';
import type {
  Promoted as PromotedSchema,
  PromotionPreview as PromotionPreviewSchema,
} from '../../src/endpoints/students.ts';

const { service, school } = await serviceWithSchool();
/** The ids of the previous, the current and the next academic year. */
let years: [number, number, number];

beforeAll(async () => {
  years = await createYears(school);
});

type Preview = OutputOf<typeof PromotionPreviewSchema>;
type Promoted = OutputOf<typeof PromotedSchema>;

/** Creates the previous, the current and the next academic year. */
async function createYears(of: School): Promise<[number, number, number]> {
  const rows = await service.database.query<{ id: number }>(
    `insert into ${of.schema}.academic_year (name, start_date, end_date, is_current)
     select 'Year ' || n, date_trunc('year', now()) + n * interval '1 year', date_trunc('year', now()) + (n + 1) * interval '1 year' - interval '1 day', n = 0
     from generate_series(-1, 1) n order by n returning id::integer`,
  );
  const [last = 0, current = 0, next = 0] = rows.map(({ id }) => id);
  return [last, current, next];
}

async function createClass(
  yearId: number,
  capacity: number | null = null,
  of = school,
): Promise<{ id: number; name: string; gradeId: number; gradeName: string }> {
  const [name, gradeName] = [unique('Class'), unique('Grade')];
  const [row] = await service.database.query<{ id: number; grade_id: number }>(
    `with g as (insert into ${of.schema}.grade (name) values ($1) returning id)
     insert into ${of.schema}.class (name, section, grade_id, academic_year_id, capacity) select $2, 'B', g.id, $3, $4 from g returning id::integer, grade_id::integer`,
    [gradeName, name, yearId, capacity],
  );
  return { id: row?.id ?? 0, name: `${name} B`, gradeId: row?.grade_id ?? 0, gradeName };
}

const createStudent = async (classId: number | null, fields: Record<string, unknown> = {}, of = school) =>
  (
    await of.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'Pro', last_name: unique('Moted'), class_id: classId, ...fields },
      201,
    )
  ).data.id;

const createStudents = async (count: number, classId: number | null, of = school) => {
  const ids: number[] = [];
  for (let n = 0; n < count; n++) ids.push(await createStudent(classId, {}, of));
  return ids;
};

const body = (student_ids: unknown, to_class_id: number, to_academic_year_id: number) => ({
  student_ids,
  to_class_id,
  to_academic_year_id,
});

const preview = async (ids: number[], classId: number, yearId: number, client: Client = school.admin) =>
  (await client.post<Preview>('/api/students/promotion/preview', body(ids, classId, yearId))).data;

const promote = <T = Promoted>(
  ids: number[],
  classId: number,
  yearId: number,
  status: number,
  client: Client = school.admin,
) => client.post<T>('/api/students/promote', body(ids, classId, yearId), status);

const studentsOfClass = async (classId: number) =>
  (await school.admin.get<{ id: number }[]>(`/api/students?pageSize=100&class_id=${classId}`)).data
    .map(({ id }) => id)
    .sort((a, b) => a - b);

const classOf = async (id: number) =>
  (await school.admin.get<{ class_id: number | null }>(`/api/students/${id}`)).data.class_id;

const reasons = ({ students }: Preview) => students.map(({ reason }) => reason);

describe('the preview of a promotion', () => {
  test('returns the current and the new class of each student, in the order of the request, and changes nothing', async () => {
    const [from, to] = [await createClass(years[1]), await createClass(years[2], 30)];
    const first = await createStudent(from.id, { first_name: 'Amina', last_name: 'Okafor' });
    const second = await createStudent(null, { first_name: 'No', last_name: 'Class' });
    await createStudent(to.id);
    const before = await checksums(service.database, school.schema);
    expect(await preview([second, first], to.id, years[2])).toEqual({
      to_class: {
        id: to.id,
        name: to.name,
        grade_id: to.gradeId,
        grade_name: to.gradeName,
        academic_year_id: years[2],
        academic_year_name: 'Year 1',
        capacity: 30,
        student_count: 1,
      },
      eligible: 2,
      ineligible: 0,
      students: [
        {
          student_id: second,
          student_name: 'No Class',
          current_class_id: null,
          current_class_name: null,
          next_class_id: to.id,
          next_class_name: to.name,
          eligible: true,
          reason: null,
        },
        {
          student_id: first,
          student_name: 'Amina Okafor',
          current_class_id: from.id,
          current_class_name: from.name,
          next_class_id: to.id,
          next_class_name: to.name,
          eligible: true,
          reason: null,
        },
      ],
    });
    expect(await checksums(service.database, school.schema)).toEqual(before);
  });

  test('gives the reason for each student who cannot be promoted', async () => {
    const [last, from, to, beside] = [
      await createClass(years[0]),
      await createClass(years[1]),
      await createClass(years[2]),
      await createClass(years[2]),
    ];
    const fit = await createStudent(from.id);
    const old = await createStudent(last.id);
    const inactive = await createStudent(from.id, { is_active: false });
    const there = await createStudent(to.id);
    const enrolled = await createStudent(beside.id);
    const upward = await preview([inactive, fit, there, enrolled, old], to.id, years[2]);
    expect(reasons(upward)).toEqual([
      'The student has left.',
      null,
      'The student is already in this class.',
      'The student is already enrolled in this academic year.',
      null,
    ]);
    expect(upward.students.map(({ eligible }) => eligible)).toEqual([false, true, false, false, true]);
    expect([upward.eligible, upward.ineligible]).toEqual([2, 3]);
    const downward = await preview([fit, enrolled, old], last.id, years[0]);
    expect(reasons(downward)).toEqual([
      'The academic year of the new class must begin after that of the current class.',
      'The academic year of the new class must begin after that of the current class.',
      'The student is already in this class.',
    ]);
  });

  test('gives the free seats of the class to the first students of the request who can be promoted', async () => {
    const [from, to] = [await createClass(years[1]), await createClass(years[2], 4)];
    await createStudents(2, to.id);
    const [a = 0, b = 0, c = 0, d = 0] = await createStudents(4, from.id);
    const inactive = await createStudent(from.id, { is_active: false });
    const full = 'The class is full.';
    expect(reasons(await preview([c, inactive, a, b, d], to.id, years[2]))).toEqual([
      null,
      'The student has left.',
      null,
      full,
      full,
    ]);
    expect(reasons(await preview([d, b, a], to.id, years[2]))).toEqual([null, null, full]);
  });

  test('does not count students who left the class or the school', async () => {
    const [from, to] = [await createClass(years[1]), await createClass(years[2], 2)];
    const [left = 0, gone = 0] = await createStudents(2, to.id);
    const [one = 0, two = 0] = await createStudents(2, from.id);
    expect((await preview([one, two], to.id, years[2])).eligible).toBe(0);
    await school.admin.put(`/api/students/${left}`, { class_id: null });
    expect((await preview([one, two], to.id, years[2])).eligible).toBe(1);
    await school.admin.delete(`/api/students/${gone}`);
    expect((await preview([one, two], to.id, years[2])).eligible).toBe(2);
  });

  test('a student who was promoted by mistake and moved back can be promoted again', async () => {
    const [from, wrong, right] = [
      await createClass(years[1]),
      await createClass(years[2]),
      await createClass(years[2]),
    ];
    const id = await createStudent(from.id);
    await promote([id], wrong.id, years[2], 200);
    await school.admin.put(`/api/students/${id}`, { class_id: from.id });
    await promote([id], right.id, years[2], 200);
    expect(await classOf(id)).toBe(right.id);
  });
});

describe.each(['/api/students/promotion/preview', '/api/students/promote'])('%s', (path) => {
  let from: number;
  let to: number;
  let student: number;
  beforeAll(async () => {
    from = (await createClass(years[1])).id;
    to = (await createClass(years[2])).id;
    student = await createStudent(from);
  });

  const refused = async (given: object, status: number) => {
    const before = await checksums(service.database, school.schema);
    const { error, details } = await school.admin.post(path, given, status);
    expect(await checksums(service.database, school.schema)).toEqual(before);
    return { error, paths: details.map((detail) => detail.path) };
  };

  test('with an unknown or deleted student is a 422 that names the position', async () => {
    const gone = await createStudent(from);
    await school.admin.delete(`/api/students/${gone}`);
    expect(await refused(body([student, gone, 999_999], to, years[2]), 422)).toEqual({
      error: 'invalid_reference',
      paths: ['student_ids.1', 'student_ids.2'],
    });
  });

  test('with an unknown class or year, or a class of another year, is a 422', async () => {
    expect(await refused(body([student], 999_999, years[2]), 422)).toEqual({
      error: 'invalid_reference',
      paths: ['to_class_id'],
    });
    expect(await refused(body([student], to, 999_999), 422)).toEqual({
      error: 'invalid_reference',
      paths: ['to_academic_year_id'],
    });
    expect(await refused(body([student], to, years[1]), 422)).toEqual({
      error: 'invalid_reference',
      paths: ['to_class_id'],
    });
  });

  test.each<[string, unknown, string]>([
    ['no students', [], 'student_ids'],
    ['1,001 students', Array.from({ length: 1001 }, (_, n) => n + 1), 'student_ids'],
    ['a duplicate student', [1, 2, 1], 'student_ids.2'],
    ['a name instead of an id', ['one'], 'student_ids.0'],
    ['a fractional id', [1, 1.5], 'student_ids.1'],
    ['null', null, 'student_ids'],
  ])('with %s is a 400', async (_case, ids, at) => {
    expect(await refused(body(ids, to, years[2]), 400)).toEqual({ error: 'validation_error', paths: [at] });
  });

  test('without class and year, or with an unknown field, is a 400', async () => {
    expect((await refused({ student_ids: [student], color: 'red' }, 400)).paths.sort()).toEqual([
      'color',
      'to_academic_year_id',
      'to_class_id',
    ]);
  });
});

describe('a promotion', () => {
  test("moves the students to the new class and its grade; last year's class and year still list them", async () => {
    const [from, to] = [await createClass(years[0]), await createClass(years[1])];
    const ids = await createStudents(3, from.id);
    const { data } = await promote(ids, to.id, years[1], 200);
    expect(data).toEqual({ promoted: 3, to_class_id: to.id, to_academic_year_id: years[1], students: ids });
    for (const id of ids) {
      const { data: student } = await school.admin.get(`/api/students/${id}`);
      expect(student).toMatchObject({
        class_id: to.id,
        class_name: to.name,
        grade_id: to.gradeId,
        academic_year_id: years[1],
      });
    }
    expect(await studentsOfClass(from.id)).toEqual(ids);
    expect(await studentsOfClass(to.id)).toEqual(ids);
    const lastYear = await school.admin.get<{ id: number }[]>(
      `/api/students?pageSize=100&academic_year_id=${years[0]}`,
    );
    expect(lastYear.data.map(({ id }) => id)).toEqual(expect.arrayContaining(ids));
  });

  test('completes the old enrollment today and begins the new one today, even if the new year begins later', async () => {
    const [from, to] = [await createClass(years[1]), await createClass(years[2])];
    const id = await createStudent(from.id);
    await service.database.query(
      `update ${school.schema}.enrollment set starts_on = starts_on - 100 where student_id = $1`,
      [id],
    );
    await promote([id], to.id, years[2], 200);
    const enrollments = await service.database.query(
      `select class_id::integer, academic_year_id::integer, status, starts_on - (now() at time zone 'UTC')::date as starts, ends_on - (now() at time zone 'UTC')::date as ends
       from ${school.schema}.enrollment where student_id = $1 order by id`,
      [id],
    );
    expect(enrollments).toEqual([
      { class_id: from.id, academic_year_id: years[1], status: 'completed', starts: -100, ends: 0 },
      { class_id: to.id, academic_year_id: years[2], status: 'active', starts: 0, ends: null },
    ]);
  });

  test('with a student who cannot be promoted is a 409 with the position and the reason, and moves nobody', async () => {
    const [from, to] = [await createClass(years[1]), await createClass(years[2], 2)];
    const ids = [
      await createStudent(from.id),
      await createStudent(from.id, { is_active: false }),
      ...(await createStudents(2, from.id)),
    ];
    const before = await checksums(service.database, school.schema);
    const refused = await promote<unknown>(ids, to.id, years[2], 409);
    expect(refused.error).toBe('conflict');
    expect(refused.details).toEqual([
      { path: 'student_ids.1', message: 'The student has left.' },
      { path: 'student_ids.3', message: 'The class is full.' },
    ]);
    expect(await checksums(service.database, school.schema)).toEqual(before);
    const fit = (await preview(ids, to.id, years[2])).students
      .filter(({ eligible }) => eligible)
      .map(({ student_id }) => student_id);
    await promote(fit, to.id, years[2], 200);
    expect(await studentsOfClass(to.id)).toEqual(fit);
  });

  test('runs once for one Idempotency-Key, and a repeated request without it is a 409', async () => {
    const [from, to] = [await createClass(years[1]), await createClass(years[2])];
    const ids = await createStudents(2, from.id);
    const send = () =>
      school.admin.send<Promoted>(
        'POST',
        '/api/students/promote',
        { body: body(ids, to.id, years[2]), headers: { 'Idempotency-Key': 'promotion-1' } },
        200,
      );
    const [one, two] = await Promise.all([send(), send()]);
    expect(one.data).toEqual(two.data);
    expect((await promote<unknown>(ids, to.id, years[2], 409)).details.map(({ message }) => message)).toEqual(
      ids.map(() => 'The student is already in this class.'),
    );
  });

  test('accepts 1,000 students', async () => {
    const [from, to] = [await createClass(years[1]), await createClass(years[2])];
    const rows = await service.database.query<{ id: number }>(
      `with s as (insert into ${school.schema}.student (first_name, last_name, admission_number, class_id)
         select 'Many', 'Student', 'M' || n, $1 from generate_series(1, 1000) n returning id) select id::integer from s order by 1`,
      [from.id],
    );
    const ids = rows.map(({ id }) => id);
    expect((await promote(ids, to.id, years[2], 200)).data).toMatchObject({ promoted: 1000, students: ids });
    expect((await school.admin.get(`/api/students?class_id=${to.id}`)).pagination.totalItems).toBe(1000);
    expect((await school.admin.get(`/api/students?class_id=${from.id}`)).pagination.totalItems).toBe(1000);
  });
});

describe('two concurrent promotions', () => {
  const statuses = async (...promotions: Promise<{ status: number }>[]) =>
    (await Promise.all(promotions)).map(({ status }) => status).sort();
  const start = (ids: number[], classId: number) =>
    school.admin.send<Promoted>('POST', '/api/students/promote', { body: body(ids, classId, years[2]) });

  test('with the same students, in any order, to the same or another class: only one succeeds', async () => {
    const from = await createClass(years[1]);
    for (const [one, two] of [
      [await createClass(years[2])].flatMap((to) => [to, to]),
      [await createClass(years[2]), await createClass(years[2])],
    ]) {
      const ids = await createStudents(5, from.id);
      expect(await statuses(start(ids, one?.id ?? 0), start([...ids].reverse(), two?.id ?? 0))).toEqual([200, 409]);
      const classes = new Set(await Promise.all(ids.map(classOf)));
      expect(classes.size).toBe(1);
      const active = await service.database.query(
        `select student_id from ${school.schema}.enrollment where student_id = any ($1) and status = 'active' group by student_id having count(*) = 1`,
        [ids],
      );
      expect(active).toHaveLength(5);
    }
  });

  test('to a class with enough seats for one of them: only one succeeds', async () => {
    const [from, to] = [await createClass(years[1]), await createClass(years[2], 5)];
    const [first, second] = [await createStudents(3, from.id), await createStudents(3, from.id)];
    expect(await statuses(start(first, to.id), start(second, to.id))).toEqual([200, 409]);
    expect(await studentsOfClass(to.id)).toHaveLength(3);
  });

  test('with different students and classes both succeed', async () => {
    const [from, one, two] = [await createClass(years[1]), await createClass(years[2]), await createClass(years[2])];
    expect(
      await statuses(start(await createStudents(3, from.id), one.id), start(await createStudents(3, from.id), two.id)),
    ).toEqual([200, 200]);
  });
});

describe('permissions', () => {
  const grantToTeachers = (of: School, permission: string) =>
    service.database.query(
      `insert into ${of.schema}.role_permission (role_id, permission_id) select r.id, p.id from ${of.schema}.role r, core.permission p where r.name = 'teacher' and p.name = $1`,
      [permission],
    );

  test('student.read allows the preview, and only student.update allows the promotion', async () => {
    const [from, to] = [await createClass(years[1]), await createClass(years[2])];
    const id = await createStudent(from.id);
    const accountant = await school.user(['accountant']);
    expect((await preview([id], to.id, years[2], accountant)).eligible).toBe(1);
    expect((await promote<unknown>([id], to.id, years[2], 403, accountant)).error).toBe('forbidden');
    const nobody = await school.user([]);
    for (const path of ['/api/students/promotion/preview', '/api/students/promote']) {
      await nobody.post(path, body([id], to.id, years[2]), 403);
      await service.anonymous.post(path, body([id], to.id, years[2]), 401);
      await service.operator.post(path, body([id], to.id, years[2]), 403);
    }
    expect(await classOf(id)).toBe(from.id);
  });

  test('a user without student.read learns nothing about students from a preview, not even which ids exist', async () => {
    const [from, to] = [await createClass(years[1]), await createClass(years[2])];
    const id = await createStudent(from.id);
    const staff = await school.user([await school.role('fee.read')]);
    const unknown = 999_999_999;
    const inactive = await createStudent(to.id, { is_active: false });
    const hidden = (student_id: number) => ({
      student_id,
      student_name: null,
      current_class_id: null,
      current_class_name: null,
      next_class_id: to.id,
      next_class_name: to.name,
      eligible: false,
      reason: 'You need student.read to see whether the student can be promoted.',
    });
    const ids = [id, unknown, inactive];
    expect(await preview(ids, to.id, years[2], staff)).toMatchObject({
      to_class: { name: to.name, student_count: null },
      eligible: 0,
      ineligible: 3,
      students: ids.map(hidden),
    });
    expect((await preview([id], to.id, years[2])).students).toMatchObject([
      { student_name: expect.any(String) as unknown, current_class_name: from.name },
    ]);
  });

  test('a teacher previews and, with student.update, promotes only between classes that they teach', async () => {
    const otherSchool = await service.school();
    const [, current, next] = await createYears(otherSchool);
    const [mine, theirs, mineNext, theirsNext] = [
      await createClass(current, null, otherSchool),
      await createClass(current, null, otherSchool),
      await createClass(next, null, otherSchool),
      await createClass(next, null, otherSchool),
    ];
    const [near, far] = [
      await createStudent(mine.id, {}, otherSchool),
      await createStudent(theirs.id, {}, otherSchool),
    ];
    await grantToTeachers(otherSchool, 'student.update');
    const teacher = await otherSchool.user(['teacher']);
    await service.database.query(
      `with t as (insert into ${otherSchool.schema}.teacher (user_id, first_name, last_name) values ($1, 'Te', 'Acher') returning id)
       update ${otherSchool.schema}.class set class_teacher_id = t.id from t where class.id = any ($2)`,
      [teacher.id, [mine.id, mineNext.id]],
    );
    for (const path of ['/api/students/promotion/preview', '/api/students/promote']) {
      expect((await teacher.post(path, body([near, far], mineNext.id, next), 422)).details).toMatchObject([
        { path: 'student_ids.1' },
      ]);
      expect((await teacher.post(path, body([near], theirsNext.id, next), 422)).details).toMatchObject([
        { path: 'to_class_id' },
      ]);
    }
    expect((await preview([near], mineNext.id, next, teacher)).to_class.name).toBe(mineNext.name);
    await promote([near], mineNext.id, next, 200, teacher);
    expect((await otherSchool.admin.get<{ class_id: number }>(`/api/students/${near}`)).data.class_id).toBe(
      mineNext.id,
    );
  });

  test('a student can neither preview nor promote', async () => {
    const [from, to] = [await createClass(years[1]), await createClass(years[2])];
    const email = `${unique('pupil')}@${school.subdomain}.example`;
    const id = await createStudent(from.id, { email, create_user_account: true, password: testPassword });
    const pupil = await service.anonymous.login({ tenant_id: school.id, email, password: testPassword });
    await promote<unknown>([id], to.id, years[2], 403, pupil);
    await pupil.post('/api/students/promotion/preview', body([id], to.id, years[2]), 403);
  });

  test('a user with a student record cannot preview without student.read, even with another role', async () => {
    const [from, to] = [await createClass(years[1]), await createClass(years[2])];
    const user = await school.user([await school.role('fee.read')]);
    const id = await createStudent(from.id);
    await service.database.query(`update ${school.schema}.student set user_id = $1 where id = $2`, [user.id, id]);
    const { email } = user;
    const both = await service.anonymous.login({ tenant_id: school.id, email, password: testPassword });
    await both.post('/api/students/promotion/preview', body([id], to.id, years[2]), 403);
  });
});
