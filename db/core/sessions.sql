-- Sessions, tokens and plan limits: the functions that access the schema platform for requests of a school. They are
-- therefore security definer, take the tenant from the context and not from a parameter, and pin the search_path.

create function core.effective_rights(p_user_id bigint) returns core.rights language plpgsql stable as $$
declare
  v_rights core.rights;
begin
  if core.tenant_id() is null then
    select '{}', '{}', '{}', array[role], null
      into v_rights
      from platform.user_account
      where id = p_user_id;
    return v_rights;
  end if;
  with assigned_role as (
    select r.id, r.name, r.is_system
    from user_role ur
    join role r on r.id = ur.role_id
    where ur.user_id = p_user_id
  ), granted as (
    select
      p.id,
      p.name,
      bool_and(h.is_system and h.name = 'student') as is_own,
      bool_and(h.is_system and h.name in ('student', 'teacher')) as is_taught
    from assigned_role h
    join core.permission p on (h.is_system and h.name = 'admin')
      or p.id in (select permission_id from role_permission where role_id = h.id)
    group by p.id, p.name
  )
  select
    array(select name from granted order by id),
    array(select name from granted where is_own order by id),
    array(select name from granted where is_taught order by id),
    array(select case when is_system then name else 'custom:' || name end from assigned_role order by 1),
    (select s.id from student s where s.user_id = p_user_id and s.deleted_at is null)
    into v_rights;
  return v_rights;
end $$;
comment on function core.effective_rights is
  'The effective permissions of a user or operator. The admin role has every permission. Permissions that come only '
  'from the student role apply to the user''s own rows, and those that come only from the teacher role to the classes '
  'that the user teaches. Custom roles are named custom:<name>, unlike system roles.';

create function core.random_token() returns text language sql volatile
  return rtrim(translate(replace(encode(public.gen_random_bytes(32), 'base64'), E'\n', ''), '+/', '-_'), '=');
comment on function core.random_token is 'A random token of 256 bits that needs no escaping in a URL.';

create function core.token_hash(p_token text) returns bytea language sql stable
  return sha256(convert_to(p_token, 'UTF8'));
comment on function core.token_hash is 'The hash under which a token is stored.';

create function core.session_insert(
    p_tenant_id bigint, p_user_id bigint, p_email text, p_rights core.rights, p_lifetime interval,
    p_impersonator platform.session default null) returns platform.session
  language plpgsql as $$
declare
  v_session platform.session;
begin
  insert into platform.session (tenant_id, user_id, email, permissions, own_permissions, taught_permissions, roles,
      student_id, ip, user_agent, expires_at, impersonator_id, impersonator_email, impersonator_session_id)
    values (
      p_tenant_id, p_user_id, p_email,
      p_rights.permissions, p_rights.own_permissions, p_rights.taught_permissions, p_rights.roles, p_rights.student_id,
      nullif(current_setting('app.ip', true), ''),
      nullif(current_setting('app.user_agent', true), ''),
      now() + p_lifetime,
      p_impersonator.user_id, p_impersonator.email, p_impersonator.id)
    returning * into v_session;
  return v_session;
end $$;
comment on function core.session_insert is
  'Inserts a session of a user or operator. p_impersonator is the session of the operator who impersonates the user. '
  'Not granted to request roles, because it accepts any user.';

create function core.session_open(p_user_id bigint, p_email text, p_rights core.rights) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_id bigint := (
    core.session_insert(core.tenant_id(), p_user_id, p_email, p_rights, core.session_lifetime())).id;
begin
  return json_build_object('session_id', v_id, 'refresh_token', core.refresh_token_new(v_id));
end $$;
comment on function core.session_open is
  'Opens a session for a user whose password was verified; returns {session_id, refresh_token}.';

