import { afterAll, describe, expect, test } from '@jest/globals';
import type { OutputOf } from '../support/client/output.ts';
import type { Student as StudentSchema } from '../../src/endpoints/students.ts';
import { setDraining, unsubscribe } from '../../src/database/nodes.ts';
import { cancelMove, confirmMove, moveSchool, type MoveStep } from '../../src/database/school-move.ts';
import { ids, walk } from '../support/client/pages.ts';
import { openStream } from '../support/client/stream.ts';
import { until } from '../support/client/until.ts';
import { send } from '../support/client/wire.ts';
import { type School, serviceOfFile, testPassword, unique } from '../support/server/service.ts';
import { startProgram } from '../support/server/processes.ts';
import { type Servers, signalServer, startServer, stopServer } from './servers.ts';

type Student = OutputOf<typeof StudentSchema>;

const { home, nodes, router } = JSON.parse(process.env['TEST_NODES'] ?? '') as Servers;
const { withOwner, pg } = shared;
const service = await serviceOfFile({ CLOSED_SCHOOL_WAIT_MS: '2500' });

const urls = { home, 'node-1': nodes[0]?.url ?? '', 'node-2': nodes[1]?.url ?? '' };
type Name = keyof typeof urls;
const poolOf = (connectionString: string) => new pg.Pool({ connectionString, max: 2 }).on('error', () => undefined);
const pools = Object.fromEntries(
  Object.entries(urls).map(([name, connectionString]) => [name, poolOf(connectionString)]),
) as Record<Name, InstanceType<typeof pg.Pool>>;
afterAll(() => Promise.all(Object.values(pools).map((pool) => pool.end())));

/** A school on this server. */
async function schoolOn(name: Name): Promise<School> {
  const others = nodes.filter((node) => node.name !== name);
  await withOwner(home, async (client) => {
    for (const node of others) await setDraining(client, node.name, true);
  });
  try {
    return await service.school();
  } finally {
    await withOwner(home, async (client) => {
      for (const node of others) await setDraining(client, node.name, false);
    });
  }
}

const move = (
  school: School,
  to: Name,
  onStep?: (step: MoveStep) => void | Promise<void>,
  options: Pick<Parameters<typeof moveSchool>[1], 'stallTimeoutMs' | 'onProgress'> = {},
) =>
  withOwner(home, (client) =>
    moveSchool(client, { homeUrl: home, school: school.id, to, ...(onStep ? { onStep } : {}), ...options }),
  );
const confirm = (school: School, from?: Name) =>
  withOwner(home, (client) =>
    confirmMove(client, { homeUrl: home, school: school.id, ...(from === undefined ? {} : { from }) }),
  );

const cancel = (school: School, to: Name, isLost = false) =>
  withOwner(home, (client) => cancelMove(client, { homeUrl: home, school: school.id, to, isLost }));

/** Runs `work` while a node is down. The router is on the server of node-1. */
async function whileDown(name: 'node-2', work: () => Promise<void>): Promise<void> {
  const server = nodes.find((node) => node.name === name)?.server;
  if (!server) throw new Error(`There is no ${name}.`);
  await stopServer(server);
  try {
    await work();
  } finally {
    await startServer(server);
    await until(async () => (await pools[name].query('select').catch(() => undefined))?.rowCount);
  }
}

/** Runs `work` while node-2 accepts connections, but answers nothing. */
async function whileHung(work: () => Promise<void>): Promise<void> {
  const server = nodes[1]?.server;
  if (!server) throw new Error('There is no node-2.');
  signalServer(server, 'SIGSTOP');
  try {
    await work();
  } finally {
    signalServer(server, 'SIGCONT');
    // The API has told the router that it hangs, which refuses requests to it for a while.
    await until(async () => ((await refusedServers()) === 0 ? true : undefined));
  }
}

const refusedServers = () =>
  withOwner(
    router,
    async (client) => (await client.query('select from core.refused_server where until > clock_timestamp()')).rowCount,
  );

const rows = async (name: Name, text: string) => (await pools[name].query<Record<string, unknown>>(text)).rows;
const schemasOn = async (name: Name, { id }: School) =>
  (await rows(name, `select nspname from pg_namespace where nspname ~ '^(moved_)?tenant_${id}$'`)).map(
    ({ nspname }) => nspname,
  );

/** The names of what moves of a school use for its replication. */
const publicationsOn = async (name: Name, { id }: School) =>
  (await rows(name, `select pubname from pg_publication where pubname ~ '^school_move_${id}_'`)).map(
    ({ pubname }) => pubname,
  );
const slotsOn = async (name: Name, { id }: School) =>
  (await rows(name, `select slot_name from pg_replication_slots where slot_name ~ '^school_move_${id}_'`)).map(
    ({ slot_name }) => slot_name,
  );
const subscriptionsOn = async (name: Name, { id }: School) =>
  (await rows(name, `select subname from pg_subscription where subname ~ '^school_move_${id}_'`)).map(
    ({ subname }) => subname,
  );
