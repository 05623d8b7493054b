import { afterEach, describe, expect, test } from '@jest/globals';
import { mailTo } from '../support/fakes/mail.ts';
import { type App, app, type Challenge, enable, wrongCode } from '../support/fixtures/second-factors.ts';
import type { Client } from '../support/client/client.ts';
import { race } from '../support/client/race.ts';
import { until } from '../support/client/until.ts';
import { operatorEmail, type School, serviceWithSchool, testPassword, unique } from '../support/server/service.ts';

const { client, createOperator, passwords, readConfig, startService, withOwner } = shared;
const { service, school } = await serviceWithSchool({ TRUST_PROXY: '1' }, 7);

interface Account {
  email: string;
  tenant_id?: number;
  is_platform?: boolean;
}
interface Verified {
  access_token: string;
  user: { email: string };
  recovery_codes: string[] | null;
}
interface Attempt {
  password?: string;
  device?: string | undefined;
  at?: Client;
}

let serial = 0;
/** An address that no other attempt of this file used, so that wrong passwords do not count together. */
const freshIp = () => `10.1.${++serial >> 8}.${serial & 255}`;

/** Sends the right password, or another one. */
const sendPassword = (account: Account, { password = testPassword, device, at = service.anonymous }: Attempt = {}) =>
  at.send<Verified>('POST', '/api/auth/login', {
    body: { ...account, password },
    headers: { 'X-Forwarded-For': freshIp(), ...(device === undefined ? {} : { 'X-Known-Device': device }) },
  });

/** Sends the right password of an account that needs a second factor. */
async function challenged(account: Account, attempt?: Attempt): Promise<Challenge> {
  const answer = await sendPassword(account, attempt);
  expect(answer).toMatchObject({ status: 401, error: 'second_factor_required' });
  expect([answer.headers.get('x-refresh-token'), answer.headers.get('x-known-device')]).toEqual([null, null]);
  return (answer as unknown as { challenge: Challenge }).challenge;
}

const verify = (token: string, fields: Record<string, unknown>, at = service.anonymous, device?: string) =>
  at.send<Verified>('POST', '/api/auth/login/verify', {
    body: { challenge: token, ...fields },
    headers: device === undefined ? {} : { 'X-Known-Device': device },
  });

/** Completes a login with the second factor. */
async function logInWith(account: Account, fields: Record<string, unknown>, attempt?: Attempt) {
  return verify((await challenged(account, attempt)).token, fields, attempt?.at, attempt?.device);
}

/** Lets the last code be used again, as if a minute had passed. */
const nextMinute = () => service.database.everywhere('update platform.second_factor set last_step = null');

/** A user with an authenticator app. */
async function userWithApp(roles = ['teacher'], of: School = school) {
  const user = await of.user(roles);
  const made = await enable(user);
  await nextMinute();
  return { user, app: made, account: { tenant_id: of.id, email: user.email } };
}

/** Another operator with the role admin. */
async function addOperator() {
  const email = `${unique('operator')}@test.example`;
  const passwordHash = await passwords({ memoryCost: 64 }).hash(testPassword);
  await withOwner(service.database.url, (owner) =>
    createOperator(owner, { email, passwordHash, firstName: 'Ada', lastName: 'Byron', role: 'admin', tenantIds: null }),
  );
  const account = { is_platform: true, email };
  return { account, email, client: await service.anonymous.login({ ...account, password: testPassword }) };
}

const otherProcesses: { close: () => Promise<void> }[] = [];
afterEach(() => Promise.all(otherProcesses.splice(0).map((process) => process.close())));

/** Another API process on the same database, with other settings. It ends with the test. */
async function otherProcess(env: Record<string, string>) {
  const config = readConfig({
    PORT: '0',
    NODE_ENV: 'test',
    LOG_LEVEL: 'silent',
    JWT_SECRETS: 'a secret of the tests that is long enough',
    ...service.settings,
    ...env,
  });
  const process = await startService(config, service.database.url, ['api'], { hashing: passwords({ memoryCost: 64 }) });
  otherProcesses.push(process);
  return client(process.url ?? '');
}

const twoFactor = async (user: Client) =>
  (await user.get<{ is_enabled: boolean; is_required: boolean; recovery_codes_left: number }>('/api/auth/two-factor'))
    .data;

