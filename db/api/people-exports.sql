-- /api/students/export, /api/teachers/export: files that the import takes back (imports.sql). The cells are in the
-- order of the columns of the facade.

select core.define_operation('students_export', p_permission => 'student.read');
select core.define_operation('teachers_export', p_permission => 'teacher.read');

create function api.students_export(p jsonb) returns json language sql stable as $$
  select core.record_export_page(
    'student',
    p || case when core.has_whole_school_scope() then '{}' else '{"is_in_scope": true}' end::jsonb,
    $cells$
      s.admission_number,
      (select x.external_id from student_external_id x
        where x.student_id = s.id and x.source = coalesce((select core.parameters() ->> 'source'), 'import')),
      s.first_name, s.last_name, s.roll_number, s.date_of_birth, s.gender, s.email, s.phone,
      api.class_name(c.name, c.section), g.name, r.name,
      case when core.hides_contacts(s.id) then null else s.parent_name end,
      case when core.hides_contacts(s.id) then null else s.parent_phone end,
      case when core.hides_contacts(s.id) then null else s.parent_email end,
      case when core.hides_contacts(s.id) then null else s.address end,
      not core.has_left(s.left_on, (select core.today())), s.left_on, s.leaving_reason
    $cells$,
    's.id');
$$;
comment on function api.students_export is
  'One page of the export of students, with their external ids in `source`. Filters: those of the list.';

create function api.teachers_export(p jsonb) returns json language sql stable as $$
  select core.record_export_page(
    'teacher',
    p,
    $cells$
      private.employee_number,
      case when private.id is not null then (
        select x.external_id from teacher_external_id x
        where x.teacher_id = t.id and x.source = coalesce((select core.parameters() ->> 'source'), 'import')) end,
      t.first_name, t.last_name, t.email, private.phone, private.qualification, t.specialization, private.joined_on,
      private.date_of_birth, private.gender, private.address,
      not core.has_left(t.left_on, (select core.today())), t.left_on, private.leaving_reason
    $cells$,
    't.id');
$$;
comment on function api.teachers_export is
  'One page of the export of teachers, with their external ids in `source`, as far as the user may see their data.';
