-- /api/platform: operations of operators. The dispatcher raises an error if a write adds no audit entry.

select core.define_operation('platform_overview', p_access => 'platform', p_needs_session => false);
select core.define_operation('platform_tenants_list', p_access => 'platform', p_needs_session => false);
select core.define_operation('platform_tenants_get', p_access => 'platform', p_needs_session => false,
  p_record => 'tenant');
select core.define_operation('platform_tenants_create', p_access => 'platform', p_needs_session => false,
  p_idempotent => true, p_record => 'tenant', p_runs_on => 'new_school',
  p_errors => '{conflict,invalid_state,invalid_reference}');
select core.define_operation('platform_tenants_update', p_access => 'platform', p_needs_session => false,
  p_record => 'tenant', p_runs_on => 'school', p_errors => '{conflict,invalid_state,invalid_reference}');
select core.define_operation('platform_tenants_delete', p_access => 'platform', p_needs_session => false,
  p_record => 'tenant', p_runs_on => 'school', p_errors => '{invalid_state}');
select core.define_operation('platform_tenants_suspend', p_access => 'platform', p_needs_session => false,
  p_record => 'tenant', p_runs_on => 'school', p_errors => '{invalid_state}');
select core.define_operation('platform_tenants_activate', p_access => 'platform', p_needs_session => false,
  p_record => 'tenant', p_runs_on => 'school', p_errors => '{invalid_state}');
select core.define_operation('platform_tenants_restore', p_access => 'platform', p_needs_session => false,
  p_record => 'tenant', p_runs_on => 'school', p_errors => '{conflict,invalid_state}');
select core.define_operation('platform_subscriptions_update', p_access => 'platform', p_needs_session => false,
  p_record => 'tenant', p_present => 'tenant_subscription', p_runs_on => 'school', p_errors => '{invalid_state}');
select core.define_operation('platform_plans_list', p_access => 'platform', p_needs_session => false);
select core.define_operation('platform_plans_get', p_access => 'platform', p_needs_session => false,
  p_record => 'plan');
select core.define_operation('platform_plans_create', p_access => 'platform', p_needs_session => false,
  p_idempotent => true, p_record => 'plan', p_errors => '{conflict}');
select core.define_operation('platform_plans_update', p_access => 'platform', p_needs_session => false,
  p_record => 'plan', p_errors => '{conflict}');
select core.define_operation('platform_plans_delete', p_access => 'platform', p_needs_session => false,
  p_record => 'plan', p_errors => '{in_use}');
select core.define_operation('platform_settings_get', p_access => 'platform', p_needs_session => false,
  p_unversioned_fields => '{warnings}');
select core.define_operation('platform_settings_update', p_access => 'platform', p_needs_session => false,
  p_present => 'platform_settings_get', p_locked_by => 'lock_platform_settings');
select core.define_operation('platform_audit_logs_list', p_access => 'platform', p_needs_session => false);

select core.define_record('tenant', p_table => 'tenant', p_key => 't.id',
  p_source => $$
    tenant t join plan p on p.id = t.plan_id left join tenant_usage u on u.tenant_id = t.id
      left join core.current_subscription s on s.tenant_id = t.id
  $$,
  p_columns => $$
    t.id, t.name, t.subdomain, t.status, json_build_object('id', p.id, 'name', p.name) as plan, t.is_setup_complete,
    t.trial_ends_at, t.contact_email, t.feature_flags,
    core.enabled_features(p.features, t.feature_flags) as enabled_features,
    json_build_object('status', s.status, 'started_at', s.started_at, 'current_period_end', s.current_period_end,
      'grace_days', s.grace_days, 'grace_ends_at', s.grace_ends_at, 'is_final', s.is_final) as subscription,
    json_build_object('total_students', coalesce(u.students, 0), 'total_teachers', coalesce(u.teachers, 0),
      'total_classes', coalesce(u.classes, 0)) as stats,
    t.time_zone, t.is_impersonation_allowed, t.deleted_at, t.created_at, t.updated_at
  $$,
  p_search => $$
    (position(:phrase in public.search_form(t.name)) > 0
      or position(:phrase in t.subdomain) > 0
      or position(:phrase in public.search_form(t.contact_email)) > 0)
  $$,
  p_ended => $$t.status = 'deleted'$$,
  p_equals => '{plan_id,status}',
  p_default_sort => 'created_at', p_default_order => 'desc',
  p_writable => '{name,subdomain,contact_email,plan_id,trial_ends_at,feature_flags,time_zone,is_impersonation_allowed}',
  p_volatile_fields => '{stats,recent_audit_logs,unreachable_since,subscription.status,subscription.grace_ends_at}',
  p_fixed_fields => '{plan,subscription}', p_reader => 'tenant_detail');
