-- The dispatcher. Every request is one call of core.call, which runs the operation in its own transaction.

create function core.is_feature_enabled(p_feature text, p_plan_features text[], p_flags jsonb) returns boolean
  language sql immutable
  return coalesce((p_flags ->> p_feature)::boolean, p_feature = any (p_plan_features) or p_flags ? p_feature);
comment on function core.is_feature_enabled is
  'Whether a school has a feature: by the flag of the school if it has one, otherwise by its plan.';

create function core.enabled_features(p_plan_features text[], p_flags jsonb) returns text[] language sql immutable
  return (
    select coalesce(array_agg(feature order by feature), '{}')
    from (select unnest(p_plan_features) union select jsonb_object_keys(p_flags)) f (feature)
    where core.is_feature_enabled(feature, p_plan_features, p_flags)
  );
comment on function core.enabled_features is
  'The features of a school: those of its plan, overridden by the flags of the school.';

create function core.is_reserved_subdomain(p_name text) returns boolean language sql immutable
  return p_name = any ('{www,api,app,admin,console,platform,mail,smtp,ftp,static,assets,cdn,docs,help,support,status,
    health,graphql,metrics,login,auth,localhost,test}');
comment on function core.is_reserved_subdomain is
  'Whether the name is reserved for hosts of the service. No school can have it, and such a host names no school.';

create function core.without_reserved_subdomain(p_context jsonb) returns jsonb language sql immutable
  return case
    when core.is_reserved_subdomain(p_context ->> 'subdomain') then p_context - 'subdomain'
    else p_context
  end;
comment on function core.without_reserved_subdomain is
  'The context of a request without the subdomain of its host if that names no school.';

create function core.resolve_tenant(p jsonb, p_context jsonb) returns bigint
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_ids bigint[];
begin
  if coalesce(p ->> 'tenant_id', p ->> 'subdomain', p_context ->> 'tenant_id', p_context ->> 'subdomain') is null then
    perform core.refuse_field('validation_error', 'tenant_id', 'Name the school: send tenant_id or subdomain.');
  end if;
  select array_agg(distinct coalesce((
    select t.id from platform.tenant t
    where case when named.by_id then t.id = named.value::bigint else t.subdomain = named.value end
      and t.status <> 'deleted'), 0))
  into v_ids
  from (values
      (true, p ->> 'tenant_id'), (false, lower(p ->> 'subdomain')),
      (true, p_context ->> 'tenant_id'), (false, p_context ->> 'subdomain')
    ) named (by_id, value)
  where named.value is not null;
  if v_ids[1] = 0 then
    perform core.fail('tenant_not_found', 'There is no such school.');
  elsif cardinality(v_ids) > 1 then
    perform core.fail('tenant_mismatch', 'The request names two different schools.');
  end if;
  return v_ids[1];
end $$;
comment on function core.resolve_tenant is
  'The school of a request without a session, from the body, the header X-Tenant-ID and the host. '
  'Raises validation_error without any, tenant_not_found, or tenant_mismatch if they differ.';

create function core.is_token_of(p_session platform.session, p_context jsonb) returns boolean
  language sql immutable
  return not p_context ? 'user' or (
    p_session.user_id = (p_context ->> 'user')::bigint
    and p_session.tenant_id is not distinct from (p_context ->> 'school')::bigint);
comment on function core.is_token_of is
  'Whether the access token of a request was issued for this session. After a database was restored to an earlier '
  'moment, the ids of lost sessions are given again, to other users and schools, while tokens of the lost ones are '
  'still valid. Calls from within the service name no user.';

create function core.check_session(p_session platform.session, p_access text, p_context jsonb) returns void
  language plpgsql stable as $$
