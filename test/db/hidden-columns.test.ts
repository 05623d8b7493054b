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
    -- The columns that a query reads, as table.column, from what Postgres notes of a view. Of a generated column, those
    -- from which it is made.
    create function pg_temp.columns_of(p_query text) returns text[] language plpgsql as $$
    begin
      execute 'create or replace temporary view asked as ' || p_query;
      return array(
        with recursive read (relation, number) as (
          select d.refobjid, d.refobjsubid
          from pg_rewrite r
          join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
            and d.refclassid = 'pg_class'::regclass and d.refobjsubid > 0
          where r.ev_class = 'pg_temp.asked'::regclass
          union
          select d.refobjid, d.refobjsubid
          from read
          left join pg_attrdef a on a.adrelid = relation and a.adnum = number
          join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = relation and d.refobjsubid > 0
            and d.refobjsubid <> number
            and ((d.classid = 'pg_attrdef'::regclass and d.objid = a.oid)
              or (d.classid = 'pg_class'::regclass and d.objid = relation and d.objsubid = number))
        )
        select format('%s.%s', relation::regclass, attname)
        from read
        join pg_attribute on attrelid = relation and attnum = number
        where attgenerated = '' and attname not in ('id', 'deleted_at') and attname not like '%\\_id'
        order by 1);
    end $$;
    create function pg_temp.hidden(p_record core.record, p_expression text) returns text[] language plpgsql as $$
    declare
      v_shown text[];
      v_used text[];
    begin
      drop view if exists pg_temp.asked;
      v_shown := pg_temp.columns_of(format('select %s from %s', p_record.columns, p_record.source));
      drop view pg_temp.asked;
      v_used := pg_temp.columns_of(format('select (%s) as used from %s', p_expression, p_record.source));
      return array(select unnest(v_used) except select unnest(v_shown) order by 1);
    end $$`);
});
afterAll(async () => {
  await client.end();
  await database.drop();
});

const ofPlatform = [
  ...['tenant', 'plan', 'operator', 'operator_api_key', 'audit_log'],
  ...['platform_notification_template', 'saved_question'],
];

/** `record: what it reads besides its columns`, for the search or each sort of every record. */
async function revealed(expressions: string): Promise<string[]> {
  const lines: string[] = [];
  for (const schema of [school.schema, 'platform']) {
    await client.query('begin');
    await client.query(`set local search_path = ${schema}, public`);
    const { rows } = await client.query<{ record: string; what: string; hidden: string[] }>(
      `select r.name as record, e.what, pg_temp.hidden(r, e.expression) as hidden
       from core.record r cross join lateral (${expressions}) e (what, expression)
       where (r.name = any ($1)) = $2 and r.default_sort is not null`,
      [ofPlatform, schema === 'platform'],
    );
    await client.query('rollback');
    lines.push(...rows.flatMap(({ record, what, hidden }) => hidden.map((column) => `${record} ${what}: ${column}`)));
  }
  return lines.toSorted();
}

// Patterns and phrases as core.record_where replaces them.
const search = `
  select 'search', replace(replace(replace(r.search, ':patterns', $$'{x}'$$), ':pattern', $$'x'$$), ':phrase', $$'x'$$)
  where r.search is not null`;
const sorts = `
  select sort.key, regexp_replace(key.value, ' nulls last$', '')
  from jsonb_each(r.sorts) sort cross join jsonb_array_elements_text(sort.value) key (value)`;

test('the search of every record uses only what its lists show', async () => {
  expect(await revealed(search)).toEqual([]);
});

test('the sorts of every record use only what its lists show, and the order of the grades', async () => {
  // The grades are open to all users of a school, and grade_id or the class is shown.
  const isOrderOfGrades = (line: string) => line.endsWith(': grade.sequence') || line.endsWith('.grade.sequence');
  expect((await revealed(sorts)).filter((line) => !isOrderOfGrades(line))).toEqual([]);
});

test('the check finds a search and a sort by a hidden column, also in a generated column', async () => {
  await client.query('begin');
  await client.query(`
    update core.record set search = 's.search_text' where name = 'transport_enrollment';
    select core.define_sort('transport_enrollment', 'hidden', 's.parent_phone')`);
  const changed = async (expressions: string) => {
    await client.query(`set local search_path = ${school.schema}, public`);
    const { rows } = await client.query<{ hidden: string[] }>(
      `select pg_temp.hidden(r, e.expression) as hidden
       from core.record r cross join lateral (${expressions}) e (what, expression)
       where r.name = 'transport_enrollment' and e.what in ('search', 'hidden')`,
    );
    return rows[0]?.hidden;
  };
  expect(await changed(search)).toEqual(['student.email', 'student.parent_name', 'student.roll_number']);
  expect(await changed(sorts)).toEqual(['student.parent_phone']);
  await client.query('rollback');
});
