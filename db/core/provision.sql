-- Completion of a school that was just inserted: its schema, its roles, its first admin.

create function core.tenant_seed(p_tenant_id bigint) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_schema text := 'tenant_' || p_tenant_id;
  v_before text[] := core.enter_tenant(p_tenant_id);
  v_seen integer := (select seeded_permission_id from platform.tenant where id = p_tenant_id);
begin
  execute format($sql$
    insert into %1$I.role (name, description, is_system)
      select name, description, true from core.default_role on conflict do nothing;
  $sql$, v_schema);
  execute format($sql$
    insert into %1$I.role_permission (role_id, permission_id)
      select r.id, p.id
      from core.default_role d
      join %1$I.role r on r.name = d.name and r.is_system
      join core.permission p on p.name = any (d.permissions) and p.id > $1
      where d.name <> 'admin'
      on conflict do nothing
  $sql$, v_schema) using v_seen;
  update platform.tenant set seeded_permission_id = (select max(id) from core.permission)
    where id = p_tenant_id and seeded_permission_id is distinct from (select max(id) from core.permission);
  perform core.leave_tenant(v_before);
end $$;
comment on function core.tenant_seed is
  'Creates the system roles of a school and grants them the permissions that were added since the last call, by '
  'default. Changes that the school made to its roles stay.';

create function core.tenant_provision(p_tenant_id bigint, p_admin jsonb) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_schema text := 'tenant_' || p_tenant_id;
  v_before text[] := core.enter_tenant(p_tenant_id);
  v_user_id bigint;
begin
  perform core.tenant_migrate(p_tenant_id);
  perform core.tenant_seed(p_tenant_id);
  insert into platform.tenant_usage (tenant_id) values (p_tenant_id);
  if p_admin ->> 'email' is not null then
    execute format($sql$
      insert into %I.user_account (email, password_hash, first_name, last_name) values ($1, $2, $3, $4) returning id
    $sql$, v_schema)
      into v_user_id
      using
        p_admin ->> 'email',
        p_admin ->> 'password_hash',
        coalesce(p_admin ->> 'first_name', 'School'),
        coalesce(p_admin ->> 'last_name', 'Admin');
    execute format($sql$
      insert into %1$I.user_role (user_id, role_id) select $1, id from %1$I.role where is_system and name = 'admin'
    $sql$, v_schema)
      using v_user_id;
    perform core.enqueue('send_email', jsonb_build_object('user_id', v_user_id, 'kind',
      case when p_admin ->> 'password_hash' is null then 'invitation' else 'email_verification' end));
  end if;
  perform core.leave_tenant(v_before);
  return v_user_id;
end $$;
comment on function core.tenant_provision is
  'Completes a school that was just inserted: its schema, unless it has that of a ready school, its roles and its '
  'first admin. Returns the id of the admin, null if p_admin has no email. Security definer, since no role of a '
  'request may create a schema.';

