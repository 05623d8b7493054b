import { type Client } from './client.ts';
import { operatorEmail, testPassword, type TestService, unique } from './service.ts';
import { send } from './wire.ts';

/** What GraphQL answered, or the envelope of a request that did not get there. */
export interface Asked<T> {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  data: T;
  errors: { message: string; path?: (string | number)[]; extensions: { code: string } }[];
  error: string;
  message: string;
}

/** Sends a query to /graphql. */
export async function askGraphql<T>(
  service: TestService,
  token: string,
  query: string,
  more: { variables?: unknown; operationName?: string } = {},
): Promise<Asked<T>> {
  const { status, headers, text } = await send(service.url, { method: 'POST', path: '/graphql', token, body: { query, ...more } });
  return { status, headers, ...(JSON.parse(text) as Omit<Asked<T>, 'status' | 'headers'>) };
}

/** An operator who is an analyst of some schools, or of all; logged in. */
export async function analystOf(service: TestService, tenantIds: number[] | null): Promise<Client & { email: string }> {
  const email = `${unique('analyst')}@test.example`;
  await service.database.query(
    `insert into platform.user_account (email, password_hash, first_name, last_name, role, analyst_tenant_ids, email_verified_at)
     select $1, password_hash, 'Ana', 'Lyst', 'analyst', $2, now() from platform.user_account where email = $3`,
    [email, tenantIds, operatorEmail],
  );
  return Object.assign(await service.anonymous.login({ is_platform: true, email, password: testPassword }), { email });
}

/** Lets the view of jobs be something else while `work` is done: rows that take long, or are many, or tell what they are read as. */
export async function insteadOfJobs(service: TestService, rows: { task: string; count: number }, work: () => Promise<void>): Promise<void> {
  const [view] = await service.database.query<{ text: string }>("select pg_get_viewdef('analytics.jobs'::regclass) as text");
  const become = (text: string) => service.database.query(`create or replace view analytics.jobs with (security_invoker = true) as ${text}`);
  await become(
    `select 'job ' || n as job_key, (${rows.task}) collate "default" as task, null::bigint as tenant_id, 0::bigint as ready, 0::bigint as waiting, 0::bigint as running,
     0::bigint as failed, null::numeric as oldest_ready_seconds from generate_series(1, ${rows.count}) n`,
  );
  try {
    await work();
  } finally {
    await become(view?.text ?? '');
  }
}

/** From now on no worker reads facts out of schools: what a test writes into the mart stays. */
export async function keepFacts(service: TestService): Promise<void> {
  await service.database.query(
    `create or replace function core.analytics_refresh(p_tenant_id bigint, p_everything boolean default false) returns json language sql as 'select null::json'`,
  );
}

/** How a made-up school differs from others. */
export interface Facts {
  /** Marks of a class on a day: how many of 20 are absent, by the month and the day. */
  absent: (month: number, day: number) => number;
  /** Billed for each class in a month, and how much of a hundred of it is paid. */
  billed: number;
  paid: number;
  /** Teachers by their periods a week. */
  bands: Record<string, number>;
  /** Seats of each route, and who rides. */
  routes: [seats: number, riders: number][];
  /** Messages of a month by channel. */
  messages: number;
  failedJobs: number;
}

const grades = ['Grade 1', 'Grade 2'];
const months = [9, 10, 11];

