import { PgAggregatesPreset } from '@graphile/pg-aggregates';
import { PgSimplifyInflectionPreset } from '@graphile/simplify-inflection';
import { makeSchema } from 'postgraphile';
import type {} from 'postgraphile/adaptors/pg';
import type { GraphQLSchema } from 'postgraphile/graphql';
import { PostGraphileAmberPreset } from 'postgraphile/presets/amber';
import { PostGraphileConnectionFilterPreset } from 'postgraphile-plugin-connection-filter';
import { BehaviorCachePlugin } from './behaviors.ts';
import { DatesPlugin } from './dates.ts';
import { GroupsPlugin } from './groups.ts';
import { StocksPlugin } from './stocks.ts';

/** A service for PostGraphile that answers its query for the catalog, without a database. */
function catalogService(catalog: string): GraphileConfig.PgServiceConfiguration {
  const client = { query: () => Promise.resolve({ rows: [{ introspection: catalog }] }) };
  const withClient = (_settings: unknown, work: (pgClient: typeof client) => unknown) => work(client);
  return {
    name: 'main',
    schemas: ['analytics'],
    withPgClientKey: 'withPgClient',
    pgSettingsKey: 'pgSettings',
    adaptor: { createWithPgClient: () => withClient },
    adaptorSettings: {},
  } as unknown as GraphileConfig.PgServiceConfiguration;
}

/** Builds the GraphQL schema of the views in the schema `analytics` from their catalog, see `readCatalog`. */
export async function analyticsSchema(catalog: string): Promise<GraphQLSchema> {
  const { schema } = await makeSchema({
    extends: [
      PostGraphileAmberPreset,
      PgSimplifyInflectionPreset,
      PostGraphileConnectionFilterPreset,
      PgAggregatesPreset,
    ],
    plugins: [BehaviorCachePlugin, DatesPlugin, GroupsPlugin, StocksPlugin],
    // The comments of the views declare keys and relations, so global node ids are not needed. Filters replace
    // conditions.
    disablePlugins: ['NodePlugin', 'QueryQueryPlugin', 'PgConditionArgumentPlugin', 'PgConditionCustomFieldsPlugin'],
    pgServices: [catalogService(catalog)],
    schema: {
      defaultBehavior: '-insert -update -delete -mutationField',
      connectionFilterRelations: true,
      dontSwallowErrors: true,
    },
  });
  return schema;
}
