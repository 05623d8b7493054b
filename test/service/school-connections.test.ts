import { describe, expect, test } from '@jest/globals';
import { type School, serviceOfFile } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

const size = 4;
const settings = { METRICS_PORT: '0', DATABASE_POOL_SIZE: String(size) };
const service = await serviceOfFile(settings);
const schools = [await service.school(), await service.school(), await service.school()] as const;
const [one, two] = schools;

const connections = () =>
  service.database.query<{ pid: number }>(
    `select pid from pg_stat_activity
     where datname = current_database() and application_name = 'school_api' and query like '%core.call%'
     order by query_start desc`,
  );

/** Sends a request of a school. @returns the process id of the backend that served it */
async function backendOf(school: School): Promise<number | undefined> {
  await school.admin.get('/api/students');
  return (await connections())[0]?.pid;
}

async function metric(name: string, label: string): Promise<number> {
  const text = await (await fetch(service.metricsUrl ?? '')).text();
  return Number(new RegExp(`^${name}\\{\\w+="${label}"\\} (\\d+)$`, 'm').exec(text)?.[1]);
}

/** Locks the students of some schools while `work` runs: their requests wait. `work` gets a function that unlocks. */
async function whileLocked<T>(
  locked: readonly School[],
  work: (unlock: () => Promise<unknown>) => Promise<T>,
): Promise<T> {
  const client = new shared.pg.Client({ connectionString: service.database.url });
  await client.connect();
  try {
    await client.query('begin');
    for (const { schema } of locked) await client.query(`lock table ${schema}.student in access exclusive mode`);
    return await work(() => client.query('commit'));
  } finally {
    await client.end();
  }
}

const waitingForLock = async (count: number) =>
  until(
    async () =>
      (
        await service.database.query(
          "select from pg_stat_activity where datname = current_database() and application_name = 'school_api' and wait_event_type = 'Lock'",
        )
      ).length >= count || undefined,
  );

describe('the connections of the API', () => {
  test('the requests of a school use the same connection, also between requests of other schools', async () => {
    const first = [];
    for (const school of schools) first.push(await backendOf(school));
    for (let n = 0; n < 5; n++)
      for (const [index, school] of schools.entries()) expect(await backendOf(school)).toBe(first[index]);
  });

  test('requests of one school at the same time use all connections', async () => {
    const other = await metric('school_database_checkouts_total', 'other');
    await whileLocked([one], async (unlock) => {
      const answers = Array.from({ length: size }, () => one.admin.get('/api/students'));
      await waitingForLock(size);
      await unlock();
      await Promise.all(answers);
    });
    expect(await metric('school_database_checkouts_total', 'other')).toBe(other + size - 2);
  });

  test('a school that waits gets the next free connection before a school that uses several', async () => {
    const done: string[] = [];
    const get = (school: School, name: string) => school.admin.get('/api/students').then(() => done.push(name));
    await whileLocked([one], async (unlock) => {
      const busy = Array.from({ length: 10 * size }, (_, n) => get(one, `busy ${n}`));
      await waitingForLock(size);
      const late = get(two, 'late');
      await until(async () => (await metric('school_database_waiting', 'api')) === 9 * size + 1 || undefined);
      await unlock();
      await Promise.all([...busy, late]);
    });
    // In the order of arrival it would be among the last ones. At first it waits for a connection of its own school.
    expect(done.indexOf('late')).toBeLessThan(8 * size);
  });

  test('a request that gets no connection within three seconds is answered with 503', async () => {
    await whileLocked([one], async (unlock) => {
      const busy = Array.from({ length: size }, () => one.admin.get('/api/students'));
      await waitingForLock(size);
      expect(await two.admin.get('/api/students', 503)).toMatchObject({ error: 'unavailable' });
      await unlock();
      await Promise.all(busy);
    });
    await two.admin.get('/api/students');
  });

  test('a connection that the server has ended is replaced', async () => {
    const ended = await backendOf(one);
    await service.database.query('select pg_terminate_backend($1)', [ended]);
    await until(async () => !(await connections()).some(({ pid }) => pid === ended) || undefined);
    expect(await backendOf(one)).not.toBe(ended);
  });
});
