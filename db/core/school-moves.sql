-- Moving a school to another server, see src/servers/moves/ and docs/scaling.md. Only the owner calls these.

create function core.shared_tables(p_tenant_id bigint)
  returns table (name text, condition text, place integer, is_copied_home boolean)
  language sql stable set search_path = pg_catalog, pg_temp as $$
  with owned as (
    select
      c.oid,
      c.oid::regclass::text as name,
      c.oid in (select core.tables_copied_home()) as is_copied_home,
      format('tenant_id = %s', p_tenant_id)
        -- The session of the operator is on another server. It ends with the move.
        || case when c.oid = 'platform.session'::regclass then ' and impersonator_id is null' else '' end as condition
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
    where c.relnamespace in ('platform'::regnamespace, 'mart'::regnamespace)
      and c.relkind = 'r'
      and c.oid not in ('platform.delayed_migration'::regclass, 'platform.replaced_migration_tenant'::regclass)
  )
  select name, condition, 1, is_copied_home
  from owned
  union all
  select k.conrelid::regclass::text, format('%I in (select id from %s where %s)', a.attname, o.name, o.condition), 2,
    false
  from pg_constraint k
  join owned o on o.oid = k.confrelid
  join pg_attribute a on a.attrelid = k.conrelid and a.attnum = k.conkey[1]
  where k.contype = 'f'
    and not exists (
      select from pg_attribute where attrelid = k.conrelid and attname = 'tenant_id' and not attisdropped)
  order by 3, 1;
$$;
comment on function core.shared_tables is
  'The tables outside the schema of a school that have rows of it, with the condition that selects them. place: '
  'tables that others refer to come first. is_copied_home: nodes send changes of the table to the home. New tables '
  'with a column tenant_id, and tables that refer to them, are included without a change here.';

create function core.move_note(p_schema text, p_tenant_id bigint, p_version integer) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  execute format('comment on schema %I is %L', p_schema, (
    select concat_ws(' ', p_version, t.claim, t.claim_id) from platform.tenant t where t.id = p_tenant_id));
end $$;
comment on function core.move_note is
  'Notes the schema version of a school and its claim at a schema, while the row of the school has the version 0. '
  'core.move_note_remove removes the note when the school is opened there: a schema with a note is a copy that no '
  'request has used.';

create function core.move_note_remove(p_schema text) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  execute format('comment on schema %I is null', p_schema);
end $$;
comment on function core.move_note_remove is 'Removes the note of core.move_note.';

create function core.move_version(p_schema text) returns integer
  language sql stable set search_path = pg_catalog, pg_temp
  return split_part(obj_description(to_regnamespace(p_schema), 'pg_namespace'), ' ', 1)::integer;
comment on function core.move_version is 'The schema version that core.move_note has noted.';

create function core.move_claim(p_schema text) returns integer
  language sql stable set search_path = pg_catalog, pg_temp
  -- Earlier releases noted the version alone.
  return nullif(split_part(obj_description(to_regnamespace(p_schema), 'pg_namespace'), ' ', 2), '')::integer;
comment on function core.move_claim is
  'The claim that core.move_note has noted: that of the school when it was closed. Null if an earlier release noted '
  'the version.';

create function core.move_close(p_tenant_id bigint, p_node_id bigint) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform core.move_note('tenant_' || p_tenant_id, p_tenant_id,
    (select schema_version from platform.tenant where id = p_tenant_id));
  execute format('alter schema %I rename to %I', 'tenant_' || p_tenant_id, 'moved_tenant_' || p_tenant_id);
  -- Impersonations are not copied. Here they would begin again if the school came back before they expire.
  delete from platform.session where tenant_id = p_tenant_id and impersonator_id is not null;
  update platform.tenant set schema_version = 0, node_id = p_node_id where id = p_tenant_id;
end $$;
comment on function core.move_close is
  'Closes a school on the server that it leaves: its tables get another schema, and its row becomes a copy. p_node_id: '
  'the server that it moves to at home, where the row is part of the directory; the server itself on a node.';

create function core.move_reopen(p_tenant_id bigint) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_aside text := 'moved_tenant_' || p_tenant_id;
begin
  if to_regnamespace(v_aside) is null then
    return;
  end if;
  -- The target may have opened the school with the next claim before it was lost. Its copy must not count as later.
  update platform.tenant
    set schema_version = core.move_version(v_aside), node_id = null,
      claim = greatest(claim, coalesce(core.move_claim(v_aside), 1) + 1) + 1, claim_id = gen_random_uuid()
    where id = p_tenant_id;
  perform core.move_note_remove(v_aside);
  execute format('alter schema %I rename to %I', v_aside, 'tenant_' || p_tenant_id);
  perform core.move_jobs_release(p_tenant_id);
end $$;
comment on function core.move_reopen is
  'Undoes core.move_close and core.move_jobs_hold on the server that a school has left.';

create function core.drop_tables(p_schema text) returns boolean
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_tables text := (
    select string_agg(format('%I.%I', p_schema, relname), ', ')
    from (
      select relname from core.relations_in(p_schema)
      where relkind in ('r', 'p')
      order by oid limit 20
    ) next);
begin
  if v_tables is null then
    execute format('drop schema if exists %I cascade', p_schema);
    return false;
  end if;
  execute format('drop table %s cascade', v_tables);
  return true;
end $$;
comment on function core.drop_tables is
  'Drops twenty tables of a schema, or the schema if no table is left; returns whether there is more to drop. Each '
  'call is a transaction of its own, because every table, index and sequence takes a lock.';
