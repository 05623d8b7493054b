-- /api/transport/dashboard, /fee-plans and /export, and the functions that the other transport files share.

select core.define_operation('transport_dashboard', p_permission => 'transport.read', p_feature => 'transport');
select core.define_operation('transport_fee_plans_list', p_permission => 'transport.read', p_feature => 'transport');
select core.define_operation('transport_fee_plans_create', p_permission => 'transport.manage',
  p_feature => 'transport', p_idempotent => true, p_record => 'transport_fee_plan',
  p_errors => '{conflict,invalid_reference}');
select core.define_operation('transport_fee_plans_get', p_permission => 'transport.read', p_feature => 'transport',
  p_record => 'transport_fee_plan');
select core.define_operation('transport_fee_plans_update', p_permission => 'transport.manage',
  p_feature => 'transport', p_record => 'transport_fee_plan', p_errors => '{conflict,in_use,invalid_reference}');
select core.define_operation('transport_fee_plans_delete', p_permission => 'transport.manage',
  p_feature => 'transport', p_record => 'transport_fee_plan', p_errors => '{in_use}');
select core.define_operation('transport_fee_plans_generate', p_permission => 'fee.manage', p_feature => 'transport',
  p_idempotent => true, p_errors => '{conflict,invalid_state,invalid_reference}');
select core.define_operation('transport_contact_sheet', p_permission => 'transport.read', p_feature => 'transport',
  p_errors => '{not_found}');

-- A plan is a fee structure with one component, which holds its name, amount and frequency, so that all fees of a
-- school are billed and paid in one place.
select core.define_record('transport_fee_plan', p_table => 'transport_fee_plan', p_key => 'fp.id',
  p_one_row_per_key => true,
  p_source => $$
    transport_fee_plan fp left join fee_component fc on fc.id = fp.fee_component_id
      left join fee_structure fs on fs.id = fc.fee_structure_id
    left join academic_year y on y.id = fs.academic_year_id left join route r on r.id = fp.route_id
  $$,
  p_columns => $$
    fp.id, fs.name, fs.academic_year_id, y.name as academic_year_name, fp.route_id, r.name as route_name, fp.min_km,
    fp.max_km, fc.amount, fc.frequency,
    fs.id as fee_structure_id, (
      -- Grouped, so that the enrollments are counted once for all plans.
      select coalesce(sum(riders.number), 0)::bigint
      from (
        select e.route_id, count(*) as number from transport_enrollment e
        where core.rides(e.cancelled_at, now()) group by e.route_id
      ) riders
      join route ridden on ridden.id = riders.route_id
      where api.fee_plan_applies(ridden.id, ridden.distance_km, fp.route_id, fp.min_km, fp.max_km)) as student_count,
    fp.created_at, fp.updated_at
  $$,
  p_search => 'public.search_form(fs.name)',
  p_equals => '{route_id,fs.academic_year_id}',
  p_default_sort => 'name',
  p_writable => '{route_id,min_km,max_km}',
  p_volatile_fields => '{student_count}');
select core.define_sort('transport_fee_plan', 'name', 'platform.search_normal(fs.name)');
select core.define_sort('transport_fee_plan', 'amount', 'fc.amount');
select core.define_sort('transport_fee_plan', 'created_at', 'fp.created_at');

select core.define_functions('transport_fee_plans', 'transport_fee_plan',
  p_list => 'Fee plans by name. Searches the name. Filters: route_id, academic_year_id.',
  p_get => 'One fee plan. Raises not_found.');

create function api.transport_delete(p_table text, p_id bigint) returns json language plpgsql as $$
declare
  v_routes text;
begin
  select string_agg(r.name, ', ' order by r.name)
    into v_routes
    from route r
    where r.id in (
      select id from route
        where deleted_at is null and p_id = case p_table when 'bus' then bus_id when 'driver' then driver_id end
      union all
      select route_id from bus_assignment
        where p_id = case p_table when 'bus' then bus_id when 'driver' then driver_id else staff_id end
          and (ends_on is null or ends_on >= core.today())
      union all
      select route_id from route_exception
        where p_id = case p_table when 'bus' then bus_id when 'driver' then driver_id end and date >= core.today()
    );
  if v_routes is not null then
    perform core.fail('in_use', format('Still used by these routes: %s. Change them first.', v_routes));
  end if;
  execute format('update %I set deleted_at = now() where id = $1', p_table) using p_id;
  return json_build_object('id', p_id);
