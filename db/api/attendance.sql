-- /api/attendance: which student was present, absent or late on which day. Marks do not change when students, classes
-- or timetables change. A trigger of the table keeps the previous values of a corrected mark.

select core.define_operation('attendance_mark', p_permission => 'attendance.mark', p_feature => 'attendance',
  p_idempotent => true, p_errors => '{conflict,invalid_reference}', p_needs_search_path => false);
select core.define_operation('attendance_my_classes', p_feature => 'attendance');
select core.define_operation('attendance_class', p_permission => 'attendance.read', p_open_to => 'everyone',
  p_feature => 'attendance');
select core.define_operation('attendance_class_summary', p_permission => 'attendance.read', p_open_to => 'everyone',
  p_feature => 'attendance');
select core.define_operation('attendance_student', p_permission => 'attendance.read', p_open_to => 'everyone',
  p_feature => 'attendance');
select core.define_operation('attendance_me', p_role => 'student', p_feature => 'attendance',
  p_errors => '{not_found}');
select core.define_operation('attendance_calendar_holidays', p_needs_session => false, p_feature => 'attendance',
  p_errors => '{not_found}');

create function api.attendance_rate(p_present numeric, p_late numeric, p_total numeric) returns numeric
  language sql immutable parallel safe
  return round(100 * (p_present + p_late) / nullif(p_total, 0), 2);
comment on function api.attendance_rate is
  'The percentage of marks that are present or late, with two decimals. Null without marks.';

create function api.attendance_corrections() returns table (attendance_id bigint, corrections json)
  language sql stable as $$
  select x.attendance_id,
    json_agg(json_build_object(
      'status', x.status,
      'is_excused', x.is_excused,
      'note', x.note,
      'class_id', x.class_id,
      'marked_by_name', x.marked_by_name,
      'marked_at', x.marked_at,
      'corrected_by_name', x.corrected_by_name,
      'corrected_at', x.corrected_at) order by x.id)
  from attendance_correction x
  -- The planner inlines this function, so that a query for one mark reads only the rows of that mark.
  group by x.attendance_id;
$$;
comment on function api.attendance_corrections is
  'The previous values of each corrected mark, oldest first: [{status, is_excused, note, class_id, marked_by_name, '
  'marked_at, corrected_by_name, corrected_at}]. No row for a mark that was never corrected.';

-- The marks of a class. The key is the student, because a student has at most one mark a day. For a single day,
-- attendance_class replaces the source by api.attendance_sheet. Every mark has a student and a class; the left joins
-- let the planner skip them when it only counts.
select core.define_record('attendance', p_table => 'attendance', p_key => 'm.student_id',
  p_key_parts => '{m.student_id,m.date}',
  p_source => 'attendance m left join student s on s.id = m.student_id left join class c on c.id = m.class_id',
  p_columns => $$
    m.id, m.student_id, core.full_name(s.first_name, s.last_name) as student_name, s.first_name, s.last_name,
    s.roll_number, s.admission_number,
    m.class_id, api.class_name(c.name, c.section) as class_name, m.date, m.status,
    m.is_excused, m.note,
    (select json_build_object('id', x.id, 'from_date', x.from_date, 'to_date', x.to_date, 'reason', x.reason)
      from student_absence x
      where x.student_id = m.student_id and m.date between x.from_date and x.to_date) as announced_absence,
    m.marked_by, m.marked_by_name, m.marked_at,
    coalesce((select x.corrections from api.attendance_corrections() x where x.attendance_id = m.id),
      '[]') as corrections
  $$,
  p_search => $$concat_ws(' ', s.search_name, public.search_form(s.roll_number))$$,
  p_equals => '{class_id,date,status,is_excused}',
  p_default_sort => 'date');
select core.define_filter('attendance', 'from_date', 'm.date >= :value::date');
select core.define_filter('attendance', 'to_date', 'm.date <= :value::date');
select core.define_sort('attendance', 'id', 'm.id nulls last');
select core.define_sort('attendance', 'date',
  'm.date', 'platform.search_normal(s.last_name)', 'platform.search_normal(s.first_name)');
select core.define_sort('attendance', 'student_name',
  'platform.search_normal(s.last_name)', 'platform.search_normal(s.first_name)');
select core.define_sort('attendance', 'roll_number',
  'length(s.roll_number) nulls last', 's.roll_number nulls last');
select core.define_sort('attendance', 'status',
  'm.status nulls last', 'm.date', 'platform.search_normal(s.last_name)', 'platform.search_normal(s.first_name)');

