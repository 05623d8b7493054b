-- The analytics tables of schools, in the schema mart: which queries fill them, and when. See
-- docs/decisions/0018-analytics.md.

select core.define_job('analytics', '{analytics_queue}',
  p_schedule => '5,20,35,50 * * * * ?fill=15m&max=3&jobKey=analytics&jobKeyMode=replace');
-- After everything else.
select core.define_job('analytics_schools', '{analytics_refresh}', p_priority => 32767, p_max_attempts => 3);

create table core.analytics_part (
  refresh_order integer primary key,
  name text not null unique,
  target text not null unique,
  watched text[] not null,
  retention_days integer,
  query text not null
);
comment on table core.analytics_part is
  'The queries that fill the tables of mart: the query, its target table, and the tables of the school that it reads '
  '(watched). Rows older than retention_days days are never updated, because the school itself deletes its rows after '
  'some time.';

-- Each query returns the columns of its target except tenant_id. It runs inside a school, sees all of its rows, and
-- uses the time zone of the school. $1 is the first day to read. No column may contain personal data: no name, contact,
-- address, free text or personal date. Free text is mapped to a few fixed values here.
insert into core.analytics_part (refresh_order, name, target, watched, retention_days, query) values
  -- Whole classes join and leave on the same days, so equal enrollments are counted first and then expanded to months.
  (1, 'enrollments', 'enrollment', '{enrollment,student}', null, $$
    with stay as (
      select
        e.class_id,
        case
          when s.gender in ('female', 'male') then s.gender
          when s.gender <> 'undisclosed' then 'other'
          else 'unknown'
        end as gender,
        e.starts_on, e.ends_on, count(*) as students
      from enrollment e
      join student s on s.id = e.student_id
      group by 1, 2, 3, 4
    )
    select
      stay.class_id, stay.gender, month.first as month,
      coalesce(sum(stay.students) filter (
        where stay.starts_on <= month.last and (stay.ends_on is null or stay.ends_on > month.last)
      ), 0)::integer as students,
      coalesce(sum(stay.students) filter (where stay.starts_on >= month.first), 0)::integer as joiners,
      coalesce(sum(stay.students) filter (where stay.ends_on <= month.last), 0)::integer as leavers
    from stay
    cross join (select core.today() as date) today
    cross join lateral generate_series(
      date_trunc('month', stay.starts_on::timestamp),
      coalesce(least(stay.ends_on, today.date), today.date)::timestamp,
      interval '1 month') first
    cross join lateral (
      select first::date as first, least((first + interval '1 month - 1 day')::date, today.date) as last
    ) month
    group by stay.class_id, stay.gender, month.first
  $$),
  (2, 'attendance_days', 'attendance_by_day', '{attendance_day}', null, $$
    select class_id, date, present, late, absent, excused from attendance_day where present + late + absent > 0
  $$),
  (3, 'attendance_months', 'attendance_by_month', '{attendance_day}', null, $$
    select
      class_id,
      date_trunc('month', date::timestamp)::date as month,
      count(*)::integer as days,
      sum(present)::integer as present,
      sum(late)::integer as late,
      sum(absent)::integer as absent,
      sum(excused)::integer as excused
    from attendance_day
    where present + late + absent > 0
    group by 1, 2
  $$),
  -- As in the operation finance_summary: a payment covers the items of a fee in their order, a discount in the opposite
  -- order, and equal fees are counted, not listed.
  (4, 'fees', 'fee_amount', '{student_fee,fee_structure,transport_fee_plan,invoice,academic_year,school}', null, $$
    with local as materialized (
      select
        c.currency,
        core.currency_decimals(c.currency) as decimals,
        coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC') as time_zone,
        core.today() as today
      from core.school_currency() c (currency)
    ), fee_group as materialized (
      select
        s.id as structure_id,
        s.academic_year_id,
        date_trunc('month', f.billed_on::timestamp)::date as month,
        f.items_digest,
        case
          when f.status = 'waived' then 'waived'
          when f.due_date < (select today from local) then 'overdue'
          else 'open'
        end as state,
        f.amount as billed,
        f.paid_amount as collected,
        f.discount_amount as discounted,
        min(f.id) as example_id,
        count(*) as fees
      from student_fee f
      join fee_structure s on s.id = f.fee_structure_id
      group by 1, 2, 3, 4, 5, 6, 7, 8
    ), item as (
      select
        e.structure_id,
        e.items_digest,
        case
          when exists (select from transport_fee_plan p where p.fee_component_id = i.fee_component_id) then 'Transport'
          else i.name
        end as component,
        i.amount,
        sum(i.amount) over (partition by i.student_fee_id order by i.id) - i.amount as before,
        sum(i.amount) over (partition by i.student_fee_id order by i.id desc) - i.amount as after
      from (select structure_id, items_digest, min(example_id) as id from fee_group group by 1, 2) e
      join student_fee_item i on i.student_fee_id = e.id
    ), summand as (
      select
        g.academic_year_id, g.month, 'student_fees' as source, i.component, g.state, i.amount * g.fees as billed,
        case
          when g.collected <= i.before then 0
          when g.collected >= i.before + i.amount then i.amount
          else g.collected - i.before
        end * g.fees as collected,
        greatest(0, least(i.amount, g.discounted - i.after)) * g.fees as discounted
      from fee_group g
      join item i on i.structure_id = g.structure_id and i.items_digest = g.items_digest
      union all
      select
        coalesce(y.id, 0),
        date_trunc('month', i.issued_at at time zone local.time_zone)::date,
        'invoices',
        'Invoice',
        case when i.due_date < local.today then 'overdue' else 'open' end,
        i.amount,
        i.paid_amount,
        0
      from invoice i
      cross join local
      left join academic_year y
        on (i.issued_at at time zone local.time_zone)::date between y.start_date and y.end_date
      where i.issued_at is not null and i.status <> 'void'
    )
    select
      s.academic_year_id, s.month, s.source, s.component, local.currency,
      core.as_amount(s.billed, local.decimals) as billed,
      core.as_amount(s.discounted, local.decimals) as discounted,
      core.as_amount(coalesce(s.waived, 0), local.decimals) as waived,
      core.as_amount(s.collected, local.decimals) as collected,
      core.as_amount(coalesce(s.overdue, 0), local.decimals) as overdue
    from (
      select
        academic_year_id, month, source, component, sum(billed) as billed,
        sum(discounted) as discounted,
        sum(billed - discounted - collected) filter (where state = 'waived') as waived, sum(collected) as collected,
        sum(billed - discounted - collected) filter (where state = 'overdue') as overdue
      from summand
      group by academic_year_id, month, source, component
    ) s
    cross join local
  $$),
  (5, 'payments', 'payment_day', '{payment,school}', null, $$
    select
      payment_date as date,
      case payment_method
        when 'check' then 'cheque'
        when 'mobile_money' then 'online'
        else payment_method
      end as method,
      local.currency,
      count(*) filter (where p.reversal_of is null)::integer as payments,
      core.as_amount(coalesce(sum(p.amount) filter (where p.reversal_of is null), 0), local.decimals) as amount,
      count(p.reversal_of)::integer as reversals,
      core.as_amount(coalesce(-sum(p.amount) filter (where p.reversal_of is not null), 0), local.decimals) as reversed
    from payment p
    cross join (
      select c.currency, core.currency_decimals(c.currency) as decimals from core.school_currency() c (currency)
    ) local
    group by 1, 2, 3, local.decimals
  $$),
  (6, 'teacher_loads', 'teacher_load', '{timetable_slot,teacher,academic_year}', null, $$
    with load as (
      select academic_year_id, teacher_id, count(*) as periods
      from timetable_slot
      where teacher_id is not null
      group by 1, 2
    ), teaching as (
      select academic_year_id, periods from load
      union all
      select y.id, 0
      from academic_year y
      cross join teacher t
      where y.is_current and not core.has_left(t.left_on, core.today()) and t.deleted_at is null
        and not exists (select from load l where l.academic_year_id = y.id and l.teacher_id = t.id)
    )
    select
      academic_year_id,
      case
        when periods = 0 then '0'
        when periods < 10 then '1-9'
        when periods < 20 then '10-19'
        when periods < 30 then '20-29'
        else '30+'
      end as band,
      count(*)::integer as teachers,
      sum(periods)::integer as periods
    from teaching
    group by 1, 2
  $$),
  (7, 'transport_routes', 'transport_route', '{route,bus,bus_assignment,transport_enrollment}', null, $$
    select
      r.id as route_id, r.is_active, seats.number as seats,
      coalesce(e.pickup, 0)::integer as riders_pickup,
      coalesce(e.drop, 0)::integer as riders_drop
    from route r
    left join (
      select
        route_id,
        count(*) filter (where enrollment_type <> 'drop') as pickup,
        count(*) filter (where enrollment_type <> 'pickup') as drop
      from transport_enrollment
      where core.rides(cancelled_at, now())
      group by route_id
    ) e on e.route_id = r.id
    cross join lateral (
      select min(b.capacity) as number from bus b where b.id in (select x.bus_id from route_buses(r.id) x)
    ) seats
    where r.deleted_at is null
  $$),
  -- The type of a message that somebody wrote is free text, so all types but the events of the catalog become 'other'.
  (8, 'notifications', 'notification_day', '{notification,notification_delivery}', 60, $$
    with local as materialized (
      select time_zone, $1::timestamp at time zone time_zone as since
      from (select coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC') as time_zone) zone
    ), message as (
      select created_at, type, 'in_app' as channel, 'sent' as status, read_at is not null as is_read
      from notification
      where created_at >= (select since from local)
      union all
      select d.created_at, n.type, d.channel, d.status, false
      from notification_delivery d
      left join notification n on n.id = d.notification_id
      where d.created_at >= (select since from local)
    )
    select
      (m.created_at at time zone (select time_zone from local))::date as date,
      coalesce(e.key, 'other') as event,
      m.channel,
      count(*)::integer as messages,
      count(*) filter (where m.status = 'pending')::integer as pending,
      count(*) filter (where m.status = 'sent')::integer as sent,
      count(*) filter (where m.status = 'failed')::integer as failed,
      count(*) filter (where m.status = 'dropped')::integer as dropped,
      count(*) filter (where m.is_read)::integer as read
    from message m
    left join core.notification_event e on e.key = m.type
    group by 1, 2, 3
  $$),
  -- Refreshed last, and whenever another part was, so that every class and year that other tables refer to exists.
  (9, 'academic_years', 'academic_year', '{academic_year}', null, $$
    select id as academic_year_id, name, start_date, end_date, is_current from academic_year
  $$),
  (10, 'classes', 'class', '{class,grade}', null, $$
    select c.id as class_id, c.academic_year_id, g.name as grade, c.section, c.capacity
    from class c
    join grade g on g.id = c.grade_id
  $$);

create function core.analytics_change_counters(p_tenant_id bigint default null)
  returns table (tenant_id bigint, counters jsonb)
  language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
  return query
    with school as materialized (
      select t.id, t.time_zone, t.schema_version, i.fingerprint, n.oid as namespace
      from platform.tenant t
      cross join platform.installation i
      join pg_namespace n on n.nspname = 'tenant_' || t.id
      where t.status <> 'deleted'
        and t.schema_version = i.tenant_version
        and (p_tenant_id is null or t.id = p_tenant_id)
    ), watched as materialized (
      -- By the index of pg_class on the name and the schema; see core.relations_in.
      select
        s.id,
        c.relname,
        format('%s:%s', c.oid,
          pg_stat_get_tuples_inserted(c.oid)
            + pg_stat_get_tuples_updated(c.oid)
            + pg_stat_get_tuples_deleted(c.oid)) as counter
      from (select distinct unnest(p.watched)::name as name from core.analytics_part p) w
      cross join school s
      join pg_class c on c.relname = w.name and c.relnamespace = s.namespace
      where c.relkind = 'r'
    )
    select part.id, jsonb_object_agg(part.name, part.counter) || jsonb_build_object('all', (
        select format('%s %s %s %s',
          s.fingerprint, s.schema_version, s.time_zone, (now() at time zone s.time_zone)::date)
        from school s
        where s.id = part.id))
    from (
      select w.id, p.name, string_agg(w.counter, ' ' order by w.relname) as counter
      from watched w
      join core.analytics_part p on w.relname = any (p.watched)
      group by w.id, p.name
    ) part
    group by part.id;
end $$;
comment on function core.analytics_change_counters is
  'Detects changes in schools: {part: text}, where the text differs after each change to a table that the part reads, '
  'and `all`, which differs when any part may have changed: with the date at the school (months end, fees become '
  'overdue), its time zone, or the installed functions. It uses the row counters of Postgres, so that 2,000 schools '
  'are checked without reading their rows. A counter is updated after the commit, so data read after the counter is '
  'at least as new as the counter. After a crash the counters restart, which counts as a change.';

create function core.analytics_update_table(p_part core.analytics_part, p_tenant_id bigint) returns bigint
  language plpgsql as $$
declare
  v_since date := '-infinity';
  v_keys text[];
  v_values text[];
  v_count bigint;
begin
  select
      array_agg(quote_ident(a.attname) order by a.attnum) filter (where a.attnum = any (i.indkey)),
      array_agg(quote_ident(a.attname) order by a.attnum) filter (where a.attnum <> all (i.indkey))
    into strict v_keys, v_values
    from pg_index i
    join pg_attribute a
      on a.attrelid = i.indrelid and a.attnum > 0 and a.attname <> 'tenant_id' and not a.attisdropped
    where i.indrelid = format('mart.%I', p_part.target)::regclass and i.indisprimary;
  if p_part.retention_days is not null then
    execute format(
        'select case when exists (select from mart.%I where tenant_id = $1) then core.today() - $2 else $3 end',
        p_part.target)
      into v_since
      using p_tenant_id, p_part.retention_days, v_since;
  end if;
  -- The full join is never a nested loop, which would take minutes: the planner cannot know how many rows there are.
  execute format($sql$
    with fresh as materialized (%1$s),
    stored as materialized (select * from mart.%2$I where tenant_id = $2 %3$s),
    change as materialized (
      select n is null as is_gone, %4$s, %5$s
      from stored o
      full join fresh n using (%4$s)
      where o is null or n is null or row(%6$s) is distinct from row(%5$s)
    ),
    deleted as (
      delete from mart.%2$I o
        using change n
        where o.tenant_id = $2 and n.is_gone and (%7$s)
        returning true
    ),
    upserted as (
      insert into mart.%2$I as o (tenant_id, %4$s, %8$s)
        select $2, %4$s, %8$s from change where not is_gone
        on conflict (tenant_id, %4$s) do update set %9$s
        returning true
    )
    select (select count(*) from deleted) + (select count(*) from upserted)
    $sql$,
    p_part.query,
    p_part.target,
    case when p_part.retention_days is not null then 'and date >= $1' else '' end,
    array_to_string(v_keys, ', '),
    (select string_agg('n.' || name, ', ' order by n) from unnest(v_values) with ordinality v (name, n)),
    (select string_agg('o.' || name, ', ' order by n) from unnest(v_values) with ordinality v (name, n)),
    (select string_agg(format('o.%1$s = n.%1$s', name), ' and ') from unnest(v_keys) name),
    array_to_string(v_values, ', '),
    (select string_agg(format('%1$s = excluded.%1$s', name), ', ') from unnest(v_values) name))
    into v_count
    using v_since, p_tenant_id;
  return v_count;
end $$;
comment on function core.analytics_update_table is
  'Runs the query of a part in the current school and writes the differences into its target table: new, changed and '
  'deleted rows only. Returns the number of rows written or deleted.';

create function core.analytics_refresh(p_tenant_id bigint, p_everything boolean default false) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[];
  v_seen jsonb;
  v_counters jsonb;
  v_part core.analytics_part;
  v_rows jsonb := '{}';
begin
  if not exists (select from platform.tenant where id = p_tenant_id and status <> 'deleted' and node_id is null)
      or not core.try_lock_schema(p_tenant_id) then
    return null;
  end if;
  -- Checked first, because an insert with `on conflict` would wait for another worker that is inserting the row.
  if not exists (select from mart.school where tenant_id = p_tenant_id) then
    insert into mart.school (tenant_id) values (p_tenant_id) on conflict do nothing;
  end if;
  select seen into v_seen from mart.school where tenant_id = p_tenant_id for update skip locked;
  if not found then
    return null;
  end if;
  -- The counters are read before the data: a change from here on makes them differ next time, whether its data is read
  -- now or not.
  select c.counters into v_counters from core.analytics_change_counters(p_tenant_id) c;
  v_before := core.enter_tenant(p_tenant_id);
  for v_part in select * from core.analytics_part order by refresh_order loop
    if p_everything
        or v_seen -> 'all' is distinct from v_counters -> 'all'
        or v_seen -> v_part.name is distinct from v_counters -> v_part.name
        or (v_part.name in ('academic_years', 'classes') and v_rows <> '{}') then
      v_rows := v_rows || jsonb_build_object(v_part.name, core.analytics_update_table(v_part, p_tenant_id));
    end if;
  end loop;
  perform core.leave_tenant(v_before);
  update mart.school set refreshed_at = now(), seen = v_counters where tenant_id = p_tenant_id;
  return v_rows;
end $$;
comment on function core.analytics_refresh is
  'Updates the mart of a school where the school has changed since the last refresh, or all of it, in one '
  'transaction. Returns the rows written or deleted by part, {} if nothing has changed. Null if the refresh is not '
  'possible: the school is deleted, on another server, is not migrated or being migrated, or '
  'another worker is refreshing it. Security definer: the worker may neither read schools nor write the mart.';

create function core.analytics_queue() returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_schools bigint;
  v_due bigint[];
  v_purged bigint[];
  v_tenant_id bigint;
  v_target text;
  v_before text[];
begin
  insert into mart.school (tenant_id)
    select t.id
    from platform.tenant t
    where t.status <> 'deleted' and t.node_id is null
      and not exists (select from mart.school m where m.tenant_id = t.id)
    on conflict do nothing;
  -- The facts of schools on other servers are copies.
  with school as materialized (
    select m.tenant_id, m.refreshed_at, m.seen
    from mart.school m
    join platform.tenant t on t.id = m.tenant_id
    where t.node_id is null
    order by m.tenant_id
    for update of m skip locked
  ), compared as materialized (
    select c.tenant_id, s.refreshed_at, s.seen is not distinct from c.counters as is_same
    from core.analytics_change_counters() c
    join school s on s.tenant_id = c.tenant_id
  ), unchanged as (
    update mart.school m set refreshed_at = now() from compared c where c.tenant_id = m.tenant_id and c.is_same
  )
  select count(*), array_agg(tenant_id order by refreshed_at nulls first, tenant_id) filter (where not is_same)
    into v_schools, v_due
    from compared;
  if v_due is not null then
    perform core.add_jobs('analytics_schools', array(
      select (
        jsonb_build_object('tenant_ids', array_agg(id order by n)), ((n - 1) / 20)::text, null
      )::core.new_job
      from unnest(v_due) with ordinality d (id, n)
      group by (n - 1) / 20
      order by (n - 1) / 20));
  end if;
  v_purged := array(
    select m.tenant_id
    from mart.school m
    join platform.tenant t on t.id = m.tenant_id
    where t.status = 'deleted' and t.schema_version = 0 and t.node_id is null
    for update of m skip locked);
  foreach v_tenant_id in array v_purged loop
    v_before := core.enter_tenant(v_tenant_id);
    for v_target in select target from core.analytics_part loop
      execute format('delete from mart.%I where tenant_id = $1', v_target) using v_tenant_id;
    end loop;
    perform core.leave_tenant(v_before);
    delete from mart.school where tenant_id = v_tenant_id;
  end loop;
  return json_build_object(
    'schools', v_schools,
    'due', coalesce(cardinality(v_due), 0),
    'purged', cardinality(v_purged));
end $$;
comment on function core.analytics_queue is
  'Queues jobs `analytics_schools` for the schools that have changed, 20 schools each, so that workers share them and '
  'other jobs run in between; unchanged schools count as refreshed. Deletes the mart of purged schools. Returns '
  '{schools, due, purged}. A batch that is still waiting is replaced: its schools are due again.';

create function core.analytics_age() returns json
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select json_build_object(
      'schools', count(*),
      'oldest_seconds', coalesce(
        round(extract(epoch from now() - min(coalesce(m.refreshed_at, t.created_at)))::numeric, 1), 0))
    from platform.tenant t
    left join mart.school m on m.tenant_id = t.id
    -- On a node, a school with a node_id has moved away.
    where t.status <> 'deleted' and (t.node_id is null or (core.this_node()).id is null)
  $$;
comment on function core.analytics_age is
  'The age of the oldest mart of all schools that are not deleted: {schools, oldest_seconds}. A school that was never '
  'refreshed counts from its creation. At home the schools on nodes count too, by what was copied of their facts. '
  'Security definer: processes that may read no table publish it as a metric.';

create function core.analytics_jobs() returns table (
    task text, tenant_id bigint, ready bigint, waiting bigint, running bigint, failed bigint,
    oldest_ready_seconds numeric)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select
      j.task,
      t.id,
      count(*) filter (where j.state = 'ready'),
      count(*) filter (where j.state = 'waiting'),
      count(*) filter (where j.state = 'running'),
      count(*) filter (where j.state = 'failed'),
      round(extract(epoch from now() - min(j.ready_since) filter (where j.state = 'ready'))::numeric, 1)
    from core.jobs() j
    left join platform.tenant t on t.id = core.job_school(j.payload) and t.status <> 'deleted'
    where current_setting('app.analytics_tenants', true) = 'all'
      or strpos(current_setting('app.analytics_tenants', true), ',' || t.id || ',') > 0
    group by j.task, t.id
  $$;
comment on function core.analytics_jobs is
  'The queue by task and school, for the view analytics.jobs: the schools in app.analytics_tenants, and for an '
  'analyst who sees all schools also the jobs of no school. Security definer: an analyst may read nothing of the '
  'queue but these counts.';

create function core.has_analysts() returns boolean
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select exists (select from platform.user_account where role = 'analyst' and is_active and deleted_at is null);
$$;
comment on function core.has_analysts is
  'Whether an operator with the role analyst can log in. The API then keeps the analytics process running. Security '
  'definer: the API reads no tables.';

create function core.next_question_run(p_schedule text, p_after timestamptz) returns timestamptz
  language sql stable set search_path = pg_catalog, pg_temp as $$
  select date_trunc(unit, p_after, 'UTC') + ('1 ' || unit)::interval + interval '6 hours'
  from (
    select case p_schedule when 'daily' then 'day' when 'weekly' then 'week' when 'monthly' then 'month' end as unit
  ) schedule;
$$;
comment on function core.next_question_run is
  'When a schedule runs next: at 6:00 UTC of the next day, Monday or first of a month. Null without a schedule.';

create function core.may_receive_answers(p_owner_id bigint, p_recipient_id bigint) returns boolean
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select exists (
    select
    from platform.user_account o
    join platform.user_account r on r.id = p_recipient_id
    where o.id = p_owner_id
      and r.is_active
      and r.deleted_at is null
      and (r.role = 'admin'
        or r.analyst_tenant_ids is null
        or (o.role = 'analyst' and o.analyst_tenant_ids <@ r.analyst_tenant_ids))
  );
$$;
comment on function core.may_receive_answers is
  'Whether an operator may see all schools that the owner of a question sees. Security definer for the worker.';
