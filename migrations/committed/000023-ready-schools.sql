--! Previous: sha1:0bc711954747f181fd1ee3bcde4a134e26aa4e2a
--! Hash: sha1:9bc49eb7257186d7161e7c1248611361be305a3e
--! Message: ready-schools

-- Schools whose tables are made before they are needed (docs/decisions/0058-ready-schools.md).

create table platform.ready_school (
  id bigint primary key,
  place integer not null
    constraint ready_school_place_check check (place > 0),
  schema_version integer not null default 0,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint ready_school_place_key unique (place)
);
comment on table platform.ready_school is
  'Ids of future schools whose schema tenant_<id> the worker creates in advance. A school that an operator creates '
  'takes the id and the schema of one of them, and leaves the id that it would have had.';
comment on column platform.ready_school.place is
  'From 1 to the number of schools that are kept ready, so that two workers do not add more.';
comment on column platform.ready_school.schema_version is
  'As in platform.tenant. 0 means that there is no schema yet, or that it must be created again.';
create trigger touch before update on platform.ready_school
  for each row execute function platform.touch_updated_at();
