-- Queuing jobs.

create function core.enqueue_all(
    p_task text, p_payloads jsonb[], p_key text default null, p_run_at timestamptz default null) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if p_task not in ('send_email', 'send_invoice_reminder', 'deliver') then
    raise exception 'A request cannot queue jobs of the task %.', p_task;
  end if;
  perform graphile_worker.add_jobs(array(
    select (
      p_task,
      (payload || jsonb_build_object('tenant_id', core.tenant_id()))::json,
      null,
      p_run_at,
      10,
      't' || coalesce(core.tenant_id()::text, '0') || ':' || p_task || ':' || p_key,
      -- Deliveries have a lower priority than emails that a user waits for, like login links.
      case p_task when 'deliver' then 10 end,
      null
    )::graphile_worker.job_spec
    from unnest(p_payloads) payload));
end $$;
comment on function core.enqueue_all is
  'Queues jobs of one task in this transaction. The tenant comes from the context and is part of the job key. Security '
  'definer, because request roles have no access to the queue.';

create function core.enqueue(
    p_task text, p_payload jsonb, p_key text default null, p_run_at timestamptz default null) returns void language sql
  return core.enqueue_all(p_task, array[p_payload], p_key, p_run_at);
comment on function core.enqueue is 'Queues a job in this transaction.';
