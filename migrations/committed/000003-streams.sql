--! Previous: sha1:ebdb3a89ff41a251bbde942126214c96826ed076
--! Hash: sha1:d624f8e14600047e9798d3ae4ca673fa50385c0a
--! Message: streams

-- Streams of notifications end when their session or their school does: whoever ends one tells the processes that have streams open, with its
-- commit. What runs out by itself they find by asking (core.stream_check).
create or replace function platform.tell_ended() returns trigger language plpgsql as $$
begin
  perform pg_notify('school_events', json_build_object('ended', case tg_table_name
    when 'session' then json_build_object('session', new.id) else json_build_object('tenant', new.id) end)::text);
  return null;
end $$;
comment on function platform.tell_ended is 'Tells the processes with open streams that a session or a school has ended.';
create or replace trigger tell_ended after update of revoked_at on platform.session
  for each row when (old.revoked_at is null and new.revoked_at is not null and new.tenant_id is not null) execute function platform.tell_ended();
create or replace trigger tell_ended after update of status on platform.tenant
  for each row when (old.status = 'active' and new.status <> 'active') execute function platform.tell_ended();
