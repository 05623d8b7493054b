-- The registries that the dispatcher and the facade read: errors, permissions, default roles, operations, records.
create schema if not exists core;
create schema if not exists api;
comment on schema core is
  'Context, errors, permissions, the dispatcher, audit, jobs. Reinstalled after every migration.';
comment on schema api is 'One function per operation, (params jsonb) returns json. Reinstalled after every migration.';

create table core.error (
  name text primary key,
  sqlstate text not null unique,
  status integer not null
);
comment on table core.error is 'The error registry, copied from src/domain/errors.ts at installation.';

create table core.permission (
  id integer primary key,
  name text not null unique,
  description text not null
);
comment on table core.permission is 'The permission catalog. An id is never reused.';

create table core.default_role (
  name text primary key,
  description text not null,
  permissions text[] not null
);
comment on table core.default_role is
  'The system roles that every new school gets. The admin role has every permission.';

create table core.operation (
  name text primary key,
  access text not null constraint operation_access_check
    check (access in ('public', 'token', 'feed', 'picture', 'refresh', 'any', 'tenant', 'platform', 'analyst')),
  runs_on text not null constraint operation_runs_on_check check (runs_on in ('home', 'school', 'new_school')),
  permission text references core.permission (name) on delete restrict,
  allows_own_rows boolean not null,
  open_to text constraint operation_open_to_check check (open_to in ('staff', 'everyone', 'everyone_staff_all')),
  role text,
  needs_session boolean not null,
  feature text,
  needs_setup boolean not null,
  needs_subscription boolean not null,
  works_when_cancelled boolean not null,
  writes boolean,
  idempotent boolean not null,
  record text,
  present text not null default 'none',
  present_record text,
  lock_first text,
  locked_by text,
  versioned_by text,
  unversioned_fields text[],
  content text constraint operation_content_check check (content in ('takes', 'gives')),
  reader text,
  errors text[] not null,
  needs_search_path boolean not null default true
);
comment on table core.operation is
  'Every operation that core.call can run, and who may run it. Defined beside its function in db/api.';
comment on column core.operation.access is
  'public: no login, the request names the school; token: a one-time token names the school and the user; '
  'feed: a calendar feed token names both, with the current permissions of the user; refresh: a refresh token; '
  'any: a user or an operator; tenant: a user of a school; platform: an operator with the admin role; '
  'analyst: any operator.';
comment on column core.operation.runs_on is
  'With several servers (decision 0044). school: on the server of the school that the caller belongs to, or that an '
  'operator names in the path; home: on the home of the platform; new_school: on the server that is chosen for the new '
  'school. Everything of operators without a school runs at home.';
comment on column core.operation.permission is
  'The permission that the user needs. Null when the operation shows only harmless data or the user''s own.';
comment on column core.operation.allows_own_rows is
  'True: a student or a teacher without the permission may run it too, limited to their own rows.';
comment on column core.operation.open_to is
  'Who may run it without the permission. staff: users without a student record who have a role other than student, '
  'with the scope of the whole school; everyone: all users of the school, with the scope of their own rows; '
  'everyone_staff_all: staff see the whole school, all others their own rows. To a user '
  'without own rows, a list is empty and a record does not exist (decision 0064).';
comment on column core.operation.role is 'The role that the user needs.';
comment on column core.operation.needs_session is
  'True: it refuses API keys. By default if it needs no permission: what a key may do follows from its permissions. '
  'Operations of users on their own account are not among them.';
comment on column core.operation.needs_subscription is 'True: the subscription must be trialing or active.';
comment on column core.operation.works_when_cancelled is
  'True: a school whose subscription is cancelled may run this write. Reads, and operations of any access other than '
  'tenant, always work.';
comment on column core.operation.writes is
  'Whether the function is volatile. If not, core.call makes the transaction read-only. Set by db/finish.sql.';
comment on column core.operation.idempotent is
  'True: a repeated Idempotency-Key returns the first answer instead of running the operation again.';
comment on column core.operation.record is
  'The record that the parameter id names, or a record that exists once. If-Match is compared with its version.';
