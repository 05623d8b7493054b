import { beforeAll, describe, expect, test } from '@jest/globals';
import { mailsTo, mailTo, queueIsEmpty } from '../support/fakes/mail.ts';
import { ids, walk } from '../support/client/pages.ts';
import { type School, serviceWithSchool, testPassword, unique } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { User as UserSchema } from '../../src/endpoints/users.ts';

const { service, school } = await serviceWithSchool({}, 6);
const roleIds = await rolesOf(school);

type User = OutputOf<typeof UserSchema>;

interface Role {
  id: number;
  name: string;
}

const address = (at = school) => `${unique('person')}@${at.subdomain}.example`;

async function rolesOf(of: School): Promise<Record<string, number>> {
  const { data } = await of.admin.get<Role[]>('/api/rbac/roles');
  return Object.fromEntries(data.map(({ name, id }) => [name, id]));
}

async function add(fields: Record<string, unknown> = {}, to = school): Promise<User> {
  return (
    await to.admin.post<User>(
      '/api/users',
      { email: address(to), first_name: 'Una', last_name: 'User', ...fields },
      201,
    )
  ).data;
}

/** A user with a custom role that has these permissions. */
const withPermissions = async (...permissions: string[]) => school.user([await school.role(...permissions)]);

describe('a user', () => {
  test('can be read after it is created, with role ids and role names', async () => {
    const sent = {
      email: 'Noor.Haddad@Example.org',
      first_name: 'Noor',
      last_name: 'Haddad',
      phone: '+962 1',
      role_ids: [roleIds['accountant'], roleIds['teacher']],
      is_active: true,
    };
    const created = await school.admin.post<User>('/api/users', sent, 201);
    expect(created.headers.get('location')).toBe(`/api/users/${created.data.id}`);
    const { data } = await school.admin.get<User>(`/api/users/${created.data.id}`);
    expect(data).toEqual(created.data);
    expect(data).toMatchObject({
      ...sent,
      email: 'noor.haddad@example.org',
      role_ids: [...sent.role_ids].sort(),
      email_verified: false,
      last_login_at: null,
    });
    expect([...data.roles].sort()).toEqual(['accountant', 'teacher']);
    expect(JSON.stringify(created)).not.toContain('argon2');
  });

  test('with a password can log in at once and gets a verification email', async () => {
    const user = await add({ password: 'a fine password', role_ids: [roleIds['teacher']] });
    await service.anonymous.login({ tenant_id: school.id, email: user.email, password: 'a fine password' });
    expect((await mailTo(service, user.email, 'Verify your email address')).to).toBe(user.email);
    expect((await school.admin.get<User>(`/api/users/${user.id}`)).data.last_login_at).not.toBeNull();
  });

  test('without a role can log in and use only their own account', async () => {
    const user = await add({ password: testPassword });
    expect(user).toMatchObject({ role_ids: [], roles: [] });
    const client = await service.anonymous.login({ tenant_id: school.id, email: user.email, password: testPassword });
    expect((await client.get<{ permissions: string[] }>('/api/auth/profile')).data.permissions).toEqual([]);
    await client.get('/api/students', 403);
  });
});

