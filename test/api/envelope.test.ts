import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { raw } from '../support/client/raw.ts';
import { findErrors, type OpenApi, type Registered, registry, sampleRequest } from '../support/server/registry.ts';
import {
  operatorEmail,
  serviceWithSchool,
  testPassword,
  testService,
  type TestService,
} from '../support/server/service.ts';
import { send, type Sent } from '../support/client/wire.ts';

const { service, school } = await serviceWithSchool();

interface Failure {
  success: boolean;
  error: string;
  message: string;
  request_id: string;
  details?: { path: string; message: string }[];
}

const parse = (body: string) => JSON.parse(body) as Failure;
const get = (path: string, headers: Record<string, string> = {}) =>
  raw(service.url, { path, headers, token: school.admin.token });

describe('without BASE_DOMAIN, <school>.localhost', () => {
  const login = (host: string) =>
    raw(service.url, {
      method: 'POST',
      path: '/api/auth/login',
      headers: { Host: host },
      body: JSON.stringify({ email: school.adminEmail, password: testPassword }),
    });

  test('names the school of a login', async () => {
    for (const host of [`${school.subdomain}.localhost`, `${school.subdomain.toUpperCase()}.LOCALHOST:3000`])
      expect((await login(host)).status).toBe(200);
    expect([(await login('nobody.localhost')).status, parse((await login('nobody.localhost')).body).error]).toEqual([
      404,
      'tenant_not_found',
    ]);
    for (const host of ['localhost', 'www.localhost', `${school.subdomain}.localhost.example`])
      expect(parse((await login(host)).body).error).toBe('validation_error');
  });

  test('must be the school of the token', async () => {
    const other = await service.school();
    expect((await get('/api/auth/profile', { Host: `${school.subdomain}.localhost` })).status).toBe(200);
    expect(parse((await get('/api/auth/profile', { Host: `${other.subdomain}.localhost` })).body).error).toBe(
      'tenant_mismatch',
    );
  });
});

describe('a request id', () => {
  test('is kept when it is valid, and returned in the header and in errors', async () => {
    for (const id of ['a', 'order-17_b.2', 'x'.repeat(128)]) {
      const answer = await get('/api/students/999999', { 'X-Request-Id': id });
      expect([answer.headers['x-request-id'], parse(answer.body).request_id]).toEqual([id, id]);
    }
  });

  test('is replaced when it is invalid', async () => {
    for (const id of ['two words', 'x'.repeat(129), '<script>', '{"a":1}', 'a;b', '']) {
      const answer = await get('/api/students/999999', { 'X-Request-Id': id });
      expect(answer.headers['x-request-id']).toMatch(/^[0-9a-f]{8}-[0-9a-f-]{27}$/);
      expect(parse(answer.body).request_id).toBe(answer.headers['x-request-id']);
    }
  });

  test('is unique for each request, including successful ones and health checks', async () => {
    const answers = [await get('/api/students'), await get('/api/students'), await get('/api/health')];
    expect(new Set(answers.map(({ headers }) => headers['x-request-id'])).size).toBe(3);
  });
});

