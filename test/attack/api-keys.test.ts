import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { checksums } from '../support/database/traces.ts';
import { populate } from '../support/fixtures/populate.ts';
import { errorMismatch, send, type Sent } from '../support/client/wire.ts';
import { share } from '../support/client/share.ts';
import {
  findErrors,
  isAnonymous,
  isForSchools,
  type Registered,
  registry,
  sampleRequest,
} from '../support/server/registry.ts';
import { type School, testService, unique } from '../support/server/service.ts';

const service = await testService();
afterAll(() => service.close());
const { endpoints, document } = await registry(service);
const protectedEndpoints = endpoints.filter((endpoint) => !isAnonymous(endpoint));
const ofSchools = endpoints.filter(isForSchools);
const takesKey = ({ operation }: Registered) => !operation.needs_session;

/** The id of the one record in every table of the school. */
const id = 500_001;

let school: School;
let other: School;
let allPermissions: string[];

beforeAll(async () => {
  school = await service.school();
  other = await service.school();
  await populate(service, school, { endpoints, document }, id - 1, 'School');
  const { data } = await school.admin.get<{ name: string }[]>('/api/rbac/permissions');
  allPermissions = data.map(({ name }) => name);
}, 180_000);

const make = async (permissions: string[], of: School = school) =>
  (await of.admin.post<{ id: number; key: string }>('/api/api-keys', { name: unique('Key'), permissions }, 201)).data;

const request = (endpoint: Registered, token: string, at = id, headers: Record<string, string> = {}) => {
  const sample: Sent = sampleRequest(document, endpoint, { id: at });
  return send(service.url, { ...sample, headers: { ...sample.headers, ...headers }, token });
};

/** A well-formed key of a school that was never made. */
function invented(tenantId: number | string): string {
  const unchecked = `sk_${tenantId}_${createHash('sha256').update(unique('key')).digest('hex').slice(0, 43)}`;
  return unchecked + createHash('sha256').update(unchecked).digest('hex').slice(0, 8);
}

/** The stored data that a request could change. The use of a key changes `api_key`. */
const contents = async () => {
  const sums = { ...(await checksums(service.database, school.schema, 'platform')) };
  return Object.fromEntries(Object.entries(sums).filter(([table]) => !table.endsWith('api_key')));
};

