import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { classify } from '../database/errors.ts';
import { migrate } from '../database/migrate/migrate.ts';
import { answerTimeoutMs, requireAnswer, withOwner, withOwnerInTime } from '../database/pool/pool.ts';

/** A node as the home knows it. */
export interface Node {
  id: number;
  name: string;
  url: string;
  status: 'joining' | 'active' | 'draining';
  schools: number;
  /** Schools whose creation on the node has not finished. */
  reserved: number;
  /** When the node last answered the check of the worker. */
  answeredAt: Date | null;
  /** The first check since then that it did not answer; null if it answers. */
  unreachableSince: Date | null;
}

/** A node, and whether it answers now. */
export interface NodeState extends Omit<Node, 'url'> {
  isReachable: boolean;
  /** Bytes of changes of the node that the home has not copied yet; null if unknown. */
  lagBytes: number | null;
}

/** Ids of rows that other servers copy start here on a node, so that no two servers give the same id. */
const firstId = (node: number) => node * 10 ** 12;

/** How long the first copies of new tables may take. They have few rows. */
export const copyTimeoutMs = 60_000;

/** The key-value form of a database URL, as PL/Proxy and subscriptions take it. */
export function connectionOptions(url: string): Record<string, string> {
  const { host, port, database, user, password } = new pg.Client({ connectionString: url });
  const { searchParams } = new URL(url);
  return {
    host: searchParams.get('host') ?? host,
    port: String(port),
    dbname: database ?? '',
    user: user ?? '',
    ...(password ? { password } : {}),
    ...Object.fromEntries(
      ['sslmode', 'sslrootcert', 'sslcert', 'sslkey'].flatMap((name) => {
        const value = searchParams.get(name);
        return value === null ? [] : [[name, value]];
      }),
    ),
    connect_timeout: '3',
  };
}

/** `host=… port=…` */
export const connectionString = (options: Record<string, string>): string =>
  Object.entries(options)
    .map(([name, value]) => `${name}='${value.replaceAll(/['\\]/g, '\\$&')}'`)
    .join(' ');

const nodesSql = `
  select n.id::integer, n.name, n.url, n.status,
    count(t.id) filter (where not (t.status = 'deleted' and t.deleted_at is null))::integer as schools,
    count(t.id) filter (where t.status = 'deleted' and t.deleted_at is null)::integer as reserved,
    -- By name from the row: the commands that repair a lost node also work before the home has these columns.
    (to_jsonb(n) ->> 'answered_at')::timestamptz as "answeredAt",
    (to_jsonb(n) ->> 'unreachable_since')::timestamptz as "unreachableSince"
  from platform.node n
  left join platform.tenant t on t.node_id = n.id
  where not n.is_this`;

/** All nodes, in the order in which they were added. */
export const readNodes = async (home: pg.ClientBase): Promise<Node[]> =>
  (await home.query<Node>(`${nodesSql} group by n.id order by n.id`)).rows;

/** @throws if there is none with this name */
export async function findNode(home: pg.ClientBase, name: string): Promise<Node> {
  const node = (await readNodes(home)).find((each) => each.name === name);
  if (!node) throw new Error(`There is no node ${name}.`);
  return node;
}

/** All nodes, and how far the home has copied their changes. */
export async function nodeStates(home: pg.ClientBase): Promise<NodeState[]> {
  const nodes = await readNodes(home);
  return Promise.all(
    nodes.map(async ({ url, ...node }) => {
      const lag = await withOwnerInTime(url, answerTimeoutMs, async (client) => {
        const { rows } = await client.query<{ bytes: string | null }>(
          `select pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn) as bytes
           from pg_replication_slots where slot_name = $1`,
          [subscriptionOf(node.id)],
        );
        return rows[0]?.bytes ?? null;
      }).catch(() => undefined);
      return { ...node, isReachable: lag !== undefined, lagBytes: lag == null ? null : Number(lag) };
    }),
  );
}

/** The result of a check of a node. */
export interface NodeCheck {
  name: string;
  /** Why it did not answer; undefined if it did. */
  error: string | undefined;
  /** Whether the earlier check had the other result. The first one counts as a change only if the node is down. */
  isChanged: boolean;
}

