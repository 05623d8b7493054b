-- The indexes of rooms in classes and slots.

-- @allow index: all values are null, so the three indexes take no time.
create index class_home_room_id_idx on class (home_room_id);
-- @allow index: all values are null, so the three indexes take no time.
create index timetable_slot_room_id_idx on timetable_slot (room_id);
-- @allow index: all values are null, so the three indexes take no time.
create unique index timetable_slot_room_key on timetable_slot
  (reserved_room_id, academic_year_id, day_of_week, period);
-- Deferred like the constraints of classes and teachers in 0005: the triggers check the same rule first.
alter table timetable_slot
  add constraint timetable_slot_room_key unique using index timetable_slot_room_key deferrable initially deferred;
