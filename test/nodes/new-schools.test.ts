import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { setDraining } from '../../src/servers/nodes/nodes.ts';
import { until } from '../support/client/until.ts';
import { startProgram } from '../support/server/processes.ts';
import { serviceOfFile, testPassword } from '../support/server/service.ts';
import { newSchool } from './schools.ts';
import { servers, startServer, stopServer } from './servers.ts';

const { home, nodes } = servers();
const { withOwner } = shared;
const service = await serviceOfFile();
// The forwarder is on the server of the first node.
const [, second] = nodes;
if (!second) throw new Error('There is no second node.');
const { server, url } = second;

type Input = ReturnType<typeof newSchool>;

const command = (...args: string[]) =>
  startProgram('src/cli/main.ts', args, { DATABASE_URL: home, ADMIN_PASSWORD: testPassword }).ended;
const byCommand = ({ subdomain, name, contact_email }: Input, ...options: string[]) =>
  command('tenant', 'create', subdomain, '--name', name, '--plan', '3', '--contact-email', contact_email, ...options);
const byApi = (body: Input) => service.operator.send('POST', '/api/platform/tenants', { body });
const drainFirst = (isDraining: boolean) => withOwner(home, (client) => setDraining(client, 'node-1', isDraining));

/** What the directory has of a school. */
const directory = ({ subdomain }: Input) =>
  service.database.query<{ id: number; node: string; is_reserved: boolean }>(
    `select t.id::double precision as id, n.name as node, core.is_reserved(t) as is_reserved
     from platform.tenant t join platform.node n on n.id = t.node_id where t.subdomain = $1`,
    [subdomain],
  );

/** Schools of the first node that do not exist, so that the second one has the fewest and is chosen for new ones. */
beforeAll(() =>
  service.database.query(
    `insert into platform.tenant (name, subdomain, status, plan_id, contact_email, node_id)
     select 'None', 'none-' || n, 'deleted', 3, 'none@school.example', (
       select id from platform.node where name = 'node-1')
     from generate_series(1, 500) n`,
  ),
);
afterAll(() =>
  withOwner(home, (client) => client.query("delete from platform.tenant where subdomain ~ '^none-[0-9]+$'")),
);

async function whileDown(work: () => Promise<void>): Promise<void> {
  await stopServer(server);
  try {
    await work();
  } finally {
    await startServer(server);
    await until(async () =>
      withOwner(url, (client) => client.query('select')).then(
        () => true,
        () => undefined,
      ),
    );
  }
}

test('a new school gets another node if the chosen one refuses the connection before the worker has noticed it', async () => {
  const chosen = await service.database.query(
    'select name, unreachable_since from platform.node where id = core.node_of_new_school(null)',
  );
  expect(chosen).toEqual([{ name: 'node-2', unreachable_since: null }]);
  await whileDown(async () => {
    const [first, other] = [newSchool(), newSchool()];
    expect((await byApi(first)).status).toBe(201);
    expect(await byCommand(other)).toMatchObject({ code: 0, stderr: '' });
    for (const school of [first, other]) {
      // When the copy of its row has arrived.
      await until(async () => (await directory(school))[0]?.is_reserved === false || undefined);
      expect(await directory(school)).toMatchObject([{ node: 'node-1' }]);
    }
  });
});

test('a new school is refused, and nothing is reserved, if no node answers', async () => {
  await drainFirst(true);
  try {
    await whileDown(async () => {
      const school = newSchool();
      const message = 'The node node-2 does not answer. No school was created.';
      expect(await byApi(school)).toMatchObject({ status: 503, error: 'unavailable', message });
      expect(await byCommand(school)).toMatchObject({ code: 1, stderr: expect.stringContaining(message) });
      expect(await directory(school)).toEqual([]);
    });
  } finally {
    await drainFirst(false);
  }
});

test('a reservation of an earlier request stays while its node does not answer, and is continued on no other node', async () => {
  const school = newSchool();
  await service.database.query('select from core.school_reserve($1)', [JSON.stringify(school)]);
  const reserved = await directory(school);
  expect(reserved).toMatchObject([{ node: 'node-2', is_reserved: true }]);
  await whileDown(async () => {
    const message = `The node node-2 did not answer. It may have created the school ${school.subdomain}`;
    expect(await byApi(school)).toMatchObject({
      status: 503,
      error: 'unavailable',
      message: expect.stringContaining(message),
    });
    expect(await byCommand(school)).toMatchObject({ code: 1, stderr: expect.stringContaining(message) });
  });
  expect(await byCommand(school, '--node', 'node-1')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(`The subdomain ${school.subdomain} is reserved on the node node-2`),
  });
  expect(await directory(school)).toEqual(reserved);
  expect(await command('node', 'release')).toMatchObject({
    code: 0,
    stdout: 'No reservation is older than 10 minutes. Give another age with --older-than <minutes>.\n',
  });
  expect(await byCommand(school, '--node', 'node-2')).toMatchObject({ code: 0, stderr: '' });
  await until(async () => (await directory(school))[0]?.is_reserved === false || undefined);
  expect(await directory(school)).toEqual([{ ...reserved[0], is_reserved: false }]);
});
