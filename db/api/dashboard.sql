-- /api/dashboard: the school in figures.

select core.define_operation('dashboard_get', p_permission => 'dashboard.read');

-- Totals, today's attendance, fees, own notifications. For who reaches only the classes they teach, the figures of these classes.
-- Fees and leaves show to whoever may see those of the whole school, else null.
create function api.dashboard_get(p jsonb) returns json language plpgsql stable as $$
declare
  v_answer json;
begin
  with request as materialized (
    select core.today() as today, s.is_all,
      s.is_all and core.has_permission_for_all('fee.read') and 'fees_management' = any (core.tenant_features()) as sees_fees,
      s.is_all and core.has_permission_for_all('leave.manage') as sees_leaves
    from (select core.has_whole_school_scope() as is_all) s
  )
  select json_build_object(
      'academic_year', (select json_build_object('id', id, 'name', name, 'start_date', start_date, 'end_date', end_date) from academic_year where is_current),
      'total_students', case when is_all then (select students from core.tenant_usage()) else (
        select count(*) from student where is_active and deleted_at is null and class_id = any (array(select id from class))) end,
      'total_teachers', case when is_all then (select teachers from core.tenant_usage()) else (
        select count(*) from teacher where is_active and deleted_at is null and id in (
          select teacher_id from core.class_staff()
          where class_id = any (array(select c.id from class c join academic_year y on y.id = c.academic_year_id where y.is_current)))) end,
      'total_classes', (select count(*) from class c join academic_year y on y.id = c.academic_year_id where y.is_current),
      'attendance_today', (
        select json_build_object('present', coalesce(sum(present + late), 0), 'absent', coalesce(sum(absent), 0), 'late', coalesce(sum(late), 0))
        from attendance_day where date = today and (is_all or class_id = any (array(select id from class)))),
      'fee_summary', case when sees_fees then json_build_object(
        'collected_this_month', (
          select coalesce(sum(amount), 0) from payment
          where payment_date >= date_trunc('month', today)::date and payment_date < (date_trunc('month', today) + interval '1 month')::date),
        'pending', (select coalesce(sum(amount - paid_amount), 0) from student_fee where api.is_open(status))
          + (select coalesce(sum(amount - paid_amount), 0) from invoice where api.is_open(status))) end,
      'pending_leaves', case when sees_leaves then (select count(*) from teacher_leave where status = 'pending') end,
      'upcoming_holidays', (
        select coalesce(json_agg(json_build_object('id', h.id, 'name', h.name, 'date', h.date) order by h.date, h.id), '[]')
        from (select * from api.holidays_between(today, today + 364) order by date, id limit 3) h),
      'recent_notifications', (
        select coalesce(json_agg(json_build_object('id', n.id, 'title', n.title, 'message', n.message, 'type', n.type, 'action_url', n.action_url,
          'is_read', n.read_at is not null, 'created_at', n.created_at) order by n.id desc), '[]')
        from (select * from notification where user_id = core.user_id() order by id desc limit 5) n))
    into v_answer
    from request;
  return v_answer;
end $$;
