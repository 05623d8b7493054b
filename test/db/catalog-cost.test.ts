import { setTimeout as pause } from 'node:timers/promises';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { catalogQuery } from '../../src/analytics/catalog.ts';
import { isFull } from '../support/client/share.ts';
import { type BareTenant, provision } from '../support/database/tenants.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';

/** The numbers of schools to compare: so far apart that a scan of any catalog shows. */
const few = 8;
const many = isFull ? 500 : 40;
/** Rows of platform.tenant for each school: this table is small, so that a scan of it shows only with many. */
const rowsPerSchool = 100;
let database: TestDatabase;
let school: BareTenant;

/**
 * Copies of the catalog rows of a school, with other oids, and rows of active schools in platform.tenant. A copy takes a
 * hundredth of the time of a school. Its tables have no files, so nothing may open them.
 * @param from  the number of the first copy
 */
const addCopies = (schema: string, from: number, to: number) => `
  begin;
  set local allow_system_table_mods = on;
  create temp table own on commit drop as
    select '${schema}'::regnamespace::oid as oid
    union select oid from pg_class where relnamespace = '${schema}'::regnamespace
    union select oid from pg_proc where pronamespace = '${schema}'::regnamespace
    union select oid from pg_constraint where connamespace = '${schema}'::regnamespace
    union select p.oid from pg_policy p join pg_class c on c.oid = p.polrelid and c.relnamespace = '${schema}'::regnamespace;
  do $$
  declare
    v_catalog record;
  begin
    for v_catalog in
      select
        c.name,
        c.condition,
        string_agg(quote_ident(attname), ', ' order by attnum) as columns,
        string_agg(format(case
          when attname = 'nspname' then 'nspname || ''_'' || n'
          when atttypid = 'oid'::regtype
            then 'case when %1$I < 16384 then %1$I else (2147483648 + (%1$I::bigint %% 4000000) * 512 + n)::oid end'
          else '%1$I'
        end, attname), ', ' order by attnum) as values
      from (values
        ('pg_namespace', 'oid in (select oid from own)'),
        ('pg_class', 'oid in (select oid from own)'),
        ('pg_attribute', 'attrelid in (select oid from own)'),
        ('pg_index', 'indexrelid in (select oid from own)'),
        ('pg_constraint', 'oid in (select oid from own)'),
        ('pg_policy', 'oid in (select oid from own)'),
        ('pg_trigger', 'tgrelid in (select oid from own)'),
        ('pg_proc', 'oid in (select oid from own)'),
        ('pg_depend', 'objid in (select oid from own) and refobjid = ''${schema}''::regnamespace')
      ) c (name, condition)
      join pg_attribute a on a.attrelid = c.name::regclass and a.attnum > 0 and not a.attisdropped
      group by c.name, c.condition
    loop
      execute format('insert into %1$I (%2$s) select %3$s from %1$I cross join generate_series(${from}, ${to}) n where %4$s',
        v_catalog.name, v_catalog.columns, v_catalog.values, v_catalog.condition);
    end loop;
  end $$;
  with added as (
    insert into platform.tenant (name, subdomain, contact_email, plan_id, schema_version)
      select 'Copy', 'copy-' || n, 'copy@school.example', plan_id, schema_version
      from platform.tenant, generate_series(${from * rowsPerSchool}, ${to * rowsPerSchool}) n where '${schema}' = 'tenant_' || id
      returning id, plan_id
  )
  insert into platform.subscription (tenant_id, plan_id, status, current_period_end)
    select id, plan_id, 'active', now() + interval '1 month' from added;
  commit;
  analyze pg_namespace, pg_class, pg_attribute, pg_index, pg_constraint, pg_policy, pg_trigger, pg_proc, pg_depend,
    platform.tenant, platform.subscription`;

interface Plan {
  'Shared Hit Blocks': number;
  'Shared Read Blocks': number;
}
type Explained = [{ Plan: Plan; Planning?: Plan }];

