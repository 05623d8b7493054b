import { describe, expect, test } from '@jest/globals';
import { serviceWithSchool, unique } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Permission as PermissionSchema, Role as RoleSchema } from '../../src/endpoints/rbac.ts';

const { service, school } = await serviceWithSchool({}, 5);
const idsByName = async (path: string): Promise<Record<string, number>> =>
  Object.fromEntries(
    (await school.admin.get<{ id: number; name: string }[]>(path)).data.map(({ name, id }) => [name, id]),
  );
/** Ids of all permissions by name. */
const permissions = await idsByName('/api/rbac/permissions');
/** Ids of the system roles by name. */
const system = await idsByName('/api/rbac/roles');

type Permission = OutputOf<typeof PermissionSchema>;
type Role = OutputOf<typeof RoleSchema>;

type UserRole = Pick<Role, 'id' | 'name' | 'description' | 'is_system'>;

const idsOf = (names: string[]) => names.map((name) => permissions[name] ?? 0);

async function makeRole(names: string[], fields: Record<string, unknown> = {}): Promise<Role> {
  return (
    await school.admin.post<Role>(
      '/api/rbac/roles',
      { name: unique('Role'), permission_ids: idsOf(names), ...fields },
      201,
    )
  ).data;
}

/** A user with exactly these permissions. */
async function userWith(names: string[]) {
  const role = await makeRole(names);
  return Object.assign(await school.user([role.name]), { role });
}

describe('the list of permissions', () => {
  test('has every permission once, with a description, for every logged-in user', async () => {
    const teacher = await school.user(['teacher']);
    const { data } = await teacher.get<Permission[]>('/api/rbac/permissions');
    expect(data.length).toBeGreaterThan(40);
    expect(new Set(data.map(({ name }) => name)).size).toBe(data.length);
    expect(data.every(({ name, description }) => /^[a-z_]+\.[a-z]+$/.test(name) && description.length > 5)).toBe(true);
    for (const name of [
      'student.read',
      'student.create',
      'student.update',
      'student.delete',
      'attendance.mark',
      'timetable.read',
      'notification.send',
    ]) {
      expect(data.map((permission) => permission.name)).toContain(name);
    }
    await service.anonymous.get('/api/rbac/permissions', 401);
    await service.operator.get('/api/rbac/permissions', 403);
  });
});

