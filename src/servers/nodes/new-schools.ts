import pg from 'pg';
import { answerTimeoutMs, requireAnswer, withOwner, withOwnerInTime } from '../../database/pool/pool.ts';

import { requireServer } from '../servers.ts';
import { requireCurrent } from '../tokens.ts';

/** The connection ended, or the state of the transaction is unknown. A statement that was canceled was rolled back. */
const isUncertain = (error: unknown) =>
  !(error instanceof pg.DatabaseError) || /^(57P|08|40003$)/.test(error.code ?? '');

/** A place for a new school: its id, and the node that the home has chosen. */
interface Place {
  id: number;
  nodeId: number;
  node: string;
  url: string;
  /** Null for the reservation of an earlier call, whose school the node may have created. */
  reservedAt: string | null;
}

/** Reserves a school. @param avoided  ids of nodes. @returns undefined if it belongs at home, or is there already */
async function reserve(
  home: pg.Client,
  school: { subdomain: string },
  name: string | undefined,
  avoided: readonly number[],
): Promise<Place | undefined> {
  const { rows } = await home.query<{ [field in keyof Place]: Place[field] | null }>(
    `select r.id::double precision as id, n.id::integer as "nodeId", n.name as node, n.url,
       r.reserved_at::text as "reservedAt"
     from core.school_reserve($1, $2, $3) r
     left join platform.node n on n.id = r.node_id`,
    [JSON.stringify(school), name ?? null, avoided],
  );
  const { id, nodeId, node, url, reservedAt = null } = rows[0] ?? {};
  // A school at home that exists has an id and no node: creating it again is refused.
  return url == null || id == null || node == null || nodeId == null
    ? undefined
    : { id, nodeId, node, url, reservedAt };
}

const uncertainError = (node: string, subdomain: string, cause: unknown) =>
  new Error(
    `The node ${node} did not answer. It may have created the school ${subdomain}: look at \`school tenant list\`. If ` +
      'not, the subdomain stays reserved: repeat the command to continue, or remove the reservation with ' +
      '`school node release`.',
    { cause },
  );

/**
 * Creates a school where it belongs: at home, or on a node, with the id that the home reserves.
 * @param school  its fields, as the operation takes them
 * @param name  the node; undefined for the active one with the fewest schools that answers, or the home if there is none
 * @throws for an unknown node, or another one than that of an earlier reservation. If the node refuses or cannot be
 *   reached, this call leaves nothing; if it is not certain whether the school was created, the message says so
 */
export async function onNodeOfNewSchool<T>(
  home: pg.Client,
  school: { subdomain: string },
  name: string | undefined,
  create: (server: pg.Client, reserved: { reserved_id?: number }) => Promise<T>,
): Promise<T> {
  await requireCurrent(home, []);
  /** Nodes that have not answered this call. */
  const avoided: number[] = [];
  for (;;) {
    const place = await reserve(home, school, name, avoided);
    if (!place) return create(home, {});
    const { id, nodeId, node, url, reservedAt } = place;
    const work = { hasBegun: false };
    try {
      await requireAnswer(url);
      return await withOwner(url, async (client) => {
        await requireServer(client, { id: nodeId });
        work.hasBegun = true;
        return create(client, { reserved_id: id });
      });
    } catch (error) {
      if (work.hasBegun ? isUncertain(error) : reservedAt === null) throw uncertainError(node, school.subdomain, error);
      await home.query('select core.school_release($1, $2)', [id, reservedAt]);
      if (work.hasBegun) throw error;
      // The node has surely not got the school.
      if (name !== undefined || avoided.includes(nodeId))
        throw new Error(`The node ${node} does not answer. No school was created.`, { cause: error });
      avoided.push(nodeId);
    }
  }
}

/** A reservation of a school, and whether it was removed. */
export interface Reservation {
  id: number;
  subdomain: string;
  node: string;
  /** `created`: the node has the school, and its copy is on the way. `unknown`: it does not answer, or still imports it. */
  outcome: 'released' | 'created' | 'unknown';
}

/** Whether a node has a school; undefined while an import may still create it. */
async function hasCreated(node: pg.Client, id: number): Promise<boolean | undefined> {
  const isThere = async () => (await node.query('select from platform.tenant where id = $1', [id])).rowCount === 1;
  // Before the lock, which keeps the requests of a school out.
  if (await isThere()) return true;
  // An import holds this lock until its transaction ends; its school is not visible before.
  const { rows } = await node.query<{ is_free: boolean }>(
    'select pg_try_advisory_lock(core.tenant_lock_key($1)) as is_free',
    [id],
  );
  return (await isThere()) || (rows[0]?.is_free ? false : undefined);
}

/**
 * Removes the reservations of schools whose creation has stopped: those that the node does not have.
 * @param minutes  only reservations that are older: a creation that is still running must keep its own
 * @returns all of them
 */
export async function releaseReservations(home: pg.ClientBase, minutes: number): Promise<Reservation[]> {
  const { rows } = await home.query<{ id: number; subdomain: string; node: string; url: string; reserved_at: string }>(
    `select t.id::double precision as id, t.subdomain, n.name as node, n.url, t.updated_at::text as reserved_at
     from platform.tenant t
     join platform.node n on n.id = t.node_id
     where core.is_reserved(t) and t.updated_at < now() - make_interval(mins => $1)
     order by t.id`,
    [minutes],
  );
  const reservations: Reservation[] = [];
  for (const { id, subdomain, node, url, reserved_at } of rows) {
    const isCreated = await withOwnerInTime(url, answerTimeoutMs, (client) => hasCreated(client, id)).catch(
      () => undefined,
    );
    if (isCreated === false) await home.query('select core.school_release($1, $2)', [id, reserved_at]);
    const outcome = isCreated === undefined ? 'unknown' : isCreated ? 'created' : 'released';
    reservations.push({ id, subdomain, node, outcome });
  }
  return reservations;
}
