import { afterAll, describe, expect, test } from '@jest/globals';
import type { OutputOf } from '../support/client/output.ts';
import type { Student as StudentSchema } from '../../src/endpoints/students.ts';
import { createForwarder } from '../../src/servers/forwarder.ts';
import { until } from '../support/client/until.ts';
import { type School, serviceOfFile, testPassword, unique } from '../support/server/service.ts';
import { startProgram } from '../support/server/processes.ts';
import { newSchool } from './schools.ts';
import { servers, serverUrl, startServer, stopServer } from './servers.ts';

type Student = OutputOf<typeof StudentSchema>;

const { home, homeServer, forwarder, nodes } = servers();
const { withOwner, pg } = shared;
const service = await serviceOfFile({ STREAM_HEARTBEAT_MS: '300' });

const pools = nodes.map(({ url }) => new pg.Pool({ connectionString: url, max: 2 }));
for (const pool of pools) pool.on('error', () => undefined);
afterAll(() => Promise.all(pools.map((pool) => pool.end())));

/** The node of a school, from 0. */
async function nodeOf({ id }: { id: number }): Promise<number> {
  const [row] = await service.database.query<{ node: number }>(
    'select node_id::integer as node from platform.tenant where id = $1',
    [id],
  );
  return (row?.node ?? 0) - 1;
}

/** Two schools on different nodes: a new school goes to the node with fewer of them. */
async function schoolsOnBothNodes(): Promise<[School, School]> {
  const first = await service.school();
  for (;;) {
    const second = await service.school();
    const isFirst = (await nodeOf(first)) === 0;
    if ((await nodeOf(second)) !== (await nodeOf(first))) return isFirst ? [first, second] : [second, first];
  }
}

const [east, west] = await schoolsOnBothNodes();

const hasSchema = async (pool: InstanceType<typeof pg.Pool> | undefined, { schema }: School) =>
  (await pool?.query<{ exists: boolean }>('select to_regnamespace($1) is not null as exists', [schema]))?.rows[0]
    ?.exists;

