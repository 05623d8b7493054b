import { afterAll, afterEach, describe, expect, test } from '@jest/globals';
import type {
  Webhook as WebhookSchema,
  WebhookDelivery as WebhookDeliverySchema,
} from '../../src/endpoints/parts/webhooks.ts';
import type { OutputOf } from '../support/client/output.ts';
import { until } from '../support/client/until.ts';
import { mailTo } from '../support/fakes/mail.ts';
import { webhookReceiver } from '../support/fakes/webhook-receiver.ts';
import { operatorEmail, serviceWithSchool, unique } from '../support/server/service.ts';

const receiver = await webhookReceiver();
const { service, school } = await serviceWithSchool(
  { WEBHOOK_PRIVATE_ORIGINS: receiver.url, WEBHOOK_TIMEOUT_MS: '60000' },
  6,
);
const { operator } = service;
afterAll(() => receiver.close());
// The platform can have 10 webhooks.
afterEach(() => service.database.query('delete from platform.webhook'));

type Webhook = OutputOf<typeof WebhookSchema>;
type NewWebhook = Webhook & { secret: string | null };
type Delivery = OutputOf<typeof WebhookDeliverySchema>;

const base = '/api/platform/webhooks';
const allEvents = (
  await service.database.query<{ name: string }>('select name from core.webhook_event_type where permission is null')
).map(({ name }) => name);
const fields = () => ({ url: `https://${unique('hooks')}.example.org/in`, events: ['tenant.created'] });
const add = async (given: Record<string, unknown> = {}) =>
  (await operator.post<NewWebhook>(base, { ...fields(), ...given }, 201)).data;

/** Creates a webhook with a path of its own at the receiver. */
async function listen(events: string[] = allEvents) {
  const path = `/${unique('hook')}`;
  const webhook = await add({ url: receiver.url + path, events });
  const api = `${base}/${webhook.id}`;
  return {
    ...webhook,
    path,
    api,
    /** Waits for a message of this type about the record with the id. */
    message: (type: string, id: number | string) =>
      until(() =>
        receiver.messagesTo(path).find(({ body }) => body.type === type && String(body.data['id']) === String(id)),
      ),
    types: () => receiver.messagesTo(path).map(({ body }) => body.type),
    delivery: (state: Partial<Delivery>) =>
      until(async () => {
        const [newest] = (await operator.get<Delivery[]>(`${api}/deliveries`)).data;
        return Object.entries(state).every(([key, value]) => newest?.[key as keyof Delivery] === value)
          ? newest
          : undefined;
      }),
    /** Makes the waiting deliveries due, as if this time had passed. */
    async skip(age: string) {
      await service.database.query(
        'update platform.webhook set retry_at = null, failing_since = failing_since - $2::interval where id = $1',
        [webhook.id, age],
      );
      await service.database.query(
        `update platform.webhook_delivery set next_attempt_at = now(), first_attempt_at = first_attempt_at - $2::interval
         where webhook_id = $1 and status = 'pending'`,
        [webhook.id, age],
      );
      await service.database.query(
        `select graphile_worker.add_job('deliver_webhooks', '{"tenant_id": null}', queue_name => 'platform:deliver_webhooks')`,
      );
    },
  };
}
const queueIsEmpty = () =>
  until(async () => {
    const jobs = await service.database.query(
      "select from graphile_worker.jobs where task_identifier = 'deliver_webhooks' and run_at <= now()",
    );
    return jobs.length === 0 ? true : undefined;
  });

