-- What the dispatcher and the facade look up: errors, permissions, roles of a new school, operations, records.
create schema if not exists core;
create schema if not exists api;
comment on schema core is 'Context, errors, permissions, the dispatcher, audit, enqueueing. Installed whole after the migrations.';
comment on schema api is 'One function per operation, (params jsonb) returns json. Installed whole after the migrations.';

create table core.error (
  name text primary key,
  sqlstate text not null unique,
  status integer not null
);
comment on table core.error is 'The error registry, filled from src/domain/errors.ts at installation.';

create table core.permission (
  id integer primary key,
  name text not null unique,
  description text not null
);
comment on table core.permission is 'The catalogue of permissions. An id is never used again.';

create table core.default_role (
  name text primary key,
  description text not null,
  permissions text[] not null
);
comment on table core.default_role is 'The system roles that every school begins with. The admin role has every permission.';

create table core.operation (
  name text primary key,
  access text not null constraint operation_access_check check (access in ('public', 'token', 'feed', 'refresh', 'any', 'tenant', 'platform', 'analyst')),
  permission text references core.permission (name) on delete restrict,
  allows_own_rows boolean not null default false,
  role text,
  feature text,
  needs_setup boolean not null default false,
  needs_subscription boolean not null default false,
  writes boolean not null,
  idempotent boolean not null default false,
  record text,
  lock_first text,
  content text constraint operation_content_check check (content in ('takes', 'gives')),
  errors text[] not null default '{}'
);
comment on table core.operation is 'Every operation that the dispatcher will run, and who may run it. Each is registered beside its function in db/api.';
comment on column core.operation.access is 'public: nobody is logged in, the school is named; token: a one-time token names school and user; feed: the token of a calendar feed names both, and the rights are those that the user has now; refresh: a refresh token; any: a user or an operator; tenant: a user of a school; platform: an operator with the admin role; analyst: an operator, whatever their role.';
comment on column core.operation.permission is 'The permission that the user needs; null where the operation shows only what is the user''s own or harmless.';
comment on column core.operation.allows_own_rows is 'True: a student or a teacher without the permission may run it too, for what is their own.';
comment on column core.operation.role is 'The role that the user needs.';
comment on column core.operation.writes is 'False: the dispatcher makes the transaction read-only.';
comment on column core.operation.idempotent is 'True: an Idempotency-Key gives the first answer again.';
comment on column core.operation.record is 'The record that `id` names, or that there is one of: what If-Match is compared with.';
comment on column core.operation.lock_first is 'The record, of which there is one, that is locked before all others: such operations of a school take turns, in whatever order they lock the rest.';
comment on column core.operation.errors is 'The errors that its functions raise by name, read from them at installation (db/errors.sql).';
comment on column core.operation.content is 'takes: the dispatcher stores the bytes of the request, if it has some, in the table file and adds file_id to the parameters; gives: the operation answers api.file_answer, and the dispatcher adds the bytes, or the part of them that was asked for.';

create type core.rights as (permissions text[], own_permissions text[], taught_permissions text[], roles text[], student_id bigint);
comment on type core.rights is 'What a user may do, as a session carries it. own_permissions: those that only the student role gives, which reach no further than the user''s own rows. taught_permissions: those that only the roles teacher and student give, which reach no further than the classes that the user teaches.';

create table core.record (
  name text primary key,
  table_name text not null,
  key text not null,
  is_single boolean not null,
  columns text not null,
  source text not null,
  one_row_per_key boolean not null generated always as (key like '%.id' and replace(source, 'left join', '') !~ 'join|,|\(') stored,
  condition text not null,
  search text,
  filters jsonb not null,
  sorts jsonb not null,
  default_sort text,
  default_order text not null,
  writable text[] not null,
  unversioned_fields text[] not null,
  reader text not null
);
comment on column core.record.is_single is 'There is one of it, which every school has: no id names it, its key is 1.';
comment on column core.record.unversioned_fields is 'Fields that change without an edit of the record: no part of its version.';
comment on column core.record.one_row_per_key is 'Whether the key is the id of a table, and the source that table and left joins alone, which add no rows: a left join is by a unique key.';
comment on column core.record.condition is 'What makes a row one of the record; speaks of the main table only, since updates use it without the joins.';
comment on column core.record.search is 'SQL text in which each word must be; or a condition, where the words stand in tables that are better searched apart: on each word, :pattern; or on all of them, :patterns, where :pattern is the longest, for which an index helps.';
comment on column core.record.filters is '{query parameter: SQL condition with :value}.';
comment on column core.record.sorts is '{sort: [SQL expressions]}, with «nulls last» on an expression that can be null.';
comment on column core.record.reader is 'The function of api that shows one record: what If-Match is compared with.';
comment on table core.record is 'How a record is shown, searched, filtered, sorted, and which of its columns a request may write: the one definition that list, get, create and update share.';

-- Defines a record and generates api.<name>_record(id), which answers one record as json or raises not_found.
create function core.define_record(
  p_name text, p_table text, p_columns text, p_source text, p_key text,
  p_condition text default 'true', p_search text default null, p_filters jsonb default '{}', p_sorts jsonb default '{}',
  p_default_sort text default null, p_default_order text default 'asc', p_writable text[] default '{}',
  p_unversioned_fields text[] default '{}', p_reader text default null, p_is_single boolean default false
) returns void language plpgsql as $define$
begin
  insert into core.record (name, table_name, key, is_single, columns, source, condition, search, filters, sorts, default_sort, default_order, writable, unversioned_fields, reader)
    values (p_name, p_table, p_key, p_is_single, p_columns, p_source, p_condition, p_search, p_filters, p_sorts, p_default_sort, p_default_order, p_writable, p_unversioned_fields || '{updated_at}', coalesce(p_reader, p_name || '_record'));
  execute format($function$
    create function api.%1$I(p_id bigint) returns json language plpgsql stable as $body$
    declare
      v_record json;
    begin
      select row_to_json(record) into v_record from (select %2$s from %3$s where (%4$s) and %5$s = p_id) record;
      if v_record is null then
        perform core.fail('not_found', format('There is no %6$s %%s.', coalesce(p_id::text, '')));
      end if;
      return v_record;
    end $body$
  $function$, p_name || '_record', p_columns, p_source, p_condition, p_key, replace(p_name, '_', ' '));
  execute format('comment on function api.%I(bigint) is %L', p_name || '_record', format('One %s as json, or not_found.', p_name));
end $define$;

-- Generates those functions of a resource that need nothing but the definition of its record: list, get, create, update, delete.
-- p_says names the ones that are wanted, with what each does, for its comment; a resource writes the others itself.
create function core.define_functions(p_resource text, p_record text, p_says jsonb) returns void language plpgsql as $define$
declare
  v_function record;
begin
  for v_function in select key as verb, p_resource || '_' || key as name, value as says from jsonb_each_text(p_says) loop
    execute format(case v_function.verb
      when 'list' then $list$
        create function api.%1$I(p jsonb) returns json language sql stable as $$
          select core.record_page(%2$L, p);
        $$
      $list$
      when 'get' then $get$
        create function api.%1$I(p jsonb) returns json language sql stable as $$
          select api.%3$I((p ->> 'id')::bigint);
        $$
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
        create function api.%1$I(p jsonb) returns json language sql as $$
          delete from %4$I where id = (p ->> 'id')::bigint returning json_build_object('id', id);
        $$
      $delete$
    end, v_function.name, p_record, p_record || '_record', (select table_name from core.record where name = p_record));
    execute format('comment on function api.%I(jsonb) is %L', v_function.name, v_function.says);
  end loop;
end $define$;
