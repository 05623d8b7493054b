import { beforeAll, describe, expect, test } from '@jest/globals';
import { passwords } from '../../src/domain/passwords.ts';
import { createOperator } from '../../src/database/operator.ts';
import { withOwner } from '../../src/database/pool/pool.ts';
import { mailsTo, mailTo, queueIsEmpty } from '../support/fakes/mail.ts';
import { ids, inOrder, plain, walk } from '../support/client/pages.ts';
import { until } from '../support/client/until.ts';
import { fileForm, png } from '../support/fixtures/pictures.ts';
import { operatorEmail, type School, serviceWithSchool, testPassword, unique } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type {
  AuditLog as AuditLogSchema,
  Plan as PlanSchema,
  TenantDetail as TenantDetailSchema,
} from '../../src/endpoints/platform.ts';

const { service, school } = await serviceWithSchool({}, 42);

type AuditLog = OutputOf<typeof AuditLogSchema>;
type Tenant = OutputOf<typeof TenantDetailSchema>;
type Plan = OutputOf<typeof PlanSchema>;

const label = (prefix = 'made') => `${unique(prefix)}-${Date.now().toString(36)}`;

const input = (fields: Record<string, unknown> = {}) => {
  const subdomain = label();
  return {
    name: `School of ${subdomain}`,
    subdomain,
    contact_email: `office@${subdomain}.example`,
    plan_id: 2,
    ...fields,
  };
};

const post = <T>(path: string, body: unknown, status: number) =>
  service.operator.post<T>(`/api/platform${path}`, body, status);
const create = async (fields: Record<string, unknown> = {}) =>
  (await post<Tenant>('/tenants', input(fields), 201)).data;
const get = async (id: number) => (await service.operator.get<Tenant>(`/api/platform/tenants/${id}`)).data;
const step = (id: number, verb: 'suspend' | 'activate' | 'restore', status = 200) =>
  post<Tenant>(`/tenants/${id}/${verb}`, undefined, status);
const remove = (id: number, status = 200) =>
  service.operator.delete<{ id: number }>(`/api/platform/tenants/${id}`, status);

/** Creates another operator and logs in. */
async function operatorCalled(email: string, role: 'admin' | 'analyst') {
  const passwordHash = await passwords().hash(testPassword);
  await withOwner(service.database.url, (owner) =>
    createOperator(owner, { email, passwordHash, firstName: 'Ana', lastName: 'Lyst', role, tenantIds: null }),
  );
  return service.anonymous.login({ is_platform: true, email, password: testPassword });
}

/** The audit entries that `work` adds. */
async function audited(work: () => Promise<unknown>): Promise<AuditLog[]> {
  const latest = async () => (await service.operator.get<AuditLog[]>('/api/platform/audit-logs?pageSize=100')).data;
  const before = new Set((await latest()).map(({ id }) => id));
  await work();
  return (await latest()).filter(({ id }) => !before.has(id));
}

