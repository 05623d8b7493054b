-- /api/platform/questions: the saved questions of analysts. Their texts are visible to all operators, because they
-- contain no figures. Each run shows what its caller may see, and a scheduled run what its owner may see.

select core.define_operation('platform_questions_list', p_access => 'analyst', p_needs_session => false);
select core.define_operation('platform_questions_get', p_access => 'analyst', p_needs_session => false,
  p_record => 'saved_question');
select core.define_operation('platform_questions_create', p_access => 'analyst', p_idempotent => true,
  p_record => 'saved_question', p_errors => '{conflict}');
select core.define_operation('platform_questions_update', p_access => 'analyst', p_record => 'saved_question',
  p_errors => '{forbidden,conflict}');
select core.define_operation('platform_questions_delete', p_access => 'analyst', p_record => 'saved_question',
  p_errors => '{forbidden}');
select core.define_operation('platform_questions_run', p_access => 'analyst', p_needs_session => false,
  p_errors => '{invalid_state}');

select core.define_record('saved_question', p_table => 'saved_question', p_key => 'q.id', p_one_row_per_key => true,
  p_source => 'saved_question q left join user_account o on o.id = q.owner_id',
  p_columns => $$
    q.id, q.name, q.description, q.query, q.variables, q.built_in is not null as is_built_in,
    case when o.id is not null then json_build_object('id', o.id, 'email', o.email) end as owner,
    q.schedule,
    (
      select coalesce(json_agg(r.email order by r.email), '[]')
      from user_account r
      where r.id = any (q.recipient_ids) and r.deleted_at is null
    ) as recipients,
    q.next_run_at, q.last_run_at, q.created_at, q.updated_at
  $$,
  p_search => $$public.search_form(concat_ws(' ', q.name, q.description))$$,
  p_equals => '{owner_id}',
  p_default_sort => 'name',
  p_writable => '{owner_id,name,description,query,variables,schedule,recipient_ids,next_run_at}',
  p_volatile_fields => '{next_run_at,last_run_at}');
select core.define_sort('saved_question', 'name', 'platform.search_normal(q.name)');
select core.define_sort('saved_question', 'created_at', 'q.created_at');

select core.define_functions('platform_questions', 'saved_question',
  p_list => 'Saved questions by name. Filter: owner_id. Searches name and description.',
  p_get => 'One saved question. Raises not_found.');

create function api.question_columns(p jsonb, p_owner_id bigint) returns jsonb language plpgsql as $$
declare
  v_refused text;
begin
  if p ->> 'schedule' is not null then
    -- Each run costs a query and an email for each recipient. The lock makes concurrent requests count one another.
    perform from user_account where id = p_owner_id for no key update;
    if (
      select count(*)
      from saved_question
      where owner_id = p_owner_id and schedule is not null and id is distinct from (p ->> 'id')::bigint
    ) >= 20 then
      perform core.fail('conflict', 'An operator can have at most 20 scheduled questions. Remove a schedule first.');
    end if;
  end if;
  if p ? 'schedule' then
    p := p || jsonb_build_object('next_run_at', core.next_question_run(p ->> 'schedule', now()));
  end if;
  if p ? 'recipients' then
    select string_agg(given.email, ', ' order by given.email)
      into v_refused
      from jsonb_array_elements_text(p -> 'recipients') given (email)
      left join user_account u on u.email = lower(given.email) and u.deleted_at is null
      where u.id is null or not core.may_receive_answers(p_owner_id, u.id);
    if v_refused is not null then
      perform core.refuse_field('validation_error', 'recipients', format(
        'must be active operators who may see the schools of the owner. Remove %s.', v_refused));
    end if;
    p := p || jsonb_build_object('recipient_ids', (
      select coalesce(jsonb_agg(distinct u.id), '[]')
      from jsonb_array_elements_text(p -> 'recipients') given (email)
      join user_account u on u.email = lower(given.email) and u.deleted_at is null));
  end if;
  return p - 'recipients';
end $$;
comment on function api.question_columns is
  'The columns of a question from a request: the time of the next run, and the ids of the recipients. Raises '
  'validation_error for a recipient who may not see everything that the owner sees, conflict for a schedule if the '
  'owner has 20.';

create function api.question_to_change(p_id bigint) returns platform.saved_question language plpgsql as $$
declare
  v_question saved_question;
begin
  select * into v_question from saved_question where id = p_id;
  if v_question.built_in is not null then
    perform core.fail('forbidden', 'A built-in question cannot be changed. Save a copy of it.');
  elsif v_question.owner_id <> core.user_id()
      and (core.operator_access()).role <> 'admin' then
    perform core.fail('forbidden', 'Only the owner of the question and platform administrators can change it.');
  end if;
  return v_question;
end $$;
comment on function api.question_to_change is
  'A question that the caller may change. Raises forbidden for a built-in one and for that of another analyst.';

create function api.platform_questions_create(p jsonb) returns json language plpgsql as $$
declare
  v_id bigint;
begin
  v_id := core.record_insert('saved_question',
    api.question_columns(p, core.user_id()) || jsonb_build_object('owner_id', core.user_id()));
  return api.audited('saved_question.create', null, api.saved_question_record(v_id));
end $$;
comment on function api.platform_questions_create is
  'Saves a question of the caller. Audited. Raises the errors of api.question_columns.';

create function api.platform_questions_update(p jsonb) returns json language plpgsql as $$
declare
  v_question platform.saved_question := api.question_to_change((p ->> 'id')::bigint);
  v_before jsonb := api.saved_question_record(v_question.id);
begin
  perform core.record_update('saved_question', api.question_columns(p, v_question.owner_id));
  return api.audited('saved_question.update', v_before, api.saved_question_record(v_question.id));
end $$;
comment on function api.platform_questions_update is
  'Changes a question, also its schedule. Audited. Raises the errors of api.question_to_change and question_columns.';

create function api.platform_questions_delete(p jsonb) returns json language plpgsql as $$
declare
  v_question platform.saved_question := api.question_to_change((p ->> 'id')::bigint);
  v_before jsonb := api.saved_question_record(v_question.id);
begin
  delete from saved_question where id = v_question.id;
  return api.audited('saved_question.delete', v_before, null);
end $$;
comment on function api.platform_questions_delete is
  'Deletes a question and its schedule. Audited. Raises the errors of api.question_to_change.';

create function api.platform_questions_run(p jsonb) returns json language plpgsql stable as $$
declare
  v_question json := api.saved_question_record((p ->> 'id')::bigint);
begin
  return json_build_object('name', v_question -> 'name', 'query', v_question -> 'query',
    'variables', v_question -> 'variables', 'tenant_ids', api.analytics_admit('{}') -> 'tenant_ids');
end $$;
comment on function api.platform_questions_run is
  '{name, query, variables, tenant_ids} to run a question with the rights of the caller. Raises not_found.';
