-- Checks of parameters that depend on the school: its day, its time zone, its currency. The facade declares them beside
-- its schemas and names the values in p_context.checks: [{path, check, ...}], where path is the place of the value in
-- the parameters (src/http/checks.ts).
--   day     {range?: {before, after}}: a date or a timestamp. The range is around today, as ISO 8601 durations.
--   moment  {range: {before, after}}: a timestamp. The range is around now.
--   amount  {}: an amount of money. It has at most the decimals of the currency: of the school, or of prices.
--   order   {pairs: [{first, last, is_strict?, max_days?}]}: days of the object at the path.

create function core.with_school_days(p jsonb, p_checks jsonb) returns jsonb language plpgsql stable as $$
declare
  v_path text[];
  v_value text;
begin
  for v_path in
    select array(select jsonb_array_elements_text(c -> 'path'))
    from jsonb_array_elements(p_checks) c
    where c ->> 'check' = 'day'
  loop
    v_value := p #>> v_path;
    if length(v_value) > length('2026-09-01') then
      p := jsonb_set(p, v_path, to_jsonb(core.day_at_school(v_value::timestamptz)), false);
    end if;
  end loop;
  return p;
end $$;
comment on function core.with_school_days is
  'The parameters with each timestamp in the place of a day replaced by its day in the time zone of the school.';

create type core.value_fault as (path text[], value jsonb, is_moment boolean, message text);
comment on type core.value_fault is 'A value of a request that a check refuses.';

create function core.order_fault(p_first date, p_last date, p_pair jsonb) returns text language sql immutable
  return case
    when p_last = p_first and (p_pair ->> 'is_strict')::boolean then format('must be after %s', p_pair ->> 'first')
    when p_last < p_first then format(
      case when (p_pair ->> 'is_strict')::boolean then 'must be after %s' else 'must not be before %s' end,
      p_pair ->> 'first')
    when p_last - p_first >= (p_pair ->> 'max_days')::integer then
      format('must be less than %s days after %s', p_pair ->> 'max_days', p_pair ->> 'first')
  end;
comment on function core.order_fault is 'What is wrong with two days in this order; null if nothing is.';

create function core.range_fault(p_from date, p_to date) returns text language sql immutable
  return format('must be between %s and %s', p_from, p_to);
comment on function core.range_fault is 'The message for a day outside its range.';

create function core.value_faults(p jsonb, p_checks jsonb) returns setof core.value_fault language plpgsql stable as $$
declare
  v_today date := core.today();
  v_check jsonb;
  v_pair jsonb;
  v_path text[];
  v_value jsonb;
  v_from date;
  v_to date;
  v_currency text;
  v_decimals integer;
  v_message text;
  v_refused text[] := '{}'; -- the paths of the faults so far, because only the first of a field is reported
begin
  for v_check in select c from jsonb_array_elements(p_checks) c loop
    v_path := array(select jsonb_array_elements_text(v_check -> 'path'));
    v_value := p #> v_path;
    continue when coalesce(v_value, 'null') = 'null';
    if v_check ->> 'check' = 'order' then
      for v_pair in select pair from jsonb_array_elements(v_check -> 'pairs') pair loop
        v_message := core.order_fault(
          (v_value ->> (v_pair ->> 'first'))::date, (v_value ->> (v_pair ->> 'last'))::date, v_pair);
        if v_message is not null and not array_to_string(v_path || (v_pair ->> 'last'), '.') = any (v_refused) then
          return next row(
            v_path || (v_pair ->> 'last'), v_value -> (v_pair ->> 'last'), false, v_message)::core.value_fault;
        end if;
      end loop;
    elsif v_check ->> 'check' = 'amount' then
      -- Whole amounts fit every currency.
      if min_scale((v_value #>> '{}')::numeric) > 0 then
        if v_currency is null then
          v_currency := core.own_currency();
          v_decimals := core.currency_decimals(v_currency);
        end if;
        v_message := core.decimals_fault((v_value #>> '{}')::numeric, v_currency, v_decimals);
        if v_message is not null then
          return next row(v_path, v_value, false, v_message)::core.value_fault;
        end if;
      end if;
    elsif v_check ? 'range' then
      v_from := v_today - (v_check #>> '{range,before}')::interval;
      v_to := v_today + (v_check #>> '{range,after}')::interval;
      if (v_check ->> 'check' = 'day' and (v_value #>> '{}')::date not between v_from and v_to)
          or (v_check ->> 'check' = 'moment'
            and core.day_at_school((v_value #>> '{}')::timestamptz) not between v_from and v_to) then
        v_refused := v_refused || array_to_string(v_path, '.');
        return next row(
          v_path, v_value, v_check ->> 'check' = 'moment', core.range_fault(v_from, v_to))::core.value_fault;
      end if;
    end if;
  end loop;
end $$;
comment on function core.value_faults is 'The values of a request that its checks refuse, in the order of the checks.';

create function core.is_stored(p_fault core.value_fault, p_record jsonb) returns boolean language sql stable
  return exists (
    select
    from jsonb_path_query(p_record, (
        select ('$' || string_agg(case when name ~ '^\d+$' then '[*]' else '.' || to_json(name) end, '' order by n))
        from unnest(p_fault.path) with ordinality part (name, n)
      )::jsonpath) stored
    where case
        when p_fault.is_moment then core.as_timestamp(stored #>> '{}') = core.as_timestamp(p_fault.value #>> '{}')
        else stored = p_fault.value
      end
  );
comment on function core.is_stored is
  'Whether a record has the refused value already: in the same field, of an entry of a list in the field of any entry.';

-- Only a record that is written has a stored value. p_id is null for other requests.
create function core.check_values(p_search_path text, p_record text, p_id bigint, p jsonb, p_checks jsonb) returns void
  language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_faults core.value_fault[];
  v_reader text;
  v_stored jsonb;
begin
  if p_checks @> '[{"check": "amount"}]' then
    -- The currency is in a table of the school.
    perform set_config('search_path', p_search_path, true);
  end if;
  v_faults := array(select f from core.value_faults(p, p_checks) f);
  if cardinality(v_faults) = 0 then
    return;
  end if;
  if p_id is not null then
    perform set_config('search_path', p_search_path, true);
    select reader into v_reader from core.record where name = p_record;
    execute format('select api.%I($1)::jsonb', v_reader) into v_stored using p_id;
    v_faults := array(select f from unnest(v_faults) f where not core.is_stored(f, v_stored));
  end if;
  perform core.fail(
      'validation_error',
      concat(array_to_string(v_faults[1].path, '.'), ': ', v_faults[1].message,
        case when cardinality(v_faults) > 1 then format(' (and %s more)', cardinality(v_faults) - 1) end),
      json_agg(json_build_object('path', array_to_string(f.path, '.'), 'message', f.message)))
    from unnest(v_faults[:20]) f
    having count(*) > 0;
end $$;
comment on function core.check_values is
  'Raises validation_error with the faults of core.value_faults. A value that the record has already is exempt, so '
  'that a client can write back what it read.';
