-- Second factors: authenticator apps (TOTP), recovery codes, passkeys, and remembered devices. The API checks codes and
-- signatures. These functions count attempts, use up codes, and decide when a login needs a second factor
-- (decision 0033). They are security definer, because request roles cannot read these tables.

create function core.second_factor_of(p_user_id bigint) returns platform.second_factor
  language sql stable as $$
  select f from platform.second_factor f
  where coalesce(f.tenant_id, 0) = coalesce(core.tenant_id(), 0) and f.user_id = p_user_id;
$$;
comment on function core.second_factor_of is
  'The row of a user of this school (or of an operator); null without one. Not granted to request roles, because it '
  'has the secret.';

create function core.needs_second_factor(p_roles text[], p_is_required_for_operators boolean) returns boolean
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  if core.tenant_id() is null then
    return coalesce(p_is_required_for_operators, false);
  end if;
  return not p_roles <@ '{student}' and (
    select is_second_factor_required from platform.tenant where id = core.tenant_id());
end $$;
comment on function core.needs_second_factor is
  'Whether the school requires a second factor of a user with these roles. Users with any role besides student are '
  'staff. For operators the setting of the API decides.';

create function core.has_second_factor(p_user_id bigint) returns boolean
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return exists (
    select from platform.second_factor
    where coalesce(tenant_id, 0) = coalesce(core.tenant_id(), 0) and user_id = p_user_id and secret is not null);
end $$;
comment on function core.has_second_factor is 'Whether a user of this school (or an operator) has a second factor.';

create function core.login_challenge(
    p_user_id bigint, p_roles text[], p_device_token text, p_is_required_for_operators boolean) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_factor platform.second_factor := core.second_factor_of(p_user_id);
  v_purpose text;
begin
  if v_factor.secret is null then
    if not core.needs_second_factor(p_roles, p_is_required_for_operators) then
      return null;
    end if;
    v_purpose := 'second_factor_enrollment';
  elsif exists (
    select from platform.session
    where coalesce(tenant_id, 0) = coalesce(core.tenant_id(), 0)
      and user_id = p_user_id
      and device_hash = core.token_hash(p_device_token)
      and remembered_until > now()
  ) then
    return null;
  else
    v_purpose := 'second_factor';
  end if;
  return json_build_object(
    'token', core.one_time_token_new(core.tenant_id(), p_user_id, v_purpose),
    'expires_at', now() + core.one_time_token_lifetime(v_purpose),
    'is_enrollment', v_factor.secret is null,
    'methods', array_remove(array[
      case when v_factor.secret is not null then 'totp' end,
      case when exists (
        select from platform.recovery_code where second_factor_id = v_factor.id and used_at is null
      ) then 'recovery_code' end,
      case when exists (select from platform.passkey where second_factor_id = v_factor.id) then 'passkey' end], null),
    'passkeys', (
      select coalesce(json_agg(json_build_object('id', credential_id, 'transports', transports) order by id), '[]')
      from platform.passkey
      where second_factor_id = v_factor.id));
end $$;
comment on function core.login_challenge is
  'What a login with the right password still needs: null for nothing, or {token, expires_at, is_enrollment, methods, '
  'passkeys}. The token proves the password. It is for a second factor or, for a user who must set one up first, only '
  'for that.';

create function core.login_challenge_use(p_token text, p_is_enrollment boolean) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if core.token_use(p_token, array[case when p_is_enrollment then 'second_factor_enrollment' else 'second_factor' end])
     is null then
    perform core.fail('invalid_token', 'This login has expired. Log in again.');
  end if;
end $$;
comment on function core.login_challenge_use is
  'Consumes the token of core.login_challenge. Raises invalid_token if it is used, expired or for another purpose.';

create function core.is_enrollment(p_token text) returns boolean
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_purpose text := (
    select purpose from platform.one_time_token
    where hash = core.token_hash(p_token)
      and used_at is null
      and expires_at > now()
      and tenant_id is not distinct from core.tenant_id());
