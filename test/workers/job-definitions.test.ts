import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type pg from 'pg';
import { rolePool } from '../../src/database/pool/pool.ts';
import { loadJobs } from '../../workers/jobs.ts';
import { startWorker } from '../../workers/worker.ts';
import { until } from '../support/client/until.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { workerContext } from '../support/server/worker.ts';

let database: TestDatabase;
let pool: pg.Pool;
let folder: string;

beforeAll(async () => {
  database = await testDatabase();
  pool = rolePool('school_worker', database.url, undefined, 6);
  folder = await mkdtemp(join(tmpdir(), 'tasks-'));
});
afterAll(async () => {
  await pool.end();
  await database.drop();
  await rm(folder, { recursive: true });
});

test('a worker does not start with a task without definition, or a definition without task, and names the file', async () => {
  const tasks = join(folder, 'tasks');
  await mkdir(tasks);
  await writeFile(join(tasks, 'send_reports.ts'), 'export const send_reports = () => undefined;');
  await writeFile(join(tasks, 'clean_up.ts'), 'export const cleanUp = () => undefined;');
  const message = await loadJobs(pool, tasks).then(String, String);
  expect(message).toContain('workers/tasks/send_reports.ts has no definition');
  expect(message).toContain('workers/tasks/clean_up.ts exports no function clean_up.');
  expect(message).toContain("db/ calls core.define_job('deliver'), but there is no workers/tasks/deliver.ts.");
});

test('a job cannot be defined twice, also not under the former name of another', async () => {
  for (const name of ['clean_up', 'daily'])
    await expect(database.query(`select core.define_job('${name}', p_priority => 1)`)).rejects.toThrow(
      `The job ${name} is defined twice.`,
    );
});

test('jobs that an earlier release has queued under a former name run', async () => {
  const { crontab } = await loadJobs(pool);
  expect(crontab).toContain('11 * * * * send_due_notices ?max=3');
  await database.query("select graphile_worker.add_job('daily'), graphile_worker.add_job('notify_daily')");
  const worker = await startWorker(
    workerContext(pool, () => Promise.resolve()),
    2,
  );
  await until(async () => {
    const left = await database.query("select from graphile_worker.jobs where task_identifier ~ 'daily'");
    return left.length === 0 || undefined;
  });
  await worker.stop();
});
