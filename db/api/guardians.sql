-- /api/guardians: the people who care for students. A guardian is no user; create_user_account
-- gives them a login with the role guardian, which
-- shows them the rows of their children (core.set_row_scope). Decision 0074.

select core.define_operation('guardians_list', p_permission => 'guardian.read', p_open_to => 'everyone');
select core.define_operation('guardians_get', p_permission => 'guardian.read', p_open_to => 'everyone',
  p_record => 'guardian');
select core.define_operation('guardians_create', p_permission => 'guardian.manage', p_idempotent => true,
  p_record => 'guardian', p_errors => '{conflict,invalid_reference}');
select core.define_operation('guardians_update', p_permission => 'guardian.manage', p_allows_own_rows => true,
  p_record => 'guardian', p_errors => '{conflict,invalid_reference}');
select core.define_operation('guardians_delete', p_permission => 'guardian.manage', p_record => 'guardian',
  p_errors => '{conflict}');

select core.define_record('guardian', p_table => 'guardian', p_key => 'g.id', p_one_row_per_key => true,
  p_source => 'guardian g',
  p_columns => $$
    g.id, g.first_name, g.last_name, g.email, g.phone,
    case when core.sees_guardian_details(g.id) then g.address end as address,
    case when core.sees_guardian_details(g.id) then g.user_id end as user_id,
    (
      select coalesce(json_agg(json_build_object(
          'student_id', s.id, 'student_name', core.full_name(s.first_name, s.last_name),
          'class_id', s.class_id, 'class_name', api.class_name(c.name, c.section),
          'relationship', l.relationship, 'is_primary', l.is_primary, 'priority', l.priority,
          'can_see_records', case when core.sees_guardian_details(g.id) then l.can_see_records end,
          'can_see_contacts', case when core.sees_guardian_details(g.id) then l.can_see_contacts end,
          'receives_messages', case when core.sees_guardian_details(g.id) then l.receives_messages end,
          'can_pick_up', l.can_pick_up,
          'starts_on', l.starts_on, 'ends_on', l.ends_on)
        order by platform.search_normal(s.last_name), platform.search_normal(s.first_name), s.id), '[]')
      from student_guardian l
      join student s on s.id = l.student_id and s.deleted_at is null
      left join class c on c.id = s.class_id
      where l.guardian_id = g.id and l.removed_at is null
    ) as children,
    g.created_at, g.updated_at
  $$,
  p_condition => 'g.deleted_at is null',
  p_search => 'g.search_text',
  p_single_page_filters => '{student_id}', p_narrow_filters => '{is_in_scope}',
  p_default_sort => 'last_name',
  p_writable => '{first_name,last_name,email,phone,address,user_id}',
  p_unversioned_fields => '{children}');
select core.define_filter('guardian', 'student_id', $$
  g.id in (select guardian_id from student_guardian where student_id = :value::bigint and removed_at is null)
$$);
select core.define_filter('guardian', 'has_login', '(g.user_id is not null) = :value::boolean', p_is_literal => true);
-- The condition of the row policy for users who do not see the whole school. In a filter it uses indexes.
select core.define_filter('guardian', 'is_in_scope', $$
  g.id = any ((
    select visible_guardian_ids() || nullif(current_setting('app.guardian_id', true), '')::bigint)::bigint[])
$$);
select core.define_sort('guardian', 'last_name',
  'platform.search_normal(g.last_name)', 'platform.search_normal(g.first_name)');
select core.define_sort('guardian', 'first_name',
  'platform.search_normal(g.first_name)', 'platform.search_normal(g.last_name)');
select core.define_sort('guardian', 'email', 'lower(g.email) nulls last');
select core.define_sort('guardian', 'created_at', 'g.created_at');

select core.define_functions('guardians', 'guardian', p_get => 'One guardian with their children. Raises not_found.');

create function api.guardians_list(p jsonb) returns json language plpgsql stable as $$
begin
  return core.record_page('guardian', p || case
    when core.has_whole_school_scope() then '{}' else '{"is_in_scope": true}' end::jsonb);
end $$;
comment on function api.guardians_list is
  'Guardians by last name. Searches name, email and phone. Filters: student_id, has_login.';

create function api.guardian_given(p_id bigint, p_path text) returns void language plpgsql as $$
begin
  perform from guardian where id = p_id and deleted_at is null for no key update;
  if not found then
    perform core.refuse_field('invalid_reference', p_path, format('There is no guardian %s.', p_id));
  end if;
end $$;
comment on function api.guardian_given is 'Locks a guardian whom a request names. Raises invalid_reference.';

create function api.require_user(p_id bigint) returns void language plpgsql stable as $$
begin
  if p_id is not null and not exists (select from user_account where id = p_id and deleted_at is null) then
    perform core.refuse_field('invalid_reference', 'user_id', format('There is no user %s.', p_id));
  end if;
end $$;
comment on function api.require_user is 'Raises invalid_reference for a user_id that is no user.';

