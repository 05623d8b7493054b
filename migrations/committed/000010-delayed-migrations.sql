--! Previous: sha1:f84bc4072ea9fbf9847fa20541fceffa242e9736
--! Hash: sha1:0002d6f06b1771b0105893784fbce75e1d5e8d9a
--! Message: delayed migrations

-- A way out of a failed tenant migration: what failed in which school, which schools are left behind deliberately,
-- and which migrations were replaced after some schools had applied them.

alter table platform.tenant_migration
  add column is_required boolean not null default true,
  add column updated_at timestamptz not null default now();
create trigger touch before update on platform.tenant_migration
  for each row execute function platform.touch_updated_at();
comment on column platform.tenant_migration.is_required is
  'Whether the functions need it. False if its file has a comment @optional: schools that could not apply it are '
  'served by the new functions too.';

create table platform.delayed_migration (
  tenant_id bigint primary key references platform.tenant (id) on delete cascade,
  version integer,
  error text,
  failed_at timestamptz,
  skip_reason text
    constraint delayed_migration_skip_reason_check check (length(skip_reason) between 1 and 500),
  skipped_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint delayed_migration_failed_at_check check ((failed_at is null) = (error is null)),
  constraint delayed_migration_skipped_at_check check ((skipped_at is null) = (skip_reason is null)),
  constraint delayed_migration_check check (failed_at is not null or skipped_at is not null)
);
comment on table platform.delayed_migration is
  'The schools whose migration failed, or that are left at their version deliberately. A success deletes the row.';
comment on column platform.delayed_migration.version is
  'The tenant migration that failed; null if the failure was outside of a migration.';
comment on column platform.delayed_migration.skip_reason is
  'Why the school is left at its version; null if it is not.';
create trigger touch before update on platform.delayed_migration
  for each row execute function platform.touch_updated_at();

create table platform.replaced_migration (
  id bigserial primary key,
  version integer not null references platform.tenant_migration (version) on delete cascade,
  body text not null,
  checksum text not null,
  replacement_checksum text not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.replaced_migration is
  'The earlier text of a tenant migration that was replaced because schools could not apply it.';
comment on column platform.replaced_migration.checksum is 'SHA-256 of the earlier text.';
comment on column platform.replaced_migration.replacement_checksum is 'SHA-256 of the text that replaced it.';
create index replaced_migration_version_idx on platform.replaced_migration (version);
create trigger touch before update on platform.replaced_migration
  for each row execute function platform.touch_updated_at();

create table platform.replaced_migration_tenant (
  replaced_migration_id bigint not null references platform.replaced_migration (id) on delete cascade,
  tenant_id bigint not null references platform.tenant (id) on delete cascade,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (replaced_migration_id, tenant_id)
);
comment on table platform.replaced_migration_tenant is
  'The schools that applied the earlier text of a replaced migration. Other schools have the text that replaced it.';
create index replaced_migration_tenant_tenant_id_idx on platform.replaced_migration_tenant (tenant_id);
create trigger touch before update on platform.replaced_migration_tenant
  for each row execute function platform.touch_updated_at();
