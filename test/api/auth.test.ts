import { beforeEach, describe, expect, test } from '@jest/globals';
import jwt from 'jsonwebtoken';
import type { Client } from '../support/client/client.ts';
import { mailsTo, mailTo, queueIsEmpty } from '../support/fakes/mail.ts';
import { fileForm, jpeg, png } from '../support/fixtures/pictures.ts';
import { raw } from '../support/client/raw.ts';
import { operatorEmail, serviceWithSchool, testPassword } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Profile as ProfileSchema } from '../../src/endpoints/auth.ts';
import type { LoginAnswer as LoginAnswerSchema } from '../../src/endpoints/parts/login.ts';

const newSecret = 'the secret that signs and is long enough';
const oldSecret = 'the secret of yesterday and long enough';
const issued = {
  algorithm: 'HS256',
  issuer: 'school-management-service',
  audience: 'school-management-api',
  expiresIn: 900,
} as const;

const { service, school } = await serviceWithSchool({
  JWT_SECRETS: `${newSecret},${oldSecret}`,
  BASE_DOMAIN: 'school.test',
});
const other = await service.school();

type Login = OutputOf<typeof LoginAnswerSchema>;
type Profile = OutputOf<typeof ProfileSchema>;

interface Claims {
  user_id: number;
  tenant_id?: number;
  is_platform_admin?: boolean;
  sid: number;
  iss: string;
  aud: string;
  iat: number;
  exp: number;
}

const login = (body: Record<string, unknown>, status: number, headers: Record<string, string> = {}) =>
  service.anonymous.send<Login>('POST', '/api/auth/login', { body, headers }, status);

const refresh = (token: string, status: number) =>
  service.anonymous.send<{ access_token: string }>(
    'POST',
    '/api/auth/refresh',
    { headers: { 'X-Refresh-Token': token } },
    status,
  );

const claimsOf = (token: string) => jwt.decode(token) as Claims;

const nextOf = ({ headers }: { headers: Headers }) => headers.get('x-refresh-token') ?? '';

/** The part of a refresh token of which the database has the hash: without the session and the signature. */
const storedToken = (token: string) => token.split('.').slice(0, 2).join('.');

/** Updates the counter of the attempts from this address at the last tried account. */
const countedLast = (change: string) =>
  service.database.everywhere(
    `update platform.login_throttle set ${change} where account = (
       select account from platform.login_throttle where budget in ('address', 'own_password')
       order by updated_at desc limit 1)`,
  );

/** Makes a session and its refresh tokens older, as if this time had passed. */
async function age(sid: number, by: string) {
  await service.database.everywhere(
    'update platform.session set expires_at = expires_at - $2::interval where id = $1',
    [sid, by],
  );
  await service.database.everywhere(
    `update platform.refresh_token set expires_at = expires_at - $2::interval, used_at = used_at - $2::interval,
       retired_at = retired_at - $2::interval, created_at = created_at - $2::interval where session_id = $1`,
    [sid, by],
  );
}

