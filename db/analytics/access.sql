-- Which schools an analyst sees: those of app.analytics_tenants, «all» or «,1,2,»; without it, none. Row security
-- says so on every table that the views of analytics read; the owner writes the facts of the school that
-- app.tenant_id names. Runs at each migration, and makes only policies that are not there as they are here.
do $$
declare
  -- In the shape that the planner takes for nearly always true: see core.tenant_secure.
  v_sees constant text := $sql$nullif(current_setting('app.analytics_tenants', true) = 'all'
    or strpos(current_setting('app.analytics_tenants', true), ',' || %s || ',') > 0, false) is not null$sql$;
  -- Who is deleted is gone from every view at once, since each of them joins this table. The arrays are for the
  -- planner, which knows them when it plans: of «,1,2,» it expects two schools, of «all» all. So the facts of few
  -- schools are found by an index, through that join: of 10 million rows those of two schools in some 30 ms instead
  -- of 5 s.
  v_tenant constant text := $sql$status <> 'deleted' and $sql$ || format(v_sees, 'id') || $sql$
    and (id = any (string_to_array(trim(both ',' from nullif(current_setting('app.analytics_tenants', true), 'all')), ',')::bigint[])
      or id <> all (case when current_setting('app.analytics_tenants', true) = 'all' then '{}'::bigint[] end))$sql$;
  v_policy record;
  v_digest text;
begin
  for v_policy in
    with policy (on_table, name, definition) as (
      select c.oid::regclass, 'analysts_see_their_schools', format('for select to school_analyst using (%s)', format(v_sees, 'tenant_id'))
        from pg_class c where c.relnamespace = 'mart'::regnamespace and c.relkind = 'r'
      union all
      select c.oid::regclass, 'the_owner_refreshes', format('to %I using (%s)', pg_get_userbyid(c.relowner),
          case c.relname when 'school' then 'true' else $sql$tenant_id = nullif(current_setting('app.tenant_id', true), '')::bigint$sql$ end)
        from pg_class c where c.relnamespace = 'mart'::regnamespace and c.relkind = 'r'
      -- Of the platform's tables analysts read some columns, through the views. Their owner is not bound by these
      -- policies.
      union all
      select name, 'operators_see_all', 'to school_platform using (true)' from unnest('{platform.tenant,platform.tenant_usage,platform.subscription}'::regclass[]) name
      union all
      select name, 'analysts_see_their_schools', format('for select to school_analyst using (%s)', format(v_sees, 'tenant_id'))
        from unnest('{platform.tenant_usage,platform.subscription}'::regclass[]) name
      union all
      select 'platform.tenant'::regclass, 'analysts_see_their_schools', format('for select to school_analyst using (%s)', v_tenant)
    )
    select p.on_table, p.name, p.definition, obj_description(there.oid, 'pg_policy') as digest
    from policy p left join pg_policy there on there.polrelid = p.on_table and there.polname = p.name order by p.on_table::text, p.name
  loop
    v_digest := md5(v_policy.definition);
    continue when v_policy.digest = v_digest;
    execute format('drop policy if exists %I on %s', v_policy.name, v_policy.on_table);
    execute format('create policy %I on %s %s', v_policy.name, v_policy.on_table, v_policy.definition);
    execute format('comment on policy %I on %s is %L', v_policy.name, v_policy.on_table, v_digest);
  end loop;
  for v_policy in
    select distinct p.polrelid::regclass as on_table, c.relnamespace = 'mart'::regnamespace as is_fact
    from pg_policy p join pg_class c on c.oid = p.polrelid
    where p.polname = 'analysts_see_their_schools' and not (c.relrowsecurity and (c.relforcerowsecurity or c.relnamespace <> 'mart'::regnamespace))
  loop
    execute format('alter table %s enable row level security', v_policy.on_table);
    if v_policy.is_fact then
      execute format('alter table %s force row level security', v_policy.on_table);
    end if;
  end loop;
end $$;
