-- /api/me/children: the children of the guardian who is logged in.

-- For every user: those who are no guardians have no children.
select core.define_operation('me_children_list');
select core.define_operation('me_children_dashboard');

create function api.own_children() returns table (student_id bigint) language sql stable as $$
  select child.student_id
  from guardian g
  cross join core.children(g.id) child
  where g.user_id = core.user_id()
    and g.deleted_at is null
    and exists (
      select
      from user_role ur
      join role r on r.id = ur.role_id
      where ur.user_id = core.user_id() and r.is_system and r.name = 'guardian');
$$;
comment on function api.own_children is
  'The students whose records the user may see as their guardian, in every scope.';

create function api.me_children_list(p jsonb) returns json language plpgsql stable as $$
begin
  return core.json_page((
    select json_agg(json_build_object(
        'student_id', s.id, 'first_name', s.first_name, 'last_name', s.last_name,
        'student_name', core.full_name(s.first_name, s.last_name), 'admission_number', s.admission_number,
        'class_id', s.class_id, 'class_name', api.class_name(c.name, c.section), 'grade_name', g.name,
        'is_active', not core.has_left(s.left_on, core.today()), 'relationship', l.relationship,
        'can_see_contacts', l.can_see_contacts, 'receives_messages', l.receives_messages, 'can_pick_up', l.can_pick_up)
      order by platform.search_normal(s.first_name), s.id)
    from guardian own
    join student_guardian l on l.guardian_id = own.id
    join api.own_children() child on child.student_id = l.student_id
    join student s on s.id = l.student_id and s.deleted_at is null
    left join class c on c.id = s.class_id
    left join grade g on g.id = s.grade_id
    where own.user_id = core.user_id() and own.deleted_at is null), p);
end $$;
comment on function api.me_children_list is
  'The students of whom the user is a guardian and whose records they may see, by first name. Searches all fields.';

create function api.me_children_dashboard(p jsonb) returns json language plpgsql stable as $$
declare
  v_id bigint := (p ->> 'student_id')::bigint;
  v_answer json;
begin
  if exists (select from api.own_children() where student_id = v_id) then
    v_answer := api.student_dashboard(v_id);
  end if;
  if v_answer is null then
    perform core.fail('not_found', format('You have no child %s at this school.', v_id));
  end if;
  return v_answer;
end $$;
comment on function api.me_children_dashboard is
  'The dashboard of a child of the user: {student_id} (api.student_dashboard). Raises not_found.';
