-- /api/timetable: the configuration of the school day, and the slots: which class has which subject and teacher when.
-- Triggers in each school's schema reject conflicting slots (timetable_conflicts).

-- Lock order: timetable_config first, then slots, teachers and classes. Operations that write slots therefore lock the
-- configuration first. The trigger lock_config alone would lock it too late: an update that swaps two slots already
-- holds their row locks by then, and could deadlock with another one. classes_update and classes_delete change slots
-- through their class, and follow the same order.
select core.define_operation('timetable_config_get', p_needs_session => false, p_feature => 'timetable',
  p_record => 'timetable_config');
select core.define_operation('timetable_config_update', p_permission => 'timetable.manage', p_feature => 'timetable',
  p_record => 'timetable_config', p_errors => '{schedule_conflict}');
select core.define_operation('timetable_slots_list', p_permission => 'timetable.read', p_open_to => 'everyone',
  p_feature => 'timetable');
select core.define_operation('timetable_slots_get', p_permission => 'timetable.read', p_open_to => 'everyone',
  p_feature => 'timetable', p_record => 'timetable_slot');
select core.define_operation('timetable_slots_create', p_permission => 'timetable.manage', p_feature => 'timetable',
  p_idempotent => true, p_record => 'timetable_slot', p_lock_first => 'timetable_config',
  p_errors => '{conflict,schedule_conflict,invalid_reference}');
select core.define_operation('timetable_slots_update', p_permission => 'timetable.manage', p_feature => 'timetable',
  p_record => 'timetable_slot', p_lock_first => 'timetable_config',
  p_errors => '{conflict,schedule_conflict,invalid_reference}');
select core.define_operation('timetable_slots_delete', p_permission => 'timetable.manage', p_feature => 'timetable',
  p_record => 'timetable_slot', p_lock_first => 'timetable_config');
select core.define_operation('timetable_slots_move', p_permission => 'timetable.manage', p_feature => 'timetable',
  p_record => 'timetable_slot', p_lock_first => 'timetable_config', p_errors => '{conflict,schedule_conflict}');
select core.define_operation('timetable_check_conflicts', p_permission => 'timetable.manage', p_open_to => 'staff',
  p_feature => 'timetable', p_errors => '{invalid_reference}');
-- The search for a timetable runs between two calls: timetable_generate starts it, and only its handler calls the other
-- three. Renewing and ending are public because they must work after the session has ended; the secret run token of the
-- lease protects them.
select core.define_operation('timetable_generate', p_permission => 'timetable.manage', p_feature => 'timetable',
  p_needs_setup => true, p_needs_subscription => true, p_errors => '{conflict,schedule_conflict,invalid_reference}');
select core.define_operation('timetable_generate_save', p_permission => 'timetable.manage', p_feature => 'timetable',
  p_needs_setup => true, p_needs_subscription => true, p_lock_first => 'timetable_config',
  p_errors => '{conflict,schedule_conflict}');
select core.define_operation('timetable_generate_renew', p_access => 'public');
select core.define_operation('timetable_generate_end', p_access => 'public');

create function api.period_times()
  returns table (period integer, start_time time, end_time time, is_lunch boolean, is_in_day boolean)
  language sql stable as $$
  select
    n,
    -- Slots of past years may have periods beyond the present day. Their times stop at midnight.
    time '00:00' + make_interval(mins => least(starts.minute, 1439)),
    time '00:00' + make_interval(mins => least(starts.minute + c.period_duration, 1439)),
    coalesce(n between c.lunch_start_period and c.lunch_start_period + c.lunch_periods - 1, false),
    n <= c.total_periods
  from timetable_config c
  cross join generate_series(1, 24) n
  cross join lateral (
    select (extract(epoch from c.start_time) / 60)::integer
      + (n - 1) * c.period_duration
      + c.break_duration * (select count(*) from unnest(c.break_after) b where b < n)::integer as minute
  ) starts;
$$;
comment on function api.period_times is
  'The start and end of every period that a slot can have, 1 to 24. A short break delays all later periods; lunch '
  'takes whole periods. is_in_day: whether the school day has this period at present.';

-- Locks, updates and counts use the condition without the joins, so it names no joined table. It excludes the classes
-- outside the scope. The search looks words up in the small tables before it filters slots. The period times are
-- computed once per page and indexed by period. Unversioned: the times depend on the configuration, class_room on the
-- class, and only timetable_slots_move returns swapped_with.
select core.define_record('timetable_slot', p_table => 'timetable_slot', p_key => 'ts.id', p_one_row_per_key => true,
  p_source => $$
    timetable_slot ts left join class c on c.id = ts.class_id left join grade g on g.id = c.grade_id
      left join subject su on su.id = ts.subject_id
    left join teacher t on t.id = ts.teacher_id
  $$,
  p_columns => $$
    ts.id, ts.class_id, api.class_name(c.name, c.section) as class_name, ts.academic_year_id, ts.subject_id,
    su.name as subject_name, su.code as subject_code,
    ts.teacher_id, core.full_name(t.first_name, t.last_name) as teacher_name, ts.day_of_week, ts.period,
    (select array_agg(to_char(pt.start_time, 'HH24:MI') order by pt.period)
      from api.period_times() pt)[ts.period] as start_time,
    (select array_agg(to_char(pt.end_time, 'HH24:MI') order by pt.period)
      from api.period_times() pt)[ts.period] as end_time,
    ts.room, ts.room_id, c.room as class_room, ts.is_pinned, ts.created_at, ts.updated_at
  $$,
  p_condition => 'ts.class_id in (select id from class)',
  p_search => $$
    (ts.class_id in (select id from class where public.search_form(concat_ws(' ', name, section)) like :pattern)
      or ts.subject_id in (select id from subject
        where public.search_form(concat_ws(' ', name, code)) like :pattern)
      or ts.teacher_id in (select id from teacher
        where public.search_form(concat_ws(' ', first_name, last_name)) like :pattern)
      or public.search_form(ts.room) like :pattern)
  $$,
  p_single_page_filters => '{class_id,teacher_id}',
  p_equals => '{class_id,teacher_id,academic_year_id,day_of_week::integer}',
  p_default_sort => 'day_of_week',
  p_writable => '{class_id,academic_year_id,subject_id,teacher_id,day_of_week,period,room,room_id,is_pinned}',
  p_unversioned_fields => '{start_time,end_time,class_room,swapped_with}');
