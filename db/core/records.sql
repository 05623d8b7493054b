-- List, insert and update over the record definitions.

-- The conditions of a page: the record's own, the filters and the words of the search that the request names. SQL text comes
-- only from the record's definition; what the request gives enters as literals.
create function core.record_where(p_record core.record, p jsonb) returns text language sql stable
  return (
    select string_agg(condition, ' and ') from (
      select '(' || p_record.condition || ')' as condition
      union all
      select '(' || replace(f.value, ':value', quote_literal(p ->> f.key)) || ')' from jsonb_each_text(p_record.filters) f where p ->> f.key is not null
      union all
      -- The marks become places of format, so that nothing that was searched for is taken for a mark.
      select case when p_record.search like '%:patterns%'
          then format(replace(replace(replace(p_record.search, '%', '%%'), ':patterns', '%1$L'), ':pattern', '%2$L'), array_agg(pattern), (array_agg(pattern order by length(pattern) desc))[1])
          when p_record.search like '%:pattern%' then string_agg(replace(p_record.search, ':pattern', quote_literal(pattern)), ' and ')
          else string_agg(format('%s like %L', p_record.search, pattern), ' and ') end
      from unnest((string_to_array(trim(regexp_replace(platform.search_normal(p ->> 'search'), '\s+', ' ', 'g')), ' '))[1:8]) word,
        lateral (select '%' || regexp_replace(word, '([\\%_])', '\\\1', 'g') || '%') searched (pattern)
      where word <> '' having count(*) > 0
    ) conditions
  );
comment on function core.record_where is 'The where of a page.';

-- One page of a record: filters, search, sort and page as the request names them, in one statement. Counting reads every row that fits: who wants
-- only the data leaves it out by p_with_total. Where rows depend on the request by more than conditions, on a day for
-- example, the function that calls makes their source of literals (p_source) in place of the record's.
-- Where the source has a row for each key, the keys of the page are found first: that needs the joins only where search or sort do, and
-- no more rows than the page has are joined and shown.
create function core.record_page(p_record text, p jsonb, p_with_total boolean default true, p_source text default null) returns json
  language plpgsql stable as $$
declare
  v_record core.record;
  v_size integer := coalesce((p ->> 'pageSize')::integer, 20);
  v_page bigint := coalesce((p ->> 'page')::bigint, 1);
  v_where text;
  v_sort text;
  v_limit text;
  v_answer json;
begin
  select * into strict v_record from core.record where name = p_record;
  v_where := core.record_where(v_record, p);
  v_record.source := coalesce(p_source, v_record.source);
  v_sort := core.record_order_by(v_record, coalesce(p ->> 'sort', v_record.default_sort),
    coalesce(p ->> 'order', case when p ->> 'sort' is null then v_record.default_order end));
  v_limit := format('%s order by %s limit %s offset %s', v_where, v_sort, v_size, (v_page - 1) * v_size);
  execute format(
    'select json_build_object(
       ''data'', coalesce((select json_agg(record) from (select %1$s from %2$s where %3$s) record), ''[]''),
       ''pagination'', json_build_object(''page'', %4$s, ''pageSize'', %5$s, ''totalItems'', total.items, ''totalPages'', ceil(total.items / %5$s.0)::integer))
     from (select %6$s) total',
    v_record.columns, v_record.source,
    case when v_record.one_row_per_key and p_source is null
      then format('%1$s = any (array(select %1$s from %2$s where %3$s)) order by %4$s', v_record.key, v_record.source, v_limit, v_sort) else v_limit end,
    v_page, v_size, case when p_with_total then format('count(*) as items from %s where %s', v_record.source, v_where) else '0 as items' end
  ) into v_answer;
  return v_answer;
end $$;
comment on function core.record_page is 'One page of a record as {data, pagination}.';

-- A page of the export of a record, {rows: [[cell, ...], ...], next, date}: the rows that the filters of the request let through, in the order of
-- p_keys, `limit` of them after the keys that `after` has (the `next` of the page before). Keys are columns that are never null and never
-- change, the last of them unique, with an index in their order; so no row comes twice or is left out, whatever is added meanwhile.
create function core.record_export_page(p_record text, p jsonb, p_cells text, p_keys text) returns json language plpgsql stable as $$
declare
  v_record core.record;
  v_answer json;
