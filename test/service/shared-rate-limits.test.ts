import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { send } from '../support/client/wire.ts';
import { until } from '../support/client/until.ts';
import { operatorEmail, testPassword, testService, unique } from '../support/server/service.ts';

const { pg, passwords, readConfig, startService } = shared;

const limit = 12;
const settings = { TRUST_PROXY: '1', PUBLIC_RATE_LIMIT_PER_MINUTE: String(limit) };

// Two API processes on one database, both in the process of this test.
const service = await testService(settings, 1);
// Added first: the many logins of the operator end their first session.
const school = await service.school();
let second: Awaited<ReturnType<typeof startService>>;
beforeAll(async () => {
  second = await startService(
    readConfig({
      ...settings,
      PORT: '0',
      NODE_ENV: 'test',
      LOG_LEVEL: 'silent',
      JWT_SECRETS: 'a secret of the tests that is long enough',
      DATABASE_POOL_SIZE: '4',
    }),
    service.database.url,
    ['api'],
    { hashing: passwords({ memoryCost: 64 }) },
  );
});
afterAll(async () => {
  await second.close();
  await service.close();
});

const urls = () => [service.url, second.url ?? ''] as const;

let serial = 0;
const freshIp = () => `10.88.0.${++serial}`;

const post = (url: string, ip: string, path: string, body: object, headers: Record<string, string> = {}) =>
  send(url, { method: 'POST', path, body, headers: { 'X-Forwarded-For': ip, ...headers } });
const logIn = (url: string, ip: string, account: object, headers: Record<string, string> = {}) =>
  post(url, ip, '/api/auth/login', { is_platform: true, password: testPassword, ...account }, headers);
const ghost = () => ({ email: `${unique('ghost')}@nowhere.example`, password: 'a guess' });

/** Deletes all counters. A success that is taken back later does not make them negative. */
const forget = () => service.database.query('delete from platform.rate_limit_counter');

/** All requests that the database has counted. */
async function counted(): Promise<number> {
  const [row] = await service.database.query<{ sum: number }>(
    'select coalesce(sum(hits), 0)::integer as sum from platform.rate_limit_counter',
  );
  return row?.sum ?? 0;
}

const statusesOf = async (requests: Promise<{ status: number }>[]) =>
  (await Promise.all(requests)).map(({ status }) => status).sort();
const times = (n: number, status: number) => Array<number>(n).fill(status);

describe('two API processes', () => {
  test.each([
    ['failed logins', '/api/auth/login', 401],
    ['forgotten passwords', '/api/auth/password/forgot', 200],
    ['junk links', '/api/auth/password/reset', 401],
    ['junk refreshes', '/api/auth/refresh', 401],
  ] as const)('count %s of an address together', async (_name, path, status) => {
    const ip = freshIp();
    const { email } = ghost();
    const body = () =>
      path.endsWith('reset')
        ? { token: unique('junk'), password: 'a new password' }
        : { is_platform: true, email: `${unique('x')}${email}`, ...(path.endsWith('login') ? { password: 'x' } : {}) };
    const statuses: number[] = [];
    for (let n = 0; n < limit + 4; n++) {
      const answer = await post(urls()[n % 2] ?? '', ip, path, body(), { 'X-Refresh-Token': unique('junk') });
      statuses.push(answer.status);
      expect(answer.headers['ratelimit-policy']).toContain(`q=${limit}; w=60`);
    }
    expect(statuses).toEqual([...times(limit, status), ...times(4, 429)]);
  });

  test('count requests that arrive at the same time exactly', async () => {
    const ip = freshIp();
    const requests = Array.from({ length: limit * 4 }, (_, n) => logIn(urls()[n % 2] ?? '', ip, ghost()));
    expect(await statusesOf(requests)).toEqual([...times(limit, 401), ...times(limit * 3, 429)]);
  });

  test('count the logins on the known devices of an account together', async () => {
    const ip = freshIp();
    const account = { email: operatorEmail };
    const { headers } = await logIn(service.url, freshIp(), account);
    const device = { 'X-Known-Device': String(headers['x-known-device']) };
    const statuses: number[] = [];
    for (let n = 0; n < limit + 2; n++) statuses.push((await logIn(urls()[n % 2] ?? '', ip, account, device)).status);
    expect(statuses).toEqual([...times(limit, 200), 429, 429]);
  });

  test('forget that an address is over its limit when its logins have succeeded', async () => {
    const ip = freshIp();
    const { id, adminEmail } = school;
    const accounts = [{ email: operatorEmail }, { is_platform: false, tenant_id: id, email: adminEmail }];
    const statuses = await statusesOf(
      Array.from({ length: limit + 4 }, (_, n) => logIn(urls()[n % 2] ?? '', ip, accounts[(n >> 1) % 2] ?? {})),
    );
    expect(statuses.filter((status) => status !== 200 && status !== 429)).toEqual([]);
    for (const url of urls()) await until(async () => (await logIn(url, ip, ghost())).status === 401 || undefined);
  });

  test('do not ask the database again about an address that is over its limit', async () => {
    const ip = freshIp();
    for (let n = 0; n < limit * 2 + 2; n++) await logIn(urls()[n % 2] ?? '', ip, ghost());
    await forget();
    expect(await statusesOf(Array.from({ length: 200 }, (_, n) => logIn(urls()[n % 2] ?? '', ip, ghost())))).toEqual(
      times(200, 429),
    );
    expect(await counted()).toBe(0);
  });

  test('do not count requests with an access token, valid refreshes, or public pages in the database', async () => {
    const { admin } = school;
    await forget();
    for (const url of urls()) {
      for (const path of ['/api/auth/profile', '/api/students', '/api/unknown'])
        await send(url, { path, token: admin.token });
      for (const path of ['/api/openapi.json', '/api/docs/', '/api/health/ready']) await send(url, { path });
      const headers = { 'X-Refresh-Token': admin.refreshToken };
      expect((await post(url, freshIp(), '/api/auth/refresh', {}, headers)).status).toBe(200);
    }
    expect(await counted()).toBe(0);
  });

  test('know in both of them which accounts have used an address', async () => {
    const ip = freshIp();
    expect((await logIn(service.url, ip, { email: operatorEmail })).status).toBe(200);
    for (let n = 0; n < limit + 1; n++) await logIn(second.url ?? '', ip, ghost());
    expect((await logIn(second.url ?? '', ip, ghost())).status).toBe(429);
    expect((await logIn(second.url ?? '', ip, { email: operatorEmail })).status).toBe(200);
  });

  test('know the accounts of an IPv6 network, which counts as one address', async () => {
    expect((await logIn(service.url, '2001:db8:77:1ff::2', { email: operatorEmail })).status).toBe(200);
    for (let n = 0; n < limit + 1; n++) await logIn(service.url, `2001:db8:77:100::${n}`, ghost());
    expect((await logIn(service.url, '2001:db8:77:120::9', ghost())).status).toBe(429);
    expect((await logIn(service.url, '2001:db8:77:120::9', { email: operatorEmail })).status).toBe(200);
    expect((await logIn(service.url, '2001:db8:77:200::9', ghost())).status).toBe(401);
  });
});

