-- /api/transport/bus-assignments and /api/transport/schedules: the bus, driver and attendant of each route and day. An
-- exception overrides the assignment of the day, which overrides the default bus and driver of the route.

select core.define_operation('transport_schedules_list', p_permission => 'transport.read', p_allows_own_rows => true,
  p_feature => 'transport');
select core.define_operation('transport_exceptions_list', p_permission => 'transport.read', p_feature => 'transport');
select core.define_operation('transport_exceptions_get', p_permission => 'transport.read', p_feature => 'transport',
  p_record => 'route_exception');
select core.define_operation('transport_exceptions_create', p_permission => 'transport.manage',
  p_feature => 'transport', p_idempotent => true, p_record => 'route_exception',
  p_errors => '{conflict,schedule_conflict,invalid_reference}');
select core.define_operation('transport_exceptions_delete', p_permission => 'transport.manage',
  p_feature => 'transport', p_record => 'route_exception', p_errors => '{conflict,schedule_conflict}');
select core.define_operation('transport_conflict_check', p_permission => 'transport.read', p_feature => 'transport',
  p_errors => '{not_found}');
select core.define_operation('transport_assignments_list', p_permission => 'transport.read',
  p_feature => 'transport');
select core.define_operation('transport_assignments_create', p_permission => 'transport.manage',
  p_feature => 'transport', p_idempotent => true, p_record => 'bus_assignment',
  p_errors => '{conflict,schedule_conflict,invalid_reference}');
select core.define_operation('transport_assignments_get', p_permission => 'transport.read', p_feature => 'transport',
  p_record => 'bus_assignment');
select core.define_operation('transport_assignments_update', p_permission => 'transport.manage',
  p_feature => 'transport', p_record => 'bus_assignment',
  p_errors => '{conflict,schedule_conflict,invalid_reference}');
select core.define_operation('transport_assignments_delete', p_permission => 'transport.manage',
  p_feature => 'transport', p_record => 'bus_assignment', p_errors => '{conflict,invalid_state}');

create function api.transport_plan(p_first date, p_last date, p_with_left_drivers boolean default false)
  returns table (
    date date, route_id bigint, status text, reason text, exception_id bigint, assignment_id bigint,
    bus_id bigint, registration_number text, capacity integer,
    driver_id bigint, driver_name text, driver_phone text, staff_id bigint, staff_name text
  )
  -- The planner cannot see from a generic plan how many days the range has. With merge joins on buses alone, a year of
  -- 400 routes read 26 million rows.
  language plpgsql stable rows 100 set plan_cache_mode = force_generic_plan set enable_mergejoin = off as $$
declare
  -- Students may see who serves their route, but no buses, drivers or assignments otherwise.
  v_scope text := core.widen_scope();
begin
  return query
    with day as materialized (
      select d::date as date from generate_series(p_first::timestamp, p_last::timestamp, interval '1 day') d
    ),
    exception_day as materialized (
      select x.* from route_exception x where x.date between p_first and p_last
    ),
    assigned as materialized (
      select day.date, a.id, a.route_id, a.bus_id, a.driver_id, a.staff_id
      from bus_assignment a
      join day on day.date between a.starts_on and coalesce(a.ends_on, 'infinity')
      where daterange(a.starts_on, a.ends_on, '[]') && daterange(p_first, p_last, '[]')
    ),
    booked as materialized (
      select a.date, a.route_id, a.bus_id, a.driver_id from assigned a
      union all
      select x.date, x.route_id, x.bus_id, x.driver_id from exception_day x where x.kind = 'replaced'
    ),
    -- The smallest and largest route id show whether any route other than a given one uses the bus.
    booked_bus as materialized (
      select k.date, k.bus_id, min(k.route_id) as min_route_id, max(k.route_id) as max_route_id
      from booked k where k.bus_id is not null group by 1, 2
    ),
    booked_driver as materialized (
      select k.date, k.driver_id, min(k.route_id) as min_route_id, max(k.route_id) as max_route_id
      from booked k where k.driver_id is not null group by 1, 2
    )
    select day.date, r.id, coalesce(x.kind, 'planned'), x.reason, x.id, a.id,
      b.id, b.registration_number, b.capacity, d.id, d.name, d.phone, st.id, st.name
    from day
    cross join route r
    left join assigned a on a.date = day.date and a.route_id = r.id
    left join exception_day x on x.date = day.date and x.route_id = r.id
    left join booked_bus bb on bb.date = day.date and bb.bus_id = r.bus_id
    left join booked_driver bd on bd.date = day.date and bd.driver_id = r.driver_id
    left join bus b on b.id = case
      when x.bus_id is not null then x.bus_id
      when a.id is not null then a.bus_id
      when coalesce(bb.min_route_id = r.id and bb.max_route_id = r.id, true) then r.bus_id
    end
    left join driver d on d.id = case
      when x.driver_id is not null then x.driver_id
      when a.id is not null then a.driver_id
      when coalesce(bd.min_route_id = r.id and bd.max_route_id = r.id, true) then r.driver_id
    end and (p_with_left_drivers or not core.has_left(d.left_on, day.date))
    left join transport_staff st on st.id = a.staff_id
    where r.deleted_at is null and r.is_active;
  perform core.restore_scope(v_scope);