comment on column core.operation.present is
  'Where an operation finds the values that a request may repeat: record, the reader of its record; or an operation or '
  'another function of api that reads them from the parameters. A request that changes none of them gets them as its '
  'answer, or the record if it has one: the operation does not run, and leaves no trace. By default the record, if the '
  'operation updates one. none: the operation always runs. itself: it also compares the read-only fields.';
comment on column core.operation.present_record is
  'The record of the present values, which says which fields a request may not change.';
comment on column core.operation.lock_first is
  'A record that exists once and is locked before all others, so that such operations of a school run one at a time '
  'and cannot deadlock in the locks that they take next.';
comment on column core.operation.locked_by is
  'The function of api that locks what an operation without a record changes, before anything is read.';
comment on column core.operation.versioned_by is
  'For an operation without a record: the operation or other function of api whose answer has the version that '
  'If-Match names. By default what it repeats (present). Null: there is no version, and only If-Match: * matches.';
comment on column core.operation.unversioned_fields is
  'The fields of the answer that are not part of its version. Null: the answer has no version. By default those of the '
  'record, or of the operation in versioned_by. Set by db/finish.sql.';
comment on column core.operation.errors is
  'The errors that the operation itself can answer. Errors that follow from the other columns or from the route '
  '(forbidden, validation_error, not_found for an id in the path, ...) are added in src/http/openapi/errors.ts.';
comment on column core.operation.content is
  'takes: core.call stores the uploaded bytes, if any, in the table file and adds file_id to the parameters; '
  'gives: the operation answers what file_answer returns, and core.call adds the bytes or the requested range.';
comment on column core.operation.reader is
  'The operation that reads what this one answers after its change: by default the get of its record. A user who may '
  'not run it gets only the id. Null if whoever may run this operation may see its answer. Set by db/finish.sql.';
comment on column core.operation.needs_search_path is
  'False: the function names no table of the school, except in statements of core.run_prepared. It reads them only by '
  'these, core.record_page and generated readers, which set the search path themselves. core.run_operation then leaves '
  'the path constant.';

-- Defines an operation. The columns of core.operation explain the parameters; db/finish.sql sets `writes` and `reader`.
create function core.define_operation(
  p_name text, p_access text default 'tenant', p_permission text default null, p_allows_own_rows boolean default false,
  p_role text default null, p_feature text default null, p_needs_setup boolean default false,
  p_needs_subscription boolean default false, p_works_when_cancelled boolean default false,
  p_idempotent boolean default false, p_record text default null, p_lock_first text default null,
  p_content text default null, p_errors text[] default '{}', p_open_to text default null,
  p_needs_session boolean default null, p_runs_on text default null, p_needs_search_path boolean default true,
  p_present text default null, p_reader text default null, p_locked_by text default null,
  p_versioned_by text default null, p_unversioned_fields text[] default null
) returns void language plpgsql as $define$
declare
  v_unknown text := (
    select string_agg(error, ', ') from unnest(p_errors) error where error not in (select name from core.error));
begin
  if v_unknown is not null then
    raise exception 'The operation % declares errors that src/domain/errors.ts does not define: %.', p_name, v_unknown;
  elsif p_permission not in (select name from core.permission) then
    raise exception 'The operation % needs the permission %, which db/seed/permissions.sql does not define.',
      p_name, p_permission;
  elsif p_role not in (select name from core.default_role) then
    raise exception 'The operation % needs the role %, which db/seed/permissions.sql does not define.', p_name, p_role;
  end if;
  insert into core.operation (name, access, runs_on, permission, allows_own_rows, open_to, role, needs_session, feature,
      needs_setup, needs_subscription, works_when_cancelled, idempotent, record, present, present_record, lock_first,
      locked_by, versioned_by, unversioned_fields, content, reader, errors, needs_search_path)
    values (p_name, p_access,
      coalesce(p_runs_on, case when p_access in ('platform', 'analyst') then 'home' else 'school' end),
      p_permission, p_allows_own_rows, p_open_to, p_role,
      coalesce(p_needs_session, p_permission is null), p_feature, p_needs_setup, p_needs_subscription,
      p_works_when_cancelled, p_idempotent, p_record,
      coalesce(p_present, case when p_record is not null and p_name like '%\_update' then 'record' else 'none' end),
      coalesce(p_record, (select record from core.operation where name = p_present)),
      p_lock_first, p_locked_by,
      coalesce(p_versioned_by, case
        when p_record is null and p_present not in ('none', 'record', 'itself') then p_present end),
      case when p_unversioned_fields is not null then p_unversioned_fields || '{updated_at}' end, p_content,
      coalesce(p_reader, (
        select name from core.operation
        where name = p_present and access = 'tenant' and permission is distinct from p_permission)),
      p_errors, p_needs_search_path);
