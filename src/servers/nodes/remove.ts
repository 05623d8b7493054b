import pg from 'pg';
import { classify } from '../../database/errors.ts';
import { answerTimeoutMs, withOwner, withOwnerInTime } from '../../database/pool/pool.ts';
import { inTransaction } from '../../database/transaction.ts';
import { homeSubscription, nodeSubscription } from '../replication/names.ts';
import { dropSlot, unsubscribe } from '../replication/subscriptions.ts';
import { requireAgreementWith } from '../claims.ts';
import { requireCurrent } from '../tokens.ts';
import { withCopiesLock } from './copies.ts';
import { findNode, type Node, readNodes } from './nodes.ts';

/**
 * Whether the server of a node, or its database, does not exist any more, by the error of a connection. A server that
 * refuses a connection exists.
 */
const isGone = (error: unknown): boolean =>
  error instanceof pg.DatabaseError
    ? // No such database, or one without the table.
      ['3D000', '42P01'].includes(error.code ?? '')
    : classify(error).apiError?.error === 'unavailable';

/** Whether nobody answers under the address of a node, or a database that is not this node. @throws if it is uncertain */
async function isLostNode({ name, url }: Node): Promise<boolean> {
  try {
    const { rowCount } = await withOwnerInTime(url, answerTimeoutMs, (node) =>
      node.query('select from platform.node where is_this and name = $1', [name]),
    );
    return rowCount === 0;
  } catch (error) {
    if (isGone(error)) return true;
    throw error;
  }
}

/** The schools of which a server has the tables of an unfinished or unconfirmed move, or that move to this node. */
const schoolsKeptOn = async (server: pg.ClientBase, nodeId: number) =>
  (
    await server.query<{ id: string; is_moving: boolean }>(
      `select substring(name from '\\d+') as id, name like 'school%' as is_moving
       from (
         select nspname as name from pg_namespace where nspname ~ '^moved_tenant_\\d+$'
         union all
         select pubname from pg_publication where pubname ~ $1
         union all
         select slot_name from pg_replication_slots where database = current_database() and slot_name ~ $1
       ) k`,
      [`^school_move_\\d+_${String(nodeId)}$`],
    )
  ).rows;

/**
 * The subdomains of the schools that other servers can put in service again when a node is lost: those that were moving
 * to it, or whose tables the earlier server has kept. Servers that are lost too are left out.
 */
async function schoolsKeptElsewhere(home: pg.ClientBase, nodeId: number): Promise<string[]> {
  const others = (await readNodes(home)).filter(({ id }) => id !== nodeId);
  const found = await Promise.all([
    schoolsKeptOn(home, nodeId),
    ...others.map(({ url }) =>
      withOwnerInTime(url, answerTimeoutMs, (server) => schoolsKeptOn(server, nodeId)).catch((error: unknown) => {
        if (isGone(error)) return [];
        throw error;
      }),
    ),
  ]);
  const { rows } = await home.query<{ subdomain: string }>(
    `select t.subdomain
     from platform.tenant t
     where exists (
       select from json_to_recordset($1) k (id bigint, is_moving boolean)
       where k.id = t.id and (k.is_moving or t.node_id = $2))
     order by t.id`,
    [JSON.stringify(found.flat()), nodeId],
  );
  return rows.map(({ subdomain }) => subdomain);
}

/** @throws if another server has the tables of a school that the lost node would have */
async function requireNothingElsewhere(home: pg.ClientBase, { id, name }: Node): Promise<void> {
  const kept = await schoolsKeptElsewhere(home, id);
  if (kept.length > 0)
    throw new Error(
      `Other servers have the tables of schools that moved to the node ${name}, or were moving there. No command ` +
        'finds these tables after its removal. Put the schools in service again first:\n' +
        kept.map((subdomain) => `school tenant move ${subdomain} ${name} --cancel --lost`).join('\n'),
    );
}

/** @throws if a move to or from a node is not finished or not confirmed */
async function requireNoMoves(node: pg.Client, name: string): Promise<void> {
  const { rows: moving } = await node.query<{ id: string }>(
    `select distinct substring(m.name from '^school_move_(\\d+)') as id
     from (
       select subname as name from pg_subscription
       where subdbid = (select oid from pg_database where datname = current_database())
       union all
       select slot_name from pg_replication_slots where database = current_database()
     ) m
     where m.name like 'school\\_move\\_%'
     order by 1`,
  );
  if (moving.length > 0)
    throw new Error(
      `Moves to or from the node ${name} are not finished: those of the schools ${moving.map(({ id }) => id).join(', ')}. ` +
        'Repeat them, or give them up with --cancel, first: school tenant move',
    );
  const { rows: retained } = await node.query<{ id: string }>(
    `select substring(nspname from '\\d+') as id from pg_namespace where nspname like 'moved\\_tenant\\_%' order by 1`,
  );
  if (retained.length > 0)
    throw new Error(
      `The node ${name} has kept the tables of schools that were moved. Confirm these moves first:\n` +
        retained.map(({ id }) => `school tenant move ${id} --confirm`).join('\n'),
    );
}

