import { lexicographicSortSchema, printSchema } from 'postgraphile/graphql';
import { analyticsPool } from '../analytics/database.ts';
import { analyticsSchema } from '../analytics/schema.ts';
import type { Config } from '../process/config.ts';
import { ensureDatabase } from '../database/embedded.ts';
import { migrate } from '../database/migrate.ts';
import { withScratchServer } from '../process/database-access.ts';

async function schemaOf(url: string): Promise<string> {
  const pool = analyticsPool(url, false, 1);
  try {
    const { schema } = await analyticsSchema(pool);
    return printSchema(lexicographicSortSchema(schema));
  } finally {
    await pool.end();
  }
}

/** The schema of /graphql in SDL: that of the database at DATABASE_URL, otherwise that of this version. */
export function graphqlSchema({ DATABASE_URL }: Config): Promise<string> {
  if (DATABASE_URL) return schemaOf(DATABASE_URL);
  return withScratchServer(async (server) => {
    await ensureDatabase(server, 'school');
    await migrate({ ownerUrl: server.url('school') });
    return schemaOf(server.url('school'));
  });
}
