-- /api/attendance: who was there on which day. Marks stay what they were when students, classes or timetables change; a mark that is
-- corrected keeps what it was, by a trigger of the table.

select core.define_operation('attendance_mark', p_permission => 'attendance.mark', p_feature => 'attendance',
  p_idempotent => true, p_errors => '{conflict,invalid_reference}');
select core.define_operation('attendance_my_classes', p_feature => 'attendance');
select core.define_operation('attendance_class', p_permission => 'attendance.read', p_feature => 'attendance');
select core.define_operation('attendance_class_summary', p_permission => 'attendance.read',
  p_feature => 'attendance');
select core.define_operation('attendance_student', p_permission => 'attendance.read', p_allows_own_rows => true,
  p_feature => 'attendance');
select core.define_operation('attendance_me', p_role => 'student', p_feature => 'attendance',
  p_errors => '{not_found}');
select core.define_operation('attendance_calendar_holidays', p_feature => 'attendance', p_errors => '{not_found}');

-- Present or late, of all marks, in percent with two decimals; null without marks.
create function api.attendance_rate(p_present numeric, p_late numeric, p_total numeric) returns numeric language sql immutable parallel safe
  return round(100 * (p_present + p_late) / nullif(p_total, 0), 2);
comment on function api.attendance_rate is 'Present or late, of all marks, in percent; null without marks.';

-- What marks had before: [{status, class_id, marked_by_name, marked_at, corrected_by_name, corrected_at}], the oldest first; no row for a mark
-- that was never corrected. Asked for one mark it reads an index, which the planner sees.
create function api.attendance_corrections() returns table (attendance_id bigint, corrections json) language sql stable as $$
  select x.attendance_id, json_agg(json_build_object('status', x.status, 'class_id', x.class_id, 'marked_by_name', x.marked_by_name, 'marked_at', x.marked_at,
    'corrected_by_name', x.corrected_by_name, 'corrected_at', x.corrected_at) order by x.id)
  from attendance_correction x group by x.attendance_id;
$$;
comment on function api.attendance_corrections is 'What each mark was before each of its corrections, the oldest first.';

-- The marks of a class. A student has one on a day, so that student and day name it. For one day the source is api.attendance_sheet.
-- Every mark has a student and a class; they are joined from the left so that counting marks does without them.
select core.define_record('attendance', p_table => 'attendance', p_key => 'm.student_id',
  p_source => 'attendance m left join student s on s.id = m.student_id left join class c on c.id = m.class_id',
  p_columns => $$
    m.id, m.student_id, s.first_name || ' ' || s.last_name as student_name, s.first_name, s.last_name, s.roll_number,
    s.admission_number,
    m.class_id, api.class_name(c.name, c.section) as class_name, m.date, m.status, m.marked_by, m.marked_by_name,
    m.marked_at,
    coalesce((select x.corrections from api.attendance_corrections() x where x.attendance_id = m.id),
      '[]') as corrections
  $$,
  p_search => 's.search_text',
  p_equals => '{class_id,date,status}',
  p_default_sort => 'date');
select core.define_filter('attendance', 'from_date', 'm.date >= :value::date');
select core.define_filter('attendance', 'to_date', 'm.date <= :value::date');
select core.define_sort('attendance', 'date',
  'm.date', 'platform.search_normal(s.last_name)', 'platform.search_normal(s.first_name)');
select core.define_sort('attendance', 'student_name',
  'platform.search_normal(s.last_name)', 'platform.search_normal(s.first_name)', 'm.student_id', 'm.date');
select core.define_sort('attendance', 'roll_number',
  'length(s.roll_number) nulls last', 's.roll_number nulls last', 'm.student_id', 'm.date');
select core.define_sort('attendance', 'status',
  'm.status nulls last', 'm.date', 'platform.search_normal(s.last_name)', 'platform.search_normal(s.first_name)');

