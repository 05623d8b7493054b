-- /api/students/import, /api/teachers/import: many people from one file, all of them or none; and the files to fill in.
-- The facade reads the file and validates each row as the single create does; here stands what only the database knows.
-- Both take {dry_run, columns, header, rows, errors, count}: the line of the header, the fitting values of each row with its line
-- (`row`), the faults found so far ({row, column, message}; without a row, of the file as a whole), the number of all rows.

select core.define_operation('imports_students', p_permission => 'student.create', p_idempotent => true,
  p_errors => '{plan_limit_reached,conflict,invalid_reference}');
select core.define_operation('imports_students_template', p_permission => 'student.create');
select core.define_operation('imports_teachers', p_permission => 'teacher.create', p_idempotent => true,
  p_errors => '{plan_limit_reached,conflict,invalid_reference}');
select core.define_operation('imports_teachers_template', p_permission => 'teacher.create');

create type api.import_fault as (row_number integer, field text, message text);
comment on type api.import_fault is 'What is wrong with a row of an imported file; without a field with all of it, without a number with the file.';

-- A dry run can change nothing from here on. Else nobody writes the table until the end, so that what is checked stays true.
create function api.import_begin(p_table text, p_is_dry boolean) returns void language plpgsql as $$
begin
  if p_is_dry then
    perform set_config('transaction_read_only', 'on', true);
  else
    execute format('lock table %I in share row exclusive mode', p_table);
  end if;
end $$;
comment on function api.import_begin is 'Makes the transaction of a dry run read-only; that of an import the only one that writes the table.';

-- Rows whose value of a column stands in an earlier row too, or is in use already.
create function api.import_repeated(p_rows jsonb, p_column text, p_in_use text[]) returns setof api.import_fault language sql stable as $$
  select row_number, p_column, case when first < row_number then format('Line %s has this %s too.', first, replace(p_column, '_', ' '))
                                    else format('This %s is already in use.', replace(p_column, '_', ' ')) end
  from (
    select (r ->> 'row')::integer as row_number, r ->> p_column as value, min((r ->> 'row')::integer) over (partition by r ->> p_column) as first
    from jsonb_array_elements(p_rows) r where r ->> p_column is not null
  ) given
  where first < row_number or value in (select unnest(p_in_use));
$$;
comment on function api.import_repeated is 'The rows of a file whose value of a column is not theirs alone.';

-- Rows that ask for a log-in and can't have one: without an e-mail, or with one that is a log-in already.
create function api.import_login_faults(p_rows jsonb) returns setof api.import_fault language sql stable as $$
  select (r ->> 'row')::integer, 'email', 'is required when create_user_account is true'
    from jsonb_array_elements(p_rows) r where (r ->> 'create_user_account')::boolean and r ->> 'email' is null
  union all
  select * from api.import_repeated(
    (select coalesce(jsonb_agg(r), '[]') from jsonb_array_elements(p_rows) r where (r ->> 'create_user_account')::boolean), 'email',
    array(select email from user_account where deleted_at is null));
$$;
comment on function api.import_login_faults is 'The rows of a file that ask for a log-in and can''t have one.';

-- The fault of a file that has more active people than the plan allows; in a dry run, since core.usage_count tells it else.
create function api.import_plan_faults(p_rows jsonb, p_kind text) returns setof api.import_fault language sql stable as $$
  select null::integer, null, format('The plan %s allows %s active %s. The school has %s, this file %s more.', plan, allowed, p_kind, used, active)
  from (select count(*) as active from jsonb_array_elements(p_rows) r where coalesce((r ->> 'is_active')::boolean, true)) file,
       (select s #>> '{plan,name}' as plan, (s #>> array['usage', p_kind, 'limit'])::integer as allowed, (s #>> array['usage', p_kind, 'used'])::integer as used
        from core.subscription_status() s) school
  where active > 0 and used + active > allowed;
$$;
comment on function api.import_plan_faults is 'The fault of a file that has more active people than the plan allows.';

