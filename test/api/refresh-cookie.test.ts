import { describe, expect, test } from '@jest/globals';
import jwt from 'jsonwebtoken';
import { operatorEmail, serviceWithSchool, testPassword } from '../support/server/service.ts';
import { type Answered, send } from '../support/client/wire.ts';

const { service, school } = await serviceWithSchool({ TRUST_PROXY: '1', CORS_ORIGINS: 'https://app.example' });

/** The headers that a browser adds to requests of a page of this origin. */
const own = { 'sec-fetch-site': 'same-origin' };

/** Parses the refresh cookie of a response, or another one; undefined without one. */
function cookieOf({ headers }: Answered, which = 'refresh_token') {
  const lines = (headers['set-cookie'] ?? []).filter((each) => each.split('=')[0]?.endsWith(which));
  const [line, ...more] = lines;
  expect(more).toEqual([]);
  if (line === undefined) return undefined;
  const [pair = '', ...attributes] = line.split('; ');
  const [name = '', value = ''] = pair.split('=');
  return { name, value, attributes: attributes.filter((one) => !one.startsWith('Expires=')).toSorted() };
}

const login = async (over: Record<string, unknown> = {}, headers: Record<string, string> = {}) => {
  const body = { is_platform: true, email: operatorEmail, password: testPassword, refresh_cookie: true, ...over };
  const answer = await send(service.url, { method: 'POST', path: '/api/auth/login', headers, body });
  expect(answer.status).toBe(200);
  return { answer, cookie: cookieOf(answer), token: (answer.json?.data as { access_token: string }).access_token };
};
const refresh = (cookie: string | undefined, headers: Record<string, string> = own) =>
  send(service.url, {
    method: 'POST',
    path: '/api/auth/refresh',
    headers: { ...(cookie === undefined ? {} : { cookie: `theme=dark; refresh_token=${cookie}` }), ...headers },
  });
const cleared = { name: 'refresh_token', value: '', attributes: ['HttpOnly', 'Path=/api/auth', 'SameSite=Strict'] };
const overview = (token: string) => send(service.url, { path: '/api/platform/overview', token });
const tokenIn = ({ json }: Answered) => (json?.data as { access_token: string }).access_token;

