--! Previous: sha1:7f950773f84b55807385d0e26f7691d8fb53af24
--! Hash: sha1:fda337b66c8a262d5aa5c92e1dfe88a2123abfe0
--! Message: saved-questions

-- Questions of analysts: GraphQL queries with a name, which the worker can run on a schedule.

create table platform.saved_question (
  id bigserial primary key,
  owner_id bigint constraint saved_question_owner_id_fkey references platform.user_account (id) on delete cascade,
  built_in text,
  name text not null constraint saved_question_name_check check (length(name) between 1 and 200),
  description text constraint saved_question_description_check check (length(description) <= 2000),
  query text not null constraint saved_question_query_check check (length(query) between 1 and 20000),
  variables jsonb not null default '{}'
    constraint saved_question_variables_check
      check (jsonb_typeof(variables) = 'object' and length(variables::text) <= 20000),
  schedule text constraint saved_question_schedule_check check (schedule in ('daily', 'weekly', 'monthly')),
  recipient_ids bigint[] not null default '{}'
    constraint saved_question_recipient_ids_check check (cardinality(recipient_ids) <= 20),
  next_run_at timestamptz,
  last_run_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint saved_question_built_in_check check ((built_in is null) = (owner_id is not null)),
  constraint saved_question_next_run_at_check check ((schedule is null) = (next_run_at is null))
);
comment on table platform.saved_question is 'A GraphQL query that an analyst has saved, or that is built in.';
comment on column platform.saved_question.built_in is 'The key of a built-in question, which has no owner.';
comment on column platform.saved_question.recipient_ids is
  'The operators who get the answer by email. Each is checked again before each email.';
create unique index saved_question_built_in_key on platform.saved_question (built_in);
create index saved_question_owner_id_idx on platform.saved_question (owner_id);
create index saved_question_next_run_at_idx on platform.saved_question (next_run_at) where next_run_at is not null;
create trigger touch before update on platform.saved_question
  for each row execute function platform.touch_updated_at();
