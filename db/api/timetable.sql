-- /api/timetable: the shape of the school day, and who teaches what when. What may not be stands in the schools' own schemas
-- (timetable_conflicts), where triggers hold every writer to it.

-- Whoever writes slots waits for the config first of all, then locks slots, teachers and classes as it needs them: the trigger that waits for it
-- (take_turns) comes when rows are locked already, of two slots that two people let change places for example. So does whoever moves or removes
-- slots by way of their class (classes_update, classes_delete).
select core.define_operation('timetable_config_get', p_feature => 'timetable', p_record => 'timetable_config');
select core.define_operation('timetable_config_update', p_permission => 'timetable.manage', p_feature => 'timetable',
  p_record => 'timetable_config', p_errors => '{schedule_conflict}');
select core.define_operation('timetable_slots_list', p_permission => 'timetable.read', p_feature => 'timetable');
select core.define_operation('timetable_slots_get', p_permission => 'timetable.read', p_feature => 'timetable',
  p_record => 'timetable_slot');
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
select core.define_operation('timetable_check_conflicts', p_permission => 'timetable.manage',
  p_feature => 'timetable', p_errors => '{invalid_reference}');
-- A generate is a search between two statements: the first of these begins it, the others are called by the handler alone. What
-- keeps its turn and gives it back goes by the secret name of the run, since it must also work when the session has ended.
select core.define_operation('timetable_generate', p_permission => 'timetable.manage', p_feature => 'timetable',
  p_needs_setup => true, p_needs_subscription => true, p_errors => '{conflict,schedule_conflict,invalid_reference}');
select core.define_operation('timetable_generate_save', p_permission => 'timetable.manage', p_feature => 'timetable',
  p_needs_setup => true, p_needs_subscription => true, p_lock_first => 'timetable_config',
  p_errors => '{conflict,schedule_conflict}');
select core.define_operation('timetable_generate_renew', p_access => 'public');
select core.define_operation('timetable_generate_end', p_access => 'public');

-- When each period begins and ends, for all that a slot may have. A short break makes all that comes after it later; lunch takes
-- whole periods. Slots of past years may stand in a period that the day does not have any more (is_in_day); what of these would lie
-- beyond midnight is cut off there.
create function api.period_times() returns table (period integer, start_time time, end_time time, is_lunch boolean, is_in_day boolean) language sql stable as $$
  select n, time '00:00' + make_interval(mins => least(begins.at, 1439)), time '00:00' + make_interval(mins => least(begins.at + c.period_duration, 1439)),
    coalesce(n between c.lunch_start_period and c.lunch_start_period + c.lunch_periods - 1, false), n <= c.total_periods
  from timetable_config c
  cross join generate_series(1, 24) n
  cross join lateral (
    select (extract(epoch from c.start_time) / 60)::integer + (n - 1) * c.period_duration
      + c.break_duration * (select count(*) from unnest(c.break_after) b where b < n)::integer as at) begins;
$$;
comment on function api.period_times is 'When each period of a school day begins and ends.';

