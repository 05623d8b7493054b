import { createHmac } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import jwt from 'jsonwebtoken';
import { errorMismatch, send } from '../support/client/wire.ts';
import {
  findErrors,
  isAnonymous,
  isForSchools,
  type Registered,
  isForOperators,
  registry,
  sampleRequest,
} from '../support/server/registry.ts';
import { type School, testPassword, testService } from '../support/server/service.ts';
import { share } from '../support/client/share.ts';

const secret = 'a secret of the tests that is long enough';
const issuer = 'school-management-service';
const audience = 'school-management-api';

const service = await testService({ JWT_SECRETS: secret });
afterAll(() => service.close());
const { endpoints, document } = await registry(service);
const protectedEndpoints = endpoints.filter((endpoint) => !isAnonymous(endpoint));

let school: School;
/** The claims of an active session of the school's admin, and of the operator. */
let living: { user_id: number; tenant_id: number; sid: number };
let operatorClaims: { user_id: number; is_platform_admin: true; sid: number };

beforeAll(async () => {
  school = await service.school();
  living = jwt.decode(school.admin.token) as typeof living;
  operatorClaims = jwt.decode(service.operator.token) as typeof operatorClaims;
});

const sign = (claims: object, options: jwt.SignOptions = {}, key = secret) =>
  jwt.sign(claims, key, { algorithm: 'HS256', expiresIn: 900, issuer, audience, ...options });

/** The claims of a caller with access to the endpoint, so that only the token can cause an error. */
const claimsFor = ({ operation }: Registered) => {
  const { user_id, sid, ...whose } = isForOperators({ operation }) ? operatorClaims : living;
  return { user_id, sid, ...('tenant_id' in whose ? { tenant_id: whose.tenant_id } : { is_platform_admin: true }) };
};

const base64url = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

/** Sends a request that is valid except for its credentials. */
const request = (endpoint: Registered, headers: Record<string, string>) => {
  const sample = sampleRequest(document, endpoint, { id: 999_999_999 });
  return send(service.url, { ...sample, headers: { ...sample.headers, ...headers } });
};

/** The operations that change a second factor. */
const needProof = [
  'auth_totp_begin',
  'auth_totp_confirm',
  'auth_recovery_codes_create',
  'auth_two_factor_delete',
  'auth_passkeys_begin',
  'auth_passkeys_create',
];

/** Ways to send an invalid token. */
const forgeries: [string, (endpoint: Registered) => string][] = [
  ['a value that is not a JWT', () => 'Bearer garbage'],
  ['a malformed JWT with three parts', () => 'Bearer a.b.c'],
  ['a scheme without a token', () => 'Bearer'],
  ['a valid token with the scheme Basic', (endpoint) => `Basic ${sign(claimsFor(endpoint))}`],
  ['a valid token without a scheme', (endpoint) => sign(claimsFor(endpoint))],
  ['two valid tokens', (endpoint) => `Bearer ${sign(claimsFor(endpoint))} ${sign(claimsFor(endpoint))}`],
  ['an expired token', (endpoint) => `Bearer ${sign(claimsFor(endpoint), { expiresIn: -1 })}`],
  ['a token that is not valid yet', (endpoint) => `Bearer ${sign(claimsFor(endpoint), { notBefore: 600 })}`],
  [
    'a token with alg none',
    (endpoint) => {
      const now = Math.floor(Date.now() / 1000);
      return `Bearer ${base64url({ alg: 'none', typ: 'JWT' })}.${base64url({ ...claimsFor(endpoint), iat: now, exp: now + 900, iss: issuer, aud: audience })}.`;
    },
  ],
  [
    'a token with alg none and a matching signature',
    (endpoint) => {
      const now = Math.floor(Date.now() / 1000);
      const body = `${base64url({ alg: 'none', typ: 'JWT' })}.${base64url({ ...claimsFor(endpoint), iat: now, exp: now + 900, iss: issuer, aud: audience })}`;
      return `Bearer ${body}.${createHmac('sha256', secret).update(body).digest('base64url')}`;
    },
  ],
  [
    'a token signed with the right key and HS512',
    (endpoint) => `Bearer ${sign(claimsFor(endpoint), { algorithm: 'HS512' })}`,
  ],
  [
    'a token signed with another key',
    (endpoint) => `Bearer ${sign(claimsFor(endpoint), {}, 'another secret that is long enough as well')}`,
  ],
  [
    'a token whose claims were changed after it was signed',
    (endpoint) => {
      const [head = '', , signature = ''] = sign(claimsFor(endpoint)).split('.');
      const now = Math.floor(Date.now() / 1000);
      return `Bearer ${head}.${base64url({ ...claimsFor(endpoint), sid: 1, iat: now, exp: now + 900, iss: issuer, aud: audience })}.${signature}`;
    },
  ],
  ['a token for another audience', (endpoint) => `Bearer ${sign(claimsFor(endpoint), { audience: 'another-api' })}`],
  ['a token from another issuer', (endpoint) => `Bearer ${sign(claimsFor(endpoint), { issuer: 'another-service' })}`],
  ['a token without a session', (endpoint) => `Bearer ${sign({ ...claimsFor(endpoint), sid: undefined })}`],
  [
    'a token whose session id is not a number',
    (endpoint) => `Bearer ${sign({ ...claimsFor(endpoint), sid: '1 or 1=1' })}`,
  ],
  [
    'a token of a session that does not exist',
    (endpoint) => `Bearer ${sign({ ...claimsFor(endpoint), sid: 999_999_999 })}`,
  ],
];