describe('setting up an authenticator app', () => {
  test('needs the password and a code of the app, and changes nothing before', async () => {
    const user = await school.user(['teacher']);
    const account = { tenant_id: school.id, email: user.email };
    expect((await user.post('/api/auth/two-factor/totp', { password: 'wrong password' }, 401)).error).toBe(
      'invalid_credentials',
    );
    const { data } = await user.post<{ secret: string; otpauth_uri: string }>('/api/auth/two-factor/totp', {
      password: testPassword,
    });
    const made = app(data.secret);
    expect(data.secret).toMatch(/^[A-Z2-7]{32}$/);
    const uri = new URL(data.otpauth_uri);
    expect(decodeURIComponent(uri.pathname)).toContain(user.email);
    expect(uri.searchParams.get('secret')).toBe(data.secret);
    const confirm = '/api/auth/two-factor/totp/confirm';
    expect((await user.post(confirm, { code: wrongCode(made) }, 401)).error).toBe('invalid_code');
    expect((await user.post(confirm, { code: 'abcdef' }, 400)).error).toBe('validation_error');
    expect(await twoFactor(user)).toMatchObject({ is_enabled: false, enabled_at: null, recovery_codes_left: 0 });
    expect(Object.keys((await sendPassword(account)).data)).toEqual([
      'access_token',
      'user',
      'permissions',
      'enabled_features',
      'today',
      'time_zone',
    ]);
    const { data: confirmed } = await user.post<{ recovery_codes: string[] }>(confirm, { code: made.code() });
    expect(new Set(confirmed.recovery_codes).size).toBe(10);
    for (const code of confirmed.recovery_codes) expect(code).toMatch(/^([0-9a-f]{5}-){3}[0-9a-f]{5}$/);
    expect(await twoFactor(user)).toMatchObject({ is_enabled: true, is_required: false, recovery_codes_left: 10 });
    await challenged(account);
    await mailTo(service, user.email, 'Two-factor login is on');
    // The session in which it was set up continues.
    await user.get('/api/auth/profile');
  });

  test('stores neither the secret nor a recovery code in plain text', async () => {
    const { app: made } = await userWithApp();
    const [stored] = await school.database.query<{ content: string }>(
      `select string_agg(f::text, ' ') || (select string_agg(c::text, ' ') from platform.recovery_code c) as content
       from platform.second_factor f`,
    );
    const hex = made.recoveryCodes[0]?.replaceAll('-', '') ?? '';
    for (const plain of [made.secret, hex, Buffer.from(hex).toString('hex')])
      expect(stored?.content.includes(plain)).toBe(false);
  });

  test('a second app replaces the first one and its recovery codes only after its code is confirmed', async () => {
    const { user, app: first, account } = await userWithApp();
    const { data } = await user.post<{ secret: string }>('/api/auth/two-factor/totp', { password: testPassword });
    expect((await logInWith(account, { code: first.code() })).status).toBe(200);
    await nextMinute();
    const second = app(data.secret);
    await user.post('/api/auth/two-factor/totp/confirm', { code: second.code() });
    await nextMinute();
    expect((await logInWith(account, { code: first.code() })).error).toBe('invalid_code');
    expect((await logInWith(account, { recovery_code: first.recoveryCodes[0] })).error).toBe('invalid_code');
    expect((await logInWith(account, { code: second.code() })).status).toBe(200);
  });
});

describe('confirming an authenticator app', () => {
  test('ends the other sessions of the user, and their devices are no longer known', async () => {
    const user = await school.user(['teacher']);
    const account = { tenant_id: school.id, email: user.email };
    const stranger = await sendPassword(account);
    const bearer = service.anonymous.with({ Authorization: `Bearer ${stranger.data.access_token}` });
    await bearer.get('/api/auth/profile');
    const made = await enable(user);
    expect((await bearer.get('/api/auth/profile', 401)).error).toBe('invalid_token');
    await user.get('/api/auth/profile');
    // The device of the stranger has no budget of its own.
    const device = stranger.headers.get('x-known-device') ?? '';
    const { token } = await challenged(account);
    const found: number[] = [];
    for (let n = 0; n < 11; n++)
      found.push((await verify(token, { code: wrongCode(made) }, service.anonymous, device)).status);
    expect(found.at(-1)).toBe(429);
  });

  test('is not possible for an app that was begun before a new password', async () => {
    const user = await school.user(['teacher']);
    const { data } = await user.post<{ secret: string }>('/api/auth/two-factor/totp', { password: testPassword });
    await user.post('/api/auth/password/change', { current_password: testPassword, password: 'another password' });
    const code = app(data.secret).code();
    expect((await user.post('/api/auth/two-factor/totp/confirm', { code }, 401)).error).toBe('invalid_code');
  });

  test('at the same time as a login with the password alone leaves no session and no enrollment of that login', async () => {
    const of = await service.school();
    await enable(of.admin);
    const teacher = await of.user(['teacher']);
    await of.admin.post('/api/school-setup/school-info', { is_second_factor_required: true });
    const account = { tenant_id: of.id, email: teacher.email };
    const { data } = await teacher.post<{ secret: string }>('/api/auth/two-factor/totp', { password: testPassword });
    const made = app(data.secret);
    const lock = `select from ${of.schema}.user_account where id = ${teacher.id} for update`;
    const [login, confirmed] = await race<{ status: number }>(service.database, lock, 2, () => [
      sendPassword(account),
      teacher.send('POST', '/api/auth/two-factor/totp/confirm', { body: { code: made.code() } }),
    ]);
    expect(confirmed?.status).toBe(200);
    const { token } = (login as unknown as { challenge: Challenge }).challenge;
    const answer = await service.anonymous.send('POST', '/api/auth/login/enroll', { body: { challenge: token } });
    expect(answer.error).toBe('invalid_token');
    expect((await challenged(account)).is_enrollment).toBe(false);
  });
});

