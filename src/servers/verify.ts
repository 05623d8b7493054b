import { setTimeout as pause } from 'node:timers/promises';
import type pg from 'pg';
import { requireAnswer, withOwner } from '../database/pool/pool.ts';
import { reasonOf } from '../domain/reason.ts';
import { type Comparison, compareServers } from './claims.ts';
import { copyState, slotState, subscriptionState } from './replication/copy-state.ts';
import { homeSubscription, nodeSubscription } from './replication/names.ts';
import { homeName, type Server } from './servers.ts';
import { compareTokens, nodesBehind, refusalOf } from './tokens.ts';

/** Something that is wrong between servers. */
export interface ServerFinding {
  /** The server that has to be looked at. */
  server: string;
  text: string;
}

/** What `school node verify` has found. */
export interface Verification extends Comparison {
  findings: ServerFinding[];
}

/** How long the copies of rows may take. */
const maxComparisons = 4;

/** The number of rows of each school in the tables that a node sends to the home. */
async function countRows(client: pg.ClientBase, nodeId: number | null): Promise<Map<string, string>> {
  const { rows: tables } = await client.query<{ name: string }>(
    'select t::text as name from core.tables_copied_home() t',
  );
  const { rows } = await client.query<{ key: string; rows: string }>(
    tables
      .map(
        ({ name }) =>
          `select '${name} ' || c.tenant_id as key, count(*)::text as rows
           from ${name} c join platform.tenant t on t.id = c.tenant_id and t.node_id is not distinct from $1
           group by c.tenant_id`,
      )
      .join(' union all '),
    [nodeId],
  );
  return new Map(rows.map((row) => [row.key, row.rows]));
}

/** A hash of each table that the home sends to its nodes, over the columns that it sends. */
async function hashTables(
  client: pg.ClientBase,
  tables: readonly { name: string; columns: string }[],
): Promise<Map<string, string>> {
  await client.query("set timezone = 'UTC'");
  const { rows } = await client.query<{ name: string; hash: string }>(
    tables
      .map(
        ({ name, columns }) =>
          `select '${name}' as name, md5(coalesce(string_agg(r::text, '|' order by r::text collate "C"), '')) as hash
           from (select ${columns} from ${name}) r`,
      )
      .join(' union all '),
  );
  return new Map(rows.map(({ name, hash }) => [name, hash]));
}

/** The keys whose values differ. */
const differing = (one: ReadonlyMap<string, string>, other: ReadonlyMap<string, string>): string[] =>
  [...new Set([...one.keys(), ...other.keys()])].filter((key) => one.get(key) !== other.get(key));

/** Compares until both sides have the same, for as long as copies may take. @returns what still differs */
async function untilSame(compare: () => Promise<string[]>): Promise<string[]> {
  for (let n = 1; ; n++) {
    const keys = await compare();
    if (keys.length === 0 || n === maxComparisons) return keys;
    await pause(500);
  }
}

const named = (keys: readonly string[]) =>
  `${keys.slice(0, 3).join(', ')}${keys.length > 3 ? ` and ${String(keys.length - 3)} more` : ''}`;

/** Compares the rows that the home and a node copy from each other. */
async function compareRows(home: pg.Client, node: pg.Client, { id, name }: Server): Promise<ServerFinding[]> {
  const { rows: tables } = await home.query<{ name: string; columns: string }>(
    `select format('%I.%I', schemaname, tablename) as name,
       array_to_string(array(select quote_ident(c) from unnest(attnames) c), ', ') as columns
     from pg_publication_tables where pubname = 'school_platform' order by 1`,
  );
  const fromNode = await untilSame(async () => differing(await countRows(node, null), await countRows(home, id)));
  const fromHome = await untilSame(async () =>
    differing(await hashTables(home, tables), await hashTables(node, tables)),
  );
  return [
    ...(fromNode.length > 0
      ? [
          {
            server: homeName,
            text: `The home has another number of rows than ${name} (table and school): ${named(fromNode)}.`,
          },
        ]
      : []),
    ...(fromHome.length > 0
      ? [{ server: name, text: `${name} has other rows than the home in ${named(fromHome)}.` }]
      : []),
  ];
}

/** Looks at the copies between the home and a node. */
async function verifyNode(home: pg.Client, server: Server): Promise<ServerFinding[]> {
  const { id, name, url } = server;
  if (id === null) return [];
  await requireAnswer(url);
  // Counting the rows of a large server takes long.
  return withOwner(url, async (node) => {
    const findings: ServerFinding[] = [];
    for (const [at, subscription, subscriber, publisher] of [
      [homeName, homeSubscription(id), home, node],
      [name, nodeSubscription(id), node, home],
    ] as const) {
      const state = copyState(
        await subscriptionState(subscriber, subscription),
        await slotState(publisher, subscription),
      );
      if (state !== 'copying')
        findings.push({ server: at, text: `The subscription ${subscription} of ${at}: ${state}.` });
    }
    return findings.length > 0 ? findings : compareRows(home, node, server);
  });
}

/** The servers that are older than others remember them. */
async function verifyTokens(home: pg.Client): Promise<ServerFinding[]> {
  await compareTokens(home);
  const refusal = await refusalOf(home);
  return [
    ...(refusal === null ? [] : [{ server: homeName, text: refusal }]),
    ...(await nodesBehind(home)).map((name) => ({
      server: name,
      text: `${name} is older than the home remembers it, or another database answers at its address.`,
    })),
  ];
}

/** Compares directory, claims, schemas, subscriptions and copied rows of all servers. Stores only which of them are behind. */
export async function verifyServers(home: pg.Client, nodes: readonly Server[]): Promise<Verification> {
  const comparison = await compareServers(home, nodes);
  const findings = await verifyTokens(home);
  for (const node of nodes) {
    if (comparison.unreachable.some(({ server }) => server === node)) continue;
    findings.push(
      ...(await verifyNode(home, node).catch((error: unknown) => [
        { server: node.name, text: `${node.name} could not be compared: ${reasonOf(error)}` },
      ])),
    );
  }
  const { rows } = await home.query<{ last: number }>(
    'select last_value::double precision as last from platform.tenant_id_seq',
  );
  if ((rows[0]?.last ?? 0) < comparison.maxId)
    findings.push({
      server: homeName,
      text: `The home would give the next school the id ${String((rows[0]?.last ?? 0) + 1)}, and there is a school ${String(comparison.maxId)}.`,
    });
  return { ...comparison, findings };
}
