import { beforeAll, describe, expect, test } from '@jest/globals';
import jwt from 'jsonwebtoken';
import type { Client } from '../support/client/client.ts';
import { steadyDay } from '../support/fixtures/days.ts';
import { type School, serviceOfFile, testPassword } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { StudentDashboard as StudentDashboardSchema } from '../../src/endpoints/students.ts';

await steadyDay();
const service = await serviceOfFile({}, 12);

type StudentDashboard = OutputOf<typeof StudentDashboardSchema>;

interface Pupil {
  school: School;
  client: Client;
  id: number;
  userId: number;
  classId: number;
  yearId: number;
  /** Runs SQL in the schema of the school: `@` stands for the schema, `$today` for the current date there. */
  sql: <R extends Record<string, unknown>>(text: string) => Promise<R[]>;
  dashboard: () => Promise<StudentDashboard>;
}

const path = '/api/students/me/dashboard';

/** Creates a school with one student, who is in a class of the current academic year and has a login. */
async function createPupil(fields: Record<string, unknown> = {}): Promise<Pupil> {
  const school = await service.school();
  const { classId, yearId } = await school.classroom('Own class');
  const email = `pupil@${school.subdomain}.example`;
  const { data } = await school.admin.post<{ id: number; user_id: number }>(
    '/api/students',
    {
      first_name: 'Pia',
      last_name: 'Pupil',
      class_id: classId,
      email,
      create_user_account: true,
      password: testPassword,
      ...fields,
    },
    201,
  );
  const client = await service.anonymous.login({ tenant_id: school.id, email, password: testPassword });
  // Remove the welcome notification of the new login.
  await service.settled();
  await service.database.query(`delete from ${school.schema}.notification`);
  return {
    school,
    client,
    id: data.id,
    userId: data.user_id,
    classId,
    yearId,
    sql: (text) =>
      service.database.query(
        text.replaceAll('@', `${school.schema}.`).replaceAll('$today', "(now() at time zone 'UTC')::date"),
      ),
    dashboard: async () => (await client.get<StudentDashboard>(path)).data,
  };
}

const dateOf = async ({ sql }: Pupil, expression: string) =>
  (await sql<{ day: string }>(`select (${expression})::date::text as day`))[0]?.day ?? '';

