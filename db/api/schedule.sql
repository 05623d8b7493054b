-- /api/schedule, /api/calendar and /api/timetable/print: the lessons of a class or a teacher on the days of a calendar.

select core.define_operation('schedule_today', p_feature => 'timetable');
select core.define_operation('schedule_week', p_permission => 'timetable.read', p_open_to => 'everyone',
  p_feature => 'timetable', p_errors => '{not_found}');
select core.define_operation('schedule_class', p_permission => 'timetable.read', p_open_to => 'everyone',
  p_feature => 'timetable');
select core.define_operation('schedule_feeds_list', p_feature => 'timetable');
select core.define_operation('schedule_feeds_get', p_feature => 'timetable', p_record => 'calendar_feed');
select core.define_operation('schedule_feeds_create', p_needs_session => true, p_permission => 'timetable.read',
  p_allows_own_rows => true, p_feature => 'timetable', p_idempotent => true, p_record => 'calendar_feed',
  p_errors => '{conflict,invalid_state,invalid_reference}');
select core.define_operation('schedule_feeds_create_own', p_feature => 'timetable', p_idempotent => true,
  p_record => 'calendar_feed', p_errors => '{conflict,invalid_state}');
select core.define_operation('schedule_feeds_delete', p_feature => 'timetable', p_works_when_cancelled => true,
  p_record => 'calendar_feed');
select core.define_operation('calendar_get', p_access => 'feed', p_feature => 'timetable');
select core.define_operation('timetable_print', p_permission => 'timetable.read', p_open_to => 'everyone',
  p_feature => 'timetable', p_errors => '{not_found}');

select core.define_record('calendar_feed', p_table => 'calendar_feed', p_key => 'f.id', p_one_row_per_key => true,
  p_source => 'calendar_feed f left join class c on c.id = f.class_id left join teacher t on t.id = f.teacher_id',
  p_columns => $$
    f.id, f.kind, f.class_id, api.class_name(c.name, c.section) as class_name, f.teacher_id,
    core.full_name(t.first_name, t.last_name) as teacher_name,
    f.last_used_at, f.created_at, f.updated_at
  $$,
  p_condition => 'f.user_id = core.user_id()',
  p_search => $$public.search_form(concat_ws(' ', f.kind, c.name, c.section, t.first_name, t.last_name))$$,
  p_default_sort => 'created_at', p_default_order => 'desc',
  p_unversioned_fields => '{token_hash}', p_volatile_fields => '{last_used_at}');
select core.define_sort('calendar_feed', 'created_at', 'f.created_at');
select core.define_sort('calendar_feed', 'last_used_at', 'f.last_used_at nulls last');

create function api.days_between(p_from date, p_to date)
  returns table (
    date date, day_of_week integer, academic_year_id bigint, academic_year_name text, holiday json,
    is_school_day boolean
  )
  language sql stable as $$
  select
    d.date, d.day_of_week, y.id, y.name, h.holiday,
    y.id is not null and d.day_of_week = any (c.working_days) and h.date is null
  from (
    select day::date as date, extract(isodow from day)::integer as day_of_week
    from generate_series(p_from::timestamp, p_to::timestamp, interval '1 day') day
  ) d
  cross join timetable_config c
  left join academic_year y on d.date between y.start_date and y.end_date
  left join api.holiday_days(p_from, p_to) h on h.date = d.date;
$$;
comment on function api.days_between is
  'The days of a period, each with its academic year, its holiday and whether it is a school day: a working day in an '
  'academic year without a holiday.';

-- Planning one query of twelve tables at each call took 9 ms, running it 0.2 ms. That is why this is PL/pgSQL with
-- materialized parts and a generic plan: the plan is kept, and the length of the period makes no difference to it.
create function api.lessons_between(p_from date, p_to date, p_class_id bigint, p_teacher_id bigint)
  returns table (
    date date, slot_id bigint, period integer, start_time time, end_time time, class_id bigint, class_name text,
    subject_id bigint, subject_name text, teacher_id bigint, teacher_name text, room text,
    is_teacher_on_leave boolean, changed_at timestamptz
  )
  language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_config_changed_at timestamptz := (select updated_at from timetable_config);
