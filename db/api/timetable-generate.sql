-- /api/timetable/generate: what the generator has to place, and its lease. The search runs in src/timetable.

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
    select c.id, c.home_room_id
    from class c
    where c.id = any (p_class_ids) and c.academic_year_id = p_academic_year_id
  ),
  planned_room as materialized (
    select r.id, r.is_shared
    from room r
    where r.id in (select home_room_id from planned_class)
      or r.is_active and r.id in (
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
  select jsonb_agg(jsonb_strip_nulls(jsonb_build_object('user_id', user_id, 'link_ids', link_ids))
      || jsonb_build_object('variables', jsonb_build_object('classes', classes))
    order by user_id)
  from (
    select s.user_id, c.name as classes, null::bigint[] as link_ids
    from published c
    join core.enrolled() e on e.class_id = c.id
    join student s on s.id = e.student_id
    where s.user_id is not null
    union all
    select g.user_id, string_agg(distinct c.name, ', '), array_agg(distinct l.id)
    from published c
    join core.enrolled() e on e.class_id = c.id
    join student_guardian l on l.student_id = e.student_id and l.can_see_records and l.receives_messages
      and core.is_linked(l.starts_on, l.ends_on, l.removed_at, core.today())
    join guardian g on g.id = l.guardian_id and g.deleted_at is null
    where g.user_id is not null
      and not exists (
        select from guardian_muted_event m where m.guardian_id = g.id and m.event = 'timetable.published')
    group by g.user_id
    union all
    select t.user_id, string_agg(distinct c.name, ', '), null
    from published c
    join timetable_slot ts on ts.class_id = c.id
    join teacher t on t.id = ts.teacher_id
    where t.user_id is not null and not core.has_left(t.left_on, core.today()) and t.deleted_at is null
    group by t.user_id
  ) recipient;
$$;
comment on function api.timetable_recipients is
  'The recipients of timetable.published, {class_ids}: the students, their guardians and the teachers of the classes. '
  'The variable classes names those of each recipient.';

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
