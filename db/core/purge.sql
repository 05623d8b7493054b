-- The purge of deleted schools: workers/tasks/purge_tenants.ts exports them (archive.sql), then drops their tables.

select core.define_job('purge_tenants', '{purge_due,purge_drop,purge_mark,purge_open,purge_state}',
  p_schedule => '23 2 * * * ?max=3&fill=1d');

create function core.is_purge_due(p_school platform.tenant, p_days integer) returns boolean
  language sql stable
  return p_school.status = 'deleted'
    and p_school.deleted_at <= now() - make_interval(days => p_days)
    and to_regnamespace('tenant_' || p_school.id) is not null;
comment on function core.is_purge_due is
  'Whether a school was deleted at least p_days ago and still has a schema. Postgres inlines it.';

create function core.purge_due(p_days integer) returns setof bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.id from platform.tenant t where core.is_purge_due(t, p_days) order by t.id
$$;
comment on function core.purge_due is
  'The schools that were deleted at least p_days ago and still have a schema. Security definer, since the worker may '
  'read no table of the platform.';

create function core.purge_state(p_tenant_id bigint, p_days integer)
  returns table (id bigint, subdomain text, is_exported boolean)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select t.id, t.subdomain, t.schema_version = 0
  from platform.tenant t
  where t.id = p_tenant_id and core.is_purge_due(t, p_days)
$$;
comment on function core.purge_state is
  'A school that is due for its purge; no row for any other. is_exported: the file is written and the school marked '
  'as purged, only its schema must still be dropped. Security definer: see core.purge_due.';

create function core.purge_open(p_tenant_id bigint, p_days integer) returns table (name text, at_a_time integer)
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select from core.purge_state(p_tenant_id, p_days) s where not s.is_exported) then
    return query select o.name, o.at_a_time from core.archive_open(p_tenant_id) o;
  end if;
end $$;
comment on function core.purge_open is
  'core.archive_open for the worker: opens the cursors only if the school is due for its purge. Security definer, '
  'since the worker may read no school.';

create function core.purge_mark(p_tenant_id bigint, p_days integer, p_file text) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform set_config('app.actor_email', 'worker', true);
  update platform.tenant
    set schema_version = 0, seeded_permission_id = 0
    where id = p_tenant_id
      and status = 'deleted'
      and deleted_at <= now() - make_interval(days => p_days)
      and schema_version > 0;
  if not found then
    return false;
  end if;
  delete from platform.session where tenant_id = p_tenant_id;
  delete from platform.one_time_token where tenant_id = p_tenant_id;
  delete from platform.second_factor where tenant_id = p_tenant_id;
  delete from platform.outbox where tenant_id = p_tenant_id;
  perform core.audit('tenant.purge', 'tenant', p_tenant_id, p_tenant_id,
    core.diff(null, jsonb_build_object('file', p_file)));
  return true;
end $$;
comment on function core.purge_mark is
  'Marks a school as purged once its file is written, deletes its sessions, one-time tokens and second factors, and '
  'writes the audit entry. From here on the school can no longer be restored, only imported. Returns false and does '
  'nothing if it was restored meanwhile. Security definer: see core.purge_due.';

create function core.purge_drop(p_tenant_id bigint) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_schema text := 'tenant_' || p_tenant_id;
  v_tables text;
begin
  if not exists (select from platform.tenant where id = p_tenant_id and status = 'deleted' and schema_version = 0) then
    perform core.fail('invalid_state', format('School %s is not marked as purged.', p_tenant_id));
  end if;
  select string_agg(format('%I.%I', v_schema, last.name), ', ')
    into v_tables
    from (select a.name from core.archive_tables(p_tenant_id) a order by a.place desc limit 20) last;
  if v_tables is null then
    execute format('drop schema if exists %I cascade', v_schema);
    return false;
  end if;
  -- Without cascade: a foreign key from outside of the schema makes this fail instead of being dropped.
  execute 'drop table ' || v_tables;
  return true;
end $$;
comment on function core.purge_drop is
  'Drops twenty tables of a purged school, or the schema if no table is left; returns whether there is more to drop. '
  'Each call is a transaction of its own, because every table, index and sequence takes a lock. Security definer: see '
  'core.purge_due.';
