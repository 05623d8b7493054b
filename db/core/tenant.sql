-- Creation and migration of tenant schemas. This file is installed before the tenants are migrated, the rest of core
-- and api afterwards. It therefore depends only on the schema platform.
create schema if not exists core;

create or replace function core.unknown_lock(p_kind text) returns integer language plpgsql immutable as $$
begin
  raise exception 'There is no lock of the kind %.', p_kind;
end $$;
comment on function core.unknown_lock is
  'Fails. For core.lock_key. Its callers must have the privilege to execute it, though they do not.';

-- The keys of all advisory locks. A key has two 32-bit halves: the kind of the lock, and what it locks. Of a number
-- with more bits, such as that of a school that was created on a node, the lower ones count. TypeScript takes three
-- more kinds: 7310, the migration of the database (src/database/migrate/migration-lock.ts); 7312, shared by all running
-- workers, and 7315, one for each worker, by the hash of its name (workers/worker.ts).
-- Not strict, so that Postgres inlines it and evaluates the case while it plans.
create or replace function core.lock_key(p_kind text, p_object bigint) returns bigint language sql immutable
  return (
    case p_kind
      -- The schema of a school: shared by each of its requests, exclusive while it is migrated.
      when 'schema' then 7311
      -- The permissions of the users of a school (core.lock_rights).
      when 'rights' then 7313
      -- The worker that writes the notifications of a school (core.outbox_write).
      when 'notifications' then 7314
      -- Only for requests of the previous release that run while the functions are replaced.
      when 'recipient' then 7317
      -- The daily run of a school (workers/tasks/daily_school.ts).
      when 'daily run' then 7316
      -- Creating a webhook of a school or of the platform, because their number is limited.
      when 'webhooks' then 7319
      -- The commands that move a school to another server, at home (src/servers/moves).
      when 'move' then 7320
      -- The copies of a node at home: shared while a school moves from or to it, exclusive while its tables are added
      -- (src/servers/nodes).
      when 'copies' then 7321
      -- A subdomain for which a request creates a school.
      when 'new school' then 7322
      -- The settings of an event of notifications, by the hash of its name.
      when 'event' then 7323
      -- The statements of a DBA for a school (core.sql_open).
      when 'sql' then 7324
      -- Making guardians of the contacts of students.
      when 'guardians' then 7325
      else core.unknown_lock(p_kind)
    end::bigint << 32) | (p_object & 4294967295);
comment on function core.lock_key is 'The key of an advisory lock of a kind on an object. Fails for an unknown kind.';

create or replace function core.tenant_lock_key(p_tenant_id bigint) returns bigint language sql immutable
  return core.lock_key('schema', p_tenant_id);
comment on function core.tenant_lock_key is
  'The key of the advisory lock of a school: shared by each of its requests, exclusive while its schema is migrated.';

create or replace function core.search_path_of(p_tenant_id bigint) returns text language sql immutable
  return coalesce('tenant_' || p_tenant_id::text, 'platform') || ', public, pg_temp';
comment on function core.search_path_of is 'The search_path with the tables of a school; null: those of operators.';

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
    set_config('search_path', core.search_path_of(p_tenant_id), true);
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

-- pg_class and pg_proc have no index that begins with the schema: `where relnamespace = …` reads the relations of all
-- schools. pg_depend has an index by what an object depends on, and every relation and function depends on its schema.
-- Sequential scans are disabled, because a plan made with few schools may be kept after there are many.
create or replace function core.relations_in(p_schema text) returns setof pg_class
  language sql stable rows 100 set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
    select c.*
    from pg_depend d
    join pg_class c on c.oid = d.objid
    where d.refclassid = 'pg_namespace'::regclass and d.refobjid = to_regnamespace(p_schema) and d.refobjsubid = 0
      and d.classid = 'pg_class'::regclass
  $$;
comment on function core.relations_in is
  'The tables, views and sequences of a schema, without indexes. Its cost does not depend on the number of schools.';

create or replace function core.functions_in(p_schema text) returns setof pg_proc
  language sql stable rows 100 set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
    select p.*
    from pg_depend d
    join pg_proc p on p.oid = d.objid
    where d.refclassid = 'pg_namespace'::regclass and d.refobjid = to_regnamespace(p_schema) and d.refobjsubid = 0
      and d.classid = 'pg_proc'::regclass
  $$;
comment on function core.functions_in is
  'The functions of a schema. Its cost does not depend on the number of schools.';

create or replace function core.foreign_keys_in(p_schema text) returns setof pg_constraint
  language sql stable rows 100 set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
    select k.*
    from core.relations_in(p_schema) r
    join pg_constraint k on k.conrelid = r.oid
    where k.contype = 'f'
  $$;
comment on function core.foreign_keys_in is
  'The foreign keys of the tables of a schema. Its cost does not depend on the number of schools.';

