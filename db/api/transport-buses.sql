-- /api/transport/buses: buses, their routes and documents.

select core.define_operation('transport_buses_list', p_permission => 'transport.read', p_feature => 'transport');
select core.define_operation('transport_buses_create', p_permission => 'transport.manage', p_feature => 'transport',
  p_idempotent => true, p_record => 'bus', p_errors => '{conflict}');
select core.define_operation('transport_buses_get', p_permission => 'transport.read', p_feature => 'transport',
  p_record => 'bus');
select core.define_operation('transport_buses_update', p_permission => 'transport.manage', p_feature => 'transport',
  p_record => 'bus', p_errors => '{conflict}');
select core.define_operation('transport_buses_delete', p_permission => 'transport.manage', p_feature => 'transport',
  p_record => 'bus', p_errors => '{in_use}');
select core.define_operation('transport_buses_details', p_permission => 'transport.read', p_feature => 'transport');

select core.define_record('bus', p_table => 'bus', p_key => 'b.id', p_one_row_per_key => true,
  p_source => 'bus b',
  p_columns => $$
    b.id, b.registration_number, b.capacity, b.model, b.insurance_expires_on, b.fitness_expires_on, b.is_active,
    b.created_at, b.updated_at
  $$,
  p_condition => 'b.deleted_at is null',
  p_search => $$public.search_form(concat_ws(' ', b.registration_number, b.model))$$,
  p_equals => '{is_active}',
  p_default_sort => 'registration_number',
  p_writable => '{registration_number,capacity,model,insurance_expires_on,fitness_expires_on,is_active}');
select core.define_filter('bus', 'expires_before', $$
  least(b.insurance_expires_on, b.fitness_expires_on) < :value::date
$$);
select core.define_sort('bus', 'registration_number', 'lower(b.registration_number)');
select core.define_sort('bus', 'capacity', 'b.capacity');
select core.define_sort('bus', 'insurance_expires_on', 'b.insurance_expires_on nulls last');
select core.define_sort('bus', 'fitness_expires_on', 'b.fitness_expires_on nulls last');
select core.define_sort('bus', 'created_at', 'b.created_at');

-- The routes of today's plan, including those that are cancelled today.
select core.define_record('bus_detail', p_table => 'bus', p_key => 'b.id',
  p_source => $$
    bus b cross join lateral (
      select coalesce(json_agg(json_build_object('id', r.id, 'name', r.name, 'code', r.code, 'is_assigned',
        t.assignment_id is not null, 'status', t.status,
          'driver_id', t.driver_id, 'driver_name', t.driver_name, 'driver_phone', t.driver_phone, 'staff_id',
          t.staff_id, 'staff_name', t.staff_name,
          'student_count', e.students, 'pickup_count', e.pickup, 'drop_count', e.drop)
            order by platform.search_normal(r.name), r.id), '[]') as routes,
        coalesce(sum(e.students), 0) as students
      from api.transport_plan(core.today(), core.today()) t
      join route r on r.id = t.route_id
      cross join lateral (
        select count(*) as students, count(*) filter (where enrollment_type <> 'drop') as pickup, count(*)
          filter (where enrollment_type <> 'pickup') as drop
        from transport_enrollment where route_id = r.id and core.rides(cancelled_at, now())) e
      where t.bus_id = b.id
    ) run
  $$,
  p_columns => $$
    b.id, b.registration_number, b.capacity, b.model, b.insurance_expires_on, b.fitness_expires_on, b.is_active,
    run.routes -> 0 as route, run.routes, run.students as student_count,
    (select coalesce(json_agg(json_build_object('kind', p.kind, 'expires_on', p.day, 'days_left', p.day - core.today(),
      'is_expired', p.day < core.today()) order by p.day), '[]')
       from (values ('insurance', b.insurance_expires_on), ('fitness', b.fitness_expires_on)) p (kind, day)
         where p.day is not null) as documents,
    (select coalesce(json_agg(json_build_object('id', a.id, 'route_id', a.route_id, 'route_name', r.name, 'driver_id',
      a.driver_id, 'driver_name', d.name,
         'starts_on', a.starts_on, 'ends_on', a.ends_on) order by a.starts_on), '[]')
       from bus_assignment a join route r on r.id = a.route_id join driver d on d.id = a.driver_id
       where a.bus_id = b.id and (a.ends_on is null or a.ends_on >= core.today())) as assignments,
    b.created_at, b.updated_at
  $$,
  p_condition => 'b.deleted_at is null');

select core.define_functions('transport_buses', 'bus',
  p_list =>
    'Buses by registration number. Searches registration number and model. Filters: is_active, expires_before.',
  p_create => 'Creates a bus. Raises conflict for a registration number in use, ignoring case.',
  p_get => 'One bus. Raises not_found.',
  p_update => 'Updates a bus. Raises conflict for fewer seats than enrolled students.');

create function api.transport_buses_delete(p jsonb) returns json language sql as $$
  select api.transport_delete('bus', (p ->> 'id')::bigint);
$$;
comment on function api.transport_buses_delete is 'Soft-deletes a bus. Raises in_use while a route uses it.';

create function api.transport_buses_details(p jsonb) returns json language sql stable as $$
  select api.bus_detail_record((p ->> 'id')::bigint);
$$;
comment on function api.transport_buses_details is
  'One bus with today''s routes, their drivers and students, its documents and assignments. Raises not_found.';
