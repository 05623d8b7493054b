import { afterAll, describe, expect, test } from '@jest/globals';
import { mailTo } from '../support/fakes/mail.ts';
import { until } from '../support/client/until.ts';
import { send } from '../support/client/wire.ts';
import { operatorEmail, type School, serviceOfFile, testPassword, unique } from '../support/server/service.ts';
import { schoolOn } from './schools.ts';
import { servers, signalServer, startServer, stopServer } from './servers.ts';

const { homeServer } = servers();
const limit = 6;
const service = await serviceOfFile({ TRUST_PROXY: '1', PUBLIC_RATE_LIMIT_PER_MINUTE: String(limit) });
const [east, west] = [await schoolOn(service, 'node-1'), await schoolOn(service, 'node-2')];
afterAll(() => signalServer(homeServer, 'SIGCONT'));

let serial = 0;
/** An address that has sent nothing yet. Also new in each file, because the files share the home. */
const freshIp = () => `10.91.${String(Math.floor(Math.random() * 250))}.${String(++serial)}`;
const post = (path: string, body: object, headers: Record<string, string> = {}) =>
  send(service.url, { method: 'POST', path, body, headers });
const logIn = ({ subdomain, adminEmail: email }: School, ip: string, fields: object = {}) =>
  post('/api/auth/login', { subdomain, email, password: testPassword, ...fields }, { 'X-Forwarded-For': ip });
/** Logins of accounts that do not exist, one after the other. */
async function guess(ip: string, count: number): Promise<number[]> {
  const statuses: number[] = [];
  for (let n = 0; n < count; n++)
    statuses.push((await logIn(east, ip, { email: `${unique('ghost')}@nowhere.example` })).status);
  return statuses;
}
const times = (n: number, status: number) => Array<number>(n).fill(status);

const outages: [string, () => Promise<void> | void, () => Promise<void> | void][] = [
  ['is down', () => stopServer(homeServer), () => startServer(homeServer)],
  ['hangs', () => signalServer(homeServer, 'SIGSTOP'), () => signalServer(homeServer, 'SIGCONT')],
];

describe.each(outages)('while the home %s', (_name, begin, end) => {
  test('users of schools on nodes log in, refresh, reset passwords and read feeds; operators get 503', async () => {
    const { data: feed } = await east.admin.post<{ url: string }>('/api/schedule/feeds', { kind: 'holidays' }, 201);
    const user = await west.user(['teacher']);
    await begin();
    try {
      const ip = freshIp();
      // More than the limit: logins that succeed do not count for the address.
      for (let n = 0; n < limit; n++)
        for (const school of [east, west]) expect((await logIn(school, ip)).status).toBe(200);
      const { headers } = await logIn(west, freshIp());
      const refreshed = await post('/api/auth/refresh', {}, { 'X-Refresh-Token': String(headers['x-refresh-token']) });
      expect(refreshed.status).toBe(200);

      const forgotten = await post('/api/auth/password/forgot', { subdomain: west.subdomain, email: user.email });
      expect(forgotten.status).toBe(200);
      const { token } = await mailTo(service, user.email, 'password');
      const password = `${unique('password')} of the user`;
      expect((await post('/api/auth/password/reset', { token, password })).status).toBe(200);
      expect((await logIn(west, freshIp(), { email: user.email, password })).status).toBe(200);

      expect((await send(service.url, { path: new URL(feed.url).pathname })).status).toBe(200);
      expect((await send(service.url, { path: '/api/openapi.json' })).status).toBe(200);
      const operator = await post('/api/auth/login', {
        is_platform: true,
        email: operatorEmail,
        password: testPassword,
      });
      expect([operator.status, JSON.parse(operator.text)]).toEqual([
        503,
        expect.objectContaining({ error: 'unavailable' }),
      ]);
    } finally {
      await end();
    }
    await until(async () => (await service.operator.send('GET', '/api/platform/tenants')).status === 200 || undefined);
  });

  test('each process counts failed logins alone, and together with the others when the home is back', async () => {
    const ip = freshIp();
    await begin();
    try {
      expect(await guess(ip, limit + 2)).toEqual([...times(limit, 401), 429, 429]);
      expect((await logIn(east, freshIp())).status).toBe(200);
    } finally {
      await end();
    }
    await until(async () => (await service.operator.send('GET', '/api/platform/tenants')).status === 200 || undefined);
    expect(await guess(ip, 1)).toEqual([429]);
    // What this process counts is at home again.
    const counters = async () =>
      (await service.database.query<{ count: string }>('select count(*) from platform.rate_limit_counter'))[0]?.count;
    const before = Number(await counters());
    await until(async () => {
      expect(await guess(freshIp(), 1)).toEqual([401]);
      return Number(await counters()) > before || undefined;
    });
  });
});
