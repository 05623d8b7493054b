-- The state of a person on a day: the definitions of attending, having left, and riding the bus. Nothing is
-- stored when a day comes: left_on, enrollment.ends_on and transport_enrollment.cancelled_at may be ahead, and are
-- compared with the day. See docs/decisions/0071-leaving.md.
--
--   attends   an enrollment begins on or before the day, and has not ended on it
--   has left  left_on is not after the day
--   deleted   deleted_at is set; the enrollments ended on the day of the deletion
--   else      a student without a class, who has not left

-- Postgres inlines these functions, also with a subquery as the day, because each uses its parameters once.
create function core.has_left(p_left_on date, p_day date) returns boolean language sql immutable parallel safe
  return coalesce(p_left_on <= p_day, false);
comment on function core.has_left is 'Whether a student, a teacher or a driver with this left_on has left on a day.';

create function core.has_not_ended(p_starts_on date, p_ends_on date, p_day date) returns boolean
  language sql immutable parallel safe
  return coalesce(p_ends_on > greatest(p_day, p_starts_on), true);
comment on function core.has_not_ended is
  'Whether an enrollment has not ended on a day: it covers the day, or begins later. A completed one also covers its '
  'last day, ends_on.';

create function core.rides(p_cancelled_at timestamptz, p_moment timestamptz) returns boolean
  language sql immutable parallel safe
  return coalesce(p_cancelled_at > p_moment, true);
comment on function core.rides is
  'Whether a student with this transport enrollment still rides at a moment: now(), or in a write clock_timestamp(), '
  'because another request may have ended the enrollment after this transaction began.';

create function core.enrolled() returns table (student_id bigint, class_id bigint, academic_year_id bigint)
  language sql stable as $$
  select e.student_id, e.class_id, e.academic_year_id
  from enrollment e
  where core.has_not_ended(e.starts_on, e.ends_on, (select core.today()));
$$;
comment on function core.enrolled is 'The students who attend a class today, and the class.';

create function core.class_roll() returns table (class_id bigint, student_id bigint, academic_year_id bigint)
  language sql stable as $$
  select e.class_id, e.student_id, e.academic_year_id
  from enrollment e
  join academic_year y on y.id = e.academic_year_id
  where e.status = 'completed'
    or core.has_not_ended(e.starts_on, e.ends_on, least((select core.today()), y.end_date));
$$;
comment on function core.class_roll is
  'The students of each class: those who attend it today or, in an academic year that has ended, who attended it on '
  'the last day or completed the year in it. A student who completed a class twice has two rows.';

create function core.attending(p_class_id bigint, p_day date) returns table (student_id bigint)
  language sql stable as $$
  select e.student_id
  from enrollment e
  where e.class_id = p_class_id
    and e.starts_on <= p_day
    and (core.has_not_ended(e.starts_on, e.ends_on, p_day) or (e.ends_on = p_day and e.status = 'completed'));
$$;
comment on function core.attending is
  'The students who attend a class on a day. One who left it on that day, perhaps for another class, does not; one who '
  'completed the year does.';

create function core.given_left_on(p jsonb, p_left_on date) returns date language sql stable
  return case
    when p ->> 'left_on' is not null and (p ->> 'left_on')::date is distinct from p_left_on
      then (p ->> 'left_on')::date
    when (p ->> 'is_active')::boolean = core.has_left(p_left_on, core.today())
      then case when not (p ->> 'is_active')::boolean then core.today() end
    when p ? 'left_on' and p ->> 'left_on' is null then null
    else p_left_on
  end;
comment on function core.given_left_on is
  'The day left_on that a request means. p_left_on is the present value. Of is_active and left_on, the one that '
  'differs from the present value counts; left_on if both do and it is not null. is_active false means today, true '
  'returns a person who has left.';

create function core.left_on_faults(p jsonb, p_left_on date, p_leaving_reason text)
  returns table (field text, message text) language sql stable as $$
  select 'is_active', format('must be false or left out, because left_on is not after today (%s)', core.today())
  where (p ->> 'is_active')::boolean
    and core.has_left(p_left_on, core.today())
    and core.has_left(core.given_left_on(p, p_left_on), core.today())
  union all
  select 'leaving_reason', 'is only allowed with left_on'
  where p ->> 'leaving_reason' is distinct from p_leaving_reason
    and p ->> 'leaving_reason' is not null
    and core.given_left_on(p, p_left_on) is null;
$$;
comment on function core.left_on_faults is
  'What contradicts itself in the fields of a request about leaving. The parameters are those of core.given_left_on, '
  'and the present reason.';

create function core.with_left_on(p jsonb, p_left_on date) returns jsonb language sql stable
  return p - 'is_active' || case
    when p ?| '{is_active,left_on}' then jsonb_build_object('left_on', core.given_left_on(p, p_left_on))
    else '{}'
  end;
comment on function core.with_left_on is
  'The parameters of a write of a person with left_on (core.given_left_on) in place of is_active.';
