-- Creates one school of the benchmark: 24 classes in 12 grades, 24 classes of last year, and 20 users with the password
-- hash p_hash. Four fifths of the students are in a class; all of these ride a bus. One class has attendance. Triggers
-- are off, so that 300,000 students take about a minute; the statements below insert what the triggers would have
-- (grades, enrollments). Requires a superuser.
create function pg_temp.bench_school(p_number integer, p_students integer, p_hash text) returns void
  language plpgsql as $$
declare
  v_id bigint;
  v_year integer := extract(year from now() - interval '7 months');
  v_given text[] := array[
    'Amina', 'Noor', 'Zoë', 'Łukasz', 'José', 'María', 'Søren', 'Åsa', 'Björn', 'Chloé', 'François', 'Inês', 'João',
    'Müge', 'Çağla', 'Yuki', 'Haruto', 'Mei', 'Wei', 'Ananya', 'Arjun', 'Priya', 'Ravi', 'Fatima', 'Omar', 'Layla',
    'Yusuf', 'Chidi', 'Ngozi', 'Kwame', 'Ama', 'Olena', 'Dmytro', 'Siân', 'Rhys', 'Aoife', 'Emma'];
  v_family text[] := array[
    'Okafor', 'Haddad', 'Núñez', 'Kowalski', 'García', 'O''Brien', 'Jensen', 'Öberg', 'Müller', 'Lefèvre', 'Ferreira',
    'Yılmaz', 'Tanaka', 'Suzuki', 'Li', 'Chen', 'Sharma', 'Patel', 'Khan', 'Hassan', 'Mensah', 'Owusu', 'Shevchenko',
    'Davies', 'Murphy', 'Trần', 'Smith', 'Jones', 'Brown'];
  v_routes integer := p_students / 50;
