-- List, insert and update rows by the definitions in core.record.

-- LIKE patterns, one for each of the first 8 words.
create function core.search_patterns(p_search text) returns text[] language sql immutable
  return array(
    select '%' || regexp_replace(word, '([\\%_])', '\\\1', 'g') || '%'
    from unnest((string_to_array(
      trim(regexp_replace(public.search_form(p_search), '\s+', ' ', 'g')), ' '))[1:8]) word
    where word <> '');
comment on function core.search_patterns is 'LIKE patterns, one for each of the first 8 words of a search.';

-- A trigram index finds words of three letters or more. For shorter ones the planner has to see that it does not help.
create function core.is_search_prepared(p_record core.record, p jsonb) returns boolean language sql stable
  return p_record.search not like '%:p%' and (
    select coalesce(bool_and(length(pattern) >= length('%abc%')), true)
    from unnest(core.search_patterns(p ->> 'search')) pattern);
comment on function core.is_search_prepared is
  'Whether a search reads its words from core.parameters(), so that searches share a plan. Otherwise they are quoted.';

-- SQL text comes only from the definition of the record. Values of the request are read from core.parameters(), so that
-- requests with the same filters share a prepared statement. The values of `literal_filters` are quoted instead, since
-- the best plan depends on them and there are few.
create function core.record_where(p_record core.record, p jsonb) returns text language sql stable
  return (
    select string_agg(condition, ' and ') from (
      select format('(%s)', case when p ->> 'is_deleted' = 'true' then coalesce(p_record.deleted_condition, 'false')
        else p_record.condition end) as condition
      union all
      select format('not (%s)', p_record.ended)
        where p_record.ended is not null and p ->> 'status' is null and p ->> 'include_ended' is distinct from 'true'
      union all
      select format('(%s)', case
          when f.key = any (p_record.literal_filters) then replace(f.value, ':value', quote_literal(p ->> f.key))
          else regexp_replace(f.value, ':value(::\w+)?', format('(select (core.parameters() ->> %L)\1)', f.key), 'g')
        end)
        from jsonb_each_text(p_record.filters) f where p ->> f.key is not null
      union all
      select case
          when p_record.search like '%:phrase%' then
            replace(p_record.search, ':phrase', quote_literal(public.search_form(trim(p ->> 'search'))))
          -- With format() instead of nested replace(), so that a search for «:pattern» is not replaced again.
          when p_record.search like '%:patterns%' then format(
            replace(replace(replace(p_record.search, '%', '%%'), ':patterns', '%1$L'), ':pattern', '%2$L'),
            array_agg(pattern), (array_agg(pattern order by length(pattern) desc))[1])
          when p_record.search like '%:pattern%' then
            string_agg(replace(p_record.search, ':pattern', quote_literal(pattern)), ' and ')
          else string_agg(format('%s like %s', p_record.search, case
              when core.is_search_prepared(p_record, p)
                then format('(select (core.search_patterns(core.parameters() ->> ''search''))[%s])', number)
              else quote_literal(pattern)
            end), ' and ')
        end
      from unnest(core.search_patterns(p ->> 'search')) with ordinality word (pattern, number)
      having count(*) > 0
    ) conditions
  );
comment on function core.record_where is
  'The where clause of a list: the condition of the record, the filters, and the first 8 words of the search, or the '
  'search as one text.';

-- A sort that the record does not define is a column that it shows. Names are sorted ignoring case and accents. An SQL
-- function, so that the planner replaces the call by its argument.
create function core.sort_key(p_value anyelement) returns anyelement language sql immutable parallel safe as $$
  select p_value;
$$;
comment on function core.sort_key(anyelement) is 'The value by which a shown column is sorted.';

create function core.sort_key(p_value text) returns text language sql immutable parallel safe
  return platform.search_normal(p_value);
comment on function core.sort_key(text) is 'The value by which a shown text is sorted: without case and accents.';

create function core.name_key(p_name text) returns text language sql immutable strict parallel safe
  return lower(btrim(regexp_replace(
    normalize(public.without_invisible(p_name)),
    '[\s\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+', ' ', 'g')));
comment on function core.name_key is
  'What two names have in common if they are the same to people who type them: case, invisible characters, and the '
  'kind and number of spaces are ignored. For lookups by name.';

