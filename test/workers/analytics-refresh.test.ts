import { EventEmitter } from 'node:events';
import { afterAll, beforeEach, expect, test } from '@jest/globals';
import type { WorkerEvents } from 'graphile-worker';
import { rolePool } from '../../src/database/pool/pool.ts';
import { startWorker } from '../../workers/worker.ts';
import { testDatabase } from '../support/server/database.ts';
import { asAnalyst, facts, refresh } from '../support/database/facts.ts';
import { type BareTenant, provision, register } from '../support/database/tenants.ts';
import { until } from '../support/client/until.ts';
import { workerContext } from '../support/server/worker.ts';

const database = await testDatabase(23);
const pool = rolePool('school_worker', database.url, undefined, 12);
afterAll(async () => {
  await pool.end();
  await database.drop();
});

let school: BareTenant;
beforeEach(async () => {
  await database.query('delete from graphile_worker._private_jobs');
  school = await provision(database);
  await change(
    "insert into @academic_year (name, start_date, end_date, is_current) values ('2025/26', '2025-08-01', '2026-07-31', true)",
  );
  await change("insert into @grade (name) values ('One')");
  await change("insert into @class (name, grade_id, academic_year_id) values ('One', 1, 1)");
  await change(
    "insert into @student (first_name, last_name, admission_number, class_id) values ('Stu', 'Dent', '1', 1)",
  );
});

/** Changes a school and flushes the row counters of Postgres, which would otherwise take seconds. */
const change = (statement: string, { schema }: BareTenant = school) =>
  database.query(`${statement.replaceAll('@', `${schema}.`)}; select pg_stat_force_next_flush()`);

interface QueueResult {
  schools: number;
  due: number;
  purged: number;
}
const queueRefreshes = async () =>
  (await pool.query<{ result: QueueResult }>('select core.analytics_queue() as result')).rows[0]?.result;
const queued = async () =>
  (
    await database.query<{ id: string }>(
      "select jsonb_array_elements_text(payload::jsonb -> 'tenant_ids') as id from graphile_worker._private_jobs j join graphile_worker._private_tasks t on t.id = j.task_id and t.identifier = 'analytics_schools'",
    )
  )
    .map(({ id }) => Number(id))
    .sort((a, b) => a - b);
const refreshedAt = async ({ id }: BareTenant = school) =>
  (
    await database.query<{ at: Date | null }>('select refreshed_at as at from mart.school where tenant_id = $1', [id])
  )[0]?.at?.getTime() ?? 0;

/** Runs the queued jobs with this many workers. */
async function work(workers = 1): Promise<{ task: string; failed: boolean }[]> {
  const done: { task: string; failed: boolean }[] = [];
  const events: WorkerEvents = new EventEmitter();
  events.on('job:complete', ({ job, error }) => void done.push({ task: job.task_identifier, failed: Boolean(error) }));
  const running = await Promise.all(
    Array.from({ length: workers }, () =>
      startWorker(
        workerContext(pool, () => Promise.reject(new Error('no email is sent'))),
        1,
        { events },
      ),
    ),
  );
  try {
    await until(
      async () =>
        (await database.query('select from graphile_worker._private_jobs where attempts = 0 and run_at <= now()'))
          .length === 0 || undefined,
    );
    await until(
      async () =>
        (await database.query('select from graphile_worker._private_jobs where locked_at is not null')).length === 0 ||
        undefined,
    );
  } finally {
    await Promise.all(running.map((worker) => worker.stop()));
  }
  return done;
}

test('the job queues only the schools that have changed since their refresh, and marks the others as refreshed', async () => {
  const other = await provision(database);
  expect((await queueRefreshes())?.due).toBeGreaterThanOrEqual(2);
  expect(await queued()).toEqual(expect.arrayContaining([school.id, other.id]));
  await work();
  const before = { school: await refreshedAt(), other: await refreshedAt(other) };
  expect(before.school).toBeGreaterThan(0);
  expect(
    await facts(database, `select grade, students from analytics.enrollments where tenant_id = ${String(school.id)}`),
  ).toEqual([{ grade: 'One', students: 1 }]);

  await change(
    "insert into @student (first_name, last_name, admission_number, class_id) values ('Another', 'One', '2', 1)",
  );
  expect(await queueRefreshes()).toMatchObject({ due: 1, purged: 0 });
  expect(await queued()).toEqual([school.id]);
  expect(await refreshedAt()).toBe(before.school);
  expect(await refreshedAt(other)).toBeGreaterThan(before.other);
  await work();
  expect(
    await facts(database, `select students from analytics.enrollments where tenant_id = ${String(school.id)}`),
  ).toEqual([{ students: 2 }]);
  expect(await queueRefreshes()).toMatchObject({ due: 0 });
});

