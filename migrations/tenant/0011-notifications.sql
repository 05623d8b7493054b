-- Notifications: what is kept of each message, by which ways it goes out, the school's own words and switches. The worker sees all of
-- it (app.is_system), a user only what is theirs.

drop policy people_read_their_own on notification;
create policy people_read_their_own on notification as restrictive
  using (user_id = nullif(current_setting('app.user_id', true), '')::bigint or nullif(current_setting('app.is_system', true) = 'yes', false) is not null)
  with check (true);

drop policy people_have_their_own on device;
create policy people_have_their_own on device as restrictive
  using (user_id = nullif(current_setting('app.user_id', true), '')::bigint or token = nullif(current_setting('app.device_token', true), '')
    or nullif(current_setting('app.is_system', true) = 'yes', false) is not null)
  with check (user_id = nullif(current_setting('app.user_id', true), '')::bigint or nullif(current_setting('app.is_system', true) = 'yes', false) is not null);

drop policy people_have_their_own on calendar_feed;
create policy people_have_their_own on calendar_feed as restrictive
  using (user_id = nullif(current_setting('app.user_id', true), '')::bigint or token_hash = nullif(current_setting('app.feed', true), '')
    or nullif(current_setting('app.is_system', true) = 'yes', false) is not null);

create index notification_created_at_idx on notification using brin (created_at);

create table notification_delivery (
  id bigserial primary key,
  notification_id bigint references notification (id) on delete set null,
  user_id bigint references user_account (id) on delete cascade,
  channel text not null constraint notification_delivery_channel_check check (channel in ('push', 'email')),
  device_id bigint references device (id) on delete set null,
  address text,
  recipient_name text not null,
  title text not null,
  message text not null,
  action_url text,
  status text not null default 'pending' constraint notification_delivery_status_check check (status in ('pending', 'sent', 'failed', 'dropped')),
  attempts integer not null default 0,
  reason text,
  sent_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint notification_delivery_address_check check ((address is not null) = (channel = 'email'))
);
comment on table notification_delivery is e'One message on its way to one device or one e-mail address, and what became of it; user_id is null for who has no log-in, a parent for example.\n@grants select';
comment on column notification_delivery.device_id is 'Null for e-mail, and when the device was removed since.';
comment on column notification_delivery.reason is 'Why it failed or was dropped, as a code.';
create index notification_delivery_notification_id_idx on notification_delivery (notification_id);
create index notification_delivery_user_id_idx on notification_delivery (user_id);
create index notification_delivery_device_id_idx on notification_delivery (device_id, created_at);
create index notification_delivery_address_idx on notification_delivery (address, created_at) where address is not null;
-- For the clean-up alone, which takes the oldest.
create index notification_delivery_created_at_idx on notification_delivery using brin (created_at);
create policy people_read_their_own on notification_delivery as restrictive
  using (user_id = nullif(current_setting('app.user_id', true), '')::bigint or nullif(current_setting('app.is_system', true) = 'yes', false) is not null);

create table notification_template (
  id bigserial primary key,
  name text not null constraint notification_template_name_check check (length(name) between 1 and 100),
  title text not null constraint notification_template_title_check check (length(title) between 1 and 200),
  message text not null constraint notification_template_message_check check (length(message) between 1 and 5000),
  type text not null default 'info' constraint notification_template_type_check check (length(type) between 1 and 50),
  channels text[] not null default '{in_app,push}'
    constraint notification_template_channels_check check (cardinality(channels) > 0 and channels <@ '{in_app,push,email}'),
  variables text[] not null default '{}',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table notification_template is 'Words with placeholders to send by hand; one that is called like an event has the words for that event.';
comment on column notification_template.variables is 'What a sender fills in, besides what is known of each recipient.';
create unique index notification_template_name_key on notification_template (lower(name));

create table notification_event (
  event text primary key,
  is_enabled boolean not null default true,
  channels text[] not null constraint notification_event_channels_check check (cardinality(channels) > 0 and channels <@ '{in_app,push,email}'),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table notification_event is 'What this school decided on an event that notifies, by the key of the catalogue (core.notification_event); without a row the event is as the catalogue says.';
