-- The demo school: 600 students, 40 teachers, 24 classes, 10 subjects, 34 rooms, two academic years with their terms.
-- Runs once, in one transaction.
do $demo$
declare
  v_id bigint;
  v_admin_id bigint;
  v_fees bigint;
  v_hash text := current_setting('demo.password_hash');
  v_year integer := extract(year from now() - interval '7 months');
  v_given text[] := array[
    'Amina', 'Noor', 'Zoë', 'Łukasz', 'José', 'María', 'Søren', 'Åsa', 'Björn', 'Chloé', 'François', 'Inês', 'João',
    'Müge', 'Çağla', 'Dvořák', 'Yuki', 'Haruto', 'Mei', 'Wei', 'Ananya', 'Arjun', 'Priya', 'Ravi', 'Fatima', 'Omar',
    'Layla', 'Yusuf', 'Chidi', 'Ngozi', 'Kwame', 'Ama', 'Olena', 'Dmytro', 'Александр', 'Мария', 'Νίκος', 'Ελένη',
    'Siân', 'Rhys', 'Aoife', 'Seán', 'Nguyễn', 'Linh', 'Emma', 'Noah', 'Olivia', 'Liam'];
  v_family text[] := array[
    'Okafor', 'Haddad', 'Núñez', 'Kowalski', 'García', 'O''Brien', 'Jensen', 'Öberg', 'Müller', 'Lefèvre', 'Ferreira',
    'Yılmaz', 'Tanaka', 'Suzuki', 'Li', 'Chen', 'Sharma', 'Patel', 'Khan', 'Hassan', 'Mensah', 'Owusu', 'Shevchenko',
    'Иванов', 'Παπαδόπουλος', 'Davies', 'Murphy', 'Trần', 'Smith', 'Jones', 'Brown', 'Nkosi'];
