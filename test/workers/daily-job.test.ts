import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { rolePool } from '../../src/database/pool/pool.ts';
import type { Email } from '../../workers/email.ts';
import { startWorker } from '../../workers/worker.ts';
import { settle, testDatabase, type TestDatabase } from '../support/server/database.ts';
import { type Program, ready, startProgram } from '../support/server/processes.ts';
import { type BareTenant, provision } from '../support/database/tenants.ts';
import { until } from '../support/client/until.ts';
import { workerContext } from '../support/server/worker.ts';

let database: TestDatabase;
let school: BareTenant;

beforeAll(async () => {
  database = await testDatabase(21);
});
beforeEach(async () => {
  school = await provision(database);
});
// The next test must be the only one with an active school.
afterEach(async () => {
  await database.query(`update platform.tenant set status = 'suspended' where status = 'active'`);
  await database.query('delete from graphile_worker._private_jobs');
});
afterAll(() => database.drop());

const set = (fields: string, id = school.id) =>
  database.query(`update platform.tenant set ${fields} where id = $1`, [id]);
const one = async <T>(text: string, values: unknown[] = []) =>
  Object.values((await database.query(text, values))[0] ?? {})[0] as T;
/** The date this many days from today, at the school. */
const day = (offset = 0) =>
  one<string>('select ((now() at time zone time_zone)::date + $1::integer)::text from platform.tenant where id = $2', [
    offset,
    school.id,
  ]);

/** Adds students with the email of a parent, or without one if `email` is null. Returns the id of the first. */
const students = (count: number, email: string | null = `'parent' || n || '@home.example'`) =>
  one<string>(
    `with added as (insert into ${school.schema}.student (first_name, last_name, admission_number, parent_email)
       select 'Stu', 'Dent', 'A' || (select count(*) from ${school.schema}.student) + n, ${email} from generate_series(1, ${count}) n returning id)
     select min(id) from added`,
  );

/** Issues an invoice of 100 to each of the last `count` students, due this many days from today. */
const invoices = async (due: number, count = 1) =>
  (
    await database.query<{ id: string }>(
      `with added as (
         insert into ${school.schema}.invoice (student_id, due_date, invoice_number, issued_at)
         select s.id, $1, 'INV-2026-' || lpad(((select count(*) from ${school.schema}.invoice) + row_number() over ())::text, 6, '0'), now()
         from (select id from ${school.schema}.student order by id desc limit $2) s returning id, student_id),
       items as (insert into ${school.schema}.invoice_item (invoice_id, student_id, description, amount) select id, student_id, 'Book', 100 from added)
       select id from added order by id`,
      [await day(due), count],
    )
  ).map(({ id }) => Number(id));

/** Moves due dates without updating the stored status, as when time passes. */
async function moveDueDate(table: string, ids: number[], due: number): Promise<void> {
  await database.query(`alter table ${school.schema}.${table} disable trigger derive`);
  await database.query(`update ${school.schema}.${table} set due_date = $1 where id = any ($2)`, [await day(due), ids]);
  await database.query(`alter table ${school.schema}.${table} enable trigger derive`);
}

const statuses = async (table: string) =>
  Object.fromEntries(
    (await database.query<{ id: string; status: string }>(`select id, status from ${school.schema}.${table}`)).map(
      ({ id, status }) => [id, status],
    ),
  );
const reminders = async () =>
  (
    await database.query<{ invoice_id: string; sent_on: string }>(
      `select invoice_id, sent_on::text from ${school.schema}.invoice_reminder order by sent_on, invoice_id`,
    )
  ).map(({ invoice_id, sent_on }) => [Number(invoice_id), sent_on]);
const isDone = async () => (await database.query(`select from ${school.schema}.daily_run`)).length > 0;
interface Job {
  key: string | null;
  payload: Record<string, unknown>;
}
const jobs = (task: string) =>
  database.query<Job & Record<string, unknown>>(
    `select j.key, j.payload from graphile_worker._private_jobs j join graphile_worker._private_tasks t on t.id = j.task_id where t.identifier = $1 order by j.id`,
    [task],
  );

/** Runs all steps of a day, as a worker does. Returns the number of steps. */
async function runDay(
  on: string,
  batchSize = 500,
  query: (text: string, values: unknown[]) => Promise<{ next: string | null }[]> = (text, values) =>
    database.query(text, values),
) {
  let steps = 0;
  for (let after: string | null = '0'; after !== null; steps++) {
    const rows = await query('select * from core.daily_step($1, $2, $3, $4)', [school.id, on, after, batchSize]);
    after = rows[0]?.next ?? null;
  }
  return steps;
}

