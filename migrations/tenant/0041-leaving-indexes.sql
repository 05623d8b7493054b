-- @optional: counts and lists find the same rows without this index, only more slowly.
-- Counts those who have not left, and finds those who have or will leave. It replaces the indexes of active and
-- inactive students, which only the previous release reads: until the functions are installed, it counts more slowly.
drop index student_active_idx, student_inactive_idx;
-- @allow index: the statement before it takes no time, and nobody uses the school until both are done.
create index student_left_on_idx on student (left_on) where deleted_at is null;
