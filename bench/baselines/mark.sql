-- $1 class, $2 date, $3 students, $4 their statuses
with input as materialized (
  select student_id, status from unnest($3::bigint[], $4::text[]) i (student_id, status)
), written as (
  insert into school.attendance as a (student_id, class_id, date, status, marked_by, marked_by_name)
    select i.student_id, $1::bigint, $2::date, i.status, 1, 'Ada Admin'
    from input i
    join school.enrollment e on e.student_id = i.student_id and e.class_id = $1::bigint and e.status = 'active'
    order by i.student_id
    on conflict (student_id, date) do update
      set status = excluded.status, marked_by = excluded.marked_by, marked_by_name = excluded.marked_by_name
      where a.status <> excluded.status
    returning xmax::text <> '0' as is_correction
)
select json_build_object(
    'class_id', $1::bigint,
    'date', $2::date,
    'marked', count(*),
    'present', count(*) filter (where status = 'present'),
    'absent', count(*) filter (where status = 'absent'),
    'late', count(*) filter (where status = 'late'),
    'corrected', (select count(*) from written where is_correction),
    'unchanged', count(*) - (select count(*) from written))
from input
