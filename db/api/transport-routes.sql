-- /api/transport/routes and /api/transport/stops. A student sees only the route in which they are enrolled.

select core.define_operation('transport_routes_list', p_permission => 'transport.read', p_allows_own_rows => true,
  p_feature => 'transport');
select core.define_operation('transport_routes_create', p_permission => 'transport.manage', p_feature => 'transport',
  p_idempotent => true, p_record => 'route', p_errors => '{conflict,invalid_reference}');
select core.define_operation('transport_routes_get', p_permission => 'transport.read', p_allows_own_rows => true,
  p_feature => 'transport', p_record => 'route');
select core.define_operation('transport_routes_update', p_permission => 'transport.manage', p_feature => 'transport',
  p_record => 'route', p_errors => '{conflict,invalid_reference}');
select core.define_operation('transport_routes_delete', p_permission => 'transport.manage', p_feature => 'transport',
  p_record => 'route', p_errors => '{conflict,in_use}');
select core.define_operation('transport_routes_stops', p_permission => 'transport.read', p_allows_own_rows => true,
  p_feature => 'transport');
select core.define_operation('transport_routes_reorder', p_permission => 'transport.manage', p_feature => 'transport',
  p_reader => 'transport_stops_list', p_errors => '{invalid_reference}');
select core.define_operation('transport_stops_list', p_permission => 'transport.read', p_allows_own_rows => true,
  p_feature => 'transport');
select core.define_operation('transport_stops_get', p_permission => 'transport.read', p_allows_own_rows => true,
  p_feature => 'transport', p_record => 'stop');
select core.define_operation('transport_stops_create', p_permission => 'transport.manage', p_feature => 'transport',
  p_idempotent => true, p_record => 'stop', p_reader => 'transport_stops_get',
  p_errors => '{conflict,invalid_reference}');
-- No p_record: the dispatcher would lock the stop first, but the route must be locked before its stops.
select core.define_operation('transport_stops_update', p_permission => 'transport.manage', p_feature => 'transport',
  p_present => 'transport_stops_get', p_locked_by => 'lock_given_stop', p_errors => '{conflict}');
select core.define_operation('transport_stops_delete', p_permission => 'transport.manage', p_feature => 'transport',
  p_versioned_by => 'transport_stops_get', p_locked_by => 'lock_given_stop', p_reader => 'transport_stops_get',
  p_errors => '{in_use}');

-- today: the plan of today, exceptions included. capacity: the seats of the smallest bus from today on. Students do not
-- see the counts of riders.
select core.define_record('route', p_table => 'route', p_key => 'r.id',
  p_source => $$
    route r left join bus b on b.id = r.bus_id left join driver d on d.id = r.driver_id
    left join api.transport_plan(core.today(), core.today()) t on t.route_id = r.id
  $$,
  p_columns => $$
    r.id, r.name, r.code, r.start_point, r.end_point, r.distance_km, r.bus_id,
    b.registration_number as bus_registration_number,
    r.driver_id, d.name as driver_name, r.is_active,
    case when t.route_id is not null then json_build_object('status', t.status, 'reason', t.reason, 'bus_id', t.bus_id,
      'bus_registration_number', t.registration_number,
      'driver_id', t.driver_id, 'driver_name', t.driver_name, 'driver_phone', t.driver_phone, 'staff_id', t.staff_id,
      'staff_name', t.staff_name) end as today,
    (select count(*) from stop st where st.route_id = r.id and st.deleted_at is null) as stop_count,
    (select min(seats.capacity) from bus seats
      where seats.id in (select rb.bus_id from route_buses(r.id) rb)) as capacity,
    (select case when not core.has_own_scope() then count(*) end from transport_enrollment e
      where e.route_id = r.id and core.rides(e.cancelled_at, now())) as student_count,
    (select case when not core.has_own_scope() then count(*) end from transport_enrollment e
      where e.route_id = r.id and core.rides(e.cancelled_at, now()) and e.enrollment_type <> 'drop') as pickup_count,
    (select case when not core.has_own_scope() then count(*) end from transport_enrollment e
      where e.route_id = r.id and core.rides(e.cancelled_at, now()) and e.enrollment_type <> 'pickup') as drop_count,
    r.created_at, r.updated_at
  $$,
  p_condition => $$
    r.deleted_at is null and (not core.has_own_scope()
      or r.id in (select e.route_id from transport_enrollment e
        where e.student_id = any ((select visible_student_ids())::bigint[])
      and core.rides(e.cancelled_at, now())))
  $$,
  p_search => $$public.search_form(concat_ws(' ', r.name, r.code, r.start_point, r.end_point))$$,
  p_equals => '{is_active}',
  p_default_sort => 'name',
  p_writable => '{name,code,start_point,end_point,distance_km,bus_id,driver_id,is_active}',
  p_volatile_fields => '{today,stop_count,capacity,student_count,pickup_count,drop_count}');
