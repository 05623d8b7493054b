-- /api/rbac: roles, permissions, and the roles of users. A change takes effect at the next request of each affected
-- user. Users can only grant and revoke permissions that they have themselves.

select core.define_operation('rbac_roles_list', p_permission => 'role.read');
select core.define_operation('rbac_roles_get', p_permission => 'role.read', p_record => 'role');
select core.define_operation('rbac_roles_create', p_permission => 'role.manage', p_idempotent => true,
  p_record => 'role', p_errors => '{conflict,invalid_reference}');
select core.define_operation('rbac_roles_update', p_permission => 'role.manage', p_record => 'role',
  p_errors => '{conflict,invalid_reference}');
select core.define_operation('rbac_roles_delete', p_permission => 'role.manage', p_record => 'role',
  p_errors => '{in_use}');
select core.define_operation('rbac_permissions_list', p_needs_session => false);
select core.define_operation('rbac_user_roles_list', p_permission => 'role.read');
select core.define_operation('rbac_user_roles_add', p_permission => 'role.manage',
  p_reader => 'rbac_user_roles_list', p_errors => '{conflict,invalid_reference}');
select core.define_operation('rbac_user_roles_remove', p_permission => 'role.manage',
  p_reader => 'rbac_user_roles_list', p_errors => '{conflict,invalid_reference}');

select core.define_record('role', p_table => 'role', p_key => 'r.id', p_one_row_per_key => true,
  p_source => 'role r',
  p_columns => $$
  r.id, r.name, r.description, r.is_system,
  (select coalesce(json_agg(p.id order by p.id), '[]') from core.permission p
    where (r.is_system and r.name = 'admin') or p.id in (select rp.permission_id from role_permission rp
      where rp.role_id = r.id)) as permission_ids,
  (select coalesce(json_agg(p.name order by p.id), '[]') from core.permission p
    where (r.is_system and r.name = 'admin') or p.id in (select rp.permission_id from role_permission rp
      where rp.role_id = r.id)) as permissions,
  (select count(*) from user_role ur join user_account u on u.id = ur.user_id and u.deleted_at is null
    where ur.role_id = r.id) as user_count,
  r.created_at, r.updated_at
  $$,
  p_search => $$public.search_form(r.name || ' ' || coalesce(r.description, ''))$$,
  p_default_sort => 'name',
  p_writable => '{name,description}',
  p_volatile_fields => '{user_count}');
select core.define_sort('role', 'name', 'lower(r.name)');
select core.define_sort('role', 'created_at', 'r.created_at');

select core.define_functions('rbac_roles', 'role',
  p_list => 'Roles by name. Searches name and description.',
  p_get => 'One role with its permissions and the number of its users. Raises not_found.');

create function api.require_permissions(p_names text[]) returns void language plpgsql stable as $$
begin
  if not p_names <@ core.permissions() then
    perform core.fail('forbidden', format('You do not have these permissions yourself: %s.',
      (select string_agg(n, ', ') from unnest(p_names) n where not core.has_permission(n))));
  end if;
end $$;
comment on function api.require_permissions is 'Raises forbidden unless the current user has all of these permissions.';

create function api.require_roles(p_role_ids bigint[]) returns void language plpgsql stable as $$
declare
  v_lacking text;
begin
  select string_agg(distinct p.name, ', ')
    into v_lacking
    from role r
    join core.permission p on (r.is_system and r.name = 'admin')
      or p.id in (select permission_id from role_permission where role_id = r.id)
    where r.id = any (p_role_ids) and not case
      when r.is_system and r.name in ('student', 'guardian') then p.name like '%.read' or core.has_permission(p.name)
      when r.is_system and r.name = 'teacher' then core.has_permission(p.name)
      else core.has_permission_for_all(p.name) end;
  if v_lacking is not null then
    perform core.fail('forbidden', format('You do not have these permissions yourself: %s.', v_lacking));
  end if;
end $$;
comment on function api.require_roles is
  'Raises forbidden for roles with permissions, or a scope, that the current user lacks. The scope of the roles '
  'teacher, student and guardian is limited, so the current user may have their permissions with any scope, and needs '
  'no read permission to grant the roles student and guardian. Permissions of other roles apply to the whole school, '
  'so the current user must have them for the whole school.';

create function api.require_an_admin() returns void language plpgsql as $$
begin
  perform core.lock_rights(true);
  if not exists (
    select from role r
    join user_role ur on ur.role_id = r.id
    join user_account u on u.id = ur.user_id
    where r.is_system and r.name = 'admin' and u.is_active and u.password_hash is not null and u.deleted_at is null
  ) then
    perform core.fail('conflict',
      'The school needs at least one active admin. Give another user the admin role first.');
  end if;
end $$;
comment on function api.require_an_admin is
  'Raises conflict if no active user has the admin role. The lock serializes concurrent changes.';

create function api.role_permissions_set(p_role_id bigint, p_ids jsonb) returns void language plpgsql as $$
declare
  v_ids integer[] := (select coalesce(array_agg(distinct i::integer), '{}') from jsonb_array_elements_text(p_ids) i);
  v_unknown integer := (
    select i from unnest(v_ids) i where not exists (select from core.permission where id = i) limit 1);
