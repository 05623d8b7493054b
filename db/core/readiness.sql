-- What /api/health/ready tells.

create function core.readiness() returns json
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select json_build_object(
    'fingerprint', (select fingerprint from platform.installation),
    'served_fingerprints', core.served_fingerprints(),
    'tenants_behind', (
      select count(*)
      from platform.tenant
      where schema_version < (select core.required_schema_version()) and not (status = 'deleted' and schema_version = 0)
        and node_id is null
    ),
    -- The worker holds this advisory lock while it runs.
    'worker', exists (
      select from pg_locks
      where locktype = 'advisory' and classid = 7312 and objid = 1 and objsubid = 2
        and database = (select oid from pg_database where datname = current_database())
    ),
    -- Commits that wait for a synchronous replica. They wait without a limit, and do not fail.
    'writes_wait', exists (
      select from pg_stat_get_activity(null)
      where datid = (select oid from pg_database where datname = current_database())
        and wait_event = 'SyncRep' and query_start < now() - interval '5 seconds'
    ));
$$;
comment on function core.readiness is
  'For /api/health/ready: the installed fingerprint, those of the earlier releases that these functions serve, the '
  'number of schools to migrate, whether a worker runs, and whether writes wait for a synchronous replica.';
