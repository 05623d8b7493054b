-- The worker (workers/outbox.ts) writes the notifications of the events in platform.outbox. It finds the recipients,
-- and stores the notifications, the deliveries and the jobs that send them. Only one transaction at a time does this
-- for a school. So the ids of its notifications are in commit order, and its daily limits are exact. Decision 0070.

-- In PL/pgSQL, because Postgres before 18 plans the query of an SQL function in each transaction, and the worker asks
-- twenty times a second. All functions for rows of the outbox use an index (enable_seqscan): their plans are made when
-- the table is empty, and kept when it is long.
create function core.outbox_schools() returns table (school_id bigint, traceparent text)
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
  -- Some look-ups per school, however many rows a school has. Rows that wait for another attempt have an index of their
  -- own, because thousands of them may wait for hours, or forever.
  return query
    with recursive waiting as (
      select 0::bigint as tenant_id
      union all
      select least(
        (
          select o.tenant_id
          from platform.outbox o
          where o.tenant_id > w.tenant_id and o.retry_at is null
          order by o.tenant_id
          limit 1),
        (
          select o.tenant_id
          from platform.outbox o
          where o.tenant_id > w.tenant_id and o.retry_at is not null
          order by o.tenant_id
          limit 1))
      from waiting w
      where w.tenant_id is not null
    )
    select t.id, due.traceparent
    from waiting w
    join platform.tenant t on t.id = w.tenant_id and t.node_id is null
      and t.schema_version >= core.required_schema_version()
    cross join lateral (
      (
        select o.traceparent
        from platform.outbox o
        where o.tenant_id = t.id and o.retry_at is null
        order by o.id
        limit 1)
      union all
      (
        select o.traceparent
        from platform.outbox o
        where o.tenant_id = t.id and o.retry_at <= now()
        order by o.retry_at
        limit 1)
      limit 1) due
    order by t.id;
end $$;
comment on function core.outbox_schools is
  'The schools of this server with events to write, and the trace of the first event of each. Security definer, since '
  'the worker may read no table of the platform.';

create function core.outbox_take_webhooks(p_tenant_id bigint) returns boolean
  language plpgsql set enable_seqscan = off as $$
begin
  delete from platform.outbox where tenant_id = p_tenant_id and event = 'webhooks';
  return found;
end $$;
comment on function core.outbox_take_webhooks is
  'Deletes the rows `webhooks` of a school, and returns whether there were any. One job delivers the events of all.';

create function core.outbox_batch(p_tenant_id bigint) returns bigint[]
  language plpgsql stable set enable_seqscan = off as $$
begin
  return array(
    (
      select id
      from platform.outbox
      where tenant_id = p_tenant_id and written > 0 and (retry_at is null or retry_at <= now())
      order by id
      limit 1)
    union all
    (
      select id
      from platform.outbox
      where tenant_id = p_tenant_id and written = 0 and retry_at is null and event <> 'webhooks'
      order by id
      limit 100)
    union all
    (
      select id
      from platform.outbox
      where tenant_id = p_tenant_id and written = 0 and retry_at <= now() and event <> 'webhooks'
      order by retry_at
      limit 20));
end $$;
comment on function core.outbox_batch is
  'The events of a school that are written next: the first of those that are partly written, a hundred others, and '
  'twenty that are tried again. So a message to thousands, or thousands of events that fail, delay no other event.';

create function core.outbox_rows(p_ids bigint[]) returns setof platform.outbox
  language plpgsql stable set enable_seqscan = off as $$
begin
  return query select * from platform.outbox where id = any (p_ids) order by written = 0, id;
end $$;
comment on function core.outbox_rows is 'Rows of the outbox: those that are partly written, then the others in order.';

create function core.outbox_delete(p_ids bigint[]) returns void language plpgsql set enable_seqscan = off as $$
begin
  delete from platform.outbox where id = any (p_ids);
end $$;
comment on function core.outbox_delete is 'Deletes rows of the outbox.';

create function core.outbox_advance(p_id bigint, p_recipients jsonb, p_slice integer) returns void
  language plpgsql set enable_seqscan = off as $$
begin
  update platform.outbox
    set facts = case when facts ? 'recipients' then facts
        else facts || jsonb_build_object('recipients', p_recipients) end,
      written = written + p_slice, attempts = 0, retry_at = null, error = null
    where id = p_id;
end $$;
comment on function core.outbox_advance is
  'Notes that a slice of the recipients of a row is written, and keeps the recipients. The row has all attempts again.';

