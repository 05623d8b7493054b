-- /api/school-setup: the steps with which a new school enters its basic data. Every step may be repeated.

select core.define_operation('school_setup_status', p_needs_session => false);
select core.define_operation('school_setup_complete', p_permission => 'setup.manage',
  p_errors => '{setup_incomplete,invalid_state}');
select core.define_operation('school_setup_school_info', p_permission => 'setup.manage', p_content => 'takes',
  p_present => 'stored_school_info', p_locked_by => 'lock_school_info',
  p_unversioned_fields => '{logo,logo_url,warnings}', p_errors => '{invalid_state}');
select core.define_operation('school_setup_logo', p_needs_session => false, p_content => 'gives',
  p_errors => '{not_found}');
select core.define_operation('school_setup_academic_year', p_permission => 'setup.manage',
  p_present => 'itself', p_reader => 'academics_years_get', p_errors => '{not_found,conflict}');
select core.define_operation('school_setup_grades', p_permission => 'setup.manage', p_errors => '{conflict}');

create function api.setup_steps() returns table (name text, is_complete boolean, missing text)
language sql stable as $$
  select s.name, s.is_complete, case when not s.is_complete then s.missing end
  from (values
    ('school_info', exists (select from school),
      'Enter the school information: POST /api/school-setup/school-info.'),
    ('academic_year', exists (select from academic_year where is_current),
      'Create the current academic year: POST /api/school-setup/academic-year.'),
    ('grades', exists (select from grade),
      'Create grades: POST /api/school-setup/grades.')
  ) s (name, is_complete, missing);
$$;
comment on function api.setup_steps is
  'The steps of the setup in order. A step is complete as soon as its table has data; missing is the instruction for '
  'an incomplete step.';

create function api.school_info() returns json language sql stable as $$
  select json_build_object(
    'name', core.tenant_summary() -> 'name',
    'address', s.address,
    'phone', s.phone,
    'email', s.email,
    'website', s.website,
    'currency', coalesce(s.currency, 'USD'),
    'currency_decimals', core.currency_decimals(coalesce(s.currency, 'USD')),
    'locale', coalesce(s.locale, 'en-GB'),
    'invoice_reminders', coalesce(s.invoice_reminders, true),
    'payment_details', s.payment_details,
    'is_impersonation_allowed', core.is_impersonation_allowed(),
    'is_second_factor_required', core.is_second_factor_required(),
    'action_url_hosts', coalesce(s.action_url_hosts, '{}'),
    'logo', logo.url,
    'logo_url', logo.url)
  from (values (true)) one_row
  left join school s on true
  cross join lateral (select coalesce(s.logo_address, core.picture_url(s.logo_id)) as url) logo;
$$;
comment on function api.school_info is
  'Name, contact data and settings of the school, with defaults before the first step. The name comes from '
  'platform.tenant.';

create function api.stored_school_info(p jsonb) returns json language sql stable as $$
  select api.school_info() where exists (select from school);
$$;
comment on function api.stored_school_info is
  'The school information if the step is complete. Entering the defaults completes it, although it changes no value.';

create function api.lock_school_info(p jsonb) returns void language plpgsql as $$
begin
  perform from school for no key update;
end $$;
comment on function api.lock_school_info is 'Locks the school information.';

create function api.currency_warnings(p_currency text) returns json language plpgsql stable as $$
declare
  v_decimals integer := core.currency_decimals(p_currency);
  v_scope text := core.widen_scope();
  v_counts text;
begin
  select string_agg(format('%s %s', count, case count when 1 then singular else singular || 's' end), ', ' order by n)
    into v_counts
    from (values
      (1, 'fee component', (select count(*) from fee_component where min_scale(amount) > v_decimals)),
      (2, 'student fee', (select count(*) from student_fee where min_scale(amount) > v_decimals)),
      (3, 'invoice', (select count(*) from invoice i where min_scale(amount) > v_decimals
        or exists (select from invoice_item t where t.invoice_id = i.id and min_scale(t.amount) > v_decimals))),
      (4, 'payment', (select count(*) from payment where min_scale(amount) > v_decimals))
    ) stored (n, singular, count)
    where count > 0;
  perform core.restore_scope(v_scope);
  if v_counts is null then
    return null;
  end if;
  return json_build_array(json_build_object(
    'path', 'currency',
    'message', format(
      'Stored amounts have more decimals than %s: %s. They are not changed, and open bills can be paid as they are.',
      p_currency, v_counts)));
