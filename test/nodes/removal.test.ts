import { afterAll, afterEach, expect, test } from '@jest/globals';
import { addNode } from '../../src/servers/nodes/join.ts';
import { readNodes, setDraining } from '../../src/servers/nodes/nodes.ts';
import { createForwarder } from '../../src/servers/forwarder.ts';
import { cancelMove } from '../../src/servers/moves/cancel.ts';
import { moveSchool, type MoveStep } from '../../src/servers/moves/move.ts';
import { startProgram } from '../support/server/processes.ts';
import { type School, serviceOfFile } from '../support/server/service.ts';
import { schoolOn } from './schools.ts';
import { servers, serverUrl } from './servers.ts';

const { home, nodes } = servers();
const { withOwner } = shared;
const service = await serviceOfFile();
const server = nodes[1]?.server;
if (!server) throw new Error('There is no second node.');

const database = serverUrl(server, 'postgres');
const command = (...args: string[]) => startProgram('src/cli/main.ts', args, { DATABASE_URL: home }).ended;
const query = (url: string, text: string, values: unknown[] = []) =>
  withOwner(url, async (client) => (await client.query<Record<string, unknown>>(text, values)).rows);

/** A new database on the server of the second node. */
async function createDatabase(name: string): Promise<string> {
  await query(database, `create database ${name}`);
  return serverUrl(server ?? { folder: '', port: 0 }, name);
}

// A node of which the forwarder knows nothing, so it gets no new schools.
const url = await createDatabase('spare');
const add = () =>
  withOwner(home, (client) => addNode(client, { name: 'spare', url, homeUrl: home, onStep: () => undefined }));
const { id } = await add();
await withOwner(home, (client) => setDraining(client, 'spare', true));
afterEach(async () => {
  await withOwner(home, (client) => client.query("update platform.node set url = $1 where name = 'spare'", [url]));
});
afterAll(async () => {
  await command('node', 'remove', 'spare');
  await query(database, 'drop database spare with (force)');
});

/** Drops a subscription without its slot. */
const dropSubscription = (at: string, name: string) =>
  withOwner(at, async (client) => {
    await client.query(`alter subscription ${name} disable`);
    await client.query(`alter subscription ${name} set (slot_name = none)`);
    await client.query(`drop subscription ${name}`);
  });

const move = (school: School, onStep: (step: MoveStep) => Promise<void>) =>
  withOwner(home, (client) => moveSchool(client, { homeUrl: home, school: school.id, to: 'spare', onStep }));
const cancel = (school: School) =>
  withOwner(home, (client) => cancelMove(client, { homeUrl: home, school: school.id, to: 'spare' }));
const states = async () => (await withOwner(home, readNodes)).map(({ name, status }) => [name, status]);

/** The replication between the home and the node, on both servers. */
const replication = async () => ({
  slots: (await query(home, 'select slot_name from pg_replication_slots where slot_name ~ $1', [`_${id}$`])).length,
  slotsOnNode: (await query(url, 'select from pg_replication_slots where database = current_database()')).length,
  publications: (await query(url, 'select from pg_publication')).length,
});
const whole = { slots: 1, slotsOnNode: 1, publications: 2 };

test('a node is not removed while a school moves to it', async () => {
  const school = await schoolOn(service, 'node-1');
  class Stopped extends Error {}
  // Before and after the school is copied.
  for (const step of ['prepared', 'copied'] as const) {
    await expect(
      move(school, (reached) => (reached === step ? Promise.reject(new Stopped()) : Promise.resolve())),
    ).rejects.toThrow(Stopped);
    expect(await command('node', 'remove', 'spare')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(
        step === 'prepared' ? `copies of the schools ${school.id}` : `those of the schools ${school.id}`,
      ),
    });
  }
  expect(await states()).toContainEqual(['spare', 'draining']);
  expect(await replication()).toEqual(whole);
  await cancel(school);
  expect((await school.admin.get<unknown[]>('/api/students')).data).toEqual([]);
});

test('a move does not close its school for a node that is being removed, or publishes nothing', async () => {
  const school = await schoolOn(service, 'node-1');
  const setStatus = (status: string) =>
    query(home, 'update platform.node set status = $1 where id = $2', [status, id]).then(() => undefined);
  await expect(move(school, (step) => (step === 'copied' ? setStatus('joining') : Promise.resolve()))).rejects.toThrow(
    'The node spare is being removed, or has not joined yet.',
  );
  await setStatus('draining');
  await query(url, 'drop publication school_facts, school_tenants');
  await expect(move(school, () => Promise.resolve())).rejects.toThrow('The node publishes no tables.');
  expect(await query(nodes[0]?.url ?? '', `select node_id from platform.tenant where id = ${school.id}`)).toEqual([
    { node_id: null },
  ]);
  await school.admin.get('/api/students');
  await add();
  expect(await replication()).toEqual(whole);
  await cancel(school);
});

