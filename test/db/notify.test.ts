import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { settle, testDatabase, type TestDatabase } from '../support/server/database.ts';
import { outboxWriter } from '../../workers/outbox.ts';
import { until } from '../support/client/until.ts';
import { withRole, type BareTenant, provision } from '../support/database/tenants.ts';

let database: TestDatabase;
/** Connections of requests, used again: a new one plans all statements anew. */
let requests: pg.Pool;
let school: BareTenant;
let amina: number;
let ben: number;
let gone: number;
let removed: number;

async function one<T>(text: string, values: unknown[] = []): Promise<T> {
  const [row] = await database.query<{ value: T }>(text, values);
  return row?.value as T;
}

const user = async (email: string, first_name: string, is_active = true) =>
  Number(
    await one<string>(
      `insert into ${school.schema}.user_account (email, first_name, last_name, is_active) values ($1, $2, 'Test', $3) returning id as value`,
      [email, first_name, is_active],
    ),
  );

beforeAll(async () => {
  database = await testDatabase(3);
  requests = new pg.Pool({ connectionString: database.url, application_name: 'test' });
  school = await provision(database);
  amina = await user('amina@test.example', 'Amina');
  ben = await user('ben@test.example', 'Ben');
  gone = await user('gone@test.example', 'Gone', false);
  removed = await user('removed@test.example', 'Removed');
  await database.query(`update ${school.schema}.user_account set deleted_at = now() where id = $1`, [removed]);
});
afterAll(async () => {
  await requests.end();
  await database.drop();
});

const settings = () => ({
  'app.tenant_id': String(school.id),
  'app.scope': 'own',
  'app.user_id': String(amina),
  search_path: `${school.schema}, public`,
});

/** Runs statements as a request of the school, and commits. */
async function asRequest<T>(work: (client: pg.ClientBase) => Promise<T>): Promise<T> {
  const client = await requests.connect();
  let isCommitted = false;
  try {
    await client.query('begin');
    for (const [name, value] of Object.entries(settings()))
      await client.query('select set_config($1, $2, true)', [name, value]);
    await client.query('set local role school_tenant');
    const answer = await work(client);
    await client.query('commit');
    isCommitted = true;
    return answer;
  } finally {
    // Closes the connection of a failed transaction.
    client.release(!isCommitted);
  }
}

/** Sends a message, without waiting until it is written. @returns the number of recipients */
const say = (words: object, recipients: object[], actionUrl: string | null = null) =>
  asRequest(async (client) => {
    const { rows } = await client.query<{ result: number }>('select core.send_message($1, $2, $3, $4) as result', [
      'test',
      JSON.stringify(words),
      JSON.stringify(recipients),
      actionUrl,
    ]);
    return rows[0]?.result;
  });

async function notify(...message: Parameters<typeof say>): Promise<number | undefined> {
  const count = await say(...message);
  await settle(database);
  return count;
}

interface Delivery {
  id: number;
  notification_id: number | null;
  user_id: number | null;
  channel: string;
  address: string | null;
  recipient_name: string;
  title: string;
  message: string;
  status: string;
  reason: string | null;
}

/** The notifications, deliveries and jobs of one call. */
async function traces() {
  const notifications = await database.query<{
    id: number;
    user_id: number;
    title: string;
    message: string;
    type: string;
    action_url: string | null;
  }>(
    `select id::integer, user_id::integer, title, message, type, action_url from ${school.schema}.notification order by id`,
  );
  const deliveries = await database.query<Delivery & pg.QueryResultRow>(
    `select id::integer, notification_id::integer, user_id::integer, channel, address, recipient_name, title, message, status, reason
     from ${school.schema}.notification_delivery order by id`,
  );
  const jobs = await database.query<{ payload: { tenant_id: number; from_id: number; to_id: number }; run_at: Date }>(
    `select payload, run_at from graphile_worker._private_jobs j join graphile_worker._private_tasks t on t.id = j.task_id where t.identifier = 'deliver' order by j.id`,
  );
  await database.query(
    `truncate ${school.schema}.notification, ${school.schema}.notification_delivery; delete from graphile_worker._private_jobs`,
  );
  return { notifications, deliveries, jobs };
}

const words = {
  in_app: { title: 'Hello {{first_name}}', message: '{{name}}: {{what}}' },
  email: { title: 'Mail', message: 'Dear {{name}} of {{school_name}}' },
};

describe('placeholders', () => {
  const render = (template: string, variables: object) =>
    one<string>('select core.render($1, $2) as value', [template, JSON.stringify(variables)]);

  test.each([
    ['a value that looks like a placeholder', '{{a}} and {{b}}', { a: '{{b}}', b: '{{a}}' }, '{{b}} and {{a}}'],
    ['percent signs and format() specifiers', '100 % of {{a}} %s %1$s %%', { a: '%s' }, '100 % of %s %s %1$s %%'],
    ['markup', '<b>{{a}}</b>', { a: '<script>&' }, '<b><script>&</b>'],
    ['spaces inside braces, and unclosed braces', '{{ a }} {{a {a} }}', { a: 'x' }, 'x {{a {a} }}'],
    ['a null is empty, and an unknown variable stays', '[{{a}}{{ b }}]', { a: null }, '[{{ b }}]'],
    ['numbers', '{{n}}', { n: 12.5 }, '12.5'],
  ])('are filled in once: %s', async (_case, template, variables, expected) => {
    expect(await render(template, variables)).toBe(expected);
  });
});

