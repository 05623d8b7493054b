-- /api/students/import, /api/teachers/import: creates or updates all people in a file, or none; and the template files.
-- The facade reads the file and validates each row like a single create. These functions check what needs the database.
-- Both take
-- {dry_run, allow_duplicates, columns, checks, header, rows, errors, count}: `checks` are those of the columns
-- (core.value_faults), `header` is the line number of the header, `rows` the valid values of each row with its line
-- number (`row`), `errors` the errors found so far ({row, column, message}; without a row they are about the whole
-- file), `count` the number of all rows. From this release on also {mapping, unknown_columns, skipped}, which the
-- report repeats, `dates`, which the school reads (api.import_with_dates), `mode` and `source`.

select core.define_operation('imports_students', p_permission => 'student.create', p_idempotent => true,
  p_errors => '{plan_limit_reached,conflict,invalid_reference}');
select core.define_operation('imports_students_template', p_permission => 'student.create');
select core.define_operation('imports_teachers', p_permission => 'teacher.create', p_idempotent => true,
  p_errors => '{plan_limit_reached,conflict,invalid_reference}');
select core.define_operation('imports_teachers_template', p_permission => 'teacher.create');

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

create function api.import_sample(p jsonb, p_errors api.import_error[]) returns jsonb language sql stable as $$
  select jsonb_build_object('row', r -> 'row', 'values', r - '{row,role}'::text[] || jsonb_strip_nulls(
      jsonb_build_object(
        'class', (
          select api.class_name(c.name, c.section) from class c where c.id = (r ->> 'class_id')::bigint),
        'grade', coalesce(
          (select name from grade where id = (r ->> 'grade_id')::bigint),
          (select min(name) from grade where id = any (api.grades_called(r ->> 'grade')))))))
  from jsonb_array_elements(p -> 'rows') with ordinality given (r, n)
  -- An error without a row is about the whole file, one of the header about all rows.
  where not exists (
    select from unnest(p_errors) e
    where e.row_number = (r ->> 'row')::integer or e.row_number = (p ->> 'header')::integer)
  order by n
  limit 1;
$$;
comment on function api.import_sample is
  'The first row without errors as it is read, {row, values}, with the names of its class and its grade.';

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
    'ids', coalesce(p_ids, '{}'),
    'updated', case when not (p ->> 'dry_run')::boolean then jsonb_array_length(p #> '{result,changed}') else 0 end,
    'unchanged', jsonb_array_length(p #> '{result,unchanged}'),
    'result', p -> 'result',
    'skipped', coalesce((p ->> 'skipped')::integer, 0),
    'mapping', coalesce(p -> 'mapping', '[]'),
    'unknown_columns', coalesce(p -> 'unknown_columns', '[]'),
    'sample', case when (p ->> 'dry_run')::boolean then api.import_sample(p, p_errors) end);
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

create function api.import_numbered(p_rows jsonb) returns jsonb language plpgsql as $$
declare
  v_given text[] := array(
    select r ->> 'admission_number'
    from jsonb_array_elements(p_rows) r
    where r ->> 'admission_number' is not null);
  v_numbers text[] := api.admission_numbers_next(jsonb_array_length(p_rows) - cardinality(v_given), v_given);
begin
  return (
    select coalesce(jsonb_agg(jsonb_build_object('admission_number', v_numbers[unnumbered]) || r order by n), '[]')
    from (
      select r, n, count(*) filter (where r ->> 'admission_number' is null) over (order by n) as unnumbered
      from jsonb_array_elements(p_rows) with ordinality given (r, n)
    ) numbered);
end $$;
comment on function api.import_numbered is
  'New students with admission numbers: rows without one get the next of the school. The caller must have locked the '
  'counter.';

create function api.import_outcome(
    p jsonb, p_new jsonb, p_changes jsonb, p_errors api.import_error[], p_logins jsonb) returns jsonb
  language sql stable as $$
  with refused as materialized (
    select row_number,
      jsonb_agg(concat_ws(case when message ~ '^[A-Z]' then ': ' else ' ' end, field, message) order by field)
        as messages
    from unnest(p_errors)
    where row_number > (p ->> 'header')::integer
    group by row_number
    union all
    -- With an error in the header no row is valid.
    select (r ->> 'row')::integer, '["The header of the file has errors."]'
    from jsonb_array_elements(p -> 'rows') r
    where exists (select from unnest(p_errors) where row_number = (p ->> 'header')::integer)
      and (r ->> 'row')::integer not in (select row_number from unnest(p_errors) where row_number is not null)
  ), change as (
    select
      n, (c ->> 'row')::integer as row_number, c - '{set,returns}'::text[] || jsonb_build_object(
        'creates_login', p_logins ? (c ->> 'row')) as c,
      c -> 'changes' <> '[]' or p_logins ? (c ->> 'row') as is_changed
    from jsonb_array_elements(p_changes) with ordinality given (c, n)
    where (c ->> 'row')::integer not in (select row_number from refused)
  )
  select jsonb_build_object(
    'created', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'row', (r ->> 'row')::integer, 'name', core.full_name(r ->> 'first_name', r ->> 'last_name')) order by n), '[]')
      from jsonb_array_elements(p_new) with ordinality given (r, n)
      where (r ->> 'row')::integer not in (select row_number from refused)),
    'changed', (select coalesce(jsonb_agg(c order by n) filter (where is_changed), '[]') from change),
    'unchanged', (
      select coalesce(
        jsonb_agg(c - '{changes,note,creates_login}'::text[] order by n) filter (where not is_changed), '[]')
      from change),
    'refused', (
      select coalesce(
        jsonb_agg(jsonb_build_object('row', row_number, 'messages', messages) order by row_number), '[]')
      from refused));
