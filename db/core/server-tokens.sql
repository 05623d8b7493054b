-- How servers notice that one of them was restored to an earlier moment, or runs twice
-- (docs/decisions/0069-claims-and-tokens-of-servers.md).

create function core.server_refusal() returns text
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select case
      when exists (select from platform.database_identity where is_copy) then
        'This database is a copy beside the one that schools use (school database adopt --as copy).'
      else (
        select format(
          'This database is older than %s remembers it: it was restored to an earlier moment, or a copy of it is in '
          'service. Look at `school node verify`, then say what it is: school database adopt --as copy or successor.',
          coalesce((select 'node ' || n.name from platform.node n where 'node_' || n.id = t.server), 'the home'))
        from platform.server_token t
        where t.behind_since is not null and not t.is_adopted
        order by t.server
        limit 1)
      end
  $$;
comment on function core.server_refusal is
  'Why this server must not run jobs, and not create or move schools; null if it may. Security definer, because nobody '
  'but the owner may read the tokens.';

create function core.require_current_server() returns void language plpgsql as $$
declare
  v_refusal text := core.server_refusal();
begin
  if v_refusal is not null then
    perform core.fail('unavailable', v_refusal);
  end if;
end $$;
comment on function core.require_current_server is
  'Raises unavailable if this server is a copy, or older than another one remembers it.';

create function core.exchange_token(p_self text, p_server text, p_other platform.server_token, p_token uuid,
  out outcome text, out counter bigint)
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_own platform.server_token;
begin
  -- The address may lead to another database since the home has stored it.
  if core.server_id() <> p_self then
    return;
  end if;
  insert into platform.server_token (server) values (p_server) on conflict do nothing;
  select * into v_own from platform.server_token t where t.server = p_server for update;
  outcome := case
    when v_own.is_adopted or p_other.is_adopted then 'accepted'
    when v_own.token is not distinct from p_other.token and v_own.counter = p_other.counter then 'accepted'
    -- The last renewal has not reached the other server, or not this one.
    when v_own.earlier_token = p_other.token and v_own.counter = p_other.counter + 1 then 'accepted'
    when v_own.token = p_other.earlier_token and v_own.counter = p_other.counter - 1 then 'accepted'
    when v_own.counter >= p_other.counter then 'other_behind'
    else 'own_behind'
  end;
  -- A renewal whose answer was lost is repeated with the same number.
  counter := case when v_own.is_adopted or p_other.is_adopted then greatest(v_own.counter, p_other.counter)
    else p_other.counter end + 1;
  if outcome = 'accepted' and p_token is not null then
    update platform.server_token t
      set counter = exchange_token.counter, token = p_token, earlier_token = p_other.token, behind_since = null,
        other_behind_since = null, is_adopted = false
      where t.server = p_server;
  elsif outcome <> 'accepted' then
    update platform.server_token t
      set behind_since = case when outcome = 'own_behind' then coalesce(behind_since, now()) end,
        other_behind_since = case when outcome = 'other_behind' then coalesce(other_behind_since, now()) end
      where t.server = p_server;
  end if;
end $$;
comment on function core.exchange_token is
  'On a node, for the home: compares what the two servers remember of each other, and replaces it by p_token if they '
  'agree, or an administrator has said that one of them is a successor. p_other: the row of the home for this node. '
  'p_token: null only compares. p_self: the node that should answer; for another database the result is null. Returns '
  '`accepted` with the number of the new token, or which server is older than the other one remembers it: '
  '`own_behind` (this one) or `other_behind`. Of two copies of a home, only one is accepted '
  'from the second renewal on: earlier_token is the token with which the last one came.';

create function core.timeline() returns integer
  language sql stable set search_path = pg_catalog, pg_temp
  return case when pg_is_in_recovery() then (select timeline_id from pg_control_checkpoint())
    else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer end;
comment on function core.timeline is
  'The timeline on which this server writes. pg_control_checkpoint() has the earlier one until the first checkpoint '
  'after a promotion, which may take minutes.';

create function core.note_identity(p_is_copy boolean default null) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  insert into platform.database_identity as i (system_identifier, timeline, is_copy)
    select s.system_identifier, core.timeline(), coalesce(p_is_copy, false)
    from pg_control_system() s
    on conflict (is_only) do update
      set system_identifier = excluded.system_identifier, timeline = excluded.timeline, is_copy = excluded.is_copy
      where p_is_copy is not null;
end $$;
comment on function core.note_identity is
  'Notes the Postgres server of this database if none is noted. With p_is_copy also instead of the earlier one, and '
  'whether the database is a copy.';

select core.note_identity();

create function core.check_server_refusal() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select case when i.is_copy then 'warning' else 'error' end, core.server_refusal(),
      'npm run school -- database adopt --as successor --yes  # if it takes the place of the other one; or --as copy',
      false
    from platform.database_identity i
    where core.server_refusal() is not null
  $$;
comment on function core.check_server_refusal is
  'Such a server starts no worker, and creates and moves no school: what it knows may be older than what others have.';

create function core.check_identity() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'warning',
      format('This database was restored, copied or promoted: it was on system %s, timeline %s, and is on %s, %s.',
        i.system_identifier, i.timeline, s.system_identifier, core.timeline()),
      'npm run school -- database adopt --as successor --yes  # if it takes the place of the other one; or --as copy',
      false
    from platform.database_identity i
    cross join pg_control_system() s
    where (i.system_identifier, i.timeline) is distinct from (s.system_identifier, core.timeline())
  $$;
comment on function core.check_identity is
  'Its queue has jobs of an earlier moment. A worker would run them a second time, beside that of the other database.';

create function core.check_subscriptions() returns setof core.finding
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'error',
      format('The subscription %s copies nothing: the other server does not answer, its slot is lost, or another '
        'database uses it, such as a copy of this one.', s.subname),
      'npm run school -- node list  # at home, says which; then repeat node add, or run node reconcile', false
    from pg_subscription s
    where s.subdbid = (select oid from pg_database where datname = current_database())
      and s.subname ~ '^school_(node|home)_'
      and not exists (
        select from pg_stat_subscription a
        where a.subid = s.oid and a.relid is null and a.pid is not null and a.received_lsn is not null)
  $$;
comment on function core.check_subscriptions is
  'Operators see schools of a node as they were, and nodes miss changes of plans, settings and operators.';
