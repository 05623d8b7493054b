import type pg from 'pg';
import { lexicographicSortSchema, printSchema } from 'postgraphile/graphql';
import { readCatalog } from '../analytics/catalog.ts';
import { analyticsPool } from '../analytics/database.ts';
import { analyticsSchema } from '../analytics/schema.ts';
import type { Config } from '../process/config.ts';
import { ensureDatabase } from '../database/embedded.ts';
import { migrate } from '../database/migrate/migrate.ts';
import { withScratchServer } from '../process/database-access.ts';

/** Runs `work` with the database at DATABASE_URL, otherwise with one of this version. */
function withDatabase({ DATABASE_URL }: Config, work: (pool: pg.Pool) => Promise<string>): Promise<string> {
  const open = async (url: string) => {
    const pool = analyticsPool(url, false, 1);
    try {
      return await work(pool);
    } finally {
      await pool.end();
    }
  };
  if (DATABASE_URL) return open(DATABASE_URL);
  return withScratchServer(async (server) => {
    await ensureDatabase(server, 'school');
    await migrate({ ownerUrl: server.url('school') });
    return open(server.url('school'));
  });
}

/** The schema of /graphql in SDL. */
export const graphqlSchema = (config: Config): Promise<string> =>
  withDatabase(config, async (pool) =>
    printSchema(lexicographicSortSchema(await analyticsSchema(await readCatalog(pool)))),
  );

/** The catalog that the schema of /graphql is built from, as JSON with one row per line. */
export const graphqlCatalog = (config: Config): Promise<string> =>
  withDatabase(config, async (pool) => {
    const catalog = JSON.parse(await readCatalog(pool)) as Record<string, unknown>;
    const lines = Object.entries(catalog).map(([name, value]) => {
      const isList = Array.isArray(value) && value.length > 0;
      const text = isList ? `[\n${value.map((row) => JSON.stringify(row)).join(',\n')}\n]` : JSON.stringify(value);
      return `${JSON.stringify(name)}: ${text}`;
    });
    return `{\n${lines.join(',\n')}\n}`;
  });
