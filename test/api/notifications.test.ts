import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Client } from '../support/client/client.ts';
import { race } from '../support/client/race.ts';
import { type School, serviceWithSchool, unique } from '../support/server/service.ts';
import type { OutputOf } from '../support/client/output.ts';
import type { Notification as NotificationSchema } from '../../src/endpoints/notifications.ts';

const { service, school } = await serviceWithSchool(
  { BASE_DOMAIN: 'schools.example', APP_URL: 'https://app.example/school/', PUBLIC_URL: 'https://api.example' },
  9,
);
const path = '/api/notifications';

type Notification = OutputOf<typeof NotificationSchema>;
type List = { unread_count: number } & Awaited<ReturnType<typeof school.admin.get<Notification[]>>>;

const list = async (of: Client, query = '') => (await of.get<Notification[]>(`${path}${query}`)) as List;
/** Creates a user without notifications: the welcome notification is deleted. */
async function newUser(roles: string[] = ['teacher'], fields: Record<string, unknown> = {}, at: School = school) {
  const user = await at.user(roles, fields);
  await service.database.query(`delete from ${at.schema}.notification where user_id = $1`, [user.id]);
  return user;
}
async function send(body: object, status = 200, from: Client = school.admin) {
  const answer = await from.post<{ sent: number }>(`${path}/send`, body, status);
  await service.settled();
  return answer;
}
const text = { title: 'Early end', message: 'School ends at noon.' };
const deliveries = (userId: number) =>
  service.database.query<{ channel: string; address: string | null; title: string; message: string }>(
    `select channel, address, title, message from ${school.schema}.notification_delivery where user_id = $1 order by id`,
    [userId],
  );

describe('the notifications of a user', () => {
  test('are listed latest first, with filters, search and pages; unread_count ignores the filters', async () => {
    const user = await newUser();
    for (const n of [1, 2, 3])
      await send({
        user_ids: [user.id],
        title: `Title ${n}`,
        message: `Café ${n}`,
        type: n === 2 ? 'alert' : 'info',
        action_url: '/x',
      });
    const all = await list(user);
    expect(
      all.data.map(({ title, message, type, action_url, is_read, read_at }) => [
        title,
        message,
        type,
        action_url,
        is_read,
        read_at,
      ]),
    ).toEqual([
      ['Title 3', 'Café 3', 'info', '/x', false, null],
      ['Title 2', 'Café 2', 'alert', '/x', false, null],
      ['Title 1', 'Café 1', 'info', '/x', false, null],
    ]);
    expect(all.unread_count).toBe(3);
    expect(all.pagination).toMatchObject({ totalItems: 3 });
    const titles = async (query: string) => {
      const { data, unread_count } = await list(user, query);
      return [data.map(({ title }) => title), unread_count];
    };
    await user.post(`${path}/${all.data[0]?.id}/read`, undefined);
    expect(await titles('?type=alert')).toEqual([['Title 2'], 2]);
    expect(await titles('?search=cafe+1')).toEqual([['Title 1'], 2]);
    expect(await titles('?is_read=true')).toEqual([['Title 3'], 2]);
    expect(await titles('?is_read=false')).toEqual([['Title 2', 'Title 1'], 2]);
    expect(await titles('?page=2&pageSize=2')).toEqual([['Title 1'], 2]);
    expect(await titles('?order=asc&pageSize=1')).toEqual([['Title 1'], 2]);
    for (const query of ['?is_read=maybe', '?sort=text', '?user_id=1']) await user.get(`${path}${query}`, 400);
  });

  test('can be marked as read singly or all at once; marking one again keeps its read_at', async () => {
    const user = await newUser();
    await send({ user_ids: [user.id], ...text });
    await send({ user_ids: [user.id], ...text });
    await send({ user_ids: [user.id], ...text });
    const [last] = (await list(user)).data;
    const { data: read } = await user.post<Notification>(`${path}/${last?.id}/read`, undefined);
    expect(read).toMatchObject({ id: last?.id, is_read: true, read_at: expect.any(String) });
    expect((await user.post<Notification>(`${path}/${last?.id}/read`, undefined)).data.read_at).toBe(read.read_at);
    expect((await user.post<{ marked: number }>(`${path}/read-all`, undefined)).data).toEqual({ marked: 2 });
    expect((await user.post<{ marked: number }>(`${path}/read-all`, undefined)).data).toEqual({ marked: 0 });
    expect((await list(user)).unread_count).toBe(0);
  });

  test('can be deleted by the user; anybody else, including an admin, gets a 404 and changes nothing', async () => {
    const [user, other] = [await newUser(), await newUser()];
    await send({ user_ids: [user.id], ...text });
    const id = (await list(user)).data[0]?.id ?? 0;
    for (const stranger of [other, school.admin]) {
      await stranger.post(`${path}/${id}/read`, undefined, 404);
      await stranger.delete(`${path}/${id}`, 404);
    }
    await other.post(`${path}/read-all`, undefined);
    expect((await list(user)).data).toMatchObject([{ id, is_read: false }]);
    expect((await user.delete<{ id: number }>(`${path}/${id}`)).data).toEqual({ id });
    await user.delete(`${path}/${id}`, 404);
    expect((await list(user)).data).toEqual([]);
  });
});

