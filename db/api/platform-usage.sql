-- /api/platform/usage: what the schools use, over time. The worker and the API record it (db/core/usage.sql). Open to
-- analysts too, who see only their schools.

select core.define_operation('platform_usage_get', p_access => 'analyst', p_needs_session => false,
  p_errors => '{forbidden,not_found}');
select core.define_operation('platform_usage_export', p_access => 'analyst', p_needs_session => false,
  p_errors => '{forbidden,not_found}');

create function api.usage_tenant_ids(p jsonb) returns bigint[] language plpgsql stable as $$
declare
  v_visible bigint[] := (core.operator_access()).tenant_ids;
  v_ids bigint[] := array(
    select id
    from tenant
    where (not p ? 'tenant_id' or id = (p ->> 'tenant_id')::bigint) and (v_visible is null or id = any (v_visible))
    order by id);
begin
  if p ? 'tenant_id' and v_ids = '{}' then
    perform core.fail('not_found', format('There is no tenant %s.', p ->> 'tenant_id'));
  end if;
  return v_ids;
end $$;
comment on function api.usage_tenant_ids is
  'The schools whose usage a request is about: the school tenant_id, or all that the operator may see. Raises '
  'not_found for a school that does not exist or that the operator may not see.';

create function api.usage_since(p jsonb) returns date language sql stable
  return (date_trunc('month', now()) - make_interval(months => coalesce((p ->> 'months')::integer, 12) - 1))::date;
comment on function api.usage_since is
  'The first day of the months that a request asks for; the last one is this month.';

create function api.usage_months(p_tenant_ids bigint[], p_since date) returns json language sql stable as $$
  with month as (
    select month::date as first
    from generate_series(p_since::timestamp, date_trunc('month', now()), interval '1 month') month
  ), school_month as (
    select
      date_trunc('month', date::timestamp)::date as first, max(students) as students, max(teachers) as teachers,
      max(storage_bytes) as storage_bytes, sum(requests) as requests, sum(messages) as messages
    from usage_day
    where tenant_id = any (p_tenant_ids) and date >= p_since
    group by tenant_id, 1
  ), total as (
    select
      first, sum(students) as students, sum(teachers) as teachers, sum(storage_bytes) as storage_bytes,
      sum(requests) as requests, sum(messages) as messages
    from school_month
    group by first
  ), active as (
    select
      date_trunc('month', date::timestamp)::date as first, round(avg(users)) as average, max(users) as highest
    from (
      select date, sum(active_users) as users
      from usage_day
      where tenant_id = any (p_tenant_ids) and date >= p_since
      group by date
    ) day
    group by 1
  )
  select json_agg(json_build_object(
      'month', to_char(m.first, 'YYYY-MM'),
      'students', t.students,
      'teachers', t.teachers,
      'active_users', a.average,
      'most_active_users', a.highest,
      'requests', t.requests,
      'messages', t.messages,
      'storage_bytes', t.storage_bytes) order by m.first)
  from month m
  left join total t on t.first = m.first
  left join active a on a.first = m.first;
$$;
comment on function api.usage_months is
  'The usage of schools by month. Students, teachers and storage are the highest number of the month of each school, '
  'added up.';

create function api.usage_days(p_tenant_ids bigint[], p_today date) returns json language sql stable as $$
  select json_agg(json_build_object(
      'date', day.date,
      'active_users', u.active_users,
      'requests', u.requests,
      'messages', u.messages) order by day.date)
  from (select (p_today - n) as date from generate_series(0, 30) n) day
  left join (
    select date, sum(active_users) as active_users, sum(requests) as requests, sum(messages) as messages
    from usage_day
    where tenant_id = any (p_tenant_ids) and date > p_today - 31
    group by date
  ) u on u.date = day.date;
$$;
comment on function api.usage_days is 'The usage of schools on each of the last 31 days.';

create function api.usage_now(p_tenant_ids bigint[]) returns json language sql stable as $$
  select json_build_object(
    'students', coalesce(sum(u.students), 0),
    'teachers', coalesce(sum(u.teachers), 0),
    'storage_bytes', sum((
      select d.storage_bytes
      from usage_day d
      where d.tenant_id = t.id and d.storage_bytes is not null
      order by d.date desc
      limit 1)),
    'max_students', coalesce(sum(p.max_students), 0),
    'max_teachers', coalesce(sum(p.max_teachers), 0))
  from tenant t
  join plan p on p.id = t.plan_id
  left join tenant_usage u on u.tenant_id = t.id
  where t.id = any (p_tenant_ids) and t.status <> 'deleted';