-- The sort `id` is the key, which every order ends with, so that the order is total and pages never overlap.
create function core.record_sort_keys(p_record core.record, p_sort text, p_is_descending boolean)
  returns table (expression text, direction text) language sql stable as $$
  select regexp_replace(key, ' nulls last$', ''),
    concat(case when p_is_descending then ' desc' end, case when key like '% nulls last' then ' nulls last' end)
  from unnest(
    case
      when p_record.sorts ? p_sort then array(select jsonb_array_elements_text(p_record.sorts -> p_sort))
      when p_sort <> 'id' then array[format('core.sort_key(shown.%I) nulls last', p_sort)]
    end || p_record.key_parts) key;
$$;
comment on function core.record_sort_keys is
  'The parts of the order by clause of a list, in this order. Values that can be null stay last in both directions.';

create function core.has_narrow_condition(p_record core.record, p jsonb) returns boolean language sql stable
  return exists (select from unnest(p_record.narrow_filters) parameter where p ->> parameter is not null)
    or p ->> 'search' is not null and p_record.search like '%:p%';
comment on function core.has_narrow_condition is
  'Whether a list should find the matching rows only once: a filter leaves few of them, or its search is a condition '
  'on several tables, which takes long.';

-- With one row per key, the keys of the page are found first. That needs the joins only if the search or the sort uses
-- them, and only the rows of the page are then joined and built. If few rows match, they are read once, for the page
-- and for the count. If many do, the page comes from an index, and the count reads no more than it has to. The planner
-- must know a limit to choose that index: the largest page that a client can ask for.
-- If about as many rows match as a page has, it costs less to join and sort all of them than to read the main table
-- again by the keys of the page and to sort a second time.
create function core.record_page_query(
  p_record core.record, p jsonb, p_with_total boolean default true, p_source text default null
) returns text language plpgsql stable as $$
declare
  -- Without a subquery, because these are evaluated once in any case.
  v_size text := 'coalesce((core.parameters() ->> ''pageSize'')::integer, 20)';
  v_largest_size integer := greatest((p ->> 'pageSize')::integer, 100);
  v_page text := case
    when coalesce((p ->> 'page')::bigint, 1) = 1 then '1'
    else '(core.parameters() ->> ''page'')::bigint'
  end;
  v_offset text := case v_page when '1' then '' else format('offset (%s - 1) * %s', v_page, v_size) end;
  v_sort text := coalesce(ltrim(p ->> 'sort', '-'), p_record.default_sort);
  v_direction text := case
    when p ->> 'sort' like '-%' then 'desc'
    else coalesce(p ->> 'order', case when p ->> 'sort' is null then p_record.default_order end)
  end;
  v_with text := '';
  v_source text := coalesce(p_source, p_record.source);
  v_counted text := v_source;
  v_where text := core.record_where(p_record, p);
  v_reads_matching boolean := p_source is null and exists (
    select from unnest(p_record.single_page_filters) parameter where p ->> parameter is not null);
  v_sorted_source text;
  v_order_by text;
  v_matching_columns text;
  v_matching_order_by text;
  v_rows text;
  v_total text := '0 as items';