end $define$;
comment on function core.define_operation is 'Defines an operation: who may run it and which errors it can answer.';

create table core.job_type (
  name text primary key,
  former_names text[] not null,
  schedule text,
  max_attempts integer not null,
  priority integer,
  takes_turns boolean not null,
  one_per_school boolean not null,
  is_slow boolean not null,
  for_requests boolean not null,
  calls text[] not null
);
comment on table core.job_type is
  'Every job that can be queued, defined beside its functions. workers/tasks has a file of the same name for each.';
comment on column core.job_type.former_names is
  'Names of the job in earlier releases, whose processes may still queue it. The worker runs them as this job.';
comment on column core.job_type.schedule is
  'When the worker queues it, in UTC: a line of a graphile-worker crontab without the name. Null: by SQL only.';
comment on column core.job_type.priority is 'Low numbers run first. Null: it is only scheduled, or takes turns.';
comment on column core.job_type.takes_turns is
  'True: the priority is a slot in the order in which the messages of all schools take turns (core.next_slot).';
comment on column core.job_type.one_per_school is
  'True: one job of a school at a time, so that the slow receivers of a school occupy one job of the worker.';
comment on column core.job_type.is_slow is
  'True: it waits for servers that schools choose, or for analytics queries. Such jobs may take half of a worker.';
comment on column core.job_type.for_requests is 'True: operations may queue it, by core.enqueue.';
comment on column core.job_type.calls is
  'The functions of core that the job calls. db/grants.sql grants them to the worker.';

-- Defines a job. The columns of core.job_type explain the parameters.
create function core.define_job(
  p_name text, p_calls text[] default '{}', p_schedule text default null, p_priority integer default null,
  p_max_attempts integer default 10, p_takes_turns boolean default false, p_one_per_school boolean default false,
  p_is_slow boolean default false, p_for_requests boolean default false, p_former_names text[] default '{}'
) returns void language plpgsql as $define$
begin
  if exists (select from core.job_type where name = p_name or p_name = any (former_names)) then
    raise exception 'The job % is defined twice.', p_name;
  elsif p_schedule is null and p_priority is null and not p_takes_turns then
    raise exception 'The job % has no schedule and no priority, so nothing can queue it.', p_name;
  end if;
  insert into core.job_type (name, former_names, schedule, max_attempts, priority, takes_turns, one_per_school, is_slow,
      for_requests, calls)
    values (p_name, p_former_names, p_schedule, p_max_attempts, p_priority, p_takes_turns, p_one_per_school, p_is_slow,
      p_for_requests, p_calls);
end $define$;
comment on function core.define_job is 'Defines a job: who may queue it, when it runs, and what it may call.';

create type core.rights as (
  permissions text[], own_permissions text[], taught_permissions text[], children_permissions text[],
  guardian_permissions text[], roles text[], student_id bigint
);
comment on type core.rights is
  'The effective permissions of a user, as stored in a session. own_permissions: granted by the student role, and by '
  'no other than guardian; limited to the user''s own rows. children_permissions: granted only by the guardian role, '
  'limited to the user''s children. taught_permissions: granted only by the roles teacher, student and guardian, '
  'limited to the classes that the user teaches. guardian_permissions: granted by the guardian role, perhaps also by '
  'others; with these the user also sees their children.';