-- The lateral is no more than names for two subqueries, which are so run for the classes of a page alone; and as a subquery of its own today
-- is a value to look up by, not an expression to compare every day with that there ever was.
select core.define_record('attendance_class', p_table => 'class', p_key => 'c.id',
  p_source => $$
    class c join grade g on g.id = c.grade_id join academic_year y on y.id = c.academic_year_id and y.is_current
    cross join lateral (select
      (select count(*) from enrollment e where e.class_id = c.id and e.status = 'active') as students,
      (select present + absent + late from attendance_day d where d.class_id = c.id
        and d.date = (select core.today())) as marked) today
  $$,
  p_columns => $$
    c.id as class_id, api.class_name(c.name, c.section) as class_name, c.grade_id, g.name as grade_name,
    c.academic_year_id,
    today.students as student_count, coalesce(today.marked, 0) as marked_today,
    -- Not by the counts: who has left since was marked too.
    coalesce(today.marked, 0) > 0 and today.students > 0 and not exists (
      select from enrollment e where e.class_id = c.id and e.status = 'active' and not exists (
        select from attendance a where a.student_id = e.student_id and a.date = (select core.today())
          and a.class_id = c.id)) as is_marked_today
  $$,
  p_search => $$platform.search_normal(concat_ws(' ', c.name, c.section, g.name))$$,
  p_default_sort => 'grade_name');
select core.define_filter('attendance_class', 'teacher_id', $$
  c.id in (select class_id from core.class_staff() where teacher_id = :value::bigint)
$$);
select core.define_sort('attendance_class', 'grade_name',
  'g.sequence nulls last', 'platform.search_normal(g.name)',
  'platform.search_normal(api.class_name(c.name, c.section))');
select core.define_sort('attendance_class', 'class_name',
  'g.sequence nulls last', 'platform.search_normal(api.class_name(c.name, c.section))');

-- The teacher behind the user of this request, however far they reach; null when they are none.
create function api.asking_teacher_id() returns bigint language sql stable as $$
  select id from teacher where user_id = core.user_id() and deleted_at is null;
$$;
comment on function api.asking_teacher_id is 'The teacher behind the user of this request; null when they are none.';

-- Whether the user reaches the classes that they teach and no others. A function about nothing but one such class goes on for all of
-- the school (core.widen_scope): the marks of a class are its own, also those of students who have left for a class of others or came from one.
create function api.reaches_taught() returns boolean language sql stable as $$
  select current_setting('app.scope') = 'taught';
$$;
comment on function api.reaches_taught is 'Whether the user reaches the classes that they teach and no others.';

-- Whether a student was in a class on a day, the day that they left it included.
create function api.was_in_class(p_student_id bigint, p_class_id bigint, p_date date) returns boolean language sql stable as $$
  select exists (
    select from enrollment e
    where e.student_id = p_student_id and e.class_id = p_class_id and e.starts_on <= p_date and coalesce(e.ends_on >= p_date, true));
$$;
comment on function api.was_in_class is 'Whether a student was in a class on a day, the day that they left it included.';

-- {class_id, date, records}: marks the students of a class for a day, all or none; the same again changes nothing.
-- validation_error for a day to come or outside the academic year of the class; conflict for new marks on a holiday, while those that are
-- there can still be corrected; invalid_reference for a class out of reach and for students who are not in it, neither now nor on that
-- day; forbidden for a class that is in reach and not taught, unless they may mark any.
-- A mark is of one class. Who was on the roll of two that day (they changed during it) is of the one that marks later. Who came later is
-- marked by the class they are in now where nobody did; a mark by a class whose roll they were on then is a conflict that names it.
-- Rows are taken in the order of students, their totals in that of classes: of two at once one waits for the other.
-- Tells of who is absent or late, once for a student and day, where the day is of this week: not when registers of long ago are entered.
create function api.attendance_mark(p jsonb) returns json language plpgsql as $$
declare
  v_class_id bigint := (p ->> 'class_id')::bigint;
  v_date date := (p ->> 'date')::date;
  v_marks_any boolean := core.has_permission_for_all('attendance.manage');
  v_now timestamptz := clock_timestamp();
  v_scope text := core.widen_scope(v_marks_any);
  v_found record;
  v_free bigint[];
  v_faults json;
  v_answer json;
  v_away jsonb;