create function core.refresh_token_new(p_session_id bigint, p_predecessor_hash bytea default null) returns text
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_token text := core.random_token();
begin
  insert into platform.refresh_token (hash, session_id, predecessor_hash, expires_at)
    values (core.token_hash(v_token), p_session_id, p_predecessor_hash, now() + core.session_lifetime());
  return v_token;
end $$;
comment on function core.refresh_token_new is
  'Creates a refresh token. Not granted to request roles, because it accepts any session.';

create function core.one_time_token_new(p_tenant_id bigint, p_user_id bigint, p_purpose text) returns text
  language plpgsql as $$
declare
  v_token text := core.random_token();
begin
  insert into platform.one_time_token (hash, tenant_id, user_id, purpose, expires_at)
    values (
      core.token_hash(v_token), p_tenant_id, p_user_id, p_purpose, now() + core.one_time_token_lifetime(p_purpose));
  return v_token;
end $$;
comment on function core.one_time_token_new is
  'Creates a one-time token. Not granted to request roles, because it accepts any user.';

create function core.session_rotate(p_token text) returns json
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_token platform.refresh_token;
  v_is_reuse boolean;
begin
  -- Serializes the refreshes of a session: each one sees what the previous one retired.
  perform from platform.session where id = core.session_id() and revoked_at is null for no key update;
  if not found then
    perform core.fail('invalid_token', 'The session has ended. Log in again.');
  end if;
  select * into v_token
    from platform.refresh_token
    where hash = core.token_hash(p_token) and session_id = core.session_id();
  if not found then
    -- A concurrent refresh has deleted it, because its predecessor had newer successors.
    perform core.fail('invalid_token', 'This refresh token is not valid.');
  end if;
  v_is_reuse := v_token.retired_at is not null
    -- Exchanged by a version that did not store successors, where each token worked only once.
    or v_token.used_at is not null and not exists (
      select from platform.refresh_token where predecessor_hash = v_token.hash)
    or v_token.used_at is null and exists (
    select from platform.refresh_token
    where hash = v_token.predecessor_hash and retired_at < now() - core.refresh_token_grace());
  if v_is_reuse then
    update platform.session set revoked_at = now() where id = core.session_id();
    return json_build_object('refused', 'This refresh token has been replaced. Its reuse ended the session.');
  end if;
  if v_token.used_at is null then
    update platform.refresh_token set retired_at = now()
      where hash = v_token.predecessor_hash and retired_at is null;
  end if;
  update platform.refresh_token set used_at = coalesce(used_at, now()), expires_at = now() + core.session_lifetime()
    where hash = v_token.hash;
  -- A client that keeps using one token never uses its successors, which must not accumulate. The newest ones stay for
  -- browser tabs and devices that share the token.
  delete from platform.refresh_token
    where hash in (
      select hash from platform.refresh_token where predecessor_hash = v_token.hash
      order by created_at desc, hash offset 19);
  update platform.session set expires_at = now() + core.session_lifetime() where id = core.session_id();
  return json_build_object('refresh_token', core.refresh_token_new(core.session_id(), v_token.hash));
end $$;
comment on function core.session_rotate is
  'Accepts a refresh token and creates a successor: {refresh_token}. The first use of a successor retires the token. '
  'The use of a retired token, or of an unused successor more than 10 seconds after its predecessor was retired, may '
  'be a theft: it ends the session and returns {refused}. Returns instead of raising, so that this is committed. '
  'Raises invalid_token if the session has ended meanwhile.';

create function core.sessions_revoke(p_user_ids bigint[], p_except bigint default null) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  update platform.session set revoked_at = now()
  where tenant_id is not distinct from core.tenant_id()
    and user_id = any (p_user_ids)
    and revoked_at is null
    and id is distinct from p_except;
$$;
comment on function core.sessions_revoke is
  'Ends all sessions of users of this school (or of operators) except p_except.';

