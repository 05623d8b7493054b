import { describe, expect, test } from '@jest/globals';
import type { OutputOf } from '../support/client/output.ts';
import type { StudentAbsence as StudentAbsenceSchema } from '../../src/endpoints/student-absences.ts';
import { attendanceHelpers, day, path, today } from '../support/fixtures/attendance.ts';
import { steadyDay } from '../support/fixtures/days.ts';
import { serviceWithSchool, testPassword } from '../support/server/service.ts';

type Absence = OutputOf<typeof StudentAbsenceSchema>;

await steadyDay();
const { service, school } = await serviceWithSchool({}, 9);
const { addClass, addStudent, addClassTeacher, markRecords, excuses, sheet, expectTotals } = attendanceHelpers(
  service,
  school,
);

const announce = async (student: number, from_date: string, to_date: string, client = school.admin) =>
  (await client.post<Absence>(`/api/students/${student}/absences`, { from_date, to_date, reason: 'Operation' }, 201))
    .data;

describe('an announced absence', () => {
  test('is on the sheet of its days, marks nothing, and excuses the marks that say absent', async () => {
    const { classId, students } = await addClass(2);
    const [a = 0, b = 0] = students;
    const absence = await announce(a, day(-1), today);
    expect(absence).toMatchObject({ student_id: a, from_date: day(-1), to_date: today, reason: 'Operation' });
    expect(absence.announced_by_name).toEqual(expect.any(String));
    const rows = await sheet(classId);
    const { id, from_date, to_date, reason } = absence;
    expect(rows.map(({ status, announced_absence }) => [status, announced_absence])).toEqual([
      [null, { id, from_date, to_date, reason }],
      [null, null],
    ]);
    expect((await sheet(classId, `date=${day(-2)}`))[0]?.announced_absence).toBeNull();
    const absent = [a, b].map((student_id) => ({ student_id, status: 'absent' as const }));
    for (const date of [day(-2), day(-1), today]) await markRecords(classId, date, absent);
    expect(await excuses(classId)).toEqual([
      ['absent', true, null],
      ['absent', false, null],
    ]);
    expect(await excuses(classId, day(-2))).toEqual([
      ['absent', false, null],
      ['absent', false, null],
    ]);
    await markRecords(classId, day(-1), [{ student_id: a, status: 'absent', is_excused: false }]);
    expect((await excuses(classId, day(-1)))[0]).toEqual(['absent', false, null]);
    await markRecords(classId, today, [{ student_id: a, status: 'late' }]);
    expect((await excuses(classId))[0]).toEqual(['late', false, null]);
    await expectTotals();
  });

  test('is shown and excuses on each of its days, the first and the last too, and on no other', async () => {
    const { classId, students } = await addClass(1);
    const [a = 0] = students;
    await announce(a, day(-3), day(-2));
    const days = [-4, -3, -2, -1].map(day);
    for (const date of days) await markRecords(classId, date, [{ student_id: a, status: 'absent' }]);
    const shown = async (date: string) => {
      const [row] = await sheet(classId, `date=${date}`);
      return [row?.announced_absence !== null, row?.is_excused];
    };
    expect(await Promise.all(days.map(shown))).toEqual([
      [false, false],
      [true, true],
      [true, true],
      [false, false],
    ]);
  });

  test('is refused on days on which the student has left', async () => {
    const { students } = await addClass(1);
    await school.admin.put(`/api/students/${students[0]}`, { left_on: day(30) });
    const url = `/api/students/${students[0]}/absences`;
    const body = (from_date: string, to_date: string) => ({ from_date, to_date, reason: 'Operation' });
    expect((await school.admin.post(url, body(day(30), day(31)), 409)).details).toMatchObject([{ path: 'to_date' }]);
    await school.admin.post(url, body(day(28), day(29)), 201);
  });

  test('is listed, the latest first, by days and reason, and can be deleted; marks stay', async () => {
    const { classId, students } = await addClass(1);
    const [a = 0] = students;
    const url = `/api/students/${a}/absences`;
    const first = await announce(a, day(-30), day(-28));
    const last = await announce(a, today, day(5));
    await markRecords(classId, today, [{ student_id: a, status: 'absent' }]);
    const ids = async (query = '') => (await school.admin.get<Absence[]>(`${url}?${query}`)).data.map(({ id }) => id);
    expect(await ids()).toEqual([last.id, first.id]);
    expect(await ids(`from_date=${day(-28)}&to_date=${day(-1)}`)).toEqual([first.id]);
    expect(await ids(`from_date=${day(-27)}`)).toEqual([last.id]);
    expect(await ids(`to_date=${day(-30)}`)).toEqual([first.id]);
    expect(await ids('search=operat')).toEqual([last.id, first.id]);
    expect((await school.admin.delete<object>(`${url}/${last.id}`)).data).toEqual({ id: last.id });
    await school.admin.delete(`${url}/${last.id}`, 404);
    expect(await ids()).toEqual([first.id]);
    expect(await excuses(classId)).toEqual([['absent', true, null]]);
  });

  test('is refused with its last day before the first, for more than a year, and on days of another one', async () => {
    const { students } = await addClass(1);
    const url = `/api/students/${students[0]}/absences`;
    const body = (from_date: string, to_date: string) => ({ from_date, to_date, reason: 'Operation' });
    for (const [from, to] of [
      [today, day(-1)],
      [today, day(366)],
    ] as const)
      expect(await school.admin.post(url, body(from, to), 400)).toMatchObject({ details: [{ path: 'to_date' }] });
    const { id } = (await school.admin.post<Absence>(url, body(today, day(365)), 201)).data;
    const overlaps = async (from: string, to: string) =>
      (await school.admin.post(url, body(from, to), 409)).details.map(({ path, message }) => [path, message]);
    const message = `The absence ${id} of the student is announced from ${today} to ${day(365)}. Delete it first.`;
    expect(await overlaps(day(365), day(366))).toEqual([['from_date', message]]);
    expect(await overlaps(day(-3), today)).toEqual([['to_date', message]]);
    await school.admin.post(url, body(day(366), day(367)), 201);
    await school.admin.post(url, { ...body(day(400), day(400)), reason: ' ' }, 400);
  });

  test('is in the list of the school, with the name and the class of the student', async () => {
    const [one, two] = [await addClass(2), await addClass(1)];
    const [a = 0, b = 0] = one.students;
    const [c = 0] = two.students;
    const ids = async (query: string, client = school.admin) =>
      (await client.get<Absence[]>(`${path}/absences?pageSize=100&${query}`)).data.map(({ id }) => id);
    const range = `from_date=${day(600)}&to_date=${day(606)}`;
    const [first, second, third] = [
      await announce(a, day(590), day(600)),
      await announce(b, day(604), day(604)),
      await announce(c, day(606), day(700)),
    ];
    await announce(a, day(607), day(607));
    expect(await ids(range)).toEqual([third.id, second.id, first.id]);
    expect(await ids(`${range}&class_id=${one.classId}`)).toEqual([second.id, first.id]);
    expect(await ids(range, await addClassTeacher(two.classId))).toEqual([third.id]);
    expect(third).toMatchObject({
      student_name: expect.any(String),
      class_id: two.classId,
      class_name: expect.any(String),
    });
    await school.admin.delete(`/api/students/${b}`);
    expect(await ids(range)).toEqual([third.id, first.id]);
  });

  test('belongs to the students of a teacher: no other class, no other school, and a student only reads', async () => {
    const { classId } = await addClass(0);
    const {
      students: [strange = 0],
    } = await addClass(1);
    const { id: user_id, email } = await school.user(['student']);
    const own = await addStudent(classId, { user_id });
    const pupil = await service.anonymous.login({ tenant_id: school.id, email, password: testPassword });
    const teacher = await addClassTeacher(classId);
    const { id } = await announce(own, today, today, teacher);
    const { id: foreign } = await announce(strange, today, today);
    const body = { from_date: day(9), to_date: day(9), reason: 'Operation' };
    await teacher.post(`/api/students/${strange}/absences`, body, 404);
    await teacher.get(`/api/students/${strange}/absences`, 404);
    await teacher.delete(`/api/students/${strange}/absences/${foreign}`, 404);
    await teacher.delete(`/api/students/${own}/absences/${foreign}`, 404);
    expect((await pupil.get<Absence[]>(`/api/students/${own}/absences`)).data).toMatchObject([{ id }]);
    await pupil.get(`/api/students/${strange}/absences`, 404);
    await pupil.post(`/api/students/${own}/absences`, body, 403);
    await pupil.delete(`/api/students/${own}/absences/${id}`, 403);
    expect((await school.admin.get<Absence[]>(`/api/students/${own}/absences`)).data).toMatchObject([{ id }]);
  });
});