describe('login', () => {
  test('a school or is_platform that is null or empty counts as absent', async () => {
    const credentials = { email: school.adminEmail, password: testPassword };
    await login({ ...credentials, tenant_id: school.id, subdomain: '', is_platform: null }, 200);
    await login({ ...credentials, tenant_id: null, subdomain: school.subdomain }, 200);
    const operator = { email: operatorEmail, password: testPassword, is_platform: true };
    await login({ ...operator, tenant_id: null, subdomain: null }, 200);
    await login({ ...credentials, tenant_id: null, subdomain: '' }, 400);
  });

  test('accepts the school by id, subdomain, X-Tenant-ID or host', async () => {
    const credentials = { email: school.adminEmail, password: testPassword };
    const host = await raw(service.url, {
      method: 'POST',
      path: '/api/auth/login',
      headers: { Host: `${school.subdomain}.school.test` },
      body: JSON.stringify(credentials),
    });
    const answers = [
      await login({ ...credentials, tenant_id: school.id }, 200),
      await login({ ...credentials, subdomain: school.subdomain }, 200),
      await login({ ...credentials, subdomain: school.subdomain.toUpperCase() }, 200),
      await login(credentials, 200, { 'X-Tenant-ID': String(school.id) }),
    ].map(({ data }) => data);
    answers.push((JSON.parse(host.body) as { data: Login }).data);
    expect(answers.map(({ access_token }) => claimsOf(access_token).tenant_id)).toEqual(Array(5).fill(school.id));
    expect(new Set(answers.map(({ user }) => user.id)).size).toBe(1);
  });

  test('returns exactly the token, the user, the permissions and the enabled features', async () => {
    const teacher = await school.user(['teacher'], { first_name: 'Tara', last_name: 'Teacher' });
    const { data, headers } = await login(
      { tenant_id: school.id, email: teacher.email.toUpperCase(), password: testPassword },
      200,
    );
    expect(Object.keys(data).sort()).toEqual([
      'access_token',
      'enabled_features',
      'permissions',
      'time_zone',
      'today',
      'user',
    ]);
    expect(data.user).toEqual({
      id: teacher.id,
      email: teacher.email,
      first_name: 'Tara',
      last_name: 'Teacher',
      profile_picture_url: null,
    });
    expect([...data.permissions].sort()).toEqual([
      'absence.announce',
      'academic.read',
      'attendance.mark',
      'attendance.read',
      'class.read',
      'dashboard.read',
      'guardian.read',
      'student.read',
      'subject.read',
      'teacher.read',
      'timetable.read',
    ]);
    expect(data.enabled_features).toEqual(['attendance', 'fees_management', 'notifications', 'timetable', 'transport']);
    expect(headers.get('x-refresh-token')).toMatch(/^\d+\.[\w-]{43}\.\d+\.[\w-]{22}$/);
  });

  test('an admin has every existing permission', async () => {
    const { data } = await login({ tenant_id: school.id, email: school.adminEmail, password: testPassword }, 200);
    const allPermissions = await school.admin.get<{ name: string }[]>('/api/rbac/permissions');
    expect([...data.permissions].sort()).toEqual(allPermissions.data.map(({ name }) => name).sort());
  });

  test('the access token contains user, school and session, and expires after 15 minutes', () => {
    const claims = claimsOf(school.admin.token);
    expect(Object.keys(claims).sort()).toEqual(['aud', 'exp', 'iat', 'iss', 'sid', 'tenant_id', 'user_id']);
    expect(claims).toMatchObject({
      tenant_id: school.id,
      iss: 'school-management-service',
      aud: 'school-management-api',
    });
    expect(claims.exp - claims.iat).toBe(15 * 60);
  });

  test('an operator logs in without a school, and the token has is_platform_admin instead of a tenant', async () => {
    const { data } = await login({ is_platform: true, email: operatorEmail, password: testPassword }, 200);
    const claims = claimsOf(data.access_token);
    expect(Object.keys(claims).sort()).toEqual(['aud', 'exp', 'iat', 'is_platform_admin', 'iss', 'sid', 'user_id']);
    expect(claims).toMatchObject({ user_id: data.user.id, is_platform_admin: true });
    expect(claims.exp - claims.iat).toBe(15 * 60);
    expect(data).toMatchObject({ permissions: [], enabled_features: [], user: { email: operatorEmail } });
  });

  test('a school that is null in a login is the same as none', async () => {
    const operator = { is_platform: true, tenant_id: null, email: operatorEmail, password: testPassword };
    expect((await login(operator, 200)).data.user.email).toBe(operatorEmail);
    expect((await login({ ...operator, subdomain: null }, 200)).data.user.email).toBe(operatorEmail);
    const nobody = await login({ tenant_id: null, email: operatorEmail, password: testPassword }, 400);
    expect(nobody.details).toMatchObject([{ path: 'tenant_id' }]);
  });

  test('operators cannot log in to a school, nor users of a school to the platform', async () => {
    expect((await login({ tenant_id: school.id, email: operatorEmail, password: testPassword }, 401)).error).toBe(
      'invalid_credentials',
    );
    expect((await login({ is_platform: true, email: school.adminEmail, password: testPassword }, 401)).error).toBe(
      'invalid_credentials',
    );
  });

  test('the same email in two schools belongs to two users', async () => {
    await other.admin.post(
      '/api/users',
      { email: school.adminEmail, first_name: 'Same', last_name: 'Address', password: 'another password' },
      201,
    );
    const here = await login({ tenant_id: school.id, email: school.adminEmail, password: testPassword }, 200);
    const there = await login({ tenant_id: other.id, email: school.adminEmail, password: 'another password' }, 200);
    expect(here.data.user.first_name).toBe('School');
    expect(there.data.user.first_name).toBe('Same');
    await login({ tenant_id: other.id, email: school.adminEmail, password: testPassword }, 401);
  });

  test('an unknown school is a 404, however it is specified', async () => {
    const credentials = { email: school.adminEmail, password: testPassword };
    expect((await login({ ...credentials, tenant_id: 999_999 }, 404)).error).toBe('tenant_not_found');
    expect((await login({ ...credentials, subdomain: 'nowhere' }, 404)).error).toBe('tenant_not_found');
    expect((await login(credentials, 404, { 'X-Tenant-ID': '999999' })).error).toBe('tenant_not_found');
  });

  test('a missing school is a 400 that names tenant_id; two different schools are a mismatch', async () => {
    const credentials = { email: school.adminEmail, password: testPassword };
    const none = await login(credentials, 400);
    expect(none).toMatchObject({ error: 'validation_error', details: [{ path: 'tenant_id' }] });
    expect((await login({ ...credentials, tenant_id: school.id, subdomain: other.subdomain }, 403)).error).toBe(
      'tenant_mismatch',
    );
    expect(
      (await login({ ...credentials, tenant_id: school.id }, 403, { 'X-Tenant-ID': String(other.id) })).error,
    ).toBe('tenant_mismatch');
  });

  test('header, host and token must specify the same school', async () => {
    expect(
      (await school.admin.send('GET', '/api/auth/profile', { headers: { 'X-Tenant-ID': String(other.id) } }, 403))
        .error,
    ).toBe('tenant_mismatch');
    expect(
      (await school.admin.send('GET', '/api/auth/profile', { headers: { 'X-Tenant-ID': String(school.id) } }, 200))
        .status,
    ).toBe(200);
    const get = (label: string) =>
      raw(service.url, {
        path: '/api/auth/profile',
        token: school.admin.token,
        headers: { Host: `${label}.school.test` },
      });
    expect((await get(other.subdomain)).status).toBe(403);
    expect((await get(school.subdomain)).status).toBe(200);
    const malformed = await school.admin.send('GET', '/api/auth/profile', { headers: { 'X-Tenant-ID': 'abc' } }, 400);
    expect(malformed.details[0]?.path).toBe('X-Tenant-ID');
  });

  test('the response is identical for a wrong password, an unknown email, and invited, inactive and deleted users', async () => {
    const inactive = await school.user(['teacher']);
    await school.admin.put(`/api/users/${inactive.id}`, { is_active: false });
    const deleted = await school.user(['teacher']);
    await school.admin.delete(`/api/users/${deleted.id}`);
    const invited = `invited@${school.subdomain}.example`;
    await school.admin.post('/api/users', { email: invited, first_name: 'In', last_name: 'Vited' }, 201);
    const attempt = (email: string, password: string) =>
      raw(service.url, {
        method: 'POST',
        path: '/api/auth/login',
        headers: { 'X-Request-Id': 'the-same' },
        body: JSON.stringify({ tenant_id: school.id, email, password }),
      });
    const wrong = await attempt(school.adminEmail, 'not the password');
    expect(wrong.status).toBe(401);
    expect(JSON.parse(wrong.body)).toMatchObject({
      success: false,
      error: 'invalid_credentials',
      request_id: 'the-same',
    });
    for (const email of [`nobody@${school.subdomain}.example`, invited, inactive.email, deleted.email]) {
      const answer = await attempt(email, testPassword);
      expect([answer.status, answer.body, Object.keys(answer.headers)]).toEqual([
        401,
        wrong.body,
        Object.keys(wrong.headers),
      ]);
    }
  });
});