begin
  select * into strict v_record from core.record where name = p_record;
  execute format(
    'select json_build_object(''rows'', coalesce(json_agg(cells), ''[]''), ''next'', (array_agg(keys))[%1$s], ''date'', core.today())
     from (select json_build_array(%2$s) as cells, json_build_array(%3$s) as keys from %4$s where %5$s order by %3$s limit %1$s) page',
    (p ->> 'limit')::integer, p_cells, p_keys, v_record.source, core.record_where(v_record, p)
      || coalesce((select format(' and (%s) > (%s)', p_keys, string_agg(quote_literal(key), ', ' order by place)) from jsonb_array_elements_text(p -> 'after') with ordinality k (key, place)
                   having count(*) > 0), '')
  ) into v_answer;
  return v_answer;
end $$;
comment on function core.record_export_page is 'A page of the export of a record as {rows, next, date}.';

-- The order of a page: the expressions of the sort, then the key, so that pages never overlap. A request may turn the
-- direction round; what can be null stays last.
create function core.record_order_by(p_record core.record, p_sort text, p_order text) returns text language sql stable
  return (
    select string_agg(case when p_order = 'desc' then regexp_replace(expression, '( nulls last)?$', ' desc\1') else expression end, ', ' order by position)
    from jsonb_array_elements_text((p_record.sorts -> p_sort) || jsonb_build_array(p_record.key)) with ordinality e (expression, position)
  );
comment on function core.record_order_by is 'The order by of a page.';

-- Locks a record until the end of the transaction, so that what is read next is what is changed after; not_found without it.
create function core.record_lock(p_record text, p_id bigint) returns void language plpgsql as $$
declare
  v_record core.record;
  v_found boolean;
begin
  select * into strict v_record from core.record where name = p_record;
  execute format('select true from %I %I where %s = $1 and (%s) for no key update', v_record.table_name, split_part(v_record.key, '.', 1), v_record.key, v_record.condition)
    into v_found using p_id;
  if v_found is null then
    perform core.fail('not_found', format('There is no %s %s.', replace(p_record, '_', ' '), p_id));
  end if;
end $$;
comment on function core.record_lock is 'Locks a record for this transaction, or raises not_found.';

-- Inserts what the request gives of the record's writable columns; answers the new id.
create function core.record_insert(p_record text, p jsonb) returns bigint language plpgsql as $$
declare
  v_record core.record;
  v_columns text;
  v_id bigint;
begin
  select * into strict v_record from core.record where name = p_record;
  select string_agg(quote_ident(c), ', ') into strict v_columns from unnest(v_record.writable) c where p ? c;
  execute format('insert into %1$I (%2$s) select %2$s from jsonb_populate_record(null::%1$I, $1) returning id', v_record.table_name, v_columns)
    into v_id using p;
  return v_id;
end $$;
comment on function core.record_insert is 'Inserts the writable columns of a record that the request gives; answers the new id.';

-- A record that was read may be sent back as it came. What only the service sets (p.read_only) must then be what it is, but
-- for what changes by itself.
create function core.refuse_read_only(p_given jsonb, p_current jsonb, p_unversioned_fields text[]) returns void language plpgsql stable as $$
declare
  v_field text := (select key from jsonb_each(p_given - p_unversioned_fields) given where given.value is distinct from p_current -> given.key limit 1);
begin
  if v_field is not null then
    perform core.refuse_field('validation_error', v_field, 'This field can''t be set here. If it changed since you read the record, read it again.');
  end if;
end $$;
comment on function core.refuse_read_only is 'Refuses a change of fields that only the service sets.';

-- Changes what the request gives of the record's writable columns; answers the id; not_found when there is no such record.
create function core.record_update(p_record text, p jsonb) returns bigint language plpgsql as $$
declare
  v_record core.record;
  v_alias text;
  v_set text;
  v_id bigint;
begin
  select * into strict v_record from core.record where name = p_record;
  v_alias := split_part(v_record.key, '.', 1);
  if p ? 'read_only' then
    execute format('select core.refuse_read_only($1, api.%I($2)::jsonb, $3)', v_record.reader) using p -> 'read_only', (p ->> 'id')::bigint, v_record.unversioned_fields;
  end if;
  select format('(%s) = (select %s from jsonb_populate_record(%I, $1) n)', string_agg(quote_ident(c), ', '), string_agg('n.' || quote_ident(c), ', '), v_alias)
    into v_set from unnest(v_record.writable) c where p ? c having count(*) > 0;
  execute format('update %I %I set %s where %s = $2 and (%s) returning %s',
      v_record.table_name, v_alias, coalesce(v_set, 'updated_at = now()'), v_record.key, v_record.condition, v_record.key)
    into v_id using p, (p ->> 'id')::bigint;
  if v_id is null then
    perform core.fail('not_found', format('There is no %s %s.', replace(p_record, '_', ' '), p ->> 'id'));
  end if;
  return v_id;
end $$;
comment on function core.record_update is 'Changes the writable columns of a record that the request gives; answers the id or raises not_found.';
