import { describe, expect, test } from '@jest/globals';
import type { Usage as UsageSchema } from '../../src/endpoints/platform-usage.ts';
import { analystOf } from '../support/fixtures/analysts.ts';
import type { OutputOf } from '../support/client/output.ts';
import { until } from '../support/client/until.ts';
import { serviceWithSchool } from '../support/server/service.ts';

type Usage = OutputOf<typeof UsageSchema>;

const { service, school } = await serviceWithSchool({}, undefined, { usageIntervalMs: 100 });
const { operator, database } = service;
const other = await service.school();

const usageOf = async (query = '', from = operator) => (await from.get<Usage>(`/api/platform/usage${query}`)).data;

interface Day {
  students?: number;
  teachers?: number;
  active_users?: number;
  messages?: number;
  storage_bytes?: number;
  requests?: number;
}

/** Replaces the usage of a school on the day before today by so many months and days. */
async function record(tenantId: number, months: number, days: number, usage: Day): Promise<void> {
  await database.query(
    `insert into platform.usage_day
     select (jsonb_populate_record(null::platform.usage_day, $1)).*
     on conflict (tenant_id, date) do update set
       students = excluded.students, teachers = excluded.teachers, active_users = excluded.active_users,
       messages = excluded.messages, storage_bytes = excluded.storage_bytes, requests = excluded.requests`,
    [
      JSON.stringify({
        tenant_id: tenantId,
        date: await dayBefore(months, days),
        created_at: new Date(),
        updated_at: new Date(),
        ...usage,
      }),
    ],
  );
}

/** The first day of an earlier month plus some days; for this month, today minus some days. */
async function dayBefore(months: number, days: number): Promise<string> {
  const [found] = await database.query<{ day: string }>(
    `select case when $1 = 0 then current_date - $2::integer
       else (date_trunc('month', now()) - make_interval(months => $1))::date + $2::integer end::text as day`,
    [months, days],
  );
  return found?.day ?? '';
}

describe('GET /api/platform/usage', () => {
  test('shows a school by month: the highest students, teachers and storage, and the sums of the rest', async () => {
    await record(school.id, 2, 3, { students: 90, teachers: 9, storage_bytes: 5e9, active_users: 10, requests: 100 });
    await record(school.id, 2, 4, { students: 80, teachers: 8, storage_bytes: 4e9, active_users: 21, requests: 1 });
    await record(school.id, 2, 5, { messages: 7 });
    await record(other.id, 2, 4, { students: 5, active_users: 2, requests: 1000 });
    const { months } = await usageOf(`?tenant_id=${school.id}`);
    expect(months).toHaveLength(12);
    expect(months[9]).toEqual({
      month: (await dayBefore(2, 0)).slice(0, 7),
      students: 90,
      teachers: 9,
      storage_bytes: 5e9,
      active_users: 16,
      most_active_users: 21,
      requests: 101,
      messages: 7,
    });
    expect(months[8]).toEqual({
      month: (await dayBefore(3, 0)).slice(0, 7),
      students: null,
      teachers: null,
      storage_bytes: null,
      active_users: null,
      most_active_users: null,
      requests: null,
      messages: null,
    });
  });

  test('adds the schools up, and counts a user of two schools twice', async () => {
    const { tenant_id, months } = await usageOf('?months=3');
    expect(tenant_id).toBeNull();
    expect(months.map(({ month }) => month)).toEqual(
      await Promise.all([2, 1, 0].map(async (n) => (await dayBefore(n, 0)).slice(0, 7))),
    );
    expect(months[0]).toMatchObject({ students: 95, teachers: 9, active_users: 17, most_active_users: 23 });
    expect(months[0]).toMatchObject({ requests: 1101, messages: 7, storage_bytes: 5e9 });
  });

  test('shows the last 31 days of a school', async () => {
    await record(school.id, 0, 1, { active_users: 4, requests: 12, messages: 3 });
    await record(school.id, 0, 31, { active_users: 999 });
    const { days } = await usageOf(`?tenant_id=${school.id}`);
    expect(days).toHaveLength(31);
    expect(days[29]).toEqual({ date: await dayBefore(0, 1), active_users: 4, requests: 12, messages: 3 });
    expect(days.map(({ active_users }) => active_users)).not.toContain(999);
    expect(days[30]?.date).toBe(await dayBefore(0, 0));
  });

  test('shows what is used now, with the limits of the plan, and the schools that come near them', async () => {
    const busy = await service.school();
    const { data: plan } = await operator.post<{ id: number; name: string }>(
      '/api/platform/plans',
      { name: 'Tiny', price_monthly: 1, max_students: 10, max_teachers: 4 },
      201,
    );
    await operator.put(`/api/platform/tenants/${busy.id}`, { plan_id: plan.id });
    await database.query('update platform.tenant_usage set students = 9, teachers = 1 where tenant_id = $1', [busy.id]);
    expect(await usageOf(`?tenant_id=${busy.id}`)).toMatchObject({
      tenant_id: busy.id,
      current: { students: 9, teachers: 1, max_students: 10, max_teachers: 4 },
    });
    const { near_limit } = await usageOf();
    expect(near_limit).toEqual([
      {
        tenant_id: busy.id,
        name: expect.any(String),
        plan: 'Tiny',
        students: 9,
        max_students: 10,
        teachers: 1,
        max_teachers: 4,
        used_share: 0.9,
      },
    ]);
    await operator.delete(`/api/platform/tenants/${busy.id}`);
    expect((await usageOf()).near_limit).toEqual([]);
    await operator.get(`/api/platform/usage?tenant_id=${busy.id}`);
  });

  test('refuses unknown schools, wrong numbers of months and unknown parameters', async () => {
    await operator.get('/api/platform/usage?tenant_id=999999', 404);
    for (const query of ['months=0', 'months=37', 'months=x', 'tenant_id=0', 'day=1'])
      expect(await operator.get(`/api/platform/usage?${query}`, 400)).toMatchObject({ error: 'validation_error' });
  });

  test('shows analysts of some schools only those, and users of schools nothing', async () => {
    const analyst = await analystOf(service, [other.id]);
    const { months } = await usageOf('?months=3', analyst);
    expect(months[0]).toMatchObject({ students: 5, active_users: 2, requests: 1000 });
    expect((await usageOf(`?tenant_id=${other.id}&months=3`, analyst)).months).toEqual(months);
    await analyst.get(`/api/platform/usage?tenant_id=${school.id}`, 404);
    const { data: file } = await analyst.get<Buffer>('/api/platform/usage/export');
    expect(file.toString()).not.toContain(school.subdomain);
    await analyst.get(`/api/platform/usage/export?tenant_id=${school.id}`, 404);
    expect((await usageOf('?months=3', await analystOf(service, null))).months[0]).toMatchObject({ students: 95 });
    await school.admin.get('/api/platform/usage', 403);
    await service.anonymous.get('/api/platform/usage', 401);
  });
});

