import { describe, expect, test } from '@jest/globals';
import { analystOf, askGraphql, replaceJobsView } from '../support/fixtures/analysts.ts';
import { serviceWithSchool, testPassword } from '../support/server/service.ts';
import { send } from '../support/client/wire.ts';

const { service, school } = await serviceWithSchool();
const query = '{ tenants { totalCount } }';
const introspection = '{ __schema { queryType { name } } }';
const runQuery = (token: string) => askGraphql<{ tenants: { totalCount: number } }>(service, token, query);

describe('/graphql', () => {
  test('serves all operators: analysts and admins', async () => {
    const analyst = await analystOf(service, null);
    for (const { token } of [analyst, service.operator])
      expect(await runQuery(token)).toMatchObject({ status: 200, data: { tenants: { totalCount: 1 } } });
  });

  test('rejects requests without a valid token, including introspection', async () => {
    for (const text of [query, introspection]) {
      expect(await askGraphql(service, '', text)).toMatchObject({
        status: 401,
        error: 'unauthenticated',
        headers: { 'www-authenticate': 'Bearer' },
      });
      expect(await askGraphql(service, 'abc', text)).toMatchObject({ status: 401, error: 'invalid_token' });
    }
  });

  test('rejects users of a school with any role', async () => {
    for (const { token } of [school.admin, await school.user(['teacher'])]) {
      expect(await askGraphql(service, token, introspection)).toMatchObject({
        status: 403,
        error: 'forbidden',
        message: 'This needs a platform operator.',
      });
    }
  });

  test('rejects deactivated operators and ended sessions from the next request on', async () => {
    const analyst = await analystOf(service, null);
    expect((await runQuery(analyst.token)).status).toBe(200);
    const again = await service.anonymous.login({ is_platform: true, email: analyst.email, password: testPassword });
    await analyst.post('/api/auth/logout', undefined, 200);
    expect(await runQuery(analyst.token)).toMatchObject({ status: 401, error: 'invalid_token' });
    expect((await runQuery(again.token)).status).toBe(200);
    await service.database.query('update platform.user_account set is_active = false where email = $1', [
      analyst.email,
    ]);
    expect(await runQuery(again.token)).toMatchObject({ status: 401, error: 'invalid_token' });
  });

  test('is the only API for analysts; an admin who becomes an analyst is limited to their schools', async () => {
    const analyst = await analystOf(service, [school.id]);
    await analyst.get('/api/platform/tenants', 403);
    await service.database.query(
      "update platform.user_account set role = 'admin', analyst_tenant_ids = '{}' where email = $1",
      [analyst.email],
    );
    const admin = await service.anonymous.login({ is_platform: true, email: analyst.email, password: testPassword });
    expect((await runQuery(admin.token)).data.tenants.totalCount).toBe(1);
    await service.database.query("update platform.user_account set role = 'analyst' where email = $1", [analyst.email]);
    expect((await runQuery(admin.token)).data.tenants.totalCount).toBe(0);
  });

  test('accepts only POST, and its responses are not cached', async () => {
    const get = await send(service.url, {
      path: `/graphql?query=${encodeURIComponent(query)}`,
      token: service.operator.token,
      headers: { accept: 'application/json' },
    });
    expect({ status: get.status, allow: get.headers['allow'], error: get.json?.error }).toEqual({
      status: 405,
      allow: 'POST, OPTIONS',
      error: 'method_not_allowed',
    });
    expect(
      (await send(service.url, { method: 'PUT', path: '/graphql', token: service.operator.token, body: { query } }))
        .status,
    ).toBe(405);
    expect((await send(service.url, { path: '/graphql', headers: { accept: 'text/html' } })).headers['location']).toBe(
      '/graphql/ide/',
    );
    expect((await runQuery(service.operator.token)).headers['cache-control']).toBe('private, no-store');
  });

  test('sends the request id', async () => {
    const answer = await send(service.url, {
      method: 'POST',
      path: '/graphql',
      token: service.operator.token,
      body: { query },
      headers: { 'x-request-id': 'mine' },
    });
    expect(answer.headers['x-request-id']).toBe('mine');
  });
});

describe('the database role of queries', () => {
  test('can read only the views, in a read-only transaction', async () => {
    const shown = `concat_ws(' ', session_user = current_user, current_user, current_setting('transaction_read_only'),
      current_setting('transaction_isolation'), current_setting('max_parallel_workers_per_gather'), current_setting('statement_timeout'),
      current_setting('app.analytics_tenants'), (select has_table_privilege(oid, 'select') from pg_class where relname = 'user_account' and relnamespace =
        (select oid from pg_namespace where nspname = 'platform')))`;
    await replaceJobsView(service, { task: shown, count: 1 }, async () => {
      const analyst = await analystOf(service, [7, 3]);
      const { data } = await askGraphql<{ jobs: { nodes: { task: string }[] } }>(
        service,
        analyst.token,
        '{ jobs { nodes { task } } }',
      );
      expect(data.jobs.nodes[0]?.task).toBe('f school_analyst on repeatable read 0 5s ,3,7, f');
    });
  });

  test('sees nothing without a scope; the login role cannot read at all', async () => {
    const client = new shared.pg.Client({ connectionString: service.database.url, options: '-c role=school_graphql' });
    await client.connect();
    try {
      await expect(client.query('select from analytics.tenants')).rejects.toThrow(/permission denied/);
      await client.query('set role school_analyst');
      expect((await client.query('select from analytics.tenants')).rowCount).toBe(0);
      await expect(client.query('select from platform.user_account')).rejects.toThrow(/permission denied/);
    } finally {
      await client.end();
    }
  });
});
