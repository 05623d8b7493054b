--! Previous: sha1:1d64f3cf089f4416b14f70a78256d6cf4f5678fe
--! Hash: sha1:7bb7e996996e132e9e77eea8e866d9fe63aa6e36
--! Message: single names of operators

-- Operators and analysts with a single name have an empty last name.

-- @allow check: the table has few rows.
alter table platform.user_account
  drop constraint user_account_last_name_check,
  add constraint user_account_last_name_check check (length(last_name) <= 100);
