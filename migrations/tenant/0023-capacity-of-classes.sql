-- A class could get more students than it has places, by a user who does not see all of its students: a student who
-- changed their own class. Now the trigger counts all students.
-- @allow replace-function: with the earlier release it counts all students too.
create or replace function enrollment_check_capacity() returns trigger
  language plpgsql set search_path from current as $$
declare
  v_scope text := current_setting('app.scope', true);
  v_message text;
begin
  if not exists (select from new_enrollments where status = 'active') then
    return null;
  end if;
  perform set_config('app.scope', 'all', true);
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
  perform set_config('app.scope', coalesce(v_scope, ''), true);
  return null;
end $$;
