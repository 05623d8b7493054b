-- /api/users: the users who can log in to the school.

select core.define_operation('users_list', p_permission => 'user.read');
select core.define_operation('users_get', p_permission => 'user.read', p_record => 'user');
select core.define_operation('users_picture', p_permission => 'user.read', p_content => 'gives');
select core.define_operation('users_create', p_permission => 'user.create', p_idempotent => true, p_record => 'user',
  p_errors => '{conflict,invalid_reference}');
select core.define_operation('users_update', p_permission => 'user.update', p_record => 'user',
  p_errors => '{conflict,invalid_reference}');
select core.define_operation('users_delete', p_permission => 'user.delete', p_record => 'user',
  p_errors => '{conflict}');
select core.define_operation('users_sessions_list', p_needs_session => true, p_permission => 'user.update');
select core.define_operation('users_sessions_delete', p_needs_session => true, p_permission => 'user.update',
  p_errors => '{forbidden}');
select core.define_operation('users_second_factor_delete', p_needs_session => true, p_permission => 'user.update',
  p_errors => '{forbidden,conflict,invalid_state}');

select core.define_record('user', p_table => 'user_account', p_key => 'u.id', p_one_row_per_key => true,
  p_source => 'user_account u',
  p_columns => $$
  u.id, u.email, u.first_name, u.last_name, u.phone, u.is_active, u.email_verified_at is not null as email_verified,
  core.picture_url(u.profile_picture_id) as profile_picture_url,
  (select coalesce(json_agg(ur.role_id order by ur.role_id), '[]') from user_role ur
    where ur.user_id = u.id) as role_ids,
  (select coalesce(json_agg(r.name order by r.id), '[]') from user_role ur join role r on r.id = ur.role_id
    where ur.user_id = u.id) as roles,
  core.has_second_factor(u.id) as has_second_factor, u.last_login_at, u.created_at, u.updated_at
  $$,
  p_condition => 'u.deleted_at is null',
  p_search => 'u.search_text',
  p_equals => '{is_active}',
  p_default_sort => 'last_name',
  p_writable => '{email,first_name,last_name,phone,is_active,password_hash}',
  p_unversioned_fields => '{profile_picture_url}', p_volatile_fields => '{has_second_factor,last_login_at}');
select core.define_filter('user', 'role_id', 'u.id in (select user_id from user_role where role_id = :value::bigint)');
select core.define_sort('user', 'last_name',
  'platform.search_normal(u.last_name)', 'platform.search_normal(u.first_name)');
select core.define_sort('user', 'first_name', 'platform.search_normal(u.first_name)');
select core.define_sort('user', 'email', 'u.email');
-- Not by the signed address, which has no order.
select core.define_sort('user', 'profile_picture_url', 'u.profile_picture_id nulls last');
select core.define_sort('user', 'created_at', 'u.created_at');
select core.define_sort('user', 'last_login_at', 'u.last_login_at nulls last');

select core.define_functions('users', 'user',
  p_list => 'Users by name. Searches name, email and phone. Filters: role_id, is_active.',
  p_get => 'One user with their roles. Raises not_found.');

create function api.user_name() returns text language sql stable as $$
  select core.full_name(first_name, last_name) from user_account where id = core.user_id();
$$;
comment on function api.user_name is
  'The name of the current user. Stored beside the id of the author of a change, because not every user may see other '
  'users.';

create function api.require_can_manage_user(p_user_id bigint) returns void language plpgsql stable as $$
declare
  -- With the roles of inactive people, because a reactivation gives them back.
  v_rights core.rights := core.effective_rights(p_user_id, p_includes_suspended => true);
begin
  if exists (
    select from unnest(v_rights.permissions) user_permission (permission)
    where not case
      when permission = any (v_rights.own_permissions || v_rights.children_permissions)
        then permission like '%.read' or core.has_permission(permission)
      when permission = any (v_rights.taught_permissions) then core.has_permission(permission)
      else core.has_permission_for_all(permission)
    end
  ) then
    perform core.fail('forbidden', 'This user has permissions that you do not have.');
  end if;
end $$;
comment on function api.require_can_manage_user is
  'Raises forbidden if a user has permissions that the current user lacks; otherwise the current user could set a '
  'password and log in with them. Compares scopes like api.require_roles.';

