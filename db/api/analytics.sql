-- Authorization of analysts for the GraphQL API of src/analytics/, which can use a replica. This runs in the main
-- database.

select core.define_operation('analytics_admit', p_access => 'analyst', p_needs_session => false);

create function api.analytics_admit(p jsonb) returns json language sql stable as $$
  select json_build_object('tenant_ids', tenant_ids) from core.operator_access();
$$;
comment on function api.analytics_admit is
  'The schools that an operator may see in analytics: {tenant_ids}, null for all.';
