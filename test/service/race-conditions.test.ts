import { describe, expect, test } from '@jest/globals';
import jwt from 'jsonwebtoken';
import { race as raceIn } from '../support/client/race.ts';
import { manyConnections, serviceWithSchool, testPassword } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool(manyConnections, 9);

const race = <T>(lock: string, count: number, send: () => Promise<T>[]) => raceIn(service.database, lock, count, send);
const statuses = (answers: { status: number }[]) => answers.map(({ status }) => status).sort();
const the = <A extends { status: number }>(status: number, answers: A[]): A => {
  const found = answers.find((answer) => answer.status === status);
  if (!found) throw new Error(`None of ${answers.map((answer) => answer.status).join(', ')} is ${status}`);
  return found;
};

/** The lock that changing or reading the rights of a school takes (core.lock_rights). */
const rightsLock = (tenantId: number) => `core.lock_key('rights', ${tenantId})`;

describe('concurrent requests', () => {
  test('two schools with one subdomain: one is created, the other is a conflict that names the field and leaves nothing', async () => {
    const body = {
      name: 'Twin',
      subdomain: 'twin',
      contact_email: 'twin@race.example',
      plan_id: 3,
      admin_password: testPassword,
    };
    const schemas = async () =>
      (await service.database.query("select from pg_namespace where nspname like 'tenant\\_%'")).length;
    const before = await schemas();
    // One waits. The other is refused at once.
    const answers = await race('lock table platform.tenant in share mode', 1, () =>
      [1, 2].map(() => service.operator.send<{ id: number }>('POST', '/api/platform/tenants', { body })),
    );
    expect(statuses(answers)).toEqual([201, 409]);
    expect(the(409, answers)).toMatchObject({ error: 'conflict', details: [{ path: 'subdomain' }] });
    expect(await service.database.query("select id::integer from platform.tenant where subdomain = 'twin'")).toEqual([
      { id: the(201, answers).data.id },
    ]);
    expect(await schemas()).toBe(before + 1);
    await service.anonymous.login({ subdomain: 'twin', email: 'twin@race.example', password: testPassword });
  });

  test('ten students for the last seat of a plan: one is added, nine get plan_limit_reached', async () => {
    const plan = await service.plan({ max_students: 3 });
    const small = await service.school({ plan_id: plan.id });
    for (const last_name of ['One', 'Two'])
      await small.admin.post('/api/students', { first_name: 'Early', last_name }, 201);
    // The pool has eight connections: two of the ten wait for one.
    const answers = await race(`select from platform.tenant_usage where tenant_id = ${small.id} for update`, 8, () =>
      Array.from({ length: 10 }, (_, n) =>
        small.admin.send('POST', '/api/students', {
          body: {
            first_name: 'Racing',
            last_name: `Number ${n}`,
            create_user_account: true,
            email: `racer${n}@race.example`,
          },
        }),
      ),
    );
    expect(statuses(answers)).toEqual([201, ...Array<number>(9).fill(403)]);
    expect(answers.filter(({ status }) => status === 403).map(({ error }) => error)).toEqual(
      Array(9).fill('plan_limit_reached'),
    );
    expect((await small.admin.get('/api/students')).pagination.totalItems).toBe(3);
    expect(
      await service.database.query(`select email from ${small.schema}.user_account where email like 'racer%'`),
    ).toHaveLength(1);
    expect(
      await service.database.query('select students from platform.tenant_usage where tenant_id = $1', [small.id]),
    ).toEqual([{ students: 3 }]);
  });

  describe('refreshes', () => {
    const refresh = (token: string) =>
      service.anonymous.send<{ access_token: string }>('POST', '/api/auth/refresh', {
        headers: { 'X-Refresh-Token': token },
      });
    const raceRefreshes = (user: { token: string }, tokens: string[]) => {
      const { sid } = jwt.decode(user.token) as { sid: number };
      const lock = `select from platform.session where id = ${sid} for update`;
      // The pool has eight connections.
      return race(lock, Math.min(tokens.length, 8), () => tokens.map(refresh));
    };
    const nextOf = (answer: { headers: Headers }) => answer.headers.get('x-refresh-token') ?? '';

    test('twenty with one token all succeed, and so do twenty with their successors', async () => {
      const user = await school.user(['teacher']);
      const first = await raceRefreshes(user, Array<string>(20).fill(user.refreshToken));
      expect(statuses(first)).toEqual(Array(20).fill(200));
      const successors = first.map(nextOf);
      expect(new Set(successors).size).toBe(20);
      expect(statuses(await raceRefreshes(user, successors))).toEqual(Array(20).fill(200));
      await user.get('/api/auth/profile');
      expect((await refresh(user.refreshToken)).status).toBe(401);
      await user.get('/api/auth/profile', 401);
    });

    test('a token and its successor: if the successor is first, the token ends the session', async () => {
      const user = await school.user(['teacher']);
      const successor = nextOf(await refresh(user.refreshToken));
      const answers = await raceRefreshes(user, [user.refreshToken, successor]);
      const [old, next] = answers.map(({ status }) => status);
      // Either the old token came first and both succeed, or the successor retired it, and the session is over.
      expect([old, next]).toEqual([old === 200 ? 200 : 401, 200]);
      await user.get('/api/auth/profile', old === 200 ? 200 : 401);
      expect((await refresh(user.refreshToken)).status).toBe(401);
    });

    test('a refresh and a logout: the session is over, and a refresh that comes second is rejected', async () => {
      const user = await school.user(['teacher']);
      const { sid } = jwt.decode(user.token) as { sid: number };
      const answers = await race(`update platform.session set revoked_at = now() where id = ${sid}`, 1, () => [
        refresh(user.refreshToken),
      ]);
      expect(answers).toMatchObject([{ status: 401, error: 'invalid_token' }]);
      expect(nextOf(answers[0] as { headers: Headers })).toBe('');
    });
  });

  test('a login and a change of its password: the old password opens no session', async () => {
    const user = await school.user(['teacher']);
    const answers = await race(
      `update ${school.schema}.user_account set password_hash = 'another one' where id = ${user.id}`,
      1,
      () => [
        service.anonymous.send('POST', '/api/auth/login', {
          body: { tenant_id: school.id, email: user.email, password: testPassword },
        }),
      ],
    );
    expect(answers).toMatchObject([{ status: 401, error: 'invalid_credentials' }]);
  });

  test('two changes of the own password: one succeeds, the other is rejected as its current password is outdated', async () => {
    const user = await school.user(['teacher']);
    const passwords = ['the password of the left hand', 'the password of the right hand'];
    const answers = await race(`select from ${school.schema}.user_account where id = ${user.id} for update`, 2, () =>
      passwords.map((password) =>
        user.send('POST', '/api/auth/password/change', { body: { current_password: testPassword, password } }),
      ),
    );
    expect(statuses(answers)).toEqual([200, 401]);
    expect(the(401, answers).error).toBe('invalid_credentials');
    const winner = passwords[answers.findIndex(({ status }) => status === 200)];
    await service.anonymous.login({ tenant_id: school.id, email: user.email, password: winner });
  });

  test('two requests with one Idempotency-Key: one student is added, both responses show it; another body is rejected', async () => {
    const send = (last_name: string) =>
      school.admin.send<{ id: number; last_name: string }>('POST', '/api/students', {
        body: { first_name: 'Once', last_name },
        headers: { 'Idempotency-Key': 'race-1' },
      });
    const answers = await race(`lock table ${school.schema}.idempotency_key in share mode`, 2, () => [
      send('Only'),
      send('Only'),
    ]);
    expect(statuses(answers)).toEqual([201, 201]);
    expect(answers[0]?.data).toEqual(answers[1]?.data);
    expect(answers[0]?.headers.get('location')).toBe(answers[1]?.headers.get('location'));
    const students = () =>
      service.database.query(`select id::integer, last_name from ${school.schema}.student where first_name = 'Once'`);
    expect(await students()).toEqual([{ id: answers[0]?.data.id, last_name: 'Only' }]);
    const other = await send('Other');
    expect({ status: other.status, error: other.error }).toEqual({ status: 422, error: 'idempotency_key_reused' });
    expect(await students()).toHaveLength(1);
  });

  test('two different bodies with one Idempotency-Key: one succeeds, the other is rejected and changes nothing', async () => {
    const send = (last_name: string) =>
      school.admin.send('POST', '/api/students', {
        body: { first_name: 'Either', last_name },
        headers: { 'Idempotency-Key': 'race-2' },
      });
    const answers = await race(`lock table ${school.schema}.idempotency_key in share mode`, 2, () => [
      send('This'),
      send('That'),
    ]);
    expect(statuses(answers)).toEqual([201, 422]);
    expect(
      await service.database.query(`select from ${school.schema}.student where first_name = 'Either'`),
    ).toHaveLength(1);
  });

  test('removing one role while adding another: both changes are kept', async () => {
    const own = await service.school();
    const user = await own.user(['teacher', 'accountant']);
    const ids = await service.database.query<{ id: string; name: string }>(`select id, name from ${own.schema}.role`);
    const idOf = (name: string) => ids.find((role) => role.name === name)?.id ?? '';
    const path = `/api/rbac/users/${user.id}/roles`;
    const answers = await race(`select pg_advisory_xact_lock(${rightsLock(own.id)})`, 3, () => [
      own.admin.send('DELETE', `${path}/${idOf('teacher')}`),
      own.admin.send('POST', path, { body: { role_id: Number(idOf('transport_manager')) } }),
      user.send('POST', '/api/auth/refresh', { headers: { 'X-Refresh-Token': user.refreshToken } }),
    ]);
    expect(statuses(answers)).toEqual([200, 200, 200]);
    const { data } = await own.admin.get<{ name: string }[]>(path);
    expect(data.map((role) => role.name)).toEqual(['accountant', 'transport_manager']);
    expect((await user.get<{ roles: string[] }>('/api/auth/profile')).data.roles).toEqual([
      'accountant',
      'transport_manager',
    ]);
    // Only the teacher role grants timetable.read, so the session lost it with the role.
    const [session] = await service.database.query<{ permissions: string[] }>(
      'select permissions from platform.session where tenant_id = $1 and user_id = $2 and revoked_at is null',
      [own.id, user.id],
    );
    expect(session?.permissions).toContain('transport.manage');
    expect(session?.permissions).not.toContain('timetable.read');
  });

  test('creating a login for a student while deleting the student: no login remains', async () => {
    const own = await service.school();
    const student = await own.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'Late', last_name: 'Login' },
      201,
    );
    const path = `/api/students/${student.data.id}`;
    const answers = await race(`select from ${own.schema}.student where id = ${student.data.id} for update`, 2, () => [
      own.admin.send('PUT', path, { body: { create_user_account: true, email: 'late@own.example' } }),
      own.admin.send('DELETE', path),
    ]);
    expect([['200,200'], ['200,404']]).toContainEqual([statuses(answers).join(',')]);
    const left = await service.database.query(
      `select from ${own.schema}.user_account where email = 'late@own.example' and deleted_at is null`,
    );
    expect(left).toEqual([]);
  });

  test('two admins who remove the admin role from each other: one succeeds, the other is refused, and one admin remains', async () => {
    const own = await service.school();
    const second = await own.user(['admin']);
    const [role] = await service.database.query<{ id: string }>(
      `select id from ${own.schema}.role where is_system and name = 'admin'`,
    );
    const [first] = await service.database.query<{ id: string }>(
      `select id from ${own.schema}.user_account where email = $1`,
      [own.adminEmail],
    );
    const take = (from: number) => `/api/rbac/users/${from}/roles/${role?.id ?? ''}`;
    const answers = await race(`select pg_advisory_xact_lock(${rightsLock(own.id)})`, 2, () => [
      own.admin.send('DELETE', take(second.id)),
      second.send('DELETE', take(Number(first?.id))),
    ]);
    // By then the other has lost the role. Whether that is noticed first, or that an admin must remain, depends on time.
    expect([403, 409]).toContain(statuses(answers)[1]);
    expect(statuses(answers)[0]).toBe(200);
    expect(
      await service.database.query(`select from ${own.schema}.user_role where role_id = $1`, [role?.id]),
    ).toHaveLength(1);
    const [winner, loser] = answers[0]?.status === 200 ? [own.admin, second] : [second, own.admin];
    await winner.get('/api/rbac/roles');
    await loser.get('/api/rbac/roles', 403);
  });

  test('two updates of the same version of a record: one succeeds, the other gets 412', async () => {
    const { data: student } = await school.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'Version', last_name: 'One' },
      201,
    );
    const path = `/api/students/${student.id}`;
    const etag = (await school.admin.get(path)).headers.get('etag') ?? '';
    const write = (last_name: string) =>
      school.admin.send<{ last_name: string }>('PUT', path, { body: { last_name }, headers: { 'If-Match': etag } });
    const answers = await race(`select from ${school.schema}.student where id = ${student.id} for update`, 2, () => [
      write('Left'),
      write('Right'),
    ]);
    expect(statuses(answers)).toEqual([200, 412]);
    expect(the(412, answers).error).toBe('precondition_failed');
    const now = await school.admin.get<{ last_name: string }>(path);
    expect(now.data.last_name).toBe(the(200, answers).data.last_name);
    const fresh = await school.admin.send('PUT', path, {
      body: { last_name: 'Both' },
      headers: { 'If-Match': now.headers.get('etag') ?? '' },
    });
    expect(fresh.status).toBe(200);
  });

  test('ten students without an admission number get ten consecutive numbers', async () => {
    const own = await service.school();
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, n) =>
        own.admin.send<{ admission_number: string }>('POST', '/api/students', {
          body: { first_name: 'Next', last_name: `N${n}` },
        }),
      ),
    );
    expect(answers.map(({ data }) => data.admission_number).sort()).toEqual(
      Array.from({ length: 10 }, (_, n) => String(n + 1).padStart(6, '0')),
    );
  });
});
