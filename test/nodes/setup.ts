import type { GlobalConfig } from 'jest';
import { withOwner } from '../../src/database/pool/pool.ts';
import { createForwarder } from '../../src/servers/forwarder.ts';
import { startRun } from '../support/server/run.ts';
import { createDatabase, startFleet } from './fleet.ts';
import type { Servers } from './servers.ts';

/** Starts a home, two nodes and a forwarder. */
async function startServers(): Promise<Servers> {
  const { home, homeServer, nodes } = await startFleet(['node-1', 'node-2']);
  const [{ server }] = nodes as [Servers['nodes'][number]];
  // Not beside the home, so that a test can stop the home.
  const forwarder = await createDatabase(server, 'forwarder');
  await withOwner(home, (client) => createForwarder(client, { name: 'test', url: forwarder, homeUrl: home }));
  return { home, homeServer, forwarder, nodes };
}

/** Starts servers for each Jest worker, which all of its test files share. */
export default async function setup({ maxWorkers }: Pick<GlobalConfig, 'maxWorkers'>): Promise<void> {
  globalThis.testRun = await startRun();
  const servers = await Promise.all(Array.from({ length: maxWorkers }, startServers));
  process.env['TEST_NODES'] = JSON.stringify(servers);
}
