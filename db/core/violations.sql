-- Which rows of a school are in the way of a migration. Installed early, like tenant.sql, because it explains why a
-- school could not be migrated.

create or replace function core.violation_query(
  p_schema text, p_model text, p_table text, p_constraint text, p_column text, out keys text[], out source text)
  language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_table oid := to_regclass(format('%I.%I', p_model, p_table));
  v_index oid := to_regclass(format('%I.%I', p_model, p_constraint));
  v_condition text;
  c pg_constraint;
begin
  select * into c from pg_constraint where conrelid = v_table and conname = p_constraint;
  keys := array(
    select quote_ident(a.attname)
    from unnest(c.conkey) with ordinality k (number, position)
    join pg_attribute a on a.attrelid = v_table and a.attnum = k.number
    order by k.position);
  if p_constraint = '' then
    keys := array[quote_ident(p_column)];
    source := format('%I t where %I is null', p_table, p_column);
  elsif c.contype = 'c' then
    source := format('%I t where (%s) is false', p_table, pg_get_expr(c.conbin, c.conrelid));
  elsif c.contype = 'f' then
    select format('%I t where (%s) is not null and not exists (select from %I other where %s)',
        p_table, array_to_string(keys, ', '), (select relname from pg_class where oid = c.confrelid),
        string_agg(format('other.%I = t.%I', theirs.attname, own.attname), ' and '))
      into source
      from unnest(c.conkey, c.confkey) k (own, theirs)
      join pg_attribute own on own.attrelid = c.conrelid and own.attnum = k.own
      join pg_attribute theirs on theirs.attrelid = c.confrelid and theirs.attnum = k.theirs;
  else
    -- A unique index, with or without a constraint. It allows equal keys that have a null.
    select array_agg(pg_get_indexdef(i.indexrelid, n, false) order by n), pg_get_expr(i.indpred, i.indrelid)
      into keys, v_condition
      from pg_index i
      cross join generate_series(1, i.indnkeyatts) n
      where i.indexrelid = v_index and i.indisunique
      group by i.indexrelid, i.indpred, i.indrelid;
    source := format(
      '(select *, count(*) over (partition by %1$s) as same_key from %2$I where (%1$s) is not null and %3$s) t '
        'where t.same_key > 1',
      array_to_string(keys, ', '), p_table, coalesce('(' || v_condition || ')', 'true'));
  end if;
  -- Functions that an expression calls.
  source := replace(source, p_model || '.', p_schema || '.');
end $$;
comment on function core.violation_query is
  'The columns of a constraint or unique index, and a from clause with the rows of a school that violate it; nulls if '
  'the schema p_model, which has the definition, does not have it. Without p_constraint: the rows in which p_column is '
  'null.';
revoke all on function core.violation_query from public;

create or replace function core.explain_violation(
  p_tenant_id bigint, p_table text, p_constraint text, p_column text) returns text
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_max_rows constant integer := 10;
  -- A number that no school has.
  v_model_id bigint := 9000000000000000 + pg_backend_pid();
  v_query record;
  v_ids text;
  v_before text[];
  v_total bigint;
  v_lines text;
begin
  -- The migration was rolled back, so this school does not have the new constraint. A school without rows can have it.
  perform core.schema_migrate(v_model_id, 0);
  v_query := core.violation_query(
    'tenant_' || p_tenant_id, 'tenant_' || v_model_id, p_table, p_constraint, p_column);
  select string_agg(quote_ident(a.attname), ', ' order by a.attnum) into v_ids
    from pg_index i
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
    where i.indrelid = to_regclass(format('tenant_%s.%I', p_tenant_id, p_table)) and i.indisprimary;
  if v_query.source is null or v_ids is null then
    return null;
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  perform set_config('search_path', core.search_path_of(p_tenant_id), true);
  -- Only the primary key and the columns of the constraint, since other columns may be personal data.
  execute format($sql$
    with violating as materialized (
      select concat_ws(', ', %1$s) as id, row_number() over (order by %2$s, %1$s) as number, 
        regexp_replace(concat_ws(', ', %3$s), '[[:cntrl:]]', ' ', 'g') as key
      from %4$s
    )
    select (select count(*) from violating), string_agg(line, E'\n' order by number)
    from (
      select min(number) as number, format('  %%s = %%s: %%s %%s', %5$L, coalesce(nullif(left(key, 100), ''), 'null'),
        %6$L, string_agg(case when %6$L ~ ',' then '(' || id || ')' else id end, ', ' order by number)) as line
      from violating
      where number <= %7$s
      group by key
    ) l
    $sql$,
    v_ids, array_to_string(v_query.keys, ', '),
    (select string_agg(format('(%s)::text', key), ', ') from unnest(v_query.keys) key),
    v_query.source, array_to_string(v_query.keys, ', '), v_ids, v_max_rows)
    into v_total, v_lines;
  perform core.leave_tenant(v_before);
  return case
    when v_total = 0 then format('No row of %s violates it before the migration, which writes the values.', p_table)
    else format('%s of %s it%s:%s%s', case v_total when 1 then '1 row' else v_total || ' rows' end,
      p_table || case v_total when 1 then ' violates' else ' violate' end,
      case when v_total > v_max_rows then format(', the first %s', v_max_rows) else '' end, E'\n', v_lines)
  end;
end $$;
comment on function core.explain_violation is
  'The rows of a school that violate a constraint of the newest tenant migrations, in lines: their number, then for '
  'each key its columns, its values and the primary keys of the rows, at most ten. Null for an unknown constraint. '
  'p_constraint is empty for a column that may not be null. Creates a schema; the caller rolls back.';
revoke all on function core.explain_violation from public;
