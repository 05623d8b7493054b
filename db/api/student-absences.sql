-- /api/students/:student_id/absences, /api/attendance/absences: absences that are known before, such as an operation or
-- a celebration. They mark nothing; attendance.sql shows them on the sheet of a class, and excuses the marks of their
-- days.

select core.define_operation('students_absences_list', p_permission => 'attendance.read', p_open_to => 'everyone',
  p_feature => 'attendance');
select core.define_operation('attendance_absences_list', p_permission => 'attendance.read', p_open_to => 'everyone',
  p_feature => 'attendance');
select core.define_operation('students_absences_create', p_permission => 'absence.announce', p_feature => 'attendance',
  p_idempotent => true, p_record => 'student_absence', p_errors => '{conflict}');
select core.define_operation('students_absences_delete', p_permission => 'absence.announce', p_feature => 'attendance',
  p_record => 'student_absence');

-- The row policy of the table student applies in the condition, so a teacher sees only absences of their own students.
select core.define_record('student_absence', p_table => 'student_absence', p_key => 'a.id', p_one_row_per_key => true,
  p_source => $$
    student_absence a left join student s on s.id = a.student_id left join class c on c.id = s.class_id
  $$,
  p_columns => $$
    a.id, a.student_id, core.full_name(s.first_name, s.last_name) as student_name, s.class_id,
    api.class_name(c.name, c.section) as class_name, a.from_date, a.to_date, a.reason,
    -- A guardian does not see which other guardian has announced it, unless the school shows them.
    case when not core.hides_contacts(a.student_id) or a.announced_by = core.user_id() then a.announced_by end
      as announced_by,
    case when not core.hides_contacts(a.student_id) or a.announced_by = core.user_id() then a.announced_by_name end
      as announced_by_name, a.created_at, a.updated_at
  $$,
  p_condition => 'exists (select from student o where o.id = a.student_id and o.deleted_at is null)',
  p_search => $$public.search_form(concat_ws(' ', s.first_name, s.last_name, a.reason))$$,
  p_single_page_filters => '{student_id}', p_equals => '{student_id}',
  p_default_sort => 'from_date', p_default_order => 'desc',
  p_writable => '{student_id,from_date,to_date,reason,announced_by,announced_by_name}',
  p_unversioned_fields => '{student_name,class_id,class_name}');
select core.define_filter('student_absence', 'class_id', $$
  a.student_id in (select student_id from core.enrolled() where class_id = :value::bigint)
$$);
select core.define_filter('student_absence', 'from_date', 'a.to_date >= :value::date');
select core.define_filter('student_absence', 'to_date', 'a.from_date <= :value::date');
select core.define_sort('student_absence', 'from_date', 'a.from_date');
select core.define_sort('student_absence', 'created_at', 'a.created_at');
select core.define_sort('student_absence', 'student_name',
  'platform.search_normal(s.last_name)', 'platform.search_normal(s.first_name)');

create function api.students_absences_list(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.student_record((p ->> 'student_id')::bigint);
  return core.record_page('student_absence', p);
end $$;
comment on function api.students_absences_list is
  'The announced absences of a student, the latest first. Searches the reason. {from_date, to_date}: those with a day '
  'in this range. Raises not_found for the student.';

create function api.attendance_absences_list(p jsonb) returns json language sql stable as $$
  select core.record_page('student_absence', p);
$$;
comment on function api.attendance_absences_list is
  'The announced absences of all students of the scope, the latest first. Searches the name of the student and the '
  'reason. {class_id}: students who attend this class today; {from_date, to_date}: those with a day in this range.';

create function api.students_absences_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
  v_left_on date;
  v_other record;
begin
  perform core.record_lock('student', (p ->> 'student_id')::bigint);
  select left_on into v_left_on from student where id = (p ->> 'student_id')::bigint;
  if core.has_left(v_left_on, (p ->> 'to_date')::date) then
    perform core.refuse_field('conflict', 'to_date', format('The student leaves on %s.', v_left_on));
  end if;
  select a.id, a.from_date, a.to_date
    into v_other
    from student_absence a
    where a.student_id = (p ->> 'student_id')::bigint
      and a.from_date <= (p ->> 'to_date')::date
      and a.to_date >= (p ->> 'from_date')::date
    order by a.from_date
    limit 1;
  if found then
    perform core.refuse_field('conflict',
      case when v_other.to_date < (p ->> 'to_date')::date then 'from_date' else 'to_date' end,
      format('The absence %s of the student is announced from %s to %s. Delete it first.',
        v_other.id, v_other.from_date, v_other.to_date));
  end if;
  v_id := core.record_insert('student_absence', p || jsonb_build_object(
    'announced_by', core.user_id(), 'announced_by_name', api.user_name()));
  return api.student_absence_record(v_id);
end $$;
comment on function api.students_absences_create is
  'Announces an absence of a student: {student_id, from_date, to_date, reason}. Marks stay as they are. Raises '
  'not_found for the student, conflict for days that another absence of the student covers, or on which the '
  'student has left.';

create function api.students_absences_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  delete from student_absence a
    where a.id = v_id and a.student_id = (p ->> 'student_id')::bigint
      and exists (select from student s where s.id = a.student_id and s.deleted_at is null)
      -- Guardians and students take back only what they have announced themselves.
      and (
        core.has_whole_school_scope()
        or a.announced_by = core.user_id()
        or exists (
          select from student s
          where s.id = a.student_id and s.class_id = any ((select taught_class_ids())::bigint[])));
  if not found then
    perform core.fail('not_found', format('This student has no announced absence %s.', v_id));
  end if;
  return json_build_object('id', v_id);
end $$;
comment on function api.students_absences_delete is
  'Deletes an announced absence {student_id, id}. Marks stay as they are. Raises not_found.';
