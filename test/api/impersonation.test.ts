import { describe, expect, test } from '@jest/globals';
import jwt from 'jsonwebtoken';
import { passwords } from '../../src/domain/passwords.ts';
import { createOperator } from '../../src/database/operator.ts';
import { withOwner } from '../../src/database/pool/pool.ts';
import type { Answer, Client } from '../support/client/client.ts';
import { mailsTo } from '../support/fakes/mail.ts';
import { race } from '../support/client/race.ts';
import { operatorEmail, type School, serviceWithSchool, testPassword, unique } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Impersonation as ImpersonationSchema } from '../../src/endpoints/impersonation.ts';
import type { AuditLog as AuditLogSchema } from '../../src/endpoints/platform.ts';

const { service, school } = await serviceWithSchool({ APP_URL: 'https://app.example/start' }, 20);

type Impersonation = OutputOf<typeof ImpersonationSchema>;
type Entry = OutputOf<typeof AuditLogSchema>;

const reason = 'The school asked why an invoice is missing.';

async function begin(
  target: School = school,
  body: Record<string, unknown> = {},
  status = 200,
  by: Client = service.operator,
) {
  const path = `/api/platform/tenants/${target.id}/impersonate`;
  const answer = await by.post<Impersonation>(path, { reason, ...body }, status);
  await service.settled();
  return answer;
}

/** The same without checking the status. */
const tryToBegin = (target: School, body: Record<string, unknown> = {}) =>
  service.operator.send<Impersonation>('POST', `/api/platform/tenants/${target.id}/impersonate`, {
    body: { reason, ...body },
  });

/** A client with the token of an operator who impersonates an admin. */
async function impersonate(
  target: School = school,
  body: Record<string, unknown> = {},
  by: Client = service.operator,
): Promise<Client & Impersonation> {
  const { data } = await begin(target, body, 200, by);
  return Object.assign(service.anonymous.with({ Authorization: `Bearer ${data.access_token}` }), data);
}

/** Creates another operator and logs in. */
async function newOperator(role: 'admin' | 'analyst' = 'admin') {
  const email = `${unique('operator')}@test.example`;
  const passwordHash = await passwords({ memoryCost: 64 }).hash(testPassword);
  await withOwner(service.database.url, (owner) =>
    createOperator(owner, { email, passwordHash, firstName: 'New', lastName: 'Operator', role, tenantIds: null }),
  );
  // The node of a school has a copy of the operator.
  await until(async () => {
    const [copies] = await service.database.query<{ are_current: boolean }>(
      'select core.is_copied(core.wal_position()) as are_current',
    );
    return copies?.are_current === true || undefined;
  });
  const client = await service.anonymous.login({ is_platform: true, email, password: testPassword });
  return { client, email };
}

/** The same token with other claims, signed with the service's key. */
const forged = (client: Impersonation, claims: object) => {
  const all = { ...(jwt.decode(client.access_token) as object), ...claims };
  const kept = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
  return service.anonymous.with({
    Authorization: `Bearer ${jwt.sign(kept, 'a secret of the tests that is long enough')}`,
  });
};

/** The latest audit entries of a school, newest first. */
const trail = async (target: School = school) =>
  (await service.operator.get<Entry[]>(`/api/platform/audit-logs?tenant_id=${target.id}&pageSize=100`)).data;
const allow = (target: School, is_impersonation_allowed: boolean) =>
  target.admin.post('/api/school-setup/school-info', { is_impersonation_allowed });
const refused = (client: Client) => client.send('GET', '/api/auth/profile', {}, 401);
const profile = (client: Client) =>
  client.get<{ id: number; impersonated_by: { id: number; email: string } | null }>('/api/auth/profile');

