import type { MigrateResult } from '../database/migrate/migrate.ts';
import { withOwner } from '../database/pool/pool.ts';
import { reasonOf } from '../domain/reason.ts';
import { refreshCopies } from './nodes/copies.ts';
import { readNodes } from './nodes/nodes.ts';
import { copyTimeoutMs } from './replication/subscriptions.ts';
import { type OfServer, onEachServer, type Server } from './servers.ts';

/** What a migration did on the servers of a platform. */
export interface MigratedServers {
  ofNodes: OfServer<MigrateResult>[];
  /** Undefined if the home was not migrated, because it comes after its nodes, and some of them failed. */
  ofHome: MigrateResult | undefined;
  /** The names of the nodes that keep the home from being migrated. */
  behind: string[];
  /** The names of the nodes whose new tables the home could not copy. */
  notCopied: string[];
}

interface MigrateServersOptions {
  dryRun?: boolean | undefined;
  /** Receives a line for each node that failed, and for each with new copies. */
  say: (line: string) => void;
}

/** Lets the home copy the tables that this release adds. @returns the nodes for which it failed */
async function refreshNodes(
  ownerUrl: string,
  nodes: readonly Server[],
  say: (line: string) => void,
): Promise<string[]> {
  const failed: string[] = [];
  await withOwner(ownerUrl, async (home) => {
    for (const node of await readNodes(home)) {
      if (!nodes.some(({ name }) => name === node.name)) continue;
      try {
        const tables = await refreshCopies(home, node, copyTimeoutMs);
        if (tables.length > 0) say(`home: copies from ${node.name}: ${tables.join(', ')}`);
      } catch (error) {
        failed.push(node.name);
        say(`home: FAILED to copy from ${node.name}: ${reasonOf(error)}`);
      }
    }
  });
  return failed;
}

/**
 * Migrates the nodes at the same time, then the home, whose changes they copy. If a node fails, the home stays as it is.
 * @param servers  the home, then its nodes
 * @param migrateOne  migrates one server
 */
export async function migrateServers(
  [home, ...nodes]: readonly [Server, ...Server[]],
  migrateOne: (server: Server) => Promise<MigrateResult>,
  { dryRun = false, say }: MigrateServersOptions,
): Promise<MigratedServers> {
  const ofNodes = await onEachServer(nodes, migrateOne);
  for (const { server, error } of ofNodes) if (error !== undefined) say(`${server.name}: FAILED: ${error}`);
  const behind = ofNodes
    .filter(({ error, result }) => error !== undefined || result.isStopped)
    .map(({ server }) => server.name);
  if (behind.length > 0 && !dryRun) return { ofNodes, ofHome: undefined, behind, notCopied: [] };
  const ofHome = await migrateOne(home);
  const notCopied = dryRun ? [] : await refreshNodes(home.url, nodes, say);
  return { ofNodes, ofHome, behind, notCopied };
}
