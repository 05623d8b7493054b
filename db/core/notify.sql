-- Notifications. A notification, its deliveries and the job that sends them commit together with the change that caused
-- them.

create table core.notification_event (
  key text primary key,
  description text not null,
  sample jsonb not null,
  variables text[] not null default '{}',
  channels text[] not null
    constraint notification_event_channels_check
    check (cardinality(channels) > 0 and channels <@ '{in_app,push,email}'),
  title text not null,
  message text not null
);
comment on table core.notification_event is
  'The catalog of events that send notifications, filled by db/seed: the variables of each event, its default '
  'channels and its default texts. Operators and schools may override the texts, schools also the channels.';

create function core.recipient_variables() returns text[] language sql immutable
  return '{first_name,last_name,name,school_name}'::text[];
comment on function core.recipient_variables is 'The placeholders that every text may use, for any recipient.';

create function core.placeholder_names(p_template text) returns text[] language sql immutable
  return array(select found[1] from regexp_matches(p_template, '\{\{([^{}]*)\}\}', 'g') found);
comment on function core.placeholder_names is
  'The names of the possible placeholders of a text in the order of the text, repeated ones repeatedly, and with the '
  'spaces around them.';

create function core.template_format(p_template text) returns text language sql immutable
  return regexp_replace(replace(p_template, '%', '%%'), '\{\{[^{}]*\}\}', '%s', 'g');
comment on function core.template_format is 'A text with placeholders as a format string: each placeholder becomes %s.';

create function core.fill_placeholders(p_format text, p_names text[], p_variables jsonb) returns text
  language sql stable
  return format(p_format, variadic array(
    select case when p_variables ? trim(name) then p_variables ->> trim(name) else '{{' || name || '}}' end
    from unnest(p_names) name));
comment on function core.fill_placeholders is
  'Fills in the result of core.template_format, given that of core.placeholder_names. A value that looks like a '
  'placeholder stays as it is. A variable that is null becomes empty; a {{name}} that is no variable stays as text.';

create function core.render(p_template text, p_variables jsonb) returns text language sql stable
  return core.fill_placeholders(core.template_format(p_template), core.placeholder_names(p_template), p_variables);
comment on function core.render is 'A text with its placeholders {{name}} filled in, in one pass.';

create function core.clean_title(p_filled text, p_school text) returns text language sql immutable
  return coalesce(nullif(left(trim(regexp_replace(p_filled, '\s+', ' ', 'g')), 200), ''), p_school);
comment on function core.clean_title is
  'A rendered title on one line of at most 200 characters; the name of the school if nothing is left.';

create function core.clean_message(p_filled text) returns text language sql immutable
  return left(trim(p_filled), 5000);
comment on function core.clean_message is 'A rendered message, trimmed and cut to 5,000 characters.';

create function core.written_day(p_day date) returns text language sql immutable
  return to_char(p_day, 'FMDD FMMonth YYYY');
comment on function core.written_day is 'A date as text: 1 September 2026.';

create function core.quiet_hours_end(p_from time, p_until time, p_time_zone text, p_moment timestamptz)
  returns timestamptz language sql stable
  return (
    select (local::date + case when p_from > p_until and local::time >= p_from then 1 else 0 end + p_until)
      at time zone p_time_zone
    from (select p_moment at time zone p_time_zone as local) m
    where case
      when p_from < p_until then local::time >= p_from and local::time < p_until
      else local::time >= p_from or local::time < p_until
    end
  );
comment on function core.quiet_hours_end is
  'The end of the quiet hours that contain a moment; null outside of quiet hours, and when none are set.';

create function core.lock_notification_recipients(p_recipients text[]) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_school bigint := core.lock_key('notifications', core.tenant_id());
  v_key bigint;
begin
  if cardinality(p_recipients) > 100 then
    perform pg_advisory_xact_lock(v_school);
  else
    perform pg_advisory_xact_lock_shared(v_school);
    for v_key in
      select distinct core.lock_key('recipient', hashtextextended(name, core.tenant_id()))
      from unnest(p_recipients) name order by 1
    loop
      perform pg_advisory_xact_lock(v_key);
    end loop;
  end if;
