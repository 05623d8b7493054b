import { describe, expect, test } from '@jest/globals';
import { race } from '../support/client/race.ts';
import { until } from '../support/client/until.ts';
import { manyConnections, operatorEmail, serviceOfFile, type School, unique } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { AuditLog as AuditLogSchema, TenantDetail } from '../../src/endpoints/platform.ts';
import type { Subscription as SubscriptionSchema } from '../../src/endpoints/subscription.ts';

const service = await serviceOfFile(manyConnections, 38);

type Tenant = OutputOf<typeof TenantDetail>;
type Subscription = OutputOf<typeof SubscriptionSchema>;
type AuditLog = OutputOf<typeof AuditLogSchema>;

const makePlan = (fields: Record<string, unknown> = {}) =>
  service.plan({ price_monthly: 1.5, features_json: { features: ['timetable'] }, ...fields });
const status = async (school: School) => (await school.admin.get<Subscription>('/api/subscription/status')).data;
const upgrade = (school: School, plan_id: number, expected = 200) =>
  school.admin.post<Subscription>('/api/subscription/upgrade', { plan_id }, expected);
const addStudent = (school: School, last_name = 'Student') =>
  school.admin.send('POST', '/api/students', { body: { first_name: 'Sam', last_name } });
const audit = async (school: School) =>
  (
    await service.operator.get<AuditLog[]>(
      `/api/platform/audit-logs?tenant_id=${school.id}&action=subscription.upgrade`,
    )
  ).data;

describe('the status', () => {
  test('has status, plan, period, and usage by active students and teachers', async () => {
    const plan = await makePlan({ max_students: 7, max_teachers: 3 });
    const school = await service.school({ plan_id: plan.id });
    await addStudent(school);
    await school.admin.post('/api/students', { first_name: 'In', last_name: 'Active', is_active: false }, 201);
    const found = await status(school);
    expect(found).toEqual({
      status: 'active',
      plan: {
        id: plan.id,
        name: plan.name,
        price_monthly: 1.5,
        currency: 'USD',
        currency_decimals: 2,
        features: ['timetable'],
      },
      started_at: found.started_at,
      current_period_end: found.current_period_end,
      is_final: false,
      grace_ends_at: null,
      trial_ends_at: null,
      usage: { students: { used: 1, limit: 7 }, teachers: { used: 0, limit: 3 } },
    });
    expect(found.current_period_end > found.started_at).toBe(true);
  });

  test('includes the end of a trial', async () => {
    const trial_ends_at = new Date(Date.now() + 86_400_000).toISOString();
    const school = await service.school({ trial_ends_at });
    const found = await status(school);
    expect([found.status, Date.parse(found.trial_ends_at ?? '')]).toEqual(['trialing', Date.parse(trial_ends_at)]);
  });
});

/** Sets the end of the period of a school, as an SQL expression. */
const endPeriod = (school: School, end: string) =>
  school.database.query(`update platform.subscription set current_period_end = ${end} where tenant_id = $1`, [
    school.id,
  ]);
const change = (school: School, body: object, expected = 200) =>
  service.operator.put<Tenant>(`/api/platform/tenants/${school.id}/subscription`, body, expected);
const inDays = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString();

