import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import pg from 'pg';
import { outboxWriter, pauseAfter } from '../../workers/outbox.ts';
import { until } from '../support/client/until.ts';
import { type BareTenant, provision } from '../support/database/tenants.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';

let database: TestDatabase;
let pool: pg.Pool;
/** Each with one user. */
const schools: (BareTenant & { user: number })[] = [];
let school: (typeof schools)[number];
let other: typeof school;

beforeAll(async () => {
  database = await testDatabase(5);
  pool = new pg.Pool({ connectionString: database.url, max: 8, application_name: 'test' });
  // A test ends the connection of a write.
  pool.on('error', () => undefined);
  await database.query('create table public.gate (is_open boolean)');
  await database.query('insert into public.gate values (false)');
  for (let n = 0; n < 5; n++) {
    const added = await provision(database);
    schools.push({ ...added, user: await addUser(added, 'Amina') });
  }
  [school, other] = schools as [typeof school, typeof school];
});
afterEach(async () => {
  jest.restoreAllMocks();
  await database.query('truncate platform.outbox');
  await database.query('update public.gate set is_open = false');
  for (const { schema } of schools) {
    await database.query(`drop trigger if exists gate on ${schema}.notification`);
    await database.query(`truncate ${schema}.notification, ${schema}.notification_delivery, ${schema}.device cascade`);
  }
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});

async function addUser({ schema }: BareTenant, first_name: string): Promise<number> {
  const [row] = await database.query<{ id: number }>(
    `insert into ${schema}.user_account (email, first_name, last_name)
     values (lower($1) || '@test.example', $1, 'T') returning id::integer`,
    [first_name],
  );
  return row?.id ?? 0;
}

/** Stores an event of a school with these columns. @returns its id */
async function add(
  { id, user }: { id: number; user: number },
  name: string,
  columns: Record<string, unknown> = {},
): Promise<number> {
  const recipients = [{ user_id: user, variables: { holiday_name: name } }];
  const row = { tenant_id: id, event: 'holiday.added', facts: { recipients }, ...columns };
  const [added] = await database.query<{ id: number }>(
    `insert into platform.outbox (${Object.keys(row).join()})
     values (${Object.keys(row)
       .map((_, n) => `$${n + 1}`)
       .join()}) returning id::integer`,
    Object.values(row),
  );
  return added?.id ?? 0;
}

/** The titles of the notifications of a school, in the order of their ids. */
const titles = async ({ schema }: BareTenant) =>
  (await database.query<{ title: string }>(`select title from ${schema}.notification order by id`)).map(
    ({ title }) => title,
  );

const write = async ({ id }: BareTenant) =>
  (await database.query<{ count: number | null }>('select core.outbox_write($1) as count', [id]))[0]?.count;

/** Runs statements for each notification of a school, before it is stored. */
const atEachNotification = ({ schema }: BareTenant, statements: string) =>
  database.query(`
    create or replace function ${schema}.gate() returns trigger language plpgsql as $$ begin ${statements} return new; end $$;
    create trigger gate before insert on ${schema}.notification for each row execute function ${schema}.gate()`);
const waitForGate = 'while not (select is_open from public.gate) loop perform pg_sleep(0.01); end loop;';
/** Waits until so many writes wait for the gate, and have chosen their rows. */
const atGate = (count: number) =>
  until(async () => {
    const waiting = await database.query(
      "select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'",
    );
    return waiting.length === count || undefined;
  });
const openGate = () => database.query('update public.gate set is_open = true');

/** A writer like that of the worker, its warnings, and how many of its writes run, and ran, at the same time. */
function newWriter(timeoutMs?: number) {
  const warnings: { tenant: number; cause: string }[] = [];
  const count = { running: 0, most: 0 };
  const counting = {
    async query(text: string) {
      count.most = Math.max(count.most, ++count.running);
      try {
        return await pool.query(text);
      } finally {
        count.running--;
      }
    },
  };
  const logger = { info: () => undefined, warn: (entry: (typeof warnings)[number]) => void warnings.push(entry) };
  const writer = outboxWriter({ pool: counting as never, logger: logger as never, tracing: undefined }, timeoutMs);
  return { warnings, count, look: () => writer.round(pool), finish: () => writer.finish() };
}