describe('an operator impersonates an admin of a school', () => {
  test('for ten minutes, with the rights of the admin and a token that names the operator', async () => {
    const before = Date.now();
    const { data, headers } = await begin();
    expect(data.user.email).toBe(school.adminEmail);
    expect(data.impersonated_by.email).toBe(operatorEmail);
    expect(data.tenant).toMatchObject({ id: school.id, subdomain: school.subdomain });
    expect(headers.get('x-refresh-token')).toBeNull();
    expect(headers.get('set-cookie')).toBeNull();
    expect(headers.get('cache-control')).toBe('no-store');
    const claims = jwt.decode(data.access_token) as {
      exp: number;
      sid: number;
      tenant_id: number;
      user_id: number;
      impersonated_by: unknown;
    };
    expect(claims).toMatchObject({
      tenant_id: school.id,
      user_id: data.user.id,
      impersonated_by: data.impersonated_by,
    });
    for (const end of [claims.exp * 1000, Date.parse(data.expires_at)]) {
      expect(end).toBeGreaterThan(before + 590_000);
      expect(end).toBeLessThan(Date.now() + 602_000);
    }
    const url = new URL(data.url ?? '');
    expect(`${url.origin}${url.pathname}${url.search}`).toBe('https://app.example/start');
    expect(new URLSearchParams(url.hash.slice(1)).get('access_token')).toBe(data.access_token);
    const rows = await service.database.query('select from platform.refresh_token where session_id = $1', [claims.sid]);
    expect(rows).toHaveLength(0);
    const { data: mine } = await profile(service.anonymous.with({ Authorization: `Bearer ${data.access_token}` }));
    expect(mine).toMatchObject({ id: data.user.id, impersonated_by: data.impersonated_by });
    expect((await profile(school.admin)).data.impersonated_by).toBeNull();
  });

  test('the admin is the requested one, or else the one who has been admin longest; only admins are possible', async () => {
    const target = await service.school();
    const second = await target.user(['admin']);
    const teacher = await target.user(['teacher']);
    expect((await begin(target)).data.user.email).toBe(target.adminEmail);
    expect((await begin(target, { user_id: second.id })).data.user.id).toBe(second.id);
    for (const user_id of [teacher.id, 999_999]) {
      expect(await begin(target, { user_id }, 422)).toMatchObject({
        error: 'invalid_reference',
        details: [{ path: 'user_id' }],
      });
    }
    await target.admin.put(`/api/users/${second.id}`, { is_active: false });
    expect((await begin(target, { user_id: second.id }, 422)).error).toBe('invalid_reference');
    // An invited admin who has never logged in is chosen last.
    const third = await target.user(['admin']);
    await service.database.query(`update ${target.schema}.user_account set password_hash = null where email = $1`, [
      target.adminEmail,
    ]);
    expect((await begin(target)).data.user.id).toBe(third.id);
    await service.database.query(`update ${target.schema}.user_account set is_active = false`);
    expect(await begin(target, {}, 409)).toMatchObject({
      error: 'invalid_state',
      message: 'This school has no active admin.',
    });
  });

  test('requires a reason, an active school, and the role of an operator', async () => {
    for (const given of [undefined, '', '   short   ', 'x'.repeat(501), 17]) {
      expect(await begin(school, { reason: given }, 400)).toMatchObject({
        error: 'validation_error',
        details: [{ path: 'reason' }],
      });
    }
    await service.operator.post('/api/platform/tenants/999999/impersonate', { reason }, 404);
    const target = await service.school();
    await service.operator.post(`/api/platform/tenants/${target.id}/suspend`, undefined);
    expect(await begin(target, {}, 409)).toMatchObject({
      error: 'invalid_state',
      message: 'This school is suspended, so nobody can log in.',
    });
    await service.operator.delete(`/api/platform/tenants/${target.id}`);
    expect((await begin(target, {}, 409)).error).toBe('invalid_state');
    expect((await begin(school, {}, 403, (await newOperator('analyst')).client)).error).toBe('forbidden');
    expect((await begin(school, {}, 403, school.admin)).error).toBe('forbidden');
    expect((await begin(school, {}, 403, await impersonate())).error).toBe('forbidden');
  });

  test('notifies the admins of the operator, reason, time and impersonated admin, in the app and by email', async () => {
    const target = await service.school();
    const second = await target.user(['admin']);
    const teacher = await target.user(['teacher']);
    await begin(target, { user_id: second.id, reason: 'You asked about 100% of {{name}}.' });
    for (const admin of [target.admin, second]) {
      const { data } = await admin.get<{ title: string; message: string; type: string }[]>('/api/notifications');
      const notice = data.filter(({ type }) => type === 'operator.login');
      expect(notice).toHaveLength(1);
      expect(notice[0]?.message).toContain(`${operatorEmail} logged in as Uma User (${second.email})`);
      expect(notice[0]?.message).toContain('Reason: You asked about 100% of {{name}}.');
      expect(notice[0]?.message).toMatch(/^On \d+ \w+ \d{4} at \d\d:\d\d /);
    }
    expect(
      (await teacher.get<{ type: string }[]>('/api/notifications')).data.filter(
        ({ type }) => type === 'operator.login',
      ),
    ).toEqual([]);
    const mail = await until(async () =>
      (await mailsTo(service, second.email)).find(({ subject }) => subject.startsWith('An operator logged in')),
    );
    expect(mail.text).toContain(operatorEmail);
  });
});

