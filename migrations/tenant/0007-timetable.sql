-- The rules of the timetable: what a slot may not meet, and who may write one.

update timetable_config set lunch_periods = least(lunch_periods, total_periods + 1 - lunch_start_period) where lunch_start_period is not null;
alter table timetable_config
  add break_duration integer not null default 15 constraint timetable_config_break_duration_check check (break_duration between 1 and 120),
  add constraint timetable_config_break_after_check check (1 <= all (break_after) and total_periods > all (break_after)),
  add constraint timetable_config_lunch_end_check check (lunch_start_period + lunch_periods <= total_periods + 1),
  add constraint timetable_config_day_end_check
    check (extract(epoch from start_time) / 60 + total_periods * period_duration + cardinality(break_after) * break_duration < 24 * 60);
comment on column timetable_config.break_after is 'Periods after which there is a short break of break_duration minutes: what comes later in the day begins so much later.';

alter table timetable_slot add column is_pinned boolean not null default false;
comment on column timetable_slot.is_pinned is 'The generator leaves it where it is, and plans around it.';

-- Deferred, so that the trigger below names what is in the way before they do, and so that two slots change places in one
-- statement. They are the last line: the trigger knows all that they know.
alter table timetable_slot
  drop constraint timetable_slot_class_key,
  drop constraint timetable_slot_teacher_key,
  add constraint timetable_slot_class_key unique (class_id, academic_year_id, day_of_week, period) deferrable initially deferred,
  add constraint timetable_slot_teacher_key unique (teacher_id, academic_year_id, day_of_week, period) deferrable initially deferred;
create index timetable_slot_academic_year_id_idx on timetable_slot (academic_year_id, day_of_week, period);

-- Who teaches or manages sees when teachers are taken, whatever class has them; lists narrow to the classes they reach. They
-- write only into those. A student sees the slots of the classes they are or were in.
create policy people_see_slots on timetable_slot as restrictive
  using (nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null or strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0)
  with check (nullif(current_setting('app.scope', true) = 'all', false) is not null
    or (current_setting('app.scope', true) = 'taught' and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0));
create policy people_change_slots_of_classes_they_teach on timetable_slot as restrictive for update
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null
    or (current_setting('app.scope', true) = 'taught' and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0));
create policy people_remove_slots_of_classes_they_teach on timetable_slot as restrictive for delete
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null
    or (current_setting('app.scope', true) = 'taught' and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0));

-- What keeps slots from being where they are or would be: the only place that knows the rules.
--   p_slots       [{slot_id?, class_id, academic_year_id, teacher_id?, day_of_week, period, was_class_id?, was_academic_year_id?,
--                 was_teacher_id?, was_day_of_week?, was_period?}]; what a slot was before is not judged again, so that one that a
--                 later rule left in conflict can go elsewhere
--   p_are_there   the slots stand in the table as they are given; else the table is taken as if they did
--   p_kinds       the rules to look at
-- Answers a row for each conflict, in the order of the slots: position from 0, kind, path (the field that was changed so that
-- it came to this), message, and the slot in the way. It looks at all of the school, but tells nothing of classes that the user does not reach.
create function timetable_conflicts(p_slots jsonb, p_are_there boolean,
  p_kinds text[] default '{class,teacher,availability,workload_day,workload_week,lunch,outside_day}')
  returns table ("position" integer, kind text, path text, message text, slot jsonb)
  language plpgsql set search_path from current as $$
#variable_conflict use_column
declare
  v_scope text := current_setting('app.scope', true);
  v_class_ids text := current_setting('app.class_ids', true);
  v_teacher_id bigint := nullif(current_setting('app.teacher_id', true), '')::bigint;
  v_sees_all boolean := coalesce(v_scope, '') in ('', 'all');
  v_elsewhere bigint[] := '{}'; -- the slots of the table that are not where it has them