test('a refresh runs only the queries of changed tables and writes only changed rows', async () => {
  expect(await refresh(database, school.id)).toMatchObject({ enrollments: 1, classes: 1, academic_years: 1, fees: 0 });
  const again = async () =>
    (await database.query<{ written: unknown }>('select core.analytics_refresh($1) as written', [school.id]))[0]
      ?.written;
  expect(await again()).toEqual({});
  await change("insert into @attendance (student_id, class_id, date, status) values (1, 1, '2025-10-01', 'absent')");
  expect(await again()).toEqual({ attendance_days: 1, attendance_months: 1, academic_years: 0, classes: 0 });
  await change("update @attendance set status = 'late'");
  expect(await again()).toEqual({ attendance_days: 1, attendance_months: 1, academic_years: 0, classes: 0 });
  await change('update @attendance set marked_by_name = $$Uma$$');
  expect(await again()).toMatchObject({});
  expect(await refresh(database, school.id)).toMatchObject({ attendance_days: 0, enrollments: 0 });
});

test('a new day or a new version of the functions makes every school due for a refresh', async () => {
  await refresh(database, school.id);
  expect(await queueRefreshes()).toMatchObject({ due: expect.any(Number) });
  await work();
  expect(await queueRefreshes()).toMatchObject({ due: 0 });
  await database.query(
    "update platform.tenant set time_zone = case when extract(hour from now() at time zone 'UTC') < 12 then 'Pacific/Pago_Pago' else 'Africa/Lagos' end where id = $1",
    [school.id],
  );
  await queueRefreshes();
  expect(await queued()).toEqual([school.id]);
});

test('a changed time zone makes the school due for a refresh', async () => {
  await queueRefreshes();
  await work();
  await database.query("update platform.tenant set time_zone = 'Africa/Lagos' where id = $1", [school.id]);
  await queueRefreshes();
  expect(await queued()).toContain(school.id);
});

test('each query watches every table that it reads', async () => {
  const parts = await database.query<{ name: string; watched: string[]; query: string }>(
    'select name, watched, query from core.analytics_part order by refresh_order',
  );
  for (const { name, watched, query } of parts) {
    // Tables that a query reads but does not need to watch: fee items, for example, are written with their fee.
    const alsoRead = { fees: ['student_fee_item'], classes: ['grade'] }[name] ?? [];
    const ofSchool = shared.withOptions(database.url, `-c search_path=${school.schema},public`);
    const { rows } = await shared.withOwner(ofSchool, (client) =>
      client.query(`explain (format json) ${query.replaceAll('$1', "'-infinity'::date")}`),
    );
    const read = new Set([...JSON.stringify(rows).matchAll(/"Relation Name":"(\w+)"/g)].map(([, table = '']) => table));
    read.delete('notification_event');
    expect({
      name,
      missed: [...read].filter((table) => !watched.includes(table) && !alsoRead.includes(table)),
    }).toEqual({ name, missed: [] });
    expect(read.size).toBeGreaterThan(0);
  }
});

test('two workers share the schools and never refresh the same one at once', async () => {
  const schools = [school];
  for (let n = 0; n < 20; n++) schools.push(await provision(database));
  await queueRefreshes();
  const batches = await database.query('select from graphile_worker._private_jobs');
  expect(batches.length).toBeGreaterThanOrEqual(2);
  const done = await work(2);
  expect(done.filter(({ task, failed }) => task === 'analytics_schools' && !failed)).toHaveLength(batches.length);
  for (const each of schools) expect(await refreshedAt(each)).toBeGreaterThan(0);

  // A school that another worker is refreshing is skipped.
  const client = await pool.connect();
  try {
    await client.query('begin');
    await client.query('select core.analytics_refresh($1, true)', [school.id]);
    expect(await refresh(database, school.id)).toBeNull();
    await client.query('rollback');
  } finally {
    client.release();
  }
  expect(await refresh(database, school.id)).not.toBeNull();
});

