import { afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import type { Answer, Client } from '../support/client/client.ts';
import { walk } from '../support/client/pages.ts';
import { race } from '../support/client/race.ts';
import { dayIn, farZones, steadyDay } from '../support/fixtures/days.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type {
  AttendanceMark as AttendanceMarkSchema,
  CalendarDay as CalendarDaySchema,
  ClassRegister as ClassRegisterSchema,
  Marked as MarkedSchema,
  StudentAttendance as StudentAttendanceSchema,
} from '../../src/endpoints/attendance.ts';

await steadyDay();
const { service, school } = await serviceWithSchool({}, 'template_many_ready');

type Status = 'present' | 'absent' | 'late';
type Marked = OutputOf<typeof MarkedSchema>;
type Mark = OutputOf<typeof AttendanceMarkSchema>;
type OfStudent = OutputOf<typeof StudentAttendanceSchema>;
type Register = OutputOf<typeof ClassRegisterSchema>;
type Day = OutputOf<typeof CalendarDaySchema>;

const path = '/api/attendance';
const today = new Date().toISOString().slice(0, 10);
const thisYear = Number(today.slice(0, 4));
/** The date a number of days from today. Negative numbers are in the past. */
const day = (offset: number) => new Date(Date.parse(today) + offset * 86_400_000).toISOString().slice(0, 10);

/** Creates a class of the current academic year, with students who have been enrolled in it for years. */
async function addClass(count: number, at = school): Promise<{ classId: number; students: number[] }> {
  const { classId } = await at.classroom(unique('Class'));
  // The tests mark days before today. In January, those would be outside the academic year.
  await service.database.query(
    `update ${at.schema}.academic_year y set start_date = $1 where is_current and start_date > $1
       and not exists (select from ${at.schema}.academic_year o where o.id <> y.id and o.end_date >= $1)`,
    [day(-60)],
  );
  const students = [];
  for (let n = 1; n <= count; n++)
    students.push(await addStudent(classId, { last_name: `Pupil ${n}`, roll_number: String(n) }, at));
  return { classId, students };
}
async function addStudent(
  classId: number,
  fields: Record<string, unknown> = {},
  at = school,
  since = '2020-01-01',
): Promise<number> {
  const id = await at.insert('student', {
    first_name: 'Sam',
    last_name: 'Pupil',
    admission_number: unique('A'),
    class_id: classId,
    ...fields,
  });
  await service.database.query(`update ${at.schema}.enrollment set starts_on = $2 where student_id = $1`, [id, since]);
  return id;
}
const move = (student: number, classId: number | null, at = school) =>
  service.database.query(`update ${at.schema}.student set class_id = $2 where id = $1`, [student, classId]);

/** Creates a user with these roles who is the class teacher of a class. */
async function addClassTeacher(classId: number, roles = ['teacher'], at = school) {
  const who = await at.user(roles, { first_name: 'Tea', last_name: unique('Cher') });
  const teacherId = await at.insert('teacher', { first_name: 'Tea', last_name: 'Cher', user_id: who.id });
  await service.database.query(`update ${at.schema}.class set class_teacher_id = $2 where id = $1`, [
    classId,
    teacherId,
  ]);
  return Object.assign(who, { teacherId });
}

const body = (class_id: number, date: string, marks: Record<number, Status>) => ({
  class_id,
  date,
  records: Object.entries(marks).map(([student_id, status]) => ({ student_id: Number(student_id), status })),
});
const all = (students: number[], status: Status): Record<number, Status> =>
  Object.fromEntries(students.map((student) => [student, status]));
async function mark(
  classId: number,
  date: string,
  marks: Record<number, Status>,
  who: Client = school.admin,
): Promise<Marked> {
  return (await who.post<Marked>(`${path}/mark`, body(classId, date, marks))).data;
}
const refuse = (
  classId: number,
  date: string,
  marks: Record<number, Status>,
  status: number,
  who: Client = school.admin,
) => who.post(`${path}/mark`, body(classId, date, marks), status);
const sheet = async (classId: number, query = '', who: Client = school.admin) =>
  (await who.get<Mark[]>(`${path}/class/${classId}?pageSize=100&${query}`)).data;
const statuses = (marks: Mark[]) => marks.map(({ student_id, status }) => [student_id, status]);
/** The marks of a student in the table, by date. */
const storedMarks = (student: number) =>
  service.database.query(
    `select to_char(date, 'YYYY-MM-DD') as date, status, class_id::integer from ${school.schema}.attendance where student_id = $1 order by date`,
    [student],
  );
/** Checks that the totals kept by triggers equal the counts of the marks. */
async function expectTotals(at = school): Promise<void> {
  const differences = await service.database.query(
    `with days as (select date, class_id, count(*) filter (where status = 'present') as present, count(*) filter (where status = 'absent') as absent,
         count(*) filter (where status = 'late') as late from ${at.schema}.attendance group by date, class_id),
       kept as (select date, class_id, present, absent, late from ${at.schema}.attendance_day where present + absent + late > 0),
       totals as (select class_id, count(*) as marks, count(*) filter (where status <> 'absent') as attended from ${at.schema}.attendance group by class_id),
       kept_totals as (select class_id, marks, attended from ${at.schema}.attendance_total where marks > 0)
     (select 'day', to_jsonb(d) from (select * from days except select * from kept) d) union all (select 'kept', to_jsonb(d) from (select * from kept except select * from days) d)
     union all (select 'total', to_jsonb(t) from (select * from totals except select * from kept_totals) t)
     union all (select 'kept total', to_jsonb(t) from (select * from kept_totals except select * from totals) t)`,
  );
  expect(differences).toEqual([]);
}

