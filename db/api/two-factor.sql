-- Two-factor login: the second step of a login, and the second factor of the current user.

select core.define_operation('auth_second_factor', p_access => 'token',
  p_errors => '{invalid_code,forbidden,invalid_credentials}');
select core.define_operation('auth_second_factor_open', p_access => 'token',
  p_errors => '{invalid_code,forbidden,invalid_credentials}');
select core.define_operation('auth_second_factor_enroll', p_access => 'token');
select core.define_operation('auth_two_factor', p_access => 'any');
select core.define_operation('auth_two_factor_attempt', p_access => 'any', p_errors => '{forbidden,invalid_code}');
select core.define_operation('auth_two_factor_delete', p_access => 'any',
  p_errors => '{invalid_credentials,invalid_code,invalid_state,forbidden}');
select core.define_operation('auth_totp_begin', p_access => 'any', p_errors => '{invalid_credentials,forbidden}');
select core.define_operation('auth_totp_confirm', p_access => 'any', p_errors => '{invalid_code,forbidden}');
select core.define_operation('auth_recovery_codes_create', p_access => 'any',
  p_errors => '{invalid_credentials,invalid_state,forbidden}');
-- Its endpoint first checks the password, which users of schools have too.
select core.define_operation('auth_passkeys_begin', p_access => 'analyst',
  p_errors => '{invalid_credentials,invalid_state,forbidden,tenant_mismatch,tenant_suspended}');
select core.define_operation('auth_passkeys_create', p_access => 'analyst',
  p_errors => '{invalid_token,invalid_code,invalid_state,conflict,forbidden}');
select core.define_operation('auth_passkeys_delete', p_access => 'analyst', p_errors => '{forbidden}');
select core.define_operation('platform_operators_second_factor_reset', p_access => 'platform',
  p_errors => '{not_found,conflict,invalid_state}');

create function api.auth_second_factor(p jsonb) returns json language plpgsql as $$
declare
  v_is_enrollment boolean := core.is_enrollment(p ->> 'token');
begin
  return core.second_factor_attempt(v_is_enrollment, p ->> 'credential_id', p ->> 'device_token')::jsonb
    || jsonb_build_object('is_enrollment', v_is_enrollment);
end $$;
comment on function api.auth_second_factor is
  '{token, device_token?, credential_id?} → {is_enrollment, secret, passkey}; the facade checks the code or the '
  'passkey. {retry_after} if too many were wrong. Counts the attempt first. Raises invalid_token.';

create function api.auth_second_factor_open(p jsonb) returns json language plpgsql as $$
declare
  v_is_enrollment boolean := core.is_enrollment(p ->> 'token');
  v_recovery_codes json;
  v_session json;
begin
  -- A new password waits for this lock or has already ended the login.
  perform api.user_lock(core.user_id());
  perform core.login_challenge_use(p ->> 'token', v_is_enrollment);
  if v_is_enrollment then
    v_recovery_codes := core.totp_confirm(p ->> 'secret', (p ->> 'step')::bigint);
  else
    perform core.second_factor_use(p);
  end if;
  v_session := api.session_answer(core.user_id(), p ->> 'device_token');
  if v_is_enrollment then
    perform api.audit_own('operator.second_factor');
  end if;
  if (p ->> 'remember_device')::boolean then
    perform core.device_remember((v_session ->> 'session_id')::bigint);
  end if;
  return v_session::jsonb || jsonb_build_object('recovery_codes', v_recovery_codes);
end $$;
comment on function api.auth_second_factor_open is
  'Opens the session of a login after its second factor: {token, device_token, remember_device?} with what '
  'core.second_factor_use or, while a second factor is set up, core.totp_confirm takes. Answers like '
  'api.auth_session_open, with recovery_codes after a set-up. Raises invalid_code and keeps the token; invalid_token; '
  'forbidden.';

create function api.auth_second_factor_enroll(p jsonb) returns json language plpgsql as $$
begin
  if not core.is_enrollment(p ->> 'token') then
    perform core.fail('invalid_token', 'This login needs your second factor. Log in again.');
  end if;
  return api.totp_label(p ->> 'secret');
end $$;
comment on function api.auth_second_factor_enroll is
  '{token, secret}: begins to set up the authenticator app of a user who needs one to log in. Raises invalid_token.';

create function api.totp_label(p_secret text) returns json language plpgsql as $$
begin
  perform core.totp_begin(p_secret);
  return (
    select json_build_object('email', email, 'issuer', coalesce(core.tenant_summary() ->> 'name', 'School management'))
    from user_account
    where id = core.user_id());
end $$;
comment on function api.totp_label is
  'Stores the secret of a new app of the current user. Returns the names that the app shows: {email, issuer}.';

create function api.auth_two_factor(p jsonb) returns json language sql stable as $$
  select core.second_factor_summary((p ->> 'is_required_for_operators')::boolean);
$$;
comment on function api.auth_two_factor is 'The second factor of the current user, without secrets.';

