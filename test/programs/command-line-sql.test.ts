import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { runProgram } from '../support/server/processes.ts';
import { serviceWithSchool } from '../support/server/service.ts';
import { atTerminal, hasTerminals } from '../support/server/terminal.ts';

const { service, school } = await serviceWithSchool();
const other = await service.school();
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'school-sql-'));
  await school.admin.post('/api/students', { first_name: 'Ada', last_name: 'Byron' }, 201);
  await school.admin.post('/api/students', { first_name: 'Odo', last_name: 'Marsh' }, 201);
  await other.admin.post('/api/students', { first_name: 'Tom', last_name: 'Thumb' }, 201);
});
afterAll(() => rm(folder, { recursive: true }));

const env = () => ({ DATABASE_URL: service.database.url, DATA_DIR: folder });

/** Runs `school sql` with a file of these statements. */
async function sql(text: string, ...args: string[]) {
  const file = join(folder, 'statements.sql');
  await writeFile(file, text);
  return runProgram('src/cli/main.ts', ['sql', school.subdomain, '--file', file, ...args], env());
}

const write = (text: string) => sql(text, '--write', '--yes');

/** All that an escape could change: students of both schools, privileges, objects and roles. */
const everything = async () => ({
  own: await service.database.query(`select * from ${school.schema}.student order by id`),
  other: await service.database.query(`select * from ${other.schema}.student order by id`),
  privileges: await service.database.query(
    `select oid::regclass::text as name, relacl::text from pg_class
     where relnamespace::regnamespace::text in ('core', $1, $2) order by 1`,
    [school.schema, other.schema],
  ),
  schemas: await service.database.query('select nspname, nspacl::text from pg_namespace order by 1'),
  functions: await service.database.query(
    `select oid::regprocedure::text as name, prosecdef, proowner::regrole::text as owner, proacl::text from pg_proc
     where pronamespace in ('core'::regnamespace, $1::regnamespace) order by 1`,
    [school.schema],
  ),
  settings: await service.database.query(
    `select setrole::regrole::text, setconfig from pg_db_role_setting
     where setdatabase in (0, (select oid from pg_database where datname = current_database())) order by 1`,
  ),
  objects: await service.database.query('select count(*)::integer from pg_largeobject_metadata'),
});

const entries = (action: string) =>
  service.database.query<{ actor_email: string; changes: Record<string, { after: unknown }> }>(
    'select actor_email, changes from platform.audit_log where action = $1 and tenant_id = $2 order by id',
    [action, school.id],
  );

