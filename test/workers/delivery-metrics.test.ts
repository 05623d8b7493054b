import type { AddressInfo } from 'node:net';
import { afterAll, test } from '@jest/globals';
import { SMTPServer } from 'smtp-server';
import { until } from '../support/client/until.ts';
import { webhookReceiver } from '../support/fakes/webhook-receiver.ts';
import { serviceWithSchool, unique } from '../support/server/service.ts';

/** A mail server that accepts no message to `busy…` for now. */
const smtp = new SMTPServer({
  authOptional: true,
  disabledCommands: ['STARTTLS', 'AUTH'],
  onRcptTo({ address }, _session, callback) {
    callback(address.startsWith('busy') ? Object.assign(new Error('4.7.1 busy'), { responseCode: 451 }) : null);
  },
  onData(stream, _session, callback) {
    stream.resume().on('end', () => callback());
  },
});
await new Promise<void>((done) => void smtp.listen(0, '127.0.0.1', done));
const receiver = await webhookReceiver();
const { service, school } = await serviceWithSchool({
  METRICS_PORT: '0',
  SMTP_URL: `smtp://127.0.0.1:${(smtp.server.address() as AddressInfo).port}`,
  WEBHOOK_PRIVATE_ORIGINS: receiver.url,
});
// Run after the service has been closed, because its afterAll was registered first.
afterAll(() => receiver.close());
afterAll(() => new Promise<void>((done) => smtp.close(() => done())));

/** The attempts to send messages so far. */
async function attempts(channel: string): Promise<Record<'sent' | 'retry' | 'failed', number>> {
  const pages = await Promise.all(service.allMetricsUrls.map(async (url) => (await fetch(url)).text()));
  const count = (outcome: string) => {
    const line = new RegExp(`^school_deliveries_total\\{channel="${channel}",outcome="${outcome}"\\} (\\d+)$`, 'm');
    return pages.reduce((sum, page) => sum + Number(line.exec(page)?.[1] ?? 0), 0);
  };
  return { sent: count('sent'), retry: count('retry'), failed: count('failed') };
}
/** Waits until there are so many more attempts than before. */
const added = (channel: string, before: Awaited<ReturnType<typeof attempts>>, more: Partial<typeof before>) =>
  until(async () => {
    const now = await attempts(channel);
    const isReached = (['sent', 'retry', 'failed'] as const).every(
      (name) => now[name] === before[name] + (more[name] ?? 0),
    );
    return isReached ? now : undefined;
  });

/** Sends a test event to a new webhook whose receiver answers with this status. @returns runs its next attempt */
async function callWebhook(status: number) {
  const path = `/${unique('hook')}`;
  receiver.respondWith(path, { status });
  const { data } = await school.admin.post<{ id: number }>(
    '/api/webhooks',
    { url: receiver.url + path, events: ['student.created'] },
    201,
  );
  await school.admin.post(`/api/webhooks/${data.id}/test`);
  return async (age: string) => {
    await school.database.query(`update ${school.schema}.webhook set retry_at = null where id = $1`, [data.id]);
    await school.database.query(
      `update ${school.schema}.webhook_delivery set next_attempt_at = now(), first_attempt_at = now() - $2::interval where webhook_id = $1`,
      [data.id, age],
    );
    await school.database.query(
      `select graphile_worker.add_job('deliver_webhooks', json_build_object('tenant_id', $1::bigint), queue_name => 't' || $1::bigint || ':deliver_webhooks')`,
      [school.id],
    );
  };
}

// Before the webhooks: admins get an email about a webhook that was disabled.
test('the emails of jobs count as sent, retry, and failed at the last attempt of the job', async () => {
  const waiting = "select from graphile_worker.jobs where task_identifier = 'send_email'";
  await until(async () => (await school.database.query(waiting)).length === 0 || undefined);
  let count = await attempts('email');
  const invite = (email: string) =>
    school.admin.post('/api/users', { email, first_name: 'New', last_name: 'User' }, 201);
  await invite(`${unique('new')}@test.example`);
  count = await added('email', count, { sent: 1 });
  await invite(`${unique('busy')}@test.example`);
  count = await added('email', count, { retry: 1 });
  // The queue stores a failed attempt shortly after the counter.
  const makeNextTheLast =
    'update graphile_worker._private_jobs set max_attempts = attempts + 1, run_at = now() where locked_at is null and last_error is not null returning id';
  await until(async () => (await school.database.query(makeNextTheLast)).length > 0 || undefined);
  await added('email', count, { failed: 1 });
});

test('the attempts of a webhook count as sent, retry, and failed if no other attempt follows', async () => {
  let count = await attempts('webhook');
  await callWebhook(204);
  count = await added('webhook', count, { sent: 1 });
  const attemptAgain = await callWebhook(500);
  count = await added('webhook', count, { retry: 1 });
  await attemptAgain('25 hours');
  count = await added('webhook', count, { failed: 1 });
  await callWebhook(410);
  await added('webhook', count, { failed: 1 });
});

test('the emails of notifications count as deliveries', async () => {
  const count = await attempts('email');
  const user = await school.user(['teacher']);
  await school.admin.post('/api/notifications/send', { user_ids: [user.id], title: 'Trip', message: 'Tomorrow' });
  await until(async () => ((await attempts('email')).sent > count.sent ? true : undefined));
});
