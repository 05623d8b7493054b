-- The views of analysts, read through GraphQL. A view has only columns that test/db/analytics-columns.test.ts lists. No
-- column identifies a person: no names, contacts, addresses, free texts, dates or numbers of people. Some texts of a
-- school are included, because figures are of no use without them: the names of the school and its academic years,
-- grades, sections and fee components. The comments declare keys and relations for PostGraphile, which cannot detect
-- them on a view.
-- The tag `@stock` names the column whose values each have their own state of the measure: 20 students in each of 10
-- months are not 200. After it come filters that select one value, too. src/analytics/stocks.ts refuses other sums.
create schema analytics;
comment on schema analytics is 'Views for analysts over all schools. Reinstalled at each migration.';

create view analytics.tenants with (security_invoker = true) as
  select
    t.id as tenant_id, t.name, t.subdomain, t.status, p.name as plan, p.price_monthly,
    s.status as subscription_status, t.is_setup_complete,
    (t.trial_ends_at at time zone t.time_zone)::date as trial_ends_on,
    (t.created_at at time zone t.time_zone)::date as signed_up_on,
    t.time_zone, u.students, u.teachers, u.classes, m.refreshed_at
  from platform.tenant t
  join platform.plan p on p.id = t.plan_id
  left join core.current_subscription s on s.tenant_id = t.id
  left join platform.tenant_usage u on u.tenant_id = t.id
  left join mart.school m on m.tenant_id = t.id;
comment on view analytics.tenants is
  e'@primaryKey tenant_id\nThe schools with their current plan and size. Deleted schools are not in any view.';
comment on column analytics.tenants.price_monthly is 'The monthly price of the plan.';
comment on column analytics.tenants.trial_ends_on is 'The day the trial ends or ended, in the time zone of the school.';
comment on column analytics.tenants.signed_up_on is
  'The day the school was created, in the time zone of the school.';
-- Renamed, because `classes` is the relation.
comment on column analytics.tenants.students is e'@name student_count\nActive students.';
comment on column analytics.tenants.teachers is e'@name teacher_count\nActive teachers.';
comment on column analytics.tenants.classes is e'@name class_count\nClasses.';
comment on column analytics.tenants.refreshed_at is
  'When the data of this school was last refreshed; null before the first refresh.';

create view analytics.academic_years with (security_invoker = true) as
  select f.tenant_id, f.academic_year_id, f.name, f.start_date, f.end_date, f.is_current
  from mart.academic_year f
  join platform.tenant t on t.id = f.tenant_id;
comment on view analytics.academic_years is
  e'@primaryKey tenant_id,academic_year_id\nThe academic years of schools.';

create view analytics.classes with (security_invoker = true) as
  select f.tenant_id, f.class_id, f.academic_year_id, f.grade, f.section, f.capacity
  from mart.class f
  join platform.tenant t on t.id = f.tenant_id;
comment on view analytics.classes is e'@primaryKey tenant_id,class_id\nThe classes of schools.';
comment on column analytics.classes.capacity is
  e'@stock academic_year_id|academicYear.isCurrent|academicYear.name\nPlaces in the class.';

create view analytics.enrollments with (security_invoker = true) as
  select
    f.tenant_id, c.academic_year_id, f.class_id, c.grade, f.gender, f.month, f.students, f.joiners, f.leavers
  from mart.enrollment f
  join platform.tenant t on t.id = f.tenant_id
  left join mart.class c on c.tenant_id = f.tenant_id and c.class_id = f.class_id;
comment on view analytics.enrollments is
  e'@primaryKey tenant_id,class_id,gender,month\nThe number of students by class, month and gender.';
comment on column analytics.enrollments.gender is 'female, male, other or unknown.';
comment on column analytics.enrollments.month is 'The first day of the month.';
comment on column analytics.enrollments.students is
  e'@stock month\n'
  'Students in the class on the last day of the month, or today for the current month. Months cannot be added up.';
comment on column analytics.enrollments.joiners is
  'Students who joined the class in the month, including those from other classes.';
comment on column analytics.enrollments.leavers is
  'Students who left the class in the month, including those who moved to other classes.';

create view analytics.attendance_days with (security_invoker = true) as
  select
    f.tenant_id, c.academic_year_id, f.class_id, c.grade, f.date, f.present, f.late, f.absent, f.excused,
    f.present + f.late + f.absent as marked,
    round((f.present + f.late)::numeric / nullif(f.present + f.late + f.absent, 0), 4) as attendance_rate
  from mart.attendance_by_day f
  join platform.tenant t on t.id = f.tenant_id
  left join mart.class c on c.tenant_id = f.tenant_id and c.class_id = f.class_id;