-- The condition is for locks and updates, which do without the joins; a class out of reach is left out by it, so that a count does without
-- them too, and a search looks words up in the tables where they stand before it looks at slots. A period is its place in the list of times,
-- which is made once for all slots of a page. Times follow the config, class_room the class, and not an edit of the slot; swapped_with is in
-- the answer to a move alone.
select core.define_record('timetable_slot', p_table => 'timetable_slot', p_key => 'ts.id', p_one_row_per_key => true,
  p_source => $$
    timetable_slot ts left join class c on c.id = ts.class_id left join grade g on g.id = c.grade_id
      left join subject su on su.id = ts.subject_id
    left join teacher t on t.id = ts.teacher_id
  $$,
  p_columns => $$
    ts.id, ts.class_id, api.class_name(c.name, c.section) as class_name, ts.academic_year_id, ts.subject_id,
    su.name as subject_name, su.code as subject_code,
    ts.teacher_id, t.first_name || ' ' || t.last_name as teacher_name, ts.day_of_week, ts.period,
    (select array_agg(to_char(pt.start_time, 'HH24:MI') order by pt.period)
      from api.period_times() pt)[ts.period] as start_time,
    (select array_agg(to_char(pt.end_time, 'HH24:MI') order by pt.period)
      from api.period_times() pt)[ts.period] as end_time,
    ts.room, c.room as class_room, ts.is_pinned, ts.created_at, ts.updated_at
  $$,
  p_condition => 'ts.class_id in (select id from class)',
  p_search => $$
    (ts.class_id in (select id from class where platform.search_normal(concat_ws(' ', name, section)) like :pattern)
      or ts.subject_id in (select id from subject
        where platform.search_normal(concat_ws(' ', name, code)) like :pattern)
      or ts.teacher_id in (select id from teacher
        where platform.search_normal(concat_ws(' ', first_name, last_name)) like :pattern)
      or platform.search_normal(ts.room) like :pattern)
  $$,
  p_equals => '{class_id,teacher_id,academic_year_id,day_of_week}',
  p_default_sort => 'day_of_week',
  p_writable => '{class_id,academic_year_id,subject_id,teacher_id,day_of_week,period,room,is_pinned}',
  p_unversioned_fields => '{start_time,end_time,class_room,swapped_with}');
select core.define_sort('timetable_slot', 'day_of_week',
  'ts.day_of_week', 'ts.period', 'g.sequence nulls last', 'platform.search_normal(api.class_name(c.name, c.section))');
select core.define_sort('timetable_slot', 'class_name',
  'g.sequence nulls last', 'platform.search_normal(api.class_name(c.name, c.section))', 'ts.day_of_week', 'ts.period');
select core.define_sort('timetable_slot', 'subject_name',
  'platform.search_normal(su.name)', 'ts.day_of_week', 'ts.period');
select core.define_sort('timetable_slot', 'teacher_name',
  'platform.search_normal(t.last_name) nulls last', 'platform.search_normal(t.first_name) nulls last',
  'ts.day_of_week', 'ts.period');

-- The shape of the school day, with the times that come of it.
select core.define_record('timetable_config', p_table => 'timetable_config', p_key => 'c.id::integer', p_is_single => true,
  p_source => 'timetable_config c',
  p_columns => $$
    c.total_periods, c.lunch_start_period, c.lunch_periods, c.period_duration,
    to_char(c.start_time, 'HH24:MI') as start_time, c.break_after, c.break_duration, c.working_days,
    (select json_agg(json_build_object('period', pt.period, 'start_time', to_char(pt.start_time, 'HH24:MI'),
      'end_time', to_char(pt.end_time, 'HH24:MI'),
      'is_lunch', pt.is_lunch) order by pt.period) from api.period_times() pt where pt.is_in_day) as periods,
    c.created_at, c.updated_at
  $$);

-- What is common to all of the school is for whoever manages the timetable of all of it: raises forbidden for a teacher who has
-- the permission for their classes.
create function api.require_whole_timetable() returns void language plpgsql stable as $$
begin
  if not core.has_permission_for_all('timetable.manage') then
    perform core.fail('forbidden', 'This needs the permission timetable.manage for the whole school.');
  end if;
end $$;
comment on function api.require_whole_timetable is 'Raises forbidden for who manages the timetable of some classes only.';

-- The shape of the school day.
create function api.timetable_config_get(p jsonb) returns json language sql stable as $$
  select api.timetable_config_record(1);
$$;

-- The English name of a day of the week; 1 is Monday.
create function api.day_name(p_day_of_week integer) returns text language sql stable
  return to_char(date '2001-01-07' + p_day_of_week, 'FMDay');
comment on function api.day_name is 'The English name of a day of the week; 1 is Monday.';

