import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { sqlFile, sqlFiles } from '../../src/database/migrate/install.ts';
import { testDatabase, type TestDatabase } from '../support/server/database.ts';
import { type BareTenant, provision } from '../support/database/tenants.ts';

let database: TestDatabase;
let school: BareTenant;
let schemas: string[];

beforeAll(async () => {
  database = await testDatabase();
  school = await provision(database);
  schemas = ['platform', school.schema];
});
afterAll(() => database.drop());

/** The names in the first column of a query. */
async function names(text: string, values: unknown[] = []): Promise<string[]> {
  return (await database.query<{ name: string }>(text, values)).map((row) => row.name);
}

/** Tables whose rows never change, so they have no updated_at. The first two have other names for created_at. */
const writtenOnce = ['platform.installation', 'platform.state_transition', 'platform.audit_log'];

describe('tables', () => {
  const tables = "c.relkind in ('r', 'p') and c.relnamespace = any ($1::regnamespace[])";

  test('each has a comment', async () => {
    expect(
      await names(
        `select c.oid::regclass::text as name from pg_class c where ${tables} and obj_description(c.oid, 'pg_class') is null`,
        [['core', 'mart', ...schemas]],
      ),
    ).toEqual([]);
  });

  test('each has a primary key', async () => {
    expect(
      await names(
        `select c.oid::regclass::text as name from pg_class c where ${tables} and not exists (select from pg_constraint k where k.conrelid = c.oid and k.contype = 'p')`,
        [['core', 'mart', ...schemas]],
      ),
    ).toEqual([]);
  });

  test('each has created_at and updated_at, except for tables whose rows never change', async () => {
    const lacking = (column: string) =>
      names(
        `select c.oid::regclass::text as name from pg_class c where ${tables} and not exists (
           select from pg_attribute a where a.attrelid = c.oid and a.attname = $2 and a.atttypid = 'timestamptz'::regtype and a.attnotnull and a.atthasdef)`,
        [schemas, column],
      );
    expect((await lacking('created_at')).sort()).toEqual(writtenOnce.slice(0, 2).sort());
    expect((await lacking('updated_at')).sort()).toEqual([...writtenOnce].sort());
  });

  test('each with updated_at has a trigger of its own schema that sets it', async () => {
    const untouched = await names(
      `select c.oid::regclass::text as name from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'updated_at'
       where ${tables} and not exists (select from pg_trigger t join pg_proc p on p.oid = t.tgfoid
         where t.tgrelid = c.oid and p.proname = 'touch_updated_at' and p.pronamespace = c.relnamespace and t.tgenabled <> 'D')`,
      [schemas],
    );
    expect(untouched).toEqual([]);
  });

  test('columns use timestamptz, bigint, numeric, and text without a length', async () => {
    expect(
      await names(
        `select c.oid::regclass || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) as name
         from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
         where ${tables} and (a.atttypid in ('timestamp'::regtype, 'timetz'::regtype, 'real'::regtype, 'money'::regtype, 'varchar'::regtype, 'bpchar'::regtype)
           or (a.attname = 'id' and a.atthasdef and a.atttypid not in ('bigint'::regtype, 'boolean'::regtype)) or a.attidentity <> '')`,
        [schemas],
      ),
    ).toEqual([]);
  });
});

describe('foreign keys', () => {
  test('each states its on delete action', async () => {
    expect(
      await names(
        `select conrelid::regclass || ' ' || conname as name from pg_constraint where contype = 'f' and connamespace = any ($1::regnamespace[]) and confdeltype = 'a'`,
        [['core', 'mart', ...schemas]],
      ),
    ).toEqual([]);
  });

  test('each has an index that starts with its columns', async () => {
    expect(
      await names(
        `select k.conrelid::regclass || ' ' || k.conname as name from pg_constraint k
         where k.contype = 'f' and k.connamespace = any ($1::regnamespace[]) and not exists (
           select from pg_index i where i.indrelid = k.conrelid and i.indisvalid
             -- A partial index without null references is sufficient.
             and (i.indpred is null or pg_get_expr(i.indpred, i.indrelid) = (
               select format('(%I IS NOT NULL)', a.attname) from pg_attribute a where a.attrelid = k.conrelid and array[a.attnum] = k.conkey))
             and (select array_agg(n) from unnest(i.indkey::smallint[]) with ordinality x (n, position) where position <= cardinality(k.conkey)) @> k.conkey)`,
        [schemas],
      ),
    ).toEqual([]);
  });
});

