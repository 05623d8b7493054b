-- The school of a request: its features, plan limits and settings. See sessions.sql for security definer.

create function core.tenant_features() returns text[]
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_plan_features text[];
  v_flags jsonb;
begin
  select p.features, t.feature_flags
    into v_plan_features, v_flags
    from platform.tenant t
    join platform.plan p on p.id = t.plan_id
    where t.id = core.tenant_id();
  return coalesce(core.enabled_features(v_plan_features, v_flags), '{}');
end $$;
comment on function core.tenant_features is 'The enabled features of this school.';

create function core.tenant_size(p_tenant_id bigint, out students integer, out teachers integer, out classes integer)
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  -- The school and its counts, from the triggers. No other transaction has changed them since, because this one has
  -- locked school_usage.
  v_counted bigint[] := nullif(current_setting('app.school_usage', true), '');
  v_scope text := core.widen_scope();
begin
  if v_counted[1] = p_tenant_id then
    students := v_counted[2];
    teachers := v_counted[3];
    classes := v_counted[4];
  else
    execute format('select students, teachers, classes from %I.school_usage', 'tenant_' || p_tenant_id)
      into students, teachers, classes;
  end if;
  -- The triggers do not count those who will leave.
  execute format(
      'select $1 + (select count(*) from %1$I.student where left_on > $3 and deleted_at is null), '
      '$2 + (select count(*) from %1$I.teacher where left_on > $3 and deleted_at is null)', 'tenant_' || p_tenant_id)
    into students, teachers using students, teachers, core.today();
  perform core.restore_scope(v_scope);
end $$;
comment on function core.tenant_size is
  'The number of students and teachers who have not left, and of classes, including the changes of this transaction. '
  'Only for functions of core, because it accepts any school.';

-- Triggers keep the counts. They do not run while rows are restored from a backup without them, or run for rows that
-- were counted already.
create function core.recount_usage() returns void language plpgsql as $$
begin
  update school_usage u
    set students = c.students, teachers = c.teachers, classes = c.classes
    from (
      select
        (select count(*) from student where left_on is null and deleted_at is null) as students,
        (select count(*) from teacher where left_on is null and deleted_at is null) as teachers,
        (select count(*) from class) as classes
    ) c
    where (u.students, u.teachers, u.classes) <> (c.students, c.teachers, c.classes);
end $$;
comment on function core.recount_usage is
  'Corrects school_usage of the current school. It has the people for whom no day of leaving is known.';

create function core.tenant_usage(out students integer, out teachers integer, out classes integer)
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  select u.students, u.teachers, u.classes
    into students, teachers, classes
    from platform.tenant_usage u
    where u.tenant_id = core.tenant_id();
end $$;
comment on function core.tenant_usage is
  'The stored counts of this school: active students, active teachers and classes.';

create function core.enforce_plan_limits() returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v record;
begin
  -- The counts of the next statement include what the previous holder of the lock has committed.
  perform from platform.tenant_usage where tenant_id = core.tenant_id() for no key update;
  select p.name, p.max_students, p.max_teachers, u.students as students_before, u.teachers as teachers_before, size.*,
      (size.students, size.teachers, size.classes) is distinct from (u.students, u.teachers, u.classes) as has_changed
    into v
    from platform.tenant_usage u
    join platform.tenant t on t.id = u.tenant_id
    join platform.plan p on p.id = t.plan_id
    cross join core.tenant_size(core.tenant_id()) size
    where u.tenant_id = core.tenant_id();
  if not found then
    perform core.refuse_missing_copy();
  end if;
  if v.students > v.max_students and v.students > v.students_before then
    perform core.fail('plan_limit_reached', format(
      'The plan %s allows %s active students. Upgrade the plan or deactivate students.', v.name, v.max_students));
  elsif v.teachers > v.max_teachers and v.teachers > v.teachers_before then
    perform core.fail('plan_limit_reached', format(
      'The plan %s allows %s active teachers. Upgrade the plan or deactivate teachers.', v.name, v.max_teachers));
  end if;
  if v.has_changed then
    update platform.tenant_usage
      set students = v.students, teachers = v.teachers, classes = v.classes
      where tenant_id = core.tenant_id();
  end if;