/** @returns the queue of a node. @throws if the node does not answer in time, or if another database does */
const queueOf = async ({ id, url }: Pick<Node, 'id' | 'url'>): Promise<object | undefined> => {
  const { rows } = await withOwnerInTime(url, answerTimeoutMs, (client) =>
    client.query<{ server: string; queue: object }>('select core.server_id() as server, core.queue() as queue'),
  );
  if (rows[0]?.server !== `node_${String(id)}`) throw new Error('The database at its address is not this node.');
  return rows[0].queue;
};

/** Asks all nodes that have joined for their queues, and stores these and whether the nodes answer. */
export async function checkNodes(home: pg.ClientBase): Promise<NodeCheck[]> {
  const nodes = (await readNodes(home)).filter(({ status }) => status !== 'joining');
  const checked = await Promise.all(
    nodes.map(async (node) => {
      try {
        return { node, queue: await queueOf(node), error: undefined, answers: true };
      } catch (cause) {
        return { node, error: cause instanceof Error ? cause.message || String(cause) : String(cause), answers: false };
      }
    }),
  );
  await home.query(
    `update platform.node n
     set answered_at = case when c.answers then now() else n.answered_at end,
       unreachable_since = case when not c.answers then coalesce(n.unreachable_since, now()) end,
       queue = coalesce(c.queue, n.queue)
     from json_to_recordset($1) c (id bigint, answers boolean, queue json)
     where n.id = c.id`,
    [JSON.stringify(checked.map(({ node, answers, queue }) => ({ id: node.id, answers, queue })))],
  );
  return checked.map(({ node, error, answers }) => ({
    name: node.name,
    error,
    isChanged: answers === (node.unreachableSince !== null),
  }));
}

/** The subscription of the home to a node. Like that of a node to the home, it is also the name of the slot. */
export const subscriptionOf = (node: number) => `school_node_${String(node)}`;
const homeSubscriptionOf = (node: number) => `school_home_${String(node)}`;

async function requireLogical(client: pg.ClientBase, server: string): Promise<void> {
  const { rows } = await client.query<{ level: string; is_superuser: boolean }>(
    `select current_setting('wal_level') as level, rolsuper as is_superuser from pg_roles where rolname = current_user`,
  );
  if (rows[0]?.level !== 'logical')
    throw new Error(`Logical replication is off at ${server}. Set wal_level = logical there, and restart it.`);
  if (!rows[0].is_superuser)
    throw new Error(`The user of ${server} must be a superuser, because it creates a subscription.`);
}

export const hasSubscription = async (client: pg.ClientBase, name: string) =>
  (
    await client.query(
      `select from pg_subscription
       where subname = $1 and subdbid = (select oid from pg_database where datname = current_database())`,
      [name],
    )
  ).rowCount === 1;

/** Whether a server keeps its changes for the subscription of another. A slot that took too much WAL is lost. */
export const hasSlot = async (client: pg.ClientBase, name: string) =>
  (
    await client.query("select from pg_replication_slots where slot_name = $1 and wal_status is distinct from 'lost'", [
      name,
    ])
  ).rowCount === 1;

/** Whether a server has a subscription to `publisher` without its slot, as after the publisher was restored. */
const hasLostSlot = async (client: pg.ClientBase, name: string, publisher: pg.ClientBase): Promise<boolean> =>
  (await hasSubscription(client, name)) && !(await hasSlot(publisher, name));

/**
 * Subscribes, or gives a subscription the current address. The slot on the other server has the same name.
 * @param options  of `create subscription`
 */
export async function subscribe(
  client: pg.Client,
  name: string,
  toUrl: string,
  publications: string,
  options: string,
  address = connectionString(connectionOptions(toUrl)),
): Promise<void> {
  const connection = client.escapeLiteral(address);
  if (await hasSubscription(client, name)) {
    // The address or the password may be new.
    await client.query(`alter subscription ${name} connection ${connection}`);
    return;
  }
  // Created by itself, because the subscription would wait forever for the slot of a database of its own server.
  await withOwner(toUrl, (publisher) =>
    publisher.query(
      `select pg_create_logical_replication_slot($1, 'pgoutput')
       where not exists (select from pg_replication_slots where slot_name = $1)`,
      [name],
    ),
  );
  await client.query(
    `create subscription ${name} connection ${connection} publication ${publications}
     with (create_slot = false, ${options})`,
  );
}