describe('ten failed logins', () => {
  const fail = async (email: string, times: number) => {
    for (let n = 0; n < times; n++) await login({ tenant_id: school.id, email, password: 'wrong password' }, 401);
  };
  /** Sets the number of failed attempts. */
  const failed = async (email: string, attempts: number) => {
    await fail(email, 1);
    await countedLast(`attempts = ${attempts}`);
  };

  test('lock the account for the correct password too, with Retry-After, until the window ends; other accounts are unaffected', async () => {
    const victim = await school.user(['teacher']);
    const bystander = await school.user(['teacher']);
    await fail(victim.email, 10);
    const closed = await login({ tenant_id: school.id, email: victim.email, password: testPassword }, 429);
    expect(closed.error).toBe('rate_limited');
    const wait = Number(closed.headers.get('retry-after'));
    expect(wait).toBeGreaterThan(14 * 60);
    expect(wait).toBeLessThanOrEqual(15 * 60);
    expect(
      (await login({ subdomain: school.subdomain, email: victim.email.toUpperCase(), password: testPassword }, 429))
        .error,
    ).toBe('rate_limited');
    await login({ tenant_id: school.id, email: bystander.email, password: testPassword }, 200);
    await victim.get('/api/auth/profile');
    await login({ tenant_id: school.id, email: victim.email, password: testPassword }, 429);
    await countedLast("window_ends_at = now() - interval '1 second'");
    await login({ tenant_id: school.id, email: victim.email, password: testPassword }, 200);
  });

  test('lock the account for 15 minutes from the first failure; further attempts do not extend this', async () => {
    const user = await school.user(['teacher']);
    await failed(user.email, 9);
    await countedLast("window_ends_at = now() + interval '1 minute'");
    await fail(user.email, 1);
    const closed = await login({ tenant_id: school.id, email: user.email, password: testPassword }, 429);
    expect(Number(closed.headers.get('retry-after'))).toBeLessThanOrEqual(60);
  });

  test('lock the account again after those 15 minutes, for another 15', async () => {
    const user = await school.user(['teacher']);
    await failed(user.email, 10);
    await countedLast("window_ends_at = now() - interval '1 second'");
    await failed(user.email, 10);
    const closed = await login({ tenant_id: school.id, email: user.email, password: testPassword }, 429);
    expect(Number(closed.headers.get('retry-after'))).toBeGreaterThan(14 * 60);
  });

  test('in one school do not lock the same email in another, and a success there does not unlock it here', async () => {
    const user = await school.user(['teacher']);
    await other.admin.post(
      '/api/users',
      { email: user.email, first_name: 'Same', last_name: 'Address', password: 'another password' },
      201,
    );
    await failed(user.email, 10);
    await login({ tenant_id: other.id, email: user.email, password: 'another password' }, 200);
    expect((await login({ tenant_id: school.id, email: user.email, password: testPassword }, 429)).error).toBe(
      'rate_limited',
    );
  });

  test('lock unknown emails too, so that the 429 does not reveal accounts', async () => {
    const unknown = `ghost@${school.subdomain}.example`;
    await fail(unknown, 10);
    const closed = await login({ tenant_id: school.id, email: unknown, password: 'wrong password' }, 429);
    expect(Number(closed.headers.get('retry-after'))).toBeGreaterThan(14 * 60);
  });

  test('are counted from zero after a success', async () => {
    const user = await school.user(['teacher']);
    await failed(user.email, 9);
    await login({ tenant_id: school.id, email: user.email, password: testPassword }, 200);
    await failed(user.email, 9);
    await fail(user.email, 1);
    await login({ tenant_id: school.id, email: user.email, password: testPassword }, 429);
  });

  test('also count password changes, so that a stolen session cannot guess passwords', async () => {
    const user = await school.user(['teacher']);
    const refused = await user.post(
      '/api/auth/password/change',
      { current_password: 'wrong password', password: 'a new password' },
      401,
    );
    expect(refused.error).toBe('invalid_credentials');
    await countedLast('attempts = 10');
    expect(
      (
        await user.post(
          '/api/auth/password/change',
          { current_password: testPassword, password: 'a new password' },
          429,
        )
      ).error,
    ).toBe('rate_limited');
  });
});

