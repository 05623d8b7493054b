import { type ClientRequest, request } from 'node:http';
import { afterEach, describe, expect, test } from '@jest/globals';
import { raw } from '../support/client/raw.ts';
import { type School, serviceOfFile } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

/** A school uses at most two of them. */
const size = 3;
const service = await serviceOfFile({ METRICS_PORT: '0', DATABASE_POOL_SIZE: String(size) });
const schools = [await service.school(), await service.school(), await service.school()] as const;
const [one, two, three] = schools;

async function metric(name: string, labels: string): Promise<number> {
  const text = await (await fetch(service.metricsUrl ?? '')).text();
  return Number(new RegExp(`^${name}\\{${labels}\\} (\\d+)$`, 'm').exec(text)?.[1] ?? 0);
}
const waiting = () => metric('school_database_waiting', 'pool="api"');
const refused = (reason: string) => metric('school_queue_refusals_total', `queue="database",reason="${reason}"`);

/** The statements of requests that wait for a lock, as the beginning of their operation. */
const blocked = () =>
  service.database.query<{ pid: number }>(
    `select pid from pg_stat_activity
     where datname = current_database() and application_name like 'school_api%' and wait_event_type = 'Lock'`,
  );
const areBlocked = (count: number) => until(async () => (await blocked()).length === count || undefined);
const areWaiting = (count: number) => until(async () => (await waiting()) === count || undefined);

/** Locks the students of some schools while `work` runs. */
async function whileLocked<T>(locked: readonly School[], work: () => Promise<T>): Promise<T> {
  const client = new shared.pg.Client({ connectionString: service.database.url });
  await client.connect();
  try {
    await client.query('begin');
    for (const { schema } of locked) await client.query(`lock table ${schema}.student in access exclusive mode`);
    return await work();
  } finally {
    await client.end();
  }
}

/** A client that can disconnect before the response. */
function impatient(school: School, method: string, path: string, body?: object, headers: object = {}): ClientRequest {
  const sent = request(`${service.url}${path}`, {
    method,
    agent: false,
    headers: { Authorization: `Bearer ${school.admin.token}`, 'Content-Type': 'application/json', ...headers },
  });
  sent.on('error', () => undefined);
  sent.end(body === undefined ? undefined : JSON.stringify(body));
  return sent;
}

const get = (school: School, path = '/api/students') => raw(service.url, { path, token: school.admin.token });
const studentsNamed = (name: string) =>
  service.database.query<{ id: string }>(`select id from ${one.schema}.student where first_name = $1`, [name]);

afterEach(() => areWaiting(0));

describe('a request whose client disconnects', () => {
  test.each(['/api/students', '/api/fees/payments/export?format=csv', '/api/dashboard'])(
    'ends in the database if it reads, and its connection serves the next request: %s',
    async (path) => {
      const before = await metric('school_database_abandoned_total', 'state="running"');
      await whileLocked([one], async () => {
        const clients = [impatient(one, 'GET', path), impatient(one, 'GET', path)];
        await areBlocked(2);
        const pids = (await blocked()).map(({ pid }) => pid);
        clients.forEach((client) => client.destroy());
        await areBlocked(0);
        expect(await metric('school_database_abandoned_total', 'state="running"')).toBe(before + 2);
        const next = [impatient(one, 'GET', path), impatient(one, 'GET', path)];
        await areBlocked(2);
        expect((await blocked()).map(({ pid }) => pid).sort()).toEqual(pids.sort());
        next.forEach((client) => client.destroy());
        await areBlocked(0);
      });
      expect((await get(one)).status).toBe(200);
    },
  );

  test('leaves the queue, and a write in the queue is not done', async () => {
    await whileLocked([one], async () => {
      const first = [impatient(one, 'GET', '/api/students'), impatient(one, 'GET', '/api/students')];
      await areBlocked(2);
      const late = [
        impatient(one, 'GET', '/api/students'),
        impatient(one, 'POST', '/api/students', { first_name: 'Dropped', last_name: 'Student' }),
      ];
      await areWaiting(2);
      late.forEach((client) => client.destroy());
      await areWaiting(0);
      first.forEach((client) => client.destroy());
      await areBlocked(0);
    });
    expect(await studentsNamed('Dropped')).toEqual([]);
  });

  test('finishes a write that is running, whose retry gets the stored response', async () => {
    const body = { first_name: 'Finished', last_name: 'Student' };
    const headers = { 'Idempotency-Key': 'finished' };
    await whileLocked([one], async () => {
      const write = impatient(one, 'POST', '/api/students', body, headers);
      const read = impatient(one, 'GET', '/api/students');
      await areBlocked(2);
      write.destroy();
      read.destroy();
      // The server has noticed that both clients are gone, and cancelled only the read.
      await areBlocked(1);
    });
    const [student] = await until(async () => {
      const rows = await studentsNamed('Finished');
      return rows.length > 0 ? rows : undefined;
    });
    const retry = await one.admin.with(headers).post<{ id: number }>('/api/students', body, 201);
    expect(retry.data.id).toBe(Number(student?.id));
    expect(await studentsNamed('Finished')).toHaveLength(1);
  });

  test('never cancels the statement of another request', async () => {
    let isOver = false;
    const busy = [two, three].map(async (school) => {
      const statuses = new Set<number>();
      while (!isOver) statuses.add((await get(school)).status);
      return [...statuses];
    });
    for (let n = 0; n < 60; n++) {
      const client = impatient([one, two, three][n % 3] ?? one, 'GET', '/api/students');
      await new Promise((done) => setTimeout(done, n % 12));
      client.destroy();
    }
    isOver = true;
    expect(await Promise.all(busy)).toEqual([[200], [200]]);
  });
});