describe('a school on a node', () => {
  test('gets each change once that runs, or begins, while the forwarder is created again', async () => {
    const atForwarder = new pg.Pool({ connectionString: forwarder, max: 1 });
    const onNode = await pools[0]?.connect();
    const waiting = async (pool: InstanceType<typeof pg.Pool> | undefined, session: string) =>
      (
        await pool?.query(
          `select from pg_stat_activity
           where datname = current_database() and wait_event_type = 'Lock' and application_name like $1`,
          [session],
        )
      )?.rowCount ?? 0;
    const version = async () =>
      (
        await atForwarder.query<{ oid: number }>(
          "select to_regprocedure('core.call(text,bigint,jsonb,jsonb,bytea)')::oid as oid",
        )
      ).rows[0]?.oid;
    const create = async () => {
      const last_name = unique('Once');
      const { status } = await east.admin.send('POST', '/api/students', { body: { first_name: 'Ada', last_name } });
      const { data } = await east.admin.get<Student[]>(`/api/students?search=${last_name}`);
      return [status, data.length];
    };
    try {
      await onNode?.query(`begin; lock table ${east.schema}.student in share row exclusive mode`);
      const before = await version();
      const running = create();
      await until(async () => (await waiting(pools[0], '%')) === 1 || undefined);
      const installed = withOwner(home, (client) =>
        createForwarder(client, { name: 'test', url: forwarder, homeUrl: home }),
      );
      // The new version waits for the request, or is there.
      await until(
        async () => (await waiting(atForwarder, 'school_owner')) > 0 || (await version()) !== before || undefined,
      );
      const begun = [create(), create()];
      await until(
        async () => (await waiting(pools[0], '%')) + (await waiting(atForwarder, 'school_api%')) === 3 || undefined,
      );
      await onNode?.query('rollback');
      await installed;
      expect(await Promise.all([running, ...begun])).toEqual(Array(3).fill([201, 1]));
    } finally {
      onNode?.release(true);
      await atForwarder.end();
    }
  });

  test('has its tables on its node, and nowhere else', async () => {
    expect(await Promise.all(pools.map((pool) => hasSchema(pool, east)))).toEqual([true, false]);
    expect(await Promise.all(pools.map((pool) => hasSchema(pool, west)))).toEqual([false, true]);
    const atHome = await service.database.query('select from pg_namespace where nspname = any ($1)', [
      [east.schema, west.schema],
    ]);
    expect(atHome).toEqual([]);
  });

  test.each([
    ['the first', east],
    ['the second', west],
  ])('creates, reads, lists, changes and deletes records: %s', async (_, school) => {
    const { data: created } = await school.admin.post<Student>(
      '/api/students',
      { first_name: 'Ada', last_name: unique('Byron') },
      201,
    );
    const path = `/api/students/${created.id}`;
    expect((await school.admin.get<Student>(path)).data).toEqual(created);
    const listed = await school.admin.get<Student[]>(`/api/students?search=${created.last_name}`);
    expect(listed.data.map(({ id }) => id)).toEqual([created.id]);
    await school.admin.put(path, { first_name: 'Augusta' });
    expect((await school.admin.get<Student>(path)).data.first_name).toBe('Augusta');
    await school.admin.delete(path);
    expect((await school.admin.get(path, 404)).error).toBe('not_found');
  });

  test('reports an error with the field, as one server does', async () => {
    const subject = { name: unique('Algebra'), code: unique('ALG') };
    await east.admin.post('/api/subjects', subject, 201);
    expect(await east.admin.post('/api/subjects', { ...subject, name: unique('Other') }, 409)).toMatchObject({
      error: 'conflict',
      message: 'This code is already in use.',
      details: [{ path: 'code' }],
    });
    expect((await east.admin.post('/api/students', { first_name: '', last_name: 'X' }, 400)).error).toBe(
      'validation_error',
    );
  });

  test('logs in by subdomain and by id, refreshes its token, and rejects a wrong password', async () => {
    for (const { id, subdomain, adminEmail: email } of [east, west]) {
      await service.anonymous.login({ subdomain, email, password: testPassword });
      await service.anonymous.login({ tenant_id: id, email, password: testPassword });
      const wrong = { subdomain, email, password: 'not the password' };
      expect((await service.anonymous.post('/api/auth/login', wrong, 401)).error).toBe('invalid_credentials');
    }
    const unknown = { subdomain: 'no-such-school', email: east.adminEmail, password: testPassword };
    expect((await service.anonymous.post('/api/auth/login', unknown, 404)).error).toBe('tenant_not_found');
  });

  test('does not accept the token of a school on the other node', async () => {
    const { data: created } = await east.admin.post<Student>(
      '/api/students',
      { first_name: 'Only', last_name: 'Here' },
      201,
    );
    const { data: others } = await west.admin.get<Student[]>('/api/students?search=Only');
    expect(others).toEqual([]);
    const mismatch = await west.admin.send(
      'GET',
      `/api/students/${created.id}`,
      { headers: { 'X-Tenant-ID': String(east.id) } },
      403,
    );
    expect(mismatch.error).toBe('tenant_mismatch');
  });

  test('has ids of sessions and audit entries that no other server has', async () => {
    const counts = await Promise.all(
      pools.map(async (pool, index) => {
        const { rows } = await pool.query<{ strangers: string; own: string }>(
          `select count(*) filter (where id / 1000000000000 <> $1) as strangers, count(*) as own
           from platform.session where tenant_id = any ($2)`,
          [index + 1, [east.id, west.id]],
        );
        return rows[0];
      }),
    );
    for (const count of counts) {
      expect(count?.strangers).toBe('0');
      expect(Number(count?.own)).toBeGreaterThan(0);
    }
  });
});

test('a connection of the forwarder reports no memory, which its backends on the nodes have', async () => {
  const memory = (url: string) =>
    withOwner(url, async (client) => {
      await client.query('set role school_api');
      return (await client.query<{ mb: number | null }>('select core.backend_memory_mb() as mb')).rows[0]?.mb;
    });
  expect(await memory(forwarder)).toBeNull();
  expect(await memory(home)).toBeGreaterThan(0);
});

