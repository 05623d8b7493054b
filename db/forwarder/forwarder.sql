-- The forwarder: a database that forwards each request to the server of its school (docs/decisions/0044-nodes.md). It
-- holds no data but copies of the directory of schools (platform.tenant) and of core.operation. The command `school
-- forwarder create` installs this file, both tables, and the foreign servers `home` and `node_<id>` with their
-- passwords (src/servers/forwarder.ts).

-- The functions of the other servers.

create function core.remote_call(p_server text, p_operation text, p_session_id bigint, p jsonb, p_context jsonb,
  p_content bytea, out answer text, out content bytea, out version text, out id bigint, out refusal jsonb)
  language plproxy as $$
    cluster core.server_name(p_server);
    run on any;
    select answer, content, version, id, refusal
    from core.call_forwarded(p_operation, p_session_id, p, p_context, p_content);
  $$;
comment on function core.remote_call is 'Runs core.call_forwarded on one server.';

create function core.remote_call_impersonated(p_server text, p_operation text, p_session_id bigint, p jsonb,
  p_context jsonb, p_content bytea,
  out answer text, out content bytea, out version text, out id bigint, out refusal json)
  language plproxy as $$
    cluster core.server_name(p_server);
    run on any;
    select answer, content, version, id, refusal
    from core.call_impersonated(p_operation, p_session_id, p, p_context, p_content);
  $$;
comment on function core.remote_call_impersonated is 'Runs core.call_impersonated on one server.';

create function core.remote_prepare(p_operation text, p_session_id bigint, p jsonb, p_context jsonb) returns jsonb
  language plproxy as $$
    cluster core.server_name('home');
    run on any;
    select core.prepare_at_home(p_operation, p_session_id, p, p_context);
  $$;
comment on function core.remote_prepare is 'Runs core.prepare_at_home at home.';

create function core.remote_undo(p_undo jsonb) returns void
  language plproxy as $$
    cluster core.server_name('home');
    run on any;
    select core.undo_at_home(p_undo);
  $$;
comment on function core.remote_undo is 'Runs core.undo_at_home at home.';

create function core.remote_wal_position(p_server text) returns pg_lsn
  language plproxy as $$
    cluster core.server_name(p_server);
    run on any;
    select core.wal_position();
  $$;
comment on function core.remote_wal_position is 'Runs core.wal_position on one server.';

create function core.remote_is_copied(p_server text, p_position pg_lsn) returns boolean
  language plproxy as $$
    cluster core.server_name(p_server);
    run on any;
    select core.is_copied(p_position);
  $$;
comment on function core.remote_is_copied is 'Runs core.is_copied on one server.';

create function core.remote_accounts_at(p_server text, p_address text) returns setof bytea
  language plproxy as $$
    cluster core.server_name(p_server);
    run on any;
    select * from core.accounts_at(p_address);
  $$;
comment on function core.remote_accounts_at is 'Runs core.accounts_at on one server.';

create function core.remote_impersonators(p_server text, p_session_ids bigint[]) returns bigint[]
  language plproxy as $$
    cluster core.server_name(p_server);
    run on any;
    select core.impersonators(p_session_ids);
  $$;
comment on function core.remote_impersonators is 'Runs core.impersonators on one server.';

create function core.remote_end_operator_sessions(p_server text, p_session_ids bigint[]) returns void
  language plproxy as $$
    cluster core.server_name(p_server);
    run on any;
    select core.end_operator_sessions(p_session_ids);
  $$;
comment on function core.remote_end_operator_sessions is 'Runs core.end_operator_sessions on one server.';

create function core.remote_stream_check(p_server text, p_session_ids bigint[]) returns bigint[]
  language plproxy as $$
    cluster core.server_name(p_server);
    run on any;
    select core.stream_check(p_session_ids);
  $$;
comment on function core.remote_stream_check is 'Runs core.stream_check on one server.';

create function core.remote_schools_of_sessions(p_server text, p_session_ids bigint[])
  returns table (session_id bigint, tenant_id bigint) language plproxy as $$
    cluster core.server_name(p_server);
    run on any;
    select session_id, tenant_id from core.schools_of_sessions(p_session_ids);
  $$;
comment on function core.remote_schools_of_sessions is 'Runs core.schools_of_sessions on one server.';

create function core.remote_record_requests(p_server text, p_tenant_ids bigint[], p_requests bigint[]) returns void
  language plproxy as $$
    cluster core.server_name(p_server);
    run on any;
    select core.record_requests(p_tenant_ids, p_requests);
  $$;
comment on function core.remote_record_requests is 'Runs core.record_requests on one server.';