select core.define_filter('route', 'bus_id', ':value::bigint in (r.bus_id, t.bus_id)');
select core.define_filter('route', 'driver_id', ':value::bigint in (r.driver_id, t.driver_id)');
select core.define_sort('route', 'name', 'platform.search_normal(r.name)');
select core.define_sort('route', 'code', 'lower(r.code) nulls last');
select core.define_sort('route', 'distance_km', 'r.distance_km nulls last');
select core.define_sort('route', 'created_at', 'r.created_at');

select core.define_record('stop', p_table => 'stop', p_key => 'st.id',
  p_source => 'stop st join route r on r.id = st.route_id',
  p_columns => $$
    st.id, st.route_id, r.name as route_name, st.name, st.sequence, to_char(st.pickup_time, 'HH24:MI') as pickup_time,
    to_char(st.drop_time, 'HH24:MI') as drop_time,
    st.latitude, st.longitude,
    (select case when not core.has_own_scope() then count(*) end from transport_enrollment e
      where e.stop_id = st.id and e.route_id = st.route_id and core.rides(e.cancelled_at, now())) as student_count,
    st.created_at, st.updated_at
  $$,
  p_condition => $$
    st.deleted_at is null and (not core.has_own_scope()
      or st.route_id in (select e.route_id from transport_enrollment e
        where e.student_id = any ((select visible_student_ids())::bigint[])
      and core.rides(e.cancelled_at, now())))
  $$,
  p_search => $$public.search_form(concat_ws(' ', st.name, r.name))$$,
  p_equals => '{route_id}',
  p_default_sort => 'sequence',
  p_writable => '{route_id,name,sequence,pickup_time,drop_time,latitude,longitude}',
  p_volatile_fields => '{student_count}');
select core.define_sort('stop', 'sequence', 'platform.search_normal(r.name)', 'st.route_id', 'st.sequence');
select core.define_sort('stop', 'name', 'platform.search_normal(st.name)');
select core.define_sort('stop', 'pickup_time', 'st.pickup_time nulls last');

select core.define_functions('transport_routes', 'route',
  p_list =>
    'Routes by name. Searches name, code, start and end point. Filters: bus_id and driver_id (default or today''s), '
    'is_active.',
  p_get => 'One route. Raises not_found.');
select core.define_functions('transport_stops', 'stop',
  p_list => 'Stops by route and sequence. Searches stop and route. Filter: route_id.',
  p_get => 'One stop. Raises not_found.');

create function api.transport_routes_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  perform api.transport_require('bus', (p ->> 'bus_id')::bigint, 'bus_id');
  perform api.transport_require('driver', (p ->> 'driver_id')::bigint, 'driver_id');
  v_id := core.record_insert('route', p);
  return api.route_record(v_id);
end $$;
comment on function api.transport_routes_create is
  'Creates a route. Raises conflict for a code that is in use, invalid_reference for an unknown bus or driver.';

create function api.transport_routes_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  perform api.transport_require('bus', (p ->> 'bus_id')::bigint, 'bus_id');
  perform api.transport_require('driver', (p ->> 'driver_id')::bigint, 'driver_id');
  perform core.record_update('route', p);
  return api.route_record(v_id);
