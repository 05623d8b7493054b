import type pg from 'pg';
import { withOwner } from '../database/pool/pool.ts';
import { asReplica, inTransaction } from '../database/transaction.ts';
import { compareServers, type Comparison, type Disagreement, raiseSchoolIds } from './claims.ts';
import { hasSchema, retainedSchemaOf, withMoveLock } from './moves/school.ts';
import { copyAgain } from './nodes/join.ts';
import { findNode } from './nodes/nodes.ts';
import { homeName, type Server } from './servers.ts';

/** What `school node reconcile` will do, and what it leaves to a person. */
export interface Reconciliation {
  steps: { text: string; disagreement: Disagreement; others: Server[] }[];
  people: { text: string; advice: string }[];
}

/** What a person has to do about a disagreement that no claim decides. */
const adviceFor: Partial<Record<Disagreement['kind'], (school: number) => string>> = {
  'same claim': (school) =>
    `Compare the rows of tenant_${String(school)} on the servers. On the server that is to have the school, run: ` +
    `select core.raise_claim(${String(school)}, 0); -- then: school node reconcile`,
  'older server': (school) =>
    'If the rows of this server are to be used, run there: ' +
    `select core.raise_claim(${String(school)}, (claim in the directory)); -- then: school node reconcile`,
  'same id': (school) =>
    `Export one of them (DATABASE_URL=<its server> school tenant export ${String(school)}), purge it there, and ` +
    'import the file under another subdomain.',
  'on no server': (school) =>
    'Its rows are in no server that answers. Continue its move (school tenant move). If it was created after the backup of ' +
    'a restored server, mark it as purged at home: ' +
    `update platform.tenant set status = 'deleted', deleted_at = now() where id = ${String(school)}; -- then import its ` +
    'last export, if there is one (school tenant import)',
  'schema without a school': (school) =>
    `Find out what it contains, then rename or drop it: alter schema tenant_${String(school)} rename to …`,
};

/** The steps that make the directory agree with the servers. The highest claim wins. */
export function planReconciliation({ disagreements }: Comparison): Reconciliation {
  const plan: Reconciliation = { steps: [], people: [] };
  for (const disagreement of disagreements) {
    const { kind, school, holder, others, text } = disagreement;
    const advice = adviceFor[kind];
    if (advice) plan.people.push({ text, advice: advice(school) });
    else if (holder) plan.steps.push({ text, disagreement, others });
  }
  return plan;
}

/** Closes a school on a server that has an older copy, and keeps its tables, as after a move. */
async function setAside(server: Server, homeUrl: string, school: number, holder: Server): Promise<void> {
  await withOwner(server.id === null ? homeUrl : server.url, async (client) => {
    if (await hasSchema(client, retainedSchemaOf(school)))
      throw new Error(
        `${server.name} has kept ${retainedSchemaOf(school)} already, from an earlier move. Rename or drop that first.`,
      );
    await client.query("set lock_timeout = '10s'");
    await client.query('select pg_advisory_lock(core.tenant_lock_key($1))', [school]);
    await inTransaction(client, async () => {
      await client.query('select core.move_jobs_hold($1)', [school]);
      await client.query('select core.move_close($1, $2)', [school, server.id ?? holder.id]);
    });
  });
}

