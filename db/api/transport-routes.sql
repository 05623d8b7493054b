-- /api/transport/routes and /api/transport/stops: the rounds that buses make, and where they stop. A student finds the route that they ride.

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
  p_errors => '{invalid_reference}');
select core.define_operation('transport_stops_list', p_permission => 'transport.read', p_allows_own_rows => true,
  p_feature => 'transport');
select core.define_operation('transport_stops_get', p_permission => 'transport.read', p_allows_own_rows => true,
  p_feature => 'transport');
select core.define_operation('transport_stops_create', p_permission => 'transport.manage', p_feature => 'transport',
  p_idempotent => true, p_record => 'stop', p_errors => '{conflict,invalid_reference}');
-- No p_record: the dispatcher would lock the stop first, but the route must be locked before its stops.
select core.define_operation('transport_stops_update', p_permission => 'transport.manage', p_feature => 'transport',
  p_errors => '{conflict}');
select core.define_operation('transport_stops_delete', p_permission => 'transport.manage', p_feature => 'transport',
  p_errors => '{in_use}');

-- today is what runs it today, exceptions included; capacity the seats of the smallest bus from today on. How many ride is not for students.
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
    (select case when current_setting('app.scope', true) <> 'own' then count(*) end from transport_enrollment e
      where e.route_id = r.id and e.status = 'active') as student_count,
    (select case when current_setting('app.scope', true) <> 'own' then count(*) end from transport_enrollment e
      where e.route_id = r.id and e.status = 'active' and e.enrollment_type <> 'drop') as pickup_count,
    (select case when current_setting('app.scope', true) <> 'own' then count(*) end from transport_enrollment e
      where e.route_id = r.id and e.status = 'active' and e.enrollment_type <> 'pickup') as drop_count,
    r.created_at, r.updated_at
  $$,
  p_condition => $$
    r.deleted_at is null and (current_setting('app.scope', true) <> 'own'
      or r.id in (select e.route_id from transport_enrollment e where e.student_id = core.student_id()
      and e.status = 'active'))
  $$,
  p_search => $$platform.search_normal(concat_ws(' ', r.name, r.code, r.start_point, r.end_point))$$,
  p_equals => '{is_active}',
  p_default_sort => 'name',
  p_writable => '{name,code,start_point,end_point,distance_km,bus_id,driver_id,is_active}',
  p_unversioned_fields => '{today,stop_count,capacity,student_count,pickup_count,drop_count}');
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
    (select case when current_setting('app.scope', true) <> 'own' then count(*) end from transport_enrollment e
      where e.stop_id = st.id and e.route_id = st.route_id and e.status = 'active') as student_count,
    st.created_at, st.updated_at
  $$,
  p_condition => $$
    st.deleted_at is null and (current_setting('app.scope', true) <> 'own'
      or st.route_id in (select e.route_id from transport_enrollment e where e.student_id = core.student_id()
      and e.status = 'active'))
  $$,
  p_search => $$platform.search_normal(concat_ws(' ', st.name, r.name))$$,
  p_equals => '{route_id}',
  p_default_sort => 'sequence',
  p_writable => '{route_id,name,sequence,pickup_time,drop_time,latitude,longitude}',
  p_unversioned_fields => '{student_count}');
select core.define_sort('stop', 'sequence', 'platform.search_normal(r.name)', 'st.route_id', 'st.sequence');
select core.define_sort('stop', 'name', 'platform.search_normal(st.name)');
select core.define_sort('stop', 'pickup_time', 'st.pickup_time nulls last');

select core.define_functions('transport_routes', 'route',
  p_list =>
    'Routes by name; search over name, code and ends; filters bus_id and driver_id (its own or '
    'today''s), is_active.',
  p_get => 'One route, or not_found.');
select core.define_functions('transport_stops', 'stop',
  p_list => 'Stops route by route, in their order; search over stop and route; filter route_id.',
  p_get => 'One stop, or not_found.');

-- A new route; conflict when another has its code, invalid_reference for a bus or driver who is not there.
create function api.transport_routes_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  perform api.transport_require('bus', (p ->> 'bus_id')::bigint, 'bus_id');
  perform api.transport_require('driver', (p ->> 'driver_id')::bigint, 'driver_id');
  v_id := core.record_insert('route', p);
  return api.route_record(v_id);
end $$;

-- Changes what is given; conflict for a bus with fewer seats than students ride.
create function api.transport_routes_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  perform api.transport_require('bus', (p ->> 'bus_id')::bigint, 'bus_id');
  perform api.transport_require('driver', (p ->> 'driver_id')::bigint, 'driver_id');
  perform core.record_update('route', p);
  return api.route_record(v_id);
end $$;

-- Removes a route with its stops, and what was to be another way on days to come, which would keep a bus or a driver from other routes; in_use while
-- students ride it or an assignment has not ended.
create function api.transport_routes_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  if exists (select from transport_enrollment where route_id = v_id and status = 'active') then
    perform core.fail('in_use', 'Students ride this route. Cancel their enrolments first.');
  elsif exists (select from bus_assignment where route_id = v_id and (ends_on is null or ends_on >= core.today())) then
    perform core.fail('in_use', 'A bus is assigned to this route. End the assignment first.');
  end if;
  delete from route_exception where route_id = v_id and date >= core.today();
  update stop set deleted_at = now(), sequence = null where route_id = v_id and deleted_at is null;
  update route set deleted_at = now() where id = v_id;
  return json_build_object('id', v_id);
