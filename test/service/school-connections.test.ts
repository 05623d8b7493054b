import { createHash, randomBytes } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { type School, serviceOfFile } from '../support/server/service.ts';
import { until } from '../support/client/until.ts';

const size = 4;
const settings = { METRICS_PORT: '0', DATABASE_POOL_SIZE: String(size) };
const service = await serviceOfFile(settings);
const schools = [await service.school(), await service.school(), await service.school()] as const;
const [one, two, three] = schools;

const connections = () =>
  service.database.query<{ pid: number }>(
    `select pid from pg_stat_activity
     where datname = current_database() and application_name like 'school_api%' and query like '%core.call%'
     order by query_start desc`,
  );

const makeKey = async (school: School) =>
  (await school.admin.post<{ key: string }>('/api/api-keys', { name: 'Key', permissions: ['student.read'] }, 201)).data;

/** Sends a request of a school. @returns the process id of the backend that served it */
async function backendOf(school: School): Promise<number | undefined> {
  await school.admin.get('/api/students');
  return (await connections())[0]?.pid;
}

async function metric(name: string, label: string): Promise<number> {
  const text = await (await fetch(service.metricsUrl ?? '')).text();
  return Number(new RegExp(`^${name}\\{\\w+="${label}"\\} (\\d+)$`, 'm').exec(text)?.[1]);
}

/** Locks a table of some schools while `work` runs: their requests wait. `work` gets a function that unlocks. */
async function whileLocked<T>(
  locked: readonly School[],
  work: (unlock: () => Promise<unknown>) => Promise<T>,
  table = 'student',
): Promise<T> {
  const client = new shared.pg.Client({ connectionString: service.database.url });
  await client.connect();
  try {
    await client.query('begin');
    for (const { schema } of locked) await client.query(`lock table ${schema}.${table} in access exclusive mode`);
    return await work(() => client.query('commit'));
  } finally {
    await client.end();
  }
}

const waitingBackends = async () =>
  (
    await service.database.query<{ pid: number }>(
      `select pid from pg_stat_activity
       where datname = current_database() and application_name like 'school_api%' and wait_event_type = 'Lock'`,
    )
  ).map(({ pid }) => pid);

const waitingForLock = async (count: number) =>
  until(async () => (await waitingBackends()).length >= count || undefined);

test('pg_stat_activity names the operation and the school of a request while it runs, and not afterwards', async () => {
  const names = async () =>
    (
      await service.database.query<{ name: string }>(
        `select application_name as name from pg_stat_activity
         where datname = current_database() and application_name like '%students_list%'`,
      )
    ).map(({ name }) => name);
  await whileLocked([one], async (unlock) => {
    const answered = one.admin.get('/api/students');
    expect(await until(async () => ((await waitingBackends()).length > 0 ? names() : undefined))).toEqual([
      `school_api students_list ${one.schema}`,
    ]);
    await unlock();
    await answered;
  });
  expect(await names()).toEqual([]);
});

