-- A believable school: 600 students, 40 teachers, 24 classes, two academic years. Runs in one transaction, once.
do $demo$
declare
  v_id bigint;
  v_hash text := current_setting('demo.password_hash');
  v_year integer := extract(year from now() - interval '7 months');
  v_given text[] := array['Amina','Noor','Zoë','Łukasz','José','María','Søren','Åsa','Björn','Chloé','François','Inês','João','Müge','Çağla','Dvořák',
    'Yuki','Haruto','Mei','Wei','Ananya','Arjun','Priya','Ravi','Fatima','Omar','Layla','Yusuf','Chidi','Ngozi','Kwame','Ama','Olena','Dmytro','Александр',
    'Мария','Νίκος','Ελένη','Siân','Rhys','Aoife','Seán','Nguyễn','Linh','Emma','Noah','Olivia','Liam'];
  v_family text[] := array['Okafor','Haddad','Núñez','Kowalski','García','O''Brien','Jensen','Öberg','Müller','Lefèvre','Ferreira','Yılmaz','Tanaka','Suzuki',
    'Li','Chen','Sharma','Patel','Khan','Hassan','Mensah','Owusu','Shevchenko','Иванов','Παπαδόπουλος','Davies','Murphy','Trần','Smith','Jones','Brown','Nkosi'];
begin
  insert into platform.tenant (name, subdomain, contact_email, plan_id, is_setup_complete, time_zone)
    values ('Demo School', 'demo', 'admin@demo.example', (select id from platform.plan where name = 'Premium'), true, 'Europe/London')
    returning id into v_id;
  insert into platform.subscription (tenant_id, plan_id, status, current_period_end)
    select id, plan_id, 'active', now() + interval '1 month' from platform.tenant where id = v_id;
  perform core.tenant_provision(v_id, jsonb_build_object('email', 'admin@demo.example', 'password_hash', v_hash, 'first_name', 'Ada', 'last_name', 'Admin'));
  perform set_config('search_path', format('tenant_%s, public', v_id), true),
          set_config('app.tenant_id', v_id::text, true), set_config('app.scope', 'all', true);

  insert into user_account (email, password_hash, first_name, last_name, email_verified_at) values ('teacher@demo.example', v_hash, 'Teo', 'Teacher', now());
  insert into user_role select u.id, r.id from user_account u, role r where u.email = 'teacher@demo.example' and r.name = 'teacher';

  insert into academic_year (name, start_date, end_date, is_current) values
    (format('%s/%s', v_year - 1, v_year), make_date(v_year - 1, 8, 1), make_date(v_year, 7, 31), false),
    (format('%s/%s', v_year, v_year + 1), make_date(v_year, 8, 1), make_date(v_year + 1, 7, 31), true);
  insert into term (name, academic_year_id, start_date, end_date)
    select t.name, y.id, y.start_date + t.first, y.start_date + t.last from academic_year y, (values ('Autumn', 31, 140), ('Spring', 157, 238), ('Summer', 255, 350)) t (name, first, last);
  insert into school (address, phone, email, website) values ('1 School Lane, London', '+44 20 7946 0000', 'office@demo.example', 'https://demo.example');
  insert into grade (name, sequence) select 'Grade ' || n, n from generate_series(1, 12) n;
  insert into teacher (user_id, first_name, last_name, email, employee_number, specialization, joined_on)
    select case when n = 1 then (select id from user_account where email = 'teacher@demo.example') end,
           case when n = 1 then 'Teo' else v_given[1 + (n * 7) % array_length(v_given, 1)] end,
           case when n = 1 then 'Teacher' else v_family[1 + (n * 5) % array_length(v_family, 1)] end,
           case when n = 1 then 'teacher@demo.example' else format('teacher%s@demo.example', n) end,
           'T' || lpad(n::text, 3, '0'),
           (array['Mathematics','English','Science','History','Art','Music','Sport','Geography'])[1 + n % 8],
           make_date(v_year - n % 12, 8, 1)
    from generate_series(1, 40) n;
  insert into class (name, section, grade_id, academic_year_id, class_teacher_id, capacity, room)
    select g.name, s.section, g.id, y.id, case when y.is_current then (select id from teacher order by id offset (g.sequence - 1) * 2 + ascii(s.section) - 65 limit 1) end, 30,
           format('R%s%s', g.sequence, s.section)
    from academic_year y, grade g, (values ('A'), ('B')) s (section) order by y.start_date, g.sequence, s.section;
  insert into student (admission_number, roll_number, first_name, last_name, date_of_birth, gender, class_id, parent_name, parent_phone, parent_email, address)
    select lpad(n::text, 6, '0'), (1 + (n - 1) / 24)::text,
           v_given[1 + (n * 11) % array_length(v_given, 1)], v_family[1 + (n * 13 + n / 48) % array_length(v_family, 1)],
           make_date(v_year - 5 - (c.position - 1)::integer / 2, 1 + n % 12, 1 + n % 28), (array['female','male','female','male','other'])[1 + n % 5],
           c.id, v_given[1 + (n * 17) % array_length(v_given, 1)] || ' ' || v_family[1 + (n * 13 + n / 48) % array_length(v_family, 1)],
           '+44 20 7946 ' || lpad((n % 1000)::text, 4, '0'), format('parent%s@demo.example', n), format('%s School Lane', n)
    from generate_series(1, 600) n
    join (select c.id, row_number() over (order by c.id) as position from class c join academic_year y on y.id = c.academic_year_id and y.is_current) c on c.position = 1 + (n - 1) % 24;
  insert into counter (name, value) values ('admission_number', 600);
  -- They were enrolled when the year began, and most of them in the class below the year before.
  update enrollment set starts_on = make_date(v_year, 8, 1);
  insert into enrollment (student_id, class_id, academic_year_id, starts_on, ends_on, status)
    select s.id, earlier.id, earlier.academic_year_id, make_date(v_year - 1, 8, 1), make_date(v_year, 7, 31), 'completed'
    from student s join class now on now.id = s.class_id join grade g on g.id = now.grade_id
    join grade below on below.sequence = g.sequence - 1
    join class earlier on earlier.grade_id = below.id and earlier.section = now.section and earlier.academic_year_id <> now.academic_year_id;
  perform core.usage_count();
end $demo$;
