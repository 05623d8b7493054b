import type pg from 'pg';
import { reasonOf } from '../domain/reason.ts';
import { compareServers } from '../servers/claims.ts';
import { nodeStates, type NodeState } from '../servers/nodes/check.ts';
import { refreshCopies } from '../servers/nodes/copies.ts';
import { addNode } from '../servers/nodes/join.ts';
import { releaseReservations } from '../servers/nodes/new-schools.ts';
import { findNode, readJoinedNodes, setDraining } from '../servers/nodes/nodes.ts';
import { removeNode } from '../servers/nodes/remove.ts';
import { createForwarder, removeForwarder } from '../servers/forwarder.ts';
import { homeName, readServers } from '../servers/servers.ts';
import { describeKept, unconfirmed } from './kept.ts';
import type { Config } from '../process/config.ts';
import { formatMinute, withClient } from '../process/database-access.ts';
import { exitCodes } from './exit-codes.ts';
import { confirm, counted, type Format, print, table } from './output.ts';

/** Runs `work` with the home. @throws on the embedded server, which other servers cannot reach */
export function withHome<T>(config: Config, work: (home: pg.Client, homeUrl: string) => Promise<T>): Promise<T> {
  if (!config.DATABASE_URL)
    throw new Error('Set DATABASE_URL to the home: a server that the nodes can reach, not the embedded one.');
  return withClient(config, work);
}

/** @throws if the name has other characters, or is that of the home */
function checkName(name: string, pattern: RegExp, characters: string): void {
  if (!pattern.test(name) || name === homeName)
    throw new Error(
      `The name ${JSON.stringify(name)} must start with a letter and have at most 40 ${characters}; ${homeName} is ` +
        'reserved.',
    );
}

/** `school node add`. @throws when the database is in use, or a server does not allow logical replication */
export async function nodeAdd(
  config: Config,
  name: string,
  url: string,
  { json, homeUrl, takeOver }: Format & { homeUrl?: string; takeOver?: boolean },
): Promise<void> {
  checkName(name, /^[a-z][a-z0-9-]{0,39}$/, 'lower-case letters, digits and hyphens');
  const node = await withHome(config, (home, ownUrl) =>
    addNode(home, {
      name,
      url,
      homeUrl: homeUrl ?? ownUrl,
      keepsHomeUrl: homeUrl === undefined && !takeOver,
      isTakenOver: takeOver === true,
      onStep: (line) => {
        if (!json) print(line);
      },
    }),
  );
  if (json) print(JSON.stringify({ id: node.id, name, status: node.status }));
  else
    print(
      `The node ${name} is ${node.status}. ` +
        (takeOver ? 'Enter its schools in the directory: school node reconcile. Then update' : 'Update') +
        ' each forwarder: school forwarder create',
    );
}

/** `school node refresh`. @returns the exit code: `failed` if a node does not answer. @throws for an unknown node */
export async function nodeRefresh(config: Config, name: string | undefined, { json }: Format): Promise<number> {
  return withHome(config, async (home) => {
    const nodes = (await readJoinedNodes(home)).filter((node) => name === undefined || node.name === name);
    if (name !== undefined && nodes.length === 0) throw new Error(`There is no node ${name}, or it is still joining.`);
    let hasFailed = false;
    for (const node of nodes) {
      try {
        const tables = await refreshCopies(home, node, Infinity);
        if (json) print(JSON.stringify({ name: node.name, tables }));
        else print(`${node.name}: ${tables.length === 0 ? 'nothing is missing' : `now copies ${tables.join(', ')}`}`);
      } catch (error) {
        hasFailed = true;
        const message = reasonOf(error);
        if (json) print(JSON.stringify({ name: node.name, error: message }));
        else print(`${node.name}: FAILED: ${message}`);
      }
    }
    return hasFailed ? exitCodes.failed : exitCodes.done;
  });
}

/** What the copies between the home and a node do, in words. */
const copies = ({ toHome, toNode }: NodeState): string =>
  toHome === null || toNode === null
    ? '-'
    : toHome === 'copying' && toNode === 'copying'
      ? 'yes'
      : [
          ...(toHome === 'copying' ? [] : [`to the home: ${toHome}`]),
          ...(toNode === 'copying' ? [] : [`to the node: ${toNode}`]),
        ].join('; ');

/**
 * `school node list`.
 * @returns the exit code: `failed` if a node does not answer, or the home and a node do not copy each other's tables
 */
