-- /api/rooms: the rooms of a school.

-- Reading needs no permission, because every user of the school sees rooms in timetables.
select core.define_operation('rooms_list', p_needs_session => false);
select core.define_operation('rooms_get', p_needs_session => false, p_record => 'room');
select core.define_operation('rooms_create', p_permission => 'master_data.manage', p_idempotent => true,
  p_record => 'room', p_errors => '{conflict,invalid_reference}');
-- Changing is_shared and the name also changes slots: lock the timetable_config first.
select core.define_operation('rooms_update', p_permission => 'master_data.manage', p_record => 'room',
  p_lock_first => 'timetable_config', p_errors => '{conflict,schedule_conflict,invalid_reference}');
select core.define_operation('rooms_delete', p_permission => 'master_data.manage', p_record => 'room',
  p_errors => '{in_use}');

select core.define_record('room', p_table => 'room', p_key => 'r.id', p_one_row_per_key => true,
  p_source => 'room r left join school_unit u on u.id = r.school_unit_id',
  p_columns => $$
    r.id, r.name, r.capacity, r.school_unit_id, u.name as school_unit_name, r.is_shared, r.is_active, r.created_at,
    r.updated_at
  $$,
  p_search => 'public.search_form(r.name)',
  p_equals => '{school_unit_id,is_shared,is_active}',
  p_default_sort => 'name',
  p_writable => '{name,capacity,school_unit_id,is_shared,is_active}');
select core.define_sort('room', 'name', 'platform.search_normal(r.name)');
select core.define_sort('room', 'capacity', 'r.capacity nulls last');
select core.define_sort('room', 'created_at', 'r.created_at');

select core.define_functions('rooms', 'room',
  p_list => 'Rooms by name. Searches name. Filters: school_unit_id, is_shared, is_active.',
  p_get => 'One room. Raises not_found.',
  p_create => 'Creates a room. Raises conflict for a name that is in use, invalid_reference for an unknown unit.');

create function api.rooms_delete(p jsonb) returns json language plpgsql as $$
declare
  v_subjects text[] := array(
    select su.name
    from subject_room sr
    join subject su on su.id = sr.subject_id
    where sr.room_id = (p ->> 'id')::bigint
    order by platform.search_normal(su.name));
begin
  if v_subjects <> '{}' then
    perform core.fail('in_use', format(
      'This is one of the rooms of %s%s. Change the rooms of the subject first.',
      array_to_string(v_subjects[1:3], ', '),
      case when cardinality(v_subjects) > 3 then format(' and %s more', cardinality(v_subjects) - 3) end));
  end if;
  return core.record_delete('room', p);
end $$;
comment on function api.rooms_delete is
  'Deletes a room. Raises in_use while a class, a subject or a slot refers to it.';

create function api.require_lessons_apart(p_room_id bigint) returns void language plpgsql as $$
declare
  v_scope text := core.widen_scope();
  v_count bigint;
  v_details json;
begin
  select
      count(*),
      json_agg(json_build_object('path', 'is_shared', 'message', t.message, 'kind', 'room') order by t.n)
        filter (where t.n <= 5)
    into v_count, v_details
    from (
      select
        format('%s on %s, period %s.',
          string_agg(format('%s (%s)', api.class_name(c.name, c.section), su.name), ', ' order by c.id),
          api.day_name(s.day_of_week), s.period) as message,
        row_number() over (order by y.start_date, s.day_of_week, s.period) as n
      from timetable_slot s
      join academic_year y on y.id = s.academic_year_id
      join class c on c.id = s.class_id
      join subject su on su.id = s.subject_id
      where p_room_id = coalesce(s.room_id, case when s.room is null then c.home_room_id end)
        and y.end_date >= coalesce((select start_date from academic_year where is_current), core.today())
      group by y.id, s.day_of_week, s.period
      having count(*) > 1
    ) t;
  perform core.restore_scope(v_scope);
  if v_count > 0 then
    perform core.fail('schedule_conflict',
      format('Lessons overlap in this room %s a week. Move them to other rooms or times first.',
        case v_count when 1 then 'once' else v_count || ' times' end),
      v_details);
  end if;
end $$;
comment on function api.require_lessons_apart is
  'Raises schedule_conflict if lessons of the current or a later year take place in a room at the same time. The '
  'details name the first five times.';

create function api.rooms_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  if not (p ->> 'is_shared')::boolean and (select is_shared from room where id = v_id) then
    perform api.require_lessons_apart(v_id);
  end if;
  perform core.record_update('room', p);
  return api.room_record(v_id);
end $$;
comment on function api.rooms_update is
  'Updates a room; a new name is also that in classes and slots. Raises conflict for a name that is in use, '
  'invalid_reference for an unknown unit, and schedule_conflict if a room with several lessons at a time becomes one '
  'that is not shared.';

create function api.with_room(p jsonb, p_field text, p_room_id bigint default null, p_room text default null)
  returns jsonb language plpgsql stable as $$
declare
  v_id bigint := (p ->> p_field)::bigint;
  v_text text := p ->> 'room';
  v_has_id boolean := p ? p_field and (v_id is distinct from p_room_id or not core.may_compare() and v_id is not null);
  v_has_text boolean :=
    p ? 'room' and (v_text is distinct from p_room or not core.may_compare() and v_text is not null);
  v_room_id bigint;
  v_name text;
  v_is_active boolean := true;
begin
  if v_has_id and v_id is not null then
    select id, name into v_room_id, v_name from room where id = v_id and (is_active or id = p_room_id);
    if not found then
      perform core.refuse_field('invalid_reference', p_field, format('There is no active room %s.', v_id));
    elsif v_has_text and lower(v_text) <> lower(v_name) then
      perform core.refuse_field('validation_error', 'room', format('must be the name of the room in %s', p_field));
    end if;
  elsif v_has_text and v_text is not null then
    select id, name, is_active into v_room_id, v_name, v_is_active from room where lower(name) = lower(v_text);
    if not v_is_active and v_room_id is distinct from p_room_id then
      perform core.refuse_field('invalid_reference', 'room',
        format('The room %s is not active. Choose another room.', v_name));
    end if;
  elsif not v_has_id and not v_has_text then
    return p - 'room' - p_field;
  end if;
  return p || jsonb_build_object(
    p_field, v_room_id, 'room', coalesce(v_name, case when v_has_text then v_text end));
end $$;
comment on function api.with_room is
  'The parameters of a write with the room that they name by its id (p_field) or as text (room): the one that differs '
  'from the present values p_room_id and p_room. A text that is the name of a room is that room; any other text stays. '
  'Raises invalid_reference for a room that is unknown or not active, validation_error if both name different rooms.';