create function core.outbox_recipients(p_row platform.outbox) returns jsonb language plpgsql as $$
declare
  v_function text := (select recipients from core.notification_event where key = p_row.event);
  v_recipients jsonb := p_row.facts -> 'recipients';
begin
  if v_function is null and p_row.event <> 'message' then
    raise exception 'This release has no event %. A newer release has probably stored it: %', p_row.event,
      format('upgrade again, or remove the event: school jobs cancel --task outbox %s', p_row.id);
  end if;
  if v_recipients is null then
    execute format('select api.%I($1)', v_function)
      into v_recipients
      using p_row.facts || jsonb_build_object('event', p_row.event, 'at', p_row.created_at);
  end if;
  return coalesce(v_recipients, '[]');
end $$;
comment on function core.outbox_recipients is
  'The recipients of a row of the outbox, [{user_id?, email?, name?, variables?}], as they are now. A function of api '
  'finds them, which gets the facts with the event and the moment {at}. None if the event was undone meanwhile. Raises '
  'an error for an event that is not in the catalog.';

create function core.event_words(p_events text[]) returns table (event text, words jsonb, is_written_by_people boolean)
  language sql stable as $$
  select
    e.key,
    jsonb_object_agg(chosen.channel, jsonb_build_object(
      'title', coalesce(school_text.title, operator_text.subject, e.title),
      'message', coalesce(school_text.message, operator_text.body, e.message),
      'action_url', school_text.action_url)),
    core.is_written_by_people(e.key, bool_or(school_text.id is not null))
  from core.notification_event e
  left join notification_event decided on decided.event = e.key
  cross join unnest(coalesce(decided.channels, e.channels)) chosen (channel)
  left join platform.notification_template operator_text
    on operator_text.key = e.key and operator_text.channel = chosen.channel and operator_text.is_active
  left join notification_template school_text on lower(school_text.name) = e.key
  where e.key = any (p_events)
    and coalesce(decided.is_enabled, true)
    and (core.is_mandatory(e.key) or 'notifications' = any (core.tenant_features()))
  group by e.key
$$;
comment on function core.event_words is
  'The texts of events of the catalog on each of their channels, {in_app: {title, message, action_url}, …}. Texts of '
  'the school override those of operators, which override the catalog. Leaves out the events that the school has '
  'disabled. Without the feature notifications, leaves out all but mandatory events (core.is_mandatory).';

create function core.store_mailings(
    p_mailings jsonb, p_school text, p_setting platform.notification_setting, p_day_began_at timestamptz)
  returns json language plpgsql as $$
declare
  v_now timestamptz := clock_timestamp();
  v_stored json;
