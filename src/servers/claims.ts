import { setTimeout as pause } from 'node:timers/promises';
import type pg from 'pg';
import { answerTimeoutMs, withOwnerInTime } from '../database/pool/pool.ts';
import { reasonOf } from '../domain/reason.ts';
import { homeSubscription } from './replication/names.ts';
import { waitForSubscribers } from './replication/wait.ts';
import { homeName, readServers, requireServer, type Server } from './servers.ts';

/** A school as one server knows it; see core.held_schools. */
export interface HeldSchool {
  id: number;
  subdomain: string | null;
  createdAt: string | null;
  status: 'active' | 'suspended' | 'deleted' | null;
  /** `open`: this server serves it. `copy`: another one does. `unknown`: there is a schema, but no row. */
  state: 'open' | 'purged' | 'copy' | 'reserved' | 'unknown';
  claim: number | null;
  claimId: string | null;
  /** At home, the node in the directory; null for the home. */
  nodeId: number | null;
  hasSchema: boolean;
  /** Whether the server keeps the tables from before a move, and the claim of the school when it was closed. */
  isKept: boolean;
  keptClaim: number | null;
}

interface ServerSchools {
  server: Server;
  schools: HeldSchool[];
}

/** What the servers say differently about a school. */
export interface Disagreement {
  school: number;
  subdomain: string;
  kind:
    | 'missing in the directory'
    | 'on another server'
    | 'open twice'
    | 'same claim'
    | 'same id'
    | 'older copy'
    | 'older server'
    | 'on no server'
    | 'schema without a school';
  /** The server with the highest claim; undefined if no server has the school, or it is not certain. */
  holder: Server | undefined;
  /** The other servers that have the school open. */
  others: Server[];
  /** Whether the home is older than the server that has the school. */
  isHomeOlder: boolean;
  /** A sentence. */
  text: string;
}

/** A server that has kept the tables of a school that was moved away from it. */
export interface KeptSchool {
  school: number;
  subdomain: string;
  server: Server;
  /** The server of the school in the directory. */
  current: string;
}

/** What a comparison of the servers has found. */
export interface Comparison {
  disagreements: Disagreement[];
  kept: KeptSchool[];
  /** The highest id of a school on any server. */
  maxId: number;
  unreachable: { server: Server; error: string }[];
}

export const readHeldSchools = async (client: pg.ClientBase): Promise<HeldSchool[]> =>
  (
    await client.query<HeldSchool>(
      `select id::double precision, subdomain, extract(epoch from created_at)::text as "createdAt", status, state, claim,
         claim_id as "claimId", node_id::integer as "nodeId", has_schema as "hasSchema", is_kept as "isKept",
         kept_claim as "keptClaim"
       from core.held_schools()`,
    )
  ).rows;

/** The disagreements that a home has which was restored to an earlier moment. */
const ofOlderHome: ReadonlySet<Disagreement['kind']> = new Set([
  'missing in the directory',
  'on another server',
  'older copy',
]);

const isHeld = ({ state }: HeldSchool) => state === 'open' || state === 'purged';
const list = (servers: readonly Server[]) => servers.map(({ name }) => name).join(' and ');

/** What each server says about one school. */
type Views = { server: Server; school: HeldSchool }[];

