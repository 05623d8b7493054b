import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { rolePool } from '../../src/database/pool/pool.ts';
import type { Email } from '../../workers/email.ts';
import { startWorker, type Worker } from '../../workers/worker.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { withRole, type BareTenant, type Outcome, provision } from '../support/database/tenants.ts';
import { until } from '../support/client/until.ts';
import { workerContext } from '../support/server/worker.ts';

let database: TestDatabase;
let school: BareTenant;

beforeEach(async () => {
  database = await testDatabase(3);
  school = await provision(database);
});
afterEach(async () => {
  await database.drop();
});

/** Starts a worker with its own connections, like a separate process. `stop` also closes them. */
async function worker(
  sendEmail: (email: Email) => Promise<void>,
  concurrency: number,
  crashCheckMs?: number,
): Promise<Worker> {
  const pool = rolePool('school_worker', database.url, undefined, concurrency + 4);
  const started = await startWorker(
    workerContext(pool, sendEmail),
    concurrency,
    crashCheckMs === undefined ? {} : { crashCheckMs },
  );
  return {
    isAlive: () => started.isAlive(),
    async stop() {
      await started.stop();
      await pool.end();
    },
  };
}

/** Queues invitations for this many users. */
async function invite(count: number): Promise<string[]> {
  const rows = await database.query<{ email: string }>(
    `with invited as (
       insert into ${school.schema}.user_account (email, first_name, last_name) select 'user' || n || '@test.example', 'Uma', 'User' from generate_series(1, $1::integer) n returning id, email)
     select email, graphile_worker.add_job('send_email', json_build_object('tenant_id', $2::bigint, 'user_id', id, 'kind', 'invitation')) is not null from invited`,
    [count, school.id],
  );
  return rows.map((row) => row.email).sort();
}

/** The email jobs in the queue, without scheduled jobs. */
const jobs = () =>
  database.query<{ attempts: number; locked: boolean }>(
    "select attempts, locked_at is not null as locked from graphile_worker.jobs where task_identifier = 'send_email'",
  );

const emptyQueue = () => until(async () => (await jobs()).length === 0 || undefined);

