--! Previous: sha1:c768c015b44d5a087b4b74710b2253b9e7b7826a
--! Hash: sha1:c8192887f836861e78d9507bc0a0114e1cda8122
--! Message: claims and tokens of servers

-- Which server serves a school, and which of two copies of a server is the later one, see
-- docs/decisions/0069-claims-and-tokens-of-servers.md.

-- The schools that exist have the same claim on all servers. Each later one gets an id of its own.
alter table platform.tenant
  add column claim integer not null default 1,
  add column claim_id uuid not null default '00000000-0000-0000-0000-000000000000';
alter table platform.tenant alter column claim_id set default gen_random_uuid();
comment on column platform.tenant.claim is
  'Rises with each creation and move of the school. Of two servers that have the school, the one with the higher claim '
  'has had it later.';
comment on column platform.tenant.claim_id is
  'Random, new with each claim: two servers that were restored can have given the same number.';

create table platform.server_token (
  server text primary key,
  counter bigint not null default 0,
  token uuid,
  earlier_token uuid,
  behind_since timestamptz,
  other_behind_since timestamptz,
  is_adopted boolean not null default false,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.server_token is
  'What this server last agreed on with another one, each minute: at home one row for each node, node_<id>; on a node '
  'one for the home. A server that was restored to an earlier moment has an earlier token than the other remembers.';
comment on column platform.server_token.earlier_token is
  'The token before. The other server is accepted with it too: the last renewal may not have reached a replica.';
comment on column platform.server_token.behind_since is
  'Since when this server is known to be older than the other one remembers it.';
comment on column platform.server_token.other_behind_since is
  'Since when the other server is known to be older than this one remembers it.';
comment on column platform.server_token.is_adopted is
  'Whether an administrator has said that this server takes the place of the one that the other remembers.';
create trigger touch before update on platform.server_token
  for each row execute function platform.touch_updated_at();

create table platform.database_identity (
  is_only boolean primary key default true
    constraint database_identity_is_only_check check (is_only),
  system_identifier bigint not null,
  timeline integer not null,
  is_copy boolean not null default false,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.database_identity is
  'The Postgres server of this database. One row, which differs from the server after a dump, a restore or a '
  'promotion.';
comment on column platform.database_identity.is_copy is
  'Whether this database is a copy beside the one that schools use: it runs no jobs, and creates and moves no school.';
create trigger touch before update on platform.database_identity
  for each row execute function platform.touch_updated_at();
