-- People with a single name have an empty last name.

alter table user_account
  drop constraint user_account_last_name_check,
  add constraint user_account_last_name_check check (length(last_name) <= 100) not valid;
alter table teacher
  drop constraint teacher_last_name_check,
  add constraint teacher_last_name_check check (length(last_name) <= 100) not valid;
alter table student
  drop constraint student_last_name_check,
  add constraint student_last_name_check check (length(last_name) <= 100) not valid;
