-- Notifications: messages, devices, deliveries, and the texts and settings of the school. A user sees only their own
-- rows; the worker (app.is_system) sees all.

create table notification (
  id bigserial primary key,
  user_id bigint not null references user_account (id) on delete cascade,
  title text not null
    constraint notification_title_check check (length(title) between 1 and 200),
  message text not null,
  type text not null default 'info',
  action_url text,
  read_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table notification is 'A message to one user, shown in the app.';
create index notification_user_id_idx on notification (user_id, id desc);
create index notification_unread_idx on notification (user_id) where read_at is null;
create index notification_created_at_idx on notification using brin (created_at);
create policy people_read_their_own on notification as restrictive
  using (
    user_id = nullif(current_setting('app.user_id', true), '')::bigint
    or nullif(current_setting('app.is_system', true) = 'yes', false) is not null
  )
  with check (true);
create trigger refuse_impersonator before update or delete on notification
  for each row when (
    nullif(current_setting('app.impersonator_id', true), '') is not null
    and old.type = 'operator.login'
  )
  execute function refuse_impersonator();

create table device (
  id bigserial primary key,
  user_id bigint not null references user_account (id) on delete cascade,
  token text not null
    constraint device_token_check check (length(token) between 1 and 4096),
  platform text not null
    constraint device_platform_check check (platform in ('ios', 'android', 'web')),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table device is
  'A device that receives push messages of a user. Another user who presents its token (app.device_token) may take '
  'it over.';
create unique index device_token_key on device (md5(token));
create index device_user_id_idx on device (user_id);
create policy people_have_their_own on device as restrictive
  using (
    user_id = nullif(current_setting('app.user_id', true), '')::bigint
    or token = nullif(current_setting('app.device_token', true), '')
    or nullif(current_setting('app.is_system', true) = 'yes', false) is not null
  )
  with check (
    user_id = nullif(current_setting('app.user_id', true), '')::bigint
    or nullif(current_setting('app.is_system', true) = 'yes', false) is not null
  );
create trigger refuse_impersonator before insert or update or delete on device
  for each row when (nullif(current_setting('app.impersonator_id', true), '') is not null)
  execute function refuse_impersonator();

create table notification_delivery (
  id bigserial primary key,
  notification_id bigint references notification (id) on delete set null,
  user_id bigint references user_account (id) on delete cascade,
  channel text not null
    constraint notification_delivery_channel_check check (channel in ('push', 'email')),
  device_id bigint references device (id) on delete set null,
  address text,
  recipient_name text not null,
  title text not null,
  message text not null,
  action_url text,
  status text not null default 'pending'
    constraint notification_delivery_status_check check (status in ('pending', 'sent', 'failed', 'dropped')),
  attempts integer not null default 0,
  reason text,
  sent_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint notification_delivery_address_check check ((address is not null) = (channel = 'email'))
);
comment on table notification_delivery is
  e'The delivery of one message to one device or email address, and its outcome. user_id is null for a recipient '
  'without an account, such as a parent.\n@grants select';
comment on column notification_delivery.device_id is 'Null for email, and after the device was removed.';
comment on column notification_delivery.reason is 'A code that says why the delivery failed or was dropped.';
create index notification_delivery_notification_id_idx on notification_delivery (notification_id);
create index notification_delivery_user_id_idx on notification_delivery (user_id);
create index notification_delivery_device_id_idx on notification_delivery (device_id, created_at);
create index notification_delivery_address_idx on notification_delivery (address, created_at)
  where address is not null;
-- Only for the cleanup job, which deletes the oldest rows.
create index notification_delivery_created_at_idx on notification_delivery using brin (created_at);
create policy people_read_their_own on notification_delivery as restrictive
  using (
    user_id = nullif(current_setting('app.user_id', true), '')::bigint
    or nullif(current_setting('app.is_system', true) = 'yes', false) is not null
  );

create table notification_template (
  id bigserial primary key,
  name text not null
    constraint notification_template_name_check check (length(name) between 1 and 100),
  title text not null
    constraint notification_template_title_check check (length(title) between 1 and 200),
  message text not null
    constraint notification_template_message_check check (length(message) between 1 and 5000),
  type text not null default 'info'
    constraint notification_template_type_check check (length(type) between 1 and 50),
  channels text[] not null default '{in_app,push}'
    constraint notification_template_channels_check
      check (cardinality(channels) > 0 and channels <@ '{in_app,push,email}'),
  variables text[] not null default '{}',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table notification_template is
  'A text with placeholders that users can send. A template with the name of an event replaces the text of that event.';
comment on column notification_template.variables is
  'Placeholders that the sender fills in, in addition to those that are known of each recipient.';
create unique index notification_template_name_key on notification_template (lower(name));
create trigger refuse_impersonator before insert or update on notification_template
  for each row when (
    nullif(current_setting('app.impersonator_id', true), '') is not null
    and lower(new.name) = 'operator.login'
  )
  execute function refuse_impersonator();
create trigger refuse_impersonator_to_change before update or delete on notification_template
  for each row when (
    nullif(current_setting('app.impersonator_id', true), '') is not null
    and lower(old.name) = 'operator.login'
  )
  execute function refuse_impersonator();

create table notification_event (
  event text primary key,
  is_enabled boolean not null default true,
  channels text[] not null
    constraint notification_event_channels_check
      check (cardinality(channels) > 0 and channels <@ '{in_app,push,email}'),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table notification_event is
  'The settings of the school for an event (core.notification_event). An event without a row has the default settings.';
create trigger refuse_impersonator before insert or update on notification_event
  for each row when (
    nullif(current_setting('app.impersonator_id', true), '') is not null
    and new.event = 'operator.login'
  )
  execute function refuse_impersonator();
