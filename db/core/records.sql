-- List, insert and update rows by the definitions in core.record.

-- LIKE patterns, one for each of the first 8 words.
create function core.search_patterns(p_search text) returns text[] language sql immutable
  return array(
    select '%' || regexp_replace(word, '([\\%_])', '\\\1', 'g') || '%'
    from unnest((string_to_array(
      trim(regexp_replace(platform.search_normal(p_search), '\s+', ' ', 'g')), ' '))[1:8]) word
    where word <> '');
comment on function core.search_patterns is 'LIKE patterns, one for each of the first 8 words of a search.';

-- SQL text comes only from the definition of the record. Values of the request are read from the parameter $1, so that
-- requests with the same filters share a prepared statement. The values of `literal_filters` are quoted instead, since
-- the best plan depends on them and there are few.
create function core.record_where(p_record core.record, p jsonb) returns text language sql stable
  return (
    select string_agg(condition, ' and ') from (
      select format('(%s)', case when p ->> 'is_deleted' = 'true' then p_record.deleted_condition
        else p_record.condition end) as condition
      union all
      select format('not (%s)', p_record.ended)
        where p_record.ended is not null and p ->> 'status' is null and p ->> 'include_ended' is distinct from 'true'
      union all
      select format('(%s)', replace(f.value, ':value', case
          when f.key = any (p_record.literal_filters) then quote_literal(p ->> f.key)
          else format('($1 ->> %L)', f.key)
        end))
        from jsonb_each_text(p_record.filters) f where p ->> f.key is not null
      union all
      select case
          when p_record.search like '%:phrase%' then
            replace(p_record.search, ':phrase', quote_literal(platform.search_normal(trim(p ->> 'search'))))
          -- With format() instead of nested replace(), so that a search for «:pattern» is not replaced again.
          when p_record.search like '%:patterns%' then format(
            replace(replace(replace(p_record.search, '%', '%%'), ':patterns', '%1$L'), ':pattern', '%2$L'),
            array_agg(pattern), (array_agg(pattern order by length(pattern) desc))[1])
          when p_record.search like '%:pattern%' then
            string_agg(replace(p_record.search, ':pattern', quote_literal(pattern)), ' and ')
          else string_agg(format('%s like %L', p_record.search, pattern), ' and ')
        end
      from unnest(core.search_patterns(p ->> 'search')) pattern
      having count(*) > 0
    ) conditions
  );
comment on function core.record_where is
  'The where clause of a list: the condition of the record, the filters, and the first 8 words of the search, or the '
  'search as one text. The parameter $1 is the request.';

-- A sort that the record does not define is a column that it shows. Names are sorted as they are searched: ignoring
-- case and accents. An SQL function, so that the planner replaces the call by its argument.
create function core.sort_key(p_value anyelement) returns anyelement language sql immutable parallel safe as $$
  select p_value;
$$;
comment on function core.sort_key(anyelement) is 'The value by which a shown column is sorted.';

create function core.sort_key(p_value text) returns text language sql immutable parallel safe
  return platform.search_normal(p_value);
comment on function core.sort_key(text) is 'The value by which a shown text is sorted: without case and accents.';

-- The sort `id` is the key, which every order ends with, so that the order is total and pages never overlap.
create function core.record_order_by(p_record core.record, p_sort text, p_is_descending boolean) returns text
  language sql stable
  return (
    select string_agg(case
        when p_is_descending then regexp_replace(expression, '( nulls last)?$', ' desc\1')
        else expression
      end, ', ' order by position)
    from unnest(
      case
        when p_record.sorts ? p_sort then array(select jsonb_array_elements_text(p_record.sorts -> p_sort))
        when p_sort <> 'id' then array[format('core.sort_key(shown.%I) nulls last', p_sort)]
      end || p_record.key_parts) with ordinality e (expression, position)
  );
comment on function core.record_order_by is
  'The order by clause of a list, ascending or descending. Values that can be null stay last in both directions.';

