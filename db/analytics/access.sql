-- Row security for analysts. They see the schools in app.analytics_tenants: 'all', or a list like ',1,2,'; none if it
-- is not set. There is a policy on every table that the views of analytics read. The owner can write the rows of the
-- school in app.tenant_id. Runs at each migration, and recreates only the policies whose definition has changed.
do $$
declare
  -- `is not null` makes the planner estimate that nearly all rows match: see core.tenant_secure.
  v_sees constant text := $sql$nullif(current_setting('app.analytics_tenants', true) = 'all'
    or strpos(current_setting('app.analytics_tenants', true), ',' || %s || ',') > 0, false) is not null$sql$;
  -- Every view joins this table, so a deleted school disappears from all of them. The planner knows the arrays when it
  -- plans, and so how many schools to expect. For few schools it reads their facts by an index, through that join: for
  -- two schools in 10 million rows this takes about 30 ms instead of 5 s.
  v_tenant constant text := $sql$status <> 'deleted' and $sql$ || format(v_sees, 'id') || $sql$
    and (id = any (string_to_array(
        trim(both ',' from nullif(current_setting('app.analytics_tenants', true), 'all')), ',')::bigint[])
      or id <> all (case when current_setting('app.analytics_tenants', true) = 'all' then '{}'::bigint[] end))$sql$;
  v_policy record;
  v_digest text;
begin
  for v_policy in
    with policy (on_table, name, definition) as (
      select
        c.oid::regclass,
        'analysts_see_their_schools',
        format('for select to school_analyst using (%s)', format(v_sees, 'tenant_id'))
      from core.relations_in('mart') c
      where c.relkind = 'r'
      union all
      select
        c.oid::regclass,
        'the_owner_refreshes',
        format('to %I using (%s)', pg_get_userbyid(c.relowner), case c.relname
          when 'school' then 'true'
          else $sql$tenant_id = nullif(current_setting('app.tenant_id', true), '')::bigint$sql$
        end)
      from core.relations_in('mart') c
      where c.relkind = 'r'
      -- Analysts read some columns of tables of platform through the views. The owner of these tables bypasses the
      -- policies.
      union all
      select name, 'operators_see_all', 'to school_platform using (true)'
      from unnest('{platform.tenant,platform.tenant_usage,platform.subscription}'::regclass[]) name
      union all
      select
        name,
        'analysts_see_their_schools',
        format('for select to school_analyst using (%s)', format(v_sees, 'tenant_id'))
      from unnest('{platform.tenant_usage,platform.subscription}'::regclass[]) name
      union all
      select
        'platform.tenant'::regclass,
        'analysts_see_their_schools',
        format('for select to school_analyst using (%s)', v_tenant)
    )
    select p.on_table, p.name, p.definition, obj_description(installed.oid, 'pg_policy') as digest
    from policy p
    left join pg_policy installed on installed.polrelid = p.on_table and installed.polname = p.name
    order by p.on_table::text, p.name
  loop
    v_digest := md5(v_policy.definition);
    continue when v_policy.digest = v_digest;
    execute format('drop policy if exists %I on %s', v_policy.name, v_policy.on_table);
    execute format('create policy %I on %s %s', v_policy.name, v_policy.on_table, v_policy.definition);
    execute format('comment on policy %I on %s is %L', v_policy.name, v_policy.on_table, v_digest);
  end loop;
  for v_policy in
    select c.oid::regclass as on_table, c.relnamespace = 'mart'::regnamespace as is_fact
    from unnest('{mart,platform}'::text[]) place (schema)
    cross join core.relations_in(place.schema) c
    join pg_policy p on p.polrelid = c.oid
    where p.polname = 'analysts_see_their_schools'
      and not (c.relrowsecurity and (c.relforcerowsecurity or c.relnamespace <> 'mart'::regnamespace))
  loop
    execute format('alter table %s enable row level security', v_policy.on_table);
    if v_policy.is_fact then
      execute format('alter table %s force row level security', v_policy.on_table);
    end if;
  end loop;
end $$;
