-- The school itself: its particulars, master data, terms, subjects, who teaches what, leaves, documents.

-- State machines: a trigger `enforce_transition(<entity>)` on a status column allows the steps of this table and no other.
create table state_transition (
  entity text not null,
  action text not null,
  from_state text not null,
  to_state text not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (entity, action, from_state, to_state)
);
comment on table state_transition is e'The steps that a status column may take, and what takes them.\n@grants select';

create function enforce_transition() returns trigger language plpgsql set search_path from current as $$
begin
  if not exists (
    select from state_transition
    where entity = tg_argv[0] and from_state = old.status and to_state = new.status
  ) then
    raise exception using errcode = 'S409C', message = format('A %s cannot go from %s to %s.', tg_argv[0], old.status, new.status);
  end if;
  return new;
end $$;

create table school (
  id boolean primary key default true constraint school_id_check check (id),
  address text,
  phone text,
  email text,
  website text,
  logo_id bigint references file (id) on delete set null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table school is 'What the school says of itself; one row, there once the setup has asked for it. Its name stands in platform.tenant.';
create index school_logo_id_idx on school (logo_id);

-- Master data: lists that each school keeps, all alike.
do $$
declare
  v_table text;
  v_comments jsonb := '{
    "school_unit": "A part of the school, for example «Primary», with classes of its own.",
    "programme": "A course of studies, for example «Science».",
    "medium": "A language that classes are taught in.",
    "religion": "A religion that students have.",
    "subject_context": "What kind of subject it is, for example «Core» or «Elective».",
    "document_type": "What a document of a student is, for example «Birth certificate»."
  }';
begin
  for v_table in select jsonb_object_keys(v_comments) loop
    execute format($sql$
      create table %1$I (
        id bigserial primary key,
        name text not null constraint %2$I check (length(name) between 1 and 100),
        sequence integer,
        description text,
        created_at timestamptz not null default now(),
        updated_at timestamptz not null default now()
      );
      comment on table %1$I is %4$L;
      create unique index %3$I on %1$I (lower(name));
    $sql$, v_table, v_table || '_name_check', v_table || '_name_key', v_comments ->> v_table);
  end loop;
end $$;
insert into document_type (name, sequence) values
  ('Birth certificate', 1), ('Transfer certificate', 2), ('Report card', 3), ('Identity document', 4), ('Medical record', 5), ('Other', 6);

alter table class
  add school_unit_id bigint references school_unit (id) on delete restrict,
  add programme_id bigint references programme (id) on delete restrict,
  add medium_id bigint references medium (id) on delete restrict;
create index class_school_unit_id_idx on class (school_unit_id);
create index class_programme_id_idx on class (programme_id);
create index class_medium_id_idx on class (medium_id);
alter table student add religion_id bigint references religion (id) on delete restrict;
create index student_religion_id_idx on student (religion_id);

create table term (
  id bigserial primary key,
  name text not null constraint term_name_check check (length(name) between 1 and 100),
  academic_year_id bigint not null references academic_year (id) on delete restrict,
  start_date date not null,
  end_date date not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint term_end_date_check check (end_date > start_date),
  constraint term_start_date_excl exclude using gist (academic_year_id with =, daterange(start_date, end_date, '[]') with &&)
);
comment on table term is 'A part of an academic year; the terms of a year do not overlap.';
create unique index term_name_key on term (academic_year_id, lower(name));

-- Terms lie inside their year, whichever of the two changes.
create function term_inside_year() returns trigger language plpgsql set search_path from current as $$
begin
  -- The lock makes a change of the year and one of its terms take turns.
  perform from academic_year where id = new.academic_year_id for share;
  if exists (select from academic_year y where y.id = new.academic_year_id and (new.start_date < y.start_date or new.end_date > y.end_date)) then
    raise exception using errcode = 'check_violation', table = 'term', constraint = case
        when new.start_date < (select start_date from academic_year where id = new.academic_year_id) then 'term_start_date_check' else 'term_end_date_check' end,
      message = 'The term must lie inside its academic year.';
  end if;
  return new;
end $$;
create trigger inside_year before insert or update of academic_year_id, start_date, end_date on term for each row execute function term_inside_year();

create function academic_year_around_terms() returns trigger language plpgsql set search_path from current as $$
begin
  if exists (select from term t where t.academic_year_id = new.id and (t.start_date < new.start_date or t.end_date > new.end_date)) then
    raise exception using errcode = 'check_violation', table = 'academic_year', constraint = case
        when exists (select from term t where t.academic_year_id = new.id and t.start_date < new.start_date) then 'academic_year_start_date_check' else 'academic_year_end_date_check' end,
      message = 'A term of this academic year lies outside these dates.';
  end if;
  return new;
end $$;
create trigger around_terms before update of start_date, end_date on academic_year for each row execute function academic_year_around_terms();

