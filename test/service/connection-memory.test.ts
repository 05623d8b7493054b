import { createHash } from 'node:crypto';
import { Socket } from 'node:net';
import { expect, test } from '@jest/globals';
import { dispatcher } from '../../src/database/call.ts';
import { schoolPool } from '../../src/database/pool/school-pool.ts';
import { until } from '../support/client/until.ts';
import { serviceOfFile } from '../support/server/service.ts';

// Each of the first four operations of a school counts as 0.56 MB. A connection with an estimate of 2 MB has more than that.
const service = await serviceOfFile({ METRICS_PORT: '0', DATABASE_POOL_SIZE: '2', DATABASE_CONNECTION_MB: '2' });

const openPool = (options: {
  size: number;
  maxConnectionMb: number;
  preferredWaitMs?: number;
  now?: () => number;
  random?: () => number;
  stream?: () => Socket;
}) => {
  const { stream, ...poolOptions } = options;
  return schoolPool({
    connectionTimeoutMs: 3000,
    preferredWaitMs: 20,
    ...poolOptions,
    client: { connectionString: service.database.url, ...(stream ? { stream } : {}) },
  });
};

async function replacements(): Promise<number> {
  const text = await (await fetch(service.metricsUrl ?? '')).text();
  return Number(/^school_database_replacements_total\{reason="memory"\} (\d+)$/m.exec(text)?.[1]);
}

const backends = async () =>
  (
    await service.database.query<{ pid: number }>(
      "select pid from pg_stat_activity where datname = current_database() and application_name like 'school_api%' and query like '%core.call%'",
    )
  ).map(({ pid }) => pid);

test('connections that have served many schools are replaced while requests go on, those of one school stay', async () => {
  const schools = [await service.school(), await service.school(), await service.school()];
  const [only] = schools;
  const before = await replacements();
  for (let n = 0; n < 20; n++) await only?.admin.get('/api/students');
  const stayed = await replacements();
  expect(stayed - before).toBeLessThanOrEqual(2);
  const old = await backends();
  // All at the same time, so that both connections serve all schools.
  for (let n = 0; n < 5; n++)
    await Promise.all(
      schools.flatMap((school) => [school.admin.get('/api/students'), school.admin.get('/api/teachers')]),
    );
  expect(await replacements()).toBeGreaterThan(stayed);
  // The last request may have been the one after which a connection was replaced.
  await until(async () => {
    for (const school of schools) await school.admin.get('/api/students');
    return (await backends()).some((pid) => !old.includes(pid)) || undefined;
  });
});

test('invented API keys, refresh tokens and links do not count as memory', async () => {
  const invent = async (from: number, to: number) => {
    for (let n = from; n < to; n++) {
      const unchecked = `sk_${n}_${'0'.repeat(43)}`;
      const key = unchecked + createHash('sha256').update(unchecked).digest('hex').slice(0, 8);
      await service.anonymous.with({ Authorization: `Bearer ${key}` }).get('/api/students', 401);
      await service.anonymous.with({ 'X-Refresh-Token': `${n}.junk` }).post('/api/auth/refresh', undefined, 401);
      await service.anonymous.post('/api/auth/password/reset', { token: `junk ${n}`, password: 'a new password' }, 401);
    }
  };
  // Their connections may still have to be replaced because of the requests before.
  await invent(1_000, 1_005);
  const before = await replacements();
  await invent(1_005, 1_025);
  expect(await replacements()).toBe(before);
});

test('connections are replaced one at a time', async () => {
  let connections = 0;
  const gate = Promise.withResolvers<undefined>();
  /** A socket like that of pg. From the fourth on it connects only when the gate opens. */
  const stream = () => {
    const socket = new Socket();
    const connect = socket.connect.bind(socket) as (...args: unknown[]) => Socket;
    socket.connect = (...args: unknown[]) => {
      if (++connections <= 3) return connect(...args);
      void gate.promise.then(() => connect(...args));
      return socket;
    };
    return socket;
  };
  const pool = openPool({ size: 3, maxConnectionMb: 0.5, stream });
  const select = () =>
    Promise.all(
      [1, 2, 3].map((school) => pool.query('select 1', { school, isVerified: true, planKey: 'students_list' })),
    );
  await select();
  await until(() => pool.counts.replacedForMemory === 1 || undefined);
  await select();
  expect(pool.counts.replacedForMemory).toBe(1);
  gate.resolve(undefined);
  // The others follow when they are used again.
  await until(async () => {
    await select();
    return pool.counts.replacedForMemory >= 3 || undefined;
  });
  await pool.end();
});