describe('a refresh token as a cookie', () => {
  test('is set on request as HttpOnly and SameSite=Strict, and not sent in a header', async () => {
    const { answer, cookie } = await login();
    expect(cookie?.name).toBe('refresh_token');
    expect(cookie?.value).toMatch(/^\d*\.[\w-]{43}\.\d+\.[\w-]{22}$/);
    expect(cookie?.attributes).toEqual([
      'HttpOnly',
      `Max-Age=${30 * 24 * 60 * 60}`,
      'Path=/api/auth',
      'SameSite=Strict',
    ]);
    expect(answer.headers['x-refresh-token']).toBeUndefined();
    expect(answer.text).not.toContain(cookie?.value ?? 'none');
    const plain = await login({ refresh_cookie: false });
    expect(plain.cookie).toBeUndefined();
    expect(plain.answer.headers['x-refresh-token']).toMatch(/\S/);
    const ofSchool = await login({ is_platform: undefined, tenant_id: school.id, email: school.adminEmail });
    expect(ofSchool.cookie?.name).toBe('refresh_token');
  });

  test('comes with a cookie for the device, which makes the next login one from a known device', async () => {
    const { answer } = await login();
    const device = cookieOf(answer, 'known_device');
    expect(device).toEqual({
      name: 'known_device',
      value: expect.stringMatching(/^[\w-]{43}\.0-\d+\.[\w-]{22}$/),
      attributes: ['HttpOnly', `Max-Age=${400 * 24 * 60 * 60}`, 'Path=/api/auth', 'SameSite=Strict'],
    });
    expect(answer.headers['x-known-device']).toBeUndefined();
    const again = await login({}, { cookie: `known_device=${device?.value}` });
    expect(cookieOf(again.answer, 'known_device')?.value).toBe(device?.value);
    const https = await login({}, { 'x-forwarded-proto': 'https' });
    expect(cookieOf(https.answer, 'known_device')).toMatchObject({
      name: '__Host-known_device',
      attributes: expect.arrayContaining(['Path=/', 'Secure']),
    });
  });

  test('is limited to https and this host when the request uses https', async () => {
    const { cookie, token } = await login({}, { 'x-forwarded-proto': 'https' });
    const https = { ...own, 'x-forwarded-proto': 'https' };
    const kept = {
      name: '__Host-refresh_token',
      attributes: ['HttpOnly', `Max-Age=${30 * 24 * 60 * 60}`, 'Path=/', 'SameSite=Strict', 'Secure'],
    };
    expect(cookie).toMatchObject(kept);
    // A cookie without the prefix may come from any host of the same site.
    const both = `refresh_token=${(await login()).cookie?.value}; __Host-refresh_token=${cookie?.value}`;
    const next = await refresh(undefined, { ...https, cookie: both });
    expect(cookieOf(next)).toMatchObject(kept);
    expect(jwt.decode(tokenIn(next))).toMatchObject({ sid: (jwt.decode(token) as { sid: number }).sid });
    expect((await refresh(cookieOf(next)?.value, https)).json?.error).toBe('unauthenticated');
    const out = await send(service.url, {
      method: 'POST',
      path: '/api/auth/logout',
      token,
      headers: { ...https, cookie: both },
    });
    expect(cookieOf(out)).toEqual({
      name: '__Host-refresh_token',
      value: '',
      attributes: ['HttpOnly', 'Path=/', 'SameSite=Strict', 'Secure'],
    });
  });

  test('is replaced at each refresh', async () => {
    const { cookie } = await login();
    const answer = await refresh(cookie?.value);
    expect(answer.status).toBe(200);
    expect(answer.headers['x-refresh-token']).toBeUndefined();
    const next = cookieOf(answer);
    expect(next?.attributes).toContain('HttpOnly');
    expect(next?.value).not.toBe(cookie?.value);
    expect((await overview(tokenIn(answer))).status).toBe(200);
    expect((await refresh(next?.value)).status).toBe(200);
  });

  test('is ignored when a token is sent in the header', async () => {
    const [{ cookie }, { answer }] = [await login(), await login({ refresh_cookie: false })];
    const mixed = await refresh(cookie?.value, { 'x-refresh-token': String(answer.headers['x-refresh-token']) });
    expect(mixed.status).toBe(200);
    expect(mixed.headers['x-refresh-token']).toMatch(/\S/);
    expect(mixed.headers['set-cookie']).toBeUndefined();
    expect((await refresh(cookie?.value)).status).toBe(200);
  });

  test('is accepted only from pages of this origin; other requests do not consume it', async () => {
    const { cookie } = await login();
    const host = new URL(service.url).host;
    const foreign: Record<string, string>[] = [
      {},
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
      { 'sec-fetch-site': 'none' },
      { 'sec-fetch-site': 'cross-site', origin: service.url },
      { origin: 'https://app.example' },
      { origin: 'null' },
      { origin: `https://${host}` },
      { origin: `http://${host}.evil.example` },
      { origin: `http://evil.example`, host: 'evil.example.other' },
      { origin: '' },
    ];
    for (const headers of foreign) {
      const answer = await refresh(cookie?.value, headers);
      expect([headers, answer.status, answer.json?.error]).toEqual([headers, 403, 'forbidden']);
      expect(answer.headers['set-cookie']).toBeUndefined();
    }
    const old = await refresh(cookie?.value, { origin: service.url });
    expect(old.status).toBe(200);
    expect((await refresh(cookieOf(old)?.value, own)).status).toBe(200);
  });

  test('in two concurrent tabs: each gets a new cookie, and either of them works next', async () => {
    const { cookie } = await login();
    const answers = await Promise.all([refresh(cookie?.value), refresh(cookie?.value)]);
    for (const answer of answers) expect((await refresh(cookieOf(answer)?.value)).status).toBe(200);
  });

  test('ends the session and is deleted if it is used after its successor', async () => {
    const { cookie, token } = await login();
    const next = cookieOf(await refresh(cookie?.value))?.value;
    const last = cookieOf(await refresh(next))?.value;
    const again = await refresh(cookie?.value);
    expect([again.status, cookieOf(again)]).toEqual([401, cleared]);
    expect((await overview(token)).status).toBe(401);
    const after = await refresh(last);
    expect([after.status, cookieOf(after)]).toEqual([401, cleared]);
  });

  test('is deleted if it is unknown, expired or malformed; a request without one gets a 401 and no cookie', async () => {
    for (const value of ['unknown', 'a%00b', '%E0%A4%A', 'x'.repeat(4000)]) {
      const answer = await refresh(value);
      expect([value, answer.status, answer.json?.error, cookieOf(answer)]).toEqual([
        value,
        401,
        'invalid_token',
        cleared,
      ]);
    }
    for (const value of [undefined, '']) {
      const answer = await refresh(value);
      expect([answer.status, answer.json?.error, answer.headers['set-cookie']]).toEqual([
        401,
        'unauthenticated',
        undefined,
      ]);
    }
  });

  test('is deleted at logout, which revokes both tokens', async () => {
    const { cookie, token } = await login();
    const answer = await send(service.url, {
      method: 'POST',
      path: '/api/auth/logout',
      token,
      headers: { cookie: `refresh_token=${cookie?.value}` },
    });
    expect([answer.status, cookieOf(answer)]).toEqual([200, cleared]);
    expect((await overview(token)).status).toBe(401);
    expect((await refresh(cookie?.value)).status).toBe(401);
    const without = await login({ refresh_cookie: false });
    const plain = await send(service.url, { method: 'POST', path: '/api/auth/logout', token: without.token });
    expect([plain.status, plain.headers['set-cookie']]).toEqual([200, undefined]);
  });

  test('is requested only by a boolean', async () => {
    const body = { is_platform: true, email: operatorEmail, password: testPassword, refresh_cookie: 'yes' };
    const answer = await send(service.url, { method: 'POST', path: '/api/auth/login', body });
    expect([answer.status, answer.json?.details?.[0]?.path]).toEqual([400, 'refresh_cookie']);
  });
});
