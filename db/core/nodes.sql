-- Several servers: the home of the platform, and nodes that hold some of the schools (docs/decisions/0044-nodes.md).
-- The forwarder (db/forwarder) calls these functions on the home and on the nodes, as the role school_api.

select core.define_job('check_nodes', '{node_reachability}',
  p_schedule => '* * * * * ?max=3&jobKey=check_nodes&jobKeyMode=replace');

create function core.this_node() returns platform.node
  language sql stable security definer set search_path = pg_catalog, pg_temp
  return (select n from platform.node n where n.is_this);
comment on function core.this_node is 'The node that this database is; null at home and on a single server.';

create function core.server_id() returns text
  language sql stable security definer set search_path = pg_catalog, pg_temp
  return coalesce('node_' || (core.this_node()).id, 'home');
comment on function core.server_id is 'The name of this server in a forwarder.';

create function core.node_reachability() returns json
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(
      json_object_agg(
        name,
        case when answered_at is not null or unreachable_since is not null then unreachable_since is null end
        order by name),
      '{}')
    from platform.node
    where not is_this and status <> 'joining'
  $$;
comment on function core.node_reachability is
  'By the name of each node, whether it answered the last check of the worker; null before the first check. Security '
  'definer, because nobody but the owner may read the addresses of the nodes.';

create function core.node_queues() returns json
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(json_object_agg(name, queue order by name), '{}')
    from platform.node
    where unreachable_since is null and answered_at > now() - interval '5 minutes'
  $$;
comment on function core.node_queues is
  'By the name of each node that answered the last check of the worker, its jobs then, as core.queue returns them. '
  'Nothing when the worker of the home has not checked for five minutes. '
  'Security definer, as core.node_reachability.';

-- PL/Proxy replaces its connection after an error, and passes on neither the constraint nor the column. So errors are
-- returned as data, and the forwarder raises them again.
create function core.call_forwarded(p_operation text, p_session_id bigint, p jsonb, p_context jsonb, p_content bytea,
  out answer text, out content bytea, out version text, out id bigint, out refusal jsonb)
  language plpgsql as $$
declare
  v_code text;
  v_message text;
  v_detail text;
  v_hint text;
  v_schema text;
  v_table text;
  v_column text;
  v_constraint text;
begin
  select c.answer, c.content, c.version, c.id
    into answer, content, version, id
    from core.call(p_operation, p_session_id, p, p_context, p_content) c;
  -- Deferred constraints would only fail at the commit, outside of this function.
  set constraints all immediate;
exception when others then
  get stacked diagnostics
    v_code = returned_sqlstate,
    v_message = message_text,
    v_detail = pg_exception_detail,
    v_hint = pg_exception_hint,
    v_schema = schema_name,
    v_table = table_name,
    v_column = column_name,
    v_constraint = constraint_name;
  answer := null;
  content := null;
  version := null;
  id := null;
  refusal := jsonb_build_object('code', v_code, 'message', v_message, 'detail', v_detail, 'hint', v_hint,
    'schema', v_schema, 'table', v_table, 'column', v_column, 'constraint', v_constraint);
end $$;
comment on function core.call_forwarded is
  'Runs an operation for the forwarder, like core.call, but returns an error as `refusal`: the fields that PL/pgSQL '
  'can raise again. Like core.call it is not security definer.';

create function core.operator_of(p_operation text, p_session_id bigint, p_context jsonb) returns jsonb
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform core.admit(p_operation, p_session_id, '{}', p_context);
  return jsonb_build_object(
    'id', core.session_id(),
    'user_id', core.user_id(),
    'email', current_setting('app.actor_email'),
    'roles', jsonb_build_array((core.operator_access()).role),
    'api_key', nullif(current_setting('app.api_key'), '')::jsonb);
end $$;
comment on function core.operator_of is
  'Admits a request of an operator at home, before a node runs it. Returns the session or the API key as far as the '
  'node needs it.';

create function core.is_reserved(p_tenant platform.tenant) returns boolean language sql immutable
  return p_tenant.node_id is not null and p_tenant.status = 'deleted' and p_tenant.deleted_at is null;
comment on function core.is_reserved is 'Whether a node has not finished the creation of this school.';

