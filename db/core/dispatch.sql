-- The dispatcher. Every request is one call of core.call, which runs the operation in its own transaction.

create function core.enabled_features(p_plan_features text[], p_flags jsonb) returns text[] language sql immutable
  return (
    select coalesce(array_agg(feature order by feature), '{}')
    from (select unnest(p_plan_features) union select jsonb_object_keys(p_flags)) f (feature)
    where coalesce((p_flags ->> feature)::boolean, true)
  );
comment on function core.enabled_features is
  'The features of a school: those of its plan, overridden by the flags of the school.';

create function core.is_reserved_subdomain(p_name text) returns boolean language sql immutable
  return p_name = any ('{www,api,app,admin,console,platform,mail,smtp,ftp,static,assets,cdn,docs,help,support,status,
    health,graphql,metrics,login,auth,localhost,test}');
comment on function core.is_reserved_subdomain is
  'Whether the name is reserved for hosts of the service. No school can have it, and such a host names no school.';

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

-- Checks the session, school, permission, role, feature, setup and subscription, in this order, with as few statements
-- as possible: every request pays for them. Security definer, because request roles cannot read the schema platform.
create function core.admit(p_operation text, p_session_id bigint, p jsonb, p_context jsonb,
  out o core.operation, out settings jsonb)
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_request record;
  v_session_id bigint := p_session_id;
  v_tenant_id bigint;
  v_user_id bigint;
  v_is_platform boolean;
  v_is_open boolean;
  v_lacks_permission boolean := false;
  v_relevant text[]; -- the permissions that determine the scope
  v_feed record;