end $$;
comment on function api.transport_delete is
  'Soft-deletes a row of bus, driver or transport_staff. Raises in_use while a route, a current or future assignment '
  'or a future replacement uses it.';

create function api.transport_require(p_table text, p_id bigint, p_path text) returns void language plpgsql as $$
declare
  v_found boolean;
begin
  execute format('select true from %I where id = $1 and deleted_at is null for no key update', p_table)
    into v_found using p_id;
  if p_id is not null and v_found is null then
    perform core.refuse_field('invalid_reference', p_path,
      format('There is no %s %s.', replace(p_table, '_', ' '), p_id));
  end if;
end $$;
comment on function api.transport_require is
  'Locks a row of bus, driver, transport_staff or route until the end of the transaction; null locks nothing. '
  'Raises invalid_reference, with the field p_path, if there is no such row.';

create function api.transport_expiring(p_days integer)
  returns table (
    kind text, bus_id bigint, driver_id bigint, name text, expires_on date, days_left integer, is_expired boolean
  ) language sql stable as $$
  select p.kind, p.bus_id, p.driver_id, p.name, p.expires_on, p.expires_on - core.today(), p.expires_on < core.today()
  from (
    select 'insurance' as kind, id as bus_id, null::bigint as driver_id, registration_number as name,
      insurance_expires_on as expires_on
    from bus where is_active and deleted_at is null
    union all
    select 'fitness', id, null, registration_number, fitness_expires_on from bus where is_active and deleted_at is null
    union all
    select 'license', null, id, name, license_expires_on from driver
    where not core.has_left(left_on, core.today()) and deleted_at is null
  ) p
  where p.expires_on <= core.today() + p_days
  order by p.expires_on, p.kind, p.bus_id, p.driver_id;
$$;
comment on function api.transport_expiring is
  'Documents of active buses and drivers that expire within p_days or have expired, ordered by expiry date.';

create function api.transport_expiring_notices()
  returns table (task text, run_on date, variables jsonb) language sql stable as $$
  select
    format('transport.expiring:%s:%s:%s', x.kind, coalesce(x.bus_id, x.driver_id),
      case when x.is_expired then 'expired' when x.days_left <= 7 then '7' else '30' end),
    x.expires_on,
    jsonb_build_object(
      'document', case x.kind
        when 'insurance' then 'The insurance'
        when 'fitness' then 'The fitness certificate'
        else 'The driving license'
      end,
      'subject', case when x.bus_id is null then x.name else 'bus ' || x.name end,
      'expires_on', core.written_day(x.expires_on),
      'in_days', case
        when x.days_left = -1 then 'yesterday'
        when x.days_left < 0 then format('%s days ago', -x.days_left)
        when x.days_left = 0 then 'today'
        when x.days_left = 1 then 'tomorrow'
        else format('in %s days', x.days_left)
      end)
  from api.transport_expiring(30) x;
$$;
comment on function api.transport_expiring_notices is
  'The notices about expiring documents: one per document with 30 days left, with 7 days left and after expiry. '
  '(task, run_on) identifies a notice in daily_run, so that a missed day is made up for and no notice is sent twice.';

create function api.transport_managers() returns setof bigint language sql stable as $$
  with holder as (
    select distinct u.id, r.is_system and r.name = 'admin' as is_admin
    from role r
    join user_role ur on ur.role_id = r.id
    join user_account u on u.id = ur.user_id
    where u.is_active and u.deleted_at is null
      and (r.is_system and r.name = 'admin' or r.id in (
        select rp.role_id
        from role_permission rp
        join core.permission p on p.id = rp.permission_id
        where p.name = 'transport.manage'))
  )
  select distinct id from holder where not is_admin or not exists (select from holder where not is_admin);
$$;
comment on function api.transport_managers is
  'The users to notify about transport: those with transport.manage from a role other than admin, else the admins. '
  'Needs the scope "all".';

create function api.transport_recipients(p jsonb) returns jsonb language sql stable as $$
  select jsonb_agg(jsonb_build_object('user_id', m.id, 'variables', x.variables) order by x.run_on, x.task, m.id)
  from jsonb_to_recordset(p -> 'notices') n (task text, run_on date)
  join api.transport_expiring_notices() x using (task, run_on)
  cross join api.transport_managers() m (id)