end $$;
comment on function core.lock_notification_recipients is
  'Locks users (by id) and email addresses until the commit, so that the notification ids of a user are in commit '
  'order and the daily limits per device and address are counted exactly. Up to 100 recipients get a lock each, in '
  'key order, plus a shared lock of the school; more take the lock of the school exclusively, because the lock table '
  'of the server is small.';

-- These statements run through core.run_prepared: many requests notify somebody, and planning takes several times as
-- long as running. Their parameters contain the words and the recipients, but not the rendered texts, of which 10,000
-- recipients can have 100 MB. No row that is sorted or read repeatedly contains all recipients, because Postgres would
-- copy them for each row.
-- Postgres replaces a call by its text, so it costs nothing.
create function core.reachable_recipients(p_recipients jsonb)
  returns table (
    recipient_number bigint, user_id bigint, email text, is_unconfirmed boolean, first_name text, last_name text,
    name text, variables jsonb)
  language sql stable as $$
  select r.n, u.id, coalesce(u.email, nullif(lower(trim(r.email)), '')),
    u.id is not null and u.email_verified_at is null, u.first_name, u.last_name, r.name, r.variables
  from rows from (
    jsonb_to_recordset(p_recipients) as (user_id bigint, email text, name text, variables jsonb)
  ) with ordinality r (user_id, email, name, variables, n)
  -- With a limit, Postgres looks up each user. It expects 100 times as many and would read all.
  left join lateral (
    select id, email, email_verified_at, first_name, last_name
    from user_account
    where id = r.user_id and is_active and deleted_at is null
    limit 1
  ) u on true
  where u.id is not null or r.user_id is null
$$;
comment on function core.reachable_recipients is
  'The recipients of a mailing (as in core.notify_all) without users who cannot log in: the user or null, the address '
  'of the user or the given one, whether a user has not confirmed it, the names of the user, and what was given.';

create function core.recipients_to_lock(p_mailings jsonb) returns text[] language plpgsql as $$
declare
  v_names json := core.run_prepared($statement$
    select json_agg(distinct reached)
    from (
      select m.value -> 'recipients' as recipients, m.value -> 'words' ?| '{in_app,push}' as reaches_users,
        m.value -> 'words' ? 'email' as reaches_addresses
      from jsonb_array_elements((select core.parameters())) m (value)
    ) mailing
    cross join core.reachable_recipients(mailing.recipients) r
    cross join unnest(array[
      case when reaches_users then r.user_id::text end, case when reaches_addresses then r.email end]) reached
    where reached is not null
  $statement$, p_mailings);
begin
  return array(select json_array_elements_text(v_names));
end $$;
comment on function core.recipients_to_lock is
  'The users and addresses that mailings (as in core.send_mailings) can reach, for core.lock_notification_recipients.';

create function core.store_mailings(
    p_mailings jsonb, p_school text, p_setting platform.notification_setting,
    p_day_began_at timestamptz, p_limits_unconfirmed boolean)
  returns json language plpgsql as $$
