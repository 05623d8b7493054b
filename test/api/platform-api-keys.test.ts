import { createHash } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import type { PlatformApiKey } from '../../src/endpoints/platform-api-keys.ts';
import type { Client } from '../support/client/client.ts';
import type { OutputOf } from '../support/client/output.ts';
import { enable } from '../support/fixtures/second-factors.ts';
import { mailTo } from '../support/fakes/mail.ts';
import { operatorEmail, serviceWithSchool, testPassword, unique } from '../support/server/service.ts';

const { client, passwords, readConfig, startService } = shared;
const { service, school } = await serviceWithSchool({}, 6);
const { operator } = service;
const path = '/api/platform/api-keys';

type ApiKey = OutputOf<typeof PlatformApiKey>;
type NewApiKey = ApiKey & { key: string };

const make = async (fields: Record<string, unknown> = {}, by: Client = operator) =>
  (await by.post<NewApiKey>(path, { name: unique('Key'), role: 'admin', is_read_only: false, ...fields }, 201)).data;
const withKey = (key: string) => service.anonymous.with({ Authorization: `Bearer ${key}` });
/** Invites an operator, who chooses a password and logs in. */
async function colleague(fields: Record<string, unknown> = {}) {
  const email = `${unique('colleague').toLowerCase()}@test.example`;
  const { data } = await operator.post<{ id: number }>(
    '/api/platform/operators',
    { email, first_name: 'Col', last_name: 'League', role: 'admin', ...fields },
    201,
  );
  const { text } = await mailTo(service, email, 'Your account');
  const token = /#token=(\S+)/.exec(text)?.[1];
  await service.anonymous.post('/api/auth/password/reset', { token, password: testPassword });
  const client = await service.anonymous.login({ is_platform: true, email, password: testPassword });
  return { id: data.id, email, client };
}
const refused = { error: 'invalid_token', message: 'The API key is invalid, has expired or was revoked.' };
const inDays = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString();

