-- POST /api/platform/tenants/:id/impersonate: an operator logs in as an admin of a school.

select core.define_operation('platform_tenants_impersonate', p_access => 'platform',
  p_runs_on => 'school', p_errors => '{invalid_state,invalid_reference}');

create function api.platform_tenants_impersonate(p jsonb) returns json language sql as $$
  select core.impersonation_begin((p ->> 'id')::bigint, (p ->> 'user_id')::bigint, p ->> 'reason');
$$;
comment on function api.platform_tenants_impersonate is
  '{reason, user_id?} → {session_id, expires_at, impersonated_by, user, tenant}; the facade issues the token. Audited; '
  'notifies the admins of the school. Raises the errors of core.impersonation_begin.';