/** Runs `work` in a transaction that is rolled back, on a connection of its own. */
async function undone<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new shared.pg.Client({ connectionString: database.url, application_name: 'test' });
  await client.connect();
  try {
    await client.query('begin');
    return await work(client);
  } finally {
    await client.query('rollback').catch(() => undefined);
    await client.end();
  }
}

/** The pages that a statement reads, with those of the statements in its functions. */
async function pages(client: pg.Client, statement: string): Promise<number> {
  const { rows } = await client.query<{ 'QUERY PLAN': Explained }>(
    `explain (analyze, buffers, format json) ${statement}`,
  );
  const plan = rows[0]?.['QUERY PLAN'][0];
  return [plan?.Plan, plan?.Planning].reduce(
    (sum, part) => sum + (part?.['Shared Hit Blocks'] ?? 0) + (part?.['Shared Read Blocks'] ?? 0),
    0,
  );
}

/**
 * The rows that this transaction has read of tables that grow with the number of schools. pg_proc is missing, because
 * Postgres itself looks up the name of a function in all schemas: a new school costs 60 rows for each older one. Before
 * version 18 it also reads all of pg_index whenever it writes a table again, as the migrations of a new school do.
 */
async function rowsRead(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    `select (sum(
       pg_stat_get_xact_tuples_returned(name) + pg_stat_get_xact_tuples_fetched(name)
       + (select sum(pg_stat_get_xact_tuples_fetched(indexrelid)) from pg_index where indrelid = name))
       filter (where name <> 'pg_index'::regclass or current_setting('server_version_num')::integer >= 180000))::integer as count
     from unnest('{pg_namespace,pg_class,pg_attribute,pg_index,pg_constraint,pg_policy,pg_trigger,pg_depend,platform.tenant,platform.subscription}'::regclass[]) name`,
  );
  return rows[0]?.count ?? NaN;
}

/** The number of rows and pages that a case reads, on a new connection, after the statements `before`. */
const cost = ({ before = [], statements }: Case): Promise<Cost> =>
  undone(async (client) => {
    for (const each of before) await client.query(each);
    const rowsBefore = await rowsRead(client);
    const sum = { pages: 0, rows: 0 };
    for (const each of statements) {
      sum.pages += await pages(client, each);
      await client.query('close all');
    }
    sum.rows = (await rowsRead(client)) - rowsBefore;
    return sum;
  });

interface Cost {
  pages: number;
  rows: number;
}

interface Case {
  before?: string[];
  statements: string[];
}

const register = `
  select setval('platform.tenant_id_seq', 5000);
  insert into platform.tenant (name, subdomain, contact_email, plan_id) values ('New', 'new', 'new@school.example', 3)`;
const addMigration = `
  insert into platform.tenant_migration (version, name, body, checksum)
    values (1000, '1000-locker', 'alter table student add column locker text', '')`;

/** Operations on one school. */
const cases = (id: number, header: string): Record<string, Case> => ({
  'a school is created': {
    before: [register],
    statements: [`select core.tenant_provision(5001, '{"email":"admin@school.example"}')`],
  },
  'a school is migrated': { before: [addMigration], statements: [`select core.tenant_migrate(${id})`] },
  'the tables of a school are secured': { statements: [`select core.tenant_secure(${id})`] },
  'the roles of a school get new permissions': {
    before: [`update platform.tenant set seeded_permission_id = 0 where id = ${id}`],
    statements: [`select core.tenant_seed(${id})`],
  },
  'a school is exported': { statements: [`select * from core.archive_open(${id})`] },
  'a school is imported': {
    statements: [
      `select * from core.archive_begin('${header}')`,
      'insert into tenant_6000.school_usage (students, teachers, classes) values (0, 0, 0)',
      `select core.archive_end('${header}', '[]')`,
    ],
  },
  'a deleted school is purged': {
    before: [`update platform.tenant set status = 'deleted', deleted_at = now() - interval '40 days' where id = ${id}`],
    statements: [
      `select * from core.purge_open(${id}, 30)`,
      `select core.purge_mark(${id}, 30, 'file')`,
      `select core.purge_drop(${id})`,
    ],
  },
  'the facts of a school are refreshed': { statements: [`select core.analytics_refresh(${id}, true)`] },
  'the daily run of a school is done': { statements: [`select * from core.daily_step(${id}, current_date, 0, 500)`] },
  'the subscription of a school is checked': { statements: [`select core.subscription_daily(${id})`] },
  'the documents of a school are checked': { statements: [`select core.notify_documents_expiring(${id})`] },
  'a school is cleaned up': { statements: [`select core.clean_up_school(${id})`] },
  'the analytics process reads its schema': { before: ['set local enable_seqscan = off'], statements: [catalogQuery] },
  'readiness is checked': { statements: ['select core.readiness()'] },
});

