-- The job queue as operators see and change it: `school jobs`, /api/platform/jobs, /metrics.

create function core.job_school(p_payload json) returns bigint
  language sql immutable
  return case when p_payload ->> 'tenant_id' ~ '^[0-9]{1,18}$' then (p_payload ->> 'tenant_id')::bigint end;
comment on function core.job_school is 'The id of the school that a job is for; null if it is for no school.';

create function core.queue() returns json
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select json_build_object(
      'worker', (core.readiness() ->> 'worker')::boolean,
      'tasks', coalesce(json_agg(json_build_object(
        'task', t.name,
        'ready', coalesce(q.ready, 0),
        'waiting', coalesce(q.waiting, 0),
        'running', coalesce(q.running, 0),
        'failed', coalesce(q.failed, 0),
        'oldest_ready_seconds', q.oldest,
        'repeated', coalesce(q.repeated, 0),
        'oldest_due_seconds', q.oldest_due) order by t.name), '[]'))
    from (select core.queued_tasks() union all select 'outbox') t (name)
    left join (
      select
        j.task,
        count(*) filter (where j.state = 'ready') as ready,
        count(*) filter (where j.state = 'waiting') as waiting,
        count(*) filter (where j.state = 'running') as running,
        count(*) filter (where j.state = 'failed') as failed,
        round(extract(epoch from now() - min(j.ready_since) filter (where j.state = 'ready'))::numeric, 1) as oldest,
        count(*) filter (where j.attempts >= 3) as repeated,
        -- A job that has been tried was due then.
        round(extract(epoch from now() - min(j.created_at)
          filter (where j.state <> 'failed' and (j.attempts > 0 or j.run_at <= now())))::numeric, 1) as oldest_due
      from core.jobs() j
      group by j.task
      union all
      -- Events whose notifications are not written yet. Operators watch them like jobs.
      select
        'outbox',
        count(*) filter (where o.retry_at is null),
        count(*) filter (where o.retry_at < 'infinity'),
        0,
        count(*) filter (where o.retry_at = 'infinity'),
        round(extract(epoch from now() - min(o.updated_at) filter (where o.retry_at is null))::numeric, 1),
        count(*) filter (where o.attempts >= 3),
        round(extract(epoch from now() - min(o.created_at)
          filter (where o.retry_at is distinct from 'infinity'))::numeric, 1)
      from platform.outbox o
      join platform.tenant s on s.id = o.tenant_id and s.node_id is null and s.schema_version > 0
      having count(*) > 0
    ) q on q.task = t.name
    -- Without the names that earlier releases used, unless such a job is still queued.
    where q.task is not null or not exists (select from core.job_type where t.name = any (former_names))
  $$;
comment on function core.queue is
  'The length of the queue by task and state, and of the outbox as the task `outbox`: {worker, tasks: [{task, ready, '
  'waiting, running, failed, oldest_ready_seconds, repeated, oldest_due_seconds}]}. `waiting` includes failed jobs '
  'that will be retried. `repeated`: jobs with three attempts or more. oldest_due_seconds: since the oldest job that '
  'was due and has not succeeded was queued. Security definer: the API and the worker publish these numbers as '
  'metrics but may not read the queue.';

create function core.error_line(p_error text) returns text
  language sql immutable
  return left(
    regexp_replace(
      regexp_replace(split_part(ltrim(p_error, E' \n\r\t'), E'\n', 1), '\S+@\S+', '…', 'g'),
      '[\u0001-\u001f\u007f-\u009f]', ' ', 'g'),
    200);
comment on function core.error_line is
  'The first line of an error, without control characters and email addresses, at most 200 characters.';

create function core.failed_jobs(p_task text, p_limit integer, p_with_outbox boolean default false)
  returns table (
    id bigint, task text, tenant_id bigint, subdomain text, attempts smallint, max_attempts smallint, error text,
    next_run_at timestamptz, total bigint, event text)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select
      f.id, f.task, f.tenant_id, t.subdomain, f.attempts, f.max_attempts, core.error_line(f.error), f.next_run_at,
      f.total, f.event
    from (
      select failed.*, count(*) over () as total
      from (
        select j.id, j.task, core.job_school(j.payload) as tenant_id, j.attempts, j.max_attempts, j.last_error as error,
          case when j.state <> 'failed' then j.run_at end as next_run_at, null as event
        from core.jobs() j
        where j.attempts > 0 and j.state <> 'running'
        union all
        select o.id, 'outbox', o.tenant_id, o.attempts, core.outbox_attempts()::smallint, o.error,
          nullif(o.retry_at, 'infinity'), o.event
        from platform.outbox o
        join platform.tenant s on s.id = o.tenant_id and s.node_id is null and s.schema_version > 0
        where p_with_outbox and o.retry_at is not null
      ) failed
      where p_task is null or failed.task = p_task
      order by failed.next_run_at is null desc, failed.id desc
      limit p_limit
    ) f
    left join platform.tenant t on t.id = f.tenant_id
    order by f.next_run_at is null desc, f.id desc
  $$;
