-- Queuing jobs.

create type core.new_job as (payload jsonb, key text, run_at timestamptz);
comment on type core.new_job is
  'A job to queue. A job that is still waiting with the same key is replaced; without a key, none is.';

create function core.add_jobs(p_task text, p_jobs core.new_job[]) returns void language plpgsql as $$
declare
  -- Emails that a user waits for, such as login links, come before all other jobs.
  v_priority integer := case p_task
    when 'send_email' then 0
    when 'daily_school' then 5
    when 'deliver' then 10
    when 'send_invoice_reminder' then 10
    when 'analytics_schools' then 20
  end;
  v_max_attempts integer := case p_task
    when 'analytics_schools' then 3
    when 'daily_school' then 5
    else 10
  end;
begin
  if v_priority is null then
    raise exception 'The task % has no priority.', p_task;
  end if;
  perform graphile_worker.add_jobs(array(
    select (
      p_task, payload::json, null, run_at, v_max_attempts,
      coalesce('t' || (payload ->> 'tenant_id') || ':', '') || p_task || ':' || key,
      v_priority, null
    )::graphile_worker.job_spec
    from unnest(p_jobs)));
end $$;
comment on function core.add_jobs is
  'Queues jobs of one task in this transaction, with the priority and the number of attempts of the task. The school '
  'in the payload is part of the key. Not granted to request roles, because it accepts any task and school.';

create function core.enqueue_all(
    p_task text, p_payloads jsonb[], p_keys text[] default null, p_run_at timestamptz default null) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if p_task not in ('send_email', 'send_invoice_reminder', 'deliver') then
    raise exception 'A request cannot queue jobs of the task %.', p_task;
  end if;
  perform core.add_jobs(p_task, array(
    select (payload || jsonb_build_object('tenant_id', core.tenant_id()), key, p_run_at)::core.new_job
    from unnest(p_payloads, p_keys) job (payload, key)));
end $$;
comment on function core.enqueue_all is
  'Queues jobs of one task in this transaction. The tenant comes from the context and is part of the job key. Security '
  'definer, because request roles have no access to the queue.';

create function core.enqueue(
    p_task text, p_payload jsonb, p_key text default null, p_run_at timestamptz default null) returns void language sql
  return core.enqueue_all(p_task, array[p_payload], array[p_key], p_run_at);
comment on function core.enqueue is 'Queues a job in this transaction.';
