-- Two lessons in one room at one time are a conflict of the kind room. Slots in p_slots have room_id, the room that the
-- lesson reserves (reserved_room_id), was_room_id, and room_path, the field whose change gives them this room.
-- Otherwise the function is that of 0038.
-- @allow replace-function: the earlier release gives no room_id, so it finds the same conflicts as before.
create or replace function timetable_conflicts(
  p_slots jsonb,
  p_are_saved boolean,
  p_kinds text[] default '{class,teacher,room,availability,workload_day,workload_week,lunch,outside_day}'
)
  returns table ("position" integer, kind text, path text, message text, slot jsonb)
  language plpgsql set search_path from current as $$
#variable_conflict use_column
declare
  v_scope text := current_setting('app.scope', true);
  v_class_ids text := current_setting('app.class_ids', true);
  v_teacher_id bigint := nullif(current_setting('app.teacher_id', true), '')::bigint;
  v_sees_all boolean := coalesce(v_scope, '') in ('', 'all');
  v_ignored_slot_ids bigint[] := '{}'; -- rows whose place in p_slots differs from the one in the table
begin
  perform set_config('app.scope', 'all', true);
  if not p_are_saved then
    v_ignored_slot_ids := array(
      select (slot ->> 'slot_id')::bigint
      from jsonb_array_elements(p_slots) slot
      where slot ->> 'slot_id' is not null
    );
  end if;
  return query
    with candidate as materialized (
      select
        s.n::integer - 1 as slot_index,
        s.slot_id, s.class_id, s.academic_year_id, s.teacher_id, s.room_id, s.day_of_week, s.period,
        s.was_class_id is null or (s.day_of_week, s.period) <> (s.was_day_of_week, s.was_period) as has_new_time,
        s.was_class_id is null
          or (s.class_id, s.academic_year_id) <> (s.was_class_id, s.was_academic_year_id) as has_new_class,
        s.was_class_id is null or s.day_of_week <> s.was_day_of_week as has_new_day,
        s.teacher_id is not null
          and (
            s.was_class_id is null
            or s.academic_year_id <> s.was_academic_year_id
            or s.teacher_id is distinct from s.was_teacher_id
          ) as has_new_teacher,
        s.room_id is not null
          and (
            s.was_class_id is null
            or s.academic_year_id <> s.was_academic_year_id
            or s.room_id is distinct from s.was_room_id
          ) as has_new_room,
        case
          when s.was_class_id is null then 'period'
          when (s.day_of_week, s.period) <> (s.was_day_of_week, s.was_period) then 'period'
          when s.class_id <> s.was_class_id then 'class_id'
          else 'academic_year_id'
        end as class_path,
        case
          when s.was_class_id is null or s.teacher_id is distinct from s.was_teacher_id then 'teacher_id'
          when (s.day_of_week, s.period) <> (s.was_day_of_week, s.was_period) then 'period'
          when s.class_id <> s.was_class_id then 'class_id'
          else 'academic_year_id'
        end as teacher_path,
        case
          when s.was_class_id is null or s.room_id is distinct from s.was_room_id
            then coalesce(s.room_path, 'room_id')
          when (s.day_of_week, s.period) <> (s.was_day_of_week, s.was_period) then 'period'
          else 'academic_year_id'
        end as room_path
      from rows from (
        jsonb_to_recordset(p_slots) as (
          slot_id bigint, class_id bigint, academic_year_id bigint, teacher_id bigint, room_id bigint,
          room_path text, day_of_week integer, period integer, was_class_id bigint, was_academic_year_id bigint,
          was_teacher_id bigint, was_room_id bigint, was_day_of_week integer, was_period integer
        )
      ) with ordinality s (
        slot_id, class_id, academic_year_id, teacher_id, room_id, room_path, day_of_week, period, was_class_id,
        was_academic_year_id, was_teacher_id, was_room_id, was_day_of_week, was_period, n
      )
    ),
    limited_teacher as materialized (
      select l.teacher_id, l.academic_year_id, t.max_periods_per_day, t.max_periods_per_week
      from (
        select distinct c.teacher_id, c.academic_year_id
        from candidate c
        where p_kinds && '{workload_day,workload_week}' and c.teacher_id is not null
      ) l
      join teacher t
        on t.id = l.teacher_id and (t.max_periods_per_day is not null or t.max_periods_per_week is not null)
    ),
    day_load as materialized (
      select l.teacher_id, l.academic_year_id, o.day_of_week, count(*)::integer as periods
      from limited_teacher l
      join (
        select teacher_id, academic_year_id, day_of_week from timetable_slot where id <> all (v_ignored_slot_ids)
        union all
        select teacher_id, academic_year_id, day_of_week from candidate where not p_are_saved
      ) o on o.teacher_id = l.teacher_id and o.academic_year_id = l.academic_year_id
      group by l.teacher_id, l.academic_year_id, o.day_of_week
    ),
    week_load as (
      select d.teacher_id, d.academic_year_id, sum(d.periods)::integer as periods
      from day_load d
      group by d.teacher_id, d.academic_year_id
    ),
    conflict (slot_index, kind, path, other_slot_id, max_periods, periods) as (
      select c.slot_index, 'class', c.class_path, o.id, null::integer, null::integer
      from candidate c
      join timetable_slot o
        on o.class_id = c.class_id and o.academic_year_id = c.academic_year_id
          and o.day_of_week = c.day_of_week and o.period = c.period
      where 'class' = any (p_kinds)
        and (c.has_new_time or c.has_new_class)
        and o.id is distinct from c.slot_id
        and o.id <> all (v_ignored_slot_ids)
      union all
      select c.slot_index, 'teacher', c.teacher_path, o.id, null, null
      from candidate c
      join timetable_slot o
        on o.teacher_id = c.teacher_id and o.academic_year_id = c.academic_year_id
          and o.day_of_week = c.day_of_week and o.period = c.period
      where 'teacher' = any (p_kinds)
        and (c.has_new_time or c.has_new_teacher)
        and o.id is distinct from c.slot_id
        and o.id <> all (v_ignored_slot_ids)
      union all
      -- Another slot of the class at this time is a conflict of the kind class.
      select c.slot_index, 'room', c.room_path, o.id, null, null
      from candidate c
      join timetable_slot o
        on o.reserved_room_id = c.room_id and o.academic_year_id = c.academic_year_id
          and o.day_of_week = c.day_of_week and o.period = c.period
      where 'room' = any (p_kinds)
        and (c.has_new_time or c.has_new_room)
        and o.id is distinct from c.slot_id
        and o.class_id <> c.class_id
        and o.id <> all (v_ignored_slot_ids)
      union all
      select c.slot_index, 'availability', c.teacher_path, null, null, null
      from candidate c
      join teacher_availability a
        on a.teacher_id = c.teacher_id and a.day_of_week = c.day_of_week and a.period = c.period
          and not a.is_available
      where 'availability' = any (p_kinds) and (c.has_new_time or c.has_new_teacher)
      union all
      -- Reported once per teacher and day, at the first slot of that day in p_slots.
      (
        select distinct on (c.teacher_id, c.academic_year_id, c.day_of_week)
          c.slot_index, 'workload_day',
          case c.teacher_path when 'period' then 'day_of_week' else c.teacher_path end,
          null, l.max_periods_per_day, d.periods
        from candidate c
        join limited_teacher l on l.teacher_id = c.teacher_id and l.academic_year_id = c.academic_year_id
        join day_load d
          on d.teacher_id = c.teacher_id and d.academic_year_id = c.academic_year_id
            and d.day_of_week = c.day_of_week
        where 'workload_day' = any (p_kinds)
          and (c.has_new_day or c.has_new_teacher)
          and d.periods > l.max_periods_per_day
        order by c.teacher_id, c.academic_year_id, c.day_of_week, c.slot_index
      )
      union all
      (
        select distinct on (c.teacher_id, c.academic_year_id)
          c.slot_index, 'workload_week', c.teacher_path, null, l.max_periods_per_week, w.periods
        from candidate c
        join limited_teacher l on l.teacher_id = c.teacher_id and l.academic_year_id = c.academic_year_id
        join week_load w on w.teacher_id = c.teacher_id and w.academic_year_id = c.academic_year_id
        where 'workload_week' = any (p_kinds) and c.has_new_teacher and w.periods > l.max_periods_per_week
        order by c.teacher_id, c.academic_year_id, c.slot_index
      )
      union all
      select c.slot_index, 'lunch', 'period', null, null, null
      from candidate c
      join timetable_config f on c.period between f.lunch_start_period and f.lunch_start_period + f.lunch_periods - 1
      where 'lunch' = any (p_kinds) and c.has_new_time
      union all
      select
        c.slot_index, 'outside_day', case when c.period > f.total_periods then 'period' else 'day_of_week' end, null,
        f.total_periods, null
      from candidate c
      join timetable_config f on c.period > f.total_periods or c.day_of_week <> all (f.working_days)
      where 'outside_day' = any (p_kinds) and c.has_new_time
    )
    select x.slot_index, x.kind, x.path,
      case x.kind
        when 'class' then format('%s already has %s%s on %s, period %s.',
          concat_ws(' ', k.name, k.section), su.name, ' with ' || rtrim(t.first_name || ' ' || t.last_name),
          weekday.name, c.period)
        when 'teacher' then format('%s already teaches %s on %s, period %s.',
          candidate_teacher.name,
          case
            when v_sees_all or strpos(v_class_ids, ',' || o.class_id || ',') > 0
              then format('%s (%s)', concat_ws(' ', k.name, k.section), su.name)
            else 'another class'
          end,
          weekday.name, c.period)
        when 'room' then format('%s is taken by %s on %s, period %s.',
          (select ro.name from room ro where ro.id = c.room_id),
          case
            when v_sees_all or strpos(v_class_ids, ',' || o.class_id || ',') > 0
              then format('%s (%s)', concat_ws(' ', k.name, k.section), su.name)
            else 'another class'
          end,
          weekday.name, c.period)
        when 'availability' then
          format('%s is not available on %s, period %s.', candidate_teacher.name, weekday.name, c.period)
        when 'workload_day' then candidate_teacher.name || case
          when v_sees_all or c.teacher_id = v_teacher_id
            then format(' would have %s periods on %s. The limit is %s a day.', x.periods, weekday.name, x.max_periods)
          else format(' cannot have more periods on %s.', weekday.name)
        end
        when 'workload_week' then candidate_teacher.name || case
          when v_sees_all or c.teacher_id = v_teacher_id
            then format(' would have %s periods a week. The limit is %s.', x.periods, x.max_periods)
          else ' cannot have more periods a week.'
        end
        when 'lunch' then format('Period %s is lunch.', c.period)
        else case
          when x.path = 'period' then format('A day has %s periods; there is no period %s.', x.max_periods, c.period)
          else format('There is no school on %s.', weekday.name)
        end
      end,
      case
        when o.id is not null and (v_sees_all or strpos(v_class_ids, ',' || o.class_id || ',') > 0)
          then jsonb_build_object(
            'slot_id', o.id,
            'class_id', o.class_id,
            'class_name', concat_ws(' ', k.name, k.section),
            'subject_id', o.subject_id,
            'subject_name', su.name,
            'teacher_id', o.teacher_id,
            'teacher_name', rtrim(t.first_name || ' ' || t.last_name),
            'day_of_week', o.day_of_week,
            'period', o.period
          )
      end
    from conflict x
    join candidate c on c.slot_index = x.slot_index
    -- 2001-01-07 is a Sunday.
    cross join lateral (select to_char(date '2001-01-07' + c.day_of_week, 'FMDay') as name) weekday
    left join timetable_slot o on o.id = x.other_slot_id
    left join class k on k.id = o.class_id
    left join subject su on su.id = o.subject_id
    left join teacher t on t.id = o.teacher_id
    left join lateral (
      select rtrim(ct.first_name || ' ' || ct.last_name) as name from teacher ct where ct.id = c.teacher_id
    ) candidate_teacher on true
    order by
      x.slot_index,
      array_position('{class,teacher,room,availability,workload_day,workload_week,lunch,outside_day}'::text[], x.kind),
      x.other_slot_id;
  perform set_config('app.scope', coalesce(v_scope, ''), true);
