import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { until } from '../support/client/until.ts';
import { type Program, ready, startProgram } from '../support/server/processes.ts';
import { type School, serviceOfFile } from '../support/server/service.ts';
import { schoolOn, type ServerName } from './schools.ts';
import { servers, startServer, stopServer } from './servers.ts';

const { home, nodes } = servers();
const { withOwner } = shared;
const service = await serviceOfFile();
const dataDir = await mkdtemp(join(tmpdir(), 'school-commands-'));
afterAll(() => rm(dataDir, { recursive: true, force: true }));

const urls = { home, 'node-1': nodes[0]?.url ?? '', 'node-2': nodes[1]?.url ?? '' };
const rows = <T>(name: ServerName, text: string, values: unknown[] = []) =>
  withOwner(urls[name], async (client) => (await client.query(text, values)).rows as T[]);

const program = (...args: string[]) =>
  startProgram('src/cli/main.ts', args, { DATABASE_URL: home, DATA_DIR: dataDir }).ended;
async function command<T>(code: number, ...args: string[]): Promise<T> {
  const ended = await program(...args, '--json');
  expect({ code: ended.code, stderr: ended.stderr, stdout: ended.stdout }).toMatchObject({ code });
  return JSON.parse(ended.stdout) as T;
}

const east = await schoolOn(service, 'node-1');
const west = await schoolOn(service, 'node-2');
const atHome = await schoolOn(service, 'home');

async function withoutSecondNode(work: () => Promise<void>): Promise<void> {
  const server = nodes[1]?.server;
  if (!server) throw new Error('There is no second node.');
  await stopServer(server);
  try {
    await work();
  } finally {
    await startServer(server);
  }
}

interface NamedResult {
  name: string;
  error?: string;
}

describe('a command at home about one school', () => {
  test('works on its node: show, suspend, activate, list', async () => {
    const { data: ada } = await east.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'Ada', last_name: 'Counted' },
      201,
    );
    const shown = await command<{ schema_version: number; stats: { total_students: number } }>(
      0,
      'tenant',
      'show',
      east.subdomain,
    );
    expect(shown.schema_version).toBeGreaterThan(0);
    expect(shown.stats.total_students).toBe(1);
    expect(await command(0, 'student', 'export', east.subdomain, String(ada.id))).toMatchObject({ student_id: ada.id });
    await command(0, 'tenant', 'suspend', east.subdomain);
    expect((await east.admin.get('/api/students', 403)).error).toBe('tenant_suspended');
    const { data } = await service.operator.get<{ status: string }>(`/api/platform/tenants/${east.id}`);
    expect(data.status).toBe('suspended');
    await command(0, 'tenant', 'activate', east.subdomain);
    await east.admin.get('/api/students');
    const listed = await command<{ id: number; node?: string }[]>(0, 'tenant', 'list');
    const places = listed.filter(({ id }) => [east.id, west.id, atHome.id].includes(id)).map(({ node }) => node);
    expect(places).toEqual(['node-1', 'node-2', undefined]);
  });

  test('runs statements on its node, and the home gets their audit entry', async () => {
    const { data: odo } = await east.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'Odo', last_name: 'Corrected' },
      201,
    );
    const file = join(dataDir, 'correction.sql');
    await writeFile(file, `update student set phone = '1' where id = ${odo.id}`);
    expect(await program('sql', east.subdomain, '--write', '--yes', '--file', file)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('UPDATE: 1 row\n'),
    });
    expect(await rows('node-1', `select phone from ${east.schema}.student where id = $1`, [odo.id])).toEqual([
      { phone: '1' },
    ]);
    const entries = () =>
      rows<{ statements: string }>(
        'home',
        `select changes #>> '{statements,after}' as statements from platform.audit_log
         where action = 'tenant.sql_commit' and tenant_id = $1`,
        [east.id],
      );
    const copied = await until(async () => {
      const found = await entries();
      return found.length > 0 ? found : undefined;
    });
    expect(copied).toEqual([{ statements: `update student set phone = '1' where id = ${odo.id};` }]);
  });

  test('says that its node does not answer', async () => {
    await withoutSecondNode(async () => {
      expect(await program('tenant', 'suspend', west.subdomain)).toMatchObject({
        code: 1,
        stderr: expect.stringContaining('The node node-2 does not answer'),
      });
    });
  });
});

