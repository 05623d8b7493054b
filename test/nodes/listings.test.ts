import { expect, test } from '@jest/globals';
import { until } from '../support/client/until.ts';
import { startProgram } from '../support/server/processes.ts';
import { serviceOfFile } from '../support/server/service.ts';
import { schoolOn } from './schools.ts';
import { servers, startServer, stopServer } from './servers.ts';

const { home, nodes } = servers();
const [first, second] = nodes;
if (!first || !second) throw new Error('There are no two nodes.');
const { withOwner } = shared;
const service = await serviceOfFile();

const command = (...args: string[]) => startProgram('src/cli/main.ts', args, { DATABASE_URL: home }).ended;
async function parsed<T>(code: number, ...args: string[]): Promise<T> {
  const ended = await command(...args, '--json');
  expect(ended).toMatchObject({ code });
  return JSON.parse(ended.stdout) as T;
}
const onFirst = <T>(text: string, values: unknown[]) =>
  withOwner(first.url, async (client) => (await client.query(text, values)).rows as T[]);

test('school jobs list and failed exit with 1 while a node is down, and name it', async () => {
  await stopServer(second.server);
  try {
    interface Jobs {
      jobs: { node: string }[];
      unreachable: { name: string; error: string }[];
    }
    const [list, queues, failed, found] = await Promise.all([
      command('jobs', 'list'),
      parsed<{ nodes: { name: string; error?: string }[] }>(1, 'jobs', 'list'),
      command('jobs', 'failed'),
      parsed<Jobs>(1, 'jobs', 'failed'),
    ]);
    for (const { code, stderr } of [list, failed])
      expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(/^node-2 does not answer: .+\n$/) });
    expect(queues.nodes.map(({ name, error }) => [name, error !== undefined])).toEqual([
      ['home', false],
      ['node-1', false],
      ['node-2', true],
    ]);
    expect(failed.stdout).toBe('No job has failed on the servers that answer.\n');
    expect(found).toEqual({ total: 0, jobs: [], unreachable: [{ name: 'node-2', error: expect.any(String) }] });
    expect(await command('jobs', 'failed', '--node', 'node-1')).toMatchObject({
      code: 0,
      stdout: 'No job has failed.\n',
      stderr: '',
    });
  } finally {
    await startServer(second.server);
  }
  expect((await command('jobs', 'list')).code).toBe(0);
});

test('school jobs failed --task accepts a task that only one server knows', async () => {
  const [job] = await onFirst<{ id: string }>(
    "select id from graphile_worker.add_job('only_here', run_at => now() + interval '1 day')",
    [],
  );
  await onFirst("update graphile_worker._private_jobs set attempts = 1, last_error = 'it failed' where id = $1", [
    job?.id,
  ]);
  const failed = await parsed<{ jobs: object[] }>(0, 'jobs', 'failed', '--task', 'only_here');
  expect(failed.jobs).toMatchObject([{ id: Number(job?.id), node: 'node-1', error: 'it failed' }]);
  expect(await command('jobs', 'failed', '--task', 'nowhere')).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/^There is no task "nowhere"\. Tasks: .*only_here/),
  });
  await command('jobs', 'cancel', String(job?.id), '--node', 'node-1');
});

test('school tenant list and show name the server of a school, with its students', async () => {
  const [east, atHome] = [await schoolOn(service, 'node-1'), await schoolOn(service, 'home')];
  for (const { admin } of [east, atHome])
    await admin.post('/api/students', { first_name: 'Ada', last_name: 'Counted' }, 201);
  interface Listed {
    id: number;
    schema_version?: number;
    students: number;
    node?: string;
  }
  // The home copies the number of students.
  const [ofEast, ofHome] = await until(async () => {
    const schools = await parsed<Listed[]>(0, 'tenant', 'list');
    const found = [east, atHome].map(({ id }) => schools.find((school) => school.id === id));
    return found[0]?.students === 1 ? found : undefined;
  });
  expect(ofEast).toMatchObject({ students: 1, node: 'node-1' });
  expect(ofEast).not.toHaveProperty('schema_version');
  expect(ofHome).toMatchObject({ students: 1, schema_version: expect.any(Number) });
  expect(ofHome).not.toHaveProperty('node');

  const { stdout } = await command('tenant', 'list');
  expect(stdout).toContain(`${east.id}\t${east.subdomain}\tactive\tnode-1\n`);
  expect(stdout).toContain(`${atHome.id}\t${atHome.subdomain}\tactive\thome\n`);
  expect((await command('tenant', 'show', east.subdomain)).stdout).toMatch(/^Server +node-1$/m);
  expect((await command('tenant', 'show', atHome.subdomain)).stdout).toMatch(/^Server +home$/m);
  expect(await parsed(0, 'tenant', 'show', east.subdomain)).toMatchObject({ id: east.id, node: 'node-1' });
});

test('school tenant list and show agree that a school on a node was deleted, then that it was purged', async () => {
  const { id, subdomain } = await schoolOn(service, 'node-1');
  const states = async () => {
    const listed = (await command('tenant', 'list')).stdout
      .split('\n')
      .map((line) => line.split('\t'))
      .find(([school]) => school === String(id));
    const shown = await parsed<{ status: string }>(0, 'tenant', 'show', subdomain);
    return { listed: listed?.slice(2), shown: shown.status };
  };
  expect(await command('tenant', 'delete', subdomain, '--yes')).toMatchObject({ code: 0 });
  const date = expect.stringMatching(/^\d{4}-\d\d-\d\d$/);
  expect(await states()).toEqual({ listed: ['deleted', 'node-1', date], shown: 'deleted' });
  await onFirst("update platform.tenant set deleted_at = now() - interval '100 days' where id = $1", [id]);
  await onFirst("select core.purge_mark($1, 30, 'file')", [id]);
  await until(async () => ((await states()).listed?.[0] === 'purged' ? true : undefined));
  expect(await states()).toEqual({ listed: ['purged', 'node-1', date], shown: 'purged' });
  while ((await onFirst<{ has_more: boolean }>('select core.purge_drop($1) as has_more', [id]))[0]?.has_more);
});
