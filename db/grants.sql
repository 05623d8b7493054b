-- The privileges of the roles: everything is revoked, then granted by list. test/db/grants.test.ts checks that the
-- privileges in the database match.
grant usage on schema core, api to school_api, school_tenant, school_platform;
-- Both roles need search_normal, operators also the tables below.
grant usage on schema platform to school_tenant, school_platform;
grant usage on schema core to school_worker;
-- No usage of the schema mart: analysts read its tables through the views only.
grant usage on schema analytics to school_analyst;

do $$ begin execute format('revoke temporary on database %I from public', current_database()); end $$;
select core.for_all_in('{core,api,platform}', 'functions', 'revoke all on function %s
  from public, school_api, school_tenant, school_platform, school_worker, school_analyst, school_graphql');
select core.for_all_in('{core,platform,mart}', 'tables', 'revoke all on table %s
  from public, school_api, school_tenant, school_platform, school_worker, school_analyst, school_graphql');

-- The API process: the dispatcher, rate limits, streams, readiness, and queue metrics.
grant execute on function
  core.accounts_at(text),
  core.admit(text, bigint, jsonb, jsonb),
  core.analytics_age(),
  core.backend_memory_mb(),
  core.call(text, bigint, jsonb, jsonb, bytea),
  core.call_impersonated(text, bigint, jsonb, jsonb, bytea),
  core.call_forwarded(text, bigint, jsonb, jsonb, bytea),
  core.count_requests(bytea[], integer[], integer),
  core.end_operator_sessions(bigint[]),
  core.ended_operator_sessions(bigint[]),
  core.has_analysts(),
  core.impersonation_note(bigint, text, bigint, text, jsonb),
  core.impersonators(bigint[]),
  core.is_copied(pg_lsn),
  core.node_queues(),
  core.node_reachability(),
  core.prepare_at_home(text, bigint, jsonb, jsonb),
  core.queue(),
  core.server_id(),
  core.readiness(),
  core.record_operation_times(text[], bigint[], bigint[], bigint[]),
  core.record_requests(bigint[], bigint[]),
  core.schools_of_sessions(bigint[]),
  core.search_path_of(bigint),
  core.second_factor_reencrypt(text[], text[]),
  core.second_factor_secrets(text, text, integer),
  core.stream_check(bigint[]),
  core.stream_read(bigint, bigint[], bigint[], integer, integer),
  core.stream_system(bigint[]),
  core.undo_at_home(jsonb),
  core.wal_position()
to school_api;
grant select on core.operation to school_api;

-- Operations can call only the functions of core that are listed here. Each operation can be called by the roles that
-- its access allows. The other functions of api can be called by both roles.
do $$
declare
  v_shared text[] := '{
    run_operation,run_write,may_read,is_wide_enough,is_feature_enabled,tenant_id,user_id,session_id,teacher_id,
    student_id,permissions,has_permission,permission_scope,
    sees_children,grants_children,scope_rank,has_permission_for_all,time_zone,day_at_school,day_begins,
    today,fail,refuse_field,diff,enqueue,enqueue_all,enabled_features,record_page,json_page,deleted_record,
    narrow_to_scope,search_patterns,
    sort_key,name_key,full_name,run_prepared,run_prepared_in_write,run_unprepared,search_path_of,parameters,prepare,
    evict_prepared_statements,max_prepared_statements,record_page_query,
    record_where,record_export_page,record_sort_keys,has_narrow_condition,is_search_prepared,record_insert,
    record_update,record_delete,record_lock,fail_missing,refuse_deleted_reference,set_row_scope,file_content,
    claim_idempotency_key,keep_idempotent_answer,require_match,require_version,names_version,version_of,version_for,
    version_of_answer,versioned_fields,is_restore,is_as_read,refuse_read_only,require_unchanged,as_timestamp,repeats,
    chosen,refuse_untrue,refuse_unread,is_set_by_service,fixed_names,
    record_values,unchanged_answer,unchanged_deleted_answer,may_see_deleted,
    with_present_moments,with_school_days,check_values,value_faults,order_fault,range_fault,is_stored,
    effective_rights,login_refusal,lock_rights,refresh_rights,session_set_rights,
    session_open,session_rotate,session_end,sessions_revoke,sessions_of,session_revoke,token_use,tokens_void,
    token_is_recent,login_attempt,own_password_attempt,login_succeeded,login_unlock,tenant_features,
    tenant_summary,recipient_variables,placeholder_names,template_format,fill_placeholders,render,impersonator,
    refuse_impersonator,clean_title,clean_message,written_day,
    currency_decimals,school_currency,own_currency,as_amount,written_amount,decimals_fault,
    idempotency_key_lifetime,picture_url,picture_file_id,
    queue_webhooks,wake_webhooks,login_challenge,login_challenge_use,is_enrollment,has_second_factor,
    needs_second_factor,
    second_factor_attempt,second_factor_use,second_factor_summary,second_factor_remove,second_factor_delete,
    recovery_codes_replace,totp_begin,totp_confirm,device_remember,
    api_key_id,own_idempotency_key,operator_access,lock_key,unknown_lock,webhook_secret_overlap,
    max_api_keys_per_user,calendar_feeds_end
  }';
  v_tenant_only text[] := '{
    enforce_plan_limits,tenant_usage,has_whole_school_scope,can_see_teacher_details,require_whole_school,class_staff,
    require_also,widen_scope,restore_scope,teachers_on_leave,
    subscription_status,subscription_plans,subscription_upgrade,
    school_rename,setup_complete,notify,send_message,school_allow_impersonation,
    is_impersonation_allowed,timetable_lease,roles_of_inactive_people,has_left,has_not_ended,rides,enrolled,class_roll,
    attending,given_left_on,left_on_faults,with_left_on,is_linked,children,
    is_visible_student,hides_contacts,has_own_scope,sees_guardian_details,
    is_second_factor_required,school_require_second_factor,
    audit_school,limit_to_reader,read_in_scope,may_compare,scope_of
  }';
  v_platform_only text[] := '{
    audit,is_reserved_subdomain,require_plan_fits,require_current_server,server_refusal,
    refuse_school_elsewhere,school_take_id,tenant_provision,
    impersonation_begin,price_currency,
    subscription_period,subscription_period_end,subscription_lapse,passkey_begin,passkey_add,passkey_remove,
    status,failed_jobs,change_jobs,operator_set,message_admins,next_question_run,may_receive_answers
  }';
  v_unknown text := (
    select string_agg(name, ', ')
    from unnest(v_shared || v_tenant_only || v_platform_only) name
    where name not in (select proname from core.functions_in('core')));
  v_granted record;
