-- What the command line (`school`) runs: the operations of operators, and changes of operators themselves. Only the
-- owner of the database may call these functions. Each change leaves an audit entry by "command line".

create function core.command_line(p_operation text, p jsonb) returns json
  language plpgsql set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
declare
  v_before text[] := core.enter_tenant(null);
  v_path text := core.search_path_of(null);
  o core.operation;
  v_answer json;
begin
  select * into strict o from core.operation where name = p_operation and access = 'platform';
  perform
    set_config('app.user_id', '', true),
    set_config('app.actor_email', 'command line', true);
  v_answer := case
    when o.writes then core.run_write(v_path, o, p, '{}', null)
    else core.run_operation(v_path, o.name, p)
  end;
  perform core.leave_tenant(v_before);
  return v_answer;
end $$;
comment on function core.command_line is
  'Runs an operation of operators for the command line, with the functions that also answer the API. Raises the errors '
  'of the operation.';

create function core.school_list() returns table (
    id bigint, subdomain text, name text, status text, plan text, schema_version integer, students integer,
    deleted_on text, node text)
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select
      t.id,
      t.subdomain,
      t.name,
      case
        when core.is_reserved(t) then 'reserved'
        when t.status = 'deleted' and t.schema_version = 0 and t.node_id is null then 'purged'
        -- The home has no copy of the schema_version of a school on a node.
        when t.status = 'deleted' and t.node_id is not null and exists (
          select
          from platform.audit_log a
          where a.tenant_id = t.id and a.action = 'tenant.purge' and a.created_at >= t.deleted_at
        ) then 'purged'
        else t.status
      end,
      p.name,
      case when t.node_id is null then t.schema_version end,
      coalesce(u.students, 0),
      to_char(t.deleted_at, 'YYYY-MM-DD'),
      n.name
    from platform.tenant t
    join platform.plan p on p.id = t.plan_id
    left join platform.node n on n.id = t.node_id
    left join platform.tenant_usage u on u.tenant_id = t.id
    -- On a node, a school with a node_id has moved away.
    where n.is_this is not true
    order by t.id
  $$;
comment on function core.school_list is
  'All schools, also deleted and purged ones, by id. node: the node that holds the school; its schema_version is known '
  'only there. A school on a node is known to be purged for as long as the audit entry of the purge is kept.';

create function core.school_storage(p_tenant_id bigint) returns json
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select json_build_object(
      'schema_version', (select schema_version from platform.tenant where id = p_tenant_id),
      'size_bytes', coalesce(sum(pg_total_relation_size(r.oid)), 0))
    from core.relations_in('tenant_' || p_tenant_id) r
    where r.relkind = 'r'
  $$;
comment on function core.school_storage is
  'The version of the tables of a school, and their size on disk: {schema_version, size_bytes}.';

create function core.login_hashes(p_subdomain text, p_emails text[]) returns table (email text, password_hash text)
  language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_id bigint := (
    select id from platform.tenant where subdomain = p_subdomain and status = 'active' and schema_version > 0);
begin
  return query
    select u.email, u.password_hash
    from platform.user_account u
    where u.email = any (p_emails) and u.is_active and u.deleted_at is null and u.password_hash is not null;
  if v_id is not null then
    return query execute format(
      'select email, password_hash from tenant_%s.user_account '
      'where email = any ($1) and is_active and deleted_at is null and password_hash is not null', v_id)
      using p_emails;
  end if;
end $$;
comment on function core.login_hashes is
  'The password hashes of users of a school and of operators with these addresses. The start uses it to print only '
  'logins that work.';

create function core.operators() returns table (
    id bigint, email text, first_name text, last_name text, role text, tenant_ids bigint[], is_active boolean,
    last_login_at timestamptz, sessions bigint)
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select
      u.id, u.email, u.first_name, u.last_name, u.role, u.analyst_tenant_ids, u.is_active, u.last_login_at,
      (
        select count(*)
        from platform.session s
        where coalesce(s.tenant_id, 0) = 0 and s.user_id = u.id and s.revoked_at is null and s.expires_at > now()
      )
    from platform.user_account u
    where u.deleted_at is null
    order by u.email
  $$;
comment on function core.operators is 'All operators, and the number of their open sessions.';