create function api.audited_user(p_id bigint) returns jsonb language sql stable as $$
  select to_jsonb(u) || jsonb_build_object('roles', (
      select coalesce(jsonb_agg(r.name order by r.name), '[]')
      from user_role ur
      join role r on r.id = ur.role_id
      where ur.user_id = p_id))
  from (select email, first_name, last_name, phone, is_active from user_account where id = p_id) u;
$$;
comment on function api.audited_user is 'A user as the audit log shows them: without the password.';

create function api.user_roles_change(
    p_user_id bigint, p_set bigint[] default null, p_add bigint default null, p_remove bigint default null) returns void
  language plpgsql as $$
declare
  v_before bigint[];
  v_after bigint[];
  v_changed bigint[];
  v_unknown bigint;
  v_user jsonb;
begin
  perform core.lock_rights(true);
  v_user := api.audited_user(p_user_id);
  v_before := array(select role_id from user_role where user_id = p_user_id);
  v_after := array(
    select distinct i
    from unnest(coalesce(p_set, v_before || p_add)) i
    where i is distinct from p_remove and i is not null);
  select i into v_unknown from unnest(v_after) i where not exists (select from role where id = i) limit 1;
  if v_unknown is not null then
    perform core.refuse_field('invalid_reference', case when p_set is null then 'role_id' else 'role_ids' end,
      format('There is no role %s.', v_unknown));
  end if;
  v_changed := array(
    select i from unnest(v_after || v_before) i where (i = any (v_after)) <> (i = any (v_before)));
  if v_changed = '{}' then
    return;
  end if;
  perform api.require_permissions('{role.manage}');
  perform api.require_roles(v_changed);
  delete from user_role where user_id = p_user_id and role_id <> all (v_after);
  insert into user_role (user_id, role_id) select p_user_id, i from unnest(v_after) i on conflict do nothing;
  if exists (select from role where id = any (v_before) and id = any (v_changed) and is_system and name = 'admin') then
    perform api.require_an_admin();
  end if;
  perform core.refresh_rights(array[p_user_id]);
  perform core.audit_school('user.roles', p_user_id, v_user, api.audited_user(p_user_id));
end $$;
comment on function api.user_roles_change is
  'Changes the roles of a user, effective at their next request: sets them to p_set, or adds and removes one. Requires '
  'role.manage and at least one remaining admin. Raises invalid_reference for an unknown role, and the errors of '
  'api.require_roles.';

create function api.login_create(p jsonb) returns bigint language plpgsql as $$
declare
  v_id bigint := core.record_insert('user', p);
begin
  perform core.enqueue('send_email', jsonb_build_object('user_id', v_id, 'kind',
    case when p ->> 'password_hash' is null then 'invitation' else 'email_verification' end));
  perform core.audit_school('user.create', v_id, null, api.audited_user(v_id));
  return v_id;
end $$;
comment on function api.login_create is
  'Creates a login and queues its invitation, or a verification email if it has a password; returns its id.';

create function api.person_login(p jsonb, p_role text) returns bigint language plpgsql as $$
declare
  v_user_id bigint;
begin
  if p ->> 'user_id' is not null then
    perform core.fail('conflict', format('This %s already has a login.', p_role));
  elsif p ->> 'email' is null then
    perform core.refuse_field('validation_error', 'email', 'A login requires an email address.');
  end if;
  v_user_id := api.login_create(p - 'is_active');
  insert into user_role (user_id, role_id) select v_user_id, id from role where is_system and name = p_role;
  perform api.require_roles(array(select role_id from user_role where user_id = v_user_id));
  perform core.audit_school('user.roles', v_user_id, '{"roles": []}',
    jsonb_build_object('roles', jsonb_build_array(p_role)));
  return v_user_id;
end $$;
comment on function api.person_login is
  'Creates a login with the system role p_role for a student, a teacher or a guardian; returns its id. p is the person '
  'with the changes of the request. Raises conflict if they have a login, validation_error without an email, forbidden '
  'if the role has permissions that the current user lacks.';

