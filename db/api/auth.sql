-- /api/auth: login, sessions, the current user's profile, passwords, email verification. The same functions serve users
-- of a school and operators: both schemas have a table user_account, and the search_path selects one.

select core.define_operation('auth_credentials', p_access => 'public',
  p_errors => '{invalid_credentials,second_factor_required,forbidden}');
select core.define_operation('auth_session_open', p_access => 'public', p_errors => '{invalid_credentials,forbidden}');
select core.define_operation('auth_logout', p_access => 'any');
select core.define_operation('auth_refresh', p_access => 'refresh', p_errors => '{forbidden}');
select core.define_operation('auth_sessions_list', p_access => 'any');
select core.define_operation('auth_sessions_delete', p_access => 'any', p_errors => '{forbidden}');
select core.define_operation('auth_profile', p_needs_session => false, p_access => 'any',
  p_unversioned_fields =>
    '{email_verified,impersonated_by,is_platform_admin,last_login_at,permissions,profile_picture_url,roles,tenant}');
select core.define_operation('auth_profile_update', p_access => 'any', p_present => 'auth_profile',
  p_locked_by => 'lock_profile');
select core.define_operation('auth_profile_picture', p_access => 'any', p_content => 'gives',
  p_errors => '{not_found}');
select core.define_operation('auth_profile_picture_set', p_access => 'any', p_content => 'takes',
  p_versioned_by => 'auth_profile', p_locked_by => 'lock_profile');
select core.define_operation('auth_own_credentials', p_access => 'any', p_errors => '{forbidden}');
select core.define_operation('auth_password_change', p_access => 'any',
  p_errors => '{invalid_credentials,forbidden}');
select core.define_operation('auth_password_forgot', p_access => 'public');
select core.define_operation('auth_reset_credentials', p_access => 'token');
select core.define_operation('auth_password_reset', p_access => 'token');
select core.define_operation('auth_email_verify', p_access => 'token');
select core.define_operation('auth_enabled_features', p_needs_session => false, p_access => 'any');

create function api.auth_credentials(p jsonb) returns json language plpgsql as $$
declare
  v_user record;
  v_retry_after integer;
begin
  select id, password_hash
    into v_user
    from user_account
    where email = p ->> 'email' and is_active and deleted_at is null;
  v_retry_after := core.login_attempt(p ->> 'email', v_user.id, p ->> 'device_token');
  if v_retry_after is not null then
    return json_build_object('retry_after', v_retry_after);
  end if;
  return json_build_object('user_id', v_user.id, 'password_hash', v_user.password_hash);
end $$;
comment on function api.auth_credentials is
  '{email, device_token} → {user_id, password_hash}, or nulls; the facade verifies the password. {retry_after} if the '
  'account is locked for this request. Counts the attempt first.';

create function api.user_lock(p_user_id bigint) returns void language plpgsql as $$
begin
  perform from user_account where id = p_user_id for no key update;
end $$;
comment on function api.user_lock is
  'Locks a user like a login. What forgets devices, or changes passwords or second factors, takes this lock first: a '
  'concurrent login then comes before it and is undone, or comes after it and sees the change.';

create function api.auth_session_open(p jsonb) returns json language plpgsql as $$
declare
  v_user_id bigint;
  v_refusal text;
  v_challenge json;
begin
  select id
    into v_user_id
    from user_account
    where id = (p ->> 'user_id')::bigint
      and password_hash = p ->> 'password_hash'
      and is_active
      and deleted_at is null
    for no key update;
  if v_user_id is null then
    perform core.fail('invalid_credentials', 'The email or the password is wrong.');
  end if;
  v_refusal := core.login_refusal(v_user_id);
  if v_refusal is not null then
    perform core.fail('forbidden', v_refusal);
  end if;
  if p ? 'prepared_hash' then
    update user_account set password_hash = p ->> 'prepared_hash' where id = v_user_id;
  end if;
  v_challenge := core.login_challenge(v_user_id, (core.effective_rights(v_user_id)).roles, p ->> 'device_token',
    (p ->> 'is_required_for_operators')::boolean);
  if v_challenge is not null then
    return json_build_object('challenge', v_challenge);
  end if;
  return api.session_answer(v_user_id, p ->> 'device_token');
end $$;
comment on function api.auth_session_open is
  '{user_id, password_hash, device_token} of a verified password → what api.session_answer returns or, for a user who '
  'needs a second factor, {challenge} of core.login_challenge. Compares the hash again: this proves that the facade '
  'verified the password and that it has not changed since. Stores prepared_hash, which the facade sends if the stored '
  'hash is of the password as it was typed. Raises invalid_credentials, and forbidden if '
  'core.login_refusal has a reason.';

