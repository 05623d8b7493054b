-- /api/platform/audit-logs/…: what the list of platform.sql leaves out: which actions there are, and the trail as a
-- file.

select core.define_operation('platform_audit_logs_actions', p_access => 'platform');
select core.define_operation('platform_audit_logs_export', p_access => 'platform');
select core.define_operation('platform_audit_logs_export_page', p_access => 'platform');

-- The actions that occur, sorted: from one to the next by the index, however long the trail is.
create function api.platform_audit_logs_actions(p jsonb) returns json language sql stable as $$
  with recursive found as (
    (select action from audit_log order by action limit 1)
    union all
    select (select a.action from audit_log a where a.action > f.action order by a.action limit 1) from found f where f.action is not null
  )
  select coalesce(json_agg(action order by action) filter (where action is not null), '[]') from found;
$$;

-- Begins an export: whoever takes the trail away is in it themselves, with the filters that they asked for. Audited.
create function api.platform_audit_logs_export(p jsonb) returns json language plpgsql as $$
begin
  perform core.audit('audit_log.export', 'audit_log', null, (p ->> 'tenant_id')::bigint, core.diff(null, p));
  return '{}';
end $$;

-- A page of the export, oldest first; filters as in the list.
create function api.platform_audit_logs_export_page(p jsonb) returns json language sql stable as $$
  select core.record_export_page('audit_log', p, $cells$
    a.id, to_char(a.created_at, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), a.actor_id, a.actor_email, a.impersonated_user_id, a.impersonated_email, a.action, a.tenant_id, t.name,
    a.target_type, a.target_id, a.changes::text, a.ip, a.user_agent, a.request_id
  $cells$, 'a.id');
$$;