describe('the life cycle', () => {
  test.each(['trialing', 'active'])(
    'leads from %s to past_due when the period ends, and to cancelled 14 days later, without waiting for the daily work',
    async (from) => {
      const school = await service.school(from === 'trialing' ? { trial_ends_at: inDays(1) } : {});
      expect(await status(school)).toMatchObject({ status: from, grace_ends_at: null });
      await endPeriod(school, "now() - interval '13 days 23 hours'");
      const found = await status(school);
      expect(found.status).toBe('past_due');
      expect(Date.parse(found.grace_ends_at ?? '') - Date.parse(found.current_period_end)).toBe(14 * 86_400_000);
      const { data: tenant } = await service.operator.get<OutputOf<typeof TenantDetail>>(
        `/api/platform/tenants/${school.id}`,
      );
      expect(tenant.subscription).toEqual({
        status: 'past_due',
        started_at: found.started_at,
        current_period_end: found.current_period_end,
        is_final: false,
        grace_days: 14,
        grace_ends_at: found.grace_ends_at,
      });
      await endPeriod(school, "now() - interval '14 days 1 second'");
      expect(await status(school)).toMatchObject({ status: 'cancelled', grace_ends_at: null });
    },
  );

  test('the grace period ends at the same local time of the school, also when summer time begins meanwhile', async () => {
    const school = await service.school({ time_zone: 'Europe/Berlin' });
    await school.database.query(
      "update platform.subscription set status = 'past_due', current_period_end = '2100-03-20 12:00 Europe/Berlin' where tenant_id = $1",
      [school.id],
    );
    const found = await status(school);
    expect(Date.parse(found.current_period_end)).toBe(Date.parse('2100-03-20T11:00:00Z'));
    expect(Date.parse(found.grace_ends_at ?? '')).toBe(Date.parse('2100-04-03T10:00:00Z'));
  });

  test('a past due school works as before, except for operations that need an active subscription', async () => {
    const school = await service.school();
    await endPeriod(school, 'now()');
    expect((await addStudent(school)).status).toBe(201);
    await school.database.query('update platform.tenant set is_setup_complete = true where id = $1', [school.id]);
    expect((await school.admin.post('/api/timetable/generate', {}, 402)).error).toBe('subscription_inactive');
  });

  test('a cancelled school can log in, read, export and choose a plan, but not write', async () => {
    const school = await service.school({ plan_id: 2 });
    await addStudent(school);
    await endPeriod(school, "now() - interval '15 days'");
    const refused = await addStudent(school, 'Two');
    expect([refused.status, refused.error]).toEqual([402, 'subscription_inactive']);
    const admin = await service.anonymous.login({
      tenant_id: school.id,
      email: school.adminEmail,
      password: 'test-password',
    });
    expect((await admin.get<unknown[]>('/api/students')).data).toHaveLength(1);
    expect((await admin.send('GET', '/api/fees/payments/export?format=csv')).status).toBe(200);
    await admin.put('/api/auth/profile', { phone: '+49 30 1234567' });
    expect((await admin.get<Subscription>('/api/subscription/status')).data.status).toBe('cancelled');
    expect((await upgrade(school, 2)).data.status).toBe('active');
    expect((await addStudent(school, 'Two')).status).toBe(201);
  });
});

