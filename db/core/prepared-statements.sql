-- Prepared statements for each school. Postgres plans a statement inside a function anew whenever the search path has
-- changed, thus whenever the connection changes the school. A prepared statement has the name of its school, so it only
-- ever runs with the same search path, and keeps its plan. Decision 0005.

-- Not a setting of the role: only a superuser may add a setting of an application to a role.
create function core.max_prepared_statements() returns integer language sql stable
  return coalesce(nullif(current_setting('app.max_prepared_statements', true), '')::integer, 500);
comment on function core.max_prepared_statements is
  'The approximate number of prepared statements that one connection keeps, of 80 kB to 1.2 MB each. A superuser can '
  'change it with alter database ... set app.max_prepared_statements. The API estimates the memory of its connections '
  'with the default, so with more statements they can become larger than DATABASE_CONNECTION_MB.';

create function core.backend_memory_mb() returns double precision
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return (select sum(total_bytes) from pg_backend_memory_contexts) / 1024 / 1024;
exception when insufficient_privilege then
  return null;
end $$;
comment on function core.backend_memory_mb is
  'The memory of this connection in MB: its plans and its copy of the catalog. Takes some milliseconds. Null if the '
  'owner may not know it (pg_read_all_stats). Security definer, because the API is not a member of that role.';

create function core.parameters() returns jsonb language sql stable
  return current_setting('app.parameters')::jsonb;
comment on function core.parameters is
  'The parameters of the statement that core.run_prepared runs. Statements compute a value of them in one subquery, as '
  '(select (core.parameters() ->> ''id'')::bigint), so that it is evaluated once and not for each row. Where row '
  'security applies, Postgres 15.20 uses no index for a condition that calls a function with the result of a subquery.';

-- p_statement returns one json value, and reads its parameters p by core.parameters(). It must come from a definition,
-- never from a request. The parameters are a setting: Postgres parses and plans the arguments of the command EXECUTE at
-- each call, they cannot refer to variables of a function, and as literals they would appear in the log of the server.
-- Postgres plans even the smallest expression of a function again when the search path is another than the last time.
-- So the path here is constant, and the expression that returns the statement to execute sets that of the school.
-- Nothing is evaluated after it in the same function.
-- Only running a statement shows cheaply whether it exists: pg_prepared_statements copies the text of each, and a
-- setting would be rolled back with the transaction, but the statement would stay.
-- A read takes the short way: it runs the statement and catches the error if it does not exist. Since nothing is
-- evaluated after the statement, this way cannot restore app.parameters. So only the first statement of a transaction
-- takes it; a later one can be inside another, which still needs its own parameters.
create function core.run_prepared(p_statement text, p jsonb, p_name text default null) returns json
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_search_path text := core.search_path_of(core.tenant_id());
  v_name text := 'school_' || coalesce(current_setting('app.tenant_id', true), '') || '_'
    || coalesce(p_name, md5(p_statement));
  v_outer_parameters text := current_setting('app.parameters', true);
  v_parameters text := set_config('app.parameters', p::text, true);
  v_answer json;
begin
  if current_setting('transaction_read_only') = 'on' and coalesce(v_outer_parameters, '') = '' then
    begin
      execute case when set_config('search_path', v_search_path, true) <> '' then 'execute ' || v_name end
        into v_answer;
      return v_answer;
    exception when invalid_sql_statement_name then
      null;
    end;
  end if;
  v_answer := core.run_prepared_in_write(p_statement, v_search_path, v_name);
  -- A statement can call a function that runs another one.
  v_parameters := set_config('app.parameters', v_outer_parameters, true);
  return v_answer;
end $$;
comment on function core.run_prepared is
  'Runs a statement that a definition assembled, with the parameters p, at the current school, and returns its json '
  'value. Each connection keeps its plan for each school. p_name identifies the statement if it is known before its '
  'text; without p_statement, the result is null if the connection does not have it.';

-- A row that is locked in a subtransaction and changed outside it needs a multixact. So the statement itself must not
-- run in the exception block. An empty companion, `<name>_x`, runs there instead, to show whether the statement exists.
-- The companion is prepared last and deallocated first, so it never exists without its statement. Its name has at most
-- 63 bytes, also with an id of 19 digits; Postgres would cut off the rest.
create function core.run_prepared_in_write(p_statement text, p_search_path text, p_name text) returns json
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_answer json;
begin
  begin
    execute 'execute ' || p_name || '_x';
  exception when invalid_sql_statement_name then
    if p_statement is null then
      return null;
    end if;
    perform core.prepare(p_search_path, p_name, p_statement);
  end;
  execute case when set_config('search_path', p_search_path, true) <> '' then 'execute ' || p_name end into v_answer;
  return v_answer;
end $$;
comment on function core.run_prepared_in_write is
  'Runs the statement with this name in a transaction that may write, and prepares it before if the connection does '
  'not have it; null if it would have to, but has no text. Only for core.run_prepared.';

create function core.run_unprepared(p_statement text, p jsonb) returns json
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_search_path text := core.search_path_of(core.tenant_id());
  v_outer_parameters text := current_setting('app.parameters', true);
  v_parameters text := set_config('app.parameters', p::text, true);
  v_answer json;
begin
  execute case when set_config('search_path', v_search_path, true) <> '' then p_statement end into v_answer;
  perform set_config('app.parameters', v_outer_parameters, true);
  return v_answer;
end $$;
comment on function core.run_unprepared is
  'The same as core.run_prepared for a statement whose best plan depends on the values in its text: it is planned each '
  'time.';

-- A canceled request can have left the statement without its companion. Its text is the same, since its name contains
-- a hash of the text, or of everything that the text depends on.
create function core.prepare(p_search_path text, p_name text, p_statement text) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform core.evict_prepared_statements();
  begin
    perform set_config('search_path', p_search_path, true);
    execute format('prepare %I as %s', p_name, p_statement);
  exception when duplicate_prepared_statement then
    null;
  end;
  perform set_config('search_path', 'pg_catalog, pg_temp', true);
  begin
    execute format('prepare %I as select', p_name || '_x');
  exception when duplicate_prepared_statement then
    null;
  end;
end $$;
comment on function core.prepare is
  'Prepares a statement of core.run_prepared with the tables of this path, and its companion.';

-- Looking at 500 statements copies their texts, which takes two milliseconds. So only about ten of v_max calls do,
-- chosen at random. A counter would not help: it is rolled back with its transaction, but statements are not.
create function core.evict_prepared_statements() returns void language plpgsql as $$
declare
  v_max integer := core.max_prepared_statements();
  v_name text;
begin
  if random() * v_max > 10 then
    return;
  end if;
  for v_name in
    select name
    from (
      select name, count(*) over () as statement_count,
        row_number() over (order by runs / greatest(seconds, 0.000001)) as rank
      from (
        select name, generic_plans + custom_plans as runs,
          extract(epoch from clock_timestamp() - prepare_time) as seconds
        from pg_prepared_statements
        where starts_with(name, 'school_') and right(name, 2) <> '_x'
      ) statement
    ) ranked
    where statement_count >= v_max and rank <= statement_count - v_max + greatest(v_max / 10, 1)
  loop
    begin
      execute format('deallocate %I', v_name || '_x');
    exception when invalid_sql_statement_name then
      null;
    end;
    execute format('deallocate %I', v_name);
  end loop;
end $$;
comment on function core.evict_prepared_statements is
  'If the connection has its maximum of prepared statements: removes what is above it and a tenth of it, those with '
  'the fewest runs per second since they were prepared. It checks at random, so a connection can exceed its maximum.';