describe('API keys of the platform', () => {
  test('a key is created, read, changed, used and revoked, and each change is audited', async () => {
    const sent = { name: unique('Billing'), role: 'admin', is_read_only: false, expires_at: '2099-01-01T00:00:00Z' };
    const answer = await operator.post<NewApiKey>(path, sent, 201);
    const { key, ...stored } = answer.data;
    expect(answer.headers.get('location')).toBe(`${path}/${stored.id}`);
    expect(stored).toMatchObject({
      name: sent.name,
      role: 'admin',
      tenant_ids: null,
      is_read_only: false,
      prefix: key.slice(0, 'sk_platform_'.length + 4),
      user_email: operatorEmail,
      last_used_at: null,
    });
    expect((await operator.get<ApiKey>(`${path}/${stored.id}`)).data).toEqual(stored);
    const program = withKey(key);
    const { data: plan } = await program.post<{ id: number }>(
      '/api/platform/plans',
      { name: unique('Plan'), price_monthly: 1, max_students: 1, max_teachers: 1 },
      201,
    );
    expect((await operator.get<ApiKey>(`${path}/${stored.id}`)).data.last_used_at).not.toBeNull();
    const { data: changed } = await operator.put<ApiKey>(`${path}/${stored.id}`, { is_read_only: true });
    expect(changed).toMatchObject({ name: sent.name, is_read_only: true });
    await program.get(`/api/platform/plans/${plan.id}`);
    expect((await program.delete(`/api/platform/plans/${plan.id}`, 403)).error).toBe('forbidden');
    await operator.delete(`${path}/${stored.id}`);
    expect(await program.get('/api/platform/plans', 401)).toMatchObject(refused);
    await operator.get(`${path}/${stored.id}`, 404);

    const { data: log } = await operator.get<
      { action: string; target_type: string; target_id: number; changes: Record<string, { after: unknown }> }[]
    >('/api/platform/audit-logs?pageSize=100');
    const ofKey = log.filter((entry) => entry.target_type === 'api_key' && entry.target_id === stored.id);
    expect(ofKey.map(({ action }) => action)).toEqual(['api_key.revoke', 'api_key.update', 'api_key.create']);
    const byKey = log.find(({ action, target_id }) => action === 'plan.create' && target_id === plan.id);
    expect(byKey?.changes['api_key']?.after).toEqual({ id: stored.id, name: sent.name });
    expect(JSON.stringify(log)).not.toContain(createHash('sha256').update(key).digest('hex'));
  });

  test('a key is only in the response to its creation, and in none to a repeated Idempotency-Key', async () => {
    const sent = { body: { name: unique('Key'), role: 'analyst' }, headers: { 'Idempotency-Key': unique('key') } };
    const { data } = await operator.send<NewApiKey>('POST', path, sent, 201);
    expect((await operator.send<NewApiKey>('POST', path, sent, 201)).data).toEqual({ ...data, key: null });
    const tables = await Promise.all(
      ['api_key', 'idempotency_key', 'audit_log'].map((table) =>
        service.database.query(`select * from platform.${table}`),
      ),
    );
    expect(JSON.stringify(tables)).not.toContain(data.key);
    expect(JSON.stringify(tables[0])).toContain(createHash('sha256').update(data.key).digest('hex'));
    expect(JSON.stringify(await operator.get(path))).not.toContain(data.key);
  });

  test('a key reads only, unless it was made to write', async () => {
    const { key, is_read_only } = await make({ is_read_only: undefined });
    expect(is_read_only).toBe(true);
    const program = withKey(key);
    await program.get('/api/platform/tenants');
    await program.get('/api/platform/audit-logs');
    await program.put(`/api/platform/tenants/${school.id}`, { name: 'Changed' }, 403);
    // An export leaves an audit entry.
    expect((await program.get('/api/platform/tenants/export', 403)).message).toMatch(/only read/);
  });

  test('a key with the role analyst sees the figures of its schools, and manages nothing', async () => {
    const other = await service.school();
    const { key } = await make({ role: 'analyst', tenant_ids: [school.id] });
    const program = withKey(key);
    await program.get('/api/platform/tenants', 403);
    await program.get(`/api/platform/usage?tenant_id=${school.id}`);
    await program.get(`/api/platform/usage?tenant_id=${other.id}`, 404);
    expect((await program.get<{ roles: string[] }>('/api/auth/profile')).data.roles).toEqual(['analyst']);
    const answer = await fetch(`${service.url}/graphql`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
      body: '{"query": "{ tenants { nodes { tenantId } } }"}',
    });
    const { data } = (await answer.json()) as {
      data: { tenants: { nodes: { tenantId: string }[] } };
    };
    expect(data.tenants.nodes.map(({ tenantId }) => Number(tenantId))).toEqual([school.id]);
  });

  test('an analyst makes keys for some of their own schools, and sees only their own keys', async () => {
    const other = await service.school();
    const analyst = await colleague({ role: 'analyst', tenant_ids: [school.id] });
    const foreign = await make({ role: 'analyst' });
    expect(await analyst.client.post(path, { name: 'Key', role: 'admin' }, 403)).toMatchObject({
      error: 'forbidden',
      details: [{ path: 'role' }],
    });
    for (const id of [other.id, 999_999])
      expect(
        await analyst.client.post(path, { name: 'Key', role: 'analyst', tenant_ids: [school.id, id] }, 422),
      ).toMatchObject({ error: 'invalid_reference', message: 'You may not see all of these schools.' });
    const own = await make({ role: 'analyst' }, analyst.client);
    expect((await analyst.client.get<ApiKey[]>(path)).data.map(({ id }) => id)).toEqual([own.id]);
    for (const [method, body] of [['GET'], ['PUT', { name: 'Mine' }], ['DELETE']] as const)
      await analyst.client.send(method, `${path}/${foreign.id}`, { body }, 404);
    await analyst.client.put(`${path}/${own.id}`, { role: 'admin' }, 403);
    // Without a list, the key sees what the analyst may see at that time.
    const program = withKey(own.key);
    await program.get(`/api/platform/usage?tenant_id=${other.id}`, 404);
    await operator.put(`/api/platform/operators/${analyst.id}`, { tenant_ids: [other.id] });
    await program.get(`/api/platform/usage?tenant_id=${other.id}`);
    await program.get(`/api/platform/usage?tenant_id=${school.id}`, 404);
  });

  test('a key has the lesser of both roles and stops with its operator', async () => {
    const admin = await colleague();
    const limited = await make({ role: 'analyst', tenant_ids: [school.id] }, admin.client);
    const { key, id } = await make({}, admin.client);
    const program = withKey(key);
    await program.get('/api/platform/plans');
    const change = (body: object) => operator.put(`/api/platform/operators/${admin.id}`, body);
    await change({ role: 'analyst' });
    await program.get('/api/platform/plans', 403);
    await program.get('/api/platform/usage');
    // No school is in both lists.
    const other = await service.school();
    await change({ tenant_ids: [other.id] });
    await withKey(limited.key).get(`/api/platform/usage?tenant_id=${school.id}`, 404);
    await withKey(limited.key).get(`/api/platform/usage?tenant_id=${other.id}`, 404);
    await change({ is_active: false });
    expect(await program.get('/api/platform/usage', 401)).toMatchObject(refused);
    await change({ is_active: true });
    await program.get('/api/platform/usage');
    await operator.delete(`${path}/${id}`);
    expect(await program.get('/api/platform/usage', 401)).toMatchObject(refused);
  });

  test('only its operator changes a key, and an admin can revoke it', async () => {
    const admin = await colleague();
    const { id } = await make({}, admin.client);
    expect((await operator.put(`${path}/${id}`, { name: 'Mine' }, 403)).message).toMatch(/Only the user who made/);
    await operator.delete(`${path}/${id}`);
  });

  test('lists are paged, searched, filtered and sorted', async () => {
    const admin = await colleague();
    const first = await make({ name: 'Éclair' }, admin.client);
    const second = await make({ name: 'library', role: 'analyst', tenant_ids: [school.id] }, admin.client);
    await service.database.query(
      `update platform.api_key set expires_at = now() - interval '1 hour' where id = ${second.id}`,
    );
    const ids = async (query: string) =>
      (await operator.get<ApiKey[]>(`${path}?user_id=${admin.id}&${query}`)).data.map(({ id }) => id);
    expect(await ids('search=eclair')).toEqual([first.id]);
    expect(await ids(`search=${admin.email}`)).toEqual([first.id, second.id]);
    expect(await ids('role=analyst')).toEqual([second.id]);
    expect(await ids('is_expired=true')).toEqual([second.id]);
    expect(await ids('is_expired=false')).toEqual([first.id]);
    expect(await ids('sort=name&order=desc')).toEqual([first.id, second.id]);
    expect(await ids('sort=-last_used_at&pageSize=1&page=2')).toHaveLength(1);
    expect(await withKey(second.key).get('/api/platform/usage', 401)).toMatchObject(refused);
  });

  test('fields are checked', async () => {
    const wrong: [Record<string, unknown>, number][] = [
      [{ role: 'owner' }, 400],
      [{ role: 'admin', tenant_ids: [school.id] }, 400],
      [{ role: 'analyst', tenant_ids: [] }, 400],
      [{ role: 'analyst', tenant_ids: [999_999] }, 422],
      [{ expires_at: inDays(-1) }, 400],
      [{ name: '' }, 400],
      [{ prefix: 'sk_platform_0000' }, 400],
    ];
    for (const [fields, status] of wrong)
      await operator.post(path, { name: unique('Key'), role: 'admin', ...fields }, status);
    const { id } = await make({ role: 'analyst', tenant_ids: [school.id] });
    // A key that becomes one of an admin is not limited to schools any more.
    expect((await operator.put<ApiKey>(`${path}/${id}`, { role: 'admin' })).data.tenant_ids).toBeNull();
    await operator.put(`${path}/${id}`, { tenant_ids: [school.id] }, 400);
  });

  test('an operator has at most 20 keys', async () => {
    const admin = await colleague();
    await service.database.query(
      `insert into platform.api_key (user_id, name, role, prefix, key_hash)
       select $1, 'Key', 'admin', 'sk_platform_0000', encode(sha256(uuid_send(gen_random_uuid())), 'hex')
       from generate_series(1, 20)`,
      [admin.id],
    );
    expect((await admin.client.post(path, { name: 'Key', role: 'admin' }, 409)).error).toBe('conflict');
  });
});

