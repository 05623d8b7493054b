import { beforeAll, describe, expect, test } from '@jest/globals';
import { dayIn, farZones, steadyDay } from '../support/fixtures/days.ts';
import { serviceWithSchool } from '../support/server/service.ts';
import { monday, type Planned, planned, tuesday, wednesday } from '../support/fixtures/planned-school.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Day as DaySchema, Schedule as ScheduleSchema } from '../../src/endpoints/schedule.ts';

await steadyDay();
const { service, school: empty } = await serviceWithSchool({}, 5);

interface Slot {
  period: number;
  start_time: string;
  end_time: string;
  subject_name: string;
  teacher_id: number | null;
  is_teacher_on_leave: boolean;
  room: string | null;
}
type Day = OutputOf<typeof DaySchema>;
type Schedule = OutputOf<typeof ScheduleSchema>;
type Week = Pick<Schedule, 'whose' | 'periods'> & { from: string; to: string; days: Day[] };

let one: Planned;
beforeAll(async () => {
  one = await planned(service);
});

const ofClass = async (date: string, client = one.school.admin, id = one.classId) =>
  (await client.get<Schedule>(`/api/schedule/class/${id}?date=${date}`)).data;
const lines = (slots: Slot[]) =>
  slots.map(
    (slot) =>
      `${slot.period} ${slot.start_time} ${slot.subject_name} ${slot.room ?? ''}${slot.is_teacher_on_leave ? ' away' : ''}`,
  );

