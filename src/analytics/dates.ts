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
        const isMoment = build.EXPORTABLE(
          (TYPES) => (codec: unknown) =>
            codec === TYPES.date || codec === TYPES.timestamptz || codec === TYPES.timestamp,
          [TYPES],
        );
        for (const span of spans) {
          const truncated: AggregateGroupBySpec = {
            id: `truncated-to-${span}`,
            isSuitableType: isMoment,
            // Independent of the time zone of the session.
            sqlWrap: build.EXPORTABLE(
              (sql, span) => (value) => sql`date_trunc(${sql.literal(span)}, ${value}::timestamp)::date`,
              [sql, span],
            ),
            sqlWrapCodec: build.EXPORTABLE((TYPES) => () => TYPES.date, [TYPES]),
          };
          pgAggregateGroupBySpecs.push(truncated);
        }
        build.pgAggregateSpecs = pgAggregateSpecs.filter(({ id }) => !dropped.test(id));
        for (const spec of build.pgAggregateSpecs) {
          if (spec.id !== 'min' && spec.id !== 'max') continue;
          const { isSuitableType } = spec;
          spec.isSuitableType = build.EXPORTABLE(
            (isMoment, isSuitableType) => (codec) => isSuitableType(codec) || isMoment(codec),
            [isMoment, isSuitableType],
          );
        }
        return build;
      },
    },
  },
};
