-- Imports of students and teachers (imports.sql): what is checked of the rows of a file.

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

create function api.import_login_rows(p_rows jsonb, p_present jsonb) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(
      case when p_present ? (r ->> 'row')
        then jsonb_strip_nulls(p_present -> (r ->> 'row')) - '{user_id,id}'::text[] || r else r end order by n), '[]')
  from jsonb_array_elements(p_rows) with ordinality given (r, n)
  where (r ->> 'create_user_account')::boolean and p_present -> (r ->> 'row') ->> 'user_id' is null;
$$;
comment on function api.import_login_rows is
  'The rows that ask for a user account, of people who have none, with the stored values of what the row leaves empty.';

create function api.import_missing(p_new jsonb) returns setof api.import_error language sql stable as $$
  select (r ->> 'row')::integer, field, 'is required'
  from jsonb_array_elements(p_new) r, unnest('{first_name,last_name}'::text[]) field
  where r ->> field is null;
$$;
comment on function api.import_missing is
  'Errors for the rows of new people without a name. The facade cannot know which rows are new.';

create function api.import_plan_errors(p_new jsonb, p_changes jsonb, p_present jsonb, p_kind text)
  returns setof api.import_error language sql stable as $$
  select
    null::integer,
    null,
    format('The plan %s allows %s active %s. The school has %s, and this file adds %s.',
      plan, allowed, p_kind, used, active)
  from (
    select coalesce(sum(added), 0) as active
    from (
      select (not core.has_left((r ->> 'left_on')::date, core.today()))::integer as added
      from jsonb_array_elements(p_new) r
      union all
      select core.has_left((p_present -> (c ->> 'row') ->> 'left_on')::date, core.today())::integer
        - core.has_left((c #>> '{set,left_on}')::date, core.today())::integer
      from jsonb_array_elements(p_changes) c
      where c -> 'set' ? 'left_on'
    ) person
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

create function api.import_checked(p_given jsonb) returns jsonb language plpgsql stable as $$
declare
  p jsonb := api.import_with_dates(p_given);
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
  'The parameters of an import with the days of dates and timestamps in its rows, and with an error for each value '
  'that a check of its column refuses.';

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
