-- The ids of people in other systems, by which an import finds them again.

create table student_external_id (
  id bigserial primary key,
  student_id bigint not null references student (id) on delete cascade,
  source text not null
    constraint student_external_id_source_check check (length(source) between 1 and 50),
  external_id text not null
    constraint student_external_id_external_id_check check (length(external_id) between 1 and 200),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table student_external_id is 'The id of a student in another system (source), one for each system.';
create unique index student_external_id_student_id_key on student_external_id (student_id, source);
create unique index student_external_id_external_id_key on student_external_id (source, external_id);
create policy students_see_themselves on student_external_id as restrictive
  using (
    (select nullif(current_setting('app.scope', true) in ('all', 'taught'), false)) is not null
    or student_id = nullif(current_setting('app.student_id', true), '')::bigint
  );

create table teacher_external_id (
  id bigserial primary key,
  teacher_id bigint not null references teacher (id) on delete cascade,
  source text not null
    constraint teacher_external_id_source_check check (length(source) between 1 and 50),
  external_id text not null
    constraint teacher_external_id_external_id_check check (length(external_id) between 1 and 200),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table teacher_external_id is 'The id of a teacher in another system (source), one for each system.';
create unique index teacher_external_id_teacher_id_key on teacher_external_id (teacher_id, source);
create unique index teacher_external_id_external_id_key on teacher_external_id (source, external_id);