begin
  if core.is_reserved_subdomain(p_context ->> 'subdomain') then
    p_context := p_context - 'subdomain';
  end if;
  select * into o from core.operation where name = p_operation;
  if o.name is null then
    raise exception 'There is no operation %.', p_operation;
  end if;

  if o.access = 'public' then
    v_session_id := null;
    v_is_platform := coalesce((p ->> 'is_platform')::boolean, false);
    if not v_is_platform then
      v_tenant_id := core.resolve_tenant(p, p_context);
    end if;
  elsif o.access = 'token' then
    v_session_id := null;
    select tenant_id, tenant_id is null, user_id into v_tenant_id, v_is_platform, v_user_id from platform.one_time_token
      where hash = core.token_hash(p ->> 'token') and used_at is null and expires_at > now();
    if not found then
      perform core.fail('invalid_token', 'This link has expired or was already used. Request a new one.');
    end if;
  elsif o.access = 'feed' then
    v_session_id := null;
    v_is_platform := false;
    v_tenant_id := (p ->> 'tenant_id')::bigint;
  elsif o.access = 'picture' then
    v_session_id := null;
    v_tenant_id := nullif((p ->> 'tenant_id')::bigint, 0);
    v_is_platform := v_tenant_id is null;
  elsif o.access = 'refresh' then
    select session_id into v_session_id from platform.refresh_token
      where hash = core.token_hash(p ->> 'refresh_token') and expires_at > now();
    if not found then
      perform core.fail('invalid_token', 'This refresh token is not valid.');
    end if;
  end if;

  select s.*, t.id as tenant, t.subdomain, t.status as tenant_status, t.time_zone, t.is_setup_complete, t.feature_flags,
         p.features as plan_features, sub.status as subscription_status
    into v_request
    from (select v_session_id as id) requested
    left join platform.session s on s.id = requested.id and s.revoked_at is null and s.expires_at > now()
    left join platform.tenant t on t.id = coalesce(s.tenant_id, v_tenant_id)
    left join platform.plan p on p.id = t.plan_id
    left join core.current_subscription sub on sub.tenant_id = t.id;

  if o.access not in ('public', 'token', 'feed', 'picture') then
    if v_request.id is null then
      perform core.fail('invalid_token', 'The session has ended. Log in again.');
    elsif v_request.impersonator_id is not null
        and not ('admin' = any (v_request.roles) and coalesce((p_context ->> 'is_audited')::boolean, false)) then
      -- The user is no longer an admin, or the request bypasses core.call_impersonated and would leave no audit entry.
      perform core.fail('invalid_token', 'The session has ended. Log in again.');
    end if;
    v_is_platform := v_request.tenant_id is null;
    v_tenant_id := v_request.tenant_id;
    v_user_id := v_request.user_id;
    if o.access = 'platform' and not (v_is_platform and 'admin' = any (v_request.roles)) then
      perform core.fail('forbidden', 'This needs a platform operator with the admin role.');
    elsif o.access = 'analyst' and not (v_is_platform and v_request.roles && '{admin,analyst}') then
      perform core.fail('forbidden', 'This needs a platform operator.');
    elsif o.access = 'tenant' and v_is_platform then
      perform core.fail('forbidden', 'This needs a user of a school. You are logged in as an operator.');
    end if;
  end if;

  if not v_is_platform then
    if o.access = 'picture' and v_request.tenant_status is distinct from 'active' then
      perform core.fail('not_found', 'There is no such picture.');
    end if;
    if (p_context ->> 'tenant_id')::bigint <> v_tenant_id or p_context ->> 'subdomain' <> v_request.subdomain then
      perform core.fail('tenant_mismatch', 'X-Tenant-ID or the host names another school than the credentials.');
    end if;
    case v_request.tenant_status
      when 'active' then null;
      when 'suspended' then perform core.fail('tenant_suspended', 'This school is suspended.');
      else perform core.fail('invalid_token', 'This school is closed.');
    end case;
    perform core.require_schema(v_tenant_id);
    if o.access = 'feed' then
      -- Runs with the current permissions of the feed's owner.
      select * into v_feed from core.feed_owner(v_tenant_id, p ->> 'token_hash');
      if v_feed.user_id is null then
        perform core.fail('not_found', 'There is no such calendar.');
      end if;
      v_user_id := v_feed.user_id;
      v_request.permissions := (v_feed.rights).permissions;
      v_request.own_permissions := (v_feed.rights).own_permissions;
      v_request.taught_permissions := (v_feed.rights).taught_permissions;
      v_request.roles := (v_feed.rights).roles;
      v_request.student_id := (v_feed.rights).student_id;
      if v_feed.kind in ('class', 'teacher') then
        select permission, allows_own_rows into o.permission, o.allows_own_rows
          from core.operation where name = 'schedule_feeds_create';
      end if;
    end if;
    v_lacks_permission := o.permission is not null and not coalesce(o.permission = any (v_request.permissions), false);
    v_is_open := o.open_to = 'everyone' or (o.open_to = 'staff' and v_request.student_id is null
      and exists (select from unnest(v_request.roles) role where role <> 'student'));
    if v_lacks_permission and not o.allows_own_rows and v_is_open is not true then
      perform core.fail('forbidden', format('This needs the permission %s.', o.permission));
    end if;
    if o.role is not null and not coalesce(o.role = any (v_request.roles), false) then
      perform core.fail('forbidden', format('This needs the role %s.', o.role));
    end if;
    if o.feature is not null
        and not o.feature = any (core.enabled_features(v_request.plan_features, v_request.feature_flags)) then
      perform core.fail('feature_disabled', format('The feature %s is not enabled for this school.', o.feature));
    end if;
    if o.needs_setup and not v_request.is_setup_complete then
      perform core.fail('setup_incomplete', 'Complete the setup of the school first.');
    end if;
    if o.needs_subscription and not coalesce(v_request.subscription_status in ('trialing', 'active'), false) then
      perform core.fail('subscription_inactive', 'This needs an active subscription.');
    end if;
    if v_request.subscription_status = 'cancelled' and o.access = 'tenant' and o.writes
        and not o.works_when_cancelled then
      perform core.fail('subscription_inactive',
        'The subscription of the school is cancelled. Its data can only be read until it has a plan again.');
    end if;
  end if;

  v_relevant := case when o.permission is null then v_request.permissions else array[o.permission] end;
  settings := jsonb_build_object(
    'search_path', case when v_is_platform then 'platform' else 'tenant_' || v_tenant_id end || ', public, pg_temp',
    'role', case when v_is_platform then 'school_platform' else 'school_tenant' end,
    'tenant_id', coalesce(v_tenant_id::text, ''),
    'user_id', coalesce(v_user_id::text, ''),
    'session_id', coalesce(v_request.id::text, ''),
    'permissions', coalesce(v_request.permissions, '{}')::text,
    'wide_permissions', array(
      select unnest(v_request.permissions) except select unnest(v_request.taught_permissions))::text,
    'student_id', coalesce(v_request.student_id::text, ''),
    -- All rows of the school, unless the permission (or, if none is needed, every permission) comes only from the roles
    -- student and teacher. Requests without a session see all rows, because they have to look up their user.
    'scope', case
      when o.access in ('public', 'token', 'picture') or v_is_platform then 'all'
      when v_lacks_permission and v_is_open and o.open_to = 'staff' then 'all'
      when v_lacks_permission or v_relevant <@ v_request.own_permissions then 'own'
      when v_relevant <@ v_request.taught_permissions then 'taught'
      else 'all'
    end,
    'needs_person', v_lacks_permission and v_is_open is not true,
    'actor_email', coalesce(v_request.email, ''),
    'impersonator_id', coalesce(v_request.impersonator_id::text, ''),
    'impersonator_email', coalesce(v_request.impersonator_email, ''),
    'time_zone', coalesce(v_request.time_zone, 'UTC')
  );
