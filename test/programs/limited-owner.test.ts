import { afterEach, beforeEach, expect, test } from '@jest/globals';
import pg from 'pg';
import { type OwnServer, ownServer } from '../support/server/own-server.ts';
import { runProgram } from '../support/server/processes.ts';

const { withOwner } = shared;

// Roles are shared by all databases of a server, and each owner must create them: use new servers without roles.
let own: OwnServer;

beforeEach(async () => {
  own = await ownServer();
});
afterEach(() => own.remove());

/** The address of a database for a role. */
const as = (role: string, database: string) => own.url(database).replace('postgres://postgres@', `postgres://${role}@`);

const run = (url: string, ...args: string[]) => runProgram('src/cli/main.ts', args, { DATABASE_URL: url });

/** Runs statements as a superuser of the server. */
const asSuperuser = (database: string, ...statements: string[]) =>
  withOwner(own.url(database), async (client) => {
    for (const statement of statements) await client.query(statement);
  });

test('doctor and status say what an owner without pg_read_all_stats cannot see, until the printed grant is run', async () => {
  await asSuperuser(
    'postgres',
    'create role landlord login createdb createrole',
    'create database leased owner landlord',
  );
  const url = as('landlord', 'leased');
  expect(await run(url, 'migrate')).toMatchObject({ code: 0, stderr: '' });
  const stranger = new pg.Client({ connectionString: own.url('leased'), application_name: 'stranger' });
  await stranger.connect();
  try {
    await stranger.query('begin');
    const { stdout } = await run(url, 'status', '--json');
    expect(JSON.parse(stdout)).toMatchObject({
      missing_grant: 'grant pg_read_all_stats to landlord',
      long_transactions: null,
      replicas: null,
      connections: [{ name: 'stranger', connections: 1, active: null, idle_in_transaction: null, waiting: null }],
    });
    const text = await run(url, 'status');
    expect(text.stdout).toContain('Long transactions of other roles cannot be seen');
    expect(text.stdout).toContain('run: grant pg_read_all_stats to landlord;\n');
    expect(text.stdout).toMatch(/^stranger +1 +\? +\? +\?$/m);
    expect(text.stdout).not.toMatch(/No transaction|replica\./);

    const findings = async () =>
      (await run(url, 'doctor', '--server', '--offline', '--json')).stdout
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line) as { check_name?: string; level: string; remedy: string })
        .filter(({ check_name }) => check_name === 'visibility');
    const found = await findings();
    expect(found).toMatchObject([{ level: 'warning', remedy: 'grant pg_read_all_stats to landlord' }]);
    await asSuperuser('leased', found[0]?.remedy ?? '');
    expect(await findings()).toEqual([]);
    const seen = await run(url, 'status', '--json');
    expect(JSON.parse(seen.stdout)).toMatchObject({
      missing_grant: null,
      long_transactions: [],
      replicas: [],
      connections: [{ name: 'stranger', connections: 1, active: 0, idle_in_transaction: 1, waiting: 0 }],
    });
  } finally {
    await stranger.end();
  }
});

/** The statements that an error of `migrate` prints. */
const statementsOf = (error: string) =>
  [...error.matchAll(/^ {2}(?!--)(.+?); --/gm)].map(([, statement = '']) => statement);

const schemasAndRoles = (database: string) =>
  withOwner(
    own.url(database),
    async (client) =>
      (
        await client.query<{ name: string }>(
          `select nspname as name from pg_namespace where nspname !~ '^(pg_|information_schema$)'
           union all
           select rolname from pg_roles where rolname ~ '^school_'`,
        )
      ).rows,
  );

test('migrate names all rights that its role lacks before it changes anything, and the printed statements grant them', async () => {
  await asSuperuser(
    'postgres',
    'create role guest login',
    'create database house',
    'grant connect on database house to guest',
  );
  await asSuperuser('house', 'create schema extensions', 'create extension unaccent schema extensions');
  const before = await schemasAndRoles('house');
  const url = as('guest', 'house');
  for (const command of [['migrate'], ['migrate', 'up', '--dry-run']]) {
    const { code, stderr } = await run(url, ...command);
    expect({ code, statements: statementsOf(stderr) }).toEqual({
      code: 1,
      statements: [
        'alter role guest createrole',
        'grant create on database house to guest',
        'grant create on schema public to guest',
        'alter extension unaccent set schema public',
      ],
    });
    expect(await schemasAndRoles('house')).toEqual(before);
  }
  await asSuperuser('house', ...statementsOf((await run(url, 'migrate')).stderr));
  expect(await run(url, 'migrate')).toMatchObject({ code: 0, stderr: '' });
});

test('migrate names the grants that it needs if another role has created the roles of the service', async () => {
  await asSuperuser(
    'postgres',
    'create role school_api noinherit login',
    'create role school_tenant noinherit',
    'create role school_analyst noinherit',
    'create role second login createrole',
    'create database flat owner second',
  );
  const url = as('second', 'flat');
  const { code, stderr } = await run(url, 'migrate');
  const { rows } = await withOwner(url, (client) =>
    client.query<{ is_15: boolean }>("select current_setting('server_version_num')::integer < 160000 as is_15"),
  );
  expect({ code, statements: statementsOf(stderr) }).toEqual(
    // Before Postgres 16, who may create roles may also grant those of others.
    rows[0]?.is_15
      ? { code: 0, statements: [] }
      : {
          code: 1,
          statements: [
            'grant school_api to second',
            'grant school_analyst to second with admin option',
            'grant school_tenant to school_api',
          ],
        },
  );
  await asSuperuser('flat', ...statementsOf(stderr));
  expect(await run(url, 'migrate')).toMatchObject({ code: 0, stderr: '' });
});

test('migrate says whose login it needs if the schemas belong to another role', async () => {
  await asSuperuser('postgres', 'create role first login createrole', 'create database shared owner first');
  expect(await run(as('first', 'shared'), 'migrate')).toMatchObject({ code: 0 });
  await asSuperuser('shared', 'create role other login createrole', 'grant create on database shared to other');
  const { code, stderr } = await run(as('other', 'shared'), 'migrate');
  expect(code).toBe(1);
  expect(stderr).toContain(
    '-- The schemas core, graphile_migrate, graphile_worker, platform belong to the role first. Use its login in DATABASE_URL.\n',
  );
});
