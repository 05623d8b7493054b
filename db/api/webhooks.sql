-- /api/webhooks: addresses that receive the events of the school. A message contains what any user of the school may
-- see, so every operation needs the scope of the whole school. Whoever changes where messages go, or sends one, needs
-- the permissions of their events too. The functions api.webhook_… also serve the webhooks of the platform
-- (platform-webhooks.sql): the tables have the same names.

select core.define_operation('webhooks_list', p_permission => 'webhook.manage');
select core.define_operation('webhooks_create', p_permission => 'webhook.manage', p_idempotent => true,
  p_errors => '{conflict}');
select core.define_operation('webhooks_get', p_permission => 'webhook.manage', p_record => 'webhook');
select core.define_operation('webhooks_update', p_permission => 'webhook.manage', p_record => 'webhook',
  p_present => 'none', p_errors => '{invalid_state}');
select core.define_operation('webhooks_delete', p_permission => 'webhook.manage', p_record => 'webhook');
select core.define_operation('webhooks_rotate_secret', p_permission => 'webhook.manage', p_record => 'webhook');
select core.define_operation('webhooks_test', p_permission => 'webhook.manage', p_record => 'webhook',
  p_errors => '{invalid_state}');
select core.define_operation('webhooks_deliveries_list', p_permission => 'webhook.manage');
select core.define_operation('webhooks_deliveries_replay', p_permission => 'webhook.manage', p_record => 'webhook',
  p_errors => '{invalid_state}');

-- Unversioned: what the worker changes.
select core.define_record('webhook', p_table => 'webhook', p_key => 'w.id', p_one_row_per_key => true,
  p_source => 'webhook w',
  p_columns => $$
    w.id, w.url, w.description, w.events, w.is_active, w.failing_since, w.disabled_at, w.created_by, w.created_at,
    w.updated_at
  $$,
  p_search => $$public.search_form(w.url || ' ' || coalesce(w.description, ''))$$,
  p_equals => '{is_active}',
  p_default_sort => 'created_at',
  p_writable => '{url,description,events,is_active,created_by}',
  p_volatile_fields => '{failing_since,disabled_at}');
select core.define_filter('webhook', 'event', 'w.events @> array[:value]');
select core.define_sort('webhook', 'created_at', 'w.created_at');

select core.define_record('webhook_delivery', p_table => 'webhook_delivery', p_key => 'd.id',
  p_one_row_per_key => true,
  p_source => 'webhook_delivery d left join webhook_event e on e.id = d.event_id',
  -- A response can repeat the message.
  p_condition => $$
    (select event.type from webhook_event event where event.id = d.event_id) <> all (array(
      select t.name
      from core.webhook_event_type t
      where t.permission is not null and not core.has_permission_for_all(t.permission)))
  $$,
  p_columns => $$
    d.id, d.webhook_id, api.webhook_message_id(d.event_id) as message_id, e.type as event, d.status, d.attempts,
    d.status_code, d.reason, d.response_body, d.next_attempt_at, d.last_attempt_at, d.sent_at, d.created_at,
    d.updated_at
  $$,
  p_search => $$public.search_form(e.type || ' ' || coalesce(d.reason, ''))$$,
  p_equals => '{webhook_id,status}',
  p_default_sort => 'id', p_default_order => 'desc');
select core.define_filter('webhook_delivery', 'event', 'e.type = :value');
select core.define_sort('webhook_delivery', 'id', 'd.id');

create function api.webhook_message_id(p_event_id bigint) returns text language sql stable
  return concat_ws('_', 'msg', coalesce(core.tenant_id()::text, 'platform'), p_event_id);
comment on function api.webhook_message_id is
  'The header webhook-id of an event: the same for each attempt and each webhook.';

create function api.webhook_create(p jsonb) returns jsonb language plpgsql as $$
declare
  v_id bigint;
begin
  perform pg_advisory_xact_lock(core.lock_key('webhooks', coalesce(core.tenant_id(), 0)));
  if (select count(*) from webhook) >= 10 then
    perform core.fail('conflict', format('%s can have at most 10 webhooks. Delete one first.',
      case when core.tenant_id() is null then 'The platform' else 'A school' end));
  end if;
  v_id := core.record_insert('webhook', p || jsonb_build_object('created_by', core.user_id()));
  insert into webhook_secret (webhook_id, secret) values (v_id, p ->> 'secret');
  return api.webhook_record(v_id);
end $$;
comment on function api.webhook_create is
  'Creates a webhook: {url, events, description, is_active, secret}. The facade makes the secret. Raises conflict if '
  'there are 10 webhooks.';

create function api.webhook_update(p jsonb) returns jsonb language plpgsql as $$
declare
  v_url text := (select url from webhook where id = (p ->> 'id')::bigint);
  v_id bigint := core.record_update('webhook', p);
