-- /api/devices: the devices that receive the push messages of a user.

select core.define_operation('devices_register', p_works_when_cancelled => true, p_errors => '{conflict}');
select core.define_operation('devices_delete', p_works_when_cancelled => true);
select core.define_operation('devices_web_push_key');

create function api.devices_register(p jsonb) returns json language plpgsql as $$
declare
  v_answer json;
begin
  -- The row policy permits taking over a device to a user who presents its token.
  perform set_config('app.device_token', p ->> 'token', true);
  insert into device (user_id, token, platform) values (core.user_id(), p ->> 'token', p ->> 'platform')
    on conflict (md5(token)) do update set user_id = excluded.user_id, platform = excluded.platform
    returning json_build_object(
      'id', id, 'token', token, 'platform', platform, 'created_at', created_at, 'updated_at', updated_at)
    into v_answer;
  delete from device
    where id in (select id from device where user_id = core.user_id() order by updated_at desc, id desc offset 20);
  return v_answer;
end $$;
comment on function api.devices_register is
  'Registers a device by its token. A token that another user registered moves to the current user; the same token '
  'again only changes updated_at. A user keeps the 20 devices that were registered last: with an unlimited number, one '
  'user could slow down every message to the whole school.';

create function api.devices_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  delete from device
    where md5(token) = md5(p ->> 'token') and token = p ->> 'token' and user_id = core.user_id()
    returning id into v_id;
  if v_id is null then
    perform core.fail('not_found', 'You have no device with this token.');
  end if;
  return json_build_object('id', v_id);
end $$;
comment on function api.devices_delete is
  'Deletes a device of the current user. Raises not_found, also for a device of another user.';

create function api.devices_web_push_key(p jsonb) returns json language sql stable
  return json_build_object('public_key', p ->> 'public_key');
comment on function api.devices_web_push_key is
  'The VAPID public key that browsers subscribe with. The facade adds it from its settings; null if it is not set.';