describe('credentials', () => {
  test('only login with its second step, refresh, password reset, email links, calendar feeds and signed pictures work without an access token', () => {
    expect(endpoints.filter(isAnonymous).map(({ name }) => name)).toEqual([
      'POST /api/auth/login',
      'POST /api/auth/refresh',
      'POST /api/auth/password/forgot',
      'POST /api/auth/password/reset',
      'GET /api/auth/email/verify',
      'POST /api/auth/email/verify',
      // Authenticated by the token of a challenge; see test/api/two-factor.test.ts.
      'POST /api/auth/login/verify',
      'POST /api/auth/login/enroll',
      // Authenticated by the token of the feed; see test/api/calendar-feeds.test.ts.
      'GET /api/calendar/{token}.ics',
      'GET /api/pictures/{token}',
    ]);
    expect(protectedEndpoints.length).toBeGreaterThan(20);
  });

  test('with valid credentials, no request of this file returns 401', async () => {
    const lines = await findErrors(protectedEndpoints, async (endpoint) => {
      // Logging out would end the session that the other tests use.
      if (endpoint.operation.name === 'auth_logout' || endpoint.operation.name === 'auth_password_change')
        return undefined;
      // They also need the right password or code; see test/api/two-factor.test.ts.
      if (needProof.includes(endpoint.operation.name)) return undefined;
      const { status, text } = await request(endpoint, { authorization: `Bearer ${sign(claimsFor(endpoint))}` });
      return status === 401 || status === 400 ? text : undefined;
    });
    expect(lines).toEqual([]);
  });

  test('every protected endpoint returns 401 unauthenticated without a token', async () => {
    const lines = await findErrors(protectedEndpoints, async (endpoint) => {
      const answer = await request(endpoint, {});
      return (
        errorMismatch(answer, 401, 'unauthenticated') ??
        (answer.headers['www-authenticate'] === 'Bearer' ? undefined : 'has no WWW-Authenticate: Bearer')
      );
    });
    expect(lines).toEqual([]);
  });

  test('a malformed request without a token returns 401, not a validation error', async () => {
    const lines = await findErrors(protectedEndpoints, async ({ method, path }) => {
      const answer = await send(service.url, {
        method,
        path: `${path.replace(/\{\w+\}/g, 'x')}?unknown=1`,
        ...(method === 'GET' ? {} : { body: '{' }),
      });
      return errorMismatch(answer, 401, 'unauthenticated');
    });
    expect(lines).toEqual([]);
  });

  test.each(forgeries.map(([name, forge], n) => ({ name, forge, n })))(
    'every protected endpoint returns 401 invalid_token for $name',
    async ({ forge, n }) => {
      const lines = await findErrors(share(protectedEndpoints, n, 6), async (endpoint) =>
        errorMismatch(await request(endpoint, { authorization: forge(endpoint) }), 401, 'invalid_token'),
      );
      expect(lines).toEqual([]);
    },
  );

  test('an access token in the query or in a cookie is ignored', async () => {
    const token = school.admin.token;
    const byQuery = await send(service.url, { path: `/api/auth/profile?access_token=${token}` });
    const byCookie = await send(service.url, {
      path: '/api/auth/profile',
      headers: { cookie: `access_token=${token}; Authorization=Bearer ${token}` },
    });
    expect([byQuery, byCookie].map((answer) => errorMismatch(answer, 401, 'unauthenticated'))).toEqual([
      undefined,
      undefined,
    ]);
  });

  test('a refresh token is not an access token, and an access token is not a refresh token', async () => {
    const asAccess = await send(service.url, { path: '/api/auth/profile', token: school.admin.refreshToken });
    expect(errorMismatch(asAccess, 401, 'invalid_token')).toBeUndefined();
    const asRefresh = await send(service.url, {
      method: 'POST',
      path: '/api/auth/refresh',
      headers: { 'x-refresh-token': school.admin.token },
    });
    expect(errorMismatch(asRefresh, 401, 'invalid_token')).toBeUndefined();
  });

  test('refresh returns 401 unauthenticated without a refresh token, and 401 invalid_token for an invalid one', async () => {
    expect(
      errorMismatch(await send(service.url, { method: 'POST', path: '/api/auth/refresh' }), 401, 'unauthenticated'),
    ).toBeUndefined();
    for (const garbage of ['x', "' or 1=1 --", 'a'.repeat(4000), '\u00ff\u00fe']) {
      const answer = await send(service.url, {
        method: 'POST',
        path: '/api/auth/refresh',
        headers: { 'x-refresh-token': garbage },
      });
      expect(errorMismatch(answer, 401, 'invalid_token')).toBeUndefined();
    }
  });

  describe.each([
    ['of a school', true],
    ['of an operator', false],
  ])('a session %s', (_name, isSchools) => {
    const mine = protectedEndpoints.filter((endpoint) =>
      isSchools ? isForSchools(endpoint) : isForOperators(endpoint) || endpoint.operation.access === 'any',
    );
    const login = () =>
      service.anonymous.login(
        isSchools
          ? { tenant_id: school.id, email: school.adminEmail, password: testPassword }
          : { is_platform: true, email: 'operator@test.example', password: testPassword },
      );
    const refused = (token: string) =>
      findErrors(mine, async (endpoint) =>
        errorMismatch(await request(endpoint, { authorization: `Bearer ${token}` }), 401, 'invalid_token'),
      );
    const refresh = (token: string) =>
      send(service.url, { method: 'POST', path: '/api/auth/refresh', headers: { 'x-refresh-token': token } });

    test('gets 401 invalid_token at every endpoint and at refresh after logout', async () => {
      const client = await login();
      expect((await client.get<{ id: number }>('/api/auth/profile')).data.id).toBeGreaterThan(0);
      await client.post('/api/auth/logout');
      expect(await refused(client.token)).toEqual([]);
      expect(errorMismatch(await refresh(client.refreshToken), 401, 'invalid_token')).toBeUndefined();
    });

    test('gets 401 invalid_token at every endpoint after it expires, even if the access token is still valid', async () => {
      const client = await login();
      const { sid } = jwt.decode(client.token) as { sid: number };
      await service.database.everywhere(
        "update platform.session set expires_at = now() - interval '1 second' where id = $1",
        [sid],
      );
      expect(await refused(client.token)).toEqual([]);
      expect(errorMismatch(await refresh(client.refreshToken), 401, 'invalid_token')).toBeUndefined();
    });

    test('ends when a retired refresh token is used again', async () => {
      const client = await login();
      const next = await refresh(client.refreshToken);
      expect((await refresh(String(next.headers['x-refresh-token']))).status).toBe(200);
      expect(errorMismatch(await refresh(client.refreshToken), 401, 'invalid_token')).toBeUndefined();
      expect(await refused(client.token)).toEqual([]);
    });
  });

  test('a deactivated or removed user is refused at the next request, at every endpoint', async () => {
    const mine = protectedEndpoints.filter(isForSchools);
    const deactivated = await school.user(['teacher']);
    const removed = await school.user(['teacher']);
    await school.admin.put(`/api/users/${deactivated.id}`, { is_active: false });
    await school.admin.delete(`/api/users/${removed.id}`);
    for (const { token } of [deactivated, removed]) {
      expect(
        await findErrors(mine, async (endpoint) =>
          errorMismatch(await request(endpoint, { authorization: `Bearer ${token}` }), 401, 'invalid_token'),
        ),
      ).toEqual([]);
    }
    const refresh = await send(service.url, {
      method: 'POST',
      path: '/api/auth/refresh',
      headers: { 'x-refresh-token': removed.refreshToken },
    });
    expect(errorMismatch(refresh, 401, 'invalid_token')).toBeUndefined();
  });
});
