import { spawnSync } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { contents } from '../support/database/contents.ts';
import { runProgram } from '../support/server/processes.ts';
import { testPassword, testService, type School } from '../support/server/service.ts';

const dataDir = await mkdtemp(join(tmpdir(), 'school-tenants-'));
const service = await testService({ DATA_DIR: dataDir }, 5);
let school: School;
beforeAll(async () => {
  school = await service.school();
  const { classId } = await school.classroom('Sparrows');
  await school.admin.post('/api/students', { first_name: 'Ada', last_name: 'Byron', class_id: classId }, 201);
});
afterAll(async () => {
  await service.close();
  await rm(dataDir, { recursive: true, force: true });
});

const tenant = (args: string[], env: Record<string, string> = {}) =>
  runProgram('src/cli/main.ts', ['tenant', ...args], { DATABASE_URL: service.database.url, DATA_DIR: dataDir, ...env });
const parsed = async <T>(...args: string[]) => {
  const { stdout, stderr, code } = await tenant([...args, '--json']);
  expect({ stderr, code }).toEqual({ stderr: '', code: 0 });
  return JSON.parse(stdout) as T;
};
const lastAudit = async () =>
  (
    await service.database.query(
      'select actor_email, action, tenant_id::integer from platform.audit_log order by id desc limit 1',
    )
  )[0];
const newName = (prefix: string) => `${prefix}-${Math.random().toString(36).slice(2, 8)}`;

describe('school tenant', () => {
  test('create makes a school whose admin can log in, show and list name it; the audit log has the command line', async () => {
    const subdomain = newName('made');
    const email = `head@${subdomain}.example`;
    const created = await tenant(
      ['create', subdomain, '--name', 'Made School', '--plan', 'premium', '--contact-email', email],
      { ADMIN_PASSWORD: testPassword },
    );
    expect(created).toMatchObject({ code: 0, stderr: '' });
    const { id, status } = await parsed<{ id: number; status: string }>('show', subdomain);
    expect(created.stdout).toBe(`School ${String(id)} (${subdomain}) was created. ${email} can log in.\n`);
    expect(status).toBe('active');
    expect(await lastAudit()).toEqual({ actor_email: 'command line', action: 'tenant.create', tenant_id: id });
    await service.anonymous.login({ subdomain, email, password: testPassword });
    expect((await tenant(['show', subdomain])).stdout).toMatch(/^School {6,}\d+ \(made-\w+\), Made School$/m);
    expect(await parsed('list')).toContainEqual({
      id,
      subdomain,
      name: 'Made School',
      status: 'active',
      plan: 'Premium',
      schema_version: expect.any(Number),
      students: 0,
      deleted_on: null,
    });
  });

  test.each([
    [['create', 'x_y', '--name', 'X', '--plan', '3', '--contact-email', 'no'], /^subdomain: .*\ncontact_email: /],
    [['create', 'www', '--name', 'X', '--plan', '3', '--contact-email', 'a@b.example'], /reserved/],
    [
      ['create', 'xy', '--name', 'X', '--plan', 'Golden', '--contact-email', 'a@b.example'],
      /^There is no plan "Golden"/,
    ],
    [['suspend', 'nowhere'], /^No school has the id or subdomain nowhere\.$/m],
  ])('%j is refused as in the API', async (args, message) => {
    expect(await tenant(args)).toMatchObject({ code: 1, stdout: '', stderr: expect.stringMatching(message) });
  });

  test('suspend, activate, delete and restore do what the API does; delete needs a confirmation', async () => {
    const other = await service.school();
    const name = other.subdomain;
    expect((await tenant(['suspend', name])).stdout).toBe(`School ${other.id} (${name}) is suspended.\n`);
    expect(await lastAudit()).toEqual({ actor_email: 'command line', action: 'tenant.suspend', tenant_id: other.id });
    expect(await other.admin.get('/api/students', 403)).toMatchObject({ error: 'tenant_suspended' });
    expect(await tenant(['suspend', name])).toMatchObject({
      code: 1,
      stderr: 'The status of this school cannot change from suspended to suspended.\n',
    });
    expect(await parsed('activate', name)).toEqual({ id: other.id, subdomain: name, status: 'active' });
    await other.admin.get('/api/students');
    expect(await tenant(['delete', name])).toMatchObject({
      code: 1,
      stderr: `This deletes school ${other.id} (${name}) and locks out its users. Without a terminal, confirm with --yes.\n`,
    });
    expect((await tenant(['delete', name, '--yes'])).code).toBe(0);
    expect((await parsed<{ status: string }>('show', name)).status).toBe('deleted');
    await other.admin.get('/api/students', 401);
    expect((await tenant(['restore', name])).stdout).toBe(`School ${other.id} (${name}) is restored.\n`);
  });
});

