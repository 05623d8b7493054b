-- The rooms of a school.

create table room (
  id bigserial primary key,
  name text not null
    constraint room_name_check check (length(name) between 1 and 50),
  capacity integer
    constraint room_capacity_check check (capacity between 1 and 10000),
  school_unit_id bigint references school_unit (id) on delete restrict,
  is_shared boolean not null default false,
  is_active boolean not null default true,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table room is 'A room in which lessons take place.';
comment on column room.is_shared is 'Whether several lessons may take place in it at a time, as in a hall.';
comment on column room.is_active is 'Whether it is used for new lessons.';
create unique index room_name_key on room (lower(name));
create index room_school_unit_id_idx on room (school_unit_id);
