import { expect, test } from '@jest/globals';
import { schoolPool } from '../../src/database/school-pool.ts';
import { serviceOfFile } from '../support/server/service.ts';

// A school counts as 0.85 MB, and 0.36 MB for each operation.
const service = await serviceOfFile({ METRICS_PORT: '0', DATABASE_POOL_SIZE: '2', DATABASE_CONNECTION_MB: '4' });

async function renewals(): Promise<number> {
  const text = await (await fetch(service.metricsUrl ?? '')).text();
  return Number(/^school_database_renewals_total\{reason="memory"\} (\d+)$/m.exec(text)?.[1]);
}

const backends = async () =>
  (
    await service.database.query<{ pid: number }>(
      "select pid from pg_stat_activity where datname = current_database() and application_name = 'school_api' and query like '%core.call%'",
    )
  ).map(({ pid }) => pid);

test('connections that have served many schools are replaced while requests go on, those of one school stay', async () => {
  const schools = [await service.school(), await service.school(), await service.school()];
  const [only] = schools;
  const before = await renewals();
  for (let n = 0; n < 20; n++) await only?.admin.get('/api/students');
  const stayed = await renewals();
  expect(stayed - before).toBeLessThanOrEqual(2);
  const old = await backends();
  // All at the same time, so that both connections serve all schools.
  for (let n = 0; n < 5; n++)
    await Promise.all(
      schools.flatMap((school) => [school.admin.get('/api/students'), school.admin.get('/api/teachers')]),
    );
  expect(await renewals()).toBeGreaterThan(stayed);
  expect((await backends()).some((pid) => !old.includes(pid))).toBe(true);
});

test('connections are replaced one at a time', async () => {
  const pool = schoolPool({
    size: 3,
    maxConnectionMb: 0.5,
    connectionTimeoutMs: 3000,
    homeWaitMs: 20,
    client: { connectionString: service.database.url },
  });
  const clients = [];
  for (const school of [1, 2, 3]) clients.push(await pool.connectFor({ school, operation: 'students_list' }));
  for (const client of clients) client.release();
  expect(pool.counts.renewedForMemory).toBe(1);
  // The others follow when they are used again.
  for (let n = 0; n < 20 && pool.counts.renewedForMemory < 3; n++)
    for (const school of [1, 2, 3]) await pool.query('select 1', { school, operation: 'students_list' });
  expect(pool.counts.renewedForMemory).toBeGreaterThanOrEqual(3);
  await pool.end();
});
