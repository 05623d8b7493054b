-- The schedules of saved questions: the jobs `saved_questions` and `send_answer`.

select core.define_job('saved_questions', '{saved_questions_queue}',
  p_schedule => '2,17,32,47 * * * * ?fill=1d&max=3&jobKey=saved_questions&jobKeyMode=replace');
select core.define_job('send_answer', '{answer_prepare}', p_priority => 8, p_is_slow => true);

create function core.saved_questions_queue() returns integer
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_jobs core.new_job[];
begin
  with due as (
    update platform.saved_question
      set next_run_at = core.next_question_run(schedule, now()), last_run_at = now()
      where next_run_at <= now()
      returning id, recipient_ids
  )
  select array_agg(row(
      jsonb_build_object('question_id', due.id, 'user_id', recipient),
      format('%s:%s', due.id, recipient),
      null)::core.new_job)
    into v_jobs
    from due
    cross join unnest(due.recipient_ids) recipient;
  perform core.add_jobs('send_answer', coalesce(v_jobs, '{}'));
  return coalesce(cardinality(v_jobs), 0);
end $$;
comment on function core.saved_questions_queue is
  'Queues an email to each recipient of the questions that are due, and sets their next times. Returns their number.';

create function core.answer_prepare(p_question_id bigint, p_user_id bigint) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_question record;
  v_recipient record;
begin
  select q.id, q.name, q.query, q.variables, q.owner_id, o.email as owner, o.role, o.analyst_tenant_ids
    into v_question
    from platform.saved_question q
    join platform.user_account o on o.id = q.owner_id
    where q.id = p_question_id
      and q.schedule is not null
      and p_user_id = any (q.recipient_ids)
      and o.is_active
      and o.deleted_at is null;
  select email, core.full_name(first_name, last_name) as name
    into v_recipient
    from platform.user_account
    where id = p_user_id;
  if v_question.id is null or not core.may_receive_answers(v_question.owner_id, p_user_id) then
    return null;
  end if;
  perform core.audit_insert(v_question.owner_id, v_question.owner, null, null, 'saved_question.send', null,
    'saved_question', v_question.id, core.diff(null, jsonb_build_object('recipient', v_recipient.email)), '{}');
  return json_build_object(
    'id', v_question.id,
    'name', v_question.name,
    'query', v_question.query,
    'variables', v_question.variables,
    'tenant_ids', case when v_question.role = 'analyst' then to_json(v_question.analyst_tenant_ids) end,
    'owner', v_question.owner,
    'is_owner', v_question.owner_id = p_user_id,
    'recipient', row_to_json(v_recipient));
end $$;
comment on function core.answer_prepare is
  'A scheduled question with the schools that its owner may see now, and its recipient. Null if there is no reason to '
  'send it: the schedule or the recipient was removed, the owner or the recipient is disabled, or the recipient may '
  'not see all schools of the owner. Audited with the owner as actor.';