describe('the notification of the school', () => {
  test('is sent even if operators have disabled its notifications', async () => {
    const target = await service.school();
    const features = (feature_flags: Record<string, boolean>) =>
      service.operator.put(`/api/platform/tenants/${target.id}`, { feature_flags });
    await features({ notifications: false });
    await begin(target);
    const mail = await until(async () =>
      (await mailsTo(service, target.adminEmail)).find(({ subject }) => subject.startsWith('An operator logged in')),
    );
    expect(mail.text).toContain(operatorEmail);
    await features({});
    const { data } = await target.admin.get<{ type: string; is_read: boolean }[]>('/api/notifications');
    expect(data.filter(({ type }) => type === 'operator.login')).toHaveLength(1);
  });

  test('cannot be marked as read, deleted, turned off or reworded by the operator; other notifications can', async () => {
    const target = await service.school();
    const client = await impersonate(target);
    const { data } = await target.admin.get<{ id: number; type: string }[]>('/api/notifications');
    const notice = data.find(({ type }) => type === 'operator.login')?.id;
    const other =
      data.find(({ type }) => type !== 'operator.login')?.id ??
      (await target.insert('notification', { user_id: client.user.id, title: 'Other', message: 'Other' }));
    const words = { name: 'Operator.Login', title: 'Nothing', message: 'Nothing happened' };
    const { data: mine } = await target.admin.post<{ id: number }>('/api/notifications/templates', words, 201);
    await client.put(`/api/notifications/templates/${mine.id}`, { title: 'Never mind' }, 403);
    await client.delete(`/api/notifications/templates/${mine.id}`, 403);
    await target.admin.delete(`/api/notifications/templates/${mine.id}`);
    await client.post('/api/notifications/templates', words, 403);
    await client.put('/api/notifications/events/operator.login', { is_enabled: false }, 403);
    await client.post(`/api/notifications/${notice}/read`, undefined, 403);
    await client.post('/api/notifications/read-all', undefined, 403);
    await client.delete(`/api/notifications/${notice}`, 403);
    await client.post(`/api/notifications/${other}/read`, undefined);
    await client.put('/api/notifications/events/holiday.added', { is_enabled: false }, 403);
    await target.admin.put('/api/notifications/events/operator.login', { is_enabled: false });
    await target.admin.post('/api/notifications/read-all', undefined);
    await begin(target);
    const after = await target.admin.get<{ type: string }[]>('/api/notifications');
    expect(after.data.filter(({ type }) => type === 'operator.login')).toHaveLength(1);
  });
});

