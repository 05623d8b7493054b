import type pg from 'pg';
import { answerTimeoutMs, withOwnerInTime } from '../../database/pool/pool.ts';
import { reasonOf } from '../../domain/reason.ts';
import { type CopyState, copyState } from '../replication/copy-state.ts';
import { homeSubscription, nodeSubscription } from '../replication/names.ts';
import { exchangeToken, type TokenOutcome } from '../tokens.ts';
import { type Node, readJoinedNodes, readNodes } from './nodes.ts';

/** A node, and whether it answers now. */
export interface NodeState extends Omit<Node, 'url'> {
  isReachable: boolean;
  /** What the subscription of the home to the node does, and that of the node to the home; null if unknown. */
  toHome: CopyState | null;
  toNode: CopyState | null;
  /** Bytes of changes of the node that the home has not copied yet; null if unknown, or if another database copies. */
  lagBytes: number | null;
}

/** All nodes, and how far the home has copied their changes. */
export async function nodeStates(home: pg.ClientBase): Promise<NodeState[]> {
  const nodes = await readNodes(home);
  return Promise.all(
    nodes.map(async ({ url, ...node }) => {
      const found = await withOwnerInTime(url, answerTimeoutMs, async (client) => {
        const { rows } = await client.query<{ bytes: string | null }>(
          `select pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn) as bytes
           from pg_replication_slots where slot_name = $1`,
          [homeSubscription(node.id)],
        );
        const toHome = await copyState(home, client, homeSubscription(node.id));
        const toNode = await copyState(client, home, nodeSubscription(node.id));
        return { bytes: rows[0]?.bytes ?? null, toHome, toNode };
      }).catch(() => undefined);
      const { bytes = null, toHome = null, toNode = null } = found ?? {};
      const lagBytes = bytes === null || toHome === 'taken by another database' ? null : Number(bytes);
      return { ...node, isReachable: found !== undefined, toHome, toNode, lagBytes };
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
  /** Which of the two servers is older than the other one remembers it; undefined if the node did not answer. */
  tokens: TokenOutcome | undefined;
}

/** @returns the queue of a node. @throws if the node does not answer in time, or if another database does */
async function queueOf({ id, url }: Node): Promise<object> {
  const { rows } = await withOwnerInTime(url, answerTimeoutMs, (client) =>
    client.query<{ server: string; queue: object }>('select core.server_id() as server, core.queue() as queue'),
  );
  if (rows[0]?.server !== `node_${String(id)}`) throw new Error('The database at its address is not this node.');
  return rows[0].queue;
}

/**
 * Asks all nodes that have joined for their queues, and stores these and whether the nodes answer. Renews the tokens by
 * which servers notice that one of them was restored to an earlier moment.
 */
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
  const tokens = new Map<number, TokenOutcome>();
  for (const { node, answers } of checked)
    if (answers)
      await exchangeToken(home, node, true).then(
        (outcome) => tokens.set(node.id, outcome),
        () => undefined,
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
    tokens: tokens.get(node.id),
  }));
}
