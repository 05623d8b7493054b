import { execFile } from 'node:child_process';
import { access, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type TestDatabase, testDatabase } from '../support/server/database.ts';
import { type OwnServer, ownServer } from '../support/server/own-server.ts';
import { runProgram } from '../support/server/processes.ts';
import { provision } from '../support/database/tenants.ts';

const { withOwner } = shared;

const run = (url: string, ...args: string[]) => runProgram('src/cli/main.ts', args, { DATABASE_URL: url });

describe('migrate of a database whose dump had no rows', () => {
  /** Migrates a database with two schools after damage to it. */
  async function afterDamage(damage: (database: TestDatabase, schemas: string[]) => Promise<unknown>) {
    const database = await testDatabase();
    try {
      const schools = [await provision(database), await provision(database)];
      await damage(
        database,
        schools.map(({ schema }) => schema),
      );
      const migrated = await run(database.url, 'migrate');
      return { ...migrated, schools, data: await run(database.url, 'doctor', '--data') };
    } finally {
      await database.drop();
    }
  }

  test('refuses if the schools have lost their rows, and doctor reports each school', async () => {
    const { code, stderr, data } = await afterDamage(async (database, schemas) => {
      for (const schema of schemas) await database.query(`truncate ${schema}.state_transition cascade`);
    });
    expect(code).toBe(1);
    expect(stderr).toMatch(/^The tables of the schools have lost their rows: \d+ \(bare-\d+\), .*docs\/backup\.md/);
    expect(data.code).toBe(1);
    expect(data.stdout.match(/violates 1 rule/g)).toHaveLength(2);
  });

  test('warns if one school has lost them', async () => {
    const { code, stdout, schools } = await afterDamage((database, [schema = '']) =>
      database.query(`truncate ${schema}.state_transition cascade`),
    );
    expect(code).toBe(0);
    expect(stdout).toContain(
      `warning: the tables of these schools are missing or have lost their rows: ${schools[0]?.id ?? 0} (`,
    );
  });

  test('refuses if the platform has lost them', async () => {
    const ofTenants = await afterDamage((database) => database.query('truncate platform.tenant cascade'));
    expect(ofTenants.code).toBe(1);
    expect(ofTenants.stderr).toMatch(/^platform\.tenant has no rows, but there are schemas of schools: tenant_\d+, /);
    const ofAll = await afterDamage((database) => database.query('truncate graphile_migrate.migrations'));
    expect(ofAll.code).toBe(1);
    expect(ofAll.stderr).toMatch(/^The shared tables exist, but have lost their rows\./);
  });
});

/** The folder of a server that has pg_dump; the embedded one has not. */
async function findPrograms(): Promise<string | undefined> {
  const debian = '/usr/lib/postgresql';
  const versions = (await readdir(debian).catch(() => [])).sort((a, b) => Number(b) - Number(a));
  for (const folder of [process.env['POSTGRES_BIN'] ?? '', ...versions.map((version) => join(debian, version, 'bin'))])
    if (
      folder !== '' &&
      (await access(join(folder, 'pg_restore')).then(
        () => true,
        () => false,
      ))
    )
      return folder;
  return undefined;
}

const programs = await findPrograms();

(programs === undefined ? describe.skip : describe)('a dump that is restored as docs/backup.md says', () => {
  let own: OwnServer;
  const binaries = process.env['POSTGRES_BIN'];

  beforeAll(async () => {
    process.env['POSTGRES_BIN'] = programs;
    own = await ownServer();
  });
  afterAll(async () => {
    await own.remove();
    if (binaries === undefined) delete process.env['POSTGRES_BIN'];
    else process.env['POSTGRES_BIN'] = binaries;
  });

  const tool = (name: string, ...args: string[]) => promisify(execFile)(join(programs ?? '', name), args);

  test.each([
    ['a superuser', 'postgres', []],
    ['a role that is no superuser', 'landlord', ['--no-owner']],
  ])('by %s: without errors, as it was, and doctor finds nothing', async (_who, role, options) => {
    const as = (name: string) => own.url(name).replace('postgres://postgres@', `postgres://${role}@`);
    const asSuperuser = (...statements: string[]) =>
      withOwner(own.url('postgres'), async (client) => {
        for (const statement of statements) await client.query(statement);
      });
    await asSuperuser(
      `do $$ begin if to_regrole('landlord') is null then create role landlord login createrole createdb; end if; end $$`,
      `create database ${role}_live`,
      `create database ${role}_copy owner ${role}`,
    );
    const live = own.url(`${role}_live`);
    expect(await run(live, 'migrate')).toMatchObject({ code: 0 });
    const ids = await withOwner(live, async (client) => {
      const query = async <R extends object>(text: string, values?: unknown[]) =>
        (await client.query<R & Record<string, unknown>>(text, values)).rows as R[];
      const schools = [await provision({ query }), await provision({ query })];
      return schools.map(({ id }) => id);
    });
    const dump = join(own.folder, `${role}.dump`);
    await tool('pg_dump', '-Fc', '-f', dump, live);
    const copy = as(`${role}_copy`);
    if (role !== 'postgres') await asSuperuser('grant school_api, school_worker, pg_read_all_stats to landlord');
    expect(await tool('pg_restore', ...options, '-d', copy, dump)).toEqual({ stdout: '', stderr: '' });
    await withOwner(copy, (client) => client.query('analyze'));
    expect(await run(copy, 'migrate')).toMatchObject({ code: 0, stderr: '' });
    const found = await run(copy, 'doctor', '--server', '--offline', '--json');
    const problems = found.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { check_name?: string; what?: string })
      .filter(({ check_name: check }) => check !== undefined && !['queue', 'server', 'disk'].includes(check));
    expect(problems).toEqual([]);
    const data = await run(copy, 'doctor', '--data');
    for (const id of ids) expect(data.stdout).toMatch(new RegExp(`^school ${id} .*: consistent$`, 'm'));
    expect(data.stdout).toMatch(/^2 schools checked: 0 errors, 0 warnings$/m);
  });
});