describe('the dashboard of a student', () => {
  test('without any data contains zeros and empty lists', async () => {
    const pupil = await createPupil({ class_id: null, roll_number: '7' });
    expect(await pupil.dashboard()).toEqual({
      student: { id: pupil.id, first_name: 'Pia', last_name: 'Pupil', admission_number: '000001', roll_number: '7' },
      class: null,
      attendance: { present: 0, absent: 0, late: 0, excused: 0, rate: null, last: [] },
      fees: { total: 0, discounted: 0, paid: 0, waived: 0, pending: 0, overdue: 0, next_due: null },
      schedule: expect.objectContaining({
        date: await dateOf(pupil, '$today'),
        whose: null,
        holiday: null,
        on_leave: false,
        slots: [],
      }) as unknown,
      notifications: { unread: 0 },
    });
  });

  test('contains the class, its grade, academic year and class teacher', async () => {
    const pupil = await createPupil();
    await pupil.sql(`with t as (insert into @teacher (first_name, last_name) values ('Clara', 'Class') returning id)
      update @class set section = 'B', room = 'R1', class_teacher_id = t.id from t where class.id = ${pupil.classId}`);
    const dashboard = await pupil.dashboard();
    expect(dashboard.class).toMatchObject({
      id: pupil.classId,
      name: 'Own class B',
      grade_name: 'Own class grade',
      room: 'R1',
      academic_year_id: pupil.yearId,
      class_teacher_name: 'Clara Class',
    });
    expect(dashboard.class?.['academic_year_name']).toMatch(/^Year \d{4}$/);
  });

  test('counts the attendance of the current academic year, late as present, and lists the ten latest days first', async () => {
    const pupil = await createPupil();
    const other = (
      await pupil.school.admin.post<{ id: number }>(
        '/api/students',
        { first_name: 'O', last_name: 'Ther', class_id: pupil.classId },
        201,
      )
    ).data.id;
    await pupil.sql(`update @academic_year set start_date = $today - 100, end_date = $today + 100`);
    await pupil.sql(`insert into @attendance (student_id, class_id, date, status)
      select ${pupil.id}, ${pupil.classId}, $today - n, case when n % 6 = 1 then 'absent' when n % 6 = 2 then 'late' else 'present' end from generate_series(0, 12) n
      union all select ${pupil.id}, ${pupil.classId}, $today - 101, 'absent'
      union all select ${other}, ${pupil.classId}, $today - n, 'absent' from generate_series(0, 20) n`);
    const { attendance } = await pupil.dashboard();
    // Of the days 0 to 12 days ago: absent on 1 and 7, late on 2 and 8.
    expect(attendance).toMatchObject({ present: 11, absent: 2, late: 2, rate: 84.62 });
    const days = await Promise.all(Array.from({ length: 10 }, (_, n) => dateOf(pupil, `$today - ${n}`)));
    expect(attendance?.last).toEqual(
      days.map((date, n) => ({
        date,
        status: n % 6 === 1 ? 'absent' : n % 6 === 2 ? 'late' : 'present',
        is_excused: false,
      })),
    );
  });

  test('contains no attendance without a current academic year', async () => {
    const pupil = await createPupil();
    await pupil.sql(
      `insert into @attendance (student_id, class_id, date, status) values (${pupil.id}, ${pupil.classId}, $today, 'present')`,
    );
    expect((await pupil.dashboard()).attendance?.present).toBe(1);
    await pupil.sql('update @academic_year set is_current = false');
    expect((await pupil.dashboard()).attendance).toEqual({
      present: 0,
      absent: 0,
      late: 0,
      excused: 0,
      rate: null,
      last: [],
    });
  });

  test('sums fees and invoices: total is paid, waived and pending; overdue was due before today; next_due is due from today on', async () => {
    const pupil = await createPupil();
    const other = (
      await pupil.school.admin.post<{ id: number }>('/api/students', { first_name: 'O', last_name: 'Ther' }, 201)
    ).data.id;
    await pupil.sql(
      `insert into @fee_structure (name, academic_year_id) select 'Fee ' || n, ${pupil.yearId} from generate_series(1, 7) n`,
    );
    await pupil.sql(`insert into @student_fee (student_id, fee_structure_id, amount, paid_amount, due_date, waived_at) values
      (${pupil.id}, 1, 100.10, 100.10, $today - 30, null), (${pupil.id}, 2, 200.20, 50.05, $today - 1, null), (${pupil.id}, 3, 300, 0, $today, null),
      (${pupil.id}, 4, 400, 100, $today + 10, null), (${pupil.id}, 5, 500, 20, $today - 60, now()), (${other}, 6, 600, 0, $today, null)`);
    // In this order: an open invoice, an overdue one, a draft, a void one, and one of another student.
    await pupil.sql(`insert into @invoice (student_id, amount, paid_amount, due_date, issued_at, invoice_number, voided_at) values
      (${pupil.id}, 60, 10.5, $today + 5, now(), 'INV-2026-000001', null), (${pupil.id}, 7, 0, $today - 2, now(), 'INV-2026-000002', null),
      (${pupil.id}, 1000, 0, $today, null, null, null), (${pupil.id}, 2000, 0, $today, now(), 'INV-2026-000003', now()), (${other}, 4000, 0, $today, now(), 'INV-2026-000004', null)`);
    const { fees } = await pupil.dashboard();
    expect(fees).toEqual({
      total: 1567.3,
      discounted: 0,
      paid: 280.65,
      waived: 480,
      pending: 806.65,
      overdue: 157.15,
      next_due: { kind: 'student_fee', id: 3, name: 'Fee 3', amount: 300, due_date: await dateOf(pupil, '$today') },
    });
    await pupil.sql(`update @student_fee set paid_amount = amount where id = 3`);
    expect((await pupil.dashboard()).fees?.next_due).toEqual({
      kind: 'invoice',
      id: 1,
      name: 'INV-2026-000001',
      amount: 49.5,
      due_date: await dateOf(pupil, '$today + 5'),
    });
    await pupil.sql(`update @invoice set paid_amount = amount where id = 1`);
    expect((await pupil.dashboard()).fees?.next_due).toEqual({
      kind: 'student_fee',
      id: 4,
      name: 'Fee 4',
      amount: 300,
      due_date: await dateOf(pupil, '$today + 10'),
    });
    await pupil.sql(`update @student_fee set paid_amount = amount where id = 4`);
    expect((await pupil.dashboard()).fees).toMatchObject({ overdue: 157.15, next_due: null });
  });

  describe('the lessons of today', () => {
    let pupil: Pupil;
    beforeAll(async () => {
      pupil = await createPupil();
      await pupil.sql(`update @class set room = 'R1' where id = ${pupil.classId}`);
      await pupil.sql(`update @timetable_config set working_days = '{1,2,3,4,5,6,7}'`);
      await pupil.sql(`insert into @teacher (first_name, last_name) values ('Tom', 'Teacher')`);
      await pupil.sql(`insert into @subject (name, code) values ('Art', 'ART'), ('Sport', 'SPO')`);
      await pupil.sql(
        `insert into @class (name, grade_id, academic_year_id) select 'Other', grade_id, academic_year_id from @class where id = ${pupil.classId}`,
      );
      await pupil.sql(`insert into @timetable_slot (class_id, academic_year_id, subject_id, teacher_id, day_of_week, period, room)
        select c.id, c.academic_year_id, case when period = 3 then 2 else 1 end, case when c.id = ${pupil.classId} and period = 3 then 1 end, d.day, period, case when period = 3 then 'Gym' end
        from @class c, generate_series(1, 7) d (day), (values (3), (1)) p (period)
        where d.day <> extract(isodow from $today) or c.id = ${pupil.classId} or period = 1`);
    });

    const slots = () => [
      expect.objectContaining({
        period: 1,
        class_id: pupil.classId,
        subject_id: 1,
        subject_name: 'Art',
        teacher_id: null,
        teacher_name: null,
        room: 'R1',
      }),
      expect.objectContaining({
        period: 3,
        class_id: pupil.classId,
        subject_id: 2,
        subject_name: 'Sport',
        teacher_id: 1,
        teacher_name: 'Tom Teacher',
        room: 'Gym',
      }),
    ];

    test('are the slots of the class on this weekday by period, in the room of the class unless the slot has its own', async () => {
      const [day] = await pupil.sql<{ isodow: number }>('select extract(isodow from $today)::integer as isodow');
      expect((await pupil.dashboard()).schedule).toMatchObject({
        whose: { kind: 'class', id: pupil.classId, name: 'Own class' },
        date: await dateOf(pupil, '$today'),
        day_of_week: day?.isodow,
        holiday: null,
        on_leave: false,
        slots: slots(),
      });
    });

    test('are empty on a day that is not a working day', async () => {
      await pupil.sql(
        `update @timetable_config set working_days = array[1 + extract(isodow from $today)::integer % 7]`,
      );
      expect((await pupil.dashboard()).schedule?.slots).toEqual([]);
      await pupil.sql(`update @timetable_config set working_days = '{1,2,3,4,5,6,7}'`);
    });

    test.each([
      ['a holiday', `insert into @holiday (name, date) values ('A day off', $today)`, 'A day off'],
      [
        'a recurring holiday',
        `insert into @holiday (name, date, is_recurring) values ('Every year', $today - interval '4 years', true)`,
        'Every year',
      ],
    ])('are empty on %s, and the holiday is named', async (_case, statement, holiday) => {
      await pupil.sql(statement);
      expect((await pupil.dashboard()).schedule).toMatchObject({ holiday: { name: holiday }, slots: [] });
      await pupil.sql('delete from @holiday');
    });

    test('are not affected by a holiday on another day or in another year', async () => {
      await pupil.sql(
        `insert into @holiday (name, date, is_recurring) values ('Yesterday', $today - 1, false), ('Tomorrow', $today + 1, true), ('Once', $today - interval '4 years', false)`,
      );
      expect((await pupil.dashboard()).schedule).toMatchObject({ holiday: null, slots: slots() });
      await pupil.sql('delete from @holiday');
    });

    test('are empty before the academic year of the class begins and after it ends', async () => {
      await pupil.sql('update @academic_year set start_date = $today + 1, end_date = $today + 50');
      expect((await pupil.dashboard()).schedule?.slots).toEqual([]);
      await pupil.sql('update @academic_year set start_date = $today - 50, end_date = $today - 1');
      expect((await pupil.dashboard()).schedule?.slots).toEqual([]);
      await pupil.sql('update @academic_year set start_date = $today - 1, end_date = $today');
      expect((await pupil.dashboard()).schedule?.slots).toEqual(slots());
    });

    test('are those of today in the time zone of the school', async () => {
      for (const zone of ['Pacific/Kiritimati', 'Pacific/Niue']) {
        await pupil.school.database.query('update platform.tenant set time_zone = $2 where id = $1', [
          pupil.school.id,
          zone,
        ]);
        const [row] = await pupil.sql<{ day: string }>(`select (now() at time zone '${zone}')::date::text as day`);
        expect((await pupil.dashboard()).schedule?.date).toBe(row?.day);
      }
      await pupil.school.database.query("update platform.tenant set time_zone = 'UTC' where id = $1", [
        pupil.school.id,
      ]);
    });
  });

  test('counts the unread notifications of the student only', async () => {
    const pupil = await createPupil();
    const admin = (await pupil.school.admin.get<{ id: number }>('/api/auth/profile')).data.id;
    await pupil.sql(`insert into @notification (user_id, title, message, read_at) values
      (${pupil.userId}, 'a', 'a', null), (${pupil.userId}, 'b', 'b', null), (${pupil.userId}, 'c', 'c', now()), (${admin}, 'd', 'd', null)`);
    expect((await pupil.dashboard()).notifications).toEqual({ unread: 2 });
  });

  test('contains null for each feature that the school has disabled', async () => {
    const pupil = await createPupil();
    for (const [feature, part] of Object.entries({
      attendance: 'attendance',
      fees_management: 'fees',
      timetable: 'schedule',
    } as const)) {
      await service.operator.put(`/api/platform/tenants/${pupil.school.id}`, { feature_flags: { [feature]: false } });
      const dashboard = await pupil.dashboard();
      expect(Object.entries(dashboard).filter(([, value]) => value === null)).toEqual([[part, null]]);
    }
  });
});

