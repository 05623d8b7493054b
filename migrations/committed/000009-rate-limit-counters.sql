--! Previous: sha1:1fb560665651b85518fa92b6cbae495d268a361d
--! Hash: sha1:f84bc4072ea9fbf9847fa20541fceffa242e9736
--! Message: rate-limit-counters

-- Requests without a login are counted for all API processes together.

-- Unlogged: after a crash of the server the counters start again, and counting writes no WAL.
create unlogged table platform.rate_limit_counter (
  key bytea primary key,
  hits integer not null,
  window_ends_at timestamptz not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.rate_limit_counter is
  'Requests without a login per address or known device, in the current window (core.count_requests).';
comment on column platform.rate_limit_counter.key is
  'HMAC of the kind of request and the address or account. The key of the HMAC is not in the database.';
create trigger touch before update on platform.rate_limit_counter
  for each row execute function platform.touch_updated_at();

-- core.accounts_at finds the sessions of an address, or of an IPv6 network by its first characters.
create index session_ip_idx on platform.session (ip text_pattern_ops);