describe('school status', () => {
  test('reports the home and each node, and fails while a node does not answer', async () => {
    interface Status {
      schools: { status: string; schools: number }[];
      nodes: (NamedResult & { schools?: { schools: number }[] })[];
    }
    const status = await command<Status>(0, 'status');
    expect(status.nodes.map(({ name }) => name)).toEqual(['node-1', 'node-2']);
    for (const { schools } of status.nodes) expect(schools?.[0]?.schools).toBeGreaterThan(0);
    await withoutSecondNode(async () => {
      const partial = await command<Status>(1, 'status');
      expect(partial.nodes.map(({ error }) => error !== undefined)).toEqual([false, true]);
      const { stdout } = await program('status');
      expect(stdout).toMatch(/== home ==[^]*== node-1 ==[^]*== node-2 ==\nDoes not answer/);
    });
  });
});

test('school doctor checks the schools of all servers, with one line for each, and names the server', async () => {
  const lines = async (...args: string[]) => {
    const { stdout } = await program('doctor', '--offline', '--json', ...args);
    return stdout
      .trim()
      .split('\n')
      .map(
        (line) =>
          JSON.parse(line) as {
            server?: string;
            tenant_id?: number;
            error?: string;
            violations?: object[];
            differences?: number;
          },
      );
  };
  const all = await lines('--data');
  const serverOf = ({ id }: School) => all.filter(({ tenant_id }) => tenant_id === id).map(({ server }) => server);
  expect([east, west, atHome].map(serverOf)).toEqual([['node-1'], ['node-2'], ['home']]);
  await rows('node-1', `alter table ${east.schema}.student drop column if exists gender cascade`);
  await rows('node-1', `alter table ${east.schema}.student add column gender text`);
  const [one] = await lines('--tenant', east.subdomain, '--server');
  expect(one).toMatchObject({ tenant_id: east.id, differences: expect.any(Number) });
  expect(one?.differences).toBeGreaterThan(0);
  await withoutSecondNode(async () => {
    const partial = await lines('--data');
    expect(partial.filter(({ tenant_id }) => tenant_id === undefined)).toMatchObject([
      { server: 'node-2', error: expect.any(String) },
    ]);
    expect(partial.some(({ tenant_id }) => tenant_id === atHome.id)).toBe(true);
  });
});

test('school doctor --fix fixes the schools of all servers that answer', async () => {
  const isForced = async (name: ServerName, { schema }: School) =>
    (
      await rows<{ is_forced: boolean }>(
        name,
        `select relforcerowsecurity as is_forced from pg_class where oid = '${schema}.student'::regclass`,
      )
    )[0]?.is_forced;
  const damage = (name: ServerName, { schema }: School) =>
    rows(name, `alter table ${schema}.student no force row level security`);
  const places = [
    ['node-1', east],
    ['node-2', west],
    ['home', atHome],
  ] as const;
  const states = () => Promise.all(places.map(([name, each]) => isForced(name, each)));
  const fix = () => program('doctor', '--server', '--offline', '--fix');

  await Promise.all(places.map(([name, each]) => damage(name, each)));
  const { stdout } = await fix();
  for (const [name, { id }] of places)
    expect(stdout).toMatch(new RegExp(`^${name}: error: School ${id}: the row security student .* \\(fixed\\)$`, 'm'));
  expect(await states()).toEqual([true, true, true]);

  await Promise.all(places.map(([name, each]) => damage(name, each)));
  await withoutSecondNode(async () => {
    expect(await fix()).toMatchObject({ code: 1, stdout: expect.stringContaining('node-2: could not be checked:') });
  });
  expect(await states()).toEqual([true, false, true]);
  await fix();
  expect(await states()).toEqual([true, true, true]);
});

