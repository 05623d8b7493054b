import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { PgAggregatesPreset } from '@graphile/pg-aggregates';
import { PgSimplifyInflectionPreset } from '@graphile/simplify-inflection';
import { postgraphile } from 'postgraphile';
import { makePgService } from 'postgraphile/adaptors/pg';
import { grafserv } from 'postgraphile/grafserv/node';
import { PostGraphileAmberPreset } from 'postgraphile/presets/amber';
import { jsonPgSmartTags } from 'postgraphile/utils';
import { PostGraphileConnectionFilterPreset } from 'postgraphile-plugin-connection-filter';
import { withOwner } from '../src/database/pool/pool.ts';
import { switchToRole } from '../src/domain/role-settings.ts';
import { answerParent } from './child.ts';

// PostGraphile over the schema of one school, as its documentation recommends for row-level security: each request sets
// the role and the settings that the row policies read, in its transaction. There is no login: every request acts
// as the same user, who may see the whole school.
const [databaseUrl = '', tenantId = '', poolSize = ''] = process.argv.slice(2);
const schema = `tenant_${tenantId}`;
const role = 'school_tenant';

// PostGraphile has no insert of many rows, so the class is marked by a function, with the statement of mark.sql.
const marking = await readFile(join(import.meta.dirname, 'baselines/mark.sql'), 'utf8');
await withOwner(databaseUrl, (owner) =>
  owner.query(`
    drop schema if exists bench_baseline cascade;
    create schema bench_baseline;
    grant usage on schema bench_baseline to ${role};
    create function bench_baseline.mark_attendance(class_id bigint, date date, students bigint[], statuses text[])
      returns json language sql volatile as $body$${marking.replaceAll('school.', `${schema}.`)}$body$;
    grant execute on function bench_baseline.mark_attendance to ${role}`),
);

/** The relation of room_id would be `room`, as the column of this name is. */
const namesOfRelations = jsonPgSmartTags({
  version: 1,
  config: {
    constraint: { [`${schema}.timetable_slot.timetable_slot_room_id_fkey`]: { tags: { fieldName: 'roomOfSlot' } } },
  },
});

const instance = postgraphile({
  extends: [
    PostGraphileAmberPreset,
    PgSimplifyInflectionPreset,
    PostGraphileConnectionFilterPreset,
    PgAggregatesPreset,
  ],
  plugins: [namesOfRelations],
  // It would hide filters and orders by columns without an index of their own, such as last_name.
  disablePlugins: ['PgIndexBehaviorsPlugin'],
  pgServices: [
    makePgService({
      connectionString: databaseUrl,
      schemas: [schema, 'bench_baseline'],
      pubsub: false,
      pgSettingsForIntrospection: { role },
      // With the planner settings of the API.
      poolConfig: {
        max: Number(poolSize),
        application_name: 'bench_postgraphile',
        options: switchToRole('school_api'),
      },
    }),
  ],
  schema: { connectionFilterRelations: true },
  grafast: {
    context: {
      pgSettings: {
        role,
        'app.tenant_id': tenantId,
        'app.scope': 'all',
        'app.user_id': '1',
        'app.time_zone': 'Europe/London',
      },
    },
  },
  grafserv: { graphiql: false },
});
const server = createServer();
await instance.createServ(grafserv).addTo(server);
await instance.getSchema();
await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
const url = `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`;

answerParent(() => Promise.resolve({ url }));