create function core.session_set_rights(p_user_id bigint, p_rights core.rights) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  update platform.session set
    permissions = p_rights.permissions,
    own_permissions = p_rights.own_permissions,
    taught_permissions = p_rights.taught_permissions,
    roles = p_rights.roles,
    student_id = p_rights.student_id
  where tenant_id is not distinct from core.tenant_id() and user_id = p_user_id and revoked_at is null;
$$;
comment on function core.session_set_rights is 'Writes the rights of a user or an operator to all of their sessions.';

create function core.lock_rights(p_for_change boolean) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  select case when p_for_change then pg_advisory_xact_lock(key) else pg_advisory_xact_lock_shared(key) end
  from (select core.lock_key('rights', coalesce(core.tenant_id(), 0))) rights (key);
$$;
comment on function core.lock_rights is
  'Login, refresh and role changes read rights and write them to sessions. Changes take this lock of the school '
  'exclusively, reads share it, so that no transaction writes outdated rights. Lock order: the record of the request, '
  'then this lock.';

create function core.refresh_rights(p_user_ids bigint[]) returns void language plpgsql as $$
begin
  perform core.session_set_rights(u, core.effective_rights(u)) from unnest(p_user_ids) u;
end $$;
comment on function core.refresh_rights is
  'Writes the current rights of these users to their sessions. The caller must hold core.lock_rights.';

create function core.token_use(p_token text, p_purposes text[]) returns bigint
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  update platform.one_time_token set used_at = now()
  where hash = core.token_hash(p_token)
    and used_at is null
    and expires_at > now()
    and purpose = any (p_purposes)
    and tenant_id is not distinct from core.tenant_id()
  returning user_id;
$$;
comment on function core.token_use is
  'Consumes a one-time token; returns its user, or null if it is used, expired or for another purpose.';

create function core.token_is_recent(p_user_id bigint, p_purpose text) returns boolean
  language sql stable security definer set search_path = pg_catalog, pg_temp
  return exists (
    select from platform.one_time_token
    where tenant_id is not distinct from core.tenant_id()
      and user_id = p_user_id
      and purpose = p_purpose
      and created_at > now() - core.email_interval()
  );
comment on function core.token_is_recent is 'Whether the user got an email for this purpose in the last two minutes.';

create function core.tokens_void(p_user_id bigint, p_purposes text[]) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  update platform.one_time_token set used_at = now()
  where tenant_id is not distinct from core.tenant_id()
    and user_id = p_user_id
    and used_at is null
    and purpose = any (p_purposes);
$$;
comment on function core.tokens_void is 'Revokes the unused tokens of a user.';

create function core.login_account(p_email text) returns bytea language sql stable
  return core.token_hash(coalesce(core.tenant_id()::text, 'platform') || ' ' || p_email);
comment on function core.login_account is
  'The key of an account in platform.login_throttle, which stores no addresses.';

create function core.login_attempt(p_email text) returns integer
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_account bytea := core.login_account(p_email);
  v_now timestamptz := clock_timestamp();
  v_end timestamptz := v_now + core.login_lockout();
  v_throttle record;
begin
  -- An impersonation must not be used to guess the password.
  perform core.refuse_impersonator();
  insert into platform.login_throttle as l (account, attempts, window_ends_at) values (v_account, 1, v_end)
    on conflict (account) do update set
      attempts = case when l.window_ends_at < v_now then 1 else l.attempts + 1 end,
      window_ends_at = case when l.window_ends_at < v_now then v_end else l.window_ends_at end
    returning l.attempts, l.window_ends_at into v_throttle;
  return case
    when v_throttle.attempts > 10 then ceil(extract(epoch from v_throttle.window_ends_at - v_now))::integer
  end;
end $$;
comment on function core.login_attempt is
  'Counts a login attempt before the password is verified, so that concurrent attempts are all counted. Returns the '
  'seconds to wait if the account is locked, else null.';

create function core.login_succeeded(p_email text) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  delete from platform.login_throttle
  where account = core.login_account(p_email);
$$;
comment on function core.login_succeeded is 'Resets the failed attempts of an account.';

