-- The people of a school, who may do what, and the classes they are in.
-- Runs with the search_path of one tenant schema. Grants, the isolation policy, forced row security and the trigger that
-- keeps updated_at are laid over every table by core.tenant_secure after each migration. Here stand only the policies that
-- narrow further, by settings that the dispatcher makes: app.scope is 'all', 'taught' (the classes in app.class_ids, «,1,2,», and who
-- is in them) or 'own'. As text, since an array would be parsed anew for every row.

create function touch_updated_at() returns trigger language plpgsql as $$
begin
  new.updated_at := now();
  return new;
end $$;

create table counter (
  name text primary key,
  value bigint not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table counter is 'Running numbers of this school, gap-free: a number that is rolled back is given again.';

create table file (
  id bigserial primary key,
  content bytea not null,
  content_type text not null,
  name text,
  size integer not null generated always as (length(content)) stored,
  digest text not null generated always as (md5(content)) stored,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table file is 'Pictures and documents, with their sniffed type.';
alter table file alter column content set storage external;

create table user_account (
  id bigserial primary key,
  email text not null constraint user_account_email_check check (email = lower(email) and length(email) <= 254),
  password_hash text,
  first_name text not null constraint user_account_first_name_check check (length(first_name) between 1 and 100),
  last_name text not null constraint user_account_last_name_check check (length(last_name) between 1 and 100),
  phone text,
  is_active boolean not null default true,
  email_verified_at timestamptz,
  profile_picture_id bigint references file (id) on delete set null,
  last_login_at timestamptz,
  search_text text not null generated always as (platform.search_normal(first_name || ' ' || last_name || ' ' || email || ' ' || coalesce(phone, ''))) stored,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table user_account is 'Who can log in to this school.';
create unique index user_account_email_key on user_account (email) where deleted_at is null;
create index user_account_name_idx on user_account (platform.search_normal(last_name), platform.search_normal(first_name), id) where deleted_at is null;
create index user_account_search_idx on user_account using gin (search_text public.gin_trgm_ops) with (fastupdate = off) where deleted_at is null;
create index user_account_profile_picture_id_idx on user_account (profile_picture_id);
create policy students_see_themselves on user_account as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null or id = nullif(current_setting('app.user_id', true), '')::bigint);

create table role (
  id bigserial primary key,
  name text not null constraint role_name_check check (length(name) between 1 and 100),
  description text,
  is_system boolean not null default false,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table role is 'A named set of permissions.';
create unique index role_name_key on role (lower(name));

create table role_permission (
  role_id bigint not null references role (id) on delete cascade,
  permission_id integer not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (role_id, permission_id)
);
comment on table role_permission is 'Which permissions of the catalogue (core.permission) a role has. The admin role has all without rows.';

create table user_role (
  user_id bigint not null references user_account (id) on delete cascade,
  role_id bigint not null references role (id) on delete restrict,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (user_id, role_id)
);
comment on table user_role is 'Which roles a user has.';
create index user_role_role_id_idx on user_role (role_id);

create table idempotency_key (
  user_id bigint not null references user_account (id) on delete cascade,
  key text not null constraint idempotency_key_key_check check (length(key) between 1 and 255),
  operation text not null,
  request_hash text not null,
  answer json,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (user_id, key)
);
comment on table idempotency_key is 'The first answer to each Idempotency-Key, kept for 24 hours.';

create table academic_year (
  id bigserial primary key,
  name text not null constraint academic_year_name_check check (length(name) between 1 and 100),
  start_date date not null,
  end_date date not null,
  is_current boolean not null default false,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint academic_year_end_date_check check (end_date > start_date),
  constraint academic_year_start_date_excl exclude using gist (daterange(start_date, end_date, '[]') with &&)
);
comment on table academic_year is 'School years; they do not overlap, and one is current.';
create unique index academic_year_name_key on academic_year (lower(name));
create unique index academic_year_is_current_key on academic_year (is_current) where is_current;

create table grade (
  id bigserial primary key,
  name text not null constraint grade_name_check check (length(name) between 1 and 100),
  sequence integer,
  description text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table grade is 'A level, for example «Grade 5»; sequence orders them.';
create unique index grade_name_key on grade (lower(name));

create table teacher (
  id bigserial primary key,
  user_id bigint references user_account (id) on delete set null,
  first_name text not null constraint teacher_first_name_check check (length(first_name) between 1 and 100),
  last_name text not null constraint teacher_last_name_check check (length(last_name) between 1 and 100),
  email text,
  phone text,
  employee_number text,
  qualification text,
  specialization text,
  joined_on date,
  date_of_birth date,
  gender text,
  address text,
  is_active boolean not null default true,
  search_text text not null generated always as (platform.search_normal(first_name || ' ' || last_name || ' ' || coalesce(email, '') || ' ' || coalesce(employee_number, '') || ' ' || coalesce(phone, ''))) stored,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table teacher is 'A teacher, with or without a log-in.';
create unique index teacher_user_id_key on teacher (user_id);
create unique index teacher_employee_number_key on teacher (employee_number) where deleted_at is null;
create index teacher_name_idx on teacher (platform.search_normal(last_name), platform.search_normal(first_name), id) where deleted_at is null;
create index teacher_search_idx on teacher using gin (search_text public.gin_trgm_ops) with (fastupdate = off) where deleted_at is null;

-- Everybody sees who teaches them; what is private of a teacher is for api functions to keep (core.reaches_teacher).
create policy people_see_teachers on teacher as restrictive
  using (nullif(current_setting('app.scope', true) in ('all', 'taught', 'own'), false) is not null)
  with check (nullif(current_setting('app.scope', true) = 'all', false) is not null or id = nullif(current_setting('app.teacher_id', true), '')::bigint);
create policy people_change_themselves on teacher as restrictive for update
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null or id = nullif(current_setting('app.teacher_id', true), '')::bigint);
create policy people_remove_themselves on teacher as restrictive for delete
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null);

create table class (
  id bigserial primary key,
  name text not null constraint class_name_check check (length(name) between 1 and 100),
  section text,
  grade_id bigint not null references grade (id) on delete restrict,
  academic_year_id bigint not null references academic_year (id) on delete restrict,
  class_teacher_id bigint references teacher (id) on delete set null,
  capacity integer constraint class_capacity_check check (capacity > 0),
  room text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint class_academic_year_key unique (id, academic_year_id)
);
comment on table class is 'A class of one academic year.';
create unique index class_name_key on class (academic_year_id, lower(name), lower(coalesce(section, '')));
-- Partial, so that it is no key to refer to: a new class teacher need not wait for whoever refers to the class.
create unique index class_class_teacher_id_key on class (class_teacher_id, academic_year_id) where class_teacher_id is not null;
create index class_grade_id_idx on class (grade_id);
create index class_class_teacher_id_idx on class (class_teacher_id);
create policy people_see_their_classes on class as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null or strpos(current_setting('app.class_ids', true), ',' || id || ',') > 0);
-- What the rules of a class count is all who are in it: only who reaches all of them may change it.
create policy people_change_classes_they_teach on class as restrictive for update
  using (nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null);

create table student (
  id bigserial primary key,
  user_id bigint references user_account (id) on delete set null,
  admission_number text not null constraint student_admission_number_check check (length(admission_number) between 1 and 50),
  roll_number text,
  first_name text not null constraint student_first_name_check check (length(first_name) between 1 and 100),
  last_name text not null constraint student_last_name_check check (length(last_name) between 1 and 100),
  date_of_birth date,
  gender text,
  email text,
  phone text,
  class_id bigint references class (id) on delete restrict,
  grade_id bigint references grade (id) on delete restrict,
  parent_name text,
  parent_phone text,
  parent_email text,
  address text,
  is_active boolean not null default true,
  search_text text not null generated always as (platform.search_normal(first_name || ' ' || last_name || ' ' || admission_number || ' ' || coalesce(roll_number, '') || ' ' || coalesce(email, '') || ' ' || coalesce(parent_name, ''))) stored,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table student is 'A student; class_id is the class of today, enrollment keeps the history. Deleting sets deleted_at.';
create unique index student_user_id_key on student (user_id);
create unique index student_admission_number_key on student (admission_number) where deleted_at is null;
create index student_name_idx on student (platform.search_normal(last_name), platform.search_normal(first_name), id) where deleted_at is null;
create index student_search_idx on student using gin (search_text public.gin_trgm_ops) with (fastupdate = off) where deleted_at is null;
create index student_class_id_idx on student (class_id);
create index student_grade_id_idx on student (grade_id);
create index student_active_idx on student (id) where is_active and deleted_at is null;
create policy people_see_themselves_and_their_classes on student as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null or id = nullif(current_setting('app.student_id', true), '')::bigint
    or (current_setting('app.scope', true) = 'taught' and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0))
  with check (nullif(current_setting('app.scope', true) = 'all', false) is not null
    or ((id = nullif(current_setting('app.student_id', true), '')::bigint or current_setting('app.scope', true) = 'taught')
      and coalesce(strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0, class_id is null)));

create table enrollment (
  id bigserial primary key,
  student_id bigint not null references student (id) on delete restrict,
  class_id bigint not null,
  academic_year_id bigint not null references academic_year (id) on delete restrict,
  starts_on date not null,
  ends_on date,
  status text not null default 'active' constraint enrollment_status_check check (status in ('active', 'transferred', 'completed', 'withdrawn')),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint enrollment_class_id_fkey foreign key (class_id, academic_year_id) references class (id, academic_year_id) on update restrict on delete restrict,
  constraint enrollment_ends_on_check check (ends_on >= starts_on and (ends_on is null) = (status = 'active'))
);
comment on table enrollment is 'In which class a student was, from when to when: the history that last year''s class list and past attendance rest on.';
create unique index enrollment_active_key on enrollment (student_id) where status = 'active';
create index enrollment_student_id_idx on enrollment (student_id, academic_year_id);
create index enrollment_class_id_idx on enrollment (class_id, academic_year_id, student_id);
create index enrollment_academic_year_id_idx on enrollment (academic_year_id, student_id);
create policy people_see_themselves_and_their_classes on enrollment as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null or student_id = nullif(current_setting('app.student_id', true), '')::bigint
    or (current_setting('app.scope', true) = 'taught' and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0));

-- The grade follows the class.
create function student_follow_class() returns trigger language plpgsql set search_path from current as $$
declare
  v_grade_id bigint;
begin
  if new.class_id is null then
    return new;
  end if;
  select grade_id into v_grade_id from class where id = new.class_id;
  if new.grade_id is null or (tg_op = 'UPDATE' and new.grade_id is not distinct from old.grade_id) then
    new.grade_id := v_grade_id;
  elsif new.grade_id <> v_grade_id and exists (select from grade where id = new.grade_id) then -- an unknown grade is for the foreign key to refuse
    raise exception using errcode = 'check_violation', table = 'student', constraint = 'student_grade_id_check',
      message = 'The class belongs to another grade than grade_id.';
  end if;
  return new;
end $$;
create trigger follow_class before insert or update of class_id, grade_id on student for each row execute function student_follow_class();

-- Every change of class closes one enrollment and opens the next; whole statements at a time, since classes are imported
-- and promoted as a whole.
create function student_enroll() returns trigger language plpgsql set search_path from current as $$
begin
  insert into enrollment (student_id, class_id, academic_year_id, starts_on)
    select n.id, c.id, c.academic_year_id, (now() at time zone coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC'))::date
    from new_students n join class c on c.id = n.class_id;
  return null;
end $$;
create trigger enroll after insert on student referencing new table as new_students for each statement execute function student_enroll();

create function student_move() returns trigger language plpgsql set search_path from current as $$
declare
  v_today date := (now() at time zone coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC'))::date;
begin
  update enrollment e
    set ends_on = greatest(v_today, e.starts_on),
        -- A year is completed by who goes on to a later one; who goes back to an earlier one was never in it.
        status = case when c.id is null then 'withdrawn' when y.start_date > (select start_date from academic_year where id = e.academic_year_id) then 'completed' else 'transferred' end
    from new_students n join old_students o on o.id = n.id
    left join class c on c.id = n.class_id and n.deleted_at is null
    left join academic_year y on y.id = c.academic_year_id
    where (o.class_id is distinct from n.class_id or o.deleted_at is distinct from n.deleted_at)
      and e.student_id = n.id and e.status = 'active' and e.class_id is distinct from c.id;
  insert into enrollment (student_id, class_id, academic_year_id, starts_on)
    select n.id, c.id, c.academic_year_id, v_today
    from new_students n join old_students o on o.id = n.id join class c on c.id = n.class_id
    where (o.class_id is distinct from n.class_id or o.deleted_at is distinct from n.deleted_at) and n.deleted_at is null
      and not exists (select from enrollment e where e.student_id = n.id and e.status = 'active');
  return null;
end $$;
create trigger move after update on student referencing old table as old_students new table as new_students
  for each statement execute function student_move();

-- A class takes no more students than its capacity. Whoever enters a class has its row for themselves before they are
-- counted, so that of two at once the second sees the first, and the grade that the class has now.
create function enrollment_enter() returns trigger language plpgsql set search_path from current as $$
declare
  v_message text;
begin
  if not exists (select from new_enrollments where status = 'active') then
    return null;
  end if;
  perform from class where id in (select class_id from new_enrollments where status = 'active') order by id for no key update;
  select format('The class %s has room for %s students.', concat_ws(' ', c.name, c.section), c.capacity) into v_message
    from class c
    where c.id in (select class_id from new_enrollments where status = 'active') and c.capacity is not null
      and c.capacity < (select count(*) from enrollment e where e.class_id = c.id and e.status = 'active') limit 1;
  if found then
    raise exception using errcode = 'S409A', message = v_message, detail = json_build_array(json_build_object('path', 'class_id', 'message', v_message));
  end if;
  if exists (select from new_enrollments n join class c on c.id = n.class_id join student s on s.id = n.student_id and s.class_id = c.id where s.grade_id <> c.grade_id) then
    update student s set grade_id = c.grade_id from class c where c.id = s.class_id and s.id in (select student_id from new_enrollments);
  end if;
  return null;
end $$;
create trigger enter after insert on enrollment referencing new table as new_enrollments for each statement execute function enrollment_enter();

-- The capacity of a class is no less than who is in it, and its students follow it into another grade.
create function class_change() returns trigger language plpgsql set search_path from current as $$
declare
  v_students integer;
  v_message text;
begin
  if new.capacity is distinct from old.capacity then
    select count(*) into v_students from enrollment where class_id = new.id and status = 'active';
    if new.capacity < v_students then
      v_message := format('%s students are in this class.', v_students);
      raise exception using errcode = 'S409A', message = v_message, detail = json_build_array(json_build_object('path', 'capacity', 'message', v_message));
    end if;
  end if;
  if new.grade_id <> old.grade_id then
    -- In the order in which a promotion takes them.
    perform from student where class_id = new.id order by id for no key update;
    update student set grade_id = new.grade_id where class_id = new.id;
  end if;
  return null;
end $$;
create trigger change after update of capacity, grade_id on class for each row execute function class_change();
