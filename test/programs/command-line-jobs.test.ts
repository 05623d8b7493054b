import { afterAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Queue } from '../../src/database/queue.ts';
import { rolePool } from '../../src/database/pool/pool.ts';
import { startWorker } from '../../workers/worker.ts';
import { testDatabase } from '../support/server/database.ts';
import { runProgram } from '../support/server/processes.ts';
import { provision } from '../support/database/tenants.ts';
import { until } from '../support/client/until.ts';
import { workerContext } from '../support/server/worker.ts';

const database = await testDatabase(1);
afterAll(() => database.drop());
const school = await provision(database);
const [{ subdomain } = { subdomain: '' }] = await database.query<{ subdomain: string }>(
  'select subdomain from platform.tenant where id = $1',
  [school.id],
);
const users = await database.query<{ id: string }>(
  `insert into ${school.schema}.user_account (email, first_name, last_name) select 'secret' || n || '@test.example', 'Uma', 'Secret' from generate_series(1, 3) n returning id`,
);

const jobs = (...args: string[]) => runProgram('src/cli/main.ts', ['jobs', ...args], { DATABASE_URL: database.url });
const parsed = async <T>(...args: string[]) => JSON.parse((await jobs(...args, '--json')).stdout) as T;
const queueOf = async (task: string) => (await parsed<Queue>('list')).tasks.find((each) => each.task === task);

async function add(task: string, payload: object = {}, options = ''): Promise<number> {
  const [row] = await database.query<{ id: string }>(`select id from graphile_worker.add_job($1, $2::json${options})`, [
    task,
    JSON.stringify(payload),
  ]);
  return Number(row?.id);
}
const invitation = (index: number) => ({ tenant_id: school.id, user_id: Number(users[index]?.id), kind: 'invitation' });
const stored = async (id: number) =>
  (
    await database.query<{ attempts: number; due: boolean; locked: boolean }>(
      'select attempts, run_at <= now() as due, locked_at is not null as locked from graphile_worker.jobs where id = $1',
      [id],
    )
  )[0];
const audited = () =>
  database.query(
    'select actor_email, action, target_id::integer, changes from platform.audit_log where target_type = $1 order by id desc limit 1',
    ['job'],
  );

/** Runs an email worker in this process until `work` is done; `send` handles each email. */
async function withWorker(send: () => Promise<void>, work: () => Promise<void>): Promise<void> {
  const pool = rolePool('school_worker', database.url, undefined, 6);
  const worker = await startWorker(workerContext(pool, send), 2);
  try {
    await work();
  } finally {
    await worker.stop();
    await pool.end();
  }
}

beforeEach(async () => {
  await database.query('delete from graphile_worker._private_jobs');
  // The pause between two invitations to one address.
  await database.query('delete from platform.rate_limit_counter');
});

