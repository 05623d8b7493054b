-- A write does not read: what a user who may change a record may see of it, and learn by changing it (decision 0063).

create function core.scope_of(o core.operation) returns text
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_scope text := core.permission_scope(o.permission);
  v_session platform.session;
begin
  -- What a user may do without the permission is not part of a key.
  if v_scope is not null or core.api_key_id() is not null then
    return v_scope;
  end if;
  select * into v_session from platform.session where id = core.session_id();
  return core.scope_without_permission(o, v_session);
end $$;
comment on function core.scope_of is
  'The scope in which the user of this request could run another operation, as core.admit computes it: all, taught, '
  'own or children; null if it would be refused. Security definer, because the roles of a user are in their session.';

create function core.is_wide_enough(p_read_scope text) returns boolean language sql stable
  return coalesce(core.scope_rank(p_read_scope) >= core.scope_rank(current_setting('app.scope')), false);
comment on function core.is_wide_enough is 'Whether a user may read all that the scope of the request shows.';

create function core.read_in_scope(p_search_path text, p_reader core.operation, p_scope text, p jsonb, p_id jsonb)
  returns json language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_scope_before text := current_setting('app.scope');
  v_saw_children boolean := coalesce(current_setting('app.guardian_id', true), '') <> '';
  v_answer json;
begin
  perform core.set_row_scope(p_search_path, p_scope, core.sees_children(p_reader));
  v_answer := core.run_operation(p_search_path, p_reader.name, p || jsonb_build_object('id', p_id));
  perform core.set_row_scope(p_search_path, v_scope_before, v_saw_children);
  return v_answer;
exception when sqlstate 'S404A' or sqlstate 'S403A' then
  -- The settings are those before this block again.
  return null;
end $$;
comment on function core.read_in_scope is
  'What p_reader answers about a record in another scope of rows; null if it refuses. The scope of the request stays.';

create function core.may_read(p_search_path text, p_reader core.operation, p_read_scope text, p jsonb) returns boolean
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_id jsonb := coalesce(p -> 'id', p -> 'user_id', p -> 'guardian_id');
  v_seen jsonb;
begin
  if p_reader.name is null or core.is_wide_enough(p_read_scope) then
    return true;
  elsif p_read_scope is null or v_id is null or p_reader.name not like '%\_get' then
    return false;
  end if;
  v_seen := core.read_in_scope(p_search_path, p_reader, p_read_scope, p, v_id);
  return coalesce(
    v_seen = core.read_in_scope(p_search_path, p_reader, current_setting('app.scope'), p, v_id)::jsonb, false);
end $$;
comment on function core.may_read is
  'Whether the user of a write may read all of what it changes. Otherwise the answer must not show whether a sent '
  'value equals the stored one. p_reader is null if everyone who may run the operation may also read.';

create function core.may_compare() returns boolean language sql stable
  return current_setting('app.may_compare', true) is distinct from 'no';
comment on function core.may_compare is
  'Whether an operation may skip checks for values that equal the stored ones: false if the user may not read the '
  'record (core.may_read).';

create function core.limit_to_reader(
  p_search_path text, p_reader core.operation, p_read_scope text, p jsonb, p_answer json
) returns json language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_id jsonb := coalesce((p_answer -> 'id')::jsonb, p -> 'id', p -> 'user_id', p -> 'guardian_id');
  v_answer json;
begin
  if core.is_wide_enough(p_read_scope) then
    return null;
  end if;
  if p_read_scope is not null and p_reader.name like '%\_get' then
    v_answer := core.read_in_scope(p_search_path, p_reader, p_read_scope, p, v_id);
  end if;
  return coalesce(v_answer, json_build_object('id', v_id));
end $$;
comment on function core.limit_to_reader is
  'The answer of a write to a user who could not read all of it by p_reader: what p_reader answers with the smaller '
  'scope of the user, or only the id. Null if the user may see the answer as it is.';
