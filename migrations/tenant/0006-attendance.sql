-- Attendance: marks, corrections and totals.

create table attendance (
  id bigserial primary key,
  student_id bigint not null references student (id) on delete restrict,
  class_id bigint not null references class (id) on delete restrict,
  date date not null,
  status text not null
    constraint attendance_status_check check (status in ('present', 'absent', 'late')),
  marked_by bigint references user_account (id) on delete set null,
  marked_by_name text,
  marked_at timestamptz not null default now(),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table attendance is
  'A mark: whether a student attended on a day. class_id is the class of the student on that day.';
comment on column attendance.marked_by_name is
  'A copy of the name of marked_by, because teachers and students cannot read other users.';
create unique index attendance_date_key on attendance (student_id, date);
create index attendance_class_id_idx on attendance (class_id, date);
create index attendance_date_idx on attendance (date);
create index attendance_marked_by_idx on attendance (marked_by);
create policy people_see_themselves_and_their_classes on attendance as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or student_id = nullif(current_setting('app.student_id', true), '')::bigint
    or (
      current_setting('app.scope', true) = 'taught'
      and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0
    )
  );

create table attendance_correction (
  id bigserial primary key,
  attendance_id bigint not null references attendance (id) on delete restrict,
  student_id bigint not null references student (id) on delete restrict,
  class_id bigint not null references class (id) on delete restrict,
  status text not null
    constraint attendance_correction_status_check check (status in ('present', 'absent', 'late')),
  marked_by bigint references user_account (id) on delete set null,
  marked_by_name text,
  marked_at timestamptz not null,
  corrected_by bigint references user_account (id) on delete set null,
  corrected_by_name text,
  corrected_at timestamptz not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table attendance_correction is
  e'The previous values of a mark that was corrected, and who corrected it. Written by a trigger of attendance.'
  '\n@grants select, insert';
create index attendance_correction_attendance_id_idx on attendance_correction (attendance_id, id);
create index attendance_correction_student_id_idx on attendance_correction (student_id);
create index attendance_correction_class_id_idx on attendance_correction (class_id);
create index attendance_correction_marked_by_idx on attendance_correction (marked_by);
create index attendance_correction_corrected_by_idx on attendance_correction (corrected_by);
create policy people_see_themselves_and_their_classes on attendance_correction as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or student_id = nullif(current_setting('app.student_id', true), '')::bigint
    or (
      current_setting('app.scope', true) = 'taught'
      and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0
    )
  );

create function attendance_record_corrections() returns trigger language plpgsql set search_path from current as $$
begin
  insert into attendance_correction (
    attendance_id, student_id, class_id, status, marked_by, marked_by_name, marked_at,
    corrected_by, corrected_by_name, corrected_at
  )
    select
      b.id, b.student_id, b.class_id, b.status, b.marked_by, b.marked_by_name, b.marked_at,
      a.marked_by, a.marked_by_name, a.marked_at
    from before b
    join after a on a.id = b.id
    where (a.status, a.class_id) is distinct from (b.status, b.class_id)
    order by b.student_id;
  return null;
end $$;
create trigger record_corrections after update on attendance
  referencing old table as before new table as after
  for each statement execute function attendance_record_corrections();

create table attendance_total (
  class_id bigint primary key references class (id) on delete cascade,
  marks bigint not null,
  attended bigint not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table attendance_total is
  'The number of marks of a class, and how many of them are present or late. Kept by triggers: counting is too '
  'slow, a large school has millions of marks a year.';
create policy people_see_their_classes on attendance_total as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or (
      current_setting('app.scope', true) = 'taught'
      and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0
    )
  );

create table attendance_day (
  date date not null,
  class_id bigint not null references class (id) on delete cascade,
  present integer not null,
  absent integer not null,
  late integer not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (date, class_id)
);
comment on table attendance_day is
  'The number of marks of a class by day and status. Kept by the same triggers as attendance_total.';
create index attendance_day_class_id_idx on attendance_day (class_id, date);
create policy people_see_their_classes on attendance_day as restrictive
  using (
    nullif(current_setting('app.scope', true) = 'all', false) is not null
    or (
      current_setting('app.scope', true) = 'taught'
      and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0
    )
  );

-- Adds the marks of a statement to the totals, and subtracts those that it removed. An update does both in one pass,
-- and locks totals in order of class, then the days: concurrent statements wait for each other and cannot deadlock.
create function attendance_update_totals() returns trigger language plpgsql set search_path from current as $$
declare
  v_changes jsonb;
begin
  if tg_op = 'INSERT' then
    select jsonb_agg(c) into v_changes
      from (select class_id, date, status, count(*) as n from added group by class_id, date, status) c;
  elsif tg_op = 'DELETE' then
    select jsonb_agg(c) into v_changes
      from (select class_id, date, status, -count(*) as n from removed group by class_id, date, status) c;
  else
    select jsonb_agg(c) into v_changes
      from (
        select class_id, date, status, sum(n) as n
        from (
          select class_id, date, status, 1 as n from added
          union all
          select class_id, date, status, -1 from removed
        ) marks
        group by class_id, date, status
        having sum(n) <> 0
      ) c;
  end if;
  if v_changes is null then
    return null;
  end if;
  insert into attendance_total as t (class_id, marks, attended)
    select class_id, sum(n), coalesce(sum(n) filter (where status <> 'absent'), 0)
    from jsonb_to_recordset(v_changes) c (class_id bigint, status text, n bigint)
    group by class_id
    order by class_id
    on conflict (class_id) do update
      set marks = t.marks + excluded.marks, attended = t.attended + excluded.attended;
  insert into attendance_day as t (date, class_id, present, absent, late)
    select
      date,
      class_id,
      coalesce(sum(n) filter (where status = 'present'), 0),
      coalesce(sum(n) filter (where status = 'absent'), 0),
      coalesce(sum(n) filter (where status = 'late'), 0)
    from jsonb_to_recordset(v_changes) c (class_id bigint, date date, status text, n bigint)
    group by class_id, date
    order by class_id, date
    on conflict (date, class_id) do update
      set
        present = t.present + excluded.present,
        absent = t.absent + excluded.absent,
        late = t.late + excluded.late;
  return null;
end $$;
create trigger update_totals_of_insert after insert on attendance
  referencing new table as added
  for each statement execute function attendance_update_totals();
create trigger update_totals_of_update after update on attendance
  referencing old table as removed new table as added
  for each statement execute function attendance_update_totals();
create trigger update_totals_of_delete after delete on attendance
  referencing old table as removed
  for each statement execute function attendance_update_totals();
