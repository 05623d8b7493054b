import { afterAll, beforeAll, expect, test } from '@jest/globals';
import pg from 'pg';
import { type EmbeddedServer, startEmbedded } from '../../src/database/embedded.ts';
import { rm } from 'node:fs/promises';
import { runRemedy } from '../support/database/remedies.ts';
import { copyMigratedCluster, ownFolder } from '../support/server/own-server.ts';
import { type Program, startProgram } from '../support/server/processes.ts';
import { until } from '../support/client/until.ts';

const { withOwner } = shared;

interface Finding {
  what: string;
  remedy: string;
}

let folder: string;
let server: EmbeddedServer;
let url: string;
let program: Program | undefined;
/** A connection that holds what the damage says. */
let holder: pg.Client | undefined;

/** Of the command line of the server. */
const settings = ['max_prepared_transactions=2'];

const start = async () => {
  server = await startEmbedded(folder, settings);
  url = server.url('school');
};
const restart = async (options: string[] = []) => {
  settings.push(...options);
  await server.stop();
  await start();
};

beforeAll(async () => {
  folder = await ownFolder('school-fixes-');
  await copyMigratedCluster(folder);
  await start();
});
afterAll(async () => {
  await holder?.end().catch(() => undefined);
  program?.kill('SIGTERM');
  await program?.ended;
  await server.stop();
  await rm(folder, { recursive: true, force: true });
});

const query = <R extends pg.QueryResultRow>(text: string) =>
  withOwner(url, async (client) => (await client.query<R>(text)).rows);

/** Runs statements one by one on a connection that stays open, or on one that ends. */
async function damage(statements: string[], isHeld: boolean): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  // The remedy may end it.
  client.on('error', () => undefined);
  await client.connect();
  for (const statement of statements) await client.query(statement);
  if (isHeld) holder = client;
  else await client.end();
}

interface Row {
  /** The check, with arguments that make it find something small. */
  check: string;
  what: string;
  statements: string[];
  /** Whether the connection of the statements stays open. */
  isHeld?: boolean;
  /** Run at the end. */
  cleanUp?: string[];
}

const burnTransactionIds = `do $$ begin
  create temp table burnt (n integer);
  for n in 1..3000 loop
    begin insert into burnt values (n); exception when division_by_zero then null; end;
  end loop;
end $$`;

