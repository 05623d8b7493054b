import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { sqlFiles } from '../../src/database/migrate/install.ts';
import { migrate } from '../../src/database/migrate/migrate.ts';
import { withOwner } from '../../src/database/pool/pool.ts';
import { schemaDefinition, serviceSchemas } from '../support/database/schema-definition.ts';
import { isFull } from '../support/client/share.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { runProgram } from '../support/server/processes.ts';
import { type BareTenant, provision, register } from '../support/database/tenants.ts';

let databases: TestDatabase[] = [];
/** A copy of migrations/tenant, to which tests add files. */
let folder: string;
let latest: number;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'school-migrations-'));
  const files = await sqlFiles('migrations/tenant');
  latest = files.length;
  for (const { name, text } of files) await writeFile(join(folder, name.split('/').at(-1) ?? ''), text);
});
afterEach(async () => {
  await rm(folder, { recursive: true });
  for (const database of databases) await database.drop();
  databases = [];
});

async function newDatabase(schools?: number | 'empty'): Promise<TestDatabase> {
  const database = await testDatabase(schools);
  databases.push(database);
  return database;
}

const fileNumber = (version: number) => String(version).padStart(4, '0');
const addMigration = (version: number, text: string) =>
  writeFile(join(folder, `${fileNumber(version)}-test.sql`), text);

/** The schema version of each school, by id. */
const schemaVersions = async (database: TestDatabase) =>
  Object.fromEntries(
    (await database.query<{ id: string; v: number }>('select id, schema_version as v from platform.tenant')).map(
      ({ id, v }) => [Number(id), v],
    ),
  );

/** All definitions, and the rows of all shared tables with their row versions. */
async function snapshot(database: TestDatabase): Promise<unknown> {
  const tables = await database.query<{ name: string }>(
    `select oid::regclass::text as name from pg_class
     where relkind = 'r'
       and relnamespace::regnamespace::text in ('platform', 'core', 'graphile_migrate', 'graphile_worker')
     order by 1`,
  );
  const rows: Record<string, unknown> = {};
  for (const { name } of tables)
    rows[name] = await database.query(`select xmin::text, t.* from ${name} t order by t::text`);
  return { definitions: await schemaDefinition(database, await serviceSchemas(database)), rows };
}

describe('migrate()', () => {
  test('changes nothing when run again, not even the version of a row', async () => {
    const database = await newDatabase(1);
    await provision(database);
    await migrate({ ownerUrl: database.url });
    const before = await snapshot(database);
    const { tenants, failed } = await migrate({ ownerUrl: database.url });
    expect({ tenants, failed }).toEqual({ tenants: [], failed: [] });
    expect(await snapshot(database)).toEqual(before);
  });

  test('refuses a database whose roles have lost their privileges, as after the restore of a dump without roles', async () => {
    const database = await newDatabase(1);
    await database.query('revoke usage on schema core from school_api');
    await expect(migrate({ ownerUrl: database.url })).rejects.toThrow(
      'The roles of the service have no privileges in this database',
    );
    await database.query('grant usage on schema core to school_api');
    expect(await migrate({ ownerUrl: database.url })).toMatchObject({ failed: [] });
  });

  test('gives the same result when five processes migrate an empty database at once', async () => {
    const [many, single] = [await newDatabase('empty'), await newDatabase()];
    const runs = await Promise.all(
      Array.from({ length: 5 }, () => runProgram('src/cli/main.ts', ['migrate'], { DATABASE_URL: many.url })),
    );
    expect(runs.map(({ code, stderr }) => ({ code, stderr }))).toEqual(Array(5).fill({ code: 0, stderr: '' }));
    expect(runs.filter(({ stdout }) => stdout.includes('functions: installed'))).toHaveLength(1);
    expect(await serviceSchemas(many)).toEqual(['api', 'core', 'graphile_migrate', 'graphile_worker', 'platform']);
    const schemas = ['api', 'core', 'platform'];
    expect(await schemaDefinition(many, schemas)).toEqual(await schemaDefinition(single, schemas));
  });

  test('refuses a tenant migration that was edited after it was applied, and names the file', async () => {
    const database = await newDatabase();
    const [file = ''] = (await sqlFiles(folder)).map(({ name }) => name);
    await writeFile(file, `${await readFile(file, 'utf8')}\n-- only a comment\n`);
    await expect(migrate({ ownerUrl: database.url, tenantMigrations: folder })).rejects.toThrow(
      /0001-.*\.sql has changed since it was applied/,
    );
  });

  test('refuses two tenant migrations with the same number', async () => {
    const database = await newDatabase();
    await addMigration(latest, 'select;');
    await expect(migrate({ ownerUrl: database.url, tenantMigrations: folder })).rejects.toThrow(
      `Two tenant migrations have the number ${fileNumber(latest)}. Rename one of them.`,
    );
  });
});

