import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, describe, expect, test } from '@jest/globals';
import { until } from '../support/client/until.ts';
import { send } from '../support/client/wire.ts';
import { type School, serviceOfFile, testPassword } from '../support/server/service.ts';
import { servers, signalServer } from './servers.ts';

const { nodes, forwarder, homeServer } = servers();
const { withOwner } = shared;
const service = await serviceOfFile({ METRICS_PORT: '0' });
const [first, second] = nodes;
if (!first || !second) throw new Error('There are no two nodes.');

const { setDraining } = await import('../../src/servers/nodes/nodes.ts');
const { createForwarder } = await import('../../src/servers/forwarder.ts');

/** A school on this node, or at home. */
async function schoolOn(name: string): Promise<School> {
  const drain = (isDraining: boolean) =>
    withOwner(service.database.url, async (client) => {
      for (const other of nodes) if (other.name !== name) await setDraining(client, other.name, isDraining);
    });
  await drain(true);
  try {
    return await service.school();
  } finally {
    await drain(false);
  }
}

// The forwarder is on the server of the first node.
const near = await schoolOn(first.name);
const [silent, neighbor] = [await schoolOn(second.name), await schoolOn(second.name)];
const atHome = await schoolOn('home');

afterAll(() => [second.server, homeServer].forEach((server) => signalServer(server, 'SIGCONT')));

const read = (school: School) =>
  send(service.url, { path: '/api/students', headers: { authorization: `Bearer ${school.admin.token}` } });
const login = ({ subdomain, adminEmail }: School, email = adminEmail) =>
  service.anonymous.send('POST', '/api/auth/login', { body: { subdomain, email, password: testPassword } });
/** The backends of the forwarder that wait for a server. */
const waiting = () =>
  withOwner(forwarder, async (client) => {
    const { rows } = await client.query<{ pid: number }>(
      `select pid from pg_locks
       where relation = to_regclass('core.refused_server') and mode = 'AccessShareLock' and pid <> pg_backend_pid()`,
    );
    return rows.map(({ pid }) => pid);
  });
const isRefused = () =>
  withOwner(forwarder, async (client) => {
    const { rowCount } = await client.query('select from core.refused_server where until > clock_timestamp()');
    return rowCount === 1 || undefined;
  });

describe('a server that does not answer, and refuses no connections', () => {
  test('gets no more requests after the first ones, and other schools do not wait for a connection', async () => {
    signalServer(second.server, 'SIGSTOP');
    try {
      // More than the connections of the API: those that wait for the silent server are given up.
      const first20 = await Promise.all(Array.from({ length: 20 }, (_, n) => read(n % 2 ? silent : neighbor)));
      expect(new Set(first20.map(({ status }) => status))).toEqual(new Set([503]));
      await until(isRefused);
      // Requests that reach the server would never be answered, so these show that none does.
      for (let n = 0; n < 5; n++) {
        const answers = await Promise.all([
          ...Array.from({ length: 10 }, () => read(silent)),
          ...Array.from({ length: 10 }, () => read(near)),
        ]);
        expect(answers.map(({ status }) => status)).toEqual([
          ...Array<number>(10).fill(503),
          ...Array<number>(10).fill(200),
        ]);
      }
      expect((await login(silent)).status).toBe(503);
      expect((await login(near)).status).toBe(200);
      // The forwarder finds the school of these too.
      expect((await login({ ...silent, subdomain: silent.subdomain.toUpperCase() })).status).toBe(503);
      const padded = { 'X-Refresh-Token': `0${silent.id}.x` };
      const refreshed = await send(service.url, {
        method: 'POST',
        path: '/api/auth/refresh',
        body: {},
        headers: padded,
      });
      expect([401, 503]).toContain(refreshed.status);
      const { data } = await service.operator.get<{ id: number }[]>(`/api/platform/tenants?search=${silent.subdomain}`);
      expect(data.map(({ id }) => id)).toEqual([silent.id]);
      expect(
        (await service.operator.send('POST', `/api/platform/tenants/${silent.id}/suspend`, { body: {} })).status,
      ).toBe(503);
      await service.anonymous.get('/api/health/ready');
    } finally {
      signalServer(second.server, 'SIGCONT');
    }
    await until(async () => (await read(silent)).status === 200 || undefined);
    expect((await read(neighbor)).status).toBe(200);
    expect((await login(silent)).status).toBe(200);
  });

  test.each([
    ['a node', second.server, [silent, neighbor]],
    ['the home', homeServer, [atHome]],
  ])('fails no request to other servers, although its schools send all they can: %s', async (_name, server, hung) => {
    const stop = new AbortController();
    /** Sends requests one after another until the end. @returns their statuses */
    const repeat = async (request: () => Promise<{ status: number }>, pauseMs = 0) => {
      const statuses: number[] = [];
      while (!stop.signal.aborted) {
        statuses.push((await request()).status);
        if (pauseMs > 0) await pause(pauseMs);
      }
      return statuses;
    };
    // Each log-in can end an earlier session of the same user.
    const visitor = await near.user(['student']);
    // The school is active, so this is refused.
    const activate = ({ id }: School) =>
      service.operator.send('POST', `/api/platform/tenants/${id}/activate`, { body: {} });
    signalServer(server, 'SIGSTOP');
    try {
      const ofHung = Promise.all(
        hung.flatMap((school) => [
          ...Array.from({ length: 20 / hung.length }, () => repeat(() => read(school))),
          ...Array.from({ length: 10 }, () => repeat(() => login(school), 50)),
          ...Array.from({ length: 3 }, () => repeat(() => activate(school), 50)),
        ]),
      );
      const ofNear = Promise.all([
        ...Array.from({ length: 5 }, () => repeat(() => read(near), 50)),
        repeat(() => login(near, visitor.email), 200),
      ]);
      await pause(15_000);
      stop.abort();
      expect(new Set((await ofNear).flat())).toEqual(new Set([200]));
      expect(new Set((await ofHung).flat())).toEqual(new Set([503]));
    } finally {
      stop.abort();
      signalServer(server, 'SIGCONT');
    }
    for (const school of hung) await until(async () => (await read(school)).status === 200 || undefined);
  });

  test('does not keep a forwarder from being created again, although its backends wait for the server', async () => {
    signalServer(second.server, 'SIGSTOP');
    try {
      const answers = await Promise.all(Array.from({ length: 5 }, () => read(silent)));
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([503]));
      const before = await waiting();
      expect(before.length).toBeGreaterThan(0);
      await withOwner(service.database.url, (client) =>
        createForwarder(client, { name: 'test', url: forwarder, homeUrl: service.database.url }),
      );
      const after = await waiting();
      expect(after.filter((pid) => before.includes(pid))).toEqual([]);
      expect((await read(near)).status).toBe(200);
      expect((await login(near)).status).toBe(200);
      expect((await read(silent)).status).toBe(503);
    } finally {
      signalServer(second.server, 'SIGCONT');
    }
    await until(async () => (await read(silent)).status === 200 || undefined);
    expect((await read(neighbor)).status).toBe(200);
  });
});
