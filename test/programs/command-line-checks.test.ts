import { afterAll, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { checkClock } from '../../src/cli/server-checks.ts';
import { provision } from '../support/database/tenants.ts';
import { until } from '../support/client/until.ts';
import { freePort, runProgram } from '../support/server/processes.ts';
import { testDatabase } from '../support/server/database.ts';

const database = await testDatabase();
const school = await provision(database);
afterAll(() => database.drop());

interface Found {
  level: string;
  what: string;
  remedy: string;
  is_harmless: boolean;
}

/** Runs one check in the database. */
const check = (call: string) => database.query<Found>(`select * from core.check_${call}`);

/** The differences of the school from the release. */
async function differences(): Promise<Found[]> {
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  try {
    await client.query('begin');
    const { rows } = await client.query<Found>(
      'select f.* from core.reference_objects() r cross join lateral core.check_school($1, r) f',
      [school.id],
    );
    await client.query('rollback');
    return rows;
  } finally {
    await client.end();
  }
}

const doctor = (args: string[], env: Record<string, string> = {}) =>
  runProgram('src/cli/main.ts', ['doctor', ...args], { DATABASE_URL: database.url, ...env });

describe('the definitions of a school', () => {
  test('are those of the release after its creation', async () => {
    expect(await differences()).toEqual([]);
  });

  test.each([
    ['the policy tenant_isolation on student is missing', 'drop policy tenant_isolation on S.student'],
    ['the row security student are: enabled t, forced f', 'alter table S.student no force row level security'],
    ['the policy tenant_isolation on student differs', 'alter policy tenant_isolation on S.student using (true)'],
    ['the privileges payment are: delete school_worker', 'grant delete on S.payment to school_worker'],
    ['the trigger touch on student differs', 'alter table S.student disable trigger touch'],
    ['the trigger touch on student is missing', 'drop trigger touch on S.student'],
    [
      'the constraint student_first_name_check on student is missing',
      'alter table S.student drop constraint student_first_name_check',
    ],
    [
      'the function touch_updated_at() differs',
      'create or replace function S.touch_updated_at() returns trigger language plpgsql as $$ begin return new; end $$',
    ],
    ['the index student_class_id_idx is missing', 'drop index S.student_class_id_idx'],
    ['the column student.nickname does not belong', 'alter table S.student add column nickname text'],
  ])('are reported: %s; the remedy repairs it', async (what, damage) => {
    await database.query(damage.replaceAll('S.', `${school.schema}.`));
    const found = await differences();
    expect(found.map((each) => each.what)).toContainEqual(expect.stringContaining(what));
    for (const { remedy } of found) await database.query(remedy);
    expect(await differences()).toEqual([]);
  });
});

describe('the shared definitions', () => {
  test('are those of the release after the migration', async () => {
    expect(await check('release()')).toEqual([]);
    expect(await check('roles()')).toEqual([]);
    expect(await check('schools_behind()')).toEqual([]);
    expect(await check('lock_table()')).toEqual([]);
    // The tests run on a server that may lose data in a crash.
    expect((await check('server()')).map((each) => each.what)).toContain('The setting fsync is off.');
  });

  test.each([
    [
      'create or replace function core.user_id() returns bigint language sql stable return 1',
      'function core.user_id()',
    ],
    ['grant execute on function core.student_erase(bigint, bigint) to school_tenant', 'function core.student_erase('],
    ['grant select on platform.session to school_tenant', 'table platform.session differs'],
    ['alter table platform.audit_log disable trigger append_only', 'trigger append_only on platform.audit_log differs'],
    ['create function core.extra() returns integer language sql return 1', 'function core.extra() does not belong'],
    ['drop policy operators_see_all on platform.tenant', 'policy operators_see_all on platform.tenant is missing'],
  ])('are reported after `%s`', async (damage, what) => {
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    await client.query('begin');
    await client.query(damage);
    const { rows } = await client.query<Found>('select * from core.check_release()');
    await client.query('rollback');
    await client.end();
    expect(rows.map((each) => each.what)).toContainEqual(expect.stringContaining(what));
  });
});

describe('a check of the server', () => {
  /** Runs statements and a check in a transaction that is rolled back. */
  async function after(damage: string, call: string): Promise<Found[]> {
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    await client.query('begin');
    try {
      await client.query(damage);
      return (await client.query<Found>(`select * from core.check_${call}`)).rows;
    } finally {
      await client.query('rollback');
      await client.end();
    }
  }

  test.each([
    ['alter role school_tenant bypassrls', 'roles()', 'school_tenant may bypass row security', 'nobypassrls'],
    ['alter role school_platform login', 'roles()', 'school_platform may log in', 'nologin'],
    ['revoke school_tenant from school_api', 'roles()', 'school_api cannot switch to school_tenant', 'grant'],
    ['grant pg_read_all_data to school_worker', 'roles()', 'is a member of pg_read_all_data', 'revoke'],
    [
      'alter default privileges grant select on tables to school_worker',
      'default_privileges()',
      'New tables of',
      'revoke',
    ],
    ["alter database CURRENT set synchronous_commit = 'off'", 'server()', 'synchronous_commit', 'alter system'],
    ['create index again on SCHEMA.student (class_id)', 'duplicate_indexes()', 'is a duplicate of', 'drop index'],
    [
      "update pg_index set indisvalid = false where indexrelid = 'SCHEMA.student_class_id_idx'::regclass",
      'invalid_indexes()',
      'student_class_id_idx is invalid',
      'reindex',
    ],
    [
      "create sequence short maxvalue 10; select setval('short', 9)",
      'sequences()',
      'short has used 90 %',
      'alter sequence',
    ],
    ['select 1', 'wraparound(0)', 'The oldest transaction id', 'vacuum'],
    ['select 1', 'connections(0)', 'connections are open', 'max_connections'],
    [
      'select 1',
      'lock_table(100000)',
      'has 100000 tables, and the server is set up for 51200 locks',
      'max_locks_per_transaction = 750;',
    ],
    ['select 1', "unused_indexes(0, '0 s')", 'has not been used since', 'drop index concurrently'],
    [
      'update platform.tenant set schema_version = 1 where id = SCHOOL',
      'schools_behind()',
      'has version 1',
      'npm run migrate',
    ],
    [
      "select graphile_worker.add_job('clean_up', run_at => now() - interval '1 hour')",
      "queue('-1 s')",
      'Jobs of clean_up',
      'worker',
    ],
    [
      "select graphile_worker.permanently_fail_jobs(array[(graphile_worker.add_job('clean_up')).id], 'x')",
      'queue()',
      '1 jobs of clean_up have failed',
      'jobs failed',
    ],
    ['select 1', 'queue()', 'No worker is running', 'worker'],
  ])('after `%s`: %s reports it', async (damage, call, what, remedy) => {
    const [{ name } = { name: '' }] = await database.query<{ name: string }>('select current_database() as name');
    const statement = damage
      .replaceAll('SCHEMA', school.schema)
      .replaceAll('SCHOOL', String(school.id))
      .replaceAll('CURRENT', name);
    expect(await after(statement, call)).toContainEqual(
      expect.objectContaining({
        what: expect.stringContaining(what),
        remedy: expect.stringContaining(remedy),
      }),
    );
  });

  test('reports tables without statistics and with dead rows', async () => {
    await database.query('create table public.busy as select n from generate_series(1, 2000) n');
    await database.query('delete from public.busy where n > 500');
    const found = await until(async () => {
      const rows = [...(await check('statistics(100)')), ...(await check('bloat(100)'))];
      return rows.filter((row) => row.what.includes('busy')).length === 2 ? rows : undefined;
    });
    expect(found.map((row) => row.remedy)).toEqual(
      expect.arrayContaining(['analyze public.busy', 'vacuum (analyze) public.busy']),
    );
    await database.query('drop table public.busy');
  });

  test('reports idle transactions, and who waits for whose lock', async () => {
    const [holder, waiter] = [0, 1].map(() => new pg.Client({ connectionString: database.url }));
    if (!holder || !waiter) throw new Error('There are two clients.');
    await Promise.all([holder.connect(), waiter.connect()]);
    await holder.query('begin');
    const { rows } = await holder.query<{ pid: number }>(
      'select pg_backend_pid() as pid from platform.plan for update',
    );
    const waiting = waiter.query('update platform.plan set name = name');
    const pid = String(rows[0]?.pid);
    const found = await until(async () => {
      const locks = await check("locks('0 s')");
      return locks.length > 0 ? locks : undefined;
    });
    expect(found[0]?.what).toContain(`that process ${pid} holds`);
    expect(found[0]?.remedy).toBe(`select pg_terminate_backend(${pid})`);
    expect((await check("transactions('0 s', '0 s')")).map((row) => row.what)).toContainEqual(
      expect.stringContaining(`Process ${pid} `),
    );
    await holder.query('rollback');
    await waiting;
    await Promise.all([holder.end(), waiter.end()]);
  });

  test('reports clocks that differ', async () => {
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    expect(await checkClock(client)).toEqual([]);
    expect(await checkClock(client, () => Date.now() - 60_000)).toMatchObject([
      { check_name: 'clock', level: 'error' },
    ]);
    expect(await checkClock(client, () => Date.now() + 5_000)).toMatchObject([{ level: 'warning' }]);
    await client.end();
  });
});

describe('school doctor of a damaged database', () => {
  test('reports a missing table or schema once, with a remedy, and still checks the other schools', async () => {
    const { id, schema } = await provision(database);
    await database.query(`drop table ${schema}.student_document`);
    const table = await doctor(['--server', '--offline', '--fix']);
    expect({ code: table.code, stderr: table.stderr }).toEqual({ code: 1, stderr: '' });
    expect(table.stdout).toContain(
      `error: School ${id}: the table student_document is missing.\n` +
        '  Why: A school whose tables, policies, triggers or privileges differ from the release can show rows of other ' +
        'schools, or fail at the next migration.\n' +
        '  Fix: Restore the table from a backup, or delete the school and import its last export.\n',
    );
    expect(table.stdout).toMatch(new RegExp(`school ${id} .*: differs from this release in 1 object\n`));
    expect(table.stdout).toMatch(new RegExp(`school ${school.id} .*: as in this release\n`));

    await database.query(`drop schema ${schema} cascade`);
    const whole = await doctor(['--server', '--offline']);
    expect(whole.stdout).toContain(`error: School ${id}: its schema ${schema} is missing.\n`);
    expect(whole.stdout).toMatch(new RegExp(`school ${id} .*: differs from this release in 1 object\n`));
    await database.query('update platform.tenant set schema_version = schema_version - 1 where id = $1', [id]);
    const behind = await doctor(['--server', '--offline', '--tenant', String(id)]);
    expect(behind.stdout).toMatch(/: not compared with this release, because it has another schema version\n/);
    await database.query("update platform.tenant set status = 'deleted', deleted_at = now() where id = $1", [id]);
    await database.query('update platform.tenant set schema_version = 0 where id = $1', [id]);
  }, 60_000);

  test('runs the other checks when functions are missing, and names what is missing', async () => {
    await database.query('alter function core.readiness() rename to readiness_before');
    await database.query('alter function core.tenant_secure(bigint) rename to tenant_secure_before');
    try {
      const found = await doctor(['--server', '--offline']);
      expect({ code: found.code, stderr: found.stderr }).toEqual({ code: 1, stderr: '' });
      expect(found.stdout).toContain('error: This check failed: function core.readiness() does not exist.\n');
      expect(found.stdout).toContain('error: The function core.tenant_secure(bigint) is missing.\n');
      expect(found.stdout).toContain('error: A new school cannot be created: function core.tenant_secure(bigint)');
      expect(found.stdout).toMatch(new RegExp(`school ${school.id} .*: not compared with this release\n`));
    } finally {
      await database.query('alter function core.readiness_before() rename to readiness');
      await database.query('alter function core.tenant_secure_before(bigint) rename to tenant_secure');
    }
  }, 60_000);

  test('takes default privileges for a problem of the server, not for what a school should have', async () => {
    await database.query('alter default privileges grant select on tables to school_worker');
    try {
      expect(await check('default_privileges()')).toMatchObject([
        { level: 'error', what: expect.stringContaining('select school_worker'), is_harmless: true },
      ]);
      expect(await differences()).toEqual([]);
    } finally {
      await database.query('alter default privileges revoke select on tables from school_worker');
    }
  });
});

describe('school doctor --server', () => {
  test('says what, why and how to fix it; --fix fixes what is harmless; the exit code tells errors from warnings', async () => {
    await database.query(`alter table ${school.schema}.student no force row level security`);
    const found = await doctor(['--server', '--offline']);
    expect(found.code).toBe(1);
    expect(found.stdout).toContain(
      `error: School ${school.id}: the row security student are: enabled t, forced f; this release has: enabled t, forced t.\n` +
        '  Why: A school whose tables, policies, triggers or privileges differ from the release can show rows of other ' +
        'schools, or fail at the next migration.\n' +
        `  Fix: alter table ${school.schema}.student enable row level security, force row level security\n`,
    );
    expect(found.stdout).toContain('error: No worker is running');
    const fixed = await doctor(['--server', '--offline', '--fix']);
    expect(fixed.stdout).toContain('forced t. (fixed)\n');
    expect(await differences()).toEqual([]);
    expect((await doctor(['--tenant', String(school.id)])).code).toBe(0);
    await database.query(`create index again on ${school.schema}.student (class_id)`);
    const warned = await doctor(['--tenant', String(school.id)]);
    expect(warned).toMatchObject({ code: 2, stdout: expect.stringContaining('warning: School') });
    await database.query(`drop index ${school.schema}.again`);
  }, 60_000);

  test('reports services that cannot be reached, unless --offline, and a full disk', async () => {
    const closed = await freePort();
    const env = { SMTP_URL: `smtp://127.0.0.1:${closed}`, DATA_DIR: '/tmp' };
    const lines = async (...args: string[]) => {
      const { stdout, stderr } = await doctor(['--server', '--json', ...args], env);
      expect(stderr).toBe('');
      return stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as { check_name?: string; what?: string });
    };
    expect(await lines()).toContainEqual(
      expect.objectContaining({
        check_name: 'smtp',
        what: `The email server 127.0.0.1:${closed} cannot be used (ESOCKET).`,
      }),
    );
    const offline = await lines('--offline', '--min-free', '999999');
    expect(offline.map((line) => line.check_name)).not.toContain('smtp');
    expect(offline).toContainEqual(expect.objectContaining({ check_name: 'disk', level: 'error' }));
  }, 30_000);
});
