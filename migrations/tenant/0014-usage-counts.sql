-- Counts the active students, active teachers and classes of the school by triggers. Until now, each change of one of
-- them counted them all.

create table school_usage (
  id boolean primary key default true
    constraint school_usage_id_check check (id),
  students integer not null,
  teachers integer not null,
  classes integer not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table school_usage is
  'The numbers of active students, active teachers and classes: one row, kept by triggers. core.enforce_plan_limits '
  'compares it with the plan.
@grants select, update';
insert into school_usage (students, teachers, classes)
  select
    (select count(*) from student where is_active and deleted_at is null),
    (select count(*) from teacher where is_active and deleted_at is null),
    (select count(*) from class);

create function count_usage() returns trigger language plpgsql set search_path from current as $$
declare
  v_change integer := 0;
begin
  if tg_table_name = 'class' then
    if tg_op = 'INSERT' then
      v_change := (select count(*) from added);
    else
      v_change := -(select count(*) from removed);
    end if;
  else
    if tg_op <> 'DELETE' then
      v_change := (select count(*) from added where is_active and deleted_at is null);
    end if;
    if tg_op <> 'INSERT' then
      v_change := v_change - (select count(*) from removed where is_active and deleted_at is null);
    end if;
  end if;
  if v_change <> 0 then
    update school_usage set
      students = students + case tg_table_name when 'student' then v_change else 0 end,
      teachers = teachers + case tg_table_name when 'teacher' then v_change else 0 end,
      classes = classes + case tg_table_name when 'class' then v_change else 0 end;
  end if;
  return null;
end $$;
comment on function count_usage() is 'Adds the rows that a statement added or removed to school_usage.';

create trigger count_added after insert on student
  referencing new table as added
  for each statement execute function count_usage();
create trigger count_changed after update on student
  referencing old table as removed new table as added
  for each statement execute function count_usage();
create trigger count_removed after delete on student
  referencing old table as removed
  for each statement execute function count_usage();

create trigger count_added after insert on teacher
  referencing new table as added
  for each statement execute function count_usage();
create trigger count_changed after update on teacher
  referencing old table as removed new table as added
  for each statement execute function count_usage();
create trigger count_removed after delete on teacher
  referencing old table as removed
  for each statement execute function count_usage();

create trigger count_added after insert on class
  referencing new table as added
  for each statement execute function count_usage();
create trigger count_removed after delete on class
  referencing old table as removed
  for each statement execute function count_usage();
