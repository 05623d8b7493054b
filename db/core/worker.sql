-- Database functions of background jobs. They are security definer with a pinned search_path, because the role of the
-- worker may not read the tables.

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
    values (
      sha256(convert_to(v_token, 'UTF8')), p_tenant_id, p_user_id, p_kind, now() + make_interval(hours => v_hours));
  return json_build_object(
    'email', v_user.email,
    'first_name', v_user.first_name,
    'last_name', v_user.last_name,
    'school', coalesce(v_tenant.name, 'School management'),
    'subdomain', v_tenant.subdomain,
    'token', v_token,
    'valid_hours', v_hours);
end $$;
comment on function core.email_prepare is
  'Prepares an email to a user: recipient, school and a new one-time token. Null if there is no longer a reason to '
  'send it: the user is gone, is verified already, or has a password already.';

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
comment on function core.clean_up is
  'Deletes expired rows of the shared tables: sessions, tokens, login throttles, and answers to idempotency keys of '
  'operators. Returns the counts.';

create function core.schools_with(p_features text[], p_status text[] default '{active}')
  returns table (id bigint, time_zone text) language sql stable as $$
  select t.id, t.time_zone
  from platform.tenant t
  join platform.plan p on p.id = t.plan_id
  where t.status = any (p_status)
    and t.schema_version = (select tenant_version from platform.installation)
    and p_features <@ core.enabled_features(p.features, t.feature_flags);
$$;
comment on function core.schools_with is
  'The schools that jobs may enter: of a status (active by default), with all of these features, and migrated to the '
  'schema version of the installed functions. Jobs enter each school in a transaction of its own.';

create function core.schools_to_clean_up() returns setof bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp
  begin atomic
    select id from core.schools_with('{}', '{active,suspended}') order by id;
  end;
comment on function core.schools_to_clean_up is 'The schools that core.clean_up_school runs for.';

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
comment on function core.clean_up_school is
  'Deletes expired rows of a school: answers to idempotency keys after 24 hours, deliveries after 90 days, '
  'notifications after a year.';

create function core.schools_with_trial_ending() returns setof bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp
  begin atomic
    select t.id
    from core.schools_with('{}') school
    join platform.tenant t on t.id = school.id
    join platform.subscription s on s.tenant_id = t.id
    where s.status = 'trialing' and t.trial_ends_at between now() and now() + interval '8 days'
    order by t.id;
  end;
comment on function core.schools_with_trial_ending is 'The schools whose trial ends within eight days.';

create function core.notify_trial_ending(p_tenant_id bigint) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_trial record;
  v_before text[];
  v_is_new boolean := false;
begin
  select ends_on - today as days_left, ends_on, local::time as hour, plan
    into v_trial
    from (
      select
        (t.trial_ends_at at time zone t.time_zone)::date as ends_on,
        (now() at time zone t.time_zone)::date as today,
        now() at time zone t.time_zone as local,
        p.name as plan
      from platform.tenant t
      join platform.plan p on p.id = t.plan_id
      where t.id = p_tenant_id and t.id in (select core.schools_with_trial_ending())
    ) trial;
  -- Counted in calendar days of the school, of which eight days may be seven.
  if v_trial.days_left <= 7 and v_trial.hour >= '07:00' then
    v_before := core.enter_tenant(p_tenant_id);
    -- The key contains the end of the trial: after an extension the admins are notified again.
    insert into daily_run (task, run_on)
      values (
        'trial.ending:' || case when v_trial.days_left <= 1 then 1 when v_trial.days_left <= 3 then 3 else 7 end,
        v_trial.ends_on)
      on conflict do nothing;
    v_is_new := found;
    if v_is_new then
      perform core.notify('trial.ending', (
        select jsonb_agg(jsonb_build_object('user_id', ur.user_id, 'variables', jsonb_build_object(
          'plan_name', v_trial.plan,
          'ends_on', api.written_day(v_trial.ends_on),
          'in_days', case v_trial.days_left
            when 0 then 'today'
            when 1 then 'tomorrow'
            else format('in %s days', v_trial.days_left)
          end)))
        from user_role ur
        join role r on r.id = ur.role_id and r.is_system and r.name = 'admin'));
    end if;
    perform core.leave_tenant(v_before);
  end if;
  return v_is_new;