end $$;
comment on function timetable_conflicts is
  'Finds the conflicts of saved or planned slots: class, teacher, room, availability, workload, lunch, school day.';

-- @allow replace-function: the earlier release writes no rooms, so it finds the same conflicts as before.
create or replace function timetable_slot_check_conflicts() returns trigger
  language plpgsql set search_path from current as $$
declare
  v_slots jsonb;
begin
  if tg_op = 'INSERT' then
    select jsonb_agg(jsonb_build_object(
        'slot_id', id, 'class_id', class_id, 'academic_year_id', academic_year_id, 'teacher_id', teacher_id,
        'room_id', reserved_room_id, 'room_path', case when room_id is null then 'period' else 'room_id' end,
        'day_of_week', day_of_week, 'period', period))
      into v_slots
      from new_slots;
  else
    execute $sql$
      select jsonb_agg(jsonb_build_object(
        'slot_id', n.id, 'class_id', n.class_id, 'academic_year_id', n.academic_year_id, 'teacher_id', n.teacher_id,
        'room_id', n.reserved_room_id, 'day_of_week', n.day_of_week, 'period', n.period,
        'was_class_id', o.class_id, 'was_academic_year_id', o.academic_year_id, 'was_teacher_id', o.teacher_id,
        'was_room_id', o.reserved_room_id, 'was_day_of_week', o.day_of_week, 'was_period', o.period,
        'room_path', case
          when (n.room_id, n.room) is distinct from (o.room_id, o.room) then 'room_id'
          when n.class_id <> o.class_id then 'class_id'
          else 'home_room_id'
        end))
      from new_slots n
      join old_slots o on o.id = n.id
      where (n.class_id, n.academic_year_id, n.teacher_id, n.reserved_room_id, n.day_of_week, n.period)
        is distinct from (o.class_id, o.academic_year_id, o.teacher_id, o.reserved_room_id, o.day_of_week, o.period)
    $sql$ into v_slots;
  end if;
  if v_slots is not null then
    perform timetable_refuse_conflicts(v_slots);
  end if;
  return null;
end $$;