describe('tokens', () => {
  test('a missing and an invalid token get different errors', async () => {
    const none = await service.anonymous.get('/api/auth/profile', 401);
    expect(none.error).toBe('unauthenticated');
    expect(none.headers.get('www-authenticate')).toBe('Bearer');
    const { user_id, tenant_id, sid } = claimsOf(school.admin.token);
    const claims = { user_id, tenant_id, sid };
    const wrong: [string, string][] = [
      ['garbage', 'garbage'],
      ['another secret', jwt.sign(claims, 'a secret that this service never had, long', issued)],
      ['no algorithm', jwt.sign(claims, '', { ...issued, algorithm: 'none' })],
      ['another algorithm', jwt.sign(claims, newSecret, { ...issued, algorithm: 'HS512' })],
      ['another audience', jwt.sign(claims, newSecret, { ...issued, audience: 'somebody else' })],
      ['another issuer', jwt.sign(claims, newSecret, { ...issued, issuer: 'somebody else' })],
      ['expired', jwt.sign(claims, newSecret, { ...issued, expiresIn: -1 })],
      ['no session', jwt.sign({ user_id, tenant_id }, newSecret, issued)],
      ['a session that does not exist', jwt.sign({ ...claims, sid: 999_999_999 }, newSecret, issued)],
    ];
    const found: [string, string][] = [];
    for (const [what, token] of wrong) {
      const { error } = await service.anonymous.send(
        'GET',
        '/api/auth/profile',
        { headers: { Authorization: `Bearer ${token}` } },
        401,
      );
      found.push([what, error]);
    }
    expect(found).toEqual(wrong.map(([what]) => [what, 'invalid_token']));
  });

  test('secrets can be rotated: the first signs, tokens of the second stay valid', async () => {
    expect(() => jwt.verify(school.admin.token, newSecret)).not.toThrow();
    const { user_id, tenant_id, sid } = claimsOf(school.admin.token);
    const ofYesterday = jwt.sign({ user_id, tenant_id, sid }, oldSecret, issued);
    const { data } = await service.anonymous.send<Profile>(
      'GET',
      '/api/auth/profile',
      { headers: { Authorization: `Bearer ${ofYesterday}` } },
      200,
    );
    expect(data.email).toBe(school.adminEmail);
  });

  test('logout revokes access and refresh token at once, for this session only', async () => {
    const user = await school.user(['teacher']);
    const elsewhere = await service.anonymous.login({
      tenant_id: school.id,
      email: user.email,
      password: testPassword,
    });
    await user.post('/api/auth/logout');
    expect((await user.get('/api/auth/profile', 401)).error).toBe('invalid_token');
    expect((await refresh(user.refreshToken, 401)).error).toBe('invalid_token');
    expect((await user.post('/api/auth/logout', undefined, 401)).error).toBe('invalid_token');
    expect((await elsewhere.get<Profile>('/api/auth/profile')).data.id).toBe(user.id);
  });

  test('refresh returns a new access token for the same session and a successor of the refresh token', async () => {
    const user = await school.user(['teacher']);
    const traded = await refresh(user.refreshToken, 200);
    const next = traded.headers.get('x-refresh-token') ?? '';
    expect(next).toMatch(/^\d+\.[\w-]{43}\.\d+\.[\w-]{22}$/);
    expect(next).not.toBe(user.refreshToken);
    expect(claimsOf(traded.data.access_token)).toMatchObject({
      user_id: user.id,
      tenant_id: school.id,
      sid: claimsOf(user.token).sid,
    });
    const { data } = await service.anonymous.send<Profile>(
      'GET',
      '/api/auth/profile',
      { headers: { Authorization: `Bearer ${traded.data.access_token}` } },
      200,
    );
    expect(data.id).toBe(user.id);
    await refresh(next, 200);
  });

  test('refresh extends the session to 30 days from now', async () => {
    const user = await school.user(['teacher']);
    const { sid } = claimsOf(user.token);
    await service.database.everywhere(
      "update platform.session set expires_at = now() + interval '1 hour' where id = $1",
      [sid],
    );
    await refresh(user.refreshToken, 200);
    const [row] = await service.database.everywhere<{ days: string }>(
      'select round(extract(epoch from expires_at - now()) / 86400) as days from platform.session where id = $1',
      [sid],
    );
    expect(Number(row?.days)).toBe(30);
  });

  test('a user and an operator have at most 20 sessions: the next login ends the oldest one, others are unaffected', async () => {
    const user = await school.user(['teacher']);
    const bystander = await school.user(['teacher']);
    const [operator] = await service.database.query<{ id: number }>(
      `insert into platform.user_account (email, password_hash, first_name, last_name, role)
       select 'many-sessions@test.example', password_hash, 'Many', 'Sessions', role from platform.user_account
       where email = $1 returning id::integer`,
      [operatorEmail],
    );
    expect(operator?.id).toBeGreaterThan(0);
    for (const credentials of [
      { tenant_id: school.id, email: user.email, password: testPassword },
      { is_platform: true, email: 'many-sessions@test.example', password: testPassword },
    ]) {
      const clients: Client[] = [];
      for (let n = 0; n < 21; n++) clients.push(await service.anonymous.login(credentials));
      expect((await clients[0]?.get('/api/auth/profile', 401))?.error).toBe('invalid_token');
      await refresh(clients[0]?.refreshToken ?? '', 401);
      for (const client of clients.slice(1)) await client.get('/api/auth/profile');
      await service.anonymous.login(credentials);
      await clients[1]?.get('/api/auth/profile', 401);
      await clients[2]?.get('/api/auth/profile');
    }
    await bystander.get('/api/auth/profile');
  });

  test('an impersonation neither counts as a session of the admin nor ends one', async () => {
    const admin = await school.user(['admin']);
    const credentials = { tenant_id: school.id, email: admin.email, password: testPassword };
    const clients = [admin as Client];
    while (clients.length < 20) clients.push(await service.anonymous.login(credentials));
    const { data } = await service.operator.post<{ access_token: string }>(
      `/api/platform/tenants/${school.id}/impersonate`,
      { reason: 'Counting sessions', user_id: admin.id },
      200,
    );
    const impersonated = service.anonymous.with({ Authorization: `Bearer ${data.access_token}` });
    await admin.get('/api/auth/profile');
    await service.anonymous.login(credentials);
    await admin.get('/api/auth/profile', 401);
    await clients[1]?.get('/api/auth/profile');
    await impersonated.get('/api/auth/profile');
  });

  test('a session of a deleted user cannot be refreshed', async () => {
    const user = await school.user(['teacher']);
    await service.database.query(`update ${school.schema}.user_account set is_active = false where id = $1`, [user.id]);
    expect((await refresh(user.refreshToken, 401)).error).toBe('invalid_token');
  });

  test('operators can refresh too', async () => {
    const operator = await service.anonymous.login({ is_platform: true, email: operatorEmail, password: testPassword });
    const { data } = await refresh(operator.refreshToken, 200);
    expect(claimsOf(data.access_token)).toMatchObject({ is_platform_admin: true, sid: claimsOf(operator.token).sid });
  });

  describe('a client that keeps its first refresh token', () => {
    test('can refresh as often as it likes, and stores at most its 20 newest successors', async () => {
      const user = await school.user(['teacher']);
      const { sid } = claimsOf(user.token);
      for (let round = 0; round < 25; round++) {
        const { data } = await refresh(user.refreshToken, 200);
        expect(claimsOf(data.access_token).sid).toBe(sid);
        await age(sid, '15 minutes');
      }
      const stored = await service.database.everywhere('select from platform.refresh_token where session_id = $1', [
        sid,
      ]);
      expect(stored).toHaveLength(21);
    });

    test('can use it until the session ends, even more than 30 days after the login', async () => {
      const user = await school.user(['teacher']);
      const { sid } = claimsOf(user.token);
      for (let round = 0; round < 3; round++) {
        await refresh(user.refreshToken, 200);
        await age(sid, '20 days');
      }
      await age(sid, '11 days');
      expect((await refresh(user.refreshToken, 401)).error).toBe('invalid_token');
    });

    test('cannot use a token that an earlier version exchanged without storing its successor', async () => {
      const user = await school.user(['teacher']);
      const { sid } = claimsOf(user.token);
      await service.database.everywhere('update platform.refresh_token set used_at = now() where session_id = $1', [
        sid,
      ]);
      expect((await refresh(user.refreshToken, 401)).error).toBe('invalid_token');
      await user.get('/api/auth/profile', 401);
    });

    test('loses its session when a thief uses a successor', async () => {
      const user = await school.user(['teacher']);
      const ofThief = nextOf(await refresh(user.refreshToken, 200));
      await refresh(user.refreshToken, 200);
      const { data } = await refresh(ofThief, 200);
      expect((await refresh(user.refreshToken, 401)).error).toBe('invalid_token');
      await user.get('/api/auth/profile', 401);
      const access = { headers: { Authorization: `Bearer ${data.access_token}` } };
      await service.anonymous.send('GET', '/api/auth/profile', access, 401);
    });
  });

  describe('a client that uses each successor', () => {
    test('can repeat a refresh whose response was lost', async () => {
      const user = await school.user(['teacher']);
      const { sid } = claimsOf(user.token);
      let token = user.refreshToken;
      for (let round = 0; round < 3; round++) {
        await refresh(token, 200);
        await age(sid, '1 minute');
        token = nextOf(await refresh(token, 200));
        await age(sid, '15 minutes');
      }
      await refresh(token, 200);
    });

    test('loses its session at once when a retired token is used, as it may be stolen', async () => {
      const user = await school.user(['teacher']);
      const next = nextOf(await refresh(user.refreshToken, 200));
      const last = nextOf(await refresh(next, 200));
      const refused = await refresh(user.refreshToken, 401);
      expect([refused.error, refused.headers.get('x-refresh-token')]).toEqual(['invalid_token', null]);
      await user.get('/api/auth/profile', 401);
      for (const token of [user.refreshToken, next, last]) await refresh(token, 401);
    });

    test('loses its session when any earlier token is used, however old', async () => {
      const user = await school.user(['teacher']);
      let token = user.refreshToken;
      for (let round = 0; round < 4; round++) {
        token = nextOf(await refresh(token, 200));
        await age(claimsOf(user.token).sid, '5 days');
      }
      await refresh(user.refreshToken, 401);
      await refresh(token, 401);
    });
  });

  test('after one successor is used, the others work for ten seconds; then their use ends the session', async () => {
    const user = await school.user(['teacher']);
    const [first, second, third] = [
      nextOf(await refresh(user.refreshToken, 200)),
      nextOf(await refresh(user.refreshToken, 200)),
      nextOf(await refresh(user.refreshToken, 200)),
    ];
    await refresh(first, 200);
    await refresh(second, 200);
    await age(claimsOf(user.token).sid, '11 seconds');
    // Both have been used, so they are not subject to the ten seconds.
    await refresh(first, 200);
    await refresh(second, 200);
    expect((await refresh(third, 401)).error).toBe('invalid_token');
    await user.get('/api/auth/profile', 401);
    await refresh(second, 401);
  });

  test('refresh reads only the header X-Refresh-Token: no body, any body and an expired access token are fine', async () => {
    const user = await school.user(['teacher']);
    const headers = { 'X-Refresh-Token': user.refreshToken, 'X-Tenant-ID': String(school.id) };
    const json = { 'Content-Type': 'application/json', Authorization: 'Bearer a.b.c' };
    for (const [more, body] of [
      [{}, ''],
      [json, ''],
      [json, '{}'],
    ] as const) {
      const request = { method: 'POST', path: '/api/auth/refresh', headers: { ...headers, ...more }, body };
      expect((await raw(service.url, request)).status).toBe(200);
    }
  });

  test('an unknown, expired or missing refresh token is rejected', async () => {
    const user = await school.user(['teacher']);
    expect((await refresh('x'.repeat(43), 401)).error).toBe('invalid_token');
    expect((await service.anonymous.post('/api/auth/refresh', undefined, 401)).error).toBe('unauthenticated');
    await service.database.everywhere(
      `update platform.refresh_token set expires_at = now() where hash = sha256(convert_to($1, 'UTF8'))`,
      [storedToken(user.refreshToken)],
    );
    expect((await refresh(user.refreshToken, 401)).error).toBe('invalid_token');
    await user.get('/api/auth/profile');
  });

  test('a refresh token of an earlier version, without a signature, and one with a wrong signature are accepted', async () => {
    const user = await school.user(['teacher']);
    const stored = storedToken(user.refreshToken);
    for (const token of [stored, `${stored}.1.${'x'.repeat(22)}`, user.refreshToken]) await refresh(token, 200);
  });

  test('only hashes of the tokens are stored', async () => {
    const user = await school.user(['teacher']);
    const rows = await school.database.query<{ found: boolean }>(
      `select (select count(*) from platform.refresh_token r where r::text like '%' || $1 || '%') > 0 as found`,
      [storedToken(user.refreshToken)],
    );
    expect(rows).toEqual([{ found: false }]);
  });
});