describe('updating a user', () => {
  test('with a new password replaces the old one and ends the sessions', async () => {
    const user = await school.user(['teacher']);
    await school.admin.put(`/api/users/${user.id}`, { password: 'set by the admin' });
    expect((await user.get('/api/auth/profile', 401)).error).toBe('invalid_token');
    await service.anonymous.post(
      '/api/auth/login',
      { tenant_id: school.id, email: user.email, password: testPassword },
      401,
    );
    await service.anonymous.login({ tenant_id: school.id, email: user.email, password: 'set by the admin' });
  });

  test('with a new password revokes earlier links and unlocks the account', async () => {
    const user = await school.user(['teacher']);
    await service.anonymous.post('/api/auth/password/forgot', { tenant_id: school.id, email: user.email });
    const { token } = await mailTo(service, user.email, 'Reset your password');
    const credentials = { tenant_id: school.id, email: user.email, password: 'set by the admin' };
    for (let n = 0; n < 10; n++)
      await service.anonymous.post('/api/auth/login', { ...credentials, password: 'wrong password' }, 401);
    await service.anonymous.post('/api/auth/login', { ...credentials, password: testPassword }, 429);
    await school.admin.put(`/api/users/${user.id}`, { password: credentials.password });
    await service.anonymous.login(credentials);
    expect(
      (await service.anonymous.post('/api/auth/password/reset', { token, password: 'by the old link' }, 401)).error,
    ).toBe('invalid_token');
    await service.anonymous.login(credentials);
  });

  test('with a new own password ends the other sessions and keeps this one', async () => {
    const admin = await school.user(['admin']);
    const elsewhere = await service.anonymous.login({
      tenant_id: school.id,
      email: admin.email,
      password: testPassword,
    });
    await admin.put(`/api/users/${admin.id}`, { password: 'set by themself' });
    await elsewhere.get('/api/auth/profile', 401);
    await admin.get('/api/auth/profile');
  });

  test('to inactive ends the sessions at once; to active allows login again', async () => {
    const user = await school.user(['teacher']);
    const { data } = await school.admin.put<User>(`/api/users/${user.id}`, { is_active: false });
    expect(data.is_active).toBe(false);
    expect((await user.get('/api/auth/profile', 401)).error).toBe('invalid_token');
    const credentials = { tenant_id: school.id, email: user.email, password: testPassword };
    await service.anonymous.post('/api/auth/login', credentials, 401);
    await school.admin.put(`/api/users/${user.id}`, { is_active: true });
    await service.anonymous.login(credentials);
    await user.get('/api/auth/profile', 401);
  });

  test('with a new email requires verification, and the link sent to the old address does not verify the new one', async () => {
    const user = await add({ password: testPassword });
    const toOld = await mailTo(service, user.email, 'Verify your email address');
    const email = address();
    const { data } = await school.admin.put<User>(`/api/users/${user.id}`, { email });
    expect(data).toMatchObject({ email, email_verified: false });
    const toNew = await mailTo(service, email, 'Verify your email address');
    expect((await service.anonymous.post('/api/auth/email/verify', { token: toOld.token }, 401)).error).toBe(
      'invalid_token',
    );
    await service.anonymous.post('/api/auth/email/verify', { token: toNew.token });
    expect((await school.admin.get<User>(`/api/users/${user.id}`)).data.email_verified).toBe(true);
    const again = await school.admin.put<User>(`/api/users/${user.id}`, { email: address() });
    expect(again.data.email_verified).toBe(false);
    await service.anonymous.post('/api/auth/login', { tenant_id: school.id, email, password: testPassword }, 401);
    await service.anonymous.login({ tenant_id: school.id, email: again.data.email, password: testPassword });
  });

  test('with a corrected email sends the invitation there, and revokes the one sent to the wrong address', async () => {
    const user = await add();
    const toStranger = await mailTo(service, user.email, 'Your account');
    const email = address();
    await school.admin.put(`/api/users/${user.id}`, { email });
    const toUser = await mailTo(service, email, 'Your account');
    await service.anonymous.post(
      '/api/auth/password/reset',
      { token: toStranger.token, password: 'the password of a stranger' },
      401,
    );
    await service.anonymous.post('/api/auth/password/reset', { token: toUser.token, password: 'the right password' });
    await service.anonymous.login({ tenant_id: school.id, email, password: 'the right password' });
  });

  test('with the same email sends nothing and keeps it verified', async () => {
    const user = await add({ password: testPassword });
    const { token } = await mailTo(service, user.email, 'Verify your email address');
    await service.anonymous.post('/api/auth/email/verify', { token });
    const { data } = await school.admin.put<User>(`/api/users/${user.id}`, {
      email: user.email.toUpperCase(),
      first_name: 'Same',
    });
    expect(data).toMatchObject({ email: user.email, email_verified: true });
    await queueIsEmpty(service);
    expect(await mailsTo(service, user.email)).toHaveLength(1);
  });

  test('with new roles takes effect at the next request of an open session', async () => {
    const user = await school.user(['teacher']);
    await user.get('/api/students');
    await user.get('/api/users', 403);
    await school.admin.put(`/api/users/${user.id}`, { role_ids: [] });
    await user.get('/api/students', 403);
    await school.admin.put(`/api/users/${user.id}`, { role_ids: [roleIds['admin']] });
    await user.get('/api/users');
  });
});