/** The ids of the schools in the database of a node: those that were purged, and the others. */
async function schoolsOn(node: pg.Client): Promise<{ purged: string[]; others: string[] }> {
  const { rows } = await node.query<{ id: string; is_purged: boolean }>(
    `select id, status = 'deleted' and schema_version = 0 and to_regnamespace('tenant_' || id) is null as is_purged
     from platform.tenant
     order by id`,
  );
  const ids = (isPurged: boolean) => rows.filter(({ is_purged }) => is_purged === isPurged).map(({ id }) => id);
  return { purged: ids(true), others: ids(false) };
}

/** Marks the schools of a lost node as purged, with an entry in the audit log for each, and removes its reservations. */
async function purgeSchools(home: pg.Client, { id, name }: Node): Promise<void> {
  await home.query('delete from platform.tenant t where t.node_id = $1 and core.is_reserved(t)', [id]);
  await home.query(
    `select set_config('app.actor_email', 'command line', true),
       core.audit('tenant.purge', 'tenant', id, id, core.diff(null, jsonb_build_object('node', $2::text)))
     from platform.tenant where node_id = $1`,
    [id, name],
  );
  await home.query(
    `update platform.tenant set status = 'deleted', deleted_at = now() where node_id = $1 and status <> 'deleted'`,
    [id],
  );
}

interface RemoveOptions {
  /** The server no longer exists. */
  isLost: boolean;
  /** Mark all schools of the lost server as purged, and remove its reservations. */
  deletesSchools: boolean;
}

/**
 * Gives a node no new schools any more, and the home its purged ones. Repeating it continues.
 * @throws if the directory, or the database of the node, has other schools there
 */
async function leaveDirectory(
  home: pg.Client,
  node: Node,
  { purged, others }: { purged: string[]; others: string[] },
  { isLost, deletesSchools }: RemoveOptions,
): Promise<void> {
  const { id, name } = node;
  await inTransaction(home, async () => {
    await home.query('select from platform.node where id = $1 for update', [id]);
    await home.query(`update platform.node set status = 'joining' where id = $1`, [id]);
    if (deletesSchools) await purgeSchools(home, node);
    await home.query(
      `update platform.tenant set schema_version = 0, node_id = null where node_id = $1 and ($3 or id = any ($2))`,
      [id, purged, deletesSchools],
    );
    const { schools, reserved } = await findNode(home, name);
    if (schools + reserved > 0)
      throw new Error(
        `Schools on the node ${name}: ${String(schools)}, reserved: ${String(reserved)}. ` +
          (isLost
            ? `Restore its server from a backup, and repeat: school node add ${name} <url>. If there is no backup, ` +
              '--delete-schools marks its schools as purged, so that their exported files can be imported.'
            : 'Deleted schools count until they are purged: restore and move them, or wait for their purge.'),
      );
    if (others.length > 0)
      throw new Error(
        `The node ${name} has copies of the schools ${others.join(', ')}, which the directory has elsewhere. Give ` +
          `their moves up first: school tenant move <school> ${name} --cancel`,
      );
  });
}

/** Ends the copies on the server of a node, which then is no node any more. */
const endCopies = ({ id, url }: Node) =>
  withOwner(url, async (client) => {
    await dropSlot(client, homeSubscription(id));
    await unsubscribe(client, nodeSubscription(id));
    // Together: a node that publishes nothing would look like one whose tables the home has copied.
    await inTransaction(client, async () => {
      await client.query('drop publication if exists school_facts, school_tenants');
      await client.query('delete from platform.node');
      await client.query('delete from platform.server_token');
    });
  });

/**
 * Removes a node that has no schools besides purged ones. Its database stays. Purged schools belong to the home then, so
 * that their files are imported there. Waits while a school that moves from or to the node is paused.
 * @throws if it has other schools, also deleted ones, or a move to it is not finished; for a lost server, if another
 *   server has kept the tables of a school
 */
export async function removeNode(
  home: pg.Client,
  name: string,
  { isLost = false, deletesSchools = false }: { [option in keyof RemoveOptions]?: boolean | undefined } = {},
): Promise<void> {
  const node = await findNode(home, name);
  await requireCurrent(home, isLost ? [] : [node]);
  if (!isLost) await requireAgreementWith(home, node);
  if (deletesSchools && !(await isLostNode(node)))
    throw new Error(`The node ${name} answers. Move its schools to other servers instead.`);
  // A move that has only begun finds that the node no longer takes part before it pauses its school.
  await withCopiesLock(home, [node.id], 'exclusive', async () => {
    if (isLost) await requireNothingElsewhere(home, node);
    const schools = isLost
      ? { purged: [], others: [] }
      : await withOwnerInTime(node.url, answerTimeoutMs, async (client) => {
          await requireNoMoves(client, name);
          return schoolsOn(client);
        });
    await leaveDirectory(home, node, schools, { isLost, deletesSchools });
  });
  await unsubscribe(home, homeSubscription(node.id));
  if (!isLost) await endCopies(node);
  await dropSlot(home, nodeSubscription(node.id));
  await home.query('delete from platform.server_token where server = $1', [`node_${String(node.id)}`]);
  await home.query('delete from platform.node where id = $1', [node.id]);
}
