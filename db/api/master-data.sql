-- /api/grades, /api/school-units, /api/programmes, /api/mediums, /api/religions, /api/subject-contexts and
-- /api/document-types: the reference lists of a school. All have the same fields, so one row below defines the
-- operations, the record and the functions of a list.

do $install$
declare
  v_list record;
begin
  for v_list in
    select name, plural, replace(plural, '_', ' ') as words from (values
      ('grade', 'grades'),
      ('school_unit', 'school_units'),
      ('programme', 'programmes'),
      ('medium', 'mediums'),
      ('religion', 'religions'),
      ('subject_context', 'subject_contexts'),
      ('document_type', 'document_types')
    ) list (name, plural)
  loop
    -- Reading needs no permission, because every user of the school sees these lists in forms and filters.
    perform core.define_operation(v_list.plural || '_list', p_needs_session => false);
    perform core.define_operation(v_list.plural || '_get', p_needs_session => false, p_record => v_list.name);
    perform core.define_operation(v_list.plural || '_create', p_permission => 'master_data.manage',
      p_idempotent => true, p_record => v_list.name, p_errors => '{conflict}');
    perform core.define_operation(v_list.plural || '_update', p_permission => 'master_data.manage',
      p_record => v_list.name, p_errors => '{conflict}');
    perform core.define_operation(v_list.plural || '_delete', p_permission => 'master_data.manage',
      p_record => v_list.name, p_errors => '{in_use}');

    perform core.define_record(v_list.name, p_table => v_list.name, p_key => 'm.id', p_one_row_per_key => true,
      p_source => v_list.name || ' m',
      p_columns => 'm.id, m.name, m.sequence, m.description, m.created_at, m.updated_at',
      p_search => $$public.search_form(m.name || ' ' || coalesce(m.description, ''))$$,
      p_default_sort => 'sequence',
      p_writable => '{name,sequence,description}');
    perform core.define_sort(v_list.name, 'name', 'platform.search_normal(m.name)');
    perform core.define_sort(v_list.name, 'sequence', 'm.sequence nulls last', 'platform.search_normal(m.name)');
    perform core.define_sort(v_list.name, 'created_at', 'm.created_at');

    perform core.define_functions(v_list.plural, v_list.name,
      p_list => format(
        'The %s by sequence, entries without a sequence last, then by name. Searches name and description.',
        v_list.words),
      p_get => format('One of the %s. Raises not_found.', v_list.words),
      p_create => format('Adds to the %s. Raises conflict for a name that is in use.', v_list.words),
      p_update => format('Updates one of the %s. Raises conflict for a name that is in use.', v_list.words),
      p_delete => format(
        'Deletes one of the %s. Raises in_use, naming what refers to it, also if only deleted students do.',
        v_list.words));
  end loop;
end $install$;