describe('marking a class', () => {
  test('stores a mark for each student, returns the counts, and the list shows who marked them and when', async () => {
    const { classId, students } = await addClass(4);
    const [a = 0, b = 0, c = 0, d = 0] = students;
    const teacher = await addClassTeacher(classId);
    const answer = await mark(classId, today, { [a]: 'present', [b]: 'absent', [c]: 'late' }, teacher);
    expect(answer).toEqual({
      class_id: classId,
      date: today,
      marked: 3,
      present: 1,
      absent: 1,
      late: 1,
      corrected: 0,
      unchanged: 0,
    });
    const marks = await sheet(classId);
    expect(statuses(marks)).toEqual([
      [a, 'present'],
      [b, 'absent'],
      [c, 'late'],
      [d, null],
    ]);
    const { data: profile } = await teacher.get<{ first_name: string; last_name: string }>('/api/auth/profile');
    expect(marks[0]).toMatchObject({
      student_name: 'Sam Pupil 1',
      date: today,
      marked_by: teacher.id,
      marked_by_name: `${profile.first_name} ${profile.last_name}`,
      corrections: [],
    });
    expect(Date.now() - Date.parse(marks[0]?.marked_at ?? '')).toBeLessThan(60_000);
    expect(marks[3]).toMatchObject({
      id: null,
      status: null,
      marked_by: null,
      marked_by_name: null,
      marked_at: null,
      corrections: [],
    });
    await expectTotals();
  });

  test('is idempotent: a repeated request changes neither the marks nor their times', async () => {
    const { classId, students } = await addClass(3);
    await mark(classId, today, all(students, 'present'));
    const before = await sheet(classId);
    expect(await mark(classId, today, all(students, 'present'))).toMatchObject({
      marked: 3,
      present: 3,
      corrected: 0,
      unchanged: 3,
    });
    expect(await sheet(classId)).toEqual(before);
  });

  test('with another status corrects the mark and keeps the previous status, its author and the author of the correction', async () => {
    const { classId, students } = await addClass(3);
    const [a = 0, b = 0] = students;
    const teacher = await addClassTeacher(classId);
    await mark(classId, day(-1), all(students, 'present'), teacher);
    const [first] = await sheet(classId, `date=${day(-1)}`);
    expect(await mark(classId, day(-1), { [a]: 'late', [b]: 'present' })).toMatchObject({
      marked: 2,
      corrected: 1,
      unchanged: 1,
    });
    expect(await mark(classId, day(-1), { [a]: 'absent' }, teacher)).toMatchObject({ corrected: 1 });
    const marks = await sheet(classId, `date=${day(-1)}`);
    expect(statuses(marks).map(([, status]) => status)).toEqual(['absent', 'present', 'present']);
    expect(marks[0]?.id).toBe(first?.id);
    const byTeacher = { marked_by_name: first?.marked_by_name };
    expect(marks[0]?.corrections).toMatchObject([
      { status: 'present', class_id: classId, ...byTeacher, marked_at: first?.marked_at },
      {
        status: 'late',
        class_id: classId,
        corrected_by_name: first?.marked_by_name,
        corrected_at: marks[0]?.marked_at,
      },
    ]);
    expect(marks[0]?.corrections[0]?.corrected_by_name).toBe(marks[0]?.corrections[1]?.marked_by_name);
    expect(marks[0]?.corrections[0]?.corrected_at).toBe(marks[0]?.corrections[1]?.marked_at);
    expect(marks[0]?.corrections[0]?.corrected_by_name).not.toBe(first?.marked_by_name);
    expect(marks[1]?.corrections).toEqual([]);
    await expectTotals();
  });

  test('keeps corrections that the database role of the service can neither update nor delete', async () => {
    const [row] = await service.database.query<{ verbs: string[] }>(
      `select array_agg(verb) filter (where has_any_column_privilege('school_tenant', '${school.schema}.attendance_correction', verb)) as verbs from unnest('{select,insert,update}'::text[]) verb`,
    );
    expect(row?.verbs).toEqual(['select', 'insert']);
    const [removes] = await service.database.query(
      `select has_table_privilege('school_tenant', '${school.schema}.attendance_correction', 'delete') as may`,
    );
    expect(removes).toEqual({ may: false });
  });

  test('writes nothing and answers 422 with at most ten records if a student is not in the class', async () => {
    const [one, other] = [await addClass(2), await addClass(12)];
    const [a = 0, b = 0] = one.students;
    const strangers = other.students;
    const records = [a, strangers[0], b, strangers[1], 999_999].map((student_id) => ({
      student_id,
      status: 'present',
    }));
    const refused = await school.admin.post(`${path}/mark`, { class_id: one.classId, date: today, records }, 422);
    expect(refused.error).toBe('invalid_reference');
    expect(refused.details.map((detail) => detail.path)).toEqual([1, 3, 4].map((n) => `records.${n}.student_id`));
    expect(refused.message).toBe(`Student ${strangers[0] ?? 0} is not in this class and was not in it on ${today}.`);
    expect((await refuse(one.classId, today, all(strangers, 'present'), 422)).details).toHaveLength(10);
    expect(await storedMarks(a)).toEqual([]);
    expect(await storedMarks(strangers[0] ?? 0)).toEqual([]);
  });

  test('answers 400 for the second record of the same student', async () => {
    const { classId, students } = await addClass(2);
    const [a, b] = students;
    const records = [a, b, a].map((student_id) => ({ student_id, status: 'present' }));
    expect(await school.admin.post(`${path}/mark`, { class_id: classId, date: today, records }, 400)).toMatchObject({
      error: 'validation_error',
      details: [{ path: 'records.2.student_id' }],
    });
    expect(await storedMarks(a ?? 0)).toEqual([]);
  });

  test.each([
    ['no record', { records: [] }, 'records'],
    ['an unknown status', { records: [{ student_id: 1, status: 'excused' }] }, 'records.0.status'],
    ['a record with an unknown field', { records: [{ student_id: 1, status: 'late', note: 'bus' }] }, 'records.0.note'],
    [
      '501 records',
      { records: Array.from({ length: 501 }, (_, n) => ({ student_id: n + 1, status: 'present' })) },
      'records',
    ],
    ['a date that does not exist', { date: '2026-02-30' }, 'date'],
    ['a timestamp instead of a date', { date: `${today}T08:00:00Z` }, 'date'],
    ['a class id that is not a number', { class_id: '1' }, 'class_id'],
  ])('%s is a 400 that names the field', async (_what, fields, field) => {
    const sent = { class_id: 1, date: today, records: [{ student_id: 1, status: 'present' }], ...fields };
    expect((await school.admin.post(`${path}/mark`, sent, 400)).details.map((detail) => detail.path)).toEqual([field]);
  });

  test('answers 409 with the name of the holiday, also for a recurring one, but accepts days without lessons', async () => {
    const own = await service.school();
    const { classId, students } = await addClass(1, own);
    const [a = 0] = students;
    await own.admin.post('/api/holidays', { name: 'Founders', date: day(-3) }, 201);
    await own.insert('holiday', {
      name: 'Every year',
      date: `${Number(day(-5).slice(0, 4)) - 4}${day(-5).slice(4)}`,
      is_recurring: true,
    });
    const refused = await refuse(classId, day(-3), { [a]: 'present' }, 409, own.admin);
    expect(refused).toMatchObject({
      error: 'conflict',
      message: `${day(-3)} is a holiday (Founders). You can only correct existing marks.`,
      details: [{ path: 'date' }],
    });
    await refuse(classId, day(-5), { [a]: 'present' }, 409, own.admin);
    // A whole week, so that at least one day is not a working day.
    for (let n = -13; n < -6; n++) expect((await mark(classId, day(n), { [a]: 'present' }, own.admin)).marked).toBe(1);
  });

  test('on a holiday that was added later allows correcting existing marks but not adding new ones', async () => {
    const own = await service.school();
    const { classId, students } = await addClass(2, own);
    const [a = 0, b = 0] = students;
    await mark(classId, day(-3), { [a]: 'present' }, own.admin);
    await own.insert('holiday', { name: 'Storm', date: day(-3) });
    expect(await mark(classId, day(-3), { [a]: 'absent' }, own.admin)).toMatchObject({ marked: 1, corrected: 1 });
    expect((await refuse(classId, day(-3), { [a]: 'late', [b]: 'late' }, 409, own.admin)).message).toBe(
      `${day(-3)} is a holiday (Storm). You can only correct existing marks.`,
    );
    expect(statuses(await sheet(classId, `date=${day(-3)}`, own.admin))).toEqual([
      [a, 'absent'],
      [b, null],
    ]);
  });

  test('answers 400 for a day outside the academic year of the class', async () => {
    const own = await service.school();
    const { classId, students } = await addClass(1, own);
    await service.database.query(`update ${own.schema}.academic_year set start_date = $1`, [day(-2)]);
    await mark(classId, day(-2), all(students, 'present'), own.admin);
    for (const date of [day(-3), '1000-01-01'])
      expect(await refuse(classId, date, all(students, 'present'), 400, own.admin)).toMatchObject({
        error: 'validation_error',
        details: [{ path: 'date' }],
      });
  });

  test('lets the current class overwrite the mark of a class in which the student was not enrolled on that day', async () => {
    const [first, second] = [await addClass(0), await addClass(0)];
    const a = await addStudent(first.classId, {}, school, day(-2));
    await mark(first.classId, day(-5), { [a]: 'present' });
    await move(a, second.classId);
    expect(await mark(second.classId, day(-5), { [a]: 'late' })).toMatchObject({ marked: 1, corrected: 1 });
    expect(await storedMarks(a)).toEqual([{ date: day(-5), status: 'late', class_id: second.classId }]);
  });

  test('does not let the current class overwrite the mark of the class in which the student was enrolled on that day', async () => {
    const [past, present] = [await addClass(1), await addClass(0)];
    const [a = 0] = past.students;
    const after = await addClassTeacher(present.classId);
    await mark(past.classId, day(-5), { [a]: 'present' });
    await mark(past.classId, day(-5), { [a]: 'late' });
    await move(a, present.classId);
    await service.database.query(
      `update ${school.schema}.enrollment set ends_on = $2 where student_id = $1 and ends_on is not null`,
      [a, day(-1)],
    );
    await service.database.query(
      `update ${school.schema}.enrollment set starts_on = $2 where student_id = $1 and ends_on is null`,
      [a, day(-1)],
    );
    for (const status of ['absent', 'late'] as const) {
      const refused = await refuse(present.classId, day(-5), { [a]: status }, 409, after);
      expect([refused.error, refused.details.map((detail) => detail.path)]).toEqual([
        'conflict',
        ['records.0.student_id'],
      ]);
      const [marked] = await sheet(past.classId, `date=${day(-5)}`);
      expect(refused.message).toBe(
        `Student ${a} was in ${marked?.class_name} on ${day(-5)} and is already marked there. Correct the mark in that class.`,
      );
    }
    expect(
      (await sheet(past.classId, `date=${day(-5)}`)).map(({ status, corrections }) => [status, corrections.length]),
    ).toEqual([['late', 1]]);
    // Nobody marked them on the day before. On the day of the move, both classes may mark them.
    await mark(present.classId, day(-6), { [a]: 'absent' }, after);
    await mark(past.classId, day(-1), { [a]: 'present' });
    await mark(present.classId, day(-1), { [a]: 'absent' }, after);
    expect(await storedMarks(a)).toEqual([
      { date: day(-6), status: 'absent', class_id: present.classId },
      { date: day(-5), status: 'late', class_id: past.classId },
      { date: day(-1), status: 'absent', class_id: present.classId },
    ]);
    // Their class of that day can overwrite the mark, because they were not enrolled in the other class then.
    expect(await mark(past.classId, day(-6), { [a]: 'present' })).toMatchObject({ corrected: 1 });
    await expectTotals();
  });

  test('uses the time zone of the school to answer 400 for days in the future', async () => {
    const east = await service.school({ time_zone: 'Pacific/Kiritimati' });
    const west = await service.school({ time_zone: 'Pacific/Pago_Pago' });
    const inEast = new Date(Date.now() + 14 * 3_600_000).toISOString().slice(0, 10);
    const [early, late] = [await addClass(1, east), await addClass(1, west)];
    expect((await mark(early.classId, inEast, all(early.students, 'present'), east.admin)).marked).toBe(1);
    expect(await refuse(late.classId, inEast, all(late.students, 'present'), 400, west.admin)).toMatchObject({
      error: 'validation_error',
      details: [{ path: 'date' }],
    });
    await refuse(
      early.classId,
      new Date(Date.parse(inEast) + 86_400_000).toISOString().slice(0, 10),
      all(early.students, 'present'),
      400,
      east.admin,
    );
  });

  test.each(farZones)('requests without a date use the current date at the school in %s', async (time_zone) => {
    const own = await service.school({ time_zone });
    const there = dayIn(time_zone);
    const { classId, students } = await addClass(1, own);
    const [a = 0] = students;
    await mark(classId, there, { [a]: 'late' }, own.admin);
    const { data } = await own.admin.get<Mark[]>(`${path}/class/${classId}`);
    expect(data).toMatchObject([{ date: there, status: 'late' }]);
    expect((await own.admin.get(`${path}/my-classes`)).data).toMatchObject([
      { marked_today: 1, is_marked_today: true },
    ]);
    expect((await own.admin.get<Register>(`${path}/class/${classId}/summary`)).data.from_date).toBe(
      `${there.slice(0, 8)}01`,
    );
    expect((await own.admin.get<Day[]>(`${path}/calendar-holidays`)).data[0]?.date).toBe(`${there.slice(0, 8)}01`);
    expect(dayIn(time_zone)).toBe(there);
  });

  test('the list of a day tells whether it is a working day and a holiday', async () => {
    const own = await service.school();
    const { classId } = await addClass(1, own);
    const id = await own.insert('holiday', { name: 'Storm', date: day(-3) });
    const list = async (query: string) =>
      (await own.admin.get(`${path}/class/${classId}?${query}`)) as unknown as { day?: object };
    const weekday = (date: string) => ((new Date(date).getUTCDay() + 6) % 7) + 1;
    expect((await list(`date=${day(-3)}`)).day).toEqual({
      date: day(-3),
      is_working_day: weekday(day(-3)) < 6,
      holiday: { id, name: 'Storm' },
    });
    expect((await list('')).day).toEqual({ date: today, is_working_day: weekday(today) < 6, holiday: null });
    expect((await list(`from_date=${day(-3)}`)).day).toBeUndefined();
  });

  test('answers 422 for an unknown class', async () => {
    expect(await refuse(999_999, today, { 1: 'present' }, 422)).toMatchObject({
      error: 'invalid_reference',
      details: [{ path: 'class_id' }],
    });
  });

  test('is possible for the class of that day, and for earlier days also for the current class of the student', async () => {
    const [past, present] = [await addClass(1), await addClass(0)];
    const [a = 0] = past.students;
    await move(a, present.classId);
    expect((await mark(past.classId, day(-30), { [a]: 'late' })).marked).toBe(1);
    expect((await mark(present.classId, day(-31), { [a]: 'present' })).marked).toBe(1);
    expect(await storedMarks(a)).toEqual([
      { date: day(-31), status: 'present', class_id: present.classId },
      { date: day(-30), status: 'late', class_id: past.classId },
    ]);
    // They left the class two days ago, so it cannot mark them on the day after.
    await service.database.query(
      `update ${school.schema}.enrollment set ends_on = $2 where student_id = $1 and ends_on is not null`,
      [a, day(-2)],
    );
    await refuse(past.classId, day(-1), { [a]: 'present' }, 422);
    await mark(past.classId, day(-2), { [a]: 'present' });
  });

  test('answers 422 for a student who joined the class after that day and has left it since', async () => {
    const [past, present] = [await addClass(0), await addClass(0)];
    const student = await addStudent(past.classId, {}, school, day(-10));
    await move(student, present.classId);
    expect(await refuse(past.classId, day(-11), { [student]: 'present' }, 422)).toMatchObject({
      details: [{ path: 'records.0.student_id' }],
    });
    expect((await mark(past.classId, day(-10), { [student]: 'present' })).marked).toBe(1);
  });

  test('by a second class, after a student changed class that day, overwrites the first mark and keeps it as a correction', async () => {
    const [morning, noon] = [await addClass(2), await addClass(1)];
    const [a = 0] = morning.students;
    const [before, after] = [await addClassTeacher(morning.classId), await addClassTeacher(noon.classId)];
    await mark(morning.classId, today, all(morning.students, 'absent'), before);
    await move(a, noon.classId);
    expect(await mark(noon.classId, today, { [a]: 'absent' }, after)).toMatchObject({
      marked: 1,
      corrected: 1,
      unchanged: 0,
    });
    expect(await storedMarks(a)).toEqual([{ date: today, status: 'absent', class_id: noon.classId }]);
    const [moved] = (await sheet(noon.classId, '', after)).filter(({ student_id }) => student_id === a);
    expect(moved).toMatchObject({
      status: 'absent',
      marked_by: after.id,
      corrections: [{ status: 'absent', class_id: morning.classId }],
    });
    expect((await sheet(morning.classId, '', before)).map(({ student_id }) => student_id)).toEqual([
      morning.students[1],
    ]);
    await expectTotals();
  });

  test('with a repeated Idempotency-Key returns the first answer and does not undo a correction made in between', async () => {
    const { classId, students } = await addClass(1);
    const [a = 0] = students;
    const send = () =>
      school.admin.send<Marked>(
        'POST',
        `${path}/mark`,
        { body: body(classId, today, { [a]: 'absent' }), headers: { 'Idempotency-Key': unique('key') } },
        200,
      );
    const headers = { 'Idempotency-Key': unique('mark') };
    const first = await school.admin.send<Marked>(
      'POST',
      `${path}/mark`,
      { body: body(classId, today, { [a]: 'absent' }), headers },
      200,
    );
    await mark(classId, today, { [a]: 'late' });
    const again = await school.admin.send<Marked>(
      'POST',
      `${path}/mark`,
      { body: body(classId, today, { [a]: 'absent' }), headers },
      200,
    );
    expect(again.data).toEqual(first.data);
    expect(await storedMarks(a)).toMatchObject([{ status: 'late' }]);
    expect((await send()).data.corrected).toBe(1);
  });
});