create table core.record (
  name text primary key,
  table_name text not null,
  key text not null,
  key_parts text[] not null,
  is_single boolean not null,
  columns text not null,
  source text not null,
  one_row_per_key boolean not null,
  condition text not null,
  deleted_condition text,
  deleted_permission text references core.permission (name) on delete restrict,
  restore_fields text[] not null,
  ended text,
  search text,
  filters jsonb not null default '{}',
  literal_filters text[] not null default '{}',
  narrow_filters text[] not null,
  single_page_filters text[] not null,
  own_student_scopes text[] not null,
  sorts jsonb not null default '{}',
  default_sort text,
  default_order text not null,
  writable text[] not null,
  unversioned_fields text[] not null,
  volatile_fields text[] not null,
  fixed_fields text[] not null,
  reader text not null
);
comment on table core.record is
  'How a record is selected, searched, filtered and sorted, and which columns a request may write. '
  'List, get, create and update share this definition.';
comment on column core.record.key is 'The id column with its table alias, which is also the alias of the main table.';
comment on column core.record.key_parts is
  'The expressions that every order ends with. More than the key where a key has several rows, for example one a day.';
comment on column core.record.is_single is
  'True: every school has exactly one, without an id in the path. Its key is 1.';
comment on column core.record.columns is 'The select list of a row.';
comment on column core.record.source is 'The from clause: the main table and its joins.';
comment on column core.record.one_row_per_key is
  'True: no join adds rows, so the source has one row per key. A list then finds the keys of the page first.';
comment on column core.record.condition is
  'The where clause that every row meets. It uses only the main table, because updates run it without the joins.';
comment on column core.record.deleted_condition is
  'The condition of soft-deleted rows, if they can be listed and restored: it replaces the other one for is_deleted.';
comment on column core.record.deleted_permission is
  'The permission that soft-deleted rows need besides the one to read the others.';
comment on column core.record.restore_fields is
  'The fields that a request may change while it restores a soft-deleted row, because the old values may be taken.';
comment on column core.record.ended is
  'The condition of rows that a list leaves out unless the request has a status or include_ended.';
comment on column core.record.search is
  'The text expression that must contain every word of the search. Or a condition, when the words are in tables that '
  'are faster to search separately: :pattern for one word; or :patterns for all words, with :pattern for the longest '
  'one, which an index can use; or :phrase for the search as one text.';
comment on column core.record.own_student_scopes is
  'The row scopes in which the row policy shows only the rows of the student who is the user, and of their children. A '
  'list then also has the filter is_in_scope: Postgres can not use an index for the policy, since it allows other '
  'rows in another scope.';
comment on column core.record.filters is
  '{query parameter: condition with :value}, from p_equals and core.define_filter.';
comment on column core.record.literal_filters is
  'The filters whose value determines the best plan, such as every boolean. A list is planned for each value, so there '
  'must be few values.';
comment on column core.record.narrow_filters is
  'The filters that leave some hundreds of rows. A list with one of them finds the rows once, for the page and for the '
  'count.';
comment on column core.record.single_page_filters is
  'The filters that leave about as many rows as a page has, such as the students of a class. A list with one of them '
  'reads these rows once, and joins and sorts all of them.';
comment on column core.record.sorts is
  '{sort: [expressions]}, from core.define_sort. Every other column that a record shows is a sort too.';
comment on column core.record.unversioned_fields is
  'Fields that change without an edit of the record, such as `stats`, or `subscription.status` for a field of an '
  'object. They are not part of its version.';
comment on column core.record.volatile_fields is
  'Unversioned fields that other requests or time change, such as counts and the time of the last use.';
comment on column core.record.fixed_fields is
  'The fields that only the service sets: columns of the main table besides p_derived_fields, and those in '
  'p_fixed_fields. A request may send them, but not change them (core.refuse_read_only). All other fields that a '
  'request cannot write are derived, such as names of other records, counts and totals. Updates ignore them, because '
  'they may have changed since they were read.';
comment on column core.record.reader is
  'The function of api that reads one record. If-Match is compared with its answer.';

create function core.stored_fields(p_columns text, p_alias text) returns text[] language plpgsql immutable as $$
declare
  v_inner constant text := '\([^()]*\)';
begin
  p_columns := regexp_replace(p_columns, '--[^\n]*|''[^'']*''', '', 'g');
  while p_columns ~ v_inner loop
    p_columns := regexp_replace(p_columns, v_inner, '', 'g');
  end loop;
  return array(
    select field[1]
    from unnest(string_to_array(p_columns, ',')) item,
      regexp_matches(item, format('^\s*(?:%s|private)\.(\w+)\s*$', p_alias)) field);
