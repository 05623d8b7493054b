--! Previous: sha1:1d64f3cf089f4416b14f70a78256d6cf4f5678fe
--! Hash: sha1:b3898c6cef1fa83a2bb7fd0eb1d2829874401276
--! Message: slices of the outbox

-- An event for more recipients than fit into a transaction is written in several.
alter table platform.outbox add column written integer not null default 0;
comment on column platform.outbox.written is
  'For how many of the recipients, which are kept in the facts then, notifications are written.';
comment on column platform.outbox.retry_at is
  'When a row is tried again whose recipients could not be found, or whose notifications could not be stored; infinity '
  'after the last attempt.';
comment on table platform.outbox is
  'Events whose notifications, or webhooks, are still to be sent, in order. Without a foreign key, whose check would '
  'lock the row of the school in each request.';