begin
  -- Messages for one receiver are not for another one.
  update webhook_delivery
    set status = 'failed', reason = 'url_changed', next_attempt_at = null
    where webhook_id = v_id and status = 'pending' and p ->> 'url' <> v_url;
  if (select is_active from webhook where id = v_id) then
    if not exists (select from webhook_secret where webhook_id = v_id and expires_at is null) then
      perform core.fail('invalid_state', 'The webhook has no secret. Rotate its secret first.');
    end if;
    if p ?| '{url,is_active}' then
      update webhook set failing_since = null, failures = 0, retry_at = null, disabled_at = null where id = v_id;
    end if;
  else
    update webhook_delivery
      set status = 'failed', reason = 'webhook_disabled', next_attempt_at = null
      where webhook_id = v_id and status = 'pending';
  end if;
  return api.webhook_record(v_id);
end $$;
comment on function api.webhook_update is
  'Updates a webhook. Disabling it, or another address, ends the deliveries that are still pending. Raises '
  'invalid_state if it is enabled without a secret, as after an import of the school.';

create function api.webhook_rotate_secret(p jsonb) returns jsonb language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_expires_at timestamptz;
begin
  delete from webhook_secret where webhook_id = v_id and expires_at is not null;
  update webhook_secret
    set expires_at = now() + core.webhook_secret_overlap()
    where webhook_id = v_id
    returning expires_at into v_expires_at;
  insert into webhook_secret (webhook_id, secret) values (v_id, p ->> 'secret');
  return jsonb_build_object(
    'id', v_id, 'previous_secret_expires_at', v_expires_at, 'secret_hash', p -> 'secret_hash');
end $$;
comment on function api.webhook_rotate_secret is
  'Replaces the secret of a webhook: {id, secret, secret_hash}. The previous secret signs for another 24 hours; one '
  'that was replaced before stops at once.';

create function api.webhook_send(p_webhook_id bigint, p_event_id bigint) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  if not (select is_active from webhook where id = p_webhook_id) then
    perform core.fail('invalid_state', 'The webhook is disabled. Enable it first.');
  end if;
  insert into webhook_delivery (webhook_id, event_id) values (p_webhook_id, p_event_id) returning id into v_id;
  perform core.wake_webhooks();
  return api.webhook_delivery_record(v_id);
end $$;
comment on function api.webhook_send is
  'Delivers an event to a webhook. Returns the delivery. Raises invalid_state if the webhook is disabled.';

create function api.webhook_test(p_id bigint) returns json language plpgsql as $$
declare
  v_event_id bigint;
begin
  insert into webhook_event (type, key, body)
    values (
      'webhook.test',
      '{}',
      json_build_object('type', 'webhook.test', 'timestamp', now(), 'data', json_build_object('webhook_id', p_id)))
    returning id into v_event_id;
  return api.webhook_send(p_id, v_event_id);
end $$;
comment on function api.webhook_test is
  'Sends the event webhook.test to a webhook. Returns the delivery. Raises invalid_state if the webhook is disabled.';

create function api.webhook_replay(p jsonb) returns jsonb language plpgsql as $$
declare
  v_event_id bigint;
begin
  select event_id
    into v_event_id
    from webhook_delivery
    where id = (p ->> 'delivery_id')::bigint and webhook_id = (p ->> 'id')::bigint;
  if not found then
    perform core.fail_missing('webhook_delivery', (p ->> 'delivery_id')::bigint);
  end if;
  return api.webhook_send((p ->> 'id')::bigint, v_event_id);
end $$;
comment on function api.webhook_replay is
  'Sends the message of a delivery again, with the same id and body: {id, delivery_id}. Returns the new delivery. '
  'Raises not_found, invalid_state if the webhook is disabled.';

create function api.require_webhook_events(p_events text[]) returns void language plpgsql stable as $$
declare
  v_refused record;
begin
  select t.name, t.permission
    into v_refused
    from core.webhook_event_type t
    where t.name = any (p_events) and t.permission is not null and not core.has_permission_for_all(t.permission)
    order by t.name
    limit 1;
  if found then
    perform core.fail('forbidden', format('The event %s needs the permission %s for the whole school.',
      v_refused.name, v_refused.permission));
  end if;
end $$;
comment on function api.require_webhook_events is
  'Raises forbidden if the user lacks, for the whole school, a permission that one of the events needs. Otherwise a '
  'webhook could send data to its creator that the creator may not see.';

create function api.require_webhook(p_id bigint) returns void language plpgsql stable as $$
begin
  perform core.require_whole_school();
  perform api.require_webhook_events((select events from webhook where id = p_id));
end $$;
comment on function api.require_webhook is
  'Raises forbidden if the user may not see all that a webhook receives. For each operation that sends something to a '
  'webhook, or changes or deletes it.';

