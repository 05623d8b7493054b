-- /api/notifications: lists and sends notifications, and changes the settings of events.

select core.define_operation('notifications_list', p_feature => 'notifications');
select core.define_operation('notifications_delete', p_feature => 'notifications', p_works_when_cancelled => true,
  p_record => 'notification');
select core.define_operation('notifications_read', p_feature => 'notifications', p_works_when_cancelled => true,
  p_record => 'notification');
select core.define_operation('notifications_stream', p_feature => 'notifications');
select core.define_operation('notifications_stream_token', p_feature => 'notifications');
select core.define_operation('notifications_read_all', p_feature => 'notifications', p_works_when_cancelled => true);
select core.define_operation('notifications_send', p_permission => 'notification.send', p_feature => 'notifications',
  p_idempotent => true, p_errors => '{invalid_reference}');
select core.define_operation('notifications_events_list', p_permission => 'notification.manage',
  p_feature => 'notifications');
select core.define_operation('notifications_events_get', p_permission => 'notification.manage',
  p_feature => 'notifications', p_unversioned_fields => '{title,message,template_id}');
select core.define_operation('notifications_events_update', p_permission => 'notification.manage',
  p_feature => 'notifications', p_present => 'notifications_events_get', p_locked_by => 'lock_event');

-- Ids are in order of time, so the list is sorted by id.
select core.define_record('notification', p_table => 'notification', p_key => 'n.id', p_one_row_per_key => true,
  p_source => 'notification n',
  p_columns => $$
    n.id, n.title, n.message, n.type, n.action_url, n.read_at is not null as is_read, n.read_at, n.created_at,
    n.updated_at
  $$,
  p_condition => 'n.user_id = core.user_id()',
  p_search => $$public.search_form(n.title || ' ' || n.message)$$,
  p_equals => '{type}',
  p_default_sort => 'created_at', p_default_order => 'desc');
select core.define_filter('notification', 'is_read', '(n.read_at is not null) = :value::boolean', p_is_literal => true);
select core.define_sort('notification', 'created_at', 'n.id');

create function api.notifications_list(p jsonb) returns json language sql stable as $$
  select json_build_object(
    'data', page -> 'data',
    'pagination', page -> 'pagination',
    'unread_count', (select count(*) from notification where user_id = core.user_id() and read_at is null))
  from core.record_page('notification', p) page;
$$;
comment on function api.notifications_list is
  'Lists the current user''s notifications, newest first, with the number of unread ones. Searches title and '
  'message.';

create function api.notifications_delete(p jsonb) returns json language sql as $$
  delete from notification where id = (p ->> 'id')::bigint returning json_build_object('id', id);
$$;
comment on function api.notifications_delete is 'Deletes a notification of the current user.';

