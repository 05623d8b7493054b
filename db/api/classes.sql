-- /api/classes: classes, their students and their teachers. Triggers on the tables enforce the capacity of a class.

-- Changing the academic year of a class also moves its timetable, and deleting a class deletes it: lock the
-- timetable_config first.
select core.define_operation('classes_update', p_permission => 'class.update', p_record => 'class',
  p_lock_first => 'timetable_config', p_errors => '{conflict,schedule_conflict,invalid_reference}');
select core.define_operation('classes_delete', p_permission => 'class.delete', p_record => 'class',
  p_lock_first => 'timetable_config', p_errors => '{in_use}');
select core.define_operation('classes_list', p_permission => 'class.read');
select core.define_operation('classes_create', p_permission => 'class.create', p_idempotent => true,
  p_record => 'class', p_errors => '{plan_limit_reached,conflict,invalid_reference}');
select core.define_operation('classes_get', p_permission => 'class.read', p_record => 'class');
select core.define_operation('classes_copy', p_permission => 'class.create', p_idempotent => true,
  p_errors => '{plan_limit_reached,conflict,invalid_reference}');
select core.define_operation('classes_students_list', p_permission => 'student.read');
select core.define_operation('classes_students_add', p_permission => 'class.update', p_idempotent => true,
  p_errors => '{conflict,invalid_reference}');
select core.define_operation('classes_students_remove', p_permission => 'class.update', p_errors => '{conflict}');
select core.define_operation('classes_unassigned_students', p_permission => 'student.read');
select core.define_operation('classes_teachers_list', p_permission => 'class.read');
select core.define_operation('classes_teachers_add', p_permission => 'class.update',
  p_reader => 'classes_teachers_list', p_errors => '{conflict,invalid_reference}');
select core.define_operation('classes_teachers_remove', p_permission => 'class.update', p_errors => '{in_use}');
select core.define_operation('classes_unassigned_teachers', p_permission => 'class.read');
select core.define_operation('classes_subjects_by_grade', p_permission => 'class.update', p_idempotent => true,
  p_errors => '{conflict,invalid_reference}');
select core.define_operation('classes_available_class_teachers', p_permission => 'class.update');

-- A single-expression SQL function, so that the planner inlines it.
create function api.class_name(p_name text, p_section text) returns text language sql immutable parallel safe
  return p_name || coalesce(' ' || p_section, '');
comment on function api.class_name is 'Name and section of a class as lists and messages show them: Year 5 B.';

select core.define_record('class', p_table => 'class', p_key => 'c.id', p_one_row_per_key => true,
  p_source => $$
    class c left join grade g on g.id = c.grade_id left join academic_year y on y.id = c.academic_year_id
    left join teacher t on t.id = c.class_teacher_id and not core.has_left(t.left_on, core.today())
    left join school_unit u on u.id = c.school_unit_id
    left join programme p on p.id = c.programme_id left join medium m on m.id = c.medium_id
  $$,
  p_columns => $$
    c.id, c.name, c.section, api.class_name(c.name, c.section) as class_name, c.grade_id, g.name as grade_name,
    c.academic_year_id, y.name as academic_year_name, y.is_current as is_current_year,
    t.id as class_teacher_id, core.full_name(t.first_name, t.last_name) as class_teacher_name, c.capacity, c.room,
    c.home_room_id,
    c.school_unit_id, u.name as school_unit_name, c.programme_id, p.name as programme_name, c.medium_id,
    m.name as medium_name,
    (select count(distinct r.student_id) from core.class_roll() r where r.class_id = c.id) as student_count,
    (select count(*) from class_subject cs where cs.class_id = c.id) as subject_count,
    c.created_at, c.updated_at
  $$,
  p_search => $$public.search_form(concat_ws(' ', c.name, c.section, c.room))$$,
  p_equals => '{academic_year_id,grade_id,school_unit_id,programme_id,medium_id,class_teacher_id,home_room_id}',
  p_default_sort => 'grade',
  p_writable => '{name,section,grade_id,academic_year_id,class_teacher_id,capacity,room,home_room_id,school_unit_id,
    programme_id,medium_id}',
  p_unversioned_fields => '{is_current_year}', p_volatile_fields => '{student_count,subject_count}');
