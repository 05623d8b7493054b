-- Whether the schema of a school can be used: not while it is migrated, and not before it has the version that the
-- installed functions need.

-- A constant, because every request asks for it. Every new tenant migration installs the functions again.
do $define$
begin
  execute format('create function core.required_schema_version() returns integer language sql immutable return %s',
    (select coalesce(max(version) filter (where is_required), 0) from platform.tenant_migration));
end $define$;
comment on function core.required_schema_version is
  'The lowest schema version of a school that the installed functions can use: the last migration that is not '
  'optional. A school can have a higher one: a migration changes the schemas first and installs the functions last.';

create function core.try_lock_schema(p_tenant_id bigint) returns boolean language plpgsql as $$
begin
  -- A migration holds this lock exclusively for as long as it runs. Nobody waits for it with a connection.
  if not pg_try_advisory_xact_lock_shared(core.tenant_lock_key(p_tenant_id)) then
    return false;
  end if;
  return exists (
    select from platform.tenant t where t.id = p_tenant_id and t.schema_version >= core.required_schema_version());
end $$;
comment on function core.try_lock_schema is
  'Locks the schema of a school against migrations until the transaction ends. Returns false if the school is being '
  'migrated, or has no schema that the installed functions can use.';

create function core.refuse_migrating_school(p_tenant_id bigint, p_is_locked boolean) returns void
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_delay platform.delayed_migration;
begin
  -- Without the lock, a migration or a move of this school is running.
  if p_is_locked then
    if exists (select from platform.tenant where id = p_tenant_id and node_id is not null) then
      perform core.fail('unavailable',
        'The data of this school are on another server, where this request cannot be answered yet. Try again later.');
    end if;
    select * into v_delay from platform.delayed_migration where tenant_id = p_tenant_id;
  end if;
  if v_delay.skipped_at is not null then
    perform core.fail('unavailable',
      'This school is not available: its update to the current version of the service was postponed. '
      'The operator of the platform must complete the update.', p_retry_after_s => 600);
  elsif v_delay.failed_at is not null then
    perform core.fail('unavailable',
      'This school is not available: its update to the current version of the service failed. '
      'The operator of the platform must repair it.', p_retry_after_s => 600);
  end if;
  -- The API tries again itself for a moment, since nothing has been done yet (src/database/call.ts).
  raise exception using
    errcode = (select sqlstate from core.error where name = 'unavailable'),
    message = 'This school is being migrated. Try again in a moment.',
    hint = 'repeat';
end $$;
comment on function core.refuse_migrating_school is
  'Raises unavailable. The message says whether the school is being migrated, is on another server, or waits for the '
  'operator because its migration failed or was postponed. Security definer, since request roles cannot read the '
  'schema platform.';

create function core.require_schema(p_tenant_id bigint) returns void language plpgsql as $$
begin
  if not core.try_lock_schema(p_tenant_id) then
    perform core.refuse_migrating_school(
      p_tenant_id, pg_try_advisory_xact_lock_shared(core.tenant_lock_key(p_tenant_id)));
  end if;
end $$;
comment on function core.require_schema is
  'Locks the schema of a school against migrations until the transaction ends (core.try_lock_schema). Raises '
  'unavailable if that is not possible.';

create function core.schools_with(p_features text[], p_status text[] default '{active}')
  returns table (id bigint, time_zone text) language sql stable as $$
  select t.id, t.time_zone
  from platform.tenant t
  join platform.plan p on p.id = t.plan_id
  where t.status = any (p_status)
    and t.schema_version >= (select core.required_schema_version())
    and p_features <@ core.enabled_features(p.features, t.feature_flags);
$$;
comment on function core.schools_with is
  'The schools that jobs may enter: of a status (active by default), with all of these features, and with a '
  'schema that is new enough for the installed functions. Jobs enter each school in a transaction of its own.';