begin
  perform set_config('app.scope', 'all', true);
  if not p_are_there then
    v_elsewhere := array(select (slot ->> 'slot_id')::bigint from jsonb_array_elements(p_slots) slot where slot ->> 'slot_id' is not null);
  end if;
  return query
    with candidate as materialized (
      select s.n::integer - 1 as place, s.slot_id, s.class_id, s.academic_year_id, s.teacher_id, s.day_of_week, s.period,
        s.was_class_id is null or (s.day_of_week, s.period) <> (s.was_day_of_week, s.was_period) as is_moved,
        s.was_class_id is null or (s.class_id, s.academic_year_id) <> (s.was_class_id, s.was_academic_year_id) as is_of_class,
        s.was_class_id is null or s.day_of_week <> s.was_day_of_week as is_of_day,
        s.teacher_id is not null and (s.was_class_id is null or s.academic_year_id <> s.was_academic_year_id or s.teacher_id is distinct from s.was_teacher_id) as is_of_teacher,
        case when s.was_class_id is null then 'period' when (s.day_of_week, s.period) <> (s.was_day_of_week, s.was_period) then 'period' when s.class_id <> s.was_class_id then 'class_id'
          else 'academic_year_id' end as path_of_class,
        case when s.was_class_id is null or s.teacher_id is distinct from s.was_teacher_id then 'teacher_id' when (s.day_of_week, s.period) <> (s.was_day_of_week, s.was_period) then 'period'
          when s.class_id <> s.was_class_id then 'class_id' else 'academic_year_id' end as path_of_teacher
      from rows from (jsonb_to_recordset(p_slots) as (slot_id bigint, class_id bigint, academic_year_id bigint, teacher_id bigint, day_of_week integer, period integer,
        was_class_id bigint, was_academic_year_id bigint, was_teacher_id bigint, was_day_of_week integer, was_period integer)) with ordinality
        s (slot_id, class_id, academic_year_id, teacher_id, day_of_week, period, was_class_id, was_academic_year_id, was_teacher_id, was_day_of_week, was_period, n)
    ),
    limited as materialized (
      select l.teacher_id, l.academic_year_id, t.max_periods_per_day, t.max_periods_per_week
      from (select distinct c.teacher_id, c.academic_year_id from candidate c where p_kinds && '{workload_day,workload_week}' and c.teacher_id is not null) l
      join teacher t on t.id = l.teacher_id and (t.max_periods_per_day is not null or t.max_periods_per_week is not null)
    ),
    load as materialized (
      select l.teacher_id, l.academic_year_id, o.day_of_week, count(*)::integer as periods
      from limited l
      join (select teacher_id, academic_year_id, day_of_week from timetable_slot where id <> all (v_elsewhere)
            union all
            select teacher_id, academic_year_id, day_of_week from candidate where not p_are_there) o on o.teacher_id = l.teacher_id and o.academic_year_id = l.academic_year_id
      group by l.teacher_id, l.academic_year_id, o.day_of_week
    ),
    week as (
      select w.teacher_id, w.academic_year_id, sum(w.periods)::integer as periods from load w group by w.teacher_id, w.academic_year_id
    ),
    conflict (place, kind, path, other_id, most, periods) as (
      select c.place, 'class', c.path_of_class, o.id, null::integer, null::integer
      from candidate c
      join timetable_slot o on o.class_id = c.class_id and o.academic_year_id = c.academic_year_id and o.day_of_week = c.day_of_week and o.period = c.period
      where 'class' = any (p_kinds) and (c.is_moved or c.is_of_class) and o.id is distinct from c.slot_id and o.id <> all (v_elsewhere)
      union all
      select c.place, 'teacher', c.path_of_teacher, o.id, null, null
      from candidate c
      join timetable_slot o on o.teacher_id = c.teacher_id and o.academic_year_id = c.academic_year_id and o.day_of_week = c.day_of_week and o.period = c.period
      where 'teacher' = any (p_kinds) and (c.is_moved or c.is_of_teacher) and o.id is distinct from c.slot_id and o.id <> all (v_elsewhere)
      union all
      select c.place, 'availability', c.path_of_teacher, null, null, null
      from candidate c
      join teacher_availability a on a.teacher_id = c.teacher_id and a.day_of_week = c.day_of_week and a.period = c.period and not a.is_available
      where 'availability' = any (p_kinds) and (c.is_moved or c.is_of_teacher)
      union all
      -- Once for a teacher and day, at the first of the slots that are too many.
      (select distinct on (c.teacher_id, c.academic_year_id, c.day_of_week) c.place, 'workload_day', case c.path_of_teacher when 'period' then 'day_of_week' else c.path_of_teacher end, null, l.max_periods_per_day, d.periods
       from candidate c
       join limited l on l.teacher_id = c.teacher_id and l.academic_year_id = c.academic_year_id
       join load d on d.teacher_id = c.teacher_id and d.academic_year_id = c.academic_year_id and d.day_of_week = c.day_of_week
       where 'workload_day' = any (p_kinds) and (c.is_of_day or c.is_of_teacher) and d.periods > l.max_periods_per_day
       order by c.teacher_id, c.academic_year_id, c.day_of_week, c.place)
      union all
      (select distinct on (c.teacher_id, c.academic_year_id) c.place, 'workload_week', c.path_of_teacher, null, l.max_periods_per_week, w.periods
       from candidate c
       join limited l on l.teacher_id = c.teacher_id and l.academic_year_id = c.academic_year_id
       join week w on w.teacher_id = c.teacher_id and w.academic_year_id = c.academic_year_id
       where 'workload_week' = any (p_kinds) and c.is_of_teacher and w.periods > l.max_periods_per_week
       order by c.teacher_id, c.academic_year_id, c.place)
      union all
      select c.place, 'lunch', 'period', null, null, null
      from candidate c join timetable_config f on c.period between f.lunch_start_period and f.lunch_start_period + f.lunch_periods - 1
      where 'lunch' = any (p_kinds) and c.is_moved
      union all
      select c.place, 'outside_day', case when c.period > f.total_periods then 'period' else 'day_of_week' end, null, f.total_periods, null
      from candidate c join timetable_config f on c.period > f.total_periods or c.day_of_week <> all (f.working_days)
      where 'outside_day' = any (p_kinds) and c.is_moved
    )
    select x.place, x.kind, x.path,
      case x.kind
        when 'class' then format('%s already has %s%s on %s, period %s.', concat_ws(' ', k.name, k.section), su.name, ' with ' || t.first_name || ' ' || t.last_name, at.day, c.period)
        when 'teacher' then format('%s already teaches %s on %s, period %s.', who.name,
          case when v_sees_all or strpos(v_class_ids, ',' || o.class_id || ',') > 0 then format('%s (%s)', concat_ws(' ', k.name, k.section), su.name) else 'another class' end, at.day, c.period)
        when 'availability' then format('%s is not available on %s, period %s.', who.name, at.day, c.period)
        when 'workload_day' then who.name || case when v_sees_all or c.teacher_id = v_teacher_id
          then format(' would have %s periods on %s, and may have %s a day.', x.periods, at.day, x.most) else format(' can have no more periods on %s.', at.day) end
        when 'workload_week' then who.name || case when v_sees_all or c.teacher_id = v_teacher_id
          then format(' would have %s periods a week, and may have %s.', x.periods, x.most) else ' can have no more periods a week.' end
        when 'lunch' then format('Period %s is lunch.', c.period)
        else case when x.path = 'period' then format('A day has %s periods; there is no period %s.', x.most, c.period) else format('There is no school on %s.', at.day) end
      end,
      case when o.id is not null and (v_sees_all or strpos(v_class_ids, ',' || o.class_id || ',') > 0) then jsonb_build_object(
        'slot_id', o.id, 'class_id', o.class_id, 'class_name', concat_ws(' ', k.name, k.section), 'subject_id', o.subject_id, 'subject_name', su.name,
        'teacher_id', o.teacher_id, 'teacher_name', t.first_name || ' ' || t.last_name, 'day_of_week', o.day_of_week, 'period', o.period) end
    from conflict x
    join candidate c on c.place = x.place
    cross join lateral (select to_char(date '2001-01-07' + c.day_of_week, 'FMDay') as day) at
    left join timetable_slot o on o.id = x.other_id
    left join class k on k.id = o.class_id
    left join subject su on su.id = o.subject_id
    left join teacher t on t.id = o.teacher_id
    left join lateral (select w.first_name || ' ' || w.last_name as name from teacher w where w.id = c.teacher_id) who on true
    order by x.place, array_position('{class,teacher,availability,workload_day,workload_week,lunch,outside_day}'::text[], x.kind), x.other_id;
  perform set_config('app.scope', coalesce(v_scope, ''), true);
