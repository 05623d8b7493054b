-- Transport: buses, drivers and staff, routes and stops, students who ride, bus assignments, and fees.
-- Buses, drivers, staff, routes and stops are deleted by setting deleted_at, because older assignments and enrollments
-- refer to them. Locks are taken in this order, each by id: student, route, bus, driver, transport_staff.

create table bus (
  id bigserial primary key,
  registration_number text not null
    constraint bus_registration_number_check check (length(registration_number) between 1 and 50),
  capacity integer not null
    constraint bus_capacity_check check (capacity between 1 and 500),
  model text,
  insurance_expires_on date,
  fitness_expires_on date,
  is_active boolean not null default true,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table bus is
  'A bus that carries students. capacity is the number of seats for students. The insurance and the fitness '
  'certificate are valid through their expiry dates.';
create unique index bus_registration_number_key on bus (lower(registration_number)) where deleted_at is null;
create policy students_see_no_buses on bus as restrictive
  using (nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null);

create table driver (
  id bigserial primary key,
  name text not null
    constraint driver_name_check check (length(name) between 1 and 100),
  phone text,
  license_number text not null
    constraint driver_license_number_check check (length(license_number) between 1 and 50),
  license_expires_on date,
  address text,
  is_active boolean not null default true,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table driver is 'A bus driver.';
create unique index driver_license_number_key on driver (lower(license_number)) where deleted_at is null;
create policy students_see_no_drivers on driver as restrictive
  using (nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null);

create table transport_staff (
  id bigserial primary key,
  name text not null
    constraint transport_staff_name_check check (length(name) between 1 and 100),
  phone text,
  role text not null
    constraint transport_staff_role_check check (role in ('attendant', 'supervisor', 'mechanic')),
  is_active boolean not null default true,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table transport_staff is 'Transport staff other than drivers.';
create policy students_see_no_staff on transport_staff as restrictive
  using (nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null);

create table route (
  id bigserial primary key,
  name text not null
    constraint route_name_check check (length(name) between 1 and 100),
  code text
    constraint route_code_check check (length(code) between 1 and 50),
  start_point text,
  end_point text,
  distance_km numeric(6,2)
    constraint route_distance_km_check check (distance_km >= 0),
  bus_id bigint references bus (id) on delete restrict,
  driver_id bigint references driver (id) on delete restrict,
  is_active boolean not null default true,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table route is
  'A bus route. On days without an assignment, bus_id and driver_id run it, unless an assignment sends them to '
  'another route.';
create unique index route_code_key on route (lower(code)) where deleted_at is null;
create index route_bus_id_idx on route (bus_id);
create index route_driver_id_idx on route (driver_id);
-- Riders need the times of their bus. The functions of api show students only the routes they ride.
create policy people_see_routes on route as restrictive
  using (nullif(current_setting('app.scope', true) in ('all', 'taught', 'own'), false) is not null)
  with check (nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null);

create table stop (
  id bigserial primary key,
  route_id bigint not null references route (id) on delete restrict,
  name text not null
    constraint stop_name_check check (length(name) between 1 and 100),
  sequence integer
    constraint stop_sequence_check check (sequence > 0),
  pickup_time time,
  drop_time time,
  latitude numeric(9,6)
    constraint stop_latitude_check check (latitude between -90 and 90),
  longitude numeric(9,6)
    constraint stop_longitude_check check (longitude between -180 and 180),
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint stop_deleted_at_check check ((deleted_at is null) = (sequence is not null)),
  constraint stop_route_key unique (id, route_id),
  -- Deferrable constraints are checked at the end of each statement, so that one statement can reorder all stops.
  constraint stop_sequence_key unique (route_id, sequence) deferrable initially immediate
);
comment on table stop is
  'A stop of a route. sequence is its position on the way to school, from 1 without gaps; a deleted stop has none.';
create policy people_see_stops on stop as restrictive
  using (nullif(current_setting('app.scope', true) in ('all', 'taught', 'own'), false) is not null)
  with check (nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null);

create table transport_enrollment (
  id bigserial primary key,
  student_id bigint not null references student (id) on delete restrict,
  route_id bigint not null references route (id) on delete restrict,
  stop_id bigint not null,
  enrollment_type text not null
    constraint transport_enrollment_enrollment_type_check check (enrollment_type in ('pickup', 'drop', 'both')),
  status text not null default 'active'
    constraint transport_enrollment_status_check check (status in ('active', 'cancelled')),
  cancelled_at timestamptz,
  cancelled_by bigint references user_account (id) on delete set null,
  cancelled_by_name text,
  cancel_reason text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint transport_enrollment_cancelled_at_check check ((cancelled_at is null) = (status = 'active')),
  constraint transport_enrollment_stop_id_fkey foreign key (stop_id, route_id)
    references stop (id, route_id) on delete restrict
);
comment on table transport_enrollment is
  e'A student who rides a route: the stop and the directions. Canceled enrollments are kept.'
  '\n@grants select, insert, update';
comment on column transport_enrollment.cancelled_by_name is
  'A copy of the name of cancelled_by, because students cannot read other users.';
create unique index transport_enrollment_active_key on transport_enrollment (student_id) where status = 'active';
create index transport_enrollment_student_id_idx on transport_enrollment (student_id, id);
create index transport_enrollment_route_id_idx on transport_enrollment (route_id, status);
create index transport_enrollment_stop_id_idx on transport_enrollment (stop_id, route_id, status);
create index transport_enrollment_cancelled_by_idx on transport_enrollment (cancelled_by);
create index transport_enrollment_created_at_idx on transport_enrollment (created_at, id);
-- In the taught scope, api functions find an enrollment through its student, and the policy of student applies.
create policy students_see_themselves on transport_enrollment as restrictive
  using (
    nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null
    or student_id = nullif(current_setting('app.student_id', true), '')::bigint
  );
-- Seats are counted over all riders, so only a user who can see all of them may enroll a student.
create policy students_enroll_nobody on transport_enrollment as restrictive for insert
  with check (nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null);
insert into state_transition (entity, action, from_state, to_state) values
  ('transport enrollment', 'cancel', 'active', 'cancelled');
create trigger transition before update of status on transport_enrollment
  for each row execute function enforce_transition('transport enrollment');

create table bus_assignment (
  id bigserial primary key,
  bus_id bigint not null references bus (id) on delete restrict,
  route_id bigint not null references route (id) on delete restrict,
  driver_id bigint not null references driver (id) on delete restrict,
  staff_id bigint references transport_staff (id) on delete restrict,
  starts_on date not null,
  ends_on date,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint bus_assignment_ends_on_check check (ends_on >= starts_on),
  constraint bus_assignment_bus_id_excl
    exclude using gist (bus_id with =, daterange(starts_on, ends_on, '[]') with &&),
  constraint bus_assignment_route_id_excl
    exclude using gist (route_id with =, daterange(starts_on, ends_on, '[]') with &&),
  constraint bus_assignment_driver_id_excl
    exclude using gist (driver_id with =, daterange(starts_on, ends_on, '[]') with &&),
  constraint bus_assignment_staff_id_excl
    exclude using gist (staff_id with =, daterange(starts_on, ends_on, '[]') with &&)
);
comment on table bus_assignment is
  'The bus, driver and staff member who run a route from starts_on through ends_on, or until further notice.';
create index bus_assignment_starts_on_idx on bus_assignment (starts_on, id);
create policy students_see_no_assignments on bus_assignment as restrictive
  using (nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null);

create table route_exception (
  id bigserial primary key,
  route_id bigint not null references route (id) on delete restrict,
  date date not null,
  kind text not null
    constraint route_exception_kind_check check (kind in ('cancelled', 'replaced')),
  bus_id bigint references bus (id) on delete restrict,
  driver_id bigint references driver (id) on delete restrict,
  reason text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint route_exception_bus_id_check check ((kind = 'replaced') = (num_nonnulls(bus_id, driver_id) > 0)),
  constraint route_exception_date_key unique (route_id, date),
  -- A bus or driver replaces another at most once a day.
  constraint route_exception_bus_id_key unique (bus_id, date),
  constraint route_exception_driver_id_key unique (driver_id, date)
);
comment on table route_exception is
  'A day on which a route is canceled, or runs with another bus or driver.';
create index route_exception_date_idx on route_exception (date, id);
create policy students_see_no_exceptions on route_exception as restrictive
  using (nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null);

create table transport_fee_plan (
  id bigserial primary key,
  fee_component_id bigint not null references fee_component (id) on delete restrict,
  route_id bigint references route (id) on delete restrict,
  min_km numeric(6,2)
    constraint transport_fee_plan_min_km_check check (min_km >= 0),
  max_km numeric(6,2),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint transport_fee_plan_max_km_check check (max_km > coalesce(min_km, 0)),
  constraint transport_fee_plan_route_id_check check (route_id is null or num_nonnulls(min_km, max_km) = 0)
);
comment on table transport_fee_plan is
  'A transport fee. It applies to one route, to routes of min_km or more and less than max_km, or to all routes. '
  'Its name, year, amount and frequency are those of fee_component and its fee structure.';
create unique index transport_fee_plan_fee_component_id_key on transport_fee_plan (fee_component_id);
create index transport_fee_plan_route_id_idx on transport_fee_plan (route_id);
create policy students_see_no_plans on transport_fee_plan as restrictive
  using (nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null);

create function route_buses(p_route_id bigint) returns table (bus_id bigint)
  language sql stable rows 2 set search_path from current as $$
  with today as (
    select (now() at time zone coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC'))::date as date
  ),
  assigned as (
    select a.bus_id, daterange(a.starts_on, a.ends_on, '[]') as days
    from bus_assignment a, today
    where a.route_id = p_route_id and (a.ends_on is null or a.ends_on >= today.date)
  )
  select a.bus_id from assigned a
  union
  select r.bus_id
  from route r, today
  where r.id = p_route_id
    and r.bus_id is not null
    and not coalesce((select range_agg(days) from assigned) @> daterange(today.date, null), false);
$$;
comment on function route_buses is
  'The buses that run a route from today on: those of its assignments, and its own bus if some day has no '
  'assignment. A route exception does not change the seats of a route.';
grant execute on function route_buses to school_tenant;

create function transport_require_seats(p_route_ids bigint[], p_path text) returns void
  language plpgsql set search_path from current as $$
declare
  v_message text;
begin
  select format(
      '%s has %s %s, and %s students would ride it %s school.',
      r.name,
      seats.number,
      case seats.number when 1 then 'seat' else 'seats' end,
      greatest(riding.pickup, riding.drop),
      case when riding.pickup >= riding.drop then 'to' else 'from' end
    )
    into v_message
    from route r
    cross join lateral (
      select min(capacity) as number from bus where id in (select b.bus_id from route_buses(r.id) b)
    ) seats
    cross join lateral (
      select
        count(*) filter (where enrollment_type <> 'drop') as pickup,
        count(*) filter (where enrollment_type <> 'pickup') as drop
      from transport_enrollment e
      where e.route_id = r.id and e.status = 'active'
    ) riding
    where r.id = any (p_route_ids) and greatest(riding.pickup, riding.drop) > seats.number
    order by r.id
    limit 1;
  if found then
    raise exception using errcode = 'S409A', message = v_message,
      detail = json_build_array(json_build_object('path', p_path, 'message', v_message));
  end if;
end $$;
comment on function transport_require_seats is
  'Raises conflict for the field p_path if, in one direction, more students ride a route than its smallest bus has '
  'seats.';
grant execute on function transport_require_seats to school_tenant;

-- Locks the route and its buses before the seats are counted. A concurrent change of the route's bus or of the
-- capacity of a bus then waits for this transaction, or this one waits for it.
create function transport_enrollment_check_seats() returns trigger
  language plpgsql set search_path from current as $$
declare
  v_route_ids bigint[] := array(select distinct route_id from new_enrollments where status = 'active');
begin
  perform from route where id = any (v_route_ids) order by id for no key update;
  perform from bus
    where id in (select b.bus_id from unnest(v_route_ids) r (id), route_buses(r.id) b)
    order by id
    for share;
  perform transport_require_seats(v_route_ids, 'route_id');
  return null;
end $$;
create trigger check_seats after insert on transport_enrollment
  referencing new table as new_enrollments
  for each statement execute function transport_enrollment_check_seats();

-- Checks the seats of a route whose buses have changed. tg_argv[0] is the column with the id of the route.
create function transport_check_seats_of_route() returns trigger language plpgsql set search_path from current as $$
declare
  v_row jsonb := case tg_op when 'DELETE' then to_jsonb(old) else to_jsonb(new) end;
  v_route_id bigint := (v_row ->> tg_argv[0])::bigint;
begin
  perform from route where id = v_route_id for no key update;
  perform from bus where id in (select b.bus_id from route_buses(v_route_id) b) order by id for share;
  perform transport_require_seats(array[v_route_id], 'bus_id');
  return null;
end $$;
create trigger check_seats after update of bus_id on route
  for each row when (new.bus_id is distinct from old.bus_id)
  execute function transport_check_seats_of_route('id');
-- Ending or deleting an assignment gives the route back to its own bus.
create trigger check_seats after insert or update or delete on bus_assignment
  for each row execute function transport_check_seats_of_route('route_id');

-- Checks the seats of all routes of a bus that lost seats.
create function bus_check_seats() returns trigger language plpgsql set search_path from current as $$
begin
  perform transport_require_seats(
    array(select r.id from route r where new.id in (select b.bus_id from route_buses(r.id) b) order by r.id),
    'capacity'
  );
  return null;
end $$;
create trigger check_seats after update of capacity on bus
  for each row when (new.capacity < old.capacity)
  execute function bus_check_seats();

-- A student who is deleted gives up the seat.
create function student_leave_transport() returns trigger language plpgsql set search_path from current as $$
begin
  update transport_enrollment
    set status = 'cancelled', cancelled_at = now(), cancel_reason = 'The student was removed.'
    where student_id = new.id and status = 'active';
  return null;
end $$;
create trigger leave_transport after update of deleted_at on student
  for each row when (old.deleted_at is null and new.deleted_at is not null)
  execute function student_leave_transport();
