-- /api/holidays: days without school. Everybody of the school may read them.

select core.define_operation('holidays_list');
select core.define_operation('holidays_create', p_permission => 'holiday.manage', p_idempotent => true,
  p_record => 'holiday', p_errors => '{conflict}');
select core.define_operation('holidays_get', p_record => 'holiday');
select core.define_operation('holidays_update', p_permission => 'holiday.manage', p_record => 'holiday',
  p_errors => '{conflict}');
select core.define_operation('holidays_delete', p_permission => 'holiday.manage', p_record => 'holiday');

-- The filters are conditions of the days that holidays_list makes its source of.
select core.define_record('holiday', p_table => 'holiday', p_key => 'h.id', p_one_row_per_key => true,
  p_source => 'holiday h',
  p_columns => 'h.id, h.name, h.date, h.is_recurring, h.created_at, h.updated_at',
  p_search => 'platform.search_normal(h.name)',
  p_default_sort => 'date',
  p_writable => '{name,date,is_recurring}');
select core.define_filter('holiday', 'academic_year_id', $$
  exists (select from academic_year y where y.id = :value::bigint and h.date between y.start_date and y.end_date)
$$);
select core.define_filter('holiday', 'from_date', 'h.date >= :value::date');
select core.define_filter('holiday', 'to_date', 'h.date <= :value::date');
select core.define_sort('holiday', 'date', 'h.date');
select core.define_sort('holiday', 'name', 'platform.search_normal(h.name)', 'h.date');

-- The holidays of some days, each on every day that it falls on: a recurring one comes every year, one of 29 February on the 28th
-- where there is no 29th.
create function api.holidays_between(p_from date, p_to date) returns table (id bigint, name text, date date) language sql stable as $$
  select h.id, h.name, d.date
  from holiday h
  cross join lateral (
    select h.date where not h.is_recurring
    union all
    select (h.date + make_interval(years => year - extract(year from h.date)::integer))::date
      from generate_series(extract(year from p_from)::integer, extract(year from p_to)::integer) year where h.is_recurring
  ) d (date)
  where d.date between p_from and p_to;
$$;
comment on function api.holidays_between is 'The holidays from one day to another, recurring ones on each of their days.';

-- The days without school from one to another: each with its holiday {id, name}, of several the names together under the id of the first.
create function api.holiday_days(p_from date, p_to date) returns table (date date, holiday json) language sql stable as $$
  select h.date, json_build_object('id', min(h.id), 'name', string_agg(h.name, ', ' order by h.id)) from api.holidays_between(p_from, p_to) h group by h.date;
$$;
comment on function api.holiday_days is 'The days without school from one to another, each with its holiday {id, name}.';

-- The days that a request means by from_date and to_date: both as they are, of one alone a year from it or up to it, of neither the
-- days from p_from to p_to.
create function api.days_asked(p jsonb, p_from date default null, p_to date default null, out first_day date, out last_day date) language sql stable as $$
  select case when given.first is null and given.last is null then p_from else greatest(coalesce(given.first, given.last - a_year.days), '1000-01-01') end,
    case when given.first is null and given.last is null then p_to else least(coalesce(given.last, given.first + a_year.days), '9999-12-31') end
  from (select (p ->> 'from_date')::date as first, (p ->> 'to_date')::date as last) given, (values (365)) a_year (days); -- 366 with the day itself
$$;
comment on function api.days_asked is 'The first and the last day that a request means by from_date and to_date.';

-- Holidays by date; search over the name. With from_date, to_date or academic_year_id those days, a recurring one on each of its days; of
-- one of the two dates alone a year; without any, each holiday once with the date that it was given.
create function api.holidays_list(p jsonb) returns json language plpgsql stable as $$
declare
  v_first date;
  v_last date;
begin
  if p ?| '{from_date,to_date}' then
    select d.first_day, d.last_day into v_first, v_last from api.days_asked(p) d;
  elsif p ? 'academic_year_id' then
    -- Years that were there before their length had a limit may have any.
    select start_date, least(end_date, start_date + 3659) into v_first, v_last from academic_year where id = (p ->> 'academic_year_id')::bigint;
  end if;
  return core.record_page('holiday', p, p_source => case when p ?| '{academic_year_id,from_date,to_date}' then format(
    '(select d.date, h.id, h.name, h.is_recurring, h.created_at, h.updated_at from api.holidays_between(%L, %L) d join holiday h on h.id = d.id) h', v_first, v_last) end);
end $$;

-- Refuses a holiday of a name that its day has already, a recurring one's in its years too. Of two at once the index
-- holiday_name_key refuses the second.
create function api.require_no_other_holiday(p jsonb) returns void language plpgsql stable as $$
declare
  v_before record;
  v_name text;
  v_date date;
begin
  select name, date into v_before from holiday where id = (p ->> 'id')::bigint;
  v_name := coalesce(p ->> 'name', v_before.name);
  v_date := coalesce((p ->> 'date')::date, v_before.date);
  if (v_name, v_date) is distinct from (v_before.name, v_before.date) and exists (
    select from api.holidays_between(v_date, v_date) h where h.id is distinct from (p ->> 'id')::bigint and lower(h.name) = lower(v_name)) then
    perform core.refuse_field('conflict', case when p ? 'name' or not p ? 'date' then 'name' else 'date' end, format('%s has a holiday of this name already.', v_date));
  end if;
end $$;
comment on function api.require_no_other_holiday is 'Refuses a holiday of a name that its day has already.';

-- A new holiday; conflict when the day has one of this name. Marks that the day has stay. Tells everybody, where it is still to come.
create function api.holidays_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
  v_date date;
  v_scope text;
begin
  perform api.require_no_other_holiday(p);
  v_id := core.record_insert('holiday', p);
  select case when h.is_recurring then (select min(n.date) from api.holidays_between(core.today() + 1, core.today() + 366) n where n.id = h.id) else h.date end
    into v_date from holiday h where h.id = v_id;
  if v_date > core.today() then
    v_scope := core.widen_scope();
    perform core.notify('holiday.added', (
      select jsonb_agg(jsonb_build_object('user_id', u.id, 'variables', jsonb_build_object('holiday_name', p ->> 'name', 'date', api.written_day(v_date))))
      from user_account u where u.is_active and u.deleted_at is null));
    perform core.restore_scope(v_scope);
  end if;
  return api.holiday_record(v_id);
end $$;

-- Any of name, date and is_recurring; conflict when the day has another holiday of this name.
create function api.holidays_update(p jsonb) returns json language plpgsql as $$
begin
  perform api.require_no_other_holiday(p);
  perform core.record_update('holiday', p);
  return api.holiday_record((p ->> 'id')::bigint);
end $$;

select core.define_functions('holidays', 'holiday',
  p_get => 'One holiday, with the date that it was given, or not_found.',
  p_delete => 'Removes a holiday, a recurring one from every year.');
