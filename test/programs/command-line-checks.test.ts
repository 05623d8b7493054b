import { afterAll, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { checkClock } from '../../src/cli/server-checks.ts';
import { provision } from '../support/database/tenants.ts';
import { freePort, runProgram } from '../support/server/processes.ts';
import { testDatabase } from '../support/server/database.ts';
import { runRemedy } from '../support/database/remedies.ts';

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

/** The definitions of a new school, which is rolled back. */
let reference: Promise<string> | undefined;

async function readReference(): Promise<string> {
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  try {
    await client.query('begin');
    const { rows } = await client.query<{ objects: string }>('select core.reference_objects()::text as objects');
    await client.query('rollback');
    return rows[0]?.objects ?? '';
  } finally {
    await client.end();
  }
}

/** The differences of the school from the release. */
async function differences(): Promise<Found[]> {
  reference ??= readReference();
  const rows = await database.query<Found>('select * from core.check_school($1, $2)', [school.id, await reference]);
  return rows.map((row) => ({ ...row, remedy: row.remedy.replaceAll('<id>', String(school.id)) }));
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
    [
      'the index student_class_id_idx differs',
      'drop index S.student_class_id_idx; create index student_class_id_idx on S.student (id)',
    ],
    ['the index extra does not belong', 'create index extra on S.student (created_at)'],
    ['the column student.nickname does not belong', 'alter table S.student add column nickname text'],
    ['the column student.deleted_at is missing', 'alter table S.student drop column deleted_at cascade'],
    ['the column student.search_text is missing', 'alter table S.student drop column search_text'],
    ['the column holiday.name differs', 'alter table S.holiday alter column name type varchar(100)'],
    ['the column holiday.name differs', 'alter table S.holiday alter column name drop not null'],
    ['the column holiday.created_at differs', 'alter table S.holiday alter column created_at drop default'],
    ['the column holiday.name differs', "alter table S.holiday alter column name set default 'None'"],
    [
      'the constraint student_first_name_check on student differs',
      'alter table S.student drop constraint student_first_name_check, add constraint student_first_name_check check (true)',
    ],
    ['the constraint extra on student does not belong', 'alter table S.student add constraint extra check (id > 0)'],
    ['the function touch_updated_at() is missing', 'drop function S.touch_updated_at() cascade'],
    ['the function extra() does not belong', 'create function S.extra() returns integer language sql return 1'],
    [
      'the privileges touch_updated_at() are: execute public',
      'grant execute on function S.touch_updated_at() to public',
    ],
    ['the sequence holiday_id_seq is missing', 'drop sequence S.holiday_id_seq cascade'],
    ['the privileges holiday_id_seq are: none', 'revoke all on sequence S.holiday_id_seq from school_tenant'],
    ['the table extra does not belong', 'create table S.extra (id serial primary key, name text)'],
    [
      'the trigger extra on student does not belong',
      'create trigger extra before insert on S.student execute function S.touch_updated_at()',
    ],
    ['the policy extra on student does not belong', 'create policy extra on S.student using (true)'],
  ])('are reported: %s; the remedy repairs it', async (what, damage) => {
    await database.query(damage.replaceAll('S.', `${school.schema}.`));
    const found = await differences();
    expect(found.map((each) => each.what)).toContainEqual(expect.stringContaining(what));
    for (const { remedy } of found) await runRemedy(database.url, remedy);
    expect(await differences()).toEqual([]);
  });

  test('are those of the release if they were created from what Postgres prints, as pg_dump does', async () => {
    const constraints = await database.query<{ statement: string }>(
      `select format('alter table %1$s drop constraint %2$I, add constraint %2$I %3$s', conrelid::regclass, conname,
         pg_get_constraintdef(oid)) as statement
       from pg_constraint where connamespace = '${school.schema}'::regnamespace and contype = 'c'`,
    );
    const triggers = await database.query<{ statement: string }>(
      `select format('drop trigger %I on %s; %s', tgname, tgrelid::regclass, pg_get_triggerdef(oid)) as statement
       from pg_trigger where not tgisinternal and tgrelid in (
         select oid from pg_class where relnamespace = '${school.schema}'::regnamespace)`,
    );
    const before = await database.query(
      `select pg_get_constraintdef(oid) from pg_constraint where conrelid = '${school.schema}.student_fee'::regclass`,
    );
    for (const { statement } of [...constraints, ...triggers]) await database.query(statement);
    expect(
      await database.query(
        `select pg_get_constraintdef(oid) from pg_constraint where conrelid = '${school.schema}.student_fee'::regclass`,
      ),
    ).not.toEqual(before);
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
});

