import { beforeAll, describe, expect, test } from '@jest/globals';
import jwt from 'jsonwebtoken';
import type { Client } from '../support/client/client.ts';
import { steadyDay } from '../support/fixtures/days.ts';
import { type School, serviceOfFile, testPassword } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { StudentDashboard as StudentDashboardSchema } from '../../src/endpoints/students.ts';

await steadyDay();
const service = await serviceOfFile();

type StudentDashboard = OutputOf<typeof StudentDashboardSchema>;

interface Pupil {
  school: School;
  client: Client;
  id: number;
  userId: number;
  classId: number;
  yearId: number;
  /** A statement in the tables of the school; `$today` is the day that it is there. */
  sql: <R extends Record<string, unknown>>(text: string) => Promise<R[]>;
  see: () => Promise<StudentDashboard>;
}

const path = '/api/students/me/dashboard';

/** A student of a class of the current year, in a school of their own. */
async function pupil(fields: Record<string, unknown> = {}): Promise<Pupil> {
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
  // But for the greeting that a new log-in gets.
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
    see: async () => (await client.get<StudentDashboard>(path)).data,
  };
}

const dateOf = async ({ sql }: Pupil, expression: string) =>
  (await sql<{ day: string }>(`select (${expression})::date::text as day`))[0]?.day ?? '';

