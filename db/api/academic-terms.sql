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

-- Terms, the earliest first; search over the name, filter academic_year_id.
create function api.academic_terms_list(p jsonb) returns json language sql stable as $$
  select core.page('term', p);
$$;

-- One term, or not_found.
create function api.academic_terms_get(p jsonb) returns json language sql stable as $$
  select api.term_record((p ->> 'id')::bigint);
$$;

-- Outside its year it is a validation_error; a term of the year that it overlaps, or that has its name, is a conflict.
create function api.academic_terms_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint := core.insert('term', p);
begin
  return api.term_record(v_id);
end $$;

-- Changes what is given, its year too; refuses what creating refuses.
create function api.academic_terms_update(p jsonb) returns json language plpgsql as $$
begin
  perform core.update('term', p);
  return api.term_record((p ->> 'id')::bigint);
end $$;

-- Removes the term.
create function api.academic_terms_delete(p jsonb) returns json language plpgsql as $$
begin
  delete from term where id = (p ->> 'id')::bigint;
  return json_build_object('id', (p ->> 'id')::bigint);
end $$;