begin
  if v_purpose is null or v_purpose not in ('second_factor', 'second_factor_enrollment') then
    perform core.fail('invalid_token', 'This login has expired. Log in again.');
  end if;
  return v_purpose = 'second_factor_enrollment';
end $$;
comment on function core.is_enrollment is
  'Whether the token of core.login_challenge is for setting up a second factor. Raises invalid_token.';

create function core.second_factor_account(p_user_id bigint) returns bytea language sql stable
  return core.login_account('second factor:' || p_user_id);
comment on function core.second_factor_account is 'The account in platform.login_throttle that counts codes of a user.';

create function core.second_factor_attempt(
    p_is_new boolean, p_credential_id text default null, p_device_token text default null) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_account bytea := core.second_factor_account(core.user_id());
  v_factor platform.second_factor := core.second_factor_of(core.user_id());
  v_retry_after integer;
begin
  perform core.refuse_impersonator();
  -- docs/security.md has the arithmetic. Neither a new challenge nor a new password resets these budgets.
  if not core.is_known_device(core.user_id(), p_device_token)
     or core.login_wait(v_account, 'second_factor_known_devices', 10, core.login_hour()) is not null then
    v_retry_after := coalesce(
      core.login_wait(v_account, 'second_factor', 10, core.login_lockout()),
      core.login_wait(v_account, 'second_factor_per_day', 30, interval '1 day'));
  end if;
  if v_retry_after is not null then
    return json_build_object('retry_after', v_retry_after);
  end if;
  return json_build_object(
    'secret', case when p_is_new then v_factor.new_secret else v_factor.secret end,
    'passkey', (
      select json_build_object(
        'id', credential_id, 'public_key', public_key, 'counter', counter, 'transports', transports)
      from platform.passkey
      where second_factor_id = v_factor.id and credential_id = p_credential_id));
end $$;
comment on function core.second_factor_attempt is
  'Counts an attempt of the current user before the API checks a code, so that concurrent attempts are all counted. '
  'Known devices of the user have a budget of their own, so that a stranger with the password cannot lock them out; if '
  'it is spent, they count like any other device. Returns {retry_after} if the budget is spent, else the encrypted '
  'secret (p_is_new: of the app that is being set up) and the passkey with this id. Raises forbidden during an '
  'impersonation.';

create function core.second_factor_succeeded(p_device_token text) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_account bytea := core.second_factor_account(core.user_id());
begin
  if core.is_known_device(core.user_id(), p_device_token) then
    delete from platform.login_throttle
      where account = core.login_throttle_key(v_account, 'second_factor_known_devices');
    return;
  end if;
  delete from platform.login_throttle where account = core.login_throttle_key(v_account, 'second_factor');
  update platform.login_throttle set attempts = greatest(attempts - 1, 0)
    where account = core.login_throttle_key(v_account, 'second_factor_per_day');
end $$;
comment on function core.second_factor_succeeded is
  'Resets the attempts of the known devices of the current user or, for another device, those of a quarter of an hour. '
  'Of the attempts of a day it takes back only this one: the logins of the user must not give strangers more guesses.';

create function core.second_factor_use(p jsonb) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_factor_id bigint := (core.second_factor_of(core.user_id())).id;
begin
  if p ? 'step' then
    update platform.second_factor set last_step = (p ->> 'step')::bigint
      where id = v_factor_id and secret = p ->> 'secret' and coalesce(last_step < (p ->> 'step')::bigint, true);
  elsif p ? 'recovery_code' then
    update platform.recovery_code set used_at = now()
      where second_factor_id = v_factor_id
        and hash = core.token_hash(regexp_replace(lower(p ->> 'recovery_code'), '[^0-9a-f]', '', 'g'))
        and used_at is null;
  else
    update platform.passkey set counter = (p ->> 'counter')::bigint, last_used_at = now()
      where second_factor_id = v_factor_id
        and credential_id = p ->> 'credential_id'
        -- Many authenticators have no counter and always send zero.
        and (counter < (p ->> 'counter')::bigint or counter + (p ->> 'counter')::bigint = 0);
  end if;
  if not found then
    perform core.fail('invalid_code', 'The code is wrong or was already used.');
  end if;
  perform core.second_factor_succeeded(p ->> 'device_token');
