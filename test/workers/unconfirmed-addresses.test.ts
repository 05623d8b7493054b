import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { mailsTo, mailTo } from '../support/fakes/mail.ts';
import { until } from '../support/client/until.ts';
import { type School, testService, type TestService, unique } from '../support/server/service.ts';
import { emailSender, plainName } from '../../workers/email.ts';

let service: TestService;
let school: School;
beforeAll(async () => {
  service = await testService();
  school = await service.school();
});
afterAll(() => service.close());

const invite = async (email: string, of: School = school, names: object = {}) =>
  (await of.admin.post<{ id: number }>('/api/users', { email, first_name: 'Ida', last_name: 'Invited', ...names }, 201))
    .data.id;
/** The emails to a user that wait for a later time: in how many seconds each is sent. */
const waiting = (userId: number, of: School = school) =>
  service.database.query<{ key: string; seconds: number }>(
    `select key, extract(epoch from run_at - now())::integer as seconds from graphile_worker._private_jobs
     where payload ->> 'tenant_id' = $1 and payload ->> 'user_id' = $2 and run_at > now()`,
    [String(of.id), String(userId)],
  );
const untilWaiting = (userId: number, of: School = school) =>
  until(async () => {
    const jobs = await waiting(userId, of);
    return jobs.length > 0 ? jobs : undefined;
  });

describe('an address that nobody has confirmed', () => {
  test('gets one invitation in ten minutes, however often users are added with it; the next one is sent later', async () => {
    const email = `${unique('stranger')}@mail.example`;
    const first = await invite(email);
    await mailTo(service, email, 'Your account');
    await school.admin.delete(`/api/users/${first}`);
    const second = await invite(email);
    const [job, ...others] = await untilWaiting(second);
    expect(others).toEqual([]);
    expect(job?.seconds).toBeGreaterThan(9 * 60);
    expect(job?.seconds).toBeLessThanOrEqual(10 * 60);
    expect(await mailsTo(service, email)).toHaveLength(1);
    // Ten minutes later.
    await service.database.query(
      "update platform.rate_limit_counter set window_ends_at = now() where window_ends_at < now() + interval '1 hour'",
    );
    await service.database.query('update graphile_worker._private_jobs set run_at = now() where key = $1', [job?.key]);
    await until(async () => ((await mailsTo(service, email)).length === 2 ? true : undefined));
  });

  test('of one school does not make another school wait', async () => {
    const email = `${unique('parent')}@mail.example`;
    const other = await service.school();
    await invite(email);
    await invite(email, other);
    await until(async () => ((await mailsTo(service, email)).length === 2 ? true : undefined));
  });

  test('waits for the next day if the school has sent as many as it may', async () => {
    const busy = await service.school();
    await invite(`${unique('first')}@mail.example`, busy);
    const key = `sha256(convert_to('unconfirmed ${busy.id}', 'UTF8'))`;
    await until(async () =>
      (await service.database.query(`select from platform.rate_limit_counter where key = ${key}`))[0]
        ? true
        : undefined,
    );
    await service.database.query(
      `update platform.rate_limit_counter set hits = core.max_unconfirmed_emails_per_day() where key = ${key}`,
    );
    const email = `${unique('late')}@mail.example`;
    const [job] = await untilWaiting(await invite(email, busy), busy);
    expect(job?.seconds).toBeGreaterThan(23 * 3600);
    expect(await mailsTo(service, email)).toEqual([]);
    // Another school sends.
    const elsewhere = `${unique('now')}@mail.example`;
    await invite(elsewhere);
    await mailTo(service, elsewhere, 'Your account');
  });
});