describe('school sql without --write', () => {
  test('shows rows of the school, whose tables need no schema name', async () => {
    const { code, stdout, stderr } = await sql(
      "select first_name, last_name as name from student order by 1; select count(*) from student where first_name = 'Ada'",
    );
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: 'first_name  name\nAda         Byron\nOdo         Marsh\nSELECT: 2 rows\ncount\n    1\nSELECT: 1 row\n',
    });
    expect(stderr).toContain(`School ${school.id} (${school.subdomain}), active, version `);
    expect(stderr).toContain('Read only; --write changes data.');
  });

  test('reads statements from standard input', () => {
    const { status, stdout } = spawnSync(
      process.execPath,
      [join(import.meta.dirname, '../../src/cli/main.ts'), 'sql', school.subdomain],
      {
        input: "select 'a;b' as text; -- one statement; with a comment\n",
        encoding: 'utf8',
        env: { PATH: process.env['PATH'] ?? '', ENV_FILE: '', ...env() },
      },
    );
    expect({ status, stdout }).toEqual({ status: 0, stdout: 'text\na;b\nSELECT: 1 row\n' });
  });

  test.each([
    ["update student set first_name = 'Eve'", 'cannot execute UPDATE in a read-only transaction'],
    ["set transaction read write; update student set first_name = 'Eve'", 'read-write mode'],
    ["select set_config('transaction_read_only', 'off', false); delete from student", 'read-write mode'],
    ["select nextval('student_id_seq')", 'cannot execute nextval() in a read-only transaction'],
  ])('changes nothing with: %s', async (text, message) => {
    const before = await everything();
    expect(await sql(text)).toMatchObject({ code: 1, stderr: expect.stringContaining(message) });
    expect(await everything()).toEqual(before);
  });

  test('prints one JSON object per statement, with numbers as the database writes them', async () => {
    const { stdout } = await sql(
      'select 9007199254740993 as id, 1.50 as price, null as nothing; select 1 where false',
      '--json',
    );
    expect(stdout).toBe(
      '{"line":1,"command":"SELECT","row_count":1,"rows":[{"id":9007199254740993,"price":1.50,"nothing":null}]}\n' +
        '{"line":1,"command":"SELECT","row_count":0,"rows":[]}\n',
    );
  });

  test('shows control characters of values instead of sending them to the terminal', async () => {
    expect((await sql("select E'\\x1b[2J' as name")).stdout).toBe('name\n\\u001b[2J\nSELECT: 1 row\n');
  });

  test('refuses two columns of the same name, of which one would be lost', async () => {
    expect(await sql('select 1 as id, 2 as id')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('Two columns have the name id.'),
    });
  });

  test('names the line of an error', async () => {
    expect((await sql('select 1;\n\nselect nothing;')).stderr).toContain('line 3: column "nothing" does not exist');
    expect((await sql('select 1;\nselect from from;')).stderr).toContain('line 2: syntax error');
  });

  test('leaves an audit entry without the statements', async () => {
    const before = await entries('tenant.sql');
    await sql('select 1');
    const added = (await entries('tenant.sql')).slice(before.length);
    expect(added).toEqual([{ actor_email: 'command line', changes: { mode: { before: null, after: 'read' } } }]);
  });
});

