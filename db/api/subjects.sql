-- /api/subjects: the subjects of a school. /api/grades/:id/subjects: the subject template of a grade.

select core.define_operation('subjects_list', p_permission => 'subject.read');
select core.define_operation('subjects_get', p_permission => 'subject.read', p_record => 'subject');
select core.define_operation('subjects_create', p_permission => 'subject.create', p_idempotent => true,
  p_record => 'subject', p_errors => '{conflict,invalid_reference}');
select core.define_operation('subjects_update', p_permission => 'subject.update', p_record => 'subject',
  p_errors => '{conflict,invalid_reference}');
select core.define_operation('subjects_delete', p_permission => 'subject.delete', p_record => 'subject',
  p_errors => '{in_use}');
select core.define_operation('grade_subjects_list', p_permission => 'subject.read', p_unversioned_fields => '{}');
select core.define_operation('grade_subjects_replace', p_permission => 'subject.update',
  p_present => 'grade_subjects_list', p_locked_by => 'lock_grade', p_errors => '{conflict,invalid_reference}');

select core.define_record('subject', p_table => 'subject', p_key => 'su.id', p_one_row_per_key => true,
  p_source => 'subject su left join subject_context sc on sc.id = su.subject_context_id',
  p_columns => $$
    su.id, su.name, su.code, su.subject_context_id, sc.name as subject_context_name, su.description,
    (select coalesce(json_agg(sr.room_id order by sr.room_id), '[]') from subject_room sr
      where sr.subject_id = su.id) as room_ids,
    su.created_at, su.updated_at
  $$,
  p_search => $$public.search_form(su.name || ' ' || su.code)$$,
  p_equals => '{subject_context_id}',
  p_default_sort => 'name',
  p_writable => '{name,code,subject_context_id,description}');
select core.define_sort('subject', 'name', 'platform.search_normal(su.name)');
select core.define_sort('subject', 'code', 'lower(su.code)');
select core.define_sort('subject', 'created_at', 'su.created_at');

select core.define_functions('subjects', 'subject',
  p_list => 'Subjects by name. Searches name and code. Filter: subject_context_id.',
  p_get => 'One subject. Raises not_found.',
  p_delete =>
    'Deletes a subject and removes it from the templates of all grades. Raises in_use while a class or a timetable '
    'uses it.');

create function api.subject_set_rooms(p_id bigint, p_room_ids bigint[]) returns void language plpgsql as $$
declare
  v_unknown record;
begin
  select i.position - 1 as index, i.id
    into v_unknown
    from unnest(p_room_ids) with ordinality i (id, position)
    where i.id not in (
      select r.id from room r
      where r.is_active or r.id in (select room_id from subject_room where subject_id = p_id))
    order by i.position
    limit 1;
  if found then
    perform core.refuse_field('invalid_reference', 'room_ids.' || v_unknown.index,
      format('There is no active room %s.', v_unknown.id));
  end if;
  delete from subject_room where subject_id = p_id and room_id <> all (p_room_ids);
  insert into subject_room (subject_id, room_id)
    select p_id, i from unnest(p_room_ids) i
    on conflict do nothing;
end $$;
comment on function api.subject_set_rooms is
  'Replaces the rooms of a subject. Raises invalid_reference for a room that is unknown, or not active unless the '
  'subject has it already.';

create function api.subjects_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := core.record_insert('subject', p);
begin
  if p ? 'room_ids' then
    perform api.subject_set_rooms(v_id, array(select jsonb_array_elements_text(p -> 'room_ids')::bigint));
  end if;
  return api.subject_record(v_id);
end $$;
comment on function api.subjects_create is
  'Creates a subject, optionally with its rooms (room_ids). Raises conflict for a code that is in use, and '
  'invalid_reference for an unknown context or a room that is not active.';

create function api.subjects_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  perform core.record_update('subject', p);
  if p ? 'room_ids' then
    perform api.subject_set_rooms(v_id, array(select jsonb_array_elements_text(p -> 'room_ids')::bigint));
  end if;
  return api.subject_record(v_id);
end $$;
comment on function api.subjects_update is
  'Updates a subject; room_ids replace its rooms. Existing slots keep their rooms. Raises conflict for a code that is '
  'in use, and invalid_reference for an unknown context or a room that is not active.';

create function api.grade_subjects_list(p jsonb) returns json language plpgsql stable as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  perform api.grade_record(v_id);
  return (
    select coalesce(
      json_agg(
        json_build_object(
          'subject_id', su.id,
          'subject_name', su.name,
          'subject_code', su.code,
          'periods_per_week', gs.periods_per_week)
        order by platform.search_normal(su.name), su.id),
      '[]')
    from grade_subject gs
    join subject su on su.id = gs.subject_id
    where gs.grade_id = v_id);
end $$;
comment on function api.grade_subjects_list is
  'The subject template of a grade by subject name: [{subject_id, subject_name, subject_code, periods_per_week}]. '
  'Raises not_found for the grade.';

create function api.lock_grade(p jsonb) returns void language plpgsql as $$
begin
  perform core.record_lock('grade', (p ->> 'id')::bigint);
end $$;
comment on function api.lock_grade is 'Locks a grade, or raises not_found: {id}.';

create function api.grade_subjects_replace(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_unknown record;
begin
  select position - 1 as index, item ->> 'subject_id' as subject_id
    into v_unknown
    from jsonb_array_elements(p -> 'items') with ordinality e (item, position)
    where not exists (select from subject where id = (item ->> 'subject_id')::bigint)
    order by position
    limit 1;
  if found then
    perform core.refuse_field('invalid_reference', v_unknown.index || '.subject_id',
      format('There is no subject %s.', v_unknown.subject_id));
  end if;
  delete from grade_subject where grade_id = v_id;
  insert into grade_subject (grade_id, subject_id, periods_per_week)
    select v_id, i.subject_id, i.periods_per_week
    from jsonb_to_recordset(p -> 'items') i (subject_id bigint, periods_per_week integer);
  return api.grade_subjects_list(p);
end $$;
comment on function api.grade_subjects_replace is
  'Replaces the subject template of a grade: {id, items}. Does not change the subjects of existing classes. Raises '
  'not_found for the grade, invalid_reference for an unknown subject.';
