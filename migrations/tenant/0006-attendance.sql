-- Attendance as it is marked: who marked and when, what was corrected, totals of each day; a holiday stands once.

-- A day has a holiday of a name once.
delete from holiday h using holiday o where lower(o.name) = lower(h.name) and o.date = h.date and o.id < h.id;
create unique index holiday_name_key on holiday (lower(name), date);

-- Years that are there stay as they are until they are changed.
alter table academic_year add constraint academic_year_length_check check (end_date < start_date + interval '2 years') not valid;

alter table attendance
  add marked_by_name text,
  add marked_at timestamptz not null default now();
comment on column attendance.marked_by_name is 'Kept beside marked_by, since teachers and students see no other user.';
-- Marks that are there were made when they last changed; saying so is no change of them. The table is written anew: an update
-- of a million rows takes twice as long and leaves as many dead ones.
create function attendance_marker(bigint) returns text language sql stable set search_path from current as
  'select first_name || '' '' || last_name from user_account where id = $1';
alter table attendance
  alter marked_at type timestamptz using updated_at,
  alter marked_by_name type text using attendance_marker(marked_by);
drop function attendance_marker(bigint);

create table attendance_correction (
  id bigserial primary key,
  attendance_id bigint not null references attendance (id) on delete restrict,
  student_id bigint not null references student (id) on delete restrict,
  class_id bigint not null references class (id) on delete restrict,
  status text not null constraint attendance_correction_status_check check (status in ('present', 'absent', 'late')),
  marked_by bigint references user_account (id) on delete set null,
  marked_by_name text,
  marked_at timestamptz not null,
  corrected_by bigint references user_account (id) on delete set null,
  corrected_by_name text,
  corrected_at timestamptz not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table attendance_correction is e'What a mark was before it was corrected, and who corrected it. Written by a trigger of attendance.\n@grants select, insert';
create index attendance_correction_attendance_id_idx on attendance_correction (attendance_id, id);
create index attendance_correction_student_id_idx on attendance_correction (student_id);
create index attendance_correction_class_id_idx on attendance_correction (class_id);
create index attendance_correction_marked_by_idx on attendance_correction (marked_by);
create index attendance_correction_corrected_by_idx on attendance_correction (corrected_by);
create policy people_see_themselves_and_their_classes on attendance_correction as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null or student_id = nullif(current_setting('app.student_id', true), '')::bigint
    or (current_setting('app.scope', true) = 'taught' and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0));

create function attendance_correct() returns trigger language plpgsql set search_path from current as $$
begin
  insert into attendance_correction (attendance_id, student_id, class_id, status, marked_by, marked_by_name, marked_at, corrected_by, corrected_by_name, corrected_at)
    select b.id, b.student_id, b.class_id, b.status, b.marked_by, b.marked_by_name, b.marked_at, a.marked_by, a.marked_by_name, a.marked_at
    from before b join after a on a.id = b.id where (a.status, a.class_id) is distinct from (b.status, b.class_id) order by b.student_id;
  return null;
end $$;
create trigger correct after update on attendance referencing old table as before new table as after for each statement execute function attendance_correct();

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
comment on table attendance_day is 'How many marks of a class say what, day by day. Kept by triggers, as attendance_total is.';
create index attendance_day_class_id_idx on attendance_day (class_id, date);
create policy people_see_their_classes on attendance_day as restrictive
  using (nullif(current_setting('app.scope', true) = 'all', false) is not null
    or (current_setting('app.scope', true) = 'taught' and strpos(current_setting('app.class_ids', true), ',' || class_id || ',') > 0));
insert into attendance_day (date, class_id, present, absent, late)
  select date, class_id, count(*) filter (where status = 'present'), count(*) filter (where status = 'absent'), count(*) filter (where status = 'late')
  from attendance group by date, class_id;

-- Adds up what a statement did to the marks: added ones once, removed ones once less. A correction is both at a time, so
-- that whoever corrects takes the totals of all the classes concerned in one order, and the day of a class after its total:
-- of two at once one waits, and none for the other.
create or replace function attendance_count() returns trigger language plpgsql set search_path from current as $$
declare
  v_counted jsonb;
begin
  if tg_op = 'INSERT' then
    select jsonb_agg(c) into v_counted from (
      select class_id, date, status, count(*) as n from added group by class_id, date, status) c;
  elsif tg_op = 'DELETE' then
    select jsonb_agg(c) into v_counted from (
      select class_id, date, status, -count(*) as n from removed group by class_id, date, status) c;
  else
    select jsonb_agg(c) into v_counted from (
      select class_id, date, status, sum(n) as n
      from (select class_id, date, status, 1 as n from added union all select class_id, date, status, -1 from removed) marks
      group by class_id, date, status having sum(n) <> 0) c;
  end if;
  if v_counted is null then
    return null;
  end if;
  insert into attendance_total as t (class_id, marks, attended)
    select class_id, sum(n), coalesce(sum(n) filter (where status <> 'absent'), 0)
    from jsonb_to_recordset(v_counted) c (class_id bigint, status text, n bigint) group by class_id order by class_id
    on conflict (class_id) do update set marks = t.marks + excluded.marks, attended = t.attended + excluded.attended;
  insert into attendance_day as t (date, class_id, present, absent, late)
    select date, class_id, coalesce(sum(n) filter (where status = 'present'), 0), coalesce(sum(n) filter (where status = 'absent'), 0), coalesce(sum(n) filter (where status = 'late'), 0)
    from jsonb_to_recordset(v_counted) c (class_id bigint, date date, status text, n bigint) group by class_id, date order by class_id, date
    on conflict (date, class_id) do update set present = t.present + excluded.present, absent = t.absent + excluded.absent, late = t.late + excluded.late;
  return null;
end $$;
drop trigger count_added on attendance;
drop trigger count_removed on attendance;
drop trigger count_before on attendance;
drop trigger count_after on attendance;
create trigger count_added after insert on attendance referencing new table as added for each statement execute function attendance_count();
create trigger count_removed after delete on attendance referencing old table as removed for each statement execute function attendance_count();
create trigger count_changed after update on attendance referencing old table as removed new table as added for each statement execute function attendance_count();
