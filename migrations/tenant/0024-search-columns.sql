-- A search finds Arabic and Hebrew words without vowel points, and with the usual variants of letters: the columns have
-- the results of public.search_form. The functions of the earlier release search them too; they miss Arabic and Hebrew
-- words with such letters. Each table is written again once.
-- student.search_name has what every list that names a student shows. A search of such a list must not find a student
-- by what the list does not show.

-- @allow drop: the same statement adds the column again.
-- @allow volatile-default: stored texts change with their function, and nobody uses the school meanwhile.
alter table user_account
  drop column search_text,
  add column search_text text not null generated always as (
    public.search_form(first_name || ' ' || last_name || ' ' || email || ' ' || coalesce(phone, ''))
  ) stored;
-- @allow index: nobody uses the school until both the column and its index are there.
create index user_account_search_idx on user_account using gin (search_text public.gin_trgm_ops)
  with (fastupdate = off)
  where deleted_at is null;

-- @allow drop: the same statement adds the column again.
-- @allow volatile-default: stored texts change with their function, and nobody uses the school meanwhile.
alter table teacher
  drop column search_text,
  add column search_text text not null generated always as (
    public.search_form(
      first_name || ' ' || last_name || ' ' || coalesce(email, '') || ' ' || coalesce(employee_number, '') || ' '
      || coalesce(phone, '')
    )
  ) stored;
-- @allow index: nobody uses the school until both the column and its index are there.
create index teacher_search_idx on teacher using gin (search_text public.gin_trgm_ops)
  with (fastupdate = off)
  where deleted_at is null;

-- @allow drop: the same statement adds the column again.
-- @allow volatile-default: stored texts change with their function, and nobody uses the school meanwhile.
alter table student
  drop column search_text,
  add column search_text text not null generated always as (
    public.search_form(
      first_name || ' ' || last_name || ' ' || admission_number || ' ' || coalesce(roll_number, '') || ' '
      || coalesce(email, '') || ' ' || coalesce(parent_name, '')
    )
  ) stored,
  add column search_name text not null generated always as (
    public.search_form(first_name || ' ' || last_name || ' ' || admission_number)
  ) stored;
comment on column student.search_name is 'What a list with the names of students searches in them.';
-- @allow index: nobody uses the school until both the column and its index are there.
create index student_search_text_idx on student using gin (search_text public.gin_trgm_ops)
  with (fastupdate = off);
-- @allow index: nobody uses the school until both the column and its index are there.
create index student_search_name_idx on student using gin (search_name public.gin_trgm_ops)
  with (fastupdate = off);

-- @allow drop: the same statement adds the column again.
-- @allow volatile-default: stored texts change with their function, and nobody uses the school meanwhile.
alter table payment
  drop column search_text,
  add column search_text text not null generated always as (
    public.search_form(coalesce(receipt_number, '') || ' ' || coalesce(reference_number, ''))
  ) stored;
-- @allow index: nobody uses the school until both the column and its index are there.
create index payment_search_idx on payment using gin (search_text public.gin_trgm_ops)
  with (fastupdate = off);
