-- Sessions, one-time tokens, and the rights of users. These functions access the schema platform for requests of a
-- school. They are therefore security definer, take the tenant from the context and not from a parameter, and pin the
-- search_path. So do those of throttle.sql and own-school.sql.

create function core.roles_of_inactive_people(p_user_id bigint) returns text[] language sql stable as $$
  select array(
    select person.role
    from (
      select 'student' as role, left_on from student where user_id = p_user_id and deleted_at is null
      union all
      select 'teacher', left_on from teacher where user_id = p_user_id and deleted_at is null
    ) person
    group by person.role
    having bool_and(core.has_left(person.left_on, core.today()))
  );
$$;
comment on function core.roles_of_inactive_people is
  'The system roles student and teacher, if the user is linked to such a person and this person has left.';

create function core.login_refusal(p_user_id bigint) returns text language plpgsql stable as $$
declare
  v_suspended text[];
begin
  if core.tenant_id() is null then
    return null;
  end if;
  v_suspended := core.roles_of_inactive_people(p_user_id);
  if v_suspended = '{}'
     or exists (
       select from user_role ur
       join role r on r.id = ur.role_id
       where ur.user_id = p_user_id and not (r.is_system and r.name = any (v_suspended)))
     or exists (
       select from student
       where user_id = p_user_id and not core.has_left(left_on, core.today()) and deleted_at is null)
     or exists (
       select from teacher
       where user_id = p_user_id and not core.has_left(left_on, core.today()) and deleted_at is null) then
    return null;
  end if;
  return format('You cannot log in because your %s record is inactive. Ask your school to reactivate it.',
    v_suspended[1]);
end $$;
comment on function core.login_refusal is
  'Why a user with the right password cannot log in, or null. A user who is linked to a student or a teacher cannot '
  'log in while this person is inactive, unless they have another role or are linked to another person, who is active.';

create function core.effective_rights(p_user_id bigint, p_includes_suspended boolean default false) returns core.rights
  language plpgsql stable as $$
declare
  v_rights core.rights;
  v_suspended text[] := '{}';
begin
  if core.tenant_id() is null then
    select '{}', '{}', '{}', '{}', '{}', array[role], null
      into v_rights
      from platform.user_account
      where id = p_user_id;
    return v_rights;
  end if;
  if not p_includes_suspended then
    v_suspended := core.roles_of_inactive_people(p_user_id);
  end if;
  with assigned_role as (
    select r.id, r.name, r.is_system
    from user_role ur
    join role r on r.id = ur.role_id
    where ur.user_id = p_user_id and not (r.is_system and r.name = any (v_suspended))
  ), granted as (
    select
      p.id,
      p.name,
      bool_and(h.is_system and h.name in ('student', 'guardian')) and bool_or(h.name = 'student') as is_own,
      bool_and(h.is_system and h.name in ('student', 'teacher', 'guardian')) as is_taught,
      bool_and(h.is_system and h.name = 'guardian') as is_of_children,
      bool_or(h.is_system and h.name = 'guardian') as is_guardian
    from assigned_role h
    join core.permission p on (h.is_system and h.name = 'admin')
      or p.id in (select permission_id from role_permission where role_id = h.id)
    group by p.id, p.name
  )
  select
    array(select name from granted order by id),
    array(select name from granted where is_own order by id),
    array(select name from granted where is_taught order by id),
    array(select name from granted where is_of_children order by id),
    array(select name from granted where is_guardian order by id),
    array(select case when is_system then name else 'custom:' || name end from assigned_role order by 1),
    (select s.id from student s where s.user_id = p_user_id and s.deleted_at is null)
    into v_rights;
  return v_rights;
end $$;
comment on function core.effective_rights is
  'The effective permissions of a user or operator. The admin role has every permission. Permissions that come only '
  'from the student role apply to the user''s own rows, those that come only from the guardian role to the user''s '
  'children, and those that come only from the teacher role to the classes that the user teaches. Custom roles are '
  'named custom:<name>, unlike system roles. The role student or teacher of an '
  'inactive person counts only with p_includes_suspended.';

create function core.random_token() returns text language sql volatile
  return rtrim(translate(replace(encode(public.gen_random_bytes(32), 'base64'), E'\n', ''), '+/', '-_'), '=');
comment on function core.random_token is 'A random token of 256 bits that needs no escaping in a URL.';

create function core.token_hash(p_token text) returns bytea language sql stable
  return sha256(convert_to(p_token, 'UTF8'));
comment on function core.token_hash is 'The hash under which a token is stored.';

create function core.session_insert(
    p_tenant_id bigint, p_user_id bigint, p_email text, p_rights core.rights, p_lifetime interval,
    p_impersonator platform.session default null, p_device_hash bytea default null) returns platform.session
  language plpgsql as $$
declare
  v_session platform.session;