describe('the settings of the service', () => {
  test('can limit the lifetime of keys, and require a second factor to make one', async () => {
    const admin = await colleague();
    const config = readConfig({
      PORT: '0',
      NODE_ENV: 'test',
      LOG_LEVEL: 'silent',
      JWT_SECRETS: 'a secret of the tests that is long enough',
      API_KEY_MAX_DAYS: '30',
      OPERATORS_NEED_SECOND_FACTOR: 'true',
    });
    const process = await startService(config, service.database.url, ['api'], {
      hashing: passwords({ memoryCost: 64 }),
    });
    try {
      // A session from before the setting.
      const own = (await client(process.url ?? '')).with({ Authorization: `Bearer ${admin.client.token}` });
      const body = { name: 'Key', role: 'admin', expires_at: inDays(29) };
      expect(await own.post(path, body, 403)).toMatchObject({
        error: 'forbidden',
        message: 'Set up a second factor first. Operators need one here.',
      });
      await enable(own);
      await own.post(path, { ...body, expires_at: undefined }, 400);
      await own.post(path, { ...body, expires_at: inDays(31) }, 400);
      const { data } = await own.post<NewApiKey>(path, body, 201);
      await own.put(`${path}/${data.id}`, { expires_at: null }, 400);
      await withKey(data.key).get('/api/platform/plans');
    } finally {
      await process.close();
    }
  });
});
