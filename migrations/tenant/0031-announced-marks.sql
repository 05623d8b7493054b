-- Which marks students and parents were notified of.

create table announced_mark (
  attendance_id bigint primary key references attendance (id) on delete cascade,
  status text not null
    constraint announced_mark_status_check check (status in ('absent', 'late')),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table announced_mark is
  'The status of a mark that the student and the parents were last notified of, so that a mark that is corrected to '
  'and fro is announced once. Written by the worker; deleted after a month, because older marks notify nobody.';
-- Marks of the last week notified when they were made.
insert into announced_mark (attendance_id, status)
  select id, status from attendance where date > current_date - 8 and status <> 'present';