end $$;
comment on function api.transport_plan is
  'The bus, driver and attendant of every active route on every day of a range, days without school included. '
  'An exception comes first, then the assignment, then the defaults of the route unless they are booked elsewhere. '
  'Without a driver from the day on which the driver leaves, unless p_with_left_drivers.';

-- transport_schedules_list replaces this source by one for the requested range of school days.
select core.define_record('transport_schedule', p_table => 'route', p_key => 'r.id', p_key_parts => '{r.id,t.date}',
  p_source => 'api.transport_plan(core.today(), core.today()) t join route r on r.id = t.route_id',
  p_columns => $$
    t.date, extract(isodow from t.date)::integer as day_of_week, r.id as route_id, r.name as route_name,
    r.code as route_code, t.status, t.reason, t.exception_id, t.assignment_id,
    t.bus_id, t.registration_number as bus_registration_number, t.driver_id, t.driver_name, t.driver_phone, t.staff_id,
    t.staff_name,
    (select coalesce(json_agg(json_build_object('id', st.id, 'name', st.name, 'sequence', st.sequence,
         'pickup_time', to_char(st.pickup_time, 'HH24:MI'), 'drop_time', to_char(st.drop_time, 'HH24:MI'))
           order by st.sequence), '[]')
       from stop st where st.route_id = r.id and st.deleted_at is null) as stops
  $$,
  p_condition => $$
    not core.has_own_scope()
      or r.id in (select e.route_id from transport_enrollment e
        where e.student_id = any ((select visible_student_ids())::bigint[])
      and core.rides(e.cancelled_at, now()))
  $$,
  p_search => $$public.search_form(concat_ws(' ', r.name, r.code))$$,
  p_equals => '{t.date,t.bus_id,t.driver_id}',
  p_default_sort => 'date');
select core.define_filter('transport_schedule', 'from_date', 't.date >= :value::date');
select core.define_filter('transport_schedule', 'to_date', 't.date <= :value::date');
select core.define_filter('transport_schedule', 'route_id', 'r.id = :value::bigint');
select core.define_sort('transport_schedule', 'date', 't.date', 'platform.search_normal(r.name)');
select core.define_sort('transport_schedule', 'route_name', 'platform.search_normal(r.name)');

select core.define_record('bus_assignment', p_table => 'bus_assignment', p_key => 'a.id',
  p_source => $$
    bus_assignment a join bus b on b.id = a.bus_id join route r on r.id = a.route_id
      join driver d on d.id = a.driver_id left join transport_staff st on st.id = a.staff_id
  $$,
  p_columns => $$
    a.id, a.bus_id, b.registration_number as bus_registration_number, a.route_id, r.name as route_name, a.driver_id,
    d.name as driver_name,
    a.staff_id, st.name as staff_name, a.starts_on, a.ends_on,
    core.today() between a.starts_on and coalesce(a.ends_on, 'infinity') as is_current, a.created_at, a.updated_at
  $$,
  p_search => $$public.search_form(concat_ws(' ', b.registration_number, r.name, d.name, st.name))$$,
  p_equals => '{bus_id,route_id,driver_id,staff_id}',
  p_default_sort => 'starts_on', p_default_order => 'desc',
  p_writable => '{bus_id,route_id,driver_id,staff_id,starts_on,ends_on}',
  p_unversioned_fields => '{is_current}');
