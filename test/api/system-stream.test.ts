import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import type { System as SystemSchema } from '../../src/endpoints/platform-system.ts';
import type { Client } from '../support/client/client.ts';
import type { OutputOf } from '../support/client/output.ts';
import { raw } from '../support/client/raw.ts';
import { type OpenStream, openStream } from '../support/client/stream.ts';
import { until } from '../support/client/until.ts';
import { serviceWithSchool, testPassword, type TestService, testService, unique } from '../support/server/service.ts';

const { readConfig, startService } = shared;

type System = OutputOf<typeof SystemSchema>;

const path = '/api/platform/system/stream';
const { service, school } = await serviceWithSchool({}, undefined, { systemStreamIntervalMs: 100 });
const { database, operator } = service;

const open = (token: string | undefined, options: Parameters<typeof openStream>[2] = {}, url = service.url) =>
  openStream<System>(url, token, { path, ...options });

/** Another operator, logged in. */
async function addOperator(role = 'admin', at = service): Promise<Client & { id: number; email: string }> {
  const email = `${unique('operator')}@test.example`;
  const [row] = await at.database.query<{ id: string }>(
    `insert into platform.user_account (email, password_hash, first_name, last_name, role)
     select $1, password_hash, 'Olga', 'Operator', $2 from platform.user_account where email = 'operator@test.example'
     returning id`,
    [email, role],
  );
  const client = await at.anonymous.login({ is_platform: true, email, password: testPassword });
  return Object.assign(client, { id: Number(row?.id), email });
}

/** Adds a job that no worker runs, which changes the state. @returns its task */
async function addJob(at = service): Promise<string> {
  const task = unique('unknown_task').replaceAll('-', '_');
  await at.database.query("select graphile_worker.add_job($1, run_at => now() + interval '1 day')", [task]);
  return task;
}
/** Waits until the stream has sent the state with this task. */
const hasTask = (stream: OpenStream<System>, task: string) =>
  until(() => stream.events.find(({ queue }) => queue.tasks.some((each) => each.task === task)));
const closeAll = (streams: OpenStream<System>[]) => Promise.all(streams.map((stream) => stream.close()));

/** Counts the reads of the state for streams. */
async function countReads(at: TestService): Promise<() => Promise<number>> {
  await at.database.query(`
    create sequence reads;
    grant usage on sequence reads to public;
    alter function core.stream_system rename to stream_system_counted;
    create function core.stream_system(p_session_ids bigint[], out ended bigint[], out state json)
      language plpgsql security definer as $$
      begin
        perform nextval('public.reads');
        select c.ended, c.state into ended, state from core.stream_system_counted(p_session_ids) c;
      end $$`);
  return async () => {
    const [row] = await at.database.query<{ reads: number }>(
      'select case when is_called then last_value else 0 end::integer as reads from reads',
    );
    return row?.reads ?? -1;
  };
}