describe('school jobs', () => {
  test('list counts jobs by task and state, shows the age of the oldest ready job, and reports that no worker is alive', async () => {
    await add('send_email', invitation(0));
    await add('send_email', invitation(1));
    await add('send_email', invitation(2), ", run_at => now() + interval '1 hour'");
    const failed = await add('clean_up');
    const running = await add('clean_up');
    await database.query(
      "update graphile_worker._private_jobs set created_at = now() - interval '26 hours', run_at = now() - interval '2 hours 5 minutes' where id = (select min(id) from graphile_worker._private_jobs)",
    );
    await database.query('select graphile_worker.permanently_fail_jobs(array[$1::bigint], $2)', [failed, 'It broke']);
    await database.query(
      "update graphile_worker._private_jobs set locked_at = now(), locked_by = 'worker', attempts = max_attempts where id = $1",
      [running],
    );
    expect(await queueOf('clean_up')).toEqual({
      task: 'clean_up',
      ready: 0,
      waiting: 0,
      running: 1,
      failed: 1,
      oldest_ready_seconds: null,
    });
    expect(await queueOf('send_email')).toMatchObject({ ready: 2, waiting: 1, running: 0, failed: 0 });
    const { code, stdout } = await jobs('list');
    const lines = stdout.split('\n');
    expect(code).toBe(0);
    expect(lines[0]).toMatch(/^TASK +READY +WAITING +RUNNING +FAILED +OLDEST READY$/);
    expect(lines).toContainEqual(expect.stringMatching(/^send_email +2 +1 +0 +0 +2 h 5 min$/));
    expect(lines).toContainEqual(expect.stringMatching(/^clean_up +0 +0 +1 +1 +-$/));
    expect(lines).toContainEqual(expect.stringMatching(/^all +2 +1 +1 +1 +2 h 5 min$/));
    expect(lines.at(-2)).toBe('No worker is running: jobs are not processed.');
  });

  test('list shows the true age of a job that was scheduled for a time in the past', async () => {
    await add('purge_tenants', {}, ", run_at => now() - interval '1 day'");
    expect((await queueOf('purge_tenants'))?.oldest_ready_seconds).toBeLessThan(60);
  });

  test('failed, show, retry and cancel handle a real failure', async () => {
    const id = await add(
      'send_email',
      { ...invitation(0), note: 'Uma Secret', nested: { address: 'secret1@test.example' } },
      ', max_attempts => 1',
    );
    const again = await add('send_email', invitation(1));
    let refuse = true;
    const send = () =>
      refuse
        ? Promise.reject(new Error('\n452 \u001b[31mno room for secret1@test.example\nsecond line with secret words'))
        : Promise.resolve();
    await withWorker(send, async () => {
      await until(
        async () =>
          ((await stored(id))?.attempts === 1 &&
            (await stored(again))?.attempts === 1 &&
            !(await stored(again))?.locked) ||
          undefined,
      );
    });
    // The next attempt is due in seconds, and this test starts a worker later.
    await database.query(
      "select graphile_worker.reschedule_jobs(array[$1::bigint], run_at => now() + interval '1 hour')",
      [again],
    );
    const { stdout } = await jobs('failed');
    expect(stdout).toMatch(
      new RegExp(
        `^ *${id} +send_email +${school.id} \\(${subdomain}\\) +1 of 1 +never +452  \\[31mno room for …$`,
        'm',
      ),
    );
    expect(stdout).toMatch(
      new RegExp(
        `^ *${again} +send_email +${school.id} \\(${subdomain}\\) +1 of 25 +\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d UTC +452`,
        'm',
      ),
    );
    expect(stdout.indexOf(` ${id} `)).toBeLessThan(stdout.indexOf(` ${again} `));
    const shown = await jobs('show', String(id));
    expect(shown.stdout).toContain(
      `Payload        {"tenant_id":${school.id},"user_id":${users[0]?.id},"kind":"invitation"}`,
    );
    expect(shown.stdout).toMatch(/^State +failed, no attempts left$/m);
    for (const text of [
      stdout,
      shown.stdout,
      JSON.stringify(await parsed('failed')),
      JSON.stringify(await parsed('show', String(id))),
    ]) {
      expect(text).not.toMatch(/secret|Uma|@|\u001b/i);
    }
    expect(await parsed('failed', '--limit', '1')).toMatchObject({
      total: 2,
      jobs: [{ id, tenant_id: school.id, attempts: 1, next_run_at: null }],
    });
    expect((await jobs('failed', '--limit', '1')).stdout).toMatch(/\n1 more\. Show all with --limit 2\.\n$/);
    expect((await jobs('failed', '--task', 'clean_up')).stdout).toBe('No job has failed.\n');

    expect(await jobs('retry', String(id))).toMatchObject({ code: 0, stdout: 'Queued again: 1 job of send_email.\n' });
    expect(await stored(id)).toEqual({ attempts: 0, due: true, locked: false });
    expect(await audited()).toEqual([
      {
        actor_email: 'command line',
        action: 'job.retry',
        target_id: id,
        changes: { send_email: { before: null, after: 1 } },
      },
    ]);
    expect((await parsed<{ jobs: { id: number }[] }>('failed')).jobs.map((job) => job.id)).toEqual([again]);
    refuse = false;
    await withWorker(send, async () => {
      await until(async () => (await stored(id)) === undefined || undefined);
    });
    expect(await jobs('cancel', String(again))).toMatchObject({ code: 0, stdout: 'Removed: 1 job of send_email.\n' });
    expect(await stored(again)).toBeUndefined();
    expect(await audited()).toEqual([
      {
        actor_email: 'command line',
        action: 'job.cancel',
        target_id: again,
        changes: { send_email: { before: 1, after: 0 } },
      },
    ]);
    expect(await jobs('show', String(again))).toMatchObject({
      code: 1,
      stdout: '',
      stderr: `There is no job ${again}. Finished jobs are removed from the queue.\n`,
    });
  });

  test('retry and cancel skip running jobs, report them, and change the others', async () => {
    const id = await add('send_email', invitation(0));
    const other = await add('clean_up', {}, ", run_at => now() + interval '1 hour'");
    let release: () => void = () => undefined;
    const mayEnd = new Promise<void>((done) => (release = done));
    await withWorker(
      () => mayEnd,
      async () => {
        await until(async () => ((await stored(id))?.locked ? true : undefined));
        expect(await queueOf('send_email')).toMatchObject({ running: 1, ready: 0 });
        expect((await parsed<Queue>('list')).worker).toBe(true);
        expect((await jobs('list')).stdout).not.toContain('No worker');
        expect((await jobs('show', String(id))).stdout).toMatch(/^State +running\n(.*\n)*Running since +\d{4}-/m);
        for (const action of ['retry', 'cancel']) {
          expect(await jobs(action, String(id))).toMatchObject({
            code: 1,
            stdout: `Running, not changed: ${id}.\n`,
          });
        }
        expect(await jobs('cancel', '--task', 'send_email')).toMatchObject({
          code: 0,
          stdout: `Running, not changed: ${id}.\n`,
        });
        expect(await stored(id)).toEqual({ attempts: 1, due: true, locked: true });
        expect(await jobs('cancel', String(other), String(id), '999999')).toMatchObject({
          code: 1,
          stdout: `Removed: 1 job of clean_up.\nRunning, not changed: ${id}.\nNot found, possibly finished: 999999.\n`,
        });
        release();
        await until(async () => (await stored(id)) === undefined || undefined);
      },
    );
  });

  test('retry --task selects failed jobs but no scheduled ones; cancel --task selects all, with --failed the failed ones', async () => {
    const [failed, later, waits, ready, other] = [
      await add('send_email', invitation(0)),
      await add('send_email', invitation(1)),
      await add('send_email', invitation(2), ", run_at => now() + interval '1 hour'"),
      await add('send_email', invitation(2)),
      await add('clean_up'),
    ];
    const fail = () =>
      database.query(
        `select graphile_worker.permanently_fail_jobs(array[$1::bigint], 'broke'), graphile_worker.permanently_fail_jobs(array[$3::bigint], 'broke'),
                graphile_worker.reschedule_jobs(array[$2::bigint], run_at => now() + interval '1 hour', attempts => 3)`,
        [failed, later, other],
      );
    await fail();
    expect(await jobs('retry', '--task', 'send_email')).toMatchObject({
      code: 0,
      stdout: 'Queued again: 2 jobs of send_email.\n',
    });
    expect([await stored(failed), await stored(later), await stored(waits), (await stored(other))?.attempts]).toEqual([
      { attempts: 0, due: true, locked: false },
      { attempts: 0, due: true, locked: false },
      { attempts: 0, due: false, locked: false },
      25,
    ]);
    expect((await jobs('retry', '--task', 'send_email')).stdout).toBe('No jobs matched.\n');
    await fail();
    expect(await parsed('cancel', '--task', 'send_email', '--failed')).toEqual({
      done: { send_email: 2 },
      running: [],
      unknown: [],
    });
    expect([await stored(failed), await stored(later)]).toEqual([undefined, undefined]);
    expect([await stored(waits), await stored(ready)]).not.toContain(undefined);
    expect((await jobs('cancel', '--task', 'send_email')).stdout).toBe('Removed: 2 jobs of send_email.\n');
    expect(await stored(other)).toBeDefined();
  });

  test('retry and cancel select events of the outbox by id and by school, and jobs of a task by school', async () => {
    const other = await provision(database);
    // A job with the id of an event.
    const second = await add('clean_up');
    const [first, third] = [second + 1, second + 2];
    await database.query(
      `insert into platform.outbox (id, tenant_id, event, facts, attempts, retry_at, error)
       select id, tenant_id, 'holiday.added', '{"recipients": []}', 12, 'infinity', 'It broke'
       from unnest($1::bigint[], $2::bigint[]) e (id, tenant_id)`,
      [
        [first, second, third],
        [school.id, school.id, other.id],
      ],
    );
    expect(await parsed('failed', '--task', 'outbox', '--limit', '1')).toEqual({
      total: 3,
      jobs: [
        {
          id: third,
          task: 'outbox',
          event: 'holiday.added',
          tenant_id: other.id,
          subdomain: expect.any(String),
          attempts: 12,
          max_attempts: 12,
          error: 'It broke',
          next_run_at: null,
        },
      ],
    });
    expect((await jobs('failed')).stdout).toMatch(
      new RegExp(
        `^ *${second} +outbox holiday.added +${school.id} \\(${subdomain}\\) +12 of 12 +never +It broke$`,
        'm',
      ),
    );
    // The console retries and cancels by id, so it lists jobs only.
    expect(await database.query('select from core.failed_jobs(null, 10)')).toEqual([]);
    const left = async () =>
      (
        await database.query<{ id: number; attempts: number }>(
          'select id::integer, attempts from platform.outbox order by id',
        )
      ).map(({ id, attempts }) => [id, attempts]);
    expect(await jobs('cancel', '--task', 'outbox', String(second), '999999')).toMatchObject({
      code: 1,
      stdout: 'Removed: 1 job of outbox.\nNot found, possibly finished: 999999.\n',
    });
    expect(await audited()).toMatchObject([{ action: 'job.cancel', target_id: second }]);
    expect(await stored(second)).toBeDefined();
    expect(await jobs('retry', '--task', 'outbox', String(first))).toMatchObject({
      code: 0,
      stdout: 'Queued again: 1 job of outbox.\n',
    });
    expect(await left()).toEqual([
      [first, 0],
      [third, 12],
    ]);
    expect((await jobs('cancel', '--task', 'outbox', '--tenant', subdomain)).stdout).toBe(
      'Removed: 1 job of outbox.\n',
    );
    expect(await left()).toEqual([[third, 12]]);
    expect(await parsed('cancel', '--task', 'outbox', '--tenant', String(other.id))).toMatchObject({
      done: { outbox: 1 },
    });

    await add('deliver_webhooks', { tenant_id: school.id });
    await add('deliver_webhooks', { tenant_id: other.id });
    expect((await jobs('cancel', '--task', 'deliver_webhooks', '--tenant', subdomain)).stdout).toBe(
      'Removed: 1 job of deliver_webhooks.\n',
    );
    expect((await jobs('cancel', '--task', 'deliver_webhooks')).stdout).toBe('Removed: 1 job of deliver_webhooks.\n');
  });

  test.each([
    [['cancel'], 'Give either job ids or --task.\n'],
    [['cancel', '1', '--task', 'clean_up'], 'Give either job ids or --task.\n'],
    [['cancel', '1', '--failed'], '--failed needs --task.\n'],
    [['cancel', '1', '--tenant', 'demo'], 'Give either ids or --tenant.\n'],
    [['retry', '--tenant', 'demo', '--task', 'outbox', '1'], 'Give either ids or --tenant.\n'],
    [['retry', '--task', 'outbox', '--tenant', 'nowhere'], 'No school has the id or subdomain nowhere.\n'],
    [['retry', '--task', 'send_mail'], 'There is no task "send_mail". Tasks: analytics, '],
    [['failed', '--task', ''], 'There is no task "". Tasks: analytics, '],
    [['retry', 'all'], "error: command-argument value 'all' is invalid for argument 'id'. must be a job id"],
    [
      ['failed', '--limit', '0'],
      "error: option '--limit <count>' argument '0' is invalid. must be a whole number from 1 to 999999",
    ],
  ])('rejects %j and changes nothing', async (args, stderr) => {
    await add('clean_up');
    const before = await database.query('select * from graphile_worker._private_jobs');
    const refused = await jobs(...args);
    expect({ code: refused.code, stdout: refused.stdout, says: refused.stderr.slice(0, stderr.length) }).toEqual({
      code: 1,
      stdout: '',
      says: stderr,
    });
    expect(await database.query('select * from graphile_worker._private_jobs')).toEqual(before);
  });
});
