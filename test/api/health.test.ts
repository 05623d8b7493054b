import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { describe, expect, test } from '@jest/globals';
import packageJson from '../../package.json' with { type: 'json' };
import { raw } from '../support/client/raw.ts';
import { until } from '../support/client/until.ts';
import { send } from '../support/client/wire.ts';
import { testDatabase } from '../support/server/database.ts';
import { serviceOfFile } from '../support/server/service.ts';

const { readConfig, startService } = shared;

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
        reasons: [],
        service: packageJson.name,
        version: packageJson.version,
        database: true,
        migrations: true,
        worker: true,
        tenants_behind: 0,
        writes: true,
      },
    ]);
  });

  test('is degraded, and not unavailable, while schools wait for a migration', async () => {
    const [row] = await service.database.query<{ id: string }>(
      "insert into platform.tenant (name, subdomain, plan_id, contact_email) values ('Behind', 'behind', 1, 'office@behind.example') returning id",
    );
    await readyAs({ status: 200, data: { status: 'degraded', reasons: ['tenants_behind'], tenants_behind: 1 } });
    await service.database.query('delete from platform.tenant where id = $1', [row?.id]);
    await readyAs({ status: 200, data: { status: 'ready', tenants_behind: 0 } });
  });

  test('is degraded after a write that the disk refuses, until a write succeeds; the metrics tell', async () => {
    const school = await service.school();
    await service.database.query(
      `create function public.fill_disk() returns trigger language plpgsql as
         $$ begin raise exception 'could not extend file: No space left on device' using errcode = 'disk_full'; end $$;
       create trigger fill_disk before insert on ${school.schema}.subject execute function public.fill_disk()`,
    );
    const create = () => school.admin.send('POST', '/api/subjects', { body: { name: 'Art', code: 'ART' } });
    expect((await create()).status).toBe(503);
    expect((await service.operator.get('/api/platform/system')).status).toBe(200);
    const { json } = await readyAs({ status: 200, data: { status: 'degraded', reasons: ['writes'], writes: false } });
    expect(json?.success).toBe(true);
    const metrics = async () => await (await fetch(service.metricsUrl ?? '')).text();
    expect(await metrics()).toMatch(/^school_writes_failing 1$/m);
    await service.database.query(
      `drop trigger fill_disk on ${school.schema}.subject; drop function public.fill_disk()`,
    );
    expect((await create()).status).toBe(201);
    await readyAs({ status: 200, data: { status: 'ready', reasons: [], writes: true } });
    expect(await metrics()).toMatch(/^school_writes_failing 0$/m);
    expect(await metrics()).toMatch(/^school_tenants_behind 0$/m);
  });

  test('is degraded without a worker', async () => {
    const database = await testDatabase();
    const folder = await mkdtemp(join(tmpdir(), 'school-health-'));
    const api = await startService(
      readConfig({ PORT: '0', NODE_ENV: 'test', DATA_DIR: folder, LOG_LEVEL: 'silent' }),
      database.url,
      ['api'],
    );
    try {
      const response = await fetch(`${api.url ?? ''}/api/health/ready`);
      expect([response.status, await response.json()]).toMatchObject([
        200,
        { success: true, data: { status: 'degraded', reasons: ['worker'], worker: false } },
      ]);
    } finally {
      await api.close();
      await database.drop();
      await rm(folder, { recursive: true, force: true });
    }
  });

  test('is not ready, with the reason, when another version is installed', async () => {
    const [installed] = await service.database.query<{ fingerprint: string }>(
      'select fingerprint from platform.installation',
    );
    await service.database.query("update platform.installation set fingerprint = 'another'");
    const answer = await readyAs({
      status: 503,
      data: { status: 'not_ready', reasons: ['migrations'], database: true, migrations: false, worker: true },
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