describe('functions', () => {
  test('each of core and api has a comment in the database or a header in its file', async () => {
    const files = await Promise.all(['db/core', 'db/api', 'db/jobs'].map((folder) => sqlFiles(folder)));
    const headed = new Set(
      files
        .flat()
        .flatMap(({ text }) =>
          [...text.matchAll(/^--.*\ncreate (?:or replace )?function (core|api)\.(\w+)/gm)].map(
            ([, schema = '', name = '']) => `${schema}.${name}`,
          ),
        ),
    );
    const bare = await names(
      `select pronamespace::regnamespace || '.' || proname as name from pg_proc
       where pronamespace in ('core'::regnamespace, 'api'::regnamespace) and obj_description(oid, 'pg_proc') is null order by 1`,
    );
    expect(bare.filter((name) => !headed.has(name))).toEqual([]);
  });

  test('each operation takes one jsonb, returns json, and is stable exactly if it only reads', async () => {
    expect(
      await names(
        `select o.name from core.operation o left join pg_proc p on p.proname = o.name and p.pronamespace = 'api'::regnamespace
         where p.oid is null or p.proargtypes <> array['jsonb'::regtype]::oidvector or p.prorettype <> 'json'::regtype or p.proretset
           or p.provolatile <> case when o.writes then 'v' else 's' end::"char"`,
      ),
    ).toEqual([]);
  });

  test('each security definer function is in core and sets its search_path', async () => {
    expect(
      await names(
        `select oid::regprocedure::text as name from pg_proc
         where prosecdef and (pronamespace <> 'core'::regnamespace or not coalesce(proconfig @> array['search_path=pg_catalog, pg_temp'], false))`,
      ),
    ).toEqual([]);
    expect(
      (await names("select proname::text as name from pg_proc where prosecdef and pronamespace = 'core'::regnamespace"))
        .length,
    ).toBeGreaterThan(10);
  });
});

test('an operation or a record that does not fit the others or the tables fails the installation', async () => {
  const finish = (await sqlFile('db/finish.sql')).text;
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  try {
    for (const [definition, message] of [
      ["core.define_operation('probe')", 'the operation probe has no function api.probe(jsonb)'],
      [
        "core.define_operation('probe', p_record => 'no_such_record')",
        'the operation probe names a record that is not defined',
      ],
      [
        "core.define_record('probe', 'grade', 'g.id', 'grade g', 'g.id', p_default_sort => 'name')",
        'the record probe has no sort name',
      ],
      ...[
        "'class c join grade g on g.id = c.grade_id', 'g.id', p_one_row_per_key => true",
        "'grade gr', 'g.id', p_one_row_per_key => true",
        "'grade g', 'g.id'",
      ].map(
        (source) =>
          [
            `core.define_record('probe', 'grade', 'g.id', ${source}, p_single_page_filters => '{id}', p_equals => '{id}')`,
            'the record probe has single_page_filters, but several rows per key, or a source that does not start with grade g',
          ] as const,
      ),
      ...['single_page', 'narrow'].map(
        (kind) =>
          [
            `core.define_record('probe', 'grade', 'g.id', 'grade g', 'g.id', p_one_row_per_key => true, p_${kind}_filters => '{name}')`,
            'the record probe has no filter name',
          ] as const,
      ),
      [
        "core.define_record('probe', 'grade', 'g.id', 'grade g', 'g.id', p_writable => '{name,sequense}')",
        'the record probe has the writable column sequense, but the table grade has no such column',
      ],
      [
        "core.define_record('probe', 'no_such_table', 'g.id', 'grade g', 'g.id', p_writable => '{name}')",
        'the record probe has the writable column name, but the table no_such_table has no such column',
      ],
    ] as const) {
      await client.query('begin');
      await client.query('alter table core.operation alter column writes drop not null');
      await client.query(`select ${definition}`);
      await expect(client.query(finish)).rejects.toThrow(message);
      await client.query('rollback');
    }
    // The tables of the platform have other columns than tables of a school with the same name.
    await client.query('begin');
    await client.query('alter table core.operation alter column writes drop not null');
    await client.query(
      "update core.record set writable = writable || '{key}' where name in ('notification_template', 'platform_notification_template')",
    );
    await expect(client.query(finish)).rejects.toThrow(
      /^the record notification_template has the writable column key, but the table notification_template has no such column$/,
    );
    await client.query('rollback');
    // The definitions of the service pass, with a school to compare them with.
    await client.query(finish);
  } finally {
    await client.end();
  }
});