describe('GET /api/platform/usage/export', () => {
  const lines = async (query: string) =>
    (await operator.get<Buffer>(`/api/platform/usage/export?format=csv&${query}`)).data
      .toString()
      .replace(/^\uFEFF/, '')
      .trimEnd()
      .split('\r\n');

  test('writes a row for each school and month, or day', async () => {
    const head =
      'period_start,tenant_id,subdomain,name,students,teachers,active_users,requests,messages,storage_bytes,' +
      'plan,max_students,max_teachers';
    const month = await dayBefore(2, 0);
    const [first, ...months] = await lines('');
    expect(first).toBe(head);
    expect(months.filter((line) => line.startsWith(month)).map((line) => line.split(',').toSpliced(2, 2))).toEqual([
      [month, String(school.id), '90', '9', '16', '101', '7', '5000000000', expect.any(String), '25000', '2000'],
      [month, String(other.id), '5', '', '2', '1000', '', '', expect.any(String), '25000', '2000'],
    ]);
    const [, ...days] = await lines(`period=day&tenant_id=${school.id}`);
    expect(days.map((line) => line.split(',')[0]).slice(0, 3)).toEqual([
      await dayBefore(2, 3),
      await dayBefore(2, 4),
      await dayBefore(2, 5),
    ]);
  });

  test('continues with the next schools after each page', async () => {
    await database.query(
      `insert into platform.usage_day (tenant_id, date, requests)
       select id, date_trunc('month', now())::date - 335 + n, n
       from unnest($1::bigint[]) id cross join generate_series(1, 300) n
       on conflict do nothing`,
      [[school.id, other.id]],
    );
    await database.query(
      `insert into platform.usage_day (tenant_id, date, requests)
       select $1, date_trunc('month', now())::date - 1100 + n, n from generate_series(1, 700) n on conflict do nothing`,
      [other.id],
    );
    // Requests of earlier tests may be added to the last days meanwhile.
    const [last] = await database.query<{ day: string }>('select (current_date - 2)::text as day');
    const rows = (await lines('period=day&months=36'))
      .slice(1)
      .map((line) => line.split(',').slice(0, 2).join(' '))
      .filter((key) => key < (last?.day ?? ''));
    const stored = await database.query<{ key: string }>(
      `select date || ' ' || tenant_id as key from platform.usage_day
       where date >= date_trunc('month', now()) - interval '35 months' and date < current_date - 2
       order by tenant_id, date`,
    );
    expect(rows).toEqual(stored.map(({ key }) => key));
    expect(rows.length).toBeGreaterThan(1000);
    await database.query('delete from platform.usage_day');
  });

  test('refuses an unknown period', async () => {
    await operator.get('/api/platform/usage/export?period=week', 400);
  });
});

describe('the requests of a school', () => {
  const requestsToday = async () => (await usageOf(`?tenant_id=${other.id}`)).days.at(-1)?.requests ?? 0;

  test('are counted with a login or an API key, refused ones too, and not without', async () => {
    // Logging in counts as nobody's request.
    const { admin } = other;
    await service.anonymous.get('/api/auth/profile', 401);
    const before = await requestsToday();
    for (let n = 0; n < 3; n++) await admin.get('/api/students');
    await admin.get('/api/students/999999', 404);
    await until(async () => ((await requestsToday()) >= before + 4 ? true : undefined));
    expect(await requestsToday()).toBe(before + 4);
  });
});