begin
  if v_unknown is not null then
    perform core.refuse_field('invalid_reference', 'permission_ids', format('There is no permission %s.', v_unknown));
  end if;
  delete from role_permission where role_id = p_role_id and permission_id <> all (v_ids);
  insert into role_permission (role_id, permission_id) select p_role_id, i from unnest(v_ids) i on conflict do nothing;
  perform api.require_roles(array[p_role_id]);
end $$;
comment on function api.role_permissions_set is
  'Sets the permissions of a role. Raises invalid_reference for unknown ids, forbidden for permissions that the '
  'current user lacks.';

create function api.audited_role(p_id bigint) returns jsonb language plpgsql stable as $$
begin
  return api.role_record(p_id)::jsonb - '{user_count,permission_ids}'::text[];
end $$;
comment on function api.audited_role is 'A role as the audit log shows it.';

create function api.rbac_roles_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := core.record_insert('role', p);
begin
  perform api.role_permissions_set(v_id, coalesce(p -> 'permission_ids', '[]'));
  perform core.audit_school('role.create', v_id, null, api.audited_role(v_id));
  return api.role_record(v_id);
end $$;
comment on function api.rbac_roles_create is
  'Creates a role. Raises forbidden for permissions that the current user lacks, conflict for a name that is in use.';

create function api.rbac_roles_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before jsonb;
  v_role record;
begin
  perform core.lock_rights(true);
  v_before := api.audited_role(v_id);
  select name, is_system into v_role from role where id = v_id;
  if v_role.is_system and p ? 'name' and p ->> 'name' <> v_role.name then
    perform core.fail('forbidden', 'System roles cannot be renamed.');
  elsif v_role.is_system and v_role.name = 'admin' and p ? 'permission_ids'
      and exists (select from core.permission where not p -> 'permission_ids' @> to_jsonb(id)) then
    perform core.fail('forbidden', 'The admin role cannot lose permissions.');
  end if;
  perform api.require_roles(array[v_id]);
  perform core.record_update('role', p);
  if p ? 'permission_ids' and not (v_role.is_system and v_role.name = 'admin') then
    perform api.role_permissions_set(v_id, p -> 'permission_ids');
    perform core.refresh_rights(array(select user_id from user_role where role_id = v_id));
  end if;
  perform core.audit_school('role.update', v_id, v_before, api.audited_role(v_id));
  return api.role_record(v_id);
end $$;
comment on function api.rbac_roles_update is
  'Updates a role. Raises forbidden for renaming a system role, for removing permissions from the admin role, and for '
  'permissions that the current user lacks.';

create function api.rbac_roles_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  if (api.role_record(v_id) ->> 'is_system')::boolean then
    perform core.fail('forbidden', 'System roles cannot be deleted.');
  end if;
  perform api.require_roles(array[v_id]);
  perform core.audit_school('role.delete', v_id, api.audited_role(v_id), null);
  delete from role where id = v_id;
  return json_build_object('id', v_id);
end $$;
comment on function api.rbac_roles_delete is
  'Deletes a role. Raises forbidden for a system role, in_use if users have the role.';

create function api.rbac_permissions_list(p jsonb) returns json language sql stable as $$
  select core.json_page(json_agg(json_build_object('id', id, 'name', name, 'description', description) order by id), p)
  from core.permission;
$$;
comment on function api.rbac_permissions_list is 'The permission catalog: {id, name, description}.';

create function api.roles_of_user(p_user_id bigint) returns json language plpgsql stable as $$
begin
  perform api.user_record(p_user_id);
  return (
    select coalesce(
      json_agg(
        json_build_object('id', r.id, 'name', r.name, 'description', r.description, 'is_system', r.is_system)
        order by r.name),
      '[]')
    from user_role ur
    join role r on r.id = ur.role_id
    where ur.user_id = p_user_id
  );
end $$;
comment on function api.roles_of_user is 'The roles of a user by name: [{id, name, description, is_system}]. Raises '
  'not_found.';

create function api.rbac_user_roles_list(p jsonb) returns json language sql stable as $$
  select core.json_page(api.roles_of_user((p ->> 'user_id')::bigint), p);
$$;
comment on function api.rbac_user_roles_list is 'The roles of a user by name. Raises not_found.';

create function api.rbac_user_roles_add(p jsonb) returns json language plpgsql as $$
begin
  perform core.record_lock('user', (p ->> 'user_id')::bigint);
  perform api.user_roles_change((p ->> 'user_id')::bigint, p_add => (p ->> 'role_id')::bigint);
  return api.roles_of_user((p ->> 'user_id')::bigint);
end $$;
comment on function api.rbac_user_roles_add is
  '{user_id, role_id}: adds a role to a user, and returns the roles of the user. Does nothing if the user already has '
  'it.';

create function api.rbac_user_roles_remove(p jsonb) returns json language plpgsql as $$
begin
  perform core.record_lock('user', (p ->> 'user_id')::bigint);
  if not exists (
    select from user_role where user_id = (p ->> 'user_id')::bigint and role_id = (p ->> 'role_id')::bigint
  ) then
    perform core.fail('not_found', 'This user does not have this role.');
  end if;
  perform api.user_roles_change((p ->> 'user_id')::bigint, p_remove => (p ->> 'role_id')::bigint);
  return api.roles_of_user((p ->> 'user_id')::bigint);
end $$;
comment on function api.rbac_user_roles_remove is
  '{user_id, role_id}: removes a role from a user, and returns the roles of the user. Raises not_found if the user '
  'does not have it.';
