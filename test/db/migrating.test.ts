import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { sqlFiles } from '../../src/database/install.ts';
import { migrate } from '../../src/database/migrate.ts';
import { catalogue, serviceSchemas } from '../support/database/catalogue.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { runProgram } from '../support/server/processes.ts';
import { type BareTenant, provision, register } from '../support/database/tenants.ts';

let databases: TestDatabase[] = [];
/** A copy of the project's tenant migrations, to which a test adds its own. */
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

async function fresh(template?: 'template0'): Promise<TestDatabase> {
  const database = await testDatabase(template);
  databases.push(database);
  return database;
}

const addMigration = (number: number, text: string) =>
  writeFile(join(folder, `${String(number).padStart(4, '0')}-of-a-test.sql`), text);

const versions = async (database: TestDatabase) =>
  Object.fromEntries(
    (await database.query<{ id: string; v: number }>('select id, schema_version as v from platform.tenant')).map(
      ({ id, v }) => [Number(id), v],
    ),
  );

/** Everything there is: what is defined, and what the tables of the platform and the migrators say. */
async function everything(database: TestDatabase): Promise<unknown> {
  const tables = await database.query<{ name: string }>(
    `select oid::regclass::text as name from pg_class
     where relkind = 'r' and relnamespace in ('platform'::regnamespace, 'core'::regnamespace, 'graphile_migrate'::regnamespace, 'graphile_worker'::regnamespace) order by 1`,
  );
  const rows: Record<string, unknown> = {};
  for (const { name } of tables)
    rows[name] = await database.query(`select xmin::text, t.* from ${name} t order by t::text`);
  return { definitions: await catalogue(database, await serviceSchemas(database)), rows };
}

describe('migrating a database', () => {
  test('a second time changes nothing, down to the version of each row', async () => {
    const database = await fresh();
    await provision(database);
    await migrate({ ownerUrl: database.url });
    const before = await everything(database);
    const { tenants, failed } = await migrate({ ownerUrl: database.url });
    expect({ tenants, failed }).toEqual({ tenants: [], failed: [] });
    expect(await everything(database)).toEqual(before);
  });

  test('by five processes at once makes an empty one what a single process makes it', async () => {
    const [many, single] = [await fresh('template0'), await fresh()];
    const runs = await Promise.all(
      Array.from({ length: 5 }, () => runProgram('src/cli/main.ts', ['migrate'], { DATABASE_URL: many.url })),
    );
    expect(runs.map(({ code, stderr }) => ({ code, stderr }))).toEqual(Array(5).fill({ code: 0, stderr: '' }));
    expect(runs.filter(({ stdout }) => stdout.includes('functions: installed'))).toHaveLength(1);
    expect(await serviceSchemas(many)).toEqual(['api', 'core', 'graphile_migrate', 'graphile_worker', 'platform']);
    const schemas = ['api', 'core', 'platform'];
    expect(await catalogue(many, schemas)).toEqual(await catalogue(single, schemas));
  });

  test('refuses when a released tenant migration was edited, and names the file', async () => {
    const database = await fresh();
    const [file = ''] = (await sqlFiles(folder)).map(({ name }) => name);
    await writeFile(file, `${await readFile(file, 'utf8')}\n-- only a comment\n`);
    await expect(migrate({ ownerUrl: database.url, tenantMigrations: folder })).rejects.toThrow(
      /0001-.*\.sql was edited after its release/,
    );
  });
});