describe('the connections of the API', () => {
  test('the requests of a school use the same connection, also between requests of other schools', async () => {
    const first = [];
    for (const school of schools) first.push(await backendOf(school));
    for (let n = 0; n < 5; n++)
      for (const [index, school] of schools.entries()) expect(await backendOf(school)).toBe(first[index]);
  });

  test('operators use a connection that no school uses, so that its backend keeps no plans of schools', async () => {
    const ofSchools = await whileLocked(schools, async (unlock) => {
      const answers = Array.from({ length: size }, (_, n) => (schools[n % 3] ?? one).admin.get('/api/students'));
      await waitingForLock(size);
      const backends = await waitingBackends();
      await unlock();
      await Promise.all(answers);
      return backends;
    });
    expect(ofSchools).toHaveLength(size);
    await service.operator.get('/api/platform/plans');
    expect(ofSchools).not.toContain((await connections())[0]?.pid);
  });

  test('one school uses all connections but one, which serves the others', async () => {
    const before = await metric('school_database_checkouts_total', 'fallback');
    await whileLocked([one], async (unlock) => {
      const answers = Array.from({ length: 3 * size }, () => one.admin.get('/api/students'));
      await waitingForLock(size - 1);
      for (let n = 0; n < 3; n++) await Promise.all([two.admin.get('/api/students'), three.admin.get('/api/students')]);
      expect(await metric('school_database_waiting', 'api')).toBe(2 * size + 1);
      await unlock();
      await Promise.all(answers);
    });
    expect(await metric('school_database_checkouts_total', 'fallback')).toBeGreaterThan(before);
  });

  test('a school that waits gets the next free connection before a school that uses several', async () => {
    const students = (school: School) => school.admin.get('/api/students');
    const waitingFor = () =>
      service.database.query<{ name: string }>(
        `select relation::regclass::text as name from pg_locks
         where not granted and database = (select oid from pg_database where datname = current_database())`,
      );
    await whileLocked(schools, async (unlock) => {
      const answers: Promise<unknown>[] = [];
      await whileLocked(
        [one],
        async (unlockSubjects) => {
          answers.push(one.admin.get('/api/subjects'));
          await waitingForLock(1);
          answers.push(students(three), ...Array.from({ length: 10 * size }, () => students(one)));
          await waitingForLock(size);
          answers.push(students(two));
          const asked = performance.now();
          await until(async () => (await metric('school_database_waiting', 'api')) === 10 * size - 1 || undefined);
          // At first it waits for a connection of its own school.
          await until(() => performance.now() - asked > 100 || undefined);
          await unlockSubjects();
        },
        'subject',
      );
      await answers[0];
      await waitingForLock(size);
      expect(await waitingFor()).toContainEqual({ name: `${two.schema}.student` });
      await unlock();
      await Promise.all(answers);
    });
  });

  test('a request that gets no connection within three seconds is answered with 503', async () => {
    await whileLocked([one, three], async (unlock) => {
      const busy = [
        ...Array.from({ length: size }, () => one.admin.get('/api/students')),
        three.admin.get('/api/students'),
      ];
      await waitingForLock(size);
      expect(await two.admin.get('/api/students', 503)).toMatchObject({ error: 'unavailable' });
      await unlock();
      await Promise.allSettled(busy);
    });
    await two.admin.get('/api/students');
  });

  test('a school over its share gets a connection that was busy when it asked, as soon as it may', async () => {
    const students = (school: School) => school.admin.get('/api/students');
    await whileLocked([one], (unlockOne) =>
      whileLocked([two, three], async (unlockOthers) => {
        const others = [students(two), students(three)];
        await waitingForLock(2);
        const first = [students(one), students(one)];
        await waitingForLock(size);
        const third = students(one);
        const asked = performance.now();
        // Longer than it waits for a preferred connection, and shorter than it waits for more than its share.
        await until(() => performance.now() - asked > 100 || undefined);
        await unlockOthers();
        await Promise.all(others);
        await waitingForLock(3);
        await unlockOne();
        await Promise.all([...first, third]);
      }),
    );
  });

  test('a request with an API key is one statement, like one with a session, on the connections of its school', async () => {
    const { key } = await makeKey(two);
    const client = service.anonymous.with({ Authorization: `Bearer ${key}` });
    const statements = async () =>
      (await metric('school_database_checkouts_total', 'preferred')) +
      (await metric('school_database_checkouts_total', 'fallback'));
    const backend = await backendOf(two);
    await client.get('/api/students');
    const before = await statements();
    for (let n = 0; n < 5; n++) await client.get('/api/students');
    expect(await statements()).toBe(before + 5);
    expect((await connections())[0]?.pid).toBe(backend);
  });

  test('requests with invented keys of a school do not count as requests of the school', async () => {
    const { key } = await makeKey(one);
    const client = service.anonymous.with({ Authorization: `Bearer ${key}` });
    await client.get('/api/students');
    const invented = () => {
      const unchecked = `sk_${one.id}_${randomBytes(32).toString('hex').slice(0, 43)}`;
      return unchecked + createHash('sha256').update(unchecked).digest('hex').slice(0, 8);
    };
    const lock = new shared.pg.Client({ connectionString: service.database.url });
    await lock.connect();
    try {
      await lock.query('begin');
      await lock.query(`lock table ${one.schema}.api_key in access exclusive mode`);
      const attacks = Array.from({ length: 2 * size }, () =>
        service.anonymous.with({ Authorization: `Bearer ${invented()}` }).send('GET', '/api/students'),
      );
      await waitingForLock(size - 1);
      for (const school of schools) await school.admin.get('/api/students');
      await lock.query('commit');
      expect(new Set((await Promise.all(attacks)).map(({ status }) => status))).toEqual(new Set([401]));
    } finally {
      await lock.end();
    }
    await client.get('/api/students');
  });

  test('a connection that the server has ended is replaced', async () => {
    const ended = await backendOf(one);
    await service.database.query('select pg_terminate_backend($1)', [ended]);
    await until(async () => !(await connections()).some(({ pid }) => pid === ended) || undefined);
    expect(await backendOf(one)).not.toBe(ended);
  });
});
