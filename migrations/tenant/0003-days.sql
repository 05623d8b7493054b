-- The school day: when periods are, who teaches what when, holidays, attendance.

create table timetable_config (
  id boolean primary key default true constraint timetable_config_id_check check (id),
  total_periods integer not null default 8 constraint timetable_config_total_periods_check check (total_periods between 1 and 24),
  lunch_start_period integer constraint timetable_config_lunch_start_period_check check (lunch_start_period between 1 and total_periods),
  lunch_periods integer not null default 1 constraint timetable_config_lunch_periods_check check (lunch_periods between 1 and 4),
  period_duration integer not null default 45 constraint timetable_config_period_duration_check check (period_duration between 5 and 240),
  start_time time not null default '08:00',
  break_after integer[] not null default '{}',
  working_days integer[] not null default '{1,2,3,4,5}'
    constraint timetable_config_working_days_check check (cardinality(working_days) between 1 and 7 and working_days <@ '{1,2,3,4,5,6,7}'),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table timetable_config is 'The shape of a school day and week, one row; durations in minutes, day 1 is Monday.';
insert into timetable_config default values;

create table timetable_slot (
  id bigserial primary key,
  class_id bigint not null,
  academic_year_id bigint not null,
  subject_id bigint not null references subject (id) on delete restrict,
  teacher_id bigint references teacher (id) on delete restrict,
  day_of_week integer not null constraint timetable_slot_day_of_week_check check (day_of_week between 1 and 7),
  period integer not null constraint timetable_slot_period_check check (period between 1 and 24),
  room text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint timetable_slot_class_id_fkey foreign key (class_id, academic_year_id) references class (id, academic_year_id) on update cascade on delete cascade,
  constraint timetable_slot_class_key unique (class_id, academic_year_id, day_of_week, period),
  constraint timetable_slot_teacher_key unique (teacher_id, academic_year_id, day_of_week, period)
);
comment on table timetable_slot is 'Who teaches what to a class in a period of the week, in the academic year of the class.';
create index timetable_slot_subject_id_idx on timetable_slot (subject_id);

create table holiday (
  id bigserial primary key,
  name text not null constraint holiday_name_check check (length(name) between 1 and 100),
  date date not null,
  is_recurring boolean not null default false,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table holiday is 'A day without school; a recurring one comes every year on the same day.';
create index holiday_date_idx on holiday (date);

create table attendance (
  id bigserial primary key,
  student_id bigint not null references student (id) on delete restrict,
  class_id bigint not null references class (id) on delete restrict,
  date date not null,
  status text not null constraint attendance_status_check check (status in ('present', 'absent', 'late')),
  marked_by bigint references user_account (id) on delete set null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table attendance is 'Who was there on which day, in the class of that day.';
create unique index attendance_date_key on attendance (student_id, date);
create index attendance_class_id_idx on attendance (class_id, date);
create index attendance_date_idx on attendance (date);
create index attendance_marked_by_idx on attendance (marked_by);
create policy people_see_themselves_and_their_classes on attendance as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null or student_id = nullif(current_setting('app.student_id', true), '')::bigint
    or (current_setting('app.scope', true) = 'taught' and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0));

create table attendance_total (
  class_id bigint primary key references class (id) on delete cascade,
  marks bigint not null,
  attended bigint not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table attendance_total is 'How many marks a class has, and how many of them say present or late. Kept by triggers, since a year of a large school has millions of marks.';
create policy people_see_their_classes on attendance_total as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null
    or (current_setting('app.scope', true) = 'taught' and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0));

-- Adds (1) or takes away (-1) the marks of a statement, class by class.
create function attendance_count() returns trigger language plpgsql set search_path from current as $$
begin
  insert into attendance_total as t (class_id, marks, attended)
    select class_id, tg_argv[0]::integer * count(*), tg_argv[0]::integer * count(*) filter (where status <> 'absent') from counted group by class_id order by class_id
    on conflict (class_id) do update set marks = t.marks + excluded.marks, attended = t.attended + excluded.attended;
  return null;
end $$;
create trigger count_added after insert on attendance referencing new table as counted for each statement execute function attendance_count('1');
create trigger count_removed after delete on attendance referencing old table as counted for each statement execute function attendance_count('-1');
create trigger count_before after update on attendance referencing old table as counted for each statement execute function attendance_count('-1');
create trigger count_after after update on attendance referencing new table as counted for each statement execute function attendance_count('1');