select core.define_filter('bus_assignment', 'date', $$
  :value::date between a.starts_on and coalesce(a.ends_on, 'infinity')
$$);
select core.define_sort('bus_assignment', 'starts_on', 'a.starts_on');
select core.define_sort('bus_assignment', 'ends_on', 'a.ends_on nulls last');
select core.define_sort('bus_assignment', 'route_name', 'platform.search_normal(r.name)');

select core.define_record('route_exception', p_table => 'route_exception', p_key => 'x.id',
  p_source => $$
    route_exception x join route r on r.id = x.route_id left join bus b on b.id = x.bus_id
      left join driver d on d.id = x.driver_id
  $$,
  p_columns => $$
    x.id, x.route_id, r.name as route_name, x.date, x.kind, x.bus_id, b.registration_number as bus_registration_number,
    x.driver_id, d.name as driver_name,
    x.reason, x.created_at, x.updated_at
  $$,
  p_search => $$public.search_form(concat_ws(' ', r.name, b.registration_number, d.name, x.reason))$$,
  p_equals => '{route_id,bus_id,driver_id,kind}',
  p_default_sort => 'date', p_default_order => 'desc',
  p_writable => '{route_id,date,kind,bus_id,driver_id,reason}');
select core.define_filter('route_exception', 'from_date', 'x.date >= :value::date');
select core.define_filter('route_exception', 'to_date', 'x.date <= :value::date');
select core.define_sort('route_exception', 'date', 'x.date');
select core.define_sort('route_exception', 'created_at', 'x.created_at');

select core.define_functions('transport_exceptions', 'route_exception',
  p_list =>
    'Exceptions, latest day first. Searches route, bus, driver and reason. Filters: route_id, bus_id, driver_id, '
    'kind, from_date, to_date.',
  p_get => 'One exception. Raises not_found.');
select core.define_functions('transport_assignments', 'bus_assignment',
  p_list =>
    'Assignments, latest first. Searches bus, route, driver and attendant. Filters: bus_id, route_id, driver_id, '
    'staff_id, date.',
  p_get => 'One assignment. Raises not_found.');

create function api.requested_week(p jsonb, out first_day date, out last_day date) language sql stable as $$
  select
    coalesce(requested.date, requested.from_date, requested.to_date - 6, core.today()),
    coalesce(requested.date, requested.to_date, requested.from_date + 6, core.today() + 6)
  from jsonb_to_record(p) requested (date date, from_date date, to_date date);
$$;
comment on function api.requested_week is
  'The days of a request: {date}, {from_date, to_date}, one week for one of the two, or the week from today.';

create function api.transport_schedules_list(p jsonb) returns json language plpgsql stable as $$
declare
  v_range record := api.requested_week(p);
begin
  return core.record_page('transport_schedule', p || to_jsonb(v_range), p_source => $source$
    api.days_between(
        (select (core.parameters() ->> 'first_day')::date), (select (core.parameters() ->> 'last_day')::date)) d
      join api.transport_plan(
        (select (core.parameters() ->> 'first_day')::date), (select (core.parameters() ->> 'last_day')::date)) t
        on t.date = d.date and d.is_school_day
      join route r on r.id = t.route_id
  $source$);
end $$;
comment on function api.transport_schedules_list is
  'The schedule of school days, for the days of api.requested_week. '
  'Filters: route_id, bus_id, driver_id.';

create function api.days_in_words(p_first date, p_last date) returns text language sql immutable
  return case
    when p_first = p_last then format('on %s', p_first)
    when p_last is null then format('from %s on', p_first)
    else format('from %s to %s', p_first, p_last)
  end;
