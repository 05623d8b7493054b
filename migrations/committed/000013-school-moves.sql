--! Previous: sha1:07b3fccd723656f70301c31918f458f88f171b4b
--! Hash: sha1:013232ee5ef3a91a827e7840e2ab109b6f3792e0
--! Message: school-moves

-- Moving schools between servers, see docs/decisions/0044-nodes.md and db/core/school-moves.sql.

create function platform.accept_copy() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_row jsonb := to_jsonb(case tg_op when 'DELETE' then old else new end);
  -- The node that sends the change; null for a change that was not copied.
  v_node bigint := (
    select substring(subname from '^school_node_(\d+)$') from pg_stat_subscription where pid = pg_backend_pid());
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
comment on function platform.accept_copy is
  'At home: ignores a change that a node sends if the school is not on this node, and a row that is already there. '
  'When a school moves, its earlier node deletes its rows, and the new one inserts them again. Arguments: the column '
  'of the school, and the key.';

create trigger accept_copy before update on platform.tenant
  for each row execute function platform.accept_copy('id', 'id');
create trigger accept_copy before insert or update or delete on platform.tenant_usage
  for each row execute function platform.accept_copy('tenant_id', 'tenant_id');
create trigger accept_copy before insert or update or delete on platform.subscription
  for each row execute function platform.accept_copy('tenant_id', 'id');
create trigger accept_copy before insert or update or delete on platform.audit_log
  for each row execute function platform.accept_copy('tenant_id', 'id');
alter table platform.tenant enable replica trigger accept_copy;
alter table platform.tenant_usage enable replica trigger accept_copy;
alter table platform.subscription enable replica trigger accept_copy;
alter table platform.audit_log enable replica trigger accept_copy;
