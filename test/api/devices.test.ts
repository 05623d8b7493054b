import { createECDH, randomBytes } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { race } from '../support/client/race.ts';
import { type School, serviceWithSchool } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Device as DeviceSchema } from '../../src/endpoints/devices.ts';

const vapid = createECDH('prime256v1');
vapid.generateKeys();
const { service, school } = await serviceWithSchool({
  VAPID_PUBLIC_KEY: vapid.getPublicKey('base64url'),
  VAPID_PRIVATE_KEY: vapid.getPrivateKey('base64url'),
  VAPID_SUBJECT: 'mailto:push@test.example',
});

type Device = OutputOf<typeof DeviceSchema>;

const register = async (client: { post: School['admin']['post'] }, token: string, platform = 'ios') =>
  (await client.post<Device>('/api/devices/register', { token, platform })).data;
const stored = (token: string, at = school) =>
  service.database.query<{ user_id: number; platform: string }>(
    `select user_id::integer, platform from ${at.schema}.device where token = $1`,
    [token],
  );
const path = (token: string) => `/api/devices/${encodeURIComponent(token)}`;

test('every user of a school can register a device, and operators cannot', async () => {
  for (const role of ['teacher', 'student']) {
    const user = await school.user([role]);
    const device = await register(user, `${role} phone`, 'android');
    expect(device).toMatchObject({ token: `${role} phone`, platform: 'android' });
    expect(await stored(`${role} phone`)).toEqual([{ user_id: user.id, platform: 'android' }]);
  }
  expect((await service.operator.post('/api/devices/register', { token: 'console', platform: 'ios' }, 403)).error).toBe(
    'forbidden',
  );
});

test('registering a token again updates the platform of the same device', async () => {
  const user = await school.user([]);
  const first = await register(user, 'again');
  const second = await register(user, 'again', 'android');
  expect(second).toEqual({ ...first, platform: 'android', updated_at: second.updated_at });
  expect(await stored('again')).toEqual([{ user_id: user.id, platform: 'android' }]);
});

test('a user keeps the 20 most recent devices, and devices of other users are unaffected', async () => {
  const [user, other] = [await school.user(['student']), await school.user(['student'])];
  await register(other, 'of another');
  for (let n = 1; n <= 20; n++) await register(user, `device ${n}`);
  await register(user, 'device 1');
  await register(user, 'device 21');
  const tokens = await service.database.query<{ token: string }>(
    `select token from ${school.schema}.device where user_id = $1`,
    [user.id],
  );
  const expected = Array.from({ length: 21 }, (_, n) => `device ${n + 1}`).filter((token) => token !== 'device 2');
  expect(tokens.map(({ token }) => token).sort()).toEqual(expected.sort());
  expect(await stored('of another')).toHaveLength(1);
});

test('a token belongs to the user who registered it last', async () => {
  const [before, after] = [await school.user(['student']), await school.user(['student'])];
  const device = await register(before, 'shared tablet');
  expect((await register(after, 'shared tablet')).id).toBe(device.id);
  expect(await stored('shared tablet')).toEqual([{ user_id: after.id, platform: 'ios' }]);
  expect((await before.delete(path('shared tablet'), 404)).error).toBe('not_found');
  expect((await after.delete(path('shared tablet'))).data).toEqual({ id: device.id });
});

test('two users who register a token concurrently get one device, which belongs to one of them', async () => {
  const users = [await school.user([]), await school.user([])];
  const answers = await race(service.database, `lock table ${school.schema}.device in share mode`, 2, () =>
    users.map((user) =>
      user.send<Device>('POST', '/api/devices/register', { body: { token: 'raced', platform: 'ios' } }),
    ),
  );
  expect(answers.map(({ status }) => status)).toEqual([200, 200]);
  expect(answers[0]?.data.id).toBe(answers[1]?.data.id);
  const left = await stored('raced');
  expect(left).toHaveLength(1);
  expect(users.map(({ id }) => id)).toContain(left[0]?.user_id);
});

test('only its user can remove a device; everyone else, including the admin, gets 404', async () => {
  const [owner, other] = [await school.user([]), await school.user([])];
  await register(owner, 'mine');
  const foreign = await other.delete(path('mine'), 404);
  const unknown = await other.delete(path('nobody has this'), 404);
  expect([foreign.error, foreign.message]).toEqual([unknown.error, unknown.message]);
  await school.admin.delete(path('mine'), 404);
  expect(await stored('mine')).toEqual([{ user_id: owner.id, platform: 'ios' }]);
  await owner.delete(path('mine'));
  expect(await stored('mine')).toEqual([]);
  await owner.delete(path('mine'), 404);
});

test.each(['https://push.example/a/b?c=d&e=%20', 'a:b/c+d==', 'ключ 🔑', '%2F', "';--", 'x'.repeat(4096)])(
  'the token %p is stored unchanged, and found by its path',
  async (token) => {
    const user = await school.user([]);
    expect((await register(user, token)).token).toBe(token);
    await user.delete(path(token));
    expect(await stored(token)).toEqual([]);
  },
);