-- Changes what the request names. Raises validation_error for a day that is not one, schedule_conflict when slots of the current
-- or a later year would lie outside it, at lunch or on a day without school. What teachers said of periods that the day loses
-- stays: nobody is shown it, no slot can come to stand there, and it counts again with a longer day.
create function api.timetable_config_update(p jsonb) returns json language plpgsql as $$
declare
  v_before record;
  v_after record;
  v_broken text;
  v_fault record;
  v_slots jsonb;
  v_conflicts record;
begin
  perform api.require_whole_timetable();
  select * into v_before from timetable_config;
  if p ? 'read_only' then
    perform core.refuse_read_only(p -> 'read_only', api.timetable_config_record(1)::jsonb, '{updated_at}');
  end if;
  select n.* into v_after from timetable_config c, jsonb_populate_record(c, p) n;
  begin
    update timetable_config c
      set (total_periods, lunch_start_period, lunch_periods, period_duration, start_time, break_after, break_duration, working_days) =
          (v_after.total_periods, v_after.lunch_start_period, v_after.lunch_periods, v_after.period_duration, v_after.start_time, v_after.break_after, v_after.break_duration, v_after.working_days);
  exception when check_violation then
    get stacked diagnostics v_broken = constraint_name;
  end;
  -- What the table's own checks say, by the first of their fields that the request names.
  select f.fields, f.message into v_fault from (values
      ('timetable_config_lunch_start_period_check', '{lunch_start_period,lunch_periods,total_periods}'::text[],
        format('A day of %s periods has no period %s for lunch.', v_after.total_periods, v_after.lunch_start_period)),
      ('timetable_config_lunch_end_check', '{lunch_start_period,lunch_periods,total_periods}',
        format('A day of %s periods has no lunch from period %s to %s.', v_after.total_periods, v_after.lunch_start_period, v_after.lunch_start_period + v_after.lunch_periods - 1)),
      ('timetable_config_break_after_check', '{break_after,total_periods}',
        format('A day of %s periods has breaks after periods 1 to %s.', v_after.total_periods, v_after.total_periods - 1)),
      ('timetable_config_day_end_check', '{total_periods,period_duration,break_duration,break_after,start_time}', 'The day must end before midnight.')
    ) f (check_name, fields, message) where f.check_name = v_broken;
  if v_broken is not null then
    perform core.refuse_field('validation_error', (select field from unnest(v_fault.fields) field where p ? field limit 1), coalesce(v_fault.message, 'The day is not one.'));
  end if;
  if (v_before.total_periods, v_before.lunch_start_period, v_before.lunch_periods, v_before.working_days)
     is distinct from (v_after.total_periods, v_after.lunch_start_period, v_after.lunch_periods, v_after.working_days) then
    select jsonb_agg(jsonb_build_object('slot_id', s.id, 'class_id', s.class_id, 'academic_year_id', s.academic_year_id, 'day_of_week', s.day_of_week, 'period', s.period,
        'class_name', api.class_name(c.name, c.section), 'subject_name', su.name)
      order by y.start_date, s.day_of_week, s.period, c.name, c.section, s.id) into v_slots
      from academic_year y join timetable_slot s on s.academic_year_id = y.id join class c on c.id = s.class_id join subject su on su.id = s.subject_id
      where y.end_date >= coalesce((select start_date from academic_year where is_current), core.today());
    select count(distinct k."position") as slots, json_agg(json_build_object('path', k.path, 'message', k.message, 'kind', k.kind, 'slot_id', k.slot_id) order by k.n) filter (where k.n <= 5) as details
      into v_conflicts
      from (
        select x."position", x.kind, (s.slot ->> 'slot_id')::bigint as slot_id, row_number() over (order by x."position", x.path) as n,
          case when x.kind = 'lunch' then 'lunch_start_period' when x.path = 'period' then 'total_periods' else 'working_days' end as path,
          format('%s has %s on %s, period %s: %s', s.slot ->> 'class_name', s.slot ->> 'subject_name', api.day_name((s.slot ->> 'day_of_week')::integer), s.slot ->> 'period', x.message) as message
        from timetable_conflicts(v_slots, true, '{lunch,outside_day}') x cross join lateral (select v_slots -> x."position") s (slot)
      ) k;
    if v_conflicts.slots > 0 then
      perform core.fail('schedule_conflict', format('%s of the timetable would lie outside the day, at lunch or on a day without school. Move or remove %s first.',
        case v_conflicts.slots when 1 then 'One slot' else v_conflicts.slots || ' slots' end, case v_conflicts.slots when 1 then 'it' else 'them' end), v_conflicts.details);
    end if;
  end if;
  return api.timetable_config_record(1);
