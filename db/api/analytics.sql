-- Authorization of analysts for the GraphQL API of src/analytics/, which can use a replica. This runs in the main
-- database.

select core.define_operation('analytics_admit', p_access => 'analyst');

create function api.analytics_admit(p jsonb) returns json language sql stable as $$
  select json_build_object('tenant_ids', case role when 'admin' then null else to_json(analyst_tenant_ids) end)
  from user_account where id = core.user_id();
$$;
comment on function api.analytics_admit is
  'The schools that an operator may see in analytics: {tenant_ids}, null for all.';