/** The slots with which subscribers copy tables. */
const tableSlotsOn = (name: Name) =>
  rows(name, "select slot_name from pg_replication_slots where slot_name ~ '^pg_[0-9]+_sync_'");

/** Whether a statement like this waits for a lock. */
const isWaiting = async (name: Name, text: string) =>
  (
    await rows(
      name,
      `select from pg_stat_activity
       where datname = current_database() and wait_event_type = 'Lock' and query like '%${text}%'`,
    )
  ).length || undefined;

/** Inserts a row, as replication does, in a transaction that ends when `release` or `commit` is called. */
async function holdRow(
  name: Name,
  text: string,
): Promise<{ release: () => Promise<void>; commit: () => Promise<void> }> {
  const client = await pools[name].connect();
  // A test may stop the server.
  client.on('error', () => undefined);
  await client.query(`begin; set local session_replication_role = replica; ${text}`);
  return {
    async release() {
      await client.query('rollback').catch(() => undefined);
      client.release(true);
    },
    async commit() {
      await client.query('commit');
      client.release(true);
    },
  };
}

/** Creates students one after the other until `stop` is called, which returns the names of those that exist. */
function keepWriting(school: School): { stop: () => Promise<string[]>; statuses: Map<number, number> } {
  const names: string[] = [];
  const statuses = new Map<number, number>();
  const stopped = new AbortController();
  const written = (async () => {
    while (!stopped.signal.aborted) {
      const last_name = unique('Moved');
      const { status } = await school.admin.send('POST', '/api/students', { body: { first_name: 'Ada', last_name } });
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      if (status === 201) names.push(last_name);
    }
  })();
  return {
    statuses,
    async stop() {
      stopped.abort();
      await written;
      return names;
    },
  };
}

const students = async ({ admin }: School) =>
  (await walk<Student>(admin, '/api/students?search=Moved', 100)).map(({ last_name }) => last_name);

const audited = async ({ id }: School) =>
  ids(await walk(service.operator, `/api/platform/audit-logs?tenant_id=${id}`, 100));

describe('a school moves', () => {
  test.each<[Name, Name]>([
    ['node-1', 'node-2'],
    ['home', 'node-1'],
    ['node-2', 'home'],
  ])('from %s to %s while it is used: every record is there once, and no request fails', async (from, to) => {
    const school = await schoolOn(from);
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    const entries = await audited(school);
    const writing = keepWriting(school);
    const closedMs = await move(school, to);
    const written = await writing.stop();
    expect([...writing.statuses.keys()]).toEqual([201]);
    expect(written.length).toBeGreaterThan(0);
    expect((await students(school)).sort()).toEqual([...before, ...written].sort());
    expect(closedMs).toBeGreaterThan(0);
    expect(await schemasOn(to, school)).toEqual([school.schema]);
    expect(await schemasOn(from, school)).toEqual([`moved_${school.schema}`]);

    // The session goes on, new ones begin, and ids continue.
    await school.admin.post('/api/students', { first_name: 'New', last_name: 'Here' }, 201);
    const { subdomain, adminEmail: email } = school;
    await service.anonymous.login({ subdomain, email, password: testPassword });
    await service.operator.post(`/api/platform/tenants/${school.id}/suspend`, {}, 200);
    expect((await school.admin.get('/api/students', 403)).error).toBe('tenant_suspended');
    await service.operator.post(`/api/platform/tenants/${school.id}/activate`, {}, 200);

    await confirm(school);
    expect(await schemasOn(from, school)).toEqual([]);
    if (from !== 'home') {
      expect(await rows(from, `select from platform.tenant where id = ${school.id}`)).toEqual([]);
      expect(await rows(from, `select from platform.session where tenant_id = ${school.id}`)).toEqual([]);
    }
    await school.admin.post('/api/students', { first_name: 'Still', last_name: 'Here' }, 201);
    // What operators did before the move is there once, and nothing of it was deleted.
    await until(async () => {
      const all = await audited(school);
      return (all.length === entries.length + 2 && entries.every((id) => all.includes(id))) || undefined;
    });
  });

  test('while a notification stream is open, which goes on with every notification once', async () => {
    const school = await schoolOn('node-1');
    const user = await school.user(['teacher']);
    const notify = (title: string) =>
      school.admin.post('/api/notifications/send', { user_ids: [user.id], title, message: 'In the hall.' });
    const stream = await openStream(service.url, user.token);
    await notify('Before');
    await stream.has(1);
    await move(school, 'node-2');
    await notify('After');
    await stream.has(2);
    expect(stream.events.map(({ title }) => title)).toEqual(['Before', 'After']);
    await stream.close();
    await confirm(school);
  });

  test('with a row that is written to an empty table while the replication of this table begins', async () => {
    const school = await schoolOn('node-1');
    let held: Awaited<ReturnType<typeof holdRow>> | undefined;
    const moved = move(school, 'node-2', async (step) => {
      if (step !== 'prepared') return;
      held = await holdRow(
        'node-1',
        `insert into ${school.schema}.holiday (name, date) values ('Founders', current_date)`,
      );
    });
    // The slot waits for the transaction, whose row it will not contain.
    await until(() => isWaiting('node-1', 'pg_create_logical_replication_slot'));
    await held?.commit();
    await moved;
    const { data } = await school.admin.get<{ name: string }[]>('/api/holidays');
    expect(data.map(({ name }) => name)).toEqual(['Founders']);
    await confirm(school);
  });

  test('with its waiting jobs, which run on the new server only', async () => {
    const school = await schoolOn('node-1');
    const key = unique('later');
    await pools['node-1'].query(
      `select core.add_jobs('send_email', array[(jsonb_build_object('tenant_id', $1::bigint, 'user_id', 1,
         'kind', 'email_verification'), $2, now() + interval '1 day')::core.new_job])`,
      [school.id, key],
    );
    const waiting = (name: Name) =>
      rows(name, `select locked_by from graphile_worker._private_jobs where core.job_school(payload) = ${school.id}`);
    await move(school, 'node-2');
    expect(await waiting('node-2')).toEqual([{ locked_by: null }]);
    expect(await waiting('node-1')).toEqual([{ locked_by: 'school move' }]);
    await confirm(school);
    expect(await waiting('node-1')).toEqual([]);
  });
});

