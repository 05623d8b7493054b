import type { TestDatabase } from '../server/database.ts';

/** Tables that a refused request may write: failed logins are counted, and a stolen refresh token ends its session. */
const bookkeeping = ['session', 'refresh_token', 'login_throttle', 'audit_log'];

interface Table extends Record<string, unknown> {
  schema: string;
  name: string;
}

const tables = (database: TestDatabase, schemas: string[]) =>
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
  // The worker writes daily_run by the clock, independently of requests.
  const wanted = (await tables(database, schemas)).filter(({ schema, name }) =>
    schema === 'platform' ? ![...bookkeeping, 'one_time_token'].includes(name) : name !== 'daily_run',
  );
  if (wanted.length === 0) throw new Error(`There is no table in ${schemas.join(', ')}`);
  // Planning a query over hundreds of tables takes far longer than running it.
  const rows = await (database.prepared ?? database.query)<{ name: string; sum: string }>(
    wanted
      .map(
        ({ schema, name }) =>
          `select '${schema}.${name}' as name, count(*) || ' rows ' || coalesce(md5(string_agg(t::text, ' ' order by t::text)), '') as sum from "${schema}"."${name}" t`,
      )
      .join(' union all '),
  );
  return Object.fromEntries(rows.map(({ name, sum }) => [name, sum]));
}

/**
 * Adds triggers that record every committed change to a table of these schemas with the id of its request. Answers a
 * function that looks up which tables some requests changed. A statement that changes no row leaves no trace.
 */
export async function traceRequests(
  database: TestDatabase,
  ...schemas: string[]
): Promise<(requestIds: string[]) => Promise<Record<string, string[]>>> {
  await database.query(`
    create table public.trace (request_id text not null, changed text not null);
    create index on public.trace (request_id);
    create function public.leave_trace() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
    begin
      insert into public.trace values (coalesce(current_setting('app.request_id', true), ''), tg_op || ' ' || tg_table_schema || '.' || tg_table_name);
      return null;
    end $$`);
  for (const { schema, name } of await tables(database, schemas)) {
    if (schema === 'platform' && bookkeeping.includes(name)) continue;
    await database.query(
      `create trigger zz_trace after insert or update or delete on "${schema}"."${name}" for each row execute function public.leave_trace()`,
    );
  }
  return async (requestIds) => {
    const rows = await database.query<{ request_id: string; changed: string[] }>(
      'select request_id, array_agg(distinct changed) as changed from public.trace where request_id = any ($1) group by request_id',
      [requestIds],
    );
    return Object.fromEntries(rows.map(({ request_id, changed }) => [request_id, changed]));
  };
}