create or replace function core.for_all_in(p_schemas text[], p_kind text, p_statement text) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_names text;
begin
  if p_kind = 'functions' then
    select string_agg(f.oid::regprocedure::text, ', ') into v_names
      from unnest(p_schemas) place (schema)
      cross join core.functions_in(place.schema) f
      where f.prokind <> 'p';
  else
    select string_agg(r.oid::regclass::text, ', ') into v_names
      from unnest(p_schemas) place (schema)
      cross join core.relations_in(place.schema) r
      where (r.relkind = 'S') = (p_kind = 'sequences') and r.relkind <> 'c';
  end if;
  if v_names is not null then
    execute format(p_statement, v_names);
  end if;
end $$;
comment on function core.for_all_in is
  'Executes a statement such as `grant select on table %s to …` with the names of all functions, sequences or tables '
  '(with views) of some schemas. The clause `on all tables in schema` reads the relations of all schools five times.';

create or replace function core.granted(p_acl aclitem[], p_owner oid) returns text
  language sql stable set search_path = pg_catalog, pg_temp
  return (
    select string_agg(
      format('%s %s', lower(privilege_type), case grantee when 0 then 'public' else grantee::regrole::text end), ', '
      order by grantee, privilege_type)
    from aclexplode(p_acl)
    where grantee <> p_owner
  );
comment on function core.granted is
  'The privileges that an access list grants to others than the owner, such as `delete school_tenant, select '
  'school_tenant`; null if there are none.';

create or replace function core.tenant_secure(p_tenant_id bigint) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_schema text := 'tenant_' || p_tenant_id;
  -- The planner assumes that this form of the comparison is nearly always true, which it is. For a plain `=` it expects
  -- one row in 200 to pass, and then joins 20,000 students in a nested loop: a list took 1.5 s instead of 15 ms. The
  -- subquery is evaluated once for each statement instead of for every row.
  v_check text := format(
    '((select nullif(current_setting(''app.tenant_id'', true) = %L, false)) is not null)', p_tenant_id);
  v_functions text;
  v_sequences text;
  v_table record;
  -- A school whose last migration failed may not have the function yet.
  v_has_limit boolean := exists (select from core.functions_in(v_schema) where proname = 'limit_impersonator');
