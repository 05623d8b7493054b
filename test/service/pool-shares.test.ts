import { afterEach, expect, test } from '@jest/globals';
import { type ConnectionRequest, type SchoolPool, schoolPool } from '../../src/database/pool/school-pool.ts';
import { serviceOfFile } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

const service = await serviceOfFile();

let pools: SchoolPool[] = [];
afterEach(async () => {
  await Promise.all(pools.map((pool) => pool.end()));
  pools = [];
});

function open(size: number): SchoolPool {
  const pool = schoolPool({
    size,
    maxConnectionMb: 1000,
    connectionTimeoutMs: 3000,
    preferredWaitMs: 20,
    client: { connectionString: service.database.url },
  });
  pools.push(pool);
  return pool;
}

/**
 * A pool of one connection, whose statements wait until a lock is released. They are noted in the order in which they
 * end, which is the one in which they get the connection.
 */
async function lockedPool() {
  const pool = open(1);
  const lock = new shared.pg.Client({ connectionString: service.database.url });
  await lock.connect();
  await lock.query('select pg_advisory_lock(1), pg_advisory_lock(2)');
  const done: string[] = [];
  const send = async (name: string, request: Partial<ConnectionRequest>, key: 1 | 2 = 1) => {
    await pool.query(`select pg_advisory_xact_lock_shared(${key})`, {
      school: 1,
      isVerified: true,
      planKey: 'x',
      ...request,
    });
    done.push(name);
  };
  return {
    pool,
    done,
    send,
    /** Ends the statements that wait for the other lock. */
    unlockOther: () => lock.query('select pg_advisory_unlock(2)'),
    unlock: () => lock.end(),
  };
}

test('strangers share the connections of one school, however many schools they name', async () => {
  const { pool, done, send, unlock } = await lockedPool();
  const first = send('first', { school: 7 });
  const strangers = Array.from({ length: 20 }, (_, n) =>
    send('stranger', { school: `invented-${n}`, isVerified: false, caller: `203.0.113.${n}` }),
  );
  const ofSchools = [1, 2].flatMap((school) => Array.from({ length: 5 }, () => send('school', { school })));
  await until(() => pool.waitingCount === 30 || undefined);
  await unlock();
  await Promise.all([first, ...strangers, ...ofSchools]);
  // In turns: four each of the strangers and of the two schools. With a share for each name, one for each school.
  const early = done.slice(1, 13);
  expect(early.filter((name) => name === 'school').length).toBeGreaterThanOrEqual(7);
});

test('a caller with many requests does not delay another one of the same school, or of no school', async () => {
  for (const whose of [{ school: 1 }, { school: 'north', isVerified: false }]) {
    const { pool, done, send, unlock } = await lockedPool();
    const flood = Array.from({ length: 20 }, () => send('flood', { ...whose, caller: '203.0.113.1' }));
    const late = send('late', { ...whose, caller: '203.0.113.2' });
    await until(() => pool.waitingCount === 20 || undefined);
    await unlock();
    await Promise.all([...flood, late]);
    expect(done.indexOf('late')).toBe(1);
  }
});

test('a school that waits for connections which other schools do not use is not refused', async () => {
  const pool = open(10);
  const send = (school: number, seconds: number) =>
    pool.query(`select pg_sleep(${seconds})`, { school, isVerified: true, planKey: 'x' });
  await send(1, 0.3);
  // These are active, but need no connection any more.
  for (let school = 2; school < 50; school++) await send(school, 0);
  const answers = await Promise.allSettled(Array.from({ length: 30 }, () => send(1, 0.3)));
  expect(answers.map(({ status }) => status)).not.toContain('rejected');
});

const pidsOf = async (pool: SchoolPool, requests: Partial<ConnectionRequest>[], seconds = 0) => {
  const text = `select pg_backend_pid() as pid from pg_sleep(${seconds})`;
  const answers = await Promise.all(
    requests.map((request) =>
      pool.query<{ pid: number }>(text, { school: 1, isVerified: true, planKey: 'x', ...request }),
    ),
  );
  return answers.map(({ rows }) => rows[0]?.pid);
};

test('schools spread over the connections', async () => {
  const pool = open(4);
  const pids = new Set<number | undefined>();
  for (let school = 1; school <= 40; school++) for (const pid of await pidsOf(pool, [{ school }])) pids.add(pid);
  expect(pids.size).toBe(4);
});

test('schools that nobody has logged in to do not reduce the share of another one', async () => {
  const pool = open(8);
  for (let n = 0; n < 50; n++) await pidsOf(pool, [{ school: `invented-${n}`, isVerified: false }]);
  expect(new Set(await pidsOf(pool, Array<object>(6).fill({}), 0.2)).size).toBe(6);
});

test('one school leaves a fifth of the connections to others, also after it has waited', async () => {
  const pool = open(10);
  const lock = new shared.pg.Client({ connectionString: service.database.url });
  await lock.connect();
  await lock.query('begin; select pg_advisory_xact_lock(1)');
  const requests = Array.from({ length: 20 }, () =>
    pool.query('select pg_advisory_xact_lock_shared(1)', { school: 1, isVerified: true, planKey: 'x' }),
  );
  // Longer than a school waits for connections above its share.
  expect(await pidsOf(pool, [{ school: 2 }], 1)).toHaveLength(1);
  expect(pool.waitingCount).toBe(12);
  await lock.query('commit');
  await lock.end();
  await Promise.all(requests);
});

test('a full queue lets in a school, and a caller of the busiest school, with fewer requests than others', async () => {
  const { pool, send, unlock } = await lockedPool();
  const flood = Array.from({ length: 101 }, () => send('flood', { caller: 'busy' }));
  await until(() => pool.waitingCount === 100 || undefined);
  const refuse = (school: number, caller: string) => () => {
    pool.refuseOverload({ school, isVerified: true, caller });
  };
  expect(refuse(1, 'busy')).toThrow('Too many requests are waiting for the database.');
  expect(refuse(1, 'another')).not.toThrow();
  expect(refuse(2, 'busy')).not.toThrow();
  await unlock();
  await Promise.all(flood);
});

test('a login of an operator does not wait for requests without a session', async () => {
  const { pool, done, send, unlock, unlockOther } = await lockedPool();
  // They have the only connection of schools, and the reserved one.
  const first = [send('first', { school: 'north', isVerified: false }), send('operator', { school: 'platform' }, 2)];
  const others = Array.from({ length: 10 }, () => send('other', { school: 'north', isVerified: false }));
  const login = send('login', { school: 'platform', isVerified: false }, 2);
  await until(() => pool.waitingCount === 11 || undefined);
  await unlockOther();
  await login;
  expect(done).toEqual(['operator', 'login']);
  await unlock();
  await Promise.all([...first, ...others]);
});
