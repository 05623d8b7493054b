-- What the analysts' GraphQL view asks of the database of the schools, however far away its own is: src/analytics/.

select core.define_operation('analytics_admit', p_access => 'analyst');

-- Which schools the operator may see: {tenant_ids}, null for all.
create function api.analytics_admit(p jsonb) returns json language sql stable as $$
  select json_build_object('tenant_ids', case role when 'admin' then null else to_json(analyst_tenant_ids) end)
  from user_account where id = core.user_id();
$$;
comment on function api.analytics_admit is 'Which schools an operator may see in the analysts'' view; null for all.';
