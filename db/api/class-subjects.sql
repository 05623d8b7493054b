-- /api/class-subjects: the subjects of each class, with their periods per week and teachers.

select core.define_operation('class_subjects_list', p_permission => 'class.read');
select core.define_operation('class_subjects_get', p_permission => 'class.read', p_record => 'class_subject');
select core.define_operation('class_subjects_create', p_permission => 'class.update', p_idempotent => true,
  p_record => 'class_subject', p_errors => '{conflict,invalid_reference}');
select core.define_operation('class_subjects_update', p_permission => 'class.update', p_record => 'class_subject',
  p_errors => '{conflict,invalid_reference}');
select core.define_operation('class_subjects_delete', p_permission => 'class.update', p_record => 'class_subject');

-- Locks and updates do not use the joins of p_source, so p_condition limits them to the classes in the scope of the
-- request.
select core.define_record('class_subject', p_table => 'class_subject', p_key => 'cs.id',
  p_source => $$
    class_subject cs join class c on c.id = cs.class_id join subject su on su.id = cs.subject_id
      left join teacher t on t.id = cs.teacher_id
  $$,
  p_columns => $$
    cs.id, cs.class_id, api.class_name(c.name, c.section) as class_name, c.academic_year_id,
    cs.subject_id, su.name as subject_name, su.code as subject_code, cs.periods_per_week,
    cs.teacher_id, core.full_name(t.first_name, t.last_name) as teacher_name, cs.created_at, cs.updated_at
  $$,
  p_condition => 'cs.class_id in (select id from class)',
  p_search => $$
    public.search_form(concat_ws(' ', c.name, c.section, su.name, su.code, t.first_name, t.last_name))
  $$,
  p_equals => '{class_id,c.academic_year_id,subject_id,teacher_id}',
  p_default_sort => 'class_name',
  p_writable => '{periods_per_week,teacher_id}');
select core.define_sort('class_subject', 'class_name',
  'platform.search_normal(api.class_name(c.name, c.section))', 'platform.search_normal(su.name)');
select core.define_sort('class_subject', 'subject_name',
  'platform.search_normal(su.name)', 'platform.search_normal(api.class_name(c.name, c.section))');
select core.define_sort('class_subject', 'periods_per_week', 'cs.periods_per_week');

select core.define_functions('class_subjects', 'class_subject',
  p_list =>
    'Class subjects by class and subject. Searches class, subject and teacher. Filters: class_id, academic_year_id, '
    'subject_id, teacher_id.',
  p_get => 'One class subject. Raises not_found.',
  p_delete => 'Removes a subject from a class. Does not change the timetable.');

create function api.class_subjects_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
  v_class_id bigint := (p ->> 'class_id')::bigint;
  v_teacher_id bigint := (p ->> 'teacher_id')::bigint;
begin
  -- An assignment of a teacher takes the same lock, so that one of the two sees the other.
  perform from class where id = v_class_id for no key update;
  if not found then
    perform core.refuse_field('invalid_reference', 'class_id', format('There is no class %s.', v_class_id));
  end if;
  perform api.require_active_teacher(v_teacher_id, 'teacher_id');
  insert into class_subject (class_id, subject_id, periods_per_week, teacher_id)
    values (v_class_id, (p ->> 'subject_id')::bigint, (p ->> 'periods_per_week')::integer, v_teacher_id)
    on conflict (class_id, subject_id) do nothing
    returning id into v_id;
  if v_id is null then
    perform core.refuse_field('conflict', 'subject_id', 'The class already has this subject.');
  end if;
  perform api.link_assigned_teachers(array[v_id]);
  return api.class_subject_record(v_id);
end $$;
comment on function api.class_subjects_create is
  'Adds a subject to a class. Without a teacher_id, it gets the teacher who was assigned to the class with its name or '
  'code. Raises invalid_reference for a class outside the scope of the request or an inactive teacher, conflict if the '
  'class already has the subject.';

create function api.class_subjects_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_teacher_id bigint := (p ->> 'teacher_id')::bigint;
begin
  -- A teacher who has become inactive may stay.
  if not core.may_compare()
      or v_teacher_id is distinct from (api.class_subject_record(v_id) ->> 'teacher_id')::bigint then
    perform api.require_active_teacher(v_teacher_id, 'teacher_id');
  end if;
  perform core.record_update('class_subject', p);
  return api.class_subject_record(v_id);
end $$;
comment on function api.class_subjects_update is
  'Updates the periods per week and the teacher of a class subject. Raises invalid_reference for an inactive teacher.';
