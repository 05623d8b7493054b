-- What `school doctor` checks on the server: settings, roles, indexes, transactions, connections, the queue.

create function core.check_default_privileges(p_role oid default null) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('New %s of %s are granted to others: %s.', kind.name, d.defaclrole::regrole,
        core.granted(d.defaclacl, d.defaclrole)),
      format('alter default privileges for role %s%s revoke all on %s from %s', d.defaclrole::regrole,
        case when d.defaclnamespace <> 0 then ' in schema ' || d.defaclnamespace::regnamespace else '' end, kind.name,
        (select string_agg(distinct case when g.grantee = 0 then 'public' else g.grantee::regrole::text end, ', ')
          from aclexplode(d.defaclacl) g where g.grantee <> d.defaclrole)), true
    from pg_default_acl d
    cross join lateral (
      select case d.defaclobjtype when 'r' then 'tables' when 'S' then 'sequences' when 'f' then 'functions'
        when 'n' then 'schemas' else 'types' end as name
    ) kind
    where core.granted(d.defaclacl, d.defaclrole) is not null and d.defaclrole = coalesce(p_role, d.defaclrole)
  $$;
comment on function core.check_default_privileges is
  'Tables that a migration creates get these privileges, so that others can read the data of schools.';

create function core.check_schools_behind() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('%s (%s%s) %s version %s instead of %s. Their requests get 503.',
        case count(*) when 1 then 'One school' else count(*) || ' schools' end,
        array_to_string((array_agg(format('%s %s', id, subdomain) order by id))[1:5], ', '),
        case when count(*) > 5 then ', …' end, case count(*) when 1 then 'has' else 'have' end, schema_version,
        core.required_schema_version()),
      'npm run migrate' || case count(*) when 1 then format(' -- --tenant %s', min(id)) else '' end, false
    from platform.tenant
    where schema_version < core.required_schema_version() and not (status = 'deleted' and schema_version = 0)
      and node_id is null
    group by schema_version
    order by schema_version
  $$;
comment on function core.check_schools_behind is 'The users of a school that is not migrated cannot work.';

create function core.set_at_start(p_name text, p_value numeric) returns text
  language sql stable set search_path = pg_catalog, pg_temp
  return case when (select source from pg_settings where name = p_name) = 'command line'
    then format('Restart the server with -c %s=%s', p_name, p_value)
    else format('alter system set %s = %s; -- then restart the server', p_name, p_value) end;
comment on function core.set_at_start is
  'The statement that sets what a server reads when it starts. An option of its command line takes precedence over it.';

create function core.check_server() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('Postgres has version %s.', current_setting('server_version')),
      'Upgrade the server to Postgres 15 or later.', false
    where current_setting('server_version_num')::integer < 150000
    union all
    select wanted.level, format('The setting %s is %s.', wanted.name, coalesce(o.value, s.reset_val)),
      case
        when o.database is not null then format('alter database %I reset %I', o.database, wanted.name)
        when o.value is not null then format('alter role all reset %I', wanted.name)
        when s.source = 'command line' then
          format('Start the server without the option -c %s=%s, or restart it with -c %1$s=%3$s.', wanted.name,
            s.reset_val, wanted.value)
        else format('alter system set %I = %L; select pg_reload_conf()', wanted.name, wanted.value)
      end, false
    from (values
      ('error', 'fsync', 'on'),
      ('error', 'full_page_writes', 'on'),
      ('error', 'autovacuum', 'on'),
      ('warning', 'track_counts', 'on'),
      ('warning', 'synchronous_commit', 'on'),
      ('warning', 'row_security', 'on')) wanted (level, name, value)
    join pg_settings s using (name)
    -- Sessions of this role may have other values than the server.
    left join lateral (
      select d.datname as database, split_part(assignment, '=', 2) as value
      from pg_db_role_setting r
      cross join unnest(r.setconfig) assignment
      left join pg_database d on d.oid = r.setdatabase
      where split_part(assignment, '=', 1) = wanted.name and r.setrole = 0
        and (r.setdatabase = 0 or d.datname = current_database())
      order by r.setdatabase desc
      limit 1
    ) o on true
    where coalesce(o.value, s.reset_val) in ('off', 'local', 'remote_write')
  $$;
comment on function core.check_server is
  'Without these settings a crash of the server loses or damages data, or tables grow without end.';

