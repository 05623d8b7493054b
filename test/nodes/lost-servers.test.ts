import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { addNode } from '../../src/servers/nodes/join.ts';
import { readNodes, setDraining } from '../../src/servers/nodes/nodes.ts';
import { createForwarder } from '../../src/servers/forwarder.ts';
import { moveSchool } from '../../src/servers/moves/move.ts';
import { until } from '../support/client/until.ts';
import { freePort, startProgram } from '../support/server/processes.ts';
import { type School, serviceOfFile, testPassword, unique } from '../support/server/service.ts';
import { schoolOn } from './schools.ts';
import { createServer, removeServer, servers, serverUrl, type TestServer } from './servers.ts';

const { home, homeServer, nodes } = servers();
const { withOwner } = shared;
const service = await serviceOfFile();
const school = await service.school();

const command = (...args: string[]) => startProgram('src/cli/main.ts', args, { DATABASE_URL: home }).ended;

async function createDatabase(server: TestServer, name: string): Promise<string> {
  await withOwner(serverUrl(server, 'postgres'), (client) => client.query(`create database ${name}`));
  return serverUrl(server, name);
}

const slotsLike = async (pattern: string) =>
  (
    await service.database.query<{ name: string }>(
      'select slot_name as name from pg_replication_slots where slot_name ~ $1 order by 1',
      [pattern],
    )
  ).map(({ name }) => name);

const folder = await mkdtemp(join(tmpdir(), 'school-lost-'));
afterAll(() => rm(folder, { recursive: true, force: true }));

const add = (name: string, url: string) =>
  withOwner(home, (client) => addNode(client, { name, url, homeUrl: home, onStep: () => undefined }));

/** Creates a school on a node, and exports it. */
async function exportedSchool(node: string) {
  const subdomain = unique('kept').toLowerCase();
  const options = ['--name', 'Kept', '--plan', '3', '--contact-email', `head@${subdomain}.example`];
  const created = await command('tenant', 'create', subdomain, ...options, '--node', node, '--json');
  expect(created).toMatchObject({ code: 0 });
  const { id: school } = JSON.parse(created.stdout) as { id: number };
  const file = join(folder, `${subdomain}.jsonl.gz`);
  await until(async () => (await command('tenant', 'export', subdomain, '--file', file)).code === 0 || undefined);
  return { id: school, subdomain, file };
}

const directory = (school: number) =>
  service.database.query(
    `select t.status, t.schema_version > 0 as has_tables, n.name as node
     from platform.tenant t left join platform.node n on n.id = t.node_id where t.id = $1`,
    [school],
  );

let id = 0;
let kept: Awaited<ReturnType<typeof exportedSchool>>;
beforeAll(async () => {
  const lost = await createServer();
  try {
    const [url, forwarder] = [await createDatabase(lost, 'school'), await createDatabase(lost, 'forwarder')];
    ({ id } = await add('lost', url));
    await withOwner(home, (client) => createForwarder(client, { name: 'lost', url: forwarder, homeUrl: home }));
    kept = await exportedSchool('lost');
  } finally {
    await removeServer(lost);
  }
});

test('a lost node is removed with its schools, without a slot and a subscription at home, and a school is imported at home', async () => {
  expect(await slotsLike(`^school_home_${id}$`)).toHaveLength(1);
  for (const [options, message] of [
    [[], 'ECONNREFUSED'],
    [['--lost'], ': 1, reserved: 0. Restore its server from a backup'],
    [['--lost'], '--delete-schools'],
    [['--delete-schools', '--yes'], '--delete-schools needs --lost'],
    [['--lost', '--delete-schools'], 'This deletes 1 school of the node lost. Without a terminal, confirm with --yes'],
  ] as const)
    expect(await command('node', 'remove', 'lost', ...options)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(message),
    });
  expect(await directory(kept.id)).toMatchObject([{ status: 'active', node: 'lost' }]);
  const listed = await command('node', 'list', '--json');
  expect(listed.code).not.toBe(0);
  expect(JSON.parse(listed.stdout)).toContainEqual(expect.objectContaining({ name: 'lost', is_reachable: false }));
  expect(await command('node', 'remove', 'lost', '--lost', '--delete-schools', '--yes')).toMatchObject({
    code: 0,
    stderr: '',
  });
  expect(await directory(kept.id)).toEqual([{ status: 'deleted', has_tables: false, node: null }]);
  expect((await withOwner(home, readNodes)).map(({ name }) => name)).toEqual(nodes.map(({ name }) => name));
  expect(await slotsLike(`^school_home_${id}$`)).toEqual([]);
  expect(await service.database.query('select from pg_subscription where subname = $1', [`school_node_${id}`])).toEqual(
    [],
  );
  // The others go on.
  await school.admin.get('/api/students');
  expect(await command('tenant', 'import', kept.file)).toMatchObject({ code: 0 });
  expect(await directory(kept.id)).toEqual([{ status: 'active', has_tables: true, node: null }]);
  const { data: entries } = await service.operator.get<{ action: string }[]>(
    `/api/platform/audit-logs?tenant_id=${kept.id}`,
  );
  expect(entries.map(({ action }) => action).slice(0, 2)).toEqual(['tenant.import', 'tenant.purge']);
});

