-- /api/subjects: what is taught. /api/grades/:id/subjects: the standard template, which subjects the classes of a grade have.

select core.define_operation('subjects_list', p_permission => 'subject.read');
select core.define_operation('subjects_get', p_permission => 'subject.read', p_record => 'subject');
select core.define_operation('subjects_create', p_permission => 'subject.create', p_idempotent => true,
  p_record => 'subject', p_errors => '{conflict,invalid_reference}');
select core.define_operation('subjects_update', p_permission => 'subject.update', p_record => 'subject',
  p_errors => '{conflict,invalid_reference}');
select core.define_operation('subjects_delete', p_permission => 'subject.delete', p_record => 'subject',
  p_errors => '{in_use}');
select core.define_operation('grade_subjects_list', p_permission => 'subject.read');
select core.define_operation('grade_subjects_replace', p_permission => 'subject.update',
  p_errors => '{conflict,invalid_reference}');

select core.define_record('subject', p_table => 'subject', p_key => 'su.id', p_one_row_per_key => true,
  p_source => 'subject su left join subject_context sc on sc.id = su.subject_context_id',
  p_columns => $$
    su.id, su.name, su.code, su.subject_context_id, sc.name as subject_context_name, su.description, su.created_at,
    su.updated_at
  $$,
  p_search => $$platform.search_normal(su.name || ' ' || su.code)$$,
  p_equals => '{subject_context_id}',
  p_default_sort => 'name',
  p_writable => '{name,code,subject_context_id,description}');
select core.define_sort('subject', 'name', 'platform.search_normal(su.name)');
select core.define_sort('subject', 'code', 'lower(su.code)');
select core.define_sort('subject', 'created_at', 'su.created_at');

select core.define_functions('subjects', 'subject',
  p_list => 'Subjects by name; search over name and code; filter subject_context_id.',
  p_get => 'One subject, or not_found.',
  p_create => 'A new subject; conflict when its code is taken.',
  p_update => 'Conflict when the code is taken.',
  p_delete => 'Leaves the templates of grades; in_use while a class has it or a timetable shows it.');

-- The template of a grade by name of the subject: [{subject_id, subject_name, subject_code, periods_per_week}].
create function api.grade_subjects_list(p jsonb) returns json language plpgsql stable as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  perform api.grade_record(v_id);
  return (
    select coalesce(json_agg(json_build_object('subject_id', su.id, 'subject_name', su.name, 'subject_code', su.code, 'periods_per_week', gs.periods_per_week)
      order by platform.search_normal(su.name), su.id), '[]')
    from grade_subject gs join subject su on su.id = gs.subject_id where gs.grade_id = v_id);
end $$;

-- {id, items}: these and no others from now on; classes keep what they have. A template that was read may be sent back:
-- invalid_reference for a subject that does not exist, validation_error for a name or a code that is not the subject's.
create function api.grade_subjects_replace(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_fault record;
begin
  perform core.record_lock('grade', v_id);
  select e.position - 1 as place, e.item ->> 'subject_id' as subject_id, su.id is null as is_unknown, e.item ->> 'subject_name' <> su.name as is_renamed into v_fault
    from jsonb_array_elements(p -> 'items') with ordinality e (item, position)
    left join subject su on su.id = (e.item ->> 'subject_id')::bigint
    where su.id is null or e.item ->> 'subject_name' <> su.name or e.item ->> 'subject_code' <> su.code
    order by e.position limit 1;
  if v_fault.is_unknown then
    perform core.refuse_field('invalid_reference', v_fault.place || '.subject_id', format('There is no subject %s.', v_fault.subject_id));
  elsif found then
    perform core.refuse_field('validation_error', v_fault.place || case when v_fault.is_renamed then '.subject_name' else '.subject_code' end, 'This field can''t be set here.');
  end if;
  delete from grade_subject where grade_id = v_id;
  insert into grade_subject (grade_id, subject_id, periods_per_week)
    select v_id, i.subject_id, i.periods_per_week from jsonb_to_recordset(p -> 'items') i (subject_id bigint, periods_per_week integer);
  return api.grade_subjects_list(p);
end $$;
