-- /api/notifications/templates: texts for messages that users send. A template with the name of an event replaces the
-- texts of that event.

select core.define_operation('notification_templates_list', p_permission => 'notification.send',
  p_open_to => 'everyone_staff_all', p_feature => 'notifications');
select core.define_operation('notification_templates_get', p_permission => 'notification.send',
  p_open_to => 'everyone_staff_all', p_feature => 'notifications', p_record => 'notification_template');
select core.define_operation('notification_templates_create', p_permission => 'notification.manage',
  p_feature => 'notifications', p_idempotent => true, p_record => 'notification_template', p_errors => '{conflict}');
select core.define_operation('notification_templates_update', p_permission => 'notification.manage',
  p_feature => 'notifications', p_record => 'notification_template', p_errors => '{conflict}');
select core.define_operation('notification_templates_delete', p_permission => 'notification.manage',
  p_feature => 'notifications', p_record => 'notification_template');

create function api.template_variables(p_name text, p_own text[]) returns text[] language sql stable as $$
  select coalesce((select variables from core.notification_event where key = lower(p_name)), p_own);
$$;
comment on function api.template_variables is
  'The variables of a template: those of the event if the template has the name of an event, else its own.';

-- Templates belong to nobody, so no row policy hides them. The condition hides them from students without a permission.
select core.define_record('notification_template', p_table => 'notification_template', p_key => 't.id',
  p_one_row_per_key => true,
  p_source => 'notification_template t',
  p_columns => $$
    t.id, t.name, t.title, t.message, t.type, t.action_url, t.channels,
    api.template_variables(t.name, t.variables) as variables,
    (select key from core.notification_event where key = lower(t.name)) as event, t.created_at, t.updated_at
  $$,
  p_condition => $$
    (select core.has_whole_school_scope()
      or core.permissions() && '{notification.send,notification.manage}')
  $$,
  p_search => $$public.search_form(t.name || ' ' || t.title || ' ' || t.message)$$,
  p_default_sort => 'name',
  p_writable => '{name,title,message,type,action_url,channels,variables}');
select core.define_sort('notification_template', 'name', 'platform.search_normal(t.name)');
select core.define_sort('notification_template', 'created_at', 't.created_at');

select core.define_functions('notification_templates', 'notification_template',
  p_list => 'Templates by name. Searches name, title and message.',
  p_get => 'One template. Raises not_found.');

create function api.check_template(p_template jsonb) returns void language plpgsql stable as $$
declare
  v_own text[] := array(select jsonb_array_elements_text(coalesce(p_template -> 'variables', '[]')));
  v_known text[] := core.recipient_variables() || api.template_variables(p_template ->> 'name', v_own);
  v_reserved text;
begin
  select v into v_reserved from unnest(v_own) v where v = any (core.recipient_variables()) limit 1;
  if found then
    perform core.refuse_field('validation_error', 'variables',
      format('%s is a built-in variable. Remove it from the list.', v_reserved));
  elsif exists (select from unnest(v_own) v where v <> all (v_known)) then
    perform core.refuse_field('validation_error', 'variables',
      'This template has the name of an event, so only the variables of the event can be used.');
  end if;
end $$;
comment on function api.check_template is
  'Raises validation_error if a template declares a variable that is built in or that its event does not have.';

-- The event follows from the name.
create function api.audited_template(p_id bigint) returns jsonb language sql stable as $$
  select api.notification_template_record(p_id)::jsonb - 'event';
$$;
comment on function api.audited_template is 'A template as the audit log shows it.';

create function api.notification_templates_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  perform api.check_template(p);
  v_id := core.record_insert('notification_template', p);
  perform core.audit_school('notification_template.create', v_id, null, api.audited_template(v_id));
  return api.notification_template_record(v_id);
end $$;
comment on function api.notification_templates_create is
  'Creates a template. Raises conflict if the name is in use, and the errors of api.check_template. Audited.';

create function api.notification_templates_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before jsonb := api.audited_template(v_id);
begin
  perform api.check_template((select to_jsonb(t) from notification_template t where t.id = v_id) || p);
  perform core.record_update('notification_template', p);
  perform core.audit_school('notification_template.update', v_id, v_before, api.audited_template(v_id));
  return api.notification_template_record(v_id);
end $$;
comment on function api.notification_templates_update is
  'Updates a template. Raises the same errors as create. Audited.';

create function api.notification_templates_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  perform core.audit_school('notification_template.delete', v_id, api.audited_template(v_id), null);
  return core.record_delete('notification_template', p);
end $$;
comment on function api.notification_templates_delete is
  'Deletes a template. If it has the name of an event, the event uses its default texts again. Audited.';