begin
  select v_marks_any or exists (select from core.class_staff() s where s.class_id = c.id and s.teacher_id = api.asking_teacher_id()) as may_mark,
      y.start_date, y.end_date,
      (select holiday ->> 'name' from api.holiday_days(v_date, v_date)) as holiday,
      api.user_name() as marked_by_name
    into v_found from class c join academic_year y on y.id = c.academic_year_id where c.id = v_class_id;
  if not found then
    perform core.refuse_field('invalid_reference', 'class_id', format('There is no class %s.', v_class_id));
  elsif not v_found.may_mark then
    perform core.fail('forbidden', 'You mark the classes that you teach; for others this needs the permission attendance.manage.');
  elsif v_date > core.today() then
    perform core.refuse_field('validation_error', 'date', format('This day is still to come: today is %s.', core.today()));
  elsif v_date not between v_found.start_date and v_found.end_date then
    perform core.refuse_field('validation_error', 'date', format('The academic year of this class goes from %s to %s.', v_found.start_date, v_found.end_date));
  end if;

  -- Who came from a class of others brings its marks.
  perform core.widen_scope();
  if v_found.holiday is not null and exists (
    select from jsonb_to_recordset(p -> 'records') r (student_id bigint)
    where not exists (select from attendance a where a.student_id = r.student_id and a.date = v_date and a.class_id = v_class_id)) then
    perform core.refuse_field('conflict', 'date', format('%s is a holiday: %s.', v_date, v_found.holiday));
  end if;
  select json_agg(json_build_object('path', format('records.%s.student_id', position - 1),
      'message', format('Student %s is not in this class, neither now nor on %s.', student_id, v_date)) order by position) into v_faults
    from (
      select position, mark ->> 'student_id' as student_id
      from jsonb_array_elements(p -> 'records') with ordinality given (mark, position)
      where (mark ->> 'student_id')::bigint not in (
        select e.student_id from enrollment e
        where e.class_id = v_class_id and (e.status = 'active' or v_date between e.starts_on and e.ends_on))
      order by position limit 10) faults;
  if v_faults is not null then
    perform core.fail('invalid_reference', v_faults -> 0 ->> 'message', v_faults);
  end if;

  -- Whose mark this class may take over: of those on its roll that day, and of those on no roll of the class that marked them.
  select array_agg(r.student_id) into v_free
    from jsonb_to_recordset(p -> 'records') r (student_id bigint)
    left join attendance a on a.student_id = r.student_id and a.date = v_date
    where api.was_in_class(r.student_id, v_class_id, v_date) or (a.class_id <> v_class_id and not api.was_in_class(r.student_id, a.class_id, v_date));
  with given as materialized (
    select student_id, status from jsonb_to_recordset(p -> 'records') r (student_id bigint, status text)
  ), written as (
    insert into attendance as a (student_id, class_id, date, status, marked_by, marked_by_name, marked_at)
      select student_id, v_class_id, v_date, status, core.user_id(), v_found.marked_by_name, v_now from given order by student_id
      on conflict (student_id, date) do update
        set status = excluded.status, class_id = excluded.class_id, marked_by = excluded.marked_by, marked_by_name = excluded.marked_by_name,
            marked_at = greatest(excluded.marked_at, a.marked_at) -- of who had to wait, not before what they correct
        where (a.status, a.class_id) is distinct from (excluded.status, excluded.class_id)
          and (a.class_id = excluded.class_id or a.student_id = any (v_free))
      returning a.id, a.student_id, a.status, a.xmax::text <> '0' as is_correction -- what is new has no version before
  )
  select json_build_object('class_id', v_class_id, 'date', v_date, 'marked', count(*), 'present', count(*) filter (where status = 'present'),
      'absent', count(*) filter (where status = 'absent'), 'late', count(*) filter (where status = 'late'),
      'corrected', (select count(*) from written where is_correction), 'unchanged', count(*) - (select count(*) from written)),
      (select jsonb_agg(to_jsonb(written)) from written where status <> 'present')
    into v_answer, v_away from given;

  -- Read after writing, so that a mark which came while this one waited counts too.
  select json_agg(json_build_object('path', format('records.%s.student_id', position - 1),
      'message', format('Student %s was in %s on %s, and was marked there.', student_id, class_name, v_date)) order by position) into v_faults
    from (
      select given.position, a.student_id, api.class_name(c.name, c.section) as class_name
      from jsonb_array_elements(p -> 'records') with ordinality given (mark, position)
      join attendance a on a.student_id = (given.mark ->> 'student_id')::bigint and a.date = v_date and a.class_id <> v_class_id
      join class c on c.id = a.class_id
      order by given.position limit 10) faults;
  if v_faults is not null then
    perform core.fail('conflict', v_faults -> 0 ->> 'message', v_faults);
  end if;
  if v_away is not null and v_date > core.today() - 7 then
    perform api.notify_away(v_away, v_class_id, v_date);
  end if;
  perform core.restore_scope(v_scope);
  return v_answer;
end $$;