const rows: Row[] = [
  {
    check: 'release()',
    what: 'The function core.user_id() differs from this release.',
    statements: ['create or replace function core.user_id() returns bigint language sql stable return 1'],
  },
  {
    check: 'release()',
    what: 'The privileges of the function core.student_erase(bigint,bigint) differs from this release.',
    statements: ['grant execute on function core.student_erase(bigint, bigint) to school_tenant'],
  },
  {
    check: 'release()',
    what: 'The privileges of the table platform.session differs from this release.',
    statements: ['grant select on platform.session to school_tenant, pg_monitor'],
  },
  {
    check: 'release()',
    what: 'The privileges of the schema mart differs from this release.',
    statements: ['grant usage on schema mart to public'],
  },
  {
    check: 'release()',
    what: 'The trigger append_only on platform.audit_log differs from this release.',
    statements: ['alter table platform.audit_log disable trigger append_only'],
  },
  {
    check: 'release()',
    what: 'The trigger touch on platform.plan is missing.',
    statements: ['drop trigger touch on platform.plan'],
  },
  {
    check: 'release()',
    what: 'The policy operators_see_all on platform.tenant is missing.',
    statements: ['drop policy operators_see_all on platform.tenant'],
  },
  {
    check: 'release()',
    what: 'The table platform.tenant differs from this release.',
    statements: ['alter table platform.tenant disable row level security'],
  },
  {
    check: 'release()',
    what: 'The function platform.search_normal(text) differs from this release.',
    statements: [
      'create or replace function platform.search_normal(p_text text) returns text language sql return p_text',
    ],
  },
  {
    check: 'release()',
    what: 'The function core.extra() does not belong to this release.',
    statements: ['create function core.extra() returns integer language sql return 1'],
  },
  {
    check: 'release()',
    what: 'The table platform.extra does not belong to this release.',
    statements: ['create table platform.extra (id integer)'],
  },
  {
    check: 'server()',
    what: 'The setting synchronous_commit is off.',
    statements: ["alter database school set synchronous_commit = 'off'"],
  },
  {
    check: 'server()',
    what: 'The setting synchronous_commit is local.',
    statements: ["alter role all set synchronous_commit = 'local'"],
  },
  {
    check: 'server()',
    what: 'The setting autovacuum is off.',
    statements: ["alter system set autovacuum = 'off'", 'select pg_reload_conf()'],
  },
  {
    check: 'extensions()',
    what: 'The extension btree_gist is missing.',
    statements: ['drop extension btree_gist'],
  },
  {
    check: 'extensions()',
    what: 'The extension pgcrypto is not in the schema public.',
    statements: ['create schema elsewhere', 'alter extension pgcrypto set schema elsewhere'],
  },
  {
    check: 'roles()',
    what: 'The role school_tenant may bypass row security.',
    statements: ['alter role school_tenant bypassrls'],
  },
  { check: 'roles()', what: 'The role school_platform may log in.', statements: ['alter role school_platform login'] },
  {
    check: 'roles()',
    what: 'The role school_api cannot switch to school_tenant.',
    statements: ['revoke school_tenant from school_api'],
  },
  {
    check: 'roles()',
    what: 'The role school_worker is a member of pg_read_all_data.',
    statements: [
      'create role granter',
      'grant pg_read_all_data to granter with admin option',
      'set role granter',
      'grant pg_read_all_data to school_worker',
    ],
  },
  {
    check: 'roles()',
    what: 'The role school_graphql is missing.',
    statements: ['drop owned by school_graphql', 'drop role school_graphql'],
  },
  {
    check: 'default_privileges()',
    what: 'New tables of postgres are granted to others: select school_worker.',
    statements: ['alter default privileges grant select on tables to school_worker'],
  },
  {
    check: 'invalid_indexes()',
    what: 'The index platform.once is invalid.',
    statements: [
      'create index once on platform.plan (created_at)',
      "update pg_index set indisvalid = false where indexrelid = 'platform.once'::regclass",
    ],
  },
  {
    check: 'invalid_indexes()',
    what: 'The index platform.once_ccnew1 is invalid.',
    statements: [
      'create index once_ccnew1 on platform.plan (updated_at)',
      "update pg_index set indisvalid = false where indexrelid = 'platform.once_ccnew1'::regclass",
    ],
  },
  {
    check: 'duplicate_indexes()',
    what: 'The index platform.twice is a duplicate of platform.first.',
    statements: ['create index first on platform.plan (features)', 'create index twice on platform.plan (features)'],
  },
  {
    check: "unused_indexes(0, '0 s')",
    what: 'The index public.unused ',
    statements: ['create table public.with_index (n integer)', 'create index unused on public.with_index (n)'],
  },
  {
    check: 'statistics(100)',
    what: 'The table public.busy with 2000 rows has never been analyzed.',
    statements: [
      'create table public.busy with (autovacuum_enabled = off) as select n from generate_series(1, 2000) n',
    ],
  },
  {
    check: 'bloat(100)',
    what: 'The table public.dead has ',
    statements: [
      'create table public.dead with (autovacuum_enabled = off) as select n from generate_series(1, 2000) n',
      'delete from public.dead where n > 500',
    ],
  },
  {
    check: "bloat(1000, 0.3, 1, '1 day')",
    what: 'Vacuum cannot remove those that the prepared transaction old may still see.',
    statements: [
      'create table public.kept with (autovacuum_enabled = off) as select n from generate_series(1, 2000) n',
      'begin',
      'select txid_current()',
      "prepare transaction 'old'",
      'delete from public.kept where n > 500',
    ],
    cleanUp: ['drop table public.kept'],
  },
  {
    check: 'sequences()',
    what: 'The sequence public.short has used 90 %',
    statements: ['create sequence public.short maxvalue 10', "select setval('public.short', 9)"],
  },
  {
    check: 'wraparound(2500)',
    what: 'The oldest transaction id of the database school is ',
    statements: [burnTransactionIds],
  },
  {
    check: "transactions('0 s', '0 s')",
    what: ') has had a transaction open for ',
    statements: ['begin', 'select txid_current()'],
    isHeld: true,
  },
  {
    check: "transactions('0 s', '0 s')",
    what: 'The prepared transaction forgotten has been open since ',
    statements: ['begin', 'select txid_current()', "prepare transaction 'forgotten'"],
  },
  {
    check: 'connections(0.004)',
    what: 'connections are open.',
    statements: [],
    isHeld: true,
  },
  {
    check: 'lock_table(1000000)',
    what: 'The database has 1000000 tables, and the server is set up for ',
    statements: [],
  },
  {
    check: 'replication(-1)',
    what: 'The inactive replication slot abandoned keeps ',
    statements: ["select pg_create_physical_replication_slot('abandoned', true)"],
  },
  {
    check: 'replication()',
    what: 'The inactive replication slot away keeps ',
    statements: ["select pg_create_physical_replication_slot('away', true)"],
  },
  {
    check: 'synchronous_replicas()',
    what: 'The setting synchronous_standby_names is nobody, and no synchronous replica is connected.',
    statements: ["alter system set synchronous_standby_names = 'nobody'", 'select pg_reload_conf()'],
  },
  {
    check: 'replication_workers(6)',
    what: 'max_logical_replication_workers is ',
    statements: [
      `create subscription far connection 'host=127.0.0.1 port=1 dbname=none' publication none with (connect = false)`,
      'alter subscription far enable',
    ],
    cleanUp: [
      'alter subscription far disable',
      'alter subscription far set (slot_name = none)',
      'drop subscription far',
    ],
  },
  {
    check: 'schools_behind()',
    what: 'One school (',
    statements: [
      `insert into platform.tenant (name, subdomain, contact_email, plan_id)
       select 'Behind', 'behind', 'office@behind.example', min(id) from platform.plan`,
    ],
  },
  {
    check: 'identity()',
    what: 'This database was restored, copied or promoted: it was on system ',
    statements: ['update platform.database_identity set timeline = timeline - 1'],
  },
  {
    check: 'server_refusal()',
    what: 'This database is a copy beside the one that schools use',
    statements: ['update platform.database_identity set is_copy = true'],
  },
  {
    check: 'queue()',
    what: '1 jobs of clean_up have failed for good.',
    statements: [
      "select graphile_worker.permanently_fail_jobs(array[(graphile_worker.add_job('clean_up')).id], 'No reason')",
    ],
  },
];