describe('deleting a user', () => {
  test('removes them from get and list, ends their sessions and frees the email; the row is kept', async () => {
    const user = await school.user(['teacher']);
    expect((await school.admin.delete<{ id: number }>(`/api/users/${user.id}`)).data).toEqual({ id: user.id });
    await user.get('/api/auth/profile', 401);
    await school.admin.get(`/api/users/${user.id}`, 404);
    await school.admin.delete(`/api/users/${user.id}`, 404);
    expect((await school.admin.get(`/api/users?search=${user.email}`)).pagination.totalItems).toBe(0);
    const rows = await service.database.query(
      `select id from ${school.schema}.user_account where id = $1 and deleted_at is not null`,
      [user.id],
    );
    expect(rows).toHaveLength(1);
    expect((await add({ email: user.email })).id).not.toBe(user.id);
  });

  test('is not possible for the own user', async () => {
    const second = await school.user(['admin']);
    expect((await second.delete(`/api/users/${second.id}`, 409)).error).toBe('conflict');
    await second.get('/api/users');
  });
});

describe('the last admin', () => {
  test('cannot be deleted, deactivated or lose the role until there is a second admin', async () => {
    const lonely = await service.school();
    const admins = await lonely.admin.get<User[]>('/api/users');
    const adminId = admins.data[0]?.id ?? 0;
    const roles = await rolesOf(lonely);
    const refusals = [
      await lonely.admin.put(`/api/users/${adminId}`, { is_active: false }, 409),
      await lonely.admin.put(`/api/users/${adminId}`, { role_ids: [] }, 409),
      await lonely.admin.put(`/api/users/${adminId}`, { role_ids: [roles['teacher']] }, 409),
      await lonely.admin.delete(`/api/rbac/users/${adminId}/roles/${roles['admin']}`, 409),
      await lonely.admin.delete(`/api/users/${adminId}`, 409),
    ];
    expect(refusals.map(({ error }) => error)).toEqual(Array(5).fill('conflict'));
    expect((await lonely.admin.get<User>(`/api/users/${adminId}`)).data).toMatchObject({
      is_active: true,
      roles: ['admin'],
    });
    const inactive = await add({ role_ids: [roles['admin']], is_active: false }, lonely);
    await lonely.admin.put(`/api/users/${adminId}`, { is_active: false }, 409);
    await lonely.admin.put(`/api/users/${inactive.id}`, { is_active: true, password: testPassword });
    const second = await service.anonymous.login({
      tenant_id: lonely.id,
      email: inactive.email,
      password: testPassword,
    });
    await second.delete(`/api/users/${adminId}`);
    expect((await lonely.admin.get('/api/users', 401)).error).toBe('invalid_token');
  });

  test('cannot be replaced by an invited admin without a password', async () => {
    const lonely = await service.school();
    const admin = (await lonely.admin.get<User[]>('/api/users')).data[0];
    await add({ role_ids: [(await rolesOf(lonely))['admin']] }, lonely);
    expect((await lonely.admin.put(`/api/users/${admin?.id ?? 0}`, { is_active: false }, 409)).error).toBe('conflict');
    expect((await lonely.admin.put(`/api/users/${admin?.id ?? 0}`, { role_ids: [] }, 409)).error).toBe('conflict');
  });

  test('is kept when the student of the login is deleted', async () => {
    const odd = await service.school();
    const roles = await rolesOf(odd);
    const email = address(odd);
    const student = await odd.admin.post<{ id: number; user_id: number }>(
      '/api/students',
      { first_name: 'Student', last_name: 'Admin', email, create_user_account: true, password: testPassword },
      201,
    );
    await odd.admin.put(`/api/users/${student.data.user_id}`, { role_ids: [roles['admin']] });
    const second = await service.anonymous.login({ tenant_id: odd.id, email, password: testPassword });
    const first = (await second.get<User[]>(`/api/users?search=${odd.adminEmail}`)).data[0];
    await second.delete(`/api/users/${first?.id ?? 0}`);
    expect((await second.delete(`/api/students/${student.data.id}`, 409)).error).toBe('conflict');
    await second.get(`/api/students/${student.data.id}`);
  });

  test('two admins who delete each other concurrently: one remains', async () => {
    const pair = await service.school();
    const second = await pair.user(['admin']);
    const first = (await pair.admin.get<User[]>(`/api/users?search=${pair.adminEmail}`)).data[0];
    const answers = await Promise.all([
      pair.admin.send('DELETE', `/api/users/${second.id}`),
      second.send('DELETE', `/api/users/${first?.id ?? 0}`),
    ]);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    const left = await service.database.query(
      `select u.id from ${pair.schema}.user_account u join ${pair.schema}.user_role ur on ur.user_id = u.id where u.deleted_at is null and u.is_active`,
    );
    expect(left).toHaveLength(1);
  });
});

