-- Guardians see the rows of their children: each policy that shows students their own rows shows them to their
-- guardians, too. In the scope children, the permission comes only from the role guardian.

alter policy people_see_themselves_and_their_classes on student
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or id = any ((select visible_student_ids())::bigint[])
    or class_id = any ((select taught_class_ids())::bigint[])
  )
  with check (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or class_id = any ((select taught_class_ids())::bigint[])
    or (class_id is null and current_setting('app.scope', true) = 'taught')
    or (
      id = any ((select visible_student_ids())::bigint[])
      and (class_id is null or class_id = any ((select visible_class_ids())::bigint[]))
    )
  );
alter policy people_see_themselves_and_their_classes on enrollment
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or student_id = any ((select visible_student_ids())::bigint[])
    or class_id = any ((select taught_class_ids())::bigint[])
  );
alter policy people_see_themselves_and_their_classes on attendance
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or student_id = any ((select visible_student_ids())::bigint[])
    or class_id = any ((select taught_class_ids())::bigint[])
  );
alter policy people_see_themselves_and_their_classes on attendance_correction
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or student_id = any ((select visible_student_ids())::bigint[])
    or class_id = any ((select taught_class_ids())::bigint[])
  );
alter policy students_see_themselves on student_document
  using (
    (select nullif(current_setting('app.scope', true) in ('all', 'taught'), false)) is not null
    or student_id = any ((select visible_student_ids())::bigint[])
  );
alter policy students_see_themselves on transport_enrollment
  using (
    (select nullif(current_setting('app.scope', true) in ('all', 'taught'), false)) is not null
    or student_id = any ((select visible_student_ids())::bigint[])
  );
alter policy students_see_themselves on student_external_id
  using (
    (select nullif(current_setting('app.scope', true) in ('all', 'taught'), false)) is not null
    or student_id = any ((select visible_student_ids())::bigint[])
  );
alter policy students_see_themselves on student_fee
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or student_id = any ((select visible_student_ids())::bigint[])
  );
alter policy students_see_themselves on student_fee_item
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or student_id = any ((select visible_student_ids())::bigint[])
  );
alter policy students_see_themselves on student_fee_discount
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or student_id = any ((select visible_student_ids())::bigint[])
  );
alter policy students_see_themselves on invoice
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or student_id = any ((select visible_student_ids())::bigint[])
  );
alter policy students_see_themselves on invoice_item
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or student_id = any ((select visible_student_ids())::bigint[])
  );
alter policy students_see_themselves on payment
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or student_id = any ((select visible_student_ids())::bigint[])
  );
alter policy people_see_themselves_and_their_classes on student_absence
  using (
    (select nullif(current_setting('app.scope', true) = 'all', false)) is not null
    or student_id = any ((select visible_student_ids())::bigint[])
    or (
      (select nullif(current_setting('app.scope', true) = 'taught', false)) is not null
      and exists (select from student s where s.id = student_id)
    )
  );
alter policy people_see_teachers on teacher
  using (
    (
      select nullif(current_setting('app.scope', true) in ('all', 'taught', 'own', 'children'), false)
    ) is not null
  );
alter policy people_see_routes on route
  using (
    (
      select nullif(current_setting('app.scope', true) in ('all', 'taught', 'own', 'children'), false)
    ) is not null
  );
alter policy people_see_stops on stop
  using (
    (
      select nullif(current_setting('app.scope', true) in ('all', 'taught', 'own', 'children'), false)
    ) is not null
  );
