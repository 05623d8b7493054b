-- /api/students: students, their documents, the student dashboard and promotion to the next academic year. This file is
-- the example for other resources: first the operations, then the records, then the functions.

select core.define_operation('students_list', p_permission => 'student.read', p_needs_search_path => false);
select core.define_operation('students_get', p_permission => 'student.read', p_record => 'student');
select core.define_operation('students_create', p_permission => 'student.create', p_idempotent => true,
  p_record => 'student', p_errors => '{plan_limit_reached,conflict,invalid_reference}');
select core.define_operation('students_update', p_permission => 'student.update', p_record => 'student',
  p_errors => '{plan_limit_reached,conflict,invalid_reference}');
select core.define_operation('students_delete', p_permission => 'student.delete', p_record => 'student',
  p_errors => '{conflict}');
select core.define_operation('students_me_dashboard', p_role => 'student', p_errors => '{not_found}');
select core.define_operation('students_promote', p_permission => 'student.update', p_idempotent => true,
  p_errors => '{conflict,invalid_reference}');
select core.define_operation('students_promotion_preview', p_permission => 'student.read', p_open_to => 'staff',
  p_errors => '{invalid_reference}');
select core.define_operation('students_documents_list', p_permission => 'student.read', p_open_to => 'everyone');
select core.define_operation('students_documents_get', p_permission => 'student.read', p_open_to => 'everyone',
  p_record => 'student_document');
select core.define_operation('students_documents_create', p_permission => 'student.update', p_idempotent => true,
  p_record => 'student_document', p_content => 'takes', p_errors => '{invalid_reference}');
select core.define_operation('students_documents_delete', p_permission => 'student.update',
  p_record => 'student_document');
select core.define_operation('students_documents_file', p_permission => 'student.read', p_open_to => 'everyone',
  p_content => 'gives');

select core.define_record('student', p_table => 'student', p_key => 's.id', p_one_row_per_key => true,
  p_source => $$
    student s left join class c on c.id = s.class_id left join grade g on g.id = s.grade_id
      left join religion r on r.id = s.religion_id
  $$,
  p_columns => $$
    s.id, s.first_name, s.last_name, s.roll_number, s.admission_number, s.date_of_birth, s.gender, s.email, s.phone,
    s.class_id, api.class_name(c.name, c.section) as class_name, c.academic_year_id, s.grade_id, g.name as grade_name,
    s.religion_id, r.name as religion_name,
    -- A guardian sees no other guardian, and no address, unless the school shows them.
    case when core.hides_contacts(s.id) then null else s.parent_name end as parent_name,
    case when core.hides_contacts(s.id) then null else s.parent_phone end as parent_phone,
    case when core.hides_contacts(s.id) then null else s.parent_email end as parent_email,
    case when core.hides_contacts(s.id) then null else s.address end as address,
    not core.has_left(s.left_on, core.today()) as is_active, s.left_on, s.leaving_reason, s.user_id,
    s.deleted_at, s.created_at, s.updated_at
  $$,
  p_condition => 's.deleted_at is null', p_deleted_condition => 's.deleted_at is not null',
  p_deleted_permission => 'student.delete', p_restore_fields => '{admission_number}',
  p_search => 's.search_text',
  p_single_page_filters => '{class_id}', p_narrow_filters => '{is_in_scope}',
  p_equals => '{grade_id}',
  p_default_sort => 'last_name',
  p_writable => '{first_name,last_name,roll_number,admission_number,date_of_birth,gender,email,phone,class_id,
    grade_id,religion_id,parent_name,parent_phone,parent_email,address,left_on,leaving_reason,user_id}');