create function api.guardian_user(p jsonb) returns bigint language plpgsql as $$
declare
  v_role_id bigint := (select id from role where is_system and name = 'guardian');
  v_user_id bigint := (p ->> 'user_id')::bigint;
  v_is_whole_school boolean := core.has_whole_school_scope();
  v_user record;
  v_before jsonb;
  -- The login may be that of a student or a guardian whom the user does not see.
  v_scope text := core.widen_scope();
begin
  if v_user_id is null then
    select u.id, exists (select from student s where s.user_id = u.id) as is_student
      into v_user
      from user_account u
      where u.email = lower(p ->> 'email') and u.deleted_at is null;
    if v_user.is_student then
      perform core.refuse_field('conflict', 'email',
        'This is the address of the login of a student. A guardian needs one of their own.');
    elsif v_user.id is not null then
      perform core.refuse_field('conflict', 'email', format(
        'User %s has this address. To make this user the guardian, send user_id without create_user_account.',
        v_user.id));
    end if;
    v_user_id := api.person_login(p, 'guardian');
    perform core.restore_scope(v_scope);
    return v_user_id;
  end if;
  perform api.require_user(v_user_id);
  if v_user_id = core.user_id() and not v_is_whole_school then
    perform core.refuse_field('forbidden', 'user_id', 'Another user has to make you a guardian.');
  end if;
  perform api.require_can_manage_user(v_user_id);
  if exists (select from student where user_id = v_user_id) then
    perform core.refuse_field('conflict', 'user_id',
      'This is the login of a student. A guardian needs one of their own.');
  elsif exists (select from guardian where user_id = v_user_id and id is distinct from (p ->> 'id')::bigint) then
    perform core.refuse_field('conflict', 'user_id', 'This is the login of another guardian.');
  end if;
  perform core.lock_rights(true);
  v_before := api.audited_user(v_user_id);
  insert into user_role (user_id, role_id) values (v_user_id, v_role_id) on conflict do nothing;
  perform api.require_roles(array[v_role_id]);
  perform core.refresh_rights(array[v_user_id]);
  perform core.audit_school('user.roles', v_user_id, v_before, api.audited_user(v_user_id));
  perform core.restore_scope(v_scope);
  return v_user_id;
end $$;
comment on function api.guardian_user is
  'The login of a guardian: the user user_id, who gets the role guardian, or else a new one with the email. Raises '
  'conflict for the address or the login of a student, and for the address of another user; forbidden for a user with '
  'permissions that the current user lacks.';

create function api.guardian_login_end(p_user_id bigint) returns void language plpgsql as $$
declare
  v_before jsonb;
begin
  if exists (
    select from user_role ur
    join role r on r.id = ur.role_id
    where ur.user_id = p_user_id and not (r.is_system and r.name = 'guardian')) then
    perform core.lock_rights(true);
    v_before := api.audited_user(p_user_id);
    delete from user_role ur using role r
      where ur.user_id = p_user_id and r.id = ur.role_id and r.is_system and r.name = 'guardian';
    perform core.refresh_rights(array[p_user_id]);
    perform core.audit_school('user.roles', p_user_id, v_before, api.audited_user(p_user_id));
  elsif exists (select from user_account where id = p_user_id and deleted_at is null) then
    perform api.login_remove(p_user_id);
  end if;
end $$;
comment on function api.guardian_login_end is
  'Ends the login of a guardian: a user with other roles loses the role guardian, another one is deleted.';

create function api.require_changeable_children(p_student_ids bigint[]) returns void language plpgsql stable as $$
begin
  if not core.has_whole_school_scope() and (
    select count(*)
    from student
    where id = any (p_student_ids) and class_id = any ((select taught_class_ids())::bigint[])
  ) < cardinality(p_student_ids) then
    perform core.fail('forbidden', 'A guardian cares for a student whom you may not change.');
  end if;
end $$;
comment on function api.require_changeable_children is
  'Raises forbidden unless the user sees the whole school or teaches all of these students: guardians and students do '
  'not decide who is a guardian.';

create function api.guardians_create(p jsonb) returns json language plpgsql as $$
declare
  v_scope text := current_setting('app.scope', true);
  v_id bigint;
  v_child record;
