import type pg from 'pg';
import { answerTimeoutMs, withOwnerInTime } from '../../database/pool/pool.ts';
import { reasonOf } from '../../domain/reason.ts';
import { homeSubscription } from '../replication/names.ts';
import { type Node, readJoinedNodes, readNodes } from './nodes.ts';

/** A node, and whether it answers now. */
export interface NodeState extends Omit<Node, 'url'> {
  isReachable: boolean;
  /** Bytes of changes of the node that the home has not copied yet; null if unknown. */
  lagBytes: number | null;
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
          [homeSubscription(node.id)],
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
async function queueOf({ id, url }: Node): Promise<object> {
  const { rows } = await withOwnerInTime(url, answerTimeoutMs, (client) =>
    client.query<{ server: string; queue: object }>('select core.server_id() as server, core.queue() as queue'),
  );
  if (rows[0]?.server !== `node_${String(id)}`) throw new Error('The database at its address is not this node.');
  return rows[0].queue;
}

/** Asks all nodes that have joined for their queues, and stores these and whether the nodes answer. */
export async function checkNodes(home: pg.ClientBase): Promise<NodeCheck[]> {
  const nodes = await readJoinedNodes(home);
  const checked = await Promise.all(
    nodes.map((node) =>
      queueOf(node).then(
        (queue) => ({ node, queue, error: undefined, answers: true }),
        (error: unknown) => ({ node, queue: undefined, error: reasonOf(error), answers: false }),
      ),
    ),
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