begin
  return core.run_prepared($statement$
    with request as materialized (
      select r.*
      from jsonb_to_record((select core.parameters())) r (
        school text, push_limit integer, email_limit integer, day_began_at timestamptz,
        limits_unconfirmed boolean, now timestamptz)
    ), mailing as materialized (
      select m.n as mailing_number, m.value ->> 'type' as type, m.value -> 'words' as words,
        m.value -> 'recipients' as recipients
      from jsonb_array_elements((select core.parameters() -> 'mailings')) with ordinality m (value, n)
    ), template as materialized (
      -- Channels with the same text are rendered once.
      select
        m.mailing_number,
        array_agg(w.channel) as channels,
        core.template_format(title) as title,
        core.placeholder_names(title) as title_names,
        core.template_format(message) as message,
        core.placeholder_names(message) as message_names,
        action_url
      from mailing m
      cross join jsonb_each(m.words) w (channel, text)
      cross join jsonb_to_record(w.text) t (title text, message text, action_url text)
      group by m.mailing_number, title, message, action_url
    ), recipient as materialized (
      select
        row_number() over in_order as recipient_number,
        -- The number of the notification of the recipient, among all of them.
        case when m.words ? 'in_app' and r.user_id is not null then
          count(*) filter (where m.words ? 'in_app' and r.user_id is not null) over (in_order rows unbounded preceding)
        end as notification_number,
        m.mailing_number,
        m.type,
        r.user_id,
        r.email,
        r.is_unconfirmed,
        coalesce(r.first_name || ' ' || r.last_name, r.name, '') as name,
        jsonb_build_object(
          'first_name', coalesce(r.first_name, r.name),
          'last_name', r.last_name,
          'name', coalesce(r.first_name || ' ' || r.last_name, r.name),
          'school_name', (select school from request)
        ) || coalesce(r.variables, '{}') as variables
      from mailing m
      cross join core.reachable_recipients(m.recipients) r
      -- Users come first.
      window in_order as (order by r.user_id is null, m.mailing_number, r.recipient_number)
    ), rendered as materialized (
      select
        r.recipient_number, r.notification_number, r.type, r.user_id, r.email, r.is_unconfirmed, r.name, t.channels,
        core.clean_title(
          core.fill_placeholders(t.title, t.title_names, r.variables), (select school from request)) as title,
        -- The maximum length keeps streams, push messages and tables of thousands of these within bounds.
        core.clean_message(core.fill_placeholders(t.message, t.message_names, r.variables)) as message,
        t.action_url
      from recipient r join template t using (mailing_number)
    ), notification_ids as materialized (
      -- An array instead of a join: Postgres expects few recipients and would join 10,000 ids in a nested loop.
      select array(
        select nextval('notification_id_seq') from recipient where notification_number is not null) as ids
    ), notified as (
      insert into notification (id, user_id, title, message, type, action_url, created_at, updated_at)
        select
          (select ids from notification_ids)[m.notification_number],
          m.user_id, m.title, m.message, m.type, m.action_url, r.now, r.now
        from rendered m cross join request r
        where 'in_app' = any (m.channels) and m.user_id is not null
        order by m.recipient_number
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
        r.push_limit as daily_limit,
        row_number() over (partition by t.device_id order by t.recipient_number)
          + case when r.push_limit is not null then (
              select count(*) from notification_delivery d
              where d.device_id = t.device_id and d.created_at >= r.day_began_at and d.status <> 'dropped'
            ) end as number_today
      from target t cross join request r
      union all
      select
        m.*,
        null,
        'email',
        -- Above the limit, an email that may have to wait anyway waits for another day.
        case when r.limits_unconfirmed and m.is_unconfirmed and r.email_limit > 0 then null else r.email_limit end,
        row_number() over (partition by m.email order by m.recipient_number)
          + case when r.email_limit is not null then (
              select count(*) from notification_delivery d
              where d.address = m.email and d.created_at >= r.day_began_at and d.status <> 'dropped'
            ) end
      from rendered m cross join request r
      where 'email' = any (m.channels) and m.email is not null
    ), inserted as (
      insert into notification_delivery (notification_id, user_id, channel, device_id, address, recipient_name,
          title, message, action_url, status, reason, created_at, updated_at)
        select
          (select ids from notification_ids)[p.notification_number], p.user_id, p.channel, p.device_id,
          case when p.channel = 'email' then p.email end,
          p.name, p.title, p.message, p.action_url,
          case when p.number_today > p.daily_limit then 'dropped' else 'pending' end,
          case when p.number_today > p.daily_limit then 'daily_limit' end,
          r.now, r.now
        from planned p cross join request r
        order by p.recipient_number, p.device_id
        returning id, status
    ), batch as (
      select min(id) as from_id, max(id) as to_id, array_agg(id order by id) as ids
      from (
        select id, (row_number() over (order by id) - 1) / 100 as batch_number from inserted where status = 'pending'
      ) pending
      group by batch_number
    )
    select json_build_object(
      -- The range has ids of other transactions if the school sent other messages at the same time.
      'jobs', (
        select json_agg(
            jsonb_build_object('from_id', from_id, 'to_id', to_id)
              || case
                when (select limits_unconfirmed from request) then jsonb '{"limits_unconfirmed": true}' else '{}'
              end
              || case when to_id - from_id >= cardinality(ids) then jsonb_build_object('only', ids) else '{}' end
            order by from_id)
        from batch),
      'user_ids', (select json_agg(distinct user_id order by user_id) from notified),
      'recipients', (
        select count(distinct recipient_number)
        from (
          select recipient_number from rendered where 'in_app' = any (channels) and user_id is not null
          union all
          select recipient_number from planned
        ) reached))
  $statement$, jsonb_build_object(
    'mailings', p_mailings, 'school', p_school,
    'push_limit', p_setting.push_per_user_per_day, 'email_limit', p_setting.emails_per_user_per_day,
    'day_began_at', p_day_began_at, 'limits_unconfirmed', p_limits_unconfirmed, 'now', clock_timestamp()));