begin
  if not core.has_whole_school_scope() and coalesce(jsonb_array_length(p -> 'children'), 0) = 0 then
    perform core.refuse_field('validation_error', 'children', 'Name the students whom the guardian cares for.');
  end if;
  -- The students are locked in the order of their ids.
  for v_child in
    select (value ->> 'student_id')::bigint as student_id, n - 1 as position
    from jsonb_array_elements(coalesce(p -> 'children', '[]')) with ordinality c (value, n)
    order by 1
  loop
    perform api.require_student(v_child.student_id, format('children.%s.student_id', v_child.position));
  end loop;
  perform api.require_changeable_children(array(
    select (value ->> 'student_id')::bigint from jsonb_array_elements(coalesce(p -> 'children', '[]'))));
  if p ->> 'user_id' is not null or (p ->> 'create_user_account')::boolean then
    p := p || jsonb_build_object('user_id', api.guardian_user(p));
  end if;
  -- A user who does not see the whole school sees the guardian only when there is a link.
  perform core.widen_scope();
  v_id := core.record_insert('guardian', p);
  perform api.guardian_link((value ->> 'student_id')::bigint, v_id, value)
    from jsonb_array_elements(coalesce(p -> 'children', '[]')) with ordinality c (value, n)
    order by n;
  perform core.restore_scope(v_scope);
  if (p ->> 'create_user_account')::boolean then
    perform core.notify('account.created', jsonb_build_object('user_ids', array[(p ->> 'user_id')::bigint]));
  end if;
  return api.guardian_record(v_id);
end $$;
comment on function api.guardians_create is
  'Creates a guardian: {first_name, last_name, …, children: [{student_id, relationship, …}]}. create_user_account also '
  'creates a login with the guardian role, user_id gives this role to a user. Raises invalid_reference for an unknown '
  'student or user, and the errors of api.guardian_user.';

create function api.guardian_children(p_guardian_id bigint, p_with_deleted boolean default false)
  returns table (student_id bigint)
  language plpgsql stable as $$
declare
  v_scope text := core.widen_scope();
begin
  return query
    select l.student_id
    from student_guardian l
    join student s on s.id = l.student_id and (s.deleted_at is null or p_with_deleted)
    where l.guardian_id = p_guardian_id and l.removed_at is null
    order by l.student_id;
  perform core.restore_scope(v_scope);
end $$;
comment on function api.guardian_children is
  'All students of a guardian, also those outside the scope of the user: to decide whether the user may change the '
  'guardian.';

create function api.guardians_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_present jsonb := api.guardian_record(v_id);
  v_is_self boolean := not core.has_whole_school_scope()
    and coalesce(v_id = nullif(current_setting('app.guardian_id', true), '')::bigint, false);
  v_refused text;
begin
  if v_is_self then
    v_refused := (
      select field
      from unnest('{first_name,last_name,user_id,create_user_account}'::text[]) field
      where p ? field and p -> field is distinct from v_present -> field
        and (field <> 'create_user_account' or (p ->> field)::boolean)
      limit 1);
    if v_refused is not null then
      perform core.refuse_field('forbidden', v_refused, 'Only the school can change this.');
    end if;
  else
    -- Also children whom the user does not see.
    perform api.require_changeable_children(array(select student_id from api.guardian_children(v_id)));
  end if;
  if p ? 'user_id' and p -> 'user_id' is distinct from v_present -> 'user_id' or (p ->> 'create_user_account')::boolean
      and (v_present ->> 'user_id' is null or p ? 'password_hash') then
    if v_present ->> 'user_id' is not null and p ->> 'user_id' is null
        and not coalesce((p ->> 'create_user_account')::boolean, false) then
      p := p || '{"user_id": null}';
    elsif v_present ->> 'user_id' is null then
      p := p || jsonb_build_object('user_id', api.guardian_user(
        v_present - 'user_id' || jsonb_strip_nulls(p)));
    else
      perform api.require_user((p ->> 'user_id')::bigint);
      perform core.refuse_field('conflict', 'user_id', 'This guardian has a login. Set user_id to null first.');
    end if;
  end if;
  perform core.record_update('guardian', p);
  if v_present ->> 'user_id' is not null and p ? 'user_id' and p ->> 'user_id' is null then
    perform api.guardian_login_end((v_present ->> 'user_id')::bigint);
  end if;
  if (p ->> 'create_user_account')::boolean and v_present ->> 'user_id' is null then
    perform core.notify('account.created', jsonb_build_object('user_ids', array[(p ->> 'user_id')::bigint]));
  end if;
  return api.guardian_record(v_id);
end $$;
comment on function api.guardians_update is
  'Updates a guardian; name, phone and email also in the students whose primary guardian it is. A guardian changes '
  'their own contact. user_id null ends the login. Raises forbidden for a guardian of students whom the user may not '
  'change, and the errors of api.guardian_user.';

create function api.guardians_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_user_id bigint := (api.guardian_record(v_id) ->> 'user_id')::bigint;
begin
  perform core.require_whole_school();
  perform from student
    where id in (select student_id from api.guardian_children(v_id, p_with_deleted => true))
    order by id
    for no key update;
  perform api.guardian_unlink(student_id, v_id) from api.guardian_children(v_id, p_with_deleted => true);
  update guardian set deleted_at = now(), user_id = null where id = v_id;
  if v_user_id is not null then
    perform api.guardian_login_end(v_user_id);
  end if;
  return json_build_object('id', v_id);
end $$;
comment on function api.guardians_delete is
  'Deletes a guardian: removes them from all students and ends their login. Raises not_found; forbidden for users who '
  'do not see the whole school; conflict for the user''s own login.';