describe('the writer', () => {
  test('writes for three schools at the same time, and a slow school delays the others by one lane', async () => {
    for (const each of schools) {
      await atEachNotification(each, waitForGate);
      await add(each, 'slow');
    }
    const { count, look, finish } = newWriter();
    const looking = look();
    await atGate(3);
    await openGate();
    expect(await looking).toMatchObject({ begun: 5 });
    await finish();
    expect(count.most).toBe(3);
    for (const each of schools) expect(await titles(each)).toEqual(['Holiday: slow']);
  });

  test('begins no second write for a school whose first one still runs', async () => {
    await atEachNotification(school, waitForGate);
    await add(school, 'first');
    const { look, finish } = newWriter();
    expect(await look()).toMatchObject({ begun: 1 });
    await atGate(1);
    await add(school, 'second');
    await add(other, 'between');
    expect(await look()).toMatchObject({ begun: 1 });
    await until(async () => (await titles(other)).length === 1 || undefined);
    expect(await titles(school)).toEqual([]);
    await openGate();
    await finish();
    expect(await look()).toMatchObject({ begun: 1 });
    await finish();
    expect(await titles(school)).toEqual(['Holiday: first', 'Holiday: second']);
  });

  test('leaves a school whose write fails alone for ten seconds, and goes on with the others', async () => {
    let now = Date.now();
    jest.spyOn(Date, 'now').mockImplementation(() => now);
    await database.query(`alter table ${school.schema}.notification_event rename to lost`);
    const { warnings, look, finish } = newWriter();
    /** For how many schools it writes after so many milliseconds. */
    const begunAfter = async (ms: number) => {
      now += ms;
      const { begun } = await look();
      await finish();
      return begun;
    };
    try {
      await add(school, 'failed');
      expect(await begunAfter(0)).toBe(1);
      expect(warnings).toMatchObject([{ tenant: school.id, cause: expect.stringContaining('notification_event') }]);
      await add(other, 'other');
      expect(await begunAfter(9_999)).toBe(1);
      expect(await titles(other)).toEqual(['Holiday: other']);
      expect(warnings).toHaveLength(1);
      expect(await begunAfter(2)).toBe(1);
      expect(warnings).toHaveLength(2);
    } finally {
      await database.query(`alter table ${school.schema}.lost rename to notification_event`);
    }
    expect([await begunAfter(10_001), await titles(school)]).toEqual([1, ['Holiday: failed']]);
  });

  test('cancels a write that takes too long, as an error of its school', async () => {
    await atEachNotification(school, waitForGate);
    await add(school, 'endless');
    const { warnings, look, finish } = newWriter(500);
    expect(await look()).toMatchObject({ begun: 1 });
    await finish();
    expect(warnings).toEqual([
      expect.objectContaining({ tenant: school.id, cause: expect.stringContaining('statement timeout') }),
    ]);
    // The school rests, and the connections of the pool have no limit.
    expect(await look()).toMatchObject({ begun: 0 });
    expect((await pool.query('show statement_timeout')).rows).toEqual([{ statement_timeout: '0' }]);
  });

  test('reports a lost connection as an outage, and then tries the school again at once', async () => {
    await atEachNotification(school, 'perform pg_terminate_backend(pg_backend_pid());');
    await add(school, 'lost');
    const { warnings, look, finish } = newWriter();
    expect(await look()).toMatchObject({ begun: 1 });
    await finish();
    await expect(look()).rejects.toThrow(/terminat/);
    await database.query(`drop trigger gate on ${school.schema}.notification`);
    expect(await look()).toMatchObject({ begun: 1 });
    await finish();
    expect(await titles(school)).toEqual(['Holiday: lost']);
    expect(warnings).toEqual([]);
  });
});

