-- /api/platform/notification-…: settings of the notifications of all schools, and the default texts of events.

select core.define_operation('platform_notification_settings_get', p_access => 'platform', p_needs_session => false,
  p_unversioned_fields => '{}');
select core.define_operation('platform_notification_settings_update', p_access => 'platform', p_needs_session => false,
  p_present => 'platform_notification_settings_get', p_locked_by => 'lock_notification_settings');
select core.define_operation('platform_notification_events_list', p_access => 'platform', p_needs_session => false);
select core.define_operation('platform_notification_templates_list', p_access => 'platform', p_needs_session => false);
select core.define_operation('platform_notification_templates_get', p_access => 'platform', p_needs_session => false,
  p_record => 'platform_notification_template');
select core.define_operation('platform_notification_templates_create', p_access => 'platform', p_needs_session => false,
  p_idempotent => true, p_record => 'platform_notification_template', p_errors => '{conflict}');
select core.define_operation('platform_notification_templates_update', p_access => 'platform', p_needs_session => false,
  p_record => 'platform_notification_template', p_errors => '{conflict}');
select core.define_operation('platform_notification_templates_preview', p_access => 'platform',
  p_needs_session => false);
select core.define_operation('platform_notification_templates_delete', p_access => 'platform', p_needs_session => false,
  p_record => 'platform_notification_template');

select core.define_record('platform_notification_template', p_table => 'notification_template', p_key => 't.id',
  p_one_row_per_key => true,
  p_source => 'notification_template t',
  p_columns => 't.id, t.key, t.channel, t.subject, t.body, t.is_active, t.created_at, t.updated_at',
  p_search => $$public.search_form(t.key || ' ' || t.subject || ' ' || t.body)$$,
  p_equals => '{key,channel,is_active}',
  p_default_sort => 'key',
  p_writable => '{key,channel,subject,body,is_active}');
select core.define_sort('platform_notification_template', 'key', 't.key', 't.channel');
select core.define_sort('platform_notification_template', 'created_at', 't.created_at');

select core.define_functions('platform_notification_templates', 'platform_notification_template',
  p_list => 'Lists the texts of operators by event and channel. Searches key, subject and body.',
  p_get => 'One template. Raises not_found.');

create function api.notification_settings() returns json language sql stable as $$
  select json_build_object(
    'channels', json_build_object('in_app', in_app, 'push', push, 'email', email),
    'sender_name', sender_name,
    'quiet_hours', case when quiet_from is not null then json_build_object(
      'start', to_char(quiet_from, 'HH24:MI'),
      'end', to_char(quiet_until, 'HH24:MI')) end,
    'limits', json_build_object(
      'push_per_user_per_day', push_per_user_per_day,
      'emails_per_user_per_day', emails_per_user_per_day),
    'created_at', created_at,
    'updated_at', updated_at)
  from notification_setting;
$$;
comment on function api.notification_settings is 'The notification settings of all schools.';

create function api.platform_notification_settings_get(p jsonb) returns json language sql stable as $$
  select api.notification_settings();
$$;
comment on function api.platform_notification_settings_get is
  'The notification settings: channels, sender, quiet hours, limits.';

create function api.lock_notification_settings(p jsonb) returns void language plpgsql as $$
begin
  perform from notification_setting for no key update;
end $$;
comment on function api.lock_notification_settings is 'Locks the notification settings of the platform.';

create function api.platform_notification_settings_update(p jsonb) returns json language plpgsql as $$
declare
  v_before jsonb := api.notification_settings();
  v_channels jsonb := coalesce(p -> 'channels', '{}');
  v_limits jsonb := coalesce(p -> 'limits', '{}');
