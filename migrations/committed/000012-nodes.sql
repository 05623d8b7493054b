--! Previous: sha1:7c29459635b612ab0c943415adc007efc5c43e2b
--! Hash: sha1:07b3fccd723656f70301c31918f458f88f171b4b
--! Message: nodes

-- Nodes: servers that hold some of the schools, see docs/decisions/0044-nodes.md. One server has no row here.

create table platform.node (
  id bigserial primary key
    -- Times 10^12, the first id of its rows, which must stay an integer that JavaScript can represent.
    constraint node_id_check check (id between 1 and 9000),
  name text not null
    constraint node_name_check check (name ~ '^[a-z][a-z0-9-]{0,39}$'),
  url text not null,
  status text not null default 'joining'
    constraint node_status_check check (status in ('joining', 'active', 'draining')),
  is_this boolean not null default false,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.node is
  'The servers that hold schools besides the home of the platform. A node has only its own row.';
comment on column platform.node.url is
  'The address for the owner, with its password. No role of the service can read it.';
comment on column platform.node.status is
  'joining: its copies are being set up; active: gets new schools; draining: gets no new schools.';
comment on column platform.node.is_this is 'Whether this database is the node.';
create unique index node_name_key on platform.node (name);
create trigger touch before update on platform.node
  for each row execute function platform.touch_updated_at();

alter table platform.tenant add column node_id bigint
  constraint tenant_node_id_fkey references platform.node (id) on delete restrict;
comment on column platform.tenant.node_id is
  'The node that holds the school; null if this database holds it. The row of a school on another node is a copy with '
  'schema_version 0. While the node creates the school, its status is deleted and deleted_at is null.';
-- @allow index: in the same transaction as its column, which is null in every row.
create index tenant_node_id_idx on platform.tenant (node_id) where node_id is not null;
