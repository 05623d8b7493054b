-- The jobs `queue_daily_runs` and `daily_school`. The daily run of a school marks what has passed its due date as
-- overdue, and sends reminders of overdue invoices.

select core.define_job('queue_daily_runs', '{daily_queue}', p_former_names => '{daily}',
  p_schedule => '*/15 * * * * ?fill=15m&jobKey=queue_daily_runs&jobKeyMode=replace');
select core.define_job('daily_school', '{daily_step}', p_priority => 5, p_max_attempts => 5);

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
    perform core.add_jobs('daily_school', array(
      select (jsonb_build_object('tenant_id', id, 'day', day), day::text, null)::core.new_job
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
    p_day date, p_after bigint, p_limit integer, out next bigint, out reminded integer)
  language plpgsql as $$
declare
  v_due bigint[];
begin
  v_due := array(
    select i.id
    from invoice i
    where i.id > p_after and i.status = 'overdue' and i.due_date between p_day - 60 and p_day - 1
      and not exists (
        select from invoice_reminder r where r.invoice_id = i.id and r.sent_on > greatest(i.due_date, p_day - 7))
    order by i.id
    limit p_limit);
  next := case when cardinality(v_due) = p_limit then v_due[p_limit] end;
  reminded := api.invoices_remind(v_due, p_day);
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
  if not core.try_lock_schema(p_tenant_id)
      or not exists (select from core.schools_with('{fees_management}') s where s.id = p_tenant_id) then
    return;
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  select m.marked, m.has_more into overdue, v_has_more_overdue from core.mark_overdue(p_limit) m;
  if v_has_more_overdue then
    next := p_after;
  else
    if coalesce((select s.invoice_reminders from school s), true) then
      select r.next, r.reminded into next, reminded
        from core.remind_of_overdue_invoices(p_day, p_after, p_limit) r;
    end if;
    if next is null then
      insert into daily_run (task, run_on) values ('fees', p_day) on conflict do nothing;
      delete from daily_run where task = 'fees' and run_on < p_day - 30;
    end if;
  end if;
  perform core.queue_webhooks(), core.leave_tenant(v_before);
end $$;
comment on function core.daily_step is
  'One step, in a transaction of its own, of the daily run of a school: marks at most p_limit fees and invoices as '
  'overdue. When none is left, sends reminders of at most p_limit invoices with an id above p_after. When none of '
  'those is left, stores that the day is done. `next` is the p_after of the next step; null if there is none, because '
  'the day is done or because the school is closed, suspended, being migrated, or has lost the feature.';
