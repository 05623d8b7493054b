import { setTimeout as pause } from 'node:timers/promises';
import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { facts, refresh } from '../support/database/facts.ts';
import { serviceOfFile } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

// The demo school, first as loaded, then with changes.
const service = await serviceOfFile();
const { database } = service;
let admin: Client;
let id: number;
let yearId: number;
let year: { from: string; to: string };

beforeAll(async () => {
  const passwords = shared.passwords({ memoryCost: 64 });
  await database.query("delete from platform.user_account where email like '%demo.example'");
  await shared.withOwner(database.url, (owner) => shared.loadDemo(owner, passwords));
  [{ id }] = (await database.query<{ id: number }>(
    "select id::integer from platform.tenant where subdomain = 'demo'",
  )) as [{ id: number }];
  admin = await service.anonymous.login({ subdomain: 'demo', email: 'admin@demo.example', password: 'demo-password' });
  const { data } =
    await admin.get<{ id: number; is_current: boolean; start_date: string; end_date: string }[]>(
      '/api/academics/years',
    );
  const current = data.find(({ is_current }) => is_current);
  yearId = current?.id ?? 0;
  year = { from: current?.start_date ?? '', to: current?.end_date ?? '' };
});

const read = <R extends Record<string, unknown>>(query: string) => facts<R>(database, query);
const one = async <R extends Record<string, unknown>>(query: string) => (await read<R>(query))[0];

interface Sums {
  billed: number;
  collected: number;
  outstanding: number;
  overdue: number;
  waived: number;
  discounted: number;
}
const sums =
  'sum(billed) as billed, sum(collected) as collected, sum(outstanding) as outstanding, sum(overdue) as overdue, sum(waived) as waived, sum(discounted) as discounted';
const only = ({ billed, collected, outstanding, overdue, waived, discounted }: Sums): Sums => ({
  billed,
  collected,
  outstanding,
  overdue,
  waived,
  discounted,
});

/** The finance summary of the API, and the same figures from the facts. */
async function money() {
  const { data } = await admin.get<
    Sums & { currency: string; by_component: (Sums & { name: string })[]; by_source: Record<string, Sums> }
  >('/api/finance/summary');
  const api = {
    all: { ...only(data), currency: data.currency },
    components: data.by_component.map(({ name, ...rest }) => ({ name, ...only(rest) })),
    sources: Object.entries(data.by_source).map(([name, rest]) => ({ name, ...only(rest) })),
  };
  const from = `from analytics.fee_months where academic_year_id = ${String(yearId)}`;
  const mart = {
    all: await one(`select ${sums}, min(currency) as currency ${from}`),
    components: await read(
      `select component as name, ${sums} ${from} and source = 'student_fees' group by 1 order by 1`,
    ),
    sources: await read(`select source as name, ${sums} ${from} group by 1 order by 1 desc`),
  };
  return { api, mart };
}

/** The attendance of all classes from the API, summed, and the same figures from the facts. */
async function attendance() {
  const { data: classes } = await admin.get<{ id: number }[]>(
    `/api/classes?academic_year_id=${String(yearId)}&pageSize=100`,
  );
  const api: Record<string, unknown>[] = [];
  for (const each of classes) {
    const { data } = await admin.get<{
      summary: { present: number; absent: number; late: number; attendance_rate: number };
    }>(`/api/attendance/class/${String(each.id)}/summary?from_date=${year.from}&to_date=${year.to}`);
    const { present, absent, late, attendance_rate } = data.summary;
    api.push({ class_id: each.id, present, absent, late, percent: attendance_rate });
  }
  const rows = (view: string) =>
    read(`select class_id, sum(present) as present, sum(absent) as absent, sum(late) as late, round(100.0 * sum(present + late) / sum(marked), 2) as percent
          from analytics.${view} where academic_year_id = ${String(yearId)} group by 1`);
  const byClass = (list: Record<string, unknown>[]) =>
    [...list].sort((a, b) => Number(a['class_id']) - Number(b['class_id']));
  return {
    api: byClass(api),
    days: byClass(await rows('attendance_days')),
    months: byClass(await rows('attendance_months')),
  };
}

/** Students by class, from the API and from the facts of this month. */
async function students() {
  const { data } = await admin.get<{ id: number; student_count: number }[]>(
    `/api/classes?academic_year_id=${String(yearId)}&pageSize=100`,
  );
  const mart = await read<{ id: number; student_count: number }>(
    `select class_id as id, sum(students) as student_count from analytics.enrollments where month = date_trunc('month', now() at time zone 'Europe/London')::date group by 1 having sum(students) > 0`,
  );
  const sorted = (list: { id: number; student_count: number }[]) =>
    list.map((each) => ({ id: each.id, student_count: each.student_count })).sort((a, b) => a.id - b.id);
  return { api: sorted(data), mart: sorted(mart) };
}

