-- /api/academic-terms: the parts of a school year.

insert into core.operation (name, access, permission, writes, idempotent, record) values
  ('academic_terms_list', 'tenant', 'academic.read', false, false, null),
  ('academic_terms_get', 'tenant', 'academic.read', false, false, 'term'),
  ('academic_terms_create', 'tenant', 'academic.manage', true, true, 'term'),
  ('academic_terms_update', 'tenant', 'academic.manage', true, false, 'term'),
  ('academic_terms_delete', 'tenant', 'academic.manage', true, false, 'term');

select core.define_record('term', p_table => 'term', p_key => 't.id', p_source => 'term t left join academic_year y on y.id = t.academic_year_id',
  p_columns => 't.id, t.name, t.academic_year_id, y.name as academic_year_name, t.start_date, t.end_date, t.created_at, t.updated_at',
  p_search => 'platform.search_normal(t.name)',
  p_filters => '{"academic_year_id": "t.academic_year_id = :value::bigint"}',
  p_default_sort => 'start_date', p_sorts => $${
    "name": ["platform.search_normal(t.name)"],
    "start_date": ["t.start_date"]
  }$$,
  p_writable => '{name,academic_year_id,start_date,end_date}');

select core.define_functions('academic_terms', 'term', '{
  "list": "Terms, the earliest first; search over the name, filter academic_year_id.",
  "get": "One term, or not_found.",
  "create": "Outside its year it is a validation_error; a term of the year that it overlaps, or that has its name, is a conflict.",
  "update": "Changes what is given, its year too; refuses what creating refuses.",
  "delete": "Removes the term."
}');