end $$;
comment on function api.currency_warnings is
  'How many stored amounts have more decimals than a currency: [{path, message}]. Null if none has.';

create function api.audited_school() returns jsonb language sql stable as $$
  select jsonb_build_object('name', core.tenant_summary() -> 'name')
    || coalesce((select to_jsonb(s) - 'id' from school s), '{}');
$$;
comment on function api.audited_school is 'The school information as the audit log shows it.';

create function api.school_setup_status(p jsonb) returns json language sql stable as $$
  select json_build_object(
    'is_complete', core.tenant_summary() -> 'is_setup_complete',
    'steps_completed', coalesce(json_agg(s.name) filter (where s.is_complete), '[]'),
    'steps_missing', coalesce(json_agg(s.name) filter (where not s.is_complete), '[]'),
    'steps', json_agg(s),
    'school', api.school_info(),
    'academic_year', (
      select json_build_object('id', y.id, 'name', y.name, 'start_date', y.start_date, 'end_date', y.end_date)
      from academic_year y
      where y.is_current),
    'grade_count', (select count(*) from grade),
    'today', core.today(),
    'time_zone', core.time_zone())
  from api.setup_steps() s;
$$;
comment on function api.school_setup_status is
  'The progress of the setup and the data entered so far, and the day and the time zone of the school.';

create function api.school_setup_complete(p jsonb) returns json language plpgsql as $$
declare
  v_message text;
  v_missing json;
begin
  if not (core.tenant_summary() ->> 'is_setup_complete')::boolean then
    select string_agg(missing, ' '), json_agg(json_build_object('path', name, 'message', missing))
      into v_message, v_missing
      from api.setup_steps()
      where not is_complete;
    if v_missing is not null then
      perform core.fail('setup_incomplete', 'The setup is not complete. ' || v_message, v_missing);
    end if;
    perform core.setup_complete();
  end if;
  return api.school_setup_status(p);
end $$;
comment on function api.school_setup_complete is
  'Completes the setup; it stays complete even if data is deleted later. Raises setup_incomplete, naming each missing '
  'step.';

create function api.school_setup_school_info(p jsonb) returns json language plpgsql as $$
declare
  v_changes_logo boolean := p ? 'file_id' or p ? 'logo';
  v_address text := case when not p ? 'file_id' then p ->> 'logo' end;
  v_returned_logo_id bigint := core.picture_file_id(v_address);
  v_old_logo_id bigint;
  v_before jsonb := api.audited_school();
  v_currency text := core.school_currency();
  v_warnings json;
begin
  if p ? 'name' then
    perform core.school_rename(p ->> 'name');
  end if;
  if p ? 'is_impersonation_allowed' then
    perform core.school_allow_impersonation((p ->> 'is_impersonation_allowed')::boolean);
  end if;
  if p ? 'is_second_factor_required' then
    perform core.school_require_second_factor((p ->> 'is_second_factor_required')::boolean);
  end if;
  insert into school default values on conflict do nothing;
  select logo_id into v_old_logo_id from school for update;
  -- A client may send the record back as it read it.
  if v_returned_logo_id = v_old_logo_id then
    v_changes_logo := false;
  elsif v_returned_logo_id is not null or v_address like '/%' then
    perform core.refuse_field('validation_error', 'logo', 'This is not the address of the current logo.');
  end if;
  update school s
    set (address, phone, email, website, currency, locale, invoice_reminders, payment_details, action_url_hosts,
        logo_id, logo_address) = (
      select n.address, n.phone, n.email, n.website, n.currency, n.locale, n.invoice_reminders, n.payment_details,
        n.action_url_hosts, n.logo_id, n.logo_address
      from jsonb_populate_record(
        s,
        p || case
          when v_changes_logo then jsonb_build_object('logo_id', p -> 'file_id', 'logo_address', v_address)
          else '{}'
        end) n);
  if v_changes_logo then
    delete from file where id = v_old_logo_id;
  end if;
  perform core.audit_school('school_info.update', null, v_before, api.audited_school());
  if p ->> 'currency' <> v_currency then
    v_warnings := api.currency_warnings(p ->> 'currency');
  end if;
  if v_warnings is null then
    return api.school_info();
  end if;
  return api.school_info()::jsonb || jsonb_build_object('warnings', v_warnings);