test('a lost node is removed only when the moves to it are canceled, so that no school is purged whose tables another server has', async () => {
  const lost = await createServer();
  const schools: School[] = [];
  let lostId = 0;
  try {
    ({ id: lostId } = await add('target', await createDatabase(lost, 'school')));
    await withOwner(home, (client) => setDraining(client, 'target', true));
    for (const name of ['node-1', 'home', 'node-2'] as const) schools.push(await schoolOn(service, name));
    for (const { admin } of schools) await admin.post('/api/students', { first_name: 'Kept', last_name: 'There' }, 201);
    class Stopped extends Error {}
    for (const [n, { id: moved }] of schools.entries()) {
      // The last one only begins to move.
      const moving = withOwner(home, (client) =>
        moveSchool(client, {
          homeUrl: home,
          school: moved,
          to: 'target',
          onStep: (step) => (n === 2 && step === 'copied' ? Promise.reject(new Stopped()) : Promise.resolve()),
        }),
      );
      if (n === 2) await expect(moving).rejects.toThrow(Stopped);
      else await moving;
    }
  } finally {
    await removeServer(lost);
  }
  const before = await Promise.all(schools.map(({ id: moved }) => directory(moved)));
  expect(before.flat().map(({ status, node }) => [status, node])).toEqual([
    ['active', 'target'],
    ['active', 'target'],
    ['active', 'node-2'],
  ]);
  const cancels = schools.map(({ subdomain }) => `school tenant move ${subdomain} target --cancel --lost`);
  for (const options of [[], ['--delete-schools', '--yes']]) {
    const { code, stderr } = await command('node', 'remove', 'target', '--lost', ...options);
    expect(code).toBe(1);
    expect(stderr.split('\n').filter((line) => line.startsWith('school tenant move'))).toEqual(cancels);
  }
  expect(await Promise.all(schools.map(({ id: moved }) => directory(moved)))).toEqual(before);
  for (const line of cancels) expect(await command(...line.split(' ').slice(1), '--yes')).toMatchObject({ code: 0 });
  expect(await command('node', 'remove', 'target', '--lost')).toMatchObject({ code: 0, stderr: '' });
  expect((await Promise.all(schools.map(({ id: moved }) => directory(moved)))).flat()).toMatchObject([
    { status: 'active', node: 'node-1' },
    { status: 'active', node: null },
    { status: 'active', node: 'node-2' },
  ]);
  for (const { admin } of schools)
    expect((await admin.get<{ first_name: string }[]>('/api/students')).data).toMatchObject([{ first_name: 'Kept' }]);
  expect(await slotsLike(`_${lostId}$`)).toEqual([]);
});

test('a node whose only school is deleted is removed after its purge, and the school is imported at home', async () => {
  const server = nodes[1]?.server ?? homeServer;
  const url = await createDatabase(server, 'purged');
  await add('purged', url);
  const purged = await exportedSchool('purged');
  const onNode = (text: string) =>
    withOwner(url, async (client) => (await client.query<{ has_more: boolean }>(text, [purged.id])).rows);
  expect(await command('tenant', 'delete', purged.subdomain, '--yes')).toMatchObject({ code: 0 });
  expect(await command('node', 'remove', 'purged')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('wait for their purge'),
  });
  await onNode("update platform.tenant set deleted_at = now() - interval '100 days' where id = $1");
  await onNode("select core.purge_mark($1, 30, 'file')");
  while ((await onNode('select core.purge_drop($1) as has_more'))[0]?.has_more === true);
  expect(await command('node', 'remove', 'purged')).toMatchObject({ code: 0, stderr: '' });
  expect(await directory(purged.id)).toEqual([{ status: 'deleted', has_tables: false, node: null }]);
  expect(await command('tenant', 'import', purged.file)).toMatchObject({ code: 0 });
  expect(await directory(purged.id)).toEqual([{ status: 'active', has_tables: true, node: null }]);
  await withOwner(serverUrl(server, 'postgres'), (client) => client.query('drop database purged with (force)'));
});

test('a forwarder that is lost is removed and created again under its name, and serves all schools', async () => {
  expect(await slotsLike('^school_forwarder_lost$')).toHaveLength(1);
  expect(await command('forwarder', 'remove', 'lost')).toMatchObject({ code: 0, stderr: '' });
  expect(await slotsLike('^school_forwarder_lost$')).toEqual([]);
  const url = await createDatabase(nodes[1]?.server ?? homeServer, 'again');
  expect(await command('forwarder', 'create', 'lost', url)).toMatchObject({ code: 0, stderr: '' });
  const port = await freePort();
  const api = startProgram('src/main.ts', ['--only', 'api'], {
    ...service.settings,
    DATABASE_URL: home,
    API_DATABASE_URL: `${url}?options=-c%20role%3Dschool_api`,
    PORT: String(port),
    NODE_ENV: 'test',
    MIGRATE_ON_START: 'false',
  });
  try {
    await until(async () => {
      const response = await fetch(`http://127.0.0.1:${port}/api/auth/login`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ subdomain: school.subdomain, email: school.adminEmail, password: testPassword }),
      }).catch(() => undefined);
      return response?.status === 200 || undefined;
    });
  } finally {
    api.kill('SIGTERM');
    await api.ended;
    await command('forwarder', 'remove', 'lost', url);
    await withOwner(serverUrl(nodes[1]?.server ?? homeServer, 'postgres'), (client) =>
      client.query('drop database again with (force)'),
    );
  }
});