describe('the daily run is due', () => {
  const dayAt = (zone: string, at: string) =>
    one<string | null>('select core.daily_run_date($1, $2)::text', [zone, at]);

  test.each([
    ['Europe/Berlin', '2026-01-10T04:59:59Z', '2026-01-10T05:00:00Z', '2026-01-10'],
    // The nights in which daylight saving time begins and ends.
    ['Europe/Berlin', '2026-03-29T03:59:59Z', '2026-03-29T04:00:00Z', '2026-03-29'],
    ['Europe/Berlin', '2026-10-25T04:59:59Z', '2026-10-25T05:00:00Z', '2026-10-25'],
    ['America/New_York', '2026-03-08T09:59:59Z', '2026-03-08T10:00:00Z', '2026-03-08'],
    ['Asia/Kathmandu', '2026-05-05T00:14:59Z', '2026-05-05T00:15:00Z', '2026-05-05'],
    ['Pacific/Kiritimati', '2026-05-04T15:59:59Z', '2026-05-04T16:00:00Z', '2026-05-05'],
    ['Pacific/Pago_Pago', '2026-05-05T16:59:59Z', '2026-05-05T17:00:00Z', '2026-05-05'],
  ])('in %s at 6:00: not yet at %s, but at %s', async (zone, before, at, expected) => {
    expect([await dayAt(zone, before), await dayAt(zone, at)]).toEqual([null, expected]);
  });

  test('once for each day of a year in any time zone, at the first quarter of an hour from 6:00', async () => {
    const days = await database.query(
      `select z as zone, count(distinct d.day)::integer as days, min(d.first)::text as earliest, max(d.first)::text as latest
       from unnest('{UTC,Europe/Berlin,Europe/London,America/St_Johns,Australia/Lord_Howe,Asia/Kathmandu,Africa/Casablanca,America/Santiago,Pacific/Auckland}'::text[]) z,
         lateral (select core.daily_run_date(z, at) as day, min(at at time zone z)::time as first
                  from generate_series(timestamptz '2026-01-01T00:00Z', '2026-12-31T23:45Z', '15 minutes') at group by 1) d
       where d.day between '2026-01-02' and '2026-12-30' group by 1`,
    );
    expect(days).toHaveLength(9);
    for (const { zone, ...rest } of days)
      expect({ zone, ...rest }).toEqual({ zone, days: 363, earliest: '06:00:00', latest: '06:00:00' });
  });
});

describe('the daily job is queued', () => {
  const queue = (at: string) => one<number>('select core.daily_queue($1)', [at]);
  const queued = async () => (await jobs('daily_school')).map(({ payload }) => [payload['tenant_id'], payload['day']]);

  test('once for each school where the daily run is due, until it is done, also later that day', async () => {
    const east = await provision(database);
    await set(`time_zone = 'Asia/Tokyo'`, east.id);
    await set(`time_zone = 'America/Lima'`);
    expect(await queue('2026-05-04T20:59:00Z')).toBe(1);
    expect(await queued()).toEqual([[school.id, '2026-05-04']]);
    expect(await queue('2026-05-04T21:00:00Z')).toBe(2);
    expect(await queue('2026-05-04T21:15:00Z')).toBe(2);
    expect(await queued()).toEqual([
      [school.id, '2026-05-04'],
      [east.id, '2026-05-05'],
    ]);
    await runDay('2026-05-04');
    expect(await isDone()).toBe(true);
    expect(await queue('2026-05-04T23:00:00Z')).toBe(1);
    // Lima is five hours behind UTC: at 10:59 UTC it is not yet 6:00 there.
    expect(await queue('2026-05-05T10:59:00Z')).toBe(1);
    expect(await queue('2026-05-05T11:00:00Z')).toBe(2);
    expect((await queued()).at(-1)).toEqual([school.id, '2026-05-05']);
  });

  test('but not for a school that is suspended, deleted, without the feature or not migrated; a running job stops there too', async () => {
    await students(1);
    await moveDueDate('invoice', await invoices(5), -1);
    for (const [fields, back] of [
      [`status = 'suspended'`, `status = 'active'`],
      [`status = 'deleted'`, `status = 'active'`],
      [`feature_flags = '{"fees_management": false}'`, `feature_flags = '{}'`],
      [`schema_version = schema_version - 1`, `schema_version = schema_version + 1`],
    ] as const) {
      await set(fields);
      expect({ fields, count: await queue('2026-05-05T12:00:00Z') }).toEqual({ fields, count: 0 });
      expect(await runDay(await day())).toBe(1);
      expect({ fields, reminders: await reminders(), isDone: await isDone() }).toEqual({
        fields,
        reminders: [],
        isDone: false,
      });
      await set(back);
    }
    expect(await queue('2026-05-05T12:00:00Z')).toBe(1);
    const migration = new pg.Client({ connectionString: database.url });
    await migration.connect();
    await migration.query('select pg_advisory_lock(core.tenant_lock_key($1))', [school.id]);
    expect([await runDay(await day()), await isDone()]).toEqual([1, false]);
    await migration.end();
  });

  test('again when the worker of the first job has crashed, even while the queue still shows it as running', async () => {
    await queue('2026-05-05T12:00:00Z');
    await database.query(
      `update graphile_worker._private_jobs set locked_at = now(), locked_by = 'dead', attempts = 1`,
    );
    await queue('2026-05-05T12:15:00Z');
    const all = await database.query(
      `select j.key, j.locked_by is null and j.attempts < j.max_attempts as may_run from graphile_worker._private_jobs j order by id`,
    );
    expect(all).toEqual([
      { key: null, may_run: false },
      { key: `t${school.id}:daily_school:2026-05-05`, may_run: true },
    ]);
  });
});

