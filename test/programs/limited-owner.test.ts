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