describe('quiet hours', () => {
  test.each([
    [
      'over midnight, and it is evening',
      '21:00',
      '07:00',
      'Europe/Berlin',
      '2026-03-28T21:30:00Z',
      '2026-03-29T05:00:00Z',
    ],
    ['over midnight, and it is morning', '21:00', '07:00', 'UTC', '2026-05-01T06:59:59Z', '2026-05-01T07:00:00Z'],
    ['within a day', '12:00', '14:00', 'Asia/Kolkata', '2026-05-01T07:00:00Z', '2026-05-01T08:30:00Z'],
    ['over', '21:00', '07:00', 'UTC', '2026-05-01T07:00:00Z', null],
    ['not yet begun', '21:00', '07:00', 'UTC', '2026-05-01T20:59:59Z', null],
    ['not set', null, null, 'UTC', '2026-05-01T20:59:59Z', null],
  ])('end at the expected time if they are %s', async (_case, from, to, zone, moment, expected) => {
    const end = await one<Date | null>('select core.quiet_hours_end($1, $2, $3, $4) as value', [
      from,
      to,
      zone,
      moment,
    ]);
    expect(end?.toISOString().replace('.000Z', 'Z') ?? null).toBe(expected);
  });
});

describe('core.send_message', () => {
  test('notifies users in the app and by email, people without a login only by email, and nobody who can no longer log in', async () => {
    const result = await notify(
      words,
      [
        { email: 'parent@test.example', name: 'Pat Parent', variables: { what: 'x' } },
        { user_id: amina, variables: { what: '<b>' } },
        { user_id: gone, email: 'other@test.example', variables: { what: 'y' } },
        { user_id: removed, variables: { what: 'y' } },
        { user_id: ben, variables: { what: '{{name}}' } },
        { email: ' ', name: 'Nobody' },
      ],
      '/somewhere',
    );
    expect(result).toBe(3);
    const { notifications, deliveries, jobs } = await traces();
    expect(notifications).toMatchObject([
      { user_id: amina, title: 'Hello Amina', message: 'Amina Test: <b>', type: 'test', action_url: '/somewhere' },
      { user_id: ben, title: 'Hello Ben', message: 'Ben Test: {{name}}', type: 'test', action_url: '/somewhere' },
    ]);
    const [first, second] = notifications;
    expect(deliveries).toMatchObject([
      {
        notification_id: first?.id,
        user_id: amina,
        channel: 'email',
        address: 'amina@test.example',
        recipient_name: 'Amina Test',
        status: 'pending',
      },
      {
        notification_id: second?.id,
        user_id: ben,
        channel: 'email',
        address: 'ben@test.example',
        title: 'Mail',
        status: 'pending',
      },
      {
        notification_id: null,
        user_id: null,
        channel: 'email',
        address: 'parent@test.example',
        message: expect.stringMatching(/^Dear Pat Parent of bare-/),
        status: 'pending',
      },
    ]);
    expect(jobs.map(({ payload }) => payload)).toEqual([
      { tenant_id: school.id, from_id: deliveries[0]?.id, to_id: deliveries[2]?.id, limits_unconfirmed: true },
    ]);
  });

  test('pushes to each device of a user', async () => {
    await database.query(
      `insert into ${school.schema}.device (user_id, token, platform) values ($1, 'a', 'ios'), ($1, 'b', 'web'), ($2, 'c', 'android')`,
      [amina, ben],
    );
    await notify({ push: { title: 'P', message: 'M' } }, [
      { user_id: amina },
      { user_id: ben },
      { email: 'x@test.example' },
    ]);
    const { notifications, deliveries } = await traces();
    expect(notifications).toEqual([]);
    expect(deliveries.map(({ user_id, channel, notification_id }) => [user_id, channel, notification_id])).toEqual([
      [amina, 'push', null],
      [amina, 'push', null],
      [ben, 'push', null],
    ]);
    await database.query(`truncate ${school.schema}.device cascade`);
  });

  test('skips a device that is removed concurrently', async () => {
    await database.query(
      `insert into ${school.schema}.device (user_id, token, platform) values ($1, 'leaving', 'ios'), ($1, 'staying', 'ios')`,
      [amina],
    );
    const leaving = new pg.Client({ connectionString: database.url, application_name: 'test' });
    await leaving.connect();
    await leaving.query('begin');
    await leaving.query(`delete from ${school.schema}.device where token = 'leaving'`);
    await say({ push: { title: 'P', message: 'M' } }, [{ user_id: amina }]);
    const written = settle(database);
    const isWaiting = () =>
      one<boolean>(
        `select exists (select from pg_locks where not granted and locktype in ('transactionid', 'tuple')
           and pid in (select pid from pg_stat_activity where datname = current_database())) as value`,
      );
    await until(async () => (await isWaiting()) || undefined);
    await leaving.query('commit');
    await leaving.end();
    await written;
    expect((await traces()).deliveries).toHaveLength(1);
    await database.query(`truncate ${school.schema}.device cascade`);
  });

  test('creates one job per hundred deliveries', async () => {
    await notify(
      { email: { title: 'T', message: 'M' } },
      Array.from({ length: 250 }, (_, n) => ({ email: `p${n}@test.example` })),
    );
    const { deliveries, jobs } = await traces();
    expect(jobs.map(({ payload }) => payload.to_id - payload.from_id + 1)).toEqual([100, 100, 50]);
    expect(jobs[0]?.payload.from_id).toBe(deliveries[0]?.id);
    expect(jobs[2]?.payload.to_id).toBe(deliveries.at(-1)?.id);
  });

  test('cuts titles and messages to their maximum lengths', async () => {
    await notify({ in_app: { title: '{{what}}', message: '{{what}}' } }, [
      { user_id: amina, variables: { what: 'x'.repeat(3000) } },
      { user_id: amina, variables: { what: 'a\r\nBcc: b' } },
      { user_id: amina, variables: { what: null } },
      { user_id: amina, variables: { what: 'y'.repeat(100_000) } },
    ]);
    const { notifications } = await traces();
    expect(notifications.map(({ title, message }) => [title.slice(0, 10), title.length, message.length])).toEqual([
      ['xxxxxxxxxx', 200, 3000],
      ['a Bcc: b', 8, 9],
      [expect.stringMatching(/^bare-/), expect.any(Number), 0],
      ['yyyyyyyyyy', 200, 5000],
    ]);
  });

  test('drops deliveries above the daily limits, with the reason', async () => {
    await database.query('update platform.notification_setting set emails_per_user_per_day = 2');
    try {
      const recipients = [
        { email: 'twins@test.example' },
        { email: 'twins@test.example' },
        { email: 'other@test.example' },
      ];
      await notify({ email: { title: 'T', message: 'M' } }, recipients);
      await notify({ email: { title: 'T', message: 'M' } }, recipients);
    } finally {
      await database.query('update platform.notification_setting set emails_per_user_per_day = default');
    }
    const { deliveries, jobs } = await traces();
    expect(deliveries.map(({ address, status, reason }) => [address?.split('@')[0], status, reason])).toEqual([
      ['twins', 'pending', null],
      ['twins', 'pending', null],
      ['other', 'pending', null],
      ['twins', 'dropped', 'daily_limit'],
      ['twins', 'dropped', 'daily_limit'],
      ['other', 'pending', null],
    ]);
    expect(jobs).toHaveLength(2);
  });

  test('counts what was sent on the same day towards the daily limits, but not what was dropped', async () => {
    await database.query(`insert into ${school.schema}.device (user_id, token, platform) values ($1, 'a', 'ios')`, [
      amina,
    ]);
    const send = async (limit: number, count: number) => {
      await database.query(
        'update platform.notification_setting set push_per_user_per_day = $1, emails_per_user_per_day = $1',
        [limit],
      );
      const text = { title: 'T', message: 'M' };
      await notify({ push: text, email: text }, Array<object>(count).fill({ user_id: amina }));
    };
    const confirm = (at: string) =>
      database.query(`update ${school.schema}.user_account set email_verified_at = ${at} where id = $1`, [amina]);
    try {
      await confirm('now()');
      await send(2, 3);
      await send(3, 2);
    } finally {
      await confirm('null');
      await database.query(
        'update platform.notification_setting set push_per_user_per_day = default, emails_per_user_per_day = default',
      );
    }
    const { deliveries } = await traces();
    const statuses = ['pending', 'pending', 'dropped', 'pending', 'dropped'];
    for (const channel of ['push', 'email'])
      expect(deliveries.filter((one) => one.channel === channel).map(({ status }) => status)).toEqual(statuses);
    await database.query(`truncate ${school.schema}.device cascade`);
  });

  test('renders for thousands of recipients in memory', async () => {
    const temporaryBytes = async () =>
      Number(await one<string>('select temp_bytes as value from pg_stat_database where datname = current_database()'));
    const before = await temporaryBytes();
    await asRequest(async (client) => {
      await client.query("select core.send_message('test', $1, $2)", [
        JSON.stringify({ email: { title: 'Hello {{name}}', message: 'M' } }),
        JSON.stringify(Array.from({ length: 3000 }, (_, n) => ({ email: `r${n}@test.example`, name: `R ${n}` }))),
      ]);
      // Otherwise Postgres may report the bytes later.
      await client.query('select pg_stat_force_next_flush()');
    });
    await settle(database);
    await database.query('select pg_stat_force_next_flush()');
    const { deliveries } = await traces();
    expect(deliveries).toHaveLength(3000);
    expect(deliveries.at(-1)?.title).toBe('Hello R 2999');
    expect(await temporaryBytes()).toBe(before);
  });

  test('drops nothing without a limit, everything with a limit of 0, and counts push by device', async () => {
    await database.query(
      `insert into ${school.schema}.device (user_id, token, platform) values ($1, 'a', 'ios'), ($1, 'b', 'web')`,
      [amina],
    );
    const both = { push: { title: 'T', message: 'M' }, email: { title: 'T', message: 'M' } };
    const statuses = async (push: number | null, emails: number | null) => {
      await database.query(
        'update platform.notification_setting set push_per_user_per_day = $1, emails_per_user_per_day = $2',
        [push, emails],
      );
      await notify(both, [{ user_id: amina }, { user_id: amina }]);
      return (await traces()).deliveries.map(({ channel, status }) => `${channel} ${status}`).sort();
    };
    const each = (push: string[], email: string[]) => [
      ...email.map((one) => `email ${one}`),
      ...push.map((one) => `push ${one}`),
    ];
    try {
      expect(await statuses(null, 0)).toEqual(
        each(['pending', 'pending', 'pending', 'pending'], ['dropped', 'dropped']),
      );
      expect(await statuses(1, null)).toEqual(
        each(['dropped', 'dropped', 'pending', 'pending'], ['pending', 'pending']),
      );
    } finally {
      await database.query(
        'update platform.notification_setting set push_per_user_per_day = default, emails_per_user_per_day = default',
      );
      await database.query(`truncate ${school.schema}.device cascade`);
    }
  });

  test.each([
    ['attendance.absent', false],
    ['operator.login', false],
    ['timetable.published', true],
    ['account.created', true],
  ])('an email of %s with a text of the school may have to wait: %p', async (event, expected) => {
    const send = async () => {
      await asRequest((client) =>
        client.query('select core.notify($1, $2)', [
          event,
          JSON.stringify({ recipients: [{ user_id: amina, variables: { classes: 'A', date: 'today' } }] }),
        ]),
      );
      await settle(database);
      return (await traces()).jobs.map(({ payload }) => 'limits_unconfirmed' in payload);
    };
    await database.query(
      `insert into ${school.schema}.notification_event (event, is_enabled, channels) values ($1, true, '{email}')`,
      [event],
    );
    // The welcome to an address that somebody has typed may have to wait with any text.
    expect(await send()).toEqual([event === 'account.created']);
    await database.query(
      `insert into ${school.schema}.notification_template (name, title, message, channels) values ($1, 'T', 'M', '{email}')`,
      [event],
    );
    expect(await send()).toEqual([expected]);
  });

  test('drops no email above the daily limit that may have to wait, unless there are to be none', async () => {
    const send = async (limit: number) => {
      await database.query('update platform.notification_setting set emails_per_user_per_day = $1', [limit]);
      await notify({ email: { title: 'T', message: 'M' } }, [{ user_id: ben }, { user_id: ben }]);
      return (await traces()).deliveries.map(({ status }) => status);
    };
    try {
      expect(await send(1)).toEqual(['pending', 'pending']);
      expect(await send(0)).toEqual(['dropped', 'dropped']);
    } finally {
      await database.query('update platform.notification_setting set emails_per_user_per_day = default');
    }
  });

  test('counts daily limits in the time zone of the school', async () => {
    /** The result for a message at this hour if another one was sent three hours ago. */
    const after = async (hour: number) => {
      await database.query(
        `update platform.tenant set time_zone = '<X>' || (extract(hour from now() at time zone 'UTC') - $2)::integer where id = $1`,
        [school.id, hour],
      );
      await database.query(
        `insert into ${school.schema}.notification_delivery (channel, address, recipient_name, title, message, status, created_at)
         values ('email', 'daily@test.example', 'D', 'T', 'M', 'sent', now() - interval '3 hours')`,
      );
      await notify({ email: { title: 'T', message: 'M' } }, [{ email: 'daily@test.example' }]);
      return (await traces()).deliveries.at(-1)?.status;
    };
    await database.query('update platform.notification_setting set emails_per_user_per_day = 1');
    try {
      expect([await after(0), await after(22)]).toEqual(['pending', 'dropped']);
    } finally {
      await database.query('update platform.notification_setting set emails_per_user_per_day = default');
      await database.query("update platform.tenant set time_zone = 'UTC' where id = $1", [school.id]);
    }
  });

  test('sends nothing on channels that operators disabled', async () => {
    await database.query(`insert into ${school.schema}.device (user_id, token, platform) values ($1, 'a', 'ios')`, [
      amina,
    ]);
    const text = { title: 'T', message: 'M' };
    for (const channel of ['in_app', 'push', 'email']) {
      await database.query(`update platform.notification_setting set ${channel} = false`);
      try {
        expect(await notify({ [channel]: text }, [{ user_id: amina }])).toBe(0);
        await notify({ in_app: text, push: text, email: text }, [{ user_id: amina }]);
      } finally {
        await database.query(`update platform.notification_setting set ${channel} = true`);
      }
      const { notifications, deliveries } = await traces();
      expect(
        [...notifications.map(() => 'in_app'), ...deliveries.map((one) => one.channel).sort(), channel].sort(),
      ).toEqual(['email', 'in_app', 'push']);
    }
    await database.query(`truncate ${school.schema}.device cascade`);
  });

  test('skips channels that operators disabled, and delays deliveries until quiet hours end', async () => {
    await database.query(
      "update platform.notification_setting set in_app = false, quiet_from = (now() at time zone 'UTC')::time - interval '1 hour', quiet_until = (now() at time zone 'UTC')::time + interval '1 hour'",
    );
    try {
      await notify(words, [{ user_id: amina, variables: { what: 'x' } }]);
    } finally {
      await database.query(
        'update platform.notification_setting set in_app = true, quiet_from = null, quiet_until = null',
      );
    }
    const { notifications, deliveries, jobs } = await traces();
    expect(notifications).toEqual([]);
    expect(deliveries).toHaveLength(1);
    expect((jobs[0]?.run_at.getTime() ?? 0) - Date.now()).toBeGreaterThan(59 * 60_000);
  });

  test('sends NOTIFY with the school and its users at commit, in several payloads if there are many', async () => {
    const listener = new pg.Client({ connectionString: database.url, application_name: 'test' });
    await listener.connect();
    const heard: { tenant: number; users: number[] }[] = [];
    listener.on('notification', ({ payload = '' }) => heard.push(JSON.parse(payload) as (typeof heard)[number]));
    await listener.query('listen school_events');
    const many = await database.query<{ id: number }>(
      `insert into ${school.schema}.user_account (email, first_name, last_name) select 'm' || n || '@test.example', 'M', 'M' from generate_series(1, 1001) n returning id::integer`,
    );
    const recipients = many.map(({ id }) => ({ user_id: id }));
    try {
      await notify({ in_app: { title: 'T', message: 'M' } }, recipients.slice(0, 1000));
      await notify({ email: { title: 'T', message: 'M' } }, recipients.slice(0, 10));
      await notify({ in_app: { title: 'T', message: 'M' } }, recipients.slice(1000));
      await until(() => (heard.length >= 4 ? true : undefined));
    } finally {
      await listener.end();
      await traces();
    }
    expect(heard.map(({ tenant, users }) => [tenant, users.length])).toEqual([
      [school.id, 350],
      [school.id, 350],
      [school.id, 300],
      [school.id, 1],
    ]);
    expect(heard.flatMap(({ users }) => users).sort((a, b) => a - b)).toEqual(many.map(({ id }) => id));
  });

  test('does not wait for another transaction that notifies the same user, and gives ids and times in the order of writing', async () => {
    const told = (client: pg.ClientBase, title: string) =>
      client.query("select core.send_message('t', $1, $2)", [
        JSON.stringify({ in_app: { title, message: 'M' } }),
        JSON.stringify([{ user_id: amina }]),
      ]);
    await asRequest(async (slow) => {
      await told(slow, 'slow');
      // Written and committed while the other transaction is open.
      await asRequest((client) => told(client, 'quick'));
      await settle(database);
    });
    await settle(database);
    expect(
      await database.query(
        `select title, created_at > lag(created_at) over (order by id) as is_later from ${school.schema}.notification order by id`,
      ),
    ).toEqual([
      { title: 'quick', is_later: null },
      { title: 'slow', is_later: true },
    ]);
    await traces();
  });

  test('is written by one worker at a time, and once', async () => {
    for (let n = 0; n < 20; n++) await say({ in_app: { title: `n${n}`, message: 'M' } }, [{ user_id: amina }]);
    const holder = new pg.Client({ connectionString: database.url, application_name: 'test' });
    await holder.connect();
    const write = 'select core.outbox_write($1) as written';
    await holder.query('begin');
    expect((await holder.query(write, [school.id])).rows).toEqual([{ written: 20 }]);
    expect(await database.query(write, [school.id])).toEqual([{ written: null }]);
    // As if the worker had crashed before its commit.
    await holder.query('rollback');
    await holder.end();
    await Promise.all([settle(database), settle(database)]);
    const { notifications } = await traces();
    expect(notifications.map(({ title }) => title)).toEqual(Array.from({ length: 20 }, (_, n) => `n${n}`));
  });

  test('is written in slices of a thousand recipients, and other events pass between, also later ones', async () => {
    const crowd = await database.query<{ id: number }>(
      `insert into ${school.schema}.user_account (email, first_name, last_name) select 'slice' || n || '@test.example', 'C', 'Rowd' from generate_series(1, 2500) n returning id::integer`,
    );
    const recipients = crowd.map(({ id }) => ({ user_id: id }));
    /** The number of notifications by title that each of five batches has written. */
    const batches = async () => {
      const sizes: Record<string, number>[] = [];
      for (let batch = 0; batch < 5; batch++) {
        await database.query('select core.outbox_write($1)', [school.id]);
        const { notifications } = await traces();
        const titles = new Set(notifications.map(({ title }) => title));
        sizes.push(
          Object.fromEntries(
            [...titles].map((title) => [title, notifications.filter((one) => one.title === title).length]),
          ),
        );
      }
      return sizes;
    };
    expect(await say({ in_app: { title: 'all', message: 'M' } }, recipients)).toBe(2500);
    await say({ in_app: { title: 'later', message: 'M' } }, [{ user_id: amina }]);
    expect(await batches()).toEqual([{ all: 1000 }, { all: 1000, later: 1 }, { all: 500 }, {}, {}]);
    // An event of the catalog, and a message behind it. Both are written in slices, one after the other.
    await asRequest((client) =>
      client.query("select core.notify('holiday.added', $1)", [
        JSON.stringify({ recipients: recipients.map((one) => ({ ...one, variables: { holiday_name: 'H' } })) }),
      ]),
    );
    await say({ in_app: { title: 'all', message: 'M' } }, recipients.slice(0, 1500));
    await say({ in_app: { title: 'later', message: 'M' } }, [{ user_id: amina }]);
    expect(await batches()).toEqual([
      { 'Holiday: H': 1000 },
      { 'Holiday: H': 1000, all: 1000 },
      { 'Holiday: H': 500, later: 1 },
      { all: 500 },
      {},
    ]);
    expect(await database.query('select from platform.outbox')).toEqual([]);
  });

  const outbox = () => database.query('select event, attempts, retry_at > now() as waits, error from platform.outbox');

  test('an event that fails is tried again later with its error, and delays no other', async () => {
    await asRequest(async (client) => {
      await client.query(`select core.notify('payment.received', '{"payment_id": "no number"}')`);
      await client.query(`select core.notify('payment.unknown', '{"recipients": []}')`);
    });
    await say({ in_app: { title: 'other', message: 'M' } }, [{ user_id: amina }]);
    await database.query('select core.outbox_write($1)', [school.id]);
    expect((await traces()).notifications.map(({ title }) => title)).toEqual(['other']);
    const id = await one<number>("select id::integer as value from platform.outbox where event = 'payment.unknown'");
    const failed = [
      ['payment.received', 'invalid input syntax for type bigint: "no number"'],
      [
        'payment.unknown',
        'This release has no event payment.unknown. A newer release has probably stored it: upgrade again, or remove ' +
          `the event: school jobs cancel --task outbox ${id}`,
      ],
    ].map(([event, error]) => ({ event, attempts: 1, waits: true, error }));
    expect(await outbox()).toEqual(failed);
    expect(await one("select core.change_jobs('retry', null, 'outbox', true) as value")).toMatchObject({
      done: { outbox: 2 },
    });
    for (let attempt = 1; attempt <= 12; attempt++) {
      await database.query('update platform.outbox set retry_at = null');
      await database.query('select core.outbox_write($1)', [school.id]);
    }
    expect(
      await database.query("select from platform.outbox where retry_at = 'infinity' and attempts = 12"),
    ).toHaveLength(2);
    const { tasks } = await one<{ tasks: object[] }>('select core.queue() as value');
    expect(tasks).toContainEqual(expect.objectContaining({ task: 'outbox', ready: 0, waiting: 0, failed: 2 }));
    expect(await one("select core.change_jobs('cancel', null, 'outbox', true) as value")).toMatchObject({
      done: { outbox: 2 },
    });
    expect(await outbox()).toEqual([]);
  });

  test('one event whose messages cannot be stored is tried again later, and the others are written', async () => {
    await database.query(
      `alter table ${school.schema}.notification add constraint not_this check (title <> 'impossible')`,
    );
    try {
      for (const title of ['before', 'impossible', 'after'])
        await say({ in_app: { title, message: 'M' } }, [{ user_id: amina }]);
      await database.query('select core.outbox_write($1)', [school.id]);
      expect((await traces()).notifications.map(({ title }) => title)).toEqual(['before', 'after']);
      expect(await outbox()).toEqual([
        { event: 'message', attempts: 1, waits: true, error: expect.stringContaining('not_this') },
      ]);
    } finally {
      await database.query(
        `delete from platform.outbox; alter table ${school.schema}.notification drop constraint not_this`,
      );
    }
  });

  test('an event that is committed while the worker writes others is written afterwards', async () => {
    const locked = new pg.Client({ connectionString: database.url, application_name: 'test' });
    await locked.connect();
    await say({ in_app: { title: 'first', message: 'M' } }, [{ user_id: amina }]);
    await locked.query(`begin; lock table ${school.schema}.notification_event`);
    const writing = database.query('select core.outbox_write($1)', [school.id]);
    await until(() =>
      one(
        `select true as value from pg_locks where not granted and relation = '${school.schema}.notification_event'::regclass`,
      ),
    );
    await asRequest((client) =>
      client.query("select core.notify('holiday.added', $1)", [
        JSON.stringify({ recipients: [{ user_id: amina, variables: { holiday_name: 'H' } }] }),
      ]),
    );
    await locked.query('commit');
    await locked.end();
    await writing;
    await settle(database);
    expect((await traces()).notifications.map(({ title }) => title)).toEqual(['first', 'Holiday: H']);
  });

  test('a school that is locked or damaged delays no other', async () => {
    const [locked, damaged] = [await provision(database), await provision(database)];
    const holder = new pg.Client({ connectionString: database.url, application_name: 'test' });
    await holder.connect();
    const pool = new pg.Pool({ connectionString: database.url, max: 4 });
    const warnings: object[] = [];
    const log = { info: () => undefined, warn: (entry: object) => void warnings.push(entry) };
    try {
      for (const { id } of [locked, damaged, school])
        await database.query(`insert into platform.outbox (tenant_id, event, facts) values ($1, 'holiday.added', $2)`, [
          id,
          JSON.stringify({ recipients: [{ user_id: amina, variables: { holiday_name: 'H' } }] }),
        ]);
      await holder.query(`begin; lock table ${locked.schema}.notification_event`);
      await database.query(`alter table ${damaged.schema}.notification_event rename to lost`);
      const writer = outboxWriter({ pool, logger: log as never, tracing: undefined });
      expect(await writer.round(pool)).toMatchObject({ begun: 3 });
      await until(() =>
        one(`select true as value where not exists (select from platform.outbox where tenant_id = ${school.id})`),
      );
      // Another round does not wait for the school that is locked.
      await database.query(`insert into platform.outbox (tenant_id, event, facts) values ($1, 'holiday.added', $2)`, [
        school.id,
        JSON.stringify({ recipients: [{ user_id: amina, variables: { holiday_name: 'I' } }] }),
      ]);
      expect(await writer.round(pool)).toMatchObject({ begun: 1 });
      await writer.finish();
      expect((await traces()).notifications.map(({ title }) => title)).toEqual(['Holiday: H', 'Holiday: I']);
      expect(warnings).toEqual(
        expect.arrayContaining([
          expect.objectContaining({ tenant: locked.id, cause: expect.stringContaining('lock timeout') }),
          expect.objectContaining({ tenant: damaged.id, cause: expect.stringContaining('notification_event') }),
        ]),
      );
      // Both are left alone for a while.
      expect(await writer.round(pool)).toMatchObject({ begun: 0 });
      expect(warnings).toHaveLength(2);
    } finally {
      await holder.end();
      await pool.end();
      await database.query('delete from platform.outbox');
    }
  });

  test("names the deliveries of a job one by one where some of the numbers between are others'", async () => {
    await database.query(`alter sequence ${school.schema}.notification_delivery_id_seq increment by 2`);
    await notify({ email: words.email }, [{ user_id: amina }, { user_id: ben }]);
    await database.query(`alter sequence ${school.schema}.notification_delivery_id_seq increment by 1`);
    const { deliveries, jobs } = await traces();
    const ids = deliveries.map(({ id }) => id);
    expect(jobs.map(({ payload }) => payload)).toEqual([
      { tenant_id: school.id, from_id: ids[0], to_id: ids[1], only: ids, limits_unconfirmed: true },
    ]);
  });

  test('gives a reader that resumes after an id every message exactly once, under concurrent writes', async () => {
    const tellers = Array.from({ length: 6 }, async (_, teller) => {
      for (let n = 0; n < 15; n++) {
        await asRequest(async (client) => {
          await client.query("select core.send_message('t', $1, $2)", [
            JSON.stringify({ in_app: { title: `${teller}/${n}`, message: 'M' } }),
            JSON.stringify([{ user_id: amina }, { user_id: ben }]),
          ]);
          await client.query('select pg_sleep($1)', [Math.random() / 100]);
        });
        await database.query('select core.outbox_write($1)', [school.id]);
      }
    });
    const seen: string[] = [];
    let last = 0;
    const read = async () => {
      const rows = await database.query<{ id: number; title: string }>(
        `select id::integer, title from ${school.schema}.notification where id > $1 and user_id = $2 order by id`,
        [last, amina],
      );
      seen.push(...rows.map(({ title }) => title));
      last = rows.at(-1)?.id ?? last;
    };
    const reading = setInterval(() => {
      reads = reads.then(read);
    }, 2);
    let reads = Promise.resolve();
    await Promise.all(tellers).finally(() => {
      clearInterval(reading);
    });
    await settle(database);
    await reads.then(read);
    await traces();
    expect(seen).toHaveLength(90);
    expect(new Set(seen).size).toBe(90);
  });

  test('restores the settings of the request, and reveals no other user', async () => {
    await withRole(database.url, 'school_tenant', settings(), async ({ rows }) => {
      await rows("select core.send_message('t', $1, $2)", [JSON.stringify(words), JSON.stringify([{ user_id: ben }])]);
      expect(
        await rows(
          "select current_setting('app.scope') as scope, current_setting('app.is_system', true) as is_system, current_setting('search_path') as path",
        ),
      ).toEqual([{ scope: 'own', is_system: '', path: `${school.schema}, public` }]);
      expect(await rows('select from notification')).toEqual([]);
      expect(await rows('select from notification_delivery')).toEqual([]);
    });
  });
});

