-- /api/students: the model for every resource.

insert into core.operation (name, access, permission, writes, idempotent, record) values
  ('students_list', 'tenant', 'student.read', false, false, null),
  ('students_get', 'tenant', 'student.read', false, false, 'student'),
  ('students_create', 'tenant', 'student.create', true, true, 'student'),
  ('students_update', 'tenant', 'student.update', true, false, 'student'),
  ('students_delete', 'tenant', 'student.delete', true, false, 'student');

select core.define_record('student', p_table => 'student', p_key => 's.id',
  p_source => 'student s left join class c on c.id = s.class_id left join grade g on g.id = s.grade_id',
  p_columns => $$
    s.id, s.first_name, s.last_name, s.roll_number, s.admission_number, s.date_of_birth, s.gender, s.email, s.phone,
    s.class_id, c.name || coalesce(' ' || c.section, '') as class_name, c.academic_year_id, s.grade_id, g.name as grade_name,
    s.parent_name, s.parent_phone, s.parent_email, s.address, s.is_active, s.user_id, s.deleted_at, s.created_at, s.updated_at
  $$,
  p_condition => 's.deleted_at is null', p_search => 's.search_text',
  p_filters => $${
    "class_id": "s.id in (select student_id from enrollment where class_id = :value::bigint and status in ('active', 'completed'))",
    "academic_year_id": "s.id in (select student_id from enrollment where academic_year_id = :value::bigint and status in ('active', 'completed'))",
    "grade_id": "s.grade_id = :value::bigint",
    "is_active": "s.is_active = :value::boolean"
  }$$,
  p_default_sort => 'last_name', p_sorts => $${
    "last_name": ["platform.search_normal(s.last_name)", "platform.search_normal(s.first_name)"],
    "first_name": ["platform.search_normal(s.first_name)", "platform.search_normal(s.last_name)"],
    "roll_number": ["length(s.roll_number) nulls last", "s.roll_number nulls last"],
    "admission_number": ["s.admission_number"],
    "created_at": ["s.created_at"]
  }$$,
  p_writable => '{first_name,last_name,roll_number,admission_number,date_of_birth,gender,email,phone,class_id,grade_id,religion_id,
                  parent_name,parent_phone,parent_email,address,is_active,user_id}');

-- Students by name; search over name, admission and roll number, e-mail, parent; filters class_id and academic_year_id
-- (by enrollment, so that last year's class answers too), is_active.
create function api.students_list(p jsonb) returns json language sql stable as $$
  select core.page('student', p);
$$;

-- One student, or not_found; a deleted one is not found either.
create function api.students_get(p jsonb) returns json language sql stable as $$
  select api.student_record((p ->> 'id')::bigint);
$$;

-- The school's next admission number, six digits or more, past any that was given by hand.
create function api.admission_number_next() returns text language plpgsql as $$
declare
  v_number bigint;
  v_text text;
begin
  insert into counter as c (name, value) values ('admission_number', 1)
    on conflict (name) do update set value = c.value + 1 returning value into v_number;
  loop
    v_text := lpad(v_number::text, greatest(6, length(v_number::text)), '0');
    exit when not exists (select from student where admission_number = v_text and deleted_at is null);
    select greatest(v_number, max(admission_number::bigint)) + 1 into v_number
      from student where admission_number ~ '^\d{1,15}$' and deleted_at is null;
    update counter set value = v_number where name = 'admission_number';
  end loop;
  return v_text;
end $$;
comment on function api.admission_number_next is 'The next admission number of this school.';

-- The log-in that a student gets on request, with the student role.
create function api.student_login(p jsonb) returns bigint language plpgsql as $$
declare
  v_user_id bigint := api.login_create(p - 'is_active');
begin
  insert into user_role (user_id, role_id) select v_user_id, id from role where is_system and name = 'student';
  return v_user_id;
end $$;
comment on function api.student_login is 'A log-in with the student role; answers its id.';

-- With create_user_account a log-in with the student role comes too; raises plan_limit_reached beyond the plan.
create function api.students_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  v_id := core.insert('student', p
    || jsonb_build_object('admission_number', coalesce(p ->> 'admission_number', api.admission_number_next()))
    || case when (p ->> 'create_user_account')::boolean then jsonb_build_object('user_id', api.student_login(p)) else '{}' end);
  perform core.usage_count();
  return api.student_record(v_id);
end $$;

-- create_user_account gives a student without a log-in one, for the e-mail of the request or of the record.
create function api.students_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_student jsonb := api.student_record(v_id);
begin
  if (p ->> 'create_user_account')::boolean then
    if v_student ->> 'user_id' is not null then
      perform core.fail('conflict', 'This student has a log-in already.');
    elsif coalesce(p ->> 'email', v_student ->> 'email') is null then
      perform core.refuse_field('validation_error', 'email', 'A log-in needs an e-mail.');
    end if;
    p := p || jsonb_build_object('user_id', api.student_login(v_student || p));
  end if;
  perform core.update('student', p);
  if p ? 'is_active' then
    perform core.usage_count();
  end if;
  return api.student_record(v_id);
end $$;

-- Hides the student, frees the admission number, takes the log-in away; history stays.
create function api.students_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_user_id bigint := (api.student_record(v_id) ->> 'user_id')::bigint;
begin
  if v_user_id is not null then
    perform api.login_remove(v_user_id);
  end if;
  update student set deleted_at = now() where id = v_id;
  perform core.usage_count();
  return json_build_object('id', v_id);
end $$;