describe('a text that a person writes', () => {
  async function write(title: string, userIds: number[], of: School = school): Promise<void> {
    await of.admin.post('/api/notifications/send', {
      user_ids: userIds,
      title,
      message: 'Look at this.',
      channels: ['email'],
    });
    await service.settled();
  }
  const stranger = async (of: School = school, fields: object = {}) => {
    const email = `${unique('stranger')}@mail.example`;
    const id = await of.insert('user_account', { email, first_name: 'Sam', last_name: 'Stranger', ...fields });
    return { id, email };
  };
  const deliveries = (userId: number, of: School = school) =>
    service.database.query<{ title: string; status: string }>(
      `select title, status from ${of.schema}.notification_delivery where user_id = $1 order by id`,
      [userId],
    );
  /** The jobs with emails to a user that wait for a later time: in how many seconds each runs. */
  const later = (userId: number, of: School = school) =>
    until(async () => {
      const jobs = await service.database.query<{ seconds: number }>(
        `select extract(epoch from j.run_at - now())::integer as seconds from graphile_worker._private_jobs j
         where j.payload ->> 'tenant_id' = $1 and j.run_at > now() + interval '1 minute' and exists (
           select from ${of.schema}.notification_delivery d
           where d.user_id = $2 and d.status = 'pending' and j.payload::jsonb -> 'only' @> to_jsonb(d.id))`,
        [String(of.id), userId],
      );
      return jobs.length > 0 ? jobs.map(({ seconds }) => seconds) : undefined;
    });
  const tenMinutesPass = async (of: School = school) => {
    await service.database.query(
      "update platform.rate_limit_counter set window_ends_at = now() where window_ends_at < now() + interval '1 hour'",
    );
    await service.database.query(
      "update graphile_worker._private_jobs set run_at = now() where payload ->> 'tenant_id' = $1",
      [String(of.id)],
    );
  };

  test('reaches an address that nobody has confirmed once in ten minutes; the next ones are sent later', async () => {
    const [to, other] = [await stranger(), await stranger()];
    await write('First', [to.id]);
    await mailTo(service, to.email, 'First');
    await write('Second', [to.id, other.id]);
    await write('Third', [to.id]);
    await mailTo(service, other.email, 'Second');
    const waits = await until(async () => {
      const found = await later(to.id);
      return found.length === 2 ? found : undefined;
    });
    for (const seconds of waits) {
      expect(seconds).toBeGreaterThan(9 * 60);
      expect(seconds).toBeLessThanOrEqual(11 * 60);
    }
    expect((await deliveries(to.id)).map(({ status }) => status)).toEqual(['sent', 'pending', 'pending']);
    await tenMinutesPass();
    await until(async () => ((await mailsTo(service, to.email)).length === 2 ? true : undefined));
    await later(to.id);
    await tenMinutesPass();
    await until(async () => ((await mailsTo(service, to.email)).length === 3 ? true : undefined));
    expect(await deliveries(to.id)).toEqual(['First', 'Second', 'Third'].map((title) => ({ title, status: 'sent' })));
  });

  test('shares the pause with the invitation', async () => {
    const email = `${unique('stranger')}@mail.example`;
    const id = await invite(email);
    await mailTo(service, email, 'Your account');
    await write('Welcome', [id]);
    await later(id);
    expect(await mailsTo(service, email)).toHaveLength(1);
  });

  test('does not wait at an address that its user has confirmed', async () => {
    const to = await stranger(school, { email_verified_at: new Date() });
    await write('First', [to.id]);
    await write('Second', [to.id]);
    await until(async () => ((await mailsTo(service, to.email)).length === 2 ? true : undefined));
  });

  test('waits at the old address of a user who has changed it', async () => {
    const to = await stranger(school, { email_verified_at: new Date() });
    await write('First', [to.id]);
    await mailTo(service, to.email, 'First');
    await service.database.query(
      `update ${school.schema}.user_account set email = 'x' || email, email_verified_at = null where id = $1`,
      [to.id],
    );
    await write('Second', [to.id]);
    await mailTo(service, `x${to.email}`, 'Second');
    await write('Third', [to.id]);
    await later(to.id);
  });

  test('waits for the next day above the daily limit of emails to an address, and is not dropped', async () => {
    const to = await stranger();
    await service.database.query('update platform.notification_setting set emails_per_user_per_day = 1');
    try {
      await write('First', [to.id]);
      await mailTo(service, to.email, 'First');
      await tenMinutesPass();
      await write('Second', [to.id]);
      const [seconds] = await later(to.id);
      const [row] = await service.database.query<{ left: number }>(
        "select extract(epoch from date_trunc('day', now(), 'UTC') + interval '1 day' - now())::float8 as left",
      );
      expect(Math.abs((seconds ?? 0) - (row?.left ?? 0))).toBeLessThan(60);
      expect((await deliveries(to.id)).map(({ status }) => status)).toEqual(['sent', 'pending']);
    } finally {
      await service.database.query('update platform.notification_setting set emails_per_user_per_day = default');
    }
  });

  test('waits for the next day if the school has sent as many as it may, and another school sends', async () => {
    const busy = await service.school();
    const [first, second] = [await stranger(busy), await stranger(busy)];
    await write('First', [first.id], busy);
    await mailTo(service, first.email, 'First');
    await service.database.query(
      `update platform.rate_limit_counter set hits = core.max_unconfirmed_emails_per_day()
       where key = sha256(convert_to('unconfirmed ${busy.id}', 'UTF8'))`,
    );
    await write('Second', [second.id], busy);
    const [seconds] = await later(second.id, busy);
    expect(seconds).toBeGreaterThan(23 * 3600);
    const elsewhere = await stranger();
    await write('Second', [elsewhere.id]);
    await mailTo(service, elsewhere.email, 'Second');
  });

  test('of an operator waits at an admin who has not confirmed the address', async () => {
    const of = await service.school();
    const send = (title: string) =>
      service.operator.post(`/api/platform/tenants/${of.id}/message`, { title, message: 'Please call us.' });
    const [admin] = await service.database.query<{ id: number }>(
      `update ${of.schema}.user_account set email_verified_at = null where email = $1 returning id::integer`,
      [of.adminEmail],
    );
    await tenMinutesPass(of);
    await send('First');
    await mailTo(service, of.adminEmail, 'First');
    await send('Second');
    await later(admin?.id ?? 0, of);
    expect((await mailsTo(service, of.adminEmail)).filter(({ subject }) => subject === 'Second')).toEqual([]);
  });
});

