-- @optional: searches find the same rows without this index, only more slowly.
-- A search of payments, fees, invoices or enrollments in transport also looks among deleted students, for which the
-- partial index student_search_idx could not be used.
drop index student_search_idx;
-- @allow index: the statement before it takes no time, and nobody uses the school until both are done.
create index student_search_text_idx on student using gin (search_text public.gin_trgm_ops)
  with (fastupdate = off);