create function api.webhooks_list(p jsonb) returns json language plpgsql stable as $$
begin
  perform core.require_whole_school();
  return core.record_page('webhook', p);
end $$;
comment on function api.webhooks_list is 'Webhooks. Searches url and description. Filters: is_active, event.';

create function api.webhooks_get(p jsonb) returns json language plpgsql stable as $$
begin
  perform core.require_whole_school();
  return api.webhook_record((p ->> 'id')::bigint);
end $$;
comment on function api.webhooks_get is 'One webhook, without its secret. Raises not_found.';

create function api.webhooks_create(p jsonb) returns json language plpgsql as $$
declare
  v_webhook jsonb;
begin
  perform core.require_whole_school();
  perform api.require_webhook_events(array(select jsonb_array_elements_text(p -> 'events')));
  v_webhook := api.webhook_create(p);
  perform core.audit_school('webhook.create', (v_webhook ->> 'id')::bigint, null, v_webhook);
  return v_webhook || jsonb_build_object('secret_hash', p -> 'secret_hash');
end $$;
comment on function api.webhooks_create is
  'Creates a webhook, as api.webhook_create. The facade returns the secret if the answer has its hash, thus not to a '
  'repeated Idempotency-Key. Raises forbidden if the user lacks the permission of an event.';

create function api.webhooks_update(p jsonb) returns json language plpgsql as $$
declare
  v_before jsonb;
  v_webhook jsonb;
begin
  perform api.require_webhook((p ->> 'id')::bigint);
  v_before := api.webhook_record((p ->> 'id')::bigint);
  if core.repeats(p - '{id,read_only}'::text[], v_before) then
    return v_before;
  end if;
  v_webhook := api.webhook_update(p);
  perform api.require_webhook_events(array(select jsonb_array_elements_text(v_webhook -> 'events')));
  perform core.audit_school('webhook.update', (p ->> 'id')::bigint, v_before, v_webhook);
  return v_webhook;
end $$;
comment on function api.webhooks_update is
  'Updates a webhook, as api.webhook_update. Raises forbidden if the user lacks the permission of one of its '
  'events, before or after the change. That is why it compares the values itself.';

create function api.webhooks_delete(p jsonb) returns json language plpgsql as $$
begin
  perform api.require_webhook((p ->> 'id')::bigint);
  perform core.audit_school('webhook.delete', (p ->> 'id')::bigint, api.webhook_record((p ->> 'id')::bigint)::jsonb,
    null);
  return core.record_delete('webhook', p);
end $$;
comment on function api.webhooks_delete is
  'Deletes a webhook with its secrets and its delivery log. Raises forbidden as api.require_webhook.';

create function api.webhooks_rotate_secret(p jsonb) returns json language plpgsql as $$
begin
  perform api.require_webhook((p ->> 'id')::bigint);
  perform core.audit_school('webhook.rotate_secret', (p ->> 'id')::bigint, null, null);
  return api.webhook_rotate_secret(p);
end $$;
comment on function api.webhooks_rotate_secret is
  'Replaces the secret of a webhook, as api.webhook_rotate_secret. Raises forbidden as api.require_webhook.';

create function api.webhooks_test(p jsonb) returns json language plpgsql as $$
begin
  perform api.require_webhook((p ->> 'id')::bigint);
  perform core.audit_school('webhook.test', (p ->> 'id')::bigint, null, null);
  return api.webhook_test((p ->> 'id')::bigint);
end $$;
comment on function api.webhooks_test is
  'Sends a test event, as api.webhook_test. Raises forbidden as api.require_webhook.';

create function api.webhooks_deliveries_list(p jsonb) returns json language plpgsql stable as $$
begin
  perform core.require_whole_school();
  perform api.webhook_record((p ->> 'id')::bigint);
  return core.record_page('webhook_delivery', p || jsonb_build_object('webhook_id', p -> 'id'));
end $$;
comment on function api.webhooks_deliveries_list is
  'The deliveries of a webhook whose events the user may see, newest first. Searches event and reason. Filters: '
  'status, event. Raises not_found for the webhook.';

create function api.webhooks_deliveries_replay(p jsonb) returns json language plpgsql as $$
begin
  perform api.require_webhook((p ->> 'id')::bigint);
  perform api.require_webhook_events(array(
    select e.type
    from webhook_delivery d
    join webhook_event e on e.id = d.event_id
    where d.id = (p ->> 'delivery_id')::bigint and d.webhook_id = (p ->> 'id')::bigint));
  perform core.audit_school('webhook.replay', (p ->> 'id')::bigint, null,
    jsonb_build_object('delivery_id', p -> 'delivery_id'));
  return api.webhook_replay(p);
end $$;
comment on function api.webhooks_deliveries_replay is
  'Sends the message of a delivery again, as api.webhook_replay. Raises forbidden if the user lacks the permission of '
  'the event of the message, which may no longer be one of the webhook.';
