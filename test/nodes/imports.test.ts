import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { readFile } from 'node:fs/promises';
import { afterAll, describe, expect, test } from '@jest/globals';
import { releaseReservations } from '../../src/servers/nodes/new-schools.ts';
import { until } from '../support/client/until.ts';
import { startProgram } from '../support/server/processes.ts';
import { type School, serviceOfFile, testPassword, unique } from '../support/server/service.ts';
import { schoolOn, type ServerName } from './schools.ts';
import { servers, startServer, stopServer } from './servers.ts';

const { home, nodes } = servers();
const { withOwner, pg } = shared;
const service = await serviceOfFile();
const folder = await mkdtemp(join(tmpdir(), 'school-imports-'));
afterAll(() => rm(folder, { recursive: true, force: true }));

const urls = { home, 'node-1': nodes[0]?.url ?? '', 'node-2': nodes[1]?.url ?? '' };
const rows = (name: ServerName, text: string, values: unknown[] = []) =>
  withOwner(urls[name], async (client) => (await client.query<Record<string, unknown>>(text, values)).rows);

const program = (...args: string[]) => startProgram('src/cli/main.ts', args, { DATABASE_URL: home });
async function command<T>(...args: string[]): Promise<T> {
  const { code, stdout, stderr } = await program(...args, '--json').ended;
  expect({ code, stderr }).toMatchObject({ code: 0 });
  return JSON.parse(stdout) as T;
}

interface Imported {
  id: number;
  subdomain: string;
  status: string;
  server: string;
  rows: number;
}

const fileOf = (school: School, name = 'export') => join(folder, `${school.subdomain}-${name}.jsonl.gz`);

/** Exports a school, from the home. */
async function exported(school: School): Promise<string> {
  await command('tenant', 'export', school.subdomain, '--file', fileOf(school));
  return fileOf(school);
}

/** The same file, with another header, and without its last `drop` lines. */
async function changed(
  file: string,
  name: string,
  change: (tenant: Record<string, unknown>) => Record<string, unknown>,
  drop = 0,
): Promise<string> {
  const [header = '', ...lines] = gunzipSync(await readFile(file))
    .toString()
    .trimEnd()
    .split('\n');
  const { tenant, ...rest } = JSON.parse(header) as { tenant: Record<string, unknown> };
  const text = [JSON.stringify({ ...rest, tenant: change(tenant) }), ...lines.slice(0, lines.length - drop)];
  const path = join(folder, `${name}.jsonl.gz`);
  await writeFile(path, gzipSync(text.map((line) => `${line}\n`).join('')));
  return path;
}

/** The file of a school that this platform never had, with an id that is no integer in Postgres. */
async function foreign(
  name: string,
  drop = 0,
): Promise<{ file: string; id: number; subdomain: string; email: string }> {
  const school = await schoolOn(service, 'node-1');
  await school.admin.post('/api/students', { first_name: 'Ada', last_name: 'Imported' }, 201);
  const id = school.id + 3_000_000_000;
  const subdomain = unique(name).toLowerCase();
  const file = await changed(
    await exported(school),
    subdomain,
    (tenant) => ({ ...tenant, id, subdomain, created_at: '2020-01-02T03:04:05Z' }),
    drop,
  );
  return { file, id, subdomain, email: school.adminEmail };
}

const canLogIn = async (subdomain: string, email: string) =>
  (await service.anonymous.send('POST', '/api/auth/login', { body: { subdomain, email, password: testPassword } }))
    .status === 200;

const directory = (subdomain: string) =>
  rows(
    'home',
    `select t.id::double precision as id, n.name as node, t.status, core.is_reserved(t) as is_reserved
     from platform.tenant t left join platform.node n on n.id = t.node_id where t.subdomain = $1`,
    [subdomain],
  );