end $$;
comment on function core.admit is
  'Admits or refuses a request. Returns the operation and the settings of its transaction.';

-- Runs one operation for one request, in its own transaction.
--   p_session_id  the session in the verified access token; null without a token
--   p             the parameters from path, query and body, validated by the facade
--   p_context     {tenant_id?, subdomain?, request_id, ip, user_agent, if_match?, idempotency_key?, request_hash?,
--                 range?, known?, check_only?, is_audited?, picture_key?}; see CallContext in src/database/call.ts
--   p_content     the uploaded bytes; only for an operation with content = takes
--   answer        the JSON that the operation returns, as text
--   content       the bytes of the file; only for an operation with content = gives
--   version       the version of the record in the answer
--   id            the id of the record in the answer; only after a write
-- With p_context.check_only it admits the request, locks the record and checks If-Match, but does not run the
-- operation; then all of its results are null. The facade uses this before expensive work.
-- It is not security definer, because such a function cannot change the role. The role lasts until the transaction
-- ends.
create function core.call(
  p_operation text, p_session_id bigint, p jsonb, p_context jsonb, p_content bytea default null,
  out answer text, out content bytea, out version text, out id bigint)
  language plpgsql as $$
declare
  v_admitted record;
  v_operation core.operation;
  s jsonb;
  v_answer json;
  v_is_check boolean := coalesce((p_context ->> 'check_only')::boolean, false);
  v_key text := p_context ->> 'idempotency_key';
  v_record_id bigint;
  v_is_restore boolean;
  v_file_id bigint;