end $$;
comment on function core.second_factor_use is
  'Uses up a second factor of the current user: {secret, step} of a code that the API has checked, {recovery_code}, or '
  '{credential_id, counter} of a checked passkey; and device_token?, as for core.second_factor_attempt. Raises '
  'invalid_code if it was already used. Of two requests with the same code only one succeeds.';

create function core.recovery_codes_new(p_factor_id bigint) returns json language plpgsql as $$
declare
  v_codes text[];
begin
  delete from platform.recovery_code where second_factor_id = p_factor_id;
  select array_agg(encode(public.gen_random_bytes(10), 'hex')) into v_codes from generate_series(1, 10);
  insert into platform.recovery_code (second_factor_id, hash)
    select p_factor_id, core.token_hash(code) from unnest(v_codes) code;
  return (select json_agg(regexp_replace(code, '(.{5})(?=.)', '\1-', 'g')) from unnest(v_codes) code);
end $$;
comment on function core.recovery_codes_new is
  'Replaces the recovery codes by ten new ones of 80 bits and returns them. Not granted to request roles, because it '
  'accepts any user.';

create function core.recovery_codes_replace() returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform core.refuse_impersonator();
  if not core.has_second_factor(core.user_id()) then
    perform core.fail('invalid_state', 'You have no second factor. Set up an authenticator app first.');
  end if;
  perform core.enqueue('send_email', jsonb_build_object('user_id', core.user_id(), 'kind', 'recovery_codes_new'));
  return core.recovery_codes_new((core.second_factor_of(core.user_id())).id);
end $$;
comment on function core.recovery_codes_replace is
  'Ten new recovery codes of the current user; the old ones stop working. Tells the user by email. Raises '
  'invalid_state without a second factor.';

create function core.totp_begin(p_secret text) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform core.refuse_impersonator();
  insert into platform.second_factor (tenant_id, user_id, new_secret)
    values (core.tenant_id(), core.user_id(), p_secret)
    on conflict (coalesce(tenant_id, 0), user_id) do update set new_secret = excluded.new_secret;
end $$;
comment on function core.totp_begin is
  'Stores the encrypted secret of an app that the current user sets up. The old app works until the new one is '
  'confirmed.';

create function core.totp_confirm(p_secret text, p_step bigint) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_factor_id bigint;
begin
  perform core.refuse_impersonator();
  update platform.second_factor
    set secret = new_secret, new_secret = null, last_step = p_step, enabled_at = now()
    where id = (core.second_factor_of(core.user_id())).id and new_secret = p_secret
    returning id into v_factor_id;
  if v_factor_id is null then
    perform core.fail('invalid_code', 'The code is wrong or was already used.');
  end if;
  perform core.second_factor_succeeded(null);
  -- Other sessions and logins may be those of somebody who only knew the password.
  perform core.sessions_revoke(array[core.user_id()], core.session_id());
  perform core.enqueue('send_email', jsonb_build_object('user_id', core.user_id(), 'kind', 'second_factor_on'));
  return core.recovery_codes_new(v_factor_id);
end $$;
comment on function core.totp_confirm is
  'Turns the second factor of the current user on, or replaces the app, after the API has checked a code of the new '
  'app. Returns new recovery codes. Ends the other sessions of the user, and all devices need the second factor again. '
  'Tells the user by email. The caller must hold a lock of the user. Raises invalid_code if another app was set up '
  'meanwhile.';