describe('roles', () => {
  test('a new school has six system roles, and admin has every permission', async () => {
    const fresh = await service.school();
    const { data, pagination } = await fresh.admin.get<Role[]>('/api/rbac/roles');
    expect(pagination.totalItems).toBe(6);
    expect(data.map(({ name, is_system, user_count }) => [name, is_system, user_count])).toEqual([
      ['accountant', true, 0],
      ['admin', true, 1],
      ['guardian', true, 0],
      ['student', true, 0],
      ['teacher', true, 0],
      ['transport_manager', true, 0],
    ]);
    expect([...(data.find(({ name }) => name === 'admin')?.permissions ?? [])].sort()).toEqual(
      Object.keys(permissions).sort(),
    );
  });

  test('a new role is read back with the ids and names of its permissions', async () => {
    const created = await school.admin.post<Role>(
      '/api/rbac/roles',
      {
        name: 'Librarian',
        description: 'Lends books',
        permission_ids: idsOf(['student.read', 'class.read', 'student.read']),
      },
      201,
    );
    expect(created.headers.get('location')).toBe(`/api/rbac/roles/${created.data.id}`);
    const { data } = await school.admin.get<Role>(`/api/rbac/roles/${created.data.id}`);
    expect(data).toEqual(created.data);
    expect(data).toMatchObject({
      name: 'Librarian',
      description: 'Lends books',
      is_system: false,
      user_count: 0,
      permissions: ['student.read', 'class.read'],
    });
    expect(data.permission_ids).toEqual(idsOf(['student.read', 'class.read']));
  });

  test('names are unique, ignoring case and including system roles', async () => {
    const role = await makeRole([], { name: 'Porter' });
    for (const name of ['Porter', 'PORTER', 'Admin']) {
      expect(await school.admin.post('/api/rbac/roles', { name }, 409)).toMatchObject({
        error: 'conflict',
        details: [{ path: 'name' }],
      });
    }
    const other = await makeRole([]);
    expect((await school.admin.put(`/api/rbac/roles/${other.id}`, { name: 'porter' }, 409)).details).toMatchObject([
      { path: 'name' },
    ]);
    expect((await school.admin.put<Role>(`/api/rbac/roles/${role.id}`, { name: 'PORTER' })).data.name).toBe('PORTER');
  });

  test('an unknown permission is a 422 that names the field, and nothing is written', async () => {
    const body = { name: 'Unwritten', permission_ids: [...idsOf(['student.read']), 999_999] };
    expect(await school.admin.post('/api/rbac/roles', body, 422)).toMatchObject({
      error: 'invalid_reference',
      details: [{ path: 'permission_ids' }],
    });
    expect((await school.admin.get('/api/rbac/roles?search=unwritten')).pagination.totalItems).toBe(0);
    const role = await makeRole(['class.read']);
    await school.admin.put(`/api/rbac/roles/${role.id}`, { permission_ids: [999_999] }, 422);
    expect((await school.admin.get<Role>(`/api/rbac/roles/${role.id}`)).data.permissions).toEqual(['class.read']);
  });

  test('changing only the permissions changes the ETag', async () => {
    const role = await makeRole(['class.read']);
    const path = `/api/rbac/roles/${role.id}`;
    const etag = (await school.admin.get(path)).headers.get('etag') ?? '';
    await school.admin.put(path, { permission_ids: idsOf(['class.read', 'student.read']) });
    await school.admin.send('PUT', path, { body: { permission_ids: [] }, headers: { 'If-Match': etag } }, 412);
  });

  test('the list searches name and description and sorts in both directions', async () => {
    const fresh = await service.school();
    for (const name of ['Éclair', 'beta', 'Alpha'])
      await fresh.admin.post('/api/rbac/roles', { name, description: `About ${name}` }, 201);
    const names = async (query: string) =>
      (await fresh.admin.get<Role[]>(`/api/rbac/roles?${query}`)).data.map(({ name }) => name);
    expect(await names('search=eclair')).toEqual(['Éclair']);
    expect(await names('search=about&sort=created_at')).toEqual(['Éclair', 'beta', 'Alpha']);
    expect(await names('search=about&sort=created_at&order=desc')).toEqual(['Alpha', 'beta', 'Éclair']);
    const ascending = await names('sort=name');
    expect(ascending.indexOf('Alpha')).toBeLessThan(ascending.indexOf('beta'));
    expect(await names('sort=name&order=desc')).toEqual([...ascending].reverse());
    expect((await fresh.admin.get('/api/rbac/roles?sort=permissions', 400)).details).toMatchObject([{ path: 'sort' }]);
  });
});

describe('system roles', () => {
  test('cannot be renamed or deleted', async () => {
    for (const [name, id] of Object.entries(system)) {
      expect((await school.admin.put(`/api/rbac/roles/${id}`, { name: `${name}s` }, 403)).error).toBe('forbidden');
      expect((await school.admin.delete(`/api/rbac/roles/${id}`, 403)).error).toBe('forbidden');
    }
    const { data } = await school.admin.get<Role[]>('/api/rbac/roles?pageSize=100');
    expect(data.filter(({ is_system }) => is_system).map(({ name }) => name)).toEqual([
      'accountant',
      'admin',
      'guardian',
      'student',
      'teacher',
      'transport_manager',
    ]);
  });

  test('can get a new description and, except admin, new permissions', async () => {
    const fresh = await service.school();
    const teacher = (await fresh.admin.get<Role[]>('/api/rbac/roles?search=teaches')).data[0];
    const path = `/api/rbac/roles/${teacher?.id ?? 0}`;
    const { data } = await fresh.admin.put<Role>(path, {
      name: 'teacher',
      description: 'Ours',
      permission_ids: idsOf(['student.read']),
    });
    expect(data).toMatchObject({ name: 'teacher', description: 'Ours', permissions: ['student.read'] });
  });

  test('admin cannot lose a permission', async () => {
    const path = `/api/rbac/roles/${system['admin']}`;
    const all = Object.values(permissions);
    for (const permission_ids of [[], all.slice(1), all.slice(0, -1)]) {
      expect((await school.admin.put(path, { permission_ids }, 403)).error).toBe('forbidden');
    }
    expect((await school.admin.put<Role>(path, { permission_ids: all })).data.permission_ids).toEqual(
      [...all].sort((a, b) => a - b),
    );
  });
});

describe('deleting a role', () => {
  test('is a 409 in_use while a user has it, and works afterwards', async () => {
    const holder = await userWith(['student.read']);
    const path = `/api/rbac/roles/${holder.role.id}`;
    expect((await school.admin.get<Role>(path)).data.user_count).toBe(1);
    expect((await school.admin.delete(path, 409)).error).toBe('in_use');
    await school.admin.delete(`/api/rbac/users/${holder.id}/roles/${holder.role.id}`);
    expect((await school.admin.delete<{ id: number }>(path)).data).toEqual({ id: holder.role.id });
    await school.admin.get(path, 404);
  });

  test('ignores deleted users', async () => {
    const holder = await userWith(['student.read']);
    await school.admin.delete(`/api/users/${holder.id}`);
    const path = `/api/rbac/roles/${holder.role.id}`;
    expect((await school.admin.get<Role>(path)).data.user_count).toBe(0);
    await school.admin.delete(path);
  });
});