-- The lateral only names two subqueries, so they run for the classes of the page and not for all.
-- "(select core.today())" is a subquery so that it is evaluated once and used for an index lookup, instead of once for
-- every day in the table.
select core.define_record('attendance_class', p_table => 'class', p_key => 'c.id',
  p_source => $$
    class c join grade g on g.id = c.grade_id join academic_year y on y.id = c.academic_year_id and y.is_current
    cross join lateral (select
      (select count(*) from core.enrolled() e where e.class_id = c.id) as students,
      (select present + absent + late from attendance_day d where d.class_id = c.id
        and d.date = (select core.today())) as marked) today
  $$,
  p_columns => $$
    c.id as class_id, api.class_name(c.name, c.section) as class_name, c.grade_id, g.name as grade_name,
    c.academic_year_id,
    today.students as student_count, coalesce(today.marked, 0) as marked_today,
    -- The counts do not tell: students who left during the day were marked too.
    coalesce(today.marked, 0) > 0 and today.students > 0 and not exists (
      select from core.enrolled() e where e.class_id = c.id and not exists (
        select from attendance a where a.student_id = e.student_id and a.date = (select core.today())
          and a.class_id = c.id)) as is_marked_today
  $$,
  p_search => $$public.search_form(concat_ws(' ', c.name, c.section, g.name))$$,
  p_default_sort => 'grade_name');
select core.define_filter('attendance_class', 'teacher_id', $$
  c.id in (select class_id from core.class_staff() where teacher_id = :value::bigint)
$$);
select core.define_sort('attendance_class', 'grade_name',
  'g.sequence nulls last', 'platform.search_normal(g.name)',
  'platform.search_normal(api.class_name(c.name, c.section))');
select core.define_sort('attendance_class', 'class_name',
  'g.sequence nulls last', 'platform.search_normal(api.class_name(c.name, c.section))');

create function api.current_teacher_id() returns bigint language sql stable as $$
  select id from teacher where user_id = core.user_id() and deleted_at is null;
$$;
comment on function api.current_teacher_id is
  'The teacher that is linked to the user of this request, in any scope. Null without one.';

create function api.was_in_class(p_student_id bigint, p_class_id bigint, p_date date) returns boolean
  language sql stable as $$
  select exists (
    select from enrollment e
    where e.student_id = p_student_id and e.class_id = p_class_id
      and e.starts_on <= p_date and coalesce(e.ends_on >= p_date, true));
$$;
comment on function api.was_in_class is
  'Whether a student was enrolled in a class on a day, including the day on which they left it.';

create function api.class_to_mark(p_class_id bigint, p_date date)
  returns table (start_date date, end_date date, holiday text, today date, user_name text)
  language sql stable as $$
  select
    y.start_date,
    y.end_date,
    (select h.holiday ->> 'name' from api.holiday_days(p_date, p_date) h),
    core.today(),
    (select core.full_name(u.first_name, u.last_name) from user_account u where u.id = core.user_id())
  from class c
  join academic_year y on y.id = c.academic_year_id
  where c.id = p_class_id;
$$;
comment on function api.class_to_mark is
  'The facts about a class and a day that api.attendance_require_markable checks: the days of the academic year, the '
  'holiday of the day, today, and the name of the user. No row for a class outside the scope.';

create function api.teaches_class(p_class_id bigint) returns boolean language plpgsql as $$
begin
  return core.run_prepared($statement$
    select to_json(exists (
      select from core.class_staff() s
      where s.class_id = (select (core.parameters() ->> 'class_id')::bigint)
        and s.teacher_id = (select api.current_teacher_id())))
  $statement$, jsonb_build_object('class_id', p_class_id))::text::boolean;
end $$;
comment on function api.teaches_class is 'Whether the user teaches a class, in any of the ways of core.class_staff.';

create function api.attendance_require_markable(
  p_class_id bigint, p_date date, p_marks_any boolean, out holiday_name text, out marked_by_name text
) language plpgsql as $$
declare
  v_class json := core.run_prepared($statement$
    select row_to_json(c)
    from jsonb_to_record((select core.parameters())) r (class_id bigint, date date)
    cross join lateral api.class_to_mark(r.class_id, r.date) c
  $statement$, jsonb_build_object('class_id', p_class_id, 'date', p_date));
