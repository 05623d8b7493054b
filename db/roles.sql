-- The roles of the service. They belong to the whole server, so that this runs at every migration and changes nothing
-- twice.
--   school_api       the API process: may call the dispatcher, and nothing else
--   school_worker    the background worker: may run jobs and the few functions that jobs need
--   school_tenant    what the dispatcher becomes inside a school; cannot log in
--   school_platform  what the dispatcher becomes for a platform operator; cannot log in
--   school_graphql   the process that answers analysts: may become the next one, and nothing else
--   school_analyst   reads the views of the schema analytics, as far as app.analytics_tenants lets it; cannot log in
do $$
declare
  v_role text;
  v_right text;
begin
  foreach v_role in array array['school_api', 'school_worker', 'school_tenant', 'school_platform', 'school_graphql', 'school_analyst'] loop
    if not exists (select from pg_roles where rolname = v_role) then
      begin
        execute format('create role %I noinherit %s', v_role, case when v_role in ('school_api', 'school_worker', 'school_graphql') then 'login' else 'nologin' end);
      exception when duplicate_object or unique_violation then null; -- another database of this server was faster
      end;
    end if;
  end loop;
  if not pg_has_role('school_api', 'school_tenant', 'member') or not pg_has_role('school_api', 'school_platform', 'member') then
    grant school_tenant, school_platform to school_api;
  end if;
  if not pg_has_role('school_graphql', 'school_analyst', 'member') then
    grant school_analyst to school_graphql;
  end if;
  -- An owner that is not a superuser must be able to become these roles (`set role`), see docs/security.md. Since
  -- Postgres 16 whoever made a role is its member, and yet may not become it.
  v_right := case when current_setting('server_version_num')::integer >= 160000 then 'set' else 'member' end;
  if not (select rolsuper from pg_roles where rolname = current_user)
     and not (pg_has_role(current_user, 'school_api', v_right) and pg_has_role(current_user, 'school_worker', v_right)) then
    execute format('grant school_api, school_worker to %I', current_user);
  end if;
  if not (select rolsuper from pg_roles where rolname = current_user) and not pg_has_role(current_user, 'school_graphql', v_right) then
    begin
      execute format('grant school_graphql to %I', current_user);
    exception when insufficient_privilege then null; -- roles that somebody else made: the server of analysts then needs a log-in of its own
    end;
  end if;
  -- For API processes that log in as school_api; those that only become it set the same on their connections.
  if not exists (select from pg_db_role_setting s join pg_roles r on r.oid = s.setrole where r.rolname = 'school_api') then
    alter role school_api set statement_timeout = '15s';
    alter role school_api set lock_timeout = '5s';
  end if;
  if not exists (select from pg_db_role_setting s join pg_roles r on r.oid = s.setrole where r.rolname = 'school_graphql') then
    alter role school_graphql set statement_timeout = '5s';
    alter role school_graphql set default_transaction_read_only = 'on';
  end if;
end $$;
