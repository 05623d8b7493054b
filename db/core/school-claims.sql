-- Which server serves a school, as each server itself knows it (docs/decisions/0069-claims-and-tokens-of-servers.md).
-- Only the owner calls these.

create function core.held_schools()
  returns table (id bigint, subdomain text, created_at timestamptz, status text, state text, claim integer,
    claim_id uuid, node_id bigint, has_schema boolean, kept_claim integer, is_kept boolean)
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select
      coalesce(t.id, s.id),
      t.subdomain,
      t.created_at,
      t.status,
      case
        when t.id is null then 'unknown'
        when core.is_reserved(t) then 'reserved'
        when t.node_id is not null then 'copy'
        when t.schema_version > 0 then 'open'
        else 'purged'
      end,
      t.claim,
      t.claim_id,
      t.node_id,
      coalesce(s.has_schema, false),
      case when s.is_kept then core.move_claim('moved_tenant_' || s.id) end,
      coalesce(s.is_kept, false)
    from platform.tenant t
    full join (
      select substring(nspname from '\d+')::bigint as id, bool_or(nspname like 'tenant%') as has_schema,
        bool_or(nspname like 'moved%') as is_kept
      from pg_namespace
      where nspname ~ '^(moved_)?tenant_\d{1,18}$'
        and not exists (select from platform.ready_school r where nspname = 'tenant_' || r.id)
      group by 1
    ) s on s.id = t.id
    order by 1
  $$;
comment on function core.held_schools is
  'The schools that this server has, with their claims. state: `open` if it serves the school, also a suspended or '
  'deleted one; `purged`; `copy` for the copy of a row that another server has; `reserved` while a node creates the '
  'school; `unknown` for a schema without a row. is_kept: it has the tables from before a move (moved_tenant_<id>), '
  'with kept_claim.';

create function core.raise_claim(p_tenant_id bigint, p_above integer) returns void
  language sql set search_path = pg_catalog, pg_temp as $$
    update platform.tenant
      set claim = greatest(claim, p_above) + 1, claim_id = gen_random_uuid()
      where id = p_tenant_id;
  $$;
comment on function core.raise_claim is
  'Gives a school on this server a claim above its own and another one.';

create function core.check_kept_schools() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning',
      format('This server has kept the tables of %s that moved away: %s.',
        case count(*) when 1 then 'a school' else count(*) || ' schools' end,
        string_agg(coalesce(s.subdomain, s.id::text), ', ' order by s.id)),
      string_agg(
        format('npm run school -- tenant move %s --confirm', coalesce(s.subdomain, s.id::text)), E'\n' order by s.id),
      false
    from core.held_schools() s
    where s.is_kept
    having count(*) > 0
  $$;
comment on function core.check_kept_schools is
  'Each takes the space of a school, and the school cannot move again before its last move is confirmed.';
