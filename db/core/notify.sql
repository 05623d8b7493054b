-- Notifications: the one way to tell people something. What is told, to whom, and what carries it out of the house commit together
-- with what happened.

create table core.notification_event (
  key text primary key,
  description text not null,
  sample jsonb not null,
  variables text[] not null default '{}',
  channels text[] not null constraint notification_event_channels_check check (cardinality(channels) > 0 and channels <@ '{in_app,push,email}'),
  title text not null,
  message text not null
);
comment on table core.notification_event is 'The catalogue of events that notify, filled by db/seed: what their words may name, by which channels they go, and the words, unless operators or a school say otherwise.';

-- What the words of any message may name of who gets it.
create function core.recipient_variables() returns text[] language sql immutable
  return '{first_name,last_name,name,school_name}'::text[];
comment on function core.recipient_variables is 'The placeholders that are known of every recipient.';

-- The placeholders of a text in their order, each as often as it stands there: of «{{ name }}» the name.
create function core.template_names(p_template text) returns text[] language sql immutable
  return array(select trim(found[1]) from regexp_matches(p_template, '\{\{([^{}]*)\}\}', 'g') found);
comment on function core.template_names is 'The names of the placeholders of a text, in their order.';

-- A text as format() takes it: with its placeholders as %s.
create function core.template_format(p_template text) returns text language sql immutable
  return regexp_replace(replace(p_template, '%', '%%'), '\{\{[^{}]*\}\}', '%s', 'g');
comment on function core.template_format is 'A text with placeholders as format() takes it.';

-- Fills in placeholders, in one pass: a value that looks like a placeholder stays text. What has no value becomes nothing, so that this
-- can't fail.
create function core.fill(p_format text, p_names text[], p_variables jsonb) returns text language sql stable
  return format(p_format, variadic array(select p_variables ->> name from unnest(p_names) name));
comment on function core.fill is 'A text with its placeholders filled in, from what core.template_format and core.template_names answered.';

create function core.render(p_template text, p_variables jsonb) returns text language sql stable
  return core.fill(core.template_format(p_template), core.template_names(p_template), p_variables);
comment on function core.render is 'A text with its placeholders {{name}} filled in, in one pass.';

-- What was filled in as people get it: a title of one line, the name of the school where nothing is left of it; a message that is not too long.
create function core.as_title(p_filled text, p_school text) returns text language sql immutable
  return coalesce(nullif(left(trim(regexp_replace(p_filled, '\s+', ' ', 'g')), 200), ''), p_school);
comment on function core.as_title is 'A title as people get it.';

create function core.as_message(p_filled text) returns text language sql immutable
  return left(trim(p_filled), 5000);
comment on function core.as_message is 'A message as people get it.';

-- Refuses a text (of the field p_path) with a placeholder that is not known; says which are.
create function core.require_placeholders(p_path text, p_template text, p_known text[]) returns void language plpgsql stable as $$
declare
  v_unknown text;
begin
  select name into v_unknown from unnest(core.template_names(p_template)) name where name <> all (p_known) limit 1;
  if found then
    perform core.refuse_field('validation_error', p_path, format('There is no placeholder {{%s}} here. Known are: %s.', v_unknown,
      (select string_agg('{{' || name || '}}', ', ' order by place) from unnest(p_known) with ordinality k (name, place))));
  end if;
end $$;
comment on function core.require_placeholders is 'Raises validation_error for a placeholder that is not known.';

-- When quiet hours that a moment lies in end, in a time zone; null outside of them and without any.
create function core.quiet_until(p_from time, p_until time, p_time_zone text, p_moment timestamptz) returns timestamptz language sql stable
  return (
    select (local::date + case when p_from > p_until and local::time >= p_from then 1 else 0 end + p_until) at time zone p_time_zone
    from (select p_moment at time zone p_time_zone as local) m
    where case when p_from < p_until then local::time >= p_from and local::time < p_until else local::time >= p_from or local::time < p_until end
  );
comment on function core.quiet_until is 'When the quiet hours end that a moment lies in; null outside of them.';

create type core.notice as (place integer, channel text, user_id bigint, address text, name text, title text, message text);
comment on type core.notice is 'What one recipient gets by one channel.';

-- Makes messages to the same users (by id) and addresses take turns until they commit: ids are in order for each user, limits are counted for each
-- device and address. Up to 100 of them have a lock each, in the order of its keys, under one of the school that they share; more have that one
-- alone, since the server has not many. Whoever tells in two parts calls this first, for both, or two of them could wait for each other.
create function core.notify_turns(p_recipients text[]) returns void language plpgsql as $$
declare
  v_school bigint := 7314 * 4294967296 + core.tenant_id();
  v_key bigint;
