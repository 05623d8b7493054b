-- /api/api-keys: keys with which programs act for the user who made them. All users with the permission see the keys of
-- the school. Only sessions may use these operations, so that a key cannot make another one that outlives it.

select core.define_operation('api_keys_list', p_permission => 'api_key.manage', p_needs_session => true);
select core.define_operation('api_keys_create', p_permission => 'api_key.manage', p_needs_session => true,
  p_idempotent => true, p_errors => '{conflict,invalid_reference}');
select core.define_operation('api_keys_get', p_permission => 'api_key.manage', p_needs_session => true,
  p_record => 'api_key');
select core.define_operation('api_keys_update', p_permission => 'api_key.manage', p_needs_session => true,
  p_record => 'api_key', p_errors => '{invalid_reference}');
select core.define_operation('api_keys_delete', p_permission => 'api_key.manage', p_needs_session => true,
  p_record => 'api_key');

select core.define_record('api_key', p_table => 'api_key', p_key => 'k.id', p_one_row_per_key => true,
  p_source => 'api_key k left join user_account u on u.id = k.user_id',
  p_columns => $$
    k.id, k.name, k.prefix, k.permissions, k.user_id, u.email as user_email, k.expires_at, k.last_used_at,
    k.created_at, k.updated_at
  $$,
  p_search => $$public.search_form(k.name || ' ' || k.prefix || ' ' || u.email)$$,
  p_equals => '{user_id}',
  p_default_sort => 'created_at',
  p_writable => '{name,permissions,expires_at}',
  -- Neither an edit of the user nor a use of the key is an edit of the key.
  p_unversioned_fields => '{user_email}',
  p_volatile_fields => '{last_used_at}');
select core.define_filter('api_key', 'permission', 'k.permissions @> array[:value]');
select core.define_filter('api_key', 'is_expired', 'coalesce(k.expires_at <= now(), false) = :value::boolean',
  p_is_literal => true);
select core.define_sort('api_key', 'name', 'lower(k.name)');
select core.define_sort('api_key', 'created_at', 'k.created_at');
select core.define_sort('api_key', 'expires_at', 'k.expires_at nulls last');
select core.define_sort('api_key', 'last_used_at', 'k.last_used_at nulls last');

create function api.require_api_key_permissions(p_names text[]) returns void language plpgsql stable as $$
declare
  v_unknown text := (
    select name from unnest(p_names) name where name not in (select p.name from core.permission p) limit 1);
begin
  if v_unknown is not null then
    perform core.refuse_field('invalid_reference', 'permissions', format('There is no permission %s.', v_unknown));
  end if;
  perform api.require_permissions(p_names);
end $$;
comment on function api.require_api_key_permissions is
  'Raises invalid_reference for an unknown permission, forbidden for one that the current user lacks.';

create function api.require_api_key_expiry(p_expires_at timestamptz, p_max_days integer) returns void
  language plpgsql stable as $$
begin
  if p_expires_at <= now() then
    perform core.refuse_field('validation_error', 'expires_at', 'must be in the future');
  elsif coalesce(p_expires_at, 'infinity') > now() + make_interval(days => p_max_days) then
    perform core.refuse_field('validation_error', 'expires_at',
      format('must be at most %s days from now', p_max_days));
  end if;
end $$;
comment on function api.require_api_key_expiry is
  'Raises validation_error for an expiry in the past or more than p_max_days from now, and for none if there is such a '
  'maximum.';

create function api.require_changed_expiry(p jsonb, p_before jsonb) returns void language plpgsql stable as $$
begin
  if p ? 'expires_at' and (p ->> 'expires_at')::timestamptz is distinct from (p_before ->> 'expires_at')::timestamptz
  then
    perform api.require_api_key_expiry((p ->> 'expires_at')::timestamptz, (p ->> 'max_days')::integer);
  end if;
end $$;
comment on function api.require_changed_expiry is
  'Checks the new expiry of an API key, as api.require_api_key_expiry. One that stays may be in the past.';