comment on function api.days_in_words is
  'A range of days for a message: "on 2026-09-01", "from 2026-09-01 to 2026-09-30" or "from 2026-09-01 on".';

create function api.transport_conflicts(
  p_route_id bigint, p_bus_id bigint, p_driver_id bigint, p_staff_id bigint, p_first date, p_last date,
  p_is_replacement boolean, p_assignment_id bigint default null
) returns table (
  kind text, path text, message text, first_day date, last_day date,
  route_id bigint, bus_id bigint, driver_id bigint, staff_id bigint
) language plpgsql stable as $$
declare
  -- Without a bus, driver or attendant the function checks the existing plan instead of a proposal.
  v_checks_plan boolean := num_nonnulls(p_bus_id, p_driver_id, p_staff_id) = 0;
  v_days daterange := daterange(p_first, p_last, '[]');
begin
  return query
    with use as materialized (
      select p_route_id as route_id, p_bus_id as bus_id, p_driver_id as driver_id, p_staff_id as staff_id,
        p_first as first_day, p_last as last_day
      where not v_checks_plan
      union all
      select t.route_id, t.bus_id, t.driver_id, t.staff_id, min(t.date), max(t.date)
      from api.transport_plan(p_first, p_last, p_with_left_drivers => true) t
      where v_checks_plan and t.status <> 'cancelled' and (p_route_id is null or t.route_id = p_route_id)
      group by 1, 2, 3, 4
    ),
    -- An assignment overrides the defaults of routes, so that only assignments and replacements conflict with it. A
    -- replacement conflicts with every route that runs on that day.
    booking as materialized (
      select a.route_id, a.bus_id, a.driver_id, a.staff_id, a.starts_on as first_day, a.ends_on as last_day,
        true as is_assignment
      from bus_assignment a
      where not v_checks_plan and not p_is_replacement and a.id is distinct from p_assignment_id
        and daterange(a.starts_on, a.ends_on, '[]') && v_days
      union all
      select x.route_id, x.bus_id, x.driver_id, null, x.date, x.date, false
      from route_exception x
      where not v_checks_plan and not p_is_replacement and x.kind = 'replaced' and x.date <@ v_days
      union all
      select t.route_id, t.bus_id, t.driver_id, t.staff_id, t.date, t.date, false
      from api.transport_plan(p_first, p_last, p_with_left_drivers => true) t
      where not v_checks_plan and p_is_replacement and t.status <> 'cancelled'
    )
    select 'bus', 'bus_id',
      format('Bus %s already serves %s %s.', b.registration_number, r.name, api.days_in_words(k.first_day, k.last_day)),
      greatest(k.first_day, p_first), least(k.last_day, p_last), r.id, b.id, null::bigint, null::bigint
    from use u
    join booking k on k.bus_id = u.bus_id and k.route_id is distinct from u.route_id
    join bus b on b.id = k.bus_id
    join route r on r.id = k.route_id
    union all
    select 'driver', 'driver_id',
      format('%s already drives %s %s.', d.name, r.name, api.days_in_words(k.first_day, k.last_day)),
      greatest(k.first_day, p_first), least(k.last_day, p_last), r.id, null, d.id, null
    from use u
    join booking k on k.driver_id = u.driver_id and k.route_id is distinct from u.route_id
    join driver d on d.id = k.driver_id
    join route r on r.id = k.route_id
    union all
    select 'staff', 'staff_id',
      format('%s is already assigned to %s %s.', st.name, r.name, api.days_in_words(k.first_day, k.last_day)),
      greatest(k.first_day, p_first), least(k.last_day, p_last), r.id, null, null, st.id
    from use u
    join booking k on k.staff_id = u.staff_id and k.route_id is distinct from u.route_id
    join transport_staff st on st.id = k.staff_id
    join route r on r.id = k.route_id
    union all
    select 'route', 'route_id',
      format('%s is already assigned to bus %s with driver %s %s.', r.name, b.registration_number, d.name,
        api.days_in_words(k.first_day, k.last_day)),
      greatest(k.first_day, p_first), least(k.last_day, p_last), r.id, b.id, d.id, k.staff_id
    from use u
    join booking k on k.route_id = u.route_id and k.is_assignment
    join route r on r.id = k.route_id
    join bus b on b.id = k.bus_id
    join driver d on d.id = k.driver_id
    union all
    select 'inactive', i.path, coalesce(i.message, format('%s is inactive.', i.name)),
      u.first_day, u.last_day, u.route_id, i.bus_id, i.driver_id, i.staff_id
    from use u
    cross join lateral (
      select 'route_id', r.name, null::bigint, null::bigint, null::bigint, null::text
      from route r where r.id = u.route_id and not r.is_active
      union all
      select 'bus_id', 'Bus ' || b.registration_number, b.id, null, null, null
      from bus b where b.id = u.bus_id and not b.is_active
      union all
      select 'driver_id', d.name, null, d.id, null,
        case when d.left_on > core.today() then format('%s leaves on %s.', d.name, d.left_on) end
      from driver d
      where d.id = u.driver_id and core.has_left(d.left_on, coalesce(u.last_day, 'infinity'))
      union all
      select 'staff_id', st.name, null, null, st.id, null
      from transport_staff st where st.id = u.staff_id and not st.is_active
    ) i (path, name, bus_id, driver_id, staff_id, message)
    union all
    select document.kind, document.path,
      format('%s of %s is valid only until %s.', document.title, document.name, document.valid_until),
      greatest(u.first_day, document.valid_until + 1), u.last_day, u.route_id, document.bus_id, document.driver_id, null
    from use u
    cross join lateral (
      select 'insurance', 'bus_id', 'The insurance', b.registration_number, b.insurance_expires_on, b.id, null::bigint
      from bus b where b.id = u.bus_id
      union all
      select 'fitness', 'bus_id', 'The fitness certificate', b.registration_number, b.fitness_expires_on, b.id, null
      from bus b where b.id = u.bus_id
      union all
      select 'license', 'driver_id', 'The driving license', d.name, d.license_expires_on, null, d.id
      from driver d where d.id = u.driver_id
    ) document (kind, path, title, name, valid_until, bus_id, driver_id)
    -- The documents of an open-ended assignment are only checked on its first day.
    where document.valid_until < coalesce(u.last_day, u.first_day)
    union all
    select 'capacity', 'bus_id',
      format('Bus %s has %s %s, but %s students ride %s.', b.registration_number, b.capacity,
        case b.capacity when 1 then 'seat' else 'seats' end, riders.needed_seats, r.name),
      u.first_day, u.last_day, r.id, b.id, null, null
    from use u
    join bus b on b.id = u.bus_id
    join route r on r.id = u.route_id
    cross join lateral (
      select greatest(
          count(*) filter (where e.enrollment_type <> 'drop'),
          count(*) filter (where e.enrollment_type <> 'pickup')) as needed_seats
      from transport_enrollment e where e.route_id = r.id and core.rides(e.cancelled_at, now())
    ) riders
    where riders.needed_seats > b.capacity;