test('the pause of the writer grows with the cost of its looks to ten seconds, but not after one slow look', () => {
  expect(pauseAfter(0.3, 0.3)).toBe(50);
  expect(pauseAfter(100, 120)).toBe(2000);
  expect(pauseAfter(450, 400)).toBe(8000);
  expect(pauseAfter(1170, 900)).toBe(10_000);
  expect(pauseAfter(1170, 0.3)).toBe(50);
});

describe('a row', () => {
  test('is written when its time has come', async () => {
    const due = async () =>
      (await database.query<{ id: number }>('select school_id::integer as id from core.outbox_schools()')).map(
        ({ id }) => id,
      );
    const hour = 3_600_000;
    const times: [string, object][] = [
      ['past', { attempts: 1, retry_at: new Date(Date.now() - hour) }],
      ['future', { attempts: 1, retry_at: new Date(Date.now() + hour) }],
      ['never', { attempts: 12, retry_at: 'infinity' }],
    ];
    for (const written of [0, 1])
      for (const [name, columns] of times) await add(school, `${name} ${written}`, { ...columns, written });
    await add(other, 'future', { attempts: 1, retry_at: new Date(Date.now() + hour) });
    await add(other, 'never', { attempts: 12, retry_at: 'infinity' });
    expect(await due()).toEqual([school.id]);
    const [batch] = await database.query<{ names: string[] }>(
      `select array(select facts #>> '{recipients, 0, variables, holiday_name}' from platform.outbox
         where id = any (core.outbox_batch($1)) order by id) as names`,
      [school.id],
    );
    expect(batch?.names).toEqual(['past 0', 'past 1']);
    await add(other, 'new');
    expect(await due()).toEqual([school.id, other.id]);
    await write(other);
    expect(await titles(other)).toEqual(['Holiday: new']);
    expect(await due()).toEqual([school.id]);
  });

  test('is in a batch with a hundred new events and twenty that are tried again, even if more of them wait', async () => {
    const rows = (count: number, columns: string, values: string) =>
      database.query(
        `insert into platform.outbox (tenant_id, event, facts, ${columns})
         select $1, 'holiday.added', '{"recipients": []}', ${values} from generate_series(1, $2)`,
        [school.id, count],
      );
    await rows(200, 'attempts, retry_at', "2, now() - interval '1 hour'");
    await rows(150, 'written', '0');
    await rows(2, 'written', '1');
    await database.query(
      `insert into platform.outbox (tenant_id, event, facts)
       select $1, 'webhooks', '{}' from generate_series(1, 30)`,
      [school.id],
    );
    const [batch] = await database.query(
      `select count(*) filter (where written > 0)::integer as partly, count(*) filter (where attempts = 0 and written = 0)::integer as fresh,
         count(*) filter (where attempts > 0)::integer as again from platform.outbox where id = any (core.outbox_batch($1))`,
      [school.id],
    );
    expect(batch).toEqual({ partly: 1, fresh: 100, again: 20 });
  });

  test('is found without reading the thousands that wait for an attempt, or forever', async () => {
    for (const retryAt of ["now() + interval '1 hour'", "'infinity'"])
      await database.query(
        `insert into platform.outbox (tenant_id, event, facts, attempts, retry_at)
         select $1, 'holiday.added', '{"recipients": []}', 3, ${retryAt} from generate_series(1, 5000)`,
        [school.id],
      );
    await add(other, 'new');
    const client = await pool.connect();
    /** The pages that a statement reads once its plan is kept. */
    const pages = async (text: string) => {
      for (let call = 0; call < 6; call++) await client.query(text);
      const { rows } = await client.query<{ 'QUERY PLAN': [{ Plan: { 'Shared Hit Blocks': number } }] }>(
        `explain (analyze, buffers, format json) ${text}`,
      );
      return rows[0]?.['QUERY PLAN'][0].Plan['Shared Hit Blocks'];
    };
    try {
      expect(await pages('select from core.outbox_schools()')).toBeLessThan(60);
      expect(await pages(`select core.outbox_batch(${school.id})`)).toBeLessThan(60);
      expect(await pages(`select core.outbox_take_webhooks(${school.id})`)).toBeLessThan(60);
    } finally {
      client.release();
    }
  });

  test('costs the same however many rows its school has, with plans that were made when there were few', async () => {
    const client = await pool.connect();
    /** The pages that a batch reads if so many rows wait. */
    const pages = async (count: number) => {
      await client.query(
        `insert into platform.outbox (tenant_id, event, facts)
         select $1, 'holiday.added', '{"recipients": []}' from generate_series(1, $2)`,
        [school.id, count],
      );
      const { rows } = await client.query<{ 'QUERY PLAN': [{ Plan: { 'Shared Hit Blocks': number } }] }>(
        `explain (analyze, buffers, format json) select core.outbox_write(${school.id})`,
      );
      return rows[0]?.['QUERY PLAN'][0].Plan['Shared Hit Blocks'] ?? 0;
    };
    // Until then, Postgres expects ten pages.
    await database.query('vacuum analyze platform.outbox');
    try {
      for (let write = 0; write < 8; write++) await pages(1);
      const few = await pages(100);
      expect((await pages(10_000)) - few).toBeLessThan(500);
    } finally {
      client.release();
    }
  });

  test('of which a slice is written has all its attempts again', async () => {
    const recipients = Array.from({ length: 1001 }, () => ({ user_id: school.user, variables: { holiday_name: 'H' } }));
    const past = new Date(Date.now() - 1000);
    await add(school, '', { facts: { recipients }, attempts: 11, retry_at: past, error: 'It failed.' });
    expect(await write(school)).toBe(1);
    expect(await database.query('select attempts, retry_at, error, written from platform.outbox')).toEqual([
      { attempts: 0, retry_at: null, error: null, written: 1000 },
    ]);
    expect(await write(school)).toBe(1);
    expect([(await titles(school)).length, await database.query('select from platform.outbox')]).toEqual([1001, []]);
  });

  test('with thousands of recipients is written in their order', async () => {
    const names = Array.from({ length: 2345 }, (_, n) => `H${(n * 7919) % 2345}`);
    const recipients = names.map((name) => ({ user_id: school.user, variables: { holiday_name: name } }));
    await add(school, '', { facts: { recipients } });
    for (let slice = 0; slice < 3; slice++) await write(school);
    expect(await titles(school)).toEqual(names.map((name) => `Holiday: ${name}`));
  });

  test('waits while its school is migrated, and while the server has no copy of the settings', async () => {
    await add(school, 'waiting');
    const migration = new pg.Client({ connectionString: database.url, application_name: 'test' });
    await migration.connect();
    try {
      await migration.query('select pg_advisory_lock(core.tenant_lock_key($1))', [school.id]);
      expect(await write(school)).toBeNull();
    } finally {
      await migration.end();
    }
    const client = await pool.connect();
    try {
      await client.query('begin; delete from platform.notification_setting');
      expect((await client.query('select core.outbox_write($1) as count', [school.id])).rows).toEqual([
        { count: null },
      ]);
      await client.query('rollback');
    } finally {
      client.release();
    }
    expect(await titles(school)).toEqual([]);
    expect(await write(school)).toBe(1);
    expect(await titles(school)).toEqual(['Holiday: waiting']);
  });
});

