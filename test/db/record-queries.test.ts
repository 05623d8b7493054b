import { afterAll, beforeAll, expect, test } from '@jest/globals';
import pg from 'pg';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { type BareTenant, provision } from '../support/database/tenants.ts';

let database: TestDatabase;
let school: BareTenant;
let client: pg.Client;

beforeAll(async () => {
  database = await testDatabase(3);
  school = await provision(database);
  client = new pg.Client({ connectionString: database.url });
  await client.connect();
  await client.query(`
    create function pg_temp.plan_error(p_record text, p jsonb) returns json language plpgsql as $$
    declare
      v_record core.record;
    begin
      select * into strict v_record from core.record where name = p_record;
      if p is null then
        execute format('explain select %s from %s where (%s) and %s = 1', v_record.columns, v_record.source, v_record.condition, v_record.key);
      else
        perform set_config('app.parameters', p::text, true);
        execute 'prepare list as ' || core.record_page_query(v_record, p);
        execute 'explain execute list';
        deallocate list;
      end if;
      return null;
    exception when others then
      if exists (select from pg_prepared_statements where name = 'list') then
        deallocate list;
      end if;
      return json_build_object('code', sqlstate, 'message', sqlerrm);
    end $$;
    -- Of a record of the schemas in the search path; empty for other records.
    create function pg_temp.scalar_columns(p_record core.record) returns text[] language plpgsql as $$
    begin
      drop table if exists pg_temp.shown;
      execute format('create temporary table shown as select %s from %s limit 0', p_record.columns, p_record.source);
      return array(
        select attname from pg_attribute join pg_type t on t.oid = atttypid
        where attrelid = 'pg_temp.shown'::regclass and attnum > 0 and t.typcategory <> 'A' and t.typname not in ('json', 'jsonb'));
    exception when undefined_table or undefined_column then
      return '{}';
    end $$`);
});
afterAll(async () => {
  await client.end();
  await database.drop();
});

interface PlanError {
  code: string;
  message: string;
}

interface RecordDefinition {
  name: string;
  filters: string[];
  /** Those that the record defines, and every scalar column that it shows. */
  sorts: string[];
  has_search: boolean;
  default_sort: string | null;
}

/** Values for a filter: each type of column takes at least one of them. */
const values = ['1', '2026-01-01', 'true'];

type Params = Record<string, string>;

/** For each of these parameters, the error of planning the list of a record; for null, of reading one row. */
async function planErrors(record: string, params: (Params | null)[]): Promise<(PlanError | null)[]> {
  const { rows } = await client.query<{ error: PlanError | null }>(
    `select pg_temp.plan_error($1, nullif(p, 'null')) as error from jsonb_array_elements($2) with ordinality t (p, n) order by n`,
    [record, JSON.stringify(params)],
  );
  return rows.map(({ error }) => error);
}

/**
 * Plans every combination that a request can ask for, one filter at a time. Returns a line per error, and the number of
 * plans.
 */
async function explain({ name, filters, sorts, has_search, default_sort }: RecordDefinition) {
  const sorted = sorts.flatMap((sort) => ['asc', 'desc'].map((order): Params => ({ sort, order })));
  const orders = default_sort === null ? sorted : [{}, ...sorted];
  const searches: Params[] = has_search ? [{}, { search: "ada o'neil" }] : [{}];
  const tried = filters.flatMap((filter) => values.map((value) => ({ filter, value })));
  const errors = await planErrors(
    name,
    tried.map(({ filter, value }) => ({ ...orders[0], [filter]: value })),
  );
  // A value of the wrong type for the column does not fit.
  const fits = errors.map((error) => !error || !/^22(P02|007|008)$/.test(error.code));
  const fitting = filters.map((filter): Params => {
    const found = tried.find((each, n) => each.filter === filter && fits[n]);
    return { [filter]: found?.value ?? values.at(-1) ?? '' };
  });
  const all = [
    null,
    ...[{}, ...fitting].flatMap((filter) =>
      orders.flatMap((order) => searches.map((search): Params => ({ ...order, ...search, ...filter }))),
    ),
  ];
  const faults = (await planErrors(name, all)).flatMap((error, n) =>
    error ? [`${name} ${JSON.stringify(all[n])}: ${error.message}`] : [],
  );
  return { faults, plans: tried.length + all.length };
}

const definitions = async () =>
  (
    await client.query<RecordDefinition>(
      `select name, array(select jsonb_object_keys(filters)) as filters,
         array(select jsonb_object_keys(sorts) union select unnest(pg_temp.scalar_columns(r)) where default_sort is not null) as sorts,
         search is not null as has_search, default_sort
       from core.record r order by name`,
    )
  ).rows;

/** Runs work in a transaction that is rolled back, as a request of this schema finds its tables. */
async function inSchema<T>(schema: string, work: () => Promise<T>): Promise<T> {
  await client.query('begin');
  try {
    await client.query(`set local search_path = ${schema}, public`);
    return await work();
  } finally {
    await client.query('rollback');
  }
}

test('Postgres can plan every record with every filter, sort, direction and search', async () => {
  const ofPlatform = [
    ...['tenant', 'plan', 'operator', 'operator_api_key', 'audit_log'],
    ...['platform_notification_template', 'saved_question'],
  ];
  const ofBoth = ['webhook', 'webhook_delivery'];
  const faults: string[] = [];
  let plans = 0;
  for (const record of await definitions()) {
    const schemas = ofBoth.includes(record.name)
      ? ['platform', school.schema]
      : [ofPlatform.includes(record.name) ? 'platform' : school.schema];
    for (const schema of schemas) {
      const explained = await inSchema(schema, () => explain(record));
      faults.push(...explained.faults);
      plans += explained.plans;
    }
  }
  expect(plans).toBeGreaterThan(1000);
  expect(faults).toEqual([]);
});

test('the check finds a typo in the columns, a filter, a sort or the search of a record', async () => {
  for (const typo of [
    "update core.record set columns = 'm.typo' where name = 'grade'",
    "update core.record set search = 'm.typo' where name = 'grade'",
    "select core.define_filter('grade', 'typo', 'm.typo = :value')",
    "select core.define_sort('grade', 'typo', 'm.typo')",
  ]) {
    const { faults } = await inSchema(school.schema, async () => {
      await client.query(typo);
      const grade = (await definitions()).find(({ name }) => name === 'grade');
      if (!grade) throw new Error('There is no record grade.');
      return explain(grade);
    });
    expect(faults).toContainEqual(expect.stringContaining('column m.typo does not exist'));
  }
});