describe('permission to change users', () => {
  test('user.update without admin rights cannot change an admin', async () => {
    const clerk = await withPermissions('user.read', 'user.update', 'user.delete');
    const admin = (await school.admin.get<User[]>(`/api/users?search=${school.adminEmail}`)).data[0];
    const path = `/api/users/${admin?.id ?? 0}`;
    for (const change of [
      { password: 'taken over by a clerk' },
      { email: 'clerk@example.org' },
      { is_active: false },
      { first_name: 'Fooled' },
      { role_ids: [] },
    ]) {
      expect((await clerk.put(path, change, 403)).error).toBe('forbidden');
    }
    expect((await clerk.delete(path, 403)).error).toBe('forbidden');
    expect((await school.admin.get<User>(path)).data).toEqual({ ...admin, last_login_at: admin?.last_login_at });
    await service.anonymous.login({ tenant_id: school.id, email: school.adminEmail, password: testPassword });
  });

  test('user.update can change users without additional permissions', async () => {
    const clerk = await withPermissions('user.read', 'user.update', 'user.delete');
    const nobody = await add();
    expect((await clerk.put<User>(`/api/users/${nobody.id}`, { first_name: 'Changed' })).data.first_name).toBe(
      'Changed',
    );
    await clerk.delete(`/api/users/${nobody.id}`);
  });

  test('nobody can give themself or a new user a role with permissions they lack', async () => {
    const clerk = await withPermissions('user.read', 'user.create', 'user.update');
    expect((await clerk.put(`/api/users/${clerk.id}`, { role_ids: [roleIds['admin']] }, 403)).error).toBe('forbidden');
    expect((await clerk.put(`/api/users/${clerk.id}`, { role_ids: [roleIds['teacher']] }, 403)).error).toBe(
      'forbidden',
    );
    const body = {
      email: address(),
      first_name: 'Puppet',
      last_name: 'Admin',
      password: testPassword,
      role_ids: [roleIds['admin']],
    };
    expect((await clerk.post('/api/users', body, 403)).error).toBe('forbidden');
    expect((await school.admin.get(`/api/users?search=${body.email}`)).pagination.totalItems).toBe(0);
    await clerk.get('/api/students', 403);
  });

  test('assigning roles requires role.manage, even for roles without additional permissions', async () => {
    const clerk = await withPermissions('user.read', 'user.update');
    const nobody = await add();
    const harmless = await school.admin.post<Role>(
      '/api/rbac/roles',
      { name: unique('Harmless'), permission_ids: [] },
      201,
    );
    expect((await clerk.put(`/api/users/${nobody.id}`, { role_ids: [harmless.data.id] }, 403)).error).toBe('forbidden');
    expect((await school.admin.get<User>(`/api/users/${nobody.id}`)).data.roles).toEqual([]);
  });

  test('each method requires its permission', async () => {
    const user = await add();
    const reader = await withPermissions('user.read');
    expect((await reader.get<User>(`/api/users/${user.id}`)).data).toEqual(user);
    await reader.post('/api/users', { email: address(), first_name: 'A', last_name: 'B' }, 403);
    await reader.put(`/api/users/${user.id}`, { first_name: 'A' }, 403);
    await reader.delete(`/api/users/${user.id}`, 403);
    const teacher = await school.user(['teacher']);
    await teacher.get('/api/users', 403);
    await teacher.get(`/api/users/${teacher.id}`, 403);
  });
});

