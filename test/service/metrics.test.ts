import { describe, expect, test } from '@jest/globals';
import { manyConnections, serviceWithSchool, testService } from '../support/server/service.ts';
import { type Sample, scrape as scrapeFrom, value } from '../support/client/metrics.ts';
import { openStream } from '../support/client/stream.ts';
import { until } from '../support/client/until.ts';

const { pg, readConfig } = shared;
const { service, school } = await serviceWithSchool({ ...manyConnections, METRICS_PORT: '0' });
const url = service.metricsUrl ?? '';

const scrape = (from = url) => scrapeFrom(from);

describe('/metrics', () => {
  test('counts requests and their latency by method, pattern and status, without paths or personal data', async () => {
    const { data: student } = await school.admin.post<{ id: number }>(
      '/api/students',
      { first_name: 'Metra', last_name: 'Person' },
      201,
    );
    const before = await scrape();
    const begin = performance.now();
    await school.admin.get(`/api/students/${student.id}`);
    await school.admin.get(`/api/students/${student.id}`);
    const seconds = (performance.now() - begin) / 1000;
    await school.admin.get('/api/students/999999999', 404);
    await school.admin.get('/api/students/no-number?search=Metra', 400);
    await service.anonymous.get(`/api/students/${student.id}`, 401);
    await school.admin.send('PATCH', `/api/students/${student.id}`, {}, 405);
    await service.anonymous.get('/api/secret/path/of/metra', 404);
    await service.anonymous.get('/metra', 404);
    await fetch(`${service.url}/api/health/ready`);
    await fetch(`${service.url}/api/students`, { method: 'PROPFIND' });
    const added = (samples: Sample[], method: string, route: string, status: string) =>
      (value(samples, 'http_request_duration_seconds_count', { method, route, status }) ?? 0) -
      (value(before, 'http_request_duration_seconds_count', { method, route, status }) ?? 0);
    const after = await until(async () => {
      const samples = await scrape();
      return added(samples, 'other', '/api/students', '405') === 1 ? samples : undefined;
    });
    const route = '/api/students/:id';
    expect(
      [
        ['GET', '200'],
        ['GET', '404'],
        ['GET', '400'],
        ['GET', '401'],
        ['PATCH', '405'],
      ].map(([method = '', status = '']) => added(after, method, route, status)),
    ).toEqual([2, 1, 1, 1, 1]);
    expect([added(after, 'GET', 'none', '404'), added(after, 'GET', '/api/health', '200')]).toEqual([2, 1]);
    const labels = { method: 'GET', route, status: '200' };
    const sum = value(after, 'http_request_duration_seconds_sum', labels) ?? 0;
    expect(sum).toBeGreaterThan(0.0005);
    // The server may record the request shortly after the client has the response.
    expect(sum).toBeLessThan(seconds + 0.5);
    expect(value(after, 'http_request_duration_seconds_bucket', { ...labels, le: '+Inf' })).toBe(
      value(after, 'http_request_duration_seconds_count', labels),
    );
    const text = await (await fetch(url)).text();
    expect(text).not.toMatch(
      new RegExp(`metra|Person|secret|students/${student.id}|PROPFIND|${school.subdomain}|@`, 'i'),
    );
  });

  test('reports the pools, the queue, the worker, the finished jobs and the process', async () => {
    await service.database.query(
      "select graphile_worker.add_job('clean_up', run_at => now() + interval '1 hour'), graphile_worker.add_job('no_such_task', run_at => now() - interval '1 minute')",
    );
    await service.database.query(
      "update graphile_worker._private_jobs set created_at = now() - interval '1 minute' where task_id = (select id from graphile_worker._private_tasks where identifier = 'no_such_task')",
    );
    await service.database.query(
      "select graphile_worker.add_job('send_email', '{}', max_attempts => 1), graphile_worker.add_job('purge_tenants')",
    );
    const samples = await until(async () => {
      const found = await scrape();
      // A job is counted when its function returns, and its row changes after that.
      return value(found, 'school_job_duration_seconds_count', { task: 'send_email', outcome: 'failed' }) === 1 &&
        value(found, 'school_jobs', { task: 'send_email', state: 'failed' }) === 1 &&
        (value(found, 'school_job_duration_seconds_count', { task: 'purge_tenants', outcome: 'done' }) ?? 0) > 0
        ? found
        : undefined;
    });
    expect(value(samples, 'school_database_up')).toBe(1);
    expect(value(samples, 'school_worker_alive')).toBe(1);
    expect(value(samples, 'school_jobs', { task: 'clean_up', state: 'waiting' })).toBeGreaterThanOrEqual(1);
    expect(value(samples, 'school_jobs', { task: 'no_such_task', state: 'ready' })).toBe(1);
    expect(value(samples, 'school_job_oldest_ready_seconds', { task: 'no_such_task' })).toBeGreaterThan(59);
    expect(value(samples, 'school_jobs', { task: 'deliver', state: 'running' }) ?? 0).toBe(0);
    expect(value(samples, 'school_database_connections_max', { pool: 'api' })).toBe(10 + 1);
    expect(value(samples, 'school_database_connections_max', { pool: 'worker' })).toBe(6);
    expect(value(samples, 'school_database_connections', { pool: 'worker', state: 'busy' }) ?? 0).toBeGreaterThan(0);
    expect(value(samples, 'school_database_waiting', { pool: 'api' })).toBe(0);
    expect(value(samples, 'school_analytics_oldest_seconds')).toBeGreaterThanOrEqual(0);
    for (const name of ['nodejs_eventloop_lag_p99_seconds', 'process_resident_memory_bytes', 'school_build_info'])
      expect({ name, value: value(samples, name) }).toEqual({ name, value: expect.any(Number) });
    await service.database.query(
      `update graphile_worker._private_jobs set attempts = 3, created_at = now() - interval '1 hour'
       where id in (select id from core.jobs() where task = 'no_such_task')`,
    );
    const repeated = await scrape();
    expect(value(repeated, 'school_jobs_repeated', { task: 'no_such_task' })).toBe(1);
    expect(value(repeated, 'school_jobs_repeated', { task: 'send_email' })).toBe(0);
    expect(value(repeated, 'school_job_oldest_due_seconds', { task: 'no_such_task' })).toBeGreaterThan(3599);
    await service.database.query('delete from graphile_worker._private_jobs');
    const later = await scrape();
    expect([
      value(later, 'school_jobs', { task: 'send_email', state: 'failed' }),
      value(later, 'school_job_oldest_ready_seconds', { task: 'no_such_task' }),
    ]).toEqual([0, 0]);
  });

  test('reports calls of the database by operation, with two series for each', async () => {
    const calls = (samples: Sample[]) =>
      value(samples, 'school_database_call_seconds_count', { operation: 'subjects_list' }) ?? 0;
    const before = calls(await scrape());
    await school.admin.get('/api/subjects');
    const samples = await scrape();
    expect(calls(samples)).toBe(before + 1);
    expect(value(samples, 'school_database_call_seconds_sum', { operation: 'subjects_list' })).toBeGreaterThan(0);
    expect(
      samples
        .filter(({ name, labels }) => name.startsWith('school_database_call') && labels['operation'] === 'students_get')
        .map(({ name }) => name),
    ).toEqual(['school_database_call_seconds_sum', 'school_database_call_seconds_count']);
  });

  test('reports the number of open streams, and does not count them as slow requests', async () => {
    expect(value(await scrape(), 'school_streams_open')).toBe(0);
    const stream = await openStream(service.url, school.admin.token);
    expect(value(await scrape(), 'school_streams_open')).toBe(1);
    await stream.close();
    const samples = await until(async () => {
      const found = await scrape();
      return value(found, 'school_streams_open') === 0 ? found : undefined;
    });
    expect(
      value(samples, 'http_request_duration_seconds_count', { route: '/api/notifications/stream' }),
    ).toBeUndefined();
  });

  test('reports waiting requests, and responds while a school uses all connections that it may', async () => {
    const holder = new pg.Client({ connectionString: service.database.url });
    await holder.connect();
    try {
      await holder.query(`begin; lock table ${school.schema}.student in access exclusive mode`);
      const requests = Array.from({ length: 12 }, () => school.admin.send('GET', '/api/students'));
      const samples = await until(async () => {
        const found = await scrape();
        const busy = value(found, 'school_database_connections', { pool: 'api', state: 'busy' });
        // Two of the ten are kept for other schools.
        return busy === 8 && value(found, 'school_database_waiting', { pool: 'api' }) === 4 ? found : undefined;
      });
      expect(value(samples, 'school_database_up')).toBe(1);
      await holder.query('rollback');
      await Promise.all(requests);
    } finally {
      await holder.end();
    }
  });

  test('responds without queue figures while the database is blocked, and leaves no statement running', async () => {
    const holder = new pg.Client({ connectionString: service.database.url });
    await holder.connect();
    try {
      await holder.query('begin; lock table graphile_worker._private_jobs in access exclusive mode');
      const [samples] = await Promise.all([scrape(), scrape(), scrape()]);
      expect(value(samples, 'school_database_up')).toBe(0);
      for (const name of [
        'school_jobs',
        'school_job_oldest_ready_seconds',
        'school_worker_alive',
        'school_analytics_oldest_seconds',
      ])
        expect({ name, value: value(samples, name) }).toEqual({ name, value: undefined });
      expect(value(samples, 'school_database_connections_max', { pool: 'api' })).toBe(10 + 1);
      const left =
        "select from pg_stat_activity where datname = current_database() and query like '%core.queue%' and state = 'active' and pid <> pg_backend_pid()";
      // Canceled by the statement timeout of one second.
      await until(async () => (await service.database.query(left)).length === 0 || undefined);
    } finally {
      await holder.end();
    }
    expect(value(await scrape(), 'school_database_up')).toBe(1);
  });

  test('queries the database once for concurrent scrapes', async () => {
    await service.database.query(`
      create sequence public.asked;
      alter function core.queue() rename to queue_before;
      create function core.queue() returns json language sql security definer as 'select nextval(''public.asked''), pg_sleep(0.3); select core.queue_before()';
      grant execute on function core.queue() to school_api`);
    try {
      const scrapes = await Promise.all(Array.from({ length: 5 }, () => scrape()));
      expect(scrapes.map((samples) => value(samples, 'school_database_up'))).toEqual([1, 1, 1, 1, 1]);
      expect(await service.database.query('select last_value::integer as asked from public.asked')).toEqual([
        { asked: 1 },
      ]);
    } finally {
      await service.database.query(
        'drop function core.queue(); alter function core.queue_before() rename to queue; drop sequence public.asked',
      );
    }
  });

  test('is not served on the API port, and its own port serves nothing else', async () => {
    for (const path of ['/metrics', '/api/metrics']) expect((await fetch(`${service.url}${path}`)).status).toBe(404);
    const own = new URL(url).origin;
    expect(own).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    for (const path of ['/', '/api/health', '/metrics/x']) expect((await fetch(`${own}${path}`)).status).toBe(404);
    const post = await fetch(url, { method: 'POST' });
    expect([post.status, post.headers.get('allow')]).toEqual([405, 'GET, HEAD']);
    expect((await fetch(url, { method: 'HEAD' })).status).toBe(200);
  });

  test('is off unless a port is set', async () => {
    const plain = await testService();
    expect(plain.metricsUrl).toBeUndefined();
    await plain.close();
  });

  test('listens on loopback by default, and rejects an invalid port or that of the API', () => {
    expect(readConfig({ METRICS_PORT: '9464' })).toMatchObject({ METRICS_PORT: 9464, METRICS_HOST: '127.0.0.1' });
    const problems = (env: Record<string, string>) => {
      try {
        readConfig(env);
        return [];
      } catch (error) {
        return (error as { problems: string[] }).problems;
      }
    };
    for (const METRICS_PORT of ['abc', '70000', '-1'])
      expect(problems({ METRICS_PORT })).toEqual([
        `METRICS_PORT must be a whole number from 0 to 65535, not ${METRICS_PORT}`,
      ]);
    expect(problems({ METRICS_PORT: '4000', PORT: '4000' })).toEqual(['METRICS_PORT must differ from PORT']);
  });
});
