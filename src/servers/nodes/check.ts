import type pg from 'pg';
import { answerTimeoutMs, withOwnerInTime } from '../../database/pool/pool.ts';
import { reasonOf } from '../../domain/reason.ts';
import { type CopyState, copyState, slotState, subscriptionState } from '../replication/copy-state.ts';
import { homeSubscription, nodeSubscription } from '../replication/names.ts';
import { requireServer } from '../servers.ts';
import { renewToken, type TokenOutcome } from '../tokens.ts';
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

/** What the home knows of its copies from and to a node. */
async function copiesAtHome(home: pg.ClientBase, { id }: Node) {
  return {
    fromNode: await subscriptionState(home, homeSubscription(id)),
    toNode: await slotState(home, nodeSubscription(id)),
  };
}

/** What a node knows of its copies from and to the home. @throws if it does not answer in time */
const copiesAtNode = ({ id, url }: Node) =>
  withOwnerInTime(url, answerTimeoutMs, async (client) => {
    await requireServer(client, { id });
    const { rows } = await client.query<{ bytes: string | null }>(
      `select pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn) as bytes
       from pg_replication_slots where slot_name = $1`,
      [homeSubscription(id)],
    );
    return {
      bytes: rows[0]?.bytes ?? null,
      toHome: await slotState(client, homeSubscription(id)),
      fromHome: await subscriptionState(client, nodeSubscription(id)),
    };
  });

/** All nodes, and how far the home has copied their changes. */
export async function nodeStates(home: pg.ClientBase): Promise<NodeState[]> {
  const nodes: { node: Node; atHome: Awaited<ReturnType<typeof copiesAtHome>> }[] = [];
  for (const node of await readNodes(home)) nodes.push({ node, atHome: await copiesAtHome(home, node) });
  return Promise.all(
    nodes.map(async ({ node: { url, ...node }, atHome }) => {
      const atNode = await copiesAtNode({ ...node, url }).catch(() => undefined);
      const unknown = { ...node, isReachable: false, toHome: null, toNode: null, lagBytes: null };
      if (!atNode) return unknown;
      const toHome = copyState(atHome.fromNode, atNode.toHome);
      const toNode = copyState(atNode.fromHome, atHome.toNode);
      const lagBytes = atNode.bytes === null || toHome === 'taken by another database' ? null : Number(atNode.bytes);
      return { ...node, isReachable: true, toHome, toNode, lagBytes };
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
const queueOf = ({ id, url }: Node): Promise<object | undefined> =>
  withOwnerInTime(url, answerTimeoutMs, async (client) => {
    await requireServer(client, { id });
    const { rows } = await client.query<{ queue: object }>('select core.queue() as queue');
    return rows[0]?.queue;
  });

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
  // Also where another database has answered, so that no worker serves it.
  for (const { node } of checked)
    await renewToken(home, node).then(
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
