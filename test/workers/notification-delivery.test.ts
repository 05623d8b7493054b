import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { SMTPServer } from 'smtp-server';
import { fcmError, fcmService, webPushService } from '../support/fakes/push-services.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

/** An SMTP server that rejects `unknown…` always and `grey…` once. Its messages contain the address. */
const mails: { to: string[]; content: string }[] = [];
let refusals = 0;
const smtp = new SMTPServer({
  authOptional: true,
  disabledCommands: ['STARTTLS', 'AUTH'],
  onRcptTo({ address }, _session, callback) {
    if (address.startsWith('unknown'))
      callback(Object.assign(new Error(`5.1.1 <${address}>: unknown`), { responseCode: 550 }));
    else if (address.startsWith('grey') && refusals++ === 0)
      callback(Object.assign(new Error(`4.7.1 <${address}>: Greylisted`), { responseCode: 451 }));
    else callback();
  },
  onData(stream, session, callback) {
    const chunks: Buffer[] = [];
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    stream.on('end', () => {
      mails.push({
        to: session.envelope.rcptTo.map(({ address }) => address),
        content: Buffer.concat(chunks).toString(),
      });
      callback();
    });
  },
});
await new Promise<void>((done) => void smtp.listen(0, '127.0.0.1', done));
const [fcm, web] = await Promise.all([fcmService(), webPushService()]);
const { service, school } = await serviceWithSchool(
  {
    ...fcm.env,
    ...web.env,
    SMTP_URL: `smtp://127.0.0.1:${(smtp.server.address() as AddressInfo).port}`,
    EMAIL_FROM: 'Service <office@valley.example>',
    APP_URL: 'https://app.example/school/',
    PUBLIC_URL: 'https://api.example',
    BASE_DOMAIN: 'schools.example',
  },
  4,
  { pushTimeoutMs: 4000 },
);
// Runs after the service has been closed, because its afterAll was registered first.
afterAll(async () => {
  await Promise.all([fcm.close(), web.close(), new Promise<void>((done) => smtp.close(() => done()))]);
});

interface Row {
  id: number;
  user_id: number;
  device_id: number | null;
  status: string;
  reason: string | null;
  attempts: number;
}

let userId = 0;
beforeAll(async () => {
  await service.database.query(
    "update platform.notification_setting set push_per_user_per_day = null, emails_per_user_per_day = null, sender_name = 'Valley'",
  );
  userId = await addUser();
});
afterEach(() => {
  fcm.respondWith({});
  web.respondWith({});
  expect([...fcm.protocolErrors.splice(0), ...web.protocolErrors.splice(0)]).toEqual([]);
});

const addUser = async (fields: Record<string, unknown> = {}, at: School = school) =>
  at.insert('user_account', {
    email: `${unique('person')}@people.example`,
    first_name: 'Zoë',
    last_name: '<Núñez>',
    ...fields,
  });
const phone = async (user = userId, platform = 'android') => {
  const token = unique('token');
  return { token, id: await school.insert('device', { user_id: user, token, platform }) };
};
const browser = async (user = userId) => {
  const subscription = web.browser();
  return {
    ...subscription,
    id: await school.insert('device', { user_id: user, token: subscription.token, platform: 'web' }),
  };
};
async function send(users: number[], fields: object = {}): Promise<void> {
  await school.admin.post('/api/notifications/send', {
    user_ids: users,
    title: 'Sports day',
    message: 'Bring shoes.',
    channels: ['push'],
    ...fields,
  });
  await service.settled();
}
const rows = (condition: string, at = school) =>
  service.database.query<Row & Record<string, unknown>>(
    `select id::integer, user_id::integer, device_id::integer, status, reason, attempts from ${at.schema}.notification_delivery where ${condition} order by id`,
  );
const rowsOf = (...users: number[]) => rows(`user_id in (${users.join()})`);
/** Waits until nothing of these users is pending. */
const done = (...users: number[]) =>
  until(async () => {
    const found = await rowsOf(...users);
    return found.length > 0 && found.every(({ status }) => status !== 'pending') ? found : undefined;
  });
interface Job {
  id: string;
  payload: { from_id: number; to_id: number; only: number[] | null };
  seconds: number;
}
/** The waiting jobs. */
const jobs = () =>
  service.database.query<Job & Record<string, unknown>>(
    `select j.id, j.payload, extract(epoch from j.run_at - now())::float8 as seconds from graphile_worker._private_jobs j
     join graphile_worker._private_tasks t on t.id = j.task_id where t.identifier = 'deliver' and j.locked_at is null order by j.id`,
  );
