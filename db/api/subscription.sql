-- /api/subscription: the subscription of the school. Its tables are in the schema platform, so core accesses them.

select core.define_operation('subscription_status', p_permission => 'subscription.manage');
select core.define_operation('subscription_plans', p_permission => 'subscription.manage');
select core.define_operation('subscription_upgrade', p_permission => 'subscription.manage', p_idempotent => true,
  p_works_when_cancelled => true, p_errors => '{conflict,invalid_state,invalid_reference}');

create function api.subscription_status(p jsonb) returns json language sql stable as $$
  select core.subscription_status();
$$;
comment on function api.subscription_status is 'The subscription of the school with its plan and usage.';

create function api.subscription_plans(p jsonb) returns json language sql stable as $$
  select core.subscription_plans();
$$;
comment on function api.subscription_plans is 'The public plans and the current one by price.';

create function api.subscription_upgrade(p jsonb) returns json language plpgsql as $$
begin
  perform core.subscription_upgrade((p ->> 'plan_id')::bigint);
  return core.subscription_status();
end $$;
comment on function api.subscription_upgrade is
  '{plan_id}: changes the plan from now on and activates the subscription, as core.subscription_upgrade.';