describe('core.notify', () => {
  /** Notifies these recipients of an event. @returns the number of notifications and deliveries */
  async function event(key: string, recipients: object[]): Promise<number> {
    const count = () =>
      one<number>(
        `select ((select count(*) from ${school.schema}.notification) + (select count(*) from ${school.schema}.notification_delivery))::integer as value`,
      );
    const before = await count();
    await asRequest((client) => client.query('select core.notify($1, $2)', [key, JSON.stringify({ recipients })]));
    await settle(database);
    return (await count()) - before;
  }
  const holiday = () =>
    event('holiday.added', [{ user_id: amina, variables: { holiday_name: 'Diwali', date: '8 November 2026' } }]);

  test('uses the template of the school, else of operators, else of the catalog', async () => {
    await holiday();
    await database.query(
      `insert into platform.notification_template (key, channel, subject, body, is_active) values ('holiday.added', 'in_app', 'Off: {{holiday_name}}', 'B', true), ('holiday.added', 'push', 'P', 'P', true)`,
    );
    await holiday();
    await database.query(
      `insert into ${school.schema}.notification_template (name, title, message) values ('Holiday.added', '{{holiday_name}}!', 'Yes, {{first_name}}')`,
    );
    await holiday();
    await database.query(
      `delete from ${school.schema}.notification_template; update platform.notification_template set is_active = false`,
    );
    await holiday();
    await database.query('delete from platform.notification_template');
    const { notifications } = await traces();
    expect(notifications.map(({ title, message, type }) => [title, message, type])).toEqual([
      ['Holiday: Diwali', 'There is no school on 8 November 2026: Diwali.', 'holiday.added'],
      ['Off: Diwali', 'B', 'holiday.added'],
      ['Diwali!', 'Yes, Amina', 'holiday.added'],
      ['Holiday: Diwali', 'There is no school on 8 November 2026: Diwali.', 'holiday.added'],
    ]);
  });

  test('uses the channels that the school chose, and sends nothing if the event or the feature is disabled', async () => {
    await database.query(
      `insert into ${school.schema}.notification_event (event, channels) values ('holiday.added', '{email}')`,
    );
    expect(await holiday()).toBe(1);
    await database.query(`update ${school.schema}.notification_event set is_enabled = false`);
    expect(await holiday()).toBe(0);
    await database.query(`delete from ${school.schema}.notification_event`);
    await database.query(`update platform.tenant set feature_flags = '{"notifications": false}' where id = $1`, [
      school.id,
    ]);
    expect(await holiday()).toBe(0);
    await database.query(`update platform.tenant set feature_flags = '{}' where id = $1`, [school.id]);
    expect(await event('holiday.added', [])).toBe(0);
    const { notifications, deliveries } = await traces();
    expect(notifications).toEqual([]);
    expect(deliveries.map(({ channel }) => channel)).toEqual(['email']);
  });

  test('has a catalog whose templates use only known placeholders', async () => {
    const rows = await database.query<{ key: string; unknown: string[] }>(
      `select key, array(select name from unnest(core.placeholder_names(title || message)) name where name <> all (variables || core.recipient_variables())) as unknown from core.notification_event`,
    );
    expect(rows.length).toBeGreaterThan(10);
    expect(rows.filter(({ unknown }) => unknown.length > 0)).toEqual([]);
  });

  test('fills every placeholder of each event of the catalog, and prefers templates of the school', async () => {
    const events = await database.query<{ key: string; variables: string[]; sample: Record<string, string> }>(
      'select key, variables, sample from core.notification_event order by key',
    );
    for (const { key, variables, sample } of events) {
      const notify = () => event(key, [{ user_id: amina, variables: sample }]);
      expect(await notify()).toBeGreaterThan(0);
      const [plain] = (await traces()).notifications;
      expect([key, plain?.type, `${plain?.title} ${plain?.message}`]).toEqual([
        key,
        key,
        expect.not.stringMatching(/\{\{|\}\}| {2}|%s/),
      ]);

      const all = variables.map((name) => `{{${name}}}`).join('|');
      const values = variables.map((name) => sample[name]).join('|');
      await database.query(
        `insert into platform.notification_template (key, channel, subject, body) values ($1, 'in_app', 'Operators', $2)`,
        [key, all],
      );
      await notify();
      expect((await traces()).notifications.map(({ title, message }) => [title, message])).toEqual([
        ['Operators', values],
      ]);
      await database.query(
        `insert into ${school.schema}.notification_template (name, title, message) values ($1, 'Ours', $2)`,
        [key, all],
      );
      await notify();
      expect((await traces()).notifications.map(({ title, message }) => [title, message])).toEqual([['Ours', values]]);
      await database.query(
        `insert into ${school.schema}.notification_event (event, channels, is_enabled) values ($1, '{in_app,push,email}', false)`,
        [key],
      );
      expect(await notify()).toBe(0);
      expect((await traces()).notifications).toEqual([]);
      await database.query(`delete from ${school.schema}.notification_event`);
    }
    await database.query(
      `delete from ${school.schema}.notification_template; delete from platform.notification_template`,
    );
  });
});