select core.define_filter('student', 'class_id', $$
  s.id in (select student_id from core.class_roll() where class_id = :value::bigint)
$$);
select core.define_filter('student', 'not_class_id', 's.class_id is distinct from :value::bigint');
select core.define_filter('student', 'without_class', '(s.class_id is null) = :value::boolean', p_is_literal => true);
select core.define_filter('student', 'academic_year_id', $$
  s.id in (select student_id from core.class_roll() where academic_year_id = :value::bigint)
$$);
select core.define_filter('student', 'is_active', $$
  (:value::boolean and coalesce(s.left_on > (select core.today()), true))
    or (not :value::boolean and s.left_on <= (select core.today()))
$$, p_is_literal => true);
-- The condition of the row policy for users who do not see the whole school. In a filter it uses indexes.
select core.define_filter('student', 'is_in_scope', $$
  (s.class_id = any ((select taught_class_ids())::bigint[]) or s.id = any ((select visible_student_ids())::bigint[]))
$$);
-- For guardians who do not see the contacts (core.narrow_to_scope).
select core.define_filter('student', 'matches_shown', $$
  (not core.hides_contacts(s.id)
    or public.search_form(concat_ws(' ', s.first_name, s.last_name, s.admission_number, s.roll_number, s.email))
      like all (core.search_patterns(core.parameters() ->> 'search')))
$$, p_is_literal => true);
select core.define_sort('student', 'last_name',
  'platform.search_normal(s.last_name)', 'platform.search_normal(s.first_name)');
select core.define_sort('student', 'first_name',
  'platform.search_normal(s.first_name)', 'platform.search_normal(s.last_name)');
select core.define_sort('student', 'roll_number', 'length(s.roll_number) nulls last', 's.roll_number nulls last');
select core.define_sort('student', 'admission_number', 's.admission_number');
select core.define_sort('student', 'created_at', 's.created_at');

-- The row policy of the table student applies in the condition, so a teacher sees only documents of their own students.
select core.define_record('student_document', p_table => 'student_document', p_key => 'd.id', p_one_row_per_key => true,
  p_source => $$
    student_document d left join file f on f.id = d.file_id left join document_type t on t.id = d.document_type_id
  $$,
  p_columns => $$
    d.id, d.student_id, d.document_type_id, t.name as document_type_name, d.description, f.name, f.content_type, f.size,
    d.uploaded_by, d.uploaded_by_name, d.created_at, d.updated_at
  $$,
  p_condition => 'exists (select from student s where s.id = d.student_id and s.deleted_at is null)',
  p_search => $$public.search_form(f.name || ' ' || coalesce(d.description, ''))$$,
  p_single_page_filters => '{student_id}',
  p_equals => '{student_id,document_type_id}',
  p_default_sort => 'created_at', p_default_order => 'desc',
  p_writable => '{student_id,file_id,document_type_id,description,uploaded_by,uploaded_by_name}');
select core.define_sort('student_document', 'created_at', 'd.created_at');
select core.define_sort('student_document', 'name', 'platform.search_normal(f.name)');

select core.define_functions('students', 'student',
  p_get => 'One student. Raises not_found, also for a deleted student.');

create function api.students_list(p jsonb) returns json language plpgsql stable as $$
begin
  if p ->> 'is_deleted' = 'true' then
    perform core.require_also('student.delete');
  end if;
  return core.record_page('student', p || case
    when core.has_whole_school_scope() then '{}' else '{"is_in_scope": true}' end::jsonb);
end $$;
comment on function api.students_list is
  'Students by last name. Searches the names of student and parent, admission number, roll number and email. '
  'Filters: class_id and academic_year_id (current and completed enrollments), grade_id, is_active. Deleted students '
  'instead with is_deleted; raises forbidden for users without student.delete.';

create function api.contact_name(p_student_id bigint) returns text language sql stable as $$
  select parent_name
  from student
  where id = p_student_id and not core.hides_contacts(id);
$$;
comment on function api.contact_name is
  'The name of the parent on documents about a student; null for a guardian who does not see other guardians.';

create function api.next_admission_number() returns text language plpgsql as $$
declare
  v_number bigint;
  v_text text;
  -- A number must be unique among all students, including those that the user may not see.
  v_scope text := core.widen_scope();
