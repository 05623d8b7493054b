-- The job `send_due_notices` also ends subscriptions and sends notices of it. The job `send_operator_notice` emails
-- them.

select core.define_job('send_operator_notice', '{operator_notice_prepare}', p_priority => 5);

create function core.ending_subscriptions() returns table (tenant_id bigint) language sql stable as $$
  select s.tenant_id
  from core.schools_with('{}') school
  join core.current_subscription s on s.tenant_id = school.id
  where s.stored_status = 'past_due'
    or s.current_period_end < now() + interval '8 days'
      and (s.stored_status <> 'cancelled'
        or s.current_period_end > now() - make_interval(days => s.grace_days + 30))
$$;
comment on function core.ending_subscriptions is
  'The schools whose subscription ends within eight days, is past due, or was cancelled within the last 30 days: those '
  'that may need a notice. Postgres inlines it, so that a condition on the id uses the index.';

create function core.schools_with_subscription_ending() returns setof bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp
  begin atomic
    select tenant_id from core.ending_subscriptions() order by tenant_id;
  end;
comment on function core.schools_with_subscription_ending is 'The schools that core.subscription_daily runs for.';

create function core.subscription_notice(p_tenant_id bigint, out event text, out stage integer, out ended_on date,
    out variables jsonb, out school text, out operator_text text)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select
    event,
    case when event = 'subscription.cancelled' then 0 when days_left <= 1 then 1 when days_left <= 3 then 3 else 7 end,
    ends_on,
    jsonb_strip_nulls(jsonb_build_object(
      'plan_name', plan,
      'in_days', in_days,
      'ends_on', case when event like '%.ending' then core.written_day(ends_on) end,
      'ended_on', case when event = 'subscription.past_due' then core.written_day(ends_on) end,
      'cancelled_on', core.written_day(cancelled_on))),
    name,
    case event
      when 'trial.ending' then format('The trial ends %s, on %s.', in_days, core.written_day(ends_on))
      when 'subscription.ending' then format('The subscription ends %s, on %s.', in_days, core.written_day(ends_on))
      when 'subscription.past_due' then format('The subscription ended on %s. It will be cancelled %s, on %s.',
        core.written_day(ends_on), in_days, core.written_day(cancelled_on))
      else 'The subscription is cancelled.'
    end
  from (
    select
      case s.status
        when 'trialing' then 'trial.ending'
        when 'active' then 'subscription.ending'
        else 'subscription.' || s.status
      end as event,
      t.name, p.name as plan,
      (s.current_period_end at time zone t.time_zone)::date as ends_on,
      (s.grace_ends_at at time zone t.time_zone)::date as cancelled_on,
      now() at time zone t.time_zone as local
    from core.current_subscription s
    join platform.tenant t on t.id = s.tenant_id
    join platform.plan p on p.id = t.plan_id
    where s.tenant_id = p_tenant_id
  ) subscription
  cross join lateral (select coalesce(cancelled_on, ends_on) - local::date as days_left) next_change
  cross join lateral (
    select case
      when event = 'subscription.cancelled' then null
      when days_left <= 0 then 'today'
      when days_left = 1 then 'tomorrow'
      else format('in %s days', days_left)
    end as in_days
  ) words
  -- Counted in calendar days of the school.
  where local::time >= '07:00' and (event not like '%.ending' or days_left <= 7)
$$;
comment on function core.subscription_notice is
  'The notice that is due at a school about its subscription: from 7:00 local time, 7, 3 and 1 days before a trial or '
  'a period ends; when it has ended, and 3 days and 1 day before the cancellation; and when it is cancelled. Nulls if '
  'none is due. Only for functions of core, because it accepts any school.';

create function core.notify_operators(p_tenant_id bigint, p_subject text, p_text text) returns void
  language sql as $$
  select core.add_jobs('send_operator_notice', array(
    select (jsonb_build_object(
        'user_id', id,
        'tenant_id', p_tenant_id,
        'subject', p_subject,
        'text', p_text), null, null
      )::core.new_job
    from platform.user_account
    where role = 'admin' and is_active and deleted_at is null
    order by id));
$$;
comment on function core.notify_operators is
  'Queues an email to each active admin of the platform. p_tenant_id: the school that it is about, or null.';

create function core.subscription_daily(p_tenant_id bigint) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_notice record;
  v_before text[];
  v_is_new boolean;
begin
  if not exists (select from core.ending_subscriptions() where tenant_id = p_tenant_id) then
    return false;
  end if;
  perform core.subscription_lapse(p_tenant_id);
  select * into v_notice from core.subscription_notice(p_tenant_id);
  if v_notice.event is null then
    return false;
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  -- The key contains the end of the period: after a renewal the notices are sent again.
  insert into daily_run (task, run_on)
    values (v_notice.event || ':' || v_notice.stage, v_notice.ended_on)
    on conflict do nothing;
  v_is_new := found;
  if v_is_new then
    perform core.notify_operators(p_tenant_id, v_notice.school || ': ' || v_notice.operator_text,
      format('%s (school %s). %s', v_notice.school, p_tenant_id, v_notice.operator_text));
    perform core.notify(v_notice.event, v_notice.variables);
  end if;
  perform core.leave_tenant(v_before);
  return v_is_new;
end $$;
comment on function core.subscription_daily is
  'Stores the current status of the subscription of a school, and sends the notice that is due, once, to the admins of '
  'the school and by email to the operators. If the worker was down, it sends the notice of the current status only. '
  'Returns whether it sent one.';

create function core.operator_notice_prepare(p_user_id bigint) returns json
  language sql stable security definer set search_path = pg_catalog, pg_temp
  return (
    select json_build_object('email', email, 'name', core.full_name(first_name, last_name))
    from platform.user_account
    where id = p_user_id and role = 'admin' and is_active and deleted_at is null
  );
comment on function core.operator_notice_prepare is
  'The recipient of an email to an operator; null for one who can no longer log in.';