describe('the audit log has both names', () => {
  test('for the start with its reason, then for each request: read, written, rejected, malformed, forbidden', async () => {
    const target = await service.school();
    const operator = await newOperator();
    const client = await impersonate(target, {}, operator.client);
    const { classId } = await target.classroom();
    await client.get('/api/students?search=Secretname');
    const created = await client.post<{ id: number }>('/api/religions', { name: 'Secretreligion' }, 201);
    await client.get(`/api/classes/${classId}`);
    await client.get('/api/students/999999', 404);
    await client.post('/api/religions', { name: 'Secretreligion' }, 409);
    await client.send('POST', '/api/religions', { body: { nom: 'Secretname' } }, 400);
    await client.send('POST', '/api/religions', { body: '{', headers: { 'Content-Type': 'application/json' } }, 400);
    await client.send('POST', '/api/students', { body: 'a', headers: { 'Content-Type': 'text/plain' } }, 415);
    await client.get('/api/platform/tenants', 403);
    await client.with({ 'X-Tenant-ID': String(school.id) }).get('/api/students', 403);
    await client.with({ 'X-Tenant-ID': 'none' }).get('/api/students', 400);
    const entries = (await trail(target)).filter(({ actor }) => actor.email === operator.email).reverse();
    expect(entries.map(({ action, target_id, changes }) => [action, target_id, changes['outcome']?.after])).toEqual([
      ['tenant.impersonate', target.id, undefined],
      ['impersonation.students_list', null, 'ok'],
      ['impersonation.religions_create', null, 'ok'],
      ['impersonation.classes_get', classId, 'ok'],
      ['impersonation.students_get', 999_999, 'not_found'],
      ['impersonation.religions_create', null, 'refused'],
      ['impersonation.religions_create', null, 'validation_error'],
      ['impersonation.religions_create', null, 'malformed_json'],
      ['impersonation.students_create', null, 'unsupported_media_type'],
      ['impersonation.platform_tenants_list', null, 'forbidden'],
      ['impersonation.students_list', null, 'tenant_mismatch'],
      ['impersonation.students_list', null, 'validation_error'],
    ]);
    expect(entries[0]?.changes['reason']).toEqual({ before: null, after: reason });
    for (const { actor, impersonated, tenant_id, request_id } of entries) {
      expect([actor.email, impersonated, tenant_id]).toEqual([
        operator.email,
        { id: client.user.id, email: target.adminEmail },
        target.id,
      ]);
      expect(request_id).toMatch(/\S/);
    }
    expect(JSON.stringify(entries)).not.toMatch(/Secret/);
    // Rejected changes left nothing, successful ones were made.
    expect((await target.admin.get<{ id: number }[]>('/api/religions')).data.map(({ id }) => id)).toContain(
      created.data.id,
    );
    const { data: found } = await service.operator.get<Entry[]>(
      `/api/platform/audit-logs?actor_id=${client.impersonated_by.id}&action=impersonation.classes_get`,
    );
    expect(found).toHaveLength(1);
    // The trail can also be searched by the impersonated user.
    const { data: ofAdmin } = await service.operator.get<Entry[]>(
      `/api/platform/audit-logs?search=${encodeURIComponent(target.adminEmail)}&pageSize=100`,
    );
    expect(ofAdmin).toHaveLength(entries.length);
  });

  test('for a change with a separate audit entry, which names the operator too', async () => {
    const target = await service.school({ plan_id: (await service.plan()).id });
    const client = await impersonate(target);
    await client.post('/api/subscription/upgrade', { plan_id: 3 });
    expect((await trail(target)).slice(0, 2)).toMatchObject([
      { action: 'impersonation.subscription_upgrade', actor: { email: operatorEmail } },
      {
        action: 'subscription.upgrade',
        actor: { id: client.impersonated_by.id, email: operatorEmail },
        impersonated: { id: client.user.id },
      },
    ]);
  });

  test('for files, uploads, streams and idempotent requests too, with the usual responses', async () => {
    const target = await service.school();
    const client = await impersonate(target);
    const key = { headers: { 'Idempotency-Key': unique('key') }, body: { first_name: 'Ida', last_name: 'Once' } };
    const [first, again] = [
      await client.send<{ id: number }>('POST', '/api/students', key, 201),
      await client.send<{ id: number }>('POST', '/api/students', key, 201),
    ];
    expect(again.data).toEqual(first.data);
    const { headers } = await client.get(`/api/students/${first.data.id}`);
    await client.send(
      'PUT',
      `/api/students/${first.data.id}`,
      { body: { first_name: 'Eda' }, headers: { 'If-Match': headers.get('etag') ?? '' } },
      200,
    );
    await client.send(
      'PUT',
      `/api/students/${first.data.id}`,
      { body: { first_name: 'Oda' }, headers: { 'If-Match': headers.get('etag') ?? '' } },
      412,
    );
    await client.get('/api/students/import/template');
    await client.get('/api/notifications/stream');
    expect((await trail(target)).slice(0, 6).map(({ action, changes }) => [action, changes['outcome']?.after])).toEqual(
      [
        ['impersonation.notifications_stream', 'ok'],
        ['impersonation.imports_students_template', 'ok'],
        ['impersonation.students_update', 'precondition_failed'],
        ['impersonation.students_update', 'ok'],
        ['impersonation.students_get', 'ok'],
        ['impersonation.students_create', 'ok'],
      ],
    );
    expect((await target.admin.get<{ first_name: string }>(`/api/students/${first.data.id}`)).data.first_name).toBe(
      'Eda',
    );
  });

  test('for reads, whose transaction can write only the entry, and for internal errors', async () => {
    const target = await service.school();
    const client = await impersonate(target);
    const [before] = await target.database.query<{ body: string }>(
      `select pg_get_functiondef('api.holidays_list(jsonb)'::regprocedure) as body`,
    );
    const replaceBody = (body: string) =>
      target.database.query(
        `create or replace function api.holidays_list(p jsonb) returns json language plpgsql as $$ begin ${body} return '{}'; end $$`,
      );
    try {
      await replaceBody(`execute 'insert into religion (name) values (''never'')';`);
      expect((await client.send('GET', '/api/holidays')).status).toBe(503);
      await replaceBody(`raise 'A fault';`);
      expect((await client.send('GET', '/api/holidays')).status).toBe(500);
    } finally {
      await target.database.query(before?.body ?? '');
    }
    await client.get('/api/holidays');
    expect((await trail(target)).slice(0, 3).map(({ action, changes }) => [action, changes['outcome']?.after])).toEqual(
      [
        ['impersonation.holidays_list', 'ok'],
        ['impersonation.holidays_list', 'internal_error'],
        ['impersonation.holidays_list', 'unavailable'],
      ],
    );
    expect(
      (await target.admin.get<{ name: string }[]>('/api/religions')).data.filter(({ name }) => name === 'never'),
    ).toEqual([]);
  });
});

