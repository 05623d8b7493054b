-- Search by part of a word uses trigram indexes. Under row security Postgres takes an index only for operators whose
-- function is leakproof, which `like` is not marked as: its one error speaks of the pattern, never of a row. Only a
-- superuser can mark it; elsewhere search reads the school's table instead, some milliseconds for 20,000 students.
do $$
begin
  if (select rolsuper from pg_roles where rolname = current_user) then
    alter function pg_catalog.textlike(text, text) leakproof;
  end if;
end $$;
