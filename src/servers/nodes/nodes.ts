import type pg from 'pg';

/** Ids of rows that other servers copy start here on a node, so that no two servers give the same id. */
export const firstId = (node: number): number => node * 10 ** 12;

/** A node as the home knows it. */
export interface Node {
  id: number;
  name: string;
  url: string;
  /** A node that is being removed is `joining` too. */
  status: 'joining' | 'active' | 'draining';
  schools: number;
  /** Schools whose creation on the node has not finished. */
  reserved: number;
  /** When the node last answered the check of the worker. */
  answeredAt: Date | null;
  /** The first check since then that it did not answer; null if it answers. */
  unreachableSince: Date | null;
}

/** All nodes, in the order in which they were added. */
export const readNodes = async (home: pg.ClientBase): Promise<Node[]> =>
  (
    await home.query<Node>(
      `select n.id::integer, n.name, n.url, n.status,
         count(t.id) filter (where not (t.status = 'deleted' and t.deleted_at is null))::integer as schools,
         count(t.id) filter (where t.status = 'deleted' and t.deleted_at is null)::integer as reserved,
         -- By name from the row: the commands that repair a lost node also work before the home has these columns.
         (to_jsonb(n) ->> 'answered_at')::timestamptz as "answeredAt",
         (to_jsonb(n) ->> 'unreachable_since')::timestamptz as "unreachableSince"
       from platform.node n
       left join platform.tenant t on t.node_id = n.id
       where not n.is_this
       group by n.id
       order by n.id`,
    )
  ).rows;

/** All nodes that have joined. */
export const readJoinedNodes = async (home: pg.ClientBase): Promise<Node[]> =>
  (await readNodes(home)).filter(({ status }) => status !== 'joining');

/** @throws if there is none with this name */
export async function findNode(home: pg.ClientBase, name: string): Promise<Node> {
  const node = (await readNodes(home)).find((each) => each.name === name);
  if (!node) throw new Error(`There is no node ${name}.`);
  return node;
}

/** Gives a node no new schools, or gives it some again. */
export async function setDraining(home: pg.Client, name: string, isDraining: boolean): Promise<void> {
  const node = await findNode(home, name);
  if (node.status === 'joining') throw new Error(`The node ${name} has not joined yet. Repeat: school node add`);
  await home.query('update platform.node set status = $2 where id = $1', [node.id, isDraining ? 'draining' : 'active']);
}
