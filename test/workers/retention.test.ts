import { mkdir, mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { rolePool } from '../../src/database/pool/pool.ts';
import { clean_up } from '../../workers/tasks/clean_up.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { type BareTenant, provision } from '../support/database/tenants.ts';
import { testRetention } from '../support/server/worker.ts';

const dayMs = 24 * 60 * 60 * 1000;

let database: TestDatabase;
let school: BareTenant;
let folder: string;

beforeAll(async () => {
  database = await testDatabase(1);
  school = await provision(database);
  folder = await mkdtemp(join(tmpdir(), 'retention-'));
});
afterAll(async () => {
  await database.drop();
  await rm(folder, { recursive: true, force: true });
});

/** Runs the job with the default settings, except for these. */
async function cleanUp(rows: Partial<(typeof testRetention)['rows']> = {}): Promise<void> {
  const pool = rolePool('school_worker', database.url, undefined, 2);
  try {
    await clean_up(undefined, {
      pool,
      stopping: new AbortController().signal,
      retention: {
        ...testRetention,
        exports: join(folder, 'exports'),
        outbox: join(folder, 'outbox'),
        rows: { ...testRetention.rows, ...rows },
      },
    });
  } finally {
    await pool.end();
  }
}

/** Each table that grows with use and not with the records of a school: how to add rows, and which times a row has. */
const growing: Record<string, { insert: string; times: string[] }> = {
  'platform.session': {
    insert: `insert into platform.session (user_id, email, expires_at) select 1, 'x', now() + interval '30 days' from n`,
    times: ['expires_at', 'created_at'],
  },
  'platform.refresh_token': {
    insert: `insert into platform.refresh_token (hash, session_id, expires_at)
      select decode(md5(n::text), 'hex'), (select min(id) from platform.session), now() + interval '30 days' from n`,
    times: ['expires_at', 'created_at'],
  },
  'platform.one_time_token': {
    insert: `insert into platform.one_time_token (hash, user_id, purpose, expires_at)
      select decode(md5(n::text), 'hex'), 1, 'invitation', now() + interval '7 days' from n`,
    times: ['expires_at', 'created_at'],
  },
  'platform.login_throttle': {
    insert: `insert into platform.login_throttle (account, attempts, window_ends_at) select n::bytea, 1, now() + interval '15 minutes' from n`,
    times: ['window_ends_at'],
  },
  'platform.rate_limit_counter': {
    insert: `insert into platform.rate_limit_counter (key, hits, window_ends_at) select n::bytea, 1, now() + interval '1 minute' from n`,
    times: ['window_ends_at'],
  },
  'platform.idempotency_key': {
    insert: `insert into platform.idempotency_key (user_id, key, operation, request_hash) select (select min(id) from platform.user_account), n, 'x', 'x' from n`,
    times: ['created_at'],
  },
  'platform.audit_log': {
    insert: `insert into platform.audit_log (action, target_type) select 'x', 'x' from n`,
    times: ['created_at'],
  },
  'graphile_worker._private_jobs': {
    insert: `with added as (select (graphile_worker.add_job('send_email', '{}')).id from n)
      select graphile_worker.permanently_fail_jobs((select array_agg(id) from added), 'failed')`,
    times: ['updated_at'],
  },
  '@.idempotency_key': {
    insert: `insert into @.idempotency_key (user_id, key, operation, request_hash) select (select min(id) from @.user_account), n, 'x', 'x' from n`,
    times: ['created_at'],
  },
  '@.notification': {
    insert: `insert into @.notification (user_id, title, message) select (select min(id) from @.user_account), 'T', 'M' from n`,
    times: ['created_at'],
  },
  '@.notification_delivery': {
    insert: `insert into @.notification_delivery (channel, address, recipient_name, title, message) select 'email', 'x', 'x', 'T', 'M' from n`,
    times: ['created_at'],
  },
  // Without the marks themselves.
  '@.announced_mark': {
    insert: `begin; set local session_replication_role = replica;
      insert into @.announced_mark (attendance_id, status) select ('x' || left(md5(n), 15))::bit(60)::bigint, 'late' from n; commit`,
    times: ['created_at'],
  },
};
const tables = Object.keys(growing);
const at = (text: string) => text.replaceAll('@', school.schema);

const count = async (table: string) =>
  (await database.query<{ count: number }>(`select count(*)::integer as count from ${at(table)}`))[0]?.count;
/** The number of rows of each table. */
async function counts(): Promise<Record<string, number | undefined>> {
  const found: Record<string, number | undefined> = {};
  for (const table of tables) found[table] = await count(table);
  return found;
}

/** Adds this many rows to each of the tables. */
async function fill(rowCount: number): Promise<void> {
  const names = `(select gen_random_uuid()::text as n from generate_series(1, ${rowCount})) n`;
  for (const { insert } of Object.values(growing))
    await database.query(at(insert.replaceAll('from n', `from ${names}`)));
}

/** Moves all rows into the past, as if so many days had gone by. Replicas run no triggers. */
async function passDays(days: number): Promise<void> {
  for (const [table, { times }] of Object.entries(growing)) {
    const changes = times.map((time) => `${time} = ${time} - interval '${days} days'`).join(', ');
    await database.query(
      `begin; set local session_replication_role = replica; update ${at(table)} set ${changes}; commit`,
    );
  }
}

describe('after a year', () => {
  beforeAll(async () => {
    await database.query(
      at(`insert into @.user_account (email, first_name, last_name) values ('a@b.example', 'A', 'B')`),
    );
    await database.query(
      `insert into platform.user_account (email, first_name, last_name, password_hash) values ('a@b.example', 'A', 'B', 'x')`,
    );
    await cleanUp();
  });

  test('what is new stays, and each table that grows has only what its retention allows, in any number of batches', async () => {
    await fill(30);
    const before = await counts();
    await cleanUp();
    expect(await counts()).toEqual(before);
    await passDays(366);
    // More than two batches.
    await database.query(
      at(`insert into @.notification_delivery (channel, address, recipient_name, title, message, created_at)
          select 'email', 'old', 'x', 'T', 'M', now() - interval '91 days' from generate_series(1, 2500)`),
    );
    await cleanUp({ audit_entries: '365 days' });
    expect(await counts()).toEqual(Object.fromEntries(tables.map((table) => [table, 0])));
    await database.query(`insert into platform.audit_log (action, target_type) values ('x', 'x')`);
    await expect(database.query('delete from platform.audit_log')).rejects.toThrow('append-only');
  });

  test('with the same use each year, no table has more rows in the third year than in the second', async () => {
    const atEndOfYear: Record<string, unknown>[] = [];
    for (let year = 1; year <= 4; year++) {
      await passDays(366);
      await fill(20);
      await cleanUp();
      atEndOfYear.push(await counts());
    }
    expect(atEndOfYear[2]).toEqual(atEndOfYear[1]);
    expect(atEndOfYear[3]).toEqual(atEndOfYear[2]);
    // The default keeps audit entries for two years.
    expect(atEndOfYear[3]).toMatchObject({ 'platform.audit_log': 40, '@.notification': 20, 'platform.session': 20 });
  });

  test('ended sessions are kept for their retention, and then deleted with their tokens', async () => {
    await database.query(`
      with ended as (
        insert into platform.session (user_id, email, user_agent, expires_at, revoked_at)
          select 1, 'x', 'ended ' || days, now() + interval '1 day', now() - days * interval '1 day'
          from unnest(array[4, 6]) days
          returning id, user_agent
      )
      insert into platform.refresh_token (hash, session_id, expires_at)
        select user_agent::bytea, id, now() + interval '1 day' from ended`);
    await cleanUp({ sessions: '5 days' });
    expect(
      await database.query(
        `select s.user_agent from platform.session s join platform.refresh_token t on t.session_id = s.id
         where s.user_agent like 'ended %'`,
      ),
    ).toEqual([{ user_agent: 'ended 4' }]);
  });

  test('old exports and emails are deleted, and new ones and folders stay', async () => {
    for (const [name, days] of [
      ['exports', testRetention.exportDays],
      ['outbox', testRetention.outboxDays],
    ] as const) {
      await mkdir(join(folder, name, 'folder'), { recursive: true });
      for (const [file, age] of [
        ['old', days + 1],
        ['.half-written', days + 1],
        ['new', days - 1],
      ] as const) {
        await writeFile(join(folder, name, file), '');
        const time = new Date(Date.now() - age * dayMs);
        await utimes(join(folder, name, file), time, time);
      }
    }
    await cleanUp();
    expect((await readdir(join(folder, 'exports'))).sort()).toEqual(['folder', 'new']);
    expect((await readdir(join(folder, 'outbox'))).sort()).toEqual(['folder', 'new']);
  });
});
