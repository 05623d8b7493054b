-- /api/academic-terms: the terms of each academic year. A trigger and constraints keep them inside the year and apart.

select core.define_operation('academic_terms_list', p_permission => 'academic.read');
select core.define_operation('academic_terms_get', p_permission => 'academic.read', p_record => 'term');
select core.define_operation('academic_terms_create', p_permission => 'academic.manage', p_idempotent => true,
  p_record => 'term', p_errors => '{conflict,invalid_reference}');
select core.define_operation('academic_terms_update', p_permission => 'academic.manage', p_record => 'term',
  p_errors => '{conflict,invalid_reference}');
select core.define_operation('academic_terms_delete', p_permission => 'academic.manage', p_record => 'term');

select core.define_record('term', p_table => 'term', p_key => 't.id', p_one_row_per_key => true,
  p_source => 'term t left join academic_year y on y.id = t.academic_year_id',
  p_columns => $$
    t.id, t.name, t.academic_year_id, y.name as academic_year_name, t.start_date, t.end_date, t.created_at, t.updated_at
  $$,
  p_search => 'public.search_form(t.name)',
  p_equals => '{academic_year_id}',
  p_default_sort => 'start_date',
  p_writable => '{name,academic_year_id,start_date,end_date}');
select core.define_sort('term', 'name', 'platform.search_normal(t.name)');
select core.define_sort('term', 'start_date', 't.start_date');

select core.define_functions('academic_terms', 'term',
  p_list => 'Terms, earliest first. Searches the name. Filter: academic_year_id.',
  p_get => 'One term. Raises not_found.',
  p_create =>
    'Creates a term. Raises validation_error if it lies outside its academic year, conflict if it overlaps another '
    'term of the year or has the same name.',
  p_update => 'Updates a term, including its academic year. Raises the same errors as creation.',
  p_delete => 'Deletes a term.');