describe('creating a school', () => {
  test('returns it as it was sent, with plan, empty stats and its audit entry, and it reads back the same', async () => {
    const sent = input({
      feature_flags: { transport: true, attendance: false },
      time_zone: 'Africa/Lagos',
      // What a new school has anyway.
      status: 'active',
      is_setup_complete: false,
      trial_ends_at: null,
    });
    const created = await post<Tenant>('/tenants', sent, 201);
    expect(created.headers.get('location')).toBe(`/api/platform/tenants/${created.data.id}`);
    expect(created.data).toMatchObject({
      name: sent.name,
      subdomain: sent.subdomain,
      contact_email: sent.contact_email,
      feature_flags: { transport: true, attendance: false },
      time_zone: 'Africa/Lagos',
      status: 'active',
      plan: { id: 2, name: 'Standard' },
      is_setup_complete: false,
      trial_ends_at: null,
      enabled_features: ['fees_management', 'notifications', 'timetable', 'transport'],
      stats: { total_students: 0, total_teachers: 0, total_classes: 0 },
      deleted_at: null,
    });
    expect(created.data.recent_audit_logs.map(({ action }) => action)).toEqual(['tenant.create']);
    expect(await get(created.data.id)).toEqual(created.data);
  });

  test('creates the six system roles and an admin who can log in', async () => {
    const fresh = await service.school({ admin_first_name: 'Head', admin_last_name: 'Teacher' });
    const roles = await fresh.admin.get<{ name: string }[]>('/api/rbac/roles');
    expect(roles.data.map(({ name }) => name)).toEqual([
      'accountant',
      'admin',
      'guardian',
      'student',
      'teacher',
      'transport_manager',
    ]);
    const users = await fresh.admin.get<{ first_name: string; last_name: string; roles: string[] }[]>('/api/users');
    expect(users.data).toMatchObject([{ first_name: 'Head', last_name: 'Teacher', roles: ['admin'] }]);
  });

  test('without a password invites the admin, at contact_email if no admin_email is given', async () => {
    const tenant = await create();
    const { token, subject } = await mailTo(service, tenant.contact_email, 'Your account');
    expect(subject).toBe(`${tenant.name}: Your account`);
    await service.anonymous.post('/api/auth/password/reset', { token, password: 'first password' });
    const admin = await service.anonymous.login({
      tenant_id: tenant.id,
      email: tenant.contact_email,
      password: 'first password',
    });
    expect((await admin.get<{ roles: string[] }>('/api/auth/profile')).data.roles).toEqual(['admin']);
    const other = await create({ admin_email: `head@${tenant.subdomain}.example` });
    expect((await mailTo(service, `head@${tenant.subdomain}.example`, 'Your account')).subject).toContain(other.name);
  });

  test('with a future trial end starts as trialing, with a past one as past due, without one as active for a month', async () => {
    const ends = new Date(Date.now() + 14 * 86_400_000).toISOString();
    const trial = await create({ trial_ends_at: ends });
    expect(trial.subscription.status).toBe('trialing');
    expect(Date.parse(trial.trial_ends_at ?? '')).toBe(Date.parse(ends));
    expect(Date.parse(trial.subscription.current_period_end ?? '')).toBe(Date.parse(ends));
    const past = await create({ trial_ends_at: '2020-01-01T00:00:00Z' });
    expect(past.subscription.status).toBe('past_due');
    // The grace period starts with the school.
    expect(Date.parse(past.subscription.current_period_end ?? '')).toBe(Date.parse(past.created_at));
    const paid = await create();
    expect(paid.subscription.status).toBe('active');
    expect(Date.parse(paid.subscription.current_period_end ?? '')).toBeGreaterThan(Date.now() + 27 * 86_400_000);
  });

  test.each([
    ['a subdomain with a space', { subdomain: 'two words' }, 'subdomain'],
    ['a subdomain with a dot', { subdomain: 'a.b' }, 'subdomain'],
    ['a subdomain with an underscore', { subdomain: 'a_b' }, 'subdomain'],
    ['a subdomain that begins with a hyphen', { subdomain: '-a' }, 'subdomain'],
    ['a subdomain that ends with a hyphen', { subdomain: 'a-' }, 'subdomain'],
    ['a subdomain of 64 characters', { subdomain: 'a'.repeat(64) }, 'subdomain'],
    ['an empty subdomain', { subdomain: '' }, 'subdomain'],
    ['a reserved subdomain', { subdomain: 'api' }, 'subdomain'],
    ['a reserved subdomain in capitals', { subdomain: 'WWW' }, 'subdomain'],
    ['a time zone that does not exist', { time_zone: 'Mars/Olympus' }, 'time_zone'],
    ['an offset instead of a time zone', { time_zone: '+05:00' }, 'time_zone'],
    ['a feature whose name is not a lower case word', { feature_flags: { 'Tele port': true } }, 'feature_flags'],
    [
      '51 features',
      { feature_flags: Object.fromEntries([...Array(51).keys()].map((n) => [`f${n}`, true])) },
      'feature_flags',
    ],
    ['a plan that is not plan_id', { plan_id: 1, plan: { id: 2 } }, 'plan'],
    ['a plan without an id', { plan_id: undefined, plan: { name: 'Premium' } }, 'plan'],
    ['no plan at all', { plan_id: undefined }, 'plan_id'],
    ['a feature that is neither on nor off', { feature_flags: { transport: 'yes' } }, 'feature_flags'],
    ['a contact_email that is not an email address', { contact_email: 'office' }, 'contact_email'],
    ['a short password', { admin_password: '1234567' }, 'admin_password'],
    ['a date instead of a timestamp', { trial_ends_at: '2030-01-01' }, 'trial_ends_at'],
    ['an unknown field', { colour: 'red' }, 'colour'],
    ['another status than that of a new school', { status: 'suspended' }, 'status'],
    ['a setup that is complete already', { status: 'active', is_setup_complete: true }, 'is_setup_complete'],
  ])('rejects %s and names the field', async (_case, fields, path) => {
    const refused = await post('/tenants', input(fields), 400);
    expect(refused.error).toBe('validation_error');
    expect(refused.details.map((detail) => detail.path.split('.')[0])).toEqual([path]);
  });

  test('with a used subdomain is a 409 that names it, ignoring case; the plan must exist', async () => {
    for (const subdomain of [school.subdomain, school.subdomain.toUpperCase()]) {
      expect(await post('/tenants', input({ subdomain }), 409)).toMatchObject({
        error: 'conflict',
        details: [{ path: 'subdomain' }],
      });
    }
    expect(await post('/tenants', input({ plan_id: 999_999 }), 422)).toMatchObject({
      error: 'invalid_reference',
      details: [{ path: 'plan_id' }],
    });
  });

  test('is a 409 while another request creates a school with this subdomain, however long that takes', async () => {
    const servers = await Promise.all(service.database.all().map((server) => server.addressFor()));
    const holders = servers.map((connectionString) => new shared.pg.Client({ connectionString }));
    await Promise.all(holders.map((holder) => holder.connect()));
    const body = input();
    try {
      for (const holder of holders) await holder.query('begin; lock table platform.tenant_usage in exclusive mode');
      const first = post<Tenant>('/tenants', body, 201);
      first.catch(() => undefined);
      await until(async () => {
        const waiting = await service.database.everywhere(
          "select from pg_locks where locktype = 'relation' and relation = 'platform.tenant_usage'::regclass and not granted",
        );
        return waiting.length > 0 || undefined;
      });
      expect(await post('/tenants', { ...body, subdomain: body.subdomain.toUpperCase() }, 409)).toMatchObject({
        error: 'conflict',
        details: [{ path: 'subdomain' }],
      });
      for (const holder of holders) await holder.query('commit');
      expect((await first).data.subdomain).toBe(body.subdomain);
    } finally {
      await Promise.all(holders.map((holder) => holder.end()));
    }
  });

  test('is made by one of two requests at once; the other is a 409', async () => {
    for (let round = 0; round < 5; round++) {
      const body = input();
      const answers = await Promise.all(
        [1, 2].map(() => service.operator.send('POST', '/api/platform/tenants', { body })),
      );
      expect(answers.map(({ status }) => status).sort()).toEqual([201, 409]);
    }
  });

  test('leaves no school, schema or audit entry when it fails', async () => {
    const schemas = () =>
      service.database.query("select nspname from pg_namespace where nspname like 'tenant_%' order by 1");
    const before = await schemas();
    expect(await audited(() => post('/tenants', input({ subdomain: school.subdomain }), 409))).toEqual([]);
    expect(await schemas()).toEqual(before);
  });
});

describe('the plan of a school', () => {
  test('is taken as it is read, as plan {id}, or as plan_id, or as both when they agree', async () => {
    const tenant = await create({ plan_id: undefined, plan: { id: 2 } });
    expect(tenant.plan.id).toBe(2);
    const path = `/api/platform/tenants/${tenant.id}`;
    const changed = await service.operator.put<Tenant>(path, { plan: { id: 3, name: tenant.plan.name } });
    expect(changed.data.plan).toEqual({ id: 3, name: 'Premium' });
    const both = await service.operator.put<Tenant>(path, { ...changed.data, plan: { id: 1 }, plan_id: 1 });
    expect(both.data.plan.id).toBe(1);
    const [stored] = await service.database
      .of(tenant.id)
      .query<{ plan_id: string }>('select plan_id from platform.subscription where tenant_id = $1', [tenant.id]);
    expect(Number(stored?.plan_id)).toBe(1);
  });

  test('may be sent back unchanged by a school that exceeds its limits, but no other plan that is too small', async () => {
    const plan = await service.plan({ max_students: 1 });
    const grown = await service.school({ plan_id: plan.id });
    await grown.admin.post('/api/students', { first_name: 'A', last_name: 'B' }, 201);
    await service.operator.put(`/api/platform/plans/${plan.id}`, { max_students: 0 });
    const path = `/api/platform/tenants/${grown.id}`;
    const read = await get(grown.id);
    expect((await service.operator.put<Tenant>(path, { ...read, name: 'Renamed' })).data.name).toBe('Renamed');
    const small = await service.plan({ max_students: 0 });
    expect((await service.operator.put(path, { plan: { id: small.id } }, 409)).error).toBe('conflict');
  });
});

