-- What `school doctor` checks in the schema of each school: its definitions are those of a new school.

create function core.schema_objects(p_schema text) returns table (
    kind text, name text, table_name text, definition text, parts jsonb, remedy text)
  language sql stable set search_path = pg_catalog, pg_temp as $$
    with owned as (
      select r.*, format('%I.%I', p_schema, r.relname) as full_name, column_of.table_name as of_table,
        column_of.column_name, coalesce(column_of.table_name, r.relname)::text as table_name
      from core.relations_in(p_schema) r
      left join lateral (
        select t.relname as table_name, a.attname as column_name
        from pg_depend d
        join pg_class t on t.oid = d.refobjid
        join pg_attribute a on a.attrelid = t.oid and a.attnum = d.refobjsubid
        where d.classid = 'pg_class'::regclass and d.objid = r.oid and d.deptype in ('a', 'i') and r.relkind = 'S'
      ) column_of on true
      where r.relkind in ('r', 'p', 'S')
    )
    select 'table', o.relname::text, o.table_name, '', null::jsonb,
      'Restore the table from a backup, or delete the school and import its last export.'
    from owned o
    where o.relkind <> 'S'
    union all
    select 'sequence', o.relname::text, o.table_name, '', null,
      format('create sequence %s', o.full_name) || coalesce(
        format(' owned by %1$I.%2$I.%3$I; select setval(%4$L, coalesce(max(%3$I), 0) + 1, false) from %1$I.%2$I',
          p_schema, o.of_table, o.column_name, o.full_name), '')
        || format('; grant usage on sequence %s to school_tenant', o.full_name)
    from owned o
    where o.relkind = 'S'
    union all
    select 'column', o.relname || '.' || a.attname, o.table_name,
      concat_ws(' ', c.type, case when a.attnotnull then 'not null' end, c.expression),
      jsonb_build_object('table', o.full_name, 'column', quote_ident(a.attname), 'type', c.type, 'expression',
        c.expression, 'is_generated', a.attgenerated = 's', 'is_not_null', a.attnotnull),
      format('alter table %s add column %I %s', o.full_name, a.attname, concat_ws(' ', c.type,
        case when a.attgenerated = 's' then format('generated always as (%s) stored', c.expression)
          else 'default ' || c.expression end,
        case when a.attnotnull then 'not null' end))
    from owned o
    join pg_attribute a on a.attrelid = o.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = o.oid and d.adnum = a.attnum
    cross join lateral (
      select format_type(a.atttypid, a.atttypmod) as type, pg_get_expr(d.adbin, d.adrelid) as expression) c
    where o.relkind <> 'S'
    union all
    select 'row security', o.relname::text, o.table_name,
      format('enabled %s, forced %s', o.relrowsecurity, o.relforcerowsecurity), null,
      format('alter table %s enable row level security, force row level security', o.full_name)
    from owned o
    where o.relkind <> 'S'
    union all
    select 'policy', format('%s on %s', p.polname, o.relname), o.table_name,
      format('as %s for %s to %s using (%s) with check (%s)', p.polpermissive, p.polcmd, p.polroles,
        pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)), null,
      core.policy_definition(p, o.full_name)
    from owned o
    join pg_policy p on p.polrelid = o.oid
    union all
    select 'privileges', o.relname::text, o.table_name,
      concat_ws(' ', core.granted(o.relacl, o.relowner), (
        select string_agg(a.attname || ': ' || core.granted(a.attacl, o.relowner), ', ' order by a.attname)
        from pg_attribute a
        where a.attrelid = o.oid and a.attacl is not null and not a.attisdropped
      )),
      null,
      core.revocation(case o.relkind when 'S' then 'sequence ' else '' end || o.full_name,
        o.relacl || array(select unnest(a.attacl) from pg_attribute a where a.attrelid = o.oid),
        o.relowner)
    from owned o
    union all
    select 'trigger', format('%s on %s', t.tgname, o.relname), o.table_name,
      t.tgenabled::text || ' ' || pg_get_triggerdef(t.oid), null, core.trigger_definition(t, o.full_name)
    from owned o
    join pg_trigger t on t.tgrelid = o.oid and not t.tgisinternal
    union all
    select 'constraint', format('%s on %s', k.conname, o.relname), o.table_name, pg_get_constraintdef(k.oid),
      jsonb_build_object('drop', format('alter table %s drop constraint if exists %I; ', o.full_name, k.conname),
        'is_check', k.contype = 'c'),
      format('alter table %s add constraint %I %s', o.full_name, k.conname, pg_get_constraintdef(k.oid))
    from owned o
    join pg_constraint k on k.conrelid = o.oid
    where k.contype not in ('n', 't')
    union all
    select 'index', i.indexrelid::regclass::text, o.table_name, pg_get_indexdef(i.indexrelid),
      jsonb_build_object('drop', format('drop index concurrently if exists %s; ', i.indexrelid::regclass)),
      regexp_replace(pg_get_indexdef(i.indexrelid), '^(CREATE (UNIQUE )?INDEX) ', '\1 CONCURRENTLY ')
    from owned o
    join pg_index i on i.indrelid = o.oid
    where not exists (
      select from pg_constraint k where k.conindid = i.indexrelid and k.contype in ('p', 'u', 'x'))
    union all
    select 'function', f.oid::regprocedure::text, null, pg_get_functiondef(f.oid), null,
      pg_get_functiondef(f.oid) || format('; revoke all on function %s from public', f.oid::regprocedure)
    from core.functions_in(p_schema) f
    union all
    select 'privileges', f.oid::regprocedure::text, null,
      coalesce(core.granted(f.proacl, f.proowner), case when f.proacl is null then 'execute public' else '' end), null,
      core.revocation('function ' || f.oid::regprocedure, f.proacl, f.proowner)
    from core.functions_in(p_schema) f
  $$;
