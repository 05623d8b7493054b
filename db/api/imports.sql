-- /api/students/import, /api/teachers/import: creates all people in a file, or none; and the template files. The facade
-- reads the file and validates each row like a single create. These functions check what needs the database. Both take
-- {dry_run, allow_duplicates, columns, checks, header, rows, errors, count}: `checks` are those of the columns
-- (core.value_faults), `header` is the line number of the header, `rows` the valid values of each row with its line
-- number (`row`), `errors` the errors found so far ({row, column, message}; without a row they are about the whole
-- file), `count` the number of all rows.

select core.define_operation('imports_students', p_permission => 'student.create', p_idempotent => true,
  p_errors => '{plan_limit_reached,conflict,invalid_reference}');
select core.define_operation('imports_students_template', p_permission => 'student.create');
select core.define_operation('imports_teachers', p_permission => 'teacher.create', p_idempotent => true,
  p_errors => '{plan_limit_reached,conflict,invalid_reference}');
select core.define_operation('imports_teachers_template', p_permission => 'teacher.create');

create type api.import_error as (row_number integer, field text, message text);
comment on type api.import_error is
  'An error in an imported file. Without a field it is about the whole row, without a row number about the whole file.';

create function api.import_begin(p_table text, p_is_dry_run boolean) returns void language plpgsql as $$
begin
  if p_is_dry_run then
    perform set_config('transaction_read_only', 'on', true);
  else
    execute format('lock table %I in share row exclusive mode', p_table);
  end if;
end $$;
comment on function api.import_begin is
  'Makes the transaction of a dry run read-only. For an import it locks the table against other writers, so that what '
  'was checked stays true.';

create function api.import_duplicates(p_rows jsonb, p_column text, p_in_use text[]) returns setof api.import_error
  language sql stable as $$
  select
    row_number,
    p_column,
    case
      when first < row_number then format('Line %s has the same %s.', first, replace(p_column, '_', ' '))
      else format('This %s is already in use.', replace(p_column, '_', ' '))
    end
  from (
    select
      (r ->> 'row')::integer as row_number,
      r ->> p_column as value,
      min((r ->> 'row')::integer) over (partition by r ->> p_column) as first
    from jsonb_array_elements(p_rows) r
    where r ->> p_column is not null
  ) numbered
  where first < row_number or value in (select unnest(p_in_use));
$$;
comment on function api.import_duplicates is
  'Errors for the rows whose value in a column is also in an earlier row, or is already in use.';

create function api.import_login_errors(p_rows jsonb) returns setof api.import_error language sql stable as $$
  select (r ->> 'row')::integer, 'email', 'is required when create_user_account is true'
  from jsonb_array_elements(p_rows) r
  where (r ->> 'create_user_account')::boolean and r ->> 'email' is null
  union all
  select *
  from api.import_duplicates(
    (
      select coalesce(jsonb_agg(r), '[]')
      from jsonb_array_elements(p_rows) r
      where (r ->> 'create_user_account')::boolean
    ),
    'email',
    array(select email from user_account where deleted_at is null));
$$;
comment on function api.import_login_errors is
  'Errors for the rows that ask for a user account without an email address, or with one that is already in use.';

