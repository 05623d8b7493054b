-- The names of people.

create function core.full_name(p_first_name text, p_last_name text) returns text language sql immutable parallel safe
  return rtrim(p_first_name || ' ' || p_last_name);
comment on function core.full_name is
  'First and last name with one space between them; only the first name of a person with a single name, whose last '
  'name is empty. Null if a part is missing.';
