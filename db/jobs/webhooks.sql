-- Database functions of the job `deliver_webhooks`: prepare the messages of new events, read the deliveries that are
-- due, store the result of each, queue the next job.

select core.define_job('deliver_webhooks', '{webhook_attempt_save,webhook_deliveries_due,webhook_job_end}',
  p_priority => 8, p_one_per_school => true, p_is_slow => true);

create function core.failed_migration(p_tenant_id bigint) returns json language sql stable as $$
  select json_build_object('id', t.id, 'subdomain', t.subdomain, 'schema_version', t.schema_version,
    'failed_version', d.version, 'error', core.error_line(d.error), 'failed_at', d.failed_at)
  from platform.delayed_migration d
  join platform.tenant t on t.id = d.tenant_id
  where d.tenant_id = p_tenant_id;
$$;
comment on function core.failed_migration is 'What failed in a school during a migration, without personal data.';

create function core.marks_without_notes(p_marks json) returns json language sql immutable as $$
  select coalesce(json_agg(to_jsonb(m) - 'announced_absence' - 'note' || jsonb_build_object('corrections', (
      select coalesce(jsonb_agg(c - 'note' order by position), '[]')
      from jsonb_array_elements(to_jsonb(m) -> 'corrections') with ordinality x (c, position)))
    order by n), '[]')
  from json_array_elements(p_marks) with ordinality y (m, n)
$$;
comment on function core.marks_without_notes is
  'The marks of a class and a day without notes and announced absences, which other systems should not get.';

create function core.without_leaving_reason(p_person json) returns json language sql immutable
  return (p_person::jsonb - 'leaving_reason')::json;
comment on function core.without_leaving_reason is
  'The record of a student or a teacher without the reason of leaving, which other systems should not get.';

create function core.webhook_data(p_type text, p_key jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p_key ->> 'id')::bigint;
  v_data json;
begin
  -- Two statements, because Postgres inlines functions that read tables of a school. The platform has no such tables.
  if core.tenant_id() is null then
    v_data := case
      when p_type = 'tenant.migration_failed' then core.failed_migration(v_id)
      else case split_part(p_type, '.', 1)
        when 'tenant' then api.tenant_record(v_id)
        when 'subscription' then api.tenant_record(v_id)
        when 'plan' then api.plan_record(v_id)
        when 'job' then core.job(v_id)
      end
    end;
  else
    v_data := case split_part(p_type, '.', 1)
      when 'student' then core.without_leaving_reason(api.student_record(v_id))
      when 'teacher' then core.without_leaving_reason(api.teacher_record(v_id))
      when 'guardian' then api.guardian_record(coalesce(v_id, (p_key ->> 'guardian_id')::bigint))
      when 'class' then api.class_record(v_id)
      when 'invoice' then api.invoice_with_payments(v_id)
      when 'payment' then api.payment_record(v_id)
      when 'transport_enrollment' then api.transport_enrollment_record(v_id)
      when 'attendance' then json_build_object(
        'class_id', p_key -> 'class_id',
        'date', p_key -> 'date',
        'marks', core.marks_without_notes(api.attendance_class(p_key || '{"pageSize": 1000}') -> 'data'))
      when 'timetable' then json_build_object(
        'class_id', p_key -> 'class_id',
        'slots', core.record_page('timetable_slot', p_key || '{"pageSize": 1000}', p_with_total => false) -> 'data')
    end;
  end if;
  return coalesce(v_data, p_key::json);
exception when sqlstate 'S404A' then
  return p_key;
end $$;
comment on function core.webhook_data is
  'The field `data` of an event: the record as the API returns it now; only its key if it no longer exists.';