create function core.tenant_features() returns text[]
  language sql stable security definer set search_path = pg_catalog, pg_temp
  return coalesce((
    select core.enabled_features(p.features, t.feature_flags)
    from platform.tenant t
    join platform.plan p on p.id = t.plan_id
    where t.id = core.tenant_id()
  ), '{}');
comment on function core.tenant_features is 'The enabled features of this school.';

create function core.tenant_size(p_tenant_id bigint, out students integer, out teachers integer, out classes integer)
  language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  execute format('select students, teachers, classes from %I.school_usage', 'tenant_' || p_tenant_id)
    into students, teachers, classes;
end $$;
comment on function core.tenant_size is
  'The number of active students, active teachers and classes of a school, including the changes of this transaction. '
  'Only for functions of core, because it accepts any school.';

create function core.tenant_usage(out students integer, out teachers integer, out classes integer)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select students, teachers, classes
  from platform.tenant_usage
  where tenant_id = core.tenant_id();
$$;
comment on function core.tenant_usage is
  'The stored counts of this school: active students, active teachers and classes.';

create function core.enforce_plan_limits() returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v record;
begin
  -- The counts of the next statement include what the previous holder of the lock has committed.
  perform from platform.tenant_usage where tenant_id = core.tenant_id() for no key update;
  select p.name, p.max_students, p.max_teachers, u.students as students_before, u.teachers as teachers_before, size.*,
      (size.students, size.teachers, size.classes) is distinct from (u.students, u.teachers, u.classes) as has_changed
    into strict v
    from platform.tenant_usage u
    join platform.tenant t on t.id = u.tenant_id
    join platform.plan p on p.id = t.plan_id
    cross join core.tenant_size(core.tenant_id()) size
    where u.tenant_id = core.tenant_id();
  if v.students > v.max_students and v.students > v.students_before then
    perform core.fail('plan_limit_reached', format(
      'The plan %s allows %s active students. Upgrade the plan or deactivate students.', v.name, v.max_students));
  elsif v.teachers > v.max_teachers and v.teachers > v.teachers_before then
    perform core.fail('plan_limit_reached', format(
      'The plan %s allows %s active teachers. Upgrade the plan or deactivate teachers.', v.name, v.max_teachers));
  end if;
  if v.has_changed then
    update platform.tenant_usage
      set students = v.students, teachers = v.teachers, classes = v.classes
      where tenant_id = core.tenant_id();
  end if;
end $$;
comment on function core.enforce_plan_limits is
  'Raises plan_limit_reached if this school now has more students or teachers than its plan allows; else stores the '
  'counts of students, teachers and classes. Call it after adding or removing people or classes. The row lock '
  'serializes the writers of a school, so that each counts after the previous one has committed.';

create function core.require_plan_fits(p_tenant_id bigint, p_plan_id bigint) returns void
  language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_usage record;
  v_plan record;
begin
  select students, teachers into v_usage from platform.tenant_usage where tenant_id = p_tenant_id for update;
  select name, max_students, max_teachers into v_plan from platform.plan where id = p_plan_id;
  if v_usage.students > v_plan.max_students or v_usage.teachers > v_plan.max_teachers then
    perform core.fail('conflict', format('The plan %s allows %s students and %s teachers; the school has %s and %s.',
      v_plan.name, v_plan.max_students, v_plan.max_teachers, v_usage.students, v_usage.teachers));
  end if;
end $$;
comment on function core.require_plan_fits is
  'Raises conflict when a school has more students or teachers than a plan allows. The row lock makes concurrent '
  'additions wait and then use the limits of the new plan (core.enforce_plan_limits). Only for operators and functions '
  'of core, because it accepts any school.';

