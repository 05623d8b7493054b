-- /api/finance/fee-structures: the components of a fee for an academic year, and the classes whose students pay it.

select core.define_operation('fee_structures_list', p_permission => 'fee.read', p_feature => 'fees_management');
select core.define_operation('fee_structures_get', p_permission => 'fee.read', p_feature => 'fees_management',
  p_record => 'fee_structure');
select core.define_operation('fee_structures_create', p_permission => 'fee.manage', p_feature => 'fees_management',
  p_idempotent => true, p_record => 'fee_structure', p_errors => '{conflict,invalid_reference}');
select core.define_operation('fee_structures_update', p_permission => 'fee.manage', p_feature => 'fees_management',
  p_record => 'fee_structure', p_errors => '{conflict,in_use,invalid_reference}');
select core.define_operation('fee_structures_delete', p_permission => 'fee.manage', p_feature => 'fees_management',
  p_record => 'fee_structure', p_errors => '{in_use}');
select core.define_operation('fee_structures_components_create', p_permission => 'fee.manage',
  p_feature => 'fees_management', p_idempotent => true, p_reader => 'fee_structures_list', p_errors => '{conflict}');
select core.define_operation('fee_structures_components_delete', p_permission => 'fee.manage',
  p_feature => 'fees_management', p_errors => '{in_use}');
select core.define_operation('fee_structures_assign_classes', p_permission => 'fee.manage',
  p_feature => 'fees_management', p_record => 'fee_structure', p_errors => '{conflict,invalid_reference}');

select core.define_record('fee_structure', p_table => 'fee_structure', p_key => 'fs.id', p_one_row_per_key => true,
  p_source => 'fee_structure fs left join academic_year y on y.id = fs.academic_year_id',
  p_columns => $$
    fs.id, fs.name, fs.academic_year_id, y.name as academic_year_name, fs.description, fs.due_date,
    (select coalesce(json_agg(json_build_object('id', c.id, 'name', c.name, 'amount', c.amount, 'frequency',
      c.frequency) order by c.id), '[]')
       from fee_component c where c.fee_structure_id = fs.id) as components,
    (select coalesce(json_agg(json_build_object('id', c.id, 'name', api.class_name(c.name, c.section)) order by c.id),
      '[]')
       from fee_structure_class fc join class c on c.id = fc.class_id where fc.fee_structure_id = fs.id) as classes,
    (select coalesce(sum(c.amount), 0) from fee_component c where c.fee_structure_id = fs.id) as total,
    fs.created_at, fs.updated_at
  $$,
  p_search => $$public.search_form(concat_ws(' ', fs.name, fs.description))$$,
  p_equals => '{academic_year_id}',
  p_default_sort => 'name',
  p_writable => '{name,academic_year_id,description,due_date}');
select core.define_filter('fee_structure', 'class_id', $$
  fs.id in (select fee_structure_id from fee_structure_class where class_id = :value::bigint)
$$);
select core.define_sort('fee_structure', 'name', 'platform.search_normal(fs.name)');
select core.define_sort('fee_structure', 'due_date', 'fs.due_date nulls last');
select core.define_sort('fee_structure', 'created_at', 'fs.created_at');

select core.define_functions('fee_structures', 'fee_structure',
  p_list =>
    'Fee structures by name. Searches name and description. Filters: academic_year_id, class_id (assigned classes).',
  p_get => 'One fee structure with its components and classes. Raises not_found.',
  p_delete => 'Deletes a fee structure with its components. Raises in_use if students have been billed with it.');

create function api.fee_structure_set_components(p_id bigint, p_components jsonb) returns void language plpgsql as $$
declare
  v_decimals integer := core.currency_decimals(core.school_currency());
  v_given jsonb;
  v_kept_ids bigint[];
  v_fault record;