create table subject (
  id bigserial primary key,
  name text not null constraint subject_name_check check (length(name) between 1 and 100),
  code text not null constraint subject_code_check check (length(code) between 1 and 50),
  subject_context_id bigint references subject_context (id) on delete restrict,
  description text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table subject is 'What is taught.';
create unique index subject_code_key on subject (lower(code));
create index subject_subject_context_id_idx on subject (subject_context_id);

create table grade_subject (
  grade_id bigint not null references grade (id) on delete cascade,
  subject_id bigint not null references subject (id) on delete cascade,
  periods_per_week integer not null constraint grade_subject_periods_per_week_check check (periods_per_week between 1 and 60),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (grade_id, subject_id)
);
comment on table grade_subject is 'The standard template: which subjects a class of this grade has, and how often a week.';
create index grade_subject_subject_id_idx on grade_subject (subject_id);

create table class_subject (
  id bigserial primary key,
  class_id bigint not null references class (id) on delete cascade,
  subject_id bigint not null references subject (id) on delete restrict,
  teacher_id bigint references teacher (id) on delete set null,
  periods_per_week integer not null constraint class_subject_periods_per_week_check check (periods_per_week between 1 and 60),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table class_subject is 'A subject that a class has, how often a week, and who teaches it.';
create unique index class_subject_subject_key on class_subject (class_id, subject_id);
create index class_subject_subject_id_idx on class_subject (subject_id);
create index class_subject_teacher_id_idx on class_subject (teacher_id, class_id);

create table teaching_assignment (
  id bigserial primary key,
  class_id bigint not null references class (id) on delete cascade,
  teacher_id bigint not null references teacher (id) on delete restrict,
  subject text constraint teaching_assignment_subject_check check (length(subject) between 1 and 100),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table teaching_assignment is 'A teacher of a class, with what they teach there in words. The class teacher is class.class_teacher_id; teachers of class subjects stand there.';
create unique index teaching_assignment_key on teaching_assignment (class_id, teacher_id, lower(coalesce(subject, '')));
create index teaching_assignment_teacher_id_idx on teaching_assignment (teacher_id, class_id);

alter table teacher
  add max_periods_per_day integer,
  add max_periods_per_week integer constraint teacher_max_periods_per_week_check check (max_periods_per_week between 1 and 168),
  add constraint teacher_max_periods_per_day_check check (max_periods_per_day between 1 and least(24, max_periods_per_week));
comment on column teacher.max_periods_per_day is 'The workload rule of the teacher; null is no limit.';

create table teacher_availability (
  teacher_id bigint not null references teacher (id) on delete cascade,
  day_of_week integer not null constraint teacher_availability_day_of_week_check check (day_of_week between 1 and 7),
  period integer not null constraint teacher_availability_period_check check (period between 1 and 24),
  is_available boolean not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (teacher_id, day_of_week, period)
);
comment on table teacher_availability is 'When a teacher can be given a period; 1 is Monday. What is not named is available.';
create policy teachers_see_themselves on teacher_availability as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null or teacher_id = nullif(current_setting('app.teacher_id', true), '')::bigint);

create table teacher_leave (
  id bigserial primary key,
  teacher_id bigint not null references teacher (id) on delete restrict,
  leave_type text not null constraint teacher_leave_leave_type_check check (length(leave_type) between 1 and 50),
  start_date date not null,
  end_date date not null,
  reason text,
  status text not null default 'pending' constraint teacher_leave_status_check check (status in ('pending', 'approved', 'rejected')),
  decided_by bigint references user_account (id) on delete set null,
  decided_by_name text,
  decided_at timestamptz,
  decision_note text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint teacher_leave_end_date_check check (end_date >= start_date),
  constraint teacher_leave_decided_at_check check ((decided_at is null) = (status = 'pending')),
  constraint teacher_leave_overlap_excl exclude using gist (teacher_id with =, daterange(start_date, end_date, '[]') with &&) where (status = 'approved')
);
comment on table teacher_leave is 'Days on which a teacher is away: asked for, then approved or rejected.';
comment on column teacher_leave.decided_by_name is 'Kept beside decided_by, since a teacher sees no other user.';
create index teacher_leave_teacher_id_idx on teacher_leave (teacher_id, start_date, id);
create index teacher_leave_start_date_idx on teacher_leave (start_date, id);
create index teacher_leave_decided_by_idx on teacher_leave (decided_by);
create index teacher_leave_pending_idx on teacher_leave (id) where status = 'pending';
create policy teachers_see_themselves on teacher_leave as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null or teacher_id = nullif(current_setting('app.teacher_id', true), '')::bigint);
insert into state_transition (entity, action, from_state, to_state) values
  ('leave', 'approve', 'pending', 'approved'),
  ('leave', 'reject', 'pending', 'rejected');
create trigger transition before update of status on teacher_leave for each row execute function enforce_transition('leave');

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
comment on column student_document.uploaded_by_name is 'Kept beside uploaded_by, since teachers and students see no other user.';
create index student_document_student_id_idx on student_document (student_id, id);
create index student_document_file_id_idx on student_document (file_id);
create index student_document_document_type_id_idx on student_document (document_type_id);
create index student_document_uploaded_by_idx on student_document (uploaded_by);
-- Who reaches only the classes they teach comes to a document through its student, whose policy narrows to those.
create policy students_see_themselves on student_document as restrictive
  using (nullif(current_setting('app.scope', true) in ('all', 'taught'), false) is not null or student_id = nullif(current_setting('app.student_id', true), '')::bigint);
