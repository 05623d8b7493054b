-- /api/platform/operators: admins invite operators and analysts, and change what they may do. The reset of a second
-- factor is in two-factor.sql.

select core.define_operation('platform_operators_list', p_access => 'platform');
select core.define_operation('platform_operators_create', p_access => 'platform', p_idempotent => true,
  p_record => 'operator', p_errors => '{conflict,invalid_reference}');
select core.define_operation('platform_operators_get', p_access => 'platform', p_record => 'operator');
select core.define_operation('platform_operators_update', p_access => 'platform', p_record => 'operator',
  p_errors => '{conflict,invalid_state,invalid_reference}');
select core.define_operation('platform_operators_invite', p_access => 'platform', p_record => 'operator',
  p_errors => '{invalid_state}');

select core.define_record('operator', p_table => 'user_account', p_key => 'u.id', p_one_row_per_key => true,
  p_source => 'user_account u',
  p_columns => $$
    u.id, u.email, u.first_name, u.last_name, u.role, u.analyst_tenant_ids as tenant_ids,
    (
      select json_agg(json_build_object('id', t.id, 'name', t.name) order by t.id)
      from tenant t
      where t.id = any (u.analyst_tenant_ids)
    ) as tenants,
    u.is_active, u.password_hash is null as is_invited, core.has_second_factor(u.id) as has_second_factor,
    u.last_login_at, u.created_at, u.updated_at
  $$,
  p_condition => 'u.deleted_at is null',
  p_search => $$public.search_form(concat_ws(' ', u.first_name, u.last_name, u.email))$$,
  p_equals => '{role,is_active}',
  p_default_sort => 'email',
  p_writable => '{email,first_name,last_name,role,analyst_tenant_ids}',
  p_volatile_fields => '{tenants,is_invited,has_second_factor,last_login_at}');
select core.define_sort('operator', 'email', 'u.email');

select core.define_functions('platform_operators', 'operator',
  p_list => 'Operators by email. Searches name and email. Filters: role, is_active.',
  p_get => 'One operator. Raises not_found.');

create function api.operator_check(p jsonb, p_role text) returns void language plpgsql stable as $$
declare
  v_unknown text;
begin
  if jsonb_typeof(p -> 'tenant_ids') is distinct from 'array' then
    return;
  elsif p_role = 'admin' then
    perform core.refuse_field('validation_error', 'tenant_ids', 'must be empty for an admin, who sees every school');
  end if;
  select string_agg(given.id, ', ')
    into v_unknown
    from jsonb_array_elements_text(p -> 'tenant_ids') given (id)
    where not exists (select from tenant t where t.id = given.id::bigint and t.status <> 'deleted');
  if v_unknown is not null then
    perform core.refuse_field('invalid_reference', 'tenant_ids', format('There is no school %s.', v_unknown));
  end if;
end $$;
comment on function api.operator_check is
  'Checks {tenant_ids} of an operator with this role. Raises validation_error for an admin, invalid_reference for '
  'unknown or deleted schools.';

create function api.platform_operators_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  perform api.operator_check(p, p ->> 'role');
  v_id := core.record_insert('operator', p || jsonb_build_object('analyst_tenant_ids', p -> 'tenant_ids'));
  perform core.enqueue('send_email', jsonb_build_object('user_id', v_id, 'kind', 'invitation'));
  return api.audited('operator.create', null, api.operator_record(v_id));
end $$;
comment on function api.platform_operators_create is
  'Creates an operator without a password, and queues an email with a link to choose one. Audited. Raises conflict for '
  'an email that is in use, and the errors of api.operator_check.';

create function api.platform_operators_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before jsonb := api.operator_record(v_id);
  v_role text := coalesce(p ->> 'role', v_before ->> 'role');
  v_is_active boolean := coalesce((p ->> 'is_active')::boolean, (v_before ->> 'is_active')::boolean);
begin
  -- An analyst may have had a school that was deleted since, and clients send the schools back as they read them.
  if p -> 'tenant_ids' is distinct from v_before -> 'tenant_ids' then
    perform api.operator_check(p, v_role);
  end if;
  if v_id = core.user_id() and not (v_role = 'admin' and v_is_active) then
    perform core.fail('conflict',
      'You cannot disable yourself or give up your own admin role. Ask another admin to do it.');
  end if;
  perform core.operator_set(v_id, (
    select coalesce(jsonb_object_agg(key, value), '{}')
    from jsonb_each(p)
    where key in ('role', 'is_active') or (key = 'tenant_ids' and v_role <> 'admin')));
  return api.audited(
    'operator.' || case
      when v_is_active and not (v_before ->> 'is_active')::boolean then 'enable'
      when not v_is_active and (v_before ->> 'is_active')::boolean then 'disable'
      when v_role <> v_before ->> 'role' then 'set_role'
      else 'set_tenants'
    end,
    v_before, api.operator_record(v_id));
end $$;
comment on function api.platform_operators_update is
  '{role?, tenant_ids?, is_active?}: a change ends the sessions of the operator. An admin has no tenant_ids. Audited. '
  'Raises conflict if the current operator would lose access, and the errors of core.operator_set and '
  'api.operator_check.';

create function api.platform_operators_invite(p jsonb) returns json language plpgsql as $$
declare
  v_operator json := api.operator_record((p ->> 'id')::bigint);
begin
  if not (v_operator ->> 'is_invited')::boolean then
    perform core.fail('invalid_state', 'This operator has chosen a password already.');
  elsif not (v_operator ->> 'is_active')::boolean then
    perform core.fail('invalid_state', 'This operator is disabled. Enable them first.');
  elsif core.token_is_recent((p ->> 'id')::bigint, 'invitation') then
    perform core.fail('invalid_state', 'An invitation was sent a moment ago. Wait two minutes.');
  end if;
  perform core.enqueue('send_email', jsonb_build_object('user_id', p -> 'id', 'kind', 'invitation'),
    'invitation:' || (p ->> 'id'));
  return api.audited('operator.invite', v_operator::jsonb, v_operator);
end $$;
comment on function api.platform_operators_invite is
  'Queues another invitation. Earlier links keep working until a password is chosen. Audited. Raises invalid_state for '
  'an operator who has a password or is disabled, and within two minutes after an invitation.';
