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
    ts.room, ts.room_id, c.room as class_room, c.home_room_id, ts.is_pinned, ts.created_at, ts.updated_at
  $$,
  p_condition => 'ts.class_id in (select id from class)',
  p_search => $$
    (ts.class_id in (select id from class where public.search_form(concat_ws(' ', name, section)) like :pattern)
      or ts.subject_id in (select id from subject
        where public.search_form(concat_ws(' ', name, code)) like :pattern)
      or ts.teacher_id in (select id from teacher
        where public.search_form(concat_ws(' ', first_name, last_name)) like :pattern)
      or public.search_form(ts.room) like :pattern
      or ts.room is null
        and ts.class_id in (select id from class where public.search_form(room) like :pattern))
  $$,
  p_single_page_filters => '{class_id,teacher_id}',
  p_equals => '{class_id,teacher_id,academic_year_id,day_of_week::integer}',
  p_default_sort => 'day_of_week',
  p_writable => '{class_id,academic_year_id,subject_id,teacher_id,day_of_week,period,room,room_id,is_pinned}',
  p_unversioned_fields => '{start_time,end_time,class_room,home_room_id,swapped_with}');
select core.define_filter('timetable_slot', 'room_id', $$
  (ts.room_id = :value::bigint
    or ts.room is null and ts.class_id = any (array(select id from class where home_room_id = :value::bigint)))
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
      (s.class_id, s.subject_id, s.teacher_id, s.day_of_week, s.period, s.room_id, s.room)
        is distinct from (n.class_id, n.subject_id, n.teacher_id, n.day_of_week, n.period, n.room_id, n.room)
        as is_replanned
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
  'Updates a slot; its academic year is that of its class. A slot whose class, subject, teacher, time or room changes '
  'is pinned, unless the request changes is_pinned or sends it without the other fields of the record. Raises '
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
