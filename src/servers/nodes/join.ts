import type pg from 'pg';
import { migrate } from '../../database/migrate/migrate.ts';
import { withOwner } from '../../database/pool/pool.ts';
import { asReplica } from '../../database/transaction.ts';
import { homeSubscription, nodeSubscription } from '../replication/names.ts';
import {
  dropSlot,
  hasLostSlot,
  hasSubscription,
  subscribe,
  subscribeAndCopy,
  subscribedAddress,
  unsubscribe,
} from '../replication/subscriptions.ts';
import { requireAgreementWith } from '../claims.ts';
import { adoptAsSuccessor, renewToken, requireCurrent } from '../tokens.ts';
import { refreshCopies } from './copies.ts';
import { findNode, firstId, type Node, readNodes } from './nodes.ts';
import { takeOver } from './take-over.ts';

async function requireLogical(client: pg.ClientBase, server: string): Promise<void> {
  const { rows } = await client.query<{ level: string; is_superuser: boolean }>(
    `select current_setting('wal_level') as level, rolsuper as is_superuser from pg_roles where rolname = current_user`,
  );
  if (rows[0]?.level !== 'logical')
    throw new Error(`Logical replication is off at ${server}. Set wal_level = logical there, and restart it.`);
  if (!rows[0].is_superuser)
    throw new Error(`The user of ${server} must be a superuser, because it creates a subscription.`);
}

/** @throws if a database has rows of its own, or is another node. It may be this one, or have no tables yet */
async function requireUnusedDatabase(client: pg.Client, node: { id: number | undefined; name: string }): Promise<void> {
  const { rows: tables } = await client.query<{ has_tables: boolean; has_nodes: boolean }>(
    `select to_regclass('platform.tenant') is not null as has_tables,
       to_regclass('platform.node') is not null as has_nodes`,
  );
  if (tables[0]?.has_nodes && (await isNode(client, node))) return;
  if (!tables[0]?.has_tables) return;
  const { rowCount } = await client.query(
    'select from platform.tenant union all select from platform.user_account limit 1',
  );
  if (rowCount)
    throw new Error('This database has schools or operators of its own. A node starts with an empty database.');
}

/**
 * Whether a database is this node already.
 * @param node.id  undefined if the home has no node of this name
 * @throws if it is another node, also an earlier one of the same name, or has nodes itself
 */
async function isNode(client: pg.Client, { id, name }: { id: number | undefined; name: string }): Promise<boolean> {
  const { rows } = await client.query<{ id: number; name: string; is_this: boolean }>(
    'select id::integer as id, name, is_this from platform.node',
  );
  const other = rows.find((row) => !row.is_this || row.name !== name);
  if (other)
    throw new Error(
      other.is_this ? `This database is already the node ${other.name}.` : 'This database has nodes itself.',
    );
  if (rows[0] && rows[0].id !== id)
    throw new Error(
      `This database was a node ${name} before, which is not the one that the home knows. Use an empty database.`,
    );
  return rows.length > 0;
}

async function requireOtherDatabase(home: pg.Client, node: pg.Client): Promise<void> {
  const identity = async (client: pg.Client) =>
    (
      await client.query<{ identity: string }>(
        "select format('%s %s', system_identifier, current_database()) as identity from pg_control_system()",
      )
    ).rows[0]?.identity;
  if ((await identity(home)) === (await identity(node))) throw new Error('This database is the home itself.');
}

/** @throws if a server does not allow logical replication, or the database cannot become, or is not, this node */
async function requireJoinable(home: pg.Client, name: string, url: string): Promise<void> {
  await requireLogical(home, 'the home');
  await withOwner(url, async (node) => {
    await requireLogical(node, 'the node');
    await requireOtherDatabase(home, node);
    const known = (await readNodes(home)).find((each) => each.name === name);
    await requireUnusedDatabase(node, { id: known?.id, name });
    if (known && known.status !== 'joining' && !(await isNode(node, known).catch(() => false)))
      throw new Error(`There is a node ${name} already, and this database is another one.`);
  });
}

/**
 * Prepares a migrated database: gives its ids a range, and deletes its rows of the tables that it will copy, unless it
 * has subscribed to them already.
 */
async function prepareNode(client: pg.Client, { id, name }: Node): Promise<void> {
  const isKnown = await isNode(client, { id, name });
  // As a replica: the schools of a node that joins again refer to the deleted rows, which return.
  await asReplica(client, async () => {
    if (!(await hasSubscription(client, nodeSubscription(id))))
      for (const table of ['plan', 'setting', 'notification_setting', 'notification_template', 'user_account'])
        await client.query(`delete from platform.${table}`);
    if (!isKnown) {
      await client.query(
        `insert into platform.node (id, name, url, status, is_this) values ($1, $2, '', 'active', true)`,
        [id, name],
      );
      for (const table of [
        'audit_log',
        'session',
        'subscription',
        'second_factor',
        'recovery_code',
        'outbox',
        'tenant',
      ])
        await client.query(`select setval(pg_get_serial_sequence($1, 'id'), $2)`, [`platform.${table}`, firstId(id)]);
    }
    await client.query('select core.define_publications()');
  });
}

