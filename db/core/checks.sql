-- What `school doctor` checks on the server, besides the data (invariants.sql). Each function core.check_… returns what
-- is wrong, and its comment says why that matters.

create type core.finding as (level text, what text, remedy text, is_harmless boolean);
comment on type core.finding is
  'A problem of the server. level: error (fix it now) or warning. remedy: the statement or command that fixes it. '
  'is_harmless: the remedy is a statement that may run at any time.';

create table core.release_object (
  kind text not null,
  name text not null,
  digest text not null,
  primary key (kind, name)
);
comment on table core.release_object is
  'The functions, triggers, privileges and row security of the shared schemas, as this release installed them, and the '
  'number of shared migrations at that time.';

create function core.shared_objects() returns table (kind text, name text, digest text)
  language sql stable set search_path = pg_catalog, pg_temp as $$
    with place (schema) as (
      values ('core'), ('api'), ('platform'), ('mart'), ('analytics')
    ), owned as (
      select r.*
      from place
      cross join core.relations_in(place.schema) r
      where r.relkind in ('r', 'v', 'S')
    )
    select 'function', f.oid::regprocedure::text, md5(pg_get_functiondef(f.oid) || coalesce(f.proacl::text, ''))
    from place
    cross join core.functions_in(place.schema) f
    union all
    select case relkind when 'S' then 'sequence' else 'table' end, oid::regclass::text,
      md5(concat_ws('|', relacl::text, relrowsecurity::text, relforcerowsecurity::text, (
        select string_agg(a.attname || a.attacl::text, ',' order by a.attnum)
        from pg_attribute a
        where a.attrelid = owned.oid and a.attacl is not null and not a.attisdropped
      )))
    from owned
    union all
    select 'trigger', format('%s on %s', t.tgname, owned.oid::regclass),
      md5(t.tgenabled::text || pg_get_triggerdef(t.oid))
    from owned
    join pg_trigger t on t.tgrelid = owned.oid and not t.tgisinternal
    union all
    select 'policy', format('%s on %s', p.polname, owned.oid::regclass),
      md5(concat_ws('|', p.polpermissive::text, p.polcmd::text, p.polroles::text, pg_get_expr(p.polqual, p.polrelid),
        pg_get_expr(p.polwithcheck, p.polrelid)))
    from owned
    join pg_policy p on p.polrelid = owned.oid
    union all
    select 'schema', n.nspname, md5(coalesce(n.nspacl::text, ''))
    from place
    join pg_namespace n on n.nspname = place.schema
  $$;
comment on function core.shared_objects is
  'The functions, tables, sequences, triggers, policies and schemas that all schools share, with a digest of their '
  'definitions and privileges.';

create function core.remember_release() returns void
  language sql set search_path = pg_catalog, pg_temp as $$
    insert into core.release_object
      select * from core.shared_objects()
      union all
      select 'migrations', 'shared', count(*)::text from graphile_migrate.migrations;
    analyze core.release_object;
  $$;
comment on function core.remember_release is 'Stores what this release has installed. Runs at the end of installation.';