$$;
comment on function api.import_outcome is
  'What becomes of each row: {created, changed, unchanged, refused}. `changed` has old and new values.';

create function api.import_people(p_table text, p jsonb) returns json language plpgsql as $$
declare
  v_mode text := coalesce(p ->> 'mode', 'create');
  v_source text := coalesce(p ->> 'source', 'import');
  v_is_dry_run boolean := (p ->> 'dry_run')::boolean;
  v_number text := case p_table when 'student' then 'admission_number' else 'employee_number' end;
  v_writable text[] := (select writable from core.record where name = p_table);
  v_in_use text[] := '{}';
  v_ids jsonb := '{}';
  v_errors api.import_error[];
  v_leaving_errors api.import_error[];
  v_matched record;
  v_matches jsonb;
  v_references record;
  v_present jsonb;
  v_new jsonb;
  v_changes jsonb;
  v_logins jsonb;
  v_warnings api.import_error[];
  v_created bigint[];
begin
  if v_mode <> 'create' then
    perform api.require_import_updates(p_table);
  end if;
  p := api.import_checked(p);
  perform api.import_begin(p_table, v_is_dry_run);
  select matches, errors into v_matched from api.import_matches(p_table, p -> 'rows', v_mode, v_source);
  v_matches := v_matched.matches;
  v_present := api.import_present(p_table, v_matches, v_source);
  p := p || jsonb_build_object('rows', api.import_differing(p -> 'rows', v_present));
  v_leaving_errors := array(select e from api.import_leaving_errors(p -> 'rows', v_present) e);
  p := p || jsonb_build_object('rows', api.import_with_left_on(p -> 'rows', v_present));
  v_new := (
    select coalesce(
      jsonb_agg(
        case when (p ->> 'allow_single_names')::boolean then '{"last_name": ""}' || r else r end order by n),
      '[]')
    from jsonb_array_elements(p -> 'rows') with ordinality given (r, n)
    where not v_matches ? (r ->> 'row') and v_mode <> 'update');
  if p_table = 'student' then
    select ids, errors into v_references from api.import_references(p -> 'rows');
    v_ids := v_references.ids;
    v_errors := v_references.errors;
  end if;
  v_changes := api.import_changes(p_table, (
      select coalesce(jsonb_agg(r order by n), '[]')
      from jsonb_array_elements(p -> 'rows') with ordinality given (r, n)
      where v_matches ? (r ->> 'row')), v_present, v_ids);
  if p_table = 'student' then
    v_changes := api.import_returns(v_changes, v_present, v_ids);
  end if;
  if v_mode = 'create' then
    execute format('select array(select %I from %I where deleted_at is null)', v_number, p_table) into v_in_use;
  end if;
  v_logins := api.import_login_rows(p -> 'rows', v_present);
  v_warnings := array(select w from api.import_repeats(p_table, v_new) w);
  v_errors := v_errors || v_matched.errors || v_leaving_errors
    || array(select e from api.import_grade_errors(v_changes, v_present) e)
    || array(select e from api.import_duplicates(p -> 'rows', v_number, v_in_use) e)
    || array(select e from api.import_duplicates(p -> 'rows', 'external_id', '{}') e)
    || array(select e from api.import_login_errors(v_logins) e)
    || array(select e from api.import_missing(v_new) e where v_mode = 'upsert')
    || case when v_is_dry_run then
      array(select e from api.import_plan_errors(v_new, v_changes, v_present, p_table || 's') e) end;
  p := p || jsonb_build_object('result', api.import_outcome(
    p,
    v_new,
    v_changes,
    v_errors || array(
      select ((e ->> 'row')::integer, e ->> 'column', e ->> 'message')::api.import_error
      from jsonb_array_elements(p -> 'errors') e),
    (select coalesce(jsonb_object_agg(r ->> 'row', true), '{}') from jsonb_array_elements(v_logins) r)));
  if v_is_dry_run then
    return api.import_report(p, v_errors, v_warnings);
  end if;
  perform api.import_report(p, v_errors, v_warnings);
  v_logins := api.import_logins(v_logins, p_table);
  if p_table = 'student' and v_new <> '[]' then
    v_new := api.import_numbered(v_new);
  end if;
  select api.import_insert(p_table, v_writable, jsonb_agg(
      r || coalesce(v_ids -> (r ->> 'row'), '{}')
        || jsonb_build_object('user_id', v_logins -> (r ->> 'row'))
      order by n))
    into v_created
    from jsonb_array_elements(v_new) with ordinality given (r, n);
  v_changes := (
    select coalesce(jsonb_agg(case when v_logins ? (c ->> 'row')
      then jsonb_set(c, '{set,user_id}', v_logins -> (c ->> 'row')) else c end), '[]')
    from jsonb_array_elements(v_changes) c);
  perform api.import_update(p_table, v_changes);
  perform api.student_restore_seat((c ->> 'id')::bigint)
    from jsonb_array_elements(v_changes) c
    where (c ->> 'returns')::boolean;
  perform api.import_external_ids(p_table, v_source, (
    select coalesce(jsonb_agg(jsonb_build_object('id', id, 'external_id', external_id)), '[]')
    from (
      select v_created[n] as id, r ->> 'external_id' as external_id
      from jsonb_array_elements(v_new) with ordinality given (r, n)
      union all
      select (c ->> 'id')::bigint, c #>> '{set,external_id}' from jsonb_array_elements(v_changes) c
    ) person));
  perform core.enforce_plan_limits();
  if v_logins <> '{}' then
    perform core.notify('account.created', jsonb_build_object(
      'user_ids', array(select value::bigint from jsonb_each_text(v_logins))));
  end if;
  return api.import_report(p, '{}', v_warnings, v_created);
end $$;
comment on function api.import_people is
  'Imports students or teachers. Each row creates a person or, if the mode is update or upsert, changes the one that '
  'it matches. The email of a login never changes by a file.';

create function api.imports_students(p jsonb) returns json language plpgsql as $$
begin
  if not (p ->> 'dry_run')::boolean and p ->> 'mode' is distinct from 'update' then
    -- Locks the counter first, in the same order as a single create. Otherwise the two could deadlock.
    insert into counter as c (name, value) values ('admission_number', 0)
      on conflict (name) do update set value = c.value;
  end if;
  return api.import_people('student', p);
end $$;
comment on function api.imports_students is
  'Imports students. Returns {dry_run, rows, valid, created, updated, unchanged, errors, warnings, ids, result, …}. '
  'Raises validation_error with all errors, conflict with the rows that repeat a person, plan_limit_reached, or '
  'forbidden for updates by a user who may not read and update all students.';

create function api.imports_teachers(p jsonb) returns json language sql as $$
  select api.import_people('teacher', p);
$$;
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