describe('concurrent requests', () => {
  /** Locks the totals of a class, so that no mark of the class can be written until the lock is released. */
  const lockTotal = (
    classId: number,
  ) => `insert into ${school.schema}.attendance_total (class_id, marks, attended) values (${classId}, 0, 0)
    on conflict (class_id) do update set marks = attendance_total.marks`;
  const expectAllOk = (answers: Answer<Marked>[]) => {
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
  };
  // The service retries after a deadlock, so that only the statistics of the database show it.
  afterEach(async () => {
    expect(
      await service.database.query(
        'select deadlocks::integer from pg_stat_database where datname = current_database()',
      ),
    ).toEqual([{ deadlocks: 0 }]);
  });
  const send = (classId: number, marks: Record<number, Status>, records = body(classId, today, marks).records) =>
    school.admin.send<Marked>('POST', `${path}/mark`, { body: { class_id: classId, date: today, records } });

  test('that mark a class in opposite orders both succeed; the later marks count and the earlier ones become corrections', async () => {
    const { classId, students } = await addClass(30);
    const [up, down] = [
      body(classId, today, all(students, 'present')).records,
      body(classId, today, all(students, 'absent')).records.reverse(),
    ];
    const answers = await race(service.database, lockTotal(classId), 2, () => [
      send(classId, {}, up),
      send(classId, {}, down),
    ]);
    expectAllOk(answers);
    expect(answers.map(({ data }) => data.corrected).sort((a, b) => a - b)).toEqual([0, 30]);
    const last = answers.find(({ data }) => data.corrected === 30)?.data.present === 30 ? 'present' : 'absent';
    const marks = await sheet(classId);
    expect(marks.map(({ status }) => status)).toEqual(marks.map(() => last));
    for (const one of marks) {
      expect(one.corrections).toHaveLength(1);
      expect(one.corrections[0]?.status).toBe(last === 'present' ? 'absent' : 'present');
      expect(one.marked_at && one.marked_at >= (one.corrections[0]?.marked_at ?? '')).toBe(true);
    }
    await expectTotals();
  });

  test('that correct a class in opposite orders do not deadlock', async () => {
    const { classId, students } = await addClass(9);
    await mark(classId, today, all(students, 'present'));
    const [up, down] = [
      body(classId, today, all(students, 'late')).records,
      body(classId, today, all(students, 'absent')).records.reverse(),
    ];
    // Both requests run until they wait for the lock on the mark in the middle.
    const middle = `select from ${school.schema}.attendance where student_id = ${students[4] ?? 0} and date = '${today}' for update`;
    expectAllOk(await race(service.database, middle, 2, () => [send(classId, {}, up), send(classId, {}, down)]));
    expect((await sheet(classId)).map(({ corrections }) => corrections.length)).toEqual(Array(9).fill(2));
    await expectTotals();
  });

  test('with the same marks create no corrections', async () => {
    const { classId, students } = await addClass(5);
    const answers = await race(service.database, lockTotal(classId), 2, () =>
      [1, 2].map(() => send(classId, all(students, 'late'))),
    );
    expectAllOk(answers);
    expect(answers.map(({ data }) => [data.corrected, data.unchanged]).sort()).toEqual([
      [0, 0],
      [0, 5],
    ]);
  });

  test('that correct overlapping students of a class lose no mark and do not deadlock', async () => {
    const { classId, students } = await addClass(10);
    await mark(classId, today, all(students, 'present'));
    const [half, rest] = [students.slice(0, 6), students.slice(4)];
    expectAllOk(
      await race(service.database, lockTotal(classId), 2, () => [
        send(classId, all(half, 'late')),
        send(classId, all(rest, 'absent')),
      ]),
    );
    const marks = await sheet(classId, 'sort=roll_number');
    expect(marks.slice(0, 4).map(({ status }) => status)).toEqual(Array(4).fill('late'));
    expect(marks.slice(6).map(({ status }) => status)).toEqual(Array(4).fill('absent'));
    expect(marks.map(({ corrections }) => corrections.length)).toEqual([1, 1, 1, 1, 2, 2, 1, 1, 1, 1]);
    await expectTotals();
  });

  test('of two classes that swapped their students do not deadlock', async () => {
    const [one, other] = [await addClass(8), await addClass(8)];
    let [inOne, inOther] = [one.students, other.students];
    for (const locked of [one, other]) {
      await mark(one.classId, today, all(inOne, 'present'));
      await mark(other.classId, today, all(inOther, 'present'));
      [inOne, inOther] = [inOther, inOne];
      for (const student of inOne) await move(student, one.classId);
      for (const student of inOther) await move(student, other.classId);
      expectAllOk(
        await race(service.database, lockTotal(locked.classId), 2, () => [
          send(one.classId, all(inOne, 'late')),
          send(other.classId, all(inOther, 'absent')),
        ]),
      );
      expect(statuses(await sheet(one.classId))).toEqual(inOne.map((student) => [student, 'late']));
      expect(statuses(await sheet(other.classId))).toEqual(inOther.map((student) => [student, 'absent']));
      await expectTotals();
    }
  });
});