begin
  with mailing as materialized (
    select *
    from rows from (
      jsonb_to_recordset(p_mailings) as (
        type text, words jsonb, recipients jsonb, variables jsonb, limits_unconfirmed boolean, traceparent text)
    ) with ordinality
      m (type, words, recipients, variables, limits_unconfirmed, traceparent, mailing_number)
  ), template as materialized (
    -- Channels with the same text are rendered once.
    select
      m.mailing_number,
      array_agg(w.channel) as channels,
      core.template_format(core.with_full_names(title)) as title,
      core.placeholder_names(core.with_full_names(title)) as title_names,
      core.template_format(core.with_full_names(message)) as message,
      core.placeholder_names(core.with_full_names(message)) as message_names,
      action_url
    from mailing m
    cross join jsonb_each(m.words) w (channel, text)
    cross join jsonb_to_record(w.text) t (title text, message text, action_url text)
    group by m.mailing_number, title, message, action_url
  ), recipient as materialized (
    select
      row_number() over in_order as recipient_number,
      -- The index into notification_ids.
      case when m.words ? 'in_app' and r.user_id is not null then
        count(*) filter (where m.words ? 'in_app' and r.user_id is not null) over (in_order rows unbounded preceding)
      end as notification_number,
      m.mailing_number,
      m.type,
      m.limits_unconfirmed,
      m.traceparent,
      r.user_id,
      r.email,
      r.is_unconfirmed,
      coalesce(core.full_name(r.first_name, r.last_name), r.name, '') as name,
      jsonb_build_object(
        'first_name', coalesce(r.first_name, r.name),
        'last_name', r.last_name,
        'name', coalesce(core.full_name(r.first_name, r.last_name), r.name),
        'school_name', p_school
      ) || coalesce(m.variables, '{}') || coalesce(r.variables, '{}') as variables,
      r.link_ids
    from mailing m
    cross join core.reachable_recipients(m.recipients) r
    window in_order as (order by m.mailing_number, r.user_id is null, r.recipient_number)
  ), rendered as materialized (
    select
      r.recipient_number, r.notification_number, r.type, r.limits_unconfirmed, r.traceparent, r.user_id, r.email,
      r.is_unconfirmed, r.name, r.link_ids, t.channels, t.action_url,
      core.clean_title(core.fill_placeholders(t.title, t.title_names, r.variables), p_school) as title,
      -- Without a maximum length, thousands of messages could overload streams, push services and tables.
      core.clean_message(core.fill_placeholders(t.message, t.message_names, r.variables)) as message
    from recipient r
    join template t using (mailing_number)
  ), notification_ids as materialized (
    -- An array instead of a join: Postgres expects few recipients and would join a thousand ids in a nested loop.
    select array(
      select nextval('notification_id_seq') from recipient where notification_number is not null) as ids
  ), notified as (
    insert into notification (id, user_id, title, message, type, action_url, created_at, updated_at)
      select
        (select ids from notification_ids)[notification_number], user_id, title, message, type, action_url, v_now, v_now
      from rendered
      where 'in_app' = any (channels) and user_id is not null
      order by recipient_number
      returning user_id
  ), target as materialized (
    -- The lock keeps a device until the commit: if it were removed meanwhile, the insert below would fail.
    select m.*, d.id as device_id
    from rendered m
    join device d on d.user_id = m.user_id
    where 'push' = any (m.channels)
    for key share of d
  ), planned as (
    select
      t.*,
      'push' as channel,
      p_setting.push_per_user_per_day as daily_limit,
      row_number() over (partition by t.device_id order by t.recipient_number)
        + case when p_setting.push_per_user_per_day is not null then (
            select count(*) from notification_delivery d
            where d.device_id = t.device_id and d.created_at >= p_day_began_at and d.status <> 'dropped'
          ) end as number_today
    from target t
    union all
    select
      m.*,
      null,
      'email',
      -- Emails to unconfirmed addresses are postponed (db/jobs/delivery.sql) instead of dropped.
      case
        when m.limits_unconfirmed and m.is_unconfirmed and p_setting.emails_per_user_per_day > 0 then null
        else p_setting.emails_per_user_per_day
      end,
      row_number() over (partition by m.email order by m.recipient_number)
        + case when p_setting.emails_per_user_per_day is not null then (
            select count(*) from notification_delivery d
            where d.address = m.email and d.created_at >= p_day_began_at and d.status <> 'dropped'
          ) end
    from rendered m
    where 'email' = any (m.channels) and m.email is not null
  ), numbered as materialized (
    select p.*, nextval('notification_delivery_id_seq') as delivery_id,
      case when number_today > daily_limit then 'dropped' else 'pending' end as status
    from (select * from planned order by limits_unconfirmed, recipient_number, device_id) p
  ), delivered as (
    insert into notification_delivery (id, notification_id, user_id, channel, device_id, address, recipient_name,
        title, message, action_url, status, reason, link_ids, created_at, updated_at)
      select
        delivery_id, (select ids from notification_ids)[notification_number], user_id, channel, device_id,
        case when channel = 'email' then email end, name, title, message, action_url, status,
        case when status = 'dropped' then 'daily_limit' end, link_ids, v_now, v_now
      from numbered
      order by delivery_id
  ), batch as (
    select limits_unconfirmed, min(delivery_id) as from_id, max(delivery_id) as to_id,
      array_agg(delivery_id order by delivery_id) as ids,
      (array_agg(traceparent order by delivery_id) filter (where traceparent is not null))[1] as traceparent
    from (
      select limits_unconfirmed, delivery_id, traceparent,
        (row_number() over (partition by limits_unconfirmed order by delivery_id) - 1) / 100 as batch_number
      from numbered
      where status = 'pending'
    ) pending
    group by limits_unconfirmed, batch_number
  )
  select json_build_object(
      'jobs', (
        select json_agg(jsonb_strip_nulls(jsonb_build_object(
            'tenant_id', core.tenant_id(),
            'from_id', from_id,
            'to_id', to_id,
            'limits_unconfirmed', nullif(limits_unconfirmed, false),
            -- The range may contain other ids, such as those of dropped deliveries.
            'only', case when to_id - from_id >= cardinality(ids) then to_jsonb(ids) end,
            'traceparent', traceparent)) order by from_id)
        from batch),
      'user_ids', (select json_agg(distinct user_id order by user_id) from notified))
    into v_stored;
  return v_stored;