describe('an operator', () => {
  test('sees the schools, their size and the audit entries of all nodes at home', async () => {
    await west.admin.post('/api/students', { first_name: 'Counted', last_name: 'Child' }, 201);
    for (const { id, subdomain } of [east, west]) {
      const { data } = await service.operator.get<{ id: number }[]>(`/api/platform/tenants?search=${subdomain}`);
      expect(data.map((school) => school.id)).toEqual([id]);
      const { data: entries } = await service.operator.get<{ action: string }[]>(
        `/api/platform/audit-logs?tenant_id=${id}`,
      );
      expect(entries.map(({ action }) => action)).toContain('tenant.create');
    }
    await until(async () => {
      const { data } = await service.operator.get<{ stats: { total_students: number } }>(
        `/api/platform/tenants/${west.id}`,
      );
      return data.stats.total_students > 0 || undefined;
    });
  });

  test('suspends and activates a school: its users notice at the next request, the list at once', async () => {
    const { data: suspended } = await service.operator.post<{ status: string }>(
      `/api/platform/tenants/${east.id}/suspend`,
      {},
      200,
    );
    expect(suspended.status).toBe('suspended');
    expect((await east.admin.get('/api/students', 403)).error).toBe('tenant_suspended');
    expect((await service.operator.get<{ status: string }>(`/api/platform/tenants/${east.id}`)).data.status).toBe(
      'suspended',
    );
    await service.operator.post(`/api/platform/tenants/${east.id}/activate`, {}, 200);
    await east.admin.get('/api/students');
  });

  test('changes a plan: schools on every node have its features at the next request', async () => {
    const plan = await service.plan({ features_json: { features: [] } });
    const school = await service.school({ plan_id: plan.id });
    expect((await school.admin.get('/api/notifications', 403)).error).toBe('feature_disabled');
    await service.operator.put(`/api/platform/plans/${plan.id}`, { features_json: { features: ['notifications'] } });
    await school.admin.get('/api/notifications');
  });

  test('changes a subdomain, but not to one of a school on another node', async () => {
    const taken = await service.operator.put(`/api/platform/tenants/${east.id}`, { subdomain: west.subdomain }, 409);
    expect(taken).toMatchObject({ error: 'conflict', details: [{ path: 'subdomain' }] });
    const subdomain = unique('renamed');
    await service.operator.put(`/api/platform/tenants/${east.id}`, { subdomain });
    await service.anonymous.login({ subdomain, email: east.adminEmail, password: testPassword });
    await service.operator.put(`/api/platform/tenants/${east.id}`, { subdomain: east.subdomain });
  });

  test('changes schools of a node on which one has a subdomain that another school has taken', async () => {
    const atHome = async () =>
      service.database.query<{ subdomain: string; status: string }>(
        'select subdomain, status from platform.tenant where id = $1',
        [east.id],
      );
    // As after the change of a subdomain whose answer was lost, so that the earlier one returned at home.
    await pools[0]?.query('update platform.tenant set subdomain = $2 where id = $1', [east.id, west.subdomain]);
    await service.operator.post(`/api/platform/tenants/${east.id}/suspend`, {}, 200);
    expect(await atHome()).toEqual([{ subdomain: east.subdomain, status: 'suspended' }]);
    await service.operator.post(`/api/platform/tenants/${east.id}/activate`, {}, 200);
    await service.operator.put(`/api/platform/tenants/${east.id}`, { subdomain: east.subdomain });
    expect(await atHome()).toEqual([{ subdomain: east.subdomain, status: 'active' }]);
    const { subdomain, adminEmail: email } = east;
    await service.anonymous.login({ subdomain, email, password: testPassword });
  });

  test('changes a school on its node while the forwarder has an old copy of the directory', async () => {
    const subscription = (action: string) =>
      withOwner(forwarder, (client) => client.query(`alter subscription school_forwarder_test ${action}`));
    await subscription('disable');
    try {
      const { data: created } = await service.operator.post<{ id: number }>('/api/platform/tenants', newSchool(), 201);
      await service.operator.post(`/api/platform/tenants/${created.id}/suspend`, {}, 200);
      const { rows = [] } =
        (await pools[await nodeOf(created)]?.query<{ status: string }>(
          'select status from platform.tenant where id = $1',
          [created.id],
        )) ?? {};
      expect(rows).toEqual([{ status: 'suspended' }]);
    } finally {
      await subscription('enable');
    }
  });

  test('cannot name an operator, a server or an id in the body', async () => {
    const operator = { id: 1, user_id: 1, email: 'operator@test.example', roles: ['admin'] };
    for (const forged of [{ operator }, { school: east.id }, { reserved_id: east.id }]) {
      const refused = await service.operator.post('/api/platform/tenants', { ...newSchool(), ...forged }, 400);
      expect(refused).toMatchObject({ error: 'validation_error', details: [{ path: Object.keys(forged)[0] }] });
      const path = `/api/platform/tenants/${west.id}`;
      expect((await service.anonymous.send('PUT', path, { body: { name: 'Forged', ...forged } })).status).toBe(401);
      const byAdmin = await west.admin.send('PUT', path, { body: { name: 'Forged', ...forged } });
      expect([400, 403]).toContain(byAdmin.status);
    }
  });

  test('without a session, or an admin of another school, changes nothing on a node', async () => {
    const { email, password } = { email: 'operator@test.example', password: testPassword };
    const other = await service.anonymous.login({ is_platform: true, email, password });
    await other.post('/api/auth/logout', {}, 200);
    expect((await other.post(`/api/platform/tenants/${west.id}/suspend`, {}, 401)).error).toBe('invalid_token');
    expect((await west.admin.post(`/api/platform/tenants/${east.id}/suspend`, {}, 403)).error).toBe('forbidden');
    await west.admin.get('/api/students');
  });
});