begin
  insert into counter as c (name, value)
    values ('admission_number', 1)
    on conflict (name) do update set value = c.value + 1
    returning value into v_number;
  loop
    v_text := lpad(v_number::text, greatest(6, length(v_number::text)), '0');
    exit when not exists (select from student where admission_number = v_text and deleted_at is null);
    -- Somebody has entered this number by hand. Continue after the highest number in use.
    select greatest(v_number, max(admission_number::bigint)) + 1
      into v_number
      from student
      where admission_number ~ '^\d{1,15}$' and deleted_at is null;
    update counter set value = v_number where name = 'admission_number';
  end loop;
  perform core.restore_scope(v_scope);
  return v_text;
end $$;
comment on function api.next_admission_number is
  'The next free admission number of this school, padded with zeros to at least six digits.';

create function api.students_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := api.person_save('student', p || jsonb_build_object(
    'admission_number', coalesce(p ->> 'admission_number', api.next_admission_number())));
begin
  return api.student_record(v_id);
end $$;
comment on function api.students_create is
  'Creates a student: {first_name, last_name, …}. create_user_account also creates a login with the student role. '
  'Raises plan_limit_reached if the plan allows no more students, conflict for a duplicate admission number or email, '
  'invalid_reference for an unknown class, grade or religion.';

create function api.student_class_refusal(p_class_id bigint, p_others bigint default 0) returns text
  language plpgsql stable as $$
declare
  v_class record;
  v_scope text := core.widen_scope();
begin
  select api.class_name(c.name, c.section) as name, y.end_date, c.capacity,
      (select count(*) from core.enrolled() e where e.class_id = c.id) as students
    into v_class
    from class c
    join academic_year y on y.id = c.academic_year_id
    where c.id = p_class_id;
  perform core.restore_scope(v_scope);
  return case
    when v_class.end_date < core.today() then format('The academic year of %s has ended.', v_class.name)
    when v_class.students + p_others >= v_class.capacity
      then format('The class %s has room for %s students.', v_class.name, v_class.capacity)
  end;
end $$;
comment on function api.student_class_refusal is
  'Why a student who returns does not get this class back; null if they do. p_others are students who get a place '
  'in it before, by the same request.';

create function api.student_restore_seat(p_student_id bigint) returns text language plpgsql as $$
declare
  v_seat record;
  v_left_on date := (select left_on from student where id = p_student_id);
begin
  select e.route_id, e.stop_id, e.enrollment_type, r.name,
      r.is_active and r.deleted_at is null and st.deleted_at is null as is_open
    into v_seat
    from transport_enrollment e
    join route r on r.id = e.route_id
    join stop st on st.id = e.stop_id
    where e.student_id = p_student_id
      and e.id = (select max(id) from transport_enrollment where student_id = p_student_id)
      and e.is_ended_by_leaving;
  if not found then
    return null;
  elsif not v_seat.is_open then
    return format('%s is inactive or no longer has this stop.', v_seat.name);
  end if;
  begin
    insert into transport_enrollment (
      student_id, route_id, stop_id, enrollment_type, status, cancelled_at, cancel_reason, is_ended_by_leaving)
      values (p_student_id, v_seat.route_id, v_seat.stop_id, v_seat.enrollment_type,
        case when v_left_on is null then 'active' else 'cancelled' end, core.day_begins(v_left_on),
        case when v_left_on is not null then 'The student left.' end, v_left_on is not null);
  exception when sqlstate 'S409A' then
    return sqlerrm;
  end;
  return null;
end $$;
comment on function api.student_restore_seat is
  'Gives a student who returns the seat in the bus back that ended because the student left. Returns why not, or null.';

create function api.student_return(p jsonb, p_class_id bigint) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_scope text;
  v_class_refusal text;
  v_seat_refusal text;
  v_answer json;
