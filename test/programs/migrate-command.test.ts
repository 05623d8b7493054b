import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { sqlFiles } from '../../src/database/migrate/install.ts';
import type { MigrationStatus } from '../../src/database/migrate/migration-status.ts';
import { until } from '../support/client/until.ts';
import { runProgram, startProgram } from '../support/server/processes.ts';
import { serviceWithSchool } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool({}, 4);
/** The second school has a student whom the migration of these tests cannot convert. */
const schools = [school, await service.school(), await service.school(), await service.school()] as const;
const [first, failing, third, fourth] = schools;
const oddStudents = `update ${failing.schema}.student set first_name =`;

/** A copy of migrations/tenant, to which tests add files. */
let folder: string;
let latest: number;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'school-migrations-'));
  const files = await sqlFiles('migrations/tenant');
  const published = await service.database.query<{ name: string; body: string }>(
    'select name, body from platform.tenant_migration where version > $1 order by version',
    [files.length],
  );
  for (const { name, text } of files) await writeFile(join(folder, name.split('/').at(-1) ?? ''), text);
  for (const { name, body } of published) await writeFile(join(folder, `${name}.sql`), body);
  latest = files.length + published.length;
});
afterEach(() => rm(folder, { recursive: true }));

const fileNumber = (version: number) => String(version).padStart(4, '0');
const fileOf = (version: number) => join(folder, `${fileNumber(version)}-test.sql`);
const column = (version: number) => `alter table student add column locker_${version} text;`;
const failsForOdd = `
  do $$ begin
    if exists (select from student where first_name = 'Odd') then raise exception 'cannot convert Odd'; end if;
  end $$;`;

/** Runs `school migrate` as a DBA does. */
const run = (...args: string[]) =>
  runProgram('src/cli/main.ts', ['migrate', ...args, '--tenant-migrations', folder], {
    DATABASE_URL: service.database.url,
  });

async function readStatus(): Promise<{ code: number | null; status: MigrationStatus }> {
  const { code, stdout } = await run('status', '--json');
  return { code, status: JSON.parse(stdout) as MigrationStatus };
}

const versions = async () =>
  (await service.database.query<{ v: number }>('select schema_version as v from platform.tenant order by id')).map(
    ({ v }) => v,
  );
const functionVersion = async () =>
  (await service.database.query<{ v: number }>('select core.required_schema_version() as v'))[0]?.v;