create function core.check_release() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('The %s %s %s.', coalesce(found.kind, known.kind), coalesce(found.name, known.name),
        case
          when known.name is null then 'does not belong to this release'
          when found.name is null then 'is missing'
          else 'differs from this release, in its definition or its privileges'
        end),
      case
        when known.name is null and found.kind = 'function' then 'drop function ' || found.name
        when known.name is null and found.kind in ('trigger', 'policy') then
          format('drop %s %s', found.kind, found.name)
        else 'update platform.installation set fingerprint = ''''; -- then: npm run migrate'
      end,
      false
    from core.shared_objects() found
    full join (select * from core.release_object where kind <> 'migrations') known using (kind, name)
    where found.digest is distinct from known.digest
      -- A later shared migration may have changed these schemas without a new installation.
      and not (
        coalesce(found.name, known.name) ~ '\m(platform|mart)\M'
        and (select digest from core.release_object where kind = 'migrations')
          <> (select count(*)::text from graphile_migrate.migrations))
    order by 2
  $$;
comment on function core.check_release is
  'Functions, triggers and privileges that differ from the release behave in a way that nobody has tested, and can '
  'reveal data of other schools.';

create function core.schema_objects(p_schema text) returns table (
    kind text, name text, table_name text, definition text, remedy text)
  language sql stable set search_path = pg_catalog, pg_temp as $$
    with owned as (
      select r.*, format('%I.%I', p_schema, r.relname) as full_name, coalesce((
          select t.relname
          from pg_depend d
          join pg_class t on t.oid = d.refobjid
          where d.classid = 'pg_class'::regclass and d.objid = r.oid and d.deptype in ('a', 'i') and r.relkind = 'S'
        ), r.relname)::text as table_name
      from core.relations_in(p_schema) r
      where r.relkind in ('r', 'p', 'S')
    )
    select 'table', o.relname::text, o.table_name, '',
      'Restore the table from a backup, or delete the school and import its last export.'
    from owned o
    where o.relkind <> 'S'
    union all
    select 'column', o.relname || '.' || a.attname, o.table_name,
      concat_ws(' ', format_type(a.atttypid, a.atttypmod), case when a.attnotnull then 'not null' end,
        pg_get_expr(d.adbin, d.adrelid)),
      format('alter table %s add column %I %s', o.full_name, a.attname, format_type(a.atttypid, a.atttypmod))
    from owned o
    join pg_attribute a on a.attrelid = o.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = o.oid and d.adnum = a.attnum
    where o.relkind <> 'S'
    union all
    select 'row security', o.relname::text, o.table_name,
      format('enabled %s, forced %s', o.relrowsecurity, o.relforcerowsecurity),
      format('alter table %s enable row level security, force row level security', o.full_name)
    from owned o
    where o.relkind <> 'S'
    union all
    select 'policy', format('%s on %s', p.polname, o.relname), o.table_name,
      format('as %s for %s to %s using (%s) with check (%s)', p.polpermissive, p.polcmd, p.polroles,
        pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)),
      format('drop policy if exists %1$I on %2$s; create policy %1$I on %2$s as %3$s for %4$s%5$s%6$s',
        p.polname, o.full_name, case when p.polpermissive then 'permissive' else 'restrictive' end,
        case p.polcmd when '*' then 'all' when 'r' then 'select' when 'a' then 'insert' when 'w' then 'update'
          else 'delete' end,
        ' using (' || pg_get_expr(p.polqual, p.polrelid) || ')',
        ' with check (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')')
    from owned o
    join pg_policy p on p.polrelid = o.oid
    union all
    select 'privileges', o.relname::text, o.table_name,
      concat_ws(' ', core.granted(o.relacl, o.relowner), (
        select string_agg(a.attname || ': ' || core.granted(a.attacl, o.relowner), ', ' order by a.attname)
        from pg_attribute a
        where a.attrelid = o.oid and a.attacl is not null and not a.attisdropped
      )),
      format('revoke all on %s%s from public%s', case o.relkind when 'S' then 'sequence ' else '' end, o.full_name, (
        select string_agg(distinct format(', %s', grantee::regrole), '')
        from (
          select g.grantee, g.is_grantable from aclexplode(o.relacl) g
          union all
          select g.grantee, g.is_grantable
          from pg_attribute a
          cross join aclexplode(a.attacl) g
          where a.attrelid = o.oid
        ) g
        where g.grantee not in (0, o.relowner)
      ))
    from owned o
    union all
    select 'trigger', format('%s on %s', t.tgname, o.relname), o.table_name,
      t.tgenabled::text || ' ' || pg_get_triggerdef(t.oid),
      format('drop trigger if exists %I on %s; %s; alter table %2$s enable trigger %1$I', t.tgname, o.full_name,
        pg_get_triggerdef(t.oid))
    from owned o
    join pg_trigger t on t.tgrelid = o.oid and not t.tgisinternal
    union all
    select 'constraint', format('%s on %s', k.conname, o.relname), o.table_name, pg_get_constraintdef(k.oid),
      format('alter table %s add constraint %I %s', o.full_name, k.conname, pg_get_constraintdef(k.oid))
    from owned o
    join pg_constraint k on k.conrelid = o.oid
    where k.contype <> 'n'
    union all
    select 'index', i.indexrelid::regclass::text, o.table_name, pg_get_indexdef(i.indexrelid),
      regexp_replace(pg_get_indexdef(i.indexrelid), '^(CREATE (UNIQUE )?INDEX) ', '\1 CONCURRENTLY ')
    from owned o
    join pg_index i on i.indrelid = o.oid
    union all
    select 'function', f.oid::regprocedure::text, null,
      pg_get_functiondef(f.oid)
        || coalesce(core.granted(f.proacl, f.proowner), case when f.proacl is null then ' public' else '' end),
      pg_get_functiondef(f.oid)
    from core.functions_in(p_schema) f
  $$;
comment on function core.schema_objects is
  'The tables, columns, constraints, indexes, triggers, functions, policies and privileges of the schema of a school, '
  'each with the table that it belongs to, its definition and the statement that creates it.';

create function core.check_default_privileges(p_role oid default null) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('New %s of %s are granted to others: %s.', kind.name, d.defaclrole::regrole,
        core.granted(d.defaclacl, d.defaclrole)),
      format('alter default privileges for role %s%s revoke all on %s from %s', d.defaclrole::regrole,
        case when d.defaclnamespace <> 0 then ' in schema ' || d.defaclnamespace::regnamespace else '' end, kind.name,
        (select string_agg(distinct case when g.grantee = 0 then 'public' else g.grantee::regrole::text end, ', ')
          from aclexplode(d.defaclacl) g where g.grantee <> d.defaclrole)), true
    from pg_default_acl d
    cross join lateral (
      select case d.defaclobjtype when 'r' then 'tables' when 'S' then 'sequences' when 'f' then 'functions'
        when 'n' then 'schemas' else 'types' end as name
    ) kind
    where core.granted(d.defaclacl, d.defaclrole) is not null and d.defaclrole = coalesce(p_role, d.defaclrole)
  $$;
comment on function core.check_default_privileges is
  'Tables that a migration creates get these privileges, so that others can read the data of schools.';

create function core.reference_objects() returns jsonb
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  -- A number that no school has and no definition contains.
  v_id bigint := 9000000000000000 + pg_backend_pid();
  v_objects jsonb;
  v_revoke text;
begin
  -- Otherwise the new school would have the privileges that older ones should not have.
  for v_revoke in select f.remedy from core.check_default_privileges(current_user::regrole) f loop
    execute v_revoke;
  end loop;
  insert into platform.tenant (id, name, subdomain, plan_id, contact_email)
    select v_id, 'Reference', 'reference-' || v_id, min(id), 'reference@localhost' from platform.plan;
  perform core.tenant_migrate(v_id);
  select jsonb_agg(o) into v_objects from core.schema_objects('tenant_' || v_id) o;
  return replace(v_objects::text, v_id::text, '<id>')::jsonb;
end $$;
comment on function core.reference_objects is
  'What core.schema_objects returns for a school with the tables of this release, with <id> instead of its id. Creates '
  'such a school; the caller rolls back.';

create function core.check_school(p_tenant_id bigint, p_reference jsonb) returns setof core.finding
  language sql set search_path = pg_catalog, pg_temp as $$
    with wanted as (
      select *
      from jsonb_to_recordset(replace(p_reference::text, '<id>', p_tenant_id::text)::jsonb)
        w (kind text, name text, table_name text, definition text, remedy text)
    ), missing as (
      -- What belongs to a missing table is missing too, and not reported again.
      select w.name
      from wanted w
      where w.kind = 'table' and to_regclass(format('tenant_%s.%I', p_tenant_id, w.name)) is null
    ), difference as (
      select coalesce(f.kind, w.kind) as kind,
        replace(coalesce(f.name, w.name), format('tenant_%s.', p_tenant_id), '') as name,
        f.definition as found, w.definition as wanted, w.remedy
      from core.schema_objects('tenant_' || p_tenant_id) f
      full join wanted w using (kind, name)
      where f.definition is distinct from w.definition
        and to_regnamespace('tenant_' || p_tenant_id) is not null
        and (w.kind = 'table' or w.table_name is null or w.table_name not in (select name from missing))
    )
    select
      case when d.kind in ('index') then 'warning' else 'error' end,
      format('School %s: the %s %s %s.', p_tenant_id, d.kind, d.name, case
        when d.wanted is null then 'does not belong to this release'
        when d.found is null then 'is missing'
        when d.kind in ('privileges', 'row security') then format('are: %s; this release has: %s',
          coalesce(nullif(d.found, ''), 'none'), coalesce(nullif(d.wanted, ''), 'none'))
        else 'differs from this release'
      end),
      case
        when d.wanted is null and d.kind in ('trigger', 'policy') then
          format('drop %s %s', d.kind, replace(d.name, ' on ', format(' on tenant_%s.', p_tenant_id)))
        when d.wanted is null and d.kind in ('index', 'function', 'table') then
          format('drop %s tenant_%s.%s', d.kind, p_tenant_id, d.name)
        when d.wanted is null and d.kind = 'constraint' then
          format('alter table tenant_%s.%s drop constraint %s', p_tenant_id, split_part(d.name, ' on ', 2),
            split_part(d.name, ' on ', 1))
        when d.wanted is null and d.kind = 'column' then
          format('alter table tenant_%s.%s drop column %s', p_tenant_id, split_part(d.name, '.', 1),
            split_part(d.name, '.', 2))
        when d.kind = 'privileges' then format('%s; select core.tenant_secure(%s)', coalesce(
            (select o.remedy from core.schema_objects('tenant_' || p_tenant_id) o
              where o.kind = 'privileges' and o.name = d.name), d.remedy), p_tenant_id)
        else d.remedy
      end,
      d.kind in ('row security', 'policy', 'privileges') and d.wanted is not null
    from (select * from difference order by kind, name) d
    union all
    select 'error', format('School %s: its schema tenant_%1$s is missing.', p_tenant_id),
      'Restore the schema from a backup, or delete the school and import its last export.', false
    where to_regnamespace('tenant_' || p_tenant_id) is null
  $$;
comment on function core.check_school is
  'A school whose tables, policies, triggers or privileges differ from the release can show rows of other schools, or '
  'fail at the next migration.';

create function core.check_schools_behind() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('School %s (%s) has version %s instead of %s. Its requests get 503.', id, subdomain,
        schema_version, core.required_schema_version()),
      format('npm run migrate -- --tenant %s', id), false
    from platform.tenant
    where schema_version < core.required_schema_version() and not (status = 'deleted' and schema_version = 0)
      and node_id is null
    order by id
  $$;
comment on function core.check_schools_behind is 'The users of a school that is not migrated cannot work.';

create function core.check_server() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('Postgres has version %s.', current_setting('server_version')),
      'Upgrade the server to Postgres 15 or later.', false
    where current_setting('server_version_num')::integer < 150000
    union all
    select wanted.level, format('The setting %s is %s.', wanted.name, s.setting),
      format('alter system set %I = %L; select pg_reload_conf()', wanted.name, wanted.value), false
    from (values
      ('error', 'fsync', 'on'),
      ('error', 'full_page_writes', 'on'),
      ('error', 'autovacuum', 'on'),
      ('warning', 'track_counts', 'on'),
      ('warning', 'synchronous_commit', 'on'),
      ('warning', 'row_security', 'on')) wanted (level, name, value)
    join pg_settings s using (name)
    -- Sessions of this role may have other values than the server.
    where coalesce((
        select split_part(assignment, '=', 2)
        from pg_db_role_setting r
        cross join unnest(r.setconfig) assignment
        where split_part(assignment, '=', 1) = wanted.name and r.setrole = 0
          and r.setdatabase in (0, (select oid from pg_database where datname = current_database()))
        limit 1), s.reset_val) in ('off', 'local', 'remote_write')
  $$;
comment on function core.check_server is
  'Without these settings a crash of the server loses or damages data, or tables grow without end.';

create function core.check_roles() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    with wanted (name, can_login) as (
      values ('school_api', true), ('school_worker', true), ('school_graphql', true), ('school_tenant', false),
        ('school_platform', false), ('school_analyst', false)
    ), member (role, of_role) as (
      values ('school_api', 'school_tenant'), ('school_api', 'school_platform'), ('school_graphql', 'school_analyst')
    )
    select 'error', format('The role %s is missing.', w.name), 'npm run migrate', false
    from wanted w
    where not exists (select from pg_roles r where r.rolname = w.name)
    union all
    select 'error', format('The role %s may %s.', w.name, flag.name), format('alter role %I %s', w.name, flag.remedy),
      true
    from wanted w
    join pg_roles r on r.rolname = w.name
    cross join lateral (values
      (r.rolsuper, 'do everything (superuser)', 'nosuperuser'),
      (r.rolbypassrls, 'bypass row security', 'nobypassrls'),
      (r.rolcreaterole, 'create roles', 'nocreaterole'),
      (r.rolcreatedb, 'create databases', 'nocreatedb'),
      (r.rolreplication, 'replicate', 'noreplication'),
      (r.rolcanlogin and not w.can_login, 'log in', 'nologin')) flag (is_set, name, remedy)
    where flag.is_set
    union all
    select 'error', format('The role %s cannot switch to %s.', m.role, m.of_role),
      format('grant %I to %I', m.of_role, m.role), true
    from member m
    where exists (select from pg_roles r where r.rolname = m.role)
      and exists (select from pg_roles r where r.rolname = m.of_role)
      and not pg_has_role(m.role, m.of_role, 'member')
    union all
    select 'error', format('The role %s is a member of %s.', r.rolname, of_role.rolname),
      format('revoke %I from %I', of_role.rolname, r.rolname), true
    from pg_auth_members a
    join pg_roles r on r.oid = a.member
    join pg_roles of_role on of_role.oid = a.roleid
    where r.rolname in (select name from wanted)
      and not exists (select from member m where m.role = r.rolname and m.of_role = of_role.rolname)
  $$;
comment on function core.check_roles is
  'The roles separate requests from each other and from the tables. A role with more rights undoes that.';

create function core.check_invalid_indexes() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('The index %s is invalid.', i.indexrelid::regclass),
      format('reindex index concurrently %s', i.indexrelid::regclass), true
    from pg_index i
    where not (i.indisvalid and i.indisready)
  $$;
comment on function core.check_invalid_indexes is
  'Postgres does not use an invalid index, but maintains it. A unique one may not prevent duplicates.';

create function core.check_normalized_keys() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning',
      format('The %s of %s %s is not in the Unicode normalization form NFC%s.', k.column_name, k.table_name, k.id,
        case when k.same_as <> '{}' then ', in which it is that of ' || array_to_string(k.same_as, ', ') end),
      case when k.same_as = '{}' then 'Save it again.' else 'Change one of them, then save the other again.' end, false
    from core.keys_not_normalized('platform') k
  $$;
comment on function core.check_normalized_keys is
  'A record is found by what people type, which is normalized. The migration left out texts that look the same as '
  'another one.';

create function core.check_duplicate_indexes() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('The index %s is a duplicate of %s.', b.indexrelid::regclass, a.indexrelid::regclass),
      format('drop index concurrently %s', b.indexrelid::regclass), false
    from pg_index a
    join pg_index b on b.indrelid = a.indrelid and b.indexrelid <> a.indexrelid and b.indkey = a.indkey
      and b.indclass = a.indclass and b.indcollation = a.indcollation and b.indoption = a.indoption
      and coalesce(pg_get_expr(b.indexprs, b.indrelid), '') = coalesce(pg_get_expr(a.indexprs, a.indrelid), '')
      and coalesce(pg_get_expr(b.indpred, b.indrelid), '') = coalesce(pg_get_expr(a.indpred, a.indrelid), '')
      and (a.indisunique or not b.indisunique)
      and (a.indisunique <> b.indisunique or a.indexrelid < b.indexrelid)
    join pg_class c on c.oid = a.indrelid
    join pg_class ai on ai.oid = a.indexrelid
    join pg_class bi on bi.oid = b.indexrelid and bi.relam = ai.relam
    where c.relnamespace::regnamespace::text !~ '^(pg_|information_schema)'
      and not exists (select from pg_constraint k where k.conindid = b.indexrelid)
  $$;
comment on function core.check_duplicate_indexes is 'Every write maintains both, and no query needs the second one.';

create function core.check_unused_indexes(p_min_bytes bigint default 100000000, p_min_age interval default '30 days')
  returns setof core.finding language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('The index %s (%s) has not been used since %s.', s.indexrelid::regclass,
        pg_size_pretty(pg_relation_size(s.indexrelid)), d.since::date),
      format('drop index concurrently %s', s.indexrelid::regclass), false
    from pg_stat_user_indexes s
    join pg_index i using (indexrelid)
    cross join lateral (
      select coalesce(stats_reset, pg_postmaster_start_time()) as since
      from pg_stat_database
      where datname = current_database()
    ) d
    where s.idx_scan = 0 and not i.indisunique and pg_relation_size(s.indexrelid) >= p_min_bytes
      and d.since <= now() - p_min_age
  $$;
comment on function core.check_unused_indexes is
  'A large index that no query uses slows writes down. It may be used on a replica, or once a year.';

create function core.check_statistics(p_min_rows bigint default 1000) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('The table %s with %s rows has never been analyzed.', relid::regclass, n_live_tup),
      format('analyze %s', relid::regclass), true
    from pg_stat_user_tables
    where coalesce(last_analyze, last_autoanalyze) is null and n_live_tup >= p_min_rows
  $$;
comment on function core.check_statistics is 'Postgres guesses the sizes of such a table and chooses slow plans.';

create function core.check_bloat(p_min_rows bigint default 10000, p_share numeric default 0.3)
  returns setof core.finding language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('The table %s has %s dead rows and %s live ones.', relid::regclass, n_dead_tup,
        n_live_tup),
      format('vacuum (analyze) %s', relid::regclass), true
    from pg_stat_user_tables
    where n_dead_tup >= p_min_rows and n_dead_tup > p_share * (n_live_tup + n_dead_tup)
  $$;
comment on function core.check_bloat is 'Dead rows make scans slow and files large. Autovacuum is not keeping up.';

create function core.check_sequences(p_share numeric default 0.8) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('The sequence %I.%I has used %s %% of its numbers.', schemaname, sequencename,
        trunc(100.0 * last_value / max_value)),
      format('alter sequence %I.%I as bigint maxvalue 9223372036854775807', schemaname, sequencename), false
    from pg_sequences
    where last_value > p_share * max_value and not cycle
  $$;
comment on function core.check_sequences is 'When a sequence ends, no row can be inserted into its table.';

create function core.check_wraparound(p_limit bigint default 1000000000) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('The oldest transaction id of the database %s is %s old.', datname, age(datfrozenxid)),
      'vacuum (freeze)', false
    from pg_database
    where age(datfrozenxid) >= p_limit
    union all
    select 'error', format('The oldest multixact id of the database %s is %s old.', datname, mxid_age(datminmxid)),
      'vacuum (freeze)', false
    from pg_database
    where mxid_age(datminmxid) >= p_limit
  $$;
comment on function core.check_wraparound is
  'At two billion the server refuses all writes until a vacuum has finished.';

create function core.check_transactions(p_running interval default '10 minutes', p_idle interval default '5 minutes')
  returns setof core.finding language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('Process %s (%s) has had a transaction open for %s and %s.', pid,
        coalesce(nullif(application_name, ''), usename), date_trunc('second', now() - xact_start),
        case when state like 'idle in transaction%' then 'is idle' else 'runs a statement' end),
      format('select pg_terminate_backend(%s)', pid), false
    from pg_stat_activity
    where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
      and (
        (state like 'idle in transaction%' and state_change < now() - p_idle)
        or (state = 'active' and xact_start < now() - p_running))
    union all
    select 'error', format('The prepared transaction %s has been open since %s.', gid, prepared),
      format('rollback prepared %L', gid), false
    from pg_prepared_xacts
    where database = current_database() and prepared < now() - p_idle
  $$;
comment on function core.check_transactions is
  'A long transaction keeps locks, and vacuum cannot remove any row that has died since it began.';

create function core.check_visibility() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('The role %I may not see what other roles do: long transactions and replicas that are '
        'behind were not checked.', current_user), core.missing_statistics_grant(), false
    where core.missing_statistics_grant() is not null
  $$;
comment on function core.check_visibility is
  'Postgres shows nulls to this role, so that nothing is found where something may be wrong.';

create function core.check_locks(p_waiting interval default '10 seconds') returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('Process %s (%s) has waited %s for a lock that process %s holds.', a.pid,
        coalesce(nullif(a.application_name, ''), a.usename), date_trunc('second', now() - l.waitstart),
        array_to_string(pg_blocking_pids(a.pid), ', ')),
      format('select pg_terminate_backend(%s)', (pg_blocking_pids(a.pid))[1]), false
    -- Every role sees pg_locks; pg_stat_activity may hide what the process does.
    from pg_locks l
    join pg_stat_activity a using (pid)
    where not l.granted and a.datname = current_database() and l.waitstart < now() - p_waiting
      and cardinality(pg_blocking_pids(a.pid)) > 0
  $$;
comment on function core.check_locks is 'Requests that need the same rows wait too, and then get 503.';

create function core.check_lock_table(p_tables bigint default null) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('The database has %s tables, and the server is set up for %s locks.', tables, locks),
      -- Half as many again for the schools to come.
      format('alter system set max_locks_per_transaction = %s; -- then restart the server',
        ceil(1.5 * tables / sessions)), false
    from (
      select
        coalesce(p_tables, (select count(*) from pg_class where relkind in ('r', 'p'))) as tables,
        -- The server reserves room for these, and has some more by chance.
        current_setting('max_locks_per_transaction')::bigint * sessions as locks,
        sessions
      from (
        select current_setting('max_connections')::integer + current_setting('max_prepared_transactions')::integer
          as sessions) server
    ) sizes
    where tables > locks
  $$;
comment on function core.check_lock_table is
  'pg_dump locks all tables in one transaction. It fails if there is no room for the locks, and until then the '
  'transactions of requests fail too.';

create function core.check_connections(p_share numeric default 0.8) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('%s of %s connections are open.', count(*), current_setting('max_connections')),
      format('alter system set max_connections = %s; -- then restart the server',
        2 * current_setting('max_connections')::integer), false
    from pg_stat_activity
    -- The type of a connection is null if its state may not be seen.
    where usesysid is not null and coalesce(backend_type, 'client backend') = 'client backend'
    having count(*) > p_share * current_setting('max_connections')::integer
  $$;
comment on function core.check_connections is 'Without a free connection, processes cannot start and requests get 503.';

create function core.check_replication(p_max_bytes bigint default 1000000000) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('The inactive replication slot %s retains %s of WAL.', slot_name, pg_size_pretty(
        pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end,
          restart_lsn))),
      format('select pg_drop_replication_slot(%L)', slot_name), false
    from pg_replication_slots
    where not active
      and pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end,
        restart_lsn) >= p_max_bytes
    union all
    select 'warning', format('The replica %s is %s behind.', application_name, pg_size_pretty(
        pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn))),
      'Check the network and the load of the replica.', false
    from pg_stat_replication
    where not pg_is_in_recovery() and pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) >= p_max_bytes
  $$;
comment on function core.check_replication is
  'A slot without a reader fills the disk with WAL. A replica that is behind shows old data.';

create function core.check_replication_workers(p_wanted integer default 3) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('%s is %s, and subscriptions take %s of them: %s are left, fewer than %s.', l.name,
        l.value, l.taken, greatest(l.value - l.taken, 0), p_wanted),
      format('alter system set %s = %s; -- then restart the server', l.name, l.taken + p_wanted), false
    from (
      -- Of all databases of the server. A move needs those that should be left.
      select count(*) filter (where subname !~ '^school_move_') as workers,
        bool_or(subdbid = (select oid from pg_database where datname = current_database())) as is_subscriber
      from pg_subscription
      where subenabled
    ) s
    cross join lateral (values
      ('max_logical_replication_workers', current_setting('max_logical_replication_workers')::integer, workers),
      -- The launcher of the workers is one of them.
      ('max_worker_processes', current_setting('max_worker_processes')::integer, workers + 1)) l (name, value, taken)
    where s.is_subscriber and l.value - l.taken < p_wanted
  $$;
comment on function core.check_replication_workers is
  'A school that moves here needs one worker for its changes and up to two for its tables. Without a free one, nothing '
  'is copied, and only the log of the server says so.';

create function core.check_queue(p_waiting interval default '10 minutes') returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', 'No worker is running: jobs are not processed.', 'npm start -- --only worker', false
    where not (core.readiness() ->> 'worker')::boolean
    union all
    select 'warning', format('Jobs of %s have waited since %s.', task, min(ready_since)::timestamptz(0)),
      'Start another worker, or raise WORKER_CONCURRENCY.', false
    from core.jobs()
    where state = 'ready'
    group by task
    having min(ready_since) < now() - p_waiting
    union all
    select 'warning', format('%s jobs of %s have failed for good.', count(*), task),
      format('npm run school -- jobs failed --task %s', task), false
    from core.jobs()
    where state = 'failed'
    group by task
  $$;
comment on function core.check_queue is 'Emails, notifications and the daily work of the schools are late or lost.';

create function core.find_server_problems() returns table (
    check_name text, level text, what text, why text, remedy text, is_harmless boolean)
  language plpgsql set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
declare
  v_function record;
begin
  for v_function in
    select f.proname as name, obj_description(f.oid, 'pg_proc') as reason
    from core.functions_in('core') f
    where f.proname ~ '^check_' and f.pronargs = f.pronargdefaults
    order by f.proname
  loop
    begin
      return query execute format('select %L, f.level, f.what, %L, f.remedy, f.is_harmless from core.%I() f',
        substr(v_function.name, 7), v_function.reason, v_function.name);
    exception when others then
      -- The other checks may find the cause.
      return query select substr(v_function.name, 7), 'error', format('This check failed: %s.', sqlerrm),
        v_function.reason, 'update platform.installation set fingerprint = ''''; -- then: npm run migrate', false;
    end;
  end loop;
end $$;
comment on function core.find_server_problems is
  'Runs all checks of the server: the name of the check, what is wrong, why that matters, and what fixes it. Needs the '
  'owner of the database, and sees what other roles do if that is a member of pg_read_all_stats.';