describe('marking as overdue', () => {
  test('applies to open invoices after their due date in the time zone of the school', async () => {
    // In this zone the date differs from that in UTC.
    const zone = await one<string>(
      `select case when extract(hour from now() at time zone 'UTC') < 12 then 'Pacific/Pago_Pago' else 'Pacific/Kiritimati' end`,
    );
    await set(`time_zone = '${zone}'`);
    await students(6);
    const [today = 0, yesterday = 0, part = 0, paid = 0, gone = 0, later = 0] = await invoices(30, 6);
    await database.query(`insert into ${school.schema}.payment (student_id, invoice_id, amount, payment_date, payment_method)
      select student_id, id, case id when ${part} then 40 else 100 end, current_date, 'cash' from ${school.schema}.invoice where id in (${part}, ${paid})`);
    await database.query(`update ${school.schema}.invoice set voided_at = now() where id = ${gone}`);
    const draft = Number(
      await one<string>(
        `insert into ${school.schema}.invoice (student_id, due_date) select id, '2020-01-01' from ${school.schema}.student limit 1 returning id`,
      ),
    );
    await moveDueDate('invoice', [today], 0);
    await moveDueDate('invoice', [yesterday, part, paid, gone], -1);
    await runDay(await day());
    const became = await statuses('invoice');
    expect([today, yesterday, part, paid, gone, later, draft].map((id) => became[id])).toEqual([
      'sent',
      'overdue',
      'overdue',
      'paid',
      'void',
      'sent',
      'draft',
    ]);
  });

  test('applies to student fees too, in as many steps as needed, but not to paid or waived ones', async () => {
    const { schema } = school;
    await students(12);
    await database.query(
      `insert into ${schema}.academic_year (name, start_date, end_date) values ('Y', '2026-01-01', '2026-12-31')`,
    );
    await database.query(`insert into ${schema}.fee_structure (name, academic_year_id) values ('S', 1)`);
    await database.query(
      `insert into ${schema}.student_fee (student_id, fee_structure_id, amount, due_date) select id, 1, 100, '2090-01-01' from ${schema}.student`,
    );
    await database.query(`update ${schema}.student_fee set waived_at = now() where id = 1`);
    await database.query(`insert into ${schema}.payment (student_id, student_fee_id, amount, payment_date, payment_method)
      select student_id, id, id * 10 + 80, current_date, 'cash' from ${schema}.student_fee where id = 2`);
    await moveDueDate(
      'student_fee',
      [...Array(11).keys()].map((n) => n + 1),
      -1,
    );
    // The run deletes old daily_run rows of its own task, and keeps those of other tasks.
    await database.query(
      `insert into ${schema}.daily_run (task, run_on) values ('fees', '2026-01-01'), ('transport.expiring:license:1:expired', '2026-01-01')`,
    );
    expect(await runDay(await day(), 3)).toBe(4);
    expect(
      (await database.query<{ task: string }>(`select task from ${schema}.daily_run where run_on = '2026-01-01'`)).map(
        ({ task }) => task,
      ),
    ).toEqual(['transport.expiring:license:1:expired']);
    expect(Object.values(await statuses('student_fee')).sort()).toEqual([
      ...Array<string>(9).fill('overdue'),
      'paid',
      'pending',
      'waived',
    ]);
    expect(await isDone()).toBe(true);
  });
});

