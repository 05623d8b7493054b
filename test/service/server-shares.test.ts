import { afterEach, expect, test } from '@jest/globals';
import type { ConnectionRequest, SchoolPool } from '../../src/database/pool/school-pool.ts';
import { schoolPool } from '../../src/database/pool/school-pool.ts';
import { serviceOfFile } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

const service = await serviceOfFile();

let closeAll: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closeAll) await close();
  closeAll = [];
});

/** The servers of the schools of these tests: 1 to 99 are at home, 101 to 199 on a node, others are not known. */
const servers = new Map<unknown, string>();
for (let school = 1; school < 100; school++) servers.set(school, 'home').set(100 + school, 'node_1');

/** A pool whose statements wait for a lock, like those that wait for a server that does not answer. */
async function lockedPool(size: number, serverOf = servers) {
  const pool: SchoolPool = schoolPool({
    size,
    maxConnectionMb: 1000,
    connectionTimeoutMs: 10_000,
    preferredWaitMs: 20,
    client: { connectionString: service.database.url },
    serverOf: ({ school, server }) => server ?? serverOf.get(school),
  });
  const lock = new shared.pg.Client({ connectionString: service.database.url });
  await lock.connect();
  await lock.query('begin; select pg_advisory_xact_lock(1)');
  let sent: Promise<unknown>[] = [];
  const unlock = async () => {
    await lock.end();
    const results = await Promise.allSettled(sent);
    sent = [];
    return results;
  };
  closeAll.push(unlock, () => pool.end());
  const requestOf = (request: Partial<ConnectionRequest>) => ({
    school: 1,
    isVerified: true,
    planKey: 'x',
    ...request,
  });
  return {
    pool,
    unlock,
    /** Sends requests that wait for the lock, one of each of these sources. */
    block: (requests: Partial<ConnectionRequest>[]) => {
      const text = 'select pg_advisory_xact_lock_shared(1)';
      sent.push(...requests.map((request) => pool.query(text, requestOf(request))));
      for (const promise of sent) promise.catch(() => undefined);
    },
    /** Sends a request that does not wait for the lock. */
    ask: async (request: Partial<ConnectionRequest>) =>
      (await pool.query<{ answer: number }>('select 1 as answer', requestOf(request))).rows,
  };
}

const schools = (first: number, count: number) => Array.from({ length: count }, (_, n) => ({ school: first + n }));
const answer = [{ answer: 1 }];

test('the schools of one server leave a fifth of the connections to those of other servers', async () => {
  const { pool, block, ask, unlock } = await lockedPool(10);
  block(schools(101, 30));
  await until(() => pool.waitingCount === 22 || undefined);
  for (const { school } of schools(1, 5)) expect(await ask({ school })).toEqual(answer);
  // The forwarder is none of these servers, and its answers need no reserved connection.
  block([{ school: 'service' }]);
  expect(await ask({ school: 'service', server: 'forwarder' })).toEqual(answer);
  expect(pool.waitingCount).toBe(22);
  expect(new Set((await unlock()).map(({ status }) => status))).toEqual(new Set(['fulfilled']));
});

test('requests that may wait for any server leave connections to the schools of each server', async () => {
  const { pool, block, ask } = await lockedPool(10);
  // Four of them run, and the reserved connection serves one of the operators.
  block(Array.from({ length: 10 }, () => ({ school: 'rate limits' })));
  block(Array.from({ length: 5 }, () => ({ school: 'platform' })));
  await until(() => pool.waitingCount === 10 || undefined);
  // Together they are at the limit of the node.
  block(schools(101, 30));
  await until(() => pool.waitingCount === 36 || undefined);
  for (const { school } of schools(1, 5)) expect(await ask({ school })).toEqual(answer);
  expect(pool.waitingCount).toBe(36);
});

test('log-ins to the schools of one server leave connections to log-ins to others', async () => {
  const { pool, block, ask } = await lockedPool(10);
  const withoutSession = (request: { school: number }) => ({ ...request, isVerified: false });
  block(schools(101, 20).map(withoutSession));
  await until(() => pool.waitingCount === 16 || undefined);
  expect(await ask({ school: 1, isVerified: false })).toEqual(answer);
  // The schools of the server use the rest of its part.
  block(schools(101, 20));
  await until(() => pool.waitingCount === 32 || undefined);
  expect(await ask({ school: 1, isVerified: false })).toEqual(answer);
});

test('a school whose server gets known while it waits no longer counts for all servers', async () => {
  const known = new Map(servers);
  const { pool, block, ask } = await lockedPool(10, known);
  block(schools(101, 8));
  await until(() => pool.totalCount === 8 || undefined);
  const waits = ask({ school: 200 });
  await until(() => pool.waitingCount === 1 || undefined);
  known.set(200, 'home');
  expect(await waits).toEqual(answer);
});

test('a server whose requests fill the queue does not keep those of others out', async () => {
  const { pool, block, ask, unlock } = await lockedPool(1);
  block(Array.from({ length: 12 }, () => schools(101, 10)).flat());
  await until(() => pool.waitingCount === 80 || undefined);
  const others = schools(1, 20).map(({ school }) => ask({ school }));
  expect(pool.waitingCount).toBe(100);
  const results = await unlock();
  expect(await Promise.all(others)).toEqual(others.map(() => answer));
  expect(results.filter(({ status }) => status === 'rejected')).toHaveLength(39);
});