begin
  if p_session.user_id is null then
    perform core.fail('invalid_token', 'The session has ended. Log in again.');
  elsif p_session.impersonator_id is not null
      and not ('admin' = any (p_session.roles) and coalesce((p_context ->> 'is_audited')::boolean, false)) then
    -- The user is no longer an admin, or the request bypasses core.call_impersonated and would leave no audit entry.
    perform core.fail('invalid_token', 'The session has ended. Log in again.');
  end if;
  if p_access = 'tenant' then
    if p_session.tenant_id is null then
      perform core.fail('forbidden', 'This needs a user of a school. You are logged in as an operator.');
    end if;
  elsif p_access = 'platform' and not (p_session.tenant_id is null and 'admin' = any (p_session.roles)) then
    perform core.fail('forbidden', 'This needs a platform operator with the admin role.');
  elsif p_access = 'analyst' and not (p_session.tenant_id is null and p_session.roles && '{admin,analyst}') then
    perform core.fail('forbidden', 'This needs a platform operator.');
  end if;
end $$;
comment on function core.check_session is
  'Raises invalid_token if there is no session (all its fields are null) or an impersonation has ended or would not be '
  'audited; forbidden if a session of its kind may not run operations with this access. Only for core.admit.';

create function core.scope_without_permission(o core.operation, p_caller platform.session) returns text
  language sql immutable as $$
  select case
    when o.open_to in ('staff', 'everyone_staff_all') and p_caller.student_id is null
      and not p_caller.roles <@ '{student,guardian}' then 'all'
    when o.allows_own_rows or o.open_to in ('everyone', 'everyone_staff_all')
      then case when p_caller.roles = '{guardian}' then 'children' else 'own' end
  end;
$$;
comment on function core.scope_without_permission is
  'The scope in which a user without the permission of an operation may run it: all, own or, if they are only a '
  'guardian, children; null if they may not.';

