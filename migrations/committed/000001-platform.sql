--! Previous: -
--! Hash: sha1:8a2259cd2686f2002e511713a88d2a5bbe8b7dfb
--! Message: platform

-- What belongs to the service and not to one school: schools, plans, operators, sessions, the audit trail.

create extension if not exists pgcrypto with schema public;
create extension if not exists pg_trgm with schema public;
create extension if not exists unaccent with schema public;
create extension if not exists btree_gist with schema public;

create schema platform;
comment on schema platform is 'Schools, plans, subscriptions, operators, sessions, the audit trail, the tenant migrations.';

-- Text as search sees it: lower case, without accents. Immutable, since indexes and generated columns of every school use it.
-- In PL/pgSQL, whose simple expressions cost a tenth of an SQL function that can't be inlined (unaccent is only stable).
create function platform.search_normal(p_text text) returns text
  language plpgsql immutable strict parallel safe as $$
begin
  return lower(public.unaccent('public.unaccent'::regdictionary, p_text));
end $$;
comment on function platform.search_normal is 'Lower case without accents: what search compares and names are sorted by.';

create function platform.touch_updated_at() returns trigger language plpgsql as $$
begin
  new.updated_at := now();
  return new;
end $$;

-- State machines: a trigger `enforce_transition(<entity>)` on a status column allows the steps of this table and no other.
create table platform.state_transition (
  entity text not null,
  action text not null,
  from_state text not null,
  to_state text not null,
  primary key (entity, action, from_state, to_state)
);
comment on table platform.state_transition is 'The steps that a status column may take, and what takes them.';

create function platform.enforce_transition() returns trigger language plpgsql as $$
begin
  if not exists (
    select from platform.state_transition
    where entity = tg_argv[0] and from_state = old.status and to_state = new.status
  ) then
    raise exception using errcode = 'S409C', message = format('A %s cannot go from %s to %s.', tg_argv[0], old.status, new.status);
  end if;
  return new;
end $$;

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
  ('subscription', 'try', 'cancelled', 'trialing'),
  ('subscription', 'lapse', 'trialing', 'past_due'),
  ('subscription', 'lapse', 'active', 'past_due'),
  ('subscription', 'cancel', 'trialing', 'cancelled'),
  ('subscription', 'cancel', 'active', 'cancelled'),
  ('subscription', 'cancel', 'past_due', 'cancelled');