describe('a login with a second factor', () => {
  test('opens the same session as a login without one', async () => {
    const { user, app: made, account } = await userWithApp();
    const challenge = await challenged(account);
    expect(challenge).toMatchObject({ is_enrollment: false, methods: ['totp', 'recovery_code'], passkey: null });
    const answer = await verify(challenge.token, { code: made.code() });
    expect(answer.status).toBe(200);
    expect(answer.data).toMatchObject({ user: { email: user.email }, recovery_codes: null });
    const session = service.anonymous.with({ Authorization: `Bearer ${answer.data.access_token}` });
    await session.get('/api/auth/profile');
    const refreshToken = answer.headers.get('x-refresh-token') ?? '';
    await service.anonymous.send('POST', '/api/auth/refresh', { headers: { 'X-Refresh-Token': refreshToken } }, 200);
  });

  test('does not tell a wrong password from one of an account without a second factor', async () => {
    const { account } = await userWithApp();
    const other = await school.user(['teacher']);
    const wrong = { password: 'wrong password' };
    const answers = [
      await sendPassword(account, wrong),
      await sendPassword({ ...account, email: other.email }, wrong),
      await sendPassword({ ...account, email: 'nobody@nowhere.example' }, wrong),
    ];
    for (const { status, error, message } of answers) {
      expect({ status, error, message }).toEqual({
        status: 401,
        error: 'invalid_credentials',
        message: 'The email or the password is wrong.',
      });
    }
    expect('challenge' in (answers[0] ?? {})).toBe(false);
  });

  test('accepts the codes of the steps before and after, but no older ones', async () => {
    for (const [step, status] of [
      [-1, 200],
      [1, 200],
      [-3, 401],
      [3, 401],
    ] as const) {
      const { app: made, account } = await userWithApp();
      expect([step, (await logInWith(account, { code: made.code(step) })).status]).toEqual([step, status]);
    }
  });

  const spellings: [string, (code: string) => string][] = [
    ['as apps show it', (code) => `${code.slice(0, 3)} ${code.slice(3)}`],
    ['with spaces around it and between all characters', (code) => ` ${Array.from(code).join(' ')} `],
    ['with a space that does not break and a line break', (code) => `${code.slice(0, 2)}\u00a0${code.slice(2)}\n`],
  ];

  test.each(spellings)('accepts a code and a recovery code %s, wherever one is sent', async (_how, spell) => {
    const user = await school.user(['teacher']);
    const { data } = await user.post<{ secret: string }>('/api/auth/two-factor/totp', { password: testPassword });
    const made = app(data.secret);
    const confirmed = await user.post<{ recovery_codes: string[] }>('/api/auth/two-factor/totp/confirm', {
      code: spell(made.code()),
    });
    const account = { tenant_id: school.id, email: user.email };
    const [first = '', second = ''] = confirmed.data.recovery_codes;
    await nextMinute();
    expect((await logInWith(account, { code: spell(made.code()) })).status).toBe(200);
    expect((await logInWith(account, { recovery_code: spell(first) })).status).toBe(200);
    await user.send('DELETE', '/api/auth/two-factor', { body: { recovery_code: spell(second) } }, 200);
  });

  test('accepts each code once, whichever challenge it is sent with, and no earlier code after it', async () => {
    const { app: made, account } = await userWithApp();
    const [one, two] = [await challenged(account), await challenged(account)];
    const code = made.code();
    expect((await verify(one.token, { code })).status).toBe(200);
    expect((await verify(two.token, { code })).error).toBe('invalid_code');
    expect((await verify(two.token, { code: made.code(-1) })).error).toBe('invalid_code');
    // The challenge is used up, too.
    expect((await verify(one.token, { code: made.code(1) })).error).toBe('invalid_token');
    expect((await verify(two.token, { code: made.code(1) })).status).toBe(200);
  });

  test('accepts the code of the set-up not again', async () => {
    const user = await school.user(['teacher']);
    const made = await enable(user);
    expect((await logInWith({ tenant_id: school.id, email: user.email }, { code: made.code() })).error).toBe(
      'invalid_code',
    );
  });

  test('accepts a code or a recovery code once when two requests send it at the same time', async () => {
    const { user, app: made, account } = await userWithApp();
    for (const fields of [{ code: made.code() }, { recovery_code: made.recoveryCodes[3] }]) {
      const challenges = [await challenged(account), await challenged(account)];
      const lock = `select from ${school.schema}.user_account where id = ${user.id} for update`;
      const answers = await race(service.database, lock, 2, () => challenges.map(({ token }) => verify(token, fields)));
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 401]);
    }
  });

  test('accepts each recovery code once, in upper or lower case, with or without dashes', async () => {
    const { user, app: made, account } = await userWithApp();
    const [one = '', two = ''] = made.recoveryCodes;
    expect((await logInWith(account, { recovery_code: one })).status).toBe(200);
    expect((await logInWith(account, { recovery_code: one })).error).toBe('invalid_code');
    expect((await logInWith(account, { recovery_code: two.toUpperCase().replaceAll('-', ' ') })).status).toBe(200);
    expect((await twoFactor(user)).recovery_codes_left).toBe(8);
    const { data } = await user.post<{ recovery_codes: string[] }>('/api/auth/two-factor/recovery-codes', {
      password: testPassword,
    });
    await mailTo(service, user.email, 'New recovery codes');
    expect((await logInWith(account, { recovery_code: made.recoveryCodes[5] })).error).toBe('invalid_code');
    expect((await logInWith(account, { recovery_code: data.recovery_codes[5] })).status).toBe(200);
    expect((await user.post('/api/auth/two-factor/recovery-codes', { password: 'wrong one' }, 401)).error).toBe(
      'invalid_credentials',
    );
  });

  test('needs exactly one of code, recovery code and passkey', async () => {
    const { app: made, account } = await userWithApp();
    const { token } = await challenged(account);
    const both = { code: made.code(), recovery_code: made.recoveryCodes[0] };
    for (const fields of [{}, both]) expect((await verify(token, fields)).error).toBe('validation_error');
    expect((await verify(token, { passkey: { id: 'AAAA' } })).error).toBe('invalid_code');
    expect((await verify(token, { code: made.code() })).status).toBe(200);
  });

  test('sends the tokens as cookies if the client asks for it', async () => {
    const { app: made, account } = await userWithApp();
    const answer = await logInWith(account, { code: made.code(), refresh_cookie: true });
    expect(answer.headers.get('x-refresh-token')).toBeNull();
    const cookies = answer.headers.getSetCookie().map((cookie) => cookie.split('=')[0]);
    expect(cookies.sort()).toEqual(['known_device', 'refresh_token']);
  });
});