/** Waits until there are this many jobs for postponed deliveries. */
const postponedJobs = (count = 1) =>
  until(async () => {
    const found = (await jobs()).filter(({ payload }) => payload.only);
    return found.length === count ? found : undefined;
  });
/** Makes waiting jobs ready now. */
const runJobsNow = () =>
  service.database.query(
    `select graphile_worker.reschedule_jobs(array(select j.id from graphile_worker._private_jobs j
       join graphile_worker._private_tasks t on t.id = j.task_id where t.identifier = 'deliver' and j.locked_at is null), now())`,
  );
/** Delays all jobs that are queued from now on, until the returned function is called. */
async function delayNewJobs(): Promise<() => Promise<unknown>> {
  await service.database.query(`
    create or replace function public.delayNewJobs() returns trigger language plpgsql as $$ begin new.run_at := now() + interval '1 hour'; return new; end $$;
    create trigger hold before insert on graphile_worker._private_jobs for each row execute function public.delayNewJobs()`);
  return async () => {
    await service.database.query('drop trigger hold on graphile_worker._private_jobs');
    await runJobsNow();
  };
}
const deviceExists = async (id: number) =>
  (await service.database.query(`select from ${school.schema}.device where id = $1`, [id])).length === 1;

describe('a push message', () => {
  test('is sent to each device of a user by the service of its platform, with the data for the app and a stable id', async () => {
    const user = await addUser();
    const [android, ios, laptop] = [await phone(user), await phone(user, 'ios'), await browser(user)];
    await send([user], { channels: ['in_app', 'push'], action_url: '/sports', message: 'Bring «shoes» & <water> 🥤' });
    const sent = await done(user);
    expect(sent.map(({ status, attempts, reason }) => ({ status, attempts, reason }))).toEqual(
      Array(3).fill({ status: 'sent', attempts: 1, reason: null }),
    );
    const [notification] = await service.database.query<{ id: string }>(
      `select id from ${school.schema}.notification where user_id = $1`,
      [user],
    );
    const of = (device: number) =>
      `${school.id.toString(36)}-${sent.find(({ device_id }) => device_id === device)?.id.toString(36)}`;
    for (const { token, id } of [android, ios]) {
      expect(fcm.messagesTo(token)).toEqual([
        {
          token,
          notification: { title: 'Sports day', body: 'Bring «shoes» & <water> 🥤' },
          data: { id: of(id), action_url: '/sports', notification_id: notification?.id },
          android: { ttl: '86400s', notification: { tag: of(id) } },
          apns: { headers: { 'apns-collapse-id': of(id), 'apns-expiration': expect.stringMatching(/^\d{10}$/) } },
        },
      ]);
    }
    expect(web.messagesTo(laptop.path)).toEqual([
      {
        topic: of(laptop.id),
        ttl: 86400,
        payload: {
          id: of(laptop.id),
          title: 'Sports day',
          message: 'Bring «shoes» & <water> 🥤',
          action_url: '/sports',
          notification_id: notification?.id,
        },
      },
    ]);
    expect(fcm.grants()).toBe(1);
  });

  test('to a browser with a Firebase token is sent by Firebase', async () => {
    const user = await addUser();
    const { token } = await phone(user, 'web');
    await send([user]);
    expect(await done(user)).toMatchObject([{ status: 'sent', attempts: 1 }]);
    expect(fcm.messagesTo(token)).toMatchObject([{ notification: { title: 'Sports day' } }]);
  });

  test('is truncated if it is too long for the service, without splitting a character', async () => {
    const user = await addUser();
    const [android, laptop] = [await phone(user), await browser(user)];
    await send([user], { message: '👩‍🏫"\n'.repeat(700) });
    await done(user);
    for (const text of [
      fcm.messagesTo(android.token)[0]?.notification.body,
      web.messagesTo(laptop.path)[0]?.payload.message,
    ]) {
      expect(text).toMatch(/…$/);
      expect(text?.isWellFormed()).toBe(true);
      expect(text?.length).toBeGreaterThan(500);
    }
  });

  test('is retried after the Retry-After of the service, with the same id, and does not delay others', async () => {
    const [user, other] = [await addUser(), await addUser()];
    const [busy, free, laptop] = [await phone(user), await phone(other), await browser(user)];
    fcm.respondWith([{ status: 429, headers: { 'Retry-After': '600' } }, {}], busy.token);
    web.respondWith(
      [{ status: 503, headers: { 'Retry-After': new Date(Date.now() + 7200_000).toUTCString() } }, {}],
      laptop.path,
    );
    await send([user, other]);
    await done(other);
    const waiting = await postponedJobs(2);
    expect(waiting.map(({ seconds }) => Math.round(seconds / 100)).sort((a, b) => a - b)).toEqual([6, 72]);
    const pending = await rowsOf(user);
    expect(pending.map(({ status, reason, attempts }) => [status, reason, attempts])).toEqual([
      ['pending', 'fcm_429', 1],
      ['pending', 'web_503', 1],
    ]);
    expect(waiting.flatMap(({ payload }) => payload.only).sort()).toEqual(pending.map(({ id }) => id).sort());
    await runJobsNow();
    expect((await done(user)).map(({ status, attempts }) => [status, attempts])).toEqual([
      ['sent', 2],
      ['sent', 2],
    ]);
    expect(new Set(fcm.messagesTo(busy.token).map((each) => each.android.notification.tag)).size).toBe(1);
    expect([
      fcm.messagesTo(busy.token).length,
      fcm.messagesTo(free.token).length,
      web.messagesTo(laptop.path).length,
    ]).toEqual([2, 1, 2]);
    expect(new Set(web.messagesTo(laptop.path).map(({ topic }) => topic)).size).toBe(1);
  });

  test('is retried with growing delays after an error or a lost connection, and fails at the eighth attempt', async () => {
    const user = await addUser();
    const { token, id } = await phone(user);
    fcm.respondWith([{ status: 500 }, { isCut: true }, { status: 502, body: '<html>' }, { status: 500 }], token);
    await send([user]);
    const reasons: unknown[] = [];
    const waits: number[] = [];
    for (let attempt = 1; attempt < 8; attempt++) {
      const [job] = await until(async () => {
        const [row] = await rowsOf(user);
        const found = row?.attempts === attempt ? await jobs() : [];
        return found.length === 1 ? found : undefined;
      });
      waits.push(job?.seconds ?? 0);
      reasons.push((await rowsOf(user))[0]?.reason);
      await runJobsNow();
    }
    expect(await done(user)).toMatchObject([{ status: 'failed', attempts: 8, reason: 'fcm_500' }]);
    expect(reasons).toEqual(['fcm_500', 'fcm_ECONNRESET', 'fcm_502', ...Array<string>(4).fill('fcm_500')]);
    for (const [n, least] of [10, 30, 90, 270, 810, 2430, 3600].entries()) {
      expect(waits[n]).toBeGreaterThan(least - 9);
      expect(waits[n]).toBeLessThanOrEqual(least * 1.2);
    }
    expect(await jobs()).toEqual([]);
    expect(await deviceExists(id)).toBe(true);
  });

  test('does not delay others if the service does not respond within the time limit', async () => {
    const [user, other] = [await addUser(), await addUser()];
    const silent = await phone(user);
    for (let n = 0; n < 30; n++) await phone(other);
    fcm.respondWith({ isSilent: true }, silent.token);
    await send([user, other]);
    await done(other);
    expect(await rowsOf(user)).toMatchObject([{ status: 'pending', attempts: 0 }]);
    const [row] = await until(async () => {
      const found = await rowsOf(user);
      return found[0]?.reason ? found : undefined;
    });
    expect(row).toMatchObject({ status: 'pending', reason: 'fcm_ETIMEDOUT', attempts: 1 });
    fcm.respondWith({}, silent.token);
    await postponedJobs();
    await runJobsNow();
    await done(user);
  });

  test('is postponed without an attempt when the service has stopped answering', async () => {
    const user = await addUser();
    for (let n = 0; n < 90; n++) await phone(user);
    const before = fcm.received.length;
    fcm.respondWith({ isCut: true });
    await send([user]);
    await postponedJobs();
    expect(fcm.received.length - before).toBeLessThan(50);
    const pending = await rowsOf(user);
    expect(new Set(pending.map(({ status, attempts }) => `${status} ${attempts}`))).toEqual(new Set(['pending 1']));
    fcm.respondWith({});
    await runJobsNow();
    expect(new Set((await done(user)).map(({ status }) => status))).toEqual(new Set(['sent']));
  });

  test('gets a new access token when FCM rejects the old one, and is sent with it', async () => {
    const user = await addUser();
    const { token } = await phone(user);
    const grants = fcm.grants();
    fcm.revoke();
    await send([user]);
    await postponedJobs();
    expect(fcm.protocolErrors.splice(0)).toHaveLength(1);
    await runJobsNow();
    expect(await done(user)).toMatchObject([{ status: 'sent', attempts: 2 }]);
    expect([fcm.grants() - grants, fcm.messagesTo(token).length]).toEqual([1, 1]);
  });

  describe('to an invalid device', () => {
    const badToken = 'The registration token is not a valid FCM registration token';
    const violation = (field: string) => ({
      '@type': 'type.googleapis.com/google.rpc.BadRequest',
      fieldViolations: [{ field, description: 'Invalid' }],
    });

    test.each([
      [
        'FCM answers UNREGISTERED',
        fcmError(404, 'UNREGISTERED', 'Requested entity was not found.'),
        'fcm_unregistered',
      ],
      ['FCM calls the token invalid', fcmError(400, 'INVALID_ARGUMENT', badToken), 'fcm_invalid_token'],
      [
        'FCM reports an invalid message.token',
        fcmError(400, 'INVALID_ARGUMENT', 'Invalid', [violation('message.token')]),
        'fcm_invalid_token',
      ],
    ])('fails and removes the device when %s', async (_case, behavior, reason) => {
      const user = await addUser();
      const [dead, alive] = [await phone(user), await phone(user)];
      fcm.respondWith(behavior, dead.token);
      await send([user]);
      expect((await done(user)).map((row) => [row.status, row.reason, row.device_id])).toEqual([
        ['failed', reason, null],
        ['sent', null, alive.id],
      ]);
      expect([await deviceExists(dead.id), await deviceExists(alive.id)]).toEqual([false, true]);
      await send([user]);
      await until(async () => (await rowsOf(user)).length === 3 || undefined);
    });

    test.each([404, 410])('fails and removes the device when the Web Push service answers %i', async (status) => {
      const user = await addUser();
      const { id, path } = await browser(user);
      web.respondWith({ status }, path);
      await send([user]);
      expect(await done(user)).toMatchObject([{ status: 'failed', reason: 'web_gone', device_id: null }]);
      expect(await deviceExists(id)).toBe(false);
    });

    test.each([
      ['a 404 without an FCM error code', { status: 404, body: 'Not found' }, 'fcm_404'],
      ['SENDER_ID_MISMATCH', fcmError(403, 'SENDER_ID_MISMATCH', 'SenderId mismatch'), 'fcm_sender_id_mismatch'],
      [
        'an invalid message field',
        fcmError(400, 'INVALID_ARGUMENT', 'Invalid value', [violation('message.data[0].value')]),
        'fcm_invalid_argument',
      ],
      ['a 400 that is not a JSON object', { status: 400, body: 'null' }, 'fcm_400'],
    ])('fails but keeps the device when FCM answers %s', async (_case, behavior, reason) => {
      const user = await addUser();
      const { id, token } = await phone(user);
      fcm.respondWith(behavior, token);
      await send([user]);
      expect(await done(user)).toMatchObject([{ status: 'failed', reason, device_id: id }]);
      expect(await deviceExists(id)).toBe(true);
    });
  });

  test('does not follow redirects', async () => {
    const user = await addUser();
    const [from, to] = [await browser(user), web.browser()];
    web.respondWith({ status: 307, headers: { Location: to.subscription.endpoint } }, from.path);
    await send([user]);
    expect(await done(user)).toMatchObject([{ status: 'failed', reason: 'web_307' }]);
    expect(web.messagesTo(to.path)).toEqual([]);
  });

  test('is sent if the status is 200, even if the response body is incomplete or too long', async () => {
    const user = await addUser();
    const { token } = await phone(user);
    fcm.respondWith({ headers: { 'Content-Length': '1000' }, body: 'x'.repeat(100) }, token);
    fcm.respondWith({ body: 'x'.repeat(1_000_000) }, (await phone(user)).token);
    await send([user]);
    expect((await done(user)).map(({ status }) => status)).toEqual(['sent', 'sent']);
  }, 30_000);

  test('is not sent to an invalid subscription that was stored before validation existed', async () => {
    const user = await addUser();
    const keys = web.browser().subscription.keys;
    for (const token of [
      '{no JSON',
      JSON.stringify({ endpoint: `${fcm.url}/push`, keys }),
      JSON.stringify({ endpoint: 'https://localhost/push', keys }),
      JSON.stringify({ endpoint: web.url, keys: { ...keys, p256dh: 'AAAA' } }),
    ]) {
      await school.insert('device', { user_id: user, token, platform: 'web' });
    }
    const { path } = await browser(user);
    await send([user]);
    expect((await done(user)).map(({ status, reason }) => [status, reason])).toEqual([
      ['failed', 'web_invalid_subscription'],
      ['failed', 'web_host_not_allowed'],
      ['failed', 'web_host_not_allowed'],
      ['failed', 'web_invalid_subscription'],
      ['sent', null],
    ]);
    expect(web.messagesTo(path)).toHaveLength(1);
  });

  test('is not sent to a later owner of the device, nor to a removed device or user', async () => {
    const [before, after, gone, away] = [await addUser(), await addUser(), await addUser(), await addUser()];
    const [moved, removed, kept] = [await phone(before), await phone(gone), await phone(away)];
    const release = await delayNewJobs();
    await send([before, gone, away]);
    await service.database.query(`update ${school.schema}.device set user_id = $1 where id = $2`, [after, moved.id]);
    await service.database.query(`delete from ${school.schema}.device where id = $1`, [removed.id]);
    await service.database.query(`update ${school.schema}.user_account set is_active = false where id = $1`, [away]);
    await release();
    expect((await done(before, gone, away)).map(({ status, reason, attempts }) => [status, reason, attempts])).toEqual([
      ['dropped', 'device_removed', 0],
      ['dropped', 'device_removed', 0],
      ['dropped', 'user_inactive', 0],
    ]);
    expect([...fcm.messagesTo(moved.token), ...fcm.messagesTo(removed.token), ...fcm.messagesTo(kept.token)]).toEqual(
      [],
    );
  });

  test('is dropped if operators disable the channel before it is sent', async () => {
    const user = await addUser();
    const { token } = await phone(user);
    const release = await delayNewJobs();
    await send([user], { channels: ['push', 'email'] });
    await service.database.query('update platform.notification_setting set push = false');
    await release();
    const found = await done(user);
    await service.database.query('update platform.notification_setting set push = true');
    expect(found.map(({ status, reason }) => [status, reason]).sort()).toEqual([
      ['dropped', 'channel_off'],
      ['sent', null],
    ]);
    expect(fcm.messagesTo(token)).toEqual([]);
  });

  test.each([
    ['suspend', 'school_closed'],
    ['delete', 'school_closed'],
    ['disable notifications for', 'feature_off'],
  ])('is dropped, like emails, if operators %s the school before it is sent', async (action, reason) => {
    const other = await service.school();
    const user = await addUser({}, other);
    const token = unique('token');
    await other.insert('device', { user_id: user, token, platform: 'ios' });
    const release = await delayNewJobs();
    await other.admin.post('/api/notifications/send', {
      user_ids: [user],
      title: 'T',
      message: 'M',
      channels: ['push', 'email'],
    });
    await service.settled();
    if (action === 'delete') await service.operator.delete(`/api/platform/tenants/${other.id}`);
    else if (action === 'suspend') await service.operator.post(`/api/platform/tenants/${other.id}/suspend`);
    else await service.operator.put(`/api/platform/tenants/${other.id}`, { feature_flags: { notifications: false } });
    await release();
    await until(async () => (await jobs()).length === 0 || undefined);
    await until(async () => (await rows("status = 'pending'", other)).length === 0 || undefined);
    expect((await rows('true', other)).map((row) => [row.status, row.reason])).toEqual([
      ['dropped', reason],
      ['dropped', reason],
    ]);
    expect(fcm.messagesTo(token)).toEqual([]);
  });

  test('is skipped without a failed job if the school was purged', async () => {
    await service.database.query(
      `select graphile_worker.add_job('deliver', '{"tenant_id": 999999, "from_id": 1, "to_id": 9}')`,
    );
    await until(
      async () =>
        (await service.database.query("select from graphile_worker.jobs where task_identifier = 'deliver'")).length ===
          0 || undefined,
    );
  });

  test('is sent after the end of quiet hours', async () => {
    const user = await addUser();
    const { token } = await phone(user);
    const utc = (hours: number) => new Date(Date.now() + hours * 3600_000).toISOString().slice(11, 16);
    await service.database.query('update platform.notification_setting set quiet_from = $1, quiet_until = $2', [
      utc(-1),
      utc(2),
    ]);
    await send([user]);
    await service.database.query('update platform.notification_setting set quiet_from = null, quiet_until = null');
    const [job] = await until(async () => {
      const found = await jobs();
      return found.length === 1 ? found : undefined;
    });
    expect(job?.seconds).toBeGreaterThan(1.9 * 3600);
    expect(job?.seconds).toBeLessThan(2.1 * 3600);
    expect(fcm.messagesTo(token)).toEqual([]);
    await runJobsNow();
    await done(user);
    expect(fcm.messagesTo(token)).toHaveLength(1);
  });

  test('is also delayed if quiet hours began after it was queued or before a retry', async () => {
    const user = await addUser();
    const { token } = await phone(user);
    const utc = (hours: number) => new Date(Date.now() + hours * 3600_000).toISOString().slice(11, 16);
    const waits = async () => {
      const [job] = await postponedJobs();
      expect(job?.seconds).toBeGreaterThan(1.9 * 3600);
      expect(job?.seconds).toBeLessThan(2.1 * 3600);
    };
    const release = await delayNewJobs();
    await send([user]);
    await service.database.query('update platform.notification_setting set quiet_from = $1, quiet_until = $2', [
      utc(-1),
      utc(2),
    ]);
    await release();
    await waits();
    expect(await rowsOf(user)).toMatchObject([{ status: 'pending', attempts: 0 }]);
    expect(fcm.messagesTo(token)).toEqual([]);
    // The attempt is outside quiet hours, and the retry would be within them.
    await service.database.query('update platform.notification_setting set quiet_from = $1, quiet_until = $2', [
      utc(0.5),
      utc(2),
    ]);
    fcm.respondWith([{ status: 503, headers: { 'Retry-After': '3600' } }, {}], token);
    await runJobsNow();
    await until(async () => ((await rowsOf(user))[0]?.attempts === 1 ? true : undefined));
    await waits();
    await service.database.query('update platform.notification_setting set quiet_from = null, quiet_until = null');
    await runJobsNow();
    expect(await done(user)).toMatchObject([{ status: 'sent', attempts: 2 }]);
    expect(fcm.messagesTo(token)).toHaveLength(2);
  });
});