// test/programs/doctor-fixes.test.ts has the other checks, with what mends it.
describe('a check', () => {
  test('reports jobs that wait', async () => {
    await database.query("select graphile_worker.add_job('clean_up', run_at => now() - interval '1 hour')");
    expect(await check("queue('-1 s')")).toContainEqual(
      expect.objectContaining({ what: expect.stringContaining('Jobs of clean_up have waited since') }),
    );
    await database.query('select graphile_worker.complete_jobs(array(select id from graphile_worker.jobs))');
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
  test('reports what several schools have in common once, with one fix for all of them', async () => {
    const others = [await provision(database), await provision(database)];
    const all = [school, ...others];
    for (const { schema } of all) await database.query(`drop index ${schema}.student_class_id_idx`);
    await database.query(`alter table ${others[0]?.schema ?? ''}.student add column nickname text`);
    const found = async () =>
      (await doctor(['--server', '--offline', '--json'])).stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as { check_name?: string; what: string; remedy: string; tenant_ids?: number[] })
        .filter(({ check_name }) => check_name === 'school');
    const [index, column, ...more] = await found();
    expect(more).toEqual([]);
    expect(index).toMatchObject({ level: 'warning', schools: 3, tenant_ids: all.map(({ id }) => id), is_fixed: false });
    expect(index?.what).toMatch(
      new RegExp(
        `^School ${school.id}: the index student_class_id_idx is missing. The same in 2 more schools: \\d+ \\(`,
      ),
    );
    expect(column).toMatchObject({
      what: `School ${others[0]?.id ?? 0}: the column student.nickname does not belong to this release.`,
      schools: 1,
    });
    const text = await doctor(['--server', '--offline']);
    expect(text.stdout.match(/student_class_id_idx is missing/g)).toHaveLength(1);
    for (const { remedy } of [column, index].flatMap((each) => each ?? [])) await runRemedy(database.url, remedy);
    expect(await found()).toEqual([]);
  }, 60_000);

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

  test('reports a DATA_DIR that cannot be written, and addresses of the settings that are of no use', async () => {
    const at = (role: string) => database.url.replace('//postgres@', `//${role}@`);
    const closed = await freePort();
    const { stdout } = await doctor(['--server', '--json', '--offline'], {
      DATA_DIR: `${import.meta.filename}/data`,
      API_DATABASE_URL: at('school_worker'),
      WORKER_DATABASE_URL: at('nobody'),
      SESSION_DATABASE_URL: at('school_worker'),
      ANALYTICS_DATABASE_URL: `postgres://school_graphql@127.0.0.1:${closed}/school`,
    });
    const found = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { check_name?: string; what: string })
      .filter(({ check_name: name }) => name === 'disk' || name === 'logins');
    expect(found.map(({ what }) => what)).toEqual([
      `The folder ${import.meta.filename}/data (DATA_DIR) cannot be written by this user (ENOTDIR).`,
      'API_DATABASE_URL logs in as school_worker, and not as school_api.',
      expect.stringMatching(/^The database at .* rejected the user nobody .* in WORKER_DATABASE_URL\.$/),
      `The database at 127.0.0.1:${closed} does not respond (ECONNREFUSED). Check that Postgres is running there, and ` +
        'the host and the port in ANALYTICS_DATABASE_URL.',
    ]);
  }, 30_000);
});