create table platform.plan (
  id bigserial primary key,
  name text not null constraint plan_name_check check (length(name) between 1 and 100),
  price_monthly numeric(12,2) not null constraint plan_price_monthly_check check (price_monthly >= 0),
  max_students integer not null constraint plan_max_students_check check (max_students >= 0),
  max_teachers integer not null constraint plan_max_teachers_check check (max_teachers >= 0),
  features text[] not null default '{}',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.plan is 'What a school pays for: price, capacity, features.';
create unique index plan_name_key on platform.plan (lower(name));
create trigger touch before update on platform.plan for each row execute function platform.touch_updated_at();

create table platform.tenant (
  id bigserial primary key,
  name text not null constraint tenant_name_check check (length(name) between 1 and 200),
  subdomain text not null constraint tenant_subdomain_check check (subdomain ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
  status text not null default 'active' constraint tenant_status_check check (status in ('active', 'suspended', 'deleted')),
  plan_id bigint not null references platform.plan (id) on delete restrict,
  contact_email text not null,
  trial_ends_at timestamptz,
  feature_flags jsonb not null default '{}' constraint tenant_feature_flags_check check (jsonb_typeof(feature_flags) = 'object'),
  is_setup_complete boolean not null default false,
  time_zone text not null default 'UTC',
  schema_version integer not null default 0,
  seeded_permission_id integer not null default 0,
  suspended_at timestamptz,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.tenant is 'One school. Its data lives in the schema tenant_<id>.';
comment on column platform.tenant.schema_version is 'The last tenant migration that its schema has seen.';
comment on column platform.tenant.seeded_permission_id is 'Default grants of permissions up to this one were given to its roles; what the school changed since is its own.';
create unique index tenant_subdomain_key on platform.tenant (subdomain);
create index tenant_plan_id_idx on platform.tenant (plan_id);
create index tenant_created_at_idx on platform.tenant (created_at);
create trigger touch before update on platform.tenant for each row execute function platform.touch_updated_at();
create trigger transition before update of status on platform.tenant for each row execute function platform.enforce_transition('tenant');

create table platform.tenant_usage (
  tenant_id bigint primary key references platform.tenant (id) on delete cascade,
  students integer not null default 0,
  teachers integer not null default 0,
  classes integer not null default 0,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.tenant_usage is 'Active students, teachers and classes of a school, counted in the transaction that changes them; its row lock makes plan limits hold.';
create trigger touch before update on platform.tenant_usage for each row execute function platform.touch_updated_at();

create table platform.subscription (
  id bigserial primary key,
  tenant_id bigint not null references platform.tenant (id) on delete cascade,
  plan_id bigint not null references platform.plan (id) on delete restrict,
  status text not null constraint subscription_status_check check (status in ('trialing', 'active', 'past_due', 'cancelled')),
  started_at timestamptz not null default now(),
  current_period_end timestamptz not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.subscription is 'What a school has subscribed to, and in which state that is.';
create unique index subscription_tenant_id_key on platform.subscription (tenant_id);
create index subscription_plan_id_idx on platform.subscription (plan_id);
create trigger touch before update on platform.subscription for each row execute function platform.touch_updated_at();
create trigger transition before update of status on platform.subscription for each row execute function platform.enforce_transition('subscription');

-- Operators have the same table, under the same names, as the users of a school, so that the functions of /api/auth serve both.
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
comment on table platform.file is 'Pictures of operators.';
alter table platform.file alter column content set storage external;
create trigger touch before update on platform.file for each row execute function platform.touch_updated_at();

create table platform.user_account (
  id bigserial primary key,
  email text not null constraint user_account_email_check check (email = lower(email) and length(email) <= 254),
  password_hash text,
  first_name text not null constraint user_account_first_name_check check (length(first_name) between 1 and 100),
  last_name text not null constraint user_account_last_name_check check (length(last_name) between 1 and 100),
  phone text,
  role text not null default 'admin' constraint user_account_role_check check (role in ('admin', 'analyst')),
  analyst_tenant_ids bigint[],
  is_active boolean not null default true,
  email_verified_at timestamptz,
  profile_picture_id bigint references platform.file (id) on delete set null,
  last_login_at timestamptz,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.user_account is 'A platform operator.';
comment on column platform.user_account.analyst_tenant_ids is 'The schools an analyst may see; null means all.';
create unique index user_account_email_key on platform.user_account (email) where deleted_at is null;
create index user_account_profile_picture_id_idx on platform.user_account (profile_picture_id);
create trigger touch before update on platform.user_account for each row execute function platform.touch_updated_at();

create table platform.idempotency_key (
  user_id bigint not null references platform.user_account (id) on delete cascade,
  key text not null constraint idempotency_key_key_check check (length(key) between 1 and 255),
  operation text not null,
  request_hash text not null,
  answer json,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (user_id, key)
);
comment on table platform.idempotency_key is 'The first answer to each Idempotency-Key of an operator, kept for 24 hours.';
create trigger touch before update on platform.idempotency_key for each row execute function platform.touch_updated_at();

create table platform.session (
  id bigserial primary key,
  tenant_id bigint references platform.tenant (id) on delete cascade,
  user_id bigint not null,
  permissions text[] not null default '{}',
  roles text[] not null default '{}',
  own_permissions text[] not null default '{}',
  taught_permissions text[] not null default '{}',
  student_id bigint,
  email text not null,
  ip text,
  user_agent text,
  expires_at timestamptz not null,
  revoked_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.session is 'One log-in. Carries what its user may do, so that a request is authorised by one look-up.';
comment on column platform.session.tenant_id is 'Null for an operator.';
comment on column platform.session.own_permissions is 'Permissions that only the student role gives: with them every row policy narrows to what is the user''s own.';
comment on column platform.session.taught_permissions is 'Permissions that only the roles teacher and student give: with them row policies narrow to the classes the user teaches.';
comment on column platform.session.student_id is 'The student behind the user.';
create index session_tenant_id_idx on platform.session (tenant_id, user_id);
create index session_expires_at_idx on platform.session (expires_at);
create trigger touch before update on platform.session for each row execute function platform.touch_updated_at();

create table platform.refresh_token (
  hash bytea primary key,
  session_id bigint not null references platform.session (id) on delete cascade,
  expires_at timestamptz not null,
  used_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.refresh_token is 'Every refresh token of a session by its SHA-256, the used ones too, so that a stolen one is noticed.';
create index refresh_token_session_id_idx on platform.refresh_token (session_id);
create index refresh_token_expires_at_idx on platform.refresh_token (expires_at);
create trigger touch before update on platform.refresh_token for each row execute function platform.touch_updated_at();

create table platform.one_time_token (
  hash bytea primary key,
  tenant_id bigint references platform.tenant (id) on delete cascade,
  user_id bigint not null,
  purpose text not null constraint one_time_token_purpose_check check (purpose in ('password_reset', 'invitation', 'email_verification')),
  expires_at timestamptz not null,
  used_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.one_time_token is 'Links sent by e-mail, by the SHA-256 of their token.';
create index one_time_token_user_idx on platform.one_time_token (tenant_id, user_id);
create trigger touch before update on platform.one_time_token for each row execute function platform.touch_updated_at();

create table platform.login_throttle (
  account bytea primary key,
  attempts integer not null,
  window_ends_at timestamptz not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.login_throttle is 'Failed log-ins by the SHA-256 of school and e-mail: ten in 15 minutes close the account until the window ends.';
create trigger touch before update on platform.login_throttle for each row execute function platform.touch_updated_at();

create table platform.audit_log (
  id bigserial primary key,
  actor_id bigint,
  actor_email text,
  action text not null,
  tenant_id bigint,
  target_type text not null,
  target_id bigint,
  changes jsonb not null default '{}',
  ip text,
  user_agent text,
  request_id text,
  created_at timestamptz not null default now()
);
comment on table platform.audit_log is 'What operators did. Append-only for every role and for the owner, short of disabling its trigger; refers to nothing, so that it outlives everything.';
create index audit_log_tenant_id_idx on platform.audit_log (tenant_id, id);
create index audit_log_action_idx on platform.audit_log (action, id);
create index audit_log_actor_id_idx on platform.audit_log (actor_id, id);
create index audit_log_created_at_idx on platform.audit_log (created_at);

create function platform.refuse_change() returns trigger language plpgsql as $$
begin
  raise exception using errcode = 'S403A', message = format('%I is append-only.', tg_table_name);
end $$;
create trigger append_only before update or delete or truncate on platform.audit_log for each statement execute function platform.refuse_change();

create table platform.tenant_migration (
  version integer primary key,
  name text not null,
  body text not null,
  checksum text not null,
  created_at timestamptz not null default now()
);
comment on table platform.tenant_migration is 'The released tenant migrations: what provisioning replays and what every school must have seen.';

create table platform.installation (
  id boolean primary key default true constraint installation_id_check check (id),
  fingerprint text not null,
  tenant_version integer not null,
  installed_at timestamptz not null default now()
);
comment on table platform.installation is 'Which version of the schemas core and api is installed.';

insert into platform.plan (name, price_monthly, max_students, max_teachers, features) values
  ('Starter', 49.00, 200, 20, '{attendance,notifications}'),
  ('Standard', 149.00, 1000, 80, '{attendance,fees_management,timetable,notifications}'),
  ('Premium', 399.00, 25000, 2000, '{attendance,fees_management,timetable,transport,notifications}');