begin
  -- A record that was read and sent back names the class, too.
  if not p ? 'class_id' or p ? 'read_only' and (p ->> 'class_id')::bigint = p_class_id then
    v_scope := core.widen_scope();
    perform from class where id = p_class_id for no key update;
    perform core.restore_scope(v_scope);
    v_class_refusal := api.student_class_refusal(p_class_id);
    if v_class_refusal is not null then
      p := p || '{"class_id": null}';
    end if;
  end if;
  perform api.person_save('student', p);
  v_seat_refusal := api.student_restore_seat(v_id);
  v_answer := api.student_record(v_id);
  if num_nonnulls(v_class_refusal, v_seat_refusal) > 0 then
    v_answer := v_answer::jsonb || jsonb_build_object('not_restored', (
      select jsonb_agg(jsonb_build_object('field', field, 'message', message))
      from (values ('class_id', v_class_refusal), ('transport_enrollment', v_seat_refusal)) r (field, message)
      where message is not null));
  end if;
  return v_answer;
end $$;
comment on function api.student_return is
  'Updates a student who has left the class p_class_id and returns. Answers the student, with not_restored, '
  '[{field, message}], if the class, unless the request names another one, or the seat in the bus could not be given '
  'back.';

create function api.students_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_left_on date;
  v_class_id bigint;
  v_given jsonb;
begin
  if core.hides_contacts(v_id) then
    p := p - '{parent_name,parent_phone,parent_email,address}'::text[];
  end if;
  if core.is_restore('student', p) and core.deleted_record('student', v_id) is not null then
    perform core.require_also('student.delete');
    -- The new number is set together with deleted_at, because the old one may be taken.
    update student
      set deleted_at = null, admission_number = coalesce(p ->> 'admission_number', admission_number)
      where id = v_id;
    perform core.enforce_plan_limits();
  end if;
  if p ?| '{is_active,left_on}' then
    select left_on, class_id into v_left_on, v_class_id from student where id = v_id;
    v_given := api.person_with_left_on('student', p);
    if core.has_left(v_left_on, core.today()) and not core.has_left((v_given ->> 'left_on')::date, core.today()) then
      return api.student_return(v_given, v_class_id);
    end if;
  end if;
  perform api.person_save('student', p);
  return api.student_record(v_id);
end $$;
comment on function api.students_update is
  'Updates a student. is_active false, or left_on, ends the enrollment, the transport and the login on that day; '
  'is_active true, or another left_on, returns the student (api.student_return). create_user_account creates a login '
  'for a student who has none. deleted_at null, alone or with admission_number, restores a deleted student, with the '
  'class but without the login. Raises the errors of '
  'students_create; conflict also for a password if the student already has a login; not_found for any other change '
  'of a deleted student; forbidden for restoring without student.delete.';

create function api.students_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_user_id bigint := (api.student_record(v_id) ->> 'user_id')::bigint;
begin
  if v_user_id is not null then
    perform api.login_remove(v_user_id);
  end if;
  update student set deleted_at = now() where id = v_id;
  perform core.enforce_plan_limits();
  return core.deleted_record('student', v_id);
end $$;
comment on function api.students_delete is
  'Soft-deletes a student and deletes the login. The history stays; the admission number can be used again. Answers '
  'the deleted student.';

create function api.student_attendance_summary(p_student_id bigint) returns json language plpgsql stable as $$
begin
  return (
    select json_build_object(
      'present', count(*) filter (where status <> 'absent'),
      'absent', count(*) filter (where status = 'absent'),
      'late', count(*) filter (where status = 'late'),
      'excused', count(*) filter (where status = 'absent' and is_excused),
      'rate', api.attendance_rate(
        count(*) filter (where status = 'present'), count(*) filter (where status = 'late'), count(*)),
      'last', coalesce(
        json_agg(json_build_object('date', date, 'status', status, 'is_excused', is_excused) order by date desc)
          filter (where position <= 10),
        '[]'))
    from (
      select a.date, a.status, a.is_excused, row_number() over (order by a.date desc) as position
      from academic_year y
      join attendance a on a.student_id = p_student_id and a.date between y.start_date and y.end_date
      where y.is_current
    ) mark);
end $$;
comment on function api.student_attendance_summary is
  'The attendance of a student in the current academic year: counts, rate and the ten latest days.';