end $$;
comment on function core.store_mailings is
  'Renders the words of mailings, [{type, words, recipients, variables?, limits_unconfirmed, traceparent?}], for each '
  'recipient, and stores a notification for each user who can log in, and a delivery for each of their devices and '
  'each email address; drops those above the daily limits, except emails that may have to wait (limits_unconfirmed). '
  '{jobs: the payloads of the jobs `deliver` for the rest, at most 100 deliveries each, or null; user_ids: the users '
  'with a notification, or null}.';

create function core.send_mailings(p_mailings jsonb) returns void language plpgsql as $$
declare
  v_setting platform.notification_setting;
  v_tenant record;
  v_stored json;
begin
  select * into strict v_setting from platform.notification_setting;
  select name, time_zone into strict v_tenant from platform.tenant where id = core.tenant_id();
  v_stored := core.store_mailings(p_mailings, v_tenant.name, v_setting, core.day_begins(core.today()));
  if v_stored ->> 'jobs' is not null then
    perform core.add_jobs('deliver', array(
      select (job.value, null, core.quiet_hours_end(
        v_setting.quiet_from, v_setting.quiet_until, v_tenant.time_zone, now()))::core.new_job
      from jsonb_array_elements((v_stored -> 'jobs')::jsonb) job));
  end if;
  if v_stored ->> 'user_ids' is not null then
    perform core.publish_notifications(array(select json_array_elements_text(v_stored -> 'user_ids')::bigint));
  end if;
end $$;
comment on function core.send_mailings is
  'Stores mailings (core.store_mailings), queues the jobs that deliver them, after the quiet hours, and wakes the '
  'streams of their users.';

create function core.outbox_attempts() returns integer language sql immutable return 12;
comment on function core.outbox_attempts is
  'How often the worker tries to write the notifications of an event: about a day long. Later, most of them would '
  'mislead. The row stays until an operator tries it again or removes it (`school jobs`).';

create function core.outbox_postpone(p_id bigint, p_error text) returns void
  language sql set enable_seqscan = off as $$
  update platform.outbox
    set attempts = attempts + 1,
      retry_at = case
        when attempts + 1 < core.outbox_attempts() then now() + core.retry_delay(attempts + 1)
        else 'infinity'
      end,
      error = core.error_line(p_error)
    where id = p_id
$$;
comment on function core.outbox_postpone is
  'Tries a row again after 10, 30, 90 seconds, …, 4 hours; after the last attempt (core.outbox_attempts) never.';

create function core.outbox_lifetime() returns interval language sql immutable return interval '1 day';
comment on function core.outbox_lifetime is
  'How long an event may wait for the worker. After that, for example after an outage or a rollback, most of its '
  'notifications would mislead, so an operator decides (`school jobs`). Messages that people write have no limit.';

create function core.outbox_give_up(p_id bigint, p_error text) returns void
  language sql set enable_seqscan = off as $$
  update platform.outbox set retry_at = 'infinity', error = p_error where id = p_id
$$;
comment on function core.outbox_give_up is 'Keeps a row for an operator, who tries it again or removes it.';

create function core.outbox_write_rows(p_ids bigint[], p_words jsonb, out events integer, out recipients integer)
  language plpgsql as $$
declare
  v_row platform.outbox;
  v_recipients jsonb;
  v_length integer;
  v_slice integer;
  v_mailings jsonb := '[]';
  v_done bigint[] := '{}';