create function core.webhook_prepare_events(p_limit integer) returns void language plpgsql as $$
begin
  with waiting as (
    select id from webhook_event where body is null order by id limit p_limit for update
  ), listening as (
    -- Locked, so that a request that disables a webhook leaves no delivery pending.
    select id, events, created_at from webhook where is_active order by id for share
  ), prepared as (
    update webhook_event e
      set body = json_build_object(
        'type', e.type, 'timestamp', e.created_at, 'data', core.webhook_data(e.type, e.key))
      from waiting w
      where e.id = w.id
      returning e.id, e.type, e.created_at
  )
  insert into webhook_delivery (webhook_id, event_id)
    select w.id, p.id
    from prepared p
    join listening w on p.type = any (w.events) and w.created_at <= p.created_at
    order by p.id, w.id;
end $$;
comment on function core.webhook_prepare_events is
  'Prepares the messages of at most p_limit new events of the current school or the platform, and their deliveries.';

create function core.webhook_deliveries_due(
    p_tenant_id bigint, p_limit integer, p_excluded_webhook_ids bigint[] default '{}',
    p_running_delivery_ids bigint[] default '{}') returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[];
  v_answer json;
begin
  if p_tenant_id is not null then
    if not exists (select from platform.tenant where id = p_tenant_id and status = 'active') then
      return '[]';
    end if;
    perform core.require_schema(p_tenant_id);
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  perform set_config('timezone', 'UTC', true), core.webhook_prepare_events(100);
  select coalesce(json_agg(json_build_object(
      'id', d.id,
      'webhook_id', d.webhook_id,
      'message_id', api.webhook_message_id(d.event_id),
      'url', d.url,
      'body', d.body,
      'secrets', array(
        select s.secret
        from webhook_secret s
        where s.webhook_id = d.webhook_id and (s.expires_at is null or s.expires_at > now())
        order by s.id desc)) order by d.next_attempt_at, d.id), '[]')
    into v_answer
    from (
      select next.*, w.url, e.body
      from webhook w
      cross join lateral (
        select *
        from webhook_delivery
        where webhook_id = w.id
          and status = 'pending'
          and next_attempt_at <= now()
          and id <> all (p_running_delivery_ids)
        order by next_attempt_at, id
        limit p_limit
      ) next
      join webhook_event e on e.id = next.event_id
      where w.is_active
        and (w.retry_at is null or w.retry_at <= now())
        and w.id <> all (p_excluded_webhook_ids)
    ) d;
  perform core.leave_tenant(v_before);
  return v_answer;
end $$;
comment on function core.webhook_deliveries_due is
  'Prepares at most 100 new events of a school (null: of the platform), then returns at most p_limit deliveries of '
  'each webhook that are due: [{id, webhook_id, message_id, url, body, secrets}], without the deliveries in '
  'p_running_delivery_ids and the webhooks in p_excluded_webhook_ids. None if the school is not active. Raises '
  'unavailable while it is migrated.';

create function core.webhook_disable(p_webhook_id bigint) returns void language plpgsql as $$
declare
  v_url text;
begin
  update webhook set is_active = false, disabled_at = now() where id = p_webhook_id returning url into v_url;
  update webhook_delivery
    set status = 'failed', reason = 'webhook_disabled', next_attempt_at = null
    where webhook_id = p_webhook_id and status = 'pending';
  if core.tenant_id() is null then
    perform core.notify_operators(null, 'A webhook was disabled', format(
      'The webhook %s of the platform was disabled, because nothing could be delivered to it for a day or it answered '
      '410. Enable it in the console when its receiver works again.', v_url));
  else
    perform core.notify('webhook.disabled', jsonb_build_object('webhook_id', p_webhook_id));
  end if;
end $$;
comment on function core.webhook_disable is
  'Disables a webhook of the current school or of the platform, ends its pending deliveries, and notifies the admins.';

create function core.webhook_attempt_save(
    p_tenant_id bigint, p_delivery_id bigint, p_is_delivered boolean, p_status_code integer, p_reason text,
    p_response_body text, p_retry_after_seconds integer) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[] := core.enter_tenant(p_tenant_id);
  v_webhook_id bigint;
  v_delivery record;
  v_first_attempt_at timestamptz;
  v_retry_until timestamptz;
  v_is_over boolean;
  v_is_retried boolean := false;