test('notes and reasons are in no webhook and no analytics, and an erasure deletes them', async () => {
  const { classId, students } = await addClass(1);
  const [student_id = 0] = students;
  await school.admin.post(
    '/api/webhooks',
    { url: 'https://hooks.example.org/', events: ['attendance.marked', 'student.updated'] },
    201,
  );
  await announce(student_id, today, today);
  await markRecords(classId, today, [{ student_id, status: 'absent', note: 'Secret illness' }]);
  await markRecords(classId, today, [{ student_id, status: 'late', note: 'Secret fever' }]);
  await school.admin.put(`/api/students/${student_id}`, { left_on: day(30), leaving_reason: 'Secret fever' });
  await service.settled();
  const everything = async (schema: string) => {
    const tables = await service.database.query<{ name: string }>(
      `select c.oid::regclass::text as name from pg_class c where relnamespace = $1::regnamespace and relkind = 'r'`,
      [schema],
    );
    const found = [];
    for (const { name } of tables) {
      const rows = await service.database.query(
        `select from ${name} t where to_jsonb(t)::text ~ 'Secret (illness|fever)|"Operation"'
           and case when to_jsonb(t) ? 'student_id' then to_jsonb(t) ->> 'student_id' = $1 else true end`,
        [String(student_id)],
      );
      if (rows.length > 0) found.push(name.split('.').at(-1));
    }
    return found.toSorted();
  };
  expect(await service.database.query(`select from ${school.schema}.webhook_event`)).not.toEqual([]);
  expect(await everything(school.schema)).toEqual([
    'attendance',
    'attendance_correction',
    'student',
    'student_absence',
  ]);
  expect(await everything('mart')).toEqual([]);
  expect(await everything('platform')).toEqual([]);
  await service.database.query('select core.student_erase($1, $2)', [school.id, student_id]);
  expect(await everything(school.schema)).toEqual([]);
  expect((await sheet(classId)).map(({ status, note }) => [status, note])).toEqual([['late', null]]);
  await expectTotals();
});
