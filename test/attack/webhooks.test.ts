import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { checksums } from '../support/database/traces.ts';
import type { Client } from '../support/client/client.ts';
import { errorMismatch, send } from '../support/client/wire.ts';
import { findErrors, type Registered, registry, sampleRequest } from '../support/server/registry.ts';
import { type School, testService, unique } from '../support/server/service.ts';

const service = await testService();
afterAll(() => service.close());
const { endpoints, document } = await registry(service);
/** The operations that change a webhook, send something to it, or show what was sent. */
const ofOneWebhook = endpoints.filter(
  ({ operation, parameters }) => operation.name.startsWith('webhooks_') && parameters.includes('id'),
);
const changing = ofOneWebhook.filter(({ operation }) => operation.writes);
const events = await service.database.query<{ name: string; permission: string }>(
  'select name, permission from core.webhook_event_type where permission is not null order by name',
);
const eventPermissions = [...new Set(events.map(({ permission }) => permission))];
const secret = 'The record of the message';

let school: School;
let allPermissions: { id: number; name: string }[];
beforeAll(async () => {
  school = await service.school();
  allPermissions = (await school.admin.get<typeof allPermissions>('/api/rbac/permissions')).data;
});

// A school can have 10.
afterEach(() => service.database.query(`delete from ${school.schema}.webhook`));

/** A disabled webhook with a pending delivery of an event that is stored, but not necessarily one of its events. */
async function addWebhook(names: string[], sent: string): Promise<{ id: number; delivery_id: number }> {
  const url = `https://${unique('hooks')}.example.org/in`;
  const { data } = await school.admin.post<{ id: number }>(
    '/api/webhooks',
    { url, events: names, is_active: false },
    201,
  );
  const [delivery] = await service.database.query<{ id: number }>(
    `with event as (
       insert into ${school.schema}.webhook_event (type, key, body) values ($1, '{"id": 1}', '{}') returning id)
     insert into ${school.schema}.webhook_delivery (webhook_id, event_id, response_body)
       select $2, id, $3 from event returning id::integer`,
    [sent, data.id, secret],
  );
  return { id: data.id, delivery_id: delivery?.id ?? 0 };
}

/** A user and an API key with every permission but one, each with its name. */
async function callersWithout(permission: string): Promise<[string, string][]> {
  const others = allPermissions.map(({ name }) => name).filter((name) => name !== permission);
  const role = await school.role(...others);
  const user = await school.user([role]);
  const { data } = await school.admin.post<{ id: number; key: string }>(
    '/api/api-keys',
    { name: unique('Key'), permissions: others },
    201,
  );
  return [
    ['a user', user.token],
    ['an API key', data.key],
  ];
}

const request = (endpoint: Registered, token: string, at: { id: number; delivery_id: number }) =>
  send(service.url, {
    ...sampleRequest(document, endpoint, { id: at.id }, { parameters: { delivery_id: at.delivery_id } }),
    token,
  });
const contents = () => checksums(service.database, school.schema, 'platform');
const deliveriesOf = (client: Pick<Client, 'get'>, webhook: { id: number }) =>
  client.get<{ id: number; event: string; status: string; reason: string | null }[]>(
    `/api/webhooks/${webhook.id}/deliveries`,
  );