begin
  -- The webhook is locked before its delivery, as in a request that changes the webhook.
  select w.id
    into v_webhook_id
    from webhook w
    where w.id = (select d.webhook_id from webhook_delivery d where d.id = p_delivery_id)
    for no key update;
  select * into v_delivery from webhook_delivery where id = p_delivery_id and status = 'pending' for no key update;
  if found then
    -- Not from created_at: the worker may have been down for a day.
    v_first_attempt_at := coalesce(v_delivery.first_attempt_at, now());
    v_retry_until := v_first_attempt_at + core.webhook_retry_period();
    v_is_over := not p_is_delivered and (p_status_code is not distinct from 410 or now() >= v_retry_until);
    v_is_retried := not p_is_delivered and not v_is_over;
    update webhook_delivery
      set status = case when p_is_delivered then 'sent' when v_is_over then 'failed' else 'pending' end,
        attempts = attempts + 1,
        status_code = p_status_code,
        reason = p_reason,
        response_body = p_response_body,
        first_attempt_at = v_first_attempt_at,
        last_attempt_at = now(),
        sent_at = case when p_is_delivered then now() end,
        next_attempt_at = case when v_is_retried then
          -- The last attempt is at the end of the period.
          least(v_retry_until, now() + greatest(
            core.retry_delay(v_delivery.attempts + 1), make_interval(secs => p_retry_after_seconds)))
        end
      where id = p_delivery_id;
    if p_is_delivered then
      update webhook set failing_since = null, failures = 0, retry_at = null
        where id = v_webhook_id and failing_since is not null;
    else
      update webhook
        set failing_since = coalesce(failing_since, now()),
          failures = failures + 1,
          retry_at = now() + core.webhook_pause(failures + 1)
        where id = v_webhook_id;
      if v_is_over and not exists (
        select from webhook_delivery d where d.webhook_id = v_webhook_id and d.sent_at >= v_first_attempt_at
      ) then
        perform core.webhook_disable(v_webhook_id);
      end if;
    end if;
  end if;
  perform core.leave_tenant(v_before);
  return v_is_retried;
end $$;
comment on function core.webhook_attempt_save is
  'Stores the result of one attempt to deliver an event. A failed delivery is tried again after a growing delay, at '
  'least p_retry_after_seconds, until a day after its first attempt; other deliveries of the webhook wait a shorter '
  'time. Disables a webhook that answers 410, or to which nothing was delivered in that day. Does nothing for a '
  'delivery that is no longer pending. Returns whether another attempt follows.';

create function core.webhook_queue_next() returns void language plpgsql as $$
declare
  v_run_at timestamptz := (
    select least(
      (select now() from webhook_event where body is null limit 1),
      (
        select min(greatest(next.next_attempt_at, w.retry_at))
        from webhook w
        cross join lateral (
          select next_attempt_at
          from webhook_delivery
          where webhook_id = w.id and status = 'pending'
          order by next_attempt_at
          limit 1
        ) next
        where w.is_active
      )));
begin
  if v_run_at is not null then
    perform core.add_jobs('deliver_webhooks',
      array[(jsonb_build_object('tenant_id', core.tenant_id()), 'next', v_run_at)::core.new_job]);
  end if;
end $$;
comment on function core.webhook_queue_next is
  'Queues a job `deliver_webhooks` of the current school or of the platform for the time when its next delivery is '
  'due, if there is one. It replaces the job that an earlier call queued.';

create function core.webhook_job_end(p_tenant_id bigint) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[];
begin
  if p_tenant_id is null or exists (select from core.schools_with('{}') s where s.id = p_tenant_id) then
    v_before := core.enter_tenant(p_tenant_id);
    perform core.webhook_queue_next(), core.leave_tenant(v_before);
  end if;
end $$;
comment on function core.webhook_job_end is
  'Queues the next job `deliver_webhooks` of an active school or of the platform, if it needs one.';