describe('migrating schools', () => {
  test('compiles no statements, though the server would', async () => {
    const database = await newDatabase(1);
    await provision(database);
    await database.query("do $$ begin execute format('alter database %I set jit = on', current_database()); end $$");
    await addMigration(
      latest + 1,
      "do $$ begin if current_setting('jit')::boolean then raise exception 'compiles'; end if; end $$;",
    );
    expect((await migrate({ ownerUrl: database.url, tenantMigrations: folder })).failed).toEqual([]);
    const { rows } = await withOwner(database.url, (client) => client.query<{ jit: string }>('show jit'));
    expect(rows).toEqual([{ jit: 'off' }]);
  });

  test('gives new schools, existing schools and schools created later the same schema', async () => {
    const database = await newDatabase(2);
    const existing = [await provision(database), await provision(database)];
    await addMigration(
      latest + 1,
      `alter table student add column migration_probe text;
       create table migration_probe (id bigserial primary key, student_id bigint references student (id));`,
    );
    const registered: BareTenant[] = [];
    for (let n = 0; n < (isFull ? 20 : 6); n++) registered.push(await register(database));
    const { tenants, failed } = await migrate({
      ownerUrl: database.url,
      tenantMigrations: folder,
      parallel: isFull ? 10 : 3,
    });
    expect(failed).toEqual([]);
    expect(tenants.map(({ tenant, applied }) => [Number(tenant), applied]).sort(([a = 0], [b = 0]) => a - b)).toEqual([
      ...existing.map(({ id }) => [id, 1]),
      ...registered.map(({ id }) => [id, latest + 1]),
    ]);
    const later = await provision(database);
    const expected = await schemaDefinition(database, [later.schema]);
    expect(expected).toEqual(
      expect.arrayContaining([
        expect.stringMatching(/^policy tenant_N migration_probe tenant_isolation /),
        expect.stringMatching(/^column tenant_N.student.* migration_probe text /),
      ]),
    );
    for (const { schema } of [...existing, ...registered])
      expect(await schemaDefinition(database, [schema])).toEqual(expected);
  });

  test('leaves a school unchanged if its migration fails, migrates the others, and retries only that one', async () => {
    const database = await newDatabase(3);
    const schools = [await provision(database), await provision(database), await provision(database)];
    const [first, second, third] = schools.map(({ id }) => id) as [number, number, number];
    const before = await schemaDefinition(database, [`tenant_${second}`]);
    await addMigration(latest + 1, 'create table early (id bigserial primary key);');
    await addMigration(
      latest + 2,
      `do $$ begin
         if exists (select from student where first_name = 'Odd') then raise exception 'cannot convert Odd' using detail = 'Key (email)=(odd@school.example)'; end if;
       end $$;`,
    );
    await database.query(
      `insert into tenant_${second}.student (first_name, last_name, admission_number)
       values ('Odd', 'One', '1')`,
    );

    const progress: string[] = [];
    const options = { ownerUrl: database.url, tenantMigrations: folder, parallel: 3 };
    const run = await migrate({
      ...options,
      onTenant: ({ tenant, error }, done, total) => progress.push(`${done}/${total} ${tenant} ${error ?? 'ok'}`),
    });
    expect(run.tenants).toHaveLength(3);
    expect(progress.map((line) => line.split(' ')[0])).toEqual(['1/3', '2/3', '3/3']);
    expect(run.failed).toMatchObject([{ tenant: String(second), applied: 0 }]);
    expect(run.failed[0]?.error).toContain('cannot convert Odd');
    expect(run.failed[0]?.error).toContain(`${fileNumber(latest + 2)}-test`);
    expect(run.failed[0]?.error).toContain('odd@school.example');
    // The stored error has no values of rows.
    expect(await database.query('select version, error from platform.delayed_migration')).toEqual([
      { version: latest + 2, error: `tenant migration ${fileNumber(latest + 2)}-test: cannot convert Odd` },
    ]);
    expect(await schemaVersions(database)).toEqual({ [first]: latest + 2, [second]: latest, [third]: latest + 2 });
    expect(await schemaDefinition(database, [`tenant_${second}`])).toEqual(before);

    await database.query(`delete from tenant_${second}.student`);
    const resumed = await migrate(options);
    expect(resumed).toMatchObject({ tenants: [{ tenant: String(second), applied: 2 }], failed: [] });
    expect(await schemaVersions(database)).toEqual({ [first]: latest + 2, [second]: latest + 2, [third]: latest + 2 });
    expect(await schemaDefinition(database, [`tenant_${second}`])).toEqual(
      await schemaDefinition(database, [`tenant_${third}`]),
    );
  });

  test('grants new permissions by default to a school that missed the installation of the functions', async () => {
    const database = await newDatabase(1);
    const { id, schema } = await provision(database);
    const grants = async () =>
      (await database.query<{ n: number }>(`select count(*)::integer as n from ${schema}.role_permission`))[0]?.n ?? 0;
    const full = await grants();
    expect(full).toBeGreaterThan(20);
    // As if its migration had failed when the permissions above 10 were added.
    await database.query(`delete from ${schema}.role_permission where permission_id > 10`);
    await database.query('update platform.tenant set seeded_permission_id = 10 where id = $1', [id]);
    expect(await grants()).toBeLessThan(full);
    await migrate({ ownerUrl: database.url });
    expect(await grants()).toBe(full);
  });

  test('does not grant again a permission that the school has revoked', async () => {
    const database = await newDatabase(1);
    const { id, schema } = await provision(database);
    const grants = () => database.query(`select role_id, permission_id from ${schema}.role_permission order by 1, 2`);
    const revoked = await database.query(
      `delete from ${schema}.role_permission where permission_id = 1 returning role_id`,
    );
    expect(revoked.length).toBeGreaterThan(0);
    const before = await grants();
    await database.query(`delete from ${schema}.role_permission where permission_id > 10`);
    await database.query('update platform.tenant set seeded_permission_id = 10 where id = $1', [id]);
    await migrate({ ownerUrl: database.url });
    expect(await grants()).toEqual(before);
  });

  test('limited to one school changes neither the other schools nor the functions', async () => {
    const database = await newDatabase(2);
    const [one, other] = [await provision(database), await provision(database)];
    const functions = await schemaDefinition(database, ['core', 'api']);
    await addMigration(latest + 1, 'create table early (id bigserial primary key);');
    const steps: string[] = [];
    const { tenants } = await migrate({
      ownerUrl: database.url,
      tenantMigrations: folder,
      tenant: String(other.id),
      onStep: (line) => steps.push(line),
    });
    expect(tenants).toMatchObject([{ tenant: String(other.id), applied: 1 }]);
    expect(await schemaVersions(database)).toEqual({ [one.id]: latest, [other.id]: latest + 1 });
    expect(steps.at(-1)).toBe('functions: not installed, 1 school must be migrated first');
    expect(await schemaDefinition(database, ['core', 'api'])).toEqual(functions);
    expect(await database.query('select tenant_version from platform.installation')).toEqual([
      { tenant_version: latest },
    ]);
    await expect(migrate({ ownerUrl: database.url, tenantMigrations: folder, tenant: 'nobody' })).rejects.toThrow(
      'No school has the id or subdomain nobody.',
    );
  });

  test('in a dry run reports what it would apply and changes nothing', async () => {
    const database = await newDatabase(1);
    const [provisioned, registered] = [await provision(database), await register(database)];
    await addMigration(latest + 1, 'create table early (id bigserial primary key);');
    const before = await snapshot(database);
    const { tenants } = await migrate({ ownerUrl: database.url, tenantMigrations: folder, dryRun: true });
    expect(tenants.map(({ tenant, applied }) => [Number(tenant), applied])).toEqual([
      [provisioned.id, 1],
      [registered.id, latest + 1],
    ]);
    expect(await snapshot(database)).toEqual(before);
    const empty = await newDatabase('empty');
    const steps: string[] = [];
    expect(await migrate({ ownerUrl: empty.url, dryRun: true, onStep: (line) => steps.push(line) })).toMatchObject({
      tenants: [],
      failed: [],
    });
    expect(steps).toEqual([
      expect.stringMatching(/^shared: would apply 000001-platform\.sql.* \(not tried: the database is empty\)$/),
    ]);
    expect(await serviceSchemas(empty)).toEqual([]);
  });
});

