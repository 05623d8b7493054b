import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { inTransaction } from '../database/transaction.ts';
import { answerTimeoutMs, withOwnerInTime } from '../database/pool/pool.ts';
import { compareServers, raiseSchoolIds } from './claims.ts';
import { unsubscribe } from './replication/subscriptions.ts';
import { readServers, type Server } from './servers.ts';

/** Whether two servers remember the same of each other, or which of them is older than the other one remembers it. */
export type TokenOutcome = 'accepted' | 'home behind' | 'node behind';

/** The name of a node in the tokens of the home. */
const nameOf = (node: Pick<Server, 'id'>) => `node_${String(node.id)}`;

/** The node has an earlier release, without tokens. */
const isUnknown = (error: unknown) =>
  error instanceof pg.DatabaseError && ['42883', '42704', '42P01'].includes(error.code ?? '');

interface Answer {
  outcome: 'accepted' | 'own_behind' | 'other_behind';
  counter: string;
}

/** The row of the home for a node, as JSON. */
async function readOwn(home: pg.ClientBase, name: string): Promise<string> {
  await home.query('insert into platform.server_token (server) values ($1) on conflict do nothing', [name]);
  const { rows } = await home.query<{ row: string }>(
    'select to_json(t)::text as row from platform.server_token t where server = $1',
    [name],
  );
  return rows[0]?.row ?? '{}';
}

/** What a node says to the row of the home; undefined if it has an earlier release. @throws if it does not answer */
async function ask(name: string, url: string, own: string, token: string | null): Promise<Answer | undefined> {
  try {
    const { rows } = await withOwnerInTime(url, answerTimeoutMs, (client) =>
      client.query<Answer>(
        // Another database says nothing to it: that of the node is not in service.
        `select coalesce(outcome, 'own_behind') as outcome, counter
         from core.exchange_token($3, 'home', json_populate_record(null::platform.server_token, $1), $2)`,
        [own, token, name],
      ),
    );
    return rows[0];
  } catch (error) {
    if (isUnknown(error)) return undefined;
    throw error;
  }
}

/** Stores at home what a node has said. */
async function store(
  home: pg.ClientBase,
  name: string,
  { outcome, counter }: Answer,
  token: string | null,
): Promise<TokenOutcome> {
  await home.query(
    `update platform.server_token
     set behind_since = case when $2 = 'other_behind' then coalesce(behind_since, now()) end,
       other_behind_since = case when $2 = 'own_behind' then coalesce(other_behind_since, now()) end
     where server = $1`,
    [name, outcome],
  );
  if (outcome === 'accepted' && token !== null)
    await home.query(
      `update platform.server_token set counter = $2, token = $3, earlier_token = token, is_adopted = false
       where server = $1`,
      [name, counter, token],
    );
  return outcomes[outcome];
}

const outcomes = { accepted: 'accepted', other_behind: 'home behind', own_behind: 'node behind' } as const;

/**
 * Renews what the home and a node remember of each other if they agree, and stores which of them is behind.
 * @throws if the node does not answer in time
 */
export async function renewToken(home: pg.ClientBase, node: Pick<Server, 'id' | 'url'>): Promise<TokenOutcome> {
  const name = nameOf(node);
  const token = randomUUID();
  return inTransaction(home, async () => {
    // One renewal at a time: the home has to store what the node has stored last.
    const own = await readOwn(home, name);
    await home.query('select from platform.server_token where server = $1 for update', [name]);
    const answer = await ask(name, node.url, own, token);
    return answer ? store(home, name, answer, token) : 'accepted';
  });
}

/** Why a server must not run jobs, and not create or move schools; null if it may. */
export const refusalOf = async (client: pg.ClientBase): Promise<string | null> =>
  (await client.query<{ refusal: string | null }>('select core.server_refusal() as refusal')).rows[0]?.refusal ?? null;

/** The names of the nodes that are older than the home remembers them, or at whose address another database answers. */
export const nodesBehind = async (home: pg.ClientBase): Promise<string[]> =>
  (
    await home.query<{ name: string }>(
      `select n.name from platform.node n join platform.server_token t on t.server = 'node_' || n.id
       where t.other_behind_since is not null order by n.id`,
    )
  ).rows.map(({ name }) => name);

/**
 * After a change that a server may not forget, such as a move: a server that is restored to the moment before it is then
 * older than the others remember it. Twice, because the token before the last one is accepted too.
 */
export async function renewTokens(home: pg.ClientBase, servers: readonly Server[]): Promise<void> {
  for (const node of servers.filter(({ id }) => id !== null))
    for (let n = 0; n < 2; n++) await renewToken(home, node).catch(() => undefined);
}

/** Compares the tokens of the home with those of its nodes that answer, and stores who is behind. */
export async function compareTokens(home: pg.Client): Promise<void> {
  const [, ...nodes] = await readServers(home, '');
  const owns: { name: string; url: string; own: string }[] = [];
  for (const node of nodes) owns.push({ name: nameOf(node), url: node.url, own: await readOwn(home, nameOf(node)) });
  const answers = await Promise.all(
    owns.map(async ({ name, url, own }) => ({ name, answer: await ask(name, url, own, null).catch(() => undefined) })),
  );
  for (const { name, answer } of answers) if (answer) await store(home, name, answer, null);
}

/**
 * @throws if the home, or one of these nodes, is a copy or was restored to an earlier moment, and no administrator has
 *   said which server is valid
 */
export async function requireCurrent(home: pg.Client, nodes: readonly Server[]): Promise<void> {
  await compareTokens(home);
  const refusal = await refusalOf(home);
  if (refusal !== null) throw new Error(refusal);
  const behind = await nodesBehind(home);
  const node = nodes.find(({ name }) => behind.includes(name));
  if (node)
    throw new Error(
      `The node ${node.name} is older than the home remembers it: it was restored to an earlier moment, or a copy of it ` +
        'is in service, or the backup of another node was restored at its address. Look at `school node verify`, then ' +
        'say what the database is: DATABASE_URL=<its address> school database adopt --as copy or successor',
    );
}

/** Says that this database takes the place of the one that other servers remember. @returns the nodes that know it */
export async function adoptAsSuccessor(client: pg.Client, ownUrl: string): Promise<string[]> {
  const [, ...nodes] = await readServers(client, ownUrl);
  if (nodes.length > 0) {
    // A school that is created before the directory is mended must not get the id of another one.
    const { maxId } = await compareServers(client, nodes);
    await raiseSchoolIds(client, maxId);
  }
  await client.query('select core.note_identity(false)');
  await client.query(
    `insert into platform.server_token (server)
     select unnest($1::text[]) union all select 'home' where (core.this_node()).id is not null
     on conflict do nothing`,
    [nodes.map(nameOf)],
  );
  await client.query('update platform.server_token set is_adopted = true, behind_since = null');
  const told: string[] = [];
  for (const node of nodes)
    await renewToken(client, node).then(
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
  // First, because only the tokens, which are deleted below, would keep an unfinished copy from running jobs.
  await client.query('select core.note_identity(true)');
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
  await client.query(`update platform.node set url = 'postgres://copy.invalid/', status = 'joining' where not is_this`);
  await client.query('delete from platform.server_token');
}
