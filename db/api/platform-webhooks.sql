-- /api/platform/webhooks: addresses that receive the events of the platform. The work is done by the functions of
-- webhooks.sql. Only sessions may use these operations, because a webhook would outlive the API key that made it.

select core.define_operation('platform_webhooks_list', p_access => 'platform');
select core.define_operation('platform_webhooks_create', p_access => 'platform', p_idempotent => true,
  p_errors => '{conflict}');
select core.define_operation('platform_webhooks_get', p_access => 'platform', p_record => 'webhook');
select core.define_operation('platform_webhooks_update', p_access => 'platform', p_record => 'webhook',
  p_errors => '{invalid_state}');
select core.define_operation('platform_webhooks_delete', p_access => 'platform', p_record => 'webhook');
select core.define_operation('platform_webhooks_rotate_secret', p_access => 'platform', p_record => 'webhook');
select core.define_operation('platform_webhooks_test', p_access => 'platform', p_record => 'webhook',
  p_errors => '{invalid_state}');
select core.define_operation('platform_webhooks_deliveries_list', p_access => 'platform');
select core.define_operation('platform_webhooks_deliveries_replay', p_access => 'platform', p_record => 'webhook',
  p_errors => '{invalid_state}');

create function api.platform_webhooks_list(p jsonb) returns json language sql stable as $$
  select core.record_page('webhook', p);
$$;
comment on function api.platform_webhooks_list is
  'Webhooks of the platform. Searches url and description. Filters: is_active, event.';

create function api.platform_webhooks_get(p jsonb) returns json language sql stable as $$
  select api.webhook_record((p ->> 'id')::bigint);
$$;
comment on function api.platform_webhooks_get is 'One webhook of the platform, without its secret. Raises not_found.';

create function api.platform_webhooks_create(p jsonb) returns json language plpgsql as $$
declare
  v_webhook jsonb := api.webhook_create(p);
begin
  return api.audited('webhook.create', null, v_webhook::json)::jsonb
    || jsonb_build_object('secret_hash', p -> 'secret_hash');
end $$;
comment on function api.platform_webhooks_create is
  'Creates a webhook of the platform, as api.webhook_create. The facade returns the secret if the answer has its hash, '
  'thus not to a repeated Idempotency-Key. Audited.';

create function api.platform_webhooks_update(p jsonb) returns json language plpgsql as $$
declare
  v_before jsonb := api.webhook_record((p ->> 'id')::bigint);
begin
  return api.audited('webhook.update', v_before, api.webhook_update(p)::json);
end $$;
comment on function api.platform_webhooks_update is
  'Updates a webhook of the platform, as api.webhook_update. Audited.';

create function api.platform_webhooks_delete(p jsonb) returns json language plpgsql as $$
declare
  v_before jsonb := api.webhook_record((p ->> 'id')::bigint);
begin
  perform core.record_delete('webhook', p);
  return api.audited('webhook.delete', v_before, null);
end $$;
comment on function api.platform_webhooks_delete is
  'Deletes a webhook of the platform with its secrets and its delivery log. Audited.';

create function api.platform_webhooks_rotate_secret(p jsonb) returns json language plpgsql as $$
begin
  perform core.audit('webhook.rotate_secret', 'webhook', (p ->> 'id')::bigint, null, null);
  return api.webhook_rotate_secret(p);
end $$;
comment on function api.platform_webhooks_rotate_secret is
  'Replaces the secret of a webhook of the platform, as api.webhook_rotate_secret. Audited.';

create function api.platform_webhooks_test(p jsonb) returns json language plpgsql as $$
begin
  perform core.audit('webhook.test', 'webhook', (p ->> 'id')::bigint, null, null);
  return api.webhook_test((p ->> 'id')::bigint);
end $$;
comment on function api.platform_webhooks_test is 'Sends a test event, as api.webhook_test. Audited.';

create function api.platform_webhooks_deliveries_list(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.webhook_record((p ->> 'id')::bigint);
  return core.record_page('webhook_delivery', p || jsonb_build_object('webhook_id', p -> 'id'));
end $$;
comment on function api.platform_webhooks_deliveries_list is
  'The deliveries of a webhook of the platform, newest first. Searches event and reason. Filters: status, event. '
  'Raises not_found for the webhook.';

create function api.platform_webhooks_deliveries_replay(p jsonb) returns json language plpgsql as $$
begin
  perform core.audit('webhook.replay', 'webhook', (p ->> 'id')::bigint, null,
    core.diff(null, jsonb_build_object('delivery_id', p -> 'delivery_id')));
  return api.webhook_replay(p);
end $$;
comment on function api.platform_webhooks_deliveries_replay is
  'Sends the message of a delivery again, as api.webhook_replay. Audited.';