create function core.remote_readiness(p_server text) returns json
  language plproxy as $$
    cluster core.server_name(p_server);
    run on any;
    select core.readiness();
  $$;
comment on function core.remote_readiness is 'Runs core.readiness on one server.';

create function core.remote_second_factor_secrets(p_server text, p_key text, p_after text, p_limit integer)
  returns setof text
  language plproxy as $$
    cluster core.server_name(p_server);
    run on any;
    select * from core.second_factor_secrets(p_key, p_after, p_limit);
  $$;
comment on function core.remote_second_factor_secrets is 'Runs core.second_factor_secrets on one server.';

create function core.remote_second_factor_reencrypt(p_server text, p_before text[], p_after text[]) returns void
  language plproxy as $$
    cluster core.server_name(p_server);
    run on any;
    select core.second_factor_reencrypt(p_before, p_after);
  $$;
comment on function core.remote_second_factor_reencrypt is 'Runs core.second_factor_reencrypt on one server.';

-- The functions that the API calls besides core.call. Each has the signature of the function on the other server.

create function core.analytics_age() returns json language plproxy as $$ cluster core.server_name('home'); run on any; $$;
create function core.node_queues() returns json language plproxy as $$ cluster core.server_name('home'); run on any; $$;
create function core.node_reachability() returns json language plproxy as $$ cluster core.server_name('home'); run on any; $$;
create function core.has_analysts() returns boolean language plproxy as $$ cluster core.server_name('home'); run on any; $$;
create function core.queue() returns json language plproxy as $$ cluster core.server_name('home'); run on any; $$;
create function core.ended_operator_sessions(p_session_ids bigint[]) returns bigint[]
  language plproxy as $$ cluster core.server_name('home'); run on any; $$;
create function core.count_requests(p_keys bytea[], p_changes integer[], p_window_ms integer)
  returns table (key bytea, hits integer, ms_left integer) language plproxy as $$ cluster core.server_name('home'); run on any; $$;
create function core.record_operation_times(
  p_operations text[], p_calls bigint[], p_total_ms bigint[], p_max_ms bigint[]) returns void
  language plproxy as $$ cluster core.server_name('home'); run on any; $$;

create function core.backend_memory_mb() returns double precision language sql stable
  return null::double precision;
comment on function core.backend_memory_mb is
  'Null: the memory of a connection is that of its backends on the nodes, so the estimate of the API counts.';

create function core.stream_read(p_tenant_id bigint, p_session_ids bigint[], p_after bigint[], p_rows integer,
    p_bytes integer)
  returns table (stream_index integer, id bigint, event text) language plproxy as $$
    cluster core.server_name(core.server_of(p_tenant_id));
    run on any;
  $$;

create function core.stream_system(p_session_ids bigint[], out ended bigint[], out state json)
  language plproxy as $$ cluster core.server_name('home'); run on any; $$;

create unlogged table core.refused_server (
  server text primary key,
  until timestamptz not null
);
comment on table core.refused_server is 'Servers that did not answer the API lately.';

create function core.server_name(p_server text) returns text language plpgsql stable as $$
begin
  if exists (select from core.refused_server where server = p_server and until > clock_timestamp()) then
    raise exception using errcode = '57P03', message = format('The server %s does not answer.', p_server);
  end if;
  return p_server;
end $$;
comment on function core.server_name is
  'For the clause `cluster` of PL/Proxy. Raises cannot_connect_now for a server that did not answer lately: PL/Proxy '
  'would wait for it without end.';

create function core.refuse_server(p_server text, p_seconds integer) returns setof text
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into core.refused_server as r (server, until)
    select srvname, clock_timestamp() + make_interval(secs => p_seconds)
    from pg_foreign_server
    where srvname = p_server
    on conflict (server) do update set until = greatest(r.until, excluded.until);
  return query
    select unnest(array[t.id::text, 'subdomain ' || t.subdomain])
    from platform.tenant t
    where coalesce('node_' || t.node_id, 'home') = p_server;
end $$;
comment on function core.refuse_server is
  'Refuses requests to a server that does not answer, for some seconds. Returns the schools that it has, as the pool of '
  'the API names them: by id, and for requests without a session by subdomain (src/database/call.ts).';

create function core.require_directory() returns void language plpgsql stable as $$
begin
  if not exists (
    select from pg_subscription_rel where srrelid = 'platform.tenant'::regclass and srsubstate in ('s', 'r')
  ) then
    perform core.refuse(jsonb_build_object('code', 'S503A', 'hint', '1',
      'message', 'The forwarder is copying the directory of schools. Try again in a moment.'));
  end if;