describe('updating a school', () => {
  test('accepts any subset of fields, replaces the flags as a whole, and accepts the unchanged response of GET', async () => {
    const tenant = await create({ feature_flags: { transport: true }, time_zone: 'Europe/Berlin' });
    const path = `/api/platform/tenants/${tenant.id}`;
    const { data } = await service.operator.put<Tenant>(path, {
      name: 'Renamed',
      feature_flags: { attendance: false },
    });
    const { updated_at, recent_audit_logs, enabled_features, ...kept } = tenant;
    expect(data).toMatchObject({ ...kept, name: 'Renamed', feature_flags: { attendance: false } });
    expect(data.enabled_features).toEqual(['fees_management', 'notifications', 'timetable']);
    expect([
      data.updated_at > updated_at,
      data.recent_audit_logs.length,
      recent_audit_logs.length,
      enabled_features.length,
    ]).toEqual([true, 2, 1, 5]);
    const refused = await service.operator.put(path, { ...data, status: 'suspended' }, 400);
    expect(refused.details.map((detail) => detail.path)).toEqual(['status']);
    const back = await service.operator.put<Tenant>(path, { ...data, contact_email: 'New@Office.example' });
    expect(back.data).toMatchObject({
      name: 'Renamed',
      status: 'active',
      contact_email: 'new@office.example',
      stats: tenant.stats,
    });
  });

  test('assigns a plan, also to the subscription', async () => {
    const tenant = await create({ plan_id: 1 });
    const { data } = await service.operator.put<Tenant>(`/api/platform/tenants/${tenant.id}`, { plan_id: 3 });
    expect(data).toMatchObject({ plan: { id: 3, name: 'Premium' } });
    expect(data.enabled_features).toHaveLength(5);
    expect(
      await service.database
        .of(tenant.id)
        .query('select plan_id::integer from platform.subscription where tenant_id = $1', [tenant.id]),
    ).toEqual([{ plan_id: 3 }]);
  });

  test('to a plan with fewer students than it has is a 409, and it keeps its plan', async () => {
    const grown = await service.school();
    for (const n of [1, 2])
      await grown.admin.post('/api/students', { first_name: 'Student', last_name: `Number ${n}` }, 201);
    const tiny = await post<Plan>(
      '/plans',
      { name: label('Tiny'), price_monthly: 0, max_students: 1, max_teachers: 0 },
      201,
    );
    expect(
      await audited(() => service.operator.put(`/api/platform/tenants/${grown.id}`, { plan_id: tiny.data.id }, 409)),
    ).toEqual([]);
    expect(await get(grown.id)).toMatchObject({ plan: { id: 3 }, stats: { total_students: 2 } });
    const exact = await post<Plan>(
      '/plans',
      { name: label('Exact'), price_monthly: 0, max_students: 2, max_teachers: 0 },
      201,
    );
    expect(
      (await service.operator.put<Tenant>(`/api/platform/tenants/${grown.id}`, { plan_id: exact.data.id })).data.plan
        .id,
    ).toBe(exact.data.id);
  });

  test('to a plan with fewer teachers than it has is a 409, and it keeps its plan', async () => {
    const grown = await service.school();
    await service.database.query(
      `insert into ${grown.schema}.teacher (first_name, last_name) values ('Tea', 'Cher'), ('Tea', 'Other')`,
    );
    await grown.admin.post('/api/students', { first_name: 'Counted', last_name: 'Student' }, 201);
    const few = await post<Plan>(
      '/plans',
      { name: label('One teacher'), price_monthly: 0, max_students: 5, max_teachers: 1 },
      201,
    );
    expect((await service.operator.put(`/api/platform/tenants/${grown.id}`, { plan_id: few.data.id }, 409)).error).toBe(
      'conflict',
    );
    expect(await get(grown.id)).toMatchObject({ plan: { id: 3 }, stats: { total_teachers: 2 } });
  });

  test('takes the plan from plan_id or plan, whichever differs from the present one', async () => {
    const tenant = await create();
    const path = `/api/platform/tenants/${tenant.id}`;
    for (const [body, plan] of [
      [{ ...tenant, plan_id: 3 }, 3],
      [{ plan_id: 3, plan: { id: 1, name: 'An earlier name' } }, 1],
      [{ plan_id: 2, plan: { id: 2 } }, 2],
    ] as const)
      expect((await service.operator.put<Tenant>(path, body)).data.plan.id).toBe(plan);
  });

  test('has the same validation as creating: reserved and used subdomain, time zone, flags, unknown plan, unknown field', async () => {
    const tenant = await create();
    const path = `/api/platform/tenants/${tenant.id}`;
    for (const [body, status, at] of [
      [{ subdomain: 'admin' }, 400, 'subdomain'],
      [{ subdomain: school.subdomain }, 409, 'subdomain'],
      [{ time_zone: 'Mars/Olympus' }, 400, 'time_zone'],
      [{ feature_flags: { Teleport: true } }, 400, 'feature_flags'],
      [{ plan_id: 1, plan: { id: 3 } }, 400, 'plan'],
      [{ plan: { id: 999_999 } }, 422, 'plan_id'],
      [{ plan_id: 999_999 }, 422, 'plan_id'],
      [{ colour: 'red' }, 400, 'colour'],
      [{ name: '' }, 400, 'name'],
    ] as const) {
      expect(
        (await service.operator.put(path, body, status)).details.map((detail) => detail.path.split('.')[0]),
      ).toEqual([at]);
    }
    expect(await get(tenant.id)).toEqual(tenant);
  });
});