describe('an overdue invoice', () => {
  test('gets a reminder on the day after its due date, then every seven days, for sixty days', async () => {
    await students(1);
    const [id = 0] = await invoices(10);
    await moveDueDate('invoice', [id], 0);
    const sent: number[] = [];
    for (let n = 0; n <= 70; n++) {
      // The database clock does not advance, so set the status by hand.
      if (n === 1)
        await database.query(
          `alter table ${school.schema}.invoice disable trigger derive; update ${school.schema}.invoice set status = 'overdue'`,
        );
      const before = (await reminders()).length;
      await runDay(await day(n));
      if ((await reminders()).length > before) sent.push(n);
    }
    expect(sent).toEqual([1, 8, 15, 22, 29, 36, 43, 50, 57]);
    expect((await jobs('send_invoice_reminder')).map(({ payload }) => payload)).toEqual(
      await Promise.all(sent.map(async (n) => ({ tenant_id: school.id, invoice_id: id, sent_on: await day(n) }))),
    );
  });

  test('gets no reminder within seven days of a manual one, unless that was before it was overdue; a missed day is made up for', async () => {
    await students(1);
    const [asked = 0] = await invoices(-3);
    const [early = 0] = await invoices(-1);
    const [missed = 0] = await invoices(-4);
    const [old] = await invoices(-61);
    await database.query(
      `insert into ${school.schema}.invoice_reminder (invoice_id, sent_on, sent_to) values ($1, $2, 'a@b.example'), ($3, $4, 'a@b.example')`,
      [asked, await day(-1), early, await day(-1)],
    );
    await runDay(await day());
    const on = await day();
    const today = (await reminders()).filter(([, sentOn]) => sentOn === on).map(([id]) => id);
    expect(today).toEqual([early, missed]);
    expect(today).not.toContain(old);
  });

  test('also notifies the student in the app if the student has a user account', async () => {
    const { schema } = school;
    await set('feature_flags = \'{"notifications": true}\'');
    await students(2);
    await database.query(
      `with u as (insert into ${schema}.user_account (email, first_name, last_name) values ('stu@home.example', 'Stu', 'Dent') returning id)
       update ${schema}.student set user_id = (select id from u) where id = (select min(id) from ${schema}.student)`,
    );
    await invoices(-1, 2);
    await runDay(await day());
    await runDay(await day());
    expect(await reminders()).toHaveLength(2);
    await settle(database);
    const notifications = await database.query(
      `select u.email, n.type, n.title from ${schema}.notification n join ${schema}.user_account u on u.id = n.user_id`,
    );
    expect(notifications).toEqual([
      { email: 'stu@home.example', type: 'invoice.reminder', title: expect.stringContaining('INV-2026-00000') },
    ]);
  });

  test('gets no reminder if the school has switched reminders off or nobody has an address; the day still counts as done', async () => {
    await students(3, 'null');
    await invoices(-1, 3);
    expect(await runDay(await day(), 2)).toBe(2);
    expect([await reminders(), await isDone()]).toEqual([[], true]);
    await database.query(`update ${school.schema}.student set parent_email = 'parent@home.example'`);
    await database.query(`insert into ${school.schema}.school (invoice_reminders) values (false)`);
    await runDay(await day());
    expect(await reminders()).toEqual([]);
    await database.query(`update ${school.schema}.school set invoice_reminders = true`);
    await runDay(await day());
    expect(await reminders()).toHaveLength(3);
  });
});