end $$;
comment on function core.enforce_plan_limits is
  'Raises plan_limit_reached if this school now has more students or teachers than its plan allows; else stores the '
  'counts of students, teachers and classes. Call it after adding or removing people or classes. The row lock '
  'serializes the writers of a school, so that each counts after the previous one has committed.';

create function core.require_plan_fits(p_tenant_id bigint, p_plan_id bigint) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_usage record;
  v_plan record;
begin
  select students, teachers into v_usage from platform.tenant_usage where tenant_id = p_tenant_id for update;
  select name, max_students, max_teachers into v_plan from platform.plan where id = p_plan_id;
  if v_usage.students > v_plan.max_students or v_usage.teachers > v_plan.max_teachers then
    perform core.fail('conflict', format('The plan %s allows %s students and %s teachers; the school has %s and %s.',
      v_plan.name, v_plan.max_students, v_plan.max_teachers, v_usage.students, v_usage.teachers));
  end if;
end $$;
comment on function core.require_plan_fits is
  'Raises conflict when a school has more students or teachers than a plan allows. The row lock makes concurrent '
  'additions wait and then use the limits of the new plan (core.enforce_plan_limits). Only for operators and functions '
  'of core, because it accepts any school.';

create function core.school_flag_set(p_column text, p_value boolean, p_refusal text) returns boolean
  language plpgsql as $$
declare
  v_before boolean;
begin
  execute format('select %I from platform.tenant where id = $1 for no key update', p_column)
    into v_before
    using core.tenant_id();
  if v_before = p_value then
    return false;
  end if;
  perform core.refuse_impersonator();
  if not exists (select from platform.session where id = core.session_id() and 'admin' = any (roles)) then
    perform core.refuse_field('forbidden', p_column, p_refusal);
  end if;
  execute format('update platform.tenant set %I = $2 where id = $1', p_column) using core.tenant_id(), p_value;
  perform core.audit('tenant.update', 'tenant', core.tenant_id(), core.tenant_id(),
    jsonb_build_object(p_column, jsonb_build_object('before', v_before, 'after', p_value)));
  return true;
end $$;
comment on function core.school_flag_set is
  'Sets a column of this school that only its admins may change, and returns whether it was different. Raises '
  'forbidden with p_refusal unless the user is an admin of the school, and during an impersonation. Audited. Not '
  'granted to request roles, because it accepts any column.';

create function core.school_allow_impersonation(p_is_allowed boolean) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform core.school_flag_set('is_impersonation_allowed', p_is_allowed,
    'Only an admin of the school can change whether operators may log in as its admins.');
end $$;
comment on function core.school_allow_impersonation is
  'Sets whether operators may impersonate the admins of this school. Disallowing it ends current impersonations. '
  'Raises forbidden unless the user is an admin of the school, and during an impersonation. Audited.';

create function core.is_impersonation_allowed() returns boolean
  language sql stable security definer set search_path = pg_catalog, pg_temp
  return (select is_impersonation_allowed from platform.tenant where id = core.tenant_id());
comment on function core.is_impersonation_allowed is 'Whether operators may impersonate the admins of this school.';

create function core.school_rename(p_name text) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  update platform.tenant set name = p_name where id = core.tenant_id() and name <> p_name;
$$;
comment on function core.school_rename is 'Changes the name of this school.';

create function core.setup_complete() returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  update platform.tenant set is_setup_complete = true where id = core.tenant_id() and not is_setup_complete;
$$;
comment on function core.setup_complete is 'Marks the setup of this school as complete.';

create function core.tenant_summary() returns json
  language sql stable security definer set search_path = pg_catalog, pg_temp
  return (
    select json_build_object(
      'id', id,
      'name', name,
      'subdomain', subdomain,
      'time_zone', time_zone,
      'is_setup_complete', is_setup_complete)
    from platform.tenant
    where id = core.tenant_id()
  );
comment on function core.tenant_summary is 'The data of the school that every user may see; null for an operator.';

create view core.school_audit_log with (security_barrier = true) as
  select id, created_at, actor_id, actor_email, impersonated_email, action, target_type, target_id, changes,
    -- Where an operator works is nothing that the school needs.
    case when actor_id is null then ip end as ip, case when actor_id is null then user_agent end as user_agent,
    request_id
  from platform.audit_log
  where tenant_id = core.tenant_id();
comment on view core.school_audit_log is
  'The audit entries of the school of this request. With the rights of its owner, because a school can not read the '
  'schema platform.';