create function api.person_activity_changed(p_role text, p_id bigint) returns void language plpgsql as $$
declare
  v_user_id bigint := (
    select user_id from student where id = p_id and p_role = 'student'
    union all
    select user_id from teacher where id = p_id and p_role = 'teacher');
begin
  if v_user_id is not null then
    perform core.lock_rights(true);
    perform core.refresh_rights(array[v_user_id]);
  end if;
end $$;
comment on function api.person_activity_changed is
  'Applies left_on of a student or a teacher to the sessions of their login at once.';

create function api.person_with_left_on(p_record text, p jsonb) returns jsonb language plpgsql stable as $$
declare
  v_left_on date;
  v_reason text;
  v_fault record;
begin
  if not p ?| '{is_active,left_on,leaving_reason}' then
    return p;
  elsif p ? 'id' then
    execute format('select left_on, leaving_reason from %I where id = $1', p_record)
      into v_left_on, v_reason using (p ->> 'id')::bigint;
  end if;
  select f.field, f.message into v_fault from core.left_on_faults(p, v_left_on, v_reason) f limit 1;
  if found then
    perform core.refuse_field('validation_error', v_fault.field, v_fault.message);
  end if;
  return core.with_left_on(p, v_left_on);
end $$;
comment on function api.person_with_left_on is
  'The parameters of a write of a student, a teacher or a driver with left_on in place of is_active. Raises '
  'validation_error for what contradicts itself (core.left_on_faults).';

create function api.person_save(p_role text, p jsonb) returns bigint language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_creates_login boolean := coalesce((p ->> 'create_user_account')::boolean, false);
  v_person jsonb := '{}';
begin
  p := api.person_with_left_on(p_role, p);
  if v_creates_login and v_id is not null then
    -- The login uses the email of the request or, if it has none, the stored one.
    execute format('select api.%I($1)::jsonb', p_role || '_record') into v_person using v_id;
    -- A form sends create_user_account back with the other fields. Only a password shows that a new login is meant.
    v_creates_login := v_person ->> 'user_id' is null or p ? 'password_hash';
  end if;
  if v_creates_login then
    p := p || jsonb_build_object('user_id', api.person_login(v_person || p, p_role));
  end if;
  if v_id is null then
    v_id := core.record_insert(p_role, p);
    perform core.enforce_plan_limits();
  else
    perform core.record_update(p_role, p);
    if p ? 'left_on' then
      perform api.person_activity_changed(p_role, v_id);
      -- The plan does not count those who have left.
      perform core.enforce_plan_limits();
    end if;
  end if;
  if v_creates_login then
    perform core.notify('account.created', jsonb_build_object('user_ids', array[(p ->> 'user_id')::bigint]));
  end if;
  return v_id;
end $$;
comment on function api.person_save is
  'Creates a student or a teacher, or updates the one with the id in p; p_role is the record and the role. '
  'create_user_account also creates a login for a person who has none. Returns the id. Raises plan_limit_reached and '
  'the errors of api.person_login; conflict for an existing login only if the request has a password.';

create function api.users_picture(p jsonb) returns json language sql stable as $$
  select api.file_answer(
    (select profile_picture_id from user_account where id = (p ->> 'id')::bigint and deleted_at is null), 'picture');
$$;
comment on function api.users_picture is 'The picture of a user. Raises not_found.';

create function api.users_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := api.login_create(p);
begin
  if p ? 'role_ids' then
    perform api.user_roles_change(v_id, array(select jsonb_array_elements_text(p -> 'role_ids')::bigint));
  end if;
  perform core.notify('account.created', jsonb_build_object('user_ids', array[v_id]));
  return api.user_record(v_id);
end $$;
comment on function api.users_create is
  'Creates a user. Without a password the user gets an invitation. Raises conflict for an email that is in use, and '
  'the errors of api.user_roles_change.';

create function api.users_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_email text := api.user_record(v_id) ->> 'email';
  v_is_invited boolean;
  v_before jsonb := api.audited_user(v_id);
