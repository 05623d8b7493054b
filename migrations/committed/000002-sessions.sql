--! Previous: sha1:e572b594e1e8e7dc5dc3025f7702f95585d96695
--! Hash: sha1:8856f0ca5fb5c40fb6bf3f547763354b05feff6c
--! Message: sessions

-- Sessions, their tokens, and the limit on failed log-ins.

create table platform.session (
  id bigserial primary key,
  tenant_id bigint references platform.tenant (id) on delete cascade,
  user_id bigint not null,
  permissions text[] not null default '{}',
  roles text[] not null default '{}',
  own_permissions text[] not null default '{}',
  taught_permissions text[] not null default '{}',
  student_id bigint,
  email text not null,
  impersonator_id bigint references platform.user_account (id) on delete cascade,
  impersonator_email text,
  impersonator_session_id bigint references platform.session (id) on delete cascade,
  ip text,
  user_agent text,
  expires_at timestamptz not null,
  revoked_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint session_impersonator_check check (
    num_nonnulls(impersonator_id, impersonator_email, impersonator_session_id) in (0, 3)
    and (impersonator_id is null or tenant_id is not null)
  )
);
comment on table platform.session is
  'A logged-in session. It holds the effective permissions of its user, so that one lookup authorizes a request.';
comment on column platform.session.tenant_id is 'The school of the user; null for an operator.';
comment on column platform.session.own_permissions is
  'Permissions that the user has only through the student role. With them, row policies limit the user to their own '
  'rows.';
comment on column platform.session.taught_permissions is
  'Permissions that the user has only through the teacher or student role. With them, row policies limit the user '
  'to the classes they teach.';
comment on column platform.session.student_id is 'The student whose account the user is, if any.';
comment on column platform.session.impersonator_id is
  'The operator who is logged in as the user, for at most ten minutes; null in an ordinary session.';
comment on column platform.session.impersonator_session_id is
  'The session of the operator. This session ends with it.';
create index session_tenant_id_idx on platform.session (tenant_id, user_id);
create index session_expires_at_idx on platform.session (expires_at);
create index session_impersonator_id_idx on platform.session (impersonator_id)
  where impersonator_id is not null;
create index session_impersonator_session_id_idx on platform.session (impersonator_session_id)
  where impersonator_session_id is not null;
create trigger touch before update on platform.session
  for each row execute function platform.touch_updated_at();

-- Expired sessions send no event: processes with open streams poll for those (core.stream_check).
create function platform.notify_ended() returns trigger language plpgsql as $$
begin
  perform pg_notify('school_events', json_build_object('ended', case tg_table_name
    when 'session' then json_build_object('session', new.id)
    else json_build_object('tenant', new.id)
  end)::text);
  return null;
end $$;
comment on function platform.notify_ended is
  'Tells the processes that have notification streams open, on commit, that a session was revoked or a school is no '
  'longer active.';
create trigger notify_ended after update of revoked_at on platform.session
  for each row when (old.revoked_at is null and new.revoked_at is not null and new.tenant_id is not null)
  execute function platform.notify_ended();
create trigger notify_ended after update of status on platform.tenant
  for each row when (old.status = 'active' and new.status <> 'active')
  execute function platform.notify_ended();

create table platform.refresh_token (
  hash bytea primary key,
  session_id bigint not null references platform.session (id) on delete cascade,
  expires_at timestamptz not null,
  used_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.refresh_token is
  'The refresh tokens of each session, by SHA-256. Used tokens are kept, so that the reuse of a stolen token is '
  'detected.';
create index refresh_token_session_id_idx on platform.refresh_token (session_id);
create index refresh_token_expires_at_idx on platform.refresh_token (expires_at);
create trigger touch before update on platform.refresh_token
  for each row execute function platform.touch_updated_at();

create table platform.one_time_token (
  hash bytea primary key,
  tenant_id bigint references platform.tenant (id) on delete cascade,
  user_id bigint not null,
  purpose text not null
    constraint one_time_token_purpose_check
      check (purpose in ('password_reset', 'invitation', 'email_verification')),
  expires_at timestamptz not null,
  used_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.one_time_token is 'The tokens of links sent by email, by SHA-256.';
create index one_time_token_user_idx on platform.one_time_token (tenant_id, user_id);
create trigger touch before update on platform.one_time_token
  for each row execute function platform.touch_updated_at();

create table platform.login_throttle (
  account bytea primary key,
  attempts integer not null,
  window_ends_at timestamptz not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
comment on table platform.login_throttle is
  'Failed log-ins per account. Ten failures within 15 minutes block the account until the window ends.';
comment on column platform.login_throttle.account is 'SHA-256 of the school and the email address.';
create trigger touch before update on platform.login_throttle
  for each row execute function platform.touch_updated_at();
