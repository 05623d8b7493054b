-- /api/grades, /api/school-units, /api/programmes, /api/mediums, /api/religions, /api/subject-contexts, /api/document-types:
-- lists that each school keeps, all alike. A line here gives one its operations, its record and its functions.

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
    -- Forms and filters show them to everybody of the school: reading needs no permission.
    insert into core.operation (name, access, permission, writes, idempotent, record) values
      (v_list.plural || '_list', 'tenant', null, false, false, null),
      (v_list.plural || '_get', 'tenant', null, false, false, v_list.name),
      (v_list.plural || '_create', 'tenant', 'master_data.manage', true, true, v_list.name),
      (v_list.plural || '_update', 'tenant', 'master_data.manage', true, false, v_list.name),
      (v_list.plural || '_delete', 'tenant', 'master_data.manage', true, false, v_list.name);

    perform core.define_record(v_list.name, p_table => v_list.name, p_key => 'm.id', p_source => v_list.name || ' m',
      p_columns => 'm.id, m.name, m.sequence, m.description, m.created_at, m.updated_at',
      p_search => $$platform.search_normal(m.name || ' ' || coalesce(m.description, ''))$$,
      p_default_sort => 'sequence', p_sorts => $${
        "name": ["platform.search_normal(m.name)"],
        "sequence": ["m.sequence nulls last", "platform.search_normal(m.name)"],
        "created_at": ["m.created_at"]
      }$$,
      p_writable => '{name,sequence,description}');

    perform core.define_functions(v_list.plural, v_list.name, jsonb_build_object(
      'list', format('The %s by sequence, those without one last, then by name; search over name and description.', v_list.words),
      'get', format('One of the %s, or not_found.', v_list.words),
      'create', format('Adds to the %s; conflict when the name is taken.', v_list.words),
      'update', format('Changes one of the %s; conflict when the name is taken.', v_list.words),
      'delete', format('Removes one of the %s; in_use says by what.', v_list.words)));
  end loop;
end $install$;
