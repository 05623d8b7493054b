import type pg from 'pg';
import type { TestDatabase } from '../server/database.ts';
import { type RoleSession, withRole } from './tenants.ts';

/** The names of the analytics views. */
export const viewsOf = async (database: TestDatabase): Promise<string[]> =>
  (
    await database.query<{ name: string }>(
      "select relname::text as name from pg_class where relnamespace = 'analytics'::regnamespace and relkind = 'v' order by 1",
    )
  ).map(({ name }) => name);

/** Refreshes all mart tables of a school. Returns the number of rows written, by part. */
export async function refresh(
  database: TestDatabase,
  tenantId: number,
): Promise<Record<string, number> | null | undefined> {
  const [row] = await database.query<{ written: Record<string, number> | null }>(
    'select core.analytics_refresh($1, true) as written',
    [tenantId],
  );
  return row?.written;
}

/** Runs `work` as an analyst of these schools: `all`, a list of ids, or undefined when the setting is missing. */
export const asAnalyst = <T>(
  database: TestDatabase,
  schools: 'all' | number[] | undefined,
  work: (acting: RoleSession) => Promise<T>,
): Promise<T> =>
  withRole(
    database.url,
    'school_analyst',
    schools === undefined
      ? {}
      : { 'app.analytics_tenants': schools === 'all' ? schools : schools.length === 0 ? '' : `,${schools.join()},` },
    work,
  );

/** Runs a query as an analyst of all schools. Numbers come as numbers, dates as text. */
export async function facts<R extends pg.QueryResultRow>(
  database: TestDatabase,
  query: string,
  values: unknown[] = [],
): Promise<R[]> {
  const rows = await asAnalyst(database, 'all', ({ rows: read }) =>
    read<{ row: R }>(`select to_json(f) as row from (${query}) f`, values),
  );
  return rows.map(({ row }) => row);
}