-- The report of a file with these faults besides those of the facade, which come first where both found one in a field. Raises
-- validation_error with every fault, unless it is a dry run.
create function api.import_report(p jsonb, p_faults api.import_fault[], p_ids bigint[] default null) returns json language plpgsql stable as $$
declare
  v_columns text[] := array(select jsonb_array_elements_text(p -> 'columns'));
  v_errors json;
  v_details json;
  v_count integer;
  v_valid integer;
begin
  select json_agg(json_build_object('row', row_number, 'column', field, 'message', message) order by row_number nulls first, place),
         json_agg(json_build_object('path', coalesce('rows.' || row_number || coalesce('.' || field, ''), 'file'), 'message', message) order by row_number nulls first, place),
         count(*), case when bool_or(row_number = (p ->> 'header')::integer) then 0 else (p ->> 'count')::integer - count(distinct row_number) end
    into v_errors, v_details, v_count, v_valid
    from (
      select distinct on (row_number, field) row_number, field, message, array_position(v_columns, field) as place
      from (
        select true as is_first, (e ->> 'row')::integer as row_number, e ->> 'column' as field, e ->> 'message' as message from jsonb_array_elements(p -> 'errors') e
        union all select false, * from unnest(p_faults)
      ) f
      order by row_number, field, is_first desc
    ) faults;
  if v_count > 0 and not (p ->> 'dry_run')::boolean then
    perform core.fail('validation_error', format('Nothing was imported: %s in %s rows.', case v_count when 1 then '1 fault' else v_count || ' faults' end, p ->> 'count'), v_details);
  end if;
  return json_build_object('dry_run', (p ->> 'dry_run')::boolean, 'rows', (p ->> 'count')::integer, 'valid', v_valid, 'created', coalesce(cardinality(p_ids), 0),
    'errors', coalesce(v_errors, '[]'), 'ids', coalesce(p_ids, '{}'));
end $$;
comment on function api.import_report is 'The report of an import; validation_error when it was no dry run and something is wrong.';

-- The log-ins that rows ask for, with the system role of that name and their invitations: {line: user_id}. Forbidden when the
-- role gives more than whoever asks has.
create function api.import_logins(p_rows jsonb, p_role text) returns jsonb language plpgsql as $$
declare
  v_users jsonb;
begin
  with asked as (
    select r.* from jsonb_to_recordset(p_rows) r ("row" integer, email text, first_name text, last_name text, phone text, create_user_account boolean)
    where r.create_user_account
  ), made as (
    insert into user_account (email, first_name, last_name, phone) select email, first_name, last_name, phone from asked order by email returning id, email
  )
  select coalesce(jsonb_object_agg(a."row", m.id), '{}') into v_users from made m join asked a using (email);
  insert into user_role (user_id, role_id) select u.value::bigint, r.id from jsonb_each_text(v_users) u, role r where r.is_system and r.name = p_role;
  perform core.enqueue_all('send_email', array(select jsonb_build_object('user_id', u.value::bigint, 'kind', 'invitation') from jsonb_each_text(v_users) u));
  perform api.require_no_more_than_own(u.value::bigint) from jsonb_each_text(v_users) u limit 1;
  return v_users;
end $$;
comment on function api.import_logins is 'The log-ins that the rows of a file ask for, by line.';

-- Inserts rows into a table, in their order; answers the new ids.
create function api.import_insert(p_table text, p_columns text[], p_rows jsonb) returns bigint[] language plpgsql as $$
declare
  v_columns text := (select string_agg(quote_ident(c), ', ') from unnest(p_columns) c);
  v_ids bigint[];
begin
  execute format('with made as (insert into %1$I (%2$s) select %2$s from jsonb_populate_recordset(null::%1$I, $1) returning id) select array_agg(id order by id) from made',
    p_table, v_columns) into v_ids using p_rows;
  return v_ids;
end $$;
comment on function api.import_insert is 'Inserts many rows into a table; answers their ids.';