test.each<[Record<string, unknown>, string[]]>([
  [{}, ['platform', 'token']],
  [{ token: '', platform: 'ios' }, ['token']],
  [{ token: 'a\0b', platform: 'ios' }, ['token']],
  [{ token: 'x'.repeat(4097), platform: 'ios' }, ['token']],
  [{ token: 'x', platform: 'palm' }, ['platform']],
  [{ token: 'x', platform: 'ios', user_id: 1 }, ['user_id']],
])('%j returns 400 and names the fields', async (body, paths) => {
  const refused = await school.admin.post('/api/devices/register', body, 400);
  expect(refused.details.map((detail) => detail.path).sort()).toEqual(paths);
});

test('one token in two schools is two devices, and each user removes their own', async () => {
  const other = await service.school();
  await register(school.admin, 'two schools');
  await register(other.admin, 'two schools');
  await other.admin.delete(path('two schools'));
  expect([await stored('two schools', other), (await stored('two schools')).length]).toEqual([[], 1]);
});

test('devices are deleted with their user', async () => {
  const user = await school.user([]);
  await register(user, 'goes along');
  await service.database.query(`delete from ${school.schema}.user_account where id = $1`, [user.id]);
  expect(await stored('goes along')).toEqual([]);
});

test('a browser can register a Firebase token instead of a subscription', async () => {
  const user = await school.user(['student']);
  const device = await register(user, 'c5Zt:APA91bH_web', 'web');
  expect(device).toMatchObject({ token: 'c5Zt:APA91bH_web', platform: 'web' });
  expect((await user.delete(path('c5Zt:APA91bH_web'))).data).toEqual({ id: device.id });
});

describe('a browser subscription', () => {
  const keys = {
    p256dh: createECDH('prime256v1').generateKeys('base64url'),
    auth: randomBytes(16).toString('base64url'),
  };
  const subscription = (endpoint: string, over: object = {}) =>
    JSON.stringify({ endpoint, expirationTime: null, keys, ...over });

  test.each([
    'https://fcm.googleapis.com/fcm/send/a:b',
    'https://updates.push.services.mozilla.com/wpush/v2/a',
    'https://web.push.apple.com/a',
    'https://db5p.notify.windows.com/w/?token=a%3d',
  ])(
    'at %s is registered once, ignoring key order and other fields of its JSON, and is removed by its JSON',
    async (endpoint) => {
      const user = await school.user(['student']);
      const first = await register(user, subscription(endpoint), 'web');
      expect(JSON.parse(first.token)).toEqual({ endpoint, keys });
      const second = await register(user, JSON.stringify({ keys, endpoint, expirationTime: 1 }, null, 1), 'web');
      expect(second.id).toBe(first.id);
      expect((await user.delete(path(subscription(endpoint)))).data).toEqual({ id: first.id });
      await register(user, subscription(endpoint), 'web');
      await user.delete(path(first.token));
    },
  );

  test.each([
    ['text that begins like JSON', '{fcm:APA91bH'],
    ['a JSON string', '"https://fcm.googleapis.com/a"'],
    ['null', 'null'],
    ['a relative endpoint', subscription('push')],
    ['an unknown push service', subscription('https://push.example/a')],
    ['a host that begins with a known host', subscription('https://fcm.googleapis.com.evil.example/a')],
    ['a host that ends with a known host', subscription('https://evilfcm.googleapis.com/a')],
    ['the parent domain of known hosts', subscription('https://notify.windows.com/a')],
    ['an http endpoint', subscription('http://fcm.googleapis.com/a')],
    ['another port', subscription('https://fcm.googleapis.com:8443/a')],
    ['credentials in the URL', subscription('https://a:b@fcm.googleapis.com/a')],
    ['an allowed host as credentials before another host', subscription('https://fcm.googleapis.com@127.0.0.1/a')],
    ['the IPv4 loopback address', subscription('https://127.0.0.1/a')],
    ['the IPv6 loopback address', subscription('https://[::1]/a')],
    ['a cloud metadata address', subscription('http://169.254.169.254/latest')],
    [
      'a key that is too short',
      subscription('https://web.push.apple.com/a', { keys: { ...keys, p256dh: keys.p256dh.slice(2) } }),
    ],
    [
      'a key that is not a point on the curve',
      subscription('https://web.push.apple.com/a', {
        keys: { ...keys, p256dh: Buffer.alloc(65, 4).toString('base64url') },
      }),
    ],
    [
      'a secret that is too long',
      subscription('https://web.push.apple.com/a', { keys: { ...keys, auth: randomBytes(17).toString('base64url') } }),
    ],
    ['no keys', subscription('https://web.push.apple.com/a', { keys: undefined })],
  ])('with %s returns 400 and names the token', async (_case, token) => {
    const refused = await school.admin.post('/api/devices/register', { token, platform: 'web' }, 400);
    expect(refused.details.map((detail) => detail.path)).toEqual(['token']);
  });

  test('gets the subscription key for every user of a school, but not for operators or without a login', async () => {
    const user = await school.user(['student']);
    expect((await user.get('/api/devices/web-push-key')).data).toEqual({ public_key: vapid.getPublicKey('base64url') });
    await service.operator.get('/api/devices/web-push-key', 403);
    await service.anonymous.get('/api/devices/web-push-key', 401);
  });
});
