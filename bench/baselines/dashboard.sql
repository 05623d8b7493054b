-- $1 today, $2 its month's first day, $3 last day of the month, $4 the day in a year, $5 user
select json_build_object(
  'academic_year', (
    select json_build_object('id', id, 'name', name, 'start_date', start_date, 'end_date', end_date)
    from school.academic_year
    where is_current),
  'total_students', (select count(*) from school.student where is_active and deleted_at is null),
  'total_teachers', (select count(*) from school.teacher where is_active and deleted_at is null),
  'total_classes', (
    select count(*)
    from school.class c
    join school.academic_year y on y.id = c.academic_year_id
    where y.is_current),
  'attendance_today', (
    select json_build_object(
      'present', coalesce(sum(present + late), 0), 'absent', coalesce(sum(absent), 0), 'late', coalesce(sum(late), 0),
      'excused', coalesce(sum(excused), 0))
    from school.attendance_day
    where date = $1),
  'fee_summary', json_build_object(
    'collected_this_month', (
      select coalesce(sum(amount), 0) from school.payment where payment_date between $2 and $3),
    'pending',
      (select coalesce(sum(amount - discount_amount - paid_amount), 0) from school.student_fee
        where status in ('pending', 'partially_paid', 'overdue'))
      + (select coalesce(sum(amount - paid_amount), 0) from school.invoice
        where status in ('sent', 'partially_paid', 'overdue'))),
  'pending_leaves', (select count(*) from school.teacher_leave where status = 'pending'),
  'not_visible', '[]'::json,
  'upcoming_holidays', (
    select coalesce(json_agg(h), '[]')
    from (
      select h.id, h.name, next.date
      from school.holiday h
      cross join lateral (
        select case
          when h.is_recurring and h.date < $1
            then (h.date + make_interval(years => extract(year from age($1::date - 1, h.date))::integer + 1))::date
          else h.date
        end as date
      ) next
      where next.date between $1 and $4
      order by next.date, h.id
      limit 3
    ) h),
  'recent_notifications', (
    select coalesce(json_agg(n), '[]')
    from (
      select id, title, message, type, action_url, read_at is not null as is_read, created_at
      from school.notification
      where user_id = $5
      order by id desc
      limit 5
    ) n))