begin
  if cardinality(p_recipients) > 100 then
    perform pg_advisory_xact_lock(v_school);
  else
    perform pg_advisory_xact_lock_shared(v_school);
    for v_key in select distinct 7317 * 4294967296 + (hashtextextended(name, core.tenant_id()) & 4294967295) from unnest(p_recipients) name order by 1 loop
      perform pg_advisory_xact_lock(v_key);
    end loop;
  end if;
end $$;
comment on function core.notify_turns is 'Makes messages to the same users and addresses take turns until they commit.';

-- Tells p_recipients something, by the channels that p_words names and operators allow: {in_app: {title, message}, push: …, email: …}, with
-- placeholders. Recipients as in core.notify. Answers how many were told; enqueues deliver. Security definer, since whoever causes a
-- message sees neither the addresses nor the devices of others.
-- Order: from the drawing of ids to the commit the messages of a user take turns, so that their ids are in the order of commits: who
-- reads what comes after an id misses nothing. Words are made before that.
create function core.notify_as(p_type text, p_words jsonb, p_recipients jsonb, p_action_url text default null) returns integer
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_tenant_id bigint := core.tenant_id();
  v_before text[] := core.enter_tenant(v_tenant_id);
  v_setting record;
  v_channels text[];
  v_notices core.notice[];
  v_users bigint[];
  v_ids bigint[];
  v_now timestamptz;
  v_jobs jsonb[];
begin
  select s.*, t.name as school, t.time_zone, date_trunc('day', now(), t.time_zone) as today into strict v_setting
    from platform.notification_setting s cross join platform.tenant t where t.id = v_tenant_id;
  v_channels := array(select c from jsonb_object_keys(p_words) c where case c when 'in_app' then v_setting.in_app when 'push' then v_setting.push when 'email' then v_setting.email end);

  with word as materialized (
    -- Channels that say the same are filled in once.
    select array_agg(c) as channels, core.template_format(title) as title, core.template_names(title) as title_names,
      core.template_format(message) as message, core.template_names(message) as message_names
    from unnest(v_channels) c, jsonb_to_record(p_words -> c) w (title text, message text) group by title, message
  ), recipient as materialized (
    -- Who can log in comes first: the places of these are those of v_ids.
    select row_number() over (order by u.id is null, r.place)::integer as place, u.id as user_id, coalesce(u.email, nullif(lower(trim(r.email)), '')) as email,
      coalesce(u.first_name || ' ' || u.last_name, r.name, '') as name,
      jsonb_build_object('first_name', coalesce(u.first_name, r.name), 'last_name', u.last_name, 'name', coalesce(u.first_name || ' ' || u.last_name, r.name),
        'school_name', v_setting.school) || coalesce(r.variables, '{}') as variables
    from rows from (jsonb_to_recordset(p_recipients) as (user_id bigint, email text, name text, variables jsonb)) with ordinality r (user_id, email, name, variables, place)
    left join user_account u on u.id = r.user_id and u.is_active and u.deleted_at is null
    where u.id is not null or r.user_id is null
  ), filled as materialized (
    select r.place, r.user_id, r.email, r.name, w.channels,
      core.as_title(core.fill(w.title, w.title_names, r.variables), v_setting.school) as title,
      -- A stream, a push and a table of thousands of these rely on the bound.
      core.as_message(core.fill(w.message, w.message_names, r.variables)) as message
    from recipient r cross join word w
  )
  select array_agg(row(f.place, c, f.user_id, f.email, f.name, f.title, f.message)::core.notice) into v_notices
    from filled f cross join unnest(f.channels) c
    where case c when 'in_app' then f.user_id is not null when 'push' then f.user_id in (select user_id from device) else f.email is not null end;

  if v_notices is not null then
    perform core.notify_turns(array(select distinct case n.channel when 'email' then n.address else n.user_id::text end from unnest(v_notices) n));
    v_now := clock_timestamp();
    v_ids := array(select nextval('notification_id_seq') from unnest(v_notices) n where n.channel = 'in_app');
    insert into notification (id, user_id, title, message, type, action_url, created_at, updated_at)
      select v_ids[n.place], n.user_id, n.title, n.message, p_type, p_action_url, v_now, v_now from unnest(v_notices) n where n.channel = 'in_app' order by n.place;

    with target as materialized (
      -- Kept until the commit: one that is removed meanwhile must not make this fail.
      select n.*, d.id as device_id from unnest(v_notices) n join device d on d.user_id = n.user_id where n.channel = 'push' for key share of d
    ), planned as (
      select t.*, v_setting.push_per_user_per_day as most,
        row_number() over (partition by t.device_id order by t.place) + case when v_setting.push_per_user_per_day is not null then
          (select count(*) from notification_delivery d where d.device_id = t.device_id and d.created_at >= v_setting.today and d.status <> 'dropped') end as nth
      from target t
      union all
      select n.*, null, v_setting.emails_per_user_per_day,
        row_number() over (partition by n.address order by n.place) + case when v_setting.emails_per_user_per_day is not null then
          (select count(*) from notification_delivery t where t.address = n.address and t.created_at >= v_setting.today and t.status <> 'dropped') end
      from unnest(v_notices) n where n.channel = 'email'
    ), made as (
      insert into notification_delivery (notification_id, user_id, channel, device_id, address, recipient_name, title, message, action_url, status, reason, created_at, updated_at)
        select v_ids[place], user_id, channel, device_id, case when channel = 'email' then address end, name, title, message, p_action_url,
          case when nth > most then 'dropped' else 'pending' end, case when nth > most then 'daily_limit' end, v_now, v_now
        from planned order by place, device_id
        returning id, status
    )
    -- Where others of the school told at the same time, some numbers between are theirs.
    select array_agg(jsonb_build_object('from_id', from_id, 'to_id', to_id) || case when to_id - from_id >= cardinality(ids) then jsonb_build_object('only', ids) else '{}' end order by from_id) into v_jobs
      from (select min(id) as from_id, max(id) as to_id, array_agg(id order by id) as ids
            from (select id, (row_number() over (order by id) - 1) / 100 as batch from made where status = 'pending') pending group by batch) batches;
    if v_jobs is not null then
      perform core.enqueue_all('deliver', v_jobs, p_run_at => core.quiet_until(v_setting.quiet_from, v_setting.quiet_until, v_setting.time_zone, now()));
    end if;

    v_users := array(select distinct n.user_id from unnest(v_notices) n where n.channel = 'in_app' order by n.user_id);
    if cardinality(v_users) > 1000 then
      perform pg_notify('school_events', json_build_object('tenant', v_tenant_id)::text);
    else
      perform pg_notify('school_events', json_build_object('tenant', v_tenant_id, 'users', array_agg(id))::text)
        from unnest(v_users) with ordinality u (id, place) group by (place - 1) / 350 order by (place - 1) / 350;
    end if;
  end if;
  perform core.leave_tenant(v_before);
  return (select count(distinct n.place) from unnest(v_notices) n);