begin
  if v_class is null then
    perform core.refuse_field('invalid_reference', 'class_id', format('There is no class %s.', p_class_id));
  end if;
  if not p_marks_any and not api.teaches_class(p_class_id) then
    perform core.fail('forbidden',
      'You do not teach this class. To mark classes of others, you need the permission attendance.manage.');
  elsif p_date > (v_class ->> 'today')::date then
    perform core.refuse_field('validation_error', 'date',
      format('The date is in the future. Today is %s.', v_class ->> 'today'));
  elsif p_date not between (v_class ->> 'start_date')::date and (v_class ->> 'end_date')::date then
    perform core.refuse_field('validation_error', 'date',
      format('The date is outside the academic year of this class, which runs from %s to %s.',
        v_class ->> 'start_date', v_class ->> 'end_date'));
  end if;
  holiday_name := v_class ->> 'holiday';
  marked_by_name := v_class ->> 'user_name';
end $$;
comment on function api.attendance_require_markable is
  'The holiday of a day on which a class is to be marked, and the name of the user who marks it. Raises '
  'invalid_reference for a class outside the scope, forbidden for a class that the user does not teach unless '
  'p_marks_any, validation_error for a day in the future or outside the academic year of the class.';

create function api.attendance_marked_elsewhere(p_class_id bigint, p_date date, p_records jsonb) returns json
  language plpgsql stable as $$
begin
  return core.run_prepared($statement$
    select json_agg(json_build_object(
        'path', format('records.%s.student_id', refused.position - 1),
        'message', format('Student %s was in %s on %s and is already marked there. Correct the mark in that class.',
          refused.student_id, refused.class_name, refused.date))
      order by refused.position)
    from (
      select input.position, a.student_id, a.date, api.class_name(c.name, c.section) as class_name
      from jsonb_to_record((select core.parameters())) r (class_id bigint, date date, records jsonb)
      cross join jsonb_array_elements(r.records) with ordinality input (mark, position)
      join attendance a
        on a.student_id = (input.mark ->> 'student_id')::bigint and a.date = r.date and a.class_id <> r.class_id
      join class c on c.id = a.class_id
      order by input.position
      limit 10
    ) refused
  $statement$, jsonb_build_object('class_id', p_class_id, 'date', p_date, 'records', p_records));
end $$;
comment on function api.attendance_marked_elsewhere is
  'Error details for the first ten records [{student_id}] whose student has a mark of another class on that day. Null '
  'if there are none.';

