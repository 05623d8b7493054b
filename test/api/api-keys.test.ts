import { createHash } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import type { ApiKey as ApiKeySchema } from '../../src/endpoints/api-keys.ts';
import type { Client } from '../support/client/client.ts';
import type { OutputOf } from '../support/client/output.ts';
import { walk } from '../support/client/pages.ts';
import { until } from '../support/client/until.ts';
import { serviceWithSchool, testPassword, testService, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool({}, 7);

type ApiKey = OutputOf<typeof ApiKeySchema>;
type NewApiKey = ApiKey & { key: string };
interface Entry {
  action: string;
  actor: { email: string };
  target_id: number;
  changes: Record<string, { before: unknown; after: unknown }>;
}

const fields = () => ({ name: unique('Key'), permissions: ['student.read'] });
const make = async (given: Record<string, unknown> = {}, by: Client = school.admin) =>
  (await by.post<NewApiKey>('/api/api-keys', { ...fields(), ...given }, 201)).data;
const withKey = (key: string) => service.anonymous.with({ Authorization: `Bearer ${key}` });
/** A client with a new key of a user. */
const keyClient = async (permissions: string[], by: Client = school.admin) =>
  withKey((await make({ permissions }, by)).key);
/** A well-formed key of a school that was never made. */
function invented(tenantId: number): string {
  const text = `sk_${tenantId}_${createHash('sha256').update(unique('seed')).digest('hex').slice(0, 43)}`;
  return text + createHash('sha256').update(text).digest('hex').slice(0, 8);
}
const inDays = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString();
const refused = { error: 'invalid_token', message: 'The API key is invalid, has expired or was revoked.' };

describe('API keys', () => {
  test('a key is created, read, changed and revoked', async () => {
    const sent = { ...fields(), permissions: ['student.read', 'class.read'], expires_at: '2099-01-01T00:00:00Z' };
    const answer = await school.admin.post<NewApiKey>('/api/api-keys', sent, 201);
    const { key, ...stored } = answer.data;
    expect(answer.headers.get('location')).toBe(`/api/api-keys/${stored.id}`);
    expect(stored).toMatchObject({
      name: sent.name,
      permissions: sent.permissions,
      prefix: key.slice(0, `sk_${school.id}_`.length + 4),
      user_email: school.adminEmail,
      last_used_at: null,
    });
    expect(new Date(String(stored.expires_at)).toISOString()).toBe('2099-01-01T00:00:00.000Z');
    const path = `/api/api-keys/${stored.id}`;
    expect((await school.admin.get<ApiKey>(path)).data).toEqual(stored);
    const change = { name: 'Renamed', permissions: ['class.read'], expires_at: null };
    const { data: changed } = await school.admin.put<ApiKey>(path, change);
    expect(changed).toEqual({ ...stored, ...change, updated_at: changed.updated_at });
    await withKey(key).get('/api/classes');
    await withKey(key).get('/api/students', 403);
    expect((await school.admin.delete<{ id: number }>(path)).data).toEqual({ id: stored.id });
    await school.admin.get(path, 404);
    expect(await withKey(key).get('/api/classes', 401)).toMatchObject(refused);
  });

  test('a key names its school, has 256 random bits and ends with a checksum for secret scanners', async () => {
    const { key } = await make();
    const [, checked = '', number, random, checksum] = /^(sk_(\d+)_([0-9A-Za-z]{43}))([0-9a-f]{8})$/.exec(key) ?? [];
    expect(Number(number)).toBe(school.id);
    expect(62n ** BigInt(String(random).length)).toBeGreaterThan(2n ** 256n);
    expect(createHash('sha256').update(checked).digest('hex').slice(0, 8)).toBe(checksum);
  });

  test('a key is only in the response to its creation, and in none to a repeated Idempotency-Key', async () => {
    const sent = { body: fields(), headers: { 'Idempotency-Key': unique('key') } };
    const { data } = await school.admin.send<NewApiKey>('POST', '/api/api-keys', sent, 201);
    const { data: repeated } = await school.admin.send<NewApiKey>('POST', '/api/api-keys', sent, 201);
    expect(repeated).toEqual({ ...data, key: null });
    const tables = await Promise.all(
      ['api_key', 'idempotency_key'].map((table) => service.database.query(`select * from ${school.schema}.${table}`)),
    );
    const audit = await service.database.query('select * from platform.audit_log');
    expect(JSON.stringify([tables, audit])).not.toContain(data.key);
    expect(JSON.stringify(tables[0])).toContain(createHash('sha256').update(data.key).digest('hex'));
    const answers = [await school.admin.get('/api/api-keys'), await school.admin.get(`/api/api-keys/${data.id}`)];
    expect(JSON.stringify(answers)).not.toContain(data.key);
  });

  test('lists are paged, searched, filtered and sorted', async () => {
    const at = await service.school();
    const first = await make({ name: 'Éclair', permissions: ['student.read', 'class.read'] }, at.admin);
    const second = await make({ name: 'library', permissions: ['class.read'] }, at.admin);
    const other = await at.user([await at.role('api_key.manage', 'class.read')]);
    const third = await make({ name: 'Zoo', permissions: ['class.read'] }, other);
    await service.database.query(
      `update ${at.schema}.api_key set expires_at = now() - interval '1 hour' where id = ${second.id}`,
    );
    const ids = async (query: string, as: Client = at.admin) =>
      (await as.get<ApiKey[]>(`/api/api-keys?${query}`)).data.map(({ id }) => id);
    expect(await ids('search=eclair')).toEqual([first.id]);
    expect(await ids(`search=${other.email}`)).toEqual([third.id]);
    expect(await ids('permission=student.read')).toEqual([first.id]);
    expect(await ids('is_expired=true')).toEqual([second.id]);
    expect(await ids('is_expired=false')).toEqual([first.id, third.id]);
    expect(await ids(`user_id=${other.id}`)).toEqual([third.id]);
    expect(await ids('sort=name&order=desc')).toEqual([first.id, third.id, second.id]);
    expect(await ids('sort=expires_at&pageSize=1')).toEqual([second.id]);
    expect(await ids('', other)).toEqual([first.id, second.id, third.id]);
    expect((await walk<ApiKey>(at.admin, '/api/api-keys', 1)).map(({ id }) => id)).toEqual([
      first.id,
      second.id,
      third.id,
    ]);
  });

  test('a user cannot make a key with a permission that they lack or that does not exist, also not by a change', async () => {
    const user = await school.user([await school.role('api_key.manage', 'student.read')]);
    const lacks = { error: 'forbidden', message: 'You do not have these permissions yourself: student.create.' };
    const permissions = ['student.read', 'student.create'];
    expect(await user.post('/api/api-keys', { ...fields(), permissions }, 403)).toMatchObject(lacks);
    const { id } = await make({}, user);
    expect(await user.put(`/api/api-keys/${id}`, { permissions }, 403)).toMatchObject(lacks);
    expect(await user.post('/api/api-keys', { ...fields(), permissions: ['student.expel'] }, 422)).toMatchObject({
      error: 'invalid_reference',
      details: [{ path: 'permissions', message: 'There is no permission student.expel.' }],
    });
    for (const wrong of [[], ['student.read', 'student.read'], null])
      await user.post('/api/api-keys', { ...fields(), permissions: wrong }, 400);
  });

  test('users with the permission see the keys of others and can revoke those within their permissions, but change none', async () => {
    const user = await school.user([await school.role('api_key.manage', 'student.read')]);
    const [weak, strong] = [await make(), await make({ permissions: ['student.delete'] })];
    expect((await user.get<ApiKey>(`/api/api-keys/${strong.id}`)).data.name).toBe(strong.name);
    await user.put(`/api/api-keys/${weak.id}`, { name: 'Mine' }, 403);
    await user.delete(`/api/api-keys/${strong.id}`, 403);
    await user.delete(`/api/api-keys/${weak.id}`);
    expect(await withKey(weak.key).get('/api/students', 401)).toMatchObject(refused);
    await withKey(strong.key).get('/api/auth/profile');
    for (const role of ['teacher', 'accountant', 'transport_manager', 'student'])
      await (await school.user([role])).get('/api/api-keys', 403);
  });

  test('a user has at most 20 keys', async () => {
    const at = await service.school();
    for (let n = 0; n < 20; n++) await make({}, at.admin);
    expect(await at.admin.post('/api/api-keys', fields(), 409)).toMatchObject({ error: 'conflict' });
    const other = await at.user([await at.role('api_key.manage', 'student.read')]);
    await make({}, other);
  });

  test('an expiry must be in the future', async () => {
    const past = { error: 'validation_error', details: [{ path: 'expires_at', message: 'must be in the future' }] };
    expect(await school.admin.post('/api/api-keys', { ...fields(), expires_at: inDays(-1) }, 400)).toMatchObject(past);
  });

  test('creating, changing and revoking a key is audited with its fields, and without the key', async () => {
    const { id, key } = await make({ name: 'Before' });
    await school.admin.put(`/api/api-keys/${id}`, { name: 'After' });
    await school.admin.delete(`/api/api-keys/${id}`);
    const { data } = await service.operator.get<Entry[]>(
      `/api/platform/audit-logs?tenant_id=${school.id}&pageSize=100`,
    );
    const entries = data.filter(({ target_id, action }) => target_id === id && action.startsWith('api_key.'));
    expect(entries.reverse().map(({ action, actor }) => [action, actor.email])).toEqual([
      ['api_key.create', school.adminEmail],
      ['api_key.update', school.adminEmail],
      ['api_key.revoke', school.adminEmail],
    ]);
    expect(entries[1]?.changes).toEqual({ name: { before: 'Before', after: 'After' } });
    expect(entries[2]?.changes['permissions']).toEqual({ before: ['student.read'], after: null });
    expect(JSON.stringify(entries)).not.toContain(key);
  });

  test('an operator who impersonates an admin can revoke keys, but not make or change them', async () => {
    const { id } = await make();
    const { data } = await service.operator.post<{ access_token: string }>(
      `/api/platform/tenants/${school.id}/impersonate`,
      { reason: 'A key has leaked' },
    );
    const operator = service.anonymous.with({ Authorization: `Bearer ${data.access_token}` });
    await operator.post('/api/api-keys', fields(), 403);
    await operator.put(`/api/api-keys/${id}`, { name: 'Theirs' }, 403);
    await operator.delete(`/api/api-keys/${id}`);
  });
});

describe('a request with an API key', () => {
  test('acts for the user with the permissions of the key, and gets the responses that the user gets', async () => {
    const client = await keyClient(['student.read', 'student.create']);
    const { data } = await client.post<{ id: number }>(
      '/api/students',
      { first_name: 'Al', last_name: 'Khwarizmi' },
      201,
    );
    const path = `/api/students/${data.id}`;
    expect((await client.get<{ id: number }>(path)).data).toEqual((await school.admin.get<{ id: number }>(path)).data);
    expect(await client.delete(path, 403)).toMatchObject({
      error: 'forbidden',
      message: 'This needs the permission student.delete.',
    });
    const { data: profile } = await client.get<{ email: string; permissions: string[] }>('/api/auth/profile');
    expect(profile).toMatchObject({ email: school.adminEmail, permissions: ['student.read', 'student.create'] });
  });

  test('has no permission that its user has lost, and has it again when the user has', async () => {
    const { data: role } = await school.admin.post<{ id: number; name: string }>(
      '/api/rbac/roles',
      { name: unique('Role') },
      201,
    );
    const { data: all } = await school.admin.get<{ id: number; name: string }[]>('/api/rbac/permissions');
    const allow = (...names: string[]) =>
      school.admin.put(`/api/rbac/roles/${role.id}`, {
        permission_ids: all.filter(({ name }) => names.includes(name)).map(({ id }) => id),
      });
    await allow('api_key.manage', 'student.read', 'class.read');
    const user = await school.user([role.name]);
    const { id, key } = await make({ permissions: ['student.read', 'class.read'] }, user);
    await allow('api_key.manage', 'class.read');
    await withKey(key).get('/api/students', 403);
    await withKey(key).get('/api/classes');
    expect((await user.put<ApiKey>(`/api/api-keys/${id}`, { name: 'Same list' })).data.permissions).toHaveLength(2);
    await allow('api_key.manage', 'student.read');
    await withKey(key).get('/api/students');
    // More permissions of the user are not those of the key.
    await allow('api_key.manage', 'student.read', 'teacher.read');
    await withKey(key).get('/api/teachers', 403);
  });

  test('sees only the classes of a teacher who made it', async () => {
    const { classId } = await school.classroom(unique('Class'));
    const { classId: other } = await school.classroom(unique('Class'));
    const teacher = await school.user(['teacher', await school.role('api_key.manage')]);
    const teacherId = await school.insert('teacher', { first_name: 'Tea', last_name: 'Cher', user_id: teacher.id });
    await service.database.query(
      `update ${school.schema}.class set class_teacher_id = ${teacherId} where id = ${classId}`,
    );
    const client = await keyClient(['class.read'], teacher);
    const { data } = await client.get<{ id: number }[]>('/api/classes?pageSize=100');
    expect(data.map(({ id }) => id)).toEqual([classId]);
    await client.get(`/api/classes/${other}`, 404);
    // Without the permission in the list, not even the own rows of the teacher.
    await (await keyClient(['subject.read'], teacher)).get('/api/classes', 403);
  });

  test('is refused when the user is deactivated, and works again when they are reactivated', async () => {
    const user = await school.user([await school.role('api_key.manage', 'student.read')]);
    const client = await keyClient(['student.read'], user);
    await client.get('/api/students');
    await school.admin.put(`/api/users/${user.id}`, { is_active: false });
    expect(await client.get('/api/students', 401)).toMatchObject(refused);
    await school.admin.put(`/api/users/${user.id}`, { is_active: true });
    await client.get('/api/students');
    await school.admin.delete(`/api/users/${user.id}`);
    expect(await client.get('/api/students', 401)).toMatchObject(refused);
    expect((await school.admin.get<ApiKey[]>(`/api/api-keys?user_id=${user.id}`)).data).toEqual([]);
  });

  test.each([['students'], ['teachers']])(
    'is deleted when the person who made it is deleted from the %s',
    async (of) => {
      const email = `${unique('person')}@school.example`;
      const { data: person } = await school.admin.post<{ id: number; user_id: number }>(
        `/api/${of}`,
        { first_name: 'Key', last_name: 'Maker', email, create_user_account: true, password: testPassword },
        201,
      );
      const role = await school.role('api_key.manage', 'class.read');
      const { data: roles } = await school.admin.get<{ id: number }[]>(`/api/rbac/roles?search=${role}`);
      await school.admin.post(`/api/rbac/users/${person.user_id}/roles`, { role_id: roles[0]?.id });
      const user = await service.anonymous.login({ tenant_id: school.id, email, password: testPassword });
      const client = await keyClient(['class.read'], user);
      await client.get('/api/classes');
      await school.admin.delete(`/api/${of}/${person.id}`);
      expect(await client.get('/api/classes', 401)).toMatchObject(refused);
      expect((await school.admin.get<ApiKey[]>(`/api/api-keys?user_id=${person.user_id}`)).data).toEqual([]);
    },
  );

  test('is refused while the teacher who made it is inactive', async () => {
    const teacher = await school.user(['teacher', await school.role('api_key.manage')]);
    const client = await keyClient(['class.read'], teacher);
    const id = await school.insert('teacher', { first_name: 'In', last_name: 'Active', user_id: teacher.id });
    await client.get('/api/classes');
    await service.database.query(
      `delete from ${school.schema}.user_role where user_id = ${teacher.id}
         and role_id <> (select id from ${school.schema}.role where name = 'teacher')`,
    );
    await school.admin.put(`/api/teachers/${id}`, { is_active: false });
    expect(await client.get('/api/classes', 401)).toMatchObject(refused);
  });

  test('is refused while the school is suspended, and when it is deleted', async () => {
    const at = await service.school();
    const client = await keyClient(['student.read'], at.admin);
    await service.operator.post(`/api/platform/tenants/${at.id}/suspend`);
    expect(await client.get('/api/students', 403)).toMatchObject({ error: 'tenant_suspended' });
    await service.operator.post(`/api/platform/tenants/${at.id}/activate`);
    await client.get('/api/students');
    await service.operator.delete(`/api/platform/tenants/${at.id}`);
    await client.get('/api/students', 401);
  });

  test('is refused when the key has expired', async () => {
    const { id, key } = await make({ expires_at: inDays(1) });
    await withKey(key).get('/api/students');
    await service.database.query(`update ${school.schema}.api_key set expires_at = now() where id = ${id}`);
    expect(await withKey(key).get('/api/students', 401)).toMatchObject(refused);
  });

  test('must not name another school, by the key or by X-Tenant-ID', async () => {
    const at = await service.school();
    const { key } = await make();
    expect(
      await withKey(key).send('GET', '/api/students', { headers: { 'X-Tenant-ID': String(at.id) } }, 403),
    ).toMatchObject({ error: 'tenant_mismatch' });
    const moved = key.slice(0, -8).replace(`sk_${school.id}_`, `sk_${at.id}_`);
    const checksum = createHash('sha256').update(moved).digest('hex').slice(0, 8);
    expect(await withKey(moved + checksum).get('/api/students', 401)).toMatchObject(refused);
  });

  test('records the last use at most once a minute', async () => {
    const { id, key } = await make();
    const lastUse = async () => (await school.admin.get<ApiKey>(`/api/api-keys/${id}`)).data.last_used_at;
    await withKey(key).get('/api/students');
    const first = await lastUse();
    expect(Date.parse(String(first))).toBeGreaterThan(Date.now() - 60_000);
    await withKey(key).get('/api/students');
    expect(await lastUse()).toBe(first);
    await service.database.query(
      `update ${school.schema}.api_key set last_used_at = now() - interval '61 seconds' where id = ${id}`,
    );
    await withKey(key).get('/api/students');
    expect(Date.parse(String(await lastUse()))).toBeGreaterThanOrEqual(Date.parse(String(first)));
  });

  test('cannot change the email address or the password of a user, not even of one with fewer permissions', async () => {
    const user = await school.user([await school.role('student.read')]);
    const client = await keyClient(['user.update', 'user.read', 'student.read']);
    const message = 'An API key cannot change the email address or the password of a user. Log in to do this.';
    for (const change of [{ email: `${unique('new')}@example.org` }, { password: 'another password' }])
      expect(await client.put(`/api/users/${user.id}`, change, 403)).toMatchObject({ error: 'forbidden', message });
    await client.put(`/api/users/${user.id}`, { first_name: 'Renamed' });
    await user.get('/api/students');
  });

  test('shares no Idempotency-Key with another key of the user, or with the user', async () => {
    const clients = [
      school.admin,
      await keyClient(['subject.create', 'subject.read']),
      await keyClient(['subject.create', 'subject.read']),
    ];
    const headers = { 'Idempotency-Key': 'x'.repeat(255) };
    const ids = [];
    for (const client of clients) {
      const name = unique('Subject');
      const body = { name, code: name };
      const { data } = await client.send<{ id: number }>('POST', '/api/subjects', { body, headers }, 201);
      const { data: repeated } = await client.send<{ id: number }>('POST', '/api/subjects', { body, headers }, 201);
      expect(repeated.id).toBe(data.id);
      ids.push(data.id);
    }
    expect(new Set(ids).size).toBe(3);
  });

  test('is attributed to the key in the audit log', async () => {
    const at = await service.school();
    const { id, name, key } = await make({ permissions: ['subscription.manage'] }, at.admin);
    await withKey(key).post('/api/subscription/upgrade', { plan_id: 2 });
    const { data } = await service.operator.get<Entry[]>(
      `/api/platform/audit-logs?tenant_id=${at.id}&action=subscription.upgrade`,
    );
    expect(data).toHaveLength(1);
    expect(data[0]).toMatchObject({ actor: { email: at.adminEmail } });
    expect(data[0]?.changes['api_key']).toEqual({ before: null, after: { id, name } });
  });
});

// Schools on several servers: the databases of these services replace those of the file.
describe('the rate limit', () => {
  test('counts a revoked key by address, like one that was never valid', async () => {
    const limited = await testService({ RATE_LIMIT_PER_MINUTE: '4' }, 1);
    try {
      const at = await limited.school();
      const { data: revoked } = await at.admin.post<NewApiKey>('/api/api-keys', fields(), 201);
      const get = async (key: string) =>
        (await limited.anonymous.with({ Authorization: `Bearer ${key}` }).send('GET', '/api/students')).status;
      expect(await get(revoked.key)).toBe(200);
      const user = await limited.anonymous.login({ tenant_id: at.id, email: at.adminEmail, password: testPassword });
      await user.delete(`/api/api-keys/${revoked.id}`);
      expect(await get(revoked.key)).toBe(401);
      await until(async () => (await get(revoked.key)) === 429 || undefined);
      expect(await get(invented(at.id))).toBe(429);
    } finally {
      await limited.close();
    }
  });

  test('counts an API key like a session of its own, and keys that were never valid by address', async () => {
    const limited = await testService({ RATE_LIMIT_PER_MINUTE: '4' }, 1);
    try {
      const at = await limited.school();
      const { data: first } = await at.admin.post<NewApiKey>('/api/api-keys', fields(), 201);
      const { data: second } = await at.admin.post<NewApiKey>('/api/api-keys', fields(), 201);
      const get = async (key: string) =>
        (await limited.anonymous.with({ Authorization: `Bearer ${key}` }).send('GET', '/api/students')).status;
      expect(await get(first.key)).toBe(200);
      expect(await get(second.key)).toBe(200);
      await until(async () => (await get(first.key)) === 429 || undefined);
      expect(await get(second.key)).toBe(200);
      const statuses = [];
      for (let n = 0; n < 3; n++) statuses.push(await get(invented(at.id)));
      expect(statuses).toEqual([401, 401, 429]);
      expect(await get(second.key)).toBe(200);
    } finally {
      await limited.close();
    }
  });
});

describe('the setting API_KEY_MAX_DAYS', () => {
  test('limits and requires the expiry', async () => {
    const limited = await testService({ API_KEY_MAX_DAYS: '30' }, 1);
    try {
      const { admin } = await limited.school();
      const tooLong = { details: [{ path: 'expires_at', message: 'must be at most 30 days from now' }] };
      for (const expires_at of [inDays(31), null, undefined])
        expect(await admin.post('/api/api-keys', { ...fields(), expires_at }, 400)).toMatchObject(tooLong);
      const { data } = await admin.post<ApiKey>('/api/api-keys', { ...fields(), expires_at: inDays(29) }, 201);
      expect(await admin.put(`/api/api-keys/${data.id}`, { expires_at: null }, 400)).toMatchObject(tooLong);
      expect((await admin.put<ApiKey>(`/api/api-keys/${data.id}`, { name: 'Kept' })).data).toMatchObject({
        name: 'Kept',
        expires_at: data.expires_at,
      });
    } finally {
      await limited.close();
    }
  });
});
