-- Runs after all functions are installed: what depends on all definitions at once.

-- Whether an operation writes follows from the volatility of its function.
update core.operation o set writes = p.provolatile = 'v'
from core.functions_in('api') p
where p.proname = o.name and p.proargtypes = array['jsonb'::regtype]::oidvector;

-- What a write answers is read by the get of its record.
update core.operation o set reader = g.name
from core.operation g
where o.reader is null and o.writes and o.access = 'tenant'
  and g.record = o.record and g.name like '%\_get' and not g.writes and g.access = 'tenant'
  and g.permission <> o.permission;

update core.operation o set unversioned_fields = r.unversioned_fields from core.record r where r.name = o.record;
update core.operation o set unversioned_fields = v.unversioned_fields
from core.operation v
where v.name = o.versioned_by and o.unversioned_fields is null;

select core.define_run_operation();
select core.define_publications();

do $check$
declare
  v_fault text;
  -- Any school with the current tables. Before the first one is created, writable columns cannot be checked.
  v_school text := (
    select 'tenant_' || id
    from platform.tenant
    where schema_version = (select max(version) from platform.tenant_migration)
      and to_regnamespace('tenant_' || id) is not null
    order by id desc
    limit 1);
begin
  select string_agg(fault, '; ' order by fault) into v_fault from (
    select format('the operation %s has no function api.%1$s(jsonb)', name) as fault from core.operation
      where writes is null
    union all
    select format('the operation %s names a record that is not defined', name) from core.operation
      where exists (select unnest(array[record, lock_first]) except select r.name from core.record r except select null)
    union all
    select format('the operation %s repeats the answer of api.%s(jsonb), which is not defined', name, present)
      from core.operation
      where present not in ('none', 'record', 'itself') and to_regprocedure(format('api.%I(jsonb)', present)) is null
    union all
    select format('the operation %s is versioned by api.%s(jsonb), which is not defined, or has no unversioned_fields',
        name, versioned_by)
      from core.operation
      where versioned_by is not null
        and (to_regprocedure(format('api.%I(jsonb)', versioned_by)) is null or unversioned_fields is null)
    union all
    select format('the operation %s is locked by api.%s(jsonb), which is not defined', name, locked_by)
      from core.operation
      where locked_by is not null and to_regprocedure(format('api.%I(jsonb)', locked_by)) is null
    union all
    select format('the recipients of the event %s are found by api.%s(jsonb), which is not defined', key, recipients)
      from core.notification_event
      where to_regprocedure(format('api.%I(jsonb)', recipients)) is null
    union all
    select format('the operation %s has the reader %s, which is no operation that reads', name, reader)
      from core.operation
      where reader not in (select r.name from core.operation r where not r.writes)
    union all
    select format('the record %s has no sort %s', name, default_sort) from core.record where not sorts ? default_sort
    union all
    -- core.record_page_query replaces the main table by its matching rows.
    select format('the record %s has single_page_filters, but several rows per key, or a source that does not start '
        'with %I %I', name, table_name, split_part(key, '.', 1))
      from core.record
      where single_page_filters <> '{}'
        and not (one_row_per_key and source ~ format('^\s*%I\s+%I\M', table_name, split_part(key, '.', 1)))
    union all
    select format('the record %s has no filter %s', name, filter)
      from core.record
      cross join unnest(single_page_filters || narrow_filters) filter
      where not filters ? filter
    union all
    select format('the record %s has the writable column %s, but the table %s has no such column',
        r.name, writable.name, r.table_name)
      from core.record r
      cross join unnest(r.writable) writable (name)
      cross join lateral (
        -- Operations of schools and of operators can share a record.
        select distinct case when o.access in ('platform', 'analyst') then 'platform' else v_school end
        from (select) once
        left join core.operation o on o.record = r.name
      ) place (schema)
      where place.schema is not null and not exists (
        select from pg_attribute
        where attrelid = to_regclass(format('%I.%I', place.schema, r.table_name)) and attname = writable.name
          and attnum > 0 and not attisdropped
      )
  ) faults;
  if v_fault is not null then
    raise exception '%', v_fault;
  end if;
end $check$;

alter table core.operation alter column writes set not null;
