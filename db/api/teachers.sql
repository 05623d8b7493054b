-- /api/teachers: teachers, their classes, schedule, leaves, availability and workload. Teachers see only the public
-- columns of other teachers. Private columns are visible to users whose scope is the whole school and to the teacher
-- (core.can_see_teacher_details).

select core.define_operation('teachers_list', p_permission => 'teacher.read');
select core.define_operation('teachers_get', p_permission => 'teacher.read', p_record => 'teacher');
select core.define_operation('teachers_create', p_permission => 'teacher.create', p_idempotent => true,
  p_record => 'teacher', p_errors => '{plan_limit_reached,conflict}');
select core.define_operation('teachers_update', p_permission => 'teacher.update', p_record => 'teacher',
  p_errors => '{plan_limit_reached,conflict}');
select core.define_operation('teachers_delete', p_permission => 'teacher.delete', p_record => 'teacher',
  p_errors => '{conflict,in_use}');
select core.define_operation('teachers_me', p_errors => '{not_found}');
select core.define_operation('teachers_me_today', p_permission => 'timetable.read', p_errors => '{not_found}');
select core.define_operation('teachers_me_classes', p_errors => '{not_found}');
select core.define_operation('teachers_leaves_list_all', p_permission => 'leave.manage');
select core.define_operation('teachers_leaves_create', p_permission => 'leave.manage', p_allows_own_rows => true,
  p_idempotent => true, p_record => 'teacher_leave', p_errors => '{conflict,invalid_reference}');
select core.define_operation('teachers_leaves_list', p_permission => 'teacher.read', p_allows_own_rows => true);
select core.define_operation('teachers_leaves_decide', p_permission => 'leave.manage', p_record => 'teacher_leave',
  p_present => 'record', p_errors => '{conflict,invalid_state}');
select core.define_operation('teachers_leaves_delete', p_permission => 'leave.manage', p_allows_own_rows => true,
  p_record => 'teacher_leave', p_errors => '{invalid_state}');
select core.define_operation('teachers_availability_get', p_permission => 'teacher.read', p_allows_own_rows => true,
  p_unversioned_fields => '{}');
-- Locks the configuration as the writers of slots do, so that no slot is written while the availability changes.
select core.define_operation('teachers_availability_set', p_permission => 'teacher.update',
  p_errors => '{conflict,schedule_conflict}', p_present => 'teachers_availability_get',
  p_lock_first => 'timetable_config', p_locked_by => 'lock_given_teacher');
select core.define_operation('teachers_workload_get', p_permission => 'teacher.read', p_allows_own_rows => true,
  p_record => 'teacher_workload');
select core.define_operation('teachers_workload_set', p_permission => 'teacher.update',
  p_record => 'teacher_workload', p_present => 'record');

select core.define_record('teacher', p_table => 'teacher', p_key => 't.id',
  p_source => 'teacher t left join lateral (select t.*) private on core.can_see_teacher_details(t.id)',
  p_columns => $$
    t.id, t.first_name, t.last_name, t.email, private.phone, private.employee_number, private.qualification,
    t.specialization,
    private.joined_on, private.date_of_birth, private.gender, private.address,
    not core.has_left(t.left_on, core.today()) as is_active, t.left_on, private.leaving_reason, private.user_id,
    private.max_periods_per_day, private.max_periods_per_week, t.deleted_at, t.created_at, t.updated_at
  $$,
  p_condition => 't.deleted_at is null',
  p_search => 't.search_text',
  p_default_sort => 'last_name',
  p_writable => '{first_name,last_name,email,phone,employee_number,qualification,specialization,joined_on,
    date_of_birth,gender,address,left_on,leaving_reason,user_id}');
