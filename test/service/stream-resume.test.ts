import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { withOwner } from '../../src/database/pool/pool.ts';
import { serviceWithSchool, type TestService, testService } from '../support/server/service.ts';
import { type OpenStream, openStream } from '../support/client/stream.ts';
import { until } from '../support/client/until.ts';

const { readConfig, startService } = shared;

const poolSize = 8;
const { service, school } = await serviceWithSchool(
  { STREAM_HEARTBEAT_MS: '1000', DATABASE_POOL_SIZE: String(poolSize) },
  2,
);
const listeners = () =>
  service.database.query<{ pid: number }>(
    "select pid from pg_stat_activity where application_name = 'school_listen' and datname = current_database()",
  );
const kill = () =>
  service.database.query(
    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'school_listen' and datname = current_database()",
  );

test('clients that reconnect get each notification once and in order, while several users send and the listening connection is killed repeatedly', async () => {
  const users = await Promise.all([1, 2, 3].map(() => school.user(['teacher'])));
  const all = users.map(({ id }) => id);
  const ending = new AbortController();
  let known = 0;

  /** A client that disconnects at random times, and reconnects with its last id. */
  async function follow(token: string): Promise<{ ids: number[]; connections: number }> {
    const ids: number[] = [];
    let lastId: string | undefined;
    let connections = 0;
    let stream: OpenStream;
    const isDone = () => ending.signal.aborted && stream.events.at(-1)?.title === 'The last';
    do {
      stream = await openStream(service.url, token, { lastId });
      if (stream.status !== 200) throw new Error(`The stream was refused: ${stream.status}`);
      await until(() => (stream.lastId === '' ? undefined : true));
      if (connections++ === 0) known++;
      const stay = Date.now() + Math.random() * 300;
      await until(() => (isDone() || (!ending.signal.aborted && Date.now() > stay) || stream.ended ? true : undefined));
      await stream.close();
      ({ lastId } = stream);
      ids.push(...stream.events.map(({ id }) => id));
    } while (!isDone());
    return { ids, connections };
  }

  const following = users.flatMap(({ token }) => [follow(token), follow(token)]);
  // A client gets nothing that was sent before it connected for the first time.
  await until(() => (known === following.length ? true : undefined));
  const begin =
    (await service.database.query<{ id: string | null }>(`select max(id) as id from ${school.schema}.notification`))[0]
      ?.id ?? '0';
  const sent = Array.from({ length: 3 }, async (_, sender) => {
    for (let n = 0; n < 25; n++) {
      const some = all.filter(() => Math.random() < 0.7);
      if (some.length > 0)
        await school.admin.post('/api/notifications/send', { user_ids: some, title: `S${sender} N${n}`, message: 'x' });
    }
  });
  const sending = new AbortController();
  const killing = (async () => {
    while (!sending.signal.aborted) {
      await kill();
      await pause(150 + Math.random() * 400);
    }
  })();
  await Promise.all(sent);
  sending.abort();
  await killing;
  ending.abort();
  await school.admin.post('/api/notifications/send', { user_ids: all, title: 'The last', message: 'x' });
  const got = await Promise.all(following);
  for (const [index, user] of users.entries()) {
    const rows = await service.database.query<{ id: string }>(
      `select id from ${school.schema}.notification where user_id = $1 and id > $2 order by id`,
      [user.id, begin],
    );
    const expected = rows.map(({ id }) => Number(id));
    expect(expected.length).toBeGreaterThan(20);
    for (const client of got.slice(index * 2, index * 2 + 2)) expect(client.ids).toEqual(expected);
  }
  expect(got.reduce((sum, { connections }) => sum + connections, 0)).toBeGreaterThan(12);
});

test('a notification that is committed later has a higher id, even if its transaction started earlier, so that no client that resumes misses it', async () => {
  const user = await school.user(['teacher']);
  const stream = await openStream(service.url, user.token);
  await withOwner(service.database.url, async (slow) => {
    const send = (title: string) =>
      slow.query(
        `select set_config('app.tenant_id', $1, true), core.send_message('info', jsonb_build_object('in_app', jsonb_build_object('title', $2::text, 'message', 'x')), jsonb_build_array(jsonb_build_object('user_id', $3::bigint)))`,
        [String(school.id), title, user.id],
      );
    await slow.query('begin');
    await send('Slow');
    await school.admin.post('/api/notifications/send', { user_ids: [user.id], title: 'Fast', message: 'x' });
    await stream.has(1);
    await slow.query('commit');
  });
  await stream.has(2);
  expect(stream.events.map(({ title }) => title)).toEqual(['Fast', 'Slow']);
  expect(Number(stream.events[0]?.id)).toBeLessThan(Number(stream.events[1]?.id));
  await stream.close();
});