select core.define_sort('tenant', 'name', 'platform.search_normal(t.name)');
select core.define_sort('tenant', 'subdomain', 't.subdomain');
select core.define_sort('tenant', 'status', 't.status');
select core.define_sort('tenant', 'plan', 'p.name');
select core.define_sort('tenant', 'trial_ends_at', 't.trial_ends_at nulls last');
select core.define_sort('tenant', 'created_at', 't.created_at');
select core.define_sort('tenant', 'total_students', 'coalesce(u.students, 0)');

select core.define_functions('platform_tenants', 'tenant',
  p_list =>
    'Schools, latest first. Searches name, subdomain and contact email for the search as one text. Filters: plan_id, '
    'status. Deleted schools only with status=deleted or include_ended.',
  p_get => 'One school with its latest audit entries. Raises not_found.');

select core.define_record('plan', p_table => 'plan', p_key => 'p.id', p_one_row_per_key => true,
  p_source => 'plan p',
  p_columns => $$
    p.id, p.name, p.price_monthly, core.price_currency() as currency,
    core.currency_decimals(core.price_currency()) as currency_decimals, p.max_students, p.max_teachers,
    json_build_object('features', p.features) as features_json, p.is_public,
    (select count(*) from tenant t where t.plan_id = p.id and t.status <> 'deleted') as tenant_count, p.created_at,
    p.updated_at
  $$,
  p_search => 'public.search_form(p.name)',
  p_default_sort => 'price_monthly',
  p_writable => '{name,price_monthly,max_students,max_teachers,features,is_public}',
  p_volatile_fields => '{tenant_count}');
select core.define_sort('plan', 'name', 'lower(p.name)');
select core.define_sort('plan', 'price_monthly', 'p.price_monthly');
select core.define_sort('plan', 'max_students', 'p.max_students');
select core.define_sort('plan', 'created_at', 'p.created_at');

select core.define_functions('platform_plans', 'plan',
  p_list => 'Plans by price. Searches the name.',
  p_get => 'One plan with the number of its schools. Raises not_found.');

select core.define_record('audit_log', p_table => 'audit_log', p_key => 'a.id', p_one_row_per_key => true,
  p_source => 'audit_log a left join tenant t on t.id = a.tenant_id',
  p_columns => $$
    a.id, json_build_object('id', a.actor_id, 'email', a.actor_email) as actor,
    case when a.impersonated_user_id is not null
      then json_build_object('id', a.impersonated_user_id, 'email', a.impersonated_email) end as impersonated,
    a.action, a.tenant_id, t.name as tenant_name,
    a.target_type, a.target_id, a.changes, a.ip, a.user_agent, a.request_id, a.created_at
  $$,
  p_search => $$public.search_form(concat_ws(' ', a.action, a.actor_email, a.impersonated_email))$$,
  p_equals => '{tenant_id,action,actor_id}',
  p_default_sort => 'created_at', p_default_order => 'desc');
select core.define_filter('audit_log', 'from_date', 'a.created_at >= :value::date');
select core.define_filter('audit_log', 'to_date', 'a.created_at < (select :value::date + 1)');
select core.define_filter('audit_log', 'about', $$
  (:value <> 'subscription'
    or a.action like 'subscription.%' or a.changes ?| '{subscription,plan,trial_ends_at}')
$$);
-- Not by id: entries of nodes have higher ids than those of the home.
select core.define_sort('audit_log', 'created_at', 'a.created_at');
select core.define_sort('audit_log', 'action', 'a.action');