describe('the stream of the state of the installation', () => {
  test('begins with the state, and sends it again when it has changed, to all operators', async () => {
    const streams = [await open(operator.token), await open((await addOperator()).token)];
    for (const stream of streams) {
      const [first] = await stream.has(1);
      expect(first).toMatchObject({ server: { size_bytes: null }, workers: 1, schools: [{ status: 'active' }] });
    }
    const task = await addJob();
    for (const stream of streams) {
      const state = await hasTask(stream, task);
      expect(state.queue.tasks).toContainEqual(expect.objectContaining({ task, waiting: 1, failed: 0 }));
      expect([...stream.messageFields]).toEqual(['id data']);
    }
    await closeAll(streams);
  });

  test('has the fields of GET /api/platform/system', async () => {
    const stream = await open(operator.token);
    const [first] = await stream.has(1);
    const { data } = await operator.get<System>('/api/platform/system');
    expect(Object.keys(first ?? {})).toEqual(Object.keys(data));
    await stream.close();
  });

  test('resumes without a message if nothing has changed, at another process too', async () => {
    const quiet = await testService({}, 0, { systemStreamIntervalMs: 100 });
    const second = await startService(
      readConfig({
        PORT: '0',
        NODE_ENV: 'test',
        LOG_LEVEL: 'silent',
        JWT_SECRETS: 'a secret of the tests that is long enough',
        DATABASE_POOL_SIZE: '2',
      }),
      quiet.database.url,
      ['api'],
      { timing: { systemStreamIntervalMs: 100 } },
    );
    try {
      const urls = [quiet.url, second.url ?? ''];
      // Connections come and go, so the state is compared with the message that a new client gets.
      for (const [from, to] of [
        [0, 0],
        [0, 1],
      ] as const) {
        await until(async () => {
          const first = await open(quiet.operator.token, {}, urls[from]);
          await first.has(1);
          const { lastId } = first;
          const again = await open(quiet.operator.token, { lastId }, urls[to]);
          const fresh = await open(quiet.operator.token, {}, urls[to]);
          await fresh.has(1);
          const task = await addJob(quiet);
          await hasTask(again, task);
          const isSame = fresh.events.length > 0 && again.events.length === fresh.events.length - 1;
          const states = [first, again, fresh].map(({ events }) => events.map(({ at: _at, ...rest }) => rest));
          await closeAll([first, again, fresh]);
          if (isSame) expect(states[1]).toEqual(states[2]?.slice(1));
          return isSame || undefined;
        });
      }
    } finally {
      await second.close();
      await quiet.close();
    }
  });

  test('is read once for all streams', async () => {
    const slow = await testService({}, 0, { systemStreamIntervalMs: 300000 });
    try {
      const reads = await countReads(slow);
      const { token } = slow.operator;
      const streams = await Promise.all([1, 2, 3, 4, 5].map(() => open(token, {}, slow.url)));
      await Promise.all(streams.map((stream) => stream.has(1)));
      expect(await reads()).toBe(1);
      await closeAll(streams);
    } finally {
      await slow.close();
    }
  });

  test('is not read when nobody has a stream', async () => {
    const quick = await testService({}, 0, { systemStreamIntervalMs: 50 });
    try {
      const reads = await countReads(quick);
      const stream = await open(quick.operator.token, {}, quick.url);
      await until(async () => (await reads()) > 3 || undefined);
      await stream.close();
      let before = -1;
      await until(async () => {
        const isSame = before === (await reads());
        before = await reads();
        await pause(500);
        return isSame || undefined;
      });
      const again = await open(quick.operator.token, {}, quick.url);
      await again.has(1);
      expect(await reads()).toBeGreaterThan(before);
      await again.close();
    } finally {
      await quick.close();
    }
  });
});

