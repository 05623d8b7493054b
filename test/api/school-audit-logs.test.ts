import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { operatorEmail, type School, serviceWithSchool, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool({}, 5);

interface Entry {
  id: number;
  actor: { id: number | null; email: string | null };
  impersonated_email: string | null;
  action: string;
  target_type: string;
  target_id: number | null;
  changes: Record<string, { before: unknown; after: unknown }>;
}

const entries = async (query = '', of: School = school) =>
  (await of.admin.get<Entry[]>(`/api/audit-logs?pageSize=100${query}`)).data;
const latest = async (action: string) => (await entries(`&action=${action}`))[0];
const secrets = ['a secret password', 'another password'];

let user: Client & { id: number; email: string };
beforeAll(async () => {
  user = await school.user([]);
});

/** The changes that the log records: what is done, the entry, and its changes. */
const changes: [string, string, () => Promise<number | null>, Record<string, { before: unknown; after: unknown }>][] = [
  [
    'a role that a user gets',
    'user.roles',
    async () => {
      const { data } = await school.admin.get<{ id: number; name: string }[]>('/api/rbac/roles');
      const role_id = data.find(({ name }) => name === 'accountant')?.id;
      await school.admin.post(`/api/rbac/users/${user.id}/roles`, { role_id });
      return user.id;
    },
    { roles: { before: [], after: ['accountant'] } },
  ],
  [
    'roles that a change of the user sets',
    'user.roles',
    async () => {
      await school.admin.put(`/api/users/${user.id}`, { role_ids: [] });
      return user.id;
    },
    { roles: { before: ['accountant'], after: [] } },
  ],
  [
    'a changed name',
    'user.update',
    async () => {
      await school.admin.put(`/api/users/${user.id}`, { first_name: 'Grace', last_name: 'Hopper', phone: null });
      await school.admin.put(`/api/users/${user.id}`, { first_name: 'Ada' });
      return user.id;
    },
    { first_name: { before: 'Grace', after: 'Ada' } },
  ],
  [
    'another email',
    'user.update',
    async () => {
      const someone = { email: 'before@example.org', first_name: 'Ada', last_name: 'Byron', role_ids: [] };
      const { data } = await school.admin.post<{ id: number }>('/api/users', someone, 201);
      await school.admin.put(`/api/users/${data.id}`, { email: 'after@example.org' });
      return data.id;
    },
    { email: { before: 'before@example.org', after: 'after@example.org' } },
  ],
  [
    'a password that another user sets',
    'user.set_password',
    async () => {
      await school.admin.put(`/api/users/${user.id}`, { password: secrets[0] });
      return user.id;
    },
    {},
  ],
  [
    'a permission that a role gains',
    'role.update',
    async () => {
      const name = await school.role('student.read');
      const { data } = await school.admin.get<{ id: number; name: string }[]>(`/api/rbac/roles?search=${name}`);
      await school.admin.put(`/api/rbac/roles/${data[0]?.id}`, { permission_ids: [1, 2] });
      return data[0]?.id ?? null;
    },
    { permissions: { before: ['student.read'], after: ['student.read', 'student.create'] } },
  ],
  [
    'another address of a webhook',
    'webhook.update',
    async () => {
      const url = 'https://hooks.example.org/a';
      const { data } = await school.admin.post<{ id: number }>(
        '/api/webhooks',
        { url, events: ['class.created'] },
        201,
      );
      await school.admin.put(`/api/webhooks/${data.id}`, { url: 'https://hooks.example.org/b' });
      return data.id;
    },
    { url: { before: 'https://hooks.example.org/a', after: 'https://hooks.example.org/b' } },
  ],
  [
    'the permissions of an API key',
    'api_key.update',
    async () => {
      const body = { name: unique('Key'), permissions: ['class.read'] };
      const { data } = await school.admin.post<{ id: number; key: string }>('/api/api-keys', body, 201);
      secrets.push(data.key);
      await school.admin.put(`/api/api-keys/${data.id}`, { permissions: ['student.read'] });
      return data.id;
    },
    { permissions: { before: ['class.read'], after: ['student.read'] } },
  ],
  [
    'the channels of an event',
    'notification_event.update',
    async () => {
      await school.admin.put('/api/notifications/events/holiday.added', { channels: ['in_app'] });
      await school.admin.put('/api/notifications/events/holiday.added', { channels: ['email'], is_enabled: true });
      return null;
    },
    { 'holiday.added.channels': { before: ['in_app'], after: ['email'] } },
  ],
  [
    'an event that is switched off',
    'notification_event.update',
    async () => {
      await school.admin.put('/api/notifications/events/attendance.late', { is_enabled: false });
      return null;
    },
    { 'attendance.late.is_enabled': { before: true, after: false } },
  ],
  [
    'the text of a template',
    'notification_template.update',
    async () => {
      const { data } = await school.admin.post<{ id: number }>(
        '/api/notifications/templates',
        { name: 'fee.generated', title: 'A fee', message: 'Pay at the office.' },
        201,
      );
      await school.admin.put(`/api/notifications/templates/${data.id}`, { message: 'Pay at https://pay.example.' });
      return data.id;
    },
    { message: { before: 'Pay at the office.', after: 'Pay at https://pay.example.' } },
  ],
  [
    'the bank details',
    'school_info.update',
    async () => {
      await school.admin.post('/api/school-setup/school-info', { payment_details: 'Account 1' });
      await school.admin.post('/api/school-setup/school-info', { payment_details: 'Account 2', currency: 'USD' });
      return null;
    },
    { payment_details: { before: 'Account 1', after: 'Account 2' } },
  ],
];

describe('the audit log of a school', () => {
  test.each(changes)('has %s, as %s with the values before and after', async (_what, action, change, expected) => {
    const target_id = await change();
    expect(await latest(action)).toMatchObject({
      actor: { id: null, email: school.adminEmail },
      impersonated_email: null,
      target_type: action.split('.')[0],
      target_id,
      changes: expected,
    });
    expect(Object.keys((await latest(action))?.changes ?? {})).toEqual(Object.keys(expected));
  });

  test('has a new and a deleted template of notifications, with all its fields', async () => {
    const body = { name: unique('Trip'), title: 'Trip', message: 'We leave at nine.', channels: ['push'] };
    const { data } = await school.admin.post<{ id: number }>('/api/notifications/templates', body, 201);
    await school.admin.delete(`/api/notifications/templates/${data.id}`);
    const field = (of: 'before' | 'after') =>
      expect.objectContaining(
        Object.fromEntries(
          Object.entries(body).map(([name, value]) => [name, expect.objectContaining({ [of]: value })]),
        ),
      );
    expect((await entries(`&target_type=notification_template&target_id=${data.id}`)).slice(0, 2)).toMatchObject([
      { action: 'notification_template.delete', changes: field('before') },
      { action: 'notification_template.create', changes: field('after') },
    ]);
  });

  test('has the roles of a new login of a person, and those that a deleted user had', async () => {
    const email = `${unique('ada')}@example.org`;
    const person = { first_name: 'Ada', last_name: 'Byron', email, create_user_account: true };
    const { data } = await school.admin.post<{ user_id: number }>('/api/teachers', person, 201);
    await school.admin.delete(`/api/users/${data.user_id}`);
    expect(await entries(`&target_type=user&target_id=${data.user_id}`)).toMatchObject([
      { action: 'user.delete', changes: { email: { before: email }, roles: { before: ['teacher'], after: null } } },
      { action: 'user.roles', changes: { roles: { before: [], after: ['teacher'] } } },
      { action: 'user.create', changes: { email: { before: null, after: email } } },
    ]);
  });

  test('has no secret, and no entry for a request that changes nothing', async () => {
    await school.admin.put(`/api/users/${user.id}`, { password: secrets[1] });
    const { data } = await school.admin.get<{ first_name: string }>(`/api/users/${user.id}`);
    const before = await entries();
    await school.admin.put(`/api/users/${user.id}`, { first_name: data.first_name, role_ids: [] });
    await school.admin.put('/api/notifications/events/attendance.late', { is_enabled: false });
    expect(await entries()).toEqual(before);
    for (const secret of [...secrets, 'whsec_', 'password_hash', 'key_hash'])
      expect(JSON.stringify(before)).not.toContain(secret);
  });

  test('has what an operator did in the school, without the address and the program of the operator', async () => {
    const at = await service.school();
    const begun = await service.operator.post<{ access_token: string }>(`/api/platform/tenants/${at.id}/impersonate`, {
      reason: 'To help the school.',
    });
    const agent = { 'User-Agent': 'Program of the operator' };
    const operator = service.anonymous.with({ Authorization: `Bearer ${begun.data.access_token}`, ...agent });
    await operator.get('/api/students');
    expect((await entries('', at)).slice(0, 2)).toMatchObject([
      {
        action: 'impersonation.students_list',
        actor: { email: operatorEmail },
        impersonated_email: at.adminEmail,
        ip: null,
        user_agent: null,
      },
      { action: 'tenant.impersonate', changes: { reason: { after: 'To help the school.' } } },
    ]);
  });

  test('is that of one school only, and is filtered, searched, sorted and paged', async () => {
    const other = await service.school();
    await other.admin.post('/api/rbac/roles', { name: unique('Elsewhere'), permission_ids: [] }, 201);
    const [created] = await entries('&action=role.create', other);
    expect(created?.changes['name']?.after).toMatch(/^Elsewhere/);
    expect(JSON.stringify(await entries())).not.toContain('Elsewhere');
    const ids = async (query: string) => (await entries(query, other)).map(({ id }) => id);
    expect(await ids(`&target_type=role&target_id=${created?.target_id}`)).toEqual([created?.id]);
    expect(await ids('&search=role.create')).toEqual([created?.id]);
    expect(await ids('&from_date=2999-01-01')).toEqual([]);
    const newestFirst = await ids('');
    expect(await ids('&sort=created_at')).toEqual(newestFirst.toReversed());
  });

  test('is filtered by days of the school, both included', async () => {
    const at = await service.school({ time_zone: 'Asia/Tokyo' });
    const moments = ['02-28T14:59:59.999Z', '02-28T15:00:00Z', '03-01T14:59:59.999Z', '03-01T15:00:00Z'];
    await at.database.query(
      `insert into platform.audit_log (actor_email, action, tenant_id, target_type, created_at)
       select 'someone@example.org', 'day.' || n, $1, 'day', moment::timestamptz
       from unnest($2::text[]) with ordinality m (moment, n)`,
      [at.id, moments.map((moment) => `2026-${moment}`)],
    );
    const actions = async (query: string) =>
      (await entries(`&target_type=day&sort=created_at${query}`, at)).map(({ action }) => action);
    expect(await actions('&from_date=2026-03-01&to_date=2026-03-01')).toEqual(['day.2', 'day.3']);
    expect(await actions('&from_date=2026-03-01')).toEqual(['day.2', 'day.3', 'day.4']);
    expect(await actions('&to_date=2026-02-28')).toEqual(['day.1']);
  });

  test('is not shown to teachers and students, even if their roles have audit.read', async () => {
    const at = await service.school();
    await service.database.query(
      `insert into ${at.schema}.role_permission (role_id, permission_id)
       select r.id, p.id from ${at.schema}.role r, core.permission p
       where r.is_system and r.name in ('teacher', 'student') and p.name = 'audit.read'`,
    );
    for (const roles of [['teacher'], ['student'], ['teacher', 'student']])
      expect(await (await at.user(roles)).get('/api/audit-logs', 403)).toMatchObject({
        message: 'This needs access to the whole school.',
      });
    const clerk = await at.role('audit.read');
    expect((await (await at.user(['teacher', clerk])).get<Entry[]>('/api/audit-logs')).data.length).toBeGreaterThan(0);
  });

  test('needs audit.read for the whole school, which only admins have by default', async () => {
    for (const role of ['teacher', 'accountant', 'transport_manager', 'student'])
      await (await school.user([role])).get('/api/audit-logs', 403);
    await (await school.user([await school.role('audit.read')])).get('/api/audit-logs');
  });
});