test('the number of recipients that a sender gets counts those whom the message reaches on one of its channels', async () => {
  const ben = await addUser(school, 'Ben');
  await database.query(`insert into ${school.schema}.device (user_id, token, platform) values ($1, 'a', 'ios')`, [ben]);
  const recipients = [
    { user_id: school.user },
    { user_id: ben },
    { email: 'parent@test.example' },
    { email: ' ' },
    { user_id: 999_999 },
  ];
  const texts = { title: 'T', message: 'M' };
  /** The number that the sender gets, and the recipients that are stored. */
  const sent = async (...channels: string[]) => {
    const client = await pool.connect();
    try {
      await client.query('begin');
      await client.query("select set_config('app.tenant_id', $1, true), set_config('search_path', $2, true)", [
        String(school.id),
        `${school.schema}, public`,
      ]);
      const { rows } = await client.query<{ count: number }>("select core.send_message('t', $1, $2) as count", [
        JSON.stringify(Object.fromEntries(channels.map((channel) => [channel, texts]))),
        JSON.stringify(recipients),
      ]);
      await client.query('commit');
      const stored = await database.query<{ recipients: (typeof recipients)[number][] }>(
        "delete from platform.outbox returning facts -> 'recipients' as recipients",
      );
      return [rows[0]?.count, stored[0]?.recipients];
    } finally {
      client.release();
    }
  };
  const [amina, , parent] = recipients;
  expect(await sent('in_app')).toEqual([2, [amina, { user_id: ben }]]);
  expect(await sent('push')).toEqual([1, [{ user_id: ben }]]);
  expect(await sent('email')).toEqual([3, [amina, { user_id: ben }, parent]]);
  expect(await sent('push', 'email')).toEqual([3, [amina, { user_id: ben }, parent]]);
  await database.query(`truncate ${school.schema}.device cascade`);
  expect(await sent('push')).toEqual([0, undefined]);
});

