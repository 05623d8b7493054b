-- Queuing jobs.

create type core.new_job as (payload jsonb, key text, run_at timestamptz);
comment on type core.new_job is
  'A job to queue. A job that is still waiting with the same key is replaced; without a key, none is.';

-- One email to a user, or up to ten messages of a job `deliver`, which sends several at a time.
create function core.bulk_weight(p_task text, p_payload jsonb) returns integer language sql immutable
  return case p_task when 'deliver' then ceil(coalesce(
    jsonb_array_length(p_payload -> 'only'), (p_payload ->> 'to_id')::bigint - (p_payload ->> 'from_id')::bigint + 1
  ) / 10.0)::integer else 1 end;
comment on function core.bulk_weight is 'How many slots a job takes in the order of bulk messages.';

-- Messages of all schools share a range of priorities: emails that a user waits for from -32,000 to -1, one per slot,
-- and bulk messages from 9 to 32,000, two per slot, first invitations. The jobs of a school take consecutive slots, so
-- that the worker takes turns between schools. They begin behind the waiting ones of the same school, or else at the
-- slot that the worker has reached. A school whose last job is not among the last 1,000 of the queue begins there as
-- well: others have more waiting. This reads the queue instead of a counter, because transactions of one school would
-- wait for each other to change a counter.
-- Without statistics of the queue, whose size changes quickly, Postgres would sort all of it, and plan each call though
-- the plan never depends on the range.
create function core.next_slot(p_tenant_id text, p_first integer, p_last integer, p_step integer) returns integer
  language plpgsql stable set enable_sort = off set plan_cache_mode = force_generic_plan as $$
begin
  return coalesce(greatest(
    (
      select (j.priority - p_first) / p_step
      from core.jobs() j
      where j.is_available and j.priority between p_first and p_last and j.run_at <= now()
      order by j.priority, j.run_at limit 1
    ),
    (
      -- Reads from the end of the queue and stops at the last job of this school.
      select (waiting.priority - p_first) / p_step + 1
      from (
        select j.priority, j.payload
        from core.jobs() j
        where j.is_available and j.priority between p_first and p_last
        order by j.priority desc, j.run_at desc limit 1000
      ) waiting
      where waiting.payload ->> 'tenant_id' is not distinct from p_tenant_id
      order by waiting.priority desc limit 1
    )), 0);
end $$;
comment on function core.next_slot is
  'The slot of the next message of a school in the order of all schools, in a range of priorities with p_step '
  'priorities per slot.';

create function core.add_jobs(p_task text, p_jobs core.new_job[]) returns void language plpgsql as $$
declare
  v_type record;
begin
  select * into v_type from core.job_type where name = p_task and (priority is not null or takes_turns);
  if not found then
    raise exception 'No job % with a priority is defined.', p_task;
  end if;
  perform graphile_worker.add_jobs(array(
    with job as (
      select j.*, j.payload ->> 'tenant_id' as tenant_id,
        v_type.takes_turns and (p_task <> 'send_email' or j.payload ->> 'kind' = 'invitation') as is_bulk,
        p_task = 'send_email' and j.payload ->> 'kind' is distinct from 'invitation' as is_urgent,
        core.bulk_weight(p_task, j.payload) as weight
      from unnest(p_jobs) with ordinality j (payload, key, run_at, number)
    ), school as materialized (
      select tenant_id, is_urgent,
        case
          when is_urgent then core.next_slot(tenant_id, -32000, -1, 1)
          else core.next_slot(tenant_id, 9, 32000, 2)
        end as next_slot
      from job
      where is_bulk or is_urgent
      group by tenant_id, is_urgent
    ), placed as (
      select job.*,
        -- A job comes where its last message would.
        s.next_slot - 1 + sum(weight) over (partition by job.tenant_id, job.is_urgent order by number) as slot
      from job
      left join school s on s.tenant_id is not distinct from job.tenant_id and s.is_urgent = job.is_urgent
    )
    select (
      p_task, payload::json,
      case when v_type.one_per_school then coalesce('t' || tenant_id, 'platform') || ':' || p_task end,
      run_at, v_type.max_attempts,
      coalesce('t' || tenant_id || ':', '') || p_task || ':' || key,
      case
        when is_urgent then least(-32000 + slot, -1)
        when is_bulk then least(case when p_task = 'send_email' then 9 else 10 end + 2 * slot, 32000)
        else v_type.priority
      end,
      case when v_type.is_slow then '{slow}'::text[] end
    )::graphile_worker.job_spec
    from placed
    order by number));
end $$;
comment on function core.add_jobs is
  'Queues jobs of one task in this transaction, with the priority and the number of attempts of the task. Emails, '
  'reminders and notifications of different schools take turns. The school in the payload is part of the key. Not '
  'granted to request roles, because it accepts any task and school.';

create function core.enqueue_all(
    p_task text, p_payloads jsonb[], p_keys text[] default null, p_run_at timestamptz default null) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_traceparent constant text := core.context_value('traceparent');
  v_trace constant jsonb := case when v_traceparent is null then '{}' else
    jsonb_build_object('traceparent', v_traceparent) end;
begin
  if not exists (select from core.job_type where name = p_task and for_requests) then
    raise exception 'A request cannot queue jobs of the task %.', p_task;
  end if;
  perform core.add_jobs(p_task, array(
    select (payload || jsonb_build_object('tenant_id', core.tenant_id()) || v_trace, key, p_run_at)::core.new_job
    from unnest(p_payloads, p_keys) job (payload, key)));
end $$;
comment on function core.enqueue_all is
  'Queues jobs of one task in this transaction. The tenant comes from the context and is part of the job key. Security '
  'definer, because request roles have no access to the queue.';

create function core.enqueue(p_task text, p_payload jsonb, p_key text default null) returns void language sql
  return core.enqueue_all(p_task, array[p_payload], array[p_key]);
comment on function core.enqueue is 'Queues a job in this transaction.';
