-- Webhooks: the catalog of events, and the job that sends them. The triggers of tenant migration 0015 write the events
-- of schools down, those at the end of this file the events of the platform.

create table core.webhook_event_type (
  name text primary key,
  permission text references core.permission (name) on delete restrict,
  description text not null
);
comment on table core.webhook_event_type is
  'The events that a webhook can receive, and the permission that the user who chooses an event needs for the whole '
  'school; null for an event of the platform. Filled by db/seed.';

create function core.wake_webhooks() returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if core.tenant_id() is null then
    perform core.add_jobs('deliver_webhooks', array[('{"tenant_id": null}', null, null)::core.new_job]);
  else
    perform core.notify('webhooks', '{}');
  end if;
end $$;
comment on function core.wake_webhooks is
  'Starts the delivery of the due webhook events of this school, or of the platform. For the platform, queues the job. '
  'For a school, stores a row in the outbox, and the worker queues the job after the commit (core.outbox_write). '
  'Security definer, because requests have no access to the queue.';

create function core.queue_webhooks() returns void language plpgsql as $$
begin
  if current_setting('app.has_webhook_events', true) = 'yes' then
    perform core.wake_webhooks();
  end if;
end $$;
comment on function core.queue_webhooks is
  'Starts the delivery of the webhook events that triggers have stored in this transaction.';

create function core.webhook_retry_period() returns interval language sql immutable return interval '24 hours';
comment on function core.webhook_retry_period is
  'How long after the first attempt an event is sent to a webhook again.';

create function core.webhook_secret_overlap() returns interval language sql immutable return interval '24 hours';
comment on function core.webhook_secret_overlap is 'How long a replaced secret of a webhook still signs.';

create function core.retry_delay(p_attempts integer) returns interval language sql immutable
  return least(interval '4 hours', interval '10 seconds' * 3 ^ least(p_attempts - 1, 10));
comment on function core.retry_delay is
  'The time before an event is tried again after p_attempts attempts: 10, 30, 90 seconds, …, 4 hours.';

create function core.webhook_pause(p_failures integer) returns interval language sql immutable
  return least(interval '10 minutes', interval '1 second' * 2 ^ least(p_failures, 10));
comment on function core.webhook_pause is
  'How long nothing is sent to a webhook after its last p_failures attempts failed: 2, 4, 8 seconds, …, 10 minutes. '
  'A receiver that is down therefore occupies the worker only for a few seconds now and then.';

create function core.tenant_events(p_before platform.tenant, p_after platform.tenant) returns setof text
  language sql stable as $$
  select e.type
  from (select p_before.id is null or core.is_reserved(p_before) as is_new) school
  cross join lateral (values
    ('tenant.created', school.is_new),
    ('tenant.updated', not school.is_new and (
      p_before.name, p_before.subdomain, p_before.contact_email, p_before.time_zone, p_before.trial_ends_at,
      p_before.feature_flags, p_before.is_setup_complete, p_before.is_impersonation_allowed
    ) is distinct from (
      p_after.name, p_after.subdomain, p_after.contact_email, p_after.time_zone, p_after.trial_ends_at,
      p_after.feature_flags, p_after.is_setup_complete, p_after.is_impersonation_allowed)),
    ('tenant.plan_changed', not school.is_new and p_before.plan_id <> p_after.plan_id),
    ('tenant.suspended', p_before.status = 'active' and p_after.status = 'suspended'),
    ('tenant.activated', p_before.status = 'suspended' and p_after.status = 'active'),
    ('tenant.deleted', p_before.status <> 'deleted' and p_after.status = 'deleted'),
    ('tenant.restored', not school.is_new and p_before.status = 'deleted' and p_after.status <> 'deleted'),
    ('tenant.moved', not school.is_new and p_before.node_id is distinct from p_after.node_id)
  ) e (type, has_happened)
  where e.has_happened and p_after.id is not null and not core.is_reserved(p_after);
$$;
comment on function core.tenant_events is
  'The events of a change of a school. A school that a node creates is new when the home gets its row.';