create function core.node_of_new_school(p_name text, p_avoided bigint[] default '{}') returns bigint
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_id bigint := (
    select n.id
    from platform.node n
    left join platform.tenant t on t.node_id = n.id and not (t.status = 'deleted' and t.deleted_at is not null)
    where case when p_name is null then n.status = 'active' else n.name = p_name and n.status <> 'joining' end
    group by n.id
    order by n.id = any (p_avoided), n.unreachable_since is not null, count(t.id), n.id
    limit 1);
begin
  if v_id is null and p_name is not null then
    perform core.fail('not_found', format('There is no node %s, or it is still joining.', p_name));
  end if;
  -- The removal of a node locks its row, counts its schools and marks it. So it sees the school, or is seen here.
  if v_id is not null then
    perform from platform.node n where n.id = v_id and n.status <> 'joining' for share;
    if not found then
      perform core.fail('unavailable', 'The node of the new school is being removed. Try again.');
    end if;
  end if;
  return v_id;
end $$;
comment on function core.node_of_new_school is
  'The node of this name, or the active one with the fewest schools, if possible one that answered the last check of '
  'the worker; null if there is none. One of p_avoided only if there is no other. '
  'It cannot be removed before the end of the transaction. Raises not_found for an '
  'unknown name, and unavailable if the node has just been removed.';

create function core.school_reserve(p jsonb, p_node_name text default null, p_avoided bigint[] default '{}',
  out id bigint, out node_id bigint, out reserved_at timestamptz)
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_reserved_on text;
begin
  perform core.require_current_server();
  -- A creation that stopped is continued. A school that exists is refused by its node, as a conflict, unless the
  -- request repeats the one that created it.
  select t.id, t.node_id into id, node_id from platform.tenant t where t.subdomain = p ->> 'subdomain';
  if found then
    select n.name into v_reserved_on
      from platform.tenant t
      join platform.node n on n.id = t.node_id
      where t.id = school_reserve.id and core.is_reserved(t);
    if v_reserved_on <> p_node_name then
      perform core.fail('conflict', format(
        'The subdomain %s is reserved on the node %s by a creation that has stopped. Repeat it without --node, or free '
        'the subdomain: school node release', p ->> 'subdomain', v_reserved_on));
    end if;
    -- A trigger sets the time of the reservation, so that an earlier request cannot remove what this one needs.
    update platform.tenant t set updated_at = now() where t.id = school_reserve.id and core.is_reserved(t);
    return;
  end if;
  node_id := core.node_of_new_school(p_node_name, p_avoided);
  if node_id is null then
    return;
  end if;
  insert into platform.tenant (name, subdomain, status, plan_id, contact_email, node_id)
    values (p ->> 'name', p ->> 'subdomain', 'deleted', (p ->> 'plan_id')::bigint, p ->> 'contact_email', node_id)
    returning tenant.id, tenant.updated_at into id, reserved_at;
end $$;
comment on function core.school_reserve is
  'Reserves id and subdomain of a new school at home, and chooses its node: the one of this name, or the active one '
  'with the fewest schools, if possible none of p_avoided. '
  'Until the node has created the school, nobody can log in to it. Returns null for node_id '
  'if the school belongs at home, and for reserved_at if the request continues an earlier reservation. Raises '
  'not_found for an unknown node, and conflict if an earlier reservation is on another one.';

create function core.school_release(p_id bigint, p_reserved_at timestamptz) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  delete from platform.tenant t where t.id = p_id and core.is_reserved(t) and t.updated_at = p_reserved_at;
$$;
comment on function core.school_release is
  'Removes the reservation of a school that its node has refused to create. Only the request that made the '
  'reservation may do so, and only if no other has continued it: the other one may be creating the school now.';

create function core.refuse_school_elsewhere(p_tenant_id bigint) returns void language plpgsql as $$
begin
  if exists (select from platform.tenant where id = p_tenant_id and node_id is not null) then
    perform core.fail('unavailable',
      'This school is on another server. Send the request through a forwarder, or run the command with the '
      'DATABASE_URL of that server.');
  end if;
end $$;
comment on function core.refuse_school_elsewhere is
  'Raises unavailable if this database has only a copy of the row of a school. A change of the copy would not reach '
  'the school.';