create function api.require_new_api_key(p jsonb) returns void language plpgsql as $$
begin
  perform api.require_api_key_expiry((p ->> 'expires_at')::timestamptz, (p ->> 'max_days')::integer);
  -- Serializes the requests of a user, because the number of keys is limited.
  perform from user_account where id = core.user_id() for no key update;
  if (select count(*) from api_key where user_id = core.user_id()) >= core.max_api_keys_per_user() then
    perform core.fail('conflict',
      format('A user can have at most %s API keys. Revoke one first.', core.max_api_keys_per_user()));
  end if;
end $$;
comment on function api.require_new_api_key is
  'Checks the expiry of a new API key, and that the current user or operator has less than 20. Raises conflict, and '
  'validation_error for the expiry.';

create function api.require_own_api_key(p_key jsonb) returns void language plpgsql stable as $$
begin
  if (p_key ->> 'user_id')::bigint <> core.user_id() then
    perform core.fail('forbidden', 'Only the user who made an API key can change it. You can revoke it.');
  end if;
end $$;
comment on function api.require_own_api_key is 'Raises forbidden for an API key of another user or operator.';

create function api.api_keys_list(p jsonb) returns json language plpgsql stable as $$
begin
  perform core.require_whole_school();
  return core.record_page('api_key', p);
end $$;
comment on function api.api_keys_list is
  'API keys of the school. Searches name, prefix and email of the user. Filters: user_id, permission, is_expired.';

create function api.api_keys_get(p jsonb) returns json language plpgsql stable as $$
begin
  perform core.require_whole_school();
  return api.api_key_record((p ->> 'id')::bigint);
end $$;
comment on function api.api_keys_get is 'One API key, without the key itself. Raises not_found.';

create function api.api_keys_create(p jsonb) returns json language plpgsql as $$
declare
  v_permissions text[] := array(select jsonb_array_elements_text(p -> 'permissions'));
  v_id bigint;
  v_key jsonb;
begin
  perform core.require_whole_school();
  perform api.require_api_key_permissions(v_permissions);
  perform api.require_new_api_key(p);
  insert into api_key (user_id, name, permissions, prefix, key_hash, expires_at)
    values (core.user_id(), p ->> 'name', v_permissions, p ->> 'prefix', p ->> 'key_hash',
      (p ->> 'expires_at')::timestamptz)
    returning id into v_id;
  v_key := api.api_key_record(v_id);
  perform core.audit_school('api_key.create', v_id, null, v_key);
  return v_key || jsonb_build_object('key_hash', p -> 'key_hash');
end $$;
comment on function api.api_keys_create is
  'Creates an API key of the current user: {name, permissions, expires_at, prefix, key_hash, max_days}. The facade '
  'makes the key, and returns it if the answer has its hash, thus not to a repeated Idempotency-Key. Audited. Raises '
  'invalid_reference for an unknown permission, forbidden for one that the user lacks, conflict if the user has 20 '
  'keys, validation_error for the expiry.';

create function api.api_keys_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before jsonb;
  v_after jsonb;
begin
  perform core.require_whole_school();
  v_before := api.api_key_record(v_id);
  perform api.require_own_api_key(v_before);
  -- A permission that the user has lost may stay in the list. It has no effect.
  perform api.require_api_key_permissions(array(
    select jsonb_array_elements_text(p -> 'permissions')
    except
    select jsonb_array_elements_text(v_before -> 'permissions')));
  perform api.require_changed_expiry(p, v_before);
  perform core.record_update('api_key', p);
  v_after := api.api_key_record(v_id);
  perform core.audit_school('api_key.update', v_id, v_before, v_after);
  return v_after;
end $$;
comment on function api.api_keys_update is
  'Updates name, permissions and expiry of an API key of the current user. Audited. Raises the errors of create, and '
  'forbidden for the key of another user.';

create function api.api_keys_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_before jsonb;
begin
  perform core.require_whole_school();
  v_before := api.api_key_record(v_id);
  if (v_before ->> 'user_id')::bigint <> core.user_id() then
    perform api.require_permissions(array(select jsonb_array_elements_text(v_before -> 'permissions')));
  end if;
  perform core.audit_school('api_key.revoke', v_id, v_before, null);
  return core.record_delete('api_key', p);
end $$;
comment on function api.api_keys_delete is
  'Revokes an API key: deletes it. Audited. Raises forbidden for the key of another user with a permission that the '
  'current user lacks.';