create function api.session_answer(p_user_id bigint, p_device_token text) returns json language plpgsql as $$
declare
  v_is_first_login boolean := (select last_login_at is null from user_account where id = p_user_id);
  v_user record;
  v_rights core.rights;
  v_refusal text;
  v_session json;
begin
  update user_account set last_login_at = now()
    where id = p_user_id and is_active and deleted_at is null
    returning id, email, first_name, last_name, profile_picture_id into v_user;
  if v_user.id is null then
    perform core.fail('invalid_credentials', 'The email or the password is wrong.');
  end if;
  perform core.lock_rights(false);
  v_refusal := core.login_refusal(v_user.id);
  if v_refusal is not null then
    perform core.fail('forbidden', v_refusal);
  end if;
  v_rights := core.effective_rights(v_user.id);
  v_session := core.session_open(v_user.id, v_user.email, v_rights, p_device_token);
  if (v_session ->> 'is_new_device')::boolean and not v_is_first_login then
    perform core.enqueue('send_email', jsonb_build_object(
      'user_id', v_user.id, 'kind', 'new_device', 'session_id', v_session -> 'session_id'));
  end if;
  perform core.login_succeeded(v_user.email, v_user.id, p_device_token);
  if core.tenant_id() is null then
    perform set_config('app.user_id', v_user.id::text, true), set_config('app.actor_email', v_user.email, true);
    perform core.audit('operator.login', 'operator', v_user.id, null, '{}');
  end if;
  return json_build_object(
    'session_id', v_session -> 'session_id',
    'refresh_token', v_session -> 'refresh_token',
    'device_token', v_session -> 'device_token',
    'tenant_id', core.tenant_id(),
    'user', json_build_object(
      'id', v_user.id,
      'email', v_user.email,
      'first_name', v_user.first_name,
      'last_name', v_user.last_name,
      'profile_picture_id', v_user.profile_picture_id),
    'permissions', v_rights.permissions,
    'enabled_features', core.tenant_features(),
    'today', core.today(),
    'time_zone', core.time_zone());
end $$;
comment on function api.session_answer is
  'Opens a session for a user who has proved their password and, if they need one, their second factor. Returns '
  '{session_id, refresh_token, device_token, tenant_id, user, permissions, enabled_features, today, time_zone}; the '
  'facade replaces profile_picture_id by the address of the picture. Sends an email to a user who logs in from a new '
  'device, except at their first login. Raises invalid_credentials, and forbidden if core.login_refusal has a reason.';

create function api.audit_own(p_action text, p_changes jsonb default '{}') returns void language plpgsql as $$
begin
  if core.tenant_id() is null then
    perform core.audit(p_action, 'operator', core.user_id(), null, p_changes);
  end if;
end $$;
comment on function api.audit_own is
  'Audits an operator''s change to their own account; users of a school are not audited.';

create function api.auth_logout(p jsonb) returns json language plpgsql as $$
begin
  perform core.session_end();
  return json_build_object('id', core.session_id());
end $$;
comment on function api.auth_logout is 'Ends the current session. Its access and refresh tokens stop working at once.';

create function api.auth_refresh(p jsonb) returns json language plpgsql as $$
declare
  v_refusal text;
begin
  if not exists (select from user_account where id = core.user_id() and is_active and deleted_at is null) then
    perform core.fail('invalid_token', 'The session has ended. Log in again.');
  end if;
  perform core.lock_rights(false);
  v_refusal := core.login_refusal(core.user_id());
  perform core.refresh_rights(array[core.user_id()]);
  if v_refusal is null
      and not core.has_second_factor(core.user_id())
      and core.needs_second_factor((core.effective_rights(core.user_id())).roles,
        (p ->> 'is_required_for_operators')::boolean) then
    perform core.session_end();
    v_refusal := 'Your account now needs a second factor. Log in again to set one up.';
  end if;
  if v_refusal is not null then
    return json_build_object('refused', v_refusal);
  end if;
  return (jsonb_build_object('session_id', core.session_id(), 'user_id', core.user_id(), 'tenant_id', core.tenant_id())
    || core.session_rotate(p ->> 'refresh_token')::jsonb)::json;
end $$;
comment on function api.auth_refresh is
  '{refresh_token} → {session_id, user_id, tenant_id, refresh_token}, or {refused}, which ends the session: if the '
  'token is retired, core.login_refusal has a reason, or the user has no second factor although one is required. '
  'Raises invalid_token if the user is inactive or deleted.';