/** Enters a school of a node in the directory. @returns the subdomain, if another school has its own */
async function enterInDirectory(home: pg.Client, school: number, holder: Server): Promise<string | undefined> {
  const { row, plan } = await withOwner(holder.url, async (client) => {
    const { rows } = await client.query<{ row: string; plan: string }>(
      `select to_json(t)::text as row, to_json(p)::text as plan
       from platform.tenant t join platform.plan p on p.id = t.plan_id where t.id = $1`,
      [school],
    );
    if (!rows[0]) throw new Error(`${holder.name} no longer has the school ${String(school)}.`);
    return rows[0];
  });
  const { rows: known } = await home.query<{ node_id: number | null }>('select from platform.tenant where id = $1', [
    school,
  ]);
  if (known.length > 0) {
    await home.query('update platform.tenant set schema_version = 0, node_id = $2 where id = $1', [school, holder.id]);
    return undefined;
  }
  await home.query('select core.ready_school_drop($1)', [school]);
  return asReplica(home, async () => {
    // The home may have been restored to a moment before the plan was created.
    await home.query(
      `insert into platform.plan select * from json_populate_record(null::platform.plan, $1) on conflict do nothing`,
      [plan],
    );
    const { rows } = await home.query<{ subdomain: string; wanted: string }>(
      `insert into platform.tenant
       select (jsonb_populate_record(null::platform.tenant, t || jsonb_build_object(
         'schema_version', 0, 'node_id', $2::bigint,
         'subdomain', case when exists (select from platform.tenant o where o.subdomain = t ->> 'subdomain')
           then left(t ->> 'subdomain', 40) || '-' || (t ->> 'id') else t ->> 'subdomain' end))).*
       from (values ($1::jsonb)) v (t)
       returning subdomain, $1::jsonb ->> 'subdomain' as wanted`,
      [row, holder.id],
    );
    return rows[0] && rows[0].subdomain !== rows[0].wanted ? rows[0].subdomain : undefined;
  });
}

interface ReconcileOptions {
  /** The home, as this process reaches it. */
  ownUrl: string;
  /** The home, as the nodes reach it; undefined for the address that they have. */
  homeUrl?: string | undefined;
  onStep: (line: string) => void;
}

/** Carries out one step of the plan. @returns what a person still has to do */
async function settle(
  home: pg.Client,
  nodes: readonly Server[],
  { disagreement, others }: Reconciliation['steps'][number],
  { ownUrl, onStep }: ReconcileOptions,
): Promise<string | undefined> {
  const { school, subdomain, holder, kind, text } = disagreement;
  if (!holder || kind === 'older copy') return undefined;
  return withMoveLock(home, school, async () => {
    // Something may have changed while the question was on the screen.
    const now = (await compareServers(home, nodes)).disagreements.find((each) => each.school === school);
    if (now?.kind !== kind || now.text !== text)
      return `School ${String(school)} (${subdomain}) has changed meanwhile: nothing was done. Run reconcile again.`;
    for (const other of others) {
      await setAside(other, ownUrl, school, holder);
      onStep(
        `school ${String(school)} (${subdomain}): ${other.name} keeps its older tables in ${retainedSchemaOf(school)}`,
      );
    }
    const renamed = holder.id === null ? undefined : await enterInDirectory(home, school, holder);
    onStep(`school ${String(school)} (${subdomain}): the directory has it on ${holder.name}`);
    return (
      renamed &&
      `School ${String(school)} is called ${renamed} in the directory, because another school has its subdomain ` +
        `${subdomain}. Give one of them another subdomain.`
    );
  });
}

/**
 * Makes the directory agree with the servers, raises the ids of new schools above those of all servers, and lets the
 * home and its nodes copy each other's tables again, also where slots exist: another database may have read them.
 * @returns what a person has to do
 * @throws if a server does not answer
 */
export async function reconcileServers(
  home: pg.Client,
  nodes: readonly Server[],
  comparison: Comparison,
  options: ReconcileOptions,
): Promise<string[]> {
  const { onStep, homeUrl, ownUrl } = options;
  const people: string[] = [];
  for (const step of planReconciliation(comparison).steps) {
    const left = await settle(home, nodes, step, options);
    if (left !== undefined) people.push(left);
  }
  await raiseSchoolIds(home, comparison.maxId);
  for (const { name } of nodes) {
    const node = await findNode(home, name);
    await copyAgain(home, node, { homeUrl: homeUrl ?? ownUrl, keepsHomeUrl: homeUrl === undefined });
    onStep(`${homeName} and ${name} have copied each other's tables again`);
  }
  return people;
}
