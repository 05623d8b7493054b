-- The context of a request: settings of the transaction, set by the dispatcher. Policies and functions read only these.

create function core.tenant_id() returns bigint language sql stable
  return nullif(current_setting('app.tenant_id', true), '')::bigint;
comment on function core.tenant_id is 'The school of this request; null for an operator.';

create function core.user_id() returns bigint language sql stable
  return nullif(current_setting('app.user_id', true), '')::bigint;
comment on function core.user_id is 'The user (or operator) of this request; null when nobody is logged in.';

create function core.session_id() returns bigint language sql stable
  return nullif(current_setting('app.session_id', true), '')::bigint;
comment on function core.session_id is 'The session of this request; null when nobody is logged in.';

create function core.api_key_id() returns bigint language sql stable
  return (nullif(current_setting('app.api_key', true), '')::json ->> 'id')::bigint;
comment on function core.api_key_id is 'The API key of this request; null for a session.';

create function core.impersonator(out id bigint, out email text) language sql stable
  return (
    nullif(current_setting('app.impersonator_id', true), '')::bigint,
    case when current_setting('app.impersonator_id', true) <> ''
      then nullif(current_setting('app.impersonator_email', true), '') end
  );
comment on function core.impersonator is
  'The operator who impersonates the user of this request; nulls without impersonation.';

create function core.context_value(p_name text) returns text language sql stable
  return nullif(nullif(current_setting('app.context', true), '')::jsonb ->> p_name, '');
comment on function core.context_value is
  'A value of the context of this request that few operations need: request_id, traceparent, ip or user_agent. Null '
  'outside of a request.';

create function core.client_context() returns jsonb language sql stable
  return jsonb_build_object(
    'ip', core.context_value('ip'),
    'user_agent', core.context_value('user_agent'),
    'request_id', core.context_value('request_id'));
comment on function core.client_context is 'The client of this request: {ip, user_agent, request_id}.';

create function core.teacher_id() returns bigint language sql stable
  return nullif(current_setting('app.teacher_id', true), '')::bigint;
comment on function core.teacher_id is
  'The teacher record of the user of this request if the scope is less than the whole school; else null.';

create function core.student_id() returns bigint language sql stable
  return case when current_setting('app.scope', true) is distinct from 'children'
    then nullif(current_setting('app.student_id', true), '')::bigint end;
comment on function core.student_id is
  'The student record of the user of this request; null without one, and if only the role guardian allows the request.';

create function core.is_visible_student(p_student_id bigint) returns boolean language sql stable
  return coalesce(p_student_id = core.student_id(), false)
    or coalesce(current_setting('app.child_ids', true) like '%,' || p_student_id::text || ',%', false);
comment on function core.is_visible_student is
  'Whether a student is the user of this request, or a child whose records the user may see.';

create function core.has_own_scope() returns boolean language sql stable
  return coalesce(current_setting('app.scope', true) in ('own', 'children'), false);
comment on function core.has_own_scope is
  'Whether the scope of this request is the rows of the user as a student or a teacher, or those of their children.';

create function core.hides_contacts(p_student_id bigint) returns boolean language sql stable
  return coalesce(
    current_setting('app.children_without_contacts', true) like '%,' || p_student_id::text || ',%', false);
comment on function core.hides_contacts is
  'Whether the user sees this student only as a guardian who does not see the address and the other guardians.';

create function core.sees_guardian_details(p_guardian_id bigint) returns boolean language sql stable
  return coalesce(current_setting('app.scope', true) in ('all', 'taught'), false)
    or coalesce(current_setting('app.guardian_id', true) = p_guardian_id::text, false);
comment on function core.sees_guardian_details is
  'Whether this request sees the address, the login and the rights of a guardian: staff, and the guardian. Another '
  'guardian of the same child does not.';

create function core.has_whole_school_scope() returns boolean language sql stable
  return coalesce(current_setting('app.scope', true) = 'all', false);
comment on function core.has_whole_school_scope is 'Whether the scope of this request is the whole school.';

create function core.can_see_teacher_details(p_teacher_id bigint) returns boolean language sql stable
  return core.has_whole_school_scope() or coalesce(p_teacher_id = core.teacher_id(), false);
comment on function core.can_see_teacher_details is
  'Whether this request may see the private data of a teacher: its scope is the whole school, or the teacher is the '
  'user.';

create function core.permissions_except(p_permissions text[], p_without text[]) returns text[] language sql immutable
  return array(select unnest(p_permissions) except select unnest(p_without));
comment on function core.permissions_except is 'The permissions without some of them.';

-- The next functions read the session when they are called. A request without a session has no permissions, except with
-- an API key or for a calendar feed: core.admit stores those in the settings. They are in PL/pgSQL, because Postgres
-- before 18 plans the query of an SQL function in each transaction.
create function core.permissions() returns text[]
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_session_id bigint := core.session_id();
  v_permissions text[];
begin
  if v_session_id is null then
    v_permissions := nullif(current_setting('app.permissions', true), '');
  else
    select permissions into v_permissions from platform.session where id = v_session_id;
  end if;
  return coalesce(v_permissions, '{}');
end $$;
comment on function core.permissions is 'The permissions of the user of this request.';

create function core.has_permission(p_permission text) returns boolean language sql stable
  return p_permission = any (core.permissions());
comment on function core.has_permission is 'Whether the user of this request has a permission; false without a login.';

