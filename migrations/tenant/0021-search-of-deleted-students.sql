-- @optional: searches find the same rows without this index, only more slowly.
-- A search of payments, fees, invoices or enrollments in transport also looks among deleted students, for which the
-- partial index student_search_idx could not be used.
drop index student_search_idx;
-- @allow index: the removal of the earlier index takes no time.
create index student_search_text_idx on student using gin (search_text public.gin_trgm_ops)
  with (fastupdate = off);
