--! Previous: sha1:fda337b66c8a262d5aa5c92e1dfe88a2123abfe0
--! Hash: sha1:fe8edc7528496cdacaf941b5aa670991d76b688b
--! Message: node-facts

-- The home copies the facts of analysts and the usage of schools from the nodes, see docs/decisions/0044-nodes.md.

create function platform.copying_node() returns bigint language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  -- A connection copies from one server, or is none that copies. Rows are many, so it is looked up once.
  v_known text := current_setting('school.copying_node', true);
begin
  if coalesce(v_known, '') = '' then
    v_known := coalesce((
      select substring(subname from '^school_node_(\d+)$')
      from pg_stat_subscription
      where pid = pg_backend_pid()), '0');
    perform set_config('school.copying_node', v_known, false);
  end if;
  return nullif(v_known, '0')::bigint;
end $$;
comment on function platform.copying_node is
  'At home: the node whose changes this connection copies; null for any other connection.';

-- @allow replace-function: only looks up the node once; the answers are the same.
create or replace function platform.accept_copy() returns trigger
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_row jsonb := to_jsonb(case tg_op when 'DELETE' then old else new end);
  v_node bigint := platform.copying_node();
  v_is_known boolean := false;
begin
  -- A row does not go to another school. A node could take it from a school that it does not hold.
  if v_node is not null and tg_op = 'UPDATE' and to_jsonb(old) ->> tg_argv[0] is distinct from v_row ->> tg_argv[0] then
    return null;
  end if;
  if v_node is not null and v_row ->> tg_argv[0] is not null then
    if not exists (
      select from platform.tenant where id = (v_row ->> tg_argv[0])::bigint and node_id = v_node
    ) then
      return null;
    end if;
    if tg_op = 'INSERT' then
      execute format('select exists (select from %s where %I = $1)', tg_relid::regclass, tg_argv[1])
        into v_is_known using (v_row ->> tg_argv[1])::bigint;
      if v_is_known then
        return null;
      end if;
    end if;
  end if;
  return case tg_op when 'DELETE' then old else new end;
end $$;

create function platform.accept_fact() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_node bigint := platform.copying_node();
begin
  if v_node is not null then
    if tg_op <> 'INSERT' and not exists (
      select from platform.tenant where id = old.tenant_id and node_id = v_node
    ) then
      return null;
    end if;
    if tg_op <> 'DELETE' and not exists (
      select from platform.tenant where id = new.tenant_id and node_id = v_node
    ) then
      return null;
    end if;
    -- Arguments: the columns of the key.
    if tg_op = 'INSERT' then
      execute format('delete from %s where %s', tg_relid::regclass, (
        select string_agg(format('%1$I = ($1).%1$I', name), ' and ') from unnest(tg_argv) name)) using new;
    end if;
  end if;
  return case tg_op when 'DELETE' then old else new end;
end $$;
comment on function platform.accept_fact is
  'At home: ignores a change that a node sends if the school is not on this node. A row that is there already is '
  'replaced: the home has facts of a moved school from its earlier node. Arguments: the columns of the key.';

create function platform.refuse_copied_truncate() returns trigger
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if platform.copying_node() is not null then
    raise exception 'Node % has truncated %, which has rows of other servers here.', platform.copying_node(),
      tg_relid::regclass;
  end if;
  return null;
end $$;
comment on function platform.refuse_copied_truncate is
  'At home: stops the copies of a node that has truncated a table, because rows of all schools would be deleted. Nodes '
  'do not publish it.';

do $$
declare
  v_table record;
begin
  for v_table in
    select i.indrelid::regclass as name, string_agg(quote_literal(a.attname), ', ') as keys
    from pg_index i
    join pg_class c on c.oid = i.indrelid
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
    where i.indisprimary and (c.relnamespace = 'mart'::regnamespace or c.oid = 'platform.usage_day'::regclass)
    group by i.indrelid
  loop
    execute format('create trigger accept_fact before insert or update or delete on %s for each row '
      'execute function platform.accept_fact(%s)', v_table.name, v_table.keys);
    execute format('alter table %s enable replica trigger accept_fact', v_table.name);
  end loop;
  for v_table in
    select distinct tgrelid::regclass as name
    from pg_trigger
    where tgfoid in ('platform.accept_fact'::regproc, 'platform.accept_copy'::regproc)
  loop
    execute format('create trigger refuse_copied_truncate before truncate on %s '
      'execute function platform.refuse_copied_truncate()', v_table.name);
    execute format('alter table %s enable replica trigger refuse_copied_truncate', v_table.name);
  end loop;
end $$;