select core.define_filter('timetable_slot', 'room_id', $$
  (ts.room_id = :value::bigint
    or ts.room is null and ts.class_id in (select id from class where home_room_id = :value::bigint))
$$);
select core.define_sort('timetable_slot', 'day_of_week',
  'ts.day_of_week', 'ts.period', 'g.sequence nulls last', 'platform.search_normal(api.class_name(c.name, c.section))');
select core.define_sort('timetable_slot', 'class_name',
  'g.sequence nulls last', 'platform.search_normal(api.class_name(c.name, c.section))', 'ts.day_of_week', 'ts.period');
select core.define_sort('timetable_slot', 'subject_name',
  'platform.search_normal(su.name)', 'ts.day_of_week', 'ts.period');
select core.define_sort('timetable_slot', 'teacher_name',
  'platform.search_normal(t.last_name) nulls last', 'platform.search_normal(t.first_name) nulls last',
  'ts.day_of_week', 'ts.period');

-- The configuration of the school day, with the times of its periods.
select core.define_record('timetable_config', p_table => 'timetable_config', p_key => 'c.id::integer',
  p_is_single => true,
  p_source => 'timetable_config c',
  p_columns => $$
    c.total_periods, c.lunch_start_period, c.lunch_periods, c.period_duration,
    to_char(c.start_time, 'HH24:MI') as start_time, c.break_after, c.break_duration, c.working_days,
    (select json_agg(json_build_object('period', pt.period, 'start_time', to_char(pt.start_time, 'HH24:MI'),
      'end_time', to_char(pt.end_time, 'HH24:MI'),
      'is_lunch', pt.is_lunch) order by pt.period) from api.period_times() pt where pt.is_in_day) as periods,
    c.created_at, c.updated_at
  $$);

create function api.require_whole_timetable() returns void language plpgsql stable as $$
begin
  if not core.has_permission_for_all('timetable.manage') then
    perform core.fail('forbidden', 'This needs the permission timetable.manage for the whole school.');
  end if;
end $$;
comment on function api.require_whole_timetable is
  'Raises forbidden unless the user manages the timetable of the whole school. A teacher may have the permission for '
  'their own classes only.';

create function api.timetable_config_get(p jsonb) returns json language sql stable as $$
  select api.timetable_config_record(1);
$$;
comment on function api.timetable_config_get is 'The configuration of the school day.';

create function api.day_name(p_day_of_week integer) returns text language sql stable
  return to_char(date '2001-01-07' + p_day_of_week, 'FMDay');
comment on function api.day_name is 'The English name of a day of the week; 1 is Monday.';

create function api.timetable_config_update(p jsonb) returns json language plpgsql as $$
declare
  v_before record;
  v_after record;
  v_violated_check text;
begin
  perform api.require_whole_timetable();
  select * into v_before from timetable_config;
  select n.* into v_after from timetable_config c, jsonb_populate_record(c, p) n;
  begin
    update timetable_config
      set total_periods = v_after.total_periods,
        lunch_start_period = v_after.lunch_start_period,
        lunch_periods = v_after.lunch_periods,
        period_duration = v_after.period_duration,
        start_time = v_after.start_time,
        break_after = v_after.break_after,
        break_duration = v_after.break_duration,
        working_days = v_after.working_days;
  exception when check_violation then
    get stacked diagnostics v_violated_check = constraint_name;
  end;
  if v_violated_check is not null then
    perform api.refuse_school_day(v_violated_check, to_jsonb(v_after), p);
  end if;
  if (v_before.total_periods, v_before.lunch_start_period, v_before.lunch_periods, v_before.working_days)
     is distinct from
     (v_after.total_periods, v_after.lunch_start_period, v_after.lunch_periods, v_after.working_days) then
    perform api.require_slots_in_day();
  end if;
  return api.timetable_config_record(1);
end $$;
comment on function api.timetable_config_update is
  'Updates the given fields of the school day. Raises validation_error for an impossible day, and schedule_conflict if '
  'slots of the current or a later year would be outside the day, at lunch or on a day without school. The '
  'availability of teachers in periods that the day loses stays stored; it applies again when the day becomes longer.';

create function api.refuse_school_day(p_check text, p_config jsonb, p jsonb) returns void language plpgsql stable as $$
declare
  v_total_periods integer := (p_config ->> 'total_periods')::integer;
  v_lunch_start integer := (p_config ->> 'lunch_start_period')::integer;
  v_lunch_end integer := v_lunch_start + (p_config ->> 'lunch_periods')::integer - 1;
  v_error record;
