-- How the documents of the school write dates and numbers.

-- @allow check: the table has one row.
alter table school add column locale text
  constraint school_locale_check check (length(locale) <= 35 and locale ~ '^[a-z]{2,8}(-[A-Za-z0-9]{1,8})*$');
comment on column school.locale is
  'The language and region (BCP 47) in which documents write dates and numbers; null for the default.';
