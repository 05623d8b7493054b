--! Previous: sha1:c8192887f836861e78d9507bc0a0114e1cda8122
--! Hash: sha1:1d64f3cf089f4416b14f70a78256d6cf4f5678fe
--! Message: outbox of notifications

-- What has happened and people are still to be told of, see docs/decisions/0070-outbox-of-notifications.md. A request
-- writes one narrow row down; the worker finds the recipients, writes the messages and deletes the row.
create table platform.outbox (
  id bigserial primary key,
  tenant_id bigint not null,
  event text not null,
  facts jsonb not null,
  traceparent text,
  attempts smallint not null default 0,
  retry_at timestamptz,
  error text,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default now()
)
-- Most of the time it is empty, and the worker looks at it twenty times a second.
with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_insert_threshold = -1);
comment on table platform.outbox is
  'Events that people, or webhooks, are still to be told of, in the order in which they happened. Without a foreign '
  'key, whose check would lock the row of the school in each request.';
comment on column platform.outbox.event is
  'A key of core.notification_event; `message` for a text that a person sends, `webhooks` for events of webhooks.';
comment on column platform.outbox.facts is 'The ids and amounts at the moment of the event; for a message its texts.';
comment on column platform.outbox.retry_at is 'When a row whose recipients could not be found is tried again.';
create index outbox_tenant_id_idx on platform.outbox (tenant_id, id);
create trigger touch before update on platform.outbox
  for each row execute function platform.touch_updated_at();
-- The ids of a node have a range of their own: its rows move with their school.
select setval('platform.outbox_id_seq', id::bigint * 1000000000000) from platform.node where is_this;