comment on function core.failed_jobs is
  'Jobs that have failed at least once, permanently failed ones first, then the newest first; `total` is the number '
  'of all of them. Jobs that are running again right now are left out. With p_with_outbox also events whose '
  'notifications could not be written, as the task `outbox` with their `event`. Their ids are not those of jobs. '
  'Security definer, because operators may not read the queue.';

create function core.job(p_id bigint) returns json
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select json_build_object(
      'id', j.id,
      'task', j.task,
      'state', j.state,
      'tenant_id', core.job_school(j.payload),
      'subdomain', t.subdomain,
      'attempts', j.attempts,
      'max_attempts', j.max_attempts,
      'priority', j.priority,
      'created_at', j.created_at,
      'run_at', j.run_at,
      'locked_at', j.locked_at,
      'error', core.error_line(j.last_error),
      'payload', (
        select coalesce(json_object_agg(e.key, e.value), '{}')
        from json_each(case json_typeof(j.payload) when 'object' then j.payload else '{}' end) e
        where e.key in ('kind', 'day', 'sent_on') or e.value::text ~ '^([0-9.\s,\[\]]+|true|false|null)$'))
    from core.jobs() j
    left join platform.tenant t on t.id = core.job_school(j.payload)
    where j.id = p_id
  $$;
comment on function core.job is
  'One job of the queue, without personal data: of its payload only numbers, booleans and the known codes and dates.';

create function core.change_jobs(
    p_action text, p_ids bigint[], p_task text, p_is_failed boolean, p_tenant_id bigint default null)
  returns json language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_ids bigint[];
  v_tasks text[];
  v_done bigint[];
  -- Events have ids of their own. Without any, all of the task are meant.
  v_events bigint[] := array(
    select o.id
    from platform.outbox o
    where p_task = 'outbox'
      and (coalesce(p_ids, '{}') = '{}' or o.id = any (p_ids))
      and (p_tenant_id is null or o.tenant_id = p_tenant_id)
      -- Those that are tried again anyway may be tried now, but are not removed as failed.
      and (not p_is_failed or (o.retry_at is not null and (p_action = 'retry' or o.retry_at = 'infinity'))));
  v_counts jsonb;
begin
  select coalesce(array_agg(j.id order by j.id), '{}'), array_agg(j.task order by j.id)
    into v_ids, v_tasks
    from core.jobs() j
    where (p_task is null and j.id = any (p_ids))
      or (
        j.task = p_task and coalesce(p_ids, '{}') = '{}'
        and (p_tenant_id is null or core.job_school(j.payload) = p_tenant_id)
        and not (p_is_failed and (j.attempts = 0 or j.state = 'running')));
  if p_action = 'retry' then
    v_done := array(select r.id from graphile_worker.reschedule_jobs(v_ids, run_at => now(), attempts => 0) r);
    with retried as (
      update platform.outbox set attempts = 0, retry_at = null where id = any (v_events) returning id
    )
    select coalesce(array_agg(id), '{}') into v_events from retried;
  elsif p_action = 'cancel' then
    v_done := array(select r.id from graphile_worker.complete_jobs(v_ids) r);
    with removed as (
      delete from platform.outbox where id = any (v_events) returning id
    )
    select coalesce(array_agg(id), '{}') into v_events from removed;
  else
    raise exception 'Unknown action for jobs: %.', p_action;
  end if;
  select coalesce(jsonb_object_agg(counted.task, counted.jobs), '{}')
    into v_counts
    from (
      select c.task, count(*) as jobs
      from unnest(v_ids, v_tasks) c (id, task)
      join unnest(v_done) d (id) using (id)
      group by c.task
      union all
      select 'outbox', cardinality(v_events) where v_events <> '{}'
    ) counted;
  if v_counts <> '{}' then
    if core.user_id() is null then
      perform set_config('app.actor_email', 'command line', true);
    end if;
    perform core.audit(
      'job.' || p_action, 'job',
      case when cardinality(v_done || v_events) = 1 then (v_done || v_events)[1] end, null,
      (
        select jsonb_object_agg(key, case p_action
          when 'cancel' then jsonb_build_object('before', value, 'after', 0)
          else jsonb_build_object('before', null, 'after', value)
        end)
        from jsonb_each(v_counts)
      ));
  end if;
  return json_build_object(
    'done', v_counts,
    'running', (
      select coalesce(json_agg(j.id order by j.id), '[]')
      from core.jobs() j
      where j.id = any (v_ids) and j.state = 'running'),
    'unknown', (
      select coalesce(json_agg(id order by id), '[]')
      from (select distinct unnest(p_ids) as id except select unnest(v_ids || v_events)) missing));
end $$;
comment on function core.change_jobs is
  'Runs jobs again now, with all their attempts (retry), or removes them (cancel): the jobs p_ids, or those of '
  'p_task; with p_tenant_id only those of a school, with p_is_failed only failed ones. The task `outbox` means events '
  'whose notifications are not written: p_ids, or all. Those that wait for another attempt have failed for `retry`, '
  'not for `cancel`. Running jobs are left alone, since graphile-worker refuses to change them. Returns {done: '
  '{<task>: count}, running: [ids], unknown: [ids]} and adds an entry to the audit log. Security definer, because '
  'operators may not change the queue.';