describe('the list of a class', () => {
  test('for a day shows the students enrolled on that day, whoever has joined or left since', async () => {
    const { classId, students } = await addClass(3);
    const [a = 0, b = 0, c = 0] = students;
    const newcomer = await addStudent(classId, { last_name: 'Pupil 0' }, school, day(-1));
    const elsewhere = await addClass(0);
    await mark(classId, day(-2), { [a]: 'absent' });
    await move(b, elsewhere.classId);
    await move(c, null);
    const who = async (date: string) => (await sheet(classId, `date=${date}`)).map(({ student_id }) => student_id);
    expect(await who(day(-2))).toEqual([a, b, c]);
    expect(await who(day(-1))).toEqual([newcomer, a, b, c]);
    expect(await who(today)).toEqual([newcomer, a]);
    expect((await sheet(elsewhere.classId)).map(({ student_id }) => student_id)).toEqual([b]);
    expect((await sheet(classId, `date=${day(-2)}&status=absent`)).map(({ student_id }) => student_id)).toEqual([a]);
    expect(await sheet(classId, 'date=2001-01-01')).toEqual([]);
  });

  test('for a day shows a student who completed the year on it, but not one who left on it', async () => {
    const { classId, students } = await addClass(2);
    const [a = 0, b = 0] = students;
    await move(a, null);
    await move(b, null);
    await service.database.query(`update ${school.schema}.enrollment set status = 'completed' where student_id = $1`, [
      a,
    ]);
    expect(statuses(await sheet(classId))).toEqual([[a, null]]);
  });

  test('for a day shows a student who was marked, even if they joined the class later', async () => {
    const { classId } = await addClass(0);
    const student = await addStudent(classId, {}, school, day(-1));
    expect(await sheet(classId, `date=${day(-2)}`)).toEqual([]);
    await mark(classId, day(-2), { [student]: 'late' });
    expect(statuses(await sheet(classId, `date=${day(-2)}`))).toEqual([[student, 'late']]);
  });

  test('for a range of days shows the marks by date and name, and supports search, sorting and paging', async () => {
    const { classId, students } = await addClass(3);
    const [a = 0, b = 0, c = 0] = students;
    await service.database.query(`update ${school.schema}.student set first_name = 'Quentin' where id = $1`, [b]);
    const dates = [day(-3), day(-2), day(-1)];
    for (const date of dates) await mark(classId, date, { [a]: 'present', [b]: 'late', [c]: 'absent' });
    const range = `from_date=${day(-2)}&to_date=${day(-1)}`;
    const key = ({ date, student_id }: Mark) => `${date} ${student_id}`;
    const expected = [day(-2), day(-1)].flatMap((date) => students.map((student) => `${date} ${student}`));
    expect((await sheet(classId, range)).map(key)).toEqual(expected);
    expect((await walk<Mark & { id: number }>(school.admin, `${path}/class/${classId}?${range}`, 4)).map(key)).toEqual(
      expected,
    );
    expect((await sheet(classId, `${range}&sort=student_name&order=desc`)).map(({ student_id }) => student_id)).toEqual(
      [c, c, b, b, a, a],
    );
    expect((await sheet(classId, `${range}&sort=roll_number`)).map(({ student_id }) => student_id)).toEqual([
      a,
      a,
      b,
      b,
      c,
      c,
    ]);
    expect((await sheet(classId, `${range}&sort=status`)).map(({ status }) => status)).toEqual([
      'absent',
      'absent',
      'late',
      'late',
      'present',
      'present',
    ]);
    expect((await sheet(classId, `${range}&search=quentin`)).map(({ student_id }) => student_id)).toEqual([b, b]);
    expect((await sheet(classId, `from_date=${day(-1)}`)).map(key)).toEqual(
      students.map((student) => `${day(-1)} ${student}`),
    );
    expect((await sheet(classId, `to_date=${day(-3)}`)).map(key)).toEqual(
      students.map((student) => `${day(-3)} ${student}`),
    );
    expect(
      (await school.admin.get(`${path}/class/${classId}?pageSize=2&sort=student_name&date=${day(-1)}`)).pagination,
    ).toEqual({
      page: 1,
      pageSize: 2,
      totalItems: 3,
      totalPages: 2,
    });
  });

  test('still shows its former teacher the names and marks of students who have moved to another class', async () => {
    const { classId, students } = await addClass(2);
    const teacher = await addClassTeacher(classId);
    await mark(classId, day(-1), all(students, 'late'), teacher);
    const before = await sheet(classId, `date=${day(-1)}`, teacher);
    const next = await addClass(0);
    for (const student of students) await move(student, next.classId);
    expect(await sheet(classId, `date=${day(-1)}`, teacher)).toEqual(before);
    expect(
      (await teacher.get<Register>(`${path}/class/${classId}/summary?from_date=${day(-1)}&to_date=${day(-1)}`)).data
        .students,
    ).toHaveLength(2);
    // The former teacher can read only the marks of the class.
    await teacher.get(`/api/students/${students[0] ?? 0}`, 404);
    await teacher.get(`${path}/student/${students[0] ?? 0}`, 404);
  });

  test.each([
    [`date=${today}&from_date=${today}`, 'date'],
    ['from_date=2026-01-01&to_date=2027-01-02', 'to_date'],
    ['from_date=2026-01-02&to_date=2026-01-01', 'to_date'],
    ['date=yesterday', 'date'],
    ['sort=id', 'sort'],
    ['status=excused', 'status'],
  ])('%s is a 400 that names the parameter', async (query, parameter) => {
    expect((await school.admin.get(`${path}/class/1?${query}`, 400)).details.map((detail) => detail.path)).toEqual([
      parameter,
    ]);
  });

  test('answers 404 for an unknown class', async () => {
    await school.admin.get(`${path}/class/999999`, 404);
    await school.admin.get(`${path}/class/999999/summary`, 404);
  });
});

