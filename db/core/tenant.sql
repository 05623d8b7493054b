-- Creation and migration of tenant schemas. This file is installed before the tenants are migrated, the rest of core
-- and api afterwards. It therefore depends only on the schema platform.
create schema if not exists core;

-- The keys of all advisory locks. A key has two 32-bit halves: the kind of the lock, and what it locks. TypeScript
-- takes four more kinds: 7310, the migration of the database (src/database/migrate.ts); 7312, shared by all running
-- workers, and 7315, one for each worker, by the hash of its name (workers/worker.ts); 7316, the daily run of a school
-- (workers/tasks/daily_school.ts).
create or replace function core.lock_key(p_kind text, p_object bigint) returns bigint
  language plpgsql immutable strict as $$
declare
  v_kind bigint;
begin
  case p_kind
    -- The schema of a school: shared by each of its requests, exclusive while it is migrated.
    when 'schema' then v_kind := 7311;
    -- The permissions of the users of a school (core.lock_rights).
    when 'rights' then v_kind := 7313;
    -- The notifications of a school, and those of one recipient (core.lock_notification_recipients).
    when 'notifications' then v_kind := 7314;
    when 'recipient' then v_kind := 7317;
  end case;
  return (v_kind << 32) | (p_object & 4294967295);
end $$;
comment on function core.lock_key is 'The key of an advisory lock of a kind on an object. Fails for an unknown kind.';

create or replace function core.tenant_lock_key(p_tenant_id bigint) returns bigint
  language sql immutable strict
  return core.lock_key('schema', p_tenant_id);
comment on function core.tenant_lock_key is
  'The key of the advisory lock of a school: shared by each of its requests, exclusive while its schema is migrated.';

-- A function could have these settings in its head, and Postgres would restore them, but only a superuser may create
-- such a function. This function itself must not pin its search_path, which would undo its effect; its callers pin
-- theirs.
create or replace function core.enter_tenant(p_tenant_id bigint) returns text[]
  language plpgsql as $$
declare
  v_before text[] := array[
    current_setting('app.tenant_id', true),
    current_setting('app.scope', true),
    current_setting('app.is_system', true),
    current_setting('app.time_zone', true),
    current_setting('search_path')];
begin
  perform
    set_config('app.tenant_id', coalesce(p_tenant_id::text, ''), true),
    set_config('app.scope', 'all', true),
    set_config('app.is_system', 'yes', true),
    set_config('app.time_zone', coalesce((select time_zone from platform.tenant where id = p_tenant_id), ''), true),
    set_config('search_path', coalesce('tenant_' || p_tenant_id, 'platform') || ', public, pg_temp', true);
  return v_before;
end $$;
comment on function core.enter_tenant is
  'Enters a school: table names resolve to its tables, row policies show all of its rows, including those of single '
  'users, and days are in its time zone. Null enters the platform, with the tables of operators. Returns the previous '
  'settings, for core.leave_tenant.';

create or replace function core.leave_tenant(p_before text[]) returns void
  language plpgsql as $$
begin
  perform
    set_config('app.tenant_id', coalesce(p_before[1], ''), true),
    set_config('app.scope', coalesce(p_before[2], ''), true),
    set_config('app.is_system', coalesce(p_before[3], ''), true),
    set_config('app.time_zone', coalesce(p_before[4], ''), true),
    set_config('search_path', p_before[5], true);
end $$;
comment on function core.leave_tenant is 'Restores the settings that core.enter_tenant returned.';

create or replace function core.tenant_secure(p_tenant_id bigint) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_schema text := 'tenant_' || p_tenant_id;
  -- The planner assumes that this form of the comparison is nearly always true, which it is. For a plain `=` it expects
  -- one row in 200 to pass, and then joins 20,000 students in a nested loop: a list took 1.5 s instead of 15 ms. The
  -- subquery is evaluated once for each statement instead of for every row.
  v_check text := format(
    '((select nullif(current_setting(''app.tenant_id'', true) = %L, false)) is not null)', p_tenant_id);
  v_table record;
