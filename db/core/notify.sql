-- Notifications. A request stores events and messages in platform.outbox (core.notify, core.send_message). After the
-- commit, the worker writes their notifications and deliveries (outbox.sql). Decision 0070.

create table core.notification_event (
  key text primary key,
  description text not null,
  sample jsonb not null,
  variables text[] not null default '{}',
  channels text[] not null
    constraint notification_event_channels_check
    check (cardinality(channels) > 0 and channels <@ '{in_app,push,email}'),
  recipients text not null,
  title text not null,
  message text not null
);
comment on table core.notification_event is
  'The catalog of events that send notifications, filled by db/seed: the variables of each event, its default '
  'channels, its default texts, and the function of api that finds its recipients. Operators and schools may override '
  'the texts, schools also the channels.';

create function core.recipient_variables() returns text[] language sql immutable
  return '{first_name,last_name,name,school_name}'::text[];
comment on function core.recipient_variables is 'The placeholders that every text may use, for any recipient.';

create function core.placeholder_names(p_template text) returns text[] language sql immutable
  return array(select found[1] from regexp_matches(p_template, '\{\{([^{}]*)\}\}', 'g') found);
comment on function core.placeholder_names is
  'The names in double braces in a text, in order of appearance, with their repetitions and the spaces around them.';

create function core.template_format(p_template text) returns text language sql immutable
  return regexp_replace(replace(p_template, '%', '%%'), '\{\{[^{}]*\}\}', '%s', 'g');
comment on function core.template_format is 'A text with placeholders as a format string: each placeholder becomes %s.';

create function core.fill_placeholders(p_format text, p_names text[], p_variables jsonb) returns text
  language sql stable
  return format(p_format, variadic array(
    select case when p_variables ? trim(name) then p_variables ->> trim(name) else '{{' || name || '}}' end
    from unnest(p_names) name));
comment on function core.fill_placeholders is
  'Replaces the placeholders of a text. p_format is the result of core.template_format, p_names that of '
  'core.placeholder_names. A value that looks like a placeholder is not replaced in turn. Null becomes an empty text. '
  'An unknown {{name}} stays as it is.';

create function core.render(p_template text, p_variables jsonb) returns text language sql stable
  return core.fill_placeholders(core.template_format(p_template), core.placeholder_names(p_template), p_variables);
comment on function core.render is 'A text with its placeholders {{name}} filled in, in one pass.';

create function core.with_full_names(p_template text) returns text language sql immutable
  return regexp_replace(p_template, '\{\{\s*first_name\s*\}\}\s+\{\{\s*last_name\s*\}\}', '{{name}}', 'g');
comment on function core.with_full_names is
  'A text in which the placeholders of first and last name, one after the other, are that of the full name, so that no '
  'blank is left after a person with a single name.';

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

-- Postgres inlines this function.
create function core.reachable_recipients(p_recipients jsonb)
  returns table (
    recipient_number bigint, user_id bigint, email text, is_unconfirmed boolean, first_name text, last_name text,
    name text, variables jsonb, link_ids bigint[])
  language sql stable as $$
  select r.n, u.id, coalesce(u.email, nullif(lower(trim(r.email)), '')),
    u.id is not null and u.email_verified_at is null, u.first_name, u.last_name, r.name, r.variables, r.link_ids
  from rows from (
    jsonb_to_recordset(p_recipients) as (user_id bigint, email text, name text, variables jsonb, link_ids bigint[])
  ) with ordinality r (user_id, email, name, variables, link_ids, n)
  -- With a limit, Postgres looks up each user. It expects 100 times as many and would read all.
  left join lateral (
    select id, email, email_verified_at, first_name, last_name
    from user_account
    where id = r.user_id and is_active and deleted_at is null
      and not (
        (
          exists (select from student s where s.user_id = r.user_id and s.left_on <= (select core.today()))
          or exists (select from teacher t where t.user_id = r.user_id and t.left_on <= (select core.today()))
        )
        -- A user who has left as a student may be a teacher, or have another role.
        and core.login_refusal(r.user_id) is not null)
    limit 1
  ) u on true
  where (u.id is not null or r.user_id is null) and (r.link_ids is null or core.may_receive(r.link_ids))
$$;
comment on function core.reachable_recipients is
  'The recipients of a mailing (core.store_mailings), except users who cannot log in, and guardians whose link to the '
  'student has ended since (core.may_receive): the user or null, the address of the user or the given one, whether a '
  'user has not confirmed it, the names of the user, and the given name, variables and links.';

create function core.publish_notifications(p_user_ids bigint[]) returns void language plpgsql as $$
begin
  -- A payload of pg_notify has less than 8,000 bytes.
  perform pg_notify('school_events', json_build_object('tenant', core.tenant_id(), 'users', array_agg(id))::text)
    from unnest(p_user_ids) with ordinality u (id, n)
    group by (n - 1) / 350
    order by (n - 1) / 350;
