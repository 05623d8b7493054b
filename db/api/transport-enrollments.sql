-- /api/transport/enrollments and /api/transport/enroll: enrollments of students in routes and stops. Triggers of the
-- tables enforce the seats of a bus. A student sees their own enrollment; a teacher with transport.read sees those of
-- the students they teach.

select core.define_operation('transport_enrollments_list', p_permission => 'transport.read',
  p_allows_own_rows => true, p_feature => 'transport');
select core.define_operation('transport_enroll_create', p_permission => 'transport.manage', p_feature => 'transport',
  p_idempotent => true, p_record => 'transport_enrollment', p_errors => '{conflict,invalid_state,invalid_reference}');
select core.define_operation('transport_enroll_get', p_permission => 'transport.read', p_allows_own_rows => true,
  p_feature => 'transport', p_record => 'transport_enrollment');
select core.define_operation('transport_enroll_cancel', p_permission => 'transport.manage', p_feature => 'transport',
  p_record => 'transport_enrollment');

-- The condition repeats the row scope of students because record_lock reads the table without the joins.
-- Left joins and distinct on let the planner leave out what neither the count nor the sort needs.
select core.define_record('transport_enrollment', p_table => 'transport_enrollment', p_key => 'e.id',
  p_one_row_per_key => true,
  p_source => $$
    transport_enrollment e left join student s on s.id = e.student_id left join class c on c.id = s.class_id
    left join route r on r.id = e.route_id left join stop st on st.id = e.stop_id
    left join (
      select distinct on (route_id) * from api.transport_plan(core.today(), core.today()) order by route_id
    ) t on t.route_id = e.route_id and core.rides(e.cancelled_at, now())
  $$,
  p_columns => $$
    e.id, e.student_id, core.full_name(s.first_name, s.last_name) as student_name, s.admission_number, s.class_id,
    api.class_name(c.name, c.section) as class_name,
    e.route_id, r.name as route_name, e.stop_id, st.name as stop_name, st.sequence as stop_sequence,
    to_char(st.pickup_time, 'HH24:MI') as pickup_time, to_char(st.drop_time, 'HH24:MI') as drop_time,
    e.enrollment_type, case when core.rides(e.cancelled_at, now()) then 'active' else 'cancelled' end as status,
    t.bus_id, t.registration_number as bus_registration_number, t.driver_name, t.driver_phone,
    e.cancelled_at, e.cancelled_by, e.cancelled_by_name, e.cancel_reason, e.created_at, e.updated_at
  $$,
  p_condition => $$
    current_setting('app.scope', true) <> 'taught'
      or exists (select from student reached where reached.id = e.student_id)
  $$,
  p_search => 's.search_name',
  p_ended => 'not core.rides(e.cancelled_at, now())',
  p_narrow_filters => '{route_id,student_id,stop_id,class_id,is_in_scope}', p_own_student_scopes => '{own,children}',
  p_equals => '{route_id,student_id,stop_id,s.class_id,enrollment_type}',
  p_default_sort => 'created_at', p_default_order => 'desc',
  p_unversioned_fields => '{bus_id,bus_registration_number,driver_name,driver_phone}');
select core.define_filter('transport_enrollment', 'is_in_scope', $$
  e.student_id = any ((select visible_student_ids())::bigint[])
$$);
select core.define_filter('transport_enrollment', 'status', $$
  (:value = 'active' and core.rides(e.cancelled_at, now()))
    or (:value = 'cancelled' and not core.rides(e.cancelled_at, now()))
$$, p_is_literal => true);
select core.define_sort('transport_enrollment', 'created_at', 'e.created_at');
select core.define_sort('transport_enrollment', 'student_name',
  'platform.search_normal(s.last_name)', 'platform.search_normal(s.first_name)');
select core.define_sort('transport_enrollment', 'stop',
  -- Names within a stop are not normalized: two calls for each of 20,000 enrollments would take 30 ms.
  'platform.search_normal(r.name)', 'e.route_id', 'st.sequence nulls last', 's.last_name', 's.first_name');

select core.define_functions('transport_enrollments', 'transport_enrollment',
  p_list =>
    'Enrollments, latest first, cancelled ones only with a status or include_ended. Searches the student. Filters: '
    'route_id, student_id, stop_id, class_id (current), status, enrollment_type.');
select core.define_functions('transport_enroll', 'transport_enrollment',
  p_get => 'One enrollment. Raises not_found.');

create function api.transport_enroll_create(p jsonb) returns json language plpgsql as $$
declare
  v_student_id bigint := (p ->> 'student_id')::bigint;
  v_route_id bigint := (p ->> 'route_id')::bigint;
  v_stop_id bigint := (p ->> 'stop_id')::bigint;
  v_id bigint;
  v_route_name text;
  v_left_on date;
begin
  perform api.require_student(v_student_id, 'student_id');
  select left_on into v_left_on from student where id = v_student_id;
  if core.has_left(v_left_on, core.today()) then
    perform core.refuse_field('invalid_reference', 'student_id', format('Student %s has left.', v_student_id));
  end if;
  perform api.transport_require('route', v_route_id, 'route_id');
  if not exists (select from stop where id = v_stop_id and route_id = v_route_id and deleted_at is null) then
    perform core.refuse_field('invalid_reference', 'stop_id', format('This route has no stop %s.', v_stop_id));
  elsif not (select is_active from route where id = v_route_id) then
    perform core.refuse_field('invalid_state', 'route_id', 'This route is inactive.');
  end if;
  -- The student is locked, so no other request enrolls the student at the same time.
  select r.name
    into v_route_name
    from transport_enrollment e
    join route r on r.id = e.route_id
    where e.student_id = v_student_id and core.rides(e.cancelled_at, clock_timestamp());
  if found then
    perform core.refuse_field('conflict', 'student_id',
      format('The student is already enrolled in %s. Cancel that enrollment first.', v_route_name));
  end if;
  insert into transport_enrollment (
    student_id, route_id, stop_id, enrollment_type, status, cancelled_at, cancel_reason, is_ended_by_leaving)
    values (v_student_id, v_route_id, v_stop_id, p ->> 'enrollment_type',
      case when v_left_on is null then 'active' else 'cancelled' end,
      core.day_begins(v_left_on),
      case when v_left_on is not null then 'The student left.' end,
      v_left_on is not null)
    returning id into v_id;
  return api.transport_enrollment_record(v_id);
end $$;
comment on function api.transport_enroll_create is
  'Enrolls a student: {student_id, route_id, stop_id, enrollment_type}. Raises invalid_reference for a student '
  'who has left, an unknown route or a stop of another route; invalid_state for an inactive route; conflict if the '
  'student is already enrolled or the bus is full.';

create function api.transport_enroll_cancel(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  update transport_enrollment
    set status = 'cancelled', cancelled_at = now(), cancelled_by = core.user_id(), cancel_reason = p ->> 'reason',
      cancelled_by_name = api.user_name()
    where id = v_id and core.rides(cancelled_at, clock_timestamp());
  if not found then
    perform core.fail('not_found', format('There is no transport enrollment %s. It was cancelled.', v_id));
  end if;
  return json_build_object('id', v_id);
end $$;
comment on function api.transport_enroll_cancel is
  'Cancels an enrollment: {reason}. Raises not_found if it is already cancelled.';