begin
  if v_reads_matching then
    v_with := format('with matching as materialized (select %s.* from %s where %s)',
      split_part(p_record.key, '.', 1), v_source, v_where);
    -- Instead of the main table, with its alias and its joins.
    v_source := regexp_replace(v_source, format('^\s*%I', p_record.table_name), 'matching');
    v_counted := 'matching';
    v_where := 'true';
  end if;
  -- The planner replaces this subquery by those of its columns that the statement uses.
  v_sorted_source := v_source || case when v_sort = 'id' or p_record.sorts ? v_sort then ''
    else format(' cross join lateral (select %s) shown', p_record.columns) end;
  select string_agg(expression || direction, ', ' order by number),
      string_agg(format('%s as matching_%s', expression, number), ', ' order by number),
      string_agg(format('matching_%s%s', number, direction), ', ' order by number)
    into v_order_by, v_matching_columns, v_matching_order_by
    from core.record_sort_keys(p_record, v_sort, coalesce(v_direction = 'desc', false))
      with ordinality e (expression, direction, number);
  if p_with_total then
    v_total := format('count(*) as items from %s where %s', v_counted, v_where);
  end if;

  if v_reads_matching or not p_record.one_row_per_key or p_source is not null then
    v_rows := format('%s where %s order by %s limit %s %s', v_sorted_source, v_where, v_order_by, v_size, v_offset);
  elsif p_with_total and core.has_narrow_condition(p_record, p) then
    v_with := format('with matching as materialized (select %s as matching_key, %s from %s where %s)',
      p_record.key, v_matching_columns, v_sorted_source, v_where);
    v_rows := format('(select * from matching order by %1$s limit %2$s %3$s) page cross join %4$s '
      'where %5$s = page.matching_key order by %1$s',
      v_matching_order_by, v_size, v_offset, v_source, p_record.key);
    v_total := 'count(*) as items from matching';
  else
    v_rows := format('%1$s where %2$s = any (array(select key from ('
      'select %2$s as key from %1$s where %3$s order by %4$s limit %5$s %6$s) keys limit %7$s)) order by %4$s',
      v_sorted_source, p_record.key, v_where, v_order_by, v_largest_size, v_offset, v_size);
  end if;
  return format($query$
    %s
    select json_build_object(
      'data', coalesce((select json_agg(record) from (select %s from %s) record), '[]'),
      'pagination', json_build_object('page', %s, 'pageSize', %s,
        'totalItems', total.items, 'totalPages', ceil(total.items / %5$s::numeric)::integer))
    from (select %s) total $query$,
    v_with, p_record.columns, v_rows, v_page, v_size, v_total);
end $$;
comment on function core.record_page_query is
  'The statement of core.record_page. It reads the request by core.parameters().';

create function core.narrow_to_scope(p_record text, p jsonb) returns jsonb language sql stable
  return p || (
    select
      case
        when p ->> 'student_id' is null and current_setting('app.scope', true) = any (own_student_scopes)
          then '{"is_in_scope": true}'
        else '{}'
      end::jsonb || case
        when p ? 'search' and filters ? 'matches_shown'
            and coalesce(current_setting('app.children_without_contacts', true), '') not in ('', ',,')
          then '{"matches_shown": true}'
        else '{}'
      end::jsonb
    from core.record
    where name = p_record);
comment on function core.narrow_to_scope is
  'The parameters of a list or an export for a user who does not see the whole school. If the row policy shows only '
  'rows of the student who is the user, and of their children, with the filter for these. A search by a guardian who '
  'does not see the contacts of a child gets the filter matches_shown, so that it finds the child only by what is '
  'shown.';

-- Counting reads every matching row: pass p_with_total => false when only the data is needed. p_source replaces the
-- source of the record where rows depend on the request by more than conditions, for example on a day. It reads values
-- of the request from core.parameters(), too.
-- Building the text takes longer than reading a short page. So the statement is found by a name that is cheap to
-- compute: a hash of the record's xmin, which is another one after each new definition, of the names of the parameters,
-- and of the values that are part of the text. jsonb orders its keys, so equal parameters give equal names. With JSON
-- paths this costs less than a subquery.
create function core.record_page(
  p_record text, p jsonb, p_with_total boolean default true, p_source text default null
) returns json language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_paging constant text[] := '{page,pageSize}';
  v_record core.record;
  v_name text;
  v_query text;
  v_answer json;
begin
  if current_setting('app.scope', true) in ('taught', 'own', 'children') then
    p := core.narrow_to_scope(p_record, p);
  end if;
  select md5(concat_ws(' ', r.name, r.xmin,
      jsonb_path_query_array(p - v_paging, '$.keyvalue() ? (@.value.type() != "null").key'),
      jsonb_path_query_array(p, '$.keyvalue() ? (@.key == $literal[*]).value',
        jsonb_build_object('literal', '{sort,order,is_deleted,include_ended}'::text[] || r.literal_filters)),
      coalesce((p ->> 'page')::bigint, 1) = 1, greatest((p ->> 'pageSize')::integer, 100), p_with_total, p_source))
    into strict v_name from core.record r where r.name = p_record;
  if p ? 'search' then
    select * into strict v_record from core.record where name = p_record;
    v_name := case when core.is_search_prepared(v_record, p)
      then v_name || coalesce(cardinality(core.search_patterns(p ->> 'search')), 0) end;
  end if;
  if v_name is not null then
    v_answer := core.run_prepared(null, p, v_name);
    if v_answer is not null then
      return v_answer;
    end if;
  end if;
  select * into strict v_record from core.record where name = p_record;
  v_query := core.record_page_query(v_record, p, p_with_total, p_source);
  return case when v_name is null then core.run_unprepared(v_query, p) else core.run_prepared(v_query, p, v_name) end;
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
      select public.search_form(string_agg(value, ' ')) like all (r.patterns) from json_each_text(e.row))
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
create function core.record_export_page(
    p_record text, p jsonb, p_cells text, p_keys text, p_currency text default null) returns json
  language plpgsql stable as $$
