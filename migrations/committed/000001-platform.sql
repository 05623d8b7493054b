--! Previous: -
--! Hash: sha1:e572b594e1e8e7dc5dc3025f7702f95585d96695
--! Message: platform

-- The platform: schools, plans, subscriptions, operators and the audit log.
-- Start here. The other committed migrations build on this one. The tables inside a school are in migrations/tenant.

create extension if not exists pgcrypto with schema public;
create extension if not exists pg_trgm with schema public;
create extension if not exists unaccent with schema public;
create extension if not exists btree_gist with schema public;

create schema platform;
comment on schema platform is
  'Data of the service as a whole: schools, plans, operators, sessions, the audit log and the tenant migrations.';

-- Declared immutable because indexes and generated columns use it; unaccent itself is only stable.
-- PL/pgSQL because an SQL function with these settings cannot be inlined and is ten times slower per call.
create function platform.search_normal(p_text text) returns text
  language plpgsql immutable strict parallel safe as $$
begin
  return lower(public.unaccent('public.unaccent'::regdictionary, p_text));
end $$;
comment on function platform.search_normal is 'Normalizes text for search and sorting: lower case, without accents.';

create function platform.touch_updated_at() returns trigger language plpgsql as $$
begin
  new.updated_at := now();
  return new;
end $$;
comment on function platform.touch_updated_at is 'Sets updated_at to the time of the transaction.';

create table platform.state_transition (
  entity text not null,
  action text not null,
  from_state text not null,
  to_state text not null,
  primary key (entity, action, from_state, to_state)
);
comment on table platform.state_transition is
  'The allowed changes of each status column, and the action that makes each change.';

create function platform.enforce_transition() returns trigger language plpgsql as $$
begin
  if not exists (
    select from platform.state_transition
    where entity = tg_argv[0] and from_state = old.status and to_state = new.status
  ) then
    raise exception using errcode = 'S409C',
      message = format('The %s cannot change from %s to %s.', tg_argv[0], old.status, new.status);
  end if;
  return new;
end $$;
comment on function platform.enforce_transition is
  'Rejects a status change of the entity tg_argv[0] that platform.state_transition does not list.';

insert into platform.state_transition (entity, action, from_state, to_state) values
  ('tenant', 'suspend', 'active', 'suspended'),
  ('tenant', 'activate', 'suspended', 'active'),
  ('tenant', 'delete', 'active', 'deleted'),
  ('tenant', 'delete', 'suspended', 'deleted'),
  ('tenant', 'restore', 'deleted', 'active'),
  ('tenant', 'restore', 'deleted', 'suspended'),
  ('subscription', 'renew', 'trialing', 'active'),
  ('subscription', 'renew', 'past_due', 'active'),
  ('subscription', 'renew', 'cancelled', 'active'),
  ('subscription', 'start_trial', 'cancelled', 'trialing'),
  ('subscription', 'lapse', 'trialing', 'past_due'),
  ('subscription', 'lapse', 'active', 'past_due'),
  ('subscription', 'cancel', 'trialing', 'cancelled'),
  ('subscription', 'cancel', 'active', 'cancelled'),
  ('subscription', 'cancel', 'past_due', 'cancelled');