select core.define_filter('teacher', 'is_active', $$
  core.has_left(t.left_on, (select core.today())) <> :value::boolean
$$);
select core.define_filter('teacher', 'class_id', $$
  t.id in (select s.teacher_id from core.class_staff() s join class c on c.id = s.class_id where c.id = :value::bigint)
$$);
select core.define_filter('teacher', 'specialization', $$
  public.search_form(t.specialization) = public.search_form(:value)
$$);
select core.define_filter('teacher', 'search_in_directory', $$
  (select bool_and(strpos(public.search_form(concat_ws(' ', t.first_name, t.last_name, t.email)), word) > 0)
    from regexp_split_to_table(public.search_form(:value), '\s+') word)
$$);
select core.define_sort('teacher', 'last_name',
  'platform.search_normal(t.last_name)', 'platform.search_normal(t.first_name)');
select core.define_sort('teacher', 'first_name',
  'platform.search_normal(t.first_name)', 'platform.search_normal(t.last_name)');
select core.define_sort('teacher', 'employee_number', 'private.employee_number nulls last');
select core.define_sort('teacher', 'joined_on', 'private.joined_on nulls last');
select core.define_sort('teacher', 'created_at', 't.created_at');

select core.define_record('teacher_class', p_table => 'class', p_key => 'c.id',
  p_source => $$
    (select class_id, teacher_id, bool_or(is_class_teacher) as is_class_teacher,
       coalesce(array_agg(distinct subject order by subject) filter (where subject is not null), '{}') as subjects
     from core.class_staff() group by class_id, teacher_id) s
    join class c on c.id = s.class_id join grade g on g.id = c.grade_id
  $$,
  p_columns => $$
    c.id as class_id, api.class_name(c.name, c.section) as class_name, c.grade_id, g.name as grade_name,
    c.academic_year_id,
    s.is_class_teacher, s.subjects,
    (select count(distinct r.student_id) from core.class_roll() r where r.class_id = c.id) as student_count
  $$,
  p_search => $$public.search_form(concat_ws(' ', c.name, c.section, g.name))$$,
  p_equals => '{s.teacher_id,academic_year_id}',
  p_default_sort => 'grade_name');
select core.define_sort('teacher_class', 'grade_name',
  'g.sequence nulls last', 'platform.search_normal(g.name)',
  'platform.search_normal(api.class_name(c.name, c.section))');
select core.define_sort('teacher_class', 'class_name', 'platform.search_normal(api.class_name(c.name, c.section))');

select core.define_record('teacher_leave', p_table => 'teacher_leave', p_key => 'l.id',
  p_source => 'teacher_leave l join teacher t on t.id = l.teacher_id',
  p_columns => $$
    l.id, l.teacher_id, core.full_name(t.first_name, t.last_name) as teacher_name, l.leave_type, l.start_date,
    l.end_date, l.end_date - l.start_date + 1 as days, l.reason, l.status, l.decided_by, l.decided_by_name,
    l.decided_at, l.decision_note, l.created_at, l.updated_at
  $$,
  p_condition => 'l.teacher_id in (select id from teacher where deleted_at is null)',
  p_search => $$public.search_form(concat_ws(' ', t.first_name, t.last_name, l.leave_type, l.reason))$$,
  p_equals => '{teacher_id,status}',
  p_default_sort => 'start_date', p_default_order => 'desc',
  p_writable => '{teacher_id,leave_type,start_date,end_date,reason,status,decided_by,decided_by_name,decided_at,
    decision_note}');
select core.define_filter('teacher_leave', 'academic_year_id', $$
  exists (select from academic_year y where y.id = :value::bigint and l.start_date <= y.end_date
    and l.end_date >= y.start_date)
$$);
select core.define_sort('teacher_leave', 'start_date', 'l.start_date');
select core.define_sort('teacher_leave', 'created_at', 'l.created_at');