describe('a move that stops', () => {
  class Stopped extends Error {}

  test.each<[MoveStep]>([['prepared'], ['copied'], ['closed'], ['switched'], ['opened'], ['cleaned']])(
    'after the step %s continues when it is repeated, and loses nothing',
    async (last) => {
      const school = await schoolOn('node-1');
      await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
      const stopped = move(school, 'node-2', (step) => {
        if (step === last) throw new Stopped();
      });
      await expect(stopped).rejects.toThrow(Stopped);
      // In service, or closed. Never with two histories.
      const { status, data } = await school.admin.send<Student>('POST', '/api/students', {
        body: { first_name: 'Ada', last_name: unique('Moved') },
      });
      expect(status).toBe(last === 'closed' || last === 'switched' ? 503 : 201);
      const before = status === 201 ? await students(school) : undefined;
      if (last === 'cleaned') await expect(move(school, 'node-2')).resolves.toBeUndefined();
      else await move(school, 'node-2');
      const after = await students(school);
      if (before) expect(after).toEqual(before);
      if (status === 201) expect(after).toContain(data.last_name);
      expect(await schemasOn('node-2', school)).toEqual([school.schema]);
      await confirm(school);
      expect(await schemasOn('node-1', school)).toEqual([]);
      await school.admin.post('/api/students', { first_name: 'Still', last_name: 'Here' }, 201);
      expect(await subscriptionsOn('node-2', school)).toEqual([]);
      expect(await slotsOn('node-1', school)).toEqual([]);
      expect(await publicationsOn('node-1', school)).toEqual([]);
    },
  );

  test('before the school was closed can be canceled, and starts over later', async () => {
    const school = await schoolOn('node-1');
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'copied') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    await cancel(school, 'node-2');
    expect(await schemasOn('node-2', school)).toEqual([]);
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    await move(school, 'node-2');
    expect(await students(school)).toHaveLength(1);
    await expect(cancel(school, 'node-2')).rejects.toThrow('is open on node-2');
    await confirm(school);
  });

  test.each<[Name, Name, MoveStep]>([
    ['node-1', 'node-2', 'closed'],
    ['node-1', 'node-2', 'switched'],
    ['home', 'node-1', 'switched'],
    ['node-1', 'home', 'closed'],
  ])('from %s to %s after the step %3$s can be canceled: the school is in service again', async (from, to, last) => {
    const school = await schoolOn(from);
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    const stopped = move(school, to, (step) => {
      if (step === last) throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    await cancel(school, to);
    expect(await students(school)).toEqual(before);
    expect(await schemasOn(from, school)).toEqual([school.schema]);
    expect(await schemasOn(to, school)).toEqual([]);
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    await service.operator.post(`/api/platform/tenants/${school.id}/suspend`, {}, 200);
    await service.operator.post(`/api/platform/tenants/${school.id}/activate`, {}, 200);
    await move(school, to);
    expect(await students(school)).toHaveLength(2);
    await confirm(school);
  });

  test('while the school was closed is neither continued to another server nor canceled from one', async () => {
    const school = await schoolOn('node-1');
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'closed') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    for (const attempt of [() => move(school, 'home'), () => cancel(school, 'home')])
      await expect(attempt()).rejects.toThrow('A move of the school to node-2 has begun');
    expect(await rows('home', `select node_id from platform.tenant where id = ${school.id}`)).toEqual([
      { node_id: '1' },
    ]);
    await expect(confirm(school)).rejects.toThrow('not finished');
    expect(await schemasOn('node-1', school)).toEqual([`moved_${school.schema}`]);
    await move(school, 'node-2');
    await expect(cancel(school, 'home')).rejects.toThrow('The school is open on node-2, which is not home');
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    expect(await students(school)).toHaveLength(1);
    await confirm(school);
  });

  test('before the school was closed does not begin to another server, whose rows would miss changes', async () => {
    const school = await schoolOn('node-1');
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'copied') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    for (const attempt of [() => move(school, 'home'), () => cancel(school, 'home')])
      await expect(attempt()).rejects.toThrow('A move of the school to node-2 has begun');
    expect(await schemasOn('home', school)).toEqual([]);
    expect(await slotsOn('node-1', school)).toEqual([`school_move_${school.id}_2`]);
    const { data } = await school.admin.post<Student>(
      '/api/students',
      { first_name: 'Ada', last_name: unique('Moved') },
      201,
    );
    await cancel(school, 'node-2');
    await move(school, 'home');
    expect(await students(school)).toEqual([data.last_name]);
    await confirm(school);
  });

  test('to a node that was removed since leaves nothing that keeps the school from moving', async () => {
    const school = await schoolOn('node-1');
    const name = `school_move_${school.id}_99`;
    await rows('node-1', `create publication ${name} for tables in schema ${school.schema}`);
    await rows('node-1', `comment on publication ${name} is '12345'`);
    for (const slot of [name, 'pg_1_sync_2_12345', 'pg_1_sync_2_54321'])
      await rows('node-1', `select from pg_create_logical_replication_slot('${slot}', 'pgoutput')`);
    await move(school, 'node-2');
    expect(await publicationsOn('node-1', school)).toEqual([]);
    expect(await slotsOn('node-1', school)).toEqual([]);
    expect(await tableSlotsOn('node-1')).toEqual([{ slot_name: 'pg_1_sync_2_54321' }]);
    await rows('node-1', "select pg_drop_replication_slot('pg_1_sync_2_54321')");
    await confirm(school);
  });

  test('is not continued after a cancel that stopped, which is repeated instead', async () => {
    const school = await schoolOn('node-1');
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'closed') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    // As a cancel that was killed leaves it.
    await withOwner(urls['node-2'], (client) => unsubscribe(client, `school_move_${school.id}_2`));
    await expect(move(school, 'node-2')).rejects.toThrow('The school is closed, and node-2 has no copy of it');
    await expect(cancel(school, 'home')).rejects.toThrow('A move of the school to node-2 has begun');
    await cancel(school, 'node-2');
    expect(await students(school)).toEqual(before);
    expect(await schemasOn('node-2', school)).toEqual([]);
    await move(school, 'node-2');
    expect(await students(school)).toEqual(before);
    await confirm(school);
  });

  test('is refused while two other servers have kept tables of the school, until the older ones are deleted', async () => {
    const school = await schoolOn('node-1');
    await move(school, 'node-2');
    // As after a move from the home that was not confirmed before the home was lost for some time.
    await rows('home', `create schema moved_${school.schema}`);
    for (const attempt of [() => move(school, 'node-1'), () => confirm(school), () => cancel(school, 'node-2')])
      await expect(attempt()).rejects.toThrow('Several servers have kept tables of this school: home, node-1.');
    await expect(confirm(school, 'node-2')).rejects.toThrow('node-2 has kept no tables of this school');
    await confirm(school, 'home');
    expect(await schemasOn('home', school)).toEqual([]);
    expect(await schemasOn('node-1', school)).toEqual([`moved_${school.schema}`]);
    await confirm(school);
    expect(await schemasOn('node-1', school)).toEqual([]);
    expect(await schemasOn('node-2', school)).toEqual([school.schema]);
    await school.admin.get('/api/students');
  });

  test('because its target is lost is canceled: the school has what it had when it was closed', async () => {
    const school = await schoolOn('node-1');
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'switched') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    await expect(cancel(school, 'node-2', true)).rejects.toThrow('The server node-2 answers');
    await whileDown('node-2', async () => {
      await expect(cancel(school, 'node-2')).rejects.toThrow('ECONNREFUSED');
      await cancel(school, 'node-2', true);
      expect(await students(school)).toEqual(before);
      await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    });
    // The server was not lost after all. Nobody is led to its copies, and they can be deleted.
    expect(await students(school)).toHaveLength(2);
    await cancel(school, 'node-2');
    expect(await schemasOn('node-2', school)).toEqual([]);
    await move(school, 'node-2');
    expect(await students(school)).toHaveLength(2);
    await confirm(school);
  });

  test('because its target hangs is canceled like one whose target is lost', async () => {
    const school = await schoolOn('node-1');
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'closed') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    await whileHung(async () => {
      await expect(cancel(school, 'node-2')).rejects.toThrow('The server node-2 does not answer');
      await cancel(school, 'node-2', true);
      expect(await students(school)).toEqual(before);
      await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
      expect(await slotsOn('node-1', school)).toEqual([]);
    });
    await cancel(school, 'node-2');
    expect(await schemasOn('node-2', school)).toEqual([]);
    expect(await students(school)).toHaveLength(2);
  });

  test('because its target is lost while tables are copied leaves no slot, and begins again when the target is back', async () => {
    const school = await schoolOn('node-1');
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    const row = `insert into ${school.schema}.counter (name, value) values ('held', 1)`;
    await rows('node-1', row);
    let held: Awaited<ReturnType<typeof holdRow>> | undefined;
    const stopped = move(school, 'node-2', async (step) => {
      // The copy of the table waits for this row.
      if (step === 'prepared') held = await holdRow('node-2', row);
    });
    const failed = expect(stopped).rejects.toThrow(/Connection terminated|not queryable|ECONNRESET/);
    await until(async () => {
      const copying = await rows(
        'node-2',
        `select from pg_stat_activity
         where backend_type = 'logical replication worker' and wait_event = 'transactionid'`,
      );
      return copying.length || undefined;
    });
    expect(await tableSlotsOn('node-1')).not.toEqual([]);
    await whileDown('node-2', async () => {
      await failed;
      await held?.release();
      await cancel(school, 'node-2', true);
      expect(await tableSlotsOn('node-1')).toEqual([]);
      expect(await slotsOn('node-1', school)).toEqual([]);
      expect(await publicationsOn('node-1', school)).toEqual([]);
    });
    // Its subscription is still there, without a slot.
    expect(await subscriptionsOn('node-2', school)).toHaveLength(1);
    await move(school, 'node-2');
    expect(await students(school)).toEqual(before);
    expect(await subscriptionsOn('node-2', school)).toEqual([]);
    expect(await tableSlotsOn('node-1')).toEqual([]);
    await confirm(school);
  });

  test('canceled before its subscription exists drops its replication slot', async () => {
    const school = await schoolOn('node-1');
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'prepared') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    await rows('node-1', `select from pg_create_logical_replication_slot('school_move_${school.id}_2', 'pgoutput')`);
    await cancel(school, 'node-2');
    expect(await slotsOn('node-1', school)).toEqual([]);
    expect(await publicationsOn('node-1', school)).toEqual([]);
  });

  test('is refused when the school was migrated since, until it is canceled and begun again', async () => {
    const school = await schoolOn('node-1');
    const stopped = move(school, 'node-2', (step) => {
      if (step === 'copied') throw new Stopped();
    });
    await expect(stopped).rejects.toThrow(Stopped);
    // As if the copies were made with an earlier version.
    await rows('node-2', `select core.move_note_version('${school.schema}', 1)`);
    await expect(move(school, 'node-2')).rejects.toThrow('was migrated');
    await school.admin.get('/api/students');
    await cancel(school, 'node-2');
    await move(school, 'node-2');
    await confirm(school);
  });

  test('because its process was killed continues when it is repeated', async () => {
    const school = await schoolOn('node-1');
    const args = ['tenant', 'move', school.subdomain, 'node-2'];
    const killed = startProgram('src/cli/main.ts', args, { DATABASE_URL: home });
    await until(async () => (await publicationsOn('node-1', school)).length || undefined);
    killed.kill('SIGKILL');
    await killed.ended;
    await until(() =>
      move(school, 'node-2').then(
        () => true as const,
        (error: unknown) => {
          // Until the server has noticed that the process is gone.
          if (error instanceof Error && error.message.startsWith('Another command')) return undefined;
          throw error;
        },
      ),
    );
    await school.admin.get('/api/students');
    await confirm(school);
  });
});