create function core.permission_scope(p_permission text) returns text
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_session_id bigint := core.session_id();
  v_scope text;
begin
  if v_session_id is null then
    return case
      when p_permission = any (nullif(current_setting('app.whole_school_permissions', true), '')::text[]) then 'all'
      when not p_permission = any (core.permissions()) then null
      when p_permission = any (nullif(current_setting('app.own_permissions', true), '')::text[]) then 'own'
      when p_permission = any (nullif(current_setting('app.children_permissions', true), '')::text[]) then 'children'
      else 'taught'
    end;
  end if;
  select case
      when not p_permission = any (permissions) then null
      when p_permission = any (own_permissions) then 'own'
      when p_permission = any (children_permissions) then 'children'
      when p_permission = any (taught_permissions) then 'taught'
      else 'all'
    end
    into v_scope
    from platform.session
    where id = v_session_id;
  return v_scope;
end $$;
comment on function core.permission_scope is
  'The scope in which the user of this request has a permission: all, taught, own or children; null without it.';

create function core.has_permission_for_all(p_permission text) returns boolean language sql stable
  return coalesce(core.permission_scope(p_permission) = 'all', false);
comment on function core.has_permission_for_all is
  'Whether the user of this request has a permission for the whole school: from a role other than teacher, student and '
  'guardian.';

create function core.grants_children(p_permission text) returns boolean language sql stable
  return coalesce(
    p_permission = any (nullif(current_setting('app.guardian_permissions', true), '')::text[]), false);
comment on function core.grants_children is
  'Whether the user is a guardian and the role guardian grants a permission. core.admit writes the setting for every '
  'guardian whose scope is not the whole school.';

create function core.sees_children(o core.operation) returns boolean language sql stable
  return nullif(current_setting('app.guardian_permissions', true), '') is not null
    and (
      o.permission is null
      or o.allows_own_rows
      or coalesce(o.open_to in ('everyone', 'everyone_staff_all'), false)
      or core.grants_children(o.permission));
comment on function core.sees_children is
  'Whether an operation shows a guardian the rows of their children: the role guardian grants its permission, or it is '
  'open to all users in their own rows.';

create function core.time_zone() returns text language sql stable
  return coalesce(nullif(current_setting('app.time_zone', true), ''), 'UTC');
comment on function core.time_zone is 'The time zone of the school.';

-- Postgres inlines the next three functions, so that queries with them can use indexes.
create function core.day_at_school(p_moment timestamptz) returns date language sql stable
  return (p_moment at time zone core.time_zone())::date;
comment on function core.day_at_school is 'The date of a timestamp in the time zone of the school.';

create function core.today() returns date language sql stable
  return core.day_at_school(now());
comment on function core.today is 'Today in the time zone of the school.';

create function core.day_begins(p_day date) returns timestamptz language sql stable
  return p_day::timestamp at time zone core.time_zone();
comment on function core.day_begins is 'The start of a day in the time zone of the school.';

create function core.fail(
  p_error text, p_message text, p_details json default null, p_retry_after_s integer default null) returns void
  language plpgsql stable as $$
begin
  raise exception using
    errcode = (select sqlstate from core.error where name = p_error),
    message = p_message,
    detail = coalesce(p_details::text, ''),
    hint = coalesce(p_retry_after_s::text, '');
end $$;
comment on function core.fail is
  'Raises an error of core.error with a message for the client. p_details: [{path, message}] for field errors. '
  'p_retry_after_s: the seconds after which the client may try again, for the error unavailable; 1 by default.';

create function core.refuse_field(p_error text, p_path text, p_message text) returns void language sql stable
  return core.fail(p_error, p_message, json_build_array(json_build_object('path', p_path, 'message', p_message)));
comment on function core.refuse_field is 'Raises an error of core.error for one field of the request.';

create function core.diff(p_before jsonb, p_after jsonb) returns jsonb language sql immutable
  return (
    select coalesce(
      jsonb_object_agg(coalesce(b.key, a.key), jsonb_build_object('before', b.value, 'after', a.value)), '{}')
    from jsonb_each(coalesce(p_before, '{}')) b
    full join jsonb_each(coalesce(p_after, '{}')) a on a.key = b.key
    where b.value is distinct from a.value and coalesce(b.key, a.key) not in ('created_at', 'updated_at')
  );
comment on function core.diff is
  'The changes between two versions of a record, without timestamps: {field: {before, after}}.';

create function core.require_whole_school() returns void language plpgsql stable as $$
begin
  if not core.has_whole_school_scope() then
    perform core.fail('forbidden', 'This needs access to the whole school.');
  end if;
end $$;
comment on function core.require_whole_school is
  'Raises forbidden if the scope of this request is less than the whole school.';

create function core.widen_scope(p_if boolean default true) returns text language plpgsql as $$
declare
  v_scope text := coalesce(current_setting('app.scope', true), '');
begin
  if p_if then
    perform set_config('app.scope', 'all', true);
  end if;
  return v_scope;
end $$;
comment on function core.widen_scope is
  'Widens the scope to the whole school if p_if; returns the previous one. Callers must not reveal rows outside it.';

create function core.restore_scope(p_scope text) returns void language plpgsql as $$
begin
  perform set_config('app.scope', p_scope, true);
end $$;
comment on function core.restore_scope is 'Restores the scope that core.widen_scope returned.';