/** Retries or cancels rows, of all schools or one. @returns how many, by task */
const change = async (action: string, task: string, isFailed: boolean, schoolId?: number) =>
  (
    await database.query<{ done: object }>("select core.change_jobs($1, null, $2, $3, $4) -> 'done' as done", [
      action,
      task,
      isFailed,
      schoolId,
    ])
  )[0]?.done;

test('jobs retry and jobs cancel --failed leave rows that have not failed, and those of other tasks leave all', async () => {
  const attempts = async () =>
    (
      await database.query<{ attempts: number; retry_at: unknown }>(
        'select attempts, retry_at from platform.outbox order by id',
      )
    ).map((row) => [row.attempts, row.retry_at]);
  await add(school, 'new');
  await add(school, 'failed', { attempts: 12, retry_at: 'infinity' });
  expect(await change('cancel', 'clean_up', false)).toEqual({});
  expect(await change('retry', 'clean_up', false)).toEqual({});
  expect(await attempts()).toEqual([
    [0, null],
    [12, Infinity],
  ]);
  expect(await change('cancel', 'outbox', true)).toEqual({ outbox: 1 });
  expect(await attempts()).toEqual([[0, null]]);
  await add(other, 'failed', { attempts: 3, retry_at: new Date(Date.now() + 3_600_000) });
  expect(await change('retry', 'outbox', true)).toEqual({ outbox: 1 });
  expect(await attempts()).toEqual([
    [0, null],
    [0, null],
  ]);
  expect(await change('cancel', 'outbox', false)).toEqual({ outbox: 2 });
  expect(await attempts()).toEqual([]);
});

test('jobs cancel --failed leaves rows that wait for another attempt, and --tenant those of other schools', async () => {
  const again = new Date(Date.now() + 3_600_000);
  for (const each of [school, other]) {
    await add(each, 'again', { attempts: 1, retry_at: again });
    await add(each, 'failed', { attempts: 12, retry_at: 'infinity' });
  }
  const left = () =>
    database.query('select tenant_id::integer as school, attempts from platform.outbox order by tenant_id, attempts');
  expect(await change('cancel', 'outbox', true, other.id)).toEqual({ outbox: 1 });
  expect(await change('retry', 'outbox', true, other.id)).toEqual({ outbox: 1 });
  expect(await left()).toEqual([
    { school: school.id, attempts: 1 },
    { school: school.id, attempts: 12 },
    { school: other.id, attempts: 0 },
  ]);
  expect(await change('cancel', 'outbox', true)).toEqual({ outbox: 1 });
  expect(await change('cancel', 'outbox', false, school.id)).toEqual({ outbox: 1 });
  expect(await left()).toEqual([{ school: other.id, attempts: 0 }]);
});

