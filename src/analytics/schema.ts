import { PgAggregatesPreset } from '@graphile/pg-aggregates';
import { PgSimplifyInflectionPreset } from '@graphile/simplify-inflection';
import type pg from 'pg';
import { makeSchema } from 'postgraphile';
import { makePgService } from 'postgraphile/adaptors/pg';
import type { GraphQLSchema } from 'postgraphile/graphql';
import { PostGraphileAmberPreset } from 'postgraphile/presets/amber';
import { PostGraphileConnectionFilterPreset } from 'postgraphile-plugin-connection-filter';
import { analystRole } from './database.ts';
import { BehaviorCachePlugin } from './behaviors.ts';
import { DatesPlugin } from './dates.ts';
import { GroupsPlugin } from './groups.ts';
import { introspectionPool } from './introspection.ts';
import { StocksPlugin } from './stocks.ts';

/** The GraphQL schema of the views in the schema `analytics`, and the preset to run queries on it. */
export interface AnalyticsSchema {
  schema: GraphQLSchema;
  resolvedPreset: GraphileConfig.ResolvedPreset;
}

/**
 * Builds the GraphQL schema from the views that the analyst role can read.
 * @throws when the database is not available or does not have the role
 */
export async function analyticsSchema(pool: pg.Pool): Promise<AnalyticsSchema> {
  return makeSchema({
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
    pgServices: [
      makePgService({
        pool: introspectionPool(pool),
        schemas: ['analytics'],
        pubsub: false,
        pgSettingsForIntrospection: { role: analystRole, enable_seqscan: 'off', statement_timeout: '60s' },
      }),
    ],
    schema: {
      defaultBehavior: '-insert -update -delete -mutationField',
      connectionFilterRelations: true,
      dontSwallowErrors: true,
    },
    grafast: { timeouts: { planning: 2_000 } },
  });
}
