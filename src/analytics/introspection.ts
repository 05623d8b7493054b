import type pg from 'pg';

/**
 * The catalog of the schema `analytics`, in the format of pg-introspection, whose own query returns the whole catalog:
 * with 440 schools it runs for more than ten minutes. This one finds the views by their dependency on the schema, so
 * its cost does not depend on the number of schools. The views have no constraints, indexes or functions.
 */
export const catalogQuery = `
with classes as (
  select c.oid as _id, c.*, pg_relation_is_updatable(c.oid, true)::bit(8)::integer as updatable_mask
  from pg_depend d
  join pg_class c on c.oid = d.objid
  where d.refclassid = 'pg_namespace'::regclass
    and d.refobjid = 'analytics'::regnamespace
    and d.classid = 'pg_class'::regclass
),
attributes as (
  select a.*
  from classes c
  join pg_attribute a on a.attrelid = c._id
  where a.attnum > 0
),
-- Also the types of the expressions that PostGraphile adds: counts, averages and truncated dates.
type_ids as (
  select atttypid as id from attributes
  union
  select reltype from classes
  union
  select unnest('{boolean,bigint,integer,numeric,text,date,timestamp,timestamptz,interval,json}'::regtype[])
),
types as (
  select t.oid as _id, t.*
  from pg_type t
  where t.oid in (
    select id from type_ids
    union
    select a.typarray
    from type_ids
    join pg_type a on a.oid = type_ids.id
  )
),
namespaces as (
  select n.oid as _id, n.*
  from pg_namespace n
  where n.oid in ('analytics'::regnamespace, 'pg_catalog'::regnamespace)
),
roles as (select r.oid as _id, r.* from pg_roles r),
memberships as (select * from pg_auth_members where roleid in (select _id from roles)),
descriptions as (
  select d.*
  from classes c
  join pg_description d on d.objoid = c._id and d.classoid = 'pg_class'::regclass
)
select json_build_object(
  'database', (
    select row_to_json(d) from (select oid as _id, * from pg_database where datname = current_database()) d
  ),
  'namespaces', (select json_agg(n order by n.nspname) from namespaces n),
  'classes', (select json_agg(c order by c.relname) from classes c),
  'attributes', (select json_agg(a order by a.attrelid, a.attnum) from attributes a),
  'types', (select json_agg(t order by t.typnamespace, t.typname) from types t),
  'roles', (select json_agg(r order by r.rolname) from roles r),
  'auth_members', (select coalesce(json_agg(m), '[]') from memberships m),
  'descriptions', (select coalesce(json_agg(d order by d.objoid, d.objsubid), '[]') from descriptions d),
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
  'current_user', current_user,
  'pg_version', version(),
  'introspection_version', 1
)::text as introspection`;

/** How the query of pg-introspection ends. */
const introspectionColumn = /as introspection\s*$/;

/** A pool with which PostGraphile reads the catalog. PostGraphile takes a connection and runs its statements on it. */
export function introspectionPool(pool: pg.Pool): pg.Pool {
  const connect = async () => {
    const client = await pool.connect();
    return new Proxy(client, {
      get(target, name) {
        if (name === 'query')
          return (query: string | pg.QueryConfig, values?: unknown[]) =>
            typeof query === 'object' && introspectionColumn.test(query.text)
              ? target.query({ ...query, text: catalogQuery })
              : target.query(query, values);
        const value: unknown = Reflect.get(target, name);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
    });
  };
  return Object.create(pool, { connect: { value: connect } }) as pg.Pool;
}
