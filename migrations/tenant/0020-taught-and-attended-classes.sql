-- A teacher who is also a student could read the records of their classmates, because app.class_ids contained the
-- classes that they teach and those that they attend. In the scope taught it now contains only the classes that they
-- teach. The classes that a user attends or attended are in app.attended_class_ids, in the same form: the user sees
-- their names and timetables, but no other students.

create function scope_class_ids() returns bigint[] language sql stable parallel safe
  return string_to_array(btrim(current_setting('app.class_ids', true), ','), ',')::bigint[];
comment on function scope_class_ids is
  'The classes of the scope. taught: those that the user teaches; own: those that they teach, attend or attended.';

create function taught_class_ids() returns bigint[] language sql stable parallel safe
  return case current_setting('app.scope', true) when 'taught' then scope_class_ids() end;
comment on function taught_class_ids is
  'The classes whose students the user sees because they teach them. Null in another scope than taught.';

create function visible_class_ids() returns bigint[] language sql stable parallel safe
  return scope_class_ids()
    || string_to_array(btrim(current_setting('app.attended_class_ids', true), ','), ',')::bigint[];
comment on function visible_class_ids is
  'The classes that a user sees who does not see the whole school: those that they teach, attend or attended.';

grant execute on function scope_class_ids, taught_class_ids, visible_class_ids to school_tenant;

-- The settings are read once for each statement, in a subquery, and not for each row. So they can be arrays.
alter policy people_see_their_classes on class
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or id = any ((select visible_class_ids())::bigint[])
  );
alter policy people_change_classes_they_teach on class
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or id = any ((select taught_class_ids())::bigint[])
  );
create policy people_delete_classes_they_teach on class as restrictive for delete
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or id = any ((select taught_class_ids())::bigint[])
  );

alter policy people_see_themselves_and_their_classes on student
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or id = (select nullif(current_setting('app.student_id', true), '')::bigint)
    or class_id = any ((select taught_class_ids())::bigint[])
  )
  with check (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or class_id = any ((select taught_class_ids())::bigint[])
    or (class_id is null and current_setting('app.scope', true) = 'taught')
    or (
      id = (select nullif(current_setting('app.student_id', true), '')::bigint)
      and (class_id is null or class_id = any ((select visible_class_ids())::bigint[]))
    )
  );

alter policy people_see_themselves_and_their_classes on enrollment
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or student_id = (select nullif(current_setting('app.student_id', true), '')::bigint)
    or class_id = any ((select taught_class_ids())::bigint[])
  );

alter policy people_see_themselves_and_their_classes on attendance
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or student_id = (select nullif(current_setting('app.student_id', true), '')::bigint)
    or class_id = any ((select taught_class_ids())::bigint[])
  );

alter policy people_see_themselves_and_their_classes on attendance_correction
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or student_id = (select nullif(current_setting('app.student_id', true), '')::bigint)
    or class_id = any ((select taught_class_ids())::bigint[])
  );

alter policy people_see_their_classes on attendance_total
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or class_id = any ((select taught_class_ids())::bigint[])
  );

alter policy people_see_their_classes on attendance_day
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or class_id = any ((select taught_class_ids())::bigint[])
  );

alter policy people_see_slots on timetable_slot
  using (
    (select nullif(current_setting('app.scope', true) in ('all', 'taught'), false)) is not null
    or class_id = any ((select visible_class_ids())::bigint[])
  )
  with check (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or class_id = any ((select taught_class_ids())::bigint[])
  );
alter policy people_change_slots_of_classes_they_teach on timetable_slot
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or class_id = any ((select taught_class_ids())::bigint[])
  );
alter policy people_delete_slots_of_classes_they_teach on timetable_slot
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or class_id = any ((select taught_class_ids())::bigint[])
  );

-- A user who sees a class sees its subjects and teachers, but changes only those of classes that they teach.
create policy people_add_subjects_to_classes_they_teach on class_subject as restrictive for insert
  with check (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or class_id = any ((select taught_class_ids())::bigint[])
  );
create policy people_change_subjects_of_classes_they_teach on class_subject as restrictive for update
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or class_id = any ((select taught_class_ids())::bigint[])
  );
create policy people_delete_subjects_of_classes_they_teach on class_subject as restrictive for delete
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or class_id = any ((select taught_class_ids())::bigint[])
  );
create policy people_add_teachers_to_classes_they_teach on teaching_assignment as restrictive for insert
  with check (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or class_id = any ((select taught_class_ids())::bigint[])
  );
create policy people_change_teachers_of_classes_they_teach on teaching_assignment as restrictive for update
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or class_id = any ((select taught_class_ids())::bigint[])
  );
create policy people_delete_teachers_of_classes_they_teach on teaching_assignment as restrictive for delete
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or class_id = any ((select taught_class_ids())::bigint[])
  );