begin
  insert into platform.tenant (name, subdomain, contact_email, plan_id, is_setup_complete, time_zone)
    select
      'School ' || p_number, 'school-' || p_number, format('admin@school-%s.example', p_number), id, true,
      'Europe/London'
    from platform.plan
    where name = 'Premium'
    returning id into v_id;
  insert into platform.subscription (tenant_id, plan_id, status, current_period_end)
    select id, plan_id, 'active', now() + interval '10 years' from platform.tenant where id = v_id;
  perform core.tenant_provision(v_id, jsonb_build_object(
    'email', 'user1@bench.example', 'password_hash', p_hash, 'first_name', 'Ada', 'last_name', 'Admin'));
  perform
    set_config('search_path', format('tenant_%s, public', v_id), true),
    set_config('app.tenant_id', v_id::text, true),
    set_config('app.scope', 'all', true),
    set_config('session_replication_role', 'replica', true);

  insert into user_account (email, password_hash, first_name, last_name, email_verified_at)
    select format('user%s@bench.example', n), p_hash, v_given[1 + n % 37], v_family[1 + n % 29], now()
    from generate_series(2, 20) n;
  insert into user_role (user_id, role_id)
    select u.id, r.id
    from user_account u
    cross join role r
    where r.name = 'teacher' and u.id > 1;

  insert into academic_year (name, start_date, end_date, is_current) values
    (format('%s/%s', v_year - 1, v_year), make_date(v_year - 1, 8, 1), make_date(v_year, 7, 31), false),
    (format('%s/%s', v_year, v_year + 1), make_date(v_year, 8, 1), make_date(v_year + 1, 7, 31), true);
  insert into grade (name, sequence) select 'Grade ' || n, n from generate_series(1, 12) n;
  insert into teacher (first_name, last_name, email, employee_number, joined_on)
    select
      v_given[1 + n * 7 % 37],
      v_family[1 + n * 5 % 29],
      format('teacher%s@bench.example', n),
      'T' || n,
      make_date(v_year - n % 12, 8, 1)
    from generate_series(1, 40) n;
  -- Classes 1 to 24 are those of this year.
  insert into class (name, section, grade_id, academic_year_id, class_teacher_id, room)
    select g.name, s.section, g.id, y.id, g.id * 2 - (s.section = 'A')::integer, format('R%s%s', g.sequence, s.section)
    from academic_year y
    cross join grade g
    cross join (values ('A'), ('B')) s (section)
    order by y.is_current desc, g.sequence, s.section;
  insert into student (admission_number, roll_number, first_name, last_name, date_of_birth, gender, class_id, grade_id,
      is_active, left_on, parent_name, parent_phone, parent_email, address)
    select
      lpad(n::text, 6, '0'),
      (1 + (n - 1) / 24)::text,
      v_given[1 + n * 11 % 37],
      v_family[1 + (n * 13 + n / 48) % 29],
      make_date(v_year - 5 - n % 24 / 2, 1 + n % 12, 1 + n % 28),
      (array['female', 'male', 'female', 'male', 'other'])[1 + n % 5],
      c.id,
      c.grade_id,
      n <= p_students * 4 / 5,
      case when n > p_students * 4 / 5 then make_date(v_year, 7, 31) end,
      v_given[1 + n * 17 % 37] || ' ' || v_family[1 + (n * 13 + n / 48) % 29],
      '+44 20 7946 ' || lpad((n % 1000)::text, 4, '0'),
      format('parent%s@bench.example', n),
      format('%s School Lane', n)
    from generate_series(1, p_students) n
    left join class c on c.id = 1 + (n - 1) % 24 and n <= p_students * 4 / 5
    order by n;
  insert into counter (name, value) values ('admission_number', p_students);
  insert into enrollment (student_id, class_id, academic_year_id, starts_on, ends_on, status)
    select s.id, c.id, c.academic_year_id, make_date(v_year - 1, 8, 1), make_date(v_year, 7, 31), 'completed'
    from student s
    join class c on c.id = 25 + (s.id - 1) % 24;
  insert into enrollment (student_id, class_id, academic_year_id, starts_on, status)
    select s.id, c.id, c.academic_year_id, make_date(v_year, 8, 1), 'active'
    from student s
    join class c on c.id = s.class_id;
  -- Attendance of class 1 for a year of 190 school days.
  insert into attendance (student_id, class_id, date, status, marked_by, marked_by_name)
    select
      s.id,
      s.class_id,
      d.date,
      coalesce((array['absent', 'late'])[1 + (s.id * 7 + d.n * 13) % 30], 'present'),
      1,
      'Ada Admin'
    from (
      select day::date as date, row_number() over (order by day) as n
      from generate_series(
        make_date(v_year, 8, 15)::timestamp, make_date(v_year + 1, 7, 31), interval '1 day') day
      where extract(isodow from day) < 6
      limit 190
    ) d
    join student s on s.class_id = 1
    order by d.date, s.id;
  insert into attendance_day (date, class_id, present, absent, late)
    select
      date,
      class_id,
      count(*) filter (where status = 'present'),
      count(*) filter (where status = 'absent'),
      count(*) filter (where status = 'late')
    from attendance
    group by date, class_id;
  insert into attendance_total (class_id, marks, attended)
    select class_id, sum(present + absent + late), sum(present + late)
    from attendance_day
    group by class_id;
  -- Seven lessons on each of seven days. The first user, who makes the requests, is the first teacher.
  insert into subject (name, code) select 'Subject ' || n, 'S' || n from generate_series(1, 10) n;
  update timetable_config set working_days = '{1,2,3,4,5,6,7}', lunch_start_period = 5;
  update teacher set user_id = 1 where id = 1;
  insert into timetable_slot (class_id, academic_year_id, subject_id, teacher_id, day_of_week, period)
    select c.id, c.academic_year_id, 1 + (c.id + period * 3 + day) % 10, 1 + (c.id + period * 5 + day) % 40, day, period
    from class c
    join academic_year y on y.id = c.academic_year_id and y.is_current
    cross join generate_series(1, 7) day
    cross join generate_series(1, 8) period
    where period <> 5;
  -- One fee per student. Its id equals the id of the student.
  insert into fee_structure (name, academic_year_id) select 'Fees', id from academic_year where is_current;
  insert into student_fee (student_id, fee_structure_id, amount, due_date)
    select n, 1, 1000, make_date(v_year + 1, 7, 31)
    from generate_series(1, p_students) n;
  -- All students in a class ride a bus, 40 per route. Each route has a bus, a driver and eight stops; every second one
  -- also has an assignment.
  insert into bus (registration_number, capacity, insurance_expires_on, fitness_expires_on)
    select 'BUS ' || n, 50, (now() + n * interval '10 days')::date, (now() + n * interval '7 days')::date
    from generate_series(1, v_routes) n;
  insert into driver (name, phone, license_number, license_expires_on)
    select
      v_given[1 + n * 7 % 37] || ' ' || v_family[1 + n * 5 % 29],
      '+44 20 7946 ' || lpad(n::text, 4, '0'),
      'LIC ' || n,
      (now() + n * interval '9 days')::date
    from generate_series(1, v_routes) n;
  insert into route (name, code, distance_km, bus_id, driver_id)
    select 'Route ' || lpad(n::text, 3, '0'), 'R' || n, n % 20, n, n
    from generate_series(1, v_routes) n;
  insert into stop (route_id, name, sequence, pickup_time, drop_time)
    select
      r,
      format('Stop %s of %s', n, r),
      n,
      time '07:00' + n * interval '5 minutes',
      time '16:00' - n * interval '5 minutes'
    from generate_series(1, v_routes) r
    cross join generate_series(1, 8) n
    order by r, n;
  insert into bus_assignment (bus_id, route_id, driver_id, starts_on)
    select n, n, n, make_date(v_year, 8, 1)
    from generate_series(1, v_routes, 2) n;
  insert into transport_enrollment (student_id, route_id, stop_id, enrollment_type)
    select
      n,
      1 + n % v_routes,
      1 + n % v_routes * 8 + n / v_routes % 8,
      (array['both', 'both', 'pickup', 'drop'])[1 + n % 4]
    from generate_series(1, p_students * 4 / 5) n;
  update school_usage set
    students = (select count(*) from student where is_active and deleted_at is null),
    teachers = (select count(*) from teacher where is_active and deleted_at is null),
    classes = (select count(*) from class);
  perform core.enforce_plan_limits();
  perform set_config('session_replication_role', 'origin', true);