describe('the status of a school', () => {
  test('allows only valid transitions, and the error names both states', async () => {
    const { id } = await create();
    const refused = async (verb: 'suspend' | 'activate' | 'restore', from: string, to: string) => {
      const { error, message } = await step(id, verb, 409);
      expect([error, message]).toEqual(['invalid_state', expect.stringContaining(`from ${from} to ${to}`)]);
    };
    await refused('activate', 'active', 'active');
    await refused('restore', 'active', 'active');
    expect((await step(id, 'suspend')).data.status).toBe('suspended');
    await refused('suspend', 'suspended', 'suspended');
    await refused('restore', 'suspended', 'active');
    expect((await step(id, 'activate')).data.status).toBe('active');
    await step(id, 'suspend');
    expect((await remove(id)).data).toEqual({ id });
    await refused('suspend', 'deleted', 'suspended');
    await refused('activate', 'deleted', 'active');
    expect((await remove(id, 409)).error).toBe('invalid_state');
    expect((await get(id)).deleted_at).not.toBeNull();
    expect((await step(id, 'restore')).data).toMatchObject({ status: 'suspended', deleted_at: null });
    expect((await step(id, 'activate')).data.status).toBe('active');
  });

  test('suspended: its users are rejected at once, with token, refresh and login, until it is activated', async () => {
    const paused = await service.school();
    const teacher = await paused.user(['teacher']);
    const credentials = { tenant_id: paused.id, email: paused.adminEmail, password: testPassword };
    const refresh = (status: number) =>
      service.anonymous.send(
        'POST',
        '/api/auth/refresh',
        { headers: { 'X-Refresh-Token': teacher.refreshToken } },
        status,
      );
    await step(paused.id, 'suspend');
    const refusals = [
      await paused.admin.get('/api/students', 403),
      await teacher.get('/api/auth/profile', 403),
      await refresh(403),
      await service.anonymous.post('/api/auth/login', credentials, 403),
      await service.anonymous.post(
        '/api/auth/password/forgot',
        { tenant_id: paused.id, email: paused.adminEmail },
        403,
      ),
    ];
    expect(refusals.map(({ error }) => error)).toEqual(Array(5).fill('tenant_suspended'));
    await school.admin.get('/api/students');
    await step(paused.id, 'activate');
    await paused.admin.get('/api/students');
    await refresh(200);
    await service.anonymous.login(credentials);
  });

  test('suspended: queued emails to its users are not sent until it is activated', async () => {
    const paused = await service.school();
    const email = `invited@${paused.subdomain}.example`;
    const { data: user } = await paused.admin.post<{ id: number }>(
      '/api/users',
      { email, first_name: 'In', last_name: 'Vited' },
      201,
    );
    await mailTo(service, email, 'Your account');
    const queue = () =>
      service.database
        .of(paused.id)
        .query(
          "select graphile_worker.add_job('send_email', json_build_object('tenant_id', $1::bigint, 'user_id', $2::bigint, 'kind', 'invitation'))",
          [paused.id, user.id],
        );
    await step(paused.id, 'suspend');
    await queue();
    await queueIsEmpty(service);
    expect(await mailsTo(service, email)).toHaveLength(1);
    await step(paused.id, 'activate');
    // As after the pause between two invitations to one address.
    await service.database.of(paused.id).query('delete from platform.rate_limit_counter');
    await queue();
    await queueIsEmpty(service);
    expect(await mailsTo(service, email)).toHaveLength(2);
  });

  test('deleted: users are rejected, only status=deleted lists it, its subdomain stays reserved; restoring brings all back', async () => {
    const closed = await service.school();
    const student = await closed.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'Kept', last_name: 'Safe' },
      201,
    );
    const credentials = { subdomain: closed.subdomain, email: closed.adminEmail, password: testPassword };
    const listed = async (query: string) =>
      (await service.operator.get<Tenant[]>(`/api/platform/tenants?search=${closed.subdomain}${query}`)).data.map(
        ({ id }) => id,
      );
    expect(await listed('')).toEqual([closed.id]);
    await remove(closed.id);
    expect((await closed.admin.get('/api/students', 401)).error).toBe('invalid_token');
    expect((await service.anonymous.post('/api/auth/login', credentials, 404)).error).toBe('tenant_not_found');
    expect([
      await listed(''),
      await listed('&status=active'),
      await listed('&status=suspended'),
      await listed('&status=deleted'),
    ]).toEqual([[], [], [], [closed.id]]);
    expect((await post('/tenants', input({ subdomain: closed.subdomain }), 409)).details).toMatchObject([
      { path: 'subdomain' },
    ]);
    await step(closed.id, 'restore');
    expect((await closed.admin.get(`/api/students/${student.data.id}`)).data).toMatchObject({
      first_name: 'Kept',
      last_name: 'Safe',
    });
    expect(await listed('')).toEqual([closed.id]);
    await service.anonymous.login(credentials);
  });

  test('the stats follow the changes of the school', async () => {
    const busy = await service.school();
    const stats = async () => (await get(busy.id)).stats;
    expect(await stats()).toEqual({ total_students: 0, total_teachers: 0, total_classes: 0 });
    const created = await busy.admin.post<{ id: number }>('/api/students', { first_name: 'A', last_name: 'B' }, 201);
    await busy.admin.post('/api/students', { first_name: 'A', last_name: 'B', is_active: false }, 201);
    // With several servers the number arrives from the server of the school a moment later.
    const becomes = (number: number) => until(async () => (await stats()).total_students === number || undefined);
    await becomes(1);
    await busy.admin.delete(`/api/students/${created.data.id}`);
    await becomes(0);
  });
});

describe('the list of schools', () => {
  let mine: Tenant[];
  const tag = label('list');
  const prefix = `/api/platform/tenants?search=${tag}`;

  beforeAll(async () => {
    for (const [n, [name, plan_id]] of (
      [
        ['Delta', 1],
        ['álpha', 2],
        ['Charlie', 3],
        ['alpha', 1],
        ['Bravo 100%', 2],
      ] as const
    ).entries()) {
      const trial_ends_at = n % 2 ? `2031-0${n}-01T00:00:00Z` : null;
      await create({
        name: `${name} ${tag}`,
        subdomain: `${tag}-${n}`,
        plan_id,
        trial_ends_at,
        contact_email: n === 2 ? `UNIQUE.Contact@${tag}.example` : 'shared@office.example',
      });
    }
    const listed = await service.operator.get<Tenant[]>(`${prefix}&sort=subdomain`);
    mine = listed.data;
    await step(mine[3]?.id ?? 0, 'suspend');
    await service.database.query(
      `update platform.tenant set created_at = timestamptz '2026-01-01Z' + (id % 2) * interval '1 day' where id = any ($1)`,
      [ids(mine)],
    );
    await service.database.query(
      'update platform.tenant_usage set students = tenant_id % 3 where tenant_id = any ($1)',
      [ids(mine)],
    );
    mine = (await service.operator.get<Tenant[]>(`${prefix}&sort=subdomain`)).data;
  });

  test('searches name, subdomain and contact email for one contained text, ignoring case, with % and _ as literals', async () => {
    const found = async (search: string) =>
      ids(
        (await service.operator.get<Tenant[]>(`/api/platform/tenants?pageSize=100&sort=subdomain&search=${search}`))
          .data,
      );
    expect(await found(tag.slice(1))).toEqual(ids(mine));
    expect(await found(`ALPHA ${tag}`)).toEqual([mine[1]?.id, mine[3]?.id]);
    expect(await found(`%20${tag}-1%20`)).toEqual([mine[1]?.id]);
    expect(await found(`${tag} alpha`)).toEqual([]);
    expect(await found(`${tag} ${tag}`)).toEqual([]);
    expect(await found(`${tag}-4`)).toEqual([mine[4]?.id]);
    expect(await found(`unique.contact@${tag}`)).toEqual([mine[2]?.id]);
    expect(await found('100%25')).toEqual([mine[4]?.id]);
    expect(await found('_')).toEqual([]);
  });

  test('filters by status and plan', async () => {
    const found = async (query: string) =>
      ids((await service.operator.get<Tenant[]>(`${prefix}&sort=subdomain&${query}`)).data);
    expect(await found('status=suspended')).toEqual([mine[3]?.id]);
    expect(await found('status=active')).toEqual(ids(mine.filter(({ status }) => status === 'active')));
    expect(await found('plan_id=1')).toEqual([mine[0]?.id, mine[3]?.id]);
    expect(await found('plan_id=1&status=active')).toEqual([mine[0]?.id]);
    expect((await service.operator.get('/api/platform/tenants?status=closed', 400)).details).toMatchObject([
      { path: 'status' },
    ]);
  });

  test('sorts ascending by other columns by default', async () => {
    expect(ids((await service.operator.get<Tenant[]>(`${prefix}&sort=name`)).data)).toEqual(
      ids(inOrder(mine, ({ name }) => [plain(name)], 'asc')),
    );
  });

  test('starts with the newest by default, and has at most 100 per page', async () => {
    const list = await service.operator.get<Tenant[]>('/api/platform/tenants?pageSize=500');
    expect(list.pagination).toMatchObject({ page: 1, pageSize: 100 });
    expect(ids(list.data)).toEqual(ids(inOrder(list.data, ({ created_at }) => [created_at], 'desc')));
    const beyond = await service.operator.get<Tenant[]>(`${prefix}&page=99`);
    expect([beyond.data, beyond.pagination.totalItems]).toEqual([[], 5]);
  });
});

