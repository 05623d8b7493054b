-- The timetable: the school day, the availability of teachers, the slots and their rules, and calendar feeds.

create table timetable_config (
  id boolean primary key default true
    constraint timetable_config_id_check check (id),
  total_periods integer not null default 8
    constraint timetable_config_total_periods_check check (total_periods between 1 and 24),
  lunch_start_period integer
    constraint timetable_config_lunch_start_period_check check (lunch_start_period between 1 and total_periods),
  lunch_periods integer not null default 1
    constraint timetable_config_lunch_periods_check check (lunch_periods between 1 and 4),
  period_duration integer not null default 45
    constraint timetable_config_period_duration_check check (period_duration between 5 and 240),
  start_time time not null default '08:00',
  break_after integer[] not null default '{}'
    constraint timetable_config_break_after_check check (1 <= all (break_after) and total_periods > all (break_after)),
  break_duration integer not null default 15
    constraint timetable_config_break_duration_check check (break_duration between 1 and 120),
  working_days integer[] not null default '{1,2,3,4,5}'
    constraint timetable_config_working_days_check
      check (cardinality(working_days) between 1 and 7 and working_days <@ '{1,2,3,4,5,6,7}'),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint timetable_config_lunch_end_check check (lunch_start_period + lunch_periods <= total_periods + 1),
  constraint timetable_config_day_end_check check (
    extract(epoch from start_time) / 60 + total_periods * period_duration + cardinality(break_after) * break_duration
      < 24 * 60
  )
);
comment on table timetable_config is 'The school day and week. One row. Durations are in minutes, day 1 is Monday.';
comment on column timetable_config.break_after is
  'The periods that are followed by a short break of break_duration minutes. The break delays all later periods.';
insert into timetable_config default values;

create table teacher_availability (
  teacher_id bigint not null references teacher (id) on delete cascade,
  day_of_week integer not null
    constraint teacher_availability_day_of_week_check check (day_of_week between 1 and 7),
  period integer not null
    constraint teacher_availability_period_check check (period between 1 and 24),
  is_available boolean not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (teacher_id, day_of_week, period)
);
comment on table teacher_availability is
  'Whether a teacher is available in a period. Day 1 is Monday. A period without a row is available.';
create policy teachers_see_themselves on teacher_availability as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or teacher_id = nullif(current_setting('app.teacher_id', true), '')::bigint
  );

create table timetable_slot (
  id bigserial primary key,
  class_id bigint not null,
  academic_year_id bigint not null,
  subject_id bigint not null references subject (id) on delete restrict,
  teacher_id bigint references teacher (id) on delete restrict,
  day_of_week integer not null
    constraint timetable_slot_day_of_week_check check (day_of_week between 1 and 7),
  period integer not null
    constraint timetable_slot_period_check check (period between 1 and 24),
  room text,
  is_pinned boolean not null default false,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint timetable_slot_class_id_fkey foreign key (class_id, academic_year_id)
    references class (id, academic_year_id) on update cascade on delete cascade,
  -- Deferred, so that the triggers below can report a conflict first, and so that one statement can swap two slots. The
  -- triggers check the same rules; these constraints are a safety net.
  constraint timetable_slot_class_key unique (class_id, academic_year_id, day_of_week, period)
    deferrable initially deferred,
  constraint timetable_slot_teacher_key unique (teacher_id, academic_year_id, day_of_week, period)
    deferrable initially deferred
);
comment on table timetable_slot is 'A lesson of a class in one period of every week of its academic year.';
comment on column timetable_slot.is_pinned is 'Whether the generator leaves the slot where it is and plans around it.';
create index timetable_slot_subject_id_idx on timetable_slot (subject_id);
create index timetable_slot_academic_year_id_idx on timetable_slot (academic_year_id, day_of_week, period);
-- Teachers see every slot, to know when other teachers are busy, but change only those of classes they teach; lists
-- show them only those too. Students see the slots of their present and past classes.
create policy people_see_slots on timetable_slot as restrictive
  using (
    nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null
    or strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0
  )
  with check (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or (
      current_setting('app.scope', true) = 'taught'
      and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0
    )
  );
