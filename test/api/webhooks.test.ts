import { describe, expect, test } from '@jest/globals';
import type { Webhook as WebhookSchema } from '../../src/endpoints/parts/webhooks.ts';
import type { OutputOf } from '../support/client/output.ts';
import { walk } from '../support/client/pages.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';

const { service, school } = await serviceWithSchool({}, 6);

type Webhook = OutputOf<typeof WebhookSchema>;
type NewWebhook = Webhook & { secret: string | null };

const fields = () => ({ url: `https://${unique('hooks')}.example.org/in`, events: ['student.created'] });
const add = async (given: Record<string, unknown> = {}, at: School = school) =>
  (await at.admin.post<NewWebhook>('/api/webhooks', { ...fields(), ...given }, 201)).data;
const remove = (...webhooks: { id: number }[]) =>
  Promise.all(webhooks.map(({ id }) => school.admin.delete(`/api/webhooks/${id}`)));
const eventTypes = () =>
  service.database.query<{ name: string; permission: string }>(
    'select name, permission from core.webhook_event_type where permission is not null order by name',
  );

describe('webhooks', () => {
  test('a webhook is created, read, changed and deleted', async () => {
    const sent = { ...fields(), description: 'Bookkeeping', events: ['payment.created', 'invoice.paid'] };
    const answer = await school.admin.post<NewWebhook>('/api/webhooks', sent, 201);
    const { secret, ...webhook } = answer.data;
    expect(answer.headers.get('location')).toBe(`/api/webhooks/${webhook.id}`);
    expect(webhook).toMatchObject({ ...sent, is_active: true, failing_since: null, disabled_at: null });
    expect(Buffer.from(String(secret).slice('whsec_'.length), 'base64')).toHaveLength(24);
    const path = `/api/webhooks/${webhook.id}`;
    expect((await school.admin.get<Webhook>(path)).data).toEqual(webhook);
    const { data: changed } = await school.admin.put<Webhook>(path, { events: ['student.deleted'], is_active: false });
    expect(changed).toEqual({
      ...webhook,
      events: ['student.deleted'],
      is_active: false,
      updated_at: changed.updated_at,
    });
    expect((await school.admin.delete<{ id: number }>(path)).data).toEqual({ id: webhook.id });
    await school.admin.get(path, 404);
  });

  test('the secret is only in the response to its creation, and in none to a repeated Idempotency-Key', async () => {
    const sent = { body: fields(), headers: { 'Idempotency-Key': unique('key') } };
    const { data } = await school.admin.send<NewWebhook>('POST', '/api/webhooks', sent, 201);
    const { data: repeated } = await school.admin.send<NewWebhook>('POST', '/api/webhooks', sent, 201);
    expect(repeated).toEqual({ ...data, secret: null });
    const answers = [await school.admin.get('/api/webhooks'), await school.admin.get(`/api/webhooks/${data.id}`)];
    expect(JSON.stringify(answers)).not.toContain('whsec_');
    const stored = await service.database.query(`select answer from ${school.schema}.idempotency_key`);
    expect(JSON.stringify(stored)).not.toContain(data.secret);
    await remove(data);
  });

  test('lists are paged, searched, filtered and sorted', async () => {
    const at = await service.school();
    const first = await add(
      { url: 'https://a.example.org', description: 'Éclair', events: ['student.created', 'class.updated'] },
      at,
    );
    const second = await add({ url: 'https://b.example.org', is_active: false, events: ['class.updated'] }, at);
    const ids = async (query: string) =>
      (await at.admin.get<Webhook[]>(`/api/webhooks?${query}`)).data.map(({ id }) => id);
    expect(await ids('search=eclair')).toEqual([first.id]);
    expect(await ids('event=class.updated')).toEqual([first.id, second.id]);
    expect(await ids('event=student.created')).toEqual([first.id]);
    expect(await ids('is_active=false')).toEqual([second.id]);
    expect(await ids('sort=-id&pageSize=1')).toEqual([second.id]);
    expect(await ids('sort=url&order=desc')).toEqual([second.id, first.id]);
    expect((await walk<Webhook>(at.admin, '/api/webhooks', 1)).map(({ id }) => id)).toEqual([first.id, second.id]);
  });

  test.each([
    ['http://hooks.example.org/in', 'must begin with https://'],
    ['https://10.0.0.1/in', 'must name a host, not an IP address'],
    ['https://2130706433/in', 'must name a host, not an IP address'],
    ['https://[::1]/in', 'must name a host, not an IP address'],
    ['https://me:secret@hooks.example.org/in', 'must not contain a user name or a password'],
    ['hooks.example.org', 'must be a URL'],
  ])('the URL %s is refused', async (url, message) => {
    const refused = { error: 'validation_error', details: [{ path: 'url', message }] };
    expect(await school.admin.post('/api/webhooks', { ...fields(), url }, 400)).toMatchObject(refused);
    const webhook = await add();
    expect(await school.admin.put(`/api/webhooks/${webhook.id}`, { url }, 400)).toMatchObject(refused);
    await remove(webhook);
  });

  test('an unknown event is refused, and so is a webhook without an event', async () => {
    for (const events of [['student.expelled'], [], ['student.created', 'student.created']])
      expect(await school.admin.post('/api/webhooks', { ...fields(), events }, 400)).toMatchObject({
        error: 'validation_error',
      });
  });

  test('the API accepts exactly the events of the catalog', async () => {
    const names = (await eventTypes()).map(({ name }) => name);
    const webhook = await add({ events: names });
    expect([...webhook.events].sort()).toEqual([...names].sort());
    const { components } = (await (await fetch(`${service.url}/api/openapi.json`)).json()) as {
      components: { schemas: { WebhookInput: { properties: { events: { items: { enum: string[] } } } } } };
    };
    expect([...components.schemas.WebhookInput.properties.events.items.enum].sort()).toEqual([...names].sort());
    await remove(webhook);
  });

  test('a school has at most 10 webhooks', async () => {
    const at = await service.school();
    for (let n = 0; n < 10; n++) await add({}, at);
    expect(await at.admin.post('/api/webhooks', fields(), 409)).toMatchObject({ error: 'conflict' });
  });

  test('an event needs the permission to read its records, also to change a webhook that has it', async () => {
    const types = await eventTypes();
    const user = await school.user([await school.role('webhook.manage', 'student.read')]);
    for (const { name, permission } of types) {
      const status = permission === 'student.read' ? 201 : 403;
      const answer = await user.post<NewWebhook>('/api/webhooks', { ...fields(), events: [name] }, status);
      if (status === 201) await remove(answer.data);
      else
        expect(answer).toMatchObject({
          error: 'forbidden',
          message: `The event ${name} needs the permission ${permission} for the whole school.`,
        });
    }
    const webhook = await add({ events: ['teacher.created'] });
    await user.put(`/api/webhooks/${webhook.id}`, { url: 'https://elsewhere.example.org' }, 403);
    expect((await school.admin.get<Webhook>(`/api/webhooks/${webhook.id}`)).data.url).toBe(webhook.url);
    await remove(webhook);
  });

  test('of the default roles only admins may manage webhooks, and teachers not even with the permission', async () => {
    for (const role of ['teacher', 'accountant', 'transport_manager', 'student'])
      await (await school.user([role])).get('/api/webhooks', 403);
    const at = await service.school();
    const { data: roles } = await at.admin.get<{ id: number; name: string }[]>('/api/rbac/roles');
    const { data: permissions } = await at.admin.get<{ id: number; name: string }[]>('/api/rbac/permissions');
    const teacher = roles.find(({ name }) => name === 'teacher');
    await at.admin.put(`/api/rbac/roles/${teacher?.id}`, { permission_ids: permissions.map(({ id }) => id) });
    const user = await at.user(['teacher']);
    await user.get('/api/webhooks', 403);
    await user.post('/api/webhooks', fields(), 403);
  });

  test('rotating the secret keeps the previous one for 24 hours, and ends the one before', async () => {
    const webhook = await add();
    const rotate = async () =>
      (
        await school.admin.post<{ secret: string; previous_secret_expires_at: string }>(
          `/api/webhooks/${webhook.id}/rotate-secret`,
        )
      ).data;
    const second = await rotate();
    const third = await rotate();
    expect(Date.parse(third.previous_secret_expires_at) - Date.now()).toBeGreaterThan(23.9 * 3600_000);
    const stored = await service.database.query<{ secret: string }>(
      `select secret from ${school.schema}.webhook_secret where webhook_id = ${webhook.id} order by id`,
    );
    expect(stored.map(({ secret }) => secret)).toEqual([second.secret, third.secret]);
    await remove(webhook);
  });

  test('an operator who impersonates an admin can read webhooks, but not make or change them', async () => {
    const webhook = await add();
    const { data } = await service.operator.post<{ access_token: string }>(
      `/api/platform/tenants/${school.id}/impersonate`,
      { reason: 'The school asked why a webhook fails.' },
    );
    const operator = service.anonymous.with({ Authorization: `Bearer ${data.access_token}` });
    await operator.get(`/api/webhooks/${webhook.id}`);
    await operator.post('/api/webhooks', fields(), 403);
    await operator.put(`/api/webhooks/${webhook.id}`, { url: 'https://elsewhere.example.org' }, 403);
    await operator.post(`/api/webhooks/${webhook.id}/rotate-secret`, undefined, 403);
    await remove(webhook);
  });
});
