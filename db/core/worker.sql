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
  select email, first_name, last_name, password_hash, email_verified_at into v_user
    from user_account where id = p_user_id and deleted_at is null and is_active for no key update;
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

-- The schools that jobs may visit, each in a transaction of its own: those whose tables are of the version of these functions, by default the
-- active ones alone, with these features.
create function core.schools_with(p_features text[], p_status text[] default '{active}') returns table (id bigint, time_zone text) language sql stable as $$
  select t.id, t.time_zone from platform.tenant t join platform.plan p on p.id = t.plan_id
  where t.status = any (p_status) and t.schema_version = (select tenant_version from platform.installation)
    and p_features <@ core.enabled_features(p.features, t.feature_flags);
$$;
comment on function core.schools_with is 'The schools that are migrated and have these features.';

-- The schools that are there, for clean_up_school.
create function core.schools() returns setof bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp
  begin atomic
    select id from core.schools_with('{}', '{active,suspended}') order by id;
  end;
comment on function core.schools is 'The schools that jobs clean up.';

-- Removes what has run out in one school: answers to idempotency keys, what became of messages 90 days ago, notifications of a year ago.
create function core.clean_up_school(p_tenant_id bigint) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[] := core.enter_tenant(p_tenant_id);
begin
  delete from idempotency_key where created_at < now() - interval '24 hours';
  delete from notification_delivery where created_at < now() - interval '90 days';
  delete from notification where created_at < now() - interval '1 year';
  perform core.leave_tenant(v_before);
end $$;
comment on function core.clean_up_school is 'Removes expired answers to idempotency keys, old deliveries and notifications of one school.';

-- The schools whose trial ends within a week, for notify_trial_ending.
create function core.trials_ending() returns setof bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp
  begin atomic
    select t.id from core.schools_with('{}') school join platform.tenant t on t.id = school.id join platform.subscription s on s.tenant_id = t.id
    where s.status = 'trialing' and t.trial_ends_at between now() and now() + interval '8 days' order by t.id;
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

-- The schools that have buses and notifications, where it is past seven in the morning, for notify_papers_expiring.
create function core.papers_due() returns setof bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp
  begin atomic
    select id from core.schools_with('{transport,notifications}') where (now() at time zone time_zone)::time >= '07:00' order by id;
  end;
comment on function core.papers_due is 'The schools whose managers of transport hear of papers that expire.';

-- Tells those who run transport of papers that expire, each step of each paper once (api.transport_expiring_notices). Answers of how many.
create function core.notify_papers_expiring(p_tenant_id bigint) returns integer
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[];
  v_told jsonb[];
begin
  if not exists (select from core.papers_due() id where id = p_tenant_id) then
    return 0;
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  with notice as materialized (select * from api.transport_expiring_notices()),
  told as (insert into daily_run (task, run_on) select task, run_on from notice on conflict do nothing returning task, run_on)
  select array_agg(variables order by run_on, task) into v_told from notice join told using (task, run_on);
  perform core.notify('transport.expiring', (
    select jsonb_agg(jsonb_build_object('user_id', m.id, 'variables', v)) from unnest(v_told) v cross join api.transport_managers() m (id)));
  perform core.leave_tenant(v_before);
  return coalesce(cardinality(v_told), 0);
end $$;
comment on function core.notify_papers_expiring is 'Tells those who run transport of papers that expire; answers of how many.';

-- Readies the reminder of an invoice: to whom, from which school, the document. Answers null when there is nothing to remind of any more
-- (it was paid or voided, the address is gone, the school closed).
create function core.invoice_reminder_prepare(p_tenant_id bigint, p_invoice_id bigint, p_sent_on date) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_tenant record;
  v_before text[];
  v_recipient json;
  v_answer json;
begin
  select t.name, t.status into v_tenant from platform.tenant t where t.id = p_tenant_id;
  if v_tenant.status is distinct from 'active' then
    return null;
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  if exists (select from invoice where id = p_invoice_id and api.is_open(status)) then
    v_recipient := api.invoice_recipient(p_invoice_id);
  end if;
  if v_recipient is not null then
    update invoice_reminder set sent_to = v_recipient ->> 'email' where invoice_id = p_invoice_id and sent_on = p_sent_on;
    v_answer := json_build_object('school', v_tenant.name, 'recipient', v_recipient, 'document', api.invoice_document(p_invoice_id, 'invoice'));
  end if;
  perform core.leave_tenant(v_before);
  return v_answer;
end $$;
comment on function core.invoice_reminder_prepare is 'What the reminder of an invoice needs: recipient, school, the document; null when it is no longer wanted.';

-- The daily work of schools: what has passed its due date becomes overdue, and overdue invoices are reminded of.

-- The day whose work is to be done at a moment: the one that it is at the school, once it is six in the morning there; null before. However
-- clocks change, each day has its moment.
create function core.daily_day(p_time_zone text, p_at timestamptz) returns date language sql stable
  return (select case when local.at::time >= '06:00' then local.at::date end from (select p_at at time zone p_time_zone) local (at));
comment on function core.daily_day is 'The day whose daily work is to be done at a moment; null before six in the morning.';