comment on function core.schema_objects is
  'The tables, columns, constraints, indexes, triggers, functions, policies and privileges of the schema of a school, '
  'each with the table that it belongs to, its definition, the parts of it that statements need, and the statement '
  'that creates it.';

create function core.reference_objects() returns jsonb
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  -- A number that no school has and no definition contains.
  v_id bigint := 9000000000000000 + pg_backend_pid();
  v_schema text := 'tenant_' || v_id;
  v_objects jsonb;
  v_statement text;
begin
  -- Otherwise the new school would have the privileges that older ones should not have.
  for v_statement in select f.remedy from core.check_default_privileges(current_user::regrole) f loop
    execute v_statement;
  end loop;
  insert into platform.tenant (id, name, subdomain, plan_id, contact_email)
    select v_id, 'Reference', 'reference-' || v_id, min(id), 'reference@localhost' from platform.plan;
  perform core.tenant_migrate(v_id);
  select jsonb_agg(o) into v_objects from core.schema_objects(v_schema) o;
  -- pg_dump writes the definitions as Postgres prints them. Postgres stores some of them in another form then: of
  -- `a and (b and c)` it prints `(a AND (b AND c))`, which it reads as one list of three. So everything is created once
  -- more as a restore does, and both forms count as the same.
  for v_statement in
    select case
        when o.kind in ('policy', 'trigger', 'function') then o.remedy
        when o.kind = 'constraint' then o.parts ->> 'drop' || o.remedy
        when o.kind = 'index' then regexp_replace(o.parts ->> 'drop' || o.remedy, ' concurrently', '', 'gi')
        when (o.parts ->> 'is_generated')::boolean then
          format('alter table %s drop column %s cascade; %s', o.parts ->> 'table', o.parts ->> 'column', o.remedy)
        else format('alter table %s alter column %s set default %s', o.parts ->> 'table', o.parts ->> 'column',
          o.parts ->> 'expression')
      end
    from jsonb_to_recordset(v_objects) o (kind text, name text, parts jsonb, remedy text)
    where o.kind in ('policy', 'trigger', 'function', 'index')
      or (o.kind = 'constraint' and (o.parts ->> 'is_check')::boolean)
      or (o.kind = 'column' and o.parts ->> 'expression' is not null)
    -- A generated column takes its indexes with it.
    order by array_position('{function,column,constraint,index,trigger,policy}', o.kind), o.name
  loop
    execute v_statement;
  end loop;
  select jsonb_agg(o || jsonb_build_object('restored', r.definition)) into v_objects
    from jsonb_array_elements(v_objects) o
    left join core.schema_objects(v_schema) r on r.kind = o ->> 'kind' and r.name = o ->> 'name';
  return replace(v_objects::text, v_id::text, '<id>')::jsonb;
end $$;
comment on function core.reference_objects is
  'What core.schema_objects returns for a school with the tables of this release, with <id> instead of its id, and the '
  'definition that each object has after a restore. Creates such a school; the caller rolls back.';

create function core.change_column(p_found jsonb, p_wanted jsonb, p_remedy text) returns text
  language sql immutable set search_path = pg_catalog, pg_temp
  return case
    when (p_found ->> 'is_generated')::boolean or (p_wanted ->> 'is_generated')::boolean then
      format('alter table %s drop column %s; %s', p_wanted ->> 'table', p_wanted ->> 'column', p_remedy)
    else format('alter table %s %s', p_wanted ->> 'table', concat_ws(', ',
      case when p_found -> 'type' <> p_wanted -> 'type' then
        format('alter column %s type %s using %1$s::%2$s', p_wanted ->> 'column', p_wanted ->> 'type') end,
      case when p_found -> 'expression' <> p_wanted -> 'expression' then
        format('alter column %s %s', p_wanted ->> 'column', coalesce('set default ' || (p_wanted ->> 'expression'),
          'drop default')) end,
      case when p_found -> 'is_not_null' <> p_wanted -> 'is_not_null' then
        format('alter column %s %s not null', p_wanted ->> 'column',
          case when (p_wanted ->> 'is_not_null')::boolean then 'set' else 'drop' end) end))
  end;