end $$;
comment on function core.publish_notifications is 'Wakes the open streams of users at the commit.';

create function core.open_words(p_words jsonb) returns jsonb
  language sql stable set search_path = pg_catalog, pg_temp as $$
  select p_words - array_remove(array[
    case when not s.in_app then 'in_app' end,
    case when not s.push then 'push' end,
    case when not s.email then 'email' end], null)
  from platform.notification_setting s
$$;
comment on function core.open_words is 'Texts by channel, without the channels that operators have disabled.';

create function core.outbox_slice() returns integer language sql immutable return 1000;
comment on function core.outbox_slice is
  'The largest number of recipients of one event for whom the worker writes notifications in one transaction.';

create function core.is_mandatory(p_event text) returns boolean language sql immutable
  return coalesce(p_event = 'operator.login' or p_event = 'trial.ending' or p_event like 'subscription.%', false);
comment on function core.is_mandatory is
  'Whether a school is notified of an event even without the feature notifications. Otherwise operators could hide an '
  'impersonation by removing the feature first, and schools whose plan lacks notifications would not learn that their '
  'subscription ends.';

create function core.is_written_by_people(p_event text, p_has_school_text boolean) returns boolean
  language sql immutable
  return p_event in ('account.created', 'leave.decided', 'holiday.added')
    or (p_has_school_text
      and p_event not like 'attendance.%'
      and p_event not in ('fee.generated', 'payment.received', 'invoice.reminder')
      and not core.is_mandatory(p_event));
comment on function core.is_written_by_people is
  'Whether the email of an event contains what people of a school wrote: a note, the name of a holiday, or a text of '
  'the school instead of that of the catalog. Such an email may have to wait if its address is not confirmed. '
  'account.created counts too, because an account may be added with the address of a stranger. Mandatory events and '
  'notices about students do not count, because they must not wait. The limit would delay only the copy of the '
  'student: parents get the same text, and their addresses are never confirmed.';

create function core.notify(p_event text, p_facts jsonb) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into platform.outbox (tenant_id, event, facts, traceparent)
    values (core.tenant_id(), p_event, p_facts, core.context_value('traceparent'));
end $$;
comment on function core.notify is
  'Stores an event of the catalog for this school in platform.outbox, or `webhooks` (core.wake_webhooks). p_facts are '
  'what the function of the event needs to find the recipients (core.notification_event.recipients), or the recipients '
  'themselves, {recipients: [{user_id?, email?, name?, variables?}]}. The worker notifies them after the commit '
  '(core.outbox_write), unless the school has disabled the event. Security definer, because requests may not write '
  'tables of the platform.';

create function core.send_message(
    p_type text, p_words jsonb, p_recipients jsonb, p_action_url text default null, p_variables jsonb default null)
  returns integer language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[] := core.enter_tenant(core.tenant_id());
  v_words jsonb := (
    select coalesce(jsonb_object_agg(channel, text || jsonb_build_object('action_url', p_action_url)), '{}')
    from jsonb_each(core.open_words(p_words)) w (channel, text));
  -- Others would be copied for each recipient.
  v_variables jsonb := (
    select jsonb_object_agg(key, value)
    from jsonb_each(p_variables)
    where key in (select trim(name) from unnest(core.placeholder_names(v_words::text)) name));
  v_count integer;
begin
  if not exists (select from platform.notification_setting) then
    perform core.refuse_missing_copy();
  end if;
  with reached as (
    select given.value as recipient, given.n
    from jsonb_array_elements(coalesce(p_recipients, '[]')) with ordinality given (value, n)
    join core.reachable_recipients(coalesce(p_recipients, '[]')) r on r.recipient_number = given.n
    where v_words ? 'in_app' and r.user_id is not null
      or v_words ? 'email' and r.email is not null
      or v_words ? 'push' and exists (select from device where user_id = r.user_id)
  ), written as (
    insert into platform.outbox (tenant_id, event, facts, traceparent)
      select core.tenant_id(), 'message',
        jsonb_build_object('type', p_type, 'words', v_words, 'variables', v_variables,
          'recipients', jsonb_agg(recipient order by n)),
        core.context_value('traceparent')
      from reached
      having count(*) > 0
  )
  select count(*) into v_count from reached;
  perform core.leave_tenant(v_before);
  return v_count;
end $$;
comment on function core.send_message is
  'Stores a message of a person in platform.outbox: the texts p_words, {in_app: {title, message}, push: …, email: …}, '
  'for p_recipients, [{user_id?, email?, name?, variables?}] (null means nobody). user_id is a user of the school, who '
  'gets the email at the address of the account. Other recipients, such as parents, have an email address only. The '
  'message links to p_action_url. p_variables fill the placeholders of the texts. The worker sends the message after '
  'the commit (core.outbox_write). Returns how many recipients can be reached on at least one of its channels. '
  'Security definer: the user who sends a message may read neither the addresses nor the devices of others.';

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

