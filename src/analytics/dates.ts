import type { AggregateGroupBySpec } from '@graphile/pg-aggregates/dist/interfaces.js';

/** What analysts group days by. */
const spans = ['week', 'month', 'quarter', 'year'];
/** What tells analysts nothing about counts and money, and would be a third of the schema. */
const dropped = /^(stddev|variance)/;

/** Groups days by week, month, quarter and year, and finds the first and the last of them. */
export const DatesPlugin: GraphileConfig.Plugin = {
  name: 'DatesPlugin',
  version: '1.0.0',
  after: ['PgAggregatesSpecsPlugin'],
  schema: {
    hooks: {
      build(build) {
        const { sql, dataplanPg, pgAggregateGroupBySpecs, pgAggregateSpecs } = build;
        if (!sql || !dataplanPg || !pgAggregateGroupBySpecs || !pgAggregateSpecs)
          throw new Error('DatesPlugin needs PgAggregatesSpecsPlugin before it.');
        const { TYPES } = dataplanPg;
        const isDate = (codec: unknown) => codec === TYPES.date;
        const isMoment = (codec: unknown) => codec === TYPES.timestamptz || codec === TYPES.timestamp;
        for (const span of spans) {
          const truncated: AggregateGroupBySpec = {
            id: `truncated-to-${span}`,
            isSuitableType: (codec) => isDate(codec) || isMoment(codec),
            // The same day for everybody, whatever the time zone of the session.
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