end $$;
comment on function api.transport_routes_update is
  'Updates a route. Raises conflict for a bus with fewer seats than there are students.';

create function api.transport_routes_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  if exists (
    select from transport_enrollment where route_id = v_id and core.rides(cancelled_at, clock_timestamp())
  ) then
    perform core.fail('in_use', 'Students are enrolled in this route. Cancel their enrollments first.');
  elsif exists (
    select from bus_assignment where route_id = v_id and (ends_on is null or ends_on >= core.today())
  ) then
    perform core.fail('in_use', 'A bus is assigned to this route. End the assignment first.');
  end if;
  -- Future replacements would keep a bus or driver from other routes.
  delete from route_exception where route_id = v_id and date >= core.today();
  update stop set deleted_at = now(), sequence = null where route_id = v_id and deleted_at is null;
  update route set deleted_at = now() where id = v_id;
  return json_build_object('id', v_id);
end $$;
comment on function api.transport_routes_delete is
  'Soft-deletes a route with its stops and future exceptions. Raises in_use while students are enrolled or an '
  'assignment has not ended.';

create function api.transport_routes_stops(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.route_record((p ->> 'id')::bigint);
  return core.record_page('stop', p || jsonb_build_object('route_id', p -> 'id'));
end $$;
comment on function api.transport_routes_stops is 'The stops of a route by sequence. Raises not_found for the route.';

create function api.transport_routes_reorder(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_stop_ids bigint[] := array(select jsonb_array_elements_text(p -> 'stop_ids')::bigint);
  v_stop record;
begin
  perform core.record_lock('route', v_id);
  select i as id
    into v_stop
    from unnest(v_stop_ids) i
    where not exists (select from stop where id = i and route_id = v_id and deleted_at is null)
    limit 1;
  if found then
    perform core.refuse_field('invalid_reference', 'stop_ids', format('This route has no stop %s.', v_stop.id));
  end if;
  select id, name
    into v_stop
    from stop
    where route_id = v_id and deleted_at is null and id <> all (v_stop_ids)
    order by sequence
    limit 1;
  if found then
    perform core.refuse_field('validation_error', 'stop_ids',
      format('must contain every stop of the route; stop %s (%s) is missing', v_stop.id, v_stop.name));
  elsif cardinality(v_stop_ids) <> (select count(*) from stop where route_id = v_id and deleted_at is null) then
    perform core.refuse_field('validation_error', 'stop_ids', 'must contain each stop only once');
  end if;
  -- Times stay with the positions, so that they still increase along the route.
  update stop s
    set sequence = n.position, pickup_time = before.pickup_time, drop_time = before.drop_time
    from unnest(v_stop_ids) with ordinality n (id, position)
    join stop before on before.route_id = v_id and before.sequence = n.position
    where s.id = n.id;
  return core.record_page('stop', jsonb_build_object('route_id', v_id, 'pageSize', 1000), false) -> 'data';
end $$;
comment on function api.transport_routes_reorder is
  'Reorders the stops of a route: {stop_ids}, every stop exactly once. Raises invalid_reference for a stop of another '
  'route, validation_error for a missing or repeated stop.';

create function api.require_stop_times(p_route_id bigint) returns void language plpgsql stable as $$
declare
  v_stop record;
begin
  select name, name_before
    into v_stop
    from (
      select name, sequence, pickup_time, lag(pickup_time) over w as time_before, lag(name) over w as name_before
      from stop
      where route_id = p_route_id and deleted_at is null and pickup_time is not null
      window w as (order by sequence)
    ) s
    where pickup_time < time_before
    order by sequence
    limit 1;
  if found then
    perform core.refuse_field('conflict', 'pickup_time', format(
      'The pickup time of %s must not be later than that of %s, which comes after it.',
      v_stop.name_before, v_stop.name));
  end if;
  -- The bus may drive home in the same order or in the reverse order.
  if (
    select bool_or(drop_time < time_before) and bool_or(drop_time > time_before)
    from (
      select drop_time, lag(drop_time) over (order by sequence) as time_before
      from stop
      where route_id = p_route_id and deleted_at is null and drop_time is not null
    ) s
  ) then
    perform core.refuse_field('conflict', 'drop_time',
      'Drop times must either increase or decrease from each stop to the next.');
  end if;
end $$;
comment on function api.require_stop_times is 'Raises conflict if the times of a route''s stops go backwards.';

create function api.transport_stops_create(p jsonb) returns json language plpgsql as $$
declare
  v_route_id bigint := (p ->> 'route_id')::bigint;
  v_last integer;
  v_sequence integer;
  v_id bigint;
begin
  perform api.transport_require('route', v_route_id, 'route_id');
  v_last := 1 + (select count(*) from stop where route_id = v_route_id and deleted_at is null);
  v_sequence := least(coalesce((p ->> 'sequence')::integer, v_last), v_last);
  update stop set sequence = sequence + 1 where route_id = v_route_id and sequence >= v_sequence;
  v_id := core.record_insert('stop', p || jsonb_build_object('sequence', v_sequence));
  perform api.require_stop_times(v_route_id);
  return api.stop_record(v_id);
end $$;
comment on function api.transport_stops_create is
  'Appends a stop to its route or inserts it at a sequence. Raises conflict if its times go backwards.';

create function api.lock_stop(p_id bigint, out route_id bigint, out sequence integer) language plpgsql as $$
begin
  perform from route where id = (api.stop_record(p_id) ->> 'route_id')::bigint for no key update;
  select st.route_id, st.sequence into route_id, sequence from stop st where st.id = p_id and st.deleted_at is null;
  if route_id is null then
    perform core.fail('not_found', format('There is no stop %s.', p_id));
  end if;
end $$;
comment on function api.lock_stop is
  'The route and sequence of a stop. Locks the route, so that no other transaction moves its stops.';

create function api.lock_given_stop(p jsonb) returns void language plpgsql as $$
begin
  perform api.lock_stop((p ->> 'id')::bigint);
end $$;
comment on function api.lock_given_stop is 'api.lock_stop for the dispatcher: {id}.';

create function api.transport_stops_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_stop record;
  v_sequence integer;
begin
  select * into v_stop from api.lock_stop(v_id);
  perform core.record_update('stop', p - 'sequence');
  if p ? 'sequence' then
    v_sequence := least(
      (p ->> 'sequence')::integer,
      (select count(*) from stop where route_id = v_stop.route_id and deleted_at is null));
  end if;
  if v_sequence <> v_stop.sequence then
    update stop
      set sequence = case
        when id = v_id then v_sequence
        else sequence + sign(v_stop.sequence - v_sequence)::integer
      end
      where route_id = v_stop.route_id
        and sequence between least(v_sequence, v_stop.sequence) and greatest(v_sequence, v_stop.sequence);
  end if;
  perform api.require_stop_times(v_stop.route_id);
  return api.stop_record(v_id);
end $$;
comment on function api.transport_stops_update is
  'Updates a stop; a new sequence moves it. The route cannot be changed. Raises conflict if its times go backwards.';

create function api.transport_stops_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_stop record;
begin
  select * into v_stop from api.lock_stop(v_id);
  if exists (
    select from transport_enrollment
    where stop_id = v_id and route_id = v_stop.route_id and core.rides(cancelled_at, clock_timestamp())
  ) then
    perform core.fail('in_use', 'Students board at this stop. Cancel their enrollments first.');
  end if;
  update stop set deleted_at = now(), sequence = null where id = v_id;
  update stop set sequence = sequence - 1 where route_id = v_stop.route_id and sequence > v_stop.sequence;
  return json_build_object('id', v_id);
end $$;
comment on function api.transport_stops_delete is
  'Soft-deletes a stop and moves up the following ones. Raises in_use while students board there.';
