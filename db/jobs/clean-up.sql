-- The job `clean_up`: deletes expired rows.

create function core.clean_up() returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_tokens bigint;
  v_sessions bigint;
  v_throttles bigint;
begin
  delete from platform.one_time_token where expires_at < now() - core.used_token_retention();
  get diagnostics v_tokens = row_count;
  delete from platform.session where expires_at < now() or revoked_at < now() - core.revoked_session_retention();
  get diagnostics v_sessions = row_count;
  delete from platform.refresh_token where expires_at < now();
  delete from platform.login_throttle where window_ends_at < now();
  get diagnostics v_throttles = row_count;
  delete from platform.idempotency_key where created_at < now() - core.idempotency_key_lifetime();
  return json_build_object('sessions', v_sessions, 'tokens', v_tokens, 'throttles', v_throttles);
end $$;
comment on function core.clean_up is
  'Deletes expired rows of the shared tables: sessions, tokens, login throttles, and answers to idempotency keys of '
  'operators. Returns the counts.';

create function core.schools_to_clean_up() returns setof bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp
  begin atomic
    select id from core.schools_with('{}', '{active,suspended}') order by id;
  end;
comment on function core.schools_to_clean_up is 'The schools that core.clean_up_school runs for.';

create function core.clean_up_school(p_tenant_id bigint) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[] := core.enter_tenant(p_tenant_id);
begin
  delete from idempotency_key where created_at < now() - core.idempotency_key_lifetime();
  delete from notification_delivery where created_at < now() - core.delivery_retention();
  delete from notification where created_at < now() - core.notification_retention();
  perform core.leave_tenant(v_before);
end $$;
comment on function core.clean_up_school is
  'Deletes expired rows of a school: answers to idempotency keys after 24 hours, deliveries after 90 days, '
  'notifications after a year.';