describe('the register of a class', () => {
  test('has the marks of every student, and counts per student and per day', async () => {
    const { classId, students } = await addClass(3);
    const [a = 0, b = 0, c = 0] = students;
    await mark(classId, day(-2), { [a]: 'present', [b]: 'absent' });
    await mark(classId, day(-1), { [a]: 'late', [b]: 'absent' });
    const { data } = await school.admin.get<Register>(
      `${path}/class/${classId}/summary?from_date=${day(-5)}&to_date=${today}`,
    );
    expect(data).toMatchObject({
      class_id: classId,
      from_date: day(-5),
      to_date: today,
      summary: { present: 1, absent: 2, late: 1, total: 4, attendance_rate: 50 },
    });
    expect(data.days).toEqual([
      { date: day(-2), present: 1, absent: 1, late: 0, total: 2 },
      { date: day(-1), present: 0, absent: 1, late: 1, total: 2 },
    ]);
    expect(data.students).toMatchObject([
      {
        student_id: a,
        present: 1,
        absent: 0,
        late: 1,
        total: 2,
        attendance_rate: 100,
        marks: [
          { date: day(-2), status: 'present' },
          { date: day(-1), status: 'late' },
        ],
      },
      { student_id: b, present: 0, absent: 2, late: 0, total: 2, attendance_rate: 0 },
      { student_id: c, present: 0, absent: 0, late: 0, total: 0, attendance_rate: null, marks: [] },
    ]);
  });

  test('rounds attendance rates to two decimals, as for a student, and counts late as attended', async () => {
    const { classId, students } = await addClass(1);
    const [a = 0] = students;
    for (const [n, status] of (['late', 'absent', 'absent'] as const).entries())
      await mark(classId, day(-n), { [a]: status });
    const days = `from_date=${day(-5)}&to_date=${today}`;
    const { data } = await school.admin.get<Register>(`${path}/class/${classId}/summary?${days}`);
    expect([data.summary.attendance_rate, data.students[0]?.attendance_rate]).toEqual([33.33, 33.33]);
    expect((await school.admin.get<OfStudent>(`${path}/student/${a}?${days}`)).data.summary.attendance_rate).toBe(
      33.33,
    );
    await mark(classId, day(-1), { [a]: 'present' });
    expect(
      (await school.admin.get<Register>(`${path}/class/${classId}/summary?${days}`)).data.students[0]?.attendance_rate,
    ).toBe(66.67);
  });

  test('lists by name the students enrolled on one of the days, without those who left before', async () => {
    const { classId } = await addClass(0);
    const add = (last_name: string, first_name: string) => addStudent(classId, { last_name, first_name });
    const [quill, abel, adam, gone] = [
      await add('Quill', 'Zoë'),
      await add('Ábel', 'Ben'),
      await add('abel', 'Ann'),
      await add('Aaron', 'Al'),
    ];
    await move(gone, null);
    await move(quill, null);
    await service.database.query(`update ${school.schema}.enrollment set ends_on = $2 where student_id = $1`, [
      gone,
      day(-3),
    ]);
    const { data } = await school.admin.get<Register>(
      `${path}/class/${classId}/summary?from_date=${day(-2)}&to_date=${today}`,
    );
    expect(data.students.map(({ student_id }) => student_id)).toEqual([adam, abel, quill]);
  });

  test('covers the current month by default, and is empty for a class without students', async () => {
    const { classId } = await addClass(0);
    const { data } = await school.admin.get<Register>(`${path}/class/${classId}/summary`);
    const last = new Date(Date.UTC(thisYear, Number(today.slice(5, 7)), 0)).toISOString().slice(0, 10);
    expect(data).toMatchObject({
      from_date: `${today.slice(0, 8)}01`,
      to_date: last,
      days: [],
      students: [],
      summary: { total: 0, attendance_rate: null },
    });
  });
});

