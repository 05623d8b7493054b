-- What `school doctor` checks on the server, besides the data (invariants.sql). Each function core.check_… returns what
-- is wrong, and its comment says why that matters.

create type core.finding as (level text, what text, remedy text, is_harmless boolean);
comment on type core.finding is
  'A problem of the server. level: error (fix it now) or warning. remedy: the statement or command that fixes it. '
  'is_harmless: the remedy is a statement that may run at any time.';

create function core.policy_definition(p_policy pg_policy, p_table text) returns text
  language sql stable set search_path = pg_catalog, pg_temp
  return format('drop policy if exists %1$I on %2$s; create policy %1$I on %2$s as %3$s for %4$s to %5$s%6$s%7$s',
    p_policy.polname, p_table,
    case when p_policy.polpermissive then 'permissive' else 'restrictive' end,
    case p_policy.polcmd when '*' then 'all' when 'r' then 'select' when 'a' then 'insert' when 'w' then 'update'
      else 'delete' end,
    (
      select string_agg(case r.role when 0 then 'public' else r.role::regrole::text end, ', ')
      from unnest(p_policy.polroles) r (role)
    ),
    ' using (' || pg_get_expr(p_policy.polqual, p_policy.polrelid) || ')',
    ' with check (' || pg_get_expr(p_policy.polwithcheck, p_policy.polrelid) || ')');
comment on function core.policy_definition is 'The statements that create a policy of a table, or create it again.';

create function core.trigger_definition(p_trigger pg_trigger, p_table text) returns text
  language sql stable set search_path = pg_catalog, pg_temp
  return format('drop trigger if exists %1$I on %2$s; %3$s; alter table %2$s enable trigger %1$I', p_trigger.tgname,
    p_table, pg_get_triggerdef(p_trigger.oid));
comment on function core.trigger_definition is 'The statements that create a trigger of a table, or create it again.';

create table core.release_object (
  kind text not null,
  name text not null,
  digest text not null,
  restored text,
  remedy text,
  primary key (kind, name)
);
comment on table core.release_object is
  'The functions, triggers, privileges and row security of the shared schemas, as this release installed them, and the '
  'number of shared migrations at that time. restored: the digest of the same function after a restore of a dump, if '
  'it is another one. remedy: the statement that creates the object again; null: an installation does.';

create function core.revocation(p_object text, p_acl aclitem[], p_owner oid) returns text
  language sql stable set search_path = pg_catalog, pg_temp
  return format('revoke all on %s from public%s', p_object, (
    select string_agg(distinct format(', %s', g.grantee::regrole), '')
    -- Of an empty list, aclexplode says that it has no dimension.
    from aclexplode(nullif(p_acl, '{}')) g
    where g.grantee not in (0, p_owner)
  ));
comment on function core.revocation is
  'The statement that takes all privileges on an object from everybody but its owner, among them those of p_acl.';

create function core.shared_objects() returns table (
    kind text, name text, digest text, oid oid, is_installed boolean, remedy text, removal text)
  language sql stable set search_path = pg_catalog, pg_temp as $$
    with place (schema, is_installed) as (
      values ('core', true), ('api', true), ('analytics', true), ('platform', false), ('mart', false)
    ), owned as (
      select r.*, place.is_installed, r.oid::regclass::text as full_name
      from place
      cross join core.relations_in(place.schema) r
      where r.relkind in ('r', 'v', 'S')
    ), object (kind, name, definition, oid, is_installed, remedy, removal) as (
      select 'function', f.oid::regprocedure::text, pg_get_functiondef(f.oid), f.oid, place.is_installed,
        pg_get_functiondef(f.oid), format('drop function %s', f.oid::regprocedure)
      from place
      cross join core.functions_in(place.schema) f
      union all
      -- An installation grants all privileges anew.
      select 'privileges of the function', f.oid::regprocedure::text,
        coalesce(core.granted(f.proacl, f.proowner), case when f.proacl is null then 'execute public' else '' end),
        f.oid, true,
        null,
        core.revocation('function ' || f.oid::regprocedure, f.proacl, f.proowner)
      from place
      cross join core.functions_in(place.schema) f
      union all
      select case relkind when 'S' then 'sequence' when 'v' then 'view' else 'table' end, full_name,
        concat_ws(', ', case when relrowsecurity then 'enable' else 'disable' end,
          case when relforcerowsecurity then 'force' else 'no force' end),
        oid, is_installed,
        case when relkind = 'r' then format('alter table %s %s row level security, %s row level security', full_name,
          case when relrowsecurity then 'enable' else 'disable' end,
          case when relforcerowsecurity then 'force' else 'no force' end) end,
        format('drop %s %s', case relkind when 'S' then 'sequence' when 'v' then 'view' else 'table' end, full_name)
      from owned
      union all
      select format('privileges of the %s', case relkind when 'S' then 'sequence' else 'table' end), full_name,
        concat_ws('|', core.granted(relacl, relowner), (
          select string_agg(a.attname || core.granted(a.attacl, relowner), ',' order by a.attname)
          from pg_attribute a
          where a.attrelid = owned.oid and a.attacl is not null and not a.attisdropped
        )),
        oid, true, null, core.revocation(
          case relkind when 'S' then 'sequence ' else '' end || full_name,
          relacl || array(select unnest(a.attacl) from pg_attribute a where a.attrelid = owned.oid),
          relowner)
      from owned
      union all
      select 'trigger', format('%s on %s', t.tgname, full_name), t.tgenabled::text || pg_get_triggerdef(t.oid), t.oid,
        is_installed, core.trigger_definition(t, full_name), format('drop trigger %I on %s', t.tgname, full_name)
      from owned
      join pg_trigger t on t.tgrelid = owned.oid and not t.tgisinternal
      union all
      select 'policy', format('%s on %s', p.polname, full_name),
        concat_ws('|', p.polpermissive::text, p.polcmd::text, p.polroles::regrole[]::text,
          pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)),
        p.oid, is_installed, core.policy_definition(p, full_name), format('drop policy %I on %s', p.polname, full_name)
      from owned
      join pg_policy p on p.polrelid = owned.oid
      union all
      select 'privileges of the schema', n.nspname, coalesce(core.granted(n.nspacl, n.nspowner), ''), n.oid, true, null,
        core.revocation(format('schema %I', n.nspname), n.nspacl, n.nspowner)
      from place
      join pg_namespace n on n.nspname = place.schema
    )
    select o.kind, o.name, md5(o.definition), o.oid, o.is_installed,
      case when not o.is_installed then o.remedy end, o.removal
    from object o
  $$;
