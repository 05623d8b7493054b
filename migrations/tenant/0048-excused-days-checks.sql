-- Validates the checks of the previous migration.

-- One statement reads the table once.
alter table attendance
  validate constraint attendance_is_excused_check,
  validate constraint attendance_note_check;
