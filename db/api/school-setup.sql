-- /api/school-setup: what a new school says of itself before it begins. Every step may be sent again.

select core.define_operation('school_setup_status');
select core.define_operation('school_setup_complete', p_permission => 'setup.manage',
  p_errors => '{setup_incomplete,invalid_state}');
select core.define_operation('school_setup_school_info', p_permission => 'setup.manage', p_content => 'takes',
  p_errors => '{invalid_state}');
select core.define_operation('school_setup_logo', p_content => 'gives', p_errors => '{not_found}');
select core.define_operation('school_setup_academic_year', p_permission => 'setup.manage',
  p_errors => '{not_found,conflict}');
select core.define_operation('school_setup_grades', p_permission => 'setup.manage', p_errors => '{conflict}');

-- The steps of the setup: done or not is what the tables say.
create function api.setup_steps() returns table (name text, is_complete boolean, missing text) language sql stable as $$
  select s.name, s.is_complete, case when not s.is_complete then s.missing end
  from (values
    ('school_info', exists (select from school), 'Say who the school is: POST /api/school-setup/school-info.'),
    ('academic_year', exists (select from academic_year where is_current), 'Add the current academic year: POST /api/school-setup/academic-year.'),
    ('grades', exists (select from grade), 'Add grades: POST /api/school-setup/grades.')
  ) s (name, is_complete, missing);
$$;
comment on function api.setup_steps is 'The steps of the setup, in order; missing says what to do.';

-- What the school says of itself.
create function api.school_info() returns json language sql stable as $$
  select json_build_object('name', core.tenant_summary() -> 'name', 'address', s.address, 'phone', s.phone, 'email', s.email, 'website', s.website,
    'currency', coalesce(s.currency, 'USD'), 'invoice_reminders', coalesce(s.invoice_reminders, true),
    'is_impersonation_allowed', core.is_impersonation_allowed(), 'logo_url', '/api/school-setup/logo?v=' || s.logo_id)
  from (values (true)) one left join school s on true;
$$;
comment on function api.school_info is 'What the school says of itself; its name stands in platform.tenant.';

-- How far the setup is, with what it has brought so far.
create function api.school_setup_status(p jsonb) returns json language sql stable as $$
  select json_build_object(
    'is_complete', core.tenant_summary() -> 'is_setup_complete',
    'steps_completed', coalesce(json_agg(s.name) filter (where s.is_complete), '[]'),
    'steps_missing', coalesce(json_agg(s.name) filter (where not s.is_complete), '[]'),
    'steps', json_agg(s),
    'school', api.school_info(),
    'academic_year', (select json_build_object('id', y.id, 'name', y.name, 'start_date', y.start_date, 'end_date', y.end_date) from academic_year y where y.is_current),
    'grade_count', (select count(*) from grade))
  from api.setup_steps() s;
$$;

-- Closes the setup; setup_incomplete names each step that is missing. A setup that is complete stays so.
create function api.school_setup_complete(p jsonb) returns json language plpgsql as $$
declare
  v_message text;
  v_missing json;
begin
  if not (core.tenant_summary() ->> 'is_setup_complete')::boolean then
    select string_agg(missing, ' '), json_agg(json_build_object('path', name, 'message', missing)) into v_message, v_missing
      from api.setup_steps() where not is_complete;
    if v_missing is not null then
      perform core.fail('setup_incomplete', 'The setup is not complete. ' || v_message, v_missing);
    end if;
    perform core.setup_complete();
  end if;
  return api.school_setup_status(p);
end $$;

-- Changes what is given; a logo takes the place of the one before, null removes it. Whether operators may log in for admins is for an admin to
-- say: forbidden to others.
create function api.school_setup_school_info(p jsonb) returns json language plpgsql as $$
declare
  v_old_logo_id bigint;
begin
  if p ? 'name' then
    perform core.school_rename(p ->> 'name');
  end if;
  if p ? 'is_impersonation_allowed' then
    perform core.school_allow_impersonation((p ->> 'is_impersonation_allowed')::boolean);
  end if;
  insert into school default values on conflict do nothing;
  select logo_id into v_old_logo_id from school for update;
  update school s
    set (address, phone, email, website, currency, invoice_reminders, logo_id) = (
      select n.address, n.phone, n.email, n.website, n.currency, n.invoice_reminders, n.logo_id
      from jsonb_populate_record(s, p || case when p ? 'file_id' or p ? 'logo' then jsonb_build_object('logo_id', p -> 'file_id') else '{}' end) n);
  if p ? 'file_id' or p ? 'logo' then
    delete from file where id = v_old_logo_id;
  end if;
  return api.school_info();
end $$;

-- The logo of the school; not_found without one.
create function api.school_setup_logo(p jsonb) returns json language sql stable as $$
  select api.file_answer((select logo_id from school), 'logo');
$$;

-- Adds the year as the current one, or changes the year of that name and makes it so; a conflict when it overlaps another.
create function api.school_setup_academic_year(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  perform api.lock_current_year();
  select id into v_id from academic_year where lower(name) = lower(p ->> 'name') for no key update;
  perform api.leave_current_year(v_id);
  p := p || jsonb_build_object('id', v_id, 'is_current', true);
  perform api.require_year_length(p);
  if v_id is null then
    v_id := core.record_insert('academic_year', p);
  else
    perform core.record_update('academic_year', p);
  end if;
  return api.academic_year_record(v_id);
end $$;

-- Adds the grades that the school has not, by name, and changes the sequence of those that it has; answers all of them.
create function api.school_setup_grades(p jsonb) returns json language plpgsql as $$
declare
  v_again bigint;
  v_grades json;
begin
  select min(g.position) into v_again
    from (select position, row_number() over (partition by lower(value ->> 'name') order by position) as nth
          from jsonb_array_elements(p -> 'grades') with ordinality given (value, position)) g
    where g.nth > 1;
  if v_again is not null then
    perform core.refuse_field('validation_error', format('grades.%s.name', v_again - 1), 'This grade is named twice.');
  end if;
  insert into grade as g (name, sequence)
    select value ->> 'name', (value ->> 'sequence')::integer from jsonb_array_elements(p -> 'grades') with ordinality given (value, position) order by position
    on conflict (lower(name)) do update set sequence = excluded.sequence where g.sequence is distinct from excluded.sequence and excluded.sequence is not null;
  select json_agg(json_build_object('id', id, 'name', name, 'sequence', sequence, 'description', description, 'created_at', created_at, 'updated_at', updated_at)
      order by sequence, platform.search_normal(name), id)
    into v_grades from grade;
  return v_grades;
end $$;
