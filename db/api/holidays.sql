-- /api/holidays: days without school. Every user of the school may read them.

select core.define_operation('holidays_list', p_needs_session => false);
select core.define_operation('holidays_create', p_permission => 'holiday.manage', p_idempotent => true,
  p_record => 'holiday', p_errors => '{conflict}');
select core.define_operation('holidays_get', p_needs_session => false, p_record => 'holiday');
select core.define_operation('holidays_update', p_permission => 'holiday.manage', p_record => 'holiday',
  p_errors => '{conflict}');
select core.define_operation('holidays_delete', p_permission => 'holiday.manage', p_record => 'holiday');

-- The filters apply to the days on which a holiday falls, which holidays_list uses as the source.
select core.define_record('holiday', p_table => 'holiday', p_key => 'h.id', p_one_row_per_key => true,
  p_source => '(select *, date as occurs_on from holiday) h',
  p_columns => 'h.id, h.name, h.date, h.is_recurring, h.occurs_on, h.created_at, h.updated_at',
  p_derived_fields => '{occurs_on}',
  p_search => 'public.search_form(h.name)',
  p_default_sort => 'occurs_on',
  p_writable => '{name,date,is_recurring}');
select core.define_filter('holiday', 'academic_year_id', $$
  exists (select from academic_year y where y.id = :value::bigint and h.occurs_on between y.start_date and y.end_date)
$$);
select core.define_filter('holiday', 'from_date', 'h.occurs_on >= :value::date');
select core.define_filter('holiday', 'to_date', 'h.occurs_on <= :value::date');
select core.define_sort('holiday', 'occurs_on', 'h.occurs_on');
select core.define_sort('holiday', 'date', 'h.date', 'h.occurs_on');
select core.define_sort('holiday', 'name', 'platform.search_normal(h.name)', 'h.occurs_on');

create function api.holidays_between(p_from date, p_to date) returns table (id bigint, name text, date date)
  language sql stable as $$
  select h.id, h.name, d.date
  from holiday h
  cross join lateral (
    select h.date where not h.is_recurring
    union all
    -- Adding years to 29 February gives 28 February in other years.
    select (h.date + make_interval(years => year - extract(year from h.date)::integer))::date
    from generate_series(
      extract(year from greatest(p_from, h.date))::integer, extract(year from p_to)::integer) year
    where h.is_recurring
  ) d (date)
  where d.date between p_from and p_to;
$$;
comment on function api.holidays_between is
  'The holidays in a range of days. A recurring holiday has a row for each year, from the year of its date on; '
  '29 February falls on the 28th if the year has no 29th.';

create function api.holiday_days(p_from date, p_to date) returns table (date date, holiday json)
  language sql stable as $$
  select h.date, json_build_object('id', min(h.id), 'name', string_agg(h.name, ', ' order by h.id))
  from api.holidays_between(p_from, p_to) h
  group by h.date;
$$;
comment on function api.holiday_days is
  'The days without school in a range of days, each with its holiday {id, name}. Several holidays on one day have '
  'their names joined, with the id of the first.';

create function api.requested_days(
  p jsonb, p_from date default null, p_to date default null, out first_day date, out last_day date
) language sql stable as $$
  -- 365 days before or after make a range of 366 days, so that a leap year fits. The limits are the dates that the API
  -- accepts.
  select
    case
      when requested.first is null and requested.last is null then p_from
      else greatest(coalesce(requested.first, requested.last - 365), '1000-01-01')
    end,
    case
      when requested.first is null and requested.last is null then p_to
      else least(coalesce(requested.last, requested.first + 365), '9999-12-31')
    end
  from (select (p ->> 'from_date')::date as first, (p ->> 'to_date')::date as last) requested;
$$;
comment on function api.requested_days is
  'The range of days of a request {from_date, to_date}. One date alone means a year from it or up to it, neither means '
  'p_from to p_to.';

create function api.holidays_list(p jsonb) returns json language plpgsql stable as $$
declare
  v_first date;
  v_last date;