create function core.devices_forget(p_user_id bigint) returns void language sql as $$
  update platform.session set remembered_until = null
  where coalesce(tenant_id, 0) = coalesce(core.tenant_id(), 0)
    and user_id = p_user_id
    and remembered_until is not null;
$$;
comment on function core.devices_forget is
  'Makes all devices of a user need the second factor again. Not granted to request roles, because it accepts any '
  'user.';

create function core.device_remember(p_session_id bigint) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  update platform.session set remembered_until = now() + core.remembered_device_lifetime()
  where id = p_session_id
    and coalesce(tenant_id, 0) = coalesce(core.tenant_id(), 0)
    and user_id = core.user_id()
    and impersonator_id is null;
$$;
comment on function core.device_remember is
  'Lets logins from the device of a session of the current user skip the second factor for 30 days.';

create function core.second_factor_delete(p_user_id bigint) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from platform.second_factor where id = (core.second_factor_of(p_user_id)).id;
  delete from platform.login_throttle where login = core.second_factor_account(p_user_id);
  perform core.devices_forget(p_user_id), core.tokens_void(p_user_id, '{second_factor,passkey}');
end $$;
comment on function core.second_factor_delete is
  'Deletes what is stored of the second factor of a user, if anything, without telling anybody. The caller must hold a '
  'lock of the user, and checks who may do it.';

create function core.second_factor_remove(p_user_id bigint, p_kind text) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform core.refuse_impersonator();
  if not core.has_second_factor(p_user_id) then
    perform core.fail('invalid_state', 'This user has no second factor.');
  end if;
  perform core.second_factor_delete(p_user_id);
  perform core.enqueue('send_email', jsonb_build_object('user_id', p_user_id, 'kind', p_kind));
  if p_kind = 'second_factor_reset' then
    perform core.audit('second_factor.reset', case when core.tenant_id() is null then 'operator' else 'user' end,
      p_user_id, core.tenant_id(), '{}');
  end if;
end $$;
comment on function core.second_factor_remove is
  'Removes the authenticator app, the recovery codes and the passkeys of a user, and tells them by email. p_kind: '
  'second_factor_off by the user; second_factor_reset by somebody else, which is audited. Raises invalid_state if '
  'there is none, forbidden during an impersonation. The caller must hold a lock of the user, and checks who may do '
  'it.';

create function core.second_factor_summary(p_is_required_for_operators boolean) returns json
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_factor platform.second_factor := core.second_factor_of(core.user_id());
begin
  return json_build_object(
    'is_enabled', v_factor.secret is not null,
    'is_required', core.needs_second_factor(
      (select roles from platform.session where id = core.session_id()), p_is_required_for_operators),
    'enabled_at', v_factor.enabled_at,
    'recovery_codes_left', (
      select count(*) from platform.recovery_code where second_factor_id = v_factor.id and used_at is null),
    'passkeys', (
      select coalesce(json_agg(
        json_build_object('id', id, 'name', name, 'last_used_at', last_used_at, 'created_at', created_at)
        order by id), '[]')
      from platform.passkey
      where second_factor_id = v_factor.id));
end $$;
comment on function core.second_factor_summary is 'The second factor of the current user, without secrets.';

create function core.passkey_begin() returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not core.has_second_factor(core.user_id()) then
    perform core.fail('invalid_state', 'Set up an authenticator app first. It gives you the recovery codes.');
  end if;
  return json_build_object(
    'challenge', core.one_time_token_new(core.tenant_id(), core.user_id(), 'passkey'),
    'passkeys', (
      select coalesce(json_agg(json_build_object('id', credential_id, 'transports', transports) order by id), '[]')
      from platform.passkey
      where second_factor_id = (core.second_factor_of(core.user_id())).id));
end $$;
comment on function core.passkey_begin is
  'A challenge for a new passkey of the current operator, and their passkeys. Raises invalid_state without an '
  'authenticator app.';

