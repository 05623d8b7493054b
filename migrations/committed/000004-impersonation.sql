--! Previous: sha1:d624f8e14600047e9798d3ae4ca673fa50385c0a
--! Hash: sha1:9bac6258eb51f8b4e613a82dc66767fb2f52c199
--! Message: impersonation

-- An operator may log in for an admin of a school, for ten minutes: a session of the school that names the operator.
alter table platform.tenant add column if not exists is_impersonation_allowed boolean not null default true;
comment on column platform.tenant.is_impersonation_allowed is 'Whether operators may log in for its admins. Operators switch it off, only the school switches it on again.';

alter table platform.session
  add column if not exists impersonator_id bigint references platform.user_account (id) on delete cascade,
  add column if not exists impersonator_email text,
  add column if not exists impersonator_session_id bigint references platform.session (id) on delete cascade,
  drop constraint if exists session_impersonator_check,
  add constraint session_impersonator_check check (num_nonnulls(impersonator_id, impersonator_email, impersonator_session_id) in (0, 3) and (impersonator_id is null or tenant_id is not null));
comment on column platform.session.impersonator_id is 'The operator who acts for the user; null in a session of the user''s own.';
comment on column platform.session.impersonator_session_id is 'The operator''s own session, with which this one ends.';
create index if not exists session_impersonator_id_idx on platform.session (impersonator_id) where impersonator_id is not null;
create index if not exists session_impersonator_session_id_idx on platform.session (impersonator_session_id) where impersonator_session_id is not null;

alter table platform.audit_log
  add column if not exists impersonated_user_id bigint,
  add column if not exists impersonated_email text;
comment on column platform.audit_log.impersonated_user_id is 'The user of the school (tenant_id) for whom the operator acted; null where they acted for themselves.';
