-- Requests that a client repeats with the same Idempotency-Key.

create function core.own_idempotency_key(p_context jsonb) returns text language sql stable
  return case
    when core.api_key_id() is null then p_context ->> 'idempotency_key'
    -- A header contains no space.
    else 'api_key ' || core.api_key_id() || ' '
      || encode(sha256(convert_to(p_context ->> 'idempotency_key', 'UTF8')), 'hex')
  end;
comment on function core.own_idempotency_key is
  'The Idempotency-Key of a request as it is stored; null without one. Each API key of a user has its own, apart from '
  'those of the user: programs of one user must not get the answers of each other.';

-- The insert makes a second request with the same key wait until the first one has ended.
create function core.claim_idempotency_key(p_operation text, p_key text, p_request_hash text) returns json
  language plpgsql as $$
declare
  v_request jsonb := jsonb_build_object('operation', p_operation, 'key', p_key, 'request_hash', p_request_hash);
  v_earlier json;
begin
  if core.run_prepared($statement$
    insert into idempotency_key as k (user_id, key, operation, request_hash)
      select core.user_id(), r.key, r.operation, r.request_hash
      from jsonb_to_record((select core.parameters())) r (key text, operation text, request_hash text)
      on conflict (user_id, key) do update
        set operation = excluded.operation, request_hash = excluded.request_hash, answer = null, created_at = now()
        where k.created_at < now() - core.idempotency_key_lifetime()
      returning to_json(true)
  $statement$, v_request) is not null then
    return null;
  end if;
  v_earlier := core.run_prepared($statement$
    select json_build_object('operation', operation, 'request_hash', request_hash, 'answer', answer)
    from idempotency_key where user_id = core.user_id() and key = (select core.parameters() ->> 'key')
  $statement$, v_request);
  if v_earlier ->> 'operation' <> p_operation or v_earlier ->> 'request_hash' <> p_request_hash then
    perform core.fail('idempotency_key_reused', 'This Idempotency-Key was already used for a different request.');
  end if;
  return case when v_earlier ->> 'answer' is not null then v_earlier -> 'answer' end;
end $$;
comment on function core.claim_idempotency_key is
  'Claims an Idempotency-Key for this request of the user and returns null; or returns the answer to the request that '
  'claimed it within 24 hours. Raises idempotency_key_reused if that was a different request.';

-- The answer is passed as text, because jsonb would sort its fields.
create function core.keep_idempotent_answer(p_key text, p_answer json) returns void language plpgsql as $$
begin
  perform core.run_prepared($statement$
    update idempotency_key set answer = (select (core.parameters() ->> 'answer')::json)
    where user_id = core.user_id() and key = (select core.parameters() ->> 'key')
    returning to_json(true)
  $statement$, jsonb_build_object('key', p_key, 'answer', p_answer::text));
end $$;
comment on function core.keep_idempotent_answer is
  'Stores the answer to the request that has claimed an Idempotency-Key, for requests that repeat it.';
