import { createHash } from 'node:crypto';
import type pg from 'pg';

/**
 * The catalog of the schema `analytics`, in the format of pg-introspection, whose own query returns the whole catalog:
 * with 440 schools it runs for more than ten minutes. This one finds the views by their dependency on the schema, so
 * its cost does not depend on the number of schools. The views have no constraints, indexes or functions.
 *
 * It has what the GraphQL schema depends on and nothing else, so that all databases with the same views have the same
 * catalog: `src/analytics/catalog.json`. Views are therefore numbered by name, above all built-in types: a view has the
 * id n, its row type n + 1, and the array of that n + 2. Of the privileges it has only whether analysts can read.
 */
export const catalogQuery = `
with views as (
  select c.*, (20000 + 10 * row_number() over (order by c.relname collate "C"))::oid as id
  from pg_depend d
  join pg_class c on c.oid = d.objid
  where d.refclassid = 'pg_namespace'::regclass
    and d.refobjid = 'analytics'::regnamespace
    and d.classid = 'pg_class'::regclass
),
namespaces(_id, nspname, nspowner, nspacl) as (
  values ('11'::oid, 'pg_catalog', '10'::oid, '[]'::json), ('20000', 'analytics', '10', '[]')
),
classes as (
  select id as _id, relname, '20000'::oid as relnamespace, (id::bigint + 1)::oid as reltype, '10'::oid as relowner,
    '0'::oid as reloftype, '0'::oid as relam, relkind, relpersistence, relispartition,
    case when has_table_privilege('school_analyst', oid, 'select') then '["school_analyst=r/owner"]' else '[]' end::json
      as relacl,
    pg_relation_is_updatable(oid, true)::bit(8)::integer as updatable_mask
  from views
),
attributes as (
  select v.id as attrelid, a.attname, a.atttypid, a.attnum, a.atttypmod, a.attnotnull, a.atthasdef, a.attidentity,
    a.attgenerated, a.attisdropped,
    case
      when has_table_privilege('school_analyst', v.oid, 'select') then null
      when has_column_privilege('school_analyst', v.oid, a.attnum, 'select') then '["school_analyst=r/owner"]'
    end::json as attacl
  from views v
  join pg_attribute a on a.attrelid = v.oid
  where a.attnum > 0
),
-- Also the types of the expressions that PostGraphile adds: counts, averages and truncated dates.
type_ids as (
  select atttypid as id from attributes
  union
  select unnest('{boolean,bigint,integer,numeric,text,date,timestamp,timestamptz,interval,json}'::regtype[])
),
types as (
  select t.oid as _id, t.typname::text, t.typnamespace, '10'::oid as typowner, t.typtype::text,
    t.typcategory::text, t.typnotnull, t.typdelim::text, t.typrelid, t.typelem, t.typarray, t.typbasetype
  from pg_type t
  where t.oid in (
    select id from type_ids
    union
    select a.typarray
    from type_ids
    join pg_type a on a.oid = type_ids.id
  )
  union all
  select (id::bigint + 1)::oid, relname, '20000', '10', 'c', 'C', false, ',', id, 0, (id::bigint + 2)::oid, 0
  from views
  union all
  select (id::bigint + 2)::oid, '_' || relname, '20000', '10', 'b', 'A', false, ',', 0, (id::bigint + 1)::oid, 0, 0
  from views
),
descriptions as (
  select v.id as objoid, d.classoid, d.objsubid, d.description
  from views v
  join pg_description d on d.objoid = v.oid and d.classoid = 'pg_class'::regclass
)
select json_build_object(
  'database', json_build_object('_id', '1', 'datname', '', 'datdba', '10', 'datacl', '[]'::json),
  'namespaces', (select json_agg(n order by n.nspname) from namespaces n),
  'classes', (select json_agg(c order by c._id) from classes c),
  'attributes', (select json_agg(a order by a.attrelid, a.attnum) from attributes a),
  'types', (select json_agg(t order by t.typnamespace, t.typname collate "C") from types t),
  'roles', json_build_array(
    json_build_object('_id', '10', 'rolname', 'owner', 'rolsuper', false, 'rolinherit', true),
    json_build_object('_id', '19999', 'rolname', 'school_analyst', 'rolsuper', false, 'rolinherit', true)
  ),
  'descriptions', (select coalesce(json_agg(d order by d.objoid, d.objsubid), '[]') from descriptions d),
  'auth_members', '[]'::json,
  'constraints', '[]'::json,
  'procs', '[]'::json,
  'enums', '[]'::json,
  'extensions', '[]'::json,
  'indexes', '[]'::json,
  'inherits', '[]'::json,
  'languages', '[]'::json,
  'policies', '[]'::json,
  'ranges', '[]'::json,
  'depends', '[]'::json,
  'am', '[]'::json,
  'catalog_by_oid', (
    select json_object_agg(name::regclass::oid::text, name)
    from unnest('{pg_namespace,pg_class,pg_attribute,pg_constraint,pg_proc,pg_type,pg_enum,pg_extension}'::text[]) name
  ),
  'current_user', 'school_analyst',
  'pg_version', '',
  'introspection_version', 1
) as catalog`;

/**
 * The catalog of a database as JSON. All databases with the same views have the same text.
 * @throws when the database is not available or has no schema `analytics`
 */
export async function readCatalog(pool: pg.Pool): Promise<string> {
  const client = await pool.connect();
  try {
    // Catalogs with thousands of schools are too large to be scanned.
    await client.query("begin read only; set local enable_seqscan = off; set local statement_timeout = '60s'");
    const { rows } = await client.query<{ catalog: object }>(catalogQuery);
    await client.query('commit');
    client.release();
    return JSON.stringify(rows[0]?.catalog);
  } catch (error) {
    client.release(true);
    throw error;
  }
}

/** Identifies a catalog. */
export const catalogFingerprint = (catalog: string): string => createHash('sha256').update(catalog).digest('hex');
