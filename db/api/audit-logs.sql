-- /api/platform/audit-logs/…: the actions of the audit log, and its export. The list is in platform.sql.

select core.define_operation('platform_audit_logs_actions', p_access => 'platform', p_needs_session => false);
select core.define_operation('platform_audit_logs_export', p_access => 'platform', p_needs_session => false);
select core.define_operation('platform_audit_logs_export_page', p_access => 'platform', p_needs_session => false);

create function api.platform_audit_logs_actions(p jsonb) returns json language sql stable as $$
  -- Jumps from each action to the next in the index. `distinct` would read the whole log.
  with recursive found as (
    (select action from audit_log order by action limit 1)
    union all
    select (select a.action from audit_log a where a.action > f.action order by a.action limit 1)
    from found f
    where f.action is not null
  )
  select coalesce(json_agg(action order by action) filter (where action is not null), '[]') from found;
$$;
comment on function api.platform_audit_logs_actions is 'The distinct actions in the audit log, sorted.';

create function api.platform_audit_logs_export(p jsonb) returns json language plpgsql as $$
begin
  perform core.audit('audit_log.export', 'audit_log', null, (p ->> 'tenant_id')::bigint, core.diff(null, p));
  return '{}';
end $$;
comment on function api.platform_audit_logs_export is
  'Starts an export of the audit log. Audited with its filters, so the log shows who exported it.';

create function api.platform_audit_logs_export_page(p jsonb) returns json language sql stable as $$
  select core.record_export_page('audit_log', p, $cells$
    a.id, to_char(a.created_at, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), a.actor_id, a.actor_email,
    a.impersonated_user_id, a.impersonated_email, a.action, a.tenant_id, t.name,
    a.target_type, a.target_id, a.changes::text, a.ip, a.user_agent, a.request_id
  $cells$, 'a.created_at, a.id');
$$;
comment on function api.platform_audit_logs_export_page is
  'A page of the export, oldest entries first. Filters as in the list.';