describe('an API key', () => {
  test('is refused by the operations of this list, by those of operators and by no other one', async () => {
    expect(
      ofSchools
        .filter((endpoint) => !takesKey(endpoint))
        .map(({ operation }) => operation.name)
        .toSorted(),
    ).toEqual(
      [
        ...['api_keys_create', 'api_keys_delete', 'api_keys_get', 'api_keys_list', 'api_keys_update'],
        ...['attendance_me', 'attendance_my_classes'],
        ...['me_children_dashboard', 'me_children_list'],
        ...['auth_logout', 'auth_password_change', 'auth_profile_picture', 'auth_profile_picture_set'],
        ...['auth_profile_update', 'auth_recovery_codes_create', 'auth_sessions_delete', 'auth_sessions_list'],
        ...['auth_totp_begin', 'auth_totp_confirm', 'auth_two_factor', 'auth_two_factor_delete'],
        ...['devices_delete', 'devices_register', 'devices_web_push_key'],
        ...['notifications_delete', 'notifications_list', 'notifications_read', 'notifications_read_all'],
        ...['notifications_stream', 'notifications_stream_token'],
        ...['schedule_feeds_create', 'schedule_feeds_delete', 'schedule_feeds_get', 'schedule_feeds_list'],
        ...['schedule_today', 'students_me_dashboard', 'teachers_me', 'teachers_me_classes'],
        ...['users_second_factor_delete', 'users_sessions_delete', 'users_sessions_list'],
      ].toSorted(),
    );
    const { key } = await make(allPermissions);
    const before = await contents();
    const lines = await findErrors(
      protectedEndpoints.filter((endpoint) => !isForSchools(endpoint) || !takesKey(endpoint)),
      async (endpoint) => errorMismatch(await request(endpoint, key), 403, 'forbidden'),
    );
    expect(lines).toEqual([]);
    expect(await contents()).toEqual(before);
  });

  test('with all permissions of an admin can do what the admin can do, at every operation that takes keys', async () => {
    const { key } = await make(allPermissions);
    const lines = await findErrors(
      ofSchools.filter((endpoint) => takesKey(endpoint) && endpoint.operation.role === null),
      async (endpoint) => {
        const [byKey, byAdmin] = [
          await request(endpoint, key, 999_999_999),
          await request(endpoint, school.admin.token, 999_999_999),
        ];
        if ([401, 403].includes(byKey.status)) return byKey.text;
        // A second create may conflict with the first one.
        return byKey.status === byAdmin.status || endpoint.operation.writes
          ? undefined
          : `${byKey.text} ${byAdmin.text}`;
      },
    );
    expect(lines).toEqual([]);
  });

  test('without the permission of an operation is refused, also where users need none, and changes nothing', async () => {
    const before = await contents();
    const guarded = endpoints.filter(({ operation }) => operation.permission !== null && !operation.needs_session);
    const byPermission = Map.groupBy(guarded, ({ operation }) => operation.permission ?? '');
    for (const [permission, needing] of byPermission) {
      const { id: keyId, key } = await make(allPermissions.filter((name) => name !== permission));
      const lines = await findErrors(needing, async (endpoint) => {
        const answer = await request(endpoint, key);
        return (
          errorMismatch(answer, 403, 'forbidden') ??
          (answer.json?.message === `This needs the permission ${permission}.` ? undefined : answer.text)
        );
      });
      expect(lines).toEqual([]);
      await school.admin.delete(`/api/api-keys/${keyId}`);
    }
    expect(byPermission.size).toBeGreaterThan(30);
    const after = await contents();
    // Making and revoking keys is audited.
    expect({ ...after, 'platform.audit_log': null, audit_log: null }).toEqual({
      ...before,
      'platform.audit_log': null,
      audit_log: null,
    });
  });

  test('of another school finds no record of this one, and cannot name it by X-Tenant-ID', async () => {
    const permissions = allPermissions;
    const { key } = await make(permissions, other);
    const before = await contents();
    const withId = ofSchools.filter(
      (endpoint) => takesKey(endpoint) && endpoint.parameters.includes('id') && endpoint.operation.record !== null,
    );
    expect(withId.length).toBeGreaterThan(30);
    expect(
      await findErrors(withId, async (endpoint) => errorMismatch(await request(endpoint, key), 404, 'not_found')),
    ).toEqual([]);
    expect(
      await findErrors(ofSchools.filter(takesKey), async (endpoint) =>
        errorMismatch(await request(endpoint, key, id, { 'x-tenant-id': String(school.id) }), 403, 'tenant_mismatch'),
      ),
    ).toEqual([]);
    expect(await contents()).toEqual(before);
  });

  const forgeries: [string, () => Promise<string>][] = [
    ['a key that was never made', () => Promise.resolve(invented(school.id))],
    ['a key of a school that does not exist', () => Promise.resolve(invented(999_999))],
    ['a key of school 0', () => Promise.resolve(invented(0))],
    ['a key of the largest number', () => Promise.resolve(invented('9'.repeat(15)))],
    ['a key of a number that is too large', () => Promise.resolve(invented('9'.repeat(30)))],
    ['a key with SQL in its school', () => Promise.resolve(invented('1;select'))],
    ['a value that only begins like a key', () => Promise.resolve('sk_garbage')],
    ['a key with another checksum', async () => `${(await make(['student.read'])).key.slice(0, -8)}00000000`],
    ['a key with another case', async () => (await make(['student.read'])).key.toUpperCase().replace('SK', 'sk')],
    [
      'the hash of a key',
      async () =>
        createHash('sha256')
          .update((await make(['student.read'])).key)
          .digest('hex'),
    ],
    [
      'a key with the number of another school',
      async () => {
        const { key } = await make(allPermissions);
        const moved = key.slice(0, -8).replace(`sk_${school.id}_`, `sk_${other.id}_`);
        return moved + createHash('sha256').update(moved).digest('hex').slice(0, 8);
      },
    ],
    [
      'a revoked key',
      async () => {
        const { id: keyId, key } = await make(allPermissions);
        await school.admin.delete(`/api/api-keys/${keyId}`);
        return key;
      },
    ],
    [
      'an expired key',
      async () => {
        const { id: keyId, key } = await make(allPermissions);
        await service.database.query(
          `update ${school.schema}.api_key set expires_at = now() - interval '1 second' where id = ${keyId}`,
        );
        return key;
      },
    ],
    [
      'a key of a deactivated user',
      async () => {
        const user = await school.user(['admin']);
        const { data } = await user.post<{ key: string }>(
          '/api/api-keys',
          { name: unique('Key'), permissions: allPermissions },
          201,
        );
        await school.admin.put(`/api/users/${user.id}`, { is_active: false });
        return data.key;
      },
    ],
  ];

  test.each(forgeries.map(([name, forge], n) => ({ name, forge, n })))(
    '$name gets 401 invalid_token at every protected endpoint, and changes nothing',
    async ({ forge, n }) => {
      const token = await forge();
      const before = await contents();
      const lines = await findErrors(share(protectedEndpoints, n, 3), async (endpoint) =>
        errorMismatch(await request(endpoint, token), 401, 'invalid_token'),
      );
      expect(lines).toEqual([]);
      expect(await contents()).toEqual(before);
    },
  );

  test('is ignored in the query, in a cookie, as a refresh token and as a stream token', async () => {
    const { key } = await make(allPermissions);
    const asked = await Promise.all([
      send(service.url, { path: `/api/students?access_token=${key}` }),
      send(service.url, { path: '/api/students', headers: { cookie: `access_token=${key}` } }),
      send(service.url, { path: '/api/students', headers: { 'x-api-key': key } }),
      send(service.url, { path: '/api/students', headers: { authorization: `Basic ${key}` } }),
      send(service.url, { path: `/api/notifications/stream?token=${key}` }),
      send(service.url, { method: 'POST', path: '/api/auth/refresh', headers: { 'x-refresh-token': key } }),
    ]);
    expect(asked.map(({ json }) => json?.error)).toEqual([
      ...['unauthenticated', 'unauthenticated', 'unauthenticated'],
      ...['invalid_token', 'invalid_token', 'invalid_token'],
    ]);
  });

  test('cannot run GraphQL queries', async () => {
    const { key } = await make(allPermissions);
    const query = (token: string) =>
      send(service.url, { method: 'POST', path: '/graphql', token, body: { query: '{ __typename }' } });
    expect(errorMismatch(await query(key), 403, 'forbidden')).toBeUndefined();
    expect(errorMismatch(await query(invented(school.id)), 401, 'invalid_token')).toBeUndefined();
  });

  test('of a suspended school gets 403 tenant_suspended at every operation that takes keys', async () => {
    const { key } = await make(allPermissions, other);
    await service.operator.post(`/api/platform/tenants/${other.id}/suspend`);
    const lines = await findErrors(ofSchools.filter(takesKey), async (endpoint) =>
      errorMismatch(await request(endpoint, key), 403, 'tenant_suspended'),
    );
    expect(lines).toEqual([]);
    expect(
      errorMismatch(
        await send(service.url, { path: '/api/students', token: invented(other.id) }),
        401,
        'invalid_token',
      ),
    ).toBeUndefined();
    await service.operator.post(`/api/platform/tenants/${other.id}/activate`);
    expect((await send(service.url, { path: '/api/students', token: key })).status).toBe(200);
  });
});