end $$;
comment on function timetable_conflicts is 'What keeps slots from being where they are or would be: classes, teachers, availability, workload, lunch, the day.';
grant execute on function timetable_conflicts to school_tenant;

-- Whoever writes slots of this school waits here for whoever does, before there is a slot that others can't see yet; whoever
-- changes the config waits too. Rows of slots that are locked before are locked before this.
create function timetable_slot_take_turns() returns trigger language plpgsql set search_path from current as $$
begin
  perform from timetable_config for no key update;
  return null;
end $$;
create trigger take_turns before insert or update on timetable_slot for each statement execute function timetable_slot_take_turns();

-- Refuses a statement that writes slots which conflict: schedule_conflict, with the conflicts as details. Prepared anew each
-- time, since a plan for two rows is no plan for two thousand.
create function timetable_slot_judge() returns trigger language plpgsql set search_path from current as $$
declare
  v_slots jsonb;
begin
  if tg_op = 'INSERT' then
    select jsonb_agg(jsonb_build_object('slot_id', id, 'class_id', class_id, 'academic_year_id', academic_year_id, 'teacher_id', teacher_id,
      'day_of_week', day_of_week, 'period', period)) into v_slots from new_slots;
  else
    execute $sql$
      select jsonb_agg(jsonb_build_object('slot_id', n.id, 'class_id', n.class_id, 'academic_year_id', n.academic_year_id, 'teacher_id', n.teacher_id,
        'day_of_week', n.day_of_week, 'period', n.period, 'was_class_id', o.class_id, 'was_academic_year_id', o.academic_year_id, 'was_teacher_id', o.teacher_id,
        'was_day_of_week', o.day_of_week, 'was_period', o.period))
      from new_slots n join old_slots o on o.id = n.id
      where (n.class_id, n.academic_year_id, n.teacher_id, n.day_of_week, n.period) is distinct from (o.class_id, o.academic_year_id, o.teacher_id, o.day_of_week, o.period)
    $sql$ into v_slots;
  end if;
  if v_slots is not null then
    perform timetable_refuse(v_slots);
  end if;
  return null;