describe('impersonation ends', () => {
  test('after ten minutes: session and token have expired', async () => {
    const client = await impersonate();
    const { sid } = jwt.decode(client.access_token) as { sid: number };
    await school.database.query(`update platform.session set expires_at = now() where id = $1`, [sid]);
    expect((await refused(client)).error).toBe('invalid_token');
    await school.database.query(`update platform.session set expires_at = now() + interval '1 hour' where id = $1`, [
      sid,
    ]);
    await profile(client);
    const late = forged(client, { exp: Math.floor(Date.now() / 1000) - 1 });
    expect((await refused(late)).error).toBe('invalid_token');
  });

  test('with a logout, which leaves the operator logged in', async () => {
    const client = await impersonate();
    const answer = await client.send(
      'POST',
      '/api/auth/logout',
      { headers: { Cookie: 'refresh_token=of-the-console' } },
      200,
    );
    expect(answer.headers.get('set-cookie')).toBeNull();
    await refused(client);
    await service.operator.get('/api/platform/overview');
  });

  test('with the operator: deactivated, changed to analyst, logged out, or with a new password', async () => {
    const ends: ((operator: Awaited<ReturnType<typeof newOperator>>) => Promise<unknown>)[] = [
      ({ email }) =>
        service.database.query('update platform.user_account set is_active = false where email = $1', [email]),
      ({ email }) =>
        service.database.query(`update platform.user_account set role = 'analyst' where email = $1`, [email]),
      ({ email }) => service.database.query('delete from platform.user_account where email = $1', [email]),
      ({ client }) => client.post('/api/auth/logout'),
      async ({ client, email }) => {
        const other = await service.anonymous.login({ is_platform: true, email, password: testPassword });
        await other.post('/api/auth/password/change', { current_password: testPassword, password: 'another password' });
        await client.get('/api/platform/overview', 401);
      },
    ];
    for (const end of ends) {
      const operator = await newOperator();
      const client = await impersonate(school, {}, operator.client);
      await profile(client);
      await end(operator);
      expect((await refused(client)).error).toBe('invalid_token');
    }
  });

  test('with the admin: deactivated, deleted, no longer an admin, or with a new password', async () => {
    const target = await service.school();
    const role = (await target.admin.get<{ id: number; name: string }[]>('/api/rbac/roles')).data.find(
      ({ name }) => name === 'admin',
    );
    const ends: ((user: { id: number }) => Promise<unknown>)[] = [
      ({ id }) => target.admin.put(`/api/users/${id}`, { is_active: false }),
      ({ id }) => target.admin.delete(`/api/users/${id}`),
      ({ id }) => target.admin.delete(`/api/rbac/users/${id}/roles/${role?.id}`),
      ({ id }) => target.admin.put(`/api/users/${id}`, { role_ids: [] }),
      ({ id }) => target.admin.put(`/api/users/${id}`, { password: 'another password' }),
    ];
    for (const end of ends) {
      const user = await target.user(['admin', 'teacher']);
      const client = await impersonate(target, { user_id: user.id });
      await profile(client);
      await end(user);
      expect((await refused(client)).error).toBe('invalid_token');
    }
  });

  test('with the school: suspended, and it does not resume when the school is activated', async () => {
    const target = await service.school();
    const client = await impersonate(target);
    await service.operator.post(`/api/platform/tenants/${target.id}/suspend`, undefined);
    await refused(client);
    await service.operator.post(`/api/platform/tenants/${target.id}/activate`, undefined);
    await refused(client);
    await profile(target.admin);
  });

  test('and its session has no refresh token and no access to other schools', async () => {
    const client = await impersonate();
    const other = await service.school();
    await client.send('POST', '/api/auth/refresh', {}, 401);
    await client.send('POST', '/api/auth/refresh', { headers: { 'X-Refresh-Token': client.access_token } }, 401);
    expect((await client.with({ 'X-Tenant-ID': String(other.id) }).get('/api/students', 403)).error).toBe(
      'tenant_mismatch',
    );
    expect((await client.get('/api/platform/overview', 403)).error).toBe('forbidden');
  });

  test("it does not reveal whether a password is the admin's, and no attempt counts against the admin", async () => {
    const client = await impersonate();
    for (const current_password of [testPassword, 'not the password']) {
      const answer = await client.post(
        '/api/auth/password/change',
        { current_password, password: 'another password' },
        403,
      );
      expect(answer.error).toBe('forbidden');
    }
    for (let i = 0; i < 10; i++)
      await client.post('/api/auth/password/change', { current_password: 'wrong', password: 'another password' }, 403);
    await service.anonymous.login({ tenant_id: school.id, email: school.adminEmail, password: testPassword });
  });

  test('no field of logins and roles can be changed, but fields can be sent back unchanged', async () => {
    const target = await service.school();
    const user = await target.user(['teacher']);
    const role = (await target.admin.get<{ id: number; name: string }[]>('/api/rbac/roles')).data.find(
      ({ name }) => name === 'teacher',
    );
    const client = await impersonate(target);
    for (const part of [
      { is_active: false },
      { password: 'another password' },
      { email: `${unique('new')}@school.example` },
      { role_ids: [] },
      { first_name: 'Another' },
      { last_name: 'Another' },
      { phone: '+44 20 1234 5678' },
    ]) {
      expect([part, (await client.put(`/api/users/${user.id}`, part, 403)).error]).toEqual([part, 'forbidden']);
    }
    const { data: unchanged } = await target.admin.get<{ first_name: string }>(`/api/users/${user.id}`);
    await client.put(`/api/users/${user.id}`, { first_name: unchanged.first_name, is_active: true });
    await client.put(`/api/rbac/roles/${role?.id}`, { permission_ids: [] }, 403);
    await user.get('/api/auth/profile');
  });

  test.each([
    ...['role', 'role_permission', 'user_role'].flatMap((table) => [
      `update ${table} set updated_at = now()`,
      `delete from ${table}`,
    ]),
    `insert into user_role (user_id, role_id) select u.id, r.id from user_account u, role r`,
    `insert into user_account (email, first_name, last_name) values ('new@school.example', 'N', 'N')`,
    `update user_account set deleted_at = now()`,
    `update user_account set email_verified_at = now() - interval '1 day'`,
  ])('triggers on the tables reject it for any operation: %s', async (statement) => {
    const block = `do $$ begin perform set_config('app.impersonator_id', '1', true), set_config('search_path', '${school.schema}, public', true); ${statement}; end $$`;
    await expect(service.database.query(block)).rejects.toThrow('An operator cannot change logins');
  });

  test('its session is rejected by the dispatcher that writes no audit entry', async () => {
    const client = await impersonate();
    const { sid } = jwt.decode(client.access_token) as { sid: number };
    await expect(service.database.query(`select core.call('students_list', $1, '{}', '{}')`, [sid])).rejects.toThrow(
      'The session has ended',
    );
    // With a token that does not name the operator.
    expect((await refused(forged(client, { impersonated_by: undefined }))).error).toBe('invalid_token');
    await profile(forged(client, {}));
  });
});

