-- Subscriptions: their current status, and the changes of a school and of operators.

create view core.current_subscription with (security_invoker = true) as
  select
    s.tenant_id, s.plan_id, s.started_at, s.current_period_end, s.grace_days, s.status as stored_status, derived.status,
    s.is_final and derived.status = 'cancelled' as is_final,
    case when derived.status = 'past_due' then derived.grace_ends_at end as grace_ends_at
  from platform.subscription s
  join platform.tenant t on t.id = s.tenant_id
  cross join lateral (
    select (s.current_period_end at time zone t.time_zone + make_interval(days => s.grace_days))
      at time zone t.time_zone as grace_ends_at
  ) grace
  cross join lateral (
    select
      grace.grace_ends_at,
      case
        when s.status = 'cancelled' or s.current_period_end > now() then s.status
        when grace.grace_ends_at > now() then 'past_due'
        else 'cancelled'
      end as status
  ) derived;
comment on view core.current_subscription is
  'The subscriptions with their current status, which follows from the dates: past_due from the end of the period on, '
  'cancelled from the end of the grace period on, at the same local time of the school. stored_status may be older, '
  'until core.subscription_lapse stores the current one. Read the status only here.';

create function core.subscription_period_end(p_time_zone text) returns timestamptz language sql stable
  return (now() at time zone p_time_zone + core.subscription_period()) at time zone p_time_zone;
comment on function core.subscription_period_end is
  'The end of a paid period that starts now: a month later, at the same local time of the school.';

create function core.subscription_lapse(p_tenant_id bigint) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_subscription record;
  v_from text;
  v_to text;
begin
  -- Every change of a subscription locks its school first, so that this sees the latest one.
  perform from platform.tenant where id = p_tenant_id for no key update;
  select stored_status, status into v_subscription from core.current_subscription where tenant_id = p_tenant_id;
  v_from := v_subscription.stored_status;
  while v_from <> v_subscription.status loop
    v_to := case v_from when 'past_due' then 'cancelled' else 'past_due' end;
    update platform.subscription set status = v_to where tenant_id = p_tenant_id;
    perform core.audit_insert(null, 'worker', null, null,
      case v_to when 'past_due' then 'subscription.lapse' else 'subscription.cancel' end,
      p_tenant_id, 'tenant', p_tenant_id,
      core.diff(jsonb_build_object('status', v_from), jsonb_build_object('status', v_to)), '{}');
    v_from := v_to;
  end loop;
end $$;
comment on function core.subscription_lapse is
  'Stores the current status of a subscription, with an audit entry for each status that it went through since. Locks '
  'the school. Only for operators and functions of core, because it accepts any school.';

create function core.price_currency() returns text
  language sql stable security definer set search_path = pg_catalog, pg_temp
  return coalesce((select currency from platform.setting), 'USD');
comment on function core.price_currency is 'The currency of the prices of plans, ISO 4217.';

create function core.subscription_status() returns json
  language sql stable security definer set search_path = pg_catalog, pg_temp
  return (
    select json_build_object(
      'status', s.status,
      'plan', json_build_object(
        'id', p.id,
        'name', p.name,
        'price_monthly', p.price_monthly,
        'currency', core.price_currency(),
        'currency_decimals', core.currency_decimals(core.price_currency()),
        'features', p.features),
      'started_at', s.started_at,
      'current_period_end', s.current_period_end,
      'grace_ends_at', s.grace_ends_at,
      'is_final', s.is_final,
      'trial_ends_at', t.trial_ends_at,
      'usage', json_build_object(
        'students', json_build_object('used', u.students, 'limit', p.max_students),
        'teachers', json_build_object('used', u.teachers, 'limit', p.max_teachers)))
    from platform.tenant t
    join platform.plan p on p.id = t.plan_id
    join core.current_subscription s on s.tenant_id = t.id
    join platform.tenant_usage u on u.tenant_id = t.id
    where t.id = core.tenant_id()
  );
comment on function core.subscription_status is 'The subscription of this school with its plan and usage.';

create function core.subscription_plans() returns json
  language sql stable security definer set search_path = pg_catalog, pg_temp
  return (
    select json_agg(
      json_build_object(
        'id', p.id,
        'name', p.name,
        'price_monthly', p.price_monthly,
        'currency', core.price_currency(),
        'currency_decimals', core.currency_decimals(core.price_currency()),
        'max_students', p.max_students,
        'max_teachers', p.max_teachers,
        'features', p.features,
        'is_current', p.id = t.plan_id,
        'is_available', p.is_public
          and s.is_final is not true
          and (p.id <> t.plan_id or s.status is distinct from 'active')
          and u.students <= p.max_students and u.teachers <= p.max_teachers)
      order by p.price_monthly, p.id)
    from platform.tenant t
    join platform.tenant_usage u on u.tenant_id = t.id
    left join core.current_subscription s on s.tenant_id = t.id
    join platform.plan p on p.is_public or p.id = t.plan_id
    where t.id = core.tenant_id()
  );
comment on function core.subscription_plans is
  'The public plans and the current one by price, with flags for the current plan and for those that the school can '
  'choose.';

create function core.subscription_upgrade(p_plan_id bigint) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_plan record;
  v_before jsonb;
begin
  -- Lock order as in platform_tenants_update: the school, then its usage.
  perform core.subscription_lapse(core.tenant_id());
  v_before := core.subscription_status();
  select id, name, is_public into v_plan
    from platform.plan
    where id = p_plan_id and (is_public or id = (v_before #>> '{plan,id}')::bigint);
  if (v_before ->> 'is_final')::boolean then
    perform core.fail('conflict', 'The subscription has ended for good. Ask the operator of the service.');
  elsif v_plan.id is null then
    perform core.refuse_field('invalid_reference', 'plan_id', 'This plan does not exist.');
  elsif v_plan.id = (v_before #>> '{plan,id}')::bigint and v_before ->> 'status' = 'active' then
    perform core.refuse_field('conflict', 'plan_id', format('The school already has the plan %s.', v_plan.name));
  elsif not v_plan.is_public then
    perform core.refuse_field('conflict', 'plan_id',
      format('Only the operator of the service can renew the plan %s.', v_plan.name));
  end if;
  perform core.require_plan_fits(core.tenant_id(), p_plan_id);
  update platform.tenant set plan_id = p_plan_id where id = core.tenant_id();
  update platform.subscription
    set
      plan_id = p_plan_id,
      -- A period that is paid for stays: otherwise a school could go on for free by switching back and forth.
      started_at = case when status = 'active' then started_at else now() end,
      current_period_end = case when status = 'active' then current_period_end
        else core.subscription_period_end(core.time_zone()) end
    where tenant_id = core.tenant_id();
  update platform.subscription set status = 'active'
    where tenant_id = core.tenant_id() and status <> 'active';
  perform core.audit('subscription.upgrade', 'tenant', core.tenant_id(), core.tenant_id(),
    core.diff(v_before - 'usage', core.subscription_status()::jsonb - 'usage'));
end $$;
comment on function core.subscription_upgrade is
  'Changes the plan of this school. An active subscription keeps its period; any other becomes active for a month. '
  'Raises invalid_reference for an unknown plan and one that is not public; conflict for the current one of an active '
  'subscription, one whose limits the school exceeds, and a subscription that was cancelled for good. Audited.';
