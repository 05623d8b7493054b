-- Teachers, classes and students: who teaches and who is enrolled in each class.

create table teacher (
  id bigserial primary key,
  user_id bigint references user_account (id) on delete set null,
  first_name text not null
    constraint teacher_first_name_check check (length(first_name) between 1 and 100),
  last_name text not null
    constraint teacher_last_name_check check (length(last_name) between 1 and 100),
  email text,
  phone text,
  employee_number text,
  qualification text,
  specialization text,
  joined_on date,
  date_of_birth date,
  gender text,
  address text,
  max_periods_per_day integer,
  max_periods_per_week integer
    constraint teacher_max_periods_per_week_check check (max_periods_per_week between 1 and 168),
  is_active boolean not null default true,
  search_text text not null generated always as (
    platform.search_normal(
      first_name || ' ' || last_name || ' ' || coalesce(email, '') || ' ' || coalesce(employee_number, '') || ' '
      || coalesce(phone, '')
    )
  ) stored,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint teacher_max_periods_per_day_check
    check (max_periods_per_day between 1 and least(24, max_periods_per_week))
);
comment on table teacher is 'A teacher. user_id is null for a teacher without a user account.';
comment on column teacher.max_periods_per_day is 'The workload limit of the teacher per day; null means no limit.';
comment on column teacher.max_periods_per_week is 'The workload limit of the teacher per week; null means no limit.';
create unique index teacher_user_id_key on teacher (user_id);
create unique index teacher_employee_number_key on teacher (employee_number) where deleted_at is null;
create index teacher_name_idx on teacher
  (platform.search_normal(last_name), platform.search_normal(first_name), id)
  where deleted_at is null;
create index teacher_search_idx on teacher using gin (search_text public.gin_trgm_ops)
  with (fastupdate = off)
  where deleted_at is null;
-- Everyone may know who teaches them. The functions of api hide the private columns (core.can_see_teacher_details).
create policy people_see_teachers on teacher as restrictive
  using (nullif(current_setting('app.scope', true) in ('all', 'taught', 'own'), false) is not null)
  with check (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or id = nullif(current_setting('app.teacher_id', true), '')::bigint
  );
create policy teachers_change_themselves on teacher as restrictive for update
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or id = nullif(current_setting('app.teacher_id', true), '')::bigint
  );
create policy teachers_delete_nobody on teacher as restrictive for delete
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null);

create table teacher_leave (
  id bigserial primary key,
  teacher_id bigint not null references teacher (id) on delete restrict,
  leave_type text not null
    constraint teacher_leave_leave_type_check check (length(leave_type) between 1 and 50),
  start_date date not null,
  end_date date not null,
  reason text,
  status text not null default 'pending'
    constraint teacher_leave_status_check check (status in ('pending', 'approved', 'rejected')),
  decided_by bigint references user_account (id) on delete set null,
  decided_by_name text,
  decided_at timestamptz,
  decision_note text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint teacher_leave_end_date_check check (end_date >= start_date),
  constraint teacher_leave_decided_at_check check ((decided_at is null) = (status = 'pending')),
  constraint teacher_leave_overlap_excl exclude using gist (
    teacher_id with =,
    daterange(start_date, end_date, '[]') with &&
  ) where (status = 'approved')
);
comment on table teacher_leave is 'A leave request of a teacher, and the decision about it.';
comment on column teacher_leave.decided_by_name is
  'A copy of the name of decided_by, because teachers cannot read other users.';
create index teacher_leave_teacher_id_idx on teacher_leave (teacher_id, start_date, id);
create index teacher_leave_start_date_idx on teacher_leave (start_date, id);
create index teacher_leave_decided_by_idx on teacher_leave (decided_by);
create index teacher_leave_pending_idx on teacher_leave (id) where status = 'pending';
create policy teachers_see_themselves on teacher_leave as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or teacher_id = nullif(current_setting('app.teacher_id', true), '')::bigint
  );
insert into state_transition (entity, action, from_state, to_state) values
  ('leave request', 'approve', 'pending', 'approved'),
  ('leave request', 'reject', 'pending', 'rejected');
create trigger transition before update of status on teacher_leave
  for each row execute function enforce_transition('leave request');

