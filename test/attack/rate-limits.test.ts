import { describe, expect, test } from '@jest/globals';
import jwt from 'jsonwebtoken';
import { type Answered, send } from '../support/client/wire.ts';
import { mailTo } from '../support/fakes/mail.ts';
import {
  operatorEmail,
  type School,
  serviceOfFile,
  testPassword,
  testService,
  unique,
} from '../support/server/service.ts';

const perAddress = 40;
const service = await serviceOfFile({ TRUST_PROXY: '1', PUBLIC_RATE_LIMIT_PER_MINUTE: String(perAddress) });

let serial = 0;
/** An address that no other test uses. A whole school is behind it. */
const freshIp = () => `10.77.${++serial >> 8}.${serial & 255}`;

const post = (ip: string, path: string, body: unknown, headers: Record<string, string> = {}) =>
  send(service.url, { method: 'POST', path, body, headers: { 'X-Forwarded-For': ip, ...headers } });
const logIn = (ip: string, account: object, headers: Record<string, string> = {}) =>
  post(ip, '/api/auth/login', { password: testPassword, ...account }, headers);
const refresh = (ip: string, token: string) => post(ip, '/api/auth/refresh', undefined, { 'X-Refresh-Token': token });

/** Sends all requests at the same time. @returns how many answers had each status */
async function flood(count: number, request: (n: number) => Promise<Answered>): Promise<Record<number, number>> {
  const found: Record<number, number> = {};
  for (const { status } of await Promise.all(Array.from({ length: count }, (_, n) => request(n))))
    found[status] = (found[status] ?? 0) + 1;
  return found;
}

/** Logins of accounts that do not exist, a new one each time, at full speed. */
const junkLogins = (ip: string, school: School, headers: Record<string, string> = {}) =>
  flood(perAddress * 3, () =>
    logIn(ip, { tenant_id: school.id, email: `${unique('ghost')}@nowhere.example` }, headers),
  );
/** All that one address may send, and then refusals. */
const spent = (status: number) => ({ [status]: perAddress, 429: perAddress * 2 });

/** A user who has logged in at an address, or elsewhere. */
async function userAt(school: School, ip: string) {
  const { email } = await school.user(['teacher']);
  const account = { tenant_id: school.id, email };
  const { status, headers } = await logIn(ip, account);
  expect(status).toBe(200);
  return {
    account,
    device: { 'X-Known-Device': String(headers['x-known-device']) },
    refreshToken: String(headers['x-refresh-token']),
  };
}

const school = await service.school();

