-- Leaving: a student, a teacher or a driver has left from the day left_on, which may be ahead. It replaces is_active,
-- which stays for the previous release and is now true exactly if left_on is null.

alter table student
  add column left_on date,
  add column leaving_reason text,
  add constraint student_leaving_reason_check
    check (leaving_reason is null or left_on is not null and length(leaving_reason) between 1 and 500) not valid,
  add constraint student_left_on_check check (is_active = (left_on is null)) not valid;
comment on column student.left_on is
  'The first day on which the student no longer attends; null while no such day is known. It may be ahead.';
comment on column student.is_active is
  'Whether left_on is null. A trigger keeps it; only the previous release reads it.';
alter table teacher
  add column left_on date,
  add column leaving_reason text,
  add constraint teacher_leaving_reason_check
    check (leaving_reason is null or left_on is not null and length(leaving_reason) between 1 and 500) not valid,
  add constraint teacher_left_on_check check (is_active = (left_on is null)) not valid;
comment on column teacher.left_on is
  'The first day on which the teacher no longer works here; null while no such day is known. It may be ahead.';
comment on column teacher.is_active is
  'Whether left_on is null. A trigger keeps it; only the previous release reads it.';
alter table driver
  add column left_on date,
  add column leaving_reason text,
  add constraint driver_leaving_reason_check
    check (leaving_reason is null or left_on is not null and length(leaving_reason) between 1 and 500) not valid,
  add constraint driver_left_on_check check (is_active = (left_on is null)) not valid;
comment on column driver.left_on is
  'The first day on which the driver no longer works here; null while no such day is known. It may be ahead.';
comment on column driver.is_active is
  'Whether left_on is null. A trigger keeps it; only the previous release reads it.';

alter table transport_enrollment add column is_ended_by_leaving boolean not null default false;
comment on column transport_enrollment.is_ended_by_leaving is
  'Whether it ends because the student leaves. A student who returns gets this seat back.';