-- Queues a job daily_school for each school whose work of today is to be done and was not; answers how many. A job that waits stays
-- one; where a worker died at it, the queue would hold it for hours, and a new one takes its place.
create function core.daily_queue(p_at timestamptz default now()) returns integer
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_school record;
  v_before text[];
  v_is_done boolean;
  v_ids bigint[] := '{}';
  v_days date[] := '{}';
begin
  for v_school in
    select s.id, d.day from core.schools_with('{fees_management}') s, lateral (select core.daily_day(s.time_zone, p_at) as day) d where d.day is not null order by s.id
  loop
    -- One look at a primary key; row security wants each school to be entered.
    v_before := core.enter_tenant(v_school.id);
    v_is_done := exists (select from daily_run where task = 'fees' and run_on = v_school.day);
    perform core.leave_tenant(v_before);
    if not v_is_done then
      v_ids := v_ids || v_school.id;
      v_days := v_days || v_school.day;
    end if;
  end loop;
  if v_ids <> '{}' then
    perform graphile_worker.add_jobs(array(
      select ('daily_school', json_build_object('tenant_id', id, 'day', day), null, null, 5, format('t%s:daily_school:%s', id, day), 5, null)::graphile_worker.job_spec
      from unnest(v_ids, v_days) s (id, day)));
  end if;
  return cardinality(v_ids);
end $$;
comment on function core.daily_queue is 'Queues the daily work of each school for which it is time and that has not had it.';

-- One step of a school's daily work of a day, in a transaction of its own: marks as overdue some that are (p_limit at most of each kind); once
-- none is left, reminds of some of the invoices after the id p_after; once none is left, writes down that the day is done. Answers where the next step
-- goes on, null when there is none: the day is done, or the school is closed, suspended, being migrated, lost the feature.
-- An overdue invoice is reminded of on the day after its due date, then when 7 days have passed since the last reminder, whoever asked for
-- that, up to 60 days after the due date: missed days are caught up, years are not. The reminder is written and its job queued in one, and the
-- table has one for an invoice and day, so that steps may be done again, or by two at once. Nobody waits for e-mails behind these: they come last.
-- Students are told in the app, as when somebody asks for the reminder.
create function core.daily_step(p_tenant_id bigint, p_day date, p_after bigint, p_limit integer, out next bigint, out overdue integer, out reminded integer)
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[];
  v_fees integer;
  v_invoices integer;
  v_seen integer := 0;
  v_added bigint[];
begin
  overdue := 0;
  reminded := 0;
  if not exists (select from core.schools_with('{fees_management}') s where s.id = p_tenant_id) or not pg_try_advisory_xact_lock_shared(core.tenant_lock_key(p_tenant_id)) then
    return;
  end if;
  v_before := core.enter_tenant(p_tenant_id);

  -- The trigger `derive` makes the state, here as everywhere.
  with due as (select f.id from student_fee f where f.status in ('pending', 'partially_paid') and f.due_date < core.today() order by f.id limit p_limit for no key update)
  update student_fee f set status = 'overdue' from due where f.id = due.id;
  get diagnostics v_fees = row_count;
  with due as (select i.id from invoice i where i.status in ('sent', 'partially_paid') and i.due_date < core.today() order by i.id limit p_limit for no key update)
  update invoice i set status = 'overdue' from due where i.id = due.id;
  get diagnostics v_invoices = row_count;
  overdue := v_fees + v_invoices;

  if greatest(v_fees, v_invoices) = p_limit then
    next := p_after;
  else
    if coalesce((select s.invoice_reminders from school s), true) then
      with due as materialized (
        select i.id, api.invoice_recipient(i.id) ->> 'email' as email
        from invoice i
        where i.id > p_after and i.status = 'overdue' and i.due_date between p_day - 60 and p_day - 1
          and not exists (select from invoice_reminder r where r.invoice_id = i.id and r.sent_on > greatest(i.due_date, p_day - 7))
        order by i.id limit p_limit
      ), added as (
        insert into invoice_reminder (invoice_id, sent_on, sent_to) select id, p_day, email from due where email is not null
          on conflict (invoice_id, sent_on) do nothing returning invoice_id
      )
      select max(due.id), count(*), array_agg(added.invoice_id order by added.invoice_id) filter (where added.invoice_id is not null) into next, v_seen, v_added
        from due left join added on added.invoice_id = due.id;
      reminded := coalesce(cardinality(v_added), 0);
      if reminded > 0 then
        perform graphile_worker.add_jobs(array(
          select ('send_invoice_reminder', json_build_object('tenant_id', p_tenant_id, 'invoice_id', id, 'sent_on', p_day), null, null, 10,
            format('t%s:send_invoice_reminder:%s:%s', p_tenant_id, id, p_day), 10, null)::graphile_worker.job_spec
          from unnest(v_added) id));
        perform api.notify_invoice_reminders(v_added);
      end if;
    end if;
    if v_seen < p_limit then
      next := null;
      insert into daily_run (task, run_on) values ('fees', p_day) on conflict do nothing;
      delete from daily_run where task = 'fees' and run_on < p_day - 30;
    end if;
  end if;
  perform core.leave_tenant(v_before);
end $$;
comment on function core.daily_step is 'One step of the daily work of a school; answers where the next one goes on.';