describe('a challenge', () => {
  test('is no access token, no refresh token and no token of a link, and these are no challenges', async () => {
    const { app: made, account, user } = await userWithApp();
    const { token } = await challenged(account);
    const bearer = service.anonymous.with({ Authorization: `Bearer ${token}` });
    expect((await bearer.get('/api/auth/profile', 401)).error).toBe('invalid_token');
    const headers = { 'X-Refresh-Token': token };
    expect((await service.anonymous.send('POST', '/api/auth/refresh', { headers })).error).toBe('invalid_token');
    const reset = await service.anonymous.post('/api/auth/password/reset', { token, password: 'a new password' }, 401);
    expect(reset.error).toBe('invalid_token');
    expect((await service.anonymous.post('/api/auth/email/verify', { token }, 401)).error).toBe('invalid_token');
    expect((await service.anonymous.post('/api/auth/login/enroll', { challenge: token }, 401)).error).toBe(
      'invalid_token',
    );
    await service.anonymous.post('/api/auth/password/forgot', account);
    const link = await mailTo(service, user.email, 'Reset your password');
    expect((await verify(link.token, { code: made.code() })).error).toBe('invalid_token');
    expect((await verify(user.token, { code: made.code() })).error).toBe('validation_error');
    expect((await verify(token, { code: made.code() })).status).toBe(200);
  });

  test('belongs to one user: a code of another one does not help', async () => {
    const [one, two] = [await userWithApp(), await userWithApp()];
    const { token } = await challenged(one.account);
    expect((await verify(token, { code: two.app.code() })).error).toBe('invalid_code');
    expect((await verify(token, { recovery_code: two.app.recoveryCodes[0] })).error).toBe('invalid_code');
  });

  test('expires after ten minutes', async () => {
    const { app: made, account } = await userWithApp();
    const { token, expires_at } = await challenged(account);
    expect(Date.parse(expires_at) - Date.now()).toBeLessThanOrEqual(10 * 60_000);
    await service.database.everywhere(
      "update platform.one_time_token set expires_at = now() - interval '1 second' where purpose = 'second_factor'",
    );
    expect((await verify(token, { code: made.code() })).error).toBe('invalid_token');
  });

  test('ends when the password changes, when an admin sets one, and when the user is deactivated', async () => {
    const changes: ((user: Client & { id: number }) => Promise<unknown>)[] = [
      (user) =>
        user.post('/api/auth/password/change', { current_password: testPassword, password: 'another password' }),
      (user) => school.admin.put(`/api/users/${user.id}`, { password: 'another password' }),
      (user) => school.admin.put(`/api/users/${user.id}`, { is_active: false }),
    ];
    for (const change of changes) {
      const { user, app: made, account } = await userWithApp();
      const { token } = await challenged(account);
      await change(user);
      expect((await verify(token, { code: made.code() })).error).toBe('invalid_token');
    }
  });
});

describe('wrong codes', () => {
  const guess = async (account: Account, made: App, times: number) => {
    const { token } = await challenged(account);
    const found: number[] = [];
    for (let n = 0; n < times; n++) found.push((await verify(token, { code: wrongCode(made) })).status);
    return found;
  };
  const times = (n: number, status: number) => Array.from({ length: n }, () => status);
  const endWindows = (budget: string) =>
    service.database.everywhere(
      "update platform.login_throttle set window_ends_at = now() - interval '1 second' where budget = $1",
      [budget],
    );

  test('lock the second factor of the account after ten, over all challenges and kinds of codes', async () => {
    const { app: made, account } = await userWithApp();
    const bystander = await userWithApp();
    expect(await guess(account, made, 6)).toEqual(times(6, 401));
    expect(await guess(account, made, 6)).toEqual([...times(4, 401), 429, 429]);
    const refused = await logInWith(account, { code: made.code() });
    expect(refused.error).toBe('rate_limited');
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(60);
    expect((await logInWith(account, { recovery_code: made.recoveryCodes[0] })).error).toBe('rate_limited');
    expect((await logInWith(bystander.account, { code: bystander.app.code() })).status).toBe(200);
    await endWindows('second_factor');
    expect((await logInWith(account, { code: made.code() })).status).toBe(200);
  });

  test('are limited to 30 a day, and neither logins nor a new password of the user give strangers more', async () => {
    const { user, app: made, account } = await userWithApp();
    for (let window = 0; window < 2; window++) {
      expect(await guess(account, made, 10)).toEqual(times(10, 401));
      await endWindows('second_factor');
    }
    expect((await logInWith(account, { code: made.code() })).status).toBe(200);
    await nextMinute();
    await user.post('/api/auth/password/change', { current_password: testPassword, password: 'a second password' });
    const { token } = await challenged(account, { password: 'a second password' });
    const found: number[] = [];
    for (let n = 0; n < 12; n++) {
      found.push((await verify(token, { code: wrongCode(made) })).status);
      if (n === 5) await endWindows('second_factor');
    }
    expect(found).toEqual([...times(10, 401), 429, 429]);
    expect((await verify(token, { code: made.code() })).error).toBe('rate_limited');
  });

  test('of strangers do not lock out a known device, whose own wrong codes are counted apart', async () => {
    const { app: made, account } = await userWithApp();
    const first = await logInWith(account, { code: made.code() });
    await nextMinute();
    const device = first.headers.get('x-known-device') ?? '';
    expect(await guess(account, made, 11)).toEqual([...times(10, 401), 429]);
    const { token } = await challenged(account, { device });
    const send = (code: string) => verify(token, { code }, service.anonymous, device);
    for (let n = 0; n < 9; n++) expect((await send(wrongCode(made))).status).toBe(401);
    expect((await send(made.code())).status).toBe(200);
    await nextMinute();
    // Its success resets its own budget and not that of strangers.
    expect((await logInWith(account, { code: made.code() })).error).toBe('rate_limited');
    const { token: next } = await challenged(account, { device });
    const found: number[] = [];
    for (let n = 0; n < 11; n++)
      found.push((await verify(next, { code: wrongCode(made) }, service.anonymous, device)).status);
    expect(found).toEqual([...times(10, 401), 429]);
  });

  test('at the same time are all counted', async () => {
    const { app: made, account } = await userWithApp();
    const { token } = await challenged(account);
    const answers = await Promise.all(Array.from({ length: 20 }, () => verify(token, { code: wrongCode(made) })));
    expect(answers.map(({ status }) => status).toSorted()).toEqual([...times(10, 401), ...times(10, 429)]);
  });

  test('count at the set-up and at turning it off, too', async () => {
    const { user, app: made } = await userWithApp();
    const found: number[] = [];
    for (let n = 0; n < 11; n++) {
      const answer = await user.send('DELETE', '/api/auth/two-factor', { body: { code: wrongCode(made) } });
      found.push(answer.status);
    }
    expect(found).toEqual([...times(10, 401), 429]);
    expect((await user.post('/api/auth/two-factor/totp/confirm', { code: '123456' }, 429)).error).toBe('rate_limited');
  });

  test('do not reset the wrong passwords: a challenge is no successful login', async () => {
    const { account } = await userWithApp();
    const ip = { 'X-Forwarded-For': freshIp() };
    const send = (password: string) =>
      service.anonymous.send('POST', '/api/auth/login', { body: { ...account, password }, headers: ip });
    for (let n = 0; n < 9; n++) await send('wrong password');
    expect((await send(testPassword)).error).toBe('second_factor_required');
    expect((await send('wrong password')).error).toBe('rate_limited');
  });
});