create function api.require_password(p jsonb) returns void language plpgsql as $$
begin
  if not exists (
    select from user_account where id = core.user_id() and password_hash = p ->> 'password_hash'
  ) then
    perform core.fail('invalid_credentials', 'The password is wrong.');
  end if;
  perform core.login_unlock('own:' || core.user_id());
end $$;
comment on function api.require_password is
  'Compares the hash of the password that the facade has verified. Raises invalid_credentials if it has changed '
  'meanwhile.';

create function api.auth_totp_begin(p jsonb) returns json language plpgsql as $$
begin
  perform api.require_password(p);
  return api.totp_label(p ->> 'secret');
end $$;
comment on function api.auth_totp_begin is
  '{password_hash, secret}: begins to set up an authenticator app. Raises invalid_credentials.';

create function api.auth_two_factor_attempt(p jsonb) returns json language plpgsql as $$
begin
  return core.second_factor_attempt((p ->> 'is_new')::boolean);
end $$;
comment on function api.auth_two_factor_attempt is
  '{is_new} → {secret} of the app of the current user, or of the one that is being set up; the facade checks the code. '
  'Counts the attempt first; {retry_after} if too many were wrong.';

create function api.auth_totp_confirm(p jsonb) returns json language plpgsql as $$
declare
  v_codes json;
begin
  perform api.user_lock(core.user_id());
  v_codes := core.totp_confirm(p ->> 'secret', (p ->> 'step')::bigint);
  perform api.audit_own('operator.second_factor');
  return json_build_object('recovery_codes', v_codes);
end $$;
comment on function api.auth_totp_confirm is
  '{secret, step} of a checked code: turns the second factor on and ends the other sessions of the user. Returns '
  'recovery codes. Raises invalid_code.';

create function api.auth_recovery_codes_create(p jsonb) returns json language plpgsql as $$
declare
  v_codes json;
begin
  perform api.require_password(p);
  v_codes := core.recovery_codes_replace();
  perform api.audit_own('operator.recovery_codes');
  return json_build_object('recovery_codes', v_codes);
end $$;
comment on function api.auth_recovery_codes_create is
  '{password_hash}: new recovery codes; the old ones stop working. Raises invalid_credentials, invalid_state.';

create function api.auth_two_factor_delete(p jsonb) returns json language plpgsql as $$
begin
  perform api.user_lock(core.user_id());
  if (core.second_factor_summary((p ->> 'is_required_for_operators')::boolean) ->> 'is_required')::boolean then
    perform core.fail('invalid_state', 'Your account needs a second factor. You can only replace it by another app.');
  end if;
  if p ? 'password_hash' then
    perform api.require_password(p);
  else
    perform core.second_factor_use(p);
  end if;
  perform core.second_factor_remove(core.user_id(), 'second_factor_off');
  perform api.audit_own('operator.second_factor_off');
  return json_build_object('id', core.user_id());
end $$;
comment on function api.auth_two_factor_delete is
  'Removes the second factor of the current user, with the password ({password_hash}) or what core.second_factor_use '
  'takes. Raises invalid_credentials, invalid_code; invalid_state if there is none or if it is required.';

create function api.auth_passkeys_begin(p jsonb) returns json language plpgsql as $$
begin
  perform api.require_password(p);
  -- A challenge alone changes nothing. The passkey gets an audit entry.
  perform set_config('app.audited', 'yes', true);
  return core.passkey_begin()::jsonb || (
    select jsonb_build_object('user_id', id, 'email', email, 'name', core.full_name(first_name, last_name))
    from user_account
    where id = core.user_id());
end $$;
comment on function api.auth_passkeys_begin is
  '{password_hash}: a challenge for a new passkey, {challenge, passkeys, user_id, email, name}. Raises '
  'invalid_credentials, invalid_state.';

create function api.auth_passkeys_create(p jsonb) returns json language plpgsql as $$
declare
  v_passkey json := core.passkey_add(p);
begin
  perform api.audit_own('operator.passkey', core.diff(null, jsonb_build_object('name', p -> 'name')));
  return v_passkey;
end $$;
comment on function api.auth_passkeys_create is 'Stores a passkey that the facade has checked.';

create function api.auth_passkeys_delete(p jsonb) returns json language plpgsql as $$
begin
  perform core.passkey_remove((p ->> 'id')::bigint);
  perform api.audit_own('operator.passkey_delete');
  return json_build_object('id', p -> 'id');
end $$;
comment on function api.auth_passkeys_delete is 'Deletes a passkey of the current operator. Raises not_found.';

create function api.platform_operators_second_factor_reset(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (
    select id from user_account where email = p ->> 'email' and deleted_at is null for no key update);
begin
  if v_id is null then
    perform core.fail('not_found', 'There is no such operator.');
  elsif v_id = core.user_id() then
    perform core.fail('conflict', 'You cannot reset your own second factor here. Turn it off in your profile.');
  end if;
  perform core.second_factor_remove(v_id, 'second_factor_reset');
  return json_build_object('id', v_id);
end $$;
comment on function api.platform_operators_second_factor_reset is
  '{email}: removes the second factor of another operator and sends them an email. Audited. Raises not_found, '
  'invalid_state without a second factor, conflict for the current operator.';