export async function nodeList(config: Config, { json }: Format): Promise<number> {
  const { nodes, kept } = await withHome(config, async (home, url) => {
    const [, ...servers] = await readServers(home, url);
    return { nodes: await nodeStates(home), kept: (await compareServers(home, servers)).kept };
  });
  if (json) {
    print(
      JSON.stringify(
        nodes.map(({ isReachable, lagBytes, answeredAt, unreachableSince, toHome, toNode, ...node }) => ({
          ...node,
          copies_to_home: toHome,
          copies_to_node: toNode,
          unconfirmed_moves: unconfirmed(kept, node.name),
          is_reachable: isReachable,
          answered_at: answeredAt,
          unreachable_since: unreachableSince,
          lag_bytes: lagBytes,
        })),
      ),
    );
  } else {
    process.stdout.write(
      table(
        ['NODE', 'STATUS', 'SCHOOLS', 'RESERVED', 'ANSWERS', 'COPIES', 'LAG'],
        nodes.map((node) => [
          node.name,
          node.status,
          node.schools,
          node.reserved,
          node.isReachable
            ? 'yes'
            : `no${node.unreachableSince ? `, since ${formatMinute(node.unreachableSince)}` : ''}`,
          copies(node),
          node.lagBytes === null ? '-' : `${String(Math.ceil(node.lagBytes / 1024))} kB`,
        ]),
      ),
    );
    for (const line of describeKept(kept)) print(line);
  }
  return nodes.every(({ isReachable, toHome, toNode }) => isReachable && toHome === 'copying' && toNode === 'copying')
    ? exitCodes.done
    : exitCodes.failed;
}

/** `school node drain` */
export async function nodeDrain(config: Config, name: string, { json, undo }: Format & { undo?: boolean }) {
  await withHome(config, (home) => setDraining(home, name, !undo));
  if (json) print(JSON.stringify({ name, status: undo ? 'active' : 'draining' }));
  else print(`The node ${name} is ${undo ? '' : 'no longer '}chosen for new schools.`);
}

/** `school node release`. @returns the exit code: `failed` if a node does not answer */
export async function nodeRelease(config: Config, { json, olderThan }: Format & { olderThan: number }) {
  const reservations = await withHome(config, (home) => releaseReservations(home, olderThan));
  const lines = {
    released: 'is free again',
    created: 'has been created, and appears at home when its copy arrives',
    unknown: 'stays reserved, because its node does not answer',
  };
  if (json) print(JSON.stringify(reservations));
  else if (reservations.length === 0)
    print(
      `No reservation is older than ${counted(olderThan, 'minute')}. Give another age with --older-than <minutes>.`,
    );
  else for (const { subdomain, node, outcome } of reservations) print(`${subdomain} (${node}) ${lines[outcome]}.`);
  return reservations.some(({ outcome }) => outcome === 'unknown') ? exitCodes.failed : exitCodes.done;
}

/** `school node remove`. @throws if the node has schools, and they are not to be deleted */
export async function nodeRemove(
  config: Config,
  name: string,
  { json, lost, deleteSchools, yes }: Format & { lost?: boolean; deleteSchools?: boolean; yes?: boolean },
) {
  if (deleteSchools && !lost) throw new Error('--delete-schools needs --lost.');
  await withHome(config, async (home) => {
    if (deleteSchools) {
      const { schools } = await findNode(home, name);
      await confirm(`This deletes ${counted(schools, 'school')} of the node ${name}`, yes);
    }
    await removeNode(home, name, { isLost: lost, deletesSchools: deleteSchools });
  });
  if (json) print(JSON.stringify({ name, is_removed: true }));
  else print(`The node ${name} was removed. Update each forwarder: school forwarder create`);
}

/** `school forwarder create` */
export async function forwarderCreate(
  config: Config,
  name: string,
  url: string,
  { json, homeUrl }: Format & { homeUrl?: string },
): Promise<void> {
  checkName(name, /^[a-z][a-z0-9_]{0,39}$/, 'lower-case letters, digits and underscores');
  const nodes = await withHome(config, async (home, ownUrl) => {
    await createForwarder(home, { name, url, homeUrl: homeUrl ?? ownUrl });
    return (await nodeStates(home)).length;
  });
  if (json) print(JSON.stringify({ name, nodes }));
  else print(`The forwarder ${name} forwards requests to the home and ${counted(nodes, 'node')}.`);
}

/** `school forwarder remove` */
export async function forwarderRemove(config: Config, name: string, url: string | undefined, { json }: Format) {
  await withHome(config, (home) => removeForwarder(home, name, url));
  if (json) print(JSON.stringify({ name, is_removed: true }));
  else print(`The forwarder ${name} was removed.`);
}