describe('the attendance of a student', () => {
  let student: number;
  let classId: number;
  let past: { year: number; classId: number };

  /** The current and the previous academic year, relative to today. */
  const [begin, end, pastBegin, pastEnd] = [day(-60), day(200), day(-420), day(-61)] as const;
  const [one, next] = [day(-200), day(-199)] as const;

  beforeAll(async () => {
    ({ classId } = await addClass(0));
    await service.database.query(
      `update ${school.schema}.academic_year set start_date = $1, end_date = $2 where is_current`,
      [begin, end],
    );
    student = await addStudent(classId, { first_name: 'Zoë', last_name: 'Quill' });
    const year = await school.insert('academic_year', { name: 'Before', start_date: pastBegin, end_date: pastEnd });
    const [grade] = await service.database.query<{ id: number }>(
      `select id::integer from ${school.schema}.grade limit 1`,
    );
    const pastClass = await school.insert('class', {
      name: 'Past',
      section: 'B',
      grade_id: grade?.id,
      academic_year_id: year,
    });
    past = { year, classId: pastClass };
    await school.insert('enrollment', {
      student_id: student,
      class_id: pastClass,
      academic_year_id: year,
      starts_on: pastBegin,
      ends_on: pastEnd,
      status: 'completed',
    });
    await mark(pastClass, one, { [student]: 'absent' });
    await mark(pastClass, next, { [student]: 'present' });
    await mark(classId, begin, { [student]: 'late' });
    await mark(classId, today, { [student]: 'absent' });
    await mark(classId, today, { [student]: 'present' });
  });
  const read = async (query = '') => (await school.admin.get<OfStudent>(`${path}/student/${student}?${query}`)).data;

  test('covers the current academic year by default, by date, with counts and corrections', async () => {
    const data = await read();
    expect(data).toMatchObject({ student_id: student, student_name: 'Zoë Quill', from_date: begin, to_date: end });
    expect(data.summary).toEqual({ present: 1, absent: 0, late: 1, total: 2, attendance_rate: 100 });
    expect(data.records).toMatchObject([
      { date: begin, status: 'late', class_id: classId, corrections: [] },
      { date: today, status: 'present', class_id: classId, corrections: [{ status: 'absent' }] },
    ]);
  });

  test('covers the days of academic_year_id, from_date and to_date, which narrow each other', async () => {
    const dates = async (query: string) => (await read(query)).records.map(({ date }) => date);
    expect(await dates(`academic_year_id=${past.year}`)).toEqual([one, next]);
    expect((await read(`academic_year_id=${past.year}`)).summary).toEqual({
      present: 1,
      absent: 1,
      late: 0,
      total: 2,
      attendance_rate: 50,
    });
    expect((await read(`academic_year_id=${past.year}`)).records[0]).toMatchObject({
      class_id: past.classId,
      class_name: 'Past B',
    });
    expect(await dates(`academic_year_id=${past.year}&from_date=${next}`)).toEqual([next]);
    expect(await dates(`academic_year_id=${past.year}&to_date=${one}`)).toEqual([one]);
    expect(await dates(`academic_year_id=${past.year}&from_date=${begin}`)).toEqual([]);
    expect(await dates(`from_date=${next}&to_date=${begin}`)).toEqual([next, begin]);
    expect(await read(`from_date=${next}`)).toMatchObject({ from_date: next, summary: { late: 1 } });
    expect(await read(`to_date=${one}`)).toMatchObject({ to_date: one, summary: { total: 1 } });
    await school.admin.get(`${path}/student/${student}?academic_year_id=999999`, 404);
    await school.admin.get(`${path}/student/999999`, 404);
  });

  test.each([
    ['from_date=2026-01-01&to_date=2027-01-02', 'to_date'],
    ['from_date=2026-01-02&to_date=2026-01-01', 'to_date'],
    ['academic_year_id=last', 'academic_year_id'],
  ])('%s is a 400 that names the parameter', async (query, parameter) => {
    expect((await school.admin.get(`${path}/student/1?${query}`, 400)).details.map((detail) => detail.path)).toEqual([
      parameter,
    ]);
  });

  test('can be read by the student, including marks of a class that they left, but by no other student', async () => {
    const pupil = await school.user(['student']);
    const [own, other] = [await addClass(2), await addClass(0)];
    const [a = 0, b = 0] = own.students;
    await service.database.query(`update ${school.schema}.student set user_id = $2 where id = $1`, [a, pupil.id]);
    const again = await service.anonymous.login({
      tenant_id: school.id,
      email: pupil.email,
      password: 'test-password',
    });
    await mark(own.classId, today, all(own.students, 'late'));
    await move(a, other.classId);
    const { data } = await again.get<OfStudent>(`${path}/me`);
    expect(data).toMatchObject({ student_id: a, records: [{ date: today, status: 'late', class_id: own.classId }] });
    expect(data.records[0]?.class_name).toContain('Class');
    expect((await again.get<OfStudent>(`${path}/student/${a}`)).data).toEqual(data);
    await again.get(`${path}/student/${b}`, 404);
    await again.get(`${path}/class/${own.classId}`, 403);
    await again.post(`${path}/mark`, body(other.classId, today, { [a]: 'present' }), 403);
    expect((await again.get<unknown[]>(`${path}/my-classes`)).data).toEqual([]);
    const { data: days } = await again.get<Day[]>(`${path}/calendar-holidays?from_date=${today}&to_date=${today}`);
    expect(days).toMatchObject([{ date: today, status: 'late', counts: null }]);
  });

  test('/me answers 404 for a student role without a linked student, and 403 without the role', async () => {
    await (await school.user(['student'])).get(`${path}/me`, 404);
    await school.admin.get(`${path}/me`, 403);
  });
});

