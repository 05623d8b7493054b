-- /api/academics: academic years, one of which is current, and an overview of a year.

select core.define_operation('academics_years_list', p_permission => 'academic.read');
select core.define_operation('academics_years_get', p_permission => 'academic.read', p_record => 'academic_year');
select core.define_operation('academics_years_create', p_permission => 'academic.manage', p_idempotent => true,
  p_record => 'academic_year', p_errors => '{conflict}');
select core.define_operation('academics_years_update', p_permission => 'academic.manage', p_record => 'academic_year',
  p_errors => '{conflict}');
select core.define_operation('academics_years_delete', p_permission => 'academic.manage', p_record => 'academic_year',
  p_errors => '{conflict,in_use}');
select core.define_operation('academics_overview', p_permission => 'academic.read', p_errors => '{not_found}');

select core.define_record('academic_year', p_table => 'academic_year', p_key => 'y.id', p_one_row_per_key => true,
  p_source => 'academic_year y',
  p_columns => 'y.id, y.name, y.start_date, y.end_date, y.is_current, y.created_at, y.updated_at',
  p_search => 'public.search_form(y.name)',
  p_default_sort => 'start_date', p_default_order => 'desc',
  p_writable => '{name,start_date,end_date,is_current}');
select core.define_sort('academic_year', 'name', 'platform.search_normal(y.name)');
select core.define_sort('academic_year', 'start_date', 'y.start_date');
select core.define_sort('academic_year', 'created_at', 'y.created_at');

select core.define_functions('academics_years', 'academic_year',
  p_list => 'Academic years, latest first. Searches the name.',
  p_get => 'One academic year. Raises not_found.');

create function api.lock_current_year() returns void language sql as $$
  select pg_advisory_xact_lock('academic_year'::regclass::bigint);
$$;
comment on function api.lock_current_year is
  'Locks the choice of the current academic year until the end of the transaction. Call it before you read which year '
  'is current in order to change that.';

create function api.clear_current_year(p_except_id bigint default null) returns void language sql as $$
  update academic_year set is_current = false where is_current and id is distinct from p_except_id;
$$;
comment on function api.clear_current_year is 'Sets is_current to false for every academic year except one.';

-- Lists by day of a year must stay short. The constraint academic_year_length_check enforces the same limit.
create function api.require_year_length(p jsonb) returns void language plpgsql stable as $$
begin
  if exists (
    select
    from (values (true)) input
    left join academic_year y on y.id = (p ->> 'id')::bigint
    where coalesce((p ->> 'end_date')::date, y.end_date)
      >= coalesce((p ->> 'start_date')::date, y.start_date) + interval '2 years'
  ) then
    perform core.refuse_field('validation_error',
      case when p ? 'end_date' or not p ? 'start_date' then 'end_date' else 'start_date' end,
      'An academic year must be shorter than two years.');
  end if;
end $$;
comment on function api.require_year_length is
  'Raises validation_error if an academic year, with the changes {id, start_date, end_date}, would last two years or '
  'more.';

create function api.academics_years_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  perform api.require_year_length(p);
  perform api.lock_current_year();
  if (p ->> 'is_current')::boolean then
    perform api.clear_current_year();
  elsif not exists (select from academic_year where is_current) then
    p := p || '{"is_current": true}';
  end if;
  v_id := core.record_insert('academic_year', p);
  return api.academic_year_record(v_id);
end $$;
comment on function api.academics_years_create is
  'Creates an academic year. The first year of a school always becomes the current one; a later year does so if '
  'is_current is true. Raises conflict if it overlaps another year or has the same name, validation_error for two '
  'years or more.';

create function api.academics_years_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_is_current boolean := (select is_current from academic_year where id = v_id);
begin
  perform api.require_year_length(p);
  if v_is_current and not (p ->> 'is_current')::boolean then
    perform core.refuse_field('conflict', 'is_current',
      'One academic year must be current. Make another year current instead.');
  elsif not v_is_current and (p ->> 'is_current')::boolean then
    perform api.lock_current_year();
    perform api.clear_current_year(v_id);
  end if;
  perform core.record_update('academic_year', p);
  return api.academic_year_record(v_id);