describe('the schedule of a class on a day', () => {
  test('lists its lessons in order with times, teacher and room, and the periods of the day with lunch', async () => {
    expect(await ofClass(monday)).toEqual({
      whose: { kind: 'class', id: one.classId, name: '5 A' },
      date: monday,
      day_of_week: 1,
      academic_year_id: one.yearId,
      academic_year_name: '2030/2031',
      is_school_day: true,
      holiday: null,
      on_leave: false,
      slots: [
        expect.objectContaining({
          period: 1,
          start_time: '08:00',
          end_time: '08:45',
          subject_name: 'Mathematics',
          teacher_name: 'Tess Teacher',
          room: 'R5',
        }),
        expect.objectContaining({
          period: 2,
          start_time: '08:45',
          end_time: '09:30',
          subject_name: 'Mathematics',
          is_teacher_on_leave: false,
        }),
        expect.objectContaining({
          period: 4,
          start_time: '10:15',
          end_time: '11:00',
          subject_name: 'Art',
          teacher_id: one.other.id,
          room: 'Studio',
        }),
      ],
      periods: [
        { kind: 'period', period: 1, start_time: '08:00', end_time: '08:45' },
        { kind: 'period', period: 2, start_time: '08:45', end_time: '09:30' },
        { kind: 'lunch', period: 3, start_time: '09:30', end_time: '10:15' },
        { kind: 'period', period: 4, start_time: '10:15', end_time: '11:00' },
        { kind: 'period', period: 5, start_time: '11:00', end_time: '11:45' },
      ],
    });
    expect(lines((await ofClass(wednesday)).slots)).toEqual(['1 08:00 Art R5']);
  });

  test('is empty on a weekday without lessons, on a day without school, on a holiday, and between academic years', async () => {
    expect(await ofClass(tuesday)).toMatchObject({ is_school_day: true, slots: [] });
    expect(await ofClass('2030-10-13')).toMatchObject({
      day_of_week: 7,
      is_school_day: false,
      holiday: null,
      slots: [],
    });
    const holiday = await one.insert('holiday', { name: 'Founders', date: '2028-10-07', is_recurring: true });
    expect(await ofClass(monday)).toMatchObject({
      is_school_day: false,
      holiday: { id: holiday, name: 'Founders' },
      academic_year_id: one.yearId,
      slots: [],
    });
    await one.sql('delete from @holiday where id = $1', [holiday]);
    expect(await ofClass('2031-08-04')).toMatchObject({
      day_of_week: 1,
      is_school_day: false,
      academic_year_id: null,
      academic_year_name: null,
      slots: [],
    });
  });

  test('uses the academic year of the date, even if another one is current', async () => {
    const next = await one.insert('academic_year', {
      name: '2031/2032',
      start_date: '2031-08-01',
      end_date: '2032-07-31',
    });
    const grown = await one.insert('class', { name: '6', section: 'A', grade_id: one.gradeId, academic_year_id: next });
    await one.insert('timetable_slot', {
      class_id: grown,
      academic_year_id: next,
      subject_id: one.art,
      day_of_week: 1,
      period: 1,
    });
    expect(await ofClass('2031-08-04', one.school.admin, grown)).toMatchObject({
      academic_year_id: next,
      slots: [{ subject_name: 'Art' }],
    });
    expect((await ofClass(monday, one.school.admin, grown)).slots).toEqual([]);
    expect((await ofClass('2031-08-04')).slots).toEqual([]);
  });

  test('shows to everyone that the teacher of a lesson is on approved leave, but not the type or reason of the leave', async () => {
    const leave = {
      teacher_id: one.other.id,
      leave_type: 'medical secret',
      start_date: '2030-10-07',
      end_date: '2030-10-08',
      reason: 'private secret',
    };
    const approved = await one.insert('teacher_leave', { ...leave, status: 'approved', decided_at: '2030-10-01' });
    const pending = await one.insert('teacher_leave', { ...leave, teacher_id: one.teacher.id });
    for (const client of [one.school.admin, one.student.client, one.teacher.client]) {
      const day = await ofClass(monday, client);
      expect(lines(day.slots)).toEqual(['1 08:00 Mathematics R5', '2 08:45 Mathematics R5', '4 10:15 Art Studio away']);
      expect(JSON.stringify(day)).not.toContain('secret');
      expect(lines((await ofClass(wednesday, client)).slots)).toEqual(['1 08:00 Art R5']);
    }
    await one.sql('delete from @teacher_leave where id = any ($1)', [[approved, pending]]);
  });

  test('ignores rejected leaves', async () => {
    const leave = {
      leave_type: 'sick',
      start_date: monday,
      end_date: monday,
      status: 'rejected',
      decided_at: '2030-10-01',
    };
    const rejected = await one.insert('teacher_leave', { ...leave, teacher_id: one.other.id });
    expect(lines((await ofClass(monday)).slots)).toContain('4 10:15 Art Studio');
    await one.sql('delete from @teacher_leave where id = $1', [rejected]);
  });

  test('defaults to today', async () => {
    const { date } = (await one.school.admin.get<Schedule>(`/api/schedule/class/${one.classId}`)).data;
    const [row] = await one.sql<{ today: string }>("select (now() at time zone 'UTC')::date::text as today");
    expect(date).toBe(row?.today);
  });

  test('is visible to the students and teachers of the class; all other users need the permission', async () => {
    const far = await one.insert('class', { name: 'Far', grade_id: one.gradeId, academic_year_id: one.yearId });
    for (const client of [one.student.client, one.teacher.client]) {
      expect((await ofClass(monday, client)).slots).toHaveLength(3);
      expect((await client.get(`/api/schedule/class/${far}`, 404)).error).toBe('not_found');
    }
    const accountant = await one.school.user(['accountant']);
    expect((await accountant.get(`/api/schedule/class/${one.classId}`, 404)).error).toBe('not_found');
    await one.school.admin.get('/api/schedule/class/999999', 404);
    await empty.admin.get(`/api/schedule/class/${one.classId + 100_000}`, 404);
  });

  test('a student and a teacher without timetable.read still see their own schedules', async () => {
    const own = await planned(service);
    await own.sql('delete from @role_permission where permission_id = 26');
    for (const user of [own.student, own.teacher]) {
      const [row] = await own.sql<{ email: string }>('select email from @user_account where id = $1', [user.userId]);
      const client = await service.anonymous.login({
        tenant_id: own.school.id,
        email: row?.email,
        password: 'test-password',
      });
      expect((await client.get<Schedule>(`/api/schedule/class/${own.classId}?date=${monday}`)).data.slots).toHaveLength(
        3,
      );
      expect((await client.get<Week>(`/api/schedule/week?date=${monday}`)).data.days[0]?.slots.length).toBeGreaterThan(
        1,
      );
    }
  });

  test.each(['2030-02-30', 'monday'])('refuses the date %p', async (date) => {
    expect((await one.school.admin.get(`/api/schedule/class/${one.classId}?date=${date}`, 400)).details).toMatchObject([
      { path: 'date' },
    ]);
  });
});

