-- The database roles. They belong to the whole server, so this file runs at every migration and is idempotent. The
-- rights that it needs are in missing-rights.sql.
--   school_api       the API process: can only call the dispatcher and the few other functions in db/grants.sql
--   school_worker    the background worker: can run jobs and the few functions that jobs need
--   school_tenant    set by the dispatcher for requests of a school; cannot log in
--   school_platform  set by the dispatcher for requests of operators; cannot log in
--   school_graphql   the analytics process: can only set the role school_analyst
--   school_analyst   reads the views of the schema analytics for the schools in app.analytics_tenants; cannot log in
--   school_sql       runs the statements of `school sql`; has rights only inside its transactions; cannot log in
do $$
declare
  v_role text;
  v_right text;
  v_member record;
  v_setting record;
begin
  foreach v_role in array
    array['school_api', 'school_worker', 'school_tenant', 'school_platform', 'school_graphql', 'school_analyst',
      'school_sql']
  loop
    if not exists (select from pg_roles where rolname = v_role) then
      begin
        execute format('create role %I noinherit %s', v_role,
          case when v_role in ('school_api', 'school_worker', 'school_graphql') then 'login' else 'nologin' end);
      exception when duplicate_object or unique_violation then
        -- The migration of another database on this server created the role meanwhile.
        null;
      end;
    end if;
  end loop;
  for v_member in
    select *
    from (values
      ('school_api', 'school_tenant'),
      ('school_api', 'school_platform'),
      ('school_graphql', 'school_analyst')) m (role, of_role)
    where not pg_has_role(m.role, m.of_role, 'member')
  loop
    execute format('grant %I to %I', v_member.of_role, v_member.role);
  end loop;
  -- An owner that is not a superuser must be able to `set role` to these roles, see docs/security.md. Since Postgres 16
  -- the creator of a role is a member of it, but without the set option.
  v_right := case when current_setting('server_version_num')::integer >= 160000 then 'set' else 'member' end;
  foreach v_role in array array['school_api', 'school_worker'] loop
    if not (select rolsuper from pg_roles where rolname = current_user)
        and not pg_has_role(current_user, v_role, v_right) then
      execute format('grant %I to %I', v_role, current_user);
    end if;
  end loop;
  foreach v_role in array array['school_graphql', 'school_sql'] loop
    if not (select rolsuper from pg_roles where rolname = current_user)
        and not pg_has_role(current_user, v_role, v_right) then
      begin
        execute format('grant %I to %I', v_role, current_user);
      exception when insufficient_privilege then
        -- Another user created the roles. The analytics process then needs a login of its own; `school sql` says so.
        null;
      end;
    end if;
  end loop;
  -- The migration passes the settings of src/domain/role-settings.ts. They apply to processes that log in as the role;
  -- processes that switch to it send them when they connect. A value that an administrator has set stays.
  for v_setting in
    select r.oid::regrole as role, s.key as name, s.value
    from json_each(current_setting('school.role_settings')::json) of_role
    join pg_roles r on r.rolname = of_role.key
    cross join json_each_text(of_role.value) s
    where not exists (
      select from pg_db_role_setting known
      cross join unnest(known.setconfig) assignment
      where known.setrole = r.oid and known.setdatabase = 0 and split_part(assignment, '=', 1) = s.key
    )
  loop
    begin
      execute format('alter role %s set %I = %L', v_setting.role, v_setting.name, v_setting.value);
    exception when insufficient_privilege then
      -- Another user created the roles, and sets them.
      exit;
    end;
  end loop;
end $$;