begin
  select f.fields, f.message
    into v_error
    from (values
      (
        'timetable_config_lunch_start_period_check',
        '{lunch_start_period,lunch_periods,total_periods}'::text[],
        format('Lunch cannot start in period %s: the day has %s periods.', v_lunch_start, v_total_periods)
      ),
      (
        'timetable_config_lunch_end_check',
        '{lunch_start_period,lunch_periods,total_periods}',
        format('Lunch cannot last from period %s to %s: the day has %s periods.',
          v_lunch_start, v_lunch_end, v_total_periods)
      ),
      (
        'timetable_config_break_after_check',
        '{break_after,total_periods}',
        format('A day of %s periods can only have breaks after periods 1 to %s.', v_total_periods, v_total_periods - 1)
      ),
      (
        'timetable_config_day_end_check',
        '{total_periods,period_duration,break_duration,break_after,start_time}',
        'The day must end before midnight.'
      )
    ) f (check_name, fields, message)
    where f.check_name = p_check;
  perform core.refuse_field(
    'validation_error',
    (select field from unnest(v_error.fields) field where p ? field limit 1),
    coalesce(v_error.message, 'The school day is invalid.'));
end $$;
comment on function api.refuse_school_day is
  'Raises validation_error for the check constraint of timetable_config that an update violated. The error names the '
  'first field of the constraint that the request contains.';

create function api.require_slots_in_day() returns void language plpgsql stable as $$
declare
  v_slots jsonb;
  v_count bigint;
  v_details json;
begin
  select jsonb_agg(
      jsonb_build_object(
        'slot_id', s.id, 'class_id', s.class_id, 'academic_year_id', s.academic_year_id,
        'day_of_week', s.day_of_week, 'period', s.period,
        'class_name', api.class_name(c.name, c.section), 'subject_name', su.name)
      order by y.start_date, s.day_of_week, s.period, c.name, c.section, s.id)
    into v_slots
    from academic_year y
    join timetable_slot s on s.academic_year_id = y.id
    join class c on c.id = s.class_id
    join subject su on su.id = s.subject_id
    where y.end_date >= coalesce((select start_date from academic_year where is_current), core.today());
  select
      count(distinct k."position"),
      json_agg(json_build_object('path', k.path, 'message', k.message, 'kind', k.kind, 'slot_id', k.slot_id)
        order by k.n) filter (where k.n <= 5)
    into v_count, v_details
    from (
      select
        x."position",
        x.kind,
        (s.slot ->> 'slot_id')::bigint as slot_id,
        row_number() over (order by x."position", x.path) as n,
        case
          when x.kind = 'lunch' then 'lunch_start_period'
          when x.path = 'period' then 'total_periods'
          else 'working_days'
        end as path,
        format('%s has %s on %s, period %s: %s',
          s.slot ->> 'class_name', s.slot ->> 'subject_name', api.day_name((s.slot ->> 'day_of_week')::integer),
          s.slot ->> 'period', x.message) as message
      from timetable_conflicts(v_slots, true, '{lunch,outside_day}') x
      cross join lateral (select v_slots -> x."position") s (slot)
    ) k;
  if v_count > 0 then
    perform core.fail('schedule_conflict',
      format(
        '%s would be outside the school day, at lunch or on a day without school. Move or delete %s first.',
        case v_count when 1 then 'One slot' else v_count || ' slots' end,
        case v_count when 1 then 'it' else 'them' end),
      v_details);
  end if;
end $$;
comment on function api.require_slots_in_day is
  'Raises schedule_conflict if slots of the current or a later year are outside the school day, at lunch or on a day '
  'without school. The details name the first five conflicts.';

create function api.timetable_slots_list(p jsonb) returns json language sql stable as $$
  select core.record_page('timetable_slot',
    case
      when p ?| '{class_id,academic_year_id}' then p
      else p || jsonb_build_object(
        'academic_year_id', coalesce((select id from academic_year where is_current), 0))
    end);
$$;
comment on function api.timetable_slots_list is
  'Slots by day and period. Searches class, subject, teacher and room. Filters: class_id, teacher_id, room_id (also '
  'the lessons in a home room), academic_year_id (the current year, unless a class is given), day_of_week.';

select core.define_functions('timetable_slots', 'timetable_slot',
  p_get => 'One slot. Raises not_found.',
  p_delete => 'Deletes a slot.');

create function api.slot_year_id(p_class_id bigint) returns bigint language plpgsql stable as $$
declare
  v_id bigint := (select academic_year_id from class where id = p_class_id);
begin
  if v_id is null then
    perform core.refuse_field('invalid_reference', 'class_id', format('There is no class %s.', p_class_id));
  end if;
  return v_id;
end $$;
comment on function api.slot_year_id is
  'The academic year of a class. Raises invalid_reference for a class that does not exist or is outside the scope.';

create function api.timetable_slots_create(p jsonb) returns json language plpgsql as $$
declare
  v_year_id bigint := api.slot_year_id((p ->> 'class_id')::bigint);
  v_id bigint;
begin
  perform api.require_active_teacher((p ->> 'teacher_id')::bigint, 'teacher_id');
  v_id := core.record_insert('timetable_slot', api.with_room(p, 'room_id') || jsonb_build_object(
    'academic_year_id', v_year_id, 'is_pinned', coalesce((p ->> 'is_pinned')::boolean, true)));
  return api.timetable_slot_record(v_id);
end $$;
comment on function api.timetable_slots_create is
  'Creates a slot in the academic year of its class, pinned unless is_pinned is false. Raises schedule_conflict, and '
  'invalid_reference for an unknown class, or a teacher or room that is not active.';