-- Tells the students and parents of marks, [{id, student_id, status}], that say absent or late; of each mark and status once, whatever was
-- corrected since.
create function api.notify_away(p_marks jsonb, p_class_id bigint, p_date date) returns void language plpgsql as $$
declare
  v_status text;
begin
  perform core.lock_notification_recipients(array(
    select distinct name
    from jsonb_to_recordset(p_marks) m (student_id bigint) join student s on s.id = m.student_id left join user_account u on u.id = s.user_id
    cross join lateral unnest(array[s.user_id::text, u.email, lower(trim(s.parent_email))]) name where name is not null));
  foreach v_status in array '{absent,late}'::text[] loop
    perform core.notify('attendance.' || v_status, api.student_recipients((
      select jsonb_agg(jsonb_build_object('student_id', m.student_id, 'class_name', api.class_name(c.name, c.section), 'date', api.written_day(p_date)))
      from jsonb_to_recordset(p_marks) m (id bigint, student_id bigint, status text) join class c on c.id = p_class_id
      where m.status = v_status and not exists (select from attendance_correction x where x.attendance_id = m.id and x.status = v_status))));
  end loop;
end $$;
comment on function api.notify_away is 'Tells students and parents of marks that say absent or late, of each once.';

-- The classes of the current academic year that the user may mark, with today's marks: all for who may mark any, else those that they
-- teach; none without the permission.
create function api.attendance_my_classes(p jsonb) returns json language sql stable as $$
  select core.record_page('attendance_class', p || case
    when core.has_permission_for_all('attendance.manage') and core.has_permission('attendance.mark') then '{}'
    else jsonb_build_object('teacher_id', case when core.has_permission('attendance.mark') then coalesce(api.asking_teacher_id(), 0) else 0 end) end);
$$;

-- A class on a day as it is marked: everybody on its roll then, with their mark or without one, and whoever was marked in it. Who left on
-- that day, for another class perhaps, is no longer on the roll.
create function api.attendance_sheet(p_class_id bigint, p_date date)
  returns table (id bigint, student_id bigint, class_id bigint, date date, status text, marked_by bigint, marked_by_name text, marked_at timestamptz)
  language sql stable as $$
  select a.id, r.student_id, p_class_id, p_date, a.status, a.marked_by, a.marked_by_name, a.marked_at
  from (
    select e.student_id from enrollment e
    where e.class_id = p_class_id and e.starts_on <= p_date and (e.ends_on is null or e.ends_on > p_date or (e.ends_on = p_date and e.status = 'completed'))
    union
    select a.student_id from attendance a where a.class_id = p_class_id and a.date = p_date
  ) r
  left join attendance a on a.student_id = r.student_id and a.date = p_date and a.class_id = p_class_id;
$$;
comment on function api.attendance_sheet is 'A class on a day: everybody on its roll, marked or not, and whoever was marked in it.';

-- A class on a day (date, today unless said otherwise) with the state of that day beside the list, or its marks of some days (from_date, to_date); not_found where it is out of reach.
-- Search over the students; filter status.
create function api.attendance_class(p jsonb) returns json language plpgsql stable as $$
declare
  v_class_id bigint := (p ->> 'class_id')::bigint;
  v_date date := coalesce((p ->> 'date')::date, core.today());
  v_days record;
  v_scope text;
  v_answer json;
begin
  perform api.require_class(v_class_id);
  v_scope := core.widen_scope(api.reaches_taught());
  if p ?| '{from_date,to_date}' then
    v_days := api.days_asked(p);
    v_answer := core.record_page('attendance', p || jsonb_build_object('from_date', v_days.first_day, 'to_date', v_days.last_day));
  else
    v_answer := core.record_page('attendance', p || jsonb_build_object('date', v_date),
      p_source => format('api.attendance_sheet(%L, %L) m left join student s on s.id = m.student_id left join class c on c.id = m.class_id', v_class_id, v_date));
    select json_build_object('data', v_answer -> 'data', 'pagination', v_answer -> 'pagination', 'day', json_build_object(
        'date', v_date, 'is_working_day', extract(isodow from v_date)::integer = any (working_days), 'holiday', (select holiday from api.holiday_days(v_date, v_date))))
      into v_answer from timetable_config;
  end if;
  perform core.restore_scope(v_scope);
  return v_answer;
end $$;

-- The register of a class: for each student their marks and how many of them say what, for each day how many. Of this month unless from_date
-- or to_date say otherwise; students are those who were on the roll on one of these days, and whoever was marked. not_found out of reach.
create function api.attendance_class_summary(p jsonb) returns json language plpgsql stable as $$
declare
  v_class_id bigint := (p ->> 'class_id')::bigint;
  v_days record;
  v_scope text;
  v_answer json;