begin
  -- A grant that changes nothing still rewrites the catalog rows, and all connections drop what they cached of them; a
  -- changed schema even makes them drop all of their plans. So only what is missing is granted.
  if not has_schema_privilege('school_tenant', v_schema, 'usage') then
    execute format('grant usage on schema %I to school_tenant', v_schema);
  end if;
  select string_agg(oid::regprocedure::text, ', ') into v_functions
    from core.functions_in(v_schema)
    where proacl is null or exists (select from aclexplode(proacl) where grantee = 0);
  if v_functions is not null then
    execute format('revoke all on function %s from public', v_functions);
  end if;
  select string_agg(oid::regclass::text, ', ') into v_sequences
    from core.relations_in(v_schema)
    where relkind = 'S' and core.granted(relacl, relowner) is null;
  if v_sequences is not null then
    execute format('grant usage on sequence %s to school_tenant', v_sequences);
  end if;
  for v_table in
    select
      format('%I.%I', v_schema, c.relname) as name,
      c.relrowsecurity and c.relforcerowsecurity as is_forced,
      exists (select from pg_policy p where p.polrelid = c.oid and p.polname = 'tenant_isolation') as has_policy,
      a.has_updated_at
        and not exists (select from pg_trigger t where t.tgrelid = c.oid and t.tgname = 'touch') as needs_trigger,
      not exists (select from pg_trigger t where t.tgrelid = c.oid and t.tgname = 'limit_impersonator')
        and v_has_limit as needs_limit,
      c.relacl is not null or a.has_acl as has_grants,
      a.has_other_grants or core.granted(c.relacl, c.relowner) is distinct from wanted.on_table as needs_grants,
      (
        select string_agg(
          verb || case when verb in ('insert', 'update') then coalesce(' (' || a.columns || ')', '') else '' end, ', ')
        from unnest(g.verbs) verb
      ) as verbs
    from core.relations_in(v_schema) c
    cross join lateral (
      select string_to_array(replace(coalesce(
        substring(obj_description(c.oid, 'pg_class') from '@grants ([a-z, ]+)'),
        'select, insert, update, delete'), ' ', ''), ',') as verbs
    ) g
    cross join lateral (
      select
        string_agg(format('%s school_tenant', verb), ', ' order by verb)
          filter (where verb not in ('insert', 'update')) as on_table,
        string_agg(format('%s school_tenant', verb), ', ' order by verb)
          filter (where verb in ('insert', 'update')) as on_column
      from unnest(g.verbs) verb
    ) wanted
    cross join lateral (
      select
        bool_or(attname = 'updated_at') as has_updated_at,
        bool_or(attacl is not null) as has_acl,
        bool_or(core.granted(attacl, c.relowner) is distinct from case when is_writable then wanted.on_column end)
          as has_other_grants,
        string_agg(quote_ident(attname), ', ' order by attnum) filter (where is_writable) as columns
      from pg_attribute
      cross join lateral (select attgenerated = '' and not (attname = 'id' and atthasdef) as is_writable) w
      where attrelid = c.oid and attnum > 0 and not attisdropped
    ) a
    where c.relkind in ('r', 'p')
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
    if v_table.needs_limit then
      execute format(
        'create trigger limit_impersonator before insert or update or delete on %s for each row '
          'when (nullif(current_setting(''app.impersonator_id'', true), '''') is not null) '
          'execute function %I.limit_impersonator()',
        v_table.name, v_schema);
    end if;
    if v_table.needs_grants then
      if v_table.has_grants then
        execute format('revoke all on %s from school_tenant, public', v_table.name);
      end if;
      -- One statement per table, since each grant that names columns rewrites the catalog rows of all columns of the
      -- table.
      execute format('grant %s on %s to school_tenant', v_table.verbs, v_table.name);
    end if;
  end loop;
end $$;
comment on function core.tenant_secure is
  'Sets up every table of a tenant schema: grants, forced row security, the isolation policy, and the triggers that '
  'maintain updated_at and limit what operators may change. Can be repeated, and then changes only what is missing. A '
  'table whose comment has a line `@grants select, insert` gets only those grants.';

create or replace function core.ready_school_drop(p_id bigint) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  delete from platform.ready_school where id = p_id;
  if found then
    execute format('drop schema if exists %I cascade', 'tenant_' || p_id);
  end if;
end $$;
comment on function core.ready_school_drop is
  'Drops the ready school with this id, if there is one. See ready-schools.sql.';

create or replace function core.schema_migrate(p_tenant_id bigint, p_version integer, p_up_to integer default null)
  returns integer language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_schema text := 'tenant_' || p_tenant_id;
  v_before text[];
  v_version integer := p_version;
  v_migration record;
  v_detail text;
  v_hint text;
  v_table text;
  v_column text;
  v_constraint text;
begin
  if p_version = 0 then
    execute format('create schema %I', v_schema);
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  -- Functions that migrations create keep this search_path, by `set search_path from current`.
  perform set_config('search_path', format('%I, public', v_schema), true);
  for v_migration in
    select version, name, body
    from platform.tenant_migration
    where version > p_version and (p_up_to is null or version <= p_up_to)
    order by version
  loop
    begin
      execute v_migration.body;
    exception when others then
      get stacked diagnostics v_detail = pg_exception_detail, v_hint = pg_exception_hint,
        v_table = table_name, v_column = column_name, v_constraint = constraint_name;
      raise exception using
        errcode = sqlstate,
        message = format('tenant migration %s: %s', v_migration.name, sqlerrm),
        detail = v_detail,
        hint = v_hint,
        table = v_table,
        column = v_column,
        constraint = v_constraint;
    end;
    v_version := v_migration.version;
  end loop;
  perform core.tenant_secure(p_tenant_id);
  perform core.leave_tenant(v_before);
  return v_version;
end $$;
comment on function core.schema_migrate is
  'Applies the tenant migrations after p_version to the schema of a school, up to p_up_to or all of them, and secures '
  'its tables. Creates the schema if p_version is 0. Returns the new version.';

create or replace function core.tenant_migrate(p_tenant_id bigint, p_up_to integer default null) returns integer
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_before integer;
  v_version integer;
  v_is_purged boolean;
begin
  perform pg_advisory_xact_lock(core.tenant_lock_key(p_tenant_id));
  select schema_version, status = 'deleted' and schema_version = 0 into strict v_before, v_is_purged
    from platform.tenant where id = p_tenant_id for no key update;
  if v_is_purged or not exists (
    select from platform.tenant_migration where version > v_before and (p_up_to is null or version <= p_up_to)
  ) then
    return 0;
  end if;
  if v_before = 0 then
    -- An imported school gets the current text of each migration.
    delete from platform.replaced_migration_tenant where tenant_id = p_tenant_id;
    -- An imported school, or one on a node, brings its own id. It may be the id of a ready school.
    perform core.ready_school_drop(p_tenant_id);
  end if;
  v_version := core.schema_migrate(p_tenant_id, v_before, p_up_to);
  update platform.tenant set schema_version = v_version where id = p_tenant_id;
  if not exists (select from platform.tenant_migration where version > v_version) then
    delete from platform.delayed_migration where tenant_id = p_tenant_id;
  end if;
  return (select count(*) from platform.tenant_migration where version > v_before and version <= v_version);
end $$;
comment on function core.tenant_migrate is
  'Migrates a tenant schema to the latest version, or to p_up_to, in the transaction of the caller. Requests to the '
  'school get a 503 meanwhile. Returns the number of migrations applied. Creates the schema if it is missing, except '
  'for a purged school, which only an import restores.';