test('connections that were opened together are replaced at different ages', async () => {
  const ages = [0, 0.5, 1];
  let time = 0;
  const pool = openPool({ size: 3, maxConnectionMb: 1_000, now: () => time, random: () => ages.shift() ?? 1 });
  const useAllAfter = (minutes: number) => {
    time = minutes * 60_000;
    return Promise.all(
      [1, 2, 3].map((school) => pool.query('select pg_sleep(0.1)', { school, isVerified: true, planKey: 'x' })),
    );
  };
  try {
    for (const [minutes, replaced] of [
      [0, 0],
      [11.9, 0],
      [12.1, 1],
      [15.1, 2],
      [18.1, 3],
    ] as const) {
      // Only one is replaced or asked for its memory at a time. The others follow when they are used again.
      await until(async () => {
        await useAllAfter(minutes);
        return pool.counts.replacedForAge >= replaced || undefined;
      });
      await useAllAfter(minutes);
      expect(pool.counts.replacedForAge).toBe(replaced);
    }
    expect(pool.counts.replacedForMemory).toBe(0);
  } finally {
    await pool.end();
  }
});

test('a login at a school with the subdomain `service` or `platform` does not use the reserved connection', async () => {
  const pool = openPool({ size: 1, maxConnectionMb: 1_000 });
  try {
    const [reserved] = (
      await pool.query<{ pid: number }>('select pg_backend_pid() as pid', {
        school: 'platform',
        isVerified: true,
        planKey: 'x',
      })
    ).rows;
    const call = dispatcher(pool);
    for (const subdomain of ['service', 'platform', 'rate limits'])
      for (const [params, context] of [
        [{ subdomain }, {}],
        [{}, { subdomain }],
      ] as const)
        await expect(
          call('auth_credentials', null, { ...params, email: 'ada@test.example' }, { ...context, request_id: 'x' }),
        ).rejects.toThrow();
    expect(await service.database.query('select query from pg_stat_activity where pid = $1', [reserved?.pid])).toEqual([
      { query: 'select pg_backend_pid() as pid' },
    ]);
  } finally {
    await pool.end();
  }
});

test('requests for schools that do not exist do not count as memory', async () => {
  const pool = openPool({ size: 1, maxConnectionMb: 1 });
  const request = (statement: string, n: number) =>
    pool.query(statement, { school: `school-${n}`, isVerified: false, planKey: 'auth_login' });
  const refuse = "select core.fail('tenant_not_found', 'There is no such school.')";
  for (let n = 0; n < 20; n++) await expect(request(refuse, n)).rejects.toThrow('There is no such school.');
  expect(pool.counts.replacedForMemory).toBe(0);
  for (let n = 0; n < 20; n++) await request('select 1', n);
  await until(() => pool.counts.replacedForMemory > 0 || undefined);
  await pool.end();
});

test('an operation that writes counts as several that read', async () => {
  const pool = openPool({ size: 1, maxConnectionMb: 1 });
  const request = (isRead: boolean) =>
    pool.query('select 1', { school: 'school-1', isVerified: true, planKey: `students_${String(isRead)}`, isRead });
  await request(true);
  await request(true);
  expect(pool.counts.replacedForMemory).toBe(0);
  await request(false);
  await until(() => pool.counts.replacedForMemory === 1 || undefined);
  await pool.end();
});