comment on view analytics.attendance_days is
  e'@primaryKey tenant_id,class_id,date\n'
  'Attendance by class and day. To aggregate the rate, divide the sum of present + late by the sum of marked.';
comment on column analytics.attendance_days.marked is 'The number of marks: present, late and absent.';
comment on column analytics.attendance_days.excused is 'The absences that are excused. absent counts them too.';
comment on column analytics.attendance_days.attendance_rate is
  'The share of marks that are present or late, from 0 to 1. Excused absences are absences.';

create view analytics.attendance_months with (security_invoker = true) as
  select
    f.tenant_id, c.academic_year_id, f.class_id, c.grade, f.month, f.days, f.present, f.late, f.absent, f.excused,
    f.present + f.late + f.absent as marked,
    round((f.present + f.late)::numeric / nullif(f.present + f.late + f.absent, 0), 4) as attendance_rate
  from mart.attendance_by_month f
  join platform.tenant t on t.id = f.tenant_id
  left join mart.class c on c.tenant_id = f.tenant_id and c.class_id = f.class_id;
comment on view analytics.attendance_months is
  e'@primaryKey tenant_id,class_id,month\n'
  'Attendance by class and month. Faster than attendance_days for many schools.';
comment on column analytics.attendance_months.month is 'The first day of the month.';
comment on column analytics.attendance_months.days is 'The number of days on which attendance of the class was marked.';
comment on column analytics.attendance_months.marked is 'The number of marks: present, late and absent.';
comment on column analytics.attendance_months.excused is 'The absences that are excused. absent counts them too.';
comment on column analytics.attendance_months.attendance_rate is
  'The share of marks that are present or late, from 0 to 1. Excused absences are absences.';

create view analytics.fee_months with (security_invoker = true) as
  select
    f.tenant_id, f.academic_year_id, f.month, f.source, f.component, f.currency, f.billed, f.discounted, f.waived,
    f.collected, f.billed - f.discounted - f.waived - f.collected as outstanding, f.overdue
  from mart.fee_amount f
  join platform.tenant t on t.id = f.tenant_id;
comment on view analytics.fee_months is
  e'@primaryKey tenant_id,academic_year_id,month,source,component,currency\n'
  'Amounts by the month in which they were billed and by component. billed = discounted + waived + collected + '
  'outstanding.';
comment on column analytics.fee_months.academic_year_id is
  '0 for invoices that were issued outside of all academic years.';
comment on column analytics.fee_months.month is 'The first day of the month in which the amount was billed.';
comment on column analytics.fee_months.source is 'student_fees or invoices.';
comment on column analytics.fee_months.component is
  'The name of the fee component at the school; Transport for transport fees, Invoice for invoices.';
comment on column analytics.fee_months.discounted is
  'The discounts. Payments are allocated to the components of a fee in their order, discounts in the opposite order.';
comment on column analytics.fee_months.collected is 'The part that has been paid so far, in any month.';
comment on column analytics.fee_months.outstanding is 'The part that is neither paid, discounted nor waived.';
comment on column analytics.fee_months.overdue is 'The part of outstanding whose due date has passed.';

create view analytics.payments with (security_invoker = true) as
  select f.tenant_id, f.date, f.method, f.currency, f.payments, f.amount, f.reversals, f.reversed
  from mart.payment_day f
  join platform.tenant t on t.id = f.tenant_id;
comment on view analytics.payments is
  e'@primaryKey tenant_id,date,method,currency\nPayments of fees and invoices by day and method.';
comment on column analytics.payments.method is 'cash, card, bank_transfer, cheque, online or other.';
comment on column analytics.payments.amount is 'The amount paid, including payments that were reversed later.';
comment on column analytics.payments.reversed is
  'The amount reversed on this day, of payments of this day or earlier.';

create view analytics.teacher_loads with (security_invoker = true) as
  select f.tenant_id, f.academic_year_id, f.band, f.teachers, f.periods
  from mart.teacher_load f
  join platform.tenant t on t.id = f.tenant_id;
comment on view analytics.teacher_loads is
  e'@primaryKey tenant_id,academic_year_id,band\nThe number of teachers by weekly periods in the timetable.';
comment on column analytics.teacher_loads.band is
  'Periods per week: 0 (only in the current year), 1-9, 10-19, 20-29 or 30+.';
comment on column analytics.teacher_loads.teachers is
  e'@stock academic_year_id|academicYear.isCurrent|academicYear.name\nTeachers with this load.';
comment on column analytics.teacher_loads.periods is
  e'@stock academic_year_id|academicYear.isCurrent|academicYear.name\nThe total periods per week of these teachers.';