end $$;

-- Slots by day and period; search over class, subject, teacher and room; filters class_id, teacher_id, academic_year_id,
-- day_of_week. A class is of one year; where neither it nor a year is named they are of the current year.
create function api.timetable_slots_list(p jsonb) returns json language sql stable as $$
  select core.record_page('timetable_slot', case when p ?| '{class_id,academic_year_id}' then p
    else p || jsonb_build_object('academic_year_id', coalesce((select id from academic_year where is_current), 0)) end);
$$;

select core.define_functions('timetable_slots', 'timetable_slot',
  p_get => 'One slot, or not_found.',
  p_delete => 'Takes the slot out of the timetable.');

-- The academic year of a class that a slot is to have; invalid_reference for a class out of reach.
create function api.slot_year_id(p_class_id bigint) returns bigint language plpgsql stable as $$
declare
  v_id bigint := (select academic_year_id from class where id = p_class_id);
begin
  if v_id is null then
    perform core.refuse_field('invalid_reference', 'class_id', format('There is no class %s.', p_class_id));
  end if;
  return v_id;
end $$;
comment on function api.slot_year_id is 'The academic year of a class that a slot is to have, or invalid_reference.';

-- A new slot; schedule_conflict when something is in the way, invalid_reference for a class out of reach and for a teacher who is
-- not active.
create function api.timetable_slots_create(p jsonb) returns json language plpgsql as $$
declare
  v_year_id bigint := api.slot_year_id((p ->> 'class_id')::bigint);
  v_id bigint;
begin
  perform api.require_active_teacher((p ->> 'teacher_id')::bigint, 'teacher_id');
  v_id := core.record_insert('timetable_slot', p || jsonb_build_object('academic_year_id', v_year_id));
  return api.timetable_slot_record(v_id);
end $$;

-- Changes a slot; the academic year follows the class. A teacher who left meanwhile may stay, no other may come.
create function api.timetable_slots_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before record;
begin
  select s.class_id, s.teacher_id into v_before from timetable_slot s where s.id = v_id;
  if (p ->> 'class_id')::bigint <> v_before.class_id then
    p := p || jsonb_build_object('academic_year_id', api.slot_year_id((p ->> 'class_id')::bigint));
  end if;
  if p ? 'teacher_id' and (p ->> 'teacher_id')::bigint is distinct from v_before.teacher_id then
    perform api.require_active_teacher((p ->> 'teacher_id')::bigint, 'teacher_id');
  end if;
  perform core.record_update('timetable_slot', p);
  return api.timetable_slot_record(v_id);
end $$;

