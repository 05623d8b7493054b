import type pg from 'pg';
import { readJoinedNodes } from '../nodes/nodes.ts';
import { homeName } from '../servers.ts';
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
}

interface School {
  id: number;
  subdomain: string;
}

/** A server that takes part. */
interface Participant {
  name: string;
  isDrained: boolean;
  isReachable: boolean;
  schools: School[];
}

/** The servers that take part, with their schools. */
async function readParticipants(home: pg.Client, includesHome: boolean): Promise<Participant[]> {
  const { rows } = await home.query<School & { node: string }>(
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
  return servers.map((server) => ({ ...server, schools: rows.filter(({ node }) => node === server.name) }));
}

/** The moves that even out the numbers of schools. They are done in `servers` too. */
function evenOut(servers: readonly Participant[]): PlannedMove[] {
  const moves: PlannedMove[] = [];
  for (;;) {
    const active = servers.filter(({ isDrained }) => !isDrained).sort((a, b) => a.schools.length - b.schools.length);
    const [to] = active;
    const from = servers.find(({ isDrained, schools }) => isDrained && schools.length > 0) ?? active.at(-1);
    if (!to || !from || (!from.isDrained && from.schools.length - to.schools.length <= 1)) return moves;
    const school = from.schools.pop();
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
  const servers = await readParticipants(home, includesHome);
  const before = servers.map(({ schools }) => schools.length);
  const reachable = servers.filter(({ isReachable }) => isReachable);
  const moves = evenOut(reachable);
  return {
    moves,
    counts: servers.map(({ name, schools }, n) => ({ name, before: before[n] ?? 0, after: schools.length })),
    unreachable: servers.filter(({ isReachable }) => !isReachable).map(({ name }) => name),
    stranded: reachable.filter(({ isDrained }) => isDrained).reduce((sum, { schools }) => sum + schools.length, 0),
  };
}