create function api.import_plan_errors(p_rows jsonb, p_kind text) returns setof api.import_error
  language sql stable as $$
  select
    null::integer,
    null,
    format('The plan %s allows %s active %s. The school has %s, and this file adds %s.',
      plan, allowed, p_kind, used, active)
  from (
    select count(*) as active
    from jsonb_array_elements(p_rows) r
    where coalesce((r ->> 'is_active')::boolean, true)
  ) file,
  (
    select
      s #>> '{plan,name}' as plan,
      (s #>> array['usage', p_kind, 'limit'])::integer as allowed,
      (s #>> array['usage', p_kind, 'used'])::integer as used
    from core.subscription_status() s
  ) school
  where active > 0 and used + active > allowed;
$$;
comment on function api.import_plan_errors is
  'The error of a file with more active people than the plan allows. Only for a dry run: in an import '
  'core.enforce_plan_limits raises the error.';

create function api.import_checked(p jsonb) returns jsonb language plpgsql stable as $$
declare
  v_rows jsonb := (
    select jsonb_agg(core.with_school_days(r, p -> 'checks') order by n)
    from jsonb_array_elements(p -> 'rows') with ordinality given (r, n));
  v_errors jsonb := (
    select jsonb_agg(jsonb_build_object('row', r -> 'row', 'column', f.path[1], 'message', f.message))
    from jsonb_array_elements(v_rows) r, core.value_faults(r, p -> 'checks') f);
begin
  return p || jsonb_build_object(
    'rows', coalesce(v_rows, '[]'),
    'errors', (p -> 'errors') || coalesce(v_errors, '[]'));
end $$;
comment on function api.import_checked is
  'The parameters of an import with the days of timestamps in its rows, and with an error for each value that a check '
  'of its column refuses.';

create function api.import_name(p_first_name text, p_last_name text) returns text language sql immutable
  return public.search_form(core.name_key(core.full_name(p_first_name, p_last_name)));
comment on function api.import_name is
  'The full name of a row or a person as searches compare it, with one space for each run of white space. Null if a '
  'part is missing.';

create function api.import_namesakes(p_table text, p_rows jsonb) returns jsonb language plpgsql stable as $$
declare
  v_people jsonb;
begin
  -- A write does not read (decision 0063): a warning would tell the birth date and the phone of a person.
  if core.permission_scope(p_table || '.read') is distinct from 'all' then
    return '[]';
  end if;
  execute format($sql$
      select coalesce(jsonb_agg(to_jsonb(p)), '[]')
      from %I p
      where p.deleted_at is null
        and api.import_name(p.first_name, p.last_name) in (
          select api.import_name(r ->> 'first_name', r ->> 'last_name') from jsonb_array_elements($1) r)
    $sql$, p_table)
    into v_people
    using p_rows;
  return v_people;
end $$;
comment on function api.import_namesakes is
  'The people of the school in a table who have the name of a row; none if the user may not read all of them.';

create function api.import_repeats(p_table text, p_rows jsonb) returns setof api.import_error language sql stable as $$
  with person (row_number, person) as (
    select (r ->> 'row')::integer, r from jsonb_array_elements(p_rows) r
    union all
    select null, r from jsonb_array_elements(api.import_namesakes(p_table, p_rows)) r
  ), named as (
    select row_number, person, api.import_name(person ->> 'first_name', person ->> 'last_name') as name from person
  ), trait as (
    select
      p.row_number,
      t.number,
      t.label,
      min(p.row_number) over same as first,
      bool_or(p.row_number is null) over same as is_known
    from named p
    cross join lateral (values
      (1, 'date of birth', p.person ->> 'date_of_birth'),
      (2, 'email', lower(p.person ->> 'email')),
      (3, 'phone', nullif(regexp_replace(p.person ->> 'phone', '\D', '', 'g'), '')),
      (4, 'parent email', lower(p.person ->> 'parent_email')),
      (5, 'parent phone', nullif(regexp_replace(p.person ->> 'parent_phone', '\D', '', 'g'), ''))
    ) t (number, label, value)
    where t.value is not null and p.name is not null
    window same as (partition by p.name, t.number, t.value)
  ), repeat as (
    -- Of several people that a row repeats, one in the school before one in the file.
    select distinct on (row_number, number)
      row_number, number, label, case when not is_known then first end as first
    from trait
    where is_known or first < row_number
  )
  select
    row_number,
    null,
    case
      when first is null then format('The school has a %s with the same name and %s.', p_table, labels)
      else format('Line %s has the same name and %s.', first, labels)
    end
  from (
    select distinct on (row_number) row_number, first, string_agg(label, ' and ' order by number) as labels
    from repeat
    where row_number is not null
    group by row_number, first
    order by row_number, first nulls first
  ) warning;
$$;
comment on function api.import_repeats is
  'Warnings for the rows that repeat an earlier row or a person of the school whom the user may read: the same name, '
  'and the same date of birth, email or phone number (of a student or a parent). Names are compared without case and '
  'accents, phone numbers by their digits.';

create function api.import_list(p_errors api.import_error[], p_columns text[], out list json, out details json)
  language sql immutable as $$
  select
    coalesce(
      json_agg(
        json_build_object('row', row_number, 'column', field, 'message', message)
        order by row_number nulls first, array_position(p_columns, field)),
      '[]'),
    json_agg(
      json_build_object(
        'path', coalesce('rows.' || row_number || coalesce('.' || field, ''), 'file'),
        'message', message)
      order by row_number nulls first, array_position(p_columns, field))
  from unnest(p_errors);
$$;
comment on function api.import_list is
  'Errors or warnings in the order of the file: as a list of a report, and as details of an error (null without any).';

create function api.import_report(
    p jsonb, p_errors api.import_error[], p_warnings api.import_error[], p_ids bigint[] default null) returns json
  language plpgsql stable as $$
declare
  v_columns text[] := array(select jsonb_array_elements_text(p -> 'columns'));
  v_errors json;
  v_warnings json;
  v_details json;
  v_valid integer;
begin
  -- One error per row and field, where those of the facade win.
  p_errors := array(
    select (row_number, field, message)::api.import_error
    from (
      select distinct on (row_number, field) row_number, field, message
      from (
        select
          true as is_of_facade,
          (e ->> 'row')::integer as row_number,
          e ->> 'column' as field,
          e ->> 'message' as message
        from jsonb_array_elements(p -> 'errors') e
        union all
        select false, * from unnest(p_errors)
      ) found
      order by row_number, field, is_of_facade desc
    ) error);
  if not (p ->> 'dry_run')::boolean and p_errors <> '{}' then
    select details into v_details from api.import_list(p_errors, v_columns);
    perform core.fail(
      'validation_error',
      format('Nothing was imported. The file has %s in %s rows.',
        case cardinality(p_errors) when 1 then '1 error' else cardinality(p_errors) || ' errors' end, p ->> 'count'),
      v_details);
  end if;
  select list, details into v_warnings, v_details from api.import_list(p_warnings, v_columns);
  if not (p ->> 'dry_run')::boolean and not (p ->> 'allow_duplicates')::boolean and v_details is not null then
    perform core.fail(
      'conflict',
      format('Nothing was imported. %s. Remove them from the file, or send allow_duplicates=true to import them too.',
        case cardinality(p_warnings)
          when 1 then '1 row repeats a person'
          else cardinality(p_warnings) || ' rows repeat a person'
        end),
      v_details);
  end if;
  select list into v_errors from api.import_list(p_errors, v_columns);
  select
      case
        -- With an error in the header no row is valid.
        when bool_or(row_number = (p ->> 'header')::integer) then 0
        else (p ->> 'count')::integer - count(distinct row_number)
      end
    into v_valid
    from unnest(p_errors);
  return json_build_object(
    'dry_run', (p ->> 'dry_run')::boolean,
    'rows', (p ->> 'count')::integer,
    'valid', v_valid,
    'created', coalesce(cardinality(p_ids), 0),
    'errors', v_errors,
    'warnings', v_warnings,
    'ids', coalesce(p_ids, '{}'));
end $$;
comment on function api.import_report is
  'The report of an import: the errors of the facade and p_errors, and the warnings. If it is no dry run, raises '
  'validation_error with all errors as details or, unless duplicates are allowed, conflict with the warnings.';

create function api.import_logins(p_rows jsonb, p_role text) returns jsonb language plpgsql as $$
declare
  v_users jsonb;
begin
  with requested as (
    select r.*
    from jsonb_to_recordset(p_rows) r (
      "row" integer, email text, first_name text, last_name text, phone text, create_user_account boolean)
    where r.create_user_account
  ), created as (
    insert into user_account (email, first_name, last_name, phone)
      select email, first_name, last_name, phone from requested order by email
      returning id, email
  )
  select coalesce(jsonb_object_agg(w."row", c.id), '{}')
    into v_users
    from created c
    join requested w using (email);
  insert into user_role (user_id, role_id)
    select u.value::bigint, r.id
    from jsonb_each_text(v_users) u, role r
    where r.is_system and r.name = p_role;
  perform core.enqueue_all('send_email', array(
    select jsonb_build_object('user_id', u.value::bigint, 'kind', 'invitation') from jsonb_each_text(v_users) u));
  perform api.require_can_manage_user(u.value::bigint) from jsonb_each_text(v_users) u limit 1;
  return v_users;
end $$;
comment on function api.import_logins is
  'Creates the user accounts that rows ask for, with the system role p_role, and queues their invitations. Returns '
  '{line: user_id}. Raises forbidden if the role has permissions that the current user does not have.';

create function api.import_insert(p_table text, p_columns text[], p_rows jsonb) returns bigint[] language plpgsql as $$
declare
  v_columns text := (select string_agg(quote_ident(c), ', ') from unnest(p_columns) c);
  v_ids bigint[];
begin
  execute format($sql$
      with created as (
        insert into %1$I (%2$s) select %2$s from jsonb_populate_recordset(null::%1$I, $1) returning id
      )
      select array_agg(id order by id) from created
    $sql$, p_table, v_columns)
    into v_ids
    using p_rows;
  return v_ids;
end $$;
comment on function api.import_insert is 'Inserts rows into a table in the given order; returns their ids.';

create function api.admission_numbers_next(p_count integer, p_given text[]) returns text[] language plpgsql as $$
declare
  v_from bigint := (select value from counter where name = 'admission_number');
  v_numbers text[];
begin
  v_numbers := array(
    select number
    from (
      select i, lpad(i::text, greatest(6, length(i::text)), '0') as number
      from generate_series(
        v_from + 1,
        v_from + p_count + cardinality(p_given) + (select count(*) from student where deleted_at is null)) i
    ) next
    where number not in (select unnest(p_given))
      and number not in (select admission_number from student where deleted_at is null)
    order by i
    limit p_count);
  update counter set value = v_numbers[p_count]::bigint where name = 'admission_number' and p_count > 0;
  return v_numbers;
end $$;
comment on function api.admission_numbers_next is
  'Draws the next p_count admission numbers of the school, except those that students or the file (p_given) already '
  'have. The caller must have locked the counter.';

create function api.import_references(p_rows jsonb, out ids jsonb, out errors api.import_error[])
  language sql stable as $$
  with requested (row_number, kind, name, id) as (
    select r."row", w.*
    from jsonb_to_recordset(p_rows) r (
      "row" integer, class text, class_id bigint, grade text, grade_id bigint, religion text, religion_id bigint)
    cross join lateral (
      values ('class', r.class, r.class_id), ('grade', r.grade, r.grade_id), ('religion', r.religion, r.religion_id)
    ) w (kind, name, id)
    where w.name is not null or w.id is not null
  ), known (kind, id, name, grade_id, free_places) as (
    select
      'class',
      c.id,
      -- A class is found by name only in the current academic year.
      case when y.is_current then core.name_key(api.class_name(c.name, c.section)) end,
      c.grade_id,
      c.capacity - (select count(*) from student s where s.class_id = c.id and s.deleted_at is null)
    from class c
    join academic_year y on y.id = c.academic_year_id
    where api.reaches_whole_class(c.id)
    union all
    select 'grade', id, core.name_key(name), null, null from grade
    union all
    select 'religion', id, core.name_key(name), null, null from religion
  ), reference as (
    select
      w.kind,
      w.name,
      w.rows,
      case when w.name is null then w.kind || '_id' else w.kind end as field,
      coalesce(w.name, w.id::text) as label,
      count(k.id) as matches,
      min(k.id) as id,
      min(k.grade_id) as grade_id,
      min(k.free_places) as free_places
    from (select kind, name, id, array_agg(row_number) as rows from requested group by kind, name, id) w
    left join known k
      on k.kind = w.kind and (w.name is null or k.name = core.name_key(w.name)) and (w.id is null or k.id = w.id)
    group by w.kind, w.name, w.id, w.rows
  ), found as (
    select
      row_number, kind, field, label, id, grade_id, free_places,
      row_number() over (partition by kind, id order by row_number) as place
    from reference, unnest(rows) row_number
    where matches = 1
  ), error as (
    select
      row_number,
      field,
      case
        when matches > 1 then format('There are %s classes called %s. Use class_id instead.', matches, label)
        else format('There is no %s %s%s.',
          kind, label, case when field = 'class' then ' in the current academic year' else '' end)
      end
    from reference, unnest(rows) row_number
    where matches <> 1
    union all
    select
      row_number,
      field,
      format('The class %s has only %s free places.', label, greatest(free_places, 0))
    from found
    where kind = 'class' and place > free_places
    union all
    select row_number, max(field) filter (where kind = 'grade'), 'The class belongs to another grade.'
    from found
    group by row_number
    having max(grade_id) filter (where kind = 'class') <> max(id) filter (where kind = 'grade')
  )
  select
    (
      select coalesce(jsonb_object_agg(row_number, ids), '{}')
      from (select row_number, jsonb_object_agg(kind || '_id', id) as ids from found group by row_number) f
    ),
    (select array_agg(error::api.import_error) from error);
$$;
comment on function api.import_references is
  'Looks up the classes, grades and religions that rows refer to by name or id. `ids` has the ids by line, `errors` '
  'an error for each row whose reference does not exist or is ambiguous, whose class is full, or whose class belongs '
  'to another grade.';

create function api.imports_students(p jsonb) returns json language plpgsql as $$
declare
  v_rows jsonb;
  v_is_dry_run boolean := (p ->> 'dry_run')::boolean;
  v_given text[] := array(
    select r ->> 'admission_number'
    from jsonb_array_elements(p -> 'rows') r
    where r ->> 'admission_number' is not null);
  v_references record;
  v_warnings api.import_error[];
  v_report json;
  v_numbers text[];
  v_logins jsonb;
  v_ids bigint[];
begin
  p := api.import_checked(p);
  v_rows := p -> 'rows';
  if not v_is_dry_run then
    -- Locks the counter first, in the same order as a single create. Otherwise the two could deadlock.
    insert into counter as c (name, value) values ('admission_number', 0)
      on conflict (name) do update set value = c.value;
  end if;
  perform api.import_begin('student', v_is_dry_run);
  v_warnings := array(select w from api.import_repeats('student', v_rows) w);
  select ids, errors into v_references from api.import_references(v_rows);
  v_report := api.import_report(p, v_references.errors
    || array(
      select e
      from api.import_duplicates(
        v_rows, 'admission_number', array(select admission_number from student where deleted_at is null)) e)
    || array(select e from api.import_login_errors(v_rows) e)
    || case when v_is_dry_run then array(select e from api.import_plan_errors(v_rows, 'students') e) end,
    v_warnings);
  if v_is_dry_run then
    return v_report;
  end if;
  v_logins := api.import_logins(v_rows, 'student');
  v_numbers := api.admission_numbers_next(jsonb_array_length(v_rows) - cardinality(v_given), v_given);
  select api.import_insert('student', (select writable from core.record where name = 'student'), jsonb_agg(
      jsonb_build_object('is_active', true, 'admission_number', v_numbers[unnumbered])
        || value
        || coalesce(v_references.ids -> (value ->> 'row'), '{}')
        || jsonb_build_object('user_id', v_logins -> (value ->> 'row'))
      order by n))
    into v_ids
    from (
      select value, n, count(*) filter (where value ->> 'admission_number' is null) over (order by n) as unnumbered
      from jsonb_array_elements(v_rows) with ordinality r (value, n)
    ) r;
  perform core.enforce_plan_limits();
  if v_logins <> '{}' then
    perform core.notify('account.created', jsonb_build_object(
      'user_ids', array(select value::bigint from jsonb_each_text(v_logins))));
  end if;
  return api.import_report(p, '{}', v_warnings, v_ids);
end $$;
comment on function api.imports_students is
  'Imports students. Returns {dry_run, rows, valid, created, errors, warnings, ids}. Raises validation_error with all '
  'errors, conflict with the rows that repeat a person, or plan_limit_reached.';

create function api.imports_teachers(p jsonb) returns json language plpgsql as $$
declare
  v_rows jsonb;
  v_is_dry_run boolean := (p ->> 'dry_run')::boolean;
  v_warnings api.import_error[];
  v_report json;
  v_logins jsonb;
  v_ids bigint[];
begin
  p := api.import_checked(p);
  v_rows := p -> 'rows';
  perform api.import_begin('teacher', v_is_dry_run);
  v_warnings := array(select w from api.import_repeats('teacher', v_rows) w);
  v_report := api.import_report(p,
    array(
      select e
      from api.import_duplicates(
        v_rows, 'employee_number', array(select employee_number from teacher where deleted_at is null)) e)
    || array(select e from api.import_login_errors(v_rows) e)
    || case when v_is_dry_run then array(select e from api.import_plan_errors(v_rows, 'teachers') e) end,
    v_warnings);
  if v_is_dry_run then
    return v_report;
  end if;
  v_logins := api.import_logins(v_rows, 'teacher');
  select api.import_insert('teacher', (select writable from core.record where name = 'teacher'), jsonb_agg(
      '{"is_active": true}' || value || jsonb_build_object('user_id', v_logins -> (value ->> 'row')) order by n))
    into v_ids from jsonb_array_elements(v_rows) with ordinality r (value, n);
  perform core.enforce_plan_limits();
  if v_logins <> '{}' then
    perform core.notify('account.created', jsonb_build_object(
      'user_ids', array(select value::bigint from jsonb_each_text(v_logins))));
  end if;
  return api.import_report(p, '{}', v_warnings, v_ids);
end $$;
comment on function api.imports_teachers is 'Imports teachers, like api.imports_students.';

create function api.imports_students_template(p jsonb) returns json language sql stable as $$
  select json_build_object(
    'class', array(
      select api.class_name(c.name, c.section)
      from class c
      join academic_year y on y.id = c.academic_year_id and y.is_current
      left join grade g on g.id = c.grade_id
      where api.reaches_whole_class(c.id)
      order by g.sequence, platform.search_normal(c.name), platform.search_normal(c.section), c.id),
    'grade', array(select name from grade order by sequence, platform.search_normal(name), id),
    'religion', array(select name from religion order by sequence, platform.search_normal(name), id));
$$;
comment on function api.imports_students_template is
  'The names that a file of students may use: {class, grade, religion}, with those classes of the current academic '
  'year to which the user may add students.';

create function api.imports_teachers_template(p jsonb) returns json language sql stable as $$
  select '{}'::json;
$$;
comment on function api.imports_teachers_template is 'The names that a file of teachers may use. There are none.';