create function api.timetable_slots_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before record;
begin
  select
      s.class_id, s.teacher_id, s.is_pinned, s.room_id, s.room,
      (s.class_id, s.subject_id, s.teacher_id, s.day_of_week, s.period)
        is distinct from (n.class_id, n.subject_id, n.teacher_id, n.day_of_week, n.period) as is_replanned
    into v_before
    from timetable_slot s
    cross join jsonb_populate_record(s, p) n
    where s.id = v_id;
  if (p ->> 'class_id')::bigint <> v_before.class_id then
    p := p || jsonb_build_object('academic_year_id', api.slot_year_id((p ->> 'class_id')::bigint));
  end if;
  -- A teacher who has become inactive may keep the slot.
  if p ? 'teacher_id' and not (
      core.may_compare() and (p ->> 'teacher_id')::bigint is not distinct from v_before.teacher_id) then
    perform api.require_active_teacher((p ->> 'teacher_id')::bigint, 'teacher_id');
  end if;
  -- A record that was read and sent back with another time says nothing about is_pinned.
  if v_before.is_replanned
      and (p ->> 'is_pinned' is null or p ? 'read_only' and (p ->> 'is_pinned')::boolean = v_before.is_pinned) then
    p := p || '{"is_pinned": true}';
  end if;
  perform core.record_update('timetable_slot', api.with_room(p, 'room_id', v_before.room_id, v_before.room));
  return api.timetable_slot_record(v_id);
end $$;
comment on function api.timetable_slots_update is
  'Updates a slot; its academic year is that of its class. A slot whose class, subject, teacher or time changes is '
  'pinned, unless the request changes is_pinned or sends it without the other fields of the record. Raises '
  'schedule_conflict, and invalid_reference for an unknown class, or a new teacher or room that is not active.';

