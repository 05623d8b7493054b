-- An operator logs in for an admin of a school: for ten minutes, in the open, and without what would let them stay
-- (decision 0017).

-- Refuses whoever acts for a user what only the user may do: forbidden. The tables of log-ins refuse it by themselves
-- (tenant migration 0013).
create function core.refuse_impersonator() returns void language plpgsql stable as $$
begin
  if (core.impersonator()).id is not null then
    perform core.fail('forbidden', 'An operator who is logged in for a user may not do this.');
  end if;
end $$;
comment on function core.refuse_impersonator is 'Raises forbidden during an impersonation.';

-- Such sessions end with what they rest on: the operator's own session, the leave of the school, the school being open.
create function core.end_impersonations() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if tg_table_name = 'session' then
    update platform.session set revoked_at = now() where impersonator_session_id = new.id and revoked_at is null;
  else
    update platform.session set revoked_at = now() where tenant_id = new.id and impersonator_id is not null and revoked_at is null;
  end if;
  return null;
end $$;
comment on function core.end_impersonations is 'Ends impersonations when the operator''s session ends, or the school disallows them or is suspended.';
create trigger end_impersonations after update of revoked_at on platform.session
  for each row when (old.revoked_at is null and new.revoked_at is not null and new.tenant_id is null) execute function core.end_impersonations();
create trigger end_impersonations after update of is_impersonation_allowed, status on platform.tenant
  for each row when ((old.is_impersonation_allowed and not new.is_impersonation_allowed) or (old.status = 'active' and new.status <> 'active'))
  execute function core.end_impersonations();

-- Opens a session of a school for the operator who asks, as one of its active admins: the one who is asked for, else
-- the one who has been admin longest. Ten minutes, without a refresh token. Audited with the reason, and the admins
-- of the school are told. Raises not_found, invalid_state for a school that is not open or does not allow it or has
-- no admin, invalid_reference for a user who is none, unavailable while it is being migrated. Locks the school, the
-- operator''s session and the user before it looks at them: who ends one of them comes before, or ends this session
-- too.
create function core.impersonation_begin(p_tenant_id bigint, p_user_id bigint, p_reason text) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_operator record;
  v_tenant record;
  v_user record;
  v_rights core.rights;
  v_session record;
  v_before text[];
begin
  select t.id, t.name, t.subdomain, t.status, t.is_impersonation_allowed, t.time_zone, t.schema_version into v_tenant from platform.tenant t where t.id = p_tenant_id for share;
  if v_tenant.id is null then
    perform core.fail('not_found', format('There is no tenant %s.', p_tenant_id));
  elsif v_tenant.status <> 'active' then
    perform core.fail('invalid_state', format('This school is %s: nobody can log in to it.', v_tenant.status));
  elsif not v_tenant.is_impersonation_allowed then
    perform core.fail('invalid_state', 'This school does not let operators log in. Only an admin of the school can allow it.');
  elsif not pg_try_advisory_xact_lock_shared(core.tenant_lock_key(p_tenant_id)) or v_tenant.schema_version < (select tenant_version from platform.installation) then
    perform core.fail('unavailable', 'This school is being migrated. Try again in a moment.');
  end if;
  select s.id, s.user_id, s.email into v_operator from platform.session s
    where s.id = core.session_id() and s.revoked_at is null and 'admin' = any (s.roles) for share;
  if v_operator.id is null then
    perform core.fail('invalid_token', 'The session has ended. Log in again.');
  end if;

  v_before := core.enter_tenant(p_tenant_id);
  select u.id, u.email, u.first_name, u.last_name into v_user
    from user_account u join user_role ur on ur.user_id = u.id join role r on r.id = ur.role_id and r.is_system and r.name = 'admin'
    where u.is_active and u.deleted_at is null and (p_user_id is null or u.id = p_user_id)
    order by u.password_hash is null, ur.created_at, u.id limit 1 for share of u;
  perform core.lock_rights(false);
  v_rights := core.effective_rights(v_user.id);
  perform core.leave_tenant(v_before);
  if not 'admin' = any (v_rights.roles) then
    if p_user_id is null then
      perform core.fail('invalid_state', 'This school has no active admin.');
    end if;
    perform core.refuse_field('invalid_reference', 'user_id', 'This user is no active admin of the school.');
  end if;

  insert into platform.session (tenant_id, user_id, email, permissions, own_permissions, taught_permissions, roles, student_id, ip, user_agent,
      expires_at, impersonator_id, impersonator_email, impersonator_session_id)
    values (p_tenant_id, v_user.id, v_user.email, v_rights.permissions, v_rights.own_permissions, v_rights.taught_permissions, v_rights.roles, v_rights.student_id,
      nullif(current_setting('app.ip', true), ''), nullif(current_setting('app.user_agent', true), ''),
      now() + interval '10 minutes', v_operator.user_id, v_operator.email, v_operator.id)
    returning id, expires_at into v_session;
  insert into platform.audit_log (actor_id, actor_email, impersonated_user_id, impersonated_email, action, tenant_id, target_type, target_id, changes, ip, user_agent, request_id)
    values (v_operator.user_id, v_operator.email, v_user.id, v_user.email, 'tenant.impersonate', p_tenant_id, 'tenant', p_tenant_id,
      core.diff(null, jsonb_build_object('reason', p_reason, 'expires_at', v_session.expires_at)),
      nullif(current_setting('app.ip', true), ''), nullif(current_setting('app.user_agent', true), ''), nullif(current_setting('app.request_id', true), ''));
  perform set_config('app.audited', 'yes', true);

  v_before := core.enter_tenant(p_tenant_id);
  perform core.notify('operator.login', (
    select jsonb_agg(jsonb_build_object('user_id', ur.user_id, 'variables', jsonb_build_object('operator_email', v_operator.email, 'reason', p_reason,
      'user_name', v_user.first_name || ' ' || v_user.last_name, 'user_email', v_user.email,
      'date', api.written_day(local::date), 'time', to_char(local, 'HH24:MI'), 'until', to_char(local + interval '10 minutes', 'HH24:MI'))) order by ur.user_id)
    from user_role ur join role r on r.id = ur.role_id and r.is_system and r.name = 'admin', lateral (select now() at time zone v_tenant.time_zone) moment (local)));
  perform core.leave_tenant(v_before);
  return json_build_object('session_id', v_session.id, 'expires_at', v_session.expires_at,
    'impersonated_by', json_build_object('id', v_operator.user_id, 'email', v_operator.email),
    'user', json_build_object('id', v_user.id, 'email', v_user.email, 'first_name', v_user.first_name, 'last_name', v_user.last_name),
    'tenant', json_build_object('id', v_tenant.id, 'name', v_tenant.name, 'subdomain', v_tenant.subdomain));