begin
  events := 0;
  recipients := 0;
  for v_row in
    select * from core.outbox_rows(p_ids)
  loop
    -- An event that the school has disabled has no recipients.
    v_recipients := '[]';
    if p_words ? v_row.event or not exists (select from core.notification_event where key = v_row.event) then
      -- An attempt, a slice and `jobs retry` change the row.
      if v_row.event <> 'message' and v_row.updated_at < now() - core.outbox_lifetime() then
        perform core.outbox_give_up(v_row.id, 'The event has waited for more than a day, so its notifications would '
          'mislead. Decide: school jobs retry --task outbox, or school jobs cancel --task outbox --failed');
        continue;
      end if;
      begin
        v_recipients := core.outbox_recipients(v_row);
        v_slice := least(jsonb_array_length(v_recipients) - v_row.written, core.outbox_slice());
        if v_row.written = 0 and recipients > 0 and recipients + v_slice > core.outbox_slice() then
          raise exception using errcode = 'S0OUT', message = 'The batch is full.';
        end if;
      -- Undoes what the function of this event has changed: the next batch calls it again.
      exception when sqlstate 'S0OUT' then
        exit;
      end;
    end if;
    v_length := jsonb_array_length(v_recipients);
    v_slice := least(v_length - v_row.written, core.outbox_slice());
    events := events + 1;
    if v_row.written = 0 then
      recipients := recipients + v_slice;
    end if;
    if v_slice < v_length then
      perform core.outbox_advance(v_row.id, v_recipients, v_slice);
      v_recipients := jsonb_path_query_array(v_recipients, '$[$from to $to]',
        jsonb_build_object('from', v_row.written, 'to', v_row.written + v_slice - 1));
    end if;
    if v_row.written + v_slice = v_length then
      v_done := v_done || v_row.id;
    end if;
    if v_slice > 0 then
      v_mailings := v_mailings || jsonb_build_array(
        case
          when v_row.event = 'message' then v_row.facts - 'recipients' || jsonb_build_object(
            'words', core.open_words(v_row.facts -> 'words'), 'limits_unconfirmed', true)
          else p_words -> v_row.event
        end || jsonb_build_object('recipients', v_recipients, 'traceparent', v_row.traceparent));
    end if;
  end loop;
  perform core.outbox_delete(v_done);
  if v_mailings <> '[]' then
    perform core.send_mailings(v_mailings);
  end if;
end $$;
comment on function core.outbox_write_rows is
  'Finds the recipients of events, writes their notifications and deletes the rows, all or none: in order, as many '
  'events as have a thousand recipients together, and beside them a thousand recipients of an event that is partly '
  'written. p_words: the texts of the events that are enabled. Returns the numbers of events, and of recipients of '
  'those that were not partly written. Keeps events that have waited too long (core.outbox_lifetime) for an operator. '
  'Fails if one event fails.';

create function core.outbox_write(p_tenant_id bigint) returns integer
  language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
  v_before text[];
  v_batch bigint[];
  v_words jsonb;
  v_id bigint;
  v_written record;
  v_recipients integer := 0;
  v_events integer := 0;
begin
  -- A school that is migrated, or moves, is written to afterwards; and while a node that was restored copies the plans
  -- and settings of the home again, nothing is known about its channels.
  if not pg_try_advisory_xact_lock(core.lock_key('notifications', p_tenant_id))
    or not core.try_lock_schema(p_tenant_id)
    or not exists (
      select
      from platform.tenant t
      join platform.plan p on p.id = t.plan_id
      cross join platform.notification_setting
      where t.id = p_tenant_id)
  then
    return null;
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  if core.outbox_take_webhooks(p_tenant_id) then
    perform core.add_jobs('deliver_webhooks',
      array[(jsonb_build_object('tenant_id', p_tenant_id), null, null)::core.new_job]);
  end if;
  -- What is committed from here on belongs to the next batch.
  v_batch := core.outbox_batch(p_tenant_id);
  v_words := (
    select coalesce(jsonb_object_agg(w.event, jsonb_build_object(
      'type', w.event, 'words', core.open_words(w.words), 'limits_unconfirmed', w.is_written_by_people)), '{}')
    from core.event_words(array(select distinct event from core.outbox_rows(v_batch))) w);
  begin
    select * into v_written from core.outbox_write_rows(v_batch, v_words);
    v_events := v_written.events;
  exception
    -- Another transaction holds up the whole school, for example one that changes a table.
    when lock_not_available then
      raise;
    when others then
      -- One of the events is to blame, so each is written alone.
      foreach v_id in array v_batch loop
        begin
          select * into v_written from core.outbox_write_rows(array[v_id], v_words);
          v_events := v_events + v_written.events;
          v_recipients := v_recipients + v_written.recipients;
        exception
          when lock_not_available then
            raise;
          when others then
            perform core.outbox_postpone(v_id, sqlerrm);
        end;
        exit when v_recipients >= core.outbox_slice();
      end loop;
  end;
  perform core.leave_tenant(v_before);
  return v_events;
end $$;
comment on function core.outbox_write is
  'Writes the notifications of the next events of a school (core.outbox_batch, core.outbox_write_rows), and queues the '
  'job of its webhooks. Returns the number of events; null if another worker writes for the school, or it is migrated '
  'or moves. An event whose recipients cannot be found, or whose notifications cannot be stored, is postponed, and '
  'nothing of it is kept. Fails if another transaction keeps a lock for two seconds. Security definer, since the '
  'worker may read no school.';
