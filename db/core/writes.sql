-- What the dispatcher does for an operation that writes: locks, If-Match, values that do not change, read-only fields.

create function core.record_values(p_search_path text, p_record text, p_id bigint) returns json
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_reader text;
  v_values json;
begin
  select reader into v_reader from core.record where name = p_record;
  execute case when set_config('search_path', p_search_path, true) <> '' then format('select api.%I($1)', v_reader) end
    into v_values using p_id;
  return v_values;
end $$;
comment on function core.record_values is 'The record with the id p_id, as its reader answers it.';

create function core.unchanged_answer(o core.operation, p jsonb, p_present json) returns json
  language plpgsql stable as $$
declare
  v_record core.record;
  -- What does not exist yet has no values.
  v_present jsonb := coalesce(p_present, '{}');
begin
  select * into v_record from core.record where name = o.present_record;
  if p ? 'read_only' then
    perform core.refuse_read_only(p -> 'read_only', v_present, v_record);
  end if;
  -- A body that is a list is the parameter items.
  return case when core.repeats(
      case jsonb_typeof(v_present) when 'array' then p -> 'items' else p - '{id,read_only}'::text[] end, v_present)
    then p_present end;
end $$;
comment on function core.unchanged_answer is
  'The present values as the answer of a request that repeats them; null for other requests. Raises validation_error '
  'if the request changes a field that only the service sets.';

create function core.unchanged_deleted_answer(o core.operation, p jsonb, p_id bigint, p_may_read boolean) returns json
  language plpgsql stable as $$
declare
  v_record core.record;
  v_deleted json := core.deleted_record(o.record, p_id);
  v_present jsonb := v_deleted;
  v_answer json;
begin
  select * into v_record from core.record where name = o.record;
  if v_deleted is not null and not (p_may_read and core.may_see_deleted(v_record)) then
    perform core.fail_missing(o.record, p_id);
  elsif v_deleted is null or not core.repeats(p -> 'deleted_at', v_present -> 'deleted_at') then
    perform core.refuse_field('validation_error', 'deleted_at',
      'This field is read-only. Only null is allowed, which restores the record.');
  end if;
  v_answer := core.unchanged_answer(o, p, v_deleted);
  if v_answer is null then
    perform core.fail_missing(o.record, p_id);
  end if;
  return v_answer;
end $$;
comment on function core.unchanged_deleted_answer is
  'A soft-deleted record as the answer of a request that repeats it, as it was listed. Raises not_found for any other '
  'change of it and for users who may not see it; validation_error for another deleted_at, also of a record that is '
  'not deleted.';

create function core.run_write(
  p_search_path text, o core.operation, p jsonb, p_context jsonb, p_content bytea,
  p_reader core.operation default null, p_read_scope text default null
) returns json language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_is_check boolean := coalesce((p_context ->> 'check_only')::boolean, false);
  v_key text := case when o.idempotent and not v_is_check then core.own_idempotency_key(p_context) end;
  v_answer json;
  v_present json;
  v_record_id bigint;
  v_is_restore boolean;
  v_repeats_deleted boolean := false;
  v_may_read boolean;
  v_file_id bigint;
begin
  if o.record is not null then
    v_record_id := coalesce((p ->> 'id')::bigint,
      (select 1 from core.record r where r.name = o.record and r.is_single));
  end if;
  if coalesce(o.lock_first, o.locked_by, v_record_id::text, o.content) is not null then
    perform set_config('search_path', p_search_path, true);
  end if;
  if v_key is not null then
    v_answer := core.claim_idempotency_key(o.name, v_key, p_context ->> 'request_hash');
    if v_answer is not null then
      return v_answer;
    end if;
  end if;
  -- Lock the record before anything is read or checked, so that no other request changes it in between.
  if o.lock_first is not null then
    perform core.record_lock(o.lock_first, 1);
  end if;
  if o.locked_by is not null then
    execute format('select api.%I($1)', o.locked_by) using p;
  end if;
  if v_record_id is not null then
    v_is_restore := core.is_restore(o.record, p);
    v_repeats_deleted := p ->> 'deleted_at' is not null;
    -- To others a deleted record does not exist.
    perform core.record_lock(o.record, v_record_id, v_is_restore
      or v_repeats_deleted and (p_reader.name is null or core.is_wide_enough(p_read_scope))
        and (select core.may_see_deleted(r) from core.record r where r.name = o.record));
  end if;
  v_may_read := core.may_read(p_search_path, p_reader, p_read_scope, p);
  if not v_may_read then
    if v_record_id is not null then
      perform core.refuse_unread(p -> 'read_only', v_record_id);
    end if;
    p := p - 'read_only';
    perform set_config('app.may_compare', 'no', true);
  end if;
  if p_context ->> 'if_match' is not null then
    if v_record_id is not null then
      perform core.require_match(o.record, v_record_id, p_context ->> 'if_match',
        v_is_restore or v_repeats_deleted, v_may_read);
    else
      perform core.require_version(p_search_path, o, p, p_context ->> 'if_match', v_may_read);
    end if;
  end if;
  if v_record_id is not null and o.present = 'none' and p ? 'read_only' then
    perform core.require_unchanged(o.record, v_record_id, p -> 'read_only');
  end if;
  if v_repeats_deleted then
    v_answer := core.unchanged_deleted_answer(o, p, v_record_id, v_may_read);
  elsif o.present not in ('none', 'itself') and v_may_read and p_content is null
      and not coalesce(v_is_restore, false) then
    v_present := case
      when o.present = 'record' then core.record_values(p_search_path, o.record, v_record_id)
      else core.run_operation(p_search_path, o.present, p)
    end;
    p := core.with_present_moments(p, coalesce(v_present, '{}')::jsonb);
    v_answer := core.unchanged_answer(o, p, v_present);
    if v_answer is not null and o.present <> 'record' and o.record is not null then
      v_answer := core.record_values(p_search_path, o.record, v_record_id);
    end if;
  end if;
  if v_answer is null and p_context ? 'checks' then
    perform core.check_values(p_search_path, o.record, case when v_may_read then v_record_id end, p,
      p_context -> 'checks');
  end if;
  if v_is_check or v_answer is not null then
    return v_answer;
  end if;
  if o.access = 'platform' and o.runs_on = 'school' then
    perform core.refuse_school_elsewhere(v_record_id);
  end if;
  if o.content = 'takes' and p_content is not null then
    execute 'insert into file (content, content_type, name) values ($1, $2, $3) returning id' into v_file_id
      using p_content, p ->> 'content_type', p ->> 'file_name';
    p := p || jsonb_build_object('file_id', v_file_id);
  end if;
  if o.access in ('platform', 'analyst') then
    perform set_config('app.audited', '', true);
  end if;
  v_answer := core.run_operation(p_search_path, o.name, p);
  if v_record_id is null and o.present = 'none' and p ? 'read_only' then
    perform core.refuse_untrue(p -> 'read_only', v_answer::jsonb);
  end if;
  perform core.queue_webhooks();
  if v_key is not null then
    perform core.keep_idempotent_answer(v_key, v_answer);
  end if;
  if o.access in ('platform', 'analyst') and current_setting('app.audited', true) <> 'yes' then
    raise exception 'The operation % left no audit entry.', o.name;
  end if;
  return v_answer;
end $$;
comment on function core.run_write is
  'Runs an operation that writes, after it has locked what it changes and checked If-Match, the read-only fields and '
  'the values (core.check_values). '
  'Returns its answer, the present values if the request repeats them, or the answer to an earlier request with the '
  'same Idempotency-Key. For a user who may not read the record (core.may_read), nothing is compared with it.';