describe('whoever sends stored data must be allowed to read it now:', () => {
  test('the operations of one webhook are these', () => {
    expect(ofOneWebhook.map(({ operation }) => operation.name).toSorted()).toEqual([
      ...['webhooks_delete', 'webhooks_deliveries_list', 'webhooks_deliveries_replay', 'webhooks_get'],
      ...['webhooks_rotate_secret', 'webhooks_test', 'webhooks_update'],
    ]);
    expect(changing).toHaveLength(5);
  });

  test.each(eventPermissions)(
    'without %s, a user and an API key can neither change, test, replay nor delete a webhook of its events',
    async (permission) => {
      const callers = await callersWithout(permission);
      for (const { name } of events.filter((event) => event.permission === permission)) {
        const others = events.filter((event) => event.permission !== permission).map((event) => event.name);
        const webhook = await addWebhook([...others, name], name);
        const before = await contents();
        for (const [caller, token] of callers) {
          expect(
            await findErrors(changing, async (endpoint) => {
              const answer = await request(endpoint, token, webhook);
              return errorMismatch(answer, 403, 'forbidden') && `${caller} ${answer.text}`;
            }),
          ).toEqual([]);
        }
        expect(await contents()).toEqual(before);
      }
    },
  );

  test.each(eventPermissions)(
    'without %s, nobody sees or sends a stored message of its events, also if the webhook has other events now',
    async (permission) => {
      const callers = await callersWithout(permission);
      const other = events.find((event) => event.permission !== permission)?.name ?? '';
      for (const { name } of events.filter((event) => event.permission === permission)) {
        const webhook = await addWebhook([other], name);
        expect((await deliveriesOf(school.admin, webhook)).data).toMatchObject([{ id: webhook.delivery_id }]);
        for (const [, token] of callers) {
          const client = service.anonymous.with({ Authorization: `Bearer ${token}` });
          const log = await deliveriesOf(client, webhook);
          expect([log.data, log.pagination.totalItems]).toEqual([[], 0]);
          for (const query of [`search=${name}`, `event=${name}`, 'status=pending', 'sort=response_body'])
            expect((await client.get(`/api/webhooks/${webhook.id}/deliveries?${query}`)).data).toEqual([]);
          const replay = `/api/webhooks/${webhook.id}/deliveries/${webhook.delivery_id}/replay`;
          expect(await client.post(replay, undefined, 403)).toMatchObject({
            error: 'forbidden',
            message: `The event ${name} needs the permission ${permission} for the whole school.`,
          });
        }
      }
    },
  );

  test('another address ends the pending deliveries, and the same address keeps them', async () => {
    const webhook = await addWebhook(['class.created'], 'student.created');
    const path = `/api/webhooks/${webhook.id}`;
    const { data } = await school.admin.get<{ url: string }>(path);
    // Enabled, with a pending delivery.
    await service.database.query(`update ${school.schema}.webhook set is_active = true where id = $1`, [webhook.id]);
    await school.admin.put(path, { url: data.url, description: 'The same' });
    expect((await deliveriesOf(school.admin, webhook)).data).toMatchObject([{ status: 'pending' }]);
    const [, [, key] = ['', '']] = await callersWithout('student.read');
    await service.anonymous
      .with({ Authorization: `Bearer ${key}` })
      .put(path, { url: 'https://elsewhere.example.org/in' });
    expect((await deliveriesOf(school.admin, webhook)).data).toMatchObject([
      { status: 'failed', reason: 'url_changed' },
    ]);
  });

  test('an address is stored, compared and shown as the URL parser reads it', async () => {
    const cases = [
      [String.raw`https://Hooks.Example.ORG\@evil.example/x`, 'https://hooks.example.org/@evil.example/x'],
      ['https://hooks.example.org:443', 'https://hooks.example.org/'],
      ['https://hooks.example.org/a/../b', 'https://hooks.example.org/b'],
      ['https:hooks.example.org', 'https://hooks.example.org/'],
      ['https://münchen.example/ä', 'https://xn--mnchen-3ya.example/%C3%A4'],
    ] as const;
    const { id } = await addWebhook(['class.created'], 'class.created');
    for (const [given, stored] of cases) {
      const { data } = await school.admin.put<{ url: string }>(`/api/webhooks/${id}`, { url: given });
      expect(data.url).toBe(stored);
    }
    const long = `https://hooks.example.org/${'ä'.repeat(1000)}`;
    expect(await school.admin.put(`/api/webhooks/${id}`, { url: long }, 400)).toMatchObject({
      error: 'validation_error',
      details: [{ path: 'url' }],
    });
  });
});