select core.define_functions('platform_audit_logs', 'audit_log',
  p_list =>
    'The audit log, latest entries first. Filters: tenant_id, action, actor_id, from_date and to_date (days in UTC, '
    'both inclusive), and about = subscription: changes of a subscription, its plan or its trial.');

create function api.audited(p_action text, p_before jsonb, p_after json) returns json language plpgsql as $$
declare
  v_target text := split_part(p_action, '.', 1);
  v_id bigint := coalesce(p_after ->> 'id', p_before ->> 'id')::bigint;
begin
  perform core.audit(p_action, v_target, v_id, case when v_target = 'tenant' then v_id end,
    core.diff(p_before, p_after::jsonb));
  return coalesce(p_after, json_build_object('id', v_id));
end $$;
comment on function api.audited is
  'Audits the change of a record and returns its current state, or {id} if it was deleted. p_action is '
  '<record>.<verb>. p_before is null for new, p_after for deleted records.';

create function api.platform_overview(p jsonb) returns json language sql stable as $$
  select json_build_object(
    'total_tenants', count(*) filter (where status <> 'deleted'),
    'active_tenants', count(*) filter (where status = 'active'),
    'suspended_tenants', count(*) filter (where status = 'suspended'),
    'signups_this_month', count(*) filter (where status <> 'deleted' and created_at >= date_trunc('month', now())),
    'signups_by_month', (
      select json_agg(
        json_build_object(
          'month', to_char(month, 'YYYY-MM'),
          'signups', (
            select count(*)
            from tenant t
            where t.status <> 'deleted' and t.created_at >= month and t.created_at < month + interval '1 month'
          ))
        order by month)
      from generate_series(
        date_trunc('month', now()) - interval '11 months', date_trunc('month', now()), interval '1 month') month
    ),
    'recent_audit_logs', core.record_page('audit_log', '{"pageSize": 10}', false) -> 'data')
  from tenant;
$$;
comment on function api.platform_overview is
  'Totals, sign-ups of this month and of the last twelve months, the latest audit entries.';

create function api.tenant_detail(p_id bigint) returns json language sql stable as $$
  select (api.tenant_record(p_id)::jsonb || jsonb_build_object(
    'unreachable_since', (
      select n.unreachable_since
      from platform.tenant t
      join platform.node n on n.id = t.node_id
      where t.id = p_id and not n.is_this
    ),
    'recent_audit_logs',
    core.record_page('audit_log', jsonb_build_object('tenant_id', p_id, 'pageSize', 10), false) -> 'data'))::json;
$$;
comment on function api.tenant_detail is
  'One school with its latest audit entries, and since when its node does not answer. Raises not_found.';

create function api.tenant_check(p jsonb) returns void language plpgsql stable as $$
begin
  if core.is_reserved_subdomain(p ->> 'subdomain') then
    perform core.refuse_field('validation_error', 'subdomain', 'This subdomain is reserved. Choose another one.');
  end if;
  -- The view reads a file for each time zone of the world.
  if p ->> 'time_zone' is not null then
    -- Postgres also takes POSIX time zones, in which +05:00 is west of Greenwich.
    if p ->> 'time_zone' not in (select name from pg_timezone_names where name ~ '/' or name = 'UTC') then
      perform core.refuse_field('validation_error', 'time_zone',
        'This time zone does not exist. Use a name like Europe/Berlin.');
    end if;
  end if;
end $$;
comment on function api.tenant_check is 'Raises validation_error for reserved subdomains and unknown time zones.';