create function api.student_fee_summary(p_student_id bigint, p_day date) returns json language plpgsql stable as $$
begin
  return (
    select json_build_object(
      'total', coalesce(sum(amount), 0),
      'discounted', coalesce(sum(discount_amount), 0),
      'paid', coalesce(sum(paid_amount), 0),
      'waived', coalesce(sum(remainder) filter (where status = 'waived'), 0),
      'pending', coalesce(sum(remainder) filter (where api.is_open(status)), 0),
      'overdue', coalesce(sum(remainder) filter (where status = 'overdue'), 0),
      'next_due', (
        json_agg(
          json_build_object(
            'kind', kind, 'id', id, 'name', name, 'amount', remainder, 'due_date', due_date)
          order by due_date, kind desc, id)
        filter (where api.is_open(status) and status <> 'overdue')) -> 0)
    from api.bills(p_day)
    where student_id = p_student_id);
end $$;
comment on function api.student_fee_summary is
  'The fees and issued invoices of a student on a day: totals and the next amount due.';

create function api.student_dashboard(p_student_id bigint) returns json language plpgsql stable as $$
declare
  v_answer json;
begin
  with today as materialized (
    select core.today() as date, core.tenant_features() as features
  )
  select json_build_object(
      'student', json_build_object(
        'id', s.id, 'first_name', s.first_name, 'last_name', s.last_name,
        'admission_number', s.admission_number, 'roll_number', s.roll_number),
      'class', case when c.id is not null then json_build_object(
        'id', c.id, 'name', api.class_name(c.name, c.section),
        'grade_id', c.grade_id, 'grade_name', g.name, 'room', c.room,
        'academic_year_id', c.academic_year_id, 'academic_year_name', y.name,
        'class_teacher_id', ct.id, 'class_teacher_name', core.full_name(ct.first_name, ct.last_name)) end,
      'attendance', case when 'attendance' = any (today.features) then api.student_attendance_summary(s.id) end,
      'fees', case when 'fees_management' = any (today.features) then api.student_fee_summary(s.id, today.date) end,
      'schedule', case when 'timetable' = any (today.features) then api.schedule_on(today.date, c.id, null) end,
      'notifications', json_build_object(
        'unread', (select count(*) from notification n where n.user_id = core.user_id() and n.read_at is null)))
    into v_answer
    from today
    cross join student s
    left join class c on c.id = s.class_id
    left join grade g on g.id = c.grade_id
    left join academic_year y on y.id = c.academic_year_id
    left join teacher ct on ct.id = c.class_teacher_id and not core.has_left(ct.left_on, today.date)
    where s.id = p_student_id and s.deleted_at is null;
  return v_answer;
end $$;
comment on function api.student_dashboard is
  'The dashboard of a student for the user of this request: class, attendance, fees, lessons of today and unread '
  'notifications of the user. A part is null if its feature is disabled. Null if the user does not see the student.';

create function api.students_me_dashboard(p jsonb) returns json language plpgsql stable as $$
declare
  v_answer json := api.student_dashboard(core.student_id());
begin
  if v_answer is null then
    perform core.fail('not_found', 'Your account is not linked to a student.');
  end if;
  return v_answer;
end $$;
comment on function api.students_me_dashboard is
  'The dashboard of the student who is logged in (api.student_dashboard). Raises not_found for a user without a '
  'student.';

create function api.require_student(p_id bigint, p_path text) returns void language plpgsql as $$
begin
  perform from student where id = p_id and deleted_at is null for no key update;
  if p_id is not null and not found then
    perform core.refuse_field('invalid_reference', p_path, format('There is no student %s.', p_id));
  end if;
end $$;
comment on function api.require_student is
  'Locks a student until the end of the transaction; null locks nothing. Raises invalid_reference, with the field '
  'p_path, if the student does not exist, is deleted or is outside the scope of the request.';

create function api.require_students(p_student_ids jsonb) returns void language plpgsql stable as $$
declare
  v_errors json;
begin
  select json_agg(
      json_build_object('path', 'student_ids.' || position - 1, 'message', format('There is no student %s.', id))
      order by position)
    into v_errors
    from jsonb_array_elements_text(p_student_ids) with ordinality requested (id, position)
    where not exists (select from student s where s.id = requested.id::bigint and s.deleted_at is null);
  if v_errors is not null then
    perform core.fail('invalid_reference', v_errors -> 0 ->> 'message', v_errors);
  end if;
