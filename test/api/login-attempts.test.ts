import { describe, expect, test } from '@jest/globals';
import { mailTo } from '../support/fakes/mail.ts';
import { operatorEmail, serviceWithSchool, testPassword, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool({ TRUST_PROXY: '1' });

interface Attempt {
  ip: string;
  password?: string;
  device?: string | undefined;
}
interface Account {
  email: string;
  [field: string]: unknown;
}

let serial = 0;
/** An address that no other attempt of this file used. */
const freshIp = () => `10.${++serial >> 16}.${(serial >> 8) & 255}.${serial & 255}`;

/** Tries to log in from an address. */
const attempt = (account: Account, { ip, password = 'wrong password', device }: Attempt) =>
  service.anonymous.send<{ user: { id: number } }>('POST', '/api/auth/login', {
    body: { ...account, password },
    headers: { 'X-Forwarded-For': ip, ...(device === undefined ? {} : { 'X-Known-Device': device }) },
  });
const statusOf = async (account: Account, options: Attempt) => (await attempt(account, options)).status;
const statuses = async (account: Account, options: Attempt, times: number) => {
  const found: number[] = [];
  for (let n = 0; n < times; n++) found.push(await statusOf(account, options));
  return found;
};
const times = (n: number, status: number) => Array.from({ length: n }, () => status);

/** A user without any attempt, and the token of a device from which they have logged in. */
async function account(): Promise<{ user: Account; id: number; device: string }> {
  const { email, id } = await school.user(['teacher']);
  const user = { tenant_id: school.id, email };
  const answer = await attempt(user, { ip: freshIp(), password: testPassword });
  return { user, id, device: answer.headers.get('x-known-device') ?? '' };
}

/** Guesses from as many addresses as it takes, until strangers get no further. */
async function spendAccount(user: Account) {
  const found: number[] = [];
  for (let n = 0; n < 3; n++) found.push(...(await statuses(user, { ip: freshIp() }, 10)));
  expect(found).toEqual(times(30, 401));
  expect(await statusOf(user, { ip: freshIp() })).toBe(429);
}

/** Ends the windows of 15 minutes, as if they had passed. */
const endWindows = (budget = 'address') =>
  service.database.everywhere(
    "update platform.login_throttle set window_ends_at = now() - interval '1 second' where budget = $1",
    [budget],
  );

describe('wrong passwords from one address', () => {
  test('lock the account for that address, not for the user at another one', async () => {
    const { user } = await account();
    const ip = freshIp();
    expect(await statuses(user, { ip }, 11)).toEqual([...times(10, 401), 429]);
    expect(await statusOf(user, { ip, password: testPassword })).toBe(429);
    expect(await statusOf(user, { ip: freshIp(), password: testPassword })).toBe(200);
  });

  test('are limited to 20 an hour, so that one address cannot spend the budget of all others', async () => {
    const { user } = await account();
    const ip = freshIp();
    for (let window = 0; window < 2; window++) {
      expect(await statuses(user, { ip }, 30)).toEqual([...times(10, 401), ...times(20, 429)]);
      await endWindows();
    }
    const refused = await attempt(user, { ip });
    expect(refused.status).toBe(429);
    const wait = Number(refused.headers.get('retry-after'));
    expect(wait).toBeGreaterThan(15 * 60);
    expect(wait).toBeLessThanOrEqual(60 * 60);
    expect(await statusOf(user, { ip: freshIp(), password: testPassword })).toBe(200);
    await endWindows('address_per_hour');
    await endWindows();
    expect(await statusOf(user, { ip })).toBe(401);
  });

  test('count for an IPv6 network as for one address, and for an IPv4 address in either notation', async () => {
    const { user } = await account();
    expect(await statuses(user, { ip: '2001:db8:1:100::1' }, 5)).toEqual(times(5, 401));
    expect(await statuses(user, { ip: '2001:db8:1:1ff::2' }, 6)).toEqual([...times(5, 401), 429]);
    expect(await statusOf(user, { ip: '2001:db8:1:200::1' })).toBe(401);
    const { user: second } = await account();
    expect(await statuses(second, { ip: '198.51.100.77' }, 5)).toEqual(times(5, 401));
    expect(await statuses(second, { ip: '::ffff:198.51.100.77' }, 6)).toEqual([...times(5, 401), 429]);
  });
});

describe('wrong passwords from many addresses', () => {
  test('are limited to 30 an hour, but do not lock out a known device', async () => {
    const { user, device } = await account();
    const bystander = await account();
    await spendAccount(user);
    expect(await statusOf(user, { ip: freshIp(), password: testPassword })).toBe(429);
    expect(await statusOf(user, { ip: freshIp(), password: testPassword, device })).toBe(200);
    expect(await statusOf(user, { ip: freshIp(), password: testPassword, device: bystander.device })).toBe(429);
    expect(await statusOf(bystander.user, { ip: freshIp(), password: testPassword })).toBe(200);
    await endWindows('account');
    expect(await statusOf(user, { ip: freshIp(), password: testPassword })).toBe(200);
  });

  test('get no new budget from the logins of the user, on whichever device', async () => {
    const { user, device } = await account();
    for (let n = 0; n < 2; n++) expect(await statuses(user, { ip: freshIp() }, 10)).toEqual(times(10, 401));
    expect(await statusOf(user, { ip: freshIp(), password: testPassword, device })).toBe(200);
    expect(await statusOf(user, { ip: freshIp(), password: testPassword })).toBe(200);
    expect(await statuses(user, { ip: freshIp() }, 10)).toEqual(times(10, 401));
    expect(await statusOf(user, { ip: freshIp() })).toBe(429);
  });

  test('at the same time are all counted', async () => {
    const { user } = await account();
    const found = await Promise.all(Array.from({ length: 45 }, () => statusOf(user, { ip: freshIp() })));
    expect(found.toSorted()).toEqual([...times(30, 401), ...times(15, 429)]);
  });

  test('lock unknown emails in the same way, so that the 429 does not reveal accounts', async () => {
    await spendAccount({ tenant_id: school.id, email: `${unique('ghost')}@${school.subdomain}.example` });
  });

  test('do not lock out the known device of an operator', async () => {
    const operator = { is_platform: true, email: operatorEmail };
    const answer = await attempt(operator, { ip: freshIp(), password: testPassword });
    const device = answer.headers.get('x-known-device') ?? '';
    await spendAccount(operator);
    expect(await statusOf(operator, { ip: freshIp(), password: testPassword })).toBe(429);
    expect(await statusOf(operator, { ip: freshIp(), password: testPassword, device })).toBe(200);
  });

  test('are forgotten when the user resets the password', async () => {
    const { user } = await account();
    await spendAccount(user);
    await service.anonymous.post('/api/auth/password/forgot', user);
    const { token } = await mailTo(service, user.email, 'Reset your password');
    await service.anonymous.post('/api/auth/password/reset', { token, password: 'a reset password' });
    expect(await statusOf(user, { ip: freshIp(), password: 'a reset password' })).toBe(200);
  });

  test('are forgotten when an admin sets a password', async () => {
    const { user, id } = await account();
    await spendAccount(user);
    await school.admin.put(`/api/users/${id}`, { password: 'set by the admin' });
    expect(await statusOf(user, { ip: freshIp(), password: 'set by the admin' })).toBe(200);
  });
});

describe('wrong passwords from known devices', () => {
  test('have 10 attempts an hour of their own, then count like those of any device', async () => {
    const { user, device } = await account();
    const other = await attempt(user, { ip: freshIp(), password: testPassword });
    const second = other.headers.get('x-known-device') ?? '';
    const found = [
      ...(await statuses(user, { ip: freshIp(), device }, 5)),
      ...(await statuses(user, { ip: freshIp(), device: second }, 5)),
    ];
    expect(found).toEqual(times(10, 401));
    await spendAccount(user);
    expect(await statusOf(user, { ip: freshIp(), password: testPassword, device })).toBe(429);
    await endWindows('known_devices');
    expect(await statusOf(user, { ip: freshIp(), password: testPassword, device })).toBe(200);
    // The success gave the device its attempts back.
    expect(await statuses(user, { ip: freshIp(), device }, 11)).toEqual([...times(10, 401), 429]);
  });

  test('are those of any device after the session of the device was ended', async () => {
    const { user, id, device } = await account();
    const { data } = await school.admin.get<{ id: number }[]>(`/api/users/${id}/sessions`);
    for (const session of data) await school.admin.delete(`/api/users/${id}/sessions/${session.id}`);
    await spendAccount(user);
    expect(await statusOf(user, { ip: freshIp(), password: testPassword, device })).toBe(429);
  });
});