begin
  update notification_setting set
    in_app = coalesce((v_channels ->> 'in_app')::boolean, in_app),
    push = coalesce((v_channels ->> 'push')::boolean, push),
    email = coalesce((v_channels ->> 'email')::boolean, email),
    sender_name = case when p ? 'sender_name' then p ->> 'sender_name' else sender_name end,
    quiet_from = case when p ? 'quiet_hours' then (p #>> '{quiet_hours,start}')::time else quiet_from end,
    quiet_until = case when p ? 'quiet_hours' then (p #>> '{quiet_hours,end}')::time else quiet_until end,
    push_per_user_per_day = case
      when v_limits ? 'push_per_user_per_day' then (v_limits ->> 'push_per_user_per_day')::integer
      else push_per_user_per_day
    end,
    emails_per_user_per_day = case
      when v_limits ? 'emails_per_user_per_day' then (v_limits ->> 'emails_per_user_per_day')::integer
      else emails_per_user_per_day
    end;
  return api.audited('notification_settings.update', v_before, api.notification_settings());
end $$;
comment on function api.platform_notification_settings_update is
  'Updates the given settings, also single channels and limits. They apply to later messages. Audited.';

create function api.platform_notification_events_list(p jsonb) returns json language sql stable as $$
  select json_agg(json_build_object(
    'key', key,
    'description', description,
    'channels', channels,
    'variables', variables || core.recipient_variables(),
    'sample', sample,
    'title', title,
    'message', message) order by key)
  from core.notification_event;
$$;
comment on function api.platform_notification_events_list is
  'Lists the events that send notifications: variables with sample values, default channels and default texts.';

create function api.check_platform_template(p_template jsonb) returns void language plpgsql stable as $$
begin
  if not exists (select from core.notification_event where key = p_template ->> 'key') then
    perform core.refuse_field('validation_error', 'key', format('The event does not exist. Available: %s.',
      (select string_agg(key, ', ' order by key) from core.notification_event)));
  end if;
end $$;
comment on function api.check_platform_template is
  'Raises validation_error for an unknown event.';

create function api.platform_notification_templates_preview(p jsonb) returns json language plpgsql stable as $$
declare
  v_event core.notification_event;
  v_sample jsonb;
begin
  perform api.check_platform_template(p);
  select * into v_event from core.notification_event where key = p ->> 'key';
  v_sample := jsonb_build_object(
    'first_name', 'Amina',
    'last_name', 'García',
    'name', 'Amina García',
    'school_name', 'Green Valley School') || v_event.sample;
  return json_build_object(
    'subject', core.clean_title(
      core.render(coalesce(p ->> 'subject', v_event.title), v_sample), v_sample ->> 'school_name'),
    'body', core.clean_message(core.render(p ->> 'body', v_sample)));
end $$;
comment on function api.platform_notification_templates_preview is
  '{subject, body} rendered with the sample values of the event. Raises the errors of api.check_platform_template.';

create function api.platform_notification_templates_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  perform api.check_platform_template(p);
  v_id := core.record_insert('platform_notification_template', (
    select jsonb_build_object('subject', e.title) from core.notification_event e where e.key = p ->> 'key') || p);
  return api.audited('notification_template.create', null, api.platform_notification_template_record(v_id));
end $$;
comment on function api.platform_notification_templates_create is
  'Creates the text of an event on one channel. The default subject is the title in the catalog. Raises conflict if '
  'the event already has a text on this channel, and the errors of api.check_platform_template. Audited.';

create function api.platform_notification_templates_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before jsonb := api.platform_notification_template_record(v_id);
begin
  perform api.check_platform_template(v_before || p);
  perform core.record_update('platform_notification_template', p);
  return api.audited('notification_template.update', v_before, api.platform_notification_template_record(v_id));
end $$;
comment on function api.platform_notification_templates_update is
  'Updates a text. Raises the same errors as create. Audited.';

create function api.platform_notification_templates_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before jsonb := api.platform_notification_template_record(v_id);
begin
  delete from notification_template where id = v_id;
  return api.audited('notification_template.delete', v_before, null);
end $$;
comment on function api.platform_notification_templates_delete is
  'Deletes a text; the event then uses the text of the catalog. Audited.';