begin
  perform api.require_class(v_class_id);
  v_scope := core.widen_scope(api.reaches_taught());
  v_days := api.days_asked(p, date_trunc('month', core.today())::date, (date_trunc('month', core.today()) + interval '1 month - 1 day')::date);
  with mark as materialized (
    select a.student_id, a.date, a.status from attendance a where a.class_id = v_class_id and a.date between v_days.first_day and v_days.last_day
  ), student_marks as (
    select student_id, count(*) as total, count(*) filter (where status = 'present') as present, count(*) filter (where status = 'absent') as absent,
      count(*) filter (where status = 'late') as late, json_agg(json_build_object('date', date, 'status', status) order by date) as marks
    from mark group by student_id
  ), roll as (
    select student_id from mark
    union
    select e.student_id from enrollment e where e.class_id = v_class_id and e.starts_on <= v_days.last_day and coalesce(e.ends_on >= v_days.first_day, true)
  )
  select json_build_object(
      'class_id', c.id, 'class_name', api.class_name(c.name, c.section), 'from_date', v_days.first_day, 'to_date', v_days.last_day,
      'summary', (
        select json_build_object('present', coalesce(sum(present), 0), 'absent', coalesce(sum(absent), 0), 'late', coalesce(sum(late), 0), 'total', coalesce(sum(total), 0),
          'attendance_rate', api.attendance_rate(sum(present), sum(late), sum(total))) from student_marks),
      'days', (
        select coalesce(json_agg(json_build_object('date', date, 'present', present, 'absent', absent, 'late', late, 'total', total) order by date), '[]')
        from (select date, count(*) as total, count(*) filter (where status = 'present') as present, count(*) filter (where status = 'absent') as absent,
                count(*) filter (where status = 'late') as late from mark group by date) d),
      'students', (
        select coalesce(json_agg(json_build_object('student_id', s.id, 'student_name', s.first_name || ' ' || s.last_name, 'first_name', s.first_name, 'last_name', s.last_name,
            'roll_number', s.roll_number, 'admission_number', s.admission_number,
            'present', coalesce(m.present, 0), 'absent', coalesce(m.absent, 0), 'late', coalesce(m.late, 0), 'total', coalesce(m.total, 0),
            'attendance_rate', api.attendance_rate(m.present, m.late, m.total), 'marks', coalesce(m.marks, '[]'))
          order by platform.search_normal(s.last_name), platform.search_normal(s.first_name), s.id), '[]')
        from roll r join student s on s.id = r.student_id left join student_marks m on m.student_id = r.student_id))
    into v_answer from class c where c.id = v_class_id;
  perform core.restore_scope(v_scope);
  return v_answer;
end $$;

-- The marks of one student, in the days that a request asks for: of academic_year_id, from_date and to_date together, without any the current
-- academic year, or the last 366 days where there is none; not_found without the student. A student has marks of classes that they left, too.
create function api.attendance_of(p_student_id bigint, p jsonb) returns json language plpgsql stable as $$
declare
  v_days record;
  v_scope text := core.widen_scope(coalesce(p_student_id = core.student_id(), false));
  v_answer json;
begin
  v_days := api.days_asked(p);
  if p ? 'academic_year_id' or not p ?| '{from_date,to_date}' then
    select greatest(y.start_date, (p ->> 'from_date')::date) as first_day, least(y.end_date, (p ->> 'to_date')::date) as last_day into v_days
      from academic_year y where case when p ? 'academic_year_id' then y.id = (p ->> 'academic_year_id')::bigint else y.is_current end;
    if not found and p ? 'academic_year_id' then
      perform core.fail('not_found', format('There is no academic year %s.', p ->> 'academic_year_id'));
    elsif not found then
      select core.today() - 365 as first_day, core.today() as last_day into v_days;
    end if;
  end if;
  select json_build_object('student_id', s.id, 'student_name', s.first_name || ' ' || s.last_name, 'from_date', v_days.first_day, 'to_date', v_days.last_day,
      'summary', json_build_object('present', count(a.id) filter (where a.status = 'present'), 'absent', count(a.id) filter (where a.status = 'absent'),
        'late', count(a.id) filter (where a.status = 'late'), 'total', count(a.id),
        'attendance_rate', api.attendance_rate(count(a.id) filter (where a.status = 'present'), count(a.id) filter (where a.status = 'late'), count(a.id))),
      'records', coalesce(json_agg(json_build_object('id', a.id, 'date', a.date, 'status', a.status, 'class_id', a.class_id,
        'class_name', api.class_name(c.name, c.section), 'marked_by_name', a.marked_by_name, 'marked_at', a.marked_at,
        'corrections', coalesce((select x.corrections from api.attendance_corrections() x where x.attendance_id = a.id), '[]')) order by a.date) filter (where a.id is not null), '[]'))
    into v_answer
    from student s
    left join attendance a on a.student_id = s.id and a.date between v_days.first_day and v_days.last_day
    left join class c on c.id = a.class_id
    where s.id = p_student_id and s.deleted_at is null
    group by s.id;
  perform core.restore_scope(v_scope);
  if v_answer is null then
    perform core.fail('not_found', case when p_student_id is null then 'There is no student behind your log-in.' else format('There is no student %s.', p_student_id) end);
  end if;
  return v_answer;