create policy people_change_slots_of_classes_they_teach on timetable_slot as restrictive for update
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or (
      current_setting('app.scope', true) = 'taught'
      and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0
    )
  );
create policy people_delete_slots_of_classes_they_teach on timetable_slot as restrictive for delete
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or (
      current_setting('app.scope', true) = 'taught'
      and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0
    )
  );

-- The only implementation of the timetable rules. Parameters:
--   p_slots      [{slot_id?, class_id, academic_year_id, teacher_id?, day_of_week, period, was_class_id?,
--                was_academic_year_id?, was_teacher_id?, was_day_of_week?, was_period?}]
--                A rule is checked only for the fields that differ from the was_ fields, so that a slot that already
--                has a conflict can be moved.
--   p_are_saved  true: timetable_slot contains these slots already; false: they are checked as if it did
--   p_kinds      the rules to check
-- Returns one row per conflict in the order of the slots: position in p_slots (from 0), kind, path (the field whose
-- change causes the conflict), message, and the other slot. All slots of the school are checked, but the result says
-- nothing about classes that the user cannot see.
create function timetable_conflicts(
  p_slots jsonb,
  p_are_saved boolean,
  p_kinds text[] default '{class,teacher,availability,workload_day,workload_week,lunch,outside_day}'
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
        s.slot_id, s.class_id, s.academic_year_id, s.teacher_id, s.day_of_week, s.period,
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
        end as teacher_path
      from rows from (
        jsonb_to_recordset(p_slots) as (
          slot_id bigint, class_id bigint, academic_year_id bigint, teacher_id bigint, day_of_week integer,
          period integer, was_class_id bigint, was_academic_year_id bigint, was_teacher_id bigint,
          was_day_of_week integer, was_period integer
        )
      ) with ordinality s (
        slot_id, class_id, academic_year_id, teacher_id, day_of_week, period, was_class_id, was_academic_year_id,
        was_teacher_id, was_day_of_week, was_period, n
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
          concat_ws(' ', k.name, k.section), su.name, ' with ' || t.first_name || ' ' || t.last_name,
          weekday.name, c.period)
        when 'teacher' then format('%s already teaches %s on %s, period %s.',
          candidate_teacher.name,
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
            'teacher_name', t.first_name || ' ' || t.last_name,
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
      select ct.first_name || ' ' || ct.last_name as name from teacher ct where ct.id = c.teacher_id
    ) candidate_teacher on true
    order by
      x.slot_index,
      array_position('{class,teacher,availability,workload_day,workload_week,lunch,outside_day}'::text[], x.kind),
      x.other_slot_id;
  perform set_config('app.scope', coalesce(v_scope, ''), true);
end $$;
comment on function timetable_conflicts is
  'Finds the conflicts of saved or planned slots: class, teacher, availability, workload, lunch, school day.';
grant execute on function timetable_conflicts to school_tenant;

create function timetable_refuse_conflicts(p_slots jsonb) returns void
  language plpgsql set search_path from current as $$
declare
  v_message text;
  v_count integer;
  v_details json;
begin
  select
    min(c.message) filter (where c.n = 1),
    count(*),
    json_agg(
      json_strip_nulls(json_build_object(
        'path', c.path, 'message', c.message, 'kind', c.kind, 'slot_id', c.slot -> 'slot_id'))
      order by c.n
    ) filter (where c.n <= 20)
    into v_message, v_count, v_details
    from (select k.*, row_number() over () as n from timetable_conflicts(p_slots, true) k) c;
  if v_count > 0 then
    raise exception using errcode = 'S409D', detail = v_details,
      message = v_message || case when v_count > 1 then format(' (and %s more)', v_count - 1) else '' end;
  end if;
end $$;
comment on function timetable_refuse_conflicts is
  'Raises schedule_conflict if saved slots conflict. The message is that of the first conflict, the details are the '
  'first 20: {path, message, kind, slot_id (the other slot)}.';
grant execute on function timetable_refuse_conflicts to school_tenant;

-- Serializes the writers of slots: each waits for the others before it writes a row that they could not see. A change
-- of the configuration takes the same lock. Code that locks rows of slots first must take this lock before.
create function timetable_slot_lock_config() returns trigger language plpgsql set search_path from current as $$
begin
  perform from timetable_config for no key update;
  return null;
end $$;
create trigger lock_config before insert or update on timetable_slot
  for each statement execute function timetable_slot_lock_config();

-- Rejects a statement whose slots conflict. The query of an update is dynamic, so that it is planned each time: a
-- plan for two rows is a bad plan for two thousand.
create function timetable_slot_check_conflicts() returns trigger language plpgsql set search_path from current as $$
declare
  v_slots jsonb;
begin
  if tg_op = 'INSERT' then
    select jsonb_agg(jsonb_build_object(
        'slot_id', id, 'class_id', class_id, 'academic_year_id', academic_year_id, 'teacher_id', teacher_id,
        'day_of_week', day_of_week, 'period', period))
      into v_slots
      from new_slots;
  else
    execute $sql$
      select jsonb_agg(jsonb_build_object(
        'slot_id', n.id, 'class_id', n.class_id, 'academic_year_id', n.academic_year_id, 'teacher_id', n.teacher_id,
        'day_of_week', n.day_of_week, 'period', n.period,
        'was_class_id', o.class_id, 'was_academic_year_id', o.academic_year_id, 'was_teacher_id', o.teacher_id,
        'was_day_of_week', o.day_of_week, 'was_period', o.period))
      from new_slots n
      join old_slots o on o.id = n.id
      where (n.class_id, n.academic_year_id, n.teacher_id, n.day_of_week, n.period)
        is distinct from (o.class_id, o.academic_year_id, o.teacher_id, o.day_of_week, o.period)
    $sql$ into v_slots;
  end if;
  if v_slots is not null then
    perform timetable_refuse_conflicts(v_slots);
  end if;
  return null;
end $$;
create trigger check_conflicts_of_insert after insert on timetable_slot
  referencing new table as new_slots
  for each statement execute function timetable_slot_check_conflicts();
create trigger check_conflicts_of_update after update on timetable_slot
  referencing old table as old_slots new table as new_slots
  for each statement execute function timetable_slot_check_conflicts();

create table timetable_generation (
  is_running boolean primary key default true
    constraint timetable_generation_is_running_check check (is_running),
  run text not null,
  started_at timestamptz not null,
  expires_at timestamptz not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table timetable_generation is
  'The lease of the running timetable generator: at most one row, so that one process at a time generates. The '
  'process renews expires_at; the lease of a process that died expires after seconds.';

create table calendar_feed (
  id bigserial primary key,
  user_id bigint not null references user_account (id) on delete cascade,
  kind text not null
    constraint calendar_feed_kind_check check (kind in ('own', 'class', 'teacher', 'holidays')),
  class_id bigint references class (id) on delete cascade,
  teacher_id bigint references teacher (id) on delete cascade,
  token_hash text not null
    constraint calendar_feed_token_hash_check check (token_hash ~ '^[0-9a-f]{64}$'),
  last_used_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint calendar_feed_class_id_check check ((class_id is not null) = (kind = 'class')),
  constraint calendar_feed_teacher_id_check check ((teacher_id is not null) = (kind = 'teacher'))
);
comment on table calendar_feed is
  'A URL from which a calendar app reads what its owner may read at that time. The token in the URL is the only '
  'credential; app.feed is the hash of the token of the request.';
comment on column calendar_feed.token_hash is 'SHA-256 of the token in hex. The token itself is not stored.';
comment on column calendar_feed.last_used_at is 'Updated at most once an hour.';
create unique index calendar_feed_token_hash_key on calendar_feed (token_hash);
create index calendar_feed_user_id_idx on calendar_feed (user_id, id);
create index calendar_feed_class_id_idx on calendar_feed (class_id);
create index calendar_feed_teacher_id_idx on calendar_feed (teacher_id);
create policy people_have_their_own on calendar_feed as restrictive
  using (
    user_id = nullif(current_setting('app.user_id', true), '')::bigint
    or token_hash = nullif(current_setting('app.feed', true), '')
    or nullif(current_setting('app.is_system', true) = 'yes', false) is not null
  );
create trigger refuse_impersonator before insert or update or delete on calendar_feed
  for each row when (nullif(current_setting('app.impersonator_id', true), '') is not null)
  execute function refuse_impersonator();