select core.define_sort('class', 'grade',
  'g.sequence nulls last', 'platform.search_normal(c.name)', $$platform.search_normal(coalesce(c.section, ''))$$);
select core.define_sort('class', 'name',
  'platform.search_normal(c.name)', $$platform.search_normal(coalesce(c.section, ''))$$);
select core.define_sort('class', 'created_at', 'c.created_at');
select core.define_sort('class', 'student_count',
  '(select count(distinct r.student_id) from core.class_roll() r where r.class_id = c.id)');

select core.define_record('class_staff_member', p_table => 'teacher', p_key => 't.id',
  p_source => $$
    teacher t join (
      select class_id, teacher_id, bool_or(is_class_teacher) as is_class_teacher,
      array_agg(distinct subject order by subject) filter (where subject is not null) as subjects
      from core.class_staff() group by class_id, teacher_id
    ) s on s.teacher_id = t.id
  $$,
  p_columns => $$
    t.id, t.id as teacher_id, t.first_name, t.last_name, t.email,
    not core.has_left(t.left_on, core.today()) and t.deleted_at is null as is_active,
    s.is_class_teacher, array_to_string(s.subjects, ', ') as subject, coalesce(s.subjects, '{}') as subjects
  $$,
  p_search => $$public.search_form(concat_ws(' ', t.first_name, t.last_name, t.email))$$,
  p_equals => '{s.class_id}',
  p_default_sort => 'last_name');
select core.define_filter('class_staff_member', 'teacher_id', 't.id = :value::bigint');
select core.define_sort('class_staff_member', 'last_name',
  'platform.search_normal(t.last_name)', 'platform.search_normal(t.first_name)');
select core.define_sort('class_staff_member', 'first_name',
  'platform.search_normal(t.first_name)', 'platform.search_normal(t.last_name)');

select core.define_record('free_teacher', p_table => 'teacher', p_key => 't.id', p_one_row_per_key => true,
  p_source => 'teacher t',
  p_columns => 't.id, t.first_name, t.last_name, t.email, t.specialization',
  p_condition => 'not core.has_left(t.left_on, (select core.today())) and t.deleted_at is null',
  p_search => $$public.search_form(concat_ws(' ', t.first_name, t.last_name, t.email))$$,
  p_default_sort => 'last_name');
select core.define_filter('free_teacher', 'not_class_id', $$
  t.id not in (select teacher_id from core.class_staff() where class_id = :value::bigint)
$$);
select core.define_filter('free_teacher', 'academic_year_id', $$
  exists (select from academic_year where id = :value::bigint)
    and t.id not in (select class_teacher_id from class where academic_year_id = :value::bigint
    and class_teacher_id is not null)
$$);
select core.define_sort('free_teacher', 'last_name',
  'platform.search_normal(t.last_name)', 'platform.search_normal(t.first_name)');
select core.define_sort('free_teacher', 'first_name',
  'platform.search_normal(t.first_name)', 'platform.search_normal(t.last_name)');

select core.define_functions('classes', 'class',
  p_list =>
    'Classes by grade, name and section. Searches name, section and room. Filters: academic_year_id, grade_id, '
    'school_unit_id, programme_id, medium_id, class_teacher_id, home_room_id.',
  p_get => 'One class. Raises not_found.');

create function api.require_class(p_id bigint) returns void language plpgsql stable as $$
begin
  if not exists (select from class where id = p_id) then
    perform core.fail('not_found', format('There is no class %s.', p_id));
  end if;
end $$;
comment on function api.require_class is
  'Raises not_found unless the class exists and is in the scope of the request.';

create function api.reaches_whole_class(p_class_id bigint) returns boolean language sql stable as $$
  select core.has_whole_school_scope() or coalesce(p_class_id = any (taught_class_ids()), false);
$$;
comment on function api.reaches_whole_class is
  'Whether the scope of the request has all students of a class: it is the whole school, or the user teaches the '
  'class. Functions about such a class widen the scope (core.widen_scope), because its marks include those of students '
  'who left it for another class, or came from one.';

create function api.require_active_teacher(p_id bigint, p_path text) returns void language plpgsql as $$
declare
  -- FOR SHARE also applies the row policy for updates, which hides other teachers from a teacher.
  v_scope text := core.widen_scope();
  v_found boolean;