end $$;
comment on function core.notify_trial_ending is
  'Notifies the admins of a school, from 7:00 local time, that its trial ends: once when 7 days are left, once with '
  '3, once with 1. If the worker was down that day, it does so on the next one. Returns whether it notified them.';

create function core.schools_due_for_document_check() returns setof bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp
  begin atomic
    select id
    from core.schools_with('{transport,notifications}')
    where (now() at time zone time_zone)::time >= '07:00'
    order by id;
  end;
comment on function core.schools_due_for_document_check is
  'The schools with transport and notifications where it is 7:00 or later, for core.notify_documents_expiring.';

create function core.notify_documents_expiring(p_tenant_id bigint) returns integer
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[];
  v_new jsonb[];
begin
  if not exists (select from core.schools_due_for_document_check() id where id = p_tenant_id) then
    return 0;
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  with notice as materialized (
    select * from api.transport_expiring_notices()
  ), recorded as (
    insert into daily_run (task, run_on) select task, run_on from notice
      on conflict do nothing
      returning task, run_on
  )
  select array_agg(variables order by run_on, task)
    into v_new
    from notice
    join recorded using (task, run_on);
  perform core.notify('transport.expiring', (
    select jsonb_agg(jsonb_build_object('user_id', m.id, 'variables', v))
    from unnest(v_new) v
    cross join api.transport_managers() m (id)));
  perform core.leave_tenant(v_before);
  return coalesce(cardinality(v_new), 0);
end $$;
comment on function core.notify_documents_expiring is
  'Notifies admins and transport managers of expiring documents of buses and drivers, once per document and reminder '
  '(api.transport_expiring_notices). Returns the number of new reminders.';

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
    update invoice_reminder
      set sent_to = v_recipient ->> 'email'
      where invoice_id = p_invoice_id and sent_on = p_sent_on;
    v_answer := json_build_object(
      'school', v_tenant.name,
      'recipient', v_recipient,
      'document', api.invoice_document(p_invoice_id, 'invoice'));
  end if;
  perform core.leave_tenant(v_before);
  return v_answer;
end $$;
comment on function core.invoice_reminder_prepare is
  'Prepares the reminder of an invoice: recipient, school and document. Null if there is no longer a reason to send '
  'it: the invoice is paid or voided, the address is gone, the school is closed.';

-- The daily run of a school marks what has passed its due date as overdue, and sends reminders of overdue invoices.

create function core.daily_run_date(p_time_zone text, p_at timestamptz) returns date language sql stable
  return (
    select case when local.at::time >= '06:00' then local.at::date end
    from (select p_at at time zone p_time_zone) local (at));
comment on function core.daily_run_date is
  'The date whose daily run is due at a moment: the date at the school from 6:00 local time, null before. Every date '
  'has such a moment, also when daylight saving time begins or ends.';

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
    select s.id, d.day
    from core.schools_with('{fees_management}') s, lateral (select core.daily_run_date(s.time_zone, p_at) as day) d
    where d.day is not null
    order by s.id
  loop
    -- A lookup of one primary key; because of row security each school must be entered for it.
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
      select (
        'daily_school',
        json_build_object('tenant_id', id, 'day', day),
        null, null, 5,
        format('t%s:daily_school:%s', id, day),
        5, null
      )::graphile_worker.job_spec
      from unnest(v_ids, v_days) s (id, day)));
  end if;
  return cardinality(v_ids);
end $$;
comment on function core.daily_queue is
  'Queues a job `daily_school` for each school whose daily run is due and not done; returns how many. A job that is '
  'still waiting is updated, not doubled; one whose worker has crashed gets a replacement, because the queue would '
  'keep it locked for hours.';

create function core.mark_overdue(p_limit integer, out marked integer, out has_more boolean) language plpgsql as $$
declare
  v_fees integer;
  v_invoices integer;
begin
  -- The trigger `derive` computes the status, as with any other change.
  with due as (
    select f.id from student_fee f
    where f.status in ('pending', 'partially_paid') and f.due_date < core.today()
    order by f.id limit p_limit
    for no key update
  )
  update student_fee f set status = 'overdue' from due where f.id = due.id;
  get diagnostics v_fees = row_count;
  with due as (
    select i.id from invoice i
    where i.status in ('sent', 'partially_paid') and i.due_date < core.today()
    order by i.id limit p_limit
    for no key update
  )
  update invoice i set status = 'overdue' from due where i.id = due.id;
  get diagnostics v_invoices = row_count;
  marked := v_fees + v_invoices;
  has_more := greatest(v_fees, v_invoices) = p_limit;
