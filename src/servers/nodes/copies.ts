import type pg from 'pg';
import { answerTimeoutMs, withOwnerInTime } from '../../database/pool/pool.ts';
import { asReplica } from '../../database/transaction.ts';
import { homeSubscription } from '../replication/names.ts';
import { waitForTables } from '../replication/subscriptions.ts';
import { firstId, type Node, readNodes } from './nodes.ts';

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
    [homeSubscription(id), published.rows.map(({ name }) => name)],
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
 * Runs `work` with a lock on what the home copies from these nodes: `shared` while these tables must stay as they are,
 * `exclusive` to change them.
 * @param timeoutMs  for each lock; Infinity waits
 * @throws if another process keeps a lock for longer
 */
export async function withCopiesLock<T>(
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

/** Deletes the rows of tables that the home is about to copy: those from before a school moved to the node. */
async function deleteEarlierRows(home: pg.Client, nodeId: number, tables: readonly string[]): Promise<void> {
  const { rows } = await home.query<{ name: string }>(
    `select t.name from unnest($2::text[]) t (name)
     where to_regclass(t.name) not in (
       select r.srrelid from pg_subscription_rel r join pg_subscription s on s.oid = r.srsubid where s.subname = $1)`,
    [homeSubscription(nodeId), tables],
  );
  // Without the triggers that keep audit entries from being deleted. The node has all entries that are still true.
  await asReplica(home, async () => {
    for (const { name } of rows)
      await home.query(`delete from ${name} where tenant_id in (select id from platform.tenant where node_id = $1)`, [
        nodeId,
      ]);
    // Entries about no school, such as those of its job queue. A key that is left would stop the copy.
    if (rows.some(({ name }) => name === 'platform.audit_log'))
      await home.query('delete from platform.audit_log where tenant_id is null and id >= $1 and id < $2', [
        firstId(nodeId),
        firstId(nodeId + 1),
      ]);
  });
}

/**
 * Lets the home copy the tables that a node has published since it joined. Waits while a school that moves from or to
 * the node is paused, and for another call.
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
  const copy = async () => {
    const missing = await missingCopies(home, node);
    if (missing.length === 0) return [];
    const name = homeSubscription(node.id);
    await deleteEarlierRows(home, node.id, missing);
    await home.query(`alter subscription ${name} refresh publication with (copy_data = true)`);
    await waitForTables(home, name, { timeoutMs });
    return missing;
  };
  return withCopiesLock(home, [node.id], 'exclusive', copy, timeoutMs);
}