test('an event that no worker has touched for a day fails, unless a person wrote it, and jobs retry sends it', async () => {
  const hours = (count: number) => new Date(Date.now() - count * 3_600_000);
  const old = { created_at: hours(25), updated_at: hours(25) };
  const message = {
    type: 't',
    words: { in_app: { title: 'Written', message: 'M' } },
    recipients: [{ user_id: school.user }],
  };
  await add(school, 'new', old);
  await add(school, 'again', { ...old, attempts: 2, retry_at: hours(24) });
  const recipients = ['part', 'rest'].map((holiday_name) => ({ user_id: school.user, variables: { holiday_name } }));
  await add(school, '', { ...old, written: 1, facts: { recipients } });
  await add(school, '', { ...old, event: 'message', facts: message });
  await add(school, '', { ...old, event: 'webhooks', facts: {} });
  await add(school, 'retried', { created_at: hours(100), updated_at: hours(23) });
  await add(school, 'recent', { created_at: hours(23), updated_at: hours(23) });
  await write(school);
  expect(await titles(school)).toEqual(['Written', 'Holiday: retried', 'Holiday: recent']);
  expect(await database.query('select attempts, retry_at, error from platform.outbox order by id')).toEqual(
    [0, 2, 0].map((attempts) => ({ attempts, retry_at: Infinity, error: expect.stringContaining('more than a day') })),
  );
  const [{ queue } = { queue: { tasks: [] } }] = await database.query<{ queue: { tasks: { task: string }[] } }>(
    'select core.queue() as queue',
  );
  expect(queue.tasks.find(({ task }) => task === 'outbox')).toMatchObject({ ready: 0, waiting: 0, failed: 3 });
  expect(await database.query("select what, remedy from core.check_queue() where what like '%could not be%'")).toEqual([
    {
      what: expect.stringMatching(/^The notifications of 3 events holiday\.added could not be written: The event has/),
      remedy: expect.stringContaining('jobs retry --task outbox'),
    },
  ]);
  expect(await change('retry', 'outbox', true)).toEqual({ outbox: 3 });
  await write(school);
  expect((await titles(school)).slice(3)).toEqual(['Holiday: rest', 'Holiday: new', 'Holiday: again']);
});

test('doctor counts the time of a row from its last change, and advises to start a worker only if none runs', async () => {
  const advice = async () =>
    (
      await database.query<{ remedy: string }>(
        "select remedy from core.check_queue() where what like 'Notifications and webhooks of 1 schools have waited%'",
      )
    ).map(({ remedy }) => remedy);
  const longAgo = new Date(Date.now() - 86_400_000);
  await add(school, 'failed', { attempts: 3, retry_at: 'infinity', created_at: longAgo, updated_at: longAgo });
  expect(await advice()).toEqual([]);
  await database.query("select core.change_jobs('retry', null, 'outbox', true)");
  expect(await advice()).toEqual([]);
  const { tasks } = (
    await database.query<{ queue: { tasks: { task: string; oldest_ready_seconds: number }[] } }>(
      'select core.queue() as queue',
    )
  )[0]?.queue ?? { tasks: [] };
  expect(tasks.find(({ task }) => task === 'outbox')?.oldest_ready_seconds).toBeLessThan(3600);
  await add(school, 'waiting', { created_at: longAgo, updated_at: longAgo });
  expect(await advice()).toEqual(['npm start -- --only worker']);
  const worker = new pg.Client({ connectionString: database.url, application_name: 'test' });
  await worker.connect();
  try {
    await worker.query('select pg_advisory_lock_shared(7312, 1)');
    expect(await advice()).toEqual([
      expect.stringMatching(/only workers of an earlier release run.*start one of this release.*log of the worker/),
    ]);
  } finally {
    await worker.end();
  }
});
