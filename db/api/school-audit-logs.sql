-- /api/audit-logs: the audit log of the school. Functions of several resources add entries by core.audit_school.
-- Entries of operators who changed the school or acted for it are part of it.

select core.define_operation('audit_logs_list', p_permission => 'audit.read');

select core.define_record('school_audit_log', p_table => 'school_audit_log', p_key => 'a.id', p_one_row_per_key => true,
  p_source => 'core.school_audit_log a',
  p_columns => $$
    a.id, json_build_object('id', a.actor_id, 'email', a.actor_email) as actor, a.impersonated_email, a.action,
    a.target_type, a.target_id, a.changes, a.ip, a.user_agent, a.request_id, a.created_at
  $$,
  p_search => $$public.search_form(concat_ws(' ', a.action, a.actor_email, a.impersonated_email))$$,
  p_equals => '{action,target_type,target_id}',
  p_default_sort => 'created_at', p_default_order => 'desc');
select core.define_filter('school_audit_log', 'from_date', 'a.created_at >= (select core.day_begins(:value::date))');
select core.define_filter('school_audit_log', 'to_date', 'a.created_at < (select core.day_begins(:value::date + 1))');
-- By the id, which has an index for each school: entries get their id when they are written.
select core.define_sort('school_audit_log', 'created_at', 'a.id');
select core.define_sort('school_audit_log', 'action', 'a.action');

create function api.audit_logs_list(p jsonb) returns json language plpgsql stable as $$
begin
  perform core.require_whole_school();
  return core.record_page('school_audit_log', p);
end $$;
comment on function api.audit_logs_list is
  'The audit log of the school, latest entries first. Searches action and emails. Filters: action, target_type, '
  'target_id, from_date and to_date (days at the school, both inclusive).';
