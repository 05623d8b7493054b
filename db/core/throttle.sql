-- The budgets of login attempts.

create function core.login_account(p_email text) returns bytea language sql stable
  return core.token_hash(coalesce(core.tenant_id()::text, 'platform') || ' ' || p_email);
comment on function core.login_account is
  'The hash of an account in platform.login_throttle, which stores no email addresses.';

create function core.address_network(p_ip text) returns text language plpgsql immutable as $$
declare
  v_ip text := regexp_replace(p_ip, '^::ffff:', '');
begin
  return case when v_ip like '%:%' then network(set_masklen(v_ip::inet, 56))::text else v_ip end;
exception when invalid_text_representation then
  return v_ip;
end $$;
comment on function core.address_network is
  'An IPv4 address, or the IPv6 network of 56 bits of an address, which one customer of a provider has.';

create function core.login_address() returns text language sql stable
  return core.address_network(coalesce(core.context_value('ip'), ''));
comment on function core.login_address is 'The address of this request, for login attempts.';

create function core.login_throttle_key(p_login bytea, p_budget text) returns bytea language sql stable
  return core.token_hash(format('%s %s %s', encode(p_login, 'hex'), p_budget,
    case when p_budget in ('address', 'address_per_hour') then core.login_address() end));
comment on function core.login_throttle_key is
  'The row of platform.login_throttle that counts the attempts of this request at an account for a budget.';

create function core.login_wait(p_login bytea, p_budget text, p_max_attempts integer, p_window interval)
  returns integer language plpgsql as $$
declare
  v_now timestamptz := clock_timestamp();
  v_throttle record;
begin
  insert into platform.login_throttle as l (account, login, budget, attempts, window_ends_at)
    values (core.login_throttle_key(p_login, p_budget), p_login, p_budget, 1, v_now + p_window)
    on conflict (account) do update set
      attempts = case when l.window_ends_at < v_now then 1 else l.attempts + 1 end,
      window_ends_at = case when l.window_ends_at < v_now then excluded.window_ends_at else l.window_ends_at end
    returning l.attempts, l.window_ends_at into v_throttle;
  return case
    when v_throttle.attempts > p_max_attempts then ceil(extract(epoch from v_throttle.window_ends_at - v_now))::integer
  end;
end $$;
comment on function core.login_wait is
  'Counts an attempt for one budget. Returns the seconds to wait if the budget is spent, else null. Not granted to '
  'request roles, because it accepts any account.';

-- docs/security.md has the arithmetic of the budgets. A budget that refuses an attempt leaves the later ones unchanged.
-- Otherwise one address could spend the budget of all.
create function core.login_attempt(p_email text, p_user_id bigint, p_device_token text) returns integer
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_login bytea := core.login_account(p_email);
begin
  if core.is_known_device(p_user_id, p_device_token)
     and core.login_wait(v_login, 'known_devices', 10, core.login_hour()) is null then
    return null;
  end if;
  return coalesce(
    core.login_wait(v_login, 'address', 10, core.login_lockout()),
    core.login_wait(v_login, 'address_per_hour', 20, core.login_hour()),
    core.login_wait(v_login, 'account', 30, core.login_hour()));
end $$;
comment on function core.login_attempt is
  'Counts a login attempt before the password is verified, so that concurrent attempts are all counted. p_user_id is '
  'null for an unknown address. Known devices of an account have a budget of their own; if it is spent, they count '
  'like any other device. Returns the seconds to wait if the account is locked for this request, else null.';

create function core.own_password_attempt() returns integer
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  -- An impersonation must not be used to guess the password.
  perform core.refuse_impersonator();
  return core.login_wait(core.login_account('own:' || core.user_id()), 'own_password', 10, core.login_lockout());
end $$;
comment on function core.own_password_attempt is
  'Counts an attempt of the current user to confirm their password. Returns the seconds to wait after ten attempts, '
  'else null. Raises forbidden during an impersonation.';

create function core.login_succeeded(p_email text, p_user_id bigint, p_device_token text) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_login bytea := core.login_account(p_email);
begin
  if core.is_known_device(p_user_id, p_device_token) then
    delete from platform.login_throttle where account = core.login_throttle_key(v_login, 'known_devices');
    return;
  end if;
  -- In the order of core.login_attempt, so that the two cannot deadlock.
  delete from platform.login_throttle where account = core.login_throttle_key(v_login, 'address');
  delete from platform.login_throttle where account = core.login_throttle_key(v_login, 'address_per_hour');
  update platform.login_throttle set attempts = greatest(attempts - 1, 0)
    where account = core.login_throttle_key(v_login, 'account');
end $$;
comment on function core.login_succeeded is
  'Resets the failed attempts from the known devices or from the address of this request. Of the attempts from all '
  'addresses it takes back only this one: the logins of the user must not give strangers more guesses.';

create function core.login_unlock(p_email text) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  delete from platform.login_throttle
  where account in (
    select account from platform.login_throttle
    where login = core.login_account(p_email)
    -- The order of core.login_attempt, so that the two cannot deadlock.
    order by array_position('{known_devices,address,address_per_hour,account}', budget), account
    for update);
$$;
comment on function core.login_unlock is 'Deletes the failed attempts of an account, after its password was changed.';