describe('a remembered device', () => {
  const remembered = async (of = userWithApp()) => {
    const made = await of;
    const answer = await logInWith(made.account, { code: made.app.code(), remember_device: true });
    expect(answer.status).toBe(200);
    await nextMinute();
    return { ...made, session: answer, device: answer.headers.get('x-known-device') ?? '' };
  };

  test('needs no second factor for 30 days, also after a logout', async () => {
    const { account, device, session } = await remembered();
    const own = service.anonymous.with({ Authorization: `Bearer ${session.data.access_token}` });
    await own.post('/api/auth/logout');
    const again = await sendPassword(account, { device });
    expect(again.status).toBe(200);
    // The token of the device alone is not enough, and the second login does not begin another 30 days.
    expect((await sendPassword(account, { device, password: 'wrong password' })).status).toBe(401);
    await challenged(account);
    const rows = await service.database.everywhere<{ days: number }>(
      `select distinct round(extract(epoch from remembered_until - now()) / 86400)::integer as days
       from platform.session where remembered_until is not null and email = $1`,
      [account.email],
    );
    expect(rows).toEqual([{ days: 30 }]);
    await service.database.everywhere(
      "update platform.session set remembered_until = remembered_until - interval '30 days' where email = $1",
      [account.email],
    );
    await challenged(account, { device });
  });

  test('is not remembered unless the user asks for it, and not for another user', async () => {
    const { account, app: made } = await userWithApp();
    const other = await remembered();
    const answer = await logInWith(account, { code: made.code() });
    await challenged(account, { device: answer.headers.get('x-known-device') ?? '' });
    await challenged(account, { device: other.device });
  });

  test('is forgotten at a new password, at the end of its session, and when the second factor changes', async () => {
    type Remembered = Awaited<ReturnType<typeof remembered>>;
    const own = ({ session }: Remembered) =>
      service.anonymous.with({ Authorization: `Bearer ${session.data.access_token}` });
    const changes: [string, (of: Remembered) => Promise<{ password?: string }>][] = [
      [
        'a new password, set on this device',
        async (of) => {
          const body = { current_password: testPassword, password: 'another password' };
          await own(of).post('/api/auth/password/change', body);
          return { password: 'another password' };
        },
      ],
      [
        'the end of its session',
        async (of) => {
          const { data } = await own(of).get<{ id: number; is_current: boolean }[]>('/api/auth/sessions');
          const current = data.find(({ is_current }) => is_current);
          await of.user.delete(`/api/auth/sessions/${current?.id}`);
          return {};
        },
      ],
      [
        'another app',
        async (of) => {
          await enable(of.user);
          return {};
        },
      ],
      [
        'a reset of the second factor, after which the user sets up another one',
        async (of) => {
          await school.admin.delete(`/api/users/${of.user.id}/two-factor`);
          await enable(of.user);
          return {};
        },
      ],
    ];
    for (const [, change] of changes) {
      const of = await remembered();
      expect((await sendPassword(of.account, { device: of.device })).status).toBe(200);
      const attempt = await change(of);
      await challenged(of.account, { device: of.device, ...attempt });
    }
  });
});

describe('a remembered device that logs in at the same time', () => {
  test.each(['another app', 'turning it off', 'a reset by an admin', 'the end of its session'])(
    'is forgotten at %s',
    async (change) => {
      const { user, app: made, account } = await userWithApp();
      const first = await logInWith(account, { code: made.code(), remember_device: true });
      await nextMinute();
      const device = first.headers.get('x-known-device') ?? '';
      const { data: sessions } = await user.get<{ id: number; is_current: boolean }[]>('/api/auth/sessions');
      const { data } = await user.post<{ secret: string }>('/api/auth/two-factor/totp', { password: testPassword });
      const next = app(data.secret);
      const changes: Record<string, () => Promise<{ status: number }>> = {
        'another app': () => user.send('POST', '/api/auth/two-factor/totp/confirm', { body: { code: next.code() } }),
        'turning it off': () =>
          user.send('DELETE', '/api/auth/two-factor', { body: { recovery_code: made.recoveryCodes[0] } }),
        'a reset by an admin': () => school.admin.send('DELETE', `/api/users/${user.id}/two-factor`, {}),
        'the end of its session': () =>
          user.send('DELETE', `/api/auth/sessions/${sessions.find(({ is_current }) => !is_current)?.id}`, {}),
      };
      const lock = `select from ${school.schema}.user_account where id = ${user.id} for update`;
      const [, answer] = await race<{ status: number }>(service.database, lock, 2, () => [
        sendPassword(account, { device }),
        changes[change]?.() ?? Promise.reject(new Error(change)),
      ]);
      expect(answer?.status).toBe(200);
      if (!(await twoFactor(user)).is_enabled) await enable(user);
      await challenged(account, { device });
    },
  );
});

