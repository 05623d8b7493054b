import { describe, expect, test } from '@jest/globals';
import {
  attendanceHelpers,
  type Day,
  type OfStudent,
  path,
  type Register,
  today,
} from '../support/fixtures/attendance.ts';
import { steadyDay } from '../support/fixtures/days.ts';
import { serviceWithSchool } from '../support/server/service.ts';

await steadyDay();
const { service, school } = await serviceWithSchool({}, 5);
const { addClass, addClassTeacher, markRecords, excuses, sheet, expectTotals } = attendanceHelpers(service, school);

const student = async (id: number) => (await school.admin.get<OfStudent>(`${path}/student/${id}?pageSize=100`)).data;

/** The number of emails to a parent, sent or to be sent. */
async function emailsTo(parent: string): Promise<number> {
  await service.settled();
  const rows = await service.database.query(
    `select from ${school.schema}.notification_delivery where channel = 'email' and address = $1`,
    [parent],
  );
  return rows.length;
}

describe('an excused mark', () => {
  test('is in the sheet, the register, the marks of the student, the calendar and the counts, apart from others', async () => {
    const { classId, students } = await addClass(4);
    const [a = 0, b = 0, c = 0, d = 0] = students;
    await markRecords(classId, today, [
      { student_id: a, status: 'absent', is_excused: true, note: 'Fever' },
      { student_id: b, status: 'absent' },
      { student_id: c, status: 'late', is_excused: true },
      { student_id: d, status: 'present', note: 'Forgot the books' },
    ]);
    expect(await excuses(classId)).toEqual([
      ['absent', true, 'Fever'],
      ['absent', false, null],
      ['late', true, null],
      ['present', false, 'Forgot the books'],
    ]);
    expect((await sheet(classId, `date=${today}&is_excused=true`)).map(({ student_id }) => student_id)).toEqual([a, c]);
    const counts = { present: 1, absent: 2, late: 1, excused: 1, total: 4 };
    const register = (await school.admin.get<Register>(`${path}/class/${classId}/summary`)).data;
    expect(register.summary).toEqual({ ...counts, attendance_rate: 50, attendance_rate_without_excused: 66.67 });
    expect(register.days).toEqual([{ date: today, ...counts }]);
    expect(register.students[0]).toMatchObject({
      absent: 1,
      excused: 1,
      attendance_rate: 0,
      attendance_rate_without_excused: null,
      marks: [{ date: today, status: 'absent', is_excused: true }],
    });
    expect(await student(a)).toMatchObject({
      summary: { absent: 1, excused: 1, total: 1, attendance_rate: 0, attendance_rate_without_excused: null },
      records: [{ date: today, is_excused: true, note: 'Fever' }],
    });
    expect((await student(c)).summary).toMatchObject({ late: 1, excused: 0, attendance_rate_without_excused: 100 });
    const teacher = await addClassTeacher(classId);
    const calendar = `${path}/calendar-holidays?from_date=${today}&to_date=${today}&student_id=${a}`;
    expect((await teacher.get<Day[]>(calendar)).data).toMatchObject([
      { status: 'absent', is_excused: true, counts: { present: 1, absent: 2, late: 1, excused: 1 } },
    ]);
    const board = (await teacher.get<{ attendance_today: object }>('/api/dashboard')).data;
    expect(board.attendance_today).toEqual({ present: 2, absent: 2, late: 1, excused: 1 });
    await expectTotals();
  });

  test('keeps excuse and note when it is sent again without them, and loses them with another status', async () => {
    const { classId, students } = await addClass(1);
    const [student_id = 0] = students;
    await markRecords(classId, today, [{ student_id, status: 'absent', is_excused: true, note: 'Fever' }]);
    expect(await markRecords(classId, today, [{ student_id, status: 'absent' }])).toMatchObject({
      corrected: 0,
      unchanged: 1,
    });
    expect(await excuses(classId)).toEqual([['absent', true, 'Fever']]);
    await markRecords(classId, today, [{ student_id, status: 'absent', is_excused: false }]);
    expect(await excuses(classId)).toEqual([['absent', false, 'Fever']]);
    await markRecords(classId, today, [{ student_id, status: 'absent', note: '' }]);
    expect(await excuses(classId)).toEqual([['absent', false, null]]);
    await markRecords(classId, today, [{ student_id, status: 'absent', is_excused: true, note: 'Flu' }]);
    expect(await markRecords(classId, today, [{ student_id, status: 'present' }])).toMatchObject({ corrected: 1 });
    expect(await excuses(classId)).toEqual([['present', false, null]]);
    const [row] = await sheet(classId);
    expect(row?.corrections.map(({ status, is_excused, note }) => [status, is_excused, note])).toEqual([
      // A note that is replaced or removed is in no correction.
      ['absent', true, null],
      ['absent', false, null],
      ['absent', false, null],
      ['absent', true, 'Flu'],
    ]);
    await expectTotals();
  });

  test('can be sent back as the sheet shows it, also by an app that knows no excuses', async () => {
    const { classId, students } = await addClass(2);
    const [one = 0, two = 0] = students;
    await school.admin.post(
      `/api/students/${one}/absences`,
      { from_date: today, to_date: today, reason: 'Operation' },
      201,
    );
    const again = async () =>
      (await sheet(classId)).map(({ student_id, is_excused, note }) => ({
        ...{ student_id, is_excused, note },
        status: 'absent' as const,
      }));
    await markRecords(classId, today, await again());
    expect(await excuses(classId)).toEqual([
      ['absent', true, null],
      ['absent', false, null],
    ]);
    await markRecords(classId, today, [{ student_id: two, status: 'absent', note: 'Fever' }]);
    expect(await markRecords(classId, today, await again())).toMatchObject({ corrected: 0, unchanged: 2 });
  });

  test('of a student who was deleted can be sent again with the others, but changes nothing', async () => {
    const { classId, students } = await addClass(1);
    const [student_id = 0] = students;
    await markRecords(classId, today, [{ student_id, status: 'absent' }]);
    await school.admin.delete(`/api/students/${student_id}`);
    const again = [{ student_id, status: 'absent' as const, is_excused: true, note: 'Fever' }];
    expect(await markRecords(classId, today, again)).toMatchObject({ corrected: 0, unchanged: 1 });
    expect(await excuses(classId)).toEqual([['absent', false, null]]);
  });

  test('loses excuse and note when the previous release writes that the student is present', async () => {
    const { classId, students } = await addClass(1);
    const [student_id = 0] = students;
    await markRecords(classId, today, [{ student_id, status: 'absent', is_excused: true, note: 'Fever' }]);
    await service.database.query(`update ${school.schema}.attendance set status = 'present' where student_id = $1`, [
      student_id,
    ]);
    expect(await excuses(classId)).toEqual([['present', false, null]]);
    await expectTotals();
  });

  test('is refused for a student who is present', async () => {
    const { classId, students } = await addClass(1);
    const records = [{ student_id: students[0], status: 'present', is_excused: true }];
    const answer = await school.admin.post(`${path}/mark`, { class_id: classId, date: today, records }, 400);
    expect(answer).toMatchObject({ details: [{ path: 'records.0.is_excused' }] });
    expect(await excuses(classId)).toEqual([[null, null, null]]);
  });

  test('notifies the parents only when it is no longer excused', async () => {
    const { classId } = await addClass(0);
    const parent = `parent-${classId}@family.example`;
    const fields = { first_name: 'Ida', last_name: 'Ill', class_id: classId, parent_email: parent };
    const { id: student_id } = (await school.admin.post<{ id: number }>('/api/students', fields, 201)).data;
    await markRecords(classId, today, [{ student_id, status: 'absent', is_excused: true, note: 'Secret illness' }]);
    expect(await emailsTo(parent)).toBe(0);
    await markRecords(classId, today, [{ student_id, status: 'absent', is_excused: false }]);
    expect(await emailsTo(parent)).toBe(1);
    await markRecords(classId, today, [{ student_id, status: 'absent', note: 'Another note' }]);
    expect(await emailsTo(parent)).toBe(1);
  });
});
