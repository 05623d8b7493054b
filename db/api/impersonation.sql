-- POST /api/platform/tenants/:id/impersonate: an operator logs in for an admin of a school.

insert into core.operation (name, access, writes) values
  ('platform_tenants_impersonate', 'platform', true);

-- {reason, user_id?} → {session_id, expires_at, impersonated_by, user, tenant}; the facade makes the token. Raises
-- what core.impersonation_begin raises. Audited; tells the admins of the school.
create function api.platform_tenants_impersonate(p jsonb) returns json language sql as $$
  select core.impersonation_begin((p ->> 'id')::bigint, (p ->> 'user_id')::bigint, p ->> 'reason');
$$;