describe('plans', () => {
  test('can be added, read, updated, listed and deleted', async () => {
    const sent = {
      name: label('Plan'),
      price_monthly: 12.34,
      max_students: 10,
      max_teachers: 2,
      features_json: { features: ['attendance', 'transport'] },
    };
    const created = await post<Plan>('/plans', sent, 201);
    const path = `/api/platform/plans/${created.data.id}`;
    expect(created.headers.get('location')).toBe(path);
    expect(created.data).toMatchObject({ ...sent, tenant_count: 0 });
    expect((await service.operator.get<Plan>(path)).data).toEqual(created.data);
    const { data } = await service.operator.put<Plan>(path, { price_monthly: 0.1, features_json: { features: [] } });
    expect(data).toEqual({
      ...created.data,
      price_monthly: 0.1,
      features_json: { features: [] },
      updated_at: data.updated_at,
    });
    expect((await service.operator.put<Plan>(path, data)).data).toMatchObject({ price_monthly: 0.1, name: sent.name });
    expect(
      (await service.operator.get<Plan[]>(`/api/platform/plans?search=${sent.name}`)).data.map(({ id }) => id),
    ).toEqual([created.data.id]);
    expect((await service.operator.delete<{ id: number }>(path)).data).toEqual({ id: created.data.id });
    await service.operator.get(path, 404);
    await service.operator.put(path, { name: 'Gone' }, 404);
    await service.operator.delete(path, 404);
  });

  test('may have features that the service does not know, which are stored and enabled for their schools', async () => {
    const features = ['library', 'timetable'];
    const sent = {
      name: label('Plan'),
      price_monthly: 1,
      max_students: 10,
      max_teachers: 2,
      features_json: { features },
    };
    const { data: plan } = await post<Plan>('/plans', sent, 201);
    expect(plan.features_json).toEqual({ features });
    const other = await service.school({
      plan_id: plan.id,
      feature_flags: { alumni_2: true, library: true, canteen: false },
    });
    expect(await get(other.id)).toMatchObject({
      feature_flags: { alumni_2: true, library: true, canteen: false },
      enabled_features: ['alumni_2', 'library', 'timetable'],
    });
    expect((await other.admin.get<string[]>('/api/auth/enabled-features')).data).toEqual([
      'alumni_2',
      'library',
      'timetable',
    ]);
    expect((await other.admin.get('/api/transport/buses', 403)).error).toBe('feature_disabled');
    await service.operator.put(`/api/platform/tenants/${other.id}`, { feature_flags: { library: false } });
    expect((await get(other.id)).enabled_features).toEqual(['timetable']);
  });

  test('without features_json have none', async () => {
    const { data } = await post<Plan>(
      '/plans',
      { name: label('Bare'), price_monthly: 0, max_students: 0, max_teachers: 0 },
      201,
    );
    expect(data.features_json).toEqual({ features: [] });
  });

  test('cannot be deleted while a school uses it', async () => {
    const { data } = await post<Plan>(
      '/plans',
      { name: label('Used'), price_monthly: 1, max_students: 5, max_teachers: 5 },
      201,
    );
    const tenant = await create({ plan_id: data.id });
    expect((await service.operator.get<Plan>(`/api/platform/plans/${data.id}`)).data.tenant_count).toBe(1);
    expect((await service.operator.delete(`/api/platform/plans/${data.id}`, 409)).error).toBe('in_use');
    await service.operator.put(`/api/platform/tenants/${tenant.id}`, { plan_id: 1 });
    await service.operator.delete(`/api/platform/plans/${data.id}`);
  });

  /** The plan check that every change of teachers runs. */
  const withTeachers = async (of: School, change: string) =>
    withOwner(await of.database.addressFor(change), async (owner) => {
      await owner.query('begin');
      await owner.query('select core.enter_tenant($1)', [of.id]);
      await owner.query(change.replace('teacher', `${of.schema}.teacher`));
      await owner.query('select core.enforce_plan_limits()');
      await owner.query('commit');
    });
  const addTeacher = (to: School) =>
    withTeachers(to, "insert into teacher (first_name, last_name) values ('Tea', 'Cher')");

  test('limit the number of active teachers: more is a plan_limit_reached', async () => {
    const { data } = await post<Plan>(
      '/plans',
      { name: label('Teacher'), price_monthly: 0, max_students: 5, max_teachers: 1 },
      201,
    );
    const limited = await service.school({ plan_id: data.id });
    await addTeacher(limited);
    await expect(addTeacher(limited)).rejects.toThrow('allows 1 active teachers');
    await withTeachers(limited, 'update teacher set is_active = false');
    await addTeacher(limited);
    expect((await get(limited.id)).stats.total_teachers).toBe(1);
  });

  test('with limits lowered below the usage of a school let it shrink but not grow', async () => {
    const plan = await post<Plan>(
      '/plans',
      { name: label('Narrowed'), price_monthly: 0, max_students: 4, max_teachers: 3 },
      201,
    );
    const grown = await service.school({ plan_id: plan.data.id });
    const students: number[] = [];
    for (const last_name of ['One', 'Two', 'Three', 'Four']) {
      students.push(
        (await grown.admin.post<{ id: number }>('/api/students', { first_name: 'Student', last_name }, 201)).data.id,
      );
    }
    for (let n = 0; n < 3; n++) await addTeacher(grown);
    const [one = 0, two = 0, three = 0] = students;
    const active = (id: number, is_active: boolean, status = 200) =>
      grown.admin.put(`/api/students/${id}`, { is_active }, status);
    await service.operator.put(`/api/platform/plans/${plan.data.id}`, { max_students: 1, max_teachers: 1 });
    await active(one, false);
    await grown.admin.delete(`/api/students/${two}`);
    await active(three, true);
    await withTeachers(grown, 'update teacher set is_active = false where id = 1');
    const reached = ({ total_students, total_teachers }: Tenant['stats']) =>
      total_students === 2 && total_teachers === 2;
    await until(async () => reached((await get(grown.id)).stats) || undefined);
    expect((await active(one, true, 403)).error).toBe('plan_limit_reached');
    expect((await grown.admin.post('/api/students', { first_name: 'Student', last_name: 'Five' }, 403)).error).toBe(
      'plan_limit_reached',
    );
    await expect(addTeacher(grown)).rejects.toThrow('allows 1 active teachers');
    expect((await get(grown.id)).stats).toMatchObject({ total_students: 2, total_teachers: 2 });
  });

  test('apply changed features to their schools at once', async () => {
    const { data } = await post<Plan>(
      '/plans',
      { name: label('Live'), price_monthly: 1, max_students: 5, max_teachers: 5 },
      201,
    );
    const live = await service.school({ plan_id: data.id });
    expect((await live.admin.get<string[]>('/api/auth/enabled-features')).data).toEqual([]);
    await service.operator.put(`/api/platform/plans/${data.id}`, { features_json: { features: ['timetable'] } });
    expect((await live.admin.get<string[]>('/api/auth/enabled-features')).data).toEqual(['timetable']);
  });

  test.each([
    ['a price with three decimals', { price_monthly: 1.234 }, 'price_monthly'],
    ['a negative price', { price_monthly: -1 }, 'price_monthly'],
    ['a price that is not a number', { price_monthly: 'ten' }, 'price_monthly'],
    ['a fractional student limit', { max_students: 0.5 }, 'max_students'],
    ['a negative teacher limit', { max_teachers: -1 }, 'max_teachers'],
    ['a feature whose name is not a lower case word', { features_json: { features: ['Teleport!'] } }, 'features_json'],
    ['an unknown field in features_json', { features_json: { features: [], colour: 1 } }, 'features_json'],
    ['an empty name', { name: '' }, 'name'],
  ])('reject %s and name the field', async (_case, fields, path) => {
    const refused = await post(
      '/plans',
      { name: label('Plan'), price_monthly: 1, max_students: 1, max_teachers: 1, ...fields },
      400,
    );
    expect(refused.details.map((detail) => detail.path.split('.')[0])).toEqual([path]);
  });

  test('are listed by price by default, and sort by every column in both directions', async () => {
    const all = await walk<Plan>(service.operator, '/api/platform/plans', 100);
    expect(ids(all)).toEqual(ids(inOrder(all, ({ price_monthly }) => [price_monthly], 'asc')));
    for (const order of ['asc', 'desc'] as const) {
      const sorted = (sort: string) =>
        walk<Plan>(service.operator, `/api/platform/plans?sort=${sort}&order=${order}`, 3);
      expect(ids(await sorted('price_monthly'))).toEqual(
        ids(inOrder(all, ({ price_monthly }) => [price_monthly], order)),
      );
      expect(ids(await sorted('max_students'))).toEqual(ids(inOrder(all, ({ max_students }) => [max_students], order)));
      expect(ids(await sorted('created_at'))).toEqual(ids(inOrder(all, ({ created_at }) => [created_at], order)));
      expect(ids(await sorted('name')).sort((a, b) => a - b)).toEqual(ids(all).sort((a, b) => a - b));
    }
  });
});