-- All numbers are of the current academic year. assigned: slots in the timetable. planned: periods per week of the
-- class subjects.
select core.define_record('teacher_workload', p_table => 'teacher', p_key => 't.id',
  p_source => $$
    teacher t
    cross join lateral (
      select coalesce(sum(periods), 0)::integer as periods, max(periods) as max_per_day,
        coalesce(json_agg(json_build_object('day_of_week', day_of_week, 'periods', periods) order by day_of_week),
          '[]') as per_day
      from (
        select day as day_of_week, count(s.id) as periods
        from timetable_config c cross join generate_series(1, 7) day
        left join (timetable_slot s join academic_year y on y.id = s.academic_year_id
          and y.is_current) on s.teacher_id = t.id and s.day_of_week = day
        group by day, c.working_days having count(s.id) > 0 or day = any (c.working_days)
      ) days
    ) assigned
    cross join lateral (
      select coalesce(sum(cs.periods_per_week), 0)::integer as periods
      from class_subject cs join class c on c.id = cs.class_id join academic_year y on y.id = c.academic_year_id
        and y.is_current
      where cs.teacher_id = t.id
    ) planned
  $$,
  p_columns => $$
    t.id as teacher_id, t.max_periods_per_day, t.max_periods_per_week, assigned.periods as assigned_periods,
    planned.periods as planned_periods, assigned.per_day,
    coalesce(greatest(assigned.periods, planned.periods) > t.max_periods_per_week, false)
      or coalesce(assigned.max_per_day > t.max_periods_per_day, false) as is_over_limit
  $$,
  p_condition => 't.deleted_at is null and core.can_see_teacher_details(t.id)',
  p_writable => '{max_periods_per_day,max_periods_per_week}',
  p_unversioned_fields => '{assigned_periods,planned_periods,per_day,is_over_limit}');

select core.define_functions('teachers', 'teacher',
  p_get => 'One teacher. Raises not_found, also for a deleted teacher.');
select core.define_functions('teachers_workload', 'teacher_workload',
  p_get => 'The workload of a teacher in the current academic year and its limits. Raises not_found.');

create function api.require_teacher(p_id bigint) returns void language plpgsql stable as $$
begin
  if not core.can_see_teacher_details(p_id)
     or not exists (select from teacher where id = p_id and deleted_at is null) then
    perform core.fail('not_found', format('There is no teacher %s.', p_id));
  end if;
end $$;
comment on function api.require_teacher is
  'Raises not_found unless the teacher exists and the user may see the private data of this teacher.';

create function api.own_teacher_id() returns bigint language plpgsql stable as $$
declare
  v_id bigint := api.current_teacher_id();
begin
  if v_id is null then
    perform core.fail('not_found', 'Your account is not linked to a teacher.');
  end if;
  return v_id;
end $$;
comment on function api.own_teacher_id is
  'The teacher record of the user of this request. Raises not_found for a user without one.';

create function api.teachers_list(p jsonb) returns json language sql stable as $$
  -- Search must not reveal private data. In the directory it covers only the columns that every teacher may see.
  select core.record_page('teacher', case
    when core.has_whole_school_scope() then p
    else p || jsonb_build_object('search_in_directory', p -> 'search')
  end);
$$;
comment on function api.teachers_list is
  'Teachers by last name. Searches name, email, employee number and phone; for other teachers only name and email. '
  'Filters: class_id (teachers of this class), is_active, specialization.';

create function api.teachers_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := api.person_save('teacher', p);
begin
  return api.teacher_record(v_id);
end $$;
comment on function api.teachers_create is
  'Creates a teacher: {first_name, last_name, …}. create_user_account also creates a login with the teacher role. '
  'Raises plan_limit_reached if the plan allows no more teachers, conflict for a duplicate employee number or email.';

create function api.teachers_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  perform api.require_teacher(v_id);
  perform api.person_save('teacher', p);
  return api.teacher_record(v_id);
end $$;
comment on function api.teachers_update is
  'Updates a teacher. create_user_account creates a login for a teacher who has none. Raises the errors of '
  'teachers_create; conflict also for a password if the teacher already has a login.';

create function api.teachers_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_user_id bigint;
  -- The class of a teacher who has left shows no class teacher.
  v_has_left boolean := core.has_left((select left_on from teacher where id = v_id), core.today());
  v_classes text[];