create view analytics.transport_routes with (security_invoker = true) as
  select
    f.tenant_id, f.route_id, f.is_active, f.seats, f.riders_pickup, f.riders_drop,
    round(greatest(f.riders_pickup, f.riders_drop)::numeric / nullif(f.seats, 0), 4) as occupancy
  from mart.transport_route f
  join platform.tenant t on t.id = f.tenant_id;
comment on view analytics.transport_routes is e'@primaryKey tenant_id,route_id\nBus routes and their occupancy.';
comment on column analytics.transport_routes.seats is
  'The seats of the smallest bus on the route; null without a bus.';
comment on column analytics.transport_routes.riders_pickup is 'Students who ride to school.';
comment on column analytics.transport_routes.riders_drop is 'Students who ride home.';
comment on column analytics.transport_routes.occupancy is
  'Riders divided by seats, in the direction with more riders. 1 means full.';

create view analytics.notification_days with (security_invoker = true) as
  select f.tenant_id, f.date, f.event, f.channel, f.messages, f.pending, f.sent, f.failed, f.dropped, f.read
  from mart.notification_day f
  join platform.tenant t on t.id = f.tenant_id;
comment on view analytics.notification_days is
  e'@primaryKey tenant_id,date,event,channel\nMessages by the day they were created, with their delivery status.';
comment on column analytics.notification_days.event is
  'The event of the catalog; other for messages that users wrote, and for emails to people without a login.';
comment on column analytics.notification_days.channel is 'in_app, push or email.';
comment on column analytics.notification_days.read is 'The number of in_app messages that were read.';

create view analytics.jobs with (security_invoker = true) as
  select
    concat(j.task, ':', j.tenant_id) as job_key, j.task, j.tenant_id, j.ready, j.waiting, j.running, j.failed,
    j.oldest_ready_seconds
  from core.analytics_jobs() j;
comment on view analytics.jobs is
  e'@primaryKey job_key\n'
  'The current queue of background jobs by task and school. Only analysts who see all schools see the jobs that '
  'belong to no school.';
comment on column analytics.jobs.job_key is 'The task and the school.';
comment on column analytics.jobs.ready is 'Jobs that can run now.';
comment on column analytics.jobs.waiting is
  'Jobs that are scheduled for later, including failed jobs that will be retried.';
comment on column analytics.jobs.failed is 'Jobs that failed permanently.';
comment on column analytics.jobs.oldest_ready_seconds is 'How long the oldest ready job has been waiting.';

-- Declares the relations, and the columns that are never null. The tags must precede the text of each comment.
do $$
declare
  v_view record;
  v_column record;
  v_to_year constant text :=
    '@foreignKey (tenant_id,academic_year_id) references analytics.academic_years (tenant_id,academic_year_id)'
    '|@fieldName academicYear|@foreignFieldName ';
  v_to_class constant text :=
    '@foreignKey (tenant_id,class_id) references analytics.classes (tenant_id,class_id)'
    '|@fieldName class|@foreignFieldName ';
  v_nullable constant text[] := '{
    tenants.subscription_status,tenants.trial_ends_on,tenants.students,tenants.teachers,tenants.classes,
    tenants.refreshed_at,classes.section,classes.capacity,transport_routes.seats,transport_routes.occupancy,
    jobs.tenant_id,jobs.oldest_ready_seconds}';
begin
  for v_view in
    select
      c.oid,
      c.relname,
      obj_description(c.oid, 'pg_class') as description,
      -- In camel case: fee_months is the field feeMonths of a school.
      lower(left(c.relname, 1))
        || substring(replace(initcap(replace(c.relname, '_', ' ')), ' ', '') from 2) as field,
      array(select a.attname::text from pg_attribute a where a.attrelid = c.oid and a.attnum > 0) as columns
    from core.relations_in('analytics') c
    where c.relkind = 'v' and c.relname <> 'tenants'
  loop
    execute format('comment on view analytics.%I is %L', v_view.relname, concat_ws(e'\n',
      '@foreignKey (tenant_id) references analytics.tenants (tenant_id)|@fieldName tenant|@foreignFieldName '
        || v_view.field,
      case
        when 'academic_year_id' = any (v_view.columns) and v_view.relname <> 'academic_years'
          then v_to_year || v_view.field
      end,
      case
        when 'class_id' = any (v_view.columns) and v_view.relname <> 'classes' then v_to_class || v_view.field
      end,
      v_view.description));
  end loop;
  for v_column in
    select c.relname, a.attname, col_description(c.oid, a.attnum) as description
    from core.relations_in('analytics') c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    where c.relkind = 'v' and c.relname || '.' || a.attname <> all (v_nullable)
  loop
    execute format('comment on column analytics.%I.%I is %L', v_column.relname, v_column.attname,
      concat_ws(e'\n', '@notNull', v_column.description));
  end loop;
end $$;