describe('the settings', () => {
  const path = '/api/platform/settings';

  test('have the currency of all prices, US dollars at first, and changing it converts no price', async () => {
    const { data: before } = await service.operator.get<{ currency: string; updated_at: string }>(path);
    expect(before.currency).toBe('USD');
    const [plan] = (await service.operator.get<Plan[]>('/api/platform/plans')).data;
    expect(plan?.currency).toBe('USD');
    const { data: changed } = await service.operator.put<object>(path, { currency: 'EUR' });
    expect(changed).toMatchObject({ currency: 'EUR' });
    expect((await service.operator.get(path)).data).toEqual(changed);
    expect((await service.operator.get<Plan>(`/api/platform/plans/${plan?.id}`)).data).toEqual({
      ...plan,
      currency: 'EUR',
      tenant_count: expect.any(Number),
    });
    const school = await service.school();
    expect((await school.admin.get('/api/subscription/status')).data).toMatchObject({ plan: { currency: 'EUR' } });
    const { data: plans } = await school.admin.get<{ currency: string }[]>('/api/subscription/plans');
    expect(new Set(plans.map(({ currency }) => currency))).toEqual(new Set(['EUR']));
    const { data: entries } = await service.operator.get<AuditLog[]>(
      '/api/platform/audit-logs?action=platform_settings.update',
    );
    expect(entries).toMatchObject([{ changes: { currency: { before: 'USD', after: 'EUR' } } }]);
    await service.operator.put(path, { ...changed, currency: 'USD' });
  });

  test('refuse what is not a currency, unknown fields, changed read-only fields, and everybody but operators', async () => {
    for (const body of [{ currency: 'usd' }, { currency: 'XXZ' }, { currency: '' }, { price: 1 }])
      expect(await service.operator.put(path, body, 400)).toMatchObject({ error: 'validation_error' });
    await service.operator.put(path, { currency: 'EUR', created_at: '2020-01-01T00:00:00Z' }, 400);
    const school = await service.school();
    await school.admin.get(path, 403);
    await school.admin.put(path, { currency: 'EUR' }, 403);
    await service.anonymous.get(path, 401);
    expect((await service.operator.get(path)).data).toMatchObject({ currency: 'USD' });
  });
});