end $$;
comment on function api.school_setup_school_info is
  'Updates the school information. file_id is an uploaded logo and replaces the previous one; logo is an https '
  'address, the address of the current logo to keep it, or null to delete it. warnings says how many stored amounts '
  'have more decimals than a new currency. Raises forbidden '
  'for is_impersonation_allowed and is_second_factor_required unless the user is an admin; invalid_state for an admin '
  'who requires a second factor but has none.';

create function api.school_setup_logo(p jsonb) returns json language sql stable as $$
  select api.file_answer((select logo_id from school), 'logo');
$$;
comment on function api.school_setup_logo is 'The logo of the school. Raises not_found if there is none.';

create function api.school_setup_academic_year(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
  v_answer json;
begin
  perform api.lock_current_year();
  select id
    into v_id
    from academic_year
    where core.name_key(name) = core.name_key(p ->> 'name')
    order by lower(name) = lower(p ->> 'name') desc, id
    limit 1
    for no key update;
  if v_id is not null and p ? 'read_only' then
    perform core.require_unchanged('academic_year', v_id, p -> 'read_only');
  end if;
  p := p || jsonb_build_object('id', v_id);
  -- A running school that prepares its next year stays in the current one.
  if not (core.tenant_summary() ->> 'is_setup_complete')::boolean
      or not exists (select from academic_year where is_current and id is distinct from v_id)
      or core.today() between (p ->> 'start_date')::date and (p ->> 'end_date')::date then
    perform api.clear_current_year(v_id);
    p := p || '{"is_current": true}';
  end if;
  perform api.require_year_length(p);
  if v_id is not null then
    v_answer := api.academic_year_record(v_id);
    if core.repeats(p - 'read_only', v_answer::jsonb) then
      return v_answer;
    end if;
    perform core.record_update('academic_year', p);
    return api.academic_year_record(v_id);
  end if;
  v_answer := api.academic_year_record(core.record_insert('academic_year', p));
  if p ? 'read_only' then
    perform core.refuse_untrue(p -> 'read_only', v_answer::jsonb);
  end if;
  return v_answer;
end $$;
comment on function api.school_setup_academic_year is
  'Creates an academic year, or updates the year with this name. Makes it the current one, except in a school that has '
  'completed its setup and has another current year, unless the year includes today. Raises conflict if it overlaps '
  'another year, validation_error for two years or more.';

create function api.school_setup_grades(p jsonb) returns json language plpgsql as $$
declare
  v_duplicate_position bigint;
  v_changed_field text;
  v_grades json;
begin
  select min(g.position)
    into v_duplicate_position
    from (
      select position, row_number() over (partition by lower(value ->> 'name') order by position) as occurrence
      from jsonb_array_elements(p -> 'grades') with ordinality input (value, position)
    ) g
    where g.occurrence > 1;
  if v_duplicate_position is not null then
    perform core.refuse_field('validation_error', format('grades.%s.name', v_duplicate_position - 1),
      'This grade is listed twice. Remove one of the two.');
  end if;
  select format('grades.%s.%s', position - 1, field.key)
    into v_changed_field
    from jsonb_array_elements(p -> 'grades') with ordinality input (value, position)
    cross join jsonb_each(value - '{name,sequence}'::text[]) field
    left join grade g on lower(g.name) = lower(input.value ->> 'name')
    where field.value <> 'null' and not core.is_as_read(field.key, input.value, coalesce(to_jsonb(g), '{}'), '{}')
    order by position
    limit 1;
  if v_changed_field is not null then
    perform core.refuse_field('validation_error', v_changed_field,
      'This is not the value of the grade with this name. Change it with PUT /api/grades/:id.');
  end if;
  insert into grade as g (name, sequence)
    select value ->> 'name', (value ->> 'sequence')::integer
    from jsonb_array_elements(p -> 'grades') with ordinality input (value, position)
    order by position
    on conflict (lower(name)) do update
      set sequence = excluded.sequence
      where g.sequence is distinct from excluded.sequence and excluded.sequence is not null;
  select json_agg(
      json_build_object(
        'id', id,
        'name', name,
        'sequence', sequence,
        'description', description,
        'created_at', created_at,
        'updated_at', updated_at)
      order by sequence, platform.search_normal(name), id)
    into v_grades
    from grade;
  return v_grades;
end $$;
comment on function api.school_setup_grades is
  'Creates the grades whose names the school does not have yet, updates the sequence of the others, and returns all '
  'grades: {grades: [{name, sequence}]}. Raises validation_error for a name that occurs twice, and for other fields of '
  'a grade that are not as they were read.';