/** Checks whose remedies are advice, not a statement or a command, or are run by another test. */
const others = {
  locks: 'the test "ends who holds a lock"',
  archiving: 'the test "an archive that fails"',
  kept_schools: 'test/nodes/restored-servers.test.ts',
  subscriptions: 'test/nodes/restored-servers.test.ts',
  normalized_keys: 'advice: save the record again',
  visibility: 'test/programs/limited-owner.test.ts',
};

const findings = async ({ check, what }: Row) =>
  (await query<Finding>(`select what, remedy from core.check_${check}`)).filter((finding) =>
    finding.what.includes(what),
  );

test.each(rows.map((row) => [`${row.check} finds "${row.what}"`, row] as const))(
  '%s, and what it prints mends it',
  async (_name, row) => {
    await damage(row.statements, row.isHeld ?? false);
    try {
      // Postgres reports its statistics after a moment.
      const found = await until(async () => {
        const list = await findings(row);
        return list.length > 0 ? list : undefined;
      });
      expect(found).toHaveLength(1);
      await runRemedy(url, found[0]?.remedy ?? '', restart);
      if (row.check === 'connections(0.004)')
        expect(await query('show max_connections')).toEqual([{ max_connections: '400' }]);
      else await until(async () => ((await findings(row)).length === 0 ? true : undefined));
    } finally {
      await holder?.end().catch(() => undefined);
      holder = undefined;
      for (const statement of row.cleanUp ?? []) await query(statement);
    }
  },
  60_000,
);

test('ends who holds a lock that another process waits for', async () => {
  await damage(['begin', 'select from platform.plan for update'], true);
  const waiting = query('update platform.plan set name = name');
  const row = { check: "locks('0 s')", what: 'for a lock that process', statements: [] };
  const [found] = await until(async () => {
    const list = await findings(row);
    return list.length > 0 ? list : undefined;
  });
  await runRemedy(url, found?.remedy ?? '');
  await waiting;
  holder = undefined;
});

