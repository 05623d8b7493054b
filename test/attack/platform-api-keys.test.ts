import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { checksums } from '../support/database/traces.ts';
import { errorMismatch, send } from '../support/client/wire.ts';
import {
  findErrors,
  isAnonymous,
  isForOperators,
  type Registered,
  registry,
  sampleRequest,
} from '../support/server/registry.ts';
import { type School, testService, unique } from '../support/server/service.ts';

const service = await testService();
afterAll(() => service.close());
const { endpoints, document } = await registry(service);
const protectedEndpoints = endpoints.filter((endpoint) => !isAnonymous(endpoint));
const ofOperators = endpoints.filter(isForOperators);
const takesKey = ({ operation }: Registered) => !operation.needs_session;

let school: School;
beforeAll(async () => {
  school = await service.school();
});

const make = async (fields: Record<string, unknown> = {}) =>
  (
    await service.operator.post<{ id: number; key: string }>(
      '/api/platform/api-keys',
      { name: unique('Key'), role: 'admin', is_read_only: false, ...fields },
      201,
    )
  ).data;
const request = (endpoint: Registered, token: string) =>
  send(service.url, { ...sampleRequest(document, endpoint, { id: 999_999_999 }), token });
/** A well-formed key that was never made. */
function invented(owner: string | number): string {
  const unchecked = `sk_${owner}_${createHash('sha256').update(unique('key')).digest('hex').slice(0, 43)}`;
  return unchecked + createHash('sha256').update(unchecked).digest('hex').slice(0, 8);
}
/** The stored data that a request could change. The use of a key changes `api_key`. */
const contents = async () =>
  Object.fromEntries(
    Object.entries(await checksums(service.database, school.schema, 'platform')).filter(
      ([table]) => !table.endsWith('api_key'),
    ),
  );

describe('an API key of the platform', () => {
  test('is refused by the operations of this list, by those of schools and by no other one', async () => {
    expect(
      ofOperators
        .filter((endpoint) => !takesKey(endpoint))
        .map(({ operation }) => operation.name)
        .toSorted(),
    ).toEqual(
      [
        ...['auth_passkeys_begin', 'auth_passkeys_create', 'auth_passkeys_delete'],
        ...['platform_api_keys_create', 'platform_api_keys_delete', 'platform_api_keys_get', 'platform_api_keys_list'],
        ...['platform_api_keys_update', 'platform_operators_create', 'platform_operators_get'],
        ...['platform_operators_invite', 'platform_operators_list', 'platform_operators_second_factor_reset'],
        ...['platform_operators_update', 'platform_questions_create', 'platform_questions_delete'],
        ...['platform_questions_update', 'platform_system_stream', 'platform_tenants_impersonate'],
        ...['platform_webhooks_create'],
        ...['platform_webhooks_delete', 'platform_webhooks_deliveries_list', 'platform_webhooks_deliveries_replay'],
        ...['platform_webhooks_get', 'platform_webhooks_list', 'platform_webhooks_rotate_secret'],
        ...['platform_webhooks_test', 'platform_webhooks_update'],
      ].toSorted(),
    );
    const { key } = await make();
    const before = await contents();
    const refused = protectedEndpoints.filter(
      (endpoint) => endpoint.operation.access === 'tenant' || !takesKey(endpoint),
    );
    expect(refused.length).toBeGreaterThan(200);
    expect(
      await findErrors(refused, async (endpoint) => errorMismatch(await request(endpoint, key), 403, 'forbidden')),
    ).toEqual([]);
    expect(await contents()).toEqual(before);
  });

  test('with the role admin is admitted by every other operation of operators', async () => {
    const { key } = await make();
    expect(
      await findErrors(ofOperators.filter(takesKey), async (endpoint) => {
        const { status, text } = await request(endpoint, key);
        return [401, 403].includes(status) || status >= 500 ? text : undefined;
      }),
    ).toEqual([]);
  });

  test('that only reads changes nothing', async () => {
    const { key } = await make({ is_read_only: true });
    const before = await contents();
    const writing = ofOperators.filter((endpoint) => takesKey(endpoint) && endpoint.operation.writes);
    expect(writing.length).toBeGreaterThan(15);
    expect(
      await findErrors(writing, async (endpoint) => errorMismatch(await request(endpoint, key), 403, 'forbidden')),
    ).toEqual([]);
    expect(await contents()).toEqual(before);
  });

  test('with the role analyst is refused by every operation of admins', async () => {
    const { key } = await make({ role: 'analyst' });
    const ofAdmins = ofOperators.filter(({ operation }) => operation.access === 'platform');
    expect(
      await findErrors(ofAdmins, async (endpoint) => errorMismatch(await request(endpoint, key), 403, 'forbidden')),
    ).toEqual([]);
  });

  const forgeries: [string, () => Promise<string>][] = [
    ['a key that was never made', () => Promise.resolve(invented('platform'))],
    ['a key with another case', async () => (await make()).key.replace('sk_platform', 'sk_PLATFORM')],
    [
      'a key that names a school',
      async () => {
        const moved = (await make()).key.slice(0, -8).replace('sk_platform_', `sk_${school.id}_`);
        return moved + createHash('sha256').update(moved).digest('hex').slice(0, 8);
      },
    ],
    [
      'a key of a school that names the platform',
      async () => {
        const { data } = await school.admin.post<{ key: string }>(
          '/api/api-keys',
          { name: unique('Key'), permissions: ['student.read'] },
          201,
        );
        const moved = data.key.slice(0, -8).replace(`sk_${school.id}_`, 'sk_platform_');
        return moved + createHash('sha256').update(moved).digest('hex').slice(0, 8);
      },
    ],
    [
      'a revoked key',
      async () => {
        const { id, key } = await make();
        await service.operator.delete(`/api/platform/api-keys/${id}`);
        return key;
      },
    ],
    [
      'an expired key',
      async () => {
        const { id, key } = await make();
        await service.database.query(
          "update platform.api_key set expires_at = now() - interval '1 second' where id = $1",
          [id],
        );
        return key;
      },
    ],
  ];

  test.each(forgeries.map(([name, forge]) => ({ name, forge })))(
    '$name gets 401 invalid_token at every operation of operators, and changes nothing',
    async ({ forge }) => {
      const token = await forge();
      const before = await contents();
      expect(
        await findErrors(ofOperators, async (endpoint) =>
          errorMismatch(await request(endpoint, token), 401, 'invalid_token'),
        ),
      ).toEqual([]);
      expect(await contents()).toEqual(before);
    },
  );
});