begin
  perform api.require_teacher(v_id);
  v_classes := array(
    select api.class_name(c.name, c.section)
    from class c
    join academic_year y on y.id = c.academic_year_id
    where y.end_date >= coalesce((select start_date from academic_year where is_current), core.today())
      and c.id in (
        select s.class_id
        from core.class_staff() s
        where s.teacher_id = v_id and not (s.is_class_teacher and v_has_left))
    order by y.start_date, c.name, c.section);
  if v_classes <> '{}' then
    perform core.fail('in_use', format(
      'This teacher still teaches %s%s. Assign another teacher there first.',
      array_to_string(v_classes[1:3], ', '),
      case when cardinality(v_classes) > 3 then format(' and %s more', cardinality(v_classes) - 3) end));
  end if;
  select user_id into v_user_id from teacher where id = v_id;
  if v_user_id is not null then
    perform api.login_remove(v_user_id);
  end if;
  if v_has_left then
    update class set class_teacher_id = null where class_teacher_id = v_id;
  end if;
  update teacher set deleted_at = now() where id = v_id;
  perform core.enforce_plan_limits();
  return json_build_object('id', v_id);
end $$;
comment on function api.teachers_delete is
  'Soft-deletes a teacher and deletes the login. The history stays; the employee number can be used again. Raises '
  'in_use while the teacher teaches a class of the current academic year or a later one.';

create function api.teachers_me(p jsonb) returns json language sql stable as $$
  select api.teacher_record(api.own_teacher_id());
$$;
comment on function api.teachers_me is
  'The teacher record of the user of this request. Raises not_found for a user without one.';

create function api.teachers_me_today(p jsonb) returns json language sql stable as $$
  select api.schedule_on(core.today(), null, api.own_teacher_id());
$$;
comment on function api.teachers_me_today is
  'The schedule of the teacher who is logged in, for today in the time zone of the school. Raises not_found for a user '
  'who is not a teacher.';

create function api.teachers_me_classes(p jsonb) returns json language sql stable as $$
  select core.record_page('teacher_class', p || jsonb_build_object(
    'teacher_id', api.own_teacher_id(),
    'academic_year_id', coalesce(
      (p ->> 'academic_year_id')::bigint,
      (select id from academic_year where is_current),
      -- Without a current academic year the list is empty. A null would switch the filter off.
      0)));
$$;
comment on function api.teachers_me_classes is
  'The classes of the teacher who is logged in. Filter: academic_year_id, by default the current academic year. Raises '
  'not_found for a user who is not a teacher.';

create function api.teachers_leaves_list_all(p jsonb) returns json language sql stable as $$
  select core.record_page('teacher_leave', p);
$$;
comment on function api.teachers_leaves_list_all is
  'Leaves of all teachers, latest first. Searches teacher, leave type and reason. Filters: teacher_id, status, '
  'academic_year_id (leaves that overlap it).';

create function api.teachers_leaves_create(p jsonb) returns json language plpgsql as $$
declare
  v_teacher_id bigint := coalesce((p ->> 'teacher_id')::bigint, api.current_teacher_id());
  v_id bigint;
begin
  if v_teacher_id is null and core.has_whole_school_scope() then
    perform core.refuse_field('invalid_reference', 'teacher_id',
      'You are not a teacher, so you have no leave of your own. Set teacher_id to the teacher who is absent.');
  elsif not core.can_see_teacher_details(v_teacher_id) then
    perform core.fail('forbidden',
      'You can request leave only for yourself. Another teacher''s leave requires the permission leave.manage.');
  elsif not exists (select from teacher where id = v_teacher_id and deleted_at is null) then
    perform core.refuse_field('invalid_reference', 'teacher_id', format('There is no teacher %s.', v_teacher_id));
  end if;
  v_id := core.record_insert('teacher_leave', p || jsonb_build_object('teacher_id', v_teacher_id));
  return api.teacher_leave_record(v_id);
end $$;
comment on function api.teachers_leaves_create is
  'Requests a leave: {leave_type, start_date, end_date, reason, teacher_id}, by default for the user. Raises forbidden '
  'for another teacher without leave.manage, invalid_reference for an unknown teacher.';

