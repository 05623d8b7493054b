-- Which schools an analyst sees: those of app.analytics_tenants, «all» or «,1,2,»; without it, none. Row security says so on every table that the views of
-- analytics read; the owner writes the facts of the school that app.tenant_id names. Installed at each migration, and changes nothing twice.
do $$
declare
  -- In the shape that the planner takes for nearly always true: see core.tenant_secure.
  v_sees constant text := $sql$nullif(current_setting('app.analytics_tenants', true) = 'all'
    or strpos(current_setting('app.analytics_tenants', true), ',' || %s || ',') > 0, false) is not null$sql$;
  v_own constant text := $sql$tenant_id = nullif(current_setting('app.tenant_id', true), '')::bigint$sql$;
  v_table record;
begin
  for v_table in
    select c.oid::regclass as name, c.relname, pg_get_userbyid(c.relowner) as owner, c.relrowsecurity and c.relforcerowsecurity as is_forced,
      exists (select from pg_policy p where p.polrelid = c.oid and p.polname = 'analysts_see_their_schools') as is_seen,
      -- Another owner may have brought the table back from a backup.
      exists (select from pg_policy p where p.polrelid = c.oid and p.polname = 'the_owner_refreshes' and p.polroles = array[c.relowner]) as is_written
    from pg_class c where c.relnamespace = 'mart'::regnamespace and c.relkind = 'r' order by c.relname
  loop
    if not v_table.is_forced then
      execute format('alter table %s enable row level security, force row level security', v_table.name);
    end if;
    if not v_table.is_seen then
      execute format('create policy analysts_see_their_schools on %s for select to school_analyst using (%s)', v_table.name, format(v_sees, 'tenant_id'));
    end if;
    if not v_table.is_written then
      execute format('drop policy if exists the_owner_refreshes on %s', v_table.name);
      execute format('create policy the_owner_refreshes on %s to %I using (%s)', v_table.name, v_table.owner, case v_table.relname when 'school' then 'true' else v_own end);
    end if;
  end loop;

  -- Of the platform's tables analysts read some columns through the views; their owner is not bound by these policies, operators see all.
  for v_table in
    select c.oid::regclass as name, c.relname, c.relrowsecurity as is_secure, case c.relname when 'tenant' then 'id' else 'tenant_id' end as key
    from pg_class c where c.oid = any ('{platform.tenant,platform.tenant_usage,platform.subscription}'::regclass[]) order by c.relname
  loop
    if not v_table.is_secure then
      execute format('create policy operators_see_all on %s to school_platform using (true)', v_table.name);
      execute format('create policy analysts_see_their_schools on %s for select to school_analyst using (%s %s)', v_table.name,
        -- Who is deleted is gone from every view at once, since each of them joins this table.
        case v_table.relname when 'tenant' then $sql$status <> 'deleted' and $sql$ else '' end, format(v_sees, v_table.key));
      execute format('alter table %s enable row level security', v_table.name);
    end if;
  end loop;
end $$;