begin
  with requested as (
    select position, (c ->> 'id')::bigint as id, c ->> 'name' as name, c ->> 'amount' as amount,
      c ->> 'frequency' as frequency
    from jsonb_array_elements(p_components) with ordinality e (c, position)
  )
  select
      jsonb_agg(jsonb_build_object(
        'position', g.position - 1, 'given_id', g.id, 'id', c.id, 'name', g.name, 'amount', g.amount,
        'frequency', g.frequency,
        -- A component is billed once per period, so a billed one must keep its periods.
        'changes_billed_frequency', c.frequency <> g.frequency
          and exists (select from student_fee_item i where i.fee_component_id = c.id))),
      coalesce(array_agg(c.id) filter (where c.id is not null), '{}')
    into v_given, v_kept_ids
    from requested g
    left join lateral (
      select f.*
      from fee_component f
      where f.fee_structure_id = p_id
        and (f.id = g.id
          or (g.id is null and core.name_key(f.name) = core.name_key(g.name)
            and f.id not in (select o.id from requested o where o.id is not null)))
      -- Names that were stored before white space was normalized can have the same key.
      order by lower(f.name) = lower(g.name) desc, f.id
      limit 1
    ) c on true;

  select position, given_id
    into v_fault
    from jsonb_to_recordset(v_given) g (position integer, given_id bigint, id bigint)
    where id is null and given_id is not null
    limit 1;
  if found then
    perform core.refuse_field('invalid_reference', format('components.%s.id', v_fault.position),
      format('This fee structure has no component %s.', v_fault.given_id));
  end if;
  select position, name
    into v_fault
    from jsonb_to_recordset(v_given) g (position integer, name text, changes_billed_frequency boolean)
    where changes_billed_frequency
    limit 1;
  if found then
    perform core.refuse_field('in_use', format('components.%s.frequency', v_fault.position), format(
      '%s has been billed, so its frequency cannot change. Add another component instead.', v_fault.name));
  end if;
  select c.name
    into v_fault
    from fee_component c
    where c.fee_structure_id = p_id and c.id <> all (v_kept_ids)
      and exists (select from student_fee_item i where i.fee_component_id = c.id)
    limit 1;
  if found then
    perform core.refuse_field('in_use', 'components',
      format('%s has been billed and cannot be removed.', v_fault.name));
  end if;

  delete from fee_component where fee_structure_id = p_id and id <> all (v_kept_ids);
  -- Names are unique. Temporary ones allow two components to swap names.
  update fee_component c
    set name = format('(%s)', c.id)
    from jsonb_to_recordset(v_given) g (id bigint, name text)
    where c.id = g.id and lower(c.name) <> lower(g.name);
  update fee_component c
    set name = g.name, amount = core.as_amount(g.amount, v_decimals, c.amount), frequency = g.frequency
    from jsonb_to_recordset(v_given) g (id bigint, name text, amount numeric, frequency text)
    where c.id = g.id;
  insert into fee_component (fee_structure_id, name, amount, frequency)
    select p_id, g.name, core.as_amount(g.amount, v_decimals), g.frequency
    from jsonb_to_recordset(v_given) g (position integer, id bigint, name text, amount numeric, frequency text)
    where g.id is null
    order by position;
end $$;
comment on function api.fee_structure_set_components is
  'Replaces the components of a fee structure: [{id, name, amount, frequency}]. A component without an id updates the '
  'one with the same name or adds one; components not listed are removed. Raises invalid_reference for an unknown id, '
  'in_use for a removed component or another frequency after billing.';

create function api.fee_structure_set_classes(p_id bigint, p_class_ids bigint[]) returns void language plpgsql as $$
declare
  v_year_id bigint := (select academic_year_id from fee_structure where id = p_id);
  v_unknown_id bigint;
  v_scope text;
begin
  -- The lock keeps the classes in their academic year until this transaction ends.
  perform from class where id = any (p_class_ids) order by id for key share;
  select i
    into v_unknown_id
    from unnest(p_class_ids) i
    where not exists (select from class where id = i and academic_year_id = v_year_id)
    limit 1;
  if found then
    perform core.refuse_field('invalid_reference', 'class_ids',
      format('There is no class %s in the academic year of this fee structure.', v_unknown_id));
  end if;
  -- A user who does not see the whole school removes only classes that they teach.
  delete from fee_structure_class
    where fee_structure_id = p_id and class_id <> all (p_class_ids)
      and api.reaches_whole_class(class_id);
  v_scope := core.widen_scope();
  if exists (
    select from fee_structure_class fc
    join class c on c.id = fc.class_id
    where fc.fee_structure_id = p_id and c.academic_year_id <> v_year_id) then
    perform core.refuse_field('conflict', 'academic_year_id',
      'Classes that you do not teach are assigned to this fee structure, so its academic year cannot change.');
  end if;
  perform core.restore_scope(v_scope);
  insert into fee_structure_class (fee_structure_id, class_id)
    select distinct p_id, i
    from unnest(p_class_ids) i
    on conflict do nothing;