create function core.require_schools(p_tenant_ids bigint[]) returns void
  language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_unknown bigint := (
    select min(given.id)
    from unnest(p_tenant_ids) given (id)
    where not exists (select from platform.tenant t where t.id = given.id and t.status <> 'deleted'));
begin
  if v_unknown is not null then
    -- An unused id will belong to a future school.
    perform core.fail('not_found', format('There is no school with the id %s.', v_unknown));
  end if;
end $$;
comment on function core.require_schools is 'Raises not_found if one of these ids is not that of a school.';

create function core.operator_set(p_id bigint, p_changes jsonb) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_operator platform.user_account;
  v_before jsonb;
  v_after jsonb;
  v_sessions bigint := 0;
begin
  select * into v_operator from platform.user_account where id = p_id for update;
  -- A login reads the rights of an operator and writes them to a session; it shares this lock. Two admins who disable
  -- each other wait here, and the second one finds no other admin.
  perform core.lock_rights(true);
  v_before := jsonb_build_object(
    'role', v_operator.role, 'tenant_ids', v_operator.analyst_tenant_ids, 'is_active', v_operator.is_active);
  v_after := v_before || p_changes;
  if v_after ->> 'role' = 'admin' and p_changes ? 'tenant_ids' and p_changes -> 'tenant_ids' <> 'null' then
    perform core.fail('invalid_state', format('%s is an admin, and admins see every school.', v_operator.email));
  elsif v_after ->> 'role' = 'admin' then
    v_after := v_after || '{"tenant_ids": null}';
  end if;
  if v_before ->> 'role' = 'admin' and v_operator.is_active
      and not (v_after ->> 'role' = 'admin' and (v_after ->> 'is_active')::boolean)
      and not exists (
        select from platform.user_account u
        where u.role = 'admin' and u.is_active and u.deleted_at is null and u.id <> v_operator.id
          -- Without a password they have not accepted their invitation.
          and u.password_hash is not null
      ) then
    perform core.fail('invalid_state', format(
      '%s is the only active operator with the role admin. Create another one first.', v_operator.email));
  end if;
  if v_after <> v_before then
    select count(*) into v_sessions
      from platform.session s
      where coalesce(s.tenant_id, 0) = 0 and s.user_id = p_id and s.revoked_at is null and s.expires_at > now();
    update platform.user_account set
        role = v_after ->> 'role',
        is_active = (v_after ->> 'is_active')::boolean,
        analyst_tenant_ids = case when v_after -> 'tenant_ids' <> 'null'
          then array(select jsonb_array_elements_text(v_after -> 'tenant_ids')::bigint) end
      where id = p_id;
    -- Ends impersonations too, because those end with the session of the operator.
    perform core.sessions_revoke(array[p_id]);
    update platform.session set revoked_at = now() where impersonator_id = p_id and revoked_at is null;
  end if;
  return v_after || jsonb_build_object('email', v_operator.email, 'ended_sessions', v_sessions,
    'is_changed', v_after <> v_before, 'changes', core.diff(v_before, v_after));
end $$;
comment on function core.operator_set is
  'Changes {role?, tenant_ids?, is_active?} of an operator and ends their sessions. An admin has no tenant_ids. '
  'Returns the new values, email, ended_sessions, is_changed and changes, which the caller audits. Raises '
  'invalid_state if no active admin with a password would be left or an admin would be limited to schools.';

create function core.operator_change(p_email text, p_action text, p_changes jsonb) returns json
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_before_settings text[] := core.enter_tenant(null);
  v_id bigint := (select id from platform.user_account where email = lower(p_email) and deleted_at is null);
  v_result jsonb;
begin
  if v_id is null then
    perform core.fail('not_found', format('There is no operator %s.', p_email));
  end if;
  if p_changes ? 'tenant_ids' and p_changes -> 'tenant_ids' <> 'null' then
    perform core.require_schools(array(select jsonb_array_elements_text(p_changes -> 'tenant_ids')::bigint));
  end if;
  v_result := core.operator_set(v_id, p_changes);
  if (v_result ->> 'is_changed')::boolean then
    perform set_config('app.actor_email', 'command line', true);
    perform core.audit('operator.' || p_action, 'operator', v_id, null, v_result -> 'changes');
  end if;
  perform core.leave_tenant(v_before_settings);
  return v_result - 'changes';
end $$;
comment on function core.operator_change is
  'core.operator_set by email, for the command line. Audited. Raises not_found too.';