describe('the creation of a school', () => {
  /** What the home does first. */
  const reserve = (school: ReturnType<typeof newSchool>) =>
    service.database.query<{ id: string }>('select id from core.school_reserve($1)', [JSON.stringify(school)]);

  test('that a node refuses leaves no reservation', async () => {
    const refused = { ...newSchool(), time_zone: 'Mars/Olympus' };
    await service.operator.post('/api/platform/tenants', refused, 400);
    const left = await service.database.query('select from platform.tenant where subdomain = $1', [refused.subdomain]);
    expect(left).toEqual([]);
    expect(
      (await service.operator.post('/api/platform/tenants', { ...newSchool(), subdomain: west.subdomain }, 409)).error,
    ).toBe('conflict');
  });

  test('that stopped after the reservation can be repeated, and nobody can log in before that', async () => {
    const school = newSchool();
    const [reserved] = await reserve(school);
    const login = { subdomain: school.subdomain, email: school.contact_email, password: testPassword };
    await until(async () => {
      const { error } = await service.anonymous.send('POST', '/api/auth/login', { body: login });
      return error === 'tenant_not_found' || undefined;
    });
    const { data } = await service.operator.post<{ id: number }>('/api/platform/tenants', school, 201);
    expect(data.id).toBe(Number(reserved?.id));
    await service.anonymous.login(login);
  });

  test('that continues a reservation and is refused leaves it to the request that made it', async () => {
    const school = newSchool();
    const [reserved] = await reserve(school);
    await service.operator.post('/api/platform/tenants', { ...school, time_zone: 'Mars/Olympus' }, 400);
    expect(await reserve(school)).toEqual([reserved]);
    const { data } = await service.operator.post<{ id: number }>('/api/platform/tenants', school, 201);
    expect(data.id).toBe(Number(reserved?.id));
  });

  test('avoids a node that is being drained', async () => {
    const { setDraining } = await import('../../src/servers/nodes/nodes.ts');
    const [first] = nodes;
    await withOwner(home, (client) => setDraining(client, first?.name ?? '', true));
    const places = [await service.school(), await service.school(), await service.school()].map(nodeOf);
    expect(await Promise.all(places)).toEqual([1, 1, 1]);
    await withOwner(home, (client) => setDraining(client, first?.name ?? '', false));
  });
});