create function school_today() returns date language sql stable
  return (now() at time zone coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC'))::date;
comment on function school_today is 'Today in the time zone of the school, for triggers.';
grant execute on function school_today to school_tenant;

-- The previous release, and inserts of rows, set is_active.
create function person_set_left_on() returns trigger language plpgsql set search_path from current as $$
begin
  if tg_op = 'INSERT' then
    if not new.is_active and new.left_on is null then
      new.left_on := school_today();
    end if;
  elsif new.left_on is not distinct from old.left_on and new.is_active <> old.is_active then
    new.left_on := case when not new.is_active then school_today() end;
  end if;
  new.is_active := new.left_on is null;
  if new.left_on is null then
    new.leaving_reason := null;
  end if;
  return new;
end $$;
comment on function person_set_left_on() is
  'Keeps is_active, left_on and leaving_reason of a person consistent. left_on counts if both change.';

-- The enrollments and the riders of those who are inactive end too, but no school gets webhook messages about it.
alter table student disable trigger user;
alter table teacher disable trigger user;
alter table driver disable trigger user;
alter table enrollment disable trigger user;
alter table transport_enrollment disable trigger user;
-- The day of the last change is a guess.
update student
  set left_on = (updated_at at time zone coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC'))::date
  where not is_active;
update teacher
  set left_on = (updated_at at time zone coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC'))::date
  where not is_active;
update driver
  set left_on = (updated_at at time zone coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC'))::date
  where not is_active;
update enrollment e
  set status = 'withdrawn', ends_on = greatest(s.left_on, e.starts_on)
  from student s
  where s.id = e.student_id and s.left_on is not null and e.status = 'active';
update transport_enrollment e
  set status = 'cancelled', cancelled_at = greatest(s.updated_at, e.created_at), cancel_reason = 'The student left.',
    is_ended_by_leaving = true
  from student s
  where s.id = e.student_id and s.left_on is not null and e.status = 'active';
alter table student enable trigger user;
alter table teacher enable trigger user;
alter table driver enable trigger user;
alter table enrollment enable trigger user;
alter table transport_enrollment enable trigger user;

create trigger set_left_on before insert or update on student
  for each row when (new.is_active <> (new.left_on is null) or new.left_on is null and new.leaving_reason is not null)
  execute function person_set_left_on();
create trigger set_left_on before insert or update on teacher
  for each row when (new.is_active <> (new.left_on is null) or new.left_on is null and new.leaving_reason is not null)
  execute function person_set_left_on();
create trigger set_left_on before insert or update on driver
  for each row when (new.is_active <> (new.left_on is null) or new.left_on is null and new.leaving_reason is not null)
  execute function person_set_left_on();

-- An enrollment covers the days from starts_on until the day before ends_on. The enrollment of a student who will leave
-- is withdrawn already, and ends on the day left_on. So nothing needs to happen when that day comes.
comment on column enrollment.ends_on is
  'The first day that the enrollment no longer covers; of a completed one, the last day that it covers. It is ahead if '
  'left_on of the student is.';

-- @allow replace-function: for students without left_on it does what it did.
create or replace function student_enroll() returns trigger language plpgsql set search_path from current as $$
begin
  insert into enrollment (student_id, class_id, academic_year_id, starts_on, ends_on, status)
    select n.id, c.id, c.academic_year_id, school_today(), n.left_on,
      case when n.left_on is null then 'active' else 'withdrawn' end
    from new_students n
    join class c on c.id = n.class_id
    where coalesce(n.left_on > school_today(), true);
  return null;
end $$;

-- @allow replace-function: for students without left_on it does what it did.
create or replace function student_change_class() returns trigger language plpgsql set search_path from current as $$
declare
  v_today date := school_today();
begin
  update enrollment e
    set
      ends_on = case
        when e.class_id is distinct from c.id then greatest(least(v_today, n.left_on), e.starts_on)
        when n.left_on is not null then greatest(n.left_on, e.starts_on)
      end,
      -- A move to a later year completes the year; a move back to an earlier year means the student was never in it.
      status = case
        when e.class_id = c.id and n.left_on is null then 'active'
        when c.id is null or e.class_id = c.id then 'withdrawn'
        when y.start_date > (select start_date from academic_year where id = e.academic_year_id) then 'completed'
        else 'transferred'
      end
    from new_students n
    join old_students o on o.id = n.id
    left join class c on c.id = n.class_id and n.deleted_at is null
    left join academic_year y on y.id = c.academic_year_id
    where (o.class_id, o.deleted_at, o.left_on) is distinct from (n.class_id, n.deleted_at, n.left_on)
      and e.student_id = n.id
      and (
        coalesce(e.ends_on > greatest(v_today, e.starts_on), true)
          and (e.class_id is distinct from c.id or n.left_on is distinct from o.left_on)
        -- The student left today and returns, or the day on which the student left is corrected.
        or e.class_id = c.id
          and e.status = 'withdrawn'
          and o.left_on is not null
          and e.ends_on = greatest(o.left_on, e.starts_on)
          and n.left_on is distinct from o.left_on
          and (o.left_on = v_today or n.left_on <= v_today)
          and not exists (
            select from enrollment later
            where later.student_id = e.student_id and (later.starts_on, later.id) > (e.starts_on, e.id))
      );
  insert into enrollment (student_id, class_id, academic_year_id, starts_on, ends_on, status)
    select n.id, c.id, c.academic_year_id, v_today, n.left_on,
      case when n.left_on is null then 'active' else 'withdrawn' end
    from new_students n
    join old_students o on o.id = n.id
    join class c on c.id = n.class_id
    where (o.class_id, o.deleted_at, o.left_on) is distinct from (n.class_id, n.deleted_at, n.left_on)
      and n.deleted_at is null
      and coalesce(n.left_on > v_today, true)
      and not exists (
        select from enrollment e
        where e.student_id = n.id and coalesce(e.ends_on > greatest(v_today, e.starts_on), true));
  return null;
end $$;

create function class_require_places(p_class_ids bigint[]) returns void
  language plpgsql set search_path from current as $$
declare
  v_scope text := current_setting('app.scope', true);
  v_message text;
begin
  perform set_config('app.scope', 'all', true);
  perform from class where id = any (p_class_ids) order by id for no key update;
  select format('The class %s has room for %s students.', concat_ws(' ', c.name, c.section), c.capacity) into v_message
    from class c
    where c.id = any (p_class_ids)
      and c.capacity is not null
      and c.capacity < (
        select count(*) from enrollment e
        where e.class_id = c.id and coalesce(e.ends_on > greatest(school_today(), e.starts_on), true))
    limit 1;
  if found then
    raise exception using errcode = 'S409A', message = v_message,
      detail = json_build_array(json_build_object('path', 'class_id', 'message', v_message));
  end if;
  perform set_config('app.scope', coalesce(v_scope, ''), true);
end $$;
comment on function class_require_places is
  'Locks classes, and raises conflict if one of them has more students today than its capacity. Counts all students, '
  'also those that the user does not see.';
grant execute on function class_require_places to school_tenant;

-- @allow replace-function: for students without left_on it does what it did.
create or replace function enrollment_check_capacity() returns trigger
  language plpgsql set search_path from current as $$
declare
  v_scope text := current_setting('app.scope', true);
  v_class_ids bigint[] := array(
    select distinct class_id from new_enrollments where coalesce(ends_on > greatest(school_today(), starts_on), true));
begin
  if v_class_ids = '{}' then
    return null;
  end if;
  perform class_require_places(v_class_ids);
  perform set_config('app.scope', 'all', true);
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
  perform set_config('app.scope', coalesce(v_scope, ''), true);
  return null;
end $$;

create function enrollment_check_resumed() returns trigger language plpgsql set search_path from current as $$
declare
  v_class_ids bigint[] := array(
    select distinct n.class_id
    from new_enrollments n
    join old_enrollments o on o.id = n.id
    where o.ends_on <= school_today() and coalesce(n.ends_on > school_today(), true));
begin
  if v_class_ids <> '{}' then
    perform class_require_places(v_class_ids);
  end if;
  return null;
end $$;
comment on function enrollment_check_resumed() is
  'Checks the capacity of a class to which a student returns on the day of leaving it.';
create trigger check_resumed after update on enrollment
  referencing old table as old_enrollments new table as new_enrollments
  for each statement execute function enrollment_check_resumed();

-- @allow replace-function: for students without left_on it does what it did.
create or replace function class_change() returns trigger language plpgsql set search_path from current as $$
declare
  v_students integer;
  v_message text;
begin
  if new.capacity is distinct from old.capacity then
    select count(*) into v_students
      from enrollment
      where class_id = new.id and coalesce(ends_on > greatest(school_today(), starts_on), true);
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

-- The seat of a student who will leave: it is cancelled already, at the start of the day left_on.
comment on column transport_enrollment.cancelled_at is
  'The moment from which the student no longer rides. It is ahead if left_on of the student is.';
insert into state_transition (entity, action, from_state, to_state) values
  -- The day left_on is taken back or moved before it has come.
  ('transport enrollment', 'resume', 'cancelled', 'active'),
  ('transport enrollment', 'move the end', 'cancelled', 'cancelled');

-- @allow replace-function: for students without left_on it does what it did.
create or replace function transport_require_seats(p_route_ids bigint[], p_path text) returns void
  language plpgsql set search_path from current as $$
declare
  v_message text;
begin
  select format(
      '%s has %s %s, and %s students would ride it %s school.',
      r.name,
      seats.number,
      case seats.number when 1 then 'seat' else 'seats' end,
      greatest(riding.pickup, riding.drop),
      case when riding.pickup >= riding.drop then 'to' else 'from' end
    )
    into v_message
    from route r
    cross join lateral (
      select min(capacity) as number from bus where id in (select b.bus_id from route_buses(r.id) b)
    ) seats
    cross join lateral (
      select
        count(*) filter (where enrollment_type <> 'drop') as pickup,
        count(*) filter (where enrollment_type <> 'pickup') as drop
      from transport_enrollment e
      where e.route_id = r.id and coalesce(e.cancelled_at > clock_timestamp(), true)
    ) riding
    where r.id = any (p_route_ids) and greatest(riding.pickup, riding.drop) > seats.number
    order by r.id
    limit 1;
  if found then
    raise exception using errcode = 'S409A', message = v_message,
      detail = json_build_array(json_build_object('path', p_path, 'message', v_message));
  end if;
end $$;

-- @allow replace-function: for students without left_on it does what it did.
create or replace function transport_enrollment_check_seats() returns trigger
  language plpgsql set search_path from current as $$
declare
  v_route_ids bigint[] := array(
    select distinct route_id from new_enrollments where coalesce(cancelled_at > clock_timestamp(), true));
begin
  perform from route where id = any (v_route_ids) order by id for no key update;
  perform from bus
    where id in (select b.bus_id from unnest(v_route_ids) r (id), route_buses(r.id) b)
    order by id
    for share;
  perform transport_require_seats(v_route_ids, 'route_id');
  return null;
end $$;

-- A trigger compares with the clock, because another request may have ended a seat after this transaction began.
create function student_change_seat() returns trigger language plpgsql set search_path from current as $$
declare
  v_time_zone text := coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC');
begin
  update transport_enrollment
    set status = case when new.left_on is null then 'active' else 'cancelled' end,
      cancelled_at = case
        when new.left_on = school_today() then now()
        when new.left_on is not null then greatest(new.left_on::timestamp at time zone v_time_zone, created_at)
      end,
      cancel_reason = case when new.left_on is not null then 'The student left.' end,
      is_ended_by_leaving = new.left_on is not null
    where student_id = new.id
      and (
        coalesce(cancelled_at > clock_timestamp(), true) and (new.left_on is not null or status = 'cancelled')
        -- The day on which the student left is corrected.
        or is_ended_by_leaving
          and old.left_on <= school_today()
          and new.left_on <= school_today()
          and id = (select max(id) from transport_enrollment where student_id = new.id));
  return null;
end $$;
comment on function student_change_seat() is
  'Ends the transport of a student on the day left_on, or moves its end with that day.';
create trigger change_seat after update on student
  for each row when (new.left_on is distinct from old.left_on)
  execute function student_change_seat();

-- @allow replace-function: for students without left_on it does what it did.
create or replace function student_leave_transport() returns trigger language plpgsql set search_path from current as $$
begin
  update transport_enrollment
    set status = 'cancelled', cancelled_at = now(), cancel_reason = 'The student was removed.'
    where student_id = new.id and coalesce(cancelled_at > clock_timestamp(), true);
  return null;
end $$;
