-- What keeps the role of this connection from migrating the database: one row for each right that it lacks, with the
-- statement that grants it (null if no statement does) and what the right is for. Runs before any schema exists.
with me as (
  select
    r.oid,
    r.rolname,
    r.rolsuper as is_superuser,
    r.rolsuper or r.rolcreaterole as can_create_roles,
    current_setting('server_version_num')::integer >= 160000 as has_set_option
  from pg_roles r
  where r.rolname = current_user
), wanted (name, position) as (
  select *
  from unnest(array['school_api', 'school_worker', 'school_graphql', 'school_tenant', 'school_platform',
    'school_analyst']) with ordinality
), known as (
  select
    w.name,
    r.oid,
    -- Since Postgres 16 the right to create roles is none to grant those of others.
    me.is_superuser or (me.can_create_roles and not me.has_set_option)
      or pg_has_role(me.oid, r.oid, 'member with admin option') as can_grant,
    me.is_superuser or pg_has_role(me.oid, r.oid, case when me.has_set_option then 'set' else 'member' end) as can_set
  from wanted w
  join pg_roles r on r.rolname = w.name
  cross join me
), member (role, of_role) as (
  values ('school_api', 'school_tenant'), ('school_api', 'school_platform'), ('school_graphql', 'school_analyst')
), extension (name) as (
  values ('pgcrypto'), ('pg_trgm'), ('unaccent'), ('btree_gist')
)
select statement, reason
from (
  select 1, format('alter role %I createrole', me.rolname) as statement,
    format('It creates the roles %s.', string_agg(w.name, ', ' order by w.position)) as reason
  from me
  join wanted w on not me.can_create_roles and w.name not in (select name from known)
  group by me.rolname
  union all
  select 2, format('grant %s to %I', string_agg(k.name, ', ' order by k.name), me.rolname),
    'The processes of the service become these roles.'
  from me
  join known k on k.name in ('school_api', 'school_worker') and not k.can_set and not k.can_grant
  group by me.rolname
  union all
  select 3,
    case when r.oid is null then format('grant %I to %I with admin option', m.of_role, me.rolname)
      else format('grant %I to %I', m.of_role, m.role) end,
    format('The role %s becomes %s.', m.role, m.of_role)
  from member m
  join known k on k.name = m.of_role and not k.can_grant
  left join pg_roles r on r.rolname = m.role
  cross join me
  where r.oid is null or not pg_has_role(r.oid, k.oid, 'member')
  union all
  select 4, format('grant create on database %I to %I', current_database(), me.rolname), 'It creates schemas.'
  from me
  where not has_database_privilege(current_database(), 'create')
  union all
  select 5, case when to_regnamespace('public') is null then 'create schema public; ' else '' end
      || format('grant create on schema public to %I', me.rolname),
    'It creates the functions of the search.'
  from me
  where to_regprocedure('public.search_form(text)') is null
    and not coalesce(has_schema_privilege(to_regnamespace('public')::oid, 'create'), false)
  union all
  select 6,
    case
      when i.oid is not null then format('alter extension %I set schema public', e.name)
      when v.name is not null then format('create extension %I with schema public', e.name)
    end,
    case
      when i.oid is not null then format('The extension %s must be in the schema public.', e.name)
      when v.name is not null then format('Only a superuser may create the extension %s on this server.', e.name)
      else format('The server does not have the extension %s. Install the contrib package of Postgres there.', e.name)
    end
  from extension e
  cross join me
  left join pg_extension i on i.extname = e.name
  left join pg_available_extensions a on a.name = e.name
  left join pg_available_extension_versions v on v.name = e.name and v.version = a.default_version
  where case when i.oid is not null then i.extnamespace is distinct from to_regnamespace('public')
    else v.name is null or not (v.trusted or me.is_superuser) end
  union all
  select 0, null, format('The schemas %s belong to the role %s. Use its login in DATABASE_URL.',
    string_agg(n.nspname, ', ' order by n.nspname)
      filter (where n.nspname in ('platform', 'core', 'graphile_migrate', 'graphile_worker')), n.nspowner::regrole)
  from me
  join pg_namespace n on n.nspname in ('platform', 'core', 'graphile_migrate', 'graphile_worker')
    or n.nspname ~ '^tenant_[0-9]+$'
  where not pg_has_role(me.oid, n.nspowner, 'usage')
  group by n.nspowner
) lacks (position, statement, reason)
order by position, statement