describe('facts of the demo school', () => {
  test('exist as soon as the school is loaded', async () => {
    expect(
      await one(
        'select name, students, teachers, classes, plan, price_monthly, status, refreshed_at is not null as is_read from analytics.tenants',
      ),
    ).toEqual({
      ...{
        name: 'Demo School',
        students: 600,
        teachers: 40,
        classes: 48,
        plan: 'Premium',
        price_monthly: 399,
        status: 'active',
        is_read: true,
      },
    });
  });

  test('match the finance summary: billed, paid, open and overdue amounts, in total, by component and by source', async () => {
    const { api, mart } = await money();
    expect(api.all.billed).toBeGreaterThan(500_000);
    expect(mart).toEqual(api);
  });

  test('match the sums of payments by method', async () => {
    const listed: Record<string, { payments: number; amount: number }> = {};
    for (let page = 1, pages = 1; page <= pages; page++) {
      const { data, pagination } = await admin.get<{ payment_method: string; amount: number }[]>(
        `/api/fees/payments?pageSize=100&page=${String(page)}`,
      );
      pages = pagination.totalPages;
      for (const { payment_method, amount } of data) {
        const sum = (listed[payment_method] ??= { payments: 0, amount: 0 });
        sum.payments++;
        sum.amount = Math.round(100 * (sum.amount + amount)) / 100;
      }
    }
    const mart = await read<{ method: string; payments: number; amount: number }>(
      'select method, sum(payments) as payments, sum(amount) as amount from analytics.payments group by 1',
    );
    expect(Object.fromEntries(mart.map(({ method, ...sum }) => [method, sum]))).toEqual(listed);
  });

  test('match the attendance summary of each class, by day and by month', async () => {
    const { api, days, months } = await attendance();
    expect(api).toHaveLength(24);
    expect(days).toEqual(api);
    expect(months).toEqual(api);
  });

  test('match the student counts of the classes this month, and the enrollments of the month a year ago', async () => {
    const { api, mart } = await students();
    expect(mart).toEqual(api);
    const [before] = await database.query<{ n: number }>(
      `select count(*)::integer as n from tenant_${String(id)}.enrollment e join tenant_${String(id)}.academic_year y on y.id = e.academic_year_id and not y.is_current`,
    );
    expect(
      await one(
        `select sum(students)::integer as n from analytics.enrollments e join analytics.academic_years y using (tenant_id, academic_year_id) where not y.is_current and e.month = (date_trunc('month', y.start_date) + interval '2 months')::date`,
      ),
    ).toEqual(before);
  });

  test('match the workload of the teachers', async () => {
    const { data } = await admin.get<{ id: number }[]>('/api/teachers?pageSize=100');
    const bands: Record<string, { teachers: number; periods: number }> = {};
    for (const teacher of data) {
      const { data: load } = await admin.get<{ assigned_periods: number }>(
        `/api/teachers/${String(teacher.id)}/workload`,
      );
      const n = load.assigned_periods;
      const band = (bands[n === 0 ? '0' : n < 10 ? '1-9' : n < 20 ? '10-19' : n < 30 ? '20-29' : '30+'] ??= {
        teachers: 0,
        periods: 0,
      });
      band.teachers++;
      band.periods += n;
    }
    const mart = await read<{ band: string; teachers: number; periods: number }>(
      'select band, teachers, periods from analytics.teacher_loads',
    );
    expect(Object.fromEntries(mart.map(({ band, ...rest }) => [band, rest]))).toEqual(bands);
  });

  test('match the occupancy of the transport dashboard', async () => {
    type Occupancy = Record<'route_id' | 'capacity' | 'pickup_count' | 'drop_count' | 'percent', number>;
    const { data } = await admin.get<{ occupancy: Occupancy[] }>('/api/transport/dashboard');
    const mart = await read<Occupancy>(
      'select route_id, seats as capacity, riders_pickup as pickup_count, riders_drop as drop_count, round(100 * occupancy) as percent from analytics.transport_routes where is_active order by route_id',
    );
    expect(mart).toEqual(
      data.occupancy
        .map(({ route_id, capacity, pickup_count, drop_count, percent }) => ({
          route_id,
          capacity,
          pickup_count,
          drop_count,
          percent,
        }))
        .sort((a, b) => a.route_id - b.route_id),
    );
  });
});

