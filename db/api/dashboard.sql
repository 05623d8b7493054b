-- /api/dashboard: the key figures of a school.

select core.define_operation('dashboard_get', p_permission => 'dashboard.read', p_open_to => 'everyone');

-- It returns a set, because Postgres inlines only such functions into a query. p_is_whole_school is a constant there,
-- so the plan contains only what this scope needs. With both it is larger, and takes longer to start.
create function api.dashboard(p_is_whole_school boolean) returns table (answer json) language sql stable as $$
  with request as materialized (
    select
      core.today() as today,
      visible_student_ids() as student_ids,
      core.teacher_id() as teacher_id,
      not p_is_whole_school and current_setting('app.scope') in ('own', 'children') as is_own,
      -- The counts of the triggers, and those who will leave.
      usage.students + (
        select count(*) from student where left_on > (select core.today()) and deleted_at is null) as students,
      usage.teachers + (
        select count(*) from teacher where left_on > (select core.today()) and deleted_at is null) as teachers
    from (select) as one_row
    left join school_usage usage on p_is_whole_school
  ),
  visible as materialized (
    select
      not is_own or student_ids <> '{}' as shows_students,
      not is_own or student_ids <> '{}' or teacher_id is not null as shows_classes,
      case
        when p_is_whole_school then core.has_permission_for_all('fee.read')
        else is_own and student_ids <> '{}'
      end
        and 'fees_management' = any (core.tenant_features()) as shows_fees,
      case
        when p_is_whole_school
          then core.has_permission_for_all('leave.manage') or core.has_permission_for_all('teacher.read')
        else teacher_id is not null
      end as shows_leaves
    from request
  )
  select json_build_object(
      'academic_year', (
        select json_build_object('id', id, 'name', name, 'start_date', start_date, 'end_date', end_date)
        from academic_year
        where is_current),
      'total_students', case
        when p_is_whole_school then students
        when is_own then (
          select count(*)
          from student
          where id = any (request.student_ids) and not core.has_left(left_on, today) and deleted_at is null)
        else (
          select count(*)
          from student
          where not core.has_left(left_on, today)
            and deleted_at is null
            and class_id = any ((select scope_class_ids())::bigint[]))
      end,
      'total_teachers', case
        when p_is_whole_school then teachers
        else (
          select count(*)
          from teacher
          where not core.has_left(left_on, today)
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
      'total_classes', (
        select count(*)
        from class c
        join academic_year y on y.id = c.academic_year_id
        where y.is_current and (p_is_whole_school or c.id = any ((select scope_class_ids())::bigint[]))),
      'attendance_today', case
        when is_own then (
          select json_build_object(
            'present', count(*) filter (where a.status in ('present', 'late')),
            'absent', count(*) filter (where a.status = 'absent'),
            'late', count(*) filter (where a.status = 'late'),
            'excused', count(*) filter (where a.status = 'absent' and a.is_excused))
          from attendance a
          where a.date = today and a.student_id = any (request.student_ids))
        else (
          select json_build_object(
            'present', coalesce(sum(present + late), 0),
            'absent', coalesce(sum(absent), 0),
            'late', coalesce(sum(late), 0),
            'excused', coalesce(sum(excused), 0))
          from attendance_day
          where date = today and (p_is_whole_school or class_id = any ((select scope_class_ids())::bigint[])))
      end,
      'fee_summary', json_build_object(
        'collected_this_month', case when shows_fees then (
          select coalesce(sum(p.amount), 0)
          from payment p
          where (p_is_whole_school or p.student_id = any (request.student_ids))
            and p.payment_date >= date_trunc('month', today)::date
            and p.payment_date < (date_trunc('month', today) + interval '1 month')::date) else 0 end,
        'pending', case when shows_fees then
          (
            select coalesce(sum(f.amount - f.discount_amount - f.paid_amount), 0)
            from student_fee f
            where api.is_open(f.status) and (p_is_whole_school or f.student_id = any (request.student_ids)))
          + (
            select coalesce(sum(i.amount - i.paid_amount), 0)
            from invoice i
            where api.is_open(i.status)
              and (p_is_whole_school or i.student_id = any (request.student_ids))) else 0 end),
      'pending_leaves', case when shows_leaves then (
        select count(*)
        from teacher_leave l
        where l.status = 'pending' and (p_is_whole_school or l.teacher_id = request.teacher_id)) else 0 end,
      'not_visible', to_json(array_remove(array[
        case when not shows_students then 'total_students' end,
        case when not shows_classes then 'total_teachers' end,
        case when not shows_classes then 'total_classes' end,
        case when not shows_students then 'attendance_today' end,
        case when not shows_fees then 'fee_summary' end,
        case when not shows_leaves then 'pending_leaves' end], null)),
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
    from request, visible;
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
  'Totals, today''s attendance, fees, upcoming holidays and the user''s own notifications. Every figure counts what '
  'the user may see: a teacher gets those of the classes that they teach, with their own leave requests; a user '
  'without dashboard.read gets those of their own record as a student or teacher, or of their children. not_visible '
  'names the figures of which the user may see nothing. They are 0.';
