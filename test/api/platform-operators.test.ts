import { describe, expect, test } from '@jest/globals';
import type { Operator as OperatorSchema } from '../../src/endpoints/platform-operators.ts';
import type { OutputOf } from '../support/client/output.ts';
import { race } from '../support/client/race.ts';
import { mailTo } from '../support/fakes/mail.ts';
import { operatorEmail, serviceWithSchool, testPassword, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();
const { operator } = service;
const path = '/api/platform/operators';

type Operator = OutputOf<typeof OperatorSchema>;

const newEmail = () => `${unique('operator').toLowerCase()}@test.example`;
const invite = async (fields: Record<string, unknown> = {}) =>
  (
    await operator.post<Operator>(
      path,
      { email: newEmail(), first_name: 'Noor', last_name: 'Haddad', role: 'admin', ...fields },
      201,
    )
  ).data;
const change = async (id: number, body: object, status = 200) => operator.put<Operator>(`${path}/${id}`, body, status);
const loginStatus = async (email: string) =>
  (
    await service.anonymous.send('POST', '/api/auth/login', {
      body: { is_platform: true, email, password: testPassword },
    })
  ).status;
/** Follows the link of the latest invitation and logs in. */
const accept = async ({ email }: Operator) => {
  const { text } = await mailTo(service, email, 'Your account');
  expect(text).toMatch(/Then log in at \S+\/console\/$/m);
  const token = /#token=(\S+)/.exec(text)?.[1];
  await service.anonymous.post('/api/auth/password/reset', { token, password: testPassword });
  return service.anonymous.login({ is_platform: true, email, password: testPassword });
};
const audited = async (id: number) =>
  (
    await operator.get<{ action: string; target_type: string; target_id: number; changes: Record<string, unknown> }[]>(
      '/api/platform/audit-logs?pageSize=100',
    )
  ).data.filter((entry) => entry.target_type === 'operator' && entry.target_id === id);
const ownId = async () => (await operator.get<{ id: number }>('/api/auth/profile')).data.id;

describe('operators', () => {
  test('an invited operator chooses a password with the link of the email, and is listed', async () => {
    const invited = await invite({ email: newEmail().toUpperCase() });
    expect(invited).toMatchObject({
      first_name: 'Noor',
      role: 'admin',
      tenant_ids: null,
      tenants: null,
      is_active: true,
      is_invited: true,
      has_second_factor: false,
      last_login_at: null,
    });
    expect(await loginStatus(invited.email)).toBe(401);
    const own = await accept(invited);
    expect((await own.get<Operator[]>(`${path}?search=noor ${invited.email}`)).data).toMatchObject([
      { id: invited.id, email: invited.email.toLowerCase(), is_invited: false },
    ]);
    expect((await operator.get<Operator>(`${path}/${invited.id}`)).data.last_login_at).not.toBeNull();
    expect((await audited(invited.id)).map(({ action }) => action)).toContain('operator.create');
    expect((await operator.post(`${path}/${invited.id}/invitation`, {}, 409)).error).toBe('invalid_state');
  });

  test('a lost invitation is sent again, but not twice within two minutes', async () => {
    const invited = await invite();
    await mailTo(service, invited.email, 'Your account');
    const again = (status: number) => operator.post<Operator>(`${path}/${invited.id}/invitation`, {}, status);
    expect((await again(409)).error).toBe('invalid_state');
    await service.database.query(
      `update platform.one_time_token set created_at = created_at - interval '3 minutes'
       where tenant_id is null and user_id = $1`,
      [invited.id],
    );
    expect((await again(200)).data).toMatchObject({ id: invited.id, is_invited: true });
    await mailTo(service, invited.email, 'Your account', 2);
    expect((await audited(invited.id))[0]?.action).toBe('operator.invite');
    await change(invited.id, { is_active: false });
    expect((await again(409)).error).toBe('invalid_state');
  });

  test('a disabled operator loses access at once and gets it back when enabled', async () => {
    const other = await invite();
    const own = await accept(other);
    expect((await change(other.id, { is_active: false })).data.is_active).toBe(false);
    await own.get(path, 401);
    expect(await loginStatus(other.email)).toBe(401);
    expect((await operator.get<Operator[]>(`${path}?is_active=false`)).data.map(({ id }) => id)).toContain(other.id);
    await change(other.id, { is_active: true });
    expect(await loginStatus(other.email)).toBe(200);
    expect((await audited(other.id)).map(({ action }) => action)).toEqual(
      expect.arrayContaining(['operator.disable', 'operator.enable']),
    );
  });

  test('an analyst is limited to schools, and an admin is not', async () => {
    const analyst = await invite({ role: 'analyst', tenant_ids: [school.id] });
    expect(analyst).toMatchObject({ role: 'analyst', tenant_ids: [school.id], tenants: [{ id: school.id }] });
    const own = await accept(analyst);
    expect((await own.get(path, 403)).error).toBe('forbidden');
    const { data: promoted } = await change(analyst.id, { role: 'admin' });
    expect(promoted).toMatchObject({ role: 'admin', tenant_ids: null });
    await own.get('/api/auth/profile', 401);
    const { data: demoted } = await change(analyst.id, { role: 'analyst', tenant_ids: [school.id] });
    expect(demoted).toMatchObject({ role: 'analyst', tenant_ids: [school.id] });
    expect((await change(analyst.id, { tenant_ids: null })).data.tenant_ids).toBeNull();
    const [latest, earlier] = await audited(analyst.id);
    expect(latest).toMatchObject({
      action: 'operator.set_tenants',
      changes: { tenant_ids: { before: [school.id], after: null } },
    });
    expect(earlier).toMatchObject({
      action: 'operator.set_role',
      changes: { role: { before: 'admin', after: 'analyst' } },
    });
    expect((await operator.get<Operator[]>(`${path}?role=analyst`)).data.map(({ id }) => id)).toContain(analyst.id);
  });

  test('an analyst whose school was deleted can still be changed and disabled', async () => {
    const closed = await service.school();
    const analyst = await invite({ role: 'analyst', tenant_ids: [closed.id, school.id] });
    await operator.delete(`/api/platform/tenants/${closed.id}`);
    const { data: read } = await operator.get<Operator>(`${path}/${analyst.id}`);
    expect((await change(analyst.id, { tenant_ids: read.tenant_ids, is_active: false })).data.is_active).toBe(false);
    expect((await change(analyst.id, { tenant_ids: [closed.id] }, 422)).error).toBe('invalid_reference');
  });

  test.each([
    [{ email: 'nobody' }, 400, 'email'],
    [{ email: operatorEmail }, 409, 'email'],
    [{ email: operatorEmail.toUpperCase() }, 409, 'email'],
    [{ first_name: '' }, 400, 'first_name'],
    [{ role: 'support' }, 400, 'role'],
    [{ role: undefined }, 400, 'role'],
    [{ role: 'admin', tenant_ids: [1] }, 400, 'tenant_ids'],
    [{ role: 'analyst', tenant_ids: [] }, 400, 'tenant_ids'],
    [{ role: 'analyst', tenant_ids: [987_654] }, 422, 'tenant_ids'],
    [{ password: testPassword }, 400, 'password'],
  ])('an invitation with %j returns %i and names the field', async (fields, status, field) => {
    const body = { email: newEmail(), first_name: 'Noor', last_name: 'Haddad', role: 'analyst', ...fields };
    const { details } = await operator.post(path, body, status);
    expect(details[0]?.path).toBe(field);
  });

  test('no operator takes away their own access', async () => {
    const id = await ownId();
    for (const body of [{ is_active: false }, { role: 'analyst' }, { role: 'analyst', tenant_ids: [school.id] }])
      expect((await change(id, body, 409)).error).toBe('conflict');
    expect((await change(id, { role: 'admin', is_active: true })).data).toMatchObject({
      role: 'admin',
      is_active: true,
    });
    // Nothing has changed, so the session goes on.
    await operator.get(`${path}/${id}`);
  });

  test('of two admins who disable each other at the same time, one stays, even if another admin is invited', async () => {
    const invited = await Promise.all([invite(), invite()]);
    await invite();
    const [a, b] = [await accept(invited[0]), await accept(invited[1])];
    // Without a password, the other admins count as invited.
    const others = await service.database.query<{ id: string; password_hash: string }>(
      `select id, password_hash from platform.user_account
       where role = 'admin' and is_active and password_hash is not null and id <> all ($1)`,
      [invited.map(({ id }) => id)],
    );
    const setPassword = (id: string, hash: string | null) =>
      service.database.query('update platform.user_account set password_hash = $2 where id = $1', [id, hash]);
    for (const { id } of others) await setPassword(id, null);
    const answers = await race(service.database, "select pg_advisory_xact_lock(core.lock_key('rights', 0))", 2, () => [
      a.send('PUT', `${path}/${invited[1].id}`, { body: { is_active: false } }),
      b.send('PUT', `${path}/${invited[0].id}`, { body: { role: 'analyst' } }),
    ]);
    for (const { id, password_hash } of others) await setPassword(id, password_hash);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    const { data } = await operator.get<Operator[]>(`${path}?role=admin&is_active=true&pageSize=100`);
    expect(data.filter(({ id }) => invited.some((each) => each.id === id))).toHaveLength(1);
  });

  test('users of a school cannot see or change operators', async () => {
    const id = await ownId();
    expect((await school.admin.get(path, 403)).error).toBe('forbidden');
    expect((await school.admin.put(`${path}/${id}`, { is_active: false }, 403)).error).toBe('forbidden');
  });
});