begin
  perform from teacher
    where id = p_id and not core.has_left(left_on, core.today()) and deleted_at is null
    for share;
  v_found := found;
  perform core.restore_scope(v_scope);
  if p_id is not null and not v_found then
    perform core.refuse_field('invalid_reference', p_path, format('There is no active teacher %s.', p_id));
  end if;
end $$;
comment on function api.require_active_teacher is
  'Locks a teacher and raises invalid_reference for the field p_path unless the teacher is active. A null p_id is '
  'accepted.';

create function api.require_no_other_class(
  p_teacher_id bigint, p_class_id bigint, p_academic_year_id bigint, p_path text
) returns void language plpgsql stable as $$
declare
  v_class_name text;
begin
  -- Concurrent requests can both pass this check. The unique index class_class_teacher_id_key then refuses the second.
  select api.class_name(name, section)
    into v_class_name
    from class
    where class_teacher_id = p_teacher_id
      and academic_year_id = p_academic_year_id
      and id is distinct from p_class_id;
  if found then
    perform core.refuse_field('conflict', p_path, format(
      'This teacher is already the class teacher of %s in this academic year. Choose another teacher.',
      v_class_name));
  end if;
end $$;
comment on function api.require_no_other_class is
  'Raises conflict for the field p_path if the teacher is class teacher of another class in the academic year.';

create function api.classes_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
  v_teacher_id bigint := (p ->> 'class_teacher_id')::bigint;
begin
  if v_teacher_id is not null then
    perform api.require_active_teacher(v_teacher_id, 'class_teacher_id');
    perform api.require_no_other_class(v_teacher_id, null, (p ->> 'academic_year_id')::bigint, 'class_teacher_id');
  end if;
  v_id := core.record_insert('class', api.with_room(p, 'home_room_id'));
  perform core.enforce_plan_limits();
  return api.class_record(v_id);
end $$;
comment on function api.classes_create is
  'Creates a class. Raises conflict if the academic year already has a class with this name and section, or if the '
  'class teacher has another class in that year; invalid_reference for an unknown reference, an inactive teacher or a '
  'room that is not active.';

create function api.require_movable_class(p_id bigint, p_academic_year_id bigint) returns void
language plpgsql stable as $$
begin
  if not exists (select from academic_year where id = p_academic_year_id) then
    perform core.refuse_field('invalid_reference', 'academic_year_id', 'There is no such academic year.');
  elsif exists (select from enrollment where class_id = p_id) then
    perform core.refuse_field('conflict', 'academic_year_id',
      'Students are or were enrolled in this class, so its academic year cannot be changed. Copy the class instead.');
  elsif exists (select from fee_structure_class where class_id = p_id) then
    perform core.refuse_field('conflict', 'academic_year_id',
      'A fee structure applies to this class. Remove the class from the fee structure before you change its academic '
      'year.');
  end if;
end $$;
comment on function api.require_movable_class is
  'Raises conflict if students have been enrolled in the class or a fee structure applies to it, and '
  'invalid_reference for an unknown academic year.';

create function api.classes_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before record;
  v_year_id bigint;
  v_teacher_id bigint;
begin
  select academic_year_id, class_teacher_id, home_room_id, room into v_before from class where id = v_id;
  v_year_id := coalesce((p ->> 'academic_year_id')::bigint, v_before.academic_year_id);
  v_teacher_id := case
    when p ? 'class_teacher_id' then (p ->> 'class_teacher_id')::bigint
    else v_before.class_teacher_id
  end;
  if v_year_id <> v_before.academic_year_id or p ->> 'academic_year_id' is not null and not core.may_compare() then
    perform api.require_movable_class(v_id, v_year_id);
  end if;
  -- A class teacher who has become inactive may stay.
  if v_teacher_id is not null and (v_teacher_id is distinct from v_before.class_teacher_id
      or p ->> 'class_teacher_id' is not null and not core.may_compare()) then
    perform api.require_active_teacher(v_teacher_id, 'class_teacher_id');
  end if;
  if (v_teacher_id, v_year_id) is distinct from (v_before.class_teacher_id, v_before.academic_year_id) then
    perform api.require_no_other_class(v_teacher_id, v_id, v_year_id, 'class_teacher_id');
  end if;
  perform core.record_update('class', api.with_room(p, 'home_room_id', v_before.home_room_id, v_before.room));
  return api.class_record(v_id);
