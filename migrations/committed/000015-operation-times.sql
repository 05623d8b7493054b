--! Previous: sha1:6a45a3447b0b16af33de1913065d713dbb3469f2
--! Hash: sha1:7f950773f84b55807385d0e26f7691d8fb53af24
--! Message: operation-times

-- The time that operations take, for the page System of the console.

-- Unlogged: a crash of the server loses only figures of the last hour, and writing them writes no WAL.
create unlogged table platform.operation_time (
  operation text not null,
  minute timestamptz not null,
  calls bigint not null,
  total_ms bigint not null,
  max_ms bigint not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (operation, minute)
);
comment on table platform.operation_time is
  'The calls of each operation in each minute of the last hour, of all API processes (core.record_operation_times).';
comment on column platform.operation_time.total_ms is 'The time of all calls, with their wait for a connection.';
create index operation_time_minute_idx on platform.operation_time (minute);
create trigger touch before update on platform.operation_time
  for each row execute function platform.touch_updated_at();