create function core.check_extensions() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error',
      format(case
        when i.oid is not null then 'The extension %s is not in the schema public.'
        else 'The extension %s is missing.'
      end, wanted.name),
      case
        when i.oid is not null then format('alter extension %I set schema public', wanted.name)
        when a.name is null then
          format('Install the contrib package of Postgres on the server, then: create extension %I schema public',
            wanted.name)
        else format('create extension %I schema public', wanted.name)
      end, a.name is not null
    from (values ('pgcrypto'), ('pg_trgm'), ('unaccent'), ('btree_gist')) wanted (name)
    left join pg_extension i on i.extname = wanted.name
    left join pg_available_extensions a on a.name = wanted.name
    where i.extnamespace is distinct from to_regnamespace('public')
  $$;
comment on function core.check_extensions is
  'Searches, tokens and the rules against overlaps need these extensions. The indexes and constraints that use them '
  'are missing too.';

create function core.check_roles() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    with wanted (name, can_login) as (
      values ('school_api', true), ('school_worker', true), ('school_graphql', true), ('school_tenant', false),
        ('school_platform', false), ('school_analyst', false)
    ), member (role, of_role) as (
      values ('school_api', 'school_tenant'), ('school_api', 'school_platform'), ('school_graphql', 'school_analyst')
    )
    select 'error', format('The role %s is missing.', w.name),
      -- Its privileges on the functions are granted with them.
      'update platform.installation set fingerprint = ''''; -- then: npm run migrate', false
    from wanted w
    where not exists (select from pg_roles r where r.rolname = w.name)
    union all
    select 'error', format('The role %s may %s.', w.name, flag.name), format('alter role %I %s', w.name, flag.remedy),
      true
    from wanted w
    join pg_roles r on r.rolname = w.name
    cross join lateral (values
      (r.rolsuper, 'do everything (superuser)', 'nosuperuser'),
      (r.rolbypassrls, 'bypass row security', 'nobypassrls'),
      (r.rolcreaterole, 'create roles', 'nocreaterole'),
      (r.rolcreatedb, 'create databases', 'nocreatedb'),
      (r.rolreplication, 'replicate', 'noreplication'),
      (r.rolcanlogin and not w.can_login, 'log in', 'nologin')) flag (is_set, name, remedy)
    where flag.is_set
    union all
    select 'error', format('The role %s cannot switch to %s.', m.role, m.of_role),
      format('grant %I to %I', m.of_role, m.role), true
    from member m
    join pg_roles r on r.rolname = m.role
    join pg_roles of_role on of_role.rolname = m.of_role
    where not pg_has_role(r.oid, of_role.oid, 'member')
    union all
    select 'error', format('The role %s is a member of %s.', r.rolname, of_role.rolname),
      format('revoke %I from %I', of_role.rolname, r.rolname)
        -- Since Postgres 16 this takes back only what the named role has granted.
        || case when current_setting('server_version_num')::integer >= 160000 then
          format(' granted by %s', a.grantor::regrole) else '' end, true
    from pg_auth_members a
    join pg_roles r on r.oid = a.member
    join pg_roles of_role on of_role.oid = a.roleid
    where r.rolname in (select name from wanted)
      and not exists (select from member m where m.role = r.rolname and m.of_role = of_role.rolname)
  $$;
comment on function core.check_roles is
  'The roles separate requests from each other and from the tables. A role with more rights undoes that.';

create function core.check_invalid_indexes() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('The index %s is invalid.', i.indexrelid::regclass),
      -- The copy that a reindex leaves when it fails.
      format(case when c.relname ~ '_cc(new|old)[0-9]*$' then 'drop index concurrently %s'
        else 'reindex index concurrently %s' end, i.indexrelid::regclass), true
    from pg_index i
    join pg_class c on c.oid = i.indexrelid
    where not (i.indisvalid and i.indisready)
  $$;
comment on function core.check_invalid_indexes is
  'Postgres does not use an invalid index, but maintains it. A unique one may not prevent duplicates.';

create function core.check_normalized_keys() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning',
      format('The %s of %s %s is not in the Unicode normalization form NFC%s.', k.column_name, k.table_name, k.id,
        case when k.same_as <> '{}' then ', in which it is that of ' || array_to_string(k.same_as, ', ') end),
      case when k.same_as = '{}' then 'Save it again.' else 'Change one of them, then save the other again.' end, false
    from core.keys_not_normalized('platform') k
  $$;
comment on function core.check_normalized_keys is
  'A record is found by what people type, which is normalized. The migration left out texts that look the same as '
  'another one.';

create function core.check_duplicate_indexes() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('The index %s is a duplicate of %s.', b.indexrelid::regclass, a.indexrelid::regclass),
      format('drop index concurrently %s', b.indexrelid::regclass), false
    from pg_index a
    join pg_index b on b.indrelid = a.indrelid and b.indexrelid <> a.indexrelid and b.indkey = a.indkey
      and b.indclass = a.indclass and b.indcollation = a.indcollation and b.indoption = a.indoption
      and coalesce(pg_get_expr(b.indexprs, b.indrelid), '') = coalesce(pg_get_expr(a.indexprs, a.indrelid), '')
      and coalesce(pg_get_expr(b.indpred, b.indrelid), '') = coalesce(pg_get_expr(a.indpred, a.indrelid), '')
      and (a.indisunique or not b.indisunique)
      and (a.indisunique <> b.indisunique or a.indexrelid < b.indexrelid)
    join pg_class c on c.oid = a.indrelid
    join pg_class ai on ai.oid = a.indexrelid
    join pg_class bi on bi.oid = b.indexrelid and bi.relam = ai.relam
    where c.relnamespace::regnamespace::text !~ '^(pg_|information_schema)'
      and not exists (select from pg_constraint k where k.conindid = b.indexrelid)
  $$;
comment on function core.check_duplicate_indexes is 'Every write maintains both, and no query needs the second one.';

create function core.check_unused_indexes(p_min_bytes bigint default 100000000, p_min_age interval default '30 days')
  returns setof core.finding language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('The index %s (%s) has not been used since %s.', s.indexrelid::regclass,
        pg_size_pretty(pg_relation_size(s.indexrelid)), d.since::date),
      format('drop index concurrently %s', s.indexrelid::regclass), false
    from pg_stat_user_indexes s
    join pg_index i using (indexrelid)
    cross join lateral (
      select coalesce(stats_reset, pg_postmaster_start_time()) as since
      from pg_stat_database
      where datname = current_database()
    ) d
    -- Those of the release belong to it.
    where s.schemaname !~ '^(tenant_[0-9]+|platform|mart|core|graphile_worker|graphile_migrate)$'
      and s.idx_scan = 0 and not i.indisunique and pg_relation_size(s.indexrelid) >= p_min_bytes
      and d.since <= now() - p_min_age
  $$;
comment on function core.check_unused_indexes is
  'A large index that no query uses slows writes down. It may be used on a replica, or once a year.';

create function core.check_statistics(p_min_rows bigint default 1000) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('The table %s with %s rows has never been analyzed.', relid::regclass, n_live_tup),
      format('analyze %s', relid::regclass), true
    from pg_stat_user_tables
    where coalesce(last_analyze, last_autoanalyze) is null and n_live_tup >= p_min_rows
  $$;
comment on function core.check_statistics is 'Postgres guesses the sizes of such a table and chooses slow plans.';

create function core.oldest_snapshot(p_age bigint, p_open interval)
  returns table (holder text, remedy text) language sql stable set search_path = pg_catalog, pg_temp as $$
    select s.holder, s.remedy
    from (
      select format('process %s (%s)', pid, coalesce(nullif(application_name, ''), usename)) as holder,
        format('select pg_terminate_backend(%s)', pid) as remedy,
        greatest(age(backend_xmin), age(backend_xid)) as age, xact_start as since
      from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid() and backend_type <> 'autovacuum worker'
      union all
      select format('the prepared transaction %s', gid), format('rollback prepared %L', gid), age(transaction),
        prepared
      from pg_prepared_xacts
      where database = current_database()
      union all
      select format('the replica %s', application_name),
        'End the oldest transaction on the replica, or switch hot_standby_feedback off there.', age(backend_xmin), null
      from pg_stat_replication
      union all
      select format('the replica of the slot %s', slot_name),
        case when active then 'End the oldest transaction on the replica, or switch hot_standby_feedback off there.'
          else format('select pg_drop_replication_slot(%L); -- if its replica does not come back', slot_name)
        end, age(xmin), null
      from pg_replication_slots
    ) s
    -- Null without a snapshot.
    where s.age >= p_age or (s.age is not null and s.since < now() - p_open)
    order by s.age desc
    limit 1
  $$;
comment on function core.oldest_snapshot is
  'What keeps vacuum from removing dead rows, and what ends it: the oldest of the transactions, prepared transactions '
  'and replicas that may still see what was deleted p_age transactions ago, or whose transaction is open for p_open.';

create function core.check_bloat(
    p_min_rows bigint default 10000, p_share numeric default 0.3, p_age bigint default 10000,
    p_open interval default '5 minutes')
  returns setof core.finding language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('The table %s has %s dead rows and %s live ones.', relid::regclass, n_dead_tup,
        n_live_tup) || coalesce(' Vacuum cannot remove those that ' || s.holder || ' may still see.', ''),
      coalesce(s.remedy, format('vacuum (analyze) %s', relid::regclass)), s.remedy is null
    from pg_stat_user_tables
    left join core.oldest_snapshot(p_age, p_open) s on true
    where n_dead_tup >= p_min_rows and n_dead_tup > p_share * (n_live_tup + n_dead_tup)
  $$;
comment on function core.check_bloat is
  'Dead rows make scans slow and files large. Autovacuum is not keeping up, or may not remove them.';

create function core.check_sequences(p_share numeric default 0.8) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('The sequence %I.%I has used %s %% of its numbers.', schemaname, sequencename,
        trunc(100.0 * last_value / max_value)),
      format('alter sequence %I.%I as bigint maxvalue 9223372036854775807', schemaname, sequencename), false
    from pg_sequences
    where last_value > p_share * max_value and not cycle
  $$;
comment on function core.check_sequences is 'When a sequence ends, no row can be inserted into its table.';

create function core.check_wraparound(p_limit bigint default 1000000000) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('The oldest transaction id of the database %s is %s old.', datname, age(datfrozenxid)),
      case when datname = current_database() then 'vacuum (freeze)' else format('vacuumdb --freeze %I', datname) end,
      false
    from pg_database
    where age(datfrozenxid) >= p_limit
    union all
    select 'error', format('The oldest multixact id of the database %s is %s old.', datname, mxid_age(datminmxid)),
      case when datname = current_database() then 'vacuum (freeze)' else format('vacuumdb --freeze %I', datname) end,
      false
    from pg_database
    where mxid_age(datminmxid) >= p_limit
  $$;
comment on function core.check_wraparound is
  'At two billion the server refuses all writes until a vacuum has finished.';

create function core.check_transactions(p_running interval default '10 minutes', p_idle interval default '5 minutes')
  returns setof core.finding language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('Process %s (%s) has had a transaction open for %s and %s.', pid,
        coalesce(nullif(application_name, ''), usename), date_trunc('second', now() - xact_start),
        case when state like 'idle in transaction%' then 'is idle' else 'runs a statement' end),
      format('select pg_terminate_backend(%s)', pid), false
    from pg_stat_activity
    where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
      and (
        (state like 'idle in transaction%' and state_change < now() - p_idle)
        or (state = 'active' and xact_start < now() - p_running))
    union all
    select 'error', format('The prepared transaction %s has been open since %s.', gid, prepared),
      format('rollback prepared %L', gid), false
    from pg_prepared_xacts
    where database = current_database() and prepared < now() - p_idle
  $$;
comment on function core.check_transactions is
  'A long transaction keeps locks, and vacuum cannot remove any row that has died since it began.';

create function core.check_visibility() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('The role %I may not see what other roles do: long transactions and replicas that are '
        'behind were not checked.', current_user), core.missing_statistics_grant(), false
    where core.missing_statistics_grant() is not null
  $$;
comment on function core.check_visibility is
  'Postgres shows nulls to this role, so that nothing is found where something may be wrong.';

create function core.check_locks(p_waiting interval default '10 seconds') returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('Process %s (%s) has waited %s for a lock that process %s holds.', a.pid,
        coalesce(nullif(a.application_name, ''), a.usename), date_trunc('second', now() - l.waitstart),
        array_to_string(pg_blocking_pids(a.pid), ', ')),
      format('select pg_terminate_backend(%s)', (pg_blocking_pids(a.pid))[1]), false
    -- Every role sees pg_locks; pg_stat_activity may hide what the process does.
    from pg_locks l
    join pg_stat_activity a using (pid)
    where not l.granted and a.datname = current_database() and l.waitstart < now() - p_waiting
      and cardinality(pg_blocking_pids(a.pid)) > 0
  $$;
comment on function core.check_locks is 'Requests that need the same rows wait too, and then get 503.';

create function core.check_lock_table(p_tables bigint default null) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('The database has %s tables, and the server is set up for %s locks.', tables, locks),
      -- Half as many again for the schools to come.
      core.set_at_start('max_locks_per_transaction', ceil(1.5 * tables / sessions)), false
    from (
      select
        coalesce(p_tables, (select count(*) from pg_class where relkind in ('r', 'p'))) as tables,
        -- The server reserves room for these, and has some more by chance.
        current_setting('max_locks_per_transaction')::bigint * sessions as locks,
        sessions
      from (
        select current_setting('max_connections')::integer + current_setting('max_prepared_transactions')::integer
          as sessions) server
    ) sizes
    where tables > locks
  $$;
comment on function core.check_lock_table is
  'pg_dump locks all tables in one transaction. It fails if there is no room for the locks, and until then the '
  'transactions of requests fail too.';

create function core.check_connections(p_share numeric default 0.8) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('%s of %s connections are open.', count(*), current_setting('max_connections')),
      core.set_at_start('max_connections', 2 * current_setting('max_connections')::integer), false
    from pg_stat_activity
    -- The type of a connection is null if its state may not be seen.
    where usesysid is not null and coalesce(backend_type, 'client backend') = 'client backend'
    having count(*) > p_share * current_setting('max_connections')::integer
  $$;
comment on function core.check_connections is 'Without a free connection, processes cannot start and requests get 503.';

create function core.check_replication(p_max_bytes bigint default 1000000000) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    -- A physical slot without a reader is a replica that is away.
    select case when retained >= p_max_bytes then 'error' else 'warning' end,
      format('The inactive replication slot %s keeps %s of WAL.', slot_name, pg_size_pretty(retained)),
      format('select pg_drop_replication_slot(%L); -- if its replica does not come back', slot_name), false
    from (
      select slot_name, slot_type, pg_wal_lsn_diff(
        case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end,
        restart_lsn) as retained
      from pg_replication_slots
      where not active
    ) s
    where retained >= p_max_bytes or slot_type = 'physical' and retained is not null
    union all
    select 'warning', format('The replica %s is %s behind.', application_name, pg_size_pretty(
        pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn))),
      'Check the network and the load of the replica.', false
    from pg_stat_replication
    where not pg_is_in_recovery() and pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) >= p_max_bytes
  $$;
comment on function core.check_replication is
  'A slot without a reader fills the disk with WAL, and its replica cannot replace this server. A replica that is '
  'behind shows old data.';

create function core.check_synchronous_replicas() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error',
      format('The setting synchronous_standby_names is %s, and no synchronous replica is connected.',
        current_setting('synchronous_standby_names')),
      'alter system reset synchronous_standby_names; select pg_reload_conf()', false
    where current_setting('synchronous_standby_names') <> '' and not pg_is_in_recovery()
      -- The state is null if it may not be seen.
      and not exists (select from pg_stat_replication where coalesce(sync_state in ('sync', 'quorum'), true))
  $$;
comment on function core.check_synchronous_replicas is
  'Every write and every login waits for a replica, without a limit.';

create function core.check_archiving() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', format('The archive of the WAL has failed since %s, last with %s.',
        date_trunc('second', coalesce(last_archived_time, stats_reset)), last_failed_wal),
      'Look for "archive command failed" in the log of Postgres. Postgres repeats the command until it succeeds.', false
    from pg_stat_archiver
    where current_setting('archive_mode') <> 'off'
      and last_failed_time > coalesce(last_archived_time, '-infinity')
    union all
    select 'error', 'The setting archive_mode is on, and archive_command is empty.',
      'alter system set archive_mode = off; -- then restart the server', false
    where current_setting('archive_mode') <> 'off' and current_setting('archive_command') = ''
      and current_setting('archive_library', true) = ''
  $$;
comment on function core.check_archiving is
  'Backups cannot be restored to a later moment, and Postgres keeps the WAL until the disk is full.';

create function core.check_replication_workers(p_wanted integer default 3) returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning', format('%s is %s, and subscriptions take %s of them: %s are left, fewer than %s.', l.name,
        l.value, l.taken, greatest(l.value - l.taken, 0), p_wanted),
      core.set_at_start(l.name, l.taken + p_wanted), false
    from (
      -- Of all databases of the server. A move needs those that should be left.
      select count(*) filter (where subname !~ '^school_move_') as workers,
        bool_or(subdbid = (select oid from pg_database where datname = current_database())) as is_subscriber
      from pg_subscription
      where subenabled
    ) s
    cross join lateral (values
      ('max_logical_replication_workers', current_setting('max_logical_replication_workers')::integer, workers),
      -- The launcher of the workers is one of them.
      ('max_worker_processes', current_setting('max_worker_processes')::integer, workers + 1)) l (name, value, taken)
    where s.is_subscriber and l.value - l.taken < p_wanted
  $$;
comment on function core.check_replication_workers is
  'A school that moves here needs one worker for its changes and up to two for its tables. Without a free one, nothing '
  'is copied, and only the log of the server says so.';

create function core.check_queue(p_waiting interval default '10 minutes') returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error', 'No worker is running: jobs are not processed.', 'npm start -- --only worker', false
    where not (core.readiness() ->> 'worker')::boolean
    union all
    select 'warning', format('Jobs of %s have waited since %s.', task, min(ready_since)::timestamptz(0)),
      'Start another worker, or raise WORKER_CONCURRENCY.', false
    from core.jobs()
    where state = 'ready'
    group by task
    having min(ready_since) < now() - p_waiting
    union all
    select 'warning', format('%s jobs of %s have failed for good.', count(*), task),
      format('npm run school -- jobs retry --task %s  # after the cause: npm run school -- jobs failed --task %1$s',
        task), false
    from core.jobs()
    where state = 'failed'
    group by task
    union all
    select 'warning', format('Notifications and webhooks of %s schools have waited since %s.',
        count(distinct o.tenant_id), min(o.updated_at)::timestamptz(0)),
      case
        when (core.readiness() ->> 'worker')::boolean
          then 'If only workers of an earlier release run, as after a rollback, start one of this release (npm start '
            '-- --only worker). Otherwise the log of the worker says why it does not write them. A school that is '
            'locked or migrated waits.'
        else 'npm start -- --only worker'
      end, false
    from platform.outbox o
    join platform.tenant t on t.id = o.tenant_id and t.node_id is null and t.schema_version > 0
    -- Since `jobs retry`, or the last slice of a message: both change the row.
    where o.retry_at is null
    having min(o.updated_at) < now() - p_waiting
    union all
    select 'warning', format('The notifications of %s events %s could not be written: %s', count(*), event, min(error)),
      case
        when bool_or(retry_at = 'infinity')
          then 'npm run school -- jobs retry --task outbox  # or `cancel`, after the cause is mended'
        else 'Report the error. The events are tried again for a day.'
      end, false
    from platform.outbox
    where attempts >= 3 or retry_at = 'infinity'
    group by event
  $$;
comment on function core.check_queue is 'Emails, notifications and the daily work of the schools are late or lost.';

create function core.find_server_problems() returns table (
    check_name text, level text, what text, why text, remedy text, is_harmless boolean)
  language plpgsql set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
declare
  v_function record;
begin
  for v_function in
    select f.proname as name, obj_description(f.oid, 'pg_proc') as reason
    from core.functions_in('core') f
    where f.proname ~ '^check_' and f.pronargs = f.pronargdefaults
    -- Most of the other findings follow from a missing extension.
    order by f.proname <> 'check_extensions', f.proname
  loop
    begin
      return query execute format('select %L, f.level, f.what, %L, f.remedy, f.is_harmless from core.%I() f',
        substr(v_function.name, 7), v_function.reason, v_function.name);
    exception when others then
      -- The other checks may find the cause.
      return query select substr(v_function.name, 7), 'error', format('This check failed: %s.', sqlerrm),
        v_function.reason, 'update platform.installation set fingerprint = ''''; -- then: npm run migrate', false;
    end;
  end loop;
end $$;
comment on function core.find_server_problems is
  'Runs all checks of the server: the name of the check, what is wrong, why that matters, and what fixes it. Needs the '
  'owner of the database, and sees what other roles do if that is a member of pg_read_all_stats.';
