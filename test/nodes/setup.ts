import type { GlobalConfig } from 'jest';
import pg from 'pg';
import { migrate } from '../../src/database/migrate/migrate.ts';
import { addNode } from '../../src/servers/nodes/join.ts';
import { withOwner } from '../../src/database/pool/pool.ts';
import { createForwarder } from '../../src/servers/forwarder.ts';
import { withoutSchedule } from '../support/server/database.ts';
import { startRun } from '../support/server/run.ts';
import { createServer, type Servers, serverUrl, type TestServer } from './servers.ts';

async function createDatabase(server: TestServer, name: string): Promise<string> {
  const client = new pg.Client({ connectionString: serverUrl(server, 'postgres') });
  await client.connect();
  await client.query(`create database ${name}`);
  await client.end();
  return serverUrl(server, name);
}

/** Starts a home, two nodes and a forwarder. */
async function startServers(): Promise<Servers> {
  const [homeServer, ...others] = await Promise.all([createServer(), createServer(), createServer()]);
  const home = await createDatabase(homeServer, 'school');
  await migrate({ ownerUrl: home });
  await withOwner(home, (client) => client.query(withoutSchedule));
  // Not beside the home, so that a test can stop the home.
  const forwarder = await createDatabase(others[0], 'forwarder');
  const nodes: Servers['nodes'] = [];
  await withOwner(home, async (client) => {
    for (const [index, server] of others.entries()) {
      const name = `node-${String(index + 1)}`;
      const url = await createDatabase(server, 'school');
      await addNode(client, { name, url, homeUrl: home, onStep: () => undefined });
      nodes.push({ name, url, server });
    }
    await createForwarder(client, { name: 'test', url: forwarder, homeUrl: home });
  });
  return { home, homeServer, forwarder, nodes };
}

/** Starts servers for each Jest worker, which all of its test files share. */
export default async function setup({ maxWorkers }: Pick<GlobalConfig, 'maxWorkers'>): Promise<void> {
  globalThis.testRun = await startRun();
  const servers = await Promise.all(Array.from({ length: maxWorkers }, startServers));
  process.env['TEST_NODES'] = JSON.stringify(servers);
}