describe('a tenant migration that fails in one school of four', () => {
  beforeEach(async () => {
    if ((await failing.admin.get<unknown[]>('/api/students')).data.length === 0)
      await failing.admin.post('/api/students', { first_name: 'Odd', last_name: 'One' }, 201);
    await service.database.query(`${oddStudents} 'Odd'`);
  });

  test('fails in the dry run already, which names the locks and changes nothing', async () => {
    await writeFile(fileOf(latest + 1), column(latest + 1) + failsForOdd);
    const before = await versions();
    const dry = await run('up', '--dry-run');
    const lines = dry.stdout.trim().split('\n');
    expect(dry.code).toBe(1);
    expect(lines.slice(0, 6)).toEqual([
      'shared: up to date',
      expect.stringMatching(/^\[1\/4\] school .*: would apply 1 in \d+ ms; AccessExclusiveLock on student$/),
      expect.stringMatching(/^\[2\/4\] school .*: FAILED: tenant migration \d{4}-test: cannot convert Odd$/),
      expect.stringMatching(/^\[3\/4\]/),
      expect.stringMatching(/^\[4\/4\]/),
      'functions: not tried',
    ]);
    expect(lines[6]).toMatch(/^3 schools to migrate, 1 failed, .*nothing was changed$/);
    expect(await versions()).toEqual(before);

    const sample = await run('up', '--dry-run', '--sample', '2', '--json');
    const tried = JSON.parse(sample.stdout) as { tenants: { tenant: string; rehearsal: object }[] };
    expect(tried.tenants.map(({ tenant }) => Number(tenant))).toEqual([first.id, third.id]);
    expect(tried.tenants[0]?.rehearsal).toMatchObject({ rewrites: [], indexes: [], rows_written: 0 });
  });

  test('stops a run at a failed canary, with the other schools unchanged and every school in service', async () => {
    const required = await functionVersion();
    await writeFile(fileOf(latest + 1), `${column(latest + 1)}\n do $$ begin raise exception 'never works'; end $$;`);
    const stopped = await run('up', '--canary', '1');
    expect({ code: stopped.code, last: stopped.stdout.split('\n').at(-3) }).toEqual({
      code: 3,
      last: 'functions: not installed, a canary failed; no other school was changed',
    });
    expect(await versions()).toEqual([latest, latest, latest, latest]);
    expect(await functionVersion()).toBe(required);
    for (const { admin } of schools) await admin.get('/api/students');
    // The migration that never works is replaced by one that does.
    await writeFile(fileOf(latest + 1), column(latest + 1));
    expect((await run('up', '--replace', fileNumber(latest + 1))).code).toBe(0);
    expect(await versions()).toEqual([latest + 1, latest + 1, latest + 1, latest + 1]);
    expect((await readStatus()).status).toMatchObject({
      delayed: [],
      replaced: [{ version: latest + 1, schools: 0 }],
    });
  });

  test('says that the command is repeated, not the migration replaced, if another transaction held the tables', async () => {
    await writeFile(fileOf(latest + 1), column(latest + 1));
    const client = new pg.Client({ connectionString: service.database.url });
    await client.connect();
    await client.query(`begin; select from tenant_${first.id}.student limit 1`);
    const held = await run('up');
    await client.query('rollback');
    await client.end();
    expect(held.code).toBe(1);
    expect(held.stdout).toContain('Another transaction held its tables: end it');
    expect(held.stdout).not.toContain('--skip');
    expect((await run('up')).code).toBe(0);
  });

  test('leaves all four in service until the DBA skips the school, then replaces the migration for it', async () => {
    const version = latest + 1;
    const number = fileNumber(version);
    const required = await functionVersion();
    await writeFile(fileOf(version), column(version) + failsForOdd);
    const held = await run('up');
    expect(held.code).toBe(1);
    expect(held.stdout).toContain('functions: not installed, so that 1 school that failed can still be used');
    expect(held.stdout).toContain(`--skip ${failing.subdomain} --reason`);
    expect(await versions()).toEqual([version, version - 1, version, version]);
    expect(await functionVersion()).toBe(required);
    for (const { admin } of schools) await admin.get('/api/students');
    const failed = await readStatus();
    expect(failed).toMatchObject({
      code: 1,
      status: {
        failed: 1,
        skipped: 0,
        delayed: [{ failed_version: version, error: expect.stringContaining('cannot convert Odd'), is_served: true }],
      },
    });

    // An edited file is refused, and the message names the way on.
    await writeFile(fileOf(version), `${column(version)}\n-- Odd can be converted now.`);
    const refused = await run('up');
    expect({ code: refused.code, stderr: refused.stderr }).toEqual({
      code: 1,
      stderr: expect.stringContaining(`school migrate up --replace ${number}`),
    });

    await writeFile(fileOf(version), column(version) + failsForOdd);
    expect((await run('up', '--skip', failing.subdomain)).stderr).toContain('--skip needs --reason');
    const skipped = await run('up', '--skip', failing.subdomain, '--reason', 'its data must be corrected first');
    expect(skipped.code).toBe(0);
    expect(skipped.stdout).toContain(
      `skipped: school ${failing.id} (${failing.subdomain}): its data must be corrected`,
    );
    expect(skipped.stdout).toContain('functions: installed');
    const answer = await failing.admin.send('GET', '/api/students');
    expect({ status: answer.status, message: answer.message, retry: answer.headers.get('retry-after') }).toEqual({
      status: 503,
      message: expect.stringContaining('was postponed. The operator of the platform must complete the update.'),
      retry: '600',
    });
    await first.admin.get('/api/students');
    const text = await run('status');
    expect(text.code).toBe(2);
    expect(text.stdout).toContain(
      `school ${failing.id} (${failing.subdomain}): at ${fileNumber(version - 1)}, answers 503`,
    );
    expect(text.stdout).toMatch(/skipped on .* UTC: its data must be corrected first/);

    // A command line with a mistake changes nothing.
    for (const [args, message] of [
      [['--skip', failing.subdomain, '--skip', 'nowhere', '--reason', 'another'], 'No school has the id or subdomain'],
      [['--unskip', failing.subdomain, '--unskip', 'nowhere'], 'No school has the id or subdomain nowhere.'],
      [
        ['--skip', String(failing.id), '--unskip', failing.subdomain, '--reason', 'x'],
        'both in --skip and in --unskip',
      ],
      [['--skip', failing.subdomain, '--tenant', failing.subdomain, '--reason', 'x'], 'it takes no --skip or --unskip'],
    ] as const)
      expect(await run('up', ...args)).toMatchObject({ code: 1, stderr: expect.stringContaining(message) });
    expect((await readStatus()).status.delayed).toMatchObject([{ skip_reason: 'its data must be corrected first' }]);

    // Without the skip, the school waits for a repair.
    expect((await run('up', '--unskip', failing.subdomain)).code).toBe(1);
    expect((await failing.admin.send('GET', '/api/students')).message).toContain(
      'The operator of the platform must repair it.',
    );

    const unchanged = await run('up', '--replace', number);
    expect(unchanged.stdout).toContain(`not replaced: ${number}-test, its file has not changed\n`);
    await writeFile(fileOf(version), `${column(version)}\n-- Odd can be converted now.`);
    await service.database.query('insert into platform.ready_school (id, place, schema_version) values (9000, 1, $1)', [
      version,
    ]);
    const replaced = await run('up', '--replace', number);
    expect({ code: replaced.code, stdout: replaced.stdout }).toEqual({
      code: 0,
      stdout: expect.stringContaining(`replaced: ${number}-test\n[1/1] school ${failing.id}`),
    });
    expect(await versions()).toEqual([version, version, version, version]);
    // Its tables have the former text.
    expect(await service.database.query('delete from platform.ready_school returning schema_version')).toEqual([
      { schema_version: 0 },
    ]);
    await failing.admin.get('/api/students');
    const done = await readStatus();
    expect(done.code).toBe(0);
    expect(done.status.delayed).toEqual([]);
    expect(done.status.replaced.at(-1)).toMatchObject({ version, examples: [first.id, third.id, fourth.id] });
    const [row] = await service.database.query<{ checksum: string }>(
      'select checksum from platform.tenant_migration where version = $1',
      [version],
    );
    expect(done.status.replaced.at(-1)?.replacement_checksum).toBe(row?.checksum);

    // After every school has the new text, the file is frozen again.
    await writeFile(fileOf(version), `${column(version)}\n-- Once more.`);
    expect((await run('up', '--replace', number)).stderr).toContain(`Every school has applied ${number}-test.sql`);
  });

  test('does not stop a school if the migration is optional', async () => {
    const version = latest + 1;
    await writeFile(fileOf(version), `-- @optional: nothing reads the locker yet\n${column(version)}${failsForOdd}`);
    const up = await run('up');
    expect({ code: up.code, stdout: up.stdout }).toEqual({
      code: 1,
      stdout: expect.stringContaining('functions: installed'),
    });
    await failing.admin.get('/api/students');
    expect(await readStatus()).toMatchObject({ code: 1, status: { delayed: [{ is_served: true }] } });
    await service.database.query(`${oddStudents} 'Even'`);
    expect((await run('up')).code).toBe(0);
    expect((await readStatus()).status.delayed).toEqual([]);
  });
});