describe('the envelope', () => {
  test('of a successful response has only success and data, and for lists pagination', async () => {
    const one = JSON.parse((await get('/api/auth/profile')).body) as object;
    expect(Object.keys(one)).toEqual(['success', 'data']);
    const list = JSON.parse((await get('/api/students')).body) as {
      success: boolean;
      data: unknown;
      pagination: object;
    };
    expect(Object.keys(list).sort()).toEqual(['data', 'pagination', 'success']);
    expect([list.success, list.data, list.pagination]).toEqual([
      true,
      [],
      { page: 1, pageSize: 20, totalItems: 0, totalPages: 0 },
    ]);
  });

  test('of an error response has success, error, message and request_id, and details only for field errors', async () => {
    const missing = parse((await get('/api/students/999999')).body);
    expect(Object.keys(missing)).toEqual(['success', 'error', 'message', 'request_id']);
    expect([missing.success, missing.error]).toEqual([false, 'not_found']);
    const invalid = parse((await get('/api/students?page=x')).body);
    expect(Object.keys(invalid)).toEqual(['success', 'error', 'message', 'details', 'request_id']);
    expect(invalid.details).toHaveLength(1);
    expect(invalid.message).toContain('page');
  });

  test('is JSON in UTF-8 that caches must revalidate', async () => {
    const { headers } = await get('/api/auth/profile');
    expect(headers['content-type']).toBe('application/json; charset=utf-8');
    expect(headers['cache-control']).toBe('private, no-cache');
    expect(headers['x-content-type-options']).toBe('nosniff');
    expect(headers['x-powered-by']).toBeUndefined();
  });

  test('of an internal error reveals no internals', async () => {
    await service.database.query(`alter table ${school.schema}.grade rename column name to other_name`);
    const answer = await get('/api/students');
    await service.database.query(`alter table ${school.schema}.grade rename column other_name to name`);
    expect(answer.status).toBe(500);
    expect(parse(answer.body)).toMatchObject({ error: 'internal_error', message: 'Something went wrong on our side.' });
    expect(answer.body).not.toMatch(/column|grade|select|\.ts|\.sql|at /i);
    expect((await get('/api/students')).status).toBe(200);
  });
});

describe('an unknown route', () => {
  test('is a 404 in the envelope, with and without a login', async () => {
    for (const path of ['/api/nothing', '/apis', '/', '/api/students/1/nothing', '/api/v1/students', '/favicon.ico']) {
      for (const token of ['', school.admin.token]) {
        const answer = await raw(service.url, { path, ...(token ? { token } : {}) });
        expect([path, answer.status, parse(answer.body).error]).toEqual([path, 404, 'not_found']);
      }
    }
  });

  test('is a 405 with Allow when the path has other methods', async () => {
    for (const [method, path, allow] of [
      ['PATCH', '/api/students/1', 'GET, PUT, DELETE, HEAD, OPTIONS'],
      ['DELETE', '/api/students', 'GET, POST, HEAD, OPTIONS'],
      ['GET', '/api/auth/login', 'POST, OPTIONS'],
      ['POST', '/api/platform/overview', 'GET, HEAD, OPTIONS'],
    ] as const) {
      const refused = await school.admin.send(method, path, {}, 405);
      expect([refused.error, refused.headers.get('allow')]).toEqual(['method_not_allowed', allow]);
      const options = await raw(service.url, { method: 'OPTIONS', path });
      expect([options.status, options.headers.allow, options.body]).toEqual([204, allow, '']);
    }
  });

  test('with a malformed URL is a 400 in the envelope', async () => {
    const answer = await get('/api/students/%E0%A4%A');
    expect([answer.status, parse(answer.body).error]).toEqual([400, 'validation_error']);
  });
});

