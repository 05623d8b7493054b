-- What analysts see, through GraphQL: schools, and facts of them. A view has only columns that
-- test/db/analytics-columns.test.ts names: no names, contacts, addresses, words or dates of people, and no number of
-- one. A school's own words are there where figures are of no use without them: what it calls itself, its academic
-- years, grades, sections and fee components. Comments name keys and relations for PostGraphile, which can't see them
-- on a view.
create schema analytics;
comment on schema analytics is 'Views for analysts over all schools, installed whole at each migration.';

create view analytics.tenants with (security_invoker = true) as
  select t.id as tenant_id, t.name, t.subdomain, t.status, p.name as plan, p.price_monthly, s.status as subscription_status, t.is_setup_complete,
    (t.trial_ends_at at time zone t.time_zone)::date as trial_ends_on, (t.created_at at time zone t.time_zone)::date as signed_up_on, t.time_zone,
    u.students, u.teachers, u.classes, m.refreshed_at
  from platform.tenant t
  join platform.plan p on p.id = t.plan_id
  left join platform.subscription s on s.tenant_id = t.id
  left join platform.tenant_usage u on u.tenant_id = t.id
  left join mart.school m on m.tenant_id = t.id;
comment on view analytics.tenants is e'@primaryKey tenant_id\nSchools with their plan and size as they are now. Deleted schools are not here, nor anywhere else.';
comment on column analytics.tenants.price_monthly is 'The price of the plan a month.';
comment on column analytics.tenants.trial_ends_on is 'The day the trial ends or ended, where the school is.';
comment on column analytics.tenants.signed_up_on is 'The day the school was made, where it is.';
-- `classes` of a school are those of the relation.
comment on column analytics.tenants.students is e'@name student_count\nActive students.';
comment on column analytics.tenants.teachers is e'@name teacher_count\nActive teachers.';
comment on column analytics.tenants.classes is e'@name class_count\nClasses.';
comment on column analytics.tenants.refreshed_at is 'As of when the facts of this school are; null before the first time.';

create view analytics.academic_years with (security_invoker = true) as
  select f.tenant_id, f.academic_year_id, f.name, f.start_date, f.end_date, f.is_current
  from mart.academic_year f join platform.tenant t on t.id = f.tenant_id;
comment on view analytics.academic_years is e'@primaryKey tenant_id,academic_year_id\nThe academic years of schools.';

create view analytics.classes with (security_invoker = true) as
  select f.tenant_id, f.class_id, f.academic_year_id, f.grade, f.section, f.capacity
  from mart.class f join platform.tenant t on t.id = f.tenant_id;
comment on view analytics.classes is e'@primaryKey tenant_id,class_id\nThe classes of schools.';

create view analytics.enrollments with (security_invoker = true) as
  select f.tenant_id, c.academic_year_id, f.class_id, c.grade, f.gender, f.month, f.students, f.joiners, f.leavers
  from mart.enrollment f join platform.tenant t on t.id = f.tenant_id left join mart.class c on c.tenant_id = f.tenant_id and c.class_id = f.class_id;
comment on view analytics.enrollments is e'@primaryKey tenant_id,class_id,gender,month\nStudents of each class, month by month and by gender.';
comment on column analytics.enrollments.gender is 'female, male, other or unknown.';
comment on column analytics.enrollments.month is 'Its first day.';
comment on column analytics.enrollments.students is 'Who is in the class on the last day of the month, or now. Do not add up months.';
comment on column analytics.enrollments.joiners is 'Who came in the month, from another class too.';
comment on column analytics.enrollments.leavers is 'Who went in the month, to another class too.';

create view analytics.attendance_days with (security_invoker = true) as
  select f.tenant_id, c.academic_year_id, f.class_id, c.grade, f.date, f.present, f.late, f.absent, f.present + f.late + f.absent as marked,
    round((f.present + f.late)::numeric / nullif(f.present + f.late + f.absent, 0), 4) as attendance_rate
  from mart.attendance_day f join platform.tenant t on t.id = f.tenant_id left join mart.class c on c.tenant_id = f.tenant_id and c.class_id = f.class_id;
