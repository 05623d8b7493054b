-- Validates the checks of 0040: its update made every row meet them.

alter table student
  validate constraint student_leaving_reason_check,
  validate constraint student_left_on_check;
alter table teacher
  validate constraint teacher_leaving_reason_check,
  validate constraint teacher_left_on_check;
alter table driver
  validate constraint driver_leaving_reason_check,
  validate constraint driver_left_on_check;