begin
  execute format('grant usage on schema %I to school_tenant', v_schema);
  execute format('revoke all on all functions in schema %I from public', v_schema);
  execute format('grant usage on all sequences in schema %I to school_tenant', v_schema);
  for v_table in
    select
      format('%I.%I', v_schema, c.relname) as name,
      c.relrowsecurity and c.relforcerowsecurity as is_forced,
      exists (select from pg_policy p where p.polrelid = c.oid and p.polname = 'tenant_isolation') as has_policy,
      a.has_updated_at
        and not exists (select from pg_trigger t where t.tgrelid = c.oid and t.tgname = 'touch') as needs_trigger,
      c.relacl is not null or a.has_acl as has_grants,
      (
        select string_agg(
          verb || case when verb in ('insert', 'update') then coalesce(' (' || a.columns || ')', '') else '' end, ', ')
        from string_to_table(
            coalesce(
              substring(obj_description(c.oid, 'pg_class') from '@grants ([a-z, ]+)'),
              'select, insert, update, delete'),
            ',') granted_verb,
          trim(granted_verb) verb
      ) as verbs
    from pg_class c
    cross join lateral (
      select
        bool_or(attname = 'updated_at') as has_updated_at,
        bool_or(attacl is not null) as has_acl,
        string_agg(quote_ident(attname), ', ' order by attnum)
          filter (where attgenerated = '' and not (attname = 'id' and atthasdef)) as columns
      from pg_attribute
      where attrelid = c.oid and attnum > 0 and not attisdropped
    ) a
    where c.relnamespace = v_schema::regnamespace and c.relkind in ('r', 'p')
    order by c.relname
  loop
    if not v_table.is_forced then
      execute format('alter table %s enable row level security, force row level security', v_table.name);
    end if;
    if not v_table.has_policy then
      execute format('create policy tenant_isolation on %s using %s with check %s', v_table.name, v_check, v_check);
    end if;
    if v_table.needs_trigger then
      execute format(
        'create trigger touch before update on %s for each row execute function %I.touch_updated_at()',
        v_table.name, v_schema);
    end if;
    if v_table.has_grants then
      execute format('revoke all on %s from school_tenant, public', v_table.name);
    end if;
    -- One statement per table, since each grant that names columns rewrites the catalog rows of all columns of the
    -- table.
    execute format('grant %s on %s to school_tenant', v_table.verbs, v_table.name);
  end loop;
end $$;
comment on function core.tenant_secure is
  'Sets up every table of a tenant schema: grants, forced row security, the isolation policy, and the trigger that '
  'maintains updated_at. Can be repeated. A table whose comment has a line `@grants select, insert` gets only those '
  'grants.';

create or replace function core.tenant_migrate(p_tenant_id bigint, p_up_to integer default null) returns integer
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_schema text := 'tenant_' || p_tenant_id;
  v_before text[];
  v_version integer;
  v_is_purged boolean;
  v_migration record;
  v_count integer := 0;
begin
  perform pg_advisory_xact_lock(core.tenant_lock_key(p_tenant_id));
  select schema_version, status = 'deleted' and schema_version = 0 into strict v_version, v_is_purged
    from platform.tenant where id = p_tenant_id for no key update;
  if v_is_purged or not exists (
    select from platform.tenant_migration where version > v_version and (p_up_to is null or version <= p_up_to)
  ) then
    return 0;
  end if;
  if v_version = 0 then
    execute format('create schema %I', v_schema);
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  -- Functions that migrations create keep this search_path, by `set search_path from current`.
  perform set_config('search_path', format('%I, public', v_schema), true);
  for v_migration in
    select version, name, body
    from platform.tenant_migration
    where version > v_version and (p_up_to is null or version <= p_up_to)
    order by version
  loop
    begin
      execute v_migration.body;
    exception when others then
      raise exception using errcode = sqlstate, message = format('tenant migration %s: %s', v_migration.name, sqlerrm);
    end;
    v_count := v_count + 1;
    v_version := v_migration.version;
  end loop;
  perform core.tenant_secure(p_tenant_id);
  update platform.tenant set schema_version = v_version where id = p_tenant_id;
  perform core.leave_tenant(v_before);
  return v_count;
end $$;
comment on function core.tenant_migrate is
  'Migrates a tenant schema to the latest version, or to p_up_to, in the transaction of the caller. Requests to the '
  'school get a 503 meanwhile. Returns the number of migrations applied. Creates the schema if it is missing, except '
  'for a purged school, which only an import restores.';