describe('the roles of a user', () => {
  test('can be added, listed and removed; adding twice changes nothing', async () => {
    const user = await school.user([]);
    const path = `/api/rbac/users/${user.id}/roles`;
    expect((await school.admin.get<UserRole[]>(path)).data).toEqual([]);
    const given = await school.admin.post<UserRole[]>(path, { role_id: system['teacher'] });
    expect(given.data).toMatchObject([{ id: system['teacher'], name: 'teacher', is_system: true }]);
    expect((await school.admin.post<UserRole[]>(path, { role_id: system['teacher'] })).data).toEqual(given.data);
    const both = await school.admin.post<UserRole[]>(path, { role_id: system['accountant'] });
    expect(both.data.map(({ name }) => name)).toEqual(['accountant', 'teacher']);
    expect((await school.admin.get<UserRole[]>(path)).data).toEqual(both.data);
    expect(
      (await school.admin.delete<UserRole[]>(`${path}/${system['teacher']}`)).data.map(({ name }) => name),
    ).toEqual(['accountant']);
    expect((await school.admin.delete(`${path}/${system['teacher']}`, 404)).error).toBe('not_found');
  });

  test('take effect at the next request of an open session', async () => {
    const user = await school.user([]);
    const path = `/api/rbac/users/${user.id}/roles`;
    await user.get('/api/students', 403);
    await school.admin.post(path, { role_id: system['teacher'] });
    await user.get('/api/students');
    await school.admin.delete(`${path}/${system['teacher']}`);
    await user.get('/api/students', 403);
  });
});

describe('the permissions of a role', () => {
  test('take effect at the next request of every user of the role', async () => {
    const first = await userWith(['student.read']);
    const second = await school.user([first.role.name]);
    for (const client of [first, second]) await client.get('/api/students');
    await school.admin.put(`/api/rbac/roles/${first.role.id}`, { permission_ids: idsOf(['user.read']) });
    for (const user of [first, second]) {
      await user.get('/api/students', 403);
      await user.get('/api/users');
      expect((await user.get<{ permissions: string[] }>('/api/auth/profile')).data.permissions).toEqual(['user.read']);
    }
  });

  test('are combined over several roles; a permission of two roles remains when one is removed', async () => {
    const user = await userWith(['student.read', 'user.read']);
    await school.admin.post(`/api/rbac/users/${user.id}/roles`, { role_id: system['teacher'] });
    await school.admin.delete(`/api/rbac/users/${user.id}/roles/${user.role.id}`);
    await user.get('/api/students');
    await user.get('/api/users', 403);
  });
});