test('school tenant show and list give a purged school the status purged, and name no server without nodes', async () => {
  const { id, subdomain } = await service.school();
  await tenant(['delete', subdomain, '--yes']);
  await service.database.query("update platform.tenant set deleted_at = '2026-03-01T12:00:00Z' where id = $1", [id]);
  expect(await parsed('show', subdomain)).toMatchObject({ status: 'deleted' });
  await service.database.query("select core.purge_mark($1, 30, 'file')", [id]);
  const shown = await parsed('show', subdomain);
  expect(shown).toMatchObject({ status: 'purged', schema_version: 0 });
  expect(shown).not.toHaveProperty('node');
  const { stdout } = await tenant(['show', subdomain]);
  expect(stdout).toMatch(/^Status +purged$/m);
  expect(stdout).not.toMatch(/^Server /m);
  expect((await tenant(['list'])).stdout).toContain(`${id}\t${subdomain}\tpurged\t2026-03-01\n`);
});

describe('a copy of a school', () => {
  test('has a new id and schema, and otherwise the same content; the original is unchanged', async () => {
    await school.insert('device', { user_id: 1, token: 'phone', platform: 'android' });
    await school.insert('calendar_feed', { user_id: 1, kind: 'holidays', token_hash: 'a'.repeat(64) });
    const before = await contents(service.database, school.schema);
    const name = newName('copy');
    const copy = await parsed<{ id: number; status: string; copy_of: number }>('clone', school.subdomain, name);
    expect(copy).toMatchObject({ status: 'suspended', copy_of: school.id });
    expect(copy.id).not.toBe(school.id);
    expect(await contents(service.database, school.schema)).toEqual(before);
    const after = await contents(service.database, `tenant_${copy.id}`);
    // No secret works for both schools, and no message is sent twice.
    expect({ device: after['device'], feeds: after['calendar_feed'] }).toEqual({ device: [], feeds: [] });
    expect({ ...after, device: before['device'], calendar_feed: before['calendar_feed'] }).toEqual(before);
    const policies = await service.database.query<{ text: string }>(
      `select pg_get_expr(polqual, polrelid) as text from pg_policy p join pg_class c on c.oid = p.polrelid
       where c.relnamespace = $1::regnamespace and polname = 'tenant_isolation'`,
      [`tenant_${copy.id}`],
    );
    expect(policies.length).toBeGreaterThan(50);
    expect(policies.filter(({ text }) => !text.includes(`'${copy.id}'`))).toEqual([]);
    expect(await readdir(join(dataDir, 'exports'))).toEqual([]);

    const credentials = { subdomain: name, email: school.adminEmail, password: testPassword };
    expect(await service.anonymous.post('/api/auth/login', credentials, 403)).toMatchObject({
      error: 'tenant_suspended',
    });
    await parsed('activate', name);
    const admin = await service.anonymous.login(credentials);
    expect((await admin.get<{ last_name: string }[]>('/api/students')).data).toMatchObject([{ last_name: 'Byron' }]);
    // The original school does not see what the copy adds.
    await admin.post('/api/students', { first_name: 'Only', last_name: 'Copied' }, 201);
    expect((await school.admin.get<unknown[]>('/api/students')).pagination.totalItems).toBe(1);
    expect((await admin.send('GET', '/api/users', { headers: { 'X-Tenant-ID': String(school.id) } })).status).toBe(403);
  });

  test('under a subdomain that is in use, reserved or invalid is refused, and nothing remains', async () => {
    const schemas = () => service.database.query("select nspname from pg_namespace where nspname like 'tenant_%'");
    const before = await schemas();
    for (const name of [school.subdomain, 'www', 'Not_A_Label']) {
      expect(await tenant(['clone', school.subdomain, name])).toMatchObject({ code: 1, stdout: '' });
    }
    expect(await schemas()).toEqual(before);
    expect(await readdir(join(dataDir, 'exports'))).toEqual([]);
  });

  test('import --as keeps the id and the status where the id is free', async () => {
    const file = join(dataDir, 'moved.jsonl.gz');
    await parsed('export', school.subdomain, '--file', file);
    const elsewhere = await testService({}, 0);
    try {
      const name = newName('moved');
      const imported = await tenant(['import', file, '--as', name, '--json'], {
        DATABASE_URL: elsewhere.database.url,
      });
      expect(JSON.parse(imported.stdout)).toMatchObject({ id: school.id, subdomain: name, status: 'active' });
      // The id is taken now, by a school that is not the one in the file.
      await elsewhere.database.query("update platform.tenant set created_at = created_at - interval '1 day'");
      const again = await tenant(['import', file, '--as', newName('moved'), '--json'], {
        DATABASE_URL: elsewhere.database.url,
      });
      const second = JSON.parse(again.stdout) as { id: number; status: string };
      expect(second.status).toBe('active');
      expect(second.id).not.toBe(school.id);
    } finally {
      await elsewhere.close();
    }
  });
});

