-- Excused days: a mark that says absent or late can be excused and have a note, and the absence of a student can be
-- announced before.

alter table attendance
  add column is_excused boolean not null default false,
  add column note text,
  add constraint attendance_is_excused_check check (not is_excused or status <> 'present') not valid,
  add constraint attendance_note_check check (length(note) between 1 and 500) not valid;
comment on column attendance.is_excused is 'Whether the school accepts the reason of the absence or lateness.';

alter table attendance_correction
  add column is_excused boolean not null default false,
  add column note text;

alter table attendance_day
  add column excused integer not null default 0;
comment on column attendance_day.excused is 'The absences that are excused. absent counts them too.';

create function attendance_drop_excuse() returns trigger language plpgsql set search_path from current as $$
begin
  new.is_excused := false;
  new.note := null;
  return new;
end $$;
comment on function attendance_drop_excuse() is
  'A student who is present needs no excuse. For the previous release, which changes only the status.';
create trigger drop_excuse before update of status on attendance
  for each row when (new.status = 'present' and new.is_excused)
  execute function attendance_drop_excuse();

-- @allow replace-function: it also keeps whether a mark was excused, and its note.
create or replace function attendance_record_corrections() returns trigger
  language plpgsql set search_path from current as $$
begin
  insert into attendance_correction (
    attendance_id, student_id, class_id, status, is_excused, note, marked_by, marked_by_name, marked_at,
    corrected_by, corrected_by_name, corrected_at
  )
    select
      b.id, b.student_id, b.class_id, b.status, b.is_excused,
      -- A note that is replaced or removed may have been about another student.
      case when a.status <> b.status then b.note end,
      b.marked_by, b.marked_by_name, b.marked_at,
      a.marked_by, a.marked_by_name, a.marked_at
    from before b
    join after a on a.id = b.id
    where (a.status, a.class_id, a.is_excused, a.note) is distinct from (b.status, b.class_id, b.is_excused, b.note)
    order by b.student_id;
  return null;
end $$;

-- As before, and with excused absences.
-- @allow replace-function: it also counts excused absences.
create or replace function attendance_update_totals() returns trigger
  language plpgsql set search_path from current as $$
declare
  v_changes jsonb;
begin
  if tg_op = 'INSERT' then
    select jsonb_agg(c) into v_changes
      from (
        select class_id, date, status, is_excused, count(*) as n from added group by class_id, date, status, is_excused
      ) c;
  elsif tg_op = 'DELETE' then
    select jsonb_agg(c) into v_changes
      from (
        select class_id, date, status, is_excused, -count(*) as n
        from removed
        group by class_id, date, status, is_excused
      ) c;
  else
    select jsonb_agg(c) into v_changes
      from (
        select class_id, date, status, is_excused, sum(n) as n
        from (
          select class_id, date, status, is_excused, 1 as n from added
          union all
          select class_id, date, status, is_excused, -1 from removed
        ) marks
        group by class_id, date, status, is_excused
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
  insert into attendance_day as t (date, class_id, present, absent, late, excused)
    select
      date,
      class_id,
      coalesce(sum(n) filter (where status = 'present'), 0),
      coalesce(sum(n) filter (where status = 'absent'), 0),
      coalesce(sum(n) filter (where status = 'late'), 0),
      coalesce(sum(n) filter (where status = 'absent' and is_excused), 0)
    from jsonb_to_recordset(v_changes) c (class_id bigint, date date, status text, is_excused boolean, n bigint)
    group by class_id, date
    order by class_id, date
    on conflict (date, class_id) do update
      set
        present = t.present + excluded.present,
        absent = t.absent + excluded.absent,
        late = t.late + excluded.late,
        excused = t.excused + excluded.excused;
  return null;
end $$;

create table student_absence (
  id bigserial primary key,
  student_id bigint not null references student (id) on delete restrict,
  from_date date not null,
  to_date date not null,
  reason text not null
    constraint student_absence_reason_check check (length(reason) between 1 and 500),
  announced_by bigint references user_account (id) on delete set null,
  announced_by_name text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint student_absence_days_check check (to_date between from_date and from_date + 365),
  constraint student_absence_from_date_excl exclude using gist (
    student_id with =, daterange(from_date, to_date, '[]') with &&)
);
comment on table student_absence is
  'The days on which a student will be absent, or was, and the reason. Marks nothing: a mark on one of these days that '
  'says absent is excused unless the teacher says otherwise.';
comment on column student_absence.announced_by_name is
  'A copy of the name of announced_by, because teachers and students cannot read other users.';
create index student_absence_student_id_idx on student_absence (student_id, from_date);
create index student_absence_announced_by_idx on student_absence (announced_by);
create index student_absence_from_date_idx on student_absence (from_date, id);
-- A teacher sees the absences of the students that they see: the policy of the table student applies in the subquery.
create policy people_see_themselves_and_their_classes on student_absence as restrictive
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or student_id = (select nullif(current_setting('app.student_id', true), '')::bigint)
    or (
      (select nullif(current_setting('app.scope', true) = 'taught', false)) is not null
      and exists (select from student s where s.id = student_id)
    )
  );
