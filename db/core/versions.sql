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

create function core.version_of(p_record text, p_answer json) returns text language plpgsql stable as $$
declare
  v_unversioned_fields text[] := (select r.unversioned_fields from core.record r where r.name = p_record);
  v_updated_at text;
begin
  if v_unversioned_fields = '{updated_at}' then
    -- As nearly all records. Faster than jsonb, and as good, because all answers with a record come from its reader.
    v_updated_at := '"updated_at":' || (p_answer -> 'updated_at')::text;
    return md5(coalesce(replace(p_answer::text, v_updated_at, ''), p_answer::text));
  end if;
  return md5(core.versioned_fields(p_answer::jsonb, v_unversioned_fields)::text);
end $$;
comment on function core.version_of is
  'The version of a record: a hash of its fields, except for those that change without an edit. Null without a record.';

-- An ETag is `"version.body"`. Only the version counts. Weak tags (W/) are accepted, because proxies weaken them.
create function core.require_match(
  p_record text, p_id bigint, p_if_match text, p_is_restore boolean, p_may_read boolean
) returns void language plpgsql as $$
declare
  v_version text;
  v_answer json;
begin
  if p_is_restore then
    v_answer := core.deleted_record(p_record, p_id);
  end if;
  if v_answer is null then
    execute format('select api.%I($1)', (select reader from core.record where name = p_record))
      into v_answer using p_id;
  end if;
  v_version := core.version_of(p_record, v_answer);
  if p_if_match <> '*' and not (p_may_read and v_version in (
      select split_part(regexp_replace(tag, '^\s*(W/)?"?', ''), '.', 1)
      from unnest(string_to_array(p_if_match, ',')) tag)) then
    perform core.fail('precondition_failed', 'The record has changed since you read it. Read it again.');
  end if;
end $$;
comment on function core.require_match is
  'Raises precondition_failed unless If-Match names the current version of the record, which must be locked. For users '
  'who may not read the record, only * matches: a version would tell whether a guess of the record is right.';
