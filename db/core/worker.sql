-- What background jobs need of the database. Security definer with pinned search_path: the worker's role has no other way in.

-- Readies one e-mail: who gets it, from which school, with a fresh one-time token. Answers null when there is nothing to
-- send any more (the user is gone, was verified, or has a password already).
create function core.email_prepare(p_tenant_id bigint, p_user_id bigint, p_kind text) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_token text := rtrim(translate(replace(encode(public.gen_random_bytes(32), 'base64'), E'\n', ''), '+/', '-_'), '=');
  v_hours integer := case p_kind when 'password_reset' then 1 when 'invitation' then 168 else 24 end;
  v_tenant record;
  v_user record;
  v_before text[];
begin
  select t.name, t.subdomain, t.status into v_tenant from platform.tenant t where t.id = p_tenant_id;
  if p_tenant_id is not null and v_tenant.status is distinct from 'active' then
    return null;
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  execute format('select email, first_name, last_name, password_hash, email_verified_at from %I.user_account where id = $1 and deleted_at is null and is_active for no key update',
      case when p_tenant_id is null then 'platform' else 'tenant_' || p_tenant_id end)
    into v_user using p_user_id;
  perform core.leave_tenant(v_before);
  if v_user.email is null
     or (p_kind = 'email_verification' and v_user.email_verified_at is not null)
     or (p_kind = 'invitation' and v_user.password_hash is not null) then
    return null;
  end if;
  insert into platform.one_time_token (hash, tenant_id, user_id, purpose, expires_at)
    values (sha256(convert_to(v_token, 'UTF8')), p_tenant_id, p_user_id, p_kind, now() + make_interval(hours => v_hours));
  return json_build_object('email', v_user.email, 'first_name', v_user.first_name, 'last_name', v_user.last_name,
    'school', coalesce(v_tenant.name, 'School management'), 'subdomain', v_tenant.subdomain, 'token', v_token, 'valid_hours', v_hours);
end $$;
comment on function core.email_prepare is 'What an e-mail needs: recipient, school, a fresh one-time token; null when it is no longer wanted.';

-- Removes what has run out of the shared tables: sessions, tokens, throttles, answers to idempotency keys. Answers the counts.
create function core.clean_up() returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_tokens bigint;
  v_sessions bigint;
  v_throttles bigint;
begin
  delete from platform.one_time_token where expires_at < now() - interval '1 day';
  get diagnostics v_tokens = row_count;
  delete from platform.session where expires_at < now() or revoked_at < now() - interval '30 days';
  get diagnostics v_sessions = row_count;
  delete from platform.refresh_token where expires_at < now();
  delete from platform.login_throttle where window_ends_at < now();
  get diagnostics v_throttles = row_count;
  delete from platform.idempotency_key where created_at < now() - interval '24 hours';
  return json_build_object('sessions', v_sessions, 'tokens', v_tokens, 'throttles', v_throttles);
end $$;
comment on function core.clean_up is 'Removes expired sessions, tokens, throttles and answers to idempotency keys of operators; answers the counts.';

-- The schools that are there, for jobs that visit each in a transaction of its own.
create function core.schools() returns setof bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp
  begin atomic
    select id from platform.tenant where schema_version > 0 and status <> 'deleted' order by id;
  end;
comment on function core.schools is 'The schools that jobs visit.';

-- Removes what has run out in one school: answers to idempotency keys, what became of messages 90 days ago, notifications of a year ago.
create function core.clean_up_school(p_tenant_id bigint) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[] := core.enter_tenant(p_tenant_id);
begin
  execute format('delete from %I.idempotency_key where created_at < now() - interval ''24 hours''', 'tenant_' || p_tenant_id);
  execute format('delete from %I.notification_delivery where created_at < now() - interval ''90 days''', 'tenant_' || p_tenant_id);
  execute format('delete from %I.notification where created_at < now() - interval ''1 year''', 'tenant_' || p_tenant_id);
  perform core.leave_tenant(v_before);
end $$;
comment on function core.clean_up_school is 'Removes expired answers to idempotency keys, old deliveries and notifications of one school.';