end $$;
comment on function api.classes_update is
  'Updates a class; a new grade also applies to its students. Raises conflict for a new academic year once students '
  'have been enrolled, for a capacity below the number of students, schedule_conflict if lessons of the class would be '
  'in a home room that is taken, and as on creation.';

create function api.classes_delete(p jsonb) returns json language plpgsql as $$
declare
  v_answer json := core.record_delete('class', p);
begin
  perform core.enforce_plan_limits();
  return v_answer;
end $$;
comment on function api.classes_delete is
  'Deletes a class with its subjects and teaching assignments. Raises in_use if it has or had students, also deleted '
  'ones, or if fees refer to it.';

create function api.require_copyable_classes(p_from_year_id bigint, p_to_year_id bigint, p_class_ids bigint[])
returns void language plpgsql stable as $$
declare
  v_unknown_id bigint;
begin
  if not exists (select from academic_year where id = p_from_year_id) then
    perform core.refuse_field('invalid_reference', 'from_academic_year_id', 'There is no such academic year.');
  elsif not exists (select from academic_year where id = p_to_year_id) then
    perform core.refuse_field('invalid_reference', 'to_academic_year_id', 'There is no such academic year.');
  end if;
  select i
    into v_unknown_id
    from unnest(p_class_ids) i
    where not exists (select from class where id = i and academic_year_id = p_from_year_id)
    limit 1;
  if found then
    perform core.refuse_field('invalid_reference', 'class_ids',
      format('There is no class %s in the academic year that you copy from.', v_unknown_id));
  elsif p_from_year_id = p_to_year_id then
    perform core.refuse_field('validation_error', 'to_academic_year_id',
      'The classes are already in this academic year. Choose another one.');
  end if;
end $$;
comment on function api.require_copyable_classes is
  'Raises invalid_reference for an unknown academic year or a class outside p_from_year_id, and validation_error if '
  'both years are the same.';

create function api.classes_copy(p jsonb) returns json language plpgsql as $$
declare
  v_from bigint := (p ->> 'from_academic_year_id')::bigint;
  v_to bigint := (p ->> 'to_academic_year_id')::bigint;
  v_class_ids bigint[] := case
    when p ? 'class_ids' then array(select jsonb_array_elements_text(p -> 'class_ids')::bigint)
  end;
  v_with_subjects boolean := coalesce((p ->> 'include_subjects')::boolean, true);
  v_with_teachers boolean := coalesce((p ->> 'include_teachers')::boolean, true);
  v_answer json;
begin
  perform api.require_copyable_classes(v_from, v_to, v_class_ids);
  with source as (
    select *
    from class
    where academic_year_id = v_from and (v_class_ids is null or id = any (v_class_ids))
  ), active_teacher as (
    select id
    from teacher
    where v_with_teachers
      and not core.has_left(left_on, core.today())
      and deleted_at is null
      and id in (select teacher_id from core.class_staff() where class_id in (select id from source))
    for share
  ), created as (
    insert into class (
      name, section, grade_id, academic_year_id, class_teacher_id, capacity, room, home_room_id, school_unit_id,
      programme_id, medium_id)
    select
      s.name, s.section, s.grade_id, v_to,
      (
        select t.id
        from active_teacher t
        where t.id = s.class_teacher_id
          and not exists (select from class c where c.academic_year_id = v_to and c.class_teacher_id = t.id)
      ),
      s.capacity, case when r.id is not null or s.home_room_id is null then s.room end, r.id, s.school_unit_id,
      s.programme_id, s.medium_id
    from source s
    left join room r on r.id = s.home_room_id and r.is_active
    order by s.id
    on conflict (academic_year_id, lower(name), lower(coalesce(section, ''))) do nothing
    returning id, name, section
  ), pair as (
    select s.id as source_id, c.id, coalesce(c.name, s.name) as name, coalesce(c.section, s.section) as section
    from source s
    left join created c
      on lower(c.name) = lower(s.name) and lower(coalesce(c.section, '')) = lower(coalesce(s.section, ''))
  ), copied_subject as (
    insert into class_subject (class_id, subject_id, teacher_id, periods_per_week)
    select pair.id, cs.subject_id, t.id, cs.periods_per_week
    from pair
    join class_subject cs on cs.class_id = pair.source_id
    left join active_teacher t on t.id = cs.teacher_id
    where pair.id is not null and v_with_subjects
  ), copied_assignment as (
    insert into teaching_assignment (class_id, teacher_id, subject)
    select pair.id, ta.teacher_id, ta.subject
    from pair
    join teaching_assignment ta on ta.class_id = pair.source_id
    join active_teacher t on t.id = ta.teacher_id
    where pair.id is not null
  )
  select json_build_object(
      'copied', count(id),
      'skipped', count(*) - count(id),
      'classes', coalesce(
        json_agg(
          json_build_object('id', id, 'name', name, 'section', section, 'copied_from', source_id) order by source_id)
          filter (where id is not null),
        '[]'),
      'skipped_classes', coalesce(
        json_agg(
          json_build_object('class_id', source_id, 'name', name, 'section', section,
            'reason', 'The academic year already has a class with this name and section.') order by source_id)
          filter (where id is null),
        '[]'))
    into v_answer
    from pair;
  perform core.enforce_plan_limits();
  return v_answer;