create function api.notifications_read(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  update notification set read_at = now() where id = v_id and read_at is null;
  return api.notification_record(v_id);
end $$;
comment on function api.notifications_read is
  'Marks a notification of the current user as read. read_at keeps the first time.';

create function api.notifications_read_all(p jsonb) returns json language plpgsql as $$
declare
  v_marked integer;
begin
  update notification set read_at = now() where user_id = core.user_id() and read_at is null;
  get diagnostics v_marked = row_count;
  return json_build_object('marked', v_marked);
end $$;
comment on function api.notifications_read_all is
  'Marks all notifications of the current user as read; returns {marked}.';

create function api.notifications_stream(p jsonb) returns json language sql stable as $$
  select json_build_object('after', least((p ->> 'last_event_id')::bigint, coalesce(max(id), 0)))
  from notification
  where user_id = core.user_id();
$$;
comment on function api.notifications_stream is
  'Returns the id after which the notification stream begins: last_event_id, or the user''s newest notification. '
  'The newest is also the maximum, because a database restored from a backup has fewer notifications than the '
  'client has seen. Later notifications have higher ids (core.send_message).';

create function api.notifications_stream_token(p jsonb) returns json language sql stable as $$
  select json_build_object('last_event_id', coalesce(max(id), 0))
  from notification
  where user_id = core.user_id();
$$;
comment on function api.notifications_stream_token is
  'Returns {last_event_id}: the id of the user''s newest notification, or 0. The facade adds the token.';

create function api.refuse_unknown(p_field text, p_what text, p_given jsonb, p_known bigint[]) returns void
  language plpgsql stable as $$
declare
  v_errors json;
begin
  select json_agg(json_build_object(
      'path', format('%s.%s', p_field, n - 1),
      'message', format('There is no %s %s.', p_what, id)) order by n)
    into v_errors
    from (
      select id, n
      from jsonb_array_elements_text(p_given) with ordinality g (id, n)
      where id::bigint not in (select unnest(p_known))
      order by n
      limit 10
    ) unknown;
  if v_errors is not null then
    perform core.fail('invalid_reference', v_errors -> 0 ->> 'message', v_errors);
  end if;
end $$;
comment on function api.refuse_unknown is
  'Raises invalid_reference for the ids of the request that are not in p_known, with details for the first ten.';

create function api.require_message(p_message text, p_variables jsonb) returns void language plpgsql stable as $$
declare
  -- Of the names that every text may use, only the last name can be empty.
  v_message text := core.render(p_message, '{"last_name": ""}' || coalesce(p_variables, '{}'));
begin
  if v_message !~ '\S' then
    perform core.refuse_field('validation_error', 'variables',
      'With these variables, or for a recipient without a last name, the message is empty.');
  elsif length(v_message) > 5000 then
    perform core.refuse_field('validation_error', 'variables',
      'With these variables the message is longer than 5000 characters.');
  end if;
end $$;
comment on function api.require_message is
  'Raises validation_error if variables make a message empty or longer than 5,000 characters.';

create function api.words_to_send(p jsonb) returns jsonb language plpgsql stable as $$
declare
  v_given text[] := array(select jsonb_object_keys(coalesce(p -> 'variables', '{}')));
  v_template record;
  v_declared text[];
  v_name text;
begin
  if not p ? 'template_id' then
    perform api.require_message(p ->> 'message', p -> 'variables');
    return jsonb_build_object(
      'channels', coalesce(p -> 'channels', '["in_app", "push"]'),
      'type', coalesce(p ->> 'type', 'info'),
      'title', p -> 'title',
      'message', p -> 'message',
      'action_url', p -> 'action_url');
  end if;
  select t.title, t.message, t.type, t.action_url, t.channels, api.template_variables(t.name, t.variables) as variables
    into v_template
    from notification_template t
    where t.id = (p ->> 'template_id')::bigint;
  if not found then
    perform core.refuse_field('invalid_reference', 'template_id',
      format('There is no template %s.', p ->> 'template_id'));
  end if;
  v_declared := v_template.variables;
  select g into v_name from unnest(v_given) g where g <> all (v_declared) limit 1;
  if found then
    perform core.refuse_field('validation_error', 'variables.' || v_name, format('The template has no variable %s.%s',
      v_name,
      coalesce(' Its variables are: ' || nullif(array_to_string(v_declared, ', '), '') || '.', '')));
  end if;
  select trim(n) into v_name
    from unnest(core.placeholder_names(v_template.title || v_template.message)) n
    where trim(n) = any (v_declared) and trim(n) <> all (v_given)
    limit 1;
  if found then
    perform core.refuse_field('validation_error', 'variables.' || v_name, 'is required by the template');
  end if;
  perform api.require_message(v_template.message, p -> 'variables');
  return jsonb_build_object(
    'channels', coalesce(p -> 'channels', to_jsonb(v_template.channels)),
    'type', v_template.type,
    'title', v_template.title,
    'message', v_template.message,
    'action_url', case when p ? 'action_url' then p -> 'action_url' else to_jsonb(v_template.action_url) end);
end $$;
comment on function api.words_to_send is
  'The texts to send, {channels, type, title, message, action_url}, from the request or from its template. Raises '
  'invalid_reference if the template does not exist; validation_error for a variable without a value, for a '
  'variable that the template does not have, and for a message that becomes empty or too long.';

create function api.notifications_send(p jsonb) returns json language plpgsql as $$
declare
  v_words jsonb := api.words_to_send(p);
  v_scope text := current_setting('app.scope');
  -- The students that row policies let this user see.
  v_in_scope bigint[] := case
    when v_scope <> 'all' then array(select user_id from student where user_id is not null) || core.user_id()
  end;
  v_user_ids bigint[];
  v_sent integer;
begin
  perform core.widen_scope();
  if p ? 'user_ids' then
    v_user_ids := array(
      select u.id
      from user_account u
      where u.id in (select requested.value::bigint from jsonb_array_elements_text(p -> 'user_ids') requested)
        and coalesce(u.id = any (v_in_scope), v_scope = 'all')
      order by u.id);
    perform api.refuse_unknown('user_ids', 'user', p -> 'user_ids', v_user_ids);
  elsif p ? 'role_ids' then
    perform api.refuse_unknown('role_ids', 'role', p -> 'role_ids', array(select id from role));
    v_user_ids := array(
      select distinct r.user_id
      from user_role r
      where r.role_id in (select requested.value::bigint from jsonb_array_elements_text(p -> 'role_ids') requested)
        and coalesce(r.user_id = any (v_in_scope), v_scope = 'all')
      order by r.user_id);
  else
    v_user_ids := array(
      select u.id
      from user_account u
      where u.is_active and u.deleted_at is null and coalesce(u.id = any (v_in_scope), v_scope = 'all')
      order by u.id);
  end if;
  perform core.restore_scope(v_scope);
  v_sent := core.send_message(
    v_words ->> 'type',
    (
      select jsonb_object_agg(channel, v_words - '{channels,type,action_url}'::text[])
      from jsonb_array_elements_text(v_words -> 'channels') channel
    ),
    (select jsonb_agg(jsonb_build_object('user_id', id)) from unnest(v_user_ids) id),
    v_words ->> 'action_url',
    p -> 'variables');
  return json_build_object('sent', v_sent);
end $$;
comment on function api.notifications_send is
  'Sends a notification to user_ids, to the users who have one of role_ids, or to all: {title, message, type, '
  'action_url}, or a template_id with variables. Users who cannot log in are left out. A user whose scope is `taught` '
  'or `own` can notify the students in that scope, and themselves. Raises invalid_reference for ids that do not exist '
  'or are out of scope. Returns {sent}, the number of recipients.';

create function api.event_settings(p_key text default null) returns json language sql stable as $$
  select json_agg(json_build_object(
    'key', e.key,
    'description', e.description,
    'is_enabled', coalesce(d.is_enabled, true),
    'channels', coalesce(d.channels, e.channels),
    'default_channels', e.channels,
    'variables', e.variables || core.recipient_variables(),
    'sample', e.sample,
    'title', coalesce(t.title, e.title),
    'message', coalesce(t.message, e.message),
    'template_id', t.id) order by e.key)
  from core.notification_event e
  left join notification_event d on d.event = e.key
  left join notification_template t on lower(t.name) = e.key
  where p_key is null or e.key = p_key;
$$;
comment on function api.event_settings is
  'The events that send notifications, or only p_key, with the settings and texts of the school.';

create function api.notifications_events_list(p jsonb) returns json language sql stable as $$
  select api.event_settings();
$$;
comment on function api.notifications_events_list is
  'Lists the events that send notifications, with the settings of the school, their texts, and the variables of the '
  'texts.';

create function api.notifications_events_get(p jsonb) returns json language plpgsql stable as $$
declare
  v_event json := api.event_settings(p ->> 'key') -> 0;
begin
  if v_event is null then
    perform core.fail('not_found', 'The event does not exist.');
  end if;
  return v_event;
end $$;
comment on function api.notifications_events_get is
  'One event with the settings and texts of the school. Raises not_found for an unknown event.';

create function api.audited_event(p_key text) returns jsonb language sql stable as $$
  select jsonb_object_agg(p_key || '.' || setting, value)
  from json_each(api.event_settings(p_key) -> 0) e (setting, value)
  where setting in ('is_enabled', 'channels');
$$;
comment on function api.audited_event is
  'The settings of an event as the audit log shows them, with the event in their names: events have no id.';

create function api.lock_event(p jsonb) returns void language plpgsql as $$
begin
  -- It has no row before its first change.
  perform pg_advisory_xact_lock(core.lock_key('event', hashtextextended(p ->> 'key', core.tenant_id())));
end $$;
comment on function api.lock_event is 'Locks the settings of an event: {key}.';

create function api.notifications_events_update(p jsonb) returns json language plpgsql as $$
declare
  v_event record;
  v_before jsonb := api.audited_event(p ->> 'key');
begin
  select key, channels into strict v_event from core.notification_event where key = p ->> 'key';
  insert into notification_event as d (event, is_enabled, channels)
    values (
      v_event.key,
      coalesce((p ->> 'is_enabled')::boolean, true),
      case
        when p ? 'channels' then array(select jsonb_array_elements_text(p -> 'channels'))
        else v_event.channels
      end)
    on conflict (event) do update
      set is_enabled = case when p ? 'is_enabled' then excluded.is_enabled else d.is_enabled end,
        channels = case when p ? 'channels' then excluded.channels else d.channels end;
  perform core.audit_school('notification_event.update', null, v_before, api.audited_event(v_event.key));
  return api.event_settings(v_event.key) -> 0;
end $$;
comment on function api.notifications_events_update is
  'Switches an event on or off (is_enabled), or chooses its channels, after core.run_write has '
  'read it with api.notifications_events_get. Audited.';

-- Functions for the events that other resources send.

create function api.locale() returns text language sql stable as $$
  select coalesce((select locale from school), 'en-GB');
$$;
comment on function api.locale is 'The locale of the documents of the school.';

create function api.student_recipients(p_event text, p_students jsonb, p_amounts text[] default '{}') returns jsonb
  language sql stable as $$
  with requested as materialized (
    select requested.n, requested.value - 'student_id' as variables, s.id as student_id, s.user_id,
      core.full_name(s.first_name, s.last_name) as student_name, s.parent_name,
      nullif(lower(trim(s.parent_email)), '') as parent_email, u.email as user_email,
      -- Also those whose link has ended: the contact may be a copy of one.
      exists (
        select
        from student_guardian l
        where l.student_id = s.id and l.removed_at is null and coalesce(l.starts_on <= core.today(), true)
      ) as has_guardians
    from jsonb_array_elements(p_students) with ordinality requested (value, n)
    -- With a limit, Postgres looks up each row. It expects 100 times as many and would read all tables.
    cross join lateral (
      select *
      from student
      where id = (requested.value ->> 'student_id')::bigint
        and deleted_at is null
        and not core.has_left(left_on, core.today())
      limit 1) s
    left join lateral (
      select email from user_account where id = s.user_id and is_active and deleted_at is null limit 1) u on true
  ), reached as (
    select n, 0 as priority, variables, student_name, null::bigint as link_id, user_id, null as email, null as name,
      n as alone
    from requested
    where user_id is not null
    union all
    select r.n, l.priority, r.variables, r.student_name, l.id, l.user_id,
      case when l.user_id is null then l.email end, case when l.user_id is null then l.name end, null
    from requested r
    cross join lateral (
      select l.id, l.priority, core.full_name(g.first_name, g.last_name) as name,
        -- A guardian who does not see the records gets the text only by email, as a contact without a login does.
        case when l.can_see_records then login.id end as user_id, nullif(lower(trim(g.email)), '') as email
      from student_guardian l
      join guardian g on g.id = l.guardian_id and g.deleted_at is null
      left join user_account login on login.id = g.user_id and login.is_active and login.deleted_at is null
      where l.student_id = r.student_id
        and l.receives_messages
        and core.is_linked(l.starts_on, l.ends_on, l.removed_at, core.today())
        and not exists (select from guardian_muted_event m where m.guardian_id = g.id and m.event = p_event)
      limit 100
    ) l
    where r.has_guardians and (l.user_id is not null or l.email is distinct from r.user_email and l.email is not null)
    union all
    select n, 1, variables, student_name, null, null, parent_email,
      coalesce(parent_name, 'Parent of ' || student_name), n
    from requested
    where not has_guardians and parent_email is not null and parent_email is distinct from user_email
  ), family as (
    -- One message to each guardian about all students with the same facts. Contacts may be of different people.
    select min(n) as n, min(priority) as priority, user_id, email, min(name) as name,
      (jsonb_agg(variables order by n) -> 0) as variables, jsonb_agg(variables) as all_variables,
      core.joined_names(array_agg(student_name order by n)) as student_name,
      array_agg(link_id order by n) filter (where link_id is not null) as link_ids
    from reached
    group by alone, user_id, email, variables - p_amounts
  )
  select jsonb_agg(
    jsonb_strip_nulls(jsonb_build_object('user_id', user_id, 'email', email, 'name', name, 'link_ids', link_ids))
      || jsonb_build_object('variables', variables || jsonb_build_object('student_name', student_name) || coalesce((
        select jsonb_object_agg(amount, core.written_amount(
          (select sum((v ->> amount)::numeric) from jsonb_array_elements(all_variables) v), c.currency,
          core.currency_decimals(c.currency)))
        from unnest(p_amounts) amount), '{}'))
    order by n, priority, user_id nulls last)
  from family
  cross join core.school_currency() c (currency)
$$;
comment on function api.student_recipients is
  'The recipients of an event about students, [{student_id, …variables}]: the user of each student, and their '
  'guardians in the order of their priority: in-app and by push if they have a login that sees the student, else by '
  'email. A student without guardians has a contact instead, unless the active user of the student has the same '
  'address. One recipient for each person, with the names of all students whose variables are equal; p_amounts are '
  'variables with numbers, which are added and written in the currency of the school. Leaves out students who have '
  'left or were deleted, and guardians who have turned the event off. Adds the variable student_name.';

create function api.admin_recipients(p jsonb) returns jsonb language sql stable as $$
  select jsonb_agg(jsonb_build_object('user_id', ur.user_id, 'variables', p) order by ur.user_id)
  from user_role ur
  join role r on r.id = ur.role_id and r.is_system and r.name = 'admin'
$$;
comment on function api.admin_recipients is
  'The recipients of an event for the admins of the school. The facts of the event are the variables of its texts.';

create function api.webhook_recipients(p jsonb) returns jsonb language sql stable as $$
  select api.admin_recipients(jsonb_build_object('url', w.url))
  from webhook w
  where w.id = (p ->> 'webhook_id')::bigint and not w.is_active
$$;
comment on function api.webhook_recipients is
  'The recipients of webhook.disabled, {webhook_id}: the admins. None if the webhook has been enabled or deleted '
  'since.';

create function api.operator_login_recipients(p jsonb) returns jsonb language sql stable as $$
  select api.admin_recipients(p || jsonb_build_object(
    'date', core.written_day(local::date),
    'time', to_char(local, 'HH24:MI'),
    'until', to_char(local + core.impersonation_lifetime(), 'HH24:MI')))
  from (select (p ->> 'at')::timestamptz at time zone core.time_zone() as local) began
$$;
comment on function api.operator_login_recipients is
  'The recipients of operator.login, {operator_email, reason, user_name, user_email, at}: the admins.';

create function api.account_recipients(p jsonb) returns jsonb language sql stable as $$
  select jsonb_agg(jsonb_build_object('user_id', u.id, 'variables', jsonb_build_object('email', u.email)) order by u.id)
  from user_account u
  where u.id = any (array(select jsonb_array_elements_text(p -> 'user_ids')::bigint))
$$;
comment on function api.account_recipients is 'The recipients of account.created, {user_ids}: these users.';

create function api.invoice_recipients(p jsonb) returns jsonb language sql stable as $$
  select jsonb_agg(recipient order by n)
  from jsonb_array_elements((
    select api.student_recipients('invoice.reminder', jsonb_agg(jsonb_build_object(
      'student_id', i.student_id,
      'invoice_number', i.invoice_number,
      'balance', core.written_amount(i.amount - i.paid_amount, c.currency, core.currency_decimals(c.currency)),
      'due_date', core.written_day(i.due_date)) order by i.id))
    from invoice i
    cross join core.school_currency() c (currency)
    where i.id = any (array(select jsonb_array_elements_text(p -> 'invoice_ids')::bigint))
      and i.status not in ('void', 'paid')
  )) with ordinality r (recipient, n)
  where recipient ? 'user_id'
$$;
comment on function api.invoice_recipients is
  'The recipients of invoice.reminder, {invoice_ids}: the users of the students and of their guardians. A separate job '
  'sends the email with the document. Leaves out invoices that have been paid or voided since.';