declare
  v_record core.record;
  v_where text;
begin
  select * into strict v_record from core.record where name = p_record;
  if current_setting('app.scope', true) in ('taught', 'own', 'children') then
    p := core.narrow_to_scope(p_record, p);
  end if;
  v_where := core.record_where(v_record, p) || coalesce((
    select format(' and (%s) > (%s)', p_keys, string_agg(quote_literal(key), ', ' order by place))
    from jsonb_array_elements_text(p -> 'after') with ordinality k (key, place) having count(*) > 0), '');
  return core.run_unprepared(format($query$
    select json_build_object('rows', coalesce(json_agg(cells), '[]'), 'next', (array_agg(keys))[%1$s],
      'date', core.today()%6$s)
    from (
      select json_build_array(%2$s) as cells, json_build_array(%3$s) as keys
      from %4$s where %5$s order by %3$s limit %1$s
    ) page $query$,
    (p ->> 'limit')::integer, p_cells, p_keys, v_record.source, v_where,
    case when p_currency is not null then ', ''currency_decimals'', ' || core.currency_decimals(p_currency) end), p);
end $$;
comment on function core.record_export_page is
  'One page of the export of a record as {rows: [[cell, ...], ...], next, date}, with currency_decimals if it has '
  'amounts, in p_currency.';

create function core.fail_missing(p_record text, p_id bigint) returns void language sql stable
  return core.fail('not_found', concat('There is no ', replace(p_record, '_', ' '), ' ', p_id, '.'));
comment on function core.fail_missing is 'Raises not_found for a record.';

create function core.record_lock(p_record text, p_id bigint, p_with_deleted boolean default false) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_record core.record;
  v_found json;
begin
  select * into strict v_record from core.record where name = p_record;
  v_found := core.run_prepared(
    format('select to_json(true) from %I %I where %s = (select (core.parameters() ->> ''id'')::bigint) and (%s) '
        'for no key update',
      v_record.table_name, split_part(v_record.key, '.', 1), v_record.key,
      case when p_with_deleted then concat_ws(' or ', v_record.condition, v_record.deleted_condition)
        else v_record.condition end),
    jsonb_build_object('id', p_id));
  if v_found is null then
    perform core.fail_missing(p_record, p_id);
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

create function core.may_see_deleted(p_record core.record) returns boolean language sql stable
  return p_record.deleted_permission is null
    or core.is_wide_enough(core.permission_scope(p_record.deleted_permission));
comment on function core.may_see_deleted is 'Whether the user may see the soft-deleted rows of a record.';

create function core.record_insert(p_record text, p jsonb) returns bigint
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_record core.record;
  v_columns text;
  v_id json;
begin
  select * into strict v_record from core.record where name = p_record;
  select string_agg(quote_ident(c), ', ') into strict v_columns from unnest(v_record.writable) c where p ? c;
  v_id := core.run_prepared(
    format('insert into %1$I (%2$s) select %2$s from jsonb_populate_record(null::%1$I, (select core.parameters())) '
        'returning to_json(id)',
      v_record.table_name, v_columns), p);
  return v_id::text::bigint;
end $$;
comment on function core.record_insert is
  'Inserts a row with the writable columns that the request has. Returns the new id.';

-- JavaScript reads timestamps only to the millisecond. So a client may send back less than it has read.
create function core.as_timestamp(p_text text) returns timestamptz language plpgsql stable as $$
begin
  -- pg_input_is_valid needs Postgres 16.
  return case when p_text ~ '^\d{4}-\d\d-\d\dT' then date_trunc('milliseconds', p_text::timestamptz) end;
exception when data_exception then
  return null;
end $$;
comment on function core.as_timestamp is
  'The moment that an ISO 8601 text names, cut to milliseconds; null for other texts.';