describe('webhooks of the platform', () => {
  test('a webhook is created, read, changed and deleted, and each change is audited', async () => {
    const sent = { ...fields(), description: 'Billing', events: ['subscription.cancelled', 'tenant.created'] };
    const answer = await operator.post<NewWebhook>(base, sent, 201);
    const { secret, ...webhook } = answer.data;
    expect(answer.headers.get('location')).toBe(`${base}/${webhook.id}`);
    expect(webhook).toMatchObject({ ...sent, is_active: true, failing_since: null, disabled_at: null });
    expect(Buffer.from(String(secret).slice('whsec_'.length), 'base64')).toHaveLength(24);
    const path = `${base}/${webhook.id}`;
    expect((await operator.get<Webhook>(path)).data).toEqual(webhook);
    const { data: changed } = await operator.put<Webhook>(path, { events: ['plan.deleted'], is_active: false });
    expect(changed).toEqual({ ...webhook, events: ['plan.deleted'], is_active: false, updated_at: changed.updated_at });
    expect((await operator.get<Webhook[]>(`${base}?event=plan.deleted&is_active=false&search=billing`)).data).toEqual([
      changed,
    ]);
    const { data: rotated } = await operator.post<{ secret: string }>(`${path}/rotate-secret`);
    expect(rotated.secret).not.toBe(secret);
    expect((await operator.post(`${path}/test`, undefined, 409)).error).toBe('invalid_state');
    expect((await operator.delete<{ id: number }>(path)).data).toEqual({ id: webhook.id });
    await operator.get(path, 404);
    const { data: log } = await operator.get<{ action: string; target_type: string; target_id: number }[]>(
      '/api/platform/audit-logs?search=webhook',
    );
    expect(log.filter(({ target_id }) => target_id === webhook.id).map(({ action }) => action)).toEqual([
      'webhook.delete',
      'webhook.rotate_secret',
      'webhook.update',
      'webhook.create',
    ]);
    expect(JSON.stringify(await service.database.query('select * from platform.audit_log'))).not.toContain('whsec_');
  });

  test('the API accepts exactly the events of the catalog, and those of schools are others', async () => {
    const webhook = await add({ events: allEvents });
    expect(webhook.events).toEqual(allEvents);
    await operator.post(base, { ...fields(), events: ['student.created'] }, 400);
    await school.admin.post('/api/webhooks', { ...fields(), events: ['tenant.created'] }, 400);
    const { data } = await operator.get<{ message?: string }[]>(`${base}?event=tenant.created`);
    expect(data).toHaveLength(1);
    expect(new Set(allEvents).size).toBe(18);
  });

  test('there are at most 10, and addresses in private networks are refused', async () => {
    for (let n = 0; n < 10; n++) await add();
    expect(await operator.post(base, fields(), 409)).toMatchObject({
      error: 'conflict',
      message: 'The platform can have at most 10 webhooks. Delete one first.',
    });
    for (const url of ['http://hooks.example.org', 'https://10.0.0.1/in', 'ftp://x.example'])
      await operator.post(base, { ...fields(), url }, 400);
  });

  test('the secret is only in the response to its creation, and in none to a repeated Idempotency-Key', async () => {
    const sent = { body: fields(), headers: { 'Idempotency-Key': unique('key') } };
    const { data } = await operator.send<NewWebhook>('POST', base, sent, 201);
    expect((await operator.send<NewWebhook>('POST', base, sent, 201)).data).toEqual({ ...data, secret: null });
    expect(JSON.stringify([await operator.get(base), await operator.get(`${base}/${data.id}`)])).not.toContain(
      'whsec_',
    );
  });
});

