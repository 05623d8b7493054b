-- Statements of a DBA for one school: `school sql` (src/cli/school-sql.ts, decision 0068). Only the owner of the
-- database calls these functions, all of one run in one transaction. Like tenant.sql, this file is installed before the
-- schools are migrated, so that a school whose migration failed can be corrected while the functions of the earlier
-- release are kept. It therefore depends only on the schema platform and on tenant.sql, except for core.audit and
-- core.enforce_plan_limits.

-- The statements run as the role that owns this function, and Postgres keeps them there: a function refuses commit and
-- rollback, and one that is security definer refuses `set role` and `set session authorization`, also by set_config.
-- The role has privileges only inside the transaction (core.sql_open), only for one school, and may create nothing.
create or replace function core.sql_execute(p_statement text, p_search_path text)
  returns table (row_values json, row_count bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_cursor refcursor;
  v_row record;
  v_name text;
  v_count bigint := 0;
begin
  perform set_config('search_path', p_search_path, true);
  begin
    open v_cursor for execute p_statement;
  exception when invalid_cursor_definition then
    -- The statement returns no rows. It has not run yet.
    v_cursor := null;
  end;
  if v_cursor is null then
    execute p_statement;
    get diagnostics v_count = row_count;
  else
    loop
      fetch v_cursor into v_row;
      exit when not found;
      row_values := row_to_json(v_row);
      if v_count = 0 then
        select key into v_name from json_object_keys(row_values) key group by key having count(*) > 1 limit 1;
        if v_name is not null then
          raise exception 'Two columns have the name %. Give one of them another name with `as`.', v_name;
        end if;
      end if;
      v_count := v_count + 1;
      return next;
    end loop;
    close v_cursor;
  end if;
  row_values := null;
  row_count := v_count;
  return next;
end $$;
comment on function core.sql_execute is
  'Runs a statement as the role school_sql. Returns each row of its result as row_values, and last a row with '
  'row_count: the number of rows that it returned or changed. Only for core.sql_run.';
revoke all on function core.sql_execute from public;

-- For the generated columns and indexes of the tables that the statements change.
grant execute on function platform.search_normal(text) to school_sql;

do $$
begin
  grant create on schema core to school_sql;
  alter function core.sql_execute(text, text) owner to school_sql;
  revoke create on schema core from school_sql;
exception when insufficient_privilege then
  -- Another user created the role. core.sql_open then refuses to run statements.
  null;
end $$;

create or replace function core.sql_privileges(p_tenant_id bigint, p_verb text, p_preposition text) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_schema text := 'tenant_' || p_tenant_id;
  v_to text := format(' %s school_sql', p_preposition);
begin
  execute format('%s usage on schema %I', p_verb, v_schema) || v_to;
  perform core.for_all_in(array[v_schema], 'tables', p_verb || ' select, insert, update, delete on table %s' || v_to);
  perform core.for_all_in(array[v_schema], 'sequences', p_verb || ' usage, select, update on sequence %s' || v_to);
  perform core.for_all_in(array[v_schema], 'functions', p_verb || ' execute on function %s' || v_to);
end $$;
comment on function core.sql_privileges is
  'Grants the rows of a school to the role school_sql (grant, to), or revokes them (revoke, from).';
revoke all on function core.sql_privileges from public;

create or replace function core.sql_open(p_tenant_id bigint) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  -- Its owner could make it run the next statement with the rights of the caller, if it could name it.
  if has_schema_privilege('school_sql', 'core', 'usage') or not exists (
    select
    from pg_proc
    where oid = 'core.sql_execute(text,text)'::regprocedure and prosecdef and proowner = 'school_sql'::regrole
  ) then
    raise exception 'The role school_sql must own the function core.sql_execute, and may not use the schema core.'
      using hint = 'Grant school_sql to the owner of the database, revoke its usage of core, and run: npm run migrate';
  elsif not pg_try_advisory_xact_lock_shared(core.tenant_lock_key(p_tenant_id)) then
    raise exception 'School % is being migrated, moved or purged. Try again later.', p_tenant_id;
  elsif not pg_try_advisory_xact_lock(core.lock_key('sql', p_tenant_id)) then
    raise exception 'Another `school sql` works on school %. Wait until it has ended.', p_tenant_id;
  elsif not exists (
    select
    from platform.tenant t
    left join platform.node n on n.id = t.node_id
    where t.id = p_tenant_id and t.schema_version > 0 and (n.id is null or n.is_this)
  ) then
    raise exception 'School % has no tables on this server: it was purged or moved, or it is still being created.',
      p_tenant_id;
  end if;
  perform core.sql_privileges(p_tenant_id, 'grant', 'to');
end $$;
comment on function core.sql_open is
  'Lets statements of this transaction use the rows of a school. Locks the school against migrations, moves and purges '
  'until the transaction ends. Fails if one of them is running, and for a second `school sql` of the school.';
revoke all on function core.sql_open from public;

create or replace function core.sql_run(p_tenant_id bigint, p_statement text)
  returns table (row_values json, row_count bigint)
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  -- Again for each statement, because the one before may have changed the settings.
  perform core.enter_tenant(p_tenant_id);
  return query
    select e.row_values, e.row_count
    from core.sql_execute(p_statement, core.search_path_of(p_tenant_id)) e;
end $$;
comment on function core.sql_run is
  'Runs a statement with the rows of a school, after core.sql_open. Result as core.sql_execute.';
revoke all on function core.sql_run from public;

create or replace function core.sql_changes(p_tenant_id bigint) returns jsonb
  language sql volatile set search_path = pg_catalog, pg_temp as $$
    select coalesce(jsonb_object_agg(c.name, c.rows order by c.name), '{}')
    from (
      select
        r.relname as name,
        pg_stat_get_xact_tuples_inserted(r.oid) + pg_stat_get_xact_tuples_updated(r.oid)
          + pg_stat_get_xact_tuples_deleted(r.oid) as rows
      from core.relations_in('tenant_' || p_tenant_id) r
      where r.relkind in ('r', 'p')
    ) c
    where c.rows > 0
  $$;
comment on function core.sql_changes is
  'The number of rows that this transaction has inserted, updated and deleted in each table of a school, including '
  'those that triggers have changed: {table: rows}.';
revoke all on function core.sql_changes from public;

create or replace function core.sql_audit(p_action text, p_tenant_id bigint, p_values jsonb) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  -- Statements may have changed all of these settings, which core.audit reads.
  perform set_config(name, '', true)
    from unnest('{app.tenant_id,app.user_id,app.api_key,app.impersonator_id,app.context}'::text[]) name;
  perform set_config('app.actor_email', 'command line', true);
  perform core.audit(p_action, 'tenant', p_tenant_id, p_tenant_id, core.diff(null, p_values));
end $$;
comment on function core.sql_audit is 'Adds an audit entry of `school sql`, made by "command line".';
revoke all on function core.sql_audit from public;

create or replace function core.sql_close(p_tenant_id bigint, p_statements text) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_max_length constant integer := 100000;
  v_owned text;
begin
  select pg_describe_object(d.classid, d.objid, d.objsubid)
    into v_owned
    from pg_shdepend d
    where d.refclassid = 'pg_authid'::regclass and d.refobjid = 'school_sql'::regrole and d.deptype = 'o'
      and d.dbid in (0, (select oid from pg_database where datname = current_database()))
      and (d.classid, d.objid) <> ('pg_proc'::regclass, 'core.sql_execute(text,text)'::regprocedure)
    limit 1;
  if v_owned is not null then
    raise exception 'The statements have created an object, which is not allowed: %.', v_owned;
  end if;
  perform core.sql_privileges(p_tenant_id, 'revoke', 'from');
  -- A school whose migration failed may not have this table yet.
  if to_regclass(format('tenant_%s.school_usage', p_tenant_id)) is not null then
    perform core.enter_tenant(p_tenant_id);
    perform core.enforce_plan_limits();
  end if;
  perform core.sql_audit('tenant.sql_commit', p_tenant_id, jsonb_build_object(
    'statements', left(p_statements, v_max_length),
    'sha256', case when length(p_statements) > v_max_length then encode(sha256(convert_to(p_statements, 'UTF8')), 'hex')
      end,
    'rows', core.sql_changes(p_tenant_id)));
end $$;
comment on function core.sql_close is
  'The last step before the commit of `school sql`: takes the privileges back, stores the counts of the school, and '
  'adds the audit entry with the statements (of a longer text the first 100,000 characters, and the SHA-256 of all). '
  'Raises plan_limit_reached as an operation would. Fails if the statements have created something.';
revoke all on function core.sql_close from public;