begin
  select a.o, a.settings into v_admitted from core.admit(p_operation, p_session_id, p, p_context) a;
  v_operation := v_admitted.o;
  s := v_admitted.settings;
  perform
    set_config('app.tenant_id', s ->> 'tenant_id', true),
    set_config('app.user_id', s ->> 'user_id', true),
    set_config('app.session_id', s ->> 'session_id', true),
    set_config('app.permissions', s ->> 'permissions', true),
    set_config('app.wide_permissions', s ->> 'wide_permissions', true),
    set_config('app.student_id', s ->> 'student_id', true),
    set_config('app.scope', s ->> 'scope', true),
    -- A request never counts as system work, to which row policies show all rows (core.enter_tenant).
    set_config('app.is_system', '', true),
    set_config('app.actor_email', s ->> 'actor_email', true),
    set_config('app.impersonator_id', s ->> 'impersonator_id', true),
    set_config('app.impersonator_email', s ->> 'impersonator_email', true),
    set_config('app.time_zone', s ->> 'time_zone', true),
    set_config('app.request_id', coalesce(p_context ->> 'request_id', ''), true),
    set_config('app.ip', coalesce(p_context ->> 'ip', ''), true),
    set_config('app.user_agent', coalesce(p_context ->> 'user_agent', ''), true),
    set_config('app.picture_key', coalesce(p_context ->> 'picture_key', ''), true),
    set_config('app.audited', '', true),
    set_config('timezone', 'UTC', true),
    set_config('search_path', s ->> 'search_path', true),
    set_config('role', s ->> 'role', true);
  if s ->> 'scope' <> 'all' then
    perform core.set_row_scope(v_operation, s);
  end if;

  if not v_operation.writes then
    perform set_config('transaction_read_only', 'on', true);
    if v_is_check then
      return;
    end if;
    execute format('select api.%I($1)', p_operation) into v_answer using p;
    if v_operation.content = 'gives'
        and not coalesce(p_context -> 'known' ?| array['*', format('"%s"', v_answer ->> 'digest')], false) then
      content := core.file_content((v_answer ->> 'file_id')::bigint, p_context -> 'range');
    end if;
    answer := v_answer;
    version := core.version_of(v_operation.record, v_answer);
    return;
  end if;

  if v_operation.idempotent and v_key is not null and not v_is_check then
    v_answer := core.claim_idempotency_key(v_operation.name, v_key, p_context ->> 'request_hash');
    if v_answer is not null then
      answer := v_answer;
      version := core.version_of(v_operation.record, v_answer);
      id := substring(v_answer ->> 'id' from '^\d{1,18}$');
      return;
    end if;
  end if;
  -- Lock the record before anything is read or checked, so that no other request changes it in between.
  if v_operation.lock_first is not null then
    perform core.record_lock(v_operation.lock_first, 1);
  end if;
  v_record_id := coalesce((p ->> 'id')::bigint,
    (select 1 from core.record r where r.name = v_operation.record and r.is_single));
  if v_operation.record is not null and v_record_id is not null then
    v_is_restore := core.is_restore(v_operation.record, p);
    perform core.record_lock(v_operation.record, v_record_id, v_is_restore);
    if p_context ->> 'if_match' is not null then
      perform core.require_match(v_operation.record, v_record_id, p_context ->> 'if_match', v_is_restore);
    end if;
    if p ? 'read_only' then
      perform core.require_unchanged(v_operation.record, v_record_id, p -> 'read_only');
    end if;
  end if;
  if v_is_check then
    return;
  end if;
  if v_operation.content = 'takes' and p_content is not null then
    execute 'insert into file (content, content_type, name) values ($1, $2, $3) returning id' into v_file_id
      using p_content, p ->> 'content_type', p ->> 'file_name';
    p := p || jsonb_build_object('file_id', v_file_id);
  end if;
  execute format('select api.%I($1)', p_operation) into v_answer using p;
  if v_operation.idempotent and v_key is not null then
    update idempotency_key set answer = v_answer where user_id = core.user_id() and key = v_key;
  end if;
  if v_operation.access = 'platform' and current_setting('app.audited', true) <> 'yes' then
    raise exception 'The operation % left no audit entry.', p_operation;
  end if;
  answer := v_answer;
  version := core.version_of(v_operation.record, v_answer);
  id := substring(v_answer ->> 'id' from '^\d{1,18}$');
end $$;
comment on function core.call is
  'Runs one operation for one request: admits it, switches to the role and the schema of the school, and calls '
  'api.<operation>(p).';

create function core.set_row_scope(o core.operation, s jsonb) returns void language plpgsql as $$
declare
  v_teacher_id bigint;
  v_class_ids bigint[];
begin
  perform set_config('app.scope', 'all', true);
  select t.id, array(
      select cs.class_id from core.class_staff() cs where cs.teacher_id = t.id
      union
      select e.class_id from enrollment e where e.student_id = u.student_id and e.status in ('active', 'completed'))
    into v_teacher_id, v_class_ids
    from (select core.user_id() as id, nullif(s ->> 'student_id', '')::bigint as student_id) u
    left join teacher t on t.user_id = u.id and t.deleted_at is null;
  if (s ->> 'needs_person')::boolean and v_teacher_id is null and s ->> 'student_id' = '' then
    perform core.fail('forbidden', format('This needs the permission %s.', o.permission));
  end if;
  perform
    set_config('app.scope', s ->> 'scope', true),
    set_config('app.teacher_id', coalesce(v_teacher_id::text, ''), true),
    set_config('app.class_ids', ',' || array_to_string(v_class_ids, ',') || ',', true);
end $$;
comment on function core.set_row_scope is
  'Sets the scope of a user who does not see the whole school: their teacher record, and the classes that they teach, '
  'attend or attended. Raises forbidden for a user without the permission who is neither student nor teacher.';