test('one connection listens for any number of streams', async () => {
  const users = await Promise.all(Array.from({ length: 8 }, () => school.user(['teacher'])));
  const streams = await Promise.all(
    users.flatMap(({ token }) => [1, 2, 3, 4, 5].map(() => openStream(service.url, token))),
  );
  expect(await listeners()).toHaveLength(1);
  await school.admin.post('/api/notifications/send', { all: true, title: 'To all', message: 'x' });
  await Promise.all(streams.map((stream) => stream.has(1)));
  const [connections] = await service.database.query<{ n: number }>(
    "select count(*)::integer as n from pg_stat_activity where application_name similar to 'school_(api|listen)%' and datname = current_database()",
  );
  // Those of the API, one of them for operators, and the one that listens.
  expect(connections?.n).toBeLessThanOrEqual(poolSize + 1 + 1);
  await Promise.all(streams.map((stream) => stream.close()));
});

test('a logout while the listening connection is down ends the stream when the connection is back', async () => {
  const user = await school.user(['teacher']);
  const stream = await openStream(service.url, user.token);
  await until(async () => ((await listeners()).length === 1 ? true : undefined));
  await kill();
  await service.database.query('update platform.session set revoked_at = now() where user_id = $1 and tenant_id = $2', [
    user.id,
    school.id,
  ]);
  expect(await stream.end()).toBe('end');
});

test('the streams of a school that is being migrated stay open and get its notifications afterwards; other schools get theirs meanwhile', async () => {
  const other = await service.school();
  const streams = await Promise.all([
    openStream(service.url, school.admin.token),
    openStream(service.url, other.admin.token),
  ]);
  await withOwner(service.database.url, async (owner) => {
    await owner.query('begin');
    await owner.query('select pg_advisory_xact_lock(core.tenant_lock_key($1))', [school.id]);
    await withOwner(service.database.url, (sender) =>
      sender.query(
        `insert into ${school.schema}.notification (user_id, title, message) select min(id), 'During', 'x' from ${school.schema}.user_account`,
      ),
    );
    await owner.query("select pg_notify('school_events', $1)", [JSON.stringify({ tenant: school.id })]);
    await service.database.query("select pg_notify('school_events', $1)", [JSON.stringify({ tenant: school.id })]);
    await other.admin.post('/api/notifications/send', { all: true, title: 'Elsewhere', message: 'x' });
    await streams[1].has(1);
    expect(streams[0].events).toEqual([]);
    await owner.query('commit');
  });
  await streams[0].has(1);
  expect(streams.map(({ events, ended }) => [events.map(({ title }) => title), ended])).toEqual([
    [['During'], undefined],
    [['Elsewhere'], undefined],
  ]);
  await Promise.all(streams.map((stream) => stream.close()));
});

test.each([
  '',
  '{',
  '{"tenant": "x"}',
  '{"users": [1]}',
  '{"ended": 7}',
  '{"ended": {"tenant": "x"}}',
  '{"tenant": 999999, "users": [1]}',
  'null',
])('a payload %p in another format is ignored', async (payload) => {
  const user = await school.user(['teacher']);
  const stream = await openStream(service.url, user.token);
  await until(async () => ((await listeners()).length === 1 ? true : undefined));
  await service.database.query("select pg_notify('school_events', $1)", [payload]);
  await school.admin.post('/api/notifications/send', { user_ids: [user.id], title: 'Still', message: 'x' });
  await stream.has(1);
  expect(stream.ended).toBeUndefined();
  await stream.close();
});

test('without a listening connection, each heartbeat reads notifications and ends the streams of ended sessions', async () => {
  // No server is on that port.
  const deaf = await testService({ STREAM_HEARTBEAT_MS: '300', LISTEN_DATABASE_URL: 'postgres://127.0.0.1:1/nothing' });
  try {
    const at = await deaf.school();
    const [user, other] = [await at.user(['teacher']), await at.user(['teacher'])];
    const streams = await Promise.all([user, other].map(({ token }) => openStream(deaf.url, token)));
    await until(() => (streams.every(({ lastId }) => lastId !== '') ? true : undefined));
    await at.admin.post('/api/notifications/send', { all: true, title: 'Late', message: 'x' });
    await Promise.all(streams.map((stream) => stream.has(1)));
    await user.post('/api/auth/logout', undefined);
    expect(await streams[0]?.end()).toBe('end');
    await at.admin.post('/api/notifications/send', { all: true, title: 'Later', message: 'x' });
    await streams[1]?.has(2);
    expect(streams[0]?.events).toHaveLength(1);
    await streams[1]?.close();
  } finally {
    await deaf.close();
  }
});