describe('migrating schools', () => {
  test('twenty at once end up like those that were there before, and like one that comes after', async () => {
    const database = await fresh();
    const old = [await provision(database), await provision(database)];
    await addMigration(
      latest + 1,
      'alter table student add column locker text;\ncreate table locker (id bigserial primary key, student_id bigint references student (id));',
    );
    const young: BareTenant[] = [];
    for (let n = 0; n < 20; n++) young.push(await register(database));
    const { tenants, failed } = await migrate({ ownerUrl: database.url, tenantMigrations: folder, parallel: 10 });
    expect(failed).toEqual([]);
    expect(tenants.map(({ tenant, applied }) => [Number(tenant), applied]).sort(([a = 0], [b = 0]) => a - b)).toEqual([
      ...old.map(({ id }) => [id, 1]),
      ...young.map(({ id }) => [id, latest + 1]),
    ]);
    const after = await provision(database);
    const model = await catalogue(database, [after.schema]);
    expect(model).toEqual(
      expect.arrayContaining([
        expect.stringMatching(/^policy tenant_N locker tenant_isolation /),
        expect.stringMatching(/^column tenant_N.student.* locker text /),
      ]),
    );
    for (const { schema } of [...old, ...young]) expect(await catalogue(database, [schema])).toEqual(model);
  });

  test('leaves a school whose migration fails at its version and whole, goes on with the others, and resumes with it alone', async () => {
    const database = await fresh();
    const schools = [await provision(database), await provision(database), await provision(database)];
    const [first, second, third] = schools.map(({ id }) => id) as [number, number, number];
    const before = await catalogue(database, [`tenant_${second}`]);
    await addMigration(latest + 1, 'create table early (id bigserial primary key);');
    await addMigration(
      latest + 2,
      `do $$ begin if exists (select from student where first_name = 'Odd') then raise exception 'cannot convert Odd'; end if; end $$;`,
    );
    await database.query(
      `insert into tenant_${second}.student (first_name, last_name, admission_number) values ('Odd', 'One', '1')`,
    );

    const told: string[] = [];
    const options = { ownerUrl: database.url, tenantMigrations: folder, parallel: 3 };
    const run = await migrate({
      ...options,
      onTenant: ({ tenant, error }, done, total) => told.push(`${done}/${total} ${tenant} ${error ?? 'ok'}`),
    });
    expect(run.tenants).toHaveLength(3);
    expect(told.map((line) => line.split(' ')[0])).toEqual(['1/3', '2/3', '3/3']);
    expect(run.failed).toMatchObject([{ tenant: String(second), applied: 0 }]);
    expect(run.failed[0]?.error).toContain('cannot convert Odd');
    expect(run.failed[0]?.error).toContain(`${String(latest + 2).padStart(4, '0')}-of-a-test`);
    expect(await versions(database)).toEqual({ [first]: latest + 2, [second]: latest, [third]: latest + 2 });
    expect(await catalogue(database, [`tenant_${second}`])).toEqual(before);

    await database.query(`delete from tenant_${second}.student`);
    const resumed = await migrate(options);
    expect(resumed).toMatchObject({ tenants: [{ tenant: String(second), applied: 2 }], failed: [] });
    expect(await versions(database)).toEqual({ [first]: latest + 2, [second]: latest + 2, [third]: latest + 2 });
    expect(await catalogue(database, [`tenant_${second}`])).toEqual(await catalogue(database, [`tenant_${third}`]));
  });

  test('gives a school that was behind the default grants of new permissions once it has caught up', async () => {
    const database = await fresh();
    const { id, schema } = await provision(database);
    const grants = async () =>
      (await database.query<{ n: number }>(`select count(*)::integer as n from ${schema}.role_permission`))[0]?.n ?? 0;
    const full = await grants();
    expect(full).toBeGreaterThan(20);
    // As if it had failed when the permissions beyond 10 came with this version of the functions.
    await database.query(`delete from ${schema}.role_permission where permission_id > 10`);
    await database.query('update platform.tenant set seeded_permission_id = 10 where id = $1', [id]);
    expect(await grants()).toBeLessThan(full);
    await migrate({ ownerUrl: database.url });
    expect(await grants()).toBe(full);
  });

  test('gives no role back what the school took from it, when the default grants of new permissions come', async () => {
    const database = await fresh();
    const { id, schema } = await provision(database);
    const grants = () => database.query(`select role_id, permission_id from ${schema}.role_permission order by 1, 2`);
    const taken = await database.query(
      `delete from ${schema}.role_permission where permission_id = 1 returning role_id`,
    );
    expect(taken.length).toBeGreaterThan(0);
    const kept = await grants();
    await database.query(`delete from ${schema}.role_permission where permission_id > 10`);
    await database.query('update platform.tenant set seeded_permission_id = 10 where id = $1', [id]);
    await migrate({ ownerUrl: database.url });
    expect(await grants()).toEqual(kept);
  });

  test('for one school alone leaves the others, and the functions, as they were', async () => {
    const database = await fresh();
    const [one, other] = [await provision(database), await provision(database)];
    const functions = await catalogue(database, ['core', 'api']);
    await addMigration(latest + 1, 'create table early (id bigserial primary key);');
    const steps: string[] = [];
    const { tenants } = await migrate({
      ownerUrl: database.url,
      tenantMigrations: folder,
      tenant: String(other.id),
      onStep: (line) => steps.push(line),
    });
    expect(tenants).toMatchObject([{ tenant: String(other.id), applied: 1 }]);
    expect(await versions(database)).toEqual({ [one.id]: latest, [other.id]: latest + 1 });
    expect(steps.at(-1)).toBe('functions: left as they are, 1 schools are still to be migrated');
    expect(await catalogue(database, ['core', 'api'])).toEqual(functions);
    expect(await database.query('select tenant_version from platform.installation')).toEqual([
      { tenant_version: latest },
    ]);
    await expect(migrate({ ownerUrl: database.url, tenantMigrations: folder, tenant: 'nobody' })).rejects.toThrow(
      'There is no school with the id or subdomain nobody.',
    );
  });

  test('as a dry run says what it would apply, and changes nothing', async () => {
    const database = await fresh();
    const [present, missing] = [await provision(database), await register(database)];
    await addMigration(latest + 1, 'create table early (id bigserial primary key);');
    const before = await everything(database);
    const { tenants } = await migrate({ ownerUrl: database.url, tenantMigrations: folder, dryRun: true });
    expect(tenants.map(({ tenant, applied }) => [Number(tenant), applied])).toEqual([
      [present.id, 1],
      [missing.id, latest + 1],
    ]);
    expect(await everything(database)).toEqual(before);
    const empty = await fresh('template0');
    const steps: string[] = [];
    expect(await migrate({ ownerUrl: empty.url, dryRun: true, onStep: (line) => steps.push(line) })).toEqual({
      tenants: [],
      failed: [],
    });
    expect(steps).toEqual([expect.stringMatching(/^shared: would apply 000001-platform\.sql/)]);
    expect(await serviceSchemas(empty)).toEqual([]);
  });
});

