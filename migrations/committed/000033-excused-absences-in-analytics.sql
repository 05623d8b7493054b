--! Previous: sha1:35a357e80e788647d5b095c6b01aad48dd7cf28b
--! Hash: sha1:b499b9c25eb27972a503e9b2ddf4083cdb251999
--! Message: Excused absences in analytics

-- Excused absences in the analytics facts. No mark was excused before.
alter table mart.attendance_day add column excused integer not null default 0;
alter table mart.attendance_month add column excused integer not null default 0;
