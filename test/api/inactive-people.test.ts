import { describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { send } from '../support/client/wire.ts';
import { serviceWithSchool, testPassword, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool();

/** A teacher or a student with a login, and a client that is logged in as them. */
async function person(resource: 'teachers' | 'students') {
  const email = `${unique('person')}@${school.subdomain}.example`;
  const { data } = await school.admin.post<{ id: number; user_id: number }>(
    `/api/${resource}`,
    { first_name: 'Pat', last_name: 'Person', email, create_user_account: true, password: testPassword },
    201,
  );
  const credentials = { tenant_id: school.id, email, password: testPassword };
  const client = await service.anonymous.login(credentials);
  return { path: `/api/${resource}/${data.id}`, userId: data.user_id, credentials, client };
}

const setActive = (path: string, is_active: boolean) => school.admin.put(path, { is_active });

const rolesOf = async (client: Client) =>
  (await client.get<{ roles: string[]; permissions: string[] }>('/api/auth/profile')).data;

const refresh = (token: string, status: number) =>
  service.anonymous.send('POST', '/api/auth/refresh', { headers: { 'X-Refresh-Token': token } }, status);

const roleId = async (name: string) => {
  const { data } = await school.admin.get<{ id: number; name: string }[]>('/api/rbac/roles');
  return data.find((role) => role.name === name)?.id;
};

describe.each([
  ['teacher', 'teachers'],
  ['student', 'students'],
] as const)('an inactive %s', (kind, resource) => {
  test('loses the sessions at once, and cannot log in; the error gives the reason', async () => {
    const { path, credentials, client } = await person(resource);
    await setActive(path, false);
    expect((await client.get('/api/auth/profile', 401)).error).toBe('invalid_token');
    await refresh(client.refreshToken, 401);
    expect(await service.anonymous.post('/api/auth/login', credentials, 403)).toMatchObject({
      error: 'forbidden',
      message: `You cannot log in because your ${kind} record is inactive. Ask your school to reactivate it.`,
    });
  });

  test('gets no explanation without the right password', async () => {
    const { path, credentials } = await person(resource);
    await setActive(path, false);
    const refused = await service.anonymous.post('/api/auth/login', { ...credentials, password: 'wrong one' }, 401);
    expect(refused).toMatchObject({ error: 'invalid_credentials', message: 'The email or the password is wrong.' });
  });

  test('can log in again after a reactivation, and the ended sessions stay ended', async () => {
    const { path, credentials, client } = await person(resource);
    await setActive(path, false);
    await setActive(path, true);
    await client.get('/api/auth/profile', 401);
    expect((await rolesOf(await service.anonymous.login(credentials))).roles).toEqual([kind]);
  });

  test('with a session from before this rule cannot refresh it; the error gives the reason', async () => {
    const { path, client } = await person(resource);
    await service.database.query(`update ${school.schema}.${kind} set is_active = false where id = $1`, [
      path.split('/').at(-1),
    ]);
    expect((await refresh(client.refreshToken, 401)).message).toContain(`your ${kind} record is inactive`);
    await client.get('/api/auth/profile', 401);
  });

  test('with another role keeps the sessions, but loses the permissions of the inactive record', async () => {
    const { path, userId, credentials, client } = await person(resource);
    const roles = [await roleId(kind), await roleId('accountant')];
    await school.admin.put(`/api/users/${userId}`, { role_ids: roles });
    await setActive(path, false);
    expect((await rolesOf(client)).roles).toEqual(['accountant']);
    const again = await service.anonymous.login(credentials);
    expect((await rolesOf(again)).permissions).toContain('fee.read');
    expect((await rolesOf(again)).permissions).not.toContain('timetable.read');
    await setActive(path, true);
    expect((await rolesOf(client)).roles).toEqual(['accountant', kind].sort());
    await setActive(path, false);
    await school.admin.put(`/api/users/${userId}`, { role_ids: [await roleId(kind)] });
    await client.get('/api/auth/profile', 401);
  });
});

test('a user who is a teacher and a student can log in as long as one of the two is active', async () => {
  const { path, userId, credentials, client } = await person('teachers');
  const studentId = await school.insert('student', {
    first_name: 'Pat',
    last_name: 'Person',
    admission_number: unique('A'),
    user_id: userId,
  });
  await setActive(path, false);
  expect((await rolesOf(client)).roles).toEqual([]);
  await setActive(`/api/students/${studentId}`, false);
  await client.get('/api/auth/profile', 401);
  await service.anonymous.post('/api/auth/login', credentials, 403);
  await setActive(path, true);
  expect((await rolesOf(await service.anonymous.login(credentials))).roles).toEqual(['teacher']);
});

test('the calendar feed of an inactive teacher answers nothing until the teacher is active again', async () => {
  const { path, client } = await person('teachers');
  const teacher_id = Number(path.split('/').at(-1));
  const { data } = await client.post<{ url: string }>('/api/schedule/feeds', { kind: 'teacher', teacher_id }, 201);
  const statusOf = async () => (await send(service.url, { method: 'GET', path: new URL(data.url).pathname })).status;
  expect(await statusOf()).toBe(200);
  await setActive(path, false);
  expect(await statusOf()).toBe(404);
  await setActive(path, true);
  expect(await statusOf()).toBe(200);
});

test('a user who may change users cannot set the password of an inactive teacher with more permissions', async () => {
  const { path, userId } = await person('teachers');
  await setActive(path, false);
  const clerk = await school.user([await school.role('user.read', 'user.update', 'teacher.update')]);
  await clerk.send('PUT', `/api/users/${userId}`, { body: { password: 'the password of the clerk' } }, 403);
});