describe('under overload', () => {
  test('requests beyond the queue get 503 with Retry-After at once, while other schools are served', async () => {
    const refusedAtOnce = async () => (await refused('limit')) + (await refused('estimate'));
    const before = await refusedAtOnce();
    const limit = 100 * size;
    await whileLocked([one], async () => {
      const flood = Array.from({ length: limit + 2 + 50 }, () => get(one));
      const answers = Promise.all(flood);
      await until(async () => (await refusedAtOnce()) > before || undefined);
      expect((await get(two)).status).toBe(200);
      expect((await get(three)).status).toBe(200);
      for (const { status, headers, body } of await answers) {
        expect({ status, retry: Number(headers['retry-after']) > 0, error: JSON.parse(body) as object }).toMatchObject({
          status: 503,
          retry: true,
          error: { success: false, error: 'unavailable' },
        });
      }
    });
  });

  test('a request whose estimated wait is too long gets 503 with Retry-After at once, and before its body is parsed', async () => {
    await one.insert('student', { admission_number: 'S1', first_name: 'Slow', last_name: 'Student' });
    await service.database.query(
      `create policy slow on ${one.schema}.student as restrictive using (pg_sleep(0.3) is not null)`,
    );
    const before = await refused('estimate');
    const path = '/api/students?pageSize=1';
    for (let n = 0; n < 3; n++) expect((await get(one, path)).status).toBe(200);
    let done = 0;
    const flood = Array.from({ length: 60 }, () => get(one, path).finally(() => done++));
    await until(async () => (await refused('estimate')) > before || undefined);
    // The body is not parsed: it would be refused with 400.
    const malformed = await raw(service.url, {
      method: 'POST',
      path: '/api/students',
      token: one.admin.token,
      body: '{',
    });
    expect(malformed.status).toBe(503);
    expect(done).toBeLessThan(60);
    expect((await get(two)).status).toBe(200);
    const answers = await Promise.all(flood);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 503]));
    for (const { status, headers } of answers)
      if (status === 503) expect(Number(headers['retry-after'])).toBeGreaterThan(0);
    await service.database.query(`drop policy slow on ${one.schema}.student`);
  });

  test('operators and the check of readiness get a connection while schools hold all of them', async () => {
    await whileLocked([one, two], async () => {
      const clients = [
        impatient(one, 'GET', '/api/students'),
        impatient(one, 'GET', '/api/students'),
        impatient(two, 'GET', '/api/students'),
      ];
      await areBlocked(size);
      expect((await fetch(`${service.url}/api/health`)).status).toBe(200);
      expect((await fetch(`${service.url}/api/health/ready`)).status).toBe(200);
      await service.operator.get('/api/platform/plans', 200);
      clients.forEach((client) => client.destroy());
      await areBlocked(0);
    });
  });
});