describe('own profile', () => {
  test('shows user, school, roles and permissions', async () => {
    const user = await school.user(['accountant', 'teacher'], {
      first_name: 'Pia',
      last_name: 'Profile',
      phone: '+49 30 1234',
    });
    const { data } = await user.get<Profile>('/api/auth/profile');
    expect(data).toMatchObject({
      id: user.id,
      email: user.email,
      first_name: 'Pia',
      last_name: 'Profile',
      phone: '+49 30 1234',
      email_verified: false,
      is_platform_admin: false,
      profile_picture_url: null,
      tenant: { id: school.id, subdomain: school.subdomain, time_zone: 'UTC', is_setup_complete: false },
      roles: ['accountant', 'teacher'],
    });
    expect(data.permissions).toEqual(expect.arrayContaining(['fee.manage', 'attendance.mark']));
    expect(data.permissions).not.toContain('user.read');
    expect(Date.parse(data.last_login_at ?? '')).toBeGreaterThan(Date.now() - 60_000);
  });

  test('updates name and phone, keeps omitted fields, and clears the phone with null', async () => {
    const user = await school.user(['teacher']);
    const changed = await user.put<Profile>('/api/auth/profile', { first_name: 'Ümit', phone: '123' });
    expect(changed.data).toMatchObject({ first_name: 'Ümit', last_name: 'User', phone: '123' });
    expect((await user.get<Profile>('/api/auth/profile')).data).toEqual(changed.data);
    expect((await user.put<Profile>('/api/auth/profile', { phone: null })).data).toMatchObject({
      first_name: 'Ümit',
      phone: null,
    });
  });

  test('accepts the response of GET with another name, ignores other roles, and refuses another email', async () => {
    const user = await school.user(['teacher']);
    const { data } = await user.get<Profile>('/api/auth/profile');
    const sentBack = await user.put<Profile>('/api/auth/profile', { ...data, last_name: 'Changed' });
    expect(sentBack.data).toMatchObject({ email: user.email, roles: ['teacher'], last_name: 'Changed' });
    expect((await user.put<Profile>('/api/auth/profile', { ...data, roles: ['admin'] })).data.roles).toEqual([
      'teacher',
    ]);
    const refused = await user.put('/api/auth/profile', { ...data, email: 'somebody@else.example' }, 400);
    expect(refused.details).toEqual([{ path: 'email', message: expect.stringMatching(/^This field is read-only\./) }]);
    expect((await user.get<Profile>('/api/auth/profile')).data).toMatchObject({
      email: user.email,
      last_name: data.last_name,
    });
  });

  test('rejects an empty name and an unknown field', async () => {
    const user = await school.user(['teacher']);
    const refused = await user.put('/api/auth/profile', { first_name: ' ', colour: 'red' }, 400);
    expect(refused.details.map(({ path }) => path).sort()).toEqual(['colour', 'first_name']);
  });

  test('exists for operators too, without a school', async () => {
    const { data } = await service.operator.put<Profile>('/api/auth/profile', { phone: '555' });
    expect(data).toMatchObject({
      email: operatorEmail,
      phone: '555',
      tenant: null,
      is_platform_admin: true,
      permissions: [],
    });
    expect((await service.operator.get<Profile>('/api/auth/profile')).data).toEqual(data);
  });
});

