--! Previous: sha1:35a357e80e788647d5b095c6b01aad48dd7cf28b
--! Hash: sha1:0e4bc927be832a9a02c66f4335bb4e154128c3cd
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

-- A node sends these tables to the home, which ignores rows of schools that the node does not hold (000017).
do $$
declare
  v_table record;
begin
  for v_table in
    select i.indrelid::regclass as name, string_agg(quote_literal(a.attname), ', ') as keys
    from pg_index i
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
    where i.indisprimary
      and i.indrelid = any ('{mart.fee_amount,mart.attendance_by_day,mart.attendance_by_month}'::regclass[])
    group by i.indrelid
  loop
    execute format('create trigger accept_fact before insert or update or delete on %s for each row '
      'execute function platform.accept_fact(%s)', v_table.name, v_table.keys);
    execute format('alter table %s enable replica trigger accept_fact', v_table.name);
    execute format('create trigger refuse_copied_truncate before truncate on %s '
      'execute function platform.refuse_copied_truncate()', v_table.name);
    execute format('alter table %s enable replica trigger refuse_copied_truncate', v_table.name);
  end loop;
end $$;