describe('a pupil who sends junk at full speed from the address of the school', () => {
  test('keeps nobody from logging in on a known device, or on a new one with an account that is known at this address', async () => {
    const ip = freshIp();
    const teacher = await userAt(school, ip);
    const other = await userAt(school, ip);
    expect(await junkLogins(ip, school)).toEqual(spent(401));
    expect((await logIn(ip, teacher.account, teacher.device)).status).toBe(200);
    const onNewDevice = await logIn(ip, other.account);
    expect(onNewDevice.status).toBe(200);
    expect(onNewDevice.headers['retry-after']).toBeUndefined();
    expect(await junkLogins(ip, school)).toEqual({ 429: perAddress * 3 });
    expect((await logIn(ip, teacher.account)).status).toBe(200);
  });

  test('learns nothing about which accounts are known: a wrong password gets the refusal of an unknown account', async () => {
    const ip = freshIp();
    const teacher = await userAt(school, ip);
    await junkLogins(ip, school);
    const guesses = await Promise.all(
      Array.from({ length: 12 }, () => logIn(ip, { ...teacher.account, password: 'a guess' })),
    );
    const unknown = await logIn(ip, { tenant_id: school.id, email: `${unique('ghost')}@nowhere.example` });
    for (const guess of guesses) {
      expect([guess.status, guess.json?.error, guess.json?.message]).toEqual([
        429,
        'rate_limited',
        unknown.json?.message,
      ]);
      expect(Object.keys(guess.headers).sort()).toEqual(Object.keys(unknown.headers).sort());
      expect(guess.headers['ratelimit-policy']).toBe(unknown.headers['ratelimit-policy']);
    }
    // Ten of them were checked, so that the account is locked here for new devices. Its known device is not.
    expect((await logIn(ip, teacher.account)).status).toBe(429);
    expect((await logIn(ip, teacher.account, teacher.device)).status).toBe(200);
    expect((await logIn(freshIp(), teacher.account)).status).toBe(200);
  });

  test('who guesses at the known accounts of the address, too, spends a budget of the same size', async () => {
    const ip = freshIp();
    const users = [];
    for (let n = 0; n < 6; n++) users.push(await userAt(school, ip));
    await junkLogins(ip, school);
    const [bystander, ...victims] = users;
    await flood(perAddress * 2, (n) => logIn(ip, { ...victims[n % 5]?.account, password: 'a guess' }));
    expect((await logIn(ip, bystander?.account ?? {})).status).toBe(429);
    expect((await logIn(ip, bystander?.account ?? {}, bystander?.device)).status).toBe(200);
  });

  test('keeps those who have never used this address from logging in on a new device only here, and only with ever new accounts', async () => {
    const ip = freshIp();
    const stranger = await userAt(school, freshIp());
    await junkLogins(ip, school);
    const refused = await logIn(ip, stranger.account);
    expect([refused.status, refused.json?.error]).toEqual([429, 'rate_limited']);
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
    expect((await logIn(freshIp(), stranger.account)).status).toBe(200);
    expect((await logIn(ip, stranger.account, stranger.device)).status).toBe(200);
  });

  test('who guesses at one account uses up the attempts of this account, not of the address', async () => {
    const ip = freshIp();
    const [victim, stranger] = [await userAt(school, freshIp()), await userAt(school, freshIp())];
    const found = await flood(perAddress * 3, () => logIn(ip, { ...victim.account, password: 'a guess' }));
    expect(found).toEqual({ 401: 10, 429: perAddress * 3 - 10 });
    expect((await logIn(ip, stranger.account)).status).toBe(200);
    expect((await logIn(ip, victim.account, victim.device)).status).toBe(200);
  });

  test('who does it with the token of their own device uses up only the logins of their own known devices', async () => {
    const ip = freshIp();
    const [pupil, stranger] = [await userAt(school, freshIp()), await userAt(school, freshIp())];
    const found = await junkLogins(ip, school, pupil.device);
    expect(found).toEqual({ 401: 30, 429: perAddress * 3 - 30 });
    expect((await logIn(ip, pupil.account, pupil.device)).status).toBe(429);
    expect((await logIn(ip, stranger.account)).status).toBe(200);
    expect((await logIn(ip, stranger.account, stranger.device)).status).toBe(200);
  });

  test('who invents tokens of devices counts like any new device', async () => {
    const ip = freshIp();
    const teacher = await userAt(school, freshIp());
    const [token = '', owner = '', signature = ''] = teacher.device['X-Known-Device'].split('.');
    const inventions = [
      'x',
      `${'x'.repeat(43)}.1-1.${'x'.repeat(22)}`,
      `${token}.${owner}.${'y'.repeat(22)}`,
      `${token}.0-1.${signature}`,
      `x${token}.${owner}.${signature}`,
    ];
    const found = await flood(perAddress * 3, (n) =>
      logIn(
        ip,
        { tenant_id: school.id, email: `${unique('ghost')}@nowhere.example` },
        { 'X-Known-Device': inventions[n % inventions.length] ?? '' },
      ),
    );
    expect(found).toEqual(spent(401));
  });

  test('with malformed bodies is limited too', async () => {
    const ip = freshIp();
    expect(await flood(perAddress * 3, () => post(ip, '/api/auth/login', '{'))).toEqual(spent(400));
  });

  test('with junk refreshes keeps nobody from refreshing or logging in', async () => {
    const ip = freshIp();
    const teacher = await userAt(school, ip);
    const stranger = await userAt(school, freshIp());
    const junk = [`1.${'x'.repeat(43)}`, teacher.refreshToken.replace(/^(.*?)\.../, '$1.zz'), 'x'];
    const forged = (n: number) => junk[n % junk.length] ?? '';
    expect(await flood(perAddress * 3, (n) => refresh(ip, forged(n)))).toEqual(spent(401));
    const refreshed = await refresh(ip, teacher.refreshToken);
    expect(refreshed.status).toBe(200);
    expect((await refresh(ip, String(refreshed.headers['x-refresh-token']))).status).toBe(200);
    expect((await logIn(ip, stranger.account)).status).toBe(200);
  });

  test('with junk requests for forgotten passwords keeps nobody from logging in, and no known device from getting an email', async () => {
    const ip = freshIp();
    const [teacher, other] = [await userAt(school, ip), await userAt(school, freshIp())];
    const forgot = (account: object, headers = {}) => post(ip, '/api/auth/password/forgot', account, headers);
    expect(
      await flood(perAddress * 3, () => forgot({ tenant_id: school.id, email: `${unique('ghost')}@nowhere.example` })),
    ).toEqual(spent(200));
    expect((await forgot(teacher.account)).status).toBe(429);
    expect((await forgot(other.account, other.device)).status).toBe(200);
    await mailTo(service, other.account.email, 'Reset your password');
    expect((await logIn(ip, other.account)).status).toBe(200);
    // One account counts for the address only three times a minute.
    const elsewhere = freshIp();
    const same = await flood(perAddress * 3, () => post(elsewhere, '/api/auth/password/forgot', teacher.account));
    expect(same).toEqual({ 200: 3, 429: perAddress * 3 - 3 });
    expect((await post(elsewhere, '/api/auth/password/forgot', other.account)).status).toBe(200);
  });

  test('with junk links keeps nobody from logging in', async () => {
    const ip = freshIp();
    const stranger = await userAt(school, freshIp());
    expect(
      await flood(perAddress * 3, () => post(ip, '/api/auth/password/reset', { token: 'x', password: 'a password' })),
    ).toEqual(spent(401));
    expect((await logIn(ip, stranger.account)).status).toBe(200);
  });
});