describe('school sql --write', () => {
  test('rolls back without a confirmation, after it has shown what it would change', async () => {
    const before = await everything();
    const { code, stdout, stderr } = await sql("update student set first_name = 'Eve'", '--write');
    expect({ code, stdout }).toEqual({
      code: 1,
      stdout: expect.stringMatching(/^UPDATE: 2 rows\nTABLE +CHANGED ROWS\nstudent +2\n$/),
    });
    expect(stderr).toContain(`This commits 2 changed rows of school ${school.id} (${school.subdomain}).`);
    expect(stderr).toContain('Nothing was changed.');
    expect(await everything()).toEqual(before);
  });

  test('commits all statements, with an audit entry that has them, and keeps the counts of the school', async () => {
    const before = await entries('tenant.sql_commit');
    const { privileges, functions, schemas } = await everything();
    const done = await write(
      `insert into student (first_name, last_name, admission_number) values ('Ida', 'Rhodes', 'X-1') returning first_name;
       update student set phone = '1' where first_name = 'Ada';`,
    );
    expect({ code: done.code, stdout: done.stdout }).toEqual({
      code: 0,
      stdout: expect.stringMatching(/^first_name\nIda\nINSERT: 1 row\nUPDATE: 1 row\n[^]*Committed\. /),
    });
    expect((await school.admin.get<unknown[]>('/api/students')).data).toHaveLength(3);
    const [entry] = (await entries('tenant.sql_commit')).slice(before.length);
    expect(entry?.actor_email).toBe('command line');
    expect(entry?.changes['statements']?.after).toContain("values ('Ida', 'Rhodes', 'X-1')");
    expect(entry?.changes['rows']?.after).toMatchObject({ student: 2 });
    expect(
      await service.database.query('select invariant, examples from core.find_violations($1)', [school.id]),
    ).toEqual([]);
    expect(await everything()).toMatchObject({ privileges, functions, schemas });
  });

  test('rolls everything back at the first error', async () => {
    const before = await everything();
    const failed = await write("update student set first_name = 'Eve';\nupdate student set first_name = null;");
    expect({ code: failed.code, stderr: failed.stderr }).toEqual({
      code: 1,
      stderr: expect.stringMatching(/line 2: null value in column "first_name"[^]*Nothing was changed\.\n$/),
    });
    expect(await everything()).toEqual(before);
  });

  test('keeps the triggers of the school active', async () => {
    const una = { first_name: 'Una', last_name: 'Lux', admission_number: 'U-1', updated_at: '2020-01-01' };
    const id = await school.insert('student', una);
    expect((await write(`update student set first_name = 'Uma' where id = ${id}`)).code).toBe(0);
    expect(
      await service.database.query(
        `select first_name, updated_at > now() - interval '1 hour' as is_touched from ${school.schema}.student where id = $1`,
        [id],
      ),
    ).toEqual([{ first_name: 'Uma', is_touched: true }]);
    for (const text of ['alter table student disable trigger all', "set session_replication_role = 'replica'"])
      expect(await write(text)).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(/must be owner|permission denied/),
      });
  });

  test('refuses more students than the plan allows', async () => {
    const { id: plan_id, name } = await service.plan({ max_students: 5 });
    const small = await service.school({ plan_id });
    const file = join(folder, 'many.sql');
    await writeFile(
      file,
      `insert into student (first_name, last_name, admission_number)
       select 'Many', 'Students', 'M-' || n from generate_series(1, 6) n`,
    );
    const args = ['sql', small.subdomain, '--write', '--yes', '--file', file];
    expect(await runProgram('src/cli/main.ts', args, env())).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`The plan ${name} allows 5 active students.`),
    });
    expect((await small.admin.get<unknown[]>('/api/students')).data).toEqual([]);
  });

  test('is named in the audit log as the command line, also if the statements set another name', async () => {
    const before = await entries('tenant.sql_commit');
    await write(
      `select set_config('app.actor_email', 'ada@example.org', false) || set_config('app.user_id', '1', false)
         || set_config('app.impersonator_id', '1', false) || set_config('app.api_key', '{"id": 1}', false)`,
    );
    expect((await entries('tenant.sql_commit')).slice(before.length)).toMatchObject([{ actor_email: 'command line' }]);
  });

  test('gives up when another session keeps a row locked, and changes nothing', async () => {
    const before = await everything();
    const client = new pg.Client({ connectionString: service.database.url });
    await client.connect();
    try {
      await client.query(`begin; select from ${school.schema}.student where first_name = 'Odo' for update`);
      expect(await write("update student set first_name = 'Eve'")).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(/line 1: canceling statement due to lock timeout[^]*Nothing was changed\.\n$/),
      });
    } finally {
      await client.end();
    }
    expect(await everything()).toEqual(before);
  });

  test('a long text is in the audit log with its first characters and the SHA-256 of all', async () => {
    const before = await entries('tenant.sql_commit');
    const limit = 100_000;
    const statement = (length: number) => `select '${'x'.repeat(length - "select '';".length)}';`;
    for (const length of [limit, limit + 1]) await write(statement(length));
    const [short, long] = (await entries('tenant.sql_commit')).slice(before.length).map(({ changes }) => changes);
    expect(short?.['statements']?.after).toBe(statement(limit));
    expect(short?.['sha256']?.after ?? null).toBeNull();
    expect(long?.['statements']?.after).toBe(statement(limit + 1).slice(0, limit));
    expect(long?.['sha256']?.after).toBe(
      createHash('sha256')
        .update(statement(limit + 1))
        .digest('hex'),
    );
  });

  test.each([
    ['another role owns the function that runs statements', 'owner to postgres', 'owner to school_sql'],
    ['the function runs statements as its caller', 'security invoker', 'security definer'],
  ])('runs nothing if %s', async (_, broken, mended) => {
    const alter = 'alter function core.sql_execute(text, text)';
    await service.database.query(`${alter} ${broken}`);
    try {
      expect(await write("update student set first_name = 'Eve'")).toMatchObject({
        code: 1,
        stderr: expect.stringContaining('The role school_sql must own the function core.sql_execute'),
      });
    } finally {
      await service.database.query(`${alter} ${mended}`);
    }
  });

  test('enters the school again for each statement', async () => {
    const before = await service.database.query(`select * from ${other.schema}.student`);
    const done = await write(
      `set search_path = ${other.schema}; set app.tenant_id = '${other.id}';
       update student set phone = null where false; update student set last_name = last_name;`,
    );
    // The settings of the first statements are gone: the update has found the students of this school.
    expect(done.stdout).toMatch(/UPDATE: [1-9]\d* rows\n/);
    expect(await service.database.query(`select * from ${other.schema}.student`)).toEqual(before);
  });
});