describe('a school can disallow it', () => {
  test('through its admin: running sessions end at once, and no new one can start until an admin allows it again', async () => {
    const target = await service.school();
    const client = await impersonate(target);
    const open = await target.database.query<{ id: string }>(
      'select id from platform.session where tenant_id = $1 and impersonator_id is not null and revoked_at is null',
      [target.id],
    );
    expect(open).toHaveLength(1);
    expect((await allow(target, false)).data).toMatchObject({ is_impersonation_allowed: false });
    await refused(client);
    expect((await begin(target, {}, 409)).message).toMatch('does not allow operators to log in');
    const path = `/api/platform/tenants/${target.id}`;
    expect(
      (await service.operator.get<{ is_impersonation_allowed: boolean }>(path)).data.is_impersonation_allowed,
    ).toBe(false);
    const denied = await service.operator.put(path, { is_impersonation_allowed: true }, 403);
    expect(denied).toMatchObject({
      error: 'forbidden',
      message: 'Only an admin of the school can allow operators to log in again.',
    });
    expect((await trail(target)).find(({ action }) => action === 'tenant.update')).toMatchObject({
      actor: { id: null, email: target.adminEmail },
      changes: { is_impersonation_allowed: { before: true, after: false } },
    });
    await allow(target, true);
    await refused(client);
    await profile(await impersonate(target));
  });

  test('through an operator, whose update also accepts the unchanged response of GET', async () => {
    const target = await service.school();
    const client = await impersonate(target);
    const path = `/api/platform/tenants/${target.id}`;
    const asRead = async () => (await service.operator.get(path)).data;
    await service.operator.put(path, await asRead());
    await profile(client);
    expect(
      (await service.operator.put<{ is_impersonation_allowed: boolean }>(path, { is_impersonation_allowed: false }))
        .data.is_impersonation_allowed,
    ).toBe(false);
    await refused(client);
    await service.operator.put(path, await asRead());
  });

  test('but not through other users, or an operator who impersonates an admin', async () => {
    const target = await service.school();
    const clerk = await target.user([await target.role('setup.manage')]);
    expect((await clerk.post('/api/school-setup/school-info', { is_impersonation_allowed: false }, 403)).error).toBe(
      'forbidden',
    );
    await clerk.post('/api/school-setup/school-info', { is_impersonation_allowed: true, phone: '123' });
    const client = await impersonate(target);
    expect((await client.post('/api/school-setup/school-info', { is_impersonation_allowed: false }, 403)).error).toBe(
      'forbidden',
    );
    await client.post('/api/school-setup/school-info', { address: 'Another street' });
  });

  test('while an impersonation starts: it is rejected or ends', async () => {
    const target = await service.school();
    const lock = `select from platform.tenant where id = ${target.id} for update`;
    for (let round = 0; round < 3; round++) {
      const answers = await race<Answer<unknown>>(target.database, lock, 3, () => [
        tryToBegin(target),
        allow(target, false),
        tryToBegin(target),
      ]);
      for (const { status, data } of [answers[0], answers[2]] as Answer<Impersonation>[]) {
        if (status === 200) await refused(service.anonymous.with({ Authorization: `Bearer ${data.access_token}` }));
        else expect(status).toBe(409);
      }
      await allow(target, true);
    }
  });

  test('an admin who is deleted while an impersonation starts: no session remains', async () => {
    const target = await service.school();
    for (let round = 0; round < 3; round++) {
      const user = await target.user(['admin']);
      const lock = `select from ${target.schema}.user_account where id = ${user.id} for update`;
      const [begun] = await race<Answer<unknown>>(service.database, lock, 2, () => [
        tryToBegin(target, { user_id: user.id }),
        target.admin.delete(`/api/users/${user.id}`),
      ]);
      if (begun?.status === 200)
        await refused(
          service.anonymous.with({ Authorization: `Bearer ${(begun.data as Impersonation).access_token}` }),
        );
      else expect(begun?.status).toBe(422);
    }
  });

  test('imported schools: files of earlier versions allow it, like new schools; newer files keep their setting', async () => {
    const allowed = async (tenant: object) =>
      (
        await service.database.query<{ allowed: boolean }>(
          'select (core.archive_school($1)).is_impersonation_allowed as allowed',
          [JSON.stringify({ tenant })],
        )
      )[0]?.allowed;
    expect([await allowed({ id: 7 }), await allowed({ id: 7, is_impersonation_allowed: false })]).toEqual([
      true,
      false,
    ]);
  });

  test('an operator who loses access while an impersonation starts: no session remains', async () => {
    const ends = (email: string) => [
      `update platform.session set revoked_at = now() where tenant_id is null and email = '${email}'`,
      `update platform.user_account set role = 'analyst' where email = '${email}'`,
      `update platform.user_account set is_active = false where email = '${email}'`,
    ];
    for (const place of [0, 1, 2]) {
      const { client, email } = await newOperator();
      const lock = ends(email)[place] ?? '';
      const begun = () =>
        client.send<Impersonation>('POST', `/api/platform/tenants/${school.id}/impersonate`, { body: { reason } });
      if (service.database.servers) {
        // The node does not wait for a change at home, where the next request learns of it.
        const { status, data } = await withOwner(service.database.url, async (owner) => {
          await owner.query('begin');
          await owner.query(lock);
          const answer = await begun();
          await owner.query('commit');
          return answer;
        });
        expect([place, status]).toEqual([place, 200]);
        await refused(service.anonymous.with({ Authorization: `Bearer ${data.access_token}` }));
        continue;
      }
      const [answer] = await race<Answer<unknown>>(service.database, lock, 1, () => [begun()]);
      expect([place, answer?.status]).toEqual([place, 401]);
    }
  });

  test('open streams end with it', async () => {
    const target = await service.school();
    const client = await impersonate(target);
    const response = await fetch(`${service.url}/api/notifications/stream`, {
      headers: { Authorization: `Bearer ${client.access_token}` },
    });
    expect(response.status).toBe(200);
    const state = { isOver: false };
    const reading = (async () => {
      await response.arrayBuffer();
      state.isOver = true;
    })();
    await allow(target, false);
    await until(async () => Promise.resolve(state.isOver || undefined));
    await reading;
  });
});
