-- Imports that update (imports.sql): which person a row is, and what it changes.

create function api.require_import_updates(p_table text) returns void language plpgsql stable as $$
begin
  perform core.require_also(p_table || '.update'), core.require_also(p_table || '.read');
  if not core.has_whole_school_scope() then
    perform core.fail('forbidden',
      format('Updates by a file need the permissions for all %ss of the school.', p_table));
  end if;
end $$;
comment on function api.require_import_updates is
  'Raises forbidden unless the user may read and update all people of the table: a report shows old values.';

create function api.import_matches(
    p_table text, p_rows jsonb, p_mode text, p_source text, out matches jsonb, out errors api.import_error[])
  language plpgsql stable as $$
declare
  v_number text := case p_table when 'student' then 'admission_number' else 'employee_number' end;
  v_found record;
begin
  execute format($sql$
      with given as (
        select (r ->> 'row')::integer as row_number, r ->> 'external_id' as external_id, r ->> %2$L as number,
          lower(r ->> 'email') as email, api.import_name(r ->> 'first_name', r ->> 'last_name') as name
        from jsonb_array_elements($1) r
      ), named as materialized (
        -- Families share addresses, so that a student is never found by one.
        select lower(p.email) as email, api.import_name(p.first_name, p.last_name) as name, count(*) as many,
          case count(*) when 1 then min(p.id) end as id
        from %1$s p
        where %3$L::boolean and $2 <> 'create' and p.deleted_at is null and p.email is not null
        group by 1, 2
      ), found as (
        select g.*, known.id as id_of_external_id, n.id as id_of_number, own.external_id as other_external_id,
          named.many, coalesce(known.id, n.id, named.id) as id
        from given g
        left join (
          select x.external_id, x.%1$s_id as id
          from %1$s_external_id x
          join %1$s p on p.id = x.%1$s_id and p.deleted_at is null
          where x.source = $3
        ) known using (external_id)
        left join %1$s n on n.%2$s = g.number and n.deleted_at is null
        left join named
          on named.email = g.email and named.name = g.name and known.id is null and n.id is null
        left join %1$s_external_id own
          on own.%1$s_id = coalesce(n.id, named.id) and own.source = $3 and known.id is null
            and own.external_id <> g.external_id
      ), error (row_number, field, message) as (
        select row_number, 'external_id', 'This external id is already in use.'
        from found
        where $2 = 'create' and id_of_external_id is not null
        union all
        select row_number, %2$L, 'This %4$s belongs to another %1$s than the external id.'
        from found
        where $2 <> 'create' and id_of_external_id <> id_of_number
        union all
        select row_number, 'external_id', format('The %1$s has the external id %%s.', other_external_id)
        from found
        where $2 <> 'create' and other_external_id is not null
        union all
        select row_number, null, format('Line %%s is the same %1$s.', first)
        from (
          select
            *,
            min(row_number) over (partition by id) as first,
            least(min(row_number) over (partition by number), row_number) as first_of_number,
            least(min(row_number) over (partition by external_id), row_number) as first_of_external_id
          from found
          where other_external_id is null and coalesce(id_of_external_id = id_of_number, true)
        ) f
        -- A repeated number or external id is an error of its own.
        where $2 <> 'create' and id is not null and first < row_number
          and (number is null or first_of_number = row_number)
          and (external_id is null or first_of_external_id = row_number)
        union all
        select
          row_number,
          case
            when external_id is not null then 'external_id'
            when number is not null then %2$L
            when %3$L::boolean and email is not null then 'email'
          end,
          case
            when external_id is not null then 'There is no %1$s with this external id.'
            when number is not null then 'There is no %1$s with this %4$s.'
            when many > 1 then format('There are %%s %1$ss with this name and email.', many)
            when %3$L::boolean and email is not null then 'There is no %1$s with this name and email.'
            else 'The row has no external id and no %4$s, by which the %1$s could be found.'
          end
        from found
        where $2 = 'update' and id is null
      )
      select
        (
          select coalesce(jsonb_object_agg(row_number, id), '{}') from found where $2 <> 'create' and id is not null
        ) as matches,
        (select array_agg(error::api.import_error) from error) as errors
    $sql$, p_table, v_number, p_table = 'teacher', replace(v_number, '_', ' '))
    into v_found
    using p_rows, p_mode, p_source;
  matches := v_found.matches;
  errors := v_found.errors;
end $$;
comment on function api.import_matches is
  'The people whom rows update, {line: id}: by the external id of the source, the admission or employee number or, for '
  'teachers, by the email if exactly one teacher of this name has it. `errors` are the rows that match nobody though '
  'they must, or match two people.';

create function api.import_present(p_table text, p_matches jsonb, p_source text) returns jsonb
  language plpgsql stable as $$
declare
  v_people jsonb;
