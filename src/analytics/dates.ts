import type { AggregateGroupBySpec } from '@graphile/pg-aggregates/dist/interfaces.js';

/** The units to group dates by. */
const spans = ['week', 'month', 'quarter', 'year'];
/** Aggregates that are of no use for counts and money, but would make up a third of the schema. */
const dropped = /^(stddev|variance)/;

/** Adds grouping of dates by week, month, quarter and year, and min and max of dates. */
export const DatesPlugin: GraphileConfig.Plugin = {
  name: 'DatesPlugin',
  version: '1.0.0',
  after: ['PgAggregatesSpecsPlugin'],
  schema: {
    hooks: {
      build(build) {
        const { sql, dataplanPg, pgAggregateGroupBySpecs, pgAggregateSpecs } = build;
        if (!sql || !dataplanPg || !pgAggregateGroupBySpecs || !pgAggregateSpecs)
          throw new Error('DatesPlugin must be loaded after PgAggregatesSpecsPlugin.');
        const { TYPES } = dataplanPg;
        const isDate = (codec: unknown) => codec === TYPES.date;
        const isMoment = (codec: unknown) => codec === TYPES.timestamptz || codec === TYPES.timestamp;
        for (const span of spans) {
          const truncated: AggregateGroupBySpec = {
            id: `truncated-to-${span}`,
            isSuitableType: (codec) => isDate(codec) || isMoment(codec),
            // Independent of the time zone of the session.
            sqlWrap: (value) => sql`date_trunc(${sql.literal(span)}, ${value}::timestamp)::date`,
            sqlWrapCodec: () => TYPES.date,
          };
          pgAggregateGroupBySpecs.push(truncated);
        }
        build.pgAggregateSpecs = pgAggregateSpecs.filter(({ id }) => !dropped.test(id));
        for (const spec of build.pgAggregateSpecs) {
          if (spec.id !== 'min' && spec.id !== 'max') continue;
          const { isSuitableType } = spec;
          spec.isSuitableType = (codec) => isSuitableType(codec) || isDate(codec) || isMoment(codec);
        }
        return build;
      },
    },
  },
};