test('a connection whose backend has less memory than estimated is kept', async () => {
  const pool = openPool({ size: 1, maxConnectionMb: 20 });
  const backend = async (n: number) =>
    (
      await pool.query<{ pid: number }>('select pg_backend_pid() as pid', {
        school: `school-${n}`,
        isVerified: true,
        planKey: 'students_list',
      })
    ).rows[0]?.pid;
  const first = await backend(0);
  // An estimate of 28 MB for a backend that has loaded nothing.
  for (let n = 1; n < 50; n++) expect(await backend(n)).toBe(first);
  expect(pool.counts.replacedForMemory).toBe(0);
  // Now it has more than the limit, and is replaced when the estimate reaches it again.
  await pool.query(`prepare large as select '${'x'.repeat(25_000_000)}'`, {
    school: 'school-0',
    isVerified: true,
    planKey: 'students_list',
  });
  for (let n = 50; n < 100; n++) await backend(n);
  await until(() => pool.counts.replacedForMemory === 1 || undefined);
  expect(await backend(0)).not.toBe(first);
  await pool.end();
});

test('a connection asks its backend every minute, and is replaced if it has more memory than estimated', async () => {
  let time = 0;
  const pool = openPool({ size: 1, maxConnectionMb: 20, now: () => time });
  const request = { school: 1, isVerified: true, planKey: 'students_list' };
  const backend = async () =>
    (await pool.query<{ pid: number }>('select pg_backend_pid() as pid', request)).rows[0]?.pid;
  try {
    const first = await backend();
    time = 61_000;
    // Asked, and kept.
    expect(await backend()).toBe(first);
    await pool.query(`prepare large as select '${'x'.repeat(25_000_000)}'`, request);
    expect(await backend()).toBe(first);
    time = 122_000;
    await backend();
    await until(() => pool.counts.replacedForMemory === 1 || undefined);
    expect(await backend()).not.toBe(first);
  } finally {
    await pool.end();
  }
});

test('a connection whose backend does not tell its memory is replaced by the estimate', async () => {
  const [real] = await service.database.query<{ text: string }>(
    `select pg_get_functiondef('core.backend_memory_mb'::regproc) as text`,
  );
  await service.database.query(
    `create or replace function core.backend_memory_mb() returns double precision language sql stable return null::double precision`,
  );
  const pool = openPool({ size: 1, maxConnectionMb: 20 });
  try {
    for (let n = 0; n < 50; n++)
      await pool.query('select', { school: `school-${n}`, isVerified: true, planKey: 'students_list' });
    await until(() => pool.counts.replacedForMemory === 1 || undefined);
  } finally {
    await pool.end();
    await service.database.query(real?.text ?? '');
  }
});

test('a school waits for its first connection when many schools are active, so that each backend keeps fewer', async () => {
  const pool = openPool({ size: 3, maxConnectionMb: 250, preferredWaitMs: 1000 });
  const twice = async (school: string) => {
    const request = { school, isVerified: true, planKey: 'students_list' };
    const backend = () => pool.query<{ pid: number }>('select pg_backend_pid() as pid, pg_sleep(0.05)', request);
    const answers = await Promise.all([backend(), backend()]);
    return new Set(answers.map(({ rows }) => rows[0]?.pid)).size;
  };
  expect(await twice('school-1')).toBe(2);
  // More than four for each connection.
  for (let n = 2; n <= 13; n++) await pool.query('select', { school: `school-${n}`, isVerified: true, planKey: '' });
  expect(await twice('school-1')).toBe(1);
  await pool.end();
});

test('a request waits longer for its connection if those of its school take long, so that few backends plan them', async () => {
  const pool = openPool({ size: 3, maxConnectionMb: 250, preferredWaitMs: 20 });
  const send = async (school: string, seconds: number) => {
    const request = { school, isVerified: true, planKey: 'students_list' };
    const statement = `select pg_backend_pid() as pid from pg_sleep(${seconds})`;
    return (await pool.query<{ pid: number }>(statement, request)).rows[0]?.pid;
  };
  const backends = async (school: string) => new Set(await Promise.all([send(school, 0.1), send(school, 0.1)])).size;
  await send('slow', 0.3);
  // More than four for each connection, so that each school prefers one.
  for (let n = 0; n <= 27; n++) await send(n % 2 ? 'quick' : `school-${n}`, 0);
  for (let n = 0; n <= 13; n++) await send(`school-${n}`, 0);
  expect(await backends('slow')).toBe(1);
  expect(await backends('quick')).toBe(2);
  await pool.end();
});