describe('nobody can grant or revoke permissions they lack', () => {
  test('role.manage cannot create a role with permissions that its holder lacks', async () => {
    const manager = await userWith(['role.read', 'role.manage', 'student.read']);
    for (const names of [['user.update'], ['student.read', 'user.update'], Object.keys(permissions)]) {
      expect(
        (await manager.post('/api/rbac/roles', { name: unique('Escalation'), permission_ids: idsOf(names) }, 403))
          .error,
      ).toBe('forbidden');
    }
    const allowed = await manager.post<Role>(
      '/api/rbac/roles',
      { name: unique('Allowed'), permission_ids: idsOf(['student.read']) },
      201,
    );
    expect(allowed.data.permissions).toEqual(['student.read']);
    expect(
      (await manager.put(`/api/rbac/roles/${allowed.data.id}`, { permission_ids: idsOf(['user.update']) }, 403)).error,
    ).toBe('forbidden');
  });

  test("role.manage cannot add permissions to its holder's own role", async () => {
    const manager = await userWith(['role.read', 'role.manage']);
    await manager.put(
      `/api/rbac/roles/${manager.role.id}`,
      { permission_ids: idsOf(['role.read', 'role.manage', 'student.read']) },
      403,
    );
    await manager.get('/api/students', 403);
    expect((await school.admin.get<Role>(`/api/rbac/roles/${manager.role.id}`)).data.permissions).toEqual([
      'role.read',
      'role.manage',
    ]);
  });

  test('role.manage cannot assign a role with more permissions to anybody, including its holder', async () => {
    const manager = await userWith(['role.read', 'role.manage']);
    for (const role of ['admin', 'teacher']) {
      expect((await manager.post(`/api/rbac/users/${manager.id}/roles`, { role_id: system[role] }, 403)).error).toBe(
        'forbidden',
      );
    }
    expect((await manager.get<UserRole[]>(`/api/rbac/users/${manager.id}/roles`)).data.map(({ id }) => id)).toEqual([
      manager.role.id,
    ]);
  });

  test('role.manage cannot remove roles from an admin, or restrict or delete a role with more permissions', async () => {
    const manager = await userWith(['role.read', 'role.manage']);
    const second = await school.user(['admin']);
    expect((await manager.delete(`/api/rbac/users/${second.id}/roles/${system['admin']}`, 403)).error).toBe(
      'forbidden',
    );
    expect((await manager.put(`/api/rbac/roles/${system['teacher']}`, { permission_ids: [] }, 403)).error).toBe(
      'forbidden',
    );
    const role = await makeRole(['student.read']);
    expect((await manager.delete(`/api/rbac/roles/${role.id}`, 403)).error).toBe('forbidden');
    await second.get('/api/users');
  });

  test('permissions that a teacher has only for their classes cannot be granted for the whole school', async () => {
    const manager = await makeRole(['role.read', 'role.manage']);
    const teacher = await school.user(['teacher', manager.name]);
    expect(
      (await teacher.post('/api/rbac/roles', { name: 'Wide', permission_ids: idsOf(['student.read']) }, 403)).error,
    ).toBe('forbidden');
    const wide = await makeRole(['student.read', 'class.read']);
    expect((await teacher.post(`/api/rbac/users/${teacher.id}/roles`, { role_id: wide.id }, 403)).error).toBe(
      'forbidden',
    );
    const colleague = await school.user([]);
    await teacher.post(`/api/rbac/users/${colleague.id}/roles`, { role_id: system['teacher'] });
    expect((await colleague.get<{ permissions: string[] }>('/api/auth/profile')).data.permissions).toContain(
      'student.read',
    );
  });

  test("creating a student's login does not grant write permissions that its creator lacks", async () => {
    const other = await service.school();
    const roles = (await other.admin.get<Role[]>('/api/rbac/roles')).data;
    const student = roles.find(({ name }) => name === 'student');
    await other.admin.put(`/api/rbac/roles/${student?.id ?? 0}`, {
      permission_ids: idsOf(['timetable.read', 'subject.create']),
    });
    const clerk = (
      await other.admin.post<Role>(
        '/api/rbac/roles',
        { name: 'Clerk', permission_ids: idsOf(['student.read', 'student.create', 'user.update']) },
        201,
      )
    ).data;
    const user = await other.user([clerk.name]);
    const puppet = {
      first_name: 'A',
      last_name: 'Puppet',
      email: 'puppet@school.example',
      create_user_account: true,
      password: 'a password of theirs',
    };
    expect((await user.post('/api/students', puppet, 403)).error).toBe('forbidden');
    const { data: created } = await other.admin.post<{ user_id: number }>('/api/students', puppet, 201);
    expect((await user.put(`/api/users/${created.user_id}`, { password: 'another password' }, 403)).error).toBe(
      'forbidden',
    );
    await other.admin.put(`/api/rbac/roles/${student?.id ?? 0}`, { permission_ids: idsOf(['timetable.read']) });
    await user.post('/api/students', { ...puppet, email: 'second@school.example' }, 201);
  });

  test('a custom role with the name of a system role has no special rights', async () => {
    const role = await makeRole([], { name: 'custom admin' });
    const user = await school.user([role.name]);
    await user.get('/api/users', 403);
    expect((await user.get<{ permissions: string[] }>('/api/auth/profile')).data.permissions).toEqual([]);
  });

  test('reading requires role.read, writing role.manage', async () => {
    const reader = await userWith(['role.read']);
    await reader.get('/api/rbac/roles');
    await reader.get(`/api/rbac/roles/${system['admin']}`);
    await reader.get(`/api/rbac/users/${reader.id}/roles`);
    await reader.post('/api/rbac/roles', { name: unique('No') }, 403);
    await reader.put(`/api/rbac/roles/${reader.role.id}`, { description: 'No' }, 403);
    await reader.delete(`/api/rbac/roles/${reader.role.id}`, 403);
    await reader.post(`/api/rbac/users/${reader.id}/roles`, { role_id: reader.role.id }, 403);
    const teacher = await school.user(['teacher']);
    await teacher.get('/api/rbac/roles', 403);
    await teacher.get(`/api/rbac/users/${teacher.id}/roles`, 403);
  });
});
