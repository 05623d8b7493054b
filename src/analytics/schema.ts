import { PgAggregatesPreset } from '@graphile/pg-aggregates';
import { PgSimplifyInflectionPreset } from '@graphile/simplify-inflection';
import type pg from 'pg';
import { makeSchema } from 'postgraphile';
import { makePgService } from 'postgraphile/adaptors/pg';
import type { GraphQLSchema } from 'postgraphile/graphql';
import { PostGraphileAmberPreset } from 'postgraphile/presets/amber';
import { PostGraphileConnectionFilterPreset } from 'postgraphile-plugin-connection-filter';
import { analystRole } from './database.ts';
import { DatesPlugin } from './dates.ts';
import { GroupsPlugin } from './groups.ts';

/** The GraphQL schema over the views of the schema `analytics`, and what PostGraphile needs to run queries on it. */
export interface AnalyticsSchema {
  schema: GraphQLSchema;
  resolvedPreset: GraphileConfig.ResolvedPreset;
}

/**
 * Reads the views from the catalogue, as the analysts' role may see them.
 * @throws when the database is away, or has no such role
 */
export async function analyticsSchema(pool: pg.Pool): Promise<AnalyticsSchema> {
  return makeSchema({
    extends: [
      PostGraphileAmberPreset,
      PgSimplifyInflectionPreset,
      PostGraphileConnectionFilterPreset,
      PgAggregatesPreset,
    ],
    plugins: [DatesPlugin, GroupsPlugin],
    // A view has a key and relations by its comment; an id of our own for each row would only be noise.
    // Filters say what conditions say, and more.
    disablePlugins: ['NodePlugin', 'QueryQueryPlugin', 'PgConditionArgumentPlugin', 'PgConditionCustomFieldsPlugin'],
    pgServices: [
      makePgService({ pool, schemas: ['analytics'], pubsub: false, pgSettingsForIntrospection: { role: analystRole } }),
    ],
    schema: {
      defaultBehavior: '-insert -update -delete -mutationField',
      connectionFilterRelations: true,
      dontSwallowErrors: true,
    },
    grafast: { timeouts: { planning: 2_000 } },
  });
}