create function core.school_allow_impersonation(p_is_allowed boolean) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_is_allowed boolean;
begin
  select is_impersonation_allowed
    into v_is_allowed
    from platform.tenant
    where id = core.tenant_id()
    for no key update;
  if v_is_allowed = p_is_allowed then
    return;
  end if;
  perform core.refuse_impersonator();
  if not exists (select from platform.session where id = core.session_id() and 'admin' = any (roles)) then
    perform core.refuse_field('forbidden', 'is_impersonation_allowed',
      'Only an admin of the school can change whether operators may log in as its admins.');
  end if;
  update platform.tenant set is_impersonation_allowed = p_is_allowed where id = core.tenant_id();
  perform core.audit('tenant.update', 'tenant', core.tenant_id(), core.tenant_id(),
    jsonb_build_object('is_impersonation_allowed', jsonb_build_object('before', v_is_allowed, 'after', p_is_allowed)));
end $$;
comment on function core.school_allow_impersonation is
  'Sets whether operators may impersonate the admins of this school. Disallowing it ends current impersonations. '
  'Raises forbidden unless the user is an admin of the school, and during an impersonation. Audited.';

create function core.is_impersonation_allowed() returns boolean
  language sql stable security definer set search_path = pg_catalog, pg_temp
  return (select is_impersonation_allowed from platform.tenant where id = core.tenant_id());
comment on function core.is_impersonation_allowed is 'Whether operators may impersonate the admins of this school.';

create function core.school_rename(p_name text) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  update platform.tenant set name = p_name where id = core.tenant_id() and name <> p_name;
$$;
comment on function core.school_rename is 'Changes the name of this school.';

create function core.setup_complete() returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  update platform.tenant set is_setup_complete = true where id = core.tenant_id() and not is_setup_complete;
$$;
comment on function core.setup_complete is 'Marks the setup of this school as complete.';

create function core.session_end() returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  update platform.session set revoked_at = now() where id = core.session_id();
$$;
comment on function core.session_end is 'Ends the session of this request.';

create function core.tenant_summary() returns json
  language sql stable security definer set search_path = pg_catalog, pg_temp
  return (
    select json_build_object(
      'id', id,
      'name', name,
      'subdomain', subdomain,
      'time_zone', time_zone,
      'is_setup_complete', is_setup_complete)
    from platform.tenant
    where id = core.tenant_id()
  );
comment on function core.tenant_summary is 'The data of the school that every user may see; null for an operator.';

create function core.operator_changed() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update platform.session
    set
      roles = array[new.role],
      revoked_at = case when new.is_active and new.deleted_at is null then null else now() end
    where tenant_id is null and user_id = new.id and revoked_at is null;
  if new.role <> 'admin' then
    update platform.session set revoked_at = now() where impersonator_id = new.id and revoked_at is null;
  end if;
  return null;
end $$;
comment on function core.operator_changed is
  'Applies a changed role or status of an operator to their sessions at once. Operators have no operation that changes '
  'their role: it is done in SQL.';
create trigger sessions after update of role, is_active, deleted_at on platform.user_account
  for each row execute function core.operator_changed();

create function core.feed_owner(
    p_tenant_id bigint, p_token_hash text, out user_id bigint, out kind text, out rights core.rights)
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_before text[] := core.enter_tenant(p_tenant_id);
begin
  perform set_config('app.feed', p_token_hash, true);
  select f.user_id, f.kind
    into user_id, kind
    from calendar_feed f
    join user_account u on u.id = f.user_id
    where f.token_hash = p_token_hash and u.is_active and u.deleted_at is null;
  if found then
    rights := core.effective_rights(user_id);
    update calendar_feed f set last_used_at = now()
      where f.token_hash = p_token_hash and coalesce(f.last_used_at < now() - core.feed_use_interval(), true);
  end if;
  perform set_config('app.feed', '', true), core.leave_tenant(v_before);
end $$;
comment on function core.feed_owner is
  'The owner of a calendar feed, its kind, and their current rights; null for an unknown token and for a user who '
  'cannot log in. Updates last_used_at once an hour. Only for core.admit, because it accepts any school.';