begin
  return query
    with day as materialized (
      select d.date, d.day_of_week, d.academic_year_id
      from api.days_between(p_from, p_to) d
      where d.is_school_day
    ),
    on_leave as materialized (
      select l.date, l.teacher_id from core.teachers_on_leave(p_from, p_to) l
    ),
    period_time as materialized (
      select pt.period, pt.start_time, pt.end_time from api.period_times() pt
    ),
    slot as materialized (
      select
        s.id, s.academic_year_id, s.day_of_week, s.period, s.class_id, api.class_name(c.name, c.section) as class_name,
        s.subject_id, su.name as subject_name, s.teacher_id, core.full_name(t.first_name, t.last_name) as teacher_name,
        coalesce(s.room, c.room) as room, t.left_on,
        greatest(s.updated_at, c.updated_at, su.updated_at, t.updated_at, v_config_changed_at) as changed_at
      from timetable_slot s
      join subject su on su.id = s.subject_id
      left join class c on c.id = s.class_id
      left join teacher t on t.id = s.teacher_id
      where s.class_id = p_class_id or s.teacher_id = p_teacher_id
    )
    select
      d.date, s.id, s.period, pt.start_time, pt.end_time, s.class_id, s.class_name, s.subject_id, s.subject_name,
      case when not core.has_left(s.left_on, d.date) then s.teacher_id end,
      case when not core.has_left(s.left_on, d.date) then s.teacher_name end,
      s.room, l.teacher_id is not null, s.changed_at
    from day d
    join slot s on s.academic_year_id = d.academic_year_id and s.day_of_week = d.day_of_week
    join period_time pt on pt.period = s.period
    left join on_leave l on l.teacher_id = s.teacher_id and l.date = d.date
    where p_teacher_id is null or (l.teacher_id is null and not core.has_left(s.left_on, d.date));
end $$;
comment on function api.lessons_between is
  'The lessons of a class or a teacher on the school days of a period. A teacher on approved leave has no lessons; a '
  'class still has them, with is_teacher_on_leave. From the day on which the teacher leaves they have no teacher. '
  'changed_at: when the slot, or anything shown with it, last changed.';

create function api.schedule_days(p_from date, p_to date, p_class_id bigint, p_teacher_id bigint)
  returns table (
    date date, day_of_week integer, academic_year_id bigint, academic_year_name text, is_school_day boolean,
    holiday json, on_leave boolean, slots json
  )
  language plpgsql stable rows 7 set plan_cache_mode = force_generic_plan as $$
begin
  return query
    with lessons as materialized (
      select
        l.date,
        json_agg(
          json_build_object(
            'slot_id', l.slot_id, 'period', l.period,
            'start_time', to_char(l.start_time, 'HH24:MI'), 'end_time', to_char(l.end_time, 'HH24:MI'),
            'class_id', l.class_id, 'class_name', l.class_name,
            'subject_id', l.subject_id, 'subject_name', l.subject_name,
            'teacher_id', l.teacher_id, 'teacher_name', l.teacher_name,
            'is_teacher_on_leave', l.is_teacher_on_leave, 'room', l.room)
          order by l.period, l.slot_id) as slots
      from api.lessons_between(p_from, p_to, p_class_id, p_teacher_id) l
      group by l.date
    ),
    leave_day as materialized (
      select l.date from core.teachers_on_leave(p_from, p_to) l where l.teacher_id = p_teacher_id
    )
    select
      d.date, d.day_of_week, d.academic_year_id, d.academic_year_name, d.is_school_day, d.holiday,
      exists (select from leave_day where leave_day.date = d.date),
      coalesce(l.slots, '[]')
    from api.days_between(p_from, p_to) d
    left join lessons l on l.date = d.date;
end $$;
comment on function api.schedule_days is
  'All days of a period with the lessons of a class or a teacher, and with the holiday or leave that cancels them.';

create function api.day_rows() returns json language plpgsql stable as $$
declare
  v_rows json;