/** Makes a shared migration pending again, without undoing it. Returns the name of its file. */
async function forgetShared(database: TestDatabase, ending: string): Promise<string | undefined> {
  const file = (await sqlFiles('migrations/committed'))
    .map(({ name }) => basename(name))
    .find((name) => name.endsWith(ending));
  // The stored name has only the number. Later migrations stay: the next one takes its place in the chain of hashes.
  const number = [file?.slice(0, 6)];
  await database.query(
    `update graphile_migrate.migrations later set previous_hash = earlier.previous_hash
     from graphile_migrate.migrations earlier
     where later.previous_hash = earlier.hash and left(earlier.filename, 6) = $1`,
    number,
  );
  const deleted = await database.query(
    'delete from graphile_migrate.migrations where left(filename, 6) = $1 returning filename',
    number,
  );
  expect(deleted).toHaveLength(1);
  return file;
}

test('a dry run of a school calls the functions that pending shared migrations create', async () => {
  const database = await newDatabase();
  const { id } = await register(database);
  await database.query('drop function public.search_form(text) cascade');
  await database.query('drop function public.without_invisible(text) cascade');
  await database.query('alter table platform.plan drop column is_public cascade');
  await database.query('alter table platform.subscription drop column is_final cascade');
  await forgetShared(database, '-final-subscriptions.sql');
  const { shared, tenants } = await migrate({ ownerUrl: database.url, dryRun: true });
  expect(shared?.error).toBeUndefined();
  expect(tenants).toMatchObject([{ tenant: String(id), applied: latest }]);
  expect(tenants[0]?.error).toBeUndefined();
  expect(await database.query("select to_regprocedure('public.search_form(text)') as name")).toEqual([{ name: null }]);
});