create table platform.plan (
  id bigserial primary key,
  name text not null
    constraint plan_name_check check (length(name) between 1 and 100),
  price_monthly numeric(12,2) not null
    constraint plan_price_monthly_check check (price_monthly >= 0),
  max_students integer not null
    constraint plan_max_students_check check (max_students >= 0),
  max_teachers integer not null
    constraint plan_max_teachers_check check (max_teachers >= 0),
  features text[] not null default '{}',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.plan is 'A plan that a school can subscribe to: price, limits and features.';
create unique index plan_name_key on platform.plan (lower(name));
create trigger touch before update on platform.plan
  for each row execute function platform.touch_updated_at();

insert into platform.plan (name, price_monthly, max_students, max_teachers, features) values
  ('Starter', 49.00, 200, 20, '{attendance,notifications}'),
  ('Standard', 149.00, 1000, 80, '{attendance,fees_management,timetable,notifications}'),
  ('Premium', 399.00, 25000, 2000, '{attendance,fees_management,timetable,transport,notifications}');

create table platform.tenant (
  id bigserial primary key,
  name text not null
    constraint tenant_name_check check (length(name) between 1 and 200),
  subdomain text not null
    constraint tenant_subdomain_check check (subdomain ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
  status text not null default 'active'
    constraint tenant_status_check check (status in ('active', 'suspended', 'deleted')),
  plan_id bigint not null references platform.plan (id) on delete restrict,
  contact_email text not null,
  trial_ends_at timestamptz,
  feature_flags jsonb not null default '{}'
    constraint tenant_feature_flags_check check (jsonb_typeof(feature_flags) = 'object'),
  is_setup_complete boolean not null default false,
  is_impersonation_allowed boolean not null default true,
  time_zone text not null default 'UTC',
  schema_version integer not null default 0,
  seeded_permission_id integer not null default 0,
  suspended_at timestamptz,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.tenant is 'A school. Its own data is in the schema tenant_<id>.';
comment on column platform.tenant.is_impersonation_allowed is
  'Whether operators may log in as an admin of the school. Operators can only turn this off; only the school can '
  'turn it on.';
comment on column platform.tenant.schema_version is
  'The version of the last tenant migration applied to the schema of the school. 0 means that there is no schema.';
comment on column platform.tenant.seeded_permission_id is
  'The highest permission id whose default grants the roles of the school have received. Later changes by the '
  'school are kept.';
create unique index tenant_subdomain_key on platform.tenant (subdomain);
create index tenant_plan_id_idx on platform.tenant (plan_id);
create index tenant_created_at_idx on platform.tenant (created_at);
create trigger touch before update on platform.tenant
  for each row execute function platform.touch_updated_at();
create trigger transition before update of status on platform.tenant
  for each row execute function platform.enforce_transition('tenant');

create table platform.tenant_usage (
  tenant_id bigint primary key references platform.tenant (id) on delete cascade,
  students integer not null default 0,
  teachers integer not null default 0,
  classes integer not null default 0,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.tenant_usage is
  'The number of active students, teachers and classes of a school. Each change updates its row in the same '
  'transaction, and the row lock makes concurrent changes respect the limits of the plan.';
create trigger touch before update on platform.tenant_usage
  for each row execute function platform.touch_updated_at();

create table platform.subscription (
  id bigserial primary key,
  tenant_id bigint not null references platform.tenant (id) on delete cascade,
  plan_id bigint not null references platform.plan (id) on delete restrict,
  status text not null
    constraint subscription_status_check check (status in ('trialing', 'active', 'past_due', 'cancelled')),
  started_at timestamptz not null default now(),
  current_period_end timestamptz not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.subscription is 'The subscription of a school to a plan. A school has one.';
create unique index subscription_tenant_id_key on platform.subscription (tenant_id);
create index subscription_plan_id_idx on platform.subscription (plan_id);
create trigger touch before update on platform.subscription
  for each row execute function platform.touch_updated_at();
create trigger transition before update of status on platform.subscription
  for each row execute function platform.enforce_transition('subscription');

-- The next three tables have the same names and columns as those of a school (migrations/tenant), so that the same
-- /api/auth functions serve operators and users of schools.
create table platform.file (
  id bigserial primary key,
  content bytea not null,
  content_type text not null,
  name text,
  size integer not null generated always as (length(content)) stored,
  digest text not null generated always as (md5(content)) stored,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.file is 'Profile pictures of operators.';
-- Pictures are compressed already.
alter table platform.file alter column content set storage external;
create trigger touch before update on platform.file
  for each row execute function platform.touch_updated_at();

create table platform.user_account (
  id bigserial primary key,
  email text not null
    constraint user_account_email_check check (email = lower(email) and length(email) <= 254),
  password_hash text,
  first_name text not null
    constraint user_account_first_name_check check (length(first_name) between 1 and 100),
  last_name text not null
    constraint user_account_last_name_check check (length(last_name) between 1 and 100),
  phone text,
  role text not null default 'admin'
    constraint user_account_role_check check (role in ('admin', 'analyst')),
  analyst_tenant_ids bigint[],
  is_active boolean not null default true,
  email_verified_at timestamptz,
  profile_picture_id bigint references platform.file (id) on delete set null,
  last_login_at timestamptz,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.user_account is 'An operator (platform staff) or an analyst.';
comment on column platform.user_account.analyst_tenant_ids is
  'The schools whose figures an analyst may see; null means all schools.';
create unique index user_account_email_key on platform.user_account (email) where deleted_at is null;
create index user_account_profile_picture_id_idx on platform.user_account (profile_picture_id);
create trigger touch before update on platform.user_account
  for each row execute function platform.touch_updated_at();

create table platform.idempotency_key (
  user_id bigint not null references platform.user_account (id) on delete cascade,
  key text not null
    constraint idempotency_key_key_check check (length(key) between 1 and 255),
  operation text not null,
  request_hash text not null,
  answer json,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (user_id, key)
);
comment on table platform.idempotency_key is
  'The first response to each Idempotency-Key that an operator sent, kept for 24 hours.';
create trigger touch before update on platform.idempotency_key
  for each row execute function platform.touch_updated_at();

-- No foreign keys: an entry outlives everything that it names.
create table platform.audit_log (
  id bigserial primary key,
  actor_id bigint,
  actor_email text,
  action text not null,
  tenant_id bigint,
  target_type text not null,
  target_id bigint,
  changes jsonb not null default '{}',
  impersonated_user_id bigint,
  impersonated_email text,
  ip text,
  user_agent text,
  request_id text,
  created_at timestamptz not null default now()
);
comment on table platform.audit_log is
  'What operators did. Append-only, for the owner too unless the owner disables the trigger.';
comment on column platform.audit_log.impersonated_user_id is
  'The user of the school tenant_id as whom the operator acted; null when the operator acted as themselves.';
create index audit_log_tenant_id_idx on platform.audit_log (tenant_id, id);
create index audit_log_action_idx on platform.audit_log (action, id);
create index audit_log_actor_id_idx on platform.audit_log (actor_id, id);
create index audit_log_created_at_idx on platform.audit_log (created_at);

create function platform.refuse_change() returns trigger language plpgsql as $$
begin
  raise exception using errcode = 'S403A',
    message = format('The table %I is append-only. Its rows cannot be changed or deleted.', tg_table_name);
end $$;
comment on function platform.refuse_change is 'Makes a table append-only.';
create trigger append_only before update or delete or truncate on platform.audit_log
  for each statement execute function platform.refuse_change();

create table platform.tenant_migration (
  version integer primary key,
  name text not null,
  body text not null,
  checksum text not null,
  created_at timestamptz not null default now()
);
comment on table platform.tenant_migration is
  'The tenant migrations of the installed version. Creating or migrating a school runs those that its schema has '
  'not had yet.';

create table platform.installation (
  id boolean primary key default true
    constraint installation_id_check check (id),
  fingerprint text not null,
  tenant_version integer not null,
  installed_at timestamptz not null default now()
);
comment on table platform.installation is 'The installed version of the schemas core, api and analytics. One row.';