create table class (
  id bigserial primary key,
  name text not null
    constraint class_name_check check (length(name) between 1 and 100),
  section text,
  grade_id bigint not null references grade (id) on delete restrict,
  academic_year_id bigint not null references academic_year (id) on delete restrict,
  class_teacher_id bigint references teacher (id) on delete set null,
  capacity integer
    constraint class_capacity_check check (capacity > 0),
  room text,
  school_unit_id bigint references school_unit (id) on delete restrict,
  programme_id bigint references programme (id) on delete restrict,
  medium_id bigint references medium (id) on delete restrict,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint class_academic_year_key unique (id, academic_year_id)
);
comment on table class is 'A class in one academic year.';
create unique index class_name_key on class (academic_year_id, lower(name), lower(coalesce(section, '')));
-- Partial, so that no foreign key can use it: an update of class_teacher_id then does not block inserts of rows that
-- refer to the class.
create unique index class_class_teacher_id_key on class (class_teacher_id, academic_year_id)
  where class_teacher_id is not null;
create index class_grade_id_idx on class (grade_id);
create index class_class_teacher_id_idx on class (class_teacher_id);
create index class_school_unit_id_idx on class (school_unit_id);
create index class_programme_id_idx on class (programme_id);
create index class_medium_id_idx on class (medium_id);
create policy people_see_their_classes on class as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or strpos(current_setting('app.class_ids', true), ',' || id || ',') > 0
  );
-- The rules of a class count all of its students, so only a user who can see all of them may change the class.
create policy people_change_classes_they_teach on class as restrictive for update
  using (nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null);