test('a node whose removal stopped before its end is removed by the same command, or joins again', async () => {
  // As after the removal of the subscriptions.
  await query(home, `update platform.node set status = 'joining' where id = $1`, [id]);
  await dropSubscription(home, `school_node_${id}`);
  await dropSubscription(url, `school_home_${id}`);
  expect((await add()).status).toBe('active');
  await withOwner(home, (client) => setDraining(client, 'spare', true));
  expect(await replication()).toEqual(whole);
  const plans = 'select id, name from platform.plan order by id';
  expect(await query(url, plans)).toEqual(await query(home, plans));
  expect(await query(url, 'select email from platform.user_account order by 1')).toEqual(
    await query(home, 'select email from platform.user_account order by 1'),
  );
});

test('a node that refuses the connection is not lost, so its schools are not deleted', async () => {
  await query(database, 'drop role if exists full_role');
  await query(database, "create role full_role login connection limit 0 password 'secret'");
  try {
    for (const [user, message] of [
      ['no_role', 'password authentication failed for user "no_role"'],
      ['full_role', 'too many connections for role "full_role"'],
    ] as const) {
      await query(home, "update platform.node set url = $1 where name = 'spare'", [
        url.replace('postgres@', `${user}:secret@`),
      ]);
      expect(await command('node', 'remove', 'spare', '--lost', '--delete-schools', '--yes')).toMatchObject({
        code: 1,
        stderr: expect.stringContaining(message),
      });
    }
  } finally {
    await query(database, 'drop role full_role');
  }
  expect(await states()).toContainEqual(['spare', 'draining']);
  expect(await replication()).toEqual(whole);
});

test('the database of a node that was removed as lost does not join again under its name', async () => {
  const former = await createDatabase('former');
  const addFormer = () => command('node', 'add', 'former', former);
  expect(await addFormer()).toMatchObject({ code: 0, stderr: '' });
  const [joined] = await query(home, "select id::integer from platform.node where name = 'former'");
  const formerId = String(joined?.['id']);
  try {
    expect(await command('node', 'remove', 'former', '--lost')).toMatchObject({ code: 0, stderr: '' });
    const refusal = {
      code: 1,
      stderr: expect.stringContaining('a node former before, which is not the one that the home knows. Use an empty'),
    };
    expect(await addFormer()).toMatchObject(refusal);
    expect(await query(home, "select from platform.node where name = 'former'")).toEqual([]);
    // Another database has joined under the name, or is joining.
    for (const status of ['active', 'joining']) {
      await query(home, `insert into platform.node (name, url, status) values ('former', 'postgres://other', $1)`, [
        status,
      ]);
      expect(await addFormer()).toMatchObject(refusal);
      expect(await query(home, "delete from platform.node where name = 'former' returning url, status")).toEqual([
        { url: 'postgres://other', status },
      ]);
    }
  } finally {
    await dropSubscription(former, `school_home_${formerId}`);
    await query(database, 'drop database former with (force)');
  }
});

test('a node and a forwarder are removed with slots whose subscriptions are gone', async () => {
  const forwarder = await createDatabase('gone_forwarder');
  await withOwner(home, (client) => createForwarder(client, { name: 'gone', url: forwarder, homeUrl: home }));
  await dropSubscription(forwarder, 'school_forwarder_gone');
  await dropSubscription(home, `school_node_${id}`);
  await dropSubscription(url, `school_home_${id}`);
  expect(await command('forwarder', 'remove', 'gone', forwarder)).toMatchObject({ code: 0, stderr: '' });
  expect(await query(home, "select from pg_replication_slots where slot_name = 'school_forwarder_gone'")).toEqual([]);
  await query(database, 'drop database gone_forwarder with (force)');
  expect(await replication()).toEqual(whole);
  expect(await command('node', 'remove', 'spare')).toMatchObject({ code: 0, stderr: '' });
  expect(await replication()).toEqual({ slots: 0, slotsOnNode: 0, publications: 0 });
  expect(await states()).toEqual(nodes.map(({ name }) => [name, 'active']));
});