describe('sending a notification', () => {
  test('reaches the given users, all users with one of the given roles, or all users, each once', async () => {
    const mine = await service.school();
    const [ann, bob] = [await newUser(['teacher', 'accountant'], {}, mine), await newUser(['student'], {}, mine)];
    const roles = (await mine.admin.get<{ id: number; name: string }[]>('/api/rbac/roles?pageSize=100')).data;
    const role = (name: string) => roles.find((one) => one.name === name)?.id ?? 0;
    expect((await send({ user_ids: [ann.id], ...text, title: 'To Ann' }, 200, mine.admin)).data).toEqual({ sent: 1 });
    expect(
      (await send({ role_ids: [role('teacher'), role('accountant')], ...text, title: 'To teachers' }, 200, mine.admin))
        .data,
    ).toEqual({ sent: 1 });
    expect((await send({ role_ids: [role('transport_manager')], ...text }, 200, mine.admin)).data).toEqual({
      sent: 0,
    });
    expect((await send({ all: true, ...text, title: 'To all' }, 200, mine.admin)).data).toEqual({ sent: 3 });
    expect((await list(ann)).data.map(({ title }) => title)).toEqual(['To all', 'To teachers', 'To Ann']);
    expect((await list(bob)).data.map(({ title }) => title)).toEqual(['To all']);
    expect((await list(mine.admin)).data.map(({ title }) => title)).toEqual(['To all']);
  });

  test('skips deactivated and deleted users', async () => {
    const mine = await service.school();
    const [ann, inactive, deleted] = [
      await newUser([], {}, mine),
      await newUser([], {}, mine),
      await newUser([], {}, mine),
    ];
    await mine.admin.put(`/api/users/${inactive.id}`, { is_active: false });
    await mine.admin.delete(`/api/users/${deleted.id}`);
    expect((await send({ user_ids: [ann.id, inactive.id, deleted.id], ...text }, 200, mine.admin)).data).toEqual({
      sent: 1,
    });
    expect((await send({ all: true, ...text }, 200, mine.admin)).data).toEqual({ sent: 2 });
    const [row] = await service.database.query<{ n: number }>(
      `select count(*)::integer as n from ${mine.schema}.notification where user_id = any ($1)`,
      [[inactive.id, deleted.id]],
    );
    expect(row?.n).toBe(0);
  });

  test('uses the given channels, and fills in the placeholders for each recipient', async () => {
    const user = await newUser(['teacher'], { first_name: '<b>{{last_name}}</b>', last_name: 'O"Neil & {{' });
    await user.post('/api/devices/register', { token: unique('token'), platform: 'android' });
    await send({
      user_ids: [user.id],
      title: 'Hi {{first_name}}',
      message: '{{name}}, {{exam}}: {{mark}}',
      variables: { exam: '{{mark}} %s', mark: 1.5 },
      channels: ['push', 'email'],
    });
    expect((await list(user)).data).toEqual([]);
    const title = 'Hi <b>{{last_name}}</b>';
    const message = '<b>{{last_name}}</b> O"Neil & {{, {{mark}} %s: 1.5';
    expect(await deliveries(user.id)).toEqual([
      { channel: 'push', address: null, title, message },
      { channel: 'email', address: user.email, title, message },
    ]);
    await send({ user_ids: [user.id], ...text });
    expect((await list(user)).data).toHaveLength(1);
    expect((await deliveries(user.id)).map(({ channel }) => channel)).toEqual(['push', 'email', 'push']);
  });

  test('requires exactly one kind of target, and either texts or a template', async () => {
    const { id } = school.admin as unknown as { id?: number };
    expect(id).toBeUndefined();
    const user = await newUser();
    const errorOf = async (body: object) => {
      const { details, status } = (await school.admin.send('POST', `${path}/send`, { body })) as {
        status: number;
        details?: { path: string; message: string }[];
      };
      return [status, details?.[0]?.path];
    };
    const to = { user_ids: [user.id] };
    expect(await errorOf(text)).toEqual([400, 'user_ids']);
    expect(await errorOf({ ...to, all: true, ...text })).toEqual([400, 'all']);
    expect(await errorOf({ ...to, role_ids: [1], ...text })).toEqual([400, 'role_ids']);
    expect(await errorOf({ all: false, ...text })).toEqual([400, 'user_ids']);
    expect(await errorOf({ user_ids: [], ...text })).toEqual([400, 'user_ids']);
    expect(await errorOf({ ...to, title: 'T' })).toEqual([400, 'message']);
    expect(await errorOf({ ...to, ...text, template_id: 1 })).toEqual([400, 'title']);
    expect(await errorOf({ ...to, ...text, title: 'x'.repeat(201) })).toEqual([400, 'title']);
    expect(await errorOf({ ...to, ...text, channels: ['sms'] })).toEqual([400, 'channels.0']);
    expect(await errorOf({ ...to, ...text, variables: { 'Not a name': 'x' } })).toEqual([400, 'variables.Not a name']);
    expect(await errorOf({ ...to, ...text, message: '{{x}}'.repeat(6), variables: { x: 'x'.repeat(1000) } })).toEqual([
      400,
      'variables',
    ]);
    // A message that shows nothing to some recipients.
    const onlyName = { ...to, title: 'T', message: '{{ what }}\n{{last_name}}' };
    expect(await errorOf({ ...onlyName, variables: { what: ' ' } })).toEqual([400, 'variables']);
    const { data: template } = await school.admin.post<{ id: number }>(
      `${path}/templates`,
      { name: unique('Only'), title: 'T', message: '{{what}}', variables: ['what'] },
      201,
    );
    expect(await errorOf({ ...to, template_id: template.id, variables: { what: '' } })).toEqual([400, 'variables']);
    expect((await list(user)).data).toEqual([]);
    await send({ ...onlyName, message: '{{first_name}} {{last_name}}' });
    await send({ ...onlyName, variables: { what: 0 } });
    expect((await list(user)).data).toHaveLength(2);
  });

  test('accepts at most thirty variables with 10,000 characters together, and says so', async () => {
    const user = await newUser();
    const answer = async (count: number, length: number) => {
      const variables = Object.fromEntries(Array.from({ length: count }, (_, n) => [`v${n}`, 'x'.repeat(length)]));
      const body = { user_ids: [user.id], ...text, variables };
      const { status, details } = await school.admin.send('POST', `${path}/send`, { body });
      return [status, details];
    };
    const refused = (message: string) => [400, [expect.objectContaining({ path: 'variables', message })]];
    expect(await answer(30, 333)).toEqual([200, undefined]);
    expect(await answer(31, 1)).toEqual(refused('must have at most 30 variables'));
    expect(await answer(11, 1000)).toEqual(refused('must have at most 10000 characters together, and has 11000'));
    await service.settled();
  });

  test('accepts all: false together with ids, and leaves unknown placeholders unchanged', async () => {
    const user = await newUser([], { first_name: 'Ada' });
    await send({
      user_ids: [user.id],
      all: false,
      title: 'Dear {{ first_name }}, {{nick_name}}',
      message: '{{}} {{ exam }} {{day}} 100%',
      variables: { day: 'Monday' },
    });
    expect((await list(user)).data).toMatchObject([
      { title: 'Dear Ada, {{nick_name}}', message: '{{}} {{ exam }} Monday 100%' },
    ]);
  });

  const forbiddenSchemes = [
    ...['javascript', 'data', 'vbscript', 'file', 'blob', 'filesystem', 'intent', 'view-source', 'smb', 'search-ms'],
    ...['ms-word', 'ms-settings', 'ms-its', 'about', 'chrome', 'jar', 'shell', 'ftp', 'ssh', 'c'],
  ];

  test.each([
    ...forbiddenSchemes.flatMap((scheme) => [`${scheme}:x`, `${scheme.toUpperCase()}://a.example/b`, ` ${scheme}:x`]),
    ...['\n\tjavascript:alert(1)', 'java\tscript:alert(1)', 'java\nscript\n:alert(1)', '\u0001javascript:alert(1)'],
    ...['VB\tScript:msgbox', '\tF\nile:/etc/passwd', '%6Aavascript:alert(1)', 'jav\u0430script:x', ':x'],
    ...['http://plain.example', 'HTTP://plain.example/a', 'http:plain.example'],
    ...['https:elsewhere.example', 'https:/elsewhere.example', 'https://', 'https://{{first_name}}/'],
    ...['/\\elsewhere.example', '\\\\elsewhere.example', '/\t/elsewhere.example'],
    ...['https://localhost@', 'https://app.example@elsewhere.example/', '//a:b@elsewhere.example/'],
  ])('refuses the action_url %j', async (action_url) => {
    const { details } = await school.admin.post(`${path}/send`, { all: true, ...text, action_url }, 400);
    expect(details.map((detail) => detail.path)).toEqual(['action_url']);
    const template = { name: unique('Refused'), title: 'T', message: 'M', action_url };
    const refused = await school.admin.post(`${path}/templates`, template, 400);
    expect(refused.details.map((detail) => detail.path)).toEqual(['action_url']);
  });

  test('reads an empty action_url as null', async () => {
    const user = await newUser();
    await send({ user_ids: [user.id], ...text, action_url: '' });
    expect((await list(user)).data[0]?.action_url).toBeNull();
  });

  test.each([
    ...['/', '/fees?id=1#top', 'fees/7', '#top', '?tab=1', '/javascript:x', '/a//b', '/news/{{first_name}}', null],
    ...['https://app.example', 'https://app.example:8443/a?b=c', '//app.example/a', 'https://api.example/api/docs/'],
    ...['http://localhost:5173/fees', 'http://127.0.0.1:8080', 'http://[::1]/'],
    ...[
      'https://elsewhere.example',
      '//elsewhere.example/a',
      'HTTPS://Elsewhere.example:443/',
      'https://BÜCHER.example/a',
    ],
    ...['myapp://students/1', 'MyApp:students', 'com.example.school://fees?id=1', 'app://fees/7', 'mailto:a@b.example'],
  ])('accepts the action_url %j', async (action_url) => {
    const user = await newUser();
    await send({ user_ids: [user.id], ...text, action_url });
    expect((await list(user)).data[0]?.action_url).toBe(action_url);
  });

  test('with unknown ids returns 422, names each of them, and notifies nobody', async () => {
    const [user, other] = [await newUser(), await (await service.school()).user([])];
    const { details } = (await send({ user_ids: [user.id, 999_999, other.id + 900_000], ...text }, 422)) as unknown as {
      details: { path: string }[];
    };
    expect(details.map((detail) => detail.path)).toEqual(['user_ids.1', 'user_ids.2']);
    await send({ role_ids: [999_999], ...text }, 422);
    await send({ all: true, template_id: 999_999 }, 422);
    expect((await list(user)).data).toEqual([]);
  });

  test('requires notification.send; a teacher reaches only the students of their classes and themself', async () => {
    const mine = await service.school();
    const { classId } = await mine.classroom();
    const teacher = await newUser(['teacher'], {}, mine);
    await send({ all: true, ...text }, 403, teacher);
    await service.database.query(
      `insert into ${mine.schema}.role_permission (role_id, permission_id) select r.id, p.id from ${mine.schema}.role r, core.permission p where r.name = 'teacher' and p.name = 'notification.send'`,
    );
    const sender = await service.anonymous.login({
      tenant_id: mine.id,
      email: teacher.email,
      password: 'test-password',
    });
    await mine.insert('teacher', { first_name: 'T', last_name: 'T', user_id: teacher.id });
    await service.database.query(
      `update ${mine.schema}.class set class_teacher_id = (select max(id) from ${mine.schema}.teacher) where id = $1`,
      [classId],
    );
    const [pupil, stranger] = [await newUser(['student'], {}, mine), await newUser(['student'], {}, mine)];
    await mine.insert('student', {
      first_name: 'P',
      last_name: 'P',
      admission_number: 'P',
      user_id: pupil.id,
      class_id: classId,
    });
    await mine.insert('student', { first_name: 'S', last_name: 'S', admission_number: 'S', user_id: stranger.id });
    expect((await send({ all: true, ...text }, 200, sender)).data).toEqual({ sent: 2 });
    expect((await send({ user_ids: [pupil.id], ...text }, 200, sender)).data).toEqual({ sent: 1 });
    await send({ user_ids: [pupil.id, stranger.id], ...text }, 422, sender);
    const [role] = await service.database.query<{ id: number }>(
      `select id::integer from ${mine.schema}.role where name = 'student'`,
    );
    expect((await send({ role_ids: [role?.id], ...text }, 200, sender)).data).toEqual({ sent: 1 });
    expect((await list(stranger)).data).toEqual([]);
    expect((await list(mine.admin)).data).toEqual([]);
    expect((await list(pupil)).data).toHaveLength(3);
  });

  test('runs once for two concurrent requests with the same Idempotency-Key', async () => {
    const user = await newUser();
    const body = { user_ids: [user.id], ...text };
    const key = { 'Idempotency-Key': unique('key') };
    const answers = await race(service.database, `lock table ${school.schema}.idempotency_key in share mode`, 2, () => [
      school.admin.send('POST', `${path}/send`, { body, headers: key }),
      school.admin.send('POST', `${path}/send`, { body, headers: key }),
    ]);
    expect(answers.map(({ status, data }) => [status, data])).toEqual([
      [200, { sent: 1 }],
      [200, { sent: 1 }],
    ]);
    await service.settled();
    expect((await list(user)).data).toHaveLength(1);
    await school.admin.send('POST', `${path}/send`, { body: { ...body, title: 'Other' }, headers: key }, 422);
  });

  test('to 10,000 users creates a notification and a delivery for each; more are refused', async () => {
    const mine = await service.school();
    await service.database.query(
      `insert into ${mine.schema}.user_account (email, first_name, last_name) select 'u' || n || '@many.example', 'U' || n, 'Many' from generate_series(1, 10000) n`,
    );
    const ids = (
      await service.database.query<{ id: number }>(
        `select id::integer from ${mine.schema}.user_account where last_name = 'Many'`,
      )
    ).map(({ id }) => id);
    expect(
      (
        await send(
          { user_ids: ids, title: 'Hello {{first_name}}', message: 'M', channels: ['in_app', 'email'] },
          200,
          mine.admin,
        )
      ).data,
    ).toEqual({
      sent: 10_000,
    });
    const [rows] = await service.database.query<{ notifications: number; deliveries: number; titles: number }>(
      `select (select count(*)::integer from ${mine.schema}.notification) as notifications, (select count(*)::integer from ${mine.schema}.notification_delivery) as deliveries,
         (select count(distinct title)::integer from ${mine.schema}.notification_delivery) as titles`,
    );
    expect(rows).toEqual({ notifications: 10_000, deliveries: 10_000, titles: 10_000 });
    await send({ user_ids: [...ids, 1, 2], ...text }, 400, mine.admin);
  });
});

