--! Previous: sha1:35a357e80e788647d5b095c6b01aad48dd7cf28b
--! Hash: sha1:17cf5ca888d5e2057a382d505c4c9bb0f2d69215
--! Message: Excused absences in analytics

-- The attendance facts with excused absences. The earlier release writes mart.attendance_day and mart.attendance_month
-- and cannot write a table with more columns, so these are new tables, which begin with the facts of the old ones. No
-- mark was excused before. The next release drops the old tables.
create table mart.attendance_by_day (
  tenant_id bigint not null,
  class_id bigint not null,
  date date not null,
  present integer not null,
  late integer not null,
  absent integer not null,
  excused integer not null,
  primary key (tenant_id, class_id, date)
);
comment on table mart.attendance_by_day is
  'The number of attendance marks by class, day and status, and of excused absences.';

create table mart.attendance_by_month (
  tenant_id bigint not null,
  class_id bigint not null,
  month date not null,
  days integer not null,
  present integer not null,
  late integer not null,
  absent integer not null,
  excused integer not null,
  primary key (tenant_id, class_id, month)
);
comment on table mart.attendance_by_month is
  'The number of attendance marks by class, month and status, and of excused absences. Queries over many schools use '
  'it, where the days would be millions of rows.';

-- The policies of the tables let their owner see one school at a time.
alter table mart.attendance_day no force row level security;
alter table mart.attendance_month no force row level security;
insert into mart.attendance_by_day
  select tenant_id, class_id, date, present, late, absent, 0 from mart.attendance_day;
insert into mart.attendance_by_month
  select tenant_id, class_id, month, days, present, late, absent, 0 from mart.attendance_month;
alter table mart.attendance_day force row level security;
alter table mart.attendance_month force row level security;