describe('school tenant verify', () => {
  test('finds a school and its export the same, and names the table that has changed since', async () => {
    const file = join(dataDir, 'verified.jsonl.gz');
    await parsed('export', school.subdomain, '--file', file);
    expect(await tenant(['verify', school.subdomain, file])).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/ have the same content: \d+ tables\.\n$/),
    });
    await service.database.query(`update ${school.schema}.student set roll_number = '17'`);
    const { code, stdout } = await tenant(['verify', school.subdomain, file]);
    expect(code).toBe(1);
    expect(stdout).toMatch(/^TABLE +ROWS HERE +ROWS THERE\nstudent +1 +1\n.* differ in 1 of \d+ tables\.\n$/);
  });

  test('compares two schools', async () => {
    const other = await service.school();
    const { stdout, code } = await tenant(['verify', school.subdomain, other.subdomain, '--json']);
    expect(code).toBe(1);
    expect((JSON.parse(stdout) as { differences: unknown[] }).differences).toContainEqual({
      table: 'student',
      left: 1,
      right: 0,
    });
  });
});

const hasTerminals = String(spawnSync('script', ['--version']).stdout).includes('util-linux');
(hasTerminals ? describe : describe.skip)('a long command', () => {
  const main = join(import.meta.dirname, '../../src/cli/main.ts');
  const run = (command: string, args: string[]) =>
    spawnSync(command, args, {
      env: { PATH: process.env['PATH'] ?? '', ENV_FILE: '', DATABASE_URL: service.database.url, DATA_DIR: dataDir },
      encoding: 'utf8',
    });

  test('shows a bar on a terminal, and only the result without one', () => {
    const args = ['tenant', 'export', school.subdomain, '--file', join(dataDir, 'bar.jsonl.gz')];
    const shown = run('script', ['-qefc', `'${process.execPath}' '${main}' ${args.join(' ')}`, '/dev/null']);
    expect(shown.stdout).toMatch(/100 %|exporting \w+/);
    expect(shown.stdout).toContain('lines in');
    expect(run(process.execPath, [main, ...args])).toMatchObject({
      status: 0,
      stdout: expect.stringMatching(/^School \d+ .* lines in \S+\n$/),
      stderr: '',
    });
  });
});