begin
  execute format($sql$
      select coalesce(jsonb_object_agg(m.key, to_jsonb(p) || jsonb_build_object(
        'external_id', (select external_id from %1$s_external_id x where x.%1$s_id = p.id and x.source = $2))), '{}')
      from jsonb_each_text($1) m
      join %1$s p on p.id = m.value::bigint
    $sql$, p_table)
    into v_people
    using p_matches, p_source;
  if p_table = 'student' then
    select coalesce(jsonb_object_agg(m.key, m.value || jsonb_build_object(
          'class', api.class_name(c.name, c.section), 'class_grade_id', c.grade_id, 'grade', g.name,
          'religion', r.name)), '{}')
      into v_people
      from jsonb_each(v_people) m
      left join class c on c.id = (m.value ->> 'class_id')::bigint
      left join grade g on g.id = (m.value ->> 'grade_id')::bigint
      left join religion r on r.id = (m.value ->> 'religion_id')::bigint;
  end if;
  return v_people;
end $$;
comment on function api.import_present is
  'The stored values of the people whom rows update, by line, with their external id and the names that they refer to.';

create function api.import_differing(p_rows jsonb, p_present jsonb) returns jsonb language sql stable as $$
  with called as materialized (
    select name, api.grades_called(name) as ids
    from (select distinct r ->> 'grade' as name from jsonb_array_elements(p_rows) r where p_present <> '{}') named
    where name is not null
  )
  select coalesce(jsonb_agg(r - array(
      select cell.key
      from jsonb_each(r) cell
      where cell.key in ('class', 'grade', 'religion', 'class_id', 'grade_id', 'religion_id')
        and (
          cell.value = p_present -> (r ->> 'row') -> cell.key
          or core.name_key(cell.value #>> '{}') = core.name_key(p_present -> (r ->> 'row') ->> cell.key)
          or cell.key = 'grade' and c.ids = array[(p_present -> (r ->> 'row') ->> 'grade_id')::bigint])
    ) order by n), '[]')
  from jsonb_array_elements(p_rows) with ordinality given (r, n)
  left join called c on c.name = r ->> 'grade';
$$;
comment on function api.import_differing is
  'The rows without the references that people have already: the class may be full, or of an earlier year.';

create function api.import_leaving_errors(p_rows jsonb, p_present jsonb) returns setof api.import_error
  language sql stable as $$
  select (r ->> 'row')::integer, f.field, f.message
  from jsonb_array_elements(p_rows) r
  cross join lateral (select p_present -> (r ->> 'row') as present) stored
  cross join lateral core.left_on_faults(
    jsonb_strip_nulls(r), (present ->> 'left_on')::date, present ->> 'leaving_reason') f
  where r ?| '{is_active,left_on,leaving_reason}';
$$;
comment on function api.import_leaving_errors is
  'Errors for rows whose is_active, left_on or leaving_reason contradict each other.';

create function api.import_with_left_on(p_rows jsonb, p_present jsonb) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(
      case when r ?| '{is_active,left_on}'
        -- An empty cell keeps what is there.
        then core.with_left_on(
          r - case when r ->> 'left_on' is null then 'left_on' else '' end,
          (p_present -> (r ->> 'row') ->> 'left_on')::date)
        else r end order by n), '[]')
  from jsonb_array_elements(p_rows) with ordinality given (r, n);
$$;
comment on function api.import_with_left_on is 'The rows with left_on in place of is_active (core.with_left_on).';

create function api.import_changes(p_table text, p_rows jsonb, p_present jsonb, p_ids jsonb) returns jsonb
  language sql stable as $$
  select coalesce(
      jsonb_agg(
        jsonb_build_object(
          'row', (r ->> 'row')::integer,
          'id', present -> 'id',
          'name', core.full_name(present ->> 'first_name', present ->> 'last_name'),
          'set', coalesce(c.set, '{}'),
          'changes', coalesce(c.changes, '[]'),
          'note', case
            when c.set ? 'email' and present ->> 'user_id' is not null
              then 'The email of the login does not change.'
          end)
        order by n),
      '[]')
  from jsonb_array_elements(p_rows) with ordinality given (r, n)
  cross join lateral (select p_present -> (r ->> 'row') as present) stored
  cross join lateral (
    select
      jsonb_object_agg(key, value) as set,
      jsonb_agg(jsonb_build_object('field', shown, 'old', present -> shown, 'new', coalesce(new, value)) order by at)
        as changes
    from (
      select f.at, cell.key, cell.value, named.key as shown, r -> named.key as new
      from jsonb_each(r || coalesce(p_ids -> (r ->> 'row'), '{}')) cell
      join core.record k on k.name = p_table
      cross join lateral (select array_position(k.writable || '{external_id}', cell.key) as at) f
      cross join lateral (
        select case
          when cell.key in ('class_id', 'grade_id', 'religion_id') and r ? replace(cell.key, '_id', '')
            then replace(cell.key, '_id', '')
          else cell.key
        end as key
      ) named
      where f.at is not null
        and cell.key <> 'user_id'
        -- A null left_on comes from is_active (api.import_with_left_on).
        and (cell.value <> 'null' or cell.key = 'left_on')
        and cell.value is distinct from present -> cell.key
        -- Names that were stored before white space was normalized are no change.
        and (jsonb_typeof(cell.value) <> 'string' or cell.value #>> '{}'
          is distinct from btrim(regexp_replace(present ->> cell.key, '\s+', ' ', 'g')))
    ) differing
  ) c;
