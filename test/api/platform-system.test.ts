import { describe, expect, test } from '@jest/globals';
import { unique, serviceWithSchool } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import { race } from '../support/client/race.ts';
import { until } from '../support/client/until.ts';
import type { FailedJob as FailedJobSchema, System as SystemSchema } from '../../src/endpoints/platform-system.ts';

type System = OutputOf<typeof SystemSchema>;
type FailedJob = OutputOf<typeof FailedJobSchema>;

const { service, school } = await serviceWithSchool({}, undefined, { usageIntervalMs: 100 });
const { operator, database } = service;

describe('GET /api/platform/system', () => {
  test('shows server, release, schools, workers, queue and connections', async () => {
    const { data } = await operator.get<System>('/api/platform/system');
    const [server] = await database.query<{ name: string; version: string }>(
      "select current_database() as name, current_setting('server_version') as version",
    );
    expect(data).toMatchObject({
      server: { database: server?.name, version: server?.version, size_bytes: null, is_replica: false },
      schools: [{ status: 'active', schema_version: data.release.schema_version, schools: 1 }],
      delayed_schools: [],
      workers: 1,
      missing_grant: null,
      long_transactions: [],
      replicas: [],
      refusal: null,
      kept_schools: [],
      nodes: [],
    });
    expect(data.queue.tasks.map(({ task }) => task)).toContain('send_email');
    // The connection of this request is not counted.
    const worker = data.connections.find(({ name }) => name === 'school_worker');
    expect(worker).toMatchObject({ waiting: 0 });
    expect(worker?.connections).toBeGreaterThan(0);
  });

  test('shows the operations that took longest on average in the last hour', async () => {
    await database.query(
      `insert into platform.operation_time (operation, minute, calls, total_ms, max_ms) values
         ('students_list', now() - interval '5 minutes', 2, 30000, 20000),
         ('students_list', now() - interval '6 minutes', 2, 10000, 9000),
         ('students_get', now() - interval '61 minutes', 1, 90000, 90000)`,
    );
    const slowest = async () => (await operator.get<System>('/api/platform/system')).data.slow_operations;
    const [first, ...others] = await slowest();
    expect(first).toEqual({ operation: 'students_list', calls: 4, mean_ms: 10000, max_ms: 20000 });
    expect(others.map(({ operation }) => operation)).not.toContain('students_get');
    // Those of this process.
    await until(async () => (await slowest()).some(({ operation }) => operation === 'platform_system') || undefined);
    await database.query('select core.clean_up()');
    expect(await database.query("select from platform.operation_time where operation = 'students_get'")).toEqual([]);
  });

  test('shows a school whose migration failed, without personal data of the error', async () => {
    await database.query(
      `insert into platform.delayed_migration (tenant_id, version, error, failed_at)
       values ($1, 17, E'Key (email)=(ada@school.example) already exists.\\nDETAIL: more', now())`,
      [school.id],
    );
    const { data } = await operator.get<System>('/api/platform/system');
    expect(data.delayed_schools).toEqual([
      {
        tenant_id: school.id,
        subdomain: school.subdomain,
        schema_version: data.release.schema_version,
        failed_version: 17,
        error: 'Key … already exists.',
        skip_reason: null,
      },
    ]);
    await database.query('delete from platform.delayed_migration');
  });

  test('counts only the schools of this server, and those of each node', async () => {
    await database.query(
      `insert into platform.node (id, name, url, status) values (9, 'far', 'postgres://far/school', 'active')`,
    );
    await database.query(
      `insert into platform.tenant (name, subdomain, plan_id, contact_email, node_id)
       select 'Far', 'far', plan_id, contact_email, 9 from platform.tenant where id = $1`,
      [school.id],
    );
    await database.query('update platform.tenant set schema_version = 0 where node_id = 9');
    await database.query("update platform.node set answered_at = '2026-09-01T06:00:00Z'");
    const { data } = await operator.get<System>('/api/platform/system');
    expect(data.nodes).toEqual([
      { name: 'far', status: 'active', schools: 1, answered_at: '2026-09-01T06:00:00+00:00', unreachable_since: null },
    ]);
    expect(await database.query('select * from core.check_schools_behind()')).toEqual([]);
    expect(data.schools).toEqual([{ status: 'active', schema_version: data.release.schema_version, schools: 1 }]);
    await database.query('delete from platform.tenant where node_id = 9');
    await database.query('delete from platform.node');
  });

  test('adds up the messages of the last seven days by channel', async () => {
    await database.query(
      `insert into mart.notification_day (tenant_id, date, event, channel, messages, pending, sent, failed, dropped, read)
       select $1, current_date - day, event, 'push', 10, 1, 6, 2, 1, 0
       from unnest(array[0, 6, 7]) day, unnest(array['fee.generated', 'holiday.added']) event`,
      [school.id],
    );
    const { data } = await operator.get<System>('/api/platform/system');
    expect(data.deliveries).toEqual([{ channel: 'push', sent: 24, pending: 4, failed: 8, dropped: 4 }]);
  });
});