describe('a server without room for a move', () => {
  /** Sets how many tables node-2 copies at the same time. */
  const setTableWorkers = async (count: number) => {
    await rows('node-2', `alter system set max_sync_workers_per_subscription = ${count}`);
    await rows('node-2', 'select pg_reload_conf()');
    await until(async () => {
      const [now] = await rows('node-2', "select current_setting('max_sync_workers_per_subscription') as count");
      return now?.['count'] === String(count) || undefined;
    });
  };
  /** Nothing has begun, and the school is in service. */
  const expectNothing = async (school: School, from: Name, to: Name) => {
    expect(await schemasOn(to, school)).toEqual([]);
    expect(await publicationsOn(from, school)).toEqual([]);
    expect(await slotsOn(from, school)).toEqual([]);
    await school.admin.get('/api/students');
  };

  test('as its target: the move does not begin, and names the settings, their values and what is needed', async () => {
    const school = await schoolOn('node-1');
    const [found] = await rows('node-2', 'select count(*)::integer as count from pg_subscription where subenabled');
    const subscriptions = Number(found?.['count']);
    await rows('node-2', `alter system set max_logical_replication_workers = ${subscriptions + 1}`);
    await rows('node-2', `alter system set max_worker_processes = ${subscriptions + 2}`);
    try {
      await whileDown('node-2', () => Promise.resolve());
      await expect(move(school, 'node-2')).rejects.toThrow(
        `The settings of the server node-2 leave no room for the move: max_logical_replication_workers is ${subscriptions + 1}, and ` +
          `${subscriptions + 2} is needed; max_worker_processes is ${subscriptions + 2}, and ${subscriptions + 3} is needed.`,
      );
      await expectNothing(school, 'node-1', 'node-2');
    } finally {
      await rows('node-2', 'alter system reset max_logical_replication_workers');
      await rows('node-2', 'alter system reset max_worker_processes');
      await whileDown('node-2', () => Promise.resolve());
    }
    await move(school, 'node-2');
    await confirm(school);
  });

  test('as its source: the move does not begin', async () => {
    const school = await schoolOn('node-1');
    const [{ free } = { free: 0 }] = await rows(
      'node-1',
      `select current_setting('max_replication_slots')::integer - count(*)::integer as free from pg_replication_slots`,
    );
    await rows(
      'node-1',
      `select pg_create_physical_replication_slot('taken_' || n) from generate_series(2, ${String(free)}) n`,
    );
    try {
      await expect(move(school, 'node-2')).rejects.toThrow(
        'The settings of the server node-1 leave no room for the move: max_replication_slots is 10, and 11 is needed.',
      );
      await expectNothing(school, 'node-1', 'node-2');
    } finally {
      await rows(
        'node-1',
        "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name ~ '^taken_'",
      );
    }
  });

  test('that copies no table for some time: the move fails, and continues when it is repeated', async () => {
    const school = await schoolOn('node-1');
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    try {
      const stalled = move(
        school,
        'node-2',
        async (step) => {
          if (step === 'prepared') await setTableWorkers(0);
        },
        { stallTimeoutMs: 300 },
      );
      await expect(stalled).rejects.toThrow(
        /^node-2 has copied no table of the school for 0\.3 s, and \d+ are missing\. Its log .* raise max_logical_replication_workers there, which is 20,/,
      );
      await expect(move(school, 'node-2')).rejects.toThrow('max_sync_workers_per_subscription is 0, and 1 is needed.');
      expect(await students(school)).toEqual(before);
    } finally {
      await setTableWorkers(2);
    }
    await move(school, 'node-2');
    expect(await students(school)).toEqual(before);
    await confirm(school);
  });

  test('is not one that copies a table for long: the move goes on', async () => {
    const school = await schoolOn('node-1');
    const row = `insert into ${school.schema}.counter (name, value) values ('held', 1)`;
    await rows('node-1', row);
    let held: Awaited<ReturnType<typeof holdRow>> | undefined;
    let [missing, changedAt] = [0, 0];
    const moved = move(
      school,
      'node-2',
      async (step) => {
        // The copy of the table waits for this row.
        if (step === 'prepared') held = await holdRow('node-2', row);
      },
      {
        stallTimeoutMs: 500,
        onProgress({ copied, total }) {
          if (total - copied !== missing) [missing, changedAt] = [total - copied, performance.now()];
        },
      },
    );
    // All others are copied meanwhile.
    const waited = until(() => (missing === 1 && performance.now() - changedAt > 700) || undefined);
    await Promise.race([waited, moved]);
    await held?.release();
    expect(missing).toBe(1);
    await moved;
    await confirm(school);
  });

  test('is what `school doctor` warns of', async () => {
    const check = (name: Name, wanted: number) =>
      rows(name, `select level, what, remedy from core.check_replication_workers(${wanted})`);
    expect(await check('home', 3)).toEqual([]);
    expect(await check('node-2', 18)).toEqual([]);
    expect(await check('node-2', 20)).toEqual([
      {
        level: 'warning',
        what: 'max_logical_replication_workers is 20, and subscriptions take 1 of them: 19 are left, fewer than 20.',
        remedy: 'alter system set max_logical_replication_workers = 21; -- then restart the server',
      },
      {
        level: 'warning',
        what: 'max_worker_processes is 20, and subscriptions take 2 of them: 18 are left, fewer than 20.',
        remedy: 'alter system set max_worker_processes = 22; -- then restart the server',
      },
    ]);
  });
});

