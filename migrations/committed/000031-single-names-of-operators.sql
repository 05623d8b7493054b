--! Previous: sha1:b5657daa1187307ca1de51171d6bf35508712eb6
--! Hash: sha1:a22d6c8cfcea75bb2fd95632a61ea0fbf1f405b6
--! Message: single names of operators

-- Operators and analysts with a single name have an empty last name.

-- @allow check: the table has few rows.
alter table platform.user_account
  drop constraint user_account_last_name_check,
  add constraint user_account_last_name_check check (length(last_name) <= 100);