test('plan tells what each pending migration locks and rewrites, from its text and from a dry run', async () => {
  await writeFile(
    fileOf(latest + 1),
    `alter table student add column token uuid default gen_random_uuid();
     create index student_token_idx on student (token);`,
  );
  const plan = await run('plan', '--sample', '1');
  expect({ code: plan.code, lines: plan.stdout.trim().split('\n') }).toEqual({
    code: 0,
    lines: [
      `${fileNumber(latest + 1)}-test.sql`,
      '  line 1: student: AccessExclusiveLock, rewrites the table: alter table student add column token uuid ' +
        'default gen_random_uuid()',
      '  line 2: student: ShareLock, builds an index: create index student_token_idx on student (token)',
      expect.stringContaining('  warning: line 1 adds student.token with gen_random_uuid. Each row needs'),
      expect.stringContaining('  warning: line 2 creates student_token_idx on student among other statements.'),
      expect.stringMatching(
        /would apply 1 in \d+ ms; AccessExclusiveLock on student; rewrites student; builds student_token_idx$/,
      ),
    ],
  });
  expect(await versions()).toEqual([latest, latest, latest, latest]);
});

test('new starts the next tenant migration, and refuses a name that is no topic', async () => {
  const started = await run('new', 'student-lockers', '--json');
  const file = join(folder, `${fileNumber(latest + 1)}-student-lockers.sql`);
  expect(JSON.parse(started.stdout)).toEqual({ file, version: latest + 1 });
  expect(await readFile(file, 'utf8')).toMatch(/^-- student-lockers: what changes, and why\.$/m);
  expect((await run('new', 'Student Lockers')).code).toBe(1);
  // The template itself is a migration that changes nothing.
  expect((await run('plan')).stdout).toContain('only creates what did not exist');
});

test('watch applies the newest tenant migration at each save, but only to a development database', async () => {
  const refused = await run('watch');
  expect({ code: refused.code, stderr: refused.stderr }).toEqual({
    code: 1,
    stderr: expect.stringContaining("set school.environment = 'development'"),
  });
  const [database] = await service.database.query<{ name: string }>('select current_database() as name');
  await service.database.query(`alter database ${database?.name} set school.environment = 'development'`);
  const file = fileOf(latest + 1);
  const columns = async () =>
    (
      await service.database.query<{ name: string }>(
        `select column_name as name from information_schema.columns
         where table_schema = $1 and table_name = 'probe' order by 1`,
        [first.schema],
      )
    ).map(({ name }) => name);
  await writeFile(file, 'drop table if exists probe; create table probe (id bigint primary key);');
  const watching = startProgram('src/cli/main.ts', ['migrate', 'watch', '--tenant-migrations', folder], {
    DATABASE_URL: service.database.url,
  });
  try {
    await watching.prints(/watching, applied/);
    expect(await columns()).toEqual(['id']);
    await writeFile(file, 'drop table if exists probe; create table probe (id bigint primary key, color text);');
    await until(async () => (await columns()).includes('color') || undefined);
    await writeFile(file, 'drop table probe; create table probe (id bigint primary key, colour wrong);');
    await watching.prints(/FAILED: tenant migration \d{4}-test: type "wrong" does not exist/);
    expect(await columns()).toEqual(['color', 'id']);
  } finally {
    watching.kill('SIGTERM');
  }
  expect((await watching.ended).code).toBe(0);
});