describe('a body', () => {
  const post = (body: string, headers: Record<string, string> = {}) =>
    raw(service.url, { method: 'POST', path: '/api/students', token: school.admin.token, body, headers });

  test('is a 400 malformed_json if it is not JSON', async () => {
    for (const body of ['{', '{"first_name": "A",}', "{'a': 1}", 'first_name=A']) {
      const answer = await post(body);
      expect([answer.status, parse(answer.body).error]).toEqual([400, 'malformed_json']);
    }
  });

  test('is a 400 validation_error if it is JSON but not an object', async () => {
    for (const body of ['5', '"text"', '[]', 'true', 'null', '[{"first_name":"A","last_name":"B"}]']) {
      const answer = await post(body);
      expect([body, answer.status, parse(answer.body).error]).toEqual([body, 400, 'validation_error']);
    }
  });

  test('with another content type or charset is a 415', async () => {
    for (const type of [
      'text/plain',
      'application/x-www-form-urlencoded',
      'application/xml',
      'application/json; charset=ebcdic',
    ]) {
      const answer = await post('{"first_name":"A","last_name":"B"}', { 'Content-Type': type });
      expect([type, answer.status, parse(answer.body).error]).toEqual([type, 415, 'unsupported_media_type']);
    }
  });

  test('is a 413 if it is larger than 1 MB', async () => {
    const refused = await school.admin.post(
      '/api/students',
      { first_name: 'A', last_name: 'B', address: 'x'.repeat(1_100_000) },
      413,
    );
    expect(refused.error).toBe('payload_too_large');
  });

  test('with NUL or an unpaired surrogate is a 400 that names the field', async () => {
    for (const first_name of ['a\u0000b', '\ud800']) {
      expect((await school.admin.post('/api/students', { first_name, last_name: 'B' }, 400)).details).toMatchObject([
        { path: 'first_name' },
      ]);
    }
  });

  test('gets a readable message for each error', async () => {
    const student = { first_name: 'A', last_name: 'B' };
    for (const [method, path, body, field, message] of [
      ['POST', '/api/students', { ...student, first_name: '' }, 'first_name', 'must not be empty'],
      ['POST', '/api/students', { ...student, first_name: undefined }, 'first_name', 'is required'],
      ['POST', '/api/students', { ...student, first_name: null }, 'first_name', 'must not be null'],
      ['POST', '/api/students', { ...student, first_name: 5 }, 'first_name', 'must be a string'],
      [
        'POST',
        '/api/students',
        { ...student, first_name: 'x'.repeat(101) },
        'first_name',
        'must have at most 100 characters',
      ],
      [
        'POST',
        '/api/students',
        { ...student, date_of_birth: '2026-02-30' },
        'date_of_birth',
        'must be a date, YYYY-MM-DD',
      ],
      ['POST', '/api/students', { ...student, email: 'nobody' }, 'email', 'must be an email address'],
      ['POST', '/api/students', { ...student, class_id: 1.5 }, 'class_id', 'must be a whole number'],
      ['POST', '/api/students', { ...student, class_id: 0 }, 'class_id', 'must be more than 0'],
      ['POST', '/api/students', { ...student, is_active: 'yes' }, 'is_active', 'must be true or false'],
      ['GET', '/api/students?order=up', undefined, 'order', 'must be one of asc, desc'],
      ['GET', '/api/students?page=0', undefined, 'page', 'must be at least 1'],
      ['PUT', '/api/users/1', { role_ids: Array(51).fill(1) }, 'role_ids', 'must have at most 50 entries'],
      [
        'POST',
        '/api/auth/password/change',
        { current_password: 'x', password: 'short' },
        'password',
        'must have at least 8 characters',
      ],
      ['POST', '/api/students', 5, '', 'must be an object'],
    ] as const) {
      const { details, message: whole } = await school.admin.send(method, path, { body }, 400);
      expect([body, details]).toEqual([body, [{ path: field, message }]]);
      expect(whole).toBe(field ? `${field}: ${message}` : `The body ${message}`);
    }
  });

  test('gets a 406 when the client does not accept JSON', async () => {
    const refused = await school.admin.send('GET', '/api/students', { headers: { Accept: 'text/html' } }, 406);
    expect(refused.error).toBe('not_acceptable');
    for (const accept of ['*/*', 'application/json', 'text/html, application/*;q=0.5']) {
      await school.admin.send('GET', '/api/students', { headers: { Accept: accept } }, 200);
    }
  });
});

