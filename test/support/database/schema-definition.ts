import type { TestDatabase } from '../server/database.ts';

/**
 * The definition of some schemas, one line per object: columns, constraints, indexes, triggers, policies, functions,
 * sequences, grants, comments. Schema names of schools become tenant_N, so that two schools compare equal.
 */
export async function schemaDefinition(database: Pick<TestDatabase, 'query'>, schemas: string[]): Promise<string[]> {
  const lines = await database.query<{ line: string }>(
    `with wanted as (select oid, nspname, nspacl from pg_namespace where nspname = any ($1)),
     relation as (select c.* from pg_class c join wanted w on w.oid = c.relnamespace)
     select 'schema ' || nspname || ' ' || coalesce(nspacl::text, '') || coalesce(obj_description(oid, 'pg_namespace'), '') as line from wanted
     union all select format('relation %s %s %s %s %s %s', oid::regclass, relkind, relrowsecurity, relforcerowsecurity, relacl, obj_description(oid, 'pg_class')) from relation
     union all select format('column %s.%s %s %s %s %s %s %s %s %s', r.oid::regclass, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated, a.attstorage,
         pg_get_expr(d.adbin, d.adrelid), a.attacl, col_description(r.oid, a.attnum))
       from relation r join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped left join pg_attrdef d on d.adrelid = r.oid and d.adnum = a.attnum
     union all select format('constraint %s %s %s', k.conrelid::regclass, k.conname, pg_get_constraintdef(k.oid)) from pg_constraint k join wanted w on w.oid = k.connamespace
     union all select format('index %s', pg_get_indexdef(r.oid)) from relation r where r.relkind in ('i', 'I')
     union all select format('trigger %s', pg_get_triggerdef(t.oid)) from pg_trigger t join relation r on r.oid = t.tgrelid where not t.tgisinternal
     union all select format('policy %s %s %s %s %s %s %s', schemaname, tablename, policyname, permissive, roles, qual, with_check) from pg_policies where schemaname = any ($1)
     union all select format('function %s %s %s', pg_get_functiondef(p.oid), p.proacl, obj_description(p.oid, 'pg_proc')) from pg_proc p join wanted w on w.oid = p.pronamespace where p.prokind = 'f'
     union all select format('sequence %s %s %s %s', s.seqrelid::regclass, s.seqtypid::regtype, s.seqstart, s.seqincrement) from pg_sequence s join relation r on r.oid = s.seqrelid`,
    [schemas],
  );
  return lines
    .map(({ line }) =>
      line.replace(/\btenant_\d+\b/g, 'tenant_N').replace(/(app\.tenant_id'::text, true\) = )'\d+'/g, "$1'N'"),
    )
    .sort();
}

/** The schemas of the service, those of schools included. */
export async function serviceSchemas(database: Pick<TestDatabase, 'query'>): Promise<string[]> {
  const rows = await database.query<{ name: string }>(
    "select nspname::text as name from pg_namespace where nspname ~ '^(platform|core|api|graphile_worker|graphile_migrate|tenant_[0-9]+)$' order by 1",
  );
  return rows.map((row) => row.name);
}