end $$;
comment on function api.academics_years_update is
  'Updates an academic year. is_current true makes it the current year instead of the previous one. Raises conflict '
  'for is_current false on the current year, for an overlap and for a name that is in use; validation_error for two '
  'years or more and if a term would lie outside the year.';

create function api.academics_years_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  if (select is_current from academic_year where id = v_id) then
    perform api.lock_current_year();
    if exists (select from academic_year where id <> v_id) then
      perform core.fail('conflict', 'The current academic year cannot be deleted. Make another year current first.');
    end if;
  end if;
  delete from academic_year where id = v_id;
  return json_build_object('id', v_id);
end $$;
comment on function api.academics_years_delete is
  'Deletes an academic year. Raises in_use while it has terms, classes or fee structures, conflict for the current '
  'year unless it is the only one.';

create function api.academics_overview(p jsonb) returns json language plpgsql stable as $$
declare
  v_answer json;
begin
  select json_build_object(
      'academic_year', case when y.id is not null then json_build_object(
        'id', y.id,
        'name', y.name,
        'start_date', y.start_date,
        'end_date', y.end_date,
        'is_current', y.is_current) end,
      'term_count', terms.count,
      'terms', terms.list,
      'classes', cardinality(class.ids),
      'students', (
        select count(distinct e.student_id)
        from core.class_roll() e
        where e.academic_year_id = y.id
          and (access.is_whole_school or e.class_id = any (class.ids))),
      'teachers', (
        select count(distinct cs.teacher_id)
        from core.class_staff() cs
        join teacher t on t.id = cs.teacher_id and t.deleted_at is null
        where cs.class_id = any (class.ids)),
      'active_teachers', (
        select count(*) from teacher where not core.has_left(left_on, core.today()) and deleted_at is null),
      'attendance_rate', (
        select api.attendance_rate(sum(a.attended), 0, sum(a.marks))
        from attendance_total a
        where a.class_id = any (class.ids)),
      'fees', case when access.can_read_fees then (
        -- Less the discounts. A waived fee counts with the amount that was paid before the waiver.
        select json_build_object(
          'billed', coalesce(sum(case status when 'waived' then paid_amount else amount - discount_amount end), 0),
          'collected', coalesce(sum(paid_amount), 0))
        from api.bills(null, y.id)
        where y.id is not null) end)
    into v_answer
    from (values (true)) always
    left join academic_year y
      on case when p ? 'academic_year_id' then y.id = (p ->> 'academic_year_id')::bigint else y.is_current end
    cross join (
      select core.has_whole_school_scope() as is_whole_school,
        core.has_whole_school_scope()
          and core.has_permission_for_all('fee.read')
          and 'fees_management' = any (core.tenant_features()) as can_read_fees
    ) access
    cross join lateral (
      select array(
        select c.id
        from class c
        where c.academic_year_id = y.id
          and (access.is_whole_school or c.id = any ((select scope_class_ids())::bigint[]))) as ids
    ) class
    cross join lateral (
      select
        count(*),
        coalesce(
          json_agg(
            json_build_object('id', t.id, 'name', t.name, 'start_date', t.start_date, 'end_date', t.end_date)
            order by t.start_date),
          '[]') as list
      from term t
      where t.academic_year_id = y.id
    ) terms
    where y.id is not null or not p ? 'academic_year_id';
  if v_answer is null then
    perform core.fail('not_found', format('There is no academic year %s.', p ->> 'academic_year_id'));
  end if;
  return v_answer;
end $$;
comment on function api.academics_overview is
  'Counts, terms, attendance rate and fees of an academic year: {academic_year_id}, by default the current year. A '
  'teacher gets the figures of the classes that they teach. fees is null unless the user may read the fees of the '
  'whole school and the school has fees_management. Zeros and no academic_year for a school without a current year. '
  'Raises not_found for an unknown year.';