begin
  with period as materialized (
    select pt.*, lag(pt.end_time) over (order by pt.period) as previous_end
    from api.period_times() pt
    where pt.is_in_day
  )
  select json_agg(
      json_build_object(
        'kind', kind, 'period', number, 'start_time', to_char(start_time, 'HH24:MI'),
        'end_time', to_char(end_time, 'HH24:MI'))
      order by sort_key)
    into v_rows
    from (
      select
        case when is_lunch then 'lunch' else 'period' end as kind,
        period as number,
        start_time,
        end_time,
        period::numeric as sort_key
      from period
      union all
      select 'break', null, previous_end, start_time, period - 0.5
      from period
      where start_time > previous_end
    ) day_row;
  return v_rows;
end $$;
comment on function api.day_rows is
  'The periods, lunch and breaks of a school day in order: [{kind: period|lunch|break, period, start_time, end_time}].';

create function api.schedule_owner(p_class_id bigint, p_teacher_id bigint) returns json language sql stable as $$
  select json_build_object('kind', 'teacher', 'id', id, 'name', core.full_name(first_name, last_name))
  from teacher
  where id = p_teacher_id
  union all
  select json_build_object('kind', 'class', 'id', id, 'name', api.class_name(name, section))
  from class
  where id = p_class_id and p_teacher_id is null;
$$;
comment on function api.schedule_owner is
  'The class or teacher of a schedule: {kind: class|teacher, id, name}. Null if there is neither.';

create function api.schedule_on(p_date date, p_class_id bigint, p_teacher_id bigint) returns json
  language plpgsql stable as $$
declare
  v_answer json;
begin
  select row_to_json(answer)
    into v_answer
    from (
      select api.schedule_owner(p_class_id, p_teacher_id) as whose, d.*, api.day_rows() as periods
      from api.schedule_days(p_date, p_date, p_class_id, p_teacher_id) d
    ) answer;
  return v_answer;
end $$;
comment on function api.schedule_on is
  'The schedule of a class or a teacher on one day, with the rows of the day as periods.';

create function api.own_schedule(out class_id bigint, out teacher_id bigint) language sql stable as $$
  select case when t.id is null then s.class_id end, t.id
  from (values (true)) one_row
  left join teacher t on t.user_id = core.user_id() and t.deleted_at is null
  left join student s on s.id = core.student_id() and s.deleted_at is null;
$$;
comment on function api.own_schedule is
  'The user''s teacher, or else the class in which the user is a student. Both are null for other users.';

create function api.schedule_today(p jsonb) returns json language sql stable as $$
  select api.schedule_on(core.today(), own.class_id, own.teacher_id) from api.own_schedule() own;
$$;
comment on function api.schedule_today is
  'The user''s own schedule today, in the time zone of the school. A user without lessons gets a day without slots.';

