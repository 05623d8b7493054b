-- The only file that names the private tables of graphile-worker, so that an upgrade of the library changes only this
-- file: functions that read and change its queue, and the trigger of failed jobs. Function bodies are text instead of
-- `begin atomic`, so that the library can change its tables, and so that files which are installed earlier can use
-- these functions.

create function core.jobs() returns table (
    id bigint, task text, queue text, key text, payload json, state text, is_available boolean, priority smallint,
    attempts smallint, max_attempts smallint, run_at timestamptz, ready_since timestamptz, created_at timestamptz,
    updated_at timestamptz, locked_at timestamptz, locked_by text, last_error text, flags jsonb)
  language sql stable as $$
    select
      j.id,
      (select t.identifier from graphile_worker._private_tasks t where t.id = j.task_id),
      (select q.queue_name from graphile_worker._private_job_queues q where q.id = j.job_queue_id),
      j.key, j.payload,
      case
        when j.locked_at is not null then 'running'
        when j.attempts >= j.max_attempts then 'failed'
        when j.run_at > now() then 'waiting'
        else 'ready'
      end,
      j.is_available, j.priority, j.attempts, j.max_attempts,
      -- A scheduled job that was missed has the run_at that it missed, which can be before it was created.
      j.run_at, greatest(j.run_at, j.created_at), j.created_at, j.updated_at, j.locked_at, j.locked_by, j.last_error,
      j.flags
    from graphile_worker._private_jobs j
  $$;
comment on function core.jobs is
  'The jobs of the queue with their state: ready, waiting (for run_at), running, or failed (permanently). Postgres '
  'inlines it into the calling query.';

create function core.queued_tasks() returns setof text language sql stable as $$
  select identifier from graphile_worker._private_tasks
$$;
comment on function core.queued_tasks is 'The name of every task that a worker has registered or a job has had.';

create function core.task_name(p_task_id integer) returns text language sql stable as $$
  select identifier from graphile_worker._private_tasks where id = p_task_id
$$;
comment on function core.task_name is 'The name of the task with this id in the rows of the queue.';

create function core.delete_failed_jobs(p_age interval, p_limit integer) returns boolean
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_count bigint;
begin
  delete from graphile_worker._private_jobs
    where id = any (array(
      select id from graphile_worker._private_jobs
      where attempts >= max_attempts and locked_at is null and updated_at < now() - p_age
      limit p_limit
      for update skip locked));
  get diagnostics v_count = row_count;
  return v_count >= p_limit;
end $$;
comment on function core.delete_failed_jobs is
  'Deletes a batch of jobs without attempts left that failed longer ago. Returns whether there may be more.';

create function core.job_give_up(p_id bigint) returns void language sql as $$
  update graphile_worker._private_jobs set max_attempts = attempts where id = p_id
$$;
comment on function core.job_give_up is 'Makes the running attempt of a job its last one.';

create function core.delete_job(p_id bigint, p_task text) returns boolean
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  delete from graphile_worker._private_jobs
    where id = p_id and core.task_name(task_id) = p_task;
  return found;
end $$;
comment on function core.delete_job is 'Deletes a job of this task, though it runs. Returns whether it existed.';

create function core.unlock_jobs(p_worker text, p_ids bigint[] default null) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  -- graphile_worker.add_job with the key of a running job takes the key and the attempts from it, because the new job
  -- replaces it. No other statement changes a running job.
  delete from graphile_worker._private_jobs
    where locked_by = p_worker and (p_ids is null or id = any (p_ids))
      and key is null and attempts >= max_attempts and updated_at > locked_at;
  update graphile_worker._private_job_queues q
    set locked_at = null, locked_by = null
    where q.locked_by = p_worker and (p_ids is null or exists (
      select from graphile_worker._private_jobs j where j.job_queue_id = q.id and j.id = any (p_ids)));
  update graphile_worker._private_jobs
    set
      locked_at = null,
      locked_by = null,
      -- A worker that never got the job has not attempted it.
      attempts = case when p_ids is null then attempts else greatest(attempts - 1, 0) end
    where locked_by = p_worker and (p_ids is null or id = any (p_ids));
end $$;
comment on function core.unlock_jobs is
  'Gives jobs of a worker back: those that a living worker has locked and does not run (p_ids), or all of a crashed '
  'one (null). Jobs that another job has replaced meanwhile are deleted.';

create function core.move_jobs_hold(p_tenant_id bigint, out held integer, out running integer)
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  update graphile_worker._private_jobs
    set locked_at = 'infinity', locked_by = 'school move'
    where id in (
      select id from graphile_worker._private_jobs
      where core.job_school(payload) = p_tenant_id and locked_at is null
      for update skip locked);
  get diagnostics held = row_count;
  select count(*) into running
    from graphile_worker._private_jobs
    where core.job_school(payload) = p_tenant_id and locked_by is distinct from 'school move';
end $$;
comment on function core.move_jobs_hold is
  'Keeps workers from the waiting jobs of a school, so that they can be added on the other server. Returns how many '
  'they are, and how many are running.';

create function core.move_jobs_read(p_tenant_id bigint) returns json
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(json_agg(json_build_object(
      'task', task, 'payload', payload, 'priority', priority, 'run_at', run_at, 'attempts', attempts,
      'max_attempts', max_attempts, 'last_error', last_error, 'key', key, 'flags', flags, 'queue', queue)
      order by id), '[]')
    from core.jobs()
    where core.job_school(payload) = p_tenant_id and locked_by = 'school move'
  $$;
comment on function core.move_jobs_read is 'The jobs that core.move_jobs_hold has kept, for core.move_jobs_add.';

create function core.move_jobs_add(p_jobs json) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_job record;
  v_id bigint;
begin
  for v_job in
    select *
    from json_to_recordset(p_jobs) j (task text, payload json, queue text, run_at timestamptz, attempts smallint,
      max_attempts smallint, last_error text, key text, priority smallint, flags jsonb)
  loop
    select id into v_id from graphile_worker.add_job(
      v_job.task, v_job.payload, queue_name => v_job.queue, run_at => v_job.run_at, job_key => v_job.key,
      max_attempts => v_job.max_attempts::integer, priority => v_job.priority::integer,
      flags => array(select jsonb_object_keys(v_job.flags)));
    update graphile_worker._private_jobs
      set attempts = v_job.attempts, last_error = v_job.last_error
      where id = v_id;
  end loop;
end $$;
comment on function core.move_jobs_add is 'Adds the jobs of a moved school, with the attempts that they had.';

create function core.move_jobs_release(p_tenant_id bigint) returns void
  language sql set search_path = pg_catalog, pg_temp as $$
    update graphile_worker._private_jobs
      set locked_at = null, locked_by = null
      where core.job_school(payload) = p_tenant_id and locked_by = 'school move'
  $$;
comment on function core.move_jobs_release is 'Gives the jobs that core.move_jobs_hold has kept back to the workers.';

create function core.move_jobs_delete(p_tenant_id bigint) returns void
  language sql set search_path = pg_catalog, pg_temp as $$
    delete from graphile_worker._private_jobs
      where core.job_school(payload) = p_tenant_id and locked_by = 'school move'
  $$;
comment on function core.move_jobs_delete is
  'Deletes the jobs that core.move_jobs_hold has kept, after the school has moved.';

-- A job that failed at its last attempt, or whose worker crashed during it.
create trigger platform_events after update on graphile_worker._private_jobs
  for each row when (
    old.locked_at is not null and new.locked_at is null and new.attempts >= new.max_attempts
    and old.locked_by is distinct from 'school move')
  execute function core.record_platform_events('job');