describe('permissions', () => {
  test('a teacher marks and reads the classes that they teach; other classes do not exist for them', async () => {
    const [own, other] = [await addClass(1), await addClass(1)];
    const teacher = await addClassTeacher(own.classId);
    expect((await mark(own.classId, today, all(own.students, 'present'), teacher)).marked).toBe(1);
    expect(await refuse(other.classId, today, all(other.students, 'present'), 422, teacher)).toMatchObject({
      error: 'invalid_reference',
      details: [{ path: 'class_id', message: `There is no class ${other.classId}.` }],
    });
    expect(await refuse(own.classId, today, all(other.students, 'present'), 422, teacher)).toMatchObject({
      details: [{ path: 'records.0.student_id' }],
    });
    for (const what of [
      `class/${other.classId}`,
      `class/${other.classId}/summary`,
      `student/${other.students[0] ?? 0}`,
    ])
      await teacher.get(`${path}/${what}`, 404);
    expect((await teacher.get<OfStudent>(`${path}/student/${own.students[0] ?? 0}`)).data.summary.total).toBe(1);
  });

  test('attendance.mark alone allows marking only taught classes; with attendance.manage, any class', async () => {
    const [own, other] = [await addClass(1), await addClass(1)];
    const marker = await addClassTeacher(own.classId, [await school.role('attendance.mark')]);
    expect((await mark(own.classId, today, all(own.students, 'present'), marker)).marked).toBe(1);
    expect((await refuse(other.classId, today, all(other.students, 'present'), 403, marker)).error).toBe('forbidden');
    const manager = await school.user([await school.role('attendance.mark', 'attendance.manage')]);
    expect((await mark(other.classId, today, all(other.students, 'late'), manager)).marked).toBe(1);
    const both = await addClassTeacher((await addClass(0)).classId, [
      'teacher',
      await school.role('attendance.manage'),
    ]);
    expect((await mark(other.classId, today, all(other.students, 'absent'), both)).corrected).toBe(1);
    await refuse(
      own.classId,
      today,
      all(own.students, 'absent'),
      403,
      await school.user([await school.role('attendance.manage')]),
    );
  });

  test('attendance.manage in the role teacher is limited to the classes that they teach', async () => {
    const at = await service.school();
    const [own, other] = [await addClass(1, at), await addClass(1, at)];
    const { email } = await addClassTeacher(own.classId, ['teacher'], at);
    await service.database.query(
      `insert into ${at.schema}.role_permission (role_id, permission_id) select r.id, p.id from ${at.schema}.role r, core.permission p where r.name = 'teacher' and p.name = 'attendance.manage'`,
    );
    const teacher = await service.anonymous.login({ tenant_id: at.id, email, password: 'test-password' });
    expect((await mark(own.classId, today, all(own.students, 'present'), teacher)).marked).toBe(1);
    expect((await refuse(other.classId, today, all(other.students, 'present'), 422, teacher)).error).toBe(
      'invalid_reference',
    );
    expect(
      (await teacher.get<{ class_id: number }[]>(`${path}/my-classes`)).data.map(({ class_id }) => class_id),
    ).toEqual([own.classId]);
  });

  test('my-classes is empty without attendance.mark, whatever other permissions the user has', async () => {
    await addClass(1);
    expect(
      (await (await school.user([await school.role('attendance.manage', 'attendance.read')])).get(`${path}/my-classes`))
        .data,
    ).toEqual([]);
  });

  test('my-classes is sorted by the sequence of the grades, then by class', async () => {
    const own = await service.school();
    const made = [];
    for (const [name, sequence] of [
      ['B', 2],
      ['a', 2],
      ['C', 1],
    ] as const) {
      // prettier-ignore
      const { classId, gradeId } = await own.classroom(name);
      await service.database.query(`update ${own.schema}.grade set sequence = $2, name = $3 where id = $1`, [
        gradeId,
        sequence,
        `${name} of ${sequence}`,
      ]);
      made.push(classId);
    }
    const [b, a, c] = made;
    expect(
      (await own.admin.get<{ class_id: number }[]>(`${path}/my-classes`)).data.map(({ class_id }) => class_id),
    ).toEqual([c, a, b]);
  });

  test('my-classes lists the classes that the user can mark, with their marks of today', async () => {
    const own = await service.school();
    const [one, two] = [await addClass(2, own), await addClass(1, own)];
    await own.insert('academic_year', { name: 'Old', start_date: '2001-01-01', end_date: '2001-12-31' });
    await service.database.query(
      `insert into ${own.schema}.class (name, grade_id, academic_year_id) select 'Old', grade_id, (select id from ${own.schema}.academic_year where name = 'Old') from ${own.schema}.class limit 1`,
    );
    const teacher = await addClassTeacher(one.classId, ['teacher'], own);
    const list = async (who: Client, query = '') =>
      (await who.get<{ class_id: number }[]>(`${path}/my-classes?${query}`)).data;
    await mark(one.classId, today, { [one.students[0] ?? 0]: 'late' }, own.admin);
    await mark(two.classId, today, all(two.students, 'absent'), own.admin);
    expect(await list(teacher)).toMatchObject([
      { class_id: one.classId, student_count: 2, marked_today: 1, is_marked_today: false },
    ]);
    expect(await list(own.admin, 'sort=class_name&order=desc')).toMatchObject([
      { class_id: two.classId, student_count: 1, marked_today: 1, is_marked_today: true },
      { class_id: one.classId },
    ]);
    const [row] = await list(own.admin, 'pageSize=1&page=2');
    expect(row?.class_id).toBe(two.classId);
    // The marked student leaves the class. The other one is not marked yet.
    await own.admin.put(`/api/students/${one.students[0] ?? 0}`, { class_id: two.classId });
    expect(await list(teacher)).toMatchObject([
      { class_id: one.classId, student_count: 1, marked_today: 1, is_marked_today: false },
    ]);
    await mark(one.classId, today, { [one.students[1] ?? 0]: 'present' }, own.admin);
    expect(await list(own.admin)).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ class_id: one.classId, student_count: 1, marked_today: 2, is_marked_today: true }),
        expect.objectContaining({ class_id: two.classId, student_count: 2, marked_today: 1, is_marked_today: false }),
      ]),
    );
    await service.database.query(`update ${own.schema}.grade set sequence = 100 - id`);
    expect((await list(own.admin, 'sort=class_name')).map(({ class_id }) => class_id)).toEqual([
      two.classId,
      one.classId,
    ]);
    expect(await list(await own.user(['accountant']))).toEqual([]);
    expect(await list(await own.user(['teacher']))).toEqual([]);
  });

  test('without the feature attendance every attendance endpoint answers 403, but holidays do not', async () => {
    const own = await service.school({ feature_flags: { attendance: false } });
    for (const what of ['my-classes', 'calendar-holidays', 'class/1', 'class/1/summary', 'student/1']) {
      expect((await own.admin.get(`${path}/${what}`, 403)).error).toBe('feature_disabled');
    }
    expect((await refuse(1, today, { 1: 'present' }, 403, own.admin)).error).toBe('feature_disabled');
    await own.admin.get('/api/holidays', 200);
  });
});