begin
  if v_unknown is not null then
    raise exception 'The schema core has no function %.', v_unknown;
  end if;
  -- One statement for each set of roles: every grant writes the function's row in the catalog again.
  for v_granted in
    select string_agg(f.signature::text, ', ') as functions, concat_ws(', ',
        case when f.to_tenant then 'school_tenant' end, case when f.to_platform then 'school_platform' end) as roles
    from (
      select p.oid::regprocedure as signature,
        case n.nspname
          when 'core' then p.proname = any (v_shared || v_tenant_only)
          else coalesce(o.access, '') not in ('platform', 'analyst')
        end as to_tenant,
        case n.nspname
          when 'core' then p.proname = any (v_shared || v_platform_only)
          else coalesce(o.access, '') <> 'tenant'
        end as to_platform
      from unnest('{core,api}'::text[]) n (nspname)
      cross join core.functions_in(n.nspname) p
      left join core.operation o on o.name = p.proname and n.nspname = 'api'
    ) f
    where f.to_tenant or f.to_platform
    group by f.to_tenant, f.to_platform
  loop
    execute format('grant execute on function %s to %s', v_granted.functions, v_granted.roles);
  end loop;
end $$;
grant select on core.webhook_event_type to school_tenant, school_platform;
grant select on core.school_audit_log to school_tenant;
grant select on core.currency, core.error, core.permission, core.record, core.notification_event
  to school_tenant, school_platform;
grant execute on function platform.search_normal(text) to school_tenant, school_platform;

-- Operators.
grant select on core.current_subscription, platform.tenant, platform.plan, platform.tenant_usage,
  platform.usage_day, platform.subscription, platform.audit_log,
  platform.state_transition, platform.user_account, platform.file, platform.idempotency_key
  to school_platform;
grant select (id, is_this, unreachable_since) on platform.node to school_platform;
grant insert (name, subdomain, contact_email, plan_id, trial_ends_at, feature_flags, time_zone),
  update (name, subdomain, contact_email, plan_id, trial_ends_at, feature_flags, time_zone, is_impersonation_allowed,
    status, suspended_at, deleted_at, updated_at)
  on platform.tenant to school_platform;
-- A row lock requires the update privilege on a column.
grant update (updated_at) on platform.tenant_usage to school_platform;
grant insert (tenant_id, plan_id, status, current_period_end),
  update (plan_id, status, started_at, current_period_end, grace_days, is_final, updated_at)
  on platform.subscription to school_platform;
grant insert (name, price_monthly, max_students, max_teachers, features, is_public),
  update (name, price_monthly, max_students, max_teachers, features, is_public, updated_at),
  delete
  on platform.plan to school_platform;
grant insert (email, first_name, last_name, role, analyst_tenant_ids),
  update (first_name, last_name, phone, password_hash, email_verified_at, profile_picture_id, last_login_at,
    updated_at)
  on platform.user_account to school_platform;
