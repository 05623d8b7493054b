-- /api/students/:student_id/guardians: the guardians of a student, and what each may see and do. Decision 0074.

select core.define_operation('students_guardians_list', p_permission => 'guardian.read', p_open_to => 'everyone');
select core.define_operation('students_guardians_get', p_permission => 'guardian.read', p_open_to => 'everyone',
  p_unversioned_fields => '{}');
select core.define_operation('students_guardians_create', p_permission => 'guardian.manage', p_idempotent => true,
  p_reader => 'students_guardians_get', p_errors => '{conflict,invalid_reference}');
select core.define_operation('students_guardians_update', p_permission => 'guardian.manage',
  p_present => 'students_guardians_get', p_locked_by => 'lock_student_of_guardian', p_errors => '{conflict}');
select core.define_operation('students_guardians_delete', p_permission => 'guardian.manage',
  p_locked_by => 'lock_student_of_guardian', p_versioned_by => 'students_guardians_get');

-- The id of a link is that of its guardian: the path has the student.
select core.define_record('student_guardian', p_table => 'student_guardian', p_key => 'l.id', p_one_row_per_key => true,
  p_source => 'student_guardian l left join guardian g on g.id = l.guardian_id',
  p_columns => $$
    g.id, l.student_id, l.guardian_id, g.first_name, g.last_name,
    core.full_name(g.first_name, g.last_name) as guardian_name, g.email, g.phone,
    case when core.sees_guardian_details(l.guardian_id) then g.user_id end as user_id, l.relationship, l.is_primary,
    l.priority,
    case when core.sees_guardian_details(l.guardian_id) then l.can_see_records end as can_see_records,
    case when core.sees_guardian_details(l.guardian_id) then l.can_see_contacts end as can_see_contacts,
    case when core.sees_guardian_details(l.guardian_id) then l.receives_messages end as receives_messages,
    l.can_pick_up, l.starts_on, l.ends_on, l.created_at, l.updated_at
  $$,
  p_condition => 'l.removed_at is null',
  p_search => 'g.search_text',
  p_single_page_filters => '{student_id}', p_equals => '{student_id,guardian_id}',
  p_default_sort => 'priority',
  p_writable => '{student_id,guardian_id,relationship,priority,can_see_records,can_see_contacts,receives_messages,
    can_pick_up,starts_on,ends_on}');
select core.define_sort('student_guardian', 'priority', 'l.priority');
select core.define_sort('student_guardian', 'guardian_name',
  'platform.search_normal(g.last_name)', 'platform.search_normal(g.first_name)');

create function api.lock_student_of_guardian(p jsonb) returns void language plpgsql as $$
begin
  perform core.record_lock('student', (p ->> 'student_id')::bigint);
  perform api.require_changeable_children(array[(p ->> 'student_id')::bigint]);
end $$;
comment on function api.lock_student_of_guardian is
  'Locks the student whose guardians change: {student_id}. Raises not_found; forbidden for a student whom the user '
  'sees, but neither teaches nor as part of the whole school.';

create function api.student_guardian_link(p_student_id bigint, p_guardian_id bigint) returns json
  language plpgsql stable as $$
declare
  v_link json := core.record_page('student_guardian',
    jsonb_build_object('student_id', p_student_id, 'guardian_id', p_guardian_id), false) -> 'data' -> 0;
begin
  if v_link is null then
    perform core.fail('not_found', format('The student has no guardian %s.', p_guardian_id));
  end if;
  return v_link;
end $$;
comment on function api.student_guardian_link is
  'One guardian of a student, with what they may see and do. Raises not_found.';

