--! Previous: sha1:8856f0ca5fb5c40fb6bf3f547763354b05feff6c
--! Hash: sha1:7241ebded6888e042f509792b48a30963c50620e
--! Message: notifications

-- Notification settings and texts that operators define for all schools. Those of a school are in migrations/tenant.

create table platform.notification_setting (
  id boolean primary key default true
    constraint notification_setting_id_check check (id),
  in_app boolean not null default true,
  push boolean not null default true,
  email boolean not null default true,
  sender_name text
    constraint notification_setting_sender_name_check check (length(sender_name) between 1 and 100),
  quiet_from time,
  quiet_until time,
  push_per_user_per_day integer default 50
    constraint notification_setting_push_check check (push_per_user_per_day >= 0),
  emails_per_user_per_day integer default 20
    constraint notification_setting_emails_check check (emails_per_user_per_day >= 0),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint notification_setting_quiet_check
    check ((quiet_from is null) = (quiet_until is null) and quiet_from <> quiet_until)
);
comment on table platform.notification_setting is
  'Notification settings of all schools. One row. Quiet hours are in the time zone of each school; a null limit '
  'means no limit.';
insert into platform.notification_setting default values;
create trigger touch before update on platform.notification_setting
  for each row execute function platform.touch_updated_at();

create table platform.notification_template (
  id bigserial primary key,
  key text not null,
  channel text not null
    constraint notification_template_channel_check check (channel in ('in_app', 'push', 'email')),
  subject text not null
    constraint notification_template_subject_check check (length(subject) between 1 and 200),
  body text not null
    constraint notification_template_body_check check (length(body) between 1 and 5000),
  is_active boolean not null default true,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.notification_template is
  'The text that operators wrote for an event (core.notification_event) on one channel. It replaces the default '
  'text; a school can replace it in turn.';
create unique index notification_template_key_key on platform.notification_template (key, channel);
create trigger touch before update on platform.notification_template
  for each row execute function platform.touch_updated_at();