comment on view analytics.attendance_days is e'@primaryKey tenant_id,class_id,date\nAttendance of each class, day by day. The rate of many is (present + late) / marked of their sums.';
comment on column analytics.attendance_days.marked is 'All marks: present, late and absent.';
comment on column analytics.attendance_days.attendance_rate is 'Present or late, of all marks, from 0 to 1.';

create view analytics.attendance_months with (security_invoker = true) as
  select f.tenant_id, c.academic_year_id, f.class_id, c.grade, f.month, f.days, f.present, f.late, f.absent, f.present + f.late + f.absent as marked,
    round((f.present + f.late)::numeric / nullif(f.present + f.late + f.absent, 0), 4) as attendance_rate
  from mart.attendance_month f join platform.tenant t on t.id = f.tenant_id left join mart.class c on c.tenant_id = f.tenant_id and c.class_id = f.class_id;
comment on view analytics.attendance_months is e'@primaryKey tenant_id,class_id,month\nAttendance of each class, month by month: the quick way to figures of many schools.';
comment on column analytics.attendance_months.month is 'Its first day.';
comment on column analytics.attendance_months.days is 'The days on which the class was marked.';
comment on column analytics.attendance_months.marked is 'All marks: present, late and absent.';
comment on column analytics.attendance_months.attendance_rate is 'Present or late, of all marks, from 0 to 1.';

create view analytics.fee_months with (security_invoker = true) as
  select f.tenant_id, f.academic_year_id, f.month, f.source, f.component, f.currency, f.billed, f.waived, f.collected, f.billed - f.waived - f.collected as outstanding, f.overdue
  from mart.fee_month f join platform.tenant t on t.id = f.tenant_id;
comment on view analytics.fee_months is e'@primaryKey tenant_id,academic_year_id,month,source,component,currency\nWhat was billed, month by month and by component, and what became of it since: billed = waived + collected + outstanding.';
comment on column analytics.fee_months.academic_year_id is '0 for invoices that were issued outside every academic year.';
comment on column analytics.fee_months.month is 'The first day of the month in which it was billed.';
comment on column analytics.fee_months.source is 'student_fees or invoices.';
comment on column analytics.fee_months.component is 'What the school calls this part of its fees; Transport for what riding costs, Invoice for invoices.';
comment on column analytics.fee_months.collected is 'What has been paid of it, whenever that was.';
comment on column analytics.fee_months.outstanding is 'What is neither paid nor waived of it.';
comment on column analytics.fee_months.overdue is 'The part of outstanding whose due date has passed.';

create view analytics.payments with (security_invoker = true) as
  select f.tenant_id, f.date, f.method, f.currency, f.payments, f.amount, f.reversals, f.reversed
  from mart.payment_day f join platform.tenant t on t.id = f.tenant_id;
comment on view analytics.payments is e'@primaryKey tenant_id,date,method,currency\nPayments of fees and invoices, day by day and by method.';
comment on column analytics.payments.method is 'cash, card, bank_transfer, cheque, online or other.';
comment on column analytics.payments.amount is 'What was paid, what was reversed since included.';
comment on column analytics.payments.reversed is 'What was taken back on this day, of payments of this day or before.';

create view analytics.teacher_loads with (security_invoker = true) as
  select f.tenant_id, f.academic_year_id, f.band, f.teachers, f.periods
  from mart.teacher_load f join platform.tenant t on t.id = f.tenant_id;
comment on view analytics.teacher_loads is e'@primaryKey tenant_id,academic_year_id,band\nTeachers by how many periods a week they have in the timetable.';
comment on column analytics.teacher_loads.band is 'Periods a week: 0 (only in the current year), 1-9, 10-19, 20-29 or 30+.';
comment on column analytics.teacher_loads.periods is 'The periods of all of these teachers.';

create view analytics.transport_routes with (security_invoker = true) as
  select f.tenant_id, f.route_id, f.is_active, f.seats, f.riders_pickup, f.riders_drop, round(greatest(f.riders_pickup, f.riders_drop)::numeric / nullif(f.seats, 0), 4) as occupancy
  from mart.transport_route f join platform.tenant t on t.id = f.tenant_id;
