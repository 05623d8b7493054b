-- /api/rooms: the rooms of a school.

-- Reading needs no permission, because every user of the school sees rooms in timetables.
select core.define_operation('rooms_list', p_needs_session => false);
select core.define_operation('rooms_get', p_needs_session => false, p_record => 'room');
select core.define_operation('rooms_create', p_permission => 'master_data.manage', p_idempotent => true,
  p_record => 'room', p_errors => '{conflict,invalid_reference}');
select core.define_operation('rooms_update', p_permission => 'master_data.manage', p_record => 'room',
  p_errors => '{conflict,invalid_reference}');
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
select core.define_sort('room', 'capacity', 'r.capacity nulls last', 'platform.search_normal(r.name)');
select core.define_sort('room', 'created_at', 'r.created_at');

select core.define_functions('rooms', 'room',
  p_list => 'Rooms by name. Searches name. Filters: school_unit_id, is_shared, is_active.',
  p_get => 'One room. Raises not_found.',
  p_create => 'Creates a room. Raises conflict for a name that is in use, invalid_reference for an unknown unit.',
  p_update => 'Updates a room. Raises conflict for a name that is in use, invalid_reference for an unknown unit.',
  p_delete => 'Deletes a room. Raises in_use while something refers to it.');