/**
 * Drops the subscriptions between a node and the home if one has lost its slot, so that both begin again with a copy.
 * Backups contain no slots, and the positions of a restored server say nothing about the changes that the others have.
 * @param always  also if both have their slots
 */
async function forgetSlots(home: pg.Client, node: pg.Client, id: number, always: boolean): Promise<void> {
  const pairs: [pg.Client, string, pg.Client][] = [
    [node, nodeSubscription(id), home],
    [home, homeSubscription(id), node],
  ];
  const areLost: boolean[] = [];
  for (const pair of pairs) areLost.push(await hasLostSlot(...pair));
  if (!always && !areLost.includes(true)) return;
  // By the one without a slot, which comes last, a repeated command finds what a stopped one has left.
  for (const [subscriber, name, publisher] of areLost[0] ? pairs.toReversed() : pairs) {
    await unsubscribe(subscriber, name);
    await dropSlot(publisher, name);
  }
}

/** Sends the rows of the schools of a node to the home again: a restored node may have older ones than the home. */
const sendSchools = (node: pg.Client) =>
  asReplica(node, () => node.query('update platform.tenant set id = id where node_id is null'));

/** The home, as a node reaches it. */
interface HomeAddress {
  homeUrl: string;
  /** A node that has subscribed to the home keeps the address that it has. */
  keepsHomeUrl?: boolean;
}

interface NewNode extends HomeAddress {
  name: string;
  url: string;
  /** The node had another home, which is lost. */
  isTakenOver?: boolean;
  onStep: (line: string) => void;
}

/** Lets the node copy the tables of the platform. @param always  also if the copies work */
const copyToNode = (home: pg.Client, node: Node, { homeUrl, keepsHomeUrl }: HomeAddress, always = false) =>
  withOwner(node.url, async (client) => {
    const subscription = nodeSubscription(node.id);
    const address = keepsHomeUrl ? await subscribedAddress(client, subscription) : undefined;
    const { rowCount: publications } = await client.query(
      "select from pg_publication where pubname in ('school_facts', 'school_tenants')",
    );
    // From a slot that is older than its publications the home gets an error for ever.
    await forgetSlots(home, client, node.id, always || publications !== 2);
    await prepareNode(client, node);
    await subscribeAndCopy(client, subscription, homeUrl, 'school_platform', address);
  });

/** Lets the home copy the tables of the node. */
async function copyToHome(home: pg.Client, node: Node): Promise<void> {
  const subscription = homeSubscription(node.id);
  await subscribe(home, subscription, node.url, 'school_tenants', 'copy_data = false');
  // The others are new to the subscription, so their rows are copied. The directory of the home stays.
  await home.query(
    `alter subscription ${subscription} set publication school_facts, school_tenants with (refresh = false)`,
  );
  await refreshCopies(home, node, Infinity);
  await withOwner(node.url, sendSchools);
}

/** Lets the home and a node copy each other's tables again. */
export async function copyAgain(home: pg.Client, node: Node, address: HomeAddress): Promise<void> {
  await copyToNode(home, node, address, true);
  await copyToHome(home, node);
}

/**
 * Checks that a node that is added again has the schools that the directory has there. A backup of it that is older than
 * the last move would have others. Then says that it takes the place of the node that the home remembers.
 */
async function readmit(home: pg.Client, node: Node): Promise<void> {
  if (node.status === 'joining') return;
  // The copies of its rows begin again.
  await requireAgreementWith(home, node, ['older copy']);
  await withOwner(node.url, (client) => adoptAsSuccessor(client, node.url));
  await renewToken(home, node);
}

/**
 * Makes a database a node: migrates it, and lets it and the home copy each other's tables. Repeating it after an error
 * continues. If a slot was lost, as when the node was restored from a backup, both copy everything again.
 * @throws if the database is in use, or a server does not allow logical replication
 */
export async function addNode(home: pg.Client, added: NewNode): Promise<Node> {
  const { name, url, onStep } = added;
  await requireCurrent(home, []);
  if (added.isTakenOver) await takeOver(home, name, url);
  await requireJoinable(home, name, url);
  await home.query(`insert into platform.node (name, url) values ($1, $2) on conflict (name) do update set url = $2`, [
    name,
    url,
  ]);
  const node = await findNode(home, name);
  await home.query('select core.define_publications()');
  await migrate({ ownerUrl: url });
  onStep('node: migrated');
  await readmit(home, node);
  await copyToNode(home, node, added);
  onStep('node: has copies of the tables of the platform');
  await copyToHome(home, node);
  onStep('home: copies schools, usage, subscriptions, audit entries and facts of the node');
  await home.query(`update platform.node set status = 'active' where id = $1 and status = 'joining'`, [node.id]);
  return findNode(home, name);
}
