-- An operator logs in as an admin of a school, for ten minutes. The school can see it, and the operator cannot use it
-- to keep access (decision 0017).

create table core.impersonation_change (
  table_name text primary key,
  verbs text[] not null,
  columns text[]
);
comment on table core.impersonation_change is
  'What an operator who is logged in as a user may change in the tables of a school: its records, and what the service '
  'writes with them. Changes with an effect after the impersonation are refused: logins, permissions, names of users, '
  'where messages and payments go, notification settings and templates. Tables that are not listed cannot be changed.';
comment on column core.impersonation_change.columns is 'The columns that an update may change; null for all.';

insert into core.impersonation_change (table_name, verbs, columns)
  select table_name, '{insert,update,delete}', null
  from unnest('{
    academic_year,term,holiday,grade,school_unit,programme,medium,religion,subject_context,document_type,subject,
    grade_subject,class,class_subject,teaching_assignment,enrollment,student_document,student_external_id,
    student_absence,file,teacher_external_id,teacher_leave,teacher_availability,room,subject_room,timetable_config,
    timetable_slot,timetable_generation,attendance,attendance_correction,attendance_total,attendance_day,
    fee_structure,fee_structure_class,fee_component,student_fee,student_fee_item,student_fee_discount,invoice,
    invoice_item,invoice_reminder,payment,bus,driver,transport_staff,route,stop,transport_enrollment,
    bus_assignment,route_exception,transport_fee_plan,notification,notification_delivery,counter,idempotency_key,
    school_usage,webhook_event
  }'::text[]) table_name;
insert into core.impersonation_change (table_name, verbs, columns) values
  -- Without user_id, the login of a person, and without the email addresses and phone numbers, where people and their
  -- families get messages, such as reminders of invoices.
  ('student', '{insert,delete,update}', '{first_name,last_name,roll_number,admission_number,date_of_birth,gender,
    class_id,grade_id,religion_id,parent_name,address,is_active,left_on,leaving_reason,deleted_at}'),
  -- Which students a guardian may see, and where messages to families go, is a decision of the school.
  ('guardian', '{insert,update}', '{first_name,last_name,address}'),
  ('teacher', '{insert,delete,update}', '{first_name,last_name,employee_number,qualification,specialization,joined_on,
    date_of_birth,gender,address,is_active,left_on,leaving_reason,max_periods_per_day,max_periods_per_week,
    deleted_at}'),
  -- Without email, phone, website, payment_details and action_url_hosts: where people turn to, pay and click.
  ('school', '{insert,update}', '{address,logo_id,logo_address,currency,locale,invoice_reminders}'),
  -- They end access, or send to the school what it has sent before.
  ('webhook', '{delete}', null),
  ('webhook_secret', '{delete}', null),
  ('webhook_delivery', '{insert,delete}', null),
  ('api_key', '{delete}', null);

create function core.impersonation_changes() returns jsonb
  language sql stable security definer set search_path = pg_catalog, pg_temp
  return (
    select jsonb_object_agg(table_name, jsonb_strip_nulls(jsonb_build_object(
      'verbs', verbs, 'columns', to_jsonb(columns))))
    from core.impersonation_change
  );
comment on function core.impersonation_changes is
  'core.impersonation_change as json, for the triggers limit_impersonator: {table: {verbs, columns?}}.';

create function core.refuse_impersonator() returns void language plpgsql stable as $$
begin
  if (core.impersonator()).id is not null then
    perform core.fail('forbidden', 'This is not allowed during an impersonation. The user must do it themselves.');
  end if;
end $$;
comment on function core.refuse_impersonator is
  'Raises forbidden during an impersonation. The tables of logins have a trigger that does the same.';

create function core.end_impersonations() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if tg_table_name = 'session' then
    update platform.session set revoked_at = now()
      where impersonator_session_id = new.id and revoked_at is null;
  else
    update platform.session set revoked_at = now()
      where tenant_id = new.id and impersonator_id is not null and revoked_at is null;
  end if;
  return null;
end $$;
comment on function core.end_impersonations is
  'Ends impersonations when the operator''s session ends, or the school disallows them or is suspended.';
create trigger end_impersonations after update of revoked_at on platform.session
  for each row when (old.revoked_at is null and new.revoked_at is not null and new.tenant_id is null)
  execute function core.end_impersonations();
create trigger end_impersonations after update of is_impersonation_allowed, status on platform.tenant
  for each row when (
    (old.is_impersonation_allowed and not new.is_impersonation_allowed)
    or (old.status = 'active' and new.status <> 'active')
  )
  execute function core.end_impersonations();