end $$;
comment on function api.attendance_of is 'The marks of one student in the days that a request asks for, and how many of them say what.';

-- The marks of one student by day, or not_found; a student reads their own. Who reaches the classes that they teach reads the marks of these.
create function api.attendance_student(p jsonb) returns json language sql stable as $$
  select api.attendance_of((p ->> 'student_id')::bigint, p);
$$;

-- The same of the student behind the log-in; not_found without one.
create function api.attendance_me(p jsonb) returns json language sql stable as $$
  select api.attendance_of(core.student_id(), p);
$$;

-- Day by day, of this month unless from_date or to_date say otherwise: whether there is school, and why not; to a student their own mark, to
-- who reads attendance how many marks say what, of the whole school or of the classes that they teach, and the mark of the student that they
-- ask for (student_id), of a teacher in the classes that they teach; not_found for a student out of reach. Of several holidays of a day the
-- names stand together, under the id of the first.
create function api.attendance_calendar_holidays(p jsonb) returns json language plpgsql stable as $$
declare
  v_first date := coalesce((p ->> 'from_date')::date, date_trunc('month', coalesce((p ->> 'to_date')::date, core.today()))::date);
  v_last date := coalesce((p ->> 'to_date')::date, (date_trunc('month', v_first) + interval '1 month - 1 day')::date);
  v_reads_all boolean := core.has_permission_for_all('attendance.read');
  v_teacher_id bigint := case when core.has_permission('attendance.read') then api.asking_teacher_id() end;
  v_class_ids bigint[] := array(select s.class_id from core.class_staff() s where not v_reads_all and s.teacher_id = v_teacher_id);
  v_student_id bigint := coalesce((p ->> 'student_id')::bigint, core.student_id());
  v_sees_all boolean := v_reads_all or coalesce(v_student_id = core.student_id(), false);
begin
  if p ? 'student_id' and not exists (
    select from student s where s.id = v_student_id and s.deleted_at is null
      and (v_sees_all or s.id in (select r.student_id from api.class_roll() r where r.class_id = any (v_class_ids)))) then
    perform core.fail('not_found', format('There is no student %s.', v_student_id));
  end if;
  return (
    with total as (
      select date, sum(present) as present, sum(absent) as absent, sum(late) as late
      from (
        select date, present, absent, late from attendance_day where v_reads_all and date between v_first and v_last
        union all
        select date, present, absent, late from attendance_day where class_id = any (v_class_ids) and date between v_first and v_last) d
      group by date
    ), holidays as (
      select date, holiday from api.holiday_days(v_first, v_last)
    )
    select json_agg(json_build_object(
      'date', d.date, 'day_of_week', extract(isodow from d.date)::integer, 'is_working_day', extract(isodow from d.date)::integer = any (c.working_days),
      'holiday', h.holiday, 'status', a.status,
      'counts', case when v_reads_all or v_teacher_id is not null then
        json_build_object('present', coalesce(t.present, 0), 'absent', coalesce(t.absent, 0), 'late', coalesce(t.late, 0)) end) order by d.date)
    from timetable_config c cross join (select generate_series(v_first::timestamp, v_last, '1 day')::date as date) d
    left join holidays h on h.date = d.date left join total t on t.date = d.date
    left join attendance a on a.student_id = v_student_id and a.date = d.date and (v_sees_all or a.class_id = any (v_class_ids)));
end $$;