test('a dry run tries the pending shared migrations too, and tells their locks', async () => {
  const database = await newDatabase();
  // The database of a release before the tables of delayed migrations.
  await database.query('drop table platform.replaced_migration_tenant, platform.replaced_migration');
  await database.query('drop table platform.delayed_migration');
  await database.query('drop trigger touch on platform.tenant_migration');
  await database.query('alter table platform.tenant_migration drop column is_required, drop column updated_at');
  // And before that of nodes.
  await database.query('alter table platform.tenant drop column node_id cascade');
  const file = await forgetShared(database, '-delayed-migrations.sql');
  const before = await snapshot(database);
  const { shared } = await migrate({ ownerUrl: database.url, dryRun: true });
  expect(shared).toMatchObject({ pending: [file], untried: [] });
  expect(shared?.error).toBeUndefined();
  expect(shared?.rehearsal).toMatchObject({ rewrites: [], indexes: [] });
  expect(shared?.rehearsal?.locks).toContainEqual({ table: 'tenant_migration', mode: 'AccessExclusiveLock' });
  expect(await snapshot(database)).toEqual(before);

  await database.query('create table platform.replaced_migration (id bigint)');
  const failing = await migrate({ ownerUrl: database.url, dryRun: true });
  expect(failing.shared?.error).toBe('relation "replaced_migration" already exists');
});

describe('school migrate', () => {
  test('prints one line per school, and exits with 1 if a school failed', async () => {
    const database = await newDatabase();
    const schools = [await register(database), await register(database), await register(database)];
    const second = schools[1]?.schema ?? '';
    await database.query(`create schema ${second}`);
    const env = { DATABASE_URL: database.url };

    const dry = await runProgram('src/cli/main.ts', ['migrate', '--dry-run'], env);
    const wouldApply = (n: number) =>
      expect.stringMatching(
        new RegExp(
          `^\\[${n + 1}/3\\] school ${schools[n]?.id ?? 0} \\(bare-\\d+\\): would apply ${latest} in \\d+ ms$`,
        ),
      ) as unknown;
    expect({ code: dry.code, lines: dry.stdout.trim().split('\n') }).toEqual({
      code: 1,
      lines: [
        'shared: up to date',
        wouldApply(0),
        expect.stringMatching(
          new RegExp(`^\\[2/3\\] school \\d+ \\(bare-\\d+\\): FAILED: schema "${second}" already exists$`),
        ),
        wouldApply(2),
        'functions: not tried',
        expect.stringMatching(
          /^2 schools to migrate, 1 failed, \d+\.\d s; slowest: school [13] \(bare-\d+\), \d+ ms; nothing was changed$/,
        ),
      ],
    });
    expect(Object.values(await schemaVersions(database))).toEqual([0, 0, 0]);

    const failing = await runProgram('src/cli/main.ts', ['migrate', '--jobs', '1'], env);
    expect(failing.code).toBe(1);
    const lines = failing.stdout.split('\n').filter((line) => line.startsWith('['));
    expect(lines).toEqual([
      expect.stringMatching(/^\[1\/3\] school \d+ \(bare-\d+\): \d+ applied in \d+ ms$/),
      expect.stringMatching(
        new RegExp(`^\\[2/3\\] school \\d+ \\(bare-\\d+\\): FAILED: schema "${second}" already exists$`),
      ),
      expect.stringMatching(/^\[3\/3\] school \d+ \(bare-\d+\): \d+ applied in \d+ ms$/),
    ]);
    expect(failing.stdout).toMatch(/\n2 schools migrated, 1 failed, /);
    expect(Object.values(await schemaVersions(database)).sort()).toEqual([0, latest, latest]);

    await database.query(`drop schema ${second}`);
    const resumed = await runProgram('src/cli/main.ts', ['migrate'], env);
    expect({ code: resumed.code, lines: resumed.stdout.split('\n').filter((line) => line.startsWith('[')) }).toEqual({
      code: 0,
      lines: [expect.stringMatching(new RegExp(`^\\[1/1\\] school ${schools[1]?.id ?? 0} .*: ${latest} applied`))],
    });
    expect(Object.values(await schemaVersions(database))).toEqual([latest, latest, latest]);
  });
});