create function api.timetable_slots_move(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_day integer := (p ->> 'day_of_week')::integer;
  v_period integer := (p ->> 'period')::integer;
  v_other_id bigint;
begin
  -- One statement updates both slots of a swap, because the trigger checks for conflicts after each statement.
  with changed as (
    update timetable_slot s
      set (day_of_week, period, is_pinned) = (
        select x.day_of_week, x.period, coalesce((p ->> 'is_pinned')::boolean, true)
        from (values (true, v_day, v_period), (false, moved.day_of_week, moved.period))
          x (is_moved, day_of_week, period)
        where x.is_moved = (s.id = v_id)
      )
      from timetable_slot moved
      where moved.id = v_id
        and (moved.day_of_week, moved.period) <> (v_day, v_period)
        and (
          s.id = v_id
          or (
            (p ->> 'swap')::boolean
            and s.class_id = moved.class_id
            and s.academic_year_id = moved.academic_year_id
            and s.day_of_week = v_day
            and s.period = v_period
          )
        )
      returning s.id
  )
  select id into v_other_id from changed where id <> v_id;
  -- Appended as text, because a conversion to jsonb would reorder the fields.
  return left(api.timetable_slot_record(v_id)::text, -1)
    || ',"swapped_with":'
    || coalesce(case when v_other_id is not null then api.timetable_slot_record(v_other_id)::text end, 'null')
    || '}';
end $$;
comment on function api.timetable_slots_move is
  'Moves a slot: {day_of_week, period, swap, is_pinned (true)}. With swap, the slot that the class has at the new time '
  'moves to the old time, and the answer has it as swapped_with. Slots that move get is_pinned. Without swap, an '
  'occupied time raises schedule_conflict.';

create function api.timetable_check_conflicts(p jsonb) returns json language plpgsql stable as $$
declare
  v_year_id bigint := api.slot_year_id((p ->> 'class_id')::bigint);
  v_teacher_id bigint := (p ->> 'teacher_id')::bigint;
  v_day integer := (p ->> 'day_of_week')::integer;
  v_period integer := (p ->> 'period')::integer;
  v_before record;
  v_room_id bigint;
begin
  select s.*
    into v_before
    from timetable_slot s
    where s.id = (p ->> 'exclude_slot_id')::bigint and s.class_id in (select id from class);
  if p ->> 'exclude_slot_id' is not null and not found then
    perform core.refuse_field('invalid_reference', 'exclude_slot_id',
      format('There is no slot %s.', p ->> 'exclude_slot_id'));
  elsif v_teacher_id is not null
     and v_before.teacher_id is distinct from v_teacher_id
     and not exists (
       select from teacher
       where id = v_teacher_id and not core.has_left(left_on, core.today()) and deleted_at is null) then
    perform core.refuse_field('invalid_reference', 'teacher_id',
      format('There is no active teacher %s.', v_teacher_id));
  end if;
  p := api.with_room(p, 'room_id', v_before.room_id, v_before.room);
  select r.id
    into v_room_id
    from room r
    where not r.is_shared
      and r.id = case
        when p ? 'room_id' and p ->> 'room' is not null then (p ->> 'room_id')::bigint
        when not p ? 'room_id' and v_before.room is not null then v_before.room_id
        else (select c.home_room_id from class c where c.id = (p ->> 'class_id')::bigint)
      end;
  return (
    with planned as (
      select
        1 as "position",
        v_before.id as slot_id,
        (p ->> 'class_id')::bigint as class_id,
        v_year_id as academic_year_id,
        v_teacher_id as teacher_id,
        v_room_id as room_id,
        v_day as day_of_week,
        v_period as period,
        v_before.class_id as was_class_id,
        v_before.academic_year_id as was_academic_year_id,
        v_before.teacher_id as was_teacher_id,
        v_before.reserved_room_id as was_room_id,
        v_before.day_of_week as was_day_of_week,
        v_before.period as was_period
      union all
      -- The other slot of a swap.
      select
        2, s.id, s.class_id, s.academic_year_id, s.teacher_id, s.reserved_room_id, v_before.day_of_week,
        v_before.period, s.class_id, s.academic_year_id, s.teacher_id, s.reserved_room_id, s.day_of_week, s.period
      from timetable_slot s
      where (p ->> 'swap')::boolean
        and s.id <> v_before.id
        and s.class_id = v_before.class_id
        and s.academic_year_id = v_before.academic_year_id
        and s.day_of_week = v_day
        and s.period = v_period
    )
    select json_build_object(
      'has_conflict', count(*) > 0,
      'conflicts', coalesce(
        json_agg(json_build_object('kind', c.kind, 'message', c.message, 'slot', c.slot)), '[]'))
    from timetable_conflicts(
      (select jsonb_agg(to_jsonb(planned) - 'position' order by planned."position") from planned), false) c
  );
end $$;
comment on function api.timetable_check_conflicts is
  'The conflicts that writing a slot would raise: {class_id, teacher_id, room, room_id, day_of_week, period, '
  'exclude_slot_id (the slot to move), swap (as in timetable_slots_move)}. Without a room it is that of the slot to '
  'move, or the home room. Answers {has_conflict, conflicts: [{kind, message, slot}]}. Raises invalid_reference for '
  'an unknown class, teacher, room or slot.';

create function api.lessons_to_place(p_class_ids bigint[], p_academic_year_id bigint, p_replaces_pinned boolean)
  returns table (
    class_id bigint, subject_id bigint, teacher_id bigint, periods_per_week integer, has_active_teacher boolean
  )
  language sql stable as $$
  select
    cs.class_id, cs.subject_id, cs.teacher_id, cs.periods_per_week - coalesce(pinned.periods, 0),
    t.id is not null and not core.has_left(t.left_on, core.today()) and t.deleted_at is null
  from class_subject cs
  left join teacher t on t.id = cs.teacher_id
  left join (
    select s.class_id, s.subject_id, count(*)::integer as periods
    from timetable_slot s
    where s.class_id = any (p_class_ids) and s.academic_year_id = p_academic_year_id
      and s.is_pinned and not p_replaces_pinned
    group by s.class_id, s.subject_id
  ) pinned on pinned.class_id = cs.class_id and pinned.subject_id = cs.subject_id
  where cs.class_id = any (p_class_ids) and cs.periods_per_week > coalesce(pinned.periods, 0);
$$;
comment on function api.lessons_to_place is
  'The periods per week that the generator has to place for each subject of some classes. Pinned slots stay unless '
  'they are replaced, so they reduce the number.';

create function api.timetable_problem(p_class_ids bigint[], p_academic_year_id bigint, p_replaces_pinned boolean)
  returns jsonb language sql stable as $$
  with school_day as materialized (
    select
      c.total_periods,
      array(select d from unnest(c.working_days) d group by d order by d) as days,
      array(
        select n
        from generate_series(1, c.total_periods) n
        where n between c.lunch_start_period and c.lunch_start_period + c.lunch_periods - 1
        order by n
      ) as lunch
    from timetable_config c
  ),
  subject_rooms as (
    select sr.subject_id, jsonb_agg(sr.room_id order by sr.room_id) as room_ids
    from subject_room sr
    join room r on r.id = sr.room_id and r.is_active
    group by sr.subject_id
  ),
  lesson as materialized (
    select
      l.class_id, l.subject_id, l.teacher_id, l.has_active_teacher,
      jsonb_build_object('class', l.class_id, 'subject', l.subject_id, 'teacher', l.teacher_id,
        'periods_per_week', l.periods_per_week, 'rooms', coalesce(sr.room_ids, '[]')) as object
    from api.lessons_to_place(p_class_ids, p_academic_year_id, p_replaces_pinned) l
    left join subject_rooms sr on sr.subject_id = l.subject_id
  ),
  planned_class as materialized (
    select c.id, r.id as home_room_id
    from class c
    left join room r on r.id = c.home_room_id and r.is_active
    where c.id = any (p_class_ids) and c.academic_year_id = p_academic_year_id
  ),
  planned_room as materialized (
    select r.id, r.is_shared
    from room r
    where r.is_active and r.id in (
      select home_room_id from planned_class
      union
      select sr.room_id from subject_room sr join lesson l on l.subject_id = sr.subject_id)
  ),
  reserved as (
    select
      s.reserved_room_id as room_id,
      jsonb_agg(jsonb_build_array(array_position(f.days, s.day_of_week), s.period)
        order by s.day_of_week, s.period) as times
    from planned_room r
    join timetable_slot s on s.reserved_room_id = r.id
    join school_day f on s.day_of_week = any (f.days)
    where s.academic_year_id = p_academic_year_id
      and (s.is_pinned and not p_replaces_pinned or s.class_id <> all (p_class_ids))
    group by s.reserved_room_id
  ),
  teaching as materialized (
    select t.id, t.max_periods_per_day, t.max_periods_per_week
    from teacher t
    where t.id in (select l.teacher_id from lesson l where l.has_active_teacher)
  ),
  pinned as (
    select
      s.class_id,
      jsonb_agg(jsonb_build_array(array_position(f.days, s.day_of_week), s.period)
        order by s.day_of_week, s.period) as times
    from timetable_slot s
    join school_day f on s.day_of_week = any (f.days)
    where s.class_id = any (p_class_ids) and s.academic_year_id = p_academic_year_id
      and s.is_pinned and not p_replaces_pinned
    group by s.class_id
  ),
  unavailable as (
    select
      a.teacher_id,
      jsonb_agg(jsonb_build_array(array_position(f.days, a.day_of_week), a.period)
        order by a.day_of_week, a.period) as times
    from teaching t
    join teacher_availability a on a.teacher_id = t.id and not a.is_available
    join school_day f on a.day_of_week = any (f.days) and a.period <= f.total_periods
    group by a.teacher_id
  ),
  busy as (
    select
      s.teacher_id,
      jsonb_agg(jsonb_build_array(array_position(f.days, s.day_of_week), s.period)
        order by s.day_of_week, s.period) as times
    from teaching t
    join timetable_slot s on s.teacher_id = t.id
    join school_day f on s.day_of_week = any (f.days)
    where s.academic_year_id = p_academic_year_id
      and (s.is_pinned and not p_replaces_pinned or s.class_id <> all (p_class_ids))
    group by s.teacher_id
  )
  select jsonb_build_object(
    'working_days', f.days,
    'days', cardinality(f.days),
    'periods_per_day', f.total_periods,
    'lunch_periods', f.lunch,
    'classes', (
      select coalesce(
        jsonb_agg(
          jsonb_build_object('id', c.id, 'unavailable', coalesce(i.times, '[]'), 'home_room', c.home_room_id)
          order by c.id),
        '[]')
      from planned_class c
      left join pinned i on i.class_id = c.id
    ),
    'rooms', (
      select coalesce(
        jsonb_agg(
          jsonb_build_object('id', r.id, 'is_shared', r.is_shared, 'busy', coalesce(b.times, '[]')) order by r.id),
        '[]')
      from planned_room r
      left join reserved b on b.room_id = r.id
    ),
    'teachers', (
      select coalesce(
        jsonb_agg(
          jsonb_build_object('id', t.id, 'unavailable', coalesce(u.times, '[]'), 'busy', coalesce(b.times, '[]'),
            'max_per_day', t.max_periods_per_day, 'max_per_week', t.max_periods_per_week)
          order by t.id),
        '[]')
      from teaching t
      left join unavailable u on u.teacher_id = t.id
      left join busy b on b.teacher_id = t.id
    ),
    'lessons', (
      select coalesce(jsonb_agg(l.object order by l.class_id, l.subject_id), '[]')
      from lesson l
      where l.has_active_teacher
    ),
    'untaught', (
      select coalesce(jsonb_agg(l.object order by l.class_id, l.subject_id), '[]')
      from lesson l
      where not l.has_active_teacher
    ),
    -- The generator ignores this. It makes the digest of the problem change with every slot that would be replaced.
    'slots_digest', (
      select md5(coalesce(string_agg(s.id || ' ' || s.updated_at, ',' order by s.id), ''))
      from timetable_slot s
      where s.class_id = any (p_class_ids)
    )
  )
  from school_day f;
$$;
comment on function api.timetable_problem is
  'The input of the timetable generator for some classes of a year: the school day, the lessons to place (untaught: '
  'those without an active teacher), the limits and availability of their teachers, and their slots in other classes, '
  'the home rooms of the classes, the active rooms of the subjects, and the slots of others in these rooms. '
  'Pinned slots of the classes stay and are no part of it, unless they are replaced too. Every list is sorted by id, '
  'so that an unchanged school gives an equal problem.';

create function api.pinned_conflicts(p_class_ids bigint[], p_academic_year_id bigint) returns json
  language plpgsql stable as $$
declare
  v_slots jsonb;
  v_answer json;
begin
  select jsonb_agg(
      jsonb_build_object(
        'slot_id', s.id, 'class_id', s.class_id, 'class_name', api.class_name(c.name, c.section),
        'subject_id', s.subject_id, 'subject_name', su.name,
        'teacher_id', s.teacher_id, 'teacher_name', core.full_name(t.first_name, t.last_name),
        'academic_year_id', s.academic_year_id, 'day_of_week', s.day_of_week, 'period', s.period,
        'is_teacher_inactive', t.id is not null
          and (core.has_left(t.left_on, core.today()) or t.deleted_at is not null),
        'periods_per_week', cs.periods_per_week, 'number', s.number)
      order by s.class_id, s.day_of_week, s.period)
    into v_slots
    from (
      select
        ts.*,
        row_number() over (partition by ts.class_id, ts.subject_id order by ts.day_of_week, ts.period) as number
      from timetable_slot ts
      where ts.class_id = any (p_class_ids) and ts.academic_year_id = p_academic_year_id and ts.is_pinned
    ) s
    join class c on c.id = s.class_id
    join subject su on su.id = s.subject_id
    left join teacher t on t.id = s.teacher_id
    left join class_subject cs on cs.class_id = s.class_id and cs.subject_id = s.subject_id;
  with slot as materialized (
    select n - 1 as "position", object
    from jsonb_array_elements(v_slots) with ordinality e (object, n)
  ),
  conflict as (
    select x."position", x.kind, x.message
    from timetable_conflicts(coalesce(v_slots, '[]'), true, '{availability,lunch,outside_day}') x
    union all
    select s."position", 'teacher_inactive', format('%s is not active.', s.object ->> 'teacher_name')
    from slot s
    where (s.object ->> 'is_teacher_inactive')::boolean
    union all
    select s."position", 'subject',
      case
        when s.object ->> 'periods_per_week' is null then 'It is not a subject of the class.'
        else format('The subject has %s periods a week, and more pinned slots.', s.object ->> 'periods_per_week')
      end
    from slot s
    where (s.object ->> 'number')::integer > coalesce((s.object ->> 'periods_per_week')::integer, 0)
  )
  select coalesce(
      json_agg(
        json_build_object(
          'slot_id', s.object -> 'slot_id',
          'class_id', s.object -> 'class_id',
          'class_name', s.object -> 'class_name',
          'subject_id', s.object -> 'subject_id',
          'subject_name', s.object -> 'subject_name',
          'teacher_id', s.object -> 'teacher_id',
          'teacher_name', s.object -> 'teacher_name',
          'day_of_week', s.object -> 'day_of_week',
          'period', s.object -> 'period',
          'kind', x.kind,
          'message', format('%s has %s on %s, period %s: %s',
            s.object ->> 'class_name', s.object ->> 'subject_name',
            api.day_name((s.object ->> 'day_of_week')::integer), s.object ->> 'period', x.message))
        order by s."position", x.kind),
      '[]')
    into v_answer
    from conflict x
    join slot s on s."position" = x."position";
  return v_answer;
end $$;
comment on function api.pinned_conflicts is
  'The pinned slots of some classes that no longer fit: the teacher is not available or not active, the time is at '
  'lunch or outside the school day, the class does not have the subject, or has fewer periods of it than pinned slots. '
  '[{slot_id, class_id, class_name, subject_id, subject_name, teacher_id, teacher_name, day_of_week, period, kind, '
  'message}], one for each reason, by class, day and period.';

create function api.timetable_generate(p jsonb) returns json language plpgsql as $$
declare
  v_year_id bigint;
  v_class_ids bigint[];
  v_run text := gen_random_uuid();
  v_now timestamptz := clock_timestamp();
  v_replaces_pinned boolean := coalesce((p ->> 'replace_pinned')::boolean, false);
  v_problem jsonb;
begin
  perform api.require_whole_timetable();
  select academic_year_id, class_ids into v_year_id, v_class_ids from api.classes_to_generate(p);
  insert into timetable_generation (is_running, run, started_at, expires_at)
    values (true, v_run, v_now, v_now + core.timetable_lease())
    on conflict (is_running) do update
      set run = excluded.run, started_at = excluded.started_at, expires_at = excluded.expires_at
      where timetable_generation.expires_at < excluded.started_at;
  if not found then
    return (select json_build_object('busy_since', started_at) from timetable_generation);
  end if;
  v_problem := api.timetable_problem(v_class_ids, v_year_id, v_replaces_pinned);
  if v_problem -> 'lessons' = '[]' and v_problem -> 'untaught' <> '[]' then
    perform core.fail('conflict', 'No subject of these classes has an active teacher. Assign teachers first.');
  end if;
  return json_build_object(
    'run', v_run,
    'problem', v_problem,
    'digest', md5(v_problem::text),
    'academic_year_id', v_year_id,
    'class_ids', v_class_ids,
    'replaced_slot_count', (
      select count(*) from timetable_slot where class_id = any (v_class_ids) and (v_replaces_pinned or not is_pinned)
    ),
    'pinned_conflicts',
      case when v_replaces_pinned then '[]' else api.pinned_conflicts(v_class_ids, v_year_id) end,
    'names', json_build_object(
      'classes', (
        select json_object_agg(id, api.class_name(name, section)) from class where id = any (v_class_ids)
      ),
      'subjects', (
        select json_object_agg(id, name)
        from subject
        where id in (select subject_id from class_subject where class_id = any (v_class_ids))
      ),
      'teachers', coalesce(
        (
          select json_object_agg(id, core.full_name(first_name, last_name))
          from teacher
          where id in (select teacher_id from class_subject where class_id = any (v_class_ids))
        ),
        '{}'),
      'rooms', coalesce(
        (
          select json_object_agg(id, name)
          from room
          where id in (
            select sr.room_id
            from subject_room sr
            join class_subject cs on cs.subject_id = sr.subject_id
            where cs.class_id = any (v_class_ids))
        ),
        '{}')));
end $$;
comment on function api.timetable_generate is
  'Starts generating a timetable: {class_ids, academic_year_id, replace_pinned}. Takes the school''s lease for 20 '
  'seconds and answers {run, problem, digest, academic_year_id, class_ids, replaced_slot_count, pinned_conflicts, '
  'names}, or {busy_since} while another generator holds the lease. timetable_generate_renew extends the lease; '
  'timetable_generate_save and timetable_generate_end release it. Raises forbidden unless the user manages '
  'the timetable of the whole school, invalid_reference, and conflict if there is nothing to place.';

create function api.classes_to_generate(p jsonb, out academic_year_id bigint, out class_ids bigint[])
  language plpgsql stable as $$
#variable_conflict use_column
declare
  v_year_id bigint := (p ->> 'academic_year_id')::bigint;
  v_invalid record;
begin
  class_ids := array(select distinct c.id::bigint from jsonb_array_elements_text(p -> 'class_ids') c (id) order by 1);
  if v_year_id is not null and not exists (select from academic_year where id = v_year_id) then
    perform core.refuse_field('invalid_reference', 'academic_year_id',
      format('There is no academic year %s.', v_year_id));
  end if;
  v_year_id := coalesce(
    v_year_id,
    (select c.academic_year_id from class c where c.id = (p #>> '{class_ids,0}')::bigint),
    (select id from academic_year where is_current));
  select g.position - 1 as index, g.id, c.id is null as is_unknown
    into v_invalid
    from jsonb_array_elements_text(p -> 'class_ids') with ordinality g (id, position)
    left join class c on c.id = g.id::bigint
    where c.id is null or c.academic_year_id <> v_year_id
    order by g.position
    limit 1;
  if found then
    perform core.refuse_field('invalid_reference', 'class_ids.' || v_invalid.index,
      case
        when v_invalid.is_unknown then format('There is no class %s.', v_invalid.id)
        else format('Class %s belongs to another academic year.', v_invalid.id)
      end);
  end if;
  if not p ? 'class_ids' then
    class_ids := array(
      select c.id
      from class c
      where c.academic_year_id = v_year_id and exists (select from class_subject cs where cs.class_id = c.id)
      order by c.id
    );
    if not exists (select from class c where c.academic_year_id = v_year_id) then
      perform core.fail('conflict', 'The academic year has no classes. Add classes and their subjects first.');
    end if;
  end if;
  if not exists (select from class_subject cs where cs.class_id = any (class_ids)) then
    perform core.fail('conflict',
      'These classes have no subjects. Add their subjects with periods per week and teachers first.');
  end if;
  academic_year_id := v_year_id;
end $$;
comment on function api.classes_to_generate is
  'The academic year and classes of a request to generate a timetable: {class_ids, academic_year_id}. By default all '
  'classes with subjects in the current year. Raises invalid_reference for a class of another year, and conflict if '
  'the classes have no subjects.';

create function api.timetable_generate_save(p jsonb) returns json language plpgsql as $$
declare
  v_class_ids bigint[] := array(select c.id::bigint from jsonb_array_elements_text(p -> 'class_ids') c (id));
  v_year_id bigint := (p ->> 'academic_year_id')::bigint;
  v_replaces_pinned boolean := coalesce((p ->> 'replace_pinned')::boolean, false);
  v_removed integer;
begin
  perform api.require_whole_timetable();
  -- Changes of a teacher's limits and availability lock the teacher. This lock keeps them out between the comparison of
  -- the digest and the insert.
  perform
    from teacher
    where id in (select distinct s.teacher_id from jsonb_to_recordset(p -> 'slots') s (teacher_id bigint))
    order by id
    for share;
  delete from timetable_generation where run = p ->> 'run';
  if not found then
    perform core.fail('conflict',
      'The generator took too long, and another timetable was generated in the meantime. Generate again.');
  elsif md5(api.timetable_problem(v_class_ids, v_year_id, v_replaces_pinned)::text) <> p ->> 'digest' then
    perform core.fail('conflict',
      'Classes, teachers, slots or the school day were changed in the meantime. The timetable was not saved. '
      'Generate again.');
  end if;
  delete from timetable_slot where class_id = any (v_class_ids) and (v_replaces_pinned or not is_pinned);
  get diagnostics v_removed = row_count;
  insert into timetable_slot (class_id, academic_year_id, subject_id, teacher_id, day_of_week, period, room_id, room)
    select s.class_id, v_year_id, s.subject_id, s.teacher_id, s.day_of_week, s.period, s.room_id, r.name
    from jsonb_to_recordset(p -> 'slots')
      s (class_id bigint, subject_id bigint, teacher_id bigint, day_of_week integer, period integer, room_id bigint)
    left join room r on r.id = s.room_id
    order by s.class_id, s.day_of_week, s.period;
  perform core.notify('timetable.published', jsonb_build_object('class_ids', v_class_ids));
  return (
    select json_build_object('removed', v_removed, 'ids', coalesce(json_agg(t.id order by s.n), '[]'))
    from rows from (
      jsonb_to_recordset(p -> 'slots') as (class_id bigint, day_of_week integer, period integer)
    ) with ordinality s (class_id, day_of_week, period, n)
    join timetable_slot t
      on t.class_id = s.class_id
      and t.academic_year_id = v_year_id
      and t.day_of_week = s.day_of_week
      and t.period = s.period
  );
end $$;
comment on function api.timetable_generate_save is
  'Saves a generated timetable: {run, digest, academic_year_id, class_ids, replace_pinned, slots}. The slots replace '
  'all slots of the classes that are not pinned, and with replace_pinned also the others. Releases the lease, notifies '
  'teachers and students, and answers {removed, ids}: the number of deleted slots, and the new ones in the order of '
  'the request. Raises conflict if the lease was lost or the problem has changed since the start.';

create function api.timetable_recipients(p jsonb) returns jsonb language sql stable as $$
  with published as (
    select id, api.class_name(name, section) as name
    from class
    where id = any (array(select jsonb_array_elements_text(p -> 'class_ids')::bigint))
  )
  select jsonb_agg(jsonb_build_object('user_id', user_id, 'variables', jsonb_build_object('classes', classes))
    order by user_id)
  from (
    select s.user_id, c.name as classes
    from published c
    join core.enrolled() e on e.class_id = c.id
    join student s on s.id = e.student_id
    where s.user_id is not null
    union all
    select t.user_id, string_agg(distinct c.name, ', ')
    from published c
    join timetable_slot ts on ts.class_id = c.id
    join teacher t on t.id = ts.teacher_id
    where t.user_id is not null and not core.has_left(t.left_on, core.today()) and t.deleted_at is null
    group by t.user_id
  ) recipient;
$$;
comment on function api.timetable_recipients is
  'The recipients of timetable.published, {class_ids}: the students and the teachers of the classes. The variable '
  'classes names those of each recipient.';

create function api.timetable_generate_renew(p jsonb) returns json language plpgsql as $$
begin
  update timetable_generation set expires_at = clock_timestamp() + core.timetable_lease() where run = p ->> 'run';
  return json_build_object('is_held', found);
end $$;
comment on function api.timetable_generate_renew is
  'Extends the lease of a generator, {run}, to 20 seconds from now. Answers {is_held}: false if the lease was lost.';

create function api.timetable_generate_end(p jsonb) returns json language plpgsql as $$
begin
  delete from timetable_generation where run = p ->> 'run';
  return json_build_object('ended', found);
end $$;
comment on function api.timetable_generate_end is
  'Releases the lease of a generator that saved nothing: {run}. Checks no permission: only the holder of the lease '
  'knows the run token, and the lease must be released even if the user has lost their permissions.';
