import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { withOwner } from '../../src/database/pool/pool.ts';
import { confirmMove } from '../../src/servers/moves/confirm.ts';
import { moveSchool } from '../../src/servers/moves/move.ts';
import { readServers, serverOfSchool } from '../../src/servers/servers.ts';
import { verifyServers } from '../../src/servers/verify.ts';
import { crashBackend, type CrashingServer, crashingServer, ownFolder } from '../support/server/own-server.ts';
import { createForwarder } from '../../src/servers/forwarder.ts';
import { createDatabase, startFleet } from '../nodes/fleet.ts';
import { removeServer, startServer, stopServer, type TestServer } from '../nodes/servers.ts';

/** A Postgres server that faults can hit. */
type ChaosServer = Pick<CrashingServer, 'url' | 'crash' | 'pidFile'> & { name: string };

/** The Postgres servers of a run: one, or a home with nodes. */
export interface ChaosServers {
  home: ChaosServer;
  nodes: ChaosServer[];
  /** The forwarder, on the server of the home; undefined without nodes. */
  forwarder: string | undefined;
  /** For the files of the service. */
  folder: string;
  remove(): Promise<void>;
}

const crashing = (name: string, url: string, server: TestServer): ChaosServer => ({
  name,
  url,
  pidFile: join(server.folder, 'postmaster.pid'),
  async crash(target, milliseconds) {
    if (target === 'backend') {
      await crashBackend(url);
      return;
    }
    await stopServer(server);
    await pause(milliseconds);
    await startServer(server);
  },
});

/** Starts the server of the home, and those of nodes. */
export async function startServers(nodeCount: number): Promise<ChaosServers> {
  if (nodeCount === 0) {
    const server = await crashingServer();
    return {
      home: { ...server, name: 'home' },
      nodes: [],
      forwarder: undefined,
      folder: server.folder,
      remove: () => server.remove(),
    };
  }
  const { home, homeServer, nodes } = await startFleet(
    Array.from({ length: nodeCount }, (_, n) => `node-${String(n)}`),
  );
  const forwarder = await createDatabase(homeServer, 'forwarder');
  await withOwner(home, (client) => createForwarder(client, { name: 'chaos', url: forwarder, homeUrl: home }));
  const folder = await ownFolder('school-chaos-');
  return {
    home: crashing('home', home, homeServer),
    nodes: nodes.map(({ name, url, server }) => crashing(name, url, server)),
    forwarder,
    folder,
    async remove() {
      await Promise.all([homeServer, ...nodes.map(({ server }) => server)].map(removeServer));
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Longer than any fault. */
const moveTimeoutMs = 120_000;

/** Repeats a command until it succeeds, as an administrator would: faults stop it at any point. */
async function persist(command: () => Promise<unknown>): Promise<void> {
  for (const end = performance.now() + moveTimeoutMs; ;) {
    try {
      await command();
      return;
    } catch (error) {
      if (performance.now() > end) throw error;
      await pause(300);
    }
  }
}

/** Moves a school to another server, and deletes what the earlier one has kept. */
export async function moveAndConfirm({ home: { url } }: ChaosServers, school: number, to: string): Promise<void> {
  const isThere = async () => (await serverOfSchool(url, String(school))).name === to;
  const withHome = <T>(work: (client: Parameters<typeof moveSchool>[0]) => Promise<T>) => withOwner(url, work);
  await persist(async () => {
    try {
      await withHome((client) => moveSchool(client, { homeUrl: url, school, to }));
    } catch (error) {
      if (!String(error).includes('already') || !(await isThere())) throw error;
    }
  });
  await persist(async () => {
    try {
      await withHome((client) => confirmMove(client, { homeUrl: url, school }));
    } catch (error) {
      if (!String(error).includes('has to be confirmed')) throw error;
    }
  });
}

/** How long the servers may take until they agree: a worker connects to a node again after 15 seconds. */
const agreementTimeoutMs = 60_000;

/** What the servers say differently about the schools and the rows that they copy; nothing for a single server. */
export async function findDisagreements({ home, nodes: { length } }: ChaosServers): Promise<string[]> {
  if (length === 0) return [];
  for (const end = performance.now() + agreementTimeoutMs; ;) {
    const found = await withOwner(home.url, async (client) => {
      const [, ...nodes] = await readServers(client, home.url);
      const { disagreements, kept, findings, unreachable } = await verifyServers(client, nodes);
      return [
        ...disagreements.map(({ text }) => text),
        ...kept.map(({ server, subdomain }) => `${server.name} has kept the tables of ${subdomain}.`),
        ...findings.map(({ text }) => text),
        ...unreachable.map(({ server, error }) => `${server.name} does not answer: ${error}`),
      ];
    });
    if (found.length === 0 || performance.now() > end) return found;
    await pause(500);
  }
}