-- With one row per key, the keys of the page are found first. That needs the joins only if the search or the sort uses
-- them, and only the rows of the page are then joined and built. The size of the page is part of the text, because the
-- planner must know it.
create function core.record_page_query(
  p_record core.record, p jsonb, p_with_total boolean default true, p_source text default null
) returns text language plpgsql stable as $$
declare
  v_size integer := coalesce((p ->> 'pageSize')::integer, 20);
  v_is_first boolean := coalesce((p ->> 'page')::bigint, 1) = 1;
  v_source text := coalesce(p_source, p_record.source);
  v_sort text := coalesce(ltrim(p ->> 'sort', '-'), p_record.default_sort);
  v_order text := case
    when p ->> 'sort' like '-%' then 'desc'
    else coalesce(p ->> 'order', case when p ->> 'sort' is null then p_record.default_order end)
  end;
  -- The planner replaces this subquery by those of its columns that the statement uses.
  v_sorted_source text := v_source || case when v_sort = 'id' or p_record.sorts ? v_sort then ''
    else format(' cross join lateral (select %s) shown', p_record.columns) end;
  v_where text := core.record_where(p_record, p);
  v_order_by text := core.record_order_by(p_record, v_sort, v_order = 'desc');
  v_limited text := format('%s order by %s limit %s', v_where, v_order_by, v_size)
    || case when v_is_first then '' else format(' offset (($1 ->> ''page'')::bigint - 1) * %s', v_size) end;
begin
  if p_record.one_row_per_key and p_source is null then
    v_limited := format('%1$s = any (array(select %1$s from %2$s where %3$s)) order by %4$s',
      p_record.key, v_sorted_source, v_limited, v_order_by);
  end if;
  return format($query$
    select json_build_object(
      'data', coalesce((select json_agg(record) from (select %1$s from %2$s where %3$s) record), '[]'),
      'pagination', json_build_object('page', %4$s, 'pageSize', %5$s,
        'totalItems', total.items, 'totalPages', ceil(total.items / %5$s.0)::integer))
    from (select %6$s) total $query$,
    p_record.columns, v_sorted_source, v_limited, case when v_is_first then '1' else '($1 ->> ''page'')::bigint' end,
    v_size, case when p_with_total then format('count(*) as items from %s where %s', v_source, v_where)
      else '0 as items' end);
end $$;
comment on function core.record_page_query is
  'The statement of core.record_page. The parameter $1 is the request.';

-- Counting reads every matching row: pass p_with_total => false when only the data is needed. p_source replaces the
-- source of the record where rows depend on the request by more than conditions, for example on a day. It reads values
-- of the request from $1, too. The plan of a search depends on the words, so no plan of it is kept.
create function core.record_page(
  p_record text, p jsonb, p_with_total boolean default true, p_source text default null
) returns json language plpgsql as $$
declare
  v_record core.record;
  v_query text;
  v_answer json;
begin
  select * into strict v_record from core.record where name = p_record;
  v_query := core.record_page_query(v_record, p, p_with_total, p_source);
  if p ->> 'search' is null then
    return core.run_prepared(v_query, p);
  end if;
  execute v_query into v_answer using p;
  return v_answer;
end $$;
comment on function core.record_page is
  'One page of a record as {data, pagination}, with the filters, search, sort and page of the request.';

-- For short lists that are computed as a whole, for example the days of a calendar. p_rows is in the default order.
create function core.json_page(p_rows json, p jsonb) returns json language sql stable as $$
  with request as materialized (
    select coalesce((p ->> 'page')::bigint, 1) as page, coalesce((p ->> 'pageSize')::integer, 20) as size,
      ltrim(p ->> 'sort', '-') as sort,
      coalesce(p ->> 'sort' like '-%' or p ->> 'order' = 'desc', false) as is_descending,
      core.search_patterns(p ->> 'search') as patterns
  ), keyed as (
    select e.row, e.position, case jsonb_typeof(e.row::jsonb -> r.sort)
        when 'null' then null
        when 'string' then to_jsonb(core.sort_key(e.row ->> r.sort))
        else e.row::jsonb -> r.sort
      end as key
    from request r
    cross join json_array_elements(p_rows) with ordinality e (row, position)
    where cardinality(r.patterns) = 0 or (
      select platform.search_normal(string_agg(value, ' ')) like all (r.patterns) from json_each_text(e.row))
  ), ordered as (
    select row, row_number() over (order by
        case when not is_descending then key end nulls last,
        case when is_descending then key end desc nulls last,
        case when is_descending then -position else position end) as number
    from keyed, request
  )
  select json_build_object(
    'data', coalesce(
      json_agg(row order by number) filter (where number > (page - 1) * size and number <= page * size), '[]'),
    'pagination', json_build_object('page', page, 'pageSize', size,
      'totalItems', count(row), 'totalPages', ceil(count(row) / size::numeric)::integer))
  from request left join ordered on true
  group by page, size;
$$;
comment on function core.json_page is
  'One page of an array of objects as {data, pagination}, with the search, sort and page of the request.';