describe('passwords', () => {
  test('a change ends the other sessions but not this one, and the old password stops working', async () => {
    const user = await school.user(['teacher']);
    const elsewhere = await service.anonymous.login({
      tenant_id: school.id,
      email: user.email,
      password: testPassword,
    });
    await user.post('/api/auth/password/change', { current_password: testPassword, password: 'the new password' });
    expect((await elsewhere.get('/api/auth/profile', 401)).error).toBe('invalid_token');
    await refresh(elsewhere.refreshToken, 401);
    await user.get('/api/auth/profile');
    await refresh(user.refreshToken, 200);
    await login({ tenant_id: school.id, email: user.email, password: testPassword }, 401);
    await login({ tenant_id: school.id, email: user.email, password: 'the new password' }, 200);
  });

  test('a change to the current password is refused by the name of the field, and keeps every session', async () => {
    const user = await school.user(['teacher']);
    const elsewhere = await service.anonymous.login({
      tenant_id: school.id,
      email: user.email,
      password: testPassword,
    });
    const change = { current_password: testPassword, password: testPassword };
    expect(await user.post('/api/auth/password/change', change, 400)).toMatchObject({
      error: 'validation_error',
      details: [{ path: 'password', message: 'must differ from the current password' }],
    });
    await elsewhere.get('/api/auth/profile');
    const guess = { current_password: 'wrong password', password: 'wrong password' };
    expect((await user.post('/api/auth/password/change', guess, 401)).error).toBe('invalid_credentials');
  });

  test('a change requires the current password, and a new one of at least 8 characters', async () => {
    const user = await school.user(['teacher']);
    expect(
      (
        await user.post(
          '/api/auth/password/change',
          { current_password: 'wrong password', password: 'the new password' },
          401,
        )
      ).error,
    ).toBe('invalid_credentials');
    const short = await user.post(
      '/api/auth/password/change',
      { current_password: testPassword, password: '1234567' },
      400,
    );
    expect(short.details).toMatchObject([{ path: 'password' }]);
    await user.post('/api/auth/password/change', { password: 'the new password' }, 400);
    await login({ tenant_id: school.id, email: user.email, password: testPassword }, 200);
  });

  test('a reset request gets the same response for known and unknown emails, and only known ones get an email', async () => {
    const user = await school.user(['teacher'], { first_name: 'Fergus', last_name: 'Forgetful' });
    const unknown = `unknown@${school.subdomain}.example`;
    const inactive = await school.user(['teacher']);
    await school.admin.put(`/api/users/${inactive.id}`, { is_active: false });
    const ask = (email: string) =>
      raw(service.url, {
        method: 'POST',
        path: '/api/auth/password/forgot',
        body: JSON.stringify({ email, tenant_id: school.id }),
      });
    const answers = [await ask(unknown), await ask(inactive.email), await ask(user.email.toUpperCase())];
    expect(answers.map(({ status, body }) => [status, body])).toEqual(Array(3).fill([200, answers[0]?.body]));
    const mail = await mailTo(service, user.email, 'Reset your password');
    expect(mail.text).toContain('Hello Fergus Forgetful');
    expect(mail.text).toContain(`/password/choose#token=${mail.token}`);
    await queueIsEmpty(service);
    expect(await mailsTo(service, unknown)).toEqual([]);
    expect((await mailsTo(service, inactive.email)).filter(({ subject }) => subject.includes('Reset'))).toEqual([]);
    await service.anonymous.post('/api/auth/password/forgot', { email: user.email, subdomain: 'nowhere' }, 404);
  });

  describe('with the token from the email', () => {
    let user: Client & { id: number; email: string };
    let token: string;
    const reset = (given: string, password: string, status: number) =>
      service.anonymous.post<{ id: number }>('/api/auth/password/reset', { token: given, password }, status);
    beforeEach(async () => {
      user = await school.user(['teacher']);
      await service.anonymous.post('/api/auth/password/forgot', { email: user.email, subdomain: school.subdomain });
      token = (await mailTo(service, user.email, 'Reset your password')).token;
    });

    test('a reset sets the password, ends all sessions and verifies the address', async () => {
      expect((await reset(token, 'a reset password', 200)).data).toEqual({ id: user.id });
      expect((await user.get('/api/auth/profile', 401)).error).toBe('invalid_token');
      await refresh(user.refreshToken, 401);
      await login({ tenant_id: school.id, email: user.email, password: testPassword }, 401);
      const again = await service.anonymous.login({
        tenant_id: school.id,
        email: user.email,
        password: 'a reset password',
      });
      expect((await again.get<Profile>('/api/auth/profile')).data.email_verified).toBe(true);
    });

    test('cannot set the current password again: the error names the field and the token still works', async () => {
      const user = await school.user(['teacher']);
      await service.anonymous.post('/api/auth/password/forgot', { tenant_id: school.id, email: user.email });
      const { token } = await mailTo(service, user.email, 'Reset your password');
      const path = '/api/auth/password/reset';
      expect(await service.anonymous.post(path, { token, password: testPassword }, 400)).toMatchObject({
        error: 'validation_error',
        details: [{ path: 'password', message: 'must differ from the current password' }],
      });
      await user.get('/api/auth/profile');
      await service.anonymous.post(path, { token, password: 'a password of its own' });
    });

    test('works once; a password that is too short does not consume it', async () => {
      await reset(token, 'short', 400);
      await reset(token, 'a reset password', 200);
      expect((await reset(token, 'another password', 401)).error).toBe('invalid_token');
      await login({ tenant_id: school.id, email: user.email, password: 'a reset password' }, 200);
    });

    test('expires after an hour', async () => {
      const [row] = await service.database.everywhere<{ minutes: string }>(
        `update platform.one_time_token t set expires_at = now()
         from platform.one_time_token before
         where before.hash = t.hash and t.hash = sha256(convert_to($1, 'UTF8'))
         returning round(extract(epoch from before.expires_at - t.created_at) / 60) as minutes`,
        [token],
      );
      expect(Number(row?.minutes)).toBe(60);
      expect((await reset(token, 'a reset password', 401)).error).toBe('invalid_token');
      await login({ tenant_id: school.id, email: user.email, password: testPassword }, 200);
    });

    test('is revoked when another reset token is used', async () => {
      await service.database.everywhere(
        "update platform.one_time_token set created_at = created_at - interval '3 minutes'",
      );
      await service.anonymous.post('/api/auth/password/forgot', { email: user.email, subdomain: school.subdomain });
      const second = await mailTo(service, user.email, 'Reset your password', 2);
      expect(second.token).not.toBe(token);
      await reset(second.token, 'a reset password', 200);
      await reset(token, 'another password', 401);
    });

    test('is sent at most once in two minutes, to prevent flooding a mailbox', async () => {
      await service.anonymous.post('/api/auth/password/forgot', { email: user.email, subdomain: school.subdomain });
      await queueIsEmpty(service);
      expect((await mailsTo(service, user.email)).filter(({ subject }) => subject.includes('Reset'))).toHaveLength(1);
    });

    test('is revoked when the user changes the password', async () => {
      await user.post('/api/auth/password/change', { current_password: testPassword, password: 'the new password' });
      await reset(token, 'a reset password', 401);
    });

    test('cannot be used to verify an email', async () => {
      expect((await service.anonymous.post('/api/auth/email/verify', { token }, 401)).error).toBe('invalid_token');
      await reset(token, 'a reset password', 200);
    });

    test('is rejected for a user who has been deactivated', async () => {
      await school.admin.put(`/api/users/${user.id}`, { is_active: false });
      expect((await reset(token, 'a reset password', 401)).error).toBe('invalid_token');
    });

    test('a reset unlocks an account after ten failures', async () => {
      await login({ tenant_id: school.id, email: user.email, password: 'wrong password' }, 401);
      await countedLast('attempts = 10');
      await login({ tenant_id: school.id, email: user.email, password: testPassword }, 429);
      await reset(token, 'a reset password', 200);
      await login({ tenant_id: school.id, email: user.email, password: 'a reset password' }, 200);
    });
  });

  test('operators can reset theirs in the same way, without a school', async () => {
    const email = 'second-operator@test.example';
    await service.database.query(
      `insert into platform.user_account (email, first_name, last_name) values ($1, 'Second', 'Operator')`,
      [email],
    );
    await service.anonymous.post('/api/auth/password/forgot', { email, is_platform: true });
    const { token } = await mailTo(service, email, 'Reset your password');
    await service.anonymous.post('/api/auth/password/reset', { token, password: 'a reset password' });
    const { data } = await login({ is_platform: true, email, password: 'a reset password' }, 200);
    expect(data.user).toMatchObject({ email, first_name: 'Second' });
  });

  test('an invitation expires after seven days', async () => {
    const email = `latecomer@${school.subdomain}.example`;
    await school.admin.post('/api/users', { email, first_name: 'Late', last_name: 'Comer' }, 201);
    const { token } = await mailTo(service, email, 'Your account');
    const [row] = await service.database.everywhere<{ hours: string }>(
      `update platform.one_time_token t set expires_at = now()
       from platform.one_time_token before
       where before.hash = t.hash and t.hash = sha256(convert_to($1, 'UTF8'))
       returning round(extract(epoch from before.expires_at - t.created_at) / 3600) as hours`,
      [token],
    );
    expect(Number(row?.hours)).toBe(7 * 24);
    expect(
      (await service.anonymous.post('/api/auth/password/reset', { token, password: 'my first password' }, 401)).error,
    ).toBe('invalid_token');
  });

  test('an invitation sets the first password, once, and verifies the address', async () => {
    const email = `newcomer@${school.subdomain}.example`;
    const { data } = await school.admin.post<{ id: number }>(
      '/api/users',
      { email, first_name: 'New', last_name: 'Comer' },
      201,
    );
    const mail = await mailTo(service, email, 'Your account');
    expect(mail.text).toContain('7 days');
    await service.anonymous.post('/api/auth/password/reset', { token: mail.token, password: 'my first password' });
    await service.anonymous.post(
      '/api/auth/password/reset',
      { token: mail.token, password: 'my second password' },
      401,
    );
    const newcomer = await service.anonymous.login({ tenant_id: school.id, email, password: 'my first password' });
    expect((await newcomer.get<Profile>('/api/auth/profile')).data).toMatchObject({
      id: data.id,
      email_verified: true,
    });
  });
});