create function api.tenant_columns(p jsonb, p_plan_id bigint default null) returns jsonb language plpgsql stable as $$
declare
  v_plan_id jsonb := core.chosen(p -> 'plan_id', p #> '{plan,id}', to_jsonb(p_plan_id), 'plan.id', 'plan_id');
begin
  return p || case when v_plan_id is null then '{}' else jsonb_build_object('plan_id', v_plan_id) end;
end $$;
comment on function api.tenant_columns is
  'Maps the request fields plan_id and plan {id} of a school, which has the plan p_plan_id, to the column.';

create function api.platform_tenants_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  perform core.require_current_server();
  perform api.tenant_check(p);
  -- The index of subdomains would wait until the other school is complete, longer than requests may wait for a lock.
  if not pg_try_advisory_xact_lock(core.lock_key('new school', hashtext(lower(p ->> 'subdomain')))) then
    perform core.refuse_field('conflict', 'subdomain', 'A school with this subdomain is being created.');
  end if;
  -- For the trigger of ready-schools.sql.
  perform set_config('app.takes_ready_school', 'yes', true);
  v_id := core.record_insert('tenant', api.tenant_columns(p));
  -- On a node, the home has reserved the id. No request can name one.
  if p ? 'reserved_id' then
    perform core.school_take_id(v_id, (p ->> 'reserved_id')::bigint);
    v_id := (p ->> 'reserved_id')::bigint;
  end if;
  insert into subscription (tenant_id, plan_id, status, current_period_end)
    select
      id,
      plan_id,
      case
        when trial_ends_at is null then 'active'
        when trial_ends_at > now() then 'trialing'
        else 'past_due'
      end,
      case
        when trial_ends_at is null then core.subscription_period_end(time_zone)
        -- After a trial in the past the grace period starts now.
        else greatest(trial_ends_at, now())
      end
    from tenant
    where id = v_id;
  perform core.tenant_provision(v_id, jsonb_build_object(
    'email', coalesce(p ->> 'admin_email', lower(p ->> 'contact_email')),
    'password_hash', p ->> 'password_hash',
    'first_name', p ->> 'admin_first_name',
    'last_name', p ->> 'admin_last_name'));
  perform api.audited('tenant.create', null, api.tenant_record(v_id));
  return api.tenant_detail(v_id);
end $$;
comment on function api.platform_tenants_create is
  'Creates a school with its schema, roles, first admin and subscription, in one transaction. Without a password the '
  'admin gets an invitation. admin_email defaults to contact_email. The subscription is trialing until trial_ends_at, '
  'past_due if that has passed, and active for a month without it. Raises conflict for a subdomain that is in use, '
  'invalid_reference for an unknown plan.';

create function api.tenant_changed(p_action text, p_before jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p_before ->> 'id')::bigint;
begin
  perform api.audited(p_action, p_before, api.tenant_record(v_id));
  return api.tenant_detail(v_id);
end $$;
comment on function api.tenant_changed is 'Audits the change of a school since p_before and returns the school.';

create function api.subscription_set(p_tenant_id bigint, p_status text, p_period_end timestamptz) returns void
  language plpgsql as $$
begin
  update subscription
    set
      status = p_status,
      started_at = case when p_status in ('trialing', 'active') then now() else started_at end,
      current_period_end = p_period_end,
      is_final = is_final and p_status = 'cancelled'
    where tenant_id = p_tenant_id and status <> p_status;
  if not found then
    update subscription set current_period_end = p_period_end where tenant_id = p_tenant_id;
  end if;
end $$;
comment on function api.subscription_set is
  'Sets the status of a subscription and the end of its period. A trial or a paid period that begins starts now. Call '
  'core.subscription_lapse first. Raises invalid_state for a change that platform.state_transition does not list.';

create function api.subscription_follow_trial(p_tenant_id bigint, p_before timestamptz) returns void
  language plpgsql as $$
declare
  v_subscription record;
begin
  perform core.subscription_lapse(p_tenant_id);
  select t.trial_ends_at, t.time_zone, s.status
    into v_subscription
    from tenant t
    join core.current_subscription s on s.tenant_id = t.id
    where t.id = p_tenant_id;
  if v_subscription.trial_ends_at is not distinct from p_before or v_subscription.status = 'active' then
    return;
  elsif v_subscription.trial_ends_at > now() then
    perform api.subscription_set(p_tenant_id, 'trialing', v_subscription.trial_ends_at);
  elsif v_subscription.status = 'trialing' and v_subscription.trial_ends_at is null then
    perform api.subscription_set(p_tenant_id, 'active', core.subscription_period_end(v_subscription.time_zone));
  elsif v_subscription.status = 'trialing' then
    perform api.subscription_set(p_tenant_id, 'past_due', now());
  end if;
end $$;
comment on function api.subscription_follow_trial is
  'Applies a changed end of the trial of a school to its subscription, unless that is active: a trial lasts until the '
  'new end, which also restarts one that has ended or was cancelled; it ends now if the new end has passed; without an '
  'end it becomes active for a month, like that of a new school. p_before is the previous end.';

create function api.platform_tenants_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before jsonb := api.tenant_record(v_id);
  v_columns jsonb := api.tenant_columns(p, (v_before #>> '{plan,id}')::bigint);
  v_plan_id bigint := v_columns ->> 'plan_id';
begin
  perform api.tenant_check(p);
  if v_before ->> 'status' = 'deleted' then
    perform core.fail('invalid_state', 'This school is deleted. Restore it first.');
  elsif (p ->> 'is_impersonation_allowed')::boolean and not (v_before ->> 'is_impersonation_allowed')::boolean then
    perform core.refuse_field('forbidden', 'is_impersonation_allowed',
      'Only an admin of the school can allow operators to log in again.');
  end if;
  perform core.record_update('tenant', v_columns);
  if p ? 'trial_ends_at' then
    perform api.subscription_follow_trial(v_id, (v_before ->> 'trial_ends_at')::timestamptz);
  end if;
  -- A school may exceed the limits of the plan that it has, and clients send the plan back as they read it.
  if v_plan_id <> (v_before #>> '{plan,id}')::bigint then
    perform core.require_plan_fits(v_id, v_plan_id);
  end if;
  if v_plan_id is not null then
    update subscription set plan_id = v_plan_id where tenant_id = v_id;
  end if;
  return api.tenant_changed('tenant.update', v_before);
end $$;
comment on function api.platform_tenants_update is
  'Updates a school; its subscription gets the same plan and follows a changed end of the trial '
  '(api.subscription_follow_trial). Disallowing impersonations ends current ones. Raises conflict for a plan whose '
  'limits the school exceeds, forbidden when an operator allows impersonations again.';

create function api.tenant_subscription(p jsonb) returns json language sql stable as $$
  select (tenant || (tenant -> 'subscription'))::json
  from (values (api.tenant_detail((p ->> 'id')::bigint)::jsonb)) t (tenant);
$$;
comment on function api.tenant_subscription is
  'A school with the fields of its subscription, which a change of the subscription may repeat. The status is that of '
  'the subscription.';

create function api.platform_subscriptions_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before jsonb;
  v_period_end timestamptz := (p ->> 'current_period_end')::timestamptz;
  v_status text;
begin
  perform core.subscription_lapse(v_id);
  v_before := api.tenant_record(v_id);
  v_period_end := nullif(v_period_end, (v_before #>> '{subscription,current_period_end}')::timestamptz);
  if v_before ->> 'status' = 'deleted' then
    perform core.fail('invalid_state', 'This school is deleted. Restore it first.');
  elsif v_before #>> '{subscription,status}' is null then
    perform core.fail('invalid_state', 'This school has no subscription.');
  elsif v_period_end <= now() then
    perform core.refuse_field('validation_error', 'current_period_end', 'must be in the future');
  end if;
  if p ->> 'status' = 'past_due' then
    if v_before #>> '{subscription,status}' <> 'past_due' then
      perform core.refuse_field('validation_error', 'status', 'must be trialing, active or cancelled');
    end if;
    p := p - 'status';
  end if;
  v_status := coalesce(p ->> 'status', case
    when v_period_end is not null and v_before #>> '{subscription,status}' <> 'trialing' then 'active'
    else v_before #>> '{subscription,status}'
  end);
  if v_status = 'cancelled' and v_period_end is not null then
    perform core.refuse_field('validation_error', 'current_period_end', 'cannot be set with the status cancelled');
  elsif v_status <> v_before #>> '{subscription,status}' then
    v_period_end := coalesce(v_period_end, case v_status
      when 'active' then core.subscription_period_end(v_before ->> 'time_zone')
      when 'cancelled' then least((v_before #>> '{subscription,current_period_end}')::timestamptz, now())
    end);
    if v_period_end is null then
      perform core.refuse_field('validation_error', 'current_period_end', 'is required to start a trial');
    end if;
  end if;
  if (p ->> 'is_final')::boolean and v_status <> 'cancelled' then
    perform core.refuse_field('validation_error', 'is_final', 'can only be true for the status cancelled');
  end if;
  if p ? 'grace_days' then
    update subscription set grace_days = (p ->> 'grace_days')::integer where tenant_id = v_id;
  end if;
  if v_period_end is not null then
    perform api.subscription_set(v_id, v_status, v_period_end);
    if v_status = 'trialing' then
      update tenant set trial_ends_at = v_period_end where id = v_id;
    end if;
  end if;
  if p ? 'is_final' then
    update subscription set is_final = (p ->> 'is_final')::boolean where tenant_id = v_id;
  end if;
  perform core.audit('subscription.update', 'tenant', v_id, v_id,
    core.diff(v_before, api.tenant_record(v_id)::jsonb));
  return api.tenant_detail(v_id);
end $$;
comment on function api.platform_subscriptions_update is
  '{status?, current_period_end?, grace_days?, is_final?}: renews, extends, cancels or reactivates the subscription of '
  'a school. past_due is accepted as the present status, and is as if it were absent. An end alone extends a trial; it '
  'activates any other subscription. active without an end starts a month now, unless it is active already. cancelled '
  'takes effect now; with is_final, the school cannot choose a plan again until an operator changes the status. '
  'trialing needs an end. Audited. Raises invalid_state for a school without a '
  'subscription and for a trial of an active one.';

create function api.tenant_change_status(p jsonb, p_action text) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before jsonb := api.tenant_record(v_id);
  v_to text;
begin
  select st.to_state
    into v_to
    from tenant t
    join state_transition st on st.entity = 'tenant' and st.action = p_action and st.from_state = t.status
    where t.id = v_id
    order by (st.to_state = 'suspended') = (t.suspended_at is not null) desc
    limit 1;
  if v_to is null then
    perform core.fail('invalid_state', format(
      'The status of this school cannot change from %s to %s.',
      v_before ->> 'status',
      (select min(to_state) from state_transition where entity = 'tenant' and action = p_action)));
  end if;
  update tenant set
      status = v_to,
      suspended_at = case when v_to = 'active' then null when p_action = 'suspend' then now() else suspended_at end,
      deleted_at = case when v_to = 'deleted' then now() end
    where id = v_id;
  return api.tenant_changed('tenant.' || p_action, v_before);
end $$;
comment on function api.tenant_change_status is
  'Changes the status of a school along platform.state_transition. Restoring a school that was suspended leaves it '
  'suspended. Audited. Raises invalid_state.';

create function api.platform_tenants_suspend(p jsonb) returns json language sql as $$
  select api.tenant_change_status(p, 'suspend');
$$;
comment on function api.platform_tenants_suspend is
  'Suspends a school: its users get tenant_suspended from their next request on. Audited. Raises invalid_state unless '
  'it is active.';

create function api.platform_tenants_activate(p jsonb) returns json language sql as $$
  select api.tenant_change_status(p, 'activate');
$$;
comment on function api.platform_tenants_activate is
  'Activates a suspended school. Audited. Raises invalid_state if it is not suspended.';

create function api.platform_tenants_delete(p jsonb) returns json language plpgsql as $$
begin
  perform api.tenant_change_status(p, 'delete');
  return json_build_object('id', (p ->> 'id')::bigint);
end $$;
comment on function api.platform_tenants_delete is
  'Soft-deletes a school: it disappears from all lists, its users cannot log in, and its subdomain stays reserved. Its '
  'data are kept until the retention period ends. Audited.';

create function api.platform_tenants_restore(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  -- The lock prevents a concurrent purge.
  perform from tenant where id = v_id for no key update;
  if exists (select from tenant where id = v_id and status = 'deleted' and schema_version = 0) then
    perform core.fail('invalid_state', format(
      'This school was purged after its retention period. Import its file: npm run school -- tenant import %s',
      coalesce((
        select changes #>> '{file,after}'
        from audit_log
        where tenant_id = v_id and action = 'tenant.purge'
        order by id desc
        limit 1
      ), '<file>')));
  end if;
  return api.tenant_change_status(p, 'restore');
end $$;
comment on function api.platform_tenants_restore is
  'Restores a deleted school with all its data. Audited. Raises invalid_state if it is not deleted, or if it was '
  'purged.';

create function api.plan_columns(p jsonb, p_stored_price numeric default null) returns jsonb language sql stable
  return p
    || case
      when p ? 'features_json' then jsonb_build_object('features', p #> '{features_json,features}')
      else '{}'
    end
    || case
      when p ? 'price_monthly' then jsonb_build_object('price_monthly', core.as_amount(
        (p ->> 'price_monthly')::numeric, core.currency_decimals(core.price_currency()), p_stored_price))
      else '{}'
    end;
comment on function api.plan_columns is
  'The columns of a plan: the list of features_json {features}, and the price with the decimals of its currency.';

create function api.platform_plans_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := core.record_insert('plan', api.plan_columns(p));
begin
  return api.audited('plan.create', null, api.plan_record(v_id));
end $$;
comment on function api.platform_plans_create is 'Creates a plan. Audited. Raises conflict for a name that is in use.';

create function api.platform_plans_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before jsonb := api.plan_record(v_id);
begin
  perform core.record_update('plan', api.plan_columns(p, (v_before ->> 'price_monthly')::numeric));
  return api.audited('plan.update', v_before, api.plan_record(v_id));
end $$;
comment on function api.platform_plans_update is
  'Updates a plan. Schools that exceed the new limits keep their records. Audited.';

create function api.platform_plans_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before jsonb := api.plan_record(v_id);
begin
  delete from plan where id = v_id;
  return api.audited('plan.delete', v_before, null);
end $$;
comment on function api.platform_plans_delete is 'Deletes a plan. Audited. Raises in_use if a school has it.';

create function api.platform_settings() returns json language sql stable as $$
  select json_build_object(
      'currency', currency, 'currency_decimals', core.currency_decimals(currency), 'created_at', created_at,
      'updated_at', updated_at)
  from setting;
$$;
comment on function api.platform_settings is 'The settings of the platform.';

create function api.platform_settings_get(p jsonb) returns json language sql stable
  return api.platform_settings();
comment on function api.platform_settings_get is 'The settings of the platform: the currency of prices.';

create function api.lock_platform_settings(p jsonb) returns void language plpgsql as $$
begin
  perform from setting for no key update;
end $$;
comment on function api.lock_platform_settings is 'Locks the settings of the platform.';

create function api.platform_settings_update(p jsonb) returns json language plpgsql as $$
declare
  v_before jsonb := api.platform_settings();
  v_after json;
  v_plans text;
begin
  update setting set currency = coalesce(p ->> 'currency', currency);
  v_after := api.audited('platform_settings.update', v_before, api.platform_settings());
  if v_after ->> 'currency' <> v_before ->> 'currency' then
    select string_agg(name, ', ' order by price_monthly, id)
      into v_plans
      from plan
      where min_scale(price_monthly) > (v_after ->> 'currency_decimals')::integer;
  end if;
  if v_plans is not null then
    v_after := v_after::jsonb || jsonb_build_object('warnings', json_build_array(json_build_object(
      'path', 'currency',
      'message', format('The prices of these plans have more decimals than %s: %s. They stay as they are.',
        v_after ->> 'currency', v_plans))));
  end if;
  return v_after;
end $$;
comment on function api.platform_settings_update is
  '{currency?}: changes the given settings. Prices are not converted; warnings names the plans whose prices have more '
  'decimals than the new currency. Audited.';