comment on function core.change_column is
  'The statement that makes a column what it should be, of the parts in core.schema_objects. p_remedy creates it.';

create function core.check_school(p_tenant_id bigint, p_reference jsonb) returns setof core.finding
  language sql set search_path = pg_catalog, pg_temp as $$
    with wanted as (
      select *
      from rows from (
        jsonb_to_recordset(replace(p_reference::text, '<id>', p_tenant_id::text)::jsonb)
          as (kind text, name text, table_name text, definition text, restored text, parts jsonb),
        jsonb_to_recordset(p_reference) as (remedy text)
      ) w (kind, name, table_name, definition, restored, parts, remedy)
    ), found as (
      select * from core.schema_objects('tenant_' || p_tenant_id)
    ), missing as (
      -- What belongs to a missing table is missing too, and not reported again.
      select w.name
      from wanted w
      where w.kind = 'table' and to_regclass(format('tenant_%s.%I', p_tenant_id, w.name)) is null
    ), difference as (
      select coalesce(f.kind, w.kind) as kind,
        replace(coalesce(f.name, w.name), format('tenant_%s.', p_tenant_id), '') as name,
        f.definition as found, f.parts as found_parts, f.remedy as found_remedy,
        w.definition as wanted, w.parts as wanted_parts, w.remedy
      from found f
      full join wanted w using (kind, name)
      where f.definition is distinct from w.definition
        and (w.restored is null or f.definition is distinct from w.restored)
        and to_regnamespace('tenant_' || p_tenant_id) is not null
        and (w.kind = 'table' or coalesce(w.table_name, '') not in (select name from missing))
        and not (w.kind = 'privileges' and f.name is null)
        -- What does not belong to the release is dropped, and what belongs to it too.
        and not (w.name is null and exists (
          select from found extra
          where extra.kind in ('table', 'sequence', 'function') and extra.name in (f.name, f.table_name)
            and (extra.kind, extra.name) <> (f.kind, f.name)
            and not exists (select from wanted same where same.kind = extra.kind and same.name = extra.name)))
    )
    select
      case when d.kind in ('index') then 'warning' else 'error' end,
      format('School <id>: the %s %s %s.', d.kind, d.name, case
        when d.wanted is null then 'does not belong to this release'
        when d.found is null then 'is missing'
        when d.kind in ('privileges', 'row security') then format('are: %s; this release has: %s',
          coalesce(nullif(d.found, ''), 'none'), coalesce(nullif(d.wanted, ''), 'none'))
        else 'differs from this release'
      end),
      regexp_replace(
        case
          when d.wanted is null and d.kind in ('trigger', 'policy') then
            format('drop %s %s', d.kind, replace(d.name, ' on ', ' on tenant_<id>.'))
          when d.wanted is null and d.kind in ('function', 'table', 'sequence') then
            format('drop %s tenant_<id>.%s', d.kind, d.name)
          when d.wanted is null and d.kind = 'column' then
            format('alter table %s drop column %s', d.found_parts ->> 'table', d.found_parts ->> 'column')
          when d.wanted is null and d.kind in ('constraint', 'index') then rtrim(d.found_parts ->> 'drop', '; ')
          when d.kind = 'privileges' then
            format('%s; select core.tenant_secure(<id>)', coalesce(d.found_remedy, d.remedy))
          when d.found is not null and d.kind = 'column' then
            core.change_column(d.found_parts, d.wanted_parts, d.remedy)
          when d.found is not null and d.kind in ('constraint', 'index') then d.found_parts ->> 'drop' || d.remedy
          else d.remedy
        end,
        format('\mtenant_%s\M', p_tenant_id), 'tenant_<id>', 'g'),
      d.kind in ('row security', 'policy', 'privileges') and d.wanted is not null
    from (
      select *
      from difference
      -- In an order in which the statements can be run.
      order by array_position('{table,sequence,function,column,constraint}', kind), kind, name
    ) d
    union all
    select 'error', 'School <id>: its schema tenant_<id> is missing.',
      'Restore the schema from a backup, or delete the school and import its last export.', false
    where to_regnamespace('tenant_' || p_tenant_id) is null
  $$;
comment on function core.check_school is
  'A school whose tables, policies, triggers or privileges differ from the release can show rows of other schools, or '
  'fail at the next migration.';
