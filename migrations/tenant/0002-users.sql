-- Users and their roles.

create table user_account (
  id bigserial primary key,
  email text not null
    constraint user_account_email_check check (email = lower(email) and length(email) <= 254),
  password_hash text,
  first_name text not null
    constraint user_account_first_name_check check (length(first_name) between 1 and 100),
  last_name text not null
    constraint user_account_last_name_check check (length(last_name) between 1 and 100),
  phone text,
  is_active boolean not null default true,
  email_verified_at timestamptz,
  profile_picture_id bigint references file (id) on delete set null,
  last_login_at timestamptz,
  search_text text not null generated always as (
    platform.search_normal(first_name || ' ' || last_name || ' ' || email || ' ' || coalesce(phone, ''))
  ) stored,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table user_account is 'A user: a person who can log in to this school.';
create unique index user_account_email_key on user_account (email) where deleted_at is null;
create index user_account_name_idx on user_account
  (platform.search_normal(last_name), platform.search_normal(first_name), id)
  where deleted_at is null;
create index user_account_search_idx on user_account using gin (search_text public.gin_trgm_ops)
  with (fastupdate = off)
  where deleted_at is null;
create index user_account_profile_picture_id_idx on user_account (profile_picture_id);
create policy users_see_themselves on user_account as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or id = nullif(current_setting('app.user_id', true), '')::bigint
  );
create trigger refuse_impersonator before insert or delete on user_account
  for each row when (nullif(current_setting('app.impersonator_id', true), '') is not null)
  execute function refuse_impersonator();
create trigger refuse_impersonator_to_change before update on user_account
  for each row when (
    nullif(current_setting('app.impersonator_id', true), '') is not null
    and (old.email, old.password_hash, old.email_verified_at, old.is_active, old.deleted_at)
      is distinct from (new.email, new.password_hash, new.email_verified_at, new.is_active, new.deleted_at)
  )
  execute function refuse_impersonator();

create table role (
  id bigserial primary key,
  name text not null
    constraint role_name_check check (length(name) between 1 and 100),
  description text,
  is_system boolean not null default false,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table role is 'A named set of permissions.';
create unique index role_name_key on role (lower(name));
create trigger refuse_impersonator before insert or update or delete on role
  for each row when (nullif(current_setting('app.impersonator_id', true), '') is not null)
  execute function refuse_impersonator();

create table role_permission (
  role_id bigint not null references role (id) on delete cascade,
  permission_id integer not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (role_id, permission_id)
);
comment on table role_permission is
  'The permissions (core.permission) of each role. The admin role has every permission and needs no rows.';
create trigger refuse_impersonator before insert or update or delete on role_permission
  for each row when (nullif(current_setting('app.impersonator_id', true), '') is not null)
  execute function refuse_impersonator();

create table user_role (
  user_id bigint not null references user_account (id) on delete cascade,
  role_id bigint not null references role (id) on delete restrict,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (user_id, role_id)
);
comment on table user_role is 'The roles of each user.';
create index user_role_role_id_idx on user_role (role_id);
create trigger refuse_impersonator before insert or update or delete on user_role
  for each row when (nullif(current_setting('app.impersonator_id', true), '') is not null)
  execute function refuse_impersonator();

create table idempotency_key (
  user_id bigint not null references user_account (id) on delete cascade,
  key text not null
    constraint idempotency_key_key_check check (length(key) between 1 and 255),
  operation text not null,
  request_hash text not null,
  answer json,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (user_id, key)
);
comment on table idempotency_key is 'The first response to each Idempotency-Key that a user sent, kept for 24 hours.';