describe('turning it off', () => {
  test('needs the password, a code or a recovery code', async () => {
    for (const proof of ['password', 'code', 'recovery_code'] as const) {
      const { user, app: made, account } = await userWithApp();
      const off = (body: object, status: number) => user.send('DELETE', '/api/auth/two-factor', { body }, status);
      await off({}, 400);
      await off({ password: 'wrong password' }, 401);
      await off({ code: wrongCode(made) }, 401);
      await off({ recovery_code: 'aaaaa-aaaaa-aaaaa-aaaaa' }, 401);
      expect((await twoFactor(user)).is_enabled).toBe(true);
      const right = { password: testPassword, code: made.code(), recovery_code: made.recoveryCodes[0] };
      await off({ [proof]: right[proof] }, 200);
      expect((await sendPassword(account)).status).toBe(200);
      expect((await off({ password: testPassword }, 409)).error).toBe('invalid_state');
      await mailTo(service, user.email, 'Two-factor login is off');
    }
  });
});

describe('a password reset or an invitation', () => {
  test('opens no session and does not replace the second factor', async () => {
    const { user, app: made, account } = await userWithApp();
    await service.anonymous.post('/api/auth/password/forgot', account);
    const { token } = await mailTo(service, user.email, 'Reset your password');
    const answer = await service.anonymous.post<object>('/api/auth/password/reset', {
      token,
      password: 'after a reset',
    });
    expect(answer.data).toEqual({ id: user.id });
    expect(answer.headers.get('x-refresh-token')).toBeNull();
    const challenge = await challenged(account, { password: 'after a reset' });
    expect((await verify(challenge.token, { code: made.code() })).status).toBe(200);
  });
});

describe('a reset by an admin', () => {
  test('lets the user log in with the password, is audited, and sends the user an email', async () => {
    const { user, account } = await userWithApp();
    const { token } = await challenged(account);
    await school.admin.delete(`/api/users/${user.id}/two-factor`);
    expect((await verify(token, { recovery_code: 'aaaaa' })).error).toBe('invalid_token');
    expect((await sendPassword(account)).status).toBe(200);
    await mailTo(service, user.email, 'Your second factor was reset');
    const [entry] = await school.database.query(
      "select actor_email, tenant_id::integer, target_type, target_id::integer from platform.audit_log where action = 'second_factor.reset' order by id desc limit 1",
    );
    expect(entry).toEqual({
      actor_email: school.adminEmail,
      tenant_id: school.id,
      target_type: 'user',
      target_id: user.id,
    });
    expect((await school.admin.delete(`/api/users/${user.id}/two-factor`, 409)).error).toBe('invalid_state');
  });

  test('gives a user whose codes are locked a new budget', async () => {
    const { user, app: made, account } = await userWithApp();
    const { token } = await challenged(account);
    for (let n = 0; n < 10; n++) await verify(token, { code: wrongCode(made) });
    expect((await verify(token, { code: made.code() })).error).toBe('rate_limited');
    await school.admin.delete(`/api/users/${user.id}/two-factor`);
    const next = await enable(user);
    await nextMinute();
    expect((await logInWith(account, { code: next.code() })).status).toBe(200);
  });

  test('needs user.update and all permissions of the user, and is not for oneself or another school', async () => {
    const { user } = await userWithApp();
    const clerk = await school.user([await school.role('user.read', 'user.update')]);
    const reader = await school.user([await school.role('user.read')]);
    expect((await reader.delete(`/api/users/${user.id}/two-factor`, 403)).error).toBe('forbidden');
    const admin = await userWithApp(['admin']);
    expect((await clerk.delete(`/api/users/${admin.user.id}/two-factor`, 403)).error).toBe('forbidden');
    expect((await admin.user.delete(`/api/users/${admin.user.id}/two-factor`, 409)).error).toBe('conflict');
    const other = await service.school();
    await other.admin.delete(`/api/users/${user.id + 1000}/two-factor`, 404);
    expect((await twoFactor(user)).is_enabled).toBe(true);
  });
});

describe('the users of a school', () => {
  test('have has_second_factor, which is no part of their version', async () => {
    const user = await school.user(['teacher']);
    const path = `/api/users/${user.id}`;
    const before = await school.admin.get<{ has_second_factor: boolean }>(path);
    expect(before.data.has_second_factor).toBe(false);
    // An app that is not confirmed is no second factor.
    await user.post('/api/auth/two-factor/totp', { password: testPassword });
    expect((await school.admin.get<{ has_second_factor: boolean }>(path)).data.has_second_factor).toBe(false);
    await enable(user);
    const after = await school.admin.get<{ has_second_factor: boolean }>(path);
    expect(after.data.has_second_factor).toBe(true);
    const { data: list } = await school.admin.get<{ id: number; has_second_factor: boolean }[]>(
      `/api/users?search=${encodeURIComponent(user.email)}`,
    );
    expect(list.map(({ id, has_second_factor }) => [id, has_second_factor])).toEqual([[user.id, true]]);
    // A form may send the record back as it was read.
    const headers = { 'If-Match': before.headers.get('etag') ?? '' };
    await school.admin.send('PUT', path, { body: { ...before.data, first_name: 'Grace' }, headers }, 200);
    await school.admin.put(path, { has_second_factor: false });
    expect((await school.admin.get<{ has_second_factor: boolean }>(path)).data.has_second_factor).toBe(true);
  });

  test('take their second factor with them when they are deleted', async () => {
    const factorsOf = async (userId: number) =>
      (
        await school.database.query('select from platform.second_factor where user_id = $1 and tenant_id = $2', [
          userId,
          school.id,
        ])
      ).length;
    const { user } = await userWithApp();
    expect(await factorsOf(user.id)).toBe(1);
    await school.admin.delete(`/api/users/${user.id}`);
    expect(await factorsOf(user.id)).toBe(0);
    const begun = await school.user(['teacher']);
    await begun.post('/api/auth/two-factor/totp', { password: testPassword });
    await school.admin.delete(`/api/users/${begun.id}`);
    expect(await factorsOf(begun.id)).toBe(0);
  });
});