comment on function core.shared_objects is
  'The functions, tables, sequences, triggers, policies and schemas that all schools share, with a digest of their '
  'definitions and privileges, whether an installation replaces them, and the statements that create and drop them.';

create function core.remember_release() returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_migrations text := (select count(*)::text from graphile_migrate.migrations);
  v_statement text;
  v_restored jsonb;
begin
  -- pg_dump writes the body of a function that Postgres has parsed as Postgres prints it, and Postgres may print
  -- another text for what it has read from this one.
  begin
    for v_statement in
      select pg_get_functiondef(f.oid)
      from unnest(array['core', 'api', 'analytics', 'platform', 'mart']) place (schema)
      cross join core.functions_in(place.schema) f
      where f.prosqlbody is not null
    loop
      execute v_statement;
    end loop;
    select jsonb_object_agg(s.name, s.digest) into v_restored from core.shared_objects() s where s.kind = 'function';
    raise exception using errcode = 'SC000';
  exception when sqlstate 'SC000' then
    null;
  end;
  insert into core.release_object (kind, name, digest, restored, remedy)
    select s.kind, s.name, s.digest, case when s.kind = 'function' then nullif(v_restored ->> s.name, s.digest) end,
      s.remedy
    from core.shared_objects() s;
  insert into core.release_object (kind, name, digest) values ('migrations', 'shared', v_migrations);
  if to_regclass('pg_temp.before_installation') is not null then
    -- What an installation does not replace is still what it was. Somebody may have changed it since the migrations.
    if exists (select from pg_temp.before_installation where kind = 'migrations' and digest = v_migrations) then
      delete from core.release_object o
      using core.shared_objects() s
      join pg_temp.before_installation b using (kind, name, oid)
      where o.kind = s.kind and o.name = s.name;
      insert into core.release_object (kind, name, digest, restored, remedy)
        select b.kind, b.name, b.digest, b.restored, b.remedy
        from pg_temp.before_installation b
        where b.kind <> 'migrations' and b.digest is not null
          and not exists (select from core.release_object o where o.kind = b.kind and o.name = b.name)
          and (b.oid is null or exists (
            select from core.shared_objects() s where s.kind = b.kind and s.name = b.name and s.oid = b.oid));
    end if;
  end if;
  analyze core.release_object;
end $$;
comment on function core.remember_release is
  'Stores what this release has installed. Runs at the end of installation, which tells what was there before in '
  'pg_temp.before_installation.';

create function core.check_release() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('The %s %s %s.', coalesce(found.kind, known.kind), coalesce(found.name, known.name),
        case
          when known.name is null then 'does not belong to this release'
          when found.name is null then 'is missing'
          else 'differs from this release'
        end),
      case
        when known.name is null and found.removal is not null then found.removal
        when known.remedy is not null then known.remedy
        -- An installation grants privileges, and does not know all that others have granted.
        else coalesce(case when found.kind ~ '^privileges' then found.removal end || '; ', '')
          || 'update platform.installation set fingerprint = ''''; -- then: npm run migrate'
      end,
      false
    from core.shared_objects() found
    full join (select * from core.release_object where kind <> 'migrations') known using (kind, name)
    where found.digest is distinct from known.digest
      and (known.restored is null or found.digest is distinct from known.restored)
      -- Privileges of what is missing or does not belong.
      and not (coalesce(found.kind, known.kind) ~ '^privileges' and (found.name is null or known.name is null))
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
