import type { GraphQLSchema } from 'postgraphile/graphql';
import { catalogFingerprint, readCatalog } from './catalog.ts';
import { serveQueries } from './serve.ts';

/**
 * The process that runs analytics queries, with a schema that was built at the installation (packaging/analytics.ts).
 * Asks for another program if the views of the database are not those of the schema.
 * @param fingerprint  identifies the catalog of the schema
 */
export function servePrebuilt(schema: GraphQLSchema, fingerprint: string): void {
  serveQueries(async (pool) => {
    const catalog = await readCatalog(pool);
    return catalogFingerprint(catalog) === fingerprint ? schema : undefined;
  });
}
