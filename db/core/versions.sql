-- The versions of records, which If-Match names.

create function core.versioned_fields(p jsonb, p_unversioned_fields text[]) returns jsonb
  language plpgsql immutable as $$
declare
  v_field text;
begin
  p := p - p_unversioned_fields;
  foreach v_field in array p_unversioned_fields loop
    if v_field like '%.%' then
      p := p #- string_to_array(v_field, '.');
    end if;
  end loop;
  return p;
end $$;
comment on function core.versioned_fields is
  'The fields of a record that change only with an edit. p_unversioned_fields as in core.record.';

create function core.version_of_answer(p_answer json, p_unversioned_fields text[]) returns text
  language plpgsql stable as $$
declare
  v_updated_at text;
begin
  if p_unversioned_fields = '{updated_at}' then
    -- As nearly all records. Faster than jsonb, and as good, because all answers with a record come from its reader.
    v_updated_at := '"updated_at":' || (p_answer -> 'updated_at')::text;
    return md5(coalesce(replace(p_answer::text, v_updated_at, ''), p_answer::text));
  end if;
  return md5(core.versioned_fields(p_answer::jsonb, p_unversioned_fields)::text);
end $$;
comment on function core.version_of_answer is
  'The version of what an operation answers: a hash of its fields, except for those that change without an edit. Null '
  'without an answer.';

create function core.version_of(p_record text, p_answer json) returns text language sql stable
  return core.version_of_answer(p_answer, (select r.unversioned_fields from core.record r where r.name = p_record));
comment on function core.version_of is 'The version of a record, as core.version_of_answer.';

-- A function of its own, so that a request that runs while an earlier release is installed finds no such function, and
-- is repeated. If core.admit read the column, such a request would fail, because the earlier table lacks it.
-- Security definer, because request roles cannot read the operations.
create function core.version_for(p_operation text, p_answer json) returns text
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_unversioned_fields text[];
begin
  select unversioned_fields into v_unversioned_fields from core.operation where name = p_operation;
  return case when v_unversioned_fields is not null then core.version_of_answer(p_answer, v_unversioned_fields) end;
end $$;
comment on function core.version_for is
  'The version of the answer of an operation; null if what it answers has none.';

-- An ETag is `"version.body"`. Only the version counts. Weak tags (W/) are accepted, because proxies weaken them.
create function core.names_version(p_if_match text, p_version text) returns boolean language sql immutable
  return p_if_match = '*' or coalesce(p_version in (
    select split_part(regexp_replace(tag, '^\s*(W/)?"?', ''), '.', 1)
    from unnest(string_to_array(p_if_match, ',')) tag), false);
comment on function core.names_version is 'Whether If-Match names this version. * names every one.';

create function core.require_match(
  p_record text, p_id bigint, p_if_match text, p_is_restore boolean, p_may_read boolean
) returns void language plpgsql as $$
declare
  v_answer json;
begin
  if p_is_restore then
    v_answer := core.deleted_record(p_record, p_id);
  end if;
  if v_answer is null then
    execute format('select api.%I($1)', (select reader from core.record where name = p_record))
      into v_answer using p_id;
  end if;
  if not core.names_version(p_if_match, case when p_may_read then core.version_of(p_record, v_answer) end) then
    perform core.fail('precondition_failed', 'The record has changed since you read it. Read it again.');
  end if;
end $$;
comment on function core.require_match is
  'Raises precondition_failed unless If-Match names the current version of the record, which must be locked. For users '
  'who may not read the record, only * matches: a version would tell whether a guess of the record is right.';

create function core.require_version(
  p_search_path text, o core.operation, p jsonb, p_if_match text, p_may_read boolean
) returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_version text;
begin
  if o.versioned_by is null and p_if_match <> '*' then
    perform core.fail('precondition_failed', 'This has no version that If-Match can name. Leave the header out.');
  elsif p_may_read and p_if_match <> '*' then
    v_version := core.version_of_answer(core.run_operation(p_search_path, o.versioned_by, p), o.unversioned_fields);
  end if;
  if not core.names_version(p_if_match, v_version) then
    perform core.fail('precondition_failed', 'This has changed since you read it. Read it again.');
  end if;
end $$;
comment on function core.require_version is
  'As core.require_match, for an operation without a record: the version is that of what o.versioned_by answers.';