describe('an operator', () => {
  test('renews a subscription that is past due until a date, and the audit log shows what happened', async () => {
    const school = await service.school();
    await endPeriod(school, "now() - interval '1 day'");
    const end = inDays(365);
    const { data } = await change(school, { current_period_end: end });
    expect(data.subscription.status).toBe('active');
    expect(Date.parse(data.subscription.current_period_end ?? '')).toBe(Date.parse(end));
    expect(Date.parse(data.subscription.started_at ?? '')).toBeGreaterThan(Date.now() - 60_000);
    expect(data.recent_audit_logs.slice(0, 2)).toMatchObject([
      { action: 'subscription.update', actor: { email: operatorEmail }, tenant_id: school.id, target_id: school.id },
      {
        action: 'subscription.lapse',
        actor: { id: null, email: 'worker' },
        changes: { status: { before: 'active', after: 'past_due' } },
      },
    ]);
    expect(data.recent_audit_logs[0]?.changes['subscription']).toMatchObject({
      before: { status: 'past_due' },
      after: { status: 'active' },
    });
    // The same request again changes nothing.
    expect((await change(school, { current_period_end: end })).data.subscription).toEqual(data.subscription);
  });

  test('ends a trial without changing its start', async () => {
    const school = await service.school({ trial_ends_at: inDays(1) });
    const { data: before } = await service.operator.get<Tenant>(`/api/platform/tenants/${school.id}`);
    const { data } = await service.operator.put<Tenant>(`/api/platform/tenants/${school.id}`, {
      trial_ends_at: inDays(-1),
    });
    expect(data.subscription).toMatchObject({ status: 'past_due', started_at: before.subscription.started_at });
  });

  test('updates a school with the body and the If-Match that were read before its trial ended', async () => {
    const school = await service.school({ trial_ends_at: inDays(1) });
    const path = `/api/platform/tenants/${school.id}`;
    await endPeriod(school, "now() + interval '2 seconds'");
    const { data: body, headers } = await service.operator.get<Tenant>(path);
    expect(body.subscription).toMatchObject({ status: 'trialing', grace_ends_at: null });
    await until(async () => (await status(school)).status === 'past_due' || undefined);
    const send = (fields: object) =>
      service.operator.send<Tenant>('PUT', path, {
        body: { ...body, ...fields },
        headers: { 'If-Match': headers.get('etag') ?? '' },
      });
    const updated = await send({});
    expect([updated.status, updated.data.subscription.status]).toEqual([200, 'past_due']);
    const started_at = inDays(-400);
    expect(await send({ subscription: { ...body.subscription, started_at } })).toMatchObject({
      status: 400,
      details: [{ path: 'subscription' }],
    });
  });

  test('extends a paid period without starting a new one, and a trial together with its end', async () => {
    const paid = await service.school();
    const before = await status(paid);
    const end = inDays(100);
    await change(paid, { current_period_end: end });
    expect(await status(paid)).toMatchObject({ status: 'active', started_at: before.started_at });
    const trial = await service.school({ trial_ends_at: inDays(1) });
    const { data } = await change(trial, { current_period_end: end });
    expect(data.subscription.status).toBe('trialing');
    expect([data.trial_ends_at, data.subscription.current_period_end].map((at) => Date.parse(at ?? ''))).toEqual([
      Date.parse(end),
      Date.parse(end),
    ]);
  });

  test('cancels a subscription now and reactivates it for a month', async () => {
    const school = await service.school();
    // The spelling of American clients.
    const { data: cancelled } = await change(school, { status: 'Canceled' });
    expect(cancelled.subscription.status).toBe('cancelled');
    expect(Date.parse(cancelled.subscription.current_period_end ?? '')).toBeLessThanOrEqual(Date.now() + 60_000);
    expect((await addStudent(school)).status).toBe(402);
    const { data: active } = await change(school, { status: 'active' });
    expect(active.subscription.status).toBe('active');
    expect(Date.parse(active.subscription.current_period_end ?? '')).toBeGreaterThan(Date.now() + 27 * 86_400_000);
    expect((await addStudent(school)).status).toBe(201);
    expect((await change(school, { status: 'active' })).data.subscription).toEqual(active.subscription);
  });

  test('starts a trial again after it has ended, here or as the end of the trial of the school', async () => {
    const school = await service.school({ trial_ends_at: inDays(1) });
    await endPeriod(school, "now() - interval '30 days'");
    expect((await change(school, { status: 'trialing' }, 400)).details).toMatchObject([{ path: 'current_period_end' }]);
    await change(school, { status: 'trialing', current_period_end: inDays(7) });
    expect((await status(school)).status).toBe('trialing');
    await endPeriod(school, "now() - interval '1 day'");
    await service.operator.put(`/api/platform/tenants/${school.id}`, { trial_ends_at: inDays(9) });
    const found = await status(school);
    expect([found.status, found.current_period_end]).toEqual(['trialing', found.trial_ends_at]);
  });

  test('ends a trial with an end that has passed, and makes the school active without an end', async () => {
    const school = await service.school({ trial_ends_at: inDays(5) });
    const path = `/api/platform/tenants/${school.id}`;
    await service.operator.put(path, { trial_ends_at: null });
    expect((await status(school)).status).toBe('active');
    await service.operator.put(path, { trial_ends_at: inDays(5) });
    expect((await status(school)).status).toBe('active');
    await change(school, { status: 'cancelled' });
    const { data } = await service.operator.get<OutputOf<typeof TenantDetail>>(path);
    // Sending the record back as it was read changes nothing.
    await service.operator.put(path, { name: data.name, trial_ends_at: data.trial_ends_at });
    expect((await status(school)).status).toBe('cancelled');
    const trial = await service.school({ trial_ends_at: inDays(5) });
    await service.operator.put(`/api/platform/tenants/${trial.id}`, { trial_ends_at: inDays(-40) });
    // The grace period starts now.
    expect((await status(trial)).status).toBe('past_due');
  });

  test('does not restart a cancelled trial with its end as JavaScript reads it: without microseconds', async () => {
    const school = await service.school({ trial_ends_at: inDays(5).replace('Z', '456Z') });
    const path = `/api/platform/tenants/${school.id}`;
    const { data: read } = await service.operator.get<Tenant>(path);
    const cut = { trial_ends_at: new Date(read.trial_ends_at ?? '').toISOString() };
    expect(read.trial_ends_at).toMatch(/456\+00:00$/);
    await change(school, { status: 'cancelled' });
    await service.operator.put(path, { name: 'Renamed', ...cut });
    expect(await status(school)).toMatchObject({ status: 'cancelled', trial_ends_at: read.trial_ends_at });
  });

  test('changes the grace period with the end of a period without microseconds, and starts no new period', async () => {
    const school = await service.school();
    await endPeriod(school, "date_trunc('second', now()) - interval '1 day' + interval '123456 microseconds'");
    const before = await status(school);
    const current_period_end = new Date(before.current_period_end).toISOString();
    const { data } = await change(school, { current_period_end, grace_days: 60 });
    expect(data.subscription).toMatchObject({
      status: 'past_due',
      current_period_end: before.current_period_end,
      grace_days: 60,
    });
  });

  test('extends the grace period of a school', async () => {
    const school = await service.school();
    await endPeriod(school, "now() - interval '10 days'");
    expect((await change(school, { grace_days: 60 })).data.subscription).toMatchObject({
      status: 'past_due',
      grace_days: 60,
    });
    expect((await change(school, { grace_days: 5 })).data.subscription.status).toBe('cancelled');
  });

  test('gets errors per field, a 409 for a trial of an active school, and a 412 for an old version', async () => {
    const school = await service.school();
    for (const [body, field] of [
      [{ current_period_end: inDays(-1) }, 'current_period_end'],
      [{ status: 'cancelled', current_period_end: inDays(1) }, 'current_period_end'],
      [{ status: 'past_due' }, 'status'],
      [{ grace_days: 366 }, 'grace_days'],
      [{ subscription: { status: 'cancelled' } }, 'subscription'],
      [{ name: 'Another name' }, 'name'],
    ] as const)
      expect((await change(school, body, 400)).details).toMatchObject([{ path: field }]);
    const trial = { status: 'trialing', current_period_end: inDays(1) };
    expect((await change(school, trial, 409)).error).toBe('invalid_state');
    const path = `/api/platform/tenants/${school.id}`;
    const etag = (await service.operator.get(path)).headers.get('etag') ?? '';
    await change(school, { current_period_end: inDays(50) });
    const late = await service.operator
      .with({ 'If-Match': etag })
      .send('PUT', `${path}/subscription`, { body: { status: 'cancelled' } });
    expect([late.status, late.error]).toEqual([412, 'precondition_failed']);
    await service.operator.delete(path);
    expect((await change(school, { status: 'cancelled' }, 409)).error).toBe('invalid_state');
  });
});