describe('unknown parameters', () => {
  let endpoints: Registered[];
  let document: OpenApi;
  beforeAll(async () => {
    ({ endpoints, document } = await registry(service));
  });

  /** Sends each endpoint a request with an unknown parameter. @returns the endpoints that accept it */
  const takers = (among: Registered[], add: (request: Sent) => Sent) =>
    findErrors(among, async (endpoint) => {
      const token = endpoint.operation.access === 'platform' ? service.operator.token : school.admin.token;
      const { status, text, json } = await send(
        service.url,
        add({ ...sampleRequest(document, endpoint, { id: 999_999_999 }), token }),
      );
      return status === 400 && json?.details?.some(({ path }) => /^(\d+\.)?unknown$/.test(path))
        ? undefined
        : `${status} ${text.slice(0, 200)}`;
    });

  test('in a query are a 400 that names them, at every endpoint', async () => {
    // Uploads to an unknown record get a 404 before the query is validated.
    const all = endpoints.filter(({ route, parameters }) => !route.upload || parameters.length === 0);
    expect(all.length).toBeGreaterThan(35);
    expect(
      await takers(all, (request) => ({
        ...request,
        path: `${request.path}${request.path.includes('?') ? '&' : '?'}unknown=1`,
      })),
    ).toEqual([]);
  });

  test('in a body are a 400 that names them, at every endpoint', async () => {
    const all = endpoints.filter(({ route, body }) => body && !route.upload);
    expect(all.length).toBeGreaterThan(12);
    const withUnknown = (one: unknown) => ({ ...(one as object), unknown: 1 });
    const add = (request: Sent): Sent => ({
      ...request,
      body: Array.isArray(request.body) ? request.body.map(withUnknown) : withUnknown(request.body),
    });
    expect(await takers(all, add)).toEqual([]);
  });
});

describe('Location', () => {
  test('of every created record returns 200 with the same record', async () => {
    const created: [Client, string, object][] = [
      [school.admin, '/api/students', { first_name: 'A', last_name: 'B' }],
      [school.admin, '/api/users', { email: 'location@example.org', first_name: 'A', last_name: 'B' }],
      [school.admin, '/api/rbac/roles', { name: 'Location' }],
      [
        service.operator,
        '/api/platform/plans',
        { name: 'Location', price_monthly: 1, max_students: 1, max_teachers: 1 },
      ],
      [
        service.operator,
        '/api/platform/tenants',
        { name: 'Location', subdomain: 'location', contact_email: 'a@location.example', plan_id: 1 },
      ],
    ];
    for (const [client, path, body] of created) {
      for (const to of [path, `${path}/`]) {
        const again =
          to === path
            ? body
            : Object.fromEntries(
                Object.entries(body).map(([key, value]) => [
                  key,
                  typeof value === 'string' ? `x${value}` : (value as unknown),
                ]),
              );
        const { headers, data } = await client.post<{ id: number }>(to, again, 201);
        expect(headers.get('location')).toBe(`${path}/${data.id}`);
        expect((await client.get(headers.get('location') ?? '')).data).toEqual(data);
      }
    }
  });
});