describe('two concurrent daily runs', () => {
  test('create one reminder and one job for each invoice of a school', async () => {
    await students(300);
    await invoices(-1, 300);
    const clients = await Promise.all(
      [1, 2, 3].map(async () => {
        const client = new pg.Client({ connectionString: database.url });
        await client.connect();
        return client;
      }),
    );
    const today = await day();
    await Promise.all(
      clients.map((client) =>
        runDay(today, 20, async (text, values) => (await client.query<{ next: string | null }>(text, values)).rows),
      ),
    );
    await Promise.all(clients.map((client) => client.end()));
    expect(new Set((await reminders()).map(([id]) => id)).size).toBe(300);
    expect(await reminders()).toHaveLength(300);
    const keys = (await jobs('send_invoice_reminder')).map(({ key }) => key);
    expect([keys.length, new Set(keys).size]).toEqual([300, 300]);
  });

  test('in two workers: one of them handles the school, and each reminder is sent once', async () => {
    await students(8);
    await invoices(-1, 8);
    const sent: string[] = [];
    const sendEmail = ({ to }: Email) => {
      sent.push(to.address);
      return Promise.resolve();
    };
    const workers = await Promise.all(
      [1, 2].map(async () => {
        const pool = rolePool('school_worker', database.url, undefined, 6);
        return { worker: await startWorker(workerContext(pool, sendEmail), 2), pool };
      }),
    );
    const payload = JSON.stringify({ tenant_id: school.id, day: await day() });
    await database.query(`select graphile_worker.add_job('daily_school', $1::json) from generate_series(1, 4)`, [
      payload,
    ]);
    await until(
      async () =>
        ((await isDone()) && (await database.query('select from graphile_worker._private_jobs')).length === 0) ||
        undefined,
    );
    await Promise.all(workers.map(async ({ worker, pool }) => worker.stop().then(() => pool.end())));
    expect(sent.sort()).toEqual([1, 2, 3, 4, 5, 6, 7, 8].map((n) => `parent${n}@home.example`));
  });
});

describe('a worker that is killed during a daily run', () => {
  let folder: string;
  let programs: Program[] = [];
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'school-daily-'));
  });
  afterEach(async () => {
    for (const program of programs) program.kill('SIGKILL');
    await Promise.all(programs.map(({ ended }) => ended));
    programs = [];
    await rm(folder, { recursive: true, force: true });
    await waitForDisconnect();
  });
  const waitForDisconnect = () =>
    until(
      async () =>
        (
          await database.query(
            `select from pg_stat_activity where datname = current_database() and backend_type = 'client backend' and application_name like 'school%'`,
          )
        ).length === 0 || undefined,
    );
  const start = async () => {
    const program = startProgram('src/main.ts', ['--only', 'worker'], {
      DATABASE_URL: database.url,
      DATA_DIR: folder,
      LOG_LEVEL: 'error',
      DEMO: 'false',
    });
    programs.push(program);
    await ready(program);
    return program;
  };

  test('keeps its committed steps; the next worker continues, and every reminder is sent exactly once', async () => {
    const { schema } = school;
    await students(1200);
    await moveDueDate('invoice', await invoices(5, 1200), -1);
    await database.query(`
      -- Records every queued reminder, and delays the emails.
      create table public.queued (invoice_id bigint);
      create function public.hold() returns trigger language plpgsql as $$
      begin
        if new.payload ->> 'invoice_id' is not null then
          insert into public.queued values ((new.payload ->> 'invoice_id')::bigint);
          new.run_at := now() + interval '1 hour';
        end if;
        return new;
      end $$;
      create trigger hold before insert on graphile_worker._private_jobs for each row execute function public.hold();
      grant insert on public.queued to public;
      -- Makes each step slow, so that the worker is killed during one.
      create function public.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(1); return null; end $$;
      create trigger slow after insert on ${schema}.invoice_reminder for each statement execute function public.slow()`);
    // At the current time of day the run may not be due.
    const queue = () =>
      database.query(`select core.daily_queue(((now() at time zone 'UTC')::date + time '12:00') at time zone 'UTC')`);
    await start();
    await queue();
    await until(async () => (await reminders()).length >= 500 || undefined);
    programs[0]?.kill('SIGKILL');
    await programs[0]?.ended;
    // Postgres finishes the running statement before it releases the lock.
    await waitForDisconnect();
    const afterKill = (await reminders()).length;
    expect([500, 1000]).toContain(afterKill);
    expect(await isDone()).toBe(false);
    await start();
    await queue();
    await until(async () => (await isDone()) || undefined);
    expect(new Set(Object.values(await statuses('invoice')))).toEqual(new Set(['overdue']));
    const ids = (await reminders()).map(([id]) => id);
    expect([ids.length, new Set(ids).size]).toEqual([1200, 1200]);
    const queued = await database.query<{ invoice_id: string }>('select invoice_id from public.queued order by 1');
    await database.query('drop trigger hold on graphile_worker._private_jobs');
    expect(queued.map((row) => Number(row.invoice_id))).toEqual(ids);
  });
});