/** How long a subscriber may keep a slot from being dropped, by connecting again and again. */
const dropSlotTimeoutMs = 5_000;

/** Drops a replication slot, if it exists, and ends the connection of the subscriber that uses it. */
export async function dropSlot(client: pg.ClientBase, name: string): Promise<void> {
  const end = Date.now() + dropSlotTimeoutMs;
  for (;;) {
    await client.query('select pg_terminate_backend(active_pid, 5000) from pg_replication_slots where slot_name = $1', [
      name,
    ]);
    try {
      await client.query('select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1', [
        name,
      ]);
      return;
    } catch (error) {
      // object_in_use: the subscriber has connected again.
      if (!(Error.isError(error) && 'code' in error && error.code === '55006') || Date.now() > end) throw error;
      await pause(100);
    }
  }
}

interface CopyOptions {
  timeoutMs?: number;
  onProgress?: (tables: { copied: number; total: number }) => void;
}

/** Waits until all tables of a subscription are copied. @throws if that takes longer than `timeoutMs` */
export async function waitForTables(
  client: pg.Client,
  name: string,
  { timeoutMs = copyTimeoutMs, onProgress = () => undefined }: CopyOptions = {},
): Promise<void> {
  const end = Date.now() + timeoutMs;
  for (;;) {
    const { rows } = await client.query<{ missing: string | null; copied: number; total: number }>(
      `select string_agg(r.srrelid::regclass::text, ', ') filter (where r.srsubstate <> 'r') as missing,
         count(*) filter (where r.srsubstate = 'r')::integer as copied, count(*)::integer as total
       from pg_subscription_rel r
       join pg_subscription s on s.oid = r.srsubid
       where s.subname = $1`,
      [name],
    );
    const [{ missing, copied, total } = { missing: null, copied: 0, total: 0 }] = rows;
    onProgress({ copied, total });
    if (missing === null) return;
    if (Date.now() > end)
      throw new Error(`These tables were not copied in time: ${missing}. See the log of the server.`);
    await pause(50);
  }
}

/** Subscribes, with a copy of the rows that exist. @throws if the copies take too long */
export async function subscribeAndCopy(
  client: pg.Client,
  name: string,
  toUrl: string,
  publications: string,
): Promise<void> {
  await subscribe(client, name, toUrl, publications, 'copy_data = true');
  await waitForTables(client, name);
}

/**
 * Drops a subscription, but not its slot: the other server no longer exists, or `dropSlot` follows, which also succeeds
 * if a stopped command has left only one of both.
 */