end $$;
comment on function core.notify_as is 'Tells people something in given words, by given channels; answers how many.';

-- What a school hears of whatever features it has: else operators could take the feature away for as long as they are logged in for its admins.
create function core.is_mandatory(p_event text) returns boolean language sql immutable
  return coalesce(p_event = 'operator.login', false);
comment on function core.is_mandatory is 'Whether a school hears of an event also without notifications.';

-- Tells p_recipients of an event of the catalogue: [{user_id?, email?, name?, variables?}], with user_id a user of the school, whose address is
-- read here, else an e-mail address alone, of a parent for example. Words and channels: the catalogue's, unless operators, unless the school
-- say otherwise. Tells nobody when the school has switched the event off or has no notifications (core.is_mandatory apart). Answers how many were told. To be
-- called last in an operation: who tells the same users waits until the commit.
create function core.notify(p_event text, p_recipients jsonb, p_action_url text default null) returns integer
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[];
  v_words jsonb;
begin
  if coalesce(jsonb_array_length(p_recipients), 0) = 0 or not (core.is_mandatory(p_event) or 'notifications' = any (core.tenant_features())) then
    return 0;
  end if;
  v_before := core.enter_tenant(core.tenant_id());
  select jsonb_object_agg(way.channel, jsonb_build_object('title', coalesce(mine.title, theirs.subject, e.title), 'message', coalesce(mine.message, theirs.body, e.message)))
    into v_words
    from core.notification_event e
    left join notification_event decided on decided.event = e.key
    cross join unnest(coalesce(decided.channels, e.channels)) way (channel)
    left join platform.notification_template theirs on theirs.key = e.key and theirs.channel = way.channel and theirs.is_active
    left join notification_template mine on lower(mine.name) = e.key
    where e.key = p_event and coalesce(decided.is_enabled, true);
  perform core.leave_tenant(v_before);
  if v_words is null then
    return 0;
  end if;
  return core.notify_as(p_event, v_words, p_recipients, p_action_url);
end $$;
comment on function core.notify is 'Tells people of an event of the catalogue, as operators and the school have decided; answers how many.';