describe('school tenant import', () => {
  test.each<[ServerName]>([['node-2'], ['home']])(
    'imports a new school to %s, where its users log in',
    async (node) => {
      const { file, id, subdomain, email } = await foreign('told');
      const imported = await command<Imported>('tenant', 'import', file, '--node', node);
      expect(imported).toMatchObject({ id, subdomain, status: 'active', server: node });
      await until(async () => (await canLogIn(subdomain, email)) || undefined);
      const admin = await service.anonymous.login({ subdomain, email, password: testPassword });
      const { data } = await admin.get<{ last_name: string }[]>('/api/students');
      expect(data.map(({ last_name }) => last_name)).toEqual(['Imported']);
      const listed = await service.operator.get<{ id: number; status: string; stats?: unknown }[]>(
        `/api/platform/tenants?search=${subdomain}`,
      );
      expect(listed.data).toMatchObject([{ id, status: 'active' }]);
      const entries = await service.operator.get<{ action: string }[]>(`/api/platform/audit-logs?tenant_id=${id}`);
      expect(entries.data.map(({ action }) => action)).toContain('tenant.import');
      // The next school gets a later id.
      expect((await service.school()).id).toBeGreaterThan(id);
      const { code, stderr } = await program('tenant', 'import', file).ended;
      expect(code).toBe(1);
      expect(stderr).toContain('was not purged');
      expect(await canLogIn(subdomain, email)).toBe(true);
    },
  );

  test('takes the node with the fewest schools, and under another subdomain a new id', async () => {
    const school = await schoolOn(service, 'node-1');
    const file = await exported(school);
    const subdomain = unique('copy').toLowerCase();
    await rows('home', "update platform.node set status = 'draining' where name = 'node-1'");
    try {
      const copy = await command<Imported>('tenant', 'import', file, '--as', subdomain);
      expect(copy).toMatchObject({ subdomain, status: 'suspended', server: 'node-2' });
      expect(copy.id).not.toBe(school.id);
      expect(await directory(subdomain)).toEqual([
        { id: copy.id, node: 'node-2', status: 'suspended', is_reserved: false },
      ]);
      expect(
        await command<{ differences: { table: string }[] }>(
          'tenant',
          'clone',
          school.subdomain,
          unique('clone').toLowerCase(),
        ),
      ).toMatchObject({
        copy_of: school.id,
        server: 'node-2',
      });
    } finally {
      await rows('home', "update platform.node set status = 'active' where name = 'node-1'");
    }
  });

  test('that is refused leaves nothing behind', async () => {
    const { file, subdomain, id } = await foreign('broken', 1);
    const truncated = await program('tenant', 'import', file, '--node', 'node-1').ended;
    expect(truncated).toMatchObject({ code: 1, stderr: expect.stringContaining('Nothing was changed') });
    expect(await directory(subdomain)).toEqual([]);
    expect(await rows('node-1', 'select from platform.tenant where id = $1', [id])).toEqual([]);
  });

  test('to an unknown node, with the id or subdomain of another school, or run on a node is refused', async () => {
    const whole = await foreign('whole');
    const noNode = await program('tenant', 'import', whole.file, '--node', 'nowhere').ended;
    expect(noNode).toMatchObject({ code: 1, stderr: expect.stringContaining('There is no node nowhere') });
    const east = await schoolOn(service, 'node-1');
    const taken = await changed(whole.file, 'taken', (tenant) => ({ ...tenant, subdomain: east.subdomain }));
    const refused = await program('tenant', 'import', taken, '--node', 'node-2').ended;
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('has the subdomain') });
    const stranger = await changed(whole.file, 'stranger', (tenant) => ({ ...tenant, id: east.id }));
    expect(await program('tenant', 'import', stranger).ended).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('is a different school'),
    });
    const atNode = startProgram('src/cli/main.ts', ['tenant', 'import', whole.file], { DATABASE_URL: urls['node-1'] });
    expect(await atNode.ended).toMatchObject({ code: 1, stderr: expect.stringContaining('is the node node-1') });
    await east.admin.get('/api/students');
  });

  test('that is killed leaves a reservation, with which nobody logs in, and the same command finishes it', async () => {
    const { file, id, subdomain, email } = await foreign('killed');
    // The import waits for this lock on the node.
    const blocker = new pg.Client({ connectionString: urls['node-2'] });
    await blocker.connect();
    await blocker.query('select pg_advisory_lock(core.tenant_lock_key($1))', [id]);
    const first = program('tenant', 'import', file, '--node', 'node-2');
    await until(async () => (await directory(subdomain))[0]);
    expect(await withOwner(home, (client) => releaseReservations(client, 0))).toEqual([
      { id, subdomain, node: 'node-2', outcome: 'unknown' },
    ]);
    first.kill('SIGKILL');
    await first.ended;
    expect(await directory(subdomain)).toEqual([{ id, node: 'node-2', status: 'deleted', is_reserved: true }]);
    expect(await canLogIn(subdomain, email)).toBe(false);
    await blocker.end();
    expect(await command('tenant', 'import', file)).toMatchObject({ id, server: 'node-2', status: 'active' });
    await until(async () => (await canLogIn(subdomain, email)) || undefined);
  });

  test('on a node that ends says so, keeps the reservation, and is finished by the same command', async () => {
    const { file, id, subdomain } = await foreign('lost');
    const server = nodes[1]?.server;
    if (!server) throw new Error('There is no second node.');
    const as = unique('lost-as').toLowerCase();
    const blocker = new pg.Client({ connectionString: urls['node-2'] });
    blocker.on('error', () => undefined);
    await blocker.connect();
    await blocker.query('select pg_advisory_lock(core.tenant_lock_key($1))', [id]);
    const first = program('tenant', 'import', file, '--as', as, '--node', 'node-2');
    await until(async () => (await directory(as))[0]);
    await stopServer(server);
    try {
      const { code, stderr } = await first.ended;
      expect({ code, stderr }).toMatchObject({ code: 1, stderr: expect.stringContaining('Repeat the command') });
      expect(await directory(as)).toMatchObject([{ id, is_reserved: true }]);
    } finally {
      await startServer(server);
    }
    await blocker.end().catch(() => undefined);
    expect(await command('tenant', 'import', file, '--as', as)).toMatchObject({ id, subdomain: as, server: 'node-2' });
    expect(await directory(subdomain)).toEqual([]);
  });

  test('returns a purged school to its node', async () => {
    const school = await schoolOn(service, 'node-2');
    const file = await exported(school);
    await service.operator.delete(`/api/platform/tenants/${school.id}`);
    await rows('node-2', "update platform.tenant set deleted_at = now() - interval '100 days' where id = $1", [
      school.id,
    ]);
    await rows('node-2', 'select core.purge_mark($1, 30, $2)', [school.id, file]);
    while ((await rows('node-2', 'select core.purge_drop($1) as has_more', [school.id]))[0]?.['has_more'] === true);
    expect(await program('tenant', 'import', file, '--node', 'node-1').ended).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('Leave out --node'),
    });
    expect(await command('tenant', 'import', file)).toMatchObject({ id: school.id, server: 'node-2' });
    await until(async () => (await canLogIn(school.subdomain, school.adminEmail)) || undefined);
  });
});