create function core.subscription_events(p_before platform.subscription, p_after platform.subscription)
  returns setof text language sql stable as $$
  select case
    when p_after.status = p_before.status then 'subscription.updated'
    when p_after.status = 'trialing' then 'subscription.trial_started'
    when p_after.status = 'active' then 'subscription.activated'
    else 'subscription.' || p_after.status
  end
  where p_before.id is not null
    and (p_before.status, p_before.started_at, p_before.current_period_end, p_before.grace_days)
      is distinct from (p_after.status, p_after.started_at, p_after.current_period_end, p_after.grace_days);
$$;
comment on function core.subscription_events is
  'The event of a change of a subscription. That of a new school belongs to tenant.created, a changed plan to '
  'tenant.plan_changed.';

create function core.platform_events(p_table text, p_before jsonb, p_after jsonb)
  returns table (type text, key jsonb) language plpgsql stable as $$
declare
  v_id jsonb := coalesce(p_after, p_before) -> case p_table
    when 'subscription' then 'tenant_id' when 'delayed_migration' then 'tenant_id' else 'id' end;
begin
  return query select e.type, jsonb_build_object('id', v_id) || e.more from (
    select t.event, '{}'::jsonb
      from core.tenant_events(jsonb_populate_record(null::platform.tenant, p_before),
        jsonb_populate_record(null::platform.tenant, p_after)) t (event)
      where p_table = 'tenant'
    union all
    select s.event, '{}'
      from core.subscription_events(jsonb_populate_record(null::platform.subscription, p_before),
        jsonb_populate_record(null::platform.subscription, p_after)) s (event)
      where p_table = 'subscription'
    union all
    select case when p_before is null then 'plan.created' when p_after is null then 'plan.deleted'
        else 'plan.updated' end, '{}'
      where p_table = 'plan'
        and p_before - 'updated_at' is distinct from p_after - 'updated_at'
    union all
    select 'tenant.migration_failed', jsonb_build_object('version', p_after -> 'version')
      where p_table = 'delayed_migration'
        and p_after ->> 'failed_at' is distinct from p_before ->> 'failed_at'
        and p_after ->> 'failed_at' is not null
    union all
    select 'job.failed', jsonb_build_object('task', core.task_name((p_after ->> 'task_id')::integer))
      where p_table = 'job'
  ) e (type, more);
end $$;
comment on function core.platform_events is
  'The events of a change of one row: their types and keys. The triggers below say which changes are passed here.';

create function core.record_platform_events() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_wanted text[] := array(select unnest(events) from platform.webhook where is_active);
begin
  if v_wanted = '{}' then
    return null;
  end if;
  insert into platform.webhook_event (type, key)
    select c.type, c.key
    from core.platform_events(coalesce(tg_argv[0], tg_table_name), case when tg_op <> 'INSERT' then to_jsonb(old) end,
      case when tg_op <> 'DELETE' then to_jsonb(new) end) c
    where c.type = any (v_wanted)
      and not exists (
        select from platform.webhook_event e
        where e.body is null
          and e.created_at = now()
          and e.key = c.key
          and e.type in (c.type, regexp_replace(c.type, '\.updated$', '.created')));
  -- One job per transaction, without a key: transactions that queue a job with the same key wait for each other.
  if found and current_setting('app.has_platform_events', true) is distinct from 'yes' then
    perform set_config('app.has_platform_events', 'yes', true),
      core.add_jobs('deliver_webhooks', array[('{"tenant_id": null}', null, null)::core.new_job]);
  end if;
  return null;
end $$;
comment on function core.record_platform_events is
  'Writes down the events of a changed row of the platform, if an active webhook wants them, and queues the job that '
  'sends them. Security definer, because schools, operators, the worker and the copies of nodes change these rows.';

create trigger platform_events after insert or update on platform.tenant
  for each row execute function core.record_platform_events();
create trigger platform_events after update on platform.subscription
  for each row execute function core.record_platform_events();
create trigger platform_events after insert or update or delete on platform.plan
  for each row execute function core.record_platform_events();
create trigger platform_events after insert or update on platform.delayed_migration
  for each row execute function core.record_platform_events();
-- Also for the changes that nodes send to the home. A node has no webhooks.
alter table platform.tenant enable always trigger platform_events;
alter table platform.subscription enable always trigger platform_events;