test('if the database does not count in time, each process counts alone', async () => {
  const ip = freshIp();
  const owner = new pg.Client({ connectionString: service.database.url });
  await owner.connect();
  try {
    await owner.query('begin; lock table platform.rate_limit_counter in access exclusive mode');
    const requests = Array.from({ length: limit + 8 }, () => logIn(service.url, ip, ghost()));
    expect(await statusesOf(requests)).toEqual([...times(limit, 401), ...times(8, 429)]);
  } finally {
    await owner.end();
  }
  // Later requests are counted by the database again.
  const elsewhere = freshIp();
  await until(async () => {
    const before = await counted();
    await logIn(service.url, elsewhere, ghost());
    return (await counted()) > before || undefined;
  });
});

test('a window that has ended starts again, and clean-up deletes it', async () => {
  const ip = freshIp();
  for (let n = 0; n < limit + 1; n++) await logIn(service.url, ip, ghost());
  await service.database.query("update platform.rate_limit_counter set window_ends_at = now() - interval '1 second'");
  // This process has not seen that the address is over its limit.
  expect((await logIn(second.url ?? '', ip, ghost())).status).toBe(401);
  await service.database.query('select core.clean_up()');
  const rows = await service.database.query('select from platform.rate_limit_counter where window_ends_at > now()');
  expect(rows).toHaveLength(1);
});

test('clean-up does not wait for a counter that a request holds, so that the two cannot deadlock', async () => {
  await service.database.query(
    `insert into platform.rate_limit_counter (key, hits, window_ends_at)
     select sha256(n::text::bytea), 1, now() - interval '1 minute' from generate_series(1, 5) n`,
  );
  const owner = new pg.Client({ connectionString: service.database.url });
  await owner.connect();
  try {
    await owner.query("begin; update platform.rate_limit_counter set hits = 2 where key = sha256('3')");
    await service.database.query("set lock_timeout = '2s'; select core.clean_up()");
    const left = await service.database.query(
      'select key from platform.rate_limit_counter where window_ends_at < now()',
    );
    expect(left).toHaveLength(1);
  } finally {
    await owner.end();
  }
});

test('a request that is taken back never makes a counter negative, or starts an ended window with less than nothing', async () => {
  const count = async (change: number) => {
    const [row] = await service.database.query<{ hits: number; ms_left: number }>(
      "select hits, ms_left from core.count_requests(array['\\x01'::bytea], array[$1::integer], 60000)",
      [change],
    );
    return row?.hits;
  };
  expect([await count(-3), await count(2), await count(-1), await count(-5), await count(1)]).toEqual([0, 2, 1, 0, 1]);
});
