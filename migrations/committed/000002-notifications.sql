--! Previous: sha1:8a2259cd2686f2002e511713a88d2a5bbe8b7dfb
--! Hash: sha1:ebdb3a89ff41a251bbde942126214c96826ed076
--! Message: notifications

-- Notifications: what operators decide for all schools.
create table if not exists platform.notification_setting (
  id boolean primary key default true constraint notification_setting_id_check check (id),
  in_app boolean not null default true,
  push boolean not null default true,
  email boolean not null default true,
  sender_name text constraint notification_setting_sender_name_check check (length(sender_name) between 1 and 100),
  quiet_from time,
  quiet_until time,
  push_per_user_per_day integer default 50 constraint notification_setting_push_check check (push_per_user_per_day >= 0),
  emails_per_user_per_day integer default 20 constraint notification_setting_emails_check check (emails_per_user_per_day >= 0),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint notification_setting_quiet_check check ((quiet_from is null) = (quiet_until is null) and quiet_from <> quiet_until)
);
comment on table platform.notification_setting is 'What holds for the notifications of every school, one row; quiet hours are in the time zone of the school, a limit of null is none.';
insert into platform.notification_setting default values on conflict do nothing;
create or replace trigger touch before update on platform.notification_setting for each row execute function platform.touch_updated_at();

create table if not exists platform.notification_template (
  id bigserial primary key,
  key text not null,
  channel text not null constraint notification_template_channel_check check (channel in ('in_app', 'push', 'email')),
  subject text not null constraint notification_template_subject_check check (length(subject) between 1 and 200),
  body text not null constraint notification_template_body_check check (length(body) between 1 and 5000),
  is_active boolean not null default true,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.notification_template is 'The words of operators for an event (core.notification_event) on one channel, in place of those of the catalogue; schools may have their own.';
create unique index if not exists notification_template_key_key on platform.notification_template (key, channel);
create or replace trigger touch before update on platform.notification_template for each row execute function platform.touch_updated_at();
