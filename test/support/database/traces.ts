import type { Queries, TestDatabase } from '../server/database.ts';

/** Tables that a refused request may write: failed logins are counted, and a stolen refresh token ends its session. */
const bookkeeping = ['session', 'refresh_token', 'login_throttle', 'rate_limit_counter', 'audit_log'];

/** Tables of `platform` that the home copies from nodes, some milliseconds after a request. */
const copied = ['tenant', 'tenant_usage', 'subscription', 'usage_day'];

interface Table extends Record<string, unknown> {
  schema: string;
  name: string;
}

const tables = (database: Queries, schemas: string[]) =>
  database.query<Table>(
    `select n.nspname as schema, c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = any ($1) and c.relkind in ('r', 'p') order by 1, 2`,
    [schemas],
  );

/**
 * The checksum of every table of these schemas, by name. In `platform` without the tables that a refused request may
 * write, and without the one-time tokens that the worker creates in the background.
 */
export async function checksums(database: TestDatabase, ...schemas: string[]): Promise<Record<string, string>> {
  const [home, ...nodes] = database.all();
  const sums = [await checksumsOf(nodes.length === 0 ? database : home, schemas)];
  for (const node of nodes) sums.push(await checksumsOf(node, schemas));
  if (nodes.length > 0) for (const name of copied) delete sums[0]?.[`platform.${name}`];
  const named = sums.flatMap((each, index) =>
    Object.entries(each).map(([name, sum]) => [index === 0 ? name : `${name} on node ${index}`, sum]),
  );
  if (named.length === 0) throw new Error(`There is no table in ${schemas.join(', ')}`);
  return Object.fromEntries(named) as Record<string, string>;
}

/** The checksums of the tables of one database. */
async function checksumsOf(
  database: Queries & Pick<TestDatabase, 'prepared'>,
  schemas: string[],
): Promise<Record<string, string>> {
  // If a run has several servers, workers write daily_run by the clock, independently of requests.
  const wanted = (await tables(database, schemas)).filter(({ schema, name }) =>
    schema === 'platform' ? ![...bookkeeping, 'one_time_token'].includes(name) : name !== 'daily_run',
  );
  if (wanted.length === 0) return {};
  const text = wanted
    .map(
      ({ schema, name }) =>
        `select '${schema}.${name}' as name,
           count(*) || ' rows ' || coalesce(md5(string_agg(t::text, ' ' order by t::text)), '') as sum
         from "${schema}"."${name}" t`,
    )
    .join(' union all ');
  interface Row {
    name: string;
    sum: string;
  }
  // Planning a query over hundreds of tables takes far longer than running it.
  const rows = await (database.prepared?.<Row>(text) ?? database.query<Row>(text));
  return Object.fromEntries(rows.map(({ name, sum }) => [name, sum]));
}

/**
 * Adds triggers that record every committed change to a table of these schemas with the id of its request. Returns a
 * function that looks up which tables some requests changed. A statement that changes no row leaves no trace. Tables of
 * `platform` that a refused request may write are left out, unless `extent` is `with bookkeeping`.
 */
export async function traceRequests(
  database: TestDatabase,
  schemas: string[],
  extent?: 'with bookkeeping',
): Promise<(requestIds: string[]) => Promise<Record<string, string[]>>> {
  const databases = database.all();
  await Promise.all(databases.map((each) => addTraces(each, schemas, extent)));
  return async (requestIds) => {
    const changes = await Promise.all(
      databases.map((each) =>
        each.query<{ request_id: string; changed: string[] }>(
          'select request_id, array_agg(distinct changed) as changed from public.trace where request_id = any ($1) group by request_id',
          [requestIds],
        ),
      ),
    );
    const all: Record<string, string[]> = {};
    for (const { request_id, changed } of changes.flat()) (all[request_id] ??= []).push(...changed);
    return all;
  };
}

async function addTraces(database: Queries, schemas: string[], extent: 'with bookkeeping' | undefined): Promise<void> {
  await database.query(`
    create table public.trace (request_id text not null, changed text not null);
    create index on public.trace (request_id);
    create function public.leave_trace() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
    begin
      insert into public.trace values (coalesce(core.context_value('request_id'), ''), tg_op || ' ' || tg_table_schema || '.' || tg_table_name);
      return null;
    end $$`);
  for (const { schema, name } of await tables(database, schemas)) {
    if (extent === undefined && schema === 'platform' && bookkeeping.includes(name)) continue;
    await database.query(
      `create trigger zz_trace after insert or update or delete on "${schema}"."${name}" for each row execute function public.leave_trace()`,
    );
  }
}
