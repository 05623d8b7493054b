-- What the streams of notifications need, for many at a time. The API process calls these itself, without the dispatcher: they take sessions,
-- as that does, and give nothing but what belongs to the users of sessions that live. Security definer, since they read the schema platform.

-- What came after an id (p_after) for the users of these sessions of one school: the place of the session among those given, id, and the event as
-- JSON; in the order of ids. Of one session p_rows at most, and no more once there are p_bytes. Nothing for a session that has ended or a school
-- that is not active. Raises unavailable while the school is being migrated: nobody waits here with a connection.
create function core.stream_read(p_tenant_id bigint, p_session_ids bigint[], p_after bigint[], p_rows integer, p_bytes integer)
  returns table (place integer, id bigint, event text)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
declare
  v_before text[];
begin
  if not pg_try_advisory_xact_lock_shared(core.tenant_lock_key(p_tenant_id)) then
    perform core.fail('unavailable', 'This school is being migrated. Try again in a moment.');
  end if;
  v_before := core.enter_tenant(p_tenant_id);
  return query execute format($q$
    select asked.place::integer, n.id, n.event
    from unnest($1, $2) with ordinality asked (session_id, after, place)
    join platform.session s on s.id = asked.session_id and s.tenant_id = $3 and s.revoked_at is null and s.expires_at > now()
    join platform.tenant t on t.id = s.tenant_id and t.status = 'active'
    cross join lateral (
      select r.id, r.event, sum(octet_length(r.event)) over (order by r.id) - octet_length(r.event) as bytes_before
      from (
        select c.id, json_build_object('id', c.id, 'title', c.title, 'message', c.message, 'type', c.type, 'action_url', c.action_url, 'created_at', c.created_at)::text as event
        from (
          -- An event is no shorter than its message.
          select m.*, sum(octet_length(m.message)) over (order by m.id) - octet_length(m.message) as least_before
          from (select * from %I.notification m where m.user_id = s.user_id and m.id > asked.after order by m.id limit $4) m
        ) c
        where c.least_before < $5 offset 0
      ) r
    ) n
    where n.bytes_before < $5
    order by asked.place, n.id $q$, 'tenant_' || p_tenant_id)
    using p_session_ids, p_after, p_tenant_id, p_rows, p_bytes;
  perform core.leave_tenant(v_before);
end $$;
comment on function core.stream_read is 'What came after an id for the users of sessions of one school.';

-- Which of these sessions may have no stream any more: ended, run out, of a school that is not active or has no notifications.
create function core.stream_check(p_session_ids bigint[]) returns bigint[]
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  with alive as materialized (
    select id, tenant_id from platform.session where id = any (p_session_ids) and revoked_at is null and expires_at > now()
  ), school as materialized (
    select t.id from platform.tenant t join platform.plan p on p.id = t.plan_id
    where t.id in (select tenant_id from alive) and t.status = 'active' and 'notifications' = any (core.enabled_features(p.features, t.feature_flags))
  )
  select array(select given from unnest(p_session_ids) given where given not in (select a.id from alive a join school s on s.id = a.tenant_id));
$$;
comment on function core.stream_check is 'Which of these sessions may have no stream of notifications any more.';