$$;
comment on function api.usage_now is
  'What schools that are not deleted use now, and the limits of their plans, added up.';

create function api.usage_near_limit(p_tenant_ids bigint[]) returns json language sql stable as $$
  select coalesce(json_agg(row_to_json(near) order by near.used_share desc, near.tenant_id), '[]')
  from (
    select
      t.id as tenant_id, t.name, p.name as plan, u.students, p.max_students, u.teachers, p.max_teachers,
      round(share.used, 3) as used_share
    from tenant t
    join plan p on p.id = t.plan_id
    join tenant_usage u on u.tenant_id = t.id
    cross join lateral (
      select greatest(
        u.students::numeric / nullif(p.max_students, 0), u.teachers::numeric / nullif(p.max_teachers, 0)) as used
    ) share
    where t.id = any (p_tenant_ids) and t.status <> 'deleted' and share.used >= 0.8
    order by share.used desc, t.id
    limit 10
  ) near;
$$;
comment on function api.usage_near_limit is
  'The ten schools that use most of a limit of their plan, of those that use 80% or more.';

create function api.platform_usage_get(p jsonb) returns json language plpgsql stable as $$
declare
  v_ids bigint[] := api.usage_tenant_ids(p);
  v_time_zone text := coalesce((select time_zone from tenant where id = (p ->> 'tenant_id')::bigint), 'UTC');
begin
  return json_build_object(
    'tenant_id', (p ->> 'tenant_id')::bigint,
    'current', api.usage_now(v_ids),
    'months', api.usage_months(v_ids, api.usage_since(p)),
    'days', api.usage_days(v_ids, (now() at time zone v_time_zone)::date),
    'near_limit', api.usage_near_limit(v_ids));
end $$;
comment on function api.platform_usage_get is
  'What a school, or all schools that the operator may see, use: now, by month, and on the last 31 days. Raises '
  'not_found.';

create function api.platform_usage_export(p jsonb) returns json language plpgsql stable as $$
declare
  v_ids bigint[] := api.usage_tenant_ids(p);
  v_since date := api.usage_since(p);
  v_is_daily boolean := coalesce(p ->> 'period' = 'day', false);
  v_rows_per_school integer := case
    when v_is_daily then now()::date - v_since + 2
    else coalesce((p ->> 'months')::integer, 12) + 1
  end;
  -- Whole schools, so that no page reads the days of the schools after it.
  v_page_ids bigint[] := array(
    select id
    from unnest(v_ids) id
    where id > coalesce((p ->> 'after')::bigint, 0)
    order by id
    limit greatest((p ->> 'limit')::integer / v_rows_per_school, 1));
  v_last_id bigint := v_page_ids[cardinality(v_page_ids)];
begin
  return (
    select json_build_object(
      'rows', coalesce(json_agg(page.cells order by page.tenant_id, page.first), '[]'),
      'next', case when v_last_id < v_ids[cardinality(v_ids)] then v_last_id end,
      'date', current_date)
    from (
      select
        period.tenant_id, period.first,
        json_build_array(
          period.first, t.id, t.subdomain, t.name, period.students, period.teachers, period.active_users,
          period.requests, period.messages, period.storage_bytes, plan.name, plan.max_students, plan.max_teachers
        ) as cells
      from (
        select
          u.tenant_id,
          case when v_is_daily then u.date else date_trunc('month', u.date::timestamp)::date end as first,
          max(u.students) as students, max(u.teachers) as teachers, round(avg(u.active_users)) as active_users,
          sum(u.requests) as requests, sum(u.messages) as messages, max(u.storage_bytes) as storage_bytes
        from usage_day u
        where u.tenant_id = any (v_page_ids) and u.date >= v_since
        group by 1, 2
      ) period
      join tenant t on t.id = period.tenant_id
      join plan on plan.id = t.plan_id
    ) page
  );
end $$;
comment on function api.platform_usage_export is
  'A page of the export: one row for each school and month, or for each school and day with period = day. A page has '
  'all rows of its schools, so that it may be empty before the last page.';