end $$;

-- Raises schedule_conflict where slots of the table conflict: the message is of the first conflict, the details are the first
-- twenty, {path, message, kind, slot_id (what is in the way)}.
create function timetable_refuse(p_slots jsonb) returns void
  language plpgsql set search_path from current as $$
declare
  v_message text;
  v_count integer;
  v_details json;
begin
  select min(c.message) filter (where c.n = 1), count(*), json_agg(json_strip_nulls(json_build_object('path', c.path, 'message', c.message, 'kind', c.kind, 'slot_id', c.slot -> 'slot_id')) order by c.n) filter (where c.n <= 20)
    into v_message, v_count, v_details
    from (select k.*, row_number() over () as n from timetable_conflicts(p_slots, true) k) c;
  if v_count > 0 then
    raise exception using errcode = 'S409D', detail = v_details,
      message = v_message || case when v_count > 1 then format(' (and %s more)', v_count - 1) else '' end;
  end if;
end $$;
grant execute on function timetable_refuse to school_tenant;

create trigger judge_added after insert on timetable_slot referencing new table as new_slots for each statement execute function timetable_slot_judge();
create trigger judge_changed after update on timetable_slot referencing old table as old_slots new table as new_slots for each statement execute function timetable_slot_judge();

-- One row while a timetable is being generated, so that generates take turns, whichever process runs them. Whoever runs one
-- moves expires_at on as long as it runs.
create table timetable_generation (
  is_running boolean primary key default true constraint timetable_generation_is_running_check check (is_running),
  run text not null,
  started_at timestamptz not null,
  expires_at timestamptz not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table timetable_generation is 'Which generate is running: one row while one does. A process that dies leaves it behind; after expires_at, seconds later, it counts no more.';