describe('the plans', () => {
  test('are listed by price, with the current one and those with too low limits marked', async () => {
    const school = await service.school();
    const small = await makePlan({ max_students: 0, price_monthly: 0.5 });
    await addStudent(school);
    const { data } =
      await school.admin.get<{ id: number; price_monthly: number; is_current: boolean; is_available: boolean }[]>(
        '/api/subscription/plans',
      );
    const prices = data.map(({ price_monthly }) => price_monthly);
    expect(prices).toEqual([...prices].sort((a, b) => a - b));
    expect(data.find(({ id }) => id === 1)).toMatchObject({
      name: 'Starter',
      max_students: 200,
      max_teachers: 20,
      is_current: false,
      is_available: true,
    });
    expect(data.find(({ id }) => id === 3)).toMatchObject({ name: 'Premium', is_current: true, is_available: false });
    expect(data.find(({ id }) => id === small.id)).toMatchObject({ is_current: false, is_available: false });
  });
});

describe('an upgrade', () => {
  test.each([3, 400])('keeps the period of an active subscription, which ends in %s days', async (days) => {
    const school = await service.school({ plan_id: 1 });
    await change(school, { status: 'active', current_period_end: inDays(days) });
    const before = await status(school);
    for (const plan of [2, 1, 2]) {
      const { data } = await upgrade(school, plan);
      expect(data.plan.id).toBe(plan);
      expect([data.started_at, data.current_period_end]).toEqual([before.started_at, before.current_period_end]);
    }
  });

  test('chooses only public plans; operators assign the others', async () => {
    const { data: plan } = await service.operator.post<{ id: number; is_public: boolean }>(
      '/api/platform/plans',
      { name: unique('Private'), price_monthly: 1, max_students: 1000, max_teachers: 100, is_public: false },
      201,
    );
    expect(plan.is_public).toBe(false);
    const school = await service.school({ plan_id: 1 });
    const offered = async () =>
      (await school.admin.get<{ id: number; is_available: boolean }[]>('/api/subscription/plans')).data.find(
        ({ id }) => id === plan.id,
      );
    expect(await offered()).toBeUndefined();
    expect((await upgrade(school, plan.id, 422)).error).toBe('invalid_reference');
    await service.operator.put(`/api/platform/tenants/${school.id}`, { plan_id: plan.id });
    expect(await offered()).toMatchObject({ is_current: true, is_available: false });
    await endPeriod(school, "now() - interval '1 day'");
    expect((await upgrade(school, plan.id, 409)).message).toMatch(/^Only the operator/);
    await service.operator.put(`/api/platform/plans/${plan.id}`, { is_public: true });
    expect((await upgrade(school, plan.id)).data.status).toBe('active');
  });

  test('is a 409 after an operator has cancelled for good, until an operator sets another status', async () => {
    const school = await service.school({ plan_id: 1 });
    expect((await change(school, { is_final: true }, 400)).details).toMatchObject([{ path: 'is_final' }]);
    expect((await change(school, { status: 'active', is_final: true }, 400)).details).toMatchObject([
      { path: 'is_final' },
    ]);
    const { data } = await change(school, { status: 'cancelled', is_final: true });
    expect(data.subscription).toMatchObject({ status: 'cancelled', is_final: true });
    expect(await status(school)).toMatchObject({ status: 'cancelled', is_final: true });
    const plans = await school.admin.get<{ is_available: boolean }[]>('/api/subscription/plans');
    expect(plans.data.filter(({ is_available }) => is_available)).toEqual([]);
    for (const plan of [1, 2]) expect((await upgrade(school, plan, 409)).error).toBe('conflict');
    await change(school, { status: 'active' });
    expect(await status(school)).toMatchObject({ status: 'active', is_final: false });
    // A plain cancellation, or the end of one that was final, leaves the choice to the school.
    await change(school, { status: 'cancelled', is_final: true });
    await change(school, { is_final: false });
    expect((await upgrade(school, 2)).data).toMatchObject({ status: 'active', is_final: false });
    await change(school, { status: 'cancelled' });
    expect((await upgrade(school, 1)).data.status).toBe('active');
  });

  test('changes the plan, starts a period of a month, and is in the audit log with the email of the user', async () => {
    const school = await service.school({ plan_id: 1 });
    await school.database.query(
      "update platform.subscription set started_at = now() - interval '1 year', current_period_end = now() where tenant_id = $1",
      [school.id],
    );
    const before = await status(school);
    const answer = await school.admin
      .with({ 'X-Request-Id': 'upgrade-1' })
      .post<Subscription>('/api/subscription/upgrade', { plan_id: 2 });
    expect(answer.data).toMatchObject({
      status: 'active',
      plan: { id: 2, name: 'Standard', price_monthly: 149 },
      usage: { students: { used: 0, limit: 1000 } },
    });
    expect(await status(school)).toEqual(answer.data);
    const [days] = await school.database.query<{ days: number; since: number }>(
      "select (current_period_end = started_at + interval '1 month')::integer as days, (started_at > now() - interval '1 minute')::integer as since from platform.subscription where tenant_id = $1",
      [school.id],
    );
    expect(days).toEqual({ days: 1, since: 1 });
    const { data: tenant } = await service.operator.get<{
      plan: { id: number };
      recent_audit_logs: { action: string }[];
    }>(`/api/platform/tenants/${school.id}`);
    expect([tenant.plan.id, tenant.recent_audit_logs[0]?.action]).toEqual([2, 'subscription.upgrade']);
    const entries = await audit(school);
    expect(entries).toMatchObject([
      {
        actor: { id: null, email: school.adminEmail },
        tenant_id: school.id,
        target_type: 'tenant',
        target_id: school.id,
        request_id: 'upgrade-1',
      },
    ]);
    expect(entries[0]?.changes['plan']).toEqual({ before: before.plan, after: answer.data.plan });
  });

  test('applies at the next request: features change with the plan', async () => {
    const school = await service.school({ plan_id: 1 });
    const features = async () => (await school.admin.get<string[]>('/api/auth/enabled-features')).data;
    expect(await features()).not.toContain('transport');
    await upgrade(school, 3);
    expect(await features()).toContain('transport');
    await upgrade(school, 1);
    expect(await features()).not.toContain('transport');
  });

  test.each(['trialing', 'past_due', 'cancelled'])('activates a subscription that was %s', async (from) => {
    const school = await service.school({ trial_ends_at: new Date(Date.now() + 86_400_000).toISOString(), plan_id: 1 });
    for (const step of from === 'trialing' ? [] : [from]) {
      await school.database.query('update platform.subscription set status = $2 where tenant_id = $1', [
        school.id,
        step,
      ]);
    }
    expect((await status(school)).status).toBe(from);
    expect((await upgrade(school, 2)).data.status).toBe('active');
    // The entry is written on the node, and copied to the home.
    const change = await until(async () => (await audit(school))[0]?.changes['status'] as object | undefined);
    expect(change).toEqual({ before: from, after: 'active' });
  });

  test.each([
    ['a trial', { trial_ends_at: inDays(3) }, "now() + interval '3 days'"],
    ['a period that is past due', {}, "now() - interval '1 day'"],
  ])('to the current plan during %s activates it', async (_state, fields, end) => {
    const school = await service.school({ plan_id: 2, ...fields });
    await endPeriod(school, end);
    const { data: plans } =
      await school.admin.get<{ id: number; is_current: boolean; is_available: boolean }[]>('/api/subscription/plans');
    expect(plans.find(({ id }) => id === 2)).toMatchObject({ is_current: true, is_available: true });
    const { data } = await upgrade(school, 2);
    expect(data).toMatchObject({ status: 'active', plan: { id: 2 }, grace_ends_at: null });
    expect(Date.parse(data.current_period_end)).toBeGreaterThan(Date.now() + 27 * 86_400_000);
    expect((await upgrade(school, 2, 409)).error).toBe('conflict');
  });

  test('to an unknown plan is a 422, to the current one a 409; neither changes or audits anything', async () => {
    const school = await service.school();
    const before = await status(school);
    expect(await upgrade(school, 999_999, 422)).toMatchObject({
      error: 'invalid_reference',
      details: [{ path: 'plan_id' }],
    });
    expect(await upgrade(school, 3, 409)).toMatchObject({
      error: 'conflict',
      message: 'The school already has the plan Premium.',
      details: [{ path: 'plan_id' }],
    });
    for (const body of [{}, { plan_id: 'two' }, { plan_id: 2, status: 'active' }]) {
      expect((await school.admin.post('/api/subscription/upgrade', body, 400)).error).toBe('validation_error');
    }
    expect(await status(school)).toEqual(before);
    expect(await audit(school)).toEqual([]);
  });

  test('to a plan with too low limits is a 409 with the numbers of students and teachers; an exact fit is accepted', async () => {
    const school = await service.school();
    for (const name of ['One', 'Two']) await addStudent(school, name);
    await service.database.query(`insert into ${school.schema}.teacher (first_name, last_name) values ('T', 'One')`);
    const third = await addStudent(school, 'Three');
    expect(third.status).toBe(201);
    const fewStudents = await makePlan({ max_students: 2, max_teachers: 1 });
    const noTeachers = await makePlan({ max_students: 3, max_teachers: 0 });
    const exact = await makePlan({ max_students: 3, max_teachers: 1 });
    const refused = await upgrade(school, fewStudents.id, 409);
    expect([refused.error, refused.message]).toEqual([
      'conflict',
      `The plan ${fewStudents.name} allows 2 students and 1 teachers; the school has 3 and 1.`,
    ]);
    expect((await upgrade(school, noTeachers.id, 409)).message).toBe(
      `The plan ${noTeachers.name} allows 3 students and 0 teachers; the school has 3 and 1.`,
    );
    expect((await status(school)).plan.id).toBe(3);
    expect((await upgrade(school, exact.id)).data.usage).toEqual({
      students: { used: 3, limit: 3 },
      teachers: { used: 1, limit: 1 },
    });
    const full = await addStudent(school, 'Four');
    expect([full.status, full.error]).toEqual([403, 'plan_limit_reached']);
  });

  test('sent twice with one Idempotency-Key gets the same response and is audited once', async () => {
    const school = await service.school({ plan_id: 1 });
    const send = () =>
      school.admin.with({ 'Idempotency-Key': 'up' }).post<Subscription>('/api/subscription/upgrade', { plan_id: 2 });
    expect((await send()).data).toEqual((await send()).data);
    expect(await audit(school)).toHaveLength(1);
  });

  test('to a smaller plan concurrently with new students never exceeds the limit', async () => {
    const plan = await makePlan({ max_students: 3 });
    const school = await service.school();
    for (const name of ['One', 'Two']) await addStudent(school, name);
    const answers = await race(
      school.database,
      `select from platform.tenant_usage where tenant_id = ${school.id} for update`,
      6,
      () => [
        ...['A', 'B'].map((name) => addStudent(school, name)),
        school.admin.send('POST', '/api/subscription/upgrade', { body: { plan_id: plan.id } }),
        ...['C', 'D', 'E'].map((name) => addStudent(school, name)),
      ],
    );
    const created = answers.filter(({ status: answered }) => answered === 201).length;
    const found = await status(school);
    const upgraded = answers[2]?.status === 200;
    // Either the upgrade was first and one seat was left, or the students were first and the school kept its plan.
    expect([found.plan.id, found.usage.students.used]).toEqual(upgraded ? [plan.id, 3] : [3, 7]);
    expect(created).toBe(upgraded ? 1 : 5);
    expect(answers[2]?.error).toBe(upgraded ? undefined : 'conflict');
  });

  test('in progress blocks new students, which then get the limits of the new plan', async () => {
    const plan = await makePlan({ max_students: 1 });
    const school = await service.school();
    await addStudent(school, 'One');
    // The upgrade holds the lock on the counts and waits for the subscription; the student waits for the counts.
    const answers = await race(
      school.database,
      `select from platform.subscription where tenant_id = ${school.id} for update`,
      2,
      () => [
        school.admin.send('POST', '/api/subscription/upgrade', { body: { plan_id: plan.id } }),
        (async () => {
          for (;;) {
            const held = await school.database.query(
              'select from platform.tenant_usage where tenant_id = $1 for update skip locked',
              [school.id],
            );
            if (held.length === 0) return addStudent(school, 'Two');
          }
        })(),
      ],
    );
    expect(answers.map(({ status: answered, error }) => [answered, error])).toEqual([
      [200, undefined],
      [403, 'plan_limit_reached'],
    ]);
    expect((await status(school)).usage.students).toEqual({ used: 1, limit: 1 });
  });

  test('concurrent with an operator who assigns a plan: the later one wins, and school and subscription agree', async () => {
    const school = await service.school();
    const answers = await race(
      school.database,
      `select from platform.tenant where id = ${school.id} for update`,
      2,
      () => [
        school.admin.send('POST', '/api/subscription/upgrade', { body: { plan_id: 1 } }),
        service.operator.send('PUT', `/api/platform/tenants/${school.id}`, { body: { plan_id: 2 } }),
      ],
    );
    expect(answers.map(({ status: answered }) => answered)).toEqual([200, 200]);
    const plans = await school.database.query<{ same: boolean }>(
      'select s.plan_id = t.plan_id as same from platform.subscription s join platform.tenant t on t.id = s.tenant_id where t.id = $1',
      [school.id],
    );
    expect(plans).toEqual([{ same: true }]);
  });
});