end $$;
comment on function core.stored_fields is
  'The fields of a select list that are columns of the main table, named by its alias, or by `private` where some '
  'users may not see them.';

-- Defines a record and generates api.<name>_record(id), which returns one record as json or raises not_found.
-- p_equals lists the filters that compare a column with the query parameter of the same name: `class_id` is a column of
-- the main table, `s.class_id` one of the table with the alias s. The type follows from the name (class_id is a bigint,
-- is_active a boolean, date a date, others are text) or is given: `day_of_week::integer`. Other filters:
-- core.define_filter. Sorts: core.define_sort. The columns of core.record explain the other parameters.
create function core.define_record(
  p_name text, p_table text, p_columns text, p_source text, p_key text, p_one_row_per_key boolean default false,
  p_condition text default 'true', p_search text default null, p_equals text[] default '{}',
  p_default_sort text default null, p_default_order text default 'asc', p_writable text[] default '{}',
  p_unversioned_fields text[] default '{}', p_reader text default null, p_is_single boolean default false,
  p_key_parts text[] default null, p_deleted_condition text default null, p_restore_fields text[] default '{}',
  p_ended text default null, p_narrow_filters text[] default '{}', p_single_page_filters text[] default '{}',
  p_volatile_fields text[] default '{}', p_own_student_scopes text[] default '{}', p_fixed_fields text[] default '{}',
  p_derived_fields text[] default '{}', p_deleted_permission text default null
) returns void language plpgsql as $define$
declare
  v_column text;
  v_type text;
  v_reader text;
begin
  insert into core.record (name, table_name, key, key_parts, is_single, columns, source, one_row_per_key, condition,
      deleted_condition, deleted_permission, restore_fields, ended, search, default_sort, default_order, writable,
      unversioned_fields, volatile_fields, fixed_fields, reader, narrow_filters, single_page_filters,
      own_student_scopes)
    values (p_name, p_table, p_key, coalesce(p_key_parts, array[p_key]), p_is_single, p_columns, p_source,
      p_one_row_per_key, p_condition, p_deleted_condition, p_deleted_permission, p_restore_fields, p_ended, p_search,
      p_default_sort, p_default_order, p_writable, p_unversioned_fields || p_volatile_fields || '{updated_at}',
      p_volatile_fields,
      p_fixed_fields || array(
        select unnest(core.stored_fields(p_columns, split_part(p_key, '.', 1))) except select unnest(p_derived_fields)),
      coalesce(p_reader, p_name || '_record'), p_narrow_filters, p_single_page_filters,
      p_own_student_scopes);
  foreach v_column in array p_equals loop
    v_type := substring(v_column from '::(\w+)$');
    v_column := split_part(v_column, '::', 1);
    if v_column not like '%.%' then
      v_column := split_part(p_key, '.', 1) || '.' || v_column;
    end if;
    v_type := coalesce(v_type, case
        when v_column like '%\_id' then 'bigint'
        when v_column like '%.is\_%' then 'boolean'
        when v_column like '%.date' then 'date'
        else 'text'
      end);
    perform core.define_filter(p_name, split_part(v_column, '.', 2), format('%s = :value::%s', v_column, v_type),
      p_is_literal => v_type = 'boolean');
  end loop;
  v_reader := format(
    'select row_to_json(record) from ('
      'select %s from %s where (%s) and %s = (select (core.parameters() ->> ''id'')::bigint)) record',
    p_columns, p_source, p_condition, p_key);
  execute format($function$
    create function api.%1$I(p_id bigint) returns json language plpgsql stable as $body$
    declare
      v_record json := core.run_prepared(%2$L, jsonb_build_object('id', p_id), %4$L);
    begin
      if v_record is null then
        perform core.fail_missing(%3$L, p_id);
      end if;
      return v_record;
    end $body$
  $function$, p_name || '_record', v_reader, p_name, md5(v_reader));
  execute format('comment on function api.%I(bigint) is %L', p_name || '_record',
    format('Returns one %s as json, or raises not_found.', p_name));
