import { describe, expect, test } from '@jest/globals';
import type { Impersonation as ImpersonationSchema } from '../../src/endpoints/impersonation.ts';
import type { AuditLog as AuditLogSchema } from '../../src/endpoints/platform.ts';
import type { Client } from '../support/client/client.ts';
import type { OutputOf } from '../support/client/output.ts';
import { openStream } from '../support/client/stream.ts';
import { until } from '../support/client/until.ts';
import { operatorEmail, type School, serviceOfFile, testPassword, unique } from '../support/server/service.ts';
import { schoolOn } from './schools.ts';
import { servers, startServer, stopServer } from './servers.ts';

type Impersonation = OutputOf<typeof ImpersonationSchema>;
type Entry = OutputOf<typeof AuditLogSchema>;

const { homeServer } = servers();
const service = await serviceOfFile({ STREAM_HEARTBEAT_MS: '300' });
const school = await schoolOn(service, 'node-1');

const reason = 'The school asked why an invoice is missing.';

const begin = (by: Client, target: School, status = 200) =>
  by.post<Impersonation>(`/api/platform/tenants/${target.id}/impersonate`, { reason }, status);

async function impersonate(by: Client = service.operator, target = school): Promise<Client & Impersonation> {
  const { data } = await begin(by, target);
  return Object.assign(service.anonymous.with({ Authorization: `Bearer ${data.access_token}` }), data);
}

/** Another operator, who has logged in. */
async function newOperator(): Promise<Client & { email: string }> {
  const email = `${unique('operator')}@test.example`;
  await service.database.query(
    `insert into platform.user_account (email, password_hash, first_name, last_name, role, email_verified_at)
     select $1, password_hash, 'New', 'Operator', 'admin', now() from platform.user_account where email = $2`,
    [email, operatorEmail],
  );
  // The impersonation on the node refers to its copy of the operator.
  await until(async () => {
    const [copies] = await service.database.query<{ are_current: boolean }>(
      'select core.is_copied(core.wal_position()) as are_current',
    );
    return copies?.are_current === true || undefined;
  });
  return Object.assign(await service.anonymous.login({ is_platform: true, email, password: testPassword }), { email });
}

const profile = (client: Client) =>
  client.get<{ id: number; impersonated_by: { email: string } | null }>('/api/auth/profile');
const ended = async (client: Client) =>
  expect((await client.get('/api/auth/profile', 401)).error).toBe('invalid_token');

describe('an operator who logs in as an admin of a school on a node', () => {
  test('acts as the admin; the operators see an audit entry for each request, and the admins a notification', async () => {
    const admin = await impersonate();
    expect(admin.tenant).toMatchObject({ id: school.id, subdomain: school.subdomain });
    expect((await profile(admin)).data.impersonated_by?.email).toBe(operatorEmail);
    await admin.post('/api/students', { first_name: 'Made', last_name: 'By Operator' }, 201);
    await admin.post('/api/students', { first_name: '' }, 400);
    // Those of the node are copied after their requests.
    const entries = await until(async () => {
      const { data } = await service.operator.get<Entry[]>(`/api/platform/audit-logs?tenant_id=${school.id}`);
      return data.filter(({ action }) => action === 'impersonation.students_create').length === 2 ? data : undefined;
    });
    expect(entries.find(({ action }) => action === 'tenant.impersonate')).toMatchObject({
      actor: { email: operatorEmail },
      impersonated: { email: school.adminEmail },
      changes: { reason: { after: reason } },
    });
    await service.settled();
    const { data: notifications } = await school.admin.get<{ type: string; message: string }[]>('/api/notifications');
    expect(notifications.filter(({ type }) => type === 'operator.login').map(({ message }) => message)).toEqual([
      expect.stringContaining(reason),
    ]);
  });

  test('is refused as on one server', async () => {
    await school.admin.post('/api/school-setup/school-info', { is_impersonation_allowed: false });
    await until(async () => {
      const { status } = await service.operator.send('POST', `/api/platform/tenants/${school.id}/impersonate`, {
        body: { reason },
      });
      return status === 422 || status === 409 || undefined;
    });
    await school.admin.post('/api/school-setup/school-info', { is_impersonation_allowed: true });
    expect((await begin(school.admin, school, 403)).error).toBe('forbidden');
    const unknown = await service.operator.post('/api/platform/tenants/999999/impersonate', { reason }, 404);
    expect(unknown.error).toBe('not_found');
  });

  test('can end it, and begin another', async () => {
    const admin = await impersonate();
    const other = await impersonate();
    await admin.post('/api/auth/logout', {}, 200);
    await ended(admin);
    await profile(other);
    await profile(await impersonate());
  });

  const ends: [string, (by: Client & { email: string }) => Promise<unknown>][] = [
    ['logs out', (by) => by.post('/api/auth/logout', {}, 200)],
    [
      'is deactivated',
      ({ email }) =>
        service.database.query('update platform.user_account set is_active = false where email = $1', [email]),
    ],
    [
      'becomes an analyst',
      ({ email }) =>
        service.database.query("update platform.user_account set role = 'analyst' where email = $1", [email]),
    ],
  ];
  test.each(ends)('can do nothing more as the admin from the moment the operator %s', async (_, end) => {
    const by = await newOperator();
    const admin = await impersonate(by);
    const others = await impersonate();
    await profile(admin);
    await end(by);
    await ended(admin);
    await ended(admin);
    await profile(others);
    // The request after the end has an entry too.
    await until(async () => {
      const { data } = await service.operator.get<Entry[]>(`/api/platform/audit-logs?tenant_id=${school.id}`);
      return data.find(
        ({ actor, action, changes }) =>
          actor.email === by.email &&
          action === 'impersonation.auth_profile' &&
          JSON.stringify(changes).includes('token'),
      );
    });
  });

  test('loses it when the school disallows it or is suspended', async () => {
    const target = await schoolOn(service, 'node-2');
    const first = await impersonate(service.operator, target);
    await target.admin.post('/api/school-setup/school-info', { is_impersonation_allowed: false });
    await ended(first);
    await target.admin.post('/api/school-setup/school-info', { is_impersonation_allowed: true });
    const second = await impersonate(service.operator, target);
    await service.operator.post(`/api/platform/tenants/${target.id}/suspend`, {}, 200);
    await service.operator.post(`/api/platform/tenants/${target.id}/activate`, {}, 200);
    await ended(second);
    await profile(target.admin);
  });

  test('loses an open notification stream when the operator logs out', async () => {
    const by = await newOperator();
    const { access_token } = await impersonate(by);
    const stream = await openStream(service.url, access_token);
    const own = await openStream(service.url, school.admin.token);
    await by.post('/api/auth/logout', {}, 200);
    await stream.end();
    await own.close();
  });
});

test('while the home is down, impersonations answer 503, because the operator may have logged out', async () => {
  const admin = await impersonate();
  await stopServer(homeServer);
  try {
    expect((await admin.get('/api/students', 503)).error).toBe('unavailable');
    await school.admin.get('/api/students');
  } finally {
    await startServer(homeServer);
  }
  await until(async () => (await admin.send('GET', '/api/students')).status === 200 || undefined);
});