-- The schools whose trial ends within a week, for notify_trial_ending.
create function core.trials_ending() returns setof bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp
  begin atomic
    select t.id from platform.tenant t join platform.subscription s on s.tenant_id = t.id
    where t.status = 'active' and t.schema_version > 0 and s.status = 'trialing' and t.trial_ends_at between now() and now() + interval '8 days' order by t.id;
  end;
comment on function core.trials_ending is 'The schools whose trial ends within a week.';

-- Tells the admins of a school that its trial ends, from seven in the morning there: once when 7 days are left, once with 3, once with 1; a worker
-- that was away for a day tells on the next. Answers whether it did.
create function core.notify_trial_ending(p_tenant_id bigint) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_trial record;
  v_before text[];
  v_is_new boolean := false;
begin
  select ends_on - today as days_left, ends_on, local::time as hour, plan into v_trial
    from (select (t.trial_ends_at at time zone t.time_zone)::date as ends_on, (now() at time zone t.time_zone)::date as today, now() at time zone t.time_zone as local, p.name as plan
          from platform.tenant t join platform.plan p on p.id = t.plan_id where t.id = p_tenant_id and t.id in (select core.trials_ending())) trial;
  if v_trial.days_left <= 7 and v_trial.hour >= '07:00' then
    v_before := core.enter_tenant(p_tenant_id);
    perform set_config('search_path', format('tenant_%s, public, pg_temp', p_tenant_id), true);
    -- A trial that is prolonged has another end, of which they are told anew.
    insert into daily_run (task, run_on)
      values ('trial.ending:' || case when v_trial.days_left <= 1 then 1 when v_trial.days_left <= 3 then 3 else 7 end, v_trial.ends_on)
      on conflict do nothing;
    v_is_new := found;
    if v_is_new then
      perform core.notify('trial.ending', (
        select jsonb_agg(jsonb_build_object('user_id', ur.user_id, 'variables', jsonb_build_object('plan_name', v_trial.plan, 'ends_on', api.written_day(v_trial.ends_on),
          'in_days', case v_trial.days_left when 0 then 'today' when 1 then 'tomorrow' else format('in %s days', v_trial.days_left) end)))
        from user_role ur join role r on r.id = ur.role_id and r.is_system and r.name = 'admin'));
    end if;
    perform core.leave_tenant(v_before);
  end if;
  return v_is_new;
end $$;
comment on function core.notify_trial_ending is 'Tells the admins of a school, three times at most, that its trial ends.';

-- Readies the reminder of an invoice: to whom, from which school, the document. Answers null when there is nothing to remind of any more
-- (it was paid or voided, the address is gone, the school closed).
create function core.invoice_reminder_prepare(p_tenant_id bigint, p_invoice_id bigint, p_sent_on date) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_tenant record;
  v_before text[];
  v_time_zone text := current_setting('app.time_zone', true);
  v_recipient json;
  v_answer json;
begin
  select t.name, t.status, t.time_zone into v_tenant from platform.tenant t where t.id = p_tenant_id;
  if v_tenant.status is distinct from 'active' then
    return null;
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  perform set_config('search_path', format('tenant_%s, public, pg_temp', p_tenant_id), true), set_config('app.time_zone', v_tenant.time_zone, true);
  if exists (select from invoice where id = p_invoice_id and status not in ('draft', 'paid', 'void')) then
    v_recipient := api.invoice_recipient(p_invoice_id);
  end if;
  if v_recipient is not null then
    update invoice_reminder set sent_to = v_recipient ->> 'email' where invoice_id = p_invoice_id and sent_on = p_sent_on;
    v_answer := json_build_object('school', v_tenant.name, 'recipient', v_recipient, 'document', api.invoice_document(p_invoice_id, 'invoice'));
  end if;
  perform core.leave_tenant(v_before), set_config('app.time_zone', coalesce(v_time_zone, ''), true);
  return v_answer;
end $$;
comment on function core.invoice_reminder_prepare is 'What the reminder of an invoice needs: recipient, school, the document; null when it is no longer wanted.';