describe('the dashboard of a student', () => {
  test('of whom nothing is known yet has zeros and empty lists', async () => {
    const one = await pupil({ class_id: null, roll_number: '7' });
    expect(await one.see()).toEqual({
      student: { id: one.id, first_name: 'Pia', last_name: 'Pupil', admission_number: '000001', roll_number: '7' },
      class: null,
      attendance: { present: 0, absent: 0, late: 0, rate: null, last: [] },
      fees: { total: 0, paid: 0, waived: 0, pending: 0, overdue: 0, next_due: null },
      schedule: expect.objectContaining({
        date: await dateOf(one, '$today'),
        whose: null,
        holiday: null,
        on_leave: false,
        slots: [],
      }) as unknown,
      notifications: { unread: 0 },
    });
  });

  test('names the class, its grade, year and class teacher', async () => {
    const one = await pupil();
    await one.sql(`with t as (insert into @teacher (first_name, last_name) values ('Clara', 'Class') returning id)
      update @class set section = 'B', room = 'R1', class_teacher_id = t.id from t where class.id = ${one.classId}`);
    const dashboard = await one.see();
    expect(dashboard.class).toMatchObject({
      id: one.classId,
      name: 'Own class B',
      grade_name: 'Own class grade',
      room: 'R1',
      academic_year_id: one.yearId,
      class_teacher_name: 'Clara Class',
    });
    expect(dashboard.class?.['academic_year_name']).toMatch(/^Year \d{4}$/);
  });

  test('counts the attendance of the current academic year; who came late was there; the ten latest days come first', async () => {
    const one = await pupil();
    const other = (
      await one.school.admin.post<{ id: number }>(
        '/api/students',
        { first_name: 'O', last_name: 'Ther', class_id: one.classId },
        201,
      )
    ).data.id;
    await one.sql(`update @academic_year set start_date = $today - 100, end_date = $today + 100`);
    await one.sql(`insert into @attendance (student_id, class_id, date, status)
      select ${one.id}, ${one.classId}, $today - n, case when n % 6 = 1 then 'absent' when n % 6 = 2 then 'late' else 'present' end from generate_series(0, 12) n
      union all select ${one.id}, ${one.classId}, $today - 101, 'absent'
      union all select ${other}, ${one.classId}, $today - n, 'absent' from generate_series(0, 20) n`);
    const { attendance } = await one.see();
    // Days 0 to 12 ago: absent on 1 and 7, late on 2 and 8.
    expect(attendance).toMatchObject({ present: 11, absent: 2, late: 2, rate: 84.62 });
    const days = await Promise.all(Array.from({ length: 10 }, (_, n) => dateOf(one, `$today - ${n}`)));
    expect(attendance?.last).toEqual(
      days.map((date, n) => ({ date, status: n % 6 === 1 ? 'absent' : n % 6 === 2 ? 'late' : 'present' })),
    );
  });

  test('has no attendance where no academic year is current', async () => {
    const one = await pupil();
    await one.sql(
      `insert into @attendance (student_id, class_id, date, status) values (${one.id}, ${one.classId}, $today, 'present')`,
    );
    expect((await one.see()).attendance?.present).toBe(1);
    await one.sql('update @academic_year set is_current = false');
    expect((await one.see()).attendance).toEqual({ present: 0, absent: 0, late: 0, rate: null, last: [] });
  });

  test('adds fees and invoices up: all of it is paid, waived or pending; overdue is what was due before today, next is what falls due from today on', async () => {
    const one = await pupil();
    const other = (
      await one.school.admin.post<{ id: number }>('/api/students', { first_name: 'O', last_name: 'Ther' }, 201)
    ).data.id;
    await one.sql(
      `insert into @fee_structure (name, academic_year_id) select 'Fee ' || n, ${one.yearId} from generate_series(1, 7) n`,
    );
    await one.sql(`insert into @student_fee (student_id, fee_structure_id, amount, paid_amount, due_date, waived_at) values
      (${one.id}, 1, 100.10, 100.10, $today - 30, null), (${one.id}, 2, 200.20, 50.05, $today - 1, null), (${one.id}, 3, 300, 0, $today, null),
      (${one.id}, 4, 400, 100, $today + 10, null), (${one.id}, 5, 500, 20, $today - 60, now()), (${other}, 6, 600, 0, $today, null)`);
    // A bill, one that is overdue, a draft, a void one, somebody else's.
    await one.sql(`insert into @invoice (student_id, amount, paid_amount, due_date, issued_at, invoice_number, voided_at) values
      (${one.id}, 60, 10.5, $today + 5, now(), 'INV-2026-000001', null), (${one.id}, 7, 0, $today - 2, now(), 'INV-2026-000002', null),
      (${one.id}, 1000, 0, $today, null, null, null), (${one.id}, 2000, 0, $today, now(), 'INV-2026-000003', now()), (${other}, 4000, 0, $today, now(), 'INV-2026-000004', null)`);
    const { fees } = await one.see();
    expect(fees).toEqual({
      total: 1567.3,
      paid: 280.65,
      waived: 480,
      pending: 806.65,
      overdue: 157.15,
      next_due: { kind: 'student_fee', id: 3, name: 'Fee 3', amount: 300, due_date: await dateOf(one, '$today') },
    });
    await one.sql(`update @student_fee set paid_amount = amount where id = 3`);
    expect((await one.see()).fees?.next_due).toEqual({
      kind: 'invoice',
      id: 1,
      name: 'INV-2026-000001',
      amount: 49.5,
      due_date: await dateOf(one, '$today + 5'),
    });
    await one.sql(`update @invoice set paid_amount = amount where id = 1`);
    expect((await one.see()).fees?.next_due).toEqual({
      kind: 'student_fee',
      id: 4,
      name: 'Fee 4',
      amount: 300,
      due_date: await dateOf(one, '$today + 10'),
    });
    await one.sql(`update @student_fee set paid_amount = amount where id = 4`);
    expect((await one.see()).fees).toMatchObject({ overdue: 157.15, next_due: null });
  });

  describe("today's lessons", () => {
    let one: Pupil;
    beforeAll(async () => {
      one = await pupil();
      await one.sql(`update @class set room = 'R1' where id = ${one.classId}`);
      await one.sql(`update @timetable_config set working_days = '{1,2,3,4,5,6,7}'`);
      await one.sql(`insert into @teacher (first_name, last_name) values ('Tom', 'Teacher')`);
      await one.sql(`insert into @subject (name, code) values ('Art', 'ART'), ('Sport', 'SPO')`);
      await one.sql(
        `insert into @class (name, grade_id, academic_year_id) select 'Other', grade_id, academic_year_id from @class where id = ${one.classId}`,
      );
      await one.sql(`insert into @timetable_slot (class_id, academic_year_id, subject_id, teacher_id, day_of_week, period, room)
        select c.id, c.academic_year_id, case when period = 3 then 2 else 1 end, case when c.id = ${one.classId} and period = 3 then 1 end, d.day, period, case when period = 3 then 'Gym' end
        from @class c, generate_series(1, 7) d (day), (values (3), (1)) p (period)
        where d.day <> extract(isodow from $today) or c.id = ${one.classId} or period = 1`);
    });

    const slots = () => [
      expect.objectContaining({
        period: 1,
        class_id: one.classId,
        subject_id: 1,
        subject_name: 'Art',
        teacher_id: null,
        teacher_name: null,
        room: 'R1',
      }),
      expect.objectContaining({
        period: 3,
        class_id: one.classId,
        subject_id: 2,
        subject_name: 'Sport',
        teacher_id: 1,
        teacher_name: 'Tom Teacher',
        room: 'Gym',
      }),
    ];

    test('are those of their class on this day of the week, by period, in the room of the class unless they name one', async () => {
      const [day] = await one.sql<{ isodow: number }>('select extract(isodow from $today)::integer as isodow');
      expect((await one.see()).schedule).toMatchObject({
        whose: { kind: 'class', id: one.classId, name: 'Own class' },
        date: await dateOf(one, '$today'),
        day_of_week: day?.isodow,
        holiday: null,
        on_leave: false,
        slots: slots(),
      });
    });

    test('are none on a day on which the school does not work', async () => {
      await one.sql(`update @timetable_config set working_days = array[1 + extract(isodow from $today)::integer % 7]`);
      expect((await one.see()).schedule?.slots).toEqual([]);
      await one.sql(`update @timetable_config set working_days = '{1,2,3,4,5,6,7}'`);
    });

    test.each([
      ['a holiday', `insert into @holiday (name, date) values ('A day off', $today)`, 'A day off'],
      [
        'a holiday that comes every year',
        `insert into @holiday (name, date, is_recurring) values ('Every year', $today - interval '4 years', true)`,
        'Every year',
      ],
    ])('are none on %s, which has its name', async (_what, statement, holiday) => {
      await one.sql(statement);
      expect((await one.see()).schedule).toMatchObject({ holiday: { name: holiday }, slots: [] });
      await one.sql('delete from @holiday');
    });

    test('are as ever where the holiday is another day, or was one of another year', async () => {
      await one.sql(
        `insert into @holiday (name, date, is_recurring) values ('Yesterday', $today - 1, false), ('Tomorrow', $today + 1, true), ('Once', $today - interval '4 years', false)`,
      );
      expect((await one.see()).schedule).toMatchObject({ holiday: null, slots: slots() });
      await one.sql('delete from @holiday');
    });

    test('are none before the academic year of the class begins and after it ended', async () => {
      await one.sql('update @academic_year set start_date = $today + 1, end_date = $today + 50');
      expect((await one.see()).schedule?.slots).toEqual([]);
      await one.sql('update @academic_year set start_date = $today - 50, end_date = $today - 1');
      expect((await one.see()).schedule?.slots).toEqual([]);
      await one.sql('update @academic_year set start_date = $today - 1, end_date = $today');
      expect((await one.see()).schedule?.slots).toEqual(slots());
    });

    test('are those of the day that it is at the school', async () => {
      for (const zone of ['Pacific/Kiritimati', 'Pacific/Niue']) {
        await service.database.query('update platform.tenant set time_zone = $2 where id = $1', [one.school.id, zone]);
        const [row] = await one.sql<{ day: string }>(`select (now() at time zone '${zone}')::date::text as day`);
        expect((await one.see()).schedule?.date).toBe(row?.day);
      }
      await service.database.query("update platform.tenant set time_zone = 'UTC' where id = $1", [one.school.id]);
    });
  });

  test('counts their own unread notifications', async () => {
    const one = await pupil();
    const admin = (await one.school.admin.get<{ id: number }>('/api/auth/profile')).data.id;
    await one.sql(`insert into @notification (user_id, title, message, read_at) values
      (${one.userId}, 'a', 'a', null), (${one.userId}, 'b', 'b', null), (${one.userId}, 'c', 'c', now()), (${admin}, 'd', 'd', null)`);
    expect((await one.see()).notifications).toEqual({ unread: 2 });
  });

  test('leaves out what the school has not enabled', async () => {
    const one = await pupil();
    for (const [feature, part] of Object.entries({
      attendance: 'attendance',
      fees_management: 'fees',
      timetable: 'schedule',
    } as const)) {
      await service.operator.put(`/api/platform/tenants/${one.school.id}`, { feature_flags: { [feature]: false } });
      const dashboard = await one.see();
      expect(Object.entries(dashboard).filter(([, value]) => value === null)).toEqual([[part, null]]);
    }
  });
});