-- One prepared statement, so that each connection plans it once for each school.
create function api.attendance_write(
  p_class_id bigint, p_date date, p_records jsonb, p_marked_by_name text, p_marked_at timestamptz
) returns json language plpgsql as $$
begin
  return core.run_prepared($statement$
    with request as materialized (
      select r.*
      from jsonb_to_record((select core.parameters())) r (
        class_id bigint, date date, marked_by_name text, marked_at timestamptz)
    ), input as materialized (
      select g.n, g.student_id, g.status, g.is_excused, g.note,
        g.student_id in (
          select e.student_id
          from enrollment e
          where e.class_id = (select class_id from request)
            and (e.ends_on is null
              -- From the day on which a student left, and after a deletion, the student cannot be marked.
              or ((core.has_not_ended(e.starts_on, e.ends_on, (select core.today()))
                  or (select date from request) between e.starts_on and e.ends_on)
                and not exists (
                  select from student s
                  where s.id = e.student_id
                    and (s.deleted_at is not null or core.has_left(s.left_on, (select date from request))))))
        )
        -- But a mark that was made before can be corrected, and sent again with the others.
        or exists (
          select from attendance a, student s
          where a.student_id = g.student_id and a.date = (select date from request)
            and a.class_id = (select class_id from request)
            and s.id = a.student_id and (s.left_on is not null or s.deleted_at is not null)
            and (s.deleted_at is null or a.status = g.status)) as belongs_to_class
      from rows from (
        jsonb_to_recordset((select core.parameters() -> 'records')) as (
          student_id bigint, status text, is_excused boolean, note text)
      ) with ordinality g (student_id, status, is_excused, note, n)
    ), written as (
      insert into attendance as a (
          student_id, class_id, date, status, is_excused, note, marked_by, marked_by_name, marked_at)
        select g.student_id, r.class_id, r.date, g.status,
          coalesce(g.is_excused, g.status = 'absent' and exists (
            select from student_absence x
            where x.student_id = g.student_id and r.date between x.from_date and x.to_date)),
          nullif(g.note, ''), core.user_id(), r.marked_by_name, r.marked_at
        from input g cross join request r
        where g.belongs_to_class
        -- Concurrent requests lock the rows in the same order, so that they cannot deadlock.
        order by g.student_id
        on conflict (student_id, date) do update
          set status = excluded.status,
            class_id = excluded.class_id,
            -- What the request does not say stays as it is, unless the status changes.
            (is_excused, note) = (
              select
                case when g.is_excused is null and g.status = a.status then a.is_excused else excluded.is_excused end,
                case when g.note is null and g.status = a.status then a.note else excluded.note end
              from input g
              where g.student_id = excluded.student_id),
            marked_by = excluded.marked_by,
            marked_by_name = excluded.marked_by_name,
            -- A request that waited for another one must not look older than the mark that it corrects.
            marked_at = greatest(excluded.marked_at, a.marked_at)
          where ((a.status, a.class_id) is distinct from (excluded.status, excluded.class_id)
              or exists (
                select from input g
                where g.student_id = excluded.student_id
                  and (g.is_excused <> a.is_excused
                    or (g.note is not null and nullif(g.note, '') is distinct from a.note))))
            and not exists (select from student s where s.id = a.student_id and s.deleted_at is not null)
            -- This class may overwrite the mark of another class if the student was enrolled in this one on that day,
            -- or was not enrolled in the other one.
            and (a.class_id = excluded.class_id
              or api.was_in_class(a.student_id, excluded.class_id, a.date)
              or not api.was_in_class(a.student_id, a.class_id, a.date))
        -- xmax is 0 for an inserted row, because it has no previous version.
        returning a.id, a.student_id, a.status, a.is_excused, a.xmax::text <> '0' as is_correction
    )
    select json_build_object(
      'answer', json_build_object(
        'class_id', r.class_id,
        'date', r.date,
        'marked', count(*),
        'present', count(*) filter (where g.status = 'present'),
        'absent', count(*) filter (where g.status = 'absent'),
        'late', count(*) filter (where g.status = 'late'),
        'corrected', (select count(*) from written where is_correction),
        'unchanged', count(*) - (select count(*) from written)),
      'not_enrolled', (
        select json_agg(json_build_object(
            'path', format('records.%s.student_id', refused.n - 1),
            'message', case
              when s.deleted_at is not null then format('Student %s was deleted.', s.id)
              when core.has_left(s.left_on, r.date) then format('Student %s left on %s.', s.id, s.left_on)
              else format('Student %s is not in this class and was not in it on %s.', refused.student_id, r.date)
            end)
          order by refused.n)
        from (select n, student_id from input where not belongs_to_class order by n limit 10) refused
        left join student s on s.id = refused.student_id
          and exists (select from enrollment e where e.student_id = s.id and e.class_id = r.class_id)),
      'absences', (select json_agg(written) from written where status <> 'present' and not is_excused))
    from input g cross join request r
    group by r.class_id, r.date
  $statement$, jsonb_build_object('class_id', p_class_id, 'date', p_date, 'records', p_records,
    'marked_by_name', p_marked_by_name, 'marked_at', p_marked_at));
end $$;
comment on function api.attendance_write is
  'Writes the records [{student_id, status, is_excused, note}] of a class and a day, except those of students who '
  'are not in the class and those that the class may not overwrite. {answer: that of attendance_mark; not_enrolled: '
  'error details for the first ten records whose student is not in the class, neither now nor on the day, has left or '
  'was deleted, or null; absences: the new or changed marks that say absent or late and are not excused, [{id, '
  'student_id, status}], or null}.';

create function api.attendance_mark(p jsonb) returns json language plpgsql as $$
declare
  v_class_id bigint := (p ->> 'class_id')::bigint;
  v_date date := (p ->> 'date')::date;
  v_records jsonb := p -> 'records';
  v_marks_any boolean := core.has_permission_for_all('attendance.manage');
  v_now timestamptz := clock_timestamp();
  v_scope text := core.widen_scope(v_marks_any);
  v_day record;
  v_details json;
  v_written json;
