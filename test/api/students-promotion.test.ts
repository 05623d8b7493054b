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
/** Last year, this one, the next. */
let years: [number, number, number];

beforeAll(async () => {
  years = await threeYears(school);
});

type Preview = OutputOf<typeof PromotionPreviewSchema>;
type Promoted = OutputOf<typeof PromotedSchema>;

/** Three years in a row, the one in the middle current. */
async function threeYears(of: School): Promise<[number, number, number]> {
  const rows = await service.database.query<{ id: number }>(
    `insert into ${of.schema}.academic_year (name, start_date, end_date, is_current)
     select 'Year ' || n, date_trunc('year', now()) + n * interval '1 year', date_trunc('year', now()) + (n + 1) * interval '1 year' - interval '1 day', n = 0
     from generate_series(-1, 1) n order by n returning id::integer`,
  );
  const [last = 0, present = 0, next = 0] = rows.map(({ id }) => id);
  return [last, present, next];
}

async function addClass(
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

const addStudent = async (classId: number | null, fields: Record<string, unknown> = {}, of = school) =>
  (
    await of.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'Pro', last_name: unique('Moted'), class_id: classId, ...fields },
      201,
    )
  ).data.id;

const some = async (count: number, classId: number | null, of = school) => {
  const ids: number[] = [];
  for (let n = 0; n < count; n++) ids.push(await addStudent(classId, {}, of));
  return ids;
};

const body = (student_ids: unknown, to_class_id: number, to_academic_year_id: number) => ({
  student_ids,
  to_class_id,
  to_academic_year_id,
});

const preview = async (ids: number[], classId: number, yearId: number, who: Client = school.admin) =>
  (await who.post<Preview>('/api/students/promotion/preview', body(ids, classId, yearId))).data;

const promote = <T = Promoted>(
  ids: number[],
  classId: number,
  yearId: number,
  status: number,
  who: Client = school.admin,
) => who.post<T>('/api/students/promote', body(ids, classId, yearId), status);

const inClass = async (classId: number) =>
  (await school.admin.get<{ id: number }[]>(`/api/students?pageSize=100&class_id=${classId}`)).data
    .map(({ id }) => id)
    .sort((a, b) => a - b);

const classOf = async (id: number) =>
  (await school.admin.get<{ class_id: number | null }>(`/api/students/${id}`)).data.class_id;

const reasons = ({ students }: Preview) => students.map(({ reason }) => reason);