-- {day_of_week, period, swap?}: moves a slot; to where it is, nothing changes. With swap what its class has there comes to where
-- the slot was, and is swapped_with in the answer; else that is a schedule_conflict like all that is in the way. The other slot
-- is written in the same statement, so that both are judged as they will be.
create function api.timetable_slots_move(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_other_id bigint;
begin
  with changed as (
    update timetable_slot s
      set (day_of_week, period) = (select x.day_of_week, x.period from (values
        (true, (p ->> 'day_of_week')::integer, (p ->> 'period')::integer), (false, moved.day_of_week, moved.period)) x (is_moved, day_of_week, period) where x.is_moved = (s.id = v_id))
      from timetable_slot moved
      where moved.id = v_id and (moved.day_of_week, moved.period) <> ((p ->> 'day_of_week')::integer, (p ->> 'period')::integer)
        and (s.id = v_id or ((p ->> 'swap')::boolean and s.class_id = moved.class_id and s.academic_year_id = moved.academic_year_id
          and s.day_of_week = (p ->> 'day_of_week')::integer and s.period = (p ->> 'period')::integer))
      returning s.id
  )
  select id into v_other_id from changed where id <> v_id;
  -- At the end of the record as it is, whose fields keep their order.
  return left(api.timetable_slot_record(v_id)::text, -1) || ',"swapped_with":'
    || coalesce(case when v_other_id is not null then api.timetable_slot_record(v_other_id)::text end, 'null') || '}';
end $$;
comment on function api.timetable_slots_move is 'Moves a slot, or lets it change places with what its class has there.';

-- What would be in the way of a slot, or of one that stands already (exclude_slot_id) in another place, with swap as
-- timetable_slots_move has it: {has_conflict, conflicts: [{kind, message, slot}]}. Says what writing it would say;
-- invalid_reference for what does not exist.
create function api.timetable_check_conflicts(p jsonb) returns json language plpgsql stable as $$
declare
  v_year_id bigint := api.slot_year_id((p ->> 'class_id')::bigint);
  v_was record;
begin
  select s.* into v_was from timetable_slot s where s.id = (p ->> 'exclude_slot_id')::bigint and s.class_id in (select id from class);
  if p ->> 'exclude_slot_id' is not null and not found then
    perform core.refuse_field('invalid_reference', 'exclude_slot_id', format('There is no slot %s.', p ->> 'exclude_slot_id'));
  elsif p ->> 'teacher_id' is not null and v_was.teacher_id is distinct from (p ->> 'teacher_id')::bigint
     and not exists (select from teacher where id = (p ->> 'teacher_id')::bigint and is_active and deleted_at is null) then
    perform core.refuse_field('invalid_reference', 'teacher_id', format('There is no active teacher %s.', p ->> 'teacher_id'));
  end if;
  return (
    with wanted as (
      select 1 as place, v_was.id as slot_id, (p ->> 'class_id')::bigint as class_id, v_year_id as academic_year_id, (p ->> 'teacher_id')::bigint as teacher_id,
        (p ->> 'day_of_week')::integer as day_of_week, (p ->> 'period')::integer as period, v_was.class_id as was_class_id, v_was.academic_year_id as was_academic_year_id,
        v_was.teacher_id as was_teacher_id, v_was.day_of_week as was_day_of_week, v_was.period as was_period
      union all
      select 2, s.id, s.class_id, s.academic_year_id, s.teacher_id, v_was.day_of_week, v_was.period, s.class_id, s.academic_year_id, s.teacher_id, s.day_of_week, s.period
      from timetable_slot s
      where (p ->> 'swap')::boolean and s.id <> v_was.id and s.class_id = v_was.class_id and s.academic_year_id = v_was.academic_year_id
        and s.day_of_week = (p ->> 'day_of_week')::integer and s.period = (p ->> 'period')::integer
    )
    select json_build_object('has_conflict', count(*) > 0,
      'conflicts', coalesce(json_agg(json_build_object('kind', c.kind, 'message', c.message, 'slot', c.slot)), '[]'))
    from timetable_conflicts((select jsonb_agg(to_jsonb(w) - 'place' order by w.place) from wanted w), false) c);
end $$;
comment on function api.timetable_check_conflicts is 'What would be in the way of a slot.';

-- What the generator works on, for some classes of a year, every list in the order of its ids so that the same school is the same
-- problem: the days and periods of the config, the lessons that the class subjects ask for (those without an active teacher
-- apart), and of their teachers the limits, when they are away, and what they have in other classes. `standing` is what the classes
-- have now, which the generator does not look at: with it, two problems are equal where nothing changed that a generate
-- reads or replaces. Slots that are pinned stay: their class and teacher are not there then, and the lessons are so many fewer.
create function api.timetable_problem(p_class_ids bigint[], p_academic_year_id bigint) returns jsonb language sql stable as $$
  with shape as materialized (
    select c.total_periods, array(select d from unnest(c.working_days) d group by d order by d) as days,
      array(select n from generate_series(1, c.total_periods) n where n between c.lunch_start_period and c.lunch_start_period + c.lunch_periods - 1 order by n) as lunch
    from timetable_config c
  ),
  pinned as materialized (
    select s.class_id, s.subject_id, array_position(f.days, s.day_of_week) as day, s.period
    from timetable_slot s join shape f on true where s.class_id = any (p_class_ids) and s.academic_year_id = p_academic_year_id and s.is_pinned
  ),
  wanted as materialized (
    select cs.class_id, cs.subject_id, cs.teacher_id, n.periods as periods_per_week, coalesce(t.is_active and t.deleted_at is null, false) as has_teacher
    from class_subject cs
    left join teacher t on t.id = cs.teacher_id
    cross join lateral (select cs.periods_per_week - count(*)::integer as periods from pinned i where i.class_id = cs.class_id and i.subject_id = cs.subject_id) n
    where cs.class_id = any (p_class_ids) and n.periods > 0
  ),
  teaching as materialized (
    select t.id, t.max_periods_per_day, t.max_periods_per_week from teacher t where t.id in (select w.teacher_id from wanted w where w.has_teacher)
  ),
  away as (
    select a.teacher_id, jsonb_agg(jsonb_build_array(array_position(f.days, a.day_of_week), a.period) order by a.day_of_week, a.period) as times
    from teaching t join teacher_availability a on a.teacher_id = t.id and not a.is_available join shape f on a.day_of_week = any (f.days) and a.period <= f.total_periods
    group by a.teacher_id
  ),
  busy as (
    select s.teacher_id, jsonb_agg(jsonb_build_array(array_position(f.days, s.day_of_week), s.period) order by s.day_of_week, s.period) as times
    from teaching t join timetable_slot s on s.teacher_id = t.id and s.academic_year_id = p_academic_year_id and (s.is_pinned or s.class_id <> all (p_class_ids))
    join shape f on s.day_of_week = any (f.days)
    group by s.teacher_id
  )
  select jsonb_build_object(
    'working_days', f.days, 'days', cardinality(f.days), 'periods_per_day', f.total_periods, 'lunch_periods', f.lunch,
    'classes', (select coalesce(jsonb_agg(jsonb_build_object('id', c.id, 'unavailable', coalesce(
        (select jsonb_agg(jsonb_build_array(i.day, i.period) order by i.day, i.period) from pinned i where i.class_id = c.id and i.day is not null), '[]')) order by c.id), '[]')
      from class c where c.id = any (p_class_ids) and c.academic_year_id = p_academic_year_id),
    'teachers', (select coalesce(jsonb_agg(jsonb_build_object('id', t.id, 'unavailable', coalesce(a.times, '[]'), 'busy', coalesce(b.times, '[]'),
        'max_per_day', t.max_periods_per_day, 'max_per_week', t.max_periods_per_week) order by t.id), '[]')
      from teaching t left join away a on a.teacher_id = t.id left join busy b on b.teacher_id = t.id),
    'lessons', (select coalesce(jsonb_agg(jsonb_build_object('class', w.class_id, 'subject', w.subject_id, 'teacher', w.teacher_id, 'periods_per_week', w.periods_per_week)
        order by w.class_id, w.subject_id), '[]') from wanted w where w.has_teacher),
    'untaught', (select coalesce(jsonb_agg(jsonb_build_object('class', w.class_id, 'subject', w.subject_id, 'teacher', w.teacher_id, 'periods_per_week', w.periods_per_week)
        order by w.class_id, w.subject_id), '[]') from wanted w where not w.has_teacher),
    'standing', (select md5(coalesce(string_agg(s.id || ' ' || s.updated_at, ',' order by s.id), ''))
      from timetable_slot s where s.class_id = any (p_class_ids)))
  from shape f;
$$;
comment on function api.timetable_problem is 'What the generator works on, for some classes of a year.';

-- Begins a generate, {class_ids?, academic_year_id?}: answers {run, problem, digest, academic_year_id, class_ids, standing, names} and
-- holds the school's turn for 20 seconds, and on as long as timetable_generate_renew is called, until timetable_generate_save
-- or _end gives it back; {busy_since} while another generate has it. standing: how many slots will make way. Without class_ids all
-- classes of the year that have subjects. Raises forbidden for who manages only some classes, invalid_reference, conflict when
-- there is nothing to place.
create function api.timetable_generate(p jsonb) returns json language plpgsql as $$
declare
  v_year_id bigint := (p ->> 'academic_year_id')::bigint;
  v_class_ids bigint[] := array(select distinct c.id::bigint from jsonb_array_elements_text(p -> 'class_ids') c (id) order by 1);
  v_run text := gen_random_uuid();
  v_now timestamptz := clock_timestamp();
  v_fault record;
  v_problem jsonb;
begin
  perform api.require_whole_timetable();
  if v_year_id is not null and not exists (select from academic_year where id = v_year_id) then
    perform core.refuse_field('invalid_reference', 'academic_year_id', format('There is no academic year %s.', v_year_id));
  end if;
  -- Classes say their year; without them it is the current one.
  v_year_id := coalesce(v_year_id, (select c.academic_year_id from class c where c.id = (p #>> '{class_ids,0}')::bigint), (select id from academic_year where is_current));
  select g.position - 1 as place, g.id, c.id is null as is_unknown into v_fault
    from jsonb_array_elements_text(p -> 'class_ids') with ordinality g (id, position) left join class c on c.id = g.id::bigint
    where c.id is null or c.academic_year_id <> v_year_id order by g.position limit 1;
  if found then
    perform core.refuse_field('invalid_reference', 'class_ids.' || v_fault.place,
      case when v_fault.is_unknown then format('There is no class %s.', v_fault.id) else format('Class %s is of another academic year.', v_fault.id) end);
  end if;
  if not p ? 'class_ids' then
    v_class_ids := array(select c.id from class c where c.academic_year_id = v_year_id and exists (select from class_subject cs where cs.class_id = c.id) order by c.id);
    if not exists (select from class where academic_year_id = v_year_id) then
      perform core.fail('conflict', 'The academic year has no classes. Add classes and their subjects first.');
    end if;
  end if;
  if not exists (select from class_subject where class_id = any (v_class_ids)) then
    perform core.fail('conflict', 'These classes have no subjects. Say which subjects each class has, how often a week and who teaches them, first.');
  end if;

  insert into timetable_generation (is_running, run, started_at, expires_at)
    values (true, v_run, v_now, v_now + interval '20 seconds')
    on conflict (is_running) do update set run = excluded.run, started_at = excluded.started_at, expires_at = excluded.expires_at
      where timetable_generation.expires_at < excluded.started_at;
  if not found then
    return (select json_build_object('busy_since', started_at) from timetable_generation);
  end if;
  v_problem := api.timetable_problem(v_class_ids, v_year_id);
  if v_problem -> 'lessons' = '[]' and v_problem -> 'untaught' <> '[]' then
    perform core.fail('conflict', 'No subject of these classes has an active teacher. Say who teaches them first.');
  end if;
  return json_build_object('run', v_run, 'problem', v_problem, 'digest', md5(v_problem::text), 'academic_year_id', v_year_id, 'class_ids', v_class_ids,
    'standing', (select count(*) from timetable_slot where class_id = any (v_class_ids) and not is_pinned),
    'names', json_build_object(
      'classes', (select json_object_agg(id, api.class_name(name, section)) from class where id = any (v_class_ids)),
      'subjects', (select json_object_agg(id, name) from subject where id in (select subject_id from class_subject where class_id = any (v_class_ids))),
      'teachers', coalesce((select json_object_agg(id, first_name || ' ' || last_name) from teacher
        where id in (select teacher_id from class_subject where class_id = any (v_class_ids))), '{}')));
end $$;

-- Ends a generate, {run, digest, academic_year_id, class_ids, slots}: the slots take the place of all that the classes have and that
-- Ends a generate, {run, digest, academic_year_id, class_ids, slots}: the slots take the place of all that the classes have and that
-- is not pinned, and the turn is over; answers {ids}, in the order of the slots, and tells teachers and students. Raises conflict when the
-- turn was lost, or when what the generator worked on has changed meanwhile. Limits and availability of teachers change under a lock of
-- the teacher, and so not between the comparison and the slots.
create function api.timetable_generate_save(p jsonb) returns json language plpgsql as $$
declare
  v_class_ids bigint[] := array(select c.id::bigint from jsonb_array_elements_text(p -> 'class_ids') c (id));
  v_year_id bigint := (p ->> 'academic_year_id')::bigint;
begin
  perform api.require_whole_timetable();
  perform from teacher where id in (select distinct s.teacher_id from jsonb_to_recordset(p -> 'slots') s (teacher_id bigint)) order by id for share;
  delete from timetable_generation where run = p ->> 'run';
  if not found then
    perform core.fail('conflict', 'Another timetable was generated meanwhile, since this one took too long. Generate again.');
  elsif md5(api.timetable_problem(v_class_ids, v_year_id)::text) <> p ->> 'digest' then
    perform core.fail('conflict', 'Classes, teachers, the timetable or its config were changed meanwhile; the timetable is as it was. Generate again.');
  end if;
  delete from timetable_slot where class_id = any (v_class_ids) and not is_pinned;
  insert into timetable_slot (class_id, academic_year_id, subject_id, teacher_id, day_of_week, period)
    select s.class_id, v_year_id, s.subject_id, s.teacher_id, s.day_of_week, s.period
    from jsonb_to_recordset(p -> 'slots') s (class_id bigint, subject_id bigint, teacher_id bigint, day_of_week integer, period integer)
    order by s.class_id, s.day_of_week, s.period;
  perform core.notify('timetable.published', (
    select jsonb_agg(jsonb_build_object('user_id', user_id, 'variables', jsonb_build_object('classes', classes)))
    from (
      select s.user_id, api.class_name(c.name, c.section) as classes
        from class c join student s on s.class_id = c.id where c.id = any (v_class_ids) and s.user_id is not null and s.is_active and s.deleted_at is null
      union all
      select t.user_id, string_agg(distinct api.class_name(c.name, c.section), ', ')
        from timetable_slot ts join class c on c.id = ts.class_id join teacher t on t.id = ts.teacher_id
        where ts.class_id = any (v_class_ids) and t.user_id is not null group by t.user_id) told));
  return (
    select json_build_object('ids', coalesce(json_agg(t.id order by s.n), '[]'))
    from rows from (jsonb_to_recordset(p -> 'slots') as (class_id bigint, day_of_week integer, period integer)) with ordinality s (class_id, day_of_week, period, n)
    join timetable_slot t on t.class_id = s.class_id and t.academic_year_id = v_year_id and t.day_of_week = s.day_of_week and t.period = s.period);
end $$;

-- Keeps the turn of a generate that goes on, {run}, for 20 more seconds; answers {is_held}: false when it was lost.
create function api.timetable_generate_renew(p jsonb) returns json language plpgsql as $$
begin
  update timetable_generation set expires_at = clock_timestamp() + interval '20 seconds' where run = p ->> 'run';
  return json_build_object('is_held', found);
end $$;

-- Gives the turn of a generate back that saved nothing, {run}: only who has it knows its name, whatever rights they have by now.
create function api.timetable_generate_end(p jsonb) returns json language plpgsql as $$
begin
  delete from timetable_generation where run = p ->> 'run';
  return json_build_object('ended', found);
end $$;