describe('school migrate', () => {
  test('prints a line for each school, exits with 1 when one failed, and with 0 when that one is mended', async () => {
    const database = await fresh();
    const schools = [await register(database), await register(database), await register(database)];
    const second = schools[1]?.schema ?? '';
    await database.query(`create schema ${second}`);
    const env = { DATABASE_URL: database.url };

    const dry = await runProgram('src/cli/main.ts', ['migrate', '--dry-run'], env);
    expect({ code: dry.code, lines: dry.stdout.trim().split('\n') }).toEqual({
      code: 0,
      lines: [
        'shared: up to date',
        ...schools.map(
          ({ id }, n) =>
            expect.stringMatching(
              new RegExp(`^\\[${n + 1}/3\\] school ${id} \\(bare-\\d+\\): would apply ${latest}$`),
            ) as unknown,
        ),
        expect.stringMatching(/^3 schools to migrate, 0 failed, \d+\.\d s$/),
      ],
    });
    expect(Object.values(await versions(database))).toEqual([0, 0, 0]);

    const failing = await runProgram('src/cli/main.ts', ['migrate', '--parallel', '1'], env);
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
    expect(Object.values(await versions(database)).sort()).toEqual([0, latest, latest]);

    await database.query(`drop schema ${second}`);
    const resumed = await runProgram('src/cli/main.ts', ['migrate'], env);
    expect({ code: resumed.code, lines: resumed.stdout.split('\n').filter((line) => line.startsWith('[')) }).toEqual({
      code: 0,
      lines: [expect.stringMatching(new RegExp(`^\\[1/1\\] school ${schools[1]?.id ?? 0} .*: ${latest} applied`))],
    });
    expect(Object.values(await versions(database))).toEqual([latest, latest, latest]);
  });
});
