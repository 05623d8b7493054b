import { describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { steadyDay } from '../support/fixtures/days.ts';
import { type School, serviceOfFile, testPassword } from '../support/server/service.ts';
import { withRole } from '../support/database/tenants.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Dashboard as DashboardSchema } from '../../src/endpoints/dashboard.ts';

await steadyDay();
const service = await serviceOfFile({}, 13);

type Dashboard = OutputOf<typeof DashboardSchema>;

const path = '/api/dashboard';
const dashboardOf = async (client: Client) => (await client.get<Dashboard>(path)).data;

/** Runs a statement: `@` stands for the schema of the school, `$today` for the current date. */
const sql = <R extends Record<string, unknown>>(school: School, text: string) =>
  school.database.query<R>(
    text.replaceAll('@', `${school.schema}.`).replaceAll('$today', "(now() at time zone 'UTC')::date"),
  );

const dateOf = async (school: School, expression: string) =>
  (await sql<{ day: string }>(school, `select (${expression})::date::text as day`))[0]?.day ?? '';

const addStudents = async (school: School, count: number, fields: Record<string, unknown> = {}) => {
  const ids: number[] = [];
  for (let n = 0; n < count; n++)
    ids.push(
      (
        await school.admin.post<{ id: number }>(
          '/api/students',
          { first_name: 'Stu', last_name: 'Dent', ...fields },
          201,
        )
      ).data.id,
    );
  return ids;
};

/** Inserts teachers without a user account. */
const addTeachers = async (school: School, count: number, fields = "'Te', 'Acher', true") => {
  const rows = await sql<{ id: number }>(
    school,
    `insert into @teacher (first_name, last_name, is_active) select ${fields} from generate_series(1, ${count}) returning id::integer`,
  );
  return rows.map(({ id }) => id);
};

/** Updates the teacher count, as the endpoints do, after teachers were inserted directly. */
const count = (school: School) =>
  service.database.query(
    `update platform.tenant_usage u set teachers = (select count(*) from ${school.schema}.teacher where is_active and deleted_at is null) where u.tenant_id = $1`,
    [school.id],
  );

describe('the dashboard', () => {
  test('of a new school has zeros and empty lists', async () => {
    const school = await service.school();
    expect(await dashboardOf(school.admin)).toEqual({
      academic_year: null,
      total_students: 0,
      total_teachers: 0,
      total_classes: 0,
      attendance_today: { present: 0, absent: 0, late: 0, excused: 0 },
      fee_summary: { collected_this_month: 0, pending: 0 },
      pending_leaves: 0,
      not_visible: [],
      upcoming_holidays: [],
      recent_notifications: [],
    });
  });

  test('counts active students and teachers, and the classes of the current academic year', async () => {
    const school = await service.school();
    const { classId, yearId } = await school.classroom('Now');
    await school.classroom('Also now');
    await sql(
      school,
      `insert into @academic_year (name, start_date, end_date) values ('Old', '1990-01-01', '1990-12-31')`,
    );
    await sql(
      school,
      `insert into @class (name, grade_id, academic_year_id) select 'Old class', grade_id, (select id from @academic_year where name = 'Old') from @class where id = ${classId}`,
    );
    const [gone = 0] = await addStudents(school, 4);
    await addStudents(school, 1, { is_active: false });
    await school.admin.delete(`/api/students/${gone}`);
    await addTeachers(school, 2);
    await addTeachers(school, 1, "'In', 'Active', false");
    await count(school);
    const [year] = await sql<{ name: string; start_date: string; end_date: string }>(
      school,
      `select name, start_date::text, end_date::text from @academic_year where id = ${yearId}`,
    );
    expect(await dashboardOf(school.admin)).toMatchObject({
      academic_year: { id: yearId, ...year },
      total_students: 3,
      total_teachers: 2,
      total_classes: 2,
    });
  });

  test("counts only today's attendance, and counts late students as present too", async () => {
    const school = await service.school();
    const { classId } = await school.classroom();
    const ids = await addStudents(school, 6, { class_id: classId });
    const statuses = ['present', 'present', 'present', 'late', 'late', 'absent'];
    await sql(
      school,
      `insert into @attendance (student_id, class_id, date, status) values ${ids.map((id, n) => `(${id}, ${classId}, $today, '${statuses[n] ?? ''}'), (${id}, ${classId}, $today - 1, 'absent')`).join(', ')}`,
    );
    expect((await dashboardOf(school.admin)).attendance_today).toEqual({ present: 5, absent: 1, late: 2, excused: 0 });
  });

  test('sums the payments of this month without reversed ones, and the open amounts without waived fees', async () => {
    const school = await service.school();
    const { yearId } = await school.classroom();
    const [one = 0, two = 0] = await addStudents(school, 2);
    await sql(school, `insert into @fee_structure (name, academic_year_id) values ('Tuition', ${yearId})`);
    await sql(
      school,
      `insert into @student_fee (student_id, fee_structure_id, amount, due_date, waived_at) values
        (${one}, 1, 1000.50, $today, null), (${two}, 1, 200, $today - 9, null), (${two}, 1, 50, $today + 9, null),
        (${one}, 1, 80, $today, null), (${one}, 1, 70, $today, now()), (${two}, 1, 1100, $today, null)`,
    );
    await sql(
      school,
      `insert into @payment (student_id, student_fee_id, amount, payment_date, payment_method, reversal_of) values
        (${one}, 1, 300.25, date_trunc('month', $today), 'cash', null), (${one}, 4, 80, date_trunc('month', $today) + interval '1 month - 1 day', 'cash', null),
        (${one}, 1, 40, $today, 'cash', null), (${one}, 1, -40, $today, 'cash', 3),
        (${two}, 6, 500, date_trunc('month', $today) - interval '1 day', 'cash', null), (${two}, 6, 600, date_trunc('month', $today) + interval '1 month', 'cash', null)`,
    );
    expect((await dashboardOf(school.admin)).fee_summary).toEqual({ collected_this_month: 380.25, pending: 950.25 });
    expect((await dashboardOf(await school.user(['accountant']))).fee_summary).toEqual({
      collected_this_month: 380.25,
      pending: 950.25,
    });
  });

  test('has the next three holidays within a year, including today, and a recurring one on its next date', async () => {
    const school = await service.school();
    await sql(
      school,
      `insert into @holiday (name, date, is_recurring) values
        ('Passed', $today - 1, false), ('Far', $today + 365, false), ('Today', $today, false), ('Yearly', $today - interval '3 years' + interval '5 days', true),
        ('Yearly in two years', $today + interval '2 years' + interval '4 days', true),
        ('Third', $today + 9, false), ('Fourth', $today + 10, false)`,
    );
    const days = [
      await dateOf(school, '$today'),
      await dateOf(school, "($today - interval '3 years' + interval '5 days') + interval '3 years'"),
      await dateOf(school, '$today + 9'),
    ];
    expect((await dashboardOf(school.admin)).upcoming_holidays.map(({ name, date }) => [name, date])).toEqual([
      ['Today', days[0]],
      ['Yearly', days[1]],
      ['Third', days[2]],
    ]);
    await sql(school, `update @holiday set is_recurring = true where name = 'Today'`);
    expect((await dashboardOf(school.admin)).upcoming_holidays.map(({ name }) => name)).toEqual([
      'Today',
      'Yearly',
      'Third',
    ]);
  });

  test('has a recurring holiday on February 29 once per year, on February 28 in years that are not leap years', async () => {
    const school = await service.school();
    await sql(
      school,
      `insert into @holiday (name, date, is_recurring) values ('Leap', '2024-02-29', true), ('Once', '2025-07-01', false)`,
    );
    const settings = {
      'app.tenant_id': String(school.id),
      'app.scope': 'all',
      search_path: `${school.schema}, public`,
    };
    const between = async (from: string, to: string) =>
      withRole(await school.database.addressFor(), 'school_tenant', settings, async ({ rows }) =>
        (
          await rows<{ line: string }>(
            "select name || ' ' || date as line from api.holidays_between($1, $2) order by date",
            [from, to],
          )
        ).map(({ line }) => line),
      );
    expect(await between('2024-01-01', '2028-12-31')).toEqual(
      ['2024-02-29', '2025-02-28', '2026-02-28', '2027-02-28', '2028-02-29'].flatMap((day) =>
        day.startsWith('2025') ? [`Leap ${day}`, 'Once 2025-07-01'] : [`Leap ${day}`],
      ),
    );
    expect(await between('2025-03-01', '2026-02-27')).toEqual(['Once 2025-07-01']);
  });

  test('counts leave requests without a decision', async () => {
    const school = await service.school();
    const [teacher = 0] = await addTeachers(school, 1);
    await sql(
      school,
      `insert into @teacher_leave (teacher_id, leave_type, start_date, end_date, status, decided_at) values
        (${teacher}, 'sick', $today, $today, 'pending', null), (${teacher}, 'sick', $today + 3, $today + 4, 'pending', null),
        (${teacher}, 'sick', $today + 6, $today + 7, 'approved', now()), (${teacher}, 'sick', $today + 8, $today + 9, 'rejected', now())`,
    );
    expect((await dashboardOf(school.admin)).pending_leaves).toBe(2);
  });

  test('has the five latest notifications of the user', async () => {
    const school = await service.school();
    const clerk = await school.user(['accountant']);
    await sql(
      school,
      `insert into @notification (user_id, title, message, type, action_url, read_at)
       select case when n % 4 = 0 then 1 else ${clerk.id} end, 'Title ' || n, 'Message ' || n, 'info', '/n/' || n, case when n % 2 = 0 then now() end from generate_series(1, 9) n`,
    );
    const { recent_notifications } = await dashboardOf(clerk);
    expect(recent_notifications.map(({ title }) => title)).toEqual([
      'Title 9',
      'Title 7',
      'Title 6',
      'Title 5',
      'Title 3',
    ]);
    expect(recent_notifications[2]).toMatchObject({
      message: 'Message 6',
      type: 'info',
      action_url: '/n/6',
      is_read: true,
    });
    expect(recent_notifications[0]).toMatchObject({ is_read: false });
    expect((await dashboardOf(school.admin)).recent_notifications.map(({ title }) => title)).toEqual([
      'Title 8',
      'Title 4',
    ]);
  });
});

const noFees = { collected_this_month: 0, pending: 0 };

describe('the scope of the dashboard', () => {
  test('a teacher gets the figures of the classes that they teach and their own leaves, and no fees', async () => {
    const school = await service.school();
    const [first, second, other] = [
      await school.classroom('First'),
      await school.classroom('Second'),
      await school.classroom('Other'),
    ];
    const user = await school.user(['teacher']);
    const [me = 0, colleague = 0, gone = 0, stranger = 0] = await addTeachers(school, 4);
    await sql(school, `update @teacher set user_id = ${user.id} where id = ${me}`);
    await sql(school, `update @teacher set deleted_at = now() where id = ${gone}`);
    await sql(school, `update @class set class_teacher_id = ${me} where id = ${first.classId}`);
    await sql(
      school,
      `insert into @teaching_assignment (class_id, teacher_id) values (${second.classId}, ${me}), (${second.classId}, ${colleague}), (${first.classId}, ${gone}), (${other.classId}, ${stranger})`,
    );
    await count(school);
    await sql(
      school,
      `insert into @teacher_leave (teacher_id, leave_type, start_date, end_date) values
        (${me}, 'sick', $today, $today), (${colleague}, 'sick', $today, $today)`,
    );
    const mine = [
      ...(await addStudents(school, 2, { class_id: first.classId })),
      ...(await addStudents(school, 1, { class_id: second.classId })),
    ];
    await addStudents(school, 1, { class_id: first.classId, is_active: false });
    const theirs = await addStudents(school, 4, { class_id: other.classId });
    await sql(
      school,
      `insert into @attendance (student_id, class_id, date, status) select id, class_id, $today, case when id = ${mine[0] ?? 0} then 'late' when id = ${mine[1] ?? 0} then 'absent' else 'present' end
       from @student where id = any ('{${[...mine, ...theirs].join()}}')`,
    );
    expect(await dashboardOf(user)).toMatchObject({
      total_students: 3,
      total_teachers: 2,
      total_classes: 2,
      attendance_today: { present: 2, absent: 1, late: 1, excused: 0 },
      fee_summary: noFees,
      pending_leaves: 1,
      not_visible: ['fee_summary'],
    });
    expect(await dashboardOf(school.admin)).toMatchObject({
      total_students: 7,
      total_teachers: 3,
      total_classes: 3,
      attendance_today: { present: 6, absent: 1, late: 1, excused: 0 },
      pending_leaves: 2,
      not_visible: [],
    });
    // A second role with the whole school in scope widens the figures.
    const both = await school.user(['teacher', 'accountant']);
    expect(await dashboardOf(both)).toMatchObject({
      total_students: 7,
      fee_summary: { pending: 0 },
      pending_leaves: 0,
      not_visible: ['pending_leaves'],
    });
  });

  test('a teacher without classes gets zeros', async () => {
    const school = await service.school();
    const { classId } = await school.classroom();
    await addStudents(school, 2, { class_id: classId });
    expect(await dashboardOf(await school.user(['teacher']))).toMatchObject({
      total_students: 0,
      total_teachers: 0,
      total_classes: 0,
    });
  });

  test('fees require fee.read for the whole school and the feature fees_management', async () => {
    const school = await service.school();
    const { yearId } = await school.classroom();
    const [student] = await addStudents(school, 1);
    await sql(school, `insert into @fee_structure (name, academic_year_id) values ('Tuition', ${yearId})`);
    await sql(
      school,
      `insert into @student_fee (student_id, fee_structure_id, amount, due_date) values (${student}, 1, 90, $today)`,
    );
    const fees = { fee_summary: { collected_this_month: 0, pending: 90 }, not_visible: ['pending_leaves'] };
    const hidden = (...not_visible: string[]) => ({ fee_summary: noFees, pending_leaves: 0, not_visible });
    expect(await dashboardOf(await school.user(['transport_manager']))).toMatchObject(
      hidden('fee_summary', 'pending_leaves'),
    );
    expect(await dashboardOf(await school.user(['accountant']))).toMatchObject(fees);
    // fee.read in the student or teacher role covers only the user's own fees.
    await sql(
      school,
      `insert into @role_permission (role_id, permission_id) select r.id, p.id from @role r, core.permission p where r.name in ('student', 'teacher') and p.name in ('fee.read', 'leave.manage')`,
    );
    for (const own of ['student', 'teacher']) {
      const user = await school.user(['transport_manager', own]);
      expect(await dashboardOf(user)).toMatchObject(hidden('fee_summary', 'pending_leaves'));
    }
    await service.operator.put(`/api/platform/tenants/${school.id}`, { feature_flags: { fees_management: false } });
    expect(await dashboardOf(school.admin)).toMatchObject(hidden('fee_summary'));
  });

  test('a teacher with a second role that has only fee.read gets no fees', async () => {
    const school = await service.school();
    expect((await dashboardOf(await school.user(['teacher', await school.role('fee.read')]))).fee_summary).toEqual(
      noFees,
    );
  });

  test('a user without dashboard.read gets the figures of their own record, and 0 for those without one', async () => {
    const school = await service.school();
    const { classId, yearId } = await school.classroom();
    await school.classroom('Other');
    const email = `pupil@${school.subdomain}.example`;
    const [own] = await addStudents(school, 1, {
      email,
      class_id: classId,
      create_user_account: true,
      password: testPassword,
    });
    const [mate] = await addStudents(school, 1, { class_id: classId });
    const user = await school.user([]);
    const [me, colleague] = await addTeachers(school, 2);
    await sql(school, `update @teacher set user_id = ${user.id} where id = ${me}`);
    await sql(school, `update @class set class_teacher_id = ${me} where id = ${classId}`);
    await sql(
      school,
      `insert into @teacher_leave (teacher_id, leave_type, start_date, end_date) select id, 'sick', $today, $today from @teacher where id in (${me}, ${colleague})`,
    );
    await sql(
      school,
      `insert into @attendance (student_id, class_id, date, status) values (${own}, ${classId}, $today, 'late'), (${mate}, ${classId}, $today, 'absent')`,
    );
    await sql(school, `insert into @fee_structure (name, academic_year_id) values ('Tuition', ${yearId})`);
    await sql(
      school,
      `insert into @student_fee (student_id, fee_structure_id, amount, due_date) values (${own}, 1, 70, $today), (${mate}, 1, 500, $today)`,
    );
    await sql(
      school,
      `insert into @payment (student_id, student_fee_id, amount, payment_date, payment_method) select student_id, id, amount / 10, $today, 'cash' from @student_fee`,
    );
    const student = await service.anonymous.login({ tenant_id: school.id, email, password: testPassword });
    expect(await dashboardOf(student)).toMatchObject({
      academic_year: { name: expect.any(String) as unknown },
      total_students: 1,
      total_teachers: 1,
      total_classes: 1,
      attendance_today: { present: 1, absent: 0, late: 1, excused: 0 },
      fee_summary: { collected_this_month: 7, pending: 63 },
      pending_leaves: 0,
      not_visible: ['pending_leaves'],
    });
    expect(await dashboardOf(user)).toMatchObject({
      total_students: 0,
      total_teachers: 1,
      total_classes: 1,
      attendance_today: { present: 0, absent: 0, late: 0, excused: 0 },
      fee_summary: noFees,
      pending_leaves: 1,
      not_visible: ['total_students', 'attendance_today', 'fee_summary'],
    });
    for (const client of [await school.user([]), await school.user([await school.role('fee.read')])])
      expect(await dashboardOf(client)).toEqual({
        academic_year: expect.objectContaining({ id: yearId }) as unknown,
        total_students: 0,
        total_teachers: 0,
        total_classes: 0,
        attendance_today: { present: 0, absent: 0, late: 0, excused: 0 },
        fee_summary: noFees,
        pending_leaves: 0,
        not_visible: [
          ...['total_students', 'total_teachers', 'total_classes', 'attendance_today', 'fee_summary'],
          'pending_leaves',
        ],
        upcoming_holidays: [],
        recent_notifications: [expect.objectContaining({ type: 'account.created' })],
      });
    expect((await service.operator.get(path, 403)).error).toBe('forbidden');
    await service.anonymous.get(path, 401);
  });
});
