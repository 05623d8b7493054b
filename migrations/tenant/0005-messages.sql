-- What people are told, and the devices it is pushed to. Both belong to their user alone.

create table notification (
  id bigserial primary key,
  user_id bigint not null references user_account (id) on delete cascade,
  title text not null constraint notification_title_check check (length(title) between 1 and 200),
  message text not null,
  type text not null default 'info',
  action_url text,
  read_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table notification is 'A message to one user.';
create index notification_user_id_idx on notification (user_id, id desc);
create index notification_unread_idx on notification (user_id) where read_at is null;
create policy people_read_their_own on notification as restrictive
  using (user_id = nullif(current_setting('app.user_id', true), '')::bigint) with check (true);

create table device (
  id bigserial primary key,
  user_id bigint not null references user_account (id) on delete cascade,
  token text not null constraint device_token_check check (length(token) between 1 and 4096),
  platform text not null constraint device_platform_check check (platform in ('ios', 'android', 'web')),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table device is 'Where a user gets push messages. Whoever shows a token may take it over: app.device_token says which one was shown.';
create unique index device_token_key on device (md5(token));
create index device_user_id_idx on device (user_id);
create policy people_have_their_own on device as restrictive
  using (user_id = nullif(current_setting('app.user_id', true), '')::bigint or token = nullif(current_setting('app.device_token', true), ''))
  with check (user_id = nullif(current_setting('app.user_id', true), '')::bigint);