describe('the audit log', () => {
  test('about=subscription shows changes of the subscription, the plan and the trial, and nothing else', async () => {
    const school = await service.school();
    const tenant = `/api/platform/tenants/${school.id}`;
    await service.operator.put(tenant, { name: label('Renamed') });
    await service.operator.put(tenant, { plan_id: 2 });
    await service.operator.put(`${tenant}/subscription`, { grace_days: 3 });
    await service.operator.post(`${tenant}/suspend`);
    await service.operator.put(tenant, { trial_ends_at: new Date(Date.now() + 86_400_000).toISOString() });
    const query = `tenant_id=${school.id}&about=subscription`;
    const { data } = await service.operator.get<AuditLog[]>(`/api/platform/audit-logs?${query}`);
    expect(data.map(({ action }) => action)).toEqual([
      'tenant.update',
      'subscription.update',
      'tenant.update',
      'tenant.create',
    ]);
    expect(Object.keys(data[2]?.changes ?? {})).toContain('plan');
    const file = await service.operator.get<Buffer>(`/api/platform/audit-logs/export?format=csv&${query}`);
    expect(file.data.toString().trimEnd().split('\r\n')).toHaveLength(5);
    await service.operator.get('/api/platform/audit-logs?about=plans', 400);
  });

  test('has exactly one entry for each write of an operator: actor, action, before and after, and origin', async () => {
    const headers = { 'User-Agent': 'console of the tests', 'X-Request-Id': 'audit-1' };
    const operator = service.operator.with(headers);
    const me = (await service.operator.get<{ id: number }>('/api/auth/profile')).data.id;
    const name = label('Audited');
    const plan = await post<Plan>('/plans', { name, price_monthly: 1, max_students: 1, max_teachers: 1 }, 201);
    const tenant = await create();
    const path = `/api/platform/tenants/${tenant.id}`;
    const planPath = `/api/platform/plans/${plan.data.id}`;
    const extra = label('Extra');
    const writes: [string, () => Promise<unknown>, Record<string, unknown>][] = [
      [
        'tenant.update',
        () => operator.put(path, { name: 'Second name' }),
        { name: { before: tenant.name, after: 'Second name' } },
      ],
      ['tenant.suspend', () => operator.post(`${path}/suspend`), { status: { before: 'active', after: 'suspended' } }],
      [
        'tenant.activate',
        () => operator.post(`${path}/activate`),
        { status: { before: 'suspended', after: 'active' } },
      ],
      [
        'plan.update',
        () => operator.put(planPath, { price_monthly: 2.5 }),
        { price_monthly: { before: 1, after: 2.5 } },
      ],
      [
        'plan.create',
        () =>
          operator.post(
            '/api/platform/plans',
            { name: extra, price_monthly: 3, max_students: 1, max_teachers: 1 },
            201,
          ),
        {},
      ],
      ['plan.delete', () => operator.delete(planPath), {}],
    ];
    for (const [action, work, changes] of writes) {
      const entries = await audited(work);
      expect(entries).toHaveLength(1);
      expect(entries[0]).toMatchObject({
        actor: { id: me, email: operatorEmail },
        action,
        tenant_id: action.startsWith('tenant') ? tenant.id : null,
        target_type: action.split('.')[0],
        ip: '127.0.0.1',
        user_agent: 'console of the tests',
        request_id: 'audit-1',
      });
      if (Object.keys(changes).length > 0) expect(entries[0]?.changes).toEqual(changes);
    }
    const [created] = (await service.operator.get<AuditLog[]>(`/api/platform/audit-logs?action=plan.create`)).data;
    expect(created?.changes).toMatchObject({
      name: { before: null, after: extra },
      price_monthly: { before: null, after: 3 },
    });
    const [gone] = (await service.operator.get<AuditLog[]>(`/api/platform/audit-logs?action=plan.delete`)).data;
    expect(gone).toMatchObject({ target_id: plan.data.id, changes: { name: { before: name, after: null } } });
  });

  test('has plan changes, deletion and restoration with before and after', async () => {
    const tenant = await create({ plan_id: 1 });
    const [assigned] = await audited(() => service.operator.put(`/api/platform/tenants/${tenant.id}`, { plan_id: 2 }));
    expect(assigned?.changes['plan']).toEqual({
      before: { id: 1, name: 'Starter' },
      after: { id: 2, name: 'Standard' },
    });
    const deleted = await audited(() => remove(tenant.id));
    expect(deleted).toMatchObject([
      { action: 'tenant.delete', target_id: tenant.id, changes: { status: { before: 'active', after: 'deleted' } } },
    ]);
    const restored = await audited(() => step(tenant.id, 'restore'));
    expect(restored).toMatchObject([
      {
        action: 'tenant.restore',
        tenant_name: tenant.name,
        changes: { status: { before: 'deleted', after: 'active' } },
      },
    ]);
  });

  test('has every login of an operator, and none of a user of a school', async () => {
    const logins = await audited(async () => {
      await service.anonymous.login({ is_platform: true, email: operatorEmail, password: testPassword });
      await service.anonymous.login({ tenant_id: school.id, email: school.adminEmail, password: testPassword });
    });
    expect(logins).toMatchObject([
      { action: 'operator.login', target_type: 'operator', actor: { email: operatorEmail }, tenant_id: null },
    ]);
  });

  test("has operators' changes of their own name, picture and password", async () => {
    const email = 'vain-operator@test.example';
    const operator = await operatorCalled(email, 'admin');
    await operator.put('/api/auth/profile', { first_name: 'Renamed' });
    await operator.send('POST', '/api/auth/profile/picture', { body: fileForm(png, 'a.png', 'image/png') }, 200);
    await operator.post('/api/auth/password/change', { current_password: testPassword, password: 'the next password' });
    const { data } = await service.operator.get<AuditLog[]>(
      `/api/platform/audit-logs?search=${email}&sort=created_at&order=asc`,
    );
    expect(data.map(({ action }) => action)).toEqual([
      'operator.login',
      'operator.update',
      'operator.picture',
      'operator.password',
    ]);
  });

  test('has no entry for a rejected write', async () => {
    expect(await audited(() => step(school.id, 'activate', 409))).toEqual([]);
    expect(await audited(() => service.operator.put('/api/platform/plans/1', { name: 'Standard' }, 409))).toEqual([]);
    expect(await audited(() => service.operator.delete('/api/platform/plans/3', 409))).toEqual([]);
  });

  test('filters by school, action, operator and dates (inclusive), newest first', async () => {
    const tenant = await create();
    await step(tenant.id, 'suspend');
    await step(tenant.id, 'activate');
    const logs = async (query: string) =>
      (await service.operator.get<AuditLog[]>(`/api/platform/audit-logs?pageSize=100&${query}`)).data;
    expect((await logs(`tenant_id=${tenant.id}`)).map(({ action }) => action)).toEqual([
      'tenant.activate',
      'tenant.suspend',
      'tenant.create',
    ]);
    expect((await logs(`tenant_id=${tenant.id}&action=tenant.suspend`)).map(({ action }) => action)).toEqual([
      'tenant.suspend',
    ]);
    expect(await logs('action=tenant.explode')).toEqual([]);
    const mine = await logs(`tenant_id=${tenant.id}`);
    const actor = mine[0]?.actor.id ?? 0;
    expect(await logs(`tenant_id=${tenant.id}&actor_id=${actor}`)).toEqual(mine);
    expect(await logs(`tenant_id=${tenant.id}&actor_id=999999`)).toEqual([]);
    await service.database.query(
      `insert into platform.audit_log (action, target_type, tenant_id, created_at) values
         ('old.first', 'tenant', $1, '2020-03-01T00:00:00Z'), ('old.last', 'tenant', $1, '2020-03-02T23:59:59.999Z'), ('old.next', 'tenant', $1, '2020-03-03T00:00:00Z')`,
      [tenant.id],
    );
    const actions = async (query: string) =>
      (await logs(`tenant_id=${tenant.id}&${query}`)).map(({ action }) => action);
    expect(await actions('from_date=2020-03-01&to_date=2020-03-02')).toEqual(['old.last', 'old.first']);
    expect(await actions('to_date=2020-03-01')).toEqual(['old.first']);
    expect(await actions('from_date=2020-03-02&to_date=2020-03-03')).toEqual(['old.next', 'old.last']);
    expect(await actions('to_date=2020-12-31&order=asc')).toEqual(['old.first', 'old.last', 'old.next']);
    for (const query of ['from_date=2020-02-30', 'to_date=yesterday', 'tenant_id=x', 'colour=red']) {
      expect((await service.operator.get(`/api/platform/audit-logs?${query}`, 400)).details).toMatchObject([
        { path: query.split('=')[0] },
      ]);
    }
  });

  test('has pages that do not overlap', async () => {
    for (const order of ['asc', 'desc'] as const) {
      const walked = await walk<AuditLog>(service.operator, `/api/platform/audit-logs?sort=action&order=${order}`, 7);
      expect(new Set(walked.map(({ id }) => id)).size).toBe(walked.length);
      expect(walked.map(({ id }) => id)).toEqual(inOrder(walked, ({ action }) => [action], order).map(({ id }) => id));
    }
  });

  test('cannot be changed by any route or SQL statement, even of the owner', async () => {
    const [entry] = (await service.operator.get<AuditLog[]>('/api/platform/audit-logs?pageSize=1')).data;
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
      expect(
        (
          await service.operator.send(method, '/api/platform/audit-logs', method === 'POST' ? { body: {} } : {}, 405)
        ).headers.get('allow'),
      ).toBe('GET, HEAD, OPTIONS');
      await service.operator.send(method, `/api/platform/audit-logs/${entry?.id ?? 0}`, {}, 404);
    }
    for (const statement of [
      "update platform.audit_log set action = 'nothing'",
      'delete from platform.audit_log',
      'truncate platform.audit_log',
    ]) {
      await expect(service.database.query(statement)).rejects.toThrow('append-only');
    }
  });
});