test('the joins of a record with one row per key add no rows, so Postgres removes them from counts', async () => {
  const records = await database.query<{ name: string; source: string }>(
    'select name, source from core.record where one_row_per_key',
  );
  expect(records.length).toBeGreaterThan(20);
  expect(records.filter(({ source }) => source.includes('left join')).length).toBeGreaterThan(8);
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  try {
    await client.query(`set search_path = ${school.schema}, platform, public`);
    const version = await client.query<{ number: number }>(
      "select current_setting('server_version_num')::integer number",
    );
    // Before Postgres 18 a join stays if the condition of another one reads it, even if that one is removed.
    const readsMore = new Set((version.rows[0]?.number ?? 0) < 180000 ? ['payment'] : []);
    for (const { name, source } of records) {
      const { rows } = await client.query<{ 'QUERY PLAN': string }>(`explain select count(*) from ${source}`);
      expect({
        name,
        reads: rows.filter((row) => / (Scan|Scan using \w+) on /.test(row['QUERY PLAN'])).length,
      }).toEqual({ name, reads: readsMore.has(name) ? 3 : 1 });
    }
  } finally {
    await client.end();
  }
});

describe('a school', () => {
  test('depends on nothing outside its schema except Postgres, extensions and the functions for search, and nothing depends on it', async () => {
    // Every object of the schema, and the parts of its tables (columns, defaults, policies, triggers, indexes).
    const crossing = await names(
      `with place as (
         select d.classid, d.objid, d.objsubid, d.refclassid, d.refobjid, d.refobjsubid,
           pg_identify_object(d.classid, d.objid, 0) as object, pg_identify_object(d.refclassid, d.refobjid, 0) as target
         from pg_depend d where d.deptype <> 'p' and d.classid <> 0 and d.objid >= 16384),
       named as (
         select (object).identity as object, (target).identity as target, (target).type as kind,
           (object).identity ~ ('\\m' || $1 || '\\.') or (object).identity = $1 as inside,
           (target).identity ~ ('\\m' || $1 || '\\.') or (target).identity = $1 as target_inside
         from place)
       select distinct object || ' -> ' || target as name from named
       where inside <> target_inside and not starts_with(object, 'pg_toast.')
         and not (inside and (kind in ('language', 'access method', 'extension') or target ~ '^(pg_catalog|public)\\.' or target ~ ' USING ' or target = 'platform.search_normal(pg_catalog.text)'
           or target ~ '^[a-z0-9 "]+(\\[\\])?$'))`,
      [school.schema],
    );
    expect(crossing).toEqual([]);
  });

  test('has foreign keys only to its own tables and triggers only to its own functions', async () => {
    expect(
      await names(
        `select conrelid::regclass || ' ' || conname as name from pg_constraint k join pg_class target on target.oid = k.confrelid
         where contype = 'f' and (connamespace = $1::regnamespace) <> (target.relnamespace = $1::regnamespace)
         union all
         select t.tgrelid::regclass || ' ' || t.tgname from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_proc p on p.oid = t.tgfoid
         where not t.tgisinternal and (c.relnamespace = $1::regnamespace) <> (p.pronamespace = $1::regnamespace)`,
        [school.schema],
      ),
    ).toEqual([]);
  });

  test('has functions that name no schema and set the search_path, unless the names in their body are bound or they use no table', async () => {
    expect(
      await names(
        `select proname::text as name from pg_proc where pronamespace = $1::regnamespace
         and (coalesce(replace(pg_get_function_sqlbody(oid), $1 || '.', ''), prosrc) ~ '\\m(platform|core|api|analytics|graphile_worker|tenant_[0-9]+)\\.' or (proname <> 'touch_updated_at' and prosqlbody is null and not coalesce(array_to_string(proconfig, ' ') ~ ('search_path=' || $1), false)))`,
        [school.schema],
      ),
    ).toEqual([]);
  });

  test('has no views, rules or inherited tables', async () => {
    expect(
      await names(
        `select c.relname::text as name from pg_class c where c.relnamespace = $1::regnamespace
           and (c.relkind not in ('r', 'i', 'S', 'p', 'I') or c.relhasrules or (c.relkind = 'r' and c.relhassubclass) or c.relispartition)`,
        [school.schema],
      ),
    ).toEqual([]);
  });
});
