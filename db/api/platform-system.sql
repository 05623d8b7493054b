-- /api/platform/system and /api/platform/jobs: the state of the installation, and jobs that have failed.

select core.define_operation('platform_system', p_access => 'platform', p_needs_session => false);
select core.define_operation('platform_system_stream', p_access => 'platform');
select core.define_operation('platform_jobs_list', p_access => 'platform', p_needs_session => false);
select core.define_operation('platform_jobs_retry', p_access => 'platform', p_needs_session => false,
  p_errors => '{invalid_state}');
select core.define_operation('platform_jobs_cancel', p_access => 'platform', p_needs_session => false,
  p_errors => '{invalid_state}');

create function api.platform_system(p jsonb) returns json language sql stable
  return core.status(p_with_size => false);
comment on function api.platform_system is 'The state of the installation (core.status).';

create function api.platform_system_stream(p jsonb) returns json language sql stable
  return to_json(true);
comment on function api.platform_system_stream is
  'Admits the operator. The API process then reads the state with core.stream_system.';

create function api.platform_jobs_list(p jsonb) returns json language sql stable as $$
  select core.json_page(json_agg(json_build_object(
      'id', id, 'task', task, 'tenant_id', tenant_id, 'subdomain', subdomain, 'attempts', attempts,
      'max_attempts', max_attempts, 'error', error, 'next_run_at', next_run_at)), p)
  from core.failed_jobs(p ->> 'task', 1000);
$$;
comment on function api.platform_jobs_list is
  'Jobs that have failed at least once, permanently failed ones first, then the newest first; at most 1000. Filter: '
  'task. Searches all fields.';

create function api.job_change(p_action text, p_id bigint) returns json language plpgsql as $$
declare
  v_result json := core.change_jobs(p_action, array[p_id], null, false);
begin
  if json_array_length(v_result -> 'running') > 0 then
    perform core.fail('invalid_state', format('The job %s is running.', p_id));
  elsif (v_result -> 'done')::text = '{}' then
    -- Never queued, or it ended a moment ago.
    perform core.fail('not_found', format('There is no job %s. Finished jobs are removed from the queue.', p_id));
  end if;
  return json_build_object('id', p_id);
end $$;
comment on function api.job_change is
  'Runs a job again now (retry) or removes it (cancel). Raises not_found, invalid_state for a running job.';

create function api.platform_jobs_retry(p jsonb) returns json language sql
  return api.job_change('retry', (p ->> 'id')::bigint);
comment on function api.platform_jobs_retry is
  'Runs a failed or waiting job now, with all its attempts. Raises not_found, invalid_state for a running job.';

create function api.platform_jobs_cancel(p jsonb) returns json language sql
  return api.job_change('cancel', (p ->> 'id')::bigint);
comment on function api.platform_jobs_cancel is
  'Removes a job from the queue. Raises not_found, invalid_state for a running job.';
