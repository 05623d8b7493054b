-- Prepared statements for each school. Postgres plans a statement inside a function anew whenever the search path has
-- changed, thus whenever the connection changes the school. A prepared statement has the name of its school, so it only
-- ever runs with the same search path, and keeps its plan. Decision 0005.

create function core.max_prepared_statements() returns integer language sql stable
  return coalesce(nullif(current_setting('app.max_prepared_statements', true), '')::integer, 250);
comment on function core.max_prepared_statements is
  'The number of prepared statements that one connection keeps, of 80 to 330 kB each. '
  'Set it by alter role school_api set app.max_prepared_statements.';

-- p_statement has one parameter, $1 of type jsonb, and returns one json value. It must come from a definition, never
-- from a request. Its values are passed in a setting, because EXECUTE takes no parameters inside a function, and
-- literals would appear in the log of the server.
-- Another statement `<name>_exists` is prepared together with each one. Running it tells cheaply whether both exist:
-- pg_prepared_statements would read all of them. Preparing is not undone when a transaction fails, so no setting could
-- tell. The statement itself runs outside of the block with the exception, because rows that a subtransaction locks and
-- changes need a multixact.
create function core.run_prepared(p_statement text, p jsonb) returns json
  language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
  v_name text := concat('school_', core.tenant_id(), '_', md5(p_statement));
  v_answer json;
begin
  begin
    execute format('execute %I', v_name || '_exists');
  exception when invalid_sql_statement_name then
    perform core.deallocate_unused();
    execute format('prepare %I(jsonb) as %s', v_name, p_statement);
    execute format('prepare %I as select', v_name || '_exists');
  end;
  perform set_config('app.statement_parameter', p::text, true);
  execute format('execute %I(current_setting(''app.statement_parameter'')::jsonb)', v_name) into v_answer;
  return v_answer;
end $$;
comment on function core.run_prepared is
  'Runs a statement that a definition assembled, with the parameter $1, and returns its json value. Each connection '
  'keeps its plan for each school.';

-- Called only when a statement is missing. The counts of the previous call are in a setting of the session. If its
-- transaction fails, older counts remain, and this call keeps more than it needs to.
create function core.deallocate_unused() returns void language plpgsql as $$
declare
  v_before jsonb;
  v_runs jsonb;
  v_name text;
begin
  if (select count(*) from pg_prepared_statements where name ~ '^school_.*_exists$')
      < core.max_prepared_statements() then
    return;
  end if;
  v_before := coalesce(nullif(current_setting('app.statement_runs', true), ''), '{}')::jsonb;
  select jsonb_object_agg(name, generic_plans + custom_plans order by prepare_time)
    into v_runs
    from pg_prepared_statements
    where name ~ '^school_' and name !~ '_exists$';
  perform set_config('app.statement_runs', v_runs::text, false);
  for v_name in
    with statement as (
      select s.name, s.prepare_time, v_before -> s.name = v_runs -> s.name as is_unused
      from pg_prepared_statements s
      where v_runs ? s.name
    ), chosen as (
      select name from statement where is_unused
      union all
      (
        select name
        from statement
        where not exists (select from statement where is_unused)
        order by prepare_time
        limit greatest(core.max_prepared_statements() / 4, 1)
      )
    )
    select name from chosen
  loop
    execute format('deallocate %I', v_name);
    execute format('deallocate %I', v_name || '_exists');
  end loop;
end $$;
comment on function core.deallocate_unused is
  'If the connection has its maximum of prepared statements: removes those that did not run since the previous call, '
  'or if all ran, the oldest quarter.';