describe('with a heartbeat of a minute', () => {
  let slow: TestService;
  beforeAll(async () => {
    slow = await testService({ STREAM_HEARTBEAT_MS: '60000' });
  });
  afterAll(() => slow.close());

  test('a notification that was sent while the listening connection was down is read when it is back, without waiting for a heartbeat', async () => {
    const at = await slow.school();
    const stream = await openStream(slow.url, at.admin.token);
    await pause(1_000);
    // A row without its NOTIFY, as if that was lost.
    await slow.database.query(
      `insert into ${at.schema}.notification (user_id, title, message) select min(id), 'Unheard', 'x' from ${at.schema}.user_account`,
    );
    await pause(300);
    expect(stream.events).toEqual([]);
    await slow.database.query(
      "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'school_listen' and datname = current_database()",
    );
    await stream.has(1);
    await stream.close();
  });

  test('a logout, a deactivated user and a suspended school end their streams without waiting for a heartbeat', async () => {
    const at = await slow.school();
    const [first, second, third] = [await at.user(['teacher']), await at.user(['teacher']), await at.user(['teacher'])];
    const streams = await Promise.all([first, second, third].map(({ token }) => openStream(slow.url, token)));
    await first.post('/api/auth/logout', undefined);
    await streams[0]?.end();
    await at.admin.put(`/api/users/${second.id}`, { is_active: false });
    await streams[1]?.end();
    await pause(200);
    expect(streams[2]?.ended).toBeUndefined();
    await slow.operator.post(`/api/platform/tenants/${at.id}/suspend`, undefined);
    await streams[2]?.end();
  });

  test('a notification reaches the streams of all processes; a process that stops ends its streams and closes its connection', async () => {
    const at = await slow.school();
    const second = await startService(
      readConfig({
        PORT: '0',
        NODE_ENV: 'test',
        LOG_LEVEL: 'silent',
        JWT_SECRETS: 'a secret of the tests that is long enough',
        DATABASE_POOL_SIZE: '2',
      }),
      slow.database.url,
      ['api'],
    );
    const streams = await Promise.all([
      openStream(slow.url, at.admin.token),
      openStream(second.url ?? '', at.admin.token),
    ]);
    await at.admin.post('/api/notifications/send', { all: true, title: 'To both', message: 'x' });
    await Promise.all(streams.map((stream) => stream.has(1)));
    await second.close();
    expect(await streams[1].end()).toBe('end');
    expect(streams[0].ended).toBeUndefined();
    const left = await slow.database.query(
      "select application_name from pg_stat_activity where datname = current_database() and application_name = 'school_listen'",
    );
    expect(left).toHaveLength(1);
    await streams[0].close();
  });
});

test('a client that does not read does not delay the end of the process', async () => {
  const here = await testService({ STREAM_HEARTBEAT_MS: '60000' });
  const at = await here.school();
  await here.database.query(
    `insert into ${at.schema}.notification (user_id, title, message) select min(id), 'Much', repeat('x', 5000) from ${at.schema}.user_account, generate_series(1, 2500) n group by n`,
  );
  const stream = await openStream(here.url, at.admin.token, { lastId: '0' });
  stream.pause();
  // Wait until nothing more is read for it, since the buffers of the connection are full.
  let last: string | undefined;
  await until(async () => {
    const [row] = await here.database.query<{ at: string }>(
      "select max(query_start)::text as at from pg_stat_activity where query like '%core.stream_read%' and application_name like 'school_api%' and datname = current_database()",
    );
    const isOver = last !== undefined && row?.at === last;
    last = row?.at;
    if (!isOver) await pause(1_000);
    return isOver || undefined;
  });
  // The client reads only afterwards.
  await here.close();
  stream.resume();
  await stream.end();
});

test('a client that disconnects before the response leaves no stream open', async () => {
  const user = await school.user(['teacher']);
  await Promise.all(
    Array.from({ length: 20 }, async (_, n) => {
      const gone = new AbortController();
      setTimeout(() => gone.abort(), n % 10);
      await fetch(`${service.url}/api/notifications/stream`, {
        headers: { Authorization: `Bearer ${user.token}` },
        signal: gone.signal,
      }).then(
        (response) => response.body?.cancel(),
        () => undefined,
      );
    }),
  );
  // A user may have five streams, so all of them open only when the service has noticed every disconnect.
  await until(async () => {
    const streams = await Promise.all([1, 2, 3, 4, 5].map(() => openStream(service.url, user.token)));
    await Promise.all(streams.map((stream) => stream.close()));
    return streams.every(({ status }) => status === 200) || undefined;
  });
});

test('a read is limited to a number of rows and bytes, but returns at least one row', async () => {
  const user = await school.user(['teacher']);
  const [session] = await service.database.query<{ id: string }>(
    'select max(id) as id from platform.session where user_id = $1 and tenant_id = $2',
    [user.id, school.id],
  );
  await service.database.query(`delete from ${school.schema}.notification where user_id = $1`, [user.id]);
  await service.database.query(
    `insert into ${school.schema}.notification (user_id, title, message) select $1, 'N', repeat('x', 1000) from generate_series(1, 20)`,
    [user.id],
  );
  const read = async (rows: number, bytes: number) =>
    (
      await service.database.query('select id from core.stream_read($1, $2, $3, $4, $5)', [
        school.id,
        [session?.id],
        [0],
        rows,
        bytes,
      ])
    ).length;
  expect([await read(7, 100_000), await read(50, 2_000), await read(50, 1), await read(50, 100_000)]).toEqual([
    7, 2, 1, 20,
  ]);
});
