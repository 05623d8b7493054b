-- /api/platform/api-keys: keys with which programs act for the operator who made them. Admins see all keys of the
-- platform, analysts their own. Only sessions may use these operations, so that a key cannot make another one.

select core.define_operation('platform_api_keys_list', p_access => 'analyst');
select core.define_operation('platform_api_keys_create', p_access => 'analyst', p_idempotent => true,
  p_errors => '{conflict,forbidden,invalid_reference}');
select core.define_operation('platform_api_keys_get', p_access => 'analyst', p_record => 'operator_api_key');
select core.define_operation('platform_api_keys_update', p_access => 'analyst', p_record => 'operator_api_key',
  p_errors => '{forbidden,invalid_reference}');
select core.define_operation('platform_api_keys_delete', p_access => 'analyst', p_record => 'operator_api_key');

select core.define_record('operator_api_key', p_table => 'api_key', p_key => 'k.id', p_one_row_per_key => true,
  p_source => 'api_key k left join user_account u on u.id = k.user_id',
  p_columns => $$
    k.id, k.name, k.prefix, k.role, k.tenant_ids,
    (
      select json_agg(json_build_object('id', t.id, 'name', t.name) order by t.id)
      from tenant t
      where t.id = any (k.tenant_ids)
    ) as tenants,
    k.is_read_only, k.user_id, u.email as user_email, k.expires_at,
    k.last_used_at, k.created_at, k.updated_at
  $$,
  p_condition => $$(k.user_id = (select core.user_id()) or (select (core.operator_access()).role) = 'admin')$$,
  p_search => $$public.search_form(k.name || ' ' || k.prefix || ' ' || u.email)$$,
  p_equals => '{user_id,role}',
  p_default_sort => 'created_at',
  p_writable => '{name,role,tenant_ids,is_read_only,expires_at}',
  -- Neither an edit of the operator nor a use of the key is an edit of the key.
  p_unversioned_fields => '{user_email}',
  p_volatile_fields => '{tenants,last_used_at}');
select core.define_filter('operator_api_key', 'is_expired', 'coalesce(k.expires_at <= now(), false) = :value::boolean',
  p_is_literal => true);
select core.define_sort('operator_api_key', 'name', 'lower(k.name)');
select core.define_sort('operator_api_key', 'created_at', 'k.created_at');
select core.define_sort('operator_api_key', 'expires_at', 'k.expires_at nulls last');
select core.define_sort('operator_api_key', 'last_used_at', 'k.last_used_at nulls last');

select core.define_functions('platform_api_keys', 'operator_api_key',
  p_list =>
    'API keys of the platform; of an analyst only their own. Searches name, prefix and email of the operator. Filters: '
    'user_id, role, is_expired.',
  p_get => 'One API key of the platform, without the key itself. Raises not_found.');

create function api.operator_api_key_check(p jsonb, p_role text) returns void language plpgsql stable as $$
declare
  v_own record := core.operator_access();
begin
  if p_role = 'admin' and v_own.role <> 'admin' then
    perform core.refuse_field('forbidden', 'role', 'An analyst cannot make a key with the role admin.');
  end if;
  -- A school that an analyst may not see does not exist for them.
  if v_own.tenant_ids is not null and jsonb_typeof(p -> 'tenant_ids') = 'array'
      and not array(select jsonb_array_elements_text(p -> 'tenant_ids')::bigint) <@ v_own.tenant_ids then
    perform core.refuse_field('invalid_reference', 'tenant_ids', 'You may not see all of these schools.');
  end if;
  perform api.operator_check(p, p_role);
end $$;
comment on function api.operator_api_key_check is
  'Checks {tenant_ids} of an API key with this role. Raises forbidden for a role above that of the operator, and '
  'invalid_reference for schools that the operator may not see, besides the errors of api.operator_check.';

create function api.platform_api_keys_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
  v_key json;
begin
  if (p ->> 'is_second_factor_required')::boolean and not core.has_second_factor(core.user_id()) then
    perform core.fail('forbidden', 'Set up a second factor first. Operators need one here.');
  end if;
  perform api.operator_api_key_check(p, p ->> 'role');
  perform api.require_new_api_key(p);
  insert into api_key (user_id, name, role, tenant_ids, is_read_only, prefix, key_hash, expires_at)
    values (core.user_id(), p ->> 'name', p ->> 'role',
      case jsonb_typeof(p -> 'tenant_ids')
        when 'array' then array(select jsonb_array_elements_text(p -> 'tenant_ids')::bigint)
      end,
      coalesce((p ->> 'is_read_only')::boolean, true), p ->> 'prefix', p ->> 'key_hash',
      (p ->> 'expires_at')::timestamptz)
    returning id into v_id;
  v_key := api.audited('api_key.create', null, api.operator_api_key_record(v_id));
  return v_key::jsonb || jsonb_build_object('key_hash', p -> 'key_hash');
end $$;
comment on function api.platform_api_keys_create is
  'Creates an API key of the current operator: {name, role, tenant_ids, is_read_only, expires_at, prefix, key_hash, '
  'max_days, is_second_factor_required}. The facade makes the key, and returns it if the answer has its hash, thus not '
  'to a repeated Idempotency-Key. Audited. Raises forbidden for an operator without the second factor that is '
  'required, and the errors of api.operator_api_key_check and api.require_new_api_key.';

create function api.platform_api_keys_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before jsonb := api.operator_api_key_record(v_id);
  v_role text := coalesce(p ->> 'role', v_before ->> 'role');
begin
  perform api.require_own_api_key(v_before);
  if v_role = 'admin' then
    -- A key that becomes one of an admin loses its list of schools, unless the request has one, which is an error.
    p := '{"tenant_ids": null}' || p;
  end if;
  if v_role <> v_before ->> 'role' or p -> 'tenant_ids' is distinct from v_before -> 'tenant_ids' then
    perform api.operator_api_key_check(p, v_role);
  end if;
  perform api.require_changed_expiry(p, v_before);
  perform core.record_update('operator_api_key', p);
  return api.audited('api_key.update', v_before, api.operator_api_key_record(v_id));
end $$;
comment on function api.platform_api_keys_update is
  'Updates name, role, schools, access and expiry of an API key of the current operator. Audited. Raises the errors of '
  'create, and forbidden for the key of another operator.';

create function api.platform_api_keys_delete(p jsonb) returns json language plpgsql as $$
declare
  v_before jsonb := api.operator_api_key_record((p ->> 'id')::bigint);
begin
  perform core.record_delete('operator_api_key', p);
  return api.audited('api_key.revoke', v_before, null);
end $$;
comment on function api.platform_api_keys_delete is
  'Revokes an API key of the platform: deletes it. Audited.';
