import { readFileSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { pino } from 'pino';
import { analyticsProcess } from '../../src/analytics/process.ts';
import { analystOf, askGraphql, replaceJobsView } from '../support/fixtures/analysts.ts';
import { runProgram } from '../support/server/processes.ts';
import { serviceOfFile } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

const { readConfig, startService } = shared;

const service = await serviceOfFile();
const analyst = await analystOf(service, null);
const runQuery = () =>
  askGraphql<{ tenants: { totalCount: number } | null }>(service, analyst.token, '{ tenants { totalCount } }');

const options = {
  url: service.database.url,
  isOwnLogIn: false,
  connections: 1,
  timeouts: { statementTimeoutMs: 5_000, requestTimeoutMs: 10_000 },
  logger: pino({ level: 'silent' }),
};
const emptyQuery = { query: '{ __typename }', variables: {}, operationName: undefined, scope: 'all' as const };

/** The analytics processes that this process has started. */
async function running(): Promise<number[]> {
  const tasks = await readFile(`/proc/${process.pid}/task/${process.pid}/children`, 'utf8');
  const ids = tasks.split(' ').filter(Boolean).map(Number);
  const lines = await Promise.all(ids.map((id) => readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => '')));
  return ids.filter((_, index) => /\b(src\/analytics\/main\.ts|dist\/analytics\/main\.mjs)/.test(lines[index] ?? ''));
}

test('docs/analytics.graphql is current: update it with `npm run -s school -- graphql-schema > docs/analytics.graphql`', async () => {
  const { stdout, stderr } = await runProgram('src/cli/main.ts', ['graphql-schema'], {
    DATABASE_URL: service.database.url,
  });
  expect(stderr).toBe('');
  expect(stdout).toBe(readFileSync(new URL('../../docs/analytics.graphql', import.meta.url), 'utf8'));
  expect(stdout).not.toMatch(/type Mutation|type Subscription/);
});

// The test reads /proc.
const testOnLinux = process.platform === 'linux' ? test : test.skip;

describe('the analytics process', () => {
  testOnLinux('starts with the first query, at low priority, and its environment contains no secret', async () => {
    expect(await running()).toEqual([]);
    expect((await runQuery()).data).toEqual({ tenants: { totalCount: 0 } });
    const [pid] = await running();
    const environment = await readFile(`/proc/${String(pid)}/environ`, 'utf8');
    expect(
      environment
        .split('\0')
        .map((line) => line.split('=')[0])
        .filter(Boolean)
        .sort(),
    ).toEqual([
      'GRAPHILE_ENV',
      'NODE_CHANNEL_FD',
      'NODE_CHANNEL_SERIALIZATION_MODE',
      'NODE_COMPILE_CACHE',
      'NODE_ENV',
      'PATH',
      'UV_THREADPOOL_SIZE',
    ]);
    expect(await readFile(`/proc/${String(pid)}/stat`, 'utf8')).toMatch(/\) \S+ (\S+ ){15}10 /);
  });

  testOnLinux('is replaced after a kill, and the query that was running gets a 503', async () => {
    const [pid] = await running();
    await replaceJobsView(service, { task: 'pg_sleep(3)::text', count: 1 }, async () => {
      const waiting = askGraphql(service, analyst.token, '{ jobs { nodes { task } } }');
      await until(
        async () =>
          (
            await service.database.query(
              `select from pg_stat_activity
               where datname = current_database() and query like '%analytics%jobs%'
                 and application_name = 'school_graphql'`,
            )
          ).length || undefined,
      );
      process.kill(pid ?? 0, 'SIGKILL');
      expect(await waiting).toMatchObject({ status: 503, error: 'unavailable', headers: { 'retry-after': '5' } });
    });
    expect((await runQuery()).data).toEqual({ tenants: { totalCount: 0 } });
    expect(await running()).not.toEqual([pid]);
  });

  testOnLinux('starts with the service if there are analysts', async () => {
    const before = await running();
    const config = readConfig({
      PORT: '0',
      NODE_ENV: 'test',
      DATA_DIR: await mkdtemp(join(tmpdir(), 'school-data-')),
      LOG_LEVEL: 'silent',
      JWT_SECRETS: 'a secret of the tests that is long enough',
    });
    const second = await startService(config, service.database.url, ['api']);
    try {
      await until(async () => (await running()).length > before.length || undefined);
    } finally {
      await second.close();
      await rm(config.DATA_DIR, { recursive: true });
    }
    expect(await running()).toEqual(before);
  });

  testOnLinux('stays while it is idle if it is kept, and exits afterwards', async () => {
    const before = await running();
    const process = analyticsProcess({ ...options, idleTimeoutMs: 1 });
    const started = async () => (await running()).filter((pid) => !before.includes(pid));
    try {
      process.keepRunning(true);
      const [pid] = await until(async () => ((await started()).length > 0 ? await started() : undefined));
      await process.run(emptyQuery);
      await process.run(emptyQuery);
      expect(await started()).toEqual([pid]);
      process.keepRunning(false);
      await until(async () => (await started()).length === 0 || undefined);
    } finally {
      await process.close();
    }
  });

  testOnLinux('exits when idle, however often the service finds that it has no analysts', async () => {
    const before = await running();
    const process = analyticsProcess({ ...options, idleTimeoutMs: 1_000 });
    try {
      await process.run(emptyQuery);
      await until(async () => {
        process.keepRunning(false);
        return (await running()).every((pid) => before.includes(pid)) || undefined;
      });
    } finally {
      await process.close();
    }
  });

  test('exits when idle, and a query at that moment is run by a new process', async () => {
    const process = analyticsProcess({ ...options, idleTimeoutMs: 1 });
    try {
      for (const wait of [3, 5]) {
        const { body } = await process.run(emptyQuery);
        expect(Buffer.from(body).toString()).toBe('{"data":{"__typename":"Query"}}');
        await new Promise((done) => setTimeout(done, wait));
      }
    } finally {
      await process.close();
    }
  });

  test('recovers after its connections were terminated', async () => {
    await runQuery();
    await service.database.query(
      "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'school_graphql' and datname = current_database()",
    );
    // A query can still fail until the process has noticed.
    expect(await until(async () => (await runQuery()).data.tenants ?? undefined)).toEqual({ totalCount: 0 });
  });
});
