import type pg from 'pg';
import { readJoinedNodes } from '../nodes/nodes.ts';
import { compareServers } from '../claims.ts';
import { homeName, readServers } from '../servers.ts';
import { answers } from './school.ts';

interface PlannedMove {
  school: number;
  subdomain: string;
  from: string;
  to: string;
}

interface Plan {
  moves: PlannedMove[];
  counts: { name: string; before: number; after: number }[];
  /** The nodes that do not answer. No school moves from or to them. */
  unreachable: string[];
  /** How many schools stay on drained nodes that answer, because no active node answers. */
  stranded: number;
  /** The schools that cannot move now, and why. */
  blocked: { school: number; subdomain: string; reason: string }[];
}

interface School {
  id: number;
  subdomain: string;
  isBlocked: boolean;
}

/** A server that takes part. */
interface Participant {
  name: string;
  isDrained: boolean;
  isReachable: boolean;
  schools: School[];
}

/** The schools that cannot move, with the reason: an earlier move is not confirmed, or servers disagree about them. */
async function readBlocked(home: pg.Client): Promise<Map<number, string>> {
  const [, ...nodes] = await readServers(home, '');
  const { kept, disagreements } = await compareServers(home, nodes);
  return new Map([
    ...kept.map(({ school, server }) => [school, `${server.name} has kept its tables: confirm its last move`] as const),
    ...disagreements.map(({ school, text }) => [school, `${text} See: school node verify`] as const),
  ]);
}

/** The servers that take part, with their schools. */
async function readParticipants(
  home: pg.Client,
  includesHome: boolean,
  blocked: ReadonlyMap<number, string>,
): Promise<Participant[]> {
  const { rows } = await home.query<Omit<School, 'isBlocked'> & { node: string }>(
    `select t.id::double precision as id, t.subdomain, coalesce(n.name, $1) as node
     from platform.tenant t
     left join platform.node n on n.id = t.node_id
     where t.status <> 'deleted'
     order by t.id`,
    [homeName],
  );
  const nodes = await Promise.all(
    (await readJoinedNodes(home)).map(async (node) => ({
      name: node.name,
      isDrained: node.status === 'draining',
      isReachable: await answers(node),
    })),
  );
  const servers = [...(includesHome ? [{ name: homeName, isDrained: false, isReachable: true }] : []), ...nodes];
  const schools = rows.map((row) => ({ ...row, isBlocked: blocked.has(row.id) }));
  return servers.map((server) => ({ ...server, schools: schools.filter(({ node }) => node === server.name) }));
}

const canMove = ({ isBlocked }: School) => !isBlocked;

/** The moves that even out the numbers of schools. They are done in `servers` too. */
function evenOut(servers: readonly Participant[]): PlannedMove[] {
  const moves: PlannedMove[] = [];
  for (;;) {
    const active = servers.filter(({ isDrained }) => !isDrained).sort((a, b) => a.schools.length - b.schools.length);
    const [to] = active;
    const from =
      servers.find(({ isDrained, schools }) => isDrained && schools.some(canMove)) ??
      active.findLast(({ schools }) => schools.some(canMove));
    if (!to || !from || (!from.isDrained && from.schools.length - to.schools.length <= 1)) return moves;
    const index = from.schools.findLastIndex(canMove);
    const [school] = from.schools.splice(index, 1);
    if (!school) return moves;
    to.schools.push(school);
    moves.push({ school: school.id, subdomain: school.subdomain, from: from.name, to: to.name });
  }
}

/**
 * The moves after which the active nodes have the same number of schools, give or take one, and those that are being
 * drained have none.
 * @param includesHome  whether the home takes part like an active node
 */
export async function planMoves(home: pg.Client, includesHome: boolean): Promise<Plan> {
  const blocked = await readBlocked(home);
  const servers = await readParticipants(home, includesHome, blocked);
  const all = servers.flatMap(({ schools }) => schools);
  const before = servers.map(({ schools }) => schools.length);
  const reachable = servers.filter(({ isReachable }) => isReachable);
  const moves = evenOut(reachable);
  return {
    moves,
    counts: servers.map(({ name, schools }, n) => ({ name, before: before[n] ?? 0, after: schools.length })),
    unreachable: servers.filter(({ isReachable }) => !isReachable).map(({ name }) => name),
    blocked: all.flatMap(({ id, subdomain }) => {
      const reason = blocked.get(id);
      return reason === undefined ? [] : [{ school: id, subdomain, reason }];
    }),
    stranded: reachable
      .filter(({ isDrained }) => isDrained)
      .reduce((sum, { schools }) => sum + schools.filter(canMove).length, 0),
  };
}