create table teaching_assignment (
  id bigserial primary key,
  class_id bigint not null references class (id) on delete cascade,
  teacher_id bigint not null references teacher (id) on delete restrict,
  subject text
    constraint teaching_assignment_subject_check check (length(subject) between 1 and 100),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table teaching_assignment is
  'An additional teacher of a class, with their subject as free text. The class teacher is in class, the teachers '
  'of subjects are in class_subject.';
create unique index teaching_assignment_key on teaching_assignment
  (class_id, teacher_id, lower(coalesce(subject, '')));
create index teaching_assignment_teacher_id_idx on teaching_assignment (teacher_id, class_id);

create table class_subject (
  id bigserial primary key,
  class_id bigint not null references class (id) on delete cascade,
  subject_id bigint not null references subject (id) on delete restrict,
  teacher_id bigint references teacher (id) on delete set null,
  periods_per_week integer not null
    constraint class_subject_periods_per_week_check check (periods_per_week between 1 and 60),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table class_subject is 'A subject of a class: its teacher and the periods per week.';
create unique index class_subject_subject_key on class_subject (class_id, subject_id);
create index class_subject_subject_id_idx on class_subject (subject_id);
create index class_subject_teacher_id_idx on class_subject (teacher_id, class_id);

create table student (
  id bigserial primary key,
  user_id bigint references user_account (id) on delete set null,
  admission_number text not null
    constraint student_admission_number_check check (length(admission_number) between 1 and 50),
  roll_number text,
  first_name text not null
    constraint student_first_name_check check (length(first_name) between 1 and 100),
  last_name text not null
    constraint student_last_name_check check (length(last_name) between 1 and 100),
  date_of_birth date,
  gender text,
  email text,
  phone text,
  class_id bigint references class (id) on delete restrict,
  grade_id bigint references grade (id) on delete restrict,
  religion_id bigint references religion (id) on delete restrict,
  parent_name text,
  parent_phone text,
  parent_email text,
  address text,
  is_active boolean not null default true,
  search_text text not null generated always as (
    platform.search_normal(
      first_name || ' ' || last_name || ' ' || admission_number || ' ' || coalesce(roll_number, '') || ' '
      || coalesce(email, '') || ' ' || coalesce(parent_name, '')
    )
  ) stored,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table student is
  'A student. class_id is the current class; enrollment has the history. Deleting a student sets deleted_at.';
create unique index student_user_id_key on student (user_id);
create unique index student_admission_number_key on student (admission_number) where deleted_at is null;
create index student_name_idx on student
  (platform.search_normal(last_name), platform.search_normal(first_name), id)
  where deleted_at is null;
create index student_search_idx on student using gin (search_text public.gin_trgm_ops)
  with (fastupdate = off)
  where deleted_at is null;
create index student_class_id_idx on student (class_id);
create index student_grade_id_idx on student (grade_id);
create index student_religion_id_idx on student (religion_id);
create index student_active_idx on student (id) where is_active and deleted_at is null;
create index student_inactive_idx on student (id) where not is_active and deleted_at is null;
create policy people_see_themselves_and_their_classes on student as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or id = nullif(current_setting('app.student_id', true), '')::bigint
    or (
      current_setting('app.scope', true) = 'taught'
      and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0
    )
  )
  with check (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or (
      (
        id = nullif(current_setting('app.student_id', true), '')::bigint
        or current_setting('app.scope', true) = 'taught'
      )
      and coalesce(
        strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0,
        class_id is null
      )
    )
  );

create table enrollment (
  id bigserial primary key,
  student_id bigint not null references student (id) on delete restrict,
  class_id bigint not null,
  academic_year_id bigint not null references academic_year (id) on delete restrict,
  starts_on date not null,
  ends_on date,
  status text not null default 'active'
    constraint enrollment_status_check check (status in ('active', 'transferred', 'completed', 'withdrawn')),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint enrollment_class_id_fkey foreign key (class_id, academic_year_id)
    references class (id, academic_year_id) on update restrict on delete restrict,
  constraint enrollment_ends_on_check check (ends_on >= starts_on and (ends_on is null) = (status = 'active'))
);
comment on table enrollment is
  'The classes of each student over time. Class lists of past years and past attendance depend on it.';
create unique index enrollment_active_key on enrollment (student_id) where status = 'active';
create index enrollment_student_id_idx on enrollment (student_id, academic_year_id);
create index enrollment_class_id_idx on enrollment (class_id, academic_year_id, student_id);
create index enrollment_academic_year_id_idx on enrollment (academic_year_id, student_id);
create policy people_see_themselves_and_their_classes on enrollment as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or student_id = nullif(current_setting('app.student_id', true), '')::bigint
    or (
      current_setting('app.scope', true) = 'taught'
      and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0
    )
  );

-- A student who changes class gets the grade of the new class.
create function student_set_grade() returns trigger language plpgsql set search_path from current as $$
declare
  v_grade_id bigint;
begin
  if new.class_id is null then
    return new;
  end if;
  select grade_id into v_grade_id from class where id = new.class_id;
  if new.grade_id is null or (tg_op = 'UPDATE' and new.grade_id is not distinct from old.grade_id) then
    new.grade_id := v_grade_id;
  elsif new.grade_id <> v_grade_id and exists (select from grade where id = new.grade_id) then
    -- The foreign key rejects a grade that does not exist.
    raise exception using errcode = 'check_violation', table = 'student', constraint = 'student_grade_id_check',
      message = 'The class belongs to another grade. Leave grade_id out, or set it to the grade of the class.';
  end if;
  return new;
end $$;
create trigger set_grade before insert or update of class_id, grade_id on student
  for each row execute function student_set_grade();

-- The next two triggers keep enrollment up to date: a change of class ends one enrollment and starts the next. They run
-- per statement, because whole classes are imported and promoted in one statement.
create function student_enroll() returns trigger language plpgsql set search_path from current as $$
begin
  insert into enrollment (student_id, class_id, academic_year_id, starts_on)
    select n.id, c.id, c.academic_year_id,
      (now() at time zone coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC'))::date
    from new_students n
    join class c on c.id = n.class_id;
  return null;
end $$;
create trigger enroll after insert on student
  referencing new table as new_students
  for each statement execute function student_enroll();

create function student_change_class() returns trigger language plpgsql set search_path from current as $$
declare
  v_today date := (now() at time zone coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC'))::date;
begin
  update enrollment e
    set
      ends_on = greatest(v_today, e.starts_on),
      -- A move to a later year completes the year; a move back to an earlier year means the student was never in it.
      status = case
        when c.id is null then 'withdrawn'
        when y.start_date > (select start_date from academic_year where id = e.academic_year_id) then 'completed'
        else 'transferred'
      end
    from new_students n
    join old_students o on o.id = n.id
    left join class c on c.id = n.class_id and n.deleted_at is null
    left join academic_year y on y.id = c.academic_year_id
    where (o.class_id is distinct from n.class_id or o.deleted_at is distinct from n.deleted_at)
      and e.student_id = n.id
      and e.status = 'active'
      and e.class_id is distinct from c.id;
  insert into enrollment (student_id, class_id, academic_year_id, starts_on)
    select n.id, c.id, c.academic_year_id, v_today
    from new_students n
    join old_students o on o.id = n.id
    join class c on c.id = n.class_id
    where (o.class_id is distinct from n.class_id or o.deleted_at is distinct from n.deleted_at)
      and n.deleted_at is null
      and not exists (select from enrollment e where e.student_id = n.id and e.status = 'active');
  return null;
end $$;
create trigger change_class after update on student
  referencing old table as old_students new table as new_students
  for each statement execute function student_change_class();

-- A class does not get more students than its capacity. The class rows are locked before the students are counted: of
-- two concurrent enrollments the second counts the first, and reads the current grade of the class.
create function enrollment_check_capacity() returns trigger language plpgsql set search_path from current as $$
declare
  v_message text;
begin
  if not exists (select from new_enrollments where status = 'active') then
    return null;
  end if;
  perform from class
    where id in (select class_id from new_enrollments where status = 'active')
    order by id
    for no key update;
  select format('The class %s has room for %s students.', concat_ws(' ', c.name, c.section), c.capacity) into v_message
    from class c
    where c.id in (select class_id from new_enrollments where status = 'active')
      and c.capacity is not null
      and c.capacity < (select count(*) from enrollment e where e.class_id = c.id and e.status = 'active')
    limit 1;
  if found then
    raise exception using errcode = 'S409A', message = v_message,
      detail = json_build_array(json_build_object('path', 'class_id', 'message', v_message));
  end if;
  if exists (
    select from new_enrollments n
    join class c on c.id = n.class_id
    join student s on s.id = n.student_id and s.class_id = c.id
    where s.grade_id <> c.grade_id
  ) then
    update student s
      set grade_id = c.grade_id
      from class c
      where c.id = s.class_id and s.id in (select student_id from new_enrollments);
  end if;
  return null;
end $$;
create trigger check_capacity after insert on enrollment
  referencing new table as new_enrollments
  for each statement execute function enrollment_check_capacity();

-- The capacity of a class cannot be less than its number of students. When a class changes grade, its students do too.
create function class_change() returns trigger language plpgsql set search_path from current as $$
declare
  v_students integer;
  v_message text;
begin
  if new.capacity is distinct from old.capacity then
    select count(*) into v_students from enrollment where class_id = new.id and status = 'active';
    if new.capacity < v_students then
      v_message := format('The class has %s students. Its capacity cannot be less.', v_students);
      raise exception using errcode = 'S409A', message = v_message,
        detail = json_build_array(json_build_object('path', 'capacity', 'message', v_message));
    end if;
  end if;
  if new.grade_id <> old.grade_id then
    -- Locks the students in the same order as a promotion does, which avoids deadlocks.
    perform from student where class_id = new.id order by id for no key update;
    update student set grade_id = new.grade_id where class_id = new.id;
  end if;
  return null;
end $$;
create trigger change after update of capacity, grade_id on class
  for each row execute function class_change();

create table student_document (
  id bigserial primary key,
  student_id bigint not null references student (id) on delete restrict,
  file_id bigint not null references file (id) on delete restrict,
  document_type_id bigint references document_type (id) on delete restrict,
  description text,
  uploaded_by bigint references user_account (id) on delete set null,
  uploaded_by_name text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table student_document is 'A document of a student.';
comment on column student_document.uploaded_by_name is
  'A copy of the name of uploaded_by, because teachers and students cannot read other users.';
create index student_document_student_id_idx on student_document (student_id, id);
create index student_document_file_id_idx on student_document (file_id);
create index student_document_document_type_id_idx on student_document (document_type_id);
create index student_document_uploaded_by_idx on student_document (uploaded_by);
-- In the taught scope, api functions find a document through its student, and the policy of student applies.
create policy students_see_themselves on student_document as restrictive
  using (
    nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null
    or student_id = nullif(current_setting('app.student_id', true), '')::bigint
  );