describe('rate limits and CORS', () => {
  let rationed: TestService;
  beforeAll(async () => {
    rationed = await testService({
      RATE_LIMIT_PER_MINUTE: '5',
      PUBLIC_RATE_LIMIT_PER_MINUTE: '6',
      CORS_ORIGINS: 'https://app.example.org, https://console.example.org',
    });
  });
  afterAll(() => rationed.close());

  test('a session that exceeds the limit per minute gets a 429 with Retry-After; other sessions are unaffected', async () => {
    const credentials = { is_platform: true, email: operatorEmail, password: testPassword };
    const [one, two] = [await rationed.anonymous.login(credentials), await rationed.anonymous.login(credentials)];
    for (let left = 4; left >= 0; left--) {
      const { headers } = await one.get('/api/auth/profile');
      expect(headers.get('ratelimit-policy')).toContain('q=5; w=60');
      expect(headers.get('ratelimit')).toContain(`r=${left};`);
    }
    const refused = await one.get('/api/platform/plans', 429);
    expect(refused.error).toBe('rate_limited');
    const wait = Number(refused.headers.get('retry-after'));
    expect(wait).toBeGreaterThan(0);
    expect(wait).toBeLessThanOrEqual(60);
    expect(refused.headers.get('ratelimit')).toContain('r=0;');
    await two.get('/api/auth/profile');
  });

  test('refreshes with the tokens of a session are limited together, also when each is used once', async () => {
    const admin = (await rationed.school()).admin;
    let token = admin.refreshToken;
    for (let n = 0; n < 6; n++) {
      const { status, headers } = await rationed.anonymous.send('POST', '/api/auth/refresh', {
        headers: { 'X-Refresh-Token': token },
      });
      expect(status).toBe(200);
      token = headers.get('x-refresh-token') ?? '';
    }
    const headers = { 'X-Refresh-Token': token };
    const refused = await rationed.anonymous.send('POST', '/api/auth/refresh', { headers }, 429);
    expect(refused.error).toBe('rate_limited');
    await admin.get('/api/auth/profile');
  });

  test('requests without a login are limited per address; sessions from that address are unaffected', async () => {
    const forgotten = () =>
      rationed.anonymous.send('POST', '/api/auth/password/reset', { body: { token: 'x', password: 'a new password' } });
    const statuses: number[] = [];
    for (let n = 0; n < 7; n++) statuses.push((await forgotten()).status);
    expect(statuses.slice(-1)).toEqual([429]);
    const refused = await rationed.anonymous.post(
      '/api/auth/password/reset',
      { token: 'y', password: 'a new password' },
      429,
    );
    expect(refused.error).toBe('rate_limited');
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(refused.headers.get('ratelimit')).toContain('r=0;');
    expect(refused.headers.get('ratelimit-policy')).toContain('q=6; w=60');
    await rationed.operator.get('/api/auth/profile');
  });

  test('refreshes with invalid tokens are limited per address, and do not keep the users there from refreshing', async () => {
    const refresh = (token: string) =>
      rationed.anonymous.send('POST', '/api/auth/refresh', { headers: { 'X-Refresh-Token': token } });
    const valid = rationed.operator.refreshToken;
    const forgeries = ['x', `1.${'x'.repeat(43)}`, valid.replace(/.{22}$/, 'y'.repeat(22)), valid.replace(/^/, '7')];
    const statuses: number[] = [];
    for (let n = 0; n < 8; n++) statuses.push((await refresh(forgeries[n % 2] ?? '')).status);
    expect(statuses.slice(-2)).toEqual([429, 429]);
    for (const forged of forgeries) expect((await refresh(forged)).status).toBe(429);
    expect((await refresh(valid)).status).toBe(200);
  });

  test('X-Forwarded-For is ignored unless it is set by a trusted proxy', async () => {
    const [first, last] = [1, 2].map((n) =>
      raw(rationed.url, { method: 'POST', path: '/api/auth/refresh', headers: { 'X-Forwarded-For': `10.0.0.${n}` } }),
    );
    const remaining = [await first, await last].map(
      (answer) => /r=(\d+);/.exec(String(answer?.headers.ratelimit))?.[1],
    );
    expect(remaining.every((left) => Number(left) < 5)).toBe(true);
  });

  const preflight = (url: string, origin: string) =>
    raw(url, {
      method: 'OPTIONS',
      path: '/api/students',
      headers: {
        Origin: origin,
        'Access-Control-Request-Method': 'PUT',
        'Access-Control-Request-Headers': 'authorization,content-type,if-match',
      },
    });

  test('only origins in CORS_ORIGINS are allowed, and they can read the required headers', async () => {
    for (const origin of ['https://app.example.org', 'https://console.example.org']) {
      const allowed = await preflight(rationed.url, origin);
      expect(allowed.headers['access-control-allow-origin']).toBe(origin);
      expect(allowed.headers['access-control-allow-methods']).toContain('PUT');
      expect(allowed.headers['access-control-allow-headers']).toContain('authorization');
      const answer = await raw(rationed.url, { path: '/api/health', headers: { Origin: origin } });
      expect(answer.headers['access-control-allow-origin']).toBe(origin);
      expect(answer.headers['access-control-expose-headers']).toContain('X-Refresh-Token');
      expect(answer.headers['access-control-expose-headers']).toContain('X-Request-Id');
      expect(answer.headers.vary).toContain('Origin');
    }
    for (const origin of [
      'https://evil.example.org',
      'https://app.example.org.evil.org',
      'http://app.example.org',
      'null',
    ]) {
      expect((await preflight(rationed.url, origin)).headers['access-control-allow-origin']).toBeUndefined();
    }
  });

  test('CORS is off by default', async () => {
    const answer = await preflight(service.url, 'https://app.example.org');
    expect(Object.keys(answer.headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
  });
});
