-- Webhooks: addresses that receive the changes of a school by HTTP. Triggers write down what changed, in the
-- transaction of the change. The worker prepares the messages, signs them and sends them (db/jobs/webhooks.sql).

create table webhook (
  id bigserial primary key,
  url text not null
    constraint webhook_url_check check (length(url) between 1 and 2000),
  description text
    constraint webhook_description_check check (length(description) <= 500),
  events text[] not null
    constraint webhook_events_check check (cardinality(events) > 0),
  is_active boolean not null default true,
  failing_since timestamptz,
  failures integer not null default 0,
  retry_at timestamptz,
  disabled_at timestamptz,
  created_by bigint references user_account (id) on delete set null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table webhook is 'An address that receives the chosen events of the school.';
comment on column webhook.failing_since is 'The first failed attempt since the last message that was delivered.';
comment on column webhook.failures is 'The number of failed attempts since the last message that was delivered.';
comment on column webhook.retry_at is 'After a failed attempt: no message is sent to this address before this time.';
comment on column webhook.disabled_at is
  'When the service disabled the webhook, because it failed for a day or answered 410.';
create index webhook_created_by_idx on webhook (created_by);
create trigger refuse_impersonator before insert or update on webhook
  for each row when (nullif(current_setting('app.impersonator_id', true), '') is not null)
  execute function refuse_impersonator();

create table webhook_secret (
  id bigserial primary key,
  webhook_id bigint not null references webhook (id) on delete cascade,
  secret text not null
    constraint webhook_secret_secret_check check (secret ~ '^whsec_[A-Za-z0-9+/]{32}$'),
  expires_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table webhook_secret is
  'The secrets that sign the messages of a webhook. All that have not expired sign. The export of a school leaves them '
  'out.';
comment on column webhook_secret.expires_at is 'Null for the current secret; set when another one replaces it.';
create index webhook_secret_webhook_id_idx on webhook_secret (webhook_id);
create unique index webhook_secret_current_key on webhook_secret (webhook_id) where expires_at is null;
create trigger refuse_impersonator before insert or update on webhook_secret
  for each row when (nullif(current_setting('app.impersonator_id', true), '') is not null)
  execute function refuse_impersonator();

create table webhook_event (
  id bigserial primary key,
  type text not null,
  key jsonb not null,
  body text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table webhook_event is
  e'A change that is sent to webhooks. Written by triggers.\n@grants select, insert';
comment on column webhook_event.key is 'What changed: {"id": 5}, or {"class_id": 3, "date": "2026-09-01"}.';
comment on column webhook_event.body is 'The message as JSON; null until the worker has prepared it.';
create index webhook_event_waiting_idx on webhook_event (created_at) where body is null;

create table webhook_delivery (
  id bigserial primary key,
  webhook_id bigint not null references webhook (id) on delete cascade,
  event_id bigint not null references webhook_event (id) on delete cascade,
  status text not null default 'pending'
    constraint webhook_delivery_status_check check (status in ('pending', 'sent', 'failed')),
  attempts integer not null default 0,
  status_code integer,
  reason text,
  response_body text,
  first_attempt_at timestamptz,
  next_attempt_at timestamptz default now(),
  last_attempt_at timestamptz,
  sent_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint webhook_delivery_next_attempt_at_check check ((next_attempt_at is not null) = (status = 'pending'))
);
comment on table webhook_delivery is
  e'The delivery of one event to one webhook, with the result of the last attempt.\n@grants select, insert, update';
comment on column webhook_delivery.status_code is 'The HTTP status of the last response; null without a response.';
comment on column webhook_delivery.reason is 'A code that says why the last attempt failed.';
comment on column webhook_delivery.response_body is 'The beginning of the last response.';
create index webhook_delivery_webhook_id_idx on webhook_delivery (webhook_id, id);
create index webhook_delivery_event_id_idx on webhook_delivery (event_id);
create index webhook_delivery_pending_idx on webhook_delivery (next_attempt_at) where status = 'pending';

create function record_webhook_events() returns trigger language plpgsql set search_path from current as $$
declare
  v_wanted text[];
  v_keys text[] := case when tg_nargs > 2 then tg_argv[2:] else '{id}' end;
  v_before jsonb[];
  v_after jsonb[];
begin
  -- Every school pays for this query, and most have no webhook.
  select array_agg(event)
    into v_wanted
    from webhook w
    cross join unnest(w.events) event
    where w.is_active and event like tg_argv[0] || '.%';
  if v_wanted is null then
    return null;
  end if;
  if tg_op = 'INSERT' then
    select array_agg(null::jsonb), array_agg(to_jsonb(a)) into v_before, v_after from added a;
  elsif tg_op = 'UPDATE' then
    select array_agg(to_jsonb(r)), array_agg(to_jsonb(a)) into v_before, v_after from removed r join added a using (id);
  else
    select array_agg(to_jsonb(r)), array_agg(null::jsonb) into v_before, v_after from removed r;
  end if;
  -- One event for each type and key in a transaction, and only one for a record that is created and then completed.
  insert into webhook_event (type, key)
    select distinct change.type, key.value
    from unnest(v_before, v_after) given (before, after)
    cross join lateral (
      select tg_argv[0] || '.' || case
        when given.before - 'updated_at' = given.after - 'updated_at' then null
        when tg_argv[1] <> '' then tg_argv[1]
        when given.before is null and given.after ->> 'reversal_of' is not null then 'reversed'
        when given.before is null then 'created'
        when given.after is null then 'deleted'
        when given.before ->> 'deleted_at' is null and given.after ->> 'deleted_at' is not null then 'deleted'
        -- A record that is restored is created again.
        when given.before ->> 'deleted_at' is not null and given.after ->> 'deleted_at' is null then 'created'
        when given.after ->> 'deleted_at' is not null then null
        when given.after ->> 'issued_at' is not null and given.before ->> 'issued_at' is null then 'issued'
        when given.after ->> 'status' = given.before ->> 'status' then 'updated'
        when given.after ->> 'status' = 'void' then 'voided'
        when given.after ->> 'status' in ('paid', 'cancelled') then given.after ->> 'status'
        else 'updated'
      end as type
    ) change
    cross join lateral (values (given.before), (given.after)) version (row)
    cross join lateral (select jsonb_object_agg(k, version.row -> k) as value from unnest(v_keys) k) key
    where version.row is not null
      and change.type = any (v_wanted)
      and not exists (
        select from webhook_event e
        where e.body is null
          and e.created_at = now()
          and e.key = key.value
          and e.type in (change.type, regexp_replace(change.type, '\.updated$', '.created')))
    order by key.value, change.type;
  if found then
    -- The request then queues the job that sends the messages.
    perform set_config('app.has_webhook_events', 'yes', true);
  end if;
  return null;
end $$;
comment on function record_webhook_events() is
  'Writes down the events of a statement, if an active webhook of the school wants them. Arguments: the subject of the '
  'events; their only verb, or empty; the columns of the key, by default the id.';

do $do$
declare
  v_subject record;
  v_change record;
begin
  for v_subject in
    select *
    from (values
      ('student', '{student,""}'::text[], '{insert,update,delete}'::text[]),
      ('teacher', '{teacher,""}', '{insert,update,delete}'),
      ('class', '{class,""}', '{insert,update,delete}'),
      ('invoice', '{invoice,""}', '{insert,update,delete}'),
      -- A payment never changes; a reversal is another payment.
      ('payment', '{payment,""}', '{insert}'),
      ('transport_enrollment', '{transport_enrollment,""}', '{insert,update}'),
      ('attendance', '{attendance,marked,class_id,date}', '{insert,update,delete}'),
      ('timetable_slot', '{timetable,changed,class_id}', '{insert,update,delete}')
    ) subject (table_name, arguments, changes)
  loop
    for v_change in
      select *
      from (values
        ('insert', 'announce_added', 'new table as added'),
        ('update', 'announce_changed', 'old table as removed new table as added'),
        ('delete', 'announce_removed', 'old table as removed')
      ) change (verb, trigger_name, transition)
      where verb = any (v_subject.changes)
    loop
      execute format(
        'create trigger %I after %s on %I referencing %s for each statement execute function record_webhook_events(%s)',
        v_change.trigger_name, v_change.verb, v_subject.table_name, v_change.transition,
        (select string_agg(quote_literal(argument), ', ') from unnest(v_subject.arguments) argument));
    end loop;
  end loop;
end $do$;

create or replace function refuse_impersonator() returns trigger language plpgsql set search_path from current as $$
begin
  raise exception using errcode = 'S403A',
    message = 'An operator cannot change logins, passwords, roles, devices, calendar feeds, webhooks or notifications '
      'of operator logins during an impersonation.';
end $$;