describe('/api/platform/jobs', () => {
  /** Adds a job of a task that no worker runs, which has failed. */
  async function addFailed(attempts: number, error = 'No connection to mail.example'): Promise<number> {
    const [job] = await database.query<{ id: string }>(
      `select id from graphile_worker.add_job('unknown_task', json_build_object('tenant_id', $1::bigint),
         run_at => now() + interval '1 day', max_attempts => 3, job_key => $2)`,
      [school.id, unique('job')],
    );
    await database.query('update graphile_worker._private_jobs set attempts = $2, last_error = $3 where id = $1', [
      job?.id,
      attempts,
      error,
    ]);
    return Number(job?.id);
  }
  const list = async (query = '') => (await operator.get<FailedJob[]>(`/api/platform/jobs${query}`)).data;
  const audited = () =>
    database.query(
      `select action, target_id::integer as id, actor_email, changes from platform.audit_log
       where action like 'job.%' order by id desc limit 1`,
    );

  test('lists jobs that failed, those without attempts left first', async () => {
    const [final, retried] = [await addFailed(3), await addFailed(1, 'Refused for ada@school.example\nat line 7')];
    expect(await list('?task=unknown_task')).toEqual([
      {
        id: final,
        task: 'unknown_task',
        tenant_id: school.id,
        subdomain: school.subdomain,
        attempts: 3,
        max_attempts: 3,
        error: 'No connection to mail.example',
        next_run_at: null,
      },
      expect.objectContaining({ id: retried, error: 'Refused for …', next_run_at: expect.any(String) }),
    ]);
    expect(await list('?task=another')).toEqual([]);
    expect(await list('?search=mail.example&pageSize=1')).toMatchObject([{ id: final }]);
  });

  test('runs a job again with all its attempts, and records the operator', async () => {
    const id = await addFailed(3);
    expect((await operator.post(`/api/platform/jobs/${id}/retry`)).data).toEqual({ id });
    expect(await list(`?task=unknown_task`)).not.toContainEqual(expect.objectContaining({ id }));
    expect(await database.query('select attempts from graphile_worker.jobs where id = $1', [id])).toEqual([
      { attempts: 0 },
    ]);
    expect(await audited()).toEqual([
      {
        action: 'job.retry',
        id,
        actor_email: 'operator@test.example',
        changes: { unknown_task: { before: null, after: 1 } },
      },
    ]);
  });

  test('removes a job, which is then not found', async () => {
    const id = await addFailed(3);
    expect((await operator.post(`/api/platform/jobs/${id}/cancel`)).data).toEqual({ id });
    expect(await database.query('select from graphile_worker.jobs where id = $1', [id])).toEqual([]);
    expect(await audited()).toMatchObject([{ action: 'job.cancel', id, actor_email: 'operator@test.example' }]);
    for (const action of ['retry', 'cancel']) await operator.post(`/api/platform/jobs/${id}/${action}`, undefined, 404);
  });

  test('does not find a job that ends while the request waits for it', async () => {
    for (const action of ['retry', 'cancel']) {
      const id = await addFailed(1);
      await race(database, `delete from graphile_worker._private_jobs where id = ${id}`, 1, () => [
        operator.post(`/api/platform/jobs/${id}/${action}`, undefined, 404),
      ]);
    }
  });

  test('does not change a job that is running', async () => {
    const id = await addFailed(1);
    await database.query(
      "update graphile_worker._private_jobs set locked_at = now(), locked_by = 'another worker' where id = $1",
      [id],
    );
    for (const action of ['retry', 'cancel']) {
      const { message } = await operator.post(`/api/platform/jobs/${id}/${action}`, undefined, 409);
      expect(message).toBe(`The job ${id} is running.`);
    }
    expect(await database.query('select attempts from graphile_worker.jobs where id = $1', [id])).toEqual([
      { attempts: 1 },
    ]);
  });
});
