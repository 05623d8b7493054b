-- /api/transport/drivers and /api/transport/staff: drivers, and other transport staff.

select core.define_operation('transport_drivers_list', p_permission => 'transport.read', p_feature => 'transport');
select core.define_operation('transport_drivers_create', p_permission => 'transport.manage', p_feature => 'transport',
  p_idempotent => true, p_record => 'driver', p_errors => '{conflict}');
select core.define_operation('transport_drivers_get', p_permission => 'transport.read', p_feature => 'transport',
  p_record => 'driver');
select core.define_operation('transport_drivers_update', p_permission => 'transport.manage', p_feature => 'transport',
  p_record => 'driver', p_errors => '{conflict}');
select core.define_operation('transport_drivers_delete', p_permission => 'transport.manage', p_feature => 'transport',
  p_record => 'driver', p_errors => '{in_use}');
select core.define_operation('transport_staff_list', p_permission => 'transport.read', p_feature => 'transport');
select core.define_operation('transport_staff_create', p_permission => 'transport.manage', p_feature => 'transport',
  p_idempotent => true, p_record => 'transport_staff');
select core.define_operation('transport_staff_get', p_permission => 'transport.read', p_feature => 'transport',
  p_record => 'transport_staff');
select core.define_operation('transport_staff_update', p_permission => 'transport.manage', p_feature => 'transport',
  p_record => 'transport_staff');
select core.define_operation('transport_staff_delete', p_permission => 'transport.manage', p_feature => 'transport',
  p_record => 'transport_staff', p_errors => '{in_use}');
select core.define_operation('transport_staff_workload', p_permission => 'transport.read', p_feature => 'transport');

-- The address of a driver is private: only users whose scope is the whole school see it.
select core.define_record('driver', p_table => 'driver', p_key => 'd.id', p_one_row_per_key => true,
  p_source => 'driver d',
  p_columns => $$
    d.id, d.name, d.phone, d.license_number, d.license_expires_on, case when core.has_whole_school_scope()
      then d.address end as address,
    not core.has_left(d.left_on, core.today()) as is_active, d.left_on, d.leaving_reason, d.created_at, d.updated_at
  $$,
  p_condition => 'd.deleted_at is null',
  p_search => $$public.search_form(concat_ws(' ', d.name, d.license_number, d.phone))$$,
  p_default_sort => 'name',
  p_writable => '{name,phone,license_number,license_expires_on,address,left_on,leaving_reason}');
select core.define_filter('driver', 'is_active', $$
  core.has_left(d.left_on, (select core.today())) <> :value::boolean
$$);
select core.define_filter('driver', 'expires_before', 'd.license_expires_on < :value::date');
select core.define_sort('driver', 'name', 'platform.search_normal(d.name)');
select core.define_sort('driver', 'license_expires_on', 'd.license_expires_on nulls last');
select core.define_sort('driver', 'created_at', 'd.created_at');

select core.define_functions('transport_drivers', 'driver',
  p_list => 'Drivers by name. Searches name, license number and phone. Filters: is_active, expires_before.',
  p_get => 'One driver. Raises not_found.');

create function api.transport_drivers_create(p jsonb) returns json language plpgsql as $$
begin
  return api.driver_record(core.record_insert('driver', api.person_with_left_on('driver', p)));
end $$;
comment on function api.transport_drivers_create is
  'Creates a driver. Raises conflict for a license number in use, ignoring case.';

create function api.transport_drivers_update(p jsonb) returns json language plpgsql as $$
begin
  return api.driver_record(core.record_update('driver', api.person_with_left_on('driver', p)));
end $$;
comment on function api.transport_drivers_update is
  'Updates the given fields. From the day left_on the driver drives no route.';

select core.define_record('transport_staff', p_table => 'transport_staff', p_key => 'st.id', p_one_row_per_key => true,
  p_source => 'transport_staff st',
  p_columns => 'st.id, st.name, st.phone, st.role, st.is_active, st.created_at, st.updated_at',
  p_condition => 'st.deleted_at is null',
  p_search => $$public.search_form(concat_ws(' ', st.name, st.phone))$$,
  p_equals => '{role,is_active}',
  p_default_sort => 'name',
  p_writable => '{name,phone,role,is_active}');
select core.define_sort('transport_staff', 'name', 'platform.search_normal(st.name)');
select core.define_sort('transport_staff', 'role', 'st.role');
select core.define_sort('transport_staff', 'created_at', 'st.created_at');

select core.define_functions('transport_staff', 'transport_staff',
  p_list => 'Staff by name. Searches name and phone. Filters: role, is_active.',
  p_create => 'Creates a staff member.',
  p_get => 'One staff member. Raises not_found.',
  p_update => 'Updates the given fields.');

-- Current and future assignments. A trip is one way to or from school on a working day with enrolled students.
select core.define_record('transport_staff_workload', p_table => 'transport_staff', p_key => 'st.id',
  p_source => $$
    transport_staff st
    cross join lateral (
      select coalesce(json_agg(json_build_object('assignment_id', a.id, 'route_id', r.id, 'route_name', r.name,
        'bus_id', b.id, 'bus_registration_number', b.registration_number,
          'starts_on', a.starts_on, 'ends_on', a.ends_on, 'is_current', a.starts_on <= core.today(), 'student_count',
          e.students,
          'trips_per_week', (e.has_pickup::integer + e.has_drop::integer) * w.days) order by a.starts_on),
            '[]') as assignments,
        count(distinct a.route_id) as routes,
        coalesce(sum(e.students) filter (where a.starts_on <= core.today()), 0) as students,
        coalesce(sum((e.has_pickup::integer + e.has_drop::integer) * w.days)
          filter (where a.starts_on <= core.today()), 0) as trips
      from bus_assignment a
      join route r on r.id = a.route_id
      join bus b on b.id = a.bus_id
      cross join (select cardinality(working_days) as days from timetable_config) w
      cross join lateral (
        select count(*) as students, count(*) filter (where enrollment_type <> 'drop') > 0 as has_pickup, count(*)
          filter (where enrollment_type <> 'pickup') > 0 as has_drop
        from transport_enrollment where route_id = r.id and core.rides(cancelled_at, now())) e
      where a.staff_id = st.id and (a.ends_on is null or a.ends_on >= core.today())
    ) work
  $$,
  p_columns => $$
    st.id as staff_id, st.name, st.role, st.is_active, work.routes as assigned_routes, work.trips as trips_per_week,
    work.students as student_count, work.assignments
  $$,
  p_condition => 'st.deleted_at is null');

create function api.transport_drivers_delete(p jsonb) returns json language sql as $$
  select api.transport_delete('driver', (p ->> 'id')::bigint);
$$;
comment on function api.transport_drivers_delete is 'Soft-deletes a driver. Raises in_use while a route uses them.';

create function api.transport_staff_delete(p jsonb) returns json language sql as $$
  select api.transport_delete('transport_staff', (p ->> 'id')::bigint);
$$;
comment on function api.transport_staff_delete is
  'Soft-deletes a staff member. Raises in_use while an assignment has not ended.';

create function api.transport_staff_workload(p jsonb) returns json language sql stable as $$
  select api.transport_staff_workload_record((p ->> 'id')::bigint);
$$;
comment on function api.transport_staff_workload is
  'Current and future assignments of a staff member with trips per week and students. Raises not_found.';