begin
  insert into platform.tenant (name, subdomain, contact_email, plan_id, is_setup_complete, time_zone)
    select 'Demo School', 'demo', 'admin@demo.example', id, true, 'Europe/London'
    from platform.plan
    where name = 'Premium'
    returning id into v_id;
  insert into platform.subscription (tenant_id, plan_id, status, current_period_end)
    select id, plan_id, 'active', now() + interval '10 years'
    from platform.tenant
    where id = v_id;
  perform core.tenant_provision(v_id, jsonb_build_object(
    'email', 'admin@demo.example', 'password_hash', v_hash, 'first_name', 'Ada', 'last_name', 'Admin'));
  perform
    set_config('search_path', format('tenant_%s, public', v_id), true),
    set_config('app.tenant_id', v_id::text, true),
    set_config('app.scope', 'all', true);
  v_admin_id := (select id from user_account where email = 'admin@demo.example');

  insert into user_account (email, password_hash, first_name, last_name, email_verified_at)
    values ('teacher@demo.example', v_hash, 'Teo', 'Teacher', now());
  insert into user_role
    select u.id, r.id
    from user_account u
    cross join role r
    where u.email = 'teacher@demo.example' and r.name = 'teacher';

  insert into academic_year (name, start_date, end_date, is_current) values
    (format('%s/%s', v_year - 1, v_year), make_date(v_year - 1, 8, 1), make_date(v_year, 7, 31), false),
    (format('%s/%s', v_year, v_year + 1), make_date(v_year, 8, 1), make_date(v_year + 1, 7, 31), true);
  insert into grade (name, sequence) select 'Grade ' || n, n from generate_series(1, 12) n;
  insert into teacher (user_id, first_name, last_name, email, employee_number, specialization, joined_on)
    select
      case when n = 1 then (select id from user_account where email = 'teacher@demo.example') end,
      case when n = 1 then 'Teo' else v_given[1 + (n * 7) % array_length(v_given, 1)] end,
      case when n = 1 then 'Teacher' else v_family[1 + (n * 5) % array_length(v_family, 1)] end,
      case when n = 1 then 'teacher@demo.example' else format('teacher%s@demo.example', n) end,
      'T' || lpad(n::text, 3, '0'),
      (array['Mathematics', 'English', 'Science', 'History', 'Art', 'Music', 'Sport', 'Geography'])[1 + n % 8],
      make_date(v_year - n % 12, 8, 1)
    from generate_series(1, 40) n;
  insert into class (name, section, grade_id, academic_year_id, class_teacher_id, capacity, room)
    select
      g.name, s.section, g.id, y.id,
      case when y.is_current then (
        select id from teacher order by id offset (g.sequence - 1) * 2 + ascii(s.section) - 65 limit 1
      ) end,
      30,
      format('R%s%s', g.sequence, s.section)
    from academic_year y
    cross join grade g
    cross join (values ('A'), ('B')) s (section)
    order by y.start_date, g.sequence, s.section;
  insert into student (admission_number, roll_number, first_name, last_name, date_of_birth, gender, class_id,
      parent_name, parent_phone, parent_email, address)
    select
      lpad(n::text, 6, '0'),
      (1 + (n - 1) / 24)::text,
      v_given[1 + (n * 11) % array_length(v_given, 1)],
      family_name,
      make_date(v_year - 5 - (c.position - 1)::integer / 2, 1 + n % 12, 1 + n % 28),
      (array['female', 'male', 'female', 'male', 'other'])[1 + n % 5],
      c.id,
      v_given[1 + (n * 17) % array_length(v_given, 1)] || ' ' || family_name,
      '+44 20 7946 ' || lpad((n % 1000)::text, 4, '0'),
      format('parent%s@demo.example', n),
      format('%s School Lane', n)
    from generate_series(1, 600) n
    cross join lateral (select v_family[1 + (n * 13 + n / 48) % array_length(v_family, 1)]) f (family_name)
    join (
      select c.id, row_number() over (order by c.id) as position
      from class c
      join academic_year y on y.id = c.academic_year_id and y.is_current
    ) c on c.position = 1 + (n - 1) % 24;
  insert into counter (name, value) values ('admission_number', 600);
  -- The students were enrolled at the start of the year. Most were in the grade below in the previous year.
  update enrollment set starts_on = make_date(v_year, 8, 1);
  insert into enrollment (student_id, class_id, academic_year_id, starts_on, ends_on, status)
    select
      s.id, earlier.id, earlier.academic_year_id, make_date(v_year - 1, 8, 1), make_date(v_year, 7, 31), 'completed'
    from student s
    join class now on now.id = s.class_id
    join grade g on g.id = now.grade_id
    join grade below on below.sequence = g.sequence - 1
    join class earlier on earlier.grade_id = below.id
      and earlier.section = now.section
      and earlier.academic_year_id <> now.academic_year_id;

  insert into user_account (email, password_hash, first_name, last_name, email_verified_at)
    select 'student@demo.example', v_hash, first_name, last_name, now()
    from student
    order by id
    limit 1;
  insert into user_role
    select u.id, r.id
    from user_account u
    cross join role r
    where u.email = 'student@demo.example' and r.name = 'student';
  update student
    set
      user_id = (select id from user_account where email = 'student@demo.example'),
      email = 'student@demo.example'
    where id = (select min(id) from student);

  insert into school (address, phone, email, website, currency, payment_details)
    values (
      '1 School Lane, London', '+44 20 7946 0000', 'office@demo.example', 'https://demo.example', 'GBP',
      e'Demo School, Bank of Examples\nIBAN GB33 BUKB 2020 1555 5555 55'
    );
  insert into term (name, academic_year_id, start_date, end_date)
    select
      t.name,
      y.id,
      make_date(first_year + t.years, t.start_month, 1),
      (make_date(first_year + t.years, t.end_month, 1) + interval '1 month - 1 day')::date
    from academic_year y
    cross join lateral (select extract(year from y.start_date)::integer) f (first_year)
    cross join (
      values ('Autumn', 0, 8, 12), ('Spring', 1, 1, 3), ('Summer', 1, 4, 7)
    ) t (name, years, start_month, end_month);
  insert into school_unit (name, sequence) values ('Primary', 1), ('Secondary', 2);
  insert into medium (name, sequence) values ('English', 1), ('French', 2);
  insert into programme (name, sequence) values ('General', 1), ('Science', 2), ('Arts', 3);
  insert into religion (name) values
    ('Buddhism'), ('Christianity'), ('Hinduism'), ('Islam'), ('Judaism'), ('Sikhism'), ('None');
  insert into subject_context (name, sequence) values ('Core', 1), ('Language', 2), ('Creative', 3), ('Physical', 4);
  insert into subject (name, code, subject_context_id)
    select s.name, s.code, c.id
    from (
      values
        ('Mathematics', 'MAT', 'Core'),
        ('English', 'ENG', 'Language'),
        ('Science', 'SCI', 'Core'),
        ('History', 'HIS', 'Core'),
        ('Geography', 'GEO', 'Core'),
        ('French', 'FRE', 'Language'),
        ('Art', 'ART', 'Creative'),
        ('Music', 'MUS', 'Creative'),
        ('Sport', 'SPO', 'Physical'),
        ('Computing', 'COM', 'Core')
    ) s (name, code, context)
    join subject_context c on c.name = s.context
    order by s.code;
  update class c
    set
      school_unit_id = (
        select id from school_unit where name = case when g.sequence <= 6 then 'Primary' else 'Secondary' end
      ),
      medium_id = (select id from medium where name = 'English'),
      programme_id = (select id from programme where name = 'General')
    from grade g
    where g.id = c.grade_id;
  -- Each class has a home room. Some subjects have rooms of their own.
  insert into room (name, capacity, school_unit_id)
    select c.room, 30, c.school_unit_id
    from class c
    join academic_year y on y.id = c.academic_year_id and y.is_current
    order by c.id;
  update class c set home_room_id = r.id from room r where r.name = c.room;
  insert into room (name, capacity, is_shared) values
    ('Lab 1', 30, false), ('Lab 2', 30, false), ('Lab 3', 30, false), ('Computer room 1', 30, false),
    ('Computer room 2', 30, false), ('Studio 1', 30, false), ('Studio 2', 30, false), ('Music room 1', 30, false),
    ('Music room 2', 30, false), ('Sports hall', 120, true);
  insert into subject_room (subject_id, room_id)
    select s.id, r.id
    from (values
      ('SCI', 'Lab %'), ('COM', 'Computer room %'), ('ART', 'Studio %'), ('MUS', 'Music room %'), ('SPO', 'Sports hall')
    ) u (code, rooms)
    join subject s on s.code = u.code
    join room r on r.name like u.rooms;
  insert into grade_subject (grade_id, subject_id, periods_per_week)
    select
      g.id,
      s.id,
      case
        when s.code in ('MAT', 'ENG') then 5
        when s.code = 'SCI' then 4
        when s.code in ('HIS', 'GEO', 'FRE') then 3
        else 2
      end
    from grade g
    cross join subject s
    where s.code <> 'COM' or g.sequence > 4;
  -- Each subject has four teachers, who share the classes of this year. The classes of last year have no teachers.
  insert into class_subject (class_id, subject_id, periods_per_week, teacher_id)
    select c.id, gs.subject_id, gs.periods_per_week, case when y.is_current then t.id end
    from class c
    join academic_year y on y.id = c.academic_year_id
    join grade g on g.id = c.grade_id
    join grade_subject gs on gs.grade_id = c.grade_id
    join (select id, dense_rank() over (order by id) - 1 as position from subject) s on s.id = gs.subject_id
    join (select id, row_number() over (order by id) - 1 as position from teacher) t
      on t.position = s.position * 4 + (g.sequence * 2 + ascii(c.section)) % 4;
  update teacher t set specialization = coalesce(
    (select min(s.name) from class_subject cs join subject s on s.id = cs.subject_id where cs.teacher_id = t.id),
    specialization);
  update timetable_config set start_time = '08:30', lunch_start_period = 5, break_after = '{2}';
  insert into holiday (name, date, is_recurring) values
    ('New Year''s Day', make_date(v_year + 1, 1, 1), true),
    ('Christmas Day', make_date(v_year, 12, 25), true),
    ('Founders'' Day', make_date(v_year, 10, 12), false);

  -- Attendance of the school days in the last four weeks, marked by class teachers with a login, else by the admin. The
  -- class of the demo teacher is not yet marked today.
  insert into attendance (student_id, class_id, date, status, marked_by, marked_by_name, marked_at, created_at)
    select
      s.id,
      s.class_id,
      d.date,
      case when d.chance < 4 then 'absent' when d.chance < 7 then 'late' else 'present' end,
      u.id,
      core.full_name(u.first_name, u.last_name),
      d.at,
      d.at
    from (select (now() at time zone 'Europe/London')::date as date) today
    cross join timetable_config t
    join academic_year y on y.is_current
    cross join lateral generate_series(
      greatest(y.start_date, today.date - 27)::timestamp, least(y.end_date, today.date), interval '1 day') school_day
    join class c on c.academic_year_id = y.id
    left join teacher ct on ct.id = c.class_teacher_id
    join user_account u on u.id = coalesce(ct.user_id, v_admin_id)
    join student s on s.class_id = c.id
    cross join lateral (
      select
        school_day::date as date,
        least(now(), (school_day + interval '8 hours 40 minutes') at time zone 'Europe/London') as at,
        abs(hashint8(s.id * 1000 + extract(doy from school_day)::integer) % 100) as chance
    ) d
    where extract(isodow from school_day) = any (t.working_days)
      and not (d.date = today.date and ct.user_id is not null)
      and d.date not in (select h.date from api.holidays_between(today.date - 27, today.date) h);
  -- Three students who were marked absent turned out to be late.
  update attendance set status = 'late', marked_at = least(now(), marked_at + interval '25 minutes')
    where id in (select id from attendance where status = 'absent' order by date desc, id limit 3);
  -- A third of the absences is excused. One is announced in the class of the demo teacher, from today on.
  update attendance set is_excused = true, note = 'Ill, the parents called'
    where status = 'absent' and id % 3 = 0;
  insert into student_absence (student_id, from_date, to_date, reason, announced_by, announced_by_name)
    select
      s.id, today.date, today.date + 2, 'Wedding in the family', v_admin_id, core.full_name(u.first_name, u.last_name)
    from (select (now() at time zone 'Europe/London')::date as date) today
    join user_account u on u.id = v_admin_id
    join class c on c.class_teacher_id in (select id from teacher where user_id is not null)
    join student s on s.class_id = c.id and s.user_id is null
    order by s.id
    limit 1;
  insert into teacher_leave (teacher_id, leave_type, start_date, end_date, reason, status, decided_at)
    select
      id, 'annual', (now() + interval '20 days')::date, (now() + interval '24 days')::date, 'Family visit',
      'approved', now()
    from teacher
    order by id
    offset 1 limit 1;
  insert into teacher_leave (teacher_id, leave_type, start_date, end_date, reason)
    select id, 'medical', (now() + interval '7 days')::date, (now() + interval '8 days')::date, 'Dentist'
    from teacher
    order by id
    offset 2 limit 1;

  -- The demo student has a sibling, a mother with a login, who sees both, and a father who lives elsewhere. The
  -- contacts of all other students become guardians without a login.
  update student sibling
    set parent_name = s.parent_name, parent_phone = s.parent_phone, parent_email = s.parent_email, address = s.address
    from student s
    where s.email = 'student@demo.example'
      and sibling.id = (
        select min(o.id) from student o where o.last_name = s.last_name and o.id <> s.id and o.class_id <> s.class_id);
  perform api.guardians_from_contacts('{}');
  insert into user_account (email, password_hash, first_name, last_name, email_verified_at)
    select 'guardian@demo.example', v_hash, g.first_name, g.last_name, now()
    from guardian g
    join student s on s.parent_email = g.email
    where s.email = 'student@demo.example';
  insert into user_role
    select u.id, r.id
    from user_account u
    cross join role r
    where u.email = 'guardian@demo.example' and r.name = 'guardian';
  update guardian g
    set user_id = (select id from user_account where email = 'guardian@demo.example')
    from student s
    where s.email = 'student@demo.example' and s.parent_email = g.email;
  update student_guardian
    set relationship = 'mother'
    where guardian_id = (select g.id from guardian g where g.user_id is not null);
  with father as (
    insert into guardian (first_name, last_name, email, phone, address)
      select 'Chidi', last_name, 'father@demo.example', '+44 161 496 0102', '7 Canal Street, Manchester'
      from student
      where email = 'student@demo.example'
      returning id
  )
  insert into student_guardian (student_id, guardian_id, relationship, priority, can_pick_up)
    select s.id, father.id, 'father', 2, false
    from father
    cross join student s
    where s.email = 'student@demo.example';

  -- Fees of the year and of this month, most of them paid, and a few invoices.
  perform
    set_config('app.user_id', v_admin_id::text, true),
    set_config('app.time_zone', 'Europe/London', true);
  -- No emails about fees and payments: a thousand of them would fill the outbox of the demo.
  insert into notification_event (event, channels) values
    ('fee.generated', '{in_app}'),
    ('payment.received', '{in_app}');
  v_fees := (api.fee_structures_create(jsonb_build_object(
    'name', 'School fees',
    'academic_year_id', (select id from academic_year where is_current),
    'components', jsonb_build_array(
      '{"name": "Tuition", "amount": 1250, "frequency": "term"}'::jsonb,
      '{"name": "Books", "amount": 84.5, "frequency": "annual"}'::jsonb,
      '{"name": "Meals", "amount": 66, "frequency": "monthly"}'::jsonb),
    'class_ids', (
      select jsonb_agg(c.id)
      from class c
      join academic_year y on y.id = c.academic_year_id and y.is_current
    ))) ->> 'id')::bigint;
  perform
    api.student_fees_generate(jsonb_build_object('fee_structure_id', v_fees, 'date', start_date)),
    api.student_fees_generate(jsonb_build_object('fee_structure_id', v_fees))
    from academic_year
    where is_current;
  insert into student_fee_discount (student_fee_id, student_id, amount, percent, reason, created_by, created_by_name)
    select
      f.id, f.student_id, api.discount_amount('{"percent": 10}', f.amount, 2), 10, 'Second child of the family',
      v_admin_id, api.user_name()
    from student_fee f
    join student s on s.id = f.student_id
    where s.email = 'student@demo.example'
    order by f.id
    limit 1;
  perform api.record_payment('student_fee', f.id, jsonb_build_object(
      'amount', case when f.id % 5 = 0 then round(f.amount / 2, 2) else f.amount - f.discount_amount end,
      'payment_date', least(core.today(), f.billed_on + (f.id % 25)::integer),
      'payment_method', (array['bank_transfer', 'card', 'cash'])[1 + f.id % 3]))
    from student_fee f
    where f.id % 4 <> 0 and f.student_id % 3 = 1
    order by f.billed_on + (f.id % 25)::integer, f.id;
  perform api.invoices_create(jsonb_build_object(
      'student_id', i.student_id,
      'due_date', core.today() + i.due_in,
      'status', i.status,
      'items', jsonb_build_array(
        jsonb_build_object('description', i.item, 'amount', i.amount, 'quantity', i.quantity))))
    from (
      values
        (1, 14, 'sent', 'Trip to the Natural History Museum', 18.5, 1),
        (1, 7, 'sent', 'School shirt', 12, 3),
        (2, 14, 'sent', 'Violin, hire for a term', 95, 1),
        (3, 21, 'draft', 'Examination fee', 40, 2)
    ) i (student_id, due_in, status, item, amount, quantity);
  perform api.record_payment('invoice', 2, '{"amount": 36, "payment_method": "card"}');
  while core.outbox_write(v_id) > 0 loop
  end loop;
  delete from notification_event;

  -- Three buses, one of them with documents that expire soon. The riders are from all classes and include the demo
  -- student.
  insert into bus (registration_number, capacity, model, insurance_expires_on, fitness_expires_on)
    select b.registration_number, b.capacity, b.model, (now() + b.insurance)::date, (now() + b.fitness)::date
    from (
      values
        ('LX21 ABC', 40, 'Mercedes-Benz Tourismo', interval '200 days', interval '20 days'),
        ('LX19 KLM', 24, 'Iveco Daily', interval '90 days', interval '300 days'),
        ('LX23 RST', 16, 'Ford Transit', interval '150 days', interval '250 days')
    ) b (registration_number, capacity, model, insurance, fitness);
  insert into driver (name, phone, license_number, license_expires_on) values
    ('Grace Appiah', '+44 20 7946 1001', 'APPIA655122G99', (now() + interval '400 days')::date),
    ('Tom Becker', '+44 20 7946 1002', 'BECKE802040T99', (now() + interval '12 days')::date),
    ('Nadia Rahman', '+44 20 7946 1005', 'RAHMA857231N99', (now() + interval '700 days')::date);
  insert into transport_staff (name, phone, role) values
    ('Rosa Lind', '+44 20 7946 1003', 'attendant'),
    ('Femi Ade', '+44 20 7946 1004', 'mechanic');
  insert into route (name, code, start_point, end_point, distance_km, bus_id, driver_id)
    select r.name, r.code, r.start_point, 'Demo School', r.km, b.id, d.id
    from (
      values
        ('North', 'N1', 'Mill Hill', 8.5, 'LX21 ABC', 'Grace Appiah'),
        ('South', 'S1', 'Crystal Palace', 4.2, 'LX19 KLM', 'Tom Becker'),
        ('East', 'E1', 'Stratford', 6, 'LX23 RST', 'Nadia Rahman')
    ) r (name, code, start_point, km, bus, driver)
    join bus b on b.registration_number = r.bus
    join driver d on d.name = r.driver
    order by r.code;
  insert into stop (route_id, name, sequence, pickup_time, drop_time, latitude, longitude)
    select
      r.id,
      s.name,
      s.sequence,
      time '07:20' + s.sequence * interval '10 minutes',
      time '16:20' - s.sequence * interval '10 minutes',
      s.latitude,
      s.longitude
    from route r
    join (
      values
        ('N1', 1, 'Mill Hill Broadway', 51.6131, -0.2492),
        ('N1', 2, 'Hendon Central', 51.5833, -0.2264),
        ('N1', 3, 'Golders Green', 51.5724, -0.1941),
        ('N1', 4, 'Finchley Road', 51.5473, -0.1807),
        ('S1', 1, 'Crystal Palace', 51.4181, -0.0727),
        ('S1', 2, 'Gipsy Hill', 51.4245, -0.0838),
        ('S1', 3, 'Herne Hill', 51.4533, -0.1022),
        ('S1', 4, 'Camberwell Green', 51.4741, -0.0929),
        ('E1', 1, 'Stratford', 51.5416, -0.0042),
        ('E1', 2, 'Bow Church', 51.5277, -0.0208),
        ('E1', 3, 'Mile End', 51.5252, -0.0332),
        ('E1', 4, 'Whitechapel', 51.5194, -0.0612)
    ) s (code, sequence, name, latitude, longitude) on s.code = r.code
    order by r.code, s.sequence;
  insert into bus_assignment (bus_id, route_id, driver_id, staff_id, starts_on)
    select r.bus_id, r.id, r.driver_id, st.id, (now() - interval '20 days')::date
    from route r
    cross join transport_staff st
    where r.code = 'N1' and st.name = 'Rosa Lind';
  insert into transport_enrollment (student_id, route_id, stop_id, enrollment_type)
    select s.id, r.id, stop.id, case when s.n % 5 = 4 then 'pickup' else 'both' end
    from (
      select id, row_number() over (order by id) - 1 as n
      from student
      where id % 13 = (select min(id) from student) % 13
    ) s
    join route r on r.code = (array['N1', 'N1', 'S1', 'N1', 'E1', 'S1'])[1 + s.n % 6]
    join stop on stop.route_id = r.id and stop.sequence = 1 + s.n / 6 % 4
    order by s.id;
  -- One student will leave.
  update student
    set left_on = core.today() + 21, leaving_reason = 'Moves to Leeds'
    where id = (select max(id) from student);
  insert into route_exception (route_id, date, kind, reason)
    select id, (date_trunc('week', now()) + interval '8 days')::date, 'cancelled', 'Nadia is at a training'
    from route
    where code = 'E1';
  perform
    api.transport_fee_plans_create(
      '{"name": "Bus, up to 5 km", "max_km": 5, "amount": 35, "frequency": "monthly"}'),
    api.transport_fee_plans_create(
      '{"name": "Bus, from 5 km on", "min_km": 5, "amount": 50, "frequency": "monthly"}');
  perform set_config('app.user_id', '', true);
  perform core.enforce_plan_limits();
end $demo$;