describe('access to it', () => {
  test('requires a session of an operator with the role admin', async () => {
    const analyst = await addOperator('analyst');
    for (const [token, status, error] of [
      [undefined, 401, 'unauthenticated'],
      ['', 401, 'invalid_token'],
      [school.admin.token, 403, 'forbidden'],
      [analyst.token, 403, 'forbidden'],
    ] as const) {
      const { refusal, ...refused } = await open(token);
      expect([refused.status, refusal?.error]).toEqual([status, error]);
    }
  });

  test('takes no access token or stream token in the URL', async () => {
    const { data } = await school.admin.post<{ token: string }>('/api/notifications/stream-token');
    for (const [token, status] of [
      [operator.token, 401],
      [data.token, 400],
    ] as const)
      expect((await open(undefined, { query: `?token=${token}` })).status).toBe(status);
  });

  test('requires an id of digits; anything else is a 400', async () => {
    for (const options of [{ lastId: 'abc' }, { lastId: '1'.repeat(16) }, { query: '?last_event_id=x' }]) {
      const { status, refusal } = await open(operator.token, options);
      expect([options, status, refusal?.error]).toEqual([options, 400, 'validation_error']);
    }
  });

  test('is limited to 5 streams per operator; other operators are not affected', async () => {
    const [first, other] = [await addOperator(), await addOperator()];
    const streams = await Promise.all([1, 2, 3, 4, 5].map(() => open(first.token)));
    expect(streams.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    const sixth = await open(first.token);
    expect([sixth.status, sixth.refusal?.error, sixth.headers['retry-after']]).toEqual([429, 'rate_limited', '30']);
    const theirs = await open(other.token);
    expect(theirs.status).toBe(200);
    await closeAll([...streams, theirs]);
  });

  test('with HEAD returns the headers and opens no stream', async () => {
    const { token } = await addOperator();
    for (let n = 0; n < 7; n++) {
      const { status, headers, body } = await raw(service.url, { method: 'HEAD', path, token });
      expect([status, headers['content-type'], body]).toEqual([200, 'text/event-stream; charset=utf-8', '']);
    }
    const stream = await open(token);
    expect(stream.status).toBe(200);
    await stream.close();
  });
});

describe('it ends', () => {
  test.each<[string, (of: Client & { id: number }) => Promise<unknown>, number]>([
    ['the operator logs out', (of) => of.post('/api/auth/logout', undefined), 401],
    ['the operator is disabled', (of) => operator.put(`/api/platform/operators/${of.id}`, { is_active: false }), 401],
    [
      'the operator becomes an analyst',
      (of) => operator.put(`/api/platform/operators/${of.id}`, { role: 'analyst' }),
      401,
    ],
    [
      'the session expires',
      (of) =>
        database.query('update platform.session set expires_at = now() where tenant_id is null and user_id = $1', [
          of.id,
        ]),
      401,
    ],
  ])('when %s; other streams stay open', async (_case, happens, status) => {
    const of = await addOperator();
    const [stream, other] = [await open(of.token), await open(operator.token)];
    await stream.has(1);
    await happens(of);
    expect(await stream.end()).toBe('end');
    const received = stream.events.length;
    expect((await open(of.token)).status).toBe(status);
    await hasTask(other, await addJob());
    expect([other.ended, stream.events.length]).toEqual([undefined, received]);
    await other.close();
  });

  test('at once, without waiting for the next read, when the operator logs out or is disabled', async () => {
    const slow = await testService({ STREAM_HEARTBEAT_MS: '300000' }, 0, { systemStreamIntervalMs: 300_000 });
    try {
      const [first, second] = [await addOperator('admin', slow), await addOperator('admin', slow)];
      const streams = [await open(first.token, {}, slow.url), await open(second.token, {}, slow.url)] as const;
      await Promise.all(streams.map((stream) => stream.has(1)));
      // Until it listens, a NOTIFY is missed.
      await until(
        async () =>
          (
            await slow.database.query(
              "select from pg_stat_activity where application_name = 'school_listen' and datname = current_database() and query like 'listen%'",
            )
          ).length > 0 || undefined,
      );
      await first.post('/api/auth/logout', undefined);
      await streams[0].end();
      await slow.operator.put(`/api/platform/operators/${second.id}`, { is_active: false });
      await streams[1].end();
    } finally {
      await slow.close();
    }
  });

  test('core.stream_system answers no state when no session may have a stream', async () => {
    const of = await addOperator();
    const [session] = await database.query<{ id: string }>(
      'select max(id) as id from platform.session where tenant_id is null and user_id = $1',
      [of.id],
    );
    const read = async (ids: unknown[]) =>
      (
        await database.query<{ ended: string[]; has_state: boolean }>(
          'select ended, state is not null as has_state from core.stream_system($1)',
          [ids],
        )
      )[0];
    expect(await read([session?.id])).toEqual({ ended: [], has_state: true });
    expect(await read([session?.id, 999_999])).toEqual({ ended: ['999999'], has_state: true });
    await database.query("update platform.session set roles = '{analyst}' where id = $1", [session?.id]);
    expect(await read([session?.id])).toEqual({ ended: [session?.id], has_state: false });
    expect(await read([])).toEqual({ ended: [], has_state: false });
  });
});