begin
  insert into platform.session (tenant_id, user_id, email, permissions, own_permissions, taught_permissions,
      children_permissions, guardian_permissions, roles, student_id, ip, user_agent, expires_at, impersonator_id,
      impersonator_email, impersonator_session_id, device_hash)
    values (
      p_tenant_id, p_user_id, p_email,
      p_rights.permissions, p_rights.own_permissions, p_rights.taught_permissions, p_rights.children_permissions,
      p_rights.guardian_permissions, p_rights.roles, p_rights.student_id,
      core.context_value('ip'),
      left(core.context_value('user_agent'), 200),
      now() + p_lifetime,
      p_impersonator.user_id, p_impersonator.email, p_impersonator.id,
      p_device_hash)
    returning * into v_session;
  return v_session;
end $$;
comment on function core.session_insert is
  'Inserts a session of a user or operator. p_impersonator is the session of the operator who impersonates the user. '
  'Not granted to request roles, because it accepts any user.';

create function core.is_known_device(p_user_id bigint, p_device_token text) returns boolean
  language sql stable security definer set search_path = pg_catalog, pg_temp
  return exists (
    select from platform.session
    where coalesce(tenant_id, 0) = coalesce(core.tenant_id(), 0)
      and user_id = p_user_id
      and device_hash = core.token_hash(p_device_token)
  );
comment on function core.is_known_device is
  'Whether a token comes from an earlier login of this user of this school (or of an operator), and neither the user, '
  'an admin nor a new password has ended the session of that login.';

create function core.program_name(p_user_agent text) returns text language sql immutable
  return coalesce(regexp_replace(p_user_agent, '[0-9._]+', '', 'g'), '');
comment on function core.program_name is 'A user agent without version numbers, because browsers update every month.';

create function core.has_familiar_origin(p_user_id bigint) returns boolean
  language sql stable security definer set search_path = pg_catalog, pg_temp
  return exists (
    select from platform.session
    where coalesce(tenant_id, 0) = coalesce(core.tenant_id(), 0)
      and user_id = p_user_id
      and impersonator_id is null
      and coalesce(ip, '') = coalesce(core.context_value('ip'), '')
      and core.program_name(user_agent) = core.program_name(left(core.context_value('user_agent'), 200))
  );
comment on function core.has_familiar_origin is
  'Whether a stored session of this user has the address and the program of this request. For clients that do not '
  'keep the token of their device.';

create function core.session_open(p_user_id bigint, p_email text, p_rights core.rights, p_device_token text)
  returns json language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_is_known boolean := core.is_known_device(p_user_id, p_device_token);
  v_is_familiar boolean := v_is_known or core.has_familiar_origin(p_user_id);
  v_device_token text := case when v_is_known then p_device_token else core.random_token() end;
  v_id bigint := (
    core.session_insert(core.tenant_id(), p_user_id, p_email, p_rights, core.session_lifetime(),
      p_device_hash => core.token_hash(v_device_token))).id;
begin
  update platform.session set revoked_at = now()
    where id in (
      select id from platform.session
      where coalesce(tenant_id, 0) = coalesce(core.tenant_id(), 0)
        and user_id = p_user_id
        and impersonator_id is null
        and revoked_at is null
        and expires_at > now()
      order by id desc
      offset core.max_sessions_per_user());
  if v_is_known then
    update platform.session
      set remembered_until = (
        select max(remembered_until) from platform.session
        where coalesce(tenant_id, 0) = coalesce(core.tenant_id(), 0)
          and user_id = p_user_id
          and device_hash = core.token_hash(p_device_token))
      where id = v_id;
  end if;
  return json_build_object(
    'session_id', v_id,
    'refresh_token', core.refresh_token_new(v_id),
    'device_token', v_device_token,
    'is_new_device', not v_is_familiar);
end $$;
comment on function core.session_open is
  'Opens a session for a user whose password and second factor were verified; returns {session_id, refresh_token, '
  'device_token, is_new_device}. A device that is not known to this user gets a new token; a known one stays '
  'remembered. Ends the oldest session of a user who has too many. The caller must hold a lock of the user.';

create function core.refresh_token_new(p_session_id bigint, p_predecessor_hash bytea default null) returns text
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  -- The school comes first, so that the API can choose the connection before it asks the database.
  v_token text := concat((select tenant_id from platform.session where id = p_session_id), '.', core.random_token());
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
  -- The school comes first, so that a forwarder finds its server. A token of an operator has no dot, because the
  -- challenge of a passkey must be base64url.
  v_token text := concat_ws('.', p_tenant_id, core.random_token());
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
  update platform.session
    set
      expires_at = now() + core.session_lifetime(),
      last_used_at = now(),
      ip = coalesce(core.context_value('ip'), ip)
    where id = core.session_id();
  return json_build_object('refresh_token', core.refresh_token_new(core.session_id(), v_token.hash));