create function api.students_guardians_list(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.student_record((p ->> 'student_id')::bigint);
  return core.record_page('student_guardian', p);
end $$;
comment on function api.students_guardians_list is
  'The guardians of a student, in the order in which the school calls them. Searches name, email and phone. Raises '
  'not_found for the student.';

create function api.students_guardians_get(p jsonb) returns json language plpgsql stable as $$
begin
  perform api.student_record((p ->> 'student_id')::bigint);
  return api.student_guardian_link((p ->> 'student_id')::bigint, coalesce(p ->> 'guardian_id', p ->> 'id')::bigint);
end $$;
comment on function api.students_guardians_get is
  'One guardian of a student: {student_id, guardian_id}. Raises not_found for either.';

create function api.guardian_is_contact(p_student_id bigint, p_guardian_id bigint) returns boolean
  language sql stable as $$
  select not exists (select from student_guardian where student_id = s.id and is_primary)
    and (
      coalesce(s.parent_name, s.parent_phone, s.parent_email) is null
      or public.search_form(s.parent_name) = public.search_form(core.full_name(g.first_name, g.last_name))
      or lower(s.parent_email) = lower(g.email))
  from student s
  cross join guardian g
  where s.id = p_student_id and g.id = p_guardian_id;
$$;
comment on function api.guardian_is_contact is
  'Whether a new guardian becomes the primary one of a student if the request does not say so: the student has none, '
  'and has no other contact.';

create function api.guardian_link(p_student_id bigint, p_guardian_id bigint, p jsonb) returns void
  language plpgsql as $$
declare
  v_former student_guardian;
  v_is_primary boolean := coalesce(
    (p ->> 'is_primary')::boolean, api.guardian_is_contact(p_student_id, p_guardian_id), false);
  v_priority integer := coalesce((p ->> 'priority')::integer, (
    select least(coalesce(max(priority), 0) + 1, 100)
    from student_guardian
    where student_id = p_student_id and removed_at is null), 1);
begin
  select * into v_former from student_guardian where student_id = p_student_id and guardian_id = p_guardian_id;
  if v_former.id is not null and v_former.removed_at is null then
    perform core.refuse_field('conflict', 'guardian_id', format('Guardian %s is linked to student %s already.',
      p_guardian_id, p_student_id));
  end if;
  if v_is_primary then
    update student_guardian set is_primary = false where student_id = p_student_id and is_primary;
  end if;
  insert into student_guardian as l (student_id, guardian_id, relationship, is_primary, priority, can_see_records,
      can_see_contacts, receives_messages, can_pick_up, starts_on, ends_on)
    values (
      p_student_id, p_guardian_id, p ->> 'relationship', v_is_primary, v_priority,
      -- What the school took from a guardian comes back only if the request says so.
      coalesce((p ->> 'can_see_records')::boolean, v_former.id is null),
      coalesce((p ->> 'can_see_contacts')::boolean, false),
      coalesce((p ->> 'receives_messages')::boolean, true),
      coalesce((p ->> 'can_pick_up')::boolean, v_former.id is null),
      (p ->> 'starts_on')::date, (p ->> 'ends_on')::date)
    on conflict (student_id, guardian_id) do update
      set relationship = excluded.relationship, is_primary = excluded.is_primary, priority = excluded.priority,
        can_see_records = excluded.can_see_records, can_see_contacts = excluded.can_see_contacts,
        receives_messages = excluded.receives_messages, can_pick_up = excluded.can_pick_up,
        starts_on = excluded.starts_on, ends_on = excluded.ends_on, removed_at = null;
end $$;
comment on function api.guardian_link is
  'Links a guardian to a student, with the fields of the link in p. The caller has locked the student. A guardian who '
  'was linked before and removed does not see the records again unless p says so. Raises conflict if they are linked.';

create function api.guardian_unlink(p_student_id bigint, p_guardian_id bigint) returns void language plpgsql as $$
declare
  v_was_primary boolean := (
    select is_primary from student_guardian where student_id = p_student_id and guardian_id = p_guardian_id);
  v_next_id bigint;
begin
  update student_guardian
    set removed_at = clock_timestamp(), is_primary = false, can_see_records = false, can_see_contacts = false,
      receives_messages = false, can_pick_up = false
    where student_id = p_student_id and guardian_id = p_guardian_id;
  if v_was_primary then
    select id
      into v_next_id
      from student_guardian
      where student_id = p_student_id and removed_at is null
      order by core.is_linked(starts_on, ends_on, removed_at, core.today()) desc, priority, id
      limit 1;
    if v_next_id is null then
      update student set parent_name = null, parent_phone = null, parent_email = null where id = p_student_id;
    else
      update student_guardian set is_primary = true where id = v_next_id;
    end if;
  end if;
end $$;
comment on function api.guardian_unlink is
  'Removes a guardian from a student, whom the caller has locked. The next guardian becomes the primary one; without '
  'one the student has no contact.';

create function api.students_guardians_create(p jsonb) returns json language plpgsql as $$
declare
  v_student_id bigint := (p ->> 'student_id')::bigint;
  v_guardian_id bigint := (p ->> 'guardian_id')::bigint;
begin
  perform api.lock_student_of_guardian(p);
  perform api.guardian_given(v_guardian_id, 'guardian_id');
  if not core.has_whole_school_scope()
      and exists (select from guardian where id = v_guardian_id and user_id = core.user_id()) then
    perform core.refuse_field('forbidden', 'guardian_id', 'Another user has to make you a guardian of this student.');
  end if;
  perform api.guardian_link(v_student_id, v_guardian_id, p);
  return api.student_guardian_link(v_student_id, v_guardian_id);
end $$;
comment on function api.students_guardians_create is
  'Links a guardian to a student: {student_id, guardian_id, relationship, is_primary, …}. The primary guardian is the '
  'contact of the student. Raises not_found for the student, invalid_reference for the guardian, conflict if they are '
  'linked already.';

create function api.students_guardians_update(p jsonb) returns json language plpgsql as $$
declare
  v_student_id bigint := (p ->> 'student_id')::bigint;
  v_guardian_id bigint := (p ->> 'guardian_id')::bigint;
  v_link_id bigint;
  v_is_primary boolean;
begin
  perform api.student_guardian_link(v_student_id, v_guardian_id);
  select id, is_primary
    into v_link_id, v_is_primary
    from student_guardian
    where student_id = v_student_id and guardian_id = v_guardian_id;
  if v_is_primary and not (p ->> 'is_primary')::boolean then
    perform core.refuse_field('conflict', 'is_primary',
      'A student with guardians has a primary one. Make another guardian the primary one instead.');
  end if;
  perform core.record_update('student_guardian',
    p - '{student_id,guardian_id,is_primary}'::text[] || jsonb_build_object('id', v_link_id));
  if not v_is_primary and (p ->> 'is_primary')::boolean then
    update student_guardian set is_primary = false where student_id = v_student_id and is_primary;
    update student_guardian set is_primary = true where id = v_link_id;
  end if;
  return api.student_guardian_link(v_student_id, v_guardian_id);
end $$;
comment on function api.students_guardians_update is
  'Changes what a guardian may see and do for a student, effective at their next request: {student_id, guardian_id, '
  'relationship, is_primary, …}. Raises not_found; conflict if the student would have no primary guardian.';

create function api.students_guardians_delete(p jsonb) returns json language plpgsql as $$
begin
  perform api.student_guardian_link((p ->> 'student_id')::bigint, (p ->> 'guardian_id')::bigint);
  perform api.guardian_unlink((p ->> 'student_id')::bigint, (p ->> 'guardian_id')::bigint);
  return json_build_object('id', (p ->> 'guardian_id')::bigint);
end $$;
comment on function api.students_guardians_delete is
  'Removes a guardian from a student, effective at their next request: {student_id, guardian_id}. Raises not_found.';
