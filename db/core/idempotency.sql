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
  v_earlier record;
begin
  delete from idempotency_key
    where user_id = core.user_id() and key = p_key and created_at < now() - core.idempotency_key_lifetime();
  insert into idempotency_key (user_id, key, operation, request_hash)
    values (core.user_id(), p_key, p_operation, p_request_hash)
    on conflict (user_id, key) do nothing;
  if found then
    return null;
  end if;
  select operation, request_hash, answer into v_earlier
    from idempotency_key where user_id = core.user_id() and key = p_key;
  if v_earlier.operation <> p_operation or v_earlier.request_hash <> p_request_hash then
    perform core.fail('idempotency_key_reused', 'This Idempotency-Key was already used for a different request.');
  end if;
  return v_earlier.answer;
end $$;
comment on function core.claim_idempotency_key is
  'Claims an Idempotency-Key for this request of the user and returns null; or returns the answer to the request that '
  'claimed it within 24 hours. Raises idempotency_key_reused if that was a different request.';
