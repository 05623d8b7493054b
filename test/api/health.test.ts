import { describe, expect, test } from '@jest/globals';
import packageJson from '../../package.json' with { type: 'json' };
import { raw } from '../support/client/raw.ts';
import { serviceOfFile } from '../support/server/service.ts';

const service = await serviceOfFile({ RATE_LIMIT_PER_MINUTE: '2', PUBLIC_RATE_LIMIT_PER_MINUTE: '2' });

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
    expect((await service.anonymous.get('/api/health/ready')).data).toMatchObject({
      status: 'ready',
      tenants_behind: 1,
    });
    await service.database.query('delete from platform.tenant where id = $1', [row?.id]);
    expect((await service.anonymous.get('/api/health/ready')).data).toMatchObject({ tenants_behind: 0 });
  });

  test('is not ready, with the reason, when another version is installed', async () => {
    const [installed] = await service.database.query<{ fingerprint: string }>(
      'select fingerprint from platform.installation',
    );
    await service.database.query("update platform.installation set fingerprint = 'another'");
    const answer = await service.anonymous.get('/api/health/ready', 503);
    expect(answer).toMatchObject({
      error: 'unavailable',
      data: { status: 'not_ready', database: true, migrations: false, worker: true },
    });
    expect(answer.headers.get('retry-after')).toBe('1');
    await service.database.query('update platform.installation set fingerprint = $1', [installed?.fingerprint]);
    await service.anonymous.get('/api/health/ready');
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