end $$;
comment on function api.transport_conflicts is
  'The conflicts of a bus, a driver and an attendant that are to serve a route in a range of days; without all three, '
  'the conflicts in the existing plan of the route or of all routes. Kinds: bus, driver, staff, route, inactive, '
  'insurance, fitness, license, capacity. p_assignment_id is the assignment that is being changed.';

create function api.transport_require_no_conflict(
  p_route_id bigint, p_bus_id bigint, p_driver_id bigint, p_staff_id bigint, p_first date, p_last date,
  p_is_replacement boolean, p_assignment_id bigint default null
) returns void language plpgsql stable as $$
declare
  v_details json;
  v_count integer;
begin
  select count(*),
      json_agg(json_build_object('path', c.path, 'message', c.message) order by c.n) filter (where c.n <= 20)
    into v_count, v_details
    from (
      select k.path, k.message, row_number() over () as n
      from api.transport_conflicts(
        p_route_id, p_bus_id, p_driver_id, p_staff_id, p_first, p_last, p_is_replacement, p_assignment_id) k
    ) c;
  if v_count > 0 then
    perform core.fail('schedule_conflict',
      (v_details -> 0 ->> 'message') || case when v_count > 1 then format(' (and %s more)', v_count - 1) else '' end,
      v_details);
  end if;