end $$;
comment on function core.mark_overdue is
  'Marks at most p_limit fees and p_limit invoices of the current school as overdue. has_more is true if the limit '
  'was reached.';

create function core.remind_of_overdue_invoices(
    p_tenant_id bigint, p_day date, p_after bigint, p_limit integer, out next bigint, out reminded integer)
  language plpgsql as $$
declare
  v_checked integer;
  v_added bigint[];
begin
  with due as materialized (
    select i.id, api.invoice_recipient(i.id) ->> 'email' as email
    from invoice i
    where i.id > p_after and i.status = 'overdue' and i.due_date between p_day - 60 and p_day - 1
      and not exists (
        select from invoice_reminder r where r.invoice_id = i.id and r.sent_on > greatest(i.due_date, p_day - 7))
    order by i.id
    limit p_limit
  ), added as (
    insert into invoice_reminder (invoice_id, sent_on, sent_to)
      select id, p_day, email from due where email is not null
      on conflict (invoice_id, sent_on) do nothing
      returning invoice_id
  )
  select
      max(due.id),
      count(*),
      array_agg(added.invoice_id order by added.invoice_id) filter (where added.invoice_id is not null)
    into next, v_checked, v_added
    from due
    left join added on added.invoice_id = due.id;
  if v_checked < p_limit then
    next := null;
  end if;
  reminded := coalesce(cardinality(v_added), 0);
  if reminded > 0 then
    -- Priority 10: other emails, such as password resets, are not held up by hundreds of reminders.
    perform graphile_worker.add_jobs(array(
      select (
        'send_invoice_reminder',
        json_build_object('tenant_id', p_tenant_id, 'invoice_id', id, 'sent_on', p_day),
        null, null, 10,
        format('t%s:send_invoice_reminder:%s:%s', p_tenant_id, id, p_day),
        10, null
      )::graphile_worker.job_spec
      from unnest(v_added) id));
    perform api.notify_invoice_reminders(v_added);
  end if;
end $$;
comment on function core.remind_of_overdue_invoices is
  'Queues reminders for at most p_limit overdue invoices of the current school with an id above p_after, and notifies '
  'the students in the app. `next` is the p_after of the next call, null if there are no more. An invoice is due for '
  'a reminder on the day after its due date, and then 7 days after its last reminder, automatic or manual, until 60 '
  'days after its due date: days on which the worker was down are made up for, older invoices are not. A reminder is '
  'stored in the transaction that queues its job, once per invoice and day, so that a step can be repeated and two '
  'workers cannot send it twice.';

create function core.daily_step(
    p_tenant_id bigint, p_day date, p_after bigint, p_limit integer,
    out next bigint, out overdue integer, out reminded integer)
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[];
  v_has_more_overdue boolean;
begin
  overdue := 0;
  reminded := 0;
  if not exists (select from core.schools_with('{fees_management}') s where s.id = p_tenant_id)
      or not pg_try_advisory_xact_lock_shared(core.tenant_lock_key(p_tenant_id)) then
    return;
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  select m.marked, m.has_more into overdue, v_has_more_overdue from core.mark_overdue(p_limit) m;
  if v_has_more_overdue then
    next := p_after;
  else
    if coalesce((select s.invoice_reminders from school s), true) then
      select r.next, r.reminded into next, reminded
        from core.remind_of_overdue_invoices(p_tenant_id, p_day, p_after, p_limit) r;
    end if;
    if next is null then
      insert into daily_run (task, run_on) values ('fees', p_day) on conflict do nothing;
      delete from daily_run where task = 'fees' and run_on < p_day - 30;
    end if;
  end if;
  perform core.leave_tenant(v_before);
end $$;
comment on function core.daily_step is
  'One step, in a transaction of its own, of the daily run of a school: marks at most p_limit fees and invoices as '
  'overdue. When none is left, sends reminders of at most p_limit invoices with an id above p_after. When none of '
  'those is left, stores that the day is done. `next` is the p_after of the next step; null if there is none, because '
  'the day is done or because the school is closed, suspended, being migrated, or has lost the feature.';
