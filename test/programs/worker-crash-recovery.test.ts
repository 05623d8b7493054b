import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { type Program, ready, startProgram } from '../support/server/processes.ts';
import { fcmService } from '../support/fakes/push-services.ts';
import { type BareTenant, provision } from '../support/database/tenants.ts';
import { until } from '../support/client/until.ts';

type Fcm = Awaited<ReturnType<typeof fcmService>>;

let database: TestDatabase;
let school: BareTenant;
let fcm: Fcm;
let folder: string;
let programs: Program[];

beforeEach(async () => {
  [database, fcm, folder] = await Promise.all([
    testDatabase(3),
    fcmService(),
    mkdtemp(join(tmpdir(), 'school-crash-')),
  ]);
  school = await provision(database);
  programs = [];
});
afterEach(async () => {
  for (const program of programs) program.kill('SIGKILL');
  await Promise.all(programs.map(({ ended }) => ended));
  await fcm.close();
  // Postgres closes the connections of a killed process with a short delay.
  await until(
    async () =>
      (
        await database.query(
          "select from pg_stat_activity where datname = current_database() and application_name <> 'test' and backend_type = 'client backend'",
        )
      ).length === 0 || undefined,
  );
  await database.drop();
  await rm(folder, { recursive: true, force: true });
});

/** A worker in a separate process. */
async function worker(): Promise<Program> {
  const env = {
    DATABASE_URL: database.url,
    DATA_DIR: folder,
    DEMO: 'false',
    MIGRATE_ON_START: 'false',
    NODE_ENV: 'test',
    LOG_LEVEL: 'info',
    WORKER_CRASH_CHECK_MS: '500',
    ...fcm.env,
  };
  const program = startProgram('src/main.ts', ['--only', 'worker'], env);
  programs.push(program);
  await ready(program);
  return program;
}

/** Queues a push message to 100 devices of a user. */
async function queueMessage(): Promise<void> {
  await database.query(
    `with u as (insert into ${school.schema}.user_account (email, first_name, last_name) values ('a@test.example', 'A', 'B') returning id),
       d as (insert into ${school.schema}.device (user_id, token, platform) select u.id, 'secret-token-' || n, 'android' from u, generate_series(1, 100) n returning id, user_id),
       m as (insert into ${school.schema}.notification_delivery (user_id, channel, device_id, recipient_name, title, message)
         select user_id, 'push', id, 'Zoe Private', 'T', 'M' from d returning id)
     select graphile_worker.add_job('deliver', json_build_object('tenant_id', $1::bigint, 'from_id', min(id), 'to_id', max(id))) from m`,
    [school.id],
  );
}

const statuses = async () =>
  Object.fromEntries(
    (
      await database.query<{ token: string; status: string }>(
        `select d.token, n.status from ${school.schema}.notification_delivery n join ${school.schema}.device d on d.id = n.device_id`,
      )
    ).map(({ token, status }) => [token, status]),
  );
const count = async (status: string) => Object.values(await statuses()).filter((each) => each === status).length;
const allTokens = Array.from({ length: 100 }, (_, n) => `secret-token-${n + 1}`).sort();

/** Lets FCM answer the first `quick` messages at once, and the others when the returned function is called. */
function slowAfter(quick: number): () => void {
  let release: () => void = () => undefined;
  const until = new Promise<void>((done) => (release = done));
  fcm.respondWith([...Array.from({ length: quick }, () => ({})), { until }]);
  return release;
}

