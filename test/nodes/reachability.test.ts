import { afterAll, describe, expect, test } from '@jest/globals';
import type { TenantDetail as TenantDetailSchema } from '../../src/endpoints/platform.ts';
import type { System as SystemSchema } from '../../src/endpoints/platform-system.ts';
import type { OutputOf } from '../support/client/output.ts';
import { until } from '../support/client/until.ts';
import { startProgram } from '../support/server/processes.ts';
import { type School, serviceOfFile, testPassword } from '../support/server/service.ts';
import { schoolOn } from './schools.ts';
import { servers, signalServer, startServer, stopServer } from './servers.ts';

type System = OutputOf<typeof SystemSchema>;
type TenantDetail = OutputOf<typeof TenantDetailSchema>;

const { home, nodes } = servers();
const service = await serviceOfFile({ METRICS_PORT: '0' });
const [near, far] = [await schoolOn(service, 'node-1'), await schoolOn(service, 'node-2')];
const server = nodes[1]?.server;
if (!server) throw new Error('There is no second node.');
afterAll(() => signalServer(server, 'SIGCONT'));

const nodeStates = async () => (await service.operator.get<System>('/api/platform/system')).data.nodes;
const detailOf = async ({ id }: School) =>
  (await service.operator.get<TenantDetail>(`/api/platform/tenants/${id}`)).data;
const command = (...args: string[]) =>
  startProgram('src/cli/main.ts', args, { DATABASE_URL: home, ADMIN_PASSWORD: testPassword }).ended;

/** Runs the check of the worker, and waits for its end. @returns the states of both nodes */
async function check(): Promise<System['nodes']> {
  const [job] = await service.database.query<{ id: string }>(
    "select id from graphile_worker.add_job('check_nodes', max_attempts => 1)",
  );
  await until(async () => {
    const rows = await service.database.query<{ last_error: string | null }>(
      'select last_error from graphile_worker._private_jobs where id = $1',
      [job?.id],
    );
    expect(rows[0]?.last_error ?? null).toBeNull();
    return rows.length === 0 || undefined;
  });
  return nodeStates();
}

describe('a node that does not answer', () => {
  test('is shown with the time since when, as are its schools, until it answers again', async () => {
    const before = await check();
    expect(before.map(({ name, status, unreachable_since }) => [name, status, unreachable_since])).toEqual([
      ['node-1', 'active', null],
      ['node-2', 'active', null],
    ]);
    expect(Math.min(...before.map(({ schools }) => schools))).toBeGreaterThan(0);
    expect(Date.parse(before[1]?.answered_at ?? '')).toBeGreaterThan(Date.now() - 60_000);
    await stopServer(server);
    try {
      const [first, second] = await check();
      expect(first?.unreachable_since).toBeNull();
      expect(Date.parse(first?.answered_at ?? '')).toBeGreaterThan(Date.parse(before[0]?.answered_at ?? ''));
      const since = second?.unreachable_since ?? '';
      expect(Date.parse(since)).toBeGreaterThan(Date.parse(before[1]?.answered_at ?? ''));
      expect(second?.answered_at).toBe(before[1]?.answered_at);
      // The next check keeps the time.
      expect((await check())[1]).toEqual(second);
      expect(await detailOf(far)).toMatchObject({ subdomain: far.subdomain, unreachable_since: since });
      expect((await detailOf(near)).unreachable_since).toBeNull();
      // Otherwise the second of two schools would go to the other node, which has fewer then.
      for (const added of [await service.school(), await service.school()])
        expect((await detailOf(added)).unreachable_since).toBeNull();
      const refused = await command(
        'tenant',
        'create',
        'refused',
        '--name',
        'R',
        '--plan',
        '3',
        '--contact-email',
        'r@school.example',
        '--node',
        'node-2',
      );
      expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('The node node-2 does not answer.') });
      expect(await service.database.query("select from platform.tenant where subdomain = 'refused'")).toEqual([]);
      const metrics = await (await fetch(service.metricsUrl ?? '')).text();
      expect(metrics).toMatch(/^school_node_up\{node="node-1"\} 1$/m);
      expect(metrics).toMatch(/^school_node_up\{node="node-2"\} 0$/m);
      // The queue of a node that does not answer is unknown.
      expect(metrics).toMatch(/^school_worker_alive\{node="node-1"\} [01]$/m);
      expect(metrics).toMatch(/^school_jobs\{(?=.*node="node-1").*state="ready".*\} \d+$/m);
      expect(metrics).not.toMatch(/^school_(worker_alive|jobs)\{.*node="node-2"/m);
      const minute = `${since.slice(0, 16).replace('T', ' ')} UTC`;
      const [listed, status, json] = await Promise.all([
        command('node', 'list'),
        command('status'),
        command('status', '--json'),
      ]);
      expect(listed).toMatchObject({ code: 1, stdout: expect.stringContaining(`no, since ${minute}`) });
      expect(status).toMatchObject({ code: 1, stdout: expect.stringContaining(`Has not answered since ${minute}: `) });
      expect((JSON.parse(json.stdout) as System).nodes[1]).toMatchObject({ name: 'node-2', unreachable_since: since });
    } finally {
      await startServer(server);
    }
    const [, after] = await check();
    expect(after).toMatchObject({ name: 'node-2', unreachable_since: null });
    expect(Date.parse(after?.answered_at ?? '')).toBeGreaterThan(Date.parse(before[1]?.answered_at ?? ''));
    expect((await detailOf(far)).unreachable_since).toBeNull();
    expect(await (await fetch(service.metricsUrl ?? '')).text()).toMatch(/^school_node_up\{node="node-2"\} 1$/m);
  });

  test('is also found if it hangs and refuses no connections, by the check and by commands', async () => {
    signalServer(server, 'SIGSTOP');
    try {
      const [first, second] = await check();
      expect([first?.unreachable_since, second?.unreachable_since]).toEqual([null, expect.any(String)]);
      const [listed, status, suspended, cancelled] = await Promise.all([
        command('node', 'list', '--json'),
        command('status', '--json'),
        command('tenant', 'suspend', far.subdomain),
        command('jobs', 'cancel', '1', '--node', 'node-2'),
      ]);
      expect(suspended).toMatchObject({ code: 1, stderr: expect.stringContaining('The node node-2 does not answer') });
      expect(cancelled.code).toBe(1);
      expect(listed.code).toBe(1);
      expect((JSON.parse(listed.stdout) as { is_reachable: boolean }[]).map((node) => node.is_reachable)).toEqual([
        true,
        false,
      ]);
      expect(status.code).toBe(1);
      expect((JSON.parse(status.stdout) as { nodes: { error?: string }[] }).nodes[1]?.error).toMatch(/timeout/);
    } finally {
      signalServer(server, 'SIGCONT');
    }
    await until(async () => (await check())[1]?.unreachable_since === null || undefined);
    // The forwarder refuses requests to a server that hung for some seconds more, also those of the next file.
    await until(async () => (await far.admin.send('GET', '/api/classes')).status === 200 || undefined);
  });

  test('is one whose address leads to another database, too', async () => {
    const [second] = await service.database.query<{ url: string }>(
      "select url from platform.node where name = 'node-2'",
    );
    const point = (url: string | undefined) =>
      service.database.query("update platform.node set url = $1 where name = 'node-2'", [url]);
    await point(nodes[0]?.url);
    try {
      expect((await check())[1]?.unreachable_since).not.toBeNull();
    } finally {
      await point(second?.url);
    }
    expect((await check())[1]?.unreachable_since).toBeNull();
  });
});
