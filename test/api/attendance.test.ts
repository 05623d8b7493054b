import { afterEach, describe, expect, test } from '@jest/globals';
import type { Answer, Client } from '../support/client/client.ts';
import { race } from '../support/client/race.ts';
import {
  attendanceHelpers,
  type Day,
  type Mark,
  type Marked,
  type OfStudent,
  type Register,
  type Status,
  path,
  today,
  day,
} from '../support/fixtures/attendance.ts';
import { dayIn, farZones, steadyDay } from '../support/fixtures/days.ts';
import { serviceWithSchool, unique } from '../support/server/service.ts';

await steadyDay();
const { service, school } = await serviceWithSchool({}, 13);
const {
  addClass,
  addStudent,
  move,
  addClassTeacher,
  body,
  all,
  mark,
  refuse,
  sheet,
  statuses,
  storedMarks,
  expectTotals,
} = attendanceHelpers(service, school);

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
    expect(
      (await refuse(one.classId, today, all(strangers, 'present'), 422)).details.map((detail) => detail.path),
    ).toEqual(Array.from({ length: 10 }, (_, n) => `records.${n}.student_id`));
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
    ['a record with an unknown field', { records: [{ student_id: 1, status: 'late', bus: '7' }] }, 'records.0.bus'],
    [
      '501 records',
      { records: Array.from({ length: 501 }, (_, n) => ({ student_id: n + 1, status: 'present' })) },
      'records',
    ],
    ['a date that does not exist', { date: '2026-02-30' }, 'date'],
    ['a class id that is not a number', { class_id: 'one' }, 'class_id'],
  ])('%s is a 400 that names the field', async (_case, fields, field) => {
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

  test('on a holiday, a mark in another class does not allow a new mark in this one', async () => {
    const own = await service.school();
    const [first, second] = [await addClass(0, own), await addClass(0, own)];
    const student = await addStudent(first.classId, {}, own, day(-2));
    await mark(first.classId, day(-5), { [student]: 'present' }, own.admin);
    await own.insert('holiday', { name: 'Storm', date: day(-5) });
    await move(student, second.classId, own);
    const { message } = await refuse(second.classId, day(-5), { [student]: 'late' }, 409, own.admin);
    expect(message).toBe(`${day(-5)} is a holiday (Storm). You can only correct existing marks.`);
    expect(
      await service.database.query(
        `select class_id::integer, status from ${own.schema}.attendance where student_id = $1`,
        [student],
      ),
    ).toEqual([{ class_id: first.classId, status: 'present' }]);
  });

  test('is idempotent also for a student with earlier marks in another class', async () => {
    const [first, second] = [await addClass(1), await addClass(0)];
    const [a = 0] = first.students;
    await mark(first.classId, day(-5), { [a]: 'present' });
    await move(a, second.classId);
    for (const unchanged of [0, 1])
      expect(await mark(second.classId, today, { [a]: 'late' })).toMatchObject({ marked: 1, unchanged });
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

  /** Moves a student, who then has left the previous class and joined the new one yesterday. */
  async function moveYesterday(student: number, classId: number): Promise<void> {
    await move(student, classId);
    await service.database.query(
      `update ${school.schema}.enrollment
       set ends_on = case when ends_on is not null then $2::date end,
         starts_on = case when ends_on is null then $2::date else starts_on end
       where student_id = $1`,
      [student, day(-1)],
    );
  }

  test('writes no record if one of them belongs to the class in which the student was enrolled on that day', async () => {
    const [past, present] = [await addClass(1), await addClass(1)];
    const [a = 0, b = 0] = [...past.students, ...present.students];
    await mark(past.classId, day(-5), { [a]: 'present' });
    await moveYesterday(a, present.classId);
    expect(await refuse(present.classId, day(-5), { [a]: 'absent', [b]: 'absent' }, 409)).toMatchObject({
      error: 'conflict',
      details: [{ path: 'records.0.student_id' }],
    });
    expect(await storedMarks(a)).toEqual([{ date: day(-5), status: 'present', class_id: past.classId }]);
    expect(await storedMarks(b)).toEqual([]);
  });

  test('does not let the current class overwrite the mark of the class in which the student was enrolled on that day', async () => {
    const [past, present] = [await addClass(1), await addClass(0)];
    const [a = 0] = past.students;
    const after = await addClassTeacher(present.classId);
    await mark(past.classId, day(-5), { [a]: 'present' });
    await mark(past.classId, day(-5), { [a]: 'late' });
    await moveYesterday(a, present.classId);
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

  test('the list of a day shows whether it is a working day and a holiday', async () => {
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

  test('in a second class, after the student changed class on that day, overwrites the first mark and keeps it as a correction', async () => {
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

  test('to mark a class in opposite orders both succeed; the later marks count and the earlier ones become corrections', async () => {
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

  test('to correct a class in opposite orders do not deadlock', async () => {
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

  test('to correct one mark: the one that waited is not older than the mark that it corrects', async () => {
    const { classId, students } = await addClass(1);
    await mark(classId, today, all(students, 'present'));
    const other = `update ${school.schema}.attendance set status = 'late', marked_at = now() + interval '1 minute'
      where class_id = ${classId}`;
    expectAllOk(await race(service.database, other, 1, () => [send(classId, all(students, 'absent'))]));
    const [one] = await sheet(classId);
    expect(one?.status).toBe('absent');
    expect(one?.corrections.map(({ status }) => status)).toEqual(['present', 'late']);
    expect(one?.marked_at).toBe(one?.corrections[1]?.marked_at);
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

  test('to correct overlapping students of a class lose no mark and do not deadlock', async () => {
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

  test('to mark two classes that swapped their students do not deadlock', async () => {
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
    for (const subpath of [
      `class/${other.classId}`,
      `class/${other.classId}/summary`,
      `student/${other.students[0] ?? 0}`,
    ])
      await teacher.get(`${path}/${subpath}`, 404);
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
    const { email } = await addClassTeacher(own.classId, ['teacher', await at.role('api_key.manage')], at);
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
    // Nor does an API key of the teacher reach further.
    const permissions = ['attendance.mark', 'attendance.manage'];
    const { data } = await teacher.post<{ key: string }>('/api/api-keys', { name: 'Register', permissions }, 201);
    const program = service.anonymous.with({ Authorization: `Bearer ${data.key}` });
    expect((await mark(own.classId, today, all(own.students, 'late'), program)).corrected).toBe(1);
    await refuse(other.classId, today, all(other.students, 'present'), 422, program);
  });

  test('my-classes is empty without attendance.mark, even for a user with other permissions', async () => {
    await addClass(1);
    expect(
      (await (await school.user([await school.role('attendance.manage', 'attendance.read')])).get(`${path}/my-classes`))
        .data,
    ).toEqual([]);
  });

  test('my-classes is sorted by the sequence of the grades, then by class', async () => {
    const own = await service.school();
    const created = [];
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
      created.push(classId);
    }
    const [b, a, c] = created;
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
    const list = async (client: Client, query = '') =>
      (await client.get<{ class_id: number }[]>(`${path}/my-classes?${query}`)).data;
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
    for (const subpath of ['my-classes', 'calendar-holidays', 'class/1', 'class/1/summary', 'student/1']) {
      expect((await own.admin.get(`${path}/${subpath}`, 403)).error).toBe('feature_disabled');
    }
    expect((await refuse(1, today, { 1: 'present' }, 403, own.admin)).error).toBe('feature_disabled');
    await own.admin.get('/api/holidays', 200);
  });
});
