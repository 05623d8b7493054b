import type { GlobalConfig } from 'jest';
import pg from 'pg';
import { migrate } from '../../src/database/migrate/migrate.ts';
import { addNode } from '../../src/servers/nodes/join.ts';
import { withOwner } from '../../src/database/pool/pool.ts';
import { createRouter } from '../../src/servers/router.ts';
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

/** Starts a home, two nodes and a router. */
async function startServers(): Promise<Servers> {
  const [homeServer, ...others] = await Promise.all([createServer(), createServer(), createServer()]);
  const home = await createDatabase(homeServer, 'school');
  await migrate({ ownerUrl: home });
  await withOwner(home, (client) => client.query(withoutSchedule));
  // Not beside the home, so that a test can stop the home.
  const router = await createDatabase(others[0], 'router');
  const nodes: Servers['nodes'] = [];
  await withOwner(home, async (client) => {
    for (const [index, server] of others.entries()) {
      const name = `node-${String(index + 1)}`;
      const url = await createDatabase(server, 'school');
      await addNode(client, { name, url, homeUrl: home, onStep: () => undefined });
      nodes.push({ name, url, server });
    }
    await createRouter(client, { name: 'test', url: router, homeUrl: home });
  });
  return { home, homeServer, router, nodes };
}

/** Starts servers for each Jest worker, which all of its test files share. */
export default async function setup({ maxWorkers }: Pick<GlobalConfig, 'maxWorkers'>): Promise<void> {
  globalThis.testRun = await startRun();
  const servers = await Promise.all(Array.from({ length: maxWorkers }, startServers));
  process.env['TEST_NODES'] = JSON.stringify(servers);
}
