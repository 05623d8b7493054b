-- /api/subscription: what the school pays for. All of it stands in the schema platform, which core reads and writes for it.

select core.define_operation('subscription_status', p_permission => 'subscription.manage');
select core.define_operation('subscription_plans', p_permission => 'subscription.manage');
select core.define_operation('subscription_upgrade', p_permission => 'subscription.manage', p_idempotent => true,
  p_errors => '{conflict,invalid_state,invalid_reference}');

-- The state of the subscription, its plan, and how much of the plan is used.
create function api.subscription_status(p jsonb) returns json language sql stable as $$
  select core.subscription_status();
$$;

-- The plans by price.
create function api.subscription_plans(p jsonb) returns json language sql stable as $$
  select core.subscription_plans();
$$;

-- Another plan from now on; invalid_reference when there is none such, conflict for the present one and for one that the
-- school has outgrown.
create function api.subscription_upgrade(p jsonb) returns json language plpgsql as $$
begin
  perform core.subscription_upgrade((p ->> 'plan_id')::bigint);
  return core.subscription_status();
end $$;