describe('an email', () => {
  const to = (address: string) => mails.filter((mail) => mail.to.includes(address));
  /** The text and the HTML of a message. */
  const parts = (content: string) => {
    const boundary = /boundary="([^"]+)"/.exec(content)?.[1] ?? '';
    return content
      .split(`--${boundary}`)
      .slice(1, 3)
      .map((part) => {
        const [head = '', ...body] = part.split('\r\n\r\n');
        const text = body.join('\r\n\r\n');
        if (/base64/i.test(head)) return Buffer.from(text, 'base64').toString();
        const bytes = text
          .replaceAll('=\r\n', '')
          .replace(/=([0-9A-F]{2})/g, (_all, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
        return Buffer.from(/quoted-printable/i.test(head) ? bytes : text, 'latin1').toString();
      });
  };

  test('has the name of the school as its sender, and its text and HTML show the message with HTML escaped', async () => {
    const email = `${unique('reader')}@people.example`;
    const user = await addUser({ email });
    await send([user], {
      channels: ['email'],
      title: 'Trip & <b>fees</b>',
      message: 'Dear parents,\npay "5 €" <script>\n\nThank you',
      action_url: '/fees?a=1&b=2',
    });
    const [row] = await done(user);
    const [mail] = to(email);
    const [name] = await service.database.query<{ name: string }>('select name from platform.tenant where id = $1', [
      school.id,
    ]);
    expect(mail?.content).toMatch(new RegExp(`^From: ${name?.name} via Valley <office@valley\\.example>\r$`, 'm'));
    expect(mail?.content).toMatch(/^Subject: Trip & <b>fees<\/b>\r$/m);
    expect(mail?.content).toMatch(
      new RegExp(`^Message-ID: <${school.id.toString(36)}-${row?.id.toString(36)}@valley\\.example>\r$`, 'm'),
    );
    const [text, html] = parts(mail?.content ?? '');
    expect(text?.replaceAll('\r\n', '\n')).toContain(
      `Hello Zoë <Núñez>,\n\nDear parents,\npay "5 €" <script>\n\nThank you\n\nhttps://app.example/school/fees?a=1&b=2\n\n${name?.name}\n`,
    );
    expect(html).toContain('<p>Dear parents,<br>pay &#34;5 €&#34; &#60;script&#62;</p>');
    expect(html).toContain('<p>Thank you</p>');
    expect(html).toContain('<a href="https://app.example/school/fees?a=1&#38;b=2">');
    expect(html).not.toContain('<script>');
  });

  test.each([
    ['fees/7', 'https://app.example/school/fees/7'],
    ['https://app.example/other', 'https://app.example/other'],
    ['//app.example/a', 'https://app.example/a'],
  ])('links the action_url %s as %s', async (action_url, link) => {
    const email = `${unique('reader')}@people.example`;
    const user = await addUser({ email });
    await send([user], { channels: ['email'], action_url });
    await done(user);
    const [text, html] = parts(to(email)[0]?.content ?? '');
    expect(html).toContain(`<p><a href="${link}">${link}</a></p>`);
    expect(text?.split('\r\n')).toContain(link);
  });

  test.each([
    ['https://news.elsewhere.example/a', 'news.elsewhere.example'],
    ['//elsewhere.example:8443/a', 'elsewhere.example'],
    ['https://app.example.elsewhere.example/', 'app.example.elsewhere.example'],
    ['https://other.schools.example/', 'other.schools.example'],
    ['https://xn--bcher-kva.example/', 'xn--bcher-kva.example'],
    ['https://аpp.example/', 'xn--pp-6kc.example'],
  ])('shows the host of the action_url %s beside its link', async (action_url, host) => {
    const email = `${unique('reader')}@people.example`;
    const user = await addUser({ email });
    await send([user], { channels: ['email'], action_url });
    await done(user);
    const [text, html] = parts(to(email)[0]?.content ?? '');
    const address = action_url.replace(/^\/\//, 'https://');
    expect(html).toContain(`<a href="${address}">${address}</a> (opens ${host})`);
    expect(text).toContain(`${address} (opens ${host})`);
  });

  test('shows no host of the service, the school and the hosts that the school lists', async () => {
    const [row] = await service.database.query<{ subdomain: string }>(
      'select subdomain from platform.tenant where id = $1',
      [school.id],
    );
    await school.admin.post('/api/school-setup/school-info', { action_url_hosts: ['News.valley.example'] }, 200);
    for (const action_url of [
      'https://api.example/guide',
      `https://${row?.subdomain ?? ''}.schools.example/fees`,
      'https://news.valley.example/1',
    ]) {
      const email = `${unique('reader')}@people.example`;
      const user = await addUser({ email });
      await send([user], { channels: ['email'], action_url });
      await done(user);
      const html = parts(to(email)[0]?.content ?? '')[1];
      expect(html).toContain(`<a href="${action_url}">`);
      expect(html).not.toContain('opens');
    }
  });

  test.each(['myapp://students/1', 'http://localhost:5173/fees', 'mailto:office@valley.example'])(
    'shows the action_url %s as text',
    async (action_url) => {
      const email = `${unique('reader')}@people.example`;
      const user = await addUser({ email });
      await send([user], { channels: ['email'], action_url });
      await done(user);
      const [text, html] = parts(to(email)[0]?.content ?? '');
      expect(html).toContain(`<p>${action_url}</p>`);
      expect(html).not.toContain('<a ');
      expect(text).toContain(action_url);
    },
  );

  test('is retried after a temporary rejection and fails after a permanent one, and the queue has no personal data', async () => {
    const [grey, unknown] = [
      await addUser({ email: 'grey@people.example' }),
      await addUser({ email: 'unknown@people.example' }),
    ];
    await send([grey, unknown], { channels: ['email'] });
    const [job] = await postponedJobs();
    expect(await rowsOf(grey, unknown)).toMatchObject([
      { status: 'pending', reason: 'smtp_451', attempts: 1 },
      { status: 'failed', reason: 'smtp_550', attempts: 1 },
    ]);
    expect(Object.keys(job?.payload ?? {}).sort()).toEqual(['from_id', 'only', 'tenant_id', 'to_id']);
    await runJobsNow();
    expect((await done(grey)).map(({ status }) => status)).toEqual(['sent']);
    expect([to('grey@people.example').length, to('unknown@people.example').length]).toEqual([1, 0]);
  });
});