end $$;
comment on function core.store_mailings is
  'Renders the words of mailings (as in core.send_mailings) for each recipient, and stores a notification for each '
  'user who can log in, and a delivery for each of their devices and each email address; drops those above the daily '
  'limits, except emails that may have to wait (p_limits_unconfirmed, as in core.send_mailings). {jobs: the payloads '
  'of the jobs `deliver` for the rest, 100 deliveries each, or null; user_ids: the users with a notification, or null; '
  'recipients: the number of those who were reached on at least one channel}.';

create function core.publish_notifications(p_user_ids bigint[]) returns void language plpgsql as $$
begin
  if cardinality(p_user_ids) > 1000 then
    perform pg_notify('school_events', json_build_object('tenant', core.tenant_id())::text);
  else
    -- A payload of pg_notify has less than 8,000 bytes.
    perform pg_notify('school_events', json_build_object('tenant', core.tenant_id(), 'users', array_agg(id))::text)
      from unnest(p_user_ids) with ordinality u (id, n)
      group by (n - 1) / 350
      order by (n - 1) / 350;
  end if;
end $$;
comment on function core.publish_notifications is
  'Wakes the open streams of users at the commit; those of the whole school if there are more than 1,000 users.';

-- A mailing is an event or a text with its recipients. The path is constant, so that Postgres keeps the plans of these
-- statements when the school changes. Functions that need the tables of the school set their own path.
create function core.send_mailings(p_mailings jsonb, p_limits_unconfirmed boolean) returns integer
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_setting platform.notification_setting;
  v_tenant record;
  v_mailings jsonb;
  v_stored json;
begin
  select * into v_setting from platform.notification_setting;
  if not found then
    perform core.refuse_missing_copy();
  end if;
  select name, time_zone into strict v_tenant from platform.tenant where id = core.tenant_id();
  select jsonb_agg(
      m || jsonb_build_object('words', (m -> 'words')
        - array_remove(array[
            case when not v_setting.in_app then 'in_app' end,
            case when not v_setting.push then 'push' end,
            case when not v_setting.email then 'email' end], null))
      order by n)
    into v_mailings
    from jsonb_array_elements(p_mailings) with ordinality given (m, n);
  -- Locked from before the ids are drawn until the commit. A client that reads what comes after an id misses nothing,
  -- since the ids of a user are in commit order.
  perform core.lock_notification_recipients(core.recipients_to_lock(v_mailings));
  v_stored := core.store_mailings(
    v_mailings, v_tenant.name, v_setting, core.day_begins(core.today()), p_limits_unconfirmed);
  if v_stored ->> 'jobs' is not null then
    perform core.enqueue_all(
      'deliver',
      array(select jsonb_array_elements((v_stored -> 'jobs')::jsonb)),
      p_run_at => core.quiet_hours_end(v_setting.quiet_from, v_setting.quiet_until, v_tenant.time_zone, now()));
  end if;
  if v_stored ->> 'user_ids' is not null then
    perform core.publish_notifications(array(select json_array_elements_text(v_stored -> 'user_ids')::bigint));
  end if;
  return v_stored ->> 'recipients';