describe('an event of the platform', () => {
  test('is sent with a valid signature, and has the school as the API returns it', async () => {
    const hook = await listen();
    const created = await service.school();
    const message = await hook.message('tenant.created', created.id);
    expect(message.isSignedBy(String(hook.secret))).toBe(true);
    expect(message.id).toMatch(/^msg_platform_\d+$/);
    const { data } = await operator.get<Record<string, unknown>>(`/api/platform/tenants/${created.id}`);
    for (const field of ['recent_audit_logs', 'unreachable_since']) Reflect.deleteProperty(data, field);
    expect({ ...message.body.data, stats: null, updated_at: null }).toEqual({ ...data, stats: null, updated_at: null });
    expect(await hook.delivery({ status: 'sent', event: 'tenant.created' })).toMatchObject({ attempts: 1 });
    // Creating a school also sets it up, but it is only created.
    expect(hook.types()).toEqual(['tenant.created']);
  });

  test('follows the life of a school, its plan and its subscription', async () => {
    const hook = await listen();
    const { id } = await service.school();
    const path = `/api/platform/tenants/${id}`;
    await hook.message('tenant.created', id);
    await operator.put(path, { name: 'Renamed' });
    expect((await hook.message('tenant.updated', id)).body.data).toMatchObject({ name: 'Renamed' });
    const { data: before } = await operator.get<{ plan: { id: number } }>(path);
    const other = (await operator.get<{ id: number }[]>('/api/platform/plans')).data.find(
      (each) => each.id !== before.plan.id,
    );
    await operator.put(path, { plan: { id: other?.id } });
    expect((await hook.message('tenant.plan_changed', id)).body.data).toMatchObject({ plan: { id: other?.id } });
    await operator.put(`${path}/subscription`, { grace_days: 21 });
    await hook.message('subscription.updated', id);
    await operator.put(`${path}/subscription`, { status: 'cancelled' });
    expect((await hook.message('subscription.cancelled', id)).body.data).toMatchObject({
      subscription: { status: 'cancelled' },
    });
    await operator.put(`${path}/subscription`, { status: 'active' });
    await hook.message('subscription.activated', id);
    await operator.post(`${path}/suspend`);
    await hook.message('tenant.suspended', id);
    await operator.post(`${path}/activate`);
    await hook.message('tenant.activated', id);
    await operator.delete(path);
    await hook.message('tenant.deleted', id);
    await operator.post(`${path}/restore`);
    await hook.message('tenant.restored', id);
    expect(hook.types().toSorted()).toEqual(
      [
        ...['tenant.created', 'tenant.updated', 'tenant.plan_changed', 'subscription.updated'],
        ...['subscription.cancelled', 'subscription.activated', 'tenant.suspended', 'tenant.activated'],
        ...['tenant.deleted', 'tenant.restored'],
      ].toSorted(),
    );
  });

  test('follows a trial that ends, an upgrade by the school, and its setup', async () => {
    const hook = await listen();
    const at = await service.school();
    const path = `/api/platform/tenants/${at.id}`;
    await operator.put(`${path}/subscription`, { status: 'cancelled' });
    await operator.put(`${path}/subscription`, { status: 'trialing', current_period_end: '2099-01-01T00:00:00Z' });
    await hook.message('subscription.trial_started', at.id);
    await at.database.query(
      "update platform.subscription set current_period_end = now() - interval '1 minute' where tenant_id = $1",
      [at.id],
    );
    // Any change by an operator stores the status that the dates give.
    await operator.put(`${path}/subscription`, { grace_days: 3 });
    await hook.message('subscription.past_due', at.id);
    const { data: plans } =
      await at.admin.get<{ id: number; is_current: boolean; is_available: boolean }[]>('/api/subscription/plans');
    const plan = plans.find((each) => each.is_available && !each.is_current);
    await at.admin.post('/api/subscription/upgrade', { plan_id: plan?.id });
    await hook.message('tenant.plan_changed', at.id);
    await hook.message('subscription.activated', at.id);
  });

  test('follows plans, failed migrations, moves and jobs that failed for good', async () => {
    const hook = await listen();
    const { data: plan } = await operator.post<{ id: number }>(
      '/api/platform/plans',
      { name: unique('Plan'), price_monthly: 1, max_students: 1, max_teachers: 1 },
      201,
    );
    expect((await hook.message('plan.created', plan.id)).body.data).toMatchObject({ price_monthly: 1 });
    await operator.put(`/api/platform/plans/${plan.id}`, { price_monthly: 2 });
    await hook.message('plan.updated', plan.id);
    await operator.delete(`/api/platform/plans/${plan.id}`);
    expect((await hook.message('plan.deleted', plan.id)).body.data).toEqual({ id: plan.id });

    await service.database.query(
      `insert into platform.delayed_migration (tenant_id, version, error, failed_at)
       values ($1, 18, 'duplicate key of a@school.example', now())`,
      [school.id],
    );
    expect((await hook.message('tenant.migration_failed', school.id)).body.data).toMatchObject({
      subdomain: school.subdomain,
      failed_version: 18,
      error: 'duplicate key of …',
    });
    await service.database.query('delete from platform.delayed_migration');

    const [node] = await service.database.query<{ id: number }>(
      "insert into platform.node (name, url) values ('west', 'postgres://west') returning id::integer",
    );
    const moved = await service.school();
    await service.database.query('update platform.tenant set node_id = $2 where id = $1', [moved.id, node?.id]);
    await hook.message('tenant.moved', moved.id);
    await service.database.query('update platform.tenant set node_id = null where id = $1', [moved.id]);

    const [job] = await service.database.query<{ id: string }>(
      `select id from graphile_worker.add_job('send_operator_notice', '{"tenant_id": "a@b.example"}', max_attempts => 1)`,
    );
    expect((await hook.message('job.failed', job?.id ?? '')).body.data).toMatchObject({
      task: 'send_operator_notice',
      state: 'failed',
      attempts: 1,
    });
    expect(hook.types().filter((type) => type === 'job.failed')).toHaveLength(1);
  });

  test('is written only if it commits and an active webhook wants it', async () => {
    const hook = await listen(['plan.deleted']);
    const disabled = await listen(['tenant.updated']);
    await operator.put(disabled.api, { is_active: false });
    const events = () => service.database.query<{ type: string }>('select type from platform.webhook_event');
    await service.database.query('delete from platform.webhook_event');
    await operator.put(`/api/platform/tenants/${school.id}`, { name: unique('Name') });
    // The plan is in use, so the deletion is rolled back.
    const { data } = await operator.get<{ plan: { id: number } }>(`/api/platform/tenants/${school.id}`);
    await operator.delete(`/api/platform/plans/${data.plan.id}`, 409);
    expect(await events()).toEqual([]);
    expect(hook.types()).toEqual([]);
  });

  test('does not mix with the events of schools', async () => {
    const hook = await listen();
    const path = `/${unique('school')}`;
    await school.admin.post('/api/webhooks', { url: receiver.url + path, events: ['student.created'] }, 201);
    await operator.put(`/api/platform/tenants/${school.id}`, { name: unique('Name') });
    await hook.message('tenant.updated', school.id);
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: 'Byron' }, 201);
    await until(() => receiver.messagesTo(path)[0]);
    expect(receiver.messagesTo(path).map(({ body }) => body.type)).toEqual(['student.created']);
    expect(hook.types()).toEqual(['tenant.updated']);
  });
});