describe('a school without the feature notifications', () => {
  test('gets feature_disabled at the notification endpoints, and its events notify nobody', async () => {
    const mine = await service.school();
    await service.operator.put(`/api/platform/tenants/${mine.id}`, { feature_flags: { notifications: false } });
    for (const [method, url] of [
      ['GET', path],
      ['GET', `${path}/templates`],
      ['GET', `${path}/events`],
      ['POST', `${path}/read-all`],
    ] as const)
      expect((await mine.admin.send(method, url, {}, 403)).error).toBe('feature_disabled');
    await mine.admin.post('/api/holidays', { name: 'Quiet', date: '2034-01-01' }, 201);
    await service.settled();
    const [row] = await service.database.query<{ n: number }>(
      `select count(*)::integer as n from ${mine.schema}.notification`,
    );
    expect(row?.n).toBe(0);
  });
});

describe('the notification events of a school', () => {
  let mine: School;
  beforeAll(async () => {
    mine = await service.school();
  });

  interface Event {
    key: string;
    is_enabled: boolean;
    channels: string[];
    default_channels: string[];
    variables: string[];
    sample: Record<string, string>;
    title: string;
    message: string;
    template_id: number | null;
  }
  const events = async () => (await mine.admin.get<Event[]>(`${path}/events`)).data;
  const holidayEvent = async () => (await events()).find(({ key }) => key === 'holiday.added');

  test('are listed with their placeholders, and are enabled and get their channels one by one', async () => {
    expect((await events()).map(({ key }) => key)).toEqual([
      ...[
        'account.created',
        'attendance.absent',
        'attendance.late',
        'fee.generated',
        'holiday.added',
        'invoice.reminder',
        'leave.decided',
      ],
      ...['operator.login', 'payment.received', 'subscription.cancelled', 'subscription.ending'],
      ...['subscription.past_due', 'timetable.published', 'transport.expiring', 'trial.ending', 'webhook.disabled'],
    ]);
    const before = await holidayEvent();
    expect(before).toMatchObject({
      is_enabled: true,
      template_id: null,
      variables: expect.arrayContaining(['holiday_name', 'date', 'first_name']),
    });
    const { data: off } = await mine.admin.put<Event>(`${path}/events/holiday.added`, { is_enabled: false });
    expect(off).toEqual({ ...before, is_enabled: false });
    const { data: byMail } = await mine.admin.put<Event>(`${path}/events/holiday.added`, { channels: ['email'] });
    expect(byMail).toEqual({ ...before, is_enabled: false, channels: ['email'] });
    const { data: on } = await mine.admin.put<Event>(`${path}/events/holiday.added`, { is_enabled: true });
    expect(on).toEqual({ ...before, channels: ['email'] });
    expect(await holidayEvent()).toEqual(on);
    await mine.admin.put(`${path}/events/holiday.added`, { channels: [] }, 400);
    await mine.admin.put(`${path}/events/holiday.added`, { title: 'x' }, 400);
    await mine.admin.put(`${path}/events/no.event`, { is_enabled: true }, 404);
    await (await mine.user(['teacher'])).get(`${path}/events`, 403);
  });
});