comment on view analytics.transport_routes is e'@primaryKey tenant_id,route_id\nRoutes of school buses, and how full they are.';
comment on column analytics.transport_routes.seats is 'Of the smallest bus that runs the route; null without a bus.';
comment on column analytics.transport_routes.riders_pickup is 'Students who ride to school.';
comment on column analytics.transport_routes.riders_drop is 'Students who ride home.';
comment on column analytics.transport_routes.occupancy is 'The fuller of the two ways, of the seats: 1 is full.';

create view analytics.notification_days with (security_invoker = true) as
  select f.tenant_id, f.date, f.event, f.channel, f.messages, f.pending, f.sent, f.failed, f.dropped, f.read
  from mart.notification_day f join platform.tenant t on t.id = f.tenant_id;
comment on view analytics.notification_days is e'@primaryKey tenant_id,date,event,channel\nMessages by the day they were made, and what became of them.';
comment on column analytics.notification_days.event is 'The event of the catalogue; other for what people wrote, and for e-mails to who has no log-in.';
comment on column analytics.notification_days.channel is 'in_app, push or email.';
comment on column analytics.notification_days.read is 'Of in_app, those that were read.';

create view analytics.jobs with (security_invoker = true) as
  select concat(j.task, ':', j.tenant_id) as job_key, j.task, j.tenant_id, j.ready, j.waiting, j.running, j.failed, j.oldest_ready_seconds from core.analytics_jobs() j;
comment on view analytics.jobs is e'@primaryKey job_key\nThe queue of background jobs at this moment, by task and school. Jobs of no school show to who sees all schools.';
comment on column analytics.jobs.job_key is 'Task and school.';
comment on column analytics.jobs.ready is 'Jobs that could run now.';
comment on column analytics.jobs.waiting is 'Jobs whose time has not come, those that failed and will be tried again among them.';
comment on column analytics.jobs.failed is 'Jobs that have failed for good.';
comment on column analytics.jobs.oldest_ready_seconds is 'How long the oldest job that is ready has been so.';

-- Relations, and which columns have always a value. The tags go before the words of each comment.
do $$
declare
  v_view record;
  v_column record;
  v_nullable constant text[] := '{tenants.subscription_status,tenants.trial_ends_on,tenants.students,tenants.teachers,tenants.classes,tenants.refreshed_at,classes.section,
    classes.capacity,transport_routes.seats,transport_routes.occupancy,jobs.tenant_id,jobs.oldest_ready_seconds}';
begin
  for v_view in
    select c.oid, c.relname, obj_description(c.oid, 'pg_class') as words,
      -- «fee_months» is feeMonths of a school.
      lower(left(c.relname, 1)) || substring(replace(initcap(replace(c.relname, '_', ' ')), ' ', '') from 2) as field,
      array(select a.attname::text from pg_attribute a where a.attrelid = c.oid and a.attnum > 0) as columns
    from pg_class c where c.relnamespace = 'analytics'::regnamespace and c.relkind = 'v' and c.relname <> 'tenants'
  loop
    execute format('comment on view analytics.%I is %L', v_view.relname, concat_ws(e'\n',
      '@foreignKey (tenant_id) references analytics.tenants (tenant_id)|@fieldName tenant|@foreignFieldName ' || v_view.field,
      case when 'academic_year_id' = any (v_view.columns) and v_view.relname <> 'academic_years'
        then '@foreignKey (tenant_id,academic_year_id) references analytics.academic_years (tenant_id,academic_year_id)|@fieldName academicYear|@foreignFieldName ' || v_view.field end,
      case when 'class_id' = any (v_view.columns) and v_view.relname <> 'classes'
        then '@foreignKey (tenant_id,class_id) references analytics.classes (tenant_id,class_id)|@fieldName class|@foreignFieldName ' || v_view.field end,
      v_view.words));
  end loop;
  for v_column in
    select c.relname, a.attname, col_description(c.oid, a.attnum) as words
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    where c.relnamespace = 'analytics'::regnamespace and c.relkind = 'v' and c.relname || '.' || a.attname <> all (v_nullable)
  loop
    execute format('comment on column analytics.%I.%I is %L', v_column.relname, v_column.attname, concat_ws(e'\n', '@notNull', v_column.words));
  end loop;
end $$;