grant insert (content, content_type, name), delete on platform.file to school_platform;
grant insert (user_id, key, operation, request_hash),
  update (operation, request_hash, answer, created_at, updated_at)
  on platform.idempotency_key to school_platform;
grant select,
  update (in_app, push, email, sender_name, quiet_from, quiet_until, push_per_user_per_day, emails_per_user_per_day,
    updated_at)
  on platform.notification_setting to school_platform;
grant select, update (currency, updated_at) on platform.setting to school_platform;
grant select,
  insert (key, channel, subject, body, is_active),
  update (key, channel, subject, body, is_active, updated_at),
  delete
  on platform.notification_template to school_platform;
grant select,
  insert (owner_id, name, description, query, variables, schedule, recipient_ids, next_run_at),
  update (name, description, query, variables, schedule, recipient_ids, next_run_at, updated_at),
  delete
  on platform.saved_question to school_platform;
grant select,
  insert (user_id, name, role, tenant_ids, is_read_only, prefix, key_hash, expires_at),
  update (name, role, tenant_ids, is_read_only, expires_at, updated_at),
  delete
  on platform.api_key to school_platform;
grant select,
  insert (url, description, events, is_active, created_by),
  update (url, description, events, is_active, created_by, failing_since, failures, retry_at, disabled_at, updated_at),
  delete
  on platform.webhook to school_platform;
-- Only the worker reads the secrets.
grant select (id, webhook_id, expires_at),
  insert (webhook_id, secret),
  update (expires_at, updated_at),
  delete
  on platform.webhook_secret to school_platform;
grant select, insert (type, key, body) on platform.webhook_event to school_platform;
grant select,
  insert (webhook_id, event_id),
  update (status, reason, next_attempt_at, updated_at)
  on platform.webhook_delivery to school_platform;
select core.for_all_in('{platform}', 'sequences', 'grant usage on sequence %s to school_platform');

-- Analysts. The views of analytics are security invoker; row security limits analysts to their schools
-- (db/analytics/access.sql).
select core.for_all_in('{analytics,mart}', 'tables', 'grant select on table %s to school_analyst');
revoke select on mart.school from school_analyst;
grant select (tenant_id, refreshed_at) on mart.school to school_analyst;
grant select (id, name, subdomain, status, plan_id, is_setup_complete, trial_ends_at, time_zone, created_at)
  on platform.tenant to school_analyst;
grant select (tenant_id, students, teachers, classes) on platform.tenant_usage to school_analyst;
grant select (tenant_id, plan_id, status, started_at, current_period_end, grace_days, is_final) on platform.subscription
  to school_analyst;
grant select on core.current_subscription to school_analyst;
grant select (id, name, price_monthly) on platform.plan to school_analyst;
grant execute on function core.analytics_jobs() to school_analyst;

-- The worker: the queue, what its process needs, and the functions that the definitions of the jobs name.
grant execute on function
  core.analytics_age(),
  core.job_give_up(bigint),
  core.jobs(),
  core.lock_key(text, bigint),
  core.node_queues(),
  core.node_reachability(),
  core.outbox_schools(),
  core.outbox_write(bigint),
  core.queue(),
  core.readiness(),
  core.tenant_lock_key(bigint),
  core.unknown_lock(text),
  core.unlock_jobs(text, bigint[])
to school_worker;
grant select on core.job_type to school_worker;
do $$
declare
  v_call record;
begin
  for v_call in
    select t.name as job, call.name, p.oid::regprocedure as signature
    from core.job_type t
    cross join unnest(t.calls) call (name)
    left join core.functions_in('core') p on p.proname = call.name
  loop
    if v_call.signature is null then
      raise exception 'The job % calls core.%, which does not exist.', v_call.job, v_call.name;
    end if;
    execute format('grant execute on function %s to school_worker', v_call.signature);
  end loop;
end $$;
grant usage on schema graphile_worker to school_worker;
select core.for_all_in('{graphile_worker}', 'tables',
  'grant select, insert, update, delete on table %s to school_worker');
select core.for_all_in('{graphile_worker}', 'sequences', 'grant usage on sequence %s to school_worker');
select core.for_all_in('{graphile_worker}', 'functions', 'grant execute on function %s to school_worker');
do $$
declare
  v_table text;
begin
  for v_table in
    select relname from core.relations_in('graphile_worker') where relkind = 'r' and relrowsecurity
  loop
    execute format('drop policy if exists school_worker on graphile_worker.%I', v_table);
    execute format(
      'create policy school_worker on graphile_worker.%I to school_worker using (true) with check (true)', v_table);
  end loop;
end $$;

select core.remember_release();
