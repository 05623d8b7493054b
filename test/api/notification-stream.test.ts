import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import jwt from 'jsonwebtoken';
import type { Client } from '../support/client/client.ts';
import { raw } from '../support/client/raw.ts';
import { type School, serviceWithSchool, testPassword } from '../support/server/service.ts';
import { type OpenStream, openStream } from '../support/client/stream.ts';
import { until } from '../support/client/until.ts';

const heartbeat = 400;
const secret = 'a secret of the stream tests that is long enough';
const { service, school } = await serviceWithSchool(
  { STREAM_HEARTBEAT_MS: String(heartbeat), JWT_SECRETS: secret },
  22,
);

type User = Client & { id: number; email: string };
const open = (of: Client, options: Parameters<typeof openStream>[2] = {}) => openStream(service.url, of.token, options);
async function notify(users: User[], title: string, at: School = school, more: object = {}) {
  const answer = await at.admin.post<{ sent: number }>('/api/notifications/send', {
    user_ids: users.map(({ id }) => id),
    title,
    message: 'In the hall.',
    ...more,
  });
  await service.settled();
  return answer;
}
const titles = (stream: OpenStream) => stream.events.map(({ title }) => title);
const login = (user: User, at: School = school) =>
  service.anonymous.login({ tenant_id: at.id, email: user.email, password: testPassword });

describe('a stream', () => {
  test('sends new notifications with the fields of the list, in the order of their ids', async () => {
    const user = await school.user(['teacher']);
    await notify([user], 'Before');
    const stream = await open(user);
    await notify([user], 'Café {{first_name}}', school, {
      message: 'Line 1\nLine 2\n"data: x"\n\nid: 7',
      action_url: '/hall',
      type: 'alert',
    });
    await stream.has(1);
    await notify([user], 'Next');
    await stream.has(2);
    const { data } = await user.get<Record<string, unknown>[]>('/api/notifications?pageSize=2');
    const picked = data.map(({ id, title, message, type, action_url, created_at }) => ({
      id,
      title,
      message,
      type,
      action_url,
      created_at,
    }));
    expect(stream.events).toEqual(picked.reverse());
    expect([...stream.messageFields]).toEqual(['id data']);
    expect(stream.events[0]).toMatchObject({
      title: 'Café Uma',
      message: 'Line 1\nLine 2\n"data: x"\n\nid: 7',
      action_url: '/hall',
      type: 'alert',
    });
    await stream.close();
  });

  test('has headers that keep proxies from buffering or caching it, fills their first buffer, and gives each client a random reconnection time', async () => {
    const user = await school.user(['teacher']);
    const streams = await Promise.all([1, 2, 3, 4].map(() => open(user)));
    const [first] = streams as [OpenStream];
    expect(first.headers).toMatchObject({
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'private, no-store, no-transform',
      'x-accel-buffering': 'no',
      'x-request-id': expect.any(String),
    });
    await until(() => (streams.every(({ retry }) => retry !== undefined) ? true : undefined));
    expect(first.comments[0]?.length).toBeGreaterThan(2_000);
    for (const { retry } of streams) expect(retry).toBeGreaterThanOrEqual(2_000);
    expect(new Set(streams.map(({ retry }) => retry)).size).toBeGreaterThan(1);
    await Promise.all(streams.map((stream) => stream.close()));
  });

  test('sends a comment at each heartbeat', async () => {
    const user = await school.user(['teacher']);
    const stream = await open(user);
    const count = stream.comments.length;
    const begin = performance.now();
    await until(() => stream.comments.length >= count + 5 || undefined);
    const beats = stream.comments.length - count;
    // A pause of the process delays comments, but adds none. The first one may have been on its way.
    expect(beats).toBeLessThanOrEqual((performance.now() - begin) / heartbeat + 2);
    await stream.close();
  });

  test('resumes after Last-Event-ID or last_event_id; the header takes precedence and an empty one is ignored', async () => {
    const user = await school.user(['teacher']);
    for (const title of ['One', 'Two', 'Three']) await notify([user], title);
    const ids = (await user.get<{ id: number }[]>('/api/notifications?order=asc')).data.map(({ id }) => id);
    const [welcome, one, two] = ids.slice(-4).map(String);
    for (const [options, expected] of [
      [{ lastId: one }, ['Two', 'Three']],
      [{ query: `?last_event_id=${two}` }, ['Three']],
      [{ lastId: two, query: `?last_event_id=${welcome}` }, ['Three']],
      [{ lastId: '0' }, ['One', 'Two', 'Three']],
      [{ lastId: '' }, []],
      [{ lastId: '999999999999999' }, []],
    ] as const) {
      const stream = await open(user, options);
      await notify([user], 'Last');
      await until(() => (stream.events.at(-1)?.title === 'Last' ? true : undefined));
      await service.database.query(`delete from ${school.schema}.notification where title = 'Last'`);
      expect({
        options,
        titles: titles(stream)
          .filter((title) => !title.startsWith('Welcome'))
          .slice(0, -1),
      }).toEqual({ options, titles: expected });
      await stream.close();
    }
  });

  test('sends an id before the first event, so that a client that is disconnected before it misses nothing', async () => {
    const user = await school.user(['teacher']);
    const stream = await open(user);
    await until(() => stream.lastId || undefined);
    await stream.close();
    await notify([user], 'Meanwhile');
    const again = await open(user, { lastId: stream.lastId });
    await again.has(1);
    expect(titles(again)).toEqual(['Meanwhile']);
    await again.close();
  });

  test('sends a large backlog once and in order, while more notifications arrive', async () => {
    const user = await school.user(['teacher']);
    const rows = await service.database.query<{ id: string }>(
      `insert into ${school.schema}.notification (user_id, title, message) select $1, 'N' || n, repeat('ü"', 1 + n % 7 * 400) from generate_series(1, 1000) n returning id`,
      [user.id],
    );
    const stream = await open(user, { lastId: '0' });
    await notify([user], 'While it comes');
    await until(() => (stream.events.at(-1)?.title === 'While it comes' ? true : undefined));
    const ids = stream.events.map(({ id }) => id);
    expect(ids).toEqual([...new Set(ids)].sort((a, b) => a - b));
    for (const { id } of rows) expect(ids).toContain(Number(id));
    await stream.close();
  });
});