-- A client may send a record back as it read it. The address of a picture changes without an edit.
create function core.repeats(p_given jsonb, p_present jsonb, p_may_lack boolean default true) returns boolean
  language plpgsql stable as $$
begin
  if p_given = p_present then
    return true;
  end if;
  return case jsonb_typeof(p_given)
    when 'object' then jsonb_typeof(p_present) = 'object'
      and (p_may_lack or p_present - array(select jsonb_object_keys(p_given)) = '{}')
      and not exists (
        select from jsonb_each(p_given) field
        where not case when p_present ? field.key then core.repeats(field.value, p_present -> field.key, false)
          else p_may_lack and field.value in ('null', 'false') end)
    when 'array' then jsonb_typeof(p_present) = 'array'
      and jsonb_array_length(p_given) = jsonb_array_length(p_present) and not exists (
        select from jsonb_array_elements(p_given) with ordinality given (item, position)
        where not core.repeats(item, p_present -> (position - 1)::integer))
    when 'string' then coalesce(
      core.as_timestamp(p_given #>> '{}') = core.as_timestamp(p_present #>> '{}')
        or core.picture_file_id(p_given #>> '{}') = core.picture_file_id(p_present #>> '{}'), false)
    else false
  end;
end $$;
comment on function core.repeats is
  'Whether the values of a request are those that a record has. p_may_lack: the request, or an entry of a list in it, '
  'may leave fields out, and have null and false for what the record does not have. Other objects are compared whole, '
  'because a name that they lack may be a change.';

create function core.with_present_moments(p jsonb, p_present jsonb) returns jsonb language sql stable
  return p || coalesce((
    select jsonb_object_agg(key, p_present -> key)
    from jsonb_each(p)
    where p_present ->> key ~ '^\d{4}-\d\d-\d\dT'
      and value <> p_present -> key
      and core.as_timestamp(value #>> '{}') = core.as_timestamp(p_present ->> key)), '{}');
comment on function core.with_present_moments is
  'The parameters of a write with the present value in place of each timestamp that core.as_timestamp finds equal to '
  'it, so that nothing else sees a change.';

create function core.chosen(p_first jsonb, p_second jsonb, p_present jsonb, p_second_name text, p_first_name text)
  returns jsonb language plpgsql stable as $$
begin
  if p_first <> p_second and p_first is distinct from p_present and p_second is distinct from p_present then
    perform core.refuse_field('validation_error', p_second_name, format('must be the same as %s', p_first_name));
  end if;
  return case
    when p_first is distinct from p_present then coalesce(p_first, p_second)
    else coalesce(p_second, p_first)
  end;
end $$;
comment on function core.chosen is
  'The value of a field that a request names in two ways: the one that differs from the present value. Raises '
  'validation_error if both do, and differ from each other.';

create function core.is_as_read(p_field text, p_given jsonb, p_present jsonb, p_unversioned_fields text[])
  returns boolean language plpgsql stable as $$
declare
  v_read_at timestamptz := core.as_timestamp(p_given ->> 'updated_at');
begin
  if core.repeats(p_given -> p_field, p_present -> p_field) then
    return true;
  elsif p_field = 'updated_at' then
    return coalesce(v_read_at between coalesce(core.as_timestamp(p_present ->> 'created_at'), '-infinity')
      and core.as_timestamp(p_present ->> 'updated_at'), false);
  end if;
  return p_field = any (p_unversioned_fields)
    and coalesce(v_read_at < core.as_timestamp(p_present ->> 'updated_at'), false);
end $$;
comment on function core.is_as_read is
  'Whether a client can have read this value of a field from the record: the present value, an earlier updated_at, or, '
  'with an earlier updated_at, any value of a field that changes without an edit.';

create function core.fixed_names() returns text language sql immutable return '^(id|key|email|status)$|_(id|at)$';
comment on function core.fixed_names is 'A pattern of the names of fields that are never derived from others.';

create function core.is_set_by_service(p_record core.record, p_field text, p_value jsonb) returns boolean
  language sql immutable
  return p_field ~ core.fixed_names()
    or case when p_record.name is null then jsonb_typeof(p_value) not in ('object', 'array')
      else p_field = any (p_record.fixed_fields) end;
comment on function core.is_set_by_service is
  'Whether a field that requests cannot write is fixed: an id, a key, an email, a status, a timestamp, or one of the '
  'fixed fields of the record; without a record, any but a list or an object. All other fields are derived.';

create function core.refuse_read_only(p_given jsonb, p_present jsonb, p_record core.record) returns void
  language plpgsql stable as $$
declare
  -- updated_at shows that the values were read from the record, so these may be older.
  v_volatile text[] := case
    when p_given ? 'updated_at' then coalesce(p_record.volatile_fields, '{last_login_at}') else '{}' end;
  v_given jsonb := core.versioned_fields(p_given, v_volatile);
  v_present jsonb := core.versioned_fields(p_present, v_volatile);
  v_unversioned text[] := coalesce(p_record.unversioned_fields, array(
    select field from jsonb_object_keys(v_given) field where field !~ core.fixed_names()));
  v_field text := (
    select field from jsonb_object_keys(v_given) field
    where core.is_set_by_service(p_record, field, v_present -> field)
      and not core.is_as_read(field, v_given, v_present, v_unversioned)
    limit 1);
begin
  if v_field is not null then
    perform core.refuse_field('validation_error', v_field,
      'This field is read-only. If it changed since you read the record, read the record again.');
  end if;
end $$;
comment on function core.refuse_read_only is
  'Raises validation_error if a request changes a field that only the service sets, unless a client can have read this '
  'value. Derived fields are ignored.';

create function core.refuse_unread(p_given jsonb, p_id bigint) returns void language plpgsql stable as $$
declare
  v_field text := (
    select key from jsonb_each(p_given) where key <> 'id' or value is distinct from to_jsonb(p_id) limit 1);
begin
  if v_field is not null then
    perform core.refuse_field('validation_error', v_field, 'This field is read-only. Leave it out.');
  end if;
end $$;
comment on function core.refuse_unread is
  'Raises validation_error for a read-only field, right or wrong, of a user who cannot have read it from the record. '
  'The id of the path is allowed.';

create function core.require_unchanged(p_record text, p_id bigint, p_read_only jsonb) returns void
  language plpgsql stable as $$
declare
  v_record core.record;
begin
  select * into strict v_record from core.record where name = p_record;
  execute format('select core.refuse_read_only($1, api.%I($2)::jsonb, $3)', v_record.reader)
    using p_read_only, p_id, v_record;
end $$;
comment on function core.require_unchanged is
  'Raises validation_error if a read-only field of a request differs from the record, which must be locked.';

create function core.refuse_untrue(p_given jsonb, p_created jsonb) returns void language plpgsql stable as $$
declare
  v_field text := (
    select field from jsonb_object_keys(p_given) field
    where not core.repeats(p_given -> field, p_created -> field) limit 1);
begin
  if v_field is not null then
    perform core.refuse_field('validation_error', v_field, 'The service sets this field. Leave it out.');
  end if;
end $$;
comment on function core.refuse_untrue is
  'Raises validation_error if a request that creates a record has a read-only field with another value than the new '
  'record.';

create function core.record_update(p_record text, p jsonb) returns bigint
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_record core.record;
  v_alias text;
  v_set text;
  v_id json;
begin
  select * into strict v_record from core.record where name = p_record;
  v_alias := split_part(v_record.key, '.', 1);
  select format('(%s) = (select %s from jsonb_populate_record(%I, (select core.parameters())) n)',
      string_agg(quote_ident(c), ', '), string_agg('n.' || quote_ident(c), ', '), v_alias)
    into v_set from unnest(v_record.writable) c where p ? c having count(*) > 0;
  v_id := core.run_prepared(
    format('update %I %I set %s where %s = (select (core.parameters() ->> ''id'')::bigint) and (%s) '
      'returning to_json(%s)',
      v_record.table_name, v_alias, coalesce(v_set, 'updated_at = now()'), v_record.key, v_record.condition,
      v_record.key), p);
  if v_id is null then
    perform core.fail_missing(p_record, (p ->> 'id')::bigint);
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
    format('delete from %I %I where %s = (select (core.parameters() ->> ''id'')::bigint) and (%s) '
      'returning to_json(%s)',
      v_record.table_name, split_part(v_record.key, '.', 1), v_record.key, v_record.condition, v_record.key), p);
  if v_id is null then
    perform core.fail_missing(p_record, (p ->> 'id')::bigint);
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