describe('the command line', () => {
  const school = async (...args: string[]) =>
    startProgram('src/cli/main.ts', args, { DATABASE_URL: home, ADMIN_PASSWORD: testPassword }).ended;

  test('refuses a used database as a forwarder, and the removal of a forwarder that does not exist', async () => {
    await service.database.query('create database other_application');
    const url = serverUrl(homeServer, 'other_application');
    await withOwner(url, (client) => client.query('create schema core; create table core.invoice (id bigint)'));
    expect(await school('forwarder', 'create', 'wrong', url)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('in use'),
    });
    await withOwner(url, (client) => client.query('select from core.invoice'));
    expect(await school('forwarder', 'remove', 'wrong')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('There is no forwarder wrong'),
    });
  });

  test('lists the nodes', async () => {
    const { code, stdout } = await school('node', 'list', '--json');
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject(
      nodes.map(({ name }) => ({ name, status: 'active', is_reachable: true, reserved: 0 })),
    );
  });

  test('creates a school on a node', async () => {
    const subdomain = unique('by-hand').toLowerCase();
    const email = `admin@${subdomain}.example`;
    const options = ['--name', 'By Hand', '--plan', '3', '--contact-email', email, '--json'];
    const refused = await school('tenant', 'create', subdomain, ...options, '--node', 'nowhere');
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('There is no node nowhere') });
    const { stdout } = await school('tenant', 'create', subdomain, ...options, '--node', 'node-2');
    const { id } = JSON.parse(stdout) as { id: number };
    expect(await nodeOf({ id })).toBe(1);
    await until(async () => {
      const { status } = await service.anonymous.send('POST', '/api/auth/login', {
        body: { subdomain, email, password: testPassword },
      });
      return status === 200 || undefined;
    });
  });

  test('does not remove a node that has schools, and does not add a database that is in use', async () => {
    expect(await school('node', 'remove', 'node-1')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('Schools on the node node-1: '),
    });
    expect(await school('node', 'add', 'again', nodes[0]?.url ?? '')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('already the node node-1'),
    });
    const [again] = await service.database.query("select from platform.node where name = 'again'");
    expect(again).toBeUndefined();
  });
});

test('while the home is down, schools on nodes work and log in, and operators get 503', async () => {
  await stopServer(homeServer);
  try {
    await east.admin.get('/api/students');
    await service.anonymous.login({ subdomain: west.subdomain, email: west.adminEmail, password: testPassword });
    expect((await service.operator.get('/api/platform/tenants', 503)).error).toBe('unavailable');
  } finally {
    await startServer(homeServer);
  }
  await until(async () => (await service.operator.send('GET', '/api/platform/tenants')).status === 200 || undefined);
  await service.operator.post(`/api/platform/tenants/${east.id}/suspend`, {}, 200);
  expect((await east.admin.get('/api/students', 403)).error).toBe('tenant_suspended');
  await service.operator.post(`/api/platform/tenants/${east.id}/activate`, {}, 200);
});

test('a node that is down answers 503 for its schools only, and serves them again when it is back', async () => {
  const server = nodes[1]?.server;
  if (!server) throw new Error('There is no second node.');
  await stopServer(server);
  try {
    expect((await west.admin.get('/api/students', 503)).error).toBe('unavailable');
    const login = { subdomain: west.subdomain, email: west.adminEmail, password: testPassword };
    expect((await service.anonymous.post('/api/auth/login', login, 503)).error).toBe('unavailable');
    await east.admin.get('/api/students');
    await service.anonymous.login({ subdomain: east.subdomain, email: east.adminEmail, password: testPassword });
    const { data } = await service.operator.get<{ id: number }[]>(`/api/platform/tenants?search=${west.subdomain}`);
    expect(data.map(({ id }) => id)).toEqual([west.id]);
    expect((await service.operator.post(`/api/platform/tenants/${west.id}/suspend`, {}, 503)).error).toBe(
      'unavailable',
    );
    await service.operator.put(`/api/platform/tenants/${west.id}`, { subdomain: unique('renamed').toLowerCase() }, 503);
    const [atHome] = await service.database.query<{ subdomain: string }>(
      'select subdomain from platform.tenant where id = $1',
      [west.id],
    );
    expect(atHome?.subdomain).toBe(west.subdomain);
  } finally {
    await startServer(server);
  }
  await until(async () => (await west.admin.send('GET', '/api/students')).status === 200 || undefined);
});
