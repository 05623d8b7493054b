-- /api/platform/tenants/export and /:id/message: the list of schools as a file, and messages to the admins of a school.
-- The other operations on schools are in platform.sql.

select core.define_operation('platform_tenants_export', p_access => 'platform', p_needs_session => false);
select core.define_operation('platform_tenants_export_page', p_access => 'platform', p_needs_session => false);
select core.define_operation('platform_tenants_message', p_access => 'platform', p_needs_session => false,
  p_idempotent => true, p_record => 'tenant', p_runs_on => 'school', p_errors => '{invalid_state}');

create function api.platform_tenants_export(p jsonb) returns json language plpgsql as $$
begin
  perform core.audit('schools.export', 'tenant', null, null, core.diff(null, p));
  return '{}';
end $$;
comment on function api.platform_tenants_export is
  'Starts an export of the list of schools. Audited with its filters, because it has email addresses.';

create function api.platform_tenants_export_page(p jsonb) returns json language sql stable as $$
  select core.record_export_page('tenant', p, $cells$
    t.id, t.name, t.subdomain, t.status, p.name, s.status,
    to_char(s.current_period_end, 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), to_char(t.trial_ends_at, 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
    t.contact_email, coalesce(u.students, 0), coalesce(u.teachers, 0), coalesce(u.classes, 0), t.time_zone,
    t.is_setup_complete, to_char(t.created_at, 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
  $cells$, 't.id');
$$;
comment on function api.platform_tenants_export_page is 'A page of the export, by id. Filters as in the list.';

create function api.platform_tenants_message(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_sent integer := core.message_admins(v_id, p ->> 'title', p ->> 'message');
begin
  perform core.audit('tenant.message', 'tenant', v_id, v_id, core.diff(null, jsonb_build_object(
    'title', p -> 'title', 'message', p -> 'message', 'sent', v_sent)));
  return json_build_object('id', v_id, 'sent', v_sent);
end $$;
comment on function api.platform_tenants_message is
  '{title, message}: sends a message to the admins of a school; returns {sent}, their number. Audited with its text. '
  'Raises the errors of core.message_admins.';
