-- The job `clean_up`: deletes rows whose retention has ended, a batch per transaction. Batches hold no long locks, and
-- delete in the order of an index. p_keep has intervals by name; a missing one has the default of lifetimes.sql.

select core.define_job('clean_up', '{clean_up,clean_up_audit_log,clean_up_school,schools_to_clean_up}',
  p_schedule => '17 * * * * ?max=3&fill=2h');

create function core.delete_batch(p_table text, p_condition text, p_limit integer, p_order text default null)
  returns boolean language plpgsql as $$
declare
  v_count bigint;
begin
  -- Skips rows that another transaction holds. To wait for one while others are locked could be a deadlock.
  execute format(
    'delete from %1$s where ctid = any (array(select ctid from %1$s where %2$s %3$s limit $1 for update skip locked))',
    p_table::regclass, p_condition, 'order by ' || p_order) using p_limit;
  get diagnostics v_count = row_count;
  return v_count >= p_limit;
end $$;
comment on function core.delete_batch is
  'Deletes at most p_limit rows of a table that meet a condition, except rows that another transaction has locked. '
  'Returns whether there may be more.';

-- Ids are in the order of time. So the oldest rows are the first of the primary key, and no index on the time is
-- needed.
create function core.delete_oldest(p_table text, p_keep interval, p_limit integer) returns boolean
  language plpgsql as $$
declare
  v_count bigint;
begin
  execute format(
    'delete from %1$s where id = any (array(select id from %1$s order by id limit $1)) and created_at < now() - $2',
    p_table::regclass) using p_limit, p_keep;
  get diagnostics v_count = row_count;
  return v_count >= p_limit;
end $$;
comment on function core.delete_oldest is
  'Deletes the rows older than p_keep among the first p_limit rows of a table. Returns whether there may be more.';

create function core.kept_for(p_keep jsonb, p_name text, p_default interval) returns interval language sql immutable
  return coalesce((p_keep ->> p_name)::interval, p_default);
comment on function core.kept_for is 'A retention of a setting, or its default.';

create function core.clean_up(p_keep jsonb default '{}', p_limit integer default 1000) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[];
  v_has_more boolean[] := array[
    core.delete_batch('platform.one_time_token',
      format('expires_at < now() - %L::interval', core.used_token_retention()), p_limit),
    core.delete_batch('platform.refresh_token', 'expires_at < now()', p_limit),
    -- With each session its refresh tokens are deleted, up to hundreds.
    core.delete_batch('platform.session', 'expires_at < now()', greatest(p_limit / 20, 1), 'expires_at'),
    core.delete_batch('platform.session', format('revoked_at < now() - %L::interval',
      core.kept_for(p_keep, 'sessions', core.revoked_session_retention())), greatest(p_limit / 20, 1)),
    core.delete_batch('platform.login_throttle', 'window_ends_at < now()', p_limit),
    core.delete_batch('platform.rate_limit_counter', 'window_ends_at < now()', p_limit),
    core.delete_batch('platform.operation_time', 'minute < now() - interval ''1 hour''', p_limit),
    core.delete_batch('platform.idempotency_key', format('created_at < now() - %L::interval',
      core.kept_for(p_keep, 'idempotency_keys', core.idempotency_key_lifetime())), p_limit),
    core.delete_batch('platform.usage_day', format('date < (now() - %L::interval)::date',
      core.kept_for(p_keep, 'usage', core.usage_retention())), p_limit),
    -- The deliveries of an event are deleted with it.
    core.delete_oldest('platform.webhook_event',
      core.kept_for(p_keep, 'deliveries', core.delivery_retention()), p_limit),
    -- A message keeps its text here.
    core.delete_batch('platform.outbox', format('retry_at = ''infinity'' and updated_at < now() - %L::interval',
      core.kept_for(p_keep, 'failed_jobs', core.failed_job_retention())), p_limit),
    core.delete_failed_jobs(core.kept_for(p_keep, 'failed_jobs', core.failed_job_retention()), p_limit)];
begin
  v_before := core.enter_tenant(null);
  perform core.webhook_queue_next(), core.leave_tenant(v_before);
  return true = any (v_has_more);
end $$;
comment on function core.clean_up is
  'Deletes a batch of expired rows of the shared tables: tokens, sessions, login throttles, rate limits, answers to '
  'idempotency keys of operators, usage, failed jobs, events whose notifications could not be written, events of '
  'webhooks. Queues the job that sends the webhooks of the platform, should it have been lost. Returns whether there '
  'may be more.';

-- Whole days, so that the table is locked on one run a day. The lock waits for transactions that have added entries.
-- Meanwhile new entries wait, so the next run tries again if it takes longer than a second.
create function core.clean_up_audit_log(p_keep jsonb default '{}', p_limit integer default 1000) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  v_before timestamptz :=
    date_trunc('day', now(), 'UTC') - core.kept_for(p_keep, 'audit_entries', core.audit_retention());
  v_count bigint := 0;
begin
  if exists (select from platform.audit_log where created_at < v_before) then
    -- The trigger makes the table append-only.
    alter table platform.audit_log disable trigger append_only;
    delete from platform.audit_log
      where id = any (array(
        select id from platform.audit_log where created_at < v_before order by created_at limit p_limit));
    get diagnostics v_count = row_count;
    alter table platform.audit_log enable trigger append_only;
  end if;
  return v_count >= p_limit;
end $$;
comment on function core.clean_up_audit_log is
  'Deletes a batch of entries of the audit log whose retention has ended. Returns whether there may be more.';

create function core.schools_to_clean_up() returns setof bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp
  begin atomic
    select id from core.schools_with('{}', '{active,suspended}') order by id;
  end;
comment on function core.schools_to_clean_up is 'The schools that core.clean_up_school runs for.';

create function core.clean_up_school(p_tenant_id bigint, p_keep jsonb default '{}', p_limit integer default 1000)
  returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[] := core.enter_tenant(p_tenant_id);
  v_deliveries interval := core.kept_for(p_keep, 'deliveries', core.delivery_retention());
  v_has_more boolean[] := array[
    core.delete_batch('idempotency_key', format('created_at < now() - %L::interval',
      core.kept_for(p_keep, 'idempotency_keys', core.idempotency_key_lifetime())), p_limit),
    core.delete_oldest('notification_delivery', v_deliveries, p_limit),
    core.delete_oldest('notification', core.kept_for(p_keep, 'notifications', core.notification_retention()), p_limit)];
begin
  -- A school whose migration has not run yet has no webhooks. The deliveries of an event are deleted with it.
  if to_regclass('webhook_event') is not null then
    v_has_more := v_has_more || core.delete_oldest('webhook_event', v_deliveries, p_limit);
    perform core.webhook_queue_next();
  end if;
  if to_regclass('announced_mark') is not null then
    v_has_more := v_has_more
      || core.delete_batch('announced_mark', 'created_at < now() - interval ''30 days''', p_limit);
  end if;
  perform core.recount_usage();
  if not true = any (v_has_more) then
    perform core.record_usage();
  end if;
  perform core.leave_tenant(v_before);
  return true = any (v_has_more);
end $$;
comment on function core.clean_up_school is
  'Deletes a batch of rows of a school whose retention has ended: answers to idempotency keys, deliveries, '
  'notifications, notes of announced marks, events of webhooks. Counts its students, teachers and classes again, and '
  'queues the job that sends webhooks, should it have been lost. After the last batch, records the usage of the day. '
  'Returns whether there may be more rows.';