describe.each(['students', 'teachers'] as const)('a plan for two %s', (people) => {
  test('gives its last seat to one of ten concurrent students; inactive and deleted ones do not count', async () => {
    const plan = await makePlan({ [`max_${people}`]: 2 });
    const { admin, id: school_id } = await service.school({ plan_id: plan.id });
    const path = `/api/${people}`;
    const add = async (fields: Record<string, unknown> = {}, expected = 201) =>
      admin.post<{ id: number }>(path, { first_name: 'One', last_name: 'More', ...fields }, expected);
    const activate = (id: number, is_active: boolean, expected = 200) =>
      admin.put(`${path}/${id}`, { is_active }, expected);
    const total = async () =>
      (await service.operator.get<{ stats: Record<string, number> }>(`/api/platform/tenants/${school_id}`)).data.stats[
        `total_${people}`
      ];

    const one = (await add()).data.id;
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, n) =>
        admin.send('POST', path, { body: { first_name: 'Ten', last_name: `At once ${n}` } }),
      ),
    );
    expect(answers.filter(({ status: answered }) => answered === 201)).toHaveLength(1);
    expect(answers.filter(({ error }) => error === 'plan_limit_reached')).toHaveLength(9);
    expect((await admin.get<unknown[]>(`${path}?search=once`)).data).toHaveLength(1);
    const inactive = (await add({ is_active: false })).data.id;
    expect(await total()).toBe(2);
    expect((await activate(inactive, true, 403)).error).toBe('plan_limit_reached');
    await activate(one, false);
    await activate(inactive, true);
    expect((await add({}, 403)).error).toBe('plan_limit_reached');
    await admin.delete(`${path}/${inactive}`);
    expect(await total()).toBe(1);
    await add();
    expect(await total()).toBe(2);
  });
});

test('the subscription requires subscription.manage, and operators have no access', async () => {
  const school = await service.school({ plan_id: 1 });
  for (const client of [await school.user(['teacher']), await school.user(['accountant']), service.operator]) {
    expect((await client.get('/api/subscription/status', 403)).error).toBe('forbidden');
    expect((await client.get('/api/subscription/plans', 403)).error).toBe('forbidden');
    expect((await client.post('/api/subscription/upgrade', { plan_id: 2 }, 403)).error).toBe('forbidden');
  }
  const owner = await school.user([await school.role('subscription.manage')]);
  expect((await owner.post<Subscription>('/api/subscription/upgrade', { plan_id: 2 })).data.plan.id).toBe(2);
});

test('the upgrade of one school does not affect others', async () => {
  const [school, other] = [await service.school({ plan_id: 1 }), await service.school({ plan_id: 1 })];
  const before = await status(other);
  await upgrade(school, 3);
  expect(await status(other)).toEqual(before);
});
