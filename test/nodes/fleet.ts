import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { migrate } from '../../src/database/migrate/migrate.ts';
import { withOptions, withOwner } from '../../src/database/pool/pool.ts';
import { createForwarder } from '../../src/servers/forwarder.ts';
import { addNode } from '../../src/servers/nodes/join.ts';
import { withoutSchedule } from '../support/server/database.ts';
import { ready, startProgram } from '../support/server/processes.ts';
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

/** An API process in front of a fleet. */
export interface FleetApi {
  url: string;
  forwarder: string;
  stop(): Promise<void>;
}

/** What an API process needs to serve the schools of a fleet through its forwarder. */
export const apiSettings = (
  { home, nodes }: { home: string; nodes: readonly { url: string }[] },
  forwarder: string,
) => ({
  DATABASE_URL: home,
  API_DATABASE_URL: withOptions(forwarder, '-c role=school_api'),
  LISTEN_DATABASE_URL: [home, ...nodes.map(({ url }) => url)].join(' '),
});

/** Starts an API process, whose forwarder is on the server of the first node. */
export async function startApi(fleet: Pick<Fleet, 'home' | 'nodes'>): Promise<FleetApi> {
  const [first] = fleet.nodes;
  if (!first) throw new Error('There is no node.');
  const forwarder = await createDatabase(first.server, 'forwarder');
  await withOwner(fleet.home, (client) =>
    createForwarder(client, { name: 'api', url: forwarder, homeUrl: fleet.home }),
  );
  const program = startProgram('src/main.ts', ['--only', 'api'], {
    ...apiSettings(fleet, forwarder),
    PORT: '0',
    DEMO: 'false',
    DATA_DIR: join(tmpdir(), `school-api-${String(first.server.port)}`),
    LOG_LEVEL: 'silent',
    DATABASE_POOL_SIZE: '4',
    JWT_SECRETS: 'a secret of the tests that is long enough',
    RATE_LIMIT_PER_MINUTE: '0',
    USER_RATE_LIMIT_PER_MINUTE: '0',
    SCHOOL_RATE_LIMIT_PER_MINUTE: '0',
  });
  const { url } = await ready(program);
  return {
    url,
    forwarder,
    async stop() {
      program.kill('SIGTERM');
      await program.ended;
    },
  };
}