/** Removes dead rows from the catalog, and updates its statistics. */
async function vacuumCatalog(): Promise<void> {
  const [catalog] = await database.query<{ tables: string }>(
    `select string_agg(oid::regclass::text, ', ') as tables from pg_class
     where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r' and not relisshared`,
  );
  await database.query(`vacuum (analyze) ${catalog?.tables ?? ''}`);
}

// An index can get a level deeper, which costs a page for each lookup.
const hasSamePages = (less: Cost, more: Cost) => more.pages <= less.pages * 1.3 + 100;
// The planner reads some rows at the ends of indexes. A scan reads thousands more.
const hasSameRows = (less: Cost, more: Cost) => more.rows <= less.rows + 100;

describe('with five times as many schools', () => {
  const costs: Record<string, Cost>[] = [];

  beforeAll(async () => {
    database = await testDatabase();
    school = await provision(database);
    // The header of a file of another school with the same tables.
    const header = await undone(async (client) => {
      await client.query(`select core.archive_open(${school.id})`);
      const { rows } = await client.query<Record<string, string>>('fetch 1 from archive_header');
      const file = JSON.parse(Object.values(rows[0] ?? {})[0] ?? '') as { tenant: object };
      file.tenant = { ...file.tenant, id: 6000, subdomain: 'imported' };
      return JSON.stringify(file).replaceAll("'", "''");
    });
    let from = 1;
    for (const to of [few, many]) {
      await database.query(addCopies(school.schema, from, to));
      const row: Record<string, Cost> = {};
      for (const [name, each] of Object.entries(cases(school.id, header))) {
        row[name] = await cost(each);
        // Rows that were just deleted, and a vacuum that runs meanwhile, make a single measurement too high. So does
        // another test file that creates schools: each makes all connections of the server drop their cached catalog.
        for (let repeated = 0, less = costs[0]?.[name]; less && repeated < 40; repeated++) {
          const lowest: Cost = row[name];
          if (hasSamePages(less, lowest) && hasSameRows(less, lowest)) break;
          // Each measurement leaves dead rows of the school that it has created, and a test file may create schools for
          // half a minute.
          await vacuumCatalog();
          if (repeated > 5) await pause(1_000);
          const { pages, rows } = await cost(each);
          row[name] = { pages: Math.min(pages, lowest.pages), rows: Math.min(rows, lowest.rows) };
        }
      }
      costs.push(row);
      from = to + 1;
    }
  }, 300_000);
  afterAll(() => database.drop());

  test.each(Object.keys(cases(0, '')))('%s at the same cost', (name) => {
    const [less, more] = costs.map((row) => row[name]);
    if (!less || !more) throw new Error('The costs were not measured.');
    expect({ less, more, isSame: hasSamePages(less, more) }).toEqual({ less, more, isSame: true });
    expect({ less, more, isSame: hasSameRows(less, more) }).toEqual({ less, more, isSame: true });
  });
});