create function core.passkey_add(p jsonb) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_factor platform.second_factor := core.second_factor_of(core.user_id());
  v_passkey json;
begin
  if core.token_use(p ->> 'challenge', '{passkey}') is distinct from core.user_id() then
    perform core.fail('invalid_token', 'The registration of the passkey has expired. Start again.');
  elsif v_factor.secret is null then
    perform core.fail('invalid_state', 'Set up an authenticator app first. It gives you the recovery codes.');
  elsif (select count(*) from platform.passkey where second_factor_id = v_factor.id) >= 10 then
    perform core.fail('invalid_state', 'You can have at most 10 passkeys. Remove one first.');
  end if;
  insert into platform.passkey as k (second_factor_id, credential_id, public_key, counter, transports, name)
    values (v_factor.id, p ->> 'credential_id', p ->> 'public_key', (p ->> 'counter')::bigint,
      array(select jsonb_array_elements_text(p -> 'transports')), p ->> 'name')
    returning json_build_object(
      'id', k.id, 'name', k.name, 'last_used_at', k.last_used_at, 'created_at', k.created_at) into v_passkey;
  perform core.enqueue('send_email', jsonb_build_object('user_id', core.user_id(), 'kind', 'passkey_added'));
  return v_passkey;
end $$;
comment on function core.passkey_add is
  'Stores a passkey of the current operator after the API has checked it: {challenge, credential_id, public_key, '
  'counter, transports, name}. Tells the operator by email. Raises invalid_token if the challenge is used, expired or '
  'of another operator.';

create function core.passkey_remove(p_id bigint) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from platform.passkey
    where id = p_id and second_factor_id = (core.second_factor_of(core.user_id())).id;
  if not found then
    perform core.fail('not_found', format('There is no passkey %s.', p_id));
  end if;
end $$;
comment on function core.passkey_remove is 'Deletes a passkey of the current operator. Raises not_found.';

create function core.school_require_second_factor(p_is_required boolean) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_is_changed boolean := core.school_flag_set('is_second_factor_required', p_is_required,
    'Only an admin of the school can change whether its staff need a second factor.');
begin
  if v_is_changed and p_is_required and not core.has_second_factor(core.user_id()) then
    perform core.refuse_field('invalid_state', 'is_second_factor_required',
      'Set up your own second factor first, so that you do not lock yourself out.');
  end if;
end $$;
comment on function core.school_require_second_factor is
  'Sets whether the staff of this school need a second factor. Sessions of staff without one end at their next '
  'refresh. Raises forbidden unless the user is an admin of the school, and during an impersonation; invalid_state if '
  'the admin has none. Audited.';

create function core.is_second_factor_required() returns boolean
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return (select is_second_factor_required from platform.tenant where id = core.tenant_id());
end $$;
comment on function core.is_second_factor_required is 'Whether the staff of this school need a second factor.';

create function core.second_factor_secrets(p_key text, p_after text, p_limit integer) returns setof text
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return query
    select value
    from platform.second_factor f
    cross join lateral (values (f.secret), (f.new_secret)) stored (value)
    where value collate "C" > p_after and not starts_with(value, p_key || '.')
    order by value collate "C"
    limit p_limit;
end $$;
comment on function core.second_factor_secrets is
  'The next encrypted secrets after p_after whose key is not p_key, which is the first part of an encrypted secret.';

create function core.second_factor_reencrypt(p_before text[], p_after text[]) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update platform.second_factor f set secret = after
    from unnest(p_before, p_after) change (before, after)
    where f.secret = before;
  update platform.second_factor f set new_secret = after
    from unnest(p_before, p_after) change (before, after)
    where f.new_secret = before;
end $$;
comment on function core.second_factor_reencrypt is
  'Replaces encrypted secrets by the same ones under another key. A secret that has changed meanwhile stays.';