$$;
comment on function api.transport_recipients is
  'The recipients of transport.expiring, {notices: [{task, run_on}]}: api.transport_managers(). Leaves out documents '
  'that have been renewed since.';

create function api.transport_dashboard(p jsonb) returns json language plpgsql stable as $$
declare
  v_answer json;
begin
  with today as materialized (
    select d.date, d.is_school_day, d.holiday from api.days_between(core.today(), core.today()) d
  ),
  enrolled as materialized (
    select route_id, count(*) as students,
      count(*) filter (where enrollment_type <> 'drop') as pickup,
      count(*) filter (where enrollment_type <> 'pickup') as drop
    from transport_enrollment
    where core.rides(cancelled_at, now())
    group by route_id
  ),
  route_today as materialized (
    select r.id, r.name, r.code, r.is_active, t.status, t.reason, t.exception_id,
      t.bus_id, t.registration_number, t.capacity, t.driver_id, t.driver_name,
      coalesce(e.students, 0) as students, coalesce(e.pickup, 0) as pickup, coalesce(e.drop, 0) as drop
    from route r
    left join api.transport_plan(core.today(), core.today()) t on t.route_id = r.id
    left join enrolled e on e.route_id = r.id
    where r.deleted_at is null
  )
  select json_build_object(
      'date', today.date,
      'is_school_day', today.is_school_day,
      'holiday', today.holiday,
      'buses', (
        select json_build_object(
          'total', count(*),
          'active', count(*) filter (where is_active),
          'seats', coalesce(sum(capacity) filter (where is_active), 0))
        from bus where deleted_at is null),
      'drivers', (
        select json_build_object(
          'total', count(*), 'active', count(*) filter (where not core.has_left(left_on, today.date)))
        from driver where deleted_at is null),
      'staff', (
        select json_build_object('total', count(*), 'active', count(*) filter (where is_active))
        from transport_staff where deleted_at is null),
      'routes', (
        select json_build_object('total', count(*), 'active', count(*) filter (where is_active)) from route_today),
      'enrollments', (
        select json_build_object(
          'active', coalesce(sum(students), 0),
          'pickup', coalesce(sum(pickup), 0),
          'drop', coalesce(sum(drop), 0))
        from enrolled),
      'occupancy', (
        select coalesce(json_agg(json_build_object(
            'route_id', id,
            'route_name', name,
            'bus_id', bus_id,
            'bus_registration_number', registration_number,
            'driver_id', driver_id,
            'driver_name', driver_name,
            'capacity', capacity,
            'student_count', students,
            'pickup_count', pickup,
            'drop_count', drop,
            'seats_left', capacity - greatest(pickup, drop),
            'percent', round(100.0 * greatest(pickup, drop) / capacity))
          order by platform.search_normal(name), id), '[]')
        from route_today where is_active),
      'exceptions', (
        select coalesce(json_agg(json_build_object(
            'id', exception_id,
            'route_id', id,
            'route_name', name,
            'kind', status,
            'bus_id', bus_id,
            'bus_registration_number', registration_number,
            'driver_id', driver_id,
            'driver_name', driver_name,
            'reason', reason,
            'student_count', students)
          order by platform.search_normal(name), id), '[]')
        from route_today where exception_id is not null),
      'expiring', (select coalesce(json_agg(x), '[]') from api.transport_expiring(30) x),
      'without_bus', (
        select coalesce(json_agg(
            json_build_object('route_id', id, 'route_name', name, 'student_count', students)
          order by platform.search_normal(name), id), '[]')
        from route_today
        where students > 0 and bus_id is null and status is distinct from 'cancelled'),
      -- The seat of a student ends when they leave.
      'inactive_students', '[]'::json)
    into v_answer
    from today;
  return v_answer;
end $$;
comment on function api.transport_dashboard is
  'Transport today: totals, occupancy of each route, exceptions, documents that expire within 30 days, routes with '
  'students but no bus.';

create function api.transport_riders(p_date date)
  returns table (student_id bigint, route_id bigint, distance_km numeric) language sql stable as $$
  select e.student_id, e.route_id, r.distance_km
  from transport_enrollment e
  join route r on r.id = e.route_id
  where core.day_at_school(e.created_at) <= p_date
    and (e.cancelled_at is null or core.day_at_school(e.cancelled_at) > p_date);