end $$;
comment on function api.require_students is
  'Raises invalid_reference with one detail for each id of student_ids that is not a student.';

create function api.students_promotion_preview(p jsonb) returns json language plpgsql stable as $$
declare
  v_class_id bigint := (p ->> 'to_class_id')::bigint;
  v_year_id bigint := (p ->> 'to_academic_year_id')::bigint;
  v_class record;
  v_can_see_students boolean := core.has_permission('student.read');
  v_answer json;
begin
  if not exists (select from academic_year where id = v_year_id) then
    perform core.refuse_field('invalid_reference', 'to_academic_year_id',
      format('There is no academic year %s.', v_year_id));
  end if;
  select c.id, api.class_name(c.name, c.section) as name, c.grade_id, g.name as grade_name, c.academic_year_id,
      y.name as academic_year_name, y.start_date, c.capacity,
      (select count(*) from core.enrolled() e where e.class_id = c.id) as student_count
    into v_class
    from class c
    join academic_year y on y.id = c.academic_year_id
    join grade g on g.id = c.grade_id
    where c.id = v_class_id and c.academic_year_id = v_year_id;
  if not found then
    perform core.refuse_field('invalid_reference', 'to_class_id',
      format('There is no class %s in academic year %s.', v_class_id, v_year_id));
  end if;
  if v_can_see_students then
    perform api.require_students(p -> 'student_ids');
  else
    -- The answer is the same for every id, whether there is such a student or not.
    v_class.student_count := null;
  end if;

  with candidate as (
    select requested.position, requested.id::bigint as student_id,
      core.full_name(s.first_name, s.last_name) as student_name,
      c.id as current_class_id, api.class_name(c.name, c.section) as current_class_name,
      case
        when s.id is null then 'You need student.read to see whether the student can be promoted.'
        when core.has_left(s.left_on, core.today()) then 'The student has left.'
        when c.id = v_class.id then 'The student is already in this class.'
        when c.academic_year_id = v_class.academic_year_id
          then 'The student is already enrolled in this academic year.'
        when y.start_date >= v_class.start_date
          then 'The academic year of the new class must begin after that of the current class.'
      end as reason
    from jsonb_array_elements_text(p -> 'student_ids') with ordinality requested (id, position)
    left join student s on s.id = requested.id::bigint and v_can_see_students
    left join class c on c.id = s.class_id
    left join academic_year y on y.id = c.academic_year_id
  ),
  -- Only students who can be promoted take a seat, in the order of the request.
  seated as (
    select *, v_class.student_count + count(*) filter (where reason is null) over (order by position) as seat
    from candidate
  ),
  decided as (
    select *, coalesce(reason, case when seat > v_class.capacity then 'The class is full.' end) as final_reason
    from seated
  )
  select json_build_object(
      'to_class', to_jsonb(v_class) - 'start_date',
      'eligible', count(*) filter (where final_reason is null),
      'ineligible', count(*) filter (where final_reason is not null),
      'students', json_agg(
        json_build_object(
          'student_id', student_id,
          'student_name', student_name,
          'current_class_id', current_class_id,
          'current_class_name', current_class_name,
          'next_class_id', v_class.id, 'next_class_name', v_class.name,
          'eligible', final_reason is null, 'reason', final_reason)
        order by position))
    into v_answer
    from decided;
  return v_answer;
end $$;
comment on function api.students_promotion_preview is
  'Which of these students can be promoted, in the order of the request, and why the others cannot: '
  '{student_ids, to_class_id, to_academic_year_id}. Without student.read the answer tells nothing about the '
  'students, also not which ids exist. Raises invalid_reference for an unknown student, class or academic year, or if '
  'the class belongs to another academic year.';

create function api.students_promote(p jsonb) returns json language plpgsql as $$
declare
  v_student_ids bigint[] := array(select jsonb_array_elements_text(p -> 'student_ids')::bigint);
  v_preview json;