end $$;
comment on function core.impersonation_begin is 'Starts an impersonation of ten minutes as an admin of a school. Audited; notifies the admins.';

-- Writes the entry of one request of such a session: who, for whom, which operation, with which end (ok, or the
-- error, by its name or its SQLSTATE). Says nothing for another session. Only ids and e-mails: what the request asked
-- for or brought stays out.
create function core.impersonation_note(p_session_id bigint, p_operation text, p_target_id bigint, p_outcome text, p_context jsonb) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  insert into platform.audit_log (actor_id, actor_email, impersonated_user_id, impersonated_email, action, tenant_id, target_type, target_id, changes, ip, user_agent, request_id)
    select s.impersonator_id, s.impersonator_email, s.user_id, s.email, 'impersonation.' || p_operation, s.tenant_id,
      coalesce((select o.record from core.operation o where o.name = p_operation), 'request'), p_target_id,
      core.diff(null, jsonb_build_object('outcome', coalesce((select e.name from core.error e where e.sqlstate = p_outcome), case when p_outcome ~ '^[0-9]' then 'refused' else p_outcome end))),
      p_context ->> 'ip', p_context ->> 'user_agent', p_context ->> 'request_id'
    from platform.session s where s.id = p_session_id and s.impersonator_id is not null;
$$;
comment on function core.impersonation_note is 'Adds the audit entry of one request of an impersonation.';

-- core.call for a session of an operator who acts for a user: the request leaves its entry in the same transaction,
-- whatever becomes of it. So a refusal is answered (refusal: what the error would have told) where core.call raises
-- it: the operation is undone, the entry stays. Faults, and what only has to run again, are raised. With
-- p_context.refused, the error by which the facade refused it, it writes the entry and runs nothing. Not security
-- definer, as core.call is not; a read-only operation is one within its subtransaction.
create function core.call_impersonated(p_operation text, p_session_id bigint, p jsonb, p_context jsonb, p_content bytea default null,
  out answer text, out content bytea, out version text, out id bigint, out refusal json)
  language plpgsql as $$
declare
  v_role text := current_setting('role');
  v_outcome text := coalesce(p_context ->> 'refused', 'ok');
  v_state text;
  v_message text;
  v_detail text;
  v_constraint text;
  v_table text;
  v_column text;
begin
  if p_context ->> 'refused' is null then
    begin
      select c.answer, c.content, c.version, c.id into answer, content, version, id
        from core.call(p_operation, p_session_id, p, p_context || '{"is_audited": true}', p_content) c;
      -- What would be refused at the commit.
      set constraints all immediate;
    exception when others then
      get stacked diagnostics v_state = returned_sqlstate, v_message = message_text, v_detail = pg_exception_detail,
        v_constraint = constraint_name, v_table = table_name, v_column = column_name;
      if v_state !~ '^(S|22|23|42501)' then
        raise;
      end if;
      v_outcome := v_state;
      refusal := json_build_object('code', v_state, 'message', v_message, 'detail', v_detail, 'constraint', v_constraint, 'table', v_table, 'column', v_column);
    end;
    perform set_config('role', v_role, true);
    -- Another call of the same request follows.
    if (p_context ->> 'admit_only')::boolean and refusal is null then
      return;
    end if;
  end if;
  perform core.impersonation_note(p_session_id, p_operation, case when p ->> 'id' ~ '^[0-9]{1,15}$' then (p ->> 'id')::bigint end, v_outcome, p_context);
end $$;
comment on function core.call_impersonated is 'Runs an operation during an impersonation like core.call, and always adds an audit entry, even for errors.';