-- p_range: {start, end, of}, ends included. Without start, the last `end` bytes. Beyond the end of the file: no bytes.
-- With the digest of another file in `of`: the whole file.
create function core.file_content(p_file_id bigint, p_range jsonb) returns bytea language sql stable as $$
  select case
      when p_range is null or p_range ->> 'of' <> digest then content
      else substring(content from part.first + 1 for greatest(part.last - part.first + 1, 0))
    end
  from file,
    lateral (select (p_range ->> 'start')::bigint as start, (p_range ->> 'end')::bigint as "end") requested,
    lateral (select
      least(coalesce(requested.start, greatest(size - requested."end", 0)), size)::integer as first,
      case when requested.start is null then size - 1
        else least(coalesce(requested."end", size), size - 1)::integer end as last) part
  where id = p_file_id;
$$;
comment on function core.file_content is 'The bytes of a file, or of the requested range.';

-- The insert makes a second request with the same key wait until the first one has ended.
create function core.claim_idempotency_key(p_operation text, p_key text, p_request_hash text) returns json
  language plpgsql as $$
declare
  v_earlier record;
begin
  delete from idempotency_key
    where user_id = core.user_id() and key = p_key and created_at < now() - core.idempotency_key_lifetime();
  insert into idempotency_key (user_id, key, operation, request_hash)
    values (core.user_id(), p_key, p_operation, p_request_hash)
    on conflict (user_id, key) do nothing;
  if found then
    return null;
  end if;
  select operation, request_hash, answer into v_earlier
    from idempotency_key where user_id = core.user_id() and key = p_key;
  if v_earlier.operation <> p_operation or v_earlier.request_hash <> p_request_hash then
    perform core.fail('idempotency_key_reused', 'This Idempotency-Key was already used for a different request.');
  end if;
  return v_earlier.answer;
end $$;
comment on function core.claim_idempotency_key is
  'Claims an Idempotency-Key for this request of the user and returns null; or returns the answer to the request that '
  'claimed it within 24 hours. Raises idempotency_key_reused if that was a different request.';

create function core.versioned_fields(p jsonb, p_unversioned_fields text[]) returns jsonb
  language plpgsql immutable as $$
declare
  v_field text;
begin
  p := p - p_unversioned_fields;
  foreach v_field in array p_unversioned_fields loop
    if v_field like '%.%' then
      p := p #- string_to_array(v_field, '.');
    end if;
  end loop;
  return p;
end $$;
comment on function core.versioned_fields is
  'The fields of a record that change only with an edit. p_unversioned_fields as in core.record.';

create function core.version_of(p_record text, p_answer json) returns text language sql stable
  return (
    select md5(core.versioned_fields(p_answer::jsonb, r.unversioned_fields)::text)
    from core.record r
    where r.name = p_record);
comment on function core.version_of is
  'The version of a record: a hash of its fields, except for those that change without an edit. Null without a record.';

-- An ETag is `"version.body"`. Only the version counts. Weak tags (W/) are accepted, because proxies weaken them.
create function core.require_match(p_record text, p_id bigint, p_if_match text, p_is_restore boolean) returns void
  language plpgsql as $$
declare
  v_version text;
  v_answer json;
begin
  if p_is_restore then
    v_answer := core.deleted_record(p_record, p_id);
  end if;
  if v_answer is null then
    execute format('select api.%I($1)', (select reader from core.record where name = p_record))
      into v_answer using p_id;
  end if;
  v_version := core.version_of(p_record, v_answer);
  if p_if_match <> '*' and v_version not in (
      select split_part(regexp_replace(tag, '^\s*(W/)?"?', ''), '.', 1)
      from unnest(string_to_array(p_if_match, ',')) tag) then
    perform core.fail('precondition_failed', 'The record has changed since you read it. Read it again.');
  end if;
end $$;
comment on function core.require_match is
  'Raises precondition_failed unless If-Match names the current version of the record, which must be locked.';

create function core.readiness() returns json
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select json_build_object(
    'fingerprint', (select fingerprint from platform.installation),
    'tenants_behind', (
      select count(*)
      from platform.tenant
      where schema_version < (select core.required_schema_version()) and not (status = 'deleted' and schema_version = 0)
    ),
    -- The worker holds this advisory lock while it runs.
    'worker', exists (
      select from pg_locks
      where locktype = 'advisory' and classid = 7312 and objid = 1 and objsubid = 2
        and database = (select oid from pg_database where datname = current_database())
    ));
$$;
comment on function core.readiness is
  'For /api/health/ready: the installed fingerprint, the number of schools to migrate, and whether a worker runs.';
