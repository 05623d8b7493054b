-- Validates the checks of the previous migration, which allow more than the checks before them.

alter table user_account validate constraint user_account_last_name_check;
alter table teacher validate constraint teacher_last_name_check;
alter table student validate constraint student_last_name_check;