end $$;
comment on function core.session_rotate is
  'Accepts a refresh token and creates a successor: {refresh_token}. The first use of a successor retires the token. '
  'The use of a retired token, or of an unused successor more than 10 seconds after its predecessor was retired, may '
  'be a theft: it ends the session and returns {refused}. Returns instead of raising, so that this is committed. '
  'Raises invalid_token if the session has ended meanwhile.';

create function core.sessions_revoke(p_user_ids bigint[], p_except bigint default null) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  update platform.session
    set
      revoked_at = case when id is distinct from p_except then coalesce(revoked_at, now()) else revoked_at end,
      device_hash = case when id is not distinct from p_except then device_hash end,
      remembered_until = null
    where coalesce(tenant_id, 0) = coalesce(core.tenant_id(), 0)
      and user_id = any (p_user_ids)
      and (revoked_at is null or device_hash is not null);
  update platform.one_time_token set used_at = now()
    where tenant_id is not distinct from core.tenant_id()
      and user_id = any (p_user_ids)
      and used_at is null
      and purpose in ('second_factor', 'second_factor_enrollment', 'passkey');
  update platform.second_factor set new_secret = null
    where coalesce(tenant_id, 0) = coalesce(core.tenant_id(), 0)
      and user_id = any (p_user_ids)
      and new_secret is not null;
$$;
comment on function core.sessions_revoke is
  'Ends all sessions of users of this school (or of operators) except p_except, and forgets their devices. Ends logins '
  'that wait for a second factor and set-ups that are not confirmed, because a thief may have begun them. All devices '
  'need the second factor again, that of p_except too.';

create function core.sessions_of(p_user_id bigint) returns json
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select json_agg(
    json_build_object(
      'id', id,
      'ip', ip,
      'user_agent', user_agent,
      'is_current', id is not distinct from core.session_id(),
      'last_used_at', last_used_at,
      'expires_at', expires_at,
      'created_at', created_at)
    order by last_used_at desc, id desc)
  from platform.session
  where coalesce(tenant_id, 0) = coalesce(core.tenant_id(), 0)
    and user_id = p_user_id
    and impersonator_id is null
    and revoked_at is null
    and expires_at > now();
$$;
comment on function core.sessions_of is
  'The sessions of a user of this school (or of an operator), without impersonations; null for none. The caller '
  'checks who may see them.';

create function core.session_revoke(p_user_id bigint, p_session_id bigint) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_device_hash bytea;
begin
  perform core.refuse_impersonator();
  update platform.session set revoked_at = now()
    where id = p_session_id
      and coalesce(tenant_id, 0) = coalesce(core.tenant_id(), 0)
      and user_id = p_user_id
      and impersonator_id is null
      and revoked_at is null
      and expires_at > now()
    returning device_hash into v_device_hash;
  if not found then
    perform core.fail('not_found', format('There is no session %s.', p_session_id));
  end if;
  update platform.session set device_hash = null
    where coalesce(tenant_id, 0) = coalesce(core.tenant_id(), 0)
      and user_id = p_user_id
      and device_hash = v_device_hash;
end $$;
comment on function core.session_revoke is
  'Ends one session of a user of this school (or of an operator) and forgets its device. Raises not_found, also for '
  'the session of another user. The caller checks who may end it.';

create function core.session_set_rights(p_user_id bigint, p_rights core.rights) returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  update platform.session set
    permissions = p_rights.permissions,
    own_permissions = p_rights.own_permissions,
    taught_permissions = p_rights.taught_permissions,
    children_permissions = p_rights.children_permissions,
    guardian_permissions = p_rights.guardian_permissions,
    roles = p_rights.roles,
    student_id = p_rights.student_id
  where coalesce(tenant_id, 0) = coalesce(core.tenant_id(), 0) and user_id = p_user_id and revoked_at is null;
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
  perform core.sessions_revoke(array(select u from unnest(p_user_ids) u where core.login_refusal(u) is not null));
  perform core.session_set_rights(u, core.effective_rights(u)) from unnest(p_user_ids) u;
end $$;
comment on function core.refresh_rights is
  'Writes the current rights of these users to their sessions, and ends the sessions of those who can no longer log '
  'in. The caller must hold core.lock_rights.';

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

create function core.session_end() returns void
  language sql security definer set search_path = pg_catalog, pg_temp as $$
  update platform.session set revoked_at = now() where id = core.session_id();
$$;
comment on function core.session_end is 'Ends the session of this request.';

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
  if new.deleted_at is not null then
    delete from platform.second_factor where tenant_id is null and user_id = new.id;
  end if;
  return null;
end $$;
comment on function core.operator_changed is
  'Applies a changed role or status of an operator to their sessions at once, and deletes the second factor of a '
  'deleted one. Operators have no operation that changes their role: it is done in SQL.';
create trigger sessions after update of role, is_active, deleted_at on platform.user_account
  for each row execute function core.operator_changed();
