import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { answerTimeoutMs, withOwnerInTime } from '../database/pool/pool.ts';
import { unsubscribe } from './replication/subscriptions.ts';
import { readServers, type Server } from './servers.ts';

/** Whether two servers remember the same of each other, or which of them is older than the other one remembers it. */
export type TokenOutcome = 'accepted' | 'home behind' | 'node behind';

/** The name of a node in the tokens of the home. */
const nameOf = (node: Pick<Server, 'id'>) => `node_${String(node.id)}`;

/** The node has an earlier release, without tokens. */
const isUnknown = (error: unknown) =>
  error instanceof pg.DatabaseError && ['42883', '42704', '42P01'].includes(error.code ?? '');

/**
 * Compares what the home and a node remember of each other, and stores which of them is behind.
 * @param renews  whether both get a new token if they agree
 * @throws if the node does not answer in time
 */
export async function exchangeToken(
  home: pg.ClientBase,
  node: Pick<Server, 'id' | 'url'>,
  renews: boolean,
): Promise<TokenOutcome> {
  const name = nameOf(node);
  await home.query('insert into platform.server_token (server) values ($1) on conflict do nothing', [name]);
  const { rows: own } = await home.query<{ row: string }>(
    'select to_json(t)::text as row from platform.server_token t where server = $1',
    [name],
  );
  const token = renews ? randomUUID() : null;
  const answer = await withOwnerInTime(node.url, answerTimeoutMs, (client) =>
    client.query<{ outcome: 'accepted' | 'own_behind' | 'other_behind'; counter: string }>(
      `select outcome, counter
       from core.exchange_token('home', json_populate_record(null::platform.server_token, $1), $2)`,
      [own[0]?.row, token],
    ),
  ).catch((error: unknown) => {
    if (isUnknown(error)) return undefined;
    throw error;
  });
  const { outcome = 'accepted', counter } = answer?.rows[0] ?? {};
  const isAccepted = outcome === 'accepted';
  await home.query(
    `update platform.server_token
     set behind_since = case when $2 = 'other_behind' then coalesce(behind_since, now()) end,
       other_behind_since = case when $2 = 'own_behind' then coalesce(other_behind_since, now()) end
     where server = $1`,
    [name, outcome],
  );
  if (isAccepted && counter !== undefined && token !== null)
    await home.query(
      `update platform.server_token set counter = $2, token = $3, earlier_token = token, is_adopted = false
       where server = $1`,
      [name, counter, token],
    );
  return isAccepted ? 'accepted' : outcome === 'other_behind' ? 'home behind' : 'node behind';
}

/** Why a server must not run jobs, and not create or move schools; null if it may. */
export const refusalOf = async (client: pg.ClientBase): Promise<string | null> =>
  (await client.query<{ refusal: string | null }>('select core.server_refusal() as refusal')).rows[0]?.refusal ?? null;

/** Compares the tokens of the home with those of its nodes that answer, and stores who is behind. */
export async function compareTokens(home: pg.Client): Promise<void> {
  const [, ...nodes] = await readServers(home, '');
  await Promise.all(nodes.map((node) => exchangeToken(home, node, false).catch(() => undefined)));
}

/**
 * @throws if the home, or one of these nodes, is a copy or was restored to an earlier moment, and no administrator has
 *   said which server is valid
 */
export async function requireCurrent(home: pg.Client, nodes: readonly Server[]): Promise<void> {
  await compareTokens(home);
  const refusal = await refusalOf(home);
  if (refusal !== null) throw new Error(refusal);
  const { rows } = await home.query<{ name: string }>(
    `select n.name from platform.node n join platform.server_token t on t.server = 'node_' || n.id
     where n.name = any ($1) and t.other_behind_since is not null`,
    [nodes.map(({ name }) => name)],
  );
  const [node] = rows;
  if (node)
    throw new Error(
      `The node ${node.name} is older than the home remembers it: it was restored to an earlier moment, or a copy of it ` +
        'is in service. Look at `school node verify`, then say what the database is: DATABASE_URL=<its address> ' +
        'school database adopt --as copy or successor',
    );
}

/** Says that this database takes the place of the one that other servers remember. @returns the nodes that know it */
export async function adoptAsSuccessor(client: pg.Client, ownUrl: string): Promise<string[]> {
  const [, ...nodes] = await readServers(client, ownUrl);
  await client.query('select core.note_identity(true)');
  await client.query(
    `insert into platform.server_token (server)
     select unnest($1::text[]) union all select 'home' where (core.this_node()).id is not null
     on conflict do nothing`,
    [nodes.map(nameOf)],
  );
  await client.query('update platform.server_token set is_adopted = true, behind_since = null');
  const told: string[] = [];
  for (const node of nodes)
    await exchangeToken(client, node, true).then(
      () => told.push(node.name),
      () => undefined,
    );
  return told;
}

/**
 * Says that this database is a copy beside the one that schools use: it takes no part in replication, knows no addresses
 * of other servers, runs no jobs, and creates and moves no school.
 */
export async function adoptAsCopy(client: pg.Client): Promise<void> {
  const { rows: subscriptions } = await client.query<{ name: string }>(
    `select subname as name from pg_subscription
     where subname ~ '^school_' and subdbid = (select oid from pg_database where datname = current_database())`,
  );
  // Without their slots, which the other one uses.
  for (const { name } of subscriptions) await unsubscribe(client, name);
  // A copy of the files has them; nobody reads them here.
  await client.query(
    `select pg_drop_replication_slot(slot_name) from pg_replication_slots
     where database = current_database() and slot_name ~ '^school_' and not active`,
  );
  await client.query('select core.note_identity(true)');
  await client.query(`update platform.node set url = 'postgres://copy.invalid/', status = 'joining' where not is_this`);
  await client.query('delete from platform.server_token');
  await client.query('update platform.database_identity set is_copy = true');
}