end $$;
comment on function core.require_directory is
  'Raises unavailable until the forwarder has copied the directory. The home would say that the school, or its session, '
  'does not exist.';

-- In PL/pgSQL, because Postgres before 18 plans the query of an SQL function in each transaction.
create function core.server_of(p_tenant_id bigint) returns text language plpgsql stable as $$
declare
  v_server text;
begin
  select coalesce('node_' || node_id, 'home') into v_server from platform.tenant where id = p_tenant_id;
  if not found and p_tenant_id is not null then
    perform core.require_directory();
  end if;
  return coalesce(v_server, 'home');
end $$;
comment on function core.server_of is
  'The server of a school. The home answers for a school that does not exist, and for null. Raises unavailable while the '
  'forwarder copies the directory.';

create function core.school_of(p_access text, p jsonb, p_context jsonb) returns bigint language plpgsql stable as $$
declare
  v_ids bigint[];
begin
  if p_context ? 'school' then
    return (p_context ->> 'school')::bigint;
  elsif p_context ? 'api_key' then
    return (p_context #>> '{api_key,tenant_id}')::bigint;
  elsif p_access = 'refresh' then
    return substring(p ->> 'refresh_token' from '^(\d{1,18})\.');
  elsif p_access = 'token' then
    return substring(p ->> 'token' from '^(\d{1,18})\.');
  elsif p_access in ('feed', 'picture') then
    return p ->> 'tenant_id';
  elsif p_access <> 'public' or (p ->> 'is_platform')::boolean then
    return null;
  end if;
  select array_agg(id)
    into v_ids
    from platform.tenant
    where id in ((p ->> 'tenant_id')::bigint, (p_context ->> 'tenant_id')::bigint)
      or subdomain in (lower(p ->> 'subdomain'), p_context ->> 'subdomain');
  if v_ids is null then
    perform core.require_directory();
  end if;
  -- The home refuses a request that names two schools.
  return case when cardinality(v_ids) = 1 then v_ids[1] end;
end $$;
comment on function core.school_of is
  'The school of a request, if any: that of the verified token, or the one that the request names. Its server checks '
  'it.';

create function core.refuse(p_refusal jsonb) returns void language plpgsql as $$
begin
  raise exception using
    errcode = p_refusal ->> 'code',
    message = p_refusal ->> 'message',
    detail = coalesce(p_refusal ->> 'detail', ''),
    hint = coalesce(p_refusal ->> 'hint', ''),
    schema = coalesce(p_refusal ->> 'schema', ''),
    table = coalesce(p_refusal ->> 'table', ''),
    column = coalesce(p_refusal ->> 'column', ''),
    constraint = coalesce(p_refusal ->> 'constraint', '');
end $$;
comment on function core.refuse is 'Raises an error that another server returned as data.';

create function core.wait_for_copies(p_server text) returns void language plpgsql as $$
declare
  v_position pg_lsn := core.remote_wal_position(p_server);
  v_until timestamptz := clock_timestamp() + interval '2 seconds';
begin
  while not core.remote_is_copied(p_server, v_position) and clock_timestamp() < v_until loop
    perform pg_sleep(0.005);
  end loop;
end $$;
comment on function core.wait_for_copies is
  'Waits until the servers that copy tables of this one have its changes, at most two seconds. A server that is not '
  'connected is not waited for.';

create function core.prepare_on_node_that_answers(p_operation text, p_session_id bigint, p jsonb, p_context jsonb)
  returns jsonb language plpgsql as $$
declare
  v_prepared jsonb;
  v_avoided jsonb := '[]';
begin
  loop
    v_prepared := core.remote_prepare(p_operation, p_session_id, p,
      p_context || jsonb_build_object('avoided_nodes', v_avoided));
    -- The node of an earlier reservation may have created the school, so there is no other node for it.
    exit when v_prepared ->> 'node_id' is null or v_prepared #>> '{undo,reserved_at}' is null;
    begin
      perform core.remote_wal_position('node_' || (v_prepared ->> 'node_id'));
      exit;
    exception
      when query_canceled then
        perform core.remote_undo(v_prepared -> 'undo');
        raise;
      when others then
        perform core.remote_undo(v_prepared -> 'undo');
    end;
    if v_avoided @> (v_prepared -> 'node_id') then
      perform core.refuse(jsonb_build_object('code', 'S503A',
        'message', format('The node %s does not answer. No school was created.', v_prepared ->> 'node')));
    end if;
    v_avoided := v_avoided || (v_prepared -> 'node_id');
  end loop;
  return v_prepared;
end $$;
comment on function core.prepare_on_node_that_answers is
  'Runs core.prepare_at_home. If the node of a new reservation does not answer, it has surely not created the school: '
  'the reservation is removed, and another node chosen.';

create function core.call_on_node(p_operation text, p_session_id bigint, p jsonb, p_context jsonb, p_content bytea,
  out answer text, out content bytea, out version text, out id bigint, out refusal jsonb)
  language plpgsql as $$
declare
  v_prepared jsonb := core.prepare_on_node_that_answers(p_operation, p_session_id, p, p_context);
  -- Not core.server_of: the copy of the directory may be older than the school.
  v_server text := 'node_' || (v_prepared ->> 'node_id');
  v_undo jsonb := v_prepared -> 'undo';
begin
  if v_prepared ? 'refusal' then
    refusal := v_prepared -> 'refusal';
    return;
  end if;
  if v_server is null then
    select r.answer, r.content, r.version, r.id, r.refusal
      into answer, content, version, id, refusal
      from core.remote_call('home', p_operation, p_session_id, p, p_context, p_content) r;
  else
    begin
      select r.answer, r.content, r.version, r.id, r.refusal
        into answer, content, version, id, refusal
        from core.remote_call(v_server, p_operation, null,
          case when p ? 'id' then p else p || jsonb_build_object('reserved_id', v_prepared -> 'id') end,
          p_context || jsonb_build_object('operator', v_prepared -> 'operator', 'server', v_server), p_content) r;
    exception when others then
      -- The node may have created the school before the connection ended, so a reservation stays. If the node has
      -- renamed the school, the copy of its row sets the new subdomain at home, before this or later.
      perform core.remote_undo(v_undo - 'reserved_at');
      if v_prepared ? 'node' then
        perform core.refuse(jsonb_build_object('code', 'S503A',
          'message', format(
            'The node %s did not answer. It may have created the school %s, whose subdomain stays reserved. Repeat the '
            'request when the node answers.', v_prepared ->> 'node', p ->> 'subdomain')));
      end if;
      raise;
    end;
    if refusal is not null then
      perform core.remote_undo(v_undo);
    end if;
    perform core.wait_for_copies(v_server);
  end if;
  perform core.wait_for_copies('home');
end $$;
comment on function core.call_on_node is
  'Runs an operation of an operator on the server of a school. The home admits the operator and reserves what is '
  'unique first. Returns when the home has the copy of what the node has changed.';

create function core.call(p_operation text, p_session_id bigint, p jsonb, p_context jsonb, p_content bytea default null,
  out answer text, out content bytea, out version text, out id bigint)
  language plpgsql as $$
declare
  o core.operation;
  v_answer record;
begin
  if not p_context ? 'school' then
    select * into o from core.operation where name = p_operation;
  end if;
  -- The server of a school also refuses its users what only operators may do.
  if p_context ? 'school' or p_context #>> '{api_key,tenant_id}' is not null
      or o.access not in ('platform', 'analyst') then
    v_answer := core.remote_call(core.server_of(core.school_of(o.access, p, p_context)), p_operation, p_session_id, p,
      p_context, p_content);
  elsif o.runs_on <> 'home' and not coalesce((p_context ->> 'check_only')::boolean, false) then
    v_answer := core.call_on_node(p_operation, p_session_id, p, p_context, p_content);
  else
    v_answer := core.remote_call('home', p_operation, p_session_id, p, p_context, p_content);
    if o.writes and v_answer.refusal is null then
      perform core.wait_for_copies('home');
    end if;
  end if;
  if v_answer.refusal is not null then
    perform core.refuse(v_answer.refusal);
  end if;
  answer := v_answer.answer;
  content := v_answer.content;
  version := v_answer.version;
  id := v_answer.id;
end $$;
comment on function core.call is
  'Runs a request of a school on the server of the school, and an operation of operators where core.operation.runs_on '
  'says: at home, or on the node that the home names. After a change by an operator it waits until the connected '
  'servers have it, at most two seconds for each.';

create function core.check_impersonations(p_server text, p_session_ids bigint[]) returns void language plpgsql as $$
declare
  v_operators bigint[];
begin
  if p_server <> 'home' then
    v_operators := core.remote_impersonators(p_server, p_session_ids);
    if v_operators <> '{}' then
      v_operators := core.ended_operator_sessions(v_operators);
    end if;
    if v_operators <> '{}' then
      perform core.remote_end_operator_sessions(p_server, v_operators);
    end if;
  end if;
end $$;
comment on function core.check_impersonations is
  'Ends those of these sessions of a node that are impersonations by operators whose sessions have ended. Raises '
  'unavailable while the home does not answer.';

create function core.call_impersonated(p_operation text, p_session_id bigint, p jsonb, p_context jsonb,
    p_content bytea default null,
    out answer text, out content bytea, out version text, out id bigint, out refusal json)
  language plpgsql as $$
declare
  v_server text := core.server_of((p_context ->> 'school')::bigint);
begin
  perform core.check_impersonations(v_server, array[p_session_id]);
  select r.answer, r.content, r.version, r.id, r.refusal
    into answer, content, version, id, refusal
    from core.remote_call_impersonated(v_server, p_operation, p_session_id, p, p_context, p_content) r;
end $$;
comment on function core.call_impersonated is
  'core.call_impersonated on the server of the school, unless the session of the operator has ended at home.';

-- Asks every server, and skips one that does not answer.
create function core.accounts_at(p_address text) returns setof bytea language plpgsql as $$
declare
  v_server text;
begin
  for v_server in select srvname from pg_foreign_server order by srvname = 'home' desc, srvname loop
    begin
      return query select * from core.remote_accounts_at(v_server, p_address);
    exception when others then
      null;
    end;
  end loop;
end $$;
comment on function core.accounts_at is 'core.accounts_at of all servers that answer.';

create function core.record_requests(p_tenant_ids bigint[], p_requests bigint[]) returns void language plpgsql as $$
declare
  v_share record;
begin
  for v_share in
    select core.server_of(tenant_id) as server, array_agg(tenant_id) as tenant_ids, array_agg(requests) as requests
    from unnest(p_tenant_ids, p_requests) c (tenant_id, requests)
    group by 1
  loop
    begin
      perform core.remote_record_requests(v_share.server, v_share.tenant_ids, v_share.requests);
    exception when others then
      -- The requests to a server that does not answer are not counted. If the API sent them again, those of the other
      -- servers would count twice.
      null;
    end;
  end loop;
end $$;
comment on function core.record_requests is 'core.record_requests on the servers of the schools.';

create function core.readiness() returns json language plpgsql as $$
declare
  v_server text;
begin
  for v_server in select srvname from pg_foreign_server order by srvname = 'home' desc, srvname loop
    begin
      return core.remote_readiness(v_server);
    exception when others then
      -- Schools on nodes work while the home is down, so the API is ready.
      null;
    end;
  end loop;
  perform core.refuse('{"code": "57P03", "message": "No server answers."}');
end $$;
comment on function core.readiness is 'core.readiness of the home, or of the first node that answers.';

create function core.second_factor_secrets(p_key text, p_after text, p_limit integer) returns setof text
  language sql
  begin atomic
    select secret
    from pg_foreign_server
    cross join lateral core.remote_second_factor_secrets(srvname, p_key, p_after, p_limit) secret
    order by secret collate "C"
    limit p_limit;
  end;
comment on function core.second_factor_secrets is 'The next secrets of all servers, as core.second_factor_secrets.';

create function core.second_factor_reencrypt(p_before text[], p_after text[]) returns void language sql
  begin atomic
    select core.remote_second_factor_reencrypt(srvname, p_before, p_after) from pg_foreign_server;
  end;
comment on function core.second_factor_reencrypt is
  'core.second_factor_reencrypt on all servers. Each changes only the secrets that it has.';

create function core.stream_check(p_session_ids bigint[]) returns bigint[] language plpgsql as $$
declare
  v_server text;
  v_answering text[] := '{}';
  v_have_all_answered boolean := true;
  v_ended bigint[] := '{}';
begin
  for v_server in select srvname from pg_foreign_server order by srvname = 'home' desc, srvname loop
    begin
      perform core.check_impersonations(v_server, p_session_ids);
      p_session_ids := core.remote_stream_check(v_server, p_session_ids);
      v_answering := v_answering || v_server;
    exception when others then
      v_have_all_answered := false;
    end;
  end loop;
  if v_have_all_answered or p_session_ids = '{}' then
    return p_session_ids;
  end if;
  -- The sessions of a server that does not answer keep their streams. So only those end whose school is on another.
  foreach v_server in array v_answering loop
    begin
      v_ended := v_ended || array(
        select session_id
        from core.remote_schools_of_sessions(v_server, p_session_ids)
        where core.server_of(tenant_id) = v_server);
    exception when others then
      null;
    end;
  end loop;
  return v_ended;
end $$;
comment on function core.stream_check is
  'The sessions whose streams must end, as core.stream_check of all servers; while a server does not answer, only those '
  'of which another server knows that they belong to it.';

-- What the API may use.
revoke all on all functions in schema core from public;
grant usage on schema core, platform to school_api;
grant select on core.operation, core.refused_server, platform.tenant to school_api;
grant execute on all functions in schema core to school_api;