create function core.refuse_missing_copy() returns void language plpgsql as $$
begin
  perform core.fail('unavailable',
    'This server is copying plans and settings from the home again. Try again in a moment.');
end $$;
comment on function core.refuse_missing_copy is
  'Raises unavailable. For some seconds, while a node that was restored copies the tables of the home again, the plan '
  'of a school or a setting can be missing.';

-- The functions that the forwarder calls at home around an operation that runs on a node. They return errors as data,
-- for the reason given at core.call_forwarded.
create function core.prepare_at_home(p_operation text, p_session_id bigint, p jsonb, p_context jsonb) returns jsonb
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_operator jsonb;
  v_school record;
  v_renamed_at timestamptz;
  v_code text;
  v_message text;
  v_detail text;
  v_table text;
  v_constraint text;
begin
  v_operator := core.operator_of(p_operation, p_session_id, p_context);
  if (select runs_on from core.operation where name = p_operation) = 'new_school' then
    select * into v_school
      from core.school_reserve(
        p || jsonb_build_object('plan_id', coalesce(p -> 'plan_id', p #> '{plan,id}')),
        p_avoided => array(select jsonb_array_elements_text(p_context -> 'avoided_nodes')::bigint));
    return jsonb_build_object('operator', v_operator, 'id', v_school.id, 'node_id', v_school.node_id,
      'node', (select n.name from platform.node n where n.id = v_school.node_id),
      'undo', jsonb_build_object('id', v_school.id, 'reserved_at', v_school.reserved_at));
  end if;
  select t.id, t.node_id, t.subdomain, t.updated_at
    into v_school
    from platform.tenant t
    where t.id = (p ->> 'id')::bigint
    for no key update;
  if v_school.node_id is not null and v_school.subdomain <> p ->> 'subdomain' then
    -- Subdomains are unique at home, where all of them are known.
    update platform.tenant
      set subdomain = p ->> 'subdomain'
      where id = v_school.id
      returning updated_at into v_renamed_at;
  end if;
  return jsonb_build_object('operator', v_operator, 'node_id', v_school.node_id,
    'undo', jsonb_build_object('id', v_school.id, 'subdomain', v_school.subdomain, 'updated_at', v_school.updated_at,
      'renamed_at', v_renamed_at));
exception when others then
  get stacked diagnostics
    v_code = returned_sqlstate,
    v_message = message_text,
    v_detail = pg_exception_detail,
    v_table = table_name,
    v_constraint = constraint_name;
  return jsonb_build_object('refusal', jsonb_build_object('code', v_code, 'message', v_message, 'detail', v_detail,
    'table', v_table, 'constraint', v_constraint));
end $$;
comment on function core.prepare_at_home is
  'What happens at home before a node runs an operation of an operator: admits the operator, finds the node, and '
  'reserves a new school or a new subdomain. `avoided_nodes` of the context are nodes that did not answer. Returns '
  '{operator, id?, node_id, node?, undo} or {refusal}. node_id is null for a school at home; node is the name of the '
  'node of a new school; undo is for core.undo_at_home.';

create function core.undo_at_home(p_undo jsonb) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform core.school_release((p_undo ->> 'id')::bigint, (p_undo ->> 'reserved_at')::timestamptz);
  -- A later change of the row is that of the node, or of another request.
  update platform.tenant
    set subdomain = p_undo ->> 'subdomain', updated_at = (p_undo ->> 'updated_at')::timestamptz
    where id = (p_undo ->> 'id')::bigint and node_id is not null
      and updated_at = (p_undo ->> 'renamed_at')::timestamptz;
end $$;
comment on function core.undo_at_home is
  'Takes back what core.prepare_at_home reserved, after the node has refused the operation. Does nothing if the row '
  'has changed since.';

create function core.keep_subdomain() returns trigger
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if platform.copying_node() is not null
      and exists (select from platform.tenant t where t.subdomain = new.subdomain and t.id <> new.id) then
    raise warning 'School % is called % on its node, but another school has this subdomain. It keeps % at home.',
      new.id, new.subdomain, old.subdomain;
    new.subdomain := old.subdomain;
  end if;
  return new;
end $$;
comment on function core.keep_subdomain is
  'At home: a copied row keeps its subdomain if another school has taken the one that it has on its node, because the '
  'error would stop the replication of the node. The two differ if the connection to the node ended while an operator '
  'changed the subdomain, or if the node was restored from a backup. Saving the school again sends that of the home.';

create trigger keep_subdomain before update on platform.tenant
  for each row when (old.subdomain is distinct from new.subdomain) execute function core.keep_subdomain();
alter table platform.tenant enable replica trigger keep_subdomain;

create function core.school_take_id(p_from bigint, p_to bigint) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if (core.this_node()).id is null then
    raise exception 'Only a node gives a school the id that its home has reserved.';
  end if;
  update platform.tenant set id = p_to where id = p_from;
end $$;
comment on function core.school_take_id is
  'Gives a school that was just inserted the id that its home has reserved. Security definer, since no role may change '
  'an id.';

create function core.wal_position() returns pg_lsn language sql volatile
  return pg_current_wal_lsn();
comment on function core.wal_position is 'Where the next change of this server will be written.';

create function core.is_copied(p_position pg_lsn) returns boolean
  language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select not exists (
    select from pg_stat_replication
    where application_name like 'school\_%' and state = 'streaming'
      -- Unknown until the first answer of a new connection.
      and (replay_lsn >= p_position) is not true);
$$;
comment on function core.is_copied is
  'Whether the servers that copy tables of this one, and are connected, have all changes up to a position.';

create function core.define_publication(p_name text, p_tables text, p_changes text) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select from pg_publication where pubname = p_name) then
    execute format('alter publication %I set table %s', p_name, p_tables);
    execute format('alter publication %I set (publish = %L)', p_name, p_changes);
  else
    execute format('create publication %I for table %s with (publish = %L)', p_name, p_tables, p_changes);
  end if;
end $$;
comment on function core.define_publication is
  'Creates a publication, or replaces its tables. p_changes: the kinds of changes that it publishes.';

create function core.tables_copied_home() returns setof regclass
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select unnest('{platform.tenant_usage,platform.subscription,platform.audit_log,platform.usage_day}'::regclass[])
    union all
    select oid::regclass from core.relations_in('mart') where relkind = 'r'
  $$;
comment on function core.tables_copied_home is
  'The tables whose rows of a school a node sends to the home, besides platform.tenant. Each needs the trigger '
  'accept_copy or accept_fact, and refuse_copied_truncate (migrations/committed/).';

create function core.columns_except(p_table regclass, p_except text[]) returns text
  language sql stable set search_path = pg_catalog, pg_temp
  return (
    select format('%s (%s)', p_table::text, string_agg(quote_ident(attname), ', ' order by attnum))
    from pg_attribute
    where attrelid = p_table and attnum > 0 and not attisdropped and attname <> all (p_except)
  );
comment on function core.columns_except is 'A table with the list of its columns, except some, for a publication.';

create function core.define_publications() returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if (core.this_node()).id is not null then
    perform core.define_publication('school_facts', (
      select string_agg(
        case when t = 'mart.school'::regclass then core.columns_except(t, '{seen}') else t::text end, ', ')
      from core.tables_copied_home() t
    ), 'insert, update, delete');
    -- The row exists at home since the reservation. A copy keeps schema_version 0, so that nothing at home looks for
    -- the tables of the school.
    perform core.define_publication('school_tenants',
      core.columns_except('platform.tenant', '{schema_version,seeded_permission_id,node_id}'), 'update');
  elsif exists (select from platform.node) then
    perform core.define_publication('school_platform', format('%s, platform.plan, platform.setting, '
      'platform.notification_setting, platform.notification_template',
      core.columns_except('platform.user_account',
        '{password_hash,phone,analyst_tenant_ids,profile_picture_id,last_login_at}')), 'insert, update, delete');
    perform core.define_publication('school_directory', 'platform.tenant (id, subdomain, node_id)',
      'insert, update, delete');
  end if;
end $$;
comment on function core.define_publications is
  'Publishes the tables that other servers copy. At home: plans, settings, operators without their '
  'passwords, and the directory of schools. On a node: schools, and core.tables_copied_home. Nothing on a single '
  'server.';
