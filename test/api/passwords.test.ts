import { describe, expect, test } from '@jest/globals';
import { hash } from 'argon2';
import { serviceWithSchool } from '../support/server/service.ts';
import { send } from '../support/client/wire.ts';

const { service, school } = await serviceWithSchool();

let count = 0;

/** A user of the school with this password. */
async function userWith(password: string): Promise<string> {
  count += 1;
  const email = `user${String(count)}@example.org`;
  await school.admin.post('/api/users', { email, first_name: 'Ada', last_name: 'Byron', role_ids: [], password }, 201);
  return email;
}

const login = (email: string, password: string | Buffer) =>
  send(service.url, {
    method: 'POST',
    path: '/api/auth/login',
    body: Buffer.isBuffer(password)
      ? Buffer.concat([
          Buffer.from(`{"tenant_id":${String(school.id)},"email":"${email}","password":"`),
          password,
          Buffer.from('"}'),
        ])
      : { tenant_id: school.id, email, password },
  });

const storedHash = async (email: string) =>
  (
    await school.database.query<{ password_hash: string }>(
      `select password_hash from ${school.schema}.user_account where email = $1`,
      [email],
    )
  )[0]?.password_hash ?? '';

/** A user whose hash is of the password as typed, as earlier versions stored it. */
async function userOfEarlierVersion(password: string): Promise<string> {
  const email = await userWith('another password');
  await school.database.query(`update ${school.schema}.user_account set password_hash = $1 where email = $2`, [
    await hash(password, { memoryCost: 1024, timeCost: 1, parallelism: 1 }),
    email,
  ]);
  return email;
}

describe('a password is the same in every form in which it can be typed', () => {
  test.each([
    ['Zo\u00eb-password', 'Zoe\u0308-password'],
    ['Zoe\u0308-password', 'Zo\u00eb-password'],
    ['pass word 1234', 'pass\u00a0word\u20031234'],
    ['\u3000pass word', ' pass word'],
    ['\uac00\ub098\ub2e4 password', '\u1100\u1161\u1102\u1161\u1103\u1161 password'],
    ['\u212bngstr\u00f6m', '\u00c5ngstro\u0308m'],
  ])('%j is also %j', async (set, typed) => {
    const email = await userWith(set);
    expect((await login(email, typed)).status).toBe(200);
    expect((await login(email, set)).status).toBe(200);
  });

  test.each([
    ['ＡＢＣ password', 'ABC password'],
    ['Password-x', 'password-x'],
    ['pass  word 12', 'pass word 12'],
    [' padded password ', 'padded password'],
    ['\ufb01sh password', 'fish password'],
  ])('%j is not %j', async (set, typed) => {
    const email = await userWith(set);
    expect((await login(email, typed)).status).toBe(401);
    expect((await login(email, set)).status).toBe(200);
  });
});

test('two passwords with different invalid bytes are refused, and not the same password', async () => {
  const email = await userWith('p\ufffdssword');
  for (const byte of [0xe4, 0xfc]) {
    const password = Buffer.from([0x70, byte, 0x73, 0x73, 0x77, 0x6f, 0x72, 0x64]);
    const refused = await login(email, password);
    expect([refused.status, refused.json?.error]).toEqual([400, 'malformed_json']);
  }
  const half = await login(email, Buffer.from('p\\ud800ssword'));
  expect(half.json?.details).toEqual([{ path: 'password', message: 'is not valid Unicode text' }]);
});

describe('a password that an earlier version stored as it was typed', () => {
  test.each(['Zoe\u0308-password', 'pass\u00a0word 12', 'pass\u200dword', 'tab\tpassword', 'p\u0001ssword', '\u00a0'])(
    '%j still works, and then also in its prepared form',
    async (typed) => {
      const prepared = typed.replace(/\p{Zs}/gu, ' ').normalize();
      const email = await userOfEarlierVersion(typed);
      const before = await storedHash(email);
      if (prepared !== typed) expect((await login(email, prepared)).status).toBe(401);
      expect((await login(email, typed)).status).toBe(200);
      expect((await storedHash(email)) === before).toBe(prepared === typed);
      expect((await login(email, prepared)).status).toBe(200);
      expect((await login(email, typed)).status).toBe(200);
      expect((await login(email, `${typed}x`)).status).toBe(401);
    },
  );

  test('is accepted as the current password', async () => {
    const email = await userOfEarlierVersion('Zoe\u0308-password');
    const token = ((await login(email, 'Zoe\u0308-password')).json?.data as { access_token: string }).access_token;
    await school.database.query(`update ${school.schema}.user_account set password_hash = $1 where email = $2`, [
      await hash('Zoe\u0308-password', { memoryCost: 1024, timeCost: 1, parallelism: 1 }),
      email,
    ]);
    const change = (body: object) =>
      send(service.url, { method: 'POST', path: '/api/auth/password/change', token, body }).then(
        ({ status }) => status,
      );
    expect(await change({ current_password: 'Zoe\u0308-password', password: 'new password \u00e9' })).toBe(200);
    expect((await login(email, 'new password e\u0301')).status).toBe(200);
  });
});

test.each([
  ['a control character', 'pass\u0007word'],
  ['a tab', 'pass\tword'],
  ['a zero-width space', 'pass\u200bword'],
  ['a joiner between Latin letters', 'pass\u200dword'],
  ['a soft hyphen', 'pass\u00adword'],
  ['a byte order mark', '\ufeffpassword'],
  ['an unassigned character', 'password\u{e0fff}'],
  ['a noncharacter', 'password\ufdd0'],
  ['a private character', 'password\ue000'],
  ['too few characters once it is prepared', 'e\u0301'.repeat(4)],
  ['fewer than eight characters', 'passwor'],
])('a new password with %s is refused, and the field is named', async (_what, password) => {
  const body = { email: 'refused@example.org', first_name: 'Ada', last_name: 'Byron', role_ids: [], password };
  const answer = await send(service.url, { method: 'POST', path: '/api/users', token: school.admin.token, body });
  expect([answer.status, answer.json?.details?.[0]?.path]).toEqual([400, 'password']);
});

test.each([
  ['letters of any script', 'پاسورد-密碼-пароль'],
  ['a joiner in a Persian word', 'می\u200cخواهم ۱۲'],
  ['a joiner in a Hindi word', 'क्\u200dष पासवर्ड'],
  ['symbols and emoji', 'pass 😀 €word'],
])('a new password may have %s', async (_what, password) => {
  expect((await login(await userWith(password), password)).status).toBe(200);
});
