-- What each school uses by day. See docs/decisions/0046-usage-of-schools.md.

create function core.record_requests(p_tenant_ids bigint[], p_requests bigint[]) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
    insert into platform.usage_day as u (tenant_id, date, requests)
      select t.id, (now() at time zone t.time_zone)::date, c.requests
      from unnest(p_tenant_ids, p_requests) c (tenant_id, requests)
      -- Not of a school that has just left this server.
      join platform.tenant t on t.id = c.tenant_id and t.schema_version > 0
      -- Two processes lock the rows in the same order.
      order by t.id
      on conflict (tenant_id, date) do update set requests = coalesce(u.requests, 0) + excluded.requests;
  $$;
comment on function core.record_requests is
  'Adds the requests that an API process has counted to the usage of this day: p_requests[n] of the school '
  'p_tenant_ids[n]. Security definer: the API may write no table.';

create function core.record_past_usage(p_since date, p_today date) returns void language sql as $$
  insert into platform.usage_day as u (tenant_id, date, students, messages)
    select core.tenant_id(), date, e.students, m.messages
    from (
      select (month + interval '1 month - 1 day')::date as date, sum(students)::integer as students
      from mart.enrollment
      where tenant_id = core.tenant_id() and month >= p_since and month < date_trunc('month', p_today::timestamp)
      group by month
    ) e
    full join (
      select date, sum(sent)::integer as messages
      from mart.notification_day
      where tenant_id = core.tenant_id() and channel <> 'in_app' and date >= p_since and date < p_today
      group by date
    ) m using (date)
    on conflict (tenant_id, date) do update set
      students = coalesce(u.students, excluded.students),
      messages = coalesce(u.messages, excluded.messages);
$$;
comment on function core.record_past_usage is
  'Adds what the facts of analysts know of the current school before its usage was recorded: the enrolled students at '
  'the end of each month, and the messages of each day.';

create function core.record_usage() returns void language plpgsql as $$
declare
  v_today date := core.today();
begin
  -- A school whose migration has not run yet is measured later.
  if to_regclass('api_key') is null then
    return;
  end if;
  if not exists (select from platform.usage_day where tenant_id = core.tenant_id() and storage_bytes is not null) then
    perform core.record_past_usage((date_trunc('month', v_today::timestamp) - interval '1 year')::date, v_today);
  end if;
  insert into platform.usage_day as u (tenant_id, date, students, teachers, storage_bytes)
    select
      core.tenant_id(), v_today, s.students, s.teachers,
      (select coalesce(sum(f.size), 0) from file f)
    from core.tenant_size(core.tenant_id()) s
    on conflict (tenant_id, date) do update set
      students = excluded.students,
      teachers = excluded.teachers,
      storage_bytes = excluded.storage_bytes;
  -- The day on which a person leaves comes without a write.
  update platform.tenant_usage u
    set students = s.students, teachers = s.teachers
    from core.tenant_size(core.tenant_id()) s
    where u.tenant_id = core.tenant_id() and (u.students, u.teachers) <> (s.students, s.teachers);
  -- Also the last days: users were active after the last run of the day, and messages are sent later. A user who is
  -- active again has left the earlier day, which therefore keeps the highest number.
  insert into platform.usage_day as u (tenant_id, date, active_users, messages)
    select core.tenant_id(), day.date, coalesce(a.users, 0), coalesce(m.sent, 0)
    from (
      select v_today - n as date
      from generate_series(0, 2) n
      join platform.tenant t on t.id = core.tenant_id() and v_today - n >= core.day_at_school(t.created_at)
    ) day
    left join (
      select date, count(distinct user_id)::integer as users
      from (
        select core.day_at_school(last_used_at) as date, user_id
        from platform.session
        where tenant_id = core.tenant_id() and impersonator_id is null and last_used_at >= core.day_begins(v_today - 2)
        union all
        select core.day_at_school(last_used_at), user_id
        from api_key
        where last_used_at >= core.day_begins(v_today - 2)
      ) used
      group by date
    ) a using (date)
    left join (
      select date, sum(sent)::integer as sent
      from mart.notification_day
      where tenant_id = core.tenant_id() and channel <> 'in_app' and date >= v_today - 2
      group by date
    ) m using (date)
    on conflict (tenant_id, date) do update set
      active_users = greatest(u.active_users, excluded.active_users),
      messages = greatest(u.messages, excluded.messages);
end $$;
comment on function core.record_usage is
  'Measures the usage of the current school: students, teachers and storage today, active users and messages of the '
  'last three days. The first time, adds what the facts of analysts know of the past year.';
