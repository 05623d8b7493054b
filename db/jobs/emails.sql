-- The job `send_email`: an email to one user, with a link that works once, or about a login or a second factor.

select core.define_job('send_email', '{email_prepare}', p_takes_turns => true, p_for_requests => true);

create function core.unconfirmed_email_wait(p_tenant_id bigint, p_email text) returns timestamptz
  language plpgsql as $$
declare
  v_address bytea := sha256(convert_to(format('unconfirmed %s %s', p_tenant_id, p_email), 'UTF8'));
  v_school bytea := sha256(convert_to(format('unconfirmed %s', p_tenant_id), 'UTF8'));
  v_sent record;
  v_until timestamptz;
begin
  -- The row of the school serializes its emails.
  insert into platform.rate_limit_counter as c (key, hits, window_ends_at)
    values (v_school, 0, now() + interval '1 day')
    on conflict (key) do update set
      hits = case when c.window_ends_at <= now() then 0 else c.hits end,
      window_ends_at = case when c.window_ends_at <= now() then excluded.window_ends_at else c.window_ends_at end
    returning c.hits, c.window_ends_at into v_sent;
  select window_ends_at into v_until from platform.rate_limit_counter where key = v_address and window_ends_at > now();
  if v_until is null and v_sent.hits >= core.max_unconfirmed_emails_per_day() then
    v_until := v_sent.window_ends_at;
  end if;
  if v_until is null then
    update platform.rate_limit_counter set hits = hits + 1 where key = v_school;
    insert into platform.rate_limit_counter (key, hits, window_ends_at)
      values (v_address, 1, now() + core.unconfirmed_address_pause())
      on conflict (key) do update set window_ends_at = excluded.window_ends_at;
  end if;
  return v_until;
end $$;
comment on function core.unconfirmed_email_wait is
  'Counts an email of a school to an address that nobody has confirmed, and returns null; or returns until when it has '
  'to wait, because the address has just got one or the school has sent as many as it may in a day. Anybody can type '
  'the address of a stranger into a form. Counts each school alone, so that no school delays another.';

-- p_attempt: the number of the attempt of the job. A retry was counted already.
create function core.email_prepare(
    p_tenant_id bigint, p_user_id bigint, p_kind text, p_session_id bigint default null, p_attempt integer default 1)
  returns json language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_tenant record;
  v_user record;
  v_login json;
  v_before text[];
  v_wait_until timestamptz;
begin
  select t.name, t.subdomain, t.status, t.time_zone into v_tenant from platform.tenant t where t.id = p_tenant_id;
  if p_tenant_id is not null and v_tenant.status is distinct from 'active' then
    return null;
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  select email, first_name, last_name, password_hash, email_verified_at into v_user
    from user_account where id = p_user_id and deleted_at is null and is_active for no key update;
  perform core.leave_tenant(v_before);
  if p_kind = 'new_device' then
    select json_build_object(
        'time', format('%s, %s (%s)', core.written_day(local.time::date), to_char(local.time, 'HH24:MI'), zone.name),
        'ip', s.ip,
        'user_agent', s.user_agent)
      into v_login
      from platform.session s
      cross join lateral (select coalesce(v_tenant.time_zone, 'UTC')) zone (name)
      cross join lateral (select s.created_at at time zone zone.name) local (time)
      where s.id = p_session_id and s.user_id = p_user_id and s.tenant_id is not distinct from p_tenant_id;
  end if;
  if v_user.email is null
     or (p_kind = 'new_device' and v_login is null)
     or (p_kind = 'email_verification' and v_user.email_verified_at is not null)
     or (p_kind = 'invitation' and v_user.password_hash is not null) then
    return null;
  end if;
  if p_attempt = 1 and p_tenant_id is not null and p_kind in ('invitation', 'email_verification')
      and v_user.email_verified_at is null then
    v_wait_until := core.unconfirmed_email_wait(p_tenant_id, v_user.email);
    if v_wait_until is not null then
      perform core.add_jobs('send_email', array[(
        jsonb_build_object('tenant_id', p_tenant_id, 'user_id', p_user_id, 'kind', p_kind),
        format('later:%s:%s', p_kind, p_user_id), v_wait_until)::core.new_job]);
      return null;
    end if;
  end if;
  return json_build_object(
    'email', v_user.email,
    'first_name', v_user.first_name,
    'last_name', v_user.last_name,
    'school', coalesce(v_tenant.name, 'School management'),
    'subdomain', v_tenant.subdomain,
    'login', v_login,
    'token', case when p_kind in ('password_reset', 'invitation', 'email_verification') then
      core.one_time_token_new(p_tenant_id, p_user_id, p_kind)
    end,
    'valid_hours', extract(epoch from core.one_time_token_lifetime(p_kind))::integer / 3600);
end $$;
comment on function core.email_prepare is
  'Prepares an email to a user: recipient, school, and for a kind with a link a new one-time token, for new_device the '
  'login of p_session_id. Null if there is no longer a reason to send it: the user is gone, is verified already, has a '
  'password already, or the session is gone. Also null if it has to wait (core.unconfirmed_email_wait): then another '
  'job is queued for later.';