create function api.schedule_class(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.require_class((p ->> 'class_id')::bigint);
  return api.schedule_on(coalesce((p ->> 'date')::date, core.today()), (p ->> 'class_id')::bigint, null);
end $$;
comment on function api.schedule_class is
  'The schedule of a class on one day: {class_id, date (today)}. Raises not_found for a class outside the scope.';

create function api.working_week() returns table ("position" integer, day_of_week integer) language sql stable as $$
  select (day - week.first_day + 7) % 7, day
  from timetable_config c
  cross join lateral (
    select
      case
        when c.working_days @> '{6,7}' and not c.working_days @> '{5}' then 6
        when c.working_days @> '{7}' and not c.working_days @> '{6}' then 7
        else 1
      end as first_day
  ) week
  cross join unnest(c.working_days) day;
$$;
comment on function api.working_week is
  'The working days, each with its position in the week, from 0. A week starts on Saturday or Sunday if that is a '
  'working day after a day without school, and otherwise on Monday.';

create function api.schedule_week(p jsonb) returns json language plpgsql stable as $$
declare
  v_date date := coalesce((p ->> 'date')::date, core.today());
  v_owner record;
  v_from date;
  v_answer json;
begin
  select * into v_owner from api.own_schedule();
  if p ? 'class_id' then
    perform api.require_class((p ->> 'class_id')::bigint);
    select (p ->> 'class_id')::bigint, null::bigint into v_owner.class_id, v_owner.teacher_id;
  elsif p ? 'teacher_id' then
    perform api.require_teacher((p ->> 'teacher_id')::bigint);
    select null::bigint, (p ->> 'teacher_id')::bigint into v_owner.class_id, v_owner.teacher_id;
  end if;
  select v_date - (extract(isodow from v_date)::integer - w.day_of_week + w."position" + 7) % 7
    into v_from
    from api.working_week() w
    limit 1;
  select json_build_object(
      'whose', api.schedule_owner(v_owner.class_id, v_owner.teacher_id),
      'from', v_from,
      'to', v_from + 6,
      'periods', api.day_rows(),
      'days', json_agg(d order by d.date))
    into v_answer
    from api.schedule_days(v_from, v_from + 6, v_owner.class_id, v_owner.teacher_id) d
    join api.working_week() w on w.day_of_week = d.day_of_week;
  return v_answer;
end $$;
comment on function api.schedule_week is
  'The working days of a week with the schedule of a class, a teacher or the user: {class_id, teacher_id, date '
  '(today)}. Raises not_found for a class or teacher outside the scope.';

create function api.feed_schedule(
  p_kind text, p_class_id bigint, p_teacher_id bigint, p_error text, out class_id bigint, out teacher_id bigint
)
  language plpgsql stable as $$
begin
  if p_kind = 'own' then
    select own.class_id, own.teacher_id into class_id, teacher_id from api.own_schedule() own;
    if teacher_id is null and core.student_id() is null then
      perform core.fail('invalid_state',
        'You are neither a teacher nor a student of this school, so you have no lessons of your own.');
    end if;
  elsif p_kind = 'class' then
    class_id := p_class_id;
    if not exists (select from class where id = p_class_id) then
      perform core.refuse_field(p_error, 'class_id', format('There is no class %s.', p_class_id));
    end if;
  elsif p_kind = 'teacher' then
    teacher_id := p_teacher_id;
    if not core.can_see_teacher_details(p_teacher_id)
       or not exists (select from teacher where id = p_teacher_id and deleted_at is null) then
      perform core.refuse_field(p_error, 'teacher_id', format('There is no teacher %s.', p_teacher_id));
    end if;
  end if;
end $$;
comment on function api.feed_schedule is
  'The class or teacher whose lessons a calendar feed shows. Raises p_error for a class or teacher outside the scope, '
  'and invalid_state for a feed of kind own if the user is neither a teacher nor a student.';

select core.define_functions('schedule_feeds', 'calendar_feed',
  p_list => 'The user''s calendar feeds, latest first. Searches kind, class and teacher.',
  p_get => 'One calendar feed of the user. Raises not_found.',
  p_delete => 'Revokes a calendar feed of the user. Raises not_found.');

create function api.schedule_feeds_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  perform api.feed_schedule(
    p ->> 'kind', (p ->> 'class_id')::bigint, (p ->> 'teacher_id')::bigint, 'invalid_reference');
  -- Serializes concurrent requests of the user, so that they cannot exceed the limit together.
  perform from user_account where id = core.user_id() for no key update;
  if (select count(*) from calendar_feed where user_id = core.user_id()) >= 50 then
    perform core.fail('conflict', 'You already have 50 calendar feeds. Revoke one that you no longer use first.');
  end if;
  insert into calendar_feed (user_id, kind, class_id, teacher_id, token_hash)
    values (
      core.user_id(), p ->> 'kind', (p ->> 'class_id')::bigint, (p ->> 'teacher_id')::bigint, p ->> 'token_hash'
    )
    returning id into v_id;
  return api.calendar_feed_record(v_id)::jsonb || jsonb_build_object('token_hash', p -> 'token_hash');
end $$;
comment on function api.schedule_feeds_create is
  'Creates a calendar feed: {kind, class_id, teacher_id, token_hash}. Answers the feed with its token_hash; if an '
  'Idempotency-Key repeats a request, that is the hash of the first one. Raises invalid_reference for a class or '
  'teacher outside the scope, and conflict if the user already has 50 feeds.';

create function api.schedule_feeds_create_own(p jsonb) returns json language plpgsql as $$
begin
  if coalesce(p ->> 'kind' not in ('own', 'holidays'), true) then
    perform core.fail('forbidden', 'This needs the permission timetable.read.');
  end if;
  return api.schedule_feeds_create(p);
end $$;
comment on function api.schedule_feeds_create_own is
  'Creates a calendar feed of the kinds that need no permission, own and holidays. Raises forbidden for other kinds.';

create function api.calendar_get(p jsonb) returns json language plpgsql stable as $$
declare
  v_feed record;
  v_from date;
  v_to date;
  v_zone text := core.time_zone();
  v_changed_at timestamptz;
  v_answer json;
begin
  select f.kind, s.class_id, s.teacher_id
    into strict v_feed
    from calendar_feed f
    cross join lateral api.feed_schedule(f.kind, f.class_id, f.teacher_id, 'not_found') s
    where f.token_hash = p ->> 'token_hash';
  select min(start_date), max(end_date), max(updated_at)
    into v_from, v_to, v_changed_at
    from academic_year
    where end_date >= core.today() - 28 and start_date <= core.today() + 60;
  v_from := least(v_from, core.today() - 28);
  v_to := greatest(v_to, core.today() + case when v_feed.kind = 'holidays' then 365 else 28 end);
  v_changed_at := greatest(
    v_changed_at,
    (select max(h.updated_at) from holiday h),
    (select max(l.updated_at) from teacher_leave l where l.teacher_id = v_feed.teacher_id));
  with lesson as materialized (
    select *
    from api.lessons_between(v_from, v_to, v_feed.class_id, v_feed.teacher_id)
    where v_feed.kind <> 'holidays'
  ),
  series as (
    select
      l.slot_id, l.class_id, l.period, l.start_time, l.end_time, l.subject_name, l.class_name, l.teacher_name, l.room,
      l.changed_at, min(l.date) as first_date, max(l.date) as last_date, array_agg(l.date) as dates,
      array_agg((l.date + l.start_time) at time zone v_zone order by l.date) filter (where l.is_teacher_on_leave)
        as on_leave_at
    from lesson l
    group by
      l.slot_id, l.class_id, l.period, l.start_time, l.end_time, l.subject_name, l.class_name, l.teacher_name, l.room,
      l.changed_at
  ),
  weekly_lesson as (
    select
      format('lesson-%s-%s-%s', s.class_id, extract(isodow from s.first_date), s.period) as uid,
      s.subject_name as title,
      case when v_feed.teacher_id is not null then s.class_name end as class_name,
      case when v_feed.teacher_id is null then s.teacher_name end as teacher_name,
      s.period,
      s.room,
      (s.first_date + s.start_time) at time zone v_zone as starts_at,
      (s.first_date + s.end_time) at time zone v_zone as ends_at,
      (s.last_date + s.start_time) at time zone v_zone as last_starts_at,
      array(
        select (week::date + s.start_time) at time zone v_zone
        from generate_series(s.first_date::timestamp, s.last_date::timestamp, interval '7 days') week
        where week::date <> all (s.dates)
        order by week
      ) as excluded,
      coalesce(s.on_leave_at, '{}') as on_leave_at,
      greatest(s.changed_at, v_changed_at) as changed_at
    from series s
  ),
  holiday_event as (
    select format('holiday-%s-%s', h.id, h.date) as uid, h.name as title, h.date, holiday.updated_at as changed_at
    from api.holidays_between(v_from, v_to) h
    join holiday on holiday.id = h.id
    order by h.date, h.id
    limit 5000
  )
  select json_build_object(
      'kind', v_feed.kind,
      'tenant_id', core.tenant_id(),
      'subdomain', core.tenant_summary() -> 'subdomain',
      'school', core.tenant_summary() -> 'name',
      'whose', api.schedule_owner(v_feed.class_id, v_feed.teacher_id),
      'time_zone', v_zone,
      'lessons', coalesce((select json_agg(l order by l.starts_at, l.uid) from weekly_lesson l), '[]'),
      'holidays', coalesce((select json_agg(h) from holiday_event h), '[]'))
    into v_answer;
  return v_answer;
end $$;
comment on function api.calendar_get is
  'The lessons and holidays of a calendar feed: {token_hash}, for the academic years that ended at most four weeks ago '
  'and begin within 60 days. A weekly lesson is one object: starts_at and ends_at of the first lesson, last_starts_at, '
  'the times at which it does not take place (excluded), and those at which its teacher is on leave (on_leave_at). '
  'Raises not_found if the owner of the feed may no longer read its class or teacher.';

create function api.timetable_print(p jsonb) returns json language plpgsql stable as $$
declare
  v_class_id bigint := (p ->> 'class_id')::bigint;
  v_teacher_id bigint := (p ->> 'teacher_id')::bigint;
  v_year record;
  v_answer json;
begin
  if v_class_id is not null then
    perform api.require_class(v_class_id);
  else
    perform api.require_teacher(v_teacher_id);
  end if;
  select y.id, y.name
    into v_year
    from academic_year y
    where y.id = coalesce(
        (p ->> 'academic_year_id')::bigint,
        (select academic_year_id from class where id = v_class_id),
        (select id from academic_year where is_current))
      and (v_class_id is null or y.id = (select academic_year_id from class where id = v_class_id));
  if v_year.id is null then
    perform core.fail('not_found',
      case
        when v_class_id is null then 'There is no such academic year.'
        else 'The class belongs to another academic year.'
      end);
  end if;
  with slot as (
    select
      s.day_of_week, s.period, su.name as subject, coalesce(s.room, c.room) as room,
      case
        when v_class_id is null then api.class_name(c.name, c.section)
        else core.full_name(t.first_name, t.last_name)
      end as with_whom
    from timetable_slot s
    join subject su on su.id = s.subject_id
    left join class c on c.id = s.class_id
    left join teacher t on t.id = s.teacher_id
    where s.academic_year_id = v_year.id and (s.class_id = v_class_id or s.teacher_id = v_teacher_id)
  ),
  -- Past years may have slots on days and in periods that the present week does not have. They come last.
  print_day as (
    select w."position" as sort_key, w.day_of_week as day from api.working_week() w
    union all
    select distinct 7, day_of_week from slot where day_of_week not in (select w.day_of_week from api.working_week() w)
  ),
  print_row as (
    select day_row.sort_key, day_row.object
    from jsonb_array_elements(api.day_rows()::jsonb) with ordinality day_row (object, sort_key)
    union all
    select
      1000 + pt.period,
      jsonb_build_object(
        'kind', 'period', 'period', pt.period, 'start_time', to_char(pt.start_time, 'HH24:MI'),
        'end_time', to_char(pt.end_time, 'HH24:MI'))
    from api.period_times() pt
    where not pt.is_in_day and pt.period in (select period from slot)
  )
  select json_build_object(
      'letterhead', api.letterhead(),
      'whose', api.schedule_owner(v_class_id, v_teacher_id),
      'academic_year', v_year.name,
      'printed_on', core.today(),
      'days', (select json_agg(day order by sort_key) from print_day),
      'rows', (select jsonb_agg(object order by sort_key) from print_row),
      'slots', coalesce(
        (select json_agg(slot order by slot.day_of_week, slot.period, slot.subject, slot.with_whom) from slot), '[]'))
    into v_answer;
  return v_answer;
end $$;
comment on function api.timetable_print is
  'The content of a printed timetable: {class_id} or {teacher_id, academic_year_id (the current one)}. Answers the '
  'letterhead, the days, the rows of a day and the slots. Raises not_found for a class, teacher or year that does not '
  'exist or is outside the scope, and for a class of another year.';

create function api.letterhead() returns json language sql stable as $$
  select json_build_object(
    'name', core.tenant_summary() -> 'name',
    'address', s.address,
    'phone', s.phone,
    'email', s.email,
    'website', s.website,
    'locale', api.locale(),
    'logo', replace(encode(f.content, 'base64'), e'\n', ''))
  from (values (true)) one_row
  left join school s on true
  -- A PDF cannot contain pictures of other types.
  left join file f on f.id = s.logo_id and f.content_type in ('image/png', 'image/jpeg');
$$;
comment on function api.letterhead is
  'The letterhead of printed documents: {name, address, phone, email, website, locale, logo}. The logo is a PNG or '
  'JPEG in base64.';