describe('access to a stream', () => {
  test('requires a session at a school that has notifications; operators are refused', async () => {
    const without = await service.school({ feature_flags: { notifications: false } });
    for (const [token, status, error] of [
      ['', 401, 'invalid_token'],
      [service.operator.token, 403, 'forbidden'],
      [without.admin.token, 403, 'feature_disabled'],
    ] as const) {
      const { refusal, ...refused } = await open({ token } as Client);
      expect([refused.status, refusal?.error]).toEqual([status, error]);
    }
  });

  test('requires an id of digits; anything else is a 400', async () => {
    for (const options of [
      { lastId: 'abc' },
      { lastId: '-1' },
      { lastId: '1'.repeat(16) },
      { query: '?last_event_id=x' },
      { query: '?x=1' },
    ]) {
      const { status, refusal } = await open(school.admin, options);
      expect([options, status, refusal?.error]).toEqual([options, 400, 'validation_error']);
    }
  });

  test('is limited to 5 streams per user: the 6th is a 429 with Retry-After until one is closed; other users are not affected', async () => {
    const [user, other] = [await school.user(['teacher']), await school.user(['teacher'])];
    const second = await login(user);
    const streams = await Promise.all([user, user, user, second, second].map((of) => open(of)));
    expect(streams.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    for (const session of [user, second]) {
      const sixth = await open(session);
      expect([sixth.status, sixth.refusal?.error, sixth.headers['retry-after']]).toEqual([429, 'rate_limited', '30']);
    }
    const theirs = await open(other);
    expect(theirs.status).toBe(200);
    await streams[0]?.close();
    const next = await until(async () => {
      const stream = await open(user);
      return stream.status === 200 ? stream : undefined;
    });
    await notify([user], 'To each');
    for (const stream of [...streams.slice(1), next]) {
      await stream.has(1);
      expect(titles(stream)).toEqual(['To each']);
      await stream.close();
    }
    expect(titles(theirs)).toEqual([]);
    await theirs.close();
  });

  test('with HEAD returns the headers and opens no stream', async () => {
    const user = await school.user(['teacher']);
    for (let n = 0; n < 7; n++) {
      const { status, headers, body } = await raw(service.url, {
        method: 'HEAD',
        path: '/api/notifications/stream',
        token: user.token,
      });
      expect([status, headers['content-type'], body]).toEqual([200, 'text/event-stream; charset=utf-8', '']);
    }
    const stream = await open(user);
    expect(stream.status).toBe(200);
    await stream.close();
  });
});

describe('a stream token', () => {
  interface StreamToken {
    token: string;
    expires_at: string;
    last_event_id: number;
  }
  const tokenOf = async (of: Client) => (await of.post<StreamToken>('/api/notifications/stream-token')).data;
  const openWith = (token: string, more = '') =>
    openStream(service.url, undefined, { query: `?token=${token}${more}` });

  test('opens the stream of its session without a header, from the notification that it names', async () => {
    const user = await school.user(['teacher']);
    await notify([user], 'Before');
    const { token, expires_at, last_event_id } = await tokenOf(user);
    const minutes = (Date.parse(expires_at) - Date.now()) / 60_000;
    expect(Math.round(minutes)).toBe(15);
    await notify([user], 'Meanwhile');
    const stream = await openWith(token, `&last_event_id=${last_event_id}`);
    await stream.has(1);
    await notify([user], 'After');
    await stream.has(2);
    expect(titles(stream)).toEqual(['Meanwhile', 'After']);
    await user.post('/api/auth/logout');
    expect(await stream.end()).toBe('end');
    expect((await openWith(token)).refusal?.error).toBe('invalid_token');
  });

  test('opens nothing else, and no other token is accepted in its place', async () => {
    const user = await school.user(['teacher']);
    const { token } = await tokenOf(user);
    for (const path of ['/api/auth/profile', '/api/notifications', '/api/notifications/stream']) {
      const inHeader = await service.anonymous.send('GET', path, { headers: { Authorization: `Bearer ${token}` } });
      expect([path, inHeader.status, inHeader.error]).toEqual([path, 401, 'invalid_token']);
    }
    expect((await service.anonymous.send('GET', `/api/notifications?token=${token}`)).status).toBe(401);
    for (const other of [user.token, user.refreshToken, '', `${token}x`]) {
      const { status, refusal } = await openWith(other);
      expect([status, refusal?.error]).toEqual([401, 'invalid_token']);
    }
    const missing = await openStream(service.url, undefined);
    expect([missing.status, missing.refusal?.error]).toEqual([401, 'unauthenticated']);
  });

  test('expires after 15 minutes, and works only at its own school', async () => {
    const { token } = await tokenOf(await school.user(['teacher']));
    const payload = jwt.decode(token) as jwt.JwtPayload;
    const expired = jwt.sign({ ...payload, exp: Math.floor(Date.now() / 1000) - 1 }, secret);
    const { status, refusal } = await openWith(expired);
    expect([status, refusal?.error]).toEqual([401, 'invalid_token']);
    const other = await service.school();
    const headers = { 'X-Tenant-ID': String(other.id) };
    const mismatch = await openStream(service.url, undefined, { query: `?token=${token}`, headers });
    expect([mismatch.status, mismatch.refusal?.error]).toEqual([403, 'tenant_mismatch']);
  });

  test('is given only to those who may open a stream', async () => {
    const without = await service.school({ feature_flags: { notifications: false } });
    await without.admin.post('/api/notifications/stream-token', undefined, 403);
    await service.operator.post('/api/notifications/stream-token', undefined, 403);
    await service.anonymous.post('/api/notifications/stream-token', undefined, 401);
  });
});

describe('notifications of others', () => {
  test('are never sent: not those of another user, or of a user with the same id at another school, with any Last-Event-ID or X-Tenant-ID', async () => {
    const other = await service.school();
    const [mine, colleague] = [await school.user(['teacher']), await school.user(['teacher'])];
    let theirs = await other.user(['teacher']);
    // Users of both schools with the same id, since each school numbers its own users.
    while (theirs.id < mine.id) theirs = await other.user(['teacher']);
    const twin =
      theirs.id === mine.id
        ? mine
        : await (async () => {
            let last = mine;
            while (last.id < theirs.id) last = await school.user(['teacher']);
            return last;
          })();
    expect(twin.id).toBe(theirs.id);
    const streams = await Promise.all([
      open(twin, { lastId: '0' }),
      open(theirs, { lastId: '0' }),
      open(colleague, { lastId: '0' }),
    ]);
    await notify([twin], 'Of the twin');
    await notify([theirs], 'Of the other user', other);
    await school.admin.post('/api/notifications/send', { all: true, title: 'Of one school', message: 'x' });
    await other.admin.post('/api/notifications/send', { all: true, title: 'Of the other', message: 'x' });
    for (const [index, last] of ['Of one school', 'Of the other', 'Of one school'].entries())
      await until(() => (streams[index]?.events.at(-1)?.title === last ? true : undefined));
    await pause(100);
    expect(streams.map((stream) => titles(stream).filter((title) => title.startsWith('Of')))).toEqual([
      ['Of the twin', 'Of one school'],
      ['Of the other user', 'Of the other'],
      ['Of one school'],
    ]);
    const mismatch = await open(twin, { headers: { 'X-Tenant-ID': String(other.id) } });
    expect([mismatch.status, mismatch.refusal?.error]).toEqual([403, 'tenant_mismatch']);
    await Promise.all(streams.map((stream) => stream.close()));
  });

  test('core.stream_read answers nothing for a session that has ended, or belongs to another or a suspended school', async () => {
    const at = await service.school();
    const user = await at.user(['teacher']);
    await notify([user], 'Mine', at);
    const [session] = await at.database.query<{ id: string }>(
      'select max(id) as id from platform.session where tenant_id = $1 and user_id = $2',
      [at.id, user.id],
    );
    const read = async (tenantId: number) =>
      (
        await service.database
          .of(tenantId)
          .query<{ event: string }>('select event from core.stream_read($1, $2, $3, 50, 10000)', [
            tenantId,
            [session?.id],
            [0],
          ])
      ).length;
    expect(await read(at.id)).toBeGreaterThan(0);
    expect(await read(school.id)).toBe(0);
    await at.database.query("update platform.tenant set status = 'suspended' where id = $1", [at.id]);
    expect(await read(at.id)).toBe(0);
    await at.database.query("update platform.tenant set status = 'active' where id = $1", [at.id]);
    await service.database.everywhere('update platform.session set expires_at = now() where id = $1', [session?.id]);
    expect(await read(at.id)).toBe(0);
    await service.database.everywhere(
      "update platform.session set expires_at = now() + interval '1 day', revoked_at = now() where id = $1",
      [session?.id],
    );
    expect(await read(at.id)).toBe(0);
  });

  test('core.stream_read raises unavailable for a school whose migration failed', async () => {
    const at = await service.school();
    const read = () => at.database.query("select from core.stream_read($1, '{1}', '{0}', 50, 10000)", [at.id]);
    const changeVersion = (by: number) =>
      at.database.query('update platform.tenant set schema_version = schema_version + $2 where id = $1', [at.id, by]);
    expect(await read()).toEqual([]);
    await changeVersion(-1);
    await expect(read()).rejects.toThrow('This school is being migrated.');
    await changeVersion(1);
    expect(await read()).toEqual([]);
  });
});

describe('a stream ends', () => {
  const soon = heartbeat / 2;
  /** Opens a stream of a user and one of another school, which must stay open. */
  async function two(at: School = school) {
    const user = await at.user(['teacher']);
    const bystander = await service.school();
    return { user, stream: await open(user), other: await open(bystander.admin) };
  }

  test('when the user logs out, while streams of other sessions of the user stay open', async () => {
    const { user, stream, other } = await two();
    const elsewhere = await login(user);
    const second = await open(elsewhere);
    await user.post('/api/auth/logout', undefined);
    expect(await stream.end()).toBe('end');
    expect((await open(user)).status).toBe(401);
    await notify([user], 'Still here');
    await second.has(1);
    expect([titles(stream), other.ended, second.ended]).toEqual([[], undefined, undefined]);
    await Promise.all([second.close(), other.close()]);
  });

  test.each<[string, (user: User, at: School) => Promise<unknown>, number]>([
    ['its user is deactivated', (user, at) => at.admin.put(`/api/users/${user.id}`, { is_active: false }), 401],
    ['its user is removed', (user, at) => at.admin.delete(`/api/users/${user.id}`), 401],
    [
      'an admin gives its user another password',
      (user, at) => at.admin.put(`/api/users/${user.id}`, { password: 'another-password' }),
      401,
    ],
    [
      'its school is suspended',
      (_user, at) => service.operator.post(`/api/platform/tenants/${at.id}/suspend`, undefined),
      403,
    ],
    ['its school is deleted', (_user, at) => service.operator.delete(`/api/platform/tenants/${at.id}`), 401],
    [
      'its session expires',
      (user, at) =>
        at.database.query(
          'update platform.session set expires_at = now() where user_id = $1 and tenant_id is not null',
          [user.id],
        ),
      401,
    ],
    [
      'its school loses the feature',
      (_user, at) =>
        service.operator.put(`/api/platform/tenants/${at.id}`, { feature_flags: { notifications: false } }),
      403,
    ],
  ])('when %s; other streams stay open', async (_case, happens, status) => {
    const at = await service.school();
    const { user, stream, other } = await two(at);
    await happens(user, at);
    expect(await stream.end()).toBe('end');
    const again = await open(user);
    expect(again.status).toBe(status);
    await pause(soon);
    expect(other.ended).toBeUndefined();
    await other.close();
  });

  test('when the session expires, but not when only the access token does', async () => {
    const user = await school.user(['teacher']);
    const stream = await open(user);
    await service.anonymous.send(
      'POST',
      '/api/auth/refresh',
      { headers: { 'X-Refresh-Token': user.refreshToken } },
      200,
    );
    await pause(heartbeat * 2);
    await notify([user], 'After the refresh');
    await stream.has(1);
    expect(stream.ended).toBeUndefined();
    await stream.close();
  });

  test('when its client does not read for a heartbeat; the client gets the rest when it reconnects', async () => {
    const user = await school.user(['teacher']);
    const stream = await open(user);
    await until(() => stream.lastId || undefined);
    stream.pause();
    // More than the buffers of both sides of the connection hold.
    await service.database.query(
      `insert into ${school.schema}.notification (user_id, title, message) select $1, 'Much', repeat('x', 5000) from generate_series(1, 4000)`,
      [user.id],
    );
    await notify([user], 'The end');
    // The user may have five streams: a fifth one opens only when the paused one has ended.
    const others = await Promise.all([1, 2, 3, 4].map(() => open(user)));
    const fifth = await until(async () => {
      const one = await open(user);
      return one.status === 200 ? one : undefined;
    });
    await Promise.all([...others, fifth].map((one) => one.close()));
    stream.resume();
    await stream.end();
    const again = await open(user, { lastId: stream.lastId });
    await until(() => (again.events.at(-1)?.title === 'The end' ? true : undefined));
    const ids = [...stream.events, ...again.events].map(({ id }) => id);
    expect(ids).toHaveLength(4001);
    expect(new Set(ids).size).toBe(4001);
    await again.close();
  });
});