create function core.lock_school_for_impersonation(p_tenant_id bigint) returns platform.tenant
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_tenant platform.tenant;
begin
  select * into v_tenant from platform.tenant where id = p_tenant_id for share;
  if v_tenant.id is null then
    perform core.fail('not_found', format('There is no school %s.', p_tenant_id));
  elsif v_tenant.status <> 'active' then
    perform core.fail('invalid_state', format('This school is %s, so nobody can log in.', v_tenant.status));
  elsif not v_tenant.is_impersonation_allowed then
    perform core.fail('invalid_state',
      'This school does not allow operators to log in as its admins. Ask an admin of the school to allow it.');
  end if;
  perform core.require_schema(p_tenant_id);
  return v_tenant;
end $$;
comment on function core.lock_school_for_impersonation is
  'Locks a school and returns it. Raises not_found; invalid_state if it is not active or does not allow '
  'impersonations; unavailable during its migration. Only for core.impersonation_begin, because it accepts any school.';

create function core.lock_admin(p_tenant_id bigint, p_user_id bigint, out id bigint, out email text,
    out first_name text, out last_name text, out rights core.rights)
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[] := core.enter_tenant(p_tenant_id);
begin
  select u.id, u.email, u.first_name, u.last_name
    into id, email, first_name, last_name
    from user_account u
    join user_role ur on ur.user_id = u.id
    join role r on r.id = ur.role_id and r.is_system and r.name = 'admin'
    where u.is_active and u.deleted_at is null and (p_user_id is null or u.id = p_user_id)
    order by u.password_hash is null, ur.created_at, u.id
    limit 1
    for share of u;
  perform core.lock_rights(false);
  rights := core.effective_rights(id);
  perform core.leave_tenant(v_before);
  -- Read after the lock: the user may have lost the role meanwhile.
  if not 'admin' = any (rights.roles) then
    if p_user_id is null then
      perform core.fail('invalid_state', 'This school has no active admin.');
    end if;
    perform core.refuse_field('invalid_reference', 'user_id', 'This user is not an active admin of the school.');
  end if;
end $$;
comment on function core.lock_admin is
  'Locks an active admin of a school and returns them: p_user_id, or the longest-serving one. Raises invalid_state if '
  'there is none, invalid_reference if p_user_id is not one. Only for core.impersonation_begin, because it accepts any '
  'school.';

create function core.lock_operator_session() returns platform.session
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_session platform.session;
begin
  -- The home has just admitted the operator, and knows when the session ends. The node keeps a copy as long as an
  -- impersonation can last.
  if (core.this_node()).id is not null then
    insert into platform.session as s (id, user_id, email, roles, expires_at)
      values (core.session_id(), core.user_id(), current_setting('app.actor_email'), '{admin}',
        now() + core.impersonation_lifetime())
      on conflict (id) do update set expires_at = excluded.expires_at;
  end if;
  select *
    into v_session
    from platform.session s
    where s.id = core.session_id() and s.tenant_id is null and s.revoked_at is null and 'admin' = any (s.roles)
    for share;
  return v_session;
end $$;
comment on function core.lock_operator_session is
  'Locks the session of the operator of this request, if it has not ended, and returns it. Only for '
  'core.impersonation_begin.';

create function core.impersonators(p_session_ids bigint[]) returns bigint[]
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select array(
    select distinct impersonator_session_id
    from platform.session
    where id = any (p_session_ids) and impersonator_session_id is not null and revoked_at is null
      and expires_at > now());
$$;
comment on function core.impersonators is
  'The sessions of the operators to whom these sessions belong, if any. For the forwarder, which asks the home whether '
  'they have ended.';

create function core.ended_operator_sessions(p_session_ids bigint[]) returns bigint[]
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select array(
    select unnest(p_session_ids)
    except
    select s.id
    from platform.session s
    -- The session of an operator whose row was deleted stays. On one server, that deletes the impersonation.
    join platform.user_account u on u.id = s.user_id
    where s.id = any (p_session_ids) and s.tenant_id is null and 'admin' = any (s.roles) and s.revoked_at is null
      and s.expires_at > now());
$$;
comment on function core.ended_operator_sessions is
  'Which of these are no longer sessions of existing operators with the role admin.';

create function core.end_operator_sessions(p_session_ids bigint[]) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  update platform.session
    set revoked_at = now()
    where id = any (p_session_ids) and tenant_id is null and revoked_at is null and (core.this_node()).id is not null;
$$;
comment on function core.end_operator_sessions is
  'On a node: ends the copies of sessions that have ended at home, and with them their impersonations.';

create function core.impersonation_begin(p_tenant_id bigint, p_user_id bigint, p_reason text) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_tenant platform.tenant;
  v_operator platform.session;
  v_user record;
  v_session platform.session;
  v_before text[];