end $$;
comment on function api.transport_require_no_conflict is
  'Raises schedule_conflict with the first conflict as message and up to twenty conflicts as details.';

create function api.transport_conflict_check(p jsonb) returns json language plpgsql stable as $$
declare
  v_route_id bigint := (p ->> 'route_id')::bigint;
  v_bus_id bigint := (p ->> 'bus_id')::bigint;
  v_driver_id bigint := (p ->> 'driver_id')::bigint;
  v_range record := api.requested_week(p);
  v_answer json;
begin
  perform api.route_record(v_route_id) where v_route_id is not null;
  perform api.bus_record(v_bus_id) where v_bus_id is not null;
  perform api.driver_record(v_driver_id) where v_driver_id is not null;
  select json_build_object(
      'has_conflict', count(*) > 0,
      'conflicts', coalesce(json_agg(json_build_object(
        'kind', c.kind,
        'path', c.path,
        'message', c.message,
        'from_date', c.first_day,
        'to_date', c.last_day,
        'route_id', c.route_id,
        'bus_id', c.bus_id,
        'driver_id', c.driver_id,
        'staff_id', c.staff_id)), '[]'))
    into v_answer
    from api.transport_conflicts(
      v_route_id, v_bus_id, v_driver_id, null, v_range.first_day, v_range.last_day,
      coalesce(p ->> 'kind' = 'replacement', false)) c;
  return v_answer;
end $$;
comment on function api.transport_conflict_check is
  'Conflicts of a proposed assignment or replacement, or of the existing plan when no bus or driver is given: '
  '{from_date, to_date (see api.requested_week), route_id, bus_id, driver_id, kind}. Raises not_found for an '
  'unknown route, bus or driver.';

create function api.transport_exceptions_create(p jsonb) returns json language plpgsql as $$
declare
  v_route_id bigint := (p ->> 'route_id')::bigint;
  v_bus_id bigint := (p ->> 'bus_id')::bigint;
  v_driver_id bigint := (p ->> 'driver_id')::bigint;
  v_date date := (p ->> 'date')::date;
  v_id bigint;
begin
  perform api.transport_require('route', v_route_id, 'route_id');
  perform api.transport_require('bus', v_bus_id, 'bus_id');
  perform api.transport_require('driver', v_driver_id, 'driver_id');
  if exists (select from route_exception where route_id = v_route_id and date = v_date) then
    perform core.refuse_field('conflict', 'date', 'The route already has an exception on this day. Delete it first.');
  end if;
  if p ->> 'kind' = 'replaced' then
    perform api.transport_require_no_conflict(
      v_route_id, v_bus_id, v_driver_id, null, v_date, v_date, p_is_replacement => true);
  end if;
  v_id := core.record_insert('route_exception', p);
  return api.route_exception_record(v_id);
end $$;
comment on function api.transport_exceptions_create is
  'Cancels a route on one day, or replaces its bus or driver: {route_id, date, kind, bus_id, driver_id, reason}. '
  'Raises conflict if the route already has an exception on that day, schedule_conflict for a busy replacement.';

create function api.transport_exceptions_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_planned record;
  v_message text;
begin
  select x.route_id, x.date,
      coalesce(a.bus_id, r.bus_id) as bus_id,
      coalesce(a.driver_id, r.driver_id) as driver_id
    into v_planned
    from route_exception x
    join route r on r.id = x.route_id
    left join bus_assignment a
      on a.route_id = x.route_id and x.date between a.starts_on and coalesce(a.ends_on, 'infinity')
    where x.id = v_id;
  -- The same locks as for a replacement, so that of two concurrent requests one waits.
  perform from bus where id = v_planned.bus_id for no key update;
  perform from driver where id = v_planned.driver_id for no key update;
  select format('%s uses the bus or the driver of this route on %s.', r.name, x.date)
    into v_message
    from route_exception x
    join route r on r.id = x.route_id
    where x.date = v_planned.date and x.id <> v_id
      and (x.bus_id = v_planned.bus_id or x.driver_id = v_planned.driver_id)
    limit 1;
  if found then
    perform core.fail('schedule_conflict', v_message);
  end if;
  delete from route_exception where id = v_id;
  return json_build_object('id', v_id);