/** Writes facts of the autumn of 2026 into the mart, the same ones at each run: two classes of 20, twenty days a month. */
export async function writeFacts(service: TestService, tenantId: number, facts: Facts): Promise<void> {
  const query = (text: string, values: unknown[]) => service.database.query(text, values);
  const month = (n: number) => `2026-${String(n).padStart(2, '0')}-01`;
  const insert = (table: string, rows: Record<string, unknown>[]) =>
    query(`insert into ${table} select * from jsonb_populate_recordset(null::${table}, $1)`, [
      JSON.stringify(rows.map((row) => ({ tenant_id: tenantId, ...row }))),
    ]);
  const each = <T>(make: (classId: number, month: number) => T[]) => grades.flatMap((_, index) => months.flatMap((n) => make(index + 1, n)));

  await query('delete from mart.school where tenant_id = $1', [tenantId]);
  await query("insert into mart.school (tenant_id, refreshed_at) values ($1, '2026-11-30T12:00:00Z')", [tenantId]);
  await insert('mart.academic_year', [{ academic_year_id: 1, name: '2026/27', start_date: '2026-09-01', end_date: '2027-07-31', is_current: true }]);
  await insert(
    'mart.class',
    grades.map((grade, index) => ({ class_id: index + 1, academic_year_id: 1, grade, section: 'A', capacity: 24 })),
  );
  await insert(
    'mart.enrollment',
    each((class_id, n) => [
      { class_id, month: month(n), gender: 'female', students: 11, joiners: n === 9 ? 11 : 0, leavers: 0 },
      { class_id, month: month(n), gender: 'male', students: n === 11 ? 8 : 9, joiners: n === 9 ? 9 : 0, leavers: n === 11 ? 1 : 0 },
    ]),
  );
  await insert(
    'mart.attendance_day',
    each((class_id, n) =>
      Array.from({ length: 20 }, (_, day) => {
        const absent = facts.absent(n, day + 1);
        return { class_id, date: `2026-${String(n).padStart(2, '0')}-${String(day + 1).padStart(2, '0')}`, absent, late: 1, present: 19 - absent };
      }),
    ),
  );
  await query(
    `insert into mart.attendance_month (tenant_id, class_id, month, days, present, late, absent)
     select tenant_id, class_id, date_trunc('month', date::timestamp)::date, count(*), sum(present), sum(late), sum(absent) from mart.attendance_day where tenant_id = $1 group by 1, 2, 3`,
    [tenantId],
  );
  await insert(
    'mart.fee_month',
    months.flatMap((n) =>
      ['Tuition', 'Transport'].map((component) => {
        const billed = component === 'Tuition' ? facts.billed : facts.billed / 10;
        return {
          academic_year_id: 1,
          month: month(n),
          source: 'student_fees',
          component,
          currency: 'USD',
          billed,
          waived: 0,
          collected: (billed * facts.paid) / 100,
          overdue: 0,
        };
      }),
    ),
  );
  await insert(
    'mart.payment_day',
    months.flatMap((n) => [
      { date: month(n), method: 'card', currency: 'USD', payments: 3, amount: facts.billed, reversals: 0, reversed: 0 },
      { date: month(n), method: 'cash', currency: 'USD', payments: 1, amount: 50, reversals: n === 10 ? 1 : 0, reversed: n === 10 ? 50 : 0 },
    ]),
  );
  await insert(
    'mart.teacher_load',
    Object.entries(facts.bands).map(([band, teachers]) => ({
      academic_year_id: 1,
      band,
      teachers,
      periods: band === '0' ? 0 : teachers * (parseInt(band) + 2),
    })),
  );
  await insert(
    'mart.transport_route',
    facts.routes.map(([seats, riders], index) => ({ route_id: index + 1, is_active: true, seats, riders_pickup: riders, riders_drop: riders - 1 })),
  );
  await insert(
    'mart.notification_day',
    months.flatMap((n) =>
      ['in_app', 'push', 'email'].map((channel) => {
        const failed = channel === 'email' ? 2 : 0;
        return {
          date: month(n),
          event: 'attendance.marked_absent',
          channel,
          messages: facts.messages,
          pending: 0,
          sent: facts.messages - failed,
          failed,
          dropped: 0,
          read: channel === 'in_app' ? 5 : 0,
        };
      }),
    ),
  );
  // Jobs that nobody runs: their last attempt has failed.
  for (let job = 0; job < facts.failedJobs; job++) {
    await query(
      `select graphile_worker.add_job('send_email', json_build_object('tenant_id', $1::bigint, 'user_id', 0), run_at => now() + interval '1 day', max_attempts => 1)`,
      [tenantId],
    );
  }
  await query(
    `update graphile_worker._private_jobs set attempts = max_attempts, last_error = 'made up' where (payload ->> 'tenant_id')::bigint = $1 and (payload ->> 'user_id') = '0'`,
    [tenantId],
  );
}
