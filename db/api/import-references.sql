-- Imports of students and teachers (imports.sql): the dates of a file, and the records that its rows refer to.

create function api.order_of_dates(p_locale text) returns text language sql immutable
  return case
    -- English without a region, and regions and languages that write the year first or both orders.
    when p_locale is null or p_locale = 'en' or p_locale ~ '^(hu|ja|ko|lt|mn|sv|zh)\y|-(CA|ZA)\y' then null
    when p_locale ~ '^(en|fil|haw|chr)\y.*-(AS|FM|GU|MH|MP|PH|PR|PW|UM|US|VI)\y' or p_locale ~ '^es-(PA|PR)\y'
      then 'month_first'
    else 'day_first'
  end;
comment on function api.order_of_dates is
  'Whether people with this locale (BCP 47) write a date with the day or the month first; null if that is uncertain.';

create function api.has_dotted_dates(p_locale text) returns boolean language sql immutable
  return coalesce(
    p_locale ~ ('^(az|be|bg|bs|cs|da|de|et|fi|fo|hr|hy|is|ka|kk|lb|lv|mk|nb|nn|no|pl|ro|ru|sk|sl|sq|sr|tk|tr|uk)\y'
      || '|-(AT|CH|DE|LI)\y'),
    false);
comment on function api.has_dotted_dates is 'Whether people with this locale write dates with dots: 28.02.2015.';

create function api.import_with_dates(p jsonb) returns jsonb language plpgsql stable as $$
declare
  v_locale text := (select locale from school);
  v_order text := api.order_of_dates(v_locale);
  v_days jsonb;
  v_errors jsonb;
begin
  if coalesce(p -> 'dates', '[]') = '[]' then
    return p;
  end if;
  with given as (
    select *
    from jsonb_to_recordset(p -> 'dates') d (
      "row" integer, "column" text, text text, day_first text, month_first text, is_dotted boolean)
  ), other_order as (
    -- A date that is none in the order of the school shows that the file has another one.
    select distinct on ("column") "column", "row", text
    from given
    where case v_order when 'day_first' then day_first else month_first end is null
    order by "column", "row"
  ), read as (
    select
      g.*, o."row" as other_row, o.text as other_text,
      case
        when is_dotted then case when api.has_dotted_dates(v_locale) then day_first end
        when day_first is null then month_first
        when month_first is null or day_first = month_first then day_first
        when o."row" is not null then null
        when v_order = 'day_first' then day_first
        when v_order = 'month_first' then month_first
      end as day
    from given g
    left join other_order o on o."column" = g."column"
  )
  select
      jsonb_object_agg("row", days) filter (where days is not null),
      jsonb_path_query_array(jsonb_agg(errors), '$[*][*]')
    into v_days, v_errors
    from (
      select
        "row",
        jsonb_object_agg("column", day) filter (where day is not null) as days,
        coalesce(
          jsonb_agg(
            jsonb_build_object('row', "row", 'column', "column", 'message', case
              when is_dotted or day_first is null or month_first is null
                then 'must be a date, YYYY-MM-DD. To read dates in another form, send date_format, such as DD.MM.YYYY'
              else format('can be %s (day first) or %s (month first). Send date_format=DD/MM/YYYY or '
                'date_format=MM/DD/YYYY%s',
                day_first, month_first, case
                  when v_order is null then ', or set the locale of the school'
                  else format(': line %s has %s, which is not in the order of %s', other_row, other_text, v_locale)
                end)
            end))
          filter (where day is null), '[]') as errors
      from read
      group by "row"
    ) d;
  return p || jsonb_build_object(
    'rows', (
      select jsonb_agg(r || coalesce(v_days -> (r ->> 'row'), '{}') order by n)
      from jsonb_array_elements(p -> 'rows') with ordinality given (r, n)),
    'errors', (p -> 'errors') || v_errors);
end $$;
comment on function api.import_with_dates is
  'The parameters of an import with the days of its `dates`: [{row, column, text, day_first, month_first, is_dotted}], '
  'which are no ISO dates, in its rows. They are read in the order of the locale of the school, unless another date of '
  'the column does not fit it. A date that can be two days is an error that names both.';

create function api.grades_called(p_name text) returns bigint[] language sql stable as $$
  with said as (
    select
      core.name_key(p_name) as key,
      substring(
        core.name_key(p_name)
        from '^(?:(?:grade|year|class|form|level|standard|std|g|y)[ .-]*)?0*([0-9]{1,2})(?:st|nd|rd|th)?'
          || '(?: grade| year)?$'
      )::integer as number
  ), found (id, rank) as (
    select g.id, 1 from said join grade g on core.name_key(g.name) = key
    union all
    select g.id, 2
    from said
    join grade g
      on substring(g.name from '^[^0-9]*0*([0-9]{1,2})[^0-9]*$')::integer = number
        or (key in ('k', 'kg') and core.name_key(g.name) = 'kindergarten')
        or (key in ('k', 'kindergarten') and core.name_key(g.name) = 'kg')
    union all
    select g.id, 3
    from said
    join grade g on g.sequence = number
    where not exists (select from grade other where other.name ~ '[0-9]')
  )
  select array_agg(distinct id) from found where rank = (select min(rank) from found);
$$;
comment on function api.grades_called is
  'The grades that a file means: those of this name, otherwise those with this number in their name ("05", "5th Grade" '
  'and "Year 5" are Grade 5), or, if no name has a number, those with this sequence.';

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
      c.capacity - (select count(*) from core.enrolled() e where e.class_id = c.id)
    from class c
    join academic_year y on y.id = c.academic_year_id
    where api.reaches_whole_class(c.id)
    union all
    select 'grade', id, null, null, null from grade
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
    from (
      select kind, name, id, array_agg(row_number) as rows,
        case when kind = 'grade' then api.grades_called(name) end as grade_ids
      from requested
      group by kind, name, id
    ) w
    left join known k
      on k.kind = w.kind
        and (w.name is null or k.name = core.name_key(w.name) or k.id = any (w.grade_ids))
        and (w.id is null or k.id = w.id)
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
        when matches > 1 then format('There are %s %s called %s. Use %s_id instead.',
          matches, case kind when 'class' then 'classes' else kind || 's' end, label, kind)
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