describe('access to the dashboard', () => {
  test('requires the student role and a linked student; without a student it is a 404', async () => {
    const pupil = await createPupil();
    const nobody = await pupil.school.user(['student']);
    expect((await nobody.get(path, 404)).error).toBe('not_found');
    await pupil.sql(`update @student set user_id = ${nobody.id} where id = ${pupil.id}`);
    // A session learns the student of its user when it begins, so log in again.
    const again = await service.anonymous.login({
      tenant_id: pupil.school.id,
      email: nobody.email,
      password: testPassword,
    });
    expect((await again.get<StudentDashboard>(path)).data.student.id).toBe(pupil.id);
  });

  test('is forbidden for an admin, a teacher, and a user with a custom role of a similar name', async () => {
    const pupil = await createPupil();
    await pupil.school.admin.post('/api/rbac/roles', { name: 'Students' }, 201);
    for (const client of [
      pupil.school.admin,
      await pupil.school.user(['teacher']),
      await pupil.school.user(['Students']),
    ]) {
      expect((await client.get(path, 403)).message).toBe('This needs the role student.');
    }
    await service.anonymous.get(path, 401);
    await service.operator.get(path, 403);
  });

  test('ends when the student is deleted', async () => {
    const pupil = await createPupil();
    await pupil.school.admin.delete(`/api/students/${pupil.id}`);
    expect((await pupil.client.get(path, 401)).error).toBe('invalid_token');
  });

  test('has the row scope of the roles of the user, because the operation requires no permission', async () => {
    const pupil = await createPupil();
    const scope = async (client: Client) => {
      const { sid } = jwt.decode(client.token) as { sid: string };
      const [row] = await pupil.school.database.query<{ scope: string }>(
        `select scope from core.admit('auth_profile', $1, '{}', '{}')`,
        [sid],
      );
      return row?.scope;
    };
    expect(await scope(pupil.client)).toBe('own');
    expect(await scope(await pupil.school.user(['teacher']))).toBe('taught');
    expect(await scope(await pupil.school.user([]))).toBe('own');
    expect(await scope(await pupil.school.user(['teacher', 'accountant']))).toBe('all');
    expect(await scope(pupil.school.admin)).toBe('all');
  });
});