/** Compares what the servers say about one school. @param read  the servers that were read, the home first */
function compareSchool(id: number, views: Views, read: readonly Server[]): Disagreement | undefined {
  const [home] = read;
  const row = views.find(({ server }) => server === home)?.school;
  const subdomain = views.find(({ school }) => school.subdomain !== null)?.school.subdomain ?? '';
  const name = subdomain === '' ? String(id) : `${String(id)} (${subdomain})`;
  /** Undefined if that server was not read. */
  const directory = row?.nodeId == null ? home : read.find((server) => server.id === row.nodeId);
  const found = (kind: Disagreement['kind'], text: string, holder?: Server, others: Server[] = []): Disagreement => ({
    school: id,
    subdomain,
    kind,
    holder,
    others,
    isHomeOlder: ofOlderHome.has(kind) || (holder !== undefined && directory !== holder),
    text,
  });
  const held = views.filter(({ school }) => isHeld(school));
  const unknown = views.find(({ school }) => school.state === 'unknown' && school.hasSchema);
  if (unknown)
    return found('schema without a school', `${unknown.server.name} has a schema tenant_${name}, but no such school.`);
  if (held.length === 0) {
    // A server that was not read may have it.
    if (row === undefined || row.state === 'reserved' || row.status === 'deleted' || !directory) return undefined;
    const keeping = views.filter(({ school }) => school.isKept).map(({ server }) => server);
    return found(
      'on no server',
      `School ${name} is in the directory at ${directory.name}, and no server has it open. ` +
        (keeping.length > 0
          ? `${list(keeping)} has kept its tables: a move is not finished.`
          : 'Nothing is left of it.'),
    );
  }
  if (new Set(held.map(({ school }) => school.createdAt)).size > 1)
    return found('same id', `${list(held.map(({ server }) => server))} have different schools with the id ${name}.`);
  const top = Math.max(...held.map(({ school }) => school.claim ?? 0));
  const holders = held.filter(({ school }) => school.claim === top);
  const [holder] = holders;
  const open = held.filter(({ school }) => school.state === 'open');
  if (!holder) return undefined;
  if (holders.length > 1 && open.length > 0)
    return found(
      'same claim',
      `School ${name} is on ${list(holders.map(({ server }) => server))} with the same claim ${String(top)}. ` +
        'Which one has the newer rows is not certain.',
      undefined,
      open.map(({ server }) => server),
    );
  const others = open.filter((view) => view !== holder).map(({ server }) => server);
  const has = `School ${name} is on ${holder.server.name} with the claim ${String(top)}`;
  if (others.length > 0)
    return found('open twice', `${has}, and open with an older one on ${list(others)}.`, holder.server, others);
  if (row === undefined) return found('missing in the directory', `${has}. The directory lacks it.`, holder.server);
  if (directory !== holder.server)
    return found(
      'on another server',
      `${has}. In the directory it is on ${directory?.name ?? `node ${String(row.nodeId)}`}.`,
      holder.server,
    );
  if ((row.claim ?? 0) > top) {
    const keeping = views.filter(({ school }) => (school.keptClaim ?? 0) > top).map(({ server }) => server);
    return found(
      'older server',
      `${has}, which is older than ${String(row.claim)} in the directory. ` +
        (keeping.length > 0 ? `${list(keeping)} has kept newer tables.` : 'The rows written since then are lost.'),
      holder.server,
    );
  }
  if (row.claim !== holder.school.claim || row.claimId !== holder.school.claimId)
    return found('older copy', `${has}. The home has an older copy of its row.`, holder.server);
  return undefined;
}

/** @param all  the home first. @param moving  schools that a command moves now, which are left out */
function compare(all: readonly ServerSchools[], moving: ReadonlySet<number>): Omit<Comparison, 'unreachable'> {
  const read = all.map(({ server }) => server);
  const views = new Map<number, Views>();
  for (const { server, schools } of all)
    for (const school of schools) views.set(school.id, [...(views.get(school.id) ?? []), { server, school }]);
  const ids = [...views.keys()].sort((a, b) => a - b).filter((id) => !moving.has(id));
  const kept = ids.flatMap((id) =>
    (views.get(id) ?? []).flatMap(({ server, school }) => {
      if (!school.isKept) return [];
      const directory = all[0]?.schools.find((each) => each.id === id);
      const current = read.find((each) => each.id === (directory?.nodeId ?? null))?.name ?? '';
      return [{ school: id, subdomain: school.subdomain ?? '', server, current }];
    }),
  );
  return {
    disagreements: ids.flatMap((id) => compareSchool(id, views.get(id) ?? [], read) ?? []),
    kept,
    maxId: Math.max(0, ...views.keys()),
  };
}

/** The schools on whose moves a command works now. */
async function readMoving(home: pg.ClientBase): Promise<Set<number>> {
  const { rows } = await home.query<{ id: number }>(
    `select objid::bigint::double precision as id from pg_locks
     where locktype = 'advisory' and granted and objsubid = 1 and pid <> pg_backend_pid()
       and classid::bigint = core.lock_key('move', 0) >> 32
       and database = (select oid from pg_database where datname = current_database())`,
  );
  return new Set(rows.map(({ id }) => id));
}

