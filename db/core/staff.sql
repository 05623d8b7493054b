-- Facts about teachers that the row scopes and several resources need.

create function core.class_staff()
  returns table (class_id bigint, teacher_id bigint, is_class_teacher boolean, subject text)
  language sql stable as $$
  select id, class_teacher_id, true, null
  from class
  where class_teacher_id is not null
  union all
  select cs.class_id, cs.teacher_id, false, s.name
  from class_subject cs
  join subject s on s.id = cs.subject_id
  where cs.teacher_id is not null
  union all
  select ta.class_id, ta.teacher_id, false, ta.subject
  from teaching_assignment ta
  union all
  select ts.class_id, ts.teacher_id, false, s.name
  from timetable_slot ts
  join subject s on s.id = ts.subject_id
  where ts.teacher_id is not null;
$$;
comment on function core.class_staff is
  'The teachers of each class: class teachers, subject teachers, other assignments, and teachers in the timetable.';

create function core.teachers_on_leave(p_from date, p_to date) returns table (date date, teacher_id bigint)
  language plpgsql stable rows 10 as $$
declare
  v_scope text := core.widen_scope();
begin
  return query
    select day::date, l.teacher_id
    from teacher_leave l
    cross join lateral generate_series(
      greatest(l.start_date, p_from)::timestamp, least(l.end_date, p_to)::timestamp, interval '1 day') day
    where l.status = 'approved'
      and daterange(l.start_date, l.end_date, '[]') && daterange(p_from, p_to, '[]');
  perform core.restore_scope(v_scope);
end $$;
comment on function core.teachers_on_leave is
  'The days and teachers of approved leaves, without kind and reason. Widens the scope for this query: users who see a '
  'lesson may see that its teacher is absent, but not the kind and reason of the leave.';