describe('a school that requires a second factor of its staff', () => {
  test('lets staff without one do nothing but set one up, and does not concern students', async () => {
    const of = await service.school();
    const teacher = await of.user(['teacher']);
    const student = await of.user(['student']);
    const clerk = await of.user([await of.role('setup.manage')]);
    const require = (by: Client, is_second_factor_required: boolean, status = 200) =>
      by.post<{ is_second_factor_required: boolean }>(
        '/api/school-setup/school-info',
        { is_second_factor_required },
        status,
      );
    expect((await require(clerk, true, 403)).error).toBe('forbidden');
    expect((await require(of.admin, true, 409)).error).toBe('invalid_state');
    const adminApp = await enable(of.admin);
    expect((await require(of.admin, true)).data.is_second_factor_required).toBe(true);

    // Sessions of staff without a second factor end at the next refresh. Others continue.
    const refresh = (by: Client) =>
      service.anonymous.send('POST', '/api/auth/refresh', { headers: { 'X-Refresh-Token': by.refreshToken } });
    expect(await refresh(teacher)).toMatchObject({ status: 401, error: 'invalid_token' });
    await teacher.get('/api/auth/profile', 401);
    expect((await refresh(student)).status).toBe(200);
    expect((await refresh(of.admin)).status).toBe(200);
    expect((await sendPassword({ tenant_id: of.id, email: student.email })).status).toBe(200);

    const account = { tenant_id: of.id, email: teacher.email };
    const challenge = await challenged(account);
    expect(challenge).toMatchObject({ is_enrollment: true, methods: [], passkey: null });
    for (const fields of [{ code: '123456' }, { recovery_code: 'aaaaa' }, { passkey: { id: 'AAAA' } }])
      expect((await verify(challenge.token, fields)).error).toBe('invalid_code');
    const { data } = await service.anonymous.post<{ secret: string }>('/api/auth/login/enroll', {
      challenge: challenge.token,
    });
    const made = app(data.secret);
    expect((await verify(challenge.token, { code: adminApp.code(1) })).error).toBe('invalid_code');
    const answer = await verify(challenge.token, { code: made.code() });
    expect(answer.status).toBe(200);
    expect(answer.data.recovery_codes).toHaveLength(10);
    const own = service.anonymous.with({ Authorization: `Bearer ${answer.data.access_token}` });
    expect(await twoFactor(own)).toMatchObject({ is_enabled: true, is_required: true });
    const off = await own.send('DELETE', '/api/auth/two-factor', { body: { password: testPassword } });
    expect(off).toMatchObject({ status: 409, error: 'invalid_state' });
    expect((await verify(challenge.token, { code: made.code(1) })).error).toBe('invalid_token');
    expect((await logInWith(account, { recovery_code: answer.data.recovery_codes?.[0] })).status).toBe(200);

    // After a reset the user has to set up another one.
    await of.admin.delete(`/api/users/${teacher.id}/two-factor`);
    expect((await challenged(account)).is_enrollment).toBe(true);
    await require(of.admin, false);
    expect((await sendPassword(account)).status).toBe(200);
    const entries = await of.database.query<{ changes: unknown }>(
      "select changes from platform.audit_log where tenant_id = $1 and changes ? 'is_second_factor_required' order by id",
      [of.id],
    );
    expect(entries.map(({ changes }) => changes)).toEqual([
      { is_second_factor_required: { before: false, after: true } },
      { is_second_factor_required: { before: true, after: false } },
    ]);
  });

  test('asks invited staff to set one up at their first login', async () => {
    const of = await service.school();
    await enable(of.admin);
    await of.admin.post('/api/school-setup/school-info', { is_second_factor_required: true });
    const { data: roles } = await of.admin.get<{ id: number; name: string }[]>('/api/rbac/roles');
    const email = `invited@${of.subdomain}.example`;
    const role_ids = [roles.find(({ name }) => name === 'teacher')?.id];
    await of.admin.post('/api/users', { email, first_name: 'In', last_name: 'Vited', role_ids }, 201);
    const { token } = await mailTo(service, email, 'Your account');
    await service.anonymous.post('/api/auth/password/reset', { token, password: 'the first password' });
    const account = { tenant_id: of.id, email };
    expect((await challenged(account, { password: 'the first password' })).is_enrollment).toBe(true);
  });

  test('an enrollment ends when somebody else has set up the second factor meanwhile', async () => {
    const of = await service.school();
    const teacher = await of.user(['teacher']);
    await enable(of.admin);
    await of.admin.post('/api/school-setup/school-info', { is_second_factor_required: true });
    const account = { tenant_id: of.id, email: teacher.email };
    const [one, two] = [await challenged(account), await challenged(account)];
    const begin = async ({ token }: Challenge) =>
      app(
        (await service.anonymous.post<{ secret: string }>('/api/auth/login/enroll', { challenge: token })).data.secret,
      );
    const made = await begin(one);
    expect((await verify(one.token, { code: made.code() })).status).toBe(200);
    expect((await service.anonymous.post('/api/auth/login/enroll', { challenge: two.token }, 401)).error).toBe(
      'invalid_token',
    );
    expect((await verify(two.token, { code: made.code(1) })).error).toBe('invalid_token');
    expect((await challenged(account)).is_enrollment).toBe(false);
  });
});

