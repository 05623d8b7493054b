-- What `school status` and the console show.

create function core.record_operation_times(
  p_operations text[], p_calls bigint[], p_total_ms bigint[], p_max_ms bigint[]) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
    insert into platform.operation_time as t (operation, minute, calls, total_ms, max_ms)
      select c.operation, date_trunc('minute', now()), c.calls, c.total_ms, c.max_ms
      from unnest(p_operations, p_calls, p_total_ms, p_max_ms) c (operation, calls, total_ms, max_ms)
      -- Two processes lock the rows in the same order.
      order by c.operation
      on conflict (operation, minute) do update set
        calls = t.calls + excluded.calls,
        total_ms = t.total_ms + excluded.total_ms,
        max_ms = greatest(t.max_ms, excluded.max_ms);
  $$;
comment on function core.record_operation_times is
  'Adds the calls of operations that an API process has measured to this minute: p_calls[n] of p_operations[n], with '
  'the sum and the maximum of their milliseconds. Security definer: the API may write no table.';

create function core.missing_statistics_grant() returns text
  language sql stable set search_path = pg_catalog, pg_temp
  return case when not pg_has_role('pg_read_all_stats', 'usage')
    then format('grant pg_read_all_stats to %I', current_user) end;
comment on function core.missing_statistics_grant is
  'The statement that lets this role see what the connections of other roles do, and how far replicas are behind; null '
  'if it may. Without it Postgres shows nulls there.';

create function core.status(p_with_size boolean default true) returns json
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select json_build_object(
      'at', now(),
      'server', json_build_object(
        'version', current_setting('server_version'),
        'started_at', pg_postmaster_start_time(),
        'database', current_database(),
        -- Looks at each file of the database, of which a school has 400.
        'size_bytes', case when p_with_size then pg_database_size(current_database()) end,
        'is_replica', pg_is_in_recovery()),
      'release', json_build_object(
        'fingerprint', (select left(fingerprint, 12) from platform.installation),
        'installed_at', (select installed_at from platform.installation),
        'schema_version', core.required_schema_version()),
      'schools', (
        select coalesce(json_agg(s order by s.status, s.schema_version), '[]')
        from (
          select
            case when status = 'deleted' and schema_version = 0 then 'purged' else status end as status,
            schema_version,
            count(*) as schools
          from platform.tenant
          -- A node reports the schools that it holds.
          where node_id is null
          group by 1, 2
        ) s
      ),
      'delayed_schools', (
        select coalesce(json_agg(json_build_object(
          'tenant_id', t.id,
          'subdomain', t.subdomain,
          'schema_version', t.schema_version,
          'failed_version', d.version,
          'error', core.error_line(d.error),
          'skip_reason', d.skip_reason) order by t.id), '[]')
        from platform.delayed_migration d
        join platform.tenant t on t.id = d.tenant_id
      ),
      -- As of the last refresh of the facts. One probe of the index for each school.
      'deliveries', (
        select coalesce(json_agg(c order by c.channel), '[]')
        from (
          select
            d.channel,
            sum(d.sent) as sent,
            sum(d.pending) as pending,
            sum(d.failed) as failed,
            sum(d.dropped) as dropped
          from platform.tenant t
          join mart.notification_day d on d.tenant_id = t.id and d.date > current_date - 7
          group by d.channel
        ) c
      ),
      -- Each worker holds an advisory lock of the kind 7315 with the hash of its name.
      'workers', (
        select count(*)
        from pg_locks
        where locktype = 'advisory' and classid = 7315 and granted
          and database = (select oid from pg_database where datname = current_database())
      ),
      'queue', core.queue(),
      'connections', (
        select coalesce(json_agg(c order by c.name), '[]')
        from (
          select
            -- The name that the process has set; what follows is what it does now (core.call).
            coalesce(nullif(split_part(application_name, ' ', 1), ''), usename) as name,
            count(*) as connections,
            -- The type of a connection is null if its state may not be seen.
            case when bool_and(backend_type is not null) then count(*) filter (where state = 'active') end as active,
            case when bool_and(backend_type is not null) then
              count(*) filter (where state like 'idle in transaction%') end as idle_in_transaction,
            case when bool_and(backend_type is not null) then
              count(*) filter (where wait_event_type = 'Lock') end as waiting
          from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid() and usesysid is not null
            and coalesce(backend_type, 'client backend') = 'client backend'
          group by 1
        ) c
      ),
      'slow_operations', (
        select coalesce(json_agg(o order by o.mean_ms desc, o.operation), '[]')
        from (
          select
            operation,
            sum(calls) as calls,
            round(sum(total_ms) / sum(calls)) as mean_ms,
            max(max_ms) as max_ms
          from platform.operation_time
          where minute > now() - interval '1 hour'
          group by operation
          order by 3 desc, operation
          limit 10
        ) o
      ),
      'max_connections', current_setting('max_connections')::integer,
      'missing_grant', core.missing_statistics_grant(),
      'long_transactions', case when core.missing_statistics_grant() is null then (
        select coalesce(json_agg(json_build_object(
          'pid', pid,
          'name', coalesce(nullif(application_name, ''), usename),
          'state', state,
          'seconds', round(extract(epoch from now() - xact_start))) order by xact_start), '[]')
        from pg_stat_activity
        where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
          and xact_start < now() - interval '30 seconds'
      ) end,
      'replicas', case when core.missing_statistics_grant() is null then (
        select coalesce(json_agg(json_build_object(
          'name', r.name,
          'state', r.state,
          'lag_bytes', pg_wal_lsn_diff(
            case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end, r.position),
          'lag_seconds', r.lag_seconds) order by r.name), '[]')
        from (
          select application_name, state, replay_lsn, round(extract(epoch from replay_lag))
          from pg_stat_replication
          union all
          -- A replica that is away is known by its slot.
          select slot_name, 'disconnected', restart_lsn, null
          from pg_replication_slots
          where slot_type = 'physical' and not active and restart_lsn is not null
        ) r (name, state, position, lag_seconds)
      ) end,
      'refusal', core.server_refusal(),
      'kept_schools', (
        select coalesce(json_agg(json_build_object('id', s.id, 'subdomain', s.subdomain) order by s.id), '[]')
        from core.held_schools() s
        where s.is_kept
      ),
      'nodes', (
        select coalesce(json_agg(n order by n.name), '[]')
        from (
          select
            n.name,
            n.status,
            -- Without reservations of schools (core.is_reserved).
            count(t.id) filter (where not (t.status = 'deleted' and t.deleted_at is null)) as schools,
            n.answered_at,
            n.unreachable_since
          from platform.node n
          left join platform.tenant t on t.node_id = n.id
          where not n.is_this
          group by n.id
        ) n
      ))
  $$;
comment on function core.status is
  'The state of the installation: server, release, its schools by status and version, schools whose migration failed, '
  'messages of the last 7 days by channel, workers, queue, connections, the ten slowest operations of the last '
  'hour, transactions of more than 30 seconds, replicas, why the server must not run jobs, the schools whose tables it '
  'has kept after a move, and the nodes of a home with the time since when they do not answer. What the owner of the '
  'database may not see is null, and missing_grant is the statement that lets it. Security definer, because operators '
  'may not read these tables and views.';
