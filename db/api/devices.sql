-- /api/devices: where a user gets push messages.

select core.define_operation('devices_register', p_errors => '{conflict}');
select core.define_operation('devices_delete');
select core.define_operation('devices_web_push_key');

-- Whoever shows a token has the device: it leaves the user who had it. The same again changes nothing but updated_at. A user has the 20 that were
-- registered last: with any number of them one user could make whatever tells everybody take too long.
create function api.devices_register(p jsonb) returns json language plpgsql as $$
declare
  v_answer json;
begin
  -- The row policy lets a device be taken by who shows its token.
  perform set_config('app.device_token', p ->> 'token', true);
  insert into device (user_id, token, platform) values (core.user_id(), p ->> 'token', p ->> 'platform')
    on conflict (md5(token)) do update set user_id = excluded.user_id, platform = excluded.platform
    returning json_build_object('id', id, 'token', token, 'platform', platform, 'created_at', created_at, 'updated_at', updated_at) into v_answer;
  delete from device where id in (select id from device where user_id = core.user_id() order by updated_at desc, id desc offset 20);
  return v_answer;
end $$;

-- Takes a device of one's own away; not_found for somebody else's as for one that nobody has.
create function api.devices_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  delete from device where md5(token) = md5(p ->> 'token') and token = p ->> 'token' and user_id = core.user_id() returning id into v_id;
  if v_id is null then
    perform core.fail('not_found', 'You have no device with this token.');
  end if;
  return json_build_object('id', v_id);
end $$;

-- The key that browsers subscribe with, a setting that the facade adds; null without one.
create function api.devices_web_push_key(p jsonb) returns json language sql stable
  return json_build_object('public_key', p ->> 'public_key');