describe('the queue', () => {
  test('gives each job to one of two workers, and both get some', async () => {
    const sent: [number, string][] = [];
    let release: () => void = () => undefined;
    const bothAreAtWork = new Promise<void>((done) => (release = done));
    const emails = await invite(40);
    const workers = await Promise.all(
      [0, 1].map((number) =>
        worker(async (email) => {
          sent.push([number, email.to.address]);
          if (new Set(sent.map(([which]) => which)).size === 2) release();
          await bothAreAtWork;
        }, 2),
      ),
    );
    await emptyQueue();
    await Promise.all(workers.map((each) => each.stop()));
    expect(sent.map(([, address]) => address).sort()).toEqual(emails);
    expect(new Set(sent.map(([which]) => which))).toEqual(new Set([0, 1]));
  });

  test('stays consistent when a worker stops: it finishes its running job and leaves the next one to another worker', async () => {
    const sent: string[] = [];
    let begin: () => void = () => undefined;
    let release: () => void = () => undefined;
    const hasBegun = new Promise<void>((done) => (begin = done));
    const mayEnd = new Promise<void>((done) => (release = done));
    const emails = await invite(2);
    const first = await worker(async (email) => {
      begin();
      await mayEnd;
      sent.push(email.to.address);
    }, 1);
    await hasBegun;
    let hasStopped = false;
    const stopped = first.stop().then(() => (hasStopped = true));
    // Long enough for a worker to stop if it did not wait for its job.
    await sleep(200);
    expect({ hasStopped, sent }).toEqual({ hasStopped: false, sent: [] });
    release();
    await stopped;
    expect(sent).toHaveLength(1);
    expect(first.isAlive()).toBe(false);
    expect(await jobs()).toEqual([{ attempts: 0, locked: false }]);
    const second = await worker((email) => {
      sent.push(email.to.address);
      return Promise.resolve();
    }, 1);
    await emptyQueue();
    await second.stop();
    expect(sent.sort()).toEqual(emails);
  });

  test('unlocks the jobs of a crashed worker, but not those of a running one, however long they take', async () => {
    const sent: string[] = [];
    let release: () => void = () => undefined;
    const mayEnd = new Promise<void>((done) => (release = done));
    const [slow = '', orphan = ''] = await invite(2);
    await database.query(
      "update graphile_worker._private_jobs set locked_at = now(), locked_by = 'gone' where id = (select max(id) from graphile_worker._private_jobs)",
    );
    const living = await worker(async (email) => {
      sent.push(email.to.address);
      if (email.to.address === slow) await mayEnd;
    }, 1);
    await until(() => sent.length === 1 || undefined);
    const looking = await worker(
      (email) => {
        sent.push(email.to.address);
        return Promise.resolve();
      },
      1,
      50,
    );
    await until(() => sent.length === 2 || undefined);
    // Time for many checks of the running worker.
    await sleep(1000);
    expect(sent).toEqual([slow, orphan]);
    release();
    await emptyQueue();
    await Promise.all([living.stop(), looking.stop()]);
    expect(sent).toEqual([slow, orphan]);
  });

  test('gives back a job whose lock was stored but whose worker never got the answer, with all its attempts', async () => {
    const sent: string[] = [];
    let release: () => void = () => undefined;
    const mayEnd = new Promise<void>((done) => (release = done));
    const [slow = '', lost = ''] = await invite(2);
    const lostJob = 'id = (select max(id) from graphile_worker._private_jobs)';
    await database.query(`update graphile_worker._private_jobs set run_at = now() + interval '1 day' where ${lostJob}`);
    const running = await worker(
      async (email) => {
        sent.push(email.to.address);
        if (email.to.address === slow) await mayEnd;
      },
      2,
      50,
    );
    await until(() => sent.length === 1 || undefined);
    await database.query(
      `update graphile_worker._private_jobs set run_at = now(), attempts = max_attempts, locked_at = now(),
         locked_by = (select locked_by from graphile_worker._private_jobs where locked_by is not null)
       where ${lostJob}`,
    );
    await until(() => sent.length === 2 || undefined);
    // Time for many checks of the running job.
    await sleep(500);
    expect(sent).toEqual([slow, lost]);
    release();
    await emptyQueue();
    await running.stop();
    expect(sent).toEqual([slow, lost]);
  });

  test('deletes the job of a crashed worker that another job has replaced, instead of listing it as failed', async () => {
    const add = () =>
      database.query(
        "select from graphile_worker.add_job('daily_school', '{}', job_key => 'a key', run_at => '2100-01-01')",
      );
    await add();
    await database.query(
      "update graphile_worker._private_jobs set attempts = 1, locked_at = now(), locked_by = 'gone'",
    );
    await add();
    await database.query("select from graphile_worker.add_job('daily_school', '{}', run_at => '2100-01-02')");
    await database.query(
      "update graphile_worker._private_jobs set attempts = max_attempts, locked_at = now(), locked_by = 'gone' where run_at = '2100-01-02'",
    );
    await database.query("select core.unlock_jobs('gone')");
    expect(
      await database.query('select run_at::date::text as day, key, state from core.jobs() order by run_at'),
    ).toEqual([
      { day: '2100-01-01', key: 'a key', state: 'waiting' },
      { day: '2100-01-02', key: null, state: 'failed' },
    ]);
  });

  test('has one job for the remaining deliveries, which replaces the running job', async () => {
    const add = async () =>
      (
        await database.query<{ id: string }>(
          "select id from graphile_worker.add_job('deliver', '{}', run_at => now() + interval '1 hour')",
        )
      )[0]?.id;
    const deliveries = () =>
      database.query<{ payload: object; priority: number }>(
        `select j.payload, j.priority from graphile_worker._private_jobs j join graphile_worker._private_tasks t on t.id = j.task_id where t.identifier = 'deliver'`,
      );
    const again = (id: string | undefined) =>
      database.query('select core.replace_deliver_job($1, $2, $3)', [
        id,
        school.id,
        JSON.stringify([{ from_id: 3, to_id: 9, only: [3, 9], run_at: '2100-01-01' }]),
      ]);
    const id = await add();
    await again(id);
    const left = [{ payload: { tenant_id: school.id, from_id: 3, to_id: 9, only: [3, 9] }, priority: 10 }];
    expect(await deliveries()).toEqual(left);
    // The job no longer exists, as after a cancellation, so nothing is replaced.
    await again(id);
    expect(await deliveries()).toEqual(left);
    await invite(1);
    const [other] = await database.query<{ id: string }>('select max(id) as id from graphile_worker._private_jobs');
    await again(other?.id);
    expect(await deliveries()).toEqual(left);
    expect(await jobs()).toHaveLength(1);
    await database.query('delete from graphile_worker._private_jobs');
    await database.query(
      `select core.add_jobs('deliver', array[('{"tenant_id": ${school.id}, "from_id": 1, "to_id": 2}', null, null)::core.new_job])`,
    );
    expect(await deliveries()).toEqual([{ payload: { tenant_id: school.id, from_id: 1, to_id: 2 }, priority: 10 }]);
  });

  test('accepts from a request only listed tasks, always for the school of the request', async () => {
    const queue = (task: string, payload = '{}', key: string | null = null) =>
      `select core.enqueue('${task}', '${payload}', ${key === null ? 'null' : `'${key}'`})`;
    await withRole(
      database.url,
      'school_tenant',
      { 'app.tenant_id': String(school.id), 'app.scope': 'all' },
      async ({ attempt }) => {
        const outcomes: Record<string, Outcome> = {};
        for (const task of ['clean_up', 'send_email; drop table x', 'Send_email', 'purge_tenants', ''])
          outcomes[task] = await attempt(queue(task));
        expect(outcomes).toEqual({
          clean_up: 'P0001',
          'send_email; drop table x': 'P0001',
          Send_email: 'P0001',
          purge_tenants: 'P0001',
          '': 'P0001',
        });
        expect(await attempt("select graphile_worker.add_job('send_email')")).toBe('42501');
        expect(await attempt('select from graphile_worker._private_jobs')).toBe('42501');
        expect(await attempt(queue('send_email'))).toBe(1);
      },
    );
    await database.query(
      `begin; set local app.tenant_id = '${school.id}'; set local role school_tenant; ${queue('send_email', '{"user_id": 1, "kind": "invitation", "tenant_id": 999}', 'same')}; commit`,
    );
    const other = await provision(database);
    await database.query(
      `begin; set local app.tenant_id = '${other.id}'; set local role school_tenant; ${queue('send_email', '{"user_id": 1, "kind": "invitation"}', 'same')}; commit`,
    );
    const queued = await database.query<{ key: string; payload: { tenant_id: number } }>(
      'select key, payload from graphile_worker._private_jobs order by id',
    );
    expect(queued.map(({ key, payload }) => [key, payload.tenant_id])).toEqual([
      [`t${school.id}:send_email:same`, school.id],
      [`t${other.id}:send_email:same`, other.id],
    ]);
  });
});