describe('today', () => {
  let now: Planned;
  let day: number;
  beforeAll(async () => {
    now = await planned(service);
    const [row] = await now.sql<{ day: number }>(
      "select extract(isodow from now() at time zone 'UTC')::integer as day",
    );
    day = row?.day ?? 0;
    await now.sql(
      "update @academic_year set start_date = now() - interval '100 days', end_date = now() + interval '100 days'",
    );
    await now.sql("update @timetable_config set working_days = '{1,2,3,4,5,6,7}'");
    await now.sql('update @timetable_slot set day_of_week = $1 where period in (2, 4)', [day]);
    await now.sql('delete from @timetable_slot where period = 1');
  });
  const today = async (client = now.school.admin) => (await client.get<Schedule>('/api/schedule/today')).data;

  test("shows a teacher's own lessons, and to a student those of their class", async () => {
    expect(await today(now.teacher.client)).toMatchObject({
      whose: { kind: 'teacher', id: now.teacher.id, name: 'Tess Teacher' },
      day_of_week: day,
      slots: [{ period: 2, class_name: '5 A', subject_name: 'Mathematics' }],
    });
    expect(await today(now.student.client)).toMatchObject({
      whose: { kind: 'class', name: '5 A' },
      slots: [{ period: 2 }, { period: 4 }],
    });
  });

  test('has no slots and no owner for a user who is neither a teacher nor a student', async () => {
    for (const client of [now.school.admin, await now.school.user(['accountant']), await now.school.user([])]) {
      expect(await today(client)).toMatchObject({
        whose: null,
        day_of_week: day,
        slots: [],
        periods: [{ period: 1 }, {}, {}, {}, {}],
      });
    }
    await now.sql('update @student set class_id = null where id = $1', [now.student.id]);
    expect(await today(now.student.client)).toMatchObject({ whose: null, slots: [] });
    await now.sql('update @student set class_id = $2 where id = $1', [now.student.id, now.classId]);
  });

  test('shows the lessons of the teacher to a user who is both a teacher and a student', async () => {
    await now.sql('update @student set user_id = null where id = $1', [now.student.id]);
    await now.sql('update @student set user_id = $2 where id = $1', [now.student.id, now.teacher.userId]);
    const [row] = await now.sql<{ email: string }>('select email from @user_account where id = $1', [
      now.teacher.userId,
    ]);
    const both = await service.anonymous.login({
      tenant_id: now.school.id,
      email: row?.email,
      password: 'test-password',
    });
    expect((await today(both)).whose).toMatchObject({ kind: 'teacher', id: now.teacher.id });
    await now.sql('update @student set user_id = $2 where id = $1', [now.student.id, now.student.userId]);
  });

  test('is empty for a teacher on approved leave, and shows students which teachers are on leave', async () => {
    await now.insert('teacher_leave', {
      ...{ teacher_id: now.teacher.id, leave_type: 'sick', start_date: '2020-01-01', end_date: '2040-01-01' },
      ...{ status: 'approved', decided_at: '2030-10-01' },
    });
    expect(await today(now.teacher.client)).toMatchObject({ on_leave: true, is_school_day: true, slots: [] });
    expect(await today(now.student.client)).toMatchObject({
      on_leave: false,
      slots: [
        { period: 2, is_teacher_on_leave: true },
        { period: 4, is_teacher_on_leave: false },
      ],
    });
    await now.sql('delete from @teacher_leave');
  });

  test.each(farZones)(
    'uses the date in the time zone of the school (%s), for the user, a class and the week',
    async (zone) => {
      await now.school.database.query('update platform.tenant set time_zone = $2 where id = $1', [now.school.id, zone]);
      const there = dayIn(zone);
      expect((await today()).date).toBe(there);
      expect((await now.school.admin.get<Schedule>(`/api/schedule/class/${now.classId}`)).data.date).toBe(there);
      expect((await now.school.admin.get<Week>('/api/schedule/week')).data).toEqual(
        (await now.school.admin.get<Week>(`/api/schedule/week?date=${there}`)).data,
      );
      await now.school.database.query("update platform.tenant set time_zone = 'UTC' where id = $1", [now.school.id]);
    },
  );
});