-- p_keys are columns that are never null and never change; the last one is unique, and an index has the same order. So
-- no row is repeated or skipped while others are added. p: the filters; limit; after, the `next` of the previous page.
create function core.record_export_page(p_record text, p jsonb, p_cells text, p_keys text) returns json
  language plpgsql stable as $$
declare
  v_record core.record;
  v_where text;
  v_answer json;
begin
  select * into strict v_record from core.record where name = p_record;
  v_where := core.record_where(v_record, p) || coalesce((
    select format(' and (%s) > (%s)', p_keys, string_agg(quote_literal(key), ', ' order by place))
    from jsonb_array_elements_text(p -> 'after') with ordinality k (key, place) having count(*) > 0), '');
  execute format($query$
    select json_build_object('rows', coalesce(json_agg(cells), '[]'), 'next', (array_agg(keys))[%1$s],
      'date', core.today())
    from (
      select json_build_array(%2$s) as cells, json_build_array(%3$s) as keys
      from %4$s where %5$s order by %3$s limit %1$s
    ) page $query$,
    (p ->> 'limit')::integer, p_cells, p_keys, v_record.source, v_where) into v_answer using p;
  return v_answer;
end $$;
comment on function core.record_export_page is
  'One page of the export of a record as {rows: [[cell, ...], ...], next, date}.';

create function core.record_lock(p_record text, p_id bigint, p_with_deleted boolean default false) returns void
  language plpgsql as $$
declare
  v_record core.record;
  v_found json;
begin
  select * into strict v_record from core.record where name = p_record;
  v_found := core.run_prepared(
    format('select to_json(true) from %I %I where %s = ($1 ->> ''id'')::bigint and (%s) for no key update',
      v_record.table_name, split_part(v_record.key, '.', 1), v_record.key,
      case when p_with_deleted then concat_ws(' or ', v_record.condition, v_record.deleted_condition)
        else v_record.condition end),
    jsonb_build_object('id', p_id));
  if v_found is null then
    perform core.fail('not_found', format('There is no %s %s.', replace(p_record, '_', ' '), p_id));
  end if;
end $$;
comment on function core.record_lock is 'Locks a record until the end of the transaction, or raises not_found.';

create function core.deleted_record(p_record text, p_id bigint) returns json language plpgsql stable as $$
declare
  v_record core.record;
  v_answer json;
begin
  select * into strict v_record from core.record where name = p_record;
  execute format('select row_to_json(record) from (select %s from %s where (%s) and %s = $1) record',
      v_record.columns, v_record.source, v_record.deleted_condition, v_record.key)
    into v_answer using p_id;
  return v_answer;
end $$;
comment on function core.deleted_record is 'A soft-deleted record as json, or null.';

-- A client that sends back a whole record, as it read it before another user deleted it, must not restore it.
create function core.is_restore(p_record text, p jsonb) returns boolean language sql stable
  return exists (
    select from core.record r
    where r.name = p_record
      and r.deleted_condition is not null
      and p -> 'deleted_at' = 'null'
      and p - r.restore_fields - '{id,deleted_at}'::text[] = '{}');
comment on function core.is_restore is
  'Whether a request restores the record if it is deleted: it sets deleted_at to null, and nothing else except '
  'restore_fields.';

create function core.record_insert(p_record text, p jsonb) returns bigint language plpgsql as $$
declare
  v_record core.record;
  v_columns text;
  v_id json;
begin
  select * into strict v_record from core.record where name = p_record;
  select string_agg(quote_ident(c), ', ') into strict v_columns from unnest(v_record.writable) c where p ? c;
  v_id := core.run_prepared(
    format('insert into %1$I (%2$s) select %2$s from jsonb_populate_record(null::%1$I, $1) returning to_json(id)',
      v_record.table_name, v_columns), p);
  return v_id::text::bigint;
end $$;
comment on function core.record_insert is
  'Inserts a row with the writable columns that the request has. Returns the new id.';

-- A client may send a record back as it read it. Its read-only fields must then be unchanged, except for those that
-- change without an edit.
create function core.refuse_read_only(p_given jsonb, p_current jsonb, p_unversioned_fields text[]) returns void
  language plpgsql stable as $$
declare
  v_current jsonb := core.versioned_fields(p_current, p_unversioned_fields);
  v_field text := (
    select key from jsonb_each(core.versioned_fields(p_given, p_unversioned_fields)) field
    where field.value is distinct from v_current -> field.key limit 1);
begin
  if v_field is not null then
    perform core.refuse_field('validation_error', v_field,
      'This field is read-only. If it changed since you read the record, read the record again.');
  end if;