-- Refuses a request by the first of these checks that fails: session, school, permission, role, feature, setup,
-- subscription. Every request pays for them. So each statement reads one row by its key, no condition contains a query,
-- and what most requests do not need is inside an `if` of its own, because each transaction prepares an expression as a
-- whole, also the part that it then skips (decision 0001).
-- Security definer, because request roles cannot read the schema platform.
create function core.admit(p_operation text, p_session_id bigint, p jsonb, p_context jsonb,
  out tenant_id bigint, out scope text, out needs_person boolean, out writes boolean, out permission text,
  out content text, out sees_children boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  o core.operation;
  -- The session. Without one, the school, user and rights that the request has instead.
  v_caller platform.session;
  v_tenant platform.tenant;
  v_is_schema_locked boolean;
  v_lacks_permission boolean := false;
  v_open_scope text; -- of a user without the permission
  v_plan_features text[];
  v_subscription_status text;
  v_relevant text[]; -- the permissions that determine the scope
  v_feed record;
  v_api_key record;
  v_api_key_description text := ''; -- empty without an API key
begin
  select * into o from core.operation where name = p_operation;
  if not found then
    raise exception 'There is no operation %.', p_operation;
  end if;

  if o.access = 'tenant' and not p_context ? 'api_key' then
    -- Nearly all requests take this branch.
    select * into v_caller
      from platform.session s
      where s.id = p_session_id and s.revoked_at is null and s.expires_at > now() and core.is_token_of(s, p_context);
    if v_caller.tenant_id is null or v_caller.impersonator_id is not null then
      perform core.check_session(v_caller, o.access, p_context);
    end if;
  elsif o.access in ('any', 'tenant', 'platform', 'analyst', 'refresh') then
    if o.access = 'refresh' then
      select session_id into p_session_id from platform.refresh_token
        where hash = core.token_hash(p ->> 'refresh_token') and expires_at > now();
      if not found then
        perform core.fail('invalid_token', 'This refresh token is not valid.');
      end if;
    end if;
    if o.access = 'platform' and p_context ? 'operator' and (core.this_node()).id is not null then
      -- On a node: the home has admitted the operator, and the forwarder passes on the session or the key.
      if p_context ->> 'server' <> core.server_id() then
        perform core.fail('unavailable', 'Another database answers at the address of the node.');
      end if;
      v_caller := jsonb_populate_record(v_caller, p_context -> 'operator');
      v_api_key_description := coalesce(p_context #>> '{operator,api_key}', '');
    elsif p_context ? 'api_key' and o.access <> 'refresh' then
      select * into v_api_key from core.api_key_caller(p_context -> 'api_key');
      v_caller := v_api_key.caller;
      v_api_key_description := v_api_key.description;
    else
      select * into v_caller
        from platform.session s
        where s.id = p_session_id and s.revoked_at is null and s.expires_at > now()
          and (o.access = 'refresh' or core.is_token_of(s, p_context));
    end if;
    perform core.check_session(v_caller, o.access, p_context);
    if v_api_key_description <> '' then
      if o.needs_session then
        perform core.fail('forbidden', 'An API key cannot be used for this. Log in as a user.');
      elsif o.writes and (v_api_key_description::json ->> 'is_read_only')::boolean then
        perform core.fail('forbidden', 'This API key can only read. The request changes or records something.');
      end if;
    end if;
  elsif o.access = 'public' then
    if not coalesce((p ->> 'is_platform')::boolean, false) then
      v_caller.tenant_id := core.resolve_tenant(p, core.without_reserved_subdomain(p_context));
    end if;
  elsif o.access = 'token' then
    select k.tenant_id, k.user_id into v_caller.tenant_id, v_caller.user_id from platform.one_time_token k
      where k.hash = core.token_hash(p ->> 'token') and k.used_at is null and k.expires_at > now();
    if not found then
      perform core.fail('invalid_token', 'This link or login has expired or was already used. Start again.');
    end if;
  else
    -- A picture or a calendar feed. School 0 is the platform, which has pictures, and for feeds it does not exist.
    v_caller.tenant_id := coalesce((p ->> 'tenant_id')::bigint, 0);
    if o.access = 'picture' then
      v_caller.tenant_id := nullif(v_caller.tenant_id, 0);
    end if;
  end if;
  tenant_id := v_caller.tenant_id;

  if tenant_id is not null then
    -- As in core.require_schema. The lock comes first, so that the row is not older than the lock.
    v_is_schema_locked := pg_try_advisory_xact_lock_shared(core.tenant_lock_key(tenant_id));
    select * into v_tenant from platform.tenant where id = tenant_id;
    if v_tenant.status is distinct from 'active' or not v_is_schema_locked
        or v_tenant.schema_version < core.required_schema_version() or p_context ?| '{tenant_id,subdomain}' then
      if o.access = 'picture' and v_tenant.status is distinct from 'active' then
        perform core.fail('not_found', 'There is no such picture.');
      end if;
      if (p_context ->> 'tenant_id')::bigint <> tenant_id
          or core.without_reserved_subdomain(p_context) ->> 'subdomain' <> v_tenant.subdomain then
        perform core.fail('tenant_mismatch', 'X-Tenant-ID or the host names another school than the credentials.');
      end if;
      if v_tenant.status is distinct from 'active' then
        if v_tenant.status = 'suspended' then
          perform core.fail('tenant_suspended', 'This school is suspended.');
        end if;
        perform core.fail('invalid_token', 'This school is closed.');
      end if;
      if not v_is_schema_locked or v_tenant.schema_version < core.required_schema_version() then
        perform core.refuse_migrating_school(tenant_id, v_is_schema_locked);
      end if;
    end if;

    if o.access = 'feed' then
      -- Runs with the current permissions of the feed's owner.
      select * into v_feed from core.feed_owner(tenant_id, p ->> 'token_hash');
      if v_feed.user_id is null then
        perform core.fail('not_found', 'There is no such calendar.');
      end if;
      v_caller.user_id := v_feed.user_id;
      v_caller.permissions := (v_feed.rights).permissions;
      v_caller.own_permissions := (v_feed.rights).own_permissions;
      v_caller.taught_permissions := (v_feed.rights).taught_permissions;
      v_caller.children_permissions := (v_feed.rights).children_permissions;
      v_caller.guardian_permissions := (v_feed.rights).guardian_permissions;
      v_caller.roles := (v_feed.rights).roles;
      v_caller.student_id := (v_feed.rights).student_id;
      if v_feed.kind in ('class', 'teacher') then
        select c.permission, c.allows_own_rows into o.permission, o.allows_own_rows
          from core.operation c where c.name = 'schedule_feeds_create';
      end if;
    end if;

    if o.permission is not null and not coalesce(o.permission = any (v_caller.permissions), false) then
      v_lacks_permission := true;
      v_open_scope := core.scope_without_permission(o, v_caller);
      -- What a user may do without the permission is not part of a key.
      if v_api_key_description <> '' or v_open_scope is null then
        perform core.fail('forbidden', format('This needs the permission %s.', o.permission));
      end if;
    end if;
    -- Computed here and not stored as a column: while another release is installed, a running request can call this
    -- function with the other release's table, which may lack the column.
    if o.role is not null or o.feature is not null or o.needs_setup or o.needs_subscription
        or (o.writes and o.access = 'tenant' and not o.works_when_cancelled) then
      if o.role is not null and not coalesce(o.role = any (v_caller.roles), false) then
        perform core.fail('forbidden', format('This needs the role %s.', o.role));
      end if;
      if o.feature is not null then
        select features into v_plan_features from platform.plan where id = v_tenant.plan_id;
        if not found then
          perform core.refuse_missing_copy();
        end if;
        if not core.is_feature_enabled(o.feature, v_plan_features, v_tenant.feature_flags) then
          perform core.fail('feature_disabled', format('The feature %s is not enabled for this school.', o.feature));
        end if;
      end if;
      if o.needs_setup and not v_tenant.is_setup_complete then
        perform core.fail('setup_incomplete', 'Complete the setup of the school first.');
      end if;
      if o.needs_subscription or (o.writes and o.access = 'tenant' and not o.works_when_cancelled) then
        select c.status into v_subscription_status from core.current_subscription c where c.tenant_id = v_tenant.id;
        if o.needs_subscription and not coalesce(v_subscription_status in ('trialing', 'active'), false) then
          perform core.fail('subscription_inactive', 'This needs an active subscription.');
        elsif v_subscription_status = 'cancelled' then
          perform core.fail('subscription_inactive',
            'The subscription of the school is cancelled. Its data can only be read until it has a plan again.');
        end if;
      end if;
    end if;
  end if;

  -- All rows of the school, unless the permission (or, if none is needed, every permission) comes only from the roles
  -- student, guardian and teacher. Requests without a session see all rows, because they have to look up their user.
  scope := 'all';
  needs_person := false;
  if v_lacks_permission or v_caller.permissions = '{}' or v_caller.own_permissions <> '{}'
      or v_caller.taught_permissions <> '{}' then
    v_relevant := case when o.permission is null then v_caller.permissions else array[o.permission] end;
    scope := case
      when tenant_id is null or o.access in ('public', 'token', 'picture') then 'all'
      when v_lacks_permission then v_open_scope
      when v_relevant <@ v_caller.children_permissions and 'guardian' = any (v_caller.roles) then 'children'
      when v_relevant <@ (v_caller.own_permissions || v_caller.children_permissions) then 'own'
      when v_relevant <@ v_caller.taught_permissions then 'taught'
      else 'all'
    end;
    needs_person := v_lacks_permission and v_open_scope in ('own', 'children')
      and o.open_to in ('everyone', 'everyone_staff_all') is not true;
    if 'guardian' = any (v_caller.roles) then
      perform set_config('app.guardian_permissions', v_caller.guardian_permissions::text, true);
      sees_children := core.sees_children(o);
    end if;
  end if;
  writes := o.writes;
  permission := o.permission;
  content := o.content;

  perform
    set_config('app.tenant_id', coalesce(tenant_id::text, ''), true),
    set_config('app.user_id', coalesce(v_caller.user_id::text, ''), true),
    set_config('app.session_id', coalesce(v_caller.id::text, ''), true),
    set_config('app.student_id', coalesce(v_caller.student_id::text, ''), true),
    set_config('app.scope', scope, true),
    -- A request never counts as system work, to which row policies show all rows (core.enter_tenant).
    set_config('app.is_system', '', true),
    set_config('app.api_key', v_api_key_description, true),
    set_config('app.actor_email', coalesce(v_caller.email, ''), true),
    set_config('app.impersonator_id', coalesce(v_caller.impersonator_id::text, ''), true),
    set_config('app.time_zone', coalesce(v_tenant.time_zone, 'UTC'), true),
    set_config('app.picture_key', coalesce(p_context ->> 'picture_key', ''), true),
    -- The rest, which few operations read (core.context_value).
    set_config('app.context', p_context::text, true);
  -- core.impersonator reads this setting only during an impersonation, and core.permissions and others the next four
  -- only without a session. So they are written only then.
  if v_caller.impersonator_id is not null then
    perform set_config('app.impersonator_email', v_caller.impersonator_email, true),
      set_config('app.impersonator_may', core.impersonation_changes()::text, true);
  end if;
  if v_caller.id is null then
    perform
      set_config('app.permissions', coalesce(v_caller.permissions::text, ''), true),
      set_config('app.whole_school_permissions', coalesce(
        core.permissions_except(v_caller.permissions, v_caller.taught_permissions)::text, ''), true),
      set_config('app.own_permissions', coalesce(v_caller.own_permissions::text, ''), true),
      set_config('app.children_permissions', coalesce(v_caller.children_permissions::text, ''), true);
  end if;
end $$;
comment on function core.admit is
  'Admits or refuses a request. Sets the settings app.* of its transaction. Returns the school (null for the '
  'platform), the scope, whether the user must be a teacher, a student or a guardian, and the columns of the operation '
  'that core.call needs.';

-- Runs one operation for one request, in its own transaction.
--   p_session_id  the session in the verified access token; null without a token or with an API key
--   p             the parameters from path, query and body, validated by the facade
--   p_context     {tenant_id?, subdomain?, request_id, traceparent?, ip, user_agent, if_match?, idempotency_key?,
--                 request_hash?, range?, known?, checks?, needs_version?, check_only?, is_audited?, picture_key?,
--                 api_key?, school?, user?};
--                 see CallContext in src/database/call.ts. The forwarder adds operator? (core.operator_of) and server?
--   p_content     the uploaded bytes; only for an operation with content = takes
--   answer        the JSON that the operation returns, as text
--   content       the bytes of the file; only for an operation with content = gives
--   version       the version of the record in the answer; only with p_context.needs_version, and if the user may read
--                 the record as it is in the answer
--   id            the id of the record in the answer; only after a write
-- With p_context.check_only it admits the request, locks the record and checks If-Match, but does not run the
-- operation; then all of its results are null. The facade uses this before expensive work.
-- It is not security definer, because such a function cannot change the role. The role lasts until the transaction
-- ends. The tables of the school are in the search_path only while something needs them, because Postgres plans every
-- statement and condition again when the search_path is another than the last time. The functions that get
-- p_search_path set it, and their clause `set search_path` restores it.
create function core.call(
  p_operation text, p_session_id bigint, p jsonb, p_context jsonb, p_content bytea default null,
  out answer text, out content bytea, out version text, out id bigint)
  language plpgsql as $$
declare
  v_admitted record := core.admit(p_operation, p_session_id, p, p_context);
  v_search_path text := core.search_path_of(v_admitted.tenant_id);
  v_operation core.operation;
  v_reader core.operation;
  v_read_scope text;
  v_answer json;
  v_limited_answer json;
begin
  if v_admitted.writes then
    select * into v_operation from core.operation where name = p_operation;
    if v_operation.reader is not null then
      select * into v_reader from core.operation where name = v_operation.reader;
    end if;
  end if;
  perform
    -- For pg_stat_activity and the lines of the log of Postgres. The first word is the name that the process has set.
    set_config('application_name', concat_ws(' ',
      split_part(current_setting('application_name'), ' ', 1), p_operation, 'tenant_' || v_admitted.tenant_id), true),
    set_config('timezone', 'UTC', true),
    set_config('role', case when v_admitted.tenant_id is null then 'school_platform' else 'school_tenant' end, true),
    case when not v_admitted.writes then set_config('transaction_read_only', 'on', true) end;
  if v_admitted.scope <> 'all' then
    perform core.set_row_scope(
      v_search_path, v_admitted.scope, coalesce(v_admitted.sees_children, false),
      case when v_admitted.needs_person then v_admitted.permission end);
  end if;
  if p_context ? 'checks' then
    p := core.with_school_days(p, p_context -> 'checks');
    if not v_admitted.writes then
      perform core.check_values(v_search_path, null, null, p, p_context -> 'checks');
    end if;
  end if;

  if v_admitted.writes then
    if v_reader.name is not null then
      v_read_scope := core.scope_of(v_reader);
    end if;
    v_answer := core.run_write(v_search_path, v_operation, p, p_context, p_content, v_reader, v_read_scope);
    if v_reader.name is not null and v_answer is not null then
      v_limited_answer := core.limit_to_reader(v_search_path, v_reader, v_read_scope, p, v_answer);
      v_answer := coalesce(v_limited_answer, v_answer);
    end if;
    id := substring(v_answer ->> 'id' from '^\d{1,18}$');
  elsif not coalesce((p_context ->> 'check_only')::boolean, false) then
    v_answer := core.run_operation(v_search_path, p_operation, p);
    if v_admitted.content = 'gives' then
      if not coalesce(p_context -> 'known' ?| array['*', format('"%s"', v_answer ->> 'digest')], false) then
        perform set_config('search_path', v_search_path, true);
        content := core.file_content((v_answer ->> 'file_id')::bigint, p_context -> 'range');
      end if;
    end if;
  end if;
  answer := v_answer;
  if v_limited_answer is null then
    if (p_context ->> 'needs_version')::boolean then
      version := core.version_for(p_operation, v_answer);
    end if;
  end if;
end $$;
comment on function core.call is
  'Runs one operation for one request: admits it, switches to the role of requests, and calls api.<operation>(p).';

create function core.set_row_scope(
    p_search_path text, p_scope text, p_sees_children boolean, p_needed_permission text default null) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_teacher_id bigint;
  v_taught_ids bigint[];
  v_guardian_id bigint;
  v_child_ids bigint[] := '{}';
  v_private_child_ids bigint[] := '{}';
  v_attended_ids bigint[];
begin
  perform set_config('search_path', p_search_path, true), set_config('app.scope', 'all', true);
  if p_sees_children then
    select g.id,
        array(select l.student_id from core.children(g.id) l),
        array(select l.student_id from core.children(g.id) l where not l.can_see_contacts)
      into v_guardian_id, v_child_ids, v_private_child_ids
      from guardian g
      where g.user_id = core.user_id() and g.deleted_at is null;
  end if;
  select t.id,
      array(select distinct cs.class_id from core.class_staff() cs where cs.teacher_id = t.id),
      array(
        select distinct r.class_id
        from core.class_roll() r
        where r.student_id = any (u.student_id || v_child_ids))
    into v_teacher_id, v_taught_ids, v_attended_ids
    from (
      select core.user_id() as id,
        case when p_scope <> 'children' then nullif(current_setting('app.student_id', true), '')::bigint end
          as student_id
    ) u
    left join teacher t on t.user_id = u.id and t.deleted_at is null;
  if p_needed_permission is not null
      and coalesce(v_teacher_id, v_guardian_id) is null
      and coalesce(current_setting('app.student_id', true), '') = '' then
    perform core.fail('forbidden', format('This needs the permission %s.', p_needed_permission));
  end if;
  if p_scope = 'taught' and v_private_child_ids <> '{}' then
    -- A teacher sees the contacts of the students whom they teach.
    v_private_child_ids := array(
      select s.id
      from student s
      where s.id = any (v_private_child_ids) and (s.class_id = any (v_taught_ids)) is not true);
  end if;
  perform
    set_config('app.scope', p_scope, true),
    set_config('app.teacher_id', coalesce(v_teacher_id::text, ''), true),
    set_config('app.guardian_id', coalesce(v_guardian_id::text, ''), true),
    set_config('app.child_ids', format(',%s,', array_to_string(v_child_ids, ',')), true),
    set_config('app.children_without_contacts', format(',%s,', array_to_string(v_private_child_ids, ',')), true),
    set_config('app.attended_class_ids', format(',%s,', array_to_string(v_attended_ids, ',')), true),
    set_config('app.class_ids', format(',%s,', array_to_string(
      case p_scope when 'taught' then v_taught_ids else v_taught_ids || v_attended_ids end, ',')), true);
end $$;
comment on function core.set_row_scope is
  'Sets the scope of a user who does not see the whole school: their teacher record, the classes that they teach, and '
  'the classes that they attend or attended; with p_sees_children also their children and the classes of these. Raises '
  'forbidden for a user who is neither student, teacher nor guardian and lacks p_needed_permission, which is null if '
  'the user may run the operation without being one.';

create function core.scope_rank(p_scope text) returns integer language sql immutable
  return array_position('{children,own,taught,all}'::text[], p_scope);
comment on function core.scope_rank is 'The place of a row scope in their order, from the narrowest to the widest.';

create function core.require_also(p_permission text) returns void language plpgsql stable as $$
declare
  v_scope text := core.permission_scope(p_permission);
  v_present_scope text := current_setting('app.scope', true);
  v_saw_children boolean := v_present_scope = 'all' or current_setting('app.guardian_id', true) <> '';
  v_sees_children boolean := v_saw_children and core.grants_children(p_permission);
begin
  if v_scope is null then
    perform core.fail('forbidden', format('This also needs the permission %s.', p_permission));
  elsif core.scope_rank(v_scope) < core.scope_rank(v_present_scope)
      or v_present_scope <> 'all' and v_saw_children and not v_sees_children then
    perform core.set_row_scope(core.search_path_of(core.tenant_id()),
      case when core.scope_rank(v_scope) < core.scope_rank(v_present_scope) then v_scope else v_present_scope end,
      v_sees_children);
  end if;
end $$;
comment on function core.require_also is
  'Raises forbidden unless the user has a permission that this request needs besides that of its operation. If the '
  'user has it only for fewer rows, the scope of the request becomes as narrow.';

create function core.branch_on_operation(p_operations core.operation[]) returns text language plpgsql immutable as $$
declare
  v_half integer := cardinality(p_operations) / 2;
begin
  if v_half = 0 then
    return format(E'if p_operation = %1$L then\n%2$s  return api.%1$I(p);\nend if;',
      p_operations[1].name,
      case when p_operations[1].needs_search_path
        then E'  v_path := set_config(''search_path'', p_search_path, true);\n' end);
  end if;
  return format(E'if p_operation < %L collate "C" then\n%s\nelse\n%s\nend if;', p_operations[v_half + 1].name,
    core.branch_on_operation(p_operations[:v_half]), core.branch_on_operation(p_operations[v_half + 1:]));
end $$;
comment on function core.branch_on_operation is
  'PL/pgSQL that calls the function of the operation p_operation, which it finds in the operations, sorted by name, by '
  'halving them.';

-- `execute format(...)` would parse and plan the call in each request. The plan of a call that is written out is kept.
create function core.define_run_operation() returns void language plpgsql as $define$
begin
  execute format($function$
    create or replace function core.run_operation(p_search_path text, p_operation text, p jsonb) returns json
      language plpgsql set search_path = pg_catalog, pg_temp as $body$
    declare
      v_path text;
    begin
      %s
      raise exception 'The operation %% is not part of core.run_operation.', p_operation;
    end $body$
  $function$, core.branch_on_operation(array(
    select o
    from (
      select o from core.operation o
      union all
      select jsonb_populate_record(
        null::core.operation, jsonb_build_object('name', read.name, 'needs_search_path', true))
      from (select present from core.operation union select versioned_by from core.operation) read (name)
      where read.name not in (select name from core.operation union all select unnest('{none,record,itself}'::text[]))
    ) all_functions (o)
    order by (o).name collate "C")));
  comment on function core.run_operation is
    'Runs api.<p_operation>(p), with the tables of p_search_path if it names some: an operation, or what one names as '
    'present or versioned_by.';
end $define$;
comment on function core.define_run_operation is
  'Generates core.run_operation from all operations. After a change of core.operation it has to be called again.';