describe('statements cannot leave the transaction or the school', () => {
  const change = `update ${other.schema}.student set first_name = 'Eve'`;
  const read = `select * from ${other.schema}.student`;
  const invoker = 'alter function core.sql_execute(text, text) security invoker';
  test.each([
    ['commit', `update student set first_name = 'Eve'; commit`],
    ['commit and go on', `update student set first_name = 'Eve'; commit; reset role; ${change}; begin`],
    ['rollback', `rollback; ${change}`],
    ['a savepoint', `savepoint a; ${change}`],
    ['a block that commits', `update student set first_name = 'Eve'; do $$ begin commit; end $$`],
    ['dynamic commit', `do $$ begin execute 'commit'; end $$; ${change}`],
    ['another school', change],
    ['reading another school', read],
    ['the setting of the school', `set app.tenant_id = '${other.id}'; ${read}`],
    ['the setting in a query', `select set_config('app.tenant_id', '${other.id}', false), t.* from (${read}) t`],
    ['reset role', `reset role; ${change}`],
    ['set role none', `set role none; ${change}`],
    ['set session authorization', `set session authorization default; ${change}`],
    ['the role by set_config', `select set_config('role', 'none', false); ${change}`],
    ['the role by pg_settings', `update pg_settings set setting = 'none' where name = 'role'; ${change}`],
    ['the role in a block', `do $$ begin set local role none; ${change}; end $$`],
    [
      'the caught role in a block',
      `do $$ begin begin reset role; exception when others then null; end; ${change}; end $$`,
    ],
    ['the role of the function', `${invoker}; ${change}`],
    ['the function, at the end', `update student set first_name = 'Eve'; ${invoker}`],
    ['dropping the function', 'drop function core.sql_execute(text, text)'],
    ['query_to_xml', `select query_to_xml($$${read}$$, true, false, '')`],
    [
      'a cursor that is held',
      `declare c cursor with hold for select query_to_xml($$${read}$$, true, false, ''); select 1 / 0`,
    ],
    ['a temporary table', 'create temp table t as select 1'],
    ['a temporary function', `create function pg_temp.f() returns int language sql as 'select 1'`],
    ['a schema', 'create schema evil'],
    ['a large object', 'select lo_create(0)'],
    ['a grant', `grant usage on schema ${school.schema} to school_api; select 1 / 0`],
    ['the shared tables', 'select * from platform.tenant'],
    ['the audit log', 'select * from platform.audit_log'],
    ['functions of core', `select core.enter_tenant(${other.id}); ${change}`],
    ['a program', `copy (select 1) to program 'true'`],
    ['a file', `select pg_read_file('PG_VERSION')`],
    ['a table of the school', 'alter table student add column evil text'],
    ['truncate', 'truncate student cascade'],
    [
      'a string with a backslash',
      `set standard_conforming_strings = off; select 'a\\'; reset role; ${change}; select 'b'; ${change}`,
    ],
  ])('%s', async (_name, text) => {
    const before = await everything();
    const committed = await entries('tenant.sql_commit');
    const { code, stdout } = await write(text);
    expect({ code, isCommitted: stdout.includes('Committed') }).toEqual({ code: 1, isCommitted: false });
    expect(stdout).not.toContain('Thumb');
    expect(await everything()).toEqual(before);
    expect(await entries('tenant.sql_commit')).toEqual(committed);
  });

  test('a cursor that is held is closed before the commit, which would run it as the owner', async () => {
    // Called as the owner, this adds an audit entry.
    const call = `select core.sql_audit('tenant.evil', ${school.id}, '{}')`;
    const done = await write(
      `declare c cursor with hold for select query_to_xml($$${call}$$, true, false, ''); select 1 as one`,
    );
    expect(done.code).toBe(0);
    expect(await entries('tenant.evil')).toEqual([]);
  });
});