describe('the name in the header of an email', () => {
  test.each([
    ['Amina Okafor', 'Amina Okafor'],
    ["Seán O'Brien-Šmíd", "Seán O'Brien-Šmíd"],
    ['Dr.Smith of St. Mary', 'Dr. Smith of St. Mary'],
    ['Win at https://evil.example/x now', 'Win at now'],
    ['pay@evil.example <boss@school.example>', ''],
    ['Boss <boss@school.example>', 'Boss'],
    ['<boss', 'boss'],
    ['Visit evil.example', 'Visit evil. example'],
    ['www.evil.example Bank', 'Bank'],
    ['Line\r\nBcc: x', 'Line Bcc: x'],
  ])('%p is written as %p', (name, expected) => {
    expect(plainName(name)).toBe(expected);
  });

  test('has no link and no address that a user typed, nor has the greeting', async () => {
    const email = `${unique('named')}@mail.example`;
    await invite(email, school, { first_name: 'Win https://evil.example', last_name: 'boss@evil.example' });
    const mail = await mailTo(service, email, 'Your account');
    expect(mail.text).toContain('Hello Win,');
    expect(mail.text).not.toContain('evil.example');
  });
});

describe('the headers of an email', () => {
  const evil = 'Pay at https://evil.example or boss@evil.example';
  const headersOf = (eml: string) => (eml.split(/\r?\n\r?\n/)[0] ?? '').replace(/\r?\n[ \t]+/g, ' ');

  test.each([undefined, evil])('have no link and no address of others, from the sender %p', async (fromName) => {
    const outbox = await mkdtemp(join(tmpdir(), 'mail-'));
    try {
      const send = emailSender({ smtpUrl: undefined, from: 'Service <office@valley.example>', outbox });
      const to = { name: evil, address: 'stranger@mail.example' };
      await send({ to, subject: `${evil}: Your account`, text: 'T', html: 'T', ...(fromName && { fromName }) });
      const [name] = await readdir(outbox);
      const headers = headersOf(await readFile(join(outbox, name ?? ''), 'utf8'));
      expect(headers).toContain('Subject: Pay at or Your account');
      expect(headers).toContain('To: Pay at or <stranger@mail.example>');
      expect(headers).not.toContain('evil');
    } finally {
      await rm(outbox, { recursive: true });
    }
  });

  test('have no link of a name in a notification or of the school; a link in a title is in the text', async () => {
    const at = await service.school();
    await service.database.query('update platform.tenant set name = $1 where id = $2', [evil, at.id]);
    const email = `${unique('stranger')}@mail.example`;
    const id = await at.insert('user_account', { email, first_name: 'See', last_name: 'https://evil.example/x' });
    await at.admin.post('/api/notifications/send', {
      user_ids: [id],
      title: 'News of {{name}}',
      message: 'Hello.',
      channels: ['email'],
    });
    const mail = await mailTo(service, email, 'News of See');
    expect(mail.text.replaceAll('\r', '')).toMatch(/^Hello See,\n\nNews of See https:\/\/evil.example\/x\n\nHello\./);
    const eml = (await service.outbox(0)).find((each) => each.includes(email)) ?? '';
    expect(headersOf(eml)).not.toContain('evil');
  });
});
