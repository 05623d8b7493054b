import type pg from 'pg';
import type { TestDatabase } from '../server/database.ts';
import { type Acting, acting } from './tenants.ts';

/** The views of analysts, from the catalogue. */
export const viewsOf = async (database: TestDatabase): Promise<string[]> =>
  (
    await database.query<{ name: string }>(
      "select relname::text as name from pg_class where relnamespace = 'analytics'::regnamespace and relkind = 'v' order by 1",
    )
  ).map(({ name }) => name);

/** Reads the facts of a school anew, all of them; answers what it wrote, by part. */
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

/** Runs `work` as an analyst of these schools: `all`, a list of numbers, or undefined for who has no setting at all. */
export const asAnalyst = <T>(
  database: TestDatabase,
  schools: 'all' | number[] | undefined,
  work: (acting: Acting) => Promise<T>,
): Promise<T> =>
  acting(
    database.url,
    'school_analyst',
    schools === undefined
      ? {}
      : { 'app.analytics_tenants': schools === 'all' ? schools : schools.length === 0 ? '' : `,${schools.join()},` },
    work,
  );

/** What an analyst of all schools reads; numbers come as numbers, days as text. */
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
