-- Substring search uses trigram indexes. Under row security Postgres uses an index only for operators whose function is
-- marked leakproof. The function of `like` is not, but it would be safe: its only error is about the pattern, never
-- about a row. Only a superuser can mark it. Without the mark, a search scans the table of the school, which takes some
-- milliseconds for 20,000 students.
do $$
begin
  if (select rolsuper from pg_roles where rolname = current_user) then
    alter function pg_catalog.textlike(text, text) leakproof;
  end if;
end $$;