describe('during a move', () => {
  test('no other command works on the moves of the school', async () => {
    const school = await schoolOn('node-1');
    await move(school, 'node-2', async (step) => {
      if (step !== 'copied') return;
      for (const other of [() => move(school, 'node-2'), () => cancel(school, 'node-2'), () => confirm(school)])
        await expect(other()).rejects.toThrow('Another command is moving this school');
    });
    await confirm(school);
  });

  test('another server can be down', async () => {
    const school = await schoolOn('home');
    await whileDown('node-2', async () => {
      await move(school, 'node-1');
      await school.admin.get('/api/students');
      await confirm(school);
    });
    expect(await schemasOn('node-1', school)).toEqual([school.schema]);
  });

  test.each<[Name, Name]>([
    ['node-1', 'home'],
    ['home', 'node-1'],
  ])('from %s to %s another server can hang', async (from, to) => {
    const school = await schoolOn(from);
    await school.admin.post('/api/students', { first_name: 'Ada', last_name: unique('Moved') }, 201);
    const before = await students(school);
    await whileHung(async () => {
      await move(school, to);
      expect(await students(school)).toEqual(before);
      await confirm(school);
    });
    expect(await schemasOn(to, school)).toEqual([school.schema]);
    expect(await schemasOn(from, school)).toEqual([]);
  });

  test('a lock on the target does not keep the school closed', async () => {
    const school = await schoolOn('node-1');
    const { release } = await holdRow('node-2', `insert into platform.tenant_usage (tenant_id) values (${school.id})`);
    const moved = move(school, 'node-2');
    await until(() => isWaiting('node-2', 'insert into platform.tenant_usage'));
    const last_name = unique('Moved');
    await until(async () => {
      const { status } = await school.admin.send('POST', '/api/students', { body: { first_name: 'Ada', last_name } });
      return status === 201 || undefined;
    });
    await release();
    await moved;
    expect(await students(school)).toEqual([last_name]);
    await confirm(school);
  });

  test('a target that hangs does not keep the school closed', async () => {
    const school = await schoolOn('node-1');
    const { release } = await holdRow('node-2', `insert into platform.tenant_usage (tenant_id) values (${school.id})`);
    const moved = move(school, 'node-2');
    await until(() => isWaiting('node-2', 'insert into platform.tenant_usage'));
    const last_name = unique('Moved');
    await whileHung(async () => {
      await expect(moved).rejects.toThrow('The server node-2 did not answer while the school was closed.');
      await school.admin.post('/api/students', { first_name: 'Ada', last_name }, 201);
    });
    await release();
    await move(school, 'node-2');
    expect(await students(school)).toEqual([last_name]);
    await confirm(school);
  });

  test('an operator who suspends a school while it is closed gets 503, and the school stays active', async () => {
    const school = await schoolOn('node-1');
    // The move waits for this row, after it has read that of the school.
    const { release } = await holdRow('node-2', `insert into platform.tenant_usage (tenant_id) values (${school.id})`);
    const moved = move(school, 'node-2');
    await until(() => isWaiting('node-2', 'insert into platform.tenant_usage'));
    let isAnswered = false;
    const suspended = service.operator.send('POST', `/api/platform/tenants/${school.id}/suspend`, { body: {} });
    void suspended.finally(() => (isAnswered = true));
    await until(() => (isAnswered ? 1 : isWaiting('node-1', 'core.call')));
    await release();
    await moved;
    const { status } = await suspended;
    expect(status).toBe(503);
    await school.admin.get('/api/students');
    await confirm(school);
  });

  test('all rows outside its schema are moved, also when there are thousands', async () => {
    const school = await schoolOn('node-1');
    const usage = `select date from platform.usage_day where tenant_id = ${school.id} and date < '2020-01-01'`;
    await rows(
      'node-1',
      `insert into platform.usage_day (tenant_id, date, requests)
       select ${school.id}, date '2000-01-01' + n, n from generate_series(0, 5001) n`,
    );
    const before = await rows('node-1', `${usage} order by 1`);
    await move(school, 'node-2');
    expect(await rows('node-2', `${usage} order by 1`)).toEqual(before);
    await confirm(school);
    expect(await rows('node-1', usage)).toEqual([]);
  });
});

