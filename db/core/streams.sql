-- The API process calls these functions directly, without the dispatcher. They are security definer, since sessions are
-- in the schema platform. Like the dispatcher they take session ids, and answer only what belongs to live sessions.

create function core.stream_read(
  p_tenant_id bigint, p_session_ids bigint[], p_after bigint[], p_rows integer, p_bytes integer
)
  returns table (stream_index integer, id bigint, event text)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
declare
  v_before text[];
begin
  perform core.require_schema(p_tenant_id);
  v_before := core.enter_tenant(p_tenant_id);
  return query execute format($q$
    select requested.stream_index::integer, found.id, found.event
    from unnest($1, $2) with ordinality requested (session_id, after, stream_index)
    join platform.session s
      on s.id = requested.session_id and s.tenant_id = $3 and s.revoked_at is null and s.expires_at > now()
    join platform.tenant t on t.id = s.tenant_id and t.status = 'active'
    cross join lateral (
      select e.id, e.event, sum(octet_length(e.event)) over (order by e.id) - octet_length(e.event) as bytes_before
      from (
        select m.id,
          json_build_object(
            'id', m.id, 'title', m.title, 'message', m.message, 'type', m.type, 'action_url', m.action_url,
            'created_at', m.created_at
          )::text as event
        from (
          -- An event is at least as long as its message: rows that cannot fit are dropped before their JSON is built.
          select
            n.*,
            sum(octet_length(n.message)) over (order by n.id) - octet_length(n.message) as message_bytes_before
          from (
            select *
            from %I.notification n
            where n.user_id = s.user_id and n.id > requested.after
            order by n.id
            limit $4
          ) n
        ) m
        where m.message_bytes_before < $5
        -- Keeps the planner from merging this query with the outer one, which would build the JSON several times.
        offset 0
      ) e
    ) found
    where found.bytes_before < $5
    order by requested.stream_index, found.id $q$, 'tenant_' || p_tenant_id)
    using p_session_ids, p_after, p_tenant_id, p_rows, p_bytes;
  perform core.leave_tenant(v_before);
end $$;
comment on function core.stream_read is
  'Reads the notifications after an id (p_after) for each of these sessions of one school, in the order of the sessions
and of the ids: the position of the session in p_session_ids, the id, and the event as JSON. For each session at most
p_rows rows, and none after the first p_bytes bytes. Nothing for a session that has ended, or when the school is not
active. Raises unavailable while the school is being migrated.';

create function core.stream_check(p_session_ids bigint[]) returns bigint[]
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  with live_session as materialized (
    select id, tenant_id, roles
    from platform.session
    where id = any (p_session_ids) and revoked_at is null and expires_at > now()
  ), school as materialized (
    select t.id
    from platform.tenant t
    join platform.plan p on p.id = t.plan_id
    where t.id in (select tenant_id from live_session)
      and t.status = 'active'
      and 'notifications' = any (core.enabled_features(p.features, t.feature_flags))
  )
  select array(
    select session_id
    from unnest(p_session_ids) session_id
    where session_id not in (
      select l.id
      from live_session l
      left join school s on s.id = l.tenant_id
      where case when l.tenant_id is null then 'admin' = any (l.roles) else s.id is not null end)
  );
$$;
comment on function core.stream_check is
  'Which of these sessions may no longer have a stream: those that have ended or expired, those of a school that is not
active or has no notifications, and those of operators who are not admins.';

create function core.schools_of_sessions(p_session_ids bigint[])
  returns table (session_id bigint, tenant_id bigint)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select id, tenant_id from platform.session where id = any (p_session_ids);
$$;
comment on function core.schools_of_sessions is
  'The schools of those of these sessions that this server knows; null for a session of an operator. For the '
  'forwarder.';

create function core.stream_system(p_session_ids bigint[], out ended bigint[], out state json)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select c.ended, case when not c.ended @> p_session_ids then core.status(p_with_size => false) end
  from core.stream_check(p_session_ids) c (ended);
$$;
comment on function core.stream_system is
  'The state of the installation (core.status) for the streams of these sessions of operators, and which of the sessions
may no longer have a stream. The state is null if none of them may.';
