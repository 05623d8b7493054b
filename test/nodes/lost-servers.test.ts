import { beforeAll, expect, jest, test } from '@jest/globals';
import { addNode, readNodes } from '../../src/database/nodes.ts';
import { createRouter } from '../../src/database/router.ts';
import { until } from '../support/client/until.ts';
import { freePort, startProgram } from '../support/server/processes.ts';
import { serviceOfFile, testPassword } from '../support/server/service.ts';
import { createServer, removeServer, type Servers, serverUrl, type TestServer } from './servers.ts';

// Starts and loses a server.
jest.setTimeout(150_000);

const { home, homeServer, nodes } = JSON.parse(process.env['TEST_NODES'] ?? '') as Servers;
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

let id = 0;
beforeAll(async () => {
  const lost = await createServer();
  try {
    const [url, router] = [await createDatabase(lost, 'school'), await createDatabase(lost, 'router')];
    await withOwner(home, async (client) => {
      ({ id } = await addNode(client, { name: 'lost', url, homeUrl: home, onStep: () => undefined }));
      await createRouter(client, { name: 'lost', url: router, homeUrl: home });
    });
  } finally {
    await removeServer(lost);
  }
});

test('a node whose server is lost can be removed, and leaves no slot and no subscription at home', async () => {
  expect(await slotsLike(`^school_home_${id}$`)).toHaveLength(1);
  const refused = await command('node', 'remove', 'lost');
  expect(refused.code).toBe(1);
  const listed = await command('node', 'list', '--json');
  expect(listed.code).not.toBe(0);
  expect(JSON.parse(listed.stdout)).toContainEqual(expect.objectContaining({ name: 'lost', is_reachable: false }));
  expect(await command('node', 'remove', 'lost', '--lost')).toMatchObject({ code: 0, stderr: '' });
  expect((await withOwner(home, readNodes)).map(({ name }) => name)).toEqual(nodes.map(({ name }) => name));
  expect(await slotsLike(`^school_home_${id}$`)).toEqual([]);
  expect(await service.database.query('select from pg_subscription where subname = $1', [`school_node_${id}`])).toEqual(
    [],
  );
  // The others go on.
  await school.admin.get('/api/students');
});

test('a router that is lost is removed and created again under its name, and serves all schools', async () => {
  expect(await slotsLike('^school_router_lost$')).toHaveLength(1);
  expect(await command('router', 'remove', 'lost')).toMatchObject({ code: 0, stderr: '' });
  expect(await slotsLike('^school_router_lost$')).toEqual([]);
  const url = await createDatabase(nodes[1]?.server ?? homeServer, 'again');
  expect(await command('router', 'create', 'lost', url)).toMatchObject({ code: 0, stderr: '' });
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
    await command('router', 'remove', 'lost', url);
    await withOwner(serverUrl(nodes[1]?.server ?? homeServer, 'postgres'), (client) =>
      client.query('drop database again with (force)'),
    );
  }
});
