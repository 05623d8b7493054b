import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { walk } from '../support/client/pages.ts';
import {
  attendanceHelpers,
  type Day,
  type Mark,
  type OfStudent,
  type Register,
  path,
  today,
  thisYear,
  day,
} from '../support/fixtures/attendance.ts';
import { steadyDay } from '../support/fixtures/days.ts';
import { type School, serviceWithSchool } from '../support/server/service.ts';

await steadyDay();
const { service, school } = await serviceWithSchool();
const { addClass, addStudent, move, addClassTeacher, body, all, mark, sheet, statuses } = attendanceHelpers(
  service,
  school,
);

describe('the list of a class', () => {
  test('for a day shows the students enrolled on that day, regardless of later changes', async () => {
    const { classId, students } = await addClass(3);
    const [a = 0, b = 0, c = 0] = students;
    const newcomer = await addStudent(classId, { last_name: 'Pupil 0' }, school, day(-1));
    const elsewhere = await addClass(0);
    await mark(classId, day(-2), { [a]: 'absent' });
    await move(b, elsewhere.classId);
    await move(c, null);
    const studentIds = async (date: string) =>
      (await sheet(classId, `date=${date}`)).map(({ student_id }) => student_id);
    expect(await studentIds(day(-2))).toEqual([a, b, c]);
    expect(await studentIds(day(-1))).toEqual([newcomer, a, b, c]);
    expect(await studentIds(today)).toEqual([newcomer, a]);
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
    ['from_date=2026-01-01&to_date=2027-01-02', 'to_date'],
    ['from_date=2026-01-02&to_date=2026-01-01', 'to_date'],
    ['date=yesterday', 'date'],
    ['sort=ids', 'sort'],
    ['status=excused', 'status'],
  ])('%s is a 400 that names the parameter', async (query, parameter) => {
    expect((await school.admin.get(`${path}/class/1?${query}`, 400)).details.map((detail) => detail.path)).toEqual([
      parameter,
    ]);
  });

  test('takes a date together with from_date and to_date: the marks of that day within the range', async () => {
    const { classId, students } = await addClass(1);
    await mark(classId, today, { [students[0] ?? 0]: 'present' });
    const dates = async (query: string) => (await sheet(classId, query)).map(({ date }) => date);
    expect(await dates(`date=${today}&from_date=${day(-1)}&to_date=${today}`)).toEqual([today]);
    expect(await dates(`date=${today}&to_date=${day(-1)}`)).toEqual([]);
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
      { date: day(-2), present: 1, absent: 1, late: 0, excused: 0, total: 2 },
      { date: day(-1), present: 0, absent: 1, late: 1, excused: 0, total: 2 },
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
    const rates = { attendance_rate: 100, attendance_rate_without_excused: 100 };
    expect(data.summary).toEqual({ present: 1, absent: 0, late: 1, excused: 0, total: 2, ...rates });
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
      excused: 0,
      total: 2,
      attendance_rate: 50,
      attendance_rate_without_excused: 50,
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
    await again.get(`${path}/class/${own.classId}`, 404);
    const rows = await again.get<{ student_id: number }[]>(`${path}/class/${other.classId}`);
    expect(rows.data.map(({ student_id }) => student_id)).toEqual([a]);
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

describe('the calendar', () => {
  let own: School;
  let taught: { classId: number; students: number[] };
  let other: { classId: number; students: number[] };
  const calendar = async (client: Client, query: string) =>
    (await client.get<Day[]>(`${path}/calendar-holidays?${query}`)).data;

  beforeAll(async () => {
    own = await service.school();
    [taught, other] = [await addClass(3, own), await addClass(2, own)];
    // The dates of these tests, in whichever year they run.
    await service.database.query(
      `update ${own.schema}.academic_year set start_date = '2026-01-01', end_date = '2026-12-31' where is_current`,
    );
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
    const statusOf = async (client: Client, studentId: number) =>
      (await calendar(client, day(studentId))).map(({ status }) => status);
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
    for (const [user, asked] of [
      [teacher, far],
      [self, c],
      [await own.user(['accountant']), b],
      [own.admin, 999_999],
    ] as const) {
      // prettier-ignore
      expect((await user.get(`${path}/calendar-holidays?${day(asked)}`, 404)).error).toBe('not_found');
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
    const leap = await own.admin.get<{ date: string }[]>(
      `${path}/calendar-holidays?from_date=2024-01-01&to_date=2024-12-31&page=4`,
    );
    expect(leap.pagination).toEqual({ page: 4, pageSize: 100, totalItems: 366, totalPages: 4 });
    expect(leap.data.at(-1)?.date).toBe('2024-12-31');
    for (const query of ['from_date=2026-01-01&to_date=2027-01-02', 'from_date=2026-01-02&to_date=2026-01-01']) {
      expect((await own.admin.get(`${path}/calendar-holidays?${query}`, 400)).details).toMatchObject([
        { path: 'to_date' },
      ]);
    }
  });
});