begin
  v_day := api.attendance_require_markable(v_class_id, v_date, v_marks_any);

  -- Students may have marks of a previous class that the user does not teach.
  perform core.widen_scope();
  if v_day.holiday_name is not null then
    if core.run_prepared($statement$
      select to_json(exists (
        select from jsonb_to_record((select core.parameters())) r (class_id bigint, date date, records jsonb)
        cross join jsonb_to_recordset(r.records) m (student_id bigint)
        where not exists (
          select from attendance a
          where a.student_id = m.student_id and a.date = r.date and a.class_id = r.class_id)))
    $statement$, p)::text::boolean then
      perform core.refuse_field('conflict', 'date',
        format('%s is a holiday (%s). You can only correct existing marks.', v_date, v_day.holiday_name));
    end if;
  end if;

  v_written := api.attendance_write(v_class_id, v_date, v_records, v_day.marked_by_name, v_now);

  -- The checks come after the write; an error rolls it back.
  if v_written ->> 'not_enrolled' is not null then
    v_details := v_written -> 'not_enrolled';
    perform core.fail('invalid_reference', v_details -> 0 ->> 'message', v_details);
  end if;
  if (v_written #>> '{answer,unchanged}')::integer > 0 then
    -- Some records wrote nothing, because the mark is the same or because this class may not change it. Read after the
    -- write, so that a mark counts that another request wrote while this one waited for its lock.
    v_details := api.attendance_marked_elsewhere(v_class_id, v_date, v_records);
    if v_details is not null then
      perform core.fail('conflict', v_details -> 0 ->> 'message', v_details);
    end if;
  end if;
  if v_written ->> 'absences' is not null then
    -- Entering old registers must not notify anyone.
    if v_date > core.today() - 7 then
      perform api.attendance_notify(v_written -> 'absences', v_class_id, v_date);
    end if;
  end if;
  perform core.restore_scope(v_scope);
  return v_written -> 'answer';
end $$;
comment on function api.attendance_mark is
  'Marks students of a class, all or none: {class_id, date, records: [{student_id, status, is_excused, note}]}. '
  'Repeating a request changes nothing. Without is_excused, a mark keeps it while its status stays, and a new mark '
  'that says absent is excused on the days of an announced absence. Notifies absent and late students and their '
  'parents if the mark is not excused and its day is within the last week. '
  'If a student is enrolled in two classes on that day, because they changed class, the mark that was sent last '
  'counts. For earlier days, the current class of a student may mark them if their class of that day has not. '
  'Raises validation_error for a day in the future or outside the academic year of the class, invalid_reference for '
  'a class outside the scope and for students who are not in it, neither now nor on that day, who have left by that '
  'day or were deleted (their marks can be corrected and repeated), forbidden for a class '
  'that the user does not teach, conflict for new marks on a holiday and for marks of the class of that day.';

create function api.attendance_notify(p_marks json, p_class_id bigint, p_date date) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform core.notify('attendance.' || status, jsonb_build_object(
      'attendance_ids', ids, 'status', status, 'class_id', p_class_id, 'date', p_date))
    from (
      select status, jsonb_agg(id order by id) as ids
      from json_to_recordset(p_marks) m (id bigint, status text)
      group by status
      order by status
    ) marked;
end $$;
comment on function api.attendance_notify is
  'Stores the events attendance.absent and attendance.late in the outbox, for marks [{id, student_id, status}].';

create function api.attendance_recipients(p jsonb) returns jsonb language sql as $$
  with announced as (
    insert into announced_mark as m (attendance_id, status)
      select id, status
      from attendance
      where id = any (array(select jsonb_array_elements_text(p -> 'attendance_ids')::bigint))
        and status = p ->> 'status' and not is_excused
      order by id
      on conflict (attendance_id) do update set status = excluded.status where m.status <> excluded.status
      returning attendance_id
  )
  select api.student_recipients('attendance.' || (p ->> 'status'), jsonb_agg(jsonb_build_object(
    'student_id', a.student_id,
    'class_name', api.class_name(c.name, c.section),
    'date', core.written_day((p ->> 'date')::date)) order by a.student_id))
  from announced
  join attendance a on a.id = announced.attendance_id
  join class c on c.id = (p ->> 'class_id')::bigint
$$;
comment on function api.attendance_recipients is
  'The recipients of attendance.absent and attendance.late, {attendance_ids, status, class_id, date}: the students and '
  'their parents. Without marks that are excused or have another status now, and without those whose status was '
  'announced last (announced_mark).';

create function api.attendance_my_classes(p jsonb) returns json language sql stable as $$
  select core.record_page('attendance_class', p || case
    when core.has_permission_for_all('attendance.manage') and core.has_permission('attendance.mark') then '{}'
    -- No class has teacher 0.
    else jsonb_build_object('teacher_id',
      case when core.permission_scope('attendance.mark') in ('all', 'taught')
        then coalesce(api.current_teacher_id(), 0) else 0 end)
  end);
$$;
comment on function api.attendance_my_classes is
  'The classes of the current academic year that the user may mark, with their marks of today: those that the user '
  'teaches, all with attendance.manage, none without attendance.mark.';

create function api.attendance_sheet(p_class_id bigint, p_date date)
  returns table (
    id bigint, student_id bigint, class_id bigint, date date, status text, is_excused boolean, note text,
    marked_by bigint, marked_by_name text, marked_at timestamptz
  )
  language sql stable as $$
  select
    a.id, r.student_id, p_class_id, p_date, a.status, a.is_excused, a.note, a.marked_by, a.marked_by_name, a.marked_at
  from (
    select student_id from core.attending(p_class_id, p_date)
    union
    select a.student_id from attendance a where a.class_id = p_class_id and a.date = p_date
  ) r
  left join attendance a on a.student_id = r.student_id and a.date = p_date and a.class_id = p_class_id;
$$;
comment on function api.attendance_sheet is
  'One row for each student who attended a class on a day (core.attending), marked or not, and for each student who '
  'was marked in it.';

create function api.attendance_class(p jsonb) returns json language plpgsql stable as $$
declare
  v_class_id bigint := (p ->> 'class_id')::bigint;
  v_date date := coalesce((p ->> 'date')::date, core.today());
  v_days record;
  v_scope text;
  v_answer json;
begin
  perform api.require_class(v_class_id);
  v_scope := core.widen_scope(api.reaches_whole_class(v_class_id));
  if p ?| '{from_date,to_date}' then
    v_days := api.requested_days(p);
    v_answer := core.record_page('attendance',
      p || jsonb_build_object('from_date', v_days.first_day, 'to_date', v_days.last_day));
  else
    v_answer := core.record_page('attendance', p || jsonb_build_object('date', v_date), p_source => $source$
      api.attendance_sheet(
        (select (core.parameters() ->> 'class_id')::bigint), (select (core.parameters() ->> 'date')::date)) m
      left join student s on s.id = m.student_id
      left join class c on c.id = m.class_id
    $source$);
    select json_build_object(
        'data', v_answer -> 'data',
        'pagination', v_answer -> 'pagination',
        'day', json_build_object(
          'date', v_date,
          'is_working_day', extract(isodow from v_date)::integer = any (working_days),
          'holiday', (select h.holiday from api.holiday_days(v_date, v_date) h)))
      into v_answer
      from timetable_config;
  end if;
  perform core.restore_scope(v_scope);
  return v_answer;
end $$;
comment on function api.attendance_class is
  'The students of a class on one day {date (today)}, marked or not, with the school day; or the marks of a range of '
  'days {from_date, to_date}. Searches the students. Filter: status. Raises not_found for a class outside the scope.';

create function api.attendance_class_summary(p jsonb) returns json language plpgsql stable as $$
declare
  v_class_id bigint := (p ->> 'class_id')::bigint;
  v_first_of_month date := date_trunc('month', core.today());
  v_days record;
  v_scope text;
  v_answer json;
begin
  perform api.require_class(v_class_id);
  v_scope := core.widen_scope(api.reaches_whole_class(v_class_id));
  v_days := api.requested_days(p, v_first_of_month, (v_first_of_month + interval '1 month - 1 day')::date);
  with mark as materialized (
    select a.student_id, a.date, a.status, a.is_excused
    from attendance a
    where a.class_id = v_class_id and a.date between v_days.first_day and v_days.last_day
  ), student_marks as (
    select student_id,
      count(*) as total,
      count(*) filter (where status = 'present') as present,
      count(*) filter (where status = 'absent') as absent,
      count(*) filter (where status = 'late') as late,
      count(*) filter (where status = 'absent' and is_excused) as excused,
      json_agg(json_build_object('date', date, 'status', status, 'is_excused', is_excused) order by date) as marks
    from mark
    group by student_id
  ), roll as (
    select student_id from mark
    union
    select e.student_id
    from enrollment e
    where e.class_id = v_class_id
      and e.starts_on <= v_days.last_day
      and (
        core.has_not_ended(e.starts_on, e.ends_on, v_days.first_day)
        or (e.ends_on = v_days.first_day and e.status <> 'withdrawn'))
  )
  select json_build_object(
      'class_id', c.id,
      'class_name', api.class_name(c.name, c.section),
      'from_date', v_days.first_day,
      'to_date', v_days.last_day,
      'summary', (
        select json_build_object(
          'present', coalesce(sum(present), 0),
          'absent', coalesce(sum(absent), 0),
          'late', coalesce(sum(late), 0),
          'excused', coalesce(sum(excused), 0),
          'total', coalesce(sum(total), 0),
          'attendance_rate', api.attendance_rate(sum(present), sum(late), sum(total)),
          'attendance_rate_without_excused',
            api.attendance_rate(sum(present), sum(late), sum(total) - sum(excused)))
        from student_marks),
      'days', (
        select coalesce(json_agg(json_build_object(
            'date', date, 'present', present, 'absent', absent, 'late', late, 'excused', excused, 'total', total)
          order by date), '[]')
        from (
          select date,
            count(*) as total,
            count(*) filter (where status = 'present') as present,
            count(*) filter (where status = 'absent') as absent,
            count(*) filter (where status = 'late') as late,
            count(*) filter (where status = 'absent' and is_excused) as excused
          from mark
          group by date
        ) d),
      'students', (
        select coalesce(json_agg(json_build_object(
            'student_id', s.id,
            'student_name', core.full_name(s.first_name, s.last_name),
            'first_name', s.first_name,
            'last_name', s.last_name,
            'roll_number', s.roll_number,
            'admission_number', s.admission_number,
            'present', coalesce(m.present, 0),
            'absent', coalesce(m.absent, 0),
            'late', coalesce(m.late, 0),
            'excused', coalesce(m.excused, 0),
            'total', coalesce(m.total, 0),
            'attendance_rate', api.attendance_rate(m.present, m.late, m.total),
            'attendance_rate_without_excused', api.attendance_rate(m.present, m.late, m.total - m.excused),
            'marks', coalesce(m.marks, '[]'))
          order by platform.search_normal(s.last_name), platform.search_normal(s.first_name), s.id), '[]')
        from roll r
        join student s on s.id = r.student_id
        left join student_marks m on m.student_id = r.student_id))
    into v_answer
    from class c
    where c.id = v_class_id;
  perform core.restore_scope(v_scope);
  return v_answer;
end $$;
comment on function api.attendance_class_summary is
  'The register of a class {class_id, from_date, to_date}, by default of the current month: the marks and counts of '
  'each student, and the counts of each day. The students are those who were enrolled or marked on one of the days. '
  'Raises not_found for a class outside the scope.';

create function api.student_attendance(p_student_id bigint, p jsonb) returns json language plpgsql stable as $$
declare
  v_days record;
  -- Students and guardians read all marks, including those of classes that they have left.
  v_scope text := core.widen_scope(core.is_visible_student(p_student_id));
  v_student record;
begin
  v_days := api.requested_days(p);
  if p ? 'academic_year_id' or not p ?| '{from_date,to_date}' then
    select greatest(y.start_date, (p ->> 'from_date')::date) as first_day,
        least(y.end_date, (p ->> 'to_date')::date) as last_day
      into v_days
      from academic_year y
      where case when p ? 'academic_year_id' then y.id = (p ->> 'academic_year_id')::bigint else y.is_current end;
    if not found and p ? 'academic_year_id' then
      perform core.fail('not_found', format('There is no academic year %s.', p ->> 'academic_year_id'));
    elsif not found then
      select core.today() - 365 as first_day, core.today() as last_day into v_days;
    end if;
  end if;
  select s.id,
      core.full_name(s.first_name, s.last_name) as name,
      json_build_object(
        'present', count(a.id) filter (where a.status = 'present'),
        'absent', count(a.id) filter (where a.status = 'absent'),
        'late', count(a.id) filter (where a.status = 'late'),
        'excused', count(a.id) filter (where a.status = 'absent' and a.is_excused),
        'total', count(a.id),
        'attendance_rate', api.attendance_rate(
          count(a.id) filter (where a.status = 'present'),
          count(a.id) filter (where a.status = 'late'),
          count(a.id)),
        'attendance_rate_without_excused', api.attendance_rate(
          count(a.id) filter (where a.status = 'present'),
          count(a.id) filter (where a.status = 'late'),
          count(a.id) filter (where a.status <> 'absent' or not a.is_excused))) as summary,
      core.json_page(
        coalesce(json_agg(json_build_object(
            'id', a.id,
            'date', a.date,
            'status', a.status,
            'is_excused', a.is_excused,
            'note', a.note,
            'class_id', a.class_id,
            'class_name', api.class_name(c.name, c.section),
            'marked_by_name', a.marked_by_name,
            'marked_at', a.marked_at,
            'corrections', coalesce(
              (select x.corrections from api.attendance_corrections() x where x.attendance_id = a.id), '[]'))
          order by a.date) filter (where a.id is not null), '[]'),
        p) as page
    into v_student
    from student s
    left join attendance a on a.student_id = s.id and a.date between v_days.first_day and v_days.last_day
    left join class c on c.id = a.class_id
    where s.id = p_student_id and s.deleted_at is null
    group by s.id;
  perform core.restore_scope(v_scope);
  if v_student.id is null then
    perform core.fail('not_found', case
      when p_student_id is null then 'Your account is not linked to a student.'
      else format('There is no student %s.', p_student_id)
    end);
  end if;
  return json_build_object(
    'data', json_build_object(
      'student_id', v_student.id,
      'student_name', v_student.name,
      'from_date', v_days.first_day,
      'to_date', v_days.last_day,
      'summary', v_student.summary,
      'records', v_student.page -> 'data'),
    'pagination', v_student.page -> 'pagination');
end $$;
comment on function api.student_attendance is
  'The marks of one student as pages of `records`, with counts of all of them: {academic_year_id, from_date, to_date}, '
  'which narrow each other. Without any of them, the current academic year, or the last 366 days if no year is '
  'current. Raises not_found for an unknown student or academic year.';

create function api.attendance_student(p jsonb) returns json language sql stable as $$
  select api.student_attendance((p ->> 'student_id')::bigint, p);
$$;
comment on function api.attendance_student is
  'The marks of one student, as api.student_attendance. Students read their own, guardians those of their children, '
  'teachers those of the classes that they teach. Raises not_found.';

create function api.attendance_me(p jsonb) returns json language sql stable as $$
  select api.student_attendance(core.student_id(), p);
$$;
comment on function api.attendance_me is
  'The marks of the student that is linked to the user, as api.student_attendance. Raises not_found without one.';

create function api.attendance_calendar_holidays(p jsonb) returns json language plpgsql stable as $$
declare
  v_first date := coalesce(
    (p ->> 'from_date')::date, date_trunc('month', coalesce((p ->> 'to_date')::date, core.today()))::date);
  v_last date := coalesce((p ->> 'to_date')::date, (date_trunc('month', v_first) + interval '1 month - 1 day')::date);
  v_reads_all boolean := core.has_permission_for_all('attendance.read');
  v_teacher_id bigint := case when core.permission_scope('attendance.read') in ('all', 'taught')
    then api.current_teacher_id() end;
  v_class_ids bigint[] := array(
    select s.class_id from core.class_staff() s where not v_reads_all and s.teacher_id = v_teacher_id);
  v_student_id bigint := coalesce((p ->> 'student_id')::bigint, core.student_id());
  v_reads_all_marks boolean := v_reads_all or core.is_visible_student(v_student_id);
begin
  if p ? 'student_id' and not exists (
    select from student s
    where s.id = v_student_id and s.deleted_at is null
      and (v_reads_all_marks
        or s.id in (select r.student_id from core.class_roll() r where r.class_id = any (v_class_ids)))) then
    perform core.fail('not_found', format('There is no student %s.', v_student_id));
  end if;
  return core.json_page((
    with total as (
      select date, sum(present) as present, sum(absent) as absent, sum(late) as late, sum(excused) as excused
      from (
        select date, present, absent, late, excused
        from attendance_day
        where v_reads_all and date between v_first and v_last
        union all
        select date, present, absent, late, excused
        from attendance_day
        where class_id = any (v_class_ids) and date between v_first and v_last
      ) d
      group by date
    ), holidays as (
      select date, holiday from api.holiday_days(v_first, v_last)
    )
    select json_agg(json_build_object(
        'date', d.date,
        'day_of_week', extract(isodow from d.date)::integer,
        'is_working_day', extract(isodow from d.date)::integer = any (c.working_days),
        'holiday', h.holiday,
        'status', a.status,
        'is_excused', a.is_excused,
        'counts', case when v_reads_all or v_teacher_id is not null then json_build_object(
          'present', coalesce(t.present, 0),
          'absent', coalesce(t.absent, 0),
          'late', coalesce(t.late, 0),
          'excused', coalesce(t.excused, 0)) end)
      order by d.date)
    from timetable_config c
    cross join (select generate_series(v_first::timestamp, v_last, '1 day')::date as date) d
    left join holidays h on h.date = d.date
    left join total t on t.date = d.date
    left join attendance a
      on a.student_id = v_student_id and a.date = d.date and (v_reads_all_marks or a.class_id = any (v_class_ids))), p);
end $$;
comment on function api.attendance_calendar_holidays is
  'One row for each day {from_date, to_date}, by default of the current month: whether it is a working day, its '
  'holiday, the status of the student {student_id}, by default the user''s own, and the counts of marks. Users with '
  'attendance.read see the counts and students of the school; teachers only those of the classes that they teach. '
  'Raises not_found for a student that the user may not read.';