describe('the preview of a promotion', () => {
  test('says of each student, in the order of the request, where they are and where they would be, and changes nothing', async () => {
    const [from, to] = [await addClass(years[1]), await addClass(years[2], 30)];
    const first = await addStudent(from.id, { first_name: 'Amina', last_name: 'Okafor' });
    const second = await addStudent(null, { first_name: 'No', last_name: 'Class' });
    await addStudent(to.id);
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

  test('gives the reason of everybody who can not be promoted', async () => {
    const [last, from, to, beside] = [
      await addClass(years[0]),
      await addClass(years[1]),
      await addClass(years[2]),
      await addClass(years[2]),
    ];
    const fit = await addStudent(from.id);
    const old = await addStudent(last.id);
    const inactive = await addStudent(from.id, { is_active: false });
    const there = await addStudent(to.id);
    const enrolled = await addStudent(beside.id);
    const upward = await preview([inactive, fit, there, enrolled, old], to.id, years[2]);
    expect(reasons(upward)).toEqual([
      'The student is inactive.',
      null,
      'The student is in this class already.',
      'The student is enrolled in this academic year already.',
      null,
    ]);
    expect(upward.students.map(({ eligible }) => eligible)).toEqual([false, true, false, false, true]);
    expect([upward.eligible, upward.ineligible]).toEqual([2, 3]);
    const downward = await preview([fit, enrolled, old], last.id, years[0]);
    expect(reasons(downward)).toEqual([
      'This academic year is not later than that of the present class.',
      'This academic year is not later than that of the present class.',
      'The student is in this class already.',
    ]);
  });

  test('lets in as many as the class has places, in the order of the request; who can not be promoted anyway takes none', async () => {
    const [from, to] = [await addClass(years[1]), await addClass(years[2], 4)];
    await some(2, to.id);
    const [a = 0, b = 0, c = 0, d = 0] = await some(4, from.id);
    const inactive = await addStudent(from.id, { is_active: false });
    const full = 'The class is full.';
    expect(reasons(await preview([c, inactive, a, b, d], to.id, years[2]))).toEqual([
      null,
      'The student is inactive.',
      null,
      full,
      full,
    ]);
    expect(reasons(await preview([d, b, a], to.id, years[2]))).toEqual([null, null, full]);
  });

  test('counts who left the class or the school no more', async () => {
    const [from, to] = [await addClass(years[1]), await addClass(years[2], 2)];
    const [left = 0, gone = 0] = await some(2, to.id);
    const [one = 0, two = 0] = await some(2, from.id);
    expect((await preview([one, two], to.id, years[2])).eligible).toBe(0);
    await school.admin.put(`/api/students/${left}`, { class_id: null });
    expect((await preview([one, two], to.id, years[2])).eligible).toBe(1);
    await school.admin.delete(`/api/students/${gone}`);
    expect((await preview([one, two], to.id, years[2])).eligible).toBe(2);
  });

  test('who was promoted by mistake and put back can be promoted again', async () => {
    const [from, wrong, right] = [await addClass(years[1]), await addClass(years[2]), await addClass(years[2])];
    const id = await addStudent(from.id);
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
    from = (await addClass(years[1])).id;
    to = (await addClass(years[2])).id;
    student = await addStudent(from);
  });

  const refused = async (given: object, status: number) => {
    const before = await checksums(service.database, school.schema);
    const { error, details } = await school.admin.post(path, given, status);
    expect(await checksums(service.database, school.schema)).toEqual(before);
    return { error, paths: details.map((detail) => detail.path) };
  };

  test('refuses students who do not exist or were deleted by their place in the list: 422', async () => {
    const gone = await addStudent(from);
    await school.admin.delete(`/api/students/${gone}`);
    expect(await refused(body([student, gone, 999_999], to, years[2]), 422)).toEqual({
      error: 'invalid_reference',
      paths: ['student_ids.1', 'student_ids.2'],
    });
  });

  test('refuses a class or a year that does not exist, and a class of another year: 422', async () => {
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
    ['a student twice', [1, 2, 1], 'student_ids.2'],
    ['a student by name', ['one'], 'student_ids.0'],
    ['half a student', [1, 1.5], 'student_ids.1'],
    ['null', null, 'student_ids'],
  ])('refuses %s: 400', async (_what, ids, at) => {
    expect(await refused(body(ids, to, years[2]), 400)).toEqual({ error: 'validation_error', paths: [at] });
  });

  test('needs class and year, and knows no other field: 400', async () => {
    expect((await refused({ student_ids: [student], colour: 'red' }, 400)).paths.sort()).toEqual([
      'colour',
      'to_academic_year_id',
      'to_class_id',
    ]);
  });
});

describe('a promotion', () => {
  test("moves everybody to the new class and its grade; last year's class and year still list them", async () => {
    const [from, to] = [await addClass(years[0]), await addClass(years[1])];
    const ids = await some(3, from.id);
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
    expect(await inClass(from.id)).toEqual(ids);
    expect(await inClass(to.id)).toEqual(ids);
    const lastYear = await school.admin.get<{ id: number }[]>(
      `/api/students?pageSize=100&academic_year_id=${years[0]}`,
    );
    expect(lastYear.data.map(({ id }) => id)).toEqual(expect.arrayContaining(ids));
  });

  test('completes the enrollment of the old year today and begins the next today, also for a year that begins later', async () => {
    const [from, to] = [await addClass(years[1]), await addClass(years[2])];
    const id = await addStudent(from.id);
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

  test('of students of whom one can not be promoted is a 409 that says why by their place, and nobody is', async () => {
    const [from, to] = [await addClass(years[1]), await addClass(years[2], 2)];
    const ids = [
      await addStudent(from.id),
      await addStudent(from.id, { is_active: false }),
      ...(await some(2, from.id)),
    ];
    const before = await checksums(service.database, school.schema);
    const refused = await promote<unknown>(ids, to.id, years[2], 409);
    expect(refused.error).toBe('conflict');
    expect(refused.details).toEqual([
      { path: 'student_ids.1', message: 'The student is inactive.' },
      { path: 'student_ids.3', message: 'The class is full.' },
    ]);
    expect(await checksums(service.database, school.schema)).toEqual(before);
    const fit = (await preview(ids, to.id, years[2])).students
      .filter(({ eligible }) => eligible)
      .map(({ student_id }) => student_id);
    await promote(fit, to.id, years[2], 200);
    expect(await inClass(to.id)).toEqual(fit);
  });

  test('comes once with one Idempotency-Key, and is a 409 the second time without', async () => {
    const [from, to] = [await addClass(years[1]), await addClass(years[2])];
    const ids = await some(2, from.id);
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
      ids.map(() => 'The student is in this class already.'),
    );
  });

  test('takes 1,000 students at once', async () => {
    const [from, to] = [await addClass(years[1]), await addClass(years[2])];
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

describe('of two promotions at once', () => {
  const statuses = async (...promotions: Promise<{ status: number }>[]) =>
    (await Promise.all(promotions)).map(({ status }) => status).sort();
  const start = (ids: number[], classId: number) =>
    school.admin.send<Promoted>('POST', '/api/students/promote', { body: body(ids, classId, years[2]) });

  test('one wins where they name the same students, in any order, whether the class is the same or another', async () => {
    const from = await addClass(years[1]);
    for (const [one, two] of [
      [await addClass(years[2])].flatMap((to) => [to, to]),
      [await addClass(years[2]), await addClass(years[2])],
    ]) {
      const ids = await some(5, from.id);
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

  test('one wins where the class has places for one of them', async () => {
    const [from, to] = [await addClass(years[1]), await addClass(years[2], 5)];
    const [some1, some2] = [await some(3, from.id), await some(3, from.id)];
    expect(await statuses(start(some1, to.id), start(some2, to.id))).toEqual([200, 409]);
    expect(await inClass(to.id)).toHaveLength(3);
  });

  test('both win where they have nothing in common', async () => {
    const [from, one, two] = [await addClass(years[1]), await addClass(years[2]), await addClass(years[2])];
    expect(await statuses(start(await some(3, from.id), one.id), start(await some(3, from.id), two.id))).toEqual([
      200, 200,
    ]);
  });
});

describe('who may', () => {
  const grant = (of: School, permission: string) =>
    service.database.query(
      `insert into ${of.schema}.role_permission (role_id, permission_id) select r.id, p.id from ${of.schema}.role r, core.permission p where r.name = 'teacher' and p.name = $1`,
      [permission],
    );

  test('whoever reads students previews, and only who may change them promotes', async () => {
    const [from, to] = [await addClass(years[1]), await addClass(years[2])];
    const id = await addStudent(from.id);
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

  test('a teacher previews, and with the right to change students promotes, from classes that they teach to classes that they teach', async () => {
    const place = await service.school();
    const [, present, next] = await threeYears(place);
    const [mine, theirs, mineNext, theirsNext] = [
      await addClass(present, null, place),
      await addClass(present, null, place),
      await addClass(next, null, place),
      await addClass(next, null, place),
    ];
    const [near, far] = [await addStudent(mine.id, {}, place), await addStudent(theirs.id, {}, place)];
    await grant(place, 'student.update');
    const teacher = await place.user(['teacher']);
    await service.database.query(
      `with t as (insert into ${place.schema}.teacher (user_id, first_name, last_name) values ($1, 'Te', 'Acher') returning id)
       update ${place.schema}.class set class_teacher_id = t.id from t where class.id = any ($2)`,
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
    expect((await place.admin.get<{ class_id: number }>(`/api/students/${near}`)).data.class_id).toBe(mineNext.id);
  });

  test('a student is refused, whatever their role may', async () => {
    const [from, to] = [await addClass(years[1]), await addClass(years[2])];
    const email = `${unique('pupil')}@${school.subdomain}.example`;
    const id = await addStudent(from.id, { email, create_user_account: true, password: testPassword });
    const pupil = await service.anonymous.login({ tenant_id: school.id, email, password: testPassword });
    await promote<unknown>([id], to.id, years[2], 403, pupil);
    await pupil.post('/api/students/promotion/preview', body([id], to.id, years[2]), 403);
  });
});
