--! Previous: sha1:9bac6258eb51f8b4e613a82dc66767fb2f52c199
--! Hash: sha1:763856b4c3cd7817e5ccb563b83f61c66b62beb3
--! Message: analytics

-- What analysts see of all schools together: facts that the worker reads out of each school (core.analytics_refresh), behind the views of the schema analytics.
create schema if not exists mart;
comment on schema mart is 'Facts of all schools for the views of the schema analytics, filled by the worker; nothing in it is personal.';

create table if not exists mart.school (
  tenant_id bigint primary key references platform.tenant (id) on delete cascade,
  refreshed_at timestamptz,
  seen jsonb not null default '{}',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table mart.school is 'How far the facts of a school are: refreshed_at is when they were last found or made right, seen is what the school looked like then.';
create or replace trigger touch before update on mart.school for each row execute function platform.touch_updated_at();

-- Facts have no created_at, updated_at and foreign key, as other tables have: they are derived, written by one function, whole schools at a time, and
-- there are millions of them. When a school's were made stands in mart.school.
create table if not exists mart.academic_year (
  tenant_id bigint not null,
  academic_year_id bigint not null,
  name text not null,
  start_date date not null,
  end_date date not null,
  is_current boolean not null,
  primary key (tenant_id, academic_year_id)
);
comment on table mart.academic_year is 'The academic years of schools.';

create table if not exists mart.class (
  tenant_id bigint not null,
  class_id bigint not null,
  academic_year_id bigint not null,
  grade text not null,
  section text,
  capacity integer,
  primary key (tenant_id, class_id)
);
comment on table mart.class is 'The classes of schools, by grade and section, without their names.';
create index if not exists class_academic_year_id_idx on mart.class (tenant_id, academic_year_id);

create table if not exists mart.enrollment (
  tenant_id bigint not null,
  class_id bigint not null,
  month date not null,
  students integer not null,
  joiners integer not null,
  leavers integer not null,
  gender text not null,
  primary key (tenant_id, class_id, month, gender)
);
comment on table mart.enrollment is 'Students of a class by month and gender: how many on the last day of the month, or today, how many came and went in it.';

create table if not exists mart.attendance_day (
  tenant_id bigint not null,
  class_id bigint not null,
  date date not null,
  present integer not null,
  late integer not null,
  absent integer not null,
  primary key (tenant_id, class_id, date)
);
comment on table mart.attendance_day is 'How many marks of a class say what, day by day.';

create table if not exists mart.attendance_month (
  tenant_id bigint not null,
  class_id bigint not null,
  month date not null,
  days integer not null,
  present integer not null,
  late integer not null,
  absent integer not null,
  primary key (tenant_id, class_id, month)
);
comment on table mart.attendance_month is 'How many marks of a class say what, month by month: for figures of many schools, whose days are millions.';

create table if not exists mart.fee_month (
  tenant_id bigint not null,
  academic_year_id bigint not null,
  month date not null,
  source text not null,
  component text not null,
  currency text not null,
  billed numeric(14,2) not null,
  waived numeric(14,2) not null,
  collected numeric(14,2) not null,
  overdue numeric(14,2) not null,
  primary key (tenant_id, academic_year_id, month, source, component, currency)
);
comment on table mart.fee_month is 'What was billed in a month, by component, and what became of it since. The academic year 0 is that of invoices outside every year.';

create table if not exists mart.payment_day (
  tenant_id bigint not null,
  date date not null,
  payments integer not null,
  reversals integer not null,
  method text not null,
  currency text not null,
  amount numeric(14,2) not null,
  reversed numeric(14,2) not null,
  primary key (tenant_id, date, method, currency)
);
comment on table mart.payment_day is 'Payments and reversals of a day by method.';

create table if not exists mart.teacher_load (
  tenant_id bigint not null,
  academic_year_id bigint not null,
  teachers integer not null,
  periods integer not null,
  band text not null,
  primary key (tenant_id, academic_year_id, band)
);
comment on table mart.teacher_load is 'How many teachers have how many periods a week in the timetable of an academic year.';

create table if not exists mart.transport_route (
  tenant_id bigint not null,
  route_id bigint not null,
  is_active boolean not null,
  seats integer,
  riders_pickup integer not null,
  riders_drop integer not null,
  primary key (tenant_id, route_id)
);
comment on table mart.transport_route is 'Routes with the seats of the smallest bus that runs them, and who rides on the two ways; without names.';

create table if not exists mart.notification_day (
  tenant_id bigint not null,
  date date not null,
  messages integer not null,
  pending integer not null,
  sent integer not null,
  failed integer not null,
  dropped integer not null,
  read integer not null,
  event text not null,
  channel text not null,
  primary key (tenant_id, date, event, channel)
);
comment on table mart.notification_day is 'Messages of a day by event and channel, and what became of them. Kept when the school itself has forgotten them.';