test('successful logins do not count for the address, so that a school can log in within a minute', async () => {
  const ip = freshIp();
  const users = [await userAt(school, ip), await userAt(school, ip), await userAt(school, ip)];
  for (const { account } of users) for (let n = 0; n < 20; n++) expect((await logIn(ip, account)).status).toBe(200);
});

test('the counters in the database contain hashes, and neither addresses nor emails', async () => {
  await junkLogins(freshIp(), school);
  const rows = await service.database.query<{ key: Buffer }>('select * from platform.rate_limit_counter');
  expect(rows.length).toBeGreaterThan(0);
  for (const row of rows) {
    expect(Object.keys(row).sort()).toEqual(['created_at', 'hits', 'key', 'updated_at', 'window_ends_at']);
    expect(row.key).toHaveLength(32);
  }
});

describe('a user with many sessions', () => {
  const limits = { RATE_LIMIT_PER_MINUTE: '6', USER_RATE_LIMIT_PER_MINUTE: '10', SCHOOL_RATE_LIMIT_PER_MINUTE: '25' };

  test('has one budget for all of them, and a school one for all users', async () => {
    const limited = await testService(limits);
    try {
      const [one, two] = [await limited.school(), await limited.school()];
      const sessionsOf = (at: School, count: number) =>
        Promise.all(
          Array.from({ length: count }, () =>
            limited.anonymous.login({ tenant_id: at.id, email: at.adminEmail, password: testPassword }),
          ),
        );
      const profile = async (token: string) => send(limited.url, { path: '/api/auth/profile', token });
      const statuses = async (tokens: string[]) => {
        const found: number[] = [];
        for (const token of tokens) found.push((await profile(token)).status);
        return found;
      };
      const users = [await one.user(['teacher']), await one.user(['teacher'])];
      const sessions = await sessionsOf(one, 3);
      // The admin has added two users. So 8 requests of their budget are left.
      const found = await statuses(sessions.flatMap(({ token }) => [token, token, token, token]));
      expect(found).toEqual([...Array<number>(8).fill(200), ...Array<number>(4).fill(429)]);
      const refused = await profile(sessions[2]?.token ?? '');
      expect(refused.json?.error).toBe('rate_limited');
      expect(refused.headers['ratelimit-policy']).toContain('q=10; w=60');
      expect(refused.headers['ratelimit']).toContain('r=0;');
      expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
      // 10 of 25 requests of the school are used. What a user was refused does not count for the school.
      const [first = '', second = ''] = users.map(({ token }) => token);
      expect(await statuses(Array<string>(6).fill(first))).toEqual(Array<number>(6).fill(200));
      const extra = await limited.anonymous.login({
        tenant_id: one.id,
        email: users[0]?.email,
        password: testPassword,
      });
      expect(await statuses(Array<string>(5).fill(extra.token))).toEqual([200, 200, 200, 200, 429]);
      expect(await statuses(Array<string>(6).fill(second))).toEqual([200, 200, 200, 200, 200, 429]);
      expect((await profile(second)).headers['ratelimit-policy']).toContain('q=6; w=60');
      expect(await statuses([two.admin.token, limited.operator.token])).toEqual([200, 200]);
    } finally {
      await limited.close();
    }
  });
});