describe('operators', () => {
  test('set up an app, and another operator resets it', async () => {
    const { account, email, client: own } = await addOperator();
    await enable(own);
    await challenged(account);
    const reset = (of: string, status = 200) =>
      service.operator.post('/api/platform/operators/second-factor-reset', { email: of }, status);
    expect((await reset(operatorEmail, 409)).error).toBe('conflict');
    expect((await reset('nobody@test.example', 404)).error).toBe('not_found');
    await reset(email);
    expect((await sendPassword(account)).status).toBe(200);
    await mailTo(service, email, 'Your second factor was reset');
    expect((await reset(email, 409)).error).toBe('invalid_state');
    const { data: entries } = await service.operator.get<{ action: string }[]>('/api/platform/audit-logs?pageSize=50');
    expect(entries.map(({ action }) => action)).toEqual(
      expect.arrayContaining(['second_factor.reset', 'operator.second_factor']),
    );
    const admin = await school.admin.post('/api/platform/operators/second-factor-reset', { email }, 403);
    expect(admin.error).toBe('forbidden');
  });

  test('take their second factor with them when they are deleted', async () => {
    const { email, client: own } = await addOperator();
    await enable(own);
    const rows = () =>
      service.database.query(
        'select from platform.second_factor join platform.user_account u on u.id = user_id where tenant_id is null and email = $1',
        [email],
      );
    expect(await rows()).toHaveLength(1);
    await service.database.query('update platform.user_account set deleted_at = now() where email = $1', [email]);
    expect(await rows()).toHaveLength(0);
  });

  test('need one if OPERATORS_NEED_SECOND_FACTOR is true, and then an impersonation needs it as well', async () => {
    const { account, client: own } = await addOperator();
    const strict = await otherProcess({ OPERATORS_NEED_SECOND_FACTOR: 'true' });
    // School users are not concerned.
    const teacher = await school.user(['teacher']);
    expect((await sendPassword({ tenant_id: school.id, email: teacher.email }, { at: strict })).status).toBe(200);
    const refreshed = await strict.send('POST', '/api/auth/refresh', {
      headers: { 'X-Refresh-Token': own.refreshToken },
    });
    expect(refreshed).toMatchObject({ status: 401, error: 'invalid_token' });
    const impersonate = `/api/platform/tenants/${school.id}/impersonate`;
    expect((await own.post(impersonate, { reason: 'To see whether it works.' }, 401)).error).toBe('invalid_token');
    const challenge = await challenged(account, { at: strict });
    expect(challenge.is_enrollment).toBe(true);
    const { data } = await strict.post<{ secret: string }>('/api/auth/login/enroll', { challenge: challenge.token });
    const answer = await verify(challenge.token, { code: app(data.secret).code() }, strict);
    const bearer = strict.with({ Authorization: `Bearer ${answer.data.access_token}` });
    expect(await twoFactor(bearer)).toMatchObject({ is_enabled: true, is_required: true });
    await bearer.post(impersonate, { reason: 'To see whether it works.' });
    const off = await bearer.send('DELETE', '/api/auth/two-factor', { body: { password: testPassword } });
    expect(off.error).toBe('invalid_state');
  });
});

describe('an impersonation', () => {
  test('cannot set up, change or remove the second factor of the admin, or require one of the school', async () => {
    const of = await service.school();
    const made = await enable(of.admin);
    await nextMinute();
    const { data } = await service.operator.post<{ access_token: string }>(
      `/api/platform/tenants/${of.id}/impersonate`,
      { reason: 'To see what is refused.' },
    );
    const as = service.anonymous.with({ Authorization: `Bearer ${data.access_token}` });
    const password = testPassword;
    const teacher = await of.user(['teacher']);
    await enable(teacher);
    for (const [method, path, body] of [
      ['POST', '/api/auth/two-factor/totp', { password }],
      ['POST', '/api/auth/two-factor/totp/confirm', { code: made.code() }],
      ['POST', '/api/auth/two-factor/recovery-codes', { password }],
      ['DELETE', '/api/auth/two-factor', { password }],
      ['DELETE', '/api/auth/two-factor', { code: made.code() }],
      ['DELETE', `/api/users/${teacher.id}/two-factor`, {}],
      ['POST', '/api/school-setup/school-info', { is_second_factor_required: true }],
    ] as const)
      expect((await as.send(method, path, { body }, 403)).error).toBe('forbidden');
    expect((await twoFactor(of.admin)).is_enabled).toBe(true);
  });
});

test('a new secret in JWT_SECRETS takes over the second factors, so that the old one can be removed', async () => {
  const { app: made, account, user } = await userWithApp();
  const keyOf = async () =>
    (
      await school.database.query<{ key: string }>(
        "select split_part(secret, '.', 1) as key from platform.second_factor where tenant_id = $1 and user_id = $2",
        [school.id, user.id],
      )
    )[0]?.key;
  const oldKey = await keyOf();
  // One that no process can decrypt must not keep the others from being taken over.
  const damaged = await userWithApp();
  await service.database.everywhere(
    `update platform.second_factor set secret = split_part(secret, '.', 1) || '.AAAAAAAAAAAAAAAA.AAAA.AAAAAAAAAAAAAAAAAAAAAA'
     where tenant_id = $1 and user_id = $2`,
    [school.id, damaged.user.id],
  );
  const { token: ofDamaged } = await challenged(damaged.account);
  expect((await verify(ofDamaged, { code: damaged.app.code() })).error).toBe('unavailable');
  const old = 'a secret of the tests that is long enough';
  const next = 'the next secret of the tests that is long enough';
  const lost = await otherProcess({ JWT_SECRETS: next });
  const { token } = await challenged(account, { at: lost });
  const refused = await verify(token, { code: made.code() }, lost);
  expect(refused).toMatchObject({ status: 503, error: 'unavailable' });
  expect((await verify(token, { recovery_code: made.recoveryCodes[0] }, lost)).status).toBe(200);
  await otherProcess({ JWT_SECRETS: `${next},${old}` });
  await until(async () => (await keyOf()) !== oldKey || undefined);
  await nextMinute();
  expect((await verify((await challenged(account, { at: lost })).token, { code: made.code() }, lost)).status).toBe(200);
});