create function api.teachers_leaves_list(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.require_teacher((p ->> 'id')::bigint);
  return core.record_page('teacher_leave', p || jsonb_build_object('teacher_id', p -> 'id'));
end $$;
comment on function api.teachers_leaves_list is
  'Leaves of one teacher, latest first. Raises not_found for the teacher.';

create function api.teachers_leaves_decide(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_teacher_id bigint := (api.teacher_leave_record(v_id) ->> 'teacher_id')::bigint;
begin
  if p ->> 'status' = 'pending' then
    perform core.fail('invalid_state', 'Approve or reject the leave. A decision cannot be undone.');
  end if;
  if not core.has_permission_for_all('leave.manage') and core.can_see_teacher_details(v_teacher_id) then
    perform core.fail('forbidden', 'You cannot approve or reject your own leave. Ask another administrator.');
  end if;
  -- Serializes the decisions for one teacher. With the exclusion constraint alone, two concurrent approvals would
  -- deadlock.
  perform core.record_lock('teacher', v_teacher_id);
  perform core.record_update('teacher_leave', p || jsonb_build_object(
    'decided_by', core.user_id(), 'decided_by_name', api.user_name(), 'decided_at', now()));
  perform core.notify('leave.decided', jsonb_build_object('leave_id', v_id));
  return api.teacher_leave_record(v_id);
end $$;
comment on function api.teachers_leaves_decide is
  'Approves or rejects a leave and notifies the teacher: {status, decision_note}. Raises invalid_state for a leave '
  'that is not pending, conflict if it overlaps an approved leave, forbidden for the user''s own leave.';

create function api.leave_recipients(p jsonb) returns jsonb language sql stable as $$
  select jsonb_build_array(jsonb_build_object(
    'user_id', t.user_id,
    'email', t.email,
    'name', core.full_name(t.first_name, t.last_name),
    'variables', jsonb_build_object(
      'status', l.status,
      'start_date', core.written_day(l.start_date),
      'end_date', core.written_day(l.end_date),
      'note', l.decision_note)))
  from teacher_leave l
  join teacher t on t.id = l.teacher_id and t.deleted_at is null
  where l.id = (p ->> 'leave_id')::bigint
$$;
comment on function api.leave_recipients is
  'The recipient of leave.decided, {leave_id}: the teacher. None if the leave or the teacher has been deleted.';

create function api.teachers_leaves_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_status text := api.teacher_leave_record(v_id) ->> 'status';
begin
  if v_status <> 'pending' and not core.has_permission('leave.manage') then
    perform core.fail('invalid_state', format('This leave is %s. You can only withdraw a pending leave.', v_status));
  end if;
  delete from teacher_leave where id = v_id;
  return json_build_object('id', v_id);
end $$;
comment on function api.teachers_leaves_delete is
  'Deletes a leave. Raises invalid_state if a teacher without leave.manage deletes a leave that is not pending.';

create function api.availability_grid(p_teacher_id bigint) returns json language sql stable as $$
  select coalesce(
    json_agg(
      json_build_object('day_of_week', day, 'period', n, 'is_available', coalesce(a.is_available, true))
      order by day, n),
    '[]')
  from timetable_config c
  cross join generate_series(1, 7) day
  cross join generate_series(1, c.total_periods) n
  left join teacher_availability a on a.teacher_id = p_teacher_id and a.day_of_week = day and a.period = n
  where day = any (c.working_days) or a.teacher_id is not null;
$$;
comment on function api.availability_grid is
  'Every period of the working days and whether the teacher is available, and those periods of other days that were '
  'set: [{day_of_week, period, is_available}].';

create function api.teachers_availability_get(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.require_teacher((p ->> 'id')::bigint);
  return api.availability_grid((p ->> 'id')::bigint);
end $$;
comment on function api.teachers_availability_get is 'The availability of a teacher. Raises not_found.';

create function api.lock_given_teacher(p jsonb) returns void language plpgsql as $$
begin
  perform core.record_lock('teacher', (p ->> 'id')::bigint);
end $$;
comment on function api.lock_given_teacher is 'Locks a teacher, or raises not_found: {id}.';

create function api.require_no_slots_at(p_teacher_id bigint, p_items jsonb) returns void language plpgsql as $$
declare
  -- Teachers see only the classes that they teach. The check needs all slots of the teacher.
  v_scope text := core.widen_scope();
  v_count bigint;
  v_details json;
begin
  select
      count(*),
      json_agg(json_build_object(
          'path', (x.position - 1) || '.is_available', 'message', x.message, 'kind', 'availability',
          'slot_id', x.slot_id)
        order by x.n) filter (where x.n <= 5)
    into v_count, v_details
    from (
      select
        i.position,
        s.id as slot_id,
        format('%s has %s on %s, period %s.',
          api.class_name(c.name, c.section), su.name, api.day_name(s.day_of_week), s.period) as message,
        row_number() over (order by y.start_date, s.day_of_week, s.period, s.id) as n
      from jsonb_array_elements(p_items) with ordinality i (item, position)
      join timetable_slot s
        on s.teacher_id = p_teacher_id
          and s.day_of_week = (i.item ->> 'day_of_week')::integer
          and s.period = (i.item ->> 'period')::integer
      join academic_year y on y.id = s.academic_year_id
      join class c on c.id = s.class_id
      join subject su on su.id = s.subject_id
      where not (i.item ->> 'is_available')::boolean
        and y.end_date >= coalesce((select start_date from academic_year where is_current), core.today())
        -- A lesson in a period that was unavailable before does not refuse the change.
        and not exists (
          select
          from teacher_availability a
          where a.teacher_id = p_teacher_id
            and a.day_of_week = s.day_of_week
            and a.period = s.period
            and not a.is_available)
    ) x;
  perform core.restore_scope(v_scope);
  if v_count > 0 then
    perform core.fail('schedule_conflict',
      format(
        'The teacher has %s in periods that would become unavailable. Move %s or assign another teacher first.',
        case v_count when 1 then 'a lesson' else v_count || ' lessons' end,
        case v_count when 1 then 'it' else 'them' end),
      v_details);
  end if;
end $$;
comment on function api.require_no_slots_at is
  'Raises schedule_conflict if the teacher has slots of the current or a later year in the unavailable periods of '
  'p_items that are available at present. The details name the first five slots.';

create function api.teachers_availability_set(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_total_periods integer;
  v_position bigint;
begin
  perform api.require_teacher(v_id);
  select total_periods into v_total_periods from timetable_config;
  select min(position)
    into v_position
    from jsonb_array_elements(p -> 'items') with ordinality slots (slot, position)
    where (slot ->> 'period')::numeric > v_total_periods;
  if v_position is not null then
    perform core.refuse_field('validation_error', format('%s.period', v_position - 1),
      format('must be at most %s, the number of periods of a day', v_total_periods));
  end if;
  -- A school without the timetable could not move the slots.
  if 'timetable' = any (core.tenant_features()) then
    perform api.require_no_slots_at(v_id, p -> 'items');
  end if;
  -- Periods that the day has lost cannot be listed. They stay, and apply again when the day becomes longer.
  delete from teacher_availability where teacher_id = v_id and period <= v_total_periods;
  insert into teacher_availability (teacher_id, day_of_week, period, is_available)
    select v_id, day_of_week, period, is_available
    from jsonb_to_recordset(p -> 'items') slot (day_of_week integer, period integer, is_available boolean);
  return api.availability_grid(v_id);
end $$;
comment on function api.teachers_availability_set is
  'Replaces the availability of a teacher: {items: [{day_of_week, period, is_available}]}, on any day of the week. '
  'Periods that are not listed are available. Raises not_found, validation_error for a period that the school day does '
  'not have, and schedule_conflict if the teacher has lessons in a period that becomes unavailable.';

create function api.teachers_workload_set(p jsonb) returns json language plpgsql as $$
begin
  perform core.record_update('teacher_workload', p);
  return api.teacher_workload_record((p ->> 'id')::bigint);
end $$;
comment on function api.teachers_workload_set is
  'Sets the workload limits of a teacher: {max_periods_per_day, max_periods_per_week}, null for no limit. Returns the '
  'workload. Raises not_found.';