end $define$;
comment on function core.define_record is 'Defines a record and generates api.<name>_record(id).';

create function core.define_filter(
  p_record text, p_parameter text, p_condition text, p_is_literal boolean default false
) returns void language plpgsql as $define$
begin
  update core.record
    set filters = filters || jsonb_build_object(p_parameter, p_condition),
      literal_filters = literal_filters || case when p_is_literal then array[p_parameter] else '{}' end
    where name = p_record and not filters ? p_parameter;
  if not found then
    raise exception 'There is no record %, or it has a filter % already.', p_record, p_parameter;
  end if;
end $define$;
comment on function core.define_filter is
  'Adds a filter to a record: a query parameter, and a condition in which :value is the value of the parameter. '
  'p_is_literal: the best plan depends on the value, and there are few values.';

create function core.define_sort(p_record text, p_name text, variadic p_expressions text[]) returns void
  language plpgsql as $define$
begin
  update core.record set sorts = sorts || jsonb_build_object(p_name, p_expressions)
    where name = p_record and not sorts ? p_name;
  if not found then
    raise exception 'There is no record %, or it has a sort % already.', p_record, p_name;
  end if;
end $define$;
comment on function core.define_sort is
  'Adds a sort to a record, if it is not simply a shown column: the order by expressions in ascending order. One that '
  'can be null ends in «nulls last».';

-- Generates the functions of a resource that need nothing but the definition of its record. Each parameter after
-- p_record is the comment of the function with that verb; without it, the resource has to write the function itself.
-- get, create and update answer with the reader of the record. A list, and a get with a generated reader, are SQL
-- functions that Postgres inlines in core.run_operation, without the search path of the school. The others are in
-- PL/pgSQL because a call of an SQL function that Postgres does not inline takes several times as long.
create function core.define_functions(
  p_resource text, p_record text, p_list text default null, p_get text default null, p_create text default null,
  p_update text default null, p_delete text default null
) returns void language plpgsql as $define$
declare
  v_reader text := (select reader from core.record where name = p_record);
  v_is_inlined boolean;
  v_function record;
begin
  if v_reader is null then
    raise exception 'The functions of % need the record %, which is not defined.', p_resource, p_record;
  end if;
  for v_function in
    select p_resource || '_' || verb as name, verb, comment from (
      values ('list', p_list), ('get', p_get), ('create', p_create), ('update', p_update), ('delete', p_delete)
    ) function (verb, comment) where comment is not null
  loop
    v_is_inlined := v_function.verb = 'list' or (v_function.verb = 'get' and v_reader = p_record || '_record');
    execute format(case case when v_is_inlined then 'inlined ' else '' end || v_function.verb
      when 'inlined list' then $list$
        create function api.%1$I(p jsonb) returns json language sql stable
          return core.record_page(%2$L, p)
      $list$
      when 'inlined get' then $get$
        create function api.%1$I(p jsonb) returns json language sql stable
          return api.%3$I((p ->> 'id')::bigint)
      $get$
      when 'get' then $get$
        create function api.%1$I(p jsonb) returns json language plpgsql stable as $$
        begin
          return api.%3$I((p ->> 'id')::bigint);
        end $$
      $get$
      when 'create' then $create$
        create function api.%1$I(p jsonb) returns json language plpgsql as $$
        declare
          v_id bigint := core.record_insert(%2$L, p);
        begin
          return api.%3$I(v_id);
        end $$
      $create$
      when 'update' then $update$
        create function api.%1$I(p jsonb) returns json language plpgsql as $$
        declare
          v_id bigint := core.record_update(%2$L, p);
        begin
          return api.%3$I(v_id);
        end $$
      $update$
      when 'delete' then $delete$
        create function api.%1$I(p jsonb) returns json language plpgsql as $$
        begin
          return core.record_delete(%2$L, p);
        end $$
      $delete$
    end, v_function.name, p_record, v_reader);
    execute format('comment on function api.%I(jsonb) is %L', v_function.name, v_function.comment);
    update core.operation set needs_search_path = not v_is_inlined where name = v_function.name;
  end loop;
end $define$;
comment on function core.define_functions is
  'Generates those of list, get, create, update and delete that need nothing but the definition of a record.';