test('an impersonation ends with a move, also if the school moves back', async () => {
  const school = await schoolOn('home');
  const { data } = await service.operator.post<{ access_token: string }>(
    `/api/platform/tenants/${school.id}/impersonate`,
    { reason: 'The school asked why an invoice is missing.' },
    200,
  );
  const status = async () => (await send(service.url, { path: '/api/students', token: data.access_token })).status;
  expect(await status()).toBe(200);
  await move(school, 'node-2');
  expect(await status()).toBe(401);
  await confirm(school);
  await move(school, 'home');
  expect(await status()).toBe(401);
  await confirm(school);
});

describe('the command line', () => {
  const run = async (...args: string[]) => startProgram('src/cli/main.ts', args, { DATABASE_URL: home }).ended;

  test('moves a school, refuses another move before the first is confirmed, and deletes what was left', async () => {
    const school = await schoolOn('node-1');
    expect(await run('tenant', 'move', school.subdomain, 'nowhere')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('There is no node nowhere'),
    });
    const moved = await run('tenant', 'move', school.subdomain, 'node-2', '--json');
    expect(moved).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(moved.stdout)).toMatchObject({ id: school.id, node: 'node-2' });
    expect(await run('tenant', 'move', school.subdomain, 'home')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`not confirmed. Run: school tenant move ${school.subdomain} --confirm`),
    });
    expect(await run('tenant', 'move', school.subdomain, 'node-2', '--confirm', '--cancel', '--yes')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('--confirm and --cancel exclude each other'),
    });
    expect(await schemasOn('node-1', school)).toEqual([`moved_${school.schema}`]);
    expect(await run('tenant', 'move', school.subdomain, '--confirm', '--yes')).toMatchObject({ code: 0 });
    expect(await schemasOn('node-1', school)).toEqual([]);
    await school.admin.get('/api/students');
  });

  test('plans and makes the moves after which the nodes have as many schools each', async () => {
    const [{ ahead } = { ahead: 0 }] = await rows(
      'home',
      `select (count(*) filter (where node_id = 1) - count(*) filter (where node_id = 2))::integer as ahead
       from platform.tenant where status <> 'deleted'`,
    );
    for (let more = Number(ahead); Math.abs(more) < 3; more++) await schoolOn('node-1');
    interface Plan {
      counts: { name: string; before: number; after: number }[];
      moves: { school: number; to: string }[];
    }
    const plan = JSON.parse((await run('rebalance', '--dry-run', '--json')).stdout) as Plan;
    const [one] = plan.moves;
    // A school that cannot move does not keep the others from moving.
    await rows('home', `create schema moved_tenant_${one?.school ?? 0}`);
    const partly = await run('rebalance', '--yes', '--confirm', '--json');
    expect(partly.code).toBe(1);
    const { moves: made } = JSON.parse(partly.stdout) as { moves: (Plan['moves'][number] & { error?: string })[] };
    expect(made.map(({ error }) => error !== undefined)).toEqual(plan.moves.map((_, n) => n === 0));
    expect(made[0]?.error).toContain('is not confirmed');
    await rows('home', `drop schema moved_tenant_${one?.school ?? 0}`);
    const [first, second] = plan.counts.map(({ after }) => after);
    expect(Math.abs((first ?? 0) - (second ?? 0))).toBeLessThanOrEqual(1);
    const done = await run('rebalance', '--yes', '--confirm', '--json');
    expect(done).toMatchObject({ code: 0, stderr: '' });
    const { moves: last } = JSON.parse(done.stdout) as Plan;
    expect(last).toHaveLength(1);
    const again = JSON.parse((await run('rebalance', '--dry-run', '--json')).stdout) as Plan;
    expect(again.moves).toEqual([]);
    const placed = await rows(
      'home',
      'select id::double precision as id, node_id::integer as node from platform.tenant',
    );
    for (const { school, to } of [...made.slice(1), ...last])
      expect(placed).toContainEqual({ id: school, node: to === 'node-1' ? 1 : 2 });
  });

  test('lists the schools that would move, and says that drained nodes keep theirs without an active one', async () => {
    const school = await schoolOn('node-1');
    const drain = (isDraining: boolean) =>
      withOwner(home, async (client) => {
        for (const { name } of nodes) await setDraining(client, name, isDraining);
      });
    const [{ count } = { count: 0 }] = await rows(
      'home',
      "select count(*)::integer as count from platform.tenant where node_id is not null and status <> 'deleted'",
    );
    await drain(true);
    try {
      const stranded = await run('rebalance', '--dry-run');
      expect(stranded).toMatchObject({ code: 1, stdout: expect.stringContaining('There is no active node') });
      expect(stranded.stdout).toMatch(new RegExp(`drained nodes keep ${String(count)} schools?\\. .*--include-home`));
      expect(stranded.stdout).not.toContain('Nothing has to move');
      const planned = await run('rebalance', '--dry-run', '--include-home');
      expect(planned.code).toBe(0);
      expect(planned.stdout.match(/: node-[12] → home$/gm)).toHaveLength(Number(count));
      expect(planned.stdout).toContain(`\n${school.subdomain}: node-1 → home\n`);
    } finally {
      await drain(false);
    }
  });

  test('names the servers that do not answer, and plans no moves from or to them', async () => {
    const [moved, stays] = [await schoolOn('node-2'), await schoolOn('node-1')];
    await move(moved, 'node-1');
    await whileDown('node-2', async () => {
      const { code, stdout } = await run('rebalance', '--dry-run', '--json');
      expect(code).toBe(1);
      expect(JSON.parse(stdout)).toMatchObject({ moves: [], unreachable: ['node-2'], stranded: 0 });
      expect((await run('rebalance', '--dry-run')).stdout).toContain('node-2 does not answer. Its schools stay there');
      expect(await run('tenant', 'move', stays.subdomain, 'node-2')).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(
          new RegExp(
            `^The server node-2 does not answer: .*ECONNREFUSED.* school tenant move ${stays.subdomain} node-2 --cancel --lost$`,
            'm',
          ),
        ),
      });
      await expect(confirm(moved)).rejects.toThrow('These do not answer: node-2.');
    });
    await confirm(moved);
    expect(await schemasOn('node-2', moved)).toEqual([]);
  });
});