create function api.auth_sessions_list(p jsonb) returns json language sql stable as $$
  select core.json_page(core.sessions_of(core.user_id()), p);
$$;
comment on function api.auth_sessions_list is
  'The sessions of the current user or operator, the one that was used last first. Searches address and program.';

create function api.auth_sessions_delete(p jsonb) returns json language plpgsql as $$
begin
  perform api.user_lock(core.user_id());
  perform core.session_revoke(core.user_id(), (p ->> 'id')::bigint);
  perform api.audit_own('operator.session', core.diff(jsonb_build_object('session_id', p -> 'id'), null));
  return json_build_object('id', p -> 'id');
end $$;
comment on function api.auth_sessions_delete is
  'Ends a session of the current user, which may be this one, and forgets its device. Raises not_found, also for the '
  'session of another user; forbidden during an impersonation.';

create function api.auth_profile(p jsonb) returns json language plpgsql stable as $$
declare
  v_profile json;
begin
  select json_build_object(
      'id', u.id,
      'email', u.email,
      'first_name', u.first_name,
      'last_name', u.last_name,
      'phone', u.phone,
      'profile_picture_url', core.picture_url(u.profile_picture_id),
      'email_verified', u.email_verified_at is not null,
      'last_login_at', u.last_login_at,
      'is_platform_admin', core.tenant_id() is null,
      'tenant', core.tenant_summary(),
      'impersonated_by', (select to_json(i) from core.impersonator() i where i.id is not null),
      'roles', case when core.tenant_id() is null then array[(core.operator_access()).role] else r.roles end,
      'permissions', case when core.api_key_id() is null then r.permissions else core.permissions() end,
      'created_at', u.created_at,
      'updated_at', u.updated_at)
    into v_profile
    from user_account u
    cross join lateral core.effective_rights(u.id) r
    where u.id = core.user_id();
  return v_profile;
end $$;
comment on function api.auth_profile is 'The current user or operator with school, roles and permissions.';

create function api.lock_profile(p jsonb) returns void language plpgsql as $$
begin
  perform from user_account where id = core.user_id() for no key update;
end $$;
comment on function api.lock_profile is 'Locks the current user or operator.';

create function api.auth_profile_update(p jsonb) returns json language plpgsql as $$
declare
  v_before jsonb := api.auth_profile(p);
begin
  update user_account u
    set (first_name, last_name, phone) = (select n.first_name, n.last_name, n.phone from jsonb_populate_record(u, p) n)
    where id = core.user_id();
  perform api.audit_own('operator.update', core.diff(v_before, api.auth_profile(p)::jsonb));
  return api.auth_profile(p);
end $$;
comment on function api.auth_profile_update is 'Updates first_name, last_name and phone of the current user.';

create function api.auth_profile_picture(p jsonb) returns json language sql stable as $$
  select api.file_answer((select profile_picture_id from user_account where id = core.user_id()), 'picture');
$$;
comment on function api.auth_profile_picture is 'The picture of the current user. Raises not_found.';

create function api.file_answer(p_file_id bigint, p_name text default null) returns json language plpgsql stable as $$
declare
  v_answer json;
begin
  select json_build_object(
      'file_id', id,
      'content_type', content_type,
      'size', size,
      'digest', digest,
      'name', coalesce(p_name || '.' || replace(split_part(content_type, '/', 2), 'jpeg', 'jpg'), name, 'file'))
    into v_answer
    from file
    where id = p_file_id;
  if v_answer is null then
    perform core.fail('not_found', 'This file does not exist.');
  end if;
  return v_answer;
end $$;
comment on function api.file_answer is
  'The response of an operation that returns a file: {file_id, content_type, name, size, digest}. Raises not_found. '
  'p_name replaces the name of the upload; the extension of the content type is added.';

create function api.auth_profile_picture_set(p jsonb) returns json language plpgsql as $$
declare
  v_old bigint := (select profile_picture_id from user_account where id = core.user_id() for no key update);
begin
  update user_account set profile_picture_id = (p ->> 'file_id')::bigint where id = core.user_id();
  delete from file where id = v_old;
  perform api.audit_own('operator.picture');
  return api.auth_profile(p);
end $$;
comment on function api.auth_profile_picture_set is '{file_id}: replaces the picture of the current user.';

create function api.auth_own_credentials(p jsonb) returns json language plpgsql as $$
declare
  v_retry_after integer := core.own_password_attempt();