$$;
comment on function api.transport_riders is
  'The students who were enrolled on a day, with their route and its length; includes enrollments cancelled later.';

create function api.fee_plan_applies(
  p_route_id bigint, p_distance_km numeric, p_plan_route_id bigint, p_min_km numeric, p_max_km numeric
) returns boolean language sql immutable
  return case
    when p_plan_route_id is not null then p_plan_route_id = p_route_id
    when p_min_km is null and p_max_km is null then true
    else coalesce(
      p_distance_km >= coalesce(p_min_km, 0) and (p_max_km is null or p_distance_km < p_max_km), false)
  end;
comment on function api.fee_plan_applies is
  'Whether a fee plan applies to a route: by route, by length (at least p_min_km and less than p_max_km), or always.';

create function api.transport_fee_plans_create(p jsonb) returns json language plpgsql as $$
declare
  v_year_id bigint :=
    coalesce((p ->> 'academic_year_id')::bigint, (select id from academic_year where is_current));
  v_id bigint;
begin
  if v_year_id is null then
    perform core.refuse_field('invalid_reference', 'academic_year_id',
      'There is no current academic year. Give academic_year_id.');
  end if;
  perform api.transport_require('route', (p ->> 'route_id')::bigint, 'route_id');
  insert into transport_fee_plan (fee_component_id, route_id, min_km, max_km)
    select (s.structure #>> '{components,0,id}')::bigint,
      (p ->> 'route_id')::bigint, (p ->> 'min_km')::numeric, (p ->> 'max_km')::numeric
    from api.fee_structures_create(jsonb_build_object(
      'name', p -> 'name',
      'academic_year_id', v_year_id,
      'description', 'Transport',
      'components', jsonb_build_array(jsonb_build_object(
        'name', p -> 'name', 'amount', p -> 'amount', 'frequency', p -> 'frequency')))) s (structure)
    returning id into v_id;
  return api.transport_fee_plan_record(v_id);
end $$;
comment on function api.transport_fee_plans_create is
  'Creates a fee plan with its fee structure: {name, amount, frequency, route_id or min_km and max_km, '
  'academic_year_id (the current one)}. Raises conflict if the year has a fee structure of this name.';

create function api.transport_fee_plans_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := core.record_update('transport_fee_plan', p);
  v_component_id bigint := (select fee_component_id from transport_fee_plan where id = v_id);
begin
  perform api.transport_require('route', (p ->> 'route_id')::bigint, 'route_id');
  if (p ->> 'frequency' <> (select frequency from fee_component where id = v_component_id)
      or p ->> 'frequency' is not null and not core.may_compare())
     and exists (select from student_fee_item where fee_component_id = v_component_id) then
    perform core.refuse_field('in_use', 'frequency',
      'Fees were already billed with this plan. Create another plan for another frequency.');
  end if;
  update fee_component
    set name = coalesce(p ->> 'name', name),
      amount = coalesce(
        core.as_amount((p ->> 'amount')::numeric, core.currency_decimals(core.school_currency()), amount), amount),
      frequency = coalesce(p ->> 'frequency', frequency)
    where id = v_component_id;
  if p ? 'name' then
    update fee_structure
      set name = p ->> 'name'
      where id = (select fee_structure_id from fee_component where id = v_component_id);
  end if;
  return api.transport_fee_plan_record(v_id);
end $$;
comment on function api.transport_fee_plans_update is
  'Updates a fee plan; the academic year cannot be changed, billed fees keep their name and amount. Raises in_use for '
  'another frequency after fees were billed.';

create function api.transport_fee_plans_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_structure json := json_build_object('id', api.transport_fee_plan_record(v_id) -> 'fee_structure_id');
begin
  delete from transport_fee_plan where id = v_id;
  perform api.fee_structures_delete(v_structure::jsonb);
  return json_build_object('id', v_id);
end $$;
comment on function api.transport_fee_plans_delete is
  'Deletes a fee plan and its fee structure. Raises in_use if fees were billed with it.';

create function api.transport_fee_plans_generate(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_plan record;
begin
  -- A run that bills only the students of some classes would look like a complete one.
  perform core.require_whole_school();
  if not 'fees_management' = any (core.tenant_features()) then
    perform core.fail('feature_disabled', 'The feature fees_management is not enabled for this school.');
  end if;
  perform core.record_lock('transport_fee_plan', v_id);
  select fs.id as fee_structure_id, fp.route_id, fp.min_km, fp.max_km,
      coalesce((p ->> 'date')::date, least(greatest(core.today(), y.start_date), y.end_date)) as date
    into v_plan
    from transport_fee_plan fp
    join fee_component fc on fc.id = fp.fee_component_id
    join fee_structure fs on fs.id = fc.fee_structure_id
    join academic_year y on y.id = fs.academic_year_id
    where fp.id = v_id;
  -- The fee structure is assigned to no class: without explicit students it would bill nobody.
  return api.bill_students(
    p - 'id' || jsonb_build_object(
      'fee_structure_id', v_plan.fee_structure_id,
      'date', v_plan.date,
      'student_ids', (
        select coalesce(jsonb_agg(distinct rider.student_id), '[]')
        from api.transport_riders(v_plan.date) rider
        where api.fee_plan_applies(
          rider.route_id, rider.distance_km, v_plan.route_id, v_plan.min_km, v_plan.max_km))),
    p_all_classes => true);
end $$;
comment on function api.transport_fee_plans_generate is
  'Bills the students to whom the plan applies on a day, for the period that contains it: {date, due_date, dry_run}. '
  'Answers and raises what student_fees_generate does; also feature_disabled without fees_management, and forbidden '
  'for a user who does not see the whole school.';

create function api.transport_contact_sheet(p jsonb) returns json language plpgsql stable as $$
declare
  v_route_ids bigint[];
  v_answer json;
begin
  if p ? 'after' then
    v_route_ids := array(select jsonb_array_elements_text(p -> 'after')::bigint);
  elsif p ? 'route_id' then
    perform api.route_record((p ->> 'route_id')::bigint);
    v_route_ids := array[(p ->> 'route_id')::bigint];
  else
    v_route_ids := array(
      select id from route where deleted_at is null order by platform.search_normal(name), id);
  end if;
  with enrolled as materialized (
    select route_id, count(*) as students
    from transport_enrollment
    where core.rides(cancelled_at, now()) and route_id = any (v_route_ids)
    group by route_id
  ),
  requested_route as materialized (
    select i.id, i.n,
      coalesce(sum(r.students) over (order by i.n rows between unbounded preceding and 1 preceding), 0) as before
    from unnest(v_route_ids) with ordinality i (id, n)
    join enrolled r on r.route_id = i.id
  )
  select json_build_object(
      'rows', coalesce(json_agg(cells order by n, sequence, last_name, first_name, enrollment_id), '[]'),
      'date', core.today(),
      'next', (select json_agg(id order by n) from requested_route where before >= (p ->> 'limit')::integer))
    into v_answer
    from (
      select w.n, st.sequence,
        platform.search_normal(s.last_name) as last_name,
        platform.search_normal(s.first_name) as first_name,
        e.id as enrollment_id,
        json_build_array(
          r.name, t.registration_number, st.sequence, st.name,
          to_char(st.pickup_time, 'HH24:MI'), to_char(st.drop_time, 'HH24:MI'),
          core.full_name(s.first_name, s.last_name), s.admission_number, api.class_name(c.name, c.section),
          e.enrollment_type, case when not core.hides_contacts(s.id) then s.parent_name end,
          case when not core.hides_contacts(s.id) then s.parent_phone end) as cells
      from requested_route w
      join route r on r.id = w.id
      join transport_enrollment e on e.route_id = w.id and core.rides(e.cancelled_at, now())
      join stop st on st.id = e.stop_id
      join student s on s.id = e.student_id
      left join class c on c.id = s.class_id
      left join api.transport_plan(core.today(), core.today()) t on t.route_id = w.id
      where w.before < (p ->> 'limit')::integer
    ) page;
  return v_answer;
end $$;
comment on function api.transport_contact_sheet is
  'One page of the contact sheet: {rows, next, date}, ordered by route, stop and student. The first page fixes the '
  'order of the routes and passes the remaining ones on in next, and a page holds whole routes, so that concurrent '
  'changes neither repeat nor skip a student. Raises not_found for an unknown route_id.';