/** Reads the schools of a node, and waits until the home has copied its changes up to then. */
const readNode = (node: Server): Promise<HeldSchool[]> =>
  withOwnerInTime(node.url, answerTimeoutMs, async (client) => {
    await requireServer(client, node);
    const schools = await readHeldSchools(client);
    if (node.id !== null) await waitForSubscribers(client, copyTimeoutMs, [homeSubscription(node.id)]);
    return schools;
  });

/** How long the home may take to copy what a node has just changed. */
const copyTimeoutMs = 1_000;
/** How often servers that differ are compared: a school may be created or moved meanwhile. */
const maxComparisons = 3;

async function compareOnce(home: pg.Client, nodes: readonly Server[]): Promise<Comparison> {
  const unreachable: Comparison['unreachable'] = [];
  const ofNodes = await Promise.all(
    nodes.map((server) =>
      readNode(server).then(
        (schools) => [{ server, schools }],
        (error: unknown) => {
          unreachable.push({ server, error: reasonOf(error) });
          return [];
        },
      ),
    ),
  );
  const moving = await readMoving(home);
  const ofHome = { server: { id: null, name: homeName, url: '' }, schools: await readHeldSchools(home) };
  return { ...compare([ofHome, ...ofNodes.flat()], moving), unreachable };
}

/**
 * Compares which schools the servers have, by their claims. What changes meanwhile is not reported.
 * @param nodes  the nodes to read; schools that the directory has on others are not judged
 */
export async function compareServers(home: pg.Client, nodes: readonly Server[]): Promise<Comparison> {
  for (let n = 1; ; n++) {
    const comparison = await compareOnce(home, nodes);
    if (comparison.disagreements.length === 0 || n === maxComparisons) return comparison;
    await pause(500);
  }
}

/** Lets the home give new schools ids above this one. */
export const raiseSchoolIds = async (home: pg.ClientBase, maxId: number): Promise<void> => {
  await home.query(
    "select setval('platform.tenant_id_seq', $1::bigint) from platform.tenant_id_seq where last_value < $1::bigint",
    [maxId],
  );
};

/** How many disagreements a refusal names. */
const maxNamed = 3;

/** @throws if servers disagree. @param found  what keeps the caller from going on */
function refuse(found: readonly Disagreement[]): void {
  if (found.length === 0) return;
  const more = found.length > maxNamed ? `\nThere are ${String(found.length - maxNamed)} more.` : '';
  throw new Error(
    'The servers disagree about which of them has a school. One of them was probably restored to an earlier moment. ' +
      'Look at `school node verify`, and mend it with `school node reconcile`.\n' +
      found
        .slice(0, maxNamed)
        .map(({ text }) => text)
        .join('\n') +
      more,
  );
}

/**
 * For the move of a school between servers. Compares with all nodes that answer: a third one may have the school.
 * @throws if the servers disagree about this school, the home is older than a node, or one of `participants` is silent
 */
export async function requireAgreementOn(
  home: pg.Client,
  participants: readonly Server[],
  school: number,
): Promise<void> {
  const [, ...nodes] = await readServers(home, '');
  const { disagreements, unreachable } = await compareServers(home, nodes);
  const silent = unreachable.find(({ server }) => participants.some(({ id }) => id === server.id));
  if (silent) throw new Error(`The server ${silent.server.name} does not answer: ${silent.error}.`);
  // The move itself explains these, with what to do.
  const others: Disagreement['kind'][] = ['on no server', 'schema without a school'];
  refuse(disagreements.filter((each) => each.isHomeOlder || (each.school === school && !others.includes(each.kind))));
}

/**
 * For a node that is removed or joins again.
 * @throws if the servers disagree about a school that this node has
 */
export async function requireAgreementWith(
  home: pg.Client,
  node: Server,
  ignored: readonly Disagreement['kind'][] = [],
): Promise<void> {
  const { disagreements } = await compareServers(home, [node]);
  // A school that the node has lost is reported by `school node verify`, and must not keep the node away.
  const isSerious = ({ kind }: Disagreement) =>
    kind !== 'on no server' && kind !== 'schema without a school' && !ignored.includes(kind);
  refuse(disagreements.filter(isSerious));
}
