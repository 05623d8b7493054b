-- /api/dashboard: the key figures of a school.

select core.define_operation('dashboard_get', p_permission => 'dashboard.read', p_open_to => 'everyone');

-- It returns a set, because Postgres inlines only such functions into a query. p_is_whole_school is a constant there,
-- so the plan contains only what this scope needs. With both it is larger, and takes longer to start.
create function api.dashboard(p_is_whole_school boolean) returns table (answer json) language sql stable as $$
  with request as materialized (
    select
      core.today() as today,
      core.has_permission('dashboard.read') as can_read,
      p_is_whole_school
        and core.has_permission_for_all('fee.read')
        and 'fees_management' = any (core.tenant_features()) as can_read_fees,
      p_is_whole_school and core.has_permission_for_all('leave.manage') as can_read_leaves,
      usage.students,
      usage.teachers
    -- Called once: each reference to it would be another call. Skipped for teachers.
    from (select) as one_row
    left join core.tenant_usage() usage on p_is_whole_school
  )
  select json_build_object(
      'academic_year', (
        select json_build_object('id', id, 'name', name, 'start_date', start_date, 'end_date', end_date)
        from academic_year
        where is_current),
      'total_students', case
        when not can_read then null
        when p_is_whole_school then students
        else (
          select count(*)
          from student
          where is_active and deleted_at is null and class_id = any ((select scope_class_ids())::bigint[]))
      end,
      'total_teachers', case
        when not can_read then null
        when p_is_whole_school then teachers
        else (
          select count(*)
          from teacher
          where is_active
            and deleted_at is null
            and id in (
              select teacher_id
              from core.class_staff()
              where class_id = any (array(
                select c.id
                from class c
                join academic_year y on y.id = c.academic_year_id
                where y.is_current and c.id = any ((select scope_class_ids())::bigint[])))))
      end,
      'total_classes', case when can_read then (
        select count(*)
        from class c
        join academic_year y on y.id = c.academic_year_id
        where y.is_current and (p_is_whole_school or c.id = any ((select scope_class_ids())::bigint[]))) end,
      'attendance_today', (
        select json_build_object(
          'present', case when can_read then coalesce(sum(present + late), 0) end,
          'absent', case when can_read then coalesce(sum(absent), 0) end,
          'late', case when can_read then coalesce(sum(late), 0) end)
        from attendance_day
        where date = today and (p_is_whole_school or class_id = any ((select scope_class_ids())::bigint[]))),
      'fee_summary', json_build_object(
        'collected_this_month', case when can_read_fees then (
          select coalesce(sum(amount), 0)
          from payment
          where payment_date >= date_trunc('month', today)::date
            and payment_date < (date_trunc('month', today) + interval '1 month')::date) end,
        'pending', case when can_read_fees then
          (select coalesce(sum(amount - paid_amount), 0) from student_fee where api.is_open(status))
          + (select coalesce(sum(amount - paid_amount), 0) from invoice where api.is_open(status)) end),
      'pending_leaves', case when can_read_leaves then (
        select count(*) from teacher_leave where status = 'pending') end,
      'upcoming_holidays', (
        select coalesce(
          json_agg(json_build_object('id', h.id, 'name', h.name, 'date', h.date) order by h.date, h.id), '[]')
        from (select * from api.holidays_between(today, today + 364) order by date, id limit 3) h),
      'recent_notifications', (
        select coalesce(
          json_agg(
            json_build_object(
              'id', n.id,
              'title', n.title,
              'message', n.message,
              'type', n.type,
              'action_url', n.action_url,
              'is_read', n.read_at is not null,
              'created_at', n.created_at)
            order by n.id desc),
          '[]')
        from (select * from notification where user_id = core.user_id() order by id desc limit 5) n))
    from request;
$$;
comment on function api.dashboard is
  'The answer of dashboard_get. p_is_whole_school: whether the scope of the request is the whole school.';

-- Planning it takes several times as long as running it, so every connection keeps the plan for each school.
create function api.dashboard_get(p jsonb) returns json language plpgsql stable as $$
begin
  return core.run_prepared(
    case when core.has_whole_school_scope() then 'select answer from api.dashboard(true)'
      else 'select answer from api.dashboard(false)' end, p);
end $$;
comment on function api.dashboard_get is
  'Totals, today''s attendance, fees, upcoming holidays and the user''s own notifications. A teacher gets the figures '
  'of the classes that they teach. Figures that the user may not see are null: all without dashboard.read, the fees '
  'and pending_leaves unless the user may read the fees or manage the leaves of the whole school.';
