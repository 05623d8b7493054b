-- The job `notify_daily`: notices about the end of a trial and about documents that expire.

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
          'ends_on', core.written_day(v_trial.ends_on),
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