end $$;
comment on function core.refuse_read_only is
  'Raises validation_error if a read-only field differs from its current value.';

create function core.require_unchanged(p_record text, p_id bigint, p_read_only jsonb) returns void
  language plpgsql stable as $$
declare
  v_record core.record;
begin
  select * into strict v_record from core.record where name = p_record;
  execute format('select core.refuse_read_only($1, api.%I($2)::jsonb, $3)', v_record.reader)
    using p_read_only, p_id, v_record.unversioned_fields;
end $$;
comment on function core.require_unchanged is
  'Raises validation_error if a read-only field of a request differs from the record, which must be locked.';

create function core.record_update(p_record text, p jsonb) returns bigint language plpgsql as $$
declare
  v_record core.record;
  v_alias text;
  v_set text;
  v_id json;
begin
  select * into strict v_record from core.record where name = p_record;
  v_alias := split_part(v_record.key, '.', 1);
  select format('(%s) = (select %s from jsonb_populate_record(%I, $1) n)',
      string_agg(quote_ident(c), ', '), string_agg('n.' || quote_ident(c), ', '), v_alias)
    into v_set from unnest(v_record.writable) c where p ? c having count(*) > 0;
  v_id := core.run_prepared(
    format('update %I %I set %s where %s = ($1 ->> ''id'')::bigint and (%s) returning to_json(%s)',
      v_record.table_name, v_alias, coalesce(v_set, 'updated_at = now()'), v_record.key, v_record.condition,
      v_record.key), p);
  if v_id is null then
    perform core.fail('not_found', format('There is no %s %s.', replace(p_record, '_', ' '), p ->> 'id'));
  end if;
  return v_id::text::bigint;
end $$;
comment on function core.record_update is
  'Updates the writable columns that the request has. Returns the id, or raises not_found.';

create function core.record_delete(p_record text, p jsonb) returns json language plpgsql as $$
declare
  v_record core.record;
  v_id json;
  v_table text;
  v_constraint text;
begin
  select * into strict v_record from core.record where name = p_record;
  v_id := core.run_prepared(
    format('delete from %I %I where %s = ($1 ->> ''id'')::bigint and (%s) returning to_json(%s)',
      v_record.table_name, split_part(v_record.key, '.', 1), v_record.key, v_record.condition, v_record.key), p);
  if v_id is null then
    perform core.fail('not_found', format('There is no %s %s.', replace(p_record, '_', ' '), p ->> 'id'));
  end if;
  return json_build_object('id', v_id);
exception when restrict_violation or foreign_key_violation then
  get stacked diagnostics v_table = table_name, v_constraint = constraint_name;
  perform core.refuse_deleted_reference(v_table, v_constraint, (p ->> 'id')::bigint);
  raise;
end $$;
comment on function core.record_delete is
  'Deletes a row and returns {id}. Raises not_found; in_use if other rows refer to it.';

-- Soft-deleted rows keep what they refer to, because their history stays. An administrator cannot see them, so the
-- message must name them.
create function core.refuse_deleted_reference(p_table text, p_constraint text, p_id bigint) returns void
  language plpgsql as $$
declare
  v_record core.record;
  v_column text;
  v_has_live_row boolean;
begin
  select * into v_record from core.record where name = p_table and table_name = p_table;
  if not found then
    return;
  end if;
  select own.attname
    into strict v_column
    from pg_constraint k
    cross join unnest(k.conkey, k.confkey) key (own, target)
    join pg_attribute own on own.attrelid = k.conrelid and own.attnum = key.own
    join pg_attribute target on target.attrelid = k.confrelid and target.attnum = key.target and target.attname = 'id'
    where k.conrelid = to_regclass(quote_ident(p_table)) and k.conname = p_constraint;
  -- Rows outside the scope of the user are not deleted rows.
  perform set_config('app.scope', 'all', true);
  execute format('select exists (select from %I %I where %I.%I = $1 and (%s))',
      p_table, split_part(v_record.key, '.', 1), split_part(v_record.key, '.', 1), v_column, v_record.condition)
    into v_has_live_row using p_id;
  if not v_has_live_row then
    perform core.fail('in_use', format('This is still used by a deleted %s. Deleted records stay stored together with '
      'everything that they refer to.', replace(p_table, '_', ' ')));
  end if;
end $$;
comment on function core.refuse_deleted_reference is
  'Raises in_use if all rows of p_table that refer to p_id by this foreign key are soft-deleted. Called only before an '
  'error, because it widens the scope.';