describe('who has one', () => {
  test('a user with the student role and a student behind them; without a student it is a 404', async () => {
    const one = await pupil();
    const nobody = await one.school.user(['student']);
    expect((await nobody.get(path, 404)).error).toBe('not_found');
    await one.sql(`update @student set user_id = ${nobody.id} where id = ${one.id}`);
    // What a session knows of its user comes with the next log-in.
    const again = await service.anonymous.login({
      tenant_id: one.school.id,
      email: nobody.email,
      password: testPassword,
    });
    expect((await again.get<StudentDashboard>(path)).data.student.id).toBe(one.id);
  });

  test('nobody else: neither the admin, nor a teacher, nor a user whose own role is called student', async () => {
    const one = await pupil();
    await one.school.admin.post('/api/rbac/roles', { name: 'Students' }, 201);
    for (const who of [one.school.admin, await one.school.user(['teacher']), await one.school.user(['Students'])]) {
      expect((await who.get(path, 403)).message).toBe('This needs the role student.');
    }
    await service.anonymous.get(path, 401);
    await service.operator.get(path, 403);
  });

  test('it ends with the student', async () => {
    const one = await pupil();
    await one.school.admin.delete(`/api/students/${one.id}`);
    expect((await one.client.get(path, 401)).error).toBe('invalid_token');
  });

  test('row security narrows it to what is their own, as it does wherever no permission is asked for', async () => {
    const one = await pupil();
    const scope = async (who: Client) => {
      const { sid } = jwt.decode(who.token) as { sid: string };
      const [row] = await service.database.query<{ scope: string }>(
        `select settings ->> 'scope' as scope from core.admit('auth_profile', $1, '{}', '{}')`,
        [sid],
      );
      return row?.scope;
    };
    expect(await scope(one.client)).toBe('own');
    expect(await scope(await one.school.user(['teacher']))).toBe('taught');
    expect(await scope(await one.school.user([]))).toBe('own');
    expect(await scope(await one.school.user(['teacher', 'accountant']))).toBe('all');
    expect(await scope(one.school.admin)).toBe('all');
  });
});