end $$;
comment on function api.transport_exceptions_delete is
  'Deletes an exception, so that the day runs as planned. Raises schedule_conflict if the planned bus or driver '
  'replaces another one on that day.';

create function api.transport_assignments_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  p := p || jsonb_build_object('starts_on', coalesce((p ->> 'starts_on')::date, core.today()));
  perform api.transport_assignment_check(p, null);
  v_id := core.record_insert('bus_assignment', p);
  return api.bus_assignment_record(v_id);
end $$;
comment on function api.transport_assignments_create is
  'Assigns a bus, a driver and an attendant to a route: {bus_id, route_id, driver_id, staff_id, starts_on (today), '
  'ends_on}. Raises schedule_conflict with every conflict.';

create function api.transport_assignment_check(p jsonb, p_assignment_id bigint) returns void language plpgsql as $$
declare
  v_route_id bigint := (p ->> 'route_id')::bigint;
  v_bus_id bigint := (p ->> 'bus_id')::bigint;
  v_driver_id bigint := (p ->> 'driver_id')::bigint;
  v_staff_id bigint := (p ->> 'staff_id')::bigint;
  v_first date := (p ->> 'starts_on')::date;
  v_last date := (p ->> 'ends_on')::date;
begin
  perform api.transport_require('route', v_route_id, 'route_id');
  perform api.transport_require('bus', v_bus_id, 'bus_id');
  perform api.transport_require('driver', v_driver_id, 'driver_id');
  perform api.transport_require('transport_staff', v_staff_id, 'staff_id');
  if v_last < v_first then
    perform core.refuse_field('validation_error', 'ends_on', format('must not be before %s', v_first));
  end if;
  perform api.transport_require_no_conflict(
    v_route_id, v_bus_id, v_driver_id, v_staff_id, v_first, v_last, false, p_assignment_id);
end $$;
comment on function api.transport_assignment_check is
  'Locks the route, bus, driver and attendant of an assignment. Raises invalid_reference for an unknown id, '
  'schedule_conflict for conflicts.';

create function api.transport_assignments_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before jsonb := api.bus_assignment_record(v_id)::jsonb;
  v_after jsonb := v_before || (p - 'read_only');
  v_period_before daterange := daterange((v_before ->> 'starts_on')::date, (v_before ->> 'ends_on')::date, '[]');
  v_is_shortened boolean;
begin
  if v_after ->> 'ends_on' < v_after ->> 'starts_on' then
    perform core.refuse_field('validation_error', 'ends_on', 
      format('must not be before %s', case when core.may_compare() then v_after ->> 'starts_on' else 'starts_on' end));
  end if;
  v_is_shortened := daterange((v_after ->> 'starts_on')::date, (v_after ->> 'ends_on')::date, '[]') <@ v_period_before;
  -- An assignment that only gets shorter can have no new conflict.
  if not v_is_shortened
     or (v_before -> 'bus_id', v_before -> 'driver_id', v_before -> 'staff_id')
       <> (v_after -> 'bus_id', v_after -> 'driver_id', v_after -> 'staff_id') then
    perform api.transport_assignment_check(v_after, v_id);
  end if;
  perform core.record_update('bus_assignment', p);
  return api.bus_assignment_record(v_id);
end $$;
comment on function api.transport_assignments_update is
  'Updates an assignment; the route cannot be changed. Raises schedule_conflict unless the change only shortens it.';

create function api.transport_assignments_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  if (select starts_on < core.today() from bus_assignment where id = v_id) then
    perform core.fail('invalid_state', 'This assignment has begun. Set ends_on to end it instead.');
  end if;
  delete from bus_assignment where id = v_id;
  return json_build_object('id', v_id);
end $$;
comment on function api.transport_assignments_delete is
  'Deletes an assignment. Raises invalid_state if it began before today.';