test('after a kill another worker continues within a minute and sends only the messages that were not confirmed', async () => {
  slowAfter(37);
  await queueMessage();
  const first = await worker();
  await until(async () => ((await count('sent')) === 37 && fcm.received.length === 57 ? true : undefined));
  first.kill('SIGKILL');
  await first.ended;
  const confirmed = Object.entries(await statuses())
    .filter(([, status]) => status === 'sent')
    .map(([token]) => token);
  expect(confirmed).toHaveLength(37);
  // The jobs that the move of a school keeps have no worker either.
  await database.query(
    `select graphile_worker.add_job('deliver', json_build_object('tenant_id', $1::bigint), job_key => 'kept')`,
    [school.id],
  );
  await database.query('select core.move_jobs_hold($1)', [school.id]);
  fcm.respondWith({});
  await worker();
  await until(async () => (await count('sent')) === 100 || undefined);
  expect([...new Set(fcm.received.map(({ token }) => token))].sort()).toEqual(allTokens);
  for (const token of confirmed) expect(fcm.messagesTo(token)).toHaveLength(1);
  // Messages in progress at the kill are sent again with the same tag, so that a device shows only one.
  const twice = allTokens.filter((token) => fcm.messagesTo(token).length === 2);
  expect(twice).toHaveLength(20);
  for (const token of twice)
    expect(new Set(fcm.messagesTo(token).map((each) => each.android.notification.tag)).size).toBe(1);
  expect(fcm.received).toHaveLength(120);
  expect(await database.query("select locked_by from graphile_worker.jobs where key = 'kept'")).toEqual([
    { locked_by: 'school move' },
  ]);
});

test('a worker that is stopped finishes the deliveries in progress, stores their results, and leaves the rest to another', async () => {
  const release = slowAfter(10);
  await queueMessage();
  const first = await worker();
  await until(() => fcm.received.length === 30 || undefined);
  first.kill('SIGTERM');
  await first.prints(/Stopping/);
  await sleep(300);
  release();
  const { code, stdout, stderr } = await first.ended;
  expect([code, fcm.received.length, await count('sent'), await count('pending')]).toEqual([0, 30, 30, 70]);
  expect(await database.query('select from graphile_worker._private_jobs j where j.locked_at is not null')).toEqual([]);
  fcm.respondWith({});
  await worker();
  await until(async () => (await count('sent')) === 100 || undefined);
  expect(fcm.received.map(({ token }) => token).sort()).toEqual(allTokens);
  expect(stdout + stderr).toContain('"task":"deliver"');
  expect(stdout + stderr).not.toMatch(/secret-token|Zoe|test\.example|BEGIN PRIVATE/);
});

test('a result that cannot be stored at first is stored later, and nothing is sent twice', async () => {
  const release = slowAfter(5);
  await queueMessage();
  await worker();
  await until(() => fcm.received.length === 25 || undefined);
  await database.query(
    `revoke execute on function core.delivery_save_result(bigint, bigint, text, text, boolean) from school_worker`,
  );
  release();
  await sleep(1000);
  await database.query(
    `grant execute on function core.delivery_save_result(bigint, bigint, text, text, boolean) to school_worker`,
  );
  await until(async () => (await count('sent')) === 100 || undefined);
  expect(fcm.received.map(({ token }) => token).sort()).toEqual(allTokens);
});

test('a worker whose connections break while it stores the result of a job stores it later', async () => {
  const release = slowAfter(0);
  await queueMessage();
  const program = await worker();
  await until(() => fcm.received.length === 20 || undefined);
  const locking = new shared.pg.Client({ connectionString: database.url });
  await locking.connect();
  await locking.query('begin');
  await locking.query('select from graphile_worker._private_jobs for update');
  release();
  // The message is sent, and the worker waits for the row of its job.
  const waiting = await until(async () => {
    const backends = await database.query<{ pid: number }>(
      `select pid from pg_stat_activity
       where datname = current_database() and application_name = 'school_worker' and wait_event_type = 'Lock'`,
    );
    return (await count('sent')) === 100 && backends.length > 0 ? backends : undefined;
  });
  for (const { pid } of waiting) await database.query('select pg_terminate_backend($1)', [pid]);
  await locking.query('commit');
  await locking.end();
  await until(
    async () => (await database.query('select from graphile_worker._private_jobs')).length === 0 || undefined,
  );
  expect(program.hasEnded).toBe(false);
  expect(fcm.received).toHaveLength(100);
});