end $$;
comment on function api.classes_copy is
  'Copies classes of one academic year to another, with their subjects and active teachers but without students: '
  '{from_academic_year_id, to_academic_year_id, class_ids, include_subjects, include_teachers}. Skips a class whose '
  'name and section the target year already has. A teacher who is already class teacher in the target year does not '
  'get a second class.';

create function api.classes_students_list(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.require_permissions('{class.read}');
  perform api.require_class((p ->> 'id')::bigint);
  return core.record_page('student', p || jsonb_build_object('class_id', p -> 'id'));
end $$;
comment on function api.classes_students_list is
  'The students who are enrolled in a class or completed the year in it. Requires class.read and student.read. '
  'Raises not_found.';

create function api.classes_students_add(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_student_id bigint := (p ->> 'student_id')::bigint;
  v_class_id bigint;
  v_left_on date;
begin
  perform core.require_also('student.read');
  perform api.require_class(v_id);
  select class_id, left_on
    into v_class_id, v_left_on
    from student
    where id = v_student_id and deleted_at is null
    for no key update;
  if not found then
    perform core.refuse_field('invalid_reference', 'student_id', 'There is no such student.');
  elsif core.has_left(v_left_on, core.today()) then
    perform core.refuse_field('invalid_reference', 'student_id', format('The student left on %s.', v_left_on));
  elsif v_class_id = v_id then
    perform core.refuse_field('conflict', 'student_id', 'This student is already in this class.');
  end if;
  update student set class_id = v_id where id = v_student_id;
  return api.student_record(v_student_id);
end $$;
comment on function api.classes_students_add is
  'Moves a student into a class and returns the student: {id, student_id}. Requires class.update and student.read. '
  'Raises not_found for the class, invalid_reference for the student, also for one who has left, conflict if the '
  'student is already in the class or the class is full.';

create function api.classes_students_remove(p jsonb) returns json language plpgsql as $$
begin
  perform api.require_class((p ->> 'id')::bigint);
  update student
    set class_id = null
    where id = (p ->> 'student_id')::bigint
      and class_id = (p ->> 'id')::bigint
      and deleted_at is null;
  if not found then
    perform core.fail('not_found', 'This student is not in this class.');
  end if;
  return json_build_object('id', (p ->> 'student_id')::bigint);
end $$;
comment on function api.classes_students_remove is
  'Removes a student from a class: {id, student_id}. The student is then in no class. Raises not_found if the student '
  'is not in the class.';

create function api.classes_unassigned_students(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.require_permissions('{class.read}');
  perform api.require_class((p ->> 'id')::bigint);
  return core.record_page('student', p || jsonb_build_object('not_class_id', p -> 'id', 'is_active', true));
end $$;
comment on function api.classes_unassigned_students is
  'The active students who are not in a class. Filters: grade_id, without_class. Requires class.read and '
  'student.read. Raises not_found.';

create function api.classes_teachers_list(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.require_class((p ->> 'id')::bigint);
  return core.record_page('class_staff_member', p || jsonb_build_object('class_id', p -> 'id'));
end $$;
comment on function api.classes_teachers_list is
  'The staff of a class: its class teacher, the teachers of its subjects and of its timetable, and other assigned '
  'teachers. Raises not_found.';

create function api.link_assigned_teachers(p_class_subject_ids bigint[]) returns void language plpgsql as $$
begin
  with assigned as (
    select distinct on (cs.id) cs.id as class_subject_id, ta.teacher_id
    from class_subject cs
    join subject s on s.id = cs.subject_id
    join teaching_assignment ta on ta.class_id = cs.class_id
      and core.name_key(ta.subject) in (core.name_key(s.code), core.name_key(s.name))
    join teacher t on t.id = ta.teacher_id and not core.has_left(t.left_on, core.today()) and t.deleted_at is null
    where cs.id = any (p_class_subject_ids) and cs.teacher_id is null
    order by cs.id, core.name_key(ta.subject) = core.name_key(s.code) desc, ta.id
  )
  update class_subject cs
    set teacher_id = a.teacher_id
    from assigned a
    where cs.id = a.class_subject_id;
  -- The class subject now stores this teacher, so the assignments are redundant.
  delete from teaching_assignment ta
    using class_subject cs, subject s
    where cs.id = any (p_class_subject_ids)
      and s.id = cs.subject_id
      and ta.class_id = cs.class_id
      and ta.teacher_id = cs.teacher_id
      and core.name_key(ta.subject) in (core.name_key(s.code), core.name_key(s.name));
end $$;
comment on function api.link_assigned_teachers is
  'Gives new class subjects without a teacher the active teacher who was assigned to the class with the name or code '
  'of the subject; the first one, if there are several.';

create function api.classes_teachers_add(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_teacher_id bigint := (p ->> 'teacher_id')::bigint;
  v_subject text := core.name_key(p ->> 'subject');
  v_subject_id bigint;
  v_answer jsonb;
begin
  perform api.require_class(v_id);
  perform api.require_active_teacher(v_teacher_id, 'teacher_id');
  perform core.record_lock('class', v_id);
  if (p ->> 'is_class_teacher')::boolean then
    perform api.require_no_other_class(
      v_teacher_id, v_id, (select academic_year_id from class where id = v_id), 'teacher_id');
    update class set class_teacher_id = v_teacher_id where id = v_id;
  end if;
  select s.id
    into v_subject_id
    from class_subject cs
    join subject s on s.id = cs.subject_id
    where cs.class_id = v_id and v_subject in (core.name_key(s.code), core.name_key(s.name))
    order by core.name_key(s.code) = v_subject desc, s.id
    limit 1;
  if found then
    update class_subject set teacher_id = v_teacher_id where class_id = v_id and subject_id = v_subject_id;
    -- A text assignment for the same subject could contradict class_subject.
    delete from teaching_assignment ta
      using subject s
      where s.id = v_subject_id and ta.class_id = v_id
        and core.name_key(ta.subject) in (core.name_key(s.code), core.name_key(s.name));
  elsif v_subject is not null or (p ->> 'is_class_teacher')::boolean is not true then
    insert into teaching_assignment (class_id, teacher_id, subject)
      values (v_id, v_teacher_id, p ->> 'subject')
      on conflict do nothing;
  end if;
  v_answer := core.record_page('class_staff_member',
    jsonb_build_object('class_id', v_id, 'teacher_id', v_teacher_id), false) -> 'data' -> 0;
  return v_answer || jsonb_build_object('subject', (
    select coalesce(
      (select name from subject where id = v_subject_id),
      (
        select subject
        from teaching_assignment
        where class_id = v_id and teacher_id = v_teacher_id and core.name_key(subject) = v_subject
        order by id
        limit 1
      ),
      v_answer ->> 'subject')));
end $$;
comment on function api.classes_teachers_add is
  'Assigns a teacher to a class: {id, teacher_id, subject, is_class_teacher}. A subject of the class, given by name or '
  'code, gets this teacher; any other subject is stored as text, and linked when the class gets a subject of that name '
  'or code. The answer names the subject of the request. is_class_teacher replaces the class teacher. Raises '
  'not_found for the class, invalid_reference for an inactive teacher, conflict for a teacher who is already class '
  'teacher of another class in the year.';

create function api.classes_teachers_remove(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_teacher_id bigint := (p ->> 'teacher_id')::bigint;
begin
  perform core.record_lock('class', v_id);
  if not exists (select from core.class_staff() s where s.class_id = v_id and s.teacher_id = v_teacher_id) then
    perform core.fail('not_found', 'This teacher does not teach this class.');
  elsif exists (select from timetable_slot where class_id = v_id and teacher_id = v_teacher_id) then
    perform core.fail('in_use', 'This teacher is still in the timetable of this class. Change the timetable first.');
  end if;
  delete from teaching_assignment where class_id = v_id and teacher_id = v_teacher_id;
  update class_subject set teacher_id = null where class_id = v_id and teacher_id = v_teacher_id;
  update class set class_teacher_id = null where id = v_id and class_teacher_id = v_teacher_id;
  return json_build_object('id', v_teacher_id);
end $$;
comment on function api.classes_teachers_remove is
  'Removes a teacher from a class and from all its subjects: {id, teacher_id}. Raises not_found if the teacher does '
  'not teach the class, in_use while the teacher is in its timetable.';

create function api.classes_unassigned_teachers(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.require_class((p ->> 'id')::bigint);
  return core.record_page('free_teacher', p || jsonb_build_object('not_class_id', p -> 'id'));
end $$;
comment on function api.classes_unassigned_teachers is
  'The active teachers who do not teach a class. Raises not_found.';

create function api.classes_subjects_by_grade(p jsonb) returns json language plpgsql as $$
declare
  v_grade_id bigint := (p ->> 'grade_id')::bigint;
  v_class_ids bigint[] := array(select distinct jsonb_array_elements_text(p -> 'class_ids')::bigint);
  v_unknown_id bigint;
  v_class_subject_ids bigint[];
  v_answer json;
begin
  if not exists (select from grade where id = v_grade_id) then
    perform core.refuse_field('invalid_reference', 'grade_id', 'There is no such grade.');
  end if;
  perform from class where id = any (v_class_ids) order by id for no key update;
  select i
    into v_unknown_id
    from unnest(v_class_ids) i
    where not exists (select from class where id = i and grade_id = v_grade_id)
    limit 1;
  if found then
    perform core.refuse_field('invalid_reference', 'class_ids',
      format('There is no class %s in this grade.', v_unknown_id));
  end if;

  with template as (
    select subject_id, periods_per_week from grade_subject where grade_id = v_grade_id
    union all
    select id, 5 from subject where not exists (select from grade_subject where grade_id = v_grade_id)
  ), created as (
    insert into class_subject (class_id, subject_id, periods_per_week)
    select class_id, subject_id, periods_per_week
    from unnest(v_class_ids) class_id, template
    on conflict (class_id, subject_id) do nothing
    returning id, class_id, subject_id
  ), added as (
    select
      i.class_id,
      coalesce(json_agg(s.name order by s.name) filter (where s.id is not null), '[]') as names,
      count(s.id) as count,
      array_agg(c.id) as class_subject_ids
    from unnest(v_class_ids) i (class_id)
    left join created c on c.class_id = i.class_id
    left join subject s on s.id = c.subject_id
    group by i.class_id
  )
  select json_build_object(
      'added', sum(count),
      'skipped', count(*) * (select count(*) from template) - sum(count),
      'classes', json_agg(json_build_object('class_id', class_id, 'added', names) order by class_id)),
      array(select unnest(a.class_subject_ids) from added a)
    into v_answer, v_class_subject_ids
    from added;
  perform api.link_assigned_teachers(v_class_subject_ids);
  return v_answer;
end $$;
comment on function api.classes_subjects_by_grade is
  'Adds to classes the subjects of their grade''s template, or all subjects of the school with 5 periods a week if the '
  'grade has no template: {grade_id, class_ids}. Teachers who were assigned to a class with the name of a new subject '
  'become its teachers. Does not change subjects that a class already has. Raises '
  'invalid_reference for an unknown grade or a class of another grade.';

create function api.classes_available_class_teachers(p jsonb) returns json language plpgsql stable as $$
begin
  if not core.has_permission_for_all('class.update') then
    perform core.fail('forbidden',
      'You need class.update for the whole school, because this list depends on the classes of other teachers.');
  end if;
  return core.record_page('free_teacher', jsonb_build_object(
    'academic_year_id', coalesce((select id from academic_year where is_current), 0)) || p);
end $$;
comment on function api.classes_available_class_teachers is
  'The active teachers who are not class teacher in an academic year: {academic_year_id}, by default the current year. '
  'Raises forbidden unless the user may update all classes of the school.';