begin
  if p ?| '{from_date,to_date}' then
    select d.first_day, d.last_day into v_first, v_last from api.requested_days(p) d;
  elsif p ? 'academic_year_id' then
    select start_date, end_date
      into v_first, v_last
      from academic_year
      where id = (p ->> 'academic_year_id')::bigint;
  end if;
  return core.record_page('holiday', p || jsonb_build_object('first_day', v_first, 'last_day', v_last), p_source =>
    case when p ?| '{academic_year_id,from_date,to_date}' then $source$
      (
        select d.date as occurs_on, h.id, h.name, h.date, h.is_recurring, h.created_at, h.updated_at
        from api.holidays_between(
          (select (core.parameters() ->> 'first_day')::date), (select (core.parameters() ->> 'last_day')::date)) d
        join holiday h on h.id = d.id
      ) h
    $source$ end);
end $$;
comment on function api.holidays_list is
  'Holidays by date. Searches the name. With from_date, to_date or academic_year_id, the holidays of those days, a '
  'recurring one once for each year, with the day as occurs_on; one of the two dates alone means a year. Without any '
  'of them, each holiday once, and occurs_on is its date.';

create function api.require_no_other_holiday(p jsonb) returns void language plpgsql stable as $$
declare
  v_before record;
  v_name text;
  v_date date;
begin
  select name, date into v_before from holiday where id = (p ->> 'id')::bigint;
  v_name := coalesce(p ->> 'name', v_before.name);
  v_date := coalesce((p ->> 'date')::date, v_before.date);
  -- Two concurrent requests can both pass this check. The index holiday_name_key refuses the second one.
  if (v_name, v_date) is distinct from (v_before.name, v_before.date) and exists (
    select from api.holidays_between(v_date, v_date) h
    where h.id is distinct from (p ->> 'id')::bigint and core.name_key(h.name) = core.name_key(v_name)) then
    perform core.refuse_field('conflict',
      case when p ? 'name' or not p ? 'date' then 'name' else 'date' end,
      format('%s already has a holiday with this name. Choose another name or date.', v_date));
  end if;
end $$;
comment on function api.require_no_other_holiday is
  'Raises conflict if the new name and date {id, name, date} of a holiday are those of another holiday, in any year of '
  'a recurring one from its first on.';

create function api.holidays_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  perform api.require_no_other_holiday(p);
  v_id := core.record_insert('holiday', p);
  perform core.notify('holiday.added', jsonb_build_object('holiday_id', v_id));
  return api.holiday_record(v_id);
end $$;
comment on function api.holidays_create is
  'Creates a holiday: {name, date, is_recurring}. Existing attendance marks of the day stay. Notifies all users if the '
  'holiday, or the next date of a recurring one, is in the future. Raises conflict if the day has a holiday with this '
  'name.';

create function api.holiday_recipients(p jsonb) returns jsonb language sql stable as $$
  select jsonb_agg(jsonb_build_object('user_id', u.id, 'variables', jsonb_build_object(
    'holiday_name', h.name, 'date', core.written_day(next.date))) order by u.id)
  from holiday h
  cross join lateral (
    select case
      when h.is_recurring and h.date <= core.today() then (
        select min(n.date) from api.holidays_between(core.today() + 1, core.today() + 366) n where n.id = h.id)
      else h.date
    end as date
  ) next
  cross join user_account u
  where h.id = (p ->> 'holiday_id')::bigint and next.date > core.today() and u.is_active and u.deleted_at is null
    and not exists (
      select from guardian g
      join guardian_muted_event m on m.guardian_id = g.id and m.event = 'holiday.added'
      where g.user_id = u.id)
$$;
comment on function api.holiday_recipients is
  'The recipients of holiday.added, {holiday_id}: all active users, except guardians who have turned it off. None if '
  'the holiday has been deleted, or if its date, for a recurring holiday the next one, is not in the future.';

create function api.holidays_update(p jsonb) returns json language plpgsql as $$
begin
  perform api.require_no_other_holiday(p);
  perform core.record_update('holiday', p);
  return api.holiday_record((p ->> 'id')::bigint);
end $$;
comment on function api.holidays_update is
  'Updates a holiday: {id, name, date, is_recurring}. Raises conflict if the day has another holiday with this name.';

select core.define_functions('holidays', 'holiday',
  p_get => 'One holiday with its original date. Raises not_found.',
  p_delete => 'Deletes a holiday, a recurring one in every year.');
