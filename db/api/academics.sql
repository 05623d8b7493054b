-- /api/academics: school years, one of them the current one, and what a year comes to.

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
  p_search => 'platform.search_normal(y.name)',
  p_default_sort => 'start_date', p_default_order => 'desc',
  p_writable => '{name,start_date,end_date,is_current}');
select core.define_sort('academic_year', 'name', 'platform.search_normal(y.name)');
select core.define_sort('academic_year', 'start_date', 'y.start_date');
select core.define_sort('academic_year', 'created_at', 'y.created_at');

-- Years, the latest first; search over the name.
create function api.academics_years_list(p jsonb) returns json language sql stable as $$
  select core.record_page('academic_year', p);
$$;

-- One year, or not_found.
create function api.academics_years_get(p jsonb) returns json language sql stable as $$
  select api.academic_year_record((p ->> 'id')::bigint);
$$;

-- Whoever changes which year is current waits here for whoever does so at the same time, before reading which one is.
create function api.lock_current_year() returns void language sql as $$
  select pg_advisory_xact_lock('academic_year'::regclass::bigint);
$$;
comment on function api.lock_current_year is 'Lets one request at a time change which year is current.';

-- Takes «current» from every year but one.
create function api.leave_current_year(p_except bigint default null) returns void language sql as $$
  update academic_year set is_current = false where is_current and id is distinct from p_except;
$$;
comment on function api.leave_current_year is 'Takes «current» from every year but one.';

-- Refuses a year of two years or more: whatever is listed by the days of a year would have no end. The constraint
-- academic_year_length_check holds every other writer to it.
create function api.require_year_length(p jsonb) returns void language plpgsql stable as $$
begin
  if exists (
    select from (values (true)) given left join academic_year y on y.id = (p ->> 'id')::bigint
    where coalesce((p ->> 'end_date')::date, y.end_date) >= coalesce((p ->> 'start_date')::date, y.start_date) + interval '2 years') then
    perform core.refuse_field('validation_error', case when p ? 'end_date' or not p ? 'start_date' then 'end_date' else 'start_date' end,
      'An academic year is shorter than two years.');
  end if;
end $$;
comment on function api.require_year_length is 'Refuses an academic year of two years or more.';

-- The first year is the current one, whatever is said of it; a later one takes that from the other when it says so.
-- Years that overlap, or have one name, are a conflict.
create function api.academics_years_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  perform api.require_year_length(p);
  perform api.lock_current_year();
  if (p ->> 'is_current')::boolean then
    perform api.leave_current_year();
  elsif not exists (select from academic_year where is_current) then
    p := p || '{"is_current": true}';
  end if;
  v_id := core.record_insert('academic_year', p);
  return api.academic_year_record(v_id);
end $$;

-- To be made current takes that from the other year; to stop being current is a conflict. Raises validation_error when a
-- term would lie outside.
create function api.academics_years_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_is_current boolean := (select is_current from academic_year where id = v_id);
begin
  perform api.require_year_length(p);
  if v_is_current and not (p ->> 'is_current')::boolean then
    perform core.refuse_field('conflict', 'is_current', 'One year is always the current one. Make another year current instead.');
  elsif not v_is_current and (p ->> 'is_current')::boolean then
    perform api.lock_current_year();
    perform api.leave_current_year(v_id);
  end if;
  perform core.record_update('academic_year', p);
  return api.academic_year_record(v_id);
end $$;

-- A year that terms, classes or fee structures belong to is in_use; the current one is a conflict while there are others.
create function api.academics_years_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  if (select is_current from academic_year where id = v_id) then
    perform api.lock_current_year();
    if exists (select from academic_year where id <> v_id) then
      perform core.fail('conflict', 'This is the current year. Make another year current first.');
    end if;
  end if;
  delete from academic_year where id = v_id;
  return json_build_object('id', v_id);
end $$;

-- What a year comes to, the current one unless academic_year_id names another; not_found without it. A teacher sees the
-- classes they teach. Fees show to whoever may see those of the whole school, else null.
create function api.academics_overview(p jsonb) returns json language plpgsql stable as $$
declare
  v_answer json;
begin
  select json_build_object(
      'academic_year', json_build_object('id', y.id, 'name', y.name, 'start_date', y.start_date, 'end_date', y.end_date, 'is_current', y.is_current),
      'term_count', terms.count,
      'terms', terms.list,
      'classes', cardinality(class.ids),
      'students', (select count(distinct e.student_id) from enrollment e where e.academic_year_id = y.id and e.status in ('active', 'completed')),
      'teachers', (select count(distinct cs.teacher_id) from core.class_staff() cs join teacher t on t.id = cs.teacher_id and t.deleted_at is null
                   where cs.class_id = any (class.ids)),
      'active_teachers', (select count(*) from teacher where is_active and deleted_at is null),
      'attendance_rate', (select api.attendance_rate(sum(a.attended), 0, sum(a.marks)) from attendance_total a where a.class_id = any (class.ids)),
      'fees', case when sees.fees then (
        -- Of a fee that was waived counts what was paid before.
        select json_build_object('billed', coalesce(sum(case status when 'waived' then paid_amount else amount end), 0), 'collected', coalesce(sum(paid_amount), 0))
        from api.bills(null, y.id)) end)
    into v_answer
    from academic_year y
    cross join (
      select core.has_whole_school_scope() and core.has_permission_for_all('fee.read')
        and 'fees_management' = any (core.tenant_features()) as fees) sees
    cross join lateral (select array(select c.id from class c where c.academic_year_id = y.id) as ids) class
    cross join lateral (
      select count(*), coalesce(json_agg(json_build_object('id', t.id, 'name', t.name, 'start_date', t.start_date, 'end_date', t.end_date) order by t.start_date), '[]') as list
      from term t where t.academic_year_id = y.id) terms
    where case when p ? 'academic_year_id' then y.id = (p ->> 'academic_year_id')::bigint else y.is_current end;
  if v_answer is null then
    perform core.fail('not_found', coalesce('There is no academic year ' || (p ->> 'academic_year_id') || '.', 'No academic year is the current one.'));
  end if;
  return v_answer;
end $$;