export async function unsubscribe(client: pg.Client, name: string): Promise<void> {
  if (!(await hasSubscription(client, name))) return;
  await client.query(`alter subscription ${name} disable`);
  await client.query(`alter subscription ${name} set (slot_name = none)`);
  await client.query(`drop subscription ${name}`);
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

/**
 * Prepares a migrated database: gives its ids a range, and deletes its rows of the tables that it will copy, unless it
 * has subscribed to them already.
 */
async function prepareNode(client: pg.Client, { id, name }: { id: number; name: string }): Promise<void> {
  const isKnown = await isNode(client, { id, name });
  await client.query('begin');
  try {
    if (!(await hasSubscription(client, homeSubscriptionOf(id)))) {
      // The schools of a node that joins again refer to these rows, which return.
      await client.query('set local session_replication_role = replica');
      for (const table of ['plan', 'setting', 'notification_setting', 'notification_template', 'user_account'])
        await client.query(`delete from platform.${table}`);
    }
    if (!isKnown) {
      await client.query(
        `insert into platform.node (id, name, url, status, is_this) values ($1, $2, '', 'active', true)`,
        [id, name],
      );
      for (const table of ['audit_log', 'session', 'subscription', 'second_factor', 'recovery_code', 'tenant'])
        await client.query(`select setval(pg_get_serial_sequence($1, 'id'), $2)`, [`platform.${table}`, firstId(id)]);
    }
    await client.query('select core.define_publications()');
    await client.query('commit');
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw error;
  }
}

/**
 * Drops the subscriptions between a node and the home if one has lost its slot, so that both begin again with a copy.
 * Backups contain no slots, and the positions of a restored server say nothing about the changes that the others have.
 */
async function forgetLostSlots(home: pg.Client, node: pg.Client, id: number): Promise<void> {
  const pairs: [pg.Client, string, pg.Client][] = [
    [node, homeSubscriptionOf(id), home],
    [home, subscriptionOf(id), node],
  ];
  const areLost = await Promise.all(pairs.map((pair) => hasLostSlot(...pair)));
  if (!areLost.includes(true)) return;
  // By the one without a slot, which comes last, a repeated command finds what a stopped one has left.
  for (const [subscriber, name, publisher] of areLost[0] ? pairs.toReversed() : pairs) {
    await unsubscribe(subscriber, name);
    await dropSlot(publisher, name);
  }
}

/** The address under which a server has subscribed; undefined if it has not. */
const subscribedAddress = async (client: pg.ClientBase, name: string): Promise<string | undefined> =>
  (
    await client.query<{ address: string }>(
      `select subconninfo as address from pg_subscription
       where subname = $1 and subdbid = (select oid from pg_database where datname = current_database())`,
      [name],
    )
  ).rows[0]?.address;

interface NewNode {
  name: string;
  url: string;
  /** The home, as the node reaches it. */
  homeUrl: string;
  /** A node that has subscribed to the home keeps the address that it has. */
  keepsHomeUrl?: boolean;
  onStep: (line: string) => void;
}

/**
 * Makes a database a node: migrates it, and lets it and the home copy each other's tables. Repeating it after an error
 * continues. If a slot was lost, as when the node was restored from a backup, both copy everything again.
 * @throws if the database is in use, or a server does not allow logical replication
 */
export async function addNode(
  home: pg.Client,
  { name, url, homeUrl, keepsHomeUrl = false, onStep }: NewNode,
): Promise<Node> {
  await requireLogical(home, 'the home');
  await withOwner(url, async (node) => {
    await requireLogical(node, 'the node');
    await refuseSameDatabase(home, node);
    const known = (await readNodes(home)).find((each) => each.name === name);
    await requireUnusedDatabase(node, { id: known?.id, name });
    if (known && known.status !== 'joining' && !(await isNode(node, known).catch(() => false)))
      throw new Error(`There is a node ${name} already, and this database is another one.`);
  });
  await home.query(`insert into platform.node (name, url) values ($1, $2) on conflict (name) do update set url = $2`, [
    name,
    url,
  ]);
  const node = await findNode(home, name);
  await home.query('select core.define_publications()');
  await migrate({ ownerUrl: url });
  onStep('node: migrated');
  await withOwner(url, async (client) => {
    const subscription = homeSubscriptionOf(node.id);
    const address = keepsHomeUrl ? await subscribedAddress(client, subscription) : undefined;
    await forgetLostSlots(home, client, node.id);
    await prepareNode(client, node);
    await subscribe(client, subscription, homeUrl, 'school_platform', 'copy_data = true', address);
    await waitForTables(client, subscription, {});
  });
  onStep('node: has copies of the tables of the platform');
  const subscription = subscriptionOf(node.id);
  await subscribe(home, subscription, url, 'school_tenants', 'copy_data = false');
  // The others are new to the subscription, so their rows are copied. The directory of the home stays.
  await home.query(
    `alter subscription ${subscription} set publication school_facts, school_tenants with (refresh = false)`,
  );
  await refreshCopies(home, node, Infinity);
  await withOwner(url, sendSchools);
  onStep('home: copies schools, usage, subscriptions, audit entries and facts of the node');
  await home.query(`update platform.node set status = 'active' where id = $1 and status = 'joining'`, [node.id]);
  return findNode(home, name);
}

/** Sends the rows of the schools of a node to the home again: a restored node may have older ones than the home. */
async function sendSchools(node: pg.Client): Promise<void> {
  await node.query('begin; set local session_replication_role = replica');
  await node.query('update platform.tenant set id = id where node_id is null');
  await node.query('commit');
}

async function refuseSameDatabase(home: pg.Client, node: pg.Client): Promise<void> {
  const identity = async (client: pg.Client) =>
    (
      await client.query<{ identity: string }>(
        "select format('%s %s', system_identifier, current_database()) as identity from pg_control_system()",
      )
    ).rows[0]?.identity;
  if ((await identity(home)) === (await identity(node))) throw new Error('This database is the home itself.');
}

/** The tables that a node publishes and the home does not copy yet: those of a new release. */
async function missingCopies(home: pg.ClientBase, { id, url }: Pick<Node, 'id' | 'url'>): Promise<string[]> {
  const published = await withOwnerInTime(url, answerTimeoutMs, (node) =>
    node.query<{ name: string }>(
      `select distinct format('%I.%I', schemaname, tablename) as name from pg_publication_tables
       where pubname in ('school_facts', 'school_tenants')`,
    ),
  );
  if (published.rows.length === 0) throw new Error('The node publishes no tables. Repeat: school node add');
  const { rows } = await home.query<{ name: string }>(
    `select p.name
     from unnest($2::text[]) p (name)
     where not exists (
       select from pg_subscription_rel r
       join pg_subscription s on s.oid = r.srsubid and s.subdbid = (
         select oid from pg_database where datname = current_database())
       where s.subname = $1 and r.srrelid = to_regclass(p.name) and r.srsubstate = 'r')
     order by p.name`,
    [subscriptionOf(id), published.rows.map(({ name }) => name)],
  );
  return rows.map(({ name }) => name);
}

/**
 * @throws if the home does not copy all tables of a node: rows of a school that moves could be lost there. Also if the
 *   node is being removed
 */
export async function requireCopies(home: pg.ClientBase, nodeId: number): Promise<void> {
  const node = (await readNodes(home)).find(({ id }) => id === nodeId);
  if (!node || node.status === 'joining')
    throw new Error(`The node ${node?.name ?? String(nodeId)} is being removed, or has not joined yet.`);
  if ((await missingCopies(home, node)).length > 0)
    throw new Error(`The home does not copy all tables of ${node.name} yet. Run: school node refresh ${node.name}`);
}

/**
 * Runs `work` with a lock on what the home copies from these nodes.
 * @param timeoutMs  for each lock; Infinity waits
 * @throws if another process keeps a lock for longer
 */
async function withCopies<T>(
  home: pg.ClientBase,
  nodeIds: readonly number[],
  mode: 'shared' | 'exclusive',
  work: () => Promise<T>,
  timeoutMs = Infinity,
): Promise<T> {
  const suffix = mode === 'shared' ? '_shared' : '';
  const isLimited = timeoutMs !== Infinity;
  if (isLimited) await home.query("select set_config('lock_timeout', $1, false)", [String(timeoutMs)]);
  try {
    for (const id of nodeIds) await home.query(`select pg_advisory_lock${suffix}(core.lock_key('copies', $1))`, [id]);
    if (isLimited) await home.query('reset lock_timeout');
    return await work();
  } finally {
    if (isLimited) await home.query('reset lock_timeout').catch(() => undefined);
    for (const id of nodeIds)
      await home.query(`select pg_advisory_unlock${suffix}(core.lock_key('copies', $1))`, [id]).catch(() => undefined);
  }
}

/** Runs `work` while the tables stay that the home copies from these nodes. `refreshCopies` waits for it. */
export const withSharedSubscriptionLock = <T>(
  home: pg.ClientBase,
  nodeIds: readonly number[],
  work: () => Promise<T>,
): Promise<T> => withCopies(home, nodeIds, 'shared', work);

/**
 * Lets the home copy the tables that a node has published since it joined. Waits while a school that moves from or to
 * the node is closed, and for another call.
 * @param timeoutMs  for that, and for the copies
 * @returns the tables that are new
 * @throws if it takes longer, or if the node does not answer
 */
export async function refreshCopies(
  home: pg.Client,
  node: Pick<Node, 'id' | 'url'>,
  timeoutMs: number,
): Promise<string[]> {
  if ((await missingCopies(home, node)).length === 0) return [];
  const name = subscriptionOf(node.id);
  const copy = async () => {
    const missing = await missingCopies(home, node);
    if (missing.length === 0) return [];
    const { rows } = await home.query<{ name: string }>(
      `select t.name from unnest($2::text[]) t (name)
       where to_regclass(t.name) not in (
         select r.srrelid from pg_subscription_rel r join pg_subscription s on s.oid = r.srsubid where s.subname = $1)`,
      [name, missing],
    );
    // Rows from before the school moved to the node. The node has all that are still true.
    await home.query('begin');
    try {
      // Without the triggers that keep audit entries from being deleted.
      await home.query('set local session_replication_role = replica');
      for (const { name: table } of rows)
        await home.query(
          `delete from ${table} where tenant_id in (select id from platform.tenant where node_id = $1)`,
          [node.id],
        );
      await home.query('commit');
    } catch (error) {
      await home.query('rollback').catch(() => undefined);
      throw error;
    }
    await home.query(`alter subscription ${name} refresh publication with (copy_data = true)`);
    await waitForTables(home, name, { timeoutMs });
    return missing;
  };
  return withCopies(home, [node.id], 'exclusive', copy, timeoutMs);
}

/** Gives a node no new schools, or gives it some again. */
export async function setDraining(home: pg.Client, name: string, isDraining: boolean): Promise<void> {
  const node = await findNode(home, name);
  if (node.status === 'joining') throw new Error(`The node ${name} has not joined yet. Repeat: school node add`);
  await home.query('update platform.node set status = $2 where id = $1', [node.id, isDraining ? 'draining' : 'active']);
}

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
async function isLostNode({ name, url }: Pick<Node, 'name' | 'url'>): Promise<boolean> {
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

/**
 * The subdomains of the schools that other servers can put in service again when a node is lost: those that were moving
 * to it, or whose tables the earlier server has kept. Servers that are lost too are left out.
 */
async function schoolsKeptElsewhere(home: pg.ClientBase, nodeId: number): Promise<string[]> {
  const idsOn = async (server: pg.ClientBase) =>
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
  const others = (await readNodes(home)).filter(({ id }) => id !== nodeId);
  const found = await Promise.all([
    idsOn(home),
    ...others.map(({ url }) =>
      withOwnerInTime(url, answerTimeoutMs, idsOn).catch((error: unknown) => {
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

/**
 * The schools in the database of a node that is to be removed: those that were purged, and the others.
 * @throws if a move to or from the node is not finished or not confirmed
 */
async function schoolsToLeave(node: pg.Client, name: string): Promise<{ purged: string[]; others: string[] }> {
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
  const { rows } = await node.query<{ id: string; is_purged: boolean }>(
    `select id, status = 'deleted' and schema_version = 0 and to_regnamespace('tenant_' || id) is null as is_purged
     from platform.tenant
     order by id`,
  );
  const ids = (isPurged: boolean) => rows.filter(({ is_purged }) => is_purged === isPurged).map(({ id }) => id);
  return { purged: ids(true), others: ids(false) };
}

/**
 * Removes a node that has no schools besides purged ones. Its database stays. Purged schools belong to the home then, so
 * that their files are imported there. Waits while a school that moves from or to the node is closed.
 * @param options.isLost  the server no longer exists
 * @param options.deletesSchools  marks all schools of the lost server as purged, and removes its reservations
 * @throws if it has other schools, also deleted ones, or a move to it is not finished; for a lost server, if another
 *   server has kept the tables of a school
 */
export async function removeNode(
  home: pg.Client,
  name: string,
  { isLost = false, deletesSchools = false } = {},
): Promise<void> {
  const { id, url } = await findNode(home, name);
  if (deletesSchools && !(await isLostNode({ name, url })))
    throw new Error(`The node ${name} answers. Move its schools to other servers instead.`);
  // A move that has only begun finds that the node no longer takes part before it closes its school.
  await withCopies(home, [id], 'exclusive', async () => {
    const { purged, others } = isLost
      ? { purged: [], others: [] }
      : await withOwnerInTime(url, answerTimeoutMs, (node) => schoolsToLeave(node, name));
    const kept = isLost ? await schoolsKeptElsewhere(home, id) : [];
    if (kept.length > 0)
      throw new Error(
        `Other servers have the tables of schools that moved to the node ${name}, or were moving there. No command ` +
          'finds these tables after its removal. Put the schools in service again first:\n' +
          kept.map((subdomain) => `school tenant move ${subdomain} ${name} --cancel --lost`).join('\n'),
      );
    await home.query('begin');
    try {
      // No new schools from now on. Repeating the command continues.
      await home.query('select from platform.node where id = $1 for update', [id]);
      await home.query(`update platform.node set status = 'joining' where id = $1`, [id]);
      if (deletesSchools) {
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
      await home.query('commit');
    } catch (error) {
      await home.query('rollback').catch(() => undefined);
      throw error;
    }
  });
  await unsubscribe(home, subscriptionOf(id));
  if (!isLost)
    await withOwner(url, async (node) => {
      await dropSlot(node, subscriptionOf(id));
      await unsubscribe(node, homeSubscriptionOf(id));
      // Together: a node that publishes nothing would look like one whose tables the home has copied.
      await node.query('begin; drop publication if exists school_facts, school_tenants');
      await node.query('delete from platform.node');
      await node.query('commit');
    });
  await dropSlot(home, homeSubscriptionOf(id));
  await home.query('delete from platform.node where id = $1', [id]);
}

/** The connection ended, or the state of the transaction is unknown. A statement that was canceled was rolled back. */
const isUncertain = (error: unknown) =>
  !(error instanceof pg.DatabaseError) || /^(57P|08|40003$)/.test(error.code ?? '');

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
  /** Nodes that have not answered this call. */
  const avoided: number[] = [];
  for (;;) {
    const { rows } = await home.query<{
      id: number | null;
      node_id: number | null;
      node: string | null;
      url: string | null;
      reserved_at: string | null;
    }>(
      `select r.id::double precision as id, n.id::integer as node_id, n.name as node, n.url,
         r.reserved_at::text as reserved_at
       from core.school_reserve($1, $2, $3) r
       left join platform.node n on n.id = r.node_id`,
      [JSON.stringify(school), name ?? null, avoided],
    );
    const { id, node_id, node, url, reserved_at } = rows[0] ?? {};
    // A school at home that exists has an id and no node: creating it again is refused.
    if (url == null || id == null || node == null || node_id == null) return create(home, {});
    // An earlier call made the reservation. The node may have created its school.
    const isEarlier = reserved_at === null;
    const release = () => home.query('select core.school_release($1, $2)', [id, reserved_at]);
    const uncertain = (cause: unknown) =>
      new Error(
        `The node ${node} did not answer. It may have created the school ${school.subdomain}: look at \`school tenant ` +
          'list`. If not, the subdomain stays reserved: repeat the command to continue, or remove the reservation with ' +
          '`school node release`.',
        { cause },
      );
    const work = { hasBegun: false };
    try {
      await requireAnswer(url);
      return await withOwner(url, (client) => {
        work.hasBegun = true;
        return create(client, { reserved_id: id });
      });
    } catch (error) {
      if (work.hasBegun ? isUncertain(error) : isEarlier) throw uncertain(error);
      await release();
      if (work.hasBegun) throw error;
      // The node has surely not got the school.
      if (name !== undefined || avoided.includes(node_id))
        throw new Error(`The node ${node} does not answer. No school was created.`, { cause: error });
      avoided.push(node_id);
    }
  }
}

/** A reservation of a school, and whether it was removed. */
export interface Reservation {
  id: number;
  subdomain: string;
  node: string;
  outcome: 'released' | 'created' | 'unknown';
}

/**
 * Removes the reservations of schools whose creation has stopped: those that the node does not have.
 * @param minutes  only reservations that are older: a creation that is still running must keep its own
 * @returns all of them: `released`; `created`, if the node has the school and its copy is on the way; `unknown`, if the
 *   node does not answer, or still imports the school
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
    const isCreated = await withOwnerInTime(url, answerTimeoutMs, async (client) => {
      const isThere = async () =>
        (await client.query('select from platform.tenant where id = $1', [id])).rowCount === 1;
      // Before the lock, which keeps the requests of a school out.
      if (await isThere()) return true;
      // An import holds this lock until its transaction ends; its school is not visible before.
      const { rows: locks } = await client.query<{ is_free: boolean }>(
        'select pg_try_advisory_lock(core.tenant_lock_key($1)) as is_free',
        [id],
      );
      return (await isThere()) || (locks[0]?.is_free ? false : undefined);
    }).catch(() => undefined);
    if (isCreated === false) await home.query('select core.school_release($1, $2)', [id, reserved_at]);
    const outcome = isCreated === undefined ? 'unknown' : isCreated ? 'created' : 'released';
    reservations.push({ id, subdomain, node, outcome });
  }
  return reservations;
}