describe('the calendar', () => {
  let own: School;
  let taught: { classId: number; students: number[] };
  let other: { classId: number; students: number[] };
  const calendar = async (who: Client, query: string) =>
    (await who.get<Day[]>(`${path}/calendar-holidays?${query}`)).data;

  beforeAll(async () => {
    own = await service.school();
    [taught, other] = [await addClass(3, own), await addClass(2, own)];
    const [a = 0, b = 0, c = 0] = taught.students;
    await mark(taught.classId, '2026-03-02', { [a]: 'present', [b]: 'absent', [c]: 'late' }, own.admin);
    await mark(other.classId, '2026-03-02', all(other.students, 'present'), own.admin);
    await own.admin.post('/api/holidays', { name: 'Spring', date: '2026-03-03' }, 201);
    await own.admin.post('/api/holidays', { name: 'Leap', date: '2024-02-29', is_recurring: true }, 201);
    await own.admin.post('/api/holidays', { name: 'Dance', date: '2026-03-03' }, 201);
  });

  test('has one row per day with the day of the week, its holidays, and counts of the whole school for an admin', async () => {
    const days = await calendar(own.admin, 'from_date=2026-02-28&to_date=2026-03-03');
    expect(days).toMatchObject([
      {
        date: '2026-02-28',
        day_of_week: 6,
        is_working_day: false,
        holiday: { name: 'Leap' },
        status: null,
        counts: { present: 0, absent: 0, late: 0 },
      },
      { date: '2026-03-01', day_of_week: 7, is_working_day: false, holiday: null },
      {
        date: '2026-03-02',
        day_of_week: 1,
        is_working_day: true,
        holiday: null,
        counts: { present: 3, absent: 1, late: 1 },
      },
      { date: '2026-03-03', day_of_week: 2, is_working_day: true, holiday: { name: 'Spring, Dance' } },
    ]);
    expect(days).toHaveLength(4);
  });

  test('counts only the classes that a teacher teaches, even with a second role, and nothing without attendance.read', async () => {
    const teacher = await addClassTeacher(taught.classId, ['teacher', 'accountant'], own);
    const query = 'from_date=2026-03-02&to_date=2026-03-02';
    expect(await calendar(teacher, query)).toMatchObject([{ counts: { present: 1, absent: 1, late: 1 } }]);
    expect(await calendar(await own.user(['accountant']), query)).toMatchObject([{ counts: null, status: null }]);
  });

  test('shows the marks of a student to an admin, to the teacher of their class and to the student, else answers 404', async () => {
    const day = (studentId: number) => `from_date=2026-03-02&to_date=2026-03-02&student_id=${studentId}`;
    const [b = 0, c = 0, far = 0] = [taught.students[1], taught.students[2], other.students[0]];
    const statusOf = async (who: Client, studentId: number) =>
      (await calendar(who, day(studentId))).map(({ status }) => status);
    expect([await statusOf(own.admin, b), await statusOf(own.admin, c), await statusOf(own.admin, far)]).toEqual([
      ['absent'],
      ['late'],
      ['present'],
    ]);
    const teacher = await addClassTeacher(taught.classId, ['teacher', 'accountant'], own);
    expect(await statusOf(teacher, b)).toEqual(['absent']);
    const student = await own.user(['student']);
    await service.database.query(`update ${own.schema}.student set user_id = $1 where id = $2`, [student.id, b]);
    const self = await service.anonymous.login({
      subdomain: own.subdomain,
      email: student.email,
      password: 'test-password',
    });
    expect(await statusOf(self, b)).toEqual(['absent']);
    for (const [who, asked] of [
      [teacher, far],
      [self, c],
      [await own.user(['accountant']), b],
      [own.admin, 999_999],
    ] as const) {
      // prettier-ignore
      expect((await who.get(`${path}/calendar-holidays?${day(asked)}`, 404)).error).toBe('not_found');
    }
    // A teacher does not see marks that a new student got in a class of another teacher.
    await own.admin.put(`/api/students/${far}`, { class_id: taught.classId });
    expect([await statusOf(teacher, far), await statusOf(own.admin, far)]).toEqual([[null], ['present']]);
    expect((await own.admin.get(`${path}/calendar-holidays?student_id=x`, 400)).details).toMatchObject([
      { path: 'student_id' },
    ]);
  });

  test('covers the current month by default, and the month of a single from_date or to_date', async () => {
    const month = async (query: string) => {
      const days = await calendar(own.admin, query);
      return [days[0]?.date, days.at(-1)?.date];
    };
    expect((await month(''))[0]).toBe(`${today.slice(0, 8)}01`);
    expect(await month('from_date=2026-02-10')).toEqual(['2026-02-10', '2026-02-28']);
    expect(await month('to_date=2026-02-10')).toEqual(['2026-02-01', '2026-02-10']);
    expect(await calendar(own.admin, 'from_date=2024-01-01&to_date=2024-12-31')).toHaveLength(366);
    for (const query of ['from_date=2026-01-01&to_date=2027-01-02', 'from_date=2026-01-02&to_date=2026-01-01']) {
      expect((await own.admin.get(`${path}/calendar-holidays?${query}`, 400)).details).toMatchObject([
        { path: 'to_date' },
      ]);
    }
  });
});