describe('the overview', () => {
  interface Overview {
    total_tenants: number;
    active_tenants: number;
    suspended_tenants: number;
    signups_this_month: number;
    signups_by_month: { month: string; signups: number }[];
    recent_audit_logs: AuditLog[];
  }
  const overview = async () => (await service.operator.get<Overview>('/api/platform/overview')).data;
  const numbers = ({ total_tenants, active_tenants, suspended_tenants, signups_this_month }: Overview) => [
    total_tenants,
    active_tenants,
    suspended_tenants,
    signups_this_month,
  ];

  test("counts active and suspended schools and this month's sign-ups, excluding deleted schools", async () => {
    const before = await overview();
    const since = async () => numbers(await overview()).map((n, at) => n - (numbers(before)[at] ?? 0));
    const [one, two] = [await create(), await create()];
    expect(await since()).toEqual([2, 2, 0, 2]);
    await step(one.id, 'suspend');
    expect(await since()).toEqual([2, 1, 1, 2]);
    await remove(two.id);
    expect(await since()).toEqual([1, 0, 1, 1]);
    await service.database
      .of(one.id)
      .query("update platform.tenant set created_at = date_trunc('month', now()) - interval '1 second' where id = $1", [
        one.id,
      ]);
    expect(await since()).toEqual([1, 0, 1, 0]);
    await step(two.id, 'restore');
    expect(await since()).toEqual([2, 1, 1, 1]);
  });

  test('has the sign-ups of twelve months, the current one last, and the ten latest audit entries', async () => {
    const { signups_by_month, signups_this_month, recent_audit_logs } = await overview();
    expect(signups_by_month).toHaveLength(12);
    expect(signups_by_month.at(-1)).toEqual({
      month: new Date().toISOString().slice(0, 7),
      signups: signups_this_month,
    });
    expect(signups_by_month.map(({ month }) => month)).toEqual(signups_by_month.map(({ month }) => month).sort());
    const latest = await service.operator.get<AuditLog[]>('/api/platform/audit-logs?pageSize=10');
    expect(recent_audit_logs).toEqual(latest.data);
  });
});

describe('access', () => {
  const reads = ['/overview', '/tenants', '/tenants/1', '/plans', '/plans/1', '/audit-logs'];
  test('is denied without a login, and for school admins and analysts', async () => {
    const analyst = await operatorCalled('analyst@test.example', 'analyst');
    for (const path of reads) {
      expect((await service.anonymous.get(`/api/platform${path}`, 401)).error).toBe('unauthenticated');
      expect((await school.admin.get(`/api/platform${path}`, 403)).error).toBe('forbidden');
      expect((await analyst.get(`/api/platform${path}`, 403)).error).toBe('forbidden');
    }
    for (const client of [school.admin, analyst]) {
      await client.post('/api/platform/tenants', input(), 403);
      await client.post(`/api/platform/tenants/${school.id}/suspend`, undefined, 403);
      await client.delete(`/api/platform/tenants/${school.id}`, 403);
      await client.put('/api/platform/plans/1', { price_monthly: 0 }, 403);
    }
    expect((await get(school.id)).status).toBe('active');
  });

  test('needs no X-Tenant-ID for operators, and ignores it', async () => {
    const plain = await service.operator.get<Tenant[]>('/api/platform/tenants?pageSize=3');
    const named = await service.operator.send<Tenant[]>(
      'GET',
      '/api/platform/tenants?pageSize=3',
      { headers: { 'X-Tenant-ID': String(school.id) } },
      200,
    );
    expect(named.data).toEqual(plain.data);
  });
});
