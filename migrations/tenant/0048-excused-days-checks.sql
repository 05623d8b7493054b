-- Validates the checks of the previous migration.

alter table attendance validate constraint attendance_is_excused_check;
alter table attendance validate constraint attendance_note_check;
