-- Rate limits of requests without a login, for all API processes together. See docs/decisions/0031-rate-limits.md.

create function core.count_requests(p_keys bytea[], p_changes integer[], p_window_ms integer)
  returns table (key bytea, hits integer, ms_left integer)
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  insert into platform.rate_limit_counter as c (key, hits, window_ends_at)
  select change.key, greatest(change.hits, 0), clock_timestamp() + p_window_ms * interval '1 ms'
  from unnest(p_keys, p_changes) change (key, hits)
  -- Always in the same order, so that two processes cannot deadlock.
  order by change.key
  -- The end of the new window shows the time. A clock that is read twice could end the window between hits and
  -- window_ends_at.
  on conflict (key) do update set
    hits = case
      when c.window_ends_at <= excluded.window_ends_at - p_window_ms * interval '1 ms' then excluded.hits
      else greatest(c.hits + p_changes[array_position(p_keys, excluded.key)], 0)
    end,
    window_ends_at = case
      when c.window_ends_at <= excluded.window_ends_at - p_window_ms * interval '1 ms' then excluded.window_ends_at
      else c.window_ends_at
    end
  returning
    c.key, c.hits, greatest(ceil(extract(epoch from c.window_ends_at - clock_timestamp()) * 1000)::integer, 1);
$$;
comment on function core.count_requests is
  'Adds to the counters of some keys, each in its own window, and returns them. A negative change takes back requests '
  'that turned out not to count. A window that has ended starts again. For the API process only.';

create function core.accounts_at(p_address text) returns setof bytea
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_groups text := array_to_string((string_to_array(split_part(p_address, '::', 1), ':'))[1:3], ':');
begin
  if p_address like '%/%' then
    return query
      select distinct sha256(convert_to(email, 'UTF8'))
      from platform.session
      where ip like v_groups || ':%' and core.address_network(ip) = p_address
      limit core.max_accounts_of_address();
  else
    return query
      select distinct sha256(convert_to(email, 'UTF8'))
      from platform.session
      where ip in (p_address, '::ffff:' || p_address)
      limit core.max_accounts_of_address();
  end if;
end $$;
comment on function core.accounts_at is
  'The SHA-256 of the emails that have a stored session whose last login or refresh came from an address: an IPv4 '
  'address or an IPv6 network of 56 bits. For the API process only, because it reads the sessions of all schools.';
