-- Export and import of a school as a file. src/database/archive.ts reads and writes the lines of the file. The
-- functions here decide their content. No role of a request may call them.

create function core.archive_tables(p_tenant_id bigint) returns table (name text, place bigint, columns jsonb)
  language sql stable set search_path = pg_catalog, pg_temp as $$
  with recursive owned as (
    select oid, relname
    from core.relations_in('tenant_' || p_tenant_id)
    where relkind in ('r', 'p') and not relispartition
  ),
  reference as (
    select distinct conrelid, confrelid
    from core.foreign_keys_in('tenant_' || p_tenant_id)
    where conrelid <> confrelid
  ),
  depth (oid, depth) as (
    select oid, 0 from owned
    union
    select r.conrelid, d.depth + 1
    from depth d
    join reference r on r.confrelid = d.oid
    where d.depth < (select count(*) from owned)
  )
  select
    o.relname::text,
    row_number() over (order by max(d.depth), o.relname),
    (
      select jsonb_agg(
        jsonb_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod)) order by a.attnum)
      from pg_attribute a
      where a.attrelid = o.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
    )
  from owned o
  join depth d using (oid)
  group by o.oid, o.relname
$$;
comment on function core.archive_tables is
  'The tables of a school with the name and type of each column, except generated ones. A table comes after the '
  'tables that it refers to (place); tables that refer to each other in a cycle come last.';

create function core.archive_open(p_tenant_id bigint) returns table (name text, at_a_time integer)
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_schema text := 'tenant_' || p_tenant_id;
  v_tables jsonb := (
    select jsonb_agg(jsonb_build_object('name', a.name, 'columns', a.columns) order by a.place)
    from core.archive_tables(p_tenant_id) a);
  v_table record;
  v_cursor refcursor;
begin
  if v_tables is null then
    perform core.fail('invalid_state', format('School %s has no tables to export.', p_tenant_id));
  end if;
  -- Both settings must last until the transaction ends, because the cursors produce their rows only when fetched.
  perform core.enter_tenant(p_tenant_id), set_config('timezone', 'UTC', true);
  v_cursor := 'archive_header';
  open v_cursor for
    select jsonb_build_object(
        'format', 'school-management-tenant',
        'format_version', 1,
        'exported_at', now(),
        'schema_version', t.schema_version,
        'tenant', to_jsonb(t) - '{claim,claim_id}'::text[],
        'plan', p.name,
        'subscription', to_jsonb(s),
        'tables', v_tables)::text
    from platform.tenant t
    join platform.plan p on p.id = t.plan_id
    left join platform.subscription s on s.tenant_id = t.id
    where t.id = p_tenant_id;
  name := v_cursor;
  at_a_time := 1;
  return next;
  for v_table in
    select
      t.value ->> 'name' as name,
      bool_or(c ->> 'type' = 'bytea') as is_large,
      string_agg(format(
        case
          when c ->> 'type' = 'bytea' then $sql$replace(encode(%1$I, 'base64'), e'\n', '') as %1$I$sql$
          when c ->> 'type' in ('json', 'jsonb') then '%1$I::text as %1$I'
          else '%1$I'
        end,
        c ->> 'name'), ', ' order by c_place) as columns,
      coalesce((
        select string_agg(quote_ident(a.attname), ', ' order by k.place)
        from pg_index i
        cross join unnest(i.indkey) with ordinality k (attnum, place)
        join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
        where i.indrelid = to_regclass(format('%I.%I', v_schema, t.value ->> 'name')) and i.indisprimary
      ), 'ctid') as key
    from jsonb_array_elements(v_tables) with ordinality t (value, place)
    cross join jsonb_array_elements(t.value -> 'columns') with ordinality c (c, c_place)
    group by t.value, t.place
    order by t.place
  loop
    v_cursor := 'archive_table_' || v_table.name;
    open v_cursor for execute format(
      $sql$select %L || row_to_json(r)::text || '}' from (select %s from %I.%I where %s order by %s) r$sql$,
      format('{"table":%s,"row":', to_json(v_table.name)), v_table.columns, v_schema, v_table.name,
      -- Anybody who reads the file could sign messages of the school with the secrets of webhooks. API keys must not
      -- work on another server without a decision of their users.
      case when v_table.name in ('webhook_secret', 'api_key') then 'false' else 'true' end, v_table.key);
    name := v_cursor;
    at_a_time := case when v_table.is_large then 1 else 500 end;
    return next;
  end loop;
  v_cursor := 'archive_sequences';
  open v_cursor for execute (
    select coalesce(string_agg(
      format($sql$
        select jsonb_build_object('sequence', %1$L, 'last_value', last_value, 'is_called', is_called)::text
        from %2$I.%1$I
        $sql$, relname, v_schema),
      ' union all ' order by relname), 'select null where false')
    from core.relations_in(v_schema)
    where relkind = 'S');
  name := v_cursor;
  at_a_time := 500;
  return next;
