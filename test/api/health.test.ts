import { isDeepStrictEqual } from 'node:util';
import { describe, expect, test } from '@jest/globals';
import packageJson from '../../package.json' with { type: 'json' };
import { raw } from '../support/client/raw.ts';
import { until } from '../support/client/until.ts';
import { send } from '../support/client/wire.ts';
import { serviceOfFile } from '../support/server/service.ts';

/** Repeats the request until the answer is current: an answer is cached for a second. */
const readyAs = (expected: { status: number; data: object }) =>
  until(async () => {
    const answer = await send(service.url, { path: '/api/health/ready' });
    const data = answer.json?.data as object;
    const isExpected = answer.status === expected.status && isDeepStrictEqual({ ...data, ...expected.data }, data);
    return isExpected ? answer : undefined;
  });

const service = await serviceOfFile({
  METRICS_PORT: '0',
  RATE_LIMIT_PER_MINUTE: '2',
  PUBLIC_RATE_LIMIT_PER_MINUTE: '2',
});

describe('health', () => {
  test('returns status, service and version without a login', async () => {
    const { data, status } = await service.anonymous.get('/api/health');
    expect([status, data]).toEqual([200, { status: 'ok', service: packageJson.name, version: packageJson.version }]);
  });

  test('supports HEAD', async () => {
    const answer = await raw(service.url, { method: 'HEAD', path: '/api/health' });
    expect([answer.status, answer.body]).toEqual([200, '']);
  });

  test('is ready when database, migrations and worker are ready', async () => {
    const { data, status } = await service.anonymous.get('/api/health/ready');
    expect([status, data]).toEqual([
      200,
      {
        status: 'ready',
        service: packageJson.name,
        version: packageJson.version,
        database: true,
        migrations: true,
        worker: true,
        tenants_behind: 0,
      },
    ]);
  });

  test('counts schools with an outdated schema', async () => {
    const [row] = await service.database.query<{ id: string }>(
      "insert into platform.tenant (name, subdomain, plan_id, contact_email) values ('Behind', 'behind', 1, 'office@behind.example') returning id",
    );
    await readyAs({ status: 200, data: { status: 'ready', tenants_behind: 1 } });
    await service.database.query('delete from platform.tenant where id = $1', [row?.id]);
    await readyAs({ status: 200, data: { tenants_behind: 0 } });
  });

  test('is not ready, with the reason, when another version is installed', async () => {
    const [installed] = await service.database.query<{ fingerprint: string }>(
      'select fingerprint from platform.installation',
    );
    await service.database.query("update platform.installation set fingerprint = 'another'");
    const answer = await readyAs({
      status: 503,
      data: { status: 'not_ready', database: true, migrations: false, worker: true },
    });
    expect(answer.json?.error).toBe('unavailable');
    expect(answer.headers['retry-after']).toBe('1');
    await service.database.query('update platform.installation set fingerprint = $1', [installed?.fingerprint]);
    // Only "ready" is cached.
    await service.anonymous.get('/api/health/ready');
  });

  test('asks the database at most once a second while it is ready', async () => {
    const statements = async () => {
      const text = await (await fetch(service.metricsUrl ?? '')).text();
      return [...text.matchAll(/^school_database_checkouts_total\{.*\} (\d+)$/gm)].reduce(
        (sum, [, n]) => sum + Number(n),
        0,
      );
    };
    await readyAs({ status: 200, data: {} });
    const before = await statements();
    for (let n = 0; n < 10; n++)
      await Promise.all(Array.from({ length: 20 }, () => service.anonymous.get('/api/health/ready')));
    expect((await statements()) - before).toBeLessThan(100);
  });

  test('has no rate limit', async () => {
    for (let n = 0; n < 10; n++) expect((await service.anonymous.get('/api/health')).status).toBe(200);
  });

  test('rejects other methods with a 405, and unknown paths below it with a 404', async () => {
    for (const path of ['/api/health', '/api/health/ready']) {
      const refused = await service.anonymous.post(path, undefined, 405);
      expect([refused.error, refused.headers.get('allow')]).toEqual(['method_not_allowed', 'GET, HEAD']);
    }
    expect((await service.anonymous.get('/api/health/nothing', 404)).error).toBe('not_found');
  });
});