describe('email verification', () => {
  test('works with the link, once', async () => {
    const user = await school.user(['teacher']);
    const mail = await mailTo(service, user.email, 'Verify your email address');
    expect(mail.text).toContain(`/api/auth/email/verify?token=${mail.token}`);
    const verified = await service.anonymous.get(`/api/auth/email/verify?token=${mail.token}`);
    expect(verified.data).toEqual({ id: user.id, email_verified: true });
    expect((await user.get<Profile>('/api/auth/profile')).data.email_verified).toBe(true);
    expect((await service.anonymous.get(`/api/auth/email/verify?token=${mail.token}`, 401)).error).toBe(
      'invalid_token',
    );
  });

  test('works with POST, once, within 24 hours, and cannot set a password', async () => {
    const user = await school.user(['teacher']);
    const { token } = await mailTo(service, user.email, 'Verify your email address');
    const [row] = await service.database.everywhere<{ hours: string }>(
      `select round(extract(epoch from expires_at - created_at) / 3600) as hours from platform.one_time_token where hash = sha256(convert_to($1, 'UTF8'))`,
      [token],
    );
    expect(Number(row?.hours)).toBe(24);
    await service.anonymous.post('/api/auth/password/reset', { token, password: 'a reset password' }, 401);
    expect((await service.anonymous.post('/api/auth/email/verify', { token })).data).toEqual({
      id: user.id,
      email_verified: true,
    });
    expect((await service.anonymous.post('/api/auth/email/verify', { token }, 401)).error).toBe('invalid_token');
  });

  test('requires a valid token', async () => {
    expect((await service.anonymous.get('/api/auth/email/verify?token=guess', 401)).error).toBe('invalid_token');
    expect((await service.anonymous.get('/api/auth/email/verify', 400)).details).toMatchObject([{ path: 'token' }]);
    expect((await service.anonymous.post('/api/auth/email/verify', {}, 400)).details).toMatchObject([
      { path: 'token' },
    ]);
  });
});