$$;
comment on function api.import_changes is
  'What rows change of the people whom they update: [{row, id, name, set, changes, note}], where `set` has the new '
  'values of columns and `changes` lists {field, old, new}. An empty cell keeps what is there.';

create function api.import_returns(p_changes jsonb, p_present jsonb, p_ids jsonb) returns jsonb
  language plpgsql stable as $$
begin
  return (
    with change as (
      select n, c, (present ->> 'class_id')::bigint as class_id,
        not core.has_left((present ->> 'left_on')::date, core.today()) and (
          core.has_left((c #>> '{set,left_on}')::date, core.today()) or c -> 'set' ? 'class_id') as frees_place,
        c -> 'set' ? 'left_on'
          and core.has_left((present ->> 'left_on')::date, core.today())
          and not core.has_left((c #>> '{set,left_on}')::date, core.today()) as is_return
      from jsonb_array_elements(p_changes) with ordinality given (c, n)
      cross join lateral (select p_present -> (c ->> 'row') as present) stored
    ),
    place as (
      select n,
        api.student_class_refusal(class_id,
          row_number() over (partition by class_id order by n) - 1
            + coalesce(named.students, 0) - coalesce(freed.students, 0)) as refusal
      from change
      left join (
        select (value ->> 'class_id')::bigint as class_id, count(*) as students from jsonb_each(p_ids) group by 1
      ) named using (class_id)
      left join (
        select class_id, count(*) as students from change where frees_place group by 1
      ) freed using (class_id)
      where is_return and not c -> 'set' ? 'class_id'
    )
    select coalesce(
        jsonb_agg(
          c || jsonb_build_object('returns', is_return) || case
            when refusal is null then '{}'
            else jsonb_build_object(
              'set', c -> 'set' || '{"class_id": null}',
              'changes', c -> 'changes' || jsonb_build_object('field', 'class_id', 'old', class_id, 'new', null),
              'note', concat_ws(' ', refusal, 'The student returns without a class.', c ->> 'note'))
          end
          order by n),
        '[]')
    from change
    left join place using (n));
end $$;
comment on function api.import_returns is
  'The changes of students, with `returns` for those who have left and return. A student who does not get '
  'the class back returns without one, and the note says why.';

create function api.import_grade_errors(p_changes jsonb, p_present jsonb) returns setof api.import_error
  language sql stable as $$
  select (c ->> 'row')::integer, 'grade', 'The class belongs to another grade.'
  from jsonb_array_elements(p_changes) c
  where c -> 'set' ? 'grade_id'
    and not c -> 'set' ? 'class_id'
    and (c #>> '{set,grade_id}') <> (p_present -> (c ->> 'row') ->> 'class_grade_id');
$$;
comment on function api.import_grade_errors is
  'Errors for the rows that change only the grade of students with a class.';

create function api.import_update(p_table text, p_changes jsonb) returns void language plpgsql as $$
declare
  v_columns text[] := array(
    select c from core.record k, unnest(k.writable) c
    where k.name = p_table
      and exists (select from jsonb_array_elements(p_changes) change where change -> 'set' ? c));
begin
  if v_columns <> '{}' then
    execute format($sql$
        update %1$I t
          set (%2$s) = (select %3$s from jsonb_populate_record(t, c -> 'set') n)
          from jsonb_array_elements($1) c
          where t.id = (c ->> 'id')::bigint and c -> 'set' <> '{}'
      $sql$, p_table,
      (select string_agg(quote_ident(c), ', ') from unnest(v_columns) c),
      (select string_agg('n.' || quote_ident(c), ', ') from unnest(v_columns) c))
      using p_changes;
    perform api.person_activity_changed(p_table, (c ->> 'id')::bigint)
      from jsonb_array_elements(p_changes) c
      where c -> 'set' ? 'left_on';
  end if;
end $$;
comment on function api.import_update is 'Stores the changes of people, and applies left_on to their sessions.';

create function api.import_external_ids(p_table text, p_source text, p_people jsonb) returns void
  language plpgsql as $$
begin
  -- The id may belong to a deleted person.
  execute format($sql$
      insert into %1$s_external_id as x (%1$s_id, source, external_id)
        select (p ->> 'id')::bigint, $1, p ->> 'external_id'
        from jsonb_array_elements($2) p
        where p ->> 'external_id' is not null
        on conflict (source, external_id) do update set %1$s_id = excluded.%1$s_id
    $sql$, p_table)
    using p_source, p_people;
end $$;
comment on function api.import_external_ids is 'Keeps the external ids of people, [{id, external_id}], in a source.';