describe('a delivery of the platform', () => {
  test('of a test event is sent, and sent again with the same id', async () => {
    const hook = await listen(['tenant.created']);
    await operator.post(`${hook.api}/test`);
    const first = await hook.delivery({ status: 'sent', event: 'webhook.test' });
    await operator.post(`${hook.api}/deliveries/${first.id}/replay`);
    await until(() => (receiver.messagesTo(hook.path).length === 2 ? true : undefined));
    const [one, two] = receiver.messagesTo(hook.path);
    expect(two).toMatchObject({ id: one?.id, body: one?.body });
    await operator.post(`${hook.api}/deliveries/999999/replay`, undefined, 404);
    const other = await listen(['tenant.created']);
    await operator.post(`${other.api}/deliveries/${first.id}/replay`, undefined, 404);
  });

  test('that fails for a day disables the webhook, and the admins get an email', async () => {
    const hook = await listen(['tenant.created']);
    receiver.respondWith(hook.path, { status: 500, body: 'Broken' });
    await operator.post(`${hook.api}/test`);
    const failed = await hook.delivery({ attempts: 1 });
    expect(failed).toMatchObject({ status: 'pending', reason: 'http_500', response_body: 'Broken' });
    await hook.skip('25 hours');
    expect(await hook.delivery({ status: 'failed' })).toMatchObject({ attempts: 2, next_attempt_at: null });
    const { data } = await operator.get<Webhook>(hook.api);
    expect(data).toMatchObject({ is_active: false, disabled_at: expect.any(String) as unknown });
    const { text } = await mailTo(service, operatorEmail, 'A webhook was disabled');
    expect(text).toContain(hook.url);
    expect(text).toMatch(/\/console\/$/m);
  });

  test('is repaired by the clean-up if its job was lost, and deleted when its retention ends', async () => {
    const hook = await listen(['tenant.created']);
    await operator.post(`${hook.api}/test`);
    await hook.delivery({ status: 'sent' });
    await queueIsEmpty();
    await service.database.query(
      `with event as (
         insert into platform.webhook_event (type, key, body) values ('webhook.test', '{}', '{"type": "webhook.test", "data": {}}') returning id)
       insert into platform.webhook_delivery (webhook_id, event_id) select $1, id from event`,
      [hook.id],
    );
    await service.database.query('select core.clean_up()');
    await until(() => (receiver.messagesTo(hook.path).length === 2 ? true : undefined));
    await service.database.query("update platform.webhook_event set created_at = now() - interval '91 days'");
    await service.database.query('select core.clean_up()');
    expect((await operator.get<Delivery[]>(`${hook.api}/deliveries`)).data).toEqual([]);
  });
});
