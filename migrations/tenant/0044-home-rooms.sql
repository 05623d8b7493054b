-- A class has a home room, a lesson may have another, and the lessons of a subject may need one of some rooms.

alter table class add column home_room_id bigint
  constraint class_home_room_id_fkey references room (id) on delete restrict;
comment on column class.home_room_id is
  'The room of the lessons that name no other. The column room then has its name; without it, room is any text.';

alter table timetable_slot
  add column room_id bigint
    constraint timetable_slot_room_id_fkey references room (id) on delete restrict,
  add column reserved_room_id bigint
    constraint timetable_slot_reserved_room_id_fkey references room (id) on delete restrict;
comment on column timetable_slot.room_id is
  'The room of the lesson, if it is not the home room of the class. The column room then has its name; without it, '
  'room is any text.';
comment on column timetable_slot.reserved_room_id is
  'The room that no other lesson may use at the time of this one: room_id, or the home room if room is null. Null in a '
  'shared room. Set by triggers.';

create table subject_room (
  subject_id bigint not null references subject (id) on delete cascade,
  room_id bigint not null references room (id) on delete restrict,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (subject_id, room_id)
);
comment on table subject_room is
  'The rooms of a subject, such as laboratories: the generator places its lessons in one of them.';
create index subject_room_room_id_idx on subject_room (room_id);

create function timetable_slot_reserve_room() returns trigger language plpgsql set search_path from current as $$
begin
  -- The previous release changes only the text.
  if tg_op = 'UPDATE' and new.room_id = old.room_id and new.room is distinct from old.room
      and not exists (select from room r where r.id = new.room_id and r.name = new.room) then
    new.room_id := null;
  end if;
  -- A new name of the room changes nothing. A slot of a past year may be in a hall that is no longer shared.
  if tg_op = 'UPDATE'
      and (new.class_id, new.room_id, new.room is null) is not distinct from
        (old.class_id, old.room_id, old.room is null) then
    return new;
  end if;
  new.reserved_room_id := (
    select r.id
    from room r
    where r.id = coalesce(
        new.room_id, case when new.room is null then (select c.home_room_id from class c where c.id = new.class_id) end)
      and not r.is_shared);
  return new;
end $$;
create trigger reserve_room before insert or update of class_id, room, room_id on timetable_slot
  for each row execute function timetable_slot_reserve_room();

create function class_set_room() returns trigger language plpgsql set search_path from current as $$
begin
  if tg_op = 'UPDATE' and new.home_room_id = old.home_room_id then
    -- The previous release changes only the text.
    if not exists (select from room r where r.id = new.home_room_id and r.name = new.room) then
      new.home_room_id := null;
    end if;
  else
    -- The lock waits for another request that gives the room a new name.
    select r.name into new.room from room r where r.id = new.home_room_id for share;
  end if;
  return new;
end $$;
comment on function class_set_room() is 'Keeps the text room of a class the name of its home room.';
create trigger set_room before insert or update of room, home_room_id on class
  for each row when (new.home_room_id is not null)
  execute function class_set_room();

create function class_reserve_home_room() returns trigger language plpgsql set search_path from current as $$
declare
  v_scope text := current_setting('app.scope', true);
begin
  perform set_config('app.scope', 'all', true);
  update timetable_slot
    set reserved_room_id = (select r.id from room r where r.id = new.home_room_id and not r.is_shared)
    where class_id = new.id and room_id is null and room is null;
  perform set_config('app.scope', coalesce(v_scope, ''), true);
  return null;
end $$;
create trigger reserve_home_room after update of home_room_id on class
  for each row when (old.home_room_id is distinct from new.home_room_id)
  execute function class_reserve_home_room();

-- A new name is that of the room in classes and slots, too. Lessons of past years keep what they have reserved, because
-- a hall that is no longer shared may have had several at a time.
create function room_change() returns trigger language plpgsql set search_path from current as $$
declare
  v_scope text := current_setting('app.scope', true);
begin
  perform set_config('app.scope', 'all', true);
  if new.name <> old.name then
    update class set room = new.name where home_room_id = new.id;
    update timetable_slot set room = new.name where room_id = new.id;
  end if;
  if new.is_shared <> old.is_shared then
    update timetable_slot s
      set reserved_room_id = case when not new.is_shared then new.id end
      from academic_year y
      where y.id = s.academic_year_id
        and y.end_date >= coalesce((select start_date from academic_year where is_current), school_today())
        and (
          s.room_id = new.id
          or (s.room_id is null and s.room is null
            and s.class_id in (select id from class where home_room_id = new.id)));
  end if;
  perform set_config('app.scope', coalesce(v_scope, ''), true);
  return null;
end $$;
create trigger change after update of name, is_shared on room
  for each row execute function room_change();