end $$;
comment on function core.send_mailings is
  'Sends texts with placeholders to recipients (as in core.notify), on those channels that operators have not closed: '
  '[{type, words: {in_app: {title, message, action_url?}, push: …, email: …}, recipients}]. With '
  'p_limits_unconfirmed, emails to users who have not confirmed their address may have to wait: the job `deliver` '
  'counts them. Returns the number of recipients. Only for core.send_message and core.notify_all, which have entered '
  'the school.';

create function core.send_message(p_type text, p_words jsonb, p_recipients jsonb, p_action_url text default null)
  returns integer language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[] := core.enter_tenant(core.tenant_id());
  v_sent integer := core.send_mailings(jsonb_build_array(jsonb_build_object(
    'type', p_type, 'recipients', coalesce(p_recipients, '[]'), 'words', (
      select jsonb_object_agg(channel, text || jsonb_build_object('action_url', p_action_url))
      from jsonb_each(p_words) w (channel, text)))), p_limits_unconfirmed => true);
begin
  perform core.leave_tenant(v_before);
  return v_sent;
end $$;
comment on function core.send_message is
  'Sends the texts of a person, p_words, {in_app: {title, message}, push: …, email: …}, to p_recipients (as in '
  'core.notify_all; null means nobody). They open p_action_url. Returns the number of recipients. Security definer: '
  'the user who causes a message may read neither the addresses nor the devices of others.';

create function core.is_mandatory(p_event text) returns boolean language sql immutable
  return coalesce(p_event = 'operator.login' or p_event = 'trial.ending' or p_event like 'subscription.%', false);
comment on function core.is_mandatory is
  'Whether a school is notified of an event even without the feature notifications. Otherwise operators could hide an '
  'impersonation by removing the feature first, and schools whose plan lacks notifications would not learn that their '
  'subscription ends.';

-- A copy for the student would be the only one that waits: parents, whose addresses nobody confirms, get the same text.
create function core.is_written_by_people(p_event text, p_has_school_text boolean) returns boolean
  language sql immutable
  return p_event in ('account.created', 'leave.decided', 'holiday.added')
    or (p_has_school_text
      and p_event not like 'attendance.%'
      and p_event not in ('fee.generated', 'payment.received', 'invoice.reminder')
      and not core.is_mandatory(p_event));
comment on function core.is_written_by_people is
  'Whether the email of an event has what people of a school wrote: a note, the name of a holiday, or a text of the '
  'school instead of that of the catalog. An account that is added with the address of a stranger counts too. Not for '
  'notices about students and for mandatory events, which must not wait.';

create function core.event_words(p_events text[]) returns jsonb language plpgsql as $$
begin
  return core.run_prepared($statement$
    select json_object_agg(event, json_build_object('words', words, 'is_written_by_people', is_written_by_people))
    from (
      select
        e.key as event,
        json_object_agg(chosen.channel, json_build_object(
          'title', coalesce(school_text.title, operator_text.subject, e.title),
          'message', coalesce(school_text.message, operator_text.body, e.message),
          'action_url', school_text.action_url)) as words,
        core.is_written_by_people(e.key, bool_or(school_text.id is not null)) as is_written_by_people
      from core.notification_event e
      left join notification_event decided on decided.event = e.key
      cross join unnest(coalesce(decided.channels, e.channels)) chosen (channel)
      left join platform.notification_template operator_text
        on operator_text.key = e.key and operator_text.channel = chosen.channel and operator_text.is_active
      left join notification_template school_text on lower(school_text.name) = e.key
      where e.key = any (array(select jsonb_array_elements_text(core.parameters())))
        and coalesce(decided.is_enabled, true)
      group by e.key
    ) enabled
  $statement$, to_jsonb(p_events));
