-- The job `send_due_notices`: notices about documents that expire.

-- Every hour, because it is morning at another hour in each time zone.
select core.define_job('send_due_notices',
  '{schools_due_for_document_check,notify_documents_expiring,schools_with_subscription_ending,subscription_daily}',
  p_former_names => '{notify_daily}', p_schedule => '11 * * * * ?max=3');

create function core.due_document_checks() returns table (tenant_id bigint) language sql stable as $$
  select id
  from core.schools_with('{transport,notifications}')
  where (now() at time zone time_zone)::time >= '07:00'
$$;
comment on function core.due_document_checks is
  'The schools with transport and notifications where it is 7:00 or later. Postgres inlines it, so that a condition on '
  'the id uses the index.';

create function core.schools_due_for_document_check() returns setof bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp
  begin atomic
    select tenant_id from core.due_document_checks() order by tenant_id;
  end;
comment on function core.schools_due_for_document_check is
  'The schools that core.notify_documents_expiring runs for.';

create function core.notify_documents_expiring(p_tenant_id bigint) returns integer
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[];
  v_new jsonb;
begin
  if not exists (select from core.due_document_checks() where tenant_id = p_tenant_id) then
    return 0;
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  with notice as materialized (
    select * from api.transport_expiring_notices()
  ), recorded as (
    insert into daily_run (task, run_on) select task, run_on from notice
      on conflict do nothing
      returning task, run_on
  )
  select jsonb_agg(jsonb_build_object('task', task, 'run_on', run_on) order by run_on, task)
    into v_new
    from recorded;
  if v_new is not null then
    perform core.notify('transport.expiring', jsonb_build_object('notices', v_new));
  end if;
  perform core.leave_tenant(v_before);
  return coalesce(jsonb_array_length(v_new), 0);
end $$;
comment on function core.notify_documents_expiring is
  'Notifies api.transport_managers() of expiring documents of buses and drivers, once per document and reminder '
  '(api.transport_expiring_notices). Returns the number of new reminders.';
