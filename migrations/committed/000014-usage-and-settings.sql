--! Previous: sha1:013232ee5ef3a91a827e7840e2ab109b6f3792e0
--! Hash: sha1:6a45a3447b0b16af33de1913065d713dbb3469f2
--! Message: usage-and-settings

-- The usage of each school by day, and the settings of the platform.

create table platform.usage_day (
  tenant_id bigint not null references platform.tenant (id) on delete cascade,
  date date not null,
  students integer,
  teachers integer,
  active_users integer,
  messages integer,
  storage_bytes bigint,
  requests bigint,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (tenant_id, date)
);
comment on table platform.usage_day is
  'What each school used on a day, in its time zone. The worker measures it every hour (core.record_usage); the API '
  'adds the requests (core.record_requests). A figure that was not recorded is null.';
comment on column platform.usage_day.active_users is
  'Users who logged in, refreshed their login or used an API key on this day.';
comment on column platform.usage_day.messages is 'Emails and push messages that were created on this day and sent.';
comment on column platform.usage_day.storage_bytes is 'The size of all files of the school: pictures and documents.';
create index usage_day_date_idx on platform.usage_day (date);
create trigger touch before update on platform.usage_day
  for each row execute function platform.touch_updated_at();

create table platform.setting (
  id boolean primary key default true
    constraint setting_id_check check (id),
  currency text not null default 'USD'
    constraint setting_currency_check check (currency ~ '^[A-Z]{3}$'),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.setting is 'Settings of the platform. One row.';
comment on column platform.setting.currency is 'The currency of the prices of plans, ISO 4217.';
insert into platform.setting default values;
create trigger touch before update on platform.setting
  for each row execute function platform.touch_updated_at();