test('school jobs counts the jobs of all servers, and retries and cancels those of one', async () => {
  const add = async (name: ServerName) => {
    const [job] = await rows<{ id: string }>(
      name,
      `select id from graphile_worker.add_job('send_email', $1::json, run_at => now() + interval '1 day')`,
      [JSON.stringify({ tenant_id: name === 'node-1' ? east.id : atHome.id, user_id: 1, kind: 'invitation' })],
    );
    await rows(
      name,
      `update graphile_worker._private_jobs set attempts = max_attempts, last_error = 'it failed' where id = $1`,
      [job?.id],
    );
    return Number(job?.id);
  };
  const [onNode, here] = [await add('node-1'), await add('home')];
  // At the same time, because each of them starts a process.
  const [queue, failed, shown] = await Promise.all([
    command<{ tasks: { task: string; failed: number }[]; nodes: NamedResult[] }>(0, 'jobs', 'list'),
    command<{ total: number; jobs: { id: number; node: string }[] }>(0, 'jobs', 'failed'),
    command(0, 'jobs', 'show', String(onNode), '--node', 'node-1'),
  ]);
  expect(queue.tasks.find(({ task }) => task === 'send_email')?.failed).toBe(2);
  expect(queue.nodes.map(({ name }) => name)).toEqual(['home', 'node-1', 'node-2']);
  expect(failed.total).toBe(2);
  expect(failed.jobs.map(({ id, node }) => [id, node])).toEqual([
    [here, 'home'],
    [onNode, 'node-1'],
  ]);
  expect(shown).toMatchObject({ tenant_id: east.id });
  await Promise.all([
    command(0, 'jobs', 'cancel', String(onNode), '--node', 'node-1'),
    command(0, 'jobs', 'cancel', String(here)),
  ]);
  expect(await command(0, 'jobs', 'failed')).toMatchObject({ total: 0 });

  // Without --node, those of a school on its server.
  await add('node-1');
  const cancelOf = (school: School) =>
    command(0, 'jobs', 'cancel', '--task', 'send_email', '--tenant', String(school.id));
  expect(await cancelOf(atHome)).toMatchObject({ done: {} });
  expect(await cancelOf(east)).toMatchObject({ done: { send_email: 1 } });
});

/**
 * Lets a school lack the last tenant migration. It is applied twice then: that of today replaces a function. If the last
 * one creates something, remove that here.
 */
const outdate = (name: ServerName, { id }: School) =>
  rows(
    name,
    `update platform.tenant set schema_version = (select max(version) - 1 from platform.tenant_migration)
     where id = ${id}`,
  );

describe('school migrate', () => {
  interface Plan {
    migrations: { file: string }[];
    dry_run: { tenants: { tenant: string }[] };
  }
  interface Result {
    tenants: { tenant: string; applied: number; error?: string }[];
    nodes: (NamedResult & Result)[];
  }
  test('migrates the nodes, and not the home while a node is down', async () => {
    await outdate('node-1', east);
    await outdate('home', atHome);
    const status = await command<{ nodes: { name: string; pending: string[] }[] }>(2, 'migrate', 'status');
    expect(status.nodes.map(({ pending }) => pending.length)).toEqual([1, 0]);
    const plan = await command<Plan & { nodes: (NamedResult & Plan)[] }>(0, 'migrate', 'plan');
    expect([plan, ...plan.nodes].map(({ dry_run }) => dry_run.tenants.map(({ tenant }) => tenant))).toEqual([
      [String(atHome.id)],
      [String(east.id)],
      [],
    ]);
    expect([plan, ...plan.nodes].map(({ migrations }) => migrations.length)).toEqual([1, 1, 0]);
    await withoutSecondNode(async () => {
      const planned = await program('migrate', 'plan');
      expect(planned.code).toBe(1);
      expect(planned.stdout).toMatch(
        new RegExp(
          `== home ==[^=]*school ${atHome.id} [^=]*== node-1 ==[^=]*school ${east.id} [^=]*== node-2 ==\nDoes not answer: `,
        ),
      );
      const stopped = await program('migrate', 'up');
      expect(stopped.code).toBe(1);
      expect(stopped.stdout).toContain('node-2: FAILED');
      expect(stopped.stdout).toMatch(new RegExp(`node-1: \\[1/1\\] school ${east.id} .*: 1 applied`));
      expect(stopped.stdout).toContain('home: not migrated');
    });
  });

  test('migrates the home when it is repeated after the node is back', async () => {
    const result = await command<Result>(0, 'migrate', 'up');
    expect(result.nodes.map(({ name, tenants }) => [name, tenants])).toEqual([
      ['node-1', []],
      ['node-2', []],
    ]);
    expect(result.tenants).toMatchObject([{ tenant: String(atHome.id), applied: 1 }]);
  });

  test('migrates one school on its node', async () => {
    await outdate('node-1', east);
    expect(await command<Result>(0, 'migrate', 'up', '--tenant', east.subdomain)).toMatchObject({
      tenants: [{ tenant: String(east.id), applied: 1 }],
    });
  });
});