-- The school's next admission numbers, without those that students or the file have. The counter is locked before.
create function api.admission_numbers_next(p_count integer, p_given text[]) returns text[] language plpgsql as $$
declare
  v_from bigint := (select value from counter where name = 'admission_number');
  v_numbers text[];
begin
  v_numbers := array(
    select number
    from (select i, lpad(i::text, greatest(6, length(i::text)), '0') as number
          from generate_series(v_from + 1, v_from + p_count + cardinality(p_given) + (select count(*) from student where deleted_at is null)) i) next
    where number not in (select unnest(p_given)) and number not in (select admission_number from student where deleted_at is null)
    order by i limit p_count);
  update counter set value = v_numbers[p_count]::bigint where name = 'admission_number' and p_count > 0;
  return v_numbers;
end $$;
comment on function api.admission_numbers_next is 'The next admission numbers of this school, for many students at once.';

-- What the rows call by name (class, of the current academic year; grade; religion) or by id: the ids of each row, and the faults
-- where there is none of that name, more than one, no such id, no room in the class, or a class of another grade.
create function api.import_placement(p_rows jsonb, out placed jsonb, out faults api.import_fault[]) language sql stable as $$
  with wanted (row_number, kind, name, id) as (
    select r."row", w.*
    from jsonb_to_recordset(p_rows) r ("row" integer, class text, class_id bigint, grade text, grade_id bigint, religion text, religion_id bigint)
    cross join lateral (values ('class', r.class, r.class_id), ('grade', r.grade, r.grade_id), ('religion', r.religion, r.religion_id)) w (kind, name, id)
    where w.name is not null or w.id is not null
  ), known (kind, id, name, grade_id, room) as (
    select 'class', c.id, case when y.is_current then lower(api.class_name(c.name, c.section)) end, c.grade_id,
        c.capacity - (select count(*) from student s where s.class_id = c.id and s.deleted_at is null)
      from class c join academic_year y on y.id = c.academic_year_id
    union all select 'grade', id, lower(name), null, null from grade
    union all select 'religion', id, lower(name), null, null from religion
  ), meant as (
    select w.kind, w.name, w.rows, case when w.name is null then w.kind || '_id' else w.kind end as field, coalesce(w.name, w.id::text) as called,
      count(k.id) as matches, min(k.id) as id, min(k.grade_id) as grade_id, min(k.room) as room
    from (select kind, name, id, array_agg(row_number) as rows from wanted group by kind, name, id) w
    left join known k on k.kind = w.kind and (w.name is null or k.name = lower(w.name)) and (w.id is null or k.id = w.id)
    group by w.kind, w.name, w.id, w.rows
  ), found as (
    select row_number, kind, field, called, id, grade_id, room, row_number() over (partition by kind, id order by row_number) as place
    from meant, unnest(rows) row_number where matches = 1
  ), fault as (
    select row_number, field, case
        when matches > 1 then format('There are %s classes called %s. Say which by class_id.', matches, called)
        else format('There is no %s %s%s.', kind, called, case when field = 'class' then ' in the current academic year' else '' end) end
      from meant, unnest(rows) row_number where matches <> 1
    union all
    select row_number, field, format('The class %s has room for %s more.', called, greatest(room, 0)) from found where kind = 'class' and place > room
    union all
    select row_number, max(field) filter (where kind = 'grade'), 'The class belongs to another grade.' from found group by row_number
      having max(grade_id) filter (where kind = 'class') <> max(id) filter (where kind = 'grade')
  )
  select
    (select coalesce(jsonb_object_agg(row_number, ids), '{}') from (select row_number, jsonb_object_agg(kind || '_id', id) as ids from found group by row_number) f),
    (select array_agg(fault::api.import_fault) from fault);
$$;
comment on function api.import_placement is 'The classes, grades and religions that the rows of a file name.';