describe('profile picture', () => {
  const set = (who: Client, form: FormData, status: number) =>
    who.send<Profile>('POST', '/api/auth/profile/picture', { body: form }, status);

  test('PNG and JPEG are detected by content, not by name, and served unchanged', async () => {
    const user = await school.user(['teacher']);
    for (const [content, name, claimed, type, extension] of [
      [png, 'holiday.txt', 'text/plain', 'image/png', 'png'],
      [jpeg, 'page.html', 'text/html', 'image/jpeg', 'jpg'],
    ] as const) {
      const { data } = await set(user, fileForm(content, name, claimed), 200);
      expect(data.profile_picture_url?.replace(service.url, '')).toMatch(/^\/api\/pictures\/[\w-]+$/);
      const served = await user.get<Buffer>(data.profile_picture_url ?? '');
      expect(served.data.equals(content)).toBe(true);
      expect(served.headers.get('content-type')).toBe(type);
      expect(served.headers.get('x-content-type-options')).toBe('nosniff');
      expect(served.headers.get('content-disposition')).toMatch(
        new RegExp(`^inline; filename=[\\w-]+\\.${extension}$`),
      );
      expect(served.headers.get('content-security-policy')).toBe("default-src 'none'; sandbox");
      expect(served.headers.get('cache-control')).toContain('private');
    }
  });

  test.each([
    ['a GIF', Buffer.from('GIF89a\u0001\u0000\u0001\u0000')],
    ['a page', Buffer.from('<!doctype html><script>alert(1)</script>')],
    ['an SVG', Buffer.from('<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>')],
    ['a PDF', Buffer.from('%PDF-1.7\n1 0 obj\n<<>>\nendobj\n')],
    ['nothing', Buffer.alloc(0)],
  ])('%s is rejected although it is named picture.png and declared as image/png', async (_what, content) => {
    const refused = await set(school.admin, fileForm(content, 'picture.png', 'image/png'), 415);
    expect(refused.error).toBe('unsupported_media_type');
    expect((await school.admin.get<Profile>('/api/auth/profile')).data.profile_picture_url).toBeNull();
  });

  test('5 MB are accepted and one byte more is rejected', async () => {
    const user = await school.user(['teacher']);
    const limit = Buffer.concat([jpeg, Buffer.alloc(5 * 1024 * 1024 - jpeg.length)]);
    const { data } = await set(user, fileForm(limit, 'large.jpg', 'image/jpeg'), 200);
    const refused = await set(user, fileForm(Buffer.concat([limit, Buffer.alloc(1)]), 'larger.jpg', 'image/jpeg'), 413);
    expect(refused.error).toBe('payload_too_large');
    // The picture is stored without the bytes behind it.
    const served = await user.get<Buffer>(data.profile_picture_url ?? '');
    expect(served.data).toEqual(jpeg);
  });

  test('a missing file is a 400 that names the field; JSON is a 415', async () => {
    const refused = await set(school.admin, fileForm(png, 'picture.png', 'image/png', 'portrait'), 400);
    expect(refused.details).toMatchObject([{ path: 'picture' }]);
    expect((await school.admin.post('/api/auth/profile/picture', { picture: 'x' }, 415)).error).toBe(
      'unsupported_media_type',
    );
  });

  test('a new picture replaces and deletes the old one', async () => {
    const user = await school.user(['teacher']);
    const count = async () => (await service.database.query(`select id from ${school.schema}.file`)).length;
    const first = await set(user, fileForm(png, 'a.png', 'image/png'), 200);
    const before = await count();
    const second = await set(user, fileForm(jpeg, 'b.jpg', 'image/jpeg', 'file'), 200);
    expect(await count()).toBe(before);
    expect(second.data.profile_picture_url).not.toBe(first.data.profile_picture_url);
    expect((await user.get<Buffer>('/api/auth/profile/picture')).data.equals(jpeg)).toBe(true);
  });

  test('a missing picture is a 404; other users need user.read to see it', async () => {
    const owner = await school.user(['teacher']);
    expect((await owner.get('/api/auth/profile/picture', 404)).error).toBe('not_found');
    expect((await school.admin.get(`/api/users/${owner.id}/picture`, 404)).error).toBe('not_found');
    await set(owner, fileForm(png, 'a.png', 'image/png'), 200);
    const listed = await school.admin.get<{ profile_picture_url: string }>(`/api/users/${owner.id}`);
    expect(listed.data.profile_picture_url).toContain(`${service.url}/api/pictures/`);
    const path = `/api/users/${owner.id}/picture`;
    const seen = await school.admin.get<Buffer>(path);
    expect(seen.data.equals(png)).toBe(true);
    expect(seen.headers.get('content-type')).toBe('image/png');
    const colleague = await school.user(['teacher']);
    expect((await colleague.get(path, 403)).error).toBe('forbidden');
    expect((await service.anonymous.get(path, 401)).error).toBe('unauthenticated');
  });

  test('operators can have one', async () => {
    const { data } = await set(service.operator, fileForm(png, 'a.png', 'image/png'), 200);
    expect((await service.operator.get<Buffer>(data.profile_picture_url ?? '')).data.equals(png)).toBe(true);
    await set(service.operator, fileForm(jpeg, 'a.jpg', 'image/jpeg'), 200);
    expect(await service.database.everywhere('select content_type from platform.file')).toEqual([
      { content_type: 'image/jpeg' },
    ]);
  });
});

describe('enabled features', () => {
  test("are those of the plan with the school's flags applied, from the next request on", async () => {
    const small = await service.school({ plan_id: 1, feature_flags: { transport: true, attendance: false } });
    expect((await small.admin.get<string[]>('/api/auth/enabled-features')).data).toEqual([
      'notifications',
      'transport',
    ]);
    await service.operator.put(`/api/platform/tenants/${small.id}`, { feature_flags: {}, plan_id: 2 });
    expect((await small.admin.get<string[]>('/api/auth/enabled-features')).data).toEqual([
      'attendance',
      'fees_management',
      'notifications',
      'timetable',
    ]);
    expect((await service.operator.get<string[]>('/api/auth/enabled-features')).data).toEqual([]);
  });
});