end $$;

-- Creates a school with p_invoices invoices of two items each, one every 25 minutes up to now.
create function pg_temp.bench_school_of_invoices(p_students integer, p_invoices integer, p_hash text) returns void
  language plpgsql as $$
begin
  perform pg_temp.bench_school(0, p_students, p_hash);
  update platform.tenant set subdomain = 'invoices' where subdomain = 'school-0';
  perform set_config('session_replication_role', 'replica', true);
  insert into invoice (student_id, class_id, due_date, created_at, issued_at, invoice_number, amount, status,
      created_by)
    select
      s.id,
      s.class_id,
      at::date + 30,
      at,
      at,
      format('INV-%s-%s', extract(year from at), lpad(n::text, 6, '0')),
      150,
      'sent',
      1
    from generate_series(1, p_invoices) n
    join student s on s.id = 1 + n * 7 % p_students
    cross join lateral (select now() - (p_invoices - n) * interval '25 minutes') moment (at);
  insert into invoice_item (invoice_id, student_id, description, amount, quantity, line_total)
    select i.id, i.student_id, d.description, 50, d.quantity, 50 * d.quantity
    from invoice i
    cross join (
      values ('School trip to the museum', 2), ('Materials for the laboratory', 1)
    ) d (description, quantity);
  perform set_config('session_replication_role', 'origin', true);
end $$;
