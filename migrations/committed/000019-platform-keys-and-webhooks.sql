--! Previous: sha1:6fff258dcd70fe698d4ba6908427f7b37353c6f8
--! Hash: sha1:92ee4f2ab1e000e1202278441fb3c47834a111e7
--! Message: platform-keys-and-webhooks

-- API keys and webhooks of the platform. The tables have the names and columns of those of a school (tenant migrations
-- 0015 and 0017), so that the same functions serve both.

create table platform.api_key (
  id bigserial primary key,
  user_id bigint not null constraint api_key_user_id_fkey references platform.user_account (id) on delete cascade,
  name text not null
    constraint api_key_name_check check (length(name) between 1 and 100),
  role text not null
    constraint api_key_role_check check (role in ('admin', 'analyst')),
  tenant_ids bigint[]
    constraint api_key_tenant_ids_check
      check (tenant_ids is null or (cardinality(tenant_ids) > 0 and role = 'analyst')),
  is_read_only boolean not null default true,
  prefix text not null
    constraint api_key_prefix_check check (prefix ~ '^sk_platform_[0-9A-Za-z]{4}$'),
  key_hash text not null
    constraint api_key_key_hash_check check (key_hash ~ '^[0-9a-f]{64}$'),
  expires_at timestamptz,
  last_used_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.api_key is
  'A key with which a program acts for an operator. It is deleted when it is revoked.';
comment on column platform.api_key.role is
  'What the key may do at most. A request has the lesser of this role and the role of the operator at that time.';
comment on column platform.api_key.tenant_ids is
  'The schools that a key with the role analyst may see, of those that its operator may see; null for all of them.';
comment on column platform.api_key.is_read_only is 'Whether the key may only run operations that change nothing.';
comment on column platform.api_key.prefix is 'The beginning of the key, so that operators recognize it.';
comment on column platform.api_key.key_hash is 'SHA-256 of the key in hex. The key itself is not stored.';
comment on column platform.api_key.last_used_at is 'Updated at most once a minute.';
create unique index api_key_key_hash_key on platform.api_key (key_hash);
create index api_key_user_id_idx on platform.api_key (user_id, id);
create trigger touch before update on platform.api_key
  for each row execute function platform.touch_updated_at();

create table platform.webhook (
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
  created_by bigint constraint webhook_created_by_fkey references platform.user_account (id) on delete set null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.webhook is 'An address that receives the chosen events of the platform.';
comment on column platform.webhook.failing_since is
  'The first failed attempt since the last message that was delivered.';
comment on column platform.webhook.failures is
  'The number of failed attempts since the last message that was delivered.';
comment on column platform.webhook.retry_at is
  'After a failed attempt: no message is sent to this address before this time.';
comment on column platform.webhook.disabled_at is
  'When the service disabled the webhook, because it failed for a day or answered 410.';
create index webhook_created_by_idx on platform.webhook (created_by);
create trigger touch before update on platform.webhook
  for each row execute function platform.touch_updated_at();

create table platform.webhook_secret (
  id bigserial primary key,
  webhook_id bigint not null
    constraint webhook_secret_webhook_id_fkey references platform.webhook (id) on delete cascade,
  secret text not null
    constraint webhook_secret_secret_check check (secret ~ '^whsec_[A-Za-z0-9+/]{32}$'),
  expires_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.webhook_secret is
  'The secrets that sign the messages of a webhook. All that have not expired sign.';
comment on column platform.webhook_secret.expires_at is
  'Null for the current secret; set when another one replaces it.';
create index webhook_secret_webhook_id_idx on platform.webhook_secret (webhook_id);
create unique index webhook_secret_current_key on platform.webhook_secret (webhook_id) where expires_at is null;
create trigger touch before update on platform.webhook_secret
  for each row execute function platform.touch_updated_at();

create table platform.webhook_event (
  id bigserial primary key,
  type text not null,
  key jsonb not null,
  body text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.webhook_event is 'A change that is sent to webhooks. Written by triggers.';
comment on column platform.webhook_event.key is 'What changed: {"id": 5}.';
comment on column platform.webhook_event.body is 'The message as JSON; null until the worker has prepared it.';
create index webhook_event_waiting_idx on platform.webhook_event (created_at) where body is null;
create trigger touch before update on platform.webhook_event
  for each row execute function platform.touch_updated_at();

create table platform.webhook_delivery (
  id bigserial primary key,
  webhook_id bigint not null
    constraint webhook_delivery_webhook_id_fkey references platform.webhook (id) on delete cascade,
  event_id bigint not null
    constraint webhook_delivery_event_id_fkey references platform.webhook_event (id) on delete cascade,
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
comment on table platform.webhook_delivery is
  'The delivery of one event to one webhook, with the result of the last attempt.';
comment on column platform.webhook_delivery.status_code is
  'The HTTP status of the last response; null without a response.';
comment on column platform.webhook_delivery.reason is 'A code that says why the last attempt failed.';
comment on column platform.webhook_delivery.response_body is 'The beginning of the last response.';
create index webhook_delivery_webhook_id_idx on platform.webhook_delivery (webhook_id, id);
create index webhook_delivery_event_id_idx on platform.webhook_delivery (event_id);
create index webhook_delivery_pending_idx on platform.webhook_delivery (next_attempt_at) where status = 'pending';
create trigger touch before update on platform.webhook_delivery
  for each row execute function platform.touch_updated_at();