describe('the next refresh includes', () => {
  test('a corrected mark, a payment, its reversal, a waived fee, a discount, a student who leaves, and one who changes class', async () => {
    const { data: fees } = await admin.get<{ id: number; balance: number }[]>(
      '/api/finance/student-fees?status=pending&pageSize=3',
    );
    const [first, second, third] = fees;
    const paid = async (method: string) =>
      (
        await read<{ payments: number; amount: number; reversals: number; reversed: number }>(
          `select coalesce(sum(payments), 0) as payments, coalesce(sum(amount), 0) as amount, coalesce(sum(reversals), 0) as reversals, coalesce(sum(reversed), 0) as reversed
           from analytics.payments where method = '${method}'`,
        )
      )[0] ?? { payments: 0, amount: 0, reversals: 0, reversed: 0 };
    const cardBefore = await paid('card');
    const { data: payment } = await admin.post<{ id: number }>(
      '/api/finance/payments',
      { student_fee_id: first?.id, amount: 12.34, payment_method: 'Card' },
      201,
    );
    await admin.post(
      '/api/finance/payments',
      { student_fee_id: second?.id, amount: 10.01, payment_method: 'cheque' },
      201,
    );
    await admin.post(`/api/finance/payments/${String(payment.id)}/reverse`, { reason: 'Bounced' });
    const discount = { percent: 30, reason: 'Sibling' };
    for (const fee of [first, second])
      await admin.post(`/api/finance/student-fees/${String(fee?.id)}/discounts`, discount, 201);
    await admin.post(`/api/finance/student-fees/${String(second?.id)}/waive`, { reason: 'Hardship' });
    await admin.delete(`/api/finance/student-fees/${String(third?.id)}`);

    const [mark] = await database.query<{ student_id: number; class_id: number; date: string }>(
      `select student_id::integer, class_id::integer, to_char(date, 'YYYY-MM-DD') as date from tenant_${String(id)}.attendance where status = 'absent' order by id limit 1`,
    );
    await admin.post('/api/attendance/mark', {
      class_id: mark?.class_id,
      date: mark?.date,
      records: [{ student_id: mark?.student_id, status: 'present' }],
    });

    const { data: pupils } = await admin.get<{ id: number; class_id: number; grade_id: number }[]>(
      `/api/students?class_id=${String(mark?.class_id)}&pageSize=5`,
    );
    await admin.delete(`/api/students/${String(pupils[0]?.id)}`);
    const { data: classes } = await admin.get<{ id: number; grade_id: number; academic_year_id: number }[]>(
      `/api/classes?academic_year_id=${String(yearId)}&pageSize=100`,
    );
    const other = classes.find((each) => each.grade_id === pupils[1]?.grade_id && each.id !== mark?.class_id);
    await admin.put(`/api/students/${String(pupils[1]?.id)}`, { class_id: other?.id });

    // Wait until each part has been refreshed once: a connection reports the numbers of changed rows at the end of a
    // transaction that is at least a second later, or after ten seconds. So use all connections of the API again.
    const parts = new Set(['fees', 'payments', 'attendance_days', 'enrollments']);
    await until(async () => {
      await pause(500);
      await Promise.all(Array.from({ length: 4 }, () => admin.get('/api/finance/summary')));
      const [row] = await database.query<{ written: Record<string, number> }>(
        'select core.analytics_refresh($1) as written',
        [id],
      );
      for (const part of parts) if (row?.written[part]) parts.delete(part);
      return parts.size === 0 || undefined;
    });

    const { api, mart } = await money();
    expect(api.all.waived).toBeGreaterThan(0);
    expect(api.all.discounted).toBeGreaterThan(0);
    expect(mart).toEqual(api);
    expect(await paid('cheque')).toEqual({ payments: 1, amount: 10.01, reversals: 0, reversed: 0 });
    const card = await paid('card');
    expect({
      payments: card.payments - cardBefore.payments,
      amount: Math.round(100 * (card.amount - cardBefore.amount)) / 100,
    }).toEqual({
      payments: 1,
      amount: 12.34,
    });
    expect(card).toMatchObject({ reversals: 1, reversed: 12.34 });
    const marks = await attendance();
    expect(marks.days).toEqual(marks.api);
    expect(marks.months).toEqual(marks.api);
    const counted = await students();
    expect(counted.mart).toEqual(counted.api);
    const month = `month = date_trunc('month', now() at time zone 'Europe/London')::date`;
    expect(
      await read(
        `select class_id = ${String(other?.id)} as is_new_class, sum(joiners) as joiners, sum(leavers) as leavers from analytics.enrollments where ${month} and class_id in (${String(mark?.class_id)}, ${String(other?.id)}) group by 1 order by 1`,
      ),
    ).toEqual([
      { is_new_class: false, joiners: 0, leavers: 2 },
      { is_new_class: true, joiners: 1, leavers: 0 },
    ]);
    expect(await refresh(database, id)).toEqual(
      expect.objectContaining({
        fees: 0,
        payments: 0,
        enrollments: 0,
        attendance_days: 0,
        attendance_months: 0,
        teacher_loads: 0,
      }),
    );
  });
});