test('ends the snapshot that keeps vacuum from removing dead rows', async () => {
  await query('create table public.seen with (autovacuum_enabled = off) as select n from generate_series(1, 2000) n');
  await damage(['begin isolation level repeatable read', 'select from public.seen limit 1'], true);
  await query('delete from public.seen where n > 500');
  const row = { check: "bloat(1000, 0.3, 1000000, '0 s')", what: 'The table public.seen has ', statements: [] };
  const [found] = await until(async () => {
    const list = await findings(row);
    return list.length > 0 ? list : undefined;
  });
  expect(found?.what).toMatch(/Vacuum cannot remove those that process \d+ \(.+\) may still see\.$/);
  await runRemedy(url, found?.remedy ?? '');
  holder = undefined;
  // Without the snapshot, vacuum removes them.
  const remedy = await until(
    async () => (await findings(row)).find((each) => each.remedy.startsWith('vacuum'))?.remedy,
  );
  await runRemedy(url, remedy);
  await until(async () => ((await findings(row)).length === 0 ? true : undefined));
  await query('drop table public.seen');
});

test('a replica that is away is in the status, by its slot', async () => {
  await damage(["select pg_create_physical_replication_slot('away', true)"], false);
  const replicas = async () =>
    (await query<{ replicas: object[] }>("select core.status() -> 'replicas' as replicas"))[0];
  expect(await replicas()).toEqual({
    replicas: [{ name: 'away', state: 'disconnected', lag_bytes: expect.any(Number), lag_seconds: null }],
  });
  await query("select pg_drop_replication_slot('away')");
  expect(await replicas()).toEqual({ replicas: [] });
});

test('an archive that fails is found until it succeeds, and one without a command', async () => {
  const find = (what: string) => findings({ check: 'archiving()', what, statements: [] });
  const archiveWith = (command: string) =>
    damage([`alter system set archive_command = '${command}'`, 'select pg_reload_conf()'], false);
  /** A new WAL file wakes the archiver. */
  const switchUntil = (isDone: () => Promise<boolean>) =>
    until(async () => {
      await damage(['create table if not exists public.archived ()', 'select pg_switch_wal()'], false);
      await damage(['drop table public.archived'], false);
      return (await isDone()) ? true : undefined;
    });
  await damage(['alter system set archive_mode = on'], false);
  await restart();
  const [empty] = await find('The setting archive_mode is on, and archive_command is empty.');
  await archiveWith('false');
  await switchUntil(async () => (await find('The archive of the WAL has failed since ')).length === 1);
  await archiveWith('true');
  await switchUntil(async () => (await find('')).length === 0);
  await archiveWith('');
  await runRemedy(url, empty?.remedy ?? '', restart);
  expect(await find('')).toEqual([]);
}, 60_000);

test('a worker that is started as printed is found', async () => {
  const row = { check: 'queue()', what: 'No worker is running', statements: [] };
  const [found] = await findings(row);
  expect(found?.remedy).toBe('npm start -- --only worker');
  program = startProgram('src/main.ts', ['--only', 'worker'], { DATABASE_URL: url, DATA_DIR: folder });
  await until(async () => ((await findings(row)).length === 0 ? true : undefined));
  program.kill('SIGTERM');
  await program.ended;
}, 60_000);

test('every check of the server has its remedy tried', async () => {
  const checks = await query<{ name: string }>(
    "select substr(proname, 7) as name from core.functions_in('core') where proname ~ '^check_' and pronargs = pronargdefaults",
  );
  const tried = new Set([...rows.map(({ check }) => check.replace(/\(.*/, '')), ...Object.keys(others)]);
  expect(checks.map(({ name }) => name).sort()).toEqual([...tried].sort());
});

test('an installation does not take for the release what somebody has changed since', async () => {
  await damage(
    ['alter table platform.audit_log disable trigger append_only', 'drop trigger touch on platform.plan'],
    false,
  );
  await damage(['create table platform.unknown (id integer)'], false);
  await runRemedy(url, "update platform.installation set fingerprint = ''; -- then: npm run migrate");
  const found = await query<Finding>('select what, remedy from core.check_release()');
  expect(found.map(({ what }) => what)).toEqual([
    'The table platform.unknown does not belong to this release.',
    'The trigger append_only on platform.audit_log differs from this release.',
    'The trigger touch on platform.plan is missing.',
  ]);
  for (const { remedy } of found) await runRemedy(url, remedy);
  expect(await query('select what from core.check_release()')).toEqual([]);
  expect(await query("select tgname, tgenabled from pg_trigger where tgname = 'append_only'")).toMatchObject([
    { tgenabled: 'O' },
  ]);
});
