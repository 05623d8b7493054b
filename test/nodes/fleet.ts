import pg from 'pg';
import { migrate } from '../../src/database/migrate/migrate.ts';
import { withOwner } from '../../src/database/pool/pool.ts';
import { addNode } from '../../src/servers/nodes/join.ts';
import { withoutSchedule } from '../support/server/database.ts';
import { createServer, serverUrl, type TestServer } from './servers.ts';

export async function createDatabase(server: TestServer, name: string): Promise<string> {
  const client = new pg.Client({ connectionString: serverUrl(server, 'postgres') });
  await client.connect();
  await client.query(`create database ${name}`);
  await client.end();
  return serverUrl(server, name);
}

/** A home and its nodes, each on a server of its own. */
export interface Fleet {
  home: string;
  homeServer: TestServer;
  nodes: { name: string; url: string; server: TestServer }[];
}

/** A migrated home without nodes. */
export async function startHome(): Promise<{ home: string; homeServer: TestServer }> {
  const homeServer = await createServer();
  const home = await createDatabase(homeServer, 'school');
  await migrate({ ownerUrl: home });
  await withOwner(home, (client) => client.query(withoutSchedule));
  return { home, homeServer };
}

/** Starts a home with nodes of these names. */
export async function startFleet(names: readonly string[]): Promise<Fleet> {
  const [{ home, homeServer }, ...others] = await Promise.all([startHome(), ...names.map(() => createServer())]);
  const nodes: Fleet['nodes'] = [];
  await withOwner(home, async (client) => {
    for (const [index, server] of others.entries()) {
      const name = names[index] ?? '';
      const url = await createDatabase(server, 'school');
      await addNode(client, { name, url, homeUrl: home, onStep: () => undefined });
      nodes.push({ name, url, server });
    }
  });
  return { home, homeServer, nodes };
}