end $$;
comment on function core.archive_open is
  'Opens a cursor for each part of the export of a school, in the order of the file: header, tables, sequences. Each '
  'returns lines of JSON; at_a_time is how many to fetch at once. bytea is exported as base64; json as text, so that '
  'it stays unchanged and a JSON null differs from SQL null; secrets of webhooks, and API keys, are left out. '
  'Call it in a transaction of its own with isolation repeatable read. From then on all tables are locked against '
  'migrations.';

create function core.archive_school(p_header jsonb) returns platform.tenant
  language sql stable set search_path = pg_catalog, pg_temp
  return jsonb_populate_record(
    null::platform.tenant,
    '{"is_impersonation_allowed": true, "is_second_factor_required": false, "claim": 1}'
      || (p_header -> 'tenant') || jsonb_build_object('claim_id', gen_random_uuid()));
comment on function core.archive_school is
  'The row of platform.tenant in the header of a file. Columns that an older file lacks have the values of a new '
  'school.';

create function core.archive_as(p_header jsonb, p_subdomain text) returns jsonb
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_id bigint := (p_header #>> '{tenant,id}')::bigint;
  v_file_created_at timestamptz := (p_header #>> '{tenant,created_at}')::timestamptz;
  v_created_at timestamptz := (
    select t.created_at from platform.tenant t where t.id = v_id and not core.is_reserved(t));
  v_is_taken boolean := exists (select from platform.tenant t where t.id = v_id)
    or to_regnamespace('tenant_' || v_id) is not null;
  -- That of an earlier import of the same file, which stopped.
  v_reserved_id bigint := (
    select t.id
    from platform.tenant t
    where t.subdomain = p_subdomain and t.created_at = v_file_created_at and core.is_reserved(t));
begin
  if p_subdomain !~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$' or core.is_reserved_subdomain(p_subdomain) then
    perform core.fail('validation_error', format('%s cannot be the subdomain of a school.', to_json(p_subdomain)));
  end if;
  return p_header
    || jsonb_build_object(
      'tenant', p_header -> 'tenant' || jsonb_build_object(
        'id', coalesce(v_reserved_id, case when v_is_taken then nextval('platform.tenant_id_seq') else v_id end),
        'subdomain', p_subdomain,
        -- Two active copies of a school would remind and notify the same people.
        'suspended_at', case
          when v_created_at = v_file_created_at
            then coalesce((p_header #>> '{tenant,suspended_at}')::timestamptz, now())
          else (p_header #>> '{tenant,suspended_at}')::timestamptz
        end),
      'copy_of', jsonb_build_object('id', v_id, 'subdomain', p_header #>> '{tenant,subdomain}'));
end $$;
comment on function core.archive_as is
  'The header of a file for an import under another subdomain. The school gets a new id if its id is taken; if it is '
  'taken by the school itself, the imported one is a copy and starts suspended. An import that stopped keeps its id. '
  'Raises validation_error for an invalid or reserved subdomain.';

create function core.archive_plan(p_header jsonb) returns bigint
  language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_id bigint := (
    select p.id
    from platform.plan p
    where core.name_key(p.name) = core.name_key(p_header ->> 'plan')
    order by lower(p.name) = lower(p_header ->> 'plan') desc, p.id
    limit 1);
begin
  if v_id is null then
    perform core.fail('conflict', format('There is no plan called %s. Create it first.', p_header ->> 'plan'));
  end if;
  return v_id;
end $$;
comment on function core.archive_plan is 'The plan of a file, by its name. Raises conflict if there is none.';

create function core.archive_reserve(p_header jsonb, p_node_name text default null,
  out node_id bigint, out reserved_at timestamptz)
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_file platform.tenant := core.archive_school(p_header);
  v_school platform.tenant;
  v_server text;
begin
  perform core.require_current_server();
  select * into v_school from platform.tenant t where t.id = v_file.id for update;
  if found then
    if v_school.created_at <> v_file.created_at then
      perform core.fail('conflict', format('School %s of this database is a different school (%s).', v_file.id,
        v_school.subdomain));
    end if;
    -- Its server refuses a school that was not purged.
    v_server := coalesce((select n.name from platform.node n where n.id = v_school.node_id), 'home');
    if v_server <> p_node_name then
      perform core.fail('conflict', format('School %s (%s) is in the directory at %s. Leave out --node.', v_file.id,
        v_school.subdomain, v_server));
    end if;
    -- An import that stopped is continued, and no longer belongs to the command that began it.
    update platform.tenant t set updated_at = now() where t.id = v_file.id and core.is_reserved(t);
    node_id := v_school.node_id;
    return;
  end if;
  if exists (select from platform.tenant t where t.subdomain = v_file.subdomain) then
    perform core.fail('conflict', format('Another school of this database has the subdomain %s.', v_file.subdomain));
  end if;
  node_id := case when p_node_name is distinct from 'home' then core.node_of_new_school(p_node_name) end;
  if node_id is not null then
    perform core.ready_school_drop(v_file.id);
    insert into platform.tenant (id, name, subdomain, status, plan_id, contact_email, created_at, node_id)
      values (v_file.id, v_file.name, v_file.subdomain, 'deleted', core.archive_plan(p_header), v_file.contact_email,
        v_file.created_at, archive_reserve.node_id)
      returning tenant.updated_at into reserved_at;
    perform setval('platform.tenant_id_seq', greatest(v_file.id, last_value)) from platform.tenant_id_seq;
  end if;
end $$;
comment on function core.archive_reserve is
  'Reserves id and subdomain of the school of a file at home, and chooses its server, as core.school_reserve does. A '
  'school that was purged returns to the server in the directory. Returns null for node_id if it belongs at home, and '
  'for reserved_at if it reserved nothing. Raises conflict, and not_found for an unknown node.';

create function core.archive_insert_school(p_header jsonb) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_file platform.tenant := core.archive_school(p_header);
  v_tenant platform.tenant;
  v_known integer := (select coalesce(max(version), 0) from platform.tenant_migration);
  v_status text := case when v_file.suspended_at is null then 'active' else 'suspended' end;
  v_subscription jsonb := nullif(p_header -> 'subscription', 'null');
begin
  if v_file.schema_version > v_known then
    perform core.fail('conflict', format(
      'The file has schema version %s, but this service only knows version %s. Update the service first.',
      v_file.schema_version, v_known));
  end if;
  select * into v_tenant from platform.tenant t where t.id = v_file.id for update;
  if v_tenant.id is not null then
    if v_tenant.created_at <> v_file.created_at then
      perform core.fail('conflict', format('School %s of this database is a different school (%s).',
        v_file.id, v_tenant.subdomain));
    elsif v_tenant.status <> 'deleted' or v_tenant.schema_version > 0 then
      perform core.fail('conflict', format('School %s (%s) is in this database and was not purged.',
        v_file.id, v_tenant.subdomain));
    elsif to_regnamespace('tenant_' || v_file.id) is not null then
      perform core.fail('conflict', format(
        'School %s (%s) is still being purged. Try again when the job purge_tenants has finished.',
        v_file.id, v_tenant.subdomain));
    end if;
    update platform.tenant t
      set status = v_status, deleted_at = null, claim = t.claim + 1, claim_id = v_file.claim_id
      where t.id = v_file.id;
  else
    if exists (select from platform.tenant t where t.subdomain = v_file.subdomain) then
      perform core.fail('conflict', format('Another school of this database has the subdomain %s.', v_file.subdomain));
    end if;
    v_file.plan_id := core.archive_plan(p_header);
    v_tenant := v_file;
    v_tenant.node_id := null;
    v_tenant.schema_version := 0;
    v_tenant.deleted_at := null;
    v_tenant.status := v_status;
    insert into platform.tenant select (v_tenant).*;
    insert into platform.subscription
      select s.*
      -- Files of earlier versions lack these.
      from jsonb_populate_record(null::platform.subscription, '{"grace_days": 14, "is_final": false}'
        || v_subscription
        || jsonb_build_object('id', nextval('platform.subscription_id_seq'), 'plan_id', v_file.plan_id,
          'tenant_id', v_file.id)) s
      where v_subscription is not null;
    if not p_header -> 'subscription' ? 'grace_days' then
      -- In earlier versions nothing ended a period. As in the upgrade, the import cancels no school.
      update platform.subscription
        set current_period_end = now() + case when status = 'active' then core.subscription_period() else '0' end
        where tenant_id = v_file.id and status <> 'cancelled' and current_period_end < now();
    end if;
  end if;
end $$;
comment on function core.archive_insert_school is
  'Inserts the school of a file and its subscription, or restores the row of the purged school. Raises conflict if '
  'the id or the subdomain belongs to another school, the school is not purged, the file is newer than this service, '
  'or its plan does not exist.';

create function core.archive_begin(p_header jsonb) returns table (name text, statement text)
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_file platform.tenant := core.archive_school(p_header);
  v_schema text := 'tenant_' || v_file.id;
  v_table record;
  v_constraint record;
begin
  perform pg_advisory_xact_lock(core.tenant_lock_key(v_file.id));
  perform core.archive_insert_school(p_header);
  perform core.tenant_migrate(v_file.id, v_file.schema_version);
  perform core.enter_tenant(v_file.id); -- until the transaction ends
  if p_header -> 'tables' is distinct from (
    select jsonb_agg(jsonb_build_object('name', a.name, 'columns', a.columns) order by a.place)
    from core.archive_tables(v_file.id) a
  ) then
    perform core.fail('conflict', format(
      'The tables of the file differ from those of schema version %s in this service.', v_file.schema_version));
  end if;
  for v_table in select a.name from core.archive_tables(v_file.id) a loop
    execute format('alter table %I.%I disable trigger user', v_schema, v_table.name);
  end loop;
  -- Foreign keys within a cycle of tables are checked at the end only. archive_end reads this setting to restore them.
  perform set_config('app.archive_waiting', '{}', true);
  for v_constraint in
    select k.oid, k.conname, k.conrelid::regclass as on_table
    from core.foreign_keys_in(v_schema) k
    join core.archive_tables(v_file.id) a on to_regclass(format('%I.%I', v_schema, a.name)) = k.conrelid
    join core.archive_tables(v_file.id) b on to_regclass(format('%I.%I', v_schema, b.name)) = k.confrelid
    where b.place >= a.place and not k.condeferrable
  loop
    execute format('alter table %s alter constraint %I deferrable initially deferred',
      v_constraint.on_table, v_constraint.conname);
    perform set_config('app.archive_waiting',
      (current_setting('app.archive_waiting')::oid[] || v_constraint.oid)::text, true);
  end loop;
  set constraints all deferred;
  -- Migrations insert rows too. The file has the current state of those rows. Truncating tables that others refer to
  -- would read the constraints of all schools.
  for v_table in select a.name from core.archive_tables(v_file.id) a order by a.place desc loop
    execute format('delete from %I.%I', v_schema, v_table.name);
  end loop;
  return query
    select a.name, format('insert into %I.%I (%s) select %s from json_to_recordset($1) r (%s)', v_schema, a.name,
      string_agg(quote_ident(c ->> 'name'), ', '),
      string_agg(format(
        case
          when c ->> 'type' = 'bytea' then $sql$decode(%1$I, 'base64')$sql$
          when c ->> 'type' in ('json', 'jsonb') then '%1$I::%2$s'
          else '%1$I'
        end,
        c ->> 'name', c ->> 'type'), ', '),
      string_agg(format('%I %s',
        c ->> 'name',
        case when c ->> 'type' in ('bytea', 'json', 'jsonb') then 'text' else c ->> 'type' end), ', '))
    from core.archive_tables(v_file.id) a
    cross join jsonb_array_elements(a.columns) c
    group by a.name;
end $$;
comment on function core.archive_begin is
  'Begins the import of a school: inserts the school, creates its schema in the version of the file, switches '
  'triggers off. Returns for each table the statement that inserts rows, from a JSON array of the `row` values of the '
  'lines. Raises conflict as core.archive_insert_school does.';

create function core.archive_end(p_header jsonb, p_sequences jsonb) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_file platform.tenant := core.archive_school(p_header);
  v_schema text := 'tenant_' || v_file.id;
  v_before text[];
  v_table record;
  v_constraint record;
begin
  perform set_config('app.actor_email', 'command line', true);
  perform setval(format('%I.%I', v_schema, s.sequence)::regclass, s.last_value, s.is_called)
    from jsonb_to_recordset(p_sequences) s (sequence text, last_value bigint, is_called boolean);
  -- A sequence in the file may be behind the rows in the file. No id may be assigned twice.
  for v_table in
    select a.name, pg_get_serial_sequence(format('%I.%I', v_schema, a.name), 'id') as sequence
    from core.archive_tables(v_file.id) a
    where a.columns @> '[{"name": "id", "type": "bigint"}]'
  loop
    execute format($sql$
      select setval(%1$L, greatest(s.last_value, t.id), s.is_called or t.id is not null)
      from %1$s s, (select max(id) as id from %2$I.%3$I) t
      $sql$, v_table.sequence, v_schema, v_table.name);
  end loop;
  set constraints all immediate;
  for v_constraint in
    select k.conname, k.conrelid::regclass as on_table
    from core.foreign_keys_in(v_schema) k
    where k.oid = any (current_setting('app.archive_waiting')::oid[])
  loop
    execute format('alter table %s alter constraint %I not deferrable', v_constraint.on_table, v_constraint.conname);
  end loop;
  for v_table in select a.name from core.archive_tables(v_file.id) a loop
    execute format('alter table %I.%I enable trigger user', v_schema, v_table.name);
  end loop;
  update platform.tenant set seeded_permission_id = v_file.seeded_permission_id where id = v_file.id;
  perform core.tenant_migrate(v_file.id);
  v_before := core.enter_tenant(v_file.id);
  -- The file has no secrets of webhooks.
  update webhook set is_active = false where is_active;
  update webhook_delivery
    set status = 'failed', reason = 'webhook_disabled', next_attempt_at = null
    where status = 'pending';
  if p_header ? 'copy_of' then
    -- The addresses of feeds and the phones belong to the school of the file. No secret works for two schools, and no
    -- message is sent twice.
    delete from calendar_feed;
    delete from device;
    update notification_delivery set status = 'dropped', reason = 'school_closed' where status = 'pending';
  end if;
  perform core.recount_usage(), core.leave_tenant(v_before);
  insert into platform.tenant_usage (tenant_id, students, teachers, classes)
    select v_file.id, size.* from core.tenant_size(v_file.id) size
    on conflict (tenant_id) do update
      set students = excluded.students, teachers = excluded.teachers, classes = excluded.classes;
  if v_file.seeded_permission_id < (select max(id) from core.permission) then
    perform core.tenant_seed(v_file.id);
  end if;
  perform setval('platform.tenant_id_seq', greatest(v_file.id, last_value)) from platform.tenant_id_seq;
  perform core.audit('tenant.import', 'tenant', v_file.id, v_file.id,
    core.diff(null, jsonb_strip_nulls(jsonb_build_object(
      'exported_at', p_header -> 'exported_at', 'copy_of', p_header -> 'copy_of'))));
end $$;
comment on function core.archive_end is
  'Completes the import of a school after its rows: sets the sequences, checks the foreign keys, switches triggers '
  'on, runs newer migrations, disables webhooks, whose secrets are not in the file, grants newer permissions, writes '
  'the audit entry. An import under another subdomain (core.archive_as) has no feeds, devices and pending messages.';