describe('the list of users', () => {
  let lists: School;
  let everybody: User[];
  let roles: Record<string, number>;
  beforeAll(async () => {
    lists = await service.school();
    roles = await rolesOf(lists);
    for (const [n, [first_name, last_name]] of [
      ['Ana', 'Alvarez'],
      ['Bo', 'Alvarez'],
      ['Émile', 'Zola'],
      ['emile', 'Zola'],
      ['Zoé', 'Berg'],
      ['Ana', 'Alvarez'],
      ['Cy', 'Berg'],
      ['Di', 'Adams'],
    ].entries()) {
      await add(
        {
          first_name,
          last_name,
          phone: n === 2 ? '+33 777' : null,
          is_active: n !== 3,
          role_ids: [n % 2 ? roles['teacher'] : roles['accountant']],
          ...(n < 2 ? { password: testPassword } : {}),
        },
        lists,
      );
    }
    const gone = await add({ first_name: 'Gone', last_name: 'Away' }, lists);
    await lists.admin.delete(`/api/users/${gone.id}`);
    await service.database.query(
      `update ${lists.schema}.user_account set created_at = timestamptz '2026-01-01Z' + (id % 3) * interval '1 day'`,
    );
    everybody = await walk<User>(lists.admin, '/api/users', 100);
  });

  test('contains all users who are not deleted', () => {
    expect(everybody).toHaveLength(9);
    expect(everybody.map(({ first_name }) => first_name)).not.toContain('Gone');
  });

  test('can be filtered by role_id and is_active', async () => {
    const found = async (query: string) => ids((await lists.admin.get<User[]>(`/api/users?${query}`)).data);
    expect(await found(`role_id=${roles['teacher']}`)).toEqual(
      ids(everybody.filter((user) => user.roles.includes('teacher'))),
    );
    expect(await found('is_active=false')).toEqual(ids(everybody.filter((user) => !user.is_active)));
    expect(await found(`is_active=true&role_id=${roles['teacher']}&search=alvarez`)).toEqual(
      ids(everybody.filter((user) => user.is_active && user.roles.includes('teacher') && user.last_name === 'Alvarez')),
    );
    expect(await found('role_id=999999')).toEqual([]);
  });

  test.each([
    ['a name without its accents, in any case', 'EMILE zola', (user: User) => user.last_name === 'Zola'],
    ['part of an email', 'admin@', (user: User) => user.email.startsWith('admin@')],
    ['a phone', '777', (user: User) => user.phone !== null],
    ['% as itself', '%25', () => false],
    ['_ as itself', '_', () => false],
  ])('search supports %s', async (_case, search, fits) => {
    expect(ids((await lists.admin.get<User[]>(`/api/users?search=${search}`)).data)).toEqual(
      ids(everybody.filter(fits)),
    );
  });
});