end $$;
comment on function core.event_words is
  'The texts of events of the catalog on each of their channels, {event: {words: {in_app: {title, message, '
  'action_url}, …}, is_written_by_people}}. Those of the school override those of operators, which override the '
  'catalog. Without the events that the school has switched off; null if none is left.';

create function core.notify_all(p_events jsonb) returns integer
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_events text[] := array(
    select e ->> 'event' from jsonb_array_elements(p_events) e where e #> '{recipients,0}' is not null);
  v_before text[];
  v_words jsonb;
  v_sent integer := 0;
begin
  if v_events <> '{}' and 'notifications' <> all (core.tenant_features()) then
    v_events := array(select event from unnest(v_events) event where core.is_mandatory(event));
  end if;
  if v_events = '{}' then
    return 0;
  end if;
  v_before := core.enter_tenant(core.tenant_id());
  v_words := core.event_words(v_events);
  if v_words is not null then
    v_sent := core.send_mailings((
      select jsonb_agg(
        jsonb_build_object(
          'type', e ->> 'event', 'words', v_words -> (e ->> 'event') -> 'words', 'recipients', e -> 'recipients')
        order by n)
      from jsonb_array_elements(p_events) with ordinality given (e, n)
      where v_words ? (e ->> 'event')),
      p_limits_unconfirmed => v_words @@ '$.*.is_written_by_people == true');
  end if;
  perform core.leave_tenant(v_before);
  return v_sent;
end $$;
comment on function core.notify_all is
  'Notifies recipients of events of the catalog: [{event, recipients: [{user_id?, email?, name?, variables?}]}]. '
  'user_id is a user of the school, whose address is read here; others, such as parents, have an email address only. '
  'Skips events that the school has switched off. Without the feature notifications, it sends only mandatory events '
  '(core.is_mandatory). Returns the number of recipients. Call it once, last in an operation: the locks on the '
  'recipients last until the commit, and transactions that lock twice can deadlock. Security definer for the same '
  'reason as core.send_message.';

create function core.notify(p_event text, p_recipients jsonb) returns integer language sql
  return core.notify_all(jsonb_build_array(jsonb_build_object('event', p_event, 'recipients', p_recipients)));
comment on function core.notify is
  'Notifies p_recipients, [{user_id?, email?, name?, variables?}] or null, of one event. See core.notify_all.';

create function core.message_admins(p_tenant_id bigint, p_title text, p_message text) returns integer
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_tenant platform.tenant;
  v_before text[];
  v_words jsonb := jsonb_build_object('title', p_title, 'message', p_message);
  v_sent integer;
begin
  select * into v_tenant from platform.tenant where id = p_tenant_id for share;
  if v_tenant.status <> 'active' then
    -- Nobody could log in to read it, and deliveries of a closed school are dropped.
    perform core.fail('invalid_state', format('This school is %s, so it gets no messages.', v_tenant.status));
  end if;
  perform core.require_schema(p_tenant_id);
  v_before := core.enter_tenant(p_tenant_id);
  v_sent := core.send_message('operator.message', jsonb_build_object('in_app', v_words, 'email', v_words), (
    select jsonb_agg(jsonb_build_object('user_id', ur.user_id) order by ur.user_id)
    from user_role ur
    join role r on r.id = ur.role_id and r.is_system and r.name = 'admin'));
  perform core.leave_tenant(v_before);
  if v_sent = 0 then
    perform core.fail('invalid_state', 'This school has no active admin who could get a message.');
  end if;
  return v_sent;
end $$;
comment on function core.message_admins is
  'Sends a message of an operator to the active admins of a school, in-app and by email, also without the feature '
  'notifications. Returns their number. Raises invalid_state for a school that is not active or has no active admin, '
  'unavailable during its migration. The caller checks that an operator asks for it.';