describe('requests that are refused', () => {
  const perSession = 10;
  const budget = perSession * 5;
  const secret = 'a secret of the tests that is long enough';

  test('without a valid token and for unknown routes count for the address, and keep nobody with a token from the service', async () => {
    const limited = await testService({
      TRUST_PROXY: '1',
      RATE_LIMIT_PER_MINUTE: String(perSession),
      JWT_SECRETS: secret,
    });
    try {
      const { admin } = await limited.school();
      const ip = freshIp();
      const get = (path: string, token: string, from = ip) =>
        send(limited.url, { path, headers: { 'X-Forwarded-For': from, ...(token ? { Authorization: token } : {}) } });
      const junk: [string, string][] = [
        ['/api/students', 'Bearer junk'],
        ['/api/students', ''],
        ['/api/unknown', ''],
        ['/unknown', 'Bearer junk'],
      ];
      const found = await flood(budget + 30, (n) => get(...(junk[n % junk.length] ?? ['/', ''])));
      expect(found[429]).toBe(30);
      expect((found[401] ?? 0) + (found[404] ?? 0)).toBe(budget);
      const refused = await get('/api/unknown', '');
      expect([refused.status, refused.json?.error]).toEqual([429, 'rate_limited']);
      expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
      expect((await get('/api/students', '')).status).toBe(429);
      expect((await get('/api/students', `Bearer ${admin.token}`)).status).toBe(200);
      expect((await get('/api/unknown', `Bearer ${admin.token}`)).status).toBe(404);
      // Its client has to learn that it must refresh.
      const { exp, iat, ...claims } = jwt.decode(admin.token) as jwt.JwtPayload;
      expect(exp).toBeGreaterThan(iat ?? 0);
      const expired = jwt.sign({ ...claims, exp: 1_700_000_000 }, secret);
      expect((await get('/api/students', `Bearer ${expired}`)).status).toBe(401);
      expect((await get('/api/students', '', freshIp())).status).toBe(401);
    } finally {
      await limited.close();
    }
  });
});

describe('what anybody may read', () => {
  test('is limited per address, apart from everything else, and not for health checks', async () => {
    const limited = await testService({
      TRUST_PROXY: '1',
      RATE_LIMIT_PER_MINUTE: '4',
      PUBLIC_RATE_LIMIT_PER_MINUTE: '6',
    });
    try {
      const ip = freshIp();
      const get = (path: string, from = ip) => send(limited.url, { path, headers: { 'X-Forwarded-For': from } });
      expect(await flood(20, () => get('/api/openapi.json'))).toEqual({ 200: 6, 429: 14 });
      const pages = ['/api/docs/', '/api/guide/', '/password/', '/graphql/ide/', '/console/', '/api', '/'];
      const found = await flood(40, (n) => get(pages[n % pages.length] ?? '/'));
      expect(found[429]).toBe(20);
      expect((await get('/api/docs/')).json?.error).toBe('rate_limited');
      for (const path of ['/api/openapi.json', '/api/docs/']) expect((await get(path, freshIp())).status).toBe(200);
      expect(await flood(60, () => get('/api/health'))).toEqual({ 200: 60 });
      expect(await flood(60, () => get('/api/health/ready'))).toEqual({ 200: 60 });
      const { status } = await send(limited.url, {
        method: 'POST',
        path: '/api/auth/login',
        body: { is_platform: true, email: operatorEmail, password: testPassword },
        headers: { 'X-Forwarded-For': ip },
      });
      expect(status).toBe(200);
    } finally {
      await limited.close();
    }
  });
});