describe('a start at home with MIGRATE_ON_START', () => {
  const start = () =>
    startProgram('src/main.ts', ['--only', 'worker'], {
      DATABASE_URL: home,
      DATA_DIR: dataDir,
      MIGRATE_ON_START: 'true',
      DEMO: 'false',
      WORKER_CONCURRENCY: '1',
      WORKER_NODES: 'home',
    });
  const stop = async (started: Program) => {
    started.kill('SIGTERM');
    expect((await started.ended).code).toBe(0);
  };
  const versionOf = async (name: ServerName, { id }: School) =>
    (
      await rows<{ version: number }>(name, 'select schema_version as version from platform.tenant where id = $1', [id])
    )[0]?.version;
  /** Lets a server look as if an earlier release had migrated it. */
  const age = (name: ServerName) => rows(name, "update platform.installation set fingerprint = 'an earlier one'");

  test('migrates the nodes, then the home', async () => {
    const current = await versionOf('home', atHome);
    await outdate('node-1', east);
    await outdate('home', atHome);
    await Promise.all((['home', 'node-1', 'node-2'] as const).map(age));
    const started = start();
    await started.prints(/Update each forwarder: school forwarder create[^]*Worker ready in/);
    expect([await versionOf('node-1', east), await versionOf('home', atHome)]).toEqual([current, current]);
    await stop(started);
  });

  test('starts while a node is down, unless the home needs a migration, which comes after that of the node', async () => {
    await withoutSecondNode(async () => {
      const started = start();
      await started.prints(/node-2: FAILED[^]*Worker ready in/);
      await stop(started);
      const [before] = await rows<{ fingerprint: string }>('home', 'select fingerprint from platform.installation');
      await age('home');
      const refused = await start().ended;
      expect(refused).toMatchObject({
        code: 1,
        stderr: expect.stringContaining('its nodes come first, and these were not migrated: node-2'),
      });
      await rows('home', 'update platform.installation set fingerprint = $1', [before?.fingerprint]);
    });
  });
});

test('one worker process serves the home and all nodes, also one that was down when it started', async () => {
  const workers = async (name: ServerName) =>
    (await rows<{ workers: number }>(name, "select (core.status(false) ->> 'workers')::integer as workers"))[0]
      ?.workers ?? 0;
  const before = { 'node-1': await workers('node-1'), home: await workers('home') };
  const server = nodes[1]?.server;
  if (!server) throw new Error('There is no second node.');
  await stopServer(server);
  let worker: Program | undefined;
  try {
    worker = startProgram('src/main.ts', ['--only', 'worker'], {
      DATABASE_URL: home,
      DATA_DIR: dataDir,
      MIGRATE_ON_START: 'false',
      DEMO: 'false',
      WORKER_CONCURRENCY: '1',
    });
    await ready(worker);
    await until(async () => (await workers('node-1')) === before['node-1'] + 1 || undefined);
    expect(await workers('home')).toBe(before.home + 1);
  } finally {
    await startServer(server);
  }
  // The worker of this file connects again, too.
  await until(async () => (await workers('node-2')) === before['node-1'] + 1 || undefined);
  worker.kill('SIGTERM');
  expect((await worker.ended).code).toBe(0);
  await until(async () => (await workers('node-1')) === before['node-1'] || undefined);
  const told = startProgram('src/main.ts', ['--only', 'worker'], {
    DATABASE_URL: home,
    DATA_DIR: dataDir,
    MIGRATE_ON_START: 'false',
    DEMO: 'false',
    WORKER_CONCURRENCY: '1',
    WORKER_NODES: 'node-1',
  });
  await until(async () => (await workers('node-1')) === before['node-1'] + 1 || undefined);
  expect(await workers('home')).toBe(before.home);
  told.kill('SIGTERM');
  expect((await told.ended).code).toBe(0);
});