describe('a school that is not in service', () => {
  test.each([
    ['suspended', ['suspend']],
    ['deleted', ['delete', '--yes']],
  ])('can be corrected while it is %s', async (status, [command = '', ...options]) => {
    const closed = await service.school();
    const change = ['tenant', command, String(closed.id), ...options];
    expect((await runProgram('src/cli/main.ts', change, env())).code).toBe(0);
    const file = join(folder, `${status}.sql`);
    await writeFile(file, "insert into grade (name) values ('Grade 99')");
    const args = ['sql', String(closed.id), '--write', '--yes', '--file', file];
    expect(await runProgram('src/cli/main.ts', args, env())).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('Committed.'),
      stderr: expect.stringContaining(`${status}, version`),
    });
  });

  test.each([
    ['migrated or moved', () => `core.tenant_lock_key(${school.id})`, 'is being migrated, moved or purged'],
    ['used by another command', () => `core.lock_key('sql', ${school.id})`, 'Another `school sql` works on school'],
  ])('is refused while it is %s', async (_name, key, message) => {
    const holder = new pg.Client({ connectionString: service.database.url });
    await holder.connect();
    try {
      await holder.query(`select pg_advisory_lock(${key()})`);
      expect(await sql('select 1')).toMatchObject({ code: 1, stderr: expect.stringContaining(message) });
    } finally {
      await holder.end();
    }
  });
});

(hasTerminals ? describe : describe.skip)('on a terminal', () => {
  const type = (args: string, ...typed: [after: string, line: string][]) =>
    atTerminal(`src/cli/main.ts sql ${school.subdomain} ${args}`, env(), ...typed);

  test('runs each statement when its semicolon is typed, and goes on after an error', async () => {
    const { code, shown } = await type(
      '',
      ['> ', 'select 1 / 0;'],
      ['division by zero', 'select 40 +'],
      ['- ', '2 as answer;'],
      ['SELECT: 1 row', 'exit'],
    );
    expect(code).toBe(0);
    expect(shown).toMatch(/answer\s+42\s+SELECT: 1 row/);
  });

  test.each([
    ['yes', 0, 'Committed.', 'Zed'],
    ['no', 1, 'Nothing was changed.', 'Ada'],
  ])('asks before the commit: %s', async (answer, code, message, name) => {
    const [student] = await service.database.query<{ id: number }>(
      `select id::integer as id from ${school.schema}.student where first_name = 'Ada'`,
    );
    const done = await type(
      '--write',
      ['> ', `update student set first_name = 'Zed' where id = ${student?.id};`],
      ['UPDATE: 1 row', 'exit'],
      ['Type yes to continue: ', answer],
    );
    expect(done).toEqual({ code, shown: expect.stringContaining(message) });
    const found = `select first_name from ${school.schema}.student where id = ${student?.id}`;
    expect(await service.database.query(found)).toEqual([{ first_name: name }]);
    await service.database.query(`update ${school.schema}.student set first_name = 'Ada' where id = ${student?.id}`);
  });
});