describe('a week', () => {
  const week = async (query: string, client = one.school.admin) =>
    (await client.get<Week>(`/api/schedule/week?${query}`)).data;
  const found = (data: Week) => data.days.map((day) => `${day.date} ${day.slots.map(({ period }) => period).join('')}`);

  test.each(['9999-12-31', '9999-12-26', '1000-01-06'])(
    'is a 400 if it contains days outside the years 1000 to 9999 (%s)',
    async (date) => {
      expect(
        (await one.school.admin.get(`/api/schedule/week?date=${date}`, 400)).details.map((detail) => detail.path),
      ).toEqual(['date']);
    },
  );

  test('lists its working days in order for a class, a teacher or the user', async () => {
    const data = await week(`class_id=${one.classId}&date=${wednesday}`);
    expect(data).toMatchObject({
      whose: { kind: 'class', name: '5 A' },
      from: monday,
      to: '2030-10-13',
      periods: [{ period: 1 }, {}, { kind: 'lunch' }, {}, {}],
    });
    expect(found(data)).toEqual(['2030-10-07 124', '2030-10-08 ', '2030-10-09 1', '2030-10-10 ', '2030-10-11 ']);
    expect(data.days[0]).toEqual(
      Object.fromEntries(Object.entries(await ofClass(monday)).filter(([key]) => key !== 'whose' && key !== 'periods')),
    );
    expect(found(await week(`teacher_id=${one.other.id}&date=2030-10-13`))).toEqual([
      '2030-10-07 4',
      '2030-10-08 ',
      '2030-10-09 1',
      '2030-10-10 ',
      '2030-10-11 ',
    ]);
    expect(found(await week(`date=${monday}`, one.teacher.client))[0]).toBe('2030-10-07 12');
    expect(found(await week(`date=${monday}`, one.student.client))[0]).toBe('2030-10-07 124');
    expect(await week('')).toMatchObject({ whose: null, days: [{ slots: [] }, {}, {}, {}, {}] });
  });

  test('starts on Saturday or Sunday if that is the first working day after the weekend', async () => {
    const days = async (working: string) => {
      await one.sql('update @timetable_config set working_days = $1', [working]);
      return (await week(`date=${monday}`)).days.map((day) => day.date.slice(-2)).join(' ');
    };
    expect(await days('{7,1,2,3,4}')).toBe('06 07 08 09 10');
    expect(await days('{6,7,1,2,3}')).toBe('05 06 07 08 09');
    expect(await days('{1,2,3,4,5,6}')).toBe('07 08 09 10 11 12');
    expect(await days('{1,2,3,4,5,6,7}')).toBe('07 08 09 10 11 12 13');
    expect(await days('{1,2,3,4,5}')).toBe('07 08 09 10 11');
  });

  test('is refused for a class or teacher outside the scope, and for a class and a teacher together', async () => {
    const far = await one.insert('class', { name: 'Farther', grade_id: one.gradeId, academic_year_id: one.yearId });
    for (const client of [one.student.client, one.teacher.client]) {
      await client.get(`/api/schedule/week?class_id=${far}`, 404);
      await client.get(`/api/schedule/week?teacher_id=${one.other.id}`, 404);
    }
    expect((await one.school.admin.get(`/api/schedule/week?class_id=1&teacher_id=1`, 400)).details).toMatchObject([
      { path: 'teacher_id' },
    ]);
    await one.school.admin.get('/api/schedule/week?teacher_id=999999', 404);
    const accountant = await one.school.user(['accountant']);
    await accountant.get(`/api/schedule/week?class_id=${one.classId}`, 404);
    const { data } = await accountant.get<{ whose: unknown; days: { slots: unknown[] }[] }>('/api/schedule/week');
    expect(data.whose).toBeNull();
    expect(data.days.flatMap(({ slots }) => slots)).toEqual([]);
  });
});

test('the schedule endpoints answer feature_disabled without the feature timetable', async () => {
  const school = await service.school({ feature_flags: { timetable: false } });
  for (const path of ['today', 'week', 'class/1', 'feeds'])
    expect((await school.admin.get(`/api/schedule/${path}`, 403)).error).toBe('feature_disabled');
});
