import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { steadyDay } from '../support/fixtures/days.ts';
import {
  type Teacher,
  type Leave,
  type Slot,
  type Schedule,
  type TaughtClass,
  teacherHelpers,
} from '../support/fixtures/teachers.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';

await steadyDay();
const { service, school } = await serviceWithSchool();
const { add, read, withLogin, rows, classOfYear, lead, subject, teach, slot } = teacherHelpers(service, school);

describe('/me', () => {
  test('returns the linked teacher with all fields, and is a 404 for a user without one', async () => {
    const { teacher, client } = await withLogin({ address: 'Home', date_of_birth: '1980-01-01' });
    expect((await client.get<Teacher>('/api/teachers/me')).data).toEqual(await read(teacher.id));
    expect((await client.get<Teacher>('/api/teachers/me')).data.address).toBe('Home');
    for (const user of [
      school.admin,
      await school.user(['accountant']),
      await school.user(['student']),
      await school.user(['teacher']),
    ]) {
      expect((await user.get('/api/teachers/me', 404)).message).toBe('Your account is not linked to a teacher.');
      await user.get('/api/teachers/me/classes', 404);
    }
    await service.anonymous.get('/api/teachers/me', 401);
  });

  test('works for an admin who is linked to a teacher', async () => {
    const admin = await school.user(['admin']);
    const teacher = await add();
    await rows(`update ${school.schema}.teacher set user_id = $2 where id = $1`, [teacher.id, admin.id]);
    expect((await admin.get<Teacher>('/api/teachers/me')).data.id).toBe(teacher.id);
    expect((await admin.get<Schedule>('/api/teachers/me/today-schedule')).data.slots).toEqual([]);
  });
});

describe('/me/classes', () => {
  test('returns only the classes of the current year that the teacher teaches, with subjects and number of students', async () => {
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
    // The last one has left.
    for (const is_active of [true, true, false]) {
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

  test('returns the classes of another year for academic_year_id, with the number of students at that time', async () => {
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

  test('returns nothing in a school without a current academic year', async () => {
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
    const [row] = await days.database.query<{ date: string; day: number }>(
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

  test("returns the teacher's slots of this weekday in order, with times, classes and rooms", async () => {
    expect(await schedule()).toMatchObject({ ...nothing(), slots: expected });
  });

  test('is empty on a holiday, also a recurring one, and names it', async () => {
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

  test('is empty during an approved leave, but not during a pending or rejected one', async () => {
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

  test('is empty on a day that is not a working day and outside the academic year', async () => {
    await rows(`update ${days.schema}.timetable_config set working_days = array[$1::integer]`, [(today.day % 7) + 1]);
    expect(await schedule()).toMatchObject(nothing());
    await rows(`update ${days.schema}.timetable_config set working_days = '{1,2,3,4,5,6,7}'`);
    await rows(`update ${days.schema}.academic_year set start_date = $1::date - 100, end_date = $1::date - 1`, [
      today.date,
    ]);
    expect(await schedule()).toMatchObject(nothing());
    // The academic year that contains the day counts, not the one that is marked as current.
    await rows(`update ${days.schema}.academic_year set end_date = $1, is_current = false`, [today.date]);
    expect((await schedule()).slots).toEqual(expected);
  });

  test('is for today in the time zone of the school', async () => {
    for (const zone of ['Pacific/Kiritimati', 'Pacific/Pago_Pago']) {
      await days.database.query('update platform.tenant set time_zone = $2 where id = $1', [days.id, zone]);
      const [row] = await rows<{ before: string }>('select (now() at time zone $1)::date::text as before', [zone]);
      const { date } = await schedule();
      const [after] = await rows<{ after: string }>('select (now() at time zone $1)::date::text as after', [zone]);
      expect([row?.before, after?.after]).toContain(date);
    }
    await days.database.query("update platform.tenant set time_zone = 'UTC' where id = $1", [days.id]);
  });

  test('requires timetable.read and a linked teacher, else it is a 403 or a 404', async () => {
    expect((await (await days.user(['accountant'])).get('/api/teachers/me/today-schedule', 403)).error).toBe(
      'forbidden',
    );
    expect((await (await days.user(['student'])).get('/api/teachers/me/today-schedule', 404)).error).toBe('not_found');
    await days.admin.get('/api/teachers/me/today-schedule', 404);
  });
});
