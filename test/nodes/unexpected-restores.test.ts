import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { createForwarder } from '../../src/servers/forwarder.ts';
import { startProgram } from '../support/server/processes.ts';
import { unique } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';
import { createDatabase } from './fleet.ts';
import { agrees, backup, check, commandAt, createSchool, fleet, rows, run, started, verify } from './restores.ts';
import { createServer, restore, snapshot } from './servers.ts';

const { withOwner } = shared;

const newSchool = () => {
  const subdomain = unique('later').toLowerCase();
  return [subdomain, '--name', 'Later', '--plan', '3', '--contact-email', `head@${subdomain}.example`];
};

test('a backup of a node at the address of another one runs no job, gets no school, and does not count as the node', async () => {
  const { home, east, west } = await fleet();
  await createSchool(home, '--node', 'east');
  const ofWest = await createSchool(home, '--node', 'west');
  await check(home);
  const ownBackup = await backup(west.server);
  await restore(west.server, await backup(east.server));
  await check(home);

  const worker = startProgram('src/main.ts', ['--only', 'worker'], { DATABASE_URL: home });
  await until(() => worker.output().includes('The worker of west does not run') || undefined);
  worker.kill('SIGTERM');
  await worker.ended;
  // The copy has the job of the other node, which has sent the email.
  expect(await rows(west.url, "select task from core.jobs() where task = 'send_email'")).toHaveLength(1);

  const created = await commandAt(home, 'tenant', 'create', ...newSchool(), '--node', 'west');
  expect(created).toMatchObject({ code: 1 });
  expect(await rows(west.url, 'select id from platform.tenant')).toHaveLength(1);
  expect(await rows(home, "select id from platform.tenant where status = 'deleted'")).toEqual([]);
  const elsewhere = await run(home, 'tenant', 'create', ...newSchool(), '--json');
  expect(JSON.parse(elsewhere)).toMatchObject({ status: 'active' });

  // Not a question about the school of the other node, which is open on both with the same claim.
  const found = await verify(home);
  expect(found.code).toBe(1);
  expect(found.disagreements).toEqual([]);
  expect(found.findings).toContainEqual({ server: 'west', text: expect.stringContaining('another database answers') });
  const listed = JSON.parse((await commandAt(home, 'node', 'list', '--json')).stdout) as Record<string, unknown>[];
  expect(listed).toMatchObject([{ is_reachable: true }, { is_reachable: false }]);

  await restore(west.server, ownBackup);
  await run(home, 'node', 'add', 'west', west.url);
  await agrees(home);
  expect(await rows(west.url, 'select id::integer from platform.tenant')).toEqual([{ id: ofWest.id }]);
});

test('a forwarder that was restored to an earlier moment copies the directory again', async () => {
  const { home } = await fleet();
  const school = await createSchool(home, '--node', 'east');
  const server = await createServer();
  started.push(server);
  const url = await createDatabase(server, 'forwarder');
  const create = () => withOwner(home, (client) => createForwarder(client, { name: 'restored', url, homeUrl: home }));
  await create();
  const folder = await snapshot(server);
  await run(home, 'tenant', 'move', school.subdomain, 'west', '--home-url', home);
  const created = await createSchool(home, '--node', 'east');
  await until(async () => (await rows(url, 'select from platform.tenant')).length === 2 || undefined);
  await restore(server, folder);

  const directory = () => rows(url, 'select id::integer, node_id::integer from platform.tenant order by id');
  expect(await directory()).toEqual([{ id: school.id, node_id: 1 }]);
  await create();
  expect(await directory()).toEqual([
    { id: school.id, node_id: 2 },
    { id: created.id, node_id: 1 },
  ]);
});

test('a home that was restored to the moment before a move is noticed at once, and imports no school that a node has', async () => {
  const { home, homeServer } = await fleet();
  const moved = await createSchool(home, '--node', 'west');
  await run(home, 'tenant', 'move', moved.subdomain, 'home', '--home-url', home);
  await run(home, 'tenant', 'move', moved.subdomain, '--confirm', '--yes');
  await check(home);
  const folder = await backup(homeServer);
  const created = await createSchool(home, '--node', 'east');
  const file = join(tmpdir(), `${created.subdomain}.jsonl.gz`);
  await run(home, 'tenant', 'export', created.subdomain, '--file', file);
  // Within the minute of the last check.
  await run(home, 'tenant', 'move', moved.subdomain, 'west', '--home-url', home);
  await restore(homeServer, folder);

  const early = await commandAt(home, 'tenant', 'create', ...newSchool());
  expect(early).toMatchObject({ code: 1 });
  expect(early.stderr).toContain('older than node west remembers it');
  await run(home, 'database', 'adopt', '--as', 'successor', '--yes');
  const imported = await commandAt(home, 'tenant', 'import', file, '--node', 'home');
  expect(imported).toMatchObject({ code: 1 });
  expect(imported.stderr).toContain('school node reconcile');
  await run(home, 'node', 'reconcile', '--yes', '--home-url', home);
  await agrees(home);
  expect(
    await rows(
      home,
      'select t.id::integer, n.name from platform.tenant t join platform.node n on n.id = t.node_id order by 1',
    ),
  ).toEqual([
    { id: moved.id, name: 'west' },
    { id: created.id, name: 'east' },
  ]);
});