begin
  -- Locks the school, the operator's session and the user before it checks them. A transaction that ends one of them
  -- commits before these checks, or ends the new session too.
  v_tenant := core.lock_school_for_impersonation(p_tenant_id);
  v_operator := core.lock_operator_session();
  if v_operator.id is null then
    perform core.fail('invalid_token', 'The session has ended. Log in again.');
  end if;
  select * into v_user from core.lock_admin(p_tenant_id, p_user_id);

  v_session := core.session_insert(
    p_tenant_id, v_user.id, v_user.email, v_user.rights, core.impersonation_lifetime(), v_operator);
  perform core.audit_insert(
    v_operator.user_id, v_operator.email, v_user.id, v_user.email,
    'tenant.impersonate', p_tenant_id, 'tenant', p_tenant_id,
    core.diff(null, jsonb_build_object('reason', p_reason, 'expires_at', v_session.expires_at)),
    core.client_context());
  perform set_config('app.audited', 'yes', true);

  v_before := core.enter_tenant(p_tenant_id);
  perform core.notify('operator.login', jsonb_build_object('operator_email', v_operator.email, 'reason', p_reason,
    'user_name', core.full_name(v_user.first_name, v_user.last_name), 'user_email', v_user.email));
  perform core.leave_tenant(v_before);
  return json_build_object(
    'session_id', v_session.id,
    'expires_at', v_session.expires_at,
    'impersonated_by', json_build_object('id', v_operator.user_id, 'email', v_operator.email),
    'user', json_build_object(
      'id', v_user.id, 'email', v_user.email, 'first_name', v_user.first_name, 'last_name', v_user.last_name),
    'tenant', json_build_object('id', v_tenant.id, 'name', v_tenant.name, 'subdomain', v_tenant.subdomain));
end $$;
comment on function core.impersonation_begin is
  'Starts an impersonation: a session of ten minutes, without a refresh token, as an active admin of a school '
  '(p_user_id, or the longest-serving one). Audited with the reason; notifies the admins of the school. Raises '
  'not_found; invalid_state if the school is not active, does not allow it or has no admin; invalid_reference if the '
  'user is not an admin; unavailable during the migration of the school.';

create function core.impersonation_note(
    p_session_id bigint, p_operation text, p_target_id bigint, p_outcome text, p_context jsonb) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  select core.audit_insert(
      s.impersonator_id, s.impersonator_email, s.user_id, s.email,
      'impersonation.' || p_operation,
      s.tenant_id,
      coalesce((select o.record from core.operation o where o.name = p_operation), 'request'),
      p_target_id,
      core.diff(null, jsonb_build_object('outcome', coalesce(
        (select e.name from core.error e where e.sqlstate = p_outcome),
        case when p_outcome ~ '^[0-9]' then 'refused' else p_outcome end))),
      p_context)
    from platform.session s
    where s.id = p_session_id and s.impersonator_id is not null;
$$;
comment on function core.impersonation_note is
  'Adds the audit entry of one request of an impersonation; does nothing for other sessions. p_outcome: ok, or the '
  'name or SQLSTATE of an error. The entry has ids and emails only, nothing of the request or the response.';

create function core.call_impersonated(p_operation text, p_session_id bigint, p jsonb, p_context jsonb,
    p_content bytea default null,
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
  v_hint text;
begin
  if p_context ->> 'refused' is null then
    begin
      select c.answer, c.content, c.version, c.id
        into answer, content, version, id
        from core.call(p_operation, p_session_id, p, p_context || '{"is_audited": true}', p_content) c;
      -- Deferred constraints would only fail at the commit, too late for the audit entry.
      set constraints all immediate;
    exception when others then
      get stacked diagnostics
        v_state = returned_sqlstate,
        v_message = message_text,
        v_detail = pg_exception_detail,
        v_constraint = constraint_name,
        v_table = table_name,
        v_column = column_name,
        v_hint = pg_exception_hint;
      -- Internal errors, and conflicts that a retry resolves, are raised, as for a school that is paused for a moment.
      if v_state !~ '^(S|22|23|42501)' or v_hint = 'repeat' then
        raise;
      end if;
      v_outcome := v_state;
      refusal := json_build_object('code', v_state, 'message', v_message, 'detail', v_detail,
        'constraint', v_constraint, 'table', v_table, 'column', v_column);
    end;
    perform set_config('role', v_role, true);
    -- Another call of the same request follows.
    if (p_context ->> 'check_only')::boolean and refusal is null then
      return;
    end if;
  end if;
  perform core.impersonation_note(p_session_id, p_operation,
    case when p ->> 'id' ~ '^[0-9]{1,15}$' then (p ->> 'id')::bigint end, v_outcome, p_context);
end $$;
comment on function core.call_impersonated is
  'Runs an operation during an impersonation like core.call, and always adds an audit entry in the same transaction, '
  'even for errors. It therefore returns the errors that core.call raises as `refusal`: the operation is rolled back '
  'and the entry stays. If the facade refused the request, p_context.refused is the error; then nothing runs and only '
  'the entry is added. Like core.call it is not security definer. A read-only operation is read-only within its '
  'subtransaction.';
