-- Callers without a session: calendar feeds and API keys.

create function core.feed_owner(
    p_tenant_id bigint, p_token_hash text, out user_id bigint, out kind text, out rights core.rights)
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[] := core.enter_tenant(p_tenant_id);
begin
  perform set_config('app.feed', p_token_hash, true);
  select f.user_id, f.kind
    into user_id, kind
    from calendar_feed f
    join user_account u on u.id = f.user_id
    where f.token_hash = p_token_hash
      and u.is_active
      and u.deleted_at is null
      and core.login_refusal(u.id) is null;
  if found then
    rights := core.effective_rights(user_id);
    update calendar_feed f set last_used_at = now()
      where f.token_hash = p_token_hash and coalesce(f.last_used_at < now() - core.feed_use_interval(), true);
  end if;
  perform set_config('app.feed', '', true), core.leave_tenant(v_before);
end $$;
comment on function core.feed_owner is
  'The owner of a calendar feed, its kind, and their current rights; null for an unknown token and for a user who '
  'cannot log in. Updates last_used_at once an hour. Only for core.admit, because it accepts any school.';

create function core.calendar_feeds_end(p_user_id bigint) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[];
begin
  -- Operators have no feeds.
  if core.tenant_id() is not null then
    v_before := core.enter_tenant(core.tenant_id());
    delete from calendar_feed where user_id = p_user_id;
    perform core.leave_tenant(v_before);
  end if;
end $$;
comment on function core.calendar_feeds_end is
  'Deletes the calendar feeds of a user of this school, whose password may have been known to others. Security '
  'definer, because only the owner of a feed sees it.';

create function core.api_key_caller(p_key jsonb, out caller platform.session, out description jsonb)
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_tenant_id bigint := (p_key ->> 'tenant_id')::bigint;
  v_before text[];
  v_key record;
  v_rights core.rights;
begin
  if v_tenant_id is null or exists (select from platform.tenant where id = v_tenant_id and status <> 'deleted') then
    if v_tenant_id is not null then
      perform core.require_schema(v_tenant_id);
    end if;
    v_before := core.enter_tenant(v_tenant_id);
    select k.id, k.name, to_jsonb(k) as stored, u.id as user_id, u.email
      into v_key
      from api_key k
      join user_account u on u.id = k.user_id
      where k.key_hash = p_key ->> 'hash'
        and (k.expires_at is null or k.expires_at > now())
        and u.is_active
        and u.deleted_at is null
        and core.login_refusal(u.id) is null;
    if found then
      v_rights := core.effective_rights(v_key.user_id);
      -- Does not wait for another request with this key, which holds the lock until it ends.
      update api_key set last_used_at = now()
        where id = (
          select id from api_key
          where id = v_key.id and coalesce(last_used_at < now() - core.api_key_use_interval(), true)
          for no key update skip locked);
    end if;
    perform core.leave_tenant(v_before);
  end if;
  if v_rights is null then
    perform core.fail('invalid_token', 'The API key is invalid, has expired or was revoked.');
  end if;
  caller.tenant_id := v_tenant_id;
  caller.user_id := v_key.user_id;
  caller.email := v_key.email;
  caller.permissions := array(
    select permission from unnest(v_rights.permissions) permission where v_key.stored -> 'permissions' ? permission);
  caller.own_permissions := v_rights.own_permissions;
  caller.taught_permissions := v_rights.taught_permissions;
  caller.children_permissions := v_rights.children_permissions;
  caller.guardian_permissions := v_rights.guardian_permissions;
  caller.roles := v_rights.roles;
  caller.student_id := v_rights.student_id;
  description := jsonb_build_object('id', v_key.id, 'name', v_key.name);
  if v_tenant_id is null then
    caller.roles := array[case when '{admin}' = v_rights.roles then v_key.stored ->> 'role' else 'analyst' end];
    description := description
      || (select jsonb_object_agg(n, v_key.stored -> n) from unnest('{role,tenant_ids,is_read_only}'::text[]) n);
  end if;
end $$;
comment on function core.api_key_caller is
  'The user of an API key {tenant_id?, hash}, as a session without an id: with the current rights of the user, limited '
  'to the permissions of the key; and the id and name of the key. Without a school: the operator of a key of the '
  'platform, with the lesser of both roles, and also role, tenant_ids and is_read_only of the key. Updates '
  'last_used_at once a minute. Raises invalid_token for a key that is unknown or expired, or whose user cannot log in. '
  'Only for core.admit, because it accepts any school.';

create function core.operator_access(out role text, out tenant_ids bigint[])
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select
    case when u.role = 'admin' and coalesce(k.role, 'admin') = 'admin' then 'admin' else 'analyst' end,
    case
      when u.role = 'admin' or u.analyst_tenant_ids is null then k.tenant_ids
      when k.tenant_ids is null then u.analyst_tenant_ids
      else array(select unnest(u.analyst_tenant_ids) intersect select unnest(k.tenant_ids) order by 1)
    end
  from platform.user_account u
  cross join jsonb_to_record(coalesce(nullif(current_setting('app.api_key', true), ''), '{}')::jsonb)
    k (role text, tenant_ids bigint[])
  where u.id = core.user_id() and core.tenant_id() is null;
$$;
comment on function core.operator_access is
  'The role of the operator of this request, and the schools whose figures they may see: null for all. With an API '
  'key, at most what the key allows. Null for both for a user of a school.';