end $$;

-- The stops of a route in their order, or not_found.
create function api.transport_routes_stops(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.route_record((p ->> 'id')::bigint);
  return core.record_page('stop', p || jsonb_build_object('route_id', p -> 'id'));
end $$;

-- {stop_ids}: the stops of a route in a new order, all of them once. Times stay with the places, so that they still rise: the bus
-- comes to the second stop when it came to the second before. Raises invalid_reference for a stop of another route,
-- validation_error when one is missing or named twice.
create function api.transport_routes_reorder(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_stop_ids bigint[] := array(select jsonb_array_elements_text(p -> 'stop_ids')::bigint);
  v_fault record;
begin
  perform core.record_lock('route', v_id);
  select i as id into v_fault from unnest(v_stop_ids) i where not exists (select from stop where id = i and route_id = v_id and deleted_at is null) limit 1;
  if found then
    perform core.refuse_field('invalid_reference', 'stop_ids', format('This route has no stop %s.', v_fault.id));
  end if;
  select id, name into v_fault from stop where route_id = v_id and deleted_at is null and id <> all (v_stop_ids) order by sequence limit 1;
  if found then
    perform core.refuse_field('validation_error', 'stop_ids', format('must name each stop of the route; %s (%s) is missing', v_fault.id, v_fault.name));
  elsif cardinality(v_stop_ids) <> (select count(*) from stop where route_id = v_id and deleted_at is null) then
    perform core.refuse_field('validation_error', 'stop_ids', 'must name each stop once');
  end if;
  update stop s set sequence = n.place, pickup_time = before.pickup_time, drop_time = before.drop_time
    from unnest(v_stop_ids) with ordinality n (id, place) join stop before on before.route_id = v_id and before.sequence = n.place
    where s.id = n.id;
  return core.record_page('stop', jsonb_build_object('route_id', v_id, 'pageSize', 1000), false) -> 'data';
end $$;

-- Refuses times that go backwards. On the way to school they rise from stop to stop; on the way home they rise or they fall, as the bus
-- drives in the same order or back.
create function api.require_stop_times(p_route_id bigint) returns void language plpgsql stable as $$
declare
  v_fault record;
begin
  select name, before into v_fault
    from (select name, sequence, pickup_time, lag(pickup_time) over w as time_before, lag(name) over w as before
          from stop where route_id = p_route_id and deleted_at is null and pickup_time is not null window w as (order by sequence)) s
    where pickup_time < time_before order by sequence limit 1;
  if found then
    perform core.refuse_field('conflict', 'pickup_time', format('The bus comes to %s before %s: its pickup time can''t be later.', v_fault.before, v_fault.name));
  end if;
  if (select bool_or(drop_time < time_before) and bool_or(drop_time > time_before)
      from (select drop_time, lag(drop_time) over (order by sequence) as time_before
            from stop where route_id = p_route_id and deleted_at is null and drop_time is not null) s) then
    perform core.refuse_field('conflict', 'drop_time', 'Drop times rise along the route or fall along it, as the bus drives home in this order or back.');
  end if;
end $$;
comment on function api.require_stop_times is 'Refuses times of stops that go backwards along their route.';

-- A new stop, at the end of its route or at a place of it, from where the others move on. conflict for a time that would go backwards.
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

-- Where a stop is, once its route is locked: nobody else moves the stops of the route until this transaction ends. not_found without it.
create function api.stop_for_change(p_id bigint, out route_id bigint, out sequence integer) language plpgsql as $$
begin
  perform from route where id = (api.stop_record(p_id) ->> 'route_id')::bigint for no key update;
  select st.route_id, st.sequence into route_id, sequence from stop st where st.id = p_id and st.deleted_at is null;
  if route_id is null then
    perform core.fail('not_found', format('There is no stop %s.', p_id));
  end if;
end $$;
comment on function api.stop_for_change is 'The route and place of a stop, with the route locked.';

-- Changes what is given; another sequence moves it there, and the others make room. The route stays. conflict for a time that would
-- go backwards.
create function api.transport_stops_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_stop record;
  v_sequence integer;
begin
  select * into v_stop from api.stop_for_change(v_id);
  perform core.record_update('stop', p - 'sequence');
  if p ? 'sequence' then
    v_sequence := least((p ->> 'sequence')::integer, (select count(*) from stop where route_id = v_stop.route_id and deleted_at is null));
  end if;
  if v_sequence <> v_stop.sequence then
    update stop set sequence = case when id = v_id then v_sequence else sequence + sign(v_stop.sequence - v_sequence)::integer end
      where route_id = v_stop.route_id and sequence between least(v_sequence, v_stop.sequence) and greatest(v_sequence, v_stop.sequence);
  end if;
  perform api.require_stop_times(v_stop.route_id);
  return api.stop_record(v_id);
end $$;

-- Removes a stop, and those after it move up; in_use while students board there.
create function api.transport_stops_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_stop record;
begin
  select * into v_stop from api.stop_for_change(v_id);
  if exists (select from transport_enrollment where stop_id = v_id and route_id = v_stop.route_id and status = 'active') then
    perform core.fail('in_use', 'Students board at this stop. Cancel their enrolments first.');
  end if;
  update stop set deleted_at = now(), sequence = null where id = v_id;
  update stop set sequence = sequence - 1 where route_id = v_stop.route_id and sequence > v_stop.sequence;
  return json_build_object('id', v_id);
end $$;