end $$;
comment on function api.fee_structure_set_classes is
  'Replaces the classes of a fee structure. A user who does not see the whole school removes only classes that they '
  'teach. Raises invalid_reference for a class of another academic year, conflict if a class of another year stays.';

create function api.fee_structures_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := core.record_insert('fee_structure', p);
begin
  if p ? 'components' then
    perform api.fee_structure_set_components(v_id, p -> 'components');
  end if;
  if p ? 'class_ids' then
    perform api.fee_structure_set_classes(v_id, array(select jsonb_array_elements_text(p -> 'class_ids')::bigint));
  end if;
  return api.fee_structure_record(v_id);
end $$;
comment on function api.fee_structures_create is
  'Creates a fee structure, optionally with {components, class_ids}. Raises conflict for a name that exists in the '
  'academic year, invalid_reference for a class of another year.';

create function api.fee_structures_update(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_year_id bigint := (select academic_year_id from fee_structure where id = v_id);
begin
  perform core.record_update('fee_structure', p);
  if p ? 'components' then
    perform api.fee_structure_set_components(v_id, p -> 'components');
  end if;
  if v_year_id <> (p ->> 'academic_year_id')::bigint
      or p ->> 'academic_year_id' is not null and not core.may_compare() then
    if exists (select from student_fee where fee_structure_id = v_id) then
      perform core.refuse_field('in_use', 'academic_year_id',
        'Students have been billed with this fee structure, so its academic year cannot change.');
    end if;
    -- Without class_ids the present classes are checked against the new year.
    p := jsonb_build_object('class_ids',
      (select coalesce(jsonb_agg(class_id), '[]') from fee_structure_class where fee_structure_id = v_id)) || p;
  end if;
  if p ? 'class_ids' then
    perform api.fee_structure_set_classes(v_id, array(select jsonb_array_elements_text(p -> 'class_ids')::bigint));
  end if;
  return api.fee_structure_record(v_id);
end $$;
comment on function api.fee_structures_update is
  'Updates a fee structure. {components, class_ids} replace the present ones; existing student fees keep their names '
  'and amounts. Raises conflict for a duplicate name, invalid_reference for a class of another year, in_use for '
  'another academic year after billing.';

create function api.fee_structures_components_create(p jsonb) returns json language plpgsql as $$
declare
  v_answer json;
begin
  perform core.record_lock('fee_structure', (p ->> 'id')::bigint);
  insert into fee_component (fee_structure_id, name, amount, frequency)
    values (
      (p ->> 'id')::bigint, p ->> 'name',
      core.as_amount((p ->> 'amount')::numeric, core.currency_decimals(core.school_currency())), p ->> 'frequency')
    returning json_build_object(
      'id', id, 'fee_structure_id', fee_structure_id, 'name', name, 'amount', amount, 'frequency', frequency,
      'created_at', created_at, 'updated_at', updated_at)
    into v_answer;
  return v_answer;
end $$;
comment on function api.fee_structures_components_create is
  'Adds a component to a fee structure and returns it. Raises not_found for the fee structure, conflict for a '
  'duplicate name.';

create function api.fee_structures_components_delete(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
  v_component_id bigint := (p ->> 'component_id')::bigint;
begin
  perform core.record_lock('fee_structure', v_id);
  if exists (
    select from student_fee_item i
    join fee_component c on c.id = i.fee_component_id
    where c.id = v_component_id and c.fee_structure_id = v_id
  ) then
    perform core.fail('in_use', 'This component has been billed and cannot be removed.');
  end if;
  delete from fee_component where id = v_component_id and fee_structure_id = v_id;
  if not found then
    perform core.fail('not_found', format('This fee structure has no component %s.', v_component_id));
  end if;
  return json_build_object('id', v_component_id);
end $$;
comment on function api.fee_structures_components_delete is
  'Deletes a component: {id, component_id}. Raises not_found for a component of another fee structure, in_use after '
  'billing.';

create function api.fee_structures_assign_classes(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := (p ->> 'id')::bigint;
begin
  perform api.fee_structure_set_classes(v_id, array(select jsonb_array_elements_text(p -> 'class_ids')::bigint));
  return api.fee_structure_record(v_id);
end $$;
comment on function api.fee_structures_assign_classes is
  'Replaces the classes of a fee structure: {class_ids}. Existing student fees do not change. Raises '
  'invalid_reference for a class of another academic year.';