begin
  perform api.require_can_manage_user(v_id);
  perform core.record_update('user', p);
  perform core.audit_school('user.update', v_id, v_before, api.audited_user(v_id));
  if p ? 'role_ids' then
    perform api.user_roles_change(v_id, array(select jsonb_array_elements_text(p -> 'role_ids')::bigint));
  end if;
  if p ->> 'email' <> v_email then
    update user_account set email_verified_at = null
      where id = v_id
      returning password_hash is null into v_is_invited;
    perform core.tokens_void(v_id, '{password_reset,invitation,email_verification}');
    perform core.enqueue('send_email', jsonb_build_object(
      'user_id', v_id, 'kind', case when v_is_invited then 'invitation' else 'email_verification' end));
  end if;
  if p ? 'password_hash' then
    perform core.audit_school('user.set_password', v_id, null, null);
    perform core.sessions_revoke(array[v_id], core.session_id());
    perform core.login_unlock(api.user_record(v_id) ->> 'email');
    perform core.tokens_void(v_id, '{password_reset,invitation}');
    perform core.calendar_feeds_end(v_id);
  end if;
  if not (p ->> 'is_active')::boolean then
    perform core.sessions_revoke(array[v_id]);
    perform api.require_an_admin();
  end if;
  return api.user_record(v_id);
end $$;
comment on function api.users_update is
  'Updates a user. A new email address must be verified again, and links in emails to the old address become invalid. '
  'A new password or a deactivation ends the sessions of the user, a new password also their calendar feeds. Audited. '
  'Raises the errors of create, and forbidden if the user has permissions that the current user lacks.';

create function api.users_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  perform api.user_record(v_id);
  perform api.login_remove(v_id);
  return json_build_object('id', v_id);
end $$;
comment on function api.users_delete is
  'Soft-deletes a user and ends their sessions. Their email address can be used again.';

create function api.users_sessions_list(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.user_record((p ->> 'id')::bigint);
  return core.json_page(core.sessions_of((p ->> 'id')::bigint), p);
end $$;
comment on function api.users_sessions_list is
  'The sessions of a user, the one that was used last first. Searches address and program. Raises not_found.';

create function api.users_sessions_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  perform api.user_record(v_id);
  perform api.user_lock(v_id);
  perform api.require_can_manage_user(v_id);
  perform core.session_revoke(v_id, (p ->> 'session_id')::bigint);
  return json_build_object('id', p -> 'session_id');
end $$;
comment on function api.users_sessions_delete is
  'Ends a session of a user and forgets its device. Raises not_found, also for the session of another user; forbidden '
  'if the user has permissions that the current user lacks, and during an impersonation.';

create function api.users_second_factor_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  perform api.user_record(v_id);
  if v_id = core.user_id() then
    perform core.fail('conflict', 'You cannot reset your own second factor here. Use DELETE /api/auth/two-factor.');
  end if;
  perform api.user_lock(v_id);
  perform api.require_can_manage_user(v_id);
  perform core.second_factor_remove(v_id, 'second_factor_reset');
  return json_build_object('id', v_id);
end $$;
comment on function api.users_second_factor_delete is
  'Removes the second factor of a user who has lost it, and tells them by email. Audited. Raises not_found; conflict '
  'for the current user; invalid_state without a second factor; forbidden if the user has permissions that the current '
  'user lacks, and during an impersonation.';

create function api.login_remove(p_user_id bigint) returns void language plpgsql as $$
begin
  if p_user_id = core.user_id() then
    perform core.fail('conflict', 'You cannot delete your own login.');
  end if;
  perform api.require_can_manage_user(p_user_id);
  perform core.audit_school('user.delete', p_user_id, api.audited_user(p_user_id), null);
  update user_account set deleted_at = now(), is_active = false where id = p_user_id;
  delete from user_role where user_id = p_user_id;
  perform api.require_an_admin();
  update student set user_id = null where user_id = p_user_id;
  update teacher set user_id = null where user_id = p_user_id;
  update guardian set user_id = null where user_id = p_user_id;
  delete from api_key where user_id = p_user_id;
  perform core.sessions_revoke(array[p_user_id]);
  perform core.second_factor_delete(p_user_id);
end $$;
comment on function api.login_remove is
  'Deletes a login: ends its sessions, deletes its API keys and its second factor, releases its email address and '
  'removes its roles. The student, teacher or guardian stays. Raises conflict for the current user''s own login and '
  'for the last admin, forbidden if the user has permissions that the current user lacks.';