begin
  -- A concurrent promotion waits here, so its preview sees the result of this one. All promotions lock the students
  -- first, in the order of their ids, and then the class; this prevents deadlocks.
  perform from student where id = any (v_student_ids) order by id for no key update;
  perform from class where id = (p ->> 'to_class_id')::bigint for no key update;
  v_preview := api.students_promotion_preview(p);
  if (v_preview ->> 'ineligible')::integer > 0 then
    perform core.fail('conflict',
      format('%s of %s students cannot be promoted, so no student was promoted. Remove them from the request.',
        v_preview ->> 'ineligible', cardinality(v_student_ids)),
      (
        select json_agg(
          json_build_object('path', 'student_ids.' || position - 1, 'message', student ->> 'reason')
          order by position)
        from json_array_elements(v_preview -> 'students') with ordinality s (student, position)
        where student ->> 'reason' is not null
      ));
  end if;
  -- A trigger completes the old enrollments and creates the new ones.
  update student set class_id = (p ->> 'to_class_id')::bigint where id = any (v_student_ids);
  return json_build_object(
    'promoted', cardinality(v_student_ids),
    'to_class_id', p -> 'to_class_id',
    'to_academic_year_id', p -> 'to_academic_year_id',
    'students', p -> 'student_ids');
end $$;
comment on function api.students_promote is
  'Moves all of these students to a class of a later academic year, or none: {student_ids, to_class_id, '
  'to_academic_year_id}. Takes effect today, even if that year has not begun, because a student has one class at a '
  'time. Raises conflict with a reason for each student who cannot be promoted, and the errors of the preview.';

create function api.student_document_file(p_student_id bigint, p_id bigint) returns bigint
language plpgsql stable as $$
declare
  v_file_id bigint;
begin
  select d.file_id
    into v_file_id
    from student_document d
    join student s on s.id = d.student_id and s.deleted_at is null
    where d.id = p_id and d.student_id = p_student_id;
  if v_file_id is null then
    perform core.fail('not_found', format('This student has no document %s.', p_id));
  end if;
  return v_file_id;
end $$;
comment on function api.student_document_file is
  'The id of the file of a document. Raises not_found if the document belongs to another student or the user may not '
  'see the student.';

create function api.students_documents_list(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.student_record((p ->> 'student_id')::bigint);
  return core.record_page('student_document', p);
end $$;
comment on function api.students_documents_list is
  'The documents of a student, latest first. Searches name and description. Filter: document_type_id. Raises not_found '
  'for the student.';

create function api.students_documents_get(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.student_document_file((p ->> 'student_id')::bigint, (p ->> 'id')::bigint);
  return api.student_document_record((p ->> 'id')::bigint);
end $$;
comment on function api.students_documents_get is
  'One document of a student, without the content of its file. Raises not_found.';

create function api.students_documents_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  perform core.record_lock('student', (p ->> 'student_id')::bigint);
  v_id := core.record_insert('student_document', p || jsonb_build_object(
    'uploaded_by', core.user_id(), 'uploaded_by_name', api.user_name()));
  return api.student_document_record(v_id);
end $$;
comment on function api.students_documents_create is
  'Adds an uploaded file to a student: {student_id, file_id, document_type_id, description}. Raises not_found for the '
  'student, invalid_reference for an unknown document type.';

create function api.students_documents_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_file_id bigint := api.student_document_file((p ->> 'student_id')::bigint, v_id);
begin
  delete from student_document where id = v_id;
  delete from file where id = v_file_id;
  return json_build_object('id', v_id);
end $$;
comment on function api.students_documents_delete is 'Deletes a document and its file. Raises not_found.';

create function api.students_documents_file(p jsonb) returns json language sql stable as $$
  select api.file_answer(api.student_document_file((p ->> 'student_id')::bigint, (p ->> 'document_id')::bigint));
$$;
comment on function api.students_documents_file is
  'The file of a document under its original name: {student_id, document_id}. Raises not_found.';