begin
  if v_retry_after is not null then
    return json_build_object('retry_after', v_retry_after);
  end if;
  return (
    select json_build_object('user_id', id, 'password_hash', password_hash)
    from user_account
    where id = core.user_id()
  );
end $$;
comment on function api.auth_own_credentials is
  '{user_id, password_hash} of the current user; the facade verifies the current password. Counts the attempt like a '
  'login.';

create function api.auth_password_change(p jsonb) returns json language plpgsql as $$
declare
  v_email text;
begin
  update user_account set password_hash = p ->> 'password_hash'
    where id = core.user_id() and password_hash = p ->> 'current_password_hash'
    returning email into v_email;
  if v_email is null then
    perform core.fail('invalid_credentials', 'The current password is wrong.');
  end if;
  perform core.login_unlock(v_email), core.login_unlock('own:' || core.user_id());
  perform core.sessions_revoke(array[core.user_id()], core.session_id());
  perform core.tokens_void(core.user_id(), '{password_reset,invitation}');
  if (p ->> 'end_calendar_feeds')::boolean then
    perform core.calendar_feeds_end(core.user_id());
  end if;
  perform api.audit_own('operator.password');
  return json_build_object('id', core.user_id());
end $$;
comment on function api.auth_password_change is
  '{current_password_hash, password_hash, end_calendar_feeds}: changes the password of the current user and ends their '
  'other sessions, and their calendar feeds if they ask for it. Raises invalid_credentials.';

create function api.auth_password_forgot(p jsonb) returns json language plpgsql as $$
declare
  v_user_id bigint := (
    select id from user_account where email = p ->> 'email' and is_active and deleted_at is null);
begin
  if core.token_is_recent(v_user_id, 'password_reset') then
    v_user_id := null;
  end if;
  perform core.enqueue('send_email', jsonb_build_object('user_id', v_user_id, 'kind', 'password_reset'),
    'password_reset:' || coalesce(v_user_id::text, 'nobody'));
  return json_build_object('message', 'If this address has an account, an email has been sent.');
end $$;
comment on function api.auth_password_forgot is
  '{email}: queues an email with a link if the address is known, at most one in two minutes. For an unknown address '
  'the response is the same and a job is queued too, so that neither the response nor its timing reveals whether the '
  'account exists.';

create function api.auth_reset_credentials(p jsonb) returns json language sql stable as $$
  select json_build_object('password_hash', (
    select password_hash from user_account where id = core.user_id() and is_active and deleted_at is null));
$$;
comment on function api.auth_reset_credentials is
  '{token} → {password_hash} of the user of a token, which it does not consume; null before the first password. The '
  'facade refuses a new password that is the current one.';

create function api.auth_password_reset(p jsonb) returns json language plpgsql as $$
declare
  v_user_id bigint := core.token_use(p ->> 'token', '{password_reset,invitation}');
  v_email text;
begin
  update user_account set password_hash = p ->> 'password_hash', email_verified_at = coalesce(email_verified_at, now())
    where id = v_user_id and is_active and deleted_at is null
    returning email into v_email;
  if v_email is null then
    perform core.fail('invalid_token', 'This link has expired or has already been used. Request a new one.');
  end if;
  perform core.login_unlock(v_email);
  perform core.sessions_revoke(array[v_user_id]);
  perform core.tokens_void(v_user_id, '{password_reset,invitation}');
  perform core.calendar_feeds_end(v_user_id);
  perform api.audit_own('operator.password');
  return json_build_object('id', v_user_id);
end $$;
comment on function api.auth_password_reset is
  '{token, password_hash}: consumes the token, sets the password and ends all sessions and calendar feeds of the '
  'user. Raises invalid_token.';

create function api.auth_email_verify(p jsonb) returns json language plpgsql as $$
declare
  v_user_id bigint := core.token_use(p ->> 'token', '{email_verification}');
begin
  update user_account set email_verified_at = coalesce(email_verified_at, now())
    where id = v_user_id and deleted_at is null;
  if not found then
    perform core.fail('invalid_token', 'This link has expired or has already been used. Request a new one.');
  end if;
  return json_build_object('id', v_user_id, 'email_verified', true);
end $$;
comment on function api.auth_email_verify is
  '{token}: marks the email address of the user as verified. Raises invalid_token.';

create function api.auth_enabled_features(p jsonb) returns json language sql stable as $$
  select to_json(core.tenant_features());
$$;
comment on function api.auth_enabled_features is
  'The names of the features that are enabled for the school; none for an operator.';
