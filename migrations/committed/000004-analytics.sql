--! Previous: sha1:7241ebded6888e042f509792b48a30963c50620e
--! Hash: sha1:b5b9ac5ea7be578a3b2187a9118ae6aa6df0d00c
--! Message: analytics

-- The mart: facts of all schools that analysts query through the views of the schema analytics.
-- The worker reads them from each school (core.analytics_refresh).

create schema mart;
comment on schema mart is
  'Facts of all schools for the views of the schema analytics, filled by the worker. It contains no personal data.';

create table mart.school (
  tenant_id bigint primary key references platform.tenant (id) on delete cascade,
  refreshed_at timestamptz,
  seen jsonb not null default '{}',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table mart.school is 'How current the facts of each school are.';
comment on column mart.school.refreshed_at is
  'When the facts were last compared with the school and corrected where needed.';
comment on column mart.school.seen is
  'The state of the school''s tables at that time. The next refresh reads only the tables that have changed since.';
create trigger touch before update on mart.school
  for each row execute function platform.touch_updated_at();

-- Fact tables have no created_at, no updated_at and no foreign keys: one function derives them for whole schools, and
-- they have millions of rows. mart.school.refreshed_at says how old they are.

create table mart.academic_year (
  tenant_id bigint not null,
  academic_year_id bigint not null,
  name text not null,
  start_date date not null,
  end_date date not null,
  is_current boolean not null,
  primary key (tenant_id, academic_year_id)
);
comment on table mart.academic_year is 'The academic years of each school.';

create table mart.class (
  tenant_id bigint not null,
  class_id bigint not null,
  academic_year_id bigint not null,
  grade text not null,
  section text,
  capacity integer,
  primary key (tenant_id, class_id)
);
comment on table mart.class is 'The classes of each school by grade and section, without their names.';
create index class_academic_year_id_idx on mart.class (tenant_id, academic_year_id);

create table mart.enrollment (
  tenant_id bigint not null,
  class_id bigint not null,
  month date not null,
  students integer not null,
  joiners integer not null,
  leavers integer not null,
  gender text not null,
  primary key (tenant_id, class_id, month, gender)
);
comment on table mart.enrollment is
  'Students by class, month and gender: the number on the last day of the month (or today), and how many joined and '
  'left in the month.';

create table mart.attendance_day (
  tenant_id bigint not null,
  class_id bigint not null,
  date date not null,
  present integer not null,
  late integer not null,
  absent integer not null,
  primary key (tenant_id, class_id, date)
);
comment on table mart.attendance_day is 'The number of attendance marks by class, day and status.';

create table mart.attendance_month (
  tenant_id bigint not null,
  class_id bigint not null,
  month date not null,
  days integer not null,
  present integer not null,
  late integer not null,
  absent integer not null,
  primary key (tenant_id, class_id, month)
);
comment on table mart.attendance_month is
  'The number of attendance marks by class, month and status. Queries over many schools use it, where the days '
  'would be millions of rows.';

create table mart.fee_month (
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
comment on table mart.fee_month is
  'Amounts billed in a month by component, and how much of them has been waived, collected or become overdue since. '
  'Invoices outside every academic year have the academic year 0.';

create table mart.payment_day (
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
comment on table mart.payment_day is 'Payments and reversals by day and payment method.';

create table mart.teacher_load (
  tenant_id bigint not null,
  academic_year_id bigint not null,
  teachers integer not null,
  periods integer not null,
  band text not null,
  primary key (tenant_id, academic_year_id, band)
);
comment on table mart.teacher_load is
  'The number of teachers by workload (periods per week, in bands) in the timetable of an academic year.';

create table mart.transport_route (
  tenant_id bigint not null,
  route_id bigint not null,
  is_active boolean not null,
  seats integer,
  riders_pickup integer not null,
  riders_drop integer not null,
  primary key (tenant_id, route_id)
);
comment on table mart.transport_route is
  'Transport routes without their names: the seats of the smallest bus that runs the route, and the riders in each '
  'direction.';

create table mart.notification_day (
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
comment on table mart.notification_day is
  'Messages by day, event and channel, and their outcome. Kept after the school has deleted the messages.';
