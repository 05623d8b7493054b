import { createHash, randomUUID } from 'node:crypto';
import type pg from 'pg';
import { ofWorker, type Servers, serverUrl, type TestServer } from '../../nodes/servers.ts';

/** The name of the migrated database on each server of a run with spread schools. */
export const spreadTemplate = 'template_school';

/** The servers of this Jest worker in a run with spread schools: one for the home, then those of the nodes. */
export const serversOfWorker = () => ofWorker('TEST_SPREAD') as TestServer[] | undefined;

const maintain = (server: TestServer, text: string) =>
  shared.withOwner(serverUrl(server, 'postgres'), (client) => client.query<{ name: string }>(text));

/** Creates a home, nodes and a forwarder for one test file, on servers that its Jest worker has for itself. */
export async function createSpread([homeServer, ...others]: TestServer[]): Promise<Servers> {
  const [first] = others;
  if (!homeServer || !first) throw new Error('A run with spread schools needs two servers for each Jest worker.');

  // An earlier file may have failed before it dropped its databases. Replication slots have names of their server.
  await dropSpread([homeServer, ...others]);
  const name = `test_${randomUUID().replaceAll('-', '')}`;
  await Promise.all([
    ...[homeServer, ...others].map((server) =>
      maintain(server, `create database ${name} template ${spreadTemplate} strategy wal_log`),
    ),
    maintain(first, `create database forwarder_${name}`),
  ]);
  const home = serverUrl(homeServer, name);
  const forwarder = serverUrl(first, `forwarder_${name}`);
  const nodes = others.map((server, index) => ({ name: `node-${index + 1}`, url: serverUrl(server, name), server }));
  await shared.withOwner(home, async (client) => {
    for (const node of nodes) await shared.addNode(client, { ...node, homeUrl: home, onStep: () => undefined });
    await shared.createForwarder(client, { name: 'test', url: forwarder, homeUrl: home });
  });
  return { home, homeServer, forwarder, nodes };
}

/**
 * Files of test/workers look at one queue. All schools of such a file get onto one node, another one for every second
 * file, which is the database of the file. Other files spread their schools over the nodes.
 * @returns 0 for the home, or the number of that node
 */
export async function nodeOfFile({ home, nodes }: Servers): Promise<number> {
  // The setup of the run also imports this file, and must not import Jest.
  const { expect } = await import('@jest/globals');
  const file = expect.getState().testPath ?? '';
  if (!file.includes('/test/workers/')) return 0;
  const chosen = (createHash('md5').update(file).digest()[0] ?? 0) % nodes.length;
  await shared.withOwner(home, (client) =>
    client.query("update platform.node set status = 'draining' where name <> $1", [nodes[chosen]?.name]),
  );
  return chosen + 1;
}

/** Drops the subscriptions of a database, but not their slots, which another server may no longer have. */
async function dropSubscriptions(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `select s.subname as name from pg_subscription s join pg_database d on d.oid = s.subdbid
     where d.datname = current_database()`,
  );
  for (const { name } of rows)
    for (const change of ['alter % disable', 'alter % set (slot_name = none)', 'drop %'])
      await client.query(change.replace('%', `subscription ${name}`));
}

/** Drops the databases that `createSpread` created on these servers. */
export async function dropSpread(servers: TestServer[]): Promise<void> {
  const found = await Promise.all(
    servers.map(async (server) => {
      const { rows } = await maintain(
        server,
        "select datname as name from pg_database where datname ~ '^(test|forwarder)_' and datname !~ 'template'",
      );
      return rows.map(({ name }) => ({ server, name }));
    }),
  );
  const databases = found.flat();
  await Promise.all(databases.map(({ server, name }) => shared.withOwner(serverUrl(server, name), dropSubscriptions)));
  for (const server of servers)
    await maintain(
      server,
      `select pg_terminate_backend(active_pid, 10000) from pg_replication_slots where active_pid is not null;
       select pg_drop_replication_slot(slot_name) from pg_replication_slots`,
    );
  await Promise.all(databases.map(({ server, name }) => maintain(server, `drop database ${name} with (force)`)));
}