test('a failed refresh keeps the old data and time of the school, and the other schools are refreshed', async () => {
  const other = await provision(database);
  await queueRefreshes();
  await work();
  const before = await refreshedAt();
  await change(
    "insert into @student (first_name, last_name, admission_number, class_id) values ('Another', 'One', '2', 1)",
  );
  await change(
    'alter table @timetable_slot rename to slot_of_timetable; insert into @teacher (first_name, last_name) values ($$Tea$$, $$Cher$$)',
  );
  await change("insert into @grade (name) values ('Two')", other);
  await queueRefreshes();
  expect(await queued()).toEqual([school.id, other.id].sort((a, b) => a - b));
  expect((await work()).filter(({ task }) => task === 'analytics_schools')).toEqual([
    { task: 'analytics_schools', failed: true },
  ]);
  const [job] = await database.query<{ error: string }>('select last_error as error from graphile_worker.jobs');
  expect(job?.error).toMatch(
    new RegExp(`^The refresh failed for 1 of 2 schools. School ${String(school.id)}: .*timetable_slot`),
  );
  expect(await refreshedAt()).toBe(before);
  expect(
    await facts(database, `select students from analytics.enrollments where tenant_id = ${String(school.id)}`),
  ).toEqual([{ students: 1 }]);
  expect(await refreshedAt(other)).toBeGreaterThan(before);
  expect(
    await asAnalyst(database, [school.id], ({ rows }) => rows('select refreshed_at from analytics.tenants')),
  ).toEqual([{ refreshed_at: new Date(before) }]);
  await change('alter table @slot_of_timetable rename to timetable_slot');
  await database.query('delete from graphile_worker._private_jobs');
  await queueRefreshes();
  await work();
  expect(await refreshedAt()).toBeGreaterThan(before);
  expect(
    await facts(database, `select students from analytics.enrollments where tenant_id = ${String(school.id)}`),
  ).toEqual([{ students: 2 }]);
});

test('a school that is not migrated, or being migrated, is skipped', async () => {
  await refresh(database, school.id);
  const bare = await register(database);
  expect(await refresh(database, bare.id)).toBeNull();
  const client = await pool.connect();
  try {
    await client.query('select pg_advisory_lock(core.tenant_lock_key($1))', [school.id]);
    expect(await refresh(database, school.id)).toBeNull();
  } finally {
    client.release(true);
  }
  await database.query('update platform.tenant set schema_version = schema_version - 1 where id = $1', [school.id]);
  expect(await refresh(database, school.id)).toBeNull();
  await queueRefreshes();
  expect(await queued()).not.toContain(school.id);
  await database.query('update platform.tenant set schema_version = schema_version + 1 where id = $1', [school.id]);
  // The school is visible, with null as the time of its refresh.
  expect(
    await asAnalyst(database, [bare.id], ({ rows }) => rows('select status, refreshed_at from analytics.tenants')),
  ).toEqual([{ status: 'active', refreshed_at: null }]);
  await database.query('delete from platform.tenant where id = $1', [bare.id]);
});

test('the data of a deleted school stays until the school is purged', async () => {
  await refresh(database, school.id);
  const count = async () =>
    (
      await database.query<{ n: number }>('select count(*)::integer as n from mart.enrollment where tenant_id = $1', [
        school.id,
      ])
    )[0]?.n;
  await database.query("update platform.tenant set status = 'deleted', deleted_at = now() where id = $1", [school.id]);
  expect(await queueRefreshes()).toMatchObject({ purged: 0 });
  expect(await count()).toBe(1);
  expect(await refresh(database, school.id)).toBeNull();
  await database.query('update platform.tenant set schema_version = 0 where id = $1', [school.id]);
  expect(await queueRefreshes()).toMatchObject({ purged: 1 });
  const left = await database.query<{ name: string }>(
    "select c.relname::text as name from pg_class c where c.relnamespace = 'mart'::regnamespace and c.relkind = 'r' and (xpath('/row/n/text()', query_to_xml(format('select count(*) as n from mart.%I where tenant_id = %s', c.relname, $1::bigint), false, true, '')))[1]::text <> '0'",
    [school.id],
  );
  expect(left).toEqual([]);
  expect(await queueRefreshes()).toMatchObject({ purged: 0 });
});

test('message statistics stay after the school has deleted its old messages', async () => {
  await change("insert into @user_account (email, first_name, last_name) values ('uma@example.org', 'Uma', 'User')");
  await change(
    "insert into @notification (user_id, title, message, created_at) values (1, 'Old', 'Old', now() - interval '80 days'), (1, 'New', 'New', now())",
  );
  await refresh(database, school.id);
  await change('delete from @notification');
  expect(await refresh(database, school.id)).toMatchObject({ notifications: 1 });
  expect(
    await facts(
      database,
      `select date < now()::date - 60 as is_old, messages from analytics.notification_days where tenant_id = ${String(school.id)}`,
    ),
  ).toEqual([{ is_old: true, messages: 1 }]);
});