-- Students. Answers {dry_run, rows, valid, created, errors, ids}; raises validation_error with every fault, plan_limit_reached.
create function api.imports_students(p jsonb) returns json language plpgsql as $$
declare
  v_rows jsonb := p -> 'rows';
  v_is_dry boolean := (p ->> 'dry_run')::boolean;
  v_given text[] := array(select r ->> 'admission_number' from jsonb_array_elements(p -> 'rows') r where r ->> 'admission_number' is not null);
  v_place record;
  v_report json;
  v_numbers text[];
  v_logins jsonb;
  v_ids bigint[];
begin
  if not v_is_dry then
    -- First, as the single create does, else the two could wait for each other.
    insert into counter as c (name, value) values ('admission_number', 0) on conflict (name) do update set value = c.value;
  end if;
  perform api.import_begin('student', v_is_dry);
  select placed, faults into v_place from api.import_placement(v_rows);
  v_report := api.import_report(p, v_place.faults
    || array(select f from api.import_repeated(v_rows, 'admission_number', array(select admission_number from student where deleted_at is null)) f)
    || array(select f from api.import_login_faults(v_rows) f)
    || case when v_is_dry then array(select f from api.import_plan_faults(v_rows, 'students') f) end);
  if v_is_dry then
    return v_report;
  end if;
  v_logins := api.import_logins(v_rows, 'student');
  v_numbers := api.admission_numbers_next(jsonb_array_length(v_rows) - cardinality(v_given), v_given);
  select api.import_insert('student', (select writable from core.record where name = 'student'), jsonb_agg(
      jsonb_build_object('is_active', true, 'admission_number', v_numbers[unnumbered]) || value || coalesce(v_place.placed -> (value ->> 'row'), '{}')
      || jsonb_build_object('user_id', v_logins -> (value ->> 'row')) order by n))
    into v_ids
    from (select value, n, count(*) filter (where value ->> 'admission_number' is null) over (order by n) as unnumbered
          from jsonb_array_elements(v_rows) with ordinality r (value, n)) r;
  perform core.usage_count();
  perform api.notify_accounts(array(select value::bigint from jsonb_each_text(v_logins)));
  return api.import_report(p, '{}', v_ids);
end $$;

-- Teachers; the same.
create function api.imports_teachers(p jsonb) returns json language plpgsql as $$
declare
  v_rows jsonb := p -> 'rows';
  v_is_dry boolean := (p ->> 'dry_run')::boolean;
  v_report json;
  v_logins jsonb;
  v_ids bigint[];
begin
  perform api.import_begin('teacher', v_is_dry);
  v_report := api.import_report(p,
    array(select f from api.import_repeated(v_rows, 'employee_number', array(select employee_number from teacher where deleted_at is null)) f)
    || array(select f from api.import_login_faults(v_rows) f)
    || case when v_is_dry then array(select f from api.import_plan_faults(v_rows, 'teachers') f) end);
  if v_is_dry then
    return v_report;
  end if;
  v_logins := api.import_logins(v_rows, 'teacher');
  select api.import_insert('teacher', (select writable from core.record where name = 'teacher'), jsonb_agg(
      '{"is_active": true}' || value || jsonb_build_object('user_id', v_logins -> (value ->> 'row')) order by n))
    into v_ids from jsonb_array_elements(v_rows) with ordinality r (value, n);
  perform core.usage_count();
  perform api.notify_accounts(array(select value::bigint from jsonb_each_text(v_logins)));
  return api.import_report(p, '{}', v_ids);
end $$;

-- The names that a file of students may use: {class, grade, religion}, classes of the current academic year.
create function api.imports_students_template(p jsonb) returns json language sql stable as $$
  select json_build_object(
    'class', array(select api.class_name(c.name, c.section) from class c join academic_year y on y.id = c.academic_year_id and y.is_current
                   left join grade g on g.id = c.grade_id order by g.sequence, platform.search_normal(c.name), platform.search_normal(c.section), c.id),
    'grade', array(select name from grade order by sequence, platform.search_normal(name), id),
    'religion', array(select name from religion order by sequence, platform.search_normal(name), id));
$$;

-- The names that a file of teachers may use: none so far.
create function api.imports_teachers_template(p jsonb) returns json language sql stable as $$
  select '{}'::json;
$$;
